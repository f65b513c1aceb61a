//! The queued half of a simulation: a scenario through the engine on virtual time.
//!
//! Owns the arrivals, the backend and what is measured. Must never fork the engine's logic: it runs the engine.

use crate::chart::{Sample, Series};
use crate::host::{Host, HostError, Outcome};
use crate::outcome::QueuedOutcome;
use crate::workload::{Arrival, Load, Scenario};
use bytes::Bytes;
use millpond_core::command::{CallOutcome, Command, Declared, Input, NewMessage, Reply, RequestId};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::Content;
use millpond_core::name::{Name, NameError};
use millpond_core::stats::QueueStats;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What a commit takes on the simulated disk: about what a fast drive takes for write and sync.
const COMMIT_LATENCY: Duration = Duration::from_micros(400);
/// Size of the simulated log's segments.
const SEGMENT_BYTES: u32 = 4 << 20;
/// The queue is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How much longer than the spike a run may take before the queue counts as never drained.
const PATIENCE_FACTOR: u32 = 20;

/// Why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// A name of the scenario is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The engine failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Runs `scenario` through the queue until it is drained and everything accepted is done. `progress` hears now
/// and then how many seconds of virtual time have passed. The same seed gives the same result.
pub fn simulate_queued(
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<(QueuedOutcome, Series), SimulationError> {
    let mut run = Run::new(scenario, seed)?;
    let schedule = scenario.schedule();
    let give_up = scenario.spike_end() + scenario.spike_for * PATIENCE_FACTOR;
    let mut arrivals = schedule.arrivals().peekable();
    loop {
        let arrival_at = arrivals.peek().map(|arrival| mono(arrival.at()));
        let call_at = run.calls.peek().map(|Reverse((at, ..))| *at);
        let Some(at) = [arrival_at, call_at, run.host.next_event()].into_iter().flatten().min() else {
            break;
        };
        let at = at.max(run.now);
        if run.is_over() || at > mono(give_up) {
            break;
        }
        run.advance(at)?;
        if arrival_at == Some(at) {
            // Once the backlog is gone, normal load shows nothing more.
            if let Some(arrival) = arrivals.next().filter(|_| run.drained_at.is_none()) {
                run.arrive(arrival)?;
            }
        } else if call_at == Some(at) {
            run.call_done()?;
        }
        run.collect();
        progress(at.since(Mono(0)).as_secs_f64());
    }
    Ok(run.finish())
}

fn mono(since_start: Duration) -> Mono {
    Mono(0).plus(since_start)
}

/// One message on its way.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    arrival: Arrival,
    done: bool,
}

struct Run<'scenario> {
    scenario: &'scenario Scenario,
    queue: Name,
    host: Host,
    now: Mono,
    /// Calls under way at the backend, by when they end.
    calls: BinaryHeap<Reverse<(Mono, Seq, Receipt)>>,
    asked: BTreeMap<RequestId, Arrival>,
    accepted: BTreeMap<Seq, Accepted>,
    unfinished: u64,
    looked_at: Option<Mono>,
    look: Option<RequestId>,
    spike_ended: bool,
    drained_at: Option<Mono>,
    outcome: QueuedOutcome,
    accept_seconds: Vec<f64>,
    series: Series,
    arrived: u32,
    completed: u32,
    counts: Counts,
}

/// How many had arrived and been done at each of the last samples, for rates that do not depend on how close two
/// samples are.
#[derive(Debug)]
struct Counts {
    seen: VecDeque<(f64, u32, u32)>,
    window_seconds: f64,
}

impl Counts {
    /// A window in which even the backend alone does several messages.
    fn new(scenario: &Scenario) -> Self {
        let service = scenario.service_time / scenario.slots.max(1);
        let window_seconds = (scenario.spike_for / 20).max(service * 5).as_secs_f64();
        Self { seen: VecDeque::from([(0.0, 0, 0)]), window_seconds }
    }

    /// Arrivals and completions per second over the window that ends at `at_seconds`.
    fn per_second(&mut self, at_seconds: f64, arrived: u32, completed: u32) -> (f64, f64) {
        self.seen.push_back((at_seconds, arrived, completed));
        while self.seen.get(1).is_some_and(|(at, ..)| at_seconds - at >= self.window_seconds) {
            self.seen.pop_front();
        }
        let (since, arrived_then, completed_then) = self.seen[0];
        let passed = (at_seconds - since).max(self.window_seconds);
        (f64::from(arrived - arrived_then) / passed, f64::from(completed - completed_then) / passed)
    }
}

