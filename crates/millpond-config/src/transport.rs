//! How a target is reached: HTTP/2, TLS, the time for connecting, signatures.
//!
//! Owns these keys and what they need of each other. Must never decide what a target can stand.

use crate::configuration::Target;
use crate::diagnostic::Report;
use crate::keys;
use crate::load::ReadFile;
use crate::quantity::format_duration;
use crate::secret::{SigningKey, secret};
use crate::section::Section;
use crate::tls::tls;
use std::time::Duration;

/// Reads these keys into `target`, whose URL and settings are there.
pub(crate) fn transport(
    report: &mut Report<'_>,
    section: &Section<'_>,
    target: &mut Target,
    files: ReadFile<'_>,
) {
    target.http2 = section.flag(report, "http2");
    target.connect_timeout = connect_timeout(report, section, target.settings.timeout);
    target.tls = tls(report, section, files);
    // Of a URL that was refused nobody knows what it should have been.
    let is_plain = target.url.scheme_str() == Some("http") && target.url.host() != Some("invalid.");
    if section.has("tls") && is_plain {
        let help = "write https:// in url, or leave tls out".to_owned();
        section.wrong(report, "tls", "has no effect where url is http".to_owned(), help);
    }
    if let Some(signature) = section.section(report, "signature") {
        signature.check_keys(report, &keys::SIGNATURE);
        target.signature = signing_keys(report, &signature, files);
    }
}

fn connect_timeout(report: &mut Report<'_>, section: &Section<'_>, timeout: Duration) -> Option<Duration> {
    let given = section.duration(report, "connect_timeout")?;
    if given < Duration::from_millis(1) || given > timeout {
        let problem = format!("must lie between 1ms and timeout ({})", format_duration(timeout));
        let help = "connecting is a part of the call; shorten it, or lengthen timeout".to_owned();
        section.wrong(report, "connect_timeout", problem, help);
        return None;
    }
    Some(given)
}

/// One secret, or several of which each signs, so that the receiver can change from one to the next.
pub(crate) fn signing_keys(
    report: &mut Report<'_>,
    section: &Section<'_>,
    files: ReadFile<'_>,
) -> Vec<SigningKey> {
    let is_list = section.entries().any(|(key, _, value)| key == "secret" && value.get_ref().is_array());
    let secrets = if is_list {
        section.listed_sections(report, "secret")
    } else {
        section.section(report, "secret").into_iter().collect()
    };
    if secrets.is_empty() && !report.has_error(&section.path_of("secret")) {
        let help = "add secret = { file = \"path\" } or { env = \"VARIABLE\" }".to_owned();
        report.error(section.place(), section.path(), "has no secret".to_owned(), help);
    }
    let mut keys = Vec::new();
    for from in secrets {
        let Some(secret) = secret(report, &from, files) else { continue };
        match SigningKey::parse(secret.expose()) {
            Ok(key) => keys.push(key),
            Err(error) => {
                let problem = format!("the secret {error}");
                let help = "put whsec_ and the base64 of 24 to 64 random bytes there, as the receiver has it"
                    .to_owned();
                report.error(from.place(), from.path(), problem, help);
            }
        }
    }
    keys
}
