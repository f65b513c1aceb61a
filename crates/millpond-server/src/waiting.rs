//! Callers that wait for the end of the work that they sent.
//!
//! Owns how long they wait and what they are told then. Must never hold anything of a request while it waits but what
//! its answer needs.

use crate::answers::Entering;
use crate::enqueue::{Applied, accepted_answer};
use crate::errors::{Refusal, refuse};
use crate::headers::{self, Prefer};
use crate::limits::Limits;
use crate::shared::Shared;
use crate::status::stored_result;
use crate::view;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use millpond_api::problem::Slug;
use millpond_core::command::{Accepted, Status};
use millpond_core::message::{Content, DeadReason, Phase};
use millpond_core::settings::WAIT_MAX;
use std::time::{Duration, Instant};

/// What is left of a request's time for its answer once the wait is over.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// How a caller waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Until when.
    until: Instant,
}

impl Patience {
    /// How the caller that sent `headers` waits, if it does: as it prefers, else as its route says, and never beyond its
    /// own deadline or the time of a request.
    pub(crate) fn read(
        headers: &HeaderMap,
        prefer: Prefer,
        of_route: Option<Duration>,
        limits: &Limits,
    ) -> Result<Option<Self>, Refusal> {
        let began = Instant::now();
        let own = if prefer.respond_async && prefer.wait.is_none() { None } else { prefer.wait.or(of_route) };
        let Some(wait) = own.filter(|wait| !wait.is_zero()) else { return Ok(None) };
        let longest = WAIT_MAX.min(limits.request_timeout.saturating_sub(ANSWER_TIME));
        let deadline = deadline(headers, Timestamp::now())?.unwrap_or(Duration::MAX);
        Ok(Some(Self { until: began + wait.min(longest).min(deadline) }))
    }
}

/// How long the caller itself waits at most: `Millpond-Deadline` (a duration, or a time), and what gRPC and Envoy send.
/// Of those two, what cannot be read says nothing.
fn deadline(headers: &HeaderMap, now: Timestamp) -> Result<Option<Duration>, Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let own = headers::text(headers, "millpond-deadline")?.map(|text| own_deadline(text, now)).transpose()?;
    let grpc = text("grpc-timeout").and_then(grpc_timeout);
    let envoy = text("x-envoy-expected-rq-timeout-ms").and_then(|text| text.parse().ok());
    // To Envoy 0 means no time-out.
    let envoy = envoy.filter(|millis| *millis > 0).map(Duration::from_millis);
    Ok([own, grpc, envoy].into_iter().flatten().min())
}

fn own_deadline(text: &str, now: Timestamp) -> Result<Duration, Refusal> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO));
    }
    millpond_config::quantity::parse_duration(text).map_err(|_| {
        let detail = "the header millpond-deadline is neither a duration such as 2s nor a time such as 2026-11-30T10:00:00Z";
        refuse(Slug::Malformed, detail)
    })
}

/// `grpc-timeout`: at most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Waits for the end of the message that was `accepted`, and answers with it; `None` if the wait could not begin.
pub(crate) async fn answer(
    shared: &Shared,
    entering: Entering<'_>,
    patience: Patience,
    accepted: &Accepted,
    applied: Applied,
) -> Option<Response> {
    let waiting = entering.wait_for(accepted.seq);
    let left = patience.until.saturating_duration_since(Instant::now());
    // The message is accepted, whatever keeps the wait from its end.
    let status = shared.handle.status(accepted.seq, Some(left)).await.ok()?;
    let message = &status.message;
    let is_own = match message.phase {
        Phase::Succeeded => true,
        Phase::Dead => message.dead_reason == Some(DeadReason::Rejected),
        _ => false,
    };
    let own = if is_own { waiting.take(message.delivery()) } else { None };
    let mut response = match own {
        Some(answer) => answer.into_response(),
        None => match kept(shared, &status).await {
            Some(response) => response,
            None => return Some(standing(shared, &status, accepted.duplicate, applied)),
        },
    };
    applied.mark(&mut response);
    let id = shared.handle.keys().id(accepted.seq).to_string();
    response.headers_mut().insert("millpond-message-id", headers::value(id));
    Some(response)
}

/// The result of a message that succeeded, as it was kept; `None` if it did not, or if only its beginning was kept.
async fn kept(shared: &Shared, status: &Status) -> Option<Response> {
    if status.message.phase != Phase::Succeeded {
        return None;
    }
    if status.message.result.is_none() {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Some(response);
    }
    let content = shared.handle.content(status.message.seq).await.ok()??;
    let is_cut = content.real_headers().any(|(name, _)| name == Content::TRUNCATED);
    // Nobody who has not heard of Millpond would see that the rest is missing.
    if is_cut { None } else { Some(stored_result(&content)) }
}

/// Where the message stands, as the enqueue would have told it.
fn standing(shared: &Shared, status: &Status, duplicate: bool, applied: Applied) -> Response {
    let message = &status.message;
    let standing = Accepted {
        seq: message.seq,
        phase: message.phase,
        position: status.position,
        promise: status.promise,
        result_in: status.result_in,
        accepted: message.accepted,
        duplicate,
    };
    let result_in = (!message.phase.is_terminal())
        .then(|| view::held_back(message.phase, message.due, view::now()).saturating_add(status.result_in));
    accepted_answer(shared, &status.queue, &standing, result_in, applied)
}

#[cfg(test)]
mod tests {
    use super::{Patience, deadline, grpc_timeout};
    use crate::headers::Prefer;
    use crate::limits::Limits;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use jiff::Timestamp;
    use std::time::Duration;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn the_callers_own_preference_counts_before_the_routes() {
        let waits = |prefer: &str, of_route| {
            let headers = headers(&[("prefer", prefer)]);
            let patience =
                Patience::read(&headers, Prefer::read(&headers), of_route, &Limits::default()).unwrap();
            patience.is_some()
        };
        let route = Some(Duration::from_secs(2));
        assert!(!waits("", None) && waits("", route) && waits("handling=lenient", route));
        assert!(waits("wait=1", None) && waits("respond-async, wait=1", None));
        assert!(!waits("respond-async", route) && !waits("wait=0", route));
        assert!(waits(&format!("wait={}", u64::MAX), None), "as long as can be");
    }

    #[test]
    fn the_nearest_deadline_counts() {
        let now: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap();
        let read = |list: &[(&'static str, &str)]| deadline(&headers(list), now);
        for (list, millis) in [
            (&[("millpond-deadline", "2s"), ("grpc-timeout", "500m")][..], Some(500)),
            (
                &[("millpond-deadline", "2026-11-30T10:00:03Z"), ("x-envoy-expected-rq-timeout-ms", "9000")],
                Some(3_000),
            ),
            (&[("millpond-deadline", "2020-01-01T00:00:00Z")], Some(0)),
            (&[("x-envoy-expected-rq-timeout-ms", "0")], None),
            (&[("grpc-timeout", "soon"), ("x-envoy-expected-rq-timeout-ms", "-1")], None),
            (&[], None),
        ] {
            assert_eq!(read(list).unwrap(), millis.map(Duration::from_millis), "{list:?}");
        }
        assert!(read(&[("millpond-deadline", "soon")]).is_err());
        for (text, time) in
            [("1H", Some(3_600_000)), ("99999999M", Some(5_999_999_940_000)), ("7S", Some(7_000))]
        {
            assert_eq!(grpc_timeout(text), time.map(Duration::from_millis), "{text}");
        }
        for text in ["", "S", "123456789S", "1s", "-1S", "1é"] {
            assert_eq!(grpc_timeout(text), None, "{text}");
        }
    }
}
