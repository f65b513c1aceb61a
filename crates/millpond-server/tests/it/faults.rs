//! Kinds of faults that users of other queues have met, over HTTP: leases that never end or end twice, work done twice,
//! dead letters that get lost, ages and signals that mislead.
//!
//! Owns one test for each kind. Those that were met elsewhere already: a stale receipt is in `life.rs`, a stop that is
//! no attempt in `stop.rs`, a promise against the real start in the simulator. Must never depend on how fast the
//! machine is.

use crate::harness::{Server, configuration, eventually, name};
use millpond_config::Configuration;
use millpond_core::settings::{QueueSettings, RetrySettings};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MESSAGES: &str = "/v1/queues/q/messages";

/// The usual configuration, with `q` changed.
fn with_queue(directory: &Path, change: impl FnOnce(&mut QueueSettings)) -> Configuration {
    let mut configuration = configuration(directory);
    change(configuration.queues.get_mut(&name("q")).unwrap());
    configuration
}

async fn send_many(server: &Server, count: usize) -> Vec<Value> {
    let items: Vec<_> = (0..count).map(|number| json!({"body": format!("{number}")})).collect();
    server.post("/v1/queues/q/messages/batch", &json!(items)).await.json().as_array().unwrap().clone()
}

async fn status(server: &Server, accepted: &Value) -> Value {
    server.get(accepted["status_url"].as_str().unwrap()).await.json()
}

/// The value of the one line of the metrics that begins so.
async fn metric(server: &Server, line: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let value = text.lines().find_map(|found| found.strip_prefix(line)).map(str::trim);
    value.unwrap_or_else(|| panic!("{line} is not in\n{text}")).parse().unwrap()
}

