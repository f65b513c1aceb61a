//! Durations (`30s`), sizes (`64KiB`) and rates (`500/s`) as text.
//!
//! Owns the one way to write and read them: in the configuration, in headers and on the command line. Formatting
//! and parsing are inverse to each other. Must never guess: text without a unit is an error that names the units.

use millpond_core::rate::Rate;
use std::fmt;
use std::time::Duration;

/// Longest duration that can be written: one hundred years of 366 days.
pub const DURATION_MAX: Duration = Duration::from_hours(100 * 366 * 24);
/// Largest size that can be written: 1 EiB (1024 PiB).
pub const SIZE_BYTES_MAX: u64 = 1 << 60;

const MICROSECOND: u64 = 1;
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units of time, largest first, in microseconds.
const TIME_UNITS: &[(&str, u64)] =
    &[("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND)];
/// Units of size, largest first, in bytes.
const SIZE_UNITS: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
/// What people write instead of a unit of time.
const TIME_WORDS: &[(&str, &[&str])] = &[
    ("d", &["day", "days"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("m", &["min", "mins", "minute", "minutes"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("ms", &["msec", "msecs", "millis", "millisecond", "milliseconds"]),
    ("us", &["µs", "μs", "usec", "micros", "microsecond", "microseconds"]),
];

/// Which kind of quantity was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityKind {
    /// A length of time.
    Duration,
    /// A number of bytes.
    Size,
    /// Events per time.
    Rate,
}

impl QuantityKind {
    fn noun(self) -> &'static str {
        match self {
            Self::Duration => "a duration",
            Self::Size => "a size",
            Self::Rate => "a rate",
        }
    }

    fn examples(self) -> &'static str {
        match self {
            Self::Duration => "\"80ms\", \"30s\", \"10m\", \"4d\" or \"1h30m\"",
            Self::Size => "\"64KiB\", \"10MiB\", \"1GiB\" or a plain number of bytes",
            Self::Rate => "\"500/s\", \"30/m\", \"10/h\" or \"1000/d\"",
        }
    }
}

/// Why text is not a duration, a size or a rate. `text` is what was written, cut to a printable length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuantityError {
    /// Not of the expected form at all.
    Malformed {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
    },
    /// A bare number where a unit is needed.
    MissingUnit {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
    },
    /// A unit that does not exist here.
    UnknownUnit {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
        /// The unit in it.
        unit: String,
        /// The same quantity in a form that is accepted, if it can be told.
        suggestion: Option<String>,
    },
    /// A decimal point; quantities are whole numbers of a smaller unit.
    Fraction {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
        /// The same quantity in a form that is accepted, if it can be told.
        suggestion: Option<String>,
    },
    /// Below zero.
    Negative {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
    },
    /// Units of a duration out of order or given twice (`30m1h`).
    UnitOrder {
        /// What was written.
        text: String,
    },
    /// Beyond what can be stored.
    TooLarge {
        /// What was expected.
        kind: QuantityKind,
        /// What was written.
        text: String,
        /// The most that is accepted.
        limit: String,
    },
    /// A rate of nothing, or over no time.
    ZeroRate {
        /// What was written.
        text: String,
    },
}

impl QuantityError {
    /// What is wrong, without the advice.
    pub fn problem(&self) -> String {
        match self {
            Self::Malformed { kind, text } => format!("{text:?} is not {}", kind.noun()),
            Self::MissingUnit { text, .. } => format!("{text:?} has no unit"),
            Self::UnknownUnit { text, unit, .. } => format!("{text:?} has the unknown unit {unit:?}"),
            Self::Fraction { text, .. } => format!("{text:?} has a fraction"),
            Self::Negative { kind, text } => format!("{text:?} is negative; {} cannot be", kind.noun()),
            Self::UnitOrder { text } => format!("{text:?} has its units out of order"),
            Self::TooLarge { text, .. } => format!("{text:?} is too large"),
            Self::ZeroRate { text } => format!("{text:?} would never let anything through"),
        }
    }

    /// What would be right.
    pub fn advice(&self) -> String {
        match self {
            Self::Malformed { kind, .. } | Self::Negative { kind, .. } => {
                format!("write {}", kind.examples())
            }
            Self::MissingUnit { kind: QuantityKind::Rate, text } => {
                format!("write \"{text}/s\" for so many a second, or /m, /h, /d")
            }
            Self::MissingUnit { text, .. } => {
                format!("write \"{text}s\" for seconds; the units are us, ms, s, m, h and d")
            }
            Self::UnknownUnit { kind, suggestion, .. } | Self::Fraction { kind, suggestion, .. } => {
                suggestion.as_ref().map_or_else(
                    || format!("write a whole number with a unit, such as {}", kind.examples()),
                    |right| format!("write \"{right}\""),
                )
            }
            Self::UnitOrder { .. } => {
                "write the largest unit first and each once, such as \"1h30m\"".to_owned()
            }
            Self::TooLarge { limit, .. } => format!("write at most \"{limit}\""),
            Self::ZeroRate { .. } => {
                "write at least one event, such as \"1/h\"; to stop work, pause the queue".to_owned()
            }
        }
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; {}", self.problem(), self.advice())
    }
}

impl std::error::Error for QuantityError {}

fn shown(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 60;
    text.chars().take(SHOWN_CHARACTERS_MAX).collect()
}

/// Splits `text` after the leading characters that satisfy `inside`.
fn split_while(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|character| !inside(character)).unwrap_or(text.len()))
}

