//! The engine as a program embeds it: real threads, a real directory.

#![expect(clippy::unwrap_used, reason = "tests")]

mod damage;
mod fixture;
mod fuzz;
mod pond;
mod repair;

use bytes::Bytes;
use millpond_core::command::{Declared, LeaseRequest, NewMessage, SettleOutcome, Settlement};
use millpond_core::message::{Content, Phase};
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Engine, EngineOptions, Handle};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn queue() -> Name {
    Name::new("jobs").unwrap()
}

fn open(directory: &Path) -> (Engine, Handle) {
    let settings = QueueSettings { prefetch: 1000, ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let mut options = EngineOptions::new(directory.to_owned(), declared);
    options.segment_bytes = 64 << 10;
    let (engine, handle, _calls) = Engine::open(options).unwrap();
    (engine, handle)
}

fn message(body: &[u8]) -> NewMessage {
    let content = Content {
        content_type: "text/plain".into(),
        headers: Vec::new(),
        body: Bytes::copy_from_slice(body),
    };
    NewMessage { content: Arc::new(content), ..NewMessage::default() }
}

fn wish(max: usize) -> LeaseRequest {
    LeaseRequest { queue: queue(), max, lease: None, wait: Duration::from_secs(20), consumer: None }
}

fn complete(receipt: millpond_core::identity::Receipt, result: &[u8]) -> Settlement {
    let content = Content {
        content_type: "text/plain".into(),
        headers: Vec::new(),
        body: Bytes::copy_from_slice(result),
    };
    Settlement { receipt, outcome: SettleOutcome::Complete { result: Some(Arc::new(content)) } }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_all_the_way_and_its_result_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, handle) = open(directory.path());
    let accepted = handle.enqueue(queue(), vec![message(b"hello")]).await.unwrap();
    let seq = accepted[0].as_ref().unwrap().seq;
    let deliveries = handle.lease(wish(1)).await.unwrap();
    assert_eq!(deliveries[0].content.body, "hello");
    let receipt = deliveries[0].leased.receipt;
    assert_eq!(handle.settle(vec![complete(receipt, b"done")]).await.unwrap(), vec![Ok(())]);
    engine.stop();

    let (engine, handle) = open(directory.path());
    let status = handle.status(seq, None).await.unwrap();
    assert_eq!(status.message.phase, Phase::Succeeded);
    assert_eq!(handle.content(seq).await.unwrap().unwrap().body, "done");
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_survives_a_restart_in_order_and_is_read_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, handle) = open(directory.path());
    let bodies: Vec<Vec<u8>> = (0..500_u32).map(|number| number.to_le_bytes().repeat(100)).collect();
    for chunk in bodies.chunks(50) {
        let results =
            handle.enqueue(queue(), chunk.iter().map(|body| message(body)).collect()).await.unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    engine.stop();
    let (engine, handle) = open(directory.path());
    let deliveries = handle.lease(wish(1000)).await.unwrap();
    let seen: Vec<Vec<u8>> = deliveries.iter().map(|delivery| delivery.content.body.to_vec()).collect();
    assert_eq!(seen, bodies);
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_burns_no_delivery() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, handle) = open(directory.path());
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.lease(wish(1)).await }
    });
    // The wish is in the engine before the next question is answered.
    while handle.queue(queue()).await.unwrap().stats.workers == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    handle.enqueue(queue(), vec![message(b"x")]).await.unwrap();
    let deliveries = handle.lease(wish(1)).await.unwrap();
    assert_eq!(deliveries[0].leased.message.deliveries, 1);
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_short_while_messages_come_and_go_and_one_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, handle) = open(directory.path());
    let straggler =
        handle.enqueue(queue(), vec![message(b"straggler")]).await.unwrap()[0].clone().unwrap().seq;
    let held = handle.lease(wish(1)).await.unwrap();
    let receipt = held[0].leased.receipt;
    for _ in 0..60 {
        let bodies = (0..20).map(|_| message(&[7; 1000])).collect();
        handle.enqueue(queue(), bodies).await.unwrap();
        let deliveries = handle.lease(wish(20)).await.unwrap();
        let settled = deliveries
            .iter()
            .map(|delivery| Settlement {
                receipt: delivery.leased.receipt,
                outcome: SettleOutcome::Complete { result: None },
            })
            .collect();
        assert!(handle.settle(settled).await.unwrap().iter().all(Result::is_ok));
    }
    // Copies are read and written beside the work: once it rests, they must bring the log within its bound.
    let within_bound = async {
        loop {
            let journal = handle.journal();
            if journal.disk_bytes <= 2 * journal.live_bytes + 4 * (64 << 10) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let rested = tokio::time::timeout(Duration::from_secs(20), within_bound).await;
    assert!(rested.is_ok(), "the log stays too long: {:?}", handle.journal());
    assert_eq!(handle.content(straggler).await.unwrap().unwrap().body, "straggler");
    engine.stop();

    let (engine, handle) = open(directory.path());
    assert_eq!(handle.content(straggler).await.unwrap().unwrap().body, "straggler");
    assert_eq!(handle.settle(vec![complete(receipt, b"late")]).await.unwrap(), vec![Ok(())]);
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_does_not_stay_in_front_of_its_queue_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, handle) = open(directory.path());
    let sent = vec![message(b"a needle in the haystack"), message(b"hay")];
    let damaged = handle.enqueue(queue(), sent).await.unwrap()[0].clone().unwrap().seq;
    engine.stop();
    let (engine, handle) = open(directory.path());
    let segment = directory.path().join("00000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(6).position(|window| window == b"needle").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let deliveries = handle.lease(wish(2)).await.unwrap();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].content.body, "hay");
    let status = handle.status(damaged, None).await.unwrap();
    assert_eq!((status.message.phase, status.message.attempts), (Phase::Backoff, 1));
    assert_eq!(status.message.last_failure().unwrap().0.kind, "unreadable");
    engine.stop();
}
