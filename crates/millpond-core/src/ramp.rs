//! The ramp of a target: how much of its limit a cold or recovered target gets at once.
//!
//! Owns the steps, as a function of the time. Must never exceed the limit, go below one call, or read a clock.
//!
//! A target that had nothing to do, or was down, has cold caches and few connections, and was perhaps scaled in. It gets a tenth of
//! what it may have, then a fifth, and so on: each a quarter of the ramp long, each twice the one before, and after the last
//! all of it. The steps are few, so that a human can tell them apart in a chart.

use crate::time::Mono;
use std::time::Duration;

/// Each step's tenths of the whole.
const STEPS_TENTHS: [u32; 4] = [1, 2, 4, 8];

/// The way up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    began: Mono,
    length: Duration,
}

impl Ramp {
    /// A ramp that begins at `now` and has reached the whole after `length`; `None` if that is no time.
    pub fn begin(length: Duration, now: Mono) -> Option<Self> {
        (!length.is_zero()).then_some(Self { began: now, length })
    }

    /// When the whole is reached.
    pub fn ends(self) -> Mono {
        self.began.plus(self.length)
    }

    /// The step that it is on at `now`; `None`: the ramp is over.
    fn step(self, now: Mono) -> Option<usize> {
        (0..STEPS_TENTHS.len()).find(|&step| now < self.step_ends(step))
    }

    fn step_ends(self, step: usize) -> Mono {
        let steps = u32::try_from(step + 1).unwrap_or(u32::MAX);
        if step + 1 == STEPS_TENTHS.len() {
            return self.ends();
        }
        self.began.plus((self.length / 4).saturating_mul(steps))
    }

    /// How much of `whole` it lets through at `now`, at least 1; `None`: all, the ramp is over.
    pub fn part_of(self, whole: u32, now: Mono) -> Option<u32> {
        let tenths = u64::from(STEPS_TENTHS[self.step(now)?]);
        let part = u64::from(whole) * tenths / 10;
        Some(u32::try_from(part).unwrap_or(whole).max(1))
    }

    /// When it lets more through than at `now`; `None`: never, the ramp is over.
    pub fn grows_at(self, now: Mono) -> Option<Mono> {
        self.step(now).map(|step| self.step_ends(step))
    }

    /// The earliest time for the call after one at `now`, if without the ramp one may begin every `interval`. Not later than
    /// the end of the ramp and one interval: a slow rate must not wait ten of its intervals for a ramp of seconds.
    pub fn next_call(self, interval: Duration, now: Mono) -> Mono {
        let Some(step) = self.step(now) else { return now };
        now.plus(interval.saturating_mul(10) / STEPS_TENTHS[step]).min(self.ends().max(now.plus(interval)))
    }

    /// How much later than without the ramp, from `now` on, what begins after its end will begin.
    pub fn lost(self, now: Mono) -> Duration {
        let mut from = now.max(self.began);
        let mut lost = Duration::ZERO;
        for (step, tenths) in STEPS_TENTHS.into_iter().enumerate() {
            let ends = self.step_ends(step);
            if from < ends {
                lost += ends.since(from) * (10 - tenths) / 10;
                from = ends;
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::Ramp;
    use crate::time::Mono;
    use std::time::Duration;

    const LENGTH: Duration = Duration::from_secs(8);

    fn at(ms: i64) -> Mono {
        Mono(1_000_000 + ms * 1000)
    }

    fn ramp() -> Ramp {
        Ramp::begin(LENGTH, at(0)).unwrap()
    }

    #[test]
    fn a_ramp_begins_with_a_tenth_and_doubles_until_all_is_let_through() {
        let of = |whole: u32| {
            [0, 1999, 2000, 3999, 4000, 5999, 6000, 7999].map(|ms| ramp().part_of(whole, at(ms)))
        };
        assert_eq!(of(40), [4, 4, 8, 8, 16, 16, 32, 32].map(Some));
        assert_eq!(of(1), [Some(1); 8], "never none");
        assert_eq!(ramp().part_of(40, at(8000)), None);
        assert_eq!(ramp().part_of(u32::MAX, at(7999)), Some(3_435_973_836));
    }

    #[test]
    fn no_time_is_no_ramp() {
        assert_eq!(Ramp::begin(Duration::ZERO, at(0)), None);
        assert!(Ramp::begin(Duration::from_micros(1), at(0)).is_some());
    }

    #[test]
    fn it_says_when_it_lets_more_through() {
        let grows = |ms| ramp().grows_at(at(ms));
        assert_eq!([0, 1999, 2000, 7999].map(grows), [2000, 2000, 4000, 8000].map(|ms| Some(at(ms))));
        assert_eq!(grows(8000), None);
        let odd = Ramp::begin(Duration::from_micros(7), at(0)).unwrap();
        assert_eq!(
            odd.grows_at(Mono(at(0).0 + 6)),
            Some(odd.ends()),
            "whatever does not divide by four is the last step's"
        );
    }

    #[test]
    fn a_pace_climbs_like_the_places_and_never_waits_for_longer_than_the_ramp_and_an_interval() {
        let next =
            |interval_ms, ms| ramp().next_call(Duration::from_millis(interval_ms), at(ms)).0 - at(ms).0;
        assert_eq!([0, 2000, 4000, 6000].map(|ms| next(10, ms)), [100_000, 50_000, 25_000, 12_500]);
        assert_eq!(next(10, 8000), 0);
        assert_eq!(
            next(60_000, 0),
            60_000_000,
            "an interval that is longer than the ramp is none of its business"
        );
        assert_eq!(next(5000, 0), 8_000_000, "the whole is reached by then");
    }

    #[test]
    fn what_it_loses_is_what_it_does_not_let_through() {
        assert_eq!(ramp().lost(at(0)), Duration::from_secs(5));
        assert_eq!(ramp().lost(at(1000)), Duration::from_millis(4100));
        assert_eq!(ramp().lost(at(6000)), Duration::from_millis(400));
        assert_eq!(ramp().lost(at(8000)), Duration::ZERO);
        assert_eq!(
            ramp().lost(at(-5000)),
            Duration::from_secs(5),
            "before it has begun, all is still to be lost"
        );
    }
}
