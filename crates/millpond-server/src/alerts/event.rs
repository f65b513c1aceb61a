//! What is told of a change of an alert.
//!
//! Owns its words as an event. Must never send it.

use crate::callbacks::Report;
use millpond_core::alert::{Alert, Subject};
use serde_json::json;

/// The event that says it.
pub(super) fn report(alert: &Alert) -> Report {
    let (kind, time) = match alert.cleared {
        None => ("millpond.alert.firing", alert.fired),
        Some(cleared) => ("millpond.alert.cleared", cleared),
    };
    let subject = match &alert.subject {
        Subject::Server => "server".to_owned(),
        Subject::Queue(name) => format!("queues/{name}"),
        Subject::Target(name) => format!("targets/{name}"),
    };
    Report {
        kind: kind.to_owned(),
        source: "/v1/alerts".to_owned(),
        subject: Some(subject),
        time: super::rfc3339(time),
        data: json!(super::shown(alert)),
    }
}

#[cfg(test)]
mod tests {
    use super::report;
    use millpond_core::alert::{Alert, Rule, Subject};
    use millpond_core::name::Name;
    use millpond_core::time::Wall;
    use serde_json::json;

    #[test]
    fn a_change_is_an_event_that_says_what_the_list_of_alerts_says() {
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
        let firing = report(&alert);
        assert_eq!(
            (&*firing.kind, firing.subject.as_deref()),
            ("millpond.alert.firing", Some("queues/jobs"))
        );
        assert_eq!((&*firing.source, &*firing.time), ("/v1/alerts", "1970-01-01T00:00:02.000Z"));
        assert_eq!(
            firing.data,
            json!({
                "alert": "dead", "severity": "warning", "queue": "jobs", "owner": "team-a", "state": "firing",
                "since": "1970-01-01T00:00:01.000Z", "fired_at": "1970-01-01T00:00:02.000Z",
                "value": 3.0, "threshold": 1.0, "unit": "messages",
                "summary": "queue jobs has 3 dead letters; team-a looks after them",
                "advice": Rule::Dead.advice(),
            })
        );
        let cleared = report(&Alert { subject: Subject::Server, cleared: Some(Wall(5_000_000)), ..alert });
        assert_eq!((&*cleared.kind, cleared.subject.as_deref()), ("millpond.alert.cleared", Some("server")));
        assert_eq!((&cleared.data["state"], &*cleared.time), (&json!("cleared"), "1970-01-01T00:00:05.000Z"));
    }
}
