//! Addresses in the configuration: where the server listens, where targets are, how callers reach us.
//!
//! Owns which addresses are accepted and the advice for those that are not. Must never resolve or connect.

use http::Uri;
use std::net::{IpAddr, SocketAddr};

/// Why an address cannot be used, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {advice}")]
pub struct AddressError {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub advice: String,
    /// Whether the text may hold a password and must not be printed.
    pub secret: bool,
}

fn refuse<T>(problem: impl Into<String>, advice: impl Into<String>) -> Result<T, AddressError> {
    Err(AddressError { problem: problem.into(), advice: advice.into(), secret: false })
}

/// Reads an address to listen on: an IP address and a port, such as `127.0.0.1:8080` or `[::1]:8080`.
///
/// # Errors
/// Host names, and addresses without port, are refused with what would be right.
pub fn parse_listen(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(listen) = text.parse() {
        return Ok(listen);
    }
    let problem = format!("{text:?} is not an IP address with a port");
    if let Some(port) = text.strip_prefix("localhost:") {
        return refuse(problem, format!("write \"127.0.0.1:{port}\""));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return refuse(problem, format!("write \"{}\"", SocketAddr::new(ip, 8080)));
    }
    match text.strip_prefix(':').or_else(|| text.parse::<u16>().is_ok().then_some(text)) {
        Some(port) => {
            let advice = format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface");
            refuse(problem, advice)
        }
        None => refuse(problem, "write \"127.0.0.1:8080\" or \"[::1]:8080\""),
    }
}

/// What both kinds of URL have in common: parsable, with scheme and host, without user, password and fragment.
fn parse_url(text: &str, example: &str) -> Result<Uri, AddressError> {
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let problem = "holds a user name or a password".to_owned();
        let advice = "put credentials into the target's headers".to_owned();
        return Err(AddressError { problem, advice, secret: true });
    }
    if text.contains('#') {
        return refuse(format!("{text:?} has a fragment, which is never sent"), "cut it off from the # on");
    }
    if !text.contains("://") && !text.is_empty() && !text.starts_with('/') {
        return refuse(format!("{text:?} has no scheme"), format!("write \"http://{text}\""));
    }
    let Ok(url) = text.parse::<Uri>() else {
        return refuse(format!("{text:?} is not a URL"), format!("write it like {example:?}"));
    };
    if url.scheme().is_none() || url.host().is_none_or(str::is_empty) {
        return refuse(format!("{text:?} has no host"), format!("write it like {example:?}"));
    }
    let named_port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    if named_port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Ok(url);
    }
    refuse(format!("{text:?} has no valid port"), "write a port from 1 to 65535, or none for the usual one")
}

/// Reads the URL of a target: `http://host[:port][/path][?query]`, or `https`.
///
/// # Errors
/// Other schemes, and URLs that cannot be called, are refused with what would be right.
pub fn parse_target_url(text: &str) -> Result<Uri, AddressError> {
    let url = parse_url(text, "http://127.0.0.1:9000/tasks")?;
    match url.scheme_str() {
        Some("http" | "https") => Ok(url),
        _ => refuse(format!("{text:?} is not an http or https URL"), "write http://host:port/path"),
    }
}

