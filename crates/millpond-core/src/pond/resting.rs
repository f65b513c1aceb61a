//! Messages to which nothing happens for now, in a few bytes each.
//!
//! Owns their compact forms and that they come back as they were. A message rests while it waits untouched, and once
//! it has ended without anybody having had it, or its first hand-out has completed it: what differs between such
//! messages are times and sizes, and what they share is written once. Must never hold a message that anything else is known of.

use super::order::merged;
use super::shelf::Shelf;
use super::slot::Slot;
use crate::identity::Seq;
use crate::message::{
    Attempt, AttemptOutcome, Callback, Criticality, DeadReason, HandOut, Holder, IdempotencyKey, Message,
    Phase, QueueNumber,
};
use crate::name::Label;
use crate::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What many messages share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    queue: QueueNumber,
    phase: Phase,
    criticality: Criticality,
    tenant: Option<Label>,
    group: Option<Label>,
    /// From acceptance to expiry.
    ttl_micros: i64,
    /// Wall time less monotonic time at the acceptance.
    clock_micros: i64,
}

/// What many messages share that their first hand-out completed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Completion {
    common: Common,
    epoch: u32,
    holder: Holder,
    consumer: Option<Label>,
    result_type: Option<String>,
    /// From its end until its status is forgotten, by wall time.
    retention_micros: i64,
    /// Monotonic end of its retention, less the wall time of its end.
    kept_micros: i64,
}

/// What many messages share whose lives ended before anyone had them: dead letters of time, and what was withdrawn or
/// dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    common: Common,
    dead_reason: Option<DeadReason>,
    /// As of a completion.
    retention_micros: i64,
    kept_micros: i64,
}

/// The resting messages.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// Time of acceptance, delay, size.
    waiting: Shelf<Common, 3>,
    /// The same, and from acceptance to start, from start to the end of the lease, from start to the end by wall time,
    /// how much longer by monotonic time, size of the result.
    completed: Shelf<Completion, 8>,
    /// Time of acceptance, delay, size, and from acceptance to the end by wall time.
    ended: Shelf<Ending, 4>,
    keys: BTreeMap<Seq, IdempotencyKey>,
    callbacks: BTreeMap<Seq, Callback>,
}

/// What few messages have, each something else.
#[derive(Debug, Default)]
struct Own {
    key: Option<IdempotencyKey>,
    callback: Option<Callback>,
}

