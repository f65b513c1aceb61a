//! Targets that are slow, silent, or go away: before, within and after an answer.
//!
//! Owns the kinds below the level of HTTP. Must never depend on how fast the machine is.

use super::{
    BIG, Bench, Nasty, SOON, assert_done, assert_failed, closed, fate, flood, request, serve, target,
};
use crate::harness::DEADLINE;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_byte_by_byte_is_an_answer() {
    let outcome = fate(DEADLINE, async |_, mut stream| {
        request(&mut stream).await;
        for byte in OK {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        closed(stream).await;
    })
    .await;
    assert_done(&outcome);
    assert_eq!(outcome["result"]["size"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_drips_without_end_exceeds_the_time_of_the_call() {
    let outcome = fate(SOON, async |_, mut stream| {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
        while stream.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
    assert_eq!(outcome["history"][0]["outcome"], "timed-out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_accepts_and_never_reads_is_left_after_the_time_of_the_call() {
    let nasty = Nasty::start(async |_, stream| {
        // Nothing is read of a body that fills every buffer on the way.
        let _ = stream.readable().await;
        tokio::time::sleep(4 * SOON).await;
        closed(stream).await;
    })
    .await;
    let bench =
        Bench::start(nasty.address, |configuration| target(configuration).settings.timeout = SOON).await;
    let outcome = bench.push(&"x".repeat(BIG)).await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_answers_is_left_after_the_time_of_the_call() {
    let outcome = fate(SOON, async |_, mut stream| {
        request(&mut stream).await;
        closed(stream).await;
    })
    .await;
    assert_failed(&outcome, "timeout", "no complete answer within 200ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_hangs_within_the_head_or_the_body_is_left_too() {
    for part in ["HTTP/1.1 200 OK\r\ncont", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let outcome = fate(SOON, move |_, mut stream| async move {
            request(&mut stream).await;
            stream.write_all(part.as_bytes()).await.unwrap();
            closed(stream).await;
        })
        .await;
        assert_failed(&outcome, "timeout", "no complete answer within 200ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_as_soon_as_there_is_a_connection_is_a_reset() {
    let outcome = fate(DEADLINE, async |_, stream| stream.set_zero_linger().unwrap()).await;
    // It may come before the connection has been looked at for the first time.
    let kind = if outcome["last_error"]["kind"] == "connect" { "connect" } else { "reset" };
    assert_failed(&outcome, kind, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_within_the_head_or_the_body_is_a_reset() {
    for (part, words) in
        [("", ""), ("HTTP/1.1 200 OK\r\ncont", ""), ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "")]
    {
        let outcome = fate(DEADLINE, move |_, mut stream| async move {
            request(&mut stream).await;
            stream.write_all(part.as_bytes()).await.unwrap();
            stream.set_zero_linger().unwrap();
        })
        .await;
        assert_failed(&outcome, "reset", words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_before_the_answer_does_is_a_reset() {
    for (part, words) in [
        ("", "connection closed before message completed"),
        ("HTTP/1.1 200 OK\r\ncont", "connection closed before message completed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "the answer broke off"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf", "the answer broke off"),
    ] {
        let outcome = fate(DEADLINE, move |_, mut stream| async move {
            request(&mut stream).await;
            stream.write_all(part.as_bytes()).await.unwrap();
        })
        .await;
        assert_failed(&outcome, "reset", words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_will_say_no_more_but_keeps_listening_is_not_waited_for() {
    let outcome = fate(DEADLINE, async |_, mut stream| {
        request(&mut stream).await;
        stream.shutdown().await.unwrap();
        closed(stream).await;
    })
    .await;
    assert_failed(&outcome, "reset", "connection closed before message completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_request_was_read_whole_counts() {
    let nasty = Nasty::start(async |_, mut stream| {
        stream.read_exact(&mut [0; 16]).await.unwrap();
        stream.write_all(b"HTTP/1.1 422 No\r\ncontent-length: 8\r\n\r\ntoo much").await.unwrap();
        closed(stream).await;
    })
    .await;
    let bench = Bench::start(nasty.address, |_| {}).await;
    let outcome = bench.push(&"x".repeat(BIG)).await;
    assert_eq!(
        (&outcome["dead_reason"], &outcome["last_error"]["message"]),
        (&"rejected".into(), &"too much".into())
    );
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_has_asked_for_never_belongs_to_a_call_that_is_made_later() {
    // Two answers to the first request; the second one must not be taken for that to the second request.
    let nasty = Nasty::start(async |number, mut stream| {
        request(&mut stream).await;
        if number == 0 {
            let twice = [OK, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"].concat();
            stream.write_all(&twice).await.unwrap();
            closed(stream).await;
        } else {
            stream.write_all(OK).await.unwrap();
            serve(stream, OK).await;
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |_| {}).await;
    for _ in 0..5 {
        let outcome = bench.push("x").await;
        assert_done(&outcome);
        assert_eq!(outcome["result"]["size"], 2, "{outcome}");
    }
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_talks_before_it_is_spoken_to_ends_the_call_one_way_or_the_other() {
    let outcome = fate(DEADLINE, async |_, mut stream| {
        let _ = stream.write_all(OK).await;
        closed(stream).await;
    })
    .await;
    // Which of the two is first is the network's to say; but the call ends, and has its words.
    if outcome["status"] != "succeeded" {
        assert_eq!(outcome["attempts"], 1, "{outcome}");
        assert!(
            outcome["last_error"]["message"].as_str().is_some_and(|words| !words.is_empty()),
            "{outcome}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_only_floods_is_cut_off() {
    let outcome = fate(DEADLINE, async |_, stream| flood(stream, &vec![0; 64 << 10]).await).await;
    assert_eq!((&outcome["status"], &outcome["attempts"]), (&"dead".into(), &1.into()), "{outcome}");
}
