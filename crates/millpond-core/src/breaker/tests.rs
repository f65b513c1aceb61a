//! The breaker by itself: when it opens, whom it lets through, when it closes.

use super::{Breaker, BreakerState, Change, Ended, Sign, Told};
use crate::settings::BreakerSettings;
use crate::time::Mono;
use std::time::Duration;

const SECOND: i64 = 1_000_000;

/// A breaker on a clock of its own, whose jitter is always the whole pause.
struct Bench {
    breaker: Breaker,
    now: i64,
    inflight: u32,
}

impl Bench {
    fn with(settings: BreakerSettings) -> Self {
        Self { breaker: Breaker::new(settings), now: SECOND, inflight: 1 }
    }

    fn new() -> Self {
        Self::with(BreakerSettings::default())
    }

    fn pass(&mut self, seconds: i64) {
        self.now += seconds * SECOND;
    }

    fn end_of(&mut self, started: i64, sign: Sign) -> Told {
        let call = Ended { started: Mono(started), sign, inflight: self.inflight };
        self.breaker.ended(call, || 1.0, Mono(self.now))
    }

    /// A call that takes a millisecond.
    fn call(&mut self, sign: Sign) -> Told {
        let started = self.now;
        assert!(
            self.breaker.has_room() && self.breaker.ready_at() <= Mono(started),
            "it lets nobody through"
        );
        self.breaker.start(Mono(started));
        self.now += 1000;
        self.end_of(started, sign)
    }

    fn calls(&mut self, count: u32, sign: Sign) -> Change {
        (0..count).map(|_| self.call(sign).change).last().unwrap_or(Change::None)
    }

    fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Opens it, and waits until it may be tried.
    fn tried(mut self) -> Self {
        self.calls(10, Sign::Failed);
        assert_eq!(self.state(), BreakerState::Open);
        self.pass(1);
        self
    }
}

fn opened(seconds: u64) -> Change {
    Change::Opened(Duration::from_secs(seconds))
}

#[test]
fn so_many_failures_in_a_row_open_it_and_not_one_less() {
    let mut bench = Bench::new();
    assert_eq!(bench.calls(9, Sign::Failed), Change::None);
    assert_eq!((bench.state(), bench.breaker.failures_in_row()), (BreakerState::Closed, 9));
    assert_eq!(bench.call(Sign::Failed).change, opened(1));
    assert_eq!((bench.state(), bench.breaker.since()), (BreakerState::Open, Some(Mono(bench.now))));
    assert_eq!(bench.breaker.next_probe(), Some(Mono(bench.now + SECOND)));
}

#[test]
fn an_answer_ends_the_row_and_what_says_nothing_does_not() {
    let mut bench = Bench::new();
    bench.calls(9, Sign::Failed);
    bench.call(Sign::Answered);
    assert_eq!(bench.calls(9, Sign::Failed), Change::None);
    assert_eq!(bench.calls(50, Sign::Nothing), Change::None);
    assert_eq!(bench.call(Sign::Failed).change, opened(1));
}

#[test]
fn where_more_calls_are_in_flight_as_many_must_fail_in_a_row() {
    let mut bench = Bench::new();
    bench.inflight = 40;
    assert_eq!(bench.calls(39, Sign::Failed), Change::None);
    assert_eq!(bench.call(Sign::Failed).change, opened(1));
}

#[test]
fn a_window_of_mostly_failures_opens_it_though_no_row_is_long() {
    let mut bench = Bench::new();
    // Four in five fail: 16 of 20.
    let mut changes = Vec::new();
    for round in 0..4 {
        changes.push(bench.call(Sign::Answered).change);
        changes.extend((0..4).map(|_| bench.call(Sign::Failed).change));
        assert_eq!(bench.state() == BreakerState::Open, round == 3);
    }
    assert_eq!(changes.pop(), Some(opened(1)));
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.call(Sign::Answered);
        assert_eq!(bench.calls(3, Sign::Failed), Change::None, "three in four are not four in five");
    }
}

