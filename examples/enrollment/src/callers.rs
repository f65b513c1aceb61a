//! The callers: each registration at its own time, whether or not earlier ones have been answered.
//!
//! Owns the pace, the callers' patience and the list of what they were told. Must never slow down because a server
//! does: a load that waits for answers hides the queueing it should show.

use crate::check::Accepted;
use crate::register::Registration;
use crate::service::{Refusal, Refused};
use hdrhistogram::Histogram;
use millpond_sim::workload::{Arrival, Load, Schedule};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// The longest latency that is told apart.
const LATENCY_MICROS_MAX: u64 = 300_000_000;
/// Before the second try, at least half of this …
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// … and never more than this before any.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// What the callers do.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Where they post to.
    pub(crate) url: String,
    /// How long each waits for an answer.
    pub(crate) timeout: Duration,
    /// For how long they try again, with the same key. `None`: they do not.
    pub(crate) patience: Option<Duration>,
    /// When the schedule begins.
    pub(crate) begin: Instant,
    /// The calls end here, if nobody stops them before.
    pub(crate) until: Duration,
}

/// How a call ended that did not end well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// The service said why.
    Refused(Refusal),
    /// No answer in time.
    TimedOut,
    /// No connection, or it broke.
    Unreachable,
    /// An answer with this status.
    Status(u16),
}

/// How the calls of one load ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Registrations that were to be made.
    pub(crate) offered: u64,
    /// Accepted, by the service or by the queue.
    pub(crate) accepted: u64,
    /// Not, by the last try's failure.
    pub(crate) failed: BTreeMap<Failure, u64>,
}

/// How all calls ended.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    /// Those of the spike.
    pub(crate) spike: Count,
    /// The others.
    pub(crate) normal: Count,
    /// What the callers were told is accepted.
    pub(crate) accepted: Vec<Accepted>,
    /// Tries that failed and were repeated.
    pub(crate) repeated: u64,
    /// From when a call of the spike was meant to start until it was accepted.
    pub(crate) latency_micros: Histogram<u64>,
    /// The latest start of a call after its time: how far the load fell behind.
    pub(crate) latest_start: Duration,
}

impl Calls {
    /// A quantile of the latency of the spike's accepted calls, in seconds. `None`: none was accepted.
    pub(crate) fn latency_seconds(&self, quantile: f64) -> Option<f64> {
        let micros = self.latency_micros.value_at_quantile(quantile);
        (!self.latency_micros.is_empty()).then_some(micros as f64 / 1e6)
    }
}

/// Callers at work.
pub(crate) struct Callers {
    shared: Arc<Shared>,
    finished: mpsc::Receiver<()>,
}

struct Shared {
    client: reqwest::Client,
    behaviour: Behaviour,
    stop: AtomicBool,
    calls: Mutex<Calls>,
}

