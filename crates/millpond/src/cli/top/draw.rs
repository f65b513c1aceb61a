//! What is known, as a picture.
//!
//! Owns the layout and the words. Must never change what is known, nor say anything by colour alone.

use super::detail;
use super::state::{Mode, Sort, State};
use super::wire::Target;
use crate::cli::render::{NONE, duration, line, per_second, size};
use millpond_api::types::Queue;
use millpond_sim::text::{count, number};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Sparkline, Table, TableState};

/// Smallest picture that tells anything.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 8;
/// From so many rows on, the selected queue is shown over time.
const ROWS_FOR_HISTORY: u16 = 18;
/// Most targets below the queues.
const TARGETS_MAX: usize = 6;

/// How things look: by colour where there are colours, else by weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    colour: bool,
    /// The picture is old.
    grey: bool,
}

impl Looks {
    pub(super) fn of(state: &State) -> Self {
        Self { colour: state.colour, grey: state.lost.is_some() && state.snapshot.is_some() }
    }

    fn in_colour(self, colour: Color) -> Style {
        if self.colour && !self.grey { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn plain(self) -> Style {
        match (self.grey, self.colour) {
            (true, true) => Style::new().fg(Color::DarkGray),
            (true, false) => Style::new().add_modifier(Modifier::DIM),
            (false, _) => Style::new(),
        }
    }

    pub(super) fn bad(self) -> Style {
        self.plain().patch(self.in_colour(Color::Red)).add_modifier(Modifier::BOLD)
    }

    pub(super) fn held(self) -> Style {
        self.plain().patch(self.in_colour(Color::Yellow))
    }

    fn curve(self) -> Style {
        self.plain().patch(self.in_colour(Color::Cyan))
    }

    pub(super) fn title(self) -> Style {
        self.plain().add_modifier(Modifier::BOLD)
    }
}

/// Draws everything.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    let looks = Looks::of(state);
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!("at least {COLUMNS_MIN} columns and {ROWS_MIN} rows");
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let targets = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.targets.len());
    let targets = if state.is_still { targets } else { targets.min(TARGETS_MAX) };
    let target_rows = u16::try_from(targets + 1).unwrap_or(u16::MAX);
    let target_rows = if targets == 0 || area.height < 12 + target_rows { 0 } else { target_rows };
    let history_rows = if area.height >= ROWS_FOR_HISTORY && !state.is_still { 6 } else { 0 };
    let [head, body, history, below, foot] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(history_rows),
        Constraint::Length(target_rows),
        Constraint::Length(u16::from(!state.is_still)),
    ])
    .areas(area);
    header(state, looks, frame, head);
    if let Mode::Detail(queue) = &state.mode {
        detail::draw(state, queue, looks, frame, body.union(history).union(below));
    } else {
        queues(state, looks, frame, body);
        if history_rows > 0 {
            over_time(state, looks, frame, history);
        }
        if target_rows > 0 {
            draw_targets(state, looks, frame, below);
        }
    }
    if !state.is_still {
        frame.render_widget(Paragraph::new(footer(state, looks)), foot);
    }
    if state.mode == Mode::Help {
        help(looks, frame, area);
    }
}

fn header(state: &State, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let empty = Vec::new();
    let queues = state.snapshot.as_ref().map_or(&empty, |snapshot| &snapshot.queues);
    let sum = |value: fn(&Queue) -> u64| count(queues.iter().map(value).sum());
    let speed = |value: fn(&Queue) -> f64| rate(queues.iter().map(value).sum());
    let mut first = vec![
        Span::styled("millpond top", looks.title()),
        Span::styled(format!("  {}", line(&state.server)), looks.plain()),
    ];
    let mut third = Line::default();
    match &state.lost {
        Some(lost) => {
            let since = duration(state.now.saturating_sub(lost.since).as_secs_f64());
            let loud = Looks { grey: false, ..looks }.bad();
            let told = if since == "0ms" { String::new() } else { format!(" for {since}") };
            third = Line::styled(format!("no answer{told}, trying on: {}", line(&lost.error)), loud);
        }
        None if state.snapshot.is_none() => first.push(Span::styled("  looking …", looks.plain())),
        None => {}
    }
    let totals = format!(
        "{} ready, {} in work, {} later, {} dead, {}; {}/s in, {}/s out",
        sum(|queue| queue.stats.ready),
        sum(|queue| queue.stats.leased),
        sum(|queue| queue.stats.delayed + queue.stats.backoff),
        sum(|queue| queue.stats.dead),
        size(queues.iter().map(|queue| queue.stats.bytes).sum()),
        speed(|queue| queue.stats.arrivals_per_second),
        speed(|queue| queue.stats.completions_per_second),
    );
    let lines = vec![Line::from(first), Line::styled(totals, looks.plain()), third];
    frame.render_widget(Paragraph::new(lines), area);
}

