//! Push targets: cap, time-outs, throttling, pace, sharing.

use crate::rig::{QUEUE, Rig, complete, failed, message, ms, name, s, succeeded, target, throttled};
use millpond_core::command::{CallOutcome, Command, Declared, Input};
use millpond_core::message::{AttemptOutcome, DeadReason, Phase};
use millpond_core::rate::Rate;
use millpond_core::settings::{QueueSettings, RetrySettings, TargetSettings};
use std::time::Duration;

fn rig(concurrency: u32) -> Rig {
    Rig::pushing(target(concurrency), QueueSettings::default())
}

#[test]
fn no_more_calls_than_the_cap_are_under_way() {
    let mut rig = rig(3);
    rig.fill(10);
    let calls = rig.take_calls();
    assert_eq!(calls.len(), 3);
    rig.end_call(calls[1].receipt, succeeded());
    assert_eq!(rig.take_calls().len(), 1);
    assert_eq!(rig.target_stats().inflight, 3);
}

#[test]
fn a_timed_out_call_still_occupies_its_target() {
    let mut rig = rig(1);
    rig.fill(2);
    let call = rig.take_calls().remove(0);
    rig.end_call(call.receipt, failed(true));
    rig.pass(s(5) - ms(1));
    assert!(rig.take_calls().is_empty(), "the first call may still be worked on");
    assert_eq!(rig.target_stats().inflight, 1);
    rig.pass(ms(1));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn a_call_that_fails_at_once_frees_its_place_at_once() {
    let mut rig = rig(1);
    rig.fill(2);
    let call = rig.take_calls().remove(0);
    rig.end_call(call.receipt, failed(false));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn throttled_work_burns_no_attempt() {
    let mut rig = rig(2);
    let seq = rig.fill(1)[0];
    let call = rig.take_calls().remove(0);
    rig.end_call(call.receipt, throttled(s(10)));
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.attempts, message.deliveries), (0, 1));
    assert_eq!(rig.target_stats().throttled_for, s(10));
    rig.fill(3);
    rig.pass(s(10) - ms(1));
    assert!(rig.take_calls().is_empty(), "the target is left alone");
    rig.pass(ms(1));
    let calls = rig.take_calls();
    assert_eq!(calls[0].message.seq, seq, "in its old place");
}

#[test]
fn throttling_for_ever_ends_in_the_dead_letters() {
    let retry = RetrySettings { max_attempts: 1, max_deliveries: Some(4), ..RetrySettings::default() };
    let mut rig = Rig::pushing(target(1), QueueSettings { retry, ..QueueSettings::default() });
    let seq = rig.fill(1)[0];
    for _ in 0..4 {
        let call = rig.take_calls().remove(0);
        rig.end_call(call.receipt, throttled(s(1)));
        rig.pass(s(1));
    }
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.dead_reason, message.attempts), (Some(DeadReason::DeliveriesExhausted), 0));
}

#[test]
fn in_no_window_are_more_calls_started_than_the_rate_allows() {
    let rate = Some(Rate { events: 10, per: s(1) });
    let settings = TargetSettings { rate, ..target(1000) };
    let mut rig = Rig::pushing(settings, QueueSettings::default());
    let mut starts = Vec::new();
    for burst in 0..40_u64 {
        rig.fill(usize::try_from(burst % 7).unwrap());
        for _ in 0..13 {
            rig.pass(ms(17));
            starts.extend(rig.take_calls().iter().map(|_| rig.now.mono.0));
        }
    }
    assert!(starts.len() > 60, "{} calls", starts.len());
    for (first, &start) in starts.iter().enumerate() {
        for window_ms in [100, 1000, 5000] {
            let end = start + window_ms * 1000;
            let within = starts[first..].iter().take_while(|&&at| at < end).count();
            let allowed = usize::try_from(window_ms / 100 + 1).unwrap();
            // Times are seen up to one step of 17 ms late.
            assert!(within <= allowed + 1, "{within} calls in {window_ms} ms");
        }
    }
}

#[test]
fn a_paced_target_gets_its_next_call_without_any_other_event() {
    let settings = TargetSettings { rate: Some(Rate { events: 1, per: s(60) }), ..target(10) };
    let mut rig = Rig::pushing(settings, QueueSettings::default());
    rig.fill(3);
    assert_eq!(rig.take_calls().len(), 1);
    rig.pass(s(60));
    assert_eq!(rig.take_calls().len(), 1);
    rig.pass(s(60));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn a_call_that_is_never_reported_ends_with_its_lease_and_frees_its_place_later() {
    let mut rig = rig(1);
    let seq = rig.fill(1)[0];
    let call = rig.take_calls().remove(0);
    rig.pass(s(7));
    assert_eq!(rig.status(seq).unwrap().message.history[0].outcome, AttemptOutcome::LeaseExpired);
    assert!(rig.take_calls().is_empty(), "its place is held as after a time-out");
    rig.pass(s(5));
    assert_eq!(rig.take_calls().len(), 1);
    rig.end_call(call.receipt, failed(false));
    assert_eq!(rig.target_stats().inflight, 1, "a late word on the old call frees nothing");
}

#[test]
fn queues_take_turns_at_a_shared_target() {
    let settings = || QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let queues = vec![(name(QUEUE), settings()), (name("second"), settings())];
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), target(1))], queues });
    rig.fill(20);
    for _ in 0..4 {
        rig.enqueue_to("second", message()).unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..9 {
        let call = rig.take_calls().remove(0);
        order.push(call.queue.as_str().to_owned());
        rig.end_call(call.receipt, succeeded());
    }
    let second = order.iter().filter(|queue| *queue == "second").count();
    assert_eq!(second, 4, "{order:?}");
}

