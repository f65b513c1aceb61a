//! The planner: what a spike does to a queue, by arithmetic alone, before anything is built.
//!
//! Owns the formulas of `millpond plan`, their working and the plain sentences that go with them. Must never
//! measure, simulate or read a clock. The formulas are those of a fluid queue (arrivals and work as steady
//! rates) and Little's law, L = λ × W, with workers that take `service_time` per message.

use crate::text;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// A lease is at least this many times the time a worker may take: the ratio that function platforms ask
/// for between a queue's visibility timeout and the function's timeout (30 s → 180 s).
pub const LEASE_PER_WORKER_TIMEOUT: u32 = 6;
/// The shortest lease that the planner recommends: a queue's default.
pub const LEASE_MIN: Duration = Duration::from_secs(30);
/// Above this share of the capacity, normal load leaves too little to work off a spike soon.
const UTILIZATION_HIGH: f64 = 0.8;

/// What the planner is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// Normal arrivals, before and after the spike. Finite, not negative.
    pub rate_per_second: f64,
    /// Arrivals during the spike, normal ones included. Finite, not negative.
    pub spike_per_second: f64,
    /// How long the spike lasts.
    pub spike_for: Duration,
    /// Work per message. Longer than zero.
    pub service_time: Duration,
    /// Messages in work at once: the cap. At least 1.
    pub workers: u32,
    /// The longest acceptable wait. Longer than zero.
    pub max_wait: Option<Duration>,
    /// The longest a worker may take for one message, if it is more than `service_time`.
    pub worker_timeout: Option<Duration>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A rate is negative or not a number.
    #[error("{name} is {value}: a rate must be zero or more messages per second")]
    Rate {
        /// Which rate.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// Work that takes no time has no capacity to plan.
    #[error("the service time must be longer than 0s: measure how long one message occupies the backend")]
    ServiceTime,
    /// Nobody works.
    #[error("there must be at least one worker")]
    Workers,
    /// A wait of zero cannot be kept by any queue.
    #[error("max_wait must be longer than 0s: a queue that may not wait is no queue")]
    MaxWait,
}

/// What comes of it. Serializes to the document that `millpond plan --json` prints: plain numbers, seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    #[serde(skip)]
    input: PlanInput,
    /// Messages per second that all workers do together.
    #[serde(serialize_with = "plain")]
    pub capacity_per_second: f64,
    /// Normal rate ÷ capacity. Above 1 the backlog grows without end.
    #[serde(serialize_with = "plain")]
    pub utilization: f64,
    /// Calls open at once if the spike called the backend directly and the backend kept its pace.
    #[serde(serialize_with = "plain")]
    pub direct_connections_needed: f64,
    /// Messages waiting when the spike ends.
    #[serde(serialize_with = "plain")]
    pub backlog_peak: f64,
    /// Age of the oldest message when the spike ends, in seconds. It grows on until the spike's last message
    /// is the oldest one.
    #[serde(serialize_with = "plain")]
    pub spike_end_age_seconds: f64,
    /// Seconds that the last message of the spike waits for a worker.
    #[serde(serialize_with = "plain")]
    pub longest_wait_seconds: f64,
    /// Seconds from the end of the spike until nothing waits. `None`: never.
    #[serde(serialize_with = "plain_or_null")]
    pub drain_seconds: Option<f64>,
    /// The `max_messages` that keeps `max_wait`. `None` without it.
    pub bound_messages: Option<u64>,
    /// Messages of the spike that such a bound refuses. `None` without `max_wait`.
    #[serde(serialize_with = "plain_or_null")]
    pub refused_messages: Option<f64>,
    /// Messages that one worker may have before it and still keep `max_wait`. `None` without it.
    #[serde(serialize_with = "plain_or_null")]
    pub backlog_per_worker: Option<f64>,
    /// The fewest workers that take the whole spike within `max_wait` and work the backlog off afterwards.
    /// `None` without `max_wait`.
    pub workers_wanted: Option<u64>,
    /// A lease that fits the work.
    #[serde(serialize_with = "plain")]
    pub lease_seconds: f64,
}

