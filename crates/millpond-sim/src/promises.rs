//! Promises compared with what happened, over workloads on virtual time.
//!
//! Owns the workloads and the comparison. Must never look inside the engine: it compares what a caller was told with
//! when the backend got the work.

mod steady;

pub use steady::{Calibrated, Case, HEADING, calibration_rows, cases};

use crate::host::{Host, HostError, Outcome};
use crate::queued::SimulationError;
use crate::text;
use fastrand::Rng;
use millpond_core::command::{CallOutcome, Command, Declared, Input, NewMessage, Reply, RequestId};
use millpond_core::forecast::{Correction, Promise};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::Failure;
use millpond_core::name::Name;
use millpond_core::settings::{BreakerSettings, QueueSettings, TargetSettings};
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// What a commit takes on the simulated disk.
const COMMIT_LATENCY: Duration = Duration::from_micros(400);
/// Size of the simulated log's segments.
const SEGMENT_BYTES: u32 = 4 << 20;
/// How often the correction is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Promises of less are not compared: everybody can keep them.
const PROMISE_MIN: Duration = Duration::from_secs(1);
/// Time-out of the calls.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long one piece of work takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Service {
    /// Always the same.
    Constant,
    /// Exponential: as variable as its mean is long.
    Exponential,
    /// Log-normal with a standard deviation of twice the mean: mostly short, now and then very long.
    LogNormal,
}

impl Service {
    /// One service time with this mean.
    pub fn sample(self, mean: Duration, chance: &mut Rng) -> Duration {
        let uniform = 1.0 - chance.f64();
        let factor = match self {
            Self::Constant => 1.0,
            Self::Exponential => -uniform.ln(),
            Self::LogNormal => {
                // Box and Muller, 1958. With a standard deviation of v means, σ² = ln(1 + v²) and μ = -σ²/2.
                let normal = (-2.0 * uniform.ln()).sqrt() * (std::f64::consts::TAU * chance.f64()).cos();
                let variance = 5.0_f64.ln();
                (variance.sqrt() * normal - variance / 2.0).exp()
            }
        };
        mean.mul_f64(factor)
    }
}

/// A load, a backend, and what goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What it is called in the table.
    pub name: &'static str,
    /// Calls per second that always arrive, at random moments (a Poisson process).
    pub normal_per_second: f64,
    /// Calls per second during a burst.
    pub burst_per_second: f64,
    /// How long a burst lasts.
    pub burst_for: Duration,
    /// From the start of one burst to the next.
    pub burst_every: Duration,
    /// How long work takes.
    pub service: Service,
    /// … on average.
    pub service_time: Duration,
    /// … on average, from the middle of the run on.
    pub service_time_later: Duration,
    /// What the queue is told to expect.
    pub expected_service_time: Duration,
    /// How many calls the backend works on at once.
    pub slots: u32,
    /// The share of calls that fail and are repeated.
    pub failing: f64,
    /// How long calls arrive.
    pub length: Duration,
}

impl Workload {
    /// The small example as a day's work: 3/s into 5/s, and every two minutes 15/s for four seconds.
    fn small(name: &'static str, service: Service) -> Self {
        let service_time = Duration::from_millis(200);
        Self {
            name,
            normal_per_second: 3.0,
            burst_per_second: 15.0,
            burst_for: Duration::from_secs(4),
            burst_every: Duration::from_mins(2),
            service,
            service_time,
            service_time_later: service_time,
            expected_service_time: service_time,
            slots: 1,
            failing: 0.0,
            length: Duration::from_hours(1),
        }
    }

