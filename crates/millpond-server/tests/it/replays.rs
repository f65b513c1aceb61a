//! Replays of dead letters over HTTP: tasks that can be watched, paced, narrowed and cancelled.

use crate::harness::{Server, configuration};
use serde_json::{Value, json};

/// A server whose queue `q` has dead letters with these errors; their ids.
async fn with_dead(directory: &std::path::Path, errors: &[&str]) -> (Server, Vec<Value>) {
    let server = Server::start(configuration(directory)).await;
    let mut ids = Vec::new();
    for error in errors {
        ids.push(server.enqueue("q", error).await["id"].clone());
        let receipt = server.lease("q", &json!({})).await[0]["receipt"].clone();
        server.settle(json!({"outcome": "dead", "error": error}), &receipt).await;
    }
    (server, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_a_task_with_its_own_status() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ids) = with_dead(directory.path(), &["a", "b", "c"]).await;
    let started = server.post("/v1/queues/q/dead/replay", &json!({"all": true, "rate": "1/h"})).await;
    let path = "/v1/queues/q/dead/replays/1";
    assert_eq!((started.status, started.header("location")), (202, path));
    let task = started.json();
    assert_eq!(
        (&task["status"], &task["number"], &task["url"]),
        (&json!("running"), &json!(1), &json!(path))
    );
    assert_eq!((&task["selected"], &task["replayed"], &task["remaining"]), (&json!(3), &json!(1), &json!(2)));
    assert_eq!((&task["samples"], &task["rate"]), (&json!(ids), &json!("1/h")));
    let second = server.post("/v1/queues/q/dead/replay", &json!({"all": true})).await;
    assert_eq!((second.status, second.slug()), (409, "in-use".to_owned()));
    let status = server.get(path).await.json();
    assert_eq!((&status["status"], &status["replayed"]), (&json!("running"), &json!(1)));
    assert_eq!(status["waits_for"], "pace");
    let cancelled = server.send("DELETE", path, &[], "").await.json();
    assert_eq!((&cancelled["status"], &cancelled["remaining"]), (&json!("cancelled"), &json!(2)));
    let all = server.get("/v1/queues/q/dead/replays").await.json();
    assert_eq!(all["replays"], json!([cancelled]));
    for unknown in ["2", "x", "-1"] {
        let answer = server.get(&format!("/v1/queues/q/dead/replays/{unknown}")).await;
        assert_eq!((answer.status, answer.slug()), (404, "unknown-replay".to_owned()), "{unknown}");
    }
    assert_eq!(server.get("/v1/queues/none/dead/replays").await.slug(), "unknown-queue");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_dead_letter_is_not_said_to_be_past_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ids) = with_dead(directory.path(), &["a"]).await;
    let id = ids[0].as_str().unwrap();
    assert_eq!(server.send("DELETE", &format!("/v1/queues/q/dead/{id}"), &[], "").await.status, 204);
    let gone = server.get(&format!("/v1/messages/{id}")).await;
    assert_eq!((gone.status, gone.slug().as_str()), (410, "forgotten"));
    assert!(gone.json()["detail"].as_str().unwrap().contains("was deleted"), "{gone:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_found_and_replayed_by_the_same_filters() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ids) = with_dead(directory.path(), &["connection refused", "no such invoice"]).await;
    let list = async |query: &str| {
        let page = server.get(&format!("/v1/queues/q/dead?{query}")).await.json();
        page["messages"].as_array().unwrap().iter().map(|letter| letter["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(list("error=REFUSED").await, ids[..1]);
    assert_eq!(list("since=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z").await, [json!(null); 0]);
    assert_eq!(list("until=2999-01-01T00:00:00Z&reason=rejected").await, ids);
    assert_eq!(list("tenant=nobody").await, [json!(null); 0]);
    assert_eq!(server.get("/v1/queues/q/dead?reason=tired").await.slug(), "malformed");
    let wish = json!({"filter": {"error": "invoice", "until": "2999-01-01T00:00:00Z"}, "ttl": "1h"});
    let done = server.post("/v1/queues/q/dead/replay", &wish).await.json();
    assert_eq!((&done["selected"], &done["samples"]), (&json!(1), &json!([ids[1]])));
    let message = server.lease("q", &json!({})).await[0].clone();
    assert_eq!(message["id"], ids[1]);
    assert_eq!(list("").await, ids[..1]);
    server.stop().await;
}
