//! A worker: takes messages of one queue, lets a handler work on them, and says how each ended.
//!
//! Owns its settings and what users see of it. Must never hold more messages than it has free slots for, nor keep
//! one without a lease that somebody watches.
//!
//! ```no_run
//! use millpond_api::client::Client;
//! use millpond_api::worker::{Message, Outcome, Worker};
//!
//! async fn invoice(message: Message) -> Outcome {
//!     match std::str::from_utf8(&message.body) {
//!         Ok(text) => Outcome::result("text/plain", text.to_uppercase()),
//!         Err(_) => Outcome::dead("this is no text, and never will be"),
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let stop = async { drop(tokio::signal::ctrl_c().await) };
//! let summary = Worker::new(client, "invoices").concurrency(16).run(invoice, stop).await?;
//! println!("{} done", summary.completed);
//! # Ok(())
//! # }
//! ```

mod backoff;
mod book;
mod outbox;
mod outcome;
mod run;
#[cfg(test)]
mod tests;

pub use outcome::{Message, Outcome};

use crate::client::{Client, ClientError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Most messages that one request asks for, and most settlements or extensions that one carries: what a server takes.
const BATCH_MAX: usize = 1_000;
/// The longest that a server lets a worker wait for a message.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A worker that is not running yet.
#[derive(Clone)]
pub struct Worker {
    client: Client,
    settings: Settings,
    observer: Arc<dyn Fn(Event<'_>) + Send + Sync>,
}

#[derive(Debug, Clone)]
struct Settings {
    queue: String,
    consumer: String,
    concurrency: usize,
    lease: Duration,
    wait: Duration,
    drain: Duration,
    limit: Option<u64>,
    until_empty: bool,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were handed to the handler.
    pub started: u64,
    /// Settled as done.
    pub completed: u64,
    /// Settled as failed, to be tried again.
    pub retried: u64,
    /// Settled as never to be tried again.
    pub dead: u64,
    /// Given back.
    pub released: u64,
    /// Not settled by this worker: the lease was over first. Somebody else has them, or will.
    pub lost: u64,
    /// Handlers that panicked; they count under `retried` too.
    pub panicked: u64,
}

/// Something that happened to a worker, for its log and its counters.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'event> {
    /// The handler got a message.
    Started {
        /// The message.
        message: &'event Message,
    },
    /// The handler has ended, or was dropped; the server does not know of it yet.
    Ended {
        /// The message's id.
        id: &'event str,
        /// How it ended.
        outcome: &'event Outcome,
    },
    /// The server knows how work on a message ended.
    Settled {
        /// The message's id.
        id: &'event str,
        /// How it ended.
        outcome: &'event Outcome,
        /// How long the handler had it.
        took: Duration,
    },
    /// The lease of a message is over, and the message may be somebody else's.
    Lost {
        /// The message's id.
        id: &'event str,
        /// How its handler ended; `None` while it works on.
        outcome: Option<&'event Outcome>,
    },
    /// The server would not take a settlement; something weaker is said in its place.
    Refused {
        /// The message's id.
        id: &'event str,
        /// Why.
        reason: &'event str,
    },
    /// A request failed and comes again.
    Failed {
        /// What was asked for: `lease`, `extend` or `settle`.
        request: &'static str,
        /// What went wrong.
        error: &'event ClientError,
        /// After which time it comes again.
        pause: Duration,
    },
    /// After failures, the server answers again.
    Recovered,
    /// No new messages are taken any more; those in work may end.
    Draining {
        /// How many are in work.
        working: usize,
    },
}

/// Why a worker stopped without being told to.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The server refused in a way that does not pass by itself, such as an unknown queue.
    #[error("the worker stopped: {0}")]
    Refused(#[from] ClientError),
}

impl Worker {
    /// A worker for `queue`: one message at a time, leases of 30 s, 30 s to drain.
    pub fn new(client: Client, queue: impl Into<String>) -> Self {
        let consumer = format!("worker-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let settings = Settings {
            queue: queue.into(),
            consumer,
            concurrency: 1,
            lease: Duration::from_secs(30),
            wait: Duration::from_secs(20),
            drain: Duration::from_secs(30),
            limit: None,
            until_empty: false,
        };
        Self { client, settings, observer: Arc::new(|_| {}) }
    }

    /// Works on so many messages at once; at least 1. The queue's `prefetch` (10 by default) bounds what one consumer
    /// holds, and so what is done at once; up to as many again may be on their way to be settled.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency.max(1);
        self
    }

    /// How long a message stays ours without a sign of life. It is extended while its handler works, at half of it:
    /// it need not cover the work, only a break in the network or a stall of this process. At least 10 ms.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_millis(10));
        self
    }

    /// How long one request waits at the server for a message; at most 60 s. 20 s unless said otherwise.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait.min(WAIT_MAX);
        self
    }

    /// What this worker is called. The queue's `prefetch` bounds what all workers of one name hold together, so each
    /// process needs its own; unless said otherwise it is made of the process's number and chance.
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.settings.consumer = name.into();
        self
    }

    /// How long handlers may go on once the worker was told to stop. Then they are dropped and their messages
    /// released.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// Stops after so many messages.
    #[must_use]
    pub fn limit(mut self, messages: u64) -> Self {
        self.settings.limit = Some(messages);
        self
    }

    /// Stops when it is handed nothing and has nothing in work. What is delayed or in backoff is not waited for.
    #[must_use]
    pub fn until_empty(mut self) -> Self {
        self.settings.until_empty = true;
        self
    }

    /// Tells `observer` what happens, at once and in the worker's own task: it must not block.
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// Works until `shutdown` is ready, or a limit is reached, and nothing is in work any more.
    ///
    /// Each message gets a task of its own. While its handler runs, its lease is extended; if it is lost all the same,
    /// [`Message::lost`] tells the handler. A handler that panics is a retry. A server that is not reachable, or
    /// answers 429 or 503, is asked again, with growing pauses and not before its `Retry-After`. If the future is
    /// dropped, handlers are dropped and their leases run out.
    pub async fn run<H, F, O>(
        self,
        handler: H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, RunError>
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = O> + Send + 'static,
        O: Into<Outcome>,
    {
        run::run(self, handler, shutdown).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Worker")
            .field("client", &self.client)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
