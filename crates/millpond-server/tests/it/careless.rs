//! Requests that are almost right: a careless client must be told, not humoured.
//!
//! Owns the tests of what looks like the documented form and is not, and of answers that a careless client relies on.
//! Must never depend on how fast the machine is.

use crate::harness::{Server, configuration, eventually, within};
use millpond_server::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const MESSAGES: &str = "/v1/queues/q/messages";
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test(flavor = "multi_thread")]
async fn an_array_in_place_of_an_object_is_refused_and_takes_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "x").await;
    for (path, body) in [
        ("/v1/queues/q/leases", "[]"),
        ("/v1/queues/q/leases", "[1]"),
        ("/v1/settlements", r#"[["receipt", "complete"]]"#),
        ("/v1/leases/extend", r#"[["receipt", 5]]"#),
        ("/v1/queues/q/messages/batch", r#"[["body"]]"#),
        ("/v1/queues/q/dead/replay", "[null, true]"),
    ] {
        let answer = server.send("POST", path, &[JSON], body).await;
        assert_eq!(answer.slug(), "malformed", "{path} {body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("expected an object"), "{body}: {detail}");
    }
    let stats = server.stats("q").await;
    assert_eq!((&stats["ready"], &stats["leased"]), (&json!(1), &json!(0)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_refused_because_nobody_would_be_told_to_unpack_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for (path, body) in [(MESSAGES, "x"), ("/v1/queues/q/messages/batch", "[]"), ("/v1/settlements", "[]")] {
        let answer = server.send("POST", path, &[("content-encoding", "gzip"), JSON], body).await;
        assert_eq!((answer.status, answer.slug().as_str()), (415, "unsupported-media-type"), "{path}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("gzip"), "{detail}");
    }
    let plain = server.send("POST", MESSAGES, &[("content-encoding", "identity")], "x").await;
    assert_eq!(plain.status, 202);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_content_type_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    assert_eq!(server.send("POST", MESSAGES, &[("content-type", "")], "x").await.status, 202);
    server.post("/v1/queues/q/messages/batch", &json!([{"body": "x", "content_type": ""}])).await;
    let messages = server.lease("q", &json!({"max": 10})).await;
    let types: Vec<_> = messages.iter().map(|message| message["content_type"].clone()).collect();
    assert_eq!(types, ["application/octet-stream", "application/octet-stream"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_can_be_expected_no_sooner_than_it_is_due() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let wish = [("millpond-delay", "1h"), ("idempotency-key", "k")];
    // The second one is a repetition: it is told the same.
    for _ in 0..2 {
        let accepted = server.send("POST", MESSAGES, &wish, "x").await;
        let status = server.get(accepted.header("location")).await;
        for answer in [accepted, status] {
            let seconds: u64 = answer.header("retry-after").parse().unwrap();
            assert!((3_500..=3_600).contains(&seconds), "{answer:?}");
        }
    }
    server.enqueue("q", "fails").await;
    let messages = server.lease("q", &json!({})).await;
    let settlement = json!([{"receipt": messages[0]["receipt"], "outcome": "retry", "delay_seconds": 600}]);
    server.post("/v1/settlements", &settlement).await;
    let status = server.get(&format!("/v1/messages/{}", messages[0]["id"].as_str().unwrap())).await;
    assert_eq!(status.json()["status"], "backoff");
    let seconds: u64 = status.header("retry-after").parse().unwrap();
    assert!((500..=600).contains(&seconds), "{status:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_its_host_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let twice = "GET /v1/queues HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n";
    let answer = server.raw(twice.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("more than once"), "{answer}");
    let none = server.raw(b"GET /v1/queues HTTP/1.0\r\n\r\n").await;
    assert!(none.contains(" 403 ") && none.contains("the request names no host"), "{none}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_dead_letter_is_named_by_its_id() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let id = server.enqueue("q", "alive").await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/queues/q/dead/{id}");
    for answer in [
        server.get(&path).await,
        server.send("DELETE", &path, &[], "").await,
        server.post("/v1/queues/q/dead/replay", &json!({"ids": [id]})).await,
    ] {
        assert_eq!(answer.slug(), "unknown-message");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&format!("message {id} is no dead letter of queue q")), "{detail}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_arrive_slowly_share_one_room_that_is_free_again_once_they_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.max_body_bytes = 256 << 10;
    // Room for two of the largest bodies: the least that there can be.
    let limits = Limits { batch_bytes: 256 << 10, arriving_bytes: 0, ..Limits::default() };
    let server = Server::start_with(configuration, limits).await;
    let slow = async || {
        let mut stream = server.connect().await;
        let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 262144\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // All but the last byte, which never comes.
        stream.write_all(&vec![b'x'; 262_143]).await.unwrap();
        stream
    };
    let mut streams = [slow().await, slow().await];
    let body = || vec![b'x'; 64 << 10];
    within(async {
        loop {
            let answer = server.send("POST", MESSAGES, &[], body()).await;
            if answer.status == 503 && answer.slug() == "overloaded" {
                break;
            }
            // The third body may have had the room in which one of the slow ones was about to arrive: then that one
            // has been refused.
            for stream in &mut streams {
                if stream.try_read(&mut [0]).is_ok() {
                    *stream = slow().await;
                }
            }
        }
    })
    .await;
    drop(streams);
    eventually("there is room again", async || {
        server.send("POST", MESSAGES, &[], body()).await.status == 202
    })
    .await;
    server.stop().await;
}
