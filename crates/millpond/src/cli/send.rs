//! `millpond send`: puts messages into a queue.
//!
//! Owns where the bodies come from and how the answers are shown. Must never send again by itself: what was refused
//! is counted and told.

mod many;

use super::arguments;
use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::{follow, show};
use super::render::{Fields, duration};
use clap::Args;
use millpond_api::client::{Client, Enqueue};
use millpond_api::types::{Accepted, State};
use millpond_config::quantity::parse_duration;
use millpond_core::name::Name;
use std::io::{IsTerminal as _, Read as _, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Largest body that is read here: the most that a server can be set to take.
const BODY_BYTES_MAX: u64 = millpond_config::BODY_BYTES_MAX;

/// Put messages into a queue
///
/// Sends one message and prints what the server promises: its id, how many messages start before it, and when it will
/// probably start. The answer means that the message is on disk. With --key, repeating the command cannot do the work
/// twice: the same key leads to the same message. With --wait the command stays until the work is done and prints its
/// result.
///
/// The body is --body, or the bytes of --file, or standard input. With --lines every line of standard input (or of
/// --file) is a message of its own; they are sent in batches. With --json-lines every line is a message in JSON, with
/// the fields of a batch, such as {"body": "…", "group": "…"}; what a line leaves out comes from the options.
///
/// Messages of one --group are done one after the other, in their order. Within a class (--criticality), tenants take
/// turns, so that a flood of one lengthens only its own wait.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond send jobs --body '{\"invoice\": 7}'\n  \
        millpond send jobs --file order.json --key order-4711 --wait 30s\n  \
        echo hello | millpond send jobs --delay 10m --ttl 1h\n  \
        millpond send jobs --body ping --count 1000\n  \
        millpond send jobs --lines --key import-7 < orders.jsonl\n  \
        millpond send jobs --body paid --group order-4711 --tenant acme\n  \
        millpond send jobs --file report.json --criticality sheddable\n\n\
        Exit code 3: refused, for example because the queue is full.")]
pub(crate) struct Send {
    /// The queue
    #[arg(value_parser = Name::new)]
    queue: Name,
    /// The body, as text
    #[arg(long, conflicts_with_all = ["file", "lines"], value_name = "TEXT")]
    body: Option<String>,
    /// Read the body from a file; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send every line as a message of its own; blank lines are skipped
    #[arg(long, conflicts_with_all = ["count", "wait"])]
    lines: bool,
    /// Send every line as a message in JSON, with the fields of a batch
    #[arg(long, conflicts_with_all = ["body", "lines", "count", "wait"])]
    json_lines: bool,
    /// Send the body so many times
    #[arg(long, value_name = "N", conflicts_with = "wait", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Media type [default: application/json if it is JSON, else text or bytes]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Idempotency key; where many are sent, its beginning: KEY-1, KEY-2, …
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Hand it out no sooner than this from now, such as 10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Not worth doing after this, such as 1h [default: the queue's retention]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// How much it matters when not all can be done [default: critical]
    #[arg(long, value_name = "CLASS", value_parser = ["critical-plus", "critical", "sheddable-plus", "sheddable"])]
    criticality: Option<String>,
    /// Whose work it is: within a class, tenants take turns
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Do it in order with the others of this group, one at a time
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Stay until it is done, at most so long, and print its result
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = arguments::wait)]
    wait: Option<Duration>,
    /// Print one JSON document: the acceptance; with --wait, the final status
    #[arg(long, help_heading = HEADING)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Send {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let client = self.connection.client()?;
        if self.lines || self.json_lines || self.count.is_some() {
            return many::run(&self, &client, out).await;
        }
        let body = self.one_body()?;
        let message = Enqueue {
            content_type: Some(self.content_type_of(&body)),
            idempotency_key: self.key.clone(),
            delay: self.delay,
            ttl: self.ttl,
            criticality: self.criticality.clone(),
            tenant: self.tenant.clone(),
            group: self.group.clone(),
            ..Enqueue::new(body)
        };
        let accepted = client.enqueue(self.queue.as_str(), message).await?;
        let Some(wait) = self.wait else { return self.print(&client, &accepted, out) };
        let status = follow(&client, &accepted.status_url, wait).await?;
        show::outcome(&client, &status, self.json, out).await
    }

    /// The bytes of the only message.
    fn one_body(&self) -> Result<Vec<u8>, Failure> {
        match (&self.body, &self.file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(path)) if path.as_os_str() != "-" => {
                let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
                bounded(file, BODY_BYTES_MAX).map_err(|error| unreadable(path, &error))
            }
            (None, named) => {
                if named.is_none() && std::io::stdin().is_terminal() {
                    let help = "give it with --body or --file, or pipe it in: echo hello | millpond send …";
                    return Err(Failure::usage("there is no body to send", help));
                }
                Ok(bounded(std::io::stdin().lock(), BODY_BYTES_MAX)?)
            }
        }
    }

    fn content_type_of(&self, body: &[u8]) -> String {
        self.content_type.clone().unwrap_or_else(|| guessed(body).to_owned())
    }

    fn print(&self, client: &Client, accepted: &Accepted, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            serde_json::to_writer_pretty(&mut *out, accepted)?;
            writeln!(out)?;
            return Ok(());
        }
        let mut fields = Fields::default();
        let seen = if accepted.duplicate { " (known already by its key; nothing was added)" } else { "" };
        fields.add("accepted", format!("{}{seen}", accepted.id));
        let before = match accepted.status {
            State::Delayed => "none before it is due".to_owned(),
            _ => position(accepted.position),
        };
        fields.add("position", before);
        fields.add("start", expected_start(accepted));
        fields.add("status", absolute(client, &accepted.status_url));
        write!(out, "{}", fields.render())?;
        Ok(())
    }
}

fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read {}: {error}", path.display()), "check the path and who may read it")
}

/// Everything that `from` holds, up to `bytes_max`.
fn bounded(from: impl std::io::Read, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = "the body is larger than any server takes; store it elsewhere and send where it is";
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The media type of a body about which nothing was said.
pub(super) fn guessed(body: &[u8]) -> &'static str {
    let looks_like_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if looks_like_json && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        "application/json"
    } else if std::str::from_utf8(body).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    }
}

/// How many messages start before it, in words.
pub(super) fn position(position: Option<u64>) -> String {
    match position {
        Some(0) => "0 (next)".to_owned(),
        Some(1) => "1 (one message starts before it)".to_owned(),
        Some(before) => {
            format!("{} (so many start before it)", millpond_sim::text::count(before))
        }
        None => "not known: the order, classes, tenants or its group decide".to_owned(),
    }
}

fn expected_start(accepted: &Accepted) -> String {
    accepted.expected_start_seconds.map_or_else(
        || "nothing can be promised now (paused, not measured yet, or the newest first)".to_owned(),
        |start| format!("in about {}; 9 in 10 within {}", duration(start.p50), duration(start.p90)),
    )
}

/// A link of the server as something that can be pasted.
pub(super) fn absolute(client: &Client, url: &str) -> String {
    if url.starts_with('/') { format!("{}{url}", client.address()) } else { url.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{bounded, guessed, position};

    #[test]
    fn the_media_type_is_told_from_the_body() {
        for (body, media_type) in [
            (&br#" {"a": 1}"#[..], "application/json"),
            (b"[1, 2]", "application/json"),
            (b"{broken", "text/plain; charset=utf-8"),
            (b"42", "text/plain; charset=utf-8"),
            (b"", "text/plain; charset=utf-8"),
            (b"\xff\x00", "application/octet-stream"),
        ] {
            assert_eq!(guessed(body), media_type, "{body:?}");
        }
    }

    #[test]
    fn a_body_without_end_is_refused() {
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(std::io::repeat(b'x'), 3).is_err());
    }

    #[test]
    fn the_position_is_in_words() {
        assert_eq!(position(Some(0)), "0 (next)");
        assert!(position(Some(12_000)).starts_with("12,000 "));
        assert!(position(None).contains("not known"));
    }
}
