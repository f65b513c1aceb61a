//! A pond and the reference model side by side, on virtual time, with a log that becomes durable late.
//!
//! Owns the comparison: every record, every answer and every number of the pond is checked against the model.

pub(crate) mod commands;
mod copies;
mod line;
pub(crate) mod replays;
pub(crate) mod shape;

use crate::rig::s;
use copies::judge_copy;
use millpond_core::command::{
    CancelError, Command, Effect, EnqueueError, Input, Leased, LookupError, OpNumber, ReplayError, Reply,
    RequestId, SettleError, StorageState,
};
use millpond_core::identity::Receipt;
use millpond_core::message::Phase;
use millpond_core::notice::Notice;
use millpond_core::pond::Pond;
use millpond_core::record::Record;
use millpond_core::time::{Mono, Now, Wall};
use millpond_testkit::model::{Candidate, Message, Model, Taker};
use replays::Paced;
use shape::{Shape, names};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What one message of an enqueue must be answered.
#[derive(Debug)]
enum Fate {
    Accepted { seq: u64, position: Position },
    Duplicate { seq: u64, phase: Phase },
    Mismatch,
    Full,
    TooLarge,
    TooLate,
    StorageFull,
}

/// How many start before a new message.
#[derive(Debug, Clone, Copy)]
enum Position {
    Exactly(u64),
    /// Where turns and shares decide, an estimate of at most so many, or none.
    AtMost(u64),
    /// Nothing can be said.
    Unknown,
}

/// What a request must be answered.
#[derive(Debug)]
enum Answer {
    Enqueued(Vec<Fate>),
    /// It waits for room.
    Blocked {
        queue: usize,
    },
    Leased {
        queue: usize,
        max: usize,
        until: Mono,
        consumer: Option<u8>,
    },
    Settled(Result<(), SettleError>),
    Extended(bool),
    /// The message withdrawn, or the phase in which it cannot be.
    Cancelled(Result<Box<Message>, Option<Phase>>),
    Status(Option<Box<Message>>),
    Paused,
    /// How many are selected; `None`: another replay is running.
    Replayed(Option<u64>),
    ReplayCancelled,
    Purged(u64),
    DeadDeleted(bool),
    TargetReset,
}

/// An answer that is due, once so many records about these messages, or this one of the log, are durable.
#[derive(Debug)]
struct Due {
    answer: Answer,
    gates: Vec<(u64, usize)>,
    gate: usize,
}

pub(crate) struct World {
    pond: Pond,
    pub(crate) shapes: [Shape; 3],
    pub(crate) model: Model,
    pub(crate) now: Now,
    log: Vec<Record>,
    /// How many records of the log are about each message.
    written: BTreeMap<u64, usize>,
    durable: usize,
    /// Records of earlier boots.
    before: usize,
    due: BTreeMap<RequestId, Due>,
    asked: u64,
    /// Hand-outs to workers in this step that no answer has carried yet.
    handed: BTreeSet<Receipt>,
    /// Calls in this step that no effect has begun yet.
    called: BTreeSet<Receipt>,
    /// What the step began with, as far as a hand-out may rest on it though the same step ends it.
    eligible_before: BTreeSet<u64>,
    dead_before: Vec<usize>,
    paused_before: Vec<bool>,
    calm_before: Vec<bool>,
    /// Consumers that had all that they may have of a queue.
    full_before: BTreeSet<(usize, u8)>,
    /// Every receipt that a worker ever got, in any boot.
    pub(crate) receipts: Vec<Receipt>,
    /// Calls of this boot that have not been reported.
    pub(crate) calls: Vec<Receipt>,
    /// How often an operator was told of a burst of dead letters.
    bursts_told: u64,
    /// The pace of each queue's replay.
    paced: [Paced; 3],
    clock_stepped: bool,
    /// Whether every step is printed.
    pub(crate) is_told: bool,
}

