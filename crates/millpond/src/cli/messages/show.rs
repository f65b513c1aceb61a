//! How messages look on the terminal.
//!
//! Owns the words. Must never ask the server for more than the bytes of a result.

use crate::cli::failure::Failure;
use crate::cli::pages::{limit_option, options};
use crate::cli::render::{Column, Fields, age, counted, duration, excerpt, line, size, table, time};
use crate::cli::send::{absolute, position};
use jiff::Timestamp;
use millpond_api::client::{Client, Content};
use millpond_api::encoding;
use millpond_api::types::{Attempt, AttemptError, MessageStatus, Messages, State};
use millpond_core::name::Name;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// The class of a message about which nothing was said.
const USUAL_CLASS: &str = "critical";
/// Characters of a label in a table.
const LABEL_CHARACTERS: usize = 40;

/// The word for a state.
pub(crate) fn word(state: State) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Which list was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) queue: Name,
    pub(super) state: Option<String>,
    pub(super) limit: u32,
    pub(super) after: Option<String>,
}

/// A list of messages.
pub(super) fn list(asked: &Asked, messages: &Messages, out: &mut impl Write) -> Result<(), Failure> {
    let Asked { queue, state, limit, after } = asked;
    if messages.messages.is_empty() {
        let what = match (state, after) {
            (None, None) => "no messages",
            (Some(_), None) => "no message in that state",
            (None, Some(_)) => "no further message",
            (Some(_), Some(_)) => "no further message in that state",
        };
        writeln!(out, "{queue} holds {what}. Put one in: millpond send {queue} --body hello")?;
        return Ok(());
    }
    write!(out, "{}", rows(&messages.messages, Timestamp::now()))?;
    if let Some(next) = &messages.next {
        let again = options(&[("state", state.as_deref())]) + &limit_option(*limit);
        writeln!(out, "\nmore: millpond messages list {queue}{again} --after {next}")?;
    }
    Ok(())
}

/// A table of messages. Where there is nothing about any of them, that column is left out.
fn rows(messages: &[MessageStatus], now: Timestamp) -> String {
    let has_more = messages.iter().any(|message| !about(message, now).is_empty());
    let mut columns =
        vec![Column::Whole("ID"), Column::Whole("STATE"), Column::Number("TRIED"), Column::Text("ACCEPTED")];
    columns.extend(has_more.then_some(Column::Text("ABOUT")));
    let row = |message: &MessageStatus| {
        let mut row = vec![
            message.id.clone(),
            word(message.status),
            message.attempts.to_string(),
            age(&message.accepted_at, now),
        ];
        row.extend(has_more.then(|| about(message, now)));
        row
    };
    table(&columns, messages.iter().map(row).collect())
}

