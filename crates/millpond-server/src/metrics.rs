//! `GET /metrics`: the engine's numbers as OpenMetrics text.
//!
//! Owns the names of the metrics. Must never label anything with an id, a tenant or a key: the labels are queues,
//! targets and words of a fixed list.

mod alerts;
mod plain;

use crate::errors::{Answer, refused};
use crate::shared::Shared;
use alerts::AlertNumbers;
use axum::extract::State;
use axum::response::IntoResponse as _;
use http::{HeaderMap, header};
use millpond_core::breaker::BreakerState;
use millpond_core::command::QueueView;
use millpond_core::message::{AttemptOutcome, Criticality};
use millpond_core::stats::{BUCKETS_SECONDS, CallEnding, Held, Histogram, QueueStats, TargetStats, Totals};
use millpond_engine::stats::JournalStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The numbers of one scrape.
#[derive(Debug)]
struct Snapshot {
    queues: Vec<QueueView>,
    targets: Vec<TargetStats>,
    journal: JournalStats,
    waiting_callers: usize,
    callbacks_disabled: Option<usize>,
    alerts: AlertNumbers,
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    let (queues, targets) = shared.handle.overview().await.map_err(|error| refused(&error, ""))?;
    let journal = shared.handle.journal();
    let callbacks_disabled = shared.callbacks.as_ref().map(|desk| desk.disabled());
    let alerts = AlertNumbers { followed: shared.alerts.followed(), changes: shared.alerts.changes() };
    let waiting_callers = shared.answers.callers();
    let text = Snapshot { queues, targets, journal, waiting_callers, callbacks_disabled, alerts }.text();
    Ok(if plain::is_wanted(&headers) {
        ([(header::CONTENT_TYPE, plain::CONTENT_TYPE)], plain::from_openmetrics(&text)).into_response()
    } else {
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
    })
}

type Written = Result<(), fmt::Error>;

