//! The bounds of a queue, and whom a new message displaces where the queue drops its oldest work.
//!
//! Owns the decision at a bound. Must never give up work that somebody has, that waits for its time, or that matters
//! more than the new message, nor any where that would not make room.

use super::Pond;
use super::callbacks::CALLBACKS;
use crate::command::{EnqueueError, NewMessage};
use crate::forecast::{Outlook, seconds};
use crate::identity::Seq;
use crate::message::{Criticality, Phase, QueueNumber};
use crate::settings::Overflow;
use crate::time::Now;
use std::time::Duration;

/// When a caller shall come back if nothing better is known.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(5);
/// Messages that one new message may displace: a large one does not sweep away a thousand small ones.
const DISPLACED_MAX: usize = 64;

/// The bound on idempotency keys, in words.
pub(super) const KEYS: &str = "its bound on idempotency keys is";

/// By how much a new message exceeds a bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excess {
    messages: u64,
    bytes: u64,
    pub(super) what: &'static str,
}

/// What of a bound a class may use: all, three quarters or half of it, rounded up.
pub(super) fn share(bound: u64, criticality: Criticality) -> u64 {
    match criticality {
        Criticality::CriticalPlus | Criticality::Critical => bound,
        Criticality::SheddablePlus => bound - bound / 4,
        Criticality::Sheddable => bound - bound / 2,
    }
}

impl Pond {
    /// Refuses a message that a bound does not let in, or makes room for it where the queue drops its oldest.
    pub(super) fn check_bounds(
        &mut self,
        number: QueueNumber,
        new: &NewMessage,
        outlook: Option<Outlook>,
        now: Now,
    ) -> Result<(), EnqueueError> {
        if self.queue_ref(number).settings.overflow == Overflow::Block {
            // Whoever would start too late is told so, and not that the queue is full: waiting at the door is no help.
            self.check_wait(number, new, outlook, now)?;
        }
        if new.callback.is_some() && self.tellers.full {
            let excess = Excess { messages: 1, bytes: 0, what: CALLBACKS };
            return Err(self.full(number, new.criticality, Some(excess), outlook, now));
        }
        let displaced = match self.excess(number, new.criticality, 1, new.content.size_bytes()) {
            None => Ok(Vec::new()),
            Some(excess) => self.displaced(number, new.criticality, excess).ok_or(excess),
        };
        let displaced = match displaced {
            Ok(displaced) if new.key.is_none() || self.has_room_for_key_without(number, &displaced) => {
                displaced
            }
            Ok(_) => {
                let excess = Excess { messages: 1, bytes: 0, what: KEYS };
                return Err(self.full(number, new.criticality, Some(excess), outlook, now));
            }
            Err(excess) => return Err(self.full(number, new.criticality, Some(excess), outlook, now)),
        };
        if self.tellers.full && displaced.iter().any(|seq| self.slot(*seq).message.callback.is_some()) {
            let excess = Excess { messages: 1, bytes: 0, what: CALLBACKS };
            return Err(self.full(number, new.criticality, Some(excess), outlook, now));
        }
        self.check_wait(number, new, outlook, now)?;
        for &seq in &displaced {
            self.queue_mut(number).totals.dropped += 1;
            self.end_unserved(seq, Phase::Dropped, None, None, now);
        }
        if !displaced.is_empty() {
            // Not before all of them are gone, or somebody would get one of them on the way.
            self.serve(number, now);
        }
        Ok(())
    }

    /// Refuses a message that would probably start later than its queue promises.
    fn check_wait(
        &mut self,
        number: QueueNumber,
        new: &NewMessage,
        outlook: Option<Outlook>,
        now: Now,
    ) -> Result<(), EnqueueError> {
        let max_wait = self.queue_ref(number).settings.max_wait;
        if let Some(max) = max_wait
            && let Some(predicted) = self.predicted_wait_of_new(number, new, outlook, now)
            && predicted > max
        {
            let (chance, per_second) =
                (self.chance.f64(), outlook.map(|outlook| outlook.starts_per_second()));
            let earliest = predicted.saturating_sub(max);
            let times = &mut self.queue_mut(number).return_times[new.criticality.index()];
            let retry_after = times.next(earliest, per_second, now.mono, chance);
            return Err(EnqueueError::WaitTooLong { predicted, max, retry_after });
        }
        Ok(())
    }

