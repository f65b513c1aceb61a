//! Why a queue hands out nothing: a burst of deaths, full dead letters, a full disk, an operator.

use crate::rig::{QUEUE, Rig, complete, dead as rejected, message, name, retry, s, target};
use bytes::Bytes;
use millpond_core::command::{CallOutcome, Command, EnqueueError, Input, Reply, SettleOutcome, StorageState};
use millpond_core::identity::Seq;
use millpond_core::message::{Content, Failure, Phase};
use millpond_core::notice::Notice;
use millpond_core::rate::Rate;
use millpond_core::replay::{ReplayState, ReplayWhich, ReplayWish, WaitsFor};
use millpond_core::settings::{DeadLetterSettings, OnExpiry, Overflow, QueueSettings, RetrySettings};
use millpond_core::stats::Held;
use std::sync::Arc;
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
        rig.settle(receipt, rejected()).unwrap();
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
    let seqs: Vec<_> = (1..=2).map(Seq).collect();
    rig.delete_dead(seqs[0]).unwrap();
    assert_eq!(rig.stats().held, None);
    die(&mut rig, 1);
    assert_eq!((rig.stats().held, rig.notices.len()), (Some(Held::DeadLettersFull), 1), "the same episode");
    for seq in 2..=6 {
        rig.delete_dead(Seq(seq)).unwrap();
    }
    die(&mut rig, 5);
    assert_eq!(rig.notices.len(), 2, "another one");
    rig.restart();
    assert_eq!((rig.stats().held, rig.notices.len()), (Some(Held::DeadLettersFull), 3), "and at every start");
}

/// Holds a queue, and lets it go again.
fn hold(rig: &mut Rig, held: Held, begins: bool) {
    match held {
        Held::Paused => rig.pause(begins),
        Held::DeadBurst | Held::DeadLettersFull if begins => die(rig, 2),
        Held::DeadBurst => rig.pause(false),
        Held::DeadLettersFull => {
            let list = Command::List { queue: name(QUEUE), phase: Some(Phase::Dead), after: None, limit: 1 };
            let Reply::Messages(Ok((dead, _))) = rig.ask_now(list) else { panic!("listed") };
            rig.delete_dead(dead[0].message.seq).unwrap();
        }
        Held::CallbacksFull => unreachable!("the tests of callbacks hold for it"),
        Held::StorageFull if begins => rig.input(Input::Storage(StorageState::SettleOnly)),
        Held::StorageFull => rig.input(Input::Storage(StorageState::Roomy)),
        Held::BreakerOpen => unreachable!("only a target has one: see breaker.rs"),
    }
}

#[test]
fn whatever_holds_a_queue_nothing_is_promised_nor_refused_for_its_wait() {
    for held in Held::ALL.into_iter().filter(|held| !matches!(held, Held::BreakerOpen | Held::CallbacksFull))
    {
        let max_messages = if held == Held::DeadLettersFull { 2 } else { 9 };
        let dead_letter = DeadLetterSettings { max_messages, ..DeadLetterSettings::default() };
        let mut rig = Rig::new(QueueSettings {
            concurrency: Some(1),
            expected_service_time: Some(s(1)),
            max_wait: Some(s(5)),
            dead_burst: if held == Held::DeadBurst { 2 } else { 0 },
            dead_letter,
            ..QueueSettings::default()
        });
        let seqs = rig.fill(6);
        assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
        hold(&mut rig, held, true);
        let last = *seqs.last().unwrap();
        assert_eq!(rig.stats().held, Some(held));
        assert_eq!(rig.status(last).unwrap().promise, None, "{held:?}: of what waits");
        assert_eq!((rig.stats().predicted_wait, rig.stats().drain), (None, None), "{held:?}");
        if held != Held::StorageFull {
            for _ in 0..9 {
                let accepted = rig.enqueue(message());
                assert!(accepted.is_ok_and(|accepted| accepted.promise.is_none()), "{held:?}: of what comes");
            }
        }
        hold(&mut rig, held, false);
        assert_eq!(rig.stats().held, None);
        assert!(rig.status(last).unwrap().promise.is_some(), "{held:?}: is over");
        let waits = if held == Held::StorageFull { 6 } else { 15 };
        assert!(rig.stats().predicted_wait.unwrap() <= s(waits), "{held:?}");
        assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })), "{held:?}");
    }
}

