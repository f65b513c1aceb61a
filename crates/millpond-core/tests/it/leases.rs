//! Hand-outs, fencing, attempts and what counts as one.

use crate::rig::{Rig, complete, dead, message, ms, name, release, retry, retry_in, s};
use millpond_core::command::{
    Command, EnqueueError, Input, LeaseRequest, Leased, NewMessage, QueueError, Reply, SettleError,
    SettleOutcome, Settlement,
};
use millpond_core::identity::Receipt;
use millpond_core::message::{AttemptOutcome, DeadReason, Phase};
use millpond_core::record::Record;
use millpond_core::settings::{DELAY_MAX, LEASE_TOTAL_MAX, Overflow, QueueSettings, RetrySettings};
use std::time::Duration;

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

fn seqs(leased: &[Leased]) -> Vec<u64> {
    leased.iter().map(|leased| leased.message.seq.0).collect()
}

#[test]
fn messages_go_out_in_the_order_of_their_acceptance() {
    let mut rig = rig();
    rig.fill(5);
    assert_eq!(seqs(&rig.lease(3)), [1, 2, 3]);
    assert_eq!(seqs(&rig.lease(10)), [4, 5]);
}

#[test]
fn a_returned_message_keeps_its_place() {
    let mut rig = rig();
    rig.fill(3);
    let receipt = rig.lease_one();
    rig.settle(receipt, release()).unwrap();
    assert_eq!(seqs(&rig.lease(3)), [1, 2, 3]);
}

#[test]
fn workers_that_wait_are_served_in_the_order_in_which_they_came() {
    let mut rig = rig();
    let first = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    let second = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.fill(1);
    assert!(matches!(rig.answer(first), Some(Reply::Leased(Ok(leased))) if leased.len() == 1));
    assert!(rig.answer(second).is_none());
}

#[test]
fn a_worker_that_left_gets_nothing() {
    let mut rig = rig();
    let gone = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.input(Input::Abandon(gone));
    rig.fill(1);
    assert!(rig.answer(gone).is_none());
    assert_eq!(rig.stats().ready, 1);
    rig.pass(s(120));
    assert!(rig.answer(gone).is_none());
}

#[test]
fn a_worker_that_vanishes_is_noticed_when_its_lease_ends_and_not_before() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    rig.lease_one();
    rig.pass(s(30) - ms(1));
    assert_eq!(rig.phase(seq), Phase::Leased);
    rig.pass(ms(1));
    assert_eq!(rig.phase(seq), Phase::Ready);
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.attempts, message.deliveries), (1, 1));
    assert_eq!(message.history[0].outcome, AttemptOutcome::LeaseExpired);
}

#[test]
fn stale_receipt_cannot_settle() {
    let mut rig = rig();
    rig.fill(1);
    let stale = rig.lease_one();
    rig.pass(s(30));
    let fresh = rig.lease_one();
    for outcome in [complete(), retry(), dead(), release()] {
        assert_eq!(rig.settle(stale, outcome), Err(SettleError::LeaseLost));
    }
    assert_eq!(rig.extend(stale, s(30)), Err(SettleError::LeaseLost));
    assert_eq!(rig.settle(fresh, complete()), Ok(()));
}

#[test]
fn completing_late_is_accepted_while_nobody_else_was_handed_the_message() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.pass(s(31));
    for outcome in [retry(), dead(), release()] {
        assert_eq!(rig.settle(receipt, outcome), Err(SettleError::LeaseLost));
    }
    assert_eq!(rig.extend(receipt, s(30)), Err(SettleError::LeaseLost));
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
    assert_eq!(rig.phase(seq), Phase::Succeeded);
    assert!(rig.lease(1).is_empty());
}

#[test]
fn settling_twice_with_the_same_word_is_settling_once() {
    let mut rig = rig();
    rig.fill(4);
    for outcome in [complete(), retry(), dead(), release()] {
        let receipt = rig.lease_one();
        assert_eq!(rig.settle(receipt, outcome.clone()), Ok(()));
        let before = rig.log.len();
        assert_eq!(rig.settle(receipt, outcome), Ok(()));
        assert_eq!(rig.log.len(), before, "nothing was written");
    }
}

#[test]
fn settling_twice_with_another_word_is_refused() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry_in(s(5))).unwrap();
    assert_eq!(rig.settle(receipt, complete()), Err(SettleError::LeaseLost));
    assert_eq!(rig.settle(receipt, dead()), Err(SettleError::LeaseLost));
}

#[test]
fn a_receipt_of_a_message_that_was_never_handed_out_is_worth_nothing() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let epoch = rig.pond.epoch();
    for (epoch, delivery) in [(epoch, 1), (epoch, 0), (epoch, 9), (epoch + 1, 1)] {
        let receipt = Receipt { seq, epoch, delivery };
        assert_eq!(rig.settle(receipt, complete()), Err(SettleError::LeaseLost));
    }
}

#[test]
fn extending_keeps_the_message_with_its_holder() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    for _ in 0..10 {
        rig.pass(s(29));
        rig.extend(receipt, s(30)).unwrap();
    }
    assert!(rig.lease(1).is_empty());
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
}

