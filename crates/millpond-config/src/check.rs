//! Checks that need more than one key: limits of `millpond-core`, a queue against its target.
//!
//! Owns the rules and their texts, for the file and for the HTTP API alike. Must never know where a setting
//! stands: the caller maps fields to places.

use crate::alerts;
use crate::configuration::{Configuration, Target};
use crate::diagnostic::Severity;
use crate::keys::nearest;
use crate::quantity::{format_duration, format_size};
use millpond_core::alert::ServerAlertSettings;
use millpond_core::name::Name;
use millpond_core::settings::{
    BreakerSettings, Order, Overflow, QueueSettings, RETENTION_MAX, RetrySettings, SettingsError,
    TargetSettings,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// One thing that is wrong, or doubtful, with settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// The dotted key below the queue or the target, as in the configuration file.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub help: String,
}

fn finding(severity: Severity, field: &'static str, problem: String, help: String) -> Finding {
    Finding { severity, field, problem, help }
}

/// Everything that is wrong with a queue's settings by themselves.
pub fn check_queue(settings: &QueueSettings) -> Vec<Finding> {
    let mut candidate = settings.clone();
    all_errors(
        || candidate.validate().inspect_err(|error| neutralise(&mut candidate, error.field)),
        |error| queue_advice(settings, error),
    )
}

/// Everything that is wrong with a target's settings.
pub(crate) fn check_target(settings: &TargetSettings) -> Vec<Finding> {
    let mut candidate = settings.clone();
    let neutral = |candidate: &mut TargetSettings, field: &str| match field {
        "concurrency" => candidate.concurrency = 1,
        "timeout" => candidate.timeout = Duration::from_secs(5),
        "latency_objective" => candidate.adaptive = None,
        "ramp" => candidate.ramp = None,
        field if field.starts_with("breaker.") => neutralise_breaker(candidate, field),
        _ => candidate.hold_after_timeout = None,
    };
    all_errors(|| candidate.validate().inspect_err(|error| neutral(&mut candidate, error.field)), |_| None)
}

fn neutralise_breaker(settings: &mut TargetSettings, field: &str) {
    let (Some(breaker), fresh) = (&mut settings.breaker, BreakerSettings::default()) else { return };
    match field {
        "breaker.failures" => breaker.failures = fresh.failures,
        "breaker.failure_rate" => breaker.failure_rate = fresh.failure_rate,
        "breaker.window" => breaker.window = fresh.window,
        // The longest pause is looked at next.
        "breaker.probe_after" => {
            breaker.probe_after = fresh.probe_after;
            breaker.probe_max = breaker.probe_max.max(fresh.probe_after);
        }
        _ => settings.breaker = None,
    }
}

/// Everything that is wrong with the alerts that are not a queue's.
pub(crate) fn check_alerts(settings: &ServerAlertSettings) -> Vec<Finding> {
    let fresh = ServerAlertSettings::default();
    let mut candidate = settings.clone();
    let neutral = |candidate: &mut ServerAlertSettings, field: &str| match field {
        "for" => candidate.hold = fresh.hold,
        _ => candidate.slow_commits = fresh.slow_commits,
    };
    all_errors(|| candidate.validate().inspect_err(|error| neutral(&mut candidate, error.field)), |_| None)
}

/// Core reports the first error only, so each one found is put right in a copy and the copy checked again.
fn all_errors(
    mut validate: impl FnMut() -> Result<(), SettingsError>,
    advice: impl Fn(&SettingsError) -> Option<String>,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    while let Err(error) = validate() {
        if findings.iter().any(|known| known.field == error.field) {
            break;
        }
        let special = advice(&error);
        let (problem, help) = match (special, error.reason.split_once("; ")) {
            (Some(help), _) => (error.reason, help),
            (None, Some((problem, help))) => (problem.to_owned(), help.to_owned()),
            (None, None) => (error.reason, "change it, or leave it out for its default".to_owned()),
        };
        findings.push(finding(Severity::Error, error.field, problem, help));
    }
    findings
}

fn queue_advice(settings: &QueueSettings, error: &SettingsError) -> Option<String> {
    match error.field {
        "dead_letter.retention" => Some(format!(
            "set dead_letter.retention to more than {} (at most {}), or shorten the queue's retention",
            format_duration(settings.retention),
            format_duration(RETENTION_MAX)
        )),
        _ => None,
    }
}

