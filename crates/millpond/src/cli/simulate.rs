//! `millpond simulate`: the way from the command line to the simulator.
//!
//! Owns its arguments. Must never hold a rule of the simulation.

use super::failure::Failure;
use crate::demo::report;
use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use millpond_sim::chart;
use millpond_sim::plan::plan;
use millpond_sim::simulate::{Simulation, simulate};
use millpond_sim::text;
use millpond_sim::workload::Scenario;
use std::io::Write;
use std::path::PathBuf;

/// The whole ten minutes of `enrollment`: time costs nothing here.
const WHOLE: u32 = 1;

/// Run a spike through the engine on virtual time
///
/// Runs the same engine and the same journal as the server, on a virtual clock and a simulated disk, against a backend
/// of fixed capacity, and compares the spike called directly with the spike through the queue. An hour takes a moment,
/// and the same command always gives the same figures.
#[derive(Debug, Args)]
#[command(after_help = "Scenarios:\n  \
        leveling      one worker, 5 messages/s; 30 calls within 2 s\n  \
        enrollment    500 messages/s; 2,000/s for the whole ten minutes\n\n\
        Examples:\n  \
        millpond simulate --scenario leveling\n  \
        millpond simulate --scenario enrollment --chart enrollment.svg\n  \
        millpond simulate --scenario leveling --json | jq .queued.peak_depth")]
pub(crate) struct Simulate {
    /// What to simulate
    #[arg(long, default_value = "leveling", value_parser = ["leveling", "enrollment"])]
    scenario: String,
    /// Chance of the run: the same seed gives the same figures
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON document: scenario, direct, queued
    #[arg(long)]
    json: bool,
    /// Also write the chart there, as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

impl Simulate {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let scenario = Scenario::named(&self.scenario, WHOLE).context("the scenario cannot be made")?;
        let Simulation { comparison, series } = self.simulate(&scenario)?;
        if let Some(path) = &self.chart {
            let drawn = chart::svg(&series).context("the chart cannot be drawn")?;
            std::fs::write(path, drawn)
                .with_context(|| format!("the chart cannot be written to {}", path.display()))?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &comparison)?;
            writeln!(out)?;
            return Ok(());
        }
        let planned = plan(&scenario.plan_input()).context("the scenario cannot be planned")?;
        write!(out, "{}", report::page(&scenario, &comparison, &planned, &series))?;
        Ok(())
    }

    fn simulate(&self, scenario: &Scenario) -> anyhow::Result<Simulation> {
        let style =
            ProgressStyle::with_template("{spinner} simulated: {msg}").expect("the template is a constant");
        let bar = ProgressBar::no_length().with_style(style);
        let mut show = |reached_seconds: f64| {
            bar.set_message(text::seconds(reached_seconds));
            bar.tick();
        };
        let simulation = simulate(scenario, self.seed, &mut show);
        bar.finish_and_clear();
        simulation.context("the simulation failed")
    }
}
