//! A dispatcher with a standing backlog in front of a backend of limited capacity, on virtual time: limits compared.
//!
//! Owns the backend, the measuring and the table. Must never know how a limit decides: it asks for the places, and says
//! how calls end.

mod rivals;

use crate::promises::Service;
use crate::text;
use fastrand::Rng;
use millpond_core::limit::{Ended, Ending, Limiter};
use millpond_core::settings::AdaptiveSettings;
use millpond_core::time::Mono;
use rivals::{Aimd, Controller, Fixed, Gradient2, PerCall, PerWindow, Vegas};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// A backend that refuses does so in this time.
const REFUSES_IN: Duration = Duration::from_millis(1);
/// Every call is given up after this: it counts as timed out, and occupies the backend to its end.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is measured at a moment is measured over the time of so long before, …
const MEASURED_OVER: Duration = Duration::from_mins(1);
/// … and of so many services.
const MEASURED_SERVICES: u32 = 500;

/// A limit that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `adaptive = true`.
    Adaptive,
    /// `adaptive = true` with a `latency_objective`.
    Objective(Duration),
    /// A fixed cap.
    Fixed(u32),
    /// Additive increase and multiplicative decrease, per call, with a time-out of 5 s.
    Aimd,
    /// Vegas per call.
    Vegas,
    /// Vegas on the means of seconds.
    WindowedVegas,
    /// Gradient2, with a least limit of 1.
    Gradient2,
}

impl Algorithm {
    /// Those of the table, in its order.
    pub const ALL: [Self; 7] = [
        Self::Adaptive,
        Self::Objective(Duration::from_millis(150)),
        Self::Fixed(40),
        Self::Aimd,
        Self::Vegas,
        Self::WindowedVegas,
        Self::Gradient2,
    ];

    /// Its name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Adaptive => "`adaptive`".to_owned(),
            Self::Objective(objective) => {
                format!("`adaptive`, `latency_objective = \"{}ms\"`", objective.as_millis())
            }
            Self::Fixed(cap) => format!("fixed at {cap}"),
            Self::Aimd => "AIMD per call, 5 s".to_owned(),
            Self::Vegas => "Vegas per call".to_owned(),
            Self::WindowedVegas => "Vegas, 1 s means".to_owned(),
            Self::Gradient2 => "Gradient2".to_owned(),
        }
    }

    fn controller(self, cap: u32, seed: u64) -> Box<dyn Controller> {
        let adaptive =
            |latency_objective| Box::new(Limiter::new(cap, TIMEOUT, AdaptiveSettings { latency_objective }));
        match self {
            Self::Adaptive => adaptive(None),
            Self::Objective(objective) => adaptive(Some(objective)),
            Self::Fixed(limit) => Box::new(Fixed(limit)),
            Self::Aimd => Box::new(Aimd::new()),
            Self::Vegas => Box::new(PerCall(Vegas::new(seed))),
            Self::WindowedVegas => Box::new(PerWindow::new(Vegas::new(seed))),
            Self::Gradient2 => Box::new(PerWindow::new(Gradient2::new())),
        }
    }
}

/// A backend, and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// How many calls it works on at once.
    pub servers: u32,
    /// How long work takes …
    pub service: Service,
    /// … on average.
    pub service_time: Duration,
    /// How long a call is on its way there and back.
    pub network: Duration,
    /// How many calls wait at the backend; more are refused. `None`: as many as come.
    pub queue: Option<u32>,
    /// The hard cap.
    pub cap: u32,
    /// When it has half of the servers.
    pub halved_at: Duration,
    /// When it has all of them again.
    pub doubled_at: Duration,
    /// When the run is over.
    pub ends_at: Duration,
}

impl Scenario {
    /// 16 servers, work of 50 ms that varies exponentially, an unlimited queue; halved after 1,200 s, doubled back
    /// after 1,800 s.
    pub fn usual() -> Self {
        Self {
            name: "16 servers, exponential 50 ms",
            servers: 16,
            service: Service::Exponential,
            service_time: Duration::from_millis(50),
            network: Duration::ZERO,
            queue: None,
            cap: 1000,
            halved_at: Duration::from_mins(20),
            doubled_at: Duration::from_mins(30),
            ends_at: Duration::from_mins(35),
        }
    }

    /// The same, refusing in a millisecond what finds 16 calls waiting. The times are short, as a limit that ignores
    /// refusals makes a quarter of a million calls a second.
    pub fn refusing() -> Self {
        Self {
            name: "… refuses in 1 ms beyond a queue of 16",
            queue: Some(16),
            halved_at: Duration::from_mins(2),
            doubled_at: Duration::from_mins(4),
            ends_at: Duration::from_mins(5),
            ..Self::usual()
        }
    }

