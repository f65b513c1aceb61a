//! The reference model: what a pond must do, written so that it is obviously right.
//!
//! Owns the rules of a message's life a second time, with plain lists and linear scans. It predicts what follows
//! from a command or from time, and judges what a pond chooses (who is handed what, how long a backoff is). Must
//! never share code with the pond: only the plain types of commands, settings and time.

mod bounds;
mod breaker;
mod life;
mod turns;

pub use bounds::Verdict;
pub use breaker::{Gate, Sign};
pub use turns::{Candidate, Turns};

use millpond_core::command::{SettleOutcome, StorageState};
use millpond_core::identity::Receipt;
use millpond_core::message::{Criticality, DeadReason, Phase};
use millpond_core::settings::{OnExpiry, Order, QueueSettings, TargetSettings};
use millpond_core::time::{Mono, Now, Wall};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How a hand-out ended, as far as the rules care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The work was done.
    Done,
    /// It failed.
    Failed,
    /// It failed for good.
    Rejected,
    /// It was given back untouched.
    Released,
    /// The target asked for a pause.
    Throttled,
    /// The lease ran out.
    RanOut,
    /// The lease ran out after a restart in its middle.
    Interrupted,
    /// It failed as a probe of a target that was down.
    ProbeFailed,
}

impl Ending {
    fn counts_as_attempt(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected | Self::RanOut)
    }
}

/// How much a message matters, whose it is, and what it must stay in order with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels {
    /// Its class.
    pub class: Criticality,
    /// Its tenant.
    pub tenant: Option<u8>,
    /// Its group.
    pub group: Option<u8>,
}

/// A message on its way in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct New {
    /// What it counts against the bound on bytes.
    pub bytes: u64,
    /// How long it must not be handed out.
    pub delay: Duration,
    /// How long it is worth doing; `None`: the queue's retention.
    pub ttl: Option<Duration>,
    /// Its idempotency key and its payload.
    pub key: Option<(u128, u128)>,
    /// Its labels.
    pub labels: Labels,
}

/// Hand-outs of one message that are remembered.
pub const ENDED_MAX: usize = 50;

/// Who gets a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// This target, which is called.
    Target(usize),
    /// A worker, which may say who it is.
    Worker(Option<u8>),
}

/// A hand-out of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// Its receipt.
    pub receipt: Receipt,
    /// Who has it.
    pub taker: Taker,
    /// How its holder settled it.
    pub settled: Option<Ending>,
    /// Handed out before the latest restart.
    pub restored: bool,
    started: (Wall, Mono),
    until: Wall,
}

/// A message. A copy of it is taken with every record about it: that is what a restart finds.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its queue.
    pub queue: usize,
    /// Its labels.
    pub labels: Labels,
    /// Where it stands.
    pub phase: Phase,
    /// Its place in the order.
    pub place: u64,
    /// What it counts against the bound on bytes.
    pub bytes: u64,
    /// Failed attempts.
    pub attempts: u32,
    /// Hand-outs since acceptance or replay.
    pub deliveries: u32,
    /// The number of the latest hand-out over the whole life.
    pub delivery: u32,
    /// The latest hand-out.
    pub hold: Option<Hold>,
    /// When the first hand-out since acceptance or replay began that reached anybody.
    pub first_started: Option<Wall>,
    /// Media type and size of its result.
    pub result: Option<(String, u64)>,
    /// Why it is a dead letter.
    pub dead_reason: Option<DeadReason>,
    /// The hand-outs that have ended, by their numbers, oldest first: the latest [`ENDED_MAX`].
    pub ended: Vec<(u32, Ending)>,
    /// When it was first due.
    pub due_since: Mono,
    /// A hand-out of the boot before, whose record was lost.
    pub lost: Option<Receipt>,
    /// When calls with it ended that may still be worked on, and which target was called.
    given_up: Vec<(Wall, usize)>,
    /// A backoff that the pond has yet to name: its shortest and longest length.
    pub open_backoff: Option<(Duration, Duration)>,
    key: Option<(u128, u128)>,
    accepted: Wall,
    first_due: Wall,
    /// When its phase ends by itself, on both clocks, and when that was decided.
    phase_ends: Option<(Mono, Wall, Wall)>,
    expires: (Mono, Wall),
    expired: bool,
    /// Its time to live is over, and it stays while there is no room for another dead letter.
    overdue: bool,
    /// How many records about it there are up to the latest that decided something, as leases and copies do not:
    /// answers wait until so many are durable, and so does the next hand-out.
    pub decided_with: usize,
}

/// One queue.
#[derive(Debug)]
pub struct Queue {
    /// Its settings.
    pub settings: QueueSettings,
    /// The target it is pushed to.
    pub target: Option<usize>,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// Whether a completion was seen since the start: from then on the capacity is measured, not configured.
    pub measured: bool,
    /// Messages given up in a row.
    pub deaths: u32,
    /// Enqueues that wait for room, in the order of their coming.
    pub blocked: VecDeque<Blocked>,
    /// What is owed to whom in its order.
    pub turns: Turns,
}

