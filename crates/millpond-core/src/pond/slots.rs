//! Where every message is kept: the few that something happens to as they are, the many that wait in compact form.
//!
//! Owns when a message is laid to rest and woken. To everybody else it is a map from number to slot. Must never
//! change what is kept.

use super::awake::Awake;
use super::order::merged;
use super::resting::Resting;
use super::slot::Slot;
use crate::command::OpNumber;
use crate::identity::Seq;
use crate::message::{Message, QueueNumber};
use crate::time::{Mono, Now};
use std::collections::VecDeque;
use std::ops::{Bound, Deref};

/// So many of the latest messages stay awake unless told otherwise: work that is done as it comes never rests.
const AWAKE_MAX: usize = 4096;

/// A message to look at.
#[derive(Debug)]
pub(super) enum View<'slots> {
    /// It is kept like this.
    Awake(&'slots Slot),
    /// It rests; this is what it will wake as.
    Resting(Box<Slot>),
}

impl View<'_> {
    /// A copy of the message itself.
    pub(super) fn into_message(self) -> Message {
        match self {
            Self::Awake(slot) => slot.message.clone(),
            Self::Resting(slot) => slot.message,
        }
    }
}

impl Deref for View<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Self::Awake(slot) => slot,
            Self::Resting(slot) => slot,
        }
    }
}

/// All messages of which anything is kept, by number.
#[derive(Debug)]
pub(super) struct Slots {
    awake: Awake,
    resting: Resting,
    /// Those that will be laid to rest when newer ones come, if nothing happens to them before.
    drowsy: VecDeque<Seq>,
    awake_max: usize,
    /// What was durable when this was last told.
    durable: OpNumber,
}

impl Default for Slots {
    fn default() -> Self {
        let (awake, resting, drowsy) = (Awake::default(), Resting::default(), VecDeque::new());
        Self { awake, resting, drowsy, awake_max: AWAKE_MAX, durable: OpNumber(0) }
    }
}

impl Slots {
    /// From now on, so many of the latest messages stay awake.
    pub(super) fn keep_awake(&mut self, messages: usize) {
        self.awake_max = messages;
    }

    pub(super) fn contains_key(&self, seq: Seq) -> bool {
        self.awake.contains(seq) || self.resting.contains(seq)
    }

    pub(super) fn get(&self, seq: Seq) -> Option<View<'_>> {
        match self.awake.get(seq) {
            Some(slot) => Some(View::Awake(slot)),
            None => self.resting.get(seq).map(|slot| View::Resting(Box::new(slot))),
        }
    }

    /// The latest synced record about a message; the first of all if there is none, or it has been durable for long.
    pub(super) fn op(&self, seq: Seq) -> OpNumber {
        self.awake.get(seq).map_or(OpNumber(0), |slot| slot.op)
    }

    /// When an unfinished message expires.
    pub(super) fn expiry(&self, seq: Seq) -> Option<Mono> {
        match self.awake.get(seq) {
            Some(slot) => slot.expiry_timer,
            None => self.resting.times(seq).map(|(_, expiry)| expiry),
        }
    }

    /// Since when an unfinished message has been due.
    pub(super) fn due_since(&self, seq: Seq) -> Option<Mono> {
        match self.awake.get(seq) {
            Some(slot) => Some(slot.due_since),
            None => self.resting.times(seq).map(|(due_since, _)| due_since),
        }
    }

    /// The message, awake.
    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Slot> {
        if !self.resting.is_empty()
            && !self.awake.contains(seq)
            && let Some(slot) = self.resting.take(seq)
        {
            // Before it is awake: it may be among the oldest from an earlier time, and the caller is about to change it.
            self.rest_oldest();
            self.awake.insert(seq, Box::new(slot));
            self.drowsy.push_back(seq);
        }
        self.awake.get_mut(seq)
    }

    /// Adds a message that is not there yet.
    pub(super) fn insert(&mut self, seq: Seq, slot: Box<Slot>) {
        self.awake.insert(seq, slot);
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Box<Slot>> {
        self.awake.remove(seq).or_else(|| self.resting.take(seq).map(Box::new))
    }

    /// Nothing is expected to happen to a message for now; everything up to `durable` is durable.
    pub(super) fn may_rest(&mut self, seq: Seq, durable: OpNumber) {
        self.durable = durable;
        self.drowsy.push_back(seq);
        self.rest_oldest();
    }

    fn rest_oldest(&mut self) {
        while self.drowsy.len() > self.awake_max
            && let Some(oldest) = self.drowsy.pop_front()
        {
            if self
                .awake
                .get(oldest)
                .is_some_and(|slot| slot.op <= self.durable && self.resting.lay_down(slot))
            {
                self.awake.remove(oldest);
            }
        }
    }

    /// The numbers of all messages from `from` on, in order.
    pub(super) fn numbers_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        merged(self.awake.numbers_from(from), self.resting.numbers_from(from))
    }

    /// Every message.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, View<'_>)> {
        self.numbers_from(Bound::Unbounded).map(|seq| (seq, self.get(seq).expect("it was listed")))
    }

    /// The messages that are awake: all whose hand-out has not completed them at once are among them.
    pub(super) fn awake(&self) -> impl Iterator<Item = &Slot> {
        self.awake.slots()
    }

    /// The queues that any message belongs to, with repetitions.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueNumber> {
        self.awake.slots().map(|slot| slot.message.queue).chain(self.resting.queues())
    }

    /// Keeps a message as the log has it, instead of what was kept of it.
    pub(super) fn restore(&mut self, message: Message) {
        let seq = message.seq;
        self.remove(seq);
        if !self.resting.restore(&message) {
            self.awake.insert(seq, Box::new(Slot::new(message, Mono(0))));
        }
    }

    /// Ends the restoration: ties what rests to the clock, and hands over what is awake, which still has to be
    /// placed by its times.
    pub(super) fn start_clock(&mut self, now: Now) -> impl Iterator<Item = (Seq, Box<Slot>)> + use<> {
        let mut awake = std::mem::take(&mut self.awake);
        for slot in self.resting.start_clock(now) {
            awake.insert(slot.message.seq, Box::new(slot));
        }
        self.drowsy.clear();
        awake.into_slots().map(|(seq, mut slot)| {
            // One that rested for a while has times of a clock that had not started.
            (slot.phase_timer, slot.expiry_timer) = (None, None);
            (seq, slot)
        })
    }

    /// The numbers of the resting messages from `from` on, in order.
    pub(super) fn resting_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        self.resting.numbers_from(from)
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;
    use crate::command::OpNumber;
    use crate::identity::Seq;
    use crate::pond::resting::tests::slot;

    fn awake(slots: &Slots) -> Vec<u64> {
        slots.awake().map(|slot| slot.message.seq.0).collect()
    }

    #[test]
    fn all_but_the_latest_rest_and_none_before_it_is_durable() {
        let mut slots = Slots::default();
        slots.keep_awake(2);
        for seq in 1..=6 {
            let mut slot = slot(seq, 1000, 0, 10, 0);
            slot.op = OpNumber(if seq == 2 { 9 } else { seq });
            slots.insert(Seq(seq), Box::new(slot));
        }
        for seq in 1..=6 {
            slots.may_rest(Seq(seq), OpNumber(6));
        }
        assert_eq!(awake(&slots), [2, 5, 6]);
        assert!(slots.get_mut(Seq(3)).is_some());
        assert_eq!(awake(&slots), [2, 3, 5, 6]);
        slots.may_rest(Seq(2), OpNumber(9));
        assert_eq!(awake(&slots), [2, 3], "one that was woken is among the latest");
    }
}
