//! Alerts as they travel.
//!
//! Owns their fields. Must never hold a rule: when an alert fires is the server's to know.

use serde::{Deserialize, Serialize};

/// The answer to `GET /v1/alerts`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// Those that fire, the gravest first, then those that have cleared within the last hour, the latest first.
    pub alerts: Vec<Alert>,
}

/// Whether an alert fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AlertState {
    /// It fires.
    Firing,
    /// It did.
    Cleared,
    /// A state that a later version has introduced.
    #[serde(other)]
    Unknown,
}

/// One alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Which rule: `oldest-age`, `depth`, `dead`, …
    pub alert: String,
    /// `critical`: somebody must act now; `warning`: somebody must look.
    pub severity: String,
    /// The queue that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The target that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Who looks after it.
    pub owner: Option<String>,
    /// Whether it fires.
    pub state: AlertState,
    /// Since when it is, or was, so.
    pub since: String,
    /// When it fired.
    pub fired_at: String,
    /// When it cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared_at: Option<String>,
    /// The latest value; once cleared, the last.
    pub value: f64,
    /// What the value must not reach.
    pub threshold: f64,
    /// What both count: `seconds`, `messages`, `ratio`, or `state` (1 while it is so).
    pub unit: String,
    /// What is.
    pub summary: String,
    /// What to do.
    pub advice: String,
}