impl Resting {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.len() + self.completed.len() + self.ended.len() == 0
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.waiting.contains(seq) || self.completed.contains(seq) || self.ended.contains(seq)
    }

    /// Takes in a message if it can come back as it is; `false`, and nothing changes, if it cannot.
    pub(super) fn lay_down(&mut self, slot: &Slot) -> bool {
        if !slot.visible || !slot.watchers.is_empty() || slot.occupies.is_some() || slot.restored_lease {
            return false;
        }
        let message = &slot.message;
        if message.phase.is_terminal() {
            return self.lay_down_ended(slot);
        }
        let clock_micros = message.first_due.0.wrapping_sub(slot.due_since.0);
        let expiry = message.expires.0.wrapping_sub(clock_micros);
        let rests = is_untouched(message)
            && slot.expiry_timer == Some(Mono(expiry))
            && slot.phase_timer == (message.phase == Phase::Delayed).then_some(slot.due_since);
        if rests {
            self.add_waiting(message, clock_micros);
        }
        rests
    }

    fn lay_down_ended(&mut self, slot: &Slot) -> bool {
        let message = &slot.message;
        let finished = message.finished.unwrap_or_default();
        let Some(kept_micros) = slot.phase_timer.map(|at| at.0.wrapping_sub(finished.0)) else {
            return false;
        };
        let clock_micros = message.first_due.0.wrapping_sub(slot.due_since.0);
        if is_plainly_completed(message) {
            self.add_completed(message, clock_micros, kept_micros);
        } else if is_ended_untouched(message) {
            self.add_ended(message, clock_micros, kept_micros);
        } else {
            return false;
        }
        true
    }

    /// Takes in a message as the log has it, of which the monotonic side is not known before
    /// [`Resting::start_clock`]. `false` if it cannot rest.
    pub(super) fn restore(&mut self, message: &Message) -> bool {
        if self.contains(message.seq) {
            return false;
        }
        if is_untouched(message) {
            self.add_waiting(message, 0);
            true
        } else if is_plainly_completed(message) {
            self.add_completed(message, 0, 0);
            true
        } else if is_ended_untouched(message) {
            self.add_ended(message, 0, 0);
            true
        } else {
            false
        }
    }

    fn add_waiting(&mut self, message: &Message, clock_micros: i64) {
        let values = accepted_as(message);
        self.waiting.add(message.seq, &common(message, clock_micros), values);
        self.add_own(message);
    }

    fn add_completed(&mut self, message: &Message, clock_micros: i64, kept_micros: i64) {
        let (Some(hand_out), [attempt]) = (&message.hand_out, &message.history[..]) else {
            unreachable!("a plainly completed message was handed out once")
        };
        let finished = message.finished.unwrap_or_default();
        let took = finished.0.wrapping_sub(hand_out.started.0);
        let [accepted, delay, size] = accepted_as(message);
        let values = [
            accepted,
            delay,
            size,
            hand_out.started.0.wrapping_sub(message.accepted.0),
            hand_out.until.0.wrapping_sub(hand_out.started.0),
            took,
            attempt.micros.cast_signed().wrapping_sub(took),
            message.result.as_ref().map_or(0, |(_, bytes)| bytes.cast_signed()),
        ];
        let completion = Completion {
            common: common(message, clock_micros),
            epoch: hand_out.epoch,
            holder: hand_out.holder.clone(),
            consumer: message.consumer.clone(),
            result_type: message.result.as_ref().map(|(content_type, _)| content_type.clone()),
            retention_micros: message.due.0.wrapping_sub(finished.0),
            kept_micros,
        };
        self.completed.add(message.seq, &completion, values);
        self.add_own(message);
    }

    fn add_ended(&mut self, message: &Message, clock_micros: i64, kept_micros: i64) {
        let finished = message.finished.unwrap_or_default();
        let [accepted, delay, size] = accepted_as(message);
        let values = [accepted, delay, size, finished.0.wrapping_sub(accepted)];
        let ending = Ending {
            common: common(message, clock_micros),
            dead_reason: message.dead_reason,
            retention_micros: message.due.0.wrapping_sub(finished.0),
            kept_micros,
        };
        self.ended.add(message.seq, &ending, values);
        self.add_own(message);
    }

    fn add_own(&mut self, message: &Message) {
        if let Some(key) = message.key {
            self.keys.insert(message.seq, key);
        }
        if let Some(callback) = &message.callback {
            self.callbacks.insert(message.seq, callback.clone());
        }
    }

    /// The message as it was.
    pub(super) fn get(&self, seq: Seq) -> Option<Slot> {
        if let Some((common, values)) = self.waiting.get(seq) {
            return Some(waiting_slot(seq, common, values, self.own(seq)));
        }
        if let Some((completion, values)) = self.completed.get(seq) {
            return Some(completed_slot(seq, completion, values, self.own(seq)));
        }
        let (ending, values) = self.ended.get(seq)?;
        Some(ended_slot(seq, ending, values, self.own(seq)))
    }

    /// When a waiting message was or will be due, and when it expires.
    pub(super) fn times(&self, seq: Seq) -> Option<(Mono, Mono)> {
        let (common, [accepted, delay, _]) = self.waiting.get(seq)?;
        let at = |micros: i64| Mono(accepted.wrapping_add(micros).wrapping_sub(common.clock_micros));
        Some((at(delay), at(common.ttl_micros)))
    }

    fn own(&self, seq: Seq) -> Own {
        let key = if self.keys.is_empty() { None } else { self.keys.get(&seq).copied() };
        let callback = if self.callbacks.is_empty() { None } else { self.callbacks.get(&seq).cloned() };
        Own { key, callback }
    }

    /// Takes a message out.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Slot> {
        let key = if self.keys.is_empty() { None } else { self.keys.remove(&seq) };
        let callback = if self.callbacks.is_empty() { None } else { self.callbacks.remove(&seq) };
        let own = Own { key, callback };
        if let Some((common, values)) = self.waiting.take(seq) {
            return Some(waiting_slot(seq, common, values, own));
        }
        if let Some((completion, values)) = self.completed.take(seq) {
            return Some(completed_slot(seq, completion, values, own));
        }
        let (ending, values) = self.ended.take(seq)?;
        Some(ended_slot(seq, ending, values, own))
    }

    /// The numbers of the messages from `from` on, in order.
    pub(super) fn numbers_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        let over = merged(self.completed.numbers_from(from), self.ended.numbers_from(from));
        merged(self.waiting.numbers_from(from), over)
    }

    /// The queues that have resting messages, with repetitions.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueNumber> {
        let completed = self.completed.kinds().map(|completion| completion.common.queue);
        let ended = self.ended.kinds().map(|ending| ending.common.queue);
        self.waiting.kinds().map(|common| common.queue).chain(completed).chain(ended)
    }

    /// Ties restored messages to the clock. Those that a clock
    /// set back has moved into the future are taken out and returned: what they wait for cannot be told from their
    /// times alone.
    pub(super) fn start_clock(&mut self, now: Now) -> Vec<Slot> {
        let waiting = self.waiting.iter().filter(|(_, common, [accepted, delay, _])| {
            let due = accepted.wrapping_add(*delay);
            *accepted > now.wall.0 || (common.phase == Phase::Ready && due > now.wall.0)
        });
        let completed = self.completed.iter().filter(|(.., [accepted, _, _, waited, _, took, ..])| {
            let ended = accepted.wrapping_add(*waited).wrapping_add(*took);
            ended > now.wall.0
        });
        let ended = self
            .ended
            .iter()
            .filter(|(.., [accepted, _, _, lasted])| accepted.wrapping_add(*lasted) > now.wall.0);
        let over = completed.map(|(seq, ..)| seq).chain(ended.map(|(seq, ..)| seq));
        let from_the_future: Vec<Seq> = waiting.map(|(seq, ..)| seq).chain(over).collect();
        let taken = from_the_future.into_iter().filter_map(|seq| self.take(seq)).collect();
        let clock_micros = now.wall.0.wrapping_sub(now.mono.0);
        self.waiting.change_kinds(|common| common.clock_micros = clock_micros);
        self.completed.change_kinds(|completion| {
            completion.common.clock_micros = clock_micros;
            completion.kept_micros = completion.retention_micros.wrapping_sub(clock_micros);
        });
        self.ended.change_kinds(|ending| {
            ending.common.clock_micros = clock_micros;
            ending.kept_micros = ending.retention_micros.wrapping_sub(clock_micros);
        });
        taken
    }
}

