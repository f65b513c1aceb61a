//! `millpond plan` reproduces both examples.

use crate::process::run;
use serde_json::{Value, json};

const LEVELING: [&str; 11] = [
    "plan",
    "--rate",
    "3/s",
    "--spike",
    "15/s",
    "--spike-for",
    "2s",
    "--service-time",
    "200ms",
    "--workers",
    "1",
];
const ENROLLMENT: [&str; 11] = [
    "plan",
    "--rate",
    "100/s",
    "--spike",
    "2000/s",
    "--spike-for",
    "10m",
    "--service-time",
    "80ms",
    "--workers",
    "40",
];

fn assert_figures(document: &Value, expected: &[(&str, Value)]) {
    for (name, value) in expected {
        assert_eq!(&document[name], value, "{name} in {document}");
    }
}

#[test]
fn the_small_example() {
    let document = run(&[&LEVELING[..], &["--json"]].concat()).expect(0).json();
    assert_figures(
        &document,
        &[
            ("capacity_per_second", json!(5)),
            ("utilization", json!(0.6)),
            ("direct_connections_needed", json!(3)),
            ("backlog_peak", json!(20)),
            ("longest_wait_seconds", json!(4)),
            ("drain_seconds", json!(10)),
            ("bound_messages", Value::Null),
            ("workers_wanted", Value::Null),
        ],
    );
}

#[test]
fn the_small_example_with_more_afterwards_drains_late_or_never() {
    for (rate, drain) in [("4.5/s", json!(40)), ("5/s", Value::Null), ("6/s", Value::Null)] {
        let mut arguments = LEVELING;
        arguments[2] = rate;
        let document = run(&[&arguments[..], &["--json"]].concat()).expect(0).json();
        assert_figures(&document, &[("drain_seconds", drain)]);
    }
}

#[test]
fn the_large_example() {
    let document = run(&[&ENROLLMENT[..], &["--max-wait", "45m", "--json"]].concat()).expect(0).json();
    assert_figures(
        &document,
        &[
            ("capacity_per_second", json!(500)),
            ("utilization", json!(0.2)),
            ("direct_connections_needed", json!(160)),
            ("backlog_peak", json!(900_000)),
            ("longest_wait_seconds", json!(1_800)),
            ("drain_seconds", json!(2_250)),
            ("bound_messages", json!(1_350_000)),
        ],
    );
}

#[test]
fn the_table_of_the_large_example() {
    let done = run(&[&ENROLLMENT[..], &["--max-wait", "45m"]].concat()).expect(0);
    assert!(done.stdout.lines().all(|line| line.chars().count() <= 80), "{}", done.stdout);
    insta::assert_snapshot!(done.stdout);
}

#[test]
fn too_much_for_ever_is_said_in_words() {
    let mut arguments = LEVELING;
    arguments[2] = "6/s";
    let done = run(&arguments).expect(0);
    let text = done.stdout.replace('\n', " ");
    assert!(text.contains("A queue moves load in time, it does not create capacity"), "{}", done.stdout);
}