fn malformed(kind: QuantityKind, text: &str) -> QuantityError {
    match text.strip_prefix('-') {
        Some(rest) if rest.starts_with(|character: char| character.is_ascii_digit()) => {
            QuantityError::Negative { kind, text: shown(text) }
        }
        _ => QuantityError::Malformed { kind, text: shown(text) },
    }
}

/// A decimal number and what follows it; `None` if `text` does not begin with `<digits>.<digits>`.
fn split_fraction(text: &str) -> Option<(f64, &str)> {
    let (number, rest) = split_while(text, |character| character.is_ascii_digit() || character == '.');
    number.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| (value, rest))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; a suggestion only")]
fn whole(value: f64) -> Option<u64> {
    let rounded = value.round();
    ((1.0..1e18).contains(&rounded) && (rounded - value).abs() < 1e-6).then_some(rounded as u64)
}

/// The unit of time that is meant by `word`, in whichever case and language of abbreviation.
fn time_unit_meant(word: &str) -> Option<&'static str> {
    let lower = word.to_lowercase();
    let exact = TIME_UNITS.iter().find(|(unit, _)| *unit == lower).map(|(unit, _)| *unit);
    exact.or_else(|| {
        TIME_WORDS.iter().find(|(_, words)| words.contains(&lower.as_str())).map(|(unit, _)| *unit)
    })
}

fn time_unit_micros(unit: &str) -> Option<u64> {
    TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, micros)| *micros)
}

/// Reads a duration: whole numbers with the units `us`, `ms`, `s`, `m`, `h`, `d`, the largest first, such as
/// `80ms`, `30s`, `4d` or `1h30m`. Zero is written `0s`.
///
/// # Errors
/// Says what is wrong with the text and what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let kind = QuantityKind::Duration;
    let too_large =
        || QuantityError::TooLarge { kind, text: shown(text), limit: format_duration(DURATION_MAX) };
    let mut total_micros = 0_u64;
    let mut previous = u64::MAX;
    let mut rest = text;
    loop {
        let (digits, after) = split_while(rest, |character| character.is_ascii_digit());
        if digits.is_empty() {
            return Err(malformed(kind, text));
        }
        if after.starts_with('.') {
            let suggestion = suggest_duration(text);
            return Err(QuantityError::Fraction { kind, text: shown(text), suggestion });
        }
        let (unit, after) = split_while(after, char::is_alphabetic);
        if unit.is_empty() && after.is_empty() {
            return Err(QuantityError::MissingUnit { kind, text: shown(text) });
        }
        let Some(micros) = time_unit_micros(unit) else {
            return Err(unknown_time_unit(text, unit));
        };
        if micros >= previous {
            return Err(QuantityError::UnitOrder { text: shown(text) });
        }
        previous = micros;
        let number: u64 = digits.parse().map_err(|_| too_large())?;
        let part = number.checked_mul(micros).ok_or_else(too_large)?;
        total_micros = total_micros.checked_add(part).ok_or_else(too_large)?;
        if Duration::from_micros(total_micros) > DURATION_MAX {
            return Err(too_large());
        }
        rest = after;
        if rest.is_empty() {
            return Ok(Duration::from_micros(total_micros));
        }
    }
}

