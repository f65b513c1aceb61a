//! The chart for a terminal: four bar panels over one time axis, in block characters, without colour.
//!
//! Owns the layout in characters. Must never print: the caller does.

use super::{Sample, Series, tick_step, time_unit};
use crate::text;

/// Widest chart: beyond it a line is hard to follow.
const COLUMNS_MAX: usize = 100;
/// Narrowest chart that still shows anything.
const COLUMNS_MIN: usize = 60;
/// Columns left of the axis: a name and the highest value.
const GUTTER: usize = 28;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws `series` for a terminal `columns` wide (used from 60 to 100).
pub fn terminal(series: &Series, columns: usize) -> String {
    let width = columns.clamp(COLUMNS_MIN, COLUMNS_MAX) - GUTTER - 2;
    let mut lines = Vec::new();
    panel(&mut lines, "arrivals", " /s", 3, &resample(series, width, |sample| sample.arrivals_per_second));
    panel(
        &mut lines,
        "completions",
        " /s",
        3,
        &resample(series, width, |sample| sample.completions_per_second),
    );
    panel(&mut lines, "messages waiting", "", 5, &resample(series, width, |sample| sample.backlog));
    panel(
        &mut lines,
        "oldest waiting",
        " s",
        4,
        &resample(series, width, |sample| sample.oldest_age_seconds),
    );
    time_axis(&mut lines, series, width);
    lines.join("\n")
}

/// One value per column: the highest of its samples; where there is none, the one before.
fn resample(series: &Series, width: usize, read: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let mut values: Vec<Option<f64>> = vec![None; width];
    for sample in &series.samples {
        let slot = &mut values[column(sample.at_seconds, series.end_seconds(), width)];
        *slot = Some(slot.map_or(read(sample), |value| value.max(read(sample))));
    }
    let mut last = 0.0;
    values
        .into_iter()
        .map(|value| {
            last = value.unwrap_or(last);
            last
        })
        .collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the width")]
fn column(at: f64, end: f64, width: usize) -> usize {
    let position = (at / end * width as f64).max(0.0) as usize;
    position.min(width - 1)
}

fn panel(lines: &mut Vec<String>, name: &str, unit: &str, height: usize, values: &[f64]) {
    let highest = values.iter().copied().fold(0.0, f64::max);
    for row in (0..height).rev() {
        let gutter = if row == height - 1 {
            let value = format!("{}{unit}", text::number(rounded(highest)));
            format!("{name}{value:>width$} ┤", width = GUTTER - 2 - name.len())
        } else if row == 0 {
            format!("{:>width$} ┤", "0", width = GUTTER - 2)
        } else {
            format!("{:width$} │", "", width = GUTTER - 2)
        };
        let bars: String = values.iter().map(|&value| cell(value, highest, row, height)).collect();
        lines.push(format!("{gutter}{}", bars.trim_end()));
    }
    lines.push(String::new());
}

/// The part of a bar that lies in `row` (0 = lowest). A value above zero is never invisible.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 8")]
fn cell(value: f64, highest: f64, row: usize, height: usize) -> char {
    if value <= 0.0 || highest <= 0.0 {
        return EIGHTHS[0];
    }
    let eighths = (value / highest * height as f64 * 8.0).max(1.0);
    EIGHTHS[(eighths - row as f64 * 8.0).round().clamp(0.0, 8.0) as usize]
}

/// Three significant digits: more would pretend to a precision that a sampled peak does not have.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powf(value.log10().floor() - 2.0).min(1.0);
    (value / unit).round() * unit
}

fn time_axis(lines: &mut Vec<String>, series: &Series, width: usize) {
    let end = series.end_seconds();
    let (unit_seconds, unit) = time_unit(end);
    let step = tick_step(end / unit_seconds, (width as f64 / 9.0).max(2.0));
    let mut rule: Vec<char> = vec!['─'; width];
    let mut labels: Vec<char> = vec![' '; width + 8];
    let mut number = 0_u32;
    loop {
        let at = f64::from(number) * step;
        let position = column(at * unit_seconds, end, width);
        let label = if number == 0 { format!("0 {unit}") } else { text::number(at) };
        if at * unit_seconds > end || position + label.len() > width {
            break;
        }
        rule[position] = '┬';
        for (offset, letter) in label.chars().enumerate() {
            labels[position + offset] = letter;
        }
        number += 1;
    }
    let text = |letters: Vec<char>| letters.into_iter().collect::<String>().trim_end().to_owned();
    lines.pop();
    lines.push(format!("{:>gutter$}{}", "└", text(rule), gutter = GUTTER));
    lines.push(format!("{:gutter$}{}", "", text(labels), gutter = GUTTER));
    if series.spike_end_seconds > series.spike_start_seconds {
        let start = column(series.spike_start_seconds, end, width);
        let length = (column(series.spike_end_seconds, end, width) - start).max(1);
        lines.push(format!("{:indent$}{} spike", "", "▔".repeat(length), indent = GUTTER + start));
    }
}
