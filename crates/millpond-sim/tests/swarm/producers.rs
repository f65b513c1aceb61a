//! Producers: with keys and without, in batches, again after no answer, and not always right.
//!
//! Owns what is offered. Must never send two payloads for what it takes to be one message, unless on purpose.

use super::draw::{millis, pick};
use super::replies::Asked;
use super::world::{Task, World, micros};
use bytes::Bytes;
use millpond_core::command::{Accepted, Command, EnqueueError, NewMessage, RequestId};
use millpond_core::message::{Content, Criticality, IdempotencyKey};
use millpond_core::name::Label;
use millpond_core::settings::{DELAY_MAX, Overflow};
use millpond_testkit::trail::{Bound, Offer, Offered, Span, Told};
use std::sync::Arc;
use std::time::Duration;

/// A producer, and what it means to send again.
#[derive(Debug, Default)]
pub(super) struct Producer {
    again: Vec<Offer>,
}

/// Most that a producer remembers to send again.
const AGAIN_MAX: usize = 20;

fn label(text: &str) -> Label {
    Label::new(text).expect("labels of a simulation are labels")
}

impl World {
    pub(super) fn produce(&mut self, producer: usize) {
        if self.healing {
            return;
        }
        let pause = self.plan.produce_every.mul_f64(self.chance.f64() * 2.0);
        self.after(pause, Task::Produce(producer));
        if self.host.is_none() {
            return;
        }
        let queue = self.chance.usize(..self.queues.len());
        let count = if self.likely(80) { 1 } else { self.chance.usize(2..8) };
        let mut offers: Vec<Offer> = Vec::new();
        self.known.batches += 1;
        for index in 0..count {
            let offer = self.next_offer(producer, queue);
            let same = offers.iter().any(|other| other.payload == offer.payload);
            if offer.queue as usize == queue && !same {
                offers.push(Offer { batch: (self.known.batches, index), ..offer });
            }
        }
        let messages = offers.iter().map(|offer| self.message(offer)).collect();
        let name = self.queues[queue].drawn.name.clone();
        let request =
            self.ask(Command::Enqueue { queue: name, messages }, Asked::Enqueue { producer, offers });
        if let Some(request) = request.filter(|_| self.chance.u32(..20) == 0) {
            let patience = self.plan.commit_latency.mul_f64(self.chance.f64() * 2.0);
            self.after(patience, Task::GiveUp(request));
        }
    }

    /// Something to send: new, or again.
    fn next_offer(&mut self, producer: usize, queue: usize) -> Offer {
        let again = &mut self.producers[producer].again;
        if !again.is_empty() && self.chance.u32(..100) < 30 {
            let offer = again.swap_remove(self.chance.usize(..again.len()));
            let span = Span { sent: self.now.0, ended: self.now.0 };
            return Offer { span, told: Told::Nothing, ..offer };
        }
        let payload = self.known.next_payload;
        self.known.next_payload += 1;
        let habits = self.plan.habits.clone();
        let retention = self.settings(queue).retention;
        let delay = if self.likely(habits.delayed) { self.delay() } else { Duration::ZERO };
        let ttl = if self.likely(habits.mortal) { self.ttl() } else { retention };
        Offer {
            queue: u32::try_from(queue).expect("few"),
            payload,
            key: self.likely(habits.keyed).then(|| self.key(queue)),
            class: class(payload),
            tenant: self.tenant(payload),
            bytes: content(payload, self.plan.body_bytes_max).size_bytes(),
            group: self.likely(habits.grouped).then(|| self.chance.u64(..4)),
            batch: (0, 0),
            delay: micros(delay),
            ttl: micros(ttl),
            span: Span { sent: self.now.0, ended: self.now.0 },
            answer: Offered::Unknown,
            told: Told::Nothing,
        }
    }

    /// Whose work a payload is.
    fn tenant(&self, payload: u64) -> Option<u64> {
        (self.plan.habits.grouped > 0).then(|| Fraction(payload ^ 0xaa).of(3) as u64)
    }

    fn delay(&mut self) -> Duration {
        match self.chance.u32(..40) {
            0 => DELAY_MAX + Duration::from_secs(1),
            1 => Duration::from_mins(10),
            _ => millis(&mut self.chance, 1, 8_000),
        }
    }

    fn ttl(&mut self) -> Duration {
        if self.likely(3) { Duration::ZERO } else { millis(&mut self.chance, 500, 15_000) }
    }

