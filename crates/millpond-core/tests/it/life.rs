//! Acceptance, visibility, duplicates, delay, time to live, withdrawal, and what is kept afterwards.

use crate::rig::{QUEUE, Rig, complete, dead, keyed, message, ms, name, release, retry_in, s};
use bytes::Bytes;
use millpond_core::command::{
    CancelError, Command, DefineError, EnqueueError, Input, LeaseRequest, LookupError, NewMessage,
    QueueError, Reply, SettleOutcome, Settlement, StorageState,
};
use millpond_core::identity::Seq;
use millpond_core::message::{Content, DeadReason, Phase};
use millpond_core::record::Record;
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::{DELAY_MAX, OnExpiry, QueueSettings};
use millpond_core::time::Now;
use std::sync::Arc;
use std::time::Duration;

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

#[test]
fn nothing_is_answered_or_handed_out_before_it_is_durable() {
    let mut rig = rig();
    rig.hold_durability = true;
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    let enqueue = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    let status = rig.ask(Command::Status { seq: Seq(1), wait: None });
    assert!(rig.answer(enqueue).is_none() && rig.answer(waiting).is_none() && rig.answer(status).is_none());
    rig.make_durable();
    assert!(matches!(rig.answer(enqueue), Some(Reply::Enqueued(Ok(_)))));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
    assert!(matches!(rig.answer(status), Some(Reply::Status(Ok(_)))));
}

#[test]
fn what_is_on_its_way_back_is_counted_at_every_moment() {
    let mut rig = rig();
    let count = |rig: &mut Rig| {
        let stats = rig.stats();
        stats.ready + stats.delayed + stats.leased + stats.backoff + stats.dead
    };
    rig.fill(4);
    let leased = rig.lease(3);
    rig.hold_durability = true;
    let returned = [release(), retry_in(Duration::ZERO)];
    let settlements =
        leased.iter().zip(returned).map(|(leased, outcome)| Settlement { receipt: leased.receipt, outcome });
    rig.ask(Command::Settle(settlements.collect()));
    assert_eq!(count(&mut rig), 4, "two come back as their holders say");
    rig.pass(s(31));
    assert_eq!((count(&mut rig), rig.stats().leased), (4, 0), "one because its lease is over");
    rig.restart();
    rig.pass(s(31));
    assert_eq!(count(&mut rig), 4);
    rig.hold_durability = false;
    rig.pass(Duration::ZERO);
    for leased in rig.lease(4) {
        rig.settle(leased.receipt, dead()).unwrap();
    }
    rig.hold_durability = true;
    rig.ask_for_replay(ReplayWhich::All);
    assert_eq!(count(&mut rig), 4, "dead letters go back");
}

#[test]
fn a_duplicate_of_an_enqueue_in_flight_is_answered_with_it() {
    let mut rig = rig();
    rig.hold_durability = true;
    let first = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![keyed(1, 1)] });
    let second = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![keyed(1, 1)] });
    assert!(rig.answer(first).is_none() && rig.answer(second).is_none());
    rig.make_durable();
    let [Some(Reply::Enqueued(Ok(first))), Some(Reply::Enqueued(Ok(second)))] =
        [rig.answer(first), rig.answer(second)]
    else {
        panic!("both are answered");
    };
    let (first, second) = (first[0].clone().unwrap(), second[0].clone().unwrap());
    assert_eq!(first.seq, second.seq);
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(rig.stats().ready, 1);
}

