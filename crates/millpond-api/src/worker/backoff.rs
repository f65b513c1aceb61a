//! How long to wait before a request that failed comes again.
//!
//! Owns that rule, and which failures pass by themselves. Must never draw chance: it is an argument.

use crate::client::ClientError;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// A longer `Retry-After` is taken for this: a worker looks at least so often whether its server is well again.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// The pauses of one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Notes that a request was answered; whether that ends a row of failures.
    pub(super) fn succeeded(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the latest request failed.
    pub(super) fn is_failing(self) -> bool {
        self.failures > 0
    }

    /// Notes a failure, and says how long to wait: twice as long each time, between half and all of it by `chance`
    /// (0 to 1); never shorter than the server asked for, and up to a quarter longer, so that many do not come at once.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>, chance: f64) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let pause = pause.mul_f64(0.5 + chance / 2.0);
        let asked = retry_after.map(|asked| asked.min(RETRY_AFTER_MAX).mul_f64(1.0 + chance / 4.0));
        pause.max(asked.unwrap_or_default())
    }
}

/// Whether the same request could be answered well later.
pub(super) fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(problem) => problem.status >= 500 || matches!(problem.status, 408 | 425 | 429),
        ClientError::Address { .. } | ClientError::Header { .. } => false,
        // Something else answers: a proxy, while the server restarts behind it.
        ClientError::Unreachable { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Interrupted { .. }
        | ClientError::Protocol { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, passes};
    use crate::client::ClientError;
    use crate::problem::{Problem, Slug};
    use std::time::Duration;

    #[test]
    fn pauses_grow_up_to_a_bound_and_begin_anew_after_an_answer() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.failed(None, 1.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert!(backoff.succeeded());
        assert!(!backoff.succeeded(), "there was no failure since");
        assert_eq!(backoff.failed(None, 0.0), Duration::from_millis(50));
        for _ in 0..100 {
            assert!(backoff.failed(None, 0.5) <= Duration::from_secs(10));
        }
    }

    #[test]
    fn nobody_comes_back_before_the_server_asked_for_it() {
        let seconds = Duration::from_secs;
        assert_eq!(Backoff::default().failed(Some(seconds(8)), 0.0), seconds(8));
        assert_eq!(Backoff::default().failed(Some(seconds(8)), 1.0), seconds(10));
        assert!(Backoff::default().failed(Some(seconds(1 << 40)), 1.0) < seconds(600));
    }

    #[test]
    fn what_does_not_pass_by_itself_is_told_apart() {
        let refused = |slug| ClientError::Refused(Box::new(Problem::new(slug, "no")));
        for slug in
            [Slug::Draining, Slug::RateLimited, Slug::Internal, Slug::StorageFull, Slug::RequestTimeout]
        {
            assert!(passes(&refused(slug)), "{slug:?}");
        }
        for slug in
            [Slug::UnknownQueue, Slug::Malformed, Slug::Unauthenticated, Slug::Forbidden, Slug::TooLarge]
        {
            assert!(!passes(&refused(slug)), "{slug:?}");
        }
        assert!(passes(&ClientError::Unreachable { address: String::new(), reason: String::new() }));
        assert!(!passes(&ClientError::Address { address: String::new(), reason: String::new() }));
    }
}
