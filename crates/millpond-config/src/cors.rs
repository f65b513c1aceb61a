//! `[cors]`: which web pages may call the server from a browser.
//!
//! Owns its keys and their defaults. Must never let a page in that is not named.

use crate::diagnostic::{Place, Report};
use crate::keys;
use crate::section::Section;
use http::{HeaderName, HeaderValue};
use std::time::Duration;

/// Longest time that browsers are told to remember an answer; they cut it anyway.
const MAX_AGE_MAX: Duration = Duration::from_hours(24);

/// Which pages of other sites may use routes, enqueue messages and read their status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// Origins such as `https://app.example.com`; `None`: any.
    pub origins: Option<Vec<HeaderValue>>,
    /// Request headers that pages may set.
    pub headers: Vec<HeaderName>,
    /// Response headers that pages may read.
    pub expose: Vec<HeaderName>,
    /// How long a browser may remember the answer to a preflight.
    pub max_age: Duration,
    /// Whether cookies and the like may come along. Never with any origin.
    pub credentials: bool,
}

impl Default for Cors {
    fn default() -> Self {
        let names = |names: &[&'static str]| names.iter().map(|name| HeaderName::from_static(name)).collect();
        Self {
            origins: Some(Vec::new()),
            headers: names(&[
                "content-type",
                "idempotency-key",
                "prefer",
                "traceparent",
                "tracestate",
                "millpond-criticality",
                "millpond-tenant",
                "millpond-group",
                "millpond-delay",
                "millpond-ttl",
                "millpond-deadline",
            ]),
            expose: names(&[
                "location",
                "retry-after",
                "preference-applied",
                "idempotency-replayed",
                "millpond-message-id",
            ]),
            max_age: Duration::from_mins(10),
            credentials: false,
        }
    }
}

/// Reads `[cors]`; without an origin it lets nobody in.
pub(crate) fn cors(report: &mut Report<'_>, top: &Section<'_>) -> Option<Cors> {
    let section = top.section(report, "cors")?;
    section.check_keys(report, &keys::CORS);
    let fresh = Cors::default();
    let mut origins = Some(Vec::new());
    for (span, text) in section.texts(report, "origins").unwrap_or_default() {
        match (origin(text), &mut origins) {
            (_, origins) if text == "*" => *origins = None,
            (Some(origin), Some(list)) => list.push(origin),
            (Some(_), None) => {}
            (None, _) => {
                let help = "write scheme and host as browsers send them, such as \"https://app.example.com\"";
                let problem = format!("{text:?} is not an origin");
                report.error(Place::Value(span), &section.path_of("origins"), problem, help.to_owned());
            }
        }
    }
    let mut names = |key: &str, default: Vec<HeaderName>| {
        let Some(texts) = section.texts(report, key) else { return default };
        let mut names = Vec::new();
        for (span, text) in texts {
            match HeaderName::from_bytes(text.as_bytes()) {
                Ok(name) if text != "*" => names.push(name),
                _ => {
                    let problem = format!("{text:?} is not the name of a header");
                    let help = "name each header".to_owned();
                    report.error(Place::Value(span), &section.path_of(key), problem, help);
                }
            }
        }
        names
    };
    let (headers, expose) = (names("headers", fresh.headers), names("expose", fresh.expose));
    let max_age = section.duration(report, "max_age").unwrap_or(fresh.max_age);
    if max_age > MAX_AGE_MAX {
        let help = "browsers remember it for less anyway".to_owned();
        section.wrong(report, "max_age", "is longer than 24h".to_owned(), help);
    }
    let credentials = section.flag(report, "credentials").unwrap_or(fresh.credentials);
    if credentials && origins.is_none() {
        let problem = "lets every page on the web act as whoever has it open".to_owned();
        section.wrong(report, "credentials", problem, "name the origins, or set it to false".to_owned());
    }
    let is_closed = origins.as_ref().is_some_and(Vec::is_empty);
    (!is_closed).then_some(Cors { origins, headers, expose, max_age, credentials })
}

/// An origin as browsers serialize it: in lower case, without a path.
fn origin(text: &str) -> Option<HeaderValue> {
    let (scheme, host) = text.split_once("://")?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
    let has_more = host.contains(['/', '?', '#', '@', '*', ',']);
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "://",
    };
    let fits =
        is_plain && !has_more && !scheme.is_empty() && !host.is_empty() && !host.ends_with(default_port);
    fits.then(|| HeaderValue::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for text in
            ["https://app.example.com", "http://localhost:5173", "http://[::1]:3000", "capacitor://localhost"]
        {
            assert!(origin(text).is_some(), "{text}");
        }
        for text in [
            "",
            "null",
            "app.example.com",
            "https://app.example.com/",
            "https://App.example.com",
            "https://*.example.com",
            "https://a@b",
            "https://app.example.com:443",
            "http://a:80",
            "https://",
            "https://a b",
        ] {
            assert!(origin(text).is_none(), "{text}");
        }
    }
}
