//! What the queues of a world are like: drawn anew for every run.
//!
//! Owns the settings. Must never judge.

use crate::rig::{ms, name, s};
use millpond_core::command::Declared;
use millpond_core::message::Criticality;
use millpond_core::name::{Label, Name};
use millpond_core::rate::Rate;
use millpond_core::settings::{
    AdaptiveSettings, BreakerSettings, DeadLetterSettings, OnExpiry, Order, Overflow, Priority,
    QueueSettings, RetrySettings, TargetSettings,
};
use millpond_testkit::model::Labels;
use proptest::prelude::*;

pub(crate) const TARGETS: [&str; 2] = ["till", "desk"];

/// What is drawn of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    order: Order,
    priority: Priority,
    overflow: Overflow,
    /// The bound on messages.
    room: u64,
    prefetch: u32,
    dead_burst: u32,
    max_keys: u64,
    max_attempts: u32,
    budget: f64,
    classes: u8,
    tenants: u8,
    groups: u8,
    /// It is pushed to the other target, if it is pushed at all.
    elsewhere: bool,
}

impl Shape {
    pub(crate) const PLAIN: Self = Self {
        order: Order::Fifo,
        priority: Priority::Weighted,
        overflow: Overflow::Reject,
        room: 11,
        prefetch: 10,
        dead_burst: 0,
        max_keys: 1_000_000,
        max_attempts: 3,
        budget: 1.0,
        classes: 1,
        tenants: 1,
        groups: 0,
        elsewhere: false,
    };

    /// Whether its work goes out first in, first out, all alike.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { order, classes, tenants, groups, .. } = *self;
        (order, classes, tenants, groups) == (Order::Fifo, 1, 1, 0)
    }

    /// Whether several messages may be enqueued at once: one that waits for room waits alone.
    pub(crate) fn takes_batches(&self) -> bool {
        self.overflow != Overflow::Block
    }

    /// The labels that this queue's messages may have, out of any.
    pub(crate) fn labels(&self, class: u8, tenant: u8, group: u8) -> Labels {
        let class = match self.classes {
            1 => Criticality::Critical,
            classes => Criticality::ALL[usize::from(class % classes) * 4 / usize::from(classes)],
        };
        let pick = |drawn: u8, all: u8| (drawn % (all + 1)).checked_sub(1);
        Labels { class, tenant: pick(tenant, self.tenants - 1), group: pick(group, self.groups) }
    }
}

pub(crate) fn shape() -> BoxedStrategy<Shape> {
    prop_oneof![1 => Just(Shape::PLAIN), 4 => mixed()].boxed()
}

fn mixed() -> impl Strategy<Value = Shape> {
    let order = prop_oneof![4 => Just(Order::Fifo), 1 => Just(Order::Lifo), 2 => Just(Order::Adaptive)];
    let priority = prop_oneof![Just(Priority::Weighted), Just(Priority::Strict)];
    let overflow =
        prop_oneof![2 => Just(Overflow::Reject), 2 => Just(Overflow::Block), 1 => Just(Overflow::DropOldest)];
    let prefetch = prop_oneof![Just(10_u32), Just(2), Just(1)];
    let dead_burst = prop_oneof![2 => Just(0_u32), 1 => Just(2), 1 => Just(4)];
    let max_keys = prop_oneof![2 => Just(1_000_000_u64), 1 => Just(3)];
    let max_attempts = prop_oneof![Just(3_u32), Just(12)];
    let budget = prop_oneof![Just(1.0), Just(0.5), Just(0.2), Just(0.0)];
    let labels = (prop_oneof![Just(1_u8), Just(2), Just(4)], 1..4_u8, 0..3_u8);
    let bounds =
        (overflow, prop_oneof![3 => Just(11_u64), 3 => Just(5), 1 => Just(3), 2 => Just(60)], any::<bool>());
    (order, priority, bounds, prefetch, dead_burst, max_keys, max_attempts, budget, labels).prop_map(
        |(order, priority, bounds, prefetch, dead_burst, max_keys, max_attempts, budget, labels)| {
            let (overflow, room, elsewhere) = bounds;
            let (classes, tenants, groups) = labels;
            let groups = if order.keeps_groups() { groups } else { 0 };
            Shape {
                order,
                priority,
                overflow,
                room,
                prefetch,
                dead_burst,
                max_keys,
                max_attempts,
                budget,
                classes,
                tenants,
                groups,
                elsewhere,
            }
        },
    )
}

