//! The throughput guard: more calls in flight that bring no more throughput are too many, whatever latency says.
//!
//! Owns the latest windows' pairs of calls in flight and throughput. Must never judge where the two hardly moved:
//! noise has a covariance, too.

use std::collections::VecDeque;

/// Windows that are looked back over. Cinnamon takes 50; here the limit moves by a tenth a window, so that fewer span
/// more, and what was before a change of the target is forgotten sooner.
const WINDOWS_MAX: usize = 20;
/// … at least: fewer say nothing of their own noise.
const WINDOWS_MIN: usize = 6;
/// Calls in flight must have spread by this part of their mean (standard deviation) to say anything. While the limit
/// stays in its band they spread by less than half of it.
const SPREAD_MIN: f64 = 0.1;
/// Throughput must grow by this part of what calls in flight grow by. With free places it is 1, with all taken 0.
const ELASTICITY_MIN: f64 = 0.5;
/// The guard objects only if that is missed by so many standard errors: few calls make much noise.
const CERTAINTY: f64 = 2.0;

#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    windows: VecDeque<(f64, f64)>,
}

impl Guard {
    /// Notes a window in which the target was busy throughout.
    pub(super) fn note(&mut self, inflight: f64, per_second: f64) {
        if self.windows.len() == WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.windows.push_back((inflight, per_second));
    }

    pub(super) fn forget(&mut self) {
        self.windows.clear();
    }

    /// Whether calls in flight have moved over the latest windows, and throughput has not moved with them: their
    /// covariance is zero, but for noise, or negative.
    pub(super) fn objects(&self) -> bool {
        let count = self.windows.len() as f64;
        if self.windows.len() < WINDOWS_MIN {
            return false;
        }
        let (inflight, throughput) =
            self.windows.iter().fold((0.0, 0.0), |sums, window| (sums.0 + window.0, sums.1 + window.1));
        let (inflight, throughput) = (inflight / count, throughput / count);
        // Below the middle of what was tried there is nothing to take back.
        let is_in_upper_half = self.windows.back().is_some_and(|latest| latest.0 >= inflight);
        let (mut variance, mut covariance, mut noise) = (0.0, 0.0, 0.0);
        for window in &self.windows {
            let (more, faster) = (window.0 - inflight, window.1 - throughput);
            variance += more * more / count;
            covariance += more * faster / count;
            noise += faster * faster / count;
        }
        if !is_in_upper_half || variance.sqrt() < SPREAD_MIN * inflight || throughput <= 0.0 {
            return false;
        }
        // Least squares, made free of units.
        let slope = covariance / variance;
        let unexplained = (noise - slope * covariance).max(0.0);
        let error = (unexplained / variance / (count - 2.0)).sqrt();
        (slope + CERTAINTY * error) * inflight / throughput < ELASTICITY_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, WINDOWS_MIN};

    fn over(windows: impl IntoIterator<Item = (f64, f64)>) -> bool {
        let mut guard = Guard::default();
        windows.into_iter().for_each(|(inflight, per_second)| guard.note(inflight, per_second));
        guard.objects()
    }

    fn growing() -> impl Iterator<Item = f64> {
        (0..10).map(|step| 10.0 + f64::from(step))
    }

    #[test]
    fn objects_to_growth_that_brings_nothing() {
        assert!(over(growing().map(|inflight| (inflight, 320.0))));
        assert!(over(growing().map(|inflight| (inflight, 400.0 - 5.0 * inflight))));
    }

    #[test]
    fn lets_growth_go_on_that_brings_throughput() {
        assert!(!over(growing().map(|inflight| (inflight, 20.0 * inflight))));
        assert!(!over(growing().map(|inflight| (inflight, 100.0 + 10.0 * inflight))));
    }

    #[test]
    fn says_nothing_of_noise_around_one_limit_nor_of_few_windows() {
        let noisy = (0..20).map(|step| f64::from(step % 2));
        assert!(!over(noisy.map(|up| (20.0 + up, 320.0 - 10.0 * up))));
        assert!(!over(growing().take(WINDOWS_MIN - 1).map(|inflight| (inflight, 320.0))));
        assert!(!over(growing().map(|inflight| (inflight, 0.0))));
        let wild = growing().zip([90.0, -120.0].into_iter().cycle());
        assert!(!over(wild.map(|(inflight, noise)| (inflight, 320.0 + noise))));
    }

    #[test]
    fn takes_nothing_back_where_the_limit_is_low_again() {
        let back = growing().chain([10.0, 10.0]);
        assert!(!over(back.map(|inflight| (inflight, 320.0))));
    }

    #[test]
    fn looks_back_over_the_latest_windows_only() {
        let halved = std::iter::repeat_n((20.0, 320.0), 30).chain(std::iter::repeat_n((10.0, 160.0), 20));
        assert!(!over(halved), "nothing has moved lately");
        let mut guard = Guard::default();
        growing().for_each(|inflight| guard.note(inflight, 320.0));
        guard.forget();
        assert!(!guard.objects());
    }
}
