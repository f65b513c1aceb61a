//! Promises, ages and drain times as a caller and an operator see them.

use crate::rig::{QUEUE, Rig, complete, message, ms, name, retry_in, s, target};
use millpond_core::command::{Command, Declared, NewMessage};
use millpond_core::rate::Rate;
use millpond_core::settings::{QueueSettings, TargetSettings};
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
    rig.pass(s(20));
    assert_eq!(
        rig.status(accepted.seq).unwrap().promise.unwrap().p50,
        s(40),
        "nor when it is asked for later"
    );
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
fn of_delayed_messages_the_one_that_was_due_first_is_the_oldest() {
    let mut rig = Rig::new(QueueSettings::default());
    for delay in [10, 5] {
        rig.enqueue(NewMessage { delay: s(delay), ..message() }).unwrap();
    }
    rig.pass(s(12));
    assert_eq!(rig.stats().oldest_ready_age, s(7));
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
fn a_pause_does_not_count_as_slow_work_though_work_ends_in_it() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(100);
    for _ in 0..20 {
        let receipt = rig.lease_one();
        rig.pass(ms(200));
        rig.settle(receipt, complete()).unwrap();
    }
    let receipt = rig.lease_one();
    rig.pause(true);
    rig.pass(ms(200));
    rig.settle(receipt, complete()).unwrap();
    assert!(rig.stats().ready > 0, "more waits for the end of the pause");
    rig.pass(Duration::from_hours(1));
    rig.pause(false);
    let after = rig.stats().capacity_per_second;
    assert!((after - 5.0).abs() < 0.3, "frozen while paused, got {after}");
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

#[test]
fn arrivals_become_insurmountable_once_they_exceed_capacity_for_longer_than_the_promise() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(20)), ..five_per_second() });
    rig.fill(10);
    for _ in 0..400 {
        let _refused_or_not = rig.enqueue(message());
        rig.pass(ms(50));
    }
    assert!(!rig.stats().insurmountable, "twenty seconds are within it");
    rig.pass(ms(1));
    assert!(rig.stats().insurmountable);
}

#[test]
fn a_rate_below_what_the_places_can_do_is_the_capacity_and_shared_as_they_are() {
    let settings = || QueueSettings {
        target: Some(name("till")),
        expected_service_time: Some(ms(1)),
        ..QueueSettings::default()
    };
    let queues = vec![(name(QUEUE), settings()), (name("second"), settings())];
    let till = TargetSettings { rate: Some(Rate { events: 10, per: s(1) }), ..target(100) };
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), till)], queues });
    assert!((rig.stats().capacity_per_second - 10.0).abs() < 1e-9);
    for _ in 0..5 {
        rig.enqueue_to("second", message()).unwrap();
    }
    assert!((rig.stats().capacity_per_second - 5.0).abs() < 1e-9);
}

#[test]
fn the_expected_service_time_holds_until_each_place_has_had_its_turn() {
    let settings = QueueSettings { concurrency: Some(2), ..QueueSettings::default() };
    for (expected, after_one) in [(Some(s(1)), s(1)), (None, ms(200))] {
        let mut rig = Rig::new(QueueSettings { expected_service_time: expected, ..settings.clone() });
        rig.fill(2);
        let leased = rig.lease(2);
        rig.pass(ms(200));
        rig.settle(leased[0].receipt, complete()).unwrap();
        assert_eq!(rig.stats().service_time, after_one, "expected: {expected:?}");
        rig.settle(leased[1].receipt, complete()).unwrap();
        assert_eq!(rig.stats().service_time, ms(200), "expected: {expected:?}");
    }
}

#[test]
fn utilization_is_what_arrives_of_what_can_be_done() {
    let mut rig = Rig::new(five_per_second());
    rig.fill(20);
    let stats = rig.stats();
    assert!(stats.arrivals_per_second > 5.0);
    assert!((stats.utilization - stats.arrivals_per_second / 5.0).abs() < 1e-9);
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(20);
    assert!(rig.stats().utilization.abs() < 1e-9, "nothing is known of the capacity");
}