    /// Other backends, for `adaptive` alone.
    pub fn others() -> Vec<Self> {
        let usual = Self::usual;
        let ms = Duration::from_millis;
        vec![
            usual(),
            Self { name: "… log-normal 50 ms", service: Service::LogNormal, ..usual() },
            Self { name: "… always 50 ms", service: Service::Constant, ..usual() },
            Self { name: "… 20 ms of network beside", network: ms(20), ..usual() },
            Self { name: "… a cap of 12", cap: 12, ..usual() },
            Self {
                name: "… exponential 2 s, for 3.5 h",
                service_time: ms(2000),
                halved_at: Duration::from_hours(2),
                doubled_at: Duration::from_hours(3),
                ends_at: Duration::from_mins(210),
                ..usual()
            },
            Self { name: "2 servers", servers: 2, ..usual() },
            Self {
                name: "200 servers, for 12 min",
                servers: 200,
                halved_at: Duration::from_mins(5),
                doubled_at: Duration::from_mins(10),
                ends_at: Duration::from_mins(12),
                ..usual()
            },
            Self::refusing(),
            Self { name: "… refuses in 1 ms without a queue", queue: Some(0), ..Self::refusing() },
        ]
    }

    /// What it can do with so many servers under the cap, in calls per second.
    fn capacity(&self, servers: u32) -> f64 {
        f64::from(servers.min(self.cap)) / self.service_time.as_secs_f64()
    }

    fn servers_at(&self, at: Duration) -> u32 {
        if (self.halved_at..self.doubled_at).contains(&at) { self.servers / 2 } else { self.servers }
    }

    /// The median time of a call that waits nowhere.
    pub fn unloaded(&self) -> Duration {
        let mut chance = Rng::with_seed(1);
        let mut times: Vec<Duration> =
            (0..100_001).map(|_| self.service.sample(self.service_time, &mut chance)).collect();
        *times.select_nth_unstable(50_000).1 + self.network
    }

    /// How long a stretch is within which convergence is seen: twenty services.
    fn stretch(&self) -> Duration {
        (self.service_time * 20).max(Duration::from_secs(1))
    }
}

/// What was measured over a minute.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// Calls done, as a share of what the backend can do.
    pub of_capacity: f64,
    /// Median time of those done.
    pub median: Duration,
    /// … in unloaded ones.
    pub times_unloaded: f64,
    /// The mean of the limit.
    pub limit: f64,
    /// Calls refused, as a share of all.
    pub refused: f64,
}

/// A run's result.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Run {
    /// A quarter of the way to the halving: after 300 s of the usual 1,200.
    pub early: Measured,
    /// Just before the halving.
    pub before: Measured,
    /// Just before the doubling.
    pub halved: Measured,
    /// At the end.
    pub doubled: Measured,
    /// Calls refused of all before the halving, as a share.
    pub refused_before: f64,
    /// … and between halving and doubling.
    pub refused_halved: f64,
    /// How long it took from the start until 90 % of the capacity were reached at no more than 2.5 unloaded
    /// medians; `None`: never.
    pub started_in: Option<Duration>,
    /// … from the halving.
    pub halved_in: Option<Duration>,
    /// … from the doubling.
    pub doubled_in: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(Call),
    Worked(Call),
    /// Whether it was refused.
    Answered(Call, bool),
}

/// When a call began: nothing else is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call(Mono);

struct Bench<'a> {
    scenario: &'a Scenario,
    chance: Rng,
    events: BinaryHeap<Reverse<(Mono, u64, Event)>>,
    numbers: u64,
    busy: u32,
    queue: VecDeque<Call>,
    inflight: u32,
}

impl Bench<'_> {
    fn at(&mut self, at: Mono, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((at, self.numbers, event)));
    }

    fn servers(&self, now: Mono) -> u32 {
        self.scenario.servers_at(now.since(Mono(0)))
    }

    fn begin(&mut self, call: Call, now: Mono) {
        self.busy += 1;
        let took = self.scenario.service.sample(self.scenario.service_time, &mut self.chance);
        self.at(now.plus(took), Event::Worked(call));
    }

    fn fill(&mut self, now: Mono) {
        while self.busy < self.servers(now)
            && let Some(call) = self.queue.pop_front()
        {
            self.begin(call, now);
        }
    }

    fn arrives(&mut self, call: Call, now: Mono) {
        let is_full = self.scenario.queue.is_some_and(|most| self.queue.len() >= most as usize);
        if self.busy < self.servers(now) {
            self.begin(call, now);
        } else if is_full {
            self.at(now.plus(REFUSES_IN + self.scenario.network / 2), Event::Answered(call, true));
        } else {
            self.queue.push_back(call);
        }
    }

    fn worked(&mut self, call: Call, now: Mono) {
        self.busy -= 1;
        self.at(now.plus(self.scenario.network / 2), Event::Answered(call, false));
        self.fill(now);
    }
}

