//! The changes of one message as server-sent events.
//!
//! Owns the stream: when it says something, how it is resumed, when it ends. Must never keep anything for a reader who
//! has left, nor say what is not durable.
//!
//! By the standard (HTML, "Server-sent events"), a browser that loses the stream asks again with the last event's id,
//! and stops for good when it is answered 204.

use crate::errors::{Answer, refused};
use crate::paths::MessageRef;
use crate::shared::Shared;
use crate::status::{Reader, seen};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use millpond_core::command::Status;
use millpond_core::message::{Phase, Progress};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a message that waits is told of though its state has not changed: its place has.
const REFRESH: Duration = Duration::from_secs(10);
/// After so long without an event a comment shows whoever stands between that the connection is in use.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// After so long a stream ends; the reader comes back and goes on where it ended.
const STREAM_MAX: Duration = Duration::from_hours(1);
/// How soon the reader comes back.
const COME_BACK: Duration = Duration::from_secs(2);
/// Answers that come sooner than asked are not asked for again before this: where many wait, the engine keeps nobody.
const ASK_AGAIN: Duration = Duration::from_secs(1);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies that gather answers before they pass them on are asked not to.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether the reader wants events: it names their media type, and not that of a single status beside it.
pub(crate) fn are_asked_for(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> = accepted.flat_map(|value| value.split(',')).map(str::trim).collect();
    let names = |wanted: &str| {
        ranges.iter().any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
            is_named && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    };
    names("text/event-stream") && !names("application/json")
}

/// What the reader says that it knows. An id that is not of ours is none: the reader is told everything.
pub(crate) fn last_known(headers: &HeaderMap) -> Option<Progress> {
    let text = headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    let mut parts = text.split('.');
    let phase = Phase::parse(parts.next()?)?;
    let (deliveries, attempts) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(Progress { phase, deliveries, attempts })
}

/// An event's id: how far the message has come.
fn id(progress: Progress) -> String {
    format!("{}.{}.{}", progress.phase.as_str(), progress.deliveries, progress.attempts)
}

/// What goes on from event to event.
struct Reading {
    shared: Arc<Shared>,
    message: MessageRef,
    reader: Reader,
    /// The last state that was told.
    told: Option<Progress>,
    /// What the next event says, if that is known already.
    next: Option<Box<Status>>,
    until: Instant,
}

/// Every change of a message's state from `known` on, until its life is over.
pub(crate) async fn stream(
    shared: Arc<Shared>,
    message: MessageRef,
    reader: Reader,
    known: Option<Progress>,
) -> Answer {
    let status = shared.handle.follow(message.seq, None, Duration::ZERO).await;
    let status = status.map_err(|error| refused(&error, &message.id))?;
    let progress = status.message.progress();
    if progress.phase.is_terminal() && known == Some(progress) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let next = (known != Some(progress)).then(|| Box::new(status));
    let until = Instant::now() + STREAM_MAX;
    let reading = Reading { shared, message, reader, told: known, next, until };
    let events = stream::unfold(reading, |mut reading| async {
        let status = reading.next().await?;
        let event = reading.event(&status);
        Some((Ok::<_, Infallible>(event), reading))
    });
    let quiet = KeepAlive::new().interval(QUIET_MAX);
    Ok(as_stream(Sse::new(events).keep_alive(quiet).into_response()))
}

fn as_stream(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

impl Reading {
    /// Waits for what is told next; `None`: the stream is over.
    async fn next(&mut self) -> Option<Box<Status>> {
        if let Some(status) = self.next.take() {
            return Some(status);
        }
        if self.told.is_some_and(|told| told.phase.is_terminal()) {
            return None;
        }
        loop {
            let begun = Instant::now();
            if begun >= self.until || self.shared.is_draining() {
                return None;
            }
            // What was forgotten meanwhile, or an engine that has stopped: the reader asks again, and is told.
            let status = self.shared.handle.follow(self.message.seq, self.told, REFRESH).await.ok()?;
            let has_moved = self.told != Some(status.message.progress());
            let is_refreshed = begun.elapsed() >= REFRESH && status.position.is_some();
            if has_moved || is_refreshed {
                return Some(Box::new(status));
            }
            if begun.elapsed() < REFRESH {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }

    fn event(&mut self, status: &Status) -> Event {
        let progress = status.message.progress();
        let event = Event::default().event("status").id(id(progress));
        let event = if self.told.replace(progress).is_none() { event.retry(COME_BACK) } else { event };
        let seen = seen(&self.shared, status, self.reader);
        event.data(serde_json::to_string(&seen).expect("our own types have string keys and finite numbers"))
    }
}

#[cfg(test)]
mod tests {
    use super::{are_asked_for, id, last_known};
    use http::{HeaderMap, HeaderValue};
    use millpond_core::message::{Phase, Progress};

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn events_are_for_those_who_ask_for_them_and_not_for_json() {
        for yes in ["text/event-stream", "TEXT/Event-Stream; charset=utf-8", "text/event-stream, */*;q=0.1"] {
            assert!(are_asked_for(&with("accept", yes)), "{yes}");
        }
        for no in
            ["*/*", "text/*", "application/json, text/event-stream", "text/event-stream;q=0", "text/html", ""]
        {
            assert!(!are_asked_for(&with("accept", no)), "{no}");
        }
        assert!(!are_asked_for(&HeaderMap::new()));
    }

    #[test]
    fn an_id_of_ours_is_read_back_and_any_other_one_is_none() {
        for phase in [Phase::Ready, Phase::Backoff, Phase::Succeeded] {
            let progress = Progress { phase, deliveries: 3, attempts: u32::MAX };
            assert_eq!(last_known(&with("last-event-id", &id(progress))), Some(progress));
        }
        for text in [
            "",
            "ready",
            "ready.1",
            "ready.1.2.3",
            "ready.-1.2",
            "ready.1.x",
            "gone.1.2",
            "ready.4294967296.1",
        ] {
            assert_eq!(last_known(&with("last-event-id", text)), None, "{text}");
        }
    }
}
