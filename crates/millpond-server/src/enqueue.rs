//! Accepting work: one message, or a batch.
//!
//! Owns what becomes of `POST …/messages` between the wire and the engine. Must never answer 202 before the engine
//! has said that the message is durable.

use crate::bodies::discard;
use crate::callbacks;
use crate::errors::{Answer, Refusal, Told as _, refuse, refused, retry_after_seconds};
use crate::headers::{self, Prefer, value};
use crate::json::{Object, read_json_keeping_room};
use crate::labels;
use crate::paths::QueueName;
use crate::schemas;
use crate::shared::Shared;
use crate::view;
use crate::waiting::{self, Patience};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use millpond_api::encoding;
use millpond_api::problem::{Problem, Slug};
use millpond_api::types::{self, BatchAnswer, BatchMessage};
use millpond_config::Route;
use millpond_core::command::{Accepted, NewMessage};
use millpond_core::message::{CallbackWish, Content, Criticality, IdempotencyKey};
use millpond_core::name::{Label, Name};
use millpond_core::settings::WAIT_MAX;
use std::sync::Arc;
use std::time::Duration;

/// The media type of what was sent without one.
pub(crate) const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What the producer asks for beside the bytes.
pub(crate) struct Wish {
    pub(crate) content_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) delay: Duration,
    pub(crate) ttl: Option<Duration>,
    pub(crate) key: Option<String>,
    pub(crate) criticality: Criticality,
    pub(crate) tenant: Option<Label>,
    pub(crate) group: Option<Label>,
    pub(crate) callback: Option<String>,
}

impl Wish {
    /// Reads what the headers ask for. `keeps_coding`: whoever gets the body will be told how it is compressed.
    pub(crate) fn from_headers(headers: &HeaderMap, keeps_coding: bool) -> Result<Self, Refusal> {
        if !keeps_coding {
            headers::refuse_content_coding(headers)?;
        }
        let content_type =
            match headers::one(headers, header::CONTENT_TYPE.as_str())?.map(HeaderValue::to_str) {
                None | Some(Ok("")) => DEFAULT_CONTENT_TYPE,
                Some(Ok(text)) => text,
                Some(Err(_)) => {
                    return Err(refuse(
                        Slug::Malformed,
                        "the header content-type has characters other than visible ASCII",
                    ));
                }
            };
        Ok(Self {
            content_type: content_type.to_owned(),
            headers: headers::trace_context(headers),
            delay: headers::duration(headers, "millpond-delay")?.unwrap_or_default(),
            ttl: headers::duration(headers, "millpond-ttl")?,
            key: headers::idempotency_key(headers)?,
            criticality: labels::criticality_header(headers)?,
            tenant: labels::label_header(headers, labels::TENANT)?,
            group: labels::label_header(headers, labels::GROUP)?,
            callback: headers::text(headers, headers::CALLBACK)?.map(str::to_owned),
        })
    }

    /// Refuses a callback that would never be made.
    fn callback(&self, shared: &Shared) -> Result<Option<Arc<CallbackWish>>, Refusal> {
        self.callback.as_deref().map(|url| callbacks::wish(shared, url, &self.headers)).transpose()
    }

    fn message(self, shared: &Shared, queue: &Name, body: Bytes) -> Result<NewMessage, Refusal> {
        let callback = self.callback(shared)?;
        let Self { content_type, headers, delay, ttl, key, criticality, tenant, group, callback: url } = self;
        let keys = shared.handle.keys();
        let content = Content { content_type, headers, body };
        let key = key.map(|key| {
            let ttl_micros = ttl.map_or(u128::MAX, |ttl| ttl.as_micros());
            let times = [delay.as_micros().to_le_bytes(), ttl_micros.to_le_bytes()];
            let mut payload = vec![
                &content.body[..],
                content.content_type.as_bytes(),
                times.as_flattened(),
                criticality.as_str().as_bytes(),
                label_bytes(tenant.as_ref()),
                label_bytes(group.as_ref()),
            ];
            // What came by a route is told by method and path too; kept headers may differ from one try to the next.
            if let Some(method) = content.method() {
                payload.extend([method.as_bytes(), content.path().unwrap_or_default().as_bytes()]);
            }
            // Who sends it again and wants somebody else to be told would otherwise believe that they will be.
            if let Some(url) = &url {
                payload.extend([b"millpond-callback".as_slice(), url.as_bytes()]);
            }
            IdempotencyKey {
                key: keys.digest(&[queue.as_str().as_bytes(), key.as_bytes()]),
                payload: keys.digest(&payload),
            }
        });
        let content = Arc::new(content);
        Ok(NewMessage { content, delay, ttl, key, criticality, tenant, group, callback })
    }
}

/// A label is never empty, so that nothing can stand for none.
fn label_bytes(label: Option<&Label>) -> &[u8] {
    label.map_or(&[], |label| label.as_str().as_bytes())
}

