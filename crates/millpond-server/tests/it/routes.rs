//! Routes: what a client that knows nothing of Millpond sends, and what reaches the target or the worker of it.
//!
//! Owns the tests of the way in and out. Waiting for answers is in `answers`.

use crate::backend::{Backend, Seen, ok};
use crate::harness::{Server, configuration, eventually, with_target};
use millpond_config::{Configuration, parse_with};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;

/// What a route that names a schema gets.
const SCHEMA: &[u8] =
    br#"{"type": "object", "required": ["name"], "properties": {"age": {"type": "integer"}}}"#;

/// A configuration with the target's queue `push`, a pull queue `q`, and these routes.
pub(crate) fn with_routes(directory: &Path, backend: Option<SocketAddr>, routes: &str) -> Configuration {
    let mut configuration = configuration(directory);
    if let Some(address) = backend {
        with_target(&mut configuration, address, 2);
    }
    let text = format!("[queues.q]\n[queues.push]\n{routes}");
    let schema = |_: &Path| Ok(SCHEMA.to_vec());
    let loaded = parse_with(&text, "millpond.toml", &schema).unwrap_or_else(|error| panic!("{error}"));
    configuration.routes = loaded.configuration.routes;
    configuration
}

async fn pushed(routes: &str) -> (Server, Backend, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("done")).await;
    let server = Server::start(with_routes(directory.path(), Some(backend.address), routes)).await;
    (server, backend, directory)
}

