//! The bounds of every setting: the last value that is good, and the first one that is not.
//!
//! Owns nothing but tests. Must never take a bound from the code: the numbers are the promise.

use crate::rig::{ms, s, target};
use millpond_core::rate::Rate;
use millpond_core::settings::{
    DELAY_MAX, LEASE_TOTAL_MAX, QueueSettings, RETENTION_MAX, RetrySettings, TargetSettings, WAIT_MAX,
};
use std::time::Duration;

const MICROSECOND: Duration = Duration::from_micros(1);

fn days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

/// The key that is found wrong, if one is.
fn wrong(change: impl FnOnce(&mut QueueSettings)) -> Option<&'static str> {
    let mut settings = QueueSettings::default();
    change(&mut settings);
    settings.validate().err().map(|error| error.field)
}

fn wrong_target(change: impl FnOnce(&mut TargetSettings)) -> Option<&'static str> {
    let mut settings = target(1);
    change(&mut settings);
    settings.validate().err().map(|error| error.field)
}

#[test]
fn the_longest_times_are_those_that_are_promised() {
    assert_eq!((DELAY_MAX, RETENTION_MAX), (days(30), days(366)));
    assert_eq!((LEASE_TOTAL_MAX, WAIT_MAX), (s(12 * 3600), s(60)));
}

#[test]
fn what_bounds_a_queue_is_at_least_one() {
    assert_eq!(wrong(|queue| queue.concurrency = Some(0)), Some("concurrency"));
    assert_eq!(wrong(|queue| queue.concurrency = Some(1)), None);
    assert_eq!(wrong(|queue| queue.max_messages = Some(0)), Some("max_messages"));
    assert_eq!(wrong(|queue| queue.max_messages = Some(1)), None);
    assert_eq!(wrong(|queue| queue.max_bytes = 0), Some("max_bytes"));
    assert_eq!(wrong(|queue| queue.max_bytes = 1), None);
    assert_eq!(wrong(|queue| queue.max_keys = 0), Some("max_keys"));
    assert_eq!(wrong(|queue| queue.max_keys = 1), None);
    assert_eq!(wrong(|queue| queue.max_wait = Some(Duration::ZERO)), Some("max_wait"));
    assert_eq!(wrong(|queue| queue.max_wait = Some(MICROSECOND)), None);
    assert_eq!(wrong(|queue| queue.dead_letter.max_messages = 0), Some("dead_letter.max_messages"));
    assert_eq!(wrong(|queue| queue.dead_letter.max_messages = 1), None);
    for (owner, expected) in [
        ("x".repeat(255), None),
        ("é".to_owned(), None),
        ("x".repeat(256), Some("dead_letter.owner")),
        ("a\u{1b}[2J".to_owned(), Some("dead_letter.owner")),
        ("a\nb".to_owned(), Some("dead_letter.owner")),
        (String::new(), Some("dead_letter.owner")),
    ] {
        assert_eq!(wrong(|queue| queue.dead_letter.owner = Some(owner.clone())), expected, "{owner:?}");
    }
    for (prefetch, expected) in [(0, Some("prefetch")), (1, None), (1000, None), (1001, Some("prefetch"))] {
        assert_eq!(wrong(|queue| queue.prefetch = prefetch), expected, "{prefetch}");
    }
    for (bytes, expected) in [(16 << 20, None), ((16 << 20) + 1, Some("result_max"))] {
        assert_eq!(wrong(|queue| queue.result_max_bytes = bytes), expected, "{bytes}");
    }
}

#[test]
fn the_times_of_a_queue_lie_within_their_bounds() {
    let zero = Duration::ZERO;
    for (time, good) in [(zero, false), (MICROSECOND, true), (s(60), true), (s(60) + MICROSECOND, false)] {
        let expected = (!good).then_some("block_for");
        assert_eq!(wrong(|queue| queue.block_for = time), expected, "{time:?}");
    }
    for (time, good) in [(zero, false), (MICROSECOND, true), (days(366), true), (days(366) + s(1), false)] {
        let expected = (!good).then_some("fresh_within");
        assert_eq!(wrong(|queue| queue.fresh_within = time), expected, "{time:?}");
        let expected = (!good).then_some("dead_letter.replayable_for");
        assert_eq!(wrong(|queue| queue.dead_letter.replayable_for = time), expected, "{time:?}");
    }
    let half_a_day = s(12 * 3600);
    for (time, good) in [(ms(999), false), (s(1), true), (half_a_day, true), (half_a_day + s(1), false)] {
        let expected = (!good).then_some("lease");
        assert_eq!(wrong(|queue| queue.lease = time), expected, "{time:?}");
    }
    for (time, good) in [(zero, false), (MICROSECOND, true), (half_a_day, true), (half_a_day + s(1), false)] {
        let expected = (!good).then_some("expected_service_time");
        assert_eq!(wrong(|queue| queue.expected_service_time = Some(time)), expected, "{time:?}");
    }
    for (time, good) in [(ms(999), false), (s(1), true), (days(365), true), (days(366) + s(1), false)] {
        let change = |queue: &mut QueueSettings| {
            queue.retention = time;
            queue.dead_letter.retention = days(366);
        };
        assert_eq!(wrong(change), (!good).then_some("retention"), "{time:?}");
    }
    let longest = |queue: &mut QueueSettings| {
        queue.retention = days(366);
        queue.dead_letter.retention = days(366);
    };
    assert_eq!(
        wrong(longest),
        Some("dead_letter.retention"),
        "as long as it may be, and no dead letter longer"
    );
    for (time, good) in [(zero, true), (days(366), true), (days(366) + s(1), false)] {
        let expected = (!good).then_some("result_retention");
        assert_eq!(wrong(|queue| queue.result_retention = time), expected, "{time:?}");
    }
    // Four days are the queue's own retention.
    for (time, good) in
        [(days(4), false), (days(4) + s(1), true), (days(366), true), (days(366) + s(1), false)]
    {
        let expected = (!good).then_some("dead_letter.retention");
        assert_eq!(wrong(|queue| queue.dead_letter.retention = time), expected, "{time:?}");
    }
}

