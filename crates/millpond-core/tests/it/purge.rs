//! Purges: what waits ends as cancelled, in steps; what somebody has stays; and what a full disk makes of that and of expiry.

use crate::rig::{QUEUE, Rig, complete, message, ms, name, retry_in, s};
use millpond_core::command::{Command, Input, NewMessage, QueueError, Reply, StorageState};
use millpond_core::message::Phase;
use millpond_core::settings::QueueSettings;
use std::time::Duration;

fn purge() -> Command {
    Command::Purge(name(QUEUE))
}

#[test]
fn everything_that_waits_is_cancelled_and_what_somebody_has_stays() {
    let mut rig = Rig::new(QueueSettings::default());
    let ready = rig.fill(4);
    let held = rig.lease_one();
    let failed = rig.lease_one();
    rig.settle(failed, retry_in(s(60))).unwrap();
    let delayed = rig.enqueue(NewMessage { delay: s(60), ..message() }).unwrap().seq;
    let request = rig.ask(purge());
    rig.pass(Duration::ZERO);
    assert!(matches!(rig.answer(request), Some(Reply::Purged(Ok(4)))));
    for seq in [failed.seq, delayed, ready[2], ready[3]] {
        assert_eq!(rig.phase(seq), Phase::Cancelled, "{seq:?}");
    }
    assert_eq!(rig.settle(held, complete()), Ok(()));
    assert_eq!(rig.stats().totals.cancelled, 4);
    rig.restart();
    rig.pass(s(100));
    assert!(rig.lease(10).is_empty());
}

#[test]
fn a_large_purge_goes_in_steps_and_takes_nothing_that_came_later() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.ask_now(Command::Enqueue { queue: name(QUEUE), messages: vec![message(); 2000] });
    rig.hold_durability = true;
    let request = rig.ask(purge());
    let left = rig.stats().ready;
    assert!(left > 0 && left < 2000, "{left}");
    let second = rig.ask(purge());
    assert!(matches!(rig.answer(second), Some(Reply::Purged(Err(QueueError::PurgeRunning)))));
    let later = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    rig.hold_durability = false;
    rig.pass(ms(1));
    rig.make_durable();
    let Some(Reply::Enqueued(Ok(later))) = rig.answer(later) else { panic!("accepted") };
    let later = later[0].as_ref().unwrap().seq;
    assert!(matches!(rig.answer(request), Some(Reply::Purged(Ok(2000)))));
    assert_eq!(rig.lease(10)[0].message.seq, later);
}

#[test]
fn a_purge_is_told_of_once_it_is_durable_and_leaves_other_queues_alone() {
    let mut rig = Rig::new(QueueSettings::default());
    let define = Command::Define { queue: name("other"), settings: Box::default() };
    rig.ask_now(define);
    let other = rig.enqueue_to("other", message()).unwrap().seq;
    rig.fill(3);
    rig.hold_durability = true;
    let request = rig.ask(purge());
    rig.pass(Duration::ZERO);
    assert!(rig.answer(request).is_none());
    rig.make_durable();
    assert!(matches!(rig.answer(request), Some(Reply::Purged(Ok(3)))));
    assert_eq!(rig.phase(other), Phase::Ready);
    let unknown = rig.ask_now(Command::Purge(name("nowhere")));
    assert!(matches!(unknown, Reply::Purged(Err(QueueError::Unknown))));
}

#[test]
fn a_purge_goes_on_behind_many_messages_of_other_queues() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.ask_now(Command::Define { queue: name("other"), settings: Box::default() });
    rig.ask_now(Command::Enqueue { queue: name("other"), messages: vec![message(); 4200] });
    rig.fill(3);
    let request = rig.ask(purge());
    rig.pass(Duration::ZERO);
    assert!(matches!(rig.answer(request), Some(Reply::Purged(Ok(3)))));
}

#[test]
fn on_a_full_disk_a_purge_goes_on_as_far_as_there_is_room() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(5);
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 2 }));
    let request = rig.ask(purge());
    rig.pass(s(1));
    assert_eq!((rig.stats().totals.cancelled, rig.answer(request).is_none()), (2, true));
    rig.input(Input::Storage(StorageState::SettleOnly));
    rig.pass(s(1));
    assert_eq!(rig.stats().totals.cancelled, 2);
    rig.input(Input::Storage(StorageState::Roomy));
    rig.pass(s(1));
    assert!(matches!(rig.answer(request), Some(Reply::Purged(Ok(5)))));
}

#[test]
fn on_a_full_disk_what_has_expired_ends_as_there_is_room_and_goes_to_nobody() {
    let mut rig = Rig::new(QueueSettings::default());
    for _ in 0..4 {
        rig.enqueue(NewMessage { ttl: Some(s(10)), ..message() }).unwrap();
    }
    rig.input(Input::Storage(StorageState::SettleOnly));
    rig.pass(s(20));
    assert_eq!((rig.stats().dead, rig.stats().ready), (0, 4));
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 3 }));
    rig.pass(Duration::ZERO);
    assert!(rig.lease(10).is_empty());
    assert_eq!((rig.stats().dead, rig.stats().ready), (3, 1));
    rig.input(Input::Storage(StorageState::Roomy));
    rig.pass(Duration::ZERO);
    assert_eq!((rig.stats().dead, rig.stats().ready), (4, 0));
}