/// One number with its working.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The field of the JSON document.
    pub name: &'static str,
    /// The formula in words.
    pub formula: &'static str,
    /// The formula with the numbers put in.
    pub substituted: String,
    /// The result. `None`: never, or not asked for.
    #[serde(serialize_with = "plain_or_null")]
    pub value: Option<f64>,
    /// The result as people read it, with its unit.
    pub text: String,
}

/// Computes the plan.
///
/// ```
/// use millpond_sim::plan::{PlanInput, plan};
/// use std::time::Duration;
///
/// let enrollment = PlanInput {
///     rate_per_second: 100.0,
///     spike_per_second: 2_000.0,
///     spike_for: Duration::from_mins(10),
///     service_time: Duration::from_millis(80),
///     workers: 40,
///     max_wait: None,
///     worker_timeout: None,
/// };
/// assert_eq!(plan(&enrollment).unwrap().drain_seconds, Some(2_250.0));
/// ```
pub fn plan(input: &PlanInput) -> Result<Plan, PlanError> {
    input.check()?;
    let (rate, spike, spike_for) =
        (input.rate_per_second, input.spike_per_second, input.spike_for.as_secs_f64());
    let capacity = 1e6 * f64::from(input.workers) / micros(input.service_time);
    let backlog = (spike - capacity).max(0.0) * spike_for;
    // More arrives than is done: never. Just as much: only if nothing waited to begin with.
    let never = rate > capacity || (rate >= capacity && backlog > 0.0);
    let drain =
        if never { None } else { Some(if backlog > 0.0 { backlog / (capacity - rate) } else { 0.0 }) };
    let max_wait = input.max_wait.map(|wait| wait.as_secs_f64());
    let lease = (input.lease_basis() * LEASE_PER_WORKER_TIMEOUT).max(LEASE_MIN);
    Ok(Plan {
        capacity_per_second: tidy(capacity),
        utilization: tidy(rate / capacity),
        direct_connections_needed: tidy(rate.max(spike) * micros(input.service_time) / 1e6),
        backlog_peak: tidy(backlog),
        spike_end_age_seconds: if backlog > 0.0 { tidy(spike_for * (1.0 - capacity / spike)) } else { 0.0 },
        longest_wait_seconds: tidy(backlog / capacity),
        drain_seconds: drain.map(tidy),
        bound_messages: max_wait.map(|wait| whole(tidy(wait * capacity).floor())),
        refused_messages: max_wait.map(|wait| tidy((backlog - tidy(wait * capacity).floor()).max(0.0))),
        backlog_per_worker: max_wait.map(|wait| tidy(1e6 * wait / micros(input.service_time))),
        workers_wanted: max_wait.map(|wait| whole(input.workers_wanted(wait))),
        lease_seconds: lease.as_secs_f64(),
        input: input.clone(),
    })
}

impl PlanInput {
    fn check(&self) -> Result<(), PlanError> {
        for (name, value) in [("the rate", self.rate_per_second), ("the spike", self.spike_per_second)] {
            if !value.is_finite() || value < 0.0 {
                return Err(PlanError::Rate { name, value });
            }
        }
        if self.service_time < Duration::from_micros(1) {
            return Err(PlanError::ServiceTime);
        }
        if self.workers == 0 {
            return Err(PlanError::Workers);
        }
        if self.max_wait == Some(Duration::ZERO) {
            return Err(PlanError::MaxWait);
        }
        Ok(())
    }

    fn lease_basis(&self) -> Duration {
        self.worker_timeout.unwrap_or_default().max(self.service_time)
    }

    /// The last message of the spike waits (spike − w ÷ s) × t ÷ (w ÷ s) for `w` workers; at most `max_wait`
    /// m gives w ≥ spike × s × t ÷ (t + m). And w ÷ s must exceed the rate, or the backlog stays for ever.
    fn workers_wanted(&self, max_wait: f64) -> f64 {
        let (service, spike_for) = (micros(self.service_time) / 1e6, self.spike_for.as_secs_f64());
        let for_the_spike = tidy(self.spike_per_second * service * spike_for / (spike_for + max_wait)).ceil();
        let to_drain = tidy(self.rate_per_second * service).floor() + 1.0;
        for_the_spike.max(to_drain)
    }
}

