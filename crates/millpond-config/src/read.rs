//! From the tables of the text to a `Configuration`.
//!
//! Owns which key sets what. Must never stop at the first error: a value that is wrong is reported and its default
//! goes on in its place, so that one run finds everything.

use crate::address::{self, AddressError};
use crate::alerts;
use crate::callbacks::{self, CALLBACK_QUEUE};
use crate::check::{self, Finding};
use crate::configuration::{
    BODY_BYTES_MAX, Configuration, PushOutcome, Target, check_exposure, is_reserved_header,
};
use crate::cors;
use crate::diagnostic::{Place, Report};
use crate::keys;
use crate::load::ReadFile;
use crate::quantity::format_size;
use crate::routes;
use crate::scaler;
use crate::secret::secret;
use crate::section::Section;
use crate::transport::transport;
use crate::words;
use http::{HeaderMap, HeaderName, HeaderValue};
use millpond_core::settings::{
    AdaptiveSettings, BreakerSettings, DeadLetterSettings, QueueSettings, RetrySettings,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Reads the whole configuration. What is reported as an error has its default in the result.
pub(crate) fn configuration(
    report: &mut Report<'_>,
    top: &Section<'_>,
    files: ReadFile<'_>,
) -> Configuration {
    // Before anything is reported that might show the line of a header.
    top.conceal_headers(report);
    top.check_keys(report, &keys::TOP);
    let mut configuration = server(report, top);
    if let Some(targets) = top.section(report, "targets") {
        for (name, section) in targets.named_sections(report) {
            configuration.targets.insert(name, target(report, &section, files));
        }
    }
    let mut declared = Vec::new();
    if let Some(queues) = top.section(report, "queues") {
        for (name, section) in queues.named_sections(report) {
            configuration.queues.insert(name.clone(), queue(report, &section));
            declared.push((name, section));
        }
    }
    for (name, section) in declared {
        let settings = &configuration.queues[&name];
        let own = check::check_queue(settings);
        let around = check::check_surroundings(settings, &configuration);
        place(report, &section, own.into_iter().chain(around));
    }
    reserve(report, top);
    configuration.callbacks = callbacks::callbacks(report, top, files);
    configuration.alerts = alerts::of_server(report, top);
    configuration.alert_webhook = alerts::webhook(report, top, files);
    configuration.cors = cors::cors(report, top);
    configuration.scaler = scaler::scaler(report, top, configuration.listen);
    configuration.routes = routes::routes(report, top, &configuration.queues, files);
    configuration
}

/// Refuses a queue of the name that the queue of callbacks has.
fn reserve(report: &mut Report<'_>, top: &Section<'_>) {
    let Some(queues) = top.section(report, "queues").filter(|queues| queues.has(CALLBACK_QUEUE)) else {
        return;
    };
    let problem = "is the name of the server's own queue of callbacks".to_owned();
    let help = "choose another name; what that queue holds is set in [callbacks]".to_owned();
    report.error(queues.locate(CALLBACK_QUEUE), &queues.path_of(CALLBACK_QUEUE), problem, help);
}

/// Reports findings at the keys they are about, unless that key is in error already.
fn place(report: &mut Report<'_>, section: &Section<'_>, findings: impl Iterator<Item = Finding>) {
    for Finding { severity, field, problem, help } in findings {
        // Keys whose wrong values have been replaced by defaults; their limits say nothing.
        let depends_on =
            if field == "dead_letter.retention" { &[field, "retention"][..] } else { &[field][..] };
        let path = |field: &str| format!("{}.{field}", section.path());
        if depends_on.iter().any(|field| report.has_error(&path(field))) {
            continue;
        }
        report.add(severity, section.locate(field), &path(field), problem, help);
    }
}

fn server(report: &mut Report<'_>, top: &Section<'_>) -> Configuration {
    let mut configuration = Configuration::default();
    if let Some(text) = top.text(report, "listen", "an address in quotes such as \"127.0.0.1:8080\"") {
        let listen = address::parse_listen(text);
        configuration.listen = accept(report, top, "listen", listen).unwrap_or(configuration.listen);
        if check_exposure(configuration.listen, false).is_err() {
            let problem = "other machines can reach this address, and this version asks nobody who they are";
            let help = "start with --insecure if the network is trusted, or listen on 127.0.0.1 or [::1]";
            report.warning(top.locate("listen"), "listen", problem.to_owned(), help.to_owned());
        }
    }
    if let Some(text) = top.text(report, "data", "a directory in quotes") {
        if text.is_empty() {
            let help = "name the directory of the journal, such as \"./millpond-data\"".to_owned();
            top.wrong(report, "data", "is empty".to_owned(), help);
        } else {
            configuration.data = PathBuf::from(text);
        }
    }
    if let Some(text) = top.text(report, "external_url", "a URL in quotes, or \"\" for none") {
        let external_url = address::parse_external_url(text);
        configuration.external_url = accept(report, top, "external_url", external_url).flatten();
    }
    if let Some(texts) = top.texts(report, "allowed_hosts") {
        let mut hosts = Vec::new();
        for (span, text) in texts {
            match address::parse_allowed_host(text) {
                Ok(host) => hosts.push(host),
                Err(error) => report.error(Place::Value(span), "allowed_hosts", error.problem, error.advice),
            }
        }
        configuration.allowed_hosts = hosts;
    }
    if let Some(size) = top.size(report, "max_body") {
        if (1..=BODY_BYTES_MAX).contains(&size) {
            configuration.max_body_bytes = size;
        } else {
            let problem = format!("must lie between 1 byte and {}", format_size(BODY_BYTES_MAX));
            let help =
                "bodies are held in memory; put larger ones elsewhere and enqueue where they are".to_owned();
            top.wrong(report, "max_body", problem, help);
        }
    }
    configuration
}

pub(crate) fn accept<T>(
    report: &mut Report<'_>,
    section: &Section<'_>,
    key: &str,
    read: Result<T, AddressError>,
) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(error) => {
            if error.secret {
                report.conceal(section.locate(key).span());
            }
            section.wrong(report, key, error.problem, error.advice);
            None
        }
    }
}

