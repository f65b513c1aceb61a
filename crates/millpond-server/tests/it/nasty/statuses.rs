//! Redirects, and targets that ask to be left alone.
//!
//! Owns what statuses mean for the next call. Must never go where an answer points.

use super::{Bench, Nasty, assert_failed, request, serve};
use crate::harness::{eventually, name};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn no_redirect_is_followed() {
    for status in [300, 301, 302, 303, 307, 308] {
        let elsewhere = Nasty::start(async |_, _| {}).await;
        let (address, requests) = (elsewhere.address, Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&requests);
        let nasty = Nasty::start(move |_, mut stream| {
            let counted = Arc::clone(&counted);
            async move {
                while request(&mut stream).await.is_some() {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let answer = format!(
                        "HTTP/1.1 {status} There\r\nlocation: http://{address}/\r\ncontent-length: 0\r\n\r\n"
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }
        })
        .await;
        let bench = Bench::start(nasty.address, |_| {}).await;
        let outcome = bench.push("x").await;
        assert_failed(&outcome, "status", "a redirect, which is not followed");
        assert_eq!(outcome["last_error"]["http_status"], status);
        assert_eq!((elsewhere.accepted(), requests.load(Ordering::SeqCst)), (0, 1));
        bench.server.stop().await;
    }
}

/// How a message fares whose target answers so at first, and well the second time.
async fn after(first: String) -> serde_json::Value {
    let nasty = Nasty::start(move |_, mut stream| {
        let first = first.clone();
        async move {
            if request(&mut stream).await.is_some() {
                let _ = stream.write_all(first.as_bytes()).await;
            }
            serve(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |configuration| {
        // Throttled or not: what comes second is done, and tells by its attempts which it was.
        configuration.queues.get_mut(&name("push")).unwrap().retry.max_attempts = 2;
    })
    .await;
    let outcome = bench.push("x").await;
    bench.end(&nasty).await;
    outcome
}

/// A date in the three forms of HTTP.
fn forms(date: jiff::Timestamp) -> [String; 3] {
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .map(|form| date.strftime(form).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_asks_for_a_pause_costs_no_attempt_however_it_asks() {
    let now = jiff::Timestamp::now();
    let (soon, past) = (forms(now + Duration::from_secs(1)), forms(now - Duration::from_hours(1)));
    let mut asked: Vec<_> = soon.into_iter().map(|pause| ("429 Slow", pause)).collect();
    asked.extend(past.into_iter().map(|pause| ("503 Busy", pause)));
    asked.extend([("429 Slow", "0".to_owned()), ("503 Busy", "1".to_owned())]);
    for (status, pause) in asked {
        let answer = format!("HTTP/1.1 {status}\r\nretry-after: {pause}\r\ncontent-length: 0\r\n\r\n");
        let outcome = after(answer).await;
        assert_eq!(
            (&outcome["status"], &outcome["attempts"], &outcome["history"][0]["outcome"]),
            (&json!("succeeded"), &json!(0), &json!("throttled")),
            "{status}, {pause}: {outcome}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_without_a_time_is_a_failed_attempt() {
    for pause in ["", "retry-after: soon\r\n"] {
        let outcome = after(format!("HTTP/1.1 503 Busy\r\n{pause}content-length: 0\r\n\r\n")).await;
        assert_eq!((&outcome["status"], &outcome["attempts"]), (&json!("succeeded"), &json!(1)), "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_year_is_an_hour_and_too_many_requests_without_a_time_some_seconds() {
    for (pause, most) in
        [("retry-after: 31536000\r\n", 3_600.0), ("", 5.0), ("retry-after: nonsense\r\n", 5.0)]
    {
        let nasty = Nasty::start(move |_, stream| async move {
            let answer = format!("HTTP/1.1 429 Slow\r\n{pause}content-length: 0\r\n\r\n");
            serve(stream, answer.as_bytes()).await;
        })
        .await;
        let bench = Bench::start(nasty.address, |_| {}).await;
        let accepted = bench.server.enqueue("push", "x").await;
        eventually("it is throttled", async || {
            let status = bench.server.get(accepted["status_url"].as_str().unwrap()).await.json();
            status["history"][0]["outcome"] == "throttled"
        })
        .await;
        let due = bench.server.get(accepted["status_url"].as_str().unwrap()).await;
        let wait: f64 = due.header("retry-after").parse().unwrap();
        assert!(wait <= most + 1.0, "{wait} after {pause:?}");
        bench.server.stop().await;
    }
}
