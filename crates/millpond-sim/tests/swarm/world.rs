//! The world around one engine: time, the agenda, the disk, the process that lives and dies, and the trail.
//!
//! Owns the event loop and what must hold at every step. Must never decide for an actor.

use super::draw::{DrawnQueue, Plan, percent};
use super::marks::Marks;
use super::replies::Asked;
use super::target::Call;
use super::watch::Watcher;
use super::workers::Worker;
use super::{faults::Fault, producers::Producer};
use fastrand::Rng;
use millpond_core::command::{Command, Declared, Input, Reply, RequestId};
use millpond_core::identity::Receipt;
use millpond_core::settings::{OnExpiry, Order, Overflow, PUSH_LEASE_MARGIN, Priority, QueueSettings};
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::{Host, HostError, HostOptions, Outcome, Surroundings, VirtualClock, Watch};
use millpond_testkit::trail::{self, Event, Micros, Numbers, Rules, Span};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The pond's own check takes as long as there are messages: with so many, it is made now and then only.
const MANY_MESSAGES: usize = 150;
const CHECK_EVERY: u64 = 8;
/// Steps after which a run that does not end is stuck.
const STEPS_MAX: u64 = 400_000;

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Task {
    Produce(usize),
    Work(usize),
    /// A worker that waits for messages is gone; `tells`: its connection was seen to close.
    Vanish(RequestId, bool),
    /// A producer does not wait for its answer any longer.
    GiveUp(RequestId),
    Say(usize, Vec<super::workers::Saying>),
    Extend(usize, Receipt, Duration),
    CallEnds(Receipt, u32, super::target::CallEnd),
    Look(millpond_core::identity::Seq),
    Operate,
    Replays,
    Fault,
    Do(Fault),
    Restart,
}

/// What the disk is like now; shared with the host.
#[derive(Debug)]
pub(super) struct Conditions {
    pub(super) chance: Rng,
    pub(super) commit_latency: Duration,
    pub(super) read_latency: Duration,
    pub(super) disk: SimulatedDisk,
    /// When a full disk has room again.
    pub(super) room_at: Option<Mono>,
    pub(super) now: Mono,
    pub(super) waited_for_room: bool,
}

#[derive(Debug)]
struct Shared(Rc<RefCell<Conditions>>);

impl Surroundings for Shared {
    fn commit_latency(&mut self) -> Duration {
        let conditions = &mut *self.0.borrow_mut();
        conditions.commit_latency.mul_f64(conditions.chance.f64() * 1.5 + 0.25)
    }

    fn read_latency(&mut self) -> Duration {
        self.0.borrow().read_latency
    }

    fn wait_for_room(&mut self) -> Option<Duration> {
        let mut conditions = self.0.borrow_mut();
        let room_at = conditions.room_at.take()?;
        conditions.disk.set_capacity(None);
        conditions.waited_for_room = true;
        Some(room_at.since(conditions.now))
    }
}

/// A queue as the world knows it.
#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) drawn: DrawnQueue,
    /// Whether it exists as far as anyone knows.
    pub(super) exists: bool,
    /// A change of it is under way.
    pub(super) changing: bool,
    /// The operator has replayed its dead letters for want of room, and did nothing else since.
    pub(super) replayed: bool,
    /// Surely paused since then.
    pub(super) paused_since: Option<Micros>,
}

