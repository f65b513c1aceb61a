//! `millpond journal`: look after a data directory.
//!
//! Owns the arguments and which directory is meant. Must never write but where a command says so.

mod backup;
mod export;
mod progress;
mod repair;
mod stats;
mod verify;

use super::arguments;
use super::failure::Failure;
use clap::{Args, Subcommand};
use millpond_config::Configuration;
use millpond_core::message::Phase;
use millpond_core::name::Name;
use millpond_engine::survey::{PHASES, Survey, survey};
use millpond_journal::{OpenError, ReadOnlyDirectory};
use progress::Progress;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Verify, count, repair, back up or export a data directory
///
/// These commands work on the directory itself, not through a server. All but repair only read, and may run beside a
/// server that uses the directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond journal verify\n  \
        millpond journal stats --data /var/lib/millpond --json\n  \
        millpond journal backup /backup/pond-2026-11-30")]
pub(crate) struct Journal {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    place: DataPlace,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

/// Which directory.
#[derive(Debug, Args)]
struct DataPlace {
    /// The data directory [default: the configuration's, else ./millpond-data]
    #[arg(long, env = "MILLPOND_DATA", hide_env_values = true, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Configuration file that names the directory [default: millpond.toml here, if there is one]
    #[arg(long, env = "MILLPOND_CONFIG", hide_env_values = true, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check every byte of the journal
    ///
    /// Reads every frame and every record, checks their checksums and their order, decodes every record, and says where
    /// and how something is damaged. Changes nothing. What a running server is just writing is no damage.
    #[command(after_help = "Examples:\n  \
            millpond journal verify\n  \
            millpond journal verify --data /var/lib/millpond\n  \
            millpond journal verify --json | jq .faults\n\n\
            Exit code 0: whole. Exit code 1: damaged, not readable, or no journal there.")]
    Verify,
    /// Say what the journal holds
    ///
    /// Segments with their live bytes, records by kind, queues with their messages.
    #[command(after_help = "Examples:\n  \
            millpond journal stats\n  \
            millpond journal stats --json | jq .queues")]
    Stats,
    /// Make a damaged directory open again, giving up what cannot be read
    ///
    /// A server refuses a damaged journal, because going on would lose messages in silence. Without --accept-loss this
    /// says what would be lost and changes nothing. With it, everything that can be read is written into a new journal,
    /// in its order; the damaged files are kept in damaged-1/ (2, 3, …) inside the data directory. A message whose
    /// newest facts are lost comes back to the state that is known, and may be done again. It takes as much free disk
    /// space as the journal has. Killed in the middle, run it again.
    #[command(after_help = "Examples:\n  \
            millpond journal repair                                what would be lost?\n  \
            millpond journal repair --accept-loss\n  \
            millpond journal repair --data /backup/pond --accept-loss --json\n\n\
            The server that uses the directory has to be stopped.")]
    Repair {
        /// Give up what cannot be read
        #[arg(long)]
        accept_loss: bool,
    },
    /// Copy the data directory, also while a server uses it
    ///
    /// The copy is a data directory of its own: a server opens it with --data. It holds every message that was accepted
    /// before the command began, is read back and checked, and appears under its name only when it is whole. The server
    /// is not asked and does not notice.
    #[command(after_help = "Examples:\n  \
            millpond journal backup /backup/pond-2026-11-30\n  \
            millpond journal backup --data /var/lib/millpond /backup/pond --json\n\n\
            The copy holds message bodies and the secret behind ids and receipts: keep it as safe as the original.\n\
            Never let two servers work on copies of one directory: both would do the same messages.")]
    Backup {
        /// The copy; must not exist yet
        destination: PathBuf,
    },
    /// Write all messages with their bodies as lines of JSON
    ///
    /// One object a line, in the order in which the messages were accepted, with status, history and body (base64 where
    /// it is not UTF-8). Bodies are read one by one, however many there are. Beside a running server, messages that are
    /// finished and forgotten meanwhile are left out.
    #[command(after_help = "Examples:\n  \
            millpond journal export > messages.jsonl\n  \
            millpond journal export --queue jobs --state dead | jq -r .body\n  \
            millpond journal export --state ready --state delayed | wc -l")]
    Export {
        /// Only this queue
        #[arg(long, value_parser = Name::new)]
        queue: Option<Name>,
        /// Only messages in this state; may be repeated
        #[arg(long = "state", value_name = "STATE", value_parser = state)]
        states: Vec<Phase>,
    },
}

impl Journal {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let data = self.place.directory()?;
        match &self.action {
            Action::Verify => verify::run(&data, self.json, out),
            Action::Stats => stats::run(&data, self.json, out),
            Action::Backup { destination } => backup::run(&data, destination, self.json, out),
            Action::Export { queue, states } => export::run(&data, queue.as_ref(), states, out),
            Action::Repair { accept_loss } => repair::run(&data, *accept_loss, self.json, out),
        }
    }
}

fn state(text: &str) -> Result<Phase, String> {
    Phase::parse(text).ok_or_else(|| {
        let states = PHASES.map(Phase::as_str).join(", ");
        format!("there is no such state; the states are {states}")
    })
}

impl DataPlace {
    fn directory(&self) -> Result<PathBuf, Failure> {
        if let Some(data) = &self.data {
            return Ok(data.clone());
        }
        let Some(path) = arguments::configuration(self.config.as_deref()) else {
            return Ok(Configuration::default().data);
        };
        Ok(arguments::load(&path)?.configuration.data)
    }
}

/// The directory for reading. One that was never used, or has lost everything, is nothing that these commands could tell
/// about, and must not pass for one that is whole.
fn open(data: &Path) -> Result<ReadOnlyDirectory, Failure> {
    let refused = |text| {
        Failure::new(text, "name the directory with --data, or the configuration that does with --config")
    };
    let unreadable = |error| refused(format!("cannot read the data directory {}: {error}", data.display()));
    let directory = ReadOnlyDirectory::open(data).map_err(unreadable)?;
    if directory.holds_log().map_err(unreadable)? {
        return Ok(directory);
    }
    Err(refused(format!(
        "there is no journal in {}: it holds no segment, such as 00000001.log",
        data.display()
    )))
}

/// Everything that the directory holds, with a bar for large ones.
fn read(data: &Path, directory: &ReadOnlyDirectory) -> Result<Survey, Failure> {
    let mut progress = Progress::new(directory);
    let surveyed = survey(directory, &mut progress);
    progress.finish();
    surveyed.map_err(|error| unreadable(data, &error))
}

/// A directory of which nothing can be told.
fn unreadable(data: &Path, error: &OpenError) -> Failure {
    Failure::Failed { text: format!("{}: {error}", data.display()), help: None }
}