fn target(report: &mut Report<'_>, section: &Section<'_>, files: ReadFile<'_>) -> Target {
    section.check_keys(report, &keys::TARGET);
    // Never used: without a valid url there is an error, and no configuration comes out.
    let mut target = Target::new(http::Uri::from_static("http://invalid."));
    if section.has("url") {
        if let Some(text) =
            section.text(report, "url", "a URL in quotes such as \"http://127.0.0.1:9000/tasks\"")
        {
            let url = address::parse_target_url(text);
            target.url = accept(report, section, "url", url).unwrap_or(target.url);
        }
    } else {
        let help = "add url = \"http://host:port/path\", where messages are pushed to".to_owned();
        report.error(section.place(), section.path(), "has no url".to_owned(), help);
    }
    let settings = &mut target.settings;
    if section.has("concurrency") {
        if let Some(number) = section.number(report, "concurrency", u32::MAX) {
            settings.concurrency = number;
        }
    } else {
        let problem = "has no concurrency, so calls are made one at a time".to_owned();
        let help = "set concurrency to the most calls it can stand at once (1 to keep it so)".to_owned();
        report.warning(section.place(), section.path(), problem, help);
    }
    settings.rate = section.rate(report, "rate");
    settings.timeout = section.duration(report, "timeout").unwrap_or(settings.timeout);
    settings.hold_after_timeout = section.duration(report, "hold_after_timeout");
    let latency_objective = section.duration(report, "latency_objective");
    if section.flag(report, "adaptive") == Some(true) {
        settings.adaptive = Some(AdaptiveSettings { latency_objective });
    } else if section.has("latency_objective") {
        let help = "set adaptive = true, or leave it out".to_owned();
        let problem = "has no effect without adaptive = true".to_owned();
        report.warning(
            section.locate("latency_objective"),
            &section.path_of("latency_objective"),
            problem,
            help,
        );
    }
    settings.ramp = section.duration(report, "ramp");
    settings.breaker = breaker(report, section);
    place(report, section, check::check_target(settings).into_iter());
    if let Some(headers) = section.section(report, "headers") {
        target.headers = push_headers(report, &headers, files);
    }
    if let Some(outcomes) = section.section(report, "outcomes") {
        target.outcomes = push_outcomes(report, &outcomes);
    }
    transport(report, section, &mut target, files);
    target
}

/// A table of what differs from the usual, `true` for the usual, or `false` for none.
fn breaker(report: &mut Report<'_>, target: &Section<'_>) -> Option<BreakerSettings> {
    let mut settings = BreakerSettings::default();
    if !target.has("breaker") || target.is_flag("breaker") {
        let is_wanted = target.flag(report, "breaker").unwrap_or(true);
        return is_wanted.then_some(settings);
    }
    let Some(section) = target.section(report, "breaker") else { return Some(settings) };
    section.check_keys(report, &keys::BREAKER);
    settings.failures = section.number(report, "failures", u32::MAX).unwrap_or(settings.failures);
    settings.failure_rate = section.fraction(report, "failure_rate").unwrap_or(settings.failure_rate);
    settings.window = section.duration(report, "window").unwrap_or(settings.window);
    settings.probe_after = section.duration(report, "probe_after").unwrap_or(settings.probe_after);
    settings.probe_max = section.duration(report, "probe_max").unwrap_or(settings.probe_max);
    Some(settings)
}

/// Header values may be credentials: they are concealed, and no message repeats them.
fn push_headers(report: &mut Report<'_>, section: &Section<'_>, files: ReadFile<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (key, span, value) in section.entries() {
        let path = section.path_of(key);
        let Ok(name) = HeaderName::from_bytes(key.as_bytes()) else {
            let help = "use letters, digits and - only".to_owned();
            report.error(Place::Name(span), &path, "is not the name of a header".to_owned(), help);
            continue;
        };
        if is_reserved_header(&name) {
            let help = "remove it, or choose another name".to_owned();
            report.error(Place::Name(span), &path, "is set by Millpond itself".to_owned(), help);
            continue;
        }
        let kept = if value.get_ref().is_table() {
            let Some(from) = section.section(report, key) else { continue };
            let Some(secret) = secret(report, &from, files) else { continue };
            HeaderValue::from_str(secret.expose()).ok()
        } else {
            value.get_ref().as_str().and_then(|text| HeaderValue::from_str(text).ok())
        };
        let Some(mut value) = kept else {
            let help =
                "write one line of visible characters in quotes, or { file = \"path\" } or { env = \"VARIABLE\" }"
                    .to_owned();
            report.error(Place::Name(span), &path, "has a value that no header can have".to_owned(), help);
            continue;
        };
        value.set_sensitive(true);
        if headers.insert(name, value).is_some() {
            let problem = "is there twice; case does not count in names of headers".to_owned();
            report.error(Place::Name(span), &path, problem, "keep one of them".to_owned());
        }
    }
    headers
}