/// A column: its title, width, and from which width of the picture on it is shown.
struct Column {
    title: &'static str,
    width: u16,
    from: u16,
    cell: fn(&Queue) -> String,
}

const COLUMNS: [Column; 12] = [
    Column { title: "READY", width: 9, from: 0, cell: |queue| count(queue.stats.ready) },
    Column { title: "WORK", width: 5, from: 60, cell: |queue| count(queue.stats.leased) },
    Column {
        title: "LATER",
        width: 8,
        from: 104,
        cell: |queue| count(queue.stats.delayed + queue.stats.backoff),
    },
    Column { title: "DEAD", width: 6, from: 52, cell: |queue| count(queue.stats.dead) },
    Column { title: "IN/S", width: 7, from: 64, cell: |queue| rate(queue.stats.arrivals_per_second) },
    Column { title: "OUT/S", width: 7, from: 72, cell: |queue| rate(queue.stats.completions_per_second) },
    Column { title: "OLDEST", width: 8, from: 0, cell: oldest },
    Column { title: "WAIT", width: 8, from: 80, cell: |queue| span(queue.stats.predicted_wait_seconds) },
    Column { title: "DRAIN", width: 8, from: 92, cell: drain },
    Column { title: "USED", width: 6, from: 112, cell: used },
    Column { title: "KEPT", width: 6, from: 120, cell: |queue| share(queue.stats.promise_kept_ratio) },
    Column { title: "WANTED", width: 7, from: 132, cell: wanted },
];

/// A rate in a column: whole, or with one digit where that says more.
fn rate(per_second: f64) -> String {
    let rounded = if per_second < 9.95 { (per_second * 10.0).round() / 10.0 } else { per_second.round() };
    number(rounded)
}

fn oldest(queue: &Queue) -> String {
    let stats = &queue.stats;
    let unfinished = stats.ready + stats.leased + stats.delayed + stats.backoff;
    if unfinished == 0 { NONE.to_owned() } else { duration(stats.oldest_age_seconds) }
}

pub(super) fn span(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| NONE.to_owned(), duration)
}

pub(super) fn drain(queue: &Queue) -> String {
    match queue.stats.drain_seconds {
        Some(seconds) if seconds <= 0.0 => NONE.to_owned(),
        None if queue.stats.capacity_per_second > 0.0 => "never".to_owned(),
        drain => span(drain),
    }
}

pub(super) fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{:.0}%", ratio * 100.0))
}

pub(super) fn used(queue: &Queue) -> String {
    share(Some(queue.stats.utilization).filter(|_| queue.stats.capacity_per_second > 0.0))
}

pub(super) fn wanted(queue: &Queue) -> String {
    match queue.stats.workers_ceiling {
        0 => count(queue.stats.workers_wanted),
        ceiling => format!("{}/{}", count(queue.stats.workers_wanted), count(ceiling)),
    }
}

/// The word for how a queue is, and how that looks.
pub(super) fn standing(queue: &Queue, looks: Looks) -> (String, Style) {
    if let Some(held) = &queue.held {
        let word = match held.as_str() {
            "paused" => return ("paused".to_owned(), looks.held()),
            "dead-burst" => "dead burst".to_owned(),
            "dead-letters-full" => "dead full".to_owned(),
            "storage-full" => "disk full".to_owned(),
            other => line(other),
        };
        return (word, looks.bad());
    }
    match (queue.paused, queue.stats.insurmountable) {
        (true, _) => ("paused".to_owned(), looks.held()),
        (false, 1) => ("too much".to_owned(), looks.bad()),
        _ => ("running".to_owned(), looks.plain()),
    }
}

