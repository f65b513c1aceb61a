//! A typed client: one method for each call of the HTTP interface.
//!
//! Owns addresses, headers, time-outs and the sorting of failures: refused, not reachable, not understood. Must
//! never retry by itself: whether a repetition is safe (an idempotency key) is the caller's to know.
//!
//! ```no_run
//! # async fn example() -> Result<(), millpond_api::client::ClientError> {
//! use millpond_api::client::{Client, Enqueue};
//! use std::time::Duration;
//!
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let accepted = client.enqueue("enrollments", Enqueue::new(r#"{"course": 7}"#)).await?;
//! let status = client.status(&accepted.status_url, Some(Duration::from_secs(30))).await?;
//! println!("{:?}", status.status);
//! # Ok(())
//! # }
//! ```

use crate::alert::Alerts;
use crate::problem::Problem;
use crate::replay::{Replay, ReplayRequest, Replays};
use crate::types::{
    Accepted, BatchAnswer, BatchMessage, DeadLetter, Extension, LeaseRequest, Leases, MessageStatus,
    Messages, PurgeRequest, Purged, Queue, QueueStats, Queues, ReceiptAnswer, Settlement, Target, Targets,
};
use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, beyond what the call itself asks the server to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer: a dead letter of the largest size that the server takes, in base64.
const ANSWER_BYTES_MAX: usize = 384 << 20;
/// Most characters of an answer that is not understood which an error quotes.
const QUOTED_MAX: usize = 200;

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

/// What to enqueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enqueue {
    /// The bytes, stored as they are.
    pub body: Bytes,
    /// Their media type; `application/octet-stream` if missing.
    pub content_type: Option<String>,
    /// What makes a repetition recognizable: same key, same message.
    pub idempotency_key: Option<String>,
    /// How long it must not be handed out.
    pub delay: Option<Duration>,
    /// How long it is worth doing; the queue's retention if missing.
    pub ttl: Option<Duration>,
    /// How much it matters: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`; `critical` if missing.
    pub criticality: Option<String>,
    /// Whose work it is; within a class, tenants take turns.
    pub tenant: Option<String>,
    /// What it must be done in order with.
    pub group: Option<String>,
}

impl Enqueue {
    /// A message with this body and every default.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }
}

/// Bytes with their media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The media type.
    pub content_type: String,
    /// The bytes.
    pub body: Bytes,
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Only those in this state, such as `ready`; all if missing.
    pub state: Option<String>,
    /// Go on after this message: `next` of the page before.
    pub after: Option<String>,
    /// At most so many; the server's own limit if missing.
    pub limit: Option<u32>,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// Only those with this reason, such as `attempts-exhausted`.
    pub reason: Option<String>,
    /// Only those whose last error contains this text, in either case.
    pub error: Option<String>,
    /// Only those that died at this time or later (RFC 3339).
    pub since: Option<String>,
    /// Only those that died before this time (RFC 3339).
    pub until: Option<String>,
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Go on after this one: `next` of the page before.
    pub after: Option<String>,
    /// At most so many; the server's own limit if missing.
    pub limit: Option<u32>,
}

/// Why there is no good answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The address of the server cannot be used.
    #[error("{address:?} is not the address of a server: {reason}; use a form like http://127.0.0.1:8080")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value cannot be sent in a header.
    #[error("{header} cannot be {value:?}: a header takes text on one line, without control characters")]
    Header {
        /// The header.
        header: &'static str,
        /// What was given.
        value: String,
    },
    /// No connection.
    #[error("nothing answers at {address}: {reason}")]
    Unreachable {
        /// The server's address.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// A connection, but no answer in time. Whether the request took effect is not known.
    #[error("{address} did not answer within {}s; whether the request took effect is not known", .after.as_secs())]
    TimedOut {
        /// The server's address.
        address: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke before the answer was complete. Whether the request took effect is not known.
    #[error("the connection to {address} broke ({reason}); whether the request took effect is not known")]
    Interrupted {
        /// The server's address.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The server understood and said no.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// An answer that does not fit the interface: something else answers at this address, or another version.
    #[error("{address} does not answer as a Millpond server does: {reason}")]
    Protocol {
        /// The server's address.
        address: String,
        /// What was unexpected.
        reason: String,
    },
}

impl ClientError {
    /// The problem, if the server refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// When a refused request may be repeated, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem()?.retry_after_seconds.map(Duration::from_secs)
    }

    /// Whether no answer came at all.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Interrupted { .. })
    }
}

