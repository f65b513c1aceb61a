//! Everything that can be asked of a pond, with what the model says must come of it.
//!
//! Owns the prediction for each command. Must never look at an answer: the world compares.

use super::shape::{TARGETS, label, names};
use super::{Answer, Due, Fate, Position, World};
use crate::rig::name;
use bytes::Bytes;
use millpond_core::command::{
    CallOutcome, Command, Effect, Input, LeaseRequest, NewMessage, RequestId, SettleError, SettleOutcome,
    Settlement, StorageState,
};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, Criticality, IdempotencyKey, Phase};
use millpond_core::record::Record;
use millpond_core::settings::{Order, Overflow};
use millpond_testkit::model::{Ending, Labels, New, Sign, Taker, Verdict, ending_of};
use std::sync::Arc;
use std::time::Duration;

fn message(new: &New) -> NewMessage {
    let body = Bytes::from(vec![b'x'; usize::try_from(new.bytes).unwrap()]);
    let key = new.key.map(|(key, payload)| IdempotencyKey { key, payload });
    NewMessage {
        content: Arc::new(Content { body, ..Content::default() }),
        delay: new.delay,
        ttl: new.ttl,
        key,
        criticality: new.labels.class,
        tenant: new.labels.tenant.map(label),
        group: new.labels.group.map(label),
        callback: None,
    }
}

/// What the world's calls say of their target: those that fail were answered with 500, or not at all.
fn sign(outcome: &CallOutcome) -> Sign {
    match outcome {
        CallOutcome::Succeeded { .. } | CallOutcome::Dead { .. } => Sign::Up,
        CallOutcome::Failed { .. } => Sign::Down,
        CallOutcome::Throttled { .. } | CallOutcome::Interrupted => Sign::Nothing,
    }
}

impl World {
    pub(super) fn ask(&mut self, command: Command) -> RequestId {
        self.asked += 1;
        let request = RequestId(self.asked);
        self.handle(Input::Command { request, command });
        request
    }

    fn expect(&mut self, request: RequestId, answer: Answer, gates: &[u64]) {
        let decided = |seq: &u64| {
            let known = self.model.messages.get(seq)?;
            Some((*seq, known.decided_with))
        };
        let gates = gates.iter().filter_map(decided).collect();
        self.due.insert(request, Due { answer, gates, gate: 0 });
        self.end_step();
    }

    pub(crate) fn enqueue(&mut self, queue: usize, news: &[New]) {
        self.begin_step();
        let messages = news.iter().map(message).collect();
        let request = self.ask(Command::Enqueue { queue: names()[queue].clone(), messages });
        // The numbers that the pond has chosen are read off its records.
        let effects: Vec<Effect> = self.pond.effects().collect();
        let mut chosen = Vec::new();
        for effect in &effects {
            if let Effect::Append { record: Record::Message { message, .. }, .. } = effect
                && !self.model.history.contains_key(&message.seq.0)
                // One may be dropped again for another one of its batch.
                && !chosen.contains(&message.seq.0)
            {
                chosen.push(message.seq.0);
            }
        }
        let mut chosen = chosen.into_iter();
        let mut fates = Vec::new();
        for new in news {
            let verdict = self.model.judge(queue, new);
            let known = matches!(verdict, Verdict::Duplicate(_) | Verdict::Mismatch | Verdict::TooLarge);
            self.mark_refusal(queue, new, &verdict);
            if verdict == Verdict::Block && self.model.storage.takes_new_work() {
                self.join_line(queue, request, new);
                return self.take(effects);
            }
            fates.push(match verdict {
                _ if !known && !self.model.storage.takes_new_work() => Fate::StorageFull,
                Verdict::Duplicate(seq) => Fate::Duplicate { seq, phase: self.model.messages[&seq].phase },
                Verdict::Mismatch => Fate::Mismatch,
                Verdict::TooLarge => Fate::TooLarge,
                Verdict::Full => Fate::Full,
                Verdict::TooLate => Fate::TooLate,
                Verdict::AcceptOrTooLate => {
                    chosen.next().map_or(Fate::TooLate, |seq| self.accept(seq, queue, new))
                }
                Verdict::Accept => {
                    if !self.model.queues[queue].blocked.is_empty() {
                        self.model.mark("an enqueue passes by less critical ones that wait for room");
                    }
                    let seq = chosen.next().unwrap_or_else(|| panic!("{new:?} is refused"));
                    self.accept(seq, queue, new)
                }
                Verdict::AcceptFor(victims) => {
                    let seq = chosen.next().unwrap_or_else(|| panic!("{new:?} is refused"));
                    for victim in victims {
                        if !self.model.is_visible(victim) {
                            self.model.mark("a message is dropped before it is durable");
                        } else if self.model.is_blocked(victim) {
                            self.model.mark("a message is dropped behind its group's head");
                        }
                        self.model.drop_oldest(victim, self.now);
                    }
                    self.accept(seq, queue, new)
                }
                Verdict::Block => unreachable!("dealt with above"),
            });
        }
        assert_eq!(chosen.next(), None, "more is stored than was accepted");
        let gates = fates.iter().filter_map(|fate| match fate {
            Fate::Accepted { seq, .. } | Fate::Duplicate { seq, .. } => {
                Some((*seq, self.model.messages[seq].decided_with))
            }
            _ => None,
        });
        let gates = gates.collect();
        self.due.insert(request, Due { answer: Answer::Enqueued(fates), gates, gate: 0 });
        self.take(effects);
    }

