//! The bodies of requests and answers.
//!
//! Owns their fields and which of them may be missing. Must never hold a rule: what is out of range is refused
//! by the server. Times are RFC 3339 in UTC with milliseconds; durations are seconds.

use crate::encoding::Encoding;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// May be handed out.
    Ready,
    /// Waits for its due time.
    Delayed,
    /// Somebody works on it.
    Leased,
    /// Failed, and waits for its next attempt.
    Backoff,
    /// Done.
    Succeeded,
    /// Given up; a dead letter.
    Dead,
    /// Not done within its time to live.
    Expired,
    /// Withdrawn before anyone had it.
    Cancelled,
    /// Dropped to make room for newer work.
    Dropped,
    /// A state that a later version has introduced.
    #[serde(other)]
    Unknown,
}

impl State {
    /// Whether the message's life is over.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Expired | Self::Cancelled | Self::Dropped)
    }
}

/// When a message will probably start, counted from now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExpectedStart {
    /// The wait that half of such messages do not exceed.
    pub p50: f64,
    /// The wait that nine in ten do not exceed.
    pub p90: f64,
}

/// The answer to an enqueue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// The message's id. No secret.
    pub id: String,
    /// The queue.
    pub queue: String,
    /// Where it stands.
    pub status: State,
    /// Where to ask for its status; contains the token that allows it.
    pub status_url: String,
    /// Messages that start before it if nothing changes; `null` where the order does not tell.
    pub position: Option<u64>,
    /// When it will probably start; `null` while nothing can be promised.
    pub expected_start_seconds: Option<ExpectedStart>,
    /// When it was first accepted.
    pub accepted_at: String,
    /// Whether this repeats an earlier enqueue with the same idempotency key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub duplicate: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// A short stable word: `status`, `timeout`, `resolve`, `connect`, `tls`, `reset`, `protocol`, `worker`.
    pub kind: String,
    /// What happened.
    pub message: String,
    /// When the attempt ended.
    pub at: String,
    /// The status that the target answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

/// A hand-out that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which hand-out, from 1.
    pub n: u32,
    /// When it began.
    pub started_at: String,
    /// How long it took.
    pub seconds: f64,
    /// How it ended: `succeeded`, `failed`, `dead`, `released`, `throttled`, `timed-out`, `lease-expired`,
    /// `interrupted`.
    pub outcome: String,
    /// What went wrong, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
}

/// Where a result is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultLink {
    /// Its media type.
    pub content_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// Where to fetch it; contains the token that allows it.
    pub url: String,
}

/// A message's status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageStatus {
    /// The message's id. No secret.
    pub id: String,
    /// The queue.
    pub queue: String,
    /// Where it stands.
    pub status: State,
    /// Where to ask for its status; contains the token that allows it.
    pub status_url: String,
    /// Messages that start before it if nothing changes; `null` where the order does not tell.
    pub position: Option<u64>,
    /// When it will probably start; `null` while nothing can be promised, and once it has started.
    pub expected_start_seconds: Option<ExpectedStart>,
    /// When it was first accepted.
    pub accepted_at: String,
    /// Failed attempts since acceptance or replay.
    pub attempts: u32,
    /// Hand-outs since acceptance or replay.
    pub deliveries: u32,
    /// When it is due, while delayed or in backoff; otherwise `null`.
    pub due_at: Option<String>,
    /// When it was first handed out.
    pub first_started_at: Option<String>,
    /// When its life ended.
    pub finished_at: Option<String>,
    /// When it expires, unless done.
    pub expires_at: String,
    /// Its class: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`.
    pub criticality: String,
    /// Whose work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it is done in order with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// While leased: who has it, if it said so. Shown to operators, not to those who come with the message's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// Why it is a dead letter: `attempts-exhausted`, `deliveries-exhausted`, `rejected`, `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_reason: Option<String>,
    /// The latest failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<AttemptError>,
    /// The hand-outs that have ended, oldest first; only the latest are kept.
    pub history: Vec<Attempt>,
    /// Its result, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultLink>,
    /// Who is told of its end, and whether they have been. Not in lists and streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<CallbackStatus>,
}

