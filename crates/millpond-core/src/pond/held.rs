//! Why a queue hands out nothing, and who must hear of it.
//!
//! Owns the pause after a burst of deaths, and the notices. Must never hold a queue for what an operator cannot see.

use super::Pond;
use super::target::Target;
use crate::breaker::BreakerState;
use crate::command::{Effect, StorageState};
use crate::message::{DeadReason, QueueNumber};
use crate::notice::Notice;
use crate::stats::Held;
use crate::time::Now;

/// What is remembered of a queue's deaths.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// Messages given up in a row. Not kept across a restart: the pause that comes of it is.
    in_row: u32,
    /// The queue was paused for them, and nobody has resumed it since.
    pub(super) burst: bool,
    /// It was said that there is no room for more.
    full_told: bool,
}

impl Deaths {
    /// A message was done.
    pub(super) fn success(&mut self) {
        self.in_row = 0;
    }

    /// An operator has decided whether the queue is paused.
    pub(super) fn decided(&mut self) {
        (self.in_row, self.burst) = (0, false);
    }
}

impl Pond {
    /// Why a queue hands out nothing, whatever waits in it.
    pub(super) fn held(&self, number: QueueNumber) -> Option<Held> {
        let queue = self.queue_ref(number);
        if queue.paused {
            Some(if queue.deaths.burst { Held::DeadBurst } else { Held::Paused })
        } else if queue.dead_letters_are_full() {
            Some(Held::DeadLettersFull)
        } else if queue.waits_for_tellers() {
            Some(Held::CallbacksFull)
        } else if self.storage == StorageState::SettleOnly {
            Some(Held::StorageFull)
        } else if queue.target.is_some_and(|target| self.targets[target].state() != BreakerState::Closed) {
            Some(Held::BreakerOpen)
        } else {
            None
        }
    }

    /// What holds a queue may have come or gone: meanwhile nothing is learned about those who do the work, and what was
    /// promised before teaches nothing.
    pub(super) fn note_hold(&mut self, number: QueueNumber, now: Now) {
        let held = self.held(number);
        let queue = self.queue_mut(number);
        if std::mem::replace(&mut queue.held, held) != held {
            queue.calibration.interrupt(now.mono);
            queue.busy.note(held.is_none() && queue.ready.has_eligible(), 0, now.mono);
        }
    }

    /// A target's breaker has opened, or closed: so have the ways of its queues.
    pub(super) fn note_breaker(&mut self, target: usize, was: BreakerState, by_hand: bool, now: Now) {
        let Target { name, .. } = &self.targets[target];
        let (name, is) = (name.clone(), self.targets[target].state());
        if (was == BreakerState::Closed) == (is == BreakerState::Closed) {
            return;
        }
        let notice = if is == BreakerState::Closed {
            Notice::BreakerClosed { target: name, by_hand }
        } else {
            Notice::BreakerOpen { target: name, failures: self.targets[target].failures_in_row() }
        };
        self.effects.push(Effect::Notice(notice));
        for index in 0..self.queues.len() {
            if self.queues[index].target == Some(target) {
                self.note_hold(self.queues[index].number, now);
            }
        }
    }

    /// A message has become a dead letter; its record is written.
    pub(super) fn note_death(&mut self, number: QueueNumber, reason: DeadReason, now: Now) {
        let queue = self.queue_mut(number);
        // Work that nobody came to says nothing about those who do it.
        if reason != DeadReason::Expired {
            queue.deaths.in_row = queue.deaths.in_row.saturating_add(1);
        }
        let (deaths, most) = (queue.deaths.in_row, queue.settings.dead_burst);
        if reason != DeadReason::Expired && most > 0 && deaths >= most && !queue.paused {
            queue.deaths.burst = true;
            self.set_paused(number, true, now);
            let queue = self.queue_ref(number);
            let (queue, owner) = (queue.name.clone(), queue.settings.dead_letter.owner.clone());
            self.effects.push(Effect::Notice(Notice::DeadBurst { queue, deaths, owner }));
        }
        self.tell_dead_letters(number, now);
    }

    /// The number of dead letters has changed, or how many are kept.
    pub(super) fn note_dead_letters(&mut self, number: QueueNumber, now: Now) {
        self.expire_overdue(number);
        self.tell_dead_letters(number, now);
    }

    fn tell_dead_letters(&mut self, number: QueueNumber, now: Now) {
        let queue = self.queue_mut(number);
        let (kept, max) = (queue.dead.len() as u64, queue.settings.dead_letter.max_messages);
        if kept < max - max / 10 {
            // Only clearly below is it over: at the edge, every replay and every death would be an episode.
            queue.deaths.full_told = false;
        } else if kept >= max && !queue.deaths.full_told && !queue.deleted {
            queue.deaths.full_told = true;
            let (queue, owner) = (queue.name.clone(), queue.settings.dead_letter.owner.clone());
            self.effects.push(Effect::Notice(Notice::DeadLettersFull { queue, kept, owner }));
        }
        if self.queue_ref(number).dead_letters_are_full() {
            // A replay that waited for room waits for it no longer.
            self.room_may_be_free(number);
        }
        self.note_hold(number, now);
    }
}
