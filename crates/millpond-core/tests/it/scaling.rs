//! The signals for autoscalers, as the pond gives them.
//!
//! Owns where their inputs come from; the arithmetic has its own tests beside it.

use crate::rig::{
    QUEUE, Rig, complete, dead, failed, message, ms, name, retry_in, s, succeeded, target, throttled,
};
use millpond_core::command::{Command, NewMessage, Reply};
use millpond_core::name::Label;
use millpond_core::rate::Rate;
use millpond_core::settings::{BreakerSettings, DeadLetterSettings, QueueSettings, TargetSettings};
use millpond_core::stats::Held;
use std::time::Duration;

/// Work of half a second that is to begin within ten.
fn promised() -> QueueSettings {
    QueueSettings { max_wait: Some(s(10)), expected_service_time: Some(ms(500)), ..QueueSettings::default() }
}

/// The same without a promise: nothing is refused for it.
fn unpromised() -> QueueSettings {
    QueueSettings { max_wait: None, ..promised() }
}

#[test]
fn workers_wanted_carry_the_arrivals_and_work_the_backlog_off_within_the_promise() {
    let mut rig = Rig::new(promised());
    rig.fill(40);
    assert_eq!(rig.stats().workers_wanted, 4, "40 in 10 s at half a second each, and as many to come");
    rig.pass(s(5));
    let wanted = rig.stats().workers_wanted;
    assert!((5..=6).contains(&wanted), "with half of the time left: {wanted}");
    rig.pass(Duration::from_hours(1));
    assert_eq!(rig.stats().workers_wanted, 8, "late: within a quarter of the promise");
    assert_eq!(rig.lease(12).len(), 12);
    assert_eq!(rig.stats().workers_wanted, 12, "none is taken away from its work");
    let mut rig = Rig::new(QueueSettings { concurrency: Some(3), ..promised() });
    rig.fill(40);
    rig.pass(Duration::from_hours(1));
    assert_eq!(rig.stats().workers_wanted, 3, "never more than the ceiling");
}

#[test]
fn while_nothing_is_known_of_the_work_one_worker_is_wanted_for_it() {
    let mut rig = Rig::new(QueueSettings::default());
    assert_eq!(rig.stats().workers_wanted, 0);
    rig.fill(5);
    assert_eq!(rig.stats().workers_wanted, 1);
    let leased = rig.lease(2);
    assert_eq!(rig.stats().workers_wanted, 2);
    rig.pass(s(60));
    rig.fill(595);
    drop(leased);
    let receipt = rig.lease_one();
    rig.pass(s(20));
    rig.settle(receipt, complete()).unwrap();
    let wanted = rig.stats().workers_wanted;
    assert!(wanted >= 200, "one piece of work was measured: 600 × 20 s within a minute: {wanted}");
}

#[test]
fn what_is_on_its_way_to_the_disk_or_waits_for_its_next_attempt_is_not_nothing() {
    let mut rig = Rig::new(promised());
    rig.hold_durability = true;
    rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message()] });
    let stats = rig.stats();
    assert_eq!((stats.ready, stats.workers_wanted), (1, 1));
    assert!((stats.backlog_per_worker - 1.0).abs() < 1e-9);
    rig.hold_durability = false;
    rig.make_durable();
    let receipt = rig.lease_one();
    rig.settle(receipt, retry_in(s(200))).unwrap();
    rig.pass(s(100));
    assert_eq!((rig.stats().backoff, rig.stats().workers_wanted), (1, 1));
    let mut rig = Rig::new(promised());
    rig.enqueue(NewMessage { delay: Duration::from_hours(2), ..message() }).unwrap();
    rig.pass(Duration::from_hours(1));
    assert_eq!(rig.stats().workers_wanted, 0, "nobody stands by for two hours");
    rig.pass(Duration::from_hours(1));
    assert_eq!(rig.stats().workers_wanted, 1);
}

#[test]
fn a_queue_that_hands_out_nothing_wants_no_more_than_are_at_work() {
    let few_dead = DeadLetterSettings { max_messages: 1, ..DeadLetterSettings::default() };
    let mut rig = Rig::new(QueueSettings { dead_letter: few_dead, ..promised() });
    rig.fill(400);
    assert!(rig.stats().workers_wanted > 20);
    let mut leased = rig.lease(3);
    rig.pause(true);
    assert_eq!(rig.stats().workers_wanted, 3, "they may finish");
    rig.pause(false);
    assert!(rig.stats().workers_wanted > 20);
    rig.settle(leased.remove(0).receipt, dead()).unwrap();
    assert_eq!(rig.stats().held.map(Held::as_str), Some("dead-letters-full"));
    assert_eq!(rig.stats().workers_wanted, 2);
    for one in leased {
        rig.settle(one.receipt, complete()).unwrap();
    }
    assert_eq!(rig.stats().workers_wanted, 1, "and one, for what waits");
}

#[test]
fn a_target_that_is_down_wants_one_worker_and_all_of_them_once_it_is_up() {
    let target = TargetSettings { breaker: Some(BreakerSettings::default()), ..target(10) };
    let mut rig = Rig::pushing(target, unpromised());
    rig.fill(400);
    assert_eq!(rig.stats().workers_wanted, 10);
    for _ in 0..3 {
        for call in rig.take_calls() {
            rig.end_call(call.receipt, failed(false));
        }
    }
    // A target that was scaled to none refuses every call; one is enough to see whether it is back.
    let stats = rig.stats();
    assert_eq!((stats.held, stats.predicted_wait), (Some(Held::BreakerOpen), None));
    assert_eq!(stats.workers_wanted, stats.leased.max(1));
    // Tried after a pause, and then given its places back step by step.
    for _ in 0..35 {
        rig.pass(ms(500));
        for call in rig.take_calls() {
            rig.end_call(call.receipt, succeeded());
        }
    }
    assert_eq!((rig.stats().held, rig.stats().workers_wanted), (None, 10));
}