/// An enqueue of one message that waits for room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocked {
    /// Who asked.
    pub request: u64,
    /// The message.
    pub new: New,
    /// How long it waits.
    pub until: Mono,
}

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Its settings.
    pub settings: TargetSettings,
    /// When the calls that occupy it without a lease end.
    pub held_until: Vec<Mono>,
    /// Starts of calls since the latest restart, and the one before them that is remembered.
    pub starts: Vec<Mono>,
    /// When the latest call began by the wall clock, as far as that is known.
    pub called: Option<Wall>,
    /// Left alone until then.
    pub paused_until: Mono,
    /// How many calls may occupy it as far as the core says. The hard cap, unless its limit is adaptive: how that is
    /// found is not modelled.
    pub places: u64,
    /// Its breaker and its ramp.
    pub gate: Gate,
}

/// The model.
#[derive(Debug)]
pub struct Model {
    /// The boot's number.
    pub epoch: u32,
    /// The queues.
    pub queues: Vec<Queue>,
    /// The targets.
    pub targets: Vec<Target>,
    /// What the disk has room for.
    pub storage: StorageState,
    /// The messages of which anything is known.
    pub messages: BTreeMap<u64, Message>,
    /// The states in which records left each message, oldest first; `None`: the record says that it is gone.
    pub history: BTreeMap<u64, Vec<Option<Message>>>,
    /// How many records about each message are durable.
    pub durable: BTreeMap<u64, usize>,
    /// The message that each remembered key of a queue belongs to.
    pub keys: BTreeMap<(usize, u128), u64>,
    /// How often what is named has happened.
    pub marks: BTreeMap<&'static str, u64>,
}

impl Model {
    /// A model of empty queues, after the first start.
    pub fn new(queues: Vec<(QueueSettings, Option<usize>)>, targets: Vec<TargetSettings>) -> Self {
        let queue = |(settings, target)| Queue {
            settings,
            target,
            paused: false,
            measured: false,
            deaths: 0,
            blocked: VecDeque::new(),
            turns: Turns::default(),
        };
        let target = |settings: TargetSettings| Target {
            places: u64::from(settings.concurrency),
            settings,
            held_until: Vec::new(),
            starts: Vec::new(),
            called: None,
            paused_until: Mono(i64::MIN),
            gate: Gate::default(),
        };
        Self {
            epoch: 1,
            queues: queues.into_iter().map(queue).collect(),
            targets: targets.into_iter().map(target).collect(),
            storage: StorageState::Roomy,
            messages: BTreeMap::new(),
            history: BTreeMap::new(),
            durable: BTreeMap::new(),
            keys: BTreeMap::new(),
            marks: BTreeMap::new(),
        }
    }

    /// Something worth knowing has happened.
    pub fn mark(&mut self, name: &'static str) {
        *self.marks.entry(name).or_default() += 1;
    }

    /// The messages of one queue in one phase, visible or not.
    pub fn of(&self, queue: usize, phase: Phase) -> impl Iterator<Item = (u64, &Message)> {
        self.messages
            .iter()
            .filter(move |(_, message)| message.queue == queue && message.phase == phase)
            .map(|(&seq, message)| (seq, message))
    }

    /// How many records about a message there have been.
    pub fn records(&self, seq: u64) -> usize {
        self.history.get(&seq).map_or(0, Vec::len)
    }

    /// Whether everything decided about a message is durable.
    pub fn is_visible(&self, seq: u64) -> bool {
        self.durable.get(&seq).copied().unwrap_or(0) >= self.messages[&seq].decided_with
    }

    /// Ready messages that may be handed out.
    pub fn visible(&self, queue: usize) -> impl Iterator<Item = (u64, &Message)> {
        self.of(queue, Phase::Ready).filter(|&(seq, _)| self.is_visible(seq))
    }

    /// Whether another one of its group comes first: in any state that a restart could bring back, it has a lower
    /// place and its life is not over.
    pub fn is_blocked(&self, seq: u64) -> bool {
        let Message { queue, place, labels, .. } = self.messages[&seq];
        let before = |one: &Message| {
            let same = one.queue == queue && one.labels.group == labels.group;
            same && one.place < place && !one.phase.is_terminal()
        };
        labels.group.is_some()
            && self.queues[queue].settings.order.keeps_groups()
            && self.history.iter().any(|(other, states)| {
                let durable = self.durable[other].saturating_sub(1);
                *other != seq && states[durable..].iter().flatten().any(before)
            })
    }

