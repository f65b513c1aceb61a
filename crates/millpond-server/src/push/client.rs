//! One call to a target.
//!
//! Owns the choice between HTTP/1.1 and HTTP/2, the bounds on time and on what is read of an answer. Must never follow
//! a redirect, and never send a request twice, but for one that the target has not begun with: it was not written at
//! all because the connection taken for it had been closed, or the target says so.

use super::connect::{Connector, Offer};
use super::fault::{Fault, Phase, Progress, fault, kind, words};
use super::multiplexed::{Care, Multiplexed, Unsent};
use crate::tls::TlsError;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use millpond_config::Target;
use millpond_core::message::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a connection of HTTP/1.1 is kept that nothing is sent on: shorter than the 5 s after which common servers
/// close theirs, so that a call seldom meets a connection in the middle of being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// Most bytes of the head of an answer.
pub(super) const HEAD_BYTES_MAX: u32 = 64 << 10;
/// Bytes read of the body of an answer that tells of a failure.
pub(super) const EXCERPT_BYTES_MAX: u64 = 4 << 10;

/// The connections to one target.
#[derive(Debug)]
pub(super) struct Pool {
    timeout: Duration,
    /// `None`: HTTP/2 is not tried.
    multiplexed: Option<Multiplexed>,
    /// Whether the target, asked what it prefers, has said HTTP/1.1.
    prefers_http1: AtomicBool,
    single: Client<Connector, Full<Bytes>>,
}

impl Pool {
    /// The connections to `target`; none is made yet.
    pub(super) fn new(target: &Target) -> Result<Self, TlsError> {
        let settings = &target.settings;
        let connector = Connector::new(target)?;
        let is_secured = target.url.scheme_str() == Some("https");
        let over = |offer, may_fall_back| {
            Multiplexed::new(connector.offering(offer), is_secured, may_fall_back, Care::default())
        };
        let multiplexed = match target.http2 {
            Some(true) => Some(over(Offer::Http2, false)),
            None if is_secured => Some(over(Offer::Both, true)),
            _ => None,
        };
        let single = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(usize::try_from(settings.concurrency).unwrap_or(usize::MAX))
            .http1_max_buf_size(HEAD_BYTES_MAX as usize)
            .build(connector.offering(Offer::Http1));
        Ok(Self { timeout: settings.timeout, multiplexed, prefers_http1: AtomicBool::new(false), single })
    }

    /// Sends `request` and reads the answer, within the target's time-out; `limit_bytes` says how much of the body
    /// for which status.
    pub(super) async fn call(
        &self,
        mut request: Request<Full<Bytes>>,
        limit_bytes: impl Fn(&Response<Incoming>) -> u64,
    ) -> Result<Answered, Fault> {
        let (progress, taken) = (Progress::default(), capture_connection(&mut request));
        let exchange = progress.clone().follow(self.exchange(request, limit_bytes, &progress));
        if let Ok(ended) = tokio::time::timeout(self.timeout, exchange).await {
            return ended;
        }
        if taken.connection_metadata().is_some() {
            progress.reach(Phase::Sent);
        }
        Err(progress.timed_out(self.timeout))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        limit_bytes: impl Fn(&Response<Incoming>) -> u64,
        progress: &Progress,
    ) -> Result<Answered, Fault> {
        if let Some(multiplexed) = &self.multiplexed
            && !self.prefers_http1.load(Ordering::Relaxed)
        {
            match multiplexed.send(&request, progress).await {
                Ok((response, place)) => {
                    let answered = answered(response, limit_bytes).await;
                    place.ended();
                    return answered;
                }
                Err(Unsent::Fault(fault)) => return Err(fault),
                Err(Unsent::SpeaksHttp1) => self.prefers_http1.store(true, Ordering::Relaxed),
            }
        }
        let response = self.single.request(request).await.map_err(|error| fault(&error))?;
        answered(response, limit_bytes).await
    }
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

async fn answered(
    response: Response<Incoming>,
    limit_bytes: impl Fn(&Response<Incoming>) -> u64,
) -> Result<Answered, Fault> {
    let (status, limit_bytes) = (response.status().as_u16(), limit_bytes(&response));
    let (parts, body) = response.into_parts();
    let (body, is_cut) = read(body, limit_bytes).await.map_err(|error| {
        let message = format!("the answer broke off: {}", words(&error));
        Fault::Failed(Failure::new(kind(&error), &message, Some(status)))
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
