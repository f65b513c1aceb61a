//! The JSON shape of a queue's settings, as the HTTP API takes and gives it.
//!
//! Owns names (`lease_seconds`), types and unknown fields. Must never hold a rule about values: those are
//! `millpond-core`'s, and the ones between settings are in `check`.

use crate::check;
use crate::keys::nearest;
use crate::words;
use millpond_core::alert::AlertSettings;
use millpond_core::name::Name;
use millpond_core::settings::{DeadLetterSettings, QueueSettings, RetrySettings};
use serde_json::{Map, Number, Value, json};
use std::fmt;
use std::time::Duration;

const QUEUE_FIELDS: &[&str] = &[
    "target",
    "concurrency",
    "max_wait_seconds",
    "max_messages",
    "max_bytes",
    "overflow",
    "block_for_seconds",
    "order",
    "fresh_within_seconds",
    "priority",
    "prefetch",
    "max_keys",
    "dead_burst",
    "lease_seconds",
    "retention_seconds",
    "on_expiry",
    "result_retention_seconds",
    "result_max_bytes",
    "expected_service_time_seconds",
    "retry",
    "dead_letter",
    "alerts",
];
const RETRY_FIELDS: &[&str] =
    &["max_attempts", "max_deliveries", "backoff_min_seconds", "backoff_max_seconds", "budget"];
const DEAD_LETTER_FIELDS: &[&str] = &["retention_seconds", "max_messages", "replayable_for_seconds", "owner"];
const ALERTS_FIELDS: &[&str] =
    &["oldest_age_seconds", "depth", "dead", "refusals", "insurmountable", "held", "for_seconds"];

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The dotted path of the field, such as `retry.max_attempts`; empty for the document itself.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            formatter.write_str(&self.problem)
        } else {
            write!(formatter, "{}: {}", self.field, self.problem)
        }
    }
}

/// Every field that is wrong; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl fmt::Display for FieldErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for FieldErrors {}

/// Writes every setting; what is not set is `null`.
pub fn queue_settings_to_json(settings: &QueueSettings) -> Value {
    let RetrySettings { max_attempts, max_deliveries, backoff_min, backoff_max, budget } = &settings.retry;
    json!({
        "target": settings.target.as_ref().map(Name::as_str),
        "concurrency": settings.concurrency,
        "max_wait_seconds": settings.max_wait.map(seconds),
        "max_messages": settings.max_messages,
        "max_bytes": settings.max_bytes,
        "overflow": settings.overflow,
        "block_for_seconds": seconds(settings.block_for),
        "order": settings.order,
        "fresh_within_seconds": seconds(settings.fresh_within),
        "priority": settings.priority,
        "prefetch": settings.prefetch,
        "max_keys": settings.max_keys,
        "dead_burst": settings.dead_burst,
        "lease_seconds": seconds(settings.lease),
        "retention_seconds": seconds(settings.retention),
        "on_expiry": settings.on_expiry,
        "result_retention_seconds": seconds(settings.result_retention),
        "result_max_bytes": settings.result_max_bytes,
        "expected_service_time_seconds": settings.expected_service_time.map(seconds),
        "retry": {
            "max_attempts": max_attempts,
            "max_deliveries": max_deliveries,
            "backoff_min_seconds": seconds(*backoff_min),
            "backoff_max_seconds": seconds(*backoff_max),
            "budget": budget,
        },
        "dead_letter": {
            "retention_seconds": seconds(settings.dead_letter.retention),
            "max_messages": settings.dead_letter.max_messages,
            "replayable_for_seconds": seconds(settings.dead_letter.replayable_for),
            "owner": settings.dead_letter.owner,
        },
        "alerts": {
            "oldest_age_seconds": settings.alerts.oldest_age.map(seconds),
            "depth": settings.alerts.depth,
            "dead": settings.alerts.dead,
            "refusals": settings.alerts.refusals,
            "insurmountable": settings.alerts.insurmountable,
            "held": settings.alerts.held,
            "for_seconds": seconds(settings.alerts.hold),
        },
    })
}

