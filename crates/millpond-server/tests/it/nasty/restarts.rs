//! Targets that are restarted while calls run.
//!
//! Owns the closing and opening of listeners under way. Must never lose a message to it.

use super::{Bench, Nasty, request, serve};
use crate::harness::{eventually, name};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_restarted_again_and_again_gets_every_message_done() {
    let (generation, current) = watch::channel(0);
    // Serves until the next generation; then closes whatever it has, in the middle of answers too.
    let act = move |_, mut stream: tokio::net::TcpStream| {
        let mut current = current.clone();
        let born = *current.borrow();
        async move {
            tokio::select! {
                () = async { drop(current.wait_for(|generation| *generation > born).await) } => {
                    if born % 2 == 0 {
                        stream.set_zero_linger().unwrap();
                    } else {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await;
                    }
                }
                () = serve(&mut stream, OK) => {}
            }
        }
    };
    let act = Arc::new(act);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::clone(&act);
    let (mut nasty, mut listening) = Nasty::start_on(listener, move |number, stream| shared(number, stream));
    let bench = Bench::start(address, |configuration| {
        let retry = &mut configuration.queues.get_mut(&name("push")).unwrap().retry;
        retry.max_attempts = 1_000;
        retry.budget = 1.0;
    })
    .await;
    let done = async || bench.server.stats("push").await["completed_total"].as_u64().unwrap();
    for round in 1..=5 {
        let items: Vec<Value> = (0..50).map(|number| json!({"body": format!("{round}/{number}")})).collect();
        assert_eq!(bench.server.post("/v1/queues/push/messages/batch", &json!(items)).await.status, 200);
        eventually("some are done", async || done().await > (round - 1) * 50).await;
        listening.abort();
        generation.send_replace(round);
        // Nobody listens for a moment; a port that is taken meanwhile would be somebody else's test.
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let shared = Arc::clone(&act);
        (nasty, listening) = Nasty::start_on(listener, move |number, stream| shared(number, stream));
    }
    eventually("all are done", async || done().await == 250).await;
    let stats = bench.server.stats("push").await;
    assert_eq!((&stats["dead_total"], &stats["ready"], &stats["leased"]), (&json!(0), &json!(0), &json!(0)));
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_target_closes_when_idle_cost_no_attempt() {
    // Each connection takes one request more than it announces, then is closed with no word of it.
    let nasty = Nasty::start(async |_, mut stream| {
        for _ in 0..2 {
            if request(&mut stream).await.is_none() || stream.write_all(OK).await.is_err() {
                return;
            }
        }
    })
    .await;
    let bench = Bench::start(nasty.address, |_| {}).await;
    for number in 0..20 {
        let outcome = bench.push("x").await;
        assert_eq!(
            (&outcome["status"], &outcome["attempts"]),
            (&json!("succeeded"), &json!(0)),
            "{number}: {outcome}"
        );
        if number % 2 == 1 {
            eventually("the target has closed it", async || nasty.open() == 0).await;
        }
    }
    bench.end(&nasty).await;
}
