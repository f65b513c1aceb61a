//! Order and fairness over HTTP: groups, classes, tenants, and the orders of freshness.
//!
//! Owns the tests that a caller could make from outside. Must never depend on how fast the machine is.

use crate::backend::{Backend, ok, status};
use crate::harness::{Server, configuration, eventually, name, with_target};
use millpond_core::settings::{Order, Priority, QueueSettings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A server with one queue, `q`, that has been changed.
async fn server_with(directory: &Path, change: impl FnOnce(&mut QueueSettings)) -> Server {
    let mut configuration = configuration(directory);
    let queue = configuration.queues.get_mut(&name("q")).unwrap();
    queue.prefetch = 1_000;
    queue.retry.backoff_min = Duration::ZERO;
    queue.retry.backoff_max = Duration::ZERO;
    change(queue);
    Server::start(configuration).await
}

/// Enqueues messages, all of which are accepted, and returns the answers.
async fn send(server: &Server, queue: &str, items: &[Value]) -> Vec<Value> {
    let mut answers = Vec::new();
    for part in items.chunks(500) {
        let path = format!("/v1/queues/{queue}/messages/batch");
        answers.extend(server.post(&path, &json!(part)).await.json().as_array().unwrap().clone());
    }
    assert!(answers.iter().all(|answer| answer["status"] == 202), "{answers:?}");
    answers
}

async fn lease(server: &Server, max: usize) -> Vec<Value> {
    server.lease("q", &json!({"max": max, "lease_seconds": 600})).await
}

fn bodies(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["body"].as_str().unwrap()).collect()
}

async fn complete(server: &Server, message: &Value) {
    let settled = server.settle(json!({"outcome": "complete"}), &message["receipt"]).await;
    assert_eq!(settled["status"], 200, "{settled}");
}

