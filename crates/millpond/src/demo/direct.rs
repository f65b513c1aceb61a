//! The first half of the demonstration: the spike goes straight to the backend.
//!
//! Owns the direct run. Must never know of a queue.

use super::callers::{Behaviour, Callers};
use super::client::Client;
use super::progress::Progress;
use super::target::Target;
use super::{connections_for, limits};
use anyhow::Context;
use millpond_sim::outcome::DirectOutcome;
use millpond_sim::workload::Scenario;
use std::time::{Duration, Instant};

/// Normal load goes on for so long after the spike, to see that those callers suffer as well.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Runs it; takes as long as lead-in, spike, aftermath and one time-out.
pub(super) async fn run(scenario: &Scenario, progress: &Progress) -> anyhow::Result<DirectOutcome> {
    let connections = connections_for(scenario);
    limits::allow_connections(connections)?;
    let epoch = Instant::now();
    let target = Target::start(scenario.slots, scenario.service_time, epoch)
        .await
        .context("the backend cannot listen on 127.0.0.1")?;
    let behaviour = Behaviour {
        path: "/".to_owned(),
        timeout: scenario.caller_timeout,
        until: scenario.spike_end() + AFTERMATH,
        epoch,
        begin: Instant::now(),
    };
    let whole = behaviour.until + behaviour.timeout;
    let begin = behaviour.begin;
    let callers = Callers::start(scenario.schedule(), Client::new(target.address(), connections), behaviour);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while begin.elapsed() < whole {
        ticks.tick().await;
        let (spike, _) = callers.so_far();
        let message = format!(
            "{} answered in time, {} timed out, {} waiting",
            spike.answered,
            spike.timed_out,
            target.tally().waiting
        );
        progress.show(begin.elapsed().as_secs_f64() / whole.as_secs_f64(), message);
    }
    let calls = callers.finish().await;
    progress.note_lateness(calls.latest_start);
    if let Some(failure) = &calls.first_failure {
        progress.warn(&format!("{} direct calls failed, the first one: {failure}", calls.spike.failed));
    }
    let recovered =
        calls.last_normal_timeout.map_or(Duration::ZERO, |at| at.saturating_sub(scenario.spike_end()));
    Ok(DirectOutcome {
        offered: calls.spike.offered,
        answered_in_time: calls.spike.answered,
        timed_out: calls.spike.timed_out,
        failed: calls.spike.failed + calls.spike.refused,
        normal_offered: calls.normal.offered,
        normal_timed_out: calls.normal.timed_out,
        recovered_seconds: recovered.as_secs_f64(),
        peak_waiting: target.tally().peak_waiting,
    })
}
