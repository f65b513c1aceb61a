//! The callers: an open-loop load, each call at its own time whether or not earlier ones have been answered.
//!
//! Owns the pace, the callers' time-outs and the tally. Must never slow down because the server does: a load
//! generator that waits for answers hides the very queueing it should measure. Latency counts from when a call was
//! *meant* to start, so that a late start of the generator is not forgiven either.

use super::client::{Client, ClientError};
use super::target::Call;
use bytes::Bytes;
use hdrhistogram::Histogram;
use http::StatusCode;
use millpond_sim::workload::{Arrival, Load, Schedule};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// The longest latency that is told apart; the callers' time-outs lie far below.
const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// What the callers do.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Where they post to.
    pub(crate) path: String,
    /// How long each of them waits.
    pub(crate) timeout: Duration,
    /// The calls end here, if nobody stops them before.
    pub(crate) until: Duration,
    /// What [`Call::at_micros`] counts from.
    pub(crate) epoch: Instant,
    /// When the schedule begins.
    pub(crate) begin: Instant,
}

/// How the calls of one load ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Calls started.
    pub(crate) offered: u64,
    /// Answered with 2xx in time.
    pub(crate) answered: u64,
    /// Answered with 429 or 503 in time.
    pub(crate) refused: u64,
    /// Given up.
    pub(crate) timed_out: u64,
    /// Anything else.
    pub(crate) failed: u64,
}

/// How all calls ended.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    /// Those of the spike.
    pub(crate) spike: Count,
    /// The others.
    pub(crate) normal: Count,
    /// Latency of the spike's calls that were answered, in microseconds from their intended start.
    pub(crate) latency_micros: Histogram<u64>,
    /// The latest start of a call after its intended time: how far the generator itself fell behind.
    pub(crate) latest_start: Duration,
    /// When the last normal call that timed out was meant to start, since the schedule began.
    pub(crate) last_normal_timeout: Option<Duration>,
    /// What went wrong first, of the failed ones.
    pub(crate) first_failure: Option<String>,
}

/// Callers at work.
pub(crate) struct Callers {
    shared: Arc<Shared>,
    finished: mpsc::Receiver<()>,
}

struct Shared {
    client: Client,
    behaviour: Behaviour,
    started: AtomicU64,
    stop: AtomicBool,
    calls: Mutex<Calls>,
}

impl Callers {
    /// Starts them. `server` is called as `behaviour` says, at the times of `schedule`.
    pub(crate) fn start(schedule: Schedule, client: Client, behaviour: Behaviour) -> Self {
        let calls = Mutex::new(Calls {
            spike: Count::default(),
            normal: Count::default(),
            latency_micros: Histogram::new_with_max(LATENCY_MICROS_MAX, 3).expect("the bounds are constants"),
            latest_start: Duration::ZERO,
            last_normal_timeout: None,
            first_failure: None,
        });
        let shared = Arc::new(Shared {
            client,
            behaviour,
            started: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            calls,
        });
        let (running, finished) = mpsc::channel(1);
        let (runtime, pace) = (Handle::current(), Arc::clone(&shared));
        // A thread of its own: the runtime's timers tick in milliseconds, two calls' distance at 2,000/s.
        std::thread::spawn(move || keep_pace(&schedule, &pace, &runtime, &running));
        Self { shared, finished }
    }

    /// Calls started so far.
    pub(crate) fn started(&self) -> u64 {
        self.shared.started.load(Ordering::Relaxed)
    }

    /// How calls have ended so far.
    pub(crate) fn so_far(&self) -> (Count, Count) {
        let calls = self.shared.calls();
        (calls.spike, calls.normal)
    }

    /// Starts no more calls.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until every call that was started has ended.
    pub(crate) async fn finish(mut self) -> Calls {
        // Never a value: the channel closes when the pace and every call have dropped their end.
        let _ = self.finished.recv().await;
        self.shared.calls().clone()
    }
}

fn keep_pace(schedule: &Schedule, shared: &Arc<Shared>, runtime: &Handle, running: &mpsc::Sender<()>) {
    let behaviour = &shared.behaviour;
    let arrivals = schedule.arrivals().take_while(|arrival| arrival.at() < behaviour.until);
    for (number, arrival) in (0_u64..).zip(arrivals) {
        let due = behaviour.begin + arrival.at();
        while let Some(early) = due.checked_duration_since(Instant::now()).filter(|early| !early.is_zero()) {
            // In short naps, so that a stop is heard.
            std::thread::sleep(early.min(Duration::from_millis(100)));
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
        }
        let (shared, running) = (Arc::clone(shared), running.clone());
        shared.started.fetch_add(1, Ordering::Relaxed);
        runtime.spawn(async move {
            shared.one(number, arrival).await;
            drop(running);
        });
    }
}

