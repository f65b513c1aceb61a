//! Workers: honest, failing, slow, dying, answering late or twice.
//!
//! Owns what is done with hand-outs. Must never use a receipt that it was not given.

use super::draw::millis;
use super::replies::Asked;
use super::world::{Task, World, micros};
use bytes::Bytes;
use millpond_core::command::{Command, Input, LeaseRequest, Leased, RequestId, SettleOutcome, Settlement};
use millpond_core::identity::Receipt;
use millpond_core::message::{Content, Failure};
use millpond_core::name::Label;
use millpond_testkit::trail::{Answer, Extension, Said, Word};
use std::sync::Arc;
use std::time::Duration;

/// A worker.
#[derive(Debug, Default)]
pub(super) struct Worker {
    /// It waits for an answer to its wish for messages.
    pub(super) waits: bool,
    /// How often it has died.
    lives: u32,
}

/// What a worker is going to say of a hand-out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saying {
    pub(super) receipt: Receipt,
    pub(super) said: Said,
    pub(super) delay: Option<Duration>,
}

fn outcome(saying: &Saying, cut: bool) -> SettleOutcome {
    let failure = Some(Failure::new("worker", "it did not work", None));
    match saying.said {
        Said::Complete => {
            let body =
                Bytes::from_static(if cut { b"a result that is long enough to be cut" } else { b"ok" });
            let result = Content { content_type: "x".to_owned(), headers: Vec::new(), body };
            SettleOutcome::Complete { result: Some(Arc::new(result)) }
        }
        Said::Retry => SettleOutcome::Retry { failure, delay: saying.delay },
        Said::Dead => SettleOutcome::Dead { failure },
        Said::Release => SettleOutcome::Release { delay: saying.delay },
    }
}

impl World {
    pub(super) fn work(&mut self, worker: usize) {
        let pause = millis(&mut self.chance, 10, 1_000);
        self.after(if self.healing { Duration::from_millis(500) } else { pause }, Task::Work(worker));
        if self.host.is_none() || self.workers[worker].waits {
            return;
        }
        let queue = self.chance.usize(..self.queues.len());
        let wait = millis(&mut self.chance, 0, 3_000);
        let lease = (!self.healing && self.likely(20)).then(|| millis(&mut self.chance, 200, 6_000));
        let consumer = format!("worker-{worker}-{}", self.workers[worker].lives);
        let wish = LeaseRequest {
            queue: self.queues[queue].drawn.name.clone(),
            max: self.chance.usize(1..=10),
            lease,
            wait: if self.chance.bool() { wait } else { Duration::ZERO },
            consumer: self.likely(70).then(|| Label::new(&consumer).expect("a label")),
        };
        self.workers[worker].waits = true;
        let request = self.ask(Command::Lease(wish), Asked::Lease { worker, queue });
        let dies = !self.healing && self.likely(self.plan.habits.careless / 5);
        if let Some(request) = request.filter(|_| dies) {
            let after = millis(&mut self.chance, 0, 2_000);
            let tells = self.chance.bool();
            self.after(after, Task::Vanish(request, tells));
        }
    }

    pub(super) fn vanish(&mut self, request: RequestId, tells: bool) {
        let Some(Asked::Lease { worker, .. }) = self.asked.get(&request) else { return };
        let worker = *worker;
        self.workers[worker].lives += 1;
        self.workers[worker].waits = false;
        self.asked.remove(&request);
        if tells {
            self.tell(Input::Abandon(request));
        }
    }

    pub(super) fn leased(&mut self, worker: usize, queue: usize, leased: Vec<Leased>) {
        self.workers[worker].waits = false;
        let mut done = Vec::new();
        for one in leased {
            let Some(host) = &self.host else { return };
            let stored = host.machine().locate(one.receipt.seq);
            let payload = self.handed_out(queue, &one, &stored, None);
            if payload.is_none() {
                done.push(Saying { receipt: one.receipt, said: Said::Release, delay: None });
            } else if self.healing {
                done.push(Saying { receipt: one.receipt, said: Said::Complete, delay: None });
            } else {
                self.decide(worker, &one);
            }
        }
        if !done.is_empty() {
            self.after(Duration::from_millis(5), Task::Say(worker, done));
        }
    }

