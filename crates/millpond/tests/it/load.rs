//! Producers and workers against a server, and the record of what they saw.
//!
//! Owns the load. Must never judge what it sees, nor touch the server's process: tests do, with the history checker.

use crate::process::{Server, serving};
use fastrand::Rng;
use millpond_api::client::{Client, ClientError, Enqueue};
use millpond_api::types::{LeaseRequest, LeasedMessage, Settlement, State};
use millpond_testkit::checker::{Summary, check};
use millpond_testkit::history::{End, Enqueued, Event, History, Settled, Word};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) const QUEUE: &str = "work";
/// How long every lease lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Longest that answers may be missing before a server counts as stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(50);
const CONFIGURATION: &str = r#"
[queues.work]
max_messages = 120
lease = "1s"
[queues.work.retry]
max_attempts = 6
backoff = { min = "50ms", max = "1s" }
"#;

/// The server that is up, and which one it is.
type Up = Option<(u64, Client)>;

/// A load that runs, in a directory of its own.
pub(crate) struct Load {
    pub(crate) history: Arc<History>,
    pub(crate) chance: Rng,
    directory: TempDir,
    scene: Scene,
    up: watch::Sender<Up>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    servers: u64,
}

impl Load {
    /// Starts so many producers and workers; they wait for a server.
    pub(crate) fn start(seed: u64, producers: u64, workers: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("millpond.toml"), CONFIGURATION).unwrap();
        let mut chance = Rng::with_seed(seed);
        let (up, is_up) = watch::channel(None);
        let (stop, stopping) = watch::channel(false);
        let history = Arc::new(History::new());
        let scene = Scene {
            history: Arc::clone(&history),
            up: is_up,
            stopping,
            progress: Arc::new(watch::Sender::new(0)),
            payloads: Arc::default(),
        };
        let mut tasks = JoinSet::new();
        for _ in 0..producers {
            tasks.spawn(scene.clone().produce(chance.fork()));
        }
        for _ in 0..workers {
            tasks.spawn(scene.clone().work(chance.fork()));
        }
        Self { history, chance, directory, scene, up, stop, tasks, servers: 0 }
    }

    /// A directory for whatever a test needs besides.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The command that starts a server on this load's data.
    pub(crate) fn command(&self) -> Command {
        let mut command = serving(&self.directory.path().join("data"));
        command.arg("--config").arg(self.directory.path().join("millpond.toml"));
        command
    }

    /// Tells producers and workers of a server.
    pub(crate) fn serve(&mut self, server: &Server) {
        self.servers += 1;
        self.up.send_replace(Some((self.servers, Client::new(&server.url).unwrap())));
    }

    /// Returns once so many more answers have come.
    pub(crate) async fn answers(&self, count: u64) {
        let mut answers = self.scene.progress.subscribe();
        let goal = *answers.borrow_and_update() + count;
        let stuck = tokio::time::timeout(STUCK_AFTER, answers.wait_for(|answers| *answers >= goal)).await;
        assert!(stuck.is_ok(), "no answers any more");
    }

    /// Ends producers and workers.
    pub(crate) async fn stop(&mut self) {
        self.stop.send_replace(true);
        std::mem::take(&mut self.tasks).join_all().await;
    }

    /// Does what is left, stops the server, and has everything judged that was seen.
    pub(crate) async fn judge(mut self, server: Server) -> Summary {
        self.stop().await;
        let client = Client::new(&server.url).unwrap();
        tokio::time::timeout(STUCK_AFTER, drain(&self.scene, &client)).await.expect("it drains");
        look_up(&self.scene, &client).await;
        assert_eq!(server.stop(), Some(0));
        let (summary, violations) = check(&self.history.events());
        assert_eq!(violations, [], "{summary:?}");
        assert!(summary.acknowledged > 0 && summary.succeeded > 0 && summary.repeated > 0, "{summary:?}");
        summary
    }
}

/// Runs a test on threads of its own.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// What every task shares.
#[derive(Clone)]
struct Scene {
    history: Arc<History>,
    up: watch::Receiver<Up>,
    stopping: watch::Receiver<bool>,
    /// Answers so far.
    progress: Arc<watch::Sender<u64>>,
    payloads: Arc<AtomicU64>,
}

