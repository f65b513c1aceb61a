//! Who may speak to an unauthenticated server on this machine: programs, and pages that it served itself.
//!
//! Owns the check of `Host` (against DNS rebinding) and of where a browser's request comes from (against forged
//! requests by other sites). Must never let a request through because a header is missing that browsers always
//! send.

use crate::errors::{Refusal, refuse};
use http::{HeaderMap, Request, header};
use millpond_api::problem::Slug;

/// The check at the front door.
#[derive(Debug)]
pub(crate) struct Guard {
    allowed_hosts: Vec<String>,
    check_host: bool,
}

/// `authority` without its port.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

impl Guard {
    /// A guard that knows the server by `allowed_hosts`; `check_host` is false where the operator has opened the
    /// server to other machines without authentication.
    pub(crate) fn new(allowed_hosts: &[String], check_host: bool) -> Self {
        Self { allowed_hosts: allowed_hosts.to_vec(), check_host }
    }

    fn is_allowed(&self, host: &str) -> bool {
        self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Refuses a request that no honest caller of this server would send. `is_invited`: it comes from a page of another
    /// site that may make this call.
    pub(crate) fn check<B>(&self, request: &Request<B>, is_invited: bool) -> Result<(), Refusal> {
        let headers = request.headers();
        let authority = request
            .uri()
            .authority()
            .map(http::uri::Authority::as_str)
            .or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()))
            .unwrap_or_default();
        if headers.get_all(header::HOST).iter().nth(1).is_some() {
            // RFC 9112, 3.2: which of them counts is what an attacker would like to choose.
            return Err(refuse(Slug::Malformed, "the Host header is there more than once; send it once"));
        }
        let host = without_port(authority);
        if self.check_host && !self.is_allowed(host) {
            let what = match crate::paths::shown(host) {
                none if none.is_empty() => "the request names no host".to_owned(),
                host => format!("the Host header names {host:?}, which this server does not answer for"),
            };
            let detail = format!(
                "{what}; use one of {}, or add the name to allowed_hosts in the configuration",
                self.allowed_hosts.join(", ")
            );
            return Err(refuse(Slug::Forbidden, detail));
        }
        if is_invited { Ok(()) } else { self.check_site(headers, host) }
    }

    fn check_site(&self, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
        let foreign = |what: &str| {
            let detail = format!(
                "a web page of another site sent this request ({what}); call the server from a program, or from a page that it served"
            );
            Err(refuse(Slug::Forbidden, detail))
        };
        if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
            return foreign("Sec-Fetch-Site: cross-site");
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let from = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .map(|(_, rest)| without_port(rest));
        match from {
            Some(from) if from.eq_ignore_ascii_case(host) || self.is_allowed(from) => Ok(()),
            _ => foreign("Origin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Guard;
    use http::Request;

    fn check(check_host: bool, headers: &[(&str, &str)]) -> bool {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        let mut request = Request::builder().uri("/v1/queues");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Guard::new(&hosts, check_host).check(&request.body(()).unwrap(), false).is_ok()
    }

    #[test]
    fn only_known_hosts_are_served_whatever_their_port() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]", "[::1]:8080"] {
            assert!(check(true, &[("host", host)]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8080", "127.0.0.1.nip.io", "", "[::2]:80", "::1"]
        {
            assert!(!check(true, &[("host", host)]), "{host}");
            assert!(check(false, &[("host", host)]), "{host}");
        }
        assert!(!check(true, &[]), "no Host header");
    }

    #[test]
    fn the_authority_of_the_target_counts_before_the_header() {
        let request =
            Request::builder().uri("http://evil.example/").header("host", "localhost").body(()).unwrap();
        assert!(Guard::new(&["localhost".to_owned()], true).check(&request, false).is_err());
    }

    #[test]
    fn two_hosts_are_one_too_many_whatever_they_name() {
        for (check_host, second) in [(true, "localhost"), (true, "evil.example"), (false, "evil.example")] {
            assert!(!check(check_host, &[("host", "localhost"), ("host", second)]), "{second}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "localhost:8080");
        for origin in ["http://localhost:8080", "http://127.0.0.1:3000", "https://localhost"] {
            assert!(check(true, &[host, ("origin", origin)]), "{origin}");
        }
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "", "localhost"] {
            assert!(!check(true, &[host, ("origin", origin)]), "{origin}");
            assert!(!check(false, &[host, ("origin", origin)]), "{origin}");
        }
        assert!(!check(true, &[host, ("sec-fetch-site", "cross-site")]));
        assert!(check(true, &[host, ("sec-fetch-site", "none")]));
        assert!(check(false, &[("host", "pond.internal"), ("origin", "http://pond.internal")]));
    }
}
