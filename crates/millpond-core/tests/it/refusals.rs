//! What callers are told who are refused, and whether it holds: they come back when they were told to.

use crate::rig::{QUEUE, Rig, complete, failed, message, ms, name, s, succeeded, target};
use millpond_core::command::{Command, Declared, EnqueueError, NewMessage, Reply};
use millpond_core::identity::Receipt;
use millpond_core::message::Criticality;
use millpond_core::settings::{BreakerSettings, QueueSettings, TargetSettings};
use millpond_core::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// One worker that does five messages a second.
fn five_per_second() -> QueueSettings {
    QueueSettings { concurrency: Some(1), expected_service_time: Some(ms(200)), ..QueueSettings::default() }
}

fn retry_after(error: &EnqueueError) -> Duration {
    match error {
        EnqueueError::QueueFull { retry_after, .. } | EnqueueError::WaitTooLong { retry_after, .. } => {
            *retry_after
        }
        other => panic!("{other:?} is no refusal for a bound"),
    }
}

/// Many callers who call at once and come back when they are told to, and one worker at 200 ms a message.
struct Crowd {
    rig: Rig,
    held: Option<(Mono, Receipt)>,
    /// Callers on their way back, by when they arrive, with how often they have called.
    away: BTreeMap<(Mono, usize), u32>,
    /// How often each had to call until it was accepted.
    calls: BTreeMap<usize, u32>,
}

impl Crowd {
    fn new(settings: QueueSettings, callers: usize) -> Self {
        let rig = Rig::new(settings);
        let away = (0..callers).map(|caller| ((rig.now.mono, caller), 0)).collect();
        Self { rig, held: None, away, calls: BTreeMap::new() }
    }

    /// Goes on until everybody is in and everything done. `told` is what a caller makes of what it is told.
    fn run(mut self, told: fn(Duration) -> Duration) -> BTreeMap<usize, u32> {
        loop {
            let next_call = self.away.first_key_value().map(|(&(at, _), _)| at);
            let work_ends = self.held.map(|(at, _)| at);
            let Some(at) = next_call.into_iter().chain(work_ends).min() else { return self.calls };
            self.rig.pass(at.since(self.rig.now.mono));
            if let Some((_, receipt)) = self.held.take_if(|(ends, _)| *ends == at) {
                self.rig.settle(receipt, complete()).unwrap();
            } else {
                self.call(told);
            }
            if self.held.is_none() {
                let leased = self.rig.lease(1);
                self.held = leased.first().map(|leased| (self.rig.now.mono.plus(ms(200)), leased.receipt));
            }
        }
    }

    fn call(&mut self, told: fn(Duration) -> Duration) {
        let ((_, caller), calls) = self.away.pop_first().unwrap();
        match self.rig.enqueue(message()) {
            Ok(_) => {
                self.calls.insert(caller, calls + 1);
            }
            Err(error) => {
                let back = self.rig.now.mono.plus(told(retry_after(&error)));
                self.away.insert((back, caller), calls + 1);
            }
        }
    }
}

fn exactly(told: Duration) -> Duration {
    told
}

/// As `Retry-After` says it.
fn in_whole_seconds(told: Duration) -> Duration {
    s(told.as_secs() + u64::from(told.subsec_nanos() > 0))
}

#[test]
fn a_crowd_beyond_the_bound_in_time_is_in_with_its_second_call() {
    for told in [exactly, in_whole_seconds] {
        let settings = QueueSettings { max_wait: Some(s(4)), ..five_per_second() };
        let calls = Crowd::new(settings, 200).run(told);
        assert_eq!(calls.len(), 200);
        assert!((20..=22).contains(&calls.values().filter(|calls| **calls == 1).count()));
        assert_eq!(calls.values().max(), Some(&2), "{calls:?}");
    }
}

#[test]
fn a_crowd_beyond_the_bound_on_messages_is_in_with_its_second_call() {
    for told in [exactly, in_whole_seconds] {
        let settings = QueueSettings { max_messages: Some(10), ..five_per_second() };
        let calls = Crowd::new(settings, 200).run(told);
        assert_eq!((calls.len(), calls.values().max()), (200, Some(&2)), "{calls:?}");
    }
}

#[test]
fn whoever_may_use_less_of_a_bound_is_sent_away_until_that_is_free() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(100), ..five_per_second() });
    rig.fill(100);
    let sheddable = NewMessage { criticality: Criticality::Sheddable, ..message() };
    let wait = retry_after(&rig.enqueue(sheddable.clone()).unwrap_err());
    assert!((ms(10_200)..ms(11_300)).contains(&wait), "51 of 100 must go at 5/s: {wait:?}");
    let critical = retry_after(&rig.enqueue(message()).unwrap_err());
    assert!(critical <= ms(1_100), "others are not sent as far for that: {critical:?}");
}

#[test]
fn whoever_brings_much_is_sent_away_until_so_many_bytes_are_free() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 1_000, ..five_per_second() });
    rig.fill(100);
    let wait = retry_after(&rig.enqueue(crate::rig::message_of(400)).unwrap_err());
    assert!((s(8)..ms(8_900)).contains(&wait), "40 messages of 10 bytes must go at 5/s: {wait:?}");
}

