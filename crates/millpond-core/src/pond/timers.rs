//! Everything that happens by the passing of time, in the order in which it is due.
//!
//! Owns the order only. Must never decide what a timer means.

use crate::command::RequestId;
use crate::identity::Seq;
use crate::time::Mono;
use std::collections::BTreeSet;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The message's phase ends: its delay, its backoff, its lease, or the retention of its end.
    Phase(Seq),
    /// The request has waited long enough.
    Waiter(RequestId),
    /// The target may take calls again (its pace or its pause).
    Target(usize),
    /// A call that timed out stops occupying the target; the number tells apart those of one moment.
    Hold(usize, u64),
    /// The queue's replay may go on.
    Replay(usize),
}

/// The pending timers.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Mono, Timer)>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Mono, timer: Timer) {
        self.due.insert((at, timer));
    }

    pub(super) fn clear(&mut self, at: Mono, timer: Timer) {
        self.due.remove(&(at, timer));
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Mono> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Takes one that is due at `now`.
    pub(super) fn take_due(&mut self, now: Mono) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, timer)| timer)
    }

    pub(super) fn contains(&self, at: Mono, timer: Timer) -> bool {
        self.due.contains(&(at, timer))
    }
}