fn waiting_slot(seq: Seq, common: &Common, values: [i64; 3], own: Own) -> Slot {
    let message = message_of(seq, common, values, own);
    let due_since = Mono(message.first_due.0.wrapping_sub(common.clock_micros));
    let expiry = Mono(message.expires.0.wrapping_sub(common.clock_micros));
    Slot {
        visible: true,
        phase_timer: (common.phase == Phase::Delayed).then_some(due_since),
        expiry_timer: Some(expiry),
        ..Slot::new(message, due_since)
    }
}

fn completed_slot(seq: Seq, completion: &Completion, values: [i64; 8], own: Own) -> Slot {
    let [accepted, delay, size, waited, lease, took, longer, result_bytes] = values;
    let common = &completion.common;
    let mut message = message_of(seq, common, [accepted, delay, size], own);
    let started = Wall(accepted.wrapping_add(waited));
    let finished = Wall(started.0.wrapping_add(took));
    message.deliveries = 1;
    message.consumer.clone_from(&completion.consumer);
    message.first_started = Some(started);
    message.finished = Some(finished);
    message.due = Wall(finished.0.wrapping_add(completion.retention_micros));
    message.result = completion.result_type.clone().map(|kind| (kind, result_bytes.cast_unsigned()));
    message.hand_out = Some(HandOut {
        epoch: completion.epoch,
        started,
        until: Wall(started.0.wrapping_add(lease)),
        holder: completion.holder.clone(),
        settled: Some(AttemptOutcome::Succeeded),
    });
    message.history.push(Attempt {
        delivery: 1,
        holder: completion.holder.clone(),
        started,
        micros: took.wrapping_add(longer).cast_unsigned(),
        outcome: AttemptOutcome::Succeeded,
        failure: None,
    });
    let due_since = Mono(message.first_due.0.wrapping_sub(common.clock_micros));
    Slot {
        visible: true,
        phase_timer: Some(Mono(finished.0.wrapping_add(completion.kept_micros))),
        ..Slot::new(message, due_since)
    }
}

