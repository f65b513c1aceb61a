//! Numbers and durations as people read them: `900,000`, `37 min 30 s`.
//!
//! Owns the one way in which the planner, the charts and the reports print a value. Must never be used for
//! what a program reads: JSON carries plain numbers.

/// `value` with thousands separated by commas and at most three digits after the point; no trailing zeros.
///
/// ```
/// assert_eq!(millpond_sim::text::number(900_000.0), "900,000");
/// assert_eq!(millpond_sim::text::number(0.0333), "0.033");
/// ```
pub fn number(value: f64) -> String {
    let fixed = format!("{:.3}", value.abs());
    let fixed = fixed.trim_end_matches('0').trim_end_matches('.');
    let (whole, fraction) = fixed.split_once('.').map_or((fixed, None), |(whole, rest)| (whole, Some(rest)));
    let mut text = String::new();
    if value < 0.0 && fixed != "0" {
        text.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// A whole number with thousands separated by commas.
pub fn count(value: u64) -> String {
    number(value as f64)
}

/// `seconds` in its two largest units: `80 ms`, `4 s`, `37 min 30 s`, `1 h 5 min`, `2 d 3 h`.
///
/// ```
/// assert_eq!(millpond_sim::text::seconds(2_250.0), "37 min 30 s");
/// ```
pub fn seconds(seconds: f64) -> String {
    const UNITS: [(&str, f64); 4] = [("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)];
    if seconds < 0.9995 {
        return format!("{} ms", number((seconds * 1e4).round() / 10.0));
    }
    if seconds < 59.95 {
        return format!("{} s", number((seconds * 10.0).round() / 10.0));
    }
    let mut rest = seconds.round();
    let mut parts = Vec::with_capacity(2);
    for (unit, length) in UNITS {
        let whole = (rest / length).floor();
        if parts.len() == 1 || whole > 0.0 {
            parts.push((whole, unit));
            rest -= whole * length;
        }
        if parts.len() == 2 {
            break;
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(whole, _)| *whole > 0.0)
        .map(|(whole, unit)| format!("{} {unit}", number(whole)))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{number, seconds};

    #[test]
    fn numbers_are_grouped_and_carry_no_idle_zeros() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (1_350_000.0, "1,350,000"),
            (12.5, "12.5"),
            (-1_500.0, "-1,500"),
            (-0.0001, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn durations_show_at_most_two_units() {
        for (value, text) in [
            (0.0, "0 ms"),
            (0.08, "80 ms"),
            (1.333, "1.3 s"),
            (4.0, "4 s"),
            (59.99, "1 min"),
            (1_800.0, "30 min"),
            (2_250.0, "37 min 30 s"),
            (3_600.0, "1 h"),
            (3_605.0, "1 h"),
            (183_600.0, "2 d 3 h"),
        ] {
            assert_eq!(seconds(value), text, "{value}");
        }
    }
}
