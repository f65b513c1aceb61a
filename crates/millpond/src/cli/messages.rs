//! `millpond messages`: look at messages, follow them, withdraw them.
//!
//! Owns the arguments. Must never take a message from a worker.

pub(crate) mod show;

use super::arguments;
use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::pages::{LIMIT_DEFAULT, gather};
use clap::{Args, Subcommand};
use millpond_api::client::{Client, ClientError, Page};
use millpond_api::types::MessageStatus;
use millpond_core::name::Name;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest that a server lets one request wait.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Look at messages, follow them, withdraw them
///
/// Looking takes nothing away: messages stay where they are, and workers do not notice. A message is named by its id or
/// by its status URL; where the server asks for a token, only the status URL carries it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond messages list jobs\n  \
        millpond messages show 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55 --wait 30s\n  \
        millpond messages result 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55 > out.json")]
pub(crate) struct MessagesCommand {
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
    /// List the messages of a queue, oldest first
    ///
    /// Shows where each message stands, how old it is and how often it was tried. States: ready (may be handed out),
    /// delayed (waits for its time), leased (somebody works on it), backoff (failed, waits for its next attempt),
    /// succeeded, dead (a dead letter), expired, cancelled, dropped (gave way to newer work). ABOUT tells when it is
    /// due, its class if that is not critical, its tenant, its group, and which consumer has it.
    #[command(after_help = "Examples:\n  \
            millpond messages list jobs\n  \
            millpond messages list jobs --state backoff --limit 20\n  \
            millpond messages list jobs --json | jq -r '.messages[].id'")]
    List {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        /// Only those in this state
        #[arg(long, value_parser = ["ready", "delayed", "leased", "backoff", "succeeded", "dead", "expired", "cancelled", "dropped"])]
        state: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = LIMIT_DEFAULT, value_name = "N")]
        limit: u32,
        /// Go on after this message, as the page before says
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Show one message: where it stands and what happened to it
    ///
    /// Shows position and expected start while it waits, every attempt with its outcome, and the result once there is
    /// one. With --wait it answers as soon as the message's life is over.
    #[command(after_help = "Examples:\n  \
            millpond messages show 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55\n  \
            millpond messages show 'http://127.0.0.1:8080/v1/messages/0197…?t=9Xk' --wait 5m")]
    Show {
        /// Its id or status URL
        message: String,
        /// Stay until its life is over, at most so long
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = arguments::wait)]
        wait: Option<Duration>,
    },
    /// Withdraw a message that nobody works on yet
    ///
    /// Works while the message is ready, delayed or in backoff. Once a worker has it, or its life is over, the server
    /// refuses (exit code 3).
    #[command(after_help = "Example:\n  \
            millpond messages cancel 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55")]
    Cancel {
        /// Its id or status URL
        message: String,
    },
    /// Print the result of a message that has succeeded
    ///
    /// Writes the bytes as they are. As long as there is no result the server refuses (exit code 3); with --wait the
    /// command first stays until the work is done.
    #[command(after_help = "Examples:\n  \
            millpond messages result 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55\n  \
            millpond messages result 0197f3a2-5c11-7d2e-9a40-3b1c8e0f7a55 --wait 1m \\\n    \
                                     --output report.pdf")]
    Result {
        /// Its id or status URL
        message: String,
        /// Stay until its life is over, at most so long
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = arguments::wait)]
        wait: Option<Duration>,
        /// Write there instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

impl MessagesCommand {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let (client, json) = (self.connection.client()?, self.json);
        match self.action {
            Action::List { queue, state, limit, after } => {
                let messages = gather(limit, after.clone(), async |after, limit| {
                    let page = Page { state: state.clone(), after, limit: Some(limit) };
                    client.messages(queue.as_str(), &page).await
                })
                .await?;
                let asked = show::Asked { queue, state, limit, after };
                if json { show::document(&messages, out) } else { show::list(&asked, &messages, out) }
            }
            Action::Show { message, wait: None } => {
                show::status(&client, &client.status(&message, None).await?, json, out)
            }
            Action::Show { message, wait: Some(wait) } => {
                show::status(&client, &follow(&client, &message, wait).await?, json, out)
            }
            Action::Cancel { message } => show::cancelled(&client.cancel(&message).await?, json, out),
            Action::Result { message, wait, output } => {
                if let Some(wait) = wait {
                    follow(&client, &message, wait).await?;
                }
                let content = client.result(&message).await?;
                match output {
                    Some(path) => Ok(std::fs::write(&path, &content.body)
                        .map_err(|error| show::unwritable(&path, &error))?),
                    None => show::result(&content, json, out),
                }
            }
        }
    }
}

/// The status as soon as the message's life is over, or after `wait`. A server lets one request wait for a minute only,
/// so longer ones are made of several.
pub(crate) async fn follow(
    client: &Client,
    message: &str,
    wait: Duration,
) -> Result<MessageStatus, ClientError> {
    let begin = Instant::now();
    loop {
        let left = wait.saturating_sub(begin.elapsed());
        // Whole seconds only: the rest of the last one is rounded up.
        let ask = Duration::from_secs(left.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX))
            .min(WAIT_MAX);
        let status = client.status(message, Some(ask)).await?;
        if status.status.is_terminal() || begin.elapsed() >= wait {
            return Ok(status);
        }
    }
}