fn in_group(body: &str, group: &str) -> Value {
    json!({"body": body, "group": group})
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_group_one_message_is_out_at_a_time_and_the_next_follows_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let items = [in_group("a1", "a"), in_group("a2", "a"), in_group("b1", "b"), json!({"body": "free"})];
    send(&server, "q", &items).await;
    let first = lease(&server, 10).await;
    assert_eq!(bodies(&first), ["a1", "b1", "free"]);
    assert_eq!(first[0]["group"], "a");
    // What arrives while the first is at work unlocks nothing, nor does holding it for longer.
    send(&server, "q", &[in_group("a3", "a")]).await;
    let longer = json!([{"receipt": first[0]["receipt"], "lease_seconds": 900}]);
    assert_eq!(server.post("/v1/leases/extend", &longer).await.json()[0]["status"], 200);
    assert!(lease(&server, 10).await.is_empty());
    complete(&server, &first[0]).await;
    let second = lease(&server, 10).await;
    assert_eq!(bodies(&second), ["a2"]);
    complete(&server, &second[0]).await;
    assert_eq!(bodies(&lease(&server, 10).await), ["a3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_or_delayed_first_message_of_a_group_holds_the_others_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let delayed = json!({"body": "d1", "group": "d", "delay_seconds": 3_600});
    let items = [in_group("a1", "a"), in_group("a2", "a"), delayed, in_group("d2", "d")];
    let sent = send(&server, "q", &items).await;
    let first = lease(&server, 10).await;
    assert_eq!(bodies(&first), ["a1"], "d2 waits for what was accepted before it");
    server.settle(json!({"outcome": "retry", "delay_seconds": 3_600}), &first[0]["receipt"]).await;
    assert!(lease(&server, 10).await.is_empty(), "a2 waits for the next attempt at a1");
    // What is withdrawn holds nobody back any more.
    for index in [0, 2] {
        let cancel = format!("/v1/messages/{}/cancel", sent[index]["id"].as_str().unwrap());
        assert_eq!(server.send("POST", &cancel, &[], "").await.status, 200);
    }
    let next = lease(&server, 10).await;
    assert_eq!(bodies(&next), ["a2", "d2"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_when_its_first_message_dies_or_expires() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let brief = json!({"body": "e1", "group": "e", "ttl_seconds": 0.05, "delay_seconds": 0.04});
    send(&server, "q", &[in_group("a1", "a"), in_group("a2", "a"), brief, in_group("e2", "e")]).await;
    let first = lease(&server, 1).await;
    assert_eq!(bodies(&first), ["a1"]);
    server.settle(json!({"outcome": "dead"}), &first[0]["receipt"]).await;
    // Whether e1 came out before it expired depends on the machine; that e2 comes does not.
    let mut seen = Vec::new();
    while !seen.iter().any(|body| body == "e2") || !seen.iter().any(|body| body == "a2") {
        for message in server.lease("q", &json!({"max": 10, "wait_seconds": 20})).await {
            seen.push(message["body"].as_str().unwrap().to_owned());
            complete(&server, &message).await;
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_a_group_behind_the_message_that_is_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    send(&server, "q", &[in_group("a1", "a"), in_group("a2", "a")]).await;
    let first = lease(&server, 10).await;
    server.stop().await;
    let server = server_with(directory.path(), |_| {}).await;
    assert!(lease(&server, 10).await.is_empty());
    complete(&server, &first[0]).await;
    assert_eq!(bodies(&lease(&server, 10).await), ["a2"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_reaches_its_target_in_order_however_many_calls_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    // Every second call fails once, so that retries are among them.
    let backend =
        Backend::start(
            |number, _| if number % 2 == 0 { ok("") } else { status("500 Internal Server Error", "") },
        )
        .await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 8);
    configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 100;
    let server = Server::start(configuration).await;
    let items: Vec<_> = (0..20)
        .flat_map(|number| ["a", "b", "c"].map(|group| in_group(&format!("{group}{number:02}"), group)))
        .collect();
    send(&server, "push", &items).await;
    eventually("all are done", async || server.stats("push").await["completed_total"] == 60).await;
    let mut of_group: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for call in backend.seen() {
        let calls = of_group.entry(call.body[..1].to_owned()).or_default();
        // A repetition follows its own first attempt.
        if calls.last() != Some(&call.body) {
            calls.push(call.body);
        }
    }
    for (group, calls) in of_group {
        let expected: Vec<_> = (0..20).map(|number| format!("{group}{number:02}")).collect();
        assert_eq!(calls, expected);
    }
    server.stop().await;
}

fn of_class(class: &str, number: usize) -> Value {
    json!({"body": format!("{class} {number}"), "criticality": class})
}

/// Ten messages of each class, the least critical first.
fn of_all_classes() -> Vec<Value> {
    let classes = ["sheddable", "sheddable-plus", "critical", "critical-plus"];
    classes.into_iter().flat_map(|class| (0..10).map(move |number| of_class(class, number))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_share_the_hand_outs_by_their_weights() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    send(&server, "q", &of_all_classes()).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for message in lease(&server, 15).await {
        *counts.entry(message["criticality"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let counted = ["critical-plus", "critical", "sheddable-plus", "sheddable"].map(|class| counts[class]);
    assert_eq!(counted, [8, 4, 2, 1]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_priority_is_strict_a_class_waits_for_all_above_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| queue.priority = Priority::Strict).await;
    send(&server, "q", &of_all_classes()).await;
    let classes: Vec<_> = lease(&server, 40)
        .await
        .iter()
        .map(|message| message["criticality"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = ["critical-plus", "critical", "sheddable-plus", "sheddable"]
        .into_iter()
        .flat_map(|class| std::iter::repeat_n(class.to_owned(), 10))
        .collect();
    assert_eq!(classes, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_tenant_lengthens_only_its_own_wait() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let flood: Vec<_> =
        (0..1_000).map(|number| json!({"body": format!("{number}"), "tenant": "large"})).collect();
    send(&server, "q", &flood).await;
    send(&server, "q", &[json!({"body": "s1", "tenant": "small"}), json!({"body": "s2", "tenant": "small"})])
        .await;
    let first = lease(&server, 4).await;
    let small = first.iter().filter(|message| message["tenant"] == "small").count();
    assert_eq!(small, 2, "by turns: {:?}", bodies(&first));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_keeps_its_class_tenant_and_group() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let said = json!({"body": "x", "criticality": "sheddable-plus", "tenant": "t", "group": "g"});
    send(&server, "q", &[said, in_group("behind", "g")]).await;
    for outcome in ["retry", "release", "retry"] {
        let held = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
        let facts = ["body", "criticality", "tenant", "group"].map(|field| held[field].as_str().unwrap());
        assert_eq!(facts, ["x", "sheddable-plus", "t", "g"], "after {outcome}");
        server.settle(json!({"outcome": outcome, "delay_seconds": 0}), &held["receipt"]).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_goes_first_where_that_is_asked_for_and_no_position_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |queue| queue.order = Order::Lifo).await;
    let sent = send(&server, "q", &["1", "2", "3"].map(|body| json!({"body": body}))).await;
    let seen = server.get(sent[0]["status_url"].as_str().unwrap()).await.json();
    assert_eq!(seen["position"], json!(null));
    assert_eq!(bodies(&lease(&server, 3).await), ["3", "2", "1"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adaptive_order_turns_to_the_newest_once_the_oldest_is_stale_and_still_works_off_the_old() {
    let directory = tempfile::tempdir().unwrap();
    let adaptive = |fresh_within| {
        move |queue: &mut QueueSettings| {
            queue.order = Order::Adaptive;
            queue.fresh_within = fresh_within;
        }
    };
    let items: Vec<_> = (0..10).map(|number| json!({"body": format!("{number}")})).collect();
    let server = server_with(directory.path(), adaptive(Duration::from_hours(1))).await;
    send(&server, "q", &items).await;
    assert_eq!(bodies(&lease(&server, 2).await), ["0", "1"], "while all is fresh");
    server.stop().await;
    let server = server_with(directory.path(), adaptive(Duration::from_micros(1))).await;
    let stale = lease(&server, 8).await;
    let stale = bodies(&stale);
    assert_eq!(stale[0], "9", "{stale:?}");
    let oldest = stale.iter().position(|body| *body == "2").unwrap();
    assert!((1..7).contains(&oldest), "the old ones get a side share: {stale:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_refused_where_the_order_would_not_keep_it() {
    let directory = tempfile::tempdir().unwrap();
    for order in [Order::Lifo, Order::Adaptive] {
        let server = server_with(&directory.path().join(order.as_str()), |queue| queue.order = order).await;
        let refused = server.send("POST", "/v1/queues/q/messages", &[("millpond-group", "g")], "x").await;
        assert_eq!((refused.status, refused.slug().as_str()), (422, "invalid-message"));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(order.as_str()) && detail.contains("without a group"), "{detail}");
        let items = json!([in_group("x", "g"), {"body": "y"}]);
        let answers = server.post("/v1/queues/q/messages/batch", &items).await.json();
        assert_eq!((&answers[0]["status"], &answers[1]["status"]), (&json!(422), &json!(202)), "{answers}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_keeps_no_groups_is_refused_while_groups_are_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let put = async |settings: &str| {
        let json = [("content-type", "application/json")];
        server.send("PUT", "/v1/queues/made", &json, settings.to_owned()).await
    };
    assert_eq!(put("{}").await.status, 201);
    send(&server, "made", &[in_group("x", "g")]).await;
    let refused = put(r#"{"order": "lifo"}"#).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "in-use"));
    assert_eq!(server.get("/v1/queues/made").await.json()["settings"]["order"], "fifo");
    let held = server.lease("made", &json!({})).await[0].clone();
    complete(&server, &held).await;
    let changed = put(r#"{"order": "lifo"}"#).await;
    assert_eq!((changed.status, &changed.json()["settings"]["order"]), (200, &json!("lifo")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_is_told_only_where_nothing_but_the_place_decides() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_with(directory.path(), |_| {}).await;
    let position = async |item: Value| send(&server, "q", &[item]).await[0]["position"].clone();
    assert_eq!(position(json!({"body": "x", "group": "g"})).await, 0);
    assert_eq!(position(json!({"body": "x"})).await, 1);
    assert_eq!(position(json!({"body": "x", "group": "g"})).await, json!(null), "it waits for its group");
    assert_eq!(position(json!({"body": "x", "tenant": "t"})).await, json!(null), "tenants take turns");
    server.stop().await;
}
