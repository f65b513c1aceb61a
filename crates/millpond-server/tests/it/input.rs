//! Bad input: whatever a careless or hostile caller can send.
//!
//! Owns the tests of the front door's bounds. Must never leave the server worse off than before: each test ends
//! with a message that goes through.

use crate::harness::{Server, configuration, eventually, read_answer, within};
use millpond_server::Limits;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MESSAGES: &str = "/v1/queues/q/messages";

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_cannot_be_read_or_fulfilled_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let long = "t".repeat(129);
    let server = Server::start(configuration(directory.path())).await;
    for (header, value, slug) in [
        ("millpond-delay", "30", "malformed"),
        ("millpond-delay", "-5s", "malformed"),
        ("millpond-delay", "NaN", "malformed"),
        ("millpond-delay", "99999999999999999999d", "malformed"),
        ("millpond-delay", "31d", "invalid-message"),
        ("millpond-delay", "5d", "invalid-message"),
        ("millpond-ttl", "soon", "malformed"),
        ("millpond-ttl", "0s", "invalid-message"),
        ("millpond-ttl", "400d", "invalid-message"),
        ("idempotency-key", "\"open", "malformed"),
        ("idempotency-key", "\"\"", "malformed"),
        ("millpond-group", "", "invalid-message"),
        ("millpond-group", "a\tb", "invalid-message"),
        ("millpond-tenant", long.as_str(), "invalid-message"),
        ("millpond-callback", "http://c", "invalid-message"),
        ("millpond-criticality", "urgent", "invalid-message"),
        ("millpond-criticality", "Critical", "invalid-message"),
        ("millpond-criticality", "", "invalid-message"),
    ] {
        let answer = server.send("POST", MESSAGES, &[(header, value)], "x").await;
        assert_eq!(answer.slug(), slug, "{header}: {value}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().len() > 20, "{answer:?}");
    }
    assert_eq!(server.stats("q").await["accepted_total"], 0);
    server.enqueue("q", "x").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_none_are_refused_however_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let long = "n".repeat(81);
    for bad in [
        "a%2Fb",
        "a%00b",
        "a%0Ab",
        "%2e%2e",
        "-a",
        ".a",
        "a%20b",
        "%C3%A9",
        "a+b",
        long.as_str(),
        "a:b",
        "a%25",
    ] {
        assert_eq!(
            server.send("POST", &format!("/v1/queues/{bad}/messages"), &[], "x").await.slug(),
            "unknown-queue",
            "{bad}"
        );
        let put = server
            .send("PUT", &format!("/v1/queues/{bad}"), &[("content-type", "application/json")], "{}")
            .await;
        assert_eq!(put.slug(), "malformed", "{bad}");
    }
    assert_eq!(server.send("POST", "/v1/queues/%ff/messages", &[], "x").await.slug(), "malformed");
    assert_eq!(server.send("POST", "/v1/queues/a/b/messages", &[], "x").await.slug(), "not-found");
    assert_eq!(server.send("POST", "/v1/queues//messages", &[], "x").await.status, 404);
    server.enqueue("q", "x").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_is_none_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let json_type = [("content-type", "application/json")];
    for (path, body, hint) in [
        ("/v1/queues/q/leases", "{", "line 1 column 1"),
        ("/v1/queues/q/leases", "", "the body is empty; send a wish for messages"),
        ("/v1/queues/q/leases", "\"x\"", "a wish for messages"),
        ("/v1/queues/q/leases", r#"{"max": 0}"#, "max is 0"),
        ("/v1/queues/q/leases", r#"{"max": -1}"#, "max: "),
        ("/v1/queues/q/leases", r#"{"max": 1e99}"#, "max: "),
        ("/v1/queues/q/leases", r#"{"max": 5000}"#, "from 1 to 1000"),
        ("/v1/queues/q/leases", r#"{"wait_seconds": 61}"#, "at most 60"),
        ("/v1/queues/q/leases", r#"{"wait_seconds": -1}"#, "not negative"),
        ("/v1/queues/q/leases", r#"{"wait_seconds": NaN}"#, "line 1 column"),
        ("/v1/queues/q/leases", r#"{"lease_seconds": 1e300}"#, "lease_seconds"),
        ("/v1/queues/q/leases", r#"{"lease": 3}"#, "unknown field `lease`"),
        ("/v1/settlements", r#"{"receipt": "x"}"#, "an array of settlements"),
        ("/v1/settlements", r#"[{"receipt": "x"}]"#, "missing field `outcome`"),
        ("/v1/leases/extend", r#"[{"receipt": "x", "lease_seconds": "5"}]"#, "[0].lease_seconds"),
        ("/v1/queues/q/messages/batch", r#"[{"body": {}}]"#, "[0].body"),
        (
            "/v1/queues/q/messages/batch",
            r#"[{"body": "x"}, {"body": "x", "grup": "g"}]"#,
            "[1].grup: unknown field",
        ),
        ("/v1/queues/q/messages/batch", r#"[{"body": "x", "group": 7}]"#, "[0].group"),
        ("/v1/queues/q/leases", r#"{"consumer": ""}"#, "consumer is empty"),
        ("/v1/queues/q/leases", r#"{"consumer": "a\nb"}"#, "consumer has a control character"),
        ("/v1/queues/q/dead/replay", r#"{"all": 1}"#, "all"),
        ("/v1/queues/q/dead/replay", r#"{"filter": {}}"#, r#"write {"all": true}"#),
        ("/v1/queues/q/dead/replay", r#"{"filter": {"error": null}}"#, r#"write {"all": true}"#),
        (
            "/v1/queues/q/dead/replay",
            r#"{"filter": {"error": "a", "error": "b"}}"#,
            "duplicate field `error`",
        ),
    ] {
        let answer = server.send("POST", path, &json_type, body).await;
        assert_eq!((answer.status, answer.slug().as_str()), (400, "malformed"), "{path} {body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(hint), "{body}: {detail}");
    }
    for (body, hint) in [
        (r#"{"prefetch": 5, "prefetch": 6}"#, "duplicate field \"prefetch\""),
        (r#"{"retry": {"budget": 0, "budget": 1}}"#, "duplicate field \"budget\""),
        (r#"{"dead_letter": {"owner": "a\u001b[2J"}}"#, "dead_letter.owner"),
    ] {
        let answer = server.send("PUT", "/v1/queues/new", &json_type, body).await;
        assert_eq!((answer.status, answer.slug().as_str()), (400, "malformed"), "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(hint), "{body}: {detail}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(server.send("PUT", "/v1/queues/new", &json_type, deep.clone()).await.slug(), "malformed");
    assert_eq!(server.send("POST", "/v1/settlements", &json_type, deep).await.slug(), "malformed");
    for wrong in ["text/plain", "multipart/form-data; boundary=x"] {
        let answer = server.send("POST", "/v1/settlements", &[("content-type", wrong)], "[]").await;
        assert_eq!((answer.status, answer.slug().as_str()), (415, "unsupported-media-type"));
    }
    assert_eq!(
        server.send("POST", "/v1/settlements", &[], "[]").await.status,
        200,
        "JSON is assumed where nothing is said"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_refuses_the_bad_ones_and_takes_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.max_body_bytes = 100;
    let server = Server::start_with(configuration, Limits { batch: 20, ..Limits::default() }).await;
    let batch = json!([
        {"body": "good"},
        {"body": "!", "body_encoding": "base64"},
        {"body": "x", "delay_seconds": -1},
        {"body": "x", "delay_seconds": 1e12},
        {"body": "x", "ttl_seconds": 0},
        {"body": "x", "tenant": ""},
        {"body": "x", "group": "g".repeat(129)},
        {"body": "x", "criticality": "urgent"},
        {"body": "x", "criticality": "critical"},
        {"body": "x".repeat(101)},
        {"body": "x", "content_type": "a\nb"},
        {"body": "x", "headers": {"x-own": "1"}},
        {"body": "x", "idempotency_key": ""},
        {"body": "good"},
    ]);
    let answers = server.post("/v1/queues/q/messages/batch", &batch).await.json();
    let statuses: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 400, 422, 422, 422, 422, 422, 202, 413, 400, 422, 400, 202], "{answers}");
    let detail = answers[5]["error"]["detail"].as_str().unwrap();
    assert!(detail.contains("message 5 of the batch: tenant is empty"), "{detail}");
    let long: Vec<_> = (0..21).map(|_| json!({"body": "x"})).collect();
    assert_eq!(server.post("/v1/queues/q/messages/batch", &json!(long)).await.slug(), "too-large");
    assert_eq!(server.post("/v1/queues/q/messages/batch", &json!([])).await.json(), json!([]));
    assert_eq!(server.stats("q").await["ready"], 3);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_cannot_be_read_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for query in [
        "state=asleep",
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=NaN",
        "limit=99999999999999999999999",
        "after=x",
        "stat=ready",
        "state=%ff",
    ] {
        let answer = server.get(&format!("{MESSAGES}?{query}")).await;
        assert_eq!((answer.status, answer.slug().as_str()), (400, "malformed"), "{query}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("query"), "{answer:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_from_its_announced_length_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.max_body_bytes = 1_000;
    let server = Server::start(configuration).await;
    assert_eq!(server.send("POST", MESSAGES, &[], vec![b'x'; 1_000]).await.status, 202);
    assert_eq!(server.send("POST", MESSAGES, &[], vec![b'x'; 1_001]).await.slug(), "too-large");
    assert_eq!(server.send("POST", MESSAGES, &[], vec![b'x'; 3_000_000]).await.slug(), "too-large");
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\n");
    let announced = server.raw(format!("{head}content-length: 999999999999\r\n\r\n").as_bytes()).await;
    assert!(announced.starts_with("HTTP/1.1 413"), "not a byte of it was sent: {announced}");
    let expecting =
        server.raw(format!("{head}expect: 100-continue\r\ncontent-length: 5000\r\n\r\n").as_bytes()).await;
    assert!(expecting.starts_with("HTTP/1.1 413"), "no 100 Continue for what will be refused: {expecting}");
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    let chunked =
        server.raw(format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}{chunk}").as_bytes()).await;
    assert!(chunked.starts_with("HTTP/1.1 413"), "{chunked}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_beyond_the_limit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { headers: 20, head_bytes: 8 << 10, ..Limits::default() };
    let server = Server::start_with(configuration(directory.path()), limits).await;
    let many = "x-many: y\r\n".repeat(30);
    let answer = server.raw(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let large = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\r\n", "y".repeat(20_000));
    let answer = server.raw(large.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    for nonsense in [
        "\r\n\r\n\0\0\0",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n b: c\r\n\r\n",
    ] {
        let answer = server.raw(nonsense.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{nonsense:?}: {answer}");
    }
    let smuggled = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"
    );
    let answer = server.raw(smuggled.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    server.enqueue("q", "x").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_are_ended_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        head_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start_with(configuration(directory.path()), limits).await;
    for beginning in ["", "P", "PRI * HT", "POST /v1/queues/q/messages HTTP/1.1\r\nhost: local"] {
        let mut stream = server.connect().await;
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // The server ends the connection; an answer before that is welcome but not needed.
        let _ = within(stream.read_to_end(&mut rest)).await;
    }
    let mut stream = server.connect().await;
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf");
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request-timeout"), "{answer}");
    // A worker that waits is silent for longer than a head may take, and must not be ended for it.
    let messages = server.lease("q", &json!({"wait_seconds": 0.6})).await;
    assert!(messages.is_empty());
    server.enqueue("q", "x").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_leaves_in_the_middle_of_its_body_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    for _ in 0..10 {
        let mut stream = server.connect().await;
        let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf");
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    server.enqueue("q", "whole").await;
    assert_eq!(server.stats("q").await["accepted_total"], 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 3, ..Limits::default() };
    let server = Server::start_with(configuration(directory.path()), limits).await;
    let idle = [server.connect().await, server.connect().await];
    // The third is the client's own, kept alive since the start.
    assert_eq!(server.get("/livez").await.status, 200);
    let mut waiting = server.connect().await;
    waiting.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let unanswered = tokio::time::timeout(Duration::from_millis(100), read_answer(&mut waiting)).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    drop(idle);
    let answer = read_answer(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    eventually("all is well", async || server.get("/readyz").await.status == 200).await;
}
