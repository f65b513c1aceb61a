//! Registrations into a database that stands 40 connections: an example of what Millpond is for, and the proof that
//! work through it can be done exactly once.
//!
//! Owns the order of the runs and the exit code. Must never ship: it is for reading and for trying out.

mod callers;
mod chaos;
mod check;
mod database;
mod options;
mod process;
mod register;
mod report;
mod runs;
mod service;

use anyhow::bail;
use clap::Parser as _;
use options::{Arguments, Options, What};
use report::Report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    allow_connections();
    match Arguments::parse().what {
        What::Service { listen, database } => service::serve(listen, &database).await,
        What::Direct(options) => run(&options, [true, false, false]).await,
        What::Queued(options) => run(&options, [false, true, false]).await,
        What::Chaos(options) => run(&options, [false, false, true]).await,
        What::All(options) => run(&options, [true, true, true]).await,
    }
}

/// As many open files as this user may have: thousands of callers wait at once.
fn allow_connections() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, the calls that lack one say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

async fn run(options: &Options, chosen: [bool; 3]) -> anyhow::Result<()> {
    let runs = async {
        let [direct, queued, chaos] = chosen;
        let kills = chaos::plan(Options::LEAD_IN * 2, options.every, options.rounds);
        let planned = millpond_sim::plan::plan(&options.plan_input())?;
        let direct = if direct { Some(runs::direct(options).await?) } else { None };
        let queued = if queued { Some(runs::queued(options, &[]).await?) } else { None };
        let chaos = if chaos { Some(runs::queued(options, &kills).await?) } else { None };
        anyhow::Ok(Report { direct, queued, chaos, planned })
    };
    let report = tokio::select! {
        report = runs => report?,
        // Dropped, the servers are stopped and their directories removed as after a whole run.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    let mut out = std::io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &report.document(options))?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", report.table(options))?;
    }
    let faults = report.faults(options);
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(())
}
