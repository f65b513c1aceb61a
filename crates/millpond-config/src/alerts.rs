//! The keys of alerts: `[alerts]` and `[queues.NAME.alerts]`.
//!
//! Owns how they are read, and which of them would never matter. Must never decide when an alert fires.

use crate::address::parse_target_url;
use crate::check::{self, Finding};
use crate::diagnostic::{Report, Severity};
use crate::keys;
use crate::load::ReadFile;
use crate::quantity::format_duration;
use crate::read::accept;
use crate::secret::SigningKey;
use crate::section::Section;
use crate::transport::signing_keys;
use millpond_core::alert::{AlertSettings, ServerAlertSettings};
use millpond_core::settings::QueueSettings;

/// Who is told that an alert has fired or cleared.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertWebhook {
    /// Where it is told.
    pub url: String,
    /// What it is signed with.
    pub signature: Vec<SigningKey>,
}

/// Reads a queue's alerts.
pub(crate) fn of_queue(report: &mut Report<'_>, queue: &Section<'_>) -> AlertSettings {
    let fresh = AlertSettings::default();
    let Some(section) = queue.section(report, "alerts") else { return fresh };
    section.check_keys(report, &keys::QUEUE_ALERTS);
    AlertSettings {
        oldest_age: section.duration(report, "oldest_age"),
        depth: section.number(report, "depth", u64::MAX),
        dead: section.number(report, "dead", u64::MAX).unwrap_or(fresh.dead),
        refusals: section.fraction(report, "refusals").unwrap_or(fresh.refusals),
        insurmountable: section.flag(report, "insurmountable").unwrap_or(fresh.insurmountable),
        held: section.flag(report, "held").unwrap_or(fresh.held),
        hold: section.duration(report, "for").unwrap_or(fresh.hold),
    }
}

/// Reads who is told; without `webhook` nobody is.
pub(crate) fn webhook(
    report: &mut Report<'_>,
    top: &Section<'_>,
    files: ReadFile<'_>,
) -> Option<AlertWebhook> {
    let section = top.section(report, "alerts")?;
    if !section.has("webhook") {
        if section.has("secret") {
            let help = "add webhook = \"https://host/path\", or leave the secret out".to_owned();
            section.wrong(report, "secret", "signs nothing: there is no webhook".to_owned(), help);
        }
        return None;
    }
    let text = section.text(report, "webhook", "a URL in quotes such as \"https://pager.example/hook\"")?;
    let url = accept(report, &section, "webhook", parse_target_url(text))?.to_string();
    Some(AlertWebhook { url, signature: signing_keys(report, &section, files) })
}

/// Reads the alerts that are not a queue's.
pub(crate) fn of_server(report: &mut Report<'_>, top: &Section<'_>) -> ServerAlertSettings {
    let fresh = ServerAlertSettings::default();
    let Some(section) = top.section(report, "alerts") else { return fresh };
    section.check_keys(report, &keys::ALERTS);
    let settings = ServerAlertSettings {
        hold: section.duration(report, "for").unwrap_or(fresh.hold),
        slow_commits: section.duration(report, "slow_commits").unwrap_or(fresh.slow_commits),
        storage_full: section.flag(report, "storage_full").unwrap_or(fresh.storage_full),
        breaker_open: section.flag(report, "breaker_open").unwrap_or(fresh.breaker_open),
    };
    for Finding { severity, field, problem, help } in check::check_alerts(&settings) {
        report.add(severity, section.locate(field), &section.path_of(field), problem, help);
    }
    settings
}

/// Thresholds that are never reached because of another bound.
pub(crate) fn without_effect(settings: &QueueSettings) -> Vec<Finding> {
    let alerts = &settings.alerts;
    let mut findings = Vec::new();
    let mut never = |field, problem: String, help: String| {
        findings.push(Finding { severity: Severity::Warning, field, problem, help });
    };
    if let Some((depth, most)) = alerts.depth.zip(settings.max_messages).filter(|(depth, most)| depth > most)
    {
        let problem = format!("{depth} is never reached: the queue holds {most} messages at most");
        never("alerts.depth", problem, format!("lower it below max_messages, {most}"));
    }
    if let Some(age) = alerts.oldest_age.filter(|age| *age > settings.retention) {
        let (age, retention) = (format_duration(age), format_duration(settings.retention));
        let problem = format!("{age} is never reached: a message expires after {retention}");
        never("alerts.oldest_age", problem, format!("lower it below retention, {retention}"));
    }
    let most = settings.dead_letter.max_messages;
    if alerts.dead > most {
        let problem = format!("{} is never reached: {most} dead letters are kept at most", alerts.dead);
        never("alerts.dead", problem, format!("lower it to dead_letter.max_messages, {most}, or less"));
    }
    findings
}
