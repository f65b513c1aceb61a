//! What Prometheus itself says of our rules, our dashboard and our numbers.
//!
//! Owns tests that `cargo xtask promtool` runs with the `promtool` that it has found. Must never need one otherwise.

use crate::harness::{Server, configuration, name, with_target};
use millpond_config::{Configuration, parse};
use millpond_core::alert::{Alert, Change, LogSeen, Rule, Seen, Subject, Watch};
use millpond_core::breaker::BreakerState;
use millpond_core::command::QueueView;
use millpond_core::settings::QueueSettings;
use millpond_core::stats::{CallEnding, Held, QueueStats, TargetStats};
use millpond_core::time::{Mono, Now, Wall};
use millpond_server::export::{RUNBOOKS, dashboard, prometheus};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs promtool, which must be content.
fn promtool(arguments: &[&str], input: &str) {
    let program = std::env::var("PROMTOOL").expect("PROMTOOL says where it is: cargo xtask promtool");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}\n{input}", said(&done.stdout), said(&done.stderr));
    // A lint is no failure to promtool; it is one here.
    assert_eq!(said(&done.stderr).trim(), "", "{input}");
}

fn check_rules(text: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yml");
    std::fs::write(&file, text).unwrap();
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", file.to_str().unwrap()], "");
}

#[test]
#[ignore = "needs promtool: cargo xtask promtool"]
fn every_rule_file_is_accepted_whatever_the_configuration_says() {
    check_rules(&prometheus(&Configuration::default(), RUNBOOKS));
    let text = r#"
        [queues."a.b-c"]
        dead_letter.owner = "\"team\" {{ .Bad }} \\ 'x': #\u2028 é 🦆 %"
        alerts = { oldest_age = "10m", depth = 500000, for = "1500ms" }
        [queues._]
        alerts = { oldest_age = "1us", depth = 18446744073709551615, refusals = 1, for = "0s" }
        [alerts]
        slow_commits = "1ms"
    "#;
    check_rules(&prometheus(&parse(text, "test").unwrap().configuration, "https://wiki.example/{{x}}"));
}