#[test]
fn a_window_forgets_what_was_before_it() {
    let mut bench = Bench::new();
    bench.calls(100, Sign::Answered);
    bench.pass(10);
    for _ in 0..3 {
        bench.call(Sign::Answered);
        assert_eq!(bench.calls(4, Sign::Failed), Change::None);
    }
    bench.call(Sign::Answered);
    assert_eq!(bench.calls(4, Sign::Failed), opened(1), "the hundred were in another window");
    let mut bench = Bench::new();
    bench.calls(100, Sign::Answered);
    bench.pass(9);
    for _ in 0..4 {
        bench.call(Sign::Answered);
        assert_eq!(bench.calls(4, Sign::Failed), Change::None, "the hundred are in the same one");
    }
}

#[test]
fn an_open_one_is_tried_by_one_call_and_then_by_two_at_once() {
    let mut bench = Bench::new().tried();
    let first = bench.now;
    assert!(bench.breaker.has_room());
    assert!(bench.breaker.start(Mono(first)), "that makes it half-open");
    assert!(bench.breaker.is_first_round());
    assert_eq!((bench.state(), bench.breaker.has_room()), (BreakerState::HalfOpen, false));
    assert_eq!((bench.breaker.next_probe(), bench.breaker.ready_at()), (None, Mono(i64::MIN)));
    bench.now += 1000;
    assert_eq!(bench.end_of(first, Sign::Answered).change, Change::None);
    assert!(!bench.breaker.start(Mono(bench.now)) && bench.breaker.has_room());
    assert!(!bench.breaker.start(Mono(bench.now)) && !bench.breaker.has_room());
    let second = bench.now;
    bench.now += 1000;
    assert_eq!(bench.end_of(second, Sign::Answered).change, Change::Closed);
    assert_eq!((bench.state(), bench.breaker.failures_in_row()), (BreakerState::Closed, 0));
    assert_eq!(bench.breaker.since(), Some(Mono(bench.now)));
}

#[test]
fn pauses_between_failed_probes_double_up_to_a_bound_and_begin_anew_after_it_has_closed() {
    let mut bench = Bench::new().tried();
    for seconds in [2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(bench.call(Sign::Failed).change, opened(seconds));
        assert!(!bench.breaker.is_first_round());
        bench.pass(i64::try_from(seconds).unwrap() - 1);
        assert!(bench.breaker.ready_at() > Mono(bench.now));
        bench.pass(1);
        assert!(bench.breaker.ready_at() <= Mono(bench.now));
    }
    assert_eq!(bench.calls(2, Sign::Answered), Change::Closed);
    assert_eq!(bench.calls(9, Sign::Failed), Change::None);
    assert_eq!(bench.call(Sign::Failed).change, opened(1));
}

#[test]
fn a_pause_is_jittered_between_its_half_and_its_whole() {
    for (chance, millis) in [(0.0, 500), (0.5, 750), (1.0, 1000)] {
        let mut breaker = Breaker::new(BreakerSettings { failures: 1, ..BreakerSettings::default() });
        let call = Ended { started: Mono(0), sign: Sign::Failed, inflight: 1 };
        let told = breaker.ended(call, || chance, Mono(7));
        assert_eq!(told.change, Change::Opened(Duration::from_millis(millis)));
        assert_eq!(breaker.next_probe(), Some(Mono(7).plus(Duration::from_millis(millis))));
    }
}

#[test]
fn one_failed_probe_after_an_answered_one_is_forgiven_and_two_more_are_not() {
    let mut bench = Bench::new().tried();
    bench.call(Sign::Answered);
    assert_eq!(bench.call(Sign::Failed).change, Change::None);
    assert_eq!(bench.state(), BreakerState::HalfOpen);
    bench.breaker.start(Mono(bench.now));
    assert!(!bench.breaker.has_room(), "back to one at a time");
    let started = bench.now;
    bench.now += 1000;
    assert_eq!(bench.end_of(started, Sign::Failed).change, opened(2));
}

