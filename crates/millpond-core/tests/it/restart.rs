//! Restarts and clocks: what is kept, what is fenced, and what a stepping wall clock must not change.

use crate::rig::{QUEUE, Rig, complete, dead, keyed, message, ms, name, release, retry, retry_in, s, target};
use millpond_core::command::{CallOutcome, Command, Input, NewMessage, Reply, SettleError, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::{AttemptOutcome, DeadReason, Phase, QueueNumber};
use millpond_core::pond::Pond;
use millpond_core::record::Record;
use millpond_core::replay::{ReplayWhich, ReplayWish};
use millpond_core::settings::{DeadLetterSettings, LEASE_TOTAL_MAX, QueueSettings, TargetSettings};
use millpond_core::time::{Mono, Now};
use std::time::Duration;

const HOUR: i64 = 3600;

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

#[test]
fn every_phase_survives_a_restart() {
    let mut rig = rig();
    let mut phases = Vec::new();
    let delayed = rig.enqueue(NewMessage { delay: s(500), ..message() }).unwrap().seq;
    phases.push((delayed, Phase::Delayed));
    for (outcome, phase) in
        [(complete(), Phase::Succeeded), (dead(), Phase::Dead), (retry_in(s(500)), Phase::Backoff)]
    {
        let seq = rig.fill(1)[0];
        let receipt = rig.lease_one();
        rig.settle(receipt, outcome).unwrap();
        phases.push((seq, phase));
    }
    let cancelled = rig.fill(1)[0];
    rig.cancel(cancelled).unwrap();
    phases.push((cancelled, Phase::Cancelled));
    let leased = rig.fill(2);
    rig.lease_one();
    phases.extend([(leased[0], Phase::Leased), (leased[1], Phase::Ready)]);
    let before: Vec<_> = phases.iter().map(|&(seq, _)| rig.status(seq).unwrap().message).collect();
    rig.restart();
    for ((seq, phase), mut before) in phases.into_iter().zip(before) {
        let mut after = rig.status(seq).unwrap().message;
        assert_eq!(after.phase, phase);
        // The due time is remembered only while something waits for it.
        (before.due, after.due) = Default::default();
        assert_eq!(after, before);
    }
}

#[test]
fn a_restart_of_a_restart_is_the_same() {
    let mut rig = rig();
    rig.fill(3);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry()).unwrap();
    rig.lease_one();
    rig.restart();
    let first = rig.stats();
    rig.restart();
    let second = rig.stats();
    assert_eq!((first.ready, first.leased, first.backoff), (1, 1, 1));
    assert_eq!((second.ready, second.leased, second.backoff), (1, 1, 1));
}

#[test]
fn a_worker_may_finish_across_a_restart_and_the_cap_holds_meanwhile() {
    let mut rig = Rig::new(QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
    rig.fill(2);
    let receipt = rig.lease_one();
    rig.pass(s(10));
    rig.restart();
    assert!(rig.lease(1).is_empty(), "the lease of before counts");
    assert!(rig.extend(receipt, s(30)).is_ok());
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn a_lease_that_a_restart_interrupted_burns_no_attempt() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    rig.lease_one();
    rig.restart();
    rig.pass(s(30));
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.phase, message.attempts), (Phase::Ready, 0));
    assert_eq!(message.history[0].outcome, AttemptOutcome::Interrupted);
}

#[test]
fn a_hand_out_whose_record_was_lost_may_be_settled_while_nobody_else_was_handed_the_message() {
    for outcome in [complete(), retry(), dead(), release()] {
        let mut rig = rig();
        let seq = rig.fill(1)[0];
        rig.hold_durability = true;
        let receipt = rig.lease_one();
        rig.hold_durability = false;
        rig.restart_keeping(0);
        assert_eq!(rig.phase(seq), Phase::Ready, "power took the record of the hand-out");
        assert_eq!(rig.settle(receipt, outcome.clone()), Ok(()));
        assert_ne!(rig.status(seq).unwrap().message.deliveries, 0, "it counts");
        let before = rig.status(seq).unwrap().message;
        rig.restart();
        let after = rig.status(seq).unwrap().message;
        assert_eq!((after.phase, after.deliveries), (before.phase, before.deliveries));
        assert_eq!(rig.settle(receipt, outcome), Ok(()), "its answer may have been lost");
        assert_eq!(rig.status(seq).unwrap().message, after);
    }
}

