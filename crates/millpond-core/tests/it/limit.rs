//! The adaptive limit by itself: what it does with how calls end. How well that does is asserted in `millpond-sim`.

use millpond_core::limit::{Ended, Ending, LIMIT_START, Limiter};
use millpond_core::settings::AdaptiveSettings;
use millpond_core::time::Mono;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A backend under a standing backlog: calls take so long, and longer by what more of them than places bring.
struct Load {
    limiter: Limiter,
    places: u32,
    takes: Duration,
    /// Calls beyond so many in flight are refused at once.
    refuses_beyond: u32,
    now: Mono,
    /// By their ends.
    calls: BTreeSet<(Mono, u64, Mono, bool)>,
    begun: u64,
    most: u32,
}

impl Load {
    fn new(places: u32, cap: u32) -> Self {
        Self {
            limiter: Limiter::new(cap, TIMEOUT, AdaptiveSettings::default()),
            places,
            takes: ms(50),
            refuses_beyond: u32::MAX,
            now: Mono(0),
            calls: BTreeSet::new(),
            begun: 0,
            most: 0,
        }
    }

    fn inflight(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap()
    }

    /// Until the next call has ended.
    fn step(&mut self) {
        while self.inflight() < self.limiter.places() {
            self.begun += 1;
            let inflight = self.inflight() + 1;
            let is_refused = inflight > self.refuses_beyond;
            let slower = f64::from(inflight.max(self.places)) / f64::from(self.places);
            let takes = if is_refused { ms(1) } else { self.takes.mul_f64(slower) };
            self.calls.insert((self.now.plus(takes), self.begun, self.now, is_refused));
        }
        self.most = self.most.max(self.inflight());
        let inflight = self.inflight();
        let (at, _, started, is_refused) = self.calls.pop_first().unwrap();
        self.now = at;
        let how = if is_refused { Ending::Refused } else { Ending::Done };
        self.limiter.ended(Ended { started, how, inflight }, at);
    }

    fn run(&mut self, seconds: u64) {
        let until = self.now.plus(Duration::from_secs(seconds));
        while self.now < until {
            self.step();
        }
    }
}

#[test]
fn it_begins_with_one_call_and_doubles_until_calls_queue() {
    let mut load = Load::new(16, 1000);
    assert_eq!((load.limiter.limit(), LIMIT_START), (1, 1));
    let mut limits = Vec::new();
    for _ in 0..4 {
        load.run(1);
        limits.push(load.limiter.limit());
    }
    assert!(limits.is_sorted() && limits[3] >= 8, "{limits:?}");
    assert!(load.limiter.is_seeking());
    load.run(30);
    assert!(!load.limiter.is_seeking());
    assert!((16..=24).contains(&load.limiter.limit()), "{}", load.limiter.limit());
    assert!(load.most <= 40, "{} at most on the way", load.most);
}

#[test]
fn where_nothing_queues_the_hard_cap_is_the_limit() {
    let mut load = Load::new(1000, 40);
    load.run(60);
    assert_eq!((load.limiter.limit(), load.most), (40, 40));
}

#[test]
fn probes_halve_the_places_for_a_moment_and_leave_the_limit() {
    let mut load = Load::new(16, 1000);
    load.run(60);
    let (mut probed, mut all) = (0, 0);
    let end = load.now.plus(Duration::from_mins(5));
    while load.now < end {
        let before = load.now;
        let (places, limit) = (load.limiter.places(), load.limiter.limit());
        load.step();
        let took = load.now.since(before).as_micros();
        all += took;
        if places < limit {
            assert_eq!(places, limit / 2);
            probed += took;
        }
    }
    assert!(probed > 0, "the unloaded latency is measured anew");
    assert!(probed * 40 <= all, "probes take {probed} of {all}");
}

#[test]
fn a_target_of_which_every_call_takes_longer_keeps_its_places() {
    let mut load = Load::new(16, 1000);
    load.run(60);
    load.takes = ms(150);
    load.run(120);
    assert!((14..=26).contains(&load.limiter.limit()), "{}", load.limiter.limit());
}

#[test]
fn a_target_that_can_do_less_gets_less_and_more_again() {
    let mut load = Load::new(32, 1000);
    load.run(60);
    load.places = 8;
    load.run(60);
    assert!((8..=13).contains(&load.limiter.limit()), "{}", load.limiter.limit());
    load.places = 32;
    load.run(60);
    assert!((30..=48).contains(&load.limiter.limit()), "{}", load.limiter.limit());
}

