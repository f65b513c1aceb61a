//! What the answer to a callback means.
//!
//! Owns the table, after Standard Webhooks, and when a callback is tried again. Pure: must never send or wait.

use super::hosts::Ended;
use std::time::Duration;

/// How long a host is left alone that asks for it without saying how long.
const PAUSE_DEFAULT: Duration = Duration::from_mins(1);
/// Longest pause that a host can ask for.
const PAUSE_MAX: Duration = Duration::from_hours(6);

/// What becomes of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was taken.
    Delivered,
    /// Nobody wants it there any more, nor any other one.
    Gone,
    /// It failed, and is tried again, not before so long.
    Failed(Duration),
    /// It was not looked at, and comes again after so long: no attempt.
    PutOff(Duration),
}

/// The verdict on an answer with this status and this `Retry-After`, and what it says of the host.
pub(super) fn verdict(status: u16, retry_after: Option<Duration>) -> (Verdict, Ended) {
    let pause = retry_after.unwrap_or(PAUSE_DEFAULT).clamp(Duration::from_secs(1), PAUSE_MAX);
    match status {
        200..=299 => (Verdict::Delivered, Ended::Answered),
        410 => (Verdict::Gone, Ended::Answered),
        429 => (Verdict::PutOff(pause), Ended::Pause(pause)),
        503 if retry_after.is_some() => (Verdict::PutOff(pause), Ended::Pause(pause)),
        502 | 504 if retry_after.is_some() => (Verdict::Failed(pause), Ended::Pause(pause)),
        500..=599 => (Verdict::Failed(Duration::ZERO), Ended::Failed),
        _ => (Verdict::Failed(Duration::ZERO), Ended::Answered),
    }
}

/// How long after its `failed`-th failure a callback is tried again, and not before `least`. `chance` from 0 to 1: up to a
/// tenth longer, so that callbacks that failed together do not come together.
pub(super) fn delay(delays: &[Duration], failed: u32, least: Duration, chance: f64) -> Duration {
    let place = failed.saturating_sub(1) as usize;
    let delay = delays.get(place).or_else(|| delays.last()).copied().unwrap_or(PAUSE_DEFAULT).max(least);
    delay + delay.mul_f64(0.1 * chance)
}

#[cfg(test)]
mod tests {
    use super::{Verdict, delay, verdict};
    use crate::callbacks::hosts::Ended;
    use millpond_config::CALLBACK_DELAYS;
    use std::time::Duration;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_2xx_is_taken_and_410_is_the_end() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, None), (Verdict::Delivered, Ended::Answered));
        }
        assert_eq!(verdict(410, None).0, Verdict::Gone);
        for status in [301, 302, 307, 308, 400, 401, 404, 422] {
            assert_eq!(verdict(status, None), (Verdict::Failed(s(0)), Ended::Answered), "{status}");
        }
        assert_eq!(verdict(500, Some(s(9))), (Verdict::Failed(s(0)), Ended::Failed));
    }

    #[test]
    fn who_wants_to_be_left_alone_is() {
        assert_eq!(verdict(429, None), (Verdict::PutOff(s(60)), Ended::Pause(s(60))));
        assert_eq!(verdict(429, Some(s(7))), (Verdict::PutOff(s(7)), Ended::Pause(s(7))));
        assert_eq!(verdict(503, Some(s(7))), (Verdict::PutOff(s(7)), Ended::Pause(s(7))));
        assert_eq!(verdict(502, Some(s(7))), (Verdict::Failed(s(7)), Ended::Pause(s(7))));
        assert_eq!(verdict(504, None), (Verdict::Failed(s(0)), Ended::Failed));
        assert_eq!(verdict(429, Some(Duration::MAX)).0, Verdict::PutOff(s(6 * 3600)));
    }

    #[test]
    fn the_delays_are_those_of_standard_webhooks_and_up_to_a_tenth_more() {
        let hours = |number: u64| s(number * 3600);
        let expected = [
            s(5),
            s(300),
            s(1800),
            hours(2),
            hours(5),
            hours(10),
            hours(14),
            hours(20),
            hours(24),
            hours(24),
        ];
        for (failed, expected) in (1..).zip(expected) {
            assert_eq!(delay(&CALLBACK_DELAYS, failed, s(0), 0.0), expected);
            assert_eq!(delay(&CALLBACK_DELAYS, failed, s(0), 1.0), expected + expected / 10);
        }
        assert_eq!(delay(&CALLBACK_DELAYS, 1, s(60), 0.0), s(60), "what the host has asked for");
    }
}
