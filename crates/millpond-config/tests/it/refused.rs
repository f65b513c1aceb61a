//! What is refused: unknown and unsupported keys, wrong types, every bound, settings that contradict each other.

use crate::{errors, keys_in_error, with};
use millpond_config::{Severity, parse, reference_toml};
use proptest::prelude::*;

#[test]
fn keys_of_later_versions_are_refused_and_not_ignored() {
    for (text, key) in [("[auth]\n".to_owned(), "auth"), (with("url2 = 1", ""), "targets.t.url2")] {
        let errors = errors(&text);
        assert_eq!(errors.iter().map(|error| error.key.as_str()).collect::<Vec<_>>(), [key], "{text}");
        let said = errors[0].problem.contains("not supported by this version") || key.ends_with("url2");
        assert!(said, "{}", errors[0]);
    }
}

#[test]
fn a_webhook_for_alerts_has_an_address_and_a_secret_and_a_secret_has_a_webhook() {
    for (line, key) in [
        ("webhook = \"https://pager.example/\"", "alerts"),
        ("secret = { file = \"a\" }", "alerts.secret"),
        ("webhook = \"pager\"\nsecret = { env = \"MILLPOND_TEST_NONE\" }", "alerts.webhook"),
        ("webhook = 7\nsecret = { env = \"MILLPOND_TEST_NONE\" }", "alerts.webhook"),
        ("webhook = \"https://pager.example/\"\nsecret = { env = \"MILLPOND_TEST_NONE\" }", "alerts.secret"),
    ] {
        let keys = keys_in_error(&format!("[alerts]\n{line}\n"));
        assert!(keys.iter().any(|found| found.starts_with(key)), "{line}: {keys:?}");
    }
}

/// A value of each type.
const OF_TYPES: [&str; 6] = ["\"soon\"", "7.5", "true", "1979-05-27", "[1]", "{ a = 1 }"];

#[test]
fn a_value_of_another_type_is_refused_at_every_key() {
    for (table, keys) in [
        ("", &["listen", "max_body", "allowed_hosts", "targets", "queues"][..]),
        ("[targets.t]\nurl = \"http://a/\"\n", &["concurrency", "rate", "timeout", "hold_after_timeout"]),
        (
            "[queues.q]\n",
            &[
                "concurrency",
                "max_wait",
                "max_messages",
                "max_bytes",
                "overflow",
                "block_for",
                "order",
                "fresh_within",
                "priority",
                "prefetch",
                "max_keys",
                "dead_burst",
                "lease",
                "retention",
                "on_expiry",
                "result_retention",
                "result_max",
                "expected_service_time",
                "retry",
                "dead_letter",
                "retry.max_attempts",
                "retry.max_deliveries",
                "retry.budget",
                "retry.backoff",
                "retry.backoff.min",
                "retry.backoff.max",
                "dead_letter.retention",
                "dead_letter.max_messages",
                "dead_letter.replayable_for",
                "alerts",
                "alerts.oldest_age",
                "alerts.depth",
                "alerts.dead",
                "alerts.for",
            ],
        ),
    ] {
        for key in keys {
            for value in OF_TYPES {
                let text = format!("{table}{key} = {value}\n");
                assert!(parse(&text, "x").is_err(), "{text}");
            }
        }
    }
    for key in ["data", "external_url"] {
        assert_eq!(keys_in_error(&format!("{key} = 1")), [key]);
    }
    for (line, key) in [
        ("headers = 1", "targets.t.headers"),
        ("headers = { a = 1 }", "targets.t.headers.a"),
        ("outcomes = { \"404\" = 1 }", "targets.t.outcomes.404"),
        ("adaptive = 1", "targets.t.adaptive"),
        ("adaptive = true\nlatency_objective = \"0s\"", "targets.t.latency_objective"),
        ("adaptive = true\nlatency_objective = \"5s\"", "targets.t.latency_objective"),
    ] {
        assert_eq!(keys_in_error(&with(line, "")), [key]);
    }
    for key in ["insurmountable", "held", "refusals"] {
        let wrong = keys_in_error(&with("", &format!("alerts.{key} = \"no\"")));
        assert_eq!(wrong, [format!("queues.q.alerts.{key}")]);
    }
    assert_eq!(keys_in_error(&with("", "dead_letter.owner = 1")), ["queues.q.dead_letter.owner"]);
}

