//! One target that is down never slows another: on virtual time, what a healthy one gets is the same to the microsecond.

use crate::rig::{Rig, failed, message, ms, name, s, succeeded, target};
use millpond_core::command::{CallOutcome, Declared};
use millpond_core::identity::Receipt;
use millpond_core::settings::{BreakerSettings, QueueSettings, TargetSettings};
use millpond_core::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a target does with every call.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Does it in this time.
    Works(Duration),
    /// Takes the call and never answers.
    Hangs,
    /// Takes no connection.
    Refuses,
}

const TIMEOUT: Duration = s(3);
/// How long scenes last: longer than it takes a target to time out, and to be tried again.
const TIME: Duration = s(12);

impl Way {
    fn end(self) -> (Duration, CallOutcome) {
        match self {
            Self::Works(time) => (time, succeeded()),
            Self::Hangs => (TIMEOUT, failed(true)),
            Self::Refuses => (ms(1), failed(false)),
        }
    }
}

/// Targets by name, and queues with the target of each and what arrives every so often.
struct Scene {
    targets: Vec<(&'static str, Way, Option<BreakerSettings>)>,
    queues: Vec<(&'static str, &'static str, Duration)>,
}

/// When each message of a queue was accepted, began and ended.
type Times = BTreeMap<String, Vec<(i64, i64, i64)>>;

/// Plays a scene for so long.
fn play(scene: &Scene, time: Duration) -> Times {
    let settings = |breaker| TargetSettings { breaker, timeout: TIMEOUT, ..target(4) };
    let targets = scene.targets.iter().map(|(till, _, breaker)| (name(till), settings(*breaker)));
    let queue = |till: &str| QueueSettings { target: Some(name(till)), ..QueueSettings::default() };
    let queues = scene.queues.iter().map(|(queued, till, _)| (name(queued), queue(till)));
    let mut rig = Rig::with(Declared { targets: targets.collect(), queues: queues.collect() });
    let ways: BTreeMap<&str, Way> = scene.targets.iter().map(|(till, way, _)| (*till, *way)).collect();
    let mut ends: Vec<(Mono, u64, Receipt, CallOutcome)> = Vec::new();
    let (mut times, mut arrived) = (Times::new(), BTreeMap::new());
    let (mut number, end) = (0, rig.now.mono.plus(time));
    let mut arrivals: Vec<(Mono, &str, Duration)> =
        scene.queues.iter().map(|(queue, _, every)| (rig.now.mono, *queue, *every)).collect();
    loop {
        let first = arrivals.iter().map(|arrival| arrival.0).chain(ends.iter().map(|end| end.0)).min();
        let at = first.into_iter().chain(rig.pond.next_wakeup()).min().unwrap().max(rig.now.mono);
        if at > end {
            return times;
        }
        let wait = at.since(rig.now.mono);
        rig.pass(wait);
        for (when, queue, every) in arrivals.iter_mut().filter(|arrival| arrival.0 <= at) {
            let seq = rig.enqueue_to(queue, message()).unwrap().seq;
            arrived.insert(seq, rig.now.mono.0);
            *when = when.plus(*every);
        }
        ends.sort_by_key(|end| (end.0, end.1));
        while ends.first().is_some_and(|end| end.0 <= at) {
            let (_, _, receipt, outcome) = ends.remove(0);
            rig.end_call(receipt, outcome);
        }
        for call in rig.take_calls() {
            let till = call.message.hand_out.as_ref().unwrap().holder.target().unwrap().as_str().to_owned();
            let (after, outcome) = ways[till.as_str()].end();
            let ended = rig.now.mono.plus(after);
            number += 1;
            ends.push((ended, number, call.receipt, outcome));
            let seen = (arrived[&call.receipt.seq], rig.now.mono.0, ended.0);
            times.entry(call.queue.as_str().to_owned()).or_default().push(seen);
        }
    }
}

fn breakers() -> [Option<BreakerSettings>; 2] {
    [None, Some(BreakerSettings::default())]
}

#[test]
fn a_target_that_hangs_and_one_that_refuses_slow_no_other() {
    let work = Way::Works(ms(90));
    let alone = Scene { targets: vec![("well", work, None)], queues: vec![("good", "well", ms(27))] };
    let alone = play(&alone, TIME);
    assert!(alone["good"].len() > 400);
    for breaker in breakers() {
        let targets =
            vec![("hung", Way::Hangs, breaker), ("shut", Way::Refuses, breaker), ("well", work, breaker)];
        let queues = vec![("good", "well", ms(27)), ("stuck", "hung", ms(300)), ("gone", "shut", ms(300))];
        let beside = play(&Scene { targets, queues }, TIME);
        assert_eq!(beside["good"], alone["good"], "when each was accepted, began and ended");
        assert!(!beside["stuck"].is_empty() && !beside["gone"].is_empty());
    }
}

#[test]
fn queues_that_share_a_target_are_served_alike_whatever_others_do() {
    let work = Way::Works(ms(90));
    let sharing = || vec![("good", "well", ms(30)), ("kind", "well", ms(45))];
    let alone = play(&Scene { targets: vec![("well", work, None)], queues: sharing() }, TIME);
    for breaker in breakers() {
        let mut queues = sharing();
        queues.extend([("stuck", "hung", ms(300)), ("mired", "hung", ms(210)), ("gone", "shut", ms(300))]);
        let targets =
            vec![("hung", Way::Hangs, breaker), ("shut", Way::Refuses, breaker), ("well", work, breaker)];
        let beside = play(&Scene { targets, queues }, TIME);
        for queue in ["good", "kind"] {
            assert_eq!(beside[queue], alone[queue], "{queue}");
        }
    }
}

#[test]
fn a_breaker_spares_a_dead_target_almost_every_call() {
    let scene = |breaker| Scene {
        targets: vec![("shut", Way::Refuses, breaker)],
        queues: vec![("gone", "shut", ms(200))],
    };
    let [without, with] = breakers().map(|breaker| play(&scene(breaker), s(120))["gone"].len());
    assert!(without > 1500, "{without}");
    assert!(with <= 20, "{with}: ten failures, and then a probe a minute at most");
}
