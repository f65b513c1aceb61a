//! What an operator decides about a queue or a target: plain data with documented defaults.
//!
//! Owns the meaning of each setting and the checks that need no other queue. Must never parse text:
//! `millpond-config` and the HTTP API turn their own shapes into these.

use crate::alert::AlertSettings;
use crate::name::Name;
use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest a lease may last in all, extensions included.
pub const LEASE_TOTAL_MAX: Duration = Duration::from_hours(12);
/// A push call's lease is longer than the call may take by this. Whoever makes calls must begin them within it, or give
/// them back.
pub const PUSH_LEASE_MARGIN: Duration = Duration::from_secs(2);
/// Longest a message may be delayed.
pub const DELAY_MAX: Duration = Duration::from_hours(30 * 24);
/// Longest a consumer may wait for a message, or a caller for an outcome, in one request.
pub const WAIT_MAX: Duration = Duration::from_mins(1);
/// Longest retention of anything.
pub const RETENTION_MAX: Duration = Duration::from_hours(366 * 24);
/// Longest word for who looks after dead letters, in bytes.
const OWNER_BYTES_MAX: usize = 255;

/// What happens to work that arrives when a bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Overflow {
    /// Refuse the new work; the caller is told when to come back.
    #[default]
    Reject,
    /// Let the caller wait for room, up to [`QueueSettings::block_for`]; then refuse.
    Block,
    /// Give up the oldest waiting work that is not more critical than the new one.
    DropOldest,
}

/// Which ready message goes out next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First in, first out.
    #[default]
    Fifo,
    /// Last in, first out: for work that is worth less the longer it has waited.
    Lifo,
    /// First in, first out while the oldest is younger than [`QueueSettings::fresh_within`]; then the newest first,
    /// and the old ones worked off at a side share (adaptive LIFO, Maurer, "Fail at Scale", ACM Queue 13(8), 2015).
    Adaptive,
}

impl Order {
    /// Whether messages of one group keep their order in it. Elsewhere, messages with a group are refused; where a
    /// restart with another configuration finds such messages unfinished, or a replay brings them back, they go out
    /// as if they had no group, for the rest of their lives or until the next restart.
    pub fn keeps_groups(self) -> bool {
        matches!(self, Self::Fifo)
    }

    /// The word used in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lifo => "lifo",
            Self::Adaptive => "adaptive",
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How the classes of criticality share the hand-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// By weights of 8 : 4 : 2 : 1, so that each class keeps a guaranteed share.
    #[default]
    Weighted,
    /// A class goes out only while no more critical work is there.
    Strict,
}

/// What happens to a message that was not done within its time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExpiry {
    /// It becomes a dead letter with the reason `expired`.
    #[default]
    DeadLetter,
    /// It ends as `expired`, with a status but no dead letter.
    Drop,
}

/// How failed attempts are repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrySettings {
    /// Failed attempts before the message is dead-lettered; the first one counts. At least 1.
    pub max_attempts: u32,
    /// Hand-outs of any kind before the message is dead-lettered; bounds throttling and releases too.
    /// `None`: ten times `max_attempts`.
    pub max_deliveries: Option<u32>,
    /// Floor of the backoff: no retry comes sooner.
    pub backoff_min: Duration,
    /// Ceiling of the backoff.
    pub backoff_max: Duration,
    /// While fresh work waits, retries are at most this share of the hand-outs, plus one a second. From 0 to 1; 1 is
    /// no bound.
    #[serde(default = "budget_default")]
    pub budget: f64,
}

fn budget_default() -> f64 {
    0.2
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            max_deliveries: None,
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_mins(5),
            budget: budget_default(),
        }
    }
}

impl RetrySettings {
    /// The bound on hand-outs that is in force.
    pub fn deliveries_max(&self) -> u32 {
        self.max_deliveries.unwrap_or_else(|| self.max_attempts.saturating_mul(10))
    }

    /// The wait before the attempt that follows `failed` failed ones: exponential with full jitter (Brooker,
    /// "Exponential Backoff and Jitter", 2015) between the floor and a bound that starts at twice the floor
    /// and doubles up to the ceiling, so that even first retries do not come as one herd. `chance` is 0..1.
    pub fn backoff(&self, failed: u32, chance: f64) -> Duration {
        let doubled = 1_u32.checked_shl(failed).and_then(|factor| self.backoff_min.checked_mul(factor));
        let bound = doubled.unwrap_or(self.backoff_max).min(self.backoff_max);
        self.backoff_min + bound.saturating_sub(self.backoff_min).mul_f64(chance)
    }
}