#[test]
fn every_bound_of_a_breaker_and_of_a_ramp_holds() {
    for (line, key) in [
        ("ramp = 1.5", "targets.t.ramp"),
        ("ramp = \"1h1s\"", "targets.t.ramp"),
        ("breaker = 1", "targets.t.breaker"),
        ("breaker = \"off\"", "targets.t.breaker"),
        ("breaker = { failures = 0 }", "targets.t.breaker.failures"),
        ("breaker = { failures = \"3\" }", "targets.t.breaker.failures"),
        ("breaker = { failure_rate = 0 }", "targets.t.breaker.failure_rate"),
        ("breaker = { failure_rate = 1.01 }", "targets.t.breaker.failure_rate"),
        ("breaker = { failure_rate = nan }", "targets.t.breaker.failure_rate"),
        ("breaker = { window = \"999ms\" }", "targets.t.breaker.window"),
        ("breaker = { probe_after = \"99ms\" }", "targets.t.breaker.probe_after"),
        ("breaker = { probe_after = \"61s\" }", "targets.t.breaker.probe_after"),
        ("breaker = { probe_max = \"2h\" }", "targets.t.breaker.probe_max"),
        ("breaker = { threshold = 3 }", "targets.t.breaker.threshold"),
    ] {
        assert_eq!(keys_in_error(&with(line, "")), [key]);
    }
}

#[test]
fn a_threshold_that_another_bound_keeps_from_being_reached_is_warned_of() {
    let lines = "max_messages = 100\nretention = \"1h\"\ndead_letter.max_messages = 10\n\
                 alerts = { depth = 101, oldest_age = \"61m\", dead = 11 }";
    let loaded = parse(&with("", lines), "test").unwrap();
    let mut keys: Vec<_> = loaded.warnings.iter().map(|warning| warning.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["queues.q.alerts.dead", "queues.q.alerts.depth", "queues.q.alerts.oldest_age"]);
    let lines = "max_messages = 100\nretention = \"1h\"\ndead_letter.max_messages = 10\n\
                 alerts = { depth = 100, oldest_age = \"1h\", dead = 10 }";
    assert_eq!(parse(&with("", lines), "test").unwrap().warnings, []);
}

#[test]
fn an_objective_without_an_adaptive_limit_is_warned_of() {
    let loaded = parse(&with("latency_objective = \"1s\"", ""), "test").unwrap();
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert_eq!((warning.severity, warning.key.as_str()), (Severity::Warning, "targets.t.latency_objective"));
    assert_eq!(loaded.configuration.targets["t"].settings.adaptive, None);
}

