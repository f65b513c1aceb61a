//! The engine under a swarm of faults: six hundred seeds, those that failed once, and whether a seed is a run.
//!
//! Owns the seeds. Must never know what a run does.

#[path = "../swarm/mod.rs"]
mod harness;

use harness::Marks;
use std::fmt::Write as _;

/// Seeds per test, so that the tests run side by side.
const SEEDS: u64 = 30;

fn run_from(first: u64) {
    for seed in first..first + SEEDS {
        let report = harness::run(seed, false);
        assert!(report.steps > 0 && report.summary.acknowledged + report.summary.refused > 0, "seed {seed}");
    }
}

macro_rules! seeds {
    ($($name:ident: $first:expr,)*) => {
        $(
            #[test]
            fn $name() {
                run_from($first);
            }
        )*
    };
}

seeds! {
    seeds_from_0_keep_every_invariant_and_drain: 0,
    seeds_from_30_keep_every_invariant_and_drain: 30,
    seeds_from_60_keep_every_invariant_and_drain: 60,
    seeds_from_90_keep_every_invariant_and_drain: 90,
    seeds_from_120_keep_every_invariant_and_drain: 120,
    seeds_from_150_keep_every_invariant_and_drain: 150,
    seeds_from_180_keep_every_invariant_and_drain: 180,
    seeds_from_210_keep_every_invariant_and_drain: 210,
    seeds_from_240_keep_every_invariant_and_drain: 240,
    seeds_from_270_keep_every_invariant_and_drain: 270,
    seeds_from_300_keep_every_invariant_and_drain: 300,
    seeds_from_330_keep_every_invariant_and_drain: 330,
    seeds_from_360_keep_every_invariant_and_drain: 360,
    seeds_from_390_keep_every_invariant_and_drain: 390,
    seeds_from_420_keep_every_invariant_and_drain: 420,
    seeds_from_450_keep_every_invariant_and_drain: 450,
    seeds_from_480_keep_every_invariant_and_drain: 480,
    seeds_from_510_keep_every_invariant_and_drain: 510,
    seeds_from_540_keep_every_invariant_and_drain: 540,
    seeds_from_570_keep_every_invariant_and_drain: 570,
}

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    let listed = include_str!("../regressions.txt").lines();
    let seeds = listed.map(|line| line.split('#').next().unwrap().trim()).filter(|line| !line.is_empty());
    for seed in seeds {
        harness::run(seed.parse().unwrap(), false);
    }
}

#[test]
fn a_seed_gives_the_same_inputs_effects_and_disk_operations_byte_for_byte() {
    for seed in [3, 13, 42, 145, 208, 284] {
        let (first, second) = (harness::run(seed, true), harness::run(seed, true));
        let (first, second) = (first.trace.unwrap(), second.trace.unwrap());
        assert!(first.len() > 10_000, "seed {seed}: a trace of {} bytes", first.len());
        let differs = first.lines().zip(second.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert!(first == second, "seed {seed}: one trace is longer");
    }
    assert_ne!(harness::run(1, true).trace, harness::run(2, true).trace, "another seed is another run");
}

#[test]
fn every_fault_every_edge_every_end_and_every_refusal_is_reached() {
    let mut marks = Marks::default();
    for seed in 300..600 {
        marks.add(&harness::run(seed, false).marks);
        if marks.missing().is_empty() {
            return;
        }
    }
    let mut missing = String::new();
    for mark in marks.missing() {
        writeln!(missing, "{mark}").unwrap();
    }
    panic!("never reached:\n{missing}");
}
