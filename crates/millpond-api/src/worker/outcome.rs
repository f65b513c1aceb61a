//! What a handler gets, and what it says in the end.
//!
//! Owns the way from a leased message to a handler's and from its word to a settlement. Must never lose the receipt.

use crate::client::Content;
use crate::encoding::{self, EncodingError};
use crate::types::{LeasedMessage, Settlement, WorkerError};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Most bytes of an error text: the server keeps no more.
const ERROR_BYTES_MAX: usize = 1_024;

/// A message in work.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Message {
    /// Its id, the same in every attempt: what makes the work repeatable.
    pub id: String,
    /// The bytes.
    pub body: Bytes,
    /// Their media type.
    pub content_type: String,
    /// Headers that were handed on, such as `traceparent`.
    pub headers: BTreeMap<String, String>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Hand-outs, this one included.
    pub deliveries: u32,
    /// Its class.
    pub criticality: String,
    /// Whose work it is.
    pub tenant: Option<String>,
    /// What it is done in order with.
    pub group: Option<String>,
    /// When it was first accepted.
    pub accepted_at: String,
    /// When it expires, unless done.
    pub expires_at: Option<String>,
    pub(super) lost: CancellationToken,
    pub(super) draining: CancellationToken,
}

impl Message {
    pub(super) fn new(
        leased: LeasedMessage,
        lost: CancellationToken,
        draining: CancellationToken,
    ) -> Result<Self, EncodingError> {
        Ok(Self {
            id: leased.id,
            body: encoding::decode(leased.body, leased.body_encoding)?,
            content_type: leased.content_type,
            headers: leased.headers,
            attempt: leased.attempt,
            deliveries: leased.deliveries,
            criticality: leased.criticality,
            tenant: leased.tenant,
            group: leased.group,
            accepted_at: leased.accepted_at,
            expires_at: leased.expires_at,
            lost,
            draining,
        })
    }

    /// Ready once the lease is over although it was extended: the message may be somebody else's, and what is still
    /// done may be done twice.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the lease is over.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Ready once the worker was told to stop: time to come to an end, or to release the message.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether the worker was told to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }
}

/// How work on a message ended. A handler may also return `()`, which is [`Outcome::done`], or a `Result`, whose
/// error is a [`Outcome::retry`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done.
    Complete {
        /// What came out; a queue's `result_max` bounds it.
        result: Option<Content>,
    },
    /// Failed; to be tried again.
    Retry {
        /// What went wrong.
        error: String,
        /// Exactly this long from now, instead of the queue's backoff.
        delay: Option<Duration>,
    },
    /// Failed, and would fail again.
    Dead {
        /// What is wrong.
        error: String,
    },
    /// Not done and not failed: given back without an attempt.
    Release {
        /// Not before so long from now.
        delay: Option<Duration>,
    },
}

impl Outcome {
    /// Done, without a result.
    pub fn done() -> Self {
        Self::Complete { result: None }
    }

    /// Done, with a result.
    pub fn result(content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::Complete { result: Some(Content { content_type: content_type.into(), body: body.into() }) }
    }

    /// Failed; to be tried again after the queue's backoff.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { error: error.into(), delay: None }
    }

    /// Failed, and would fail again.
    pub fn dead(error: impl Into<String>) -> Self {
        Self::Dead { error: error.into() }
    }

    /// Given back, at once.
    pub fn release() -> Self {
        Self::Release { delay: None }
    }

    /// The same, but not before so long from now. Only a retry and a release can wait.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        if let Self::Retry { delay, .. } | Self::Release { delay } = &mut self {
            *delay = Some(pause);
        }
        self
    }

    /// The word on the wire: `complete`, `retry`, `dead` or `release`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Complete { .. } => "complete",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Release { .. } => "release",
        }
    }

    /// How this is told to the server.
    pub(super) fn settlement(&self, receipt: &str) -> Settlement {
        let mut settlement = Settlement {
            receipt: receipt.to_owned(),
            outcome: self.as_str().to_owned(),
            ..Settlement::default()
        };
        match self {
            Self::Complete { result } => {
                if let Some(content) = result {
                    let (text, encoding) = encoding::encode(&content.body);
                    settlement.result = Some(text);
                    settlement.result_encoding = encoding;
                    settlement.content_type = Some(content.content_type.clone());
                }
            }
            Self::Retry { error, delay } => {
                settlement.error = Some(text(error));
                settlement.delay_seconds = delay.map(|delay| delay.as_secs_f64());
            }
            Self::Dead { error } => settlement.error = Some(text(error)),
            Self::Release { delay } => settlement.delay_seconds = delay.map(|delay| delay.as_secs_f64()),
        }
        settlement
    }

    /// About how many bytes it has on the wire.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Complete { result } => result.as_ref().map_or(0, |content| content.body.len() * 4 / 3),
            Self::Retry { error, .. } | Self::Dead { error } => error.len().min(ERROR_BYTES_MAX),
            Self::Release { .. } => 0,
        }
    }
}

fn text(error: &str) -> WorkerError {
    WorkerError::Text(error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned())
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::done()
    }
}

impl<T: Into<Self>, E: std::fmt::Display> From<Result<T, E>> for Outcome {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Self::retry(error.to_string()), Into::into)
    }
}
