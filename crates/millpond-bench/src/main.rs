//! Benchmarks against the speed budget, each against a reference that runs in the same minutes on the same machine.
//!
//! Owns the command line. Must never ship, nor be a test: figures depend on the machine, so people read them, and
//! ratios within one run count.

mod appender;
mod child;
mod connection;
mod depth;
mod disk;
mod engine;
mod http;
mod life;
mod load;
mod pond;
mod process;
mod report;
mod restart;
mod serve;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use serve::Role;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of Millpond against its speed budget. Build with --release.")]
struct CommandLine {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// In process: enqueue against raw write + fdatasync, and the whole life of a message.
    Engine(Plan),
    /// Durable 202 over HTTP, against a bare handler without and with a naive log.
    Http(Plan),
    /// Enqueue, push, settle over HTTP: CPU per message against two bare exchanges.
    Life(Plan),
    /// Enqueue, hand-out and status with few and with very many messages waiting.
    Depth {
        #[command(flatten)]
        plan: Plan,
        /// How many messages wait in the largest case.
        #[arg(long, default_value_t = 1_000_000)]
        waiting: usize,
    },
    /// Restart with very many messages waiting, after a stop and after a kill: time, memory, disk.
    Restart {
        #[command(flatten)]
        plan: Plan,
        /// How many messages of 200 B wait.
        #[arg(long, default_value_t = 1_000_000)]
        waiting: usize,
        /// With nothing of the directory in the operating system's cache.
        #[arg(long)]
        cold: bool,
    },
    /// One process of the restart benchmark.
    #[command(hide = true)]
    RestartStep { step: restart::Step, directory: PathBuf, waiting: usize },
    /// The state machine alone: time and memory by depth, by groups and tenants, and of a million delays.
    Pond {
        #[command(flatten)]
        plan: Plan,
        /// How many messages wait in the largest case.
        #[arg(long, default_value_t = 10_000_000)]
        waiting: usize,
    },
    /// A server for the other benchmarks: serves until standard input ends.
    #[command(hide = true)]
    Serve {
        role: Role,
        #[arg(long)]
        data: Option<PathBuf>,
        #[arg(long)]
        target: Option<SocketAddr>,
    },
}

/// How long and how often.
#[derive(Debug, Clone, Args)]
struct Plan {
    /// Length of one measurement, after a warm-up of a tenth of it.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Interleaved rounds; medians over them are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Where data directories are made, and removed again. It must lie on the disk in question.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Only the cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

impl Plan {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn wants(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    fn data_directory(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("millpond-bench-").tempdir_in(&self.directory)?)
    }
}

fn main() -> Result<()> {
    let (tables, json) = match CommandLine::parse().what {
        What::Engine(plan) => (engine::run(&plan)?, plan.json),
        What::Http(plan) => (http::run(&plan)?, plan.json),
        What::Life(plan) => (life::run(&plan)?, plan.json),
        What::Depth { plan, waiting } => (depth::run(&plan, waiting)?, plan.json),
        What::Restart { plan, waiting, cold } => (restart::run(&plan, waiting, cold)?, plan.json),
        What::RestartStep { step, directory, waiting } => return restart::step(step, &directory, waiting),
        What::Pond { plan, waiting } => (pond::run(&plan, waiting)?, plan.json),
        What::Serve { role, data, target } => return serve::run(role, data, target),
    };
    report::print(&tables, json)
}
