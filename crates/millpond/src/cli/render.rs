//! How values look on a terminal: durations, ages, sizes, tables, lists of fields.
//!
//! Owns the one way in which the commands show a value, and that nothing from outside can control the terminal.
//! Must never be used for what a program reads: JSON carries plain numbers.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableStyle, Width};
use jiff::Timestamp;

/// Columns when standard output is no terminal.
const COLUMNS: u16 = 80;
/// Wider than this, a line is hard to follow.
const COLUMNS_MAX: u16 = 120;

/// What is shown where there is nothing.
pub(crate) const NONE: &str = "–";

/// `seconds` in at most two units: `80ms`, `4.0s`, `12m 5s`, `2h 3m`, `3d 4h`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 0.9995 {
        return format!("{:.0}ms", (seconds * 1e3).max(0.0));
    }
    if seconds < 59.95 {
        return format!("{seconds:.1}s");
    }
    let (whole, units) = (seconds.round(), [(86_400.0, "d", 3_600.0, "h"), (3_600.0, "h", 60.0, "m")]);
    for (long, long_name, short, short_name) in units {
        if whole >= long {
            return pair((whole / long).floor(), long_name, (whole % long / short).floor(), short_name);
        }
    }
    pair((whole / 60.0).floor(), "m", whole % 60.0, "s")
}

fn pair(long: f64, long_name: &str, short: f64, short_name: &str) -> String {
    if short > 0.0 { format!("{long}{long_name} {short}{short_name}") } else { format!("{long}{long_name}") }
}

/// How long ago `time` (RFC 3339) was, seen from `now`. What is not a time is shown as it is.
pub(crate) fn age(time: &str, now: Timestamp) -> String {
    time.parse::<Timestamp>().map_or_else(
        |_| line(time),
        |then| match now.duration_since(then).as_secs_f64() {
            ago if ago >= 0.0 => format!("{} ago", duration(ago)),
            ahead => format!("in {}", duration(-ahead)),
        },
    )
}

/// A time with how long ago it was.
pub(crate) fn time(time: &str, now: Timestamp) -> String {
    format!("{} ({})", line(time), age(time, now))
}

/// Bytes in the largest unit in which they are at least 1.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1_024.0 {
            break;
        }
        value /= 1_024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A rate, with as many digits as mean something.
pub(crate) fn per_second(rate: f64) -> String {
    let digits = if rate > 0.0 && rate < 10.0 { 1_000.0 } else { 10.0 };
    format!("{}/s", millpond_sim::text::number((rate * digits).round() / digits))
}

/// `count` with its noun: `1 message`, `2,000 messages`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", millpond_sim::text::count(count), if count == 1 { "" } else { "s" })
}

/// Text from outside as one line that cannot control the terminal.
pub(crate) fn line(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\t' => ' ',
            other if other.is_control() => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// [`line`], cut after `characters`.
pub(crate) fn excerpt(text: &str, characters: usize) -> String {
    let mut short: String = line(text).chars().take(characters).collect();
    if short.len() < text.len() && text.chars().count() > characters {
        short.pop();
        short.push('…');
    }
    short
}

/// Text from outside, its lines kept, that cannot control the terminal.
pub(crate) fn text(text: &str) -> String {
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The lines of `text`, broken between words where they are longer than 80 columns; what a line is broken into is
/// indented as it is. Each ends in a newline.
pub(crate) fn wrapped(text: &str) -> String {
    let mut broken = String::new();
    for line in text.lines() {
        let words = line.trim_start_matches(' ');
        let indent = &line[..line.len() - words.len()];
        broken.push_str(indent);
        let mut column = indent.len();
        for (index, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > usize::from(COLUMNS) {
                broken.push('\n');
                broken.push_str(indent);
                column = indent.len();
            } else if index > 0 {
                broken.push(' ');
                column += 1;
            }
            broken.push_str(word);
            column += length;
        }
        broken.push('\n');
    }
    broken
}

/// Names and values below each other, the values in one column.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Adds a line.
    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a line if there is a value.
    pub(crate) fn add_if(&mut self, name: &str, value: Option<impl Into<String>>) -> &mut Self {
        if let Some(value) = value {
            self.add(name, value);
        }
        self
    }

    /// The lines, each ending in a newline.
    pub(crate) fn render(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        let lines = self.0.iter().map(|(name, value)| format!("{name:<width$}  {value}"));
        lines.chain([String::new()]).collect::<Vec<_>>().join("\n")
    }
}

/// How a column of a table behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text, wrapped where the room ends.
    Text(&'static str),
    /// Text that is to be copied: never wrapped.
    Whole(&'static str),
    /// A number: to the right, never wrapped.
    Number(&'static str),
}

/// A table that fits the terminal, or 80 columns where there is none.
pub(crate) fn table(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    let width = table.width().unwrap_or(COLUMNS).min(COLUMNS_MAX);
    table.set_width(width);
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(name) | Column::Whole(name) | Column::Number(name) => *name,
    }));
    let widest = widest(columns.len(), &rows);
    table.add_rows(rows);
    for (index, kind) in columns.iter().enumerate() {
        let Some(column) = table.column_mut(index) else { continue };
        column.set_padding((0, if index + 1 == columns.len() { 0 } else { 2 }));
        if let Column::Whole(name) | Column::Number(name) = kind {
            let fixed = widest[index].max(name.chars().count()) + usize::from(index + 1 < columns.len()) * 2;
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(
                u16::try_from(fixed).unwrap_or(width),
            )));
        }
        if matches!(kind, Column::Number(_)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.push(String::new());
    lines.join("\n")
}

