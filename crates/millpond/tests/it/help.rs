//! The help texts: they are read in a terminal of 80 columns, and are part of the interface.

use crate::process::run;

#[test]
fn no_line_of_any_help_is_longer_than_eighty_columns() {
    for command in [
        "",
        "serve",
        "check",
        "demo",
        "plan",
        "simulate",
        "send",
        "work",
        "messages",
        "messages list",
        "messages show",
        "messages cancel",
        "messages result",
        "top",
        "queues",
        "queues list",
        "queues show",
        "queues create",
        "queues pause",
        "queues resume",
        "queues purge",
        "queues delete",
        "queues stats",
        "targets",
        "dead",
        "dead list",
        "dead show",
        "dead replay",
        "dead replays",
        "dead delete",
        "alerts",
        "export",
        "export prometheus",
        "export grafana",
        "journal",
        "journal verify",
        "journal stats",
        "journal repair",
        "journal backup",
        "journal export",
        "completions",
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        for flag in ["-h", "--help"] {
            let done = run(&[&words[..], &[flag]].concat()).expect(0);
            // The usage line of clap is never wrapped.
            let lines = done.stdout.lines().filter(|line| !line.starts_with("Usage:"));
            for line in lines {
                assert!(line.chars().count() <= 80, "{command} {flag}: {line}");
            }
            assert!(done.stdout.contains("millpond "), "{command} {flag} has no example");
        }
    }
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(run(&["--help"]).expect(0).stdout);
}

#[test]
fn help_of_serve() {
    insta::assert_snapshot!(run(&["serve", "--help"]).expect(0).stdout);
}

#[test]
fn help_of_send() {
    insta::assert_snapshot!(run(&["send", "--help"]).expect(0).stdout);
}

#[test]
fn help_of_work() {
    insta::assert_snapshot!(run(&["work", "--help"]).expect(0).stdout);
}

#[test]
fn help_of_plan() {
    insta::assert_snapshot!(run(&["plan", "-h"]).expect(0).stdout);
}

#[test]
fn help_of_dead_replay() {
    insta::assert_snapshot!(run(&["dead", "replay", "--help"]).expect(0).stdout);
}
