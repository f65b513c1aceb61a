//! One queue from near: its numbers, and what goes wrong in it.
//!
//! Owns that picture. Must never show a body: others may be looking over the shoulder.

use super::draw::{Looks, drain, share, span, standing, used, wanted};
use super::state::State;
use crate::cli::render::{NONE, duration, excerpt, line, per_second, size};
use millpond_api::types::{MessageStatus, Queue};
use millpond_sim::text::count;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

/// Characters of an id that are shown: enough to find it in a list.
const ID_CHARACTERS: usize = 13;
const ERROR_CHARACTERS: usize = 300;

/// Draws a queue from near.
pub(super) fn draw(state: &State, name: &str, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let Some(queue) = state.queue(name) else {
        let gone = format!("The queue {} is not there any more; Esc goes back.", line(name));
        frame.render_widget(Paragraph::new(gone), area);
        return;
    };
    let facts = facts(queue, looks);
    let columns = if area.width >= 76 { 2 } else { 1 };
    let rows = facts.len().div_ceil(columns);
    let [top, bottom] = Layout::vertical([
        Constraint::Length(u16::try_from(rows + 1).unwrap_or(u16::MAX)),
        Constraint::Min(2),
    ])
    .areas(area);
    let block = Block::new().borders(Borders::TOP).title(format!(" {} ", line(name))).style(looks.plain());
    let inner = block.inner(top);
    frame.render_widget(block, top);
    let parts = Layout::horizontal(vec![Constraint::Fill(1); columns]).split(inner);
    for (part, facts) in parts.iter().zip(facts.chunks(rows.max(1))) {
        let lines: Vec<Line<'_>> = facts
            .iter()
            .map(|(name, value, style)| {
                Line::from(vec![
                    Span::styled(format!("{name:<14}"), looks.plain()),
                    Span::styled(value.clone(), *style),
                ])
            })
            .collect();
        frame.render_widget(Paragraph::new(lines), *part);
    }
    draw_troubles(state, name, looks, frame, bottom);
}

type Fact = (&'static str, String, Style);

fn facts(queue: &Queue, looks: Looks) -> Vec<Fact> {
    let stats = &queue.stats;
    let (word, style) = standing(queue, looks);
    let plain = |name, value: String| (name, value, looks.plain());
    vec![
        ("state", word, style),
        plain("ready", format!("{} ({})", count(stats.ready), size(stats.bytes))),
        plain("in work", count(stats.leased)),
        plain("later", format!("{} delayed, {} failed", count(stats.delayed), count(stats.backoff))),
        plain("dead", count(stats.dead)),
        plain(
            "oldest",
            format!(
                "{}; in work {}",
                duration(stats.oldest_age_seconds),
                duration(stats.oldest_leased_age_seconds)
            ),
        ),
        plain("comes", per_second(stats.arrivals_per_second)),
        plain("goes", per_second(stats.completions_per_second)),
        plain("can do", format!("{} ({} used)", per_second(stats.capacity_per_second), used(queue))),
        plain("each takes", span(Some(stats.service_time_seconds).filter(|seconds| *seconds > 0.0))),
        plain("wait now", span(stats.predicted_wait_seconds)),
        plain("drained in", drain(queue)),
        plain("promises kept", share(stats.promise_kept_ratio)),
        plain("workers", format!("{}, wanted {}", count(stats.workers), wanted(queue))),
        plain(
            "refused",
            format!(
                "{} of {}",
                count(stats.refused_total),
                count(stats.refused_total + stats.accepted_total)
            ),
        ),
        plain("done", count(stats.completed_total)),
    ]
}

fn draw_troubles(state: &State, name: &str, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(" What goes wrong ").style(looks.plain());
    let lines = match &state.troubles {
        Some((queue, troubles)) if queue == name => {
            let failing = troubles.failing.iter().map(|message| ("tried again", message));
            let dead = troubles.dead.iter().map(|message| ("dead", message));
            let lines: Vec<Line<'_>> =
                failing.chain(dead).map(|(word, message)| trouble(word, message)).collect();
            if lines.is_empty() { vec![Line::from("Nothing.")] } else { lines }
        }
        _ => vec![Line::from("looking …")],
    };
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn trouble(word: &str, message: &MessageStatus) -> Line<'static> {
    let id: String = message.id.chars().take(ID_CHARACTERS).collect();
    let error = message.last_error.as_ref().map_or_else(
        || message.dead_reason.clone().unwrap_or_else(|| NONE.to_owned()),
        |error| error.message.clone(),
    );
    let error = excerpt(&error, ERROR_CHARACTERS);
    let tries = match message.attempts {
        1 => "1 try".to_owned(),
        tries => format!("{tries} tries"),
    };
    Line::from(format!("{word:<12}{id}…  {tries:<9} {}", line(&error)))
}
