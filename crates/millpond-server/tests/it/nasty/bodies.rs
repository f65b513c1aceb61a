//! Bodies of answers that are too long, too short, or in pieces that do not fit.
//!
//! Owns the kinds of lengths and chunks. Must never hold more of an answer than is kept.

use super::{Bench, Nasty, SOON, assert_done, assert_failed, closed, fate, fate_of, flood, request, serve};
use crate::harness::DEADLINE;
use tokio::io::AsyncWriteExt as _;

/// The most that is kept of a result, by default.
const KEPT: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn ten_gigabytes_are_cut_and_their_connection_closed() {
    let outcome = fate(DEADLINE, async |_, mut stream| {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n").await;
        flood(stream, &vec![b'x'; 64 << 10]).await;
    })
    .await;
    assert_done(&outcome);
    assert_eq!(outcome["result"]["size"], KEPT);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_without_end_are_cut_and_their_connection_closed() {
    for status in ["200 OK", "500 Oops"] {
        let outcome = fate(DEADLINE, move |_, mut stream| async move {
            request(&mut stream).await;
            let head = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            flood(stream, format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes()).await;
        })
        .await;
        if status == "200 OK" {
            assert_done(&outcome);
            assert_eq!(outcome["result"]["size"], KEPT);
        } else {
            assert_failed(&outcome, "status", "xxxx");
            assert!(outcome["last_error"]["message"].as_str().unwrap().len() <= 4 << 10);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_length_ends_with_its_connection() {
    let outcome = fate_of("HTTP/1.1 200 OK\r\n\r\nto the end").await;
    assert_done(&outcome);
    assert_eq!(outcome["result"]["size"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_beyond_the_length_belong_to_nobody() {
    let nasty = Nasty::start(async |_, stream| {
        serve(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more").await;
    })
    .await;
    let bench = Bench::start(nasty.address, |_| {}).await;
    for _ in 0..3 {
        let outcome = bench.push("x").await;
        assert_done(&outcome);
        assert_eq!(outcome["result"]["size"], 2);
    }
    assert_eq!(nasty.accepted(), 3, "no call is made on a connection with something left over");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_never_reached_is_ended_by_the_time_of_the_call() {
    // As an answer to HEAD would be: a length, and no body.
    let outcome = fate(SOON, async |_, mut stream| {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
        closed(stream).await;
    })
    .await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_none_breaks_the_answer_off() {
    for chunks in
        ["xyz\r\nok\r\n0\r\n\r\n", "2\r\nokok\r\n0\r\n\r\n", "fffffffffffffffff\r\nok\r\n", "-1\r\nok\r\n"]
    {
        let outcome = fate_of(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")).await;
        assert_failed(&outcome, "protocol", "the answer broke off");
        assert_eq!(outcome["last_error"]["http_status"], 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_without_a_body_has_none_whatever_follows() {
    let nasty = Nasty::start(async |_, stream| {
        serve(stream, b"HTTP/1.1 204 No Content\r\ncontent-length: 9\r\n\r\nsmuggled!").await;
    })
    .await;
    let bench = Bench::start(nasty.address, |_| {}).await;
    for _ in 0..3 {
        let outcome = bench.push("x").await;
        assert_done(&outcome);
        assert_eq!(outcome.get("result"), None, "{outcome}");
    }
    bench.end(&nasty).await;

    let outcome = fate_of("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\nsmuggled!").await;
    assert_failed(&outcome, "status", "status 304 without a body");
}