fn subject(record: &Record) -> Option<u64> {
    match record {
        Record::Boot { .. } | Record::Queue(_) | Record::Called { .. } => None,
        Record::Message { message, .. } => Some(message.seq.0),
        Record::Leased { receipt, .. } => Some(receipt.seq.0),
        Record::Extended { seq, .. }
        | Record::Returned { seq, .. }
        | Record::Died { seq, .. }
        | Record::Replayed { seq, .. }
        | Record::Forgotten { seq } => Some(seq.0),
    }
}

/// The phase in which a record leaves its message; `None`: gone.
fn phase_after(record: &Record) -> Option<Phase> {
    match record {
        Record::Message { message, .. } => Some(message.phase),
        Record::Leased { .. } | Record::Extended { .. } => Some(Phase::Leased),
        Record::Returned { due, .. } => Some(if due.is_some() { Phase::Backoff } else { Phase::Ready }),
        Record::Died { .. } => Some(Phase::Dead),
        Record::Replayed { .. } => Some(Phase::Ready),
        Record::Boot { .. } | Record::Queue(_) | Record::Called { .. } | Record::Forgotten { .. } => None,
    }
}

impl World {
    pub(crate) fn new(seed: u64, shapes: [Shape; 3]) -> Self {
        let declared = shape::declared(&shapes);
        let queues = declared.queues.iter().map(|(_, settings)| (settings.clone(), shape::target(settings)));
        let targets = declared.targets.iter().map(|(_, settings)| settings.clone()).collect();
        let model = Model::new(queues.collect(), targets);
        let mut world = Self {
            pond: Pond::new(seed),
            shapes,
            model,
            now: Now { wall: Wall(1_800_000_000_000_000), mono: Mono(0) },
            log: Vec::new(),
            written: BTreeMap::new(),
            durable: 0,
            before: 0,
            due: BTreeMap::new(),
            asked: 0,
            handed: BTreeSet::new(),
            called: BTreeSet::new(),
            eligible_before: BTreeSet::new(),
            dead_before: Vec::new(),
            paused_before: Vec::new(),
            calm_before: Vec::new(),
            full_before: BTreeSet::new(),
            receipts: Vec::new(),
            calls: Vec::new(),
            bursts_told: 0,
            paced: Default::default(),
            clock_stepped: false,
            is_told: false,
        };
        // Messages rest early, or nothing here would ever rest.
        world.pond.keep_in_full((seed % 3) as usize);
        world.open();
        world
    }

    fn open(&mut self) {
        self.look();
        self.pond.open(shape::declared(&self.shapes), self.now);
        assert_eq!(self.pond.epoch(), self.model.epoch);
        self.end_step();
        // The engine serves nobody before the boot's own record is durable.
        self.make_durable(self.before + 1);
        self.tick();
    }