impl Snapshot {
    fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }

    /// One gauge per queue; `value` is `None` where there is nothing to say.
    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&QueueStats) -> Option<f64>,
    ) -> Written {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for queue in &self.queues {
            if let Some(value) = value(&queue.stats) {
                metric.encode_family(&[("queue", queue.name.as_str())])?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    /// One value per queue and word of a fixed list.
    fn by_word<const WORDS: usize>(
        &self,
        mut metric: MetricEncoder<'_>,
        label: &str,
        values: impl Fn(&QueueStats) -> [(&'static str, Value); WORDS],
    ) -> Written {
        for queue in &self.queues {
            for (word, value) in values(&queue.stats) {
                let labels = [("queue", queue.name.as_str()), (label, word)];
                let mut sample = metric.encode_family(&labels)?;
                match value {
                    Value::Gauge(value) => sample.encode_gauge(&value)?,
                    Value::Counter(value) => sample.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                }
            }
        }
        Ok(())
    }

    fn histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&QueueStats) -> &Histogram,
    ) -> Written {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for queue in &self.queues {
            encode_histogram(
                &mut metric.encode_family(&[("queue", queue.name.as_str())])?,
                value(&queue.stats),
            )?;
        }
        Ok(())
    }

    fn encode_depths(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let help = "Messages by state";
        let metric = encoder.encode_descriptor("millpond_queue_messages", help, None, MetricType::Gauge)?;
        self.by_word(metric, "state", |stats| {
            [
                ("ready", whole(stats.ready)),
                ("delayed", whole(stats.delayed)),
                ("leased", whole(stats.leased)),
                ("backoff", whole(stats.backoff)),
                ("dead", whole(stats.dead)),
            ]
        })?;
        let help = "Age of the oldest unfinished message since it was first due";
        let name = "millpond_queue_oldest_age_seconds";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        self.by_word(metric, "state", |stats| {
            [
                ("any", seconds(stats.oldest_age)),
                ("ready", seconds(stats.oldest_ready_age)),
                ("leased", seconds(stats.oldest_leased_age)),
                ("backoff", seconds(stats.oldest_backoff_age)),
            ]
        })?;
        let help = "Bytes of messages that are not terminal";
        self.gauge(encoder, "millpond_queue_bytes", help, |stats| Some(stats.bytes as f64))
    }

    fn encode_forecast(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let help = "Wait of a message that arrives now; absent while nothing can be promised";
        self.gauge(encoder, "millpond_queue_predicted_wait_seconds", help, |stats| {
            stats.predicted_wait.map(|wait| wait.as_secs_f64())
        })?;
        let help = "Time until nothing waits; absent if never or unknown";
        self.gauge(encoder, "millpond_queue_drain_seconds", help, |stats| {
            stats.drain.map(|drain| drain.as_secs_f64())
        })?;
        let help = "What the workers or the target can do; 0 while unknown";
        self.gauge(encoder, "millpond_queue_capacity_per_second", help, |stats| {
            Some(stats.capacity_per_second)
        })?;
        self.encode_workers(encoder)?;
        let help = "Callers who wait at the door for room";
        self.gauge(encoder, "millpond_queue_blocked", help, |stats| Some(stats.blocked as f64))?;
        let help = "1 if nothing is handed out for this reason, whatever waits";
        let metric = encoder.encode_descriptor("millpond_queue_held", help, None, MetricType::Gauge)?;
        self.by_word(metric, "reason", |stats| {
            Held::ALL.map(|reason| (reason.as_str(), whole(u64::from(stats.held == Some(reason)))))
        })?;
        let help = "1 if arrivals have exceeded capacity for longer than the promise";
        self.gauge(encoder, "millpond_queue_insurmountable", help, |stats| {
            Some(f64::from(u8::from(stats.insurmountable)))
        })
    }

    /// What autoscalers follow.
    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        type Of = fn(&QueueStats) -> Option<f64>;
        let metrics: [(&str, &str, Of); 4] = [
            ("millpond_queue_workers", "Messages in work at once", |stats| Some(stats.workers as f64)),
            ("millpond_queue_workers_wanted", "Workers that would keep the promise", |stats| {
                Some(stats.workers_wanted as f64)
            }),
            (
                "millpond_queue_workers_ceiling",
                "The most workers that the caps allow; absent without a cap",
                |stats| (stats.workers_ceiling > 0).then_some(stats.workers_ceiling as f64),
            ),
            (
                "millpond_queue_backlog_per_worker",
                "Ready messages per worker; where there is none, all of them",
                |stats| Some(stats.backlog_per_worker),
            ),
        ];
        metrics.into_iter().try_for_each(|(name, help, value)| self.gauge(encoder, name, help, value))
    }

    fn encode_promises(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let help =
            "Distance between the promised p50 of the start and the start, over a sample of the promises";
        let name = "millpond_promise_error_seconds";
        self.histogram(encoder, name, help, |stats| &stats.promises.error)?;
        let help = "Compared promises by when the message started";
        let metric = encoder.encode_descriptor("millpond_promises", help, None, MetricType::Counter)?;
        self.by_word(metric, "started", |stats| {
            [
                ("by-p50", Value::Counter(stats.promises.by_p50)),
                ("by-p90", Value::Counter(stats.promises.by_p90)),
                ("late", Value::Counter(stats.promises.late)),
            ]
        })?;
        let help =
            "Share of compared promises whose message started by the promised p90; absent before the first";
        self.gauge(encoder, "millpond_promise_kept_ratio", help, |stats| stats.promises.kept_ratio())?;
        let help =
            "What the waits promised next are multiplied by, since earlier ones turned out so much longer";
        self.gauge(encoder, "millpond_promise_correction_ratio", help, |stats| {
            Some(stats.promise_correction.p50)
        })
    }

    fn encode_totals(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let counter = MetricType::Counter;
        let metric = encoder.encode_descriptor("millpond_accepted", "Messages accepted", None, counter)?;
        self.by_word(metric, "criticality", |stats| {
            Criticality::ALL.map(|class| (class.as_str(), Value::Counter(stats.totals.accepted_of(class))))
        })?;
        let metric = encoder.encode_descriptor("millpond_refused", "Enqueues refused", None, counter)?;
        self.by_word(metric, "reason", |stats| {
            [
                ("queue-full", Value::Counter(stats.totals.refused_full)),
                ("wait-too-long", Value::Counter(stats.totals.refused_wait)),
                ("other", Value::Counter(stats.totals.refused_other)),
            ]
        })?;
        self.encode_ends(encoder)?;
        let metric =
            encoder.encode_descriptor("millpond_deliveries", "Hand-outs that ended", None, counter)?;
        self.by_word(metric, "outcome", |stats| {
            std::array::from_fn::<_, { AttemptOutcome::ALL.len() }, _>(|place| {
                (AttemptOutcome::ALL[place].as_str(), Value::Counter(stats.totals.deliveries[place]))
            })
        })?;
        let help = "Time from first due to first hand-out";
        self.histogram(encoder, "millpond_wait_seconds", help, |stats| &stats.totals.wait)?;
        let help = "Time from hand-out to completion";
        self.histogram(encoder, "millpond_service_seconds", help, |stats| &stats.totals.service)
    }

    /// How messages' lives ended.
    fn encode_ends(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        type Of = fn(&Totals) -> u64;
        let ends: [(&str, &str, Of); 6] = [
            ("millpond_completed", "Messages completed", |totals| totals.completed),
            ("millpond_dead", "Messages that became dead letters", |totals| totals.dead),
            ("millpond_expired", "Messages that expired, dead-lettered or not", |totals| totals.expired),
            ("millpond_dropped", "Messages given up for newer ones", |totals| totals.dropped),
            ("millpond_cancelled", "Messages withdrawn", |totals| totals.cancelled),
            ("millpond_keys_forgotten", "Idempotency keys forgotten for want of room", |totals| {
                totals.keys_forgotten
            }),
        ];
        for (name, help, total) in ends {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for queue in &self.queues {
                metric
                    .encode_family(&[("queue", queue.name.as_str())])?
                    .encode_counter::<NoLabelSet, _, u64>(&total(&queue.stats.totals), None)?;
            }
        }
        Ok(())
    }

    fn encode_targets(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        type Of = fn(&TargetStats) -> u64;
        let metrics: [(&str, &str, Of); 2] = [
            ("millpond_target_inflight", "Calls that occupy the target, timed-out ones included", |target| {
                target.inflight
            }),
            (
                "millpond_target_limit",
                "Calls that may occupy the target: its concurrency, or the adaptive limit below it",
                |target| target.limit,
            ),
        ];
        for (name, help, value) in metrics {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for target in &self.targets {
                metric
                    .encode_family(&[("target", target.name.as_str())])?
                    .encode_gauge(&(value(target) as f64))?;
            }
        }
        self.encode_breakers(encoder)
    }

    fn encode_breakers(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let help = "Whether the target's circuit breaker stands there";
        let mut metric = encoder.encode_descriptor("millpond_target_state", help, None, MetricType::Gauge)?;
        for target in &self.targets {
            for state in BreakerState::ALL {
                let labels = [("target", target.name.as_str()), ("state", state.as_str())];
                let is_there = u8::from(target.state == state);
                metric.encode_family(&labels)?.encode_gauge(&f64::from(is_there))?;
            }
        }
        let help = "Calls of the target that have ended";
        let mut metric =
            encoder.encode_descriptor("millpond_target_calls", help, None, MetricType::Counter)?;
        for target in &self.targets {
            for ending in CallEnding::ALL {
                let labels = [("target", target.name.as_str()), ("outcome", ending.as_str())];
                let mut sample = metric.encode_family(&labels)?;
                sample.encode_counter::<NoLabelSet, _, u64>(&target.ended(ending), None)?;
            }
        }
        Ok(())
    }

    fn encode_callbacks(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let Some(disabled) = self.callbacks_disabled else { return Ok(()) };
        let help = "Endpoints that have answered 410 to a callback and get no more";
        let name = "millpond_callback_endpoints_disabled";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&(disabled as f64))
    }

    fn encode_journal(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let journal = &self.journal;
        let help = "Time per commit, write and sync";
        let mut metric = encoder.encode_descriptor(
            "millpond_journal_commit_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        encode_histogram(&mut metric, &journal.commit)?;
        let help = "Records per commit";
        let mut metric =
            encoder.encode_descriptor("millpond_journal_group_records", help, None, MetricType::Histogram)?;
        let buckets = [(f64::INFINITY, journal.groups)];
        metric.encode_histogram::<NoLabelSet>(journal.records as f64, journal.groups, &buckets, None)?;
        let help = "Bytes of all segments on disk";
        let mut metric =
            encoder.encode_descriptor("millpond_journal_bytes", help, None, MetricType::Gauge)?;
        metric.encode_gauge(&(journal.disk_bytes as f64))?;
        let help = "1 while the disk has no room for new work";
        let mut metric = encoder.encode_descriptor("millpond_journal_full", help, None, MetricType::Gauge)?;
        metric.encode_gauge(&f64::from(u8::from(journal.full)))
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Written {
        self.encode_depths(&mut encoder)?;
        self.encode_forecast(&mut encoder)?;
        self.encode_promises(&mut encoder)?;
        self.encode_totals(&mut encoder)?;
        self.encode_targets(&mut encoder)?;
        self.encode_journal(&mut encoder)?;
        self.encode_callbacks(&mut encoder)?;
        self.alerts.encode(&mut encoder)?;
        let help = "Callers that wait for the answer to what they enqueued";
        let name = "millpond_waiting_callers";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&(self.waiting_callers as f64))
    }
}

enum Value {
    Gauge(f64),
    Counter(u64),
}

fn whole(number: u64) -> Value {
    Value::Gauge(number as f64)
}

fn seconds(duration: Duration) -> Value {
    Value::Gauge(duration.as_secs_f64())
}

fn encode_histogram(metric: &mut MetricEncoder<'_>, histogram: &Histogram) -> Written {
    let bounds = BUCKETS_SECONDS.iter().copied().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts).collect();
    let count = histogram.counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(histogram.sum_seconds, count, &buckets, None)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{AlertNumbers, Snapshot};
    use millpond_core::alert::{Rule, Subject};
    use millpond_core::breaker::BreakerState;
    use millpond_core::command::QueueView;
    use millpond_core::name::Name;
    use millpond_core::settings::QueueSettings;
    use millpond_core::stats::{QueueStats, TargetStats};
    use millpond_engine::stats::JournalStats;
    use std::time::Duration;

    fn target() -> TargetStats {
        TargetStats {
            name: Name::new("t").unwrap(),
            inflight: 1,
            limit: 40,
            places: 40,
            throttled_for: Duration::ZERO,
            concurrency: 40,
            adaptive: false,
            rate_per_second: None,
            state: BreakerState::HalfOpen,
            state_for: Duration::ZERO,
            next_probe: None,
            ramp_limit: None,
            failures_in_row: 12,
            calls: [7, 3, 2, 1, 0],
            queues: Vec::new(),
        }
    }

    /// What a server with a queue and a target tells.
    pub(crate) fn example() -> String {
        let mut stats = QueueStats {
            predicted_wait: Some(Duration::from_secs(2)),
            drain: Some(Duration::from_secs(3)),
            workers: 3,
            workers_wanted: 4,
            workers_ceiling: 5,
            backlog_per_worker: 7.5,
            ..QueueStats::default()
        };
        stats.totals.accepted_by_criticality = [1, 7, 0, 3];
        stats.totals.dropped = 5;
        stats.totals.wait.observe(Duration::from_millis(80));
        stats.promises.error.observe(Duration::from_millis(400));
        stats.promises.by_p90 = 3;
        stats.promises.late = 1;
        let name = Name::new("q").unwrap();
        let followed = vec![
            (Subject::Queue(name.clone()), Rule::Dead, true),
            (Subject::Server, Rule::StorageFull, false),
        ];
        Snapshot {
            queues: vec![QueueView { name, settings: QueueSettings::default(), declared: true, stats }],
            targets: vec![target()],
            journal: JournalStats::default(),
            waiting_callers: 0,
            callbacks_disabled: Some(3),
            alerts: AlertNumbers { followed, changes: vec![(Rule::Dead, [2, 1])] },
        }
        .text()
    }

    #[test]
    fn every_metric_of_the_contract_is_there_under_its_name() {
        let text = example();
        for line in [
            r#"millpond_queue_messages{queue="q",state="ready"} 0.0"#,
            r#"millpond_queue_bytes{queue="q"} 0.0"#,
            "millpond_callback_endpoints_disabled 3.0",
            r#"millpond_queue_oldest_age_seconds{queue="q",state="ready"} 0.0"#,
            r#"millpond_queue_predicted_wait_seconds{queue="q"} 2.0"#,
            r#"millpond_queue_drain_seconds{queue="q"} 3.0"#,
            r#"millpond_queue_capacity_per_second{queue="q"} 0.0"#,
            r#"millpond_queue_insurmountable{queue="q"} 0.0"#,
            r#"millpond_queue_workers{queue="q"} 3.0"#,
            r#"millpond_queue_workers_wanted{queue="q"} 4.0"#,
            r#"millpond_queue_workers_ceiling{queue="q"} 5.0"#,
            r#"millpond_queue_backlog_per_worker{queue="q"} 7.5"#,
            r#"millpond_accepted_total{queue="q",criticality="critical-plus"} 1"#,
            r#"millpond_accepted_total{queue="q",criticality="critical"} 7"#,
            r#"millpond_accepted_total{queue="q",criticality="sheddable-plus"} 0"#,
            r#"millpond_accepted_total{queue="q",criticality="sheddable"} 3"#,
            r#"millpond_refused_total{queue="q",reason="queue-full"} 0"#,
            r#"millpond_completed_total{queue="q"} 0"#,
            r#"millpond_dropped_total{queue="q"} 5"#,
            r#"millpond_keys_forgotten_total{queue="q"} 0"#,
            r#"millpond_queue_held{queue="q",reason="dead-burst"} 0.0"#,
            r#"millpond_queue_blocked{queue="q"} 0.0"#,
            r#"millpond_deliveries_total{queue="q",outcome="timed-out"} 0"#,
            r#"millpond_wait_seconds_bucket{le="0.1",queue="q"} 1"#,
            r#"millpond_service_seconds_count{queue="q"} 0"#,
            r#"millpond_promise_error_seconds_bucket{le="0.5",queue="q"} 1"#,
            r#"millpond_promises_total{queue="q",started="by-p50"} 0"#,
            r#"millpond_promises_total{queue="q",started="by-p90"} 3"#,
            r#"millpond_promises_total{queue="q",started="late"} 1"#,
            r#"millpond_promise_kept_ratio{queue="q"} 0.75"#,
            r#"millpond_promise_correction_ratio{queue="q"} 1.0"#,
            r#"millpond_target_inflight{target="t"} 1.0"#,
            r#"millpond_target_limit{target="t"} 40.0"#,
            r#"millpond_target_state{target="t",state="closed"} 0.0"#,
            r#"millpond_target_state{target="t",state="open"} 0.0"#,
            r#"millpond_target_state{target="t",state="half-open"} 1.0"#,
            r#"millpond_target_calls_total{target="t",outcome="succeeded"} 7"#,
            r#"millpond_target_calls_total{target="t",outcome="failed"} 3"#,
            r#"millpond_target_calls_total{target="t",outcome="timed-out"} 2"#,
            r#"millpond_target_calls_total{target="t",outcome="throttled"} 1"#,
            r#"millpond_target_calls_total{target="t",outcome="rejected"} 0"#,
            "millpond_journal_commit_seconds_count 0",
            "millpond_journal_group_records_count 0",
            "millpond_journal_bytes 0.0",
            "millpond_journal_full 0.0",
            r#"millpond_alerts{queue="q",alert="dead"} 1.0"#,
            r#"millpond_alerts{alert="storage-full"} 0.0"#,
            r#"millpond_alert_changes_total{alert="dead",state="firing"} 2"#,
            r#"millpond_alert_changes_total{alert="dead",state="cleared"} 1"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