fn unknown_time_unit(text: &str, unit: &str) -> QuantityError {
    let kind = QuantityKind::Duration;
    if unit.is_empty() {
        return malformed(kind, text);
    }
    let suggestion = suggest_duration(text);
    QuantityError::UnknownUnit { kind, text: shown(text), unit: shown(unit), suggestion }
}

/// `text` with one number and one unit, in a form that is accepted.
fn suggest_duration(text: &str) -> Option<String> {
    let (value, unit) = split_fraction(text)?;
    let micros = match unit.trim().to_lowercase().as_str() {
        "w" | "week" | "weeks" => 7 * DAY,
        word => time_unit_micros(time_unit_meant(word)?)?,
    };
    let duration = Duration::from_micros(whole(value * micros as f64)?);
    (duration <= DURATION_MAX).then(|| format_duration(duration))
}

/// Writes a duration so that [`parse_duration`] reads the same back. What is finer than a microsecond is cut off.
pub fn format_duration(duration: Duration) -> String {
    let total = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if total == 0 {
        return "0s".to_owned();
    }
    // Below a minute one number reads better than two: 1500ms, not 1s500ms.
    if total < MINUTE {
        let fits = |(_, micros): &&(&str, u64)| total.is_multiple_of(*micros);
        return TIME_UNITS
            .iter()
            .find(fits)
            .map_or_else(String::new, |(unit, micros)| format!("{}{unit}", total / micros));
    }
    let mut rest = total;
    let part = |(unit, micros): &(&str, u64)| {
        let number = rest / micros;
        rest %= micros;
        (number > 0).then(|| format!("{number}{unit}"))
    };
    TIME_UNITS.iter().filter_map(part).collect()
}

/// Reads a size in bytes: a whole number with `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024), with `B`, or bare.
///
/// # Errors
/// Says what is wrong with the text and what would be right.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let kind = QuantityKind::Size;
    let too_large =
        || QuantityError::TooLarge { kind, text: shown(text), limit: format_size(SIZE_BYTES_MAX) };
    let (digits, after) = split_while(text, |character| character.is_ascii_digit());
    if digits.is_empty() {
        return Err(malformed(kind, text));
    }
    if after.starts_with('.') {
        return Err(QuantityError::Fraction { kind, text: shown(text), suggestion: suggest_size(text) });
    }
    let bytes = match after {
        "" | "B" => 1,
        unit => {
            let known = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
            let unknown = || {
                let suggestion = suggest_size(text);
                QuantityError::UnknownUnit { kind, text: shown(text), unit: shown(unit.trim()), suggestion }
            };
            known.ok_or_else(unknown)?
        }
    };
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    number.checked_mul(bytes).filter(|total| *total <= SIZE_BYTES_MAX).ok_or_else(too_large)
}

fn suggest_size(text: &str) -> Option<String> {
    let (value, unit) = split_fraction(text)?;
    let bytes = match unit.trim().to_lowercase().as_str() {
        "b" | "bytes" | "byte" | "" => 1,
        "k" | "kb" | "ki" | "kib" => 1_u64 << 10,
        "m" | "mb" | "mi" | "mib" => 1 << 20,
        "g" | "gb" | "gi" | "gib" => 1 << 30,
        "t" | "tb" | "ti" | "tib" => 1 << 40,
        _ => return None,
    };
    whole((value * bytes as f64).round()).filter(|total| *total <= SIZE_BYTES_MAX).map(format_size)
}

/// Writes a size with the largest unit that divides it, so that [`parse_size`] reads the same back.
pub fn format_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    SIZE_UNITS
        .iter()
        .find(fits)
        .map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// Reads a rate: a whole number of events per `s`, `m`, `h`, `d`, or per any duration (`5/10s`).