/// What happened in one second.
#[derive(Debug, Clone, Default)]
struct Second {
    times_micros: Vec<u32>,
    refused: u64,
    limit_seconds: f64,
}

/// A run, second by second.
struct Record<'a> {
    scenario: &'a Scenario,
    seconds: Vec<Second>,
}

impl Record<'_> {
    fn second(&mut self, at: Mono) -> &mut Second {
        let index = usize::try_from(at.since(Mono(0)).as_secs()).unwrap_or(usize::MAX);
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, Second::default);
        }
        &mut self.seconds[index]
    }

    fn limit(&mut self, from: Mono, until: Mono, places: u32) {
        // Split at whole seconds only roughly: an interval counts where it begins.
        self.second(from).limit_seconds += until.since(from).as_secs_f64() * f64::from(places);
    }

    fn between(&self, from: Duration, until: Duration) -> &[Second] {
        let index =
            |at: Duration| usize::try_from(at.as_secs()).unwrap_or(usize::MAX).min(self.seconds.len());
        &self.seconds[index(from)..index(until)]
    }

    fn refused(seconds: &[Second]) -> f64 {
        let refused: u64 = seconds.iter().map(|second| second.refused).sum();
        let done: usize = seconds.iter().map(|second| second.times_micros.len()).sum();
        refused as f64 / (done as u64 + refused).max(1) as f64
    }

    fn measure(&self, from: Duration, until: Duration, unloaded: Duration) -> Measured {
        let seconds = self.between(from, until);
        let length = until.saturating_sub(from).as_secs_f64();
        let mut times: Vec<u32> = seconds.iter().flat_map(|second| &second.times_micros).copied().collect();
        let median = match times.len() {
            0 => 0,
            done => *times.select_nth_unstable(done / 2).1,
        };
        let median = Duration::from_micros(u64::from(median));
        let capacity = self.scenario.capacity(self.scenario.servers_at(from));
        Measured {
            of_capacity: times.len() as f64 / length / capacity,
            median,
            times_unloaded: median.as_secs_f64() / unloaded.as_secs_f64(),
            limit: seconds.iter().map(|second| second.limit_seconds).sum::<f64>() / length,
            refused: Self::refused(seconds),
        }
    }

    fn converged(&self, from: Duration, until: Duration, unloaded: Duration) -> Option<Duration> {
        let stretch = self.scenario.stretch();
        let mut begins = from;
        while begins + stretch <= until {
            let measured = self.measure(begins, begins + stretch, unloaded);
            if measured.of_capacity >= 0.9 && measured.times_unloaded <= 2.5 {
                return Some((begins + stretch).saturating_sub(from));
            }
            begins += stretch;
        }
        None
    }

    fn result(&self) -> Run {
        let Scenario { halved_at, doubled_at, ends_at, .. } = *self.scenario;
        let unloaded = self.scenario.unloaded();
        let over = MEASURED_OVER.max(self.scenario.service_time * MEASURED_SERVICES).min(halved_at / 4);
        let until = |end: Duration| self.measure(end.saturating_sub(over), end, unloaded);
        Run {
            early: until(halved_at / 4),
            before: until(halved_at),
            halved: until(doubled_at),
            doubled: until(ends_at),
            refused_before: Self::refused(self.between(Duration::ZERO, halved_at)),
            refused_halved: Self::refused(self.between(halved_at, doubled_at)),
            started_in: self.converged(Duration::ZERO, halved_at, unloaded),
            halved_in: self.converged(halved_at, doubled_at, unloaded),
            doubled_in: self.converged(doubled_at, ends_at, unloaded),
        }
    }
}

/// Runs one limit in one scenario. The same seed gives the same run.
pub fn run(scenario: &Scenario, algorithm: Algorithm, seed: u64) -> Run {
    let mut controller = algorithm.controller(scenario.cap, seed);
    let mut record = Record { scenario, seconds: Vec::new() };
    let mut bench = Bench {
        scenario,
        chance: Rng::with_seed(seed),
        events: BinaryHeap::new(),
        numbers: 0,
        busy: 0,
        queue: VecDeque::new(),
        inflight: 0,
    };
    let mut now = Mono(0);
    loop {
        while bench.inflight < controller.places().min(scenario.cap) {
            bench.inflight += 1;
            bench.at(now.plus(scenario.network / 2), Event::Arrives(Call(now)));
        }
        let Some(Reverse((at, _, event))) = bench.events.pop() else { break };
        record.limit(now, at, controller.places());
        now = at;
        if now >= Mono(0).plus(scenario.ends_at) {
            break;
        }
        match event {
            Event::Arrives(call) => bench.arrives(call, now),
            Event::Worked(call) => bench.worked(call, now),
            Event::Answered(Call(started), is_refused) => {
                let took = now.since(started);
                let second = record.second(now);
                let how = if is_refused {
                    second.refused += 1;
                    Ending::Refused
                } else {
                    second.times_micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
                    if took > TIMEOUT { Ending::TimedOut } else { Ending::Done }
                };
                controller.ended(Ended { started, how, inflight: bench.inflight }, now);
                bench.inflight -= 1;
            }
        }
    }
    record.result()
}