impl Shared {
    async fn one(&self, number: u64, arrival: Arrival) {
        let behaviour = &self.behaviour;
        let due = behaviour.begin + arrival.at();
        let late = due.elapsed();
        let at_micros = due.saturating_duration_since(behaviour.epoch).as_micros();
        let spike = arrival.load == Load::Spike;
        let call = Call { number, spike, at_micros: u64::try_from(at_micros).unwrap_or(u64::MAX) };
        let body = serde_json::to_vec(&call).expect("three plain fields");
        let call = self.client.post(&behaviour.path, Bytes::from(body));
        let deadline = tokio::time::Instant::from_std(due + behaviour.timeout);
        let result = tokio::time::timeout_at(deadline, call).await;
        let latency = due.elapsed();
        let mut calls = self.calls();
        calls.latest_start = calls.latest_start.max(late);
        match result {
            Err(_) => calls.timed_out(arrival),
            Ok(answer) => calls.ended(arrival, latency, answer.map(|answer| answer.status)),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    fn of(&mut self, load: Load) -> &mut Count {
        match load {
            Load::Spike => &mut self.spike,
            Load::Normal => &mut self.normal,
        }
    }

    fn timed_out(&mut self, arrival: Arrival) {
        let count = self.of(arrival.load);
        count.offered += 1;
        count.timed_out += 1;
        if arrival.load == Load::Normal {
            self.last_normal_timeout = self.last_normal_timeout.max(Some(arrival.at()));
        }
    }

    fn ended(&mut self, arrival: Arrival, latency: Duration, status: Result<StatusCode, ClientError>) {
        let count = self.of(arrival.load);
        count.offered += 1;
        match status {
            Ok(status) if status.is_success() => {
                count.answered += 1;
                if arrival.load == Load::Spike {
                    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                    self.latency_micros.saturating_record(micros);
                }
            }
            Ok(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => count.refused += 1,
            Ok(status) => {
                count.failed += 1;
                self.first_failure.get_or_insert_with(|| format!("an answer with status {status}"));
            }
            Err(error) => {
                count.failed += 1;
                self.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// A quantile of the latency of the spike's answered calls, in seconds. `None`: none was answered.
    pub(crate) fn latency_seconds(&self, quantile: f64) -> Option<f64> {
        let micros = self.latency_micros.value_at_quantile(quantile);
        (!self.latency_micros.is_empty()).then_some(micros as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, Callers};
    use crate::demo::client::Client;
    use crate::demo::target::Target;
    use millpond_sim::workload::Schedule;
    use std::time::{Duration, Instant};

    fn behaviour(timeout: Duration, until: Duration) -> Behaviour {
        let now = Instant::now();
        Behaviour { path: "/".to_owned(), timeout, until, epoch: now, begin: now }
    }

    #[tokio::test]
    async fn every_scheduled_call_is_made_once_and_counted_once() {
        let target = Target::start(8, Duration::ZERO, Instant::now()).await.unwrap();
        let client = Client::new(target.address(), 64);
        let schedule = Schedule::spike(100.0, Duration::from_millis(50), 1_000.0, Duration::from_millis(100));
        let minute = Duration::from_mins(1);
        let callers = Callers::start(schedule, client.clone(), behaviour(minute, Duration::from_millis(200)));
        let calls = callers.finish().await;
        assert_eq!((calls.spike.offered, calls.spike.answered), (100, 100), "{:?}", calls.first_failure);
        assert_eq!((calls.normal.offered, calls.normal.answered), (10, 10));
        assert_eq!(target.tally().completed, 110);
        assert!(client.opened() <= 64);
        assert_eq!(calls.latency_micros.len(), 100);
    }

    #[tokio::test]
    async fn callers_give_up_while_the_backend_is_busy() {
        let target = Target::start(1, Duration::from_hours(1), Instant::now()).await.unwrap();
        let schedule = Schedule::spike(0.0, Duration::ZERO, 500.0, Duration::from_millis(20));
        let client = Client::new(target.address(), 64);
        let callers =
            Callers::start(schedule, client, behaviour(Duration::from_millis(20), Duration::from_secs(1)));
        let calls = callers.finish().await;
        assert_eq!((calls.spike.offered, calls.spike.timed_out), (10, 10), "{:?}", calls.first_failure);
        assert_eq!(calls.latency_seconds(0.5), None);
    }

    #[tokio::test]
    async fn callers_that_are_stopped_start_no_more_calls() {
        let target = Target::start(1, Duration::ZERO, Instant::now()).await.unwrap();
        let schedule = Schedule::spike(1.0, Duration::ZERO, 0.0, Duration::ZERO);
        let client = Client::new(target.address(), 4);
        let callers = Callers::start(schedule, client, behaviour(Duration::from_mins(1), Duration::MAX));
        target.completed(1).await;
        callers.stop();
        let calls = callers.finish().await;
        assert!(calls.normal.offered >= 1);
        assert_eq!(calls.normal.offered, target.tally().completed);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_a_failure_not_a_time_out() {
        // Port 1 is reserved; nobody listens there.
        let address = ([127, 0, 0, 1], 1).into();
        let schedule = Schedule::spike(0.0, Duration::ZERO, 100.0, Duration::from_millis(20));
        let client = Client::new(address, 4);
        let minute = Duration::from_mins(1);
        let callers = Callers::start(schedule, client, behaviour(minute, Duration::from_secs(1)));
        let calls = callers.finish().await;
        assert_eq!((calls.spike.offered, calls.spike.failed), (2, 2));
        assert!(calls.first_failure.unwrap().contains("127.0.0.1:1"));
    }
}