///
/// # Errors
/// Says what is wrong with the text and what would be right.
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    let kind = QuantityKind::Rate;
    let (digits, after) = split_while(text, |character| character.is_ascii_digit());
    if digits.is_empty() {
        return Err(malformed(kind, text));
    }
    if after.is_empty() {
        return Err(QuantityError::MissingUnit { kind, text: shown(text) });
    }
    if after.starts_with('.') {
        return Err(QuantityError::Fraction { kind, text: shown(text), suggestion: suggest_rate(text) });
    }
    let Some(unit) = after.strip_prefix('/') else { return Err(malformed(kind, text)) };
    let per = match time_unit_micros(unit) {
        Some(micros) => Duration::from_micros(micros),
        None => parse_duration(unit).map_err(|_| {
            let suggestion = time_unit_meant(unit.trim()).map(|right| format!("{digits}/{right}"));
            QuantityError::UnknownUnit { kind, text: shown(text), unit: shown(unit), suggestion }
        })?,
    };
    let limit = || format!("{}/s", u32::MAX);
    let events: u32 =
        digits.parse().map_err(|_| QuantityError::TooLarge { kind, text: shown(text), limit: limit() })?;
    if events == 0 || per.is_zero() {
        return Err(QuantityError::ZeroRate { text: shown(text) });
    }
    Ok(Rate { events, per })
}

/// A rate with a fraction, over a longer time: `0.5/s` is `30/m`.
fn suggest_rate(text: &str) -> Option<String> {
    let (value, rest) = split_fraction(text)?;
    let start = time_unit_micros(rest.strip_prefix('/')?)?;
    TIME_UNITS.iter().rev().filter(|(_, micros)| *micros >= start).find_map(|(unit, micros)| {
        let events = whole(value * (*micros as f64 / start as f64))?;
        u32::try_from(events).ok().map(|events| format!("{events}/{unit}"))
    })
}

