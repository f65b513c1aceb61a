//! Our rules in Prometheus' words.
//!
//! Owns the expression for each rule's value. Must never have a threshold of its own: they are the configuration's.

use millpond_config::Configuration;
use millpond_core::alert::{
    AlertSettings, CLEARS_BELOW, REFUSALS_LEAST, Rule, ServerAlertSettings, Unit, WINDOW,
};
use std::time::Duration;

/// Rules that are evaluated together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) rules: Vec<PrometheusRule>,
}

/// One alert for Prometheus.
#[derive(Debug)]
pub(super) struct PrometheusRule {
    pub(super) name: String,
    /// One line per part.
    pub(super) expression: String,
    pub(super) hold: Duration,
    pub(super) keep: Duration,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) annotations: Vec<(&'static str, String)>,
}

/// How long nothing may be heard of a server.
const SILENT_FOR: Duration = Duration::from_mins(2);

/// Every rule of a configuration: the server's, each declared queue's, and, with the defaults, those of queues that are
/// made while the server runs.
pub(super) fn groups(configuration: &Configuration, runbooks: &str) -> Vec<Group> {
    let mut groups = vec![Group {
        name: "millpond".to_owned(),
        rules: of_server(&configuration.alerts, runbooks).chain([silence(runbooks)]).collect(),
    }];
    for (name, queue) in &configuration.queues {
        let selector = format!("queue=\"{name}\"");
        let owner = queue.dead_letter.owner.as_deref();
        let mut rules: Vec<PrometheusRule> = of_queue(&queue.alerts, &selector, owner, runbooks).collect();
        for rule in &mut rules {
            // It is there anyway, but says at a glance that no two rules are the same.
            rule.labels.push(("queue", name.as_str().to_owned()));
        }
        groups.push(Group { name: format!("millpond-queue-{name}"), rules });
    }
    // Of what names may hold, only the dot means something in a pattern.
    let declared = configuration.queues.keys().map(|name| name.as_str().replace('.', "\\\\."));
    let declared = declared.collect::<Vec<_>>().join("|");
    let others = if declared.is_empty() { String::new() } else { format!("queue!~\"{declared}\"") };
    groups.push(Group {
        name: "millpond-other-queues".to_owned(),
        rules: of_queue(&AlertSettings::default(), &others, None, runbooks).collect(),
    });
    groups.retain(|group| !group.rules.is_empty());
    groups
}

/// The name of a rule's alert.
pub(super) fn name(rule: Rule) -> String {
    if rule == Rule::Dead {
        // Not Millpond is.
        return "MillpondDeadLetters".to_owned();
    }
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    format!("Millpond{}", rule.as_str().split('-').map(capital).collect::<String>())
}

fn of_server<'a>(
    settings: &'a ServerAlertSettings,
    runbooks: &'a str,
) -> impl Iterator<Item = PrometheusRule> + use<'a> {
    let read =
        move |rule: Rule| Some(alert(rule, settings.threshold(rule)?, "", settings.hold, None, runbooks));
    Rule::ALL.into_iter().filter_map(read)
}

fn of_queue<'a>(
    settings: &'a AlertSettings,
    selector: &'a str,
    owner: Option<&'a str>,
    runbooks: &'a str,
) -> impl Iterator<Item = PrometheusRule> + use<'a> {
    let read = move |rule: Rule| {
        Some(alert(rule, settings.threshold(rule)?, selector, settings.hold, owner, runbooks))
    };
    Rule::ALL.into_iter().filter_map(read)
}

fn alert(
    rule: Rule,
    threshold: f64,
    selector: &str,
    hold: Duration,
    owner: Option<&str>,
    runbooks: &str,
) -> PrometheusRule {
    let (summary, name) = (summary(rule), name(rule));
    let mut labels = vec![("severity", rule.severity().as_str().to_owned())];
    labels.extend(owner.map(|owner| ("owner", literal(owner))));
    PrometheusRule {
        expression: expression(rule, &name, threshold, selector),
        hold: if rule.waits() { hold } else { Duration::ZERO },
        keep: hold,
        labels,
        annotations: vec![
            ("summary", summary.to_owned()),
            (
                "description",
                rule.advice()
                    .replace("QUEUE", "{{ $labels.queue }}")
                    .replace("TARGET", "{{ $labels.target }}"),
            ),
            ("runbook_url", format!("{}#{}", literal(runbooks), rule.as_str())),
        ],
        name,
    }
}

/// What only Prometheus can see: that there is nothing to see.
fn silence(runbooks: &str) -> PrometheusRule {
    PrometheusRule {
        name: "MillpondDown".to_owned(),
        expression: "absent(millpond_journal_bytes)".to_owned(),
        hold: SILENT_FOR,
        keep: Duration::ZERO,
        labels: vec![("severity", "critical".to_owned())],
        annotations: vec![
            ("summary", "No Millpond has told its numbers for two minutes".to_owned()),
            (
                "description",
                "Look whether it runs (its log says why it stopped) and whether Prometheus reaches /metrics."
                    .to_owned(),
            ),
            ("runbook_url", format!("{}#down", literal(runbooks))),
        ],
    }
}

