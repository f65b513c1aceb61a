//! What is refused at the door, and what the refused are told.

use crate::rig::{QUEUE, Rig, complete, keyed, message, message_of, ms, name, retry_in, s};
use millpond_core::command::{Command, EnqueueError, Reply};
use millpond_core::settings::QueueSettings;
use std::time::Duration;

/// One worker that does five messages a second.
fn five_per_second() -> QueueSettings {
    QueueSettings { concurrency: Some(1), expected_service_time: Some(ms(200)), ..QueueSettings::default() }
}

fn retry_after(error: &EnqueueError) -> Duration {
    match error {
        EnqueueError::QueueFull { retry_after, .. } | EnqueueError::WaitTooLong { retry_after, .. } => {
            *retry_after
        }
        other => panic!("{other:?} is no refusal for a bound"),
    }
}

#[test]
fn the_bound_on_messages_is_exact_over_everything_not_terminal() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(3), ..QueueSettings::default() });
    rig.fill(3);
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })));
    let receipt = rig.lease_one();
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })), "leased counts");
    rig.settle(receipt, retry_in(s(50))).unwrap();
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })), "backoff counts");
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    assert!(rig.enqueue(message()).is_ok());
    assert_eq!(rig.stats().totals.refused_full, 3);
}

#[test]
fn the_bound_counts_what_is_not_durable_yet() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(3), ..QueueSettings::default() });
    rig.hold_durability = true;
    let request = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message(); 5] });
    rig.make_durable();
    let Some(Reply::Enqueued(Ok(answers))) = rig.answer(request) else { panic!("answered") };
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
}

#[test]
fn the_bound_on_bytes_is_exact() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 100, ..QueueSettings::default() });
    rig.enqueue(message_of(60)).unwrap();
    assert!(matches!(rig.enqueue(message_of(41)), Err(EnqueueError::QueueFull { .. })));
    rig.enqueue(message_of(40)).unwrap();
    assert_eq!(rig.stats().bytes, 100);
    assert!(matches!(rig.enqueue(message_of(1)), Err(EnqueueError::QueueFull { .. })));
}

#[test]
fn a_duplicate_of_accepted_work_is_answered_though_the_queue_is_full() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(1), ..QueueSettings::default() });
    let first = rig.enqueue(keyed(1, 1)).unwrap();
    assert_eq!(rig.enqueue(keyed(1, 1)).unwrap().seq, first.seq);
}

#[test]
fn refused_work_was_never_stored() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(1), ..QueueSettings::default() });
    rig.enqueue(keyed(1, 1)).unwrap();
    let records = rig.log.len();
    assert!(rig.enqueue(keyed(2, 2)).is_err());
    assert_eq!(rig.log.len(), records);
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    assert!(!rig.enqueue(keyed(2, 2)).unwrap().duplicate, "a refusal leaves no key behind");
}

#[test]
fn the_bound_in_time_refuses_what_would_start_later() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    rig.fill(21);
    let error = rig.enqueue(message()).unwrap_err();
    let EnqueueError::WaitTooLong { predicted, max, .. } = error else { panic!("{error:?}") };
    assert_eq!((predicted, max), (ms(4200), s(4)));
    assert_eq!(rig.stats().totals.refused_wait, 1);
}

#[test]
fn while_nothing_can_be_predicted_the_bound_in_time_refuses_nothing() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    rig.pause(true);
    rig.fill(100);
    assert!(rig.enqueue(message()).unwrap().promise.is_none());
    rig.pause(false);
    assert!(rig.enqueue(message()).is_err());
}

#[test]
fn successive_refusals_get_successive_places() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    rig.fill(31 - 10);
    let waits: Vec<Duration> = (0..50).map(|_| retry_after(&rig.enqueue(message()).unwrap_err())).collect();
    assert!(waits.iter().all(|wait| *wait >= s(1)), "a refused caller waits a second at least");
    for (place, wait) in (0_u32..).zip(&waits) {
        let earliest = ms(200) * (place + 1);
        let latest = (earliest.mul_f64(1.1)).max(s(1) + ms(200) * place).mul_f64(1.1);
        assert!((earliest..=latest).contains(wait), "place {place}: {wait:?}");
    }
    let [early, late] = [waits[10], waits[40]];
    assert!(late > early + s(4), "thirty places further is about six seconds later");
}

#[test]
fn whoever_comes_back_when_told_finds_room() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    rig.fill(21);
    let first = rig.lease_one();
    rig.fill(1);
    let wait = retry_after(&rig.enqueue(message()).unwrap_err());
    let mut held = first;
    let mut passed = Duration::ZERO;
    while passed < wait {
        rig.pass(ms(200));
        passed += ms(200);
        rig.settle(held, complete()).unwrap();
        held = rig.lease_one();
    }
    assert!(rig.enqueue(message()).is_ok());
}

#[test]
fn the_bound_in_time_counts_what_failed_and_will_come_back_first() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    rig.fill(21);
    for _ in 0..3 {
        let receipt = rig.lease_one();
        rig.settle(receipt, retry_in(s(60))).unwrap();
    }
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
}