impl<'scenario> Run<'scenario> {
    fn new(scenario: &'scenario Scenario, seed: u64) -> Result<Self, SimulationError> {
        let queue = Name::new(scenario.name)?;
        let target = Name::new("backend")?;
        let declared = Declared {
            queues: vec![(queue.clone(), scenario.queue_settings(target.as_str())?)],
            targets: vec![(target, scenario.target_settings())],
        };
        let storage: Arc<dyn Storage> = Arc::new(SimulatedDisk::new());
        let host = Host::open(&storage, declared, SEGMENT_BYTES, seed, COMMIT_LATENCY, Mono(0))?;
        let series = Series {
            title: format!("{}, simulated", scenario.name),
            spike_start_seconds: scenario.lead_in.as_secs_f64(),
            spike_end_seconds: scenario.spike_end().as_secs_f64(),
            samples: Vec::new(),
        };
        Ok(Self {
            scenario,
            queue,
            host,
            now: Mono(0),
            calls: BinaryHeap::new(),
            asked: BTreeMap::new(),
            accepted: BTreeMap::new(),
            unfinished: 0,
            looked_at: None,
            look: None,
            spike_ended: false,
            drained_at: None,
            outcome: QueuedOutcome::default(),
            accept_seconds: Vec::new(),
            series,
            arrived: 0,
            completed: 0,
            counts: Counts::new(scenario),
        })
    }

    fn is_over(&self) -> bool {
        self.drained_at.is_some() && self.unfinished == 0 && self.asked.is_empty()
    }

    /// Lets time pass up to `at`. The queue is looked at just before: ages are highest then.
    fn advance(&mut self, at: Mono) -> Result<(), SimulationError> {
        let due = self.looked_at.is_none_or(|last| at.since(last) >= LOOK_EVERY);
        let spike_end = mono(self.scenario.spike_end());
        if !self.spike_ended && at >= spike_end {
            self.spike_ended = true;
            self.now = spike_end;
            self.look_now()?;
            self.outcome.spike_end_age_seconds = self.outcome.peak_age_seconds;
        }
        self.now = at;
        if due {
            self.look_now()?;
        }
        self.host.run(at)?;
        self.collect();
        Ok(())
    }

    fn look_now(&mut self) -> Result<(), SimulationError> {
        self.looked_at = Some(self.now);
        self.look = Some(self.host.ask(Command::Queue(self.queue.clone()), self.now)?);
        self.collect();
        Ok(())
    }

    fn seen(&mut self, stats: &QueueStats) {
        self.outcome.peak_depth = self.outcome.peak_depth.max(stats.ready);
        let age = stats.oldest_ready_age.as_secs_f64();
        self.outcome.peak_age_seconds = self.outcome.peak_age_seconds.max(age);
        if self.spike_ended && stats.ready == 0 && self.drained_at.is_none() {
            self.drained_at = Some(self.now);
            let since = self.now.since(mono(self.scenario.spike_end()));
            self.outcome.drain_seconds = Some(since.as_secs_f64());
        }
        self.sample(stats, age);
    }

    fn sample(&mut self, stats: &QueueStats, age_seconds: f64) {
        let width = (self.scenario.spike_for / 20).as_secs_f64();
        let at_seconds = self.now.since(Mono(0)).as_secs_f64();
        let last = self.series.samples.last().map_or(0.0, |sample| sample.at_seconds);
        let passed = at_seconds - last;
        if passed < width && self.drained_at != Some(self.now) || passed <= 0.0 {
            return;
        }
        let (arrivals_per_second, completions_per_second) =
            self.counts.per_second(at_seconds, self.arrived, self.completed);
        self.series.samples.push(Sample {
            at_seconds,
            arrivals_per_second,
            completions_per_second,
            backlog: stats.ready as f64,
            oldest_age_seconds: age_seconds,
        });
    }

    fn arrive(&mut self, arrival: Arrival) -> Result<(), SimulationError> {
        self.arrived += 1;
        if arrival.load == Load::Spike {
            self.outcome.offered += 1;
        }
        let content = Content {
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            body: Bytes::from_static(b"{\"simulated\":true}"),
        };
        let message = NewMessage { content: Arc::new(content), ..NewMessage::default() };
        let command = Command::Enqueue { queue: self.queue.clone(), messages: vec![message] };
        let request = self.host.ask(command, self.now)?;
        self.asked.insert(request, arrival);
        Ok(())
    }

    fn call_done(&mut self) -> Result<(), SimulationError> {
        let Some(Reverse((_, seq, receipt))) = self.calls.pop() else { return Ok(()) };
        self.completed += 1;
        self.host
            .tell(Input::CallEnded { receipt, outcome: CallOutcome::Succeeded { result: None } }, self.now)?;
        if let Some(accepted) = self.accepted.get_mut(&seq) {
            if std::mem::replace(&mut accepted.done, true) {
                self.outcome.duplicates += 1;
            } else {
                self.unfinished -= 1;
                if accepted.arrival.load == Load::Spike {
                    self.outcome.completed += 1;
                }
            }
        }
        Ok(())
    }

