//! Processes that are frozen for longer than their leases last, and go on as if nothing had been.
//!
//! Owns the freezing of the server and of workers. A worker is a process of its own: this very binary, told to run the
//! one test here that is ignored otherwise. Must never judge anything itself: the history checker does.

use crate::load::{LEASE, Load, QUEUE, run};
use crate::process::Server;
use fastrand::Rng;
use millpond_api::client::Client;
use millpond_api::types::{LeaseRequest, LeasedMessage, Settlement};
use millpond_testkit::history::{Event, History, Settled, Word};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SEED: u64 = 7;
const WORKERS: usize = 6;
/// How long something is frozen: every lease that was given before has ended, and been given again.
const FROZEN_FOR: Duration = LEASE.saturating_mul(2);
/// What a worker process finds its server by.
const SERVER: &str = "MILLPOND_TEST_WORKER_SERVER";

#[test]
fn a_server_that_is_frozen_beyond_its_leases_goes_on_without_loss() {
    run(async {
        let mut load = Load::start(SEED, 24, 8);
        let server = Server::await_start(load.command());
        load.serve(&server);
        for _ in 0..4 {
            load.answers(200).await;
            server.freeze();
            tokio::time::sleep(FROZEN_FOR).await;
            server.thaw();
        }
        load.answers(200).await;
        load.judge(server).await;
    });
}

#[test]
fn workers_that_are_frozen_beyond_their_leases_cannot_settle_what_others_were_handed() {
    run(async {
        let mut load = Load::start(SEED, 16, 0);
        let server = Server::await_start(load.command());
        load.serve(&server);
        let mut workers: Vec<Worker> =
            (0..WORKERS).map(|seed| Worker::start(&server, seed, &load.history)).collect();
        for _ in 0..4 {
            load.answers(60).await;
            load.chance.shuffle(&mut workers);
            let (frozen, _) = workers.split_at(WORKERS / 2);
            for worker in frozen {
                worker.signal(Signal::STOP);
            }
            tokio::time::sleep(FROZEN_FOR).await;
            for worker in frozen {
                worker.signal(Signal::CONT);
            }
        }
        load.answers(60).await;
        load.stop().await;
        for worker in workers {
            worker.stop();
        }
        let settled_late = load
            .history
            .events()
            .iter()
            .any(|event| matches!(event, Event::Settle { answer: Settled::Refused, .. }));
        assert!(settled_late, "nobody was frozen in the middle of work: the test shows nothing");
        load.judge(server).await;
    });
}

/// A worker process, and the thread that takes down what it saw.
struct Worker {
    child: Child,
    taking_down: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(server: &Server, seed: usize, history: &Arc<History>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["frozen::worker_process", "--exact", "--ignored", "--nocapture"])
            .env(SERVER, format!("{seed} {}", server.url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, history) = (child.stdout.take().unwrap(), Arc::clone(history));
        // The worker's moments are on the machine's monotonic clock, the history's begin with it.
        let began = monotonic().checked_sub(history.now()).unwrap();
        let taking_down = Some(std::thread::spawn(move || take_down(out, began, &history)));
        Self { child, taking_down }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Lets it end its work, and returns once all it saw is taken down.
    fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        self.taking_down.take().unwrap().join().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Reads the lines that [`Report`] writes.
fn take_down(out: ChildStdout, began: Duration, history: &History) {
    let at = |text: &str| Duration::from_micros(text.parse().unwrap()).saturating_sub(began);
    for line in BufReader::new(out).lines() {
        let line = line.unwrap();
        let fields: Vec<&str> = line.split(' ').collect();
        let event = match fields[..] {
            ["HANDED", id, receipt, payload, sent, ended] => Event::HandOut {
                id: id.to_owned(),
                payload: payload.parse().unwrap(),
                receipt: receipt.to_owned(),
                sent: at(sent),
                ended: at(ended),
                lease: LEASE,
            },
            ["SETTLED", id, receipt, status, sent, ended] => Event::Settle {
                id: id.to_owned(),
                receipt: receipt.to_owned(),
                word: Word::Complete,
                sent: at(sent),
                ended: at(ended),
                answer: match status {
                    "200" => Settled::Accepted,
                    "unknown" => Settled::Unknown,
                    _ => Settled::Refused,
                },
            },
            // What the test harness of the process says.
            _ => continue,
        };
        history.note(event);
    }
}

/// Says what a worker saw, a line for each event.
fn report(word: &str, message: &LeasedMessage, detail: &str, sent: Duration) {
    let (sent, ended) = (sent.as_micros(), monotonic().as_micros());
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {} {} {detail} {sent} {ended}", message.id, message.receipt).unwrap();
    out.flush().unwrap();
}

async fn work(client: Client, mut chance: Rng, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Relaxed) {
        let wish = LeaseRequest { max: Some(4), wait_seconds: Some(0.2), ..LeaseRequest::default() };
        let sent = monotonic();
        let leases = client.lease(QUEUE, &wish).await.unwrap();
        for message in &leases.messages {
            report("HANDED", message, message.body.split(' ').next().unwrap(), sent);
        }
        for message in &leases.messages {
            // The work.
            tokio::time::sleep(Duration::from_millis(chance.u64(1..20))).await;
            let receipt = message.receipt.clone();
            let word = Settlement { receipt, outcome: "complete".to_owned(), ..Settlement::default() };
            let sent = monotonic();
            let status = match client.settle(&[word]).await {
                Ok(answers) => answers[0].status.to_string(),
                Err(_) => "unknown".to_owned(),
            };
            report("SETTLED", message, &status, sent);
        }
    }
}

#[test]
#[ignore = "a worker process: the test above starts it"]
fn worker_process() {
    let Ok(told) = std::env::var(SERVER) else { return };
    let (seed, url) = told.split_once(' ').unwrap();
    let stopping = Arc::new(AtomicBool::new(false));
    let told_to_stop = Arc::clone(&stopping);
    std::thread::spawn(move || {
        // Whoever started it closes this when it shall end.
        let _ = std::io::stdin().read(&mut [0]);
        told_to_stop.store(true, Ordering::Relaxed);
    });
    run(work(Client::new(url).unwrap(), Rng::with_seed(seed.parse().unwrap()), &stopping));
}