// Leases and duplicates.

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_leased_for_ever_when_its_worker_vanishes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_queue(directory.path(), |queue| queue.prefetch = 1_000)).await;
    send_many(&server, 200).await;
    let leased = server.lease("q", &json!({"max": 200, "lease_seconds": 0.01})).await;
    assert_eq!(leased.len(), 200);
    // Nobody asks for anything: the leases end by themselves.
    eventually("all are ready again", async || {
        let stats = server.stats("q").await;
        (&stats["leased"], &stats["oldest_leased_age_seconds"], &stats["ready"])
            == (&json!(0), &json!(0.0), &json!(200))
    })
    .await;
    assert!(server.get(&format!("{MESSAGES}?state=leased")).await.json()["messages"] == json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_lasts_longer_than_twelve_hours_however_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "x").await;
    let asked = server.post("/v1/queues/q/leases", &json!({"lease_seconds": 43_200.1})).await;
    assert_eq!(asked.slug(), "malformed");
    let leased = server.lease("q", &json!({"lease_seconds": 43_200})).await[0].clone();
    let longer = json!([{"receipt": leased["receipt"], "lease_seconds": 43_200}]);
    let answer = server.post("/v1/leases/extend", &longer).await.json();
    assert_eq!((&answer[0]["status"], answer[0].get("lease_expires_at")), (&json!(400), None), "{answer}");
    let seen = server.get(&format!("{MESSAGES}?state=leased")).await.json();
    assert_eq!(seen["messages"].as_array().unwrap().len(), 1, "what it has it keeps");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_lease_ends_on_time_among_a_thousand_long_ones() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_queue(directory.path(), |queue| queue.prefetch = 1_000)).await;
    send_many(&server, 1_000).await;
    let long = server.lease("q", &json!({"max": 1_000, "lease_seconds": 43_200})).await;
    assert_eq!(long.len(), 1_000);
    let short = server.enqueue("q", "short").await;
    assert_eq!(server.lease("q", &json!({"lease_seconds": 0.02})).await[0]["id"], short["id"]);
    let again = server.lease("q", &json!({"wait_seconds": 20})).await;
    assert_eq!((&again[0]["id"], &again[0]["deliveries"]), (&short["id"], &json!(2)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_and_the_end_of_the_lease_that_race_have_one_winner() {
    let directory = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::start(configuration(directory.path())).await);
    send_many(&server, 60).await;
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..60 {
        let server = Arc::clone(&server);
        workers.spawn(async move {
            let held =
                server.lease("q", &json!({"lease_seconds": 0.02, "wait_seconds": 20})).await[0].clone();
            // Around the end of the lease; on which side of it each word comes does not matter.
            tokio::time::sleep(Duration::from_millis(number)).await;
            let word = json!({"outcome": "complete", "result": held["receipt"]});
            let settled = server.settle(word, &held["receipt"]).await;
            let won = settled["status"] == 200;
            assert!(won || settled["error"]["type"] == "/problems/lease-lost", "{settled}");
            if won {
                let path = format!("/v1/messages/{}/result", held["id"].as_str().unwrap());
                assert_eq!(&server.get(&path).await.body[..], held["receipt"].as_str().unwrap().as_bytes());
            }
            won
        });
    }
    let mut wins = 0;
    while let Some(won) = workers.join_next().await {
        wins += u64::from(won.unwrap());
    }
    let stats = server.stats("q").await;
    assert_eq!(stats["completed_total"], wins, "each 200 is one message done, and no message is done twice");
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_stays_single_while_its_lease_is_extended() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "long").await;
    let held = server.lease("q", &json!({"lease_seconds": 2})).await[0].clone();
    let extension = json!([{"receipt": held["receipt"], "lease_seconds": 600}]);
    assert_eq!(server.post("/v1/leases/extend", &extension).await.json()[0]["status"], 200);
    // Longer than the first lease would have lasted.
    assert!(server.lease("q", &json!({"wait_seconds": 2.2})).await.is_empty(), "nobody else gets it");
    assert_eq!(server.settle(json!({"outcome": "complete"}), &held["receipt"]).await["status"], 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_vanished_is_told_apart_from_work_that_failed() {
    let directory = tempfile::tempdir().unwrap();
    let retry = RetrySettings {
        backoff_min: Duration::ZERO,
        backoff_max: Duration::ZERO,
        ..RetrySettings::default()
    };
    let server = Server::start(with_queue(directory.path(), |queue| queue.retry = retry)).await;
    let accepted = server.enqueue("q", "x").await;
    server.lease("q", &json!({"lease_seconds": 0.01})).await;
    let second = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
    server.settle(json!({"outcome": "retry", "error": "no"}), &second["receipt"]).await;
    let third = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
    server.settle(json!({"outcome": "release"}), &third["receipt"]).await;
    let seen = status(&server, &accepted).await;
    let outcomes: Vec<_> =
        seen["history"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].clone()).collect();
    assert_eq!(outcomes, ["lease-expired", "failed", "released"]);
    assert_eq!((&seen["attempts"], &seen["deliveries"]), (&json!(2), &json!(3)), "given back is no attempt");
    for outcome in ["lease-expired", "failed", "released"] {
        let line = format!("millpond_deliveries_total{{queue=\"q\",outcome=\"{outcome}\"}}");
        assert!((metric(&server, &line).await - 1.0).abs() < f64::EPSILON, "{outcome}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_spends_no_attempt_even_where_there_is_but_one() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = with_queue(directory.path(), |queue| queue.retry.max_attempts = 1);
    let server = Server::start(configuration.clone()).await;
    let accepted = server.enqueue("q", "x").await;
    server.lease("q", &json!({"lease_seconds": 1})).await;
    server.stop().await;
    let server = Server::start(configuration).await;
    let again = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
    assert_eq!((&again["id"], &again["attempt"]), (&accepted["id"], &json!(1)));
    assert_eq!(status(&server, &accepted).await["history"][0]["outcome"], "interrupted");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_spends_no_delivery_however_often_it_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "x").await;
    server.send("POST", "/v1/queues/q/pause", &[], "").await;
    for _ in 0..20 {
        assert!(server.lease("q", &json!({"max": 10, "wait_seconds": 0.005})).await.is_empty());
    }
    let seen = status(&server, &accepted).await;
    assert_eq!((&seen["deliveries"], &seen["attempts"]), (&json!(0), &json!(0)));
    server.send("POST", "/v1/queues/q/resume", &[], "").await;
    assert_eq!(server.lease("q", &json!({})).await[0]["deliveries"], 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_longer_than_the_lease_is_no_lease_and_leads_to_no_second_one() {
    let directory = tempfile::tempdir().unwrap();
    let server =
        Server::start(with_queue(directory.path(), |queue| queue.lease = Duration::from_secs(1))).await;
    let delayed = server.send("POST", MESSAGES, &[("millpond-delay", "1h")], "later").await.json();
    let failed = server.enqueue("q", "fails").await;
    let held = server.lease("q", &json!({"max": 10})).await;
    assert_eq!(held.len(), 1, "the delayed one is not among them");
    server.settle(json!({"outcome": "retry", "delay_seconds": 3_600}), &held[0]["receipt"]).await;
    // Longer than a lease lasts: what were leased in disguise would come out now.
    assert!(server.lease("q", &json!({"wait_seconds": 1.2})).await.is_empty());
    let (delayed, failed) = (status(&server, &delayed).await, status(&server, &failed).await);
    assert_eq!((&delayed["status"], &delayed["deliveries"]), (&json!("delayed"), &json!(0)));
    assert_eq!((&failed["status"], &failed["deliveries"]), (&json!("backoff"), &json!(1)));
    assert_eq!(server.stats("q").await["leased"], 0);
    server.stop().await;
}

// Dead letters, metrics, status.

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_fails_again_is_a_dead_letter_again_with_its_whole_story() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "x").await;
    let die = async |error: &str| {
        let held = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
        server.settle(json!({"outcome": "dead", "error": error}), &held["receipt"]).await;
    };
    die("first").await;
    server.post("/v1/queues/q/dead/replay", &json!({"ids": [accepted["id"]]})).await;
    die("second").await;
    let letters = server.get("/v1/queues/q/dead").await.json();
    assert_eq!(letters["messages"].as_array().unwrap().len(), 1, "once, and in its own queue");
    let letter = &letters["messages"][0];
    assert_eq!((&letter["id"], &letter["queue"]), (&accepted["id"], &json!("q")));
    assert_eq!(letter["accepted_at"], accepted["accepted_at"]);
    assert_eq!(letter["last_error"]["message"], "second");
    let errors: Vec<_> = letter["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["error"]["message"].clone())
        .collect();
    assert_eq!(errors, ["first", "second"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_in_backoff_is_told_apart_from_waiting_to_be_worked_on_and_hides_no_age() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "poison").await;
    let held = server.lease("q", &json!({})).await[0].clone();
    server.settle(json!({"outcome": "retry", "delay_seconds": 600}), &held["receipt"]).await;
    eventually("it grows old", async || {
        server.stats("q").await["oldest_backoff_age_seconds"].as_f64().unwrap() > 0.0
    })
    .await;
    let stats = server.stats("q").await;
    assert_eq!((&stats["oldest_ready_age_seconds"], &stats["backoff"]), (&json!(0.0), &json!(1)));
    let age = |name: &str| stats[name].as_f64().unwrap();
    assert!(age("oldest_age_seconds") >= age("oldest_backoff_age_seconds"), "{stats}");
    assert!(metric(&server, r#"millpond_queue_oldest_age_seconds{queue="q",state="any"}"#).await > 0.0);
    // Only the wait until the first hand-out is a wait; what comes after a failure is counted as an attempt.
    assert!((metric(&server, r#"millpond_wait_seconds_count{queue="q"}"#).await - 1.0).abs() < f64::EPSILON);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_hand_out_adds_nothing_to_the_measured_wait() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    server.enqueue("q", "x").await;
    for _ in 0..3 {
        let held = server.lease("q", &json!({"wait_seconds": 20})).await[0].clone();
        server.settle(json!({"outcome": "retry", "delay_seconds": 0}), &held["receipt"]).await;
    }
    assert!((metric(&server, r#"millpond_wait_seconds_count{queue="q"}"#).await - 1.0).abs() < f64::EPSILON);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_in_flight_keeps_the_workers_that_do_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    send_many(&server, 7).await;
    let held = server.lease("q", &json!({"max": 7})).await;
    let stats = server.stats("q").await;
    assert_eq!((&stats["ready"], &stats["leased"]), (&json!(0), &json!(7)));
    assert!(stats["workers_wanted"].as_u64().unwrap() >= 7, "nothing waits, but seven are at work: {stats}");
    for message in &held {
        server.settle(json!({"outcome": "complete"}), &message["receipt"]).await;
    }
    eventually("nobody is needed", async || server.stats("q").await["leased"] == 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_a_place_that_falls_and_when_to_ask_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = send_many(&server, 4).await;
    let positions = async || {
        let mut seen = Vec::new();
        for message in &accepted {
            let answer = server.get(message["status_url"].as_str().unwrap()).await;
            let waits = answer.json()["status"] == "ready" || answer.json()["status"] == "leased";
            assert_eq!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1), waits);
            seen.push(answer.json()["position"].clone());
        }
        seen
    };
    assert_eq!(positions().await, [json!(0), json!(1), json!(2), json!(3)]);
    let first = server.lease("q", &json!({})).await[0].clone();
    assert_eq!(positions().await, [json!(null), json!(0), json!(1), json!(2)]);
    server.settle(json!({"outcome": "complete"}), &first["receipt"]).await;
    server.lease("q", &json!({})).await;
    assert_eq!(positions().await, [json!(null), json!(null), json!(0), json!(1)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_dead_letters_stops_the_queue_until_somebody_has_looked() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = with_queue(directory.path(), |queue| queue.dead_burst = 3);
    let server = Server::start(configuration.clone()).await;
    send_many(&server, 10).await;
    let end = async |server: &Server, outcome: &str| {
        let held = server.lease("q", &json!({})).await[0].clone();
        server.settle(json!({"outcome": outcome}), &held["receipt"]).await;
    };
    // A success in between begins the count anew.
    for outcome in ["dead", "dead", "complete", "dead", "dead", "dead"] {
        end(&server, outcome).await;
    }
    assert!(server.lease("q", &json!({})).await.is_empty());
    let told = async |server: &Server| {
        let queue = server.get("/v1/queues/q").await.json();
        (queue["paused"].clone(), queue["held"].clone(), queue["stats"]["ready"].clone())
    };
    assert_eq!(told(&server).await, (json!(true), json!("dead-burst"), json!(4)));
    assert_eq!(server.send("POST", MESSAGES, &[], "x").await.status, 202, "it accepts all the same");
    server.stop().await;
    let server = Server::start(configuration).await;
    assert_eq!(told(&server).await, (json!(true), json!("dead-burst"), json!(5)));
    server.send("POST", "/v1/queues/q/resume", &[], "").await;
    assert_eq!(told(&server).await, (json!(false), json!(null), json!(5)));
    end(&server, "complete").await;
    server.stop().await;
}
