//! The worker against a server that is played: what only a server in trouble shows.
//!
//! Owns that server. Must never depend on how fast the machine is: each test waits for what the worker does.

use super::{Event, Message, Outcome, RunError, Summary, Worker};
use crate::client::Client;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};

/// A request, and where its answer goes: status, more headers, body. Without an answer the connection breaks.
struct Asked {
    path: String,
    body: Value,
    answer: oneshot::Sender<(u16, &'static str, Value)>,
}

impl Asked {
    fn ok(self, body: Value) {
        let _ = self.answer.send((200, "", body));
    }

    /// Hands out messages of these names; the receipt is the name.
    fn lease(self, names: &[&str]) {
        let message = |name: &&str| {
            json!({"id": name, "receipt": name, "body": name, "content_type": "text/plain", "headers": {}, "attempt": 1,
                "deliveries": 1, "criticality": "critical", "accepted_at": "", "lease_expires_at": ""})
        };
        self.ok(json!({"messages": names.iter().map(message).collect::<Vec<_>>()}));
    }

    /// Answers every receipt with `status`.
    fn each(self, status: u16) {
        let answers: Vec<_> = self
            .receipts()
            .into_iter()
            .map(|receipt| json!({"receipt": receipt, "status": status}))
            .collect();
        self.ok(json!(answers));
    }

    fn problem(self, status: u16, slug: &str, headers: &'static str) {
        let body =
            json!({"type": format!("/problems/{slug}"), "title": "no", "status": status, "detail": slug});
        let _ = self.answer.send((status, headers, body));
    }

    fn receipts(&self) -> Vec<String> {
        let list = self.body.as_array().unwrap().iter();
        list.map(|item| item["receipt"].as_str().unwrap().to_owned()).collect()
    }
}

/// The requests, each kind for itself.
struct Played {
    client: Client,
    leases: mpsc::UnboundedReceiver<Asked>,
    extensions: mpsc::UnboundedReceiver<Asked>,
    settlements: mpsc::UnboundedReceiver<Asked>,
}

impl Played {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (lease, leases) = mpsc::unbounded_channel();
        let (extend, extensions) = mpsc::unbounded_channel();
        let (settle, settlements) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, [lease.clone(), extend.clone(), settle.clone()]));
            }
        });
        Self { client, leases, extensions, settlements }
    }

    fn worker(&self) -> Worker {
        Worker::new(self.client.clone(), "q")
    }
}

async fn serve(mut stream: TcpStream, [lease, extend, settle]: [mpsc::UnboundedSender<Asked>; 3]) {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        let whole = text.split_once("\r\n\r\n").and_then(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            (body.len() >= length.parse().unwrap()).then(|| (head.to_owned(), body.to_owned()))
        });
        let Some((head, body)) = whole else {
            match stream.read_buf(&mut read).await {
                Ok(1..) => continue,
                _ => return,
            }
        };
        read.clear();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let (answer, answered) = oneshot::channel();
        let to = match path.as_str() {
            "/v1/leases/extend" => &extend,
            "/v1/settlements" => &settle,
            _ => &lease,
        };
        let _ = to.send(Asked { path, body: serde_json::from_str(&body).unwrap(), answer });
        let mut early = [0];
        let answered = tokio::select! {
            answered = answered => answered,
            // Who asked has left.
            _ = stream.read(&mut early) => return,
        };
        let Ok((status, headers, body)) = answered else { return };
        let body = body.to_string();
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it must not take this long")
}

async fn next(asked: &mut mpsc::UnboundedReceiver<Asked>) -> Asked {
    within(asked.recv()).await.unwrap()
}

type Running = tokio::task::JoinHandle<Result<Summary, RunError>>;

/// Starts `worker`; it is told to stop through the sender.
fn start<F, O>(
    worker: Worker,
    handler: impl Fn(Message) -> F + Send + Sync + 'static,
) -> (oneshot::Sender<()>, Running)
where
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome> + 'static,
{
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    (stop, tokio::spawn(async move { worker.run(handler, shutdown).await }))
}

