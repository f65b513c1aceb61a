//! One push target: how many calls occupy it, and when it may get the next one.
//!
//! Owns the hard cap, the limit below it, the pace, the breaker and the ramp. Must never choose a message.

use super::queue::Told;
use crate::breaker::{self, Breaker, BreakerState, Change, Sign};
use crate::command::CallOutcome;
use crate::limit::{Ended, Ending, Limiter};
use crate::name::Name;
use crate::ramp::Ramp;
use crate::rate::{Pacer, Rate};
use crate::settings::{RAMP_RECOVERED, TargetSettings};
use crate::stats::{CallEnding, TargetStats};
use crate::time::{Mono, Now, Wall};
use std::collections::BTreeSet;
use std::time::Duration;

/// A target that asks for a pause again within so long of the end of the one before lives by its pauses; one pause alone
/// is over when it is over. As long as the throughput of busy workers is remembered.
const THROTTLED_LATELY: Duration = Duration::from_secs(30);
/// A target that had no call for so long is cold: the next ones begin its ramp, if it has one.
const COLD_AFTER: Duration = Duration::from_secs(30);

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
    breaker: Option<Box<Breaker>>,
    /// How it gets its limit back, or gets it at first.
    ramp: Option<Ramp>,
    /// Before then, the ramp lets no call begin.
    ramp_next: Mono,
    /// When a call of this boot began or ended last.
    used: Option<Mono>,
    /// When it was made.
    since: Mono,
    failures_in_row: u32,
    /// Calls that have ended, by [`CallEnding`].
    calls: [u64; CallEnding::ALL.len()],
    /// The timer that is set for it.
    pub(super) timer: Option<Mono>,
}

