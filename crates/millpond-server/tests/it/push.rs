//! Targets that misbehave.
//!
//! Owns the tests of push outcomes over real sockets. Must never leave a call behind: in flight is 0 at the end.

use crate::backend::{Act, Backend, Seen, ok, status};
use crate::harness::{Server, configuration, eventually, name, with_target};
use millpond_core::settings::AdaptiveSettings;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Pushes one message at a target that acts so, with two attempts, and returns its status.
async fn push_at(act: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static) -> (Value, Backend) {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(act).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 2);
    configuration.targets.get_mut("target").unwrap().settings.timeout = Duration::from_millis(300);
    configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 2;
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("push", "work").await;
    let outcome = server.outcome(&accepted).await;
    eventually("nothing is in flight", async || {
        let metrics = server.get("/metrics").await.body;
        String::from_utf8_lossy(&metrics).contains("millpond_target_inflight{target=\"target\"} 0.0")
    })
    .await;
    eventually("the target is left alone", async || backend.busy() == 0).await;
    server.stop().await;
    (outcome, backend)
}

fn kinds(outcome: &Value) -> Vec<String> {
    let history = outcome["history"].as_array().unwrap();
    history.iter().map(|attempt| attempt["error"]["kind"].as_str().unwrap_or("none").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_of_failing_is_a_failed_attempt_with_its_kind() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort";
    for (what, act, kind) in [
        ("silence", Act::ReplyAndHang(String::new()), "timeout"),
        ("half a head", Act::ReplyAndHang("HTTP/1.1 200 OK\r\ncont".to_owned()), "timeout"),
        ("half a body", Act::ReplyAndHang(head.to_owned()), "timeout"),
        ("a reset", Act::Reset, "reset"),
        ("a close without an answer", Act::ReplyAndClose(String::new()), "reset"),
        ("a body that ends early", Act::ReplyAndClose(head.to_owned()), "reset"),
        ("nonsense", Act::ReplyAndClose("SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned()), "protocol"),
        (
            "an endless head",
            Act::Flood("x-filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".to_owned()),
            "protocol",
        ),
        ("a server error", status("500 Oops", ""), "status"),
        ("unavailable without a time", status("503 Busy", ""), "status"),
        ("a redirect", status("302 Found", "location: /elsewhere\r\n"), "status"),
        ("not found", status("404 Not Found", ""), "status"),
    ] {
        let (outcome, backend) = push_at(move |_, _| act.clone()).await;
        assert_eq!(
            (&outcome["status"], &outcome["dead_reason"]),
            (&json!("dead"), &json!("attempts-exhausted")),
            "{what}: {outcome}"
        );
        assert_eq!(kinds(&outcome), [kind, kind], "{what}: {outcome}");
        assert_eq!(backend.seen().len(), 2, "{what}: each attempt is one request");
        assert!(backend.seen().iter().all(|seen| seen.head.starts_with("POST /work ")), "{what}");
        let attempts: Vec<_> =
            backend.seen().iter().map(|seen| seen.header("millpond-attempt").to_owned()).collect();
        assert_eq!(attempts, ["1", "2"], "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_message_itself_makes_it_a_dead_letter_at_once() {
    let act = |_, _: &Seen| Act::Reply("HTTP/1.1 422 No\r\ncontent-length: 9\r\n\r\nbad\tdate\n".to_owned());
    let (outcome, backend) = push_at(act).await;
    assert_eq!((&outcome["status"], &outcome["dead_reason"]), (&json!("dead"), &json!("rejected")));
    assert_eq!(
        (&outcome["last_error"]["message"], &outcome["last_error"]["http_status"]),
        (&json!("bad date"), &json!(422))
    );
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttling_target_is_left_alone_and_no_attempt_is_counted() {
    for throttle in ["429 Slow\r\nretry-after: 1", "503 Busy\r\nretry-after: 0"] {
        let throttle = throttle.to_owned();
        let act = move |number, _: &Seen| if number == 0 { status(&throttle, "") } else { ok("done") };
        let (outcome, backend) = push_at(act).await;
        assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("succeeded"), &json!(0)), "{outcome}");
        assert_eq!(
            (&outcome["deliveries"], &outcome["history"][0]["outcome"]),
            (&json!(2), &json!("throttled"))
        );
        assert_eq!(backend.seen()[1].header("millpond-attempt"), "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_answer_is_cut_and_its_connection_dropped() {
    let act = |_, _: &Seen| Act::Flood("HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n".to_owned());
    let (outcome, backend) = push_at(act).await;
    assert_eq!(
        (&outcome["status"], &outcome["result"]["size"]),
        (&json!("succeeded"), &json!(64 << 10)),
        "{outcome}"
    );
    eventually("the flood is cut off", async || backend.closed() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_can_be_overridden() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| status("404 Not Found", "")).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 1);
    configuration.targets.get_mut("target").unwrap().outcomes.insert(404, millpond_config::PushOutcome::Dead);
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("push", "x").await;
    assert_eq!(server.outcome(&accepted).await["dead_reason"], "rejected");
    assert_eq!(backend.seen().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_there_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    // A port that was free a moment ago, and that nobody listens on.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, address, 1);
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("push", "x").await;
    let outcome = server.outcome(&accepted).await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("dead"), &json!(5)));
    assert!(kinds(&outcome).iter().all(|kind| kind == "connect"), "{outcome}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_went_stale_in_the_pool_neither_fails_nor_repeats_a_call() {
    let directory = tempfile::tempdir().unwrap();
    let closing = |_, _: &Seen| Act::ReplyAndClose("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned());
    let backend = Backend::start(closing).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 1);
    let server = Server::start(configuration).await;
    for number in 1..=10 {
        let accepted = server.enqueue("push", "x").await;
        assert_eq!(server.outcome(&accepted).await["status"], "succeeded");
        eventually("the target has closed", async || backend.closed() == number).await;
    }
    assert_eq!(backend.seen().len(), 10);
    server.stop().await;
}

/// The value of a target's metric.
async fn of_target(server: &Server, metric: &str) -> f64 {
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let line = format!("{metric}{{target=\"target\"}} ");
    metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adaptive_target_is_given_what_it_can_work_on_and_not_its_hard_cap() {
    let directory = tempfile::tempdir().unwrap();
    let workers = Arc::new(Semaphore::new(4));
    let act = move |_, _: &Seen| Act::Work(Arc::clone(&workers), Duration::from_millis(20));
    let backend = Backend::start(act).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 200);
    configuration.targets.get_mut("target").unwrap().settings.adaptive = Some(AdaptiveSettings::default());
    let server = Server::start(configuration).await;
    for _ in 0..8 {
        let batch = Value::Array(vec![json!({"body": "work"}); 120]);
        assert_eq!(server.post("/v1/queues/push/messages/batch", &batch).await.status, 200);
    }
    eventually("a limit is found below the cap", async || {
        let limit = of_target(&server, "millpond_target_limit").await;
        (2.0..=50.0).contains(&limit)
    })
    .await;
    eventually("everything is done", async || server.stats("push").await["completed_total"] == 960).await;
    assert_eq!(backend.seen().len(), 960, "each call is made once");
    assert!(backend.busiest() <= 100, "{} calls at once at a target with 4 workers", backend.busiest());
    let limit = of_target(&server, "millpond_target_limit").await;
    assert!((2.0..=50.0).contains(&limit), "{limit} for 4 workers");
    server.stop().await;
}