#[test]
fn a_lease_lasts_twelve_hours_at_most_however_often_it_is_extended() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.extend(receipt, LEASE_TOTAL_MAX).unwrap();
    rig.pass(s(60));
    assert_eq!(rig.extend(receipt, LEASE_TOTAL_MAX), Err(SettleError::TooLong));
    assert!(rig.extend(receipt, LEASE_TOTAL_MAX - s(60)).is_ok());
    rig.pass(LEASE_TOTAL_MAX - s(60));
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn a_lease_is_written_anew_when_it_is_extended_after_the_clock_was_set_and_not_for_a_drift() {
    for (seconds, anew) in [(0, false), (1, false), (-1, false), (2, true), (-2, true)] {
        let mut rig = rig();
        rig.fill(1);
        let receipt = rig.lease_one();
        rig.step_wall(seconds);
        rig.extend(receipt, s(30)).unwrap();
        assert_eq!(matches!(rig.log.last(), Some(Record::Leased { .. })), anew, "set by {seconds} s");
        assert_eq!(matches!(rig.log.last(), Some(Record::Extended { .. })), !anew, "set by {seconds} s");
    }
}

#[test]
fn a_failed_attempt_waits_for_its_backoff_within_floor_and_ceiling() {
    let mut rig = rig();
    let seqs = rig.fill(50);
    for leased in rig.lease(50) {
        rig.settle(leased.receipt, retry()).unwrap();
    }
    rig.pass(s(1) - ms(1));
    assert!(rig.lease(50).is_empty(), "no retry comes before the floor");
    assert!(seqs.iter().all(|&seq| rig.phase(seq) == Phase::Backoff));
    rig.pass(ms(501));
    let half = rig.stats().ready;
    assert!((5..=45).contains(&half), "the first retries are spread, {half} of 50 after half the spread");
    rig.pass(ms(500));
    assert_eq!(rig.stats().ready, 50);
}

#[test]
fn a_retry_with_its_own_delay_comes_exactly_then() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry_in(s(77))).unwrap();
    rig.pass(s(77) - ms(1));
    assert!(rig.lease(1).is_empty());
    rig.pass(ms(1));
    assert_eq!(rig.lease(1).len(), 1);
    let over = Settlement { receipt, outcome: retry_in(DELAY_MAX + s(1)) };
    let Reply::Settled(answers) = rig.ask_now(Command::Settle(vec![over])) else { panic!("settled") };
    assert_eq!(answers, [Err(SettleError::DelayTooLong)]);
}

#[test]
fn the_longest_delay_is_granted_to_what_comes_back() {
    let mut rig = rig();
    rig.fill(2);
    for outcome in [retry_in(DELAY_MAX), SettleOutcome::Release { delay: Some(DELAY_MAX) }] {
        let receipt = rig.lease_one();
        assert_eq!(rig.settle(receipt, outcome), Ok(()));
    }
}

#[test]
fn what_was_completed_is_counted_once() {
    let mut rig = rig();
    rig.fill(3);
    for leased in rig.lease(3) {
        rig.settle(leased.receipt, complete()).unwrap();
        rig.settle(leased.receipt, complete()).unwrap();
    }
    assert_eq!(rig.stats().totals.completed, 3);
}

#[test]
fn after_the_last_attempt_a_message_is_a_dead_letter_once() {
    let retry_settings = RetrySettings { max_attempts: 3, ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: retry_settings, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    for attempt in 1..=3 {
        let receipt = rig.lease_one();
        rig.settle(receipt, retry()).unwrap();
        assert_eq!(rig.phase(seq) == Phase::Dead, attempt == 3);
        rig.pass(s(600));
    }
    let message = rig.status(seq).unwrap().message;
    assert_eq!(message.dead_reason, Some(DeadReason::AttemptsExhausted));
    assert_eq!((message.attempts, message.history.len()), (3, 3));
    assert!(rig.lease(1).is_empty());
    assert_eq!((rig.stats().dead, rig.stats().totals.dead), (1, 1));
}

#[test]
fn released_work_burns_no_attempt_but_its_deliveries_are_bounded() {
    let retry_settings =
        RetrySettings { max_attempts: 2, max_deliveries: Some(7), ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: retry_settings, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    for _ in 0..7 {
        assert_eq!(rig.phase(seq), Phase::Ready);
        let receipt = rig.lease_one();
        rig.settle(receipt, release()).unwrap();
    }
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.phase, message.attempts, message.deliveries), (Phase::Dead, 0, 7));
    assert_eq!(message.dead_reason, Some(DeadReason::DeliveriesExhausted));
}

