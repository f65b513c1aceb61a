//! The life of a message over HTTP: pulled, pushed, waited for, cancelled, looked at, replayed.
//!
//! Owns the tests of what works. Must never depend on how long something takes.

use crate::backend::{Backend, ok};
use crate::harness::{Server, configuration, eventually, name, with_target, within};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_accepted_leased_settled_and_its_result_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let answer = server
        .send(
            "POST",
            "/v1/queues/q/messages",
            &[("content-type", "text/plain"), ("prefer", "respond-async")],
            "work",
        )
        .await;
    assert_eq!(answer.status, 202);
    let accepted = answer.json();
    assert_eq!(answer.header("location"), accepted["status_url"]);
    assert_eq!(answer.header("preference-applied"), "respond-async");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(
        (&accepted["queue"], &accepted["status"], &accepted["position"]),
        (&json!("q"), &json!("ready"), &json!(0))
    );
    assert!(accepted["accepted_at"].as_str().unwrap().ends_with('Z'));
    assert!(accepted.get("duplicate").is_none());

    let url = accepted["status_url"].as_str().unwrap();
    let pending = server.get(url).await;
    assert!(pending.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(server.get(&url.replace("?t", "/result?t")).await.slug(), "no-result");

    let messages = server.lease("q", &json!({"max": 10, "lease_seconds": 60, "consumer": "w1"})).await;
    assert_eq!(messages.len(), 1);
    let message = &messages[0];
    assert_eq!((&message["id"], &message["body"]), (&accepted["id"], &json!("work")));
    assert_eq!((&message["attempt"], &message["deliveries"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&message["content_type"], &message["criticality"]),
        (&json!("text/plain"), &json!("critical"))
    );
    assert!(message.get("body_encoding").is_none() && message["headers"].is_object());
    assert!(server.lease("q", &json!({})).await.is_empty(), "nobody else gets it");

    let extended = server
        .post("/v1/leases/extend", &json!([{"receipt": message["receipt"], "lease_seconds": 120}]))
        .await
        .json();
    assert_eq!(extended[0]["status"], 200);
    assert!(
        extended[0]["lease_expires_at"].as_str().unwrap() > message["lease_expires_at"].as_str().unwrap()
    );

    let completed =
        json!({"outcome": "complete", "result": "{\"n\": 1}", "content_type": "application/json"});
    assert_eq!(server.settle(completed.clone(), &message["receipt"]).await["status"], 200);
    let status = server.get(url).await;
    let seen = status.json();
    assert_eq!((seen["status"].as_str(), status.header("retry-after")), (Some("succeeded"), ""));
    assert_eq!((&seen["history"][0]["n"], &seen["history"][0]["outcome"]), (&json!(1), &json!("succeeded")));
    assert_eq!(seen["result"]["size"], 8);
    let result = server.get(seen["result"]["url"].as_str().unwrap()).await;
    assert_eq!((&result.body[..], result.header("content-type")), (&b"{\"n\": 1}"[..], "application/json"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_pushed_with_what_the_target_must_know() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("done")).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 4);
    let target = configuration.targets.get_mut("target").unwrap();
    target.headers.insert("authorization", "Bearer secret".parse().unwrap());
    let server = Server::start(configuration).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("content-type", "application/x-thing"), ("traceparent", trace), ("tracestate", "a=1")];
    let accepted = server.send("POST", "/v1/queues/push/messages", &headers, "work").await.json();
    let status = server.outcome(&accepted).await;
    assert_eq!(status["status"], "succeeded", "{status}");
    let seen = backend.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].head.starts_with("POST /work HTTP/1.1"), "{:?}", seen[0]);
    for (header, value) in [
        ("content-type", "application/x-thing"),
        ("traceparent", trace),
        ("tracestate", "a=1"),
        ("authorization", "Bearer secret"),
        ("millpond-queue", "push"),
        ("millpond-attempt", "1"),
        ("millpond-message-id", accepted["id"].as_str().unwrap()),
        ("idempotency-key", accepted["id"].as_str().unwrap()),
        ("millpond-accepted-at", accepted["accepted_at"].as_str().unwrap()),
        ("millpond-expires-at", status["expires_at"].as_str().unwrap()),
    ] {
        assert_eq!(seen[0].header(header), value, "{header}");
    }
    assert_eq!(seen[0].body, "work");
    let result = server.get(status["result"]["url"].as_str().unwrap()).await;
    assert_eq!((&result.body[..], result.header("content-type")), (&b"done"[..], "text/plain"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_of_a_target_holds_and_connections_are_reused() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("")).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 3);
    let server = Server::start(configuration).await;
    let items: Vec<_> = (0..200).map(|number| json!({"body": format!("{number}")})).collect();
    let answers = server.post("/v1/queues/push/messages/batch", &json!(items)).await.json();
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["status"] == 202));
    eventually("all are done", async || server.stats("push").await["completed_total"] == 200).await;
    assert!((1..=3).contains(&backend.busiest()), "{}", backend.busiest());
    assert_eq!(backend.seen().len(), 200, "each exactly once");
    assert!(backend.closed() < 100, "connections are reused, {} were closed", backend.closed());
    eventually("nothing is in flight", async || inflight(&server).await == 0.0).await;
    server.stop().await;
}

