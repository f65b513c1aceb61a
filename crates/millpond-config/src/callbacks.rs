//! `[callbacks]`: who may be told of the end of a message, and how.
//!
//! Owns its keys, their defaults, and the settings of the queue that callbacks wait in. Must never allow more by default
//! than addresses that anybody on the internet could reach.

use crate::diagnostic::{Place, Report};
use crate::keys;
use crate::load::ReadFile;
use crate::quantity::format_duration;
use crate::secret::SigningKey;
use crate::section::Section;
use crate::tls::{Tls, tls};
use crate::transport::signing_keys;
use ipnet::IpNet;
use millpond_core::settings::{DeadLetterSettings, QueueSettings, RetrySettings};
use std::time::Duration;

/// The queue that callbacks wait in. No other one can have this name.
pub const CALLBACK_QUEUE: &str = "_callbacks";

/// When a callback is tried, each as long after the one before: the delays that Standard Webhooks recommends.
pub const CALLBACK_DELAYS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(14),
    Duration::from_hours(20),
    Duration::from_hours(24),
];

/// As many as there are delays, and the first one.
const ATTEMPTS_MAX: u32 = 10;
/// Longest time for one try that can be set.
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
/// Shortest retention that can be set: the tries alone take 75 hours.
const RETENTION_MIN: Duration = Duration::from_hours(4 * 24);
/// A pause that a receiver asks for is no attempt; there are so many at most.
const DELIVERIES_MAX: u32 = 10_000;

/// Who may be told of the end of a message, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Callbacks {
    /// What every callback is signed with.
    pub signature: Vec<SigningKey>,
    /// Hosts that may be told; empty: any.
    pub allow: Vec<AllowedHost>,
    /// Whether `http` will do.
    pub allow_http: bool,
    /// Networks that may be told though they are not public.
    pub allow_private: Vec<IpNet>,
    /// Ports that may be used.
    pub ports: Vec<u16>,
    /// How long one try may take.
    pub timeout: Duration,
    /// How long after each failure the next try comes. Not read from a file.
    pub delays: Vec<Duration>,
    /// Most tries at once.
    pub concurrency: u32,
    /// Most tries at once to one host.
    pub concurrency_per_host: u32,
    /// Most callbacks that wait.
    pub max_messages: u64,
    /// Most bytes of callbacks that wait.
    pub max_bytes: u64,
    /// How long a callback is tried.
    pub retention: Duration,
    /// Who looks after those that could not be delivered.
    pub owner: Option<String>,
    /// Whom to trust.
    pub tls: Tls,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            signature: Vec::new(),
            allow: Vec::new(),
            allow_http: false,
            allow_private: Vec::new(),
            ports: vec![443],
            timeout: Duration::from_secs(20),
            delays: CALLBACK_DELAYS.to_vec(),
            concurrency: 64,
            concurrency_per_host: 8,
            max_messages: 100_000,
            max_bytes: 1 << 30,
            retention: Duration::from_hours(7 * 24),
            owner: None,
            tls: Tls::default(),
        }
    }
}

impl Callbacks {
    /// The settings of [`CALLBACK_QUEUE`].
    pub fn queue_settings(&self) -> QueueSettings {
        QueueSettings {
            concurrency: Some(self.concurrency),
            max_messages: Some(self.max_messages),
            max_bytes: self.max_bytes,
            lease: self.timeout + Duration::from_secs(10),
            retention: self.retention,
            result_retention: Duration::from_hours(24),
            result_max_bytes: 0,
            // What one receiver does says nothing about the others.
            dead_burst: 0,
            retry: RetrySettings {
                max_attempts: ATTEMPTS_MAX,
                max_deliveries: Some(DELIVERIES_MAX),
                budget: 0.5,
                ..RetrySettings::default()
            },
            dead_letter: DeadLetterSettings {
                retention: self.retention + Duration::from_hours(14 * 24),
                owner: self.owner.clone(),
                ..DeadLetterSettings::default()
            },
            ..QueueSettings::default()
        }
    }
}

/// A host, or all below one: `example.com`, `*.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHost {
    /// This one.
    Exactly(String),
    /// Any whose name ends in a dot and this.
    Below(String),
}

impl AllowedHost {
    /// Reads one; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (below, host) = text.strip_prefix("*.").map_or((false, &*text), |host| (true, host));
        let is_literal = host.starts_with('[') && host.ends_with(']');
        let is_name = !host.is_empty()
            && host.split('.').all(|label| !label.is_empty())
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        match (below, is_name, is_literal) {
            (true, true, _) => Some(Self::Below(host.to_owned())),
            (false, true, _) | (false, _, true) => Some(Self::Exactly(host.to_owned())),
            _ => None,
        }
    }

    /// Whether `host`, in lower case, is one.
    pub fn fits(&self, host: &str) -> bool {
        match self {
            Self::Exactly(own) => host == own,
            Self::Below(own) => host.strip_suffix(own.as_str()).is_some_and(|rest| rest.ends_with('.')),
        }
    }
}

