//! `millpond dead`: see what could not be done, and put it back to work.
//!
//! Owns the arguments and how dead letters look. Must never delete without a word from the user.

mod filter;
mod replay;

use super::confirm::confirm;
use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::show::{document, fields, history};
use super::render::{Column, age, counted, excerpt, line, table, text};
use clap::{Args, Subcommand};
use filter::Filter;
use jiff::Timestamp;
use millpond_api::client::{Client, DeadPage};
use millpond_api::encoding::Encoding;
use millpond_api::replay::ReplayFilter;
use millpond_api::types::{DeadLetter, MessageStatus, Messages};
use millpond_core::name::Name;
use replay::{ReplayArguments, ReplaysArguments};
use serde_json::json;
use std::io::Write;

/// Characters of an error in a list, and of a body that is shown.
const ERROR_CHARACTERS: usize = 120;
const BODY_CHARACTERS: usize = 4_000;

/// See what could not be done, and put it back to work
///
/// A message becomes a dead letter when its attempts are used up, its target rejects it for good, or it expires. It is
/// kept with its body, its reason and every attempt, until you replay it, delete it, or its retention ends. Find out
/// why first (show), mend the cause, then replay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond dead list jobs\n  \
        millpond dead show jobs 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55\n  \
        millpond dead replay jobs --all --dry-run")]
pub(crate) struct Dead {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
    /// Print one JSON document
    #[arg(long, global = true, help_heading = HEADING)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the dead letters of a queue
    ///
    /// Shows when each one died, after how many attempts, why, and its last error.
    #[command(after_help = "Examples:\n  \
            millpond dead list jobs\n  \
            millpond dead list jobs --reason rejected\n  \
            millpond dead list jobs --error 'connection refused' --since 2h")]
    List {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        #[command(flatten)]
        filter: Filter,
        /// At most so many
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: u32,
        /// Go on after this one, as the page before says
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Show one dead letter with its body and every attempt
    ///
    /// Long bodies are cut on the terminal; --json gives the whole.
    #[command(after_help = "Examples:\n  \
            millpond dead show jobs 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55\n  \
            millpond dead show jobs 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55 --json | jq -r .body")]
    Show {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        /// The dead letter
        id: String,
    },
    /// Put dead letters back to work
    ///
    /// Attempts start again from zero; the id and the time of the first acceptance stay. Mend the cause first, or they
    /// die again. --dry-run says how many it would be. The replay runs in the server, at most as fast as --rate and never
    /// beyond the bounds of the queue; it survives a restart.
    /// --watch shows how far it is; `millpond dead replays` finds it again.
    #[command(
        override_usage = "millpond dead replay [OPTIONS] <QUEUE> <ID>...\n       millpond dead replay [OPTIONS] <QUEUE> --all\n       millpond dead replay [OPTIONS] <QUEUE> --reason REASON --error TEXT …",
        after_help = "Examples:\n  \
            millpond dead replay jobs 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55\n  \
            millpond dead replay jobs --error 'connection refused' --since 2h --dry-run\n  \
            millpond dead replay jobs --all --rate 20/s --watch"
    )]
    Replay(Box<ReplayArguments>),
    /// See the replays of a queue, watch one or end it
    ///
    /// The one that runs and the latest ten that ended are remembered. What went back to work stays there when a replay is
    /// cancelled.
    #[command(after_help = "Examples:\n  \
            millpond dead replays jobs\n  \
            millpond dead replays jobs 3 --watch\n  \
            millpond dead replays jobs 3 --cancel")]
    Replays(ReplaysArguments),
    /// Delete a dead letter for good
    ///
    /// Its body and its history are gone afterwards.
    #[command(after_help = "Example:\n  \
            millpond dead delete jobs 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55 --yes")]
    Delete {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        /// The dead letter
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Dead {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let (client, json) = (self.connection.client()?, self.json);
        match self.action {
            Action::List { queue, filter, limit, after } => {
                let filtered = filter.is_given();
                let ReplayFilter { reason, error, since, until, tenant } = filter.wire();
                let page = DeadPage { reason, error, since, until, tenant, after, limit: Some(limit) };
                let letters = client.dead_letters(queue.as_str(), &page).await?;
                if json { document(&letters, out) } else { list(&queue, &letters, filtered, out) }
            }
            Action::Show { queue, id } => {
                let letter = client.dead_letter(queue.as_str(), &id).await?;
                if json { document(&letter, out) } else { show(&client, &queue, &letter, out) }
            }
            Action::Replay(arguments) => arguments.run(&client, json, out).await,
            Action::Replays(arguments) => arguments.run(&client, json, out).await,
            Action::Delete { queue, id, yes } => {
                confirm(&format!("delete the dead letter {id} of {queue} for good?"), yes)?;
                client.delete_dead_letter(queue.as_str(), &id).await?;
                if json {
                    return document(&json!({"queue": queue.as_str(), "id": id, "deleted": true}), out);
                }
                Ok(writeln!(out, "{id} is deleted")?)
            }
        }
    }
}

