//! One queue: which of its messages stand where, who waits for them, and what its forecast rests on.
//!
//! Owns membership, counts and ages. Must never change a message.

use super::blocked::Blocked;
use super::callbacks::Owing;
use super::groups::Groups;
use super::held::Deaths;
use super::keys::Keys;
use super::order::{Age, PlaceSet, Ready, ReadySet};
use super::replay::Replays;
use super::slot::Slot;
use super::target::Target;
use super::waiters::Waiters;
use crate::forecast::{BusyThroughput, Calibration, Meter, ReturnTimes, ServiceTime};
use crate::identity::Seq;
use crate::message::{Criticality, Phase, QueueNumber};
use crate::name::Name;
use crate::scaling::{LONG_SECONDS, RECENT_SECONDS};
use crate::settings::{OnExpiry, QueueSettings};
use crate::stats::{Held, Totals};
use crate::time::Mono;
use std::collections::BTreeSet;

/// What a target is told of each of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// It has work, and is not paused: it takes its share of the target.
    pub(super) working: bool,
    /// It may hand out work now.
    pub(super) open: bool,
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
    pub(super) deaths: Deaths,
    /// Why it hands out nothing, as far as the forecast has heard.
    pub(super) held: Option<Held>,
    pub(super) blocked: Blocked,
    pub(super) keys: Keys,
    /// Its target's index, if it has one that is configured.
    pub(super) target: Option<usize>,
    /// The most messages in work at once: its own cap, or its target's.
    pub(super) cap: Option<u32>,
    /// What its target has been told of it.
    pub(super) told: Told,
    pub(super) ready: ReadySet,
    pub(super) groups: Groups,
    /// Ready messages that are not durable yet, and so in nobody's sight.
    pub(super) arriving: u64,
    pub(super) delayed: u64,
    pub(super) leased: BTreeSet<(Mono, Seq)>,
    pub(super) backoff: BTreeSet<(Mono, Seq)>,
    pub(super) dead: BTreeSet<Seq>,
    /// Numbers of waiting messages that have expired, and stay because there is no room for another dead letter.
    pub(super) overdue: PlaceSet,
    /// Messages that are not terminal, durable or not: what the bounds count.
    pub(super) unfinished: u64,
    pub(super) unfinished_bytes: u64,
    /// Those of them whose end is to be told.
    pub(super) owing: Owing,
    pub(super) waiters: Waiters,
    pub(super) replays: Replays,
    pub(super) totals: Totals,
    pub(super) arrivals: Meter,
    /// The same with a longer memory.
    pub(super) arrivals_long: Meter,
    pub(super) completions: Meter,
    pub(super) service: ServiceTime,
    pub(super) busy: BusyThroughput,
    /// By class: those who may use less of a bound are sent further away.
    pub(super) return_times: [ReturnTimes; Criticality::ALL.len()],
    pub(super) calibration: Calibration,
    /// Since when arrivals have exceeded capacity.
    pub(super) exceeded_since: Option<Mono>,
}

impl Queue {
    pub(super) fn new(number: QueueNumber, name: Name, settings: QueueSettings) -> Self {
        let waiters = Waiters::new(settings.prefetch);
        Self {
            number,
            name,
            settings,
            declared: false,
            deleted: false,
            since: 0,
            kept: 0,
            paused: false,
            deaths: Deaths::default(),
            held: None,
            blocked: Blocked::default(),
            keys: Keys::default(),
            target: None,
            cap: None,
            told: Told::default(),
            ready: ReadySet::default(),
            groups: Groups::default(),
            arriving: 0,
            delayed: 0,
            leased: BTreeSet::new(),
            backoff: BTreeSet::new(),
            dead: BTreeSet::new(),
            overdue: PlaceSet::default(),
            unfinished: 0,
            unfinished_bytes: 0,
            owing: Owing::default(),
            waiters,
            replays: Replays::default(),
            totals: Totals::default(),
            arrivals: Meter::over(RECENT_SECONDS),
            arrivals_long: Meter::over(LONG_SECONDS),
            completions: Meter::new(),
            service: ServiceTime::default(),
            busy: BusyThroughput::default(),
            return_times: Default::default(),
            calibration: Calibration::default(),
            exceeded_since: None,
        }
    }

