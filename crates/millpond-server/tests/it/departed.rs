//! Workers that have left when their answer comes: nothing they were handed counts as a delivery.
//!
//! Owns the tests of answers that cross with their asker's departure. Must never depend on how fast the machine is.

use crate::harness::{Server, configuration, name, read_answer, within};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// A worker's wish to wait for a message, with `more` behind it.
async fn asks(server: &Server, more: &str) -> TcpStream {
    let body = r#"{"wait_seconds": 60, "max": 20}"#;
    let length = body.len();
    let request = format!(
        "POST /v1/queues/q/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: \
         {length}\r\n\r\n{body}{more}"
    );
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn taken_by_somebody_else(server: &Server) -> Value {
    server.lease("q", &json!({"wait_seconds": 20})).await[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_crosses_with_the_worker_s_end_counts_as_no_delivery() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for round in 0..5 {
        // With the beginning of another request behind this one, the server does not hear of the end before it has
        // answered: as when the news is still on its way.
        let worker = asks(&server, "\r\n").await;
        // The wish comes before the message.
        within(server.connect()).await;
        drop(worker);
        let accepted = server.enqueue("q", "work").await;
        let message = taken_by_somebody_else(&server).await;
        assert_eq!(
            (&message["id"], &message["deliveries"], &message["attempt"]),
            (&accepted["id"], &json!(1), &json!(1)),
            "round {round}"
        );
        server.settle(json!({"outcome": "complete"}), &message["receipt"]).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_read_the_answer_has_the_message_however_it_ends_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for abrupt in [false, true] {
        let accepted = server.enqueue("q", "work").await;
        let mut worker = asks(&server, "").await;
        let answer = read_answer(&mut worker).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let leases: Value = serde_json::from_str(body).unwrap();
        let message = &leases["messages"][0];
        assert_eq!(message["id"], accepted["id"]);
        if abrupt {
            // A reset, as proxies do it that do not want to wait for the other side.
            worker.set_zero_linger().unwrap();
        }
        drop(worker);
        let nobody = server.lease("q", &json!({"wait_seconds": 1.2})).await;
        assert!(nobody.is_empty(), "it is in work: {nobody:?}");
        let settled = server.settle(json!({"outcome": "complete"}), &message["receipt"]).await;
        assert_eq!(settled["status"], 200, "abrupt: {abrupt}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_written_to_its_end_counts_as_no_delivery() {
    let directory = tempfile::tempdir().unwrap();
    let mut wide = configuration(directory.path());
    wide.queues.get_mut(&name("q")).unwrap().prefetch = 20;
    let server = Server::start(wide).await;
    let body = "x".repeat(500 << 10);
    for _ in 0..20 {
        server.enqueue("q", &body).await;
    }
    // More than the sockets hold: the server is still writing when the worker ends.
    let worker = asks(&server, "").await;
    within(worker.readable()).await.unwrap();
    drop(worker);
    let mut deliveries = Vec::new();
    while deliveries.len() < 20 {
        let messages = within(server.lease("q", &json!({"wait_seconds": 20, "max": 20}))).await;
        deliveries.extend(messages.iter().map(|message| message["deliveries"].as_u64().unwrap()));
    }
    assert_eq!(deliveries, [1; 20]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_stops_in_time_though_a_worker_has_just_left() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "work").await;
    let mut worker = asks(&server, "").await;
    read_answer(&mut worker).await;
    drop(worker);
    tokio::time::timeout(Duration::from_secs(20), server.stop()).await.unwrap();
}
