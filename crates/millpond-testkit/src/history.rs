//! What producers and workers saw of a server: who asked what, when, and what they were told.
//!
//! Owns the record only. Must never judge it: the checker does, and it must not depend on who wrote the record.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time since the history began, on the clock of the process that writes it.
pub type Moment = Duration;

/// What an enqueue was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// Accepted under this id.
    Accepted(String),
    /// Refused: nothing was stored.
    Refused,
    /// No answer: stored or not.
    Unknown,
}

/// What a worker said of a hand-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Done.
    Complete,
    /// Failed.
    Retry,
    /// Failed for good.
    Dead,
    /// Given back.
    Release,
}

/// What a settlement was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It counts.
    Accepted,
    /// The hand-out was over.
    Refused,
    /// No answer: it counts or not.
    Unknown,
}

/// How a message ended, as its status says after everything has drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Done.
    Succeeded,
    /// A dead letter.
    Dead,
    /// Anything else: not at its end, or not known to the server.
    Other,
}

/// One thing that was seen. `sent` is before the request left, `ended` after the answer came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An enqueue. Payloads are unique; `keyed` ones carry an idempotency key and may be sent again.
    Enqueue {
        /// What was enqueued.
        payload: u64,
        /// Whether repetitions are the same message.
        keyed: bool,
        /// The answer.
        answer: Enqueued,
    },
    /// A message was handed to a worker.
    HandOut {
        /// Its id.
        id: String,
        /// What it carried.
        payload: u64,
        /// The proof of the hand-out.
        receipt: String,
        /// When the worker asked for work.
        sent: Moment,
        /// When it got it.
        ended: Moment,
        /// How long its lease lasts from the hand-out, which was between the two.
        lease: Duration,
    },
    /// A worker settled a hand-out.
    Settle {
        /// The message.
        id: String,
        /// The proof of the hand-out.
        receipt: String,
        /// What it said.
        word: Word,
        /// When it said so.
        sent: Moment,
        /// When it was answered.
        ended: Moment,
        /// The answer.
        answer: Settled,
    },
    /// The server died, at the latest now.
    Death {
        /// When.
        at: Moment,
    },
    /// The status of an accepted message after everything has drained.
    End {
        /// The message.
        id: String,
        /// How it ended.
        end: End,
    },
}

/// A history that many tasks write.
#[derive(Debug)]
pub struct History {
    began: Instant,
    events: Mutex<Vec<Event>>,
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl History {
    /// An empty history that begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), events: Mutex::default() }
    }

    /// The time since it began.
    pub fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Adds what was seen.
    pub fn note(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Everything seen so far, in the order in which it was noted.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