#[test]
fn enqueues_do_not_shift_the_turns_at_a_paced_target() {
    let settings = || QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let queues = vec![(name(QUEUE), settings()), (name("second"), settings())];
    let till = TargetSettings { rate: Some(Rate { events: 1, per: s(1) }), ..target(10) };
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), till)], queues });
    rig.fill(20);
    for _ in 0..10 {
        rig.enqueue_to("second", message()).unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..10 {
        // One enqueue between two calls: whoever counts it as a turn serves one queue alone.
        rig.fill(1);
        order.extend(rig.take_calls().iter().map(|call| call.queue.as_str().to_owned()));
        rig.pass(s(1));
    }
    let second = order.iter().filter(|queue| *queue == "second").count();
    assert!((4..=6).contains(&second), "{order:?}");
}

#[test]
fn the_cap_of_a_target_bounds_push_and_pull_of_its_queue_together() {
    let mut rig = rig(2);
    rig.pause(true);
    rig.fill(10);
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pause(false);
    assert!(rig.answer(waiting).is_some());
    assert_eq!(rig.take_calls().len(), 1, "one with a worker, one pushed");
    assert!(rig.lease(5).is_empty());
    assert_eq!(rig.stats().leased, 2);
}

#[test]
fn a_call_is_settled_at_its_own_target_though_the_queue_has_got_another() {
    let define = |target: Option<&str>| {
        let settings = QueueSettings { target: target.map(name), ..QueueSettings::default() };
        Command::Define { queue: name("moving"), settings: Box::new(settings) }
    };
    for new_target in [Some("second"), None] {
        let targets = vec![(name("till"), target(1)), (name("second"), target(1))];
        let own = QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
        let mut rig = Rig::with(Declared { targets, queues: vec![(name(QUEUE), own)] });
        rig.ask_now(define(Some("till")));
        let seq = rig.enqueue_to("moving", message()).unwrap().seq;
        let call = rig.take_calls().remove(0);
        rig.fill(1);
        rig.ask_now(define(new_target));
        rig.end_call(call.receipt, succeeded());
        assert_eq!(rig.phase(seq), Phase::Succeeded, "{new_target:?}");
        let next = rig.take_calls();
        assert_eq!(next.len(), 1, "the freed place at the old target is used at once");
        assert_eq!(next[0].queue.as_str(), QUEUE);
    }
}

#[test]
fn a_call_may_be_answered_late_while_nobody_else_was_called() {
    let mut rig = rig(1);
    let seq = rig.fill(1)[0];
    let call = rig.take_calls().remove(0);
    rig.pass(s(8));
    rig.end_call(call.receipt, succeeded());
    assert_eq!(rig.phase(seq), Phase::Succeeded);
    rig.pass(s(30));
    assert_eq!(rig.target_stats().inflight, 0);
}

#[test]
fn whatever_way_calls_end_the_target_is_empty_in_the_end() {
    let mut rig = rig(4);
    rig.fill(40);
    for round in 0..200_u64 {
        for call in rig.take_calls() {
            let outcome = match (round + call.receipt.seq.0) % 7 {
                0 => failed(true),
                1 => failed(false),
                2 => throttled(ms(300)),
                3 => CallOutcome::Interrupted,
                4 => continue,
                5 => CallOutcome::Dead { failure: crate::rig::failure() },
                _ => succeeded(),
            };
            rig.end_call(call.receipt, outcome);
        }
        rig.pass(s(20));
    }
    let stats = rig.stats();
    assert_eq!((stats.ready, stats.leased, stats.backoff), (0, 0, 0));
    assert_eq!(rig.target_stats().inflight, 0);
    assert!(rig.pond.is_idle());
}

#[test]
fn a_queues_own_cap_below_the_targets_leaves_places_to_others() {
    let own =
        |concurrency| QueueSettings { target: Some(name("till")), concurrency, ..QueueSettings::default() };
    let queues = vec![(name(QUEUE), own(Some(1))), (name("second"), own(None))];
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), target(3))], queues });
    rig.fill(5);
    assert_eq!(rig.take_calls().len(), 1);
    for _ in 0..5 {
        rig.enqueue_to("second", message()).unwrap();
    }
    assert_eq!(rig.take_calls().len(), 2);
}

#[test]
fn a_drained_pond_starts_no_calls() {
    let mut rig = rig(1);
    rig.fill(2);
    let call = rig.take_calls().remove(0);
    rig.input(Input::Drain);
    rig.end_call(call.receipt, succeeded());
    rig.pass(Duration::from_mins(1));
    assert!(rig.take_calls().is_empty() && rig.pond.is_idle());
    let _ = complete();
}

#[test]
fn nothing_is_pushed_once_nobody_makes_calls_and_what_was_taken_back_is_ready() {
    let mut rig = rig(3);
    rig.fill(10);
    let calls = rig.take_calls();
    assert_eq!(calls.len(), 3);
    rig.input(Input::Unattended);
    for call in calls {
        rig.input(Input::Undelivered(call.receipt));
    }
    assert!(rig.take_calls().is_empty());
    let stats = rig.stats();
    assert_eq!((stats.ready, stats.leased, stats.predicted_wait), (10, 0, None));
    assert_eq!(rig.target_stats().inflight, 0);
    assert_eq!(rig.lease(10).len(), 3, "workers are served all the same, under the target's cap");
}