/// Writes a rate so that [`parse_rate`] reads the same back.
pub fn format_rate(rate: Rate) -> String {
    let Rate { events, per } = rate;
    match TIME_UNITS.iter().find(|(_, micros)| Duration::from_micros(*micros) == per) {
        Some((unit, _)) => format!("{events}/{unit}"),
        None => format!("{events}/{}", format_duration(per)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documented_durations_are_read() {
        for (text, millis) in [
            ("80ms", 80),
            ("30s", 30_000),
            ("10m", 600_000),
            ("45m", 2_700_000),
            ("4d", 345_600_000),
            ("1h30m", 5_400_000),
            ("1d12h", 129_600_000),
            ("0s", 0),
            ("2m500ms", 120_500),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
    }

    #[test]
    fn a_wrong_duration_is_refused_with_what_would_be_right() {
        for (text, message) in [
            ("30", "\"30\" has no unit; write \"30s\" for seconds; the units are us, ms, s, m, h and d"),
            ("", "\"\" is not a duration; write \"80ms\", \"30s\", \"10m\", \"4d\" or \"1h30m\""),
            ("soon", "\"soon\" is not a duration; write \"80ms\", \"30s\", \"10m\", \"4d\" or \"1h30m\""),
            (
                "-5s",
                "\"-5s\" is negative; a duration cannot be; write \"80ms\", \"30s\", \"10m\", \"4d\" or \"1h30m\"",
            ),
            ("1.5h", "\"1.5h\" has a fraction; write \"1h30m\""),
            ("0.5s", "\"0.5s\" has a fraction; write \"500ms\""),
            ("5min", "\"5min\" has the unknown unit \"min\"; write \"5m\""),
            ("30S", "\"30S\" has the unknown unit \"S\"; write \"30s\""),
            ("2weeks", "\"2weeks\" has the unknown unit \"weeks\"; write \"14d\""),
            (
                "3x",
                "\"3x\" has the unknown unit \"x\"; write a whole number with a unit, such as \"80ms\", \"30s\", \"10m\", \"4d\" or \"1h30m\"",
            ),
            (
                "30m1h",
                "\"30m1h\" has its units out of order; write the largest unit first and each once, such as \"1h30m\"",
            ),
            ("99999999d", "\"99999999d\" is too large; write at most \"36600d\""),
            ("99999999999999999999s", "\"99999999999999999999s\" is too large; write at most \"36600d\""),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
        }
        for text in ["NaN", "inf", "nan s", "30 s", " 30s", "30s ", "1e3s", "+5s", "٣s", "1h30", "--1s", "ms"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn documented_sizes_are_read() {
        for (text, bytes) in [
            ("64KiB", 65_536),
            ("1GiB", 1 << 30),
            ("1MiB", 1 << 20),
            ("1048576", 1 << 20),
            ("512B", 512),
            ("0", 0),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_is_refused_with_what_would_be_right() {
        for (text, message) in [
            ("64kb", "\"64kb\" has the unknown unit \"kb\"; write \"64KiB\""),
            ("10 GB", "\"10 GB\" has the unknown unit \"GB\"; write \"10GiB\""),
            ("1.5GiB", "\"1.5GiB\" has a fraction; write \"1536MiB\""),
            (
                "-1",
                "\"-1\" is negative; a size cannot be; write \"64KiB\", \"10MiB\", \"1GiB\" or a plain number of bytes",
            ),
            ("99999999TiB", "\"99999999TiB\" is too large; write at most \"1048576TiB\""),
        ] {
            assert_eq!(parse_size(text).unwrap_err().to_string(), message);
        }
        for text in ["", "KiB", "NaN", "1e9", "0x10", "1_000", "99999999999999999999999"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn documented_rates_are_read() {
        let rate = |events, seconds| Ok(Rate { events, per: Duration::from_secs(seconds) });
        for (text, expected) in [
            ("500/s", rate(500, 1)),
            ("30/m", rate(30, 60)),
            ("10/h", rate(10, 3_600)),
            ("1000/d", rate(1_000, 86_400)),
            ("5/10s", rate(5, 10)),
        ] {
            assert_eq!(parse_rate(text), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_rate_is_refused_with_what_would_be_right() {
        for (text, message) in [
            ("500", "\"500\" has no unit; write \"500/s\" for so many a second, or /m, /h, /d"),
            ("500/sec", "\"500/sec\" has the unknown unit \"sec\"; write \"500/s\""),
            ("0.5/s", "\"0.5/s\" has a fraction; write \"30/m\""),
            (
                "0/s",
                "\"0/s\" would never let anything through; write at least one event, such as \"1/h\"; to stop work, pause the queue",
            ),
            ("5000000000/s", "\"5000000000/s\" is too large; write at most \"4294967295/s\""),
            (
                "-3/s",
                "\"-3/s\" is negative; a rate cannot be; write \"500/s\", \"30/m\", \"10/h\" or \"1000/d\"",
            ),
        ] {
            assert_eq!(parse_rate(text).unwrap_err().to_string(), message);
        }
        for text in ["", "/s", "5/", "5 / s", "5/0s", "5rps", "NaN/s", "inf/s", "5//s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(micros in 0..=u64::try_from(DURATION_MAX.as_micros()).unwrap(), bytes in 0..=SIZE_BYTES_MAX, events in 1..=u32::MAX) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
            for per in [Duration::from_micros(micros.max(1)), Duration::from_secs(1), Duration::from_hours(1)] {
                let rate = Rate { events, per };
                prop_assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
            }
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC{0,30}|[0-9.]{0,25}[a-zA-Zµ/ ]{0,5}[0-9]{0,3}[smhd]?") {
            let _ = parse_duration(&text).map_err(|error| error.to_string());
            let _ = parse_size(&text).map_err(|error| error.to_string());
            let _ = parse_rate(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn a_suggestion_is_itself_accepted(number in 0.0_f64..1e6, unit in "(|ms|s|sec|m|min|h|D|days|w|kb|MB|GiB|/s|/m)") {
            let text = format!("{number:.2}{unit}");
            for advice in [suggest_duration(&text).map(|right| parse_duration(&right).is_ok()), suggest_size(&text).map(|right| parse_size(&right).is_ok()), suggest_rate(&text).map(|right| parse_rate(&right).is_ok())] {
                prop_assert!(advice.unwrap_or(true), "{}", text);
            }
        }
    }
}