    fn mark_refusal(&mut self, queue: usize, new: &New, verdict: &Verdict) {
        if *verdict != Verdict::Full {
            return;
        }
        if self.model.judge(queue, &New { key: None, ..*new }) == Verdict::Accept {
            self.model.mark("a new key is refused");
        }
        let labels = Labels { class: Criticality::CriticalPlus, ..new.labels };
        if self.model.judge(queue, &New { labels, ..*new }) == Verdict::Accept {
            self.model.mark("a class is refused what a higher one would get");
        }
        if self.model.queues[queue].settings.overflow == Overflow::DropOldest {
            self.model.mark("a message is refused, and dropping others would not help");
        }
    }

    fn accept(&mut self, seq: u64, queue: usize, new: &New) -> Fate {
        let ahead = self.model.of(queue, Phase::Ready).count() as u64;
        let position = match self.model.queues[queue].settings.order {
            _ if !new.delay.is_zero() => Position::Unknown,
            Order::Lifo => Position::Unknown,
            _ if self.model.is_uniform(queue) && new.labels == Labels::default() => Position::Exactly(ahead),
            Order::Fifo | Order::Adaptive => Position::AtMost(self.model.unfinished(queue).0),
        };
        self.model.accept(seq, queue, new, self.now);
        Fate::Accepted { seq, position }
    }

    pub(crate) fn lease(
        &mut self,
        (queue, max): (usize, usize),
        lease: Option<Duration>,
        wait: Duration,
        consumer: Option<u8>,
    ) {
        self.begin_step();
        let name = names()[queue].clone();
        let wish = LeaseRequest { queue: name, max, lease, wait, consumer: consumer.map(label) };
        let request = self.ask(Command::Lease(wish));
        let until = self.now.mono.plus(wait);
        self.expect(request, Answer::Leased { queue, max, until, consumer }, &[]);
    }

    pub(crate) fn abandon(&mut self, pick: usize) {
        let waiting: Vec<RequestId> = self
            .due
            .iter()
            .filter(|(_, due)| matches!(due.answer, Answer::Leased { .. } | Answer::Blocked { .. }))
            .map(|(request, _)| *request)
            .collect();
        let Some(&request) = waiting.get(pick % waiting.len().max(1)) else { return };
        self.begin_step();
        let due = self.due.remove(&request).unwrap();
        for queue in &mut self.model.queues {
            queue.blocked.retain(|blocked| blocked.request != request.0);
        }
        if matches!(due.answer, Answer::Blocked { .. }) {
            self.model.mark("an enqueue leaves the line for room");
        }
        self.handle(Input::Abandon(request));
        self.end_step();
    }