#[test]
fn a_message_returned_twice_before_durability_stays_hidden_until_its_last_return_is_durable() {
    let settings = QueueSettings { retention: s(10), ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    let returned = rig.ask(Command::Settle(vec![Settlement { receipt, outcome: retry_in(s(60)) }]));
    let durable_with_return = rig.log.len();
    rig.pass(s(10));
    assert_eq!(rig.log.len(), durable_with_return + 1, "it expired");
    rig.ask_for_replay(ReplayWhich::These(vec![seq]));
    rig.make_durable_up_to(durable_with_return);
    assert!(rig.answer(returned).is_some());
    assert!(rig.lease(1).is_empty(), "the replay is not durable yet");
    rig.make_durable();
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn the_same_key_and_payload_is_the_same_message_and_another_payload_a_mismatch() {
    let mut rig = rig();
    let first = rig.enqueue(keyed(1, 1)).unwrap();
    let again = rig.enqueue(keyed(1, 1)).unwrap();
    assert_eq!((again.seq, again.duplicate), (first.seq, true));
    assert_eq!(rig.enqueue(keyed(1, 2)).unwrap_err(), EnqueueError::IdempotencyMismatch);
    assert!(!rig.enqueue(keyed(2, 1)).unwrap().duplicate);
}

#[test]
fn a_key_lives_as_long_as_the_status_of_its_message() {
    let mut rig = rig();
    let seq = rig.enqueue(keyed(1, 1)).unwrap().seq;
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.pass(Duration::from_hours(1) - ms(1));
    let again = rig.enqueue(keyed(1, 1)).unwrap();
    assert_eq!((again.seq, again.phase), (seq, Phase::Succeeded));
    rig.pass(ms(1));
    assert_eq!(rig.status(seq).unwrap_err(), LookupError::Forgotten);
    assert_eq!(rig.forgotten, [seq]);
    assert!(!rig.enqueue(keyed(1, 1)).unwrap().duplicate);
}

#[test]
fn a_key_that_was_used_again_after_its_time_still_works_after_a_restart() {
    let mut rig = rig();
    rig.enqueue(keyed(1, 1)).unwrap();
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.pass(Duration::from_hours(2));
    let second = rig.enqueue(keyed(1, 1)).unwrap();
    assert!(!second.duplicate);
    rig.restart();
    rig.pass(s(1));
    let again = rig.enqueue(keyed(1, 1)).unwrap();
    assert_eq!((again.seq, again.duplicate), (second.seq, true));
}

#[test]
fn a_delayed_message_fires_on_an_idle_queue() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { delay: Duration::from_hours(48), ..message() }).unwrap().seq;
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pass(s(60));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.is_empty()));
    rig.pass(Duration::from_hours(48) - s(90));
    assert_eq!(rig.phase(seq), Phase::Delayed);
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pass(s(30) - ms(1));
    assert!(rig.answer(waiting).is_none(), "not before it is due");
    rig.pass(ms(1));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
}

#[test]
fn delays_and_times_to_live_out_of_range_are_refused() {
    let mut rig = rig();
    let over = NewMessage { delay: DELAY_MAX + s(1), ..message() };
    assert_eq!(rig.enqueue(over).unwrap_err(), EnqueueError::DelayTooLong);
    let retention = QueueSettings::default().retention;
    for ttl in [Duration::ZERO, retention + s(1)] {
        let error = rig.enqueue(NewMessage { ttl: Some(ttl), ..message() }).unwrap_err();
        assert_eq!(error, EnqueueError::TtlOutOfRange { max: retention });
    }
    let within = NewMessage { delay: DELAY_MAX, ttl: Some(DELAY_MAX + s(1)), ..message() };
    let longest = QueueSettings { retention: DELAY_MAX + s(1), ..QueueSettings::default() };
    assert!(Rig::new(longest).enqueue(within).is_ok(), "the bounds themselves are in range");
    let late = NewMessage { delay: s(10), ttl: Some(s(10)), ..message() };
    assert_eq!(rig.enqueue(late).unwrap_err(), EnqueueError::DelayBeyondTtl);
    assert_eq!(rig.stats().totals.refused(), 0, "the caller's mistakes are no refusals");
    assert!(rig.log.iter().all(|record| record.anchors().is_none()), "refused was never stored");
}

#[test]
fn expired_work_is_dead_lettered_and_reaches_nobody() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { ttl: Some(s(5)), ..message() }).unwrap().seq;
    rig.pass(s(5));
    assert!(rig.lease(1).is_empty());
    let status = rig.status(seq).unwrap();
    assert_eq!((status.message.phase, status.message.dead_reason), (Phase::Dead, Some(DeadReason::Expired)));
    assert_eq!(status.message.ttl_micros(), 5_000_000);
    assert_eq!((rig.stats().totals.expired, rig.stats().totals.dead), (1, 1));
}

#[test]
fn expired_work_is_dropped_where_the_queue_says_so() {
    let mut rig = Rig::new(QueueSettings { on_expiry: OnExpiry::Drop, ..QueueSettings::default() });
    let seq = rig.enqueue(NewMessage { ttl: Some(s(5)), ..message() }).unwrap().seq;
    rig.pass(s(5));
    assert_eq!(rig.phase(seq), Phase::Expired);
    assert_eq!((rig.stats().totals.expired, rig.stats().totals.dead), (1, 0));
}

