//! A change of an alert as a `CloudEvent`.
//!
//! Owns its attributes. Must never send it.

use millpond_api::alert::Alert as Shown;
use millpond_core::alert::{Alert, Subject};
use serde::Serialize;

/// A `CloudEvent` 1.0 in structured JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Event {
    specversion: &'static str,
    /// The same for the same change, however often it is sent.
    pub(crate) id: String,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: String,
    time: String,
    datacontenttype: &'static str,
    data: Shown,
}

impl Event {
    /// `source` is how callers reach the server; empty: nobody has said.
    pub(crate) fn new(source: &str, alert: &Alert) -> Self {
        let (kind, time) = match alert.cleared {
            None => ("millpond.alert.firing", alert.fired),
            Some(cleared) => ("millpond.alert.cleared", cleared),
        };
        let subject = match &alert.subject {
            Subject::Server => "server".to_owned(),
            Subject::Queue(name) => format!("queues/{name}"),
            Subject::Target(name) => format!("targets/{name}"),
        };
        let rule = alert.rule.as_str();
        let word = kind.rsplit('.').next().unwrap_or_default();
        Self {
            specversion: "1.0",
            id: format!("{subject}/{rule}/{}/{word}", alert.fired.0),
            source: if source.is_empty() { "/millpond".to_owned() } else { source.to_owned() },
            kind,
            subject,
            time: super::rfc3339(time),
            datacontenttype: "application/json",
            data: super::shown(alert),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event;
    use millpond_core::alert::{Alert, Rule, Subject};
    use millpond_core::name::Name;
    use millpond_core::time::Wall;
    use serde_json::json;

    #[test]
    fn a_change_is_a_cloud_event_whose_id_is_its_own() {
        let alert = Alert {
            rule: Rule::Dead,
            subject: Subject::Queue(Name::new("jobs").unwrap()),
            owner: Some("team-a".to_owned()),
            since: Wall(1_000_000),
            fired: Wall(2_000_000),
            cleared: None,
            value: 3.0,
            threshold: 1.0,
        };
        let firing = serde_json::to_value(Event::new("https://pond.example", &alert)).unwrap();
        assert_eq!(
            firing,
            json!({
                "specversion": "1.0", "id": "queues/jobs/dead/2000000/firing", "source": "https://pond.example",
                "type": "millpond.alert.firing", "subject": "queues/jobs", "time": "1970-01-01T00:00:02.000Z",
                "datacontenttype": "application/json",
                "data": {
                    "alert": "dead", "severity": "warning", "queue": "jobs", "owner": "team-a", "state": "firing",
                    "since": "1970-01-01T00:00:01.000Z", "fired_at": "1970-01-01T00:00:02.000Z",
                    "value": 3.0, "threshold": 1.0, "unit": "messages",
                    "summary": "queue jobs has 3 dead letters; team-a looks after them",
                    "advice": Rule::Dead.advice(),
                },
            })
        );
        let cleared = Alert { subject: Subject::Server, cleared: Some(Wall(5_000_000)), ..alert };
        let cleared = serde_json::to_value(Event::new("", &cleared)).unwrap();
        assert_eq!(
            (&cleared["type"], &cleared["subject"]),
            (&json!("millpond.alert.cleared"), &json!("server"))
        );
        assert_eq!((&cleared["source"], &cleared["data"]["state"]), (&json!("/millpond"), &json!("cleared")));
        assert_ne!(cleared["id"], firing["id"]);
    }
}