/// `POST /v1/queues/{queue}/messages`: 202 once the message is durable.
pub(crate) async fn enqueue(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let wish = || {
        shared.refuse_if_draining()?;
        callbacks::refuse_reserved(&queue)?;
        let wish = Wish::from_headers(&parts.headers, false)?;
        wish.callback(&shared)?;
        Ok(wish)
    };
    let wish = match wish() {
        Ok(wish) => wish,
        Err(refusal) => {
            discard(body);
            return Err(refusal);
        }
    };
    accept(&shared, queue, wish, parts, body, None).await
}

/// Accepts one message, however it came.
pub(crate) async fn accept(
    shared: &Arc<Shared>,
    queue: Name,
    wish: Wish,
    parts: Parts,
    body: Body,
    route: Option<&Route>,
) -> Answer {
    let prefer = Prefer::read(&parts.headers);
    let patience =
        match Patience::read(&parts.headers, prefer, route.and_then(|route| route.wait), &shared.limits) {
            Ok(patience) => patience,
            Err(refusal) => {
                discard(body);
                return Err(refusal);
            }
        };
    // Whoever waits keeps nothing of the request.
    drop(parts);
    let applied = Applied { prefer, waits: patience.is_some() };
    let (body, room) = shared.bodies.read_keeping_room(body, shared.max_body_bytes).await?;
    if let Some(schema) = route.and_then(|route| route.schema.as_ref()) {
        schemas::check(schema, &body).await?;
    }
    let delay = wish.delay;
    let message = wish.message(shared, &queue, body)?;
    let entering = patience.map(|patience| (shared.answers.enter(), patience));
    let mut results = shared
        .handle
        .enqueue(queue.clone(), vec![message])
        .await
        .map_err(|error| refused(&error, queue.as_str()))?;
    shared.arrivals.came(&queue);
    drop(room);
    let accepted = match results.pop().expect("one answer per message") {
        Ok(accepted) => accepted,
        Err(error) => return Err(Refusal(Box::new(error.problem(queue.as_str())))),
    };
    if let Some((entering, patience)) = entering
        && let Some(response) = waiting::answer(shared, entering, patience, &accepted, applied).await
    {
        return Ok(response);
    }
    // A repetition has the delay of the message that it repeats: another one would have been a mismatch.
    let held_back = view::held_back(accepted.phase, accepted.accepted.plus(delay), view::now());
    let result_in = held_back.saturating_add(accepted.result_in);
    Ok(accepted_answer(shared, &queue, &accepted, Some(result_in), applied))
}

/// Which preferences of the caller were followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applied {
    /// What it said.
    pub(crate) prefer: Prefer,
    /// Whether it waited.
    pub(crate) waits: bool,
}

impl Applied {
    /// Says so in the answer.
    pub(crate) fn mark(self, response: &mut Response) {
        let wait = self.prefer.wait.filter(|_| self.waits).map(|wait| wait.min(WAIT_MAX).as_secs());
        let text = match (self.prefer.respond_async, wait) {
            (false, None) => return,
            (true, None) => "respond-async".to_owned(),
            (false, Some(wait)) => format!("wait={wait}"),
            (true, Some(wait)) => format!("respond-async, wait={wait}"),
        };
        response.headers_mut().insert(PREFERENCE_APPLIED, value(text));
    }
}

/// The 202; `result_in` is `None` once no other status will come.
pub(crate) fn accepted_answer(
    shared: &Shared,
    queue: &Name,
    accepted: &Accepted,
    result_in: Option<Duration>,
    applied: Applied,
) -> Response {
    let keys = shared.handle.keys();
    let id = keys.id(accepted.seq).to_string();
    let status_url = shared.status_url(&id, &keys.token(accepted.seq));
    let body = types::Accepted {
        id,
        queue: queue.as_str().to_owned(),
        status: view::state(accepted.phase),
        status_url: status_url.clone(),
        position: accepted.position,
        expected_start_seconds: view::expected_start(accepted.promise),
        accepted_at: view::rfc3339(accepted.accepted),
        duplicate: accepted.duplicate,
    };
    let mut response = json(&body);
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, value(status_url));
    if let Some(result_in) = result_in {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds(result_in)));
    }
    if accepted.duplicate {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    applied.mark(&mut response);
    response
}

