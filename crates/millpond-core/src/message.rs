//! A message: what is stored of it, and what is remembered of its life.
//!
//! Owns the data only. Must never decide a transition: that is the pond's.

use crate::identity::Seq;
use crate::name::{Label, Name};
use crate::time::Wall;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a queue, given at its definition and kept in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNumber(pub u32);

/// Where somebody wants to be told of a message's end. Opaque here: what is told, and how, is decided outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallbackWish {
    /// The address.
    pub address: String,
    /// Names and values to hand on, in order.
    pub context: Vec<(String, String)>,
}

impl CallbackWish {
    /// What it counts in memory and in the log, besides what is fixed.
    pub fn size_bytes(&self) -> u64 {
        let context: usize = self.context.iter().map(|(name, value)| name.len() + value.len()).sum();
        (self.address.len() + context) as u64
    }
}

/// The wish to be told of a message's end, and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Callback {
    /// The wish.
    pub wish: Arc<CallbackWish>,
    /// The message that tells of the latest end.
    pub teller: Option<Seq>,
}

/// Where a message stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waits for its due time; never handed out before.
    Delayed,
    /// May be handed out.
    Ready,
    /// Handed out to one holder until its lease ends.
    Leased,
    /// Failed, and waits for its next attempt.
    Backoff,
    /// Done; its result is kept for a while.
    Succeeded,
    /// Given up; kept for the operator.
    Dead,
    /// Not done within its time to live.
    Expired,
    /// Withdrawn by its owner before anyone had it.
    Cancelled,
    /// Given up for newer work, in a queue whose overflow says so.
    Dropped,
}

impl Phase {
    /// Whether the message's life is over (a dead letter can still be replayed).
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Expired | Self::Cancelled | Self::Dropped)
    }

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Backoff => "backoff",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
        }
    }

    /// The phase that `text` names on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Delayed,
            Self::Ready,
            Self::Leased,
            Self::Backoff,
            Self::Succeeded,
            Self::Dead,
            Self::Expired,
            Self::Cancelled,
            Self::Dropped,
        ]
        .into_iter()
        .find(|phase| phase.as_str() == text)
    }
}

/// How much a message matters when not all work can be done (the classes of Google's "The Site Reliability
/// Workbook" and of its load shedding). Ordered from the most critical to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Criticality {
    /// Must be done before everything else.
    CriticalPlus,
    /// Ordinary work; what is not labelled is this.
    #[default]
    Critical,
    /// Can wait, and be refused early: may use three quarters of a queue's bounds.
    SheddablePlus,
    /// Expected to be refused under load: may use half of a queue's bounds.
    Sheddable,
}

impl Criticality {
    /// All of them, from the most critical to the least.
    pub const ALL: [Self; 4] = [Self::CriticalPlus, Self::Critical, Self::SheddablePlus, Self::Sheddable];

    /// The word used on the wire and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CriticalPlus => "critical-plus",
            Self::Critical => "critical",
            Self::SheddablePlus => "sheddable-plus",
            Self::Sheddable => "sheddable",
        }
    }

    /// The criticality that `text` names on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|criticality| criticality.as_str() == text)
    }

    /// Its place in [`Criticality::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The bytes of a message or of a result, with what describes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// The media type, as the producer named it.
    pub content_type: String,
    /// Further headers to hand on, in order, and what [`Content::method`] and [`Content::path`] read.
    pub headers: Vec<(String, String)>,
    /// The bytes.
    pub body: Bytes,
}

impl Content {
    /// The header that a content carries of which only the beginning was kept; its value is `true`.
    pub const TRUNCATED: &str = "millpond-result-truncated";
    /// Stands among [`Content::headers`] for the method of the request that brought the content by a route. Named as in
    /// HTTP/2: no real header can have such a name.
    pub const METHOD: &str = ":method";
    /// Stands there for what is appended to the target's URL: a path that begins with `/`, a query that begins with
    /// `?`, or both.
    pub const PATH: &str = ":path";

    /// The method of the request that brought it, if it came by a route.
    pub fn method(&self) -> Option<&str> {
        self.pseudo(Self::METHOD)
    }

    /// What is appended to the target's URL, if it came by a route and there is something.
    pub fn path(&self) -> Option<&str> {
        self.pseudo(Self::PATH)
    }

    fn pseudo(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
    }

    /// The headers that are handed on as such, in order: everything but method and path.
    pub fn real_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let real = self.headers.iter().filter(|(name, _)| !name.starts_with(':'));
        real.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same by name; values of a name that is there more than once are joined as HTTP joins them.
    pub fn headers_by_name(&self) -> BTreeMap<String, String> {
        let mut by_name: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in self.real_headers() {
            match by_name.get_mut(name) {
                None => drop(by_name.insert(name.to_owned(), value.to_owned())),
                Some(joined) => {
                    joined.push_str(if name == "cookie" { "; " } else { ", " });
                    joined.push_str(value);
                }
            }
        }
        by_name
    }