/// A rule fires at its threshold, and once it fires, goes on down to a share of it: as in `millpond-core`.
fn expression(rule: Rule, name: &str, threshold: f64, selector: &str) -> String {
    let value = value(rule, selector);
    if rule.unit() == Unit::State || rule == Rule::Insurmountable {
        return format!("{value} >= 1");
    }
    let enough = |share: f64| {
        let least = REFUSALS_LEAST * share;
        match rule {
            Rule::Refusals => format!("\n  and {} >= {least}", refused(selector)),
            _ => String::new(),
        }
    };
    let below = threshold * CLEARS_BELOW;
    format!(
        "{value} >= {threshold}{}\nor\n{value} >= {below}{}\n  and ignoring (alertname, alertstate, severity, owner) \
         ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}",
        enough(1.0),
        enough(CLEARS_BELOW)
    )
}

fn with(selector: &str, more: &str) -> String {
    let parts = [selector, more].into_iter().filter(|part| !part.is_empty());
    format!("{{{}}}", parts.collect::<Vec<_>>().join(","))
}

fn window() -> String {
    format!("[{}]", duration(WINDOW))
}

fn refused(selector: &str) -> String {
    format!("sum without (reason) (increase(millpond_refused_total{}{}))", with(selector, ""), window())
}

fn value(rule: Rule, selector: &str) -> String {
    let held = |reason: &str| {
        let selector = with(selector, &format!("reason=\"{reason}\""));
        format!("sum without (reason) (millpond_queue_held{selector})")
    };
    let messages = |states: &str| {
        let selector = with(selector, &format!("state=~\"{states}\""));
        format!("sum without (state) (millpond_queue_messages{selector})")
    };
    match rule {
        Rule::OldestAge => {
            let selector = with(selector, "state=\"any\"");
            format!("sum without (state) (millpond_queue_oldest_age_seconds{selector})")
        }
        Rule::Depth => messages("ready|backoff"),
        Rule::Dead => messages("dead"),
        Rule::Refusals => {
            let refused = refused(selector);
            let (selector, window) = (with(selector, ""), window());
            let accepted =
                format!("sum without (criticality) (increase(millpond_accepted_total{selector}{window}))");
            format!("{refused}\n  / ({refused}\n  + {accepted})")
        }
        Rule::Insurmountable => format!("millpond_queue_insurmountable{}", with(selector, "")),
        Rule::DeadBurst => held("dead-burst"),
        Rule::DeadLettersFull => held("dead-letters-full"),
        Rule::CallbacksFull => held("callbacks-full"),
        Rule::BreakerOpen => {
            "sum without (state) (millpond_target_state{state=~\"open|half-open\"})".to_owned()
        }
        Rule::StorageFull => "millpond_journal_full".to_owned(),
        Rule::SlowCommits => {
            let window = window();
            format!(
                "rate(millpond_journal_commit_seconds_sum{window})\n  / rate(millpond_journal_commit_seconds_count{window})"
            )
        }
    }
}

fn summary(rule: Rule) -> &'static str {
    match rule {
        Rule::OldestAge => {
            "The oldest unfinished message of queue {{ $labels.queue }} is {{ $value | humanizeDuration }} old"
        }
        Rule::Depth => "{{ $value }} messages wait in queue {{ $labels.queue }}",
        Rule::Dead => "Queue {{ $labels.queue }} has {{ $value }} dead letters",
        Rule::Refusals => {
            "{{ $value | humanizePercentage }} of what arrives at queue {{ $labels.queue }} is refused"
        }
        Rule::Insurmountable => {
            "More arrives at queue {{ $labels.queue }} than can be done: its backlog grows without end"
        }
        Rule::DeadBurst => {
            "Queue {{ $labels.queue }} has paused itself: too many messages were given up in a row"
        }
        Rule::DeadLettersFull => {
            "Queue {{ $labels.queue }} hands out nothing: there is no room for more dead letters"
        }
        Rule::CallbacksFull => {
            "Queue {{ $labels.queue }} hands out nothing: there is no room for more callbacks"
        }
        Rule::BreakerOpen => "Target {{ $labels.target }} does not answer",
        Rule::StorageFull => "The disk of {{ $labels.instance }} is full: new work is refused",
        Rule::SlowCommits => {
            "A commit to the disk of {{ $labels.instance }} takes {{ $value | humanizeDuration }} on average"
        }
    }
}

/// Text that Prometheus shall not take for a template.
fn literal(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// As Prometheus writes durations.
pub(super) fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match (millis % 60_000, millis % 1_000) {
        (0, _) if millis > 0 => format!("{}m", millis / 60_000),
        (_, 0) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, literal, name};
    use millpond_core::alert::Rule;
    use std::time::Duration;

    #[test]
    fn names_are_in_camel_case() {
        assert_eq!(name(Rule::OldestAge), "MillpondOldestAge");
        assert_eq!(name(Rule::DeadLettersFull), "MillpondDeadLettersFull");
        assert_eq!(name(Rule::Dead), "MillpondDeadLetters");
    }

    #[test]
    fn durations_have_one_unit() {
        for (millis, text) in
            [(0, "0s"), (500, "500ms"), (90_000, "90s"), (60_000, "1m"), (86_400_000, "1440m")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn an_owner_is_no_template() {
        assert_eq!(literal("a {{ b }}"), "a {{ \"{{\" }} b }}");
    }
}
