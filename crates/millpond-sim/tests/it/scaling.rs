//! An autoscaler that follows the signal does what is promised: what is asserted here is what docs/guide/scaling.md says.

use millpond_sim::promises::Service;
use millpond_sim::scaling::{Run, Scenario, run};
use std::time::Duration;

const fn mins(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn seen(scenario: &Scenario, seed: u64) -> Run {
    let run = run(scenario, seed).unwrap();
    assert_eq!(run.done, run.accepted, "everything is done");
    // While workers are starting, the door counts with those there are: a few may be refused that could have been done.
    assert!(run.refused * 1_000 <= run.accepted, "{} of {}", run.refused, run.accepted);
    for look in &run.looks {
        assert!(scenario.ceiling.is_none_or(|ceiling| look.wanted <= u64::from(ceiling)), "{look:?}");
        assert!(look.wanted > 0 || look.ready == 0, "never none while something waits: {look:?}");
    }
    run
}

#[test]
fn the_enrollment_spike_is_worked_off_within_the_promise_below_the_ceiling_and_without_a_swing() {
    let scenario = Scenario::enrollment();
    let run = seen(&scenario, 1);
    assert!(run.longest_wait <= mins(45), "{:?}", run.longest_wait);
    assert!(run.at_work_max <= 40);
    // Up with the spike, down after it, and nothing of note in between.
    assert_eq!(run.turns(5), 1, "{:?}", run.looks);
    let (before_least, before_most) = run.wanted_between(mins(3), mins(5));
    assert!(before_least >= 7 && before_most <= 14, "L is eight: {before_least} to {before_most}");
    assert_eq!(run.wanted_between(mins(7), mins(15)), (40, 40), "the ceiling all through the spike");
    let always_forty = 40.0 * scenario.length.as_secs_f64();
    assert!(run.worker_seconds < 0.95 * always_forty, "{} worker seconds", run.worker_seconds);
    let wait = millpond_sim::text::seconds(run.longest_wait.as_secs_f64());
    let came = millpond_sim::text::count(run.accepted + run.refused);
    assert_says(&[
        ("refused of all", format!("| {} of {came} |", run.refused)),
        ("longest wait until a start", format!("| {wait} |")),
        ("at work at once, at most", format!("| {} |", run.at_work_max)),
        ("wanted before the spike", format!("| {before_least} to {before_most} |")),
        ("worker time against 40", format!("| {:.0} % |", 100.0 * run.worker_seconds / always_forty)),
    ]);
}

#[test]
fn without_a_ceiling_a_short_promise_is_kept_once_workers_have_had_the_time_to_start() {
    // 20/s more for five minutes, one second each, to begin within a minute; a worker starts in 20 s. The queue itself
    // promises nothing, and refuses nothing.
    let scenario = Scenario {
        normal_per_second: 5.0,
        spike_per_second: 25.0,
        spike_for: mins(5),
        length: mins(20),
        service_time: Duration::from_secs(1),
        service: Service::LogNormal,
        max_wait: None,
        target_wait: Some(mins(1)),
        ceiling: None,
        start_up: Duration::from_secs(20),
        ..Scenario::enrollment()
    };
    let run = seen(&scenario, 2);
    assert!(run.longest_wait <= mins(1), "{:?}", run.longest_wait);
    let (_, most) = run.wanted_between(mins(5), mins(10));
    assert!(most <= 3 * 25, "no more than a backlog of a start-up time justifies: {most}");
}

#[test]
fn a_steady_load_keeps_its_workers_and_a_seldom_one_has_none_in_between() {
    let steady = Scenario { spike_per_second: 10.0, length: mins(40), ..Scenario::enrollment() };
    let run = seen(&steady, 3);
    let (least, most) = run.wanted_between(mins(5), mins(40));
    assert!(least >= 7 && most <= 14, "ten a second of 0.8 s keep eight at work: {least} to {most}");
    let seldom = Scenario {
        normal_per_second: 1.0 / 300.0,
        spike_per_second: 1.0 / 300.0,
        length: mins(240),
        ..Scenario::enrollment()
    };
    let run = seen(&seldom, 4);
    let idle = run.looks.iter().filter(|look| look.wanted == 0).count();
    assert!(run.done > 20 && idle * 10 > run.looks.len() * 5, "{idle} of {}", run.looks.len());
    assert!(run.looks.iter().all(|look| look.wanted <= 2), "one after the other");
}

#[test]
fn an_autoscaler_that_waits_before_it_takes_away_changes_nothing_but_the_cost() {
    let plain = Scenario { spike_for: mins(2), length: mins(15), ..Scenario::enrollment() };
    let slow = Scenario { stabilization: mins(5), ..plain.clone() };
    let runs = [seen(&plain, 5), seen(&slow, 5)];
    for run in &runs {
        assert!(run.turns(5) <= 1, "{:?}", run.looks);
    }
    assert!(runs[1].worker_seconds >= runs[0].worker_seconds);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let short = Scenario { length: mins(7), ..Scenario::enrollment() };
    let [first, again, other] = [6, 6, 7].map(|seed| run(&short, seed).unwrap());
    assert_eq!(first, again);
    assert_ne!(first, other);
}

/// A poller that starts with five calls at once and adds so many a minute: how long until it keeps up, what waits then,
/// and how long what arrives then waits.
fn ramp(added_per_minute: f64, arrivals_per_second: f64, service_seconds: f64) -> (f64, f64, f64) {
    const STARTS_WITH: f64 = 5.0;
    let needed = arrivals_per_second * service_seconds;
    let seconds = (needed - STARTS_WITH) / (added_per_minute / 60.0);
    // What is missing falls in a straight line, so that half of the rectangle waits.
    let waiting = seconds * (arrivals_per_second - STARTS_WITH / service_seconds) / 2.0;
    (seconds, waiting, waiting / arrivals_per_second)
}

/// The guide must say these, each in a line with what it is about.
fn assert_says(figures: &[(&str, String)]) {
    let guide = include_str!("../../../../docs/guide/scaling.md");
    let is_said = |(about, figure): &&(&str, String)| {
        guide.lines().any(|line| line.contains(about) && line.contains(figure.as_str()))
    };
    let missing: Vec<_> = figures.iter().filter(|figure| !is_said(figure)).collect();
    assert!(missing.is_empty(), "docs/guide/scaling.md does not say {missing:?}");
}

#[test]
fn the_guide_s_arithmetic_is_right() {
    use millpond_sim::text::{count, number};
    let (fast, slow) = (ramp(300.0, 2_000.0, 0.08), ramp(60.0, 2_000.0, 0.08));
    let left = 100_u64 - 3 - 20;
    let replicas = left / 10;
    let instances = 40_u64 / 16;
    assert_says(&[
        ("the ramp to 160 takes", format!("| {:.0} s | {:.0} s |", fast.0, slow.0)),
        ("waiting by then", format!("| {} | {} |", number(fast.1.floor()), number(slow.1.floor()))),
        ("what arrives then waits", format!("| {:.1} s | {:.1} s |", fast.2, slow.2)),
        ("left for workers", format!("| {left} |")),
        ("replicas, at most", format!("**{replicas}**")),
        ("concurrency", format!("| {} |", replicas * 10)),
        ("backlog per instance", format!("| {} |", 1_500 / 10)),
        ("acceptable: 10 s", format!("| {:.0} |", 10.0 / 0.1)),
        ("instances for it", format!("| {} |", (10_u64 * 150).div_ceil(100))),
        ("900,000 messages that is", count(900_000_u64.div_ceil(16))),
        ("functionAppScaleLimit", format!("is {instances} (")),
        ("at the", "160 workers".to_owned()),
    ]);
}
