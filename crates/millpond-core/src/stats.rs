//! The numbers told of a queue and of a target.
//!
//! Owns their shape and the fixed-bucket histogram. Must never label anything with an id, tenant or key.

use crate::breaker::BreakerState;
use crate::forecast::{Correction, PromiseRecord};
use crate::message::{AttemptOutcome, Criticality};
use crate::name::Name;
use crate::scaling::Demand;
use std::time::Duration;

/// Upper bounds of the histogram buckets in seconds: OpenTelemetry's for messaging, and on to a day because
/// waits in a queue are longer than calls.
pub const BUCKETS_SECONDS: [f64; 20] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 300.0,
    1800.0, 3600.0, 86400.0,
];

/// A histogram of durations with [`BUCKETS_SECONDS`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Observations per bucket, not cumulated; the last one is for everything beyond.
    pub counts: [u64; BUCKETS_SECONDS.len() + 1],
    /// Sum of all observations in seconds.
    pub sum_seconds: f64,
}

impl Histogram {
    /// Counts one observation.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket =
            BUCKETS_SECONDS.iter().position(|&bound| seconds <= bound).unwrap_or(BUCKETS_SECONDS.len());
        self.counts[bucket] += 1;
        self.sum_seconds += seconds;
    }
}

/// What has happened to a queue since the engine started.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// Messages accepted, in the order of [`Criticality::ALL`].
    pub accepted_by_criticality: [u64; Criticality::ALL.len()],
    /// Messages completed.
    pub completed: u64,
    /// Enqueues refused because the queue was full.
    pub refused_full: u64,
    /// Enqueues refused because the wait would have been too long.
    pub refused_wait: u64,
    /// Enqueues refused for want of disk space, or while shutting down.
    pub refused_other: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Messages that expired, dead-lettered or not.
    pub expired: u64,
    /// Messages given up for newer ones.
    pub dropped: u64,
    /// Idempotency keys of finished messages forgotten before their time, for want of room.
    pub keys_forgotten: u64,
    /// Messages withdrawn.
    pub cancelled: u64,
    /// Hand-outs that ended, by outcome, in the order of [`AttemptOutcome::ALL`].
    pub deliveries: [u64; AttemptOutcome::ALL.len()],
    /// Time from first due to first hand-out.
    pub wait: Histogram,
    /// Time from hand-out to completion.
    pub service: Histogram,
}

impl Totals {
    /// All that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted_by_criticality.iter().sum()
    }

    /// Those accepted of one class.
    pub fn accepted_of(&self, criticality: Criticality) -> u64 {
        self.accepted_by_criticality[criticality.index()]
    }

    /// All refusals.
    pub fn refused(&self) -> u64 {
        self.refused_full + self.refused_wait + self.refused_other
    }

    /// Counts the end of one hand-out.
    ///
    /// # Panics
    /// Never: every outcome is listed.
    pub fn ended(&mut self, outcome: AttemptOutcome) {
        let place = AttemptOutcome::ALL.iter().position(|&known| known == outcome);
        self.deliveries[place.expect("ALL lists every outcome")] += 1;
    }
}

/// Why a queue hands out nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// On an operator's word.
    Paused,
    /// Too many messages were given up in a row; an operator resumes it.
    DeadBurst,
    /// There is no room for more dead letters.
    DeadLettersFull,
    /// There is no room for more messages that tell of ends.
    CallbacksFull,
    /// The disk has room for settlements only.
    StorageFull,
    /// Its target does not answer, and is only tried with single messages from time to time.
    BreakerOpen,
}

impl Held {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Paused,
        Self::DeadBurst,
        Self::DeadLettersFull,
        Self::CallbacksFull,
        Self::StorageFull,
        Self::BreakerOpen,
    ];

    /// The word used on the wire and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::DeadBurst => "dead-burst",
            Self::DeadLettersFull => "dead-letters-full",
            Self::CallbacksFull => "callbacks-full",
            Self::StorageFull => "storage-full",
            Self::BreakerOpen => "breaker-open",
        }
    }
}