/// What has become of a message's callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallbackStatus {
    /// Who is told, without the query of the URL.
    pub url: String,
    /// `pending`, `delivered`, `dead` (given up), `disabled` (the receiver wants nothing any more), `forgotten`.
    pub status: String,
    /// Failed tries.
    pub attempts: u32,
    /// The latest failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<AttemptError>,
}

/// One message of a batch on its way in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchMessage {
    /// The body, as text or as base64.
    pub body: String,
    /// How `body` stands for bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_encoding: Option<Encoding>,
    /// The media type; `application/octet-stream` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What makes a repetition recognizable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The class: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`; `critical` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criticality: Option<String>,
    /// Whose work it is; within a class, tenants take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it must be done in order with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How long it must not be handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// How long it is worth doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<f64>,
    /// Where to be told of its end; only where the server's configuration allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// Headers to hand on: `traceparent` and `tracestate`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What became of one message of a batch: 202 with the acceptance, or another status with the problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchAnswer {
    /// The status that the message would have got alone.
    pub status: u16,
    /// The message's id, if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where to ask for its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_url: Option<String>,
    /// Messages that start before it if nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Whether it repeats an earlier enqueue with the same idempotency key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub duplicate: bool,
    /// Why it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// A worker's wish for messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// At most so many; 1 if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// For how long; the queue's lease if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<f64>,
    /// How long to wait for the first message; not at all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<f64>,
    /// Who asks. What one consumer holds in all is bounded by the queue's `prefetch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
}

/// The answer to a [`LeaseRequest`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Leases {
    /// The messages handed out; empty if there were none in time.
    pub messages: Vec<LeasedMessage>,
}

/// A message that was handed out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedMessage {
    /// The message's id.
    pub id: String,
    /// The proof that settles it.
    pub receipt: String,
    /// The body, as text or as base64.
    pub body: String,
    /// How `body` stands for bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_encoding: Option<Encoding>,
    /// The media type.
    pub content_type: String,
    /// Headers that were handed on.
    pub headers: BTreeMap<String, String>,
    /// The method of the request that brought it, if it came by a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What its path and query are below the route, if it came by one and there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Hand-outs, this one included.
    pub deliveries: u32,
    /// Its class: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`.
    pub criticality: String,
    /// Whose work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it is done in order with: nobody else has a message of this group now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// When it was first accepted.
    pub accepted_at: String,
    /// When it expires, unless done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When the lease ends.
    pub lease_expires_at: String,
}

/// A wish to hold a message for longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// The proof of the hand-out.
    pub receipt: String,
    /// How long the lease shall last from now.
    pub lease_seconds: f64,
}

/// How a hand-out ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The proof of the hand-out.
    pub receipt: String,
    /// `complete`, `retry`, `dead` or `release`.
    pub outcome: String,
    /// With `complete`: the result, as text or as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// How `result` stands for bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_encoding: Option<Encoding>,
    /// The result's media type; plain text or `application/octet-stream` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// With `retry` and `dead`: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkerError>,
    /// With `retry`: exactly this long instead of the backoff; with `release`: not before so long from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
}

/// What went wrong, in a worker's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WorkerError {
    /// Just words.
    Text(String),
    /// Words and a short stable kind.
    Detailed {
        /// A short stable word; `worker` if missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// What happened.
        message: String,
    },
}

/// What became of one settlement or extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptAnswer {
    /// The receipt as it was sent.
    pub receipt: String,
    /// 200, 400 or 409.
    pub status: u16,
    /// With an extension that succeeded: when the lease ends now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// A queue, as told to an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether the configuration file declares it, and so alone can change it.
    pub declared: bool,
    /// Whether nothing is handed out, on an operator's word or after a burst of dead letters.
    pub paused: bool,
    /// Why nothing is handed out, whatever waits: `paused`, `dead-burst`, `dead-letters-full`, `callbacks-full`,
    /// `storage-full` or `breaker-open`.
    #[serde(default)]
    pub held: Option<String>,
    /// Its settings: the keys of the configuration, durations in seconds.
    pub settings: serde_json::Value,
    /// Its numbers.
    pub stats: QueueStats,
}

