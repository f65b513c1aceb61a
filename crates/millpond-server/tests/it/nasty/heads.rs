//! Heads of answers that are too large, or that nobody can read.
//!
//! Owns the kinds of status lines, headers and interim answers. Must never take nonsense for an answer.

use super::{SOON, assert_done, assert_failed, closed, fate, fate_of, flood, request};
use crate::harness::DEADLINE;
use tokio::io::AsyncWriteExt as _;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_is_no_http() {
    for line in ["x-filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", "yyyyyyyyyyyyyyyy"] {
        let outcome = fate(DEADLINE, move |_, mut stream| async move {
            request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
            flood(stream, line.repeat(1_000).as_bytes()).await;
        })
        .await;
        assert_failed(&outcome, "protocol", "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_is_said_to_be_none() {
    for nonsense in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "hello, world\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "HTTP/7.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert_failed(&fate_of(nonsense).await, "protocol", "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_head_as_in_http_0_9_is_no_answer() {
    let outcome = fate_of("<html>it works</html>\n").await;
    assert_failed(&outcome, "protocol", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_contradicts_itself_is_no_http() {
    for lengths in [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: 2, 3\r\n",
        "content-length: -1\r\n",
        "content-length: 99999999999999999999999999\r\n",
    ] {
        let outcome = fate_of(format!("HTTP/1.1 200 OK\r\n{lengths}\r\nok")).await;
        assert_failed(&outcome, "protocol", "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_count_more_than_a_length_beside_them() {
    let outcome = fate_of(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    assert_done(&outcome);
    assert_eq!(outcome["result"]["size"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_answers_are_passed_over() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
                   HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    for count in [1, 100] {
        let outcome = fate_of(interim.repeat(count) + OK).await;
        assert_done(&outcome);
        assert_eq!(outcome["result"]["size"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_answers_without_end_are_ended_by_the_time_of_the_call() {
    let outcome = fate(SOON, async |_, mut stream| {
        request(&mut stream).await;
        flood(stream, "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000).as_bytes()).await;
    })
    .await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_of_protocols_that_nobody_asked_for_is_a_failure() {
    let outcome = fate(DEADLINE, async |_, mut stream| {
        request(&mut stream).await;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        stream.write_all(head).await.unwrap();
        closed(stream).await;
    })
    .await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&"dead".into(), &1.into()), "{outcome}");
}