/// Seconds as JSON: an integer where they are whole.
fn seconds(duration: Duration) -> Value {
    if duration.subsec_nanos() == 0 {
        return Value::from(duration.as_secs());
    }
    Number::from_f64(duration.as_secs_f64()).map_or(Value::Null, Value::Number)
}

/// Reads settings. What is missing or `null` has its default; times are rounded to microseconds.
///
/// # Errors
/// Every field that is unknown, not supported by this version, of the wrong type or out of its limits, at once.
pub fn queue_settings_from_json(document: &Value) -> Result<QueueSettings, FieldErrors> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let mut object = Object { fields: &empty, path: "", errors: &mut errors };
    let Some(fields) = document.as_object() else {
        object.wrong("", "must be an object");
        return Err(FieldErrors(errors));
    };
    object.fields = fields;
    let settings = queue(&mut object);
    for finding in check::check_queue(&settings) {
        let field = json_name(finding.field);
        // A wrong value has been replaced by its default; the limits say nothing about it.
        let known = |error: &FieldError| {
            error.field == field
                || (error.field == "retention_seconds" && field == "dead_letter.retention_seconds")
        };
        if !errors.iter().any(known) {
            errors.push(FieldError { field, problem: format!("{}; {}", finding.problem, finding.help) });
        }
    }
    if errors.is_empty() { Ok(settings) } else { Err(FieldErrors(errors)) }
}

/// The JSON field that belongs to a key of the configuration file.
pub fn json_name(field: &str) -> String {
    match field {
        "max_wait"
        | "block_for"
        | "fresh_within"
        | "lease"
        | "retention"
        | "result_retention"
        | "expected_service_time"
        | "dead_letter.retention"
        | "dead_letter.replayable_for"
        | "alerts.oldest_age"
        | "alerts.for" => format!("{field}_seconds"),
        "retry.backoff" => "retry.backoff_min_seconds".to_owned(),
        "result_max" => "result_max_bytes".to_owned(),
        same => same.to_owned(),
    }
}

fn queue(object: &mut Object<'_>) -> QueueSettings {
    let fresh = QueueSettings::default();
    object.check_fields(QUEUE_FIELDS);
    QueueSettings {
        target: object.name("target"),
        concurrency: object.number("concurrency"),
        max_wait: object.seconds("max_wait_seconds"),
        max_messages: object.number("max_messages"),
        max_bytes: object.number("max_bytes").unwrap_or(fresh.max_bytes),
        overflow: object.choice("overflow", &words::OVERFLOWS).unwrap_or(fresh.overflow),
        block_for: object.seconds("block_for_seconds").unwrap_or(fresh.block_for),
        order: object.choice("order", &words::ORDERS).unwrap_or(fresh.order),
        fresh_within: object.seconds("fresh_within_seconds").unwrap_or(fresh.fresh_within),
        priority: object.choice("priority", &words::PRIORITIES).unwrap_or(fresh.priority),
        prefetch: object.number("prefetch").unwrap_or(fresh.prefetch),
        max_keys: object.number("max_keys").unwrap_or(fresh.max_keys),
        dead_burst: object.number("dead_burst").unwrap_or(fresh.dead_burst),
        lease: object.seconds("lease_seconds").unwrap_or(fresh.lease),
        retention: object.seconds("retention_seconds").unwrap_or(fresh.retention),
        on_expiry: object.choice("on_expiry", &words::EXPIRIES).unwrap_or(fresh.on_expiry),
        result_retention: object.seconds("result_retention_seconds").unwrap_or(fresh.result_retention),
        result_max_bytes: object.number("result_max_bytes").unwrap_or(fresh.result_max_bytes),
        expected_service_time: object.seconds("expected_service_time_seconds"),
        retry: object.object("retry", retry).unwrap_or(fresh.retry),
        dead_letter: object.object("dead_letter", dead_letter).unwrap_or(fresh.dead_letter),
        alerts: object.object("alerts", alerts).unwrap_or(fresh.alerts),
    }
}

