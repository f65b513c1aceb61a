//! What callers meet at a bound: refusal by class, and work that gives way to newer work.
//!
//! Owns the tests of how that is told. Must never depend on how fast the machine is.

use crate::harness::{Server, configuration, eventually, name, read_answer};
use millpond_core::settings::{Overflow, QueueSettings};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const MESSAGES: &str = "/v1/queues/q/messages";

async fn server_with(directory: &Path, change: impl FnOnce(&mut QueueSettings)) -> Server {
    let mut configuration = configuration(directory);
    change(configuration.queues.get_mut(&name("q")).unwrap());
    Server::start(configuration).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sheddable_work_is_refused_while_there_is_still_room_for_critical_work() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| queue.max_messages = Some(4)).await;
    let send =
        async |class: &str| server.send("POST", MESSAGES, &[("millpond-criticality", class)], "x").await;
    for (class, accepted) in [("sheddable", 2), ("sheddable-plus", 1), ("critical-plus", 1)] {
        for _ in 0..accepted {
            assert_eq!(send(class).await.status, 202, "{class}");
        }
        let refused = send(class).await;
        assert_eq!((refused.status, refused.slug().as_str()), (503, "queue-full"), "{class}");
    }
    let detail = send("sheddable").await.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("work of this class") && detail.contains("nothing was stored"), "{detail}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gave_way_to_newer_work_is_visible_counted_and_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| {
        queue.max_messages = Some(2);
        queue.overflow = Overflow::DropOldest;
    })
    .await;
    let first = server.send("POST", MESSAGES, &[("idempotency-key", "k")], "1").await.json();
    server.enqueue("q", "2").await;
    server.enqueue("q", "3").await;
    let seen = server.outcome(&first).await;
    assert_eq!((&seen["status"], &seen["attempts"]), (&json!("dropped"), &json!(0)), "{seen}");
    assert!(seen["finished_at"].is_string() && seen.get("dead_reason").is_none(), "{seen}");
    let listed = server.get(&format!("{MESSAGES}?state=dropped")).await.json();
    assert_eq!(listed["messages"][0]["id"], first["id"]);
    assert_eq!(server.get("/v1/queues/q/dead").await.json()["messages"], json!([]), "it is no dead letter");
    // Whoever repeats it is told what became of it, and it is not done after all.
    let again = server.send("POST", MESSAGES, &[("idempotency-key", "k")], "1").await.json();
    assert_eq!(
        (&again["id"], &again["status"], &again["duplicate"]),
        (&first["id"], &json!("dropped"), &json!(true))
    );
    let cancel = format!("/v1/messages/{}/cancel", first["id"].as_str().unwrap());
    assert_eq!(server.send("POST", &cancel, &[], "").await.slug(), "not-cancellable");
    let result = format!("/v1/messages/{}/result", first["id"].as_str().unwrap());
    assert_eq!(server.get(&result).await.slug(), "no-result");
    let stats = server.stats("q").await;
    assert_eq!(
        (&stats["ready"], &stats["dropped_total"], &stats["refused_total"]),
        (&json!(2), &json!(1), &json!(0))
    );
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    assert!(metrics.contains("millpond_dropped_total{queue=\"q\"} 1\n"), "{metrics}");
    let bodies: Vec<_> =
        server.lease("q", &json!({"max": 2})).await.iter().map(|message| message["body"].clone()).collect();
    assert_eq!(bodies, ["2", "3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_gives_way_to_less_critical_work_nor_does_what_somebody_has() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| {
        queue.max_messages = Some(2);
        queue.overflow = Overflow::DropOldest;
    })
    .await;
    let critical = [("millpond-criticality", "critical-plus")];
    server.send("POST", MESSAGES, &critical, "held").await;
    assert_eq!(server.lease("q", &json!({})).await.len(), 1);
    server.send("POST", MESSAGES, &critical, "waits").await;
    let refused = server.send("POST", MESSAGES, &[], "less critical").await;
    assert_eq!((refused.status, refused.slug().as_str()), (503, "queue-full"));
    assert_eq!(server.send("POST", MESSAGES, &critical, "as critical").await.status, 202);
    let stats = server.stats("q").await;
    assert_eq!(
        (&stats["leased"], &stats["ready"], &stats["dropped_total"]),
        (&json!(1), &json!(1), &json!(1))
    );
    server.stop().await;
}

/// A queue with room for one, whose callers wait for long.
async fn blocking(directory: &Path) -> Server {
    server_with(directory, |queue| {
        queue.max_messages = Some(1);
        queue.overflow = Overflow::Block;
        queue.block_for = Duration::from_mins(1);
    })
    .await
}

/// A caller that waits at the door, as the `number`th.
async fn caller(server: &Server, body: &str, number: u64) -> TcpStream {
    let mut stream = server.connect().await;
    let length = body.len();
    let request =
        format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    eventually("the caller waits", async || server.stats("q").await["blocked"] == number).await;
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_at_the_door_are_let_in_in_the_order_of_their_coming_and_never_before_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = blocking(directory.path()).await;
    server.enqueue("q", "0").await;
    let mut callers = Vec::new();
    for number in 1..=3 {
        callers.push(caller(&server, &number.to_string(), number).await);
    }
    for (number, mut waiting) in callers.into_iter().enumerate() {
        let held = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
        assert_eq!(held["body"], number.to_string());
        server.settle(json!({"outcome": "complete"}), &held["receipt"]).await;
        let answer = read_answer(&mut waiting).await;
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    }
    assert_eq!(server.lease("q", &json!({"wait_seconds": 20})).await[0]["body"], "3");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_at_the_door_are_told_to_come_back_when_the_server_is_about_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = blocking(directory.path()).await;
    server.enqueue("q", "stored").await;
    let mut waiting = caller(&server, "waits", 1).await;
    server.begin_to_stop();
    let answer = read_answer(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("draining"), "{answer}");
    server.ended().await.unwrap();
    let server = blocking(directory.path()).await;
    assert_eq!(server.stats("q").await["ready"], 1, "what was refused was not stored");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_have_a_bound_that_forgets_finished_work_first_and_refuses_when_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| queue.max_keys = 2).await;
    let send = async |key: &str| server.send("POST", MESSAGES, &[("idempotency-key", key)], "x").await;
    let first = send("a").await.json();
    send("b").await;
    let refused = send("c").await;
    assert_eq!((refused.status, refused.slug().as_str()), (503, "queue-full"));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("idempotency keys"), "{detail}");
    assert_eq!(server.send("POST", MESSAGES, &[], "x").await.status, 202, "without a key there is room");
    assert_eq!(send("a").await.json()["duplicate"], true, "known ones are answered");
    let held = server.lease("q", &json!({})).await[0].clone();
    assert_eq!(held["id"], first["id"]);
    server.settle(json!({"outcome": "complete"}), &held["receipt"]).await;
    assert_eq!(send("c").await.status, 202, "the key of the finished one gives way");
    assert_eq!(send("b").await.json()["duplicate"], true, "those of unfinished ones never do");
    let again = send("b2").await;
    assert_eq!(again.status, 503, "all that are left belong to unfinished work");
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    assert!(metrics.contains("millpond_keys_forgotten_total{queue=\"q\"} 1\n"), "{metrics}");
    server.stop().await;
}