async fn arrived(backend: &Backend, number: usize) -> Seen {
    eventually("the target was called", async || backend.seen().len() > number).await;
    backend.seen()[number].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_the_target_with_its_method_path_query_and_headers() {
    let (server, backend, _directory) = pushed(
        "[[routes]]\npath = \"/enroll/{*rest}\"\nmethods = [\"*\"]\nqueue = \"push\"\nkeep_headers = [\"x-*\"]",
    )
    .await;
    let headers = [
        ("content-type", "text/x-form"),
        ("x-request-id", "7"),
        ("x-hop", "no"),
        ("connection", "x-hop"),
        ("authorization", "Bearer secret"),
        ("accept", "text/plain"),
    ];
    let answer = server.send("PUT", "/enroll/a%2Fb/c/?x=%20&y", &headers, "body").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.header("location"), answer.json()["status_url"]);
    assert_eq!(answer.json()["queue"], "push");
    let seen = arrived(&backend, 0).await;
    assert_eq!((seen.method(), seen.target().as_str()), ("PUT", "~/a%2Fb/c/?x=%20&y"));
    assert_eq!((seen.header("content-type"), seen.body.as_str()), ("text/x-form", "body"));
    assert_eq!(seen.header("x-request-id"), "7");
    assert_eq!(seen.header("millpond-message-id"), answer.json()["id"]);
    for absent in ["x-hop", "authorization", "accept", ":method", ":path"] {
        assert!(!seen.head.contains(&format!("{absent}: ")), "{absent} in {}", seen.head);
    }
    let answer = server.send("GET", "/enroll/list", &[], "").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let seen = arrived(&backend, 1).await;
    assert_eq!((seen.method(), seen.target().as_str()), ("GET", "~/list"));
    assert!(!seen.head.contains("content-type"), "{}", seen.head);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_says_what_is_appended() {
    let (server, backend, _directory) = pushed(
        "[[routes]]\npath = \"/users/{id}/orders/{order}\"\nqueue = \"push\"\nforward = \"/v2/{order}/of/{id}\"\n\
         [[routes]]\npath = \"/plain/{id}\"\nqueue = \"push\"\nforward = \"/p?id={id}\"\n\
         [[routes]]\npath = \"/bare/{id}\"\nqueue = \"push\"\nforward = \"/b?\"\n\
         [[routes]]\npath = \"/fixed\"\nqueue = \"push\"",
    )
    .await;
    for (number, (path, target)) in [
        ("/users/u%201/orders/9?full=1", "~/v2/9/of/u%201?full=1"),
        ("/plain/7&admin=1?x=y", "~/p?id=7%26admin=1"),
        ("/bare/7?x=y", "~/b"),
        ("/fixed?x=y", "~?x=y"),
        ("/fixed", "~"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(server.send("POST", path, &[], "x").await.status, 202, "{path}");
        let seen = arrived(&backend, number).await;
        assert_eq!((seen.method(), seen.target().as_str()), ("POST", target), "{path}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_the_targets_own() {
    let (server, backend, _directory) =
        pushed("[[routes]]\npath = \"/enroll/{*rest}\"\nqueue = \"push\"\n[[routes]]\npath = \"/id/{id}\"\nqueue = \"push\"\nforward = \"/{id}/x\"").await;
    for path in [
        "/enroll/../admin",
        "/enroll/%2e%2e/admin",
        "/enroll/a/.%2E/%2e./b",
        "/enroll/..%2fadmin",
        "/enroll/..%5cadmin",
        "/enroll//admin",
        "/enroll/a//b",
        "/enroll/..;x/admin",
        "/enroll/.",
        "/id/..",
        "/id/%2e%2e",
        "/id/%2F",
    ] {
        let raw = server
            .raw(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .await;
        assert!(raw.starts_with("HTTP/1.1 400 "), "{path}: {raw}");
    }
    assert_eq!(backend.seen().len(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_and_own_paths_are_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = with_routes(
        directory.path(),
        None,
        "[[routes]]\npath = \"/{*all}\"\nmethods = [\"POST\", \"GET\"]\nqueue = \"q\"\n",
    );
    let server = Server::start(configuration).await;
    for method in ["PUT", "DELETE"] {
        let answer = server.send(method, "/x", &[], "").await;
        assert_eq!((answer.slug().as_str(), answer.header("allow")), ("method-not-allowed", "GET, POST"));
    }
    for method in ["HEAD", "OPTIONS"] {
        let answer = server.send(method, "/x", &[], "").await;
        assert_eq!((answer.status, answer.header("allow")), (405, "GET, POST"), "{method}");
    }
    for path in ["/v1/nothing", "/v1", "/metrics/x", "/openapi.json", "//v1/queues"] {
        assert_eq!(server.send("POST", path, &[], "").await.status, 404, "{path}");
    }
    assert_eq!(server.send("POST", "/metrics", &[], "").await.status, 405);
    assert_eq!(server.stats("q").await["ready"], 0);
    assert_eq!(server.send("POST", "/x", &[], "").await.status, 202);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_method_path_and_headers() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = with_routes(
        directory.path(),
        None,
        "[[routes]]\npath = \"/in/{*rest}\"\nmethods = [\"*\"]\nqueue = \"q\"\nkeep_headers = [\"*\", \"Authorization\"]",
    );
    let server = Server::start(configuration.clone()).await;
    let headers = [
        ("authorization", "Bearer t"),
        ("cookie", "a=1"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("te", "trailers"),
        ("content-encoding", "br"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    assert_eq!(server.send("DELETE", "/in/a?b=c", &headers, "x").await.status, 202);
    // What was stored is told after a restart too.
    server.stop().await;
    let server = Server::start(configuration).await;
    let message = server.lease("q", &json!({})).await.remove(0);
    assert_eq!((&message["method"], &message["path"]), (&json!("DELETE"), &json!("/a?b=c")), "{message}");
    let headers = message["headers"].as_object().unwrap();
    assert_eq!((&headers["authorization"], &headers["x-a"]), (&json!("Bearer t"), &json!("1, 2")));
    assert_eq!(headers["content-encoding"], "br", "a body that stays compressed is said to be");
    assert!(headers.contains_key("traceparent"), "{message}");
    for absent in ["cookie", "te", "host", "content-length", ":method", ":path"] {
        assert!(!headers.contains_key(absent), "{absent}: {message}");
    }
    server.enqueue("q", "no route").await;
    let message = server.lease("q", &json!({})).await.remove(0);
    assert!(message.get("method").is_none() && message.get("path").is_none(), "{message}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_does_not_say_a_template_says_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = with_routes(
        directory.path(),
        None,
        "[[routes]]\npath = \"/in/{id}\"\nqueue = \"q\"\ntenant = \"{header.x-customer}\"\ngroup = \"g-{id}\"\n\
         idempotency_key = \"{query.key}\"\ncriticality = \"{header.x-class}\"",
    );
    let server = Server::start(configuration).await;
    let message = async |path: &str, headers: &[(&str, &str)]| {
        let answer = server.send("POST", path, headers, "x").await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let status = server.get(answer.header("location")).await.json();
        let field = |name: &str| status[name].as_str().unwrap_or("-").to_owned();
        [field("tenant"), field("group"), field("criticality")]
    };
    let headers = [("x-customer", "acme"), ("x-class", "sheddable")];
    assert_eq!(message("/in/%C3%A9", &headers).await, ["acme", "g-é", "sheddable"]);
    let own = [("millpond-tenant", "own"), ("millpond-group", "mine"), ("millpond-criticality", "critical")];
    assert_eq!(message("/in/2", &[&headers[..], &own[..]].concat()).await, ["own", "mine", "critical"]);
    assert_eq!(
        message("/in/3", &[("x-customer", "")]).await,
        ["-", "g-3", "critical"],
        "a missing part: none"
    );
    for (path, headers, slug) in [
        ("/in/4", [("x-class", "urgent")], "invalid-message"),
        ("/in/%00", [("x-a", "")], "invalid-message"),
        ("/in/%ff", [("x-a", "")], "malformed"),
    ] {
        assert_eq!(server.send("POST", path, &headers, "x").await.slug(), slug, "{path}");
    }
    let first = server.send("POST", "/in/5?key=a%20b", &[], "x").await;
    let again = server.send("POST", "/in/5?key=a+b", &[], "x").await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(again.slug(), "idempotency-mismatch", "the query is part of the payload");
    let again = server.send("POST", "/in/5?key=a%20b", &[("x-try", "2")], "x").await;
    assert_eq!(
        (again.json()["id"].clone(), again.header("idempotency-replayed")),
        (first.json()["id"].clone(), "true")
    );
    let long = format!("/in/6?key={}", "k".repeat(256));
    assert_eq!(server.send("POST", &long, &[], "x").await.slug(), "malformed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_with_another_method_or_path_is_another_payload() {
    let directory = tempfile::tempdir().unwrap();
    let routes =
        "[[routes]]\npath = \"/in/{*rest}\"\nmethods = [\"*\"]\nqueue = \"q\"\nkeep_headers = [\"x-*\"]";
    let server = Server::start(with_routes(directory.path(), None, routes)).await;
    let send = async |method: &str, path: &str, try_: &str| {
        server.send(method, path, &[("idempotency-key", "k"), ("x-try", try_)], "x").await
    };
    assert_eq!(send("POST", "/in/a", "1").await.status, 202);
    assert_eq!(send("POST", "/in/a", "2").await.header("idempotency-replayed"), "true");
    for (method, path) in [("PUT", "/in/a"), ("POST", "/in/b"), ("POST", "/in/a?x")] {
        assert_eq!(send(method, path, "3").await.slug(), "idempotency-mismatch", "{method} {path}");
    }
    let direct = server.send("POST", "/v1/queues/q/messages", &[("idempotency-key", "k")], "x").await;
    assert_eq!(direct.slug(), "idempotency-mismatch");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_targets_own_headers_count_more_than_what_callers_send() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("done")).await;
    let mut configuration = with_routes(
        directory.path(),
        Some(backend.address),
        "[[routes]]\npath = \"/in\"\nqueue = \"push\"\nkeep_headers = [\"*\", \"authorization\"]",
    );
    let target = configuration.targets.values_mut().next().unwrap();
    target.headers.insert("authorization", "Bearer ours".parse().unwrap());
    let server = Server::start(configuration).await;
    let headers = [("authorization", "Bearer theirs"), ("user-agent", "legacy/1")];
    assert_eq!(server.send("POST", "/in", &headers, "").await.status, 202);
    let seen = arrived(&backend, 0).await;
    assert_eq!((seen.header("authorization"), seen.header("user-agent")), ("Bearer ours", "legacy/1"));
    assert_eq!(seen.head.matches("authorization").count(), 1, "{}", seen.head);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_bounded_like_its_queue() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = with_routes(directory.path(), None, "[[routes]]\npath = \"/in\"\nqueue = \"q\"");
    configuration.max_body_bytes = 10;
    configuration.queues.values_mut().next().unwrap().max_messages = Some(1);
    let server = Server::start(configuration).await;
    assert_eq!(server.send("POST", "/in", &[], "longer than ten").await.slug(), "too-large");
    assert_eq!(
        server.send("POST", "/in", &[("content-encoding", "gzip")], "x").await.slug(),
        "unsupported-media-type"
    );
    assert_eq!(server.send("POST", "/in", &[("millpond-delay", "soon")], "x").await.slug(), "malformed");
    assert_eq!(server.send("POST", "/in", &[], "x").await.status, 202);
    assert_eq!(server.send("POST", "/in", &[], "x").await.slug(), "queue-full");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_fit_its_schema_is_refused_while_the_caller_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let route = "[[routes]]\npath = \"/in\"\nqueue = \"q\"\nschema = \"s.json\"\nkeep_headers = [\"*\"]";
    let server = Server::start(with_routes(directory.path(), None, route)).await;
    let send = async |content_type: &str, body: String| {
        server.send("POST", "/in", &[("content-type", content_type)], body).await
    };
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = send(content_type, "{\"name\": \"ada\"}".to_owned()).await;
        assert_eq!(answer.slug(), "unsupported-media-type", "{content_type}");
    }
    assert_eq!(server.send("POST", "/in", &[], "{}").await.slug(), "unsupported-media-type");
    let compressed = [("content-type", "application/json"), ("content-encoding", "gzip")];
    assert_eq!(server.send("POST", "/in", &compressed, "{}").await.slug(), "unsupported-media-type");
    let json = "application/json";
    for (body, place) in [("{\n  \"name\": }", "line 2 column 11"), ("", "empty"), ("{\"a\":1,\"a\":2}", "a")]
    {
        let answer = send(json, body.to_owned()).await;
        assert_eq!(answer.slug(), "invalid-message", "{body}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(place), "{answer:?}");
    }
    let filler = "x".repeat(20_000);
    for body in
        ["{\"age\": \"S3CRET\"}".to_owned(), format!("{{\"age\": \"S3CRET\", \"filler\": \"{filler}\"}}")]
    {
        let answer = send(json, body).await;
        assert_eq!(answer.slug(), "invalid-message");
        let problem = answer.json();
        let pointers: Vec<_> =
            problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].clone()).collect();
        assert!(pointers.contains(&json!("#")) && pointers.contains(&json!("#/age")), "{problem}");
        assert!(!problem.to_string().contains("S3CRET"), "{problem}");
    }
    assert_eq!(server.stats("q").await["ready"], 0);
    for content_type in [json, "application/enrollment+json; charset=utf-8"] {
        assert_eq!(send(content_type, "{\"name\": \"ada\"}".to_owned()).await.status, 202, "{content_type}");
    }
    assert_eq!(send(json, format!("{{\"name\": \"{filler}\"}}")).await.status, 202);
    server.stop().await;
}
