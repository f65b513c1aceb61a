//! A target that is down: what waits for it waits, single messages try it, and nobody's attempts are burnt.

use crate::rig::{QUEUE, Rig, complete, failed, failure, message, ms, name, s, succeeded, target, throttled};
use millpond_core::breaker::BreakerState;
use millpond_core::command::{CallOutcome, Command, Declared, Input, Leased, Reply, TargetError};
use millpond_core::message::{AttemptOutcome, DeadReason, Failure, Phase};
use millpond_core::notice::Notice;
use millpond_core::settings::{BreakerSettings, QueueSettings, RetrySettings, TargetSettings};
use millpond_core::stats::{CallEnding, Held};
use std::time::Duration;

fn guarded(concurrency: u32) -> TargetSettings {
    TargetSettings { breaker: Some(BreakerSettings::default()), ..target(concurrency) }
}

fn rig(concurrency: u32) -> Rig {
    let settings = QueueSettings { expected_service_time: Some(ms(100)), ..QueueSettings::default() };
    Rig::pushing(guarded(concurrency), settings)
}

/// The one call that must be there.
fn call(rig: &mut Rig) -> Leased {
    let mut calls = rig.take_calls();
    assert_eq!(calls.len(), 1);
    calls.remove(0)
}

/// Ten calls fail, one after the other.
fn break_down(rig: &mut Rig) {
    for _ in 0..10 {
        let call = rig.take_calls().remove(0);
        rig.end_call(call.receipt, failed(false));
    }
    assert_eq!(rig.target_stats().state, BreakerState::Open);
}

/// Waits for the next probe.
fn probe(rig: &mut Rig) -> Leased {
    let wait = rig.target_stats().next_probe.unwrap();
    rig.pass(wait);
    call(rig)
}

#[test]
fn ten_failures_in_a_row_stop_the_calls_and_what_waits_burns_no_attempt() {
    let mut rig = rig(1);
    let seqs = rig.fill(30);
    break_down(&mut rig);
    rig.pass(ms(499));
    assert!(rig.take_calls().is_empty(), "half a second of quiet at least");
    let stats = rig.stats();
    assert_eq!((stats.held, stats.paused), (Some(Held::BreakerOpen), false));
    assert_eq!((stats.predicted_wait, stats.capacity_per_second), (None, 0.0));
    assert!(rig.enqueue(message()).unwrap().promise.is_none(), "nothing is promised, nor refused");
    for seq in &seqs[10..] {
        let message = rig.status(*seq).unwrap().message;
        assert_eq!((message.attempts, message.deliveries), (0, 0));
    }
    let opened = Notice::BreakerOpen { target: name("till"), failures: 10 };
    assert_eq!(rig.notices, [opened]);
}

#[test]
fn a_target_that_answers_again_is_let_alone_no_more() {
    let mut rig = rig(1);
    rig.fill(30);
    break_down(&mut rig);
    for _ in 0..2 {
        let probe =
            if rig.target_stats().state == BreakerState::Open { probe(&mut rig) } else { call(&mut rig) };
        assert_eq!(rig.target_stats().state, BreakerState::HalfOpen);
        assert_eq!(rig.stats().held, Some(Held::BreakerOpen), "two calls are not all");
        rig.end_call(probe.receipt, succeeded());
    }
    assert_eq!(rig.target_stats().state, BreakerState::Closed);
    assert_eq!(rig.stats().held, None);
    assert!(rig.enqueue(message()).unwrap().promise.is_some());
    let till = || name("till");
    let notices = [
        Notice::BreakerOpen { target: till(), failures: 10 },
        Notice::BreakerHalfOpen { target: till() },
        Notice::BreakerClosed { target: till(), by_hand: false },
    ];
    assert_eq!(rig.notices, notices);
}

