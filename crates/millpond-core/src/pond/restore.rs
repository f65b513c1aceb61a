//! The way back: a pond from its log.
//!
//! Owns what each record means for a restored message. Must never emit anything before all is replayed.

use super::Pond;
use super::queue::Queue;
use super::slot::Slot;
use super::slots::Slots;
use super::target::Target;
use super::timers::Timer;
use crate::command::{Declared, OpNumber};
use crate::identity::{Receipt, Seq};
use crate::message::{Attempt, DeadReason, HandOut, Holder, Message, Phase, QueueNumber};
use crate::name::Label;
use crate::record::{QueueRecord, Record};
use crate::time::{Mono, Now, Wall};
use std::ops::Bound;

/// Resting messages placed per step of the loop over all of them.
const RESTING_BATCH: usize = 4096;

impl Pond {
    /// Replays one record of the log. Records about messages that are gone by now are skipped.
    pub fn restore(&mut self, record: Record) {
        match record {
            Record::Boot { epoch, next } => {
                self.epoch = self.epoch.max(epoch);
                self.next = self.next.max(next);
            }
            Record::Queue(queue) => self.restore_queue(*queue),
            Record::Message { message, .. } => {
                self.seen(message.seq.0);
                self.seen(message.place);
                self.slots.restore(*message);
            }
            Record::Leased { receipt, started, until, holder, consumer } => {
                self.seen(receipt.seq.0);
                if let Holder::Push(target) = &holder {
                    self.called.insert(target.clone(), started);
                }
                self.restore_lease(receipt, started, until, holder, consumer);
            }
            Record::Extended { seq, until } => self.amend(seq, |message| {
                if let Some(hand_out) = &mut message.hand_out {
                    hand_out.until = until;
                }
            }),
            Record::Returned { seq, attempt, due, at } => self.amend(seq, |message| {
                restore_return(message, attempt.as_ref(), due, at);
            }),
            Record::Died { seq, attempt, reason, at, kept_until, teller } => self.amend(seq, |message| {
                message.told_by(teller);
                message.due = kept_until;
                restore_death(message, attempt.as_ref(), reason, at);
            }),
            Record::Replayed { seq, place, at, expires } => {
                self.seen(place);
                self.restore_count(seq);
                self.amend(seq, |message| restore_replay(message, place, at, expires));
            }
            Record::Forgotten { seq } => {
                self.seen(seq.0);
                self.slots.remove(seq);
            }
            Record::Called { target, started } => {
                self.called.insert(target, started);
            }
        }
    }

