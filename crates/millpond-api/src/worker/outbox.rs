//! Settlements that the server does not know of yet.
//!
//! Owns their order, how many go together, and when one is given up. Must never forget one without saying so.

use super::BATCH_MAX;
use super::outcome::Outcome;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// About the most bytes that go together; a single one may be larger.
const BYTES_MAX: usize = 4 << 20;

/// How one hand-out ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) receipt: Arc<str>,
    pub(super) id: String,
    pub(super) outcome: Outcome,
    /// How long the handler had it.
    pub(super) took: Duration,
    /// When saying it is no use any more.
    pub(super) give_up_at: Instant,
    /// Must go alone: it was refused together with others.
    pub(super) alone: bool,
    /// Stands for an outcome that the server would not take.
    pub(super) substitute: bool,
}

impl Ended {
    /// A hand-out whose lease ends at `until`. That something is done is accepted late, too, while nobody else was
    /// handed the message: it is said for another lease.
    pub(super) fn new(
        receipt: Arc<str>,
        id: String,
        outcome: Outcome,
        took: Duration,
        until: Instant,
        lease: Duration,
    ) -> Self {
        let late = if matches!(outcome, Outcome::Complete { .. }) { lease } else { Duration::ZERO };
        let give_up_at = until + late;
        Self { receipt, id, outcome, took, give_up_at, alone: false, substitute: false }
    }

    /// What is said once the server has refused the outcome itself for `reason`; `None` if nothing is left to say.
    pub(super) fn substituted(self, reason: &str) -> Option<Self> {
        if self.substitute {
            return None;
        }
        let error = format!("the server did not take the outcome {}: {reason}", self.outcome.as_str());
        let outcome = match self.outcome {
            // The work is done: repeating it would only lead here again.
            Outcome::Complete { .. } | Outcome::Dead { .. } => Outcome::dead(error),
            Outcome::Retry { .. } => Outcome::retry(error),
            Outcome::Release { .. } => Outcome::release(),
        };
        Some(Self { outcome, substitute: true, ..self })
    }
}

/// The settlements to send, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Ended>,
}

impl Outbox {
    pub(super) fn push(&mut self, ended: Ended) {
        self.waiting.push_back(ended);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a batch back that has no answer.
    pub(super) fn put_back(&mut self, batch: Vec<Ended>) {
        for ended in batch.into_iter().rev() {
            self.waiting.push_front(ended);
        }
    }

    /// Takes out those that are no use any more at `now`.
    pub(super) fn given_up(&mut self, now: Instant) -> Vec<Ended> {
        if self.waiting.iter().all(|ended| ended.give_up_at > now) {
            return Vec::new();
        }
        let (over, left): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|ended| ended.give_up_at <= now);
        self.waiting.extend(left);
        over
    }

    /// The first moment at which one is given up.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|ended| ended.give_up_at).min()
    }

    /// Takes the next ones to send together; empty if there are none.
    pub(super) fn batch(&mut self) -> Vec<Ended> {
        let mut batch: Vec<Ended> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            bytes += next.outcome.size_bytes();
            let full = batch.len() == BATCH_MAX
                || bytes > BYTES_MAX
                || next.alone
                || batch.iter().any(|ended| ended.alone);
            if full && !batch.is_empty() {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Outbox};
    use crate::worker::outcome::Outcome;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;

    const LEASE: Duration = Duration::from_secs(30);

    fn ended(name: &str, outcome: Outcome, now: Instant) -> Ended {
        Ended::new(Arc::from(name), name.to_owned(), outcome, Duration::ZERO, now + LEASE, LEASE)
    }

    fn names(batch: &[Ended]) -> String {
        batch.iter().map(|ended| ended.id.as_str()).collect()
    }

    #[test]
    fn settlements_go_together_in_order_up_to_what_a_request_takes() {
        let now = Instant::now();
        let mut outbox = Outbox::default();
        for _ in 0..1_500 {
            outbox.push(ended("x", Outcome::done(), now));
        }
        assert_eq!([outbox.batch().len(), outbox.batch().len(), outbox.batch().len()], [1_000, 500, 0]);
        for (name, kib) in [("a", 1), ("b", 2_000), ("c", 2_000), ("d", 9_000), ("e", 1)] {
            outbox.push(ended(name, Outcome::result("x/y", vec![0; kib << 10]), now));
        }
        let batches: Vec<String> = (0..5).map(|_| names(&outbox.batch())).collect();
        assert_eq!(batches, ["ab", "c", "d", "e", ""]);
    }

    #[test]
    fn one_that_was_refused_with_others_goes_alone() {
        let now = Instant::now();
        let mut outbox = Outbox::default();
        for (name, alone) in [("a", false), ("b", true), ("c", true), ("d", false), ("e", false)] {
            outbox.push(Ended { alone, ..ended(name, Outcome::done(), now) });
        }
        let batches: Vec<String> = (0..4).map(|_| names(&outbox.batch())).collect();
        assert_eq!(batches, ["a", "b", "c", "de"]);
    }

    #[test]
    fn what_has_no_answer_goes_first_again_and_is_given_up_when_it_is_no_use_any_more() {
        let now = Instant::now();
        let mut outbox = Outbox::default();
        outbox.push(ended("a", Outcome::retry("x"), now));
        outbox.push(ended("b", Outcome::done(), now));
        let batch = outbox.batch();
        outbox.push(ended("c", Outcome::done(), now + LEASE));
        outbox.put_back(batch);
        assert_eq!(outbox.next(), Some(now + LEASE));
        assert_eq!(names(&outbox.given_up(now + LEASE)), "a", "a late completion may be taken");
        assert_eq!(names(&outbox.given_up(now + 2 * LEASE)), "b");
        assert_eq!((outbox.len(), names(&outbox.batch())), (1, "c".to_owned()));
    }

    #[test]
    fn an_outcome_that_the_server_refuses_is_replaced_once_and_done_work_is_not_repeated() {
        let now = Instant::now();
        let huge = ended("a", Outcome::result("x/y", "too long"), now).substituted("too large").unwrap();
        assert!(matches!(&huge.outcome, Outcome::Dead { error } if error.contains("too large")), "{huge:?}");
        assert!(huge.substituted("again").is_none());
        let late = ended("a", Outcome::retry("x").after(LEASE), now).substituted("too late").unwrap();
        assert!(matches!(&late.outcome, Outcome::Retry { delay: None, .. }), "{late:?}");
    }
}