impl Callers {
    /// Starts them.
    pub(crate) fn start(schedule: Schedule, behaviour: Behaviour) -> anyhow::Result<Self> {
        let calls = Calls {
            spike: Count::default(),
            normal: Count::default(),
            accepted: Vec::new(),
            repeated: 0,
            latency_micros: Histogram::new_with_max(LATENCY_MICROS_MAX, 3)?,
            latest_start: Duration::ZERO,
        };
        let client = reqwest::Client::builder().no_proxy().http1_only().build()?;
        let (stop, calls) = (AtomicBool::new(false), Mutex::new(calls));
        let shared = Arc::new(Shared { client, behaviour, stop, calls });
        let (running, finished) = mpsc::channel(1);
        let (runtime, pace) = (Handle::current(), Arc::clone(&shared));
        // A thread of its own: the runtime's timers tick in milliseconds, two calls' distance at 2,000/s.
        std::thread::spawn(move || keep_pace(&schedule, &pace, &runtime, &running));
        Ok(Self { shared, finished })
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

impl Drop for Callers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn keep_pace(schedule: &Schedule, shared: &Arc<Shared>, runtime: &Handle, running: &mpsc::Sender<()>) {
    let behaviour = &shared.behaviour;
    let arrivals = schedule.arrivals().take_while(|arrival| arrival.at() < behaviour.until);
    for (number, arrival) in (1_i64..).zip(arrivals) {
        let due = behaviour.begin + arrival.at();
        while let Some(early) = due.checked_duration_since(Instant::now()).filter(|early| !early.is_zero()) {
            // In short naps, so that a stop is heard.
            std::thread::sleep(early.min(Duration::from_millis(100)));
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
        }
        let (shared, running) = (Arc::clone(shared), running.clone());
        runtime.spawn(async move {
            shared.register(number, arrival).await;
            drop(running);
        });
    }
}

impl Shared {
    /// One registration, with as many tries as the caller has patience for.
    async fn register(&self, number: i64, arrival: Arrival) {
        let due = self.behaviour.begin + arrival.at();
        let late = due.elapsed();
        let mut since = due;
        let mut tries = 0;
        let outcome = loop {
            let outcome = self.attempt(number, since + self.behaviour.timeout).await;
            tries += 1;
            match outcome {
                Err(_) if self.behaviour.patience.is_some_and(|patience| due.elapsed() < patience) => {
                    tokio::time::sleep(backoff(tries, fastrand::f64())).await;
                    since = Instant::now();
                }
                outcome => break outcome,
            }
        };
        let latency = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut calls = self.calls();
        calls.latest_start = calls.latest_start.max(late);
        calls.repeated += u64::from(tries - 1);
        let count = if arrival.load == Load::Spike { &mut calls.spike } else { &mut calls.normal };
        count.offered += 1;
        match outcome {
            Err(failure) => *count.failed.entry(failure).or_default() += 1,
            Ok(message) => {
                count.accepted += 1;
                calls.accepted.push(Accepted { number, message });
                if arrival.load == Load::Spike {
                    calls.latency_micros.saturating_record(latency);
                }
            }
        }
    }

    async fn attempt(&self, number: i64, deadline: Instant) -> Result<String, Failure> {
        let new =
            Registration { number, student: 1 + number % 30_000, course: format!("course {}", number % 90) };
        let key = format!("registration-{number}");
        let call = async {
            let request = self.client.post(&self.behaviour.url).header("idempotency-key", key).json(&new);
            let answer = request.send().await.map_err(|_| Failure::Unreachable)?;
            let status = answer.status().as_u16();
            meaning(status, &answer.bytes().await.map_err(|_| Failure::Unreachable)?)
        };
        let outcome = tokio::time::timeout_at(deadline.into(), call).await;
        // On a busy machine an answer and the end of the time are found together: the caller had left.
        outcome.ok().filter(|_| Instant::now() <= deadline).unwrap_or(Err(Failure::TimedOut))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an answer says: the id of the message, empty where there is no queue, or why not.
fn meaning(status: u16, body: &[u8]) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Message {
        id: String,
    }
    if (200..300).contains(&status) {
        let message = serde_json::from_slice::<Message>(body);
        return Ok(message.map_or_else(|_| String::new(), |message| message.id));
    }
    let refused = serde_json::from_slice::<Refused>(body);
    Err(refused.map_or(Failure::Status(status), |refused| Failure::Refused(refused.error)))
}

/// The wait after `tries` failed ones: doubling, half of it by `chance` (0..1), so that those who failed together do
/// not come back together.
fn backoff(tries: u32, chance: f64) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(1_u32.checked_shl(tries - 1).unwrap_or(u32::MAX));
    doubled.min(BACKOFF_MAX).mul_f64(0.5 + 0.5 * chance)
}

#[cfg(test)]
mod tests {
    use super::{Failure, backoff, meaning};
    use crate::service::Refusal;
    use std::time::Duration;

    #[test]
    fn an_answer_is_a_message_a_row_or_a_reason() {
        assert_eq!(meaning(202, br#"{"id": "0197", "queue": "q"}"#), Ok("0197".to_owned()));
        assert_eq!(meaning(201, b""), Ok(String::new()));
        let full = meaning(503, br#"{"error": "too-many-connections"}"#);
        assert_eq!(full, Err(Failure::Refused(Refusal::TooManyConnections)));
        assert_eq!(meaning(503, br#"{"type": "/problems/queue-full"}"#), Err(Failure::Status(503)));
    }

    #[test]
    fn callers_come_back_later_each_time_and_not_together() {
        assert_eq!(backoff(1, 0.0), Duration::from_millis(100));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(200));
        assert_eq!(backoff(3, 1.0), Duration::from_millis(800));
        assert_eq!(backoff(40, 1.0), Duration::from_secs(2));
    }
}
