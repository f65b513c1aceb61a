//! When a call is begun, and when it comes too late for that.
//!
//! Owns an engine with one message to push. Must never sleep: the moment is an argument.

use super::{Driver, targets};
use crate::alerts::Board;
use crate::bodies::Bodies;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::shared::{ResultLimits, Shared};
use crate::targets::TargetUrls;
use millpond_config::Target;
use millpond_core::alert::ServerAlertSettings;
use millpond_core::command::{Declared, NewMessage};
use millpond_core::message::Phase;
use millpond_core::name::Name;
use millpond_core::settings::{PUSH_LEASE_MARGIN, QueueSettings};
use millpond_engine::engine::{Engine, EngineOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Longest time anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

async fn within_deadline<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it does not hang")
}

/// Answers every request on one connection; returns how many there were once that is closed.
async fn answer_all(listener: TcpListener) -> usize {
    let (mut connection, _) = listener.accept().await.unwrap();
    let (mut requests, mut buffer) = (0, [0; 4096]);
    while connection.read(&mut buffer).await.unwrap() > 0 {
        requests += 1;
        connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_outlast_its_lease_is_not_begun_but_given_back_untouched() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap()).parse().unwrap();
    let backend = tokio::spawn(answer_all(listener));
    let (till, jobs) = (Name::new("till").unwrap(), Name::new("jobs").unwrap());
    let target = Target::new(url);
    let queue = QueueSettings { target: Some(till.clone()), ..QueueSettings::default() };
    let declared = Declared {
        targets: vec![(till.clone(), target.settings.clone())],
        queues: vec![(jobs.clone(), queue)],
    };
    let directory = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::new(directory.path().join("data"), declared);
    options.segment_bytes = 1 << 20;
    let (engine, handle, mut calls) = Engine::open(options).unwrap();
    let limits = Limits::default();
    let shared = Arc::new(Shared {
        routes: crate::routes::Routes::default(),
        cors: None,
        answers: crate::answers::Answers::default(),
        callbacks: None,
        arrivals: Arc::default(),
        alerts: Board::new(ServerAlertSettings::default(), None),
        handle: handle.clone(),
        bodies: Bodies::new(&limits, 1 << 10),
        limits,
        max_body_bytes: 1 << 10,
        base_url: String::new(),
        target_urls: TargetUrls::default(),
        needs_token: false,
        guard: Guard::new(&[], true),
        result_limits: ResultLimits::default(),
        draining: AtomicBool::new(false),
    });
    let driver = Driver::new(shared, targets(&BTreeMap::from([(till, target)])).unwrap());
    let accepted = handle.enqueue(jobs, vec![NewMessage::default()]).await.unwrap().remove(0).unwrap();

    let late = within_deadline(calls.next()).await.unwrap();
    let now = late.decided + PUSH_LEASE_MARGIN + Duration::from_nanos(1);
    driver.begin(late, now);
    assert_eq!(*driver.running.borrow(), 0, "nothing is called");

    let again = within_deadline(calls.next()).await.unwrap();
    let leased = &again.delivery.leased;
    assert_eq!(leased.receipt.seq, accepted.seq);
    let message = &leased.message;
    assert_eq!((message.deliveries, message.attempts, message.history.len()), (1, 0, 0), "untouched");
    let now = again.decided + PUSH_LEASE_MARGIN;
    // Made, as it ends with its lease at the latest; it may be over by now.
    driver.begin(again, now);

    let status = handle.status(accepted.seq, Some(DEADLINE)).await.unwrap();
    assert_eq!((status.message.phase, status.message.deliveries), (Phase::Succeeded, 1));
    driver.finish(DEADLINE).await;
    drop(driver);
    assert_eq!(within_deadline(backend).await.unwrap(), 1);
    within_deadline(tokio::task::spawn_blocking(move || engine.stop())).await.unwrap();
}
