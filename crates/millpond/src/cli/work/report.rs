//! What is shown while commands run, and in the end.
//!
//! Owns the line of counts on a terminal, the lines of a log, and the events as JSON. Must never hold up the worker: a
//! thread prints, and what nobody reads in time is counted and dropped.

use crate::cli::failure::{Failure, tell};
use crate::cli::render::{counted, duration, excerpt};
use indicatif::{ProgressBar, ProgressStyle};
use millpond_api::worker::{Event, Outcome, Summary};
use millpond_core::name::Name;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lines that wait to be printed.
const LINES: usize = 4_096;
/// Most characters of a reason on one line.
const REASON_MAX: usize = 200;
/// How often the line of counts is drawn again.
const TICK: Duration = Duration::from_millis(200);

/// Something to print.
enum Line {
    /// For people, on standard error.
    Text(String),
    /// For programs, on standard output.
    Event(String),
    /// The counts.
    Counts(String),
}

/// What has happened so far.
#[derive(Debug, Default)]
struct Counts {
    working: u64,
    done: u64,
    retried: u64,
    dead: u64,
    released: u64,
    lost: u64,
}

#[derive(Debug)]
struct Shared {
    lines: SyncSender<Line>,
    dropped: AtomicU64,
    counts: Mutex<Counts>,
    quiet: bool,
    events: bool,
    watched: bool,
}

/// The printing thread and the way to it.
#[derive(Debug)]
pub(super) struct Report {
    shared: Arc<Shared>,
    printer: JoinHandle<()>,
}

impl Report {
    pub(super) fn start(queue: &Name, quiet: bool, events: bool) -> Self {
        let watched = std::io::stderr().is_terminal() && !quiet && !events;
        let (lines, receiver) = sync_channel(LINES);
        let prefix = queue.to_string();
        let printer = std::thread::spawn(move || print_lines(&receiver, watched, prefix));
        let shared =
            Shared { lines, dropped: AtomicU64::new(0), counts: Mutex::default(), quiet, events, watched };
        Self { shared: Arc::new(shared), printer }
    }

    /// What the worker tells its events to.
    pub(super) fn observer(&self) -> impl Fn(Event<'_>) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |event| shared.note(event)
    }

    /// Waits until everything is printed; how many lines were dropped. The observer must be gone.
    pub(super) fn finish(self) -> u64 {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        drop(self.shared);
        // A thread that panicked has printed what it could.
        let _ = self.printer.join();
        dropped
    }
}

