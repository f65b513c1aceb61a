//! What a callback says: an event of `CloudEvents` 1.0 in structured mode.
//!
//! Owns its form. Pure: what it says follows from the ended message alone, so that it is the same whenever it is worded.
//! Must never be so large that it does not fit beside a result.

use super::address::Address;
use crate::headers::value;
use crate::view;
use millpond_core::callback::{Ended, Telling};
use millpond_core::identity::{Keys, Seq};
use millpond_core::message::{Content, DeadReason, Phase};
use millpond_core::name::Label;
use serde::Serialize;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// The media type of an event.
pub(crate) const EVENT_TYPE: &str = "application/cloudevents+json";
/// Stands among [`Content::headers`] for the URL that is called. No real header can have such a name.
pub(super) const URL: &str = ":callback";
/// Stands there for a URL that the operator has written: it may lead anywhere.
pub(super) const TRUSTED: &str = ":trusted";
/// Most bytes of a result that is told as it is, in the form in which it is told.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a `tracestate` that is told.
pub(super) const TRACESTATE_BYTES_MAX: usize = 512;

/// An event without its data.
#[derive(Serialize)]
struct Event<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: &'a str,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

/// What is told of a message, without its result.
#[derive(Serialize)]
struct Data<'a> {
    id: &'a str,
    queue: &'a str,
    status: &'static str,
    status_url: String,
    attempts: u32,
    deliveries: u32,
    accepted_at: String,
    finished_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<millpond_api::types::AttemptError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
}

/// A document with one more member at its end, which is JSON already.
fn with_member(document: &impl Serialize, name: &str, member: &str) -> String {
    let mut text =
        serde_json::to_string(document).expect("our own types have string keys and finite numbers");
    // The closing brace.
    text.pop();
    for part in [",\"", name, "\":", member, "}"] {
        text.push_str(part);
    }
    text
}

/// Words the end of a message.
pub(super) fn words(base_url: &str, keys: &Keys, ended: &Ended<'_>) -> Telling {
    let message = ended.message;
    let callback = message.callback.as_ref().expect("only what is wanted is told");
    let (id, token) = (keys.id(message.seq).to_string(), keys.token(message.seq));
    let finished = view::rfc3339(message.finished.unwrap_or(message.accepted));
    let result = ended.result.filter(|_| message.phase == Phase::Succeeded);
    let inline = result.and_then(inline);
    let about = message.result.as_ref();
    let data = Data {
        id: &id,
        queue: ended.queue.as_str(),
        status: message.phase.as_str(),
        status_url: format!("{base_url}/v1/messages/{id}?t={token}"),
        attempts: message.attempts,
        deliveries: message.deliveries,
        accepted_at: view::rfc3339(message.accepted),
        finished_at: &finished,
        dead_reason: message.dead_reason.map(DeadReason::as_str),
        last_error: message.last_failure().map(|(failure, at)| view::error(failure, at)),
        result_content_type: about
            .map(|(content_type, _)| content_type.as_str())
            .filter(|text| text.len() <= 255),
        result_size: about.map(|(_, size)| *size),
        result_url: about.map(|_| format!("{base_url}/v1/messages/{id}/result?t={token}")),
    };
    let data = match inline {
        Some(inline) => with_member(&data, "result", &inline),
        None => serde_json::to_string(&data).expect("our own types have string keys and finite numbers"),
    };
    let context = |wanted: &str| {
        let mut context = callback.wish.context.iter();
        context.find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
    };
    let event = Event {
        specversion: "1.0",
        id: &keys.id(ended.teller).to_string(),
        source: &format!("{base_url}/v1/queues/{}", ended.queue),
        kind: &format!("millpond.message.{}", message.phase.as_str()),
        subject: Some(&id),
        time: &finished,
        datacontenttype: "application/json",
        traceparent: context("traceparent"),
        tracestate: context("tracestate"),
    };
    let body = with_member(&event, "data", &data);
    telling(&callback.wish.address, &callback.wish.context, body, false)
}

/// A result as JSON, if it is text and small.
fn inline(result: &Content) -> Option<String> {
    if result.headers.iter().any(|(name, _)| name == Content::TRUNCATED) {
        return None;
    }
    let text = std::str::from_utf8(&result.body).ok().filter(|text| text.len() <= INLINE_BYTES_MAX)?;
    let essence = result.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json" || essence.ends_with("+json");
    let told = if is_json && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        text.to_owned()
    } else {
        serde_json::to_string(text).ok()?
    };
    Some(told).filter(|told| told.len() <= INLINE_BYTES_MAX)
}