/// Reads how callers reach the server: `http` or `https`, without query; a slash at the end is cut off. Empty text
/// is `None`.
///
/// # Errors
/// What cannot be the beginning of a URL is refused with what would be right.
pub fn parse_external_url(text: &str) -> Result<Option<String>, AddressError> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = parse_url(text, "https://millpond.example.com")?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return refuse(
            format!("{text:?} is not an http or https URL"),
            "write https://host or http://host:port",
        );
    }
    if url.query().is_some() {
        return refuse(format!("{text:?} has a query"), "cut it off from the ? on");
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

/// Reads a value of `Host` that is served: a host name or an IP address (IPv6 in brackets), without port.
///
/// # Errors
/// What `Host` cannot be is refused with what would be right.
pub fn parse_allowed_host(text: &str) -> Result<String, AddressError> {
    let lower = text.to_lowercase();
    let is_ipv6 = |text: &str| text.parse::<std::net::Ipv6Addr>().is_ok();
    if let Some(inner) = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        if is_ipv6(inner) {
            return Ok(lower);
        }
    } else if is_ipv6(&lower) {
        return refuse(
            format!("{text:?} is an IPv6 address without brackets"),
            format!("write \"[{lower}]\""),
        );
    }
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    if !lower.is_empty() && lower.chars().all(allowed) {
        return Ok(lower);
    }
    let bare = lower.split_once("://").map_or(lower.as_str(), |(_, rest)| rest);
    let bare = bare.split(['/', ':']).next().unwrap_or_default();
    if !bare.is_empty() && bare.chars().all(allowed) {
        let problem = format!("{text:?} is more than a host name");
        return refuse(problem, format!("write \"{bare}\": no scheme, no port, no path"));
    }
    refuse(
        format!("{text:?} is not a host name"),
        "list each name that callers use, such as \"millpond.internal\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on_are_read() {
        for text in ["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0"] {
            assert_eq!(parse_listen(text).unwrap().to_string(), text);
        }
        for (text, advice) in [
            ("localhost:8080", "write \"127.0.0.1:8080\""),
            (":9000", "write \"127.0.0.1:9000\", or \"0.0.0.0:9000\" for every interface"),
            ("9000", "write \"127.0.0.1:9000\", or \"0.0.0.0:9000\" for every interface"),
            ("10.0.0.1", "write \"10.0.0.1:8080\""),
            ("::1", "write \"[::1]:8080\""),
            ("here", "write \"127.0.0.1:8080\" or \"[::1]:8080\""),
            ("", "write \"127.0.0.1:8080\" or \"[::1]:8080\""),
        ] {
            assert_eq!(parse_listen(text).unwrap_err().advice, advice, "{text}");
        }
    }

    #[test]
    fn targets_are_http_urls_with_a_host() {
        for text in [
            "http://127.0.0.1:9000/registrations",
            "http://a.b",
            "http://[::1]:9/x?y=z",
            "HTTP://A/",
            "https://a.b/c",
        ] {
            assert!(parse_target_url(text).is_ok(), "{text}: {:?}", parse_target_url(text));
        }
        for (text, hint) in [
            ("a.b:9000/x", "write \"http://a.b:9000/x\""),
            ("127.0.0.1:9000", "write \"http://127.0.0.1:9000\""),
            ("ftp://a", "write http://host:port/path"),
            ("http://", "write it like"),
            ("", "write it like"),
            ("/x", "write it like"),
            ("http:///x", "write it like"),
            ("http://a b", "write it like"),
            ("http://a:99999/", "write a port"),
            ("http://a:0/", "write a port"),
            ("http://a:/", "write a port"),
            ("http://a/#b", "cut it off"),
        ] {
            let error = parse_target_url(text).unwrap_err();
            assert!(error.advice.contains(hint), "{text}: {error}");
            assert!(!error.secret, "{text}");
        }
        let error = parse_target_url("http://user:hunter2@a/").unwrap_err();
        assert!(error.secret && !error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn an_external_url_has_no_slash_at_its_end() {
        assert_eq!(parse_external_url(""), Ok(None));
        assert_eq!(parse_external_url("https://a.b/c/").unwrap().as_deref(), Some("https://a.b/c"));
        for text in ["a.b", "ftp://a", "https://a?b", "https://a/#b", "https://u:p@a"] {
            assert!(parse_external_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn allowed_hosts_are_bare_names() {
        for (text, host) in [("LocalHost", "localhost"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")] {
            assert_eq!(parse_allowed_host(text).as_deref(), Ok(host));
        }
        for (text, advice) in [
            ("::1", "write \"[::1]\""),
            ("https://a.b/c", "write \"a.b\": no scheme, no port, no path"),
            ("a.b:80", "write \"a.b\": no scheme, no port, no path"),
            ("*", "list each name that callers use, such as \"millpond.internal\""),
            ("", "list each name that callers use, such as \"millpond.internal\""),
        ] {
            assert_eq!(parse_allowed_host(text).unwrap_err().advice, advice, "{text}");
        }
    }
}
