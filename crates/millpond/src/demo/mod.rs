//! `millpond demo`: a spike against a real backend, called directly and then through a real server, all in this
//! process.
//!
//! Owns the order of the two halves and what is printed at the end. Must never show a figure that was not
//! measured, except in the column that says it was planned.

mod callers;
mod client;
mod direct;
mod limits;
mod measure;
mod pond;
mod progress;
mod queued;
pub(crate) mod report;
mod target;

use anyhow::{Context, bail};
use measure::Observations;
use millpond_sim::chart;
use millpond_sim::outcome::{Comparison, DirectOutcome, Expectation, QueuedOutcome};
use millpond_sim::plan::plan;
use millpond_sim::workload::Scenario;
use progress::Progress;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use target::Target;

/// What the command line asks for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `leveling` or `enrollment`.
    pub(crate) scenario: String,
    /// Divides the length of the spike of `enrollment`.
    pub(crate) speed: u32,
    /// Print one JSON document instead of the report.
    pub(crate) json: bool,
    /// Write the chart there, as SVG.
    pub(crate) chart: Option<PathBuf>,
}

/// Runs the demonstration and prints it to `out`. An error, after printing, if the figures are not as planned.
pub(crate) async fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let scenario = Scenario::named(&options.scenario, options.speed)?;
    let planned = plan(&scenario.plan_input())?;
    let expectation = Expectation::of(&scenario)?;

    let halves = tokio::select! {
        halves = both_halves(&scenario) => halves,
        // Dropped, the server and its directory are cleaned up as after a whole run.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    let (direct, queued, seen) = halves?;
    let comparison = Comparison { scenario: scenario.name, direct, queued };
    let series = seen.series(&scenario);
    if let Some(path) = &options.chart {
        let drawn = chart::svg(&series)?;
        std::fs::write(path, drawn)
            .with_context(|| format!("the chart cannot be written to {}", path.display()))?;
    }
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &comparison)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", report::page(&scenario, &comparison, &planned, &series))?;
    }
    out.flush()?;
    let misses = expectation.misses(&comparison);
    if !misses.is_empty() {
        bail!(
            "not as planned: {}. The backend and its callers share this machine with the server: if it is busy with \
             something else, try again when it is idle",
            misses.join("; ")
        );
    }
    Ok(())
}

async fn both_halves(scenario: &Scenario) -> anyhow::Result<(DirectOutcome, QueuedOutcome, Observations)> {
    let progress = Progress::new("called directly");
    let direct = direct::run(scenario, &progress).await?;
    drop(progress);

    let progress = Progress::new("through the queue");
    let epoch = Instant::now();
    let target = Target::start(scenario.slots, scenario.service_time, epoch)
        .await
        .context("the backend cannot listen on 127.0.0.1")?;
    let pond = pond::Pond::start(scenario, target.address()).await?;
    let run = queued::run(scenario, pond.address(), &target, epoch, &progress).await;
    drop(progress);
    pond.stop().await?;
    let (queued, seen) = run?;
    Ok((direct, queued, seen))
}

/// Connections that the callers may need at once: as many calls as can be open before the first one gives up
/// (Little's law), and some more for the moments in which a closed one is not yet gone.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
fn connections_for(scenario: &Scenario) -> usize {
    let open = scenario.spike_per_second * scenario.caller_timeout.as_secs_f64();
    (open * 1.1) as usize + 64
}

#[cfg(test)]
mod tests {
    use super::{Progress, Scenario, Target, connections_for, pond, queued};
    use std::time::{Duration, Instant};

    fn tiny() -> Scenario {
        Scenario {
            name: "tiny",
            summary: String::new(),
            normal_per_second: 0.0,
            lead_in: Duration::ZERO,
            spike_per_second: 200.0,
            spike_for: Duration::from_millis(100),
            service_time: Duration::from_millis(2),
            slots: 3,
            caller_timeout: Duration::from_mins(1),
            max_wait: Duration::from_mins(1),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_spike_goes_through_a_real_server_once_and_completely() {
        let scenario = tiny();
        let epoch = Instant::now();
        let target = Target::start(scenario.slots, scenario.service_time, epoch).await.unwrap();
        let pond = pond::Pond::start(&scenario, target.address()).await.unwrap();
        let directory = pond.directory().to_owned();
        let progress = Progress::new("test");
        let (seen, observations) =
            queued::run(&scenario, pond.address(), &target, epoch, &progress).await.unwrap();
        assert_eq!((seen.offered, seen.accepted, seen.completed), (20, 20, 20));
        assert_eq!((seen.rejected, seen.failed, seen.timed_out, seen.duplicates), (0, 0, 0, 0));
        assert!((1..=3).contains(&seen.peak_in_flight), "{}", seen.peak_in_flight);
        assert!(seen.drain_seconds.is_some() && !observations.0.is_empty());
        assert!(directory.exists());
        pond.stop().await.unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn the_pool_is_large_enough_for_every_caller_that_can_be_waiting() {
        let scenario = Scenario::enrollment(60).unwrap();
        assert!(connections_for(&scenario) > 4_000);
    }
}
