//! What a run showed, live or simulated, and whether it is what the plan had said.
//!
//! Owns the document that `millpond demo` and `millpond simulate` print and the tolerances of its figures. Must
//! never run anything.

use crate::direct::simulate_direct;
use crate::plan::{PlanError, plan};
use crate::text;
use crate::workload::{Load, Scenario};
use serde::Serialize;
use std::time::Duration;

/// The spike's calls when they went to the backend directly. The `normal_` fields count the other calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DirectOutcome {
    /// Calls of the spike.
    pub offered: u64,
    /// … answered before their caller gave up.
    pub answered_in_time: u64,
    /// … given up by their caller.
    pub timed_out: u64,
    /// … that failed otherwise (connection refused, broken reply).
    pub failed: u64,
    /// Calls of the normal load, before and after the spike.
    pub normal_offered: u64,
    /// … given up by their caller.
    pub normal_timed_out: u64,
    /// The last normal call that timed out, in seconds after the end of the spike; 0 if none did. As far as the
    /// run went: a live run stops soon after the spike.
    pub recovered_seconds: f64,
    /// The most calls that waited in the backend's accept queue.
    pub peak_waiting: u64,
}

impl DirectOutcome {
    /// Counts one call that was answered in time or given up.
    pub fn count(&mut self, load: Load, in_time: bool) {
        match (load, in_time) {
            (Load::Spike, true) => self.answered_in_time += 1,
            (Load::Spike, false) => self.timed_out += 1,
            (Load::Normal, true) => {}
            (Load::Normal, false) => self.normal_timed_out += 1,
        }
        match load {
            Load::Spike => self.offered += 1,
            Load::Normal => self.normal_offered += 1,
        }
    }
}

/// The spike's calls when they went through the queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QueuedOutcome {
    /// Calls of the spike.
    pub offered: u64,
    /// … answered with 202, which means stored durably.
    pub accepted: u64,
    /// … answered with 429 or 503.
    pub rejected: u64,
    /// … given up by their caller.
    pub timed_out: u64,
    /// … that failed otherwise.
    pub failed: u64,
    /// Accepted calls whose work was done.
    pub completed: u64,
    /// Work that was done more than once, of any call.
    pub duplicates: u64,
    /// The most messages that were ready at once.
    pub peak_depth: u64,
    /// Age of the oldest ready message when the spike ended.
    pub spike_end_age_seconds: f64,
    /// The highest age of the oldest ready message. Like the depth, it leaves out what is in work.
    pub peak_age_seconds: f64,
    /// The longest wait of a call of the spike from its arrival to the start of its work, seen at the backend.
    pub longest_wait_seconds: f64,
    /// From the end of the spike until no message was ready. `None`: not within the run.
    pub drain_seconds: Option<f64>,
    /// Median time from a call's intended start to its 202, during the spike. `None`: not measured.
    pub accept_p50_seconds: Option<f64>,
    /// The 99th percentile of the same.
    pub accept_p99_seconds: Option<f64>,
    /// The most calls that occupied the backend at once.
    pub peak_in_flight: u64,
}

/// Both halves of a comparison: the document of `demo` and `simulate`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Without a queue.
    pub direct: DirectOutcome,
    /// Through the queue.
    pub queued: QueuedOutcome,
}

/// What the figures should be, and how far they may be off.
#[derive(Debug, Clone)]
pub struct Expectation {
    figures: Vec<Expected>,
}

/// One expected figure.
#[derive(Debug, Clone)]
pub struct Expected {
    /// What it is, as the report calls it.
    pub name: &'static str,
    /// What was computed beforehand.
    pub value: f64,
    /// How far the measured one may be off.
    pub tolerance: f64,
    read: fn(&Comparison) -> Option<f64>,
}