#[test]
fn failed_probes_cost_no_attempt_go_to_other_messages_in_turn_and_are_told_of_once() {
    let mut rig = rig(1);
    rig.fill(40);
    break_down(&mut rig);
    let mut tried = Vec::new();
    for _ in 0..12 {
        let probe = probe(&mut rig);
        let seq = probe.receipt.seq;
        assert_ne!(tried.last(), Some(&seq), "twice in a row");
        let before = probe.message.attempts;
        rig.end_call(probe.receipt, failed(false));
        let message = rig.status(seq).unwrap().message;
        assert_eq!((message.phase, message.attempts), (Phase::Backoff, before));
        assert_eq!(message.history.last().unwrap().outcome, AttemptOutcome::ProbeFailed);
        assert_eq!(message.history.last().unwrap().failure, Some(failure()));
        tried.push(seq);
    }
    tried.sort_unstable();
    tried.dedup();
    assert!(tried.len() >= 3, "{tried:?}");
    let next = rig.target_stats().next_probe.unwrap();
    assert!(next >= s(30) && next <= s(60), "{next:?}");
    assert_eq!(rig.notices.len(), 2, "opened, and tried: {:?}", rig.notices);
}

#[test]
fn one_message_that_a_target_cannot_stand_does_not_keep_it_shut() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let poison = probe(&mut rig).receipt;
    rig.end_call(poison, failed(false));
    for _ in 0..2 {
        let next =
            if rig.target_stats().state == BreakerState::Open { probe(&mut rig) } else { call(&mut rig) };
        assert_ne!(next.receipt.seq, poison.seq);
        rig.end_call(next.receipt, succeeded());
    }
    assert_eq!(rig.target_stats().state, BreakerState::Closed);
}

#[test]
fn a_message_whose_probes_all_fail_dies_of_its_deliveries() {
    let retry = RetrySettings { max_attempts: 3, max_deliveries: Some(4), ..RetrySettings::default() };
    let settings = BreakerSettings { failures: 1, ..BreakerSettings::default() };
    let till = TargetSettings { breaker: Some(settings), ..target(1) };
    let mut rig = Rig::pushing(till, QueueSettings { retry, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    let first = call(&mut rig);
    rig.end_call(first.receipt, failed(false));
    for _ in 0..3 {
        assert_eq!(rig.status(seq).unwrap().message.attempts, 1);
        while rig.calls.is_empty() {
            rig.pass(s(1));
        }
        let probe = call(&mut rig);
        rig.end_call(probe.receipt, failed(false));
    }
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.dead_reason, message.attempts), (Some(DeadReason::DeliveriesExhausted), 1));
}

#[test]
fn a_failed_probe_stays_away_no_longer_than_its_queues_longest_backoff() {
    let retry = RetrySettings { backoff_max: s(3), ..RetrySettings::default() };
    let mut rig = Rig::pushing(guarded(1), QueueSettings { retry, ..QueueSettings::default() });
    rig.fill(11);
    break_down(&mut rig);
    for _ in 0..4 {
        let probe = probe(&mut rig);
        rig.end_call(probe.receipt, failed(false));
        let message = rig.status(probe.receipt.seq).unwrap().message;
        assert_eq!(message.due, rig.now.wall.plus(s(3)), "four pauses of 2 s and more are longer");
    }
}

#[test]
fn what_says_nothing_of_the_target_does_not_open_its_breaker() {
    let refused = |status| Failure::new("status", "no", Some(status));
    let answered = |status| CallOutcome::Failed { failure: refused(status), timed_out: false };
    let own = |kind| CallOutcome::Failed { failure: Failure::new(kind, "ours", None), timed_out: false };
    let harmless = [
        answered(401),
        answered(404),
        answered(409),
        answered(302),
        throttled(ms(1)),
        CallOutcome::Interrupted,
        own("internal"),
        own("unreadable"),
    ];
    let retry = RetrySettings { max_attempts: 1000, ..RetrySettings::default() };
    for outcome in harmless {
        let settings = QueueSettings { retry: retry.clone(), ..QueueSettings::default() };
        let mut rig = Rig::pushing(guarded(1), settings);
        rig.fill(40);
        for _ in 0..30 {
            rig.pass(s(10));
            for call in rig.take_calls() {
                rig.end_call(call.receipt, outcome.clone());
            }
        }
        let stats = rig.target_stats();
        assert_eq!((stats.state, stats.failures_in_row), (BreakerState::Closed, 0), "{outcome:?}");
    }
    let connect = CallOutcome::Failed { failure: Failure::new("connect", "no", None), timed_out: false };
    for outcome in [answered(500), answered(503), answered(599), answered(408), failed(true), connect] {
        let mut rig = rig(1);
        rig.fill(40);
        for _ in 0..10 {
            let call = rig.take_calls().remove(0);
            rig.end_call(call.receipt, outcome.clone());
            rig.pass(s(5));
        }
        assert_ne!(rig.target_stats().state, BreakerState::Closed, "{outcome:?}");
    }
}