fn ended_slot(seq: Seq, ending: &Ending, values: [i64; 4], own: Own) -> Slot {
    let [accepted, delay, size, lasted] = values;
    let common = &ending.common;
    let mut message = message_of(seq, common, [accepted, delay, size], own);
    let finished = Wall(accepted.wrapping_add(lasted));
    message.finished = Some(finished);
    message.due = Wall(finished.0.wrapping_add(ending.retention_micros));
    message.dead_reason = ending.dead_reason;
    let due_since = Mono(message.first_due.0.wrapping_sub(common.clock_micros));
    Slot {
        visible: true,
        phase_timer: Some(Mono(finished.0.wrapping_add(ending.kept_micros))),
        ..Slot::new(message, due_since)
    }
}

fn common(message: &Message, clock_micros: i64) -> Common {
    Common {
        queue: message.queue,
        phase: message.phase,
        criticality: message.criticality,
        tenant: message.tenant.clone(),
        group: message.group.clone(),
        ttl_micros: message.expires.0.wrapping_sub(message.accepted.0),
        clock_micros,
    }
}

fn accepted_as(message: &Message) -> [i64; 3] {
    let delay = message.first_due.0.wrapping_sub(message.accepted.0);
    [message.accepted.0, delay, i64::from(message.size_bytes)]
}

fn message_of(seq: Seq, common: &Common, values: [i64; 3], own: Own) -> Message {
    let [accepted, delay, size] = values;
    let first_due = Wall(accepted.wrapping_add(delay));
    Message {
        seq,
        queue: common.queue,
        phase: common.phase,
        place: seq.0,
        size_bytes: u32::try_from(size).expect("written from one"),
        criticality: common.criticality,
        tenant: common.tenant.clone(),
        group: common.group.clone(),
        consumer: None,
        accepted: Wall(accepted),
        first_due,
        due: first_due,
        expires: Wall(accepted.wrapping_add(common.ttl_micros)),
        attempts: 0,
        deliveries: 0,
        deliveries_before: 0,
        hand_out: None,
        first_started: None,
        finished: None,
        dead_reason: None,
        key: own.key,
        callback: own.callback,
        result: None,
        history: Vec::new(),
    }
}

/// Whether nothing is known of a message but how it was accepted.
fn is_untouched(message: &Message) -> bool {
    matches!(message.phase, Phase::Ready | Phase::Delayed)
        && was_never_handed_out(message)
        && message.due == message.first_due
        && message.finished.is_none()
        && message.dead_reason.is_none()
}

