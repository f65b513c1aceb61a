//! The reference model: what a pond must do, written so that it is obviously right.
//!
//! Owns the rules of a message's life a second time, with plain lists and linear scans. It predicts what follows
//! from a command or from time, and judges what a pond chooses (who is handed what, how long a backoff is). Must
//! never share code with the pond: only the plain types of commands, settings and time.

use millpond_core::command::SettleOutcome;
use millpond_core::identity::Receipt;
use millpond_core::message::Phase;
use millpond_core::settings::{LEASE_TOTAL_MAX, OnExpiry, QueueSettings, TargetSettings};
use millpond_core::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
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
}

impl Ending {
    fn counts_as_attempt(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected | Self::RanOut)
    }
}

/// A hand-out of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// Its receipt.
    pub receipt: Receipt,
    /// Whether it is a call to the queue's target.
    pub pushed: bool,
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
    /// When it was first due.
    pub due_since: Mono,
    /// A hand-out of the boot before, whose record was lost.
    pub lost: Option<Receipt>,
    /// A backoff that the pond has yet to name: its shortest and longest length.
    pub open_backoff: Option<(Duration, Duration)>,
    key: Option<(u128, u128)>,
    accepted: Wall,
    first_due: Wall,
    /// When its phase ends by itself, on both clocks, and when that was decided.
    phase_ends: Option<(Mono, Wall, Wall)>,
    expires: (Mono, Wall),
    expired: bool,
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
}

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Its settings.
    pub settings: TargetSettings,
    /// When the calls that occupy it without a lease end.
    pub held_until: Vec<Mono>,
    /// Starts of calls since the latest restart.
    pub starts: Vec<Mono>,
    /// Left alone until then.
    pub paused_until: Mono,
}

/// What the bounds say of a new message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted.
    Accept,
    /// It is a repetition of this message.
    Duplicate(u64),
    /// Its key was used for another payload.
    Mismatch,
    /// A bound on messages or bytes is reached.
    Full,
    /// It would start too late.
    TooLate,
    /// Both accepting and [`Verdict::TooLate`] are right: the capacity is measured.
    AcceptOrTooLate,
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
    /// The messages of which anything is known.
    pub messages: BTreeMap<u64, Message>,
    /// The states in which records left each message, oldest first; `None`: the record says that it is gone.
    pub history: BTreeMap<u64, Vec<Option<Message>>>,
    /// How many records about each message are durable.
    pub durable: BTreeMap<u64, usize>,
}

impl Model {
    /// A model of empty queues, after the first start.
    pub fn new(queues: Vec<(QueueSettings, Option<usize>)>, targets: Vec<TargetSettings>) -> Self {
        let queue = |(settings, target)| Queue { settings, target, paused: false, measured: false };
        let target = |settings| Target {
            settings,
            held_until: Vec::new(),
            starts: Vec::new(),
            paused_until: Mono(i64::MIN),
        };
        Self {
            epoch: 1,
            queues: queues.into_iter().map(queue).collect(),
            targets: targets.into_iter().map(target).collect(),
            messages: BTreeMap::new(),
            history: BTreeMap::new(),
            durable: BTreeMap::new(),
        }
    }

    // --- what can be asked of the model ------------------------------------------------------------------

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