fn queues(state: &State, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let shown = state.shown();
    if shown.is_empty() {
        let text = match (&state.snapshot, state.filter.is_empty()) {
            (None, _) => "",
            (Some(_), true) => "There are no queues. Create one: millpond queues create jobs",
            (Some(_), false) => "No queue's name has that in it; Esc shows all.",
        };
        frame.render_widget(Paragraph::new(text).style(looks.plain()), area);
        return;
    }
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| area.width >= column.from).collect();
    let fixed: u16 = columns.iter().map(|column| column.width + 1).sum();
    let curve = area.width.saturating_sub(fixed + 20 + 18 + 2).min(40);
    let curve = if curve < 10 || state.is_still { 0 } else { curve };
    let rows = shown.iter().map(|queue| row(state, queue, &columns, curve, looks));
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(columns.iter().map(|column| Constraint::Length(column.width)));
    widths.push(Constraint::Length(10));
    let mut titles = vec![Line::from("QUEUE")];
    titles.extend(columns.iter().map(|column| {
        Line::from(format!("{}{}", column.title, sorted(state.sort, column.title)))
            .alignment(Alignment::Right)
    }));
    titles.push(Line::from("STATE"));
    if curve > 0 {
        widths.push(Constraint::Length(curve));
        titles.push(Line::from("READY, LATELY"));
    }
    let table = Table::new(rows, widths)
        .header(Row::new(titles).style(looks.title()))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection = TableState::new().with_selected(state.selected_place());
    frame.render_stateful_widget(table, area, &mut selection);
}

fn sorted(sort: Sort, title: &str) -> &'static str {
    let is_sorted = matches!(
        (sort, title),
        (Sort::Ready, "READY") | (Sort::Oldest, "OLDEST") | (Sort::Arrivals, "IN/S") | (Sort::Dead, "DEAD")
    );
    if is_sorted { "↓" } else { "" }
}

fn row<'a>(state: &State, queue: &Queue, columns: &[&Column], curve: u16, looks: Looks) -> Row<'a> {
    let (word, style) = standing(queue, looks);
    let mut cells = vec![Line::from(line(&queue.name))];
    cells.extend(columns.iter().map(|column| Line::from((column.cell)(queue)).alignment(Alignment::Right)));
    cells.push(Line::styled(word, style));
    if curve > 0 {
        let depth = state.history.get(&queue.name).map(|history| &history.depth);
        let depth: Vec<u64> = depth.into_iter().flatten().copied().collect();
        cells.push(Line::styled(bars(&depth, usize::from(curve)), looks.curve()));
    }
    let is_alarming = queue.stats.insurmountable == 1;
    Row::new(cells).style(if is_alarming { looks.bad() } else { looks.plain() })
}

/// The latest values as bars of one line, the newest at the right.
fn bars(values: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let latest = &values[values.len().saturating_sub(width)..];
    let most = latest.iter().copied().max().unwrap_or(0).max(1);
    let bar = |value: &u64| {
        let place = (u128::from(*value) * 7).div_ceil(u128::from(most));
        BARS[usize::try_from(place).unwrap_or(7).min(7)]
    };
    let drawn: String = latest.iter().map(bar).collect();
    format!("{}{drawn}", " ".repeat(width - latest.len()))
}

fn over_time(state: &State, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let Some(queue) = state.selected_queue() else { return };
    let name = line(&queue.name);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let history = state.history.get(&queue.name);
    let curves = [
        (
            left,
            format!(" {name}: {} ready ", count(queue.stats.ready)),
            history.map(|history| &history.depth),
        ),
        (right, format!(" oldest: {} ", oldest(queue)), history.map(|history| &history.age)),
    ];
    for (area, title, values) in curves {
        let block = Block::new().borders(Borders::TOP).title(title).style(looks.plain());
        let inner = usize::from(block.inner(area).width);
        let values: Vec<u64> = values.into_iter().flatten().copied().collect();
        // The newest value stands at the right from the first one on.
        let mut data = vec![0; inner.saturating_sub(values.len())];
        data.extend(&values[values.len().saturating_sub(inner)..]);
        frame.render_widget(Sparkline::default().block(block).data(data).style(looks.curve()), area);
    }
}

