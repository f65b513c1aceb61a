//! Callbacks over real sockets: receivers that take them, fail, hang, want no more, or lead elsewhere.
//!
//! Owns the receivers and what they must have seen. Must never call anything but this machine.

use crate::backend::{Act, Backend, ok, status};
use crate::harness::{Answer, Server, configuration, eventually};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millpond_config::{Callbacks, Configuration, SigningKey};
use ring::hmac;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const MESSAGES: &str = "/v1/queues/q/messages";

/// A server whose callbacks may go to these receivers, whose tries follow each other at once.
fn telling(directory: &Path, receivers: &[&Backend]) -> Configuration {
    let mut configuration = configuration(directory);
    configuration.external_url = Some("https://pond.example".to_owned());
    configuration.callbacks = Some(Callbacks {
        signature: vec![SigningKey::parse(SECRET).unwrap()],
        allow_http: true,
        allow_private: ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap()).to_vec(),
        ports: receivers.iter().map(|receiver| receiver.address.port()).collect(),
        delays: vec![Duration::from_millis(1)],
        concurrency_per_host: 1,
        ..Callbacks::default()
    });
    configuration
}

fn url(receiver: &Backend) -> String {
    format!("http://{}/told?key=hunter2", receiver.address)
}

async fn offer(server: &Server, headers: &[(&str, &str)]) -> Answer {
    server.send("POST", MESSAGES, headers, "work").await
}

