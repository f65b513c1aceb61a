//! What went wrong, told in the way of RFC 9457 (`application/problem+json`).
//!
//! Owns the list of problems with their status, their explanation and what to do about them. Must never know
//! which rule of the engine leads to which problem: that mapping is the server's.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The kinds of problems; the last part of a problem's `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Slug {
    /// The request cannot be understood.
    Malformed,
    /// Nobody said who asks.
    Unauthenticated,
    /// The asker may not do this.
    Forbidden,
    /// No such queue.
    UnknownQueue,
    /// No such target.
    UnknownTarget,
    /// No such message was ever accepted.
    UnknownMessage,
    /// No such replay of dead letters is remembered.
    UnknownReplay,
    /// The message has no result, or none yet.
    NoResult,
    /// There is nothing at this path.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The hand-out is over.
    LeaseLost,
    /// Somebody has the message, or its life is over.
    NotCancellable,
    /// The configuration file declares the queue.
    DeclaredInConfiguration,
    /// The queue still holds messages.
    InUse,
    /// Nothing is known of the message any more.
    Forgotten,
    /// The body is larger than allowed.
    TooLarge,
    /// The body's media type is not one that is taken here.
    UnsupportedMediaType,
    /// The message is understood but cannot be accepted as it is.
    InvalidMessage,
    /// The idempotency key was used for another payload.
    IdempotencyMismatch,
    /// The caller asks more often than it may.
    RateLimited,
    /// A fault of the server.
    Internal,
    /// A bound of the queue is reached.
    QueueFull,
    /// The message would wait longer than the queue promises.
    WaitTooLong,
    /// More requests are under way than the server takes.
    Overloaded,
    /// The server is shutting down.
    Draining,
    /// The server cannot answer now.
    Unavailable,
    /// The disk has no room for new messages.
    StorageFull,
}

/// What is told of a kind of problem: `(slug, status, title, explanation, what to do)`.
type Page = (&'static str, u16, &'static str, &'static str, &'static str);

impl Slug {
    /// All of them, in the order of their status.
    pub const ALL: [Self; 28] = [
        Self::Malformed,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::UnknownQueue,
        Self::UnknownTarget,
        Self::UnknownMessage,
        Self::UnknownReplay,
        Self::NoResult,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::LeaseLost,
        Self::NotCancellable,
        Self::DeclaredInConfiguration,
        Self::InUse,
        Self::Forgotten,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidMessage,
        Self::IdempotencyMismatch,
        Self::RateLimited,
        Self::Internal,
        Self::QueueFull,
        Self::WaitTooLong,
        Self::Overloaded,
        Self::Draining,
        Self::Unavailable,
        Self::StorageFull,
    ];