fn draw_targets(state: &State, looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let Some(snapshot) = &state.snapshot else { return };
    let row = |target: &Target| {
        let (word, style) = target_standing(target, looks);
        let cells = [
            line(&target.name),
            format!("{}/{}", count(target.inflight), count(target.limit)),
            count(target.concurrency),
            target.rate_per_second.map_or_else(|| NONE.to_owned(), per_second),
        ];
        let mut cells: Vec<Line<'_>> = cells.into_iter().map(Line::from).collect();
        for cell in &mut cells[1..] {
            cell.alignment = Some(Alignment::Right);
        }
        cells.push(Line::styled(word, style));
        cells.push(Line::from(target.queues.iter().map(|queue| line(queue)).collect::<Vec<_>>().join(", ")));
        Row::new(cells).style(looks.plain())
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(26),
        Constraint::Fill(1),
    ];
    let right = |title: &'static str| Line::from(title).alignment(Alignment::Right);
    let titles = [
        Line::from("TARGET"),
        right("IN FLIGHT"),
        right("CAP"),
        right("RATE"),
        Line::from("STATE"),
        Line::from("QUEUES"),
    ];
    let rows = usize::from(area.height.saturating_sub(1));
    let table = Table::new(snapshot.targets.iter().take(rows).map(row), widths)
        .header(Row::new(titles).style(looks.title()))
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn target_standing(target: &Target, looks: Looks) -> (String, Style) {
    let probe = target.next_probe_seconds.map(|seconds| format!(", next try in {}", duration(seconds)));
    match target.state.as_str() {
        "open" => (format!("down{}", probe.unwrap_or_default()), looks.bad()),
        "half-open" => ("being tried".to_owned(), looks.held()),
        _ if target.paused_seconds > 0.0 => {
            (format!("asked for {}", duration(target.paused_seconds)), looks.held())
        }
        _ => ("up".to_owned(), looks.plain()),
    }
}

fn footer(state: &State, looks: Looks) -> Line<'static> {
    if let Mode::Filter = state.mode {
        return Line::from(format!("/{}▏ Enter keeps it, Esc shows all", line(&state.filter)));
    }
    if let Some((text, is_bad, _)) = &state.notice {
        let style = if *is_bad { Looks { grey: false, ..looks }.bad() } else { Style::new() };
        let ask = if matches!(state.mode, Mode::Confirm(_)) { " [y/N]" } else { "" };
        return Line::styled(format!("{}{ask}", line(text)), style.add_modifier(Modifier::BOLD));
    }
    let keys = match state.mode {
        Mode::Detail(_) => "Esc back  j/k other queue  p pause  r resume  R replay dead letters  ? help",
        _ => "j/k  Enter closer  s sort  / filter  p pause  r resume  R replay  ? help  q quit",
    };
    let filter = if state.filter.is_empty() { String::new() } else { format!("[{}] ", line(&state.filter)) };
    Line::styled(format!("{filter}{keys}"), looks.plain())
}

const HELP: &str = "\
↑ ↓ j k      select; g G first and last
Enter        look closer: numbers, failures, dead letters
s            sort by name, ready, oldest, arrivals, dead
/            show only queues with a text in their name
p r          pause, resume the queue
R            put its dead letters back to work, at a pace
q Esc        leave; Ctrl-C too

READY        may be handed out      WORK   somebody has it
LATER        delayed or failed      DEAD   given up
IN/S OUT/S   come and go            OLDEST since it was due
WAIT         of a message that comes now
DRAIN        until nothing waits; never: too much comes
USED         arrivals ÷ capacity    KEPT   promises kept
WANTED       workers for the promise / ceiling";

fn help(looks: Looks, frame: &mut Frame<'_>, area: Rect) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX).saturating_add(2);
    let (width, height) = (62.min(area.width), lines.min(area.height));
    let window = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    let block = Block::bordered().title(" Keys and columns ").style(looks.plain());
    frame.render_widget(Clear, window);
    frame.render_widget(Paragraph::new(HELP).block(block), window);
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn bars_end_with_the_newest_value_and_reach_the_top_with_the_largest() {
        assert_eq!(bars(&[], 3), "   ");
        assert_eq!(bars(&[0, 0], 3), " ▁▁");
        assert_eq!(bars(&[9, 0, 1, 4, 8], 4), "▁▂▅█");
        assert_eq!(bars(&[u64::MAX, 1], 2), "█▂");
    }
}
