//! Everything that can be asked of a pond, with what the model says must come of it.
//!
//! Owns the prediction for each command. Must never look at an answer: the world compares.

use super::{Answer, Due, Fate, World, names};
use bytes::Bytes;
use millpond_core::command::{
    CallOutcome, Command, Effect, Input, LeaseRequest, NewMessage, RequestId, SettleError, SettleOutcome,
    Settlement, StorageState,
};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, IdempotencyKey, Phase};
use millpond_core::record::Record;
use millpond_core::replay::{ReplayWhich, ReplayWish};
use millpond_testkit::model::{Ending, Model, Verdict, ending_of};
use std::sync::Arc;
use std::time::Duration;

/// A message to enqueue.
#[derive(Debug, Clone)]
pub(crate) struct New {
    pub(crate) bytes: usize,
    pub(crate) delay: Duration,
    pub(crate) ttl: Option<Duration>,
    pub(crate) key: Option<(u128, u128)>,
}

impl New {
    fn message(&self) -> NewMessage {
        let content = Content { body: Bytes::from(vec![b'x'; self.bytes]), ..Content::default() };
        let key = self.key.map(|(key, payload)| IdempotencyKey { key, payload });
        NewMessage {
            content: Arc::new(content),
            delay: self.delay,
            ttl: self.ttl,
            key,
            ..NewMessage::default()
        }
    }
}

impl World {
    fn ask(&mut self, command: Command) -> RequestId {
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
        let messages = news.iter().map(New::message).collect();
        let next = self.model.history.keys().max().copied().unwrap_or(0);
        let request = self.ask(Command::Enqueue { queue: names()[queue].clone(), messages });
        // The numbers that the pond has chosen are read off its records: nothing else is written by an enqueue.
        let effects: Vec<Effect> = self.pond.effects().collect();
        let mut chosen = effects.iter().filter_map(|effect| match effect {
            Effect::Append { record: Record::Message { message, .. }, .. } => Some(message.seq.0),
            _ => None,
        });
        let (mut fates, mut gates) = (Vec::new(), Vec::new());
        for new in news {
            let verdict = self.model.judge(queue, new.bytes as u64, new.key);
            let full = self.storage != StorageState::Roomy
                && !matches!(verdict, Verdict::Duplicate(_) | Verdict::Mismatch);
            let fate = match verdict {
                _ if full => Fate::StorageFull,
                Verdict::Duplicate(seq) => Fate::Duplicate { seq, phase: self.model.messages[&seq].phase },
                Verdict::Mismatch => Fate::Mismatch,
                Verdict::Full => Fate::Full,
                Verdict::TooLate => Fate::TooLate,
                Verdict::Accept | Verdict::AcceptOrTooLate => match chosen.next() {
                    Some(seq) => self.accept(seq, queue, new),
                    None => Fate::TooLate,
                },
            };
            let exact = verdict != Verdict::AcceptOrTooLate;
            assert!(
                !exact || verdict != Verdict::Accept || full || !matches!(fate, Fate::TooLate),
                "{new:?} is refused"
            );
            if let Fate::Accepted { seq, .. } | Fate::Duplicate { seq, .. } = fate {
                gates.push(seq);
            }
            fates.push(fate);
        }
        assert_eq!(chosen.next(), None, "more is stored than was accepted");
        assert!(self.model.history.keys().all(|seq| *seq <= next || gates.contains(seq)));
        for effect in effects {
            let Effect::Append { op, record, .. } = effect else {
                let Effect::Reply { request, reply } = effect else { panic!("{effect:?}") };
                let gates = gates.iter().map(|&seq| (seq, self.model.messages[&seq].decided_with)).collect();
                let answer = Answer::Enqueued(std::mem::take(&mut fates));
                self.due.insert(request, Due { answer, gates, gate: 0 });
                self.replied(request, reply);
                return self.end_step();
            };
            self.appended(op, record);
        }
        self.expect(request, Answer::Enqueued(fates), &gates);
    }

    fn accept(&mut self, seq: u64, queue: usize, new: &New) -> Fate {
        let ahead = self.model.of(queue, Phase::Ready).count() as u64;
        let ttl = new.ttl.unwrap_or(self.model.queues[queue].settings.retention);
        let message = Model::message(queue, seq, new.bytes as u64, (new.delay, ttl), new.key, self.now);
        self.model.accept(seq, message, new.delay, self.now);
        Fate::Accepted { seq, position: new.delay.is_zero().then_some(ahead) }
    }

    pub(crate) fn lease(&mut self, queue: usize, max: usize, lease: Option<Duration>, wait: Duration) {
        self.begin_step();
        let wish = LeaseRequest { queue: names()[queue].clone(), max, lease, wait, consumer: None };
        let request = self.ask(Command::Lease(wish));
        let until = self.now.mono.plus(wait);
        self.expect(request, Answer::Leased { queue, max, until }, &[]);
    }