/// The message that goes to `url` with this body.
pub(super) fn telling(url: &str, handed_on: &[(String, String)], body: String, is_trusted: bool) -> Telling {
    let mut headers = vec![(URL.to_owned(), url.to_owned())];
    if is_trusted {
        headers.push((TRUSTED.to_owned(), "true".to_owned()));
    }
    headers.extend(handed_on.iter().cloned());
    let content = Content { content_type: EVENT_TYPE.to_owned(), headers, body: body.into() };
    // Hosts take turns, so that one to which much is told does not hold up the others.
    let tenant = Address::read(url).ok().and_then(|address| {
        let end = address.host.floor_char_boundary(Label::LENGTH_MAX);
        Label::new(&address.host[..end]).ok()
    });
    Telling { content: Arc::new(content), tenant }
}

/// Something that is told to somebody, other than the end of a message.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// What happened, such as `millpond.alert.raised`.
    pub(crate) kind: String,
    /// Where, as a path of this server, such as `/v1/queues/orders`.
    pub(crate) source: String,
    /// What it is about.
    pub(crate) subject: Option<String>,
    /// When, as RFC 3339.
    pub(crate) time: String,
    /// The rest.
    pub(crate) data: serde_json::Value,
}

impl Report {
    /// The message that tells it to `url`, which the operator has written; `id` is told nobody else.
    pub(super) fn telling(&self, base_url: &str, id: &str, url: &str) -> Telling {
        let event = Event {
            specversion: "1.0",
            id,
            source: &format!("{base_url}{}", self.source),
            kind: &self.kind,
            subject: self.subject.as_deref(),
            time: &self.time,
            datacontenttype: "application/json",
            traceparent: None,
            tracestate: None,
        };
        telling(url, &[], with_member(&event, "data", &self.data.to_string()), true)
    }
}

/// The id of a callback in its signature: the same however often it is sent.
pub(super) fn webhook_id(keys: &Keys, seq: Seq) -> http::HeaderValue {
    value(keys.id(seq).to_string())
}

#[cfg(test)]
mod tests {
    use super::{EVENT_TYPE, INLINE_BYTES_MAX, Report, URL, inline, words};
    use millpond_core::callback::{Ended, Telling};
    use millpond_core::identity::{Keys, Seq};
    use millpond_core::message::{
        Attempt, AttemptOutcome, Callback, CallbackWish, Content, Criticality, Failure, Holder, Message,
        Phase, QueueNumber,
    };
    use millpond_core::name::{Label, Name};
    use millpond_core::time::Wall;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn message(phase: Phase) -> Message {
        let context = vec![("traceparent".to_owned(), "00-a-b-01".to_owned())];
        let wish = CallbackWish { address: "https://Shop.example/hook?key=1".to_owned(), context };
        Message {
            seq: Seq(7),
            queue: QueueNumber(0),
            phase,
            place: 7,
            size_bytes: 3,
            criticality: Criticality::Critical,
            tenant: None,
            group: None,
            consumer: None,
            accepted: Wall(1_796_032_800_000_000),
            first_due: Wall(1_796_032_800_000_000),
            due: Wall(0),
            expires: Wall(0),
            attempts: 1,
            deliveries: 2,
            deliveries_before: 0,
            hand_out: None,
            first_started: None,
            finished: Some(Wall(1_796_032_801_500_000)),
            dead_reason: None,
            key: None,
            callback: Some(Callback { wish: Arc::new(wish), teller: Some(Seq(9)) }),
            result: None,
            history: vec![Attempt {
                delivery: 1,
                holder: Holder::Worker,
                started: Wall(1_796_032_800_000_000),
                micros: 1_000_000,
                outcome: AttemptOutcome::Failed,
                failure: Some(Failure::new("status", "answered 500", Some(500))),
            }],
        }
    }

    fn told(message: &Message, result: Option<&Content>) -> (Telling, Value) {
        let (keys, queue) = (Keys::new(&[1; 32]), Name::new("orders").unwrap());
        let ended = Ended { teller: Seq(9), queue: &queue, message, result };
        let telling = words("https://pond.example", &keys, &ended);
        let event = serde_json::from_slice(&telling.content.body).unwrap();
        (telling, event)
    }

