//! The end of hand-outs: what workers and calls say of them, and whether they may.
//!
//! Owns fencing: only the latest holder of a message decides, and late only while nobody else was handed it.

use super::{Gated, Pond};
use crate::command::OpNumber;
use crate::command::{CallOutcome, Reply, RequestId, SettleError, SettleOutcome, Settlement};
use crate::identity::{Receipt, Seq};
use crate::message::{AttemptOutcome, Content, DeadReason, Failure, HandOut, Holder, Phase, SharedContent};
use crate::record::Record;
use crate::settings::{DELAY_MAX, LEASE_TOTAL_MAX};
use crate::time::{Now, Wall};
use std::sync::Arc;
use std::time::Duration;

/// The wall clock has been set, and has not just drifted, when it has moved by more against the monotonic one.
const CLOCK_SET_MICROS: u64 = 1_000_000;

/// What a receipt is still good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its holder has the message.
    Holding,
    /// Its lease ran out, but nobody else was handed the message.
    RanOut,
    /// It was settled before, like this.
    Settled(AttemptOutcome),
    /// Good for nothing.
    Lost,
}

/// A place at a target that a call has left.
pub(super) struct Freed {
    /// The target, which need not be the queue's any more.
    target: usize,
    /// The call tried a target that is down, and failed: its message comes back after so long at least.
    failed_probe: Option<Duration>,
}

impl Pond {
    fn standing(&self, receipt: Receipt) -> Standing {
        let Some(slot) = self.slots.get(receipt.seq) else { return Standing::Lost };
        let message = &slot.message;
        if receipt.delivery > message.delivery() && receipt.epoch + 1 == self.epoch {
            // The record of that hand-out was lost with the power. Nobody was handed the message since, or its
            // number of deliveries would have caught up. That says nothing about hand-outs of earlier boots:
            // another one may have been lost after them.
            return if message.phase.is_terminal() { Standing::Lost } else { Standing::Holding };
        }
        let Some(hand_out) = &message.hand_out else { return Standing::Lost };
        if receipt.epoch != hand_out.epoch || receipt.delivery != message.delivery() {
            return Standing::Lost;
        }
        match hand_out.settled {
            Some(outcome) => Standing::Settled(outcome),
            None if message.phase == Phase::Leased => Standing::Holding,
            None if message.phase.is_terminal() => Standing::Lost,
            None => Standing::RanOut,
        }
    }

    /// Notes a hand-out whose record was lost, so that what follows counts from it.
    fn recall_hand_out(&mut self, receipt: Receipt, now: Now) {
        let slot = self.slot_mut(receipt.seq);
        let behind = receipt.delivery.saturating_sub(slot.message.delivery());
        if behind > 0 {
            slot.message.deliveries += behind;
            slot.message.first_started.get_or_insert(now.wall);
            slot.started = now.mono;
            let (epoch, holder, consumer) = (receipt.epoch, Holder::Worker, None);
            let record = Record::Leased {
                receipt,
                started: now.wall,
                until: now.wall,
                holder: holder.clone(),
                consumer,
            };
            slot.message.hand_out =
                Some(HandOut { epoch, started: now.wall, until: now.wall, holder, settled: None });
            // Who it was went with the record; it is not who had the message before.
            slot.message.consumer = None;
            self.emit(record, false);
        }
    }

