//! The model of a target's breaker and ramp: when calls may go out, told once more in the plainest words.
//!
//! Owns the expected states. Must never choose a pause: the pond names it, and it is judged.

use super::{Model, Taker};
use millpond_core::breaker::BreakerState;
use millpond_core::identity::Receipt;
use millpond_core::settings::{BreakerSettings, TargetSettings};
use millpond_core::stats::TargetStats;
use millpond_core::time::Mono;
use std::time::Duration;

/// A target without a call for so long is cold.
const COLD: Duration = Duration::from_secs(30);
/// The ramp after a breaker has closed, where the settings say nothing.
const RECOVERED: Duration = Duration::from_secs(10);

/// What the end of a call says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It is up.
    Up,
    /// It is down.
    Down,
    /// Nothing.
    Nothing,
}

/// What is expected of a target's breaker and of its ramp.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// While it is open: the earliest and the latest time of the next probe.
    open: Option<(Mono, Mono)>,
    /// While it is half-open: how many probes are under way, and answers less failures.
    probing: Option<(i32, i32)>,
    /// When this round's first probe began.
    probed: Option<Mono>,
    /// When it opened last.
    opened: Option<Mono>,
    rounds: u32,
    in_row: u32,
    /// Ends of calls in this window, and whether each failed.
    window: Vec<(Mono, bool)>,
    ramp: Option<(Mono, Duration)>,
    /// The ramp lets no call begin before.
    paced_until: Option<Mono>,
    used: Option<Mono>,
}

impl Gate {
    /// Where the breaker stands.
    pub fn state(&self) -> BreakerState {
        match (self.open, self.probing) {
            (Some(_), _) => BreakerState::Open,
            (None, Some(_)) => BreakerState::HalfOpen,
            (None, None) => BreakerState::Closed,
        }
    }

    /// Whether a call may begin; `surely`: it may, whatever pause the pond has chosen.
    pub fn lets_through(&self, now: Mono, surely: bool) -> bool {
        let is_due = self.open.is_none_or(|(first, last)| now >= if surely { last } else { first });
        let has_room = self.probing.is_none_or(|(under_way, score)| under_way <= score);
        is_due && has_room && self.paced_until.is_none_or(|gate| now >= gate)
    }

    fn pause(&self, settings: &BreakerSettings) -> Duration {
        (1..self.rounds).fold(settings.probe_after, |pause, _| (pause * 2).min(settings.probe_max))
    }

    fn begin_ramp(&mut self, length: Duration, now: Mono) {
        self.ramp = (!length.is_zero()).then_some((now, length));
    }

    /// Tenths of the limit that the ramp leaves.
    fn tenths(&self, now: Mono) -> Option<u32> {
        let (begun, length) = self.ramp?;
        let quarter = length.as_micros() / 4;
        let gone = now.since(begun).as_micros();
        (gone < length.as_micros()).then(|| match gone {
            _ if gone >= quarter * 3 => 8,
            _ if gone >= quarter * 2 => 4,
            _ if gone >= quarter => 2,
            _ => 1,
        })
    }

    /// A call begins while `occupied` others occupy the target.
    pub(super) fn start(&mut self, settings: &TargetSettings, occupied: usize, now: Mono) {
        if let Some((first, _)) = self.open.take() {
            assert!(now >= first, "a probe too early");
            (self.probed, self.probing) = (Some(now), Some((0, 0)));
        }
        if let Some((under_way, score)) = &mut self.probing {
            assert!(*under_way <= *score, "more probes than answers");
            *under_way += 1;
        }
        let is_cold = self.used.is_none_or(|used| occupied == 0 && now.since(used) >= COLD);
        if is_cold {
            self.begin_ramp(settings.ramp.unwrap_or_default(), now);
        }
        self.used = Some(now);
        self.paced_until = None;
        if let (Some(tenths), Some((begun, length)), Some(rate)) =
            (self.tenths(now), self.ramp, settings.rate)
        {
            let interval = rate.per / rate.events;
            let full = begun.plus(length).max(now.plus(interval));
            self.paced_until = Some(now.plus(interval * 10 / tenths).min(full));
        }
    }

    /// Counts the end of a call that began at `started`. Returns whether it was a failed probe, and then how long its
    /// message must stay away at least.
    fn end(
        &mut self,
        settings: &TargetSettings,
        call: (Mono, usize),
        sign: Sign,
        now: Mono,
    ) -> Option<Duration> {
        let (started, inflight) = call;
        self.used = Some(now);
        let breaker = settings.breaker?;
        let was_probe =
            self.state() != BreakerState::Closed && self.probed.is_some_and(|probed| started >= probed);
        if self.opened.is_none_or(|opened| started > opened) {
            match sign {
                Sign::Up => self.in_row = 0,
                Sign::Down => self.in_row += 1,
                Sign::Nothing => {}
            }
            if self.probing.is_some() {
                self.end_probe(settings, &breaker, sign, now);
            } else if sign != Sign::Nothing && self.is_broken(&breaker, inflight, sign, now) {
                self.open(&breaker, now);
            }
        }
        (was_probe && sign == Sign::Down).then(|| self.pause(&breaker) * 4)
    }

