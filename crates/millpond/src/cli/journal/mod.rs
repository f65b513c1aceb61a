//! `millpond journal`: look after a data directory.
//!
//! Owns the arguments and which directory is meant. Must never write but where a command says so.

mod progress;
mod repair;
mod stats;
mod verify;

use super::arguments;
use super::failure::{Failure, tell};
use clap::{Args, Subcommand};
use millpond_config::Configuration;
use millpond_engine::survey::{Survey, survey};
use millpond_journal::{OpenError, ReadOnlyDirectory};
use progress::Progress;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Look after a data directory: verify, count, repair, back up, export
///
/// These commands work on the directory itself, not through a server. All but repair only read, and may run beside a
/// server that uses the directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond journal verify\n  \
        millpond journal stats --data /var/lib/millpond --json")]
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
            Exit code 0: whole. Exit code 1: damaged, or not readable.")]
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
}

impl Journal {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let data = self.place.directory()?;
        match &self.action {
            Action::Verify => verify::run(&data, self.json, out),
            Action::Stats => stats::run(&data, self.json, out),
            Action::Repair { accept_loss } => repair::run(&data, *accept_loss, self.json, out),
        }
    }
}

impl DataPlace {
    fn directory(&self) -> Result<PathBuf, Failure> {
        if let Some(data) = &self.data {
            return Ok(data.clone());
        }
        let Some(path) = arguments::configuration(self.config.as_deref()) else {
            return Ok(Configuration::default().data);
        };
        let loaded = millpond_config::load(&path).map_err(|error| {
            tell(&error.to_string());
            Failure::Told
        })?;
        Ok(loaded.configuration.data)
    }
}

/// The directory for reading. One that was never used is nothing that these commands could tell about.
fn open(data: &Path) -> Result<ReadOnlyDirectory, Failure> {
    ReadOnlyDirectory::open(data).map_err(|error| {
        Failure::new(
            format!("cannot read the data directory {}: {error}", data.display()),
            "name the directory with --data, or the configuration that does with --config",
        )
    })
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
