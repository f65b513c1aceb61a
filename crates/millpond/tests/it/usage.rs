//! Wrong usage and missing servers: what is said, and with which exit code.

use crate::process::{millpond, run, run_in};
use std::process::Stdio;

/// Port 1 is reserved; nobody listens there.
const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn without_arguments_the_commands_are_shown_in_their_groups() {
    let done = run(&[]).expect(2);
    assert_eq!(done.stdout, "");
    for expected in
        ["Look ahead:", "Run a server:", "Put work in, do it, follow it:", "Operate:", "Exit codes:"]
    {
        assert!(done.stderr.contains(expected), "{expected} is missing\n{}", done.stderr);
    }
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_is_right() {
    for (arguments, expected) in [
        (&["serv"][..], "serve"),
        (&["send"], "<QUEUE>"),
        (&["send", "a b", "--body", "x"], "is not a name"),
        (&["send", "jobs", "--body", "x", "--delay", "10"], "10s"),
        (&["send", "jobs", "--body", "x", "--delay", "-5s"], "invalid value '-5s' for '--delay"),
        (&["send", "jobs", "--body", "x", "--wait", "-5"], "invalid value '-5' for '--wait"),
        (&["queues", "create", "jobs", "--max-wait", "-1m"], "invalid value '-1m' for '--max-wait"),
        (&["dead", "list", "jobs", "--since", "-2h"], "how long ago like 2h"),
        (&["send", "jobs", "--body", "x", "--lines"], "cannot be used with"),
        (&["send", "jobs", "--body", "x", "--count", "0"], "0"),
        (
            &["send", "jobs", "--body", "x", "--criticality", "urgent"],
            "critical-plus, critical, sheddable-plus",
        ),
        (&["send", "jobs", "--body", "x", "--json-lines"], "cannot be used with"),
        (&["queues", "create", "jobs", "--order", "random"], "fifo, lifo, adaptive"),
        (&["messages", "list", "jobs", "--state", "done"], "succeeded"),
        (&["dead", "replay", "jobs"], "--all"),
        (&["queues", "purge", "jobs"], "--yes"),
        (&["demo", "--scenario", "tsunami"], "leveling"),
        (&["demo", "--speed", "0"], "1..=600"),
        (&["queues", "--url", "https://127.0.0.1"], "http://127.0.0.1:8080"),
        (&["plan", "--rate", "fast"], "500/s"),
        (&["serve", "--listen", "0.0.0.0:0"], "--insecure"),
    ] {
        let done = run(arguments);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{arguments:?}: {expected} is missing\n{}", done.stderr);
    }
}

#[test]
fn an_input_that_is_nothing_is_an_empty_body_but_still_needs_a_server() {
    let done = run(&["send", "jobs", "--url", NOBODY]);
    assert_eq!(done.code, 4, "{done:?}");
}

#[test]
fn a_server_that_is_not_there_exits_with_4_and_says_how_to_start_one() {
    for arguments in [
        &["send", "jobs", "--body", "x"][..],
        &["queues"],
        &["queues", "list", "--json"],
        &["messages", "list", "jobs"],
        &["dead", "list", "jobs"],
    ] {
        let done = run(&[arguments, &["--url", NOBODY]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (4, ""), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(NOBODY) && done.stderr.contains("millpond serve"), "{}", done.stderr);
    }
}

#[test]
fn the_address_of_the_server_may_come_from_the_environment() {
    let output = millpond().env("MILLPOND_URL", NOBODY).arg("queues").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8(output.stderr).unwrap().contains(NOBODY));
}

#[test]
fn what_cannot_be_undone_needs_a_yes_where_nobody_can_be_asked() {
    for arguments in [&["queues", "delete", "jobs"][..], &["dead", "delete", "jobs", "x"]] {
        let done = run(&[arguments, &["--url", NOBODY]].concat()).expect(2);
        assert!(done.stderr.contains("--yes"), "{}", done.stderr);
        run(&[arguments, &["--yes", "--url", NOBODY]].concat()).expect(4);
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = run(&["completions", shell]).expect(0);
        assert!(done.stdout.contains("millpond") && done.stdout.contains("simulate"), "{shell}");
    }
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let mut child = millpond()
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let done = run_in(directory.path(), &["send", "jobs", "--file", "missing.json"]).expect(1);
    assert!(done.stderr.contains("missing.json"), "{}", done.stderr);
}

#[test]
fn a_configuration_that_cannot_be_read_is_an_error_like_any_other() {
    for arguments in [&["serve"][..], &["check"], &["journal", "verify"]] {
        let done = run(&[arguments, &["--config", "/nonexistent.toml"]].concat()).expect(1);
        assert!(
            done.stderr.starts_with("error: cannot read the configuration /nonexistent.toml"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn simulate_prints_one_document_with_the_figures_of_the_small_example() {
    let document = run(&["simulate", "--scenario", "leveling", "--json"]).expect(0).json();
    assert_eq!(document["direct"]["answered_in_time"], 10);
    assert_eq!(document["queued"]["accepted"], 30);
    let peak = document["queued"]["peak_depth"].as_u64().unwrap();
    assert!((19..=21).contains(&peak), "{document}");
}
