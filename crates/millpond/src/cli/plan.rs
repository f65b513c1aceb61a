//! `millpond plan`: the arithmetic of a spike, with its working shown.
//!
//! Owns the arguments and the table. Must never compute a figure itself.

use super::arguments;
use super::failure::Failure;
use super::render::{Column, table, wrapped};
use clap::Args;
use millpond_config::quantity::parse_duration;
use millpond_sim::plan::{Figure, Plan, PlanError, PlanInput, plan};
use std::io::Write;
use std::time::Duration;

/// Compute what a spike does: backlog, wait, drain, bound
///
/// Answers, before anything is built, whether it will hold: how many messages wait at the end of a spike, how long
/// the last one waits, when the queue is empty again, and with --max-wait which bound keeps that promise and how many
/// workers it takes. Every figure comes with its formula and the numbers put in, so that you can check it. Nothing is
/// started or contacted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        One worker does 5/s; a spike of 15/s for 2 s:\n  \
        millpond plan --rate 3/s --spike 15/s --spike-for 2s --service-time 200ms \\\n    \
                      --workers 1\n\n  \
        40 connections, 80 ms each; ten minutes at 2,000/s; nobody may wait longer\n  \
        than 45 minutes:\n  \
        millpond plan --rate 100/s --spike 2000/s --spike-for 10m \\\n    \
                      --service-time 80ms --workers 40 --max-wait 45m")]
pub(crate) struct PlanCommand {
    /// Normal arrivals, before and after the spike, such as 100/s or 4.5/s
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::rate, value_name = "RATE")]
    rate: f64,
    /// Arrivals during the spike, the normal ones included
    #[arg(long, allow_hyphen_values = true, value_parser = arguments::rate, value_name = "RATE")]
    spike: f64,
    /// How long the spike lasts, such as 10m
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration, value_name = "TIME")]
    spike_for: Duration,
    /// How long one message occupies the backend, such as 80ms
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration, value_name = "TIME")]
    service_time: Duration,
    /// Messages in work at once: the cap that the backend can stand
    #[arg(long, value_name = "N")]
    workers: u32,
    /// The longest acceptable wait; adds the bound and the workers that keep it
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration, value_name = "TIME")]
    max_wait: Option<Duration>,
    /// The longest a worker may take for one message, for the lease
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration, value_name = "TIME")]
    worker_timeout: Option<Duration>,
    /// Print one JSON document: plain numbers, null for never or not asked
    #[arg(long)]
    json: bool,
}

impl PlanCommand {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let plan = plan(&PlanInput {
            rate_per_second: self.rate,
            spike_per_second: self.spike,
            spike_for: self.spike_for,
            service_time: self.service_time,
            workers: self.workers,
            max_wait: self.max_wait,
            worker_timeout: self.worker_timeout,
        })
        .map_err(|error| unplannable(&error))?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &plan)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(out, "{}", figures(&plan))?;
        write!(out, "{}", wrapped(&plan.sentences().join("\n")))?;
        Ok(())
    }
}

fn unplannable(error: &PlanError) -> Failure {
    Failure::usage(error.to_string(), "see the examples in `millpond plan --help`")
}

/// Each figure with its formula, and below it the value with the numbers put in.
fn figures(plan: &Plan) -> String {
    let columns = [Column::Whole("FIGURE, VALUE"), Column::Text("FORMULA, NUMBERS PUT IN")];
    let row = |figure: Figure| {
        let name = figure.name.trim_end_matches("_seconds").trim_end_matches("_per_second").replace('_', " ");
        vec![format!("{name}\n  {}", figure.text), format!("{}\n= {}", figure.formula, figure.substituted)]
    };
    table(&columns, plan.figures().into_iter().map(row).collect())
}