    /// What this counts against byte bounds: body, headers and media type.
    pub fn size_bytes(&self) -> u64 {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        (self.body.len() + self.content_type.len() + headers) as u64
    }
}

/// A content that many places hold at once.
pub type SharedContent = Arc<Content>;

/// An idempotency key and the payload it came with, as digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// Digest of the key.
    pub key: u128,
    /// Digest of the payload.
    pub payload: u128,
}

/// Who holds a leased message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A worker that asked for it.
    Worker,
    /// A call to this target: the queue's at that time, which need not be its target any more.
    Push(Name),
}

impl Holder {
    /// The target that is called.
    pub fn target(&self) -> Option<&Name> {
        match self {
            Self::Worker => None,
            Self::Push(target) => Some(target),
        }
    }
}

/// How one hand-out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptOutcome {
    /// The work was done.
    Succeeded,
    /// It failed and may be repeated.
    Failed,
    /// It failed for good.
    Dead,
    /// The target or the worker gave it back untouched.
    Released,
    /// The target asked for a pause.
    Throttled,
    /// The call exceeded the target's time-out.
    TimedOut,
    /// Nobody settled it before its lease ended.
    LeaseExpired,
    /// The engine stopped in the middle: it gave the call up, or the lease ended later before anyone settled it.
    Interrupted,
    /// It failed as a probe: the target's breaker was open, and it is not the message's fault.
    ProbeFailed,
}

impl AttemptOutcome {
    /// All of them, in the order of their wire words.
    pub const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Failed,
        Self::Dead,
        Self::Released,
        Self::Throttled,
        Self::TimedOut,
        Self::LeaseExpired,
        Self::Interrupted,
        Self::ProbeFailed,
    ];

    /// The word used on the wire and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Released => "released",
            Self::Throttled => "throttled",
            Self::TimedOut => "timed-out",
            Self::LeaseExpired => "lease-expired",
            Self::Interrupted => "interrupted",
            Self::ProbeFailed => "probe-failed",
        }
    }

    /// Whether a call that ended like this may go on where it is worked on, for nobody has said that it is over.
    pub fn may_still_be_at_work(self) -> bool {
        // What a probe failed of is not told apart: for a moment after a restart, a place too many is taken for occupied.
        matches!(self, Self::TimedOut | Self::LeaseExpired | Self::Interrupted | Self::ProbeFailed)
    }

    /// Whether the holder itself ended the hand-out, by its word or by giving up the call.
    pub fn is_by_holder(self) -> bool {
        !matches!(self, Self::LeaseExpired | Self::Interrupted)
    }

    /// Whether it counts towards `max_attempts`. Work that was released, throttled or interrupted by our own
    /// restart was not tried and found wanting, nor was that with which a target was tried that is down.
    pub fn is_attempt(self) -> bool {
        !matches!(self, Self::Released | Self::Throttled | Self::Interrupted | Self::ProbeFailed)
    }
}

/// What went wrong, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A short stable word, e.g. `status`, `timeout`, `connect`, `worker`.
    pub kind: String,
    /// What happened, cut to [`Failure::MESSAGE_BYTES_MAX`].
    pub message: String,
    /// The status the target answered with.
    pub http_status: Option<u16>,
}

impl Failure {
    /// The kind of a failure of our own: no call was made, or nothing is known of the one that was.
    pub const INTERNAL: &str = "internal";
    /// The kind of one whose message's bytes could not be read: no call was made.
    pub const UNREADABLE: &str = "unreadable";

    /// Whether nobody but we ourselves failed.
    pub fn is_internal(&self) -> bool {
        [Self::INTERNAL, Self::UNREADABLE].contains(&self.kind.as_str())
    }

    /// Longest message kept, in bytes.
    pub const MESSAGE_BYTES_MAX: usize = 1024;
    /// The same on a full disk: an outcome then takes a sector, however it ends.
    pub const BRIEF_MESSAGE_BYTES_MAX: usize = 128;

    /// A failure whose message is cut at a character boundary within the limit.
    pub fn new(kind: &str, message: &str, http_status: Option<u16>) -> Self {
        let end = message.floor_char_boundary(Self::MESSAGE_BYTES_MAX);
        Self { kind: kind.to_owned(), message: message[..end].to_owned(), http_status }
    }

    /// Cuts the message to what is kept of it on a full disk.
    pub(crate) fn shorten(&mut self) {
        self.message.truncate(self.message.floor_char_boundary(Self::BRIEF_MESSAGE_BYTES_MAX));
    }
}

/// One hand-out that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Which hand-out, from 1.
    pub delivery: u32,
    /// Who had it.
    pub holder: Holder,
    /// When it began.
    pub started: Wall,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
}

/// Why a message is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadReason {
    /// It failed `max_attempts` times.
    AttemptsExhausted,
    /// It was handed out `max_deliveries` times.
    DeliveriesExhausted,
    /// The worker or the target said that it can never succeed.
    Rejected,
    /// It was not done within its time to live.
    Expired,
}