#[test]
fn a_hand_out_whose_record_was_lost_is_fenced_once_another_got_the_message() {
    let mut rig = rig();
    rig.fill(1);
    rig.hold_durability = true;
    let first = rig.lease_one();
    rig.hold_durability = false;
    rig.restart_keeping(0);
    let second = rig.lease_one();
    assert_eq!(rig.settle(first, complete()), Err(SettleError::LeaseLost));
    assert_eq!(rig.settle(second, complete()), Ok(()));
}

#[test]
fn two_hand_outs_lost_one_after_the_other_leave_only_the_second_a_chance() {
    let mut rig = rig();
    rig.fill(1);
    rig.hold_durability = true;
    let first = rig.lease_one();
    rig.restart_keeping(0);
    rig.make_durable();
    let second = rig.lease_one();
    rig.restart_keeping(0);
    rig.make_durable();
    rig.hold_durability = false;
    assert_eq!(rig.settle(first, complete()), Err(SettleError::LeaseLost), "another got the message since");
    assert_eq!(rig.settle(second, complete()), Ok(()));
}

#[test]
fn work_that_expired_while_the_server_was_down_is_dead_lettered_once() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { ttl: Some(s(60)), ..message() }).unwrap().seq;
    rig.now.wall = rig.now.wall.plus(s(120));
    rig.restart();
    assert!(rig.lease(1).is_empty());
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.phase, message.dead_reason), (Phase::Dead, Some(DeadReason::Expired)));
    rig.restart();
    assert_eq!(rig.stats().dead, 1);
}

#[test]
fn delays_and_backoffs_go_on_across_a_restart() {
    let mut rig = rig();
    rig.enqueue(NewMessage { delay: s(100), ..message() }).unwrap();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry_in(s(100))).unwrap();
    rig.pass(s(60));
    rig.restart();
    rig.pass(s(40) - ms(1));
    assert!(rig.lease(2).is_empty());
    rig.pass(ms(1));
    assert_eq!(rig.lease(2).len(), 2);
}

#[test]
fn an_hour_forwards_or_back_on_the_wall_clock_changes_no_wait() {
    for step in [HOUR, -HOUR] {
        let mut rig = rig();
        rig.enqueue(NewMessage { delay: s(10), ..message() }).unwrap();
        rig.fill(1);
        let receipt = rig.lease_one();
        rig.step_wall(step);
        rig.pass(s(9));
        rig.extend(receipt, s(30)).unwrap();
        assert!(rig.lease(1).is_empty());
        rig.pass(s(1));
        assert_eq!(rig.lease(1).len(), 1, "the delay is over, step {step}");
        rig.pass(s(29) - ms(1));
        assert!(rig.lease(1).is_empty(), "the lease stands");
        rig.pass(ms(1));
        assert_eq!(rig.lease(1).len(), 1);
    }
}

#[test]
fn a_wall_clock_set_back_across_a_restart_stalls_nothing() {
    let mut rig = rig();
    rig.enqueue(NewMessage { delay: s(10), ..message() }).unwrap();
    rig.fill(2);
    let first = rig.lease_one();
    rig.settle(first, retry_in(s(20))).unwrap();
    let second = rig.lease_one();
    rig.step_wall(-HOUR);
    rig.restart();
    let stats = rig.stats();
    assert_eq!((stats.delayed, stats.backoff, stats.leased), (1, 1, 1));
    assert_eq!(rig.extend(second, LEASE_TOTAL_MAX + s(1)), Err(SettleError::TooLong));
    rig.pass(s(30));
    assert_eq!(rig.lease(3).len(), 3, "no wait is longer than it was meant to be");
}

