//! The backend of the demonstration: a real HTTP server with a fixed capacity.
//!
//! Owns the slots, the work and the evidence of what was done. Must never work on more calls at once than it has
//! slots, nor drop work because its caller has left: neither does a database.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use millpond_sim::workload::Load;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Most bytes of a call's body.
const BODY_MAX: usize = 4 << 10;
/// The runtime's timers tick in milliseconds and fire after the tick: a sleep takes this much longer, which at 80 ms
/// a call would be more than a hundredth of the capacity.
const TIMER_LAG: Duration = Duration::from_millis(1);

/// The body of every call: what it is, and when it was meant to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Its number within the run; work for the same number twice is a duplicate.
    pub(crate) number: u64,
    /// Which load it belongs to. `true`: the spike.
    pub(crate) spike: bool,
    /// Intended start, in microseconds since the demonstration's epoch.
    pub(crate) at_micros: u64,
}

impl Call {
    /// The load it counts as.
    pub(crate) fn load(self) -> Load {
        if self.spike { Load::Spike } else { Load::Normal }
    }
}

/// What the backend has seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    /// Calls in work.
    pub(crate) in_flight: u64,
    /// The most calls in work at once.
    pub(crate) peak_in_flight: u64,
    /// Calls that wait for a slot.
    pub(crate) waiting: u64,
    /// The most that waited at once.
    pub(crate) peak_waiting: u64,
    /// Distinct calls whose work is done.
    pub(crate) completed: u64,
    /// … of the spike.
    pub(crate) spike_completed: u64,
    /// Work done again for a call that was done before.
    pub(crate) duplicates: u64,
    /// Longest time from the intended start of a call of the spike to the start of its work.
    pub(crate) longest_spike_wait: Duration,
}

struct Work {
    slots: Semaphore,
    slots_max: u64,
    service_time: Duration,
    epoch: Instant,
    seen: Mutex<(Tally, HashSet<u64>)>,
    completed: watch::Sender<u64>,
}

/// The running backend. Dropping it closes the listener and abandons the work.
pub(crate) struct Target {
    address: SocketAddr,
    work: Arc<Work>,
    accepting: JoinHandle<()>,
}

impl Target {
    /// Listens on a free port of the loopback interface. `epoch` is what [`Call::at_micros`] counts from.
    pub(crate) async fn start(slots: u32, service_time: Duration, epoch: Instant) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let work = Arc::new(Work {
            slots: Semaphore::new(slots as usize),
            slots_max: u64::from(slots),
            service_time,
            epoch,
            seen: Mutex::default(),
            completed: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&work)));
        Ok(Self { address, work, accepting })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen so far.
    pub(crate) fn tally(&self) -> Tally {
        self.work.with(|tally, _| *tally)
    }

    /// Waits until `count` distinct calls are done.
    pub(crate) async fn completed(&self, count: u64) {
        let mut completed = self.work.completed.subscribe();
        // The sender lives as long as `self`.
        let _ = completed.wait_for(|&done| done >= count).await;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.work.slots.close();
        self.accepting.abort();
    }
}