impl DeadReason {
    /// All of them, in the order of their tags.
    pub const ALL: [Self; 4] =
        [Self::AttemptsExhausted, Self::DeliveriesExhausted, Self::Rejected, Self::Expired];

    /// The reason that `text` names on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts-exhausted",
            Self::DeliveriesExhausted => "deliveries-exhausted",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// The latest hand-out of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOut {
    /// The boot that made it.
    pub epoch: u32,
    /// When it began.
    pub started: Wall,
    /// When its lease ends, or when the hand-out ended.
    pub until: Wall,
    /// Who got it.
    pub holder: Holder,
    /// How its holder settled it; `None` while it is leased, or after its lease ran out.
    pub settled: Option<AttemptOutcome>,
}

/// A message as it is remembered: everything but the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub seq: Seq,
    /// Its queue.
    pub queue: QueueNumber,
    /// Where it stands.
    pub phase: Phase,
    /// Its place in the order of its queue: its number, or a later one after a replay.
    pub place: u64,
    /// What it counts against byte bounds.
    pub size_bytes: u32,
    /// How much it matters.
    pub criticality: Criticality,
    /// Whose work it is; within a class, tenants take turns.
    pub tenant: Option<Label>,
    /// What it must be done in order with: of one group, only the first unfinished message is handed out.
    pub group: Option<Label>,
    /// The consumer that has it, if it said who it is.
    pub consumer: Option<Label>,
    /// When it was first accepted.
    pub accepted: Wall,
    /// When it was first due: its age counts from here. A replay starts it anew.
    pub first_due: Wall,
    /// When it is due next, while delayed or in backoff. Once its life has ended: when its status is forgotten, by the
    /// retention that was in force then.
    pub due: Wall,
    /// When it expires, unless done.
    pub expires: Wall,
    /// Failed attempts since acceptance or replay.
    pub attempts: u32,
    /// Hand-outs since acceptance or replay.
    pub deliveries: u32,
    /// Hand-outs before the last replay, and those that reached nobody; receipts count on from here.
    pub deliveries_before: u32,
    /// The latest hand-out.
    pub hand_out: Option<HandOut>,
    /// When it was first handed out.
    pub first_started: Option<Wall>,
    /// When its life ended.
    pub finished: Option<Wall>,
    /// Why it is dead.
    pub dead_reason: Option<DeadReason>,
    /// Its idempotency key.
    pub key: Option<IdempotencyKey>,
    /// Who is to be told of its end.
    pub callback: Option<Callback>,
    /// Media type and size of its result.
    pub result: Option<(String, u64)>,
    /// The hand-outs that have ended, oldest first, the latest [`Message::HISTORY_MAX`].
    pub history: Vec<Attempt>,
}

/// How far a message has come: another one after every change of its state, but for the waits of the others before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress {
    /// Where it stands.
    pub phase: Phase,
    /// Hand-outs since acceptance or replay.
    pub deliveries: u32,
    /// Failed attempts since acceptance or replay.
    pub attempts: u32,
}

impl Attempt {
    /// When it ended.
    pub fn ended(&self) -> Wall {
        Wall(self.started.0.saturating_add_unsigned(self.micros))
    }
}

impl Message {
    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress { phase: self.phase, deliveries: self.deliveries, attempts: self.attempts }
    }

    /// Most ended hand-outs remembered per message.
    pub const HISTORY_MAX: usize = 50;

    /// The length of its life, from acceptance to expiry, in microseconds.
    pub fn ttl_micros(&self) -> i64 {
        self.expires.0.saturating_sub(self.accepted.0)
    }

    /// The number of the latest hand-out over the whole life.
    pub fn delivery(&self) -> u32 {
        self.deliveries_before + self.deliveries
    }

    /// This message tells of its latest end.
    pub(crate) fn told_by(&mut self, teller: Option<Seq>) {
        if let Some(callback) = &mut self.callback {
            callback.teller = teller;
        }
    }

    /// The latest failure, with when its attempt ended.
    pub fn last_failure(&self) -> Option<(&Failure, Wall)> {
        self.history
            .iter()
            .rev()
            .find_map(|attempt| attempt.failure.as_ref().map(|failure| (failure, attempt.ended())))
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn method_and_path_are_no_headers() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let content = Content {
            headers: vec![
                header(Content::METHOD, "PUT"),
                header(Content::PATH, "/a?b=c"),
                header("x-request-id", "7"),
            ],
            ..Content::default()
        };
        assert_eq!((content.method(), content.path()), (Some("PUT"), Some("/a?b=c")));
        assert_eq!(content.real_headers().collect::<Vec<_>>(), [("x-request-id", "7")]);
        let repeated = Content {
            headers: vec![header("a", "1"), header("a", "2"), header("cookie", "b"), header("cookie", "c")],
            ..content
        };
        let by_name: Vec<_> = repeated.headers_by_name().into_iter().collect();
        assert_eq!(by_name, [header("a", "1, 2"), header("cookie", "b; c")]);
        assert_eq!((Content::default().method(), Content::default().path()), (None, None));
    }
}
