//! What is promised and refused where a target asks for one pause after the other.

use crate::rig::{Rig, message, ms, s, succeeded, target, throttled};
use millpond_core::command::{CallOutcome, EnqueueError};
use millpond_core::identity::Receipt;
use millpond_core::settings::{QueueSettings, RetrySettings};
use millpond_core::stats::QueueStats;
use millpond_core::time::Mono;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
const WORK: Duration = Duration::from_millis(20);

/// A queue for a target with two places and 20 ms of work: a hundred a second, if it were not for its pauses.
fn rig(max_wait: Option<Duration>) -> Rig {
    let retry = RetrySettings { max_deliveries: Some(1_000_000), ..RetrySettings::default() };
    let settings =
        QueueSettings { max_wait, retry, expected_service_time: Some(WORK), ..QueueSettings::default() };
    Rig::pushing(target(2), settings)
}

/// Callers at a steady pace, and what the target answers to each call in turn.
struct Load<A: FnMut(u32) -> CallOutcome> {
    rig: Rig,
    every: Duration,
    answer: A,
    calls: u32,
    under_way: Vec<(Mono, Receipt)>,
    accepted: u64,
    refused: u64,
    /// The oldest that anything ready ever was.
    oldest: Duration,
}

impl<A: FnMut(u32) -> CallOutcome> Load<A> {
    fn new(rig: Rig, every: Duration, answer: A) -> Self {
        let (under_way, oldest) = (Vec::new(), Duration::ZERO);
        Self { rig, every, answer, calls: 0, under_way, accepted: 0, refused: 0, oldest }
    }