fn retry(object: &mut Object<'_>) -> RetrySettings {
    let fresh = RetrySettings::default();
    object.check_fields(RETRY_FIELDS);
    RetrySettings {
        max_attempts: object.number("max_attempts").unwrap_or(fresh.max_attempts),
        max_deliveries: object.number("max_deliveries"),
        backoff_min: object.seconds("backoff_min_seconds").unwrap_or(fresh.backoff_min),
        backoff_max: object.seconds("backoff_max_seconds").unwrap_or(fresh.backoff_max),
        budget: object.fraction("budget").unwrap_or(fresh.budget),
    }
}

fn dead_letter(object: &mut Object<'_>) -> DeadLetterSettings {
    let fresh = DeadLetterSettings::default();
    object.check_fields(DEAD_LETTER_FIELDS);
    DeadLetterSettings {
        retention: object.seconds("retention_seconds").unwrap_or(fresh.retention),
        max_messages: object.number("max_messages").unwrap_or(fresh.max_messages),
        replayable_for: object.seconds("replayable_for_seconds").unwrap_or(fresh.replayable_for),
        owner: object.text("owner").map(str::to_owned),
    }
}

fn alerts(object: &mut Object<'_>) -> AlertSettings {
    let fresh = AlertSettings::default();
    object.check_fields(ALERTS_FIELDS);
    AlertSettings {
        oldest_age: object.seconds("oldest_age_seconds"),
        depth: object.number("depth"),
        dead: object.number("dead").unwrap_or(fresh.dead),
        refusals: object.fraction("refusals").unwrap_or(fresh.refusals),
        insurmountable: object.flag("insurmountable").unwrap_or(fresh.insurmountable),
        held: object.flag("held").unwrap_or(fresh.held),
        hold: object.seconds("for_seconds").unwrap_or(fresh.hold),
    }
}

/// Typed reading of one JSON object; every getter returns a value or notes why there is none.
struct Object<'a> {
    fields: &'a Map<String, Value>,
    path: &'static str,
    errors: &'a mut Vec<FieldError>,
}

impl<'a> Object<'a> {
    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn wrong(&mut self, field: &str, problem: impl Into<String>) {
        self.errors.push(FieldError { field: self.path_of(field), problem: problem.into() });
    }

