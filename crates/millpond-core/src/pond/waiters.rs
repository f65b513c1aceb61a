//! The workers that wait for messages of one queue, and what each consumer holds.
//!
//! Owns who is served next: in the order of asking, but nobody beyond its prefetch, and nobody held up by one who is
//! at it. Every step takes logarithmic time. Must never hand anything out.

use crate::command::RequestId;
use crate::name::Label;
use std::collections::BTreeMap;
use std::time::Duration;

/// A worker that waits for messages.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    /// At most so many messages.
    pub(super) max: usize,
    pub(super) lease: Duration,
    pub(super) consumer: Option<Label>,
}

/// A waiter's turn: lower ones asked earlier.
type Turn = u64;

/// One named consumer. It is forgotten once it neither waits nor holds anything.
#[derive(Debug, Default)]
struct Consumer {
    /// Leases that it holds.
    held: usize,
    waiting: BTreeMap<Turn, Waiter>,
    /// Its first waiter's turn, if that stands in the line: not while the consumer is at its cap.
    in_line: Option<Turn>,
}

/// Who stands at a place in the line.
#[derive(Debug)]
enum InLine {
    Unnamed(Waiter),
    /// The first waiter of this consumer.
    Of(Label),
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: Turn,
    /// Those that may be served, in the order of asking; of every consumer at most one.
    line: BTreeMap<Turn, InLine>,
    consumers: BTreeMap<Label, Consumer>,
    turns: BTreeMap<RequestId, (Turn, Option<Label>)>,
    /// The most leases that a consumer holds at once; also the most messages for one that did not say who it is.
    prefetch: usize,
}

impl Waiters {
    pub(super) fn new(prefetch: u32) -> Self {
        Self { prefetch: cap(prefetch), ..Self::default() }
    }

    /// All that wait, those at their cap included.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn set_prefetch(&mut self, prefetch: u32) {
        self.prefetch = cap(prefetch);
        let consumers: Vec<Label> = self.consumers.keys().cloned().collect();
        for consumer in consumers {
            self.refresh(&consumer);
        }
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let turn = self.next;
        self.next += 1;
        self.turns.insert(waiter.request, (turn, waiter.consumer.clone()));
        match waiter.consumer.clone() {
            None => {
                self.line.insert(turn, InLine::Unnamed(waiter));
            }
            Some(consumer) => {
                self.consumers.entry(consumer.clone()).or_default().waiting.insert(turn, waiter);
                self.refresh(&consumer);
            }
        }
    }

    /// The next one to be served, with how many messages it may get: at least one.
    pub(super) fn pop(&mut self) -> Option<(Waiter, usize)> {
        let (turn, first) = self.line.pop_first()?;
        let (waiter, room) = match first {
            InLine::Unnamed(waiter) => (waiter, self.prefetch),
            InLine::Of(label) => {
                let consumer = self.consumers.get_mut(&label).expect("who stands in line is known");
                consumer.in_line = None;
                let waiter = consumer.waiting.remove(&turn).expect("it stood in line");
                let room = self.prefetch - consumer.held;
                self.refresh(&label);
                (waiter, room)
            }
        };
        self.turns.remove(&waiter.request);
        let room = room.min(waiter.max);
        Some((waiter, room))
    }

    /// Whether anybody may be served.
    pub(super) fn any(&self) -> bool {
        !self.line.is_empty()
    }

    /// Forgets one that waits no more.
    pub(super) fn remove(&mut self, request: RequestId) {
        let Some((turn, consumer)) = self.turns.remove(&request) else { return };
        match consumer {
            None => {
                self.line.remove(&turn);
            }
            Some(consumer) => {
                if let Some(known) = self.consumers.get_mut(&consumer) {
                    known.waiting.remove(&turn);
                }
                self.refresh(&consumer);
            }
        }
    }

    /// Forgets all.
    pub(super) fn drain(&mut self) -> Vec<RequestId> {
        let requests: Vec<RequestId> = self.turns.keys().copied().collect();
        for &request in &requests {
            self.remove(request);
        }
        requests
    }

    /// A consumer has got a lease.
    pub(super) fn took(&mut self, consumer: &Label) {
        self.consumers.entry(consumer.clone()).or_default().held += 1;
        self.refresh(consumer);
    }

    /// A consumer's lease has ended.
    pub(super) fn gave_back(&mut self, consumer: &Label) {
        let known = self.consumers.get_mut(consumer).expect("who holds a lease is known");
        known.held -= 1;
        self.refresh(consumer);
    }

    /// Sets a consumer's first waiter into the line if it may be served, and takes it out if not.
    fn refresh(&mut self, label: &Label) {
        let Some(consumer) = self.consumers.get_mut(label) else { return };
        let first = consumer.waiting.first_key_value().map(|(&turn, _)| turn);
        let wanted = first.filter(|_| consumer.held < self.prefetch);
        if consumer.in_line != wanted {
            if let Some(turn) = consumer.in_line {
                self.line.remove(&turn);
            }
            if let Some(turn) = wanted {
                self.line.insert(turn, InLine::Of(label.clone()));
            }
            consumer.in_line = wanted;
        }
        if consumer.held == 0 && consumer.waiting.is_empty() {
            self.consumers.remove(label);
        }
    }

    /// Checks that the line holds who may be served, and that consumers hold what `held` says.
    pub(super) fn assert_consistent(&self, held: &BTreeMap<Label, usize>) {
        let known = self.consumers.iter().filter(|(_, consumer)| consumer.held > 0);
        let known: BTreeMap<&Label, usize> = known.map(|(label, consumer)| (label, consumer.held)).collect();
        assert!(known.iter().map(|(label, held)| (*label, held)).eq(held), "{known:?} instead of {held:?}");
        let mut waiting = self.line.values().filter(|one| matches!(one, InLine::Unnamed(_))).count();
        for (label, consumer) in &self.consumers {
            waiting += consumer.waiting.len();
            let first = consumer.waiting.keys().next().copied();
            let served = first.filter(|_| consumer.held < self.prefetch);
            assert_eq!(consumer.in_line, served, "{label}: it stands in line if it may be served");
            assert!(served.is_none_or(|turn| self.line.contains_key(&turn)));
        }
        assert_eq!(waiting, self.turns.len(), "waiters");
    }
}

fn cap(prefetch: u32) -> usize {
    usize::try_from(prefetch).unwrap_or(usize::MAX)
}
