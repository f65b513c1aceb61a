//! `millpond work`: runs a command for each message of a queue.
//!
//! Owns the options, the signals and the way to the end. Must never run anything through a shell, nor leave a command
//! behind.

mod command;
mod reaper;
mod report;
mod verdict;

use super::connection::{Connection, HEADING};
use super::failure::{Failure, tell};
use clap::Args;
use command::{Runner, Stop};
use millpond_api::client::Client;
use millpond_api::worker::{RunError, Worker};
use millpond_config::quantity::parse_duration;
use millpond_core::name::Name;
use reaper::Reaper;
use report::Report;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Time for the last words to the server after every command has been killed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Run a command for each message of a queue
///
/// Takes messages and runs CMD for each, without a shell: the body on its standard input, what is known of the message
/// in its environment. Its exit code says how it went: 0 done, and what it wrote to standard output is the result; 65
/// never to be tried again (a dead letter); 69 given back without an attempt, because something it needs is not there;
/// 75 and everything else: failed, to be tried again, with the last lines of standard error as the reason.
///
/// The lease of a message is extended while its command runs. A command that takes longer than --timeout, or whose lease
/// is lost all the same, gets SIGTERM and after --grace SIGKILL, with everything it has started (its process group). On
/// Ctrl-C or SIGTERM no new messages are taken and running commands may end, at most for --drain; then they are
/// stopped and their messages given back. A second Ctrl-C kills them at once. Nothing a command leaves in its process group
/// outlives it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond work jobs -- ./resize-image\n  \
        millpond work jobs --concurrency 8 --timeout 2m -- python3 job.py --fast\n  \
        millpond work jobs --until-empty --json -- sh -c 'tr a-z A-Z'\n  \
        millpond work jobs --once -- cat\n\n\
        In the environment: MILLPOND_MESSAGE_ID, MILLPOND_QUEUE, MILLPOND_ATTEMPT,\n\
        MILLPOND_DELIVERIES, MILLPOND_CONTENT_TYPE, MILLPOND_CRITICALITY,\n\
        MILLPOND_ACCEPTED_AT, MILLPOND_EXPIRES_AT, and where the message has one\n\
        MILLPOND_TENANT, MILLPOND_GROUP, TRACEPARENT, TRACESTATE.\n\n\
        Exit codes of CMD: 0 done, 65 dead letter, 69 given back, 75 and others retry.\n\
        Exit codes of millpond work: 0 stopped in order, whatever became of messages.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Work {
    /// The queue
    #[arg(value_parser = Name::new)]
    queue: Name,
    /// The command with its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Run so many commands at once
    #[arg(long, short = 'j', default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How long a message stays ours without a sign of life from here
    #[arg(long, default_value = "30s", value_name = "TIME", allow_hyphen_values = true, value_parser = lease)]
    lease: Duration,
    /// Stop a command after this [default: only when its lease cannot be extended any more, 12 h]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, default_value = "10s", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    grace: Duration,
    /// How long running commands may go on after Ctrl-C or SIGTERM
    #[arg(long, default_value = "30s", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    drain: Duration,
    /// How long a message that is given back (exit code 69) waits
    #[arg(long, default_value = "5s", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    release_delay: Duration,
    /// Stop after one message
    #[arg(long, conflicts_with = "max")]
    once: bool,
    /// Stop after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Stop when nothing is ready; what is delayed or in backoff is not waited for
    #[arg(long)]
    until_empty: bool,
    /// Media type of results [default: application/json if it is JSON, else text or bytes]
    #[arg(long, value_name = "TYPE")]
    result_type: Option<String>,
    /// Name of this worker; what workers of one name hold together is bounded [default: host and process]
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Say only what went wrong
    #[arg(long, short)]
    quiet: bool,
    /// Print every event as a line of JSON on standard output
    #[arg(long, conflicts_with = "json", help_heading = HEADING)]
    events: bool,
    /// In the end, print one JSON document: how many ended in which way
    #[arg(long, help_heading = HEADING)]
    json: bool,
    /// Stop the commands named on standard input once it ends: what `work` starts beside itself
    #[arg(long, hide = true, value_name = "TIME", value_parser = parse_duration)]
    reap: Option<Duration>,
    #[command(flatten)]
    connection: Connection,
}

