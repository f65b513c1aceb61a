//! Rates (`500/s`, `30/m`) and the pacing rule for them.
//!
//! Owns the generic cell rate algorithm (GCRA, ITU-T I.371): a pure function of time and event. Must never
//! read a clock.

use crate::time::Mono;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// So many events per so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Events. At least 1.
    pub events: u32,
    /// The time they are counted over. Longer than zero.
    pub per: Duration,
}

impl Rate {
    /// Events per second.
    pub fn per_second(self) -> f64 {
        f64::from(self.events) / self.per.as_secs_f64()
    }
}

/// A pacer: in any window of length `w` it admits at most `rate × w + burst` events.
#[derive(Debug, Clone, PartialEq)]
pub struct Pacer {
    /// All in microseconds, with fractions: a rate of 7/s has no whole number of them between events.
    interval: f64,
    tolerance: f64,
    next: f64,
}

impl Pacer {
    /// A pacer for `rate` that lets `burst` events through at once after a pause. `burst` is at least 1.
    ///
    /// # Panics
    /// If `burst`, or anything in `rate`, is zero.
    pub fn new(rate: Rate, burst: u32) -> Self {
        assert!(rate.events > 0 && !rate.per.is_zero() && burst > 0, "validated by the settings");
        let interval_micros = 1e6 / rate.per_second();
        Self {
            interval: interval_micros,
            tolerance: interval_micros * f64::from(burst - 1),
            next: f64::NEG_INFINITY,
        }
    }

    /// The earliest time at which the next event may happen; in the past if it may now.
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and the values are times in range")]
    pub fn ready_at(&self) -> Mono {
        Mono((self.next - self.tolerance).ceil() as i64)
    }

    /// Counts one event at `now`. Returns `false`, and counts nothing, if it comes too soon.
    pub fn admit(&mut self, now: Mono) -> bool {
        if now < self.ready_at() {
            return false;
        }
        self.next = self.next.max(now.0 as f64) + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Pacer, Rate};
    use crate::time::Mono;
    use std::time::Duration;

    #[test]
    fn no_window_admits_more_than_rate_times_window_plus_burst() {
        let rate = Rate { events: 10, per: Duration::from_secs(1) };
        for burst in [1, 4] {
            let mut pacer = Pacer::new(rate, burst);
            let admitted: Vec<i64> =
                (0..5_000_000).step_by(1_000).filter(|&micros| pacer.admit(Mono(micros))).collect();
            for (first, &start) in admitted.iter().enumerate() {
                let within = admitted[first..].iter().take_while(|&&at| at < start + 1_000_000).count();
                assert!(within <= 10 + burst as usize - 1 + 1, "{within} in one second with burst {burst}");
            }
            assert!(admitted.len() >= 50, "the full rate is reached, got {}", admitted.len());
        }
    }

    #[test]
    fn waiting_until_ready_is_always_enough() {
        let mut pacer = Pacer::new(Rate { events: 7, per: Duration::from_secs(1) }, 1);
        let mut now = Mono(0);
        for _ in 0..100 {
            assert!(pacer.admit(now));
            assert!(!pacer.admit(now));
            now = pacer.ready_at();
        }
    }
}