#[test]
fn a_wall_clock_set_back_across_a_restart_keeps_nothing_for_ever() {
    let settings = QueueSettings { retention: s(600), ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    let expiring = rig.fill(1)[0];
    let done = rig.fill(1)[0];
    rig.pause(true);
    rig.pause(false);
    let leased = rig.lease(2);
    rig.settle(leased[1].receipt, complete()).unwrap();
    rig.settle(leased[0].receipt, release()).unwrap();
    rig.step_wall(-100 * HOUR);
    rig.restart();
    rig.pass(s(600));
    assert_eq!(rig.phase(expiring), Phase::Dead);
    rig.pass(Duration::from_hours(1));
    assert!(rig.status(done).is_err());
}

#[test]
fn a_number_is_not_used_again_for_another_acknowledged_message() {
    let mut rig = rig();
    let first = rig.fill(3);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.replay(ReplayWhich::All).unwrap();
    rig.restart();
    let second = rig.fill(3);
    assert!(second.iter().all(|seq| !first.contains(seq)));
    assert!(second[0] > first[2]);
}

#[test]
fn an_enqueue_lost_with_the_power_can_be_repeated() {
    let mut rig = rig();
    rig.hold_durability = true;
    let request = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![keyed(1, 1)] });
    assert!(rig.answer(request).is_none());
    rig.hold_durability = false;
    rig.restart_keeping(0);
    assert!(!rig.enqueue(keyed(1, 1)).unwrap().duplicate);
}

#[test]
fn calls_under_way_keep_their_places_across_restarts_as_long_as_those_that_time_out() {
    for stops in [false, true] {
        let held = TargetSettings { hold_after_timeout: Some(s(60)), ..target(2) };
        let mut rig = Rig::pushing(held, QueueSettings::default());
        rig.fill(5);
        let calls = rig.take_calls();
        assert_eq!(calls.len(), 2);
        if stops {
            // It has waited for them, but not to their ends.
            rig.input(Input::Drain);
            for call in &calls {
                rig.end_call(call.receipt, CallOutcome::Interrupted);
            }
        } else {
            rig.restart();
            rig.pass(s(7));
        }
        for _ in 0..3 {
            rig.restart();
            rig.pass(s(20) - ms(1));
            assert_eq!((rig.target_stats().inflight, rig.take_calls().len()), (2, 0), "stops: {stops}");
        }
        rig.pass(ms(3));
        let again = rig.take_calls();
        assert_eq!(again.len(), 2, "stops: {stops}");
        assert!(again.iter().all(|call| call.message.attempts == 0));
    }
}

#[test]
fn a_call_that_was_given_up_when_the_server_stopped_may_end_well_after_all() {
    let mut rig = Rig::pushing(target(1), QueueSettings::default());
    let seq = rig.fill(1)[0];
    let receipt = rig.take_calls().remove(0).receipt;
    rig.input(Input::Drain);
    rig.end_call(receipt, CallOutcome::Interrupted);
    rig.restart();
    assert_eq!(rig.phase(seq), Phase::Ready);
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(rig.phase(seq), Phase::Succeeded);
}

#[test]
fn a_hand_out_that_a_restart_interrupted_says_nothing_about_how_long_work_takes() {
    for late in [false, true] {
        let mut rig =
            Rig::new(QueueSettings { lease: s(30), concurrency: Some(10), ..QueueSettings::default() });
        let seq = rig.fill(1)[0];
        let receipt = rig.lease_one();
        rig.pass(if late { s(31) } else { s(1) });
        rig.pause(true);
        // The clock of a new process begins at zero.
        rig.now = Now { wall: rig.now.wall, mono: Mono(0) };
        rig.restart();
        rig.pass(s(20));
        rig.settle(receipt, complete()).unwrap();
        assert!(rig.stats().service_time.is_zero(), "late: {late}");
        let took = rig.status(seq).unwrap().message.history.last().map(|attempt| attempt.micros);
        assert_eq!(
            took,
            Some(if late { 51_000_000 } else { 21_000_000 }),
            "from the beginning, by the wall clock"
        );
    }
}

#[test]
fn copies_change_nothing_whatever_is_restored_from_them() {
    let mut rig = rig();
    rig.fill(4);
    let leased = rig.lease(3);
    rig.settle(leased[0].receipt, retry_in(s(100))).unwrap();
    rig.settle(leased[1].receipt, dead()).unwrap();
    let before: Vec<_> = (1..=4).map(|seq| rig.status(Seq(seq)).unwrap().message).collect();
    let from = rig.log.len();
    rig.input(Input::CopyBasics);
    rig.input(Input::Copy((1..=5).map(|seq| (Seq(seq), None)).collect()));
    rig.log.drain(..from);
    rig.durable = rig.log.len();
    rig.restart();
    for message in before {
        assert_eq!(rig.status(message.seq).unwrap().message, message);
    }
    assert_eq!(rig.settle(leased[2].receipt, complete()), Ok(()));
}

