//! The adaptive limit holds its bounds on virtual time: what is asserted here is what docs/guide/dispatch.md shows.

use millpond_sim::dispatch::{Algorithm, Measured, Run, Scenario, run};
use std::time::Duration;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

fn each(scenario: &Scenario, algorithm: Algorithm) -> Vec<Run> {
    SEEDS.map(|seed| run(scenario, algorithm, seed)).collect()
}

fn scenario(name: &str) -> Scenario {
    Scenario::others().into_iter().find(|scenario| scenario.name.contains(name)).unwrap()
}

/// What a limit is for: the capacity used, and little queued for it.
fn assert_sustainable(measured: &Measured, capacity_min: f64) {
    assert!(measured.of_capacity >= capacity_min, "{measured:?}");
    assert!(measured.times_unloaded <= 2.5, "{measured:?}");
}

#[test]
fn under_a_standing_backlog_the_capacity_is_used_and_latency_stays_low_before_and_after_halving() {
    for run in each(&Scenario::usual(), Algorithm::Adaptive) {
        for measured in [&run.early, &run.before, &run.halved, &run.doubled] {
            assert_sustainable(measured, 0.95);
        }
        for found in [run.started_in, run.halved_in, run.doubled_in] {
            assert!(found.is_some_and(|found| found <= Duration::from_secs(15)), "{run:?}");
        }
    }
}

#[test]
fn a_target_that_refuses_at_once_is_hardly_ever_asked_too_much() {
    for run in each(&Scenario::refusing(), Algorithm::Adaptive) {
        assert_eq!((run.refused_before, run.refused_halved), (0.0, 0.0), "{run:?}");
        assert_sustainable(&run.before, 0.95);
        assert_sustainable(&run.halved, 0.95);
    }
    for run in each(&scenario("without a queue"), Algorithm::Adaptive) {
        assert!(run.refused_before < 0.005 && run.refused_halved < 0.03, "{run:?}");
        assert_sustainable(&run.before, 0.93);
        assert_sustainable(&run.halved, 0.93);
    }
}

#[test]
fn neither_the_spread_nor_the_length_of_work_nor_the_network_nor_the_size_of_the_target_misleads_it() {
    for name in ["log-normal", "always", "network", "2 s", "2 servers", "200 servers"] {
        let runs = each(&scenario(name), Algorithm::Adaptive);
        for of in [|run: &Run| run.before, |run: &Run| run.halved] {
            let measured: Vec<Measured> = runs.iter().map(of).collect();
            let mean = measured.iter().map(|one| one.of_capacity).sum::<f64>() / measured.len() as f64;
            assert!(mean >= 0.94, "{name}: {measured:?}");
            // One server is fully used with one call and a second one waiting.
            let most = if name == "2 servers" { 3.0 } else { 2.5 };
            assert!(measured.iter().all(|one| one.times_unloaded <= most), "{name}: {measured:?}");
        }
    }
}

#[test]
fn a_cap_below_the_optimum_is_used_as_if_it_were_fixed() {
    for run in each(&scenario("cap of 12"), Algorithm::Adaptive) {
        assert_sustainable(&run.before, 0.95);
        assert!(run.before.limit > 11.5 && run.before.limit <= 12.0, "{run:?}");
    }
}

#[test]
fn a_latency_objective_is_met() {
    for run in each(&Scenario::usual(), Algorithm::Objective(Duration::from_millis(150))) {
        for measured in [&run.before, &run.halved] {
            assert_sustainable(measured, 0.95);
        }
    }
}

#[test]
fn the_others_fail_each_in_its_way() {
    let usual = Scenario::usual();
    let gradient = run(&usual, Algorithm::Gradient2, 1);
    assert!(gradient.before.times_unloaded > 10.0, "its baseline drifts: {gradient:?}");
    let vegas = run(&usual, Algorithm::Vegas, 1);
    assert!(vegas.before.of_capacity < 0.5, "one lucky call is its baseline: {vegas:?}");
    let aimd = run(&usual, Algorithm::Aimd, 1);
    assert!(aimd.before.times_unloaded > 50.0, "it goes on to the time-out: {aimd:?}");
    let refused = run(&Scenario::refusing(), Algorithm::Aimd, 1);
    assert!(refused.refused_before > 0.1, "{refused:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let short = Scenario { ends_at: Duration::from_mins(5), ..Scenario::refusing() };
    let [first, again, other] = [3, 3, 4].map(|seed| run(&short, Algorithm::Adaptive, seed));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn the_guide_shows_every_row() {
    let guide = include_str!("../../../../docs/guide/dispatch.md");
    let algorithms = Algorithm::ALL.into_iter().map(Algorithm::name);
    let scenarios = Scenario::others().into_iter().map(|scenario| scenario.name.to_owned());
    for name in algorithms.chain(scenarios) {
        assert!(guide.contains(&format!("\n| {name} | ")), "{name}: print the tables anew");
    }
}
