//! The same numbers in Prometheus' older text format, for readers that know no OpenMetrics.
//!
//! Owns the difference between the two. Must never change a value or a label.

use http::{HeaderMap, header};
use std::collections::BTreeSet;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a reader has asked for the older format: it accepts that, and says nothing of OpenMetrics.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepts = |kind: &str| {
        let lines = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        lines.flat_map(|line| line.split(',')).any(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range.eq_ignore_ascii_case(kind)
        })
    };
    accepts("text/plain") && !accepts("application/openmetrics-text")
}

/// From OpenMetrics: counters are described under the names that their samples have, and there is no end mark.
pub(super) fn from_openmetrics(text: &str) -> String {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut plain = String::with_capacity(text.len() + counters.len() * 12);
    for line in text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| {
            let (name, rest) = line.strip_prefix(mark)?.split_once(' ')?;
            counters.contains(name).then_some((mark, name, rest))
        });
        match described {
            Some((mark, name, rest)) => plain.extend([mark, name, "_total ", rest]),
            None => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{from_openmetrics, is_wanted};
    use http::{HeaderMap, HeaderValue, header};

    #[test]
    fn only_who_asks_for_it_gets_the_older_format() {
        for (accept, wanted) in [
            ("text/plain", true),
            ("text/plain;version=0.0.4;q=0.5, */*;q=0.1", true),
            ("Text/Plain", true),
            ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", false),
            ("*/*", false),
            ("text/html", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(is_wanted(&headers), wanted, "{accept}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    #[test]
    fn counters_are_described_as_their_samples_are_named() {
        let text = "# HELP a Depth.\n# TYPE a gauge\na{q=\"x\"} 1.0\n# HELP b Ends.\n# TYPE b counter\nb_total{q=\"x\"} 2\n# EOF\n";
        let plain = "# HELP a Depth.\n# TYPE a gauge\na{q=\"x\"} 1.0\n# HELP b_total Ends.\n# TYPE b_total counter\nb_total{q=\"x\"} 2\n";
        assert_eq!(from_openmetrics(text), plain);
    }
}