/// Whether a message's life ended before anyone had it, and nothing else is known of it.
fn is_ended_untouched(message: &Message) -> bool {
    matches!(message.phase, Phase::Dead | Phase::Expired | Phase::Cancelled | Phase::Dropped)
        && was_never_handed_out(message)
        && message.finished.is_some()
}

fn was_never_handed_out(message: &Message) -> bool {
    is_first_life(message)
        && message.deliveries == 0
        && message.hand_out.is_none()
        && message.consumer.is_none()
        && message.first_started.is_none()
        && message.result.is_none()
        && message.history.is_empty()
}

/// Whether a message was done at its first hand-out, and nothing else is known of it.
fn is_plainly_completed(message: &Message) -> bool {
    let (Some(hand_out), [attempt]) = (&message.hand_out, &message.history[..]) else { return false };
    message.phase == Phase::Succeeded
        && is_first_life(message)
        && message.dead_reason.is_none()
        && message.deliveries == 1
        && message.first_started == Some(hand_out.started)
        && message.finished.is_some()
        && hand_out.settled == Some(AttemptOutcome::Succeeded)
        && attempt.outcome == AttemptOutcome::Succeeded
        && attempt.delivery == 1
        && attempt.holder == hand_out.holder
        && attempt.started == hand_out.started
        && attempt.failure.is_none()
}

fn is_first_life(message: &Message) -> bool {
    message.place == message.seq.0 && message.attempts == 0 && message.deliveries_before == 0
}

#[cfg(test)]
pub(in crate::pond) mod tests {
    use super::Resting;
    use crate::identity::Seq;
    use crate::message::{
        Attempt, AttemptOutcome, Callback, CallbackWish, Criticality, DeadReason, HandOut, Holder,
        IdempotencyKey, Message, Phase, QueueNumber,
    };
    use crate::name::Label;
    use crate::pond::slot::Slot;
    use crate::time::{Mono, Now, Wall};
    use proptest::prelude::*;
    use std::ops::Bound;
    use std::sync::Arc;

    fn callback(seq: u64) -> Callback {
        let context = vec![("traceparent".to_owned(), format!("{seq}"))];
        let wish = CallbackWish { address: format!("https://{seq}"), context };
        Callback { wish: Arc::new(wish), teller: seq.is_multiple_of(2).then_some(Seq(seq + 1)) }
    }

    /// A message that waits.
    pub(in crate::pond) fn slot(seq: u64, at: i64, delay: i64, size: u32, kind: u32) -> Slot {
        let label = |text: String| Label::new(&text).ok();
        let first_due = Wall(1_000_000_000 + at + delay);
        let message = Message {
            seq: Seq(seq),
            queue: QueueNumber(kind % 3),
            phase: if delay > 0 { Phase::Delayed } else { Phase::Ready },
            place: seq,
            size_bytes: size,
            criticality: Criticality::ALL[kind as usize % 4],
            tenant: (kind > 5).then(|| label(format!("t{kind}"))).flatten(),
            group: (kind > 9).then(|| label(format!("g{kind}"))).flatten(),
            consumer: None,
            accepted: Wall(1_000_000_000 + at),
            first_due,
            due: first_due,
            expires: Wall(1_000_000_000 + at + 5_000_000 + i64::from(kind)),
            attempts: 0,
            deliveries: 0,
            deliveries_before: 0,
            hand_out: None,
            first_started: None,
            finished: None,
            dead_reason: None,
            key: kind.is_multiple_of(4).then_some(IdempotencyKey { key: seq.into(), payload: 3 }),
            callback: (kind % 5 == 2).then(|| callback(seq)),
            result: None,
            history: Vec::new(),
        };
        let due_since = Mono(at + delay);
        let mut slot = Slot::new(message, due_since);
        slot.visible = true;
        slot.expiry_timer = Some(Mono(at + 5_000_000 + i64::from(kind)));
        slot.phase_timer = (delay > 0).then_some(due_since);
        slot
    }

