//! The way in: duplicates, checks, acceptance.
//!
//! Owns the decision to accept. What is refused here was never stored. Must never look at a body.

use super::blocked::Door;
use super::slot::Slot;
use super::timers::Timer;
use super::{Gated, Pond};
use crate::command::{Accepted, EnqueueError, NewMessage, OpNumber, Reply, RequestId};
use crate::forecast::Outlook;
use crate::identity::Seq;
use crate::message::{Callback, IdempotencyKey, Message, Phase, QueueNumber};
use crate::name::Name;
use crate::record::Record;
use crate::settings::DELAY_MAX;
use crate::time::Now;
use std::sync::Arc;
use std::time::Duration;

impl Pond {
    pub(super) fn enqueue(&mut self, request: RequestId, queue: &Name, messages: Vec<NewMessage>, now: Now) {
        let Some(number) = self.queue_named(queue) else {
            return self.reply(request, Reply::Enqueued(Err(EnqueueError::UnknownQueue)));
        };
        match self.door(number, &messages, now) {
            Door::Open => {
                self.enqueue_now(request, number, &messages, now);
                if messages.iter().any(|new| new.key.is_some()) {
                    // Less critical ones that wait for room may have become repetitions of it, and need none.
                    self.room_may_be_free(number);
                }
            }
            Door::Full(class) => self.block(request, number, class, messages, now),
            Door::TooNarrow(what) => self.turn_back(request, number, &messages, what, now),
        }
    }

    pub(super) fn enqueue_now(
        &mut self,
        request: RequestId,
        number: QueueNumber,
        messages: &[NewMessage],
        now: Now,
    ) {
        self.answer_each(request, number, messages, now, |pond, new, ttl, outlook| {
            pond.check_bounds(number, new, outlook, now)?;
            Ok(pond.accept(number, new, ttl, outlook, now))
        });
    }

    /// Answers for each message: repetitions and mistakes at once, others as `decide` says.
    pub(super) fn answer_each(
        &mut self,
        request: RequestId,
        number: QueueNumber,
        messages: &[NewMessage],
        now: Now,
        decide: impl Fn(&mut Self, &NewMessage, Duration, Option<Outlook>) -> Result<Accepted, EnqueueError>,
    ) {
        let mut durable_with = OpNumber(0);
        let mut results = Vec::with_capacity(messages.len());
        for new in messages {
            let result = match self.find_duplicate(number, new.key, now) {
                Ok(Some(duplicate)) => Ok(duplicate),
                Ok(None) => self.check_new(number, new).and_then(|ttl| {
                    let outlook = self.outlook(number, now);
                    decide(self, new, ttl, outlook)
                }),
                Err(error) => Err(error),
            };
            match &result {
                Ok(accepted) => {
                    durable_with = durable_with.max(self.slot(accepted.seq).op);
                }
                Err(error) => self.count_refusal(number, error, now),
            }
            results.push(result);
        }
        self.reply_when_durable(durable_with, request, Reply::Enqueued(Ok(results)), now);
    }

    fn count_refusal(&mut self, number: QueueNumber, error: &EnqueueError, now: Now) {
        if matches!(error, EnqueueError::QueueFull { .. } | EnqueueError::WaitTooLong { .. }) {
            // What a bound refused was offered all the same: without it, a queue at its bound would never look
            // overloaded.
            let outlook = self.outlook(number, now);
            self.count_arrival(number, outlook, now);
        }
        let totals = &mut self.queue_mut(number).totals;
        match error {
            EnqueueError::QueueFull { .. } => totals.refused_full += 1,
            EnqueueError::WaitTooLong { .. } => totals.refused_wait += 1,
            EnqueueError::StorageFull | EnqueueError::Draining => totals.refused_other += 1,
            // The caller's mistakes are no refusals of the queue's.
            EnqueueError::UnknownQueue
            | EnqueueError::TooLarge { .. }
            | EnqueueError::BatchTooLarge { .. }
            | EnqueueError::DelayTooLong
            | EnqueueError::TtlOutOfRange { .. }
            | EnqueueError::DelayBeyondTtl
            | EnqueueError::GroupsNotKept { .. }
            | EnqueueError::IdempotencyMismatch => {}
        }
    }

    /// Checks what needs no room; returns the time to live.
    pub(super) fn check_new(&self, number: QueueNumber, new: &NewMessage) -> Result<Duration, EnqueueError> {
        let ttl = self.check_times(number, new)?;
        let max_bytes = self.largest(number, new.criticality);
        if new.content.size_bytes() > max_bytes {
            return Err(EnqueueError::TooLarge { max_bytes });
        }
        let order = self.queue_ref(number).settings.order;
        if new.group.is_some() && !order.keeps_groups() {
            return Err(EnqueueError::GroupsNotKept { order });
        }
        if !self.storage.takes_new_work() {
            return Err(EnqueueError::StorageFull);
        }
        if self.draining {
            return Err(EnqueueError::Draining);
        }
        Ok(ttl)
    }

