//! The leases that are in work: when each ends, when it is to be extended, and whether it is lost.
//!
//! Owns these times. Must never ask for the time or send anything: it is told, and says what is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A message that a handler has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: String,
    pub(super) started: Instant,
    /// When the lease ends by our clock.
    pub(super) until: Instant,
    /// When it is to be extended; `None` once that is no use.
    extend_at: Option<Instant>,
    /// Whether an extension is on its way.
    asked: bool,
    /// Tells the handler that the lease is over.
    pub(super) lost: CancellationToken,
    /// Ends the handler.
    pub(super) task: Option<AbortHandle>,
}

/// The answer to an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extended {
    /// It holds on.
    Yes,
    /// It is over.
    Lost,
    /// It cannot become longer: it ends when it ends.
    NoLonger,
    /// There is no answer; ask again.
    Unanswered {
        /// When.
        again: Instant,
    },
}

/// All of them, by receipt.
#[derive(Debug)]
pub(super) struct Book {
    lease: Duration,
    held: HashMap<Arc<str>, Held>,
    /// Nothing is due before.
    next: Option<Instant>,
}

impl Book {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, held: HashMap::new(), next: None }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Notes a message that was leased by `now`.
    pub(super) fn begin(&mut self, receipt: Arc<str>, id: String, lost: CancellationToken, now: Instant) {
        let extend_at = now + self.lease / 2;
        let until = now + self.lease;
        let held =
            Held { id, started: now, until, extend_at: Some(extend_at), asked: false, lost, task: None };
        self.held.insert(receipt, held);
        self.next = Some(self.next.map_or(extend_at, |next| next.min(extend_at)));
    }

    /// Notes which task works on it.
    pub(super) fn set_task(&mut self, receipt: &str, task: AbortHandle) {
        if let Some(held) = self.held.get_mut(receipt) {
            held.task = Some(task);
        }
    }

    /// Takes out a message whose handler has ended.
    pub(super) fn end(&mut self, receipt: &str) -> Option<Held> {
        self.held.remove(receipt)
    }

    /// Takes out all of them.
    pub(super) fn end_all(&mut self) -> Vec<(Arc<str>, Held)> {
        self.held.drain().collect()
    }

    /// When to look at the leases next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// What is due at `now`: the receipts to extend, those soon due with them, at most `most`; and the ids of those that
    /// ended unextended, whose handlers are told.
    pub(super) fn due(&mut self, now: Instant, may_ask: bool, most: usize) -> (Vec<Arc<str>>, Vec<String>) {
        let (mut extend, mut over) = (Vec::new(), Vec::new());
        if self.next.is_none_or(|next| next > now) {
            return (extend, over);
        }
        let soon = now + self.lease / 10;
        for (receipt, held) in &mut self.held {
            if held.lost.is_cancelled() {
                continue;
            }
            if held.until <= now {
                held.lost.cancel();
                over.push(held.id.clone());
            } else if may_ask
                && !held.asked
                && extend.len() < most
                && held.extend_at.is_some_and(|at| at <= soon)
            {
                held.asked = true;
                extend.push(Arc::clone(receipt));
            }
        }
        self.look(may_ask);
        (extend, over)
    }

    /// Notes the answer for one receipt; `sent` is when the extension was asked for. Returns the message's id if it is
    /// news that its lease is over.
    pub(super) fn extended(&mut self, receipt: &str, answer: Extended, sent: Instant) -> Option<String> {
        let held = self.held.get_mut(receipt)?;
        held.asked = false;
        match answer {
            Extended::Yes => {
                held.until = sent + self.lease;
                held.extend_at = Some(sent + self.lease / 2);
            }
            Extended::NoLonger => held.extend_at = None,
            Extended::Unanswered { again } => held.extend_at = Some(again),
            Extended::Lost => {
                if !held.lost.is_cancelled() {
                    held.lost.cancel();
                    return Some(held.id.clone());
                }
            }
        }
        None
    }

    /// Looks when something is due next. While no extension can be asked for, only the ends count.
    pub(super) fn look(&mut self, may_ask: bool) {
        let alive = self.held.values().filter(|held| !held.lost.is_cancelled());
        let due = |held: &Held| {
            let extend_at = held.extend_at.filter(|_| may_ask && !held.asked);
            extend_at.map_or(held.until, |at| at.min(held.until))
        };
        self.next = alive.map(due).min();
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, Extended};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    const LEASE: Duration = Duration::from_secs(30);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn book(receipts: &[&str], now: Instant) -> (Book, Vec<CancellationToken>) {
        let mut book = Book::new(LEASE);
        let mut tokens = Vec::new();
        for receipt in receipts {
            let token = CancellationToken::new();
            book.begin(Arc::from(*receipt), format!("id of {receipt}"), token.clone(), now);
            tokens.push(token);
        }
        (book, tokens)
    }

    #[test]
    fn a_lease_is_extended_at_half_of_it_again_and_again_until_its_handler_ends() {
        let begin = Instant::now();
        let (mut book, _tokens) = book(&["a"], begin);
        assert_eq!(book.next(), Some(begin + seconds(15)));
        assert!(book.due(begin + seconds(14), true, 10).0.is_empty());
        for round in 1..=5 {
            let now = begin + seconds(15 * round);
            assert_eq!(book.due(now, true, 10).0, [Arc::from("a")], "{round}");
            assert!(book.due(now, true, 10).0.is_empty(), "it is asked for once");
            book.extended("a", Extended::Yes, now);
            book.look(true);
            assert_eq!(book.next(), Some(now + seconds(15)));
        }
        assert!(book.end("a").is_some());
        book.look(true);
        assert_eq!(book.next(), None);
    }

    #[test]
    fn what_is_due_soon_goes_along_and_not_more_than_fits() {
        let begin = Instant::now();
        let (mut few, _tokens) = book(&["a", "b", "c"], begin);
        let now = begin + seconds(15);
        assert_eq!([few.due(now, true, 2).0.len(), few.due(now, true, 2).0.len()], [2, 1]);
        let (mut book, _tokens) = book(&["a", "b"], begin);
        book.begin(Arc::from("soon"), String::new(), CancellationToken::new(), begin + seconds(2));
        book.begin(Arc::from("later"), String::new(), CancellationToken::new(), begin + seconds(9));
        assert_eq!(book.due(now, true, 10).0.len(), 3);
        assert_eq!(book.next(), Some(begin + seconds(24)));
    }

    #[test]
    fn a_handler_hears_once_that_its_lease_is_over() {
        let begin = Instant::now();
        let (mut book, tokens) = book(&["a", "b", "c"], begin);
        let now = begin + seconds(15);
        assert_eq!(book.due(now, true, 10).0.len(), 3);
        assert_eq!(book.extended("a", Extended::Lost, now).as_deref(), Some("id of a"));
        assert_eq!(book.extended("a", Extended::Lost, now), None);
        book.extended("b", Extended::Unanswered { again: now + seconds(3) }, now);
        book.extended("c", Extended::NoLonger, now);
        book.look(true);
        assert_eq!(book.next(), Some(now + seconds(3)));
        assert_eq!(book.due(now + seconds(3), true, 10).0, [Arc::from("b")]);
        book.extended("b", Extended::Unanswered { again: now + seconds(20) }, now);
        book.look(true);
        let (extend, mut over) = book.due(begin + seconds(30), true, 10);
        over.sort();
        assert_eq!((extend.len(), over), (0, vec!["id of b".to_owned(), "id of c".to_owned()]));
        assert!(tokens.iter().all(CancellationToken::is_cancelled));
        assert_eq!((book.next(), book.len()), (None, 3));
    }

    #[test]
    fn while_no_extension_can_be_asked_for_only_the_ends_are_waited_for() {
        let begin = Instant::now();
        let (mut book, _tokens) = book(&["a"], begin);
        assert!(book.due(begin + seconds(20), false, 10).0.is_empty());
        assert_eq!(book.next(), Some(begin + seconds(30)), "it does not spin");
        book.look(true);
        assert_eq!(book.due(begin + seconds(20), true, 10).0.len(), 1);
    }
}