/// A queue's numbers at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueueStats {
    /// Messages that wait to be handed out, and those that do as soon as their way here is durable: a queue in which
    /// nothing is ready, delayed, leased or in backoff has nothing left to do.
    pub ready: u64,
    /// Messages that wait for their due time.
    pub delayed: u64,
    /// Messages that somebody holds.
    pub leased: u64,
    /// Messages that wait for their next attempt.
    pub backoff: u64,
    /// Dead letters.
    pub dead: u64,
    /// Bytes of all messages that are not terminal.
    pub bytes: u64,
    /// Age of the oldest unfinished message since it was first due, whatever its phase.
    pub oldest_age: Duration,
    /// The same among the ready ones.
    pub oldest_ready_age: Duration,
    /// The same among the leased ones.
    pub oldest_leased_age: Duration,
    /// The same among those in backoff.
    pub oldest_backoff_age: Duration,
    /// Recent arrivals.
    pub arrivals_per_second: f64,
    /// Recent completions.
    pub completions_per_second: f64,
    /// What the workers or the target can do; 0 while unknown.
    pub capacity_per_second: f64,
    /// Arrivals ÷ capacity; 0 while the capacity is unknown.
    pub utilization: f64,
    /// Wait of a message that arrives now; `None` while nothing can be promised.
    pub predicted_wait: Option<Duration>,
    /// Time until nothing waits; `None`: never, or unknown.
    pub drain: Option<Duration>,
    /// Arrivals have exceeded capacity for longer than the promise.
    pub insurmountable: bool,
    /// Nothing is handed out, on an operator's word or after a burst of deaths.
    pub paused: bool,
    /// Why nothing is handed out, whatever waits.
    pub held: Option<Held>,
    /// Callers who wait at the door for room.
    pub blocked: u64,
    /// Messages in work at once: the cap for a target, what is leased for pull workers.
    pub workers: u64,
    /// Ready messages per worker; where there is none, all of them.
    pub backlog_per_worker: f64,
    /// Workers that would keep the promise.
    pub workers_wanted: u64,
    /// What they would be wanted for.
    pub demand: Demand,
    /// The most workers that the caps allow; 0: no cap.
    pub workers_ceiling: u64,
    /// Mean work per message; the expected one until measured, 0 if unknown.
    pub service_time: Duration,
    /// What has happened so far.
    pub totals: Totals,
    /// How promises have turned out.
    pub promises: PromiseRecord,
    /// What the next promises are multiplied by.
    pub promise_correction: Correction,
}

/// A target's numbers at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetStats {
    /// Its name.
    pub name: Name,
    /// Calls that occupy it, those that timed out included.
    pub inflight: u64,
    /// The limit in force: the hard cap, or what was found below it.
    pub limit: u64,
    /// Calls that may occupy it now: the limit, or what a probe of it, a ramp or the breaker leaves of it for a while.
    pub places: u64,
    /// How long it still wants to be left alone.
    pub throttled_for: Duration,
    /// The hard cap.
    pub concurrency: u64,
    /// Whether the limit is found by itself.
    pub adaptive: bool,
    /// The rate, if it has one.
    pub rate_per_second: Option<f64>,
    /// Where its breaker stands; closed if it has none.
    pub state: BreakerState,
    /// For how long it has stood there; since the start, if it never changed.
    pub state_for: Duration,
    /// While the breaker is open: when the next probe may go out; zero once it waits for a message only.
    pub next_probe: Option<Duration>,
    /// What its ramp leaves of the limit, while there is one.
    pub ramp_limit: Option<u64>,
    /// Failures since the latest answer.
    pub failures_in_row: u64,
    /// Calls that have ended since the start, in the order of [`CallEnding::ALL`].
    pub calls: [u64; CallEnding::ALL.len()],
    /// The queues that are pushed to it, by name.
    pub queues: Vec<Name>,
}

impl TargetStats {
    /// Calls that have ended like this.
    pub fn ended(&self, ending: CallEnding) -> u64 {
        self.calls[ending.index()]
    }
}

/// How a call ended, as counted for its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnding {
    /// It did what it should.
    Succeeded,
    /// It failed, and is repeated.
    Failed,
    /// It took longer than the time-out.
    TimedOut,
    /// The target asked for a pause.
    Throttled,
    /// The target wants no such message.
    Rejected,
}

impl CallEnding {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Succeeded, Self::Failed, Self::TimedOut, Self::Throttled, Self::Rejected];

    /// Its place in [`CallEnding::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Throttled => "throttled",
            Self::Rejected => "rejected",
        }
    }
}
