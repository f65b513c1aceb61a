//! One queue: which of its messages stand where, who waits for them, and what its forecast rests on.
//!
//! Owns membership, counts and ages. Must never change a message.

use super::ready::{Ready, ReadySet};
use super::slot::Slot;
use crate::command::RequestId;
use crate::forecast::{BusyThroughput, Meter, ReturnTimes, ServiceTime};
use crate::identity::Seq;
use crate::message::{Phase, QueueNumber};
use crate::name::{Label, Name};
use crate::settings::QueueSettings;
use crate::stats::Totals;
use crate::time::Mono;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A worker that waits for messages.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    pub(super) max: usize,
    pub(super) lease: Duration,
    pub(super) consumer: Option<Label>,
}

/// Dead letters on their way back to work.
#[derive(Debug)]
pub(super) struct ReplayTask {
    pub(super) request: RequestId,
    /// The next one to look at.
    pub(super) from: Seq,
    /// The last one that was dead when the replay was asked for.
    pub(super) through: Seq,
    pub(super) replayed: u64,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) number: QueueNumber,
    pub(super) name: Name,
    pub(super) settings: QueueSettings,
    pub(super) declared: bool,
    pub(super) deleted: bool,
    /// First message number that can be this queue's.
    pub(super) since: u64,
    /// Messages of which anything is kept, terminal ones included.
    pub(super) kept: u64,
    pub(super) paused: bool,
    /// Its target's index, if it has one that is configured.
    pub(super) target: Option<usize>,
    pub(super) ready: ReadySet,
    /// Ready messages that are not durable yet, and so in nobody's sight.
    pub(super) arriving: u64,
    pub(super) delayed: u64,
    pub(super) leased: BTreeSet<(Mono, Seq)>,
    pub(super) backoff: BTreeSet<(Mono, Seq)>,
    pub(super) dead: BTreeSet<Seq>,
    /// Messages that are not terminal, durable or not: what the bounds count.
    pub(super) unfinished: u64,
    pub(super) unfinished_bytes: u64,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) replay: Option<ReplayTask>,
    pub(super) totals: Totals,
    pub(super) arrivals: Meter,
    pub(super) completions: Meter,
    pub(super) service: ServiceTime,
    pub(super) busy: BusyThroughput,
    pub(super) return_times: ReturnTimes,
    /// Since when arrivals have exceeded capacity.
    pub(super) exceeded_since: Option<Mono>,
}

impl Queue {
    pub(super) fn new(number: QueueNumber, name: Name, settings: QueueSettings) -> Self {
        Self {
            number,
            name,
            settings,
            declared: false,
            deleted: false,
            since: 0,
            kept: 0,
            paused: false,
            target: None,
            ready: ReadySet::default(),
            arriving: 0,
            delayed: 0,
            leased: BTreeSet::new(),
            backoff: BTreeSet::new(),
            dead: BTreeSet::new(),
            unfinished: 0,
            unfinished_bytes: 0,
            waiters: VecDeque::new(),
            replay: None,
            totals: Totals::default(),
            arrivals: Meter::new(),
            completions: Meter::new(),
            service: ServiceTime::default(),
            busy: BusyThroughput::default(),
            return_times: ReturnTimes::default(),
            exceeded_since: None,
        }
    }

    fn ready_of(slot: &Slot) -> Ready {
        let message = &slot.message;
        Ready {
            seq: message.seq,
            place: message.place,
            due_since: slot.due_since,
            prompt: message.place == message.seq.0 && message.first_due == message.accepted,
        }
    }

    /// Counts a message in where it stands.
    pub(super) fn enter(&mut self, slot: &Slot) {
        let seq = slot.message.seq;
        match slot.message.phase {
            Phase::Ready if !slot.visible => self.arriving += 1,
            Phase::Ready => self.ready.insert(Self::ready_of(slot)),
            Phase::Delayed => self.delayed += 1,
            Phase::Leased => assert!(self.leased.insert((slot.due_since, seq)), "leased twice: {seq:?}"),
            Phase::Backoff => {
                assert!(self.backoff.insert((slot.due_since, seq)), "in backoff twice: {seq:?}");
            }
            Phase::Dead => assert!(self.dead.insert(seq), "dead twice: {seq:?}"),
            Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {}
        }
        if !slot.message.phase.is_terminal() {
            self.unfinished += 1;
            self.unfinished_bytes += u64::from(slot.message.size_bytes);
        }
    }

    /// Counts a message out of where it stands.
    pub(super) fn leave(&mut self, slot: &Slot) {
        let seq = slot.message.seq;
        match slot.message.phase {
            Phase::Ready if !slot.visible => self.arriving -= 1,
            Phase::Ready => self.ready.remove(Self::ready_of(slot)),
            Phase::Delayed => self.delayed -= 1,
            Phase::Leased => assert!(self.leased.remove(&(slot.due_since, seq)), "not leased: {seq:?}"),
            Phase::Backoff => assert!(self.backoff.remove(&(slot.due_since, seq)), "not in backoff: {seq:?}"),
            Phase::Dead => assert!(self.dead.remove(&seq), "not dead: {seq:?}"),
            Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {}
        }
        if !slot.message.phase.is_terminal() {
            self.unfinished -= 1;
            self.unfinished_bytes -= u64::from(slot.message.size_bytes);
        }
    }

    /// Whether the queue itself allows another hand-out under `cap`.
    pub(super) fn may_hand_out(&self, cap: Option<u32>) -> bool {
        !self.paused
            && !self.deleted
            && !self.ready.is_empty()
            && cap.is_none_or(|cap| (self.leased.len() as u64) < u64::from(cap))
            && (self.dead.len() as u64) < self.settings.dead_letter.max_messages
    }

    /// Where a message that arrives now would stand: how many are due before it.
    pub(super) fn ahead_of_new(&self) -> u64 {
        self.ready.len() + self.arriving
    }

    /// How many messages start before this one, where that can be said.
    pub(super) fn position(&self, slot: &Slot) -> Option<u64> {
        match slot.message.phase {
            Phase::Ready => Some(self.ready.rank(slot.message.place)),
            _ => None,
        }
    }
}
