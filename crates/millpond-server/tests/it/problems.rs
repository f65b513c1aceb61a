//! What is refused, and how: every problem that a caller can meet.
//!
//! Owns the tests of the problems that depend on the state of a queue or of a message. Must never accept a refusal
//! without its reason.

use crate::harness::{Server, configuration, name};
use millpond_core::settings::QueueSettings;
use millpond_server::ServerOptions;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_found_each_in_its_own_words() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let none = "00000000-0000-8000-8000-000000000000";
    for (method, path, slug) in [
        ("GET", "/nowhere".to_owned(), "not-found"),
        ("GET", "/v1/queues/".to_owned(), "not-found"),
        ("POST", "/v1/queues/q/flush".to_owned(), "not-found"),
        ("GET", "/problems/nonsense".to_owned(), "not-found"),
        ("GET", "/v1/queues/none".to_owned(), "unknown-queue"),
        ("GET", "/v1/queues/none/stats".to_owned(), "unknown-queue"),
        ("GET", "/v1/queues/none/messages".to_owned(), "unknown-queue"),
        ("GET", "/v1/queues/none/dead".to_owned(), "unknown-queue"),
        ("POST", "/v1/queues/none/pause".to_owned(), "unknown-queue"),
        ("POST", "/v1/queues/none/messages".to_owned(), "unknown-queue"),
        ("POST", "/v1/queues/none/messages/batch".to_owned(), "malformed"),
        ("DELETE", "/v1/queues/none".to_owned(), "unknown-queue"),
        ("GET", format!("/v1/messages/{none}"), "unknown-message"),
        ("GET", format!("/v1/messages/{none}/result"), "unknown-message"),
        ("POST", format!("/v1/messages/{none}/cancel"), "unknown-message"),
        ("GET", "/v1/messages/nonsense".to_owned(), "unknown-message"),
        ("GET", format!("/v1/queues/q/dead/{none}"), "unknown-message"),
    ] {
        let answer = server.send(method, &path, &[], "").await;
        assert_eq!(answer.slug(), slug, "{method} {path}");
        assert_eq!(answer.json()["instance"], path.as_str());
    }
    let batch = server.post("/v1/queues/none/messages/batch", &json!([{"body": "x"}])).await;
    assert_eq!(batch.slug(), "unknown-queue");
    let alive = server.enqueue("q", "x").await;
    let answer = server.get(&format!("/v1/queues/q/dead/{}", alive["id"].as_str().unwrap())).await;
    assert_eq!(answer.slug(), "unknown-message", "alive is not dead");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_told_which_ones_are_right() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for (method, path, allowed) in [
        ("DELETE", "/v1/queues/q/messages", "POST"),
        ("GET", "/v1/queues/q/leases", "POST"),
        ("PATCH", "/v1/queues/q", "PUT"),
        ("POST", "/metrics", "GET"),
    ] {
        let answer = server.send(method, path, &[], "").await;
        assert_eq!((answer.status, answer.slug().as_str()), (405, "method-not-allowed"));
        assert!(answer.header("allow").contains(allowed), "{answer:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_with_a_time_to_come_back_and_takes_work_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration
        .queues
        .insert(name("small"), QueueSettings { max_messages: Some(2), ..QueueSettings::default() });
    let server = Server::start(configuration).await;
    let answers = server
        .post("/v1/queues/small/messages/batch", &json!([{"body": "1"}, {"body": "2"}, {"body": "3"}]))
        .await
        .json();
    let statuses: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 202, 503]);
    assert_eq!(answers[2]["error"]["type"], "/problems/queue-full");
    assert!(answers[2]["error"]["retry_after_seconds"].as_u64().unwrap() >= 1);
    let refused = server.send("POST", "/v1/queues/small/messages", &[], "4").await;
    assert_eq!((refused.status, refused.slug().as_str()), (503, "queue-full"));
    assert_eq!(server.stats("small").await["refused_total"], 2);
    let receipt = server.lease("small", &json!({})).await[0]["receipt"].clone();
    server.settle(json!({"outcome": "complete"}), &receipt).await;
    server.enqueue("small", "4").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_would_wait_longer_than_promised_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    let settings = QueueSettings {
        concurrency: Some(1),
        expected_service_time: Some(Duration::from_secs(10)),
        max_wait: Some(Duration::from_secs(25)),
        ..QueueSettings::default()
    };
    configuration.queues.insert(name("slow"), settings);
    let server = Server::start(configuration).await;
    let items: Vec<_> = (0..10).map(|number| json!({"body": format!("{number}")})).collect();
    let answers = server.post("/v1/queues/slow/messages/batch", &json!(items)).await.json();
    let refused: Vec<_> =
        answers.as_array().unwrap().iter().filter(|answer| answer["status"] == 503).collect();
    assert!(!refused.is_empty() && refused.len() < 10, "{answers}");
    assert_eq!(refused[0]["error"]["type"], "/problems/wait-too-long");
    let single = server.send("POST", "/v1/queues/slow/messages", &[], "x").await;
    assert_eq!(single.slug(), "wait-too-long");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_shown_to_who_has_the_token_and_to_nobody_with_a_wrong_one() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let (one, other) = (server.enqueue("q", "1").await, server.enqueue("q", "2").await);
    let path = format!("/v1/messages/{}", one["id"].as_str().unwrap());
    let token = other["status_url"].as_str().unwrap().split_once("?t=").unwrap().1.to_owned();
    assert_eq!(
        server.get(&path).await.status,
        200,
        "on an unauthenticated loopback server no token is needed"
    );
    for wrong in [token.as_str(), "", "x"] {
        let answer = server.get(&format!("{path}?t={wrong}")).await;
        assert_eq!((answer.status, answer.slug().as_str()), (403, "forbidden"), "{wrong}");
        assert_eq!(answer.json()["instance"], path.as_str(), "an instance must not repeat a token");
    }
    assert_eq!(server.get(&format!("{path}?token=x")).await.slug(), "malformed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_other_machines_reach_shows_a_status_only_with_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = configuration(directory.path());
    let options = ServerOptions { configuration, insecure: true, ..ServerOptions::default() };
    let server = Server::start_at("0.0.0.0:0", options).await;
    let accepted = server.enqueue("q", "x").await;
    let url = accepted["status_url"].as_str().unwrap();
    assert_eq!(server.get(url).await.status, 200);
    for path in ["", "/result"] {
        let answer = server.get(&format!("/v1/messages/{}{path}", accepted["id"].as_str().unwrap())).await;
        assert_eq!((answer.status, answer.slug().as_str()), (401, "unauthenticated"));
    }
    let elsewhere = server.send("GET", url, &[("host", "pond.example")], "").await;
    assert_eq!(elsewhere.status, 200, "it may be reached by any name");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_begin_with_the_external_url() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.external_url = Some("https://pond.example/mill".to_owned());
    let server = Server::start(configuration).await;
    let answer = server.send("POST", "/v1/queues/q/messages", &[], "x").await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let beginning = format!("https://pond.example/mill/v1/messages/{id}?t=");
    assert!(answer.header("location").starts_with(&beginning), "{answer:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_past_its_retention_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.queues.insert(
        name("brief"),
        QueueSettings { result_retention: Duration::ZERO, ..QueueSettings::default() },
    );
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("brief", "x").await;
    let receipt = server.lease("brief", &json!({})).await[0]["receipt"].clone();
    server.settle(json!({"outcome": "complete"}), &receipt).await;
    let url = accepted["status_url"].as_str().unwrap();
    crate::harness::eventually("it is forgotten", async || server.get(url).await.status == 410).await;
    assert_eq!(server.get(url).await.slug(), "forgotten");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_pages_are_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for headers in [
        vec![("host", "evil.example")],
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
        vec![("sec-fetch-site", "cross-site")],
    ] {
        let answer = server.send("GET", "/v1/queues", &headers, "").await;
        assert_eq!((answer.status, answer.slug().as_str()), (403, "forbidden"), "{headers:?}");
    }
    let own = server
        .send("GET", "/v1/queues", &[("host", "localhost:1"), ("origin", "http://localhost:1")], "")
        .await;
    assert_eq!(own.status, 200);
    assert!(server.raw(b"GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 403"), "no Host at all");
    server.stop().await;
}
