//! Promises compared with what happened, and the bound in time that rests on them.

use crate::rig::{Rig, complete, dead, failed, message, ms, name, retry_in, s, succeeded, target};
use millpond_core::command::{Accepted, Command, Declared, NewMessage, Reply};
use millpond_core::forecast::{Correction, PromiseRecord};
use millpond_core::message::Phase;
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::{
    BreakerSettings, Order, Priority, QueueSettings, RetrySettings, TargetSettings,
};
use millpond_core::stats::QueueStats;

/// One worker that does five messages a second.
fn five_per_second() -> QueueSettings {
    QueueSettings { concurrency: Some(1), expected_service_time: Some(ms(200)), ..QueueSettings::default() }
}

/// Does the next message in `took`.
fn work(rig: &mut Rig, took: std::time::Duration) {
    let receipt = rig.lease_one();
    rig.pass(took);
    rig.settle(receipt, complete()).unwrap();
}

fn record(rig: &mut Rig) -> PromiseRecord {
    rig.stats().promises
}

#[test]
fn a_promise_is_compared_with_the_first_start_and_only_with_that() {
    let mut rig = Rig::new(five_per_second());
    rig.fill(20);
    for _ in 0..19 {
        work(&mut rig, ms(200));
    }
    let receipt = rig.lease_one();
    let compared = record(&mut rig);
    assert_eq!((compared.by_p50, compared.by_p90, compared.late), (20, 0, 0));
    assert!(compared.error.sum_seconds < 1e-9, "each started when promised: {compared:?}");
    rig.settle(receipt, retry_in(s(5))).unwrap();
    rig.pass(s(5));
    work(&mut rig, ms(200));
    assert_eq!(record(&mut rig), compared, "a retry is no start that was promised");
}

#[test]
fn late_starts_are_told_from_those_within_the_p90() {
    let mut rig = Rig::new(five_per_second());
    rig.fill(11);
    for _ in 0..11 {
        work(&mut rig, ms(211));
    }
    assert_eq!(record(&mut rig).by_p90, 1, "2.11 s for 2.0 s promised: {:?}", record(&mut rig));
    rig.fill(11);
    for _ in 0..11 {
        work(&mut rig, ms(400));
    }
    assert!(record(&mut rig).late >= 5, "{:?}", record(&mut rig));
    assert!(record(&mut rig).kept_ratio().unwrap() < 0.8);
}

#[test]
fn what_never_starts_is_not_compared() {
    let mut rig = Rig::new(five_per_second());
    let cancelled = rig.enqueue(message()).unwrap().seq;
    rig.enqueue(NewMessage { ttl: Some(s(3)), ..message() }).unwrap();
    rig.enqueue(NewMessage { delay: s(1), ..message() }).unwrap();
    rig.cancel(cancelled).unwrap();
    rig.pass(s(4));
    work(&mut rig, ms(200));
    assert_eq!(record(&mut rig).compared(), 0, "delayed work starts when its caller said");
}

#[test]
fn a_pause_calls_off_what_was_promised_before() {
    let mut rig = Rig::new(five_per_second());
    rig.fill(3);
    rig.pause(true);
    rig.pass(s(600));
    rig.pause(false);
    work(&mut rig, ms(200));
    assert_eq!(record(&mut rig).compared(), 0);
    rig.fill(1);
    work(&mut rig, ms(200));
    work(&mut rig, ms(200));
    work(&mut rig, ms(200));
    assert_eq!(record(&mut rig).compared(), 1, "promises given since count again");
}

#[test]
fn a_replay_is_promised_and_compared_anew() {
    let mut rig = Rig::new(five_per_second());
    let seq = rig.fill(1)[0];
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    assert_eq!(record(&mut rig).compared(), 1);
    rig.fill(4);
    rig.replay(ReplayWhich::These(vec![seq])).unwrap();
    for _ in 0..5 {
        work(&mut rig, ms(200));
    }
    let compared = record(&mut rig);
    assert_eq!((compared.compared(), compared.late), (6, 0));
    assert!(compared.error.sum_seconds < 1e-6, "behind four: 0.8 s, as promised: {compared:?}");
}

/// A queue that is pushed to one place, where everything fails at first.
const FLAKY: &str = "flaky";

fn flaky(concurrency: u32) -> QueueSettings {
    let retry =
        RetrySettings { backoff_min: ms(1), backoff_max: ms(1), budget: 1.0, ..RetrySettings::default() };
    QueueSettings {
        target: Some(name("till")),
        concurrency: Some(concurrency),
        expected_service_time: Some(ms(200)),
        retry,
        ..QueueSettings::default()
    }
}

fn define(rig: &mut Rig, settings: QueueSettings) {
    let reply = rig.ask_now(Command::Define { queue: name(FLAKY), settings: Box::new(settings) });
    assert!(matches!(reply, Reply::Defined(Ok(_))), "{reply:?}");
}

fn flaky_stats(rig: &mut Rig) -> QueueStats {
    match rig.ask_now(Command::Queue(name(FLAKY))) {
        Reply::Queue(view) => view.unwrap().stats,
        other => panic!("{other:?}"),
    }
}

/// Fails every first call after 100 ms and completes every second one after 200 ms, until no call is left: each
/// message takes 300 ms, of which the measured service time has 200.
fn work_flakily(rig: &mut Rig) {
    loop {
        let calls = rig.take_calls();
        if calls.is_empty() && flaky_stats(rig).backoff == 0 {
            return;
        }
        rig.pass(if calls.is_empty() { ms(1) } else { ms(100) });
        for call in calls {
            if call.message.deliveries == 1 {
                rig.end_call(call.receipt, failed(false));
            } else {
                rig.pass(ms(100));
                rig.end_call(call.receipt, succeeded());
            }
        }
    }
}

