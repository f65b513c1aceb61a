//! Targets of HTTP/2, well-behaved and not.
//!
//! Owns a target that speaks frames. Must never lose or repeat a call when a connection ends.

use super::tls::{Authority, listen};
use super::{Bench, Nasty, SOON, assert_done, assert_failed, closed, target};
use crate::harness::{DEADLINE, eventually, name};
use bytes::Bytes;
use h2::Reason;
use h2::server::{self, Connection, SendResponse};
use http::{Request, Response};
use millpond_config::{Configuration, Tls};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

/// A body of many windows.
const BIG: usize = 1 << 20;

fn prior(configuration: &mut Configuration) {
    target(configuration).http2 = Some(true);
    target(configuration).settings.timeout = DEADLINE;
}

async fn accept<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Connection<S, Bytes> {
    server::handshake(stream).await.unwrap()
}

fn answer(mut respond: SendResponse<Bytes>, status: u16, body: &'static [u8]) {
    let response = Response::builder().status(status).body(()).unwrap();
    if let Ok(mut stream) = respond.send_response(response, false) {
        let _ = stream.send_data(Bytes::from_static(body), true);
    }
}

/// Reads a body whole, and gives the room for it back.
async fn read(request: Request<h2::RecvStream>) -> usize {
    let (mut body, mut read) = (request.into_body(), 0);
    while let Some(Ok(data)) = body.data().await {
        read += data.len();
        let _ = body.flow_control().release_capacity(data.len());
    }
    read
}

async fn serve_all<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    let mut connection = accept(stream).await;
    while let Some(Ok((_, respond))) = connection.accept().await {
        answer(respond, 200, b"ok");
    }
}

async fn send_many(bench: &Bench, count: usize) {
    let items: Vec<Value> = (0..count).map(|number| json!({"body": format!("{number}")})).collect();
    assert_eq!(bench.server.post("/v1/queues/push/messages/batch", &json!(items)).await.status, 200);
}