/// What is kept of messages that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterSettings {
    /// How long a dead letter is kept. Longer than the queue's retention.
    pub retention: Duration,
    /// How many are kept. When full, the queue hands out nothing more until there is room.
    pub max_messages: u64,
    /// Dead letters older than this are replayed only if that is asked for explicitly.
    #[serde(default = "replayable_default")]
    pub replayable_for: Duration,
    /// Who looks after them; shown with every alert.
    pub owner: Option<String>,
}

fn replayable_default() -> Duration {
    Duration::from_hours(7 * 24)
}

impl Default for DeadLetterSettings {
    fn default() -> Self {
        Self {
            retention: Duration::from_hours(14 * 24),
            max_messages: 100_000,
            replayable_for: replayable_default(),
            owner: None,
        }
    }
}

/// Everything an operator decides about one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// The target its messages are pushed to; `None`: pull workers only.
    pub target: Option<Name>,
    /// The most messages in work at once, over push and pull together. `None`: the target's cap, or no cap.
    pub concurrency: Option<u32>,
    /// The promise: work that would probably start later than this is refused, whatever `overflow` says of the other
    /// bounds. Where the newest work goes first, none would start later than what is there.
    pub max_wait: Option<Duration>,
    /// The most messages that are not terminal. `None`: only `max_bytes` bounds.
    pub max_messages: Option<u64>,
    /// The most bytes of messages that are not terminal. There is always such a bound.
    pub max_bytes: u64,
    /// What happens to work beyond a bound.
    pub overflow: Overflow,
    /// How long a caller waits for room where `overflow` is [`Overflow::Block`]. At most [`WAIT_MAX`].
    pub block_for: Duration,
    /// Which ready message goes out next.
    pub order: Order,
    /// In an adaptive order: how old the oldest ready message may be before the newest go first.
    pub fresh_within: Duration,
    /// How the classes of criticality share the hand-outs.
    pub priority: Priority,
    /// The most leases that one consumer holds at once; also the most messages in one hand-out to a worker.
    pub prefetch: u32,
    /// The most idempotency keys remembered. Beyond it those of finished messages are forgotten, oldest first; if
    /// there are none, a message with a new key is refused as beyond a bound.
    pub max_keys: u64,
    /// So many messages given up in a row, without one success, pause the queue. 0: never.
    pub dead_burst: u32,
    /// How long a lease lasts unless its holder asks for something else.
    pub lease: Duration,
    /// A message not done this long after its acceptance expires.
    pub retention: Duration,
    /// What expiry does.
    pub on_expiry: OnExpiry,
    /// How long the status, the result and the idempotency key outlive the message's end.
    pub result_retention: Duration,
    /// Most bytes of a result that are kept; a longer one is cut.
    pub result_max_bytes: u64,
    /// Work per message, until it has been measured.
    pub expected_service_time: Option<Duration>,
    /// How failures are repeated.
    pub retry: RetrySettings,
    /// What is kept of messages that could not be done.
    pub dead_letter: DeadLetterSettings,
    /// When somebody must look.
    pub alerts: AlertSettings,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            target: None,
            concurrency: None,
            max_wait: None,
            max_messages: None,
            max_bytes: 10 << 30,
            overflow: Overflow::Reject,
            block_for: Duration::from_secs(30),
            order: Order::Fifo,
            fresh_within: Duration::from_secs(10),
            priority: Priority::Weighted,
            prefetch: 10,
            max_keys: 1_000_000,
            dead_burst: 20,
            lease: Duration::from_secs(30),
            retention: Duration::from_hours(4 * 24),
            on_expiry: OnExpiry::DeadLetter,
            result_retention: Duration::from_hours(1),
            result_max_bytes: 64 << 10,
            expected_service_time: None,
            retry: RetrySettings::default(),
            dead_letter: DeadLetterSettings::default(),
            alerts: AlertSettings::default(),
        }
    }
}

/// Why settings cannot be used. `field` is the dotted key as the operator writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SettingsError {
    /// The dotted key below the queue or target, e.g. `retry.max_attempts`.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub reason: String,
}