#[test]
fn refusals_lower_the_limit_and_it_stays_below_what_was_refused() {
    let mut load = Load::new(1000, 1000);
    load.refuses_beyond = 20;
    load.run(60);
    let before = load.begun;
    let mut over = 0;
    for _ in 0..200 {
        load.run(1);
        over += u32::from(load.limiter.limit() > 20);
    }
    assert!((14..=21).contains(&load.limiter.limit()), "{}", load.limiter.limit());
    assert!(over <= 10, "{over} of 200 seconds above what is refused");
    assert!(load.begun - before < 200 * 20 * 20 * 11 / 10, "hardly any call is refused");
}

/// A limiter that has found 40, as its cap is.
fn grown() -> (Limiter, Mono) {
    let mut load = Load::new(1000, 40);
    load.run(60);
    while load.limiter.places() < 40 {
        load.run(1);
    }
    (load.limiter, load.now)
}

fn end(limiter: &mut Limiter, started: Mono, now: Mono, how: Ending, calls: u32) {
    for _ in 0..calls {
        limiter.ended(Ended { started, how, inflight: 40 }, now);
    }
}

#[test]
fn all_refusals_of_calls_begun_together_lower_the_limit_once() {
    for how in [Ending::Refused, Ending::TimedOut] {
        let (mut limiter, now) = grown();
        let later = now.plus(ms(1_500));
        end(&mut limiter, now, later, how, 40);
        assert_eq!(limiter.limit(), 36, "{how:?}");
        end(&mut limiter, now, later.plus(ms(2_000)), how, 40);
        assert_eq!(limiter.limit(), 36, "begun before the limit was lowered");
        let again = later.plus(ms(2_500));
        end(&mut limiter, later, again, how, 40);
        assert_eq!(limiter.limit(), 32, "{how:?}");
    }
}

#[test]
fn a_mishap_in_a_hundred_calls_is_no_refusal() {
    let (mut limiter, now) = grown();
    for call in 0..4_000 {
        let started = now.plus(ms(call * 5));
        let how = if call % 200 == 100 { Ending::Refused } else { Ending::Done };
        end(&mut limiter, started, started.plus(ms(50)), how, 1);
    }
    assert_eq!(limiter.limit(), 40);
}

#[test]
fn what_says_nothing_of_load_changes_nothing() {
    let (mut limiter, now) = grown();
    for second in 0..20 {
        let at = now.plus(ms(second * 1_000));
        end(&mut limiter, at, at.plus(ms(1)), Ending::Other, 100);
    }
    assert_eq!((limiter.limit(), limiter.places()), (40, 40));
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let mut limiter = Limiter::new(1000, TIMEOUT, AdaptiveSettings::default());
    for step in 0..10_000 {
        let started = Mono(step * 50_000);
        limiter.ended(Ended { started, how: Ending::Done, inflight: 1 }, started.plus(ms(50)));
    }
    assert!(limiter.limit() <= 4, "{} for one call at a time", limiter.limit());
}

#[test]
fn an_objective_is_kept_by_the_ninth_of_ten() {
    let settings = AdaptiveSettings { latency_objective: Some(ms(100)) };
    let mut load = Load { limiter: Limiter::new(1000, TIMEOUT, settings), ..Load::new(16, 1000) };
    load.run(120);
    // Twice the places make calls take twice 50 ms.
    assert!((26..=36).contains(&load.limiter.limit()), "{}", load.limiter.limit());
}

proptest! {
    #[test]
    fn whatever_happens_the_limit_lies_between_one_and_the_cap(
        cap in 1_u32..60,
        objective in proptest::option::of(1_u64..400),
        calls in proptest::collection::vec((0_u64..400, 0_u64..6_000, 0_u8..12, 0_u32..80), 1..2_000),
    ) {
        let settings = AdaptiveSettings { latency_objective: objective.map(ms) };
        let mut limiter = Limiter::new(cap, TIMEOUT, settings);
        let mut now = Mono(10_000_000);
        for (later, took, how, inflight) in calls {
            now = now.plus(ms(later));
            let how = match how {
                0 => Ending::Refused,
                1 => Ending::TimedOut,
                2 => Ending::Other,
                _ => Ending::Done,
            };
            let started = Mono(now.0 - i64::try_from(took * 1_000).unwrap());
            limiter.ended(Ended { started, how, inflight }, now);
            prop_assert!((1..=cap).contains(&limiter.limit()));
            prop_assert!((1..=limiter.limit()).contains(&limiter.places()), "{limiter:?}");
        }
    }
}