/// What was done to the disk, so that its errors are no surprise.
#[derive(Debug, Default)]
pub(super) struct Harm {
    /// A write or a sync will fail.
    pub(super) error: bool,
    /// A read may fail.
    pub(super) read: bool,
    /// A bit has flipped.
    pub(super) rot: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) chance: Rng,
    pub(super) plan: Plan,
    pub(super) now: Mono,
    agenda: BTreeMap<(Mono, u64), Task>,
    planned: u64,
    steps: u64,
    pub(super) disk: SimulatedDisk,
    pub(super) host: Option<Host>,
    pub(super) boot: u32,
    pub(super) clock: VirtualClock,
    pub(super) conditions: Rc<RefCell<Conditions>>,
    watcher: Rc<RefCell<Watcher>>,
    pub(super) asked: BTreeMap<RequestId, Asked>,
    pub(super) trail: Vec<Event>,
    pub(super) numbers: Numbers<Receipt>,
    /// Until when everything that was said is surely on the disk.
    settled_at: Micros,
    /// When the process started that is up, or that was up last.
    pub(super) booted_at: Micros,
    pub(super) healing: bool,
    pub(super) producers: Vec<Producer>,
    pub(super) workers: Vec<Worker>,
    pub(super) queues: Vec<QueueState>,
    pub(super) calls: BTreeMap<Receipt, Call>,
    pub(super) known: super::replies::Known,
    pub(super) harm: Harm,
    /// What came out of the host and was not heard yet, and whether somebody is hearing it.
    unsaid: VecDeque<Outcome>,
    hearing: bool,
}

