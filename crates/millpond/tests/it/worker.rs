//! The library's worker against a real server: everything is done, whatever happens to the server.
//!
//! Owns the workers it starts. Must never assert how long anything takes.

use crate::process::{Server, millpond};
use millpond_api::client::Client;
use millpond_api::types::BatchMessage;
use millpond_api::worker::{Event, Message, Outcome, Summary, Worker};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Longest time anything may take before a test fails.
const DEADLINE: Duration = Duration::from_mins(1);

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("it must not take this long")
}

/// Starts a server at `address` on `data`.
fn start_at(address: &str, data: &Path) -> Server {
    let mut command = millpond();
    command.args(["serve", "--json", "--listen", address, "--data"]).arg(data);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    Server::await_start(command)
}

fn address(server: &Server) -> String {
    server.url.strip_prefix("http://").unwrap().to_owned()
}

async fn fill(client: &Client, count: usize) {
    let body = |number: usize| BatchMessage { body: number.to_string(), ..BatchMessage::default() };
    for batch in (0..count).map(body).collect::<Vec<_>>().chunks(500) {
        client.enqueue_batch("jobs", batch).await.unwrap();
    }
}

/// How often each message was begun.
type Begun = Arc<Mutex<HashMap<String, u32>>>;

fn note(begun: &Begun, message: &Message) -> u32 {
    let mut begun = begun.lock().unwrap();
    let times = begun.entry(message.id.clone()).or_default();
    *times += 1;
    *times
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_done_though_handlers_fail_and_panic() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    let client = Client::new(&server.url).unwrap();
    let retry = json!({"backoff_min_seconds": 0.001, "backoff_max_seconds": 0.01});
    client.put_queue("jobs", &json!({"prefetch": 200, "retry": retry})).await.unwrap();
    fill(&client, 2_000).await;
    let begun = Begun::default();
    let (seen, done) = (Arc::clone(&begun), Arc::new(Notify::new()));
    let (completed, all) = (Mutex::new(0), Arc::clone(&done));
    let worker = Worker::new(client.clone(), "jobs").concurrency(64).observe(move |event| {
        if let Event::Settled { outcome: Outcome::Complete { .. }, .. } = event {
            let mut completed = completed.lock().unwrap();
            *completed += 1;
            if *completed == 2_000 {
                all.notify_one();
            }
        }
    });
    let handler = move |message: Message| {
        let times = note(&seen, &message);
        async move {
            let number: u32 = std::str::from_utf8(&message.body).unwrap().parse().unwrap();
            match number % 20 {
                0 if times == 1 => Outcome::retry("the first time is not the right time"),
                1 if times == 1 => panic!("a fault of the handler"),
                2 if times == 1 => Outcome::release(),
                _ => Outcome::result("text/plain", message.body),
            }
        }
    };
    let summary = within(worker.run(handler, async move { done.notified().await })).await.unwrap();
    assert_eq!((summary.completed, summary.lost, summary.dead), (2_000, 0, 0), "{summary:?}");
    assert_eq!((summary.retried, summary.panicked, summary.released), (200, 100, 100), "{summary:?}");
    let stats = client.stats("jobs").await.unwrap();
    assert_eq!((stats.completed_total, stats.ready, stats.leased, stats.backoff), (2_000, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_over_a_kill_of_the_server_and_what_it_has_begun_it_settles() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start_at("127.0.0.1:0", &data);
    let address = address(&server);
    server.run(&["queues", "create", "jobs", "--prefetch", "200"]).expect(0);
    let client = Client::new(&server.url).unwrap();
    fill(&client, 1_000).await;
    let begun = Begun::default();
    let (seen, count) = (Arc::clone(&begun), Arc::clone(&begun));
    let half = Arc::new(Notify::new());
    let half_way = Arc::clone(&half);
    let handler = move |message: Message| {
        note(&seen, &message);
        if seen.lock().unwrap().len() == 500 {
            half_way.notify_one();
        }
        async {}
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(client.clone(), "jobs").concurrency(16);
    let running = tokio::spawn(worker.run(handler, async { drop(stopped.await) }));
    within(half.notified()).await;
    // The kill.
    drop(server);
    let server = start_at(&address, &data);
    let all_done = async {
        while client.stats("jobs").await.map_or(0, |stats| 1_000 - stats.ready - stats.leased - stats.backoff)
            < 1_000
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(all_done).await;
    drop(stop);
    let summary: Summary = within(running).await.unwrap().unwrap();
    assert_eq!(count.lock().unwrap().len(), 1_000, "every message was begun");
    assert!(summary.completed >= 984, "what was answered before the kill is not said again: {summary:?}");
    assert_eq!(summary.dead + summary.retried + summary.released, 0, "{summary:?}");
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlasts_itself_while_its_handler_works() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    let client = Client::new(&server.url).unwrap();
    fill(&client, 1).await;
    // Until the handler is told to end, somebody else asks for the message again and again, beyond several leases.
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let worker = Worker::new(client.clone(), "jobs").lease(Duration::from_secs(1)).limit(1);
    let handler = move |_| {
        let held = Arc::clone(&held);
        async move { held.notified().await }
    };
    let running = tokio::spawn(worker.run(handler, std::future::pending()));
    let taken = async { while client.stats("jobs").await.unwrap().leased == 0 {} };
    within(taken).await;
    let wish = millpond_api::types::LeaseRequest { wait_seconds: Some(3.0), ..Default::default() };
    assert!(client.lease("jobs", &wish).await.unwrap().messages.is_empty(), "it is in work");
    go.notify_one();
    let summary = within(running).await.unwrap().unwrap();
    assert_eq!((summary.completed, summary.lost), (1, 0));
}