impl Shared {
    fn print(&self, line: Line) {
        let counts = matches!(line, Line::Counts(_));
        if self.lines.try_send(line).is_err() && !counts {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note(&self, event: Event<'_>) {
        if self.watched {
            let mut counts = self.counts.lock().expect("no holder of this lock panics");
            counts.note(event);
            let line = Line::Counts(counts.to_string());
            drop(counts);
            self.print(line);
        }
        if self.events {
            if let Some(event) = as_json(event) {
                self.print(Line::Event(format!("{event}\n")));
            }
        } else if let Some((text, matters)) = as_text(event)
            && (matters || !(self.quiet || self.watched))
        {
            self.print(Line::Text(text));
        }
    }
}

impl Counts {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Started { .. } => self.working += 1,
            Event::Ended { .. } => self.working = self.working.saturating_sub(1),
            Event::Settled { outcome, .. } => match outcome {
                Outcome::Complete { .. } => self.done += 1,
                Outcome::Retry { .. } => self.retried += 1,
                Outcome::Dead { .. } => self.dead += 1,
                _ => self.released += 1,
            },
            Event::Lost { outcome: Some(_), .. } => self.lost += 1,
            _ => {}
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { working, done, retried, dead, released, lost } = self;
        write!(formatter, "{working} in work, {done} done")?;
        for (count, word) in [(retried, "retried"), (dead, "dead"), (released, "released"), (lost, "lost")] {
            if *count > 0 {
                write!(formatter, ", {count} {word}")?;
            }
        }
        Ok(())
    }
}

fn print_lines(lines: &Receiver<Line>, watched: bool, prefix: String) {
    let bar = if watched { ProgressBar::no_length() } else { ProgressBar::hidden() };
    let style =
        ProgressStyle::with_template("{spinner} {prefix}: {msg}").expect("the template is a constant");
    let bar = bar.with_style(style).with_prefix(prefix);
    bar.enable_steady_tick(TICK);
    // Standard output itself is locked by the thread that prints the last word.
    let mut out = std::io::stdout().as_fd().try_clone_to_owned().map(File::from).ok();
    for line in lines {
        match line {
            Line::Text(text) => bar.suspend(|| tell(&text)),
            Line::Counts(text) => bar.set_message(text),
            // A reader that has gone is no reason to stop working.
            Line::Event(text) => {
                if out.as_mut().is_some_and(|out| out.write_all(text.as_bytes()).is_err()) {
                    out = None;
                }
            }
        }
    }
    bar.finish_and_clear();
}

/// The event as a line of a log, and whether it matters to whoever wants to hear little.
fn as_text(event: Event<'_>) -> Option<(String, bool)> {
    Some(match event {
        Event::Settled { id, outcome, took } => {
            let took = duration(took.as_secs_f64());
            let (word, reason) = match outcome {
                Outcome::Complete { .. } => return Some((format!("{id} done in {took}"), false)),
                Outcome::Retry { error, .. } => ("failed, to be tried again", error.as_str()),
                Outcome::Dead { error } => ("dead letter", error.as_str()),
                _ => ("given back", ""),
            };
            let colon = if reason.is_empty() { "" } else { ": " };
            (format!("{id} {word} after {took}{colon}{}", excerpt(reason, REASON_MAX)), true)
        }
        Event::Lost { id, outcome: None } => {
            (format!("{id} has lost its lease; its command is stopped"), true)
        }
        Event::Lost { id, outcome: Some(_) } => {
            (format!("{id} ended too late: its lease was over, and somebody else has it, or will"), true)
        }
        Event::Refused { id, reason } => (
            format!("{id} has an outcome that the server does not take: {}", excerpt(reason, REASON_MAX)),
            true,
        ),
        Event::Failed { request, error, pause } => {
            let pause = duration(pause.as_secs_f64());
            (format!("cannot {request}: {}; again in {pause}", excerpt(&error.to_string(), REASON_MAX)), true)
        }
        Event::Recovered => ("the server answers again".to_owned(), true),
        Event::Draining { working: 0 } => ("stopping".to_owned(), true),
        Event::Draining { working } => {
            let running = counted(u64::try_from(working).unwrap_or(u64::MAX), "command");
            (format!("stopping: waiting for {running}; a second Ctrl-C kills"), true)
        }
        _ => return None,
    })
}

/// The event as JSON.
fn as_json(event: Event<'_>) -> Option<Value> {
    Some(match event {
        Event::Started { message } => {
            json!({"event": "started", "id": message.id, "attempt": message.attempt, "deliveries": message.deliveries})
        }
        Event::Settled { id, outcome, took } => {
            let error = match outcome {
                Outcome::Retry { error, .. } | Outcome::Dead { error } => Some(error),
                _ => None,
            };
            let seconds = took.as_secs_f64();
            json!({"event": "settled", "id": id, "outcome": outcome.as_str(), "seconds": seconds, "error": error})
        }
        Event::Lost { id, outcome } => {
            json!({"event": "lost", "id": id, "outcome": outcome.map(Outcome::as_str)})
        }
        Event::Refused { id, reason } => json!({"event": "refused", "id": id, "reason": reason}),
        Event::Failed { request, error, pause } => {
            json!({"event": "failed", "request": request, "error": error.to_string(),
                "pause_seconds": pause.as_secs_f64()})
        }
        Event::Recovered => json!({"event": "recovered"}),
        Event::Draining { working } => json!({"event": "draining", "working": working}),
        _ => return None,
    })
}

/// The last word.
pub(super) fn print(
    queue: &Name,
    summary: &Summary,
    json: bool,
    events: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Summary { started, completed, retried, dead, released, lost, .. } = summary;
    let document = json!({"queue": queue.as_str(), "started": started, "completed": completed, "retried": retried,
        "dead": dead, "released": released, "lost": lost});
    if json {
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
    } else if events {
        let mut last = document;
        last["event"] = json!("ended");
        writeln!(out, "{last}")?;
    } else {
        let mut others = String::new();
        for (count, word) in [(retried, "retried"), (dead, "dead"), (released, "released"), (lost, "lost")] {
            if *count > 0 {
                let _ = write!(others, ", {count} {word}");
            }
        }
        writeln!(out, "{} of {queue} done{others}", counted(*completed, "message"))?;
    }
    Ok(())
}
