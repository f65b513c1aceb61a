//! `millpond top`: queues and targets live in the terminal.
//!
//! Owns the arguments, and the one picture for scripts. Must never draw where nobody can see it.

mod detail;
mod draw;
mod live;
mod state;
mod wire;

use super::connection::{Connection, HEADING};
use super::failure::Failure;
use clap::Args;
use millpond_config::quantity::parse_duration;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use state::{Event, State, update};
use std::io::{IsTerminal as _, Write};
use std::time::Duration;

/// Size of the one picture, where the terminal does not say.
const COLUMNS: u16 = 120;
/// Rows of the one picture beside those of queues and targets.
const ROWS_AROUND: u16 = 8;
/// It is no longer than this.
const ROWS_MAX: u16 = 1_000;

/// Watch queues and targets live
///
/// Shows per queue what waits, is at work, failed and died, what comes and goes per second, how late the oldest message
/// is, how long a new one will wait, and whether the queue drains; below, the selected queue over time, and the targets.
/// A queue that gets more than it can do for longer than its promise is red. Keys: arrows or j and k select, Enter looks
/// closer, s sorts, / filters, p pauses, r resumes, R replays dead letters (each asks first), ? helps, q quits.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond top\n  \
        millpond top --interval 5s --url http://127.0.0.1:9090\n  \
        millpond top --once | head -20")]
pub(crate) struct Top {
    #[command(flatten)]
    connection: Connection,
    /// How often to look; from 100ms to 1h
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = interval, help_heading = HEADING)]
    interval: Duration,
    /// Print one picture as plain text, and end
    #[arg(long, help_heading = HEADING)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval =
        parse_duration(text).map_err(|error| format!("{}; {}", error.problem(), error.advice()))?;
    let is_sensible = (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval);
    if is_sensible { Ok(interval) } else { Err("must lie between 100ms and 1h".to_owned()) }
}

impl Top {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let state = State::new(client.address(), self.interval, has_colour());
        if self.once {
            let snapshot = wire::snapshot(&client).await?;
            return Ok(write!(out, "{}", picture(state, snapshot)?)?);
        }
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Failure::usage(
                "top draws on a terminal, and this is none",
                "millpond top --once prints one picture as plain text; millpond queues --json is for programs",
            ));
        }
        live::run(client, state).await
    }
}

/// Whether the terminal shall have colours; see no-color.org.
fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Everything at once, as plain text.
fn picture(mut state: State, snapshot: wire::Snapshot) -> Result<String, Failure> {
    let rows = u16::try_from(snapshot.queues.len() + snapshot.targets.len()).unwrap_or(ROWS_MAX);
    let rows = rows.saturating_add(ROWS_AROUND).min(ROWS_MAX);
    update(&mut state, Event::Polled { at: Duration::ZERO, result: Ok(snapshot) });
    state.make_still();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(COLUMNS);
    let failed = |error: std::convert::Infallible| Failure::new(error.to_string(), "");
    let mut terminal = Terminal::new(TestBackend::new(columns.clamp(40, 400), rows)).map_err(failed)?;
    terminal.draw(|frame| draw::draw(&state, frame)).map_err(failed)?;
    Ok(text(terminal.backend().buffer()))
}

/// The characters of a buffer, line by line, without blanks at the ends.
fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width.max(1));
    let mut lines: Vec<String> = buffer
        .content
        .chunks(width)
        .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned())
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests;