#[test]
#[ignore = "needs promtool: cargo xtask promtool"]
fn every_expression_of_the_dashboard_is_one() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let rules: Vec<Value> = targets
        .enumerate()
        .map(|(place, target)| {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$queue", ".*").replace("$target", ".*");
            let expression = expression.replace("$__rate_interval", "5m");
            assert!(!expression.contains('$'), "{expression}");
            json!({"record": format!("panel:{place}"), "expr": expression})
        })
        .collect();
    assert!(rules.len() > 20);
    check_rules(&json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs promtool: cargo xtask promtool"]
async fn the_metrics_of_a_server_at_work_pass_the_lint() {
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    with_target(&mut configuration, ([127, 0, 0, 1], 9).into(), 2);
    let server = Server::start(configuration).await;
    server.enqueue("q", "x").await;
    let leased = server.lease("q", &json!({"max": 1})).await;
    server.settle(json!({"outcome": "complete"}), &leased[0]["receipt"]).await;
    let text = server.send("GET", "/metrics", &[("accept", "text/plain")], "").await.body;
    promtool(&["check", "metrics"], std::str::from_utf8(&text).unwrap());
    server.stop().await;
}

/// How a queue, a target and a log do over time, second by second.
struct Story {
    queue: QueueView,
    target: TargetStats,
    log: LogSeen,
}

const SECONDS: u64 = 1_200;

impl Story {
    fn new(settings: QueueSettings) -> Self {
        let queue = QueueView { name: name("jobs"), settings, declared: true, stats: QueueStats::default() };
        let target = TargetStats {
            name: name("till"),
            inflight: 0,
            limit: 1,
            places: 1,
            throttled_for: Duration::ZERO,
            concurrency: 1,
            adaptive: false,
            rate_per_second: None,
            state: BreakerState::Closed,
            state_for: Duration::ZERO,
            next_probe: None,
            ramp_limit: None,
            failures_in_row: 0,
            calls: [0; CallEnding::ALL.len()],
            queues: Vec::new(),
        };
        Self { queue, target, log: LogSeen::default() }
    }

    fn at(&mut self, second: u64) {
        let stats = &mut self.queue.stats;
        stats.oldest_age = Duration::from_secs(match second {
            0..200 => second,
            // Around the threshold, where it must not flap.
            200..400 => [85, 110, 99, 120][usize::try_from(second / 10 % 4).unwrap()],
            _ => 3,
        });
        (stats.ready, stats.backoff) = match second {
            100..150 => (30, 20),
            300..500 => (20, 31),
            _ => (10, 0),
        };
        stats.dead = match second {
            50..90 => 2,
            120..300 => 1,
            _ => 0,
        };
        stats.insurmountable = (250..500).contains(&second) && (second / 20).is_multiple_of(2);
        stats.held = match second {
            200..230 => Some(Held::DeadBurst),
            900..1_000 => Some(Held::DeadLettersFull),
            1_010..1_020 => Some(Held::CallbacksFull),
            _ => None,
        };
        stats.totals.accepted_by_criticality[1] += if second == 0 { 0 } else { 10 };
        stats.totals.refused_full += if (300..500).contains(&second) { 5 } else { 0 };
        self.target.state = match second {
            // Probes in vain are no end of it.
            400..600 if second.is_multiple_of(20) => BreakerState::HalfOpen,
            // The first is a restart, of which nobody need hear.
            100..130 | 400..600 => BreakerState::Open,
            _ => BreakerState::Closed,
        };
        self.log.full = (600..610).contains(&second);
        let mean = if (700..900).contains(&second) { 1.0 } else { 0.01 };
        if second > 0 {
            self.log.commits += 2;
            self.log.commit_seconds += 2.0 * mean;
        }
    }

    /// The samples that `/metrics` would have.
    fn samples(&self) -> Vec<(&'static str, f64)> {
        let stats = &self.queue.stats;
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        let held = |held: Held| flag(stats.held == Some(held));
        let is = |state: BreakerState| flag(self.target.state == state);
        vec![
            ("millpond_queue_oldest_age_seconds{QUEUE,state=\"any\"}", stats.oldest_age.as_secs_f64()),
            ("millpond_queue_messages{QUEUE,state=\"ready\"}", stats.ready as f64),
            ("millpond_queue_messages{QUEUE,state=\"backoff\"}", stats.backoff as f64),
            ("millpond_queue_messages{QUEUE,state=\"delayed\"}", 1_000.0),
            ("millpond_queue_messages{QUEUE,state=\"dead\"}", stats.dead as f64),
            ("millpond_queue_insurmountable{QUEUE}", flag(stats.insurmountable)),
            ("millpond_queue_held{QUEUE,reason=\"dead-burst\"}", held(Held::DeadBurst)),
            ("millpond_queue_held{QUEUE,reason=\"dead-letters-full\"}", held(Held::DeadLettersFull)),
            ("millpond_queue_held{QUEUE,reason=\"callbacks-full\"}", held(Held::CallbacksFull)),
            ("millpond_target_state{TARGET,state=\"closed\"}", is(BreakerState::Closed)),
            ("millpond_target_state{TARGET,state=\"open\"}", is(BreakerState::Open)),
            ("millpond_target_state{TARGET,state=\"half-open\"}", is(BreakerState::HalfOpen)),
            ("millpond_accepted_total{QUEUE,criticality=\"critical\"}", stats.totals.accepted() as f64),
            ("millpond_refused_total{QUEUE,reason=\"queue-full\"}", stats.totals.refused() as f64),
            ("millpond_journal_full{SERVER}", flag(self.log.full)),
            ("millpond_journal_bytes{SERVER}", 1.0),
            ("millpond_journal_commit_seconds_count{SERVER}", self.log.commits as f64),
            ("millpond_journal_commit_seconds_sum{SERVER}", self.log.commit_seconds),
        ]
    }
}

/// What promtool shall find at a second.
fn expected(second: u64, firing: &[Alert]) -> Value {
    let samples: Vec<Value> = firing
        .iter()
        .map(|alert| {
            let word: String =
                alert.rule.as_str().split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            let word = if alert.rule == Rule::Dead { "DeadLetters" } else { &word };
            let subject = match &alert.subject {
                Subject::Queue(queue) => format!(",queue=\"{queue}\""),
                Subject::Target(target) => format!(",target=\"{target}\""),
                Subject::Server => String::new(),
            };
            json!({"labels": format!("{{alertname=\"Millpond{word}\"{subject}}}"), "value": 1})
        })
        .collect();
    json!({
        "expr": "count by (alertname, queue, target) (ALERTS{alertstate=\"firing\"})",
        "eval_time": format!("{second}s"),
        "exp_samples": samples,
    })
}

#[test]
#[ignore = "needs promtool: cargo xtask promtool"]
fn prometheus_fires_and_clears_when_the_server_does() {
    let text = "[queues.jobs]\ndead_letter.owner = 'team'\nalerts = { oldest_age = '100s', depth = 50 }";
    let configuration = parse(text, "test").unwrap().configuration;
    let mut story = Story::new(configuration.queues["jobs"].clone());
    let mut watch = Watch::new(configuration.alerts.clone());
    let mut series: Vec<(&str, Vec<String>)> =
        story.samples().iter().map(|(series, _)| (*series, Vec::new())).collect();
    let (mut changes, mut firing): (Vec<(u64, Rule)>, Vec<Vec<Alert>>) = (Vec::new(), Vec::new());
    for second in 0..SECONDS {
        story.at(second);
        for ((_, value), (_, values)) in story.samples().into_iter().zip(&mut series) {
            values.push(value.to_string());
        }
        let elapsed = Duration::from_secs(second);
        let now = Now { wall: Wall(1_000_000).plus(elapsed), mono: Mono(0).plus(elapsed) };
        let seen = Seen {
            queues: std::slice::from_ref(&story.queue),
            targets: std::slice::from_ref(&story.target),
            log: story.log,
        };
        changes.extend(watch.look(&seen, now).iter().map(|Change(alert)| (second, alert.rule)));
        firing.push(watch.firing());
    }
    let rules: BTreeSet<Rule> = changes.iter().map(|(_, rule)| *rule).collect();
    assert_eq!(rules.len(), Rule::ALL.len(), "the story has every rule in it: {changes:?}");
    // Prometheus extrapolates what grew within a window, so that there the second is not exact.
    let is_sure = |second: &u64| {
        let slack = |rule: Rule| if matches!(rule, Rule::Refusals | Rule::SlowCommits) { 6 } else { 0 };
        changes.iter().all(|(at, rule)| at.abs_diff(*second) >= slack(*rule))
    };
    let tests: Vec<Value> = (0..SECONDS)
        .filter(is_sure)
        .map(|second| expected(second, &firing[usize::try_from(second).unwrap()]))
        .collect();
    assert!(tests.len() > 1_100, "{}", tests.len());
    run_rule_tests(&prometheus(&configuration, RUNBOOKS), &series, &tests);
}

fn run_rule_tests(rules: &str, series: &[(&str, Vec<String>)], tests: &[Value]) {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path: &Path = directory.path();
        std::fs::write(path.join(file), text).unwrap();
        path.join(file).to_str().unwrap().to_owned()
    };
    write("rules.yml", rules);
    let server = "instance=\"a:8080\",job=\"millpond\",pod=\"pond-0\"";
    let series: Vec<Value> = series
        .iter()
        .map(|(series, values)| {
            let series = series
                .replace("QUEUE", &format!("queue=\"jobs\",{server}"))
                .replace("TARGET", &format!("target=\"till\",{server}"))
                .replace("SERVER", server);
            json!({"series": series, "values": values.join(" ")})
        })
        .collect();
    let document = json!({
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1s",
        "tests": [{"interval": "1s", "input_series": series, "promql_expr_test": tests}],
    });
    let file = write("test.yml", &document.to_string());
    promtool(&["test", "rules", &file], "");
}
