//! `millpond targets`: see how targets are, and close a breaker by hand.
//!
//! Owns the arguments and how targets look. Must never compute a figure that the server does not send.

use super::connection::{Connection, HEADING};
use super::failure::Failure;
use super::messages::show::document;
use super::render::{Column, Fields, NONE, duration, line, per_second, table, wrapped};
use clap::Args;
use millpond_api::types::{Target, TargetState, Targets};
use millpond_core::name::Name;
use millpond_sim::text::count;
use std::io::Write;

/// See how targets are; close the breaker of one
///
/// Without a name it lists all targets: calls in flight and how many may be, whether the breaker lets calls through, and for how
/// long it has been so. A target is something with a fixed capacity that messages are pushed to; the configuration file
/// declares it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond targets\n  \
        millpond targets registrar\n  \
        millpond targets registrar --reset\n  \
        millpond targets --json | jq '.targets[] | select(.state != \"closed\") | .name'")]
pub(crate) struct TargetsCommand {
    /// Only this target, with everything about it
    #[arg(value_parser = Name::new)]
    target: Option<Name>,
    /// Close its breaker: calls go out again at once
    #[arg(long, requires = "target")]
    reset: bool,
    #[command(flatten)]
    connection: Connection,
    /// Print one JSON document
    #[arg(long, help_heading = HEADING)]
    json: bool,
}

impl TargetsCommand {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.target {
            None => list(&client.targets().await?, self.json, out),
            Some(target) if self.reset => one(&client.reset_target(target.as_str()).await?, self.json, out),
            Some(target) => one(&client.target(target.as_str()).await?, self.json, out),
        }
    }
}

fn list(targets: &Targets, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(targets, out);
    }
    if targets.targets.is_empty() {
        let text = "There are no targets. Declare one in the configuration file: [targets.NAME] with its url and \
                    concurrency. Queues without a target are worked off by pull workers.";
        return Ok(write!(out, "{}", wrapped(text))?);
    }
    let columns = [
        Column::Text("TARGET"),
        Column::Number("INFLIGHT"),
        Column::Number("LIMIT"),
        Column::Number("DONE"),
        Column::Number("FAILED"),
        Column::Text("STATE"),
        Column::Number("FOR"),
    ];
    let row = |target: &Target| {
        vec![
            line(&target.name),
            count(target.inflight),
            count(target.ramp_limit.unwrap_or(target.limit)),
            count(target.successes_total),
            count(target.failures_total),
            state(target).to_owned(),
            duration(target.state_seconds),
        ]
    };
    Ok(write!(out, "{}", table(&columns, targets.targets.iter().map(row).collect()))?)
}

fn state(target: &Target) -> &'static str {
    match target.state {
        TargetState::Open => "open",
        TargetState::HalfOpen => "half-open",
        _ if target.paused_seconds > 0.0 => "throttled",
        _ if target.ramp_limit.is_some() => "ramp",
        TargetState::Closed => "closed",
        _ => "unknown",
    }
}

/// What an operator wants to know first.
fn sentence(target: &Target) -> String {
    let name = line(&target.name);
    match target.state {
        TargetState::Open => {
            let next = match target.next_probe_seconds {
                Some(wait) if wait > 0.0 => format!("the next message tries it in {}", duration(wait)),
                _ => "the next message tries it".to_owned(),
            };
            format!(
                "IT DOES NOT ANSWER: {} failures in a row, for {}. Nothing else goes out, and what waits burns no attempt; {next}. Once it is mended: millpond targets {name} --reset",
                count(target.failures_in_row),
                duration(target.state_seconds)
            )
        }
        TargetState::HalfOpen => {
            "It is tried with single messages; calls go on once two more were answered than failed."
                .to_owned()
        }
        _ if target.paused_seconds > 0.0 => {
            format!("It has asked to be left alone for another {}.", duration(target.paused_seconds))
        }
        _ => match target.ramp_limit {
            Some(part) => {
                format!("It gets its limit of {} step by step, {} by now.", count(target.limit), count(part))
            }
            None => format!("{} of {} calls are in flight.", count(target.inflight), count(target.limit)),
        },
    }
}

