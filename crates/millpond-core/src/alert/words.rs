//! What is said of an alert: what is, and what to do.
//!
//! Owns the sentences. Must never name a message, a tenant or a key.

use super::{Alert, Rule, Subject};
use crate::time::Spoken;
use std::fmt;
use std::time::Duration;

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => formatter.write_str("this server"),
            Self::Queue(queue) => write!(formatter, "queue {queue}"),
            Self::Target(target) => write!(formatter, "target {target}"),
        }
    }
}

/// At most three digits after the point, and none that say nothing.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", (self.0 * 1_000.0).round() / 1_000.0)
    }
}

fn spoken(seconds: f64) -> String {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if duration < Duration::from_secs(1) {
        format!("{}ms", Number((seconds * 1e3).round()))
    } else {
        Spoken(duration).to_string()
    }
}

fn counted(count: f64, noun: &str) -> String {
    let plural = if (count - 1.0).abs() < 1e-9 { "" } else { "s" };
    format!("{} {noun}{plural}", Number(count))
}

impl Alert {
    /// What is, or was, in one sentence without a full stop.
    pub fn summary(&self) -> String {
        let Self { rule, subject, value, threshold, .. } = self;
        if let Some(cleared) = self.cleared {
            let after = Spoken(cleared.since(self.fired));
            return format!("{} of {subject} has cleared, after {after}", rule.as_str());
        }
        match rule {
            Rule::OldestAge => format!(
                "the oldest unfinished message of {subject} is {} old; {} is too old",
                spoken(*value),
                spoken(*threshold)
            ),
            Rule::Depth => format!(
                "{} wait in {subject}; {} are too many",
                counted(*value, "message"),
                Number(*threshold)
            ),
            Rule::Dead => {
                let owner = self.owner.as_deref().unwrap_or("nobody");
                format!("{subject} has {}; {owner} looks after them", counted(*value, "dead letter"))
            }
            Rule::Refusals => format!(
                "{} % of what arrives at {subject} is refused; {} % is too much",
                Number((value * 1_000.0).round() / 10.0),
                Number((threshold * 1_000.0).round() / 10.0)
            ),
            Rule::Insurmountable => {
                // While nothing can be promised there is no capacity to compare with.
                let times = if *value > 1.0 {
                    format!(" ({} times it)", Number((value * 10.0).round() / 10.0))
                } else {
                    String::new()
                };
                format!(
                    "more arrives at {subject} than can be done{times}, for longer than was promised: the backlog grows without end"
                )
            }
            Rule::DeadBurst => format!(
                "{subject} has paused itself: too many messages were given up in a row without one success"
            ),
            Rule::DeadLettersFull => {
                format!("{subject} hands out nothing: there is no room for more dead letters")
            }
            Rule::CallbacksFull => format!(
                "{subject} hands out nothing: there is no room for more callbacks, and somebody wants to be told of its messages' ends"
            ),
            Rule::BreakerOpen => {
                format!("{subject} does not answer: its breaker is open, and what is for it waits")
            }
            Rule::StorageFull => "the disk is full: new work is refused with 507".to_owned(),
            Rule::SlowCommits => format!(
                "a commit to the disk takes {} on average; {} is too long",
                spoken(*value),
                spoken(*threshold)
            ),
        }
    }
}

impl Rule {
    /// What to do, in one or two sentences.
    pub fn advice(self) -> &'static str {
        match self {
            Self::OldestAge => {
                "Look whether work is done at all (completions, errors of the target), then whether too much arrives; a single old \
                 message among young ones is one that fails again and again."
            }
            Self::Depth => {
                "Compare arrivals with capacity: a burst drains by itself, and drain_seconds says when; else add workers, or raise the \
                 target's concurrency if the target can stand it."
            }
            Self::Dead => {
                "Look why: millpond dead list QUEUE. Mend the cause, then replay them (millpond dead replay QUEUE), or delete them."
            }
            Self::Refusals => {
                "Callers are told to come back later. Look which bound refuses (millpond_refused_total by reason) and whether more \
                 capacity or fewer callers is the answer; a larger bound only makes the wait longer."
            }
            Self::Insurmountable => {
                "A queue moves load in time, it does not create capacity: add workers, raise the target's concurrency if the target can \
                 stand it, or let less arrive."
            }
            Self::DeadBurst => {
                "Look why: millpond dead list QUEUE. Mend the cause (often a missing route or a credential), then resume: millpond queues \
                 resume QUEUE."
            }
            Self::DeadLettersFull => {
                "Mend the cause, then replay dead letters, which works though the queue is full, or delete them."
            }
            Self::CallbacksFull => {
                "Look who is not told: millpond queues show _callbacks, millpond dead list _callbacks. Mend the receivers, or delete what \
                 nobody waits for."
            }
            Self::BreakerOpen => {
                "Look whether it runs, and what it answers: millpond targets TARGET. Nothing is lost and no attempt burnt; it is tried with \
                 single messages, and gets its work back step by step once it answers."
            }
            Self::StorageFull => {
                "Free or add space on the disk of the data directory. What was accepted goes on; settlements have room of their own."
            }
            Self::SlowCommits => {
                "Every 202 waits for the disk: look for other users of it, a volume out of burst credits, or a failing disk."
            }
        }
    }
}
