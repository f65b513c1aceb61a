//! The pond: the deterministic state machine that every deployment, and the simulator, runs.
//!
//! Owns the life of every message. Inputs are handled one at a time with the moment they happen; effects come
//! out in order. Must never do I/O, read a clock, or let anyone see what is not durable.
//!
//! Call order: [`Pond::new`], [`Pond::restore`] for every record of the log in order, [`Pond::open`] once, then
//! [`Pond::handle`] as inputs come, taking [`Pond::effects`] after each, and not later than
//! [`Pond::next_wakeup`].

mod awake;
mod blocked;
mod bounds;
mod callbacks;
mod check;
mod column;
mod enqueue;
mod expiries;
mod groups;
mod handout;
mod held;
mod keys;
mod load;
mod lookup;
mod operate;
mod order;
mod outlook;
mod prediction;
mod purge;
mod queue;
mod replay;
mod resting;
mod restore;
mod settle;
mod shelf;
mod slot;
mod slots;
mod target;
mod timers;
mod transition;
mod waiters;

use crate::command::{Command, Effect, Input, OpNumber, Reply, RequestId, StorageState};
use crate::identity::Seq;
use crate::message::{Progress, QueueNumber};
use crate::name::Name;
use crate::record::Record;
use crate::time::{Mono, Now, Wall};
use callbacks::Tellers;
use expiries::Expiries;
use groups::Parting;
use load::Load;
use purge::Purge;
use queue::Queue;
use replay::Survey;
use slot::Slot;
use slots::{Slots, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use target::Target;
use timers::{Timer, Timers};

/// Timers handled per input, so that a million messages that fall due at once hold up nothing else.
const TIMERS_PER_STEP: usize = 512;
/// Requests that may wait at once for messages or for the end of one.
const WAITING_MAX: usize = 20_000;
/// Queues that a pond may have.
const QUEUES_MAX: usize = 10_000;

/// What a waiting request waits for, and until when.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    what: WaitingFor,
    until: Mono,
}

#[derive(Debug, Clone, Copy)]
enum WaitingFor {
    Messages(QueueNumber),
    Room(QueueNumber),
    End(Seq),
    /// Any change from what is known.
    Change(Seq, Progress),
}

/// What happens once a record is durable.
#[derive(Debug)]
enum Gated {
    Reply(RequestId, Box<Reply>),
    Show(Seq),
    Ended(Seq),
    Parted(Box<Parting>),
}

/// The state machine.
#[derive(Debug)]
pub struct Pond {
    epoch: u32,
    /// The next number or place to give.
    next: u64,
    emitted: OpNumber,
    durable: OpNumber,
    /// The last record that somebody may wait for.
    last_synced: OpNumber,
    slots: Slots,
    queues: Vec<Queue>,
    names: BTreeMap<Name, QueueNumber>,
    targets: Vec<Target>,
    /// When each target was called last, as far as the log tells; only until the pond opens.
    called: BTreeMap<Name, Wall>,
    keys: BTreeMap<(QueueNumber, u128), Seq>,
    timers: Timers,
    expiries: Expiries,
    holds: u64,
    gated: VecDeque<(OpNumber, Gated)>,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Messages that somebody watches and that this step has moved.
    moved: Vec<Seq>,
    /// Queues whose replays go on with the next step.
    replaying: Vec<QueueNumber>,
    surveys: VecDeque<Survey>,
    purges: VecDeque<Purge>,
    /// Queues that may have more idempotency keys than they may remember.
    forgetting: BTreeSet<QueueNumber>,
    tellers: Tellers,
    load: Load,
    /// Queues in which there may be room for those who wait for it.
    freed: BTreeSet<QueueNumber>,
    storage: StorageState,
    draining: bool,
    /// Nobody makes calls to targets.
    unattended: bool,
    chance: fastrand::Rng,
    effects: Vec<Effect>,
}

