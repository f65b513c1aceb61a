//! The idempotency keys that are remembered, and their bound.
//!
//! Owns which keys are forgotten before their time: those of finished messages, oldest first. Must never forget the key
//! of a message whose life is not over.

use super::Pond;
use super::slot::Slot;
use crate::identity::Seq;
use crate::message::{IdempotencyKey, Message, QueueNumber};
use crate::time::Wall;
use std::collections::BTreeSet;

/// Most keys forgotten in one step, so that a bound that was lowered holds up nothing.
const FORGET_STEP: usize = 1024;

/// The keys of one queue.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// How many are remembered.
    pub(super) known: u64,
    /// Finished messages that have one, in the order of their ends.
    finished: BTreeSet<(Wall, Seq)>,
}

impl Keys {
    fn place(message: &Message) -> Option<(Wall, Seq)> {
        let counts = message.phase.is_terminal() && message.key.is_some();
        counts.then(|| (message.finished.unwrap_or(message.accepted), message.seq))
    }

    /// A message stands somewhere now.
    pub(super) fn enter(&mut self, message: &Message) {
        self.finished.extend(Self::place(message));
    }

    /// A message does not stand there any more.
    pub(super) fn leave(&mut self, message: &Message) {
        if let Some(place) = Self::place(message) {
            self.finished.remove(&place);
        }
    }

    pub(super) fn assert_consistent(&self, known: u64, finished: usize) {
        assert_eq!((self.known, self.finished.len()), (known, finished), "keys");
    }
}

impl Pond {
    /// Remembers the key of a message, if it has one. `false`: it belongs to a later message. In the log that can be: a
    /// key may have been used again after it was forgotten.
    pub(super) fn remember_key(
        &mut self,
        number: QueueNumber,
        key: Option<IdempotencyKey>,
        seq: Seq,
    ) -> bool {
        let Some(key) = key else { return true };
        let place = (number, key.key);
        match self.keys.get(&place).copied() {
            Some(later) if later > seq => return false,
            Some(earlier) => self.strip_of_key(earlier),
            None => self.queue_mut(number).keys.known += 1,
        }
        self.keys.insert(place, seq);
        true
    }

    /// A message keeps its status, but has no key any more.
    fn strip_of_key(&mut self, seq: Seq) {
        let message = &mut self.slots.get_mut(seq).expect("what a key leads to is kept").message;
        self.queues[message.queue.0 as usize].keys.leave(message);
        message.key = None;
    }

    /// Forgets the key of a message of which nothing is kept any more.
    pub(super) fn forget_key(&mut self, message: &Message) {
        if let Some(key) = message.key {
            self.keys.remove(&(message.queue, key.key));
            self.queue_mut(message.queue).keys.known -= 1;
        }
    }

    /// Whether so many more keys can be remembered, those of finished messages forgotten where needed, once so many of
    /// unfinished ones are gone.
    pub(super) fn has_room_for_keys(&self, number: QueueNumber, more: u64, gone: u64) -> bool {
        let queue = self.queue_ref(number);
        let unfinished = queue.keys.known.saturating_sub(queue.keys.finished.len() as u64);
        more == 0 || unfinished.saturating_sub(gone).saturating_add(more) <= queue.settings.max_keys
    }

    /// Makes room for one more key.
    pub(super) fn make_room_for_key(&mut self, number: QueueNumber) {
        let most = self.queue_ref(number).settings.max_keys.saturating_sub(1);
        self.forget_oldest_key(number, most);
    }

    /// The bound may have been lowered.
    pub(super) fn note_keys(&mut self, number: QueueNumber) {
        let queue = self.queue_ref(number);
        if queue.keys.known > queue.settings.max_keys {
            self.forgetting.insert(number);
        }
    }

    /// Brings the keys of one queue down towards their bound.
    pub(super) fn keys_step(&mut self) {
        let Some(number) = self.forgetting.pop_first() else { return };
        let most = self.queue_ref(number).settings.max_keys;
        for _ in 0..FORGET_STEP {
            if !self.forget_oldest_key(number, most) {
                return;
            }
        }
        self.forgetting.insert(number);
    }

    /// Forgets the key of the message that finished first, if there are more than `most`; whether it did.
    pub(super) fn forget_oldest_key(&mut self, number: QueueNumber, most: u64) -> bool {
        let keys = &self.queue_ref(number).keys;
        let Some(&(_, seq)) = keys.finished.first().filter(|_| keys.known > most) else { return false };
        let message = self.slot(seq).message.clone();
        self.forget_key(&message);
        self.strip_of_key(seq);
        self.queue_mut(number).totals.keys_forgotten += 1;
        true
    }

    /// Brings the keys of every queue down to their bound after a restart: the log does not tell which were forgotten.
    pub(super) fn bound_keys(&mut self) {
        for index in 0..self.queues.len() {
            let (number, most) = (self.queues[index].number, self.queues[index].settings.max_keys);
            while self.forget_oldest_key(number, most) {}
        }
    }

    /// Checks that the keys agree with the messages.
    pub(super) fn assert_keys(&self) {
        for queue in &self.queues {
            let known = self.keys.range((queue.number, 0)..=(queue.number, u128::MAX)).count() as u64;
            let keyed = |slot: &Slot| slot.message.queue == queue.number && slot.message.key.is_some();
            let keyed = self.slots.iter().filter(|(_, slot)| keyed(slot) && slot.message.phase.is_terminal());
            queue.keys.assert_consistent(known, keyed.count());
        }
    }
}