    /// Whether it would be its group's turn, were only the end of the one before it durable.
    pub fn waits_for_durability(&self, seq: u64) -> bool {
        let Message { queue, place, labels, .. } = self.messages[&seq];
        let before = |one: &Message| {
            let same = one.queue == queue && one.labels.group == labels.group;
            same && one.place < place && !one.phase.is_terminal()
        };
        self.is_blocked(seq) && !self.messages.values().any(before)
    }

    /// Messages that may be handed out next.
    pub fn eligible(&self, queue: usize) -> impl Iterator<Item = (u64, &Message)> {
        self.visible(queue).filter(|&(seq, _)| !self.is_blocked(seq))
    }

    /// Messages that others of their group wait for.
    pub fn has_followers(&self, seq: u64) -> bool {
        let Message { queue, labels, .. } = self.messages[&seq];
        let follows = |one: &Message| {
            one.queue == queue && one.labels.group == labels.group && !one.phase.is_terminal()
        };
        labels.group.is_some() && self.messages.iter().any(|(&other, one)| other != seq && follows(one))
    }

    /// How many leases of a queue a worker may still get.
    pub fn allowance(&self, queue: usize, consumer: Option<u8>) -> usize {
        let prefetch = self.queues[queue].settings.prefetch as usize;
        let Some(consumer) = consumer else { return prefetch };
        let taker = Taker::Worker(Some(consumer));
        let has = |one: &&Message| one.hold.is_some_and(|hold| hold.taker == taker);
        let held = self.of(queue, Phase::Leased).map(|(_, one)| one).filter(has).count();
        prefetch.saturating_sub(held)
    }

    /// Whether a queue's work goes out first in, first out, all alike.
    pub fn is_uniform(&self, queue: usize) -> bool {
        let mut unfinished =
            self.messages.values().filter(|one| one.queue == queue && !one.phase.is_terminal());
        self.queues[queue].settings.order == Order::Fifo
            && unfinished.all(|one| one.labels == Labels::default())
    }

    /// Whether nothing that waits has been due for too long for an adaptive order to be first in, first out.
    pub fn is_calm(&self, queue: usize, now: Now) -> bool {
        let fresh_within = self.queues[queue].settings.fresh_within;
        let mut waiting = self.messages.values().filter(|one| {
            one.queue == queue && matches!(one.phase, Phase::Ready | Phase::Delayed | Phase::Backoff)
        });
        waiting.all(|one| now.mono.since(one.due_since) < fresh_within)
    }