/// Shorter, a lease could not be extended in time over any network.
const LEASE_MIN: Duration = Duration::from_secs(1);

fn lease(text: &str) -> Result<Duration, String> {
    let lease = parse_duration(text).map_err(|error| error.to_string())?;
    if lease < LEASE_MIN {
        Err("write at least 1s: it must outlast a break in the network".to_owned())
    } else {
        Ok(lease)
    }
}

impl Work {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        if let Some(grace) = self.reap {
            reaper::reap(std::io::stdin().lock(), grace);
            return Ok(());
        }
        let client = self.connection.client()?;
        find(&self.command[0])?;
        let queue = client.queue(self.queue.as_str()).await?;
        let setting = |key: &str| queue.settings.get(key).and_then(serde_json::Value::as_u64);
        if setting("prefetch").is_some_and(|prefetch| prefetch < u64::from(self.concurrency)) {
            let prefetch = setting("prefetch").unwrap_or_default();
            tell(&format!(
                "note: {} lets one consumer hold {prefetch} messages (its prefetch); no more commands will run at once",
                self.queue
            ));
        }
        let reaper = Reaper::start(self.grace)?;
        let (stop, stopped) = watch::channel(Stop::Not);
        let runner = Arc::new(Runner {
            queue: self.queue.to_string(),
            command: self.command.clone(),
            timeout: self.timeout,
            grace: self.grace,
            release_delay: self.release_delay,
            result_bytes_max: setting("result_max_bytes").unwrap_or(verdict::RESULT_BYTES_MAX),
            result_type: self.result_type.clone(),
            reaper,
            stop: stopped,
        });
        let report = Report::start(&self.queue, self.quiet, self.events);
        let worker = self.worker(client, &report);
        let shutdown = signals(stop, self.drain)?;
        let handler = move |message| Arc::clone(&runner).handle(message);
        let ended = worker.run(handler, shutdown).await;
        let lost_lines = report.finish();
        if lost_lines > 0 {
            tell(&format!("{lost_lines} lines were not printed: nobody read them in time"));
        }
        let summary = ended.map_err(|RunError::Refused(error)| Failure::Server(error))?;
        report::print(&self.queue, &summary, self.json, self.events, out)
    }

    fn worker(&self, client: Client, report: &Report) -> Worker {
        let observer = report.observer();
        let mut worker = Worker::new(client, self.queue.as_str())
            .concurrency(usize::from(self.concurrency))
            .lease(self.lease)
            // Commands are stopped, and their messages given back, before the worker would drop them.
            .drain(self.drain + self.grace + LAST_WORDS)
            .consumer(self.consumer.clone().unwrap_or_else(consumer))
            .observe(observer);
        if let Some(max) = self.max.or_else(|| self.once.then_some(1)) {
            worker = worker.limit(max);
        }
        if self.until_empty { worker.until_empty() } else { worker }
    }
}

/// A name that nobody else has: the host's, this process's number, and chance for containers where both are always the
/// same.
fn consumer() -> String {
    let host = rustix::system::uname();
    let host: String =
        host.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(64).collect();
    let chance = std::collections::hash_map::RandomState::new();
    let chance = std::hash::BuildHasher::hash_one(&chance, std::process::id());
    format!("{host}-{}-{:08x}", std::process::id(), chance & 0xffff_ffff)
}

/// Says early that the command is not there, rather than with every message.
fn find(command: &OsStr) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let path = Path::new(command);
    let found = if path.components().count() > 1 || path.is_absolute() {
        runs(path)
    } else {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).any(|place| runs(&place.join(path)))
    };
    if found {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::usage(
        format!("there is no command {shown}"),
        format!(
            "write a program that is in PATH, or its path (./{shown}); for a line of shell: -- sh -c '…'"
        ),
    ))
}

/// Ready at the first signal. `stop` says afterwards when commands are to be stopped: `drain` later, or at once with a
/// second signal; a third one ends this process.
fn signals(stop: watch::Sender<Stop>, drain: Duration) -> Result<impl Future<Output = ()>, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut next = async move || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(drain) => {
                    stop.send_replace(Stop::InOrder);
                    next().await;
                }
                () = next() => {}
            }
            stop.send_replace(Stop::Now);
            next().await;
            // What still runs, the reaper sees to.
            std::process::exit(1);
        });
    })
}