    /// All of the table, in its order.
    pub fn all() -> Vec<Self> {
        let bursts = Self {
            normal_per_second: 200.0,
            burst_per_second: 1_500.0,
            burst_for: Duration::from_secs(10),
            service_time: Duration::from_millis(80),
            service_time_later: Duration::from_millis(80),
            expected_service_time: Duration::from_millis(80),
            slots: 40,
            length: Duration::from_mins(10),
            ..Self::small("bursts onto 40 slots", Service::Exponential)
        };
        let halved = Self {
            normal_per_second: 1.5,
            service_time_later: Duration::from_millis(400),
            ..Self::small("capacity halved in the middle", Service::Exponential)
        };
        let failing = Self {
            normal_per_second: 2.0,
            failing: 0.3,
            ..Self::small("three in ten fail", Service::Exponential)
        };
        // Ten slots of two seconds each do five messages a second as well, but the first result takes two seconds.
        let cold = |name, expected_service_time| Self {
            service_time: Duration::from_secs(2),
            service_time_later: Duration::from_secs(2),
            expected_service_time,
            slots: 10,
            ..Self::small(name, Service::Exponential)
        };
        vec![
            Self::small("constant work", Service::Constant),
            Self::small("exponential work", Service::Exponential),
            Self::small("log-normal work", Service::LogNormal),
            bursts,
            halved,
            cold("cold start, a quarter expected", Duration::from_millis(500)),
            cold("cold start, four times expected", Duration::from_secs(8)),
            failing,
        ]
    }

    fn rate_at(&self, at: Duration) -> f64 {
        let into = at.as_nanos() % self.burst_every.as_nanos();
        // A burst begins its period, so that the first one meets a queue that has measured nothing yet.
        if into < self.burst_for.as_nanos() { self.burst_per_second } else { self.normal_per_second }
    }

    /// When the next call arrives after one at `at`: thinning (Lewis and Shedler, 1979).
    fn next_arrival(&self, mut at: Duration, chance: &mut Rng) -> Duration {
        let most = self.burst_per_second.max(self.normal_per_second);
        loop {
            at += Duration::from_secs_f64(-(1.0 - chance.f64()).ln() / most);
            if chance.f64() * most < self.rate_at(at) {
                return at;
            }
        }
    }

    fn declared(&self) -> Result<Declared, SimulationError> {
        let (queue, target) = (Name::new("work")?, Name::new("backend")?);
        let settings = QueueSettings {
            target: Some(target.clone()),
            expected_service_time: Some(self.expected_service_time),
            ..QueueSettings::default()
        };
        let backend = TargetSettings {
            concurrency: self.slots,
            rate: None,
            timeout: TIMEOUT,
            hold_after_timeout: None,
            adaptive: None,
            breaker: Some(BreakerSettings::default()),
            ramp: None,
        };
        Ok(Declared { targets: vec![(target, backend)], queues: vec![(queue, settings)] })
    }
}

/// One promise and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// When it was given.
    pub given: Duration,
    /// What was promised.
    pub promise: Promise,
    /// What was in force when it was given.
    pub correction: Correction,
    /// How long it took until the start.
    pub waited: Duration,
}

/// What a share of promises amounts to. Only promises of at least a second count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// How many.
    pub promises: usize,
    /// Mean of what was promised (p50), in seconds.
    pub promised_seconds: f64,
    /// Mean of the real waits, in seconds.
    pub waited_seconds: f64,
    /// Median of the distance between the two, in parts of the promise.
    pub error_ratio: f64,
    /// The share that started by the promised p50.
    pub by_p50: f64,
    /// The share that started by the promised p90.
    pub by_p90: f64,
    /// The same, had nothing been corrected.
    pub by_p90_uncorrected: f64,
}