fn one(target: &Target, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(target, out);
    }
    writeln!(out, "{} ({})\n", line(&target.name), line(&target.url))?;
    write!(out, "{}", wrapped(&sentence(target)))?;
    let mut fields = Fields::default();
    fields.add("state", format!("{} for {}", state(target), duration(target.state_seconds)));
    fields.add("inflight", count(target.inflight));
    fields.add("concurrency", count(target.concurrency));
    let found = if target.adaptive { " (finds itself)" } else { "" };
    fields.add("limit", format!("{}{found}", count(target.limit)));
    fields.add("rate", target.rate_per_second.map_or_else(|| NONE.to_owned(), per_second));
    fields.add("failures in a row", count(target.failures_in_row));
    fields.add("succeeded", count(target.successes_total));
    fields.add("failed", count(target.failures_total));
    fields.add("throttled", count(target.throttled_total));
    fields.add("rejected", count(target.rejected_total));
    let queues: Vec<String> = target.queues.iter().map(|queue| line(queue)).collect();
    fields.add("queues", if queues.is_empty() { NONE.to_owned() } else { queues.join(", ") });
    Ok(write!(out, "\n{}", fields.render())?)
}

#[cfg(test)]
mod tests {
    use super::{list, one};
    use millpond_api::types::{Target, TargetState, Targets};

    fn target(name: &str) -> Target {
        Target {
            name: name.to_owned(),
            url: "http://127.0.0.1:9000/tasks".to_owned(),
            concurrency: 1_000_000,
            limit: 1_000_000,
            inflight: 999_999,
            state: TargetState::Closed,
            state_seconds: 273_600.0,
            paused_seconds: 0.0,
            next_probe_seconds: None,
            ramp_limit: None,
            rate_per_second: Some(500.0),
            adaptive: true,
            failures_in_row: 0,
            successes_total: 123_456_789,
            failures_total: 99_999,
            throttled_total: 3,
            rejected_total: 1,
            queues: vec!["jobs".to_owned(), "mails".to_owned()],
        }
    }

    fn text(print: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_list_fits_eighty_columns_and_says_which_target_is_down() {
        let down = Target { state: TargetState::Open, ..target("down") };
        let targets = vec![
            target(&"t".repeat(80)),
            down,
            Target { state: TargetState::HalfOpen, ..target("tried") },
            Target { paused_seconds: 3.0, ..target("busy") },
            Target { ramp_limit: Some(4), ..target("cold") },
        ];
        let shown = text(|out| list(&Targets { targets }, false, out).unwrap());
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        for expected in ["123,456,789", "open", "half-open", "throttled", "ramp", "closed", "3d 4h"] {
            assert!(shown.contains(expected), "{expected} is missing\n{shown}");
        }
    }

    #[test]
    fn no_targets_say_what_to_do_next() {
        let shown = text(|out| list(&Targets::default(), false, out).unwrap());
        assert!(shown.contains("[targets.NAME]"), "{shown}");
    }

    #[test]
    fn a_target_that_is_down_says_so_first_and_how_to_go_on() {
        let down = Target {
            state: TargetState::Open,
            failures_in_row: 12,
            next_probe_seconds: Some(34.0),
            state_seconds: 90.0,
            ..target("registrar")
        };
        let shown = text(|out| one(&down, false, out).unwrap());
        for expected in
            ["12 failures in a row", "in 34.0s", "millpond targets registrar --reset", "jobs, mails"]
        {
            assert!(shown.replace('\n', " ").contains(expected), "{expected} is missing\n{shown}");
        }
        let due = Target { next_probe_seconds: Some(0.0), ..down };
        assert!(text(|out| one(&due, false, out).unwrap()).contains("the next message tries it"));
    }

    #[test]
    fn a_json_document_has_the_fields_of_the_interface() {
        let shown = text(|out| one(&target("a"), true, out).unwrap());
        let document: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&document["state"], &document["next_probe_seconds"]), (&"closed".into(), &().into()));
    }
}
