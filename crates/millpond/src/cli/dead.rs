//! `millpond dead`: see what could not be done, and put it back to work.
//!
//! Owns the arguments and how dead letters look. Must never delete without a word from the user.

mod filter;
mod replay;

use super::confirm::confirm;
use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::show::{document, fields, history};
use super::pages::{LIMIT_DEFAULT, gather, limit_option};
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
        #[arg(long, default_value_t = LIMIT_DEFAULT, value_name = "N")]
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
                let is_rest = after.is_some();
                let letters = gather(limit, after, async |after, limit| {
                    let ReplayFilter { reason, error, since, until, tenant } = filter.wire();
                    let page = DeadPage { reason, error, since, until, tenant, after, limit: Some(limit) };
                    client.dead_letters(queue.as_str(), &page).await
                })
                .await?;
                if json {
                    return document(&letters, out);
                }
                list(&Asked { queue, filter, limit, is_rest }, &letters, out)
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

/// Which list was asked for.
struct Asked {
    queue: Name,
    filter: Filter,
    limit: u32,
    /// It goes on after another one.
    is_rest: bool,
}

fn list(asked: &Asked, letters: &Messages, out: &mut impl Write) -> Result<(), Failure> {
    let queue = &asked.queue;
    let filter = asked.filter.options();
    if letters.messages.is_empty() {
        let further = if asked.is_rest { "further " } else { "" };
        let such = if filter.is_empty() { "" } else { "such " };
        writeln!(out, "{queue} has no {further}{such}dead letters.")?;
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
        (Some(next), _) => {
            let limit = limit_option(asked.limit);
            writeln!(out, "\nmore: millpond dead list {queue}{filter}{limit} --after {next}")?;
        }
        (None, Some(first)) => {
            let which = if filter.is_empty() { " --all" } else { filter.as_str() };
            writeln!(
                out,
                "\nsee one:          millpond dead show {queue} {}\nback to work:     millpond dead replay {queue}{which}",
                first.id
            )?;
        }
        (None, None) => {}
    }
    Ok(())
}

fn why(letter: &MessageStatus) -> String {
    let reason = letter.dead_reason.as_deref().unwrap_or("dead");
    let after = counted(letter.attempts.into(), "attempt");
    let error = letter.last_error.as_ref().filter(|error| !error.message.trim().is_empty());
    let error = error.map(|error| format!(": {}", excerpt(&error.message, ERROR_CHARACTERS)));
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
    use super::{Asked, Filter, list, why};
    use clap::{Args as _, Command, FromArgMatches as _};
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
    fn an_error_without_words_leaves_no_colon_behind() {
        let mut letters = letters();
        letters.messages[0].last_error.as_mut().unwrap().message = String::new();
        assert_eq!(why(&letters.messages[0]), "attempts-exhausted after 5 attempts");
    }

    fn listed(filter: &[&str], limit: u32, letters: &Messages) -> String {
        let command = Filter::augment_args(Command::new("list").no_binary_name(true));
        let filter = Filter::from_arg_matches(&command.get_matches_from(filter)).unwrap();
        let asked = Asked { queue: Name::new("jobs").unwrap(), filter, limit, is_rest: false };
        let mut out = Vec::new();
        list(&asked, letters, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_list_fits_eighty_columns_and_says_what_to_do_next() {
        let text = listed(&[], 20, &letters());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("millpond dead replay jobs --all"), "{text}");
    }

    #[test]
    fn what_to_do_next_means_the_same_letters_as_the_list() {
        let given = ["--reason", "rejected", "--error", "it's", "--since", "2026-11-30T10:00:00Z"];
        let again = r"--reason rejected --error 'it'\''s' --since 2026-11-30T10:00:00Z";
        let given = [&given[..], &["--until", "2026-12-01T10:00:00Z", "--tenant", "acme"]].concat();
        let again = format!("{again} --until 2026-12-01T10:00:00Z --tenant acme");
        let text = listed(&given, 7, &letters());
        assert!(text.ends_with(&format!("millpond dead replay jobs {again}\n")), "{text}");
        let more = Messages { next: Some("x".to_owned()), ..letters() };
        let text = listed(&given, 7, &more);
        assert!(text.ends_with(&format!("millpond dead list jobs {again} --limit 7 --after x\n")), "{text}");
    }
}
