//! How queues look on the terminal.
//!
//! Owns the words for their numbers. Must never compute a figure that the server does not send.

use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{Column, Fields, NONE, counted, duration, line, per_second, size, table, wrapped};
use millpond_api::types::{Queue, QueueStats, Queues};
use millpond_sim::text::count;
use serde_json::Value;
use std::io::Write;

/// All queues.
pub(super) fn list(queues: &Queues, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(queues, out);
    }
    if queues.queues.is_empty() {
        writeln!(out, "There are no queues. Create one: millpond queues create jobs")?;
        return Ok(());
    }
    let columns = [
        Column::Text("QUEUE"),
        Column::Number("READY"),
        Column::Number("LEASED"),
        Column::Number("LATER"),
        Column::Number("DEAD"),
        Column::Number("OLDEST"),
        Column::Number("WAIT"),
        Column::Text("STATE"),
    ];
    let row = |queue: &Queue| {
        let stats = &queue.stats;
        let unfinished = stats.ready + stats.leased + stats.delayed + stats.backoff;
        let oldest = if unfinished == 0 { NONE.to_owned() } else { duration(stats.oldest_age_seconds) };
        vec![
            line(&queue.name),
            count(stats.ready),
            count(stats.leased),
            count(stats.delayed + stats.backoff),
            count(stats.dead),
            oldest,
            stats.predicted_wait_seconds.map_or_else(|| NONE.to_owned(), duration),
            state(queue).to_owned(),
        ]
    };
    write!(out, "{}", table(&columns, queues.queues.iter().map(row).collect()))?;
    Ok(())
}

fn state(queue: &Queue) -> &'static str {
    if let Some(held) = &queue.held {
        ["paused", "dead-burst", "dead-letters-full", "callbacks-full", "storage-full", "breaker-open"]
            .into_iter()
            .find(|known| known == held)
            .unwrap_or("held")
    } else if queue.paused {
        "paused"
    } else if queue.stats.insurmountable == 1 {
        "too much"
    } else {
        "running"
    }
}

/// One queue.
pub(super) fn one(queue: &Queue, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(queue, out);
    }
    let source =
        if queue.declared { "declared in the configuration" } else { "created while the server ran" };
    writeln!(out, "{} ({source})\n", line(&queue.name))?;
    write!(out, "{}", wrapped(&sentences(queue).join("\n")))?;
    let mut fields = Fields::default();
    settings(&mut fields, "", &queue.settings);
    write!(out, "\n{}", fields.render())?;
    Ok(())
}

/// A queue that has just been created.
pub(super) fn created(queue: &Queue, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(queue, out);
    }
    let name = line(&queue.name);
    writeln!(out, "{name} is there.")?;
    let mut next = Fields::default();
    next.add("put work in:", format!("millpond send {name} --body hello"));
    next.add("see how it is:", format!("millpond queues show {name}"));
    write!(out, "{}", next.render())?;
    Ok(())
}

/// Why nothing goes out, and what to do about it.
fn held(queue: &Queue) -> Option<String> {
    let name = line(&queue.name);
    let held = queue.held.as_deref().or_else(|| queue.paused.then_some("paused"))?;
    Some(match held {
        "paused" => {
            format!(
                "It is paused: it accepts, but hands out nothing. Resume it: millpond queues resume {name}"
            )
        }
        "dead-burst" => format!(
            "IT PAUSED ITSELF: too many messages in a row were given up without one success. Look why: millpond dead list {name}. Mend the cause, then resume it: millpond queues resume {name}"
        ),
        "dead-letters-full" => format!(
            "IT HANDS OUT NOTHING: there is no room for more dead letters. Look why: millpond dead list {name}. Mend the cause, then replay some, which works though the queue is full, or delete them"
        ),
        "callbacks-full" => "IT HANDS OUT NOTHING: there is no room for more callbacks. Look why: millpond queues show _callbacks. It goes on as callbacks are delivered, or given up".to_owned(),
        "storage-full" => "IT HANDS OUT NOTHING: the disk is full. Make room on it.".to_owned(),
        "breaker-open" => {
            let target = queue.settings["target"].as_str().map(line).unwrap_or_default();
            format!(
                "NOTHING IS PUSHED: its target does not answer, and single messages try it from time to time. What waits burns no attempt. Look closer: millpond targets {target}"
            )
        }
        other => format!("It hands out nothing: {}.", line(other)),
    })
}