pub(crate) fn label(number: u8) -> Label {
    Label::new(&format!("label {number}")).unwrap()
}

pub(crate) fn number(label: &Label) -> u8 {
    label.as_str().strip_prefix("label ").unwrap().parse().unwrap()
}

pub(crate) fn names() -> [Name; 3] {
    ["bounded", "pushed", "sharing"].map(name)
}

fn settings(shape: &Shape) -> QueueSettings {
    let retry = RetrySettings {
        max_attempts: shape.max_attempts,
        max_deliveries: Some(shape.max_attempts * 2),
        backoff_min: ms(500),
        backoff_max: s(20),
        budget: shape.budget,
    };
    QueueSettings {
        max_messages: Some(shape.room),
        max_bytes: shape.room * 90,
        order: shape.order,
        fresh_within: s(1),
        priority: shape.priority,
        overflow: shape.overflow,
        block_for: s(5),
        prefetch: shape.prefetch,
        dead_burst: shape.dead_burst,
        max_keys: shape.max_keys,
        lease: s(10),
        retention: s(300),
        result_retention: s(60),
        result_max_bytes: 60,
        expected_service_time: Some(s(2)),
        retry,
        dead_letter: DeadLetterSettings { retention: s(400), ..DeadLetterSettings::default() },
        ..QueueSettings::default()
    }
}

pub(crate) fn declared(shapes: &[Shape; 3]) -> Declared {
    let [bounded, to_push, to_share] = shapes;
    let promises = bounded.is_plain() && bounded.overflow == Overflow::Reject;
    let bounded = settings(bounded);
    let bounded = QueueSettings {
        concurrency: Some(3),
        max_wait: promises.then_some(s(5)),
        dead_letter: DeadLetterSettings { max_messages: 3, ..bounded.dead_letter.clone() },
        ..bounded
    };
    let push = |settings: QueueSettings, shape: &Shape| QueueSettings {
        target: Some(name(TARGETS[usize::from(shape.elsewhere)])),
        dead_letter: DeadLetterSettings { max_messages: 100, ..settings.dead_letter.clone() },
        ..settings
    };
    let pushed = QueueSettings { on_expiry: OnExpiry::Drop, ..push(settings(to_push), to_push) };
    let sharing = QueueSettings { concurrency: Some(2), ..push(settings(to_share), to_share) };
    let target = |concurrency| TargetSettings {
        concurrency,
        rate: Some(Rate { events: 4, per: s(1) }),
        timeout: s(3),
        hold_after_timeout: Some(s(4)),
        adaptive: None,
        breaker: Some(BreakerSettings { failures: 3, probe_max: s(3), ..BreakerSettings::default() }),
        ramp: None,
    };
    let adaptive =
        TargetSettings { adaptive: Some(AdaptiveSettings::default()), ramp: Some(s(2)), ..target(2) };
    let queues = names().into_iter().zip([bounded, pushed, sharing]).collect();
    Declared { targets: vec![(name(TARGETS[0]), target(3)), (name(TARGETS[1]), adaptive)], queues }
}

/// The target that a queue's settings name.
pub(crate) fn target(settings: &QueueSettings) -> Option<usize> {
    settings.target.as_ref().map(target_number)
}

pub(crate) fn target_number(target: &Name) -> usize {
    TARGETS.iter().position(|known| *known == target.as_str()).unwrap()
}
