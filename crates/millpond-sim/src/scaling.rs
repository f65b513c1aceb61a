//! An autoscaler that follows `workers_wanted`, and the workers that it starts and stops, on virtual time.
//!
//! Owns the closed loop: how often the autoscaler looks, how long a worker takes to start, and what comes of it. Must
//! never compute the signal: it asks the engine, like any autoscaler.

use crate::host::{Host, HostError, Outcome};
use crate::promises::Service;
use crate::queued::SimulationError;
use fastrand::Rng;
use millpond_core::command::{
    Command, Declared, Input, LeaseRequest, NewMessage, Reply, RequestId, SettleOutcome, Settlement,
};
use millpond_core::identity::Receipt;
use millpond_core::name::Name;
use millpond_core::settings::{QueueSettings, WAIT_MAX};
use millpond_core::time::{Mono, Wall};
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What a commit takes on the simulated disk.
const COMMIT_LATENCY: Duration = Duration::from_micros(400);
/// Size of the simulated log's segments.
const SEGMENT_BYTES: u32 = 4 << 20;

/// A load, its workers, and who scales them.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Messages per second that always arrive, at random moments (a Poisson process).
    pub normal_per_second: f64,
    /// Messages per second during the spike.
    pub spike_per_second: f64,
    /// When the spike begins.
    pub spike_at: Duration,
    /// How long it lasts.
    pub spike_for: Duration,
    /// How long messages arrive in all.
    pub length: Duration,
    /// How long one takes …
    pub service: Service,
    /// … on average.
    pub service_time: Duration,
    /// The promise.
    pub max_wait: Option<Duration>,
    /// Another wait that the autoscaler asks for, instead of the promised one.
    pub target_wait: Option<Duration>,
    /// The cap of the queue.
    pub ceiling: Option<u32>,
    /// How often the autoscaler looks.
    pub every: Duration,
    /// How long a worker takes from its order to its first message.
    pub start_up: Duration,
    /// The autoscaler takes workers away only if fewer have been wanted for so long (the HPA's stabilization window).
    pub stabilization: Duration,
}

impl Scenario {
    /// The large example at a tenth of its rate and ten times the work: a cap of 40 does 50 messages a second, of which
    /// 10 come normally and 200 for ten minutes; all are to begin within 45 minutes. KEDA looks every 15 s, and a
    /// worker takes a minute to start.
    pub fn enrollment() -> Self {
        Self {
            normal_per_second: 10.0,
            spike_per_second: 200.0,
            spike_at: Duration::from_mins(5),
            spike_for: Duration::from_mins(10),
            length: Duration::from_mins(75),
            service: Service::Exponential,
            service_time: Duration::from_millis(800),
            max_wait: Some(Duration::from_mins(45)),
            target_wait: None,
            ceiling: Some(40),
            every: Duration::from_secs(15),
            start_up: Duration::from_mins(1),
            stabilization: Duration::ZERO,
        }
    }

    fn next_arrival(&self, last: Duration, chance: &mut Rng) -> Duration {
        let in_spike = (self.spike_at..self.spike_at + self.spike_for).contains(&last);
        let rate = if in_spike { self.spike_per_second } else { self.normal_per_second };
        let gap = Duration::from_secs_f64(-(1.0 - chance.f64()).ln() / rate);
        // At the edges of the spike the rate changes; that one gap is drawn anew is all that is lost.
        let next = last + gap;
        if last < self.spike_at && next >= self.spike_at { self.spike_at } else { next }
    }
}

/// What the autoscaler saw and did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// When.
    pub at: Duration,
    /// Workers wanted.
    pub wanted: u64,
    /// Workers there are, those that are starting included.
    pub workers: u64,
    /// Messages that waited.
    pub ready: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Every look of the autoscaler.
    pub looks: Vec<Look>,
    /// The longest time from acceptance to the first hand-out.
    pub longest_wait: Duration,
    /// Messages accepted.
    pub accepted: u64,
    /// Messages refused.
    pub refused: u64,
    /// Messages done.
    pub done: u64,
    /// Most messages at work at once.
    pub at_work_max: u64,
    /// Time for which workers were paid.
    pub worker_seconds: f64,
}