#[test]
fn beyond_the_pace_of_a_target_no_workers_are_wanted() {
    let till = TargetSettings { rate: Some(Rate { events: 4, per: s(1) }), ..target(100) };
    let mut rig = Rig::pushing(till, unpromised());
    rig.fill(400);
    assert_eq!(rig.stats().workers_wanted, 2, "four a second, half a second each");
    let mut rig = Rig::pushing(target(100), unpromised());
    rig.fill(400);
    for _ in 0..3 {
        for call in rig.take_calls() {
            rig.end_call(call.receipt, throttled(s(5)));
        }
        rig.pass(s(5));
    }
    let stats = rig.stats();
    let most = stats.leased.max(2);
    assert!(
        stats.workers_wanted <= most,
        "{} though it lives by its pauses: {stats:?}",
        stats.workers_wanted
    );
}

#[test]
fn of_each_group_one_message_at_a_time_gives_work() {
    let mut rig = Rig::new(promised());
    for message_number in 0..600 {
        let group = Label::new(&format!("g{}", message_number % 3)).unwrap();
        rig.enqueue(NewMessage { group: Some(group), ..message() }).unwrap();
    }
    assert_eq!(rig.stats().workers_wanted, 3);
    rig.lease(2);
    assert_eq!(rig.stats().workers_wanted, 3);
}

#[test]
fn a_change_of_the_ceiling_or_of_the_work_changes_what_is_wanted() {
    let mut rig = Rig::new(unpromised());
    rig.fill(300);
    rig.pass(s(120));
    let before = rig.stats().workers_wanted;
    for _ in 0..20 {
        let receipt = rig.lease_one();
        rig.pass(s(1));
        rig.settle(receipt, complete()).unwrap();
    }
    let after = rig.stats().workers_wanted;
    assert!(after > before, "work takes twice as long as expected: {before}, then {after}");
    rig = Rig::new(unpromised());
    let redefine = |rig: &mut Rig, concurrency| {
        let settings = QueueSettings { concurrency, ..unpromised() };
        let more = Command::Define { queue: name("more"), settings: Box::new(settings) };
        assert!(matches!(rig.ask_now(more), Reply::Defined(Ok(_))));
    };
    redefine(&mut rig, None);
    for _ in 0..300 {
        rig.enqueue_to("more", message()).unwrap();
    }
    for (concurrency, wanted) in [(None, 18), (Some(7), 7), (Some(2), 2), (None, 18)] {
        redefine(&mut rig, concurrency);
        let Reply::Queue(view) = rig.ask_now(Command::Queue(name("more"))) else { panic!("a queue") };
        assert_eq!(view.unwrap().stats.workers_wanted, wanted, "30/s, and 300 within a minute");
    }
}

#[test]
fn the_ceiling_is_the_lower_cap_and_those_who_push_are_all_at_work() {
    for (own, concurrency, ceiling) in [(None, 5, 5), (Some(3), 5, 3), (Some(7), 5, 5)] {
        let settings = QueueSettings { concurrency: own, ..QueueSettings::default() };
        let mut rig = Rig::pushing(target(concurrency), settings);
        rig.pause(true);
        rig.fill(12);
        let stats = rig.stats();
        assert_eq!((stats.workers, stats.workers_ceiling), (ceiling, ceiling));
        assert!((stats.backlog_per_worker - 12.0 / ceiling as f64).abs() < 1e-9);
    }
    let mut rig = Rig::new(QueueSettings { concurrency: Some(4), ..QueueSettings::default() });
    rig.fill(12);
    let stats = rig.stats();
    assert_eq!((stats.workers, stats.workers_ceiling), (0, 4));
    assert!((stats.backlog_per_worker - 12.0).abs() < 1e-9, "before there is a worker, it is all one's");
}

#[test]
fn one_lucky_or_unlucky_piece_of_work_does_not_replace_what_is_expected() {
    for took in [ms(5), s(8)] {
        let mut rig = Rig::new(unpromised());
        rig.fill(1_200);
        let before = rig.stats().workers_wanted;
        let receipt = rig.lease_one();
        rig.pass(took);
        rig.settle(receipt, complete()).unwrap();
        let after = rig.stats().workers_wanted;
        assert!(after * 3 > before && after < before * 3, "{before}, and after one of {took:?} {after}");
    }
}

#[test]
fn workers_that_come_and_go_do_not_disturb_the_signal() {
    let mut rig = Rig::new(promised());
    let mut seen = Vec::new();
    let mut leased: Vec<_> = Vec::new();
    // Ten a second come evenly, and are taken half a second later in fits: now one at a time, now ten.
    for step in 0..900_u32 {
        rig.fill(1);
        rig.pass(ms(100));
        let many = if (step / 50).is_multiple_of(2) { 1 } else { 10 };
        if step.is_multiple_of(many) {
            for one in leased.drain(..) {
                let _: Result<(), _> = rig.settle(one, complete());
            }
            leased.extend(rig.lease(10).into_iter().map(|one| one.receipt));
        }
        if step > 300 && step.is_multiple_of(7) {
            seen.push(rig.stats().workers_wanted);
        }
    }
    let most = seen.iter().max().unwrap();
    assert!(*most <= 12, "L is five at half a second each, ten at a second: {seen:?}");
    assert!(seen.iter().all(|wanted| *wanted >= 1));
}