/// A 200 with `body` as JSON.
pub(crate) fn json(body: &impl serde::Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("our own types have string keys and finite numbers");
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `POST /v1/queues/{queue}/messages/batch`: each message for itself, answers in the same order.
pub(crate) async fn enqueue_batch(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let fit = || {
        shared.refuse_if_draining()?;
        callbacks::refuse_reserved(&queue)?;
        headers::refuse_single_only(&parts.headers)
    };
    if let Err(refusal) = fit() {
        discard(body);
        return Err(refusal);
    }
    let limits = &shared.limits;
    let limit_bytes = limits.batch_bytes.max(shared.max_body_bytes);
    let (batch, _room): (Vec<Object<BatchMessage>>, _) =
        read_json_keeping_room(&shared.bodies, &parts.headers, body, limit_bytes, "an array of messages")
            .await?;
    within_batch_limit(batch.len(), limits.batch)?;
    let mut answers: Vec<Option<BatchAnswer>> = Vec::with_capacity(batch.len());
    let mut messages = Vec::with_capacity(batch.len());
    for (place, Object(item)) in batch.into_iter().enumerate() {
        match batch_message(&shared, &queue, item) {
            Ok(message) => {
                messages.push(message);
                answers.push(None);
            }
            Err(Refusal(mut problem)) => {
                problem.detail = format!("message {place} of the batch: {}", problem.detail);
                answers.push(Some(batch_refusal(*problem)));
            }
        }
    }
    let results = shared
        .handle
        .enqueue(queue.clone(), messages)
        .await
        .map_err(|error| refused(&error, queue.as_str()))?;
    shared.arrivals.came(&queue);
    let mut results = results.into_iter();
    let mut next = || match results.next().expect("one answer per message") {
        Ok(accepted) => batch_acceptance(&shared, &accepted),
        Err(error) => batch_refusal(error.problem(queue.as_str())),
    };
    let answers: Vec<BatchAnswer> =
        answers.into_iter().map(|known| known.unwrap_or_else(&mut next)).collect();
    Ok(json(&answers))
}

/// Refuses a list that is longer than the server takes.
pub(crate) fn within_batch_limit(length: usize, limit: usize) -> Result<(), Refusal> {
    if length <= limit {
        return Ok(());
    }
    Err(refuse(
        Slug::TooLarge,
        format!("the array has {length} elements, and at most {limit} are taken; split it"),
    ))
}

/// A duration in a JSON body.
pub(crate) fn seconds(number: f64, field: &str) -> Result<Duration, Refusal> {
    Duration::try_from_secs_f64(number).map_err(|_| {
        refuse(
            Slug::Malformed,
            format!("{field} is {number}; write a number of seconds that is not negative"),
        )
    })
}

fn batch_message(shared: &Shared, queue: &Name, item: BatchMessage) -> Result<NewMessage, Refusal> {
    if item.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > headers::KEY_BYTES_MAX) {
        let detail = format!("idempotency_key must have 1 to {} bytes", headers::KEY_BYTES_MAX);
        return Err(refuse(Slug::Malformed, detail));
    }
    let content_type = item.content_type.filter(|text| !text.is_empty());
    let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned());
    if HeaderValue::from_str(&content_type).is_err() {
        return Err(refuse(Slug::Malformed, "content_type has characters that no header may have"));
    }
    let body = encoding::decode(item.body, item.body_encoding)
        .map_err(|error| refuse(Slug::Malformed, format!("body: {error}")))?;
    if body.len() as u64 > shared.max_body_bytes {
        let detail =
            format!("body has {} bytes, more than the {} that are taken", body.len(), shared.max_body_bytes);
        return Err(refuse(Slug::TooLarge, detail));
    }
    let wish = Wish {
        content_type,
        headers: batch_headers(&item.headers)?,
        delay: item.delay_seconds.map_or(Ok(Duration::ZERO), |number| seconds(number, "delay_seconds"))?,
        ttl: item.ttl_seconds.map(|number| seconds(number, "ttl_seconds")).transpose()?,
        key: item.idempotency_key,
        criticality: labels::criticality_field(item.criticality.as_deref())?,
        tenant: labels::label_field(item.tenant.as_deref(), "tenant")?,
        group: labels::label_field(item.group.as_deref(), "group")?,
        callback: item.callback,
    };
    wish.message(shared, queue, body)
}

/// The trace context among a batch message's headers; others cannot be handed on by this version.
fn batch_headers(
    given: &std::collections::BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, Refusal> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        let name = match lower.as_str() {
            "traceparent" => HeaderName::from_static("traceparent"),
            "tracestate" => HeaderName::from_static("tracestate"),
            _ => {
                return Err(headers::unsupported(&format!(
                    "the header {:?} in headers",
                    crate::paths::shown(name)
                )));
            }
        };
        let value = HeaderValue::from_str(value).map_err(|_| {
            refuse(Slug::Malformed, format!("headers.{name} has characters that no header may have"))
        })?;
        headers.insert(name, value);
    }
    Ok(headers::trace_context(&headers))
}

fn batch_acceptance(shared: &Shared, accepted: &Accepted) -> BatchAnswer {
    let keys = shared.handle.keys();
    let id = keys.id(accepted.seq).to_string();
    BatchAnswer {
        status: 202,
        status_url: Some(shared.status_url(&id, &keys.token(accepted.seq))),
        id: Some(id),
        position: accepted.position,
        duplicate: accepted.duplicate,
        error: None,
    }
}

fn batch_refusal(problem: Problem) -> BatchAnswer {
    BatchAnswer {
        status: problem.status,
        id: None,
        status_url: None,
        position: None,
        duplicate: false,
        error: Some(problem),
    }
}