#[test]
fn a_message_that_the_target_refuses_ends_a_row_and_counts_as_an_answered_probe() {
    let mut rig = rig(1);
    rig.fill(40);
    for _ in 0..9 {
        let call = rig.take_calls().remove(0);
        rig.end_call(call.receipt, failed(false));
    }
    let dead = CallOutcome::Dead { failure: Failure::new("status", "no", Some(422)) };
    let refused = call(&mut rig);
    rig.end_call(refused.receipt, dead.clone());
    assert_eq!(rig.target_stats().failures_in_row, 0);
    break_down(&mut rig);
    for _ in 0..2 {
        let next =
            if rig.target_stats().state == BreakerState::Open { probe(&mut rig) } else { call(&mut rig) };
        rig.end_call(next.receipt, dead.clone());
    }
    assert_eq!(rig.target_stats().state, BreakerState::Closed);
}

#[test]
fn a_probe_that_is_throttled_waits_for_its_pause_and_changes_nothing() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let first = probe(&mut rig);
    rig.end_call(first.receipt, throttled(s(7)));
    rig.pass(s(7) - ms(1));
    assert!(rig.take_calls().is_empty());
    assert_eq!(rig.target_stats().state, BreakerState::HalfOpen);
    rig.pass(ms(1));
    call(&mut rig);
}

#[test]
fn a_probe_that_times_out_holds_its_place_over_a_restart_too() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let hung = probe(&mut rig);
    rig.end_call(hung.receipt, failed(true));
    assert_eq!(rig.target_stats().inflight, 1);
    rig.restart();
    assert_eq!(rig.target_stats().inflight, 1);
    rig.pass(s(5));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn a_probe_that_is_never_reported_or_taken_back_leaves_room_for_the_next() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let back = probe(&mut rig);
    rig.input(Input::Undelivered(back.receipt));
    let lost = call(&mut rig);
    rig.pass(s(12));
    let next = call(&mut rig);
    assert_ne!(next.receipt, lost.receipt);
    rig.settle(next.receipt, complete()).unwrap();
    call(&mut rig);
    assert_eq!(
        rig.target_stats().state,
        BreakerState::HalfOpen,
        "a word of somebody else's says nothing of it"
    );
}

#[test]
fn a_restart_finds_every_breaker_closed() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    rig.restart();
    assert_eq!(rig.target_stats().state, BreakerState::Closed);
    assert_eq!(rig.stats().held, None);
    assert_eq!(rig.take_calls().len(), 1, "it learns again");
}

#[test]
fn an_operator_closes_a_breaker_and_calls_go_out_at_once() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let Reply::Target(Ok(stats)) = rig.ask_now(Command::ResetTarget(name("till"))) else { panic!("told") };
    assert_eq!((stats.state, stats.state_for, stats.failures_in_row), (BreakerState::Closed, s(0), 0));
    assert_eq!((rig.stats().held, rig.take_calls().len()), (None, 1));
    assert_eq!(rig.notices.last(), Some(&Notice::BreakerClosed { target: name("till"), by_hand: true }));
    let told = rig.notices.len();
    rig.ask_now(Command::ResetTarget(name("till")));
    assert_eq!(rig.notices.len(), told, "twice is once");
    let unknown = rig.ask_now(Command::ResetTarget(name("tilt")));
    assert!(matches!(unknown, Reply::Target(Err(TargetError::Unknown))), "{unknown:?}");
}

