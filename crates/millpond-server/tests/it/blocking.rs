//! A full queue whose callers wait, and purges, over real connections.

use crate::harness::{Server, configuration, name};
use http::StatusCode;
use millpond_core::settings::{Overflow, QueueSettings};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

async fn with_door(directory: &std::path::Path, block_for: Duration) -> Server {
    let mut configuration = configuration(directory);
    let settings = QueueSettings {
        overflow: Overflow::Block,
        max_messages: Some(1),
        block_for,
        ..QueueSettings::default()
    };
    configuration.queues.insert(name("door"), settings);
    Server::start(configuration).await
}

/// Waits until so many callers wait at the door.
async fn until_blocked(server: &Server, callers: u64) {
    let all = async {
        while server.stats("door").await["blocked"] != callers {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::DEADLINE, all).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_a_full_queue_waits_and_is_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_door(directory.path(), Duration::from_mins(1)).await;
    server.enqueue("door", "first").await;
    let (accepted, ()) = tokio::join!(server.enqueue("door", "second"), async {
        until_blocked(&server, 1).await;
        let receipt = server.lease("door", &json!({})).await[0]["receipt"].clone();
        server.settle(json!({"outcome": "complete"}), &receipt).await;
    });
    assert_eq!(server.lease("door", &json!({})).await[0]["id"], accepted["id"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_caller_who_leaves_nothing_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_door(directory.path(), Duration::from_mins(1)).await;
    server.enqueue("door", "first").await;
    let mut caller = server.connect().await;
    let head = "POST /v1/queues/door/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\n\r\nsecond";
    caller.write_all(head.as_bytes()).await.unwrap();
    until_blocked(&server, 1).await;
    drop(caller);
    until_blocked(&server, 0).await;
    let receipt = server.lease("door", &json!({})).await[0]["receipt"].clone();
    server.settle(json!({"outcome": "complete"}), &receipt).await;
    let stats = server.stats("door").await;
    assert_eq!((&stats["ready"], &stats["accepted_total"]), (&json!(0), &json!(1)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_waited_long_enough_is_told_when_to_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_door(directory.path(), Duration::from_millis(20)).await;
    server.enqueue("door", "first").await;
    let refused = server.send("POST", "/v1/queues/door/messages", &[], "second").await;
    assert_eq!(
        (refused.status, refused.slug()),
        (StatusCode::SERVICE_UNAVAILABLE.as_u16(), "queue-full".to_owned())
    );
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_needs_the_name_once_more_and_cancels_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for body in ["a", "b", "c"] {
        server.enqueue("q", body).await;
    }
    let held = server.lease("q", &json!({})).await[0].clone();
    for wrong in
        [json!({}), json!({"confirm": ""}), json!({"confirm": "p"}), json!({"confirm": "q", "force": true})]
    {
        assert_eq!(server.post("/v1/queues/q/purge", &wrong).await.slug(), "malformed", "{wrong}");
    }
    assert_eq!(server.stats("q").await["ready"], 2);
    let purged = server.post("/v1/queues/q/purge", &json!({"confirm": "q"})).await;
    assert_eq!((purged.status, purged.json()), (200, json!({"queue": "q", "purged": 2})));
    server.settle(json!({"outcome": "complete"}), &held["receipt"]).await;
    let stats = server.stats("q").await;
    assert_eq!((&stats["ready"], &stats["cancelled_total"]), (&json!(0), &json!(2)));
    assert_eq!(
        server.post("/v1/queues/none/purge", &json!({"confirm": "none"})).await.slug(),
        "unknown-queue"
    );
    server.stop().await;
}