/// Judges the promises given in `from..until`; `None` if there are none.
pub fn judge(kept: &[Kept], from: Duration, until: Duration) -> Option<Judgement> {
    let counted: Vec<&Kept> = kept
        .iter()
        .filter(|one| one.promise.p50 >= PROMISE_MIN && (from..until).contains(&one.given))
        .collect();
    let promises = counted.len();
    if promises == 0 {
        return None;
    }
    let share =
        |is: &dyn Fn(&Kept) -> bool| counted.iter().filter(|one| is(one)).count() as f64 / promises as f64;
    let mean = |of: &dyn Fn(&Kept) -> Duration| {
        counted.iter().map(|one| of(one).as_secs_f64()).sum::<f64>() / promises as f64
    };
    let mut errors: Vec<f64> = counted
        .iter()
        .map(|one| one.waited.abs_diff(one.promise.p50).as_secs_f64() / one.promise.p50.as_secs_f64())
        .collect();
    errors.sort_unstable_by(f64::total_cmp);
    Some(Judgement {
        promises,
        promised_seconds: mean(&|one| one.promise.p50),
        waited_seconds: mean(&|one| one.waited),
        error_ratio: errors[promises / 2],
        by_p50: share(&|one| one.waited <= one.promise.p50),
        by_p90: share(&|one| one.waited <= one.promise.p90),
        by_p90_uncorrected: share(&|one| {
            one.waited.as_secs_f64() <= one.promise.p90.as_secs_f64() / one.correction.p90
        }),
    })
}

/// Runs a workload and returns every promise that could be compared. The same seed gives the same run.
pub fn compare(workload: &Workload, seed: u64) -> Result<Vec<Kept>, SimulationError> {
    let mut run = Run::new(workload, seed)?;
    let mut arrival = workload.next_arrival(Duration::ZERO, &mut run.chance);
    loop {
        let arrives = (arrival < workload.length).then(|| Mono(0).plus(arrival));
        let ends = run.calls.peek().map(|Reverse((at, ..))| *at);
        let host = run.host.next_event();
        let work = [arrives, ends].into_iter().flatten().min();
        // Once nothing is under way, what the engine keeps for later interests nobody.
        if work.is_none() && run.open.is_empty() {
            break;
        }
        let Some(at) = work.into_iter().chain(host).min() else { break };
        run.now = run.now.max(at);
        run.host.run(run.now)?;
        run.collect();
        if arrives == Some(at) {
            run.arrive()?;
            arrival = workload.next_arrival(arrival, &mut run.chance);
        } else if ends == Some(at) {
            run.end_call()?;
        }
        run.collect();
    }
    Ok(run.kept)
}

struct Run<'workload> {
    workload: &'workload Workload,
    queue: Name,
    host: Host,
    chance: Rng,
    now: Mono,
    calls: BinaryHeap<Reverse<(Mono, Seq, Receipt)>>,
    asked: BTreeMap<RequestId, Mono>,
    look: Option<(Mono, RequestId)>,
    correction: Correction,
    open: BTreeMap<Seq, (Mono, Option<Promise>, Correction)>,
    kept: Vec<Kept>,
}

impl<'workload> Run<'workload> {
    fn new(workload: &'workload Workload, seed: u64) -> Result<Self, SimulationError> {
        let storage: Arc<dyn Storage> = Arc::new(SimulatedDisk::new());
        let declared = workload.declared()?;
        Ok(Self {
            workload,
            queue: Name::new("work")?,
            host: Host::open(&storage, declared, SEGMENT_BYTES, seed, COMMIT_LATENCY, Mono(0))?,
            chance: Rng::with_seed(seed),
            now: Mono(0),
            calls: BinaryHeap::new(),
            asked: BTreeMap::new(),
            look: None,
            correction: Correction::default(),
            open: BTreeMap::new(),
            kept: Vec::new(),
        })
    }

    fn arrive(&mut self) -> Result<(), HostError> {
        if self.look.is_none_or(|(at, _)| self.now.since(at) >= LOOK_EVERY) {
            let request = self.host.ask(Command::Queue(self.queue.clone()), self.now)?;
            self.look = Some((self.now, request));
            self.collect();
        }
        let command = Command::Enqueue { queue: self.queue.clone(), messages: vec![NewMessage::default()] };
        let request = self.host.ask(command, self.now)?;
        self.asked.insert(request, self.now);
        Ok(())
    }

