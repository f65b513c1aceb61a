//! In no window of any length do more calls of a target begin than rate × window + 1, whatever happens: failures that open
//! its breaker, pauses, ramps, restarts, steps of the wall clock forwards.

use crate::rig::{Rig, failed, ms, s, succeeded, target, throttled};
use millpond_core::command::Command;
use millpond_core::rate::Rate;
use millpond_core::settings::{
    AdaptiveSettings, BreakerSettings, QueueSettings, RetrySettings, TargetSettings,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Fill(usize),
    Pass(u64),
    /// Every call under way ends: well, badly, with a pause of so many milliseconds.
    Succeed,
    Fail(bool),
    Throttle(u64),
    Pause(bool),
    Reset,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20_usize).prop_map(Step::Fill),
        8 => prop_oneof![4 => 0..400_u64, 2 => 0..5_000_u64, 1 => 20_000..60_000_u64].prop_map(Step::Pass),
        4 => Just(Step::Succeed),
        4 => any::<bool>().prop_map(Step::Fail),
        1 => (0..3_000_u64).prop_map(Step::Throttle),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => Just(Step::Reset),
        1 => Just(Step::Restart),
    ]
}

fn till() -> impl Strategy<Value = TargetSettings> {
    let rate = (1..40_u32, prop_oneof![Just(s(1)), Just(s(7)), Just(ms(300))]);
    let ramp = prop_oneof![Just(None), Just(Some(s(0))), Just(Some(s(2))), Just(Some(s(20)))];
    (rate, ramp, 1..50_u32, any::<bool>(), 1..5_u32).prop_map(
        |((events, per), ramp, concurrency, adaptive, failures)| TargetSettings {
            rate: Some(Rate { events, per }),
            breaker: Some(BreakerSettings { failures, probe_max: s(3), ..BreakerSettings::default() }),
            adaptive: adaptive.then(AdaptiveSettings::default),
            ramp,
            ..target(concurrency)
        },
    )
}

fn apply(rig: &mut Rig, step: &Step, starts: &mut Vec<i64>) {
    let ends = match *step {
        Step::Succeed => Some(succeeded()),
        Step::Fail(timed_out) => Some(failed(timed_out)),
        Step::Throttle(pause) => Some(throttled(ms(pause))),
        _ => None,
    };
    if let Some(outcome) = ends {
        for call in rig.take_calls() {
            starts.push(begun(rig, &call));
            rig.end_call(call.receipt, outcome.clone());
        }
    }
    match *step {
        Step::Fill(count) => drop(rig.fill(count)),
        Step::Pass(millis) => rig.pass(ms(millis)),
        Step::Pause(paused) => rig.pause(paused),
        Step::Reset => drop(rig.ask_now(Command::ResetTarget(crate::rig::name("till")))),
        Step::Restart => {
            let calls = rig.take_calls();
            starts.extend(calls.iter().map(|call| begun(rig, call)));
            rig.restart();
        }
        _ => {}
    }
}

/// When a call began; the wall clock is never set here.
fn begun(rig: &Rig, call: &millpond_core::command::Leased) -> i64 {
    rig.now.mono_at(call.message.hand_out.as_ref().unwrap().started).0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_window_begins_more_calls_than_the_rate_allows(
        till in till(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let rate = till.rate.unwrap().per_second();
        let retry = RetrySettings { max_attempts: 1000, backoff_max: s(2), ..RetrySettings::default() };
        let mut rig = Rig::pushing(till, QueueSettings { retry, ..QueueSettings::default() });
        let mut starts = Vec::new();
        for step in steps {
            apply(&mut rig, &step, &mut starts);
        }
        let left = rig.take_calls();
        starts.extend(left.iter().map(|call| begun(&rig, call)));
        starts.sort_unstable();
        for (index, start) in starts.iter().enumerate() {
            for (more, end) in starts[index..].iter().enumerate() {
                let window = (end - start + 2) as f64 / 1e6;
                prop_assert!(more as f64 + 1.0 <= rate * window + 1.0, "{} calls in {window} s", more + 1);
            }
        }
    }
}
