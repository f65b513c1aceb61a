//! Answers, and what is known because of them.
//!
//! Owns the way from an answer, or from none, into the trail. Must never decide what an actor does next: the actors
//! are told.

use super::producers::told;
use super::world::{Task, World, micros};
use millpond_core::command::{EnqueueError, Leased, Reply, TargetNumber};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::Phase;
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_engine::content::Stored;
use millpond_sim::host::Outcome;
use millpond_testkit::trail::{
    Answer, Event, Extension, HandOut, Micros, Numbers, Offer, Offered, Replay, Request, Span, Stand, Word,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who waits for an answer, and for which.
#[derive(Debug)]
pub(super) enum Asked {
    Enqueue {
        producer: usize,
        offers: Vec<Offer>,
    },
    Lease {
        worker: usize,
        queue: usize,
    },
    Settle {
        words: Vec<Word>,
    },
    Extend {
        worker: usize,
        receipt: Receipt,
        wish: Extension,
    },
    Cancel {
        seq: Seq,
        sent: Micros,
    },
    Look {
        seq: Seq,
        sent: Micros,
    },
    Define {
        queue: usize,
        settings: Box<QueueSettings>,
        sent: Micros,
    },
    Delete {
        queue: usize,
        sent: Micros,
    },
    Pause {
        queue: usize,
        paused: bool,
        sent: Micros,
    },
    Purge {
        queue: usize,
        sent: Micros,
    },
    Replay {
        queue: usize,
        ids: Option<Vec<Seq>>,
        sent: Micros,
    },
    Replays {
        queue: usize,
        sent: Micros,
    },
    Bury {
        seq: Seq,
        sent: Micros,
    },
    Overview,
    ListDead,
    Plain,
    /// Whoever does not care for the answer.
    Nobody,
}

/// A message that somebody was told of.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownMessage {
    pub(super) queue: usize,
}

/// A call that nobody waits for any more, and that occupies its target nevertheless.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) target: usize,
    pub(super) begun: Mono,
    pub(super) until: Mono,
}

/// What the outside world knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) ids: BTreeMap<Seq, KnownMessage>,
    pub(super) next_payload: u64,
    pub(super) next_key: u64,
    pub(super) batches: u64,
    /// Keys that were used, with their queue.
    pub(super) keys: Vec<(usize, u64)>,
    /// What is in work, as the outside sees it: its queue and when its lease ends.
    pub(super) held: BTreeMap<Receipt, (usize, Mono)>,
    /// When each target was last called, as far as whoever is up knows.
    pub(super) last_call: BTreeMap<usize, Mono>,
    /// Calls that timed out and still occupy their target.
    pub(super) holds: Vec<Hold>,
    /// When the wall clock was last set forward.
    pub(super) set_forward: Mono,
    /// Calls of each target that failed in a row, by this process.
    pub(super) failures: BTreeMap<usize, u32>,
    /// Who has what is in work, where it has said so.
    pub(super) consumer_of: BTreeMap<Receipt, u64>,
    /// Hand-outs that are settled after their lease.
    pub(super) late: BTreeSet<u64>,
    /// Consumers by the names that they gave.
    pub(super) consumers: Numbers<String>,
    /// Dead letters, as somebody has listed them.
    pub(super) dead: BTreeSet<Seq>,
    /// Replays that are perhaps under way: queue, which, since when.
    pub(super) replaying: Vec<(usize, Option<Vec<Seq>>, Micros)>,
    /// The answer to a plain question.
    pub(super) plain: Option<Reply>,
}

pub(super) fn stand(phase: Phase) -> Stand {
    match phase {
        Phase::Delayed => Stand::Delayed,
        Phase::Ready => Stand::Ready,
        Phase::Leased => Stand::Leased,
        Phase::Backoff => Stand::Backoff,
        Phase::Succeeded => Stand::Succeeded,
        Phase::Dead => Stand::Dead,
        Phase::Expired => Stand::Expired,
        Phase::Cancelled => Stand::Cancelled,
        Phase::Dropped => Stand::Dropped,
    }
}

/// The payload that a body carries.
pub(super) fn payload(stored: &Stored) -> Option<u64> {
    let content = stored.try_read().ok()??;
    Some(u64::from_le_bytes(content.body.get(..8)?.try_into().ok()?))
}

fn answer_of<T, E>(result: &Result<T, E>) -> Answer {
    if result.is_ok() { Answer::Accepted } else { Answer::Refused }
}

impl World {
    pub(super) fn span_from(&self, sent: Micros) -> Span {
        Span { sent, ended: self.now.0 }
    }

