//! What a run looked like over time: observations as they were made, and the series that is drawn from them.
//!
//! Owns the arithmetic from counters to rates and peaks. Must never call anything: it is given what was seen.

use millpond_sim::chart::{Sample, Series};
use millpond_sim::workload::Scenario;
use std::time::Duration;

/// Rates are counted over this long, centred: shorter, and a few messages a second look like noise; longer, and the
/// edges of the spike blur.
const WINDOW_SECONDS: f64 = 0.6;

/// What was seen at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Observation {
    /// When, in seconds since the schedule began.
    pub(crate) at_seconds: f64,
    /// Calls started so far.
    pub(crate) started: u64,
    /// Work done so far.
    pub(crate) completed: u64,
    /// Messages ready, as the queue says.
    pub(crate) ready: u64,
    /// Age of the oldest ready message, as the queue says.
    pub(crate) oldest_age_seconds: f64,
}

/// Everything seen, in order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observations(pub(crate) Vec<Observation>);

impl Observations {
    /// The most messages that were ready.
    pub(crate) fn peak_depth(&self) -> u64 {
        self.0.iter().map(|seen| seen.ready).max().unwrap_or(0)
    }

    /// The highest age.
    pub(crate) fn peak_age_seconds(&self) -> f64 {
        self.0.iter().map(|seen| seen.oldest_age_seconds).fold(0.0, f64::max)
    }

    /// The age at `moment`, or at the first look after it.
    pub(crate) fn age_seconds_at(&self, moment: Duration) -> f64 {
        let at = self.0.iter().find(|seen| seen.at_seconds >= moment.as_secs_f64());
        at.map_or(0.0, |seen| seen.oldest_age_seconds)
    }

    /// From `spike_end` to the first look at which nothing was ready.
    pub(crate) fn drain_seconds(&self, spike_end: Duration) -> Option<f64> {
        let end = spike_end.as_secs_f64();
        self.0.iter().find(|seen| seen.at_seconds >= end && seen.ready == 0).map(|seen| seen.at_seconds - end)
    }

    /// The series to draw.
    pub(crate) fn series(&self, scenario: &Scenario) -> Series {
        let started = Counter::new(self.0.iter().map(|seen| (seen.at_seconds, seen.started)));
        let completed = Counter::new(self.0.iter().map(|seen| (seen.at_seconds, seen.completed)));
        let samples = self.0.iter().map(|seen| Sample {
            at_seconds: seen.at_seconds,
            arrivals_per_second: started.rate_at(seen.at_seconds),
            completions_per_second: completed.rate_at(seen.at_seconds),
            backlog: seen.ready as f64,
            oldest_age_seconds: seen.oldest_age_seconds,
        });
        Series {
            title: format!("{}: {}", scenario.name, scenario.summary),
            spike_start_seconds: scenario.lead_in.as_secs_f64(),
            spike_end_seconds: scenario.spike_end().as_secs_f64(),
            samples: samples.collect(),
        }
    }
}

/// A counter over time: the moments at which it was seen to have grown, and its value then. Between them it counts
/// as growing steadily, so that slow but even work does not look like noise.
struct Counter {
    steps: Vec<(f64, u64)>,
}

impl Counter {
    fn new(seen: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut steps: Vec<(f64, u64)> = Vec::new();
        for (at, value) in seen {
            if steps.last().is_none_or(|&(_, last)| last != value) {
                steps.push((at, value));
            }
        }
        Self { steps }
    }

    fn rate_at(&self, at: f64) -> f64 {
        // Nothing is known of the growth after the last step.
        let last = self.steps.last().map_or(0.0, |&(when, _)| when);
        let (from, to) = ((at - WINDOW_SECONDS / 2.0).max(0.0), (at + WINDOW_SECONDS / 2.0).min(last));
        if to <= from { 0.0 } else { (self.value_at(to) - self.value_at(from)) / (to - from) }
    }

    fn value_at(&self, at: f64) -> f64 {
        let after = self.steps.partition_point(|&(when, _)| when <= at);
        match (after.checked_sub(1).map(|before| self.steps[before]), self.steps.get(after)) {
            (None, None) => 0.0,
            (None, Some(&(_, value))) | (Some((_, value)), None) => value as f64,
            (Some((since, low)), Some(&(until, high))) => {
                low as f64 + (high - low) as f64 * (at - since) / (until - since)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Observation, Observations};
    use millpond_sim::workload::Scenario;
    use std::time::Duration;

    fn ramp() -> Observations {
        let seen = (0..=100_u32).map(|tenth| Observation {
            at_seconds: f64::from(tenth) / 10.0,
            started: u64::from(tenth) * 2,
            completed: u64::from(tenth),
            ready: u64::from(if tenth < 50 { tenth } else { 100 - tenth }),
            oldest_age_seconds: f64::from(tenth % 60) / 10.0,
        });
        Observations(seen.collect())
    }

    #[test]
    fn rates_come_from_the_counters_around_the_moment() {
        let series = ramp().series(&Scenario::leveling());
        let middle = series.samples[50];
        assert!((middle.arrivals_per_second - 20.0).abs() < 1e-6, "{middle:?}");
        assert!((middle.completions_per_second - 10.0).abs() < 1e-6, "{middle:?}");
        assert_eq!(series.samples.len(), 101);
    }

    #[test]
    fn slow_even_work_has_an_even_rate() {
        // Five a second, looked at twenty times a second.
        let seen = (0..=200_u32).map(|look| Observation {
            at_seconds: f64::from(look) / 20.0,
            completed: u64::from(look / 4),
            ..Observation::default()
        });
        let series = Observations(seen.collect()).series(&Scenario::leveling());
        for sample in &series.samples[..180] {
            assert!((sample.completions_per_second - 5.0).abs() < 1e-6, "{sample:?}");
        }
    }

    #[test]
    fn peaks_and_the_drain_are_read_from_the_looks() {
        let seen = ramp();
        assert_eq!(seen.peak_depth(), 50);
        assert!((seen.peak_age_seconds() - 5.9).abs() < 1e-9);
        assert!((seen.age_seconds_at(Duration::from_secs(2)) - 2.0).abs() < 1e-9);
        assert!((seen.drain_seconds(Duration::from_secs(3)).unwrap() - 7.0).abs() < 1e-9);
        assert_eq!(seen.drain_seconds(Duration::from_secs(11)), None);
        assert!(Observations::default().series(&Scenario::leveling()).samples.is_empty());
    }
}