#[test]
fn workers_are_served_while_the_breaker_is_open() {
    let mut rig = rig(1);
    rig.fill(20);
    break_down(&mut rig);
    let receipt = rig.lease_one();
    assert_eq!(rig.settle(receipt, complete()), Ok(()));
}

#[test]
fn without_a_breaker_calls_go_on_whatever_fails() {
    let mut rig = Rig::pushing(target(1), QueueSettings::default());
    rig.fill(40);
    for _ in 0..40 {
        let call = rig.take_calls().remove(0);
        rig.end_call(call.receipt, failed(false));
    }
    let stats = rig.target_stats();
    assert_eq!((stats.state, stats.failures_in_row, stats.next_probe), (BreakerState::Closed, 40, None));
}

#[test]
fn a_queue_that_is_given_another_target_is_held_by_that_ones_breaker_only() {
    let queue = |target: &str| QueueSettings { target: Some(name(target)), ..QueueSettings::default() };
    let targets = vec![(name("till"), guarded(1)), (name("desk"), guarded(1))];
    let mut rig = Rig::with(Declared { targets, queues: vec![(name(QUEUE), queue("till"))] });
    let define = |target| Command::Define { queue: name("moving"), settings: Box::new(queue(target)) };
    rig.ask_now(define("till"));
    rig.fill(20);
    break_down(&mut rig);
    let held = |rig: &mut Rig| match rig.ask_now(Command::Queue(name("moving"))) {
        Reply::Queue(view) => view.unwrap().stats.held,
        other => panic!("{other:?}"),
    };
    assert_eq!(held(&mut rig), Some(Held::BreakerOpen));
    rig.ask_now(define("desk"));
    assert_eq!(held(&mut rig), None);
    rig.ask_now(define("till"));
    assert_eq!(held(&mut rig), Some(Held::BreakerOpen));
    rig.ask_now(Command::Delete(name("moving")));
    rig.ask_now(define("till"));
    assert_eq!(held(&mut rig), Some(Held::BreakerOpen), "a new queue of an old target, too");
}

#[test]
fn everything_of_a_target_is_told() {
    let queue = || QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let queues =
        vec![(name(QUEUE), queue()), (name("second"), queue()), (name("alone"), QueueSettings::default())];
    let targets = vec![(name("till"), guarded(3)), (name("desk"), target(1))];
    let mut rig = Rig::with(Declared { targets, queues });
    rig.pass(s(3));
    rig.fill(9);
    let mut calls = Vec::new();
    let dead = CallOutcome::Dead { failure: failure() };
    for outcome in
        [succeeded(), failed(false), failed(true), throttled(Duration::ZERO), dead, CallOutcome::Interrupted]
    {
        calls.extend(rig.take_calls());
        rig.end_call(calls.remove(0).receipt, outcome);
    }
    let stats = rig.stats_of("till");
    assert_eq!(stats.queues, [name(QUEUE), name("second")]);
    assert_eq!(CallEnding::ALL.map(|ending| stats.ended(ending)), [1, 1, 1, 1, 1]);
    assert_eq!((stats.concurrency, stats.limit, stats.adaptive, stats.rate_per_second), (3, 3, false, None));
    assert_eq!((stats.state_for, stats.next_probe, stats.ramp_limit), (s(3), None, None));
    let Reply::Targets(all) = rig.ask_now(Command::Targets) else { panic!("told") };
    assert_eq!(all[0], stats);
    assert_eq!((all[1].name.as_str(), all[1].queues.len()), ("desk", 0));
    let unknown = rig.ask_now(Command::Target(name("tilt")));
    assert!(matches!(unknown, Reply::Target(Err(TargetError::Unknown))), "{unknown:?}");
}
