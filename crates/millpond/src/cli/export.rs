//! `millpond export`: what monitoring systems are given.
//!
//! Owns the arguments. Must never know a rule: `millpond-server` has them.

use super::arguments;
use super::failure::Failure;
use clap::{Args, Subcommand};
use millpond_config::Configuration;
use millpond_server::export::{RUNBOOKS, dashboard, prometheus};
use std::io::Write;
use std::path::PathBuf;

/// Print alert rules for Prometheus, or a dashboard for Grafana
///
/// Both are printed on standard output and say the same as the server does: rules fire and clear at the thresholds of the
/// configuration, and name only metrics that /metrics has.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond export prometheus --config millpond.toml > millpond.rules.yml\n  \
        millpond export grafana > millpond.dashboard.json")]
pub(crate) struct Export {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print a Prometheus rule file with the alerts of a configuration
    ///
    /// One group for each declared queue, one with the defaults for queues that are made while the server runs, and one for
    /// the server. Needs Prometheus 2.42 or later; scrape at least once a minute.
    #[command(after_help = "Example:\n  \
            millpond export prometheus --config millpond.toml > millpond.rules.yml")]
    Prometheus {
        /// Configuration file [default: millpond.toml here, if there is one]
        #[arg(long, env = "MILLPOND_CONFIG", hide_env_values = true, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Where your copy of the guide to alerts is read
        #[arg(long, value_name = "URL", default_value = RUNBOOKS)]
        runbooks: String,
    },
    /// Print a Grafana dashboard
    ///
    /// Import it, and choose the Prometheus that scrapes Millpond. It shows depth and age by state, rates, promises,
    /// refusals, deliveries, targets and the journal, for all queues or those that are chosen.
    #[command(after_help = "Example:\n  millpond export grafana > millpond.dashboard.json")]
    Grafana,
}

impl Export {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        match &self.what {
            What::Prometheus { config, runbooks } => {
                let path = arguments::configuration(config.as_deref());
                let configuration = path
                    .map(|path| arguments::load(&path).map(|loaded| loaded.configuration))
                    .transpose()?
                    .unwrap_or_else(Configuration::default);
                write!(out, "{}", prometheus(&configuration, runbooks))?;
            }
            What::Grafana => writeln!(out, "{:#}", dashboard())?,
        }
        Ok(())
    }
}