    /// Messages and bytes that the bounds count.
    pub fn unfinished(&self, queue: usize) -> (u64, u64) {
        let all = self.messages.values().filter(|one| one.queue == queue && !one.phase.is_terminal());
        all.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.bytes))
    }

    /// Calls that occupy a target.
    pub fn occupied(&self, target: usize) -> usize {
        let leased = self.messages.values().filter(|message| {
            let called = message.hold.is_some_and(|hold| hold.taker == Taker::Target(target));
            message.phase == Phase::Leased && called
        });
        leased.count() + self.targets[target].held_until.len()
    }

    /// A call of a target began.
    pub fn start_call(&mut self, target: usize, now: Now) {
        let occupied = self.occupied(target);
        let Target { starts, called, gate, settings, .. } = &mut self.targets[target];
        gate.start(settings, occupied, now.mono);
        starts.push(now.mono);
        *called = Some(now.wall);
    }

    /// A call of a target ended that may still be worked on.
    ///
    /// # Panics
    /// If the message is not known.
    pub fn give_up_call(&mut self, seq: u64, target: usize, now: Now) {
        let held = self.targets[target].settings.hold();
        self.targets[target].held_until.push(now.mono.plus(held));
        self.messages.get_mut(&seq).expect("known").given_up.push((now.wall, target));
    }

    /// A failed probe, too, may still be worked on as far as a restart can tell.
    ///
    /// # Panics
    /// If the message is not known.
    pub fn remember_probe(&mut self, seq: u64, target: usize, now: Now) {
        self.messages.get_mut(&seq).expect("known").given_up.push((now.wall, target));
    }

    /// After a restart: calls that were given up occupy the targets that were called for the rest of the hold.
    fn restore_holds(&mut self, now: Now) {
        for &(ended, target) in self.messages.values().flat_map(|message| &message.given_up) {
            let Target { settings, held_until, .. } = &mut self.targets[target];
            let held = i64::try_from(settings.hold().as_micros()).expect("a short time");
            let until = Mono(now.mono.0 + (ended.0 + held - now.wall.0).min(held));
            if until > now.mono {
                held_until.push(until);
            }
        }
    }

    /// Whether the queue's cap, its own or its target's, has room for another hand-out.
    pub fn has_room(&self, queue: usize) -> bool {
        let Queue { settings, target, .. } = &self.queues[queue];
        let cap =
            settings.concurrency.or_else(|| target.map(|target| self.targets[target].settings.concurrency));
        cap.is_none_or(|cap| self.of(queue, Phase::Leased).count() < cap as usize)
    }

    /// Whether the queue may hand anything out now.
    pub fn is_open(&self, queue: usize) -> bool {
        !self.queues[queue].paused && self.has_room(queue) && !self.is_full_of_dead(queue)
    }

    /// Whether there is no room for more dead letters.
    pub fn is_full_of_dead(&self, queue: usize) -> bool {
        let dead = self.of(queue, Phase::Dead).count() as u64;
        dead >= self.queues[queue].settings.dead_letter.max_messages
    }

    /// How many more hand-outs, or ends of what nobody has, the disk has room for.
    pub fn disk_room(&self) -> u64 {
        match self.storage {
            StorageState::Roomy => u64::MAX,
            StorageState::Scarce { hand_outs } | StorageState::NoEnqueue { hand_outs } => hand_outs,
            StorageState::SettleOnly => 0,
        }
    }

    /// One of them takes place.
    pub fn take_disk_room(&mut self) {
        if let StorageState::Scarce { hand_outs } | StorageState::NoEnqueue { hand_outs } = &mut self.storage
        {
            *hand_outs -= 1;
        }
    }

    /// There may be room for dead letters, or on the disk: those that are overdue for one are due again, in the order of their numbers.
    pub fn recall_overdue(&mut self, queue: usize) {
        let disk_room = usize::try_from(self.disk_room()).unwrap_or(usize::MAX);
        let settings = &self.queues[queue].settings;
        let dead = self.of(queue, Phase::Dead).count();
        let room = match settings.on_expiry {
            OnExpiry::DeadLetter => {
                usize::try_from(settings.dead_letter.max_messages).unwrap_or(usize::MAX).saturating_sub(dead)
            }
            OnExpiry::Drop => usize::MAX,
        };
        let overdue = self.messages.values_mut().filter(|one| one.queue == queue && one.overdue);
        for message in overdue.take(room.min(disk_room)) {
            message.overdue = false;
        }
    }

    /// Whether a target takes a call at `now` if there is one.
    pub fn must_call(&self, target: usize, now: Now) -> bool {
        self.targets[target].gate.lets_through(now.mono, true)
            && self.may_call(target, now, -2)
            && (self.occupied(target) as u64) < self.targets[target].places
    }

    /// Whether a target may take a call at `now`; `slack` micros of rounding in the pace are nobody's fault.
    pub fn may_call(&self, target: usize, now: Now, slack: i64) -> bool {
        let Target { settings, starts, paused_until, gate, .. } = &self.targets[target];
        let paced = settings.rate.is_none_or(|rate| {
            let interval = 1e6 / rate.per_second();
            starts.last().is_none_or(|last| (now.mono.0 - last.0 + slack) as f64 >= interval)
        });
        paced
            && now.mono >= *paused_until
            && gate.lets_through(now.mono, false)
            && self.occupied(target) < settings.concurrency as usize
    }
}

impl Message {
    /// When its phase was entered, if it ends by itself.
    pub fn phase_begun(&self) -> Wall {
        self.phase_ends.map_or(self.accepted, |(.., begun)| begun)
    }

    /// This state as a restart at `now` brings it back: waits end at their wall time, but no wait is longer
    /// than it was meant to be.
    fn restored(&self, lost: Option<Receipt>, now: Now) -> Self {
        let resumed = |begun: Wall, ends: Wall| {
            let (length, rest) = (ends.0 - begun.0, ends.0 - now.wall.0);
            Mono(now.mono.0 + if length < 0 { rest } else { rest.min(length) })
        };
        let mut message = self.clone();
        message.lost = lost;
        message.decided_with = 0;
        (message.expired, message.overdue) = (false, false);
        message.phase_ends = self.phase_ends.map(|(_, ends, begun)| (resumed(begun, ends), ends, begun));
        message.expires.0 = resumed(self.accepted, self.expires.1);
        message.due_since = resumed(self.accepted, self.first_due);
        if self.phase != Phase::Delayed {
            message.due_since = message.due_since.min(now.mono);
        }
        if let Some(hold) = &mut message.hold {
            hold.restored = true;
            hold.started.1 = Mono((now.mono.0 + hold.started.0.0 - now.wall.0).min(now.mono.0));
        }
        message
    }
}

/// The ending that a worker's word means, and the delay it asks for.
pub fn ending_of(outcome: &SettleOutcome) -> (Ending, Option<Duration>) {
    match outcome {
        SettleOutcome::Complete { .. } => (Ending::Done, None),
        SettleOutcome::Retry { delay, .. } => (Ending::Failed, *delay),
        SettleOutcome::Dead { .. } => (Ending::Rejected, None),
        SettleOutcome::Release { delay } => (Ending::Released, *delay),
    }
}