#[test]
fn lowering_the_attempts_does_not_kill_work_that_is_only_released() {
    let mut rig = rig();
    let define = |max_attempts| {
        let retry = RetrySettings { max_attempts, ..RetrySettings::default() };
        let settings = Box::new(QueueSettings { retry, ..QueueSettings::default() });
        Command::Define { queue: name("extra"), settings }
    };
    rig.ask_now(define(5));
    let seq = rig.enqueue_to("extra", message()).unwrap().seq;
    let lease = |rig: &mut Rig| {
        let wish = LeaseRequest { queue: name("extra"), ..Rig::wish(1, s(0)) };
        let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
        leased[0].receipt
    };
    for _ in 0..3 {
        let receipt = lease(&mut rig);
        rig.settle(receipt, retry_in(Duration::ZERO)).unwrap();
    }
    rig.ask_now(define(2));
    let receipt = lease(&mut rig);
    rig.settle(receipt, release()).unwrap();
    assert_eq!(rig.phase(seq), Phase::Ready, "released work was not found wanting");
    let receipt = lease(&mut rig);
    rig.settle(receipt, retry()).unwrap();
    assert_eq!(rig.phase(seq), Phase::Dead);
}

#[test]
fn a_hand_out_that_reached_nobody_is_as_if_it_had_not_been() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let lost = rig.lease_one();
    rig.input(Input::Undelivered(lost));
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.phase, message.attempts, message.deliveries), (Phase::Ready, 0, 0));
    let fresh = rig.lease_one();
    assert_ne!(lost, fresh, "no receipt is given twice");
    assert_eq!(rig.settle(lost, complete()), Err(SettleError::LeaseLost));
    rig.input(Input::Undelivered(lost));
    assert_eq!(rig.phase(seq), Phase::Leased, "a hand-out is taken back once");
    rig.restart();
    assert_eq!(rig.settle(fresh, complete()), Ok(()));
}

#[test]
fn the_queues_cap_holds_and_a_freed_place_is_filled_at_once() {
    let mut rig = Rig::new(QueueSettings { concurrency: Some(2), ..QueueSettings::default() });
    rig.fill(5);
    let leased = rig.lease(5);
    assert_eq!(leased.len(), 2);
    let waiting = rig.ask(Command::Lease(Rig::wish(5, s(60))));
    assert!(rig.answer(waiting).is_none());
    rig.settle(leased[0].receipt, complete()).unwrap();
    assert!(matches!(rig.answer(waiting), Some(Reply::Leased(Ok(more))) if more.len() == 1));
}

#[test]
fn a_paused_queue_accepts_and_hands_nothing_out_until_resumed() {
    let mut rig = rig();
    rig.pause(true);
    rig.fill(1);
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pass(s(30));
    assert!(rig.answer(waiting).is_none());
    rig.restart();
    assert!(rig.lease(1).is_empty(), "a pause survives a restart");
    assert!(rig.stats().paused);
    rig.pause(false);
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn one_settlement_of_many_is_judged_for_itself() {
    let mut rig = rig();
    rig.fill(2);
    let leased = rig.lease(2);
    let never = Receipt { delivery: 9, ..leased[0].receipt };
    let settlements = [leased[0].receipt, never, leased[1].receipt]
        .map(|receipt| Settlement { receipt, outcome: complete() });
    let Reply::Settled(answers) = rig.ask_now(Command::Settle(settlements.to_vec())) else {
        panic!("settled")
    };
    assert_eq!(answers, [Ok(()), Err(SettleError::LeaseLost), Ok(())]);
}

#[test]
fn a_hand_out_that_reached_nobody_before_the_message_expired_does_not_block_the_queue() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { ttl: Some(s(5)), ..message() }).unwrap().seq;
    let lost = rig.lease_one();
    rig.pass(s(6));
    rig.input(Input::Undelivered(lost));
    assert_eq!(rig.phase(seq), Phase::Dead);
    rig.fill(1);
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn a_dead_letter_cannot_be_completed_by_whoever_let_its_lease_run_out() {
    let retry_settings = RetrySettings { max_attempts: 1, ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: retry_settings, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.pass(s(30));
    assert_eq!(rig.phase(seq), Phase::Dead);
    assert_eq!(rig.settle(receipt, complete()), Err(SettleError::LeaseLost));
}

#[test]
fn too_many_waiting_workers_are_refused_and_one_that_does_not_wait_is_served() {
    let mut rig = rig();
    let narrow =
        QueueSettings { overflow: Overflow::Block, max_messages: Some(1), ..QueueSettings::default() };
    rig.ask_now(Command::Define { queue: name("narrow"), settings: Box::new(narrow) });
    rig.enqueue_to("narrow", message()).unwrap();
    rig.ask_now(Command::Define { queue: name("idle"), settings: Box::new(QueueSettings::default()) });
    let wait_at_idle = || LeaseRequest { queue: name("idle"), ..Rig::wish(1, s(60)) };
    for _ in 0..20_000 {
        rig.ask(Command::Lease(wait_at_idle()));
    }
    let refused = rig.ask_now(Command::Lease(wait_at_idle()));
    assert!(matches!(refused, Reply::Leased(Err(QueueError::TooManyWaiting))));
    let refused = rig.enqueue_to("narrow", message());
    assert!(matches!(refused, Err(EnqueueError::QueueFull { .. })), "nor may anyone wait at a door");
    let seq = rig.fill(1)[0];
    let told = rig.ask_now(Command::Status { seq, wait: Some(s(60)) });
    assert!(matches!(told, Reply::Status(Ok(_))), "nor for an end");
    assert_eq!(rig.lease(1).len(), 1);
}
