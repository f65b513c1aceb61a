//! Push targets and the driver that calls them: good, failing, throttling, too slow, silent.
//!
//! Owns the calls. Must never report a call that was not made.

use super::draw::millis;
use super::replies::Hold;
use super::world::{Task, World};
use millpond_core::command::{CallOutcome, Input, Leased, TargetNumber};
use millpond_core::identity::Receipt;
use millpond_core::message::Failure;
use millpond_engine::content::Stored;
use millpond_testkit::trail::{Answer, Event, Said, Span, Word};
use std::time::Duration;

/// How long an outage lasts; there is one in three such times.
const OUTAGE_MICROS: i64 = 7_000_000;
/// Failures in a row after which nothing is promised.
const DOWN_AFTER: u32 = 10;

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) target: usize,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    Succeeded,
    Failed,
    TimedOut,
    Throttled(Duration),
    Dead,
    Released,
}

impl World {
    pub(super) fn call(&mut self, target: TargetNumber, leased: &Leased, stored: &Stored) {
        let receipt = leased.receipt;
        let Some(queue) = self.queues.iter().position(|queue| queue.drawn.name == leased.queue) else {
            self.fail(format!("a call for {}, which is no queue", leased.queue))
        };
        self.check_target(target.0, receipt);
        let payload = self.handed_out(queue, leased, stored, Some(target));
        self.calls.insert(receipt, Call { target: target.0 });
        let (_, settings) = &self.plan.targets[target.0];
        let timeout = settings.timeout;
        let bad = !self.healing && self.likely(self.plan.habits.target_bad);
        let quick = timeout.mul_f64(self.chance.f64() * 0.5).min(Duration::from_millis(500));
        let (after, end) = if payload.is_none() {
            (Duration::ZERO, CallEnd::Released)
        } else if self.is_out() {
            (quick, CallEnd::Failed)
        } else if self.healing || !bad {
            (quick, CallEnd::Succeeded)
        } else {
            match self.chance.u32(..10) {
                0..3 => (quick, CallEnd::Failed),
                3 | 4 => (timeout, CallEnd::TimedOut),
                5 => (quick, CallEnd::Throttled(millis(&mut self.chance, 100, 3_000))),
                6 => (quick, CallEnd::Dead),
                7 => (quick, CallEnd::Released),
                // Longer than its lease, or for ever.
                8 => (timeout + Duration::from_secs(3), CallEnd::Succeeded),
                _ => return,
            }
        };
        self.after(after, Task::CallEnds(receipt, self.boot, end));
    }

    /// Whether targets answer nothing but errors now.
    fn is_out(&self) -> bool {
        self.plan.outages && !self.healing && (self.now.0 / OUTAGE_MICROS) % 3 == 0
    }

    fn count_failure(&mut self, target: usize, end: CallEnd) {
        let failures = self.known.failures.entry(target).or_default();
        match end {
            CallEnd::Failed | CallEnd::TimedOut => *failures += 1,
            CallEnd::Succeeded | CallEnd::Dead => *failures = 0,
            CallEnd::Throttled(_) | CallEnd::Released => {}
        }
        if *failures == DOWN_AFTER {
            self.reach("seen: a target that is down");
        }
    }

    /// The cap, the pace, at every call.
    fn check_target(&mut self, target: usize, receipt: Receipt) {
        let (now, (_, settings)) = (self.now, &self.plan.targets[target]);
        self.known.holds.retain(|hold| hold.until > now);
        let held = self.known.holds.iter().filter(|hold| hold.target == target).count();
        let under_way = self.calls.values().filter(|call| call.target == target).count();
        let cap = settings.concurrency as usize;
        let is_lost = |of: &Receipt| self.known.held.get(of).is_none_or(|(_, until)| *until <= now);
        let lost = self.calls.iter().filter(|(of, call)| call.target == target && is_lost(of)).count();
        if under_way.saturating_sub(lost) + held >= cap {
            self.fail(format!(
                "target {target} has {under_way} calls and {held} holds of {cap}, and {receipt:?} goes out"
            ));
        }
        if let (Some(rate), Some(last)) = (settings.rate, self.known.last_call.get(&target)) {
            let interval = rate.per / rate.events;
            if now.since(*last) < interval.saturating_sub(Duration::from_micros(1)) {
                self.fail(format!("target {target} was called at {}, and {receipt:?} goes out", last.0));
            }
        }
        self.known.last_call.insert(target, now);
    }

    pub(super) fn call_ends(&mut self, receipt: Receipt, boot: u32, end: CallEnd) {
        if boot != self.boot || self.host.is_none() {
            return;
        }
        let Some(call) = self.calls.remove(&receipt) else { return };
        let held = self.known.held.remove(&receipt).is_some();
        let failure = |text: &str| Failure::new("status", text, Some(500));
        let (outcome, said) = match end {
            CallEnd::Succeeded => (CallOutcome::Succeeded { result: None }, Said::Complete),
            CallEnd::Failed => {
                (CallOutcome::Failed { failure: failure("no"), timed_out: false }, Said::Retry)
            }
            CallEnd::TimedOut => {
                (CallOutcome::Failed { failure: failure("too slow"), timed_out: true }, Said::Retry)
            }
            CallEnd::Throttled(pause) => {
                (CallOutcome::Throttled { pause, failure: failure("not now") }, Said::Release)
            }
            CallEnd::Dead => (CallOutcome::Dead { failure: failure("never") }, Said::Dead),
            CallEnd::Released => (CallOutcome::Interrupted, Said::Release),
        };
        if end == CallEnd::TimedOut && held {
            let occupied_for = self.plan.targets[call.target].1.hold();
            let (target, begun) = (call.target, self.now);
            self.known.holds.push(Hold { target, begun, until: begun.plus(occupied_for) });
        }
        self.count_failure(call.target, end);
        let word = Word {
            id: receipt.seq.0,
            hand_out: self.numbers.of(receipt),
            said,
            delay: None,
            given_up: matches!(end, CallEnd::TimedOut | CallEnd::Released),
            span: Span { sent: self.now.0, ended: self.now.0 },
            // Nobody answers: it is known by its consequences only.
            answer: Answer::Unknown,
        };
        self.trail.push(Event::Word(word));
        self.tell(Input::CallEnded { receipt, outcome });
        if self.likely(20) {
            self.plan_look(receipt.seq);
        }
    }
}
