//! What one look says to each rule.
//!
//! Owns the thresholds' meaning. Must never remember anything.

use super::{CLEARS_BELOW, LogSeen, Rule, ServerAlertSettings};
use crate::breaker::BreakerState;
use crate::command::QueueView;
use crate::stats::{Held, TargetStats};
use std::time::Duration;

/// So few refusals are no rise, whatever their share.
pub const REFUSALS_LEAST: f64 = 10.0;

/// A rule's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) rule: Rule,
    pub(super) value: f64,
    pub(super) threshold: f64,
    /// The alert is to fire, if this lasts.
    pub(super) over: bool,
    /// It is to clear, if this lasts. Both are false at the edge.
    pub(super) under: bool,
    /// How long it must last.
    pub(super) hold: Duration,
}

impl Reading {
    fn new(rule: Rule, value: f64, threshold: f64, hold: Duration) -> Self {
        Self {
            rule,
            value,
            threshold,
            over: value >= threshold,
            under: value < threshold * CLEARS_BELOW,
            hold,
        }
    }
}

fn state(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Of a queue, of which so many have been accepted and refused lately.
pub(super) fn of_queue(queue: &QueueView, [accepted, refused]: [f64; 2]) -> Vec<Reading> {
    let (settings, stats) = (&queue.settings.alerts, &queue.stats);
    let read = |rule: Rule| {
        let threshold = settings.threshold(rule)?;
        let value = match rule {
            Rule::OldestAge => stats.oldest_age.as_secs_f64(),
            Rule::Depth => (stats.ready + stats.backoff) as f64,
            Rule::Dead => stats.dead as f64,
            Rule::Refusals if refused > 0.0 => refused / (accepted + refused),
            Rule::Insurmountable => state(stats.insurmountable),
            Rule::DeadBurst => state(stats.held == Some(Held::DeadBurst)),
            Rule::DeadLettersFull => state(stats.held == Some(Held::DeadLettersFull)),
            Rule::CallbacksFull => state(stats.held == Some(Held::CallbacksFull)),
            Rule::Refusals | Rule::BreakerOpen | Rule::StorageFull | Rule::SlowCommits => 0.0,
        };
        let mut reading = Reading::new(rule, value, threshold, settings.hold);
        match rule {
            Rule::Refusals => {
                reading.over &= refused >= REFUSALS_LEAST;
                reading.under |= refused < REFUSALS_LEAST * CLEARS_BELOW;
            }
            // How many times what can be done arrives says more than that it is too much.
            Rule::Insurmountable => reading.value = stats.utilization,
            _ => {}
        }
        Some(reading)
    };
    Rule::ALL.into_iter().filter_map(read).collect()
}

/// Of a target.
pub(super) fn of_target(settings: &ServerAlertSettings, target: &TargetStats) -> Vec<Reading> {
    let is_down = state(target.state != BreakerState::Closed);
    let read = |threshold| Reading::new(Rule::BreakerOpen, is_down, threshold, settings.hold);
    settings.threshold(Rule::BreakerOpen).map(read).into_iter().collect()
}

/// Of the server, whose log has made so many commits in so many seconds lately.
pub(super) fn of_server(
    settings: &ServerAlertSettings,
    log: &LogSeen,
    [commits, seconds]: [f64; 2],
) -> Vec<Reading> {
    let mean = if commits > 0.0 { seconds / commits } else { 0.0 };
    let values = [(Rule::StorageFull, state(log.full)), (Rule::SlowCommits, mean)];
    let read = |(rule, value)| Some(Reading::new(rule, value, settings.threshold(rule)?, settings.hold));
    values.into_iter().filter_map(read).collect()
}
