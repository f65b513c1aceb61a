//! Stopping: what is refused, what may finish, what survives.
//!
//! Owns the tests of shutdown and restart. Must never lose what was answered with 202.

use crate::backend::{Act, Backend, ok};
use crate::harness::{Server, configuration, eventually, with_target, within};
use millpond_server::{Limits, ServeError, ServerOptions, serve};
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn while_draining_new_work_is_refused_and_running_calls_finish() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| Act::WaitForRelease).await;
    let mut configured = configuration(directory.path());
    with_target(&mut configured, backend.address, 1);
    let mut server = Server::start(configured.clone()).await;
    let accepted = server.enqueue("push", "running").await;
    server.enqueue("q", "leased").await;
    let leased = server.lease("q", &json!({})).await[0].clone();
    eventually("the call is running", async || backend.busy() == 1).await;
    let waiting = {
        let (client, address) = (server.client.clone(), server.address);
        tokio::spawn(async move {
            let request = http::Request::post(format!("http://{address}/v1/queues/q/leases"))
                .body(http_body_util::Full::from(r#"{"wait_seconds": 60}"#))
                .unwrap();
            let response = within(client.request(request)).await.unwrap();
            http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes()
        })
    };
    eventually("a worker waits", async || server.stats("q").await["ready"] == 0).await;
    server.begin_to_stop();
    eventually("not ready any more", async || server.get("/readyz").await.status == 503).await;
    assert_eq!(server.get("/livez").await.status, 200);
    for path in ["/v1/queues/q/messages", "/v1/queues/q/messages/batch"] {
        let refused = server.send("POST", path, &[("content-type", "application/json")], "[]").await;
        assert_eq!((refused.status, refused.slug().as_str()), (503, "draining"));
    }
    assert_eq!(server.post("/v1/queues/q/leases", &json!({"wait_seconds": 60})).await.slug(), "draining");
    let empty = within(waiting).await.unwrap();
    assert!(
        empty == r#"{"messages":[]}"#.as_bytes() || String::from_utf8_lossy(&empty).contains("draining"),
        "{empty:?}"
    );
    assert_eq!(
        server.settle(json!({"outcome": "complete"}), &leased["receipt"]).await["status"],
        200,
        "workers may finish"
    );
    backend.release();
    server.ended().await.unwrap();

    let server = Server::start(configured).await;
    assert_eq!(server.outcome(&accepted).await["status"], "succeeded", "the call's end was kept");
    assert_eq!(backend.seen().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_do_not_end_in_time_are_given_back_and_made_again_after_the_restart() {
    let directory = tempfile::tempdir().unwrap();
    let backend =
        Backend::start(|number, _| if number == 0 { Act::ReplyAndHang(String::new()) } else { ok("done") })
            .await;
    let mut configured = configuration(directory.path());
    with_target(&mut configured, backend.address, 1);
    let limits = Limits { drain: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start_with(configured.clone(), limits).await;
    let accepted = server.enqueue("push", "slow").await;
    eventually("the call is running", async || backend.busy() == 1).await;
    server.stop().await;
    let server = Server::start(configured).await;
    let outcome = server.outcome(&accepted).await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("succeeded"), &json!(0)), "{outcome}");
    assert_eq!(backend.seen()[1].header("millpond-attempt"), "1", "our own stop is no attempt");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_accepted_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let put = server.send("PUT", "/v1/queues/made", &[("content-type", "application/json")], "{}").await;
    assert_eq!(put.status, 201);
    let (one, two) = (server.enqueue("q", "one").await, server.enqueue("made", "two").await);
    server.send("POST", "/v1/queues/made/pause", &[], "").await;
    let leased = server.lease("q", &json!({"lease_seconds": 600})).await[0].clone();
    server.stop().await;

    let server = Server::start(configuration(directory.path())).await;
    assert_eq!(server.get(one["status_url"].as_str().unwrap()).await.json()["status"], "leased");
    assert_eq!(
        server.settle(json!({"outcome": "complete", "result": "r"}), &leased["receipt"]).await["status"],
        200
    );
    assert_eq!(server.outcome(&one).await["status"], "succeeded");
    assert!(server.lease("made", &json!({})).await.is_empty(), "still paused");
    server.send("POST", "/v1/queues/made/resume", &[], "").await;
    let leased = server.lease("made", &json!({})).await;
    assert_eq!((&leased[0]["id"], &leased[0]["body"]), (&two["id"], &json!("two")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_idle_or_stuck_do_not_keep_the_server_from_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { close: Duration::from_millis(200), ..Limits::default() };
    let server = Server::start_with(configuration(directory.path()), limits).await;
    let mut open = vec![server.connect().await, server.connect().await];
    let head = b"POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf";
    tokio::io::AsyncWriteExt::write_all(&mut open[1], head).await.unwrap();
    server.stop().await;
    for mut stream in open {
        // The end of the connection, or its reset: either way it is over.
        let _ = within(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut Vec::new())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_is_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |configuration, address: &str| {
        let listener = TcpListener::bind(address).await.unwrap();
        let options =
            ServerOptions { configuration, segment_bytes: Some(1 << 20), ..ServerOptions::default() };
        within(serve(options, listener, std::future::ready(()))).await
    };
    let exposed = start(configuration(directory.path()), "0.0.0.0:0").await;
    assert!(matches!(exposed, Err(ServeError::Exposure(_))), "{exposed:?}");
    let mut configured = configuration(directory.path());
    with_target(&mut configured, "127.0.0.1:1".parse().unwrap(), 1);
    configured.targets.get_mut("target").unwrap().headers.insert("millpond-queue", "x".parse().unwrap());
    let header = start(configured, "127.0.0.1:0").await;
    assert!(
        matches!(&header, Err(ServeError::Header { header, .. }) if header == "millpond-queue"),
        "{header:?}"
    );
    let server = Server::start(configuration(directory.path())).await;
    let taken = start(configuration(directory.path()), "127.0.0.1:0").await;
    assert!(matches!(taken, Err(ServeError::Open(_))), "{taken:?}");
    server.stop().await;
}