impl Client {
    /// A client of the server at `address`, such as `http://127.0.0.1:8080`. Connects when first used, directly
    /// (proxies from the environment are not asked), and follows no redirects.
    pub fn new(address: &str) -> Result<Self, ClientError> {
        let wrong = |reason: String| ClientError::Address { address: address.to_owned(), reason };
        let base = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        if base.scheme() != "http" {
            return Err(wrong(format!("{}:// is not supported", base.scheme())));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(wrong("it must end with the host, the port or a path".to_owned()));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("millpond/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(cause(&error)))?;
        Ok(Self { http, base })
    }

    /// The server's address, without a slash at the end.
    pub fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Enqueues one message. An answer means that it is on disk.
    pub async fn enqueue(&self, queue: &str, message: Enqueue) -> Result<Accepted, ClientError> {
        let mut request = self.request(Method::POST, &["queues", queue, "messages"]);
        let microseconds = |duration: Duration| format!("{}us", duration.as_micros());
        for (name, value) in [
            ("Content-Type", message.content_type),
            ("Idempotency-Key", message.idempotency_key),
            ("Millpond-Delay", message.delay.map(microseconds)),
            ("Millpond-Ttl", message.ttl.map(microseconds)),
            ("Millpond-Criticality", message.criticality),
            ("Millpond-Tenant", message.tenant),
            ("Millpond-Group", message.group),
        ] {
            if let Some(value) = value {
                request = with_header(request, name, value)?;
            }
        }
        self.json(request.body(message.body), Duration::ZERO).await
    }

    /// Enqueues several messages; the answers come in the same order, each accepted or refused by itself.
    pub async fn enqueue_batch(
        &self,
        queue: &str,
        messages: &[BatchMessage],
    ) -> Result<Vec<BatchAnswer>, ClientError> {
        self.send(Method::POST, &["queues", queue, "messages", "batch"], messages).await
    }

    /// A message's status. `message` is an id or a status URL, which carries the right to read it. With `wait`,
    /// the answer comes as soon as the message's life is over, or after so many whole seconds.
    pub async fn status(&self, message: &str, wait: Option<Duration>) -> Result<MessageStatus, ClientError> {
        let mut request = self.message_request(Method::GET, message, None);
        if let Some(wait) = wait {
            request = with_header(request, "Prefer", format!("wait={}", wait.as_secs()))?;
        }
        self.json(request, wait.unwrap_or_default()).await
    }

    /// A message's result. `message` is an id or a status URL.
    pub async fn result(&self, message: &str) -> Result<Content, ClientError> {
        let request = self.message_request(Method::GET, message, Some("result"));
        let response = self.answer(request, Duration::ZERO).await?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or("application/octet-stream").to_owned();
        Ok(Content { content_type, body: self.body(response, ANSWER_TIMEOUT).await? })
    }

    /// Withdraws a message that nobody has yet. `message` is an id or a status URL.
    pub async fn cancel(&self, message: &str) -> Result<MessageStatus, ClientError> {
        self.json(self.message_request(Method::POST, message, Some("cancel")), Duration::ZERO).await
    }

    /// Takes messages to work on them.
    pub async fn lease(&self, queue: &str, request: &LeaseRequest) -> Result<Leases, ClientError> {
        let wait = request.wait_seconds.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        let call = self.request(Method::POST, &["queues", queue, "leases"]).json(request);
        self.json(call, wait.unwrap_or_default()).await
    }

    /// Holds messages for longer; each extension is answered by itself.
    pub async fn extend(&self, extensions: &[Extension]) -> Result<Vec<ReceiptAnswer>, ClientError> {
        self.send(Method::POST, &["leases", "extend"], extensions).await
    }

    /// Says how hand-outs ended; each settlement is answered by itself.
    pub async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<ReceiptAnswer>, ClientError> {
        self.send(Method::POST, &["settlements"], settlements).await
    }

    /// All queues with their settings and numbers.
    pub async fn queues(&self) -> Result<Queues, ClientError> {
        self.get(&["queues"]).await
    }

    /// One queue with its settings and numbers.
    pub async fn queue(&self, queue: &str) -> Result<Queue, ClientError> {
        self.get(&["queues", queue]).await
    }

    /// All targets.
    pub async fn targets(&self) -> Result<Targets, ClientError> {
        self.get(&["targets"]).await
    }

    /// One target.
    pub async fn target(&self, target: &str) -> Result<Target, ClientError> {
        self.get(&["targets", target]).await
    }

    /// Closes a target's circuit breaker: calls go out again at once.
    pub async fn reset_target(&self, target: &str) -> Result<Target, ClientError> {
        self.send(Method::POST, &["targets", target, "reset"], &Value::Null).await
    }

    /// Creates a queue, or changes it, to have exactly these settings; what is missing has its default.
    pub async fn put_queue(&self, queue: &str, settings: &Value) -> Result<Queue, ClientError> {
        self.send(Method::PUT, &["queues", queue], settings).await
    }

    /// Deletes a queue that holds nothing.
    pub async fn delete_queue(&self, queue: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["queues", queue]);
        self.answer(request, Duration::ZERO).await.map(drop)
    }

    /// Ends everything that waits in a queue as cancelled; what somebody has stays.
    pub async fn purge(&self, queue: &str) -> Result<Purged, ClientError> {
        let confirm = PurgeRequest { confirm: queue.to_owned() };
        self.send(Method::POST, &["queues", queue, "purge"], &confirm).await
    }

    /// Hands out nothing until [`Client::resume`]; enqueues go on. Survives a restart.
    pub async fn pause(&self, queue: &str) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["queues", queue, "pause"]);
        self.answer(request, Duration::ZERO).await.map(drop)
    }

    /// Hands out again.
    pub async fn resume(&self, queue: &str) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["queues", queue, "resume"]);
        self.answer(request, Duration::ZERO).await.map(drop)
    }

    /// A queue's numbers.
    pub async fn stats(&self, queue: &str) -> Result<QueueStats, ClientError> {
        self.get(&["queues", queue, "stats"]).await
    }

    /// The alerts that fire, and those that have cleared lately.
    pub async fn alerts(&self) -> Result<Alerts, ClientError> {
        self.get(&["alerts"]).await
    }

    /// One page of messages, without taking them. An empty one is not the end while it has a `next`.
    pub async fn messages(&self, queue: &str, page: &Page) -> Result<Messages, ClientError> {
        let Page { state, after, limit } = page;
        let limit = limit.map(|limit| limit.to_string());
        let filters = [("state", state), ("after", after), ("limit", &limit)];
        self.page(&["queues", queue, "messages"], &filters).await
    }

    /// One page of dead letters. An empty one is not the end while it has a `next`.
    pub async fn dead_letters(&self, queue: &str, page: &DeadPage) -> Result<Messages, ClientError> {
        let DeadPage { reason, error, since, until, tenant, after, limit } = page;
        let limit = limit.map(|limit| limit.to_string());
        let filters = [
            ("reason", reason),
            ("error", error),
            ("since", since),
            ("until", until),
            ("tenant", tenant),
            ("after", after),
            ("limit", &limit),
        ];
        self.page(&["queues", queue, "dead"], &filters).await
    }

    /// One dead letter with its bytes.
    pub async fn dead_letter(&self, queue: &str, id: &str) -> Result<DeadLetter, ClientError> {
        self.get(&["queues", queue, "dead", id]).await
    }

    /// Deletes a dead letter for good.
    pub async fn delete_dead_letter(&self, queue: &str, id: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["queues", queue, "dead", id]);
        self.answer(request, Duration::ZERO).await.map(drop)
    }

    /// Starts putting dead letters back to work, or says what that would do.
    pub async fn replay(&self, queue: &str, request: &ReplayRequest) -> Result<Replay, ClientError> {
        self.send(Method::POST, &["queues", queue, "dead", "replay"], request).await
    }

    /// The replay that runs and the latest ones that ended, oldest first.
    pub async fn replays(&self, queue: &str) -> Result<Replays, ClientError> {
        self.get(&["queues", queue, "dead", "replays"]).await
    }

    /// One replay as it stands now.
    pub async fn replay_status(&self, queue: &str, number: u32) -> Result<Replay, ClientError> {
        self.get(&["queues", queue, "dead", "replays", &number.to_string()]).await
    }

    /// Ends a replay before its time; what is back stays back.
    pub async fn cancel_replay(&self, queue: &str, number: u32) -> Result<Replay, ClientError> {
        let number = number.to_string();
        let request = self.request(Method::DELETE, &["queues", queue, "dead", "replays", &number]);
        self.json(request, Duration::ZERO).await
    }

    /// Whatever there is below `/v1`, for what has no call of its own here.
    pub async fn fetch<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A, ClientError> {
        self.get(path).await
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Pushing segments escapes them, so that no name can reach another path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        url
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    /// A request about a message that is given by its id or by its status URL.
    fn message_request(&self, method: Method, message: &str, what: Option<&str>) -> RequestBuilder {
        let (path, query) = message.split_once('?').unwrap_or((message, ""));
        let id = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let mut url = self.url(&["messages", id]);
        if let (Some(what), Ok(mut segments)) = (what, url.path_segments_mut()) {
            segments.push(what);
        }
        if !query.is_empty() {
            url.set_query(Some(query));
        }
        self.http.request(method, url)
    }

    async fn page(
        &self,
        path: &[&str],
        filters: &[(&str, &Option<String>)],
    ) -> Result<Messages, ClientError> {
        let mut url = self.url(path);
        for (name, value) in filters {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        self.json(self.http.get(url), Duration::ZERO).await
    }

    async fn get<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A, ClientError> {
        self.json(self.request(Method::GET, path), Duration::ZERO).await
    }

    async fn send<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: &(impl Serialize + ?Sized),
    ) -> Result<A, ClientError> {
        self.json(self.request(method, path).json(body), Duration::ZERO).await
    }

    async fn json<A: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<A, ClientError> {
        let response = self.answer(request, wait).await?;
        let body = self.body(response, wait + ANSWER_TIMEOUT).await?;
        serde_json::from_slice(&body).map_err(|error| self.unexpected(format!("{error}: {}", quoted(&body))))
    }

    /// Sends; anything but 2xx becomes an error.
    async fn answer(&self, request: RequestBuilder, wait: Duration) -> Result<Response, ClientError> {
        let after = wait + ANSWER_TIMEOUT;
        let response = request.timeout(after).send().await.map_err(|error| self.failed(&error, after))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok());
        let body = self.body(response, after).await?;
        Err(self.refused(status, retry_after, &body))
    }

    fn refused(&self, status: StatusCode, retry_after: Option<u64>, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            Ok(mut problem) => {
                problem.retry_after_seconds = problem.retry_after_seconds.or(retry_after);
                ClientError::Refused(Box::new(problem))
            }
            Err(_) => self.unexpected(format!("status {status} with {}", quoted(body))),
        }
    }

    async fn body(&self, mut response: Response, after: Duration) -> Result<Bytes, ClientError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error, after))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.unexpected(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn failed(&self, error: &reqwest::Error, after: Duration) -> ClientError {
        let (address, reason) = (self.address().to_owned(), cause(error));
        if error.is_connect() {
            ClientError::Unreachable { address, reason }
        } else if error.is_timeout() {
            ClientError::TimedOut { address, after }
        } else {
            ClientError::Interrupted { address, reason }
        }
    }

    fn unexpected(&self, reason: String) -> ClientError {
        ClientError::Protocol { address: self.address().to_owned(), reason }
    }
}