#[test]
fn a_replay_survives_a_restart_in_its_middle_and_loses_none() {
    let mut rig = rig();
    rig.fill(900);
    for leased in rig.lease(900) {
        rig.settle(leased.receipt, dead()).unwrap();
    }
    rig.hold_durability = true;
    rig.ask_for_replay(ReplayWhich::All);
    rig.restart();
    let stats = rig.stats();
    assert!(stats.dead > 0 && stats.ready > 0, "in the middle of it");
    assert_eq!(stats.dead + stats.ready, 900);
    rig.hold_durability = false;
    rig.pass(Duration::ZERO);
    rig.make_durable();
    assert_eq!(rig.stats().ready, 900, "it goes on by itself");
}

#[test]
fn a_settlement_that_was_not_durable_may_be_repeated_after_a_restart() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    let request = rig.ask(Command::Settle(vec![Settlement { receipt, outcome: complete() }]));
    assert!(rig.answer(request).is_none());
    rig.hold_durability = false;
    rig.restart_keeping(0);
    assert_eq!(rig.phase(seq), Phase::Leased);
    let Reply::Settled(answers) =
        rig.ask_now(Command::Settle(vec![Settlement { receipt, outcome: complete() }]))
    else {
        panic!("settled")
    };
    assert_eq!(answers, [Ok(())]);
}

#[test]
fn an_extended_lease_lasts_as_long_across_a_restart() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.extend(receipt, s(300)).unwrap();
    rig.restart();
    rig.pass(s(300) - ms(1));
    assert!(rig.lease(1).is_empty());
    rig.pass(ms(1));
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn a_wait_begun_after_the_clock_was_set_is_no_longer_when_it_is_set_back_across_a_restart() {
    for (forth, back) in [(HOUR, -HOUR), (HOUR, -3 * HOUR), (-HOUR, HOUR), (0, -HOUR)] {
        let mut rig = rig();
        rig.fill(4);
        let leased = rig.lease(3);
        let ran_out = rig.lease_one();
        rig.pass(s(5));
        rig.step_wall(forth);
        rig.settle(leased[0].receipt, retry_in(s(20))).unwrap();
        rig.settle(leased[1].receipt, millpond_core::command::SettleOutcome::Release { delay: Some(s(20)) })
            .unwrap();
        rig.extend(leased[2].receipt, s(20)).unwrap();
        rig.step_wall(back);
        rig.restart();
        let stats = rig.stats();
        assert!(stats.leased <= 2 && stats.backoff <= 2, "{stats:?}");
        rig.pass(s(30));
        assert_eq!(rig.lease(4).len(), 4, "{forth} s, then {back} s");
        assert!(rig.settle(ran_out, complete()).is_err(), "it was handed out again");
    }
}

#[test]
fn an_extension_after_the_clock_was_set_keeps_receipt_holder_and_first_start() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    let before = rig.status(seq).unwrap().message;
    rig.pass(s(10));
    rig.step_wall(HOUR);
    rig.extend(receipt, s(25)).unwrap();
    rig.restart();
    let after = rig.status(seq).unwrap().message;
    assert_eq!(
        (after.first_started, after.deliveries, after.phase),
        (before.first_started, 1, Phase::Leased)
    );
    let hand_out = after.hand_out.unwrap();
    assert_eq!(hand_out.until.since(hand_out.started), s(35));
    rig.pass(s(24));
    rig.settle(receipt, complete()).unwrap();
    let attempt = rig.status(seq).unwrap().message.history.pop().unwrap();
    assert_eq!(Duration::from_micros(attempt.micros), s(34));
}

#[test]
fn raising_a_retention_brings_back_nothing_that_was_forgotten_before() {
    let settings = || QueueSettings {
        result_retention: s(60),
        retention: s(1000),
        dead_letter: DeadLetterSettings { retention: s(2000), ..DeadLetterSettings::default() },
        ..QueueSettings::default()
    };
    let mut rig = Rig::new(settings());
    rig.pond.keep_in_full(1);
    let seqs = rig.fill(4);
    for _ in 0..2 {
        let receipt = rig.lease_one();
        rig.settle(receipt, complete()).unwrap();
    }
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.cancel(seqs[3]).unwrap();
    rig.pass(s(60));
    let known = |rig: &mut Rig| seqs.iter().map(|&seq| rig.status(seq).is_ok()).collect::<Vec<_>>();
    assert_eq!(known(&mut rig), [false, false, true, false]);
    rig.declared.queues[0].1.result_retention = s(100_000);
    rig.restart();
    rig.pass(Duration::ZERO);
    assert_eq!(known(&mut rig), [false, false, true, false]);
    rig.pass(s(2000));
    assert_eq!(known(&mut rig), [false; 4]);
    rig.declared.queues[0].1.dead_letter.retention = s(200_000);
    rig.restart();
    rig.pass(Duration::ZERO);
    assert_eq!(known(&mut rig), [false; 4]);
    // What ends from now on is kept as long as is said now.
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.restart();
    rig.pass(s(99_999));
    assert!(rig.status(seq).is_ok());
}

