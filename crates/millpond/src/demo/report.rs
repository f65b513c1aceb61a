//! The report of a run, for people: the two ways side by side, and what happened in a few sentences.
//!
//! Owns the wording and the table. Must never compute a figure or print: it words what the outcome holds.
//! `simulate` words its outcome with it as well.

use crate::cli::render::wrapped;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use millpond_sim::chart::{self, Series};
use millpond_sim::outcome::Comparison;
use millpond_sim::plan::Plan;
use millpond_sim::text;
use millpond_sim::workload::Scenario;

const NONE: &str = "–";
/// Columns of every terminal: the report is not wider, wherever it goes.
const COLUMNS: usize = 80;

/// All that people are shown of a run.
pub(crate) fn page(scenario: &Scenario, seen: &Comparison, plan: &Plan, series: &Series) -> String {
    [
        wrapped(&format!("{}: {}", scenario.name, scenario.summary)),
        table(scenario, seen, plan) + "\n",
        chart::terminal(series, COLUMNS) + "\n",
        wrapped(&story(scenario, seen)),
    ]
    .join("\n")
}

/// The table of both ways, with what the planner had said in the last column.
fn table(scenario: &Scenario, seen: &Comparison, plan: &Plan) -> String {
    let rule = LineStyle::none().fill('─').junction('─');
    let mut table = Table::new();
    table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
    table.set_header(["", "called directly", "through the queue", "planned"]);
    table.add_rows(call_rows(seen));
    table.add_rows(queue_rows(scenario, seen, plan));
    for index in 0..=3 {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, u16::from(index < 3)));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.trim_fmt()
}

type Row = [String; 4];

fn row(name: &str, direct: Option<String>, queued: Option<String>, planned: Option<String>) -> Row {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    [name.to_owned(), or_none(direct), or_none(queued), or_none(planned)]
}

fn call_rows(seen: &Comparison) -> Vec<Row> {
    let (direct, queued) = (&seen.direct, &seen.queued);
    let count = |value: u64| Some(text::count(value));
    let mut rows = vec![
        row("calls of the spike", count(direct.offered), count(queued.offered), count(queued.offered)),
        row("… answered in time", count(direct.answered_in_time), None, None),
        row("… accepted with 202", None, count(queued.accepted), count(queued.offered)),
        row("… given up by their caller", count(direct.timed_out), count(0), count(0)),
        row("… refused", None, count(queued.rejected), count(0)),
        row("… done, once and only once", None, count(queued.completed), count(queued.offered)),
        row("normal calls beside it", count(direct.normal_offered), None, None),
        row("… given up by their caller", count(direct.normal_timed_out), None, None),
    ];
    if direct.failed + queued.failed > 0 {
        rows.insert(5, row("… failed", count(direct.failed), count(queued.failed), count(0)));
    }
    if queued.duplicates > 0 {
        rows.push(row("done more than once", None, count(queued.duplicates), count(0)));
    }
    rows
}

fn queue_rows(scenario: &Scenario, seen: &Comparison, plan: &Plan) -> Vec<Row> {
    let (direct, queued) = (&seen.direct, &seen.queued);
    let count = |value: u64| Some(text::count(value));
    let seconds = |value: f64| Some(text::seconds(value));
    let drain = |value: Option<f64>| Some(value.map_or_else(|| "never".to_owned(), text::seconds));
    let wait = seconds(plan.longest_wait_seconds);
    let mut rows = vec![
        row(
            "most waiting at once",
            count(direct.peak_waiting),
            count(queued.peak_depth),
            Some(text::number(plan.backlog_peak)),
        ),
        row(
            "oldest when the spike ended",
            None,
            seconds(queued.spike_end_age_seconds),
            seconds(plan.spike_end_age_seconds),
        ),
        row("oldest at its highest", None, seconds(queued.peak_age_seconds), wait.clone()),
        row("longest wait at the backend", None, seconds(queued.longest_wait_seconds), wait),
        row("nothing waits any more after", None, drain(queued.drain_seconds), drain(plan.drain_seconds)),
    ];
    if let (Some(p50), Some(p99)) = (queued.accept_p50_seconds, queued.accept_p99_seconds) {
        rows.push(row(
            "202 within (median / 99 %)",
            None,
            Some(format!("{} / {}", text::seconds(p50), text::seconds(p99))),
            None,
        ));
    }
    let slots = format!("{} at most", scenario.slots);
    rows.push(row("most in work at once", None, count(queued.peak_in_flight), Some(slots)));
    rows
}