    pub(super) fn hear(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Dispatch(target, leased, stored) => self.call(target, &leased, &stored),
            Outcome::Reply(request, reply) => match self.asked.remove(&request) {
                Some(asked) => self.answered(asked, reply),
                None => self.answered_nobody(reply),
            },
        }
    }

    /// An answer whose asker has left: what was handed out is taken back, as the server does.
    fn answered_nobody(&mut self, reply: Reply) {
        let Reply::Leased(Ok(leased)) = reply else { return };
        for one in &leased {
            self.reach("seen: hand-out that reached nobody");
            let Some(host) = &self.host else { return };
            let stored = host.machine().locate(one.receipt.seq);
            let queue = self.queues.iter().position(|queue| queue.drawn.name == one.queue);
            self.handed_out(queue.expect("a queue of the run"), one, &stored, None);
        }
        for one in leased {
            self.known.held.remove(&one.receipt);
            let hand_out = self.numbers.of(one.receipt);
            self.trail.push(Event::TakenBack { id: one.receipt.seq.0, hand_out, at: self.now.0 });
            self.tell(millpond_core::command::Input::Undelivered(one.receipt));
        }
    }

    fn answered(&mut self, asked: Asked, reply: Reply) {
        match (asked, reply) {
            (Asked::Enqueue { producer, offers }, Reply::Enqueued(result)) => {
                self.enqueued(producer, offers, result);
            }
            (Asked::Lease { worker, queue }, Reply::Leased(result)) => {
                self.leased(worker, queue, result.unwrap_or_default());
            }
            (Asked::Settle { words }, Reply::Settled(results)) => {
                for (word, result) in words.into_iter().zip(&results) {
                    let answer = answer_of(result);
                    self.word(Word { span: self.span_from(word.span.sent), answer, ..word });
                }
            }
            (Asked::Extend { worker, receipt, wish }, Reply::Extended(results)) => {
                let result = &results[0];
                let (span, answer) = (self.span_from(wish.span.sent), answer_of(result));
                let lease = wish.lease;
                self.trail.push(Event::Extension(Extension { span, answer, ..wish }));
                self.extended(worker, receipt, lease, result.is_ok());
            }
            (Asked::Cancel { seq, sent }, Reply::Cancelled(result)) => {
                let request = self.request(seq, sent, answer_of(&result));
                self.trail.push(Event::Withdrawal(request));
            }
            (Asked::Look { seq, sent }, Reply::Status(result)) => self.looked(seq, sent, result),
            (Asked::Define { queue, settings, sent }, Reply::Defined(result)) => {
                self.defined(queue, *settings, sent, result.is_ok());
            }
            (Asked::Delete { queue, sent }, Reply::Deleted(result)) => {
                self.queues[queue].changing = false;
                if result.is_ok() {
                    self.queues[queue].exists = false;
                    self.queues[queue].paused_since = None;
                    self.note_deleted(queue, self.span_from(sent));
                }
            }
            (Asked::Pause { queue, paused, sent }, Reply::Paused(result)) => {
                self.queues[queue].changing = false;
                self.queues[queue].paused_since = (paused && result.is_ok()).then_some(self.now.0);
                self.note_pause(queue, paused, sent, answer_of(&result));
            }
            (Asked::Purge { queue, sent }, Reply::Purged(result)) => {
                if result.as_ref().is_ok_and(|cancelled| *cancelled > 0) {
                    self.reach("seen: a queue with work is purged");
                }
                self.note_purge(queue, sent, answer_of(&result));
            }
            (Asked::Replay { queue, ids, sent }, Reply::ReplayStarted(result)) => match result {
                // Accepted is begun: when it is over is for the operators to find out.
                Ok(_) => self.known.replaying.push((queue, ids, sent)),
                Err(_) => self.note_replay(queue, ids, sent, Answer::Refused),
            },
            (Asked::Replays { queue, sent }, Reply::Replays(result)) => {
                self.saw_replays(queue, sent, &result.unwrap_or_default().tasks);
            }
            (Asked::Bury { seq, sent }, Reply::DeadDeleted(result)) => {
                let request = self.request(seq, sent, answer_of(&result));
                self.trail.push(Event::Burial(request));
            }
            (Asked::Overview, Reply::Overview(queues, _)) => self.overview(&queues),
            (Asked::Plain, reply) => self.known.plain = Some(reply),
            (Asked::ListDead, Reply::Messages(Ok((statuses, _)))) => {
                self.listed_dead(&statuses);
            }
            (Asked::Nobody | Asked::ListDead, _) => {}
            (asked, reply) => self.fail(format!("{asked:?} was answered {reply:?}")),
        }
    }

    /// The server died, or its asker left, before an answer came.
    pub(super) fn unanswered(&mut self, asked: Asked) {
        match asked {
            Asked::Enqueue { producer, offers } => self.enqueue_unknown(producer, offers),
            Asked::Lease { worker, .. } => self.workers[worker].waits = false,
            Asked::Settle { words } => {
                for word in words {
                    self.reach("seen: unknown outcome of a settlement");
                    let span = self.span_from(word.span.sent);
                    self.word(Word { span, answer: Answer::Unknown, ..word });
                }
            }
            Asked::Extend { wish, .. } => {
                let span = self.span_from(wish.span.sent);
                self.trail.push(Event::Extension(Extension { span, answer: Answer::Unknown, ..wish }));
            }
            Asked::Cancel { seq, sent } => {
                let request = self.request(seq, sent, Answer::Unknown);
                self.trail.push(Event::Withdrawal(request));
            }
            Asked::Define { queue, settings, sent } => self.define_unknown(queue, *settings, sent),
            Asked::Delete { queue, sent } => {
                self.queues[queue].changing = false;
                self.note_deleted(queue, self.span_from(sent));
            }
            Asked::Pause { queue, paused, sent } => {
                self.queues[queue].changing = false;
                self.queues[queue].paused_since = None;
                self.note_pause(queue, paused, sent, Answer::Unknown);
            }
            Asked::Purge { queue, sent } => self.note_purge(queue, sent, Answer::Unknown),
            Asked::Replay { queue, ids, sent } => self.known.replaying.push((queue, ids, sent)),
            Asked::Bury { seq, sent } => {
                let request = self.request(seq, sent, Answer::Unknown);
                self.trail.push(Event::Burial(request));
            }
            Asked::Look { .. }
            | Asked::Replays { .. }
            | Asked::Overview
            | Asked::ListDead
            | Asked::Plain
            | Asked::Nobody => {}
        }
    }

    fn word(&mut self, word: Word) {
        let late = self.known.late.contains(&word.hand_out);
        if late && word.answer == Answer::Accepted && word.said == millpond_testkit::trail::Said::Complete {
            self.reach("seen: a late completion that counts");
        }
        self.trail.push(Event::Word(word));
    }

    fn request(&self, seq: Seq, sent: Micros, answer: Answer) -> Request {
        Request { id: seq.0, span: self.span_from(sent), answer }
    }

    fn note_pause(&mut self, queue: usize, paused: bool, sent: Micros, answer: Answer) {
        let (queue, span) = (u32::try_from(queue).expect("few"), self.span_from(sent));
        self.trail.push(Event::Pause { queue, paused, span, answer });
    }

    fn note_purge(&mut self, queue: usize, sent: Micros, answer: Answer) {
        let (queue, span) = (u32::try_from(queue).expect("few"), self.span_from(sent));
        self.trail.push(Event::Purge { queue, span, answer });
    }

    fn note_deleted(&mut self, queue: usize, span: Span) {
        self.trail.push(Event::QueueDeleted { queue: u32::try_from(queue).expect("few"), span });
    }

    pub(super) fn note_replay(&mut self, queue: usize, ids: Option<Vec<Seq>>, sent: Micros, answer: Answer) {
        let ids = ids.map(|ids| ids.into_iter().map(|seq| seq.0).collect());
        let (queue, span) = (u32::try_from(queue).expect("few"), self.span_from(sent));
        self.trail.push(Event::Replay(Replay { queue, ids, span, answer }));
    }

    fn enqueued(
        &mut self,
        producer: usize,
        offers: Vec<Offer>,
        result: Result<Vec<Result<millpond_core::command::Accepted, EnqueueError>>, EnqueueError>,
    ) {
        let results = match result {
            Ok(results) => results,
            Err(error) => offers.iter().map(|_| Err(error.clone())).collect(),
        };
        for (offer, result) in offers.into_iter().zip(results) {
            let span = self.span_from(offer.span.sent);
            let answer = match &result {
                Ok(accepted) => {
                    let queue = offer.queue as usize;
                    self.known.ids.insert(accepted.seq, KnownMessage { queue });
                    Offered::Accepted(accepted.seq.0)
                }
                Err(_) => Offered::Refused,
            };
            let offer = Offer { span, answer, told: told(&result), ..offer };
            self.offered(producer, &offer);
            self.trail.push(Event::Offer(offer));
        }
    }

    pub(super) fn enqueue_unknown(&mut self, producer: usize, offers: Vec<Offer>) {
        for offer in offers {
            self.reach("seen: unknown outcome of an enqueue");
            let offer = Offer { span: self.span_from(offer.span.sent), answer: Offered::Unknown, ..offer };
            self.offered(producer, &offer);
            self.trail.push(Event::Offer(offer));
        }
    }

    /// Writes a hand-out down, and checks what must hold at every one.
    pub(super) fn handed_out(
        &mut self,
        queue: usize,
        leased: &Leased,
        stored: &Stored,
        target: Option<TargetNumber>,
    ) -> Option<u64> {
        let now = self.clock.now(self.now);
        let lease = micros(leased.until.since(now.wall));
        let payload = payload(stored);
        if payload.is_none() {
            self.reach("seen: bytes that cannot be read");
            if !self.harm.rot && !self.harm.read && !self.disk.is_off() {
                self.fail(format!("the bytes of {:?} cannot be read on a healthy disk", leased.receipt));
            }
        }
        self.heard(leased.receipt);
        self.check_bounds(queue, leased.receipt, Duration::from_micros(lease.unsigned_abs()));
        let hand_out = self.numbers.of(leased.receipt);
        let consumer = leased.message.consumer.as_ref();
        let consumer = consumer.map(|label| self.known.consumers.of(label.as_str().to_owned()));
        self.note_prefetch(queue, leased.receipt, consumer);
        self.trail.push(Event::HandOut(HandOut {
            hand_out,
            id: leased.receipt.seq.0,
            queue: u32::try_from(queue).expect("few"),
            payload,
            lease,
            target: target.map(|target| u32::try_from(target.0).expect("few")),
            consumer,
            span: self.span_from(self.now.0),
        }));
        payload
    }

    /// Whether a consumer has all that it may have now.
    fn note_prefetch(&mut self, queue: usize, receipt: Receipt, consumer: Option<u64>) {
        let Some(consumer) = consumer else { return };
        let known = &mut self.known;
        known.consumer_of.retain(|receipt, _| known.held.contains_key(receipt));
        known.consumer_of.insert(receipt, consumer);
        let of_queue = |receipt: &Receipt| known.held.get(receipt).is_some_and(|(of, _)| *of == queue);
        let held = known.consumer_of.iter().filter(|(receipt, of)| **of == consumer && of_queue(receipt));
        if held.count() == self.settings(queue).prefetch as usize {
            self.reach("seen: a consumer has all that it may have");
        }
    }

    /// Pauses and the queue's cap, at every hand-out, from what this process has handed out.
    fn check_bounds(&mut self, queue: usize, receipt: Receipt, lease: Duration) {
        let (now, state) = (self.now, &self.queues[queue]);
        if state.paused_since.is_some() && !state.changing {
            self.fail(format!("{receipt:?} was handed out by a paused queue"));
        }
        self.known.held.retain(|_, (_, until)| *until > now);
        let taken = self.known.held.values().filter(|(of, _)| *of == queue).count();
        let cap = state.drawn.settings.concurrency;
        if !state.changing && cap.is_some_and(|cap| taken >= cap as usize) {
            self.fail(format!(
                "queue {queue} has {taken} in work under a cap of {cap:?}, and {receipt:?} goes out"
            ));
        }
        self.known.held.insert(receipt, (queue, now.plus(lease)));
    }

    /// A list is a look at each.
    fn listed_dead(&mut self, statuses: &[millpond_core::command::Status]) {
        for status in statuses {
            let (seq, stand) = (status.message.seq, stand(status.message.phase));
            self.known.dead.insert(seq);
            self.trail.push(Event::Look { id: seq.0, span: self.span_from(self.now.0), stand });
        }
    }

    fn looked(
        &mut self,
        seq: Seq,
        sent: Micros,
        result: Result<Box<millpond_core::command::Status>, millpond_core::command::LookupError>,
    ) {
        let span = self.span_from(sent);
        let stand = match result {
            Ok(status) => stand(status.message.phase),
            Err(millpond_core::command::LookupError::Forgotten) => Stand::Forgotten,
            // Asked on purpose.
            Err(_) => return,
        };
        self.trail.push(Event::Look { id: seq.0, span, stand });
    }

    pub(super) fn plan_look(&mut self, seq: Seq) {
        let delay = Duration::from_millis(self.chance.u64(0..2_000));
        self.after(delay, Task::Look(seq));
    }
}
