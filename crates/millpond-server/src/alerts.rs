//! Alerts on the server: looking once a second, telling what has changed, and showing what fires.
//!
//! Owns the task that looks, and `GET /v1/alerts`. Must never decide when an alert fires: that is `millpond-core`'s.

mod event;

use crate::callbacks;
use crate::enqueue::json;
use crate::errors::Answer;
use crate::shared::Shared;
use crate::view::{self, rfc3339};
use axum::extract::State;
use millpond_api::alert::{Alert as Shown, AlertState, Alerts};
use millpond_core::alert::{
    Alert, Change, LogSeen, Rule, Seen, ServerAlertSettings, Severity, Subject, Watch,
};
use millpond_core::time::{Mono, Now};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How often the numbers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looking takes no more than one part in so many of the time, however many queues there are.
const SHARE: u32 = 100;
/// But it is never put off for longer than this.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// What fires, at hand for whoever asks.
#[derive(Debug)]
pub(crate) struct Board {
    watch: Mutex<Watch>,
    /// Where what has changed is told, beside the log.
    webhook: Option<String>,
}

impl Board {
    /// Nothing fires yet.
    pub(crate) fn new(settings: ServerAlertSettings, webhook: Option<String>) -> Self {
        Self { watch: Mutex::new(Watch::new(settings)), webhook }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().expect("no holder of this lock panics")
    }

    /// Every rule that is followed, where, and whether its alert fires.
    pub(crate) fn followed(&self) -> Vec<(Subject, Rule, bool)> {
        let watch = self.watch();
        watch.followed().map(|(subject, rule, firing)| (subject.clone(), rule, firing)).collect()
    }

    /// How often each rule's alerts have fired, and cleared.
    pub(crate) fn changes(&self) -> Vec<(Rule, [u64; 2])> {
        self.watch().changes().collect()
    }

    fn shown(&self) -> Alerts {
        let watch = self.watch();
        let (firing, cleared) = (watch.firing(), watch.cleared());
        Alerts { alerts: firing.iter().chain(cleared).map(shown).collect() }
    }
}

/// Tells what has changed: in the log, and where the operator wants it.
async fn tell(shared: &Shared, changes: &[Change]) {
    for Change(alert) in changes {
        log(alert);
        let Some(url) = &shared.alerts.webhook else { continue };
        if let Err(error) = callbacks::post(shared, &event::report(alert), url).await {
            let alert = alert.rule.as_str();
            tracing::error!(alert, %error, "nobody is told of this by webhook: it cannot be stored");
        }
    }
}

/// Looks until it is aborted, or the engine has stopped.
pub(crate) async fn look(shared: Arc<Shared>) {
    let begin = Instant::now();
    loop {
        let started = Instant::now();
        let Ok((queues, targets)) = shared.handle.overview().await else { return };
        let journal = shared.handle.journal();
        let commits = journal.commit.counts.iter().sum();
        let log = LogSeen { full: journal.full, commits, commit_seconds: journal.commit.sum_seconds };
        let mono = Mono(0).plus(begin.elapsed());
        let now = Now { wall: view::now(), mono };
        let changes = shared.alerts.watch().look(&Seen { queues: &queues, targets: &targets, log }, now);
        drop((queues, targets));
        tell(&shared, &changes).await;
        tokio::time::sleep(pause_after(started.elapsed())).await;
    }
}

/// How long to rest after a look that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * SHARE).clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY)
}

fn log(alert: &Alert) {
    let Alert { rule, owner, value, threshold, .. } = alert;
    let (alert_name, severity) = (rule.as_str(), rule.severity().as_str());
    let owner = owner.as_deref().unwrap_or("nobody");
    let subject = match &alert.subject {
        Subject::Server => "server",
        Subject::Queue(name) | Subject::Target(name) => name.as_str(),
    };
    let since = rfc3339(alert.since);
    let (summary, advice) = (alert.summary(), rule.advice());
    if alert.cleared.is_some() {
        tracing::info!(alert = alert_name, subject, owner, value, threshold, since, "alert: {summary}");
    } else if rule.severity() == Severity::Critical {
        tracing::error!(
            alert = alert_name,
            severity,
            subject,
            owner,
            value,
            threshold,
            since,
            "alert: {summary}. {advice}"
        );
    } else {
        tracing::warn!(
            alert = alert_name,
            severity,
            subject,
            owner,
            value,
            threshold,
            since,
            "alert: {summary}. {advice}"
        );
    }
}

/// `GET /v1/alerts`.
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Answer {
    Ok(json(&shared.alerts.shown()))
}

/// An alert on the wire.
pub(crate) fn shown(alert: &Alert) -> Shown {
    let rule = alert.rule;
    let name = |wanted: bool| match &alert.subject {
        Subject::Queue(name) if wanted => Some(name.as_str().to_owned()),
        Subject::Target(name) if !wanted => Some(name.as_str().to_owned()),
        _ => None,
    };
    Shown {
        alert: rule.as_str().to_owned(),
        severity: rule.severity().as_str().to_owned(),
        queue: name(true),
        target: name(false),
        owner: alert.owner.clone(),
        state: if alert.cleared.is_some() { AlertState::Cleared } else { AlertState::Firing },
        since: rfc3339(alert.since),
        fired_at: rfc3339(alert.fired),
        cleared_at: alert.cleared.map(rfc3339),
        value: alert.value,
        threshold: alert.threshold,
        unit: rule.unit().as_str().to_owned(),
        summary: alert.summary(),
        advice: rule.advice().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOK_AT_LEAST_EVERY, LOOK_EVERY, pause_after};
    use std::time::Duration;

    #[test]
    fn many_queues_are_looked_at_less_often_but_never_seldom() {
        for (millis, pause) in
            [(0, LOOK_EVERY), (10, LOOK_EVERY), (40, Duration::from_secs(4)), (900, LOOK_AT_LEAST_EVERY)]
        {
            assert_eq!(pause_after(Duration::from_millis(millis)), pause);
        }
    }
}