#[test]
fn every_bound_of_a_queue_holds_on_both_sides() {
    for (good, bad) in [
        ("concurrency = 1", "concurrency = 0"),
        ("concurrency = 4294967295", "concurrency = 4294967296"),
        ("max_wait = \"1us\"", "max_wait = \"0s\""),
        ("max_messages = 1", "max_messages = 0"),
        ("max_messages = 18446744073709551615", "max_messages = 18446744073709551616"),
        ("max_bytes = 1", "max_bytes = 0"),
        ("max_bytes = \"1048576TiB\"", "max_bytes = \"1048577TiB\""),
        ("overflow = \"block\"\nblock_for = \"1m\"", "overflow = \"block\"\nblock_for = \"1m1s\""),
        ("overflow = \"block\"\nblock_for = \"1us\"", "block_for = \"0s\""),
        ("order = \"adaptive\"\nfresh_within = \"366d\"", "fresh_within = \"367d\""),
        ("order = \"adaptive\"\nfresh_within = \"1us\"", "fresh_within = \"0s\""),
        ("prefetch = 1", "prefetch = 0"),
        ("prefetch = 1000", "prefetch = 1001"),
        ("max_keys = 1", "max_keys = 0"),
        ("dead_burst = 4294967295", "dead_burst = 4294967296"),
        ("retry.budget = 0", "retry.budget = -0.1"),
        ("retry.budget = 1.0", "retry.budget = 1.001"),
        ("retry.budget = 0x1", "retry.budget = nan"),
        ("dead_letter.replayable_for = \"1s\"", "dead_letter.replayable_for = \"0s\""),
        ("dead_letter.replayable_for = \"366d\"", "dead_letter.replayable_for = \"367d\""),
        ("target = \"t2\"\nlease = \"1s\"", "target = \"t2\"\nlease = \"999ms\""),
        ("lease = \"12h\"", "lease = \"12h1s\""),
        ("retention = \"1s\"", "retention = \"999ms\""),
        ("retention = \"365d\"\ndead_letter.retention = \"366d\"", "retention = \"366d1s\""),
        ("result_retention = \"366d\"", "result_retention = \"367d\""),
        ("result_max = \"16MiB\"", "result_max = 16777217"),
        ("expected_service_time = \"12h\"", "expected_service_time = \"13h\""),
        ("expected_service_time = \"1us\"", "expected_service_time = \"0s\""),
        ("alerts.oldest_age = \"1us\"", "alerts.oldest_age = \"0s\""),
        (
            "retention = \"365d\"\ndead_letter.retention = \"366d\"\nalerts.oldest_age = \"365d\"",
            "alerts.oldest_age = \"367d\"",
        ),
        ("alerts.depth = 1", "alerts.depth = 0"),
        ("alerts.dead = 0", "alerts.dead = -1"),
        ("alerts.refusals = 1", "alerts.refusals = 1.01"),
        ("alerts.refusals = 0.0", "alerts.refusals = nan"),
        ("alerts.for = \"1d\"", "alerts.for = \"25h\""),
        ("retry.max_attempts = 1", "retry.max_attempts = 0"),
        ("retry.max_attempts = 1000", "retry.max_attempts = 1001"),
        ("retry.max_deliveries = 5", "retry.max_deliveries = 4"),
        ("retry.backoff = { min = \"5s\", max = \"5s\" }", "retry.backoff = { min = \"6s\", max = \"5s\" }"),
        ("retry.backoff.max = \"30d\"", "retry.backoff.max = \"31d\""),
        ("dead_letter.max_messages = 1", "dead_letter.max_messages = 0"),
        ("dead_letter.retention = \"5d\"", "dead_letter.retention = \"4d\""),
        ("dead_letter.retention = \"366d\"", "dead_letter.retention = \"367d\""),
    ] {
        let text = |lines: &str| {
            format!("[targets.t2]\nurl = \"http://a/\"\ntimeout = \"1ms\"\n[queues.q]\n{lines}\n")
        };
        assert_eq!(errors(&text(good)), [], "{good}");
        assert_eq!(errors(&text(bad)).len(), 1, "{bad}: {:?}", errors(&text(bad)));
    }
}

