//! What is read, key by key, and the example of the documentation as a whole.

use crate::with;
use millpond_config::{
    Configuration, ConfigurationError, PushOutcome, Target, load, parse, reference_markdown,
};
use millpond_core::settings::{
    AdaptiveSettings, BreakerSettings, OnExpiry, Order, Overflow, Priority, QueueSettings,
};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

fn accept(text: &str) -> Configuration {
    match parse(text, "millpond.toml") {
        Ok(loaded) => loaded.configuration,
        Err(error) => panic!("{error}"),
    }
}

fn queue(line: &str) -> QueueSettings {
    accept(&with("", line)).queues["q"].clone()
}

fn target(line: &str) -> Target {
    accept(&with(line, "")).targets["t"].clone()
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// The documented example.
const EXAMPLE: &str = r#"
listen = "127.0.0.1:8080"          # anything but loopback needs [auth] or --insecure
data = "./millpond-data"
external_url = ""                  # how callers reach us; else from Host, if it is in allowed_hosts
allowed_hosts = ["localhost", "127.0.0.1", "[::1]"]
max_body = "1MiB"

[targets.registrar]                # something with a fixed capacity; queues and routes share it
url = "http://127.0.0.1:9000/registrations"
concurrency = 40                   # the hard cap: never more in flight, whoever sends it
rate = "500/s"                     # optional
timeout = "5s"
hold_after_timeout = "5s"          # a timed-out call still occupies the backend this long
headers = {}                       # sent with every push
adaptive = false

[queues.enrollments]
target = "registrar"               # absent: a queue for pull workers only
concurrency = 40                   # cap for this queue over push and pull together; default: the target's
max_wait = "45m"                   # the promise; refuses what would wait longer
max_messages = 2000000
max_bytes = "10GiB"                # default; there is always one
overflow = "reject"                # reject | block | drop-oldest
lease = "30s"
order = "fifo"                     # fifo | lifo | adaptive
retention = "4d"                   # a message not done by then expires
on_expiry = "dead-letter"          # dead-letter | drop
result_retention = "1h"            # status, result and Idempotency-Key live this long after the end
result_max = "64KiB"
expected_service_time = "80ms"     # until measured
[queues.enrollments.retry]
max_attempts = 5
backoff = { min = "1s", max = "5m" }
budget = 0.2                       # retries at most this share of deliveries, plus a floor of 1/s
[queues.enrollments.dead_letter]
retention = "14d"                  # must be longer than the queue's retention
max_messages = 100000              # full: the queue pauses and alerts; nothing is trimmed in silence
replayable_for = "7d"              # older ones need an explicit override
owner = "team-enrollment"
[queues.enrollments.alerts]        # logged, counted, shown; sent to [alerts].webhook
oldest_age = "10m"
depth = 500000
dead = 1
"#;

#[test]
fn the_documented_example_is_read_without_a_warning() {
    let loaded = parse(EXAMPLE, "millpond.toml").unwrap();
    assert_eq!(loaded.warnings, []);
    let configuration = loaded.configuration;
    let target = &configuration.targets["registrar"];
    assert_eq!(target.settings.concurrency, 40);
    assert_eq!(target.settings.rate.unwrap().events, 500);
    let mut expected = QueueSettings {
        target: Some("registrar".to_owned().try_into().unwrap()),
        concurrency: Some(40),
        max_wait: Some(seconds(2_700)),
        max_messages: Some(2_000_000),
        expected_service_time: Some(Duration::from_millis(80)),
        ..QueueSettings::default()
    };
    expected.dead_letter.owner = Some("team-enrollment".to_owned());
    (expected.alerts.oldest_age, expected.alerts.depth) = (Some(seconds(600)), Some(500_000));
    assert_eq!(configuration.queues["enrollments"], expected);
    let server = Configuration {
        targets: configuration.targets,
        queues: configuration.queues,
        ..Configuration::default()
    };
    assert_eq!(accept(EXAMPLE), server, "the example states the defaults of the server");
}

#[test]
fn the_documented_example_is_loaded_with_its_route_and_schema() {
    let directory = tempfile::tempdir().unwrap();
    let route = r#"
[[routes]]
path = "/enroll/{*rest}"
methods = ["POST"]
queue = "enrollments"
schema = "schemas/enrollment.json"
keep_headers = ["content-type", "x-request-id"]
"#;
    let file = directory.path().join("millpond.toml");
    std::fs::write(&file, format!("{EXAMPLE}{route}")).unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("routes[0].schema: cannot read schemas/enrollment.json"), "{error}");
    let schema = directory.path().join("schemas/enrollment.json");
    std::fs::create_dir(schema.parent().unwrap()).unwrap();
    std::fs::write(&schema, "{\"type\": \"objekt\"}").unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("schemas/enrollment.json at /type: "), "{error}");
    std::fs::write(&schema, "{\"type\": \"object\"}").unwrap();
    let loaded = load(&file).unwrap();
    assert_eq!(loaded.warnings, []);
    let route = &loaded.configuration.routes[0];
    assert_eq!((route.path.as_str(), route.queue.as_str()), ("/enroll/{*rest}", "enrollments"));
    assert_eq!(route.schema.as_ref().unwrap().path(), Path::new("schemas/enrollment.json"));
}