    pub(crate) fn settle(&mut self, receipt: Receipt, outcome: &SettleOutcome) {
        self.begin_step();
        let (ending, delay) = ending_of(outcome);
        let allowed = self.model.may_settle(receipt, ending);
        if allowed == Some(true) {
            if let SettleOutcome::Complete { result: Some(result) } = outcome {
                self.bring_result(receipt, result);
            }
            self.model.settle(receipt, ending, delay, true, self.now);
        }
        let settlement = Settlement { receipt, outcome: outcome.clone() };
        let request = self.ask(Command::Settle(vec![settlement]));
        let answer = Answer::Settled(allowed.map(|_| ()).ok_or(SettleError::LeaseLost));
        let gates: &[u64] = if allowed.is_some() { &[receipt.seq.0] } else { &[] };
        self.expect(request, answer, gates);
    }

    /// A result comes with an end, and is kept where the disk has room for it.
    fn bring_result(&mut self, receipt: Receipt, result: &Content) {
        if self.model.storage.takes_new_work() {
            let bytes = result.body.len() as u64;
            self.model.bring_result(receipt, &result.content_type, bytes, self.now);
        } else {
            self.model.mark("a full disk has no room for a result");
        }
    }

    pub(crate) fn extend(&mut self, receipt: Receipt, lease: Duration) {
        self.begin_step();
        let allowed = self.model.may_extend(receipt, lease, self.now) == Some(true);
        if allowed {
            self.model.extend(receipt, lease, self.now);
        }
        let request = self.ask(Command::Extend(vec![(receipt, lease)]));
        self.expect(request, Answer::Extended(allowed), &[]);
    }

    pub(crate) fn cancel(&mut self, seq: u64) {
        self.begin_step();
        let phase = self.model.messages.get(&seq).map(|message| message.phase);
        let expected = if self.model.may_cancel(seq) == Some(true) {
            self.model.cancel(seq, self.now);
            // As it is now: its key may be forgotten for a new one before that is told.
            Ok(Box::new(self.model.messages[&seq].clone()))
        } else {
            Err(phase)
        };
        let request = self.ask(Command::Cancel(Seq(seq)));
        self.expect(request, Answer::Cancelled(expected), &[seq]);
    }

    pub(crate) fn status(&mut self, seq: u64) {
        self.begin_step();
        let known = self.model.messages.get(&seq).cloned().map(Box::new);
        let request = self.ask(Command::Status { seq: Seq(seq), wait: None });
        self.expect(request, Answer::Status(known), &[seq]);
    }

    pub(crate) fn pause(&mut self, queue: usize, paused: bool) {
        self.begin_step();
        let model = &mut self.model.queues[queue];
        (model.paused, model.deaths) = (paused, 0);
        let request = self.ask(Command::Pause { queue: names()[queue].clone(), paused });
        let effects: Vec<Effect> = self.pond.effects().collect();
        let gate = self.paused_with(queue, &effects);
        self.due.insert(request, Due { answer: Answer::Paused, gates: Vec::new(), gate });
        self.take(effects);
    }

    /// How many records there are, with those to come, up to the one that paused the queue or let it go on.
    fn paused_with(&self, queue: usize, effects: &[Effect]) -> usize {
        let appended = effects.iter().filter_map(|effect| match effect {
            Effect::Append { record, .. } => Some(record),
            _ => None,
        });
        let (mut paused, mut gate) = (false, 0);
        for (at, record) in self.log.iter().chain(appended).enumerate() {
            if let Record::Queue(it) = record
                && it.name == names()[queue]
                && it.paused != paused
            {
                (paused, gate) = (it.paused, at + 1);
            }
        }
        gate
    }

    /// Everything that waits in a queue ends as cancelled.
    pub(crate) fn purge(&mut self, queue: usize) {
        if self.model.storage != StorageState::Roomy {
            // It would go on with the room there is, and be answered who knows when.
            return;
        }
        self.begin_step();
        let phases = [Phase::Delayed, Phase::Ready, Phase::Backoff];
        let waiting = phases.into_iter().flat_map(|phase| self.model.of(queue, phase));
        let mut waiting: Vec<u64> = waiting.map(|(seq, _)| seq).collect();
        // In the order of their numbers: of those that end together, the first one's key is forgotten first.
        waiting.sort_unstable();
        for &seq in &waiting {
            self.model.cancel(seq, self.now);
        }
        if !waiting.is_empty() {
            self.model.mark("a queue with work is purged");
        }
        let request = self.ask(Command::Purge(names()[queue].clone()));
        self.expect(request, Answer::Purged(waiting.len() as u64), &waiting);
    }