fn widest(columns: usize, rows: &[Vec<String>]) -> Vec<usize> {
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.flat_map(|cell| cell.lines()).map(|line| line.chars().count()).max().unwrap_or_default()
    };
    (0..columns).map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::{Column, Fields, age, duration, excerpt, line, per_second, size, table, wrapped};

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [
            (0.0, "0ms"),
            (0.08, "80ms"),
            (4.0, "4.0s"),
            (59.96, "1m"),
            (725.0, "12m 5s"),
            (2_250.0, "37m 30s"),
            (7_380.0, "2h 3m"),
            (86_400.0, "1d"),
            (273_600.0, "3d 4h"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn an_age_looks_back_or_ahead() {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        assert_eq!(age("2026-11-30T09:59:56.000Z", now), "4.0s ago");
        assert_eq!(age("2026-11-30T12:03:00.000Z", now), "in 2h 3m");
        assert_eq!(age("yesterday", now), "yesterday");
    }

    #[test]
    fn sizes_and_rates_are_short() {
        for (bytes, text) in [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (10 << 30, "10.0 GiB")] {
            assert_eq!(size(bytes), text);
        }
        for (rate, text) in [(0.0, "0/s"), (0.5, "0.5/s"), (499.96, "500/s"), (12.34, "12.3/s")] {
            assert_eq!(per_second(rate), text);
        }
    }

    #[test]
    fn text_from_outside_cannot_control_the_terminal() {
        assert_eq!(line("a\x1b[31mb\nc"), "a\u{fffd}[31mb c");
        assert_eq!(super::text("a\x07\nb"), "a\u{fffd}\nb");
        assert_eq!(excerpt("abcdef", 4), "abc…");
        assert_eq!(excerpt("abcd", 4), "abcd");
    }

    #[test]
    fn long_lines_are_broken_between_words_and_short_ones_kept() {
        let text = wrapped(&format!("short\n{}", "four ".repeat(20).trim_end()));
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [5, 79, 19], "{text}");
        assert!(text.ends_with("four\n"), "{text}");
        let indented = wrapped(&format!("  {}", "four ".repeat(17).trim_end()));
        assert!(indented.lines().all(|line| line.starts_with("  four")), "{indented}");
        assert_eq!(indented.lines().map(str::len).collect::<Vec<_>>(), [76, 11], "{indented}");
    }

    #[test]
    fn fields_stand_in_one_column() {
        let mut fields = Fields::default();
        fields.add("id", "7").add("position", "20").add_if("none", None::<String>);
        assert_eq!(fields.render(), "id        7\nposition  20\n");
    }

    #[test]
    fn a_table_fits_and_wraps_only_what_may_be_wrapped() {
        let columns = [Column::Whole("ID"), Column::Number("ATTEMPTS"), Column::Text("WHY")];
        let id = "0197f3a2-0000-7000-8000-000000000001";
        let rows = vec![vec![id.to_owned(), "5".to_owned(), "a long explanation ".repeat(8)]];
        let text = table(&columns, rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(id), "{text}");
        assert!(text.lines().count() > 3, "{text}");
    }
}