    /// The word in the address.
    pub fn as_str(self) -> &'static str {
        self.page().0
    }

    /// The status that goes with it.
    pub fn status(self) -> u16 {
        self.page().1
    }

    /// A short summary, the same for every occurrence.
    pub fn title(self) -> &'static str {
        self.page().2
    }

    /// What it means.
    pub fn explanation(self) -> &'static str {
        self.page().3
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        self.page().4
    }

    /// The kind that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slug| slug.as_str() == word)
    }

    fn page(self) -> Page {
        match self {
            Self::LeaseLost
            | Self::NotCancellable
            | Self::DeclaredInConfiguration
            | Self::InUse
            | Self::Forgotten
            | Self::TooLarge
            | Self::UnsupportedMediaType
            | Self::InvalidMessage
            | Self::IdempotencyMismatch => self.conflict_page(),
            Self::RateLimited
            | Self::Internal
            | Self::QueueFull
            | Self::WaitTooLong
            | Self::Overloaded
            | Self::Draining
            | Self::Unavailable
            | Self::StorageFull => self.capacity_page(),
            Self::UnknownQueue
            | Self::UnknownTarget
            | Self::UnknownMessage
            | Self::UnknownReplay
            | Self::NoResult
            | Self::NotFound => self.unknown_page(),
            Self::Malformed
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::MethodNotAllowed
            | Self::RequestTimeout => self.request_page(),
        }
    }

    fn request_page(self) -> Page {
        match self {
            Self::Unauthenticated => (
                "unauthenticated",
                401,
                "Nobody said who asks",
                "What was asked for is shown only to those who can prove that they may see it. A message's id is no secret; the token in its status_url is.",
                "Use the status_url exactly as the 202 gave it, with its t parameter.",
            ),
            Self::Forbidden => (
                "forbidden",
                403,
                "Not allowed",
                "The request was understood and is refused: the token does not belong to this message, the Host header names a host that this server does not answer for, or a web page of another site sent it.",
                "Use the status_url as it was given. If callers reach this server by another name, add that name to allowed_hosts in the configuration.",
            ),
            Self::MethodNotAllowed => (
                "method-not-allowed",
                405,
                "Method not allowed",
                "The path exists but does not take this method.",
                "Use one of the methods in the Allow header of the answer.",
            ),
            Self::RequestTimeout => (
                "request-timeout",
                408,
                "The request did not arrive in time",
                "The head of the request came, but its body did not arrive within the time that the server waits for one. Nothing was accepted.",
                "Send the request again over a connection that is fast enough, or send less at once.",
            ),
            _ => (
                "malformed",
                400,
                "The request cannot be understood",
                "The path, a header, a query parameter or the JSON body does not have the form that is expected. The detail says which one, and where in it.",
                "Correct the request; repeating it unchanged will fail again.",
            ),
        }
    }

    fn unknown_page(self) -> Page {
        match self {
            Self::UnknownQueue => (
                "unknown-queue",
                404,
                "No such queue",
                "There is no queue of this name. Queues are declared in the configuration file or created with PUT; a message never creates one, so that a slip of the pen loses no work.",
                "Check the spelling against GET /v1/queues, or create the queue with PUT /v1/queues/{queue}.",
            ),
            Self::UnknownTarget => (
                "unknown-target",
                404,
                "No such target",
                "There is no target of this name. Targets are declared in the configuration file, as what they can stand is nothing that a caller decides.",
                "Check the spelling against GET /v1/targets, or declare the target in the configuration file.",
            ),
            Self::UnknownMessage => (
                "unknown-message",
                404,
                "No such message",
                "This server never issued such an id. Ids carry a seal that depends on the server's data directory, so one that was made up, cut short or issued by another server is recognized without a search.",
                "Use the id from the answer to the enqueue, whole, and ask the server that gave it.",
            ),
            Self::UnknownReplay => (
                "unknown-replay",
                404,
                "No such replay",
                "The queue has no replay of this number. The one that runs and the latest ten that ended are remembered.",
                "See GET /v1/queues/{queue}/dead/replays for those there are.",
            ),
            Self::NoResult => (
                "no-result",
                404,
                "No result",
                "The message exists and has no result: it is not done yet, it was done without one, or it ended without success.",
                "Look at the message's status first; with Prefer: wait=60 the answer comes as soon as the message is done.",
            ),
            Self::NotFound => (
                "not-found",
                404,
                "Nothing is here",
                "The path names nothing that this server knows.",
                "Check the path; GET / lists where to start.",
            ),
            _ => (
                "malformed",
                400,
                "The request cannot be understood",
                "The path, a header, a query parameter or the JSON body does not have the form that is expected. The detail says which one, and where in it.",
                "Correct the request; repeating it unchanged will fail again.",
            ),
        }
    }

    fn conflict_page(self) -> Page {
        match self {
            Self::LeaseLost => (
                "lease-lost",
                409,
                "The lease is over",
                "The receipt does not serve any more: it settled the message already, or its lease ended and the message went on without it: back in line, to somebody else, or to its end (a dead letter, expired, cancelled, forgotten). Completing late is accepted only while the message waits in line.",
                "Stop working on this message: whoever is handed it settles it, and if its life is over its status says how. If leases run out often, ask for longer ones or extend them in time.",
            ),
            Self::NotCancellable => (
                "not-cancellable",
                409,
                "The message cannot be cancelled any more",
                "A message can be withdrawn only while nobody has it. This one is being worked on, or its life is over.",
                "Look at its status. Work under way can be stopped by whoever does it, not by the queue.",
            ),
            Self::DeclaredInConfiguration => (
                "declared-in-configuration",
                409,
                "The configuration file declares this queue",
                "What the configuration file declares is changed there and nowhere else, so that a restart never undoes a change.",
                "Change the file and restart the server. Pausing and resuming work without it.",
            ),
            Self::InUse => (
                "in-use",
                409,
                "Still in use",
                "The queue still holds unfinished messages or dead letters, or a replay of its dead letters is under way. Deleting it would lose work without a word.",
                "Let the messages finish or cancel them, replay or delete the dead letters, then try again.",
            ),
            Self::Forgotten => (
                "forgotten",
                410,
                "The message is forgotten",
                "The message was accepted once and its life ended so long ago that its status, its result and its idempotency key are gone: they are kept for the queue's result_retention after the end. Or it was a dead letter, and was deleted or ended its own retention.",
                "Fetch results sooner, or raise result_retention of the queue.",
            ),
            Self::TooLarge => (
                "too-large",
                413,
                "The body is too large",
                "The body is larger than the server takes: max_body for one message, and a bound of its own for a batch; it is refused before it is read. Or it is larger than the queue could take if it were empty: a message larger than what its class may use of max_bytes, or a batch that a queue with overflow block takes as a whole.",
                "Store what is large elsewhere and enqueue a reference to it, send a batch in parts, or raise max_body or the queue's bounds.",
            ),
            Self::UnsupportedMediaType => (
                "unsupported-media-type",
                415,
                "Unsupported media type",
                "This path takes JSON, or the body is compressed. (The body of a single message may be of any type, but is stored as it comes: no Content-Encoding is undone or handed on.)",
                "Send JSON with Content-Type: application/json, and no body with a Content-Encoding.",
            ),
            Self::IdempotencyMismatch => (
                "idempotency-mismatch",
                422,
                "The idempotency key belongs to another payload",
                "A message with this Idempotency-Key was accepted in this queue before, with another body, content type, delay, time to live, criticality, tenant, group, method or path. The earlier message stands; this one was not accepted.",
                "Use a new key for new work, and the same payload for a repetition.",
            ),
            _ => (
                "invalid-message",
                422,
                "The message cannot be accepted as it is",
                "The request is well formed, but something that it asks for is out of range, contradicts the queue's settings, does not fit the schema of its route, or is not supported by this version. The message was not accepted: nothing that was asked for is ignored in silence.",
                "Change what the detail names; errors, where it is there, lists the places in the body.",
            ),
        }
    }

    fn capacity_page(self) -> Page {
        match self {
            Self::RateLimited => (
                "rate-limited",
                429,
                "Too many requests",
                "The caller has used up what it may ask for in this time.",
                "Wait as long as Retry-After says, then try again.",
            ),
            Self::Internal => (
                "internal",
                500,
                "A fault of the server",
                "The server met a fault of its own while it handled this request; its log says more. Whether what was asked for happened is not known.",
                "Repeat the request with the same Idempotency-Key, which cannot do the work twice, and report the fault.",
            ),
            Self::QueueFull => (
                "queue-full",
                503,
                "The queue is full",
                "A bound of the queue on messages or bytes is reached. The message was not stored. Refusing it now is what keeps the wait of those accepted before within bounds.",
                "Wait as long as Retry-After says, then try again: it is computed from how fast the queue is worked off. Operators: compare arrivals_per_second with capacity_per_second in the queue's stats.",
            ),
            Self::WaitTooLong => (
                "wait-too-long",
                503,
                "The wait would be too long",
                "The queue promises that accepted work starts within its max_wait. By the forecast this message would start later, so it was not stored.",
                "Wait as long as Retry-After says, then try again. Operators: add capacity, or promise less with a longer max_wait.",
            ),
            Self::Overloaded => (
                "overloaded",
                503,
                "Too many requests are under way",
                "The server has as many requests under way as it takes. This one was not begun.",
                "Wait as long as Retry-After says, then try again; send batches rather than many single requests.",
            ),
            Self::Draining => (
                "draining",
                503,
                "The server is shutting down",
                "The server is about to stop. It finishes what is under way and takes no new work. What was accepted is stored and goes on after the restart.",
                "Wait as long as Retry-After says, then try again.",
            ),
            Self::StorageFull => (
                "storage-full",
                507,
                "The disk is full",
                "The disk has no room for new messages. What was accepted before is safe; work goes on and can be settled, which makes room again.",
                "Try again later. Operators: free space or enlarge the disk below the data directory.",
            ),
            _ => (
                "unavailable",
                503,
                "The server cannot answer now",
                "The engine did not answer in time, or has stopped. Whether what was asked for happened is not known.",
                "Wait as long as Retry-After says, then repeat the request with the same Idempotency-Key, which cannot do the work twice.",
            ),
        }
    }
}

