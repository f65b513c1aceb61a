//! The headers that callers steer a request with.
//!
//! Owns their syntax: `Idempotency-Key`, `Prefer`, `Millpond-*`, trace context. Must never take a header that it
//! cannot read for one that is not there.

use crate::errors::{Refusal, refuse};
use crate::labels;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use millpond_api::problem::Slug;
use std::time::Duration;

/// Longest idempotency key in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 255;

/// The one value of `name`; `None` if the header is not there.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refuse(
            Slug::Malformed,
            format!("the header {name} is there more than once; send it once"),
        ));
    }
    Ok(Some(value))
}

/// The one value of `name` as text; `None` if the header is not there.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = one(headers, name)? else { return Ok(None) };
    let readable = value.to_str().map_err(|_| {
        refuse(
            Slug::Malformed,
            format!("the header {name} has characters other than visible ASCII; leave them out"),
        )
    });
    readable.map(|value| Some(value.trim()))
}

/// A header that holds a duration such as `30s`.
pub(crate) fn duration(headers: &HeaderMap, name: &str) -> Result<Option<Duration>, Refusal> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    match millpond_config::quantity::parse_duration(text) {
        Ok(duration) => Ok(Some(duration)),
        Err(error) => Err(refuse(Slug::Malformed, format!("the header {name}: {error}"))),
    }
}

/// The idempotency key: a string of RFC 9651 (in quotes), or the same without quotes.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(text) = text(headers, "idempotency-key")? else { return Ok(None) };
    let wrong = |what: &str| {
        Err(refuse(
            Slug::Malformed,
            format!(
                "the header idempotency-key {what}; write \"8e03978e-40d5\", 1 to {KEY_BYTES_MAX} characters"
            ),
        ))
    };
    let key = match text.strip_prefix('"') {
        None => text.to_owned(),
        Some(rest) => match unquote(rest) {
            Some(key) => key,
            None => return wrong("has an opening quote and no fitting closing one"),
        },
    };
    match key.len() {
        0 => wrong("is empty"),
        length if length > KEY_BYTES_MAX => wrong("is too long"),
        _ => Ok(Some(key)),
    }
}

/// The rest of a quoted string, up to its closing quote, which must be the end.
fn unquote(rest: &str) -> Option<String> {
    let mut key = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(key),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            other => key.push(other),
        }
    }
}

/// Where the producer wants to be told of the message's end.
pub(crate) const CALLBACK: &str = "millpond-callback";

/// Refuses headers that steer one message where several are sent: each of them says it for itself.
pub(crate) fn refuse_single_only(headers: &HeaderMap) -> Result<(), Refusal> {
    for (name, field) in [
        (CALLBACK, "callback"),
        ("idempotency-key", "idempotency_key"),
        ("millpond-delay", "delay_seconds"),
        ("millpond-ttl", "ttl_seconds"),
        (labels::CRITICALITY, "criticality"),
        (labels::TENANT, "tenant"),
        (labels::GROUP, "group"),
    ] {
        if headers.contains_key(name) {
            let detail =
                format!("the header {name} does not count for a batch; write {field:?} in each message");
            return Err(refuse(Slug::InvalidMessage, detail));
        }
    }
    Ok(())
}

/// Refuses a body that is compressed: its bytes are stored as they are, and whoever gets them would not be told how
/// to read them.
pub(crate) fn refuse_content_coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(coding) = text(headers, "content-encoding")? else { return Ok(()) };
    if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
        return Ok(());
    }
    let coding = crate::paths::shown(coding);
    let detail = format!(
        "the body is sent with Content-Encoding {coding:?}; send it as it is, or name the compressed form in Content-Type alone"
    );
    Err(refuse(Slug::UnsupportedMediaType, detail))
}

/// Something that a later version will know.
pub(crate) fn unsupported(what: &str) -> Refusal {
    refuse(Slug::InvalidMessage, format!("{what} is not supported by this version; leave it out"))
}

/// Whether `value` is a `traceparent` of W3C Trace Context, version 00 or a later one that begins alike.
fn is_traceparent(value: &[u8]) -> bool {
    let hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|&byte| byte == b'0');
    let Some((head, rest)) = value.split_at_checked(55) else { return false };
    let dashes = head[2] == b'-' && head[35] == b'-' && head[52] == b'-';
    let (version, trace, parent, flags) = (&head[..2], &head[3..35], &head[36..52], &head[53..]);
    let ends = rest.is_empty() || (version != b"00" && rest[0] == b'-');
    dashes
        && ends
        && [version, trace, parent, flags].into_iter().all(hex)
        && version != b"ff"
        && !zero(trace)
        && !zero(parent)
}

