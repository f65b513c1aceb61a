//! Looking without touching: status, lists, numbers; and waiting for the end of a message's life.
//!
//! Owns what is told. Must never tell what is not durable, nor consume anything.

use super::target::Target;
use super::{Gated, Pond, WAITING_MAX, WaitingFor};
use crate::command::{CancelError, LookupError, QueueError, Reply, RequestId, Status, TargetError};
use crate::identity::Seq;
use crate::message::{Phase, Progress, QueueNumber};
use crate::name::Name;
use crate::settings::WAIT_MAX;
use crate::stats::TargetStats;
use crate::time::Now;
use std::ops::Bound;
use std::time::Duration;

/// Messages looked at for one page of a list: a page can be short, or empty, though there is more.
const LIST_SCAN_MAX: usize = 20_000;
/// Most messages in one page.
const LIST_MAX: usize = 1000;
/// Requests that may wait for something of one message.
const WATCHERS_MAX: usize = 100;

impl Pond {
    fn look_up(&self, seq: Seq) -> Result<(), LookupError> {
        if self.slots.contains_key(seq) {
            Ok(())
        } else if seq.0 < self.next {
            Err(LookupError::Forgotten)
        } else {
            Err(LookupError::NeverIssued)
        }
    }

    /// What is told of a message that exists.
    pub(super) fn status_of(&self, seq: Seq, now: Now) -> Status {
        let slot = self.slot(seq);
        let queue = self.queue_ref(slot.message.queue);
        let outlook = self.outlook(slot.message.queue, now);
        let (position, promise) = self.foresee(&slot, outlook, now);
        let result_in = if slot.message.phase.is_terminal() {
            Duration::ZERO
        } else {
            self.result_in(slot.message.queue, promise)
        };
        Status { queue: queue.name.clone(), message: slot.into_message(), position, promise, result_in }
    }

    pub(super) fn reply_status(&mut self, request: RequestId, seq: Seq, now: Now) {
        let result = self.look_up(seq).map(|()| Box::new(self.status_of(seq, now)));
        let op = self.slots.op(seq);
        self.reply_when_durable(op, request, Reply::Status(result), now);
    }

    pub(super) fn status(&mut self, request: RequestId, seq: Seq, wait: Option<Duration>, now: Now) {
        let lives = self.slots.get(seq).is_some_and(|slot| !slot.message.phase.is_terminal());
        if lives {
            self.watch(request, seq, WaitingFor::End(seq), wait.unwrap_or_default(), now);
        } else {
            self.reply_status(request, seq, now);
        }
    }

    pub(super) fn follow(
        &mut self,
        request: RequestId,
        seq: Seq,
        known: Option<Progress>,
        wait: Duration,
        now: Now,
    ) {
        let progress = self.slots.get(seq).map(|slot| slot.message.progress());
        match known.filter(|_| progress == known) {
            Some(known) => self.watch(request, seq, WaitingFor::Change(seq, known), wait, now),
            None => self.reply_status(request, seq, now),
        }
    }

    /// Keeps a request until something happens to a message that is there, or answers it at once where there is no room.
    fn watch(&mut self, request: RequestId, seq: Seq, what: WaitingFor, wait: Duration, now: Now) {
        let wait = wait.min(WAIT_MAX);
        let room = self.waiting.len() < WAITING_MAX;
        if wait.is_zero() || !room || self.draining || self.slot(seq).watchers.len() >= WATCHERS_MAX {
            return self.reply_status(request, seq, now);
        }
        self.slot_mut(seq).watchers.push(request);
        self.start_waiting(request, what, now.mono.plus(wait));
    }

    /// Those who wait for a change of what this step has moved hear of it once it is durable.
    pub(super) fn tell_followers(&mut self, now: Now) {
        for seq in std::mem::take(&mut self.moved) {
            let Some(slot) = self.slots.get_mut(seq) else { continue };
            let progress = slot.message.progress();
            let waiting = &self.waiting;
            let is_news = |request: &mut RequestId| {
                let what = waiting.get(request).map(|waiting| waiting.what);
                matches!(what, Some(WaitingFor::Change(_, known)) if known != progress)
            };
            let told: Vec<RequestId> = slot.watchers.extract_if(.., is_news).collect();
            for request in told {
                self.stop_waiting(request);
                self.reply_status(request, seq, now);
            }
            self.slots.may_rest(seq, self.durable);
        }
    }