    fn seen(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    fn amend(&mut self, seq: Seq, change: impl FnOnce(&mut Message)) {
        self.seen(seq.0);
        if let Some(slot) = self.slots.get_mut(seq) {
            change(&mut slot.message);
        }
    }

    /// Counts a replayed message for the task that replayed it. What an older record says is in the count of a later
    /// record of the queue.
    fn restore_count(&mut self, seq: Seq) {
        let queue = self.slots.get(seq).map(|slot| slot.message.queue.0 as usize);
        if let Some(queue) = queue.and_then(|index| self.queues.get_mut(index)) {
            queue.replays.count();
        }
    }

    fn restore_lease(
        &mut self,
        receipt: Receipt,
        started: Wall,
        until: Wall,
        holder: Holder,
        consumer: Option<Label>,
    ) {
        self.amend(receipt.seq, |message| {
            message.phase = Phase::Leased;
            message.consumer = consumer;
            message.deliveries = receipt.delivery.saturating_sub(message.deliveries_before);
            message.first_started.get_or_insert(started);
            let epoch = receipt.epoch;
            message.hand_out = Some(HandOut { epoch, started, until, holder, settled: None });
        });
    }

    fn restore_queue(&mut self, record: QueueRecord) {
        let index = record.number.0 as usize;
        while self.queues.len() <= index {
            let number = QueueNumber(u32::try_from(self.queues.len()).expect("numbers are u32"));
            let mut gap = Queue::new(number, record.name.clone(), record.settings.clone());
            gap.deleted = true;
            self.queues.push(gap);
        }
        let queue = &mut self.queues[index];
        queue.name = record.name;
        queue.waiters.set_prefetch(record.settings.prefetch);
        queue.settings = record.settings;
        queue.paused = record.paused;
        queue.deaths.burst = record.dead_burst;
        queue.deleted = record.deleted;
        queue.since = record.since;
        queue.replays.tasks = record.replays.into();
        queue.replays.uncounted = false;
    }

    /// Starts a new boot after the whole log was replayed: takes the configuration, sets every message where
    /// it stands, and emits the boot's record, which must be durable before anyone is served.
    pub fn open(&mut self, declared: Declared, now: Now) {
        self.epoch += 1;
        self.emit(Record::Boot { epoch: self.epoch, next: self.next }, true);
        let called = std::mem::take(&mut self.called);
        for (name, settings) in declared.targets {
            let started = called.get(&name).copied();
            let mut target = Target::new(name, settings, now.mono);
            if let Some(started) = started {
                target.resume_pace(started, now);
            }
            self.targets.push(target);
        }
        for queue in self.queues.iter().filter(|queue| !queue.deleted) {
            self.names.insert(queue.name.clone(), queue.number);
        }
        for index in 0..self.queues.len() {
            self.bind(self.queues[index].number);
        }
        for (name, settings) in declared.queues {
            let number = match self.queue_named(&name) {
                Some(number) if self.queue_ref(number).settings == settings => number,
                Some(number) => {
                    self.change(number, settings, now);
                    number
                }
                None => {
                    let number = self.create(name, settings);
                    self.write_queue(number, true);
                    number
                }
            };
            self.queue_mut(number).declared = true;
        }
        self.place_all(now);
        self.restore_holds(now);
        self.resume_replays(now);
        self.bound_keys();
        self.restore_tellers();
        for index in 0..self.queues.len() {
            self.note_dead_letters(self.queues[index].number, now);
        }
        self.serve_all(now);
    }

    /// A message that belongs to no queue that is known: then the log is damaged.
    pub fn orphan(&self) -> Option<Seq> {
        let known = self.queues.len();
        if self.slots.queues().all(|queue| (queue.0 as usize) < known) {
            return None;
        }
        self.slots.iter().find(|(_, slot)| slot.message.queue.0 as usize >= known).map(|(seq, _)| seq)
    }

    /// Sets every restored message where it stands.
    fn place_all(&mut self, now: Now) {
        let awake = self.slots.start_clock(now);
        let mut from = Bound::Unbounded;
        loop {
            let batch: Vec<Seq> = self.slots.resting_from(from).take(RESTING_BATCH).collect();
            let Some(&last) = batch.last() else { break };
            for seq in batch {
                self.place_resting(seq);
            }
            from = Bound::Excluded(last);
        }
        // After those that rest, for some of these are laid to rest as well.
        for (seq, slot) in awake {
            // What is older than its queue was forgotten in the time of an earlier queue of that number.
            if seq.0 >= self.queue_ref(slot.message.queue).since {
                self.place(seq, slot, now);
            }
        }
    }

    /// Sets a message where it stands that rested before the restart and goes on resting.
    fn place_resting(&mut self, seq: Seq) {
        let listed = |slots: &Slots| slots.get(seq).map(|slot| (slot.message.queue, slot.message.key));
        let (number, key) = listed(&self.slots).expect("it was listed");
        if seq.0 >= self.queue_ref(number).since && !self.remember_key(number, key, seq) {
            self.slot_mut(seq).message.key = None;
        }
        let slot = self.slots.get(seq).expect("it was listed");
        let message = &slot.message;
        if seq.0 < self.queues[message.queue.0 as usize].since {
            drop(slot);
            self.slots.remove(seq);
            return;
        }
        if let Some(at) = slot.phase_timer {
            self.timers.set(at, Timer::Phase(seq));
        }
        if let Some(at) = slot.expiry_timer {
            self.expiries.set(seq, at, message.ttl_micros());
        }
        let queue = &mut self.queues[message.queue.0 as usize];
        enter_restored(queue, &slot, &self.slots);
        self.load.enter(&slot.message);
        queue.tell(&mut self.targets);
    }

    /// Shows every message that the log still knows, before [`Pond::open`]: for whoever reads a log without serving
    /// it. In the order of their numbers.
    pub fn each_restored(&self, visit: &mut dyn FnMut(&Message)) {
        for (seq, slot) in self.slots.iter() {
            let message = &slot.message;
            let since = self.queues.get(message.queue.0 as usize).map_or(0, |queue| queue.since);
            if seq.0 >= since {
                visit(message);
            }
        }
    }

    /// Sets a restored message where it stands.
    fn place(&mut self, seq: Seq, mut slot: Box<Slot>, now: Now) {
        slot.visible = true;
        slot.op = OpNumber(0);
        if !self.remember_key(slot.message.queue, slot.message.key, seq) {
            slot.message.key = None;
        }
        if let Some(hand_out) = &slot.message.hand_out {
            // Also of one whose lease ran out: its holder may complete it late.
            slot.started = now.mono_at(hand_out.started).min(now.mono);
        }
        let message = &mut slot.message;
        slot.due_since = resume(now, message.accepted, message.first_due);
        if message.phase != Phase::Delayed {
            slot.due_since = slot.due_since.min(now.mono);
        }
        let phase_ends = match message.phase {
            Phase::Ready => None,
            Phase::Delayed => Some(resume(now, message.accepted, message.due)),
            Phase::Backoff => {
                let returned = message.hand_out.as_ref().map_or(message.accepted, |hand_out| hand_out.until);
                Some(resume(now, returned, message.due))
            }
            Phase::Leased => {
                let hand_out = message.hand_out.as_ref().expect("a leased message has been handed out");
                slot.restored_lease = true;
                Some(resume(now, hand_out.started, hand_out.until))
            }
            Phase::Dead | Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {
                // By the retention that was in force at its end: what was forgotten since must not come back because
                // the retention was raised.
                let finished = message.finished.unwrap_or(message.accepted);
                Some(resume(now, finished, message.due))
            }
        };
        if let Some(at) = phase_ends {
            slot.phase_timer = Some(at);
            self.timers.set(at, Timer::Phase(seq));
        }
        if !message.phase.is_terminal() {
            let at = resume(now, message.accepted, message.expires);
            slot.expiry_timer = Some(at);
            self.expiries.set(seq, at, message.ttl_micros());
        }
        // A call that was under way may still be worked on: it keeps its place until its lease ends, at the target that
        // was called, and though that may have fewer places now.
        let hand_out = message.hand_out.as_ref().filter(|_| message.phase == Phase::Leased);
        let called = hand_out.and_then(|hand_out| target_called(&self.targets, &hand_out.holder));
        let queue = &mut self.queues[message.queue.0 as usize];
        if let Some(target) = called {
            self.targets[target].occupied += 1;
            slot.occupies = Some(target);
        }
        enter_restored(queue, &slot, &self.slots);
        self.load.enter(&slot.message);
        queue.tell(&mut self.targets);
        self.slots.insert(seq, slot);
        self.slots.may_rest(seq, self.durable);
    }

    /// Calls that timed out, or were never reported, may still be worked on: they keep their places for the rest
    /// of the hold.
    fn restore_holds(&mut self, now: Now) {
        let held: Vec<(usize, Mono)> =
            self.slots.awake().flat_map(|slot| self.held_for(&slot.message, now)).collect();
        for (target, until) in held {
            self.targets[target].occupied += 1;
            self.hold(target, until.since(now.mono), now);
        }
    }

    /// Until when ended calls with a message still occupy the targets that were called.
    fn held_for(&self, message: &Message, now: Now) -> impl Iterator<Item = (usize, Mono)> {
        let held = message.history.iter().filter_map(move |attempt| {
            let held = attempt.outcome.may_still_be_at_work();
            let target = target_called(&self.targets, &attempt.holder).filter(|_| held)?;
            let ended = attempt.ended();
            Some((target, resume(now, ended, ended.plus(self.targets[target].settings.hold()))))
        });
        held.filter(move |(_, until)| *until > now.mono)
    }
}

/// The target that was called, if it is still configured.
fn target_called(targets: &[Target], holder: &Holder) -> Option<usize> {
    let called = holder.target()?;
    targets.iter().position(|target| target.name == *called)
}

/// Counts a restored message in where it stands. It can come before what its group had so far: a replayed one has a
/// later place than its number.
fn enter_restored(queue: &mut Queue, slot: &Slot, slots: &Slots) {
    let first_so_far = queue.join_group(slot);
    queue.enter(slot);
    queue.kept += 1;
    if let Some(place) = first_so_far
        && let Some(former) = slots.get(queue.ready.seq_at(place))
    {
        queue.block(&former);
    }
}

/// When a wait ends that was begun at `begun` and meant to end at `ends`: not later than its whole length from
/// now, for the wall clock may have been set back since.
fn resume(now: Now, begun: Wall, ends: Wall) -> Mono {
    let at = now.mono_at(ends);
    // An end before its beginning shows a clock set back in between: then there is no length to go by.
    if ends < begun { at } else { at.min(now.mono.plus(ends.since(begun))) }
}

fn restore_return(message: &mut Message, attempt: Option<&Attempt>, due: Option<Wall>, at: Wall) {
    message.phase = if due.is_some() { Phase::Backoff } else { Phase::Ready };
    if let Some(due) = due {
        message.due = due;
    }
    if let Some(attempt) = attempt {
        Pond::note_attempt(message, attempt, at);
    } else {
        take_back(message);
    }
}

/// Undoes a hand-out that reached nobody. It is no delivery, but its number stays taken: were its receipt given
/// again, nothing would tell the two holders apart.
pub(super) fn take_back(message: &mut Message) {
    if message.deliveries > 0 {
        message.deliveries -= 1;
        message.deliveries_before += 1;
    }
    message.hand_out = None;
    if message.deliveries == 0 {
        message.first_started = None;
    }
}

fn restore_death(message: &mut Message, attempt: Option<&Attempt>, reason: DeadReason, at: Wall) {
    message.phase = Phase::Dead;
    message.finished = Some(at);
    message.dead_reason = Some(reason);
    if let Some(attempt) = attempt {
        Pond::note_attempt(message, attempt, at);
    }
}

/// Puts a dead letter back as [`Record::Replayed`] says.
pub(super) fn restore_replay(message: &mut Message, place: u64, at: Wall, expires: Wall) {
    message.phase = Phase::Ready;
    message.place = place;
    message.first_due = at;
    message.due = at;
    message.expires = expires;
    message.attempts = 0;
    message.deliveries_before += message.deliveries;
    message.deliveries = 0;
    message.first_started = None;
    message.finished = None;
    message.dead_reason = None;
}
