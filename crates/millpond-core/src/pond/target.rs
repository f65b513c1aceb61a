//! One push target: how many calls occupy it, and when it may get the next one.
//!
//! Owns the hard cap, the limit below it and the pace. Must never choose a message.

use super::queue::Told;
use crate::command::CallOutcome;
use crate::limit::{Ended, Ending, Limiter};
use crate::name::Name;
use crate::rate::Pacer;
use crate::settings::TargetSettings;
use crate::stats::TargetStats;
use crate::time::{Mono, Now, Wall};
use std::collections::BTreeSet;
use std::time::Duration;

/// Failures in a row after which a target counts as down, and nothing is promised any more.
const DOWN_AFTER_FAILURES: u32 = 10;
/// A target that asks for a pause again within so long of the end of the one before lives by its pauses; one pause alone
/// is over when it is over. As long as the throughput of busy workers is remembered.
const THROTTLED_LATELY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: Name,
    pub(super) settings: TargetSettings,
    /// Calls under way, and those that timed out and may still be worked on.
    pub(super) occupied: u32,
    pacer: Option<Pacer>,
    /// Finds the limit, if that is not just the hard cap.
    limiter: Option<Box<Limiter>>,
    /// When its latest call began, if it has a rate.
    pub(super) called: Option<Wall>,
    /// No record but a hand-out's tells of that call.
    pub(super) unnoted: bool,
    /// Asked to be left alone until then.
    pub(super) paused_until: Mono,
    /// That was soon after an earlier pause.
    pauses_again: bool,
    /// Queues with work for it.
    pub(super) working: u64,
    /// Those that may hand it out now, by index.
    pub(super) open: BTreeSet<usize>,
    /// The queue whose turn it is, or that comes before it.
    pub(super) turn: usize,
    failures_in_row: u32,
    /// The timer that is set for it.
    pub(super) timer: Option<Mono>,
}

impl Target {
    pub(super) fn new(name: Name, settings: TargetSettings) -> Self {
        // A burst of one: in no window of any length are more calls started than rate × window + 1.
        let pacer = settings.rate.map(|rate| Pacer::new(rate, 1));
        let limiter = settings
            .adaptive
            .map(|adaptive| Box::new(Limiter::new(settings.concurrency, settings.timeout, adaptive)));
        Self {
            name,
            settings,
            occupied: 0,
            pacer,
            limiter,
            called: None,
            unnoted: false,
            paused_until: Mono(i64::MIN),
            pauses_again: false,
            working: 0,
            open: BTreeSet::new(),
            turn: 0,
            failures_in_row: 0,
            timer: None,
        }
    }

    /// Hears of a queue what has changed.
    pub(super) fn hear(&mut self, queue: usize, before: Told, now: Told) {
        self.working = self.working + u64::from(now.working) - u64::from(before.working);
        if now.open {
            self.open.insert(queue);
        } else {
            self.open.remove(&queue);
        }
    }

    /// The queues that may hand it out work, from the one whose turn it is.
    pub(super) fn open_in_turn(&self) -> impl Iterator<Item = usize> {
        self.open.range(self.turn..).chain(self.open.range(..self.turn)).copied()
    }

    pub(super) fn has_room(&self) -> bool {
        self.occupied < self.places()
    }

    /// Calls that may occupy it now: the limit, or what a probe leaves of it.
    fn places(&self) -> u32 {
        self.limiter.as_ref().map_or(self.settings.concurrency, |limiter| limiter.places())
    }

    /// The limit in force, probes apart.
    pub(super) fn limit(&self) -> u32 {
        self.limiter.as_ref().map_or(self.settings.concurrency, |limiter| limiter.limit())
    }

    /// The calls that a forecast counts with: the limit once it was found, until then the hard cap. A limit that is on
    /// its way up from 1 says what was tried, and would have work refused that can be done.
    pub(super) fn limit_forecast(&self) -> u32 {
        let found = self.limiter.as_ref().filter(|limiter| !limiter.is_seeking());
        found.map_or(self.settings.concurrency, |limiter| limiter.limit())
    }