#[test]
fn probes_that_say_nothing_free_their_place_and_change_nothing() {
    let mut bench = Bench::new().tried();
    assert_eq!(bench.calls(20, Sign::Nothing), Change::None);
    assert_eq!((bench.state(), bench.breaker.has_room()), (BreakerState::HalfOpen, true));
    assert_eq!(bench.call(Sign::Nothing).failed_probe, None);
}

#[test]
fn the_message_of_a_failed_probe_stays_away_for_four_pauses() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        assert_eq!(bench.call(Sign::Failed).failed_probe, None, "before it opens, a failure is a failure");
    }
    bench.pass(1);
    assert_eq!(bench.call(Sign::Failed).failed_probe, Some(Duration::from_secs(8)), "four of the next pause");
    bench.pass(2);
    assert_eq!(bench.call(Sign::Answered).failed_probe, None);
    assert_eq!(bench.call(Sign::Failed).failed_probe, Some(Duration::from_secs(8)), "of the pause in force");
    assert_eq!(bench.calls(2, Sign::Answered), Change::Closed);
    assert_eq!(bench.call(Sign::Failed).failed_probe, None);
}

#[test]
fn calls_that_began_before_it_opened_count_no_more() {
    let mut bench = Bench::new();
    let before = bench.now;
    bench.calls(10, Sign::Failed);
    let opened_at = bench.now;
    for sign in [Sign::Failed, Sign::Answered] {
        let told = bench.end_of(before, sign);
        assert_eq!(told, Told { change: Change::None, failed_probe: None });
    }
    bench.pass(1);
    let probe = bench.now;
    bench.breaker.start(Mono(probe));
    for started in [before, opened_at] {
        assert_eq!(bench.end_of(started, Sign::Failed).change, Change::None, "{started}");
        assert_eq!(bench.end_of(started, Sign::Answered).change, Change::None, "{started}");
    }
    assert!(!bench.breaker.has_room(), "the probe is still under way");
    bench.end_of(probe, Sign::Answered);
    bench.call(Sign::Answered);
    assert_eq!(bench.state(), BreakerState::Closed);
    for _ in 0..30 {
        assert_eq!(bench.end_of(before, Sign::Failed).change, Change::None, "they hung all the while");
    }
    assert_eq!(bench.breaker.failures_in_row(), 0);
}

#[test]
fn a_second_probe_that_fails_once_it_has_opened_again_burns_no_attempt_either() {
    let mut bench = Bench::new().tried();
    bench.call(Sign::Answered);
    let both = bench.now;
    bench.breaker.start(Mono(both));
    bench.breaker.start(Mono(both));
    bench.now += 1000;
    bench.end_of(both, Sign::Failed);
    assert!(!bench.breaker.has_room());
    let told = bench.end_of(both, Sign::Failed);
    assert_eq!((told.change, told.failed_probe), (opened(2), Some(Duration::from_secs(8))));
    let late = bench.end_of(both, Sign::Failed);
    assert_eq!((late.change, late.failed_probe), (Change::None, Some(Duration::from_secs(8))));
    bench.pass(2);
    bench.breaker.start(Mono(bench.now));
    assert_eq!(bench.end_of(both, Sign::Failed).failed_probe, None, "a round later it is an old call");
}

#[test]
fn an_operator_closes_it_and_what_is_under_way_does_not_open_it_again() {
    let mut bench = Bench::new();
    assert!(!bench.breaker.reset(Mono(bench.now)));
    bench.now += 1;
    bench.calls(10, Sign::Failed);
    let before = bench.now;
    bench.now += 1;
    assert!(bench.breaker.reset(Mono(bench.now)));
    assert_eq!((bench.state(), bench.breaker.ready_at()), (BreakerState::Closed, Mono(i64::MIN)));
    for _ in 0..30 {
        assert_eq!(bench.end_of(before, Sign::Failed).change, Change::None);
    }
    bench.now += 1;
    assert_eq!(bench.calls(9, Sign::Failed), Change::None);
    assert_eq!(bench.call(Sign::Failed).change, opened(1), "its pauses have begun anew");
}