/// The trace context to hand on. By the standard, a bad `traceparent` makes `tracestate` void, and is no error.
pub(crate) fn trace_context(headers: &HeaderMap) -> Vec<(String, String)> {
    let Some(parent) = headers.get("traceparent") else { return Vec::new() };
    let parent = parent.as_bytes();
    if headers.get_all("traceparent").iter().count() > 1 || !is_traceparent(parent) {
        return Vec::new();
    }
    let mut context = vec![("traceparent".to_owned(), String::from_utf8_lossy(parent).into_owned())];
    let states: Vec<&str> =
        headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok()).collect();
    if !states.is_empty() {
        context.push(("tracestate".to_owned(), states.join(",")));
    }
    context
}

/// What a caller prefers (RFC 7240). What is not known or not readable is ignored, as the standard says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Prefer {
    /// Answer before the work is done.
    pub(crate) respond_async: bool,
    /// Wait so long for the work to be done.
    pub(crate) wait: Option<Duration>,
}

impl Prefer {
    /// Reads every `Prefer` header; of a preference given twice the first one counts.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let mut prefer = Self::default();
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')) {
            let preference = preference.split(';').next().unwrap_or_default();
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("respond-async") {
                prefer.respond_async = true;
            } else if name.eq_ignore_ascii_case("wait") && prefer.wait.is_none() {
                prefer.wait = value.parse().ok().map(Duration::from_secs);
            }
        }
        prefer
    }
}

/// The headers that a `Connection` header names: they go no further than the next hop.
pub(crate) fn of_the_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok()).collect()
}

/// A header value of digits or other text that cannot be wrong.
pub(crate) fn value(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).expect("our own texts are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::{Prefer, duration, idempotency_key, is_traceparent, refuse_single_only, trace_context};
    use http::{HeaderMap, HeaderName, HeaderValue};
    use std::time::Duration;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
            })
            .collect()
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes() {
        let key =
            |value: &str| idempotency_key(&headers(&[("idempotency-key", value)])).map(Option::unwrap).ok();
        assert_eq!(key("abc-1"), Some("abc-1".to_owned()));
        assert_eq!(key("\"abc-1\""), Some("abc-1".to_owned()));
        assert_eq!(key(r#""a\"\\b""#), Some("a\"\\b".to_owned()));
        for bad in ["\"abc", "\"\"", "\"a\"b\"", "\"a\" x", "", "\"a\\n\"", "é", &"k".repeat(256)] {
            assert_eq!(key(bad), None, "{bad}");
        }
        assert!(idempotency_key(&headers(&[("idempotency-key", "a"), ("idempotency-key", "b")])).is_err());
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn durations_need_a_unit_and_a_sign_of_reason() {
        let read = |value: &str| duration(&headers(&[("millpond-delay", value)]), "millpond-delay");
        assert_eq!(read("80ms").unwrap(), Some(Duration::from_millis(80)));
        for bad in ["30", "-1s", "NaN", "1e9s", "", "99999999999999999999s", "soon"] {
            let detail = read(bad).unwrap_err().0.detail;
            assert!(detail.contains("millpond-delay"), "{detail}");
        }
    }

    #[test]
    fn wishes_that_cannot_be_fulfilled_are_refused_by_name() {
        for name in [
            "millpond-callback",
            "idempotency-key",
            "millpond-delay",
            "millpond-tenant",
            "millpond-criticality",
        ] {
            let problem = refuse_single_only(&headers(&[(name, "x")])).unwrap_err().0;
            assert!(problem.status == 422 && problem.detail.contains(name), "{problem:?}");
        }
    }

    #[test]
    fn preferences_are_read_and_unknown_ones_ignored() {
        let prefer = Prefer::read(&headers(&[
            ("prefer", "handling=lenient, WAIT=10;x=y"),
            ("prefer", "respond-async, wait=5"),
        ]));
        assert_eq!(prefer, Prefer { respond_async: true, wait: Some(Duration::from_secs(10)) });
        assert_eq!(Prefer::read(&headers(&[("prefer", "wait=-1, waiting, =")])), Prefer::default());
        assert_eq!(Prefer::read(&headers(&[("prefer", "wait=\"7\"")])).wait, Some(Duration::from_secs(7)));
    }

    #[test]
    fn only_a_sound_trace_context_is_handed_on() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good.as_bytes()));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(!is_traceparent(bad.as_bytes()), "{bad}");
        }
        assert!(is_traceparent(format!("01{}-more", &good[2..]).as_bytes()));
        let sound =
            trace_context(&headers(&[("traceparent", good), ("tracestate", "a=1"), ("tracestate", "b=2")]));
        assert_eq!(sound[1], ("tracestate".to_owned(), "a=1,b=2".to_owned()));
        assert!(trace_context(&headers(&[("traceparent", "x"), ("tracestate", "a=1")])).is_empty());
        assert!(trace_context(&headers(&[("tracestate", "a=1")])).is_empty());
    }
}