/// The word that a purge needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PurgeRequest {
    /// The queue's name once more.
    pub confirm: String,
}

/// What a purge did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// The queue.
    pub queue: String,
    /// Messages that waited and were cancelled.
    pub purged: u64,
}

/// All queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// By name.
    pub queues: Vec<Queue>,
}

/// Where a target's circuit breaker stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TargetState {
    /// Calls go out; also where there is no breaker.
    #[default]
    Closed,
    /// The target does not answer: nothing goes out before the next probe.
    Open,
    /// Single messages try whether it answers again.
    HalfOpen,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A target: something with a fixed capacity that messages are pushed to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Where it is, without what may be a credential.
    pub url: String,
    /// The hard cap on calls in flight.
    pub concurrency: u64,
    /// The limit in force: the cap, or what was found below it.
    pub limit: u64,
    /// Calls that occupy it, those that timed out included.
    pub inflight: u64,
    /// Where its breaker stands.
    pub state: TargetState,
    /// For how long it has stood there.
    pub state_seconds: f64,
    /// For how long it still asks to be left alone; 0: it does not.
    pub paused_seconds: f64,
    /// While its breaker is open: when the next message may try it. 0: as soon as there is one.
    pub next_probe_seconds: Option<f64>,
    /// Calls that the ramp lets be in flight, while there is one.
    pub ramp_limit: Option<u64>,
    /// The most calls started in a second, if that is bounded.
    pub rate_per_second: Option<f64>,
    /// Whether the limit is found by itself.
    pub adaptive: bool,
    /// Failures since its latest answer.
    pub failures_in_row: u64,
    /// Calls that did what they should, since the start.
    pub successes_total: u64,
    /// Calls that failed, time-outs included.
    pub failures_total: u64,
    /// Calls that it answered with the wish for a pause.
    pub throttled_total: u64,
    /// Calls whose message it wants never to see again.
    pub rejected_total: u64,
    /// The queues that are pushed to it.
    pub queues: Vec<String>,
}

/// All targets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    /// By name.
    pub targets: Vec<Target>,
}

/// A queue's numbers. Flat, so that a scaler can pick one by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Messages that may be handed out.
    pub ready: u64,
    /// Messages that wait for their due time.
    pub delayed: u64,
    /// Messages that somebody holds.
    pub leased: u64,
    /// Messages that wait for their next attempt.
    pub backoff: u64,
    /// Dead letters.
    pub dead: u64,
    /// Bytes of all messages that are not terminal.
    pub bytes: u64,
    /// Age of the oldest unfinished message since it was first due, whatever its state.
    pub oldest_age_seconds: f64,
    /// The same among the ready ones.
    pub oldest_ready_age_seconds: f64,
    /// The same among the leased ones.
    pub oldest_leased_age_seconds: f64,
    /// The same among those in backoff.
    pub oldest_backoff_age_seconds: f64,
    /// Recent arrivals.
    pub arrivals_per_second: f64,
    /// Recent completions.
    pub completions_per_second: f64,
    /// What the workers or the target can do; 0 while unknown.
    pub capacity_per_second: f64,
    /// Arrivals ÷ capacity.
    pub utilization: f64,
    /// Wait of a message that arrives now; `null` while nothing can be promised.
    pub predicted_wait_seconds: Option<f64>,
    /// Time until nothing waits; `null`: never, or unknown.
    pub drain_seconds: Option<f64>,
    /// 1 if arrivals have exceeded capacity for longer than the promise.
    pub insurmountable: u8,
    /// 1 if nothing is handed out, on an operator's word.
    pub paused: u8,
    /// Callers who wait at the door for room, in a queue whose `overflow` is `block`.
    #[serde(default)]
    pub blocked: u64,
    /// Messages in work at once.
    pub workers: u64,
    /// Ready messages per worker.
    pub backlog_per_worker: f64,
    /// Workers that would keep the promise.
    pub workers_wanted: u64,
    /// The most workers that the caps allow; 0: no cap.
    pub workers_ceiling: u64,
    /// Mean work per message.
    pub service_time_seconds: f64,
    /// The share of compared promises whose message started by the promised p90; `null` before the first one.
    pub promise_kept_ratio: Option<f64>,
    /// Messages accepted since the start.
    pub accepted_total: u64,
    /// Messages completed since the start.
    pub completed_total: u64,
    /// Enqueues refused since the start.
    pub refused_total: u64,
    /// Messages that became dead letters since the start.
    pub dead_total: u64,
    /// Messages that expired since the start.
    pub expired_total: u64,
    /// Messages dropped to make room since the start.
    pub dropped_total: u64,
    /// Messages withdrawn since the start.
    pub cancelled_total: u64,
}