#[test]
fn a_backoff_is_as_long_across_a_restart_though_the_clock_stepped_while_the_message_was_leased() {
    for step in [3600, -3600] {
        let mut rig = rig();
        rig.fill(1);
        let receipt = rig.lease_one();
        rig.pass(s(5));
        rig.step_wall(step);
        rig.settle(receipt, retry_in(s(60))).unwrap();
        rig.pass(s(20));
        rig.input(Input::Copy(vec![(receipt.seq, None)]));
        rig.restart();
        rig.pass(s(40) - ms(1));
        assert!(rig.lease(1).is_empty(), "{step}");
        rig.pass(ms(1));
        assert_eq!(rig.lease(1).len(), 1, "{step}");
    }
}

#[test]
fn a_backoff_never_lasts_longer_than_it_was_meant_to_though_the_clock_is_set_back_across_the_restart() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.step_wall(3600);
    rig.settle(receipt, retry_in(s(60))).unwrap();
    rig.step_wall(-3600);
    rig.restart();
    rig.pass(s(60));
    assert_eq!(rig.lease(1).len(), 1);
}

#[test]
fn a_start_with_the_same_configuration_writes_nothing_but_that_it_was_one() {
    let mut rig = rig();
    rig.fill(1);
    let before = rig.log.len();
    rig.restart();
    assert_eq!(rig.log.len(), before + 1);
    assert!(matches!(rig.log[before], Record::Boot { epoch: 2, .. }));
}

#[test]
fn a_message_of_a_queue_that_the_log_does_not_know_is_an_orphan() {
    let mut rig = rig();
    rig.fill(2);
    let mut pond = Pond::new(1);
    for record in &rig.log {
        let mut record = record.clone();
        if let Record::Message { message, .. } = &mut record
            && message.seq == Seq(2)
        {
            message.queue = QueueNumber(1);
        }
        pond.restore(record);
    }
    assert_eq!(pond.orphan(), Some(Seq(2)));
}

#[test]
fn what_the_log_knows_is_shown_in_order_without_what_is_older_than_its_queue() {
    let mut rig = rig();
    rig.fill(3);
    let mut pond = Pond::new(1);
    for record in &rig.log {
        let mut record = record.clone();
        if let Record::Queue(queue) = &mut record {
            queue.since = 2;
        }
        pond.restore(record);
    }
    let mut shown = Vec::new();
    pond.each_restored(&mut |message| shown.push(message.seq));
    assert_eq!(shown, [Seq(2), Seq(3)]);
}

#[test]
fn a_word_on_a_hand_out_that_the_log_has_lost_takes_no_delivery_away() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let lost = rig.lease_one();
    rig.input(Input::Undelivered(lost));
    rig.log.retain(|record| !matches!(record, Record::Leased { .. }));
    rig.durable = rig.log.len();
    rig.restart();
    assert_eq!((rig.phase(seq), rig.status(seq).unwrap().message.deliveries), (Phase::Ready, 0));
}