#[test]
fn whatever_holds_a_queue_it_teaches_nothing_about_its_workers() {
    for held in Held::ALL.into_iter().filter(|held| !matches!(held, Held::BreakerOpen | Held::CallbacksFull))
    {
        let max_messages = if held == Held::DeadLettersFull { 2 } else { 9 };
        let dead_letter = DeadLetterSettings { max_messages, ..DeadLetterSettings::default() };
        let dead_burst = if held == Held::DeadBurst { 2 } else { 0 };
        let mut rig = Rig::new(QueueSettings { dead_burst, dead_letter, ..QueueSettings::default() });
        rig.fill(40);
        for _ in 0..30 {
            let receipt = rig.lease_one();
            rig.pass(s(1));
            rig.settle(receipt, complete()).unwrap();
        }
        let before = rig.stats().capacity_per_second;
        assert!((0.9..1.1).contains(&before), "{before}");
        hold(&mut rig, held, true);
        if held != Held::StorageFull {
            rig.fill(1);
        }
        rig.pass(s(600));
        hold(&mut rig, held, false);
        for _ in 0..2 {
            let receipt = rig.lease_one();
            rig.pass(s(1));
            rig.settle(receipt, complete()).unwrap();
        }
        let after = rig.stats().capacity_per_second;
        assert!((0.9..1.1).contains(&after), "{held:?}: {after}");
    }
}

/// A queue with room for so many messages, full, and with dead letters that are full too.
fn full_of_both(settings: QueueSettings, room: u64, dead: usize) -> Rig {
    let settings = QueueSettings { max_messages: Some(room), dead_burst: 0, ..settings };
    let mut rig = Rig::new(settings);
    rig.fill(dead);
    for leased in rig.lease(dead) {
        rig.settle(leased.receipt, rejected()).unwrap();
    }
    rig.fill(usize::try_from(room).unwrap());
    let full = (rig.stats().dead, rig.stats().ready, rig.stats().held);
    assert_eq!(full, (dead as u64, room, Some(Held::DeadLettersFull)));
    rig
}

#[test]
fn a_replay_moves_a_queue_again_that_is_full_and_full_of_dead_letters_too() {
    let mut rig = full_of_both(small(3), 5, 3);
    rig.replay(ReplayWhich::All).unwrap();
    assert_eq!((rig.stats().held, rig.stats().ready, rig.stats().dead), (None, 6, 2));
    rig.pass(s(5));
    assert_eq!((rig.stats().ready, rig.stats().dead), (6, 2), "one beyond the bound is enough");
    assert_eq!(rig.replay_list().waits_for, Some(WaitsFor::Room));
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })), "new work finds no room");
    for left in [5, 5, 5, 4] {
        let receipt = rig.lease_one();
        rig.settle(receipt, complete()).unwrap();
        rig.pass(s(1));
        assert_eq!(rig.stats().ready, left, "then it goes on within the bound");
    }
    assert_eq!((rig.replays()[0].state, rig.stats().dead), (ReplayState::Done, 0));
}

#[test]
fn what_dies_again_in_a_queue_that_is_full_of_both_never_makes_it_grow() {
    let mut rig = full_of_both(small(3), 5, 3);
    rig.replay(ReplayWhich::All).unwrap();
    for _ in 0..2 {
        die(&mut rig, 1);
        assert_eq!((rig.stats().ready, rig.stats().dead), (6, 2), "for each that dies, one goes back");
    }
    assert_eq!(rig.replays()[0].state, ReplayState::Done, "what died since is not meant");
    die(&mut rig, 1);
    assert_eq!((rig.stats().held, rig.stats().ready, rig.stats().dead), (Some(Held::DeadLettersFull), 5, 3));
    rig.replay(ReplayWhich::All).unwrap();
    // Of those that are out, more can die than there is room for.
    let leased = rig.lease(6);
    for one in leased {
        rig.settle(one.receipt, rejected()).unwrap();
    }
    rig.pass(s(5));
    let stats = rig.stats();
    assert_eq!((stats.ready + stats.dead, stats.leased), (8, 0), "nothing is lost");
    assert_eq!(stats.held, Some(Held::DeadLettersFull), "its last one has gone back");
}

#[test]
fn a_replay_of_a_queue_that_is_full_of_both_keeps_to_its_pace_and_to_the_disk() {
    let mut rig = full_of_both(small(3), 6, 6);
    let rate = Some(Rate { events: 1, per: s(10) });
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: u64::MAX }));
    rig.start_replay(ReplayWish { rate, ..ReplayWish::plain(ReplayWhich::All) }, false).unwrap();
    rig.pass(s(60));
    assert_eq!((rig.stats().dead, rig.replay_list().waits_for), (6, Some(WaitsFor::Disk)));
    rig.input(Input::Storage(StorageState::Roomy));
    for dead in [5, 4, 3] {
        let held = Some(Held::DeadLettersFull);
        assert_eq!((rig.stats().dead, rig.stats().held), (dead, held));
        assert_eq!(rig.replay_list().waits_for, Some(WaitsFor::Pace));
        rig.pass(s(10));
    }
    rig.pass(s(60));
    assert_eq!((rig.stats().dead, rig.stats().held), (2, None), "then within the bound");
    assert_eq!((rig.stats().ready, rig.replay_list().waits_for), (10, Some(WaitsFor::Room)));
}

