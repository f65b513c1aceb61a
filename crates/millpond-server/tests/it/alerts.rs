//! Alerts as they are shown: listed, counted, and over when the cause is gone.
//!
//! Owns tests over real connections. Must never wait for a hold: the rules over time are tested in the core.

use crate::backend::{Backend, ok, status};
use crate::harness::{Server, configuration, eventually, name};
use millpond_config::{AlertWebhook, SigningKey};
use millpond_core::alert::AlertSettings;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

async fn server(directory: &Path) -> Server {
    let mut configuration = configuration(directory);
    let queue = configuration.queues.get_mut(&name("q")).unwrap();
    queue.dead_letter.owner = Some("team-q".to_owned());
    queue.alerts = AlertSettings { depth: Some(3), hold: Duration::ZERO, ..AlertSettings::default() };
    Server::start(configuration).await
}

async fn alerts(server: &Server) -> Vec<Value> {
    let answer = server.get("/v1/alerts").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["alerts"].as_array().unwrap().clone()
}

async fn metrics(server: &Server) -> String {
    String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_an_alert_with_its_owner_until_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path()).await;
    assert_eq!(alerts(&server).await, Vec::<Value>::new());
    server.enqueue("q", "x").await;
    let leased = server.lease("q", &json!({"max": 1})).await;
    server
        .settle(json!({"outcome": "dead", "error": {"kind": "test", "message": "no"}}), &leased[0]["receipt"])
        .await;
    eventually("it fires", async || !alerts(&server).await.is_empty()).await;
    let [alert] = &alerts(&server).await[..] else { panic!("one alert") };
    for (field, value) in [
        ("alert", json!("dead")),
        ("severity", json!("warning")),
        ("queue", json!("q")),
        ("owner", json!("team-q")),
        ("state", json!("firing")),
        ("value", json!(1.0)),
        ("threshold", json!(1.0)),
        ("unit", json!("messages")),
        ("summary", json!("queue q has 1 dead letter; team-q looks after them")),
    ] {
        assert_eq!(alert[field], value, "{field} of {alert}");
    }
    assert!(alert["since"].as_str().unwrap().ends_with('Z') && alert["target"].is_null(), "{alert}");
    let text = metrics(&server).await;
    for line in [
        "millpond_alerts{queue=\"q\",alert=\"dead\"} 1.0",
        "millpond_alerts{queue=\"q\",alert=\"depth\"} 0.0",
        "millpond_alerts{alert=\"storage-full\"} 0.0",
        "millpond_alert_changes_total{alert=\"dead\",state=\"firing\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(
        !text.contains("alert=\"oldest-age\"} "),
        "a rule that nobody has asked for is not there: {text}"
    );
    let path = format!("/v1/queues/q/dead/{}", leased[0]["id"].as_str().unwrap());
    assert_eq!(server.send("DELETE", &path, &[], "").await.status, 204);
    eventually("it clears", async || alerts(&server).await[0]["state"] == "cleared").await;
    let [cleared] = &alerts(&server).await[..] else { panic!("it is still shown") };
    assert_eq!(cleared["since"], alert["since"]);
    assert!(cleared["cleared_at"].is_string(), "{cleared}");
    assert!(metrics(&server).await.contains("millpond_alerts{queue=\"q\",alert=\"dead\"} 0.0\n"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_made_while_the_server_runs_has_the_alerts_that_it_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path()).await;
    let settings = json!({"alerts": {"depth": 2, "for_seconds": 0}});
    assert_eq!(server.send("PUT", "/v1/queues/made", &[], settings.to_string()).await.status, 201);
    for queue in ["q", "made"] {
        server.enqueue(queue, "1").await;
        server.enqueue(queue, "2").await;
    }
    eventually("it fires", async || !alerts(&server).await.is_empty()).await;
    let [alert] = &alerts(&server).await[..] else { panic!("only there") };
    assert_eq!((&alert["queue"], &alert["alert"]), (&json!("made"), &json!("depth")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_the_older_format_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path()).await;
    let plain = server.send("GET", "/metrics", &[("accept", "text/plain")], "").await;
    assert_eq!(plain.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8(plain.body.to_vec()).unwrap();
    assert!(text.contains("# TYPE millpond_accepted_total counter\n") && !text.contains("# EOF"), "{text}");
    let open = server.get("/metrics").await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_are_told_by_webhook_signed_and_again_until_they_are_taken_though_nobody_may_ask_for_callbacks()
 {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|_, _| ok("")).await;
    let mut configuration = configuration(directory.path());
    configuration.external_url = Some("https://pond.example".to_owned());
    let queue = configuration.queues.get_mut(&name("q")).unwrap();
    queue.alerts = AlertSettings { hold: Duration::ZERO, ..AlertSettings::default() };
    configuration.alert_webhook = Some(AlertWebhook {
        url: format!("http://{}/pager", receiver.address),
        signature: vec![SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()],
    });
    let server = Server::start(configuration).await;
    let wish = [("millpond-callback", "https://shop.example/hook")];
    let refused = server.send("POST", "/v1/queues/q/messages", &wish, "x").await;
    assert_eq!(refused.status, 422, "{refused:?}");
    server.enqueue("q", "x").await;
    let leased = server.lease("q", &json!({"max": 1})).await;
    server.settle(json!({"outcome": "dead"}), &leased[0]["receipt"]).await;
    eventually("it is told", async || receiver.seen().len() == 1).await;
    let path = format!("/v1/queues/q/dead/{}", leased[0]["id"].as_str().unwrap());
    assert_eq!(server.send("DELETE", &path, &[], "").await.status, 204);
    eventually("so is its end", async || receiver.seen().len() == 2).await;
    let seen = receiver.seen();
    for (seen, kind) in seen.iter().zip(["millpond.alert.firing", "millpond.alert.cleared"]) {
        assert_eq!((seen.method(), seen.target().as_str()), ("POST", "/pager"));
        assert_eq!(seen.header("content-type"), "application/cloudevents+json");
        assert!(seen.header("webhook-signature").starts_with("v1,"), "{}", seen.head);
        let event: Value = serde_json::from_str(&seen.body).unwrap();
        assert_eq!((&event["type"], &event["subject"]), (&json!(kind), &json!("queues/q")));
        assert_eq!(
            (&event["source"], &event["data"]["alert"]),
            (&json!("https://pond.example/v1/alerts"), &json!("dead"))
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_nobody_took_waits_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Backend::start(|number, _| if number == 0 { status("500 Oh", "") } else { ok("") }).await;
    let mut configuration = configuration(directory.path());
    configuration.alert_webhook = Some(AlertWebhook {
        url: format!("http://{}/pager", receiver.address),
        signature: vec![SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()],
    });
    let server = Server::start(configuration.clone()).await;
    server.enqueue("q", "x").await;
    let leased = server.lease("q", &json!({"max": 1})).await;
    server.settle(json!({"outcome": "dead"}), &leased[0]["receipt"]).await;
    eventually("it was tried", async || receiver.seen().len() == 1).await;
    eventually("it waits", async || server.stats("_callbacks").await["backoff"] == 1).await;
    server.stop().await;
    let server = Server::start(configuration).await;
    let stats = server.stats("_callbacks").await;
    assert!(stats["backoff"].as_u64().unwrap() + stats["ready"].as_u64().unwrap() >= 1, "{stats}");
    server.stop().await;
}
