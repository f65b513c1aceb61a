//! The configuration as the rest of the program sees it: plain data with defaults, everything in range.
//!
//! Owns the types and the server-wide defaults; a queue's defaults are those of `millpond-core`. Must never parse.

use crate::alerts::AlertWebhook;
use crate::callbacks::Callbacks;
use crate::cors::Cors;
use crate::route::Route;
use crate::scaler::Scaler;
use crate::secret::SigningKey;
use crate::tls::Tls;
use millpond_core::alert::ServerAlertSettings;
use millpond_core::name::Name;
use millpond_core::settings::{BreakerSettings, QueueSettings, TargetSettings};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Largest `max_body` that can be set: 256 MiB. A body is held in memory while it is received.
pub const BODY_BYTES_MAX: u64 = 256 << 20;

/// Everything that a configuration file decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Where the server listens. See [`check_exposure`].
    pub listen: SocketAddr,
    /// The directory of the journal; relative to the directory in which the server is started.
    pub data: PathBuf,
    /// How callers reach the server, without a slash at the end. `None`: taken from `Host`, if that is allowed.
    pub external_url: Option<String>,
    /// Values of `Host` that are served, without port, in lower case.
    pub allowed_hosts: Vec<String>,
    /// Most bytes of a request's body. From 1 to [`BODY_BYTES_MAX`].
    pub max_body_bytes: u64,
    /// Things with a fixed capacity that queues push to.
    pub targets: BTreeMap<Name, Target>,
    /// The queues that are declared here; others may be added while the server runs.
    pub queues: BTreeMap<Name, QueueSettings>,
    /// Paths that lead to a queue, for clients that know nothing of Millpond. No two match alike for one method.
    pub routes: Vec<Route>,
    /// Which web pages of other sites may call; `None`: none.
    pub cors: Option<Cors>,
    /// Who may be told of the end of a message; `None`: nobody.
    pub callbacks: Option<Callbacks>,
    /// Where autoscalers ask; `None`: nowhere.
    pub scaler: Option<Scaler>,
    /// Alerts that are not a queue's.
    pub alerts: ServerAlertSettings,
    /// Who is told of alerts; `None`: nobody.
    pub alert_webhook: Option<AlertWebhook>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            data: PathBuf::from("./millpond-data"),
            external_url: None,
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            max_body_bytes: 1 << 20,
            targets: BTreeMap::new(),
            queues: BTreeMap::new(),
            routes: Vec::new(),
            cors: None,
            callbacks: None,
            scaler: None,
            alerts: ServerAlertSettings::default(),
            alert_webhook: None,
        }
    }
}

/// Where and how messages are pushed.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its capacity.
    pub settings: TargetSettings,
    /// Where it is: `http` or `https`, with a host.
    pub url: http::Uri,
    /// Sent with every push. The values are marked sensitive: they may be credentials and are never printed.
    pub headers: http::HeaderMap,
    /// What a status code means, where that differs from the usual. Keys lie between 200 and 599.
    pub outcomes: BTreeMap<u16, PushOutcome>,
    /// Whether HTTP/2 is spoken. `None`: over TLS if the target can, else not.
    pub http2: Option<bool>,
    /// How long it may take until there is a connection. See [`Target::connect_timeout`].
    pub connect_timeout: Option<Duration>,
    /// Whom to trust where the URL is `https`.
    pub tls: Tls,
    /// What every call is signed with; none: calls are not signed.
    pub signature: Vec<SigningKey>,
}

/// Longest time until there is a connection, unless another one is set.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

impl Target {
    /// A target at `url` with every default: one call at a time (nobody but the operator knows what a target can
    /// stand), no rate, 5 s for a call, held as long again after a time-out, a breaker.
    pub fn new(url: http::Uri) -> Self {
        let settings = TargetSettings {
            concurrency: 1,
            rate: None,
            timeout: Duration::from_secs(5),
            hold_after_timeout: None,
            adaptive: None,
            breaker: Some(BreakerSettings::default()),
            ramp: None,
        };
        Self {
            settings,
            url,
            headers: http::HeaderMap::new(),
            outcomes: BTreeMap::new(),
            http2: None,
            connect_timeout: None,
            tls: Tls::default(),
            signature: Vec::new(),
        }
    }

    /// How long it may take until there is a connection: name, TCP and TLS together. Never longer than a call.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT).min(self.settings.timeout)
    }
}

/// Whether a header of a push belongs to the connection, or says something about the message: such a one cannot be
/// configured.
pub fn is_reserved_header(name: &http::HeaderName) -> bool {
    const RESERVED: [&str; 15] = [
        "connection",
        "content-length",
        "content-type",
        "expect",
        "idempotency-key",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.contains(&name.as_str()) || name.as_str().starts_with("millpond-")
}

/// What an answer of a target means for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PushOutcome {
    /// The work is done; the body is the result.
    Complete,
    /// The attempt failed; try again after a backoff.
    Retry,
    /// The message can never be done; it becomes a dead letter at once.
    Dead,
    /// Not now: the message goes back and no attempt is counted.
    Release,
}

impl PushOutcome {
    /// Every outcome with its word in the configuration.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("complete", Self::Complete),
        ("retry", Self::Retry),
        ("dead", Self::Dead),
        ("release", Self::Release),
    ];
}

/// The server would be reachable from other machines, which this version cannot protect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "listen = \"{listen}\" can be reached from other machines, and this version has no authentication; listen on 127.0.0.1 or [::1], or start with --insecure if the network is trusted"
)]
pub struct ExposureError {
    /// The address that was asked for.
    pub listen: SocketAddr,
}

/// Checks that only this machine can reach `listen`, or that the operator has accepted the risk.
///
/// # Errors
/// [`ExposureError`] if the address is not loopback and `insecure` is false.
pub fn check_exposure(listen: SocketAddr, insecure: bool) -> Result<(), ExposureError> {
    if insecure || listen.ip().to_canonical().is_loopback() { Ok(()) } else { Err(ExposureError { listen }) }
}

#[cfg(test)]
mod tests {
    use super::{check_exposure, is_reserved_header};
    use http::HeaderName;

    #[test]
    fn configured_headers_can_neither_break_the_connection_nor_lie_about_the_message() {
        for name in ["connection", "transfer-encoding", "millpond-attempt", "idempotency-key", "content-type"]
        {
            assert!(is_reserved_header(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["authorization", "x-request-id", "user-agent", "host"] {
            assert!(!is_reserved_header(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn only_loopback_is_served_without_the_flag() {
        for listen in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(check_exposure(listen.parse().unwrap(), false), Ok(()), "{listen}");
        }
        for listen in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[fe80::1]:80"] {
            let listen = listen.parse().unwrap();
            let error = check_exposure(listen, false).unwrap_err().to_string();
            assert!(error.contains("--insecure") && error.contains(&listen.to_string()), "{error}");
            assert_eq!(check_exposure(listen, true), Ok(()));
        }
    }
}