    pub(crate) fn abandon(&mut self, pick: usize) {
        let waiting: Vec<RequestId> = self
            .due
            .iter()
            .filter_map(|(request, due)| matches!(due.answer, Answer::Leased { .. }).then_some(*request))
            .collect();
        let Some(&request) = waiting.get(pick % waiting.len().max(1)) else { return };
        self.begin_step();
        self.due.remove(&request);
        self.handle(Input::Abandon(request));
        self.end_step();
    }

    pub(crate) fn settle(&mut self, receipt: Receipt, outcome: &SettleOutcome) {
        self.begin_step();
        let (ending, delay) = ending_of(outcome);
        let allowed = self.model.may_settle(receipt, ending);
        if allowed == Some(true) {
            self.model.settle(receipt, ending, delay, true, self.now);
        }
        let settlement = Settlement { receipt, outcome: outcome.clone() };
        let request = self.ask(Command::Settle(vec![settlement]));
        let answer = Answer::Settled(allowed.map(|_| ()).ok_or(SettleError::LeaseLost));
        let gates: &[u64] = if allowed.is_some() { &[receipt.seq.0] } else { &[] };
        self.expect(request, answer, gates);
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
        let allowed = self.model.may_cancel(seq);
        let phase = self.model.messages.get(&seq).map(|message| message.phase);
        if allowed == Some(true) {
            self.model.cancel(seq, self.now);
        }
        let request = self.ask(Command::Cancel(Seq(seq)));
        self.expect(request, Answer::Cancelled(allowed, phase), &[seq]);
    }

    pub(crate) fn status(&mut self, seq: u64) {
        self.begin_step();
        let known = self.model.messages.get(&seq);
        let known = known.map(|message| (message.phase, message.attempts, message.deliveries));
        let request = self.ask(Command::Status { seq: Seq(seq), wait: None });
        self.expect(request, Answer::Status(known), &[seq]);
    }

    pub(crate) fn pause(&mut self, queue: usize, paused: bool) {
        self.begin_step();
        if self.model.queues[queue].paused != paused {
            self.model.queues[queue].paused = paused;
            self.pauses.push((self.log.len(), queue, paused));
        }
        let gate = self.pauses.iter().rev().find(|&&(_, at, _)| at == queue).map_or(0, |&(at, ..)| at + 1);
        let request = self.ask(Command::Pause { queue: names()[queue].clone(), paused });
        self.due.insert(request, Due { answer: Answer::Paused, gates: Vec::new(), gate });
        self.end_step();
    }

    pub(crate) fn replay_all(&mut self, queue: usize) {
        self.begin_step();
        let count = self.model.of(queue, Phase::Dead).count() as u64;
        let expected = (!self.is_replaying(queue)).then_some(count);
        let request = self.ask_for_replay(queue, ReplayWhich::All);
        self.expect(request, Answer::Replayed(expected), &[]);
    }

    pub(crate) fn replay_one(&mut self, queue: usize, pick: usize) {
        let dead: Vec<u64> = self.model.of(queue, Phase::Dead).map(|(seq, _)| seq).collect();
        let Some(&seq) = dead.get(pick % dead.len().max(1)) else { return };
        self.begin_step();
        let expected = (!self.is_replaying(queue)).then_some(1);
        let request = self.ask_for_replay(queue, ReplayWhich::These(vec![Seq(seq)]));
        let gate = if expected.is_some() { self.log.len() + 1 } else { 0 };
        self.due.insert(request, Due { answer: Answer::Replayed(expected), gates: Vec::new(), gate });
        self.end_step();
    }

    fn ask_for_replay(&mut self, queue: usize, which: ReplayWhich) -> RequestId {
        let wish = ReplayWish::plain(which);
        self.ask(Command::Replay { queue: names()[queue].clone(), wish, dry_run: false })
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
        let message = self.model.messages.get(&receipt.seq.0);
        let holds = message.is_some_and(|message| {
            message.phase == Phase::Leased && message.hold.is_some_and(|hold| hold.receipt == receipt)
        });
        if holds {
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
            CallOutcome::Released => Ending::Released,
        };
        if self.model.may_settle(receipt, ending) == Some(true) {
            let on_time = self.model.messages[&receipt.seq.0].phase == Phase::Leased;
            match &outcome {
                CallOutcome::Failed { timed_out: true, .. } if on_time => {
                    self.model.give_up_call(receipt, true, self.now);
                }
                CallOutcome::Throttled { pause, .. } => {
                    let target = &mut self.model.targets[0];
                    target.paused_until = target.paused_until.max(self.now.mono.plus(*pause));
                }
                _ => {}
            }
            self.model.settle(receipt, ending, None, true, self.now);
        }
        self.handle(Input::CallEnded { receipt, outcome });
        self.end_step();
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
        self.storage = storage;
        self.handle(Input::Storage(storage));
        self.end_step();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pond.is_idle()
    }
}