    /// The end of a message's life is durable: those who wait for it hear of it.
    pub(super) fn wake_watchers(&mut self, seq: Seq, now: Now) {
        let Some(slot) = self.slots.get_mut(seq) else { return };
        if !slot.message.phase.is_terminal() {
            return;
        }
        for request in std::mem::take(&mut slot.watchers) {
            if self.stop_waiting(request).is_some() {
                self.reply_status(request, seq, now);
            }
        }
    }

    pub(super) fn cancel(&mut self, request: RequestId, seq: Seq, now: Now) {
        let result = self.cancel_one(seq, now);
        let op = self.slots.op(seq);
        self.when_durable(op, Gated::Reply(request, Box::new(Reply::Cancelled(result))), now);
    }

    fn cancel_one(&mut self, seq: Seq, now: Now) -> Result<Box<Status>, CancelError> {
        self.look_up(seq)?;
        match self.slot(seq).message.phase {
            Phase::Delayed | Phase::Ready | Phase::Backoff => {}
            // Withdrawn twice is withdrawn.
            Phase::Cancelled => return Ok(Box::new(self.status_of(seq, now))),
            other => return Err(CancelError::NotCancellable(other)),
        }
        let number = self.slot(seq).message.queue;
        self.queue_mut(number).totals.cancelled += 1;
        self.end(seq, Phase::Cancelled, None, None, now);
        Ok(Box::new(self.status_of(seq, now)))
    }

    pub(super) fn list(
        &mut self,
        request: RequestId,
        queue: &Name,
        phase: Option<Phase>,
        after: Option<Seq>,
        limit: usize,
        now: Now,
    ) {
        let Some(number) = self.queue_named(queue) else {
            return self.reply(request, Reply::Messages(Err(QueueError::Unknown)));
        };
        let limit = limit.clamp(1, LIST_MAX);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = Vec::new();
        let mut go_on = None;
        if phase == Some(Phase::Dead) {
            for &seq in self.queue_ref(number).dead.range((from, Bound::Unbounded)) {
                if found.len() == limit {
                    go_on = found.last().copied();
                    break;
                }
                if self.slot(seq).op <= self.durable {
                    found.push(seq);
                }
            }
        } else {
            for (scanned, seq) in self.slots.numbers_from(from).enumerate() {
                let slot = self.slot(seq);
                if found.len() == limit || scanned == LIST_SCAN_MAX {
                    // Everything before this one has been looked at.
                    go_on = Some(Seq(seq.0 - 1));
                    break;
                }
                let durable = slot.op <= self.durable;
                let wanted = phase.is_none_or(|phase| phase == slot.message.phase);
                if slot.message.queue == number && wanted && durable {
                    found.push(seq);
                }
            }
        }
        let statuses = found.into_iter().map(|seq| self.status_of(seq, now)).collect();
        self.reply(request, Reply::Messages(Ok((statuses, go_on))));
    }

    pub(super) fn overview(&mut self, request: RequestId, now: Now) {
        let queues = self.names.values().map(|&number| self.view(number, now)).collect();
        self.reply(request, Reply::Overview(queues, self.all_target_stats(now)));
    }

    /// What is told of every target, in order.
    fn all_target_stats(&self, now: Now) -> Vec<TargetStats> {
        let mut queues: Vec<Vec<Name>> = vec![Vec::new(); self.targets.len()];
        for (name, &number) in &self.names {
            if let Some(target) = self.queue_ref(number).target {
                queues[target].push(name.clone());
            }
        }
        let of = |(target, queues): (&Target, Vec<Name>)| target.stats(queues, now.mono);
        self.targets.iter().zip(queues).map(of).collect()
    }

    pub(super) fn target_stats(&self, index: usize, now: Now) -> TargetStats {
        let own = |number: QueueNumber| self.queue_ref(number).target == Some(index);
        let queues = self.names.iter().filter(|(_, number)| own(**number)).map(|(name, _)| name.clone());
        self.targets[index].stats(queues.collect(), now.mono)
    }