#[test]
fn a_leased_message_may_be_completed_beyond_its_time_to_live_but_not_retried() {
    let mut rig = rig();
    let [first, second] =
        [(); 2].map(|()| rig.enqueue(NewMessage { ttl: Some(s(5)), ..message() }).unwrap().seq);
    let receipts = [rig.lease_one(), rig.lease_one()];
    rig.pass(s(6));
    assert_eq!(rig.settle(receipts[0], complete()), Ok(()));
    assert_eq!(rig.settle(receipts[1], retry_in(s(1))), Ok(()));
    assert_eq!(rig.phase(first), Phase::Succeeded);
    assert_eq!(rig.status(second).unwrap().message.dead_reason, Some(DeadReason::Expired));
}

#[test]
fn only_a_message_that_nobody_has_can_be_withdrawn() {
    let mut rig = rig();
    let seqs = rig.fill(2);
    let receipt = rig.lease_one();
    assert_eq!(rig.cancel(seqs[0]).unwrap_err(), CancelError::NotCancellable(Phase::Leased));
    assert_eq!(rig.cancel(seqs[1]).unwrap().message.phase, Phase::Cancelled);
    assert_eq!(rig.cancel(seqs[1]).unwrap().message.phase, Phase::Cancelled, "twice is once");
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(rig.cancel(seqs[0]).unwrap_err(), CancelError::NotCancellable(Phase::Succeeded));
    assert_eq!(rig.cancel(Seq(99)).unwrap_err(), CancelError::Lookup(LookupError::NeverIssued));
    assert!(rig.lease(1).is_empty());
    assert_eq!(rig.stats().totals.cancelled, 1);
}

#[test]
fn a_result_is_kept_up_to_its_bound_and_told_with_the_status() {
    let mut rig = Rig::new(QueueSettings { result_max_bytes: 4, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    let result = Content {
        content_type: "text/plain".into(),
        body: Bytes::from_static(b"abcdefgh"),
        ..Content::default()
    };
    rig.settle(receipt, SettleOutcome::Complete { result: Some(Arc::new(result)) }).unwrap();
    assert_eq!(rig.status(seq).unwrap().message.result, Some(("text/plain".to_owned(), 4)));
}

#[test]
fn whoever_waits_for_the_end_hears_of_it_once_it_is_durable() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let waiting = rig.ask(Command::Status { seq, wait: Some(s(60)) });
    let receipt = rig.lease_one();
    assert!(rig.answer(waiting).is_none());
    rig.settle(receipt, complete()).unwrap();
    let Some(Reply::Status(Ok(status))) = rig.answer(waiting) else { panic!("answered") };
    assert_eq!(status.message.phase, Phase::Succeeded);
}

#[test]
fn whoever_waits_for_the_end_in_vain_is_told_where_the_message_stands() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let waiting = rig.ask(Command::Status { seq, wait: Some(s(3600)) });
    rig.pass(s(60));
    let Some(Reply::Status(Ok(status))) = rig.answer(waiting) else { panic!("waits are bounded") };
    assert_eq!(status.message.phase, Phase::Ready);
}

#[test]
fn whoever_waits_for_the_end_hears_of_it_though_others_have_left_or_given_up() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let ask = |wait| Command::Status { seq, wait: Some(wait) };
    let (gone, short, long) = (rig.ask(ask(s(60))), rig.ask(ask(s(10))), rig.ask(ask(s(60))));
    rig.input(Input::Abandon(gone));
    rig.pass(s(20));
    assert!(rig.answer(short).is_some() && rig.answer(long).is_none());
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    assert!(
        matches!(rig.answer(long), Some(Reply::Status(Ok(status))) if status.message.phase == Phase::Succeeded)
    );
    assert!(rig.answer(gone).is_none());
    let late = rig.ask(ask(s(60)));
    assert!(rig.answer(late).is_some(), "what is over is told at once");
}

#[test]
fn a_hundred_may_wait_for_the_end_of_one_message_and_further_ones_are_answered_at_once() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    for _ in 0..100 {
        let waiting = rig.ask(Command::Status { seq, wait: Some(s(60)) });
        assert!(rig.answer(waiting).is_none());
    }
    let further = rig.ask(Command::Status { seq, wait: Some(s(60)) });
    assert!(rig.answer(further).is_some());
}

#[test]
fn a_status_and_a_withdrawal_are_told_once_what_they_tell_is_durable() {
    let mut rig = rig();
    rig.hold_durability = true;
    rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    let ask = |rig: &mut Rig| rig.ask(Command::Status { seq: Seq(1), wait: None });
    let accepted = ask(&mut rig);
    assert!(rig.answer(accepted).is_none());
    rig.make_durable();
    assert!(
        matches!(rig.answer(accepted), Some(Reply::Status(Ok(status))) if status.message.phase == Phase::Ready)
    );
    let withdrawn = rig.ask(Command::Cancel(Seq(1)));
    let seen = ask(&mut rig);
    assert!(rig.answer(withdrawn).is_none() && rig.answer(seen).is_none());
    rig.make_durable();
    assert!(matches!(rig.answer(withdrawn), Some(Reply::Cancelled(Ok(_)))));
    assert!(
        matches!(rig.answer(seen), Some(Reply::Status(Ok(status))) if status.message.phase == Phase::Cancelled)
    );
}

