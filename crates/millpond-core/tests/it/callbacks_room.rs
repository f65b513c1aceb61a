//! What is held back while there is no room to tell of ends.

use crate::callbacks::{lease_tellers, rig_with, tellers, told};
use crate::rig::{QUEUE, Rig, complete, message, name, s};
use millpond_core::command::{CallOutcome, Command, EnqueueError, NewMessage, Reply};
use millpond_core::message::Phase;
use millpond_core::notice::Notice;
use millpond_core::settings::{OnExpiry, Overflow, QueueSettings};
use millpond_core::stats::Held;

/// Room for so many.
fn rig(room: u64, settings: QueueSettings) -> Rig {
    rig_with(settings, QueueSettings { max_messages: Some(room), ..tellers() })
}

fn end_one(rig: &mut Rig) {
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
}

fn deliver_one(rig: &mut Rig) {
    let receipt = lease_tellers(rig, 1)[0].receipt;
    rig.settle(receipt, complete()).unwrap();
}

#[test]
fn a_queue_whose_ends_are_to_be_told_waits_for_room_and_goes_on_with_it() {
    let mut rig = rig(2, QueueSettings::default());
    for _ in 0..4 {
        rig.enqueue(told()).unwrap();
    }
    let late = rig.lease(1)[0].receipt;
    end_one(&mut rig);
    assert_eq!(rig.stats().held, None);
    end_one(&mut rig);
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull));
    assert_eq!((rig.lease(1).len(), rig.notices.len()), (0, 1));
    assert!(matches!(&rig.notices[0], Notice::CallbacksFull { waiting: 2, .. }), "{:?}", rig.notices);
    let error = rig.enqueue(told()).unwrap_err();
    assert!(matches!(error, EnqueueError::QueueFull { what, .. } if what.contains("callbacks")), "{error}");
    assert_eq!(rig.stats().totals.refused_full, 1);
    assert!(rig.enqueue(message()).is_ok(), "what is not to be told comes in");
    rig.settle(late, complete()).unwrap();
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull), "what somebody has ends all the same");
    rig.restart();
    assert_eq!((rig.stats().held, rig.lease(1).len()), (Some(Held::CallbacksFull), 0));
    deliver_one(&mut rig);
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull), "still as many as there is room for");
    deliver_one(&mut rig);
    assert_eq!((rig.stats().held, rig.lease(2).len()), (None, 2));
}

#[test]
fn a_queue_without_such_messages_goes_on_and_one_is_free_with_its_last() {
    let mut rig = rig(1, QueueSettings::default());
    rig.enqueue(told()).unwrap();
    end_one(&mut rig);
    rig.fill(2);
    assert_eq!((rig.stats().held, rig.lease(1).len()), (None, 1));
    deliver_one(&mut rig);
    let last = rig.enqueue(told()).unwrap().seq;
    rig.enqueue(NewMessage { delay: s(5), ..told() }).unwrap();
    let wish = Rig::wish(9, std::time::Duration::ZERO);
    let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
    let receipt = leased.iter().find(|leased| leased.receipt.seq == last).unwrap().receipt;
    rig.settle(receipt, complete()).unwrap();
    rig.fill(1);
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull), "one is left that waits for its time");
    let Reply::Messages(Ok((waits, _))) =
        rig.ask_now(Command::List { queue: name(QUEUE), phase: Some(Phase::Delayed), after: None, limit: 1 })
    else {
        panic!("listed")
    };
    rig.cancel(waits[0].message.seq).unwrap();
    assert_eq!((rig.stats().held, rig.lease(1).len()), (None, 1), "it was withdrawn");
}

#[test]
fn nothing_is_learned_nor_promised_while_there_is_no_room() {
    let settings =
        QueueSettings { concurrency: Some(1), expected_service_time: Some(s(1)), ..QueueSettings::default() };
    let mut rig = rig(1, settings);
    let seqs: Vec<_> = (0..3).map(|_| rig.enqueue(told()).unwrap().seq).collect();
    assert!(rig.status(seqs[2]).unwrap().promise.is_some());
    end_one(&mut rig);
    assert_eq!((rig.status(seqs[2]).unwrap().promise, rig.stats().predicted_wait), (None, None));
    rig.pass(s(100));
    deliver_one(&mut rig);
    assert!(rig.stats().predicted_wait.unwrap() <= s(3), "the pause was none of the workers'");
}

#[test]
fn nothing_expires_is_purged_or_dropped_while_there_is_no_room_to_tell_of_it() {
    for on_expiry in [OnExpiry::DeadLetter, OnExpiry::Drop] {
        let settings = QueueSettings {
            on_expiry,
            overflow: Overflow::DropOldest,
            max_messages: Some(4),
            retention: s(1000),
            ..QueueSettings::default()
        };
        let mut rig = rig(1, settings);
        for _ in 0..3 {
            rig.enqueue(NewMessage { ttl: Some(s(10)), ..told() }).unwrap();
        }
        end_one(&mut rig);
        rig.fill(2);
        let error = rig.enqueue(message()).unwrap_err();
        assert!(
            matches!(error, EnqueueError::QueueFull { what, .. } if what.contains("callbacks")),
            "{error}"
        );
        rig.pass(s(20));
        assert_eq!((rig.stats().ready, rig.stats().totals.expired), (4, 0));
        let purge = rig.ask(Command::Purge(name(QUEUE)));
        rig.pass(s(1));
        assert!(rig.answer(purge).is_none(), "it waits");
        deliver_one(&mut rig);
        rig.pass(s(1));
        // One of those that have expired has taken the room.
        assert_eq!(rig.stats().totals.expired, 2, "a step goes as far as it goes");
        while rig.stats().totals.expired + rig.stats().totals.cancelled < 4 {
            deliver_one(&mut rig);
            rig.pass(s(1));
        }
        assert!(matches!(rig.answer(purge), Some(Reply::Purged(Ok(2)))));
    }
}

#[test]
fn a_push_queue_goes_on_by_itself_once_there_is_room() {
    let settings = QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let mut rig = rig(1, settings);
    for _ in 0..5 {
        rig.enqueue(told()).unwrap();
    }
    let calls = rig.take_calls();
    assert_eq!(calls.len(), 2);
    for call in calls {
        rig.end_call(call.receipt, CallOutcome::Succeeded { result: None });
    }
    // One place is free in between.
    assert!(rig.take_calls().len() <= 1);
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull));
    while rig.stats().held.is_some() {
        deliver_one(&mut rig);
    }
    assert!(!rig.take_calls().is_empty());
}

#[test]
fn a_message_with_bytes_beyond_the_bound_leaves_no_room() {
    let mut rig = rig_with(QueueSettings::default(), QueueSettings { max_bytes: 20, ..tellers() });
    rig.enqueue(told()).unwrap();
    rig.enqueue(told()).unwrap();
    end_one(&mut rig);
    assert_eq!(rig.stats().held, Some(Held::CallbacksFull));
}
