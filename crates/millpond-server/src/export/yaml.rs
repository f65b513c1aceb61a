//! Rule files as YAML.
//!
//! Owns quoting: what comes from a configuration can be nothing but a string. Must never know what a rule means.

use super::rules::{Group, PrometheusRule, duration};
use std::fmt::Write as _;

/// A rule file.
pub(super) fn rule_file(groups: &[Group]) -> String {
    let mut text =
        "# Made by millpond export prometheus from its configuration: make it anew when that has changed.\n\
                    # Needs Prometheus 2.42 or later.\ngroups:\n"
            .to_owned();
    for group in groups {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  - name: {}\n    rules:", quoted(&group.name));
        for rule in &group.rules {
            write_rule(&mut text, rule);
        }
    }
    text
}

fn write_rule(text: &mut String, rule: &PrometheusRule) {
    let _ = writeln!(text, "      - alert: {}\n        expr: |-", rule.name);
    for line in rule.expression.lines() {
        let _ = writeln!(text, "          {line}");
    }
    for (key, value) in [("for", rule.hold), ("keep_firing_for", rule.keep)] {
        if !value.is_zero() {
            let _ = writeln!(text, "        {key}: {}", duration(value));
        }
    }
    for (key, pairs) in [("labels", &rule.labels), ("annotations", &rule.annotations)] {
        let _ = writeln!(text, "        {key}:");
        for (name, value) in pairs {
            let _ = writeln!(text, "          {name}: {}", quoted(value));
        }
    }
}

/// YAML's double-quoted strings take every escape that JSON has.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