pub(super) fn micros(duration: Duration) -> Micros {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl World {
    pub(super) fn new(seed: u64, traced: bool) -> Self {
        let mut chance = Rng::with_seed(seed);
        let plan = Plan::draw(&mut chance);
        let disk = SimulatedDisk::new();
        let conditions = Conditions {
            chance: chance.fork(),
            commit_latency: plan.commit_latency,
            read_latency: plan.read_latency,
            disk: disk.clone(),
            room_at: None,
            now: Mono(0),
            waited_for_room: false,
        };
        let watcher = Watcher { trace: traced.then(String::new), ..Watcher::default() };
        let queues = plan.queues.iter().map(|drawn| QueueState {
            drawn: drawn.clone(),
            exists: drawn.declared,
            changing: false,
            replayed: false,
            paused_since: None,
        });
        let mut world = Self {
            seed,
            queues: queues.collect(),
            producers: (0..plan.producers).map(|_| Producer::default()).collect(),
            workers: (0..plan.workers).map(|_| Worker::default()).collect(),
            now: Mono(1_000_000),
            agenda: BTreeMap::new(),
            planned: 0,
            steps: 0,
            disk,
            host: None,
            boot: 0,
            clock: VirtualClock::default(),
            conditions: Rc::new(RefCell::new(conditions)),
            watcher: Rc::new(RefCell::new(watcher)),
            asked: BTreeMap::new(),
            trail: Vec::new(),
            numbers: Numbers::default(),
            settled_at: 0,
            booted_at: 0,
            healing: false,
            calls: BTreeMap::new(),
            known: super::replies::Known::default(),
            harm: Harm::default(),
            unsaid: VecDeque::new(),
            hearing: false,
            chance,
            plan,
        };
        world.announce();
        world
    }

    /// Writes down what the configuration says, and puts the first steps of all actors on the agenda.
    fn announce(&mut self) {
        for (number, (_, target)) in self.plan.targets.iter().enumerate() {
            let interval = target.rate.map_or(0, |rate| micros(rate.per) / i64::from(rate.events));
            let target_number = u32::try_from(number).expect("few");
            self.trail.push(Event::Target {
                target: target_number,
                concurrency: target.concurrency,
                interval,
                hold: micros(target.hold()),
                lease: micros(target.timeout + PUSH_LEASE_MARGIN),
                // Those of calls that began before it opened last do not count.
                down_after: target.breaker.map_or(0, |breaker| breaker.failures + 2 * target.concurrency),
            });
        }
        for queue in 0..self.queues.len() {
            let span = Span::default();
            self.note_rules(queue, span);
        }
        for producer in 0..self.producers.len() {
            self.after(Duration::from_millis(50), Task::Produce(producer));
        }
        for worker in 0..self.workers.len() {
            self.after(Duration::from_millis(60), Task::Work(worker));
        }
        self.after(Duration::from_millis(5), Task::Operate);
        self.after(Duration::from_millis(7), Task::Replays);
        if let Some(every) = self.plan.fault_every {
            self.after(every.mul_f64(0.3), Task::Fault);
        }
    }

    pub(super) fn settings(&self, queue: usize) -> &QueueSettings {
        &self.queues[queue].drawn.settings
    }

    /// Writes down the rules of a queue as they are known.
    pub(super) fn note_rules(&mut self, queue: usize, span: Span) {
        let wanted = &self.settings(queue).target;
        let target = self.plan.targets.iter().position(|(name, _)| Some(name) == wanted.as_ref());
        let target = target.map(|target| u32::try_from(target).expect("few"));
        let rules = Rules { target, ..rules_of(self.settings(queue)) };
        self.trail.push(Event::Rules { queue: u32::try_from(queue).expect("few"), rules, span });
    }

    pub(super) fn reach(&mut self, mark: &str) {
        self.watcher.borrow_mut().marks.reach(mark);
    }

    pub(super) fn fail(&self, what: impl std::fmt::Display) -> ! {
        panic!("seed {} at {}: {what}", self.seed, self.now.0)
    }

    // --- the loop --------------------------------------------------------------------------------------------

    pub(super) fn after(&mut self, delay: Duration, task: Task) {
        self.planned += 1;
        self.agenda.insert((self.now.plus(delay), self.planned), task);
    }

    /// Runs until `until`, or until `done`.
    pub(super) fn run(&mut self, until: Mono, mut done: impl FnMut(&Self) -> bool) {
        loop {
            if done(self) {
                return;
            }
            let task_at = self.agenda.keys().next().map(|(at, _)| *at);
            let host_at = self.host.as_ref().and_then(Host::next_event);
            let Some(at) = [task_at, host_at].into_iter().flatten().min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            self.conditions.borrow_mut().now = self.now;
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.fail("the run does not end");
            }
            if host_at.is_some_and(|host_at| task_at.is_none_or(|task_at| host_at <= task_at)) {
                self.with_host(Host::run);
            } else if let Some((_, task)) = self.agenda.pop_first() {
                self.act(task);
            }
            self.check();
        }
        self.now = self.now.max(until);
    }

    fn act(&mut self, task: Task) {
        match task {
            Task::Produce(producer) => self.produce(producer),
            Task::Work(worker) => self.work(worker),
            Task::Vanish(request, tells) => self.vanish(request, tells),
            Task::GiveUp(request) => self.give_up(request),
            Task::Say(worker, sayings) => self.say(worker, sayings),
            Task::Extend(worker, receipt, lease) => self.extend(worker, receipt, lease),
            Task::CallEnds(receipt, boot, end) => self.call_ends(receipt, boot, end),
            Task::Look(seq) => self.look(seq),
            Task::Operate => self.operate(),
            Task::Replays => self.look_at_replays(),
            Task::Fault => self.draw_fault(),
            Task::Do(fault) => self.do_fault(fault),
            Task::Restart => self.start(),
        }
    }

    /// Lets the host do something, if there is one, and hears what comes out.
    pub(super) fn with_host(&mut self, act: impl FnOnce(&mut Host, Mono) -> Result<(), HostError>) {
        let now = self.now;
        let Some(host) = &mut self.host else { return };
        let result = act(host, now);
        let outcomes = host.outcomes();
        // A process whose log has failed says nothing any more.
        if result.is_ok() {
            self.unsaid.extend(outcomes);
        }
        // Whoever is told something may say something in turn: what comes of it is heard after what was there before.
        if !std::mem::replace(&mut self.hearing, true) {
            while let Some(outcome) = self.unsaid.pop_front() {
                self.hear(outcome);
            }
            self.hearing = false;
        }
        self.after_step(result);
    }

    fn after_step(&mut self, result: Result<(), HostError>) {
        if std::mem::take(&mut self.conditions.borrow_mut().waited_for_room) {
            self.reach("fault: log waits for room");
        }
        if let Err(error) = result {
            self.engine_stopped(&error);
        } else if self.disk.is_off() && self.host.is_some() {
            self.power_is_gone();
        } else if self.host.as_ref().is_some_and(Host::is_settled) {
            self.settled_at = self.now.0;
        }
        if let (Some(trace), disk) = (&mut self.watcher.borrow_mut().trace, self.disk.trace()) {
            use std::fmt::Write as _;
            writeln!(trace, "{} disk {disk:08x}", self.now.0).expect("a string takes everything");
        }
    }

    /// Asks the engine something; nobody answers while it is down.
    pub(super) fn ask(&mut self, command: Command, asked: Asked) -> Option<RequestId> {
        let now = self.now;
        let host = self.host.as_mut()?;
        // The answer may come at once, so it must be known who asks before the engine is asked.
        let request = host.next_request();
        self.asked.insert(request, asked);
        self.with_host(|host, _| host.ask(command, now).map(|_| ()));
        Some(request)
    }

    fn check(&mut self) {
        let Some(host) = &self.host else { return };
        let many = self.known.ids.len() > MANY_MESSAGES;
        if !many || self.steps.is_multiple_of(CHECK_EVERY) {
            host.machine().pond().assert_consistent();
        }
    }

    // --- life and death --------------------------------------------------------------------------------------

    /// What the configuration file says.
    pub(super) fn declared(&self) -> Declared {
        let declared = self.queues.iter().filter(|queue| queue.drawn.declared);
        let queues = declared.map(|queue| (queue.drawn.name.clone(), queue.drawn.settings.clone()));
        let queues = queues.chain(self.tellers_queue());
        Declared { targets: self.plan.targets.clone(), queues: queues.collect() }
    }

    /// Opens an engine on the disk as it is.
    pub(super) fn open(&mut self) -> Result<Host, HostError> {
        self.boot += 1;
        // What records told before may be lost.
        self.watcher.borrow_mut().restarted();
        self.clock.origin = Mono(self.now.0 - self.chance.i64(0..1_000));
        let options = HostOptions {
            declared: self.declared(),
            segment_bytes: self.plan.segment_bytes,
            seed: self.seed ^ (u64::from(self.boot) << 32),
            clock: self.clock,
            surroundings: Box::new(Shared(Rc::clone(&self.conditions))),
            watch: Some(Rc::clone(&self.watcher) as Rc<RefCell<dyn Watch>>),
        };
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        self.conditions.borrow_mut().disk = self.disk.clone();
        Host::open_telling(&storage, options, self.wording().as_ref(), self.now)
    }

    /// The process starts.
    pub(super) fn start(&mut self) {
        if self.host.is_some() {
            return;
        }
        if !self.healing && self.boot > 0 {
            self.change_configuration();
        }
        let at = self.now.0;
        // Only once it is sure that it serves does its start count: what it read of the clock then rules.
        match self.open() {
            Ok(mut host) => {
                host.keep_in_full(self.plan.kept_in_full);
                self.trail.push(Event::Boot { at });
                self.booted_at = at;
                self.host = Some(host);
                self.booted();
            }
            Err(error) => {
                self.watcher.borrow_mut().unheard.clear();
                self.trail.push(Event::FailedStart { at });
                self.start_refused(&error);
            }
        }
    }

    fn booted(&mut self) {
        // By a clock that was set forward, what was before it is long ago.
        let forward = self.known.set_forward;
        self.known.last_call.retain(|_, at| *at > forward);
        self.known.holds.retain(|hold| hold.begun > forward);
        if self.queues.iter().any(|queue| queue.paused_since.is_some()) {
            self.reach("seen: queue paused over a restart");
        }
        self.check_tellers();
        // What came out of the start itself.
        self.with_host(|_, _| Ok(()));
        self.ask(Command::Overview, Asked::Overview);
    }

    /// The process dies; `power`: what was not synced is at the mercy of the disk.
    pub(super) fn die(&mut self) {
        self.host = None;
        self.unsaid.clear();
        self.note_unheard();
        self.trail.push(Event::Death { at: self.now.0, kept: self.settled_at });
        self.calls.clear();
        self.known.held.clear();
        self.known.failures.clear();
        // What was on the disk binds the next process as well.
        let kept = self.settled_at;
        self.known.last_call.retain(|_, at| at.0 <= kept);
        self.known.holds.retain(|hold| hold.begun.0 <= kept);
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.unanswered(asked);
        }
        let downtime = match self.chance.u32(..4) {
            0 => Duration::ZERO,
            1 => Duration::from_secs(self.chance.u64(1..20)),
            _ => Duration::from_millis(self.chance.u64(1..1_000)),
        };
        let downtime = if self.healing { Duration::from_millis(5) } else { downtime };
        self.after(downtime, Task::Restart);
    }

    /// Somebody has heard of a hand-out.
    pub(super) fn heard(&mut self, receipt: Receipt) {
        self.watcher.borrow_mut().unheard.remove(&receipt);
    }

    /// What was handed out in the moment of death, nobody heard of.
    fn note_unheard(&mut self) {
        let unheard = std::mem::take(&mut self.watcher.borrow_mut().unheard);
        // An extension may be written as a hand-out.
        for (receipt, (started, until)) in unheard {
            if self.numbers.knows(&receipt) {
                continue;
            }
            self.reach("seen: hand-out that nobody heard of");
            let (hand_out, lease) = (self.numbers.of(receipt), micros(until.since(started)));
            self.trail.push(Event::Unheard { id: receipt.seq.0, hand_out, lease, at: self.now.0 });
        }
    }

    /// Chaos as long as the plan says.
    pub(super) fn chaos(&mut self) {
        self.start();
        let until = self.now.plus(self.plan.chaos);
        self.run(until, |_| false);
    }

    /// Takes out what the judge reads.
    pub(super) fn finish(self) -> (Marks, Vec<Event>, Option<String>) {
        let watcher = self.watcher.take();
        (watcher.marks, self.trail, watcher.trace)
    }

    pub(super) fn likely(&mut self, likely: u32) -> bool {
        percent(&mut self.chance, likely)
    }

    /// Tells the engine something, if there is one.
    pub(super) fn tell(&mut self, input: Input) {
        self.with_host(|host, now| host.tell(input, now));
    }

    /// A request of the engine itself in healthy times: asked, and waited for.
    pub(super) fn ask_and_wait(&mut self, command: Command) -> Reply {
        self.known.plain = None;
        self.ask(command, Asked::Plain);
        let until = self.now.plus(Duration::from_mins(1));
        self.run(until, |world| world.known.plain.is_some());
        match self.known.plain.take() {
            Some(reply) => reply,
            None => self.fail("nobody answers in healthy times"),
        }
    }
}

pub(super) fn rules_of(settings: &QueueSettings) -> Rules {
    Rules {
        max_attempts: settings.retry.max_attempts,
        max_deliveries: settings.retry.deliveries_max(),
        backoff_min: micros(settings.retry.backoff_min),
        concurrency: settings.concurrency,
        max_messages: settings.max_messages,
        max_bytes: settings.max_bytes,
        max_wait: settings.max_wait.map(micros),
        overflow: match settings.overflow {
            Overflow::Block => trail::Overflow::Waits,
            Overflow::DropOldest => trail::Overflow::DropsOldest,
            _ => trail::Overflow::Refused,
        },
        dead_max: settings.dead_letter.max_messages,
        order: match settings.order {
            Order::Fifo => trail::Order::First,
            Order::Lifo => trail::Order::Last,
            Order::Adaptive => trail::Order::Depends,
        },
        strict: settings.priority == Priority::Strict,
        result_retention: micros(settings.result_retention),
        dead_retention: micros(settings.dead_letter.retention),
        max_keys: settings.max_keys,
        drops_expired: settings.on_expiry == OnExpiry::Drop,
        target: None,
        prefetch: settings.prefetch,
        keeps_groups: settings.order.keeps_groups(),
    }
}
