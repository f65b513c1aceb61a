//! `millpond demo`: the way from the command line to the demonstration.
//!
//! Owns its arguments. Must never measure or print anything itself.

use super::failure::Failure;
use clap::Args;
use millpond_sim::workload::Scenario;
use std::io::Write;
use std::path::PathBuf;

/// Watch a spike break a backend, and a queue carry it
///
/// Starts a small backend of fixed capacity on this machine, sends it a spike directly, then sends the same spike
/// through a real Millpond server in this process, and compares what was measured with what `plan` computes. Nothing
/// outside this process is touched; everything is gone afterwards.
#[derive(Debug, Args)]
#[command(after_help = "Scenarios:\n  \
        leveling      one worker, 5 messages/s; 30 calls within 2 s\n  \
        enrollment    500 messages/s; 2,000/s for ten minutes, shortened by --speed\n\n\
        Examples:\n  \
        millpond demo\n  \
        millpond demo --scenario enrollment\n  \
        millpond demo --json | jq .queued.peak_depth\n  \
        millpond demo --chart spike.svg")]
pub(crate) struct Demo {
    /// What to show
    #[arg(long, default_value = "leveling", value_parser = ["leveling", "enrollment"])]
    scenario: String,
    /// Divides the ten minutes of the spike of enrollment; 60 makes it 10 s
    #[arg(
        long,
        default_value_t = Scenario::SPEED_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=600),
        value_name = "N"
    )]
    speed: u32,
    /// Print one JSON document: scenario, direct, queued
    #[arg(long)]
    json: bool,
    /// Also write the chart there, as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

impl Demo {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let Self { scenario, speed, json, chart } = self;
        let options = crate::demo::Options { scenario, speed, json, chart };
        Ok(crate::demo::run(&options, out).await?)
    }
}
