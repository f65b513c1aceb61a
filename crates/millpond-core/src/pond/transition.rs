//! The transitions of a message's life, each in one place.
//!
//! Owns that membership, counts and timers follow the phase at every step. Must never check a permission:
//! callers have done that.

use super::groups::Parting;
use super::timers::Timer;
use super::{Gated, Pond};
use crate::command::{Effect, OpNumber};
use crate::identity::Seq;
use crate::message::{
    Attempt, AttemptOutcome, DeadReason, Failure, Message, Phase, QueueNumber, SharedContent,
};
use crate::record::Record;
use crate::settings::OnExpiry;
use crate::time::{Mono, Now, Wall};
use std::time::Duration;

impl Pond {
    /// Moves a message to `phase`, which ends by itself at `timer`. `change` may touch what belongs to the
    /// phase; it runs while the message is counted nowhere.
    pub(super) fn shift(
        &mut self,
        seq: Seq,
        phase: Phase,
        timer: Option<Mono>,
        change: impl FnOnce(&mut super::Slot),
    ) {
        let slot = self.slots.get_mut(seq).expect("the caller has looked it up");
        let queue = &mut self.queues[slot.message.queue.0 as usize];
        let was_over = slot.message.phase.is_terminal();
        if !slot.watchers.is_empty() {
            self.moved.push(seq);
        }
        queue.leave(slot);
        self.load.leave(&slot.message);
        if let Some(at) = slot.phase_timer.take() {
            self.timers.clear(at, Timer::Phase(seq));
        }
        slot.message.phase = phase;
        change(slot);
        if let Some(at) = timer {
            slot.phase_timer = Some(at);
            self.timers.set(at, Timer::Phase(seq));
        }
        if phase.is_terminal() {
            if let Some(at) = slot.expiry_timer.take() {
                self.expiries.clear(seq, at, slot.message.ttl_micros());
            }
            queue.calibration.withdraw(seq);
            queue.overdue.remove(seq.0);
            if !was_over && let Some(group) = &slot.message.group {
                queue.groups.note_over(group, slot.message.place);
            }
        }
        if was_over {
            queue.join_group(slot);
        }
        queue.enter(slot);
        self.load.enter(&slot.message);
        queue.tell(&mut self.targets);
        let (number, owes) = (queue.number, slot.message.callback.is_some());
        if owes {
            self.note_owing(number);
        }
        if phase.is_terminal() {
            // One that could not be forgotten so far.
            self.forget_oldest_key(number, self.queue_ref(number).settings.max_keys);
            self.room_may_be_free(number);
            self.expire_overdue(number);
        }
    }

    /// How many of the messages that have expired may go now.
    fn room_for_expired(&self, number: QueueNumber) -> u64 {
        self.queue_ref(number).room_for_expired().min(self.disk_room())
    }

    /// There may be room for those that have expired, who are due again then.
    pub(super) fn expire_overdue(&mut self, number: QueueNumber) {
        let room = self.room_for_expired(number);
        let queue = &mut self.queues[number.0 as usize];
        for _ in 0..room {
            let Some(first) = queue.overdue.min() else { return };
            queue.overdue.remove(first);
            let slot = self.slots.get(Seq(first)).expect("what is overdue is kept");
            let at = slot.expiry_timer.expect("it has not been seen to");
            self.expiries.set(Seq(first), at, slot.message.ttl_micros());
        }
    }

    /// Lets a message be handed out if its way into `ready` is durable. It may have died and been replayed
    /// since the record that became durable now: then a later one shows it.
    pub(super) fn show(&mut self, seq: Seq, now: Now) {
        let durable = self.durable;
        let Some(slot) = self.slots.get_mut(seq) else { return };
        if slot.visible || slot.op > durable {
            return;
        }
        let queue = &mut self.queues[slot.message.queue.0 as usize];
        queue.leave(slot);
        slot.visible = true;
        queue.enter(slot);
        queue.tell(&mut self.targets);
        let (phase, number) = (slot.message.phase, slot.message.queue);
        self.slots.may_rest(seq, self.durable);
        if phase == Phase::Ready {
            self.serve(number, now);
        }
    }

