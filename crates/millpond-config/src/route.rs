//! A route: which requests it takes, and what becomes of each part of them.
//!
//! Owns the syntax of paths, the choice of headers that are kept, and which paths must not be forwarded. Must never
//! look at the rest of the configuration: whether its queue is there is checked where it is read.

use crate::configuration::is_reserved_header;
use crate::schema::Schema;
use crate::template::Template;
use http::{HeaderName, Method, header};
use millpond_core::name::Name;
use std::time::Duration;

/// The methods that can be queued. Nobody waits for the answer to a `HEAD` or an `OPTIONS` later.
pub const ROUTE_METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// A path that leads to a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Which paths.
    pub path: RoutePath,
    /// Which methods, some of [`ROUTE_METHODS`].
    pub methods: Vec<Method>,
    /// The queue.
    pub queue: Name,
    /// Which headers are stored and handed on.
    pub keep_headers: KeptHeaders,
    /// What is appended to the target's URL; `None`: what follows the fixed beginning of the path, and the query.
    pub forward: Option<Template>,
    /// The tenant of requests that do not say one themselves.
    pub tenant: Option<Template>,
    /// The group of requests that do not say one themselves.
    pub group: Option<Template>,
    /// The idempotency key of requests that do not say one themselves.
    pub idempotency_key: Option<Template>,
    /// The class of requests that do not say one themselves.
    pub criticality: Option<Template>,
    /// How long a caller that does not say it waits for the target's own answer.
    pub wait: Option<Duration>,
    /// What bodies must look like.
    pub schema: Option<Schema>,
}

impl Route {
    /// A route for `POST` with every default.
    pub fn new(path: RoutePath, queue: Name) -> Self {
        Self {
            path,
            methods: vec![Method::POST],
            queue,
            keep_headers: KeptHeaders::default(),
            forward: None,
            tenant: None,
            group: None,
            idempotency_key: None,
            criticality: None,
            wait: None,
            schema: None,
        }
    }
}

/// The path of a route: segments that stand for themselves, `{name}` for any one, `{*name}` for all that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePath {
    text: String,
    parameters: Vec<String>,
}

/// Why a text is not the path of a route, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {advice}")]
pub struct RoutePathError {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub advice: String,
}

fn refuse<T>(problem: impl Into<String>, advice: impl Into<String>) -> Result<T, RoutePathError> {
    Err(RoutePathError { problem: problem.into(), advice: advice.into() })
}

