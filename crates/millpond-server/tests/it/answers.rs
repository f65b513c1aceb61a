//! `Prefer: wait=N` on an enqueue: the caller gets the target's own answer, or a 202.
//!
//! Owns what a waiting caller sees. Must never depend on how fast anything is: a target that has to be slow waits for
//! the test.

use crate::backend::{Act, Backend, Seen, ok, status};
use crate::harness::{Answer, Server, configuration, eventually, with_target, within};
use crate::routes::with_routes;
use millpond_core::settings::QueueSettings;
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

const ROUTE: &str = "[[routes]]\npath = \"/do/{*rest}\"\nmethods = [\"*\"]\nqueue = \"push\"\nwait = \"20s\"";

async fn start(
    act: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static,
) -> (Server, Backend, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(act).await;
    let server = Server::start(with_routes(directory.path(), Some(backend.address), ROUTE)).await;
    (server, backend, directory)
}

async fn send(server: &Server, prefer: &str) -> Answer {
    let path = "/v1/queues/push/messages";
    server.send("POST", path, &[("prefer", prefer), ("content-type", "text/plain")], "work").await
}

async fn nobody_waits(server: &Server) {
    eventually("nothing is left of those who waited", async || {
        let metrics = server.get("/metrics").await.body;
        String::from_utf8_lossy(&metrics).contains("millpond_waiting_callers 0.0")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_gets_the_targets_own_answer() {
    let (server, _backend, _directory) = start(|_, seen| match seen.target().as_str() {
        "~/made" => Act::Reply(
            "HTTP/1.1 201 Made\r\nlocation: /orders/7\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nconnection: x-hop\r\nx-hop: 1\r\n\
             content-type: application/json\r\ncontent-length: 8\r\n\r\n{\"n\": 7}"
                .to_owned(),
        ),
        "~/none" => status("204 None", "etag: \"x\"\r\n"),
        _ => Act::Reply(format!("HTTP/1.1 422 No\r\nx-why: date\r\ncontent-length: 9000\r\n\r\n{}", "e".repeat(9_000))),
    })
    .await;
    let made = server.send("PUT", "/do/made", &[], "x").await;
    assert_eq!((made.status, &made.body[..]), (201, &b"{\"n\": 7}"[..]), "{made:?}");
    assert_eq!((made.header("location"), made.header("content-type")), ("/orders/7", "application/json"));
    assert_eq!(made.headers.get_all("set-cookie").iter().count(), 2);
    assert!(!made.headers.contains_key("x-hop") && !made.headers.contains_key("preference-applied"));
    assert_eq!(made.header("millpond-message-id").len(), 36);
    let none = server.send("DELETE", "/do/none", &[], "").await;
    assert_eq!((none.status, none.header("etag"), none.body.len()), (204, "\"x\"", 0));
    let refused = server.send("POST", "/do/other", &[("prefer", "wait=20")], "").await;
    assert_eq!((refused.status, refused.header("x-why"), refused.body.len()), (422, "date", 9_000));
    assert_eq!(refused.header("preference-applied"), "wait=20");
    nobody_waits(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_fast_answers_reach_each_its_own_caller() {
    let (server, _backend, _directory) = start(|_, seen| ok(&seen.body)).await;
    let all = (0..200).map(|number| {
        let (client, address) = (server.client.clone(), server.address);
        tokio::spawn(async move {
            let request = http::Request::post(format!("http://{address}/do/echo"))
                .body(http_body_util::Full::from(number.to_string()))
                .unwrap();
            let response = client.request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        })
    });
    for one in all.collect::<Vec<_>>() {
        within(one).await.unwrap();
    }
    nobody_waits(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_in_time_is_a_202() {
    let (server, backend, _directory) = start(|_, _| Act::WaitForRelease).await;
    let answer = server.send("POST", "/do/x", &[("prefer", "wait=1, respond-async")], "x").await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (202, Some("leased")), "{answer:?}");
    assert_eq!(answer.header("preference-applied"), "respond-async, wait=1");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    let accepted = answer.json();
    for headers in [[("prefer", "respond-async")], [("millpond-deadline", "1ms")], [("grpc-timeout", "1m")]] {
        let answer = server.send("POST", "/do/x", &headers, "x").await;
        assert_eq!(answer.status, 202, "{headers:?}: {answer:?}");
    }
    assert_eq!(server.send("POST", "/do/x", &[("millpond-deadline", "soon")], "x").await.slug(), "malformed");
    nobody_waits(&server).await;
    let let_go = async {
        loop {
            backend.release();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = let_go => {}
        outcome = server.outcome(&accepted) => assert_eq!(outcome["status"], "succeeded"),
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_can_be_repeated_is_no_answer() {
    let (server, backend, _directory) =
        start(|number, _| if number == 0 { status("500 Oops", "") } else { ok("second") }).await;
    let answer = send(&server, "wait=20").await;
    assert_eq!((answer.status, &answer.body[..], backend.seen().len()), (200, &b"second"[..], 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_given_up_is_told_as_it_stands() {
    let (server, _backend, _directory) = start(|_, _| status("500 Oops", "")).await;
    let answer = send(&server, "wait=20").await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (202, Some("dead")), "{answer:?}");
    assert_eq!(answer.header("retry-after"), "", "no other status will come");
    assert_eq!(answer.header("location"), answer.json()["status_url"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_longer_than_what_is_kept_is_not_passed_off_as_whole() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::start(|_, _| ok("longer than ten bytes")).await;
    let mut configuration = with_routes(directory.path(), Some(backend.address), ROUTE);
    for queue in configuration.queues.values_mut() {
        queue.result_max_bytes = 10;
    }
    let server = Server::start(configuration).await;
    let answer = send(&server, "wait=20").await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (202, Some("succeeded")), "{answer:?}");
    assert_eq!(answer.header("retry-after"), "");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_gets_the_kept_result_and_a_workers_result_counts_too() {
    let (server, backend, _directory) = start(|_, _| ok("done")).await;
    let headers = [("idempotency-key", "k"), ("prefer", "wait=20")];
    let first = server.send("POST", "/do/x", &headers, "x").await;
    let again = server.send("POST", "/do/x", &headers, "x").await;
    assert_eq!((again.status, &again.body[..]), (200, &first.body[..]), "{again:?}");
    assert_eq!((backend.seen().len(), again.header("content-type")), (1, "text/plain"));
    assert_eq!(again.header("millpond-message-id"), first.header("millpond-message-id"));

    for (result, expected) in [(json!("by hand"), 200), (json!(null), 204)] {
        let waiting = server.send("POST", "/v1/queues/q/messages", &[("prefer", "wait=20")], "x");
        let working = async {
            let message = server.lease("q", &json!({"wait_seconds": 20})).await.remove(0);
            let mut settlement = json!({"outcome": "complete"});
            if !result.is_null() {
                settlement["result"] = result.clone();
            }
            server.settle(settlement, &message["receipt"]).await
        };
        let (answer, _) = tokio::join!(waiting, working);
        assert_eq!((answer.status, answer.body.len()), (expected, result.as_str().unwrap_or("").len()));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_costs_nothing_more() {
    let (server, backend, _directory) = start(|_, _| Act::WaitForRelease).await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream
            .write_all(b"POST /do/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx")
            .await
            .unwrap();
        callers.push(stream);
    }
    eventually("all of them wait", async || {
        let metrics = server.get("/metrics").await.body;
        String::from_utf8_lossy(&metrics).contains("millpond_waiting_callers 20.0")
    })
    .await;
    eventually("the target is busy", async || backend.busy() == 2).await;
    drop(callers);
    nobody_waits(&server).await;
    let stats = server.stats("push").await;
    assert_eq!((&stats["ready"], &stats["leased"]), (&json!(18), &json!(2)), "their work goes on");
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_lets_those_go_who_wait() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.queues.insert(crate::harness::name("idle"), QueueSettings::default());
    let mut server = Server::start(configuration).await;
    let (client, address) = (server.client.clone(), server.address);
    let waiting = tokio::spawn(async move {
        let request = http::Request::post(format!("http://{address}/v1/queues/idle/messages"))
            .header("prefer", "wait=60")
            .body(http_body_util::Full::default())
            .unwrap();
        client.request(request).await.unwrap().status()
    });
    eventually("it is accepted", async || server.stats("idle").await["ready"] == 1).await;
    server.begin_to_stop();
    assert_eq!(within(waiting).await.unwrap(), 202);
    server.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_leads_to_its_result_if_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let backend =
        Backend::start(|_, seen| if seen.body == "none" { status("200 OK", "") } else { ok("done") }).await;
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, backend.address, 2);
    let server = Server::start(configuration).await;
    let accepted = server.enqueue("push", "x").await;
    let url = format!("{}&redirect=result", accepted["status_url"].as_str().unwrap());
    let answer = server.send("GET", &url, &[("prefer", "wait=20")], "").await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (303, Some("succeeded")), "{answer:?}");
    assert_eq!(answer.header("location"), answer.json()["result"]["url"]);
    assert_eq!(&server.get(answer.header("location")).await.body[..], b"done");
    let accepted = server.enqueue("push", "none").await;
    server.outcome(&accepted).await;
    let url = accepted["status_url"].as_str().unwrap();
    assert_eq!(
        server.get(&format!("{url}&redirect=result")).await.status,
        200,
        "there is nothing to lead to"
    );
    assert_eq!(server.get(&format!("{url}&redirect=else")).await.slug(), "malformed");
    let accepted = server.enqueue("q", "x").await;
    let url = format!("{}&redirect=result", accepted["status_url"].as_str().unwrap());
    assert_eq!(server.get(&url).await.status, 200);
    server.stop().await;
}