    /// A message's phase has ended by itself.
    pub(super) fn phase_over(&mut self, seq: Seq, now: Now) {
        let Some(slot) = self.slots.get_mut(seq) else { return };
        slot.phase_timer = None;
        match slot.message.phase {
            Phase::Delayed | Phase::Backoff => {
                let number = slot.message.queue;
                self.shift(seq, Phase::Ready, None, |_| {});
                self.serve(number, now);
            }
            Phase::Leased => self.lease_ran_out(seq, now),
            Phase::Succeeded | Phase::Dead | Phase::Expired | Phase::Cancelled | Phase::Dropped => {
                self.forget(seq, now);
            }
            Phase::Ready => unreachable!("a ready message has no phase timer"),
        }
    }

    fn lease_ran_out(&mut self, seq: Seq, now: Now) {
        let slot = self.slot_mut(seq);
        let outcome =
            if slot.restored_lease { AttemptOutcome::Interrupted } else { AttemptOutcome::LeaseExpired };
        // A call that was never reported may still be at work: it holds its place as after a time-out.
        self.free_call(seq, true, None, now);
        let attempt = self.end_attempt(seq, outcome, None, now);
        self.give_back(seq, &attempt, None, now);
    }

    /// Keeps a target's place occupied for `hold` longer.
    pub(super) fn hold(&mut self, target: usize, hold: Duration, now: Now) {
        self.holds += 1;
        self.timers.set(now.mono.plus(hold), Timer::Hold(target, self.holds));
    }

    /// Describes the hand-out that ends now and counts it.
    pub(super) fn end_attempt(
        &mut self,
        seq: Seq,
        outcome: AttemptOutcome,
        mut failure: Option<Failure>,
        now: Now,
    ) -> Attempt {
        if let Some(failure) = failure.as_mut().filter(|_| !self.storage.takes_new_work()) {
            failure.shorten();
        }
        let slot = self.slots.get_mut(seq).expect("the caller has looked it up");
        let hand_out = slot.message.hand_out.as_ref().expect("only what was handed out can come back");
        let holder = hand_out.holder.clone();
        let micros = u64::try_from(now.mono.since(slot.started).as_micros()).unwrap_or(u64::MAX);
        self.queues[slot.message.queue.0 as usize].totals.ended(outcome);
        // By the clock of now, which may have been set since: a wait that begins here is measured from its end.
        let started = Wall(now.wall.0.saturating_sub_unsigned(micros));
        Attempt { delivery: slot.message.delivery(), holder, started, micros, outcome, failure }
    }

    /// Notes an ended hand-out in the message. If its holder settled it, its receipt is spent.
    pub(super) fn note_attempt(message: &mut Message, attempt: &Attempt, at: Wall) {
        if attempt.outcome.is_attempt() && attempt.outcome != AttemptOutcome::Succeeded {
            message.attempts += 1;
        }
        if let Some(hand_out) = &mut message.hand_out {
            hand_out.until = at;
            hand_out.settled = attempt.outcome.is_by_holder().then_some(attempt.outcome);
        }
        if message.history.len() == Message::HISTORY_MAX {
            message.history.remove(0);
        }
        message.history.push(attempt.clone());
    }

    /// Puts a message back to work after a hand-out that did not complete it, or gives it up. Returns the
    /// record to wait for.
    pub(super) fn give_back(
        &mut self,
        seq: Seq,
        attempt: &Attempt,
        delay: Option<Duration>,
        now: Now,
    ) -> OpNumber {
        let slot = self.slots.get_mut(seq).expect("the caller has looked it up");
        let queue = &self.queues[slot.message.queue.0 as usize];
        let retry = &queue.settings.retry;
        let attempts = slot.message.attempts + u32::from(attempt.outcome.is_attempt());
        if attempt.outcome.is_attempt() && attempts >= retry.max_attempts {
            return self.die(seq, Some(attempt), DeadReason::AttemptsExhausted, now);
        }
        if slot.message.deliveries >= retry.deliveries_max() {
            return self.die(seq, Some(attempt), DeadReason::DeliveriesExhausted, now);
        }
        if slot.expiry_timer.is_none() {
            // Its time to live ran out while somebody had it.
            return self.expire(seq, Some(attempt), now);
        }
        let delay = match (delay, attempt.outcome) {
            (Some(delay), _) => delay,
            (None, AttemptOutcome::Failed | AttemptOutcome::TimedOut) => {
                retry.backoff(attempts, self.chance.f64())
            }
            (None, _) => Duration::ZERO,
        };
        let due = (!delay.is_zero()).then(|| now.wall.plus(delay));
        let op =
            self.emit_about(seq, Record::Returned { seq, attempt: Some(attempt.clone()), due, at: now.wall });
        self.apply_return(seq, attempt, delay, op, now);
        op
    }

