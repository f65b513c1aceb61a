//! The engine on virtual time: the same machine, the same log, a simulated disk.
//!
//! Owns the order of events between engine, log and disk, and what the clocks show. Must never decide anything that
//! the engine decides.

use millpond_core::command::{Command, Declared, Input, Leased, Reply, RequestId, TargetNumber};
use millpond_core::identity::Seq;
use millpond_core::message::SharedContent;
use millpond_core::time::{Mono, Now, Wall};
use millpond_engine::content::{Stored, Unreadable};
use millpond_engine::engine::{OpenError, Randomness, Wording, restore_telling};
use millpond_engine::log::{Commit, Entry, Log, Outside};
use millpond_engine::machine::{Machine, Output};
use millpond_engine::segments::{Ahead, SegmentJob, Segments};
use millpond_journal::{CommitError, DisposeError, PrepareError, Storage, ToSeal};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// When virtual time begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Wall = Wall(1_767_225_600_000_000);
/// How often a segment that could not be made is tried again; as in production.
const FULL_RETRY: Duration = Duration::from_millis(250);
/// How long after the last group the log says how far it is synced; as in production.
pub const IDLE_AFTER: Duration = Duration::from_millis(40);

/// The moment at which virtual time shows `mono`.
pub fn now_at(mono: Mono) -> Now {
    VirtualClock::default().now(mono)
}

/// What a process is shown of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VirtualClock {
    /// By how much the wall clock is wrong, in microseconds.
    pub wall_shift_micros: i64,
    /// The moment at which the process's monotonic clock showed zero.
    pub origin: Mono,
}

impl VirtualClock {
    /// What both clocks show at `at`.
    pub fn now(self, at: Mono) -> Now {
        let wall = Wall(EPOCH.0 + at.0 + self.wall_shift_micros);
        Now { wall, mono: Mono(at.0 - self.origin.0) }
    }

    /// When the monotonic clock shows `mono`.
    fn when(self, mono: Mono) -> Mono {
        Mono(mono.0.saturating_add(self.origin.0))
    }
}

/// Why a simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The engine cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A segment could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A segment could not be disposed of.
    #[error(transparent)]
    Dispose(#[from] DisposeError),
}

/// Something that came out of the engine.
#[derive(Debug)]
pub enum Outcome {
    /// An answer.
    Reply(RequestId, Reply),
    /// A call to make.
    Dispatch(TargetNumber, Box<Leased>, Stored),
}

