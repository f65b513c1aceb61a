//! The settings of a queue as options of the command line.
//!
//! Owns the names of the options and the JSON they become. Must never hold a default or a limit: those are the
//! server's.

use crate::cli::failure::Failure;
use clap::Args;
use millpond_config::quantity::{parse_duration, parse_size};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// What can be said about a queue; what is not said has its default.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// Push its messages to this target of the configuration [default: pull workers]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// The most messages in work at once [default: the target's cap, or none]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// The promise: refuse what would probably wait longer, such as 45m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    max_wait: Option<Duration>,
    /// The most messages that are not done
    #[arg(long, value_name = "N")]
    max_messages: Option<u64>,
    /// The most bytes that are not done, such as 1GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse_size)]
    max_bytes: Option<u64>,
    /// What to do with work beyond a bound: refuse it, let its caller wait, or give up the oldest [default: reject]
    #[arg(long, value_parser = ["reject", "block", "drop-oldest"], value_name = "HOW")]
    overflow: Option<String>,
    /// With --overflow block: how long a caller waits for room, such as 30s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    block_for: Option<Duration>,
    /// Which waiting message goes out next [default: fifo]
    #[arg(long, value_parser = ["fifo", "lifo", "adaptive"], value_name = "ORDER")]
    order: Option<String>,
    /// With --order adaptive: the newest go first once the oldest is older than this, such as 10s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    fresh_within: Option<Duration>,
    /// How the classes of criticality share the hand-outs: by weights, or strictly the higher one first
    /// [default: weighted]
    #[arg(long, value_parser = ["weighted", "strict"], value_name = "HOW")]
    priority: Option<String>,
    /// The most messages that one consumer holds at once
    #[arg(long, value_name = "N")]
    prefetch: Option<u32>,
    /// So many dead letters in a row pause the queue; 0: never
    #[arg(long, value_name = "N")]
    dead_burst: Option<u32>,
    /// How long a worker holds a message unless it asks otherwise, such as 30s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    lease: Option<Duration>,
    /// A message not done this long after its acceptance expires, such as 4d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    retention: Option<Duration>,
    /// Work per message until it is measured, such as 80ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    expected_service_time: Option<Duration>,
    /// Attempts before a message becomes a dead letter
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// While fresh work waits, retries are at most this share of the hand-outs, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    retry_budget: Option<f64>,
    /// Begin with the settings in this JSON file (as `queues show --json` gives them)
    #[arg(long = "settings", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Settings {
    /// The document that the server takes.
    pub(super) fn document(&self) -> Result<Value, Failure> {
        let mut fields = self.file()?;
        let seconds = |duration: Option<Duration>| duration.map(|duration| json!(duration.as_secs_f64()));
        for (name, value) in [
            ("target", self.target.as_ref().map(|target| json!(target))),
            ("concurrency", self.concurrency.map(|count| json!(count))),
            ("max_wait_seconds", seconds(self.max_wait)),
            ("max_messages", self.max_messages.map(|count| json!(count))),
            ("max_bytes", self.max_bytes.map(|bytes| json!(bytes))),
            ("overflow", self.overflow.as_ref().map(|word| json!(word))),
            ("block_for_seconds", seconds(self.block_for)),
            ("order", self.order.as_ref().map(|word| json!(word))),
            ("fresh_within_seconds", seconds(self.fresh_within)),
            ("priority", self.priority.as_ref().map(|word| json!(word))),
            ("prefetch", self.prefetch.map(|count| json!(count))),
            ("dead_burst", self.dead_burst.map(|count| json!(count))),
            ("lease_seconds", seconds(self.lease)),
            ("retention_seconds", seconds(self.retention)),
            ("expected_service_time_seconds", seconds(self.expected_service_time)),
        ] {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        }
        for (name, value) in [
            ("max_attempts", self.max_attempts.map(|count| json!(count))),
            ("budget", self.retry_budget.map(|share| json!(share))),
        ] {
            let Some(value) = value else { continue };
            let retry = fields.entry("retry").or_insert_with(|| json!({}));
            if let Value::Object(retry) = retry {
                retry.insert(name.to_owned(), value);
            }
        }
        Ok(Value::Object(fields))
    }

    fn file(&self) -> Result<Map<String, Value>, Failure> {
        let Some(path) = &self.file else { return Ok(Map::new()) };
        let unusable = |reason: String| {
            Failure::new(
                format!("cannot use {} as settings: {reason}", path.display()),
                "it must hold a JSON object such as {\"max_wait_seconds\": 2700}",
            )
        };
        let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let document = serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?;
        // The whole answer of `queues show --json` may be given back: its settings are one level down.
        match document {
            Value::Object(mut fields) => match fields.remove("settings") {
                Some(Value::Object(settings)) => Ok(settings),
                Some(_) => Err(unusable("\"settings\" is not an object".to_owned())),
                None => Ok(fields),
            },
            _ => Err(unusable("it is not an object".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn nothing_said_is_an_empty_document() {
        assert_eq!(Settings::default().document().unwrap(), json!({}));
    }

    #[test]
    fn options_become_the_fields_of_the_interface_and_override_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let shown =
            json!({"name": "jobs", "settings": {"max_wait_seconds": 1, "retry": {"max_deliveries": 9}}});
        std::fs::write(file.path(), shown.to_string()).unwrap();
        let settings = Settings {
            max_wait: Some(Duration::from_mins(45)),
            max_attempts: Some(3),
            retry_budget: Some(0.1),
            overflow: Some("block".to_owned()),
            order: Some("lifo".to_owned()),
            prefetch: Some(2),
            file: Some(file.path().to_owned()),
            ..Settings::default()
        };
        let expected = json!({"max_wait_seconds": 2_700.0, "overflow": "block", "order": "lifo", "prefetch": 2,
                "retry": {"max_attempts": 3, "max_deliveries": 9, "budget": 0.1}});
        assert_eq!(settings.document().unwrap(), expected);
    }

    #[test]
    fn a_file_that_is_no_object_says_what_is_wanted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[]").unwrap();
        let settings = Settings { file: Some(file.path().to_owned()), ..Settings::default() };
        let text = settings.document().unwrap_err().to_string();
        assert!(text.contains("not an object") && text.contains("max_wait_seconds"), "{text}");
    }
}