#[test]
fn a_crowd_that_is_refused_while_nothing_is_known_does_not_come_back_together() {
    let full = QueueSettings { max_messages: Some(1), ..QueueSettings::default() };
    let held = QueueSettings { max_messages: Some(1), ..five_per_second() };
    for (settings, is_paused) in [(full, false), (held, true)] {
        let mut rig = Rig::new(settings);
        rig.fill(1);
        rig.pause(is_paused);
        let mut returns = BTreeMap::<Duration, usize>::new();
        for _ in 0..300 {
            let told = retry_after(&rig.enqueue(message()).unwrap_err());
            *returns.entry(in_whole_seconds(told)).or_default() += 1;
        }
        assert!(returns.values().all(|callers| *callers <= 20), "in one second: {returns:?}");
        assert!(returns.keys().all(|told| (s(5)..=s(39)).contains(told)), "{returns:?}");
    }
}

#[test]
fn nobody_is_sent_away_for_longer_than_an_hour() {
    let settings = QueueSettings { expected_service_time: Some(s(600)), ..five_per_second() };
    let mut rig = Rig::new(QueueSettings { max_messages: Some(1), ..settings });
    rig.fill(1);
    for _ in 0..50 {
        let wait = retry_after(&rig.enqueue(message()).unwrap_err());
        assert!((s(600)..=s(3_600)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn without_an_estimate_only_the_other_bounds_count_and_nothing_is_promised() {
    let settings = QueueSettings { max_wait: Some(s(1)), max_messages: Some(50), ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    for _ in 0..50 {
        assert_eq!(rig.enqueue(message()).unwrap().promise, None);
    }
    let error = rig.enqueue(message()).unwrap_err();
    assert!(matches!(error, EnqueueError::QueueFull { .. }), "{error:?}");
    assert!((s(5)..=ms(5_500)).contains(&retry_after(&error)));
    // The first measurement ends that.
    for _ in 0..6 {
        let receipt = rig.lease_one();
        rig.pass(ms(500));
        rig.settle(receipt, complete()).unwrap();
    }
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
}

#[test]
fn while_the_target_is_down_work_is_accepted_up_to_the_other_bounds_without_a_promise() {
    let settings = QueueSettings {
        max_wait: Some(s(4)),
        max_messages: Some(60),
        expected_service_time: Some(ms(200)),
        ..QueueSettings::default()
    };
    let till = TargetSettings { breaker: Some(BreakerSettings::default()), ..target(1) };
    let mut rig = Rig::pushing(till, settings);
    rig.fill(22);
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
    for _ in 0..10 {
        for call in rig.take_calls() {
            rig.end_call(call.receipt, failed(false));
        }
    }
    for _ in 22..60 {
        assert_eq!(rig.enqueue(message()).unwrap().promise, None, "the target is down");
    }
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })));
    let mut calls = rig.take_calls();
    while calls.is_empty() {
        rig.pass(s(1));
        calls = rig.take_calls();
    }
    for _ in 0..2 {
        rig.pass(ms(200));
        rig.end_call(calls[0].receipt, succeeded());
        calls = rig.take_calls();
    }
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })), "it is up again");
}

#[test]
fn a_paused_queue_accepts_up_to_the_other_bounds_and_refuses_by_the_wait_once_resumed() {
    let settings = QueueSettings { max_wait: Some(s(4)), max_messages: Some(60), ..five_per_second() };
    let mut rig = Rig::new(settings);
    rig.pause(true);
    for _ in 0..60 {
        assert_eq!(rig.enqueue(message()).unwrap().promise, None);
    }
    let error = rig.enqueue(message()).unwrap_err();
    assert!(matches!(error, EnqueueError::QueueFull { .. }), "{error:?}");
    assert!(retry_after(&error) >= s(5), "nobody knows when it goes on");
    rig.pause(false);
    let receipt = rig.lease_one();
    rig.pass(ms(200));
    rig.settle(receipt, complete()).unwrap();
    let error = rig.enqueue(message()).unwrap_err();
    let EnqueueError::WaitTooLong { retry_after, .. } = error else { panic!("{error:?}") };
    assert!((ms(7_800)..ms(8_700)).contains(&retry_after), "59 wait, 20 may: {retry_after:?}");
}

#[test]
fn a_changed_cap_moves_the_bound_in_time_at_once() {
    let settings = |cap| QueueSettings {
        max_wait: Some(s(4)),
        concurrency: Some(cap),
        expected_service_time: Some(ms(200)),
        ..QueueSettings::default()
    };
    let mut rig = Rig::with(Declared { targets: Vec::new(), queues: Vec::new() });
    let define = |rig: &mut Rig, cap| {
        let reply = rig.ask_now(Command::Define { queue: name(QUEUE), settings: Box::new(settings(cap)) });
        assert!(matches!(reply, Reply::Defined(Ok(_))), "{reply:?}");
    };
    let accepted = |rig: &mut Rig| (0..200).filter(|_| rig.enqueue(message()).is_ok()).count();
    define(&mut rig, 1);
    assert_eq!(accepted(&mut rig), 21);
    define(&mut rig, 2);
    assert_eq!(accepted(&mut rig), 20, "twice the capacity, twice the backlog");
    define(&mut rig, 1);
    assert_eq!(accepted(&mut rig), 0);
    let wait = retry_after(&rig.enqueue(message()).unwrap_err());
    assert!(wait >= ms(4_200), "41 wait where 20 may: {wait:?}");
}
