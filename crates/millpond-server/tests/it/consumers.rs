//! Workers that name themselves, and what each may hold: `prefetch` over HTTP.
//!
//! Owns the tests of that bound as workers meet it. Must never depend on how fast the machine is.

use crate::harness::{Server, configuration, name};
use millpond_config::Configuration;
use serde_json::{Value, json};
use std::path::Path;

fn configured(directory: &Path, prefetch: u32) -> Configuration {
    let mut configuration = configuration(directory);
    configuration.queues.get_mut(&name("q")).unwrap().prefetch = prefetch;
    configuration
}

async fn fill(server: &Server, count: usize) {
    let items: Vec<_> = (0..count).map(|number| json!({"body": format!("{number}")})).collect();
    server.post("/v1/queues/q/messages/batch", &json!(items)).await;
}

async fn lease_as(server: &Server, consumer: &str, max: usize) -> Vec<Value> {
    server.lease("q", &json!({"max": max, "consumer": consumer, "lease_seconds": 600})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_consumer_holds_so_many_over_all_its_requests_and_leaves_the_rest_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configured(directory.path(), 5)).await;
    fill(&server, 20).await;
    let first = lease_as(&server, "a", 3).await;
    let second = lease_as(&server, "a", 10).await;
    assert_eq!((first.len(), second.len()), (3, 2));
    assert!(lease_as(&server, "a", 1).await.is_empty());
    assert_eq!(lease_as(&server, "b", 10).await.len(), 5);
    // Each way of letting go makes room.
    for (index, outcome) in ["complete", "retry", "dead", "release"].into_iter().enumerate() {
        let held = if index < 3 { &first[index] } else { &second[0] };
        assert_eq!(server.settle(json!({"outcome": outcome}), &held["receipt"]).await["status"], 200);
        assert_eq!(lease_as(&server, "a", 10).await.len(), 1, "after {outcome}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_makes_room_for_its_consumer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configured(directory.path(), 1)).await;
    fill(&server, 2).await;
    let brief = json!({"consumer": "a", "lease_seconds": 0.05});
    assert_eq!(server.lease("q", &brief).await.len(), 1);
    let again = server.lease("q", &json!({"consumer": "a", "wait_seconds": 20})).await;
    assert_eq!(again.len(), 1, "it was let wait until then");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_name_is_bounded_in_each_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configured(directory.path(), 5)).await;
    fill(&server, 12).await;
    let mut counts = Vec::new();
    for _ in 0..3 {
        counts.push(server.lease("q", &json!({"max": 10, "lease_seconds": 600})).await.len());
    }
    assert_eq!(counts, [5, 5, 2]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_holds_counts_after_a_restart_too() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configured(directory.path(), 2)).await;
    fill(&server, 5).await;
    let held = lease_as(&server, "a", 10).await;
    assert_eq!(held.len(), 2);
    server.stop().await;
    let server = Server::start(configured(directory.path(), 2)).await;
    assert!(lease_as(&server, "a", 10).await.is_empty());
    assert_eq!(lease_as(&server, "b", 10).await.len(), 2);
    server.settle(json!({"outcome": "complete"}), &held[0]["receipt"]).await;
    assert_eq!(lease_as(&server, "a", 10).await.len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_full_does_not_stand_in_the_way_of_others_that_wait() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configured(directory.path(), 1)).await;
    server.enqueue("q", "held").await;
    assert_eq!(lease_as(&server, "full", 1).await.len(), 1);
    let waits = |consumer: &str| json!({"consumer": consumer, "wait_seconds": 1, "lease_seconds": 600});
    let (full, hungry) = (waits("full"), waits("hungry"));
    let (none, next, _) = tokio::join!(server.lease("q", &full), server.lease("q", &hungry), async {
        server.enqueue("q", "next").await
    });
    assert_eq!((none.len(), next.len()), (0, 1));
    server.stop().await;
}
