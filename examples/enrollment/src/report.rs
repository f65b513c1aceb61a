//! The report: the runs side by side, and what must not have been.
//!
//! Owns wording, table and document. Must never compute what was not seen, except in the column that says so.

use crate::callers::{Calls, Count, Failure};
use crate::chaos::Victim;
use crate::check::Verdict;
use crate::options::Options;
use crate::runs::{QueueSeen, Seen};
use crate::service::Refusal;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use millpond_sim::plan::Plan;
use millpond_sim::text;
use serde::Serialize;

const NONE: &str = "–";

/// All runs that were made.
pub(crate) struct Report {
    /// Called directly.
    pub(crate) direct: Option<Seen>,
    /// Through Millpond.
    pub(crate) queued: Option<Seen>,
    /// Through Millpond, with kills.
    pub(crate) chaos: Option<Seen>,
    /// What the planner had said.
    pub(crate) planned: Plan,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    scenario: &'static str,
    planned: &'a Plan,
    direct: Option<Run>,
    queued: Option<Run>,
    chaos: Option<Run>,
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Run {
    offered: u64,
    accepted: u64,
    too_many_connections: u64,
    pool_timeouts: u64,
    database_away: u64,
    timed_out: u64,
    failed_otherwise: u64,
    tries_repeated: u64,
    accept_p50_seconds: Option<f64>,
    accept_p99_seconds: Option<f64>,
    latest_start_seconds: f64,
    connections_peak: i64,
    table: Verdict,
    queue: Option<QueueRun>,
}

#[derive(Debug, Serialize)]
struct QueueRun {
    peak_depth: u64,
    peak_age_seconds: f64,
    capacity_per_second: f64,
    drain_seconds: f64,
    drain_computed_seconds: Option<f64>,
    dead: u64,
    repetitions: i64,
    kills: Vec<Killed>,
}

#[derive(Debug, Serialize)]
struct Killed {
    victim: Victim,
    at_seconds: f64,
    down_seconds: f64,
}

/// What a run comes to, in the figures of the report.
struct Figures<'a> {
    seen: &'a Seen,
    normal_per_second: f64,
}

impl Figures<'_> {
    fn of(&self, is: impl Fn(&Failure) -> bool) -> u64 {
        let Calls { spike, normal, .. } = &self.seen.calls;
        let failed = spike.failed.iter().chain(&normal.failed);
        failed.filter(|(failure, _)| is(failure)).map(|(_, count)| count).sum()
    }

    fn refused(&self, refusal: Refusal) -> u64 {
        self.of(|failure| *failure == Failure::Refused(refusal))
    }

    fn timed_out(&self) -> u64 {
        self.of(|failure| *failure == Failure::TimedOut)
    }

    fn otherwise(&self) -> u64 {
        self.of(|_| true)
            - self.refused(Refusal::TooManyConnections)
            - self.refused(Refusal::PoolTimeout)
            - self.refused(Refusal::DatabaseAway)
            - self.timed_out()
    }

    /// What was waiting when the spike ended, divided by what was left of the capacity that was measured then.
    fn drain_computed_seconds(&self, queue: &QueueSeen) -> Option<f64> {
        let surplus = queue.at_spike_end.capacity_per_second - self.normal_per_second;
        (surplus > 0.0).then(|| queue.at_spike_end.ready as f64 / surplus)
    }

    fn run(&self) -> Run {
        let Calls { spike, normal, .. } = &self.seen.calls;
        let sum = |of: fn(&Count) -> u64| of(spike) + of(normal);
        let queue = self.seen.queue.as_ref().map(|queue| QueueRun {
            peak_depth: queue.depth_peak,
            peak_age_seconds: queue.age_peak_seconds,
            capacity_per_second: queue.at_spike_end.capacity_per_second,
            drain_seconds: queue.drain_seconds,
            drain_computed_seconds: self.drain_computed_seconds(queue),
            dead: queue.dead,
            repetitions: queue.repetitions,
            kills: queue
                .kills
                .iter()
                .map(|(kill, down)| Killed {
                    victim: kill.victim,
                    at_seconds: kill.at.as_secs_f64(),
                    down_seconds: down.as_secs_f64(),
                })
                .collect(),
        });
        Run {
            offered: sum(|count| count.offered),
            accepted: sum(|count| count.accepted),
            too_many_connections: self.refused(Refusal::TooManyConnections),
            pool_timeouts: self.refused(Refusal::PoolTimeout),
            database_away: self.refused(Refusal::DatabaseAway),
            timed_out: self.timed_out(),
            failed_otherwise: self.otherwise(),
            tries_repeated: self.seen.calls.repeated,
            accept_p50_seconds: self.seen.calls.latency_seconds(0.5),
            accept_p99_seconds: self.seen.calls.latency_seconds(0.99),
            latest_start_seconds: self.seen.calls.latest_start.as_secs_f64(),
            connections_peak: self.seen.connections_peak,
            table: self.seen.verdict,
            queue,
        }
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.seen.verdict.faults();
        let run = self.run();
        if let Some(queue) = run.queue {
            if run.accepted != run.offered {
                faults.push(format!("{} registrations were not accepted", run.offered - run.accepted));
            }
            if queue.dead > 0 {
                faults.push(format!("{} messages were given up", queue.dead));
            }
            if run.table.unanswered > 0 {
                faults.push(format!(
                    "{} registrations are in the table that nobody was told of",
                    run.table.unanswered
                ));
            }
        }
        if run.connections_peak > i64::from(Options::CONNECTIONS) {
            faults.push(format!("{} connections at once", run.connections_peak));
        }
        faults
    }
}