    /// What becomes of one hand-out.
    fn decide(&mut self, worker: usize, leased: &Leased) {
        let receipt = leased.receipt;
        let now = self.clock.now(self.now);
        let lease = leased.until.since(now.wall);
        let said = self.word_of_a_worker();
        let delay = self.likely(30).then(|| millis(&mut self.chance, 0, 4_000));
        let saying = Saying { receipt, said, delay };
        let in_time = lease.mul_f64(self.chance.f64() * 0.9);
        if !self.likely(self.plan.habits.careless) {
            self.after(in_time, Task::Say(worker, vec![saying]));
            return;
        }
        match self.chance.u32(..6) {
            // Never heard of again.
            0 => {}
            // Too late, perhaps.
            1 | 2 => {
                self.known.late.insert(self.numbers.of(receipt));
                let late = lease.mul_f64(1.0 + self.chance.f64());
                self.after(late, Task::Say(worker, vec![saying]));
            }
            // Twice.
            3 => {
                self.after(in_time, Task::Say(worker, vec![saying]));
                self.after(in_time.mul_f64(1.5), Task::Say(worker, vec![saying]));
            }
            // With more time than it was given at first.
            _ => self.after(in_time, Task::Extend(worker, receipt, lease)),
        }
    }

    fn word_of_a_worker(&mut self) -> Said {
        if !self.likely(self.plan.habits.failing) {
            return Said::Complete;
        }
        match self.chance.u32(..10) {
            0..6 => Said::Retry,
            6..8 => Said::Release,
            _ => Said::Dead,
        }
    }

    pub(super) fn say(&mut self, worker: usize, sayings: Vec<Saying>) {
        if self.host.is_none() {
            // It tries again when somebody answers.
            if self.chance.bool() || self.healing {
                self.after(Duration::from_millis(300), Task::Say(worker, sayings));
            }
            return;
        }
        let cut = self.chance.bool();
        let words = sayings.iter().map(|saying| Word {
            id: saying.receipt.seq.0,
            hand_out: self.numbers.of(saying.receipt),
            said: saying.said,
            delay: saying.delay.map(micros),
            given_up: false,
            span: millpond_testkit::trail::Span { sent: self.now.0, ended: self.now.0 },
            answer: Answer::Unknown,
        });
        let words = words.collect();
        for saying in &sayings {
            self.known.held.remove(&saying.receipt);
        }
        let settlements = sayings
            .iter()
            .map(|saying| Settlement { receipt: saying.receipt, outcome: outcome(saying, cut) })
            .collect();
        self.ask(Command::Settle(settlements), Asked::Settle { words });
    }

    pub(super) fn extend(&mut self, worker: usize, receipt: Receipt, lease: Duration) {
        if self.host.is_none() {
            return;
        }
        let lease = if self.likely(5) { Duration::from_hours(13) } else { lease };
        let wish = Extension {
            id: receipt.seq.0,
            hand_out: self.numbers.of(receipt),
            lease: micros(lease),
            span: millpond_testkit::trail::Span { sent: self.now.0, ended: self.now.0 },
            answer: Answer::Unknown,
        };
        self.ask(Command::Extend(vec![(receipt, lease)]), Asked::Extend { worker, receipt, wish });
    }

    pub(super) fn extended(&mut self, worker: usize, receipt: Receipt, lease: i64, granted: bool) {
        if !granted {
            return;
        }
        let lease = Duration::from_micros(lease.unsigned_abs());
        if let Some((_, until)) = self.known.held.get_mut(&receipt) {
            *until = self.now.plus(lease);
        }
        let later = lease.mul_f64(self.chance.f64() * 0.9).min(Duration::from_secs(20));
        if self.chance.bool() {
            self.after(later, Task::Extend(worker, receipt, lease.min(Duration::from_secs(8))));
        } else {
            let said = self.word_of_a_worker();
            self.after(later, Task::Say(worker, vec![Saying { receipt, said, delay: None }]));
        }
    }
}