#[test]
fn every_bound_of_a_target_and_the_server_holds_on_both_sides() {
    for (good, bad) in [
        ("concurrency = 1", "concurrency = 0"),
        ("concurrency = 1000000", "concurrency = 1000001"),
        ("rate = \"1/h\"", "rate = \"0/h\""),
        ("timeout = \"1ms\"", "timeout = \"0s\""),
        ("timeout = \"1h\"", "timeout = \"61m\""),
        ("hold_after_timeout = \"0s\"", "hold_after_timeout = \"-1s\""),
        ("hold_after_timeout = \"12h\"", "hold_after_timeout = \"13h\""),
        ("outcomes = { \"200\" = \"retry\" }", "outcomes = { \"199\" = \"retry\" }"),
        ("outcomes = { \"599\" = \"retry\" }", "outcomes = { \"600\" = \"retry\" }"),
        ("headers = { a = \"b\" }", "headers = { a = \"b\\n\" }"),
        ("headers = { millpond = \"b\" }", "headers = { Millpond-Queue = \"b\" }"),
        ("headers = { host = \"b\" }", "headers = { Content-Length = \"1\" }"),
        ("headers = { a = \"b\" }", "headers = { a = \"b\", A = \"b\" }"),
    ] {
        let text = |line: &str| format!("[targets.t]\nurl = \"http://a/\"\n{line}\n");
        assert_eq!(errors(&text(good)), [], "{good}");
        assert_eq!(errors(&text(bad)).len(), 1, "{bad}: {:?}", errors(&text(bad)));
    }
    for (good, bad) in [
        ("max_body = 1", "max_body = 0"),
        ("max_body = \"256MiB\"", "max_body = \"257MiB\""),
        ("data = \"x\"", "data = \"\""),
        ("alerts.for = \"1d\"", "alerts.for = \"25h\""),
        ("alerts.slow_commits = \"1m\"", "alerts.slow_commits = \"61s\""),
        ("alerts.storage_full = false", "alerts.storage_full = 0"),
        ("allowed_hosts = []", "allowed_hosts = [\"a\", \"http://b/\"]"),
        ("listen = \"0.0.0.0:80\"", "listen = \"0.0.0.0\""),
    ] {
        assert_eq!(errors(good), [], "{good}");
        assert_eq!(errors(bad).len(), 1, "{bad}");
    }
}

#[test]
fn a_target_needs_a_url() {
    assert_eq!(keys_in_error("[targets.t]\nconcurrency = 1"), ["targets.t"]);
    for url in ["ftp://a/", "a/", "", "http://u:p@a/", "http://a/#b"] {
        assert_eq!(keys_in_error(&format!("[targets.t]\nurl = \"{url}\"")), ["targets.t.url"], "{url}");
    }
}

#[test]
fn names_follow_the_rule_for_names() {
    assert_eq!(
        keys_in_error("[queues.\"a b\"]\n[queues.good]\n[targets.\"-x\"]"),
        ["queues.\"a b\"", "targets.-x"]
    );
    assert_eq!(keys_in_error("[queues.q]\ntarget = \"a/b\""), ["queues.q.target"]);
}

#[test]
fn a_queue_is_checked_against_its_target() {
    assert_eq!(
        keys_in_error(&with("", "").replace("target = \"t\"", "target = \"tt\"")),
        ["queues.q.target"]
    );
    assert_eq!(keys_in_error(&with("timeout = \"31s\"", "")), ["queues.q.lease"]);
    assert_eq!(keys_in_error(&with("timeout = \"31s\"", "lease = \"31s\"")), [""; 0]);
    for (lines, key) in [
        ("concurrency = 41", "queues.q.concurrency"),
        ("max_wait = \"4d\"", "queues.q.max_wait"),
        ("max_bytes = \"1023KiB\"", "queues.q.max_bytes"),
        ("block_for = \"5s\"", "queues.q.block_for"),
        ("order = \"lifo\"\nmax_wait = \"5m\"", "queues.q.max_wait"),
        ("order = \"lifo\"\nfresh_within = \"5s\"", "queues.q.fresh_within"),
    ] {
        let warnings = parse(&with("", lines), "x").unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!((warnings[0].severity, warnings[0].key.as_str()), (Severity::Warning, key));
    }
    let unset = parse("[targets.t]\nurl = \"http://a/\"", "x").unwrap();
    assert_eq!(unset.configuration.targets["t"].settings.concurrency, 1);
    assert_eq!(unset.warnings.len(), 1, "{:?}", unset.warnings);
}