pub(crate) fn require(
    condition: bool,
    field: &'static str,
    reason: impl Into<String>,
) -> Result<(), SettingsError> {
    if condition { Ok(()) } else { Err(SettingsError { field, reason: reason.into() }) }
}

impl QueueSettings {
    /// Checks what can be checked without knowing the other queues and targets.
    pub fn validate(&self) -> Result<(), SettingsError> {
        require(
            self.concurrency != Some(0),
            "concurrency",
            "must be at least 1; pause the queue to stop its work",
        )?;
        require(self.max_messages != Some(0), "max_messages", "must be at least 1")?;
        require(self.max_bytes > 0, "max_bytes", "must be at least 1 byte")?;
        require(self.max_wait != Some(Duration::ZERO), "max_wait", "must be longer than 0s")?;
        require(
            !self.block_for.is_zero() && self.block_for <= WAIT_MAX,
            "block_for",
            "must be longer than 0s and at most 1m",
        )?;
        require(
            !self.fresh_within.is_zero() && self.fresh_within <= RETENTION_MAX,
            "fresh_within",
            "must be longer than 0s and at most 366d",
        )?;
        require(
            (1..=1000).contains(&self.prefetch),
            "prefetch",
            "must lie between 1 and 1000: it is how many messages one consumer may hold at once",
        )?;
        require(self.max_keys > 0, "max_keys", "must be at least 1")?;
        require(
            self.lease >= Duration::from_secs(1) && self.lease <= LEASE_TOTAL_MAX,
            "lease",
            "must lie between 1s and 12h",
        )?;
        require(
            self.retention >= Duration::from_secs(1) && self.retention <= RETENTION_MAX,
            "retention",
            "must lie between 1s and 366d",
        )?;
        require(self.result_retention <= RETENTION_MAX, "result_retention", "must be at most 366d")?;
        require(self.result_max_bytes <= 16 << 20, "result_max", "must be at most 16MiB")?;
        require(
            self.expected_service_time.is_none_or(|time| !time.is_zero() && time <= LEASE_TOTAL_MAX),
            "expected_service_time",
            "must be longer than 0s and at most 12h",
        )?;
        self.validate_failure_path()
    }

    fn validate_failure_path(&self) -> Result<(), SettingsError> {
        let retry = &self.retry;
        require(
            (1..=1000).contains(&retry.max_attempts),
            "retry.max_attempts",
            "must lie between 1 and 1000",
        )?;
        require(
            retry.deliveries_max() >= retry.max_attempts,
            "retry.max_deliveries",
            "must be at least max_attempts",
        )?;
        require(
            retry.backoff_min <= retry.backoff_max && retry.backoff_max <= DELAY_MAX,
            "retry.backoff",
            "min must not exceed max, and max must be at most 30d",
        )?;
        require(
            (0.0..=1.0).contains(&retry.budget),
            "retry.budget",
            "must lie between 0 and 1: it is the share of hand-outs that may be retries",
        )?;
        require(
            !self.dead_letter.replayable_for.is_zero() && self.dead_letter.replayable_for <= RETENTION_MAX,
            "dead_letter.replayable_for",
            "must be longer than 0s and at most 366d",
        )?;
        require(self.dead_letter.max_messages > 0, "dead_letter.max_messages", "must be at least 1")?;
        require(
            self.dead_letter.owner.as_deref().is_none_or(|owner| {
                (1..=OWNER_BYTES_MAX).contains(&owner.len()) && !owner.chars().any(char::is_control)
            }),
            "dead_letter.owner",
            "must be 1 to 255 bytes of text without control characters: it is written into logs and alerts",
        )?;
        require(
            self.dead_letter.retention > self.retention && self.dead_letter.retention <= RETENTION_MAX,
            "dead_letter.retention",
            "must be longer than the queue's retention and at most 366d, or a dead letter could vanish before anyone looks",
        )?;
        self.alerts.validate()
    }
}