impl RoutePath {
    /// Reads a path such as `/users/{id}/orders` or `/enroll/{*rest}`.
    ///
    /// # Errors
    /// Paths that no request can have, that are Millpond's own, or that matchit does not take.
    pub fn parse(text: &str) -> Result<Self, RoutePathError> {
        const EXAMPLE: &str = "write it like \"/users/{id}\" or \"/enroll/{*rest}\"";
        if !text.starts_with('/') {
            return refuse("does not begin with a slash", format!("write \"/{text}\""));
        }
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`|".contains(&byte);
        if !text.bytes().all(is_allowed) {
            return refuse(
                "has characters that no path has",
                "write others than letters, digits and -._~!$&'()*+,;=:@ as %XX, and no query",
            );
        }
        if text == "/" {
            return refuse("is Millpond's own page", "choose a path below it");
        }
        if is_own_path(text) {
            return refuse("is among Millpond's own paths, which come first", "choose another beginning");
        }
        if is_traversal(text) {
            return refuse("has a segment that is empty, . or ..", "write the path that is meant");
        }
        if text.contains("{{") || text.contains("}}") {
            return refuse("has a doubled brace", "a brace in a path is sent as %7B or %7D");
        }
        let is_whole = |segment: &str| segment.starts_with('{') || !segment.contains('{');
        if !text.split('/').all(is_whole) {
            return refuse("has a parameter that is not a whole segment", EXAMPLE);
        }
        if let Err(error) = matchit::Router::new().insert(text, ()) {
            return refuse(format!("cannot be matched: {error}"), EXAMPLE);
        }
        let names = text.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<String> =
            names.map(|name| name.strip_prefix('*').unwrap_or(name).to_owned()).collect();
        if let Some(name) = parameters
            .iter()
            .enumerate()
            .find_map(|(at, name)| parameters[..at].contains(name).then_some(name))
        {
            return refuse(format!("has two parameters {{{name}}}"), "give each its own name");
        }
        Ok(Self { text: text.to_owned(), parameters })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// The beginning of every request's path that is not handed on by default: what stands before the slash before the
    /// first parameter, or all of it.
    pub fn fixed(&self) -> &str {
        self.text.find("/{").map_or(&self.text, |at| &self.text[..at])
    }
}

/// Whether a request's path is Millpond's own, there or not: no route may take it.
pub fn is_own_path(path: &str) -> bool {
    const OWN: [&str; 6] = ["v1", "metrics", "livez", "readyz", "problems", "openapi.json"];
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    first.is_empty() || OWN.contains(&first)
}

/// Whether a path, read as any common server might read it, leads out of the directory that it is appended to, or is
/// taken for something else than a path: a segment that is `.` or `..` (also as `%2e`, before a `;`, or between
/// backslashes or encoded slashes), or an empty one that is not the last.
pub fn is_traversal(path: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(path).collect::<Vec<u8>>();
    let below = decoded.strip_prefix(b"/").unwrap_or(&decoded);
    let segments: Vec<&[u8]> = below.split(|byte| matches!(byte, b'/' | b'\\')).collect();
    let last = segments.len() - 1;
    segments.iter().enumerate().any(|(at, segment)| {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(name, b"." | b"..") || (segment.is_empty() && at < last)
    })
}

/// Which headers of a request are stored and handed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptHeaders {
    /// Beginnings of names: `x-` for `x-*`, nothing for `*`.
    prefixes: Vec<String>,
    /// Whole names.
    names: Vec<HeaderName>,
}

/// What a name in `keep_headers` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It can be kept.
    Fine,
    /// It is a credential, and will lie on the disk.
    Credential,
    /// It never is.
    Never(&'static str),
}

/// Kept only where they are listed by name: what proves who somebody is.
const CREDENTIALS: [HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];
/// Not taken by a `*`: they speak of this request, not of the work.
const ABOUT_THE_REQUEST: [&str; 3] = ["prefer", "grpc-timeout", "x-envoy-expected-rq-timeout-ms"];

impl KeptHeaders {
    /// Adds an entry: a name, or a beginning of names with `*` behind it.
    ///
    /// # Errors
    /// What cannot be a name, or can never be kept, with the reason.
    pub(crate) fn add(&mut self, entry: &str) -> Result<Keeping, &'static str> {
        let lower = entry.to_ascii_lowercase();
        if let Some(prefix) = lower.strip_suffix('*') {
            if !prefix.is_empty() && HeaderName::from_bytes(prefix.as_bytes()).is_err() {
                return Err("is not the beginning of a header's name");
            }
            self.prefixes.push(prefix.to_owned());
            return Ok(Keeping::Fine);
        }
        let name = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| "is not the name of a header")?;
        let keeping = Self::judge(&name);
        if let Keeping::Never(reason) = keeping {
            return Err(reason);
        }
        self.names.push(name);
        Ok(keeping)
    }

    fn judge(name: &HeaderName) -> Keeping {
        match name.as_str() {
            // Kept in any case, so that listing them is no mistake.
            "content-type" | "traceparent" | "tracestate" => Keeping::Fine,
            "host" => Keeping::Never("names this server; the target's comes from its url"),
            "accept-encoding" => Keeping::Never("would compress results, which are kept as they come"),
            _ if is_reserved_header(name) => {
                Keeping::Never("belongs to the connection, or is set by Millpond itself")
            }
            _ if CREDENTIALS.contains(name) => Keeping::Credential,
            _ => Keeping::Fine,
        }
    }

    /// Whether `name` is kept. Content type and trace context are seen to elsewhere.
    pub fn keeps(&self, name: &HeaderName) -> bool {
        if is_reserved_header(name) {
            return false;
        }
        if self.names.contains(name) {
            return true;
        }
        let by_name_only = Self::judge(name) != Keeping::Fine || ABOUT_THE_REQUEST.contains(&name.as_str());
        !by_name_only && self.prefixes.iter().any(|prefix| name.as_str().starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::{Keeping, KeptHeaders, RoutePath, is_own_path, is_traversal};
    use http::HeaderName;
    use proptest::prelude::*;

    #[test]
    fn a_path_has_a_fixed_beginning_and_parameters() {
        for (text, fixed, parameters) in [
            ("/enroll/{*rest}", "/enroll", &["rest"][..]),
            ("/users/{id}/orders/{order}", "/users", &["id", "order"]),
            ("/{tenant}/jobs", "", &["tenant"]),
            ("/{*all}", "", &["all"]),
            ("/jobs", "/jobs", &[]),
            ("/jobs/", "/jobs/", &[]),
        ] {
            let path = RoutePath::parse(text).unwrap();
            assert_eq!(
                (path.fixed(), path.parameters()),
                (fixed, &parameters.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
    }

    #[test]
    fn paths_that_cannot_be_served_are_refused() {
        for text in [
            "",
            "enroll",
            "/",
            "/v1",
            "/v1/queues/{queue}/x",
            "/metrics",
            "/livez",
            "/readyz",
            "/problems/x",
            "/openapi.json",
            "/a b",
            "/a?b=c",
            "/a#b",
            "/é",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/{b",
            "/a/{}",
            "/a/{*}",
            "/a/{*rest}/b",
            "/a/x{b}",
            "/a/{b}x",
            "/a/{b}/{b}",
            "/a/{{b}}",
        ] {
            assert!(RoutePath::parse(text).is_err(), "{text}");
        }
        assert!(RoutePath::parse("/v10/x").is_ok() && RoutePath::parse("/metrics-in").is_ok());
    }

    #[test]
    fn own_paths_are_own_whatever_comes_below_them() {
        for path in ["/", "/v1", "/v1/nothing", "//v1/queues", "/metrics", "/problems/", ""] {
            assert!(is_own_path(path), "{path}");
        }
        for path in ["/v1x", "/enroll", "/enroll/v1"] {
            assert!(!is_own_path(path), "{path}");
        }
    }

    #[test]
    fn whatever_some_server_takes_for_a_way_out_is_one() {
        for path in [
            "/..",
            "/../admin",
            "/a/..",
            "/a/../../b",
            "/.",
            "/a/./b",
            "/%2e%2e/x",
            "/.%2E/x",
            "/..%2fx",
            "/..%5Cx",
            "/..\\x",
            "//x",
            "/a//b",
            "/%2f/x",
            "/..;a=b/x",
            "/.;/x",
            "/a%2f%2e%2e",
        ] {
            assert!(is_traversal(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/a",
            "/a/",
            "/a/b/",
            "/...",
            "/..a",
            "/a..",
            "/.well-known/x",
            "/a;b=..",
            "/%252e%252e/x",
        ] {
            assert!(!is_traversal(path), "{path}");
        }
    }

    #[test]
    fn a_star_keeps_all_but_credentials_and_what_is_not_to_be_handed_on() {
        let mut kept = KeptHeaders::default();
        assert_eq!(kept.add("*"), Ok(Keeping::Fine));
        let keeps = |kept: &KeptHeaders, name: &'static str| kept.keeps(&HeaderName::from_static(name));
        for name in ["x-request-id", "accept", "user-agent", "origin"] {
            assert!(keeps(&kept, name), "{name}");
        }
        for name in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "connection",
            "host",
            "te",
            "transfer-encoding",
            "content-length",
            "millpond-tenant",
            "idempotency-key",
            "accept-encoding",
            "prefer",
            "traceparent",
        ] {
            assert!(!keeps(&kept, name), "{name}");
        }
        assert_eq!(kept.add("Authorization"), Ok(Keeping::Credential));
        assert!(keeps(&kept, "authorization") && !keeps(&kept, "cookie"));
        let mut some = KeptHeaders::default();
        some.add("X-*").unwrap();
        assert!(keeps(&some, "x-a") && !keeps(&some, "accept"));
        for never in ["host", "connection", "te", "millpond-group", "idempotency-key", "a b", "", "é*"] {
            assert!(some.add(never).is_err(), "{never}");
        }
        assert_eq!(some.add("content-type"), Ok(Keeping::Fine));
    }

    proptest! {
        #[test]
        fn no_path_is_too_strange_to_be_judged(text in any::<String>()) {
            let _ = RoutePath::parse(&text);
            let _ = is_traversal(&text);
        }

        #[test]
        fn what_is_let_through_stays_below(path in "(/|%2f|\\\\|[.]|%2e|;|a|%5c){0,12}") {
            // The most generous reading: everything decoded, both slashes, parameters of segments cut off.
            let decoded = path.replace("%2f", "/").replace("%2e", ".").replace("%5c", "/").replace('\\', "/");
            let mut depth = 0_i32;
            let escapes = decoded.split('/').any(|segment| {
                depth += match segment.split(';').next().unwrap() { ".." => -1, "." | "" => 0, _ => 1 };
                depth < 0
            });
            prop_assert!(!escapes || is_traversal(&path), "{}", path);
        }
    }
}
