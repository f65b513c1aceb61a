//! A dashboard for Grafana.
//!
//! Owns which panels there are, and their places. Must never name a data source: who imports it chooses one.

use serde_json::{Value, json};

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;
const HEIGHT: u64 = 8;

/// What one panel shows.
struct Panel {
    kind: &'static str,
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    width: u64,
    height: u64,
    /// Expressions with their legends.
    series: &'static [(&'static str, &'static str)],
}

impl Panel {
    const fn lines(
        title: &'static str,
        unit: &'static str,
        description: &'static str,
        series: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { kind: "timeseries", title, description, unit, width: COLUMNS / 2, height: HEIGHT, series }
    }

    const fn stat(
        title: &'static str,
        unit: &'static str,
        description: &'static str,
        series: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { kind: "stat", title, description, unit, width: COLUMNS / 4, height: HEIGHT / 2, series }
    }

    const fn row(title: &'static str) -> Self {
        Self { kind: "row", title, description: "", unit: "", width: COLUMNS, height: 1, series: &[] }
    }
}

const PANELS: &[Panel] = &[
    Panel::row("Now"),
    Panel::stat(
        "Alerts that fire",
        "short",
        "What somebody must look at; GET /v1/alerts says what and what to do.",
        &[("sum(millpond_alerts{queue=~\"$queue|\"})", "alerts")],
    ),
    Panel::stat(
        "Oldest unfinished message",
        "s",
        "Since it was first due, whatever its state: how late the work is.",
        &[("max(millpond_queue_oldest_age_seconds{queue=~\"$queue\",state=\"any\"})", "age")],
    ),
    Panel::stat(
        "Wait of a message that arrives now",
        "s",
        "The longest of the chosen queues; none while nothing can be promised.",
        &[("max(millpond_queue_predicted_wait_seconds{queue=~\"$queue\"})", "wait")],
    ),
    Panel::stat(
        "Dead letters",
        "short",
        "Messages that could not be done and wait for somebody.",
        &[("sum(millpond_queue_messages{queue=~\"$queue\",state=\"dead\"})", "dead letters")],
    ),
    Panel::row("Waiting"),
    Panel::lines(
        "Messages by state",
        "short",
        "Depth. ready waits to be handed out, leased is in work, backoff waits for its next attempt.",
        &[(
            "sum by (queue, state) (millpond_queue_messages{queue=~\"$queue\",state!=\"dead\"})",
            "{{queue}} {{state}}",
        )],
    ),
    Panel::lines(
        "Age of the oldest message by state",
        "s",
        "Since it was first due. An old one in backoff among young ones fails again and again.",
        &[(
            "max by (queue, state) (millpond_queue_oldest_age_seconds{queue=~\"$queue\",state!=\"any\"})",
            "{{queue}} {{state}}",
        )],
    ),
    Panel::lines(
        "Arrivals, completions, capacity",
        "ops",
        "Arrivals above capacity for long are a backlog without end.",
        &[
            (
                "sum by (queue) (rate(millpond_accepted_total{queue=~\"$queue\"}[$__rate_interval]))",
                "{{queue}} accepted",
            ),
            (
                "sum by (queue) (rate(millpond_completed_total{queue=~\"$queue\"}[$__rate_interval]))",
                "{{queue}} completed",
            ),
            ("sum by (queue) (millpond_queue_capacity_per_second{queue=~\"$queue\"})", "{{queue}} capacity"),
        ],
    ),
    Panel::lines(
        "Predicted wait and time to drain",
        "s",
        "No line while nothing can be promised, or while it would never drain.",
        &[
            ("max by (queue) (millpond_queue_predicted_wait_seconds{queue=~\"$queue\"})", "{{queue}} wait"),
            ("max by (queue) (millpond_queue_drain_seconds{queue=~\"$queue\"})", "{{queue}} drain"),
        ],
    ),
    Panel::row("Promises and refusals"),
    Panel::lines(
        "Waits, nine in ten",
        "s",
        "From first due to first hand-out.",
        &[(
            "histogram_quantile(0.9, sum by (queue, le) (rate(millpond_wait_seconds_bucket{queue=~\"$queue\"}[$__rate_interval])))",
            "{{queue}}",
        )],
    ),
    Panel::lines(
        "Error of promises, nine in ten",
        "s",
        "Distance between the promised start and the start.",
        &[(
            "histogram_quantile(0.9, sum by (queue, le) (rate(millpond_promise_error_seconds_bucket{queue=~\"$queue\"}[$__rate_interval])))",
            "{{queue}}",
        )],
    ),
    Panel::lines(
        "Refusals by reason",
        "ops",
        "Callers were told to come back later.",
        &[(
            "sum by (queue, reason) (rate(millpond_refused_total{queue=~\"$queue\"}[$__rate_interval]))",
            "{{queue}} {{reason}}",
        )],
    ),
    Panel::lines(
        "Share of promises kept",
        "percentunit",
        "Messages that started by the p90 that they were promised.",
        &[(
            "sum by (queue) (rate(millpond_promises_total{queue=~\"$queue\",started!=\"late\"}[$__rate_interval])) / sum by (queue) (rate(millpond_promises_total{queue=~\"$queue\"}[$__rate_interval]))",
            "{{queue}}",
        )],
    ),
    Panel::row("Work"),
    Panel::lines(
        "Deliveries by outcome",
        "ops",
        "Hand-outs that ended.",
        &[(
            "sum by (queue, outcome) (rate(millpond_deliveries_total{queue=~\"$queue\"}[$__rate_interval]))",
            "{{queue}} {{outcome}}",
        )],
    ),
    Panel::lines(
        "Service time",
        "s",
        "From hand-out to completion.",
        &[
            (
                "histogram_quantile(0.5, sum by (queue, le) (rate(millpond_service_seconds_bucket{queue=~\"$queue\"}[$__rate_interval])))",
                "{{queue}} half",
            ),
            (
                "histogram_quantile(0.9, sum by (queue, le) (rate(millpond_service_seconds_bucket{queue=~\"$queue\"}[$__rate_interval])))",
                "{{queue}} nine in ten",
            ),
        ],
    ),
    Panel::lines(
        "Calls at targets and their limits",
        "short",
        "Calls that occupy the target, and how many may.",
        &[
            ("max by (target) (millpond_target_inflight{target=~\"$target\"})", "{{target}} in flight"),
            ("max by (target) (millpond_target_limit{target=~\"$target\"})", "{{target}} limit"),
        ],
    ),
    Panel::lines(
        "Held",
        "short",
        "1 while the queue hands out nothing for this reason, whatever waits.",
        &[("sum by (queue, reason) (millpond_queue_held{queue=~\"$queue\"})", "{{queue}} {{reason}}")],
    ),
    Panel::row("Journal"),
    Panel::lines(
        "Time per commit",
        "s",
        "Write and sync. Every 202 waits for one.",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(millpond_journal_commit_seconds_bucket[$__rate_interval])))",
                "half",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(millpond_journal_commit_seconds_bucket[$__rate_interval])))",
                "99 in 100",
            ),
        ],
    ),
    Panel::lines(
        "Bytes on disk",
        "bytes",
        "All segments of the journal.",
        &[("sum(millpond_journal_bytes)", "journal")],
    ),
];