    /// Messages and bytes that the bounds count.
    pub fn unfinished(&self, queue: usize) -> (u64, u64) {
        let all = self.messages.values().filter(|one| one.queue == queue && !one.phase.is_terminal());
        all.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.bytes))
    }

    /// Calls that occupy a target.
    pub fn occupied(&self, target: usize) -> usize {
        let leased = self.messages.values().filter(|message| {
            message.phase == Phase::Leased
                && self.queues[message.queue].target == Some(target)
                && message.hold.is_some_and(|hold| hold.pushed)
        });
        leased.count() + self.targets[target].held_until.len()
    }

    /// Whether the queue may hand anything out now.
    pub fn is_open(&self, queue: usize) -> bool {
        let Queue { settings, target, paused, .. } = &self.queues[queue];
        let cap = settings.concurrency.or(target.map(|target| self.targets[target].settings.concurrency));
        let room = cap.is_none_or(|cap| self.of(queue, Phase::Leased).count() < cap as usize);
        !paused && room && (self.of(queue, Phase::Dead).count() as u64) < settings.dead_letter.max_messages
    }

    /// Whether a target may take a call at `now`; `slack` micros of rounding in the pace are nobody's fault.
    pub fn may_call(&self, target: usize, now: Now, slack: i64) -> bool {
        let Target { settings, starts, paused_until, .. } = &self.targets[target];
        let paced = settings.rate.is_none_or(|rate| {
            let interval = 1e6 / rate.per_second();
            starts.last().is_none_or(|last| now.mono.0 - last.0 + slack >= interval as i64)
        });
        paced && now.mono >= *paused_until && self.occupied(target) < settings.concurrency as usize
    }

    /// What the bounds say of a message of `bytes` bytes.
    pub fn judge(&self, queue: usize, bytes: u64, key: Option<(u128, u128)>) -> Verdict {
        if let Some((key, payload)) = key {
            let known = self.messages.iter().filter(|(_, message)| message.queue == queue);
            for (&seq, message) in known {
                match message.key {
                    Some((other, same)) if other == key && same == payload => return Verdict::Duplicate(seq),
                    Some((other, _)) if other == key => return Verdict::Mismatch,
                    _ => {}
                }
            }
        }
        let Queue { settings, paused, measured, .. } = &self.queues[queue];
        let (messages, held) = self.unfinished(queue);
        if settings.max_messages.is_some_and(|max| messages >= max) || held + bytes > settings.max_bytes {
            return Verdict::Full;
        }
        let capacity = settings.concurrency.zip(settings.expected_service_time);
        match (settings.max_wait, capacity) {
            (Some(_), Some(_)) if *paused => Verdict::Accept,
            (Some(_), _) if *measured => Verdict::AcceptOrTooLate,
            (Some(max), Some((workers, each))) => {
                let ahead = self.of(queue, Phase::Ready).count() + self.of(queue, Phase::Backoff).count();
                let wait = ahead as f64 * each.as_secs_f64() / f64::from(workers);
                if wait > max.as_secs_f64() + 1e-9 { Verdict::TooLate } else { Verdict::Accept }
            }
            _ => Verdict::Accept,
        }
    }

    // --- what happens --------------------------------------------------------------------------------------

    /// A record about a message has been written: this is how it leaves the message.
    fn record(&mut self, seq: u64) {
        let state = self.messages.get(&seq).cloned();
        self.history.entry(seq).or_default().push(state);
    }

    /// The next record about a message decides something.
    fn decide(&mut self, seq: u64) {
        self.messages.get_mut(&seq).expect("known").decided_with = self.records(seq) + 1;
    }

    fn enter(&mut self, seq: u64, phase: Phase, ends_in: Option<Duration>, now: Now) {
        let message = self.messages.get_mut(&seq).expect("known");
        message.phase = phase;
        message.phase_ends = ends_in.map(|wait| (now.mono.plus(wait), now.wall.plus(wait), now.wall));
    }

    /// A message was accepted under the number `seq`.
    pub fn accept(&mut self, seq: u64, new: Message, delay: Duration, now: Now) {
        assert!(!self.messages.contains_key(&seq), "number {seq} is in use");
        self.history.insert(seq, Vec::new());
        self.durable.insert(seq, 0);
        self.messages.insert(seq, new);
        if !delay.is_zero() {
            self.enter(seq, Phase::Delayed, Some(delay), now);
        }
        self.record(seq);
    }

    /// A message as it is when it is accepted.
    pub fn message(
        queue: usize,
        seq: u64,
        bytes: u64,
        (delay, ttl): (Duration, Duration),
        key: Option<(u128, u128)>,
        now: Now,
    ) -> Message {
        Message {
            queue,
            phase: Phase::Ready,
            place: seq,
            bytes,
            attempts: 0,
            deliveries: 0,
            delivery: 0,
            hold: None,
            due_since: now.mono.plus(delay),
            lost: None,
            open_backoff: None,
            key,
            accepted: now.wall,
            first_due: now.wall.plus(delay),
            phase_ends: None,
            expires: (now.mono.plus(ttl), now.wall.plus(ttl)),
            expired: false,
            decided_with: 1,
        }
    }

    /// A message was handed out.
    pub fn hand_out(&mut self, receipt: Receipt, until: Wall, pushed: bool, now: Now) {
        let seq = receipt.seq.0;
        let lease = until.since(now.wall);
        let message = self.messages.get_mut(&seq).expect("only what exists is handed out");
        assert_eq!(message.phase, Phase::Ready, "{seq} is handed out though nobody may have it");
        assert!(!message.expired && message.expires.0 > now.mono, "{seq} is handed out though it has expired");
        let expected = Receipt { delivery: message.delivery + 1, epoch: self.epoch, ..receipt };
        assert_eq!(receipt, expected, "hand-outs are numbered without gaps");
        message.deliveries += 1;
        message.delivery += 1;
        message.lost = None;
        let started = (now.wall, now.mono);
        message.hold = Some(Hold { receipt, pushed, settled: None, restored: false, started, until });
        self.enter(seq, Phase::Leased, Some(lease), now);
        self.record(seq);
    }

    /// Whether `receipt` still decides about its message, and what was said of it before.
    fn standing(&self, receipt: Receipt) -> Option<(Phase, Option<Ending>)> {
        let message = self.messages.get(&receipt.seq.0)?;
        if message.lost == Some(receipt) && !message.phase.is_terminal() {
            return Some((Phase::Leased, None));
        }
        let hold = message.hold.filter(|hold| hold.receipt == receipt)?;
        Some((message.phase, hold.settled))
    }

    /// Whether `receipt` can be used to settle its message with `ending`. `Some(false)`: it was before.
    pub fn may_settle(&self, receipt: Receipt, ending: Ending) -> Option<bool> {
        match self.standing(receipt)? {
            (_, Some(before)) => (before == ending).then_some(false),
            (Phase::Leased, None) => Some(true),
            // Late, but nobody else was handed the message.
            (phase, None) => (ending == Ending::Done && !phase.is_terminal()).then_some(true),
        }
    }

    /// Whether a lease may be prolonged to `lease` from now: `Some(false)` if that is too long.
    pub fn may_extend(&self, receipt: Receipt, lease: Duration, now: Now) -> Option<bool> {
        let message = self.messages.get(&receipt.seq.0)?;
        let hold = message.hold.filter(|hold| hold.receipt == receipt && message.phase == Phase::Leased)?;
        Some(now.mono.plus(lease) <= hold.started.1.plus(LEASE_TOTAL_MAX))
    }

    /// A lease was prolonged.
    pub fn extend(&mut self, receipt: Receipt, lease: Duration, now: Now) {
        let seq = receipt.seq.0;
        let hold = self.messages.get_mut(&seq).and_then(|message| message.hold.as_mut()).expect("leased");
        hold.until = now.wall.plus(lease);
        let begun = hold.started.0;
        self.enter(seq, Phase::Leased, Some(lease), now);
        let ends = &mut self.messages.get_mut(&seq).expect("leased").phase_ends;
        *ends = ends.map(|(mono, wall, _)| (mono, wall, begun));
        self.record(seq);
    }

    /// A hand-out ended: by its holder's word (`by_holder`), or by itself.
    pub fn settle(&mut self, receipt: Receipt, ending: Ending, delay: Option<Duration>, by_holder: bool, now: Now) {
        let seq = receipt.seq.0;
        self.recall(receipt, now);
        let message = self.messages.get_mut(&seq).expect("known");
        if ending.counts_as_attempt() {
            message.attempts += 1;
        }
        let hold = message.hold.as_mut().expect("it was handed out");
        hold.settled = by_holder.then_some(ending);
        let settings = &self.queues[message.queue].settings;
        let (attempts, deliveries) = (message.attempts, message.deliveries);
        match ending {
            Ending::Done => {
                self.queues[message.queue].measured = true;
                self.finish(seq, Phase::Succeeded, now);
            }
            Ending::Rejected => self.finish(seq, Phase::Dead, now),
            _ if ending.counts_as_attempt() && attempts >= settings.retry.max_attempts => {
                self.finish(seq, Phase::Dead, now);
            }
            _ if deliveries >= settings.retry.deliveries_max() => self.finish(seq, Phase::Dead, now),
            _ if message.expired => self.expire(seq, now),
            _ => self.give_back(seq, ending, delay, now),
        }
    }

    /// Notes a hand-out whose record was lost.
    fn recall(&mut self, receipt: Receipt, now: Now) {
        let message = self.messages.get_mut(&receipt.seq.0).expect("known");
        if message.lost.take_if(|lost| *lost == receipt).is_some() {
            message.deliveries += 1;
            message.delivery += 1;
            let started = (now.wall, now.mono);
            let (pushed, until) = (false, now.wall);
            message.hold = Some(Hold { receipt, pushed, settled: None, restored: true, started, until });
            let before = message.phase;
            self.enter(receipt.seq.0, Phase::Leased, Some(Duration::ZERO), now);
            self.record(receipt.seq.0);
            self.messages.get_mut(&receipt.seq.0).expect("known").phase = before;
        }
    }

    fn give_back(&mut self, seq: u64, ending: Ending, delay: Option<Duration>, now: Now) {
        self.decide(seq);
        let message = self.messages.get_mut(&seq).expect("known");
        let retry = &self.queues[message.queue].settings.retry;
        let wait = match (delay, ending) {
            (Some(delay), _) => delay,
            (None, Ending::Failed) => {
                let longest = retry.backoff_min * 2_u32.pow(message.attempts.min(20));
                let longest = longest.min(retry.backoff_max).max(retry.backoff_min);
                message.open_backoff = Some((retry.backoff_min, longest));
                retry.backoff_min
            }
            (None, _) => Duration::ZERO,
        };
        let phase = if wait.is_zero() { Phase::Ready } else { Phase::Backoff };
        self.enter_after_work(seq, phase, wait, now);
        self.record(seq);
    }

    /// Enters a phase after a hand-out: it began when the hand-out did and as long ago as the work took.
    fn enter_after_work(&mut self, seq: u64, phase: Phase, wait: Duration, now: Now) {
        self.enter(seq, phase, (!wait.is_zero()).then_some(wait), now);
        let message = self.messages.get_mut(&seq).expect("known");
        let (Some(ends), Some(hold)) = (&mut message.phase_ends, message.hold) else { return };
        ends.2 = hold.started.0.plus(now.mono.since(hold.started.1));
    }

    /// The pond has named the backoff that it chose.
    pub fn name_backoff(&mut self, seq: u64, due: Wall, now: Now) {
        let Some(message) = self.messages.get_mut(&seq) else { return };
        let Some((shortest, longest)) = message.open_backoff.take() else { return };
        let wait = due.since(now.wall);
        assert!((shortest..=longest).contains(&wait), "backoff of {wait:?}, not within {shortest:?}..{longest:?}");
        self.enter_after_work(seq, Phase::Backoff, wait, now);
        let state = self.messages.get(&seq).cloned();
        *self.history.get_mut(&seq).and_then(|states| states.last_mut()).expect("it was written") = state;
    }

    /// A hand-out reached nobody.
    pub fn take_back(&mut self, receipt: Receipt, now: Now) {
        let seq = receipt.seq.0;
        let message = self.messages.get_mut(&seq).expect("known");
        if message.expired {
            return self.expire(seq, now);
        }
        message.deliveries -= 1;
        message.hold = None;
        self.give_back(seq, Ending::Released, None, now);
    }

    fn finish(&mut self, seq: u64, phase: Phase, now: Now) {
        let settings = &self.queues[self.messages[&seq].queue].settings;
        let dead = settings.dead_letter.retention;
        let kept = if phase == Phase::Dead { dead } else { settings.result_retention };
        self.decide(seq);
        self.enter(seq, phase, Some(kept), now);
        self.record(seq);
    }

    fn expire(&mut self, seq: u64, now: Now) {
        let drop = self.queues[self.messages[&seq].queue].settings.on_expiry == OnExpiry::Drop;
        self.finish(seq, if drop { Phase::Expired } else { Phase::Dead }, now);
    }

    /// Whether a message can be withdrawn.
    pub fn may_cancel(&self, seq: u64) -> Option<bool> {
        let phase = self.messages.get(&seq)?.phase;
        Some(matches!(phase, Phase::Delayed | Phase::Ready | Phase::Backoff | Phase::Cancelled))
    }

    /// A message was withdrawn.
    pub fn cancel(&mut self, seq: u64, now: Now) {
        if self.messages[&seq].phase != Phase::Cancelled {
            self.finish(seq, Phase::Cancelled, now);
        }
    }

    /// A dead letter went back to work at `place`, to expire at `expires`.
    pub fn replay(&mut self, seq: u64, place: u64, expires: Wall, now: Now) {
        assert!(self.messages.iter().all(|(&other, one)| other < place && one.place < place), "behind all others");
        let message = self.messages.get_mut(&seq).expect("only what exists is replayed");
        assert_eq!(message.phase, Phase::Dead, "{seq} is replayed though it is not dead");
        let retention = self.queues[message.queue].settings.retention;
        let kept = message.expires.1 > now.wall;
        assert_eq!(expires, if kept { message.expires.1 } else { now.wall.plus(retention) }, "expiry of a replay");
        (message.attempts, message.deliveries, message.expired) = (0, 0, false);
        (message.place, message.due_since, message.first_due) = (place, now.mono, now.wall);
        message.expires = (now.mono_at(expires), expires);
        self.decide(seq);
        self.enter(seq, Phase::Ready, None, now);
        self.record(seq);
    }

    /// A dead letter was deleted.
    pub fn delete(&mut self, seq: u64) {
        let gone = self.messages.remove(&seq).expect("known");
        assert_eq!(gone.phase, Phase::Dead, "{seq} is deleted though it is not dead");
        self.record(seq);
    }

    /// A message's state was written once more.
    pub fn copy(&mut self, seq: u64) {
        if self.messages.contains_key(&seq) {
            self.record(seq);
        }
    }

    /// Lets everything happen that is due by `now`, in the order in which it falls due.
    pub fn advance(&mut self, now: Now) {
        loop {
            let phases = self.messages.iter().filter_map(|(&seq, message)| {
                message.phase_ends.map(|(at, ..)| (at, 0, seq))
            });
            let expiries = self.messages.iter().filter_map(|(&seq, message)| {
                let open = !message.expired && !message.phase.is_terminal();
                open.then_some((message.expires.0, 1, seq))
            });
            let Some((_, kind, seq)) = phases.chain(expiries).filter(|&(at, ..)| at <= now.mono).min() else { break };
            let message = self.messages.get_mut(&seq).expect("known");
            match (kind, message.phase) {
                (1, Phase::Leased) => message.expired = true,
                (1, _) => self.expire(seq, now),
                (_, Phase::Leased) => self.run_out(seq, now),
                (_, Phase::Delayed | Phase::Backoff) => self.enter(seq, Phase::Ready, None, now),
                _ => drop(self.messages.remove(&seq)),
            }
        }
        for target in &mut self.targets {
            target.held_until.retain(|until| *until > now.mono);
        }
    }

    fn run_out(&mut self, seq: u64, now: Now) {
        let message = &self.messages[&seq];
        let hold = message.hold.expect("leased");
        if let Some(target) = self.queues[message.queue].target.filter(|_| hold.pushed && !hold.restored) {
            let until = now.mono.plus(self.targets[target].settings.hold());
            self.targets[target].held_until.push(until);
        }
        let ending = if hold.restored { Ending::Interrupted } else { Ending::RanOut };
        self.settle(hold.receipt, ending, None, false, now);
    }

    /// The engine died and started again. `kept`: how many records about each message survived.
    pub fn restart(&mut self, kept: &BTreeMap<u64, usize>, now: Now) {
        let ended = self.epoch;
        self.epoch += 1;
        self.messages.clear();
        for (&seq, states) in &mut self.history {
            let kept = kept.get(&seq).copied().unwrap_or(0);
            let gone = states.split_off(kept);
            self.durable.insert(seq, kept);
            let Some(Some(state)) = states.last() else { continue };
            let lost = gone.iter().flatten().filter_map(|state| state.hold).map(|hold| hold.receipt);
            let lost = lost.filter(|lost| lost.epoch == ended && lost.delivery == state.delivery + 1).next_back();
            self.messages.insert(seq, state.restored(lost, now));
        }
        self.history.retain(|_, states| !states.is_empty());
        for queue in &mut self.queues {
            queue.measured = false;
        }
        for target in &mut self.targets {
            target.held_until.clear();
            target.starts.clear();
            target.paused_until = Mono(i64::MIN);
        }
    }
}

impl Message {
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
        message.expired = false;
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
