//! How errors read, word by word: would somebody who has never seen the format know what to do?

use millpond_config::parse;

fn said(text: &str) -> String {
    parse(text, "millpond.toml").unwrap_err().to_string()
}

#[test]
fn a_misspelt_key() {
    assert_eq!(
        said("[queues.enrollments]\nmax_wiat = \"45m\"\n"),
        "\
error: queues.enrollments.max_wiat: unknown key
 --> millpond.toml:2:1
  |
2 | max_wiat = \"45m\"
  | ^^^^^^^^
  = help: did you mean `max_wait`?

millpond.toml: 1 error"
    );
}

#[test]
fn a_duration_without_unit() {
    assert_eq!(
        said("[queues.enrollments]\n  lease = 30 # seconds\n"),
        "\
error: queues.enrollments.lease: \"30\" has no unit
 --> millpond.toml:2:11
  |
2 |   lease = 30 # seconds
  |           ^^
  = help: write \"30s\" for seconds; the units are us, ms, s, m, h and d

millpond.toml: 1 error"
    );
}

#[test]
fn a_value_without_quotes() {
    assert_eq!(
        said("[queues.enrollments]\nmax_wait = 45m\n"),
        "\
error: a value that is neither a number nor true or false needs quotes
 --> millpond.toml:2:12
  |
2 | max_wait = 45m
  |            ^^^
  = help: put it in quotes, as in lease = \"30s\"

millpond.toml: 1 error"
    );
}

#[test]
fn a_target_that_does_not_exist() {
    assert_eq!(
        said(
            "[targets.registrar]\nurl = \"http://a/\"\nconcurrency = 4\n[queues.q]\ntarget = \"registar\"\n"
        ),
        "\
error: queues.q.target: there is no target \"registar\"
 --> millpond.toml:5:10
  |
5 | target = \"registar\"
  |          ^^^^^^^^^^
  = help: did you mean \"registrar\"?

millpond.toml: 1 error"
    );
}

#[test]
fn a_choice_that_does_not_exist() {
    assert_eq!(
        said("[queues.q]\noverflow = \"panic\"\norder = \"lilo\"\n"),
        "\
error: queues.q.overflow: \"panic\" is not one of the choices
 --> millpond.toml:2:12
  |
2 | overflow = \"panic\"
  |            ^^^^^^^
  = help: write \"reject\" or \"block\" or \"drop-oldest\"

error: queues.q.order: \"lilo\" is not one of the choices
 --> millpond.toml:3:9
  |
3 | order = \"lilo\"
  |         ^^^^^^
  = help: did you mean \"lifo\"?

millpond.toml: 2 errors"
    );
}

#[test]
fn a_lease_that_ends_before_the_call_does_and_a_cap_that_was_forgotten() {
    assert_eq!(
        said(
            "[targets.slow]\nurl = \"http://a/\"\ntimeout = \"1m\"\n\n[queues.reports]\ntarget = \"slow\"\n"
        ),
        "\
warning: targets.slow: has no concurrency, so calls are made one at a time
 --> millpond.toml:1:10
  |
1 | [targets.slow]
  |          ^^^^
  = help: set concurrency to the most calls it can stand at once (1 to keep it so)

error: queues.reports.lease: a lease of 30s ends before a call to slow may (1m)
 --> millpond.toml:5:9
  |
5 | [queues.reports]
  |         ^^^^^^^
  = help: set lease to at least 1m, or shorten targets.slow.timeout: work would be done twice

millpond.toml: 1 error, 1 warning"
    );
}

#[test]
fn broken_syntax() {
    assert_eq!(
        said("listen = \"127.0.0.1:8080\n\n[queues.q\n"),
        "\
error: invalid basic string, expected `\"`
 --> millpond.toml:1:25
  |
1 | listen = \"127.0.0.1:8080
  |                         ^
  = help: this is not TOML; see https://toml.io, or put strings and durations in quotes

error: unclosed table, expected `]`
 --> millpond.toml:3:10
  |
3 | [queues.q
  |          ^
  = help: this is not TOML; see https://toml.io, or put strings and durations in quotes

millpond.toml: 2 errors"
    );
}
