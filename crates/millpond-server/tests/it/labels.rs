//! Class, tenant, group and consumer over HTTP: said by producers and workers, kept, and shown wherever a message is.
//!
//! Owns the tests of how these facts travel. Must never test the rules that go by them: see `order.rs`.

use crate::backend::{Backend, ok};
use crate::harness::{Server, configuration, with_target};
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/queues/q/messages";
const LABELS: [(&str, &str); 3] = [
    ("millpond-criticality", "critical-plus"),
    ("millpond-tenant", "größe 7"),
    ("millpond-group", "order/1"),
];

fn facts(message: &Value) -> [Option<&str>; 3] {
    ["criticality", "tenant", "group"].map(|field| message[field].as_str())
}

const SAID: [Option<&str>; 3] = [Some("critical-plus"), Some("größe 7"), Some("order/1")];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_message_says_of_itself_is_shown_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.send("POST", MESSAGES, &LABELS, "work").await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let accepted = accepted.json();
    let url = accepted["status_url"].as_str().unwrap();
    assert_eq!(facts(&server.get(url).await.json()), SAID);
    assert_eq!(facts(&server.get(MESSAGES).await.json()["messages"][0]), SAID);
    let leased = server.lease("q", &json!({"consumer": "w1"})).await[0].clone();
    assert_eq!(facts(&leased), SAID);
    server.settle(json!({"outcome": "dead"}), &leased["receipt"]).await;
    assert_eq!(facts(&server.get("/v1/queues/q/dead").await.json()["messages"][0]), SAID);
    let id = accepted["id"].as_str().unwrap();
    assert_eq!(facts(&server.get(&format!("/v1/queues/q/dead/{id}")).await.json()), SAID);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_told_what_a_message_says_of_itself() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("")).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 1);
    let server = Server::start(configuration).await;
    for labels in [&LABELS[..], &[]] {
        let accepted = server.send("POST", "/v1/queues/push/messages", labels, "x").await.json();
        assert_eq!(server.outcome(&accepted).await["status"], "succeeded");
    }
    let seen = backend.seen();
    for (name, value) in LABELS {
        assert_eq!(seen[0].header(name), value);
    }
    assert_eq!(seen[1].header("millpond-criticality"), "critical");
    assert_eq!((seen[1].header("millpond-tenant"), seen[1].header("millpond-group")), ("", ""));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_said_is_critical_and_has_no_tenant_and_no_group() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let status = server.get(accepted["status_url"].as_str().unwrap()).await.json();
    assert_eq!(status["criticality"], "critical");
    for absent in ["tenant", "group", "consumer"] {
        assert!(status.get(absent).is_none(), "{status}");
    }
    let leased = server.lease("q", &json!({})).await[0].clone();
    assert_eq!(leased["criticality"], "critical");
    assert!(leased.get("tenant").is_none() && leased.get("group").is_none(), "{leased}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_a_message_is_told_to_operators_and_not_to_producers() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let leased = server.lease("q", &json!({"consumer": "host-7/pid 12"})).await[0].clone();
    let by_id = format!("/v1/messages/{}", accepted["id"].as_str().unwrap());
    assert_eq!(server.get(&by_id).await.json()["consumer"], "host-7/pid 12");
    assert_eq!(server.get(MESSAGES).await.json()["messages"][0]["consumer"], "host-7/pid 12");
    let by_token = server.get(accepted["status_url"].as_str().unwrap()).await.json();
    assert!(by_token.get("consumer").is_none(), "{by_token}");
    server.settle(json!({"outcome": "complete"}), &leased["receipt"]).await;
    assert!(server.get(&by_id).await.json().get("consumer").is_none(), "nobody has it any more");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_with_another_class_tenant_or_group_is_another_payload() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let send = async |changed: Option<(usize, &'static str)>| {
        let mut headers: Vec<_> = LABELS.to_vec();
        if let Some((place, value)) = changed {
            headers[place].1 = value;
        }
        headers.push(("idempotency-key", "k"));
        server.send("POST", MESSAGES, &headers, "work").await
    };
    let first = send(None).await.json();
    assert_eq!(send(None).await.json()["id"], first["id"]);
    for changed in [(0, "critical"), (1, "other"), (2, "order/2")] {
        let answer = send(Some(changed)).await;
        assert_eq!((answer.status, answer.slug().as_str()), (422, "idempotency-mismatch"), "{changed:?}");
    }
    let unlabelled = server.send("POST", MESSAGES, &[("idempotency-key", "k")], "work").await;
    assert_eq!(unlabelled.slug(), "idempotency-mismatch");
    // A batch says the same in its own words.
    let item = json!({"body": "work", "idempotency_key": "k", "criticality": "critical-plus",
        "tenant": "größe 7", "group": "order/1"});
    let mut other = item.clone();
    other["group"] = json!("order/2");
    let answers = server.post("/v1/queues/q/messages/batch", &json!([item, other])).await.json();
    assert_eq!((&answers[0]["id"], &answers[0]["duplicate"]), (&first["id"], &json!(true)), "{answers}");
    assert_eq!(answers[1]["error"]["type"], "/problems/idempotency-mismatch");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_and_group_cannot_stand_in_for_each_other_in_a_key_s_payload() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let item = |field: &str| json!({"body": "x", "idempotency_key": "k", field: "a"});
    let answers =
        server.post("/v1/queues/q/messages/batch", &json!([item("tenant"), item("group")])).await.json();
    let statuses = [&answers[0]["status"], &answers[1]["status"]];
    assert_eq!(statuses, [&json!(202), &json!(422)], "{answers}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_there_twice_is_refused_even_if_both_say_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for name in LABELS.map(|(name, _)| name) {
        let answer = server.send("POST", MESSAGES, &[(name, "critical"), (name, "critical")], "x").await;
        assert_eq!((answer.status, answer.slug().as_str()), (400, "malformed"), "{name}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("more than once"), "{answer:?}");
    }
    let json = ("content-type", "application/json");
    for path in [MESSAGES, "/v1/queues/q/messages/batch", "/v1/queues/q/leases"] {
        let answer = server.send("POST", path, &[json, json], "[]").await;
        assert_eq!((answer.status, answer.slug().as_str()), (400, "malformed"), "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("content-type is there more than once"));
    }
    assert_eq!(server.stats("q").await["accepted_total"], 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_for_one_message_is_refused_for_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for (name, field) in [
        ("millpond-group", "group"),
        ("millpond-tenant", "tenant"),
        ("millpond-criticality", "criticality"),
        ("millpond-delay", "delay_seconds"),
        ("millpond-ttl", "ttl_seconds"),
        ("idempotency-key", "idempotency_key"),
    ] {
        let headers = [(name, "1s"), ("content-type", "application/json")];
        let answer = server.send("POST", "/v1/queues/q/messages/batch", &headers, r#"[{"body": "x"}]"#).await;
        assert_eq!((answer.status, answer.slug().as_str()), (422, "invalid-message"), "{name}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(name) && detail.contains(field), "{detail}");
    }
    assert_eq!(server.stats("q").await["accepted_total"], 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_work_is_counted_by_class_and_never_by_tenant_group_or_key() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for (class, times) in [("critical-plus", 1), ("critical", 2), ("sheddable-plus", 3), ("sheddable", 4)] {
        for number in 0..times {
            let key = format!("key-{class}-{number}");
            let headers = [
                ("millpond-criticality", class),
                ("millpond-tenant", "tenant-secret"),
                ("millpond-group", "group-secret"),
                ("idempotency-key", key.as_str()),
            ];
            // The repetition adds nothing.
            for _ in 0..2 {
                assert_eq!(server.send("POST", MESSAGES, &headers, "x").await.status, 202);
            }
        }
    }
    let text = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    for (class, times) in [("critical-plus", 1), ("critical", 2), ("sheddable-plus", 3), ("sheddable", 4)] {
        let line = format!("millpond_accepted_total{{queue=\"q\",criticality=\"{class}\"}} {times}");
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("secret") && !text.contains("key-"), "{text}");
    assert_eq!(server.stats("q").await["accepted_total"], 10);
    server.stop().await;
}
