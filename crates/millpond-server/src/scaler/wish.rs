//! What a trigger of KEDA asks for, and the number it is told.
//!
//! Owns the trigger's metadata: their names, defaults and checks. Must never ask the engine anything.

use millpond_config::nearest;
use millpond_config::quantity::parse_duration;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_core::stats::QueueStats;
use std::collections::HashMap;
use std::time::Duration;

/// The keys that mean something here. KEDA sends its own ones along, and those are its business.
const KEYS: [&str; 6] =
    ["queue", "metric", "workersPerReplica", "backlogPerReplica", "targetWait", "activation"];
/// Keys of KEDA that resemble ours.
const OF_KEDA: [&str; 2] = ["metricName", "metricType"];

/// The number that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Workers wanted for the promise.
    Workers,
    /// Messages that wait or are at work.
    Backlog,
}

/// What a trigger asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) queue: Name,
    pub(crate) metric: Metric,
    /// How much of the metric one replica is for; `None`: it follows from the queue.
    per_replica: Option<f64>,
    /// Another wait than the promised one.
    wait: Option<Duration>,
    /// The workload is active above this.
    activation: f64,
}

fn positive(key: &str, text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().parse().ok();
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| format!("{key} is {text:?}; write a number above zero"))
}

impl Wish {
    /// Reads a trigger's metadata; the error says what is wrong and what would be right.
    pub(crate) fn read(metadata: &HashMap<String, String>) -> Result<Self, String> {
        for key in metadata.keys().filter(|key| !is_known(key)) {
            if let Some(meant) = nearest(key, KEYS.into_iter()) {
                return Err(format!("there is no metadata {key:?}; did you mean {meant:?}?"));
            }
        }
        let get = |key: &str| metadata.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let queue = get("queue").ok_or("the metadata name no queue; add queue: <name>")?;
        let queue = Name::new(queue).map_err(|error| format!("queue is {queue:?}: {error}"))?;
        let metric = match get("metric") {
            None | Some("workers") => Metric::Workers,
            Some("backlog") => Metric::Backlog,
            Some(other) => return Err(format!("metric is {other:?}; write workers or backlog")),
        };
        let (own, other) = match metric {
            Metric::Workers => ("workersPerReplica", "backlogPerReplica"),
            Metric::Backlog => ("backlogPerReplica", "workersPerReplica"),
        };
        if get(other).is_some() {
            return Err(format!("{other} belongs to the other metric; write {own}, or change metric"));
        }
        let wait = |text| match parse_duration(text) {
            Ok(wait) if !wait.is_zero() => Ok(wait),
            _ => Err(format!("targetWait is {text:?}; write a duration such as 30s or 10m")),
        };
        let activation = |text: &str| match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
            _ => Err(format!("activation is {text:?}; write a number, 0 or more")),
        };
        Ok(Self {
            queue,
            metric,
            per_replica: get(own).map(|text| positive(own, text)).transpose()?,
            wait: get("targetWait").map(wait).transpose()?,
            activation: get("activation").map(activation).transpose()?.unwrap_or(0.0),
        })
    }

    /// The metric's name; KEDA puts the trigger's number before it.
    pub(crate) fn metric_name(&self) -> &'static str {
        match self.metric {
            Metric::Workers => "workers-wanted",
            Metric::Backlog => "backlog",
        }
    }

    /// The metric's value.
    pub(crate) fn value(&self, stats: &QueueStats) -> f64 {
        match (self.metric, self.wait) {
            (Metric::Workers, None) => stats.workers_wanted as f64,
            (Metric::Workers, wait) => stats.demand.workers_within(wait) as f64,
            // What somebody holds belongs to it: a worker that is at it must not be taken away. And what is tried again
            // later is not nothing.
            (Metric::Backlog, _) => (stats.ready + stats.leased).max(stats.backoff.min(1)) as f64,
        }
    }

    /// Whether the workload needs any replica.
    pub(crate) fn is_active(&self, stats: &QueueStats) -> bool {
        self.value(stats) > self.activation
    }

    /// How much of the metric one replica is for. Of a backlog that is, unless it was said, what one worker does within
    /// the acceptable wait: wait ÷ time per message.
    pub(crate) fn target(&self, settings: &QueueSettings, stats: &QueueStats) -> Result<f64, String> {
        if let Some(said) = self.per_replica {
            return Ok(said);
        }
        if self.metric == Metric::Workers {
            return Ok(1.0);
        }
        let service = settings.expected_service_time.unwrap_or(stats.service_time).as_secs_f64();
        let wait = self.wait.or(settings.max_wait);
        match wait {
            Some(wait) if service > 0.0 => Ok((wait.as_secs_f64() / service).max(1.0)),
            Some(_) => Err(
                "the time per message is not known yet; add backlogPerReplica, or set expected_service_time for the queue"
                    .to_owned(),
            ),
            None => Err(
                "the queue promises no wait; add backlogPerReplica, or targetWait, or set max_wait for the queue".to_owned(),
            ),
        }
    }
}