    pub(super) fn settle(&mut self, request: RequestId, settlements: Vec<Settlement>, now: Now) {
        let mut durable_with = OpNumber(0);
        let mut results = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let seq = settlement.receipt.seq;
            let result = self.settle_one(settlement, now);
            if result.is_ok() {
                // A message that is gone by now ended durably before.
                durable_with = durable_with.max(self.slots.op(seq));
            }
            results.push(result);
        }
        self.reply_when_durable(durable_with, request, Reply::Settled(results), now);
    }

    fn settle_one(&mut self, settlement: Settlement, now: Now) -> Result<(), SettleError> {
        let Settlement { receipt, outcome } = settlement;
        let delay = match &outcome {
            SettleOutcome::Retry { delay, .. } | SettleOutcome::Release { delay } => *delay,
            SettleOutcome::Complete { .. } | SettleOutcome::Dead { .. } => None,
        };
        if delay.is_some_and(|delay| delay > DELAY_MAX) {
            return Err(SettleError::DelayTooLong);
        }
        let meant = match &outcome {
            SettleOutcome::Complete { .. } => AttemptOutcome::Succeeded,
            SettleOutcome::Retry { .. } => AttemptOutcome::Failed,
            SettleOutcome::Dead { .. } => AttemptOutcome::Dead,
            SettleOutcome::Release { .. } => AttemptOutcome::Released,
        };
        match self.standing(receipt) {
            // The same word again, because its answer was lost: nothing to do.
            Standing::Settled(before) if before == meant => return Ok(()),
            Standing::Settled(_) | Standing::Lost => return Err(SettleError::LeaseLost),
            Standing::RanOut if meant != AttemptOutcome::Succeeded => return Err(SettleError::LeaseLost),
            Standing::RanOut | Standing::Holding => {}
        }
        self.recall_hand_out(receipt, now);
        let freed = self.free_call(receipt.seq, false, None, now);
        match outcome {
            SettleOutcome::Complete { result } => self.complete(receipt.seq, result, now),
            SettleOutcome::Retry { failure, .. } => {
                let attempt = self.end_attempt(receipt.seq, AttemptOutcome::Failed, failure, now);
                self.give_back(receipt.seq, &attempt, delay, now);
            }
            SettleOutcome::Dead { failure } => self.reject(receipt.seq, failure, now),
            SettleOutcome::Release { .. } => {
                let attempt = self.end_attempt(receipt.seq, AttemptOutcome::Released, None, now);
                self.give_back(receipt.seq, &attempt, delay, now);
            }
        }
        if let Some(freed) = freed {
            self.serve_target(freed.target, now);
        }
        Ok(())
    }

    fn complete(&mut self, seq: Seq, result: Option<SharedContent>, now: Now) {
        let attempt = self.end_attempt(seq, AttemptOutcome::Succeeded, None, now);
        let slot = self.slot(seq);
        let number = slot.message.queue;
        // The time in which nothing ran is no service time.
        let began_here = slot.message.hand_out.as_ref().is_some_and(|hand_out| hand_out.epoch == self.epoch);
        let queue = self.queue_mut(number);
        queue.totals.completed += 1;
        queue.deaths.success();
        if began_here {
            let took = Duration::from_micros(attempt.micros);
            queue.totals.service.observe(took);
            queue.service.observe(took, now.mono);
        }
        queue.completions.count(1.0, now.mono);
        let waiting = queue.held.is_none() && queue.ready.has_eligible();
        queue.busy.note(waiting, 1, now.mono);
        let max_bytes = usize::try_from(queue.settings.result_max_bytes).unwrap_or(usize::MAX);
        // What room is left on a full disk is for outcomes; a result is dropped rather than the room for the next ones.
        let has_room = self.storage.takes_new_work();
        let result = result.filter(|_| has_room).map(|result| bounded(result, max_bytes));
        self.end(seq, Phase::Succeeded, Some(&attempt), result, now);
    }

    fn reject(&mut self, seq: Seq, failure: Option<Failure>, now: Now) {
        let attempt = self.end_attempt(seq, AttemptOutcome::Dead, failure, now);
        self.die(seq, Some(&attempt), DeadReason::Rejected, now);
    }

    /// A push call's place at its target becomes free: now, or once a call that nobody waits for any more is taken to be
    /// over. Its target learns from how it ended, as far as that was said. `None`: the hand-out was no call.
    pub(super) fn free_call(
        &mut self,
        seq: Seq,
        may_go_on: bool,
        outcome: Option<&CallOutcome>,
        now: Now,
    ) -> Option<Freed> {
        let slot = self.slots.get_mut(seq)?;
        let index = slot.occupies.take()?;
        // The time in which nothing ran is none of the target's.
        let began_here = slot.message.hand_out.as_ref().is_some_and(|hand_out| hand_out.epoch == self.epoch);
        let started = slot.started;
        let target = &mut self.targets[index];
        let inflight = target.occupied;
        let was = target.state();
        if !may_go_on {
            target.free();
        }
        if let Some(outcome) = outcome {
            if began_here {
                target.note_ending(outcome, started, inflight, now.mono);
            }
            target.note_outcome(outcome, now.mono);
        }
        let mut failed_probe = None;
        if began_here {
            let chance = &mut self.chance;
            failed_probe = target.leave(outcome, (started, inflight), || chance.f64(), now.mono).failed_probe;
        }
        if may_go_on {
            self.hold(index, self.targets[index].settings.hold(), now);
        }
        self.note_breaker(index, was, false, now);
        Some(Freed { target: index, failed_probe })
    }

    pub(super) fn call_ended(&mut self, receipt: Receipt, outcome: CallOutcome, now: Now) {
        let standing = self.standing(receipt);
        let current = matches!(standing, Standing::Holding | Standing::RanOut);
        if !current || (standing == Standing::RanOut && !matches!(outcome, CallOutcome::Succeeded { .. })) {
            return;
        }
        let seq = receipt.seq;
        let timed_out = matches!(outcome, CallOutcome::Failed { timed_out: true, .. });
        // A call that was given up in the middle may go on where it is worked on, like one that timed out.
        let may_go_on = timed_out || matches!(outcome, CallOutcome::Interrupted);
        let freed = self.free_call(seq, may_go_on, Some(&outcome), now);
        let failed_probe = freed.as_ref().and_then(|freed| freed.failed_probe);
        match outcome {
            CallOutcome::Succeeded { result } => self.complete(seq, result, now),
            CallOutcome::Throttled { failure, .. } => {
                // Its message waits again, and the time until now counts though nothing was done in it.
                let number = self.slot(seq).message.queue;
                let queue = self.queue_mut(number);
                queue.busy.note(queue.held.is_none(), 0, now.mono);
                self.return_call(seq, AttemptOutcome::Throttled, Some(failure), None, now);
            }
            CallOutcome::Failed { failure, .. } => {
                let delay = failed_probe.map(|least| self.probe_return(seq, least));
                let how = match delay {
                    Some(_) => AttemptOutcome::ProbeFailed,
                    None if timed_out => AttemptOutcome::TimedOut,
                    None => AttemptOutcome::Failed,
                };
                self.return_call(seq, how, Some(failure), delay, now);
            }
            CallOutcome::Dead { failure } => self.reject(seq, Some(failure), now),
            CallOutcome::Interrupted => {
                // Not by its holder's word: if the answer comes after all, it counts.
                let attempt = self.end_attempt(seq, AttemptOutcome::Interrupted, None, now);
                self.give_back(seq, &attempt, None, now);
            }
        }
        if let Some(freed) = freed {
            self.serve_target(freed.target, now);
        }
    }

    fn return_call(
        &mut self,
        seq: Seq,
        outcome: AttemptOutcome,
        failure: Option<Failure>,
        delay: Option<Duration>,
        now: Now,
    ) {
        let attempt = self.end_attempt(seq, outcome, failure, now);
        self.give_back(seq, &attempt, delay, now);
    }

    /// When a message comes back that a target was tried with in vain: not before others had their turn, nor sooner than
    /// after a failed attempt, but never later than its queue's longest backoff.
    fn probe_return(&mut self, seq: Seq, least: Duration) -> Duration {
        let message = &self.slot(seq).message;
        let (number, attempts) = (message.queue, message.attempts);
        let chance = self.chance.f64();
        let retry = &self.queue_ref(number).settings.retry;
        retry.backoff(attempts + 1, chance).max(least.min(retry.backoff_max))
    }

    /// Takes back a hand-out that reached nobody: it is as if it had not been.
    pub(super) fn undelivered(&mut self, receipt: Receipt, now: Now) {
        if self.standing(receipt) != Standing::Holding {
            return;
        }
        let seq = receipt.seq;
        let freed = self.free_call(seq, false, None, now);
        if self.slot(seq).expiry_timer.is_none() {
            // Its time to live ran out on the way.
            self.expire(seq, None, now);
        } else {
            self.return_untouched(seq, now);
        }
        if let Some(freed) = freed {
            self.serve_target(freed.target, now);
        }
    }

    fn return_untouched(&mut self, seq: Seq, now: Now) {
        let op = self.emit_about(seq, Record::Returned { seq, attempt: None, due: None, at: now.wall });
        let number = self.slot(seq).message.queue;
        self.shift(seq, Phase::Ready, None, |slot| {
            slot.visible = false;
            slot.restored_lease = false;
            super::restore::take_back(&mut slot.message);
        });
        self.when_durable(op, Gated::Show(seq), now);
        self.serve(number, now);
    }

    pub(super) fn extend(&mut self, request: RequestId, leases: &[(Receipt, Duration)], now: Now) {
        let results = leases.iter().map(|&(receipt, lease)| self.extend_one(receipt, lease, now)).collect();
        self.reply(request, Reply::Extended(results));
    }

    fn extend_one(&mut self, receipt: Receipt, lease: Duration, now: Now) -> Result<Wall, SettleError> {
        if self.standing(receipt) != Standing::Holding {
            return Err(SettleError::LeaseLost);
        }
        let seq = receipt.seq;
        let slot = self.slot(seq);
        if slot.message.phase != Phase::Leased {
            return Err(SettleError::LeaseLost);
        }
        let ends = now.mono.plus(lease);
        if ends > slot.started.plus(LEASE_TOTAL_MAX) {
            return Err(SettleError::TooLong);
        }
        let until = now.wall.plus(lease);
        let mut hand_out = slot.message.hand_out.clone().expect("a leased message has been handed out");
        let held = now.mono.since(slot.started);
        let started = Wall(now.wall.0.saturating_sub_unsigned(duration_micros(held)));
        if started.0.abs_diff(hand_out.started.0) > CLOCK_SET_MICROS {
            // The clock has been set since. A restart waits for an end no longer than from the beginning to there, so
            // both must be by one clock.
            let (holder, consumer) = (hand_out.holder.clone(), slot.message.consumer.clone());
            hand_out.started = started;
            self.emit(Record::Leased { receipt, started, until, holder, consumer }, false);
        } else {
            self.emit(Record::Extended { seq, until }, false);
        }
        hand_out.until = until;
        self.shift(seq, Phase::Leased, Some(ends), |slot| {
            slot.message.hand_out = Some(hand_out);
            // Its holder has come through the restart: what becomes of it now is its own doing.
            slot.restored_lease = false;
        });
        Ok(until)
    }
}

fn duration_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// `content` with at most `max_bytes` of body, and the mark of it if anything was cut.
fn bounded(content: SharedContent, max_bytes: usize) -> SharedContent {
    if content.body.len() <= max_bytes {
        return content;
    }
    let mut headers = content.headers.clone();
    if !headers.iter().any(|(name, _)| name == Content::TRUNCATED) {
        headers.push((Content::TRUNCATED.to_owned(), "true".to_owned()));
    }
    let content_type = content.content_type.clone();
    Arc::new(Content { content_type, headers, body: content.body.slice(..max_bytes) })
}

#[cfg(test)]
mod tests {
    use super::bounded;
    use crate::message::Content;
    use bytes::Bytes;
    use std::sync::Arc;

    #[test]
    fn a_cut_result_says_so_once_and_a_whole_one_does_not() {
        let whole = Arc::new(Content { body: Bytes::from_static(b"abcd"), ..Content::default() });
        assert_eq!(bounded(Arc::clone(&whole), 4), whole);
        let cut = bounded(bounded(whole, 3), 2);
        assert_eq!(cut.body, "ab");
        assert_eq!(cut.headers, [(Content::TRUNCATED.to_owned(), "true".to_owned())]);
    }
}