/// The dashboard as Grafana imports it.
pub fn dashboard() -> Value {
    json!({
        "id": null,
        "uid": "millpond",
        "title": "Millpond",
        "description": "How much waits, how late it is, and what is done about it.",
        "tags": ["millpond"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [
            {
                "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "hide": 0,
                "refresh": 1, "multi": false, "includeAll": false, "regex": "", "options": [], "current": {},
            },
            variable("queue", "Queue", "label_values(millpond_queue_messages, queue)"),
            variable("target", "Target", "label_values(millpond_target_inflight, target)"),
        ]},
        "panels": panels(),
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variable(name: &str, label: &str, query: &str) -> Value {
    json!({
        "type": "query", "name": name, "label": label, "datasource": source(), "hide": 0, "refresh": 2, "sort": 1,
        "definition": query, "query": {"query": query, "refId": "variable"}, "regex": "", "multi": true,
        "includeAll": true, "allValue": ".*", "options": [], "current": {"text": "All", "value": "$__all"},
    })
}

/// From left to right, then down.
fn panels() -> Vec<Value> {
    let (mut x, mut y, mut line_height) = (0, 0, 0);
    let mut placed = Vec::with_capacity(PANELS.len());
    for (place, panel) in PANELS.iter().enumerate() {
        if x + panel.width > COLUMNS {
            (x, y) = (0, y + line_height);
            line_height = 0;
        }
        placed.push(shown(panel, place + 1, (x, y)));
        x += panel.width;
        line_height = line_height.max(panel.height);
    }
    placed
}

fn shown(panel: &Panel, id: usize, (x, y): (u64, u64)) -> Value {
    let place = json!({"x": x, "y": y, "w": panel.width, "h": panel.height});
    if panel.kind == "row" {
        return json!({
            "id": id, "type": "row", "title": panel.title, "gridPos": place, "collapsed": false, "panels": [],
        });
    }
    let targets = panel.series.iter().zip('A'..).map(|((expression, legend), letter)| {
        json!({
            "refId": letter.to_string(), "datasource": source(), "expr": expression, "legendFormat": legend,
            "editorMode": "code", "range": true,
        })
    });
    let options = if panel.kind == "stat" {
        json!({"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false}, "colorMode": "value"})
    } else {
        json!({
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
            "tooltip": {"mode": "multi", "sort": "desc"},
        })
    };
    json!({
        "id": id, "type": panel.kind, "title": panel.title, "description": panel.description, "gridPos": place,
        "datasource": source(), "targets": targets.collect::<Vec<_>>(), "options": options,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {}}, "overrides": []},
    })
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, dashboard};
    use std::collections::BTreeSet;

    #[test]
    fn panels_have_numbers_of_their_own_and_do_not_overlap() {
        let dashboard = dashboard();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() > 15);
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len());
        let mut taken = BTreeSet::new();
        for panel in panels {
            let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            for x in at("x")..at("x") + at("w") {
                assert!(x < COLUMNS, "{panel}");
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{panel} overlaps another");
                }
            }
            let is_row = panel["type"] == "row";
            let letters: BTreeSet<&str> = panel["targets"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|target| target["refId"].as_str().unwrap())
                .collect();
            assert!(is_row || letters.len() == panel["targets"].as_array().unwrap().len(), "{panel}");
            assert!(is_row || !panel["description"].as_str().unwrap().is_empty(), "{panel}");
        }
    }

    #[test]
    fn it_can_be_imported_again_and_again_with_any_data_source() {
        let dashboard = dashboard();
        assert!(dashboard["id"].is_null() && dashboard["uid"] == "millpond");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let names: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["datasource", "queue", "target"]);
        let text = dashboard.to_string();
        assert_eq!(
            text.matches("\"uid\":\"${datasource}\"").count(),
            text.matches("\"type\":\"prometheus\"").count()
        );
    }
}