/// A page of messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// In the order of their acceptance.
    pub messages: Vec<MessageStatus>,
    /// What `after` must be to go on; `null` at the end, and only there: a page that is empty or shorter than its limit
    /// is not the end while this says how to go on, because a server looks at so many messages for one page only.
    pub next: Option<String>,
}

/// A dead letter with its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its status.
    #[serde(flatten)]
    pub message: MessageStatus,
    /// The body, as text or as base64.
    pub body: String,
    /// How `body` stands for bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_encoding: Option<Encoding>,
    /// The media type.
    pub content_type: String,
    /// Headers that were handed on.
    pub headers: BTreeMap<String, String>,
    /// The method of the request that brought it, if it came by a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What its path and query are below the route, if it came by one and there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{BatchMessage, LeaseRequest, LeasedMessage, QueueStats, Settlement, State, WorkerError};

    #[test]
    fn stats_have_every_field_of_the_contract_and_never_miss_one() {
        let value = serde_json::to_value(QueueStats::default()).unwrap();
        for field in "ready, delayed, leased, backoff, dead, bytes, oldest_age_seconds, oldest_ready_age_seconds, \
             oldest_leased_age_seconds, oldest_backoff_age_seconds, arrivals_per_second, completions_per_second, \
             capacity_per_second, utilization, insurmountable, paused, workers, backlog_per_worker, workers_wanted, \
             workers_ceiling, service_time_seconds, accepted_total, completed_total, refused_total, dead_total, \
             expired_total, dropped_total, cancelled_total"
            .split(", ")
        {
            assert!(value[field].is_number(), "{field}");
        }
        for field in ["predicted_wait_seconds", "drain_seconds", "promise_kept_ratio"] {
            assert!(value.as_object().unwrap().contains_key(field), "{field}");
        }
    }

    #[test]
    fn a_field_that_is_not_known_is_refused_and_named() {
        let error = serde_json::from_str::<LeaseRequest>(r#"{"max": 1, "wait": 3}"#).unwrap_err().to_string();
        assert!(error.contains("`wait`") && error.contains("wait_seconds"), "{error}");
        assert!(serde_json::from_str::<BatchMessage>(r#"{"body": "x", "delay": 1}"#).is_err());
    }

    #[test]
    fn an_error_is_words_or_words_with_a_kind() {
        let read = |error: &str| {
            let text = format!(r#"{{"receipt": "r", "outcome": "retry", "error": {error}}}"#);
            serde_json::from_str::<Settlement>(&text).unwrap().error.unwrap()
        };
        assert_eq!(read(r#""broken""#), WorkerError::Text("broken".to_owned()));
        assert_eq!(
            read(r#"{"kind": "db", "message": "down"}"#),
            WorkerError::Detailed { kind: Some("db".to_owned()), message: "down".to_owned() }
        );
    }

    #[test]
    fn what_a_later_version_adds_does_not_break_a_client() {
        assert_eq!(serde_json::from_str::<State>(r#""parked""#).unwrap(), State::Unknown);
        let text = r#"{"id":"i","receipt":"r","body":"b","content_type":"c","headers":{},"attempt":1,"deliveries":1,
            "criticality":"critical","accepted_at":"a","lease_expires_at":"l","something_new":[1]}"#;
        assert_eq!(serde_json::from_str::<LeasedMessage>(text).unwrap().id, "i");
    }
}