fn list(queue: &Name, letters: &Messages, filtered: bool, out: &mut impl Write) -> Result<(), Failure> {
    if letters.messages.is_empty() {
        let such = if filtered { "such dead letters" } else { "dead letters" };
        writeln!(out, "{queue} has no {such}.")?;
    } else {
        let now = Timestamp::now();
        let columns = [Column::Whole("ID"), Column::Whole("DIED"), Column::Text("WHY")];
        let row = |letter: &MessageStatus| {
            let died = letter.finished_at.as_deref().map_or_else(|| "–".to_owned(), |at| age(at, now));
            vec![letter.id.clone(), died, why(letter)]
        };
        write!(out, "{}", table(&columns, letters.messages.iter().map(row).collect()))?;
    }
    match (&letters.next, letters.messages.first()) {
        (Some(next), _) => writeln!(out, "\nmore: millpond dead list {queue} --after {next}")?,
        (None, Some(first)) => writeln!(
            out,
            "\nsee one:          millpond dead show {queue} {}\nback to work:     millpond dead replay {queue} --all",
            first.id
        )?,
        (None, None) => {}
    }
    Ok(())
}

fn why(letter: &MessageStatus) -> String {
    let reason = letter.dead_reason.as_deref().unwrap_or("dead");
    let after = counted(letter.attempts.into(), "attempt");
    let error =
        letter.last_error.as_ref().map(|error| format!(": {}", excerpt(&error.message, ERROR_CHARACTERS)));
    format!("{} after {after}{}", line(reason), error.unwrap_or_default())
}

fn show(client: &Client, queue: &Name, letter: &DeadLetter, out: &mut impl Write) -> Result<(), Failure> {
    let message = &letter.message;
    let mut about = fields(client, message, Timestamp::now());
    about.add("body", format!("{}, below", line(&letter.content_type)));
    write!(out, "{}", about.render())?;
    if !message.history.is_empty() {
        write!(out, "\n{}", history(&message.history))?;
    }
    writeln!(out, "\n{}", body(letter))?;
    writeln!(out, "\nback to work: millpond dead replay {queue} {}", message.id)?;
    Ok(())
}

fn body(letter: &DeadLetter) -> String {
    if letter.body_encoding == Some(Encoding::Base64) {
        return format!(
            "(bytes that are not text; --json gives them in base64, {} characters)",
            letter.body.len()
        );
    }
    let shown: String = letter.body.chars().take(BODY_CHARACTERS).collect();
    let cut = if shown.len() < letter.body.len() { "\n… (cut here; --json gives the whole)" } else { "" };
    format!("{}{cut}", text(&shown))
}

#[cfg(test)]
mod tests {
    use super::{list, why};
    use millpond_api::types::Messages;
    use millpond_core::name::Name;
    use serde_json::json;

    fn letters() -> Messages {
        serde_json::from_value(json!({"next": null, "messages": [{
            "id": "0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55", "queue": "jobs", "status": "dead", "status_url": "/v1/messages/x",
            "position": null, "expected_start_seconds": null, "accepted_at": "2026-11-30T10:00:00.000Z", "attempts": 5,
            "deliveries": 5, "due_at": null, "first_started_at": "2026-11-30T10:00:01.000Z",
            "finished_at": "2026-11-30T10:01:00.000Z", "expires_at": "2026-12-04T10:00:00.000Z", "criticality": "critical",
            "dead_reason": "attempts-exhausted", "history": [],
            "last_error": {"kind": "connect", "message": "connection refused\u{1b}[2J", "at": "2026-11-30T10:01:00.000Z"}
        }]})).unwrap()
    }

    #[test]
    fn a_dead_letter_says_why_and_cannot_control_the_terminal() {
        let text = why(&letters().messages[0]);
        assert_eq!(text, "attempts-exhausted after 5 attempts: connection refused\u{fffd}[2J");
    }

    #[test]
    fn the_list_fits_eighty_columns_and_says_what_to_do_next() {
        let mut out = Vec::new();
        list(&Name::new("jobs").unwrap(), &letters(), false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("millpond dead replay jobs --all"), "{text}");
    }
}