    #[expect(clippy::print_stdout, reason = "shown with a failure")]
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{}", what());
        }
    }

    // --- one step --------------------------------------------------------------------------------------------

    /// Begins the handling of one input: what is due by now happens before it.
    fn begin_step(&mut self) {
        self.look();
        self.model.advance(self.now);
        self.time_out();
    }

    fn look(&mut self) {
        self.eligible_before =
            (0..3).flat_map(|queue| self.model.eligible(queue).map(|(seq, _)| seq)).collect();
        self.dead_before = (0..3).map(|queue| self.model.of(queue, Phase::Dead).count()).collect();
        let consumers = (0..3).flat_map(|queue| [(queue, 0), (queue, 1)]);
        let full = consumers.filter(|&(queue, consumer)| self.model.allowance(queue, Some(consumer)) == 0);
        self.full_before = full.collect();
        self.calm_before = (0..3).map(|queue| self.model.is_calm(queue, self.now)).collect();
        self.paused_before = self.model.queues.iter().map(|queue| queue.paused).collect();
    }

    fn handle(&mut self, input: Input) {
        self.pond.handle(input, self.now);
    }

    fn end_step(&mut self) {
        let effects: Vec<Effect> = self.pond.effects().collect();
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        let from = self.log.len();
        for effect in effects {
            match effect {
                Effect::Append { op, record, .. } => self.appended(op, record),
                Effect::Reply { request, reply } => self.replied(request, reply),
                Effect::Dispatch { leased, .. } => self.dispatched(&leased),
                Effect::Notice(notice) => self.noticed(&notice),
                Effect::Forget(seq) => {
                    assert!(!self.model.messages.contains_key(&seq.0), "{seq:?} is forgotten too early");
                }
            }
        }
        assert!(self.handed.is_empty() && self.called.is_empty(), "a hand-out that nobody was told of");
        let bursts = self.model.marks.get("a burst of dead letters pauses the queue");
        assert_eq!(self.bursts_told, bursts.copied().unwrap_or(0), "bursts that operators heard of");
        self.compare_records(from);
        self.pond.assert_consistent();
        (0..3).for_each(|queue| self.settle_line(queue));
        self.compare_numbers();
        for queue in 0..3 {
            // What has come in this step takes no turn over from what has gone in it.
            let all = self.model.eligible(queue).map(candidate);
            let waiting: Vec<Candidate> = all.filter(|one| self.eligible_before.contains(&one.seq)).collect();
            let queue = &mut self.model.queues[queue];
            queue.turns.look(&queue.settings, &waiting);
        }
    }

    /// An operator hears of a burst of dead letters once each time, and of a full store while it is full.
    fn noticed(&mut self, notice: &Notice) {
        let queue = notice.queue().map(|queue| names().iter().position(|name| name == queue).unwrap());
        match notice {
            // Told of what is compared after every step.
            Notice::BreakerOpen { .. } | Notice::BreakerHalfOpen { .. } | Notice::BreakerClosed { .. } => {}
            Notice::DeadBurst { .. } => {
                assert!(self.model.queues[queue.unwrap()].paused, "{notice:?}");
                self.bursts_told += 1;
            }
            Notice::DeadLettersFull { kept, .. } => {
                // Some may have come and others gone in the same step.
                let dead =
                    self.model.of(queue.unwrap(), Phase::Dead).count() + self.dead_before[queue.unwrap()];
                assert!(dead as u64 >= *kept, "{notice:?}");
                self.model.mark("an operator hears that the dead letters are full");
            }
            Notice::CallbacksFull { .. } => unreachable!("nobody wants to be told of ends here"),
        }
    }

    fn appended(&mut self, op: OpNumber, record: Record) {
        assert_eq!(op.0, (self.log.len() - self.before) as u64 + 1, "records are numbered without gaps");
        self.tell(|| format!("{:?} {record:?}", self.now.mono));
        match &record {
            // An extension after the clock was set; the model has taken it.
            Record::Leased { receipt, .. } if self.model.holds(*receipt) => {}
            Record::Leased { receipt, started, until, holder, consumer }
                if receipt.epoch == self.model.epoch =>
            {
                assert_eq!(*started, self.now.wall, "{record:?} begins now");
                let worker = Taker::Worker(consumer.as_ref().map(shape::number));
                let called = holder.target().map(|name| Taker::Target(shape::target_number(name)));
                self.judge_hand_out(*receipt, *until, called.unwrap_or(worker));
            }
            Record::Returned { seq, due: Some(due), .. } => self.model.name_backoff(seq.0, *due, self.now),
            Record::Replayed { seq, place, expires, .. } => self.judge_replayed(seq.0, *place, *expires),
            Record::Queue(record) => {
                let queue = names().iter().position(|name| *name == record.name).unwrap();
                assert_eq!(record.paused, self.model.queues[queue].paused, "{record:?}");
                self.judge_tasks(queue, self.latest_task(queue), &record.replays);
            }
            Record::Called { target, started } => {
                let target = shape::target_number(target);
                assert_eq!(Some(*started), self.model.targets[target].called, "{record:?}");
            }
            Record::Message { message, .. } if !self.model.history.contains_key(&message.seq.0) => {
                self.unblocked(message.seq.0, message.queue);
            }
            _ => {}
        }
        if let Some(seq) = subject(&record) {
            *self.written.entry(seq).or_default() += 1;
        }
        self.log.push(record);
    }

    /// A full disk has room for so many hand-outs as was said.
    fn judge_disk(&mut self) {
        assert!(self.model.disk_room() > 0, "more is handed out than the disk has room for");
        self.model.take_disk_room();
        if self.model.disk_room() == 0 {
            self.model.mark("a full disk has room for no more hand-outs");
        }
    }

    fn judge_hand_out(&mut self, receipt: Receipt, until: Wall, taker: Taker) {
        let seq = receipt.seq.0;
        let queue = self.model.messages[&seq].queue;
        assert!(self.model.is_visible(seq), "{seq} is handed out before it is durable");
        assert!(!self.model.is_blocked(seq), "{seq} is handed out before another one of its group");
        self.judge_disk();
        let paused = self.model.queues[queue].paused && self.paused_before[queue];
        assert!(!paused, "{seq} is handed out by a paused queue");
        assert!(self.model.has_room(queue), "{seq} is handed out beyond the queue's cap");
        let dead_max = self.model.queues[queue].settings.dead_letter.max_messages;
        let dead = self.dead_before[queue].min(self.model.of(queue, Phase::Dead).count());
        assert!((dead as u64) < dead_max, "{seq} is handed out though the dead letters are full");
        self.judge_turn(queue, seq);
        match taker {
            Taker::Target(target) => {
                assert_eq!(self.model.queues[queue].target, Some(target), "{seq} goes to its queue's target");
                assert!(
                    self.model.may_call(target, self.now, 1),
                    "{seq} is pushed beyond the target's cap or pace"
                );
                self.model.start_call(target, self.now);
                self.judge_windows(target);
                self.called.insert(receipt);
                self.calls.push(receipt);
            }
            Taker::Worker(consumer) => {
                assert!(self.model.allowance(queue, consumer) > 0, "{seq} goes to one who has enough");
                self.handed.insert(receipt);
                self.receipts.push(receipt);
            }
        }
        self.model.hand_out(receipt, until, taker, self.now);
    }

    /// Whether it was this message's turn, among those that could have gone all the time of this step.
    fn judge_turn(&mut self, queue: usize, seq: u64) {
        let place = self.model.messages[&seq].place;
        let passed = |&(other, one): &(u64, &Message)| one.place < place && self.model.is_blocked(other);
        if self.model.visible(queue).any(|one| passed(&one)) {
            self.model.mark("a group's head blocks a later one that others overtake");
        }
        let chosen = candidate((seq, &self.model.messages[&seq]));
        let others = self.model.eligible(queue).filter(|(other, _)| self.eligible_before.contains(other));
        let others: Vec<Candidate> = others.map(candidate).filter(|other| other.seq != seq).collect();
        let was_calm = self.calm_before[queue];
        let queue = &mut self.model.queues[queue];
        let marks = queue.turns.judge(&queue.settings, chosen, &others, was_calm, self.now.mono);
        for mark in marks {
            self.model.mark(mark);
        }
    }

    /// In any window of length w that ends now, at most rate × w + 1 calls were started.
    fn judge_windows(&self, target: usize) {
        let target = &self.model.targets[target];
        let rate = target.settings.rate.unwrap().per_second();
        for (index, start) in target.starts.iter().enumerate() {
            let window = self.now.mono.since(*start).as_secs_f64() + 2e-6;
            let calls = (target.starts.len() - index) as f64;
            assert!(calls <= rate * window + 1.0, "{calls} calls in {window} s");
        }
    }

    fn compare_records(&self, from: usize) {
        for (seq, count) in &self.written {
            let expected = self.model.records(*seq);
            assert_eq!(*count, expected, "records about {seq}: {:?}", self.log_of(*seq));
        }
        for (seq, states) in &self.model.history {
            let written = self.written.get(seq).copied().unwrap_or(0);
            assert_eq!(written, states.len(), "records about {seq} are missing");
        }
        let mut left = self.written.clone();
        for record in self.log[from..].iter().rev() {
            let Some(seq) = subject(record) else { continue };
            let left = left.get_mut(&seq).unwrap();
            *left -= 1;
            let state = self.model.history[&seq][*left].as_ref();
            assert_eq!(phase_after(record), state.map(|state| state.phase), "{record:?}");
            if let (Record::Message { message, .. }, Some(state)) = (record, state) {
                judge_copy(state, message);
            }
        }
    }

    fn log_of(&self, seq: u64) -> Vec<&Record> {
        self.log.iter().filter(|record| subject(record) == Some(seq)).collect()
    }

    fn compare_numbers(&mut self) {
        // Messages that are due but not dealt with yet are counted differently.
        if self.pond.next_wakeup().is_some_and(|at| at <= self.now.mono) {
            return;
        }
        self.asked += 1;
        let request = RequestId(self.asked);
        self.pond.handle(Input::Command { request, command: Command::Overview }, self.now);
        let effects: Vec<Effect> = self.pond.effects().collect();
        let [Effect::Reply { reply: Reply::Overview(views, targets), .. }] = &effects[..] else {
            panic!("an overview is answered at once and changes nothing: {effects:?}")
        };
        for (target, stats) in targets.iter().enumerate() {
            let cap = u64::from(self.model.targets[target].settings.concurrency);
            assert!((1..=cap).contains(&stats.limit), "{stats:?}: a limit between 1 and the hard cap");
            assert!((1..=stats.limit).contains(&stats.places), "{stats:?}: probe and ramp only lower");
            if stats.limit < cap {
                self.model.mark("an adaptive limit is below the cap");
            }
            self.model.targets[target].places = stats.places;
            self.model.compare_gate(target, stats, self.now.mono);
            assert_eq!(
                stats.inflight,
                self.model.occupied(target) as u64,
                "calls that occupy {}",
                stats.name
            );
        }
        self.judge_idleness();
        for (queue, name) in names().iter().enumerate() {
            let stats = &views.iter().find(|view| view.name == *name).unwrap().stats;
            let count = |phase| self.model.of(queue, phase).count() as u64;
            assert_eq!(stats.ready, count(Phase::Ready), "ready in {name}");
            assert_eq!(stats.delayed, count(Phase::Delayed), "delayed in {name}");
            assert_eq!(stats.leased, count(Phase::Leased), "leased in {name}");
            assert_eq!(stats.backoff, count(Phase::Backoff), "in backoff in {name}");
            assert_eq!(stats.dead, count(Phase::Dead), "dead in {name}");
            assert_eq!(stats.bytes, self.model.unfinished(queue).1, "bytes in {name}");
            assert_eq!(stats.paused, self.model.queues[queue].paused);
            if !self.clock_stepped {
                let ready = self.model.visible(queue).map(|(_, message)| message.due_since).min();
                assert_eq!(stats.oldest_ready_age, self.age(ready), "age of the oldest ready in {name}");
                let leased = self.model.of(queue, Phase::Leased).map(|(_, message)| message.due_since).min();
                assert_eq!(stats.oldest_leased_age, self.age(leased), "age of the oldest leased in {name}");
                let backoff =
                    self.model.of(queue, Phase::Backoff).map(|(_, message)| message.due_since).min();
                assert_eq!(
                    stats.oldest_backoff_age,
                    self.age(backoff),
                    "age of the oldest backoff in {name}"
                );
            }
        }
    }

    fn age(&self, since: Option<Mono>) -> Duration {
        since.map_or(Duration::ZERO, |since| self.now.mono.since(since))
    }

    /// Nothing that could be handed out lies about, and nothing waits for room that is there.
    fn judge_idleness(&mut self) {
        for queue in 0..3 {
            let blocked = self.model.judge_blocked(queue);
            let free = self.model.storage.takes_new_work();
            assert!(blocked.is_none() || !free, "{blocked:?}, and it still waits for room");
            self.judge_stuck(queue);
        }
        if self.model.disk_room() == 0 {
            return;
        }
        for queue in (0..3).filter(|queue| self.model.is_open(*queue)).collect::<Vec<_>>() {
            if self.model.visible(queue).any(|(seq, _)| self.model.waits_for_durability(seq)) {
                self.model.mark("the next of a group waits until its head's end is durable");
            }
            let Some((seq, _)) = self.model.eligible(queue).next() else { continue };
            let waiting = self.due.values().filter_map(|due| match due.answer {
                Answer::Leased { queue: at, consumer, .. } if at == queue => Some(consumer),
                _ => None,
            });
            let waiting: Vec<Option<u8>> = waiting.collect();
            let waits = waiting.iter().any(|consumer| self.model.allowance(queue, *consumer) > 0);
            assert!(!waits, "{seq} is not handed to a worker that waits for it");
            if !waiting.is_empty() {
                self.model.mark("a consumer has all it may have");
            }
            let target = self.model.queues[queue].target;
            let idle = target.is_some_and(|target| self.model.must_call(target, self.now));
            assert!(!idle, "{seq} is not pushed though the target has room");
        }
    }

    // --- answers -----------------------------------------------------------------------------------------------

    fn replied(&mut self, request: RequestId, reply: Reply) {
        if let Some(Answer::Blocked { queue }) = self.due.get(&request).map(|due| &due.answer) {
            self.settle_line(*queue);
        }
        let due = self.due.remove(&request).unwrap_or_else(|| panic!("nobody asked {request:?}: {reply:?}"));
        for (seq, count) in &due.gates {
            let durable = self.model.durable.get(seq).copied().unwrap_or(0);
            assert!(durable >= *count, "{reply:?} is told before {seq} is durable: {durable} of {count}");
        }
        assert!(self.durable >= due.gate, "{reply:?} is told before its record is durable");
        match (due.answer, reply) {
            (Answer::Enqueued(fates), Reply::Enqueued(Ok(answers))) => {
                assert_eq!(fates.len(), answers.len());
                for (fate, answer) in fates.iter().zip(&answers) {
                    judge_enqueue(fate, answer);
                }
            }
            (Answer::Leased { queue, max, until, .. }, Reply::Leased(Ok(leased))) => {
                self.judge_leased(request, queue, max, until, &leased);
            }
            (Answer::Settled(expected), Reply::Settled(answers)) => assert_eq!(answers, [expected]),
            (Answer::Extended(expected), Reply::Extended(answers)) => {
                assert_eq!(answers[0].is_ok(), expected, "{answers:?}");
            }
            (Answer::Cancelled(expected), Reply::Cancelled(answer)) => match (expected, answer) {
                (Ok(expected), Ok(status)) => judge_copy(&expected, &status.message),
                (Err(Some(phase)), Err(CancelError::NotCancellable(told))) => assert_eq!(told, phase),
                (Err(None), Err(CancelError::Lookup(_))) => {}
                (expected, answer) => panic!("{expected:?} expected, {answer:?}"),
            },
            (Answer::Status(expected), Reply::Status(answer)) => match (expected, answer) {
                (Some(expected), Ok(status)) => judge_copy(&expected, &status.message),
                (None, Err(LookupError::Forgotten | LookupError::NeverIssued)) => {}
                (expected, answer) => panic!("{expected:?} expected, {answer:?}"),
            },
            (Answer::Replayed(Some(expected)), Reply::ReplayStarted(Ok(plan))) => {
                assert_eq!(plan.selected, expected);
            }
            (Answer::Replayed(None), Reply::ReplayStarted(Err(ReplayError::Running(_))))
            | (Answer::ReplayCancelled, Reply::ReplayCancelled(Ok(_)))
            | (Answer::TargetReset, Reply::Target(Ok(_)))
            | (Answer::Paused, Reply::Paused(Ok(()))) => {}
            (Answer::Purged(expected), Reply::Purged(answer)) => assert_eq!(answer, Ok(expected)),
            (Answer::DeadDeleted(expected), Reply::DeadDeleted(answer)) => {
                assert_eq!(answer.is_ok(), expected);
            }
            (answer, reply) => panic!("{answer:?} expected, {reply:?}"),
        }
    }

    fn judge_leased(&mut self, request: RequestId, queue: usize, max: usize, until: Mono, leased: &[Leased]) {
        assert!(leased.len() <= max);
        if leased.is_empty() {
            assert!(self.now.mono >= until, "a worker that waits is sent away too early");
            return;
        }
        let may_have_more = |consumer: Option<u8>| {
            let was_full = consumer.is_some_and(|consumer| self.full_before.contains(&(queue, consumer)));
            !was_full && self.model.allowance(queue, consumer) > 0
        };
        let earlier = self.due.iter().find(|(other, due)| match due.answer {
            Answer::Leased { queue: at, consumer, .. } => {
                **other < request && at == queue && may_have_more(consumer)
            }
            _ => false,
        });
        assert!(earlier.is_none(), "{request:?} is served before {earlier:?}");
        for one in leased {
            assert!(self.handed.remove(&one.receipt), "{one:?} was not handed out");
            let message = &self.model.messages[&one.receipt.seq.0];
            assert_eq!(message.queue, queue);
            judge_copy(message, &one.message);
        }
    }

    fn dispatched(&mut self, leased: &Leased) {
        assert!(self.called.remove(&leased.receipt), "{leased:?} was not handed out");
        judge_copy(&self.model.messages[&leased.receipt.seq.0], &leased.message);
    }

    // --- time and durability -------------------------------------------------------------------------------------

    /// Lets everything happen that is due now.
    pub(crate) fn tick(&mut self) {
        loop {
            self.begin_step();
            self.handle(Input::Tick);
            self.end_step();
            if self.pond.next_wakeup().is_none_or(|at| at > self.now.mono) {
                return;
            }
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.mono.plus(time);
        while let Some(at) = self.pond.next_wakeup().filter(|&at| at <= end) {
            self.set_mono(at.max(self.now.mono));
            self.tick();
        }
        self.set_mono(end);
        self.tick();
    }

    pub(crate) fn until_wakeup(&mut self) {
        if let Some(at) = self.pond.next_wakeup() {
            self.pass(at.since(self.now.mono));
        }
    }

    fn set_mono(&mut self, mono: Mono) {
        self.now = Now { wall: self.now.wall_at(mono), mono };
    }

    pub(crate) fn step_wall(&mut self, seconds: i64) {
        self.clock_stepped = true;
        self.now.wall = Wall(self.now.wall.0 + seconds * 1_000_000);
    }

    pub(crate) fn pending(&self) -> usize {
        self.log.len() - self.durable
    }

    fn make_durable(&mut self, count: usize) {
        self.begin_step();
        for record in &self.log[self.durable..count] {
            if let Some(seq) = subject(record) {
                *self.model.durable.entry(seq).or_default() += 1;
            }
        }
        self.durable = count;
        self.tell(|| format!("durable up to {count}"));
        self.handle(Input::Durable(OpNumber((count - self.before) as u64)));
        self.end_step();
    }

    /// Makes `more` further records durable.
    pub(crate) fn sync(&mut self, more: usize) {
        self.make_durable(self.durable + more.min(self.pending()));
    }

    pub(crate) fn sync_all(&mut self) {
        while self.pending() > 0 {
            self.sync(usize::MAX);
        }
        let unanswered: Vec<_> = self
            .due
            .iter()
            .filter(|(_, due)| !matches!(due.answer, Answer::Leased { .. } | Answer::Blocked { .. }))
            .collect();
        assert!(unanswered.is_empty(), "all is durable, and not answered: {unanswered:?}");
    }

    /// The engine dies; of what was not durable, the first `more` records survive. The configuration may have been
    /// edited before the next start.
    pub(crate) fn crash(&mut self, more: usize, edited: Option<[Shape; 3]>) {
        let kept = self.durable + more.min(self.pending());
        let leased = self.model.messages.iter().filter(|(_, message)| message.phase == Phase::Leased);
        if leased.map(|(&seq, _)| seq).any(|seq| self.model.has_followers(seq)) {
            self.model.mark("the server dies while a group's head is leased");
        }
        if self.model.queues.iter().any(|queue| !queue.blocked.is_empty()) {
            self.model.mark("the server dies while enqueues wait for room");
        }
        self.log.truncate(kept);
        self.written.clear();
        for seq in self.log.iter().filter_map(subject) {
            *self.written.entry(seq).or_default() += 1;
        }
        if let Some(shapes) = edited {
            self.shapes = shapes;
            let declared = shape::declared(&shapes).queues;
            let mut moved = false;
            for (model, (_, settings)) in self.model.queues.iter_mut().zip(declared) {
                let target = shape::target(&settings);
                moved |= target != std::mem::replace(&mut model.target, target);
                model.settings = settings;
            }
            self.model.mark("the configuration is edited between two starts");
            if moved && (0..2).any(|target| self.model.occupied(target) > 0) {
                self.model.mark("a queue gets another target while calls are under way");
            }
        }
        // The pace goes on from the latest call that the log tells of.
        for (target, model) in self.model.targets.iter_mut().enumerate() {
            let begun = self.log.iter().filter_map(|record| match record {
                Record::Leased { holder, started, .. } => Some((holder.target()?, *started)),
                Record::Called { target, started } => Some((target, *started)),
                _ => None,
            });
            let of_target = begun.filter(|(name, _)| shape::target_number(name) == target);
            model.called = of_target.map(|(_, started)| started).next_back();
        }
        self.model.restart(&self.written, self.now);
        for (name, model) in names().iter().zip(&mut self.model.queues) {
            let last = self.log.iter().rev().find_map(|record| match record {
                Record::Queue(queue) if queue.name == *name => Some(queue.paused),
                _ => None,
            });
            model.paused = last.unwrap_or(false);
        }
        self.pond = Pond::new(self.asked);
        self.pond.keep_in_full((self.asked % 3) as usize);
        for record in &self.log {
            self.pond.restore(record.clone());
        }
        assert_eq!(self.pond.orphan(), None);
        self.due.clear();
        self.calls.clear();
        self.paced = Default::default();
        if (0..3).any(|queue| self.running(queue).is_some()) {
            self.model.mark("the server dies while a replay is running");
        }
        self.model.storage = StorageState::Roomy;
        self.before = kept;
        self.durable = kept;
        self.open();
    }
}

