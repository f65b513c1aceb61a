//! What became of a message: its status, its result, its withdrawal.
//!
//! Owns who may read a status. Must never tell anything about a message to a bearer of a wrong token.

use crate::callbacks;
use crate::enqueue::json;
use crate::errors::{Answer, Refusal, refuse, refused, retry_after_seconds};
use crate::events;
use crate::headers::{Prefer, value};
use crate::paths::{MessageRef, query, shown};
use crate::shared::Shared;
use crate::view;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use millpond_api::problem::Slug;
use millpond_api::types::MessageStatus;
use millpond_core::command::Status;
use millpond_core::message::{Content, Phase};
use millpond_core::settings::WAIT_MAX;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    t: Option<String>,
    redirect: Option<String>,
}

/// Who reads a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Who has the message's token.
    Bearer,
    /// Who needs none.
    Operator,
}

/// Lets through who has the message's token, and on an unauthenticated loopback server who has none at all.
fn authorize(shared: &Shared, message: &MessageRef, uri: &Uri) -> Result<Reader, Refusal> {
    let Token { t, redirect } = query(uri)?;
    if redirect.is_some() {
        return Err(refuse(Slug::Malformed, "redirect goes with a message's status only; leave it out"));
    }
    authorize_with(shared, message, t)
}

fn authorize_with(shared: &Shared, message: &MessageRef, t: Option<String>) -> Result<Reader, Refusal> {
    match t {
        Some(token) if shared.handle.keys().token_fits(message.seq, &token) => Ok(Reader::Bearer),
        Some(_) => Err(refuse(
            Slug::Forbidden,
            "the token t does not belong to this message; use its status_url as it was given",
        )),
        None if shared.needs_token => Err(refuse(
            Slug::Unauthenticated,
            "the token t is missing; use the message's status_url as it was given",
        )),
        None => Ok(Reader::Operator),
    }
}

/// What a reader sees. Who comes with a token is a producer, and not told who works behind the queue.
pub(crate) fn seen(shared: &Shared, status: &Status, reader: Reader) -> MessageStatus {
    let mut seen = view::status(shared, status);
    if reader == Reader::Bearer {
        seen.consumer = None;
    }
    seen
}

/// The status, with `Retry-After` while the message's life goes on.
async fn answer(shared: &Shared, status: &Status, reader: Reader) -> Response {
    let callback = callbacks::status(shared, status).await;
    let mut response = json(&MessageStatus { callback, ..seen(shared, status, reader) });
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !status.message.phase.is_terminal() {
        let held_back = view::held_back(status.message.phase, status.message.due, view::now());
        let seconds = retry_after_seconds(held_back.saturating_add(status.result_in));
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// `GET /v1/messages/{id}`; with `Prefer: wait=N`, once the message's life is over or the time is; with
/// `Accept: text/event-stream`, every change as it happens. With `redirect=result`, 303 to the result once there is one.
pub(crate) async fn status(
    State(shared): State<Arc<Shared>>,
    message: MessageRef,
    request: Request,
) -> Answer {
    let Token { t, redirect } = query(request.uri())?;
    let reader = authorize_with(&shared, &message, t)?;
    let redirects = match redirect.as_deref() {
        None => false,
        Some("result") => true,
        Some(other) => {
            let detail = format!("redirect is {:?}; write redirect=result, or leave it out", shown(other));
            return Err(refuse(Slug::Malformed, detail));
        }
    };
    if events::are_asked_for(request.headers()) {
        let known = events::last_known(request.headers());
        drop(request);
        return events::stream(shared, message, reader, known).await;
    }
    let wait = Prefer::read(request.headers()).wait.map(|wait| wait.min(WAIT_MAX));
    // Drop the body now, so that nothing but the answer is kept while waiting.
    drop(request);
    let status =
        shared.handle.status(message.seq, wait).await.map_err(|error| refused(&error, &message.id))?;
    let mut response = answer(&shared, &status, reader).await;
    if redirects && let Some(url) = view::status(&shared, &status).result.map(|result| result.url) {
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(header::LOCATION, value(url));
    }
    if let Some(wait) = wait {
        let applied = value(format!("wait={}", wait.as_secs()));
        response.headers_mut().insert(HeaderName::from_static("preference-applied"), applied);
    }
    Ok(response)
}

/// `GET /v1/messages/{id}/result`: the bytes with their media type.
pub(crate) async fn result(State(shared): State<Arc<Shared>>, message: MessageRef, uri: Uri) -> Answer {
    authorize(&shared, &message, &uri)?;
    let status =
        shared.handle.status(message.seq, None).await.map_err(|error| refused(&error, &message.id))?;
    let phase = status.message.phase;
    let none = || {
        let detail = match phase {
            Phase::Succeeded => "the message was done without a result".to_owned(),
            _ if phase.is_terminal() => format!("the message is {} and has no result", phase.as_str()),
            _ => format!("the message is {}; ask again once it has succeeded", phase.as_str()),
        };
        refuse(Slug::NoResult, format!("message {}: {detail}", message.id))
    };
    if phase != Phase::Succeeded || status.message.result.is_none() {
        return Err(none());
    }
    let content = shared.handle.content(message.seq).await.map_err(|error| refused(&error, &message.id))?;
    let content = content.ok_or_else(none)?;
    Ok(stored_result(&content))
}

/// A result as it was kept, with its media type.
pub(crate) fn stored_result(content: &Content) -> Response {
    let mut response = Response::new(Body::from(content.body.clone()));
    let headers = response.headers_mut();
    for (name, value) in content.real_headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    let content_type = HeaderValue::try_from(&content.content_type)
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The bytes come from a target or a worker: no browser shall take them for a page of this server.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    response
}

/// `POST /v1/messages/{id}/cancel`: withdraws a message that nobody has.
pub(crate) async fn cancel(State(shared): State<Arc<Shared>>, message: MessageRef, uri: Uri) -> Answer {
    let reader = authorize(&shared, &message, &uri)?;
    let status = shared.handle.cancel(message.seq).await.map_err(|error| refused(&error, &message.id))?;
    Ok(answer(&shared, &status, reader).await)
}