fn push_outcomes(report: &mut Report<'_>, section: &Section<'_>) -> BTreeMap<u16, PushOutcome> {
    let mut outcomes = BTreeMap::new();
    for (key, span, _) in section.entries() {
        let digits = key.bytes().all(|byte| byte.is_ascii_digit());
        let status = key.parse().ok().filter(|status| digits && (200..=599).contains(status));
        let Some(status) = status else {
            let problem = format!("{key:?} is not a status code");
            let help = "write one code from 200 to 599 per entry: \"404\" = \"dead\"".to_owned();
            report.error(Place::Name(span), &section.path_of(key), problem, help);
            continue;
        };
        if let Some(outcome) = section.choice(report, key, &PushOutcome::WORDS) {
            outcomes.insert(status, outcome);
        }
    }
    outcomes
}

fn queue(report: &mut Report<'_>, section: &Section<'_>) -> QueueSettings {
    section.check_keys(report, &keys::QUEUE);
    let fresh = QueueSettings::default();
    QueueSettings {
        target: section.name(report, "target"),
        concurrency: section.number(report, "concurrency", u32::MAX),
        max_wait: section.duration(report, "max_wait"),
        max_messages: section.number(report, "max_messages", u64::MAX),
        max_bytes: section.size(report, "max_bytes").unwrap_or(fresh.max_bytes),
        overflow: section.choice(report, "overflow", &words::OVERFLOWS).unwrap_or(fresh.overflow),
        block_for: section.duration(report, "block_for").unwrap_or(fresh.block_for),
        order: section.choice(report, "order", &words::ORDERS).unwrap_or(fresh.order),
        fresh_within: section.duration(report, "fresh_within").unwrap_or(fresh.fresh_within),
        priority: section.choice(report, "priority", &words::PRIORITIES).unwrap_or(fresh.priority),
        prefetch: section.number(report, "prefetch", u32::MAX).unwrap_or(fresh.prefetch),
        max_keys: section.number(report, "max_keys", u64::MAX).unwrap_or(fresh.max_keys),
        dead_burst: section.number(report, "dead_burst", u32::MAX).unwrap_or(fresh.dead_burst),
        lease: section.duration(report, "lease").unwrap_or(fresh.lease),
        retention: section.duration(report, "retention").unwrap_or(fresh.retention),
        on_expiry: section.choice(report, "on_expiry", &words::EXPIRIES).unwrap_or(fresh.on_expiry),
        result_retention: section.duration(report, "result_retention").unwrap_or(fresh.result_retention),
        result_max_bytes: section.size(report, "result_max").unwrap_or(fresh.result_max_bytes),
        expected_service_time: section.duration(report, "expected_service_time"),
        retry: retry(report, section),
        dead_letter: dead_letter(report, section),
        alerts: alerts::of_queue(report, section),
    }
}

fn retry(report: &mut Report<'_>, queue: &Section<'_>) -> RetrySettings {
    let mut settings = RetrySettings::default();
    let Some(section) = queue.section(report, "retry") else { return settings };
    section.check_keys(report, &keys::RETRY);
    settings.max_attempts = section.number(report, "max_attempts", u32::MAX).unwrap_or(settings.max_attempts);
    settings.max_deliveries = section.number(report, "max_deliveries", u32::MAX);
    if let Some(backoff) = section.section(report, "backoff") {
        backoff.check_keys(report, &keys::BACKOFF);
        settings.backoff_min = backoff.duration(report, "min").unwrap_or(settings.backoff_min);
        settings.backoff_max = backoff.duration(report, "max").unwrap_or(settings.backoff_max);
    }
    settings.budget = section.fraction(report, "budget").unwrap_or(settings.budget);
    settings
}

fn dead_letter(report: &mut Report<'_>, queue: &Section<'_>) -> DeadLetterSettings {
    let mut settings = DeadLetterSettings::default();
    let Some(section) = queue.section(report, "dead_letter") else { return settings };
    section.check_keys(report, &keys::DEAD_LETTER);
    settings.retention = section.duration(report, "retention").unwrap_or(settings.retention);
    settings.max_messages = section.number(report, "max_messages", u64::MAX).unwrap_or(settings.max_messages);
    settings.replayable_for = section.duration(report, "replayable_for").unwrap_or(settings.replayable_for);
    settings.owner = section.text(report, "owner", "a name in quotes").map(str::to_owned);
    settings
}
