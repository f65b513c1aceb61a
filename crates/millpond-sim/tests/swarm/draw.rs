//! What a seed draws: queues, targets, actors, faults. Every run gets its own mix, so that rare things meet.
//!
//! Owns the distributions. Must never draw anything twice from one place in the order: a run is its seed.

use fastrand::Rng;
use millpond_core::alert::AlertSettings;
use millpond_core::name::Name;
use millpond_core::rate::Rate;
use millpond_core::settings::{
    AdaptiveSettings, BreakerSettings, DeadLetterSettings, OnExpiry, Order, Overflow, Priority,
    QueueSettings, RetrySettings, TargetSettings,
};
use std::time::Duration;

/// How likely each thing is, in percent.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    pub(super) keyed: u32,
    pub(super) delayed: u32,
    pub(super) mortal: u32,
    pub(super) careless: u32,
    pub(super) failing: u32,
    pub(super) target_bad: u32,
    pub(super) operator: u32,
    pub(super) grouped: u32,
}

/// What a run consists of.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) segment_bytes: u32,
    pub(super) commit_latency: Duration,
    pub(super) read_latency: Duration,
    /// How long the chaos lasts.
    pub(super) chaos: Duration,
    pub(super) producers: usize,
    pub(super) produce_every: Duration,
    pub(super) workers: usize,
    pub(super) body_bytes_max: usize,
    pub(super) habits: Habits,
    /// Times between two faults, on average; `None`: a run without.
    pub(super) fault_every: Option<Duration>,
    /// Whether anything rots.
    pub(super) rots: bool,
    pub(super) targets: Vec<(Name, TargetSettings)>,
    pub(super) queues: Vec<DrawnQueue>,
    /// Messages that the engine keeps in full; the others rest in their compact form.
    pub(super) kept_in_full: usize,
    /// Every now and then targets answer nothing but errors.
    pub(super) outages: bool,
}

/// A queue of a run.
#[derive(Debug, Clone)]
pub(super) struct DrawnQueue {
    pub(super) name: Name,
    pub(super) declared: bool,
    pub(super) settings: QueueSettings,
}

pub(super) fn millis(chance: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(chance.u64(from..=to))
}

pub(super) fn percent(chance: &mut Rng, likely: u32) -> bool {
    chance.u32(..100) < likely
}

/// One of `choices`.
pub(super) fn pick<T: Copy>(chance: &mut Rng, choices: &[T]) -> T {
    choices[chance.usize(..choices.len())]
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("names of a simulation are names")
}

impl Plan {
    pub(super) fn draw(chance: &mut Rng) -> Self {
        let targets: Vec<_> = (0..chance.usize(..3))
            .map(|number| (name(&format!("target-{number}")), target(chance)))
            .collect();
        let many = percent(chance, 10);
        let queues = (0..chance.usize(if many { 4..=8 } else { 1..=3 }))
            .map(|number| queue(chance, number, &targets))
            .collect();
        Self {
            segment_bytes: pick(chance, &[32 << 10, 32 << 10, 64 << 10, 256 << 10]),
            commit_latency: pick(chance, &[100, 400, 2_000, 20_000].map(Duration::from_micros)),
            read_latency: pick(chance, &[0, 300, 5_000].map(Duration::from_micros)),
            chaos: Duration::from_secs(chance.u64(10..60)),
            producers: chance.usize(1..=3),
            produce_every: pick(chance, &[100, 300, 800].map(Duration::from_millis)),
            workers: chance.usize(1..=4),
            body_bytes_max: pick(chance, &[20, 200, 1_500]),
            habits: Habits {
                keyed: pick(chance, &[0, 30, 100]),
                delayed: pick(chance, &[0, 10, 40]),
                mortal: pick(chance, &[0, 10, 40]),
                careless: pick(chance, &[0, 10, 50]),
                failing: pick(chance, &[0, 20, 60]),
                target_bad: pick(chance, &[0, 20, 70]),
                operator: pick(chance, &[0, 50, 100]),
                grouped: pick(chance, &[0, 30, 100]),
            },
            fault_every: pick(chance, &[None, Some(4), Some(10), Some(25)]).map(Duration::from_secs),
            rots: percent(chance, 25),
            targets,
            queues,
            kept_in_full: pick(chance, &[0, 3, 40, 4_096]),
            outages: percent(chance, 25),
        }
    }
}