    /// Takes what came out of the engine.
    fn collect(&mut self) {
        for outcome in self.host.outcomes() {
            match outcome {
                Outcome::Reply(request, Reply::Enqueued(result)) => self.answered(request, result),
                Outcome::Reply(request, Reply::Queue(Ok(view))) if self.look == Some(request) => {
                    self.seen(&view.stats);
                }
                Outcome::Reply(..) => {}
                Outcome::Dispatch(_, leased, _) => {
                    let seq = leased.receipt.seq;
                    let ends = self.now.plus(self.scenario.service_time);
                    self.calls.push(Reverse((ends, seq, leased.receipt)));
                    self.outcome.peak_in_flight = self.outcome.peak_in_flight.max(self.calls.len() as u64);
                    self.note_wait(seq);
                }
            }
        }
    }

    fn note_wait(&mut self, seq: Seq) {
        if let Some(accepted) = self.accepted.get(&seq).filter(|one| one.arrival.load == Load::Spike) {
            let waited = self.now.since(mono(accepted.arrival.at())).as_secs_f64();
            self.outcome.longest_wait_seconds = self.outcome.longest_wait_seconds.max(waited);
        }
    }

    fn answered(
        &mut self,
        request: RequestId,
        result: Result<
            Vec<Result<millpond_core::command::Accepted, millpond_core::command::EnqueueError>>,
            millpond_core::command::EnqueueError,
        >,
    ) {
        let Some(arrival) = self.asked.remove(&request) else { return };
        let spike = arrival.load == Load::Spike;
        let one = result.ok().and_then(|mut all| all.pop()).and_then(Result::ok);
        match one {
            Some(accepted) => {
                self.accepted.insert(accepted.seq, Accepted { arrival, done: false });
                self.unfinished += 1;
                self.outcome.accepted += u64::from(spike);
                if spike {
                    self.accept_seconds.push(self.now.since(mono(arrival.at())).as_secs_f64());
                }
            }
            None => self.outcome.rejected += u64::from(spike),
        }
    }

    fn finish(mut self) -> (QueuedOutcome, Series) {
        self.accept_seconds.sort_by(f64::total_cmp);
        let quantile = |permille: usize| {
            let last = self.accept_seconds.len().checked_sub(1)?;
            self.accept_seconds.get(last * permille / 1000).copied()
        };
        self.outcome.accept_p50_seconds = quantile(500);
        self.outcome.accept_p99_seconds = quantile(990);
        (self.outcome, self.series)
    }
}

#[cfg(test)]
mod tests {
    use super::simulate_queued;
    use crate::workload::Scenario;

    #[test]
    fn leveling_comes_out_as_the_arithmetic_says() {
        let (seen, series) = simulate_queued(&Scenario::leveling(), 1, &mut |_| {}).unwrap();
        assert_eq!((seen.offered, seen.accepted, seen.rejected, seen.completed), (30, 30, 0, 30));
        assert!((19..=21).contains(&seen.peak_depth), "{seen:?}");
        assert!((seen.peak_age_seconds - 4.0).abs() <= 0.3, "{seen:?}");
        assert!((seen.spike_end_age_seconds - 1.3).abs() <= 0.2, "{seen:?}");
        assert!((seen.drain_seconds.unwrap() - 10.0).abs() <= 1.0, "{seen:?}");
        assert_eq!((seen.duplicates, seen.peak_in_flight), (0, 1));
        assert!(series.samples.len() > 50);
        for sample in &series.samples {
            assert!(sample.completions_per_second <= 6.0, "the backend does 5/s: {sample:?}");
            assert!(sample.arrivals_per_second <= 16.0, "never more than 15/s come: {sample:?}");
        }
    }

    #[test]
    fn with_more_load_afterwards_the_drain_takes_longer_and_with_the_capacity_it_never_ends() {
        let mut scenario = Scenario::leveling();
        scenario.normal_per_second = 4.5;
        let (seen, _) = simulate_queued(&scenario, 1, &mut |_| {}).unwrap();
        assert!((seen.drain_seconds.unwrap() - 40.0).abs() <= 2.0, "{seen:?}");
        scenario.normal_per_second = 5.0;
        let (seen, _) = simulate_queued(&scenario, 1, &mut |_| {}).unwrap();
        assert_eq!(seen.drain_seconds, None);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let scenario = Scenario::leveling();
        let runs = [7, 7].map(|seed| simulate_queued(&scenario, seed, &mut |_| {}).unwrap());
        assert_eq!(runs[0], runs[1]);
    }

    #[test]
    fn enrollment_shortened_comes_out_within_five_percent_of_the_arithmetic() {
        let scenario = Scenario::enrollment(300).unwrap();
        let (seen, _) = simulate_queued(&scenario, 1, &mut |_| {}).unwrap();
        assert_eq!((seen.accepted, seen.completed, seen.rejected), (4000, 4000, 0));
        assert!((seen.peak_depth as f64 - 3000.0).abs() <= 150.0, "{seen:?}");
        assert!((seen.peak_age_seconds - 6.0).abs() <= 0.3, "{seen:?}");
        assert!((seen.drain_seconds.unwrap() - 7.5).abs() <= 0.5, "{seen:?}");
        assert_eq!(seen.peak_in_flight, 40);
    }
}