impl Pond {
    /// An empty pond whose chance comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            epoch: 0,
            next: 1,
            emitted: OpNumber(0),
            durable: OpNumber(0),
            last_synced: OpNumber(0),
            slots: Slots::default(),
            queues: Vec::new(),
            names: BTreeMap::new(),
            targets: Vec::new(),
            called: BTreeMap::new(),
            keys: BTreeMap::new(),
            timers: Timers::default(),
            expiries: Expiries::default(),
            holds: 0,
            gated: VecDeque::new(),
            waiting: BTreeMap::new(),
            moved: Vec::new(),
            replaying: Vec::new(),
            surveys: VecDeque::new(),
            purges: VecDeque::new(),
            forgetting: BTreeSet::new(),
            tellers: Tellers::default(),
            load: Load::default(),
            freed: BTreeSet::new(),
            storage: StorageState::Roomy,
            draining: false,
            unattended: false,
            chance: fastrand::Rng::with_seed(seed),
            effects: Vec::new(),
        }
    }

    /// Keeps so many of the latest messages in full, 4096 unless this is called, instead of in the compact form of
    /// those that wait untouched. Nothing but memory and time depends on it.
    pub fn keep_in_full(&mut self, messages: usize) {
        self.slots.keep_awake(messages);
    }

    /// Handles one input at `now`. Effects are added to those not yet taken.
    pub fn handle(&mut self, input: Input, now: Now) {
        self.advance(now);
        match input {
            Input::Tick => {}
            Input::Command { request, command } => self.command(request, command, now),
            Input::Abandon(request) => self.abandon(request),
            Input::Undelivered(receipt) => self.undelivered(receipt, now),
            Input::Durable(op) => self.made_durable(op, now),
            Input::CallEnded { receipt, outcome } => self.call_ended(receipt, outcome, now),
            Input::Unattended => self.unattended = true,
            Input::Storage(state) => {
                self.storage = state;
                for index in 0..self.queues.len() {
                    self.note_hold(self.queues[index].number, now);
                    self.room_may_be_free(self.queues[index].number);
                    self.expire_overdue(self.queues[index].number);
                }
                self.serve_all(now);
            }
            Input::Copy(copies) => self.copy(copies),
            Input::CopyBasics => self.copy_basics(),
            Input::Drain => self.drain(now),
        }
        self.purge_step(now);
        self.keys_step();
        self.tellers_step(now);
        self.serve_freed(now);
        self.replay_step(now);
        self.tell_followers(now);
    }

    fn command(&mut self, request: RequestId, command: Command, now: Now) {
        match command {
            Command::Enqueue { queue, messages } => self.enqueue(request, &queue, messages, now),
            Command::Lease(wish) => self.lease(request, &wish, now),
            Command::Extend(leases) => self.extend(request, &leases, now),
            Command::Settle(settlements) => self.settle(request, settlements, now),
            Command::Cancel(seq) => self.cancel(request, seq, now),
            Command::Status { seq, wait } => self.status(request, seq, wait, now),
            Command::Follow { seq, known, wait } => self.follow(request, seq, known, wait, now),
            Command::List { queue, phase, after, limit } => {
                self.list(request, &queue, phase, after, limit, now);
            }
            Command::Overview => self.overview(request, now),
            Command::Queue(queue) => self.queue_view(request, &queue, now),
            Command::Targets => self.targets(request, now),
            Command::Target(target) => self.target(request, &target, now),
            Command::ResetTarget(target) => self.reset_target(request, &target, now),
            Command::Define { queue, settings } => self.define(request, queue, *settings, now),
            Command::Delete(queue) => self.delete(request, &queue, now),
            Command::Pause { queue, paused } => self.pause(request, &queue, paused, now),
            Command::Replay { queue, wish, dry_run } => self.replay(request, &queue, wish, dry_run, now),
            Command::Replays(queue) => self.replays(request, &queue, now),
            Command::CancelReplay { queue, number } => self.cancel_replay(request, &queue, number, now),
            Command::Purge(queue) => self.purge(request, &queue),
            Command::DeleteDead { queue, seq } => self.delete_dead(request, &queue, seq, now),
        }
    }

    /// The effects since the last call, in order.
    pub fn effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// When the pond must be given a [`Input::Tick`] at the latest; `None`: not before another input.
    pub fn next_wakeup(&self) -> Option<Mono> {
        if self.is_replaying() || self.is_purging() || !self.forgetting.is_empty() {
            return Some(Mono(i64::MIN));
        }
        match (self.timers.next(), self.expiries.next()) {
            (Some(timer), Some(expiry)) => Some(timer.min(expiry)),
            (timer, expiry) => timer.or(expiry),
        }
    }

    /// The boot's number, one more at every [`Pond::open`] of the same log.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether nobody has anything: no lease, no call that occupies a target.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.leased.is_empty())
            && self.targets.iter().all(|target| target.occupied == 0)
    }

    /// Whether a message's newest full copy is needed at all.
    pub fn needs(&self, seq: Seq) -> bool {
        self.slots.contains_key(seq)
    }

    /// What the log has room for: as it was said last, less what was handed out since.
    pub fn storage(&self) -> StorageState {
        self.storage
    }

    /// Messages that are handed out.
    pub fn leased(&self) -> u64 {
        self.load.leased
    }

    /// Whether something has changed since [`Input::CopyBasics`] of which single messages' records tell: whoever gives up
    /// a part of the log must have the basics written anew before, wherever they lie. For a message's records mean
    /// nothing once its full copy in front of them is gone.
    pub fn are_basics_stale(&self) -> bool {
        self.queues.iter().any(|queue| queue.replays.uncounted)
            || self.targets.iter().any(|target| target.unnoted)
    }

    // --- records and what waits for them -------------------------------------------------------------

    fn emit(&mut self, record: Record, sync: bool) -> OpNumber {
        self.append(record, sync, false)
    }

    fn append(&mut self, record: Record, sync: bool, with_next: bool) -> OpNumber {
        self.emitted.0 += 1;
        if sync {
            self.last_synced = self.emitted;
        }
        self.effects.push(Effect::Append { op: self.emitted, record, sync, with_next });
        self.emitted
    }

    /// Emits a synced record about `seq`: answers about it wait for its durability from now on.
    fn emit_about(&mut self, seq: Seq, record: Record) -> OpNumber {
        self.emit_with(seq, record, false)
    }

    /// The same; `with_next`: it is on the disk with the next record, or neither is.
    fn emit_with(&mut self, seq: Seq, record: Record, with_next: bool) -> OpNumber {
        let op = self.append(record, true, with_next);
        if let Some(slot) = self.slots.get_mut(seq) {
            slot.op = op;
        }
        op
    }

    fn when_durable(&mut self, op: OpNumber, gated: Gated, now: Now) {
        if op <= self.durable && self.gated.is_empty() {
            self.release(gated, now);
            return;
        }
        // Entries stay in the order of their records; waiting for a later one than needed does no harm.
        let op = self.gated.back().map_or(op, |(last, _)| op.max(*last));
        self.gated.push_back((op, gated));
    }

    fn made_durable(&mut self, op: OpNumber, now: Now) {
        assert!(op <= self.emitted, "a record became durable that was never emitted");
        self.durable = self.durable.max(op);
        while self.gated.front().is_some_and(|(waits_for, _)| *waits_for <= self.durable) {
            let (_, gated) = self.gated.pop_front().expect("just seen");
            self.release(gated, now);
        }
    }

    fn release(&mut self, gated: Gated, now: Now) {
        match gated {
            Gated::Reply(request, reply) => self.effects.push(Effect::Reply { request, reply: *reply }),
            Gated::Show(seq) => self.show(seq, now),
            Gated::Ended(seq) => {
                self.wake_watchers(seq, now);
                self.slots.may_rest(seq, self.durable);
            }
            Gated::Parted(parting) => self.part(&parting, now),
        }
    }

    fn reply(&mut self, request: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { request, reply });
    }

    fn reply_when_durable(&mut self, op: OpNumber, request: RequestId, reply: Reply, now: Now) {
        self.when_durable(op, Gated::Reply(request, Box::new(reply)), now);
    }

    /// Answers once everything is durable that has been decided by now.
    fn reply_when_synced(&mut self, request: RequestId, reply: Reply, now: Now) {
        self.reply_when_durable(self.last_synced, request, reply, now);
    }

    // --- time ------------------------------------------------------------------------------------------

    /// Handles what is due, in bounded steps.
    fn advance(&mut self, now: Now) {
        for _ in 0..TIMERS_PER_STEP {
            let slots = &self.slots;
            let expiry = self.expiries.first_due(now.mono, |seq| slots.expiry(seq));
            if let Some(at) = expiry
                && self.timers.next().is_none_or(|timer| at < timer)
            {
                if let Some(seq) = self.expiries.take_first() {
                    self.expiry_due(seq, now);
                }
                continue;
            }
            match self.timers.take_due(now.mono) {
                Some(Timer::Phase(seq)) => self.phase_over(seq, now),
                Some(Timer::Waiter(request)) => self.waited_enough(request, now),
                Some(Timer::Target(index)) => {
                    self.targets[index].timer = None;
                    self.serve_target(index, now);
                }
                Some(Timer::Hold(index, _)) => {
                    self.targets[index].free();
                    self.serve_target(index, now);
                }
                Some(Timer::Replay(index)) => self.replay_due(index),
                None => break,
            }
        }
    }

    // --- requests that wait -----------------------------------------------------------------------------

    fn start_waiting(&mut self, request: RequestId, what: WaitingFor, until: Mono) {
        self.waiting.insert(request, Waiting { what, until });
        self.timers.set(until, Timer::Waiter(request));
    }

    /// Ends a wait and its timer; `None` if it was over.
    fn stop_waiting(&mut self, request: RequestId) -> Option<WaitingFor> {
        let waiting = self.waiting.remove(&request)?;
        self.timers.clear(waiting.until, Timer::Waiter(request));
        Some(waiting.what)
    }

    fn waited_enough(&mut self, request: RequestId, now: Now) {
        match self.stop_waiting(request) {
            Some(WaitingFor::Messages(queue)) => {
                self.queue_mut(queue).waiters.remove(request);
                self.reply(request, Reply::Leased(Ok(Vec::new())));
            }
            Some(WaitingFor::Room(queue)) => self.blocked_enough(request, queue, now),
            Some(WaitingFor::End(seq) | WaitingFor::Change(seq, _)) => {
                self.stop_watching(seq, request);
                self.reply_status(request, seq, now);
            }
            None => {}
        }
    }

    /// Whoever waited for something of a message does so no more, and the message may rest again.
    fn stop_watching(&mut self, seq: Seq, request: RequestId) {
        let Some(slot) = self.slots.get_mut(seq) else { return };
        slot.watchers.retain(|watcher| *watcher != request);
        if slot.watchers.is_empty() {
            self.slots.may_rest(seq, self.durable);
        }
    }

    fn abandon(&mut self, request: RequestId) {
        self.surveys.retain(|survey| survey.request != request);
        match self.stop_waiting(request) {
            Some(WaitingFor::Messages(queue)) => {
                self.queue_mut(queue).waiters.remove(request);
            }
            Some(WaitingFor::Room(queue)) => self.unblock_caller(request, queue),
            Some(WaitingFor::End(seq) | WaitingFor::Change(seq, _)) => {
                self.stop_watching(seq, request);
            }
            None => {}
        }
    }

    fn drain(&mut self, now: Now) {
        self.draining = true;
        let waiting: Vec<RequestId> = self.waiting.keys().copied().collect();
        for request in waiting {
            self.waited_enough(request, now);
        }
    }

    // --- places --------------------------------------------------------------------------------------------

    fn queue_named(&self, name: &Name) -> Option<QueueNumber> {
        self.names.get(name).copied()
    }

    fn queue_ref(&self, number: QueueNumber) -> &Queue {
        &self.queues[number.0 as usize]
    }

    fn queue_mut(&mut self, number: QueueNumber) -> &mut Queue {
        &mut self.queues[number.0 as usize]
    }

    fn slot(&self, seq: Seq) -> View<'_> {
        self.slots.get(seq).expect("the caller has looked it up")
    }

    fn slot_mut(&mut self, seq: Seq) -> &mut Slot {
        self.slots.get_mut(seq).expect("the caller has looked it up")
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}
