//! Dead letters: looking at them, forgetting them.
//!
//! Owns what becomes of these requests between the wire and the engine. Must never delete what is not a dead
//! letter of the queue in the path.

use crate::enqueue::json;
use crate::errors::{Answer, Refusal, refuse, refused};
use crate::paths::{MessageRef, QueueName, query};
use crate::queues::{no_content, page_size, start};
use crate::replays::filter;
use crate::shared::Shared;
use crate::view;
use axum::extract::State;
use http::Uri;
use millpond_api::encoding;
use millpond_api::problem::Slug;
use millpond_api::replay::ReplayFilter;
use millpond_api::types::{DeadLetter, Messages};
use millpond_core::command::{ReplayError, Status};
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::name::Name;
use millpond_engine::handle::CallError;
use serde::Deserialize;
use std::sync::Arc;

/// Dead letters looked at in one request with a filter; where it stopped, the next page goes on.
const SCANNED_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadQuery {
    after: Option<String>,
    limit: Option<usize>,
    reason: Option<String>,
    error: Option<String>,
    since: Option<String>,
    until: Option<String>,
    tenant: Option<String>,
}

/// `GET /v1/queues/{queue}/dead`: the filters are those of a replay.
pub(crate) async fn list(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName, uri: Uri) -> Answer {
    let DeadQuery { after, limit, reason, error, since, until, tenant } = query(&uri)?;
    let filter = filter(ReplayFilter { reason, error, since, until, tenant })?;
    let limit = page_size(limit)?;
    let mut after = start(&shared, after.as_deref())?;
    let mut messages = Vec::new();
    let mut scanned = 0;
    let next = loop {
        let (found, next) = shared
            .handle
            .list(queue.clone(), Some(Phase::Dead), after, limit - messages.len())
            .await
            .map_err(|error| refused(&error, queue.as_str()))?;
        scanned += found.len().max(1);
        let fitting = found.iter().filter(|status| filter.fits(&status.message));
        messages.extend(fitting.map(|status| view::status(&shared, status)));
        after = next;
        if next.is_none() || messages.len() >= limit || scanned >= SCANNED_MAX {
            break next;
        }
    };
    Ok(json(&Messages { messages, next: next.map(|seq| shared.handle.keys().id(seq).to_string()) }))
}

/// The status of `message`, if it is a dead letter of `queue`.
async fn dead(shared: &Shared, queue: &Name, seq: Seq, id: &str) -> Result<Status, Refusal> {
    let status = shared.handle.status(seq, None).await.map_err(|error| refused(&error, id))?;
    if status.queue == *queue && status.message.phase == Phase::Dead {
        return Ok(status);
    }
    Err(not_dead(queue, id))
}

pub(crate) fn not_dead(queue: &Name, id: &str) -> Refusal {
    let detail = format!(
        "message {id} is no dead letter of queue {queue}; see GET /v1/queues/{queue}/dead for those there are"
    );
    refuse(Slug::UnknownMessage, detail)
}

/// `GET /v1/queues/{queue}/dead/{id}`: with its bytes.
pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    message: MessageRef,
) -> Answer {
    let status = dead(&shared, &queue, message.seq, &message.id).await?;
    let content = shared.handle.content(message.seq).await.map_err(|error| refused(&error, &message.id))?;
    let content = content.unwrap_or_default();
    let (body, body_encoding) = encoding::encode(&content.body);
    Ok(json(&DeadLetter {
        message: view::status(&shared, &status),
        body,
        body_encoding,
        content_type: content.content_type.clone(),
        headers: content.headers_by_name(),
        method: content.method().map(str::to_owned),
        path: content.path().map(str::to_owned),
    }))
}

/// `DELETE /v1/queues/{queue}/dead/{id}`.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    message: MessageRef,
) -> Answer {
    let deleted = shared.handle.delete_dead(queue.clone(), message.seq).await;
    deleted.map_err(|error| match error {
        CallError::Refused(ReplayError::NotDead(_)) => not_dead(&queue, &message.id),
        other => refused(&other, queue.as_str()),
    })?;
    Ok(no_content())
}