/// One occurrence of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `/problems/{slug}`; the page there explains the kind.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// A short summary, the same for every occurrence.
    pub title: Cow<'static, str>,
    /// The status of the answer, or of the item in a batch.
    pub status: u16,
    /// What went wrong this time, where, and what to do.
    pub detail: String,
    /// The path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// When to come back, in whole seconds, at least 1: the same as the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// Where the body does not fit its schema, the first few places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One place where a body does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// A JSON Pointer as a fragment: `#` for the whole, `#/age` for a field.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

impl Problem {
    /// A problem of the kind `slug`.
    pub fn new(slug: Slug, detail: impl Into<String>) -> Self {
        Self {
            kind: Cow::Owned(format!("/problems/{}", slug.as_str())),
            title: Cow::Borrowed(slug.title()),
            status: slug.status(),
            detail: detail.into(),
            instance: None,
            retry_after_seconds: None,
            errors: Vec::new(),
        }
    }

    /// The same, with the time to come back, at least one second.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    /// The kind, if this version knows it.
    pub fn slug(&self) -> Option<Slug> {
        Slug::parse(self.kind.strip_prefix("/problems/")?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Problem, Slug};
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_its_own_word_and_is_found_by_it() {
        let words: BTreeSet<&str> = Slug::ALL.iter().map(|slug| slug.as_str()).collect();
        assert_eq!(words.len(), Slug::ALL.len());
        for slug in Slug::ALL {
            assert_eq!(Slug::parse(slug.as_str()), Some(slug));
            assert!((400..=599).contains(&slug.status()), "{slug:?}");
            assert!(slug.explanation().len() > 40 && slug.remedy().len() > 20, "{slug:?}");
        }
        assert_eq!(Slug::parse("nonsense"), None);
    }

    #[test]
    fn the_statuses_are_those_of_the_contract() {
        for (status, words) in [
            (400, "malformed"),
            (401, "unauthenticated"),
            (403, "forbidden"),
            (404, "unknown-queue unknown-target unknown-message no-result"),
            (405, "method-not-allowed"),
            (409, "lease-lost not-cancellable declared-in-configuration in-use"),
            (410, "forgotten"),
            (413, "too-large"),
            (415, "unsupported-media-type"),
            (422, "invalid-message idempotency-mismatch"),
            (429, "rate-limited"),
            (503, "queue-full wait-too-long overloaded draining unavailable"),
            (507, "storage-full"),
        ] {
            for word in words.split(' ') {
                assert_eq!(Slug::parse(word).unwrap().status(), status, "{word}");
            }
        }
    }

    #[test]
    fn a_problem_survives_the_wire() {
        let problem = Problem::new(Slug::QueueFull, "queue a is full").retry_after(0);
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.contains(r#""type":"/problems/queue-full""#), "{text}");
        let read: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(read, problem);
        assert_eq!(read.slug(), Some(Slug::QueueFull));
        assert_eq!(read.retry_after_seconds, Some(1));
    }
}