#[test]
fn an_address_that_others_can_reach_is_a_warning_because_serve_will_ask_for_a_flag() {
    let exposed = parse("listen = \"0.0.0.0:8080\"", "x").unwrap();
    assert_eq!(exposed.warnings.len(), 1, "{:?}", exposed.warnings);
    assert!(exposed.warnings[0].help.contains("--insecure"), "{}", exposed.warnings[0]);
    assert_eq!(parse("listen = \"[::1]:8080\"", "x").unwrap().warnings, []);
}

#[test]
fn headers_that_the_server_would_refuse_are_refused_here() {
    for name in ["Content-Type", "traceparent", "Proxy-Authorization", "Connection", "Millpond-Queue"] {
        let keys = keys_in_error(&with(&format!("headers = {{ {name} = \"x\" }}"), ""));
        assert_eq!(keys, [format!("targets.t.headers.{name}")], "{name}");
    }
}

#[test]
fn one_wrong_value_does_not_bring_errors_about_others() {
    assert_eq!(
        keys_in_error(&with("", "retention = \"20x\"\ndead_letter.retention = \"3d\"")),
        ["queues.q.retention"]
    );
    assert_eq!(keys_in_error(&with("", "retry.backoff.min = 1")), ["queues.q.retry.backoff.min"]);
}

#[test]
fn everything_is_found_in_one_run_and_in_the_order_of_the_file() {
    let text = "max_body = 0\n[queues.q]\nlease = 30s\nretrys = 1\nmax_messages = -1\n[targets.t]\nurl = \"ftp://x\"\nrate = 5\n";
    let found = errors(text);
    let lines: Vec<usize> = found.iter().map(|error| error.line).collect();
    assert_eq!(lines, [1, 3, 4, 5, 7, 8], "{found:?}");
    assert!(found.iter().all(|error| !error.problem.is_empty() && !error.help.is_empty()));
}

#[test]
fn header_values_are_never_shown() {
    for line in [
        "headers = { authorization = \"hunter2\", Content-Length = \"hunter2\", x = 1 }",
        "headers = { authorization = \"hunter2\" }, x",
        "headers = { authorization = hunter2 }",
        "headers = { authorization = \"hunter2 }",
        "[targets.t.headers]\nauthorization = \"hunter2",
        "[targets.t.headers]\nauthorization = \"hunter2\"\nauthorization = \"hunter2\"",
        "headers = \"hunter2\"",
        "headers = [\"hunter2\"]",
        "[targets]\n\"a b\" = { headers = { authorization = \"hunter2\" } }",
        "headers.a.b = \"hunter2\"",
        "url = \"http://user:hunter2@a/\"",
    ] {
        let text =
            if line.starts_with("[targets]") { line.to_owned() } else { format!("[targets.t]\n{line}\n") };
        let error = parse(&text, "x").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn deep_nesting_is_refused_without_overflow() {
    for text in
        ["a = ".to_owned() + &"[".repeat(100_000), "a.".repeat(100_000) + "b = 1", "[a".repeat(50_000)]
    {
        assert!(parse(&text, "x").is_err());
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}|([a-z_.\\[\\]\"'={}#,\\\\\n\r\t 0-9\u{feff}äß日]{0,200})") {
        if let Err(error) = parse(&text, "x") {
            prop_assert!(!error.diagnostics.is_empty());
            prop_assert!(error.to_string().contains("x:"));
        }
    }

    #[test]
    fn the_reference_with_one_place_changed_never_panics(at in 0_usize..10_000, cut in 0_usize..20, put in "\\PC{0,6}|[\"'\\[\\]{}=.\n]{0,3}") {
        let reference = reference_toml().replace("\n#", "\n");
        let start = reference.floor_char_boundary(at % reference.len());
        let end = reference.floor_char_boundary((start + cut).min(reference.len())).max(start);
        let text = format!("{}{put}{}", &reference[..start], &reference[end..]);
        let lines = text.lines().count() + 1;
        if let Err(error) = parse(&text, "x") {
            prop_assert!(error.diagnostics.iter().all(|found| (1..=lines).contains(&found.line) && found.column >= 1));
            let _ = error.to_string();
        }
    }
}
