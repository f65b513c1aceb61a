//! Charts of a run: arrivals, completions, backlog and age over time.
//!
//! Owns the series of samples and both ways to draw it: a few lines of text for a terminal, an SVG for everything
//! else. Must never write a file, ask a terminal for its size, or compute a figure of its own.

mod svg;
mod terminal;

pub use svg::{ChartError, svg};
pub use terminal::terminal;

use serde::Serialize;

/// The state at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When, in seconds since the run began.
    pub at_seconds: f64,
    /// Calls that arrive.
    pub arrivals_per_second: f64,
    /// Messages whose work is done.
    pub completions_per_second: f64,
    /// Messages that are ready and wait.
    pub backlog: f64,
    /// Age of the oldest message that waits.
    pub oldest_age_seconds: f64,
}

/// A run: samples in order of time, and when its spike was.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Series {
    /// What the run was, for the title of the chart.
    pub title: String,
    /// When the spike began, in seconds since the run began.
    pub spike_start_seconds: f64,
    /// When it ended.
    pub spike_end_seconds: f64,
    /// The samples.
    pub samples: Vec<Sample>,
}

impl Series {
    /// The time axis ends here. At least one second.
    fn end_seconds(&self) -> f64 {
        self.samples.last().map_or(1.0, |sample| sample.at_seconds).max(1.0)
    }

    fn highest(&self, read: impl Fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(read).fold(0.0, f64::max)
    }
}

/// The unit of a time axis that spans so many seconds: how long it is and what it is called.
fn time_unit(span_seconds: f64) -> (f64, &'static str) {
    match span_seconds {
        span if span <= 180.0 => (1.0, "s"),
        span if span <= 10_800.0 => (60.0, "min"),
        _ => (3_600.0, "h"),
    }
}

/// The smallest of 1, 2, 5 × 10^n that divides `span` into at most `ticks_max` steps.
fn tick_step(span: f64, ticks_max: f64) -> f64 {
    let least = (span / ticks_max).max(f64::MIN_POSITIVE);
    let magnitude = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * magnitude >= least * 0.999_999);
    factor.unwrap_or(10.0) * magnitude
}

#[cfg(test)]
mod tests {
    use super::{Sample, Series, svg, terminal, tick_step};

    pub(super) fn leveling() -> Series {
        let samples = (0..=140_u32).map(|tenth| {
            let at = f64::from(tenth) / 10.0;
            let spike = (1.0..3.0).contains(&at);
            let backlog = if at < 1.0 {
                0.0
            } else if at < 3.0 {
                (at - 1.0) * 10.0
            } else {
                (20.0 - (at - 3.0) * 2.0).max(0.0)
            };
            Sample {
                at_seconds: at,
                arrivals_per_second: if spike { 15.0 } else { 3.0 },
                completions_per_second: if at < 1.0 || backlog <= 0.0 { 3.0 } else { 5.0 },
                backlog,
                oldest_age_seconds: backlog / 5.0,
            }
        });
        Series {
            title: "leveling: through the queue".to_owned(),
            spike_start_seconds: 1.0,
            spike_end_seconds: 3.0,
            samples: samples.collect(),
        }
    }

    #[test]
    fn steps_between_ticks_are_round() {
        for (span, ticks, step) in
            [(14.0, 8.0, 2.0), (50.0, 8.0, 10.0), (1.0, 10.0, 0.1), (37.0, 8.0, 5.0), (8.0, 8.0, 1.0)]
        {
            assert!((tick_step(span, ticks) - step).abs() < 1e-9, "{span} in {ticks}");
        }
    }

    #[test]
    fn the_terminal_chart_fits_its_width_and_names_its_peaks() {
        for columns in [40, 78, 100, 500] {
            let text = terminal(&leveling(), columns);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns.clamp(60, 100), "{widest} of {columns}\n{text}");
            for expected in [
                "arrivals",
                "completions",
                "messages waiting",
                "oldest waiting",
                "15 /s",
                "5 /s",
                "20 ",
                "4 s",
                "spike",
            ] {
                assert!(text.contains(expected), "{expected} is missing\n{text}");
            }
        }
    }

    #[test]
    fn an_empty_series_can_be_drawn() {
        let empty = Series::default();
        assert!(terminal(&empty, 80).contains("waiting"));
        assert!(svg(&empty).unwrap().contains("</svg>"));
    }

    #[test]
    fn the_svg_has_titles_units_and_a_legend() {
        let text = svg(&leveling()).unwrap();
        for expected in
            ["leveling: through the queue", "per second", "arrivals", "completions", "messages", "seconds"]
        {
            assert!(text.contains(expected), "{expected} is missing");
        }
    }
}