/// Sets the field of an error to something valid, so that the next error shows.
fn neutralise(settings: &mut QueueSettings, field: &str) {
    let fresh = QueueSettings::default();
    match field {
        "concurrency" => settings.concurrency = None,
        "max_messages" => settings.max_messages = None,
        "max_bytes" => settings.max_bytes = fresh.max_bytes,
        "max_wait" => settings.max_wait = None,
        "block_for" => settings.block_for = fresh.block_for,
        "fresh_within" => settings.fresh_within = fresh.fresh_within,
        "prefetch" => settings.prefetch = fresh.prefetch,
        "max_keys" => settings.max_keys = fresh.max_keys,
        "lease" => settings.lease = fresh.lease,
        "retention" => settings.retention = fresh.retention,
        "result_retention" => settings.result_retention = fresh.result_retention,
        "result_max" => settings.result_max_bytes = fresh.result_max_bytes,
        "expected_service_time" => settings.expected_service_time = None,
        "retry.max_attempts" => settings.retry.max_attempts = fresh.retry.max_attempts,
        "retry.max_deliveries" => settings.retry.max_deliveries = None,
        "retry.backoff" => {
            let RetrySettings { backoff_min, backoff_max, .. } = fresh.retry;
            (settings.retry.backoff_min, settings.retry.backoff_max) = (backoff_min, backoff_max);
        }
        "retry.budget" => settings.retry.budget = fresh.retry.budget,
        "dead_letter.replayable_for" => {
            settings.dead_letter.replayable_for = fresh.dead_letter.replayable_for;
        }
        "dead_letter.max_messages" => settings.dead_letter.max_messages = fresh.dead_letter.max_messages,
        "dead_letter.retention" => settings.dead_letter.retention = RETENTION_MAX,
        "alerts.oldest_age" => settings.alerts.oldest_age = None,
        "alerts.depth" => settings.alerts.depth = None,
        "alerts.refusals" => settings.alerts.refusals = fresh.alerts.refusals,
        "alerts.for" => settings.alerts.hold = fresh.alerts.hold,
        _ => {}
    }
}

/// What is wrong, or doubtful, with a queue in its surroundings: the targets and the largest body.
pub fn check_surroundings(settings: &QueueSettings, configuration: &Configuration) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = &settings.target {
        match configuration.targets.get(name) {
            Some(target) => findings.extend(check_against_target(settings, name, target)),
            None => findings.push(missing_target(name, &configuration.targets)),
        }
    }
    if let Some(max_wait) = settings.max_wait.filter(|max_wait| *max_wait >= settings.retention) {
        findings.push(finding(
            Severity::Warning,
            "max_wait",
            format!(
                "a message may wait {} but expires after {}",
                format_duration(max_wait),
                format_duration(settings.retention)
            ),
            "make retention longer than max_wait, so that a promise can be kept".to_owned(),
        ));
    }
    findings.extend(without_effect(settings));
    findings.extend(alerts::without_effect(settings));
    if settings.max_bytes < configuration.max_body_bytes {
        findings.push(finding(
            Severity::Warning,
            "max_bytes",
            format!(
                "a body may have {} (max_body) but the queue holds {} in all",
                format_size(configuration.max_body_bytes),
                format_size(settings.max_bytes)
            ),
            "raise max_bytes, or lower max_body: the largest bodies would always be refused".to_owned(),
        ));
    }
    findings
}

/// Settings that were changed although another one keeps them from mattering.
fn without_effect(settings: &QueueSettings) -> Vec<Finding> {
    let fresh = QueueSettings::default();
    let mut findings = Vec::new();
    let mut idle = |field, is_idle: bool, needs: &str| {
        if is_idle {
            let problem = format!("has no effect without {needs}");
            findings.push(finding(
                Severity::Warning,
                field,
                problem,
                format!("set {needs}, or leave {field} out"),
            ));
        }
    };
    let changed = settings.block_for != fresh.block_for;
    idle("block_for", changed && settings.overflow != Overflow::Block, "overflow = \"block\"");
    let changed = settings.fresh_within != fresh.fresh_within;
    idle("fresh_within", changed && settings.order != Order::Adaptive, "order = \"adaptive\"");
    if settings.max_wait.is_some() && settings.order == Order::Lifo {
        let problem = "has no effect where the newest work goes first: it starts next".to_owned();
        let help = "leave it out, or set order = \"fifo\" or \"adaptive\"; ttl and retention end what waits too long";
        findings.push(finding(Severity::Warning, "max_wait", problem, help.to_owned()));
    }
    findings
}

