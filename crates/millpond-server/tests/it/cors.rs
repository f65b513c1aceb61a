//! Web pages of other sites: those that are let in, what they may do, and the others.

use crate::harness::{Answer, Server};
use crate::routes::with_routes;
use millpond_config::Cors;

const PAGE: &str = "https://app.example.com";

async fn server(cors: Option<Cors>) -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let routes = "[[routes]]\npath = \"/in/{*rest}\"\nmethods = [\"PUT\"]\nqueue = \"q\"";
    let mut configuration = with_routes(directory.path(), None, routes);
    configuration.cors = cors;
    (Server::start(configuration).await, directory)
}

fn named() -> Cors {
    Cors { origins: Some(vec![PAGE.parse().unwrap()]), ..Cors::default() }
}

async fn preflight(server: &Server, path: &str, method: &str, origin: &str) -> Answer {
    let headers = [
        ("origin", origin),
        ("sec-fetch-site", "cross-site"),
        ("access-control-request-method", method),
        ("access-control-request-headers", "content-type"),
    ];
    server.send("OPTIONS", path, &headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_named_may_enqueue_and_read_what_became_of_it() {
    let (server, _directory) = server(Some(named())).await;
    let answer = preflight(&server, "/in/x", "PUT", PAGE).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, PAGE), "{answer:?}");
    assert_eq!(answer.header("access-control-allow-methods"), "PUT");
    assert!(answer.header("access-control-allow-headers").contains("idempotency-key"));
    assert_eq!(answer.header("access-control-max-age"), "600");
    let from = [("origin", PAGE), ("sec-fetch-site", "cross-site")];
    let answer = server.send("PUT", "/in/x", &from, "x").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (202, PAGE), "{answer:?}");
    assert!(answer.header("access-control-expose-headers").contains("location"));
    let url = answer.header("location").to_owned();
    assert_eq!(server.send("GET", &url, &from, "").await.status, 200);
    let result = url.replace('?', "/result?");
    let answer = server.send("GET", &result, &from, "").await;
    assert_eq!((answer.slug().as_str(), answer.header("access-control-allow-origin")), ("no-result", PAGE));
    assert_eq!(server.send("POST", "/v1/queues/q/messages", &from, "x").await.status, 202);
    assert_eq!(server.send("POST", &url.replace('?', "/cancel?"), &from, "").await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_and_workers_use_stays_closed_to_every_page() {
    let any = Some(Cors { origins: None, ..Cors::default() });
    for cors in [Some(named()), any] {
        let (server, _directory) = server(cors).await;
        for (method, path) in [
            ("GET", "/v1/queues/q/messages"),
            ("POST", "/v1/queues/q/messages/batch"),
            ("POST", "/v1/queues/q/leases"),
            ("POST", "/v1/queues/q/purge"),
            ("DELETE", "/v1/queues/q"),
            ("POST", "/v1/settlements"),
            ("GET", "/v1/queues"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("DELETE", "/in/x"),
        ] {
            let answer = preflight(&server, path, method, PAGE).await;
            assert_eq!(
                (answer.status, answer.header("access-control-allow-origin")),
                (403, ""),
                "{method} {path}"
            );
            let answer = server.send(method, path, &[("origin", PAGE)], "").await;
            assert_eq!(answer.slug(), "forbidden", "{method} {path}");
        }
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pages_are_refused_as_without_any_and_programs_are_served() {
    for cors in [Some(named()), None] {
        let (server, _directory) = server(cors).await;
        for origin in
            ["https://evil.example", "https://app.example.com.evil.example", "null", "http://app.example.com"]
        {
            assert_eq!(preflight(&server, "/in/x", "PUT", origin).await.status, 403, "{origin}");
            assert_eq!(server.send("PUT", "/in/x", &[("origin", origin)], "x").await.slug(), "forbidden");
        }
        let answer = server.send("PUT", "/in/x", &[], "x").await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (202, ""));
        let host = [("origin", PAGE), ("host", "evil.example")];
        assert_eq!(
            server.send("PUT", "/in/x", &host, "x").await.slug(),
            "forbidden",
            "the host counts still"
        );
        server.stop().await;
    }
}
