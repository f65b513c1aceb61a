//! What a target's answer means for the message.
//!
//! Owns the table of outcomes and the reading of `Retry-After`. Pure: must never send, wait or read a clock.

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use millpond_config::PushOutcome;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a target is left alone that asks for a pause without saying how long.
const PAUSE_DEFAULT: Duration = Duration::from_secs(5);
/// Longest pause that a target can ask for: a slip of its clock must not stop a queue for a year.
const PAUSE_MAX: Duration = Duration::from_hours(1);
/// Shortest pause, as `Retry-After: 0` and dates that have passed would otherwise hammer the target.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The work is done.
    Succeeded,
    /// The target wants to be left alone for so long; no attempt is counted.
    Throttled(Duration),
    /// Try again later.
    Failed,
    /// Trying again is useless.
    Dead,
}

/// The verdict on an answer with this status and, if there was one, this `Retry-After`.
pub(crate) fn verdict(
    status: u16,
    retry_after: Option<Duration>,
    overrides: &BTreeMap<u16, PushOutcome>,
) -> Verdict {
    let pause = retry_after.unwrap_or(PAUSE_DEFAULT).clamp(PAUSE_MIN, PAUSE_MAX);
    match overrides.get(&status) {
        Some(PushOutcome::Complete) => return Verdict::Succeeded,
        Some(PushOutcome::Retry) => return Verdict::Failed,
        Some(PushOutcome::Dead) => return Verdict::Dead,
        // Given back without a pause, the message would come again at once, and again.
        Some(PushOutcome::Release) => return Verdict::Throttled(pause),
        None => {}
    }
    match status {
        200..=299 => Verdict::Succeeded,
        429 => Verdict::Throttled(pause),
        503 if retry_after.is_some() => Verdict::Throttled(pause),
        400 | 410 | 413 | 415 | 422 => Verdict::Dead,
        _ => Verdict::Failed,
    }
}

/// The pause that an answer asks for: seconds, or a date; `None` if it does not say or cannot be read.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    // The three forms of HTTP, and those of mail, which some servers send.
    let date = match httpdate::parse_http_date(text) {
        Ok(date) => Timestamp::try_from(date).ok()?,
        Err(_) => jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?,
    };
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::{PAUSE_DEFAULT, PAUSE_MAX, PAUSE_MIN, Verdict, retry_after, verdict};
    use http::{HeaderMap, HeaderValue, header};
    use jiff::Timestamp;
    use millpond_config::PushOutcome;
    use std::collections::BTreeMap;
    use std::time::Duration;

    #[test]
    fn the_table_is_the_contracts() {
        let usual = BTreeMap::new();
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, None, &usual), Verdict::Succeeded, "{status}");
        }
        for status in [400, 410, 413, 415, 422] {
            assert_eq!(verdict(status, None, &usual), Verdict::Dead, "{status}");
        }
        for status in [301, 302, 307, 401, 403, 404, 405, 408, 409, 418, 500, 502, 503, 504, 101, 999] {
            assert_eq!(verdict(status, None, &usual), Verdict::Failed, "{status}");
        }
        assert_eq!(verdict(429, None, &usual), Verdict::Throttled(PAUSE_DEFAULT));
        for status in [429, 503] {
            let pause = Duration::from_secs(7);
            assert_eq!(verdict(status, Some(pause), &usual), Verdict::Throttled(pause), "{status}");
        }
        assert_eq!(verdict(500, Some(Duration::from_secs(7)), &usual), Verdict::Failed);
    }

    #[test]
    fn overrides_win() {
        let overrides = BTreeMap::from([
            (404, PushOutcome::Dead),
            (409, PushOutcome::Complete),
            (422, PushOutcome::Retry),
            (423, PushOutcome::Release),
        ]);
        assert_eq!(verdict(404, None, &overrides), Verdict::Dead);
        assert_eq!(verdict(409, None, &overrides), Verdict::Succeeded);
        assert_eq!(verdict(422, None, &overrides), Verdict::Failed);
        assert_eq!(verdict(423, None, &overrides), Verdict::Throttled(PAUSE_DEFAULT));
        assert_eq!(verdict(500, None, &overrides), Verdict::Failed);
    }

    #[test]
    fn a_pause_is_never_nothing_and_never_endless() {
        let usual = BTreeMap::new();
        assert_eq!(verdict(429, Some(Duration::ZERO), &usual), Verdict::Throttled(PAUSE_MIN));
        assert_eq!(verdict(429, Some(Duration::MAX), &usual), Verdict::Throttled(PAUSE_MAX));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap();
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(read("120"), Some(Duration::from_mins(2)));
        for date in [
            "Mon, 30 Nov 2026 10:00:30 GMT",
            "Monday, 30-Nov-26 10:00:30 GMT",
            "Mon Nov 30 10:00:30 2026",
            "Mon, 30 Nov 2026 11:00:30 +0100",
        ] {
            assert_eq!(read(date), Some(Duration::from_secs(30)), "{date}");
        }
        for past in
            ["Thu, 01 Jan 1970 00:00:00 GMT", "Sun Nov  6 08:49:37 1994", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(read(past), Some(Duration::ZERO), "{past}");
        }
        assert!(read("Fri, 31 Dec 9999 23:59:59 GMT").is_none_or(|pause| pause > Duration::from_hours(24)));
        assert_eq!(read("Mon, 30 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("99999999999999999999999"), Some(Duration::MAX));
        for bad in ["", "-1", "1.5", "soon", "Mon, 99 Nov 2026 10:00:30 GMT"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
