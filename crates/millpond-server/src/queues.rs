//! Queues as resources: listing, defining, deleting, pausing, looking inside.
//!
//! Owns what becomes of these requests between the wire and the engine. Must never change what the configuration
//! file declares: the engine refuses that, and it is passed on.

use crate::callbacks;
use crate::enqueue::json;
use crate::errors::{Answer, Refusal, refuse, refused};
use crate::json::{Object, read_json};
use crate::paths::{QueueName, open_id, query};
use crate::shared::Shared;
use crate::unrepeated::Unrepeated;
use crate::view;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use millpond_api::problem::Slug;
use millpond_api::types::{Messages, PurgeRequest, Purged, Queues};
use millpond_config::settings_json::queue_settings_from_json;
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::name::Name;
use serde::Deserialize;
use std::sync::Arc;

/// Messages per page unless the caller says otherwise, and at most.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;

/// `GET /v1/queues`.
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Answer {
    let (queues, _) = shared.handle.overview().await.map_err(|error| refused(&error, ""))?;
    Ok(json(&Queues { queues: queues.iter().map(view::queue).collect() }))
}

async fn shown(shared: &Shared, queue: Name) -> Result<millpond_api::types::Queue, Refusal> {
    let name = queue.clone();
    let view = shared.handle.queue(queue).await.map_err(|error| refused(&error, name.as_str()))?;
    Ok(view::queue(&view))
}

/// `GET /v1/queues/{queue}`.
pub(crate) async fn get(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName) -> Answer {
    Ok(json(&shown(&shared, queue).await?))
}

/// `GET /v1/queues/{queue}/stats`.
pub(crate) async fn stats(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName) -> Answer {
    Ok(json(&shown(&shared, queue).await?.stats))
}

/// `PUT /v1/queues/{queue}`: 201 if the queue is new, 200 if its settings were changed.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    shared.refuse_if_draining()?;
    callbacks::refuse_reserved(&queue)?;
    let Unrepeated(document) =
        read_json(&shared.bodies, &parts.headers, body, shared.max_body_bytes, "the settings of a queue")
            .await?;
    let settings = queue_settings_from_json(&document)
        .map_err(|errors| refuse(Slug::Malformed, format!("queue {queue}: {errors}")))?;
    let result_max_bytes = settings.result_max_bytes;
    let is_new = shared
        .handle
        .define(queue.clone(), settings)
        .await
        .map_err(|error| refused(&error, queue.as_str()))?;
    shared.result_limits.set(queue.clone(), result_max_bytes);
    tracing::info!(%queue, is_new, "queue defined");
    let mut response = json(&shown(&shared, queue).await?);
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// `DELETE /v1/queues/{queue}`.
pub(crate) async fn delete(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName) -> Answer {
    shared.handle.delete(queue.clone()).await.map_err(|error| refused(&error, queue.as_str()))?;
    shared.result_limits.remove(&queue);
    tracing::info!(%queue, "queue deleted");
    Ok(no_content())
}

/// A 204.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// `POST /v1/queues/{queue}/pause`.
pub(crate) async fn pause(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    set_paused(&shared, queue, request, true).await
}

/// `POST /v1/queues/{queue}/resume`.
pub(crate) async fn resume(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    set_paused(&shared, queue, request, false).await
}

async fn set_paused(shared: &Shared, queue: Name, request: Request, paused: bool) -> Answer {
    // Nothing is expected in the body; what is there must still not be endless.
    shared.bodies.read(request.into_body(), shared.max_body_bytes).await?;
    shared.handle.pause(queue.clone(), paused).await.map_err(|error| refused(&error, queue.as_str()))?;
    tracing::info!(%queue, paused, "queue paused or resumed");
    Ok(json(&shown(shared, queue).await?))
}

/// `POST /v1/queues/{queue}/purge`: everything that waits ends as cancelled; needs the queue's name once more.
pub(crate) async fn purge(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let Object(PurgeRequest { confirm }) =
        read_json(&shared.bodies, &parts.headers, body, shared.max_body_bytes, "the confirmation").await?;
    if confirm != queue.as_str() {
        let detail = format!(
            "confirm is {:?}; write the queue's name, {{\"confirm\": \"{queue}\"}}, to cancel everything that waits in it",
            crate::paths::shown(&confirm)
        );
        return Err(refuse(Slug::Malformed, detail));
    }
    let purged = shared.handle.purge(queue.clone()).await.map_err(|error| refused(&error, queue.as_str()))?;
    tracing::info!(%queue, purged, "queue purged");
    Ok(json(&Purged { queue: queue.as_str().to_owned(), purged }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    state: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// `GET /v1/queues/{queue}/messages`: looks without consuming.
pub(crate) async fn messages(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    uri: Uri,
) -> Answer {
    let ListQuery { state, after, limit } = query(&uri)?;
    let phase = state.as_deref().map(phase).transpose()?;
    let (after, limit) = (start(&shared, after.as_deref())?, page_size(limit)?);
    let (found, next) = shared
        .handle
        .list(queue.clone(), phase, after, limit)
        .await
        .map_err(|error| refused(&error, queue.as_str()))?;
    let messages = found.iter().map(|status| view::status(&shared, status)).collect();
    Ok(json(&Messages { messages, next: next.map(|seq| shared.handle.keys().id(seq).to_string()) }))
}

fn phase(word: &str) -> Result<Phase, Refusal> {
    Phase::parse(word).ok_or_else(|| {
        let words = "ready, delayed, leased, backoff, succeeded, dead, expired, cancelled, dropped";
        refuse(
            Slug::Malformed,
            format!("the query: state is {:?}; write one of {words}", crate::paths::shown(word)),
        )
    })
}

/// The number that the query's `after` names.
pub(crate) fn start(shared: &Shared, after: Option<&str>) -> Result<Option<Seq>, Refusal> {
    let open = |text| {
        open_id(shared, text).map_err(|error| {
            refuse(Slug::Malformed, format!("the query: after: {error}; use the next of the page before"))
        })
    };
    after.map(open).transpose()
}

/// The query's `limit`.
pub(crate) fn page_size(limit: Option<usize>) -> Result<usize, Refusal> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        other => {
            let detail = format!("the query: limit is {other}; write a number from 1 to {PAGE_MAX}");
            Err(refuse(Slug::Malformed, detail))
        }
    }
}
