//! Promises hold over workloads on virtual time: what is asserted here is what docs/guide/promises.md shows.

use millpond_sim::promises::{
    Calibrated, Case, HEADING, Judgement, Row, Workload, cases, compare, judge, rows,
};

/// The rows of one workload of the table, judged.
fn judged(name: &str) -> Vec<(Row, Judgement)> {
    let workload = Workload::all().into_iter().find(|workload| workload.name == name).unwrap();
    let kept = compare(&workload, 1).unwrap();
    rows(&workload)
        .into_iter()
        .map(|row| {
            let judgement = judge(&kept, row.from, row.until).unwrap();
            (row, judgement)
        })
        .collect()
}

/// Nine in ten start by the p90, about half by the p50, and the mean is met.
fn assert_holds(row: &Row, judged: &Judgement) {
    assert!(judged.promises >= 500, "{row:?}: {judged:?}");
    assert!((0.82..=0.98).contains(&judged.by_p90), "{row:?}: {judged:?}");
    assert!((0.38..=0.62).contains(&judged.by_p50), "{row:?}: {judged:?}");
    let off = judged.promised_seconds / judged.waited_seconds;
    assert!((0.88..=1.12).contains(&off), "{row:?}: {judged:?}");
}

#[test]
fn work_of_one_length_starts_when_promised() {
    let rows = judged("constant work");
    assert_holds(&rows[0].0, &rows[0].1);
    assert!(rows[0].1.error_ratio < 0.03, "{rows:?}");
}

#[test]
fn nine_in_ten_start_in_time_whatever_the_spread_of_the_work() {
    for name in ["exponential work", "log-normal work"] {
        for (row, judged) in judged(name) {
            assert_holds(&row, &judged);
        }
    }
}

#[test]
fn promises_hold_before_and_after_the_capacity_is_halved_and_nearly_so_meanwhile() {
    for (row, judged) in judged("capacity halved in the middle") {
        assert_holds(&row, &judged);
    }
}

#[test]
fn a_wrong_expectation_is_forgotten_within_two_minutes() {
    for name in ["cold start, a quarter expected", "cold start, four times expected"] {
        let (row, judged) = judged(name).pop().unwrap();
        assert_holds(&row, &judged);
    }
}

#[test]
fn what_the_forecast_does_not_know_of_is_learned_from_promises_that_failed() {
    let (row, judged) = judged("three in ten fail").pop().unwrap();
    assert_holds(&row, &judged);
    assert!(judged.by_p90_uncorrected < 0.7, "without correction: {judged:?}");
}

#[test]
fn the_same_seed_gives_the_same_comparison() {
    let workload = Workload { length: std::time::Duration::from_mins(6), ..Workload::all().remove(1) };
    assert_eq!(compare(&workload, 3).unwrap(), compare(&workload, 3).unwrap());
    assert_ne!(compare(&workload, 3).unwrap(), compare(&workload, 4).unwrap());
}

#[test]
fn the_guide_shows_every_row() {
    let guide = include_str!("../../../../docs/guide/promises.md");
    for row in Workload::all().iter().flat_map(rows) {
        assert!(guide.contains(&format!("\n| {} | ", row.name)), "{row:?}: print the table anew");
    }
}

/// The case of this name and utilization, judged for one seed.
fn calibrated(name: &str, utilization: f64) -> Calibrated {
    let is_it = |case: &Case| case.name == name && case.utilization.total_cmp(&utilization).is_eq();
    let case = cases().into_iter().find(is_it).unwrap();
    let kept = compare(&case.workload, 1).unwrap();
    Calibrated::of(&kept).unwrap()
}

#[test]
fn short_waits_start_as_promised_at_low_and_at_high_load() {
    for utilization in [0.5, 0.7, 0.9] {
        let seen = calibrated("push", utilization);
        assert!((0.36..0.56).contains(&seen.by_p50), "at {utilization}: {seen:?}");
        assert!((0.82..0.96).contains(&seen.by_p90), "at {utilization}: {seen:?}");
    }
}

#[test]
fn work_of_one_length_is_late_by_the_rest_of_what_is_under_way_and_no_more() {
    // 25 a second: one every 40 ms.
    let seen = calibrated("push, constant work", 0.7);
    assert!((0.0..0.04).contains(&seen.bias_seconds), "{seen:?}");
    assert!(seen.by_p90 > 0.78, "{seen:?}");
}

#[test]
fn the_guide_shows_every_case() {
    let guide = include_str!("../../../../docs/guide/promises.md");
    assert!(guide.contains(HEADING), "print the table anew");
    for case in cases() {
        assert!(guide.contains(&format!("\n| {} | ", case.name)), "{case:?}: print the table anew");
    }
}