    fn result(content_type: &str, body: impl Into<bytes::Bytes>) -> Content {
        Content { content_type: content_type.to_owned(), headers: Vec::new(), body: body.into() }
    }

    #[test]
    fn an_end_is_a_cloud_event_with_what_is_known_of_the_message() {
        let keys = Keys::new(&[1; 32]);
        let (id, token) = (keys.id(Seq(7)).to_string(), keys.token(Seq(7)));
        let (telling, event) = told(&message(Phase::Dead), None);
        let expected = json!({
            "specversion": "1.0",
            "id": keys.id(Seq(9)).to_string(),
            "source": "https://pond.example/v1/queues/orders",
            "type": "millpond.message.dead",
            "subject": id,
            "time": "2026-11-30T10:00:01.500Z",
            "datacontenttype": "application/json",
            "traceparent": "00-a-b-01",
            "data": {
                "id": id,
                "queue": "orders",
                "status": "dead",
                "status_url": format!("https://pond.example/v1/messages/{id}?t={token}"),
                "attempts": 1,
                "deliveries": 2,
                "accepted_at": "2026-11-30T10:00:00.000Z",
                "finished_at": "2026-11-30T10:00:01.500Z",
                "last_error": {
                    "kind": "status",
                    "message": "answered 500",
                    "at": "2026-11-30T10:00:01.000Z",
                    "http_status": 500,
                },
            },
        });
        assert_eq!(event, expected);
        assert_eq!(telling.content.content_type, EVENT_TYPE);
        assert_eq!(
            telling.content.headers[0],
            (URL.to_owned(), "https://Shop.example/hook?key=1".to_owned())
        );
        let sent: Vec<_> = telling.content.real_headers().collect();
        assert_eq!(sent, [("traceparent", "00-a-b-01")], "the URL is no header");
        assert_eq!(telling.tenant.as_ref().map(Label::as_str), Some("shop.example"));
    }

    #[test]
    fn a_small_result_is_told_as_it_is_and_any_by_its_url() {
        let mut done = message(Phase::Succeeded);
        for (content_type, body, expected) in [
            (
                "application/json",
                r#"{"a": [1.50, 18446744073709551616]}"#,
                Some(r#"{"a": [1.50, 18446744073709551616]}"#),
            ),
            ("application/problem+json; charset=utf-8", "null", Some("null")),
            ("application/json", "{", Some("\"{\"")),
            ("text/plain", "grün \"x\"", Some("\"grün \\\"x\\\"\"")),
        ] {
            let result = result(content_type, body);
            done.result = Some((content_type.to_owned(), body.len() as u64));
            assert_eq!(inline(&result).as_deref(), expected);
            let (telling, event) = told(&done, Some(&result));
            assert!(std::str::from_utf8(&telling.content.body).unwrap().contains(expected.unwrap()));
            assert_eq!(event["data"]["result_size"], body.len());
            assert!(event["data"]["result_url"].as_str().unwrap().contains("/result?t="));
        }
        for result in [
            result("image/png", vec![0xff, 0xd8]),
            result("text/plain", "x".repeat(INLINE_BYTES_MAX)),
            result("text/plain", "\u{1}".repeat(INLINE_BYTES_MAX / 2)),
            Content {
                headers: vec![(Content::TRUNCATED.to_owned(), "true".to_owned())],
                ..result("text/plain", "cut")
            },
        ] {
            let (_, event) = told(&done, Some(&result));
            assert_eq!(event["data"].get("result"), None, "{result:?}");
        }
        let (_, event) = told(&message(Phase::Cancelled), Some(&result("text/plain", "x")));
        assert_eq!(event["data"].get("result"), None);
    }

    #[test]
    fn a_report_is_an_event_too() {
        let report = Report {
            kind: "millpond.alert.raised".to_owned(),
            source: "/v1/queues/orders".to_owned(),
            subject: None,
            time: "2026-11-30T10:00:00.000Z".to_owned(),
            data: json!({"depth": 7}),
        };
        let telling = report.telling("", "17", "http://10.0.0.1/hook");
        let event: Value = serde_json::from_slice(&telling.content.body).unwrap();
        assert_eq!((&event["id"], &event["data"]["depth"]), (&json!("17"), &json!(7)));
        assert_eq!(event["source"], "/v1/queues/orders");
    }
}
