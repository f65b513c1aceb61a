//! Calls that get nowhere: no name, no listener, no connection in time.
//!
//! Owns the steps before a request is sent. Must never count such a call among those that may occupy the target.

use super::{Bench, Nasty, SOON, assert_failed, closed, target};
use crate::harness::{Server, eventually, name};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpListener;

/// A target that holds what timed out for so long that a second call would have to wait.
fn with_a_long_hold(configuration: &mut millpond_config::Configuration) {
    let target = target(configuration);
    target.settings.concurrency = 1;
    target.settings.timeout = SOON;
    target.settings.hold_after_timeout = Some(Duration::from_hours(1));
}

async fn in_flight(server: &Server) -> String {
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let line =
        metrics.lines().find_map(|line| line.strip_prefix("millpond_target_inflight{target=\"target\"} "));
    line.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_exist_is_not_resolved() {
    let nasty = Nasty::start(async |_, _| {}).await;
    let bench = Bench::start(nasty.address, |configuration| {
        target(configuration).url = "http://no-such-host.invalid/".parse().unwrap();
        target(configuration).settings.timeout = Duration::from_secs(20);
        target(configuration).connect_timeout = Some(Duration::from_secs(20));
    })
    .await;
    assert_failed(&bench.push("x").await, "resolve", "");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_nobody_listens_on_refuses_the_connection() {
    let nasty = Nasty::start(async |_, _| {}).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [format!("http://{nobody}/"), format!("https://{nobody}/")] {
        let bench =
            Bench::start(nasty.address, |configuration| target(configuration).url = url.parse().unwrap())
                .await;
        assert_failed(&bench.push("x").await, "connect", "refused");
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_hangs_never_occupied_the_target() {
    let nasty = Nasty::start(async |_, stream| closed(stream).await).await;
    let bench = Bench::start(nasty.address, |configuration| {
        with_a_long_hold(configuration);
        target(configuration).url = format!("https://{}/", nasty.address).parse().unwrap();
    })
    .await;
    // The second one would wait for an hour if the first one were taken to be at work still.
    for _ in 0..2 {
        let outcome = bench.push("x").await;
        assert_failed(&outcome, "tls", "the TLS handshake was not done within 200ms");
        assert_eq!(outcome["history"][0]["outcome"], "failed");
    }
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_has_a_time_of_its_own_within_that_of_the_call() {
    let nasty = Nasty::start(async |_, stream| closed(stream).await).await;
    let bench = Bench::start(nasty.address, |configuration| {
        let target = target(configuration);
        target.url = format!("https://{}/", nasty.address).parse().unwrap();
        target.settings.timeout = Duration::from_mins(5);
        target.connect_timeout = Some(SOON);
    })
    .await;
    assert_failed(&bench.push("x").await, "tls", "within 200ms");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_never_accepted_never_occupied_the_target() {
    // Nobody accepts, and the line of those who wait for it is full.
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let full = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(SOON, tokio::net::TcpStream::connect(full)).await {
        waiting.push(stream);
    }
    let nasty = Nasty::start(async |_, _| {}).await;
    for scheme in ["http", "https"] {
        let bench = Bench::start(nasty.address, |configuration| {
            with_a_long_hold(configuration);
            target(configuration).url = format!("{scheme}://{full}/").parse().unwrap();
        })
        .await;
        for _ in 0..2 {
            assert_failed(&bench.push("x").await, "connect", "");
        }
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_sent_and_timed_out_is_held() {
    let nasty = Nasty::start(async |_, stream| closed(stream).await).await;
    let bench = Bench::start(nasty.address, with_a_long_hold).await;
    let outcome = bench.push("x").await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
    assert_eq!(outcome["history"][0]["outcome"], "timed-out");
    assert_eq!(in_flight(&bench.server).await, "1.0");
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_without_a_listener_costs_its_attempts_and_no_more() {
    let nasty = Nasty::start(async |_, _| {}).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for http2 in [None, Some(true)] {
        let bench = Bench::start(nasty.address, |configuration| {
            target(configuration).url = format!("http://{nobody}/").parse().unwrap();
            target(configuration).http2 = http2;
            // With its breaker, nothing more would be tried.
            target(configuration).settings.breaker = None;
            configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 3;
        })
        .await;
        let items: Vec<Value> = (0..20).map(|number| json!({"body": format!("{number}")})).collect();
        bench.server.post("/v1/queues/push/messages/batch", &json!(items)).await;
        eventually("all are given up", async || {
            let stats = bench.server.stats("push").await;
            stats["dead_total"] == 20 || stats["paused"] == 1
        })
        .await;
        bench.end(&nasty).await;
    }
}
