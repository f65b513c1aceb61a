//! The second half of the demonstration: the same spike goes through the queue.
//!
//! Owns the queued run. Must never look into the server: it sees what any client sees, and what arrives at the
//! backend.

use super::callers::{Behaviour, Callers, Calls};
use super::client::Client;
use super::connections_for;
use super::measure::{Observation, Observations};
use super::progress::Progress;
use super::target::Target;
use anyhow::{Context, bail};
use millpond_sim::outcome::QueuedOutcome;
use millpond_sim::text;
use millpond_sim::workload::Scenario;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a caller waits for its 202. Durable means on disk, and a disk may be slow for a moment.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than planned the queue may take before the run is given up.
const PATIENCE: u32 = 3;
/// … and at least so long.
const PATIENCE_MIN: Duration = Duration::from_secs(30);
/// How long the messages that are still in work when nothing is ready any more may take.
const LAST_WORK: Duration = Duration::from_secs(10);

/// The part of `GET /v1/queues/{queue}/stats` that is looked at.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Stats {
    ready: u64,
    /// Like the depth, the age is that of what waits: what is in work has stopped waiting.
    oldest_ready_age_seconds: f64,
}

/// Runs it against the server at `address`, whose queue `scenario.name` pushes to `target`.
pub(super) async fn run(
    scenario: &Scenario,
    address: SocketAddr,
    target: &Target,
    epoch: Instant,
    progress: &Progress,
) -> anyhow::Result<(QueuedOutcome, Observations)> {
    let planned = millpond_sim::plan::plan(&scenario.plan_input())?.drain_seconds.unwrap_or_default();
    let deadline = scenario.spike_end() + (Duration::from_secs_f64(planned) * PATIENCE).max(PATIENCE_MIN);
    let behaviour = Behaviour {
        path: format!("/v1/queues/{}/messages", scenario.name),
        timeout: ACCEPT_TIMEOUT,
        until: deadline,
        epoch,
        begin: Instant::now(),
    };
    let begin = behaviour.begin;
    let client = Client::new(address, connections_for(scenario));
    let callers = Callers::start(scenario.schedule(), client, behaviour);
    let looks = Looks { scenario, callers: &callers, target, begin, deadline, planned };
    let seen = looks.until_drained(&Client::new(address, 4), progress).await;
    callers.stop();
    let calls = callers.finish().await;
    let seen = seen?;
    progress.note_lateness(calls.latest_start);
    if let Some(failure) = &calls.first_failure {
        progress.warn(&format!("{} calls of the spike failed, the first one: {failure}", calls.spike.failed));
    }
    let accepted = calls.spike.answered + calls.normal.answered;
    if tokio::time::timeout(LAST_WORK, target.completed(accepted)).await.is_err() {
        progress
            .warn(&format!("only {} of {accepted} accepted messages were done", target.tally().completed));
    }
    Ok((outcome(scenario, &calls, &seen, target), seen))
}

struct Looks<'a> {
    scenario: &'a Scenario,
    callers: &'a Callers,
    target: &'a Target,
    begin: Instant,
    deadline: Duration,
    planned: f64,
}

impl Looks<'_> {
    /// Looks at the queue until nothing is ready any more after the spike, or the deadline.
    async fn until_drained(&self, client: &Client, progress: &Progress) -> anyhow::Result<Observations> {
        let mut seen = Observations::default();
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let look = self.look(client).await?;
            seen.0.push(look);
            self.show(progress, &look);
            let spike_over = look.at_seconds >= self.scenario.spike_end().as_secs_f64();
            if (spike_over && look.ready == 0) || look.at_seconds > self.deadline.as_secs_f64() {
                return Ok(seen);
            }
        }
    }

    async fn look(&self, client: &Client) -> anyhow::Result<Observation> {
        let path = format!("/v1/queues/{}/stats", self.scenario.name);
        let answer = tokio::time::timeout(ACCEPT_TIMEOUT, client.get(&path))
            .await
            .with_context(|| format!("GET {path} takes longer than {} s", ACCEPT_TIMEOUT.as_secs()))?
            .with_context(|| format!("GET {path}"))?;
        if !answer.status.is_success() {
            bail!("GET {path} answers {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        let stats: Stats = serde_json::from_slice(&answer.body)
            .with_context(|| format!("GET {path} answers what is no statistics"))?;
        Ok(Observation {
            at_seconds: rounded(self.begin.elapsed().as_secs_f64()),
            started: self.callers.started(),
            completed: self.target.tally().completed,
            ready: stats.ready,
            oldest_age_seconds: stats.oldest_ready_age_seconds,
        })
    }

    fn show(&self, progress: &Progress, look: &Observation) {
        let whole = self.scenario.spike_end().as_secs_f64() + self.planned;
        let message = format!(
            "{} waiting, the oldest {}, {} done",
            text::count(look.ready),
            text::seconds(look.oldest_age_seconds),
            text::count(look.completed)
        );
        progress.show(look.at_seconds / whole, message);
    }
}

fn outcome(scenario: &Scenario, calls: &Calls, seen: &Observations, target: &Target) -> QueuedOutcome {
    let tally = target.tally();
    QueuedOutcome {
        offered: calls.spike.offered,
        accepted: calls.spike.answered,
        rejected: calls.spike.refused,
        timed_out: calls.spike.timed_out,
        failed: calls.spike.failed,
        completed: tally.spike_completed,
        duplicates: tally.duplicates,
        peak_depth: seen.peak_depth(),
        spike_end_age_seconds: rounded(seen.age_seconds_at(scenario.spike_end())),
        peak_age_seconds: rounded(seen.peak_age_seconds()),
        longest_wait_seconds: rounded(tally.longest_spike_wait.as_secs_f64()),
        drain_seconds: seen.drain_seconds(scenario.spike_end()).map(rounded),
        accept_p50_seconds: calls.latency_seconds(0.5),
        accept_p99_seconds: calls.latency_seconds(0.99),
        peak_in_flight: tally.peak_in_flight,
    }
}

/// To microseconds: nothing here is measured more finely.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