    fn end_call(&mut self) -> Result<(), HostError> {
        let Some(Reverse((_, _, receipt))) = self.calls.pop() else { return Ok(()) };
        let outcome = if self.chance.f64() < self.workload.failing {
            CallOutcome::Failed {
                failure: Failure::new("status", "answered 500", Some(500)),
                timed_out: false,
            }
        } else {
            CallOutcome::Succeeded { result: None }
        };
        self.host.tell(Input::CallEnded { receipt, outcome }, self.now)
    }

    /// Takes what came out of the engine.
    fn collect(&mut self) {
        for outcome in self.host.outcomes() {
            match outcome {
                Outcome::Reply(request, Reply::Enqueued(Ok(answers))) => {
                    let Some(at) = self.asked.remove(&request) else { continue };
                    for accepted in answers.into_iter().flatten() {
                        self.open.insert(accepted.seq, (at, accepted.promise, self.correction));
                    }
                }
                Outcome::Reply(request, Reply::Queue(Ok(view))) => {
                    if self.look.is_some_and(|(_, look)| look == request) {
                        self.correction = view.stats.promise_correction;
                    }
                }
                Outcome::Reply(..) => {}
                Outcome::Dispatch(_, leased, _) => self.start_call(leased.receipt),
            }
        }
    }

    fn start_call(&mut self, receipt: Receipt) {
        let half = Mono(0).plus(self.workload.length / 2);
        let mean =
            if self.now < half { self.workload.service_time } else { self.workload.service_time_later };
        let took = self.workload.service.sample(mean, &mut self.chance).min(TIMEOUT);
        self.calls.push(Reverse((self.now.plus(took), receipt.seq, receipt)));
        if let Some((given, Some(promise), correction)) = self.open.remove(&receipt.seq) {
            let waited = self.now.since(given);
            self.kept.push(Kept { given: given.since(Mono(0)), promise, correction, waited });
        }
    }
}

/// A row of the table: what it is called, and between which moments its promises were given.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The workload, and which part of it.
    pub name: String,
    /// The first moment of its promises.
    pub from: Duration,
    /// The first moment after them.
    pub until: Duration,
}

/// The rows that a workload has in the table: one, or what was before a change, right after it and later.
pub fn rows(workload: &Workload) -> Vec<Row> {
    let row = |part: &str, from, until| Row { name: format!("{}{part}", workload.name), from, until };
    let (half, end) = (workload.length / 2, workload.length);
    let (two, ten) = (Duration::from_mins(2), Duration::from_mins(10));
    if workload.service_time_later != workload.service_time {
        vec![
            row(": before", Duration::ZERO, half),
            row(": the next ten minutes", half, half + ten),
            row(": later", half + ten, end),
        ]
    } else if workload.expected_service_time != workload.service_time {
        vec![row(": the first two minutes", Duration::ZERO, two), row(": later", two, end)]
    } else {
        vec![row("", Duration::ZERO, end)]
    }
}

/// The whole comparison as a table in Markdown.
pub fn table(seed: u64) -> Result<String, SimulationError> {
    let mut table = String::from(
        "| workload | promises | promised | waited | off by | by p50 | by p90 | by p90 if uncorrected |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    for workload in Workload::all() {
        let kept = compare(&workload, seed)?;
        for row in rows(&workload) {
            let Some(judged) = judge(&kept, row.from, row.until) else { continue };
            let cells = [
                row.name,
                text::count(judged.promises as u64),
                format!("{:.1} s", judged.promised_seconds),
                format!("{:.1} s", judged.waited_seconds),
                percent(judged.error_ratio),
                percent(judged.by_p50),
                percent(judged.by_p90),
                percent(judged.by_p90_uncorrected),
            ];
            table.push_str("| ");
            table.push_str(&cells.join(" | "));
            table.push_str(" |\n");
        }
    }
    Ok(table)
}
