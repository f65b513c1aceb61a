//! Targets that break every rule, one test for each kind: what the message became, in which words, and that nothing of
//! the call is left behind.
//!
//! Owns the target that a test drives byte by byte, and the look at what is left: calls in flight, sockets, tasks,
//! memory. Must never sleep to wait: where nothing is to come, a short time-out of the configuration ends it.

mod bodies;
mod heads;
mod multiplexed;
mod phases;
mod restarts;
mod secrets;
mod silence;
mod statuses;
mod tls;

use crate::harness::{DEADLINE, Server, configuration, eventually, name, with_target};
use millpond_config::{Configuration, Target};
use millpond_server::ServerOptions;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A body that does not fit into the buffers between two sockets.
pub(crate) const BIG: usize = 4 << 20;
/// For calls that are to end by their time-out.
pub(crate) const SOON: Duration = Duration::from_millis(200);
/// Most memory that a test may ever have had in use; it is the whole process's.
const MEMORY_KIB_MAX: u64 = 400 << 10;

/// A target that does with every connection what a test says.
#[derive(Clone)]
pub(crate) struct Nasty {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Nasty {
    /// Listens; `act` gets every connection and its number, from 0. The connection ends with it.
    pub(crate) async fn start<F: Future<Output = ()> + Send>(
        act: impl Fn(usize, TcpStream) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), act).0
    }

    /// The same with a listener of the caller's, and with what ends the listening.
    pub(crate) fn start_on<F: Future<Output = ()> + Send>(
        listener: TcpListener,
        act: impl Fn(usize, TcpStream) -> F + Send + Sync + 'static,
    ) -> (Self, tokio::task::AbortHandle) {
        let address = listener.local_addr().unwrap();
        let nasty = Self { address, accepted: Arc::default(), open: Arc::default() };
        let (target, act) = (nasty.clone(), Arc::new(act));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Small answers do not wait for larger ones.
                let _ = stream.set_nodelay(true);
                let number = target.accepted.fetch_add(1, Ordering::SeqCst);
                target.open.fetch_add(1, Ordering::SeqCst);
                let (act, open) = (Arc::clone(&act), Open(Arc::clone(&target.open)));
                tokio::spawn(async move {
                    act(number, stream).await;
                    drop(open);
                });
            }
        });
        (nasty, listening.abort_handle())
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Connections that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// A connection that is open; counted until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server with a queue `push` to a nasty target.
pub(crate) struct Bench {
    pub(crate) server: Server,
    tasks_before: usize,
    _directory: TempDir,
}

impl Bench {
    /// One attempt for each message, as far as `change` does not say otherwise.
    pub(crate) async fn start(address: SocketAddr, change: impl FnOnce(&mut Configuration)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut configuration = configuration(directory.path());
        configuration.max_body_bytes = 32 << 20;
        with_target(&mut configuration, address, 4);
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 1;
        change(&mut configuration);
        let tasks_before = tasks();
        // Messages of some megabytes have room: more than the buffers on the way to a target hold.
        let options =
            ServerOptions { configuration, segment_bytes: Some(9 << 20), ..ServerOptions::default() };
        let server = Server::start_at("127.0.0.1:0", options).await;
        Self { server, tasks_before, _directory: directory }
    }

    /// What becomes of a message.
    pub(crate) async fn push(&self, body: &str) -> Value {
        let accepted = self.server.enqueue("push", body).await;
        self.server.outcome(&accepted).await
    }

    /// Ends the server, once nothing is in flight, and sees that nothing is left behind.
    pub(crate) async fn end(self, nasty: &Nasty) {
        eventually("nothing is in flight", async || {
            let metrics = self.server.get("/metrics").await.body;
            String::from_utf8_lossy(&metrics).contains("millpond_target_inflight{target=\"target\"} 0.0")
        })
        .await;
        self.server.stop().await;
        eventually("every connection is closed", async || nasty.open() == 0).await;
        eventually("no task is left", async || tasks() <= self.tasks_before).await;
        assert!(peak_memory_kib() < MEMORY_KIB_MAX, "{} KiB", peak_memory_kib());
    }
}

/// Tasks that have not ended.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The target's own settings.
pub(crate) fn target(configuration: &mut Configuration) -> &mut Target {
    configuration.targets.get_mut("target").unwrap()
}

/// What becomes of one message with one attempt, and what is left behind afterwards: nothing.
pub(crate) async fn fate<F: Future<Output = ()> + Send>(
    timeout: Duration,
    act: impl Fn(usize, TcpStream) -> F + Send + Sync + 'static,
) -> Value {
    let nasty = Nasty::start(act).await;
    let bench =
        Bench::start(nasty.address, |configuration| target(configuration).settings.timeout = timeout).await;
    let outcome = bench.push("work").await;
    bench.end(&nasty).await;
    outcome
}

/// The fate of a message whose target answers with these bytes and closes.
pub(crate) async fn fate_of(answer: impl Into<Vec<u8>>) -> Value {
    let answer = answer.into();
    fate(DEADLINE, move |_, stream| reply_and_close(stream, answer.clone())).await
}

async fn reply_and_close(mut stream: TcpStream, answer: Vec<u8>) {
    if request(&mut stream).await.is_some() {
        let _ = stream.write_all(&answer).await;
    }
}

/// Checks that the one attempt failed, with this kind and these words.
#[track_caller]
pub(crate) fn assert_failed(outcome: &Value, kind: &str, words: &str) {
    assert_eq!(
        (&outcome["status"], &outcome["dead_reason"], &outcome["attempts"]),
        (&json!("dead"), &json!("attempts-exhausted"), &json!(1)),
        "{outcome}"
    );
    let error = &outcome["last_error"];
    assert_eq!(error["kind"], kind, "{outcome}");
    assert!(error["message"].as_str().unwrap().contains(words), "{words:?} is not in {error}");
}

/// Checks that the message was done at its first hand-out.
#[track_caller]
pub(crate) fn assert_done(outcome: &Value) {
    assert_eq!(
        (&outcome["status"], &outcome["attempts"], &outcome["deliveries"]),
        (&json!("succeeded"), &json!(0), &json!(1)),
        "{outcome}"
    );
}

/// Reads a request: its head and as much of a body as its length says. `None`: the connection ended before.
pub(crate) async fn request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut read = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if read.len() >= end + 4 + length {
                return Some(String::from_utf8_lossy(&read).into_owned());
            }
        }
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => read.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
}

/// Reads until the caller closes.
pub(crate) async fn closed<S: AsyncRead + Unpin>(mut stream: S) {
    let mut chunk = vec![0; 64 << 10];
    while stream.read(&mut chunk).await.is_ok_and(|count| count > 0) {}
}

/// Sends the same bytes until the caller closes.
pub(crate) async fn flood<S: AsyncWrite + Unpin>(mut stream: S, bytes: &[u8]) {
    while stream.write_all(bytes).await.is_ok() {}
}

/// Answers every request of a connection with these bytes.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: &[u8]) {
    while request(&mut stream).await.is_some() {
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The most memory that this process has ever had in use.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