/// Something that passed between the engine and its surroundings.
#[derive(Debug)]
pub enum Seen<'a> {
    /// The engine is about to be told this.
    Input(&'a Input),
    /// The engine wants this.
    Output(&'a Output),
    /// The engine is about to be told that the log has written.
    Committed(&'a Commit),
}

/// Sees everything that passes, in order.
pub trait Watch: std::fmt::Debug {
    /// This passes at `at`.
    fn saw(&mut self, at: Mono, seen: &Seen<'_>);
}

/// What surrounds an engine in a simulation.
pub trait Surroundings: std::fmt::Debug {
    /// How long the disk takes for the next group.
    fn commit_latency(&mut self) -> Duration;

    /// How long it takes until what must be copied is read.
    fn read_latency(&mut self) -> Duration {
        Duration::ZERO
    }

    /// How long until the side thread gets to its next piece of work on a segment.
    fn side_latency(&mut self) -> Duration {
        Duration::ZERO
    }

    /// The log cannot go on for want of room. Makes room and returns how long that took, or `None` if there will be
    /// none, which stops the log.
    fn wait_for_room(&mut self) -> Option<Duration> {
        None
    }
}

/// A disk that always takes the same time.
#[derive(Debug, Clone, Copy)]
pub struct Steady(pub Duration);

impl Surroundings for Steady {
    fn commit_latency(&mut self) -> Duration {
        self.0
    }
}

/// What a host is opened with.
#[derive(Debug)]
pub struct HostOptions {
    /// Targets and queues of the configuration.
    pub declared: Declared,
    /// Size of the log's segments.
    pub segment_bytes: u32,
    /// Where everything random comes from.
    pub seed: u64,
    /// What the process is shown of time.
    pub clock: VirtualClock,
    /// What surrounds it.
    pub surroundings: Box<dyn Surroundings>,
    /// Who watches.
    pub watch: Option<Rc<RefCell<dyn Watch>>>,
}

/// What was read for a copy.
type Copied = Vec<(Seq, Result<Option<SharedContent>, Unreadable>)>;

/// An engine whose log takes virtual time.
#[derive(Debug)]
pub struct Host {
    machine: Machine,
    log: Log,
    segments: Segments,
    clock: VirtualClock,
    surroundings: Box<dyn Surroundings>,
    watch: Option<Rc<RefCell<dyn Watch>>>,
    /// What came while the log was busy.
    waiting: Vec<Entry>,
    /// What the log has written, and when the engine hears of it.
    written: VecDeque<(Mono, Commit)>,
    /// What is to be copied, and when it will have been read.
    reading: VecDeque<(Mono, Vec<(Seq, Stored)>)>,
    /// When the log, idle until then, says how far it is synced.
    idle_at: Option<Mono>,
    /// What is to be done with segments beside the log.
    jobs: VecDeque<SegmentJob>,
    /// Segments to be sealed when nothing else is to be done.
    unsealed: VecDeque<ToSeal>,
    /// The segment that was asked for last.
    wanted: Option<u32>,
    /// What the log was told last of what lies ahead of it; `None`: nothing yet of the segment that is wanted.
    told: Option<Ahead>,
    /// There is no room for what shall lie ahead of the log, or it could not be made: it is tried again.
    waits_for_room: bool,
    /// When the side thread does its next piece of work.
    side_at: Option<Mono>,
    requests: u64,
    outcomes: Vec<Outcome>,
}

/// Collects what the log reports, and how long it had to wait before each.
#[derive(Debug)]
struct Reports<'a> {
    commits: Vec<(Duration, Commit)>,
    waited: Duration,
    surroundings: &'a mut dyn Surroundings,
    segments: &'a Segments,
    jobs: &'a mut VecDeque<SegmentJob>,
}

impl Outside for Reports<'_> {
    fn report(&mut self, commit: Commit) {
        self.commits.push((self.waited, commit));
    }

    fn wait_for_room(&mut self) -> bool {
        // As in production, the side thread comes first with what the log has given up.
        let disposal = self.jobs.iter().position(|job| matches!(job, SegmentJob::Dispose(_)));
        if let Some(SegmentJob::Dispose(retired)) = disposal.and_then(|at| self.jobs.remove(at)) {
            // One that fails leaves no way to make room: the next attempt says so.
            return self.segments.dispose(retired).is_ok();
        }
        let waited = self.surroundings.wait_for_room();
        self.waited += waited.unwrap_or_default();
        waited.is_some()
    }

    fn segment_job(&mut self, job: SegmentJob) {
        self.jobs.push_back(job);
    }
}

impl Host {
    /// Opens an engine on `storage` at `at`; everything random comes from `seed`.
    pub fn open(
        storage: &Arc<dyn Storage>,
        declared: Declared,
        segment_bytes: u32,
        seed: u64,
        commit_latency: Duration,
        at: Mono,
    ) -> Result<Self, HostError> {
        let surroundings = Box::new(Steady(commit_latency));
        let clock = VirtualClock::default();
        let options = HostOptions { declared, segment_bytes, seed, clock, surroundings, watch: None };
        Self::open_with(storage, options, at)
    }

    /// Opens an engine on `storage` at `at`.
    pub fn open_with(storage: &Arc<dyn Storage>, options: HostOptions, at: Mono) -> Result<Self, HostError> {
        Self::open_telling(storage, options, None, at)
    }

    /// The same, and ends are told.
    pub fn open_telling(
        storage: &Arc<dyn Storage>,
        options: HostOptions,
        callbacks: Option<&Wording>,
        at: Mono,
    ) -> Result<Self, HostError> {
        let HostOptions { declared, segment_bytes, seed, clock, surroundings, watch } = options;
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut randomness = Randomness { salt: [0; 32], secret: [0; 32], seed: chance.u64(..) };
        chance.fill(&mut randomness.salt);
        chance.fill(&mut randomness.secret);
        let now = clock.now(at);
        let restored = restore_telling(storage, declared, callbacks, segment_bytes, &randomness, now)?;
        let mut host = Self {
            machine: restored.machine,
            log: restored.log,
            segments: restored.segments,
            clock,
            surroundings,
            watch,
            waiting: Vec::new(),
            written: VecDeque::new(),
            reading: VecDeque::new(),
            idle_at: None,
            jobs: restored.segment_jobs.into(),
            unsealed: VecDeque::new(),
            wanted: None,
            told: None,
            waits_for_room: false,
            side_at: None,
            requests: 0,
            outcomes: Vec::new(),
        };
        host.settle(at)?;
        host.call_side(at);
        Ok(host)
    }

    /// The engine's machine, to look at.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Keeps so many of the latest messages in full, as [`Machine::keep_in_full`] does.
    pub fn keep_in_full(&mut self, messages: usize) {
        self.machine.keep_in_full(messages);
    }

    /// What the process is shown of time.
    pub fn clock(&self) -> VirtualClock {
        self.clock
    }

    /// Steps the wall clock; the monotonic one goes on.
    pub fn step_wall(&mut self, by_micros: i64) {
        self.clock.wall_shift_micros += by_micros;
    }

    /// Whether everything that the engine wanted written is on the disk for good.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.written.is_empty() && self.log.is_settled()
    }

    /// When the host must be run again at the latest, if nothing else happens.
    pub fn next_event(&self) -> Option<Mono> {
        let commit = self.written.front().map(|(at, _)| *at);
        let read = self.reading.front().map(|(at, _)| *at);
        let wakeup = self.machine.next_wakeup().map(|mono| self.clock.when(mono));
        [commit, read, wakeup, self.idle_at, self.side_at].into_iter().flatten().min()
    }

    /// Lets the engine know that it is `at`: what is due happens.
    pub fn run(&mut self, at: Mono) -> Result<(), HostError> {
        while self.written.front().is_some_and(|(due, _)| *due <= at) {
            let Some((_, commit)) = self.written.pop_front() else { break };
            self.see(at, &Seen::Committed(&commit));
            self.machine.committed(commit, self.clock.now(at));
            self.settle(at)?;
        }
        while self.reading.front().is_some_and(|(due, _)| *due <= at) {
            let Some((_, job)) = self.reading.pop_front() else { break };
            let contents: Copied = job.into_iter().map(|(seq, stored)| (seq, stored.try_read())).collect();
            self.machine.copied(contents, self.clock.now(at));
            self.settle(at)?;
        }
        if self.idle_at.is_some_and(|due| due <= at) {
            self.idle_at = None;
            self.with_log(at, Log::idle)?;
        }
        if self.side_at.is_some_and(|due| due <= at) {
            self.side_at = None;
            self.work_aside(at)?;
        }
        if self.machine.next_wakeup().is_some_and(|due| self.clock.when(due) <= at) {
            self.tell(Input::Tick, at)?;
        }
        Ok(())
    }

    /// What the next question will be called.
    pub fn next_request(&self) -> RequestId {
        RequestId(self.requests + 1)
    }

    /// Asks something; the answer comes out as [`Outcome::Reply`].
    pub fn ask(&mut self, command: Command, at: Mono) -> Result<RequestId, HostError> {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.tell(Input::Command { request, command }, at)?;
        Ok(request)
    }

    /// Tells the engine something.
    pub fn tell(&mut self, input: Input, at: Mono) -> Result<(), HostError> {
        self.see(at, &Seen::Input(&input));
        self.machine.handle(input, self.clock.now(at));
        self.settle(at)
    }

    /// What came out since the last call, in order.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn see(&self, at: Mono, seen: &Seen<'_>) {
        if let Some(watch) = &self.watch {
            watch.borrow_mut().saw(at, seen);
        }
    }

    /// Carries out what the machine wants.
    fn settle(&mut self, at: Mono) -> Result<(), HostError> {
        loop {
            let outputs: Vec<Output> = self.machine.outputs().collect();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                self.see(at, &Seen::Output(&output));
                match output {
                    Output::Log(entry) => self.waiting.push(entry),
                    Output::Reply(request, answer) => {
                        self.outcomes.push(Outcome::Reply(request, answer.reply));
                    }
                    Output::Dispatch(target, leased, stored) => {
                        self.outcomes.push(Outcome::Dispatch(target, leased, stored));
                    }
                    Output::Seal(what) => self.jobs.push_back(SegmentJob::Seal(what)),
                    Output::ReadToCopy(job) => self.read(job, at),
                }
            }
        }
        self.write(at)
    }

    fn read(&mut self, job: Vec<(Seq, Stored)>, at: Mono) {
        let latency = self.surroundings.read_latency();
        if latency.is_zero() {
            let contents: Copied = job.into_iter().map(|(seq, stored)| (seq, stored.try_read())).collect();
            self.machine.copied(contents, self.clock.now(at));
        } else {
            self.reading.push_back((at.plus(latency), job));
        }
    }

    /// Gives the log what waits, if it is free.
    fn write(&mut self, at: Mono) -> Result<(), HostError> {
        if !self.waiting.is_empty() && self.written.is_empty() {
            let entries = std::mem::take(&mut self.waiting);
            self.with_log(at, |log, outside| log.write(entries, outside))?;
        }
        self.call_side(at);
        Ok(())
    }

    /// Lets the log do something; the engine hears of it when the disk is done.
    fn with_log(
        &mut self,
        at: Mono,
        act: impl FnOnce(&mut Log, &mut dyn Outside) -> Result<(), CommitError>,
    ) -> Result<(), HostError> {
        let latency = self.surroundings.commit_latency();
        let (waited, result) = self.report(at.plus(latency), act);
        result?;
        let idle_at = at.plus(latency + waited + IDLE_AFTER);
        self.idle_at = (!self.log.is_settled()).then_some(idle_at);
        Ok(())
    }

    /// Lets the log say something that the engine hears at `due`, or as much later as the log waits for room.
    fn report<T>(&mut self, due: Mono, act: impl FnOnce(&mut Log, &mut dyn Outside) -> T) -> (Duration, T) {
        let mut reports = Reports {
            commits: Vec::new(),
            waited: Duration::ZERO,
            surroundings: &mut *self.surroundings,
            segments: &self.segments,
            jobs: &mut self.jobs,
        };
        let result = act(&mut self.log, &mut reports);
        let Reports { commits, waited, .. } = reports;
        self.written.extend(commits.into_iter().map(|(waited, commit)| (due.plus(waited), commit)));
        (waited, result)
    }

    /// Wakes the side thread if there is something to do.
    fn call_side(&mut self, at: Mono) {
        if self.jobs.is_empty() && self.unsealed.is_empty() {
            if self.waits_for_room && self.side_at.is_none() {
                self.side_at = Some(at.plus(FULL_RETRY));
            }
        } else if self.side_at.is_none() || self.waits_for_room {
            let due = at.plus(self.surroundings.side_latency());
            self.side_at = Some(self.side_at.map_or(due, |set| set.min(due)));
        }
    }

    /// One piece of the side thread's work, in the order of production: jobs, then indexes; and after every job, or
    /// while there is no room, what shall lie ahead of the log.
    fn work_aside(&mut self, at: Mono) -> Result<(), HostError> {
        match self.jobs.pop_front() {
            Some(SegmentJob::Prepare(number)) => {
                (self.wanted, self.told) = (Some(number), None);
                self.make_ahead(at)?;
            }
            Some(SegmentJob::Dispose(retired)) => {
                self.segments.dispose(retired)?;
                self.make_ahead(at)?;
            }
            Some(SegmentJob::Seal(what)) => self.unsealed.push_back(what),
            None => match self.unsealed.pop_front() {
                Some(what) => {
                    if let Some(sealed) = self.segments.seal(what) {
                        self.machine.sealed(sealed, self.clock.now(at));
                    }
                }
                None => self.make_ahead(at)?,
            },
        }
        self.settle(at)
    }

    fn make_ahead(&mut self, at: Mono) -> Result<(), HostError> {
        let Some(number) = self.wanted else { return Ok(()) };
        let ahead = match self.segments.prepare(number) {
            // The engine refuses new work meanwhile.
            Err(error) if error.is_passing() => {
                Ahead { next: None, spare: false, roomy: false, room_segments: 0 }
            }
            other => other?,
        };
        self.waits_for_room = !ahead.roomy;
        if self.told.as_ref() != Some(&ahead) {
            self.told = Some(ahead.clone());
            self.log.ahead(Some(ahead));
            let due = self.written.back().map_or(at, |(due, _)| *due);
            self.report(due, |log, outside| log.report_idle(outside));
        }
        Ok(())
    }
}
