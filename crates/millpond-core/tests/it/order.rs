//! Positions and promises where more than the place of a message decides when it starts.

use crate::rig::{Rig, complete, message, ms, name, retry_in, s, target};
use millpond_core::command::{Command, Declared, EnqueueError, NewMessage, Reply};
use millpond_core::message::Criticality;
use millpond_core::name::Label;
use millpond_core::settings::{Order, Priority, QueueSettings};
use std::time::Duration;

/// One worker that does five messages a second.
fn five_per_second() -> QueueSettings {
    QueueSettings { concurrency: Some(1), expected_service_time: Some(ms(200)), ..QueueSettings::default() }
}

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn of_tenant(tenant: &str) -> NewMessage {
    NewMessage { tenant: Some(label(tenant)), ..message() }
}

fn of_class(criticality: Criticality) -> NewMessage {
    NewMessage { criticality, ..message() }
}

/// Does work at five a second until a message starts; how long that took.
fn start_of(rig: &mut Rig, seq: millpond_core::identity::Seq) -> Duration {
    let mut waited = Duration::ZERO;
    loop {
        let receipt = rig.lease_one();
        if receipt.seq == seq {
            return waited;
        }
        rig.pass(ms(200));
        waited += ms(200);
        rig.settle(receipt, complete()).unwrap();
    }
}

fn near(promised: Duration, real: Duration) -> bool {
    promised.abs_diff(real) <= ms(400).max(real / 10)
}

#[test]
fn a_position_is_told_only_where_nothing_but_the_place_decides() {
    let mut rig = Rig::new(five_per_second());
    let plain = rig.fill(2);
    assert_eq!(rig.enqueue(message()).unwrap().position, Some(2));
    let tenant = rig.enqueue(of_tenant("a")).unwrap();
    assert_eq!(tenant.position, None, "tenants take turns");
    assert_eq!(rig.status(plain[1]).unwrap().position, None);
    rig.cancel(tenant.seq).unwrap();
    assert_eq!(rig.status(plain[1]).unwrap().position, Some(1), "one tenant again");
    let class = rig.enqueue(of_class(Criticality::Sheddable)).unwrap();
    assert_eq!((class.position, rig.status(plain[1]).unwrap().position), (None, None));
    rig.cancel(class.seq).unwrap();
    let head = rig.enqueue(NewMessage { group: Some(label("g")), ..message() }).unwrap();
    let blocked = rig.enqueue(NewMessage { group: Some(label("g")), ..message() }).unwrap();
    assert_eq!((head.position, blocked.position), (Some(3), None));
    assert_eq!(rig.status(blocked.seq).unwrap().position, None);
    assert_eq!(rig.status(head.seq).unwrap().position, Some(3));
}

#[test]
fn a_queue_of_one_named_tenant_or_of_one_class_has_positions() {
    for new in [of_tenant("a"), of_class(Criticality::SheddablePlus)] {
        let mut rig = Rig::new(five_per_second());
        for position in 0..5 {
            assert_eq!(rig.enqueue(new.clone()).unwrap().position, Some(position));
        }
    }
}

#[test]
fn the_promise_of_a_quiet_tenant_does_not_grow_with_the_flood_of_another() {
    let mut rig = Rig::new(five_per_second());
    for _ in 0..100 {
        rig.enqueue(of_tenant("flood")).unwrap();
    }
    let quiet: Vec<_> = (0..10).map(|_| rig.enqueue(of_tenant("quiet")).unwrap()).collect();
    let promise = quiet[9].promise.unwrap().p50;
    assert_eq!(promise, ms(200) * 19, "nine of its own and ten of the other before it");
    assert_eq!(rig.status(quiet[9].seq).unwrap().promise.unwrap().p50, promise);
    let real = start_of(&mut rig, quiet[9].seq);
    assert!(near(promise, real), "{promise:?} promised, {real:?} waited");
}

#[test]
fn the_promise_of_a_class_follows_its_share() {
    for (criticality, priority) in [
        (Criticality::CriticalPlus, Priority::Weighted),
        (Criticality::SheddablePlus, Priority::Weighted),
        (Criticality::Sheddable, Priority::Weighted),
        (Criticality::SheddablePlus, Priority::Strict),
    ] {
        let mut rig = Rig::new(QueueSettings { priority, ..five_per_second() });
        for class in Criticality::ALL {
            for _ in 0..60 {
                rig.enqueue(of_class(class)).unwrap();
            }
        }
        let last = rig.enqueue(of_class(criticality)).unwrap();
        let promise = last.promise.unwrap().p50;
        let real = start_of(&mut rig, last.seq);
        assert!(near(promise, real), "{criticality:?} {priority:?}: {promise:?} promised, {real:?} waited");
    }
}

