//! A cold target, or one that was down, gets its limit step by step.

use crate::rig::{Rig, failed, message, ms, s, succeeded, target, throttled};
use millpond_core::breaker::BreakerState;
use millpond_core::rate::Rate;
use millpond_core::settings::{AdaptiveSettings, BreakerSettings, QueueSettings, TargetSettings};
use std::time::Duration;

fn rig(till: TargetSettings) -> Rig {
    Rig::pushing(till, QueueSettings { expected_service_time: Some(s(1)), ..QueueSettings::default() })
}

fn ramped(concurrency: u32) -> TargetSettings {
    TargetSettings { ramp: Some(s(8)), timeout: s(600), ..target(concurrency) }
}

/// How many calls are under way after each of these times, none of which ends.
fn inflight(rig: &mut Rig, after: &[Duration]) -> Vec<u64> {
    let mut gone = Duration::ZERO;
    let mut seen = Vec::new();
    for at in after {
        rig.pass(*at - gone);
        gone = *at;
        seen.push(rig.target_stats().inflight);
    }
    seen
}

const MOMENTS: [Duration; 6] = [ms(0), ms(1999), ms(2000), ms(4000), ms(6000), ms(8000)];

#[test]
fn a_target_that_nobody_has_called_yet_gets_its_places_step_by_step() {
    let mut rig = rig(ramped(40));
    rig.fill(50);
    assert_eq!(inflight(&mut rig, &MOMENTS), [4, 4, 8, 16, 32, 40]);
    assert_eq!(rig.target_stats().ramp_limit, None);
}

#[test]
fn without_a_ramp_it_gets_them_at_once() {
    for ramp in [None, Some(Duration::ZERO)] {
        let mut rig = rig(TargetSettings { ramp, ..ramped(40) });
        rig.fill(50);
        assert_eq!((rig.target_stats().inflight, rig.target_stats().ramp_limit), (40, None));
    }
}

#[test]
fn half_a_minute_without_a_call_makes_a_target_cold_and_less_does_not() {
    for (idle, is_cold) in [(s(30) - ms(1), false), (s(30), true)] {
        let mut rig = rig(ramped(40));
        rig.fill(1);
        let call = rig.take_calls().remove(0);
        rig.pass(s(20));
        rig.end_call(call.receipt, succeeded());
        rig.pass(idle);
        rig.fill(50);
        assert_eq!(rig.target_stats().inflight, if is_cold { 4 } else { 40 });
        assert_eq!(rig.target_stats().ramp_limit, is_cold.then_some(4));
    }
}

#[test]
fn a_long_call_keeps_a_target_warm_and_a_long_pause_makes_it_cold() {
    let mut rig = rig(ramped(40));
    rig.fill(1);
    let call = rig.take_calls().remove(0);
    rig.pass(s(60));
    rig.fill(50);
    assert_eq!(rig.target_stats().inflight, 40, "one call is under way");
    rig.end_call(call.receipt, throttled(s(60)));
    for call in rig.take_calls() {
        rig.end_call(call.receipt, succeeded());
    }
    rig.pass(s(60));
    assert_eq!(rig.target_stats().inflight, 4);
}

#[test]
fn a_restart_makes_every_target_cold() {
    let mut rig = rig(ramped(40));
    rig.fill(90);
    rig.pass(s(8));
    let calls = rig.take_calls();
    for call in &calls[2..] {
        rig.end_call(call.receipt, succeeded());
    }
    rig.restart();
    assert_eq!(rig.target_stats().inflight, 40, "those under way still occupy it");
    rig.pass(s(700));
    assert_eq!(rig.target_stats().ramp_limit, None);
    rig.restart();
    rig.pass(s(1300));
    let stats = rig.target_stats();
    assert!(stats.inflight >= 1 && stats.ramp_limit.is_none_or(|part| stats.inflight <= part), "{stats:?}");
}

/// A target that is down, and to which no call is under way.
fn broken(ramp: Option<Duration>) -> Rig {
    let breaker = Some(BreakerSettings::default());
    let mut rig = rig(TargetSettings { breaker, ramp, timeout: s(600), ..target(40) });
    rig.fill(200);
    while rig.target_stats().state == BreakerState::Closed {
        for call in rig.take_calls() {
            rig.end_call(call.receipt, failed(false));
        }
    }
    for call in rig.take_calls() {
        rig.end_call(call.receipt, succeeded());
    }
    rig
}

