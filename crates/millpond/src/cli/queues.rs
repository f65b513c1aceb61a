//! `millpond queues`: see how queues are, create, pause, resume, purge and delete them.
//!
//! Owns the arguments. Must never decide whether a setting is right: the server does.

mod create;
mod show;

use super::confirm::confirm;
use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::show::document;
use super::render::counted;
use clap::{Args, Subcommand};
use create::Settings;
use millpond_api::client::{Client, ClientError};
use millpond_api::problem::Slug;
use millpond_core::name::Name;
use serde_json::json;
use std::io::Write;

/// See how queues are; create, pause, resume and delete them
///
/// Without an action it lists all queues with what waits in them and how late it is. A queue that the configuration
/// file declares is changed there; pausing works for every queue and survives a restart.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond queues\n  \
        millpond queues create jobs --max-wait 45m --max-attempts 5\n  \
        millpond queues stats jobs --json | jq .oldest_age_seconds")]
pub(crate) struct QueuesCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    connection: Connection,
    /// Print one JSON document
    #[arg(long, global = true, help_heading = HEADING)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all queues with their depth and age
    ///
    /// OLDEST is the age of the oldest unfinished message since it was first due, whatever state it is in; WAIT is how
    /// long a message that arrives now will probably wait; LATER counts what is delayed or in backoff.
    #[command(after_help = "Examples:\n  \
            millpond queues list\n  \
            millpond queues list --json | jq '.queues[] | [.name, .stats.ready]'")]
    List,
    /// Show one queue: its settings and how it is
    ///
    /// Tells in sentences what waits, how late it is and whether it will drain, and lists every setting.
    #[command(after_help = "Example:\n  millpond queues show jobs")]
    Show {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
    },
    /// Create a queue
    ///
    /// What is not said has its default; `millpond queues show` lists what came of it. Bound the queue in time with
    /// --max-wait: work that would wait longer is refused at the door. What has no option here goes into
    /// the file of --settings, under the names that `queues show --json` prints. An existing queue is left alone unless --replace
    /// is given, which then sets everything that is not said back to its default.
    #[command(after_help = "Examples:\n  \
            millpond queues create jobs\n  \
            millpond queues create enrollments --target registrar --max-wait 45m\n  \
            millpond queues create prices --order adaptive --fresh-within 2s\n  \
            millpond queues create events --max-messages 10000 --overflow drop-oldest\n  \
            millpond queues create jobs --settings jobs.json --replace")]
    Create {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        #[command(flatten)]
        settings: Box<Settings>,
        /// Change the queue if it exists
        #[arg(long)]
        replace: bool,
    },
    /// Hand out nothing until it is resumed
    ///
    /// Messages are still accepted. Survives a restart. Work that is under way goes on.
    #[command(after_help = "Example:\n  millpond queues pause jobs")]
    Pause {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
    },
    /// Hand out again
    ///
    /// Undoes pause.
    #[command(after_help = "Example:\n  millpond queues resume jobs")]
    Resume {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
    },
    /// Cancel everything that waits in a queue
    ///
    /// Ready, delayed and failed messages end as cancelled; their statuses stay. What is in work goes on, dead letters stay.
    #[command(after_help = "Example:\n  millpond queues purge jobs")]
    Purge {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Delete a queue that holds nothing
    ///
    /// The server refuses (exit code 3) while the queue holds unfinished messages or dead letters, and if the
    /// configuration file declares it.
    #[command(after_help = "Example:\n  millpond queues delete jobs --yes")]
    Delete {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Print a queue's numbers, named as in the JSON
    ///
    /// The numbers that scalers and alarms use: depth by state, ages, rates, capacity, predicted wait, time to drain,
    /// workers wanted, totals since the start. With --json the document is flat: pick a number by its name.
    #[command(after_help = "Examples:\n  \
            millpond queues stats jobs\n  \
            millpond queues stats jobs --json | jq .workers_wanted")]
    Stats {
        /// The queue
        #[arg(value_parser = Name::new)]
        queue: Name,
    },
}

impl QueuesCommand {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let (client, json) = (self.connection.client()?, self.json);
        match self.action.unwrap_or(Action::List) {
            Action::List => show::list(&client.queues().await?, json, out),
            Action::Show { queue } => show::one(&client.queue(queue.as_str()).await?, json, out),
            Action::Stats { queue } => show::stats(&client.stats(queue.as_str()).await?, json, out),
            Action::Create { queue, settings, replace } => {
                let settings = settings.document()?;
                if !replace && exists(&client, &queue).await? {
                    return Err(Failure::new(
                        format!("the queue {queue} exists already; nothing was changed"),
                        format!("look at it with `millpond queues show {queue}`; --replace changes it"),
                    ));
                }
                show::created(&client.put_queue(queue.as_str(), &settings).await?, json, out)
            }
            Action::Pause { queue } => {
                client.pause(queue.as_str()).await?;
                paused(&queue, true, json, out)
            }
            Action::Resume { queue } => {
                client.resume(queue.as_str()).await?;
                paused(&queue, false, json, out)
            }
            Action::Purge { queue, yes } => {
                confirm(&format!("cancel everything that waits in {queue}?"), yes)?;
                let purged = client.purge(queue.as_str()).await?;
                if json {
                    return document(&purged, out);
                }
                Ok(writeln!(out, "{} of {queue} cancelled", counted(purged.purged, "message"))?)
            }
            Action::Delete { queue, yes } => {
                confirm(&format!("delete the queue {queue}?"), yes)?;
                client.delete_queue(queue.as_str()).await?;
                if json {
                    return document(&json!({"queue": queue.as_str(), "deleted": true}), out);
                }
                Ok(writeln!(out, "{queue} is deleted")?)
            }
        }
    }
}

async fn exists(client: &Client, queue: &Name) -> Result<bool, ClientError> {
    match client.queue(queue.as_str()).await {
        Ok(_) => Ok(true),
        Err(ClientError::Refused(problem)) if problem.slug() == Some(Slug::UnknownQueue) => Ok(false),
        Err(error) => Err(error),
    }
}

fn paused(queue: &Name, paused: bool, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(&json!({"queue": queue.as_str(), "paused": paused}), out);
    }
    if paused {
        let back = format!("millpond queues resume {queue}");
        writeln!(out, "{queue} is paused: it accepts, but hands out nothing until `{back}`")?;
    } else {
        writeln!(out, "{queue} hands out again")?;
    }
    Ok(())
}