    fn check_fields(&mut self, known: &[&str]) {
        for name in self.fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let without_unit = |field: &&str| {
                field.strip_prefix(name.as_str()).is_some_and(|rest| matches!(rest, "_seconds" | "_bytes"))
            };
            let with_unit = known.iter().copied().find(without_unit);
            match with_unit.or_else(|| nearest(name, known.iter().copied())) {
                Some(right) => self.wrong(name, format!("is not a field; did you mean {right:?}?")),
                None => self.wrong(name, format!("is not a field; the fields are {}", known.join(", "))),
            }
        }
    }

    /// The field's value, unless it is missing or `null`.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn text(&mut self, field: &str) -> Option<&'a str> {
        let text = self.get(field)?.as_str();
        if text.is_none() {
            self.wrong(field, "must be a string");
        }
        text
    }

    fn name(&mut self, field: &str) -> Option<Name> {
        match Name::new(self.text(field)?) {
            Ok(name) => Some(name),
            Err(error) => {
                self.wrong(field, error.to_string());
                None
            }
        }
    }

    fn number<T: TryFrom<u64>>(&mut self, field: &str) -> Option<T> {
        let number = self.get(field)?.as_u64().and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.wrong(
                field,
                "must be a whole number that is not negative, and not larger than the field can hold",
            );
        }
        number
    }

    fn fraction(&mut self, field: &str) -> Option<f64> {
        let number = self.get(field)?.as_f64();
        if number.is_none() {
            self.wrong(field, "must be a number, such as 0.2");
        }
        number
    }

    fn flag(&mut self, field: &str) -> Option<bool> {
        let flag = self.get(field)?.as_bool();
        if flag.is_none() {
            self.wrong(field, "must be true or false");
        }
        flag
    }

    fn seconds(&mut self, field: &str) -> Option<Duration> {
        let seconds = self.get(field)?.as_f64();
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let fits = duration.filter(|duration| *duration <= crate::quantity::DURATION_MAX);
        if fits.is_none() {
            self.wrong(field, "must be a number of seconds that is not negative, such as 30 or 0.08");
        }
        let micros = fits?.as_nanos().div_ceil(500) / 2;
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    fn choice<T: Copy>(&mut self, field: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(field)?;
        let choice = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        if choice.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let problem = match nearest(text, words.iter().copied()) {
                Some(right) => format!("{text:?} is not one of the choices; did you mean {right:?}?"),
                None => format!("{text:?} is not one of the choices; use {}", words.join(" or ")),
            };
            self.wrong(field, problem);
        }
        choice
    }

    fn object<T>(&mut self, field: &'static str, read: impl Fn(&mut Object<'_>) -> T) -> Option<T> {
        let value = self.get(field)?;
        let Some(fields) = value.as_object() else {
            self.wrong(field, "must be an object");
            return None;
        };
        Some(read(&mut Object { fields, path: field, errors: self.errors }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn errors(document: &Value) -> Vec<String> {
        queue_settings_from_json(document).unwrap_err().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_empty_object_is_every_default() {
        assert_eq!(queue_settings_from_json(&json!({})), Ok(QueueSettings::default()));
        let nulls = json!({"target": null, "retry": null, "lease_seconds": null});
        assert_eq!(queue_settings_from_json(&nulls), Ok(QueueSettings::default()));
    }

    #[test]
    fn every_field_is_written_and_whole_seconds_are_integers() {
        let document = queue_settings_to_json(&QueueSettings::default());
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let sorted = |fields: &[&str]| {
            let mut fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
            fields.sort();
            fields
        };
        for (value, fields) in [
            (&document, QUEUE_FIELDS),
            (&document["retry"], RETRY_FIELDS),
            (&document["dead_letter"], DEAD_LETTER_FIELDS),
            (&document["alerts"], ALERTS_FIELDS),
        ] {
            let mut written = names(value);
            written.sort();
            assert_eq!(written, sorted(fields));
        }
        assert_eq!(document["lease_seconds"].to_string(), "30");
    }

    #[test]
    fn every_wrong_field_is_reported_at_once() {
        let document = json!({
            "lease": 30, "concurrency": -1, "max_messages": 1.5, "target": "a b", "max_wait_seconds": "45m",
            "overflow": "panic", "order": "lilo", "priority": 1, "retention_seconds": 0,
            "alerts": {"dead": -1, "refusals": 2, "held": "no", "for": 60, "oldest_age_seconds": 0},
            "block_for_seconds": 61, "fresh_within": 3, "prefetch": 0, "max_keys": 0, "dead_burst": -1,
            "retry": {"max_attempts": 0, "budget": 1.5, "max_delivery": 3}, "dead_letter": [],
        });
        let errors = errors(&document);
        for (field, hint) in [
            ("lease: ", "did you mean \"lease_seconds\"?"),
            ("concurrency: ", "not negative"),
            ("max_messages: ", "whole number"),
            ("target: ", "is not a name"),
            ("max_wait_seconds: ", "number of seconds"),
            ("overflow: ", "not one of the choices; use reject or block or drop-oldest"),
            ("order: ", "not one of the choices; did you mean \"lifo\"?"),
            ("priority: ", "must be a string"),
            ("block_for_seconds: ", "at most 1m"),
            ("fresh_within: ", "did you mean \"fresh_within_seconds\"?"),
            ("prefetch: ", "between 1 and 1000"),
            ("max_keys: ", "at least 1"),
            ("dead_burst: ", "not negative"),
            ("alerts.dead: ", "not negative"),
            ("alerts.refusals: ", "between 0 and 1"),
            ("alerts.held: ", "true or false"),
            ("alerts.for: ", "did you mean \"for_seconds\"?"),
            ("alerts.oldest_age_seconds: ", "longer than 0s"),
            ("retention_seconds: ", "between 1s and 366d"),
            ("retry.max_attempts: ", "between 1 and 1000"),
            ("retry.budget: ", "between 0 and 1"),
            ("retry.max_delivery: ", "did you mean \"max_deliveries\"?"),
            ("dead_letter: ", "must be an object"),
        ] {
            let found = errors.iter().any(|error| error.starts_with(field) && error.contains(hint));
            assert!(found, "{field}{hint} in {errors:#?}");
        }
        assert_eq!(errors.len(), 23, "{errors:#?}");
    }

    #[test]
    fn what_is_no_object_and_huge_numbers_are_refused() {
        for document in [json!([]), json!(1), json!("x"), json!(null)] {
            assert_eq!(errors(&document), ["must be an object"]);
        }
        for document in [json!({"lease_seconds": 1e300}), json!({"lease_seconds": -0.5})] {
            assert_eq!(errors(&document).len(), 1);
        }
        assert_eq!(errors(&json!({"concurrency": 4_294_967_296_u64})).len(), 1);
    }

    fn micros(most: u64) -> impl Strategy<Value = Duration> {
        (1_000_000..=most).prop_map(Duration::from_micros)
    }

    prop_compose! {
        fn settings()(
            target in proptest::option::of("[a-z_][a-z.-]{0,10}"),
            counts in (proptest::option::of(1..=u32::MAX), proptest::option::of(1..=u64::MAX), 1..=u64::MAX),
            max_wait in proptest::option::of(micros(86_400_000_000)),
            times in (micros(43_200_000_000), micros(2_592_000_000_000), micros(43_200_000_000)),
            choices in (0..3_usize, 0..3_usize, 0..2_usize, 0..2_usize),
            bounds in (1..=1000_u32, 1..=u64::MAX, any::<u32>(), 0.0..=1.0_f64),
            fresh in (micros(60_000_000), micros(31_622_400_000_000), micros(31_622_400_000_000)),
            attempts in (1..=1000_u32, proptest::option::of(1000..=u32::MAX)),
            owner in proptest::option::of("\\PC{1,20}"),
            flags in any::<(bool, bool)>(),
        ) -> QueueSettings {
            QueueSettings {
                target: target.map(|text| Name::new(&text).unwrap()),
                concurrency: counts.0,
                max_messages: counts.1,
                max_bytes: counts.2,
                max_wait,
                lease: times.0,
                retention: times.1,
                expected_service_time: Some(times.2),
                result_retention: times.1,
                overflow: words::OVERFLOWS[choices.0].1,
                order: words::ORDERS[choices.1].1,
                priority: words::PRIORITIES[choices.2].1,
                on_expiry: words::EXPIRIES[choices.3].1,
                prefetch: bounds.0,
                max_keys: bounds.1,
                dead_burst: bounds.2,
                block_for: fresh.0,
                fresh_within: fresh.1,
                retry: RetrySettings {
                    max_attempts: attempts.0,
                    max_deliveries: attempts.1,
                    backoff_min: times.0,
                    backoff_max: times.0 + times.2,
                    budget: bounds.3,
                },
                dead_letter: DeadLetterSettings {
                    retention: times.1 + Duration::from_secs(1),
                    max_messages: counts.2,
                    replayable_for: fresh.2,
                    owner,
                },
                alerts: AlertSettings {
                    oldest_age: max_wait,
                    depth: counts.1,
                    dead: counts.2,
                    refusals: bounds.3,
                    insurmountable: flags.0,
                    held: flags.1,
                    hold: times.0,
                },
                result_max_bytes: u64::from(bounds.0),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(settings in settings()) {
            let text = queue_settings_to_json(&settings).to_string();
            let document = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(queue_settings_from_json(&document), Ok(settings));
        }
    }
}