impl Report {
    fn runs(&self) -> [(&'static str, Option<&Seen>); 3] {
        [
            ("called directly", self.direct.as_ref()),
            ("through Millpond", self.queued.as_ref()),
            ("… with kills", self.chaos.as_ref()),
        ]
    }

    /// What must not have been, each with the run in which it was.
    pub(crate) fn faults(&self, options: &Options) -> Vec<String> {
        let of = |(name, seen): (&str, Option<&Seen>)| {
            let faults = seen.map(|seen| figures(seen, options).faults()).unwrap_or_default();
            faults.into_iter().map(|fault| format!("{name}: {fault}")).collect::<Vec<_>>()
        };
        self.runs().into_iter().flat_map(of).collect()
    }

    /// The document of `--json`.
    pub(crate) fn document(&self, options: &Options) -> Document<'_> {
        let run = |seen: &Option<Seen>| seen.as_ref().map(|seen| figures(seen, options).run());
        Document {
            scenario: "enrollment",
            planned: &self.planned,
            direct: run(&self.direct),
            queued: run(&self.queued),
            chaos: run(&self.chaos),
            faults: self.faults(options),
        }
    }

    /// The table for people.
    pub(crate) fn table(&self, options: &Options) -> String {
        let made: Vec<(&str, Run)> = self
            .runs()
            .into_iter()
            .filter_map(|(name, seen)| Some((name, figures(seen?, options).run())))
            .collect();
        let rule = LineStyle::none().fill('─').junction('─');
        let mut table = Table::new();
        table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
        let header = made.iter().map(|(name, _)| (*name).to_owned());
        table.set_header(std::iter::once(String::new()).chain(header).chain(["planned".to_owned()]));
        for Line { name, value, planned } in lines(&self.planned) {
            let cells: Vec<Option<String>> = made.iter().map(|(_, run)| value(run)).collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let cells =
                cells.into_iter().chain([planned]).map(|cell| cell.unwrap_or_else(|| NONE.to_owned()));
            table.add_row(std::iter::once(name.to_owned()).chain(cells));
        }
        for index in 0..made.len() + 2 {
            if let Some(column) = table.column_mut(index) {
                column.set_padding((0, u16::from(index < made.len() + 1)));
                if index > 0 {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        table.trim_fmt()
    }
}

fn figures<'a>(seen: &'a Seen, options: &Options) -> Figures<'a> {
    Figures { seen, normal_per_second: options.normal }
}

/// A line of the table: what it is called, what a run has to say, and what was planned.
struct Line {
    name: &'static str,
    value: fn(&Run) -> Option<String>,
    planned: Option<String>,
}

fn line(name: &'static str, value: fn(&Run) -> Option<String>) -> Line {
    Line { name, value, planned: None }
}

#[expect(clippy::unnecessary_wraps, reason = "a cell of the table may be empty, this one is not")]
fn some(value: u64) -> Option<String> {
    Some(text::count(value))
}

fn rows(value: i64) -> Option<String> {
    some(value.unsigned_abs())
}

fn of_queue(run: &Run, value: fn(&QueueRun) -> String) -> Option<String> {
    run.queue.as_ref().map(value)
}

fn lines(plan: &Plan) -> Vec<Line> {
    let planned = |text: String, line: Line| Line { planned: Some(text), ..line };
    let drain = plan.drain_seconds.map_or_else(|| "never".to_owned(), text::seconds);
    vec![
        line("registrations", |run| some(run.offered)),
        line("… accepted", |run| some(run.accepted)),
        line("… refused: too many connections", |run| some(run.too_many_connections)),
        line("… refused: no connection within 1 s", |run| some(run.pool_timeouts)),
        line("… refused: connecting failed", |run| some(run.database_away)),
        line("… given up by their caller after 5 s", |run| some(run.timed_out)),
        line("… failed otherwise", |run| some(run.failed_otherwise)),
        line("tries repeated with the same key", |run| {
            run.queue.as_ref().and_then(|_| some(run.tries_repeated))
        }),
        line("accepted within (median / 99 %)", |run| {
            let (p50, p99) = (run.accept_p50_seconds?, run.accept_p99_seconds?);
            Some(format!("{} / {}", text::seconds(p50), text::seconds(p99)))
        }),
        planned(
            text::number(plan.direct_connections_needed),
            line("most connections at once", |run| rows(run.connections_peak)),
        ),
        line("accepted and in the table, once", |run| rows(run.table.once)),
        line("accepted and missing", |run| rows(run.table.missing)),
        line("in the table more than once", |run| rows(run.table.double)),
        line("in the table, caller told otherwise", |run| rows(run.table.unanswered)),
        line("calls found done before", |run| of_queue(run, |queue| queue.repetitions.to_string())),
        line("given up by Millpond", |run| of_queue(run, |queue| text::count(queue.dead))),
        planned(
            text::number(plan.backlog_peak),
            line("most waiting at once", |run| of_queue(run, |queue| text::count(queue.peak_depth))),
        ),
        planned(
            text::seconds(plan.longest_wait_seconds),
            line("oldest at its highest", |run| of_queue(run, |queue| text::seconds(queue.peak_age_seconds))),
        ),
        planned(
            text::number(plan.capacity_per_second),
            line("capacity measured, per second", |run| {
                of_queue(run, |queue| text::number(queue.capacity_per_second.round()))
            }),
        ),
        planned(
            drain,
            line("nothing waits any more after", |run| {
                of_queue(run, |queue| text::seconds(queue.drain_seconds))
            }),
        ),
        line("… as computed from the capacity", |run| {
            of_queue(run, |queue| queue.drain_computed_seconds.map_or_else(|| NONE.to_owned(), text::seconds))
        }),
        line("killed", |run| {
            of_queue(run, |queue| match queue.kills.len() {
                0 => NONE.to_owned(),
                kills => format!("{kills} times"),
            })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::Report;
    use crate::callers::{Calls, Count, Failure};
    use crate::chaos::{Kill, Victim};
    use crate::check::Verdict;
    use crate::options::{Arguments, Options, What};
    use crate::runs::{QueueSeen, Seen, Stats};
    use crate::service::Refusal;
    use clap::Parser as _;
    use hdrhistogram::Histogram;
    use std::time::Duration;

    fn options() -> Options {
        match Arguments::parse_from(["enrollment", "all"]).what {
            What::All(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn seen(accepted: u64, failed: &[(Failure, u64)], queue: Option<QueueSeen>) -> Seen {
        let failures: u64 = failed.iter().map(|(_, count)| count).sum();
        let spike =
            Count { offered: accepted + failures, accepted, failed: failed.iter().cloned().collect() };
        let mut latency_micros = Histogram::new(3).unwrap();
        latency_micros.record(1_500).unwrap();
        let calls = Calls {
            spike,
            normal: Count::default(),
            accepted: Vec::new(),
            repeated: 3,
            latency_micros,
            latest_start: Duration::ZERO,
        };
        let rows = i64::try_from(accepted).unwrap();
        let verdict = Verdict { accepted: rows, once: rows, rows, events: rows, ..Verdict::default() };
        Seen { calls, verdict, connections_peak: 40, queue }
    }

    fn queue() -> QueueSeen {
        QueueSeen {
            depth_peak: 15_000,
            at_spike_end: Stats { ready: 14_900, capacity_per_second: 472.5, ..Stats::default() },
            drain_seconds: 40.5,
            ..QueueSeen::default()
        }
    }

    fn report() -> Report {
        let failed = [(Failure::Refused(Refusal::TooManyConnections), 12_345), (Failure::TimedOut, 678)];
        let kill = Kill { at: Duration::from_secs(4), victim: Victim::Database };
        let chaos = QueueSeen { repetitions: 17, kills: vec![(kill, Duration::from_secs(2))], ..queue() };
        Report {
            direct: Some(seen(7_000, &failed, None)),
            queued: Some(seen(20_000, &[], Some(queue()))),
            chaos: Some(seen(20_000, &[], Some(chaos))),
            planned: millpond_sim::plan::plan(&options().plan_input()).unwrap(),
        }
    }

    fn cells(table: &str, name: &str) -> Vec<String> {
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.trim_start()[name.len()..]
            .split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    }

    #[test]
    fn the_table_puts_the_runs_side_by_side_with_the_plan() {
        let table = report().table(&options());
        assert_eq!(cells(&table, "… refused: too many connections"), ["12,345", "0", "0", "–"], "{table}");
        assert_eq!(cells(&table, "… given up by their caller after 5 s"), ["678", "0", "0", "–"], "{table}");
        assert_eq!(cells(&table, "accepted and in the table, once"), ["7,000", "20,000", "20,000", "–"]);
        assert_eq!(cells(&table, "calls found done before"), ["–", "0", "17", "–"], "{table}");
        assert_eq!(
            cells(&table, "nothing waits any more after"),
            ["–", "40.5 s", "40.5 s", "37.5 s"],
            "{table}"
        );
        assert_eq!(cells(&table, "… as computed from the capacity"), ["–", "40 s", "40 s", "–"], "{table}");
    }

    #[test]
    fn what_was_not_run_has_no_column_and_no_line() {
        let table = Report { queued: None, chaos: None, ..report() }.table(&options());
        assert!(!table.contains("through Millpond") && !table.contains("given up by Millpond"), "{table}");
    }

    #[test]
    fn only_the_queue_owes_every_caller_a_row() {
        assert_eq!(report().faults(&options()), Vec::<String>::new());
        let mut refused = report();
        refused.queued = Some(seen(19_999, &[(Failure::TimedOut, 1)], Some(queue())));
        assert_eq!(refused.faults(&options()), ["through Millpond: 1 registrations were not accepted"]);
        let mut dead = report();
        dead.chaos = Some(seen(20_000, &[], Some(QueueSeen { dead: 2, ..queue() })));
        assert_eq!(dead.faults(&options()), ["… with kills: 2 messages were given up"]);
        let mut double = report();
        double.direct.as_mut().unwrap().verdict.double = 1;
        double.direct.as_mut().unwrap().verdict.once -= 1;
        assert_eq!(
            double.faults(&options()),
            ["called directly: 1 registrations are in the table more than once"]
        );
        let mut many = report();
        many.direct.as_mut().unwrap().connections_peak = 41;
        assert_eq!(many.faults(&options()), ["called directly: 41 connections at once"]);
    }

    #[test]
    fn the_document_says_the_same() {
        let document = serde_json::to_value(report().document(&options())).unwrap();
        assert_eq!(document["direct"]["too_many_connections"], 12_345);
        assert_eq!(document["chaos"]["queue"]["kills"][0]["victim"], "database");
        assert_eq!(document["queued"]["table"]["missing"], 0);
        assert_eq!(document["planned"]["backlog_peak"], 15_000);
        assert_eq!(document["faults"], serde_json::json!([]));
    }
}