#[test]
fn nothing_is_every_default() {
    assert_eq!(accept(""), Configuration::default());
    assert_eq!(accept("\u{feff}# only a comment\r\n"), Configuration::default());
}

#[test]
fn every_key_of_the_server_is_read() {
    let configuration = accept(
        "listen = \"[::1]:9\"\ndata = \"/var/lib/millpond\"\nexternal_url = \"https://m.example/\"\n\
         allowed_hosts = [\"M.Example\"]\nmax_body = 65536\n",
    );
    assert_eq!(configuration.listen.to_string(), "[::1]:9");
    assert_eq!(configuration.data, Path::new("/var/lib/millpond"));
    assert_eq!(configuration.external_url.as_deref(), Some("https://m.example"));
    assert_eq!(configuration.allowed_hosts, ["m.example"]);
    assert_eq!(configuration.max_body_bytes, 65_536);
}

#[test]
fn every_key_of_a_target_is_read() {
    let target = target(
        "rate = \"30/m\"\ntimeout = \"7s\"\nhold_after_timeout = \"9s\"\nadaptive = true\n\
         latency_objective = \"150ms\"\nramp = \"30s\"\n\
         breaker = { failures = 3, failure_rate = 0.5, window = \"20s\", probe_after = \"2s\", probe_max = \"5m\" }\n\
         headers = { Authorization = \"Bearer x\", x-y = \"\" }\n\
         outcomes = { \"404\" = \"dead\", \"200\" = \"complete\", \"409\" = \"retry\", \"423\" = \"release\" }",
    );
    assert_eq!(target.url, "http://a:1/");
    assert_eq!(target.settings.concurrency, 40);
    assert_eq!(target.settings.rate.map(|rate| (rate.events, rate.per)), Some((30, seconds(60))));
    assert_eq!((target.settings.timeout, target.settings.hold_after_timeout), (seconds(7), Some(seconds(9))));
    let latency_objective = Some(Duration::from_millis(150));
    assert_eq!(target.settings.adaptive, Some(AdaptiveSettings { latency_objective }));
    assert_eq!(target.settings.ramp, Some(seconds(30)));
    let breaker = BreakerSettings {
        failures: 3,
        failure_rate: 0.5,
        window: seconds(20),
        probe_after: seconds(2),
        probe_max: seconds(300),
    };
    assert_eq!(target.settings.breaker, Some(breaker));
    assert_eq!(target.headers["authorization"], "Bearer x");
    assert_eq!(target.headers.len(), 2);
    let outcomes: Vec<_> = target.outcomes.into_iter().collect();
    assert_eq!(
        outcomes,
        [
            (200, PushOutcome::Complete),
            (404, PushOutcome::Dead),
            (409, PushOutcome::Retry),
            (423, PushOutcome::Release)
        ]
    );
}

#[test]
fn a_target_has_a_breaker_unless_it_is_said_that_it_has_none() {
    let usual = BreakerSettings::default();
    for (text, breaker) in [
        ("", Some(usual)),
        ("breaker = true", Some(usual)),
        ("breaker = false", None),
        ("breaker = {}", Some(usual)),
        ("breaker = { probe_max = \"5m\" }", Some(BreakerSettings { probe_max: seconds(300), ..usual })),
    ] {
        assert_eq!(target(text).settings.breaker, breaker, "{text}");
        assert_eq!(target(text).settings.ramp, None);
    }
}