async fn inflight(server: &Server) -> f64 {
    let text = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let line = text.lines().find(|line| line.starts_with("millpond_target_inflight{")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_is_the_same_message_and_another_payload_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let send = async |key: &str, headers: &[(&str, &str)], body: &str| {
        let headers: Vec<_> = headers.iter().copied().chain([("idempotency-key", key)]).collect();
        server.send("POST", "/v1/queues/q/messages", &headers, body.to_owned()).await
    };
    let first = send("\"k\"", &[], "a").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (202, ""));
    let again = send("k", &[], "a").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (202, "true"));
    assert_eq!((&again.json()["id"], &again.json()["duplicate"]), (&first.json()["id"], &json!(true)));
    assert_eq!(again.json()["accepted_at"], first.json()["accepted_at"]);
    for other in [
        send("k", &[], "b").await,
        send("k", &[("content-type", "text/x")], "a").await,
        send("k", &[("millpond-delay", "1s")], "a").await,
    ] {
        assert_eq!((other.status, other.slug().as_str()), (422, "idempotency-mismatch"));
    }
    let batch = server
        .post("/v1/queues/q/messages/batch", &json!([{"body": "a", "idempotency_key": "k"}]))
        .await
        .json();
    assert_eq!((&batch[0]["id"], &batch[0]["duplicate"]), (&first.json()["id"], &json!(true)));
    assert_eq!(server.stats("q").await["ready"], 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_long_polls_wake_when_the_thing_happens() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let (messages, accepted) =
        tokio::join!(async { server.lease("q", &json!({"wait_seconds": 20})).await }, async {
            server.enqueue("q", "work").await
        },);
    assert_eq!(messages[0]["id"], accepted["id"]);
    let (status, settled) = tokio::join!(
        server.outcome(&accepted),
        server.settle(json!({"outcome": "complete"}), &messages[0]["receipt"]),
    );
    assert_eq!((status["status"].as_str(), settled["status"].as_u64()), (Some("succeeded"), Some(200)));
    assert!(status.get("result").is_none());
    let url = accepted["status_url"].as_str().unwrap();
    assert_eq!(
        server.send("GET", url, &[("prefer", "wait=999")], "").await.header("preference-applied"),
        "wait=60"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_while_it_waits_burns_no_delivery() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let body = r#"{"wait_seconds": 60}"#;
    let request = format!(
        "POST /v1/queues/q/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..5 {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
    }
    let accepted = server.enqueue("q", "work").await;
    // Whatever order the server sees departures and arrival in, the message must be there for who stays.
    let messages = server.lease("q", &json!({"wait_seconds": 20})).await;
    assert_eq!((&messages[0]["id"], &messages[0]["deliveries"]), (&accepted["id"], &json!(1)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_receipt_is_refused_and_the_new_holder_is_not_disturbed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "work").await;
    let stale = server.lease("q", &json!({"lease_seconds": 0.05})).await[0]["receipt"].clone();
    let holder = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
    assert_eq!((&holder["attempt"], &holder["deliveries"]), (&json!(2), &json!(2)));
    let late = server.settle(json!({"outcome": "complete"}), &stale).await;
    assert_eq!((&late["status"], &late["error"]["type"]), (&json!(409), &json!("/problems/lease-lost")));
    let late =
        server.post("/v1/leases/extend", &json!([{"receipt": stale, "lease_seconds": 5}])).await.json();
    assert_eq!(late[0]["status"], 409);
    assert_eq!(server.settle(json!({"outcome": "complete"}), &holder["receipt"]).await["status"], 200);
    let again = server.settle(json!({"outcome": "dead"}), &holder["receipt"]).await;
    assert_eq!(again["status"], 409, "settled once is settled");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_settlement_counts_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for body in ["a", "b"] {
        server.enqueue("q", body).await;
    }
    let leased = server.lease("q", &json!({"max": 2})).await;
    let answers = server
        .post(
            "/v1/settlements",
            &json!([
                {"receipt": leased[0]["receipt"], "outcome": "complete"},
                {"receipt": "nonsense", "outcome": "complete"},
                {"receipt": leased[1]["receipt"], "outcome": "perhaps"},
                {"receipt": leased[1]["receipt"], "outcome": "retry", "delay_seconds": -1},
                {"receipt": leased[1]["receipt"], "outcome": "dead", "error": {"kind": "db", "message": "no such row"}},
            ]),
        )
        .await
        .json();
    let statuses: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 400, 400, 400, 200], "{answers}");
    assert_eq!(answers[1]["receipt"], "nonsense");
    assert_eq!(answers[1]["error"]["type"], "/problems/malformed");
    assert_eq!(server.post("/v1/settlements", &json!([])).await.json(), json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_come_back_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.send("POST", "/v1/queues/q/messages", &[], &[0xff, 0x00, 0xfe][..]).await.json();
    let leased = server.lease("q", &json!({})).await[0].clone();
    assert_eq!((&leased["body"], &leased["body_encoding"]), (&json!("/wD+"), &json!("base64")));
    assert_eq!(leased["content_type"], "application/octet-stream");
    let settlement = json!({"outcome": "complete", "result": "/wD+", "result_encoding": "base64"});
    assert_eq!(server.settle(settlement, &leased["receipt"]).await["status"], 200);
    let status = server.outcome(&accepted).await;
    let result = server.get(status["result"]["url"].as_str().unwrap()).await;
    assert_eq!(&result.body[..], [0xff, 0x00, 0xfe]);
    assert_eq!(result.header("content-type"), "application/octet-stream");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_is_shown_listed_and_can_be_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted =
        server.send("POST", "/v1/queues/q/messages", &[("millpond-delay", "1h")], "later").await.json();
    assert_eq!(accepted["status"], "delayed");
    let listed = server.get("/v1/queues/q/messages?state=delayed&limit=1").await.json();
    assert_eq!(listed["messages"][0]["id"], accepted["id"]);
    assert!(listed["messages"][0]["due_at"].as_str().unwrap() > accepted["accepted_at"].as_str().unwrap());
    let cancel = format!("/v1/messages/{}/cancel", accepted["id"].as_str().unwrap());
    let cancelled = server.send("POST", &cancel, &[], "").await;
    assert_eq!((cancelled.status, cancelled.json()["status"].as_str()), (200, Some("cancelled")));
    assert_eq!(server.send("POST", &cancel, &[], "").await.status, 200, "withdrawn twice is withdrawn");
    let leased = server.enqueue("q", "now").await;
    assert_eq!(server.lease("q", &json!({})).await[0]["id"], leased["id"]);
    let cancel = format!("/v1/messages/{}/cancel", leased["id"].as_str().unwrap());
    let refused = server.send("POST", &cancel, &[], "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "not-cancellable"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_list_join_without_gap_or_repetition() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let items: Vec<_> = (0..25).map(|number| json!({"body": format!("{number}")})).collect();
    let accepted = server.post("/v1/queues/q/messages/batch", &json!(items)).await.json();
    let expected: Vec<_> = accepted.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/queues/q/messages?limit=10{after}")).await.json();
        found.extend(page["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(found, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_read_replayed_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let mut ids = Vec::new();
    for body in ["a", "b", "c"] {
        ids.push(server.enqueue("q", body).await["id"].clone());
        let receipt = server.lease("q", &json!({})).await[0]["receipt"].clone();
        server.settle(json!({"outcome": "dead", "error": format!("bad {body}")}), &receipt).await;
    }
    let dead = server.get("/v1/queues/q/dead").await.json();
    assert_eq!(dead["messages"].as_array().unwrap().len(), 3);
    assert_eq!(dead["messages"][0]["dead_reason"], "rejected");
    assert_eq!(dead["messages"][0]["last_error"]["message"], "bad a");
    let found = server.get("/v1/queues/q/dead?reason=rejected&error=bad%20b").await.json();
    assert_eq!((found["messages"].as_array().unwrap().len(), &found["messages"][0]["id"]), (1, &ids[1]));
    let one = server.get(&format!("/v1/queues/q/dead/{}", ids[0].as_str().unwrap())).await.json();
    assert_eq!((&one["body"], &one["status"], &one["id"]), (&json!("a"), &json!("dead"), &ids[0]));

    let replay = async |wish: serde_json::Value| server.post("/v1/queues/q/dead/replay", &wish).await;
    let dry = replay(json!({"all": true, "dry_run": true})).await;
    assert_eq!(
        (dry.status, &dry.json()["replayed"], &dry.json()["status"]),
        (202, &json!(3), &json!("dry-run"))
    );
    assert_eq!(server.stats("q").await["dead"], 3);
    assert_eq!(replay(json!({"ids": [ids[1]]})).await.json()["replayed"], 1);
    let again = server.lease("q", &json!({})).await[0].clone();
    assert_eq!((&again["id"], &again["attempt"]), (&ids[1], &json!(1)));
    assert_eq!(replay(json!({"ids": [ids[1]]})).await.status, 404, "no dead letter any more");
    for wish in [json!({}), json!({"all": true, "ids": []}), json!({"ids": ["x"]})] {
        assert_eq!(replay(wish).await.slug(), "malformed");
    }
    for wish in [
        json!({"all": true, "rate": "fast"}),
        json!({"filter": {"reason": "tired"}}),
        json!({"filter": {"since": "yesterday"}}),
        json!({"all": true, "filter": {}}),
        json!({"all": true, "ttl": "5d"}),
    ] {
        assert_eq!(replay(wish).await.slug(), "malformed");
    }

    let path = format!("/v1/queues/q/dead/{}", ids[0].as_str().unwrap());
    assert_eq!(server.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(server.get(&path).await.status, 410, "what was deleted is forgotten");
    assert_eq!(replay(json!({"all": true})).await.json()["replayed"], 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_made_changed_paused_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let put = async |path: &str, body: &str| {
        server.send("PUT", path, &[("content-type", "application/json")], body.to_owned()).await
    };
    let made = put("/v1/queues/new", r#"{"lease_seconds": 5}"#).await;
    assert_eq!((made.status, &made.json()["settings"]["lease_seconds"]), (201, &json!(5)));
    assert_eq!(put("/v1/queues/new", r#"{"lease_seconds": 6}"#).await.status, 200);
    assert_eq!(put("/v1/queues/q", "{}").await.slug(), "declared-in-configuration");
    let wrong = put("/v1/queues/new", r#"{"lease_secs": 6}"#).await;
    assert_eq!(wrong.slug(), "malformed");
    assert!(wrong.json()["detail"].as_str().unwrap().contains("lease_secs"));

    let names: Vec<_> = server.get("/v1/queues").await.json()["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| queue["name"].clone())
        .collect();
    assert_eq!(names, [json!("new"), json!("q")]);
    server.enqueue("new", "x").await;
    assert_eq!(server.send("POST", "/v1/queues/new/pause", &[], "").await.json()["paused"], true);
    assert!(server.lease("new", &json!({})).await.is_empty());
    assert_eq!(server.stats("new").await["paused"], 1);
    assert_eq!(server.get("/v1/queues/new").await.json()["held"], "paused");
    let metrics = server.get("/metrics").await;
    let held = r#"millpond_queue_held{queue="new",reason="paused"} 1.0"#;
    assert!(String::from_utf8_lossy(&metrics.body).contains(held));
    assert_eq!(server.send("DELETE", "/v1/queues/new", &[], "").await.slug(), "in-use");
    assert_eq!(server.send("POST", "/v1/queues/new/resume", &[], "").await.json()["paused"], false);
    let receipt = server.lease("new", &json!({})).await[0]["receipt"].clone();
    server.settle(json!({"outcome": "complete"}), &receipt).await;
    assert_eq!(server.send("DELETE", "/v1/queues/new", &[], "").await.status, 204);
    assert_eq!(server.get("/v1/queues/new").await.slug(), "unknown-queue");
    assert_eq!(server.send("DELETE", "/v1/queues/q", &[], "").await.slug(), "declared-in-configuration");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_without_tls_is_spoken_with_prior_knowledge() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(configuration(directory.path())).await;
    server.client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build(hyper_util::client::legacy::connect::HttpConnector::new());
    let accepted = server.enqueue("q", "over http/2").await;
    let leased = server.lease("q", &json!({})).await;
    assert_eq!((&leased[0]["id"], &leased[0]["body"]), (&accepted["id"], &json!("over http/2")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_beyond_the_queues_limit_are_cut_and_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let long = "r".repeat(3_000);
    let backend = Backend::start(move |_, _| ok(&long)).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 1);
    configuration.queues.get_mut(&name("push")).unwrap().result_max_bytes = 1_000;
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("push", "x").await;
    let status = server.outcome(&accepted).await;
    assert_eq!((&status["status"], &status["result"]["size"]), (&json!("succeeded"), &json!(1_000)));
    let result = server.get(status["result"]["url"].as_str().unwrap()).await;
    assert_eq!((result.body.len(), result.header("millpond-result-truncated")), (1_000, "true"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_people_and_supervisors_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let index = server.get("/").await;
    assert!(String::from_utf8_lossy(&index.body).contains("q: 0 ready"), "{index:?}");
    for slug in millpond_api::problem::Slug::ALL {
        let page = server.get(&format!("/problems/{}", slug.as_str())).await;
        assert!(
            page.status == 200 && String::from_utf8_lossy(&page.body).contains(slug.remedy()),
            "{page:?}"
        );
    }
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(String::from_utf8_lossy(&metrics.body).ends_with("# EOF\n"));
    within(async { tokio::time::timeout(Duration::from_secs(10), server.stop()).await.unwrap() }).await;
}