    /// The refusal of a message of a class for want of room, with the time to come back.
    pub(super) fn full(
        &mut self,
        number: QueueNumber,
        class: Criticality,
        excess: Option<Excess>,
        outlook: Option<Outlook>,
        now: Now,
    ) -> EnqueueError {
        let excess =
            excess.unwrap_or(Excess { messages: 1, bytes: 0, what: "the room for those who wait is" });
        let (chance, per_second) = (self.chance.f64(), outlook.map(|outlook| outlook.starts_per_second()));
        let gone_first = self.in_messages(number, excess);
        let earliest = per_second.map_or(RETRY_AFTER_DEFAULT, |rate| seconds(gone_first / rate));
        let times = &mut self.queue_mut(number).return_times[class.index()];
        let retry_after = times.next(earliest, per_second, now.mono, chance);
        EnqueueError::QueueFull { what: excess.what, retry_after }
    }

    /// The largest message of a class that a queue ever has room for.
    pub(super) fn largest(&self, number: QueueNumber, class: Criticality) -> u64 {
        share(self.queue_ref(number).settings.max_bytes, class)
    }

    /// By how much so many more messages of a class, with so many bytes, would exceed a bound.
    pub(super) fn excess(
        &self,
        number: QueueNumber,
        class: Criticality,
        messages: u64,
        bytes: u64,
    ) -> Option<Excess> {
        let queue = self.queue_ref(number);
        self.excess_beside(number, (queue.unfinished, queue.unfinished_bytes), class, messages, bytes)
    }

    /// The same, if so many messages and bytes were there.
    pub(super) fn excess_beside(
        &self,
        number: QueueNumber,
        held: (u64, u64),
        class: Criticality,
        messages: u64,
        bytes: u64,
    ) -> Option<Excess> {
        let queue = self.queue_ref(number);
        let all = class <= Criticality::Critical;
        let limit = queue.settings.max_messages.map_or(u64::MAX, |max| share(max, class));
        let messages = held.0.saturating_add(messages).saturating_sub(limit);
        let bytes = held.1.saturating_add(bytes).saturating_sub(share(queue.settings.max_bytes, class));
        let what = match (messages > 0, bytes > 0, all) {
            (true, _, true) => "its bound on messages is",
            (true, _, false) => "what work of this class may use of its bound on messages is",
            (false, true, true) => "its bound on bytes is",
            (false, true, false) => "what work of this class may use of its bound on bytes is",
            (false, false, _) => return None,
        };
        Some(Excess { messages, bytes, what })
    }

    /// How many messages of mean size must go before something fits that exceeds a bound by so much.
    fn in_messages(&self, number: QueueNumber, excess: Excess) -> f64 {
        let queue = self.queue_ref(number);
        let mean_bytes = queue.unfinished_bytes as f64 / queue.unfinished.max(1) as f64;
        let by_bytes = (excess.bytes as f64 / mean_bytes.max(1.0)).ceil();
        by_bytes.max(excess.messages as f64).max(1.0)
    }

    /// Whether one more key can be remembered once these messages are no more.
    fn has_room_for_key_without(&self, number: QueueNumber, displaced: &[Seq]) -> bool {
        let has_key = |seq: &&Seq| self.slot(**seq).message.key.is_some();
        let gone = displaced.iter().filter(has_key).count() as u64;
        self.has_room_for_keys(number, 1, gone)
    }

    /// Whom a new message of a class displaces: the oldest ready ones of the least critical that are not more critical
    /// than it, whether they are durable yet or stand behind others of their group: what came last shall stay.
    /// `None`: nobody, it does not fit.
    fn displaced(&self, number: QueueNumber, criticality: Criticality, excess: Excess) -> Option<Vec<Seq>> {
        let queue = self.queue_ref(number);
        if queue.settings.overflow != Overflow::DropOldest {
            return None;
        }
        let ready = &queue.ready;
        let classes = Criticality::ALL.into_iter().rev().filter(|class| *class >= criticality);
        let places = classes.flat_map(|class| ready.all_in(class)).take(DISPLACED_MAX);
        let (mut displaced, mut bytes) = (Vec::new(), 0);
        for seq in places.map(|place| ready.seq_at(place)) {
            displaced.push(seq);
            bytes += u64::from(self.slot(seq).message.size_bytes);
            if displaced.len() as u64 >= excess.messages && bytes >= excess.bytes {
                return Some(displaced);
            }
        }
        None
    }
}