/// What an operator wants to know, most important first.
fn sentences(queue: &Queue) -> Vec<String> {
    let stats = &queue.stats;
    let mut sentences = Vec::new();
    sentences.extend(held(queue));
    if stats.insurmountable == 1 {
        sentences.push(format!(
            "TOO MUCH ARRIVES: {} come and {} can be done. A queue moves load in time, it does not create capacity: the backlog grows until less arrives or more is done.",
            per_second(stats.arrivals_per_second),
            per_second(stats.capacity_per_second)
        ));
    }
    let waiting = stats.ready + stats.delayed + stats.backoff;
    if waiting + stats.leased == 0 {
        sentences.push("Nothing waits.".to_owned());
    } else {
        sentences.push(format!(
            "{} ready, {} in work, {} in backoff, {} delayed ({}); the oldest is {} old.",
            count(stats.ready),
            count(stats.leased),
            count(stats.backoff),
            count(stats.delayed),
            size(stats.bytes),
            duration(stats.oldest_age_seconds)
        ));
    }
    sentences.push(stats.predicted_wait_seconds.map_or_else(
        || "Nothing can be promised to a message that arrives now.".to_owned(),
        |wait| format!("A message that arrives now starts in about {}.", duration(wait)),
    ));
    if stats.capacity_per_second > 0.0 {
        let drain = match stats.drain_seconds {
            _ if stats.ready == 0 => String::new(),
            Some(drain) => format!("; empty in {}", duration(drain)),
            None => "; at this rate it is never empty".to_owned(),
        };
        sentences.push(format!(
            "{} arrive, {} could be done{drain}.",
            per_second(stats.arrivals_per_second),
            per_second(stats.capacity_per_second)
        ));
    }
    if stats.dropped_total > 0 {
        let dropped = counted(stats.dropped_total, "message");
        sentences.push(format!(
            "{dropped} gave way to newer work since the start: millpond messages list {} --state dropped",
            queue.name
        ));
    }
    if stats.dead > 0 {
        sentences.push(format!("{}: millpond dead list {}", counted(stats.dead, "dead letter"), queue.name));
    }
    sentences
}

/// Every setting with its dotted name; durations and sizes as people write them.
fn settings(fields: &mut Fields, path: &str, value: &Value) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                settings(fields, &path, value);
            }
        }
        Value::Null => drop(fields.add(path.trim_end_matches("_seconds"), NONE)),
        Value::String(text) => drop(fields.add(path, line(text))),
        Value::Number(number) => {
            let shown = match (path.strip_suffix("_seconds"), number.as_f64(), number.as_u64()) {
                (Some(name), Some(seconds), _) => {
                    fields.add(name, duration(seconds));
                    return;
                }
                (None, _, Some(bytes)) if path.ends_with("_bytes") => size(bytes),
                (None, _, Some(whole)) => count(whole),
                _ => number.to_string(),
            };
            fields.add(path, shown);
        }
        other => drop(fields.add(path, other.to_string())),
    }
}

/// The numbers in the order in which they are read.
const NUMBERS: [(&str, &[&str]); 5] = [
    ("waiting", &["ready", "delayed", "leased", "backoff", "dead", "bytes"]),
    (
        "how late",
        &[
            "oldest_age_seconds",
            "oldest_ready_age_seconds",
            "oldest_leased_age_seconds",
            "oldest_backoff_age_seconds",
            "predicted_wait_seconds",
            "drain_seconds",
            "promise_kept_ratio",
        ],
    ),
    (
        "how fast",
        &[
            "arrivals_per_second",
            "completions_per_second",
            "capacity_per_second",
            "utilization",
            "service_time_seconds",
            "insurmountable",
            "paused",
            "blocked",
        ],
    ),
    ("workers", &["workers", "backlog_per_worker", "workers_wanted", "workers_ceiling"]),
    (
        "since the start",
        &[
            "accepted_total",
            "completed_total",
            "refused_total",
            "dead_total",
            "expired_total",
            "dropped_total",
            "cancelled_total",
        ],
    ),
];

