//! Alerts and exports on the command line.
//!
//! Owns their exit codes and documents. Must never wait for a hold: what fires here fires at once.

use crate::process::{Server, run};
use std::time::{Duration, Instant};

#[test]
fn a_dead_letter_is_told_and_fails_a_check_only_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    let quiet = server.run(&["alerts", "--check"]).expect(0).stdout;
    assert_eq!(quiet, "Nothing needs anybody.\n");
    server.run(&["queues", "create", "jobs"]).expect(0);
    server.run(&["send", "jobs", "--body", "x"]).expect(0);
    server.run(&["work", "jobs", "--until-empty", "--", "sh", "-c", "exit 65"]).expect(0);
    let end = Instant::now() + Duration::from_secs(20);
    let alerts = loop {
        let document = server.run(&["alerts", "--json"]).expect(0).json();
        if document["alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()) {
            break document;
        }
        assert!(Instant::now() < end, "it fires within a second");
    };
    assert_eq!(
        (&alerts["alerts"][0]["alert"], &alerts["alerts"][0]["state"]),
        (&"dead".into(), &"firing".into())
    );
    let told = server.run(&["alerts"]).expect(0).stdout;
    assert!(told.starts_with("1 alert fires.\n\nWARNING: dead (queue jobs, since "), "{told}");
    assert_eq!(server.run(&["alerts", "--check"]).expect(1).stdout.lines().next(), Some("1 alert fires."));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn rules_are_those_of_the_configuration_that_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("millpond.toml");
    std::fs::write(&file, "[queues.jobs]\nalerts = { oldest_age = \"90s\", for = \"30s\" }\n").unwrap();
    let rules =
        run(&["export", "prometheus", "--config", file.to_str().unwrap(), "--runbooks", "https://wiki/a"]);
    let rules = rules.expect(0).stdout;
    for line in [
        "  - name: \"millpond-queue-jobs\"",
        "      - alert: MillpondOldestAge",
        "          sum without (state) (millpond_queue_oldest_age_seconds{queue=\"jobs\",state=\"any\"}) >= 90",
        "        for: 30s",
        "        keep_firing_for: 30s",
        "          severity: \"critical\"",
        "          runbook_url: \"https://wiki/a#oldest-age\"",
    ] {
        assert!(rules.lines().any(|found| found == line), "{line} in\n{rules}");
    }
    std::fs::write(&file, "[queues.jobs]\nalerts = { oldest = \"90s\" }\n").unwrap();
    run(&["export", "prometheus", "--config", file.to_str().unwrap()]).expect(1);
    let dashboard = run(&["export", "grafana"]).expect(0).json();
    assert_eq!(dashboard["uid"], "millpond");
}