impl Target {
    pub(super) fn new(name: Name, settings: TargetSettings, now: Mono) -> Self {
        // A burst of one: in no window of any length are more calls started than rate × window + 1.
        let pacer = settings.rate.map(|rate| Pacer::new(rate, 1));
        let limiter = settings
            .adaptive
            .map(|adaptive| Box::new(Limiter::new(settings.concurrency, settings.timeout, adaptive)));
        let breaker = settings.breaker.map(|breaker| Box::new(Breaker::new(breaker)));
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
            breaker,
            ramp: None,
            ramp_next: Mono(i64::MIN),
            used: None,
            since: now,
            failures_in_row: 0,
            calls: [0; CallEnding::ALL.len()],
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

    pub(super) fn has_room(&self, now: Mono) -> bool {
        self.occupied < self.places(now) && self.breaker.as_ref().is_none_or(|breaker| breaker.has_room())
    }

    /// Calls that may occupy it now: the limit, or what a probe of it or the ramp leaves of it.
    fn places(&self, now: Mono) -> u32 {
        let places = self.places_without_ramp();
        self.ramp_limit(now).map_or(places, |part| part.min(places))
    }

    fn places_without_ramp(&self) -> u32 {
        self.limiter.as_ref().map_or(self.settings.concurrency, |limiter| limiter.places())
    }

    /// What the ramp leaves of the limit, while there is one.
    fn ramp_limit(&self, now: Mono) -> Option<u32> {
        self.ramp?.part_of(self.limit(), now)
    }

    /// When there is room again without anything else having happened.
    pub(super) fn room_grows_at(&self, now: Mono) -> Option<Mono> {
        let waits_for_ramp = self.working > 0 && self.occupied < self.places_without_ramp();
        self.ramp.filter(|_| waits_for_ramp)?.grows_at(now)
    }

    /// Whether it had nothing to do for so long that it must be taken for cold; always so after a start.
    fn is_cold(&self, now: Mono) -> bool {
        self.used.is_none_or(|used| self.occupied == 0 && now.since(used) >= COLD_AFTER)
    }

    /// How much later the ramp, or the one that the next call begins, makes what waits behind it begin.
    pub(super) fn ramp_loss(&self, now: Mono) -> Duration {
        if self.settings.concurrency == 1 && self.pacer.is_none() {
            // One place has no part.
            return Duration::ZERO;
        }
        let next = || Ramp::begin(self.settings.ramp.unwrap_or_default(), now).filter(|_| self.is_cold(now));
        self.ramp.filter(|ramp| ramp.ends() > now).or_else(next).map_or(Duration::ZERO, |ramp| ramp.lost(now))
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

    /// The earliest time for the next call, as far as pace, pause, ramp and breaker go.
    pub(super) fn ready_at(&self) -> Mono {
        let paced = self.pacer.as_ref().map(|pacer| pacer.ready_at().max(self.ramp_next));
        let probed = self.breaker.as_ref().map(|breaker| breaker.ready_at());
        [paced, probed].into_iter().flatten().fold(self.paused_until, Mono::max)
    }

    /// Counts a call that starts at `now`, which is not before [`Target::ready_at`]. Returns whether it is the first that
    /// tries a target whose breaker is open.
    pub(super) fn start(&mut self, now: Now) -> bool {
        assert!(self.has_room(now.mono), "target {} is over its cap", self.name);
        if self.is_cold(now.mono) {
            self.ramp = Ramp::begin(self.settings.ramp.unwrap_or_default(), now.mono);
        }
        self.ramp = self.ramp.filter(|ramp| ramp.ends() > now.mono);
        self.occupied += 1;
        self.used = Some(now.mono);
        let admitted = self.pacer.as_mut().is_none_or(|pacer| pacer.admit(now.mono));
        assert!(admitted, "target {} is called faster than its rate", self.name);
        if let (Some(ramp), Some(rate)) = (self.ramp, self.settings.rate) {
            self.ramp_next = ramp.next_call(rate.per / rate.events, now.mono);
        }
        self.called = self.pacer.is_some().then_some(now.wall);
        self.unnoted = self.called.is_some();
        self.breaker.as_mut().is_some_and(|breaker| breaker.start(now.mono) && breaker.is_first_round())
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

    /// Counts how a call ended, and learns when the target wants the next one.
    pub(super) fn note_outcome(&mut self, outcome: &CallOutcome, now: Mono) {
        match sign(outcome) {
            Sign::Answered => self.failures_in_row = 0,
            Sign::Failed => self.failures_in_row = self.failures_in_row.saturating_add(1),
            Sign::Nothing => {}
        }
        if let Some(ending) = counted(outcome) {
            self.calls[ending.index()] += 1;
        }
        if let CallOutcome::Throttled { pause, .. } = outcome {
            // Several calls may tell of the same pause.
            if now >= self.paused_until {
                self.pauses_again = now.since(self.paused_until) < THROTTLED_LATELY;
            }
            self.paused_until = self.paused_until.max(now.plus(*pause));
        }
    }

    /// A call of this boot has left its place at `now`: tells the breaker, and begins the ramp of one that has closed.
    /// `outcome`: what was said of its end, if anything was.
    pub(super) fn leave(
        &mut self,
        outcome: Option<&CallOutcome>,
        (started, inflight): (Mono, u32),
        chance: impl FnOnce() -> f64,
        now: Mono,
    ) -> breaker::Told {
        self.used = Some(now);
        let Some(breaker) = &mut self.breaker else {
            return breaker::Told { change: Change::None, failed_probe: None };
        };
        let sign = outcome.map_or(Sign::Nothing, sign);
        let told = breaker.ended(breaker::Ended { started, sign, inflight }, chance, now);
        if told.change == Change::Closed {
            self.recover(now);
        }
        told
    }

    /// Closes the breaker by hand. Returns whether that changes anything.
    pub(super) fn reset(&mut self, now: Mono) -> bool {
        let changes = self.breaker.as_mut().is_some_and(|breaker| breaker.reset(now));
        self.failures_in_row = 0;
        if changes {
            self.recover(now);
        }
        changes
    }

    fn recover(&mut self, now: Mono) {
        self.ramp = Ramp::begin(self.settings.ramp.unwrap_or(RAMP_RECOVERED), now);
    }

    /// Where its breaker stands.
    pub(super) fn state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state())
    }

    pub(super) fn failures_in_row(&self) -> u32 {
        self.failures_in_row
    }

    /// Whether it has asked for one pause after the other lately: then its places say nothing of what it bears.
    pub(super) fn is_throttling(&self, now: Mono) -> bool {
        self.pauses_again && now.since(self.paused_until) < THROTTLED_LATELY
    }

    pub(super) fn throttled_for(&self, now: Mono) -> Duration {
        self.paused_until.since(now)
    }

    pub(super) fn stats(&self, queues: Vec<Name>, now: Mono) -> TargetStats {
        let breaker = self.breaker.as_ref();
        let since = breaker.and_then(|breaker| breaker.since()).unwrap_or(self.since);
        let next_probe = breaker.and_then(|breaker| breaker.next_probe());
        TargetStats {
            name: self.name.clone(),
            inflight: u64::from(self.occupied),
            limit: u64::from(self.limit()),
            places: u64::from(self.places(now)),
            throttled_for: self.throttled_for(now),
            concurrency: u64::from(self.settings.concurrency),
            adaptive: self.limiter.is_some(),
            rate_per_second: self.settings.rate.map(Rate::per_second),
            state: self.state(),
            state_for: now.since(since),
            next_probe: next_probe.map(|at| at.since(now)),
            ramp_limit: self.ramp_limit(now).map(u64::from),
            failures_in_row: u64::from(self.failures_in_row),
            calls: self.calls,
            queues,
        }
    }
}

/// What the end of a call says of the target. An answer that speaks of the message, or of what we may do, comes from one that
/// is up.
fn sign(outcome: &CallOutcome) -> Sign {
    match outcome {
        CallOutcome::Failed { failure, .. } | CallOutcome::Dead { failure } if failure.is_internal() => {
            Sign::Nothing
        }
        CallOutcome::Succeeded { .. } | CallOutcome::Dead { .. } => Sign::Answered,
        CallOutcome::Failed { failure, .. } => match failure.http_status {
            None | Some(408 | 500..) => Sign::Failed,
            Some(_) => Sign::Answered,
        },
        CallOutcome::Throttled { .. } | CallOutcome::Interrupted => Sign::Nothing,
    }
}

fn counted(outcome: &CallOutcome) -> Option<CallEnding> {
    match outcome {
        CallOutcome::Succeeded { .. } => Some(CallEnding::Succeeded),
        CallOutcome::Failed { timed_out: true, .. } => Some(CallEnding::TimedOut),
        CallOutcome::Failed { .. } => Some(CallEnding::Failed),
        CallOutcome::Throttled { .. } => Some(CallEnding::Throttled),
        CallOutcome::Dead { .. } => Some(CallEnding::Rejected),
        CallOutcome::Interrupted => None,
    }
}
