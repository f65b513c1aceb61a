//! Figures and ratios of a benchmark, as tables or JSON.
//!
//! Owns medians over rounds and the judgement against the budget. Must never measure.

use anyhow::Result;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

/// One figure, as often as there were rounds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    rounds: Vec<f64>,
    median: f64,
}

impl Figure {
    fn shown(&self) -> String {
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{} ({}–{})", number(self.median), number(least), number(most))
    }
}

/// Three significant digits are more than a shared machine has to say.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// What a ratio should be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Budget {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Wished for, but not required.
    Aim(f64),
    /// For information.
    None,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Ratio {
    name: String,
    rounds: Vec<f64>,
    median: f64,
    budget: Budget,
    met: Option<bool>,
}

/// One case: contestants with their figures, and ratios between them, taken within each round.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), rows: Vec::new(), ratios: Vec::new() }
    }

    /// Notes one figure of one contestant in one more round.
    pub(crate) fn note(&mut self, row: &str, figure: &'static str, value: f64) {
        let place = self.rows.iter().position(|known| known.name == row).unwrap_or_else(|| {
            self.rows.push(Row { name: row.to_owned(), figures: Vec::new() });
            self.rows.len() - 1
        });
        let figures = &mut self.rows[place].figures;
        let place = figures.iter().position(|known| known.name == figure).unwrap_or_else(|| {
            figures.push(Figure { name: figure, rounds: Vec::new(), median: f64::NAN });
            figures.len() - 1
        });
        figures[place].rounds.push(value);
        figures[place].median = median(&figures[place].rounds);
    }

    /// The median of one figure of one contestant so far.
    pub(crate) fn median(&self, row: &str, figure: &str) -> Option<f64> {
        let row = self.rows.iter().find(|known| known.name == row)?;
        Some(row.figures.iter().find(|known| known.name == figure)?.median)
    }

    /// Notes a ratio of one more round.
    pub(crate) fn ratio(&mut self, name: &str, value: f64, budget: Budget) {
        let place = self.ratios.iter().position(|known| known.name == name).unwrap_or_else(|| {
            let name = name.to_owned();
            self.ratios.push(Ratio { name, rounds: Vec::new(), median: f64::NAN, budget, met: None });
            self.ratios.len() - 1
        });
        let ratio = &mut self.ratios[place];
        ratio.rounds.push(value);
        ratio.median = median(&ratio.rounds);
        ratio.met = match budget {
            Budget::AtLeast(bound) | Budget::Aim(bound) => Some(ratio.median >= bound),
            Budget::AtMost(bound) => Some(ratio.median <= bound),
            Budget::None => None,
        };
    }

    fn shown(&self) -> String {
        let mut figures = plain_table();
        let mut names: Vec<&str> = Vec::new();
        for figure in self.rows.iter().flat_map(|row| &row.figures) {
            if !names.contains(&figure.name) {
                names.push(figure.name);
            }
        }
        figures.set_header([&[""], names.as_slice()].concat());
        for row in &self.rows {
            let cell = |name: &&str| {
                row.figures.iter().find(|figure| figure.name == *name).map_or_else(String::new, Figure::shown)
            };
            figures.add_row(std::iter::once(row.name.clone()).chain(names.iter().map(cell)));
        }
        let mut ratios = plain_table();
        ratios.set_header(["ratio", "median", "rounds", "budget", ""]);
        for ratio in &self.ratios {
            let rounds: Vec<String> = ratio.rounds.iter().map(|&value| number(value)).collect();
            let budget = match ratio.budget {
                Budget::AtLeast(bound) => format!("at least {bound}"),
                Budget::AtMost(bound) => format!("at most {bound}"),
                Budget::Aim(bound) => format!("aim at {bound}"),
                Budget::None => String::new(),
            };
            let met = ratio.met.map_or("", |met| if met { "met" } else { "MISSED" });
            ratios.add_row([&ratio.name, &number(ratio.median), &rounds.join(" "), &budget, met]);
        }
        format!("{}\n{figures}\n{ratios}\n", self.title)
    }
}

fn plain_table() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table
}

/// Prints all tables; medians first, the range over the rounds in brackets.
#[expect(clippy::print_stdout, reason = "this is the output of the program")]
pub(crate) fn print(tables: &[Table], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(tables)?);
    } else {
        for table in tables {
            println!("{}", table.shown());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Budget, Table, median};

    #[test]
    fn the_median_ignores_an_outlier() {
        assert!((median(&[1.0, 100.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 2.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_median_ratio_is_judged() {
        let mut table = Table::new("case");
        for value in [0.9, 0.5, 0.8] {
            table.ratio("a / b", value, Budget::AtLeast(0.7));
            table.ratio("b / a", value, Budget::AtMost(0.7));
        }
        assert_eq!(table.ratios[0].met, Some(true));
        assert_eq!(table.ratios[1].met, Some(false));
    }
}