/// What happened, a sentence a line.
fn story(scenario: &Scenario, seen: &Comparison) -> String {
    let (direct, queued) = (&seen.direct, &seen.queued);
    let timeout = text::seconds(scenario.caller_timeout.as_secs_f64());
    let mut sentences = vec![format!(
        "Called directly, {} of {} callers gave up after {timeout}, and the backend went on working for them{}.",
        text::count(direct.timed_out),
        text::count(direct.offered),
        match direct.normal_timed_out {
            0 => String::new(),
            normal => format!(", so that {} normal calls after the spike failed too", text::count(normal)),
        }
    )];
    let within =
        queued.accept_p99_seconds.map_or_else(String::new, |p99| format!(" within {}", text::seconds(p99)));
    sentences.push(format!(
        "Through the queue {} of {} were accepted{within} and {} done, at the pace the backend can stand.",
        text::count(queued.accepted),
        text::count(queued.offered),
        text::count(queued.completed)
    ));
    if let Some(drain) = queued.drain_seconds {
        sentences.push(format!(
            "The last ones waited {}; {} after the spike nothing waited any more.",
            text::seconds(queued.longest_wait_seconds.max(queued.peak_age_seconds)),
            text::seconds(drain)
        ));
    }
    sentences.push("The queue moved the load in time; it made no capacity.".to_owned());
    sentences.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{page, story, table};
    use millpond_sim::chart::{Sample, Series};
    use millpond_sim::outcome::{Comparison, DirectOutcome, QueuedOutcome};
    use millpond_sim::plan::plan;
    use millpond_sim::workload::Scenario;

    fn leveling() -> Comparison {
        Comparison {
            scenario: "leveling",
            direct: DirectOutcome {
                offered: 30,
                answered_in_time: 10,
                timed_out: 20,
                ..DirectOutcome::default()
            },
            queued: QueuedOutcome {
                offered: 30,
                accepted: 30,
                completed: 30,
                peak_depth: 20,
                peak_age_seconds: 4.05,
                longest_wait_seconds: 4.0,
                drain_seconds: Some(9.8),
                accept_p50_seconds: Some(0.0012),
                accept_p99_seconds: Some(0.0041),
                ..QueuedOutcome::default()
            },
        }
    }

    #[test]
    fn the_table_puts_both_ways_and_the_plan_side_by_side() {
        let scenario = Scenario::leveling();
        let text = table(&scenario, &leveling(), &plan(&scenario.plan_input()).unwrap());
        for expected in ["9.8 s", "10 s", "1.2 ms / 4.1 ms", "through the queue"] {
            assert!(text.contains(expected), "{expected} is missing\n{text}");
        }
        for (name, cells) in
            [("calls of the spike", ["30", "30", "30"]), ("… answered in time", ["10", "–", "–"])]
        {
            let line = text.lines().find(|line| line.trim().starts_with(name)).unwrap();
            assert!(line.split_whitespace().rev().take(3).eq(cells.into_iter().rev()), "{line}");
        }
    }

    #[test]
    fn the_page_fits_a_terminal_of_80_columns_however_large_the_figures_are() {
        let million = 1_350_000;
        for (scenario, scale) in [(Scenario::leveling(), 1), (Scenario::enrollment(1).unwrap(), million)] {
            let mut seen = leveling();
            let (direct, queued) = (&mut seen.direct, &mut seen.queued);
            for count in [&mut direct.offered, &mut direct.timed_out, &mut direct.normal_offered] {
                *count = scale;
            }
            direct.normal_timed_out = scale / 2;
            for count in [&mut queued.offered, &mut queued.accepted, &mut queued.completed] {
                *count = scale;
            }
            queued.drain_seconds = Some(40_271.0);
            (queued.accept_p50_seconds, queued.accept_p99_seconds) = (Some(0.1234), Some(0.9876));
            let series = Series {
                title: String::new(),
                spike_start_seconds: 1.0,
                spike_end_seconds: 2.0,
                samples: vec![Sample { at_seconds: 3.0, backlog: 900_000.0, ..Sample::default() }],
            };
            let plan = plan(&scenario.plan_input()).unwrap();
            let page = page(&scenario, &seen, &plan, &series);
            for line in page.lines() {
                assert!(line.chars().count() <= 80, "{line}\n{page}");
            }
        }
    }

    #[test]
    fn the_story_tells_both_halves() {
        let text = story(&Scenario::leveling(), &leveling());
        assert!(text.contains("20 of 30 callers gave up after 1.5 s"), "{text}");
        assert!(text.contains("30 of 30 were accepted within 4.1 ms and 30 done"), "{text}");
        assert!(text.contains("9.8 s after the spike nothing waited"), "{text}");
    }
}