/// Everything an operator decides about one target: something with a fixed capacity that queues share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetSettings {
    /// The hard cap: never more calls occupy the target, whoever sends them.
    pub concurrency: u32,
    /// The most calls started per unit of time. `None`: only `concurrency` bounds.
    pub rate: Option<Rate>,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long a call that timed out is taken to occupy the target still. `None`: as long as `timeout`.
    pub hold_after_timeout: Option<Duration>,
    /// How the target's own limit below the hard cap is found. `None`: the hard cap is the limit.
    #[serde(default)]
    pub adaptive: Option<AdaptiveSettings>,
    /// When calls stop for a while because the target does not answer. `None`: never.
    #[serde(default)]
    pub breaker: Option<BreakerSettings>,
    /// How long the target takes to get its whole limit after it was cold or down; zero: it gets it at once. `None`:
    /// [`RAMP_RECOVERED`] after its breaker has closed, and none else.
    #[serde(default)]
    pub ramp: Option<Duration>,
}

/// The ramp after a breaker has closed, unless something else is said.
pub const RAMP_RECOVERED: Duration = Duration::from_secs(10);
/// Longest ramp.
const RAMP_MAX: Duration = Duration::from_hours(1);
/// Shortest and longest pause between two probes of an open breaker.
const PROBE_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_hours(1));

/// What an operator decides about a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerSettings {
    /// So many failures in a row open it, or as many as calls are in flight if those are more.
    pub failures: u32,
    /// So large a share of failed calls in one window opens it, too, once twice as many have ended. Above 0, at most 1.
    pub failure_rate: f64,
    /// The window that the share is taken of.
    pub window: Duration,
    /// The first pause before a probe. It doubles from one failed probe to the next.
    pub probe_after: Duration,
    /// The longest pause before a probe.
    pub probe_max: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 10,
            failure_rate: 0.8,
            window: Duration::from_secs(10),
            probe_after: Duration::from_secs(1),
            probe_max: Duration::from_mins(1),
        }
    }
}

impl BreakerSettings {
    fn validate(&self) -> Result<(), SettingsError> {
        require(
            (1..=1_000_000).contains(&self.failures),
            "breaker.failures",
            "must lie between 1 and 1000000: so many failures in a row open the breaker",
        )?;
        require(
            self.failure_rate > 0.0 && self.failure_rate <= 1.0,
            "breaker.failure_rate",
            "must lie above 0 and be at most 1: it is the share of failed calls that opens the breaker",
        )?;
        require(
            self.window >= Duration::from_secs(1) && self.window <= Duration::from_hours(1),
            "breaker.window",
            "must lie between 1s and 1h",
        )?;
        let (shortest, longest) = PROBE_PAUSES;
        require(
            self.probe_after >= shortest && self.probe_after <= self.probe_max,
            "breaker.probe_after",
            "must be at least 100ms and at most probe_max",
        )?;
        require(self.probe_max <= longest, "breaker.probe_max", "must be at most 1h")
    }
}

/// What an operator decides about an adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdaptiveSettings {
    /// Nine in ten calls shall take no longer. `None`: few shall queue at the target.
    #[serde(default)]
    pub latency_objective: Option<Duration>,
}

impl TargetSettings {
    /// The hold after a time-out that is in force.
    pub fn hold(&self) -> Duration {
        self.hold_after_timeout.unwrap_or(self.timeout)
    }

    /// Checks every value.
    pub fn validate(&self) -> Result<(), SettingsError> {
        require(
            (1..=1_000_000).contains(&self.concurrency),
            "concurrency",
            "must lie between 1 and 1000000: it is the most calls the target can stand at once",
        )?;
        require(
            self.rate.is_none_or(|rate| rate.events > 0 && !rate.per.is_zero()),
            "rate",
            "must be at least one event per time, as in 30/m",
        )?;
        require(
            self.timeout >= Duration::from_millis(1) && self.timeout <= Duration::from_hours(1),
            "timeout",
            "must lie between 1ms and 1h",
        )?;
        require(self.hold() <= LEASE_TOTAL_MAX, "hold_after_timeout", "must be at most 12h")?;
        require(
            self.adaptive
                .and_then(|adaptive| adaptive.latency_objective)
                .is_none_or(|objective| !objective.is_zero() && objective < self.timeout),
            "latency_objective",
            "must be longer than 0s and shorter than timeout",
        )?;
        require(self.ramp.is_none_or(|ramp| ramp <= RAMP_MAX), "ramp", "must be at most 1h")?;
        self.breaker.as_ref().map_or(Ok(()), BreakerSettings::validate)
    }
}