impl Scene {
    fn answered(&self) {
        self.progress.send_modify(|answers| *answers += 1);
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// A server other than the one that just failed; `None` at the end of all rounds.
    async fn server(&mut self, failed: Option<u64>) -> Option<(u64, Client)> {
        let is_good = |up: &Up| up.as_ref().is_some_and(|(which, _)| Some(*which) != failed);
        tokio::select! {
            up = self.up.wait_for(is_good) => up.ok()?.clone(),
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
        }
    }

    async fn produce(mut self, mut chance: Rng) {
        let mut failed = None;
        while !self.is_stopping() {
            let payload = self.payloads.fetch_add(1, Ordering::Relaxed);
            let keyed = chance.bool();
            let mut message = Enqueue::new(format!("{payload} {}", "x".repeat(chance.usize(..1500))));
            message.idempotency_key = keyed.then(|| format!("key-{payload}"));
            // Without a key, a producer that got no answer must give up; with one, it asks until it knows.
            loop {
                let Some((which, client)) = self.server(failed).await else { return };
                let answer = enqueued(client.enqueue(QUEUE, message.clone()).await);
                let (is_known, is_refused) = (answer != Enqueued::Unknown, answer == Enqueued::Refused);
                self.history.note(Event::Enqueue { payload, keyed, answer });
                failed = (!is_known).then_some(which);
                if is_known {
                    self.answered();
                    // Refused callers are in less of a hurry.
                    let pause = if is_refused { 20..200 } else { 0..20 };
                    tokio::time::sleep(Duration::from_millis(chance.u64(pause))).await;
                }
                if is_known || !keyed {
                    break;
                }
            }
        }
    }

    async fn work(mut self, mut chance: Rng) {
        let mut failed = None;
        let mut neglected: Vec<LeasedMessage> = Vec::new();
        while !self.is_stopping() {
            let Some((which, client)) = self.server(failed).await else { return };
            let max = chance.u32(1..=12);
            let Some(leased) = self.lease(&client, max).await else {
                failed = Some(which);
                continue;
            };
            failed = None;
            let mut words = Vec::new();
            for message in leased {
                match chance.u32(..100) {
                    0..70 => words.push((message, Word::Complete)),
                    70..80 => words.push((message, Word::Retry)),
                    80..85 => words.push((message, Word::Release)),
                    85..88 => words.push((message, Word::Dead)),
                    // Neglected: its lease runs out. Some are settled late, when another may have it.
                    _ => neglected.push(message),
                }
            }
            if !neglected.is_empty() && chance.u32(..4) == 0 {
                let late = neglected.swap_remove(chance.usize(..neglected.len()));
                words.push((late, if chance.bool() { Word::Complete } else { Word::Retry }));
            }
            self.settle(&client, words).await;
        }
    }

    /// `None`: no answer.
    async fn lease(&self, client: &Client, max: u32) -> Option<Vec<LeasedMessage>> {
        let wish = LeaseRequest { max: Some(max), wait_seconds: Some(1.0), ..LeaseRequest::default() };
        let sent = self.history.now();
        let leases = client.lease(QUEUE, &wish).await.ok()?;
        let ended = self.history.now();
        for message in &leases.messages {
            self.answered();
            let payload = message.body.split(' ').next().unwrap().parse().unwrap();
            let (id, receipt) = (message.id.clone(), message.receipt.clone());
            self.history.note(Event::HandOut { id, payload, receipt, sent, ended, lease: LEASE });
        }
        Some(leases.messages)
    }

    async fn settle(&self, client: &Client, words: Vec<(LeasedMessage, Word)>) {
        if words.is_empty() {
            return;
        }
        let settlements: Vec<Settlement> =
            words.iter().map(|(message, word)| settlement(message, *word)).collect();
        let sent = self.history.now();
        let answers = client.settle(&settlements).await;
        let ended = self.history.now();
        for (index, (message, word)) in words.into_iter().enumerate() {
            let answer = match &answers {
                Ok(answers) if answers[index].status == 200 => Settled::Accepted,
                Ok(_) => Settled::Refused,
                Err(_) => Settled::Unknown,
            };
            self.answered();
            let LeasedMessage { id, receipt, .. } = message;
            self.history.note(Event::Settle { id, receipt, word, sent, ended, answer });
        }
    }
}

fn enqueued(answer: Result<millpond_api::types::Accepted, ClientError>) -> Enqueued {
    match answer {
        Ok(accepted) => Enqueued::Accepted(accepted.id),
        Err(ClientError::Refused(problem)) => {
            assert!(matches!(problem.status, 503 | 429), "{problem:?}");
            Enqueued::Refused
        }
        Err(error) => {
            assert!(error.is_unreachable(), "{error}");
            Enqueued::Unknown
        }
    }
}

fn settlement(message: &LeasedMessage, word: Word) -> Settlement {
    let outcome = match word {
        Word::Complete => "complete",
        Word::Retry => "retry",
        Word::Dead => "dead",
        Word::Release => "release",
    };
    Settlement { receipt: message.receipt.clone(), outcome: outcome.to_owned(), ..Settlement::default() }
}

/// Does all the work that is left, without fault.
async fn drain(scene: &Scene, client: &Client) {
    loop {
        let leased = scene.lease(client, 100).await.expect("nobody kills the server any more");
        let is_over = leased.is_empty();
        scene.settle(client, leased.into_iter().map(|message| (message, Word::Complete)).collect()).await;
        let stats = client.stats(QUEUE).await.unwrap();
        if is_over && stats.ready + stats.delayed + stats.leased + stats.backoff == 0 {
            return;
        }
    }
}

/// Asks how every accepted message ended.
async fn look_up(scene: &Scene, client: &Client) {
    let events = scene.history.events();
    let accepted: BTreeSet<String> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::Enqueue { answer: Enqueued::Accepted(id), .. } => Some(id),
            _ => None,
        })
        .collect();
    let accepted: Vec<String> = accepted.into_iter().collect();
    let mut tasks = JoinSet::new();
    for ids in accepted.chunks(accepted.len().div_ceil(16).max(1)) {
        let (ids, client, scene) = (ids.to_vec(), client.clone(), scene.clone());
        tasks.spawn(async move {
            for id in ids {
                let end = match client.status(&id, None).await.map(|status| status.status) {
                    Ok(State::Succeeded) => End::Succeeded,
                    Ok(State::Dead) => End::Dead,
                    other => {
                        assert!(other.is_ok() || other.as_ref().is_err_and(|error| !error.is_unreachable()));
                        End::Other
                    }
                };
                scene.history.note(Event::End { id, end });
            }
        });
    }
    tasks.join_all().await;
}