impl Run {
    /// How often the number of workers turned round by at least `least`: up and down again is one turn.
    pub fn turns(&self, least: u64) -> usize {
        let (mut turns, mut low, mut high, mut rising) = (0, u64::MAX, 0, None);
        for look in &self.looks {
            low = low.min(look.workers);
            high = high.max(look.workers);
            if rising != Some(true) && look.workers >= low.saturating_add(least) {
                turns += usize::from(rising.is_some());
                (rising, high) = (Some(true), look.workers);
            } else if rising != Some(false) && look.workers + least <= high {
                turns += usize::from(rising.is_some());
                (rising, low) = (Some(false), look.workers);
            }
        }
        turns
    }

    /// The numbers wanted from a moment on, least and most.
    pub fn wanted_between(&self, from: Duration, until: Duration) -> (u64, u64) {
        let looks = self.looks.iter().filter(|look| (from..until).contains(&look.at));
        looks.fold((u64::MAX, 0), |(least, most), look| (least.min(look.wanted), most.max(look.wanted)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Started,
    Done(Receipt),
}

struct Loop<'a> {
    scenario: &'a Scenario,
    queue: Name,
    host: Host,
    chance: Rng,
    now: Mono,
    events: BinaryHeap<Reverse<(Mono, u64, Event)>>,
    numbers: u64,
    looks_at: Mono,
    look: Option<RequestId>,
    /// Workers that wait for a message.
    waiting: VecDeque<RequestId>,
    starting: u64,
    busy: u64,
    /// Busy or starting ones that leave as soon as they can.
    leaving: u64,
    asked: BTreeMap<RequestId, Mono>,
    lately_wanted: VecDeque<(Mono, u64)>,
    run: Run,
}

/// Runs the loop. The same seed gives the same run.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Run, SimulationError> {
    let mut state = Loop::new(scenario, seed)?;
    let mut arrival = scenario.next_arrival(Duration::ZERO, &mut state.chance);
    loop {
        let arrives = (arrival < scenario.length).then(|| Mono(0).plus(arrival));
        let happens = state.events.peek().map(|Reverse((at, ..))| *at);
        let soonest = [arrives, happens, state.host.next_event(), Some(state.looks_at)];
        let Some(at) = soonest.into_iter().flatten().min() else { break };
        if arrives.is_none() && state.run.done >= state.run.accepted && state.asked.is_empty() {
            break;
        }
        state.pass(at.max(state.now));
        state.host.run(state.now)?;
        state.collect()?;
        if arrives == Some(at) {
            let command =
                Command::Enqueue { queue: state.queue.clone(), messages: vec![NewMessage::default()] };
            let request = state.host.ask(command, state.now)?;
            state.asked.insert(request, state.now);
            arrival = scenario.next_arrival(arrival, &mut state.chance);
        } else if happens == Some(at) {
            state.happens()?;
        } else if state.looks_at <= at {
            state.looks_at = at.plus(scenario.every);
            state.look = Some(state.host.ask(Command::Queue(state.queue.clone()), state.now)?);
        }
        state.collect()?;
    }
    Ok(state.run)
}

impl<'a> Loop<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, SimulationError> {
        let queue = Name::new("work")?;
        let settings = QueueSettings {
            max_wait: scenario.max_wait,
            concurrency: scenario.ceiling,
            expected_service_time: Some(scenario.service_time),
            prefetch: 1,
            ..QueueSettings::default()
        };
        let declared = Declared { targets: Vec::new(), queues: vec![(queue.clone(), settings)] };
        let storage: Arc<dyn Storage> = Arc::new(SimulatedDisk::new());
        let host = Host::open(&storage, declared, SEGMENT_BYTES, seed, COMMIT_LATENCY, Mono(0))?;
        Ok(Self {
            scenario,
            queue,
            host,
            chance: Rng::with_seed(seed),
            now: Mono(0),
            events: BinaryHeap::new(),
            numbers: 0,
            looks_at: Mono(0),
            look: None,
            waiting: VecDeque::new(),
            starting: 0,
            busy: 0,
            leaving: 0,
            asked: BTreeMap::new(),
            lately_wanted: VecDeque::new(),
            run: Run::default(),
        })
    }

    fn workers(&self) -> u64 {
        self.starting + self.waiting.len() as u64 + self.busy - self.leaving
    }

    fn pass(&mut self, at: Mono) {
        self.run.worker_seconds += at.since(self.now).as_secs_f64() * self.workers() as f64;
        self.now = at;
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((self.now.plus(after), self.numbers, event)));
    }

    fn happens(&mut self) -> Result<(), HostError> {
        let Some(Reverse((_, _, event))) = self.events.pop() else { return Ok(()) };
        match event {
            Event::Started => self.starting -= 1,
            Event::Done(receipt) => {
                let outcome = SettleOutcome::Complete { result: None };
                let settled = Command::Settle(vec![Settlement { receipt, outcome }]);
                self.host.ask(settled, self.now)?;
                self.busy -= 1;
                self.run.done += 1;
            }
        }
        if self.leaving > 0 {
            self.leaving -= 1;
            return Ok(());
        }
        self.wait()
    }

    /// A worker asks for its next message.
    fn wait(&mut self) -> Result<(), HostError> {
        let wish = LeaseRequest {
            queue: self.queue.clone(),
            max: 1,
            lease: Some(Duration::from_mins(10)),
            wait: WAIT_MAX,
            consumer: None,
        };
        let request = self.host.ask(Command::Lease(wish), self.now)?;
        self.waiting.push_back(request);
        Ok(())
    }

    fn collect(&mut self) -> Result<(), HostError> {
        for outcome in self.host.outcomes() {
            match outcome {
                Outcome::Reply(request, Reply::Enqueued(result)) => {
                    self.asked.remove(&request);
                    let is_accepted = result.is_ok_and(|answers| answers.iter().all(Result::is_ok));
                    self.run.accepted += u64::from(is_accepted);
                    self.run.refused += u64::from(!is_accepted);
                }
                Outcome::Reply(request, Reply::Leased(Ok(mut leased))) => {
                    self.waiting.retain(|waits| *waits != request);
                    match leased.pop() {
                        Some(one) => self.begin(one.receipt, one.message.accepted),
                        None => self.wait()?,
                    }
                }
                Outcome::Reply(request, Reply::Queue(Ok(view))) if self.look == Some(request) => {
                    let (stats, wait) = (&view.stats, self.scenario.target_wait);
                    let asked = wait.map(|wait| stats.demand.workers_within(Some(wait)));
                    let (wanted, ready) = (asked.unwrap_or(stats.workers_wanted), stats.ready);
                    self.scale(wanted)?;
                    let at = self.now.since(Mono(0));
                    self.run.looks.push(Look { at, wanted, workers: self.workers(), ready });
                }
                Outcome::Reply(..) | Outcome::Dispatch(..) => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, receipt: Receipt, accepted: Wall) {
        self.busy += 1;
        self.run.at_work_max = self.run.at_work_max.max(self.busy);
        let waited = self.host.clock().now(self.now).wall.since(accepted);
        self.run.longest_wait = self.run.longest_wait.max(waited);
        let took = self.scenario.service.sample(self.scenario.service_time, &mut self.chance);
        self.later(took, Event::Done(receipt));
    }

    /// What an autoscaler does: upwards at once, downwards to the most that was wanted lately.
    fn scale(&mut self, wanted: u64) -> Result<(), HostError> {
        self.lately_wanted.push_back((self.now, wanted));
        while self
            .lately_wanted
            .front()
            .is_some_and(|(at, _)| self.now.since(*at) > self.scenario.stabilization)
        {
            self.lately_wanted.pop_front();
        }
        let most = self.lately_wanted.iter().map(|(_, wanted)| *wanted).fold(wanted, u64::max);
        while self.workers() < wanted {
            if self.leaving > 0 {
                self.leaving -= 1;
            } else {
                self.starting += 1;
                self.later(self.scenario.start_up, Event::Started);
            }
        }
        while self.workers() > most {
            // Whoever waits can leave at once; the others when they have done what they are at.
            match self.waiting.pop_back() {
                Some(request) => self.host.tell(Input::Abandon(request), self.now)?,
                None => self.leaving += 1,
            }
        }
        Ok(())
    }
}