    fn is_broken(&mut self, breaker: &BreakerSettings, inflight: usize, sign: Sign, now: Mono) -> bool {
        if self.window.first().is_some_and(|(first, _)| now.since(*first) >= breaker.window) {
            self.window.clear();
        }
        self.window.push((now, sign == Sign::Down));
        let wanted = (breaker.failures as usize).max(inflight);
        let failed = self.window.iter().filter(|(_, failed)| *failed).count() as f64;
        let ended = self.window.len();
        let share = ended >= wanted * 2 && failed >= breaker.failure_rate * ended as f64;
        sign == Sign::Down && (self.in_row as usize >= wanted || share)
    }

    fn end_probe(&mut self, settings: &TargetSettings, breaker: &BreakerSettings, sign: Sign, now: Mono) {
        let Some((under_way, score)) = &mut self.probing else { return };
        *under_way -= 1;
        *score += match sign {
            Sign::Up => 1,
            Sign::Down => -1,
            Sign::Nothing => 0,
        };
        match *score {
            -1 => self.open(breaker, now),
            2 => {
                let (opened, used, paced_until) = (self.opened, self.used, self.paced_until);
                *self = Self { opened, paced_until, used, ..Self::default() };
                self.begin_ramp(settings.ramp.unwrap_or(RECOVERED), now);
            }
            _ => {}
        }
    }

    fn open(&mut self, breaker: &BreakerSettings, now: Mono) {
        self.rounds += 1;
        let pause = self.pause(breaker);
        self.open = Some((now.plus(pause / 2), now.plus(pause)));
        (self.probing, self.opened) = (None, Some(now));
    }

    fn reset(&mut self, settings: &TargetSettings, now: Mono) {
        let was = self.state();
        let (used, ramp, paced_until) = (self.used, self.ramp, self.paced_until);
        *self = Self { opened: Some(now), ramp, paced_until, used, ..Self::default() };
        if was != BreakerState::Closed {
            self.begin_ramp(settings.ramp.unwrap_or(RECOVERED), now);
        }
    }
}

impl Model {
    /// A call has left its place at its target, which says so much of it. Returns how long its message must stay away at
    /// least, if it was a failed probe. `None`, too: it has no place to leave.
    pub fn leave(&mut self, receipt: Receipt, sign: Sign, now: Mono) -> Option<Duration> {
        let hold = self.messages.get(&receipt.seq.0)?.hold.filter(|_| self.holds(receipt))?;
        let Taker::Target(target) = hold.taker else { return None };
        if receipt.epoch != self.epoch {
            return None;
        }
        let inflight = self.occupied(target);
        let target = &mut self.targets[target];
        let before = target.gate.state();
        let failed = target.gate.end(&target.settings, (hold.started.1, inflight), sign, now);
        let after = target.gate.state();
        if failed.is_some() {
            self.mark("a probe fails");
        }
        match (before, after) {
            (BreakerState::Closed, BreakerState::Open) => self.mark("a breaker opens"),
            (BreakerState::HalfOpen, BreakerState::Closed) => self.mark("a breaker closes"),
            (BreakerState::HalfOpen, BreakerState::HalfOpen) if failed.is_some() => {
                self.mark("a probe fails after one that was answered");
            }
            _ => {}
        }
        failed
    }

    /// An operator closes a breaker.
    pub fn reset_breaker(&mut self, target: usize, now: Mono) {
        let target = &mut self.targets[target];
        if target.gate.state() != BreakerState::Closed {
            target.gate.reset(&target.settings, now);
            self.mark("an operator closes a breaker");
        } else if target.settings.breaker.is_some() {
            target.gate.reset(&target.settings, now);
        }
    }

    /// Compares what the pond says of a target, and takes over the pause that it has chosen.
    ///
    /// # Panics
    /// If it is not what is expected.
    pub fn compare_gate(&mut self, target: usize, stats: &TargetStats, now: Mono) {
        let gate = &mut self.targets[target].gate;
        assert_eq!(stats.state, gate.state(), "{stats:?} {gate:?}");
        if let Some((first, last)) = &mut gate.open {
            let next =
                now.plus(stats.next_probe.unwrap_or_else(|| panic!("{stats:?}: when is the next probe?")));
            assert!(next >= *first && (next <= *last || next == now), "{next:?} {gate:?}");
            if next > now {
                (*first, *last) = (next, next);
            }
        } else {
            assert_eq!(stats.next_probe, None, "{stats:?}");
        }
        let part = gate.tenths(now).map(|tenths| (stats.limit * u64::from(tenths) / 10).max(1));
        assert_eq!(stats.ramp_limit, part, "{stats:?} {gate:?}");
        if part.is_some_and(|part| part < stats.limit) {
            assert!(stats.places <= part.unwrap_or(0), "{stats:?}");
            self.mark("a ramp leaves a target less than its limit");
        }
    }
}