    pub(super) fn targets(&mut self, request: RequestId, now: Now) {
        self.reply(request, Reply::Targets(self.all_target_stats(now)));
    }

    pub(super) fn target(&mut self, request: RequestId, name: &Name, now: Now) {
        let index = self.targets.iter().position(|target| target.name == *name);
        let result = index.map(|index| Box::new(self.target_stats(index, now))).ok_or(TargetError::Unknown);
        self.reply(request, Reply::Target(result));
    }

    pub(super) fn queue_view(&mut self, request: RequestId, queue: &Name, now: Now) {
        let result = match self.queue_named(queue) {
            Some(number) => Ok(Box::new(self.view(number, now))),
            None => Err(QueueError::Unknown),
        };
        self.reply(request, Reply::Queue(result));
    }
}

#[cfg(test)]
mod tests {
    use super::Pond;
    use crate::command::{Command, Declared, Effect, Input, NewMessage, RequestId};
    use crate::identity::Seq;
    use crate::name::Name;
    use crate::settings::QueueSettings;
    use crate::time::{Mono, Now, Wall};
    use std::time::Duration;

    const START: Now = Now { wall: Wall(1_800_000_000_000_000), mono: Mono(0) };

    fn handle(pond: &mut Pond, input: Input, now: Now) {
        pond.handle(input, now);
        loop {
            let mut appended = pond.effects().filter_map(|effect| match effect {
                Effect::Append { op, .. } => Some(op),
                _ => None,
            });
            let last = appended.next_back();
            drop(appended);
            let Some(op) = last else { return };
            pond.handle(Input::Durable(op), now);
        }
    }

    fn ask(pond: &mut Pond, request: u64, command: Command, now: Now) {
        handle(pond, Input::Command { request: RequestId(request), command }, now);
    }

    /// A pond that keeps nothing in full that may rest, with as many messages waiting.
    fn pond(waiting: usize) -> (Pond, Name) {
        let queue = Name::new("orders").expect("a name");
        let mut pond = Pond::new(1);
        pond.keep_in_full(0);
        let queues = vec![(queue.clone(), QueueSettings::default())];
        pond.open(Declared { targets: Vec::new(), queues }, START);
        handle(&mut pond, Input::Tick, START);
        for number in 0..waiting {
            let enqueue = Command::Enqueue { queue: queue.clone(), messages: vec![NewMessage::default()] };
            ask(&mut pond, number as u64 + 1, enqueue, START);
        }
        (pond, queue)
    }

    #[test]
    fn a_message_rests_again_once_nobody_waits_for_its_end() {
        let (mut pond, _) = pond(20);
        assert_eq!(pond.slots.awake().count(), 0);
        for seq in 1..=20 {
            let wait = Some(Duration::from_secs(seq));
            ask(&mut pond, 100 + seq, Command::Status { seq: Seq(seq), wait }, START);
        }
        assert_eq!(pond.slots.awake().count(), 20, "who waits is noted at the message");
        for request in 111..=120 {
            handle(&mut pond, Input::Abandon(RequestId(request)), START);
        }
        assert_eq!(pond.slots.awake().count(), 10);
        let later = Duration::from_secs(10);
        let now = Now { wall: START.wall.plus(later), mono: START.mono.plus(later) };
        handle(&mut pond, Input::Tick, now);
        assert_eq!(pond.slots.awake().count(), 0);
    }

    #[test]
    fn what_ends_before_anyone_had_it_rests_while_its_status_is_kept() {
        let (mut purged, queue) = pond(20);
        ask(&mut purged, 100, Command::Cancel(Seq(20)), START);
        ask(&mut purged, 101, Command::Purge(queue), START);
        handle(&mut purged, Input::Tick, START);
        assert_eq!((purged.slots.iter().count(), purged.slots.awake().count()), (20, 0));
        let (mut expired, _) = pond(20);
        let later = QueueSettings::default().retention;
        let now = Now { wall: START.wall.plus(later), mono: START.mono.plus(later) };
        handle(&mut expired, Input::Tick, now);
        assert_eq!((expired.slots.iter().count(), expired.slots.awake().count()), (20, 0));
    }
}