    /// The earliest time for the next call, as far as pace and pause go.
    pub(super) fn ready_at(&self) -> Mono {
        self.pacer.as_ref().map_or(self.paused_until, |pacer| pacer.ready_at().max(self.paused_until))
    }

    /// Counts a call that starts at `now`, which is not before [`Target::ready_at`].
    pub(super) fn start(&mut self, now: Now) {
        assert!(self.has_room(), "target {} is over its cap", self.name);
        self.occupied += 1;
        let admitted = self.pacer.as_mut().is_none_or(|pacer| pacer.admit(now.mono));
        assert!(admitted, "target {} is called faster than its rate", self.name);
        self.called = self.pacer.is_some().then_some(now.wall);
        self.unnoted = self.called.is_some();
    }

    /// Goes on at the pace after a restart: the latest call of before began at `started`. That is not later than now,
    /// whatever the wall clock says: no call waits longer than the rate wants.
    pub(super) fn resume_pace(&mut self, started: Wall, now: Now) {
        let Some(pacer) = &mut self.pacer else { return };
        pacer.admit(now.mono_at(started).min(now.mono));
        self.called = Some(started.min(now.wall));
        self.unnoted = true;
    }

    pub(super) fn free(&mut self) {
        assert!(self.occupied > 0, "target {} was freed more often than called", self.name);
        self.occupied -= 1;
    }

    /// Learns the limit from how a call ended that began at `started`, when `inflight` calls occupied the target.
    pub(super) fn note_ending(&mut self, outcome: &CallOutcome, started: Mono, inflight: u32, now: Mono) {
        let Some(limiter) = &mut self.limiter else { return };
        let how = match outcome {
            CallOutcome::Succeeded { .. } => Ending::Done,
            CallOutcome::Throttled { .. } => Ending::Refused,
            CallOutcome::Failed { timed_out: true, .. } => Ending::TimedOut,
            CallOutcome::Failed { failure, .. } if matches!(failure.http_status, Some(429 | 503)) => {
                Ending::Refused
            }
            CallOutcome::Failed { .. } | CallOutcome::Dead { .. } | CallOutcome::Interrupted => Ending::Other,
        };
        limiter.ended(Ended { started, how, inflight }, now);
    }

    /// Learns from how a call ended whether the target is up, and when it wants the next one.
    pub(super) fn note_outcome(&mut self, outcome: &CallOutcome, now: Mono) {
        match outcome {
            CallOutcome::Succeeded { .. } | CallOutcome::Dead { .. } => self.failures_in_row = 0,
            CallOutcome::Failed { .. } => self.failures_in_row = self.failures_in_row.saturating_add(1),
            CallOutcome::Throttled { pause, .. } => {
                // Several calls may tell of the same pause.
                if now >= self.paused_until {
                    self.pauses_again = now.since(self.paused_until) < THROTTLED_LATELY;
                }
                self.paused_until = self.paused_until.max(now.plus(*pause));
            }
            CallOutcome::Interrupted => {}
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.failures_in_row >= DOWN_AFTER_FAILURES
    }

    /// Whether it has asked for one pause after the other lately: then its places say nothing of what it bears.
    pub(super) fn is_throttling(&self, now: Mono) -> bool {
        self.pauses_again && now.since(self.paused_until) < THROTTLED_LATELY
    }

    pub(super) fn throttled_for(&self, now: Mono) -> Duration {
        self.paused_until.since(now)
    }

    pub(super) fn stats(&self, now: Mono) -> TargetStats {
        TargetStats {
            name: self.name.clone(),
            inflight: u64::from(self.occupied),
            limit: u64::from(self.limit()),
            places: u64::from(self.places()),
            throttled_for: self.throttled_for(now),
        }
    }
}