fn target(chance: &mut Rng) -> TargetSettings {
    let per = Duration::from_secs(1);
    let concurrency = pick(chance, &[1, 2, 5, 20]);
    let rate = pick(chance, &[None, None, Some(3), Some(7), Some(50)]).map(|events| Rate { events, per });
    // Nothing is drawn for it, so that the seeds of before mean what they meant.
    let is_adaptive = concurrency > 2 && rate.is_none();
    let timeout = millis(chance, 200, 3_000);
    let has_breaker = !timeout.as_millis().is_multiple_of(4);
    let probe_max = Duration::from_secs(5);
    TargetSettings {
        concurrency,
        rate,
        timeout,
        hold_after_timeout: pick(chance, &[None, Some(0), Some(1_500)]).map(Duration::from_millis),
        adaptive: is_adaptive.then(AdaptiveSettings::default),
        breaker: has_breaker.then_some(BreakerSettings { probe_max, ..BreakerSettings::default() }),
        ramp: (concurrency > 2).then_some(Duration::from_secs(2)),
    }
}

fn queue(chance: &mut Rng, number: usize, targets: &[(Name, TargetSettings)]) -> DrawnQueue {
    DrawnQueue {
        name: name(&format!("queue-{number}")),
        declared: chance.bool(),
        settings: settings(chance, targets),
    }
}

/// Settings of a queue, as an operator may draw them anew while it runs.
pub(super) fn settings(chance: &mut Rng, targets: &[(Name, TargetSettings)]) -> QueueSettings {
    let target =
        (!targets.is_empty() && chance.bool()).then(|| targets[chance.usize(..targets.len())].0.clone());
    let retention = Duration::from_secs(pick(chance, &[20, 120, 345_600]));
    let max_attempts = pick(chance, &[1, 2, 3, 5]);
    QueueSettings {
        target,
        concurrency: pick(chance, &[None, None, Some(1), Some(3), Some(10)]),
        max_wait: pick(chance, &[None, None, None, Some(2), Some(30)]).map(Duration::from_secs),
        max_messages: pick(chance, &[None, Some(5), Some(30), Some(200)]),
        max_bytes: pick(chance, &[10 << 30, 10 << 30, 4_000, 40_000]),
        overflow: pick(chance, &[Overflow::Reject, Overflow::Reject, Overflow::Block, Overflow::DropOldest]),
        block_for: millis(chance, 100, 5_000),
        order: pick(chance, &[Order::Fifo, Order::Fifo, Order::Fifo, Order::Lifo, Order::Adaptive]),
        fresh_within: millis(chance, 100, 10_000),
        priority: pick(chance, &[Priority::Weighted, Priority::Strict]),
        prefetch: pick(chance, &[1, 3, 10, 1_000]),
        max_keys: pick(chance, &[1_000_000, 1_000_000, 5]),
        dead_burst: pick(chance, &[0, 2, 20]),
        lease: millis(chance, 1_000, 8_000),
        retention,
        on_expiry: pick(chance, &[OnExpiry::DeadLetter, OnExpiry::Drop]),
        result_retention: Duration::from_secs(pick(chance, &[1, 1, 10, 7_200])),
        result_max_bytes: pick(chance, &[10, 64 << 10]),
        expected_service_time: pick(chance, &[None, Some(100)]).map(Duration::from_millis),
        retry: RetrySettings {
            max_attempts,
            max_deliveries: pick(chance, &[None, Some(max_attempts), Some(max_attempts + 4)]),
            backoff_min: Duration::from_millis(pick(chance, &[0, 50, 1_000])),
            backoff_max: Duration::from_millis(pick(chance, &[1_000, 5_000])),
            budget: pick(chance, &[0.2, 0.0, 1.0]),
        },
        dead_letter: DeadLetterSettings {
            retention: retention * 2,
            max_messages: pick(chance, &[3, 50, 100_000]),
            replayable_for: Duration::from_secs(pick(chance, &[5, 604_800])),
            owner: None,
        },
        // They change nothing in the engine.
        alerts: AlertSettings::default(),
    }
}