async fn ended(running: Running) -> Summary {
    within(running).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_worker_asks_for_no_more_than_it_has_room_for_and_says_who_it_is() {
    let mut played = Played::start().await;
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let worker = played.worker().concurrency(3).consumer("me").wait(Duration::from_secs(7));
    let (stop, running) = start(worker, move |_| {
        let held = Arc::clone(&held);
        async move { held.notified().await }
    });
    let asked = next(&mut played.leases).await;
    assert_eq!(asked.path, "/v1/queues/q/leases");
    assert_eq!(asked.body, json!({"max": 3, "lease_seconds": 30.0, "wait_seconds": 7.0, "consumer": "me"}));
    asked.lease(&["a", "b"]);
    let asked = next(&mut played.leases).await;
    assert_eq!(asked.body["max"], 1);
    asked.lease(&["c"]);
    go.notify_one();
    next(&mut played.settlements).await.each(200);
    let asked = next(&mut played.leases).await;
    assert_eq!(asked.body["max"], 1, "one of three has ended");
    drop(stop);
    go.notify_waiters();
    while !running.is_finished() {
        tokio::select! {
            Some(asked) = played.settlements.recv() => asked.each(200),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    let summary = ended(running).await;
    assert_eq!((summary.started, summary.completed), (3, 3));
}

#[tokio::test]
async fn every_word_of_a_handler_reaches_the_server_and_a_panic_is_a_retry() {
    let mut played = Played::start().await;
    let (stop, running) = start(played.worker().concurrency(7), |message| async move {
        match message.id.as_str() {
            "done" => Outcome::done(),
            "result" => Outcome::result("x/y", vec![0xff, 0xfe]),
            "retry" => Outcome::retry("not now").after(Duration::from_secs(5)),
            "dead" => Outcome::dead("never"),
            "release" => Outcome::release(),
            "error" => Err::<(), _>("went wrong").into(),
            _ => panic!("out of {}", "order"),
        }
    });
    let names = ["done", "result", "retry", "dead", "release", "error", "panic"];
    next(&mut played.leases).await.lease(&names);
    let mut said = Vec::new();
    while said.len() < names.len() {
        let asked = next(&mut played.settlements).await;
        said.extend(asked.body.as_array().unwrap().clone());
        asked.each(200);
    }
    for expected in [
        json!({"receipt": "done", "outcome": "complete"}),
        json!({"receipt": "result", "outcome": "complete", "result": "//4=", "result_encoding": "base64",
            "content_type": "x/y"}),
        json!({"receipt": "retry", "outcome": "retry", "error": "not now", "delay_seconds": 5.0}),
        json!({"receipt": "dead", "outcome": "dead", "error": "never"}),
        json!({"receipt": "release", "outcome": "release"}),
        json!({"receipt": "error", "outcome": "retry", "error": "went wrong"}),
        json!({"receipt": "panic", "outcome": "retry", "error": "the handler panicked: out of order"}),
    ] {
        assert!(said.contains(&expected), "{expected} is not in {said:#?}");
    }
    drop(stop);
    let summary = ended(running).await;
    let counts = [summary.completed, summary.retried, summary.dead, summary.released, summary.panicked];
    assert_eq!(counts, [2, 3, 1, 1, 1]);
}

#[tokio::test]
async fn what_a_queue_will_never_allow_stops_the_worker_and_trouble_does_not() {
    let mut played = Played::start().await;
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let worker = played.worker().observe(move |event| match event {
        Event::Failed { request, pause, .. } => seen.lock().unwrap().push((request, pause)),
        Event::Recovered => seen.lock().unwrap().push(("recovered", Duration::ZERO)),
        _ => {}
    });
    let (_stop, running) = start(worker, |_| async {});
    // A connection that breaks, a proxy that answers in place of the server, and a server that asks for patience.
    drop(next(&mut played.leases).await);
    let _ = next(&mut played.leases).await.answer.send((502, "", json!("<html>")));
    next(&mut played.leases).await.problem(503, "draining", "retry-after: 1\r\n");
    next(&mut played.leases).await.lease(&[]);
    next(&mut played.leases).await.problem(404, "unknown-queue", "");
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the worker stopped: unknown-queue");
    let failures = failures.lock().unwrap();
    let requests: Vec<_> = failures.iter().map(|(request, _)| *request).collect();
    assert_eq!(requests, ["lease", "lease", "lease", "recovered"]);
    assert!(failures[2].1 >= Duration::from_secs(1), "{failures:?}");
}

#[tokio::test]
async fn a_settlement_without_an_answer_is_said_again_and_counts_once() {
    let mut played = Played::start().await;
    let (stop, running) = start(played.worker(), |_| async {});
    next(&mut played.leases).await.lease(&["a"]);
    drop(next(&mut played.settlements).await);
    next(&mut played.settlements).await.problem(503, "unavailable", "retry-after: 1\r\n");
    let asked = next(&mut played.settlements).await;
    assert_eq!(asked.receipts(), ["a"]);
    asked.each(200);
    drop(stop);
    assert_eq!(ended(running).await.completed, 1);
}

#[tokio::test]
async fn a_settlement_that_is_no_use_any_more_is_given_up_and_told() {
    let mut played = Played::start().await;
    let worker = played.worker().lease(Duration::from_millis(200));
    let (stop, running) = start(worker, |_| async { Outcome::retry("no") });
    next(&mut played.leases).await.lease(&["a"]);
    drop(next(&mut played.settlements).await);
    drop(stop);
    // Nobody ever answers; the worker ends all the same, once the lease is over.
    while !running.is_finished() {
        tokio::select! {
            Some(asked) = played.settlements.recv() => drop(asked),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    let summary = ended(running).await;
    assert_eq!((summary.started, summary.retried, summary.lost), (1, 0, 1));
}

#[tokio::test]
async fn settlements_gather_while_one_is_on_its_way() {
    let mut played = Played::start().await;
    let (stop, running) = start(played.worker().concurrency(50), |_| async {});
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    next(&mut played.leases).await.lease(&names[..1]);
    let first = next(&mut played.settlements).await;
    next(&mut played.leases).await.lease(&names[1..]);
    // Once it asks again, it has handed on what came before.
    let waiting = next(&mut played.leases).await;
    first.each(200);
    let mut settled = 1;
    let mut requests = 0;
    while settled < 20 {
        let asked = next(&mut played.settlements).await;
        settled += asked.receipts().len();
        requests += 1;
        asked.each(200);
    }
    assert!(requests <= 3, "{requests} requests");
    drop((waiting, stop));
    assert_eq!(ended(running).await.completed, 20);
}

#[tokio::test]
async fn what_is_settled_late_belongs_to_somebody_else_and_is_told_as_lost() {
    let mut played = Played::start().await;
    let (stop, running) = start(played.worker(), |_| async {});
    next(&mut played.leases).await.lease(&["a"]);
    next(&mut played.settlements).await.each(409);
    drop(stop);
    let summary = ended(running).await;
    assert_eq!((summary.completed, summary.lost), (0, 1));
}

#[tokio::test]
async fn of_a_batch_that_is_refused_each_goes_alone_and_what_cannot_be_taken_is_a_dead_letter() {
    let mut played = Played::start().await;
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let (stop, running) = start(played.worker().concurrency(3), move |message| {
        let held = Arc::clone(&held);
        async move {
            if message.id != "first" {
                held.notified().await;
            }
            Outcome::result("x/y", message.id)
        }
    });
    next(&mut played.leases).await.lease(&["first", "small", "huge"]);
    // The other two end while the first one is on its way.
    let first = next(&mut played.settlements).await;
    go.notify_waiters();
    tokio::task::yield_now().await;
    first.each(200);
    let (mut done, mut dead) = (0, None);
    while done < 1 || dead.is_none() {
        let asked = next(&mut played.settlements).await;
        let has_huge = asked.body.as_array().unwrap().iter().any(|item| item["result"] == "huge");
        if has_huge {
            asked.problem(413, "too-large", "");
        } else if asked.body[0]["outcome"] == "dead" {
            dead = Some(asked.body[0]["error"].as_str().unwrap().to_owned());
            asked.each(200);
        } else {
            done += asked.receipts().len();
            asked.each(200);
        }
    }
    assert!(dead.unwrap().contains("too-large"));
    drop(stop);
    let summary = ended(running).await;
    assert_eq!((summary.completed, summary.dead), (2, 1));
}

#[tokio::test]
async fn a_lease_is_extended_while_its_handler_works_and_a_lost_one_tells_it() {
    let mut played = Played::start().await;
    let worker = played.worker().concurrency(2).lease(Duration::from_millis(400));
    let (stop, running) = start(worker, |message| async move {
        message.lost().await;
        Outcome::release()
    });
    next(&mut played.leases).await.lease(&["a", "b"]);
    for _ in 0..2 {
        let asked = next(&mut played.extensions).await;
        let mut receipts = asked.receipts();
        receipts.sort();
        assert_eq!(receipts, ["a", "b"]);
        assert!(asked.body.as_array().unwrap().iter().all(|item| item["lease_seconds"] == 0.4));
        asked.each(200);
    }
    let asked = next(&mut played.extensions).await;
    asked.each(409);
    let mut lost = 0;
    while lost < 2 {
        let asked = next(&mut played.settlements).await;
        lost += asked.receipts().len();
        asked.each(409);
    }
    drop(stop);
    assert_eq!(ended(running).await.lost, 2);
}

#[tokio::test]
async fn a_server_that_does_not_answer_extensions_costs_the_lease_in_the_end() {
    let mut played = Played::start().await;
    let worker = played.worker().lease(Duration::from_millis(200));
    let (stop, running) = start(worker, |message| async move { message.lost().await });
    next(&mut played.leases).await.lease(&["a"]);
    // Extensions break off; the handler ends all the same, because its lease is over, and the settlement decides.
    let settlement = loop {
        tokio::select! {
            Some(asked) = played.extensions.recv() => drop(asked),
            asked = next(&mut played.settlements) => break asked,
        }
    };
    settlement.each(200);
    drop(stop);
    assert_eq!(ended(running).await.completed, 1, "nobody else had it");
}

#[tokio::test]
async fn what_comes_while_the_worker_stops_is_given_back_at_once() {
    let mut played = Played::start().await;
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let (stop, running) = start(played.worker().concurrency(2), move |message| {
        count.fetch_add(1, Ordering::SeqCst);
        let held = Arc::clone(&held);
        async move {
            message.draining().await;
            held.notified().await;
        }
    });
    next(&mut played.leases).await.lease(&["in work"]);
    let waiting = next(&mut played.leases).await;
    drop(stop);
    waiting.lease(&["late"]);
    let asked = next(&mut played.settlements).await;
    assert_eq!(asked.body, json!([{"receipt": "late", "outcome": "release"}]));
    asked.each(200);
    go.notify_one();
    next(&mut played.settlements).await.each(200);
    let summary = ended(running).await;
    assert_eq!((summary.started, summary.completed, summary.released), (1, 1, 1));
    assert_eq!(started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_worker_that_only_waits_stops_at_once_and_takes_its_wish_back() {
    let mut played = Played::start().await;
    let (stop, running) = start(played.worker(), |_| async {});
    let mut waiting = next(&mut played.leases).await;
    drop(stop);
    assert_eq!(ended(running).await, Summary::default());
    // Its connection is closed: a server takes back what it was about to hand out.
    within(waiting.answer.closed()).await;
}

#[tokio::test]
async fn a_handler_that_does_not_come_to_an_end_is_dropped_and_its_message_released() {
    let mut played = Played::start().await;
    let worker = played.worker().drain(Duration::from_millis(20));
    let (began, begins) = mpsc::unbounded_channel();
    let (stop, running) = start(worker, move |_| {
        let _ = began.send(());
        pending::<()>()
    });
    next(&mut played.leases).await.lease(&["a"]);
    let mut begins = begins;
    within(begins.recv()).await.unwrap();
    drop(stop);
    let asked = next(&mut played.settlements).await;
    assert_eq!(asked.body, json!([{"receipt": "a", "outcome": "release"}]));
    asked.each(200);
    assert_eq!(ended(running).await.released, 1);
}

#[tokio::test]
async fn a_worker_with_a_limit_or_until_empty_stops_by_itself() {
    let mut played = Played::start().await;
    let (_stop, running) = start(played.worker().concurrency(5).limit(2), |_| async {});
    let asked = next(&mut played.leases).await;
    assert_eq!(asked.body["max"], 2);
    asked.lease(&["a", "b"]);
    let mut settled = 0;
    while settled < 2 {
        let asked = next(&mut played.settlements).await;
        settled += asked.receipts().len();
        asked.each(200);
    }
    assert_eq!(ended(running).await.completed, 2);

    let (_stop, running) = start(played.worker().concurrency(5).until_empty(), |_| async {});
    let asked = next(&mut played.leases).await;
    assert_eq!(asked.body["wait_seconds"], 0.0);
    asked.lease(&["a"]);
    next(&mut played.leases).await.lease(&[]);
    next(&mut played.settlements).await.each(200);
    // What ended here may have made something else ready.
    next(&mut played.leases).await.lease(&[]);
    assert_eq!(ended(running).await.completed, 1);
}