#[test]
fn what_is_kept_for_no_time_is_gone_after_a_restart_though_the_clock_is_set_back() {
    let mut rig = Rig::new(QueueSettings { result_retention: s(0), ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.step_wall(-HOUR);
    rig.restart();
    rig.pass(s(0));
    assert!(rig.status(seq).is_err());
}

#[test]
fn a_replayed_message_whose_new_expiry_is_before_its_acceptance_lives_until_then_across_a_restart() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.step_wall(-2 * HOUR);
    let wish = ReplayWish { ttl: Some(s(60)), ..ReplayWish::plain(ReplayWhich::All) };
    rig.start_replay(wish, false).unwrap();
    rig.restart();
    rig.pass(s(60) - ms(1));
    assert_eq!(rig.phase(seq), Phase::Ready);
    rig.pass(ms(1));
    assert_eq!(rig.phase(seq), Phase::Dead);
}

#[test]
fn no_age_begins_in_the_future_after_the_clock_was_set_back_across_a_restart() {
    let mut rig = rig();
    rig.enqueue(NewMessage { delay: s(10), ..message() }).unwrap();
    rig.pass(s(20));
    let receipt = rig.lease_one();
    rig.settle(receipt, release()).unwrap();
    rig.enqueue(NewMessage { delay: s(30), ..message() }).unwrap();
    rig.step_wall(-HOUR);
    rig.restart();
    rig.pass(s(5));
    assert_eq!(rig.stats().oldest_ready_age, s(5), "what was ready was so at the restart");
    rig.lease_one();
    rig.pass(s(27));
    assert_eq!(rig.stats().oldest_ready_age, s(2), "what was delayed is due when its delay is over");
}

#[test]
fn an_age_does_not_begin_in_the_future_though_the_clock_was_set_back_to_before_the_message_was_due() {
    let mut rig = rig();
    let seq = rig.enqueue(NewMessage { delay: s(100), ..message() }).unwrap().seq;
    rig.pass(s(150));
    rig.input(Input::Copy(vec![(seq, None)]));
    rig.step_wall(-100);
    rig.restart();
    rig.pass(s(5));
    assert_eq!((rig.phase(seq), rig.stats().oldest_ready_age), (Phase::Ready, s(5)));
}

#[test]
fn a_status_is_kept_for_its_time_though_the_clock_was_set_back_to_before_the_end() {
    let mut rig = Rig::new(QueueSettings { result_retention: s(10), ..QueueSettings::default() });
    let done = rig.fill(1)[0];
    let delayed = rig.enqueue(NewMessage { delay: s(1000), ..message() }).unwrap().seq;
    rig.pass(s(100));
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.cancel(delayed).unwrap();
    rig.step_wall(-50);
    rig.restart();
    rig.pass(s(10) - ms(1));
    assert_eq!((rig.phase(done), rig.phase(delayed)), (Phase::Succeeded, Phase::Cancelled));
    rig.pass(ms(1));
    assert!(rig.status(done).is_err() && rig.status(delayed).is_err());
}

#[test]
fn a_status_keeps_the_times_of_its_attempt_while_the_message_rests_though_the_clock_was_set_meanwhile() {
    let mut rig = rig();
    rig.fill(4);
    let mut expected = Vec::new();
    for seconds in [0, 100, -100] {
        let receipt = rig.lease_one();
        let handed_out = rig.now.wall;
        rig.step_wall(seconds);
        let by_the_new_clock = rig.now.wall;
        rig.pass(s(1));
        rig.settle(receipt, complete()).unwrap();
        expected.push((receipt.seq, handed_out, by_the_new_clock));
    }
    for _ in 0..2 {
        for &(seq, handed_out, by_the_new_clock) in &expected {
            let message = rig.status(seq).unwrap().message;
            assert_eq!(message.first_started, Some(handed_out), "{seq:?}");
            assert_eq!(
                (message.history[0].started, message.history[0].micros),
                (by_the_new_clock, 1_000_000)
            );
        }
        rig.restart();
    }
}

#[test]
fn a_holder_who_extends_after_a_restart_and_then_vanishes_has_tried() {
    for extends in [false, true] {
        let mut rig = rig();
        let seq = rig.fill(1)[0];
        let receipt = rig.lease_one();
        rig.restart();
        if extends {
            rig.extend(receipt, s(60)).unwrap();
        }
        rig.pass(s(61));
        assert_eq!(rig.status(seq).unwrap().message.attempts, u32::from(extends));
    }
}

#[test]
fn a_hand_out_that_reached_nobody_is_no_start() {
    let mut rig = rig();
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.input(Input::Undelivered(receipt));
    assert_eq!(rig.status(seq).unwrap().message.first_started, None);
    rig.restart();
    assert_eq!(rig.status(seq).unwrap().message.first_started, None);
    rig.pass(s(1));
    rig.lease_one();
    assert_eq!(rig.status(seq).unwrap().message.first_started, Some(rig.now.wall));
}