fn with_header(
    request: RequestBuilder,
    name: &'static str,
    value: String,
) -> Result<RequestBuilder, ClientError> {
    let lower = HeaderName::from_bytes(name.as_bytes());
    match (lower, HeaderValue::from_bytes(value.as_bytes())) {
        (Ok(lower), Ok(content)) => Ok(request.header(lower, content)),
        _ => Err(ClientError::Header { header: name, value }),
    }
}

/// The innermost cause: the outer ones only say that sending failed.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn quoted(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let mut short: String = text.chars().take(QUOTED_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::{Client, ClientError, Enqueue, Page};
    use crate::problem::Slug;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::JoinHandle;
    use std::time::Duration;

    /// Answers one request with `answer` and returns what was asked.
    fn one_answer(answer: String) -> (Client, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while !is_complete(&request) {
                let read = stream.read(&mut chunk).unwrap();
                assert!(read > 0, "the request ends too early");
                request.extend_from_slice(&chunk[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (client, asked)
    }

    fn is_complete(request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.map_or(0, |length| length.parse().unwrap())
    }

    fn response(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn an_enqueue_carries_its_headers_and_the_body_as_it_is() {
        let body = r#"{"id":"i","queue":"q","status":"ready","status_url":"/v1/messages/i?t=x","position":0,
            "expected_start_seconds":{"p50":0.1,"p90":0.2},"accepted_at":"2026-11-30T10:00:00.000Z"}"#;
        let (client, asked) = one_answer(response("202 Accepted", "", body));
        let message = Enqueue {
            content_type: Some("text/plain".to_owned()),
            idempotency_key: Some("k-1".to_owned()),
            delay: Some(Duration::from_millis(1_500)),
            ttl: Some(Duration::from_mins(1)),
            criticality: Some("sheddable".to_owned()),
            tenant: Some("größe".to_owned()),
            group: Some("order 7".to_owned()),
            ..Enqueue::new("two words")
        };
        let accepted = client.enqueue("a queue", message).await.unwrap();
        assert_eq!((accepted.position, accepted.duplicate), (Some(0), false));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /v1/queues/a%20queue/messages HTTP/1.1\r\n"), "{asked}");
        for line in [
            "content-type: text/plain",
            "idempotency-key: k-1",
            "millpond-delay: 1500000us",
            "millpond-ttl: 60000000us",
            "millpond-criticality: sheddable",
            "millpond-tenant: größe",
            "millpond-group: order 7",
        ] {
            assert!(asked.contains(line), "{line} is missing\n{asked}");
        }
        assert!(asked.ends_with("\r\n\r\ntwo words"), "{asked}");
    }

    #[tokio::test]
    async fn a_refusal_carries_the_problem_and_when_to_come_back() {
        let body =
            r#"{"type":"/problems/queue-full","title":"full","status":503,"detail":"queue q is full"}"#;
        let (client, _) = one_answer(response("503 Service Unavailable", "retry-after: 7\r\n", body));
        let error = client.enqueue("q", Enqueue::new("x")).await.unwrap_err();
        assert_eq!(error.problem().unwrap().slug(), Some(Slug::QueueFull));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(!error.is_unreachable());
        assert_eq!(error.to_string(), "queue q is full");
    }

    #[tokio::test]
    async fn something_else_at_the_address_is_told_apart_from_a_refusal() {
        for answer in [response("502 Bad Gateway", "", "<html>"), response("200 OK", "", "<html>")] {
            let (client, _) = one_answer(answer);
            let error = client.stats("q").await.unwrap_err();
            assert!(matches!(&error, ClientError::Protocol { .. }), "{error:?}");
            assert!(error.to_string().contains("<html>"), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_unreachable() {
        // Port 1 is reserved; nobody listens there.
        let client = Client::new("http://127.0.0.1:1").unwrap();
        let error = client.queues().await.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains("http://127.0.0.1:1"), "{error}");
    }

    #[tokio::test]
    async fn a_connection_that_breaks_leaves_the_outcome_open() {
        let (client, _) = one_answer("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned());
        let error = client.stats("q").await.unwrap_err();
        assert!(matches!(&error, ClientError::Interrupted { .. }), "{error:?}");
        assert!(error.is_unreachable());
    }

    #[tokio::test]
    async fn a_status_url_in_any_form_leads_to_its_message_with_its_token() {
        for (message, path) in [
            ("i-1", "GET /v1/messages/i-1/result HTTP"),
            ("/v1/messages/i-1?t=9Xk", "GET /v1/messages/i-1/result?t=9Xk HTTP"),
            ("http://elsewhere/v1/messages/i-1?t=9Xk", "GET /v1/messages/i-1/result?t=9Xk HTTP"),
        ] {
            let (client, asked) = one_answer(response("200 OK", "content-type: text/csv\r\n", "a,b"));
            let result = client.result(message).await.unwrap();
            assert_eq!((result.content_type.as_str(), &result.body[..]), ("text/csv", b"a,b".as_slice()));
            let asked = asked.join().unwrap();
            assert!(asked.starts_with(path), "{asked}");
        }
    }

    #[tokio::test]
    async fn filters_of_a_page_are_escaped() {
        let (client, asked) = one_answer(response("200 OK", "", r#"{"messages":[],"next":null}"#));
        let page = Page { state: Some("ready".to_owned()), after: Some("a&b".to_owned()), limit: Some(5) };
        assert_eq!(client.messages("q", &page).await.unwrap().next, None);
        let asked = asked.join().unwrap();
        assert!(
            asked.starts_with("GET /v1/queues/q/messages?state=ready&after=a%26b&limit=5 HTTP"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_header_that_cannot_be_sent_is_named() {
        let client = Client::new("http://127.0.0.1:1").unwrap();
        let message = Enqueue { idempotency_key: Some("a\nb".to_owned()), ..Enqueue::default() };
        let error = client.enqueue("q", message).await.unwrap_err().to_string();
        assert!(error.starts_with("Idempotency-Key cannot be"), "{error}");
    }

    #[test]
    fn an_address_must_be_http_and_have_no_query() {
        for address in ["", "127.0.0.1:8080", "https://host", "http://host/?a=b", "ftp://host"] {
            let error = Client::new(address).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:8080"), "{error}");
        }
        let client = Client::new("http://host:1/below/").unwrap();
        assert_eq!(client.address(), "http://host:1/below");
        assert_eq!(client.url(&["queues"]).as_str(), "http://host:1/below/v1/queues");
    }
}
