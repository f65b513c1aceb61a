//! What has passed lately of two totals that only grow.
//!
//! Owns the samples. Must never keep more of them than a window holds.

use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Over how long shares and means are taken: two scrapes of a Prometheus that scrapes once a minute, so that its rules
/// see what ours do.
pub const WINDOW: Duration = Duration::from_mins(2);
/// Samples are no closer than this.
const SAMPLES_APART: Duration = Duration::from_secs(5);

/// Samples of two totals.
#[derive(Debug, Default)]
pub(super) struct Window {
    samples: VecDeque<(Mono, [f64; 2])>,
    latest: [f64; 2],
}

impl Window {
    /// What both have grown by within [`WINDOW`]; where looks are seldom, within the time between two of them more. Totals that are seen for the first
    /// time have grown from zero; so have those that have become smaller: they have begun anew.
    pub(super) fn passed(&mut self, totals: [f64; 2], now: Mono) -> [f64; 2] {
        let fell = totals.iter().zip(self.latest).any(|(total, latest)| *total < latest);
        if fell || self.samples.is_empty() {
            self.samples.clear();
            self.samples.push_back((now, [0.0; 2]));
        }
        self.latest = totals;
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        let base = self.samples.front().map_or([0.0; 2], |(_, base)| *base);
        let is_due = |(at, _): &(Mono, _)| now.since(*at) >= SAMPLES_APART;
        if self.samples.back().is_some_and(is_due) {
            self.samples.push_back((now, totals));
        }
        [totals[0] - base[0], totals[1] - base[1]]
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "sums of whole numbers are exact")]
mod tests {
    use super::{SAMPLES_APART, WINDOW, Window};
    use crate::time::Mono;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Mono {
        Mono(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::default();
        assert_eq!(window.passed([5.0, 1.0], at(0)), [5.0, 1.0], "the totals have grown from zero");
        for second in 1..=WINDOW.as_secs() {
            window.passed([5.0, 1.0], at(second));
        }
        let later = WINDOW.as_secs() + SAMPLES_APART.as_secs();
        assert_eq!(window.passed([7.0, 1.0], at(later)), [2.0, 0.0]);
    }

    #[test]
    fn totals_that_fall_have_begun_anew() {
        let mut window = Window::default();
        window.passed([50.0, 10.0], at(0));
        window.passed([60.0, 10.0], at(10));
        assert_eq!(window.passed([3.0, 2.0], at(11)), [3.0, 2.0]);
    }

    proptest! {
        #[test]
        fn what_passed_is_never_negative_and_little_is_kept(
            steps in prop::collection::vec((0_u64..40, 0_u32..9, 0_u32..9), 1..300)
        ) {
            let mut window = Window::default();
            let (mut now, mut totals) = (0, [0.0, 0.0]);
            let mut all: Vec<(u64, [f64; 2])> = vec![(0, [0.0; 2])];
            for (seconds, first, second) in steps {
                now += seconds;
                totals = [totals[0] + f64::from(first), totals[1] + f64::from(second)];
                let passed = window.passed(totals, at(now));
                all.push((now, totals));
                // At least what has passed within the window.
                let within = |which: usize| {
                    let before = all.iter().rev().find(|(then, _)| now - then >= WINDOW.as_secs());
                    totals[which] - before.map_or(0.0, |(_, then)| then[which])
                };
                let oldest_step = all.iter().any(|(then, _)| now - then >= WINDOW.as_secs());
                for which in 0..2 {
                    prop_assert!(passed[which] >= 0.0 && passed[which] <= totals[which]);
                    if oldest_step {
                        prop_assert!(passed[which] >= within(which) - 1e-9);
                    }
                }
                prop_assert!(window.samples.len() as u64 <= WINDOW.as_secs() / SAMPLES_APART.as_secs() + 3);
            }
        }
    }
}
