//! Targets as resources, and what the breaker of one does over real sockets.
//!
//! Owns nothing but tests. Must never wait for longer than a condition takes to come true.

use crate::backend::{Backend, ok, status};
use crate::harness::{Server, configuration, eventually, name, with_target};
use millpond_core::settings::BreakerSettings;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A target that answers 500 until it is mended, with a breaker that opens after three failures.
async fn broken(probe_after: Duration) -> (Server, Backend, Arc<AtomicBool>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let backend = Backend::start(move |_, _| {
        if mended.load(Ordering::SeqCst) { ok("done") } else { status("500 Internal Server Error", "") }
    })
    .await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 1);
    let breaker =
        BreakerSettings { failures: 3, probe_after, probe_max: probe_after, ..BreakerSettings::default() };
    configuration.targets.get_mut("target").unwrap().settings.breaker = Some(breaker);
    configuration.queues.get_mut(&name("push")).unwrap().retry.backoff_max = Duration::from_millis(50);
    let server = Server::start(configuration).await;
    (server, backend, is_mended, directory)
}

async fn shown(server: &Server) -> Value {
    server.get("/v1/targets/target").await.json()
}

async fn opens(server: &Server) {
    eventually("the breaker opens", async || shown(server).await["state"] != "closed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_down_is_let_alone_and_everything_is_done_once_it_is_mended() {
    let (server, backend, is_mended, _directory) = broken(Duration::from_millis(100)).await;
    let mut accepted = Vec::new();
    for number in 0..12 {
        accepted.push(server.enqueue("push", &number.to_string()).await);
    }
    opens(&server).await;
    let queue = server.get("/v1/queues/push").await.json();
    assert_eq!((&queue["held"], &queue["paused"]), (&json!("breaker-open"), &json!(false)));
    let later = server.enqueue("push", "later").await;
    assert_eq!(later["expected_start_seconds"], Value::Null, "nothing is promised");
    eventually("a probe fails", async || {
        let metrics = server.get("/metrics").await.body;
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        !metrics.contains("millpond_deliveries_total{queue=\"push\",outcome=\"probe-failed\"} 0")
    })
    .await;
    is_mended.store(true, Ordering::SeqCst);
    for one in accepted.iter().chain([&later]) {
        let outcome = server.outcome(one).await;
        assert_eq!(outcome["status"], "succeeded", "{outcome}");
        assert!(outcome["attempts"].as_u64().unwrap() <= 3, "the three that opened it: {outcome}");
    }
    let target = shown(&server).await;
    assert_eq!((&target["state"], &target["failures_in_row"]), (&json!("closed"), &json!(0)));
    assert_eq!(target["successes_total"], 13);
    assert_eq!(target["failures_total"], backend.seen().len() as u64 - 13);
    assert_eq!(server.get("/v1/queues/push").await.json()["held"], Value::Null);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_closes_a_breaker_without_waiting_for_a_probe() {
    let (server, _backend, is_mended, _directory) = broken(Duration::from_mins(30)).await;
    let mut accepted = Vec::new();
    for number in 0..6 {
        accepted.push(server.enqueue("push", &number.to_string()).await);
    }
    opens(&server).await;
    let open = shown(&server).await;
    assert!(open["next_probe_seconds"].as_f64().unwrap() > 600.0, "{open}");
    is_mended.store(true, Ordering::SeqCst);
    let closed = server.send("POST", "/v1/targets/target/reset", &[], "").await;
    assert_eq!((closed.status, &closed.json()["state"]), (200, &json!("closed")));
    for one in &accepted {
        assert_eq!(server.outcome(one).await["status"], "succeeded");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_shown_whole_and_an_unknown_one_is_said_to_be() {
    let (server, backend, _, _directory) = broken(Duration::from_secs(1)).await;
    let all = server.get("/v1/targets").await.json();
    let target = &all["targets"][0];
    let fields = [
        "adaptive",
        "concurrency",
        "failures_in_row",
        "failures_total",
        "inflight",
        "limit",
        "name",
        "next_probe_seconds",
        "paused_seconds",
        "queues",
        "ramp_limit",
        "rate_per_second",
        "rejected_total",
        "state",
        "state_seconds",
        "successes_total",
        "throttled_total",
        "url",
    ];
    let mut found: Vec<&str> = target.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, fields);
    assert_eq!((&target["name"], &target["state"]), (&json!("target"), &json!("closed")));
    assert_eq!(target["queues"], json!(["push"]));
    assert!(target["url"].as_str().unwrap().starts_with(&format!("http://{}/", backend.address)), "{target}");
    for (method, path) in
        [("GET", "/v1/targets/none"), ("GET", "/v1/targets/no%20name"), ("POST", "/v1/targets/none/reset")]
    {
        assert_eq!(server.send(method, path, &[], "").await.slug(), "unknown-target", "{method} {path}");
    }
    assert_eq!(server.send("DELETE", "/v1/targets/target", &[], "").await.slug(), "method-not-allowed");
    server.stop().await;
}