    /// The same message, completed by its first hand-out.
    fn completed(mut slot: Slot, took: i64, kind: u32) -> Slot {
        let message = &mut slot.message;
        let started = message.first_due;
        let finished = Wall(started.0 + took);
        message.phase = Phase::Succeeded;
        message.deliveries = 1;
        message.consumer = (kind % 2 == 1).then(|| Label::new("worker").unwrap());
        message.first_started = Some(started);
        message.finished = Some(finished);
        message.due = Wall(finished.0 + 60_000_000);
        message.result = (!kind.is_multiple_of(3)).then(|| (format!("text/{}", kind % 3), 17));
        let till = crate::name::Name::new("till").unwrap();
        let holder = if kind.is_multiple_of(2) { Holder::Push(till) } else { Holder::Worker };
        message.hand_out = Some(HandOut {
            epoch: kind,
            started,
            until: Wall(started.0 + 30_000_000),
            holder: holder.clone(),
            settled: Some(AttemptOutcome::Succeeded),
        });
        message.history = vec![Attempt {
            delivery: 1,
            holder,
            started,
            micros: took.unsigned_abs() + u64::from(kind % 2),
            outcome: AttemptOutcome::Succeeded,
            failure: None,
        }];
        slot.expiry_timer = None;
        slot.phase_timer = Some(Mono(finished.0 - 1_000_000_000 + 60_000_000));
        slot
    }

    /// The same message, at its end before anyone had it.
    fn ended(mut slot: Slot, lasted: i64, kind: u32) -> Slot {
        let message = &mut slot.message;
        let ends = [Phase::Dead, Phase::Expired, Phase::Cancelled, Phase::Dropped];
        message.phase = ends[kind as usize % 4];
        message.dead_reason = (message.phase == Phase::Dead).then_some(DeadReason::Expired);
        let finished = Wall(message.accepted.0 + lasted);
        message.finished = Some(finished);
        message.due = Wall(finished.0 + 60_000_000);
        slot.expiry_timer = None;
        slot.phase_timer = Some(Mono(finished.0 - 1_000_000_000 + 60_000_000));
        slot
    }

    fn same(one: &Slot, other: &Slot) {
        assert_eq!(one.message, other.message);
        assert_eq!(one.due_since, other.due_since);
        assert_eq!(one.expiry_timer, other.expiry_timer);
        assert_eq!(one.phase_timer, other.phase_timer);
        assert!(one.visible && other.visible);
    }

    #[test]
    fn a_waiting_message_takes_few_bytes_whatever_its_size() {
        let mut resting = Resting::default();
        let mut chance = fastrand::Rng::with_seed(1);
        for seq in 1..=100_000_u32 {
            let at = i64::from(seq) * 20 + chance.i64(0..20);
            assert!(resting.lay_down(&slot(seq.into(), at, 0, 200 + chance.u32(0..800), 1)));
        }
        let each = resting.waiting.heap_bytes() as f64 / 100_000.0;
        assert!(each < 7.0, "{each} bytes each");
        for seq in (1..=100_000).filter(|seq| seq % 50 != 0) {
            assert!(resting.take(Seq(seq)).is_some());
        }
        let each = resting.waiting.heap_bytes() as f64 / 2_000.0;
        assert!(each < 60.0, "{each} bytes each when one in fifty is left");
        for seq in (50..=100_000).step_by(50) {
            assert!(resting.take(Seq(seq)).is_some());
        }
        assert!(resting.is_empty());
        assert_eq!((resting.waiting.heap_bytes(), resting.waiting.kinds().count()), (0, 0));
    }

    #[test]
    fn a_completed_message_takes_few_bytes_while_its_status_is_kept() {
        let mut resting = Resting::default();
        let mut chance = fastrand::Rng::with_seed(1);
        for seq in 1..=100_000_u32 {
            let slot = slot(seq.into(), i64::from(seq) * 2_000, 0, 200 + chance.u32(0..800), 1);
            assert!(resting.lay_down(&completed(slot, chance.i64(70_000..90_000), 1)));
        }
        let each = resting.completed.heap_bytes() as f64 / 100_000.0;
        assert!(each < 18.0, "{each} bytes each");
    }

