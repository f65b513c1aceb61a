//! The bounds of the front door: how much, how long, how many.
//!
//! Owns their defaults and the reading of bodies within them. Must never read a body that its announced length
//! already rules out.

use crate::errors::{Refusal, refuse};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use millpond_api::problem::Slug;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Most bytes and most time spent on reading what is left of a body that was refused, so that the answer
/// reaches a client that is still sending.
const DISCARD_BYTES_MAX: u64 = 8 << 20;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(2);
/// Bodies up to this size are copied out of the connection's buffer, which they would otherwise keep alive for
/// as long as the message waits in memory.
const COPY_BYTES_MAX: usize = 16 << 10;

/// The bounds of the front door. The defaults suit a server that faces its callers directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once. More wait in the listener's backlog.
    pub connections: usize,
    /// How long a connection may take to send the head of its next request, idle time included.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a request may take in all. Longer than the longest wait that a request can ask for.
    pub request_timeout: Duration,
    /// Headers per request.
    pub headers: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// HTTP/2: requests under way at once on one connection.
    pub streams: u32,
    /// Messages, settlements or extensions per request.
    pub batch: usize,
    /// Bytes of a batch's body. Each message in it obeys `max_body` as well.
    pub batch_bytes: u64,
    /// How long running push calls may go on after the server was told to stop; then they are given back.
    pub drain: Duration,
    /// How long open connections may go on after the last push call has ended.
    pub close: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_mins(2),
            headers: 100,
            head_bytes: 32 << 10,
            streams: 200,
            batch: 1_000,
            batch_bytes: 16 << 20,
            drain: Duration::from_secs(30),
            close: Duration::from_secs(5),
        }
    }
}

/// Reads a body of at most `limit_bytes` that must arrive within `timeout`.
pub(crate) async fn read_body(body: Body, limit_bytes: u64, timeout: Duration) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().lower();
    if announced > limit_bytes {
        discard(body);
        return Err(too_large(limit_bytes, Some(announced)));
    }
    // A body that is here already is read without a timer.
    tokio::time::timeout(timeout, collect(body, limit_bytes)).await.unwrap_or_else(|_| {
        let detail =
            format!("the body did not arrive within {}s; send it faster, or less at once", timeout.as_secs());
        Err(refuse(Slug::RequestTimeout, detail))
    })
}

async fn collect(mut body: Body, limit_bytes: u64) -> Result<Bytes, Refusal> {
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let detail = format!("the body broke off after {length} bytes: {error}; send it again whole");
            refuse(Slug::Malformed, detail)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        if length > limit_bytes {
            discard(body);
            return Err(too_large(limit_bytes, None));
        }
        match first.take() {
            None if joined.is_empty() => first = Some(data),
            None => joined.extend_from_slice(&data),
            Some(before) => {
                let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
                joined.reserve(before.len() + data.len() + announced);
                joined.extend_from_slice(&before);
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok(match first {
        Some(only) if only.len() <= COPY_BYTES_MAX => Bytes::copy_from_slice(&only),
        Some(only) => only,
        None => joined.freeze(),
    })
}

fn too_large(limit_bytes: u64, announced: Option<u64>) -> Refusal {
    let size = announced.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
    refuse(
        Slug::TooLarge,
        format!(
            "the body{size} is larger than the {limit_bytes} bytes that are taken here; store what is large elsewhere and send a reference, or raise max_body"
        ),
    )
}

/// Reads on, within bounds and aside, so that a client in the middle of sending gets to see the answer.
pub(crate) fn discard(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(DISCARD_TIME_MAX, async move {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }));
}

/// Reads a JSON body. `expected` says in words what belongs there.
pub(crate) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    limit_bytes: u64,
    timeout: Duration,
    expected: &str,
) -> Result<T, Refusal> {
    if let Some(given) = headers.get(header::CONTENT_TYPE)
        && !may_be_json(given.as_bytes())
    {
        discard(body);
        let given = String::from_utf8_lossy(given.as_bytes()).into_owned();
        let detail =
            format!("the body is sent as {given:?}; send {expected} with Content-Type: application/json");
        return Err(refuse(Slug::UnsupportedMediaType, detail));
    }
    let bytes = read_body(body, limit_bytes, timeout).await?;
    parse_json(&bytes, expected)
}

/// Whether a body of this media type is tried as JSON. What `curl -d` says unless told otherwise is among them: it is
/// what everybody types first, and pages of other sites, which can send it too, are refused by their `Origin`.
fn may_be_json(media_type: &[u8]) -> bool {
    let essence = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json"
        || essence == b"application/x-www-form-urlencoded"
        || (essence.starts_with(b"application/") && essence.ends_with(b"+json"))
}

/// Parses JSON; a failure names the field, the line and the column.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8], expected: &str) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|_| {
        // Read once more for the path to the field: keeping track of it costs, and is needed only now.
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let error = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err();
        let detail = error.map_or_else(
            || "there is more after the end of the JSON value".to_owned(),
            |error| match error.path().to_string().as_str() {
                "." => error.inner().to_string(),
                path => format!("{path}: {}", error.inner()),
            },
        );
        refuse(Slug::Malformed, format!("the body is not {expected}: {detail}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{may_be_json, parse_json};
    use millpond_api::types::{LeaseRequest, Settlement};

    #[test]
    fn json_is_recognized_by_its_essence() {
        for yes in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
            "application/x-www-form-urlencoded",
        ] {
            assert!(may_be_json(yes.as_bytes()), "{yes}");
        }
        for no in ["text/json", "application/jsonp", "multipart/form-data", "", "json"] {
            assert!(!may_be_json(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let text = "[{\"receipt\": \"a\", \"outcome\": \"complete\"},\n {\"receipt\": 7}]";
        let refusal = parse_json::<Vec<Settlement>>(text.as_bytes(), "settlements").unwrap_err();
        let detail = refusal.0.detail;
        assert!(detail.contains("[1].receipt") && detail.contains("line 2 column"), "{detail}");
    }

    #[test]
    fn malformed_numbers_and_leftovers_are_refused() {
        for bad in [
            "",
            "{",
            "NaN",
            r#"{"max": -1}"#,
            r#"{"max": 1e999}"#,
            r#"{"lease_seconds": NaN}"#,
            "{} {}",
            "[]x",
        ] {
            assert!(parse_json::<LeaseRequest>(bad.as_bytes(), "a wish").is_err(), "{bad}");
        }
    }
}
