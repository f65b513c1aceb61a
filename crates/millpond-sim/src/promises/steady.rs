//! Do promises claim too much? Steady load at several utilizations, over several seeds.
//!
//! Owns the cases and what is told of them. Must never choose promises by how they turned out.

use super::{Kept, Service, Workload, compare};
use crate::queued::SimulationError;
use crate::text;
use std::fmt::Write as _;
use std::time::Duration;

/// Places of the backend under steady load.
const SLOTS: u32 = 5;
/// What work takes there on average.
const SERVICE_TIME: Duration = Duration::from_millis(200);
/// How long calls arrive.
const LENGTH: Duration = Duration::from_mins(6);
/// Not counted: what is promised before this.
const WARM_AFTER: Duration = Duration::from_mins(1);
/// Arrivals ÷ capacity.
const UTILIZATIONS: [f64; 5] = [0.5, 0.7, 0.9, 1.0, 1.2];

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// Arrivals ÷ capacity.
    pub utilization: f64,
    /// The workload.
    pub workload: Workload,
}

/// All cases, in the order of the table.
pub fn cases() -> Vec<Case> {
    let kinds = [("push", Service::Exponential), ("push, constant work", Service::Constant)];
    let case = |(name, service): (&str, Service), utilization| Case {
        name: name.to_owned(),
        utilization,
        workload: steady(utilization, service),
    };
    kinds.into_iter().flat_map(|kind| UTILIZATIONS.map(|utilization| case(kind, utilization))).collect()
}

fn steady(utilization: f64, service: Service) -> Workload {
    let rate = utilization * f64::from(SLOTS) / SERVICE_TIME.as_secs_f64();
    Workload {
        normal_per_second: rate,
        burst_per_second: rate,
        service_time: SERVICE_TIME,
        service_time_later: SERVICE_TIME,
        expected_service_time: SERVICE_TIME,
        slots: SLOTS,
        length: LENGTH,
        ..Workload::small("steady", service)
    }
}

/// How well promises were kept, of those that promised a wait at all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// How many.
    pub promises: usize,
    /// The share that started by the promised p50.
    pub by_p50: f64,
    /// The share that started by the promised p90.
    pub by_p90: f64,
    /// Mean of the real waits, in seconds.
    pub waited_seconds: f64,
    /// Half of the starts were no further from the promised p50 than this.
    pub off_p50_seconds: f64,
    /// Nine in ten were not.
    pub off_p90_seconds: f64,
    /// Mean of start - promised p50: above 0, promises are too short.
    pub bias_seconds: f64,
}

impl Calibrated {
    /// Judges the promises given once the load had settled; `None` if there are none.
    pub fn of(kept: &[Kept]) -> Option<Self> {
        let counted: Vec<&Kept> =
            kept.iter().filter(|one| !one.promise.p50.is_zero() && one.given >= WARM_AFTER).collect();
        let promises = counted.len();
        if promises == 0 {
            return None;
        }
        let mean =
            |of: &dyn Fn(&Kept) -> f64| counted.iter().map(|one| of(one)).sum::<f64>() / promises as f64;
        let signed = |one: &Kept| one.waited.as_secs_f64() - one.promise.p50.as_secs_f64();
        let mut off: Vec<f64> = counted.iter().map(|one| signed(one).abs()).collect();
        off.sort_unstable_by(f64::total_cmp);
        Some(Self {
            promises,
            by_p50: mean(&|one| f64::from(u8::from(one.waited <= one.promise.p50))),
            by_p90: mean(&|one| f64::from(u8::from(one.waited <= one.promise.p90))),
            waited_seconds: mean(&|one| one.waited.as_secs_f64()),
            off_p50_seconds: off[promises / 2],
            off_p90_seconds: off[promises * 9 / 10],
            bias_seconds: mean(&signed),
        })
    }
}

/// The heading of the table, in Markdown.
pub const HEADING: &str = "\
| load | utilization | promises | waited | by p50 | by p90 | off by (median) | (nine in ten) | too early by |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

/// The rows of the table, each over all of `seeds`, as they come.
pub fn calibration_rows(seeds: &[u64]) -> impl Iterator<Item = Result<String, SimulationError>> {
    cases().into_iter().map(move |case| {
        let judged = seeds.iter().filter_map(|&seed| match compare(&case.workload, seed) {
            Ok(kept) => Calibrated::of(&kept).map(Ok),
            Err(error) => Some(Err(error)),
        });
        Ok(row(&case, &judged.collect::<Result<Vec<_>, _>>()?))
    })
}

/// A row of the table: means over the seeds, and for the shares the least and the greatest.
fn row(case: &Case, judged: &[Calibrated]) -> String {
    let mut row = format!("| {} |", case.name);
    let utilization = text::number(case.utilization);
    let count = judged.len().max(1) as f64;
    let mean = |of: fn(&Calibrated) -> f64| judged.iter().map(of).sum::<f64>() / count;
    let share = |of: fn(&Calibrated) -> f64| {
        let percent = |value: f64| format!("{:.0}", value * 100.0);
        let least = judged.iter().map(of).fold(f64::INFINITY, f64::min);
        let greatest = judged.iter().map(of).fold(0.0, f64::max);
        format!("{} % ({}–{})", percent(mean(of)), percent(least), percent(greatest))
    };
    let promises: usize = judged.iter().map(|judged| judged.promises).sum();
    let seconds = |of: fn(&Calibrated) -> f64| format!("{:.2} s", mean(of));
    let cells = [
        utilization,
        text::count(promises as u64),
        seconds(|judged| judged.waited_seconds),
        share(|judged| judged.by_p50),
        share(|judged| judged.by_p90),
        seconds(|judged| judged.off_p50_seconds),
        seconds(|judged| judged.off_p90_seconds),
        seconds(|judged| judged.bias_seconds),
    ];
    let _ = writeln!(row, " {} |", cells.join(" | "));
    row
}