#[test]
fn every_key_of_a_queue_is_read() {
    assert_eq!(queue("").target.as_ref().map(ToString::to_string).as_deref(), Some("t"));
    assert_eq!(queue("concurrency = 7").concurrency, Some(7));
    assert_eq!(queue("max_wait = \"1m\"").max_wait, Some(seconds(60)));
    assert_eq!(queue("max_messages = 1_000").max_messages, Some(1_000));
    assert_eq!(queue("max_bytes = \"2MiB\"").max_bytes, 2 << 20);
    for (word, overflow) in
        [("reject", Overflow::Reject), ("block", Overflow::Block), ("drop-oldest", Overflow::DropOldest)]
    {
        assert_eq!(queue(&format!("overflow = \"{word}\"")).overflow, overflow);
    }
    assert_eq!(queue("overflow = \"block\"\nblock_for = \"5s\"").block_for, seconds(5));
    for (word, order) in [("fifo", Order::Fifo), ("lifo", Order::Lifo), ("adaptive", Order::Adaptive)] {
        assert_eq!(queue(&format!("order = \"{word}\"")).order, order);
    }
    assert_eq!(queue("order = \"adaptive\"\nfresh_within = \"2s\"").fresh_within, seconds(2));
    for (word, priority) in [("weighted", Priority::Weighted), ("strict", Priority::Strict)] {
        assert_eq!(queue(&format!("priority = \"{word}\"")).priority, priority);
    }
    assert_eq!(queue("prefetch = 3").prefetch, 3);
    assert_eq!(queue("max_keys = 12").max_keys, 12);
    assert_eq!((queue("dead_burst = 0").dead_burst, queue("dead_burst = 7").dead_burst), (0, 7));
    assert_eq!(queue("lease = \"7m\"").lease, seconds(420));
    assert_eq!(queue("retention = \"3d\"").retention, seconds(259_200));
    assert_eq!(queue("on_expiry = \"drop\"").on_expiry, OnExpiry::Drop);
    assert_eq!(queue("on_expiry = \"dead-letter\"").on_expiry, OnExpiry::DeadLetter);
    assert_eq!(queue("result_retention = \"0s\"").result_retention, Duration::ZERO);
    assert_eq!(queue("result_max = \"1KiB\"").result_max_bytes, 1_024);
    assert_eq!(
        queue("expected_service_time = \"250us\"").expected_service_time,
        Some(Duration::from_micros(250))
    );
    assert_eq!(queue("retry.max_attempts = 9").retry.max_attempts, 9);
    assert_eq!(queue("retry.max_deliveries = 11").retry.max_deliveries, Some(11));
    let backoff = queue("retry.backoff = { min = \"2s\", max = \"3s\" }").retry;
    assert_eq!((backoff.backoff_min, backoff.backoff_max), (seconds(2), seconds(3)));
    for (text, budget) in [("0", 0.0), ("0.25", 0.25), ("1", 1.0), ("1.0", 1.0), ("2_5e-2", 0.25)] {
        assert!((queue(&format!("retry.budget = {text}")).retry.budget - budget).abs() < 1e-9, "{text}");
    }
    assert_eq!(queue("dead_letter.replayable_for = \"2d\"").dead_letter.replayable_for, seconds(172_800));
    assert_eq!(queue("dead_letter.retention = \"30d\"").dead_letter.retention, seconds(2_592_000));
    assert_eq!(queue("dead_letter.max_messages = 5").dead_letter.max_messages, 5);
    assert_eq!(queue("dead_letter.owner = \"us\"").dead_letter.owner.as_deref(), Some("us"));
}

#[test]
fn secrets_in_headers_are_not_in_debug_output() {
    let configuration = accept(&with("headers = { authorization = \"Bearer hunter2\" }", ""));
    assert!(!format!("{configuration:?}").contains("hunter2"));
}

#[test]
fn a_file_is_loaded_or_refused_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    assert_eq!(load(&write("good.toml", EXAMPLE.as_bytes())).unwrap().configuration, accept(EXAMPLE));
    let missing = load(&directory.path().join("none.toml")).unwrap_err();
    assert!(
        matches!(missing, ConfigurationError::Unreadable { .. }) && missing.to_string().contains("none.toml")
    );
    let binary = load(&write("binary.toml", b"a = \xff")).unwrap_err();
    assert!(matches!(binary, ConfigurationError::NotUtf8 { valid_up_to: 4, .. }), "{binary}");
    let large = load(&write("large.toml", &vec![b'\n'; (1 << 20) + 1])).unwrap_err();
    assert!(matches!(large, ConfigurationError::TooLarge { .. }), "{large}");
    let wrong = load(&write("wrong.toml", b"\nlease = 1")).unwrap_err().to_string();
    assert!(wrong.contains("wrong.toml:2:1"), "{wrong}");
}

#[test]
fn the_page_of_the_documentation_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    assert!(
        std::fs::read_to_string(page).unwrap() == reference_markdown(),
        "run: cargo run -p millpond-config --example reference > docs/reference/configuration.md"
    );
}
