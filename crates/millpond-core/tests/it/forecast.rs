//! Promises, ages and drain times as a caller and an operator see them.

use crate::rig::{QUEUE, Rig, complete, message, ms, name, retry_in, s, target};
use millpond_core::command::{Command, Declared, NewMessage};
use millpond_core::settings::QueueSettings;
use std::time::Duration;

/// One worker that does five messages a second.
fn five_per_second() -> QueueSettings {
    QueueSettings { concurrency: Some(1), expected_service_time: Some(ms(200)), ..QueueSettings::default() }
}

#[test]
fn promise_for_twenty_ahead_at_five_per_second_is_four_seconds() {
    let mut rig = Rig::new(five_per_second());
    rig.fill(20);
    let accepted = rig.enqueue(message()).unwrap();
    assert_eq!(accepted.position, Some(20));
    let promise = accepted.promise.unwrap();
    assert_eq!(promise.p50, s(4));
    assert!(promise.p90 >= promise.p50 && promise.p90 <= ms(4600));
    assert_eq!(accepted.result_in, ms(4200));
}

#[test]
fn a_position_counts_what_starts_before_and_not_what_is_leased() {
    let mut rig = Rig::new(five_per_second());
    let seqs = rig.fill(5);
    let receipt = rig.lease_one();
    assert_eq!(rig.status(seqs[4]).unwrap().position, Some(3));
    assert_eq!(rig.status(seqs[1]).unwrap().position, Some(0));
    assert_eq!(rig.status(seqs[0]).unwrap().position, None);
    rig.settle(receipt, retry_in(Duration::ZERO)).unwrap();
    assert_eq!(rig.status(seqs[4]).unwrap().position, Some(4), "a retry starts before");
}

#[test]
fn nothing_is_promised_without_a_capacity_or_while_paused() {
    let mut rig = Rig::new(QueueSettings::default());
    assert!(rig.enqueue(message()).unwrap().promise.is_none());
    assert_eq!(rig.stats().predicted_wait, None);
    let mut rig = Rig::new(five_per_second());
    rig.pause(true);
    assert!(rig.enqueue(message()).unwrap().promise.is_none());
    assert_eq!((rig.stats().predicted_wait, rig.stats().drain), (None, None));
}

#[test]
fn a_delayed_message_is_not_promised_before_its_due_time() {
    let mut rig = Rig::new(five_per_second());
    let accepted = rig.enqueue(NewMessage { delay: s(60), ..message() }).unwrap();
    assert_eq!((accepted.position, accepted.promise.unwrap().p50), (None, s(60)));
}

#[test]
fn the_oldest_age_counts_from_first_due_through_every_retry() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.enqueue(NewMessage { delay: s(10), ..message() }).unwrap();
    rig.pass(s(5));
    assert_eq!(rig.stats().oldest_age, Duration::ZERO, "delayed work is not late");
    rig.pass(s(10));
    let receipt = rig.lease_one();
    assert_eq!((rig.stats().oldest_age, rig.stats().oldest_leased_age), (s(5), s(5)));
    rig.settle(receipt, retry_in(s(20))).unwrap();
    rig.pass(s(10));
    let stats = rig.stats();
    assert_eq!((stats.oldest_age, stats.oldest_backoff_age, stats.oldest_ready_age), (s(15), s(15), s(0)));
    rig.pass(s(10));
    assert_eq!(rig.stats().oldest_ready_age, s(25));
}

#[test]
fn ages_survive_a_restart() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(1);
    rig.pass(s(40));
    rig.restart();
    assert_eq!(rig.stats().oldest_ready_age, s(40));
}

#[test]
fn drain_takes_the_backlog_over_the_surplus() {
    let mut rig = Rig::new(five_per_second());
    rig.pause(true);
    rig.fill(20);
    rig.pause(false);
    rig.pass(Duration::from_hours(1));
    let drain = rig.stats().drain.unwrap();
    assert_eq!(drain, s(4), "nothing arrives any more: 20 ÷ 5");
}

#[test]
fn a_pause_does_not_count_as_slow_work() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(100);
    for _ in 0..20 {
        let receipt = rig.lease_one();
        rig.pass(ms(200));
        rig.settle(receipt, complete()).unwrap();
    }
    let before = rig.stats().capacity_per_second;
    assert!((before - 5.0).abs() < 0.1, "{before}");
    rig.pause(true);
    rig.pass(Duration::from_hours(1));
    rig.pause(false);
    let receipt = rig.lease_one();
    rig.pass(ms(200));
    rig.settle(receipt, complete()).unwrap();
    let after = rig.stats().capacity_per_second;
    assert!((after - 5.0).abs() < 0.2, "frozen while paused, got {after}");
}

#[test]
fn queues_that_share_a_target_share_its_capacity_while_both_have_work() {
    let settings = || QueueSettings {
        target: Some(name("till")),
        expected_service_time: Some(ms(100)),
        ..QueueSettings::default()
    };
    let queues = vec![(name(QUEUE), settings()), (name("second"), settings())];
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), target(2))], queues });
    assert!((rig.stats().capacity_per_second - 20.0).abs() < 1e-9);
    for _ in 0..5 {
        rig.enqueue_to("second", message()).unwrap();
    }
    assert!((rig.stats().capacity_per_second - 10.0).abs() < 1e-9);
    rig.ask_now(Command::Overview);
}

#[test]
fn arrivals_beyond_capacity_for_longer_than_the_promise_are_insurmountable() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(20)), ..five_per_second() });
    let mut said_at = None;
    for second in 0..60_u64 {
        for _ in 0..10 {
            let _refused_or_not = rig.enqueue(message());
            rig.pass(ms(100));
        }
        if rig.stats().insurmountable {
            said_at.get_or_insert(second);
        }
    }
    let said_at = said_at.expect("10/s into 5/s is insurmountable");
    assert!((19..=30).contains(&said_at), "said after {said_at}s");
}