    #[test]
    fn a_message_that_ended_before_anyone_had_it_takes_few_bytes() {
        let mut resting = Resting::default();
        let mut chance = fastrand::Rng::with_seed(1);
        for seq in 1..=100_000_u32 {
            let slot = slot(seq.into(), i64::from(seq) * 2_000, 0, 200 + chance.u32(0..800), 1);
            assert!(resting.lay_down(&ended(slot, 5_000_000 + chance.i64(0..90_000), 3)));
        }
        let each = resting.ended.heap_bytes() as f64 / 100_000.0;
        assert!(each < 14.0, "{each} bytes each");
    }

    #[test]
    fn what_something_has_happened_to_does_not_rest() {
        let touched: [fn(&mut Slot); 9] = [
            |slot| slot.message.attempts = 1,
            |slot| slot.message.deliveries = 1,
            |slot| slot.message.deliveries_before = 1,
            |slot| slot.message.place += 1,
            |slot| slot.message.phase = Phase::Leased,
            |slot| slot.message.due.0 += 1,
            |slot| slot.visible = false,
            |slot| slot.watchers.push(crate::command::RequestId(1)),
            |slot| slot.expiry_timer = None,
        ];
        for touch in touched {
            let mut slot = slot(7, 0, 0, 1, 1);
            touch(&mut slot);
            let mut resting = Resting::default();
            assert!(!resting.lay_down(&slot), "{slot:?}");
            assert!(resting.is_empty());
        }
    }

    #[test]
    fn restored_messages_stand_on_the_new_clock() {
        let mut resting = Resting::default();
        for seq in 1..=3 {
            assert!(resting.restore(&slot(seq, i64::try_from(seq).unwrap() * 1000, 0, 9, 1).message));
        }
        let now = Now { wall: Wall(1_000_002_500), mono: Mono(500) };
        let future = resting.start_clock(now);
        assert_eq!(future.iter().map(|slot| slot.message.seq).collect::<Vec<_>>(), [Seq(3)]);
        assert_eq!(resting.get(Seq(1)).unwrap().due_since, Mono(-1000));
        assert_eq!(resting.get(Seq(2)).unwrap().due_since, Mono(0));
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(
            steps in prop::collection::vec((1..5000_u64, any::<bool>(), 0..9_000_000_i64,
                prop_oneof![2 => Just(0_i64), 1 => 1..100_i64], any::<u32>(), 0..14_u32), 1..300)
        ) {
            let mut resting = Resting::default();
            let mut known = std::collections::BTreeMap::new();
            for (seq, lay_down, at, delay, size, kind) in steps {
                if lay_down && !known.contains_key(&seq) {
                    let slot = slot(seq, at, delay, size, kind);
                    known.insert(seq, match size % 3 {
                        0 => completed(slot, delay * 900 - 9, kind),
                        1 => ended(slot, delay * 700 - 9, kind),
                        _ => slot,
                    });
                    prop_assert!(resting.lay_down(&known[&seq]));
                } else if let Some(slot) = known.remove(&seq) {
                    same(&resting.take(Seq(seq)).unwrap(), &slot);
                    prop_assert!(resting.take(Seq(seq)).is_none());
                }
                let kept = resting.waiting.len() + resting.completed.len() + resting.ended.len();
                prop_assert_eq!(kept, known.len());
            }
            let after = Seq(1500);
            let numbers: Vec<u64> = resting.numbers_from(Bound::Excluded(after)).map(|seq| seq.0).collect();
            let wanted: Vec<u64> = known.range(1501..).map(|(&seq, _)| seq).collect();
            prop_assert_eq!(numbers, wanted);
            for (&seq, slot) in &known {
                same(&resting.get(Seq(seq)).unwrap(), slot);
            }
        }
    }
}