/// Reads `[callbacks]`; without it nobody is told.
pub(crate) fn callbacks(
    report: &mut Report<'_>,
    top: &Section<'_>,
    files: ReadFile<'_>,
) -> Option<Callbacks> {
    let section = top.section(report, "callbacks")?;
    section.check_keys(report, &keys::CALLBACKS);
    let fresh = Callbacks::default();
    let allow_http = section.flag(report, "allow_http").unwrap_or(fresh.allow_http);
    let mut callbacks = Callbacks {
        signature: signing_keys(report, &section, files),
        allow: hosts(report, &section),
        allow_http,
        allow_private: networks(report, &section),
        ports: ports(report, &section, allow_http),
        timeout: section.duration(report, "timeout").unwrap_or(fresh.timeout),
        delays: fresh.delays,
        concurrency: section.number(report, "concurrency", 10_000_u32).unwrap_or(fresh.concurrency),
        concurrency_per_host: section
            .number(report, "concurrency_per_host", 10_000_u32)
            .unwrap_or(fresh.concurrency_per_host),
        max_messages: section.number(report, "max_messages", u64::MAX).unwrap_or(fresh.max_messages),
        max_bytes: section.size(report, "max_bytes").unwrap_or(fresh.max_bytes),
        retention: section.duration(report, "retention").unwrap_or(fresh.retention),
        owner: section.text(report, "owner", "a name in quotes").map(str::to_owned),
        tls: tls(report, &section, files),
    };
    if callbacks.tls.server_name.take().is_some() {
        let help = "leave it out: certificates must be for the host of the callback's URL".to_owned();
        report.error(section.locate("tls"), &section.path_of("tls"), "has a server_name".to_owned(), help);
    }
    check(report, &section, &callbacks);
    Some(callbacks)
}

fn check(report: &mut Report<'_>, section: &Section<'_>, callbacks: &Callbacks) {
    let mut require = |holds: bool, key: &str, problem: String| {
        if !holds && !report.has_error(&section.path_of(key)) {
            section.wrong(report, key, problem, "see the reference of the configuration".to_owned());
        }
    };
    let (timeout, most) = (callbacks.timeout, format_duration(TIMEOUT_MAX));
    require(
        (Duration::from_secs(1)..=TIMEOUT_MAX).contains(&timeout),
        "timeout",
        format!("must lie between 1s and {most}"),
    );
    require(callbacks.concurrency > 0, "concurrency", "must be at least 1".to_owned());
    let per_host = callbacks.concurrency_per_host;
    require(
        (1..=callbacks.concurrency.max(1)).contains(&per_host),
        "concurrency_per_host",
        format!("must lie between 1 and concurrency ({})", callbacks.concurrency),
    );
    let least = format_duration(RETENTION_MIN);
    require(
        callbacks.retention >= RETENTION_MIN,
        "retention",
        format!("must be at least {least}: the tries alone take 75 hours"),
    );
    if let Err(error) = callbacks.queue_settings().validate() {
        let key = match error.field {
            "dead_letter.owner" => "owner",
            "dead_letter.retention" => "retention",
            other => other,
        };
        require(false, key, error.reason);
    }
}

fn hosts(report: &mut Report<'_>, section: &Section<'_>) -> Vec<AllowedHost> {
    let mut hosts = Vec::new();
    for (span, text) in section.texts(report, "allow").unwrap_or_default() {
        if let Some(host) = AllowedHost::parse(text) {
            hosts.push(host);
        } else {
            let help = "write a host such as \"example.com\", or \"*.example.com\" for those below it";
            let problem = format!("{text:?} is not a host");
            report.error(Place::Value(span), &section.path_of("allow"), problem, help.to_owned());
        }
    }
    hosts
}

fn networks(report: &mut Report<'_>, section: &Section<'_>) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (span, text) in section.texts(report, "allow_private").unwrap_or_default() {
        if let Ok(network) = text.parse() {
            networks.push(network);
        } else {
            let help = "write a network such as \"10.0.0.0/8\" or \"fd00::/8\"".to_owned();
            let problem = format!("{text:?} is not a network");
            report.error(Place::Value(span), &section.path_of("allow_private"), problem, help);
        }
    }
    networks
}

fn ports(report: &mut Report<'_>, section: &Section<'_>, allow_http: bool) -> Vec<u16> {
    let default = if allow_http { vec![80, 443] } else { vec![443] };
    if !section.has("ports") {
        return default;
    }
    let numbers = section.entries().find(|(key, ..)| *key == "ports");
    let numbers = numbers.and_then(|(_, _, value)| value.get_ref().as_array());
    let read = |value: &toml::Spanned<toml::de::DeValue<'_>>| {
        let number = value.get_ref().as_integer()?;
        u16::from_str_radix(number.as_str(), number.radix()).ok().filter(|port| *port > 0)
    };
    let ports: Option<Vec<u16>> = numbers.and_then(|numbers| numbers.iter().map(read).collect());
    match ports {
        Some(ports) if !ports.is_empty() => ports,
        _ => {
            let help = "write some numbers from 1 to 65535: ports = [443]".to_owned();
            section.wrong(report, "ports", "is not a list of ports".to_owned(), help);
            default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllowedHost, CALLBACK_DELAYS, Callbacks};

    #[test]
    fn hosts_are_allowed_exactly_or_below_one() {
        let fits = |pattern: &str, host: &str| AllowedHost::parse(pattern).unwrap().fits(host);
        assert!(fits("Example.com", "example.com") && !fits("example.com", "a.example.com"));
        assert!(fits("*.example.com", "a.b.example.com"));
        for host in ["example.com", "badexample.com", ".com", "example.com.evil.org"] {
            assert!(!fits("*.example.com", host), "{host}");
        }
        for wrong in ["", "*", "*.", "a..b", "https://a", "a:1", "a/b", "*.*.a", "a b"] {
            assert_eq!(AllowedHost::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_queue_of_callbacks_can_be_used_as_it_is_by_default() {
        let settings = Callbacks::default().queue_settings();
        settings.validate().unwrap();
        assert_eq!(
            (settings.retry.max_attempts as usize, settings.dead_burst),
            (CALLBACK_DELAYS.len() + 1, 0)
        );
    }
}
