//! Why a queue hands out nothing: a burst of deaths, full dead letters, a full disk, an operator.

use crate::rig::{QUEUE, Rig, complete, dead, message, name, retry, s, target};
use millpond_core::command::{CallOutcome, Command, Input, Reply, StorageState};
use millpond_core::notice::Notice;
use millpond_core::settings::{DeadLetterSettings, QueueSettings, RetrySettings};
use millpond_core::stats::Held;
use std::time::Duration;

fn bursting(deaths: u32) -> QueueSettings {
    QueueSettings { dead_burst: deaths, ..QueueSettings::default() }
}

fn small(max_messages: u64) -> QueueSettings {
    let owner = Some("team-orders".to_owned());
    let dead_letter = DeadLetterSettings { max_messages, owner, ..DeadLetterSettings::default() };
    QueueSettings { dead_letter, ..QueueSettings::default() }
}

fn die(rig: &mut Rig, count: usize) {
    for _ in 0..count {
        let receipt = rig.lease_one();
        rig.settle(receipt, dead()).unwrap();
    }
}

#[test]
fn so_many_deaths_in_a_row_pause_the_queue_until_somebody_resumes_it() {
    let mut rig = Rig::new(bursting(3));
    rig.fill(10);
    die(&mut rig, 3);
    assert!(rig.lease(1).is_empty(), "nothing more dies");
    assert_eq!((rig.stats().held, rig.stats().paused), (Some(Held::DeadBurst), true));
    assert_eq!(rig.notices, [Notice::DeadBurst { queue: name(QUEUE), deaths: 3, owner: None }]);
    rig.restart();
    assert_eq!(rig.stats().held, Some(Held::DeadBurst), "a restart is no mending");
    rig.pause(false);
    assert_eq!(rig.stats().held, None);
    die(&mut rig, 2);
    assert_eq!(rig.stats().held, None, "it is counted anew");
    die(&mut rig, 1);
    assert_eq!((rig.stats().held, rig.notices.len()), (Some(Held::DeadBurst), 2));
    rig.restart();
    rig.pause(true);
    assert_eq!(rig.stats().held, Some(Held::Paused), "an operator has taken over");
    rig.restart();
    assert_eq!(rig.stats().held, Some(Held::Paused));
}

#[test]
fn one_success_ends_the_row_and_failures_that_are_tried_again_do_not_count() {
    let mut rig = Rig::new(bursting(3));
    rig.fill(10);
    die(&mut rig, 2);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry()).unwrap();
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    die(&mut rig, 2);
    assert_eq!(rig.stats().held, None);
}

#[test]
fn work_whose_attempts_are_used_up_counts_and_what_expired_does_not() {
    let once = RetrySettings { max_attempts: 1, ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: once, retention: s(100), ..bursting(3) });
    rig.fill(5);
    rig.pass(s(100));
    assert_eq!((rig.stats().dead, rig.stats().held), (5, None));
    rig.fill(5);
    for _ in 0..3 {
        let receipt = rig.lease_one();
        rig.settle(receipt, retry()).unwrap();
    }
    assert_eq!(rig.stats().held, Some(Held::DeadBurst));
}

#[test]
fn a_target_that_rejects_everything_stops_being_called_and_what_is_under_way_still_ends() {
    let mut rig = Rig::pushing(target(4), bursting(2));
    rig.fill(10);
    let calls = rig.take_calls();
    for call in calls {
        rig.end_call(call.receipt, CallOutcome::Dead { failure: crate::rig::failure() });
    }
    assert_eq!(
        (rig.take_calls().len(), rig.stats().dead),
        (1, 4),
        "one had gone out before the second death"
    );
    assert_eq!(rig.notices.len(), 1);
    rig.pause(false);
    assert_eq!(rig.take_calls().len(), 3);
}

#[test]
fn zero_never_pauses() {
    let mut rig = Rig::new(bursting(0));
    rig.fill(50);
    die(&mut rig, 50);
    assert_eq!(rig.stats().held, None);
}

#[test]
fn full_dead_letters_hold_the_queue_and_say_so_once() {
    let mut rig = Rig::new(small(10));
    rig.fill(30);
    die(&mut rig, 10);
    let full =
        Notice::DeadLettersFull { queue: name(QUEUE), kept: 10, owner: Some("team-orders".to_owned()) };
    assert_eq!((rig.stats().held, rig.stats().paused), (Some(Held::DeadLettersFull), false));
    assert_eq!(rig.notices, [full]);
    let seqs: Vec<_> = (1..=2).map(millpond_core::identity::Seq).collect();
    rig.delete_dead(seqs[0]).unwrap();
    assert_eq!(rig.stats().held, None);
    die(&mut rig, 1);
    assert_eq!((rig.stats().held, rig.notices.len()), (Some(Held::DeadLettersFull), 1), "the same episode");
    for seq in 2..=6 {
        rig.delete_dead(millpond_core::identity::Seq(seq)).unwrap();
    }
    die(&mut rig, 5);
    assert_eq!(rig.notices.len(), 2, "another one");
    rig.restart();
    assert_eq!((rig.stats().held, rig.notices.len()), (Some(Held::DeadLettersFull), 3), "and at every start");
}

#[test]
fn a_full_disk_holds_every_queue() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.input(Input::Storage(StorageState::NoEnqueue));
    assert_eq!(rig.stats().held, None, "what is there goes out");
    rig.input(Input::Storage(StorageState::SettleOnly));
    assert_eq!(rig.stats().held, Some(Held::StorageFull));
    rig.input(Input::Storage(StorageState::Roomy));
    assert_eq!(rig.stats().held, None);
}

#[test]
fn the_pause_is_written_behind_the_death_that_caused_it_and_holds_at_once() {
    let mut rig = Rig::new(bursting(1));
    rig.fill(2);
    let receipt = rig.lease_one();
    let before = rig.log.len();
    rig.settle(receipt, dead()).unwrap();
    assert!(rig.lease(1).is_empty());
    let log = rig.log.clone();
    assert_eq!(log.len(), before + 2, "the death, and the pause");
    for (kept, held) in [(before, None), (before + 1, None), (before + 2, Some(Held::DeadBurst))] {
        rig.log = log[..kept].to_vec();
        rig.durable = kept;
        rig.restart();
        assert_eq!((rig.stats().held, rig.stats().dead), (held, u64::from(kept > before)));
    }
    rig.enqueue(message()).unwrap();
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pause(false);
    rig.pass(Duration::ZERO);
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
}