    pub(crate) fn delete_dead(&mut self, seq: u64) {
        self.begin_step();
        let known = self.model.messages.get(&seq).filter(|message| message.phase == Phase::Dead);
        let queue = known.map(|message| message.queue);
        if queue.is_some() {
            self.model.delete(seq);
        }
        let gates = queue.map(|_| (seq, self.model.records(seq))).into_iter().collect();
        let request =
            self.ask(Command::DeleteDead { queue: names()[queue.unwrap_or(0)].clone(), seq: Seq(seq) });
        self.due.insert(request, Due { answer: Answer::DeadDeleted(queue.is_some()), gates, gate: 0 });
        self.end_step();
    }

    pub(crate) fn undelivered(&mut self, receipt: Receipt) {
        if receipt.epoch != self.model.epoch {
            return;
        }
        self.begin_step();
        if self.model.holds(receipt) {
            self.model.take_back(receipt, self.now);
        }
        self.handle(Input::Undelivered(receipt));
        self.end_step();
    }

    pub(crate) fn end_call(&mut self, pick: usize, outcome: CallOutcome) {
        if self.calls.is_empty() {
            return;
        }
        let receipt = self.calls.swap_remove(pick % self.calls.len());
        self.begin_step();
        let ending = match outcome {
            CallOutcome::Succeeded { .. } => Ending::Done,
            CallOutcome::Failed { .. } => Ending::Failed,
            CallOutcome::Dead { .. } => Ending::Rejected,
            CallOutcome::Throttled { .. } => Ending::Throttled,
            CallOutcome::Interrupted => Ending::Interrupted,
        };
        if self.model.may_settle(receipt, ending) == Some(true) {
            let message = &self.model.messages[&receipt.seq.0];
            let on_time = message.phase == Phase::Leased;
            let Some(Taker::Target(called)) = message.hold.map(|hold| hold.taker) else {
                panic!("{receipt:?} is no call")
            };
            let left = self.model.leave(receipt, sign(&outcome), self.now.mono);
            let is_given_up =
                matches!(outcome, CallOutcome::Failed { timed_out: true, .. } | CallOutcome::Interrupted);
            match &outcome {
                _ if is_given_up && on_time => {
                    self.model.give_up_call(receipt.seq.0, called, self.now);
                }
                CallOutcome::Throttled { pause, .. } => {
                    let target = &mut self.model.targets[called];
                    target.paused_until = target.paused_until.max(self.now.mono.plus(*pause));
                }
                CallOutcome::Succeeded { result: Some(result) } => self.bring_result(receipt, result),
                _ => {}
            }
            let by_holder = ending != Ending::Interrupted;
            let probe = left.filter(|_| on_time);
            if probe.is_some() && !is_given_up {
                self.model.remember_probe(receipt.seq.0, called, self.now);
            }
            let ending = if probe.is_some() { Ending::ProbeFailed } else { ending };
            self.model.settle(receipt, ending, probe, by_holder, self.now);
        }
        self.handle(Input::CallEnded { receipt, outcome });
        self.end_step();
    }

    pub(crate) fn reset_target(&mut self, target: usize) {
        self.begin_step();
        self.model.reset_breaker(target, self.now.mono);
        let request = self.ask(Command::ResetTarget(name(TARGETS[target])));
        self.expect(request, Answer::TargetReset, &[]);
    }

    pub(crate) fn copy(&mut self, seq: u64) {
        self.begin_step();
        self.model.copy(seq);
        self.handle(Input::Copy(vec![(Seq(seq), None)]));
        self.end_step();
    }

    pub(crate) fn copy_basics(&mut self) {
        self.begin_step();
        self.handle(Input::CopyBasics);
        self.end_step();
    }

    pub(crate) fn set_storage(&mut self, storage: StorageState) {
        self.begin_step();
        self.model.storage = storage;
        (0..3).for_each(|queue| self.model.recall_overdue(queue));
        self.dissolve_lines();
        self.handle(Input::Storage(storage));
        self.end_step();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pond.is_idle()
    }
}