/// Takes connections until it is aborted, which aborts the connections too.
async fn accept(listener: TcpListener, work: Arc<Work>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, Arc::clone(&work))); }
                // Out of descriptors for a moment: the callers wait in the accept queue meanwhile.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, work: Arc<Work>) {
    let service = service_fn(move |request| {
        let work = Arc::clone(&work);
        async move { Ok::<_, Infallible>(answer(request, work).await) }
    });
    // A caller that gives up breaks its connection; that is what the direct half of the demonstration is about.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, work: Arc<Work>) -> Response<Full<Bytes>> {
    let status = match Limited::new(request.into_body(), BODY_MAX).collect().await {
        Err(_) => StatusCode::BAD_REQUEST,
        Ok(body) => match serde_json::from_slice::<Call>(&body.to_bytes()) {
            Err(_) => StatusCode::BAD_REQUEST,
            Ok(call) => {
                let (done, finished) = oneshot::channel();
                // A task of its own: it outlives this connection.
                tokio::spawn(async move {
                    if work.perform(call).await {
                        let _ = done.send(());
                    }
                });
                finished.await.map_or(StatusCode::SERVICE_UNAVAILABLE, |()| StatusCode::OK)
            }
        },
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

impl Work {
    /// Waits for a slot, first come, first served, and occupies it. `false`: the backend was stopped first.
    async fn perform(&self, call: Call) -> bool {
        self.with(|tally, _| {
            tally.waiting += 1;
            // Whoever gets a free slot at once does not count as waiting.
            let queued = tally.waiting.saturating_sub(self.slots_max - tally.in_flight);
            tally.peak_waiting = tally.peak_waiting.max(queued);
        });
        let Ok(_slot) = self.slots.acquire().await else { return false };
        let wait = self.epoch.elapsed().saturating_sub(Duration::from_micros(call.at_micros));
        self.with(|tally, _| {
            tally.waiting -= 1;
            tally.in_flight += 1;
            assert!(tally.in_flight <= self.slots_max, "the backend works on more calls than it has slots");
            tally.peak_in_flight = tally.peak_in_flight.max(tally.in_flight);
            if call.load() == Load::Spike {
                tally.longest_spike_wait = tally.longest_spike_wait.max(wait);
            }
        });
        tokio::time::sleep(self.service_time.saturating_sub(TIMER_LAG)).await;
        let completed = self.with(|tally, done| {
            tally.in_flight -= 1;
            if done.insert(call.number) {
                tally.completed += 1;
                tally.spike_completed += u64::from(call.spike);
            } else {
                tally.duplicates += 1;
            }
            tally.completed
        });
        self.completed.send_replace(completed);
        true
    }

    fn with<T>(&self, change: impl FnOnce(&mut Tally, &mut HashSet<u64>) -> T) -> T {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (tally, done) = &mut *seen;
        change(tally, done)
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Tally, Target};
    use crate::demo::client::Client;
    use std::time::{Duration, Instant};

    async fn call(client: &Client, number: u64) -> u16 {
        let body = serde_json::to_vec(&Call { number, spike: true, at_micros: 0 }).unwrap();
        client.post("/", body.into()).await.unwrap().status.as_u16()
    }

    #[tokio::test]
    async fn no_more_calls_are_in_work_than_there_are_slots() {
        let target = Target::start(2, Duration::from_millis(1), Instant::now()).await.unwrap();
        let client = Client::new(target.address(), 100);
        let mut answers = tokio::task::JoinSet::new();
        for number in 0..50 {
            let client = client.clone();
            answers.spawn(async move { call(&client, number).await });
        }
        assert!(answers.join_all().await.iter().all(|&status| status == 200));
        let tally = target.tally();
        assert_eq!((tally.completed, tally.in_flight, tally.waiting, tally.duplicates), (50, 0, 0, 0));
        assert_eq!(tally.peak_in_flight, 2);
    }

    #[tokio::test]
    async fn work_goes_on_for_callers_who_have_left() {
        let target = Target::start(1, Duration::from_millis(5), Instant::now()).await.unwrap();
        let client = Client::new(target.address(), 100);
        for number in 0..5 {
            let caller = client.clone();
            let caller = tokio::spawn(async move { call(&caller, number).await });
            let arrived = |tally: Tally| tally.waiting + tally.in_flight + tally.completed;
            while arrived(target.tally()) <= number {
                tokio::task::yield_now().await;
            }
            caller.abort();
        }
        target.completed(5).await;
        assert_eq!(target.tally().completed, 5);
    }

    #[tokio::test]
    async fn work_for_the_same_call_twice_is_a_duplicate() {
        let target = Target::start(1, Duration::ZERO, Instant::now()).await.unwrap();
        let client = Client::new(target.address(), 1);
        for _ in 0..2 {
            assert_eq!(call(&client, 7).await, 200);
        }
        assert_eq!((target.tally().completed, target.tally().duplicates), (1, 1));
        target.completed(1).await;
        assert_eq!(client.post("/", "no call".into()).await.unwrap().status, 400);
    }
}
