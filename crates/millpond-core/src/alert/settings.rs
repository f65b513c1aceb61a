//! What an operator decides about alerts.
//!
//! Owns the defaults: what needs no tuning is on. Must never follow a rule.

use super::Rule;
use crate::settings::{RETENTION_MAX, SettingsError, require};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest that a condition may have to hold.
pub const HOLD_MAX: Duration = Duration::from_hours(24);

const HOLD_REASON: &str = "must be at most 1d: nobody hears of anything earlier";

/// Which alerts a queue has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlertSettings {
    /// How old the oldest unfinished message may not become. `None`: no alert.
    pub oldest_age: Option<Duration>,
    /// How many messages may not wait, ready and in backoff. `None`: no alert.
    pub depth: Option<u64>,
    /// So many dead letters are an alert. 0: never.
    pub dead: u64,
    /// Such a share of what arrives, refused, is an alert. 0: never.
    pub refusals: f64,
    /// Whether it is one if more arrives than can be done.
    pub insurmountable: bool,
    /// Whether it is one if the queue hands out nothing and no operator has asked for it.
    pub held: bool,
    /// How long a value must be out of bounds before an alert fires, and back in them before it clears.
    pub hold: Duration,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            oldest_age: None,
            depth: None,
            dead: 1,
            refusals: 0.05,
            insurmountable: true,
            held: true,
            hold: Duration::from_mins(1),
        }
    }
}

impl AlertSettings {
    /// What a rule's value must not reach; `None` where it is switched off, or not a queue's.
    pub fn threshold(&self, rule: Rule) -> Option<f64> {
        match rule {
            Rule::OldestAge => self.oldest_age.map(|age| age.as_secs_f64()),
            Rule::Depth => self.depth.map(|depth| depth as f64),
            Rule::Dead => (self.dead > 0).then_some(self.dead as f64),
            Rule::Refusals => (self.refusals > 0.0).then_some(self.refusals),
            Rule::Insurmountable => self.insurmountable.then_some(1.0),
            Rule::DeadBurst | Rule::DeadLettersFull | Rule::CallbacksFull => self.held.then_some(1.0),
            Rule::BreakerOpen | Rule::StorageFull | Rule::SlowCommits => None,
        }
    }

    /// Checks every value.
    pub fn validate(&self) -> Result<(), SettingsError> {
        require(
            self.oldest_age.is_none_or(|age| !age.is_zero() && age <= RETENTION_MAX),
            "alerts.oldest_age",
            "must be longer than 0s and at most 366d",
        )?;
        require(self.depth != Some(0), "alerts.depth", "must be at least 1; leave it out for no such alert")?;
        require(
            (0.0..=1.0).contains(&self.refusals),
            "alerts.refusals",
            "must lie between 0 and 1: it is a share of what arrives; 0 for no such alert",
        )?;
        require(self.hold <= HOLD_MAX, "alerts.for", HOLD_REASON)
    }
}

/// Which alerts there are beside those of the queues: the server's, and its targets'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAlertSettings {
    /// How long a value must be out of bounds before an alert fires, and back in them before it clears.
    pub hold: Duration,
    /// Commits that take so long on average are an alert. Zero: never.
    pub slow_commits: Duration,
    /// Whether a full disk is one.
    pub storage_full: bool,
    /// Whether a target that does not answer is one.
    pub breaker_open: bool,
}

impl Default for ServerAlertSettings {
    fn default() -> Self {
        Self {
            hold: Duration::from_mins(1),
            slow_commits: Duration::from_millis(500),
            storage_full: true,
            breaker_open: true,
        }
    }
}

impl ServerAlertSettings {
    /// What a rule's value must not reach; `None` where it is switched off, or a queue's.
    pub fn threshold(&self, rule: Rule) -> Option<f64> {
        match rule {
            Rule::StorageFull => self.storage_full.then_some(1.0),
            Rule::BreakerOpen => self.breaker_open.then_some(1.0),
            Rule::SlowCommits => (!self.slow_commits.is_zero()).then_some(self.slow_commits.as_secs_f64()),
            Rule::OldestAge
            | Rule::Depth
            | Rule::Dead
            | Rule::Refusals
            | Rule::Insurmountable
            | Rule::DeadBurst
            | Rule::DeadLettersFull
            | Rule::CallbacksFull => None,
        }
    }

    /// Checks every value.
    pub fn validate(&self) -> Result<(), SettingsError> {
        require(self.hold <= HOLD_MAX, "for", HOLD_REASON)?;
        require(
            self.slow_commits <= Duration::from_mins(1),
            "slow_commits",
            "must be at most 1m; 0s for no such alert",
        )
    }
}