    /// What the order of a message depends on, if it is ready.
    pub(super) fn ready_of<'a>(&self, slot: &'a Slot) -> Ready<'a> {
        let message = &slot.message;
        let group = message.group.as_ref();
        Ready {
            seq: message.seq,
            age: Age {
                place: message.place,
                due_since: slot.due_since,
                prompt: message.place == message.seq.0 && message.first_due == message.accepted,
            },
            criticality: message.criticality,
            tenant: message.tenant.as_ref(),
            retry: message.attempts > 0,
            blocked: group.is_some_and(|group| self.groups.is_blocked(group, message.place)),
        }
    }

    /// A message has begun its life, or was brought back to it: before it enters. Returns the place of the one that was
    /// first in its group so far, if this one comes before it.
    pub(super) fn join_group(&mut self, slot: &Slot) -> Option<u64> {
        let message = &slot.message;
        let group = message.group.as_ref()?;
        if message.phase.is_terminal() {
            return None;
        }
        if !self.settings.order.keeps_groups() {
            self.groups.release();
            return None;
        }
        self.groups.join(group, message.place)
    }

    /// A message that was first in its group is so no more.
    pub(super) fn block(&mut self, slot: &Slot) {
        if slot.message.phase == Phase::Ready && slot.visible {
            let ready = self.ready_of(slot);
            self.ready.remove(Ready { blocked: false, ..ready });
            self.ready.insert(ready);
        }
    }

    /// A message has become the first of its group.
    pub(super) fn unblock(&mut self, slot: &Slot) {
        if slot.message.phase == Phase::Ready && slot.visible {
            let ready = self.ready_of(slot);
            self.ready.remove(Ready { blocked: true, ..ready });
            self.ready.insert(ready);
        }
    }

    /// Counts a message in where it stands.
    pub(super) fn enter(&mut self, slot: &Slot) {
        let seq = slot.message.seq;
        let (criticality, tenant) = (slot.message.criticality, slot.message.tenant.as_ref());
        match slot.message.phase {
            Phase::Ready if !slot.visible => {
                self.arriving += 1;
                self.ready.insert_arriving(self.ready_of(slot));
            }
            Phase::Ready => self.ready.insert(self.ready_of(slot)),
            Phase::Delayed => self.delayed += 1,
            Phase::Leased => {
                assert!(self.leased.insert((slot.due_since, seq)), "leased twice: {seq:?}");
                if let Some(consumer) = &slot.message.consumer {
                    self.waiters.took(consumer);
                }
            }
            Phase::Backoff => {
                assert!(self.backoff.insert((slot.due_since, seq)), "in backoff twice: {seq:?}");
                self.ready.count_backoff(criticality, tenant, 1);
            }
            Phase::Dead => assert!(self.dead.insert(seq), "dead twice: {seq:?}"),
            Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {}
        }
        self.keys.enter(&slot.message);
        if !slot.message.phase.is_terminal() {
            self.unfinished += 1;
            self.unfinished_bytes += u64::from(slot.message.size_bytes);
            self.owing.messages += u64::from(slot.message.callback.is_some());
        }
    }

    /// Counts a message out of where it stands.
    pub(super) fn leave(&mut self, slot: &Slot) {
        let seq = slot.message.seq;
        let (criticality, tenant) = (slot.message.criticality, slot.message.tenant.as_ref());
        match slot.message.phase {
            Phase::Ready if !slot.visible => {
                self.arriving -= 1;
                self.ready.remove_arriving(self.ready_of(slot));
            }
            Phase::Ready => self.ready.remove(self.ready_of(slot)),
            Phase::Delayed => self.delayed -= 1,
            Phase::Leased => {
                assert!(self.leased.remove(&(slot.due_since, seq)), "not leased: {seq:?}");
                if let Some(consumer) = &slot.message.consumer {
                    self.waiters.gave_back(consumer);
                }
            }
            Phase::Backoff => {
                assert!(self.backoff.remove(&(slot.due_since, seq)), "not in backoff: {seq:?}");
                self.ready.count_backoff(criticality, tenant, -1);
            }
            Phase::Dead => assert!(self.dead.remove(&seq), "not dead: {seq:?}"),
            Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {}
        }
        self.keys.leave(&slot.message);
        if !slot.message.phase.is_terminal() {
            self.unfinished -= 1;
            self.unfinished_bytes -= u64::from(slot.message.size_bytes);
            self.owing.messages -= u64::from(slot.message.callback.is_some());
        }
    }

    /// Whether the queue itself allows another hand-out.
    pub(super) fn may_hand_out(&self) -> bool {
        !self.paused
            && !self.deleted
            && self.ready.has_eligible()
            && self.cap.is_none_or(|cap| (self.leased.len() as u64) < u64::from(cap))
            && !self.dead_letters_are_full()
            && !self.waits_for_tellers()
    }

    /// Whether its messages must not end now, for there is no room to tell of it.
    pub(super) fn waits_for_tellers(&self) -> bool {
        self.owing.without_room && self.owing.messages > 0
    }

    /// How many of the messages that have expired may go now.
    pub(super) fn room_for_expired(&self) -> u64 {
        if self.waits_for_tellers() {
            return 0;
        }
        match self.settings.on_expiry {
            OnExpiry::DeadLetter => {
                self.settings.dead_letter.max_messages.saturating_sub(self.dead.len() as u64)
            }
            OnExpiry::Drop => u64::MAX,
        }
    }

    /// Whether there is no room for more dead letters.
    pub(super) fn dead_letters_are_full(&self) -> bool {
        self.dead.len() as u64 >= self.settings.dead_letter.max_messages
    }

    /// Tells the queue's target what has changed: it must not ask all its queues at every turn.
    pub(super) fn tell(&mut self, targets: &mut [Target]) {
        let Some(target) = self.target else { return };
        let working = !self.paused && !self.deleted && self.ready.has_eligible();
        let told = Told { working, open: working && self.may_hand_out() };
        if told != self.told {
            targets[target].hear(self.number.0 as usize, self.told, told);
            self.told = told;
        }
    }
}