/// Enqueues a message whose end is to be told, and does its work.
async fn done(server: &Server, url: &str, settlement: Value) -> Value {
    let answer = offer(server, &[("millpond-callback", url), ("traceparent", TRACE)]).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let leased = server.lease("q", &json!({"wait_seconds": 10})).await;
    assert_eq!(server.settle(settlement, &leased[0]["receipt"]).await["status"], 200);
    answer.json()
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn complete() -> Value {
    json!({"outcome": "complete", "result": "{\"sum\": 3.50}", "content_type": "application/json"})
}

async fn callback(server: &Server, accepted: &Value) -> Value {
    let url = accepted["status_url"].as_str().unwrap().replace("https://pond.example", "");
    server.get(&url).await.json()["callback"].clone()
}

async fn comes_to(server: &Server, accepted: &Value, status: &str) -> Value {
    eventually(status, async || callback(server, accepted).await["status"] == status).await;
    callback(server, accepted).await
}

/// The signature of what came, worked out anew from the text of the specification.
fn signed(seen: &crate::backend::Seen) -> String {
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let content = [seen.header("webhook-id"), seen.header("webhook-timestamp"), &seen.body].join(".");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), content.as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_message_is_told_signed_with_its_result_and_its_trace() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|_, _| ok("")).await;
    let server = Server::start(telling(directory.path(), &[&receiver])).await;
    let accepted = done(&server, &url(&receiver), complete()).await;
    let told = comes_to(&server, &accepted, "delivered").await;
    assert_eq!(told["url"], format!("http://{}/told?…", receiver.address), "no secret of a query is shown");
    let seen = receiver.seen().remove(0);
    assert_eq!((seen.method(), seen.target().as_str()), ("POST", "/told?key=hunter2"));
    assert_eq!(seen.header("content-type"), "application/cloudevents+json");
    assert_eq!(seen.header("host"), receiver.address.to_string());
    assert_eq!(seen.header("traceparent"), TRACE);
    assert_eq!(seen.header("webhook-signature"), signed(&seen));
    assert!(!seen.head.contains(":callback"), "{}", seen.head);
    let event: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(event["type"], "millpond.message.succeeded");
    assert_eq!((&event["subject"], &event["data"]["id"]), (&accepted["id"], &accepted["id"]));
    assert_eq!(event["id"], seen.header("webhook-id"));
    assert_eq!(event["source"], "https://pond.example/v1/queues/q");
    assert!(seen.body.contains(r#""result":{"sum": 3.50}"#), "as it is: {}", seen.body);
    let result = event["data"]["result_url"].as_str().unwrap().replace("https://pond.example", "");
    assert_eq!(server.get(&result).await.body, "{\"sum\": 3.50}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_is_told_again_under_the_same_id() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|number, _| match number {
        0 => status("500 Internal Server Error", ""),
        1 => Act::Reset,
        _ => status("204 No Content", ""),
    })
    .await;
    let server = Server::start(telling(directory.path(), &[&receiver])).await;
    let accepted =
        done(&server, &url(&receiver), json!({"outcome": "dead", "error": {"message": "no"}})).await;
    let told = comes_to(&server, &accepted, "delivered").await;
    assert_eq!(told["attempts"], 2, "{told}");
    let seen = receiver.seen();
    let ids: Vec<_> = seen.iter().map(|seen| seen.header("webhook-id")).collect();
    assert!(seen.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert!(
        seen.iter().all(|one| one.body == seen[0].body && signed(one) == one.header("webhook-signature"))
    );
    let event: Value = serde_json::from_str(&seen[0].body).unwrap();
    assert_eq!((&event["type"], &event["data"]["status"]), (&json!("millpond.message.dead"), &json!("dead")));
    assert_eq!(event["data"]["last_error"]["message"], "no");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_and_a_receiver_that_never_takes_it_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let inside = Backend::start(|_, _| ok("")).await;
    let location = format!("location: http://{}/\r\n", inside.address);
    let receiver = Backend::start(move |_, _| status("307 Temporary Redirect", &location)).await;
    let server = Server::start(telling(directory.path(), &[&receiver, &inside])).await;
    let accepted = done(&server, &url(&receiver), complete()).await;
    let told = comes_to(&server, &accepted, "dead").await;
    assert_eq!((&told["attempts"], receiver.seen().len(), inside.seen().len()), (&json!(10), 10, 0));
    assert!(told["last_error"]["message"].as_str().unwrap().contains("redirect"), "{told}");
    let dead = server.get("/v1/queues/_callbacks/dead").await.json();
    assert_eq!(dead["messages"].as_array().map(Vec::len), Some(1), "{dead}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_holds_up_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Backend::start(|_, _| Act::WaitForRelease).await;
    let quick = Backend::start(|_, _| ok("")).await;
    let server = Server::start(telling(directory.path(), &[&slow, &quick])).await;
    for _ in 0..3 {
        done(&server, &url(&slow), complete()).await;
    }
    eventually("the slow one is busy", async || slow.busy() == 1).await;
    let elsewhere = format!("http://localhost:{}/", quick.address.port());
    let accepted = done(&server, &elsewhere, complete()).await;
    comes_to(&server, &accepted, "delivered").await;
    assert_eq!((slow.busy(), slow.busiest()), (1, 1), "one at a time, and still at it");
    slow.release();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_answers_410_gets_nothing_more_until_an_operator_replays() {
    let directory = tempfile::tempdir().unwrap();
    let receiver =
        Backend::start(|number, _| if number == 0 { status("410 Gone", "") } else { ok("") }).await;
    let configuration = telling(directory.path(), &[&receiver]);
    let server = Server::start(configuration.clone()).await;
    let first = done(&server, &url(&receiver), complete()).await;
    comes_to(&server, &first, "disabled").await;
    let second = done(&server, &url(&receiver), complete()).await;
    let told = comes_to(&server, &second, "disabled").await;
    assert_eq!((&told["last_error"]["kind"], receiver.seen().len()), (&json!("disabled"), 1));
    assert!(!told.to_string().contains("hunter2"), "{told}");
    server.stop().await;
    let server = Server::start(configuration).await;
    let metrics = async || String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    eventually("it is remembered", async || {
        metrics().await.contains("millpond_callback_endpoints_disabled 1.0")
    })
    .await;
    let third = done(&server, &url(&receiver), complete()).await;
    comes_to(&server, &third, "disabled").await;
    assert_eq!(receiver.seen().len(), 1);
    let replay = server.post("/v1/queues/_callbacks/dead/replay", &json!({"all": true})).await;
    assert_eq!(replay.status, 202, "{replay:?}");
    for accepted in [&first, &second, &third] {
        comes_to(&server, accepted, "delivered").await;
    }
    assert!(metrics().await.contains("millpond_callback_endpoints_disabled 0.0"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_told_yet_when_the_server_stops_is_told_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|_, _| ok("")).await;
    let configuration = telling(directory.path(), &[&receiver]);
    let server = Server::start(configuration.clone()).await;
    assert_eq!(server.post("/v1/queues/_callbacks/pause", &json!({})).await.status, 200);
    let accepted = done(&server, &url(&receiver), complete()).await;
    assert_eq!(callback(&server, &accepted).await["status"], "pending");
    server.stop().await;
    let server = Server::start(configuration).await;
    assert_eq!(receiver.seen().len(), 0);
    assert_eq!(server.post("/v1/queues/_callbacks/resume", &json!({})).await.status, 200);
    comes_to(&server, &accepted, "delivered").await;
    assert_eq!(receiver.seen().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_would_never_be_made_is_refused_with_the_message() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    let server = Server::start(configuration.clone()).await;
    let answer = offer(&server, &[("millpond-callback", "https://shop.example/")]).await;
    assert_eq!(answer.slug(), "invalid-message");
    assert!(answer.json()["detail"].as_str().unwrap().contains("switched off"), "{answer:?}");
    server.stop().await;
    let signature = vec![SigningKey::parse(SECRET).unwrap()];
    configuration.callbacks = Some(Callbacks { signature, ..Callbacks::default() });
    let server = Server::start(configuration).await;
    for url in [
        "http://shop.example/",
        "https://127.0.0.1/?key=hunter2",
        "https://[::ffff:10.0.0.1]/",
        "https://2130706433/",
        "https://169.254.169.254/latest/",
        "https://u:hunter2@shop.example/",
        "https://shop.example:8443/",
        "shop",
        "",
    ] {
        let answer = offer(&server, &[("millpond-callback", url)]).await;
        assert_eq!(answer.slug(), "invalid-message", "{url}");
        let batch = json!([{"body": "x", "callback": url}]);
        let answers = server.post(&format!("{MESSAGES}/batch"), &batch).await.json();
        assert_eq!(answers[0]["status"], 422, "{url}: {answers}");
    }
    assert_eq!(server.stats("q").await["accepted_total"], 0);
    let batch =
        server.send("POST", &format!("{MESSAGES}/batch"), &[("millpond-callback", "https://a/")], "[]").await;
    assert!(batch.json()["detail"].as_str().unwrap().contains("\"callback\""), "{batch:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_with_another_callback_is_another_payload() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|_, _| ok("")).await;
    let server = Server::start(telling(directory.path(), &[&receiver])).await;
    let url = url(&receiver);
    let other = format!("{url}2");
    let with = async |callback: &[(&str, &str)]| {
        offer(&server, &[&[("idempotency-key", "k")], callback].concat()).await
    };
    assert_eq!(with(&[("millpond-callback", &url)]).await.status, 202);
    assert_eq!(with(&[("millpond-callback", &url)]).await.json()["duplicate"], true);
    assert_eq!(with(&[("millpond-callback", &other)]).await.slug(), "idempotency-mismatch");
    assert_eq!(with(&[]).await.slug(), "idempotency-mismatch");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_callbacks_is_the_servers_own() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(telling(directory.path(), &[])).await;
    let queue = "/v1/queues/_callbacks";
    for (method, path, body) in [
        ("POST", "/messages", "x"),
        ("POST", "/messages/batch", "[]"),
        ("POST", "/leases", "{}"),
        ("PUT", "", "{}"),
    ] {
        let json = [("content-type", "application/json")];
        let answer = server.send(method, &format!("{queue}{path}"), &json, body).await;
        assert_eq!(answer.slug(), "forbidden", "{method} {path}");
    }
    assert_eq!(server.get(queue).await.json()["name"], "_callbacks", "it can be looked at");
    assert_eq!(server.send("DELETE", queue, &[], "").await.status, 409);
    server.stop().await;
}