fn is_known(key: &str) -> bool {
    KEYS.contains(&key) || OF_KEDA.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::Wish;
    use millpond_core::scaling::Demand;
    use millpond_core::settings::QueueSettings;
    use millpond_core::stats::QueueStats;
    use std::time::Duration;

    fn read(text: &str) -> Result<Wish, String> {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        Wish::read(&pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn stats() -> QueueStats {
        let demand = Demand { waiting: 900, service_seconds: Some(0.1), ..Demand::default() };
        QueueStats {
            ready: 900,
            leased: 7,
            backoff: 3,
            workers_wanted: 2,
            service_time: Duration::from_millis(100),
            demand,
            ..QueueStats::default()
        }
    }

    #[test]
    fn a_trigger_is_told_the_number_it_asks_for() {
        for (text, value, target) in [
            ("queue=q", 2.0, Ok(1.0)),
            ("queue=q metric=workers workersPerReplica=10", 2.0, Ok(10.0)),
            ("queue=q targetWait=10s scalerAddress=millpond:8090 metricType=AverageValue", 9.0, Ok(1.0)),
            ("queue=q metric=backlog backlogPerReplica=100", 907.0, Ok(100.0)),
            ("queue=q metric=backlog targetWait=10s", 907.0, Ok(100.0)),
            ("queue=q metric=backlog", 907.0, Err("promises no wait")),
        ] {
            let wish = read(text).unwrap();
            assert!((wish.value(&stats()) - value).abs() < 1e-9, "{text}");
            match (wish.target(&QueueSettings::default(), &stats()), target) {
                (Ok(told), Ok(target)) => assert!((told - target).abs() < 1e-9, "{text}: {told}"),
                (Err(told), Err(part)) => assert!(told.contains(part), "{text}: {told}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_backlog_per_replica_is_the_promise_over_the_time_per_message() {
        let wish = read("queue=q metric=backlog").unwrap();
        let promised = QueueSettings {
            max_wait: Some(Duration::from_secs(10)),
            expected_service_time: Some(Duration::from_millis(50)),
            ..QueueSettings::default()
        };
        assert_eq!(
            wish.target(&promised, &stats()),
            Ok(200.0),
            "what was configured counts: it does not move"
        );
        let unknown = QueueSettings { expected_service_time: None, ..promised };
        let told = wish.target(&unknown, &QueueStats::default()).unwrap_err();
        assert!(told.contains("not known yet"), "{told}");
    }

    #[test]
    fn a_workload_is_active_above_its_activation() {
        for (text, active) in [
            ("queue=q", true),
            ("queue=q activation=2", false),
            ("queue=q metric=backlog activation=906", true),
            ("queue=q metric=backlog activation=907", false),
        ] {
            assert_eq!(read(text).unwrap().is_active(&stats()), active, "{text}");
        }
        let idle = QueueStats::default();
        assert!(!read("queue=q").unwrap().is_active(&idle));
        let retried = QueueStats { backoff: 3, ..idle };
        assert!(
            read("queue=q metric=backlog").unwrap().is_active(&retried),
            "what is tried again is not nothing"
        );
    }

    #[test]
    fn what_is_wrong_with_the_metadata_is_told_with_what_to_do() {
        for (text, told) in [
            ("metric=workers", "add queue"),
            ("queue=", "add queue"),
            ("queue=a/b", "queue is \"a/b\""),
            ("queue=q metric=lag", "write workers or backlog"),
            ("queue=q workersPerReplica=0", "write a number above zero"),
            ("queue=q workersPerReplica=many", "write a number above zero"),
            ("queue=q backlogPerReplica=100", "write workersPerReplica"),
            ("queue=q targetWait=soon", "write a duration"),
            ("queue=q targetWait=0s", "write a duration"),
            ("queue=q activation=-1", "0 or more"),
            ("queue=q workerPerReplica=10", "did you mean \"workersPerReplica\"?"),
            ("Queue=q", "did you mean \"queue\"?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