impl Expectation {
    /// From the planner (queue) and the simulation of the direct path. Live runs have overheads in both
    /// directions: figures may be off by a twentieth (a tenth where a time-out cuts a steep slope), and by the
    /// absolute tolerances of the small example: one call, one message, 0.3 s of age, 1 s of drain.
    pub fn of(scenario: &Scenario) -> Result<Self, PlanError> {
        let plan = plan(&scenario.plan_input())?;
        let direct = simulate_direct(scenario, Duration::ZERO);
        let offered = direct.offered as f64;
        let mut figures = vec![
            expected("answered directly in time", direct.answered_in_time as f64, 1.0, 0.1, |seen| {
                Some(seen.direct.answered_in_time as f64)
            }),
            expected("timed out directly", direct.timed_out as f64, 1.0, 0.1, |seen| {
                Some(seen.direct.timed_out as f64)
            }),
            expected("accepted by the queue", offered, 0.0, 0.0, |seen| Some(seen.queued.accepted as f64)),
            expected("completed through the queue", offered, 0.0, 0.0, |seen| {
                Some(seen.queued.completed as f64)
            }),
            expected("peak backlog", plan.backlog_peak, 1.0, 0.05, |seen| {
                Some(seen.queued.peak_depth as f64)
            }),
            expected("highest age", plan.longest_wait_seconds, 0.3, 0.05, |seen| {
                Some(seen.queued.peak_age_seconds)
            }),
        ];
        if let Some(drain) = plan.drain_seconds {
            figures.push(expected("drain", drain, 1.0, 0.05, |seen| seen.queued.drain_seconds));
        }
        Ok(Self { figures })
    }

    /// The expected figures.
    pub fn figures(&self) -> &[Expected] {
        &self.figures
    }

    /// A sentence for each figure that is not as expected; empty if all are.
    pub fn misses(&self, seen: &Comparison) -> Vec<String> {
        let mut misses: Vec<String> = self.figures.iter().filter_map(|figure| figure.miss(seen)).collect();
        if seen.queued.duplicates > 0 {
            misses.push(format!("{} messages were done more than once", text::count(seen.queued.duplicates)));
        }
        misses
    }
}

impl Expected {
    fn miss(&self, seen: &Comparison) -> Option<String> {
        let Some(value) = (self.read)(seen) else {
            return Some(format!("{}: not reached, planned {}", self.name, text::number(self.value)));
        };
        ((value - self.value).abs() > self.tolerance).then(|| {
            format!(
                "{}: {}, planned {} ± {}",
                self.name,
                text::number(value),
                text::number(self.value),
                text::number(self.tolerance)
            )
        })
    }
}

fn expected(
    name: &'static str,
    value: f64,
    absolute: f64,
    relative: f64,
    read: fn(&Comparison) -> Option<f64>,
) -> Expected {
    Expected { name, value, tolerance: absolute.max(value * relative), read }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, DirectOutcome, Expectation, QueuedOutcome};
    use crate::workload::Scenario;

    fn as_planned() -> Comparison {
        Comparison {
            scenario: "leveling",
            direct: DirectOutcome {
                offered: 30,
                answered_in_time: 10,
                timed_out: 20,
                ..DirectOutcome::default()
            },
            queued: QueuedOutcome {
                offered: 30,
                accepted: 30,
                completed: 30,
                peak_depth: 20,
                peak_age_seconds: 4.1,
                drain_seconds: Some(9.8),
                ..QueuedOutcome::default()
            },
        }
    }

    #[test]
    fn a_run_as_planned_misses_nothing() {
        let expectation = Expectation::of(&Scenario::leveling()).unwrap();
        assert_eq!(expectation.misses(&as_planned()), Vec::<String>::new());
    }

    #[test]
    fn each_figure_that_is_off_is_named() {
        let expectation = Expectation::of(&Scenario::leveling()).unwrap();
        let mut seen = as_planned();
        seen.direct.answered_in_time = 12;
        seen.queued.accepted = 29;
        seen.queued.peak_depth = 22;
        seen.queued.peak_age_seconds = 4.4;
        seen.queued.drain_seconds = None;
        seen.queued.duplicates = 1;
        let misses = expectation.misses(&seen);
        assert_eq!(misses.len(), 6, "{misses:?}");
        assert_eq!(misses[0], "answered directly in time: 12, planned 10 ± 1");
        assert_eq!(misses[4], "drain: not reached, planned 10");
    }

    #[test]
    fn the_document_has_the_contracted_fields() {
        let document = serde_json::to_value(as_planned()).unwrap();
        assert_eq!(document["scenario"], "leveling");
        for field in ["offered", "answered_in_time", "timed_out"] {
            assert!(document["direct"][field].is_u64(), "{field}");
        }
        for field in ["offered", "accepted", "rejected", "completed", "peak_depth"] {
            assert!(document["queued"][field].is_u64(), "{field}");
        }
        for field in ["peak_age_seconds", "drain_seconds"] {
            assert!(document["queued"][field].is_f64(), "{field}");
        }
    }
}
