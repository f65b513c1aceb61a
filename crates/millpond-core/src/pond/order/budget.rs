//! The retry budget: retries must not crowd out fresh work.
//!
//! Owns the tokens. Must never hold a retry back while no fresh work is there: then it harms nobody, and a backlog
//! of retries after an outage would take hours at the floor.

use crate::time::Mono;

/// Retries that may go out at once after a time without any. A burst of this size does no harm, and a queue that has
/// just been started need not wait for its first retries.
const TOKENS_MAX: f64 = 10.0;
/// The floor: so many retries a second, however little fresh work goes out.
const TOKENS_PER_SECOND: f64 = 1.0;

/// A token bucket (the retry budget of Google's "Site Reliability Engineering", ch. 21, with the floor of Finagle's):
/// fresh hand-outs earn, retries spend.
#[derive(Debug)]
pub(super) struct RetryBudget {
    tokens: f64,
    at: Mono,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { tokens: TOKENS_MAX, at: Mono(i64::MIN) }
    }
}

impl RetryBudget {
    fn tokens(&self, now: Mono) -> f64 {
        let earned = now.since(self.at).as_secs_f64() * TOKENS_PER_SECOND;
        (self.tokens + earned).min(TOKENS_MAX)
    }

    /// Whether a retry may go out at `now` although fresh work waits; `share` of all hand-outs may be retries.
    pub(super) fn allows(&self, share: f64, now: Mono) -> bool {
        share >= 1.0 || self.tokens(now) >= 1.0
    }

    /// Counts a hand-out at `now`.
    pub(super) fn count(&mut self, retry: bool, share: f64, now: Mono) {
        let tokens = self.tokens(now);
        self.at = now;
        self.tokens = if retry {
            // Without fresh work, a retry goes out unpaid.
            (tokens - 1.0).max(0.0)
        } else {
            // So many per fresh one that retries make up `share` of both; where all may, that is infinite.
            let earned = share / (1.0 - share);
            (tokens + earned).min(TOKENS_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::RetryBudget;
    use crate::time::Mono;

    /// Whether each of `hand_outs`, `per_second`, is a retry, where a retry goes whenever it may.
    fn retries(share: f64, hand_outs: i64, per_second: i64) -> i64 {
        let mut budget = RetryBudget::default();
        (0..hand_outs)
            .filter(|step| {
                let now = Mono(step * 1_000_000 / per_second);
                let retry = budget.allows(share, now);
                budget.count(retry, share, now);
                retry
            })
            .count()
            .try_into()
            .unwrap()
    }

    #[test]
    fn retries_are_at_most_their_share_and_one_a_second_and_a_burst() {
        for share in [0.0, 0.2, 0.5, 0.9] {
            let (hand_outs, per_second) = (10_000, 1_000);
            let most = share * 10_000.0 + 10.0 + 10.0;
            let seen = retries(share, hand_outs, per_second) as f64;
            assert!((share * 9_900.0..=most).contains(&seen), "{share}: {seen}");
        }
        assert_eq!(retries(1.0, 1000, 1000), 1000);
    }

    #[test]
    fn the_floor_is_one_a_second() {
        let seen = retries(0.0, 6_000, 100);
        assert!((60..=71).contains(&seen), "{seen} in a minute");
    }
}