#[test]
fn those_at_the_door_of_a_queue_that_is_full_of_both_wait_until_it_moves() {
    let mut rig =
        full_of_both(QueueSettings { overflow: Overflow::Block, block_for: s(60), ..small(3) }, 5, 3);
    let waiting = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    rig.replay(ReplayWhich::All).unwrap();
    assert_eq!((rig.stats().held, rig.stats().ready, rig.stats().blocked), (None, 6, 1));
    for _ in 0..2 {
        assert!(rig.answer(waiting).is_none());
        let receipt = rig.lease_one();
        rig.settle(receipt, complete()).unwrap();
    }
    assert!(matches!(rig.answer(waiting), Some(Reply::Enqueued(Ok(answers))) if answers[0].is_ok()));
}

#[test]
fn a_full_disk_lets_out_what_it_has_room_for_and_no_more() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(6);
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 3 }));
    assert_eq!(rig.lease(2).len(), 2);
    assert_eq!(rig.lease(2).len(), 1);
    assert!(rig.lease(2).is_empty());
    assert_eq!(rig.pond.storage(), StorageState::NoEnqueue { hand_outs: 0 });
    let waiting = rig.ask(Command::Lease(Rig::wish(5, s(60))));
    assert!(rig.answer(waiting).is_none());
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 1 }));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
}

#[test]
fn where_room_is_scarce_everything_is_taken_in_and_as_much_goes_out_or_expires_as_there_is_room_for() {
    let mut rig =
        Rig::new(QueueSettings { retention: s(60), on_expiry: OnExpiry::Drop, ..QueueSettings::default() });
    rig.fill(4);
    rig.input(Input::Storage(StorageState::Scarce { hand_outs: 1 }));
    rig.fill(1);
    let receipt = rig.lease_one();
    assert!(rig.lease(2).is_empty());
    assert_eq!(rig.stats().held, None, "the next settlement may make room");
    let result = Some(Arc::new(Content { body: Bytes::from_static(b"done"), ..Content::default() }));
    rig.settle(receipt, SettleOutcome::Complete { result }).unwrap();
    assert!(rig.status(receipt.seq).unwrap().message.result.is_some(), "results are kept");
    rig.pass(s(61));
    assert_eq!(rig.stats().ready, 4, "what is overdue waits for room");
    rig.input(Input::Storage(StorageState::Scarce { hand_outs: 3 }));
    rig.input(Input::Tick);
    assert_eq!(rig.stats().totals.expired, 3);
    rig.input(Input::Storage(StorageState::Roomy));
    rig.input(Input::Tick);
    assert_eq!(rig.stats().totals.expired, 4);
}

#[test]
fn on_a_full_disk_the_reason_of_a_failure_is_kept_in_brief() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 3 }));
    let failure = Some(Failure::new("worker", &"ä".repeat(400), Some(500)));
    rig.settle(receipt, SettleOutcome::Dead { failure }).unwrap();
    let kept = rig.status(receipt.seq).unwrap().message.history[0].failure.clone().unwrap();
    assert_eq!((kept.kind.as_str(), kept.message.as_str()), ("worker", "ä".repeat(64).as_str()));
    assert_eq!(kept.http_status, Some(500));
}

#[test]
fn a_full_disk_holds_every_queue() {
    let mut rig = Rig::new(QueueSettings::default());
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: u64::MAX }));
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
    rig.settle(receipt, rejected()).unwrap();
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

#[test]
fn what_expires_while_dead_letters_are_full_stays_and_counts_until_there_is_room() {
    let kept = DeadLetterSettings { max_messages: 3, ..DeadLetterSettings::default() };
    let mut rig = Rig::new(QueueSettings {
        retention: s(10),
        max_messages: Some(10),
        dead_letter: kept,
        ..QueueSettings::default()
    });
    for stay in [7, 10, 10, 10] {
        while rig.enqueue(message()).is_ok() {}
        rig.pass(s(11));
        let stats = rig.stats();
        assert_eq!((stats.dead, stats.ready), (3, stay), "what has expired stays, and counts");
    }
    assert!(rig.lease(1).is_empty(), "expired work is not handed out");
    rig.restart();
    assert_eq!((rig.stats().dead, rig.stats().ready), (3, 10));
    for gone in 1..=3 {
        rig.delete_dead(Seq(gone)).unwrap();
        rig.pass(Duration::ZERO);
        assert_eq!((rig.stats().dead, rig.stats().ready), (3, 10 - gone), "the next one takes its place");
    }
    rig.cancel(Seq(13)).unwrap();
    for seq in 4..=12 {
        rig.delete_dead(Seq(seq)).unwrap();
        rig.pass(Duration::ZERO);
    }
    assert_eq!((rig.stats().dead, rig.stats().ready), (0, 0));
    rig.fill(1);
    assert_eq!(rig.lease(1).len(), 1, "and the queue goes on");
}