async fn all_done(bench: &Bench, count: u64) {
    eventually("all are done", async || bench.server.stats("push").await["completed_total"] == count).await;
    let failed = "millpond_deliveries_total{queue=\"push\",outcome=\"failed\"} ";
    let metrics = String::from_utf8(bench.server.get("/metrics").await.body.to_vec()).unwrap();
    let failed = metrics.lines().find_map(|line| line.strip_prefix(failed)).unwrap_or("0");
    assert!(["0", "0.0"].contains(&failed), "{failed} failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_share_one_connection() {
    let nasty = Nasty::start(async |_, stream| serve_all(stream).await).await;
    let bench = Bench::start(nasty.address, prior).await;
    send_many(&bench, 200).await;
    all_done(&bench, 200).await;
    assert_eq!(nasty.accepted(), 1);
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_http_2_is_spoken_with_whom_it_is_agreed_on() {
    let authority = Authority::new();
    let tls = Tls { ca: vec![authority.certificate.clone()], ..Tls::default() };
    for http2 in [None, Some(true)] {
        let acceptor = authority.server(&["localhost"], &[b"h2", b"http/1.1"]);
        let nasty = listen(acceptor, async |stream| serve_all(stream).await).await;
        let bench = Bench::start(nasty.address, |configuration| {
            let target = target(configuration);
            target.url = format!("https://localhost:{}/work", nasty.address.port()).parse().unwrap();
            (target.tls, target.http2) = (tls.clone(), http2);
        })
        .await;
        send_many(&bench, 50).await;
        all_done(&bench, 50).await;
        assert_eq!(nasty.accepted(), 1);
        bench.end(&nasty).await;
    }
    let nasty = listen(authority.server(&["localhost"], &[]), async |stream| serve_all(stream).await).await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        let target = target(configuration);
        target.url = format!("https://localhost:{}/work", nasty.address.port()).parse().unwrap();
        target.tls = tls.clone();
    })
    .await;
    assert_failed(&bench.push("x").await, "tls", "the target does not speak HTTP/2");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_speaks_only_http_1_1_fails_the_call() {
    let nasty = Nasty::start(async |_, mut stream| {
        let _ = stream.readable().await;
        let _ = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        closed(stream).await;
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    assert_failed(&bench.push("x").await, "protocol", "");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_refused_is_sent_again_and_costs_nothing() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let nasty = Nasty::start(move |_, stream| {
        let counted = Arc::clone(&counted);
        async move {
            let mut connection = accept(stream).await;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    respond.send_reset(Reason::REFUSED_STREAM);
                } else {
                    answer(respond, 200, b"ok");
                }
            }
        }
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    assert_done(&bench.push("x").await);
    assert_eq!((refused.load(Ordering::SeqCst), nasty.accepted()), (2, 1));
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_every_stream_is_left_alone_and_no_attempt_is_counted() {
    let nasty = Nasty::start(async |_, stream| {
        let mut connection = accept(stream).await;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_deliveries = Some(2);
    })
    .await;
    let outcome = bench.push("x").await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("dead"), &json!(0)), "{outcome}");
    let outcomes: Vec<_> =
        outcome["history"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].clone()).collect();
    assert_eq!(outcomes, ["throttled", "throttled"], "{outcome}");
    assert!(outcome["last_error"]["message"].as_str().unwrap().contains("refused stream"), "{outcome}");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_reset_is_a_failed_attempt() {
    let nasty = Nasty::start(async |_, stream| {
        let mut connection = accept(stream).await;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    assert_failed(&bench.push("x").await, "reset", "");
    assert_failed(&bench.push("x").await, "reset", "");
    assert_eq!(nasty.accepted(), 1, "the connection is as good as before");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_farewell_finishes_what_it_has_and_the_rest_goes_elsewhere() {
    // Each connection answers some calls, says that it will go, and answers what it has.
    let nasty = Nasty::start(async |_, stream| {
        let mut connection = accept(stream).await;
        let mut answered = 0;
        while let Some(Ok((_, respond))) = connection.accept().await {
            answer(respond, 200, b"ok");
            answered += 1;
            if answered == 10 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    send_many(&bench, 200).await;
    all_done(&bench, 200).await;
    assert!(nasty.accepted() >= 10, "{}", nasty.accepted());
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_last_one_that_is_answered_were_never_begun() {
    // The first connection answers none of its calls but the first, and says so.
    let nasty = Nasty::start(async |number, stream| {
        if number == 0 {
            let mut connection = accept(stream).await;
            let first = connection.accept().await;
            connection.abrupt_shutdown(Reason::NO_ERROR);
            drop(first);
            let _ = connection.accept().await;
        } else {
            serve_all(stream).await;
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 2;
    })
    .await;
    send_many(&bench, 40).await;
    eventually("all are done", async || bench.server.stats("push").await["completed_total"] == 40).await;
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_costs_each_call_on_it_one_attempt() {
    let nasty = Nasty::start(async |number, stream| {
        let mut connection = accept(stream).await;
        if number == 0 {
            let mut held = Vec::new();
            while held.len() < 4 {
                held.push(connection.accept().await.unwrap().unwrap());
            }
            // All four are at work when the line is cut.
            return;
        }
        while let Some(Ok((_, respond))) = connection.accept().await {
            answer(respond, 200, b"ok");
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 2;
    })
    .await;
    let mut accepted = Vec::new();
    for number in 0..4 {
        accepted.push(bench.server.enqueue("push", &format!("{number}")).await);
    }
    for accepted in accepted {
        let outcome = bench.server.outcome(&accepted).await;
        assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("succeeded"), &json!(1)), "{outcome}");
        assert_eq!(outcome["history"][0]["error"]["kind"], "reset", "{outcome}");
    }
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_takes_no_more_calls_than_the_target_allows_on_it() {
    let (most, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (seen, gate) = (Arc::clone(&most), Arc::clone(&release));
    let nasty = Nasty::start(move |_, stream| {
        let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
        async move { answer_in_twos(stream, &seen, &gate).await }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        target(configuration).settings.concurrency = 10;
    })
    .await;
    send_many(&bench, 10).await;
    eventually("all ten are with the target", async || most.load(Ordering::SeqCst) == 10).await;
    assert_eq!(nasty.accepted(), 5, "two on each connection");
    release.add_permits(1_000);
    send_many(&bench, 100).await;
    all_done(&bench, 110).await;
    bench.end(&nasty).await;
}

/// Allows two streams at once; answers one for each permit. `most` counts what is at work.
async fn answer_in_twos(stream: TcpStream, most: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) {
    let mut connection: Connection<_, Bytes> =
        server::Builder::new().max_concurrent_streams(2).handshake(stream).await.unwrap();
    while let Some(Ok((_, respond))) = connection.accept().await {
        let (most, gate) = (Arc::clone(most), Arc::clone(gate));
        most.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            gate.acquire().await.unwrap().forget();
            most.fetch_sub(1, Ordering::SeqCst);
            answer(respond, 200, b"ok");
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_big_body_passes_through_a_small_window_beside_others() {
    let nasty = Nasty::start(async |_, stream| {
        let mut connection: Connection<_, Bytes> = server::Builder::new()
            .initial_window_size(16 << 10)
            .initial_connection_window_size(64 << 10)
            .handshake(stream)
            .await
            .unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(async move {
                let is_whole = [BIG, 1].contains(&read(request).await);
                answer(respond, if is_whole { 200 } else { 422 }, b"ok");
            });
        }
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    let big = bench.server.enqueue("push", &"x".repeat(BIG)).await;
    for _ in 0..5 {
        assert_done(&bench.push("y").await);
    }
    assert_done(&bench.server.outcome(&big).await);
    assert_eq!(nasty.accepted(), 1);
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_cut_and_the_others_on_its_connection_go_on() {
    let nasty = Nasty::start(async |_, stream| {
        let mut connection = accept(stream).await;
        let mut number = 0;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            number += 1;
            if number > 1 {
                answer(respond, 200, b"ok");
                continue;
            }
            tokio::spawn(async move {
                let response = Response::builder().status(200).body(()).unwrap();
                let mut stream = respond.send_response(response, false).unwrap();
                loop {
                    stream.reserve_capacity(16 << 10);
                    let granted = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
                    let Some(Ok(size)) = granted else { return };
                    if stream.send_data(Bytes::from(vec![b'x'; size]), false).is_err() {
                        return;
                    }
                }
            });
        }
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    let outcome = bench.push("x").await;
    assert_done(&outcome);
    assert_eq!(outcome["result"]["size"], 64 << 10);
    for _ in 0..5 {
        assert_done(&bench.push("x").await);
    }
    assert_eq!(nasty.accepted(), 1);
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_time_out_others_are_not_sent_after_it_on_the_same_connection() {
    let nasty = Nasty::start(async |number, stream| {
        if number == 0 {
            let mut connection = accept(stream).await;
            let mut unanswered = Vec::new();
            while let Some(Ok(call)) = connection.accept().await {
                unanswered.push(call);
            }
        } else {
            serve_all(stream).await;
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        target(configuration).settings.timeout = SOON;
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 50;
    })
    .await;
    let outcome = bench.push("x").await;
    assert_eq!(outcome["history"][0]["outcome"], "timed-out", "{outcome}");
    assert_eq!(outcome["status"], "succeeded", "{outcome}");
    assert!(nasty.accepted() >= 2);
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_begins_to_speak_was_never_occupied() {
    let nasty = Nasty::start(async |_, stream| closed(stream).await).await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        let settings = &mut target(configuration).settings;
        (settings.timeout, settings.concurrency) = (SOON, 1);
        settings.hold_after_timeout = Some(Duration::from_hours(1));
    })
    .await;
    for _ in 0..2 {
        assert_failed(
            &bench.push("x").await,
            "connect",
            "the target did not begin to speak HTTP/2 within 200ms",
        );
    }
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_closes_instead_of_speaking_resets_the_call() {
    let nasty = Nasty::start(async |_, stream| {
        let _ = stream.peek(&mut [0]).await;
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    assert_failed(&bench.push("x").await, "reset", "");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_instead_of_frames_fails_the_calls_on_the_connection() {
    let nasty = Nasty::start(async |_, mut stream| {
        let _ = stream.readable().await;
        let _ = stream.write_all(&[0xff; 1 << 10]).await;
        closed(stream).await;
    })
    .await;
    let bench = Bench::start(nasty.address, prior).await;
    let outcome = bench.push("x").await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("dead"), &json!(1)), "{outcome}");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_the_configuration_is_the_authority_of_the_request() {
    let (told, tell) = (Arc::new(Notify::new()), Arc::new(std::sync::Mutex::new(String::new())));
    let (seen, done) = (Arc::clone(&tell), Arc::clone(&told));
    let nasty = Nasty::start(move |_, stream| {
        let (seen, done) = (Arc::clone(&seen), Arc::clone(&done));
        async move {
            let mut connection = accept(stream).await;
            while let Some(Ok((request, respond))) = connection.accept().await {
                *seen.lock().unwrap() = format!("{} {:?}", request.uri(), request.headers().get("host"));
                done.notify_one();
                answer(respond, 204, b"");
            }
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        prior(configuration);
        target(configuration).headers.insert("host", "backend.internal:81".parse().unwrap());
    })
    .await;
    assert_done(&bench.push("x").await);
    tokio::time::timeout(Duration::from_secs(20), told.notified()).await.unwrap();
    assert_eq!(*tell.lock().unwrap(), "http://backend.internal:81/work None");
    bench.end(&nasty).await;
}