fn fill_flaky(rig: &mut Rig, count: usize) -> Accepted {
    (0..count).map(|_| rig.enqueue_to(FLAKY, message()).unwrap()).last().unwrap()
}

/// A rig whose flaky queue has learned that work takes half as long again as it measures.
fn taught() -> Rig {
    let till = TargetSettings { breaker: Some(BreakerSettings::default()), ..target(1) };
    let declared = Declared { targets: vec![(name("till"), till)], queues: Vec::new() };
    let mut rig = Rig::with(declared);
    define(&mut rig, flaky(1));
    for _ in 0..3 {
        fill_flaky(&mut rig, 100);
        work_flakily(&mut rig);
    }
    let learned = flaky_stats(&mut rig).promise_correction.p50;
    assert!((learned - 1.5).abs() < 0.05, "{learned}");
    rig
}

#[test]
fn what_takes_longer_than_it_measures_is_promised_so_from_then_on() {
    let mut rig = taught();
    let before = flaky_stats(&mut rig).promises;
    let accepted = fill_flaky(&mut rig, 42);
    let p50 = accepted.promise.unwrap().p50;
    assert!(p50.abs_diff(s(12)) < ms(500), "40 ahead at 0.3 s each: {p50:?}");
    assert_eq!(rig.status(accepted.seq).unwrap().promise.unwrap().p50, p50, "the status says the same");
    assert!(flaky_stats(&mut rig).predicted_wait.unwrap() >= p50, "and so do the numbers");
    work_flakily(&mut rig);
    let after = flaky_stats(&mut rig).promises;
    assert_eq!((after.compared() - before.compared(), after.late - before.late), (42, 0));
}

#[test]
fn a_changed_cap_or_order_forgets_what_was_learned_and_other_settings_do_not() {
    let mut rig = taught();
    let learned = flaky_stats(&mut rig).promise_correction;
    define(&mut rig, QueueSettings { lease: s(60), ..flaky(1) });
    assert_eq!(flaky_stats(&mut rig).promise_correction, learned);
    let record = flaky_stats(&mut rig).promises;
    define(&mut rig, flaky(2));
    assert_eq!(flaky_stats(&mut rig).promise_correction, Correction::default());
    assert_eq!(flaky_stats(&mut rig).promises, record, "what was counted stays counted");
    for changed in [
        QueueSettings { target: None, ..flaky(1) },
        QueueSettings { order: Order::Lifo, ..flaky(1) },
        QueueSettings { priority: Priority::Strict, ..flaky(1) },
    ] {
        let mut rig = taught();
        define(&mut rig, changed.clone());
        assert_eq!(flaky_stats(&mut rig).promise_correction, Correction::default(), "{changed:?}");
    }
}

#[test]
fn promises_that_a_target_going_down_broke_teach_nothing() {
    let mut rig = taught();
    let learned = flaky_stats(&mut rig).promise_correction;
    let late = flaky_stats(&mut rig).promises.late;
    let seqs: Vec<_> = (0..60).map(|_| rig.enqueue_to(FLAKY, message()).unwrap().seq).collect();
    // Ten failures in a row, and ten minutes of probes in vain.
    for _ in 0..10 {
        let call = rig.take_calls().remove(0);
        rig.pass(ms(100));
        rig.end_call(call.receipt, failed(false));
        rig.pass(ms(2));
    }
    assert_eq!(rig.enqueue_to(FLAKY, message()).unwrap().promise, None, "the target is down");
    let begun = rig.now.mono;
    while rig.now.mono.since(begun) < s(600) {
        let wait = rig.target_stats().next_probe.unwrap();
        rig.pass(wait);
        let probe = rig.take_calls().remove(0);
        rig.end_call(probe.receipt, failed(false));
    }
    rig.ask_now(Command::ResetTarget(name("till")));
    work_flakily(&mut rig);
    let stats = flaky_stats(&mut rig);
    assert!(stats.promises.late > late + 20, "they were late all the same: {:?}", stats.promises);
    assert_eq!(stats.promise_correction, learned);
    assert_eq!(rig.phase(seqs[59]), Phase::Succeeded);
}

#[test]
fn promises_given_before_a_target_was_down_teach_nothing_once_it_is_up_again() {
    let mut rig = taught();
    let learned = flaky_stats(&mut rig).promise_correction;
    let late = flaky_stats(&mut rig).promises.late;
    fill_flaky(&mut rig, 100);
    // Down after ten failures in a row that take ten seconds, and up with the next two.
    for _ in 0..10 {
        let call = rig.take_calls().remove(0);
        rig.pass(s(1));
        rig.end_call(call.receipt, failed(false));
    }
    assert_eq!(rig.enqueue_to(FLAKY, message()).unwrap().promise, None, "the target is down");
    let wait = rig.target_stats().next_probe.unwrap();
    rig.pass(wait);
    for _ in 0..2 {
        let probe = rig.take_calls().remove(0);
        rig.end_call(probe.receipt, succeeded());
    }
    work_flakily(&mut rig);
    let stats = flaky_stats(&mut rig);
    assert!(stats.promises.late > late + 20, "they were late all the same: {:?}", stats.promises);
    assert_eq!(stats.promise_correction, learned);
}
