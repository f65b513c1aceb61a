//! The messages that tell of ends.
//!
//! Owns that every end of a message whose producer wants to be told of it has exactly one, written with it, and what is
//! held back while there is no room for more of them. Must never know what is told.

use super::Pond;
use crate::callback::{Callbacks, Ended};
use crate::command::{Effect, NewMessage, OpNumber};
use crate::identity::Seq;
use crate::message::{Content, QueueNumber};
use crate::notice::Notice;
use crate::time::Now;
use std::collections::BTreeSet;

/// The bound on messages that tell of ends, in words.
pub(super) const CALLBACKS: &str = "the bound on callbacks that are not delivered yet is";

/// What the pond knows of telling ends.
#[derive(Debug, Default)]
pub(super) struct Tellers {
    callbacks: Option<Callbacks>,
    /// There is no room for more.
    pub(super) full: bool,
    /// An operator has heard of it, in this episode.
    told: bool,
    /// Queues in which, meanwhile, the number of messages has changed whose end is to be told.
    changed: BTreeSet<QueueNumber>,
}

/// What a queue owes: messages whose end is to be told.
#[derive(Debug, Default)]
pub(super) struct Owing {
    /// Those that are not terminal.
    pub(super) messages: u64,
    /// There is no room to tell of their ends.
    pub(super) without_room: bool,
}

impl Pond {
    /// From now on, ends are told, to those who want it. To be said before [`Pond::open`], which must declare the queue.
    pub fn tell_ends(&mut self, callbacks: Callbacks) {
        self.tellers.callbacks = Some(callbacks);
    }

    /// The queue of the messages that tell of ends.
    fn tellers_queue(&self) -> Option<QueueNumber> {
        self.queue_named(&self.tellers.callbacks.as_ref()?.queue)
    }

    /// The number of the message that shall tell of the end of `seq`, if somebody wants to be told.
    pub(super) fn take_teller(&mut self, seq: Seq) -> Option<Seq> {
        let number = self.tellers_queue()?;
        let message = &self.slot(seq).message;
        let is_wanted = message.callback.is_some() && message.queue != number;
        is_wanted.then(|| Seq(self.take_number()))
    }

    /// Tells of the end of `seq`, whose record was written just now: this one must be the next. Returns the record that
    /// makes both durable.
    pub(super) fn tell_end(&mut self, seq: Seq, teller: Seq, result: Option<&Content>, now: Now) -> OpNumber {
        let number = self.tellers_queue().expect("a teller was taken for it");
        let words = self.tellers.callbacks.as_ref().expect("it names the queue").words.clone();
        let slot = self.slots.get(seq).expect("the caller has looked it up");
        let queue = &self.queues[slot.message.queue.0 as usize].name;
        let telling = words(&Ended { teller, queue, message: &slot.message, result });
        drop(slot);
        let new = NewMessage { content: telling.content, tenant: telling.tenant, ..NewMessage::default() };
        let (ttl, outlook) = (self.queue_ref(number).settings.retention, self.outlook(number, now));
        self.accept_as(teller, number, &new, ttl, outlook, now);
        let op = self.emitted;
        self.slot_mut(seq).op = op;
        op
    }

    /// Whether there is no room for more messages that tell of ends.
    fn tellers_are_full(&self) -> bool {
        let Some(number) = self.tellers_queue() else { return false };
        let queue = self.queue_ref(number);
        queue.settings.max_messages.is_some_and(|max| queue.unfinished >= max)
            || queue.unfinished_bytes >= queue.settings.max_bytes
    }

    /// The number of unfinished messages of a queue whose end is to be told may have changed.
    pub(super) fn note_owing(&mut self, number: QueueNumber) {
        if self.tellers.full {
            self.tellers.changed.insert(number);
        }
    }

    /// Sees whether there is room, before anything is handed out after a restart.
    pub(super) fn restore_tellers(&mut self) {
        self.tellers.full = self.tellers_are_full();
        for queue in &mut self.queues {
            queue.owing.without_room = self.tellers.full;
            queue.tell(&mut self.targets);
        }
        self.notice_tellers();
    }

    /// At the end of a step: holds back what would end, or lets it go on.
    pub(super) fn tellers_step(&mut self, now: Now) {
        let is_full = self.tellers_are_full();
        if is_full == self.tellers.full {
            while let Some(number) = self.tellers.changed.pop_first() {
                self.note_hold(number, now);
                self.serve(number, now);
            }
            return;
        }
        self.tellers.full = is_full;
        self.tellers.changed.clear();
        self.notice_tellers();
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            queue.owing.without_room = is_full;
            queue.tell(&mut self.targets);
            let number = queue.number;
            self.note_hold(number, now);
            if !is_full {
                self.expire_overdue(number);
                self.room_may_be_free(number);
                self.serve(number, now);
            }
        }
    }

    /// Says once in every episode that there is no room.
    fn notice_tellers(&mut self) {
        let Some(number) = self.tellers_queue() else { return };
        let queue = self.queue_ref(number);
        let (waiting, max) = (queue.unfinished, queue.settings.max_messages.unwrap_or(u64::MAX));
        if !self.tellers.full {
            // Only clearly below is it over: at the edge, every callback would be an episode.
            let bytes = queue.settings.max_bytes;
            self.tellers.told &= waiting >= max - max / 10 || queue.unfinished_bytes >= bytes - bytes / 10;
        } else if !self.tellers.told {
            let (queue, owner) = (queue.name.clone(), queue.settings.dead_letter.owner.clone());
            self.tellers.told = true;
            self.effects.push(Effect::Notice(Notice::CallbacksFull { queue, waiting, owner }));
        }
    }

    /// Unfinished messages whose end is to be told, of those that are handed out, and of all.
    pub fn owing(&self) -> (u64, u64) {
        (self.load.leased_owing, self.load.owing)
    }
}