    /// A key: nearly always a new one.
    fn key(&mut self, queue: usize) -> u64 {
        let used: Vec<u64> =
            self.known.keys.iter().filter(|(of, _)| *of == queue).map(|(_, key)| *key).collect();
        if !used.is_empty() && self.likely(4) {
            return pick(&mut self.chance, &used);
        }
        let key = self.known.next_key;
        self.known.next_key += 1;
        self.known.keys.push((queue, key));
        key
    }

    fn message(&self, offer: &Offer) -> NewMessage {
        let payload = offer.payload;
        let retention = self.settings(offer.queue as usize).retention;
        let ttl = Duration::from_micros(offer.ttl.unsigned_abs());
        NewMessage {
            content: Arc::new(content(payload, self.plan.body_bytes_max)),
            delay: Duration::from_micros(offer.delay.unsigned_abs()),
            ttl: (ttl != retention || self.is_unsettled(offer.queue as usize)).then_some(ttl),
            key: offer
                .key
                .map(|key| IdempotencyKey { key: u128::from(key) + 1, payload: u128::from(payload) }),
            criticality: Criticality::ALL[usize::from(offer.class)],
            tenant: offer.tenant.map(|tenant| label(&format!("tenant-{tenant}"))),
            group: offer.group.map(|group| label(&format!("group-{group}"))),
            callback: self.callback(payload),
        }
    }

    /// Whether nobody can know what the queue will take for granted: its settings change, or may do so while callers
    /// wait at its door.
    fn is_unsettled(&self, queue: usize) -> bool {
        self.queues[queue].changing || self.settings(queue).overflow == Overflow::Block
    }

    pub(super) fn give_up(&mut self, request: RequestId) {
        if !matches!(self.asked.get(&request), Some(Asked::Enqueue { .. })) {
            return;
        }
        if let Some(asked) = self.asked.remove(&request) {
            self.tell(millpond_core::command::Input::Abandon(request));
            self.unanswered(asked);
        }
    }

    /// A producer hears how its offer ended.
    pub(super) fn offered(&mut self, producer: usize, offer: &Offer) {
        let again = match offer.answer {
            Offered::Accepted(id) => {
                if self.likely(10) {
                    self.plan_look(millpond_core::identity::Seq(id));
                }
                offer.key.is_some() && self.likely(15)
            }
            Offered::Refused => self.likely(20),
            // Whoever has no key and got no answer may send it twice, and mean it.
            Offered::Unknown => offer.key.is_some() || self.likely(30),
        };
        let list = &mut self.producers[producer].again;
        if again && list.len() < AGAIN_MAX {
            list.push(offer.clone());
        }
    }
}

/// Which class a payload is of.
fn class(payload: u64) -> u8 {
    u8::try_from(Fraction(payload ^ 0x55).of(4)).expect("one of four")
}

/// The bytes of a payload: the same for every repetition.
fn content(payload: u64, padding_max: usize) -> Content {
    let mut body = payload.to_le_bytes().to_vec();
    body.resize(body.len() + Fraction(payload).of(padding_max), 7);
    Content { content_type: "x".to_owned(), headers: Vec::new(), body: Bytes::from(body) }
}

/// What an answer said besides whether the message was accepted.
pub(super) fn told(result: &Result<Accepted, EnqueueError>) -> Told {
    let bound = |what: &str| match what {
        _ if what.contains("bound on messages") => Bound::Messages,
        _ if what.contains("bound on bytes") => Bound::Bytes,
        _ => Bound::Other,
    };
    match result {
        Ok(accepted) => Told::Promise {
            duplicate: accepted.duplicate,
            position: accepted.position,
            start: accepted.promise.map(|promise| (micros(promise.p50), micros(promise.p90))),
        },
        Err(EnqueueError::QueueFull { what, retry_after }) => {
            Told::ComeBack { bound: bound(what), after: micros(*retry_after) }
        }
        Err(EnqueueError::WaitTooLong { retry_after, .. }) => {
            Told::ComeBack { bound: Bound::Wait, after: micros(*retry_after) }
        }
        Err(_) => Told::Nothing,
    }
}

/// A number that looks random and is always the same for the same seed.
struct Fraction(u64);

impl Fraction {
    /// Below `bound`, or 0.
    fn of(&self, bound: usize) -> usize {
        let mixed = self.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        usize::try_from(mixed).unwrap_or(0) % bound.max(1)
    }
}