impl Plan {
    /// What the planner was asked.
    pub fn input(&self) -> &PlanInput {
        &self.input
    }

    /// Every number with its formula and the numbers put in, in the order of the argument they make.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = self.load_figures();
        figures.extend(self.promise_figures());
        figures.push(self.lease_figure());
        figures
    }

    fn load_figures(&self) -> Vec<Figure> {
        let input = &self.input;
        let (rate, spike) = (text::number(input.rate_per_second), text::number(input.spike_per_second));
        let (capacity, backlog) = (text::number(self.capacity_per_second), text::number(self.backlog_peak));
        let (service, spike_for) = (seconds_term(input.service_time), seconds_term(input.spike_for));
        let called = text::number(input.rate_per_second.max(input.spike_per_second));
        // From a minute on, both: seconds to go on computing with, and what they amount to.
        let in_seconds = |value: f64| {
            let readable = text::seconds(value);
            if value < 60.0 { readable } else { format!("{} s ({readable})", text::number(value)) }
        };
        vec![
            figure(
                "capacity_per_second",
                "workers ÷ service time",
                format!("{} ÷ {service}", input.workers),
                Some((self.capacity_per_second, format!("{capacity}/s"))),
            ),
            figure(
                "utilization",
                "rate ÷ capacity",
                format!("{rate}/s ÷ {capacity}/s"),
                Some((self.utilization, format!("{} %", text::number(tidy(self.utilization * 100.0))))),
            ),
            figure(
                "direct_connections_needed",
                "spike × service time",
                format!("{called}/s × {service}"),
                Some((self.direct_connections_needed, text::number(self.direct_connections_needed))),
            ),
            figure(
                "backlog_peak",
                "max(0, spike − capacity) × spike duration",
                format!("max(0, {spike}/s − {capacity}/s) × {spike_for}"),
                Some((self.backlog_peak, format!("{backlog} messages"))),
            ),
            figure(
                "spike_end_age_seconds",
                "spike duration × max(0, 1 − capacity ÷ spike)",
                format!("{spike_for} × max(0, 1 − {capacity} ÷ {spike})"),
                Some((self.spike_end_age_seconds, in_seconds(self.spike_end_age_seconds))),
            ),
            figure(
                "longest_wait_seconds",
                "backlog ÷ capacity",
                format!("{backlog} ÷ {capacity}/s"),
                Some((self.longest_wait_seconds, in_seconds(self.longest_wait_seconds))),
            ),
            figure(
                "drain_seconds",
                "backlog ÷ (capacity − rate)",
                format!("{backlog} ÷ ({capacity}/s − {rate}/s)"),
                self.drain_seconds.map(|value| (value, in_seconds(value))),
            ),
        ]
    }

    fn promise_figures(&self) -> Vec<Figure> {
        let input = &self.input;
        let (Some(wait), Some(bound), Some(refused), Some(per_worker), Some(wanted)) = (
            input.max_wait,
            self.bound_messages,
            self.refused_messages,
            self.backlog_per_worker,
            self.workers_wanted,
        ) else {
            return Vec::new();
        };
        let (wait_term, service, spike_for) =
            (seconds_term(wait), seconds_term(input.service_time), seconds_term(input.spike_for));
        let (rate, spike) = (text::number(input.rate_per_second), text::number(input.spike_per_second));
        vec![
            figure(
                "bound_messages",
                "acceptable wait × capacity",
                format!("{wait_term} × {}/s", text::number(self.capacity_per_second)),
                Some((bound as f64, format!("{} messages", text::count(bound)))),
            ),
            figure(
                "refused_messages",
                "max(0, backlog − bound)",
                format!("max(0, {} − {})", text::number(self.backlog_peak), text::count(bound)),
                Some((refused, format!("{} messages", text::number(refused)))),
            ),
            figure(
                "backlog_per_worker",
                "acceptable wait ÷ service time",
                format!("{wait_term} ÷ {service}"),
                Some((per_worker, format!("{} messages", text::number(per_worker)))),
            ),
            figure(
                "workers_wanted",
                "max(⌈spike × service time × t ÷ (t + wait)⌉, ⌊rate × service time⌋ + 1), t = spike duration",
                format!(
                    "max(⌈{spike}/s × {service} × {spike_for} ÷ ({spike_for} + {wait_term})⌉, ⌊{rate}/s × {service}⌋ + 1)"
                ),
                Some((wanted as f64, format!("{} workers", text::count(wanted)))),
            ),
        ]
    }

    fn lease_figure(&self) -> Figure {
        let formula = if self.input.worker_timeout.is_some() {
            "max(30 s, 6 × worker's timeout)"
        } else {
            "max(30 s, 6 × service time)"
        };
        figure(
            "lease_seconds",
            formula,
            format!("max(30 s, {LEASE_PER_WORKER_TIMEOUT} × {})", seconds_term(self.input.lease_basis())),
            Some((self.lease_seconds, text::seconds(self.lease_seconds))),
        )
    }

    /// What the numbers mean, most important first.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.verdict_sentence()];
        sentences.extend(self.backlog_sentence());
        sentences.extend(self.direct_sentence());
        sentences.extend(self.promise_sentence());
        sentences
    }

    fn verdict_sentence(&self) -> String {
        let (rate, capacity) =
            (text::number(self.input.rate_per_second), text::number(self.capacity_per_second));
        match self.drain_seconds {
            None => format!(
                "A queue moves load in time, it does not create capacity; with {rate}/s arriving and {capacity}/s of \
                 capacity the backlog never drains."
            ),
            Some(_) if self.backlog_peak <= 0.0 => format!(
                "The spike stays within the capacity of {capacity}/s: no backlog builds up as long as the backend is up."
            ),
            Some(drain) => {
                format!("It holds: {} after the spike nothing waits any more.", text::seconds(drain))
            }
        }
    }

    fn backlog_sentence(&self) -> Option<String> {
        (self.backlog_peak > 0.0).then(|| {
            format!(
                "The spike brings {}/s and the workers do {}/s, so {} messages wait when it ends, and the last one \
                 waits {}.",
                text::number(self.input.spike_per_second),
                text::number(self.capacity_per_second),
                text::number(self.backlog_peak.ceil()),
                text::seconds(self.longest_wait_seconds)
            )
        })
    }

    fn direct_sentence(&self) -> Option<String> {
        let workers = f64::from(self.input.workers);
        let needed = self.direct_connections_needed;
        if needed > workers {
            let times = text::number((needed / workers * 10.0).round() / 10.0);
            let has = match self.input.workers {
                1 => "and it has one".to_owned(),
                several => format!("{times} times the {several} it has"),
            };
            let needed = text::number(needed.ceil());
            return Some(format!(
                "Called directly, the backend would need {needed} connections at once, {has}."
            ));
        }
        (self.utilization > UTILIZATION_HIGH && self.drain_seconds.is_some()).then(|| {
            format!(
                "Normal load already uses {} % of the capacity: little is left to work off a backlog.",
                text::number((self.utilization * 100.0).round())
            )
        })
    }

    fn promise_sentence(&self) -> Option<String> {
        let (wait, bound) =
            (text::seconds(self.input.max_wait?.as_secs_f64()), text::count(self.bound_messages?));
        let (refused, wanted) = (self.refused_messages?, text::count(self.workers_wanted?));
        Some(if refused > 0.0 {
            format!(
                "Nobody waits longer than {wait} if at most {bound} messages may wait; this spike exceeds that by {}, \
                 which are refused at the door. {wanted} workers would take them all.",
                text::number(refused.ceil())
            )
        } else {
            format!(
                "Nobody waits longer than {wait} if at most {bound} messages may wait; this spike fits. {wanted} \
                 workers would be enough."
            )
        })
    }
}

