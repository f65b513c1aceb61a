//! A pond on virtual time with a log that is durable at once, unless a test holds durability back.
//!
//! Owns the shortest ways to say what a test does. Must never judge an answer: tests do.

use bytes::Bytes;
use millpond_core::callback::Callbacks;
use millpond_core::command::{
    Accepted, CallOutcome, CancelError, Command, Declared, Effect, EnqueueError, Input, LeaseRequest, Leased,
    LookupError, NewMessage, OpNumber, ReplayError, Reply, RequestId, SettleError, SettleOutcome, Settlement,
    Status,
};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, Failure, IdempotencyKey, Phase};
use millpond_core::name::Name;
use millpond_core::notice::Notice;
use millpond_core::pond::Pond;
use millpond_core::record::Record;
use millpond_core::replay::{ReplayList, ReplayPlan, ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::settings::{QueueSettings, TargetSettings};
use millpond_core::stats::{QueueStats, TargetStats};
use millpond_core::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const QUEUE: &str = "orders";

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A message of `size` bytes.
pub(crate) fn message_of(size: usize) -> NewMessage {
    let content = Content { body: Bytes::from(vec![b'x'; size]), ..Content::default() };
    NewMessage { content: Arc::new(content), ..NewMessage::default() }
}

pub(crate) fn message() -> NewMessage {
    message_of(10)
}

pub(crate) fn keyed(key: u128, payload: u128) -> NewMessage {
    NewMessage { key: Some(IdempotencyKey { key, payload }), ..message() }
}

pub(crate) fn retry() -> SettleOutcome {
    SettleOutcome::Retry { failure: None, delay: None }
}

pub(crate) fn retry_in(delay: Duration) -> SettleOutcome {
    SettleOutcome::Retry { failure: None, delay: Some(delay) }
}

pub(crate) fn complete() -> SettleOutcome {
    SettleOutcome::Complete { result: None }
}

pub(crate) fn dead() -> SettleOutcome {
    SettleOutcome::Dead { failure: None }
}

pub(crate) fn release() -> SettleOutcome {
    SettleOutcome::Release { delay: None }
}

pub(crate) fn failure() -> Failure {
    Failure::new("status", "answered 500", Some(500))
}

pub(crate) fn failed(timed_out: bool) -> CallOutcome {
    CallOutcome::Failed { failure: failure(), timed_out }
}

pub(crate) fn throttled(pause: Duration) -> CallOutcome {
    CallOutcome::Throttled { pause, failure: failure() }
}

pub(crate) fn succeeded() -> CallOutcome {
    CallOutcome::Succeeded { result: None }
}

pub(crate) fn target(concurrency: u32) -> TargetSettings {
    TargetSettings {
        concurrency,
        rate: None,
        timeout: s(5),
        hold_after_timeout: None,
        adaptive: None,
        breaker: None,
        ramp: None,
    }
}

/// The pond, its clock, its log, and what it has said so far.
pub(crate) struct Rig {
    pub(crate) pond: Pond,
    pub(crate) now: Now,
    pub(crate) declared: Declared,
    /// Every record so far, durable or not.
    pub(crate) log: Vec<Record>,
    /// Of each, whether it is on the disk with the next one, or neither is.
    pub(crate) glued: Vec<bool>,
    /// Who words what is told of ends.
    pub(crate) callbacks: Option<Callbacks>,
    /// How many of them are durable.
    pub(crate) durable: usize,
    /// Whether records become durable by [`Rig::make_durable`] only.
    pub(crate) hold_durability: bool,
    /// Calls to targets that nobody has taken yet.
    pub(crate) calls: Vec<Leased>,
    pub(crate) forgotten: Vec<Seq>,
    pub(crate) notices: Vec<Notice>,
    replies: BTreeMap<RequestId, Reply>,
    asked: u64,
    /// Records that earlier boots emitted; numbers of records start anew at a restart.
    before: usize,
}

impl Rig {
    /// One queue, [`QUEUE`], with `settings`.
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self::with(Declared { targets: Vec::new(), queues: vec![(name(QUEUE), settings)] })
    }

    /// One queue, [`QUEUE`], that is pushed to a target.
    pub(crate) fn pushing(target: TargetSettings, settings: QueueSettings) -> Self {
        let settings = QueueSettings { target: Some(name("till")), ..settings };
        Self::with(Declared { targets: vec![(name("till"), target)], queues: vec![(name(QUEUE), settings)] })
    }

    /// Queues that say nothing of it hand out as many messages to one worker as it wants, and bear any number of
    /// deaths: most tests are about something else.
    pub(crate) fn with(declared: Declared) -> Self {
        Self::telling(declared, None)
    }

    /// The same, and ends are told.
    pub(crate) fn telling(mut declared: Declared, callbacks: Option<Callbacks>) -> Self {
        let usual = QueueSettings::default();
        for (_, settings) in &mut declared.queues {
            if settings.prefetch == usual.prefetch {
                settings.prefetch = 1000;
            }
            if settings.dead_burst == usual.dead_burst {
                settings.dead_burst = 0;
            }
        }
        let mut rig = Self {
            pond: Pond::new(7),
            now: Now { wall: Wall(1_800_000_000_000_000), mono: Mono(0) },
            declared,
            log: Vec::new(),
            glued: Vec::new(),
            callbacks,
            durable: 0,
            hold_durability: false,
            calls: Vec::new(),
            forgotten: Vec::new(),
            notices: Vec::new(),
            replies: BTreeMap::new(),
            asked: 0,
            before: 0,
        };
        rig.pond.keep_in_full(1);
        rig.callbacks.clone().into_iter().for_each(|callbacks| rig.pond.tell_ends(callbacks));
        rig.pond.open(rig.declared.clone(), rig.now);
        rig.settle_down();
        rig
    }

    /// Kills the pond and starts another one from what is durable and `more` records that were not.
    pub(crate) fn restart_keeping(&mut self, more: usize) {
        let kept = self.durable.saturating_add(more).min(self.log.len());
        assert!(kept == 0 || !self.glued[kept - 1], "no crash parts what is on the disk together");
        self.log.truncate(kept);
        self.glued.truncate(kept);
        self.pond = Pond::new(8);
        self.pond.keep_in_full(0);
        self.callbacks.clone().into_iter().for_each(|callbacks| self.pond.tell_ends(callbacks));
        for record in &self.log {
            self.pond.restore(record.clone());
        }
        assert_eq!(self.pond.orphan(), None);
        self.before = self.log.len();
        self.durable = self.log.len();
        self.calls.clear();
        self.replies.clear();
        self.pond.open(self.declared.clone(), self.now);
        self.settle_down();
    }

    pub(crate) fn restart(&mut self) {
        self.restart_keeping(usize::MAX - self.durable);
    }

    /// Takes effects until there are no more.
    fn settle_down(&mut self) {
        loop {
            let effects: Vec<Effect> = self.pond.effects().collect();
            self.pond.assert_consistent();
            for effect in effects {
                match effect {
                    Effect::Append { op, record, with_next, .. } => {
                        self.log.push(record);
                        self.glued.push(with_next);
                        assert_eq!(
                            op.0,
                            (self.log.len() - self.before) as u64,
                            "records are numbered in order"
                        );
                    }
                    Effect::Reply { request, reply } => {
                        assert!(self.replies.insert(request, reply).is_none(), "{request:?} answered twice");
                    }
                    Effect::Dispatch { leased, .. } => self.calls.push(*leased),
                    Effect::Forget(seq) => self.forgotten.push(seq),
                    Effect::Notice(notice) => self.notices.push(notice),
                }
            }
            if self.hold_durability || self.durable == self.log.len() {
                return;
            }
            self.mark_durable(self.log.len());
        }
    }

    fn mark_durable(&mut self, count: usize) {
        self.durable = count;
        self.pond.handle(Input::Durable(OpNumber((count - self.before) as u64)), self.now);
    }

    /// Makes everything durable that was emitted.
    pub(crate) fn make_durable(&mut self) {
        self.mark_durable(self.log.len());
        self.settle_down();
    }

    /// Makes the first `count` records of the log durable.
    pub(crate) fn make_durable_up_to(&mut self, count: usize) {
        self.mark_durable(count);
        self.settle_down();
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.pond.handle(input, self.now);
        self.settle_down();
    }

    /// Lets time pass, waking the pond whenever it wants to be woken.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.mono.plus(time);
        while self.pond.next_wakeup().is_some_and(|at| at <= end) {
            let at = self.pond.next_wakeup().unwrap().max(self.now.mono);
            self.now = Now { wall: self.now.wall_at(at), mono: at };
            self.input(Input::Tick);
        }
        self.now = Now { wall: self.now.wall_at(end), mono: end };
    }

    /// Sets the wall clock forwards or back.
    pub(crate) fn step_wall(&mut self, seconds: i64) {
        self.now.wall = Wall(self.now.wall.0 + seconds * 1_000_000);
    }

    /// Asks without taking the answer.
    pub(crate) fn ask(&mut self, command: Command) -> RequestId {
        self.asked += 1;
        let request = RequestId(self.asked);
        self.input(Input::Command { request, command });
        request
    }

    /// The answer to an earlier question, if it has come.
    pub(crate) fn answer(&mut self, request: RequestId) -> Option<Reply> {
        self.replies.remove(&request)
    }

    pub(crate) fn ask_now(&mut self, command: Command) -> Reply {
        let request = self.ask(command);
        self.answer(request).expect("the answer comes at once")
    }

    pub(crate) fn enqueue_to(&mut self, queue: &str, message: NewMessage) -> Result<Accepted, EnqueueError> {
        match self.ask_now(Command::Enqueue { queue: name(queue), messages: vec![message] }) {
            Reply::Enqueued(answers) => answers?.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn enqueue(&mut self, message: NewMessage) -> Result<Accepted, EnqueueError> {
        self.enqueue_to(QUEUE, message)
    }

    /// Enqueues plain messages; their numbers.
    pub(crate) fn fill(&mut self, count: usize) -> Vec<Seq> {
        (0..count).map(|_| self.enqueue(message()).unwrap().seq).collect()
    }

    pub(crate) fn wish(max: usize, wait: Duration) -> LeaseRequest {
        LeaseRequest { queue: name(QUEUE), max, lease: None, wait, consumer: None }
    }

    pub(crate) fn lease(&mut self, max: usize) -> Vec<Leased> {
        match self.ask_now(Command::Lease(Self::wish(max, Duration::ZERO))) {
            Reply::Leased(leased) => leased.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Leases the one message that must be there.
    pub(crate) fn lease_one(&mut self) -> Receipt {
        let leased = self.lease(1);
        assert_eq!(leased.len(), 1, "a message is there to be leased");
        leased[0].receipt
    }

    pub(crate) fn settle(&mut self, receipt: Receipt, outcome: SettleOutcome) -> Result<(), SettleError> {
        match self.ask_now(Command::Settle(vec![Settlement { receipt, outcome }])) {
            Reply::Settled(answers) => answers[0],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn extend(&mut self, receipt: Receipt, lease: Duration) -> Result<Wall, SettleError> {
        match self.ask_now(Command::Extend(vec![(receipt, lease)])) {
            Reply::Extended(answers) => answers[0],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn cancel(&mut self, seq: Seq) -> Result<Box<Status>, CancelError> {
        match self.ask_now(Command::Cancel(seq)) {
            Reply::Cancelled(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&mut self, seq: Seq) -> Result<Box<Status>, LookupError> {
        match self.ask_now(Command::Status { seq, wait: None }) {
            Reply::Status(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn phase(&mut self, seq: Seq) -> Phase {
        self.status(seq).unwrap().message.phase
    }

    pub(crate) fn pause(&mut self, paused: bool) {
        let reply = self.ask_now(Command::Pause { queue: name(QUEUE), paused });
        assert!(matches!(reply, Reply::Paused(Ok(()))), "{reply:?}");
    }

    pub(crate) fn ask_for_replay(&mut self, which: ReplayWhich) -> RequestId {
        let wish = ReplayWish::plain(which);
        self.ask(Command::Replay { queue: name(QUEUE), wish, dry_run: false })
    }

    /// Replays what can go back at once; how many were selected.
    pub(crate) fn replay(&mut self, which: ReplayWhich) -> Result<u64, ReplayError> {
        self.start_replay(ReplayWish::plain(which), false).map(|plan| plan.selected)
    }

    pub(crate) fn start_replay(
        &mut self,
        wish: ReplayWish,
        dry_run: bool,
    ) -> Result<ReplayPlan, ReplayError> {
        let request = self.ask(Command::Replay { queue: name(QUEUE), wish, dry_run });
        self.pass(Duration::ZERO);
        match self.answer(request).expect("the replay is counted") {
            Reply::ReplayStarted(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Puts all dead letters back, as far as that goes now.
    pub(crate) fn replay_some(&mut self) -> RequestId {
        self.ask_for_replay(ReplayWhich::All)
    }

    pub(crate) fn replays(&mut self) -> Vec<ReplayTask> {
        self.replay_list().tasks
    }

    pub(crate) fn replay_list(&mut self) -> ReplayList {
        match self.ask_now(Command::Replays(name(QUEUE))) {
            Reply::Replays(answer) => answer.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn cancel_replay(&mut self, number: u32) -> Result<ReplayTask, ReplayError> {
        match self.ask_now(Command::CancelReplay { queue: name(QUEUE), number }) {
            Reply::ReplayCancelled(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete_dead(&mut self, seq: Seq) -> Result<(), ReplayError> {
        match self.ask_now(Command::DeleteDead { queue: name(QUEUE), seq }) {
            Reply::DeadDeleted(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn stats(&mut self) -> QueueStats {
        match self.ask_now(Command::Queue(name(QUEUE))) {
            Reply::Queue(view) => view.unwrap().stats,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn target_stats(&mut self) -> TargetStats {
        match self.ask_now(Command::Overview) {
            Reply::Overview(_, mut targets) => targets.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// What is told of one target.
    pub(crate) fn stats_of(&mut self, target: &str) -> TargetStats {
        match self.ask_now(Command::Target(name(target))) {
            Reply::Target(stats) => *stats.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The calls begun since the last time.
    pub(crate) fn take_calls(&mut self) -> Vec<Leased> {
        std::mem::take(&mut self.calls)
    }

    pub(crate) fn end_call(&mut self, receipt: Receipt, outcome: CallOutcome) {
        self.input(Input::CallEnded { receipt, outcome });
    }
}