    fn apply_return(&mut self, seq: Seq, attempt: &Attempt, delay: Duration, op: OpNumber, now: Now) {
        let number = self.slot(seq).message.queue;
        let (phase, timer) =
            if delay.is_zero() { (Phase::Ready, None) } else { (Phase::Backoff, Some(now.mono.plus(delay))) };
        self.shift(seq, phase, timer, |slot| {
            slot.visible = false;
            slot.restored_lease = false;
            slot.message.due = now.wall.plus(delay);
            Self::note_attempt(&mut slot.message, attempt, now.wall);
        });
        self.when_durable(op, Gated::Show(seq), now);
        // The place in the queue's cap is free.
        self.serve(number, now);
    }

    /// Makes a message a dead letter.
    pub(super) fn die(
        &mut self,
        seq: Seq,
        attempt: Option<&Attempt>,
        reason: DeadReason,
        now: Now,
    ) -> OpNumber {
        let number = self.slot(seq).message.queue;
        let retention = self.queue_ref(number).settings.dead_letter.retention;
        let kept_until = now.wall.plus(retention);
        let teller = self.take_teller(seq);
        let record =
            Record::Died { seq, attempt: attempt.cloned(), reason, at: now.wall, kept_until, teller };
        let mut op = self.emit_with(seq, record, teller.is_some());
        let queue = self.queue_mut(number);
        queue.totals.dead += 1;
        let forget_at = now.mono.plus(retention);
        self.shift(seq, Phase::Dead, Some(forget_at), |slot| {
            slot.visible = true;
            slot.restored_lease = false;
            slot.message.finished = Some(now.wall);
            slot.message.due = kept_until;
            slot.message.dead_reason = Some(reason);
            slot.message.told_by(teller);
            if let Some(attempt) = attempt {
                Self::note_attempt(&mut slot.message, attempt, now.wall);
            }
        });
        if let Some(teller) = teller {
            op = self.tell_end(seq, teller, None, now);
        }
        self.note_death(number, reason, now);
        self.when_durable(op, Gated::Ended(seq), now);
        self.part_when_durable(seq, op, now);
        self.serve(number, now);
        op
    }

    /// Ends a message's life as `succeeded`, `cancelled`, `expired` or `dropped`, with what is kept of it.
    pub(super) fn end(
        &mut self,
        seq: Seq,
        phase: Phase,
        attempt: Option<&Attempt>,
        content: Option<SharedContent>,
        now: Now,
    ) -> OpNumber {
        let number = self.slot(seq).message.queue;
        let op = self.end_unserved(seq, phase, attempt, content, now);
        self.serve(number, now);
        op
    }

    /// The same, but nothing is handed out yet: of several that end together, nobody may get one on the way.
    pub(super) fn end_unserved(
        &mut self,
        seq: Seq,
        phase: Phase,
        attempt: Option<&Attempt>,
        content: Option<SharedContent>,
        now: Now,
    ) -> OpNumber {
        let number = self.slot(seq).message.queue;
        let retention = self.queue_ref(number).settings.result_retention;
        let forget_at = now.mono.plus(retention);
        let teller = self.take_teller(seq);
        self.shift(seq, phase, Some(forget_at), |slot| {
            slot.visible = true;
            slot.restored_lease = false;
            slot.message.finished = Some(now.wall);
            slot.message.due = now.wall.plus(retention);
            slot.message.result =
                content.as_ref().map(|content| (content.content_type.clone(), content.body.len() as u64));
            slot.message.told_by(teller);
            if let Some(attempt) = attempt {
                Self::note_attempt(&mut slot.message, attempt, now.wall);
            }
        });
        let message = Box::new(self.slot(seq).message.clone());
        let result = content.clone().filter(|_| teller.is_some());
        let mut op = self.emit_with(seq, Record::Message { message, content }, teller.is_some());
        if let Some(teller) = teller {
            op = self.tell_end(seq, teller, result.as_deref(), now);
        }
        self.when_durable(op, Gated::Ended(seq), now);
        self.part_when_durable(seq, op, now);
        op
    }

