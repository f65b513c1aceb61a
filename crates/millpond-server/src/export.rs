//! What monitoring systems are given: the rules for Prometheus, a dashboard for Grafana.
//!
//! Owns nothing itself. Must never say of a metric what `/metrics` does not have.

mod grafana;
mod rules;
mod yaml;

pub use grafana::dashboard;

use millpond_config::Configuration;

/// Where the guide lies to which alerts refer, unless somebody says otherwise.
pub const RUNBOOKS: &str = "docs/guide/alerts.md";

/// The rules of a configuration as a Prometheus rule file; `runbooks` is the address of the guide to alerts.
pub fn prometheus(configuration: &Configuration, runbooks: &str) -> String {
    yaml::rule_file(&rules::groups(configuration, runbooks))
}

#[cfg(test)]
mod tests {
    use super::{RUNBOOKS, dashboard, rules};
    use millpond_config::parse;
    use millpond_core::alert::Rule;
    use std::collections::BTreeSet;
    use std::path::Path;

    const FILE: &str = "
        [queues.jobs]
        dead_letter.owner = 'team-jobs'
        alerts = { oldest_age = '10m', depth = 500 }
        [queues.quiet]
        alerts = { dead = 0, refusals = 0, insurmountable = false, held = false }
    ";

    fn groups(text: &str) -> Vec<rules::Group> {
        rules::groups(&parse(text, "test").unwrap().configuration, RUNBOOKS)
    }

    /// The names of our metrics in an expression.
    fn metrics(expression: &str) -> BTreeSet<&str> {
        let words =
            expression.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        words.filter(|word| word.starts_with("millpond_")).collect()
    }

    fn all_expressions() -> Vec<String> {
        let rules = groups(FILE).into_iter().flat_map(|group| group.rules).map(|rule| rule.expression);
        let dashboard = dashboard();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        let shown = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
        rules.chain(shown).collect()
    }

    #[test]
    fn every_metric_that_a_rule_or_a_panel_names_is_one_of_ours() {
        let told = crate::metrics::tests::example();
        let is_told = |name: &str| {
            told.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        };
        let expressions = all_expressions();
        assert!(expressions.len() > 30, "{}", expressions.len());
        for expression in &expressions {
            let named = metrics(expression);
            assert!(!named.is_empty(), "{expression}");
            for name in named {
                assert!(is_told(name), "{name} of {expression}");
            }
        }
    }

    #[test]
    fn every_alert_has_a_rule_with_a_section_in_the_guide() {
        let all = groups("[queues.jobs]\nalerts = { oldest_age = '10m', depth = 500 }");
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(RUNBOOKS);
        let guide = std::fs::read_to_string(guide).unwrap();
        let section = |word: &str| guide.lines().any(|line| line == format!("### {word}"));
        for rule in Rule::ALL {
            let name = rules::name(rule);
            let found = all.iter().flat_map(|group| &group.rules).find(|found| found.name == name);
            let found = found.unwrap_or_else(|| panic!("{name} has no rule"));
            assert_eq!(found.labels[0], ("severity", rule.severity().as_str().to_owned()));
            assert!(section(rule.as_str()), "{}", rule.as_str());
        }
        assert!(section("down"));
    }

    #[test]
    fn rules_follow_the_configuration_queue_by_queue() {
        let groups = groups(FILE);
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["millpond", "millpond-queue-jobs", "millpond-other-queues"]);
        let jobs = &groups[1].rules;
        let age = jobs.iter().find(|rule| rule.name == "MillpondOldestAge").unwrap();
        assert!(age.expression.contains(">= 600") && age.expression.contains("queue=\"jobs\""), "{age:?}");
        assert!(age.labels.contains(&("owner", "team-jobs".to_owned())), "{age:?}");
        let other = &groups[2].rules;
        assert!(other.iter().all(|rule| rule.expression.contains("queue!~\"jobs|quiet\"")), "{other:?}");
        assert!(other.iter().all(|rule| rule.name != "MillpondDepth"), "nobody has set it");
    }
}