fn figure(
    name: &'static str,
    formula: &'static str,
    substituted: String,
    value: Option<(f64, String)>,
) -> Figure {
    let (value, text) = match value {
        Some((value, text)) => (Some(value), text),
        None => (None, "never".to_owned()),
    };
    Figure { name, formula, substituted, value, text }
}

fn seconds_term(duration: Duration) -> String {
    format!("{} s", text::number(duration.as_secs_f64()))
}

fn micros(duration: Duration) -> f64 {
    duration.as_micros() as f64
}

/// Removes the noise of binary fractions (0.1 + 0.2), which would show up in sums and in rounding.
fn tidy(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; never negative")]
fn whole(value: f64) -> u64 {
    value as u64
}

/// Whole numbers without a fraction: `900000`, not `900000.0`, so that shell scripts can compare them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn plain<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..=EXACT_MAX).contains(value) {
        serializer.serialize_u64(whole(*value))
    } else {
        serializer.serialize_f64(*value)
    }
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn plain_or_null<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => plain(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "the figures must come out exactly")]

    use super::{Plan, PlanError, PlanInput, plan};
    use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
    use std::time::Duration;

    fn leveling() -> PlanInput {
        PlanInput {
            rate_per_second: 3.0,
            spike_per_second: 15.0,
            spike_for: Duration::from_secs(2),
            service_time: Duration::from_millis(200),
            workers: 1,
            max_wait: None,
            worker_timeout: None,
        }
    }

    fn enrollment() -> PlanInput {
        PlanInput {
            rate_per_second: 100.0,
            spike_per_second: 2_000.0,
            spike_for: Duration::from_mins(10),
            service_time: Duration::from_millis(80),
            workers: 40,
            max_wait: Some(Duration::from_mins(45)),
            worker_timeout: None,
        }
    }

    fn planned(input: &PlanInput) -> Plan {
        plan(input).unwrap()
    }

    #[test]
    fn the_small_example_is_told_as_people_would_say_it() {
        let small = planned(&leveling());
        let told = |name: &str| small.figures().into_iter().find(|figure| figure.name == name).unwrap().text;
        assert_eq!((told("spike_end_age_seconds"), told("drain_seconds")), ("1.3 s".into(), "10 s".into()));
        let sentences = small.sentences().join("\n");
        assert!(sentences.contains("would need 3 connections at once, and it has one."), "{sentences}");
    }

    #[test]
    fn the_small_example_comes_out() {
        let small = planned(&leveling());
        assert_eq!(small.capacity_per_second, 5.0);
        assert_eq!(small.utilization, 0.6);
        assert_eq!(small.backlog_peak, 20.0);
        assert_eq!(small.spike_end_age_seconds, 1.333_333);
        assert_eq!(small.longest_wait_seconds, 4.0);
        assert_eq!(small.drain_seconds, Some(10.0));
        assert_eq!((small.bound_messages, small.workers_wanted), (None, None));
        for (rate, drain) in [(4.5, Some(40.0)), (5.0, None), (6.0, None)] {
            assert_eq!(
                planned(&PlanInput { rate_per_second: rate, ..leveling() }).drain_seconds,
                drain,
                "{rate}"
            );
        }
    }

    #[test]
    fn the_large_example_comes_out() {
        let large = planned(&enrollment());
        assert_eq!(large.capacity_per_second, 500.0);
        assert_eq!(large.utilization, 0.2);
        assert_eq!(large.direct_connections_needed, 160.0);
        assert_eq!(large.backlog_peak, 900_000.0);
        assert_eq!(large.longest_wait_seconds, 1_800.0);
        assert_eq!(large.drain_seconds, Some(2_250.0));
        assert_eq!(large.bound_messages, Some(1_350_000));
        assert_eq!(large.refused_messages, Some(0.0));
        assert_eq!(large.workers_wanted, Some(30));
        let overrun = planned(&PlanInput { rate_per_second: 501.0, ..enrollment() });
        assert_eq!(overrun.drain_seconds, None);
    }

    #[test]
    fn the_rules_of_thumb_come_out() {
        let input = PlanInput {
            service_time: Duration::from_millis(100),
            max_wait: Some(Duration::from_secs(10)),
            worker_timeout: Some(Duration::from_secs(30)),
            ..enrollment()
        };
        assert_eq!(planned(&input).backlog_per_worker, Some(100.0));
        assert_eq!(planned(&input).lease_seconds, 180.0);
        assert_eq!(planned(&leveling()).lease_seconds, 30.0);
    }

    #[test]
    fn a_spike_within_the_capacity_leaves_nothing_waiting() {
        for spike in [0.0, 3.0, 5.0] {
            let small = planned(&PlanInput { spike_per_second: spike, ..leveling() });
            assert_eq!((small.backlog_peak, small.longest_wait_seconds), (0.0, 0.0));
            assert_eq!(small.drain_seconds, Some(0.0));
            assert!(small.sentences()[0].contains("no backlog"), "{:?}", small.sentences());
        }
        let none = planned(&PlanInput { spike_for: Duration::ZERO, ..leveling() });
        assert_eq!(none.drain_seconds, Some(0.0));
    }

    #[test]
    fn a_deficit_never_drains_and_is_said_first() {
        let deficit = planned(&PlanInput { rate_per_second: 500.0, workers: 32, ..enrollment() });
        assert_eq!(deficit.drain_seconds, None);
        assert!(
            deficit.sentences()[0]
                .contains("with 500/s arriving and 400/s of capacity the backlog never drains"),
            "{:?}",
            deficit.sentences()
        );
    }

    #[test]
    fn a_promise_too_short_for_the_spike_refuses_the_rest() {
        let tight = planned(&PlanInput { max_wait: Some(Duration::from_mins(10)), ..enrollment() });
        assert_eq!(tight.bound_messages, Some(300_000));
        assert_eq!(tight.refused_messages, Some(600_000.0));
        assert!(tight.sentences().iter().any(|line| line.contains("refused at the door")));
    }

    #[test]
    fn fractional_rates_leave_no_binary_noise() {
        let input = PlanInput {
            rate_per_second: 0.1,
            spike_per_second: 0.3,
            spike_for: Duration::from_secs(30),
            service_time: Duration::from_secs(5),
            ..leveling()
        };
        let slow = planned(&input);
        assert_eq!((slow.capacity_per_second, slow.backlog_peak), (0.2, 3.0));
        assert_eq!((slow.longest_wait_seconds, slow.drain_seconds), (15.0, Some(30.0)));
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let bad = |change: fn(&mut PlanInput)| {
            let mut input = enrollment();
            change(&mut input);
            plan(&input).unwrap_err()
        };
        assert!(matches!(
            bad(|input| input.rate_per_second = -1.0),
            PlanError::Rate { name: "the rate", .. }
        ));
        assert!(matches!(bad(|input| input.spike_per_second = f64::NAN), PlanError::Rate { .. }));
        assert_eq!(bad(|input| input.service_time = Duration::ZERO), PlanError::ServiceTime);
        assert_eq!(bad(|input| input.workers = 0), PlanError::Workers);
        assert_eq!(bad(|input| input.max_wait = Some(Duration::ZERO)), PlanError::MaxWait);
    }

    #[test]
    fn every_field_of_the_document_has_its_working() {
        for input in [leveling(), enrollment()] {
            let result = planned(&input);
            let document = serde_json::to_value(&result).unwrap();
            let figures = result.figures();
            for figure in &figures {
                let value = &document[figure.name];
                assert_eq!(value.as_f64(), figure.value, "{}", figure.name);
                assert!(!figure.formula.is_empty() && !figure.substituted.is_empty());
            }
            let shown = document.as_object().unwrap().values().filter(|value| !value.is_null()).count();
            assert_eq!(figures.len(), shown);
        }
        let text = serde_json::to_string(&planned(&enrollment())).unwrap();
        assert!(text.contains("\"backlog_peak\":900000,"), "whole numbers carry no fraction: {text}");
        assert!(text.contains("\"utilization\":0.2,"), "{text}");
        let never = planned(&PlanInput { rate_per_second: 6.0, ..leveling() });
        assert!(serde_json::to_string(&never).unwrap().contains("\"drain_seconds\":null"));
        assert!(never.figures().iter().any(|figure| figure.text == "never"));
    }

    fn inputs() -> impl Strategy<Value = PlanInput> {
        (0.0..5_000.0, 0.0..5_000.0, 0_u64..7_200, 1_u64..10_000, 1_u32..500, 1_u64..36_000).prop_map(
            |(rate_per_second, spike_per_second, spike_for, service_ms, workers, wait)| PlanInput {
                rate_per_second,
                spike_per_second,
                spike_for: Duration::from_secs(spike_for),
                service_time: Duration::from_millis(service_ms),
                workers,
                max_wait: Some(Duration::from_secs(wait)),
                worker_timeout: None,
            },
        )
    }

    proptest! {
        #[test]
        fn another_worker_never_makes_it_worse(input in inputs()) {
            let before = planned(&input);
            let after = planned(&PlanInput { workers: input.workers + 1, ..input });
            prop_assert!(after.capacity_per_second > before.capacity_per_second);
            prop_assert!(after.utilization <= before.utilization);
            prop_assert!(after.backlog_peak <= before.backlog_peak);
            prop_assert!(after.longest_wait_seconds <= before.longest_wait_seconds);
            prop_assert!(after.bound_messages >= before.bound_messages);
            let drain = |plan: &Plan| plan.drain_seconds.unwrap_or(f64::INFINITY);
            prop_assert!(drain(&after) <= drain(&before));
            prop_assert_eq!(after.workers_wanted, before.workers_wanted);
        }

        #[test]
        fn a_longer_or_higher_spike_never_makes_it_better(input in inputs(), more in 0_u32..1_000) {
            let before = planned(&input);
            let higher = planned(&PlanInput {
                spike_per_second: input.spike_per_second + f64::from(more), ..input.clone()
            });
            let longer = planned(&PlanInput { spike_for: input.spike_for + Duration::from_secs(u64::from(more)), ..input });
            for after in [higher, longer] {
                prop_assert!(after.backlog_peak >= before.backlog_peak);
                prop_assert!(after.longest_wait_seconds >= before.longest_wait_seconds);
                prop_assert!(after.workers_wanted >= before.workers_wanted);
            }
        }

        #[test]
        fn the_wanted_workers_keep_the_promise_and_one_fewer_do_not(input in inputs()) {
            let wanted = u32::try_from(planned(&input).workers_wanted.unwrap()).unwrap();
            let wait = input.max_wait.unwrap().as_secs_f64();
            let keeps = |workers: u32| {
                let plan = planned(&PlanInput { workers, ..input.clone() });
                plan.longest_wait_seconds <= wait + 1e-3 && plan.capacity_per_second > input.rate_per_second - 1e-6
            };
            prop_assert!(keeps(wanted));
            // On the very edge both answers are within rounding.
            let edge = wanted > 1 && {
                let plan = planned(&PlanInput { workers: wanted - 1, ..input.clone() });
                plan.longest_wait_seconds > wait - 1e-3 || plan.capacity_per_second < input.rate_per_second + 1e-6
            };
            prop_assert!(wanted == 1 || edge);
        }

        #[test]
        fn what_waits_is_worked_off_at_the_capacity_that_is_left(input in inputs()) {
            let plan = planned(&input);
            if let Some(drain) = plan.drain_seconds && plan.backlog_peak > 0.0 {
                let done = drain * (plan.capacity_per_second - input.rate_per_second);
                prop_assert!((done - plan.backlog_peak).abs() <= 1e-2 + plan.backlog_peak * 1e-2);
            }
        }
    }
}