    /// Lets the group of a message whose life is over go on, but not before that is durable: a crash could bring the
    /// message back, beside the next one or behind it.
    fn part_when_durable(&mut self, seq: Seq, op: OpNumber, now: Now) {
        let slot = self.slot(seq);
        let (queue, place) = (slot.message.queue, slot.message.place);
        if let Some(group) = slot.message.group.clone()
            && self.queue_ref(queue).groups.before(&group, place).is_some()
        {
            self.when_durable(op, Gated::Parted(Box::new(Parting { queue, group, place })), now);
        }
    }

    /// A group goes on without one of its members.
    pub(super) fn part(&mut self, parting: &Parting, now: Now) {
        let Parting { queue: number, group, place } = parting;
        let queue = &mut self.queues[number.0 as usize];
        if let Some(place) = queue.groups.part(group, *place)
            && let Some(next) = self.slots.get(queue.ready.seq_at(place))
            // The one at that place may have ended too, and be somewhere else by now.
            && next.message.place == place
        {
            queue.unblock(&next);
        }
        queue.tell(&mut self.targets);
        self.serve(*number, now);
    }

    /// A message's time to live is over. One that is leased may still be completed.
    pub(super) fn expiry_due(&mut self, seq: Seq, now: Now) {
        let Some(slot) = self.slots.get(seq) else { return };
        let (phase, number) = (slot.message.phase, slot.message.queue);
        let waits = matches!(phase, Phase::Delayed | Phase::Ready | Phase::Backoff);
        if waits && self.room_for_expired(number) == 0 {
            // It stays what it is, and counts against the queue's bounds: else, dead letters would grow for as long as
            // work comes in, with nobody to look after them; and on a full disk the records of many that expire at once
            // would take the room that it takes to win room back.
            self.queue_mut(number).overdue.insert(seq.0);
            return;
        }
        self.slot_mut(seq).expiry_timer = None;
        match phase {
            Phase::Delayed | Phase::Ready | Phase::Backoff => {
                self.take_disk_room();
                self.expire(seq, None, now);
            }
            Phase::Leased
            | Phase::Succeeded
            | Phase::Dead
            | Phase::Expired
            | Phase::Cancelled
            | Phase::Dropped => {}
        }
    }

    pub(super) fn expire(&mut self, seq: Seq, attempt: Option<&Attempt>, now: Now) -> OpNumber {
        let number = self.slot(seq).message.queue;
        let queue = self.queue_mut(number);
        queue.totals.expired += 1;
        match queue.settings.on_expiry {
            OnExpiry::DeadLetter => self.die(seq, attempt, DeadReason::Expired, now),
            OnExpiry::Drop => self.end(seq, Phase::Expired, attempt, None, now),
        }
    }

    /// Keeps nothing of a message any more.
    pub(super) fn forget(&mut self, seq: Seq, now: Now) {
        // Its end may not be durable yet: those who wait for it hear of it then, and not in vain.
        let watchers = self.slots.get_mut(seq).map(|slot| std::mem::take(&mut slot.watchers));
        for request in watchers.unwrap_or_default() {
            if self.stop_waiting(request).is_some() {
                self.reply_status(request, seq, now);
            }
        }
        let Some(slot) = self.slots.remove(seq) else { return };
        let queue = &mut self.queues[slot.message.queue.0 as usize];
        queue.leave(&slot);
        self.load.leave(&slot.message);
        queue.kept -= 1;
        queue.tell(&mut self.targets);
        if let Some(at) = slot.phase_timer {
            self.timers.clear(at, Timer::Phase(seq));
        }
        if let Some(at) = slot.expiry_timer {
            self.expiries.clear(seq, at, slot.message.ttl_micros());
        }
        self.forget_key(&slot.message);
        self.room_may_be_free(slot.message.queue);
        self.effects.push(Effect::Forget(seq));
        if slot.message.phase == Phase::Dead {
            // There is room among the dead letters. What has expired takes it first, and what is left is seen to then.
            let number = slot.message.queue;
            let takes_it_first = self.queue_ref(number).overdue.min().is_some();
            self.note_dead_letters(number, now);
            if !takes_it_first {
                self.serve(number, now);
            }
        }
    }
}