#[test]
fn a_number_that_was_given_is_told_from_one_that_was_not() {
    let mut rig = Rig::new(QueueSettings { result_retention: Duration::ZERO, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    assert!(rig.pond.needs(seq));
    assert_eq!(rig.log.last().and_then(Record::anchors), Some(seq), "its newest full copy");
    rig.cancel(seq).unwrap();
    rig.pass(Duration::ZERO);
    assert!(!rig.pond.needs(seq));
    assert_eq!(rig.status(seq).unwrap_err(), LookupError::Forgotten);
    assert_eq!(rig.status(Seq(seq.0 + 1)).unwrap_err(), LookupError::NeverIssued);
}

#[test]
fn a_full_disk_refuses_new_work_and_lets_settlements_through() {
    let mut rig = rig();
    rig.fill(2);
    let receipt = rig.lease_one();
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 9 }));
    for _ in 0..2 {
        assert_eq!(rig.enqueue(message()).unwrap_err(), EnqueueError::StorageFull);
    }
    let totals = rig.stats().totals;
    assert_eq!((totals.refused_other, totals.refused()), (2, 2));
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
    rig.input(Input::Storage(StorageState::SettleOnly));
    assert!(rig.lease(1).is_empty());
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.input(Input::Storage(StorageState::Roomy));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
    assert!(rig.enqueue(message()).is_ok());
}

#[test]
fn draining_takes_nothing_new_hands_nothing_out_and_lets_work_finish() {
    let mut rig = rig();
    rig.fill(2);
    let receipt = rig.lease_one();
    rig.input(Input::Drain);
    assert_eq!(rig.enqueue(message()).unwrap_err(), EnqueueError::Draining);
    assert!(rig.lease(1).is_empty());
    assert!(!rig.pond.is_idle());
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
    assert!(rig.pond.is_idle());
    assert_eq!(rig.stats().ready, 1);
}

#[test]
fn draining_answers_all_who_wait() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { delay: s(100), ..message() }).unwrap().seq;
    let worker = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    let watcher = rig.ask(Command::Status { seq, wait: Some(s(60)) });
    rig.input(Input::Drain);
    assert!(matches!(rig.answer(worker), Some(Reply::Leased(Ok(leased))) if leased.is_empty()));
    assert!(matches!(rig.answer(watcher), Some(Reply::Status(Ok(_)))));
}

#[test]
fn whoever_would_wait_for_work_once_it_drains_or_wants_none_is_answered_at_once() {
    let mut rig = rig();
    let for_none = rig.ask(Command::Lease(Rig::wish(0, s(60))));
    assert!(matches!(rig.answer(for_none), Some(Reply::Leased(Ok(leased))) if leased.is_empty()));
    rig.input(Input::Drain);
    let late = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    assert!(matches!(rig.answer(late), Some(Reply::Leased(Ok(leased))) if leased.is_empty()));
}

#[test]
fn a_queue_in_use_cannot_be_deleted_and_an_empty_one_can() {
    let mut rig = rig();
    let define = || Command::Define { queue: name("extra"), settings: Box::new(QueueSettings::default()) };
    assert!(matches!(rig.ask_now(define()), Reply::Defined(Ok(true))));
    assert!(matches!(rig.ask_now(define()), Reply::Defined(Ok(false))));
    let seq = rig.enqueue_to("extra", message()).unwrap().seq;
    let in_use = rig.ask_now(Command::Delete(name("extra")));
    assert!(matches!(in_use, Reply::Deleted(Err(DefineError::InUse { unfinished: 1, dead: 0 }))));
    rig.cancel(seq).unwrap();
    let letter = rig.enqueue_to("extra", message()).unwrap().seq;
    let Reply::Leased(Ok(leased)) =
        rig.ask_now(Command::Lease(LeaseRequest { queue: name("extra"), ..Rig::wish(1, s(0)) }))
    else {
        panic!("leased")
    };
    rig.settle(leased[0].receipt, dead()).unwrap();
    let in_use = rig.ask_now(Command::Delete(name("extra")));
    assert!(matches!(in_use, Reply::Deleted(Err(DefineError::InUse { unfinished: 0, dead: 1 }))));
    rig.ask_now(Command::DeleteDead { queue: name("extra"), seq: letter });
    assert!(matches!(rig.ask_now(Command::Delete(name("extra"))), Reply::Deleted(Ok(()))));
    assert_eq!(rig.enqueue_to("extra", message()).unwrap_err(), EnqueueError::UnknownQueue);
    assert_eq!(rig.phase(seq), Phase::Cancelled, "statuses outlive the queue");
    rig.restart();
    assert_eq!(rig.enqueue_to("extra", message()).unwrap_err(), EnqueueError::UnknownQueue);
    assert!(matches!(rig.ask_now(define()), Reply::Defined(Ok(true))));
    let declared = rig.ask_now(Command::Delete(name(QUEUE)));
    assert!(matches!(declared, Reply::Deleted(Err(DefineError::Declared))));
}