/// A target that was down and has just answered two probes.
fn recovered(ramp: Option<Duration>) -> Rig {
    let mut rig = broken(ramp);
    let wait = rig.target_stats().next_probe.unwrap();
    rig.pass(wait);
    for _ in 0..2 {
        let probe = rig.take_calls().remove(0);
        rig.end_call(probe.receipt, succeeded());
    }
    assert_eq!(rig.target_stats().state, BreakerState::Closed);
    rig
}

#[test]
fn after_a_breaker_has_closed_there_is_a_ramp_of_ten_seconds_unless_something_else_is_said() {
    let steps = |ramp, moments: &[Duration]| inflight(&mut recovered(ramp), moments);
    let tenth = [ms(0), ms(2499), ms(2500), ms(5000), ms(7500), s(10)];
    assert_eq!(steps(None, &tenth), [4, 4, 8, 16, 32, 40]);
    assert_eq!(steps(Some(s(8)), &MOMENTS), [4, 4, 8, 16, 32, 40]);
    assert_eq!(steps(Some(Duration::ZERO), &[ms(0)]), [40]);
}

#[test]
fn an_operator_who_closes_a_breaker_gets_a_ramp_too() {
    let mut rig = broken(None);
    rig.ask_now(millpond_core::command::Command::ResetTarget(crate::rig::name("till")));
    assert_eq!(rig.target_stats().inflight, 4);
}

#[test]
fn a_rate_climbs_like_the_places() {
    let rate = Some(Rate { events: 10, per: s(1) });
    let mut rig = rig(TargetSettings { rate, ..ramped(1000) });
    rig.fill(200);
    let mut begun = Vec::new();
    for _ in 0..5 {
        rig.pass(s(2));
        begun.push(rig.take_calls().len());
    }
    // At one, two, four and eight a second, and then at ten.
    assert_eq!(begun[..4].iter().sum::<usize>(), 31, "{begun:?}");
    assert!(begun[..4].is_sorted() && begun[0] <= 3, "{begun:?}");
    assert!((19..=21).contains(&begun[4]), "{begun:?}");
}

#[test]
fn a_slow_rate_is_not_made_slower_by_a_short_ramp() {
    let rate = Some(Rate { events: 1, per: s(60) });
    let mut rig = rig(TargetSettings { rate, ..ramped(10) });
    rig.fill(3);
    assert_eq!(rig.take_calls().len(), 1);
    rig.pass(s(60));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn of_ramp_and_adaptive_limit_the_smaller_counts() {
    let adaptive = Some(AdaptiveSettings::default());
    let mut rig = rig(TargetSettings { adaptive, ..ramped(40) });
    rig.fill(600);
    let mut most = 0;
    for _ in 0..120 {
        rig.pass(ms(100));
        let stats = rig.target_stats();
        assert!(stats.inflight <= stats.limit.min(stats.ramp_limit.unwrap_or(u64::MAX)), "{stats:?}");
        most = most.max(stats.inflight);
        for call in rig.take_calls() {
            rig.end_call(call.receipt, succeeded());
        }
    }
    assert!(most >= 8, "it climbs: {most}");
}

#[test]
fn a_promise_counts_with_the_ramp() {
    let mut rig = rig(ramped(40));
    rig.fill(401);
    // 397 wait for 40 places of a second each; the ramp costs 5 s of the first 8.
    let promised = rig.enqueue(message()).unwrap().promise.unwrap().p50.as_secs_f64();
    assert!((14.5..15.5).contains(&promised), "{promised}");
    rig.pass(s(4));
    let lost = rig.stats().predicted_wait.unwrap().as_secs_f64();
    assert!(
        (11.0..13.0).contains(&lost),
        "{lost}: a fifth of the ramp's loss is left, and more is under way"
    );
    let mut one = self::rig(TargetSettings { ramp: Some(s(8)), ..target(1) });
    one.fill(2);
    let promised = one.enqueue(message()).unwrap().promise.unwrap().p50.as_secs_f64();
    assert!(promised < 2.5, "{promised}: one place has no part");
}