/// What sets a message apart: when it is due, its class if that is not the usual one, its tenant, its group, and who
/// has it.
fn about(message: &MessageStatus, now: Timestamp) -> String {
    let due = message.due_at.as_deref().map(|due| format!("due {}", age(due, now)));
    let class = (message.criticality != USUAL_CLASS).then(|| line(&message.criticality));
    let named = |what: &str, label: &Option<String>| {
        label.as_ref().map(|label| format!("{what} {}", excerpt(label, LABEL_CHARACTERS)))
    };
    let parts = [
        due,
        class,
        named("tenant", &message.tenant),
        named("group", &message.group),
        named("held by", &message.consumer),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// One message with everything that is known about it.
pub(super) fn status(
    client: &Client,
    message: &MessageStatus,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if json {
        return document(message, out);
    }
    write!(out, "{}", fields(client, message, Timestamp::now()).render())?;
    if !message.history.is_empty() {
        writeln!(out, "\n{}", history(&message.history).trim_end())?;
    }
    Ok(())
}

/// What a message is, apart from its attempts.
pub(crate) fn fields(client: &Client, message: &MessageStatus, now: Timestamp) -> Fields {
    let mut fields = Fields::default();
    fields.add("message", &message.id);
    fields.add("queue", &message.queue);
    fields.add("state", word(message.status));
    fields.add_if("reason", message.dead_reason.as_deref().map(line));
    fields.add("criticality", line(&message.criticality));
    fields.add_if("tenant", message.tenant.as_deref().map(line));
    fields.add_if("group", message.group.as_deref().map(line));
    fields.add_if("held by", message.consumer.as_deref().map(line));
    if !message.status.is_terminal() {
        if message.status == State::Ready {
            fields.add("position", position(message.position));
        }
        let start = message.expected_start_seconds;
        fields.add_if("start", start.map(|start| format!("in about {}", duration(start.p50))));
        fields.add_if("due", message.due_at.as_deref().map(|due| time(due, now)));
    }
    let times = counted(message.deliveries.into(), "time");
    fields.add("handed out", format!("{times}, {} failed", message.attempts));
    fields.add("accepted", time(&message.accepted_at, now));
    fields.add_if("started", message.first_started_at.as_deref().map(|started| time(started, now)));
    fields.add_if("finished", message.finished_at.as_deref().map(|finished| time(finished, now)));
    if !message.status.is_terminal() {
        fields.add("expires", time(&message.expires_at, now));
    }
    fields.add_if("last error", message.last_error.as_ref().map(failure));
    if let Some(result) = &message.result {
        let link = absolute(client, &result.url);
        fields.add("result", format!("{}, {}: {link}", size(result.size), line(&result.content_type)));
    }
    fields
}

fn failure(error: &AttemptError) -> String {
    let status = error.http_status.map(|status| format!(" {status}")).unwrap_or_default();
    let message =
        if error.message.is_empty() { String::new() } else { format!(": {}", line(&error.message)) };
    format!("{}{status}{message}", line(&error.kind))
}

/// A table of attempts.
pub(crate) fn history(attempts: &[Attempt]) -> String {
    let columns = [
        Column::Number("#"),
        Column::Whole("STARTED"),
        Column::Number("TOOK"),
        Column::Whole("OUTCOME"),
        Column::Text("ERROR"),
    ];
    let row = |attempt: &Attempt| {
        vec![
            attempt.n.to_string(),
            line(&attempt.started_at),
            duration(attempt.seconds),
            line(&attempt.outcome),
            attempt.error.as_ref().map_or_else(|| "–".to_owned(), failure),
        ]
    };
    table(&columns, attempts.iter().map(row).collect())
}

/// What became of a message that was waited for. Anything but success is a failure.
pub(crate) async fn outcome(
    client: &Client,
    message: &MessageStatus,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if json {
        document(message, out)?;
    } else if message.status == State::Succeeded && message.result.is_some() {
        let content = client.result(&message.status_url).await?;
        result(&content, false, out)?;
    } else {
        status(client, message, false, out)?;
    }
    let show = format!("see it with: millpond messages show {}", message.id);
    match message.status {
        State::Succeeded => Ok(()),
        state if state.is_terminal() => {
            Err(Failure::new(format!("the message ended as {}", word(state)), show))
        }
        state => Err(Failure::new(
            format!("the message is not done yet, it is {}; it stays accepted", word(state)),
            format!("follow it with: millpond messages show {} --wait 10m", message.id),
        )),
    }
}

/// A message that was withdrawn.
pub(super) fn cancelled(message: &MessageStatus, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(message, out);
    }
    writeln!(out, "{} is {}; nobody will be given it", message.id, word(message.status))?;
    Ok(())
}

/// The bytes of a result as they are; as JSON, with their media type.
pub(super) fn result(content: &Content, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        let (body, body_encoding) = encoding::encode(&content.body);
        let mut value = json!({"content_type": content.content_type, "body": body});
        if let (Some(encoding), Value::Object(fields)) = (body_encoding, &mut value) {
            fields.insert("body_encoding".to_owned(), serde_json::to_value(encoding)?);
        }
        return document(&value, out);
    }
    Ok(out.write_all(&content.body)?)
}

/// One JSON document.
pub(crate) fn document(value: &impl serde::Serialize, out: &mut impl Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

/// A file that cannot be written.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("cannot write {}: {error}", path.display()),
        "check the directory and who may write there",
    )
}

#[cfg(test)]
mod tests {
    use super::{LABEL_CHARACTERS, about, rows};
    use jiff::Timestamp;
    use millpond_api::types::MessageStatus;
    use serde_json::{Value, json};

    fn message(facts: &Value) -> MessageStatus {
        let mut message = json!({
            "id": "0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55", "queue": "jobs", "status": "ready", "status_url": "/x",
            "position": null, "expected_start_seconds": null, "accepted_at": "2026-11-30T10:00:00.000Z",
            "attempts": 5, "deliveries": 5, "due_at": null, "first_started_at": null, "finished_at": null,
            "expires_at": "2026-12-04T10:00:00.000Z", "criticality": "critical", "history": []
        });
        message.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
        serde_json::from_value(message).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-30T10:00:07Z".parse().unwrap()
    }

    fn shown(messages: &[MessageStatus]) -> String {
        let table = rows(messages, now());
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        table
    }

    #[test]
    fn what_no_message_has_takes_no_room() {
        let table = shown(&[message(&json!({}))]);
        assert!(!table.contains("ABOUT"), "{table}");
        assert!(table.contains("7.0s ago"), "{table}");
    }

    #[test]
    fn class_tenant_group_and_holder_are_told_and_cannot_control_the_terminal() {
        let busy = message(
            &json!({"criticality": "sheddable-plus", "tenant": "acme\u{1b}[2J", "group": "g".repeat(128)}),
        );
        let group = "g".repeat(LABEL_CHARACTERS - 1);
        assert_eq!(about(&busy, now()), format!("sheddable-plus, tenant acme\u{fffd}[2J, group {group}…"));
        let held = message(&json!({"status": "leased", "consumer": "w 1"}));
        assert_eq!(about(&held, now()), "held by w 1");
        let failed = message(&json!({"status": "backoff", "due_at": "2026-11-30T10:01:00.000Z"}));
        assert_eq!(about(&failed, now()), "due in 53.0s");
        let table = shown(&[busy, held, failed]);
        for said in ["ABOUT", "held by w 1", "due in 53.0s"] {
            assert!(table.contains(said), "{said} is missing\n{table}");
        }
    }
}
