//! `millpond alerts`: what somebody must look at.
//!
//! Owns how alerts look on a terminal. Must never judge a number: the server does.

use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::show::document;
use super::render::{age, counted, line, wrapped};
use clap::Args;
use jiff::Timestamp;
use millpond_api::alert::{Alert, AlertState, Alerts};
use std::fmt::Write as _;
use std::io::Write;

/// Show what somebody must look at
///
/// Lists the alerts that fire, the gravest first, each with what is, since when, who looks after it and what to do; then
/// those that have cleared within the last hour. Listing is success whatever fires; with --check the exit code tells.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond alerts\n  \
        millpond alerts --check || page-somebody    exit code 1 while any fires\n  \
        millpond alerts --json | jq '.alerts[] | select(.state == \"firing\")'")]
pub(crate) struct AlertsCommand {
    #[command(flatten)]
    connection: Connection,
    /// Exit with 1 while an alert fires
    #[arg(long)]
    check: bool,
    /// Print one JSON document
    #[arg(long, help_heading = HEADING)]
    json: bool,
}

impl AlertsCommand {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let alerts = self.connection.client()?.alerts().await?;
        if self.json {
            document(&alerts, out)?;
        } else {
            write!(out, "{}", told(&alerts, Timestamp::now()))?;
        }
        let fires = alerts.alerts.iter().any(|alert| alert.state == AlertState::Firing);
        if self.check && fires { Err(Failure::Told) } else { Ok(()) }
    }
}

fn told(alerts: &Alerts, now: Timestamp) -> String {
    let (firing, cleared): (Vec<&Alert>, Vec<&Alert>) =
        alerts.alerts.iter().partition(|alert| alert.state == AlertState::Firing);
    let mut text = match firing.len() as u64 {
        0 => "Nothing needs anybody.\n".to_owned(),
        1 => "1 alert fires.\n".to_owned(),
        count => format!("{} fire.\n", counted(count, "alert")),
    };
    for alert in firing {
        let owner = alert.owner.as_ref().map(|owner| format!(", owner {}", line(owner))).unwrap_or_default();
        let heading = format!(
            "\n{}: {} ({}, since {}{owner})\n",
            line(&alert.severity).to_uppercase(),
            line(&alert.alert),
            subject(alert),
            age(&alert.since, now)
        );
        text.push_str(&heading);
        text.push_str(&wrapped(&format!("  {}.\n  {}", line(&alert.summary), line(&alert.advice))));
    }
    if !cleared.is_empty() {
        text.push_str("\nCleared lately:\n");
    }
    for alert in cleared {
        let when = alert.cleared_at.as_deref().map(|at| age(at, now)).unwrap_or_default();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {} ({}), {when}", line(&alert.alert), subject(alert));
    }
    text
}

fn subject(alert: &Alert) -> String {
    match (&alert.queue, &alert.target) {
        (Some(queue), _) => format!("queue {}", line(queue)),
        (None, Some(target)) => format!("target {}", line(target)),
        (None, None) => "the server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::told;
    use millpond_api::alert::{Alert, AlertState, Alerts};

    fn alert(state: AlertState) -> Alert {
        Alert {
            alert: "dead".to_owned(),
            severity: "warning".to_owned(),
            queue: Some("jobs".to_owned()),
            target: None,
            owner: Some("team\x1b[31m".to_owned()),
            state,
            since: "2026-11-30T09:50:00.000Z".to_owned(),
            fired_at: "2026-11-30T09:50:00.000Z".to_owned(),
            cleared_at: (state == AlertState::Cleared).then(|| "2026-11-30T09:59:00.000Z".to_owned()),
            value: 3.0,
            threshold: 1.0,
            unit: "messages".to_owned(),
            summary: "queue jobs has 3 dead letters".to_owned(),
            advice: "Look why.".to_owned(),
        }
    }

    #[test]
    fn what_fires_is_told_with_what_to_do_and_cannot_control_the_terminal() {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        let alerts = Alerts { alerts: vec![alert(AlertState::Firing), alert(AlertState::Cleared)] };
        let text = told(&alerts, now);
        assert_eq!(
            text,
            "1 alert fires.\n\nWARNING: dead (queue jobs, since 10m ago, owner team\u{fffd}[31m)\n  queue jobs has 3 dead \
             letters.\n  Look why.\n\nCleared lately:\n  dead (queue jobs), 1m ago\n"
        );
        assert_eq!(told(&Alerts::default(), now), "Nothing needs anybody.\n");
    }
}
