//! Durations of which quantiles are wanted, in bounded memory.
//!
//! Owns which of them are kept. Must never depend on chance or on a fixed resolution: small differences of long
//! durations count.

use std::time::Duration;

/// Most durations kept of one sample. A quantile of so many is off by 1.6 % of the distribution (half of the root).
const KEPT_MAX: usize = 1024;

/// A sample. When it is full, every other duration is dropped, and from then on every other one is kept.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    kept: Vec<u64>,
    stride: u64,
    seen: u64,
    sum_micros: f64,
}

impl Sample {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0, sum_micros: 0.0 }
    }

    pub(super) fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros += micros as f64;
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT_MAX {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(micros);
            }
        }
        self.seen += 1;
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// The mean in microseconds; 0 of nothing.
    pub(super) fn mean_micros(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.sum_micros / self.seen as f64 }
    }

    /// The duration in microseconds that `share` of all do not exceed; 0 of nothing.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, not negative")]
    pub(super) fn quantile_micros(&mut self, share: f64) -> f64 {
        if self.kept.is_empty() {
            return 0.0;
        }
        let last = self.kept.len() - 1;
        let index = ((share * self.kept.len() as f64).ceil() as usize).saturating_sub(1).min(last);
        let (_, found, _) = self.kept.select_nth_unstable(index);
        *found as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_MAX, Sample};
    use std::time::Duration;

    fn of(durations: impl IntoIterator<Item = u64>) -> Sample {
        let mut sample = Sample::new();
        durations.into_iter().for_each(|micros| sample.add(Duration::from_micros(micros)));
        sample
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut sample = of([5, 1, 4, 2, 3]);
        for (share, micros) in [(0.0, 1.0), (0.2, 1.0), (0.5, 3.0), (0.9, 5.0), (1.0, 5.0)] {
            assert!((sample.quantile_micros(share) - micros).abs() < 1e-9, "{share}");
        }
        assert_eq!(sample.seen(), 5);
        assert!((sample.mean_micros() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_has_no_quantile_and_no_mean() {
        assert!(of([]).quantile_micros(0.5).abs() < 1e-9 && of([]).mean_micros().abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded_and_quantiles_stay_right() {
        let mut sample = of((0..100_000).map(|number| number * 7919 % 100_000));
        assert!(sample.kept.len() <= KEPT_MAX, "{}", sample.kept.len());
        assert_eq!(sample.seen(), 100_000);
        for share in [0.1, 0.5, 0.9] {
            let off = sample.quantile_micros(share) / 100_000.0 - share;
            assert!(off.abs() < 0.02, "{share} is off by {off}");
        }
    }
}
