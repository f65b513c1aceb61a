//! Dead letters: looking at them, putting them back to work, forgetting them.
//!
//! Owns what becomes of these requests between the wire and the engine. Must never delete or replay what is not a
//! dead letter of the queue in the path.

use crate::enqueue::{json, within_batch_limit};
use crate::errors::{Answer, Refusal, refuse, refused};
use crate::headers::unsupported;
use crate::json::{Object, read_json};
use crate::paths::{MessageRef, QueueName, open_id, query};
use crate::queues::{no_content, page_size, start};
use crate::shared::Shared;
use crate::view;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};
use millpond_api::encoding;
use millpond_api::problem::Slug;
use millpond_api::types::{DeadLetter, Messages, Replay, ReplayRequest};
use millpond_core::command::{ReplayError, ReplayWhich, Status};
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
}

impl DeadQuery {
    fn fits(&self, status: &Status) -> bool {
        let message = &status.message;
        let reason = message.dead_reason.map(millpond_core::message::DeadReason::as_str);
        let said = |text: &String| {
            message.last_failure().is_some_and(|(failure, _)| failure.message.contains(text.as_str()))
        };
        self.reason.as_deref().is_none_or(|wanted| reason == Some(wanted))
            && self.error.as_ref().is_none_or(said)
    }
}

/// `GET /v1/queues/{queue}/dead`: filters `reason` (a word) and `error` (a part of the last error's text).
pub(crate) async fn list(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName, uri: Uri) -> Answer {
    let wish: DeadQuery = query(&uri)?;
    let limit = page_size(wish.limit)?;
    let mut after = start(&shared, wish.after.as_deref())?;
    let mut messages = Vec::new();
    let mut scanned = 0;
    let next = loop {
        let (found, next) = shared
            .handle
            .list(queue.clone(), Some(Phase::Dead), after, limit - messages.len())
            .await
            .map_err(|error| refused(&error, queue.as_str()))?;
        scanned += found.len().max(1);
        messages.extend(
            found.iter().filter(|status| wish.fits(status)).map(|status| view::status(&shared, status)),
        );
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

fn not_dead(queue: &Name, id: &str) -> Refusal {
    let detail = format!(
        "message {id} is no dead letter of queue {queue}; see GET /v1/queues/{queue}/dead for those there are"
    );
    refuse(Slug::UnknownMessage, detail)
}

/// What the engine refused, with the message's id where it names one.
fn not_replayed(shared: &Shared, error: &CallError<ReplayError>, queue: &Name) -> Refusal {
    match error {
        CallError::Refused(ReplayError::NotDead(seq)) => {
            not_dead(queue, &shared.handle.keys().id(*seq).to_string())
        }
        other => refused(other, queue.as_str()),
    }
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
        headers: view::headers(&content),
    }))
}

/// `DELETE /v1/queues/{queue}/dead/{id}`.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    message: MessageRef,
) -> Answer {
    let deleted = shared.handle.delete_dead(queue.clone(), message.seq).await;
    deleted.map_err(|error| not_replayed(&shared, &error, &queue))?;
    Ok(no_content())
}

/// `POST /v1/queues/{queue}/dead/replay`: `{"ids": […]}` or `{"all": true}`, with `dry_run` only counting.
pub(crate) async fn replay(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let Object(wish): Object<ReplayRequest> =
        read_json(&shared.bodies, &parts.headers, body, shared.limits.batch_bytes, "a wish for a replay")
            .await?;
    shared.refuse_if_draining()?;
    for (name, given) in [("filter", &wish.filter), ("rate", &wish.rate), ("ttl", &wish.ttl)] {
        if given.is_some() {
            return Err(unsupported(name));
        }
    }
    let which = which(&shared, &wish)?;
    let dry_run = wish.dry_run.unwrap_or(false);
    let replayed = if dry_run {
        count(&shared, &queue, which).await?
    } else {
        let replayed = shared.handle.replay(queue.clone(), which).await;
        replayed.map_err(|error| not_replayed(&shared, &error, &queue))?
    };
    tracing::info!(%queue, replayed, dry_run, "dead letters replayed");
    let status = if dry_run { "dry-run" } else { "done" }.to_owned();
    let mut response = json(&Replay { queue: queue.as_str().to_owned(), status, replayed });
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

fn which(shared: &Shared, wish: &ReplayRequest) -> Result<ReplayWhich, Refusal> {
    match (&wish.ids, wish.all.unwrap_or(false)) {
        (None, true) => Ok(ReplayWhich::All),
        (Some(ids), false) => {
            within_batch_limit(ids.len(), shared.limits.batch)?;
            let open = |id: &String| {
                open_id(shared, id).map_err(|error| {
                    refuse(Slug::Malformed, format!("ids: {:?}: {error}", crate::paths::shown(id)))
                })
            };
            ids.iter().map(open).collect::<Result<_, _>>().map(ReplayWhich::These)
        }
        _ => Err(refuse(Slug::Malformed, "write either {\"ids\": [\"…\"]} or {\"all\": true}")),
    }
}

/// How many dead letters a replay would put back.
async fn count(shared: &Shared, queue: &Name, which: ReplayWhich) -> Result<u64, Refusal> {
    match which {
        ReplayWhich::All => {
            let view =
                shared.handle.queue(queue.clone()).await.map_err(|error| refused(&error, queue.as_str()))?;
            Ok(view.stats.dead)
        }
        ReplayWhich::These(list) => {
            for seq in &list {
                dead(shared, queue, *seq, &shared.handle.keys().id(*seq).to_string()).await?;
            }
            Ok(list.len() as u64)
        }
    }
}
