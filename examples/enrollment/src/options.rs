//! What the command line asks for.
//!
//! Owns words, defaults and how they are read. Must never start anything.

use clap::{Args, Parser, Subcommand};
use millpond_sim::plan::PlanInput;
use millpond_sim::workload::Schedule;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Registrations into a database that stands 40 connections: directly, through Millpond, and through Millpond while
/// everything is killed in turn.
///
/// Starts a PostgreSQL of its own, the service, and Millpond, sends them a spike, and then compares the table with what
/// the callers were told. The exit code is 0 only if every accepted registration is there exactly once.
#[derive(Debug, Parser)]
#[command(name = "enrollment")]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Call the service directly
    Direct(Options),
    /// Call it through Millpond
    Queued(Options),
    /// The same, and kill service, database and Millpond in turn
    Chaos(Options),
    /// All three, one after the other
    All(Options),
    /// Only the service, until it is killed
    Service {
        /// Where to listen
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
        listen: SocketAddr,
        /// The database's connection string
        #[arg(long, value_name = "STRING")]
        database: String,
    },
}

/// How much, for how long, and with what.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Registrations per second before and after the spike
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = rate)]
    pub(crate) normal: f64,
    /// Registrations per second during the spike; less for a small or busy machine
    #[arg(long, value_name = "N", default_value_t = 2_000.0, value_parser = rate)]
    pub(crate) spike: f64,
    /// How long the spike lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) spike_for: Duration,
    /// How often all three are killed in turn
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rounds: u32,
    /// From one kill to the next
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) every: Duration,
    /// The program to put in front [default: the one beside this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) millpond: Option<PathBuf>,
    /// Where initdb and postgres are [default: the newest in /usr/lib/postgresql]
    #[arg(long, value_name = "DIR", env = "ENROLLMENT_POSTGRES")]
    pub(crate) postgres: Option<PathBuf>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// What the database allows the service, and the cap in front of it.
    pub(crate) const CONNECTIONS: u32 = 40;
    /// What one registration costs the database.
    pub(crate) const WORK: Duration = Duration::from_millis(80);
    /// How long a caller waits for an answer.
    pub(crate) const CALLER_TIMEOUT: Duration = Duration::from_secs(5);
    /// Normal load before the spike.
    pub(crate) const LEAD_IN: Duration = Duration::from_secs(2);

    /// When calls arrive.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::spike(self.normal, Self::LEAD_IN, self.spike, self.spike_for)
    }

    /// When the spike ends, counted from the beginning.
    pub(crate) fn spike_end(&self) -> Duration {
        Self::LEAD_IN + self.spike_for
    }

    /// What the planner is to say about it.
    pub(crate) fn plan_input(&self) -> PlanInput {
        PlanInput {
            rate_per_second: self.normal,
            spike_per_second: self.spike,
            spike_for: self.spike_for,
            service_time: Self::WORK,
            workers: Self::CONNECTIONS,
            max_wait: None,
            worker_timeout: None,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let value: f64 =
        text.parse().map_err(|_| "a number of registrations per second, as in 2000".to_owned())?;
    if (1.0..=100_000.0).contains(&value) { Ok(value) } else { Err("between 1 and 100000".to_owned()) }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "whole seconds or minutes, as in 10s or 2m".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    match unit {
        "s" if (1..=3600).contains(&number) => Ok(Duration::from_secs(u64::from(number))),
        "m" if (1..=60).contains(&number) => Ok(Duration::from_mins(u64::from(number))),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Options, duration, rate};
    use clap::CommandFactory as _;
    use std::time::Duration;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_and_rates_are_bounded() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        for wrong in ["", "s", "10", "0s", "-1s", "61m", "1h", "10ß"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(rate("2000").is_ok() && rate("0").is_err() && rate("NaN").is_err());
    }

    #[test]
    fn millpond_s_cap_and_the_callers_address_are_those_of_the_example() {
        let text = include_str!("../millpond.toml");
        let loaded = millpond_config::parse(text, "millpond.toml").unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let target = loaded.configuration.targets.values().next().unwrap();
        assert_eq!(target.settings.concurrency, Options::CONNECTIONS);
        assert!(
            text.contains("http://127.0.0.1:9000/"),
            "the run puts the service's own address in its place"
        );
    }
}