type Enqueued = Result<millpond_core::command::Accepted, EnqueueError>;

fn candidate((seq, message): (u64, &Message)) -> Candidate {
    let Message { place, labels, attempts, due_since, .. } = *message;
    Candidate { seq, place, class: labels.class, tenant: labels.tenant, retry: attempts > 0, due_since }
}

fn judge_enqueue(fate: &Fate, answer: &Enqueued) {
    match (fate, answer) {
        (Fate::Accepted { seq, position }, Ok(accepted)) => {
            assert_eq!((accepted.seq.0, accepted.duplicate), (*seq, false));
            match *position {
                Position::Exactly(ahead) => assert_eq!(accepted.position, Some(ahead)),
                Position::AtMost(most) => {
                    assert!(accepted.position.is_none_or(|ahead| ahead <= most), "{accepted:?}");
                }
                Position::Unknown => assert_eq!(accepted.position, None),
            }
        }
        (Fate::Duplicate { seq, phase }, Ok(accepted)) => {
            assert_eq!((accepted.seq.0, accepted.phase, accepted.duplicate), (*seq, *phase, true));
        }
        (Fate::TooLarge, Err(EnqueueError::TooLarge { .. }))
        | (Fate::Mismatch, Err(EnqueueError::IdempotencyMismatch))
        | (Fate::StorageFull, Err(EnqueueError::StorageFull)) => {}
        (Fate::Full, Err(EnqueueError::QueueFull { retry_after, .. }))
        | (Fate::TooLate, Err(EnqueueError::WaitTooLong { retry_after, .. })) => {
            assert!(*retry_after >= s(1) && *retry_after <= Duration::from_hours(1), "{retry_after:?}");
        }
        (fate, answer) => panic!("{fate:?} expected, {answer:?}"),
    }
}