#[test]
fn workers_that_wait_at_a_deleted_queue_are_told() {
    let mut rig = rig();
    let settings = Box::new(QueueSettings::default());
    rig.ask_now(Command::Define { queue: name("extra"), settings });
    let wish = LeaseRequest { queue: name("extra"), ..Rig::wish(1, s(60)) };
    let waiting = rig.ask(Command::Lease(wish));
    rig.ask_now(Command::Delete(name("extra")));
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Err(QueueError::Unknown)))));
}

#[test]
fn a_list_looks_without_consuming_and_pages_without_gaps() {
    let mut rig = rig();
    let seqs = rig.fill(25);
    rig.lease(5);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let list = Command::List { queue: name(QUEUE), phase: Some(Phase::Ready), after, limit: 7 };
        let Reply::Messages(Ok((page, go_on))) = rig.ask_now(list) else { panic!("a page") };
        assert!(page.len() <= 7);
        seen.extend(page.iter().map(|status| status.message.seq));
        after = go_on;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, seqs[5..]);
    assert_eq!(rig.stats().ready, 20);
}

#[test]
fn a_message_that_is_not_durable_is_not_listed() {
    let mut rig = rig();
    rig.hold_durability = true;
    rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    let list = || Command::List { queue: name(QUEUE), phase: None, after: None, limit: 10 };
    let Reply::Messages(Ok((page, _))) = rig.ask_now(list()) else { panic!("a page") };
    assert!(page.is_empty());
    rig.make_durable();
    let Reply::Messages(Ok((page, _))) = rig.ask_now(list()) else { panic!("a page") };
    assert_eq!(page.len(), 1);
}

#[test]
fn whoever_waits_for_the_end_is_not_told_of_one_that_a_replay_has_undone() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let waiting = rig.ask(Command::Status { seq, wait: Some(s(60)) });
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    rig.ask(Command::Settle(vec![Settlement { receipt, outcome: dead() }]));
    rig.ask_for_replay(ReplayWhich::These(vec![seq]));
    rig.make_durable();
    assert!(rig.answer(waiting).is_none());
    rig.hold_durability = false;
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    assert!(
        matches!(rig.answer(waiting), Some(Reply::Status(Ok(status))) if status.message.phase == Phase::Succeeded)
    );
}

#[test]
fn thousands_of_messages_that_fall_due_at_once_all_become_ready() {
    let mut rig = rig();
    for _ in 0..2000 {
        rig.enqueue(NewMessage { delay: s(60), ..message() }).unwrap();
    }
    rig.pass(s(60));
    assert_eq!((rig.stats().ready, rig.stats().delayed), (2000, 0));
}

#[test]
fn of_many_messages_that_expire_at_once_none_goes_out_before_its_turn_to_expire() {
    let mut rig = rig();
    for _ in 0..600 {
        rig.enqueue(NewMessage { ttl: Some(s(60)), ..message() }).unwrap();
    }
    rig.hold_durability = true;
    rig.now = Now { wall: rig.now.wall.plus(s(60)), mono: rig.now.mono.plus(s(60)) };
    assert!(rig.lease(1).is_empty());
    assert_eq!(rig.pond.next_wakeup(), Some(rig.now.mono), "some have not had their turn");
}

#[test]
fn what_is_dropped_when_its_lease_runs_out_was_not_settled_by_its_holder() {
    let mut rig = Rig::new(QueueSettings { on_expiry: OnExpiry::Drop, ..QueueSettings::default() });
    rig.enqueue(NewMessage { ttl: Some(s(5)), ..message() }).unwrap();
    let receipt = rig.lease_one();
    rig.pass(s(60));
    let message = rig.status(receipt.seq).unwrap().message;
    assert_eq!((message.phase, message.hand_out.unwrap().settled), (Phase::Expired, None));
}