/// A queue's numbers under the names of the interface.
pub(super) fn stats(stats: &QueueStats, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(stats, out);
    }
    let numbers = serde_json::to_value(stats)?;
    for (title, names) in NUMBERS {
        let mut fields = Fields::default();
        for name in names {
            fields.add(&format!("  {name:<26}"), number(name, &numbers[name]));
        }
        write!(out, "{title}\n{}", fields.render())?;
    }
    Ok(())
}

fn number(name: &str, value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (_, Some(seconds)) if name.ends_with("_seconds") => duration(seconds),
        (_, Some(rate)) if name.ends_with("_per_second") => per_second(rate),
        (Some(bytes), _) if name == "bytes" => size(bytes),
        (Some(whole), _) => count(whole),
        (None, Some(value)) => millpond_sim::text::number(value),
        _ => match name {
            "drain_seconds" => "never, or not known".to_owned(),
            "promise_kept_ratio" => "no promise compared yet".to_owned(),
            _ => "nothing can be promised".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{NUMBERS, list, one, stats};
    use millpond_api::types::{Queue, QueueStats, Queues};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn queue(name: &str, stats: QueueStats) -> Queue {
        let settings = json!({"max_wait_seconds": 2700, "max_bytes": 1_073_741_824, "target": null, "retry": {"max_attempts": 5}});
        Queue { name: name.to_owned(), declared: true, paused: false, held: None, settings, stats }
    }

    fn text(print: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_list_fits_eighty_columns_even_with_the_longest_name() {
        let busy = QueueStats {
            ready: 1_900_000,
            leased: 40,
            delayed: 12,
            dead: 99_999,
            oldest_age_seconds: 273_600.0,
            predicted_wait_seconds: Some(2_250.0),
            insurmountable: 1,
            ..QueueStats::default()
        };
        let queues = vec![queue(&"q".repeat(80), busy), queue("idle", QueueStats::default())];
        let shown = text(|out| list(&Queues { queues }, false, out).unwrap());
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        for expected in ["1,900,000", "3d 4h", "37m 30s", "too much", "running"] {
            assert!(shown.contains(expected), "{expected} is missing\n{shown}");
        }
    }

    #[test]
    fn no_queues_say_what_to_do_next() {
        let shown = text(|out| list(&Queues::default(), false, out).unwrap());
        assert!(shown.contains("millpond queues create"), "{shown}");
    }

    #[test]
    fn a_queue_that_cannot_keep_up_says_so_in_its_own_words() {
        let hopeless = QueueStats {
            ready: 20,
            arrivals_per_second: 6.0,
            capacity_per_second: 5.0,
            insurmountable: 1,
            dead: 1,
            dropped_total: 2_000,
            ..QueueStats::default()
        };
        let shown = text(|out| one(&queue("jobs", hopeless), false, out).unwrap());
        for expected in [
            "6/s come and 5/s can be done",
            "does not create capacity",
            "at this rate it is never empty",
            "1 dead letter: millpond dead list jobs",
            "2,000 messages gave way to newer work since the start",
            "max_wait            45m",
            "max_bytes           1.0 GiB",
            "retry.max_attempts  5",
        ] {
            assert!(shown.contains(expected), "{expected} is missing\n{shown}");
        }
    }

    #[test]
    fn every_number_of_the_interface_is_shown_once() {
        let all = serde_json::to_value(QueueStats::default()).unwrap();
        let all: BTreeSet<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
        let mut shown: Vec<&str> = NUMBERS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        assert_eq!(shown, all.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn numbers_keep_the_names_of_the_interface() {
        let shown = text(|out| stats(&QueueStats::default(), false, out).unwrap());
        for expected in [
            "oldest_age_seconds",
            "never, or not known",
            "nothing can be promised",
            "no promise compared yet",
        ] {
            assert!(shown.contains(expected), "{expected} is missing\n{shown}");
        }
    }
}
