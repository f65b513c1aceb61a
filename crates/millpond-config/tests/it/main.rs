//! The configuration as an operator meets it: what is read, what is refused, and how that is said.
//!
//! Owns tests through the public interface only. Must never reach into the crate.

#![expect(clippy::unwrap_used, reason = "tests")]

mod accepted;
mod callbacks;
mod fuzz;
mod messages;
mod refused;
mod routes;
mod transport;

use millpond_config::{Diagnostic, Invalid, Severity, parse};

/// A target and a queue that are valid; `in_target` and `in_queue` are added to them.
fn with(in_target: &str, in_queue: &str) -> String {
    format!(
        "[targets.t]\nurl = \"http://a:1/\"\nconcurrency = 40\n{in_target}\n[queues.q]\ntarget = \"t\"\n{in_queue}\n"
    )
}

/// The errors in `text`; none if it is accepted.
fn errors(text: &str) -> Vec<Diagnostic> {
    let diagnostics =
        parse(text, "millpond.toml").map_or_else(|Invalid { diagnostics }| diagnostics, |_| Vec::new());
    diagnostics.into_iter().filter(|diagnostic| diagnostic.severity == Severity::Error).collect()
}

/// The dotted keys of the errors in `text`, in its order.
fn keys_in_error(text: &str) -> Vec<String> {
    errors(text).into_iter().map(|diagnostic| diagnostic.key).collect()
}