    /// Goes on for so long, and counts from anew.
    fn run(&mut self, time: Duration) -> QueueStats {
        (self.accepted, self.refused, self.oldest) = (0, 0, Duration::ZERO);
        let steps = time.as_millis() / STEP.as_millis();
        for step in 0..steps {
            if step % (self.every.as_millis() / STEP.as_millis()) == 0 {
                match self.rig.enqueue(message()) {
                    Ok(_) => self.accepted += 1,
                    Err(EnqueueError::WaitTooLong { .. }) => self.refused += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            self.rig.pass(STEP);
            let now = self.rig.now.mono;
            for (_, receipt) in self.under_way.extract_if(.., |(ends, _)| *ends <= now).collect::<Vec<_>>() {
                self.calls += 1;
                self.rig.end_call(receipt, (self.answer)(self.calls));
            }
            let calls = self.rig.take_calls();
            self.under_way.extend(calls.iter().map(|call| (now.plus(WORK), call.receipt)));
            self.oldest = self.oldest.max(self.rig.stats().oldest_ready_age);
        }
        self.rig.stats()
    }
}

/// Every second call, by chance: strictly in turn, it would always be the same message's.
fn every_second_call() -> impl FnMut(u32) -> CallOutcome {
    let mut chance = fastrand::Rng::with_seed(2026);
    move |_| if chance.bool() { throttled(s(1)) } else { succeeded() }
}

/// The promises that were kept, and all that were compared.
fn kept(stats: &QueueStats) -> (u64, u64) {
    (stats.promises.by_p50 + stats.promises.by_p90, stats.promises.compared())
}

#[test]
fn what_a_target_does_not_bear_over_its_pauses_is_refused_and_said_to_be_insurmountable() {
    let mut load = Load::new(rig(Some(s(5))), ms(250), every_second_call());
    load.run(s(20));
    for _ in 0..2 {
        let before = load.rig.stats();
        let after = load.run(s(100));
        let done = (after.totals.completed - before.totals.completed) as f64 / 100.0;
        assert!((0.8..2.0).contains(&done), "{done}/s");
        let off = after.capacity_per_second / done;
        assert!((0.6..1.7).contains(&off), "{}/s said, {done}/s done", after.capacity_per_second);
        assert!(load.refused > load.accepted, "{} refused, {} accepted", load.refused, load.accepted);
        // One that is throttled several times by bad luck is older than the promise, but that does not grow.
        assert!(load.oldest < s(30), "the oldest was due since {:?}", load.oldest);
        assert!(after.insurmountable && after.drain.is_none(), "{after:?}");
        let ((kept, compared), (kept_before, before)) = (kept(&after), kept(&before));
        let share = (kept - kept_before) as f64 / (compared - before) as f64;
        assert!(share > 0.8, "{share} of the promises are kept");
    }
}

#[test]
fn a_target_that_only_asks_for_pauses_gets_no_more_work_than_waits_already() {
    let mut load = Load::new(rig(Some(s(5))), ms(250), |_| throttled(s(1)));
    load.run(s(30));
    load.run(s(100));
    assert_eq!(load.accepted, 0, "nothing is done");
}

#[test]
fn one_pause_is_over_when_it_is_over() {
    let mut load =
        Load::new(rig(None), ms(20), |call| if call == 500 { throttled(s(3)) } else { succeeded() });
    let full = load.run(s(5)).capacity_per_second;
    assert!(full > 60.0, "{full}/s");
    while load.rig.target_stats().throttled_for.is_zero() {
        load.run(ms(20));
    }
    let paused = load.run(s(1));
    assert!(paused.capacity_per_second > 0.9 * full, "{paused:?}");
    let wait = paused.predicted_wait.unwrap();
    assert!((s(2)..s(4)).contains(&wait), "the rest of the pause, and what waits: {wait:?}");
    let after = load.run(s(15));
    assert!(after.capacity_per_second > 0.9 * full && after.ready <= 2, "{after:?}");
}

#[test]
fn a_target_that_bears_everything_again_is_believed_within_a_minute() {
    let mut chance = every_second_call();
    let answer = move |call| if call < 200 { chance(call) } else { succeeded() };
    let mut load = Load::new(rig(None), ms(250), answer);
    while load.calls < 200 {
        load.run(s(1));
    }
    assert!(load.rig.stats().capacity_per_second < 4.0);
    let after = load.run(s(60));
    assert!(after.capacity_per_second > 50.0 && !after.insurmountable, "{after:?}");
    assert_eq!(after.ready, 0);
}

/// A target with one place and 20 ms of work, called for the first time.
fn one_place() -> Rig {
    let settings = QueueSettings { expected_service_time: Some(WORK), ..QueueSettings::default() };
    let mut rig = Rig::pushing(target(1), settings);
    rig.fill(2);
    rig
}

/// Ends the one call under way by asking for a pause.
fn ask_for_pause(rig: &mut Rig, pause: Duration) {
    let calls = rig.take_calls();
    assert_eq!(calls.len(), 1);
    rig.end_call(calls[0].receipt, throttled(pause));
}

/// What it is said to bear: everything, or what it did over its pauses.
fn is_believed(rig: &mut Rig) -> bool {
    let capacity = rig.stats().capacity_per_second;
    assert!(capacity <= 50.1, "never more than its places: {capacity}/s");
    capacity > 49.9
}

#[test]
fn several_calls_that_tell_of_one_pause_are_one_pause_and_each_later_one_counts() {
    let mut rig = rig(None);
    rig.fill(4);
    for call in rig.take_calls() {
        rig.end_call(call.receipt, throttled(s(1)));
    }
    rig.pass(ms(999));
    assert!(rig.stats().capacity_per_second > 99.0, "one pause");
    let mut rig = one_place();
    ask_for_pause(&mut rig, s(1));
    rig.pass(s(1));
    assert!(is_believed(&mut rig));
    ask_for_pause(&mut rig, s(1));
    assert!(!is_believed(&mut rig), "the second in a row");
}

#[test]
fn a_target_lives_by_its_pauses_if_one_begins_within_half_a_minute_of_the_end_of_another_and_for_as_long() {
    for (after, is_soon) in [(s(30) - ms(1), true), (s(30), false)] {
        let mut rig = one_place();
        ask_for_pause(&mut rig, s(1));
        rig.pass(s(1));
        for _ in 0..2 {
            let call = rig.take_calls().remove(0);
            rig.pass(WORK);
            rig.end_call(call.receipt, succeeded());
        }
        rig.pass(after - WORK * 2);
        rig.fill(1);
        ask_for_pause(&mut rig, s(1));
        assert_eq!(is_believed(&mut rig), !is_soon, "{after:?}");
        rig.pass(s(1) + s(30) - ms(1));
        assert_eq!(is_believed(&mut rig), !is_soon, "{after:?}");
        rig.pass(ms(1));
        assert!(is_believed(&mut rig), "half a minute after the pause");
    }
}

#[test]
fn no_pause_however_short_makes_a_target_bear_more_than_its_places() {
    let mut rig = one_place();
    for _ in 0..2 {
        ask_for_pause(&mut rig, ms(1));
        rig.pass(ms(1));
    }
    assert!(is_believed(&mut rig));
}