fn missing_target(name: &Name, targets: &BTreeMap<Name, Target>) -> Finding {
    let names: Vec<&str> = targets.keys().map(Name::as_str).collect();
    let help = match (nearest(name.as_str(), names.iter().copied()), &names[..]) {
        (Some(right), _) => format!("did you mean {right:?}?"),
        (None, []) => format!("declare it: [targets.{name}] with a url and a concurrency"),
        (None, _) => format!("declare [targets.{name}], or use one of {}", names.join(", ")),
    };
    finding(Severity::Error, "target", format!("there is no target {:?}", name.as_str()), help)
}

fn check_against_target(settings: &QueueSettings, name: &Name, target: &Target) -> Vec<Finding> {
    let mut findings = Vec::new();
    let timeout = target.settings.timeout;
    if settings.lease < timeout {
        findings.push(finding(
            Severity::Error,
            "lease",
            format!(
                "a lease of {} ends before a call to {name} may ({})",
                format_duration(settings.lease),
                format_duration(timeout)
            ),
            format!(
                "set lease to at least {}, or shorten targets.{name}.timeout: work would be done twice",
                format_duration(timeout)
            ),
        ));
    }
    if let Some(concurrency) = settings.concurrency.filter(|own| *own > target.settings.concurrency) {
        findings.push(finding(
            Severity::Warning,
            "concurrency",
            format!("{concurrency} is never reached: target {name} allows {}", target.settings.concurrency),
            format!("lower it to {} or leave it out", target.settings.concurrency),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::alert::AlertSettings;

    #[test]
    fn every_error_of_core_is_found_in_one_run() {
        let mut settings = QueueSettings {
            concurrency: Some(0),
            max_messages: Some(0),
            max_bytes: 0,
            max_wait: Some(Duration::ZERO),
            block_for: Duration::MAX,
            fresh_within: Duration::ZERO,
            prefetch: 1001,
            max_keys: 0,
            lease: Duration::ZERO,
            retention: Duration::ZERO,
            result_retention: Duration::MAX,
            result_max_bytes: u64::MAX,
            expected_service_time: Some(Duration::ZERO),
            ..QueueSettings::default()
        };
        settings.retry = RetrySettings {
            max_attempts: 0,
            max_deliveries: Some(0),
            backoff_min: Duration::from_secs(2),
            backoff_max: Duration::from_secs(1),
            budget: f64::NAN,
        };
        settings.dead_letter.replayable_for = Duration::ZERO;
        settings.dead_letter.max_messages = 0;
        settings.dead_letter.retention = Duration::ZERO;
        settings.alerts = AlertSettings {
            oldest_age: Some(Duration::ZERO),
            depth: Some(0),
            refusals: f64::NAN,
            hold: Duration::MAX,
            ..AlertSettings::default()
        };
        let fields: Vec<&str> = check_queue(&settings).iter().map(|finding| finding.field).collect();
        assert_eq!(
            fields,
            [
                "concurrency",
                "max_messages",
                "max_bytes",
                "max_wait",
                "block_for",
                "fresh_within",
                "prefetch",
                "max_keys",
                "lease",
                "retention",
                "result_retention",
                "result_max",
                "expected_service_time",
                "retry.max_attempts",
                "retry.max_deliveries",
                "retry.backoff",
                "retry.budget",
                "dead_letter.replayable_for",
                "dead_letter.max_messages",
                "dead_letter.retention",
                "alerts.oldest_age",
                "alerts.depth",
                "alerts.refusals",
                "alerts.for",
            ]
        );
        assert_eq!(check_queue(&QueueSettings::default()), []);
    }

    #[test]
    fn every_error_of_a_target_is_found_in_one_run() {
        let settings = TargetSettings {
            concurrency: 0,
            rate: None,
            timeout: Duration::ZERO,
            hold_after_timeout: Some(Duration::MAX),
            adaptive: None,
            breaker: Some(BreakerSettings {
                failures: 0,
                failure_rate: 0.0,
                window: Duration::ZERO,
                probe_after: Duration::ZERO,
                probe_max: Duration::MAX,
            }),
            ramp: Some(Duration::MAX),
        };
        let fields: Vec<&str> = check_target(&settings).iter().map(|finding| finding.field).collect();
        assert_eq!(
            fields,
            [
                "concurrency",
                "timeout",
                "hold_after_timeout",
                "ramp",
                "breaker.failures",
                "breaker.failure_rate",
                "breaker.window",
                "breaker.probe_after",
                "breaker.probe_max"
            ]
        );
    }

    #[test]
    fn impossible_settings_do_not_loop() {
        let settings = QueueSettings { retention: RETENTION_MAX, ..QueueSettings::default() };
        assert_eq!(check_queue(&settings).len(), 1);
    }
}
