//! Text that nobody meant: it is refused with an explanation, or understood the same way twice.

use millpond_config::quantity::{
    format_duration, format_rate, format_size, parse_duration, parse_rate, parse_size,
};
use millpond_config::settings_json::{queue_settings_from_json, queue_settings_to_json};
use millpond_testkit::fuzz::fuzz;

#[test]
fn configuration() {
    let words = ["[queues.q]\n", "[[routes]]\n", "\"30s\"", "target = ", "= {", "inf", "\u{feff}", "'''"];
    fuzz("configuration", 3_000, &words, &mut |input| {
        let text = String::from_utf8_lossy(input);
        let Err(invalid) = millpond_config::parse(&text, "millpond.toml") else { return };
        let lines = text.lines().count() + 1;
        for diagnostic in &invalid.diagnostics {
            let line = diagnostic.line;
            assert!((1..=lines).contains(&line), "line {line} of {lines}: {diagnostic:?}");
        }
        assert!(!invalid.diagnostics.is_empty() && !invalid.to_string().is_empty());
    });
}

#[test]
fn settings() {
    let words = ["null", "-1", "1e308", "{}", "[]", "true", "\"fifo\"", "_seconds\":"];
    fuzz("settings", 5_000, &words, &mut |input| {
        let Ok(document) = serde_json::from_slice(input) else { return };
        if let Ok(settings) = queue_settings_from_json(&document) {
            let again = queue_settings_from_json(&queue_settings_to_json(&settings));
            assert_eq!(again.as_ref(), Ok(&settings), "written and read again");
        }
    });
}

#[test]
fn quantity() {
    let words = ["ms", "d", "/s", "KiB", "GiB", "99999999999999999999", "-", ".", "µs", " "];
    fuzz("quantity", 20_000, &words, &mut |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(duration) = parse_duration(&text) {
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        if let Ok(size) = parse_size(&text) {
            assert_eq!(parse_size(&format_size(size)), Ok(size));
        }
        if let Ok(rate) = parse_rate(&text) {
            assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
        }
    });
}