/// The mean over seeds of what was measured at one moment.
fn mean(runs: &[Run], of: impl Fn(&Run) -> Measured) -> Measured {
    let count = runs.len() as f64;
    let sum = |part: fn(&Measured) -> f64| runs.iter().map(|run| part(&of(run))).sum::<f64>() / count;
    Measured {
        of_capacity: sum(|measured| measured.of_capacity),
        median: Duration::from_secs_f64(sum(|measured| measured.median.as_secs_f64())),
        times_unloaded: sum(|measured| measured.times_unloaded),
        limit: sum(|measured| measured.limit),
        refused: sum(|measured| measured.refused),
    }
}

/// The longest of all seeds; `never` if one never converged.
fn longest(runs: &[Run], of: impl Fn(&Run) -> Option<Duration>) -> String {
    let times: Option<Vec<Duration>> = runs.iter().map(of).collect();
    let longest = times.and_then(|times| times.into_iter().max());
    longest.map_or_else(|| "never".to_owned(), |time| text::seconds(time.as_secs_f64()))
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent if percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn cell(measured: &Measured) -> String {
    let Measured { of_capacity, median, times_unloaded, limit, .. } = *measured;
    let median = text::seconds(median.as_secs_f64());
    format!("{:.0} %, {median} ({times_unloaded:.1}×), {limit:.0}", of_capacity * 100.0)
}

fn row(table: &mut String, cells: &[String]) {
    table.push_str("| ");
    table.push_str(&cells.join(" | "));
    table.push_str(" |\n");
}

/// The whole comparison as tables in Markdown: the means of so many seeds.
pub fn tables(seeds: u64) -> String {
    let runs = |scenario: &Scenario, algorithm| -> Vec<Run> {
        (1..=seeds).map(|seed| run(scenario, algorithm, seed)).collect()
    };
    let mut tables = String::from(
        "| limit | after 300 s | after 1,200 s | 600 s after halving | found in | … after halving | … after doubling |\n\
         |---|---|---|---|---:|---:|---:|\n",
    );
    for algorithm in Algorithm::ALL {
        let runs = runs(&Scenario::usual(), algorithm);
        let measured = [|run: &Run| run.early, |run: &Run| run.before, |run: &Run| run.halved];
        let mut cells = vec![algorithm.name()];
        cells.extend(measured.map(|of| cell(&mean(&runs, of))));
        let found = [|run: &Run| run.started_in, |run: &Run| run.halved_in, |run: &Run| run.doubled_in];
        cells.extend(found.map(|of| longest(&runs, of)));
        row(&mut tables, &cells);
    }
    tables.push_str(
        "\n| limit | refused with 16 servers | refused with 8 | after 120 s | 120 s after halving |\n\
         |---|---:|---:|---|---|\n",
    );
    for algorithm in Algorithm::ALL {
        let runs = runs(&Scenario::refusing(), algorithm);
        let share = |of: fn(&Run) -> f64| percent(runs.iter().map(of).sum::<f64>() / runs.len() as f64);
        let cells = [
            algorithm.name(),
            share(|run| run.refused_before),
            share(|run| run.refused_halved),
            cell(&mean(&runs, |run| run.before)),
            cell(&mean(&runs, |run| run.halved)),
        ];
        row(&mut tables, &cells);
    }
    tables.push_str(
        "\n| backend | before halving | halved | found in | … after halving | … after doubling | refused |\n\
         |---|---|---|---:|---:|---:|---:|\n",
    );
    for scenario in Scenario::others() {
        let runs = runs(&scenario, Algorithm::Adaptive);
        let refused = runs.iter().map(|run| run.refused_before.max(run.refused_halved)).fold(0.0, f64::max);
        let cells = [
            scenario.name.to_owned(),
            cell(&mean(&runs, |run| run.before)),
            cell(&mean(&runs, |run| run.halved)),
            longest(&runs, |run| run.started_in),
            longest(&runs, |run| run.halved_in),
            longest(&runs, |run| run.doubled_in),
            percent(refused),
        ];
        row(&mut tables, &cells);
    }
    tables
}