#[test]
fn retries_are_bounded_in_every_respect() {
    for (attempts, good) in [(0, false), (1, true), (1000, true), (1001, false)] {
        let expected = (!good).then_some("retry.max_attempts");
        assert_eq!(wrong(|queue| queue.retry.max_attempts = attempts), expected, "{attempts}");
    }
    for (deliveries, good) in [(4, false), (5, true)] {
        let expected = (!good).then_some("retry.max_deliveries");
        assert_eq!(wrong(|queue| queue.retry.max_deliveries = Some(deliveries)), expected, "{deliveries}");
    }
    for (least, most, good) in
        [(s(1), s(1), true), (s(2), s(1), false), (s(1), days(30), true), (s(1), days(30) + s(1), false)]
    {
        let change = |queue: &mut QueueSettings| {
            (queue.retry.backoff_min, queue.retry.backoff_max) = (least, most);
        };
        assert_eq!(wrong(change), (!good).then_some("retry.backoff"), "{least:?} to {most:?}");
    }
    for (budget, good) in [(-0.1, false), (0.0, true), (1.0, true), (1.1, false), (f64::NAN, false)] {
        assert_eq!(wrong(|queue| queue.retry.budget = budget), (!good).then_some("retry.budget"), "{budget}");
    }
}

#[test]
fn a_target_s_settings_lie_within_their_bounds() {
    for (calls, good) in [(0, false), (1, true), (1_000_000, true), (1_000_001, false)] {
        let expected = (!good).then_some("concurrency");
        assert_eq!(wrong_target(|target| target.concurrency = calls), expected, "{calls}");
    }
    for (events, per, good) in [(0, s(1), false), (1, s(0), false), (1, s(1), true)] {
        let rate = Some(Rate { events, per });
        assert_eq!(
            wrong_target(|target| target.rate = rate),
            (!good).then_some("rate"),
            "{events} in {per:?}"
        );
    }
    let hour = s(3600);
    for (time, good) in
        [(ms(1) - MICROSECOND, false), (ms(1), true), (hour, true), (hour + MICROSECOND, false)]
    {
        let expected = (!good).then_some("timeout");
        assert_eq!(wrong_target(|target| target.timeout = time), expected, "{time:?}");
    }
    for (time, good) in [(hour * 12, true), (hour * 12 + MICROSECOND, false)] {
        let expected = (!good).then_some("hold_after_timeout");
        assert_eq!(wrong_target(|target| target.hold_after_timeout = Some(time)), expected, "{time:?}");
    }
    assert_eq!(target(1).hold(), target(1).timeout, "as long as the time-out unless something else is said");
}

#[test]
fn a_backoff_doubles_from_twice_its_floor_up_to_its_ceiling_and_is_spread_over_all_of_it() {
    let retry = RetrySettings { backoff_min: s(1), backoff_max: s(10), ..RetrySettings::default() };
    for (failed, longest) in [(1, 2), (2, 4), (3, 8), (4, 10), (31, 10), (32, 10), (1000, 10)] {
        assert_eq!(retry.backoff(failed, 0.0), s(1), "the floor after {failed}");
        assert_eq!(retry.backoff(failed, 1.0), s(longest), "the bound after {failed}");
        assert_eq!(retry.backoff(failed, 0.5), s(1) + (s(longest) - s(1)) / 2, "half of it after {failed}");
    }
}

#[test]
fn without_a_word_on_deliveries_there_are_ten_for_each_attempt() {
    let retry = RetrySettings { max_attempts: 7, max_deliveries: None, ..RetrySettings::default() };
    assert_eq!(retry.deliveries_max(), 70);
    assert_eq!(RetrySettings { max_deliveries: Some(9), ..retry }.deliveries_max(), 9);
}

#[test]
fn a_fifth_of_the_hand_outs_may_be_retries_and_a_week_s_dead_letters_go_back_unless_something_else_is_said() {
    let settings = QueueSettings::default();
    assert!((settings.retry.budget - 0.2).abs() < 1e-12);
    assert_eq!(settings.dead_letter.replayable_for, days(7));
}
