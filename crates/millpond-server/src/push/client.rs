//! One call to a target.
//!
//! Owns the connection pool, the bound on what is read of an answer, and the words for what went wrong on the way.
//! Must never follow a redirect, and never send a request twice: the pool repeats only what was not written at all
//! because the connection taken from it had been closed.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use millpond_core::message::Failure;
use std::error::Error;
use std::time::Duration;

/// How long a connection is kept that nothing is sent on: shorter than the 5 s after which common servers close
/// theirs, so that a call seldom meets a connection in the middle of being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// Most bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes read of the body of an answer that tells of a failure.
pub(super) const EXCERPT_BYTES_MAX: u64 = 4 << 10;

/// The pool of connections to one target.
pub(super) type Pool = Client<HttpConnector, Full<Bytes>>;

/// A pool for a target that gets at most `concurrency` calls at once.
pub(super) fn pool(concurrency: u32, timeout: Duration) -> Pool {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(usize::try_from(concurrency).unwrap_or(usize::MAX))
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .build(connector)
}

/// What a target answered.
#[derive(Debug)]
pub(super) struct Answered {
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// The body, or its beginning.
    pub(super) body: Bytes,
    /// Whether the body was longer than what was read of it.
    pub(super) is_cut: bool,
}

/// Sends `request` and reads the answer; `limit_bytes` says how much of the body for which status.
pub(super) async fn call(
    pool: &Pool,
    request: Request<Full<Bytes>>,
    limit_bytes: impl Fn(&Response<Incoming>) -> u64,
) -> Result<Answered, Failure> {
    let response = pool.request(request).await.map_err(|error| {
        let kind = if error.is_connect() { "connect" } else { kind(&error) };
        Failure::new(kind, &words(&error), None)
    })?;
    let (status, limit_bytes) = (response.status().as_u16(), limit_bytes(&response));
    let (parts, body) = response.into_parts();
    let (body, is_cut) = read(body, limit_bytes).await.map_err(|error| {
        let message = format!("the answer broke off: {}", words(&error));
        Failure::new(kind(&error), &message, Some(status))
    })?;
    Ok(Answered { status, headers: parts.headers, body, is_cut })
}

/// Reads at most `limit_bytes`; the connection of a longer body is dropped with the body.
async fn read(mut body: Incoming, limit_bytes: u64) -> Result<(Bytes, bool), hyper::Error> {
    let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = limit - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read.freeze(), true));
        }
    }
    Ok((read.freeze(), false))
}

/// The stable word for an error on the way.
fn kind(error: &(dyn Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_timeout() {
                return "timeout";
            }
            if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
                return "reset";
            }
        }
        if error.downcast_ref::<std::io::Error>().is_some() {
            return "reset";
        }
        cause = error.source();
    }
    "protocol"
}

/// The error with its causes in one line.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