    fn find_duplicate(
        &self,
        number: QueueNumber,
        key: Option<IdempotencyKey>,
        now: Now,
    ) -> Result<Option<Accepted>, EnqueueError> {
        let Some(key) = key else { return Ok(None) };
        let Some(&seq) = self.keys.get(&(number, key.key)) else { return Ok(None) };
        let known = self.slot(seq).message.key.expect("the index holds keys of messages that have one");
        if known.payload != key.payload {
            return Err(EnqueueError::IdempotencyMismatch);
        }
        let status = self.status_of(seq, now);
        Ok(Some(Accepted {
            seq,
            phase: status.message.phase,
            position: status.position,
            promise: status.promise,
            result_in: status.result_in,
            accepted: status.message.accepted,
            duplicate: true,
        }))
    }

    /// Checks delay and time to live; returns the latter.
    fn check_times(&self, number: QueueNumber, new: &NewMessage) -> Result<Duration, EnqueueError> {
        let retention = self.queue_ref(number).settings.retention;
        let ttl = new.ttl.unwrap_or(retention);
        if new.delay > DELAY_MAX {
            return Err(EnqueueError::DelayTooLong);
        }
        if ttl.is_zero() || ttl > retention {
            return Err(EnqueueError::TtlOutOfRange { max: retention });
        }
        if new.delay >= ttl {
            return Err(EnqueueError::DelayBeyondTtl);
        }
        Ok(ttl)
    }

    fn accept(
        &mut self,
        number: QueueNumber,
        new: &NewMessage,
        ttl: Duration,
        outlook: Option<Outlook>,
        now: Now,
    ) -> Accepted {
        let seq = Seq(self.take_number());
        self.accept_as(seq, number, new, ttl, outlook, now)
    }

    /// Accepts a message under a number that was taken for it.
    pub(super) fn accept_as(
        &mut self,
        seq: Seq,
        number: QueueNumber,
        new: &NewMessage,
        ttl: Duration,
        outlook: Option<Outlook>,
        now: Now,
    ) -> Accepted {
        let delayed = !new.delay.is_zero();
        let phase = if delayed { Phase::Delayed } else { Phase::Ready };
        let due = now.wall.plus(new.delay);
        let due_since = now.mono.plus(new.delay);
        let size_bytes = u32::try_from(new.content.size_bytes()).unwrap_or(u32::MAX);
        let message = Message {
            seq,
            queue: number,
            phase,
            place: seq.0,
            size_bytes,
            criticality: new.criticality,
            tenant: new.tenant.clone(),
            group: new.group.clone(),
            consumer: None,
            accepted: now.wall,
            first_due: due,
            due,
            expires: now.wall.plus(ttl),
            attempts: 0,
            deliveries: 0,
            deliveries_before: 0,
            hand_out: None,
            first_started: None,
            finished: None,
            dead_reason: None,
            key: new.key,
            callback: new.callback.clone().map(|wish| Callback { wish, teller: None }),
            result: None,
            history: Vec::new(),
        };
        let (position, promise) = self.foresee_new(number, new, outlook, now);
        let record =
            Record::Message { message: Box::new(message.clone()), content: Some(Arc::clone(&new.content)) };
        self.insert(message, due_since, now.mono.plus(ttl));
        let op = self.emit_about(seq, record);
        self.when_durable(op, Gated::Show(seq), now);
        let queue = self.queue_mut(number);
        queue.totals.accepted_by_criticality[new.criticality.index()] += 1;
        // The wait of delayed work is mostly the delay that its caller asked for: it would flatter the record.
        if let Some((promise, outlook)) = promise.zip(outlook).filter(|_| !delayed) {
            queue.calibration.promised(seq, promise, &outlook, now.mono);
        }
        self.count_arrival(number, outlook, now);
        Accepted {
            seq,
            phase,
            position,
            promise,
            result_in: self.result_in(number, promise),
            accepted: now.wall,
            duplicate: false,
        }
    }

    fn insert(&mut self, message: Message, due_since: crate::time::Mono, expiry: crate::time::Mono) {
        let seq = message.seq;
        let number = message.queue;
        if message.key.is_some() {
            self.make_room_for_key(number);
            let own = self.remember_key(number, message.key, seq);
            assert!(own, "a new message has the highest number");
        }
        let mut slot = Box::new(Slot::new(message, due_since));
        slot.expiry_timer = Some(expiry);
        self.expiries.set(seq, expiry, slot.message.ttl_micros());
        if slot.message.phase == Phase::Delayed {
            slot.phase_timer = Some(due_since);
            self.timers.set(due_since, Timer::Phase(seq));
        }
        let queue = self.queue_mut(number);
        queue.join_group(&slot);
        queue.enter(&slot);
        queue.kept += 1;
        self.load.enter(&slot.message);
        self.slots.insert(seq, slot);
    }

    fn count_arrival(&mut self, number: QueueNumber, outlook: Option<Outlook>, now: Now) {
        let queue = self.queue_mut(number);
        queue.arrivals.count(1.0, now.mono);
        queue.arrivals_long.count(1.0, now.mono);
        let arrivals = queue.arrivals.per_second(now.mono);
        if outlook.is_some_and(|outlook| arrivals > outlook.capacity_per_second) {
            queue.exceeded_since.get_or_insert(now.mono);
        } else {
            queue.exceeded_since = None;
        }
    }
}