#[test]
fn a_message_behind_others_of_its_group_is_promised_nothing_better_than_their_work_one_by_one() {
    let mut rig = Rig::new(QueueSettings { concurrency: Some(10), ..five_per_second() });
    let grouped = || NewMessage { group: Some(label("g")), ..message() };
    let seqs: Vec<_> = (0..11).map(|_| rig.enqueue(grouped()).unwrap()).collect();
    assert_eq!(seqs[10].promise.unwrap().p50, s(2), "ten before it, at 200 ms each, whatever the workers");
    assert_eq!(rig.status(seqs[10].seq).unwrap().promise.unwrap().p50, s(2));
    let plain = rig.enqueue(message()).unwrap();
    assert_eq!(plain.promise.unwrap().p50, ms(220), "eleven before it, by ten workers");
}

#[test]
fn where_the_newest_goes_first_nothing_is_promised_and_nothing_refused_for_its_wait() {
    let mut rig = Rig::new(QueueSettings { order: Order::Lifo, max_wait: Some(s(1)), ..five_per_second() });
    for _ in 0..100 {
        let accepted = rig.enqueue(message()).unwrap();
        assert_eq!((accepted.position, accepted.promise), (None, None));
    }
    assert_eq!(rig.stats().predicted_wait, None);
}

#[test]
fn the_bound_in_time_refuses_a_flooding_tenant_and_lets_another_in() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), ..five_per_second() });
    let refused = |answer| matches!(answer, Err(EnqueueError::WaitTooLong { .. }));
    let accepted = (0..100).filter(|_| !refused(rig.enqueue(of_tenant("flood")))).count();
    assert_eq!(accepted, 21);
    assert!(rig.enqueue(of_tenant("quiet")).is_ok());
    assert!(refused(rig.enqueue(of_tenant("flood"))));
    let others = (0..100).filter(|_| !refused(rig.enqueue(of_tenant("quiet")))).count();
    assert!((8..=11).contains(&others), "half of four seconds at five a second: {others}");
}

#[test]
fn the_bound_in_time_counts_of_another_tenant_what_failed_as_little_as_what_waits() {
    let mut rig = Rig::new(QueueSettings { max_wait: Some(s(4)), concurrency: Some(5), ..five_per_second() });
    for _ in 0..100 {
        rig.enqueue(of_tenant("failing")).unwrap();
        let receipt = rig.lease_one();
        rig.settle(receipt, retry_in(s(600))).unwrap();
    }
    assert!(rig.enqueue(of_tenant("failing")).is_ok());
    assert!(rig.enqueue(of_tenant("failing")).is_err());
    assert!(rig.enqueue(of_tenant("well")).is_ok());
}

#[test]
fn a_queue_shares_its_target_with_those_that_have_work_and_are_not_paused() {
    let settings = || QueueSettings {
        target: Some(name("till")),
        expected_service_time: Some(ms(100)),
        ..QueueSettings::default()
    };
    let queues = ["one", "two", "three"].map(|queue| (name(queue), settings())).to_vec();
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), target(2))], queues });
    let pause = |rig: &mut Rig, queue, paused| {
        let reply = rig.ask_now(Command::Pause { queue: name(queue), paused });
        assert!(matches!(reply, Reply::Paused(Ok(()))));
    };
    let capacity = |rig: &mut Rig| match rig.ask_now(Command::Queue(name("one"))) {
        Reply::Queue(view) => format!("{:.0}/s", view.unwrap().stats.capacity_per_second),
        other => panic!("{other:?}"),
    };
    for _ in 0..5 {
        rig.enqueue_to("one", message()).unwrap();
    }
    assert_eq!(capacity(&mut rig), "20/s", "its own work takes nothing from it");
    for _ in 0..5 {
        rig.enqueue_to("two", message()).unwrap();
    }
    assert_eq!(capacity(&mut rig), "10/s");
    pause(&mut rig, "two", true);
    assert_eq!(capacity(&mut rig), "20/s", "what is paused takes nothing");
    pause(&mut rig, "two", false);
    assert_eq!(capacity(&mut rig), "10/s");
    rig.restart();
    assert_eq!(capacity(&mut rig), "10/s");
}

#[test]
fn whoever_is_first_of_its_group_is_promised_as_if_it_had_none() {
    let settings =
        QueueSettings { concurrency: Some(4), expected_service_time: Some(s(1)), ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    let alone = NewMessage { group: Some(label("a")), ..message() };
    let promise = rig.enqueue(alone).unwrap().promise.unwrap();
    assert_eq!(
        (promise.p50, promise.p90),
        (s(0), ms(250)),
        "a place of four is free in a quarter of a second"
    );
}
