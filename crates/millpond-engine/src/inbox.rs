//! The engine thread's inbox.
//!
//! Owns the hand-over between threads: many push, one takes all. Must never block a pusher longer than a swap of
//! a vector takes, nor grow without bound by what callers ask.

use crate::content::{Stored, Unreadable};
use crate::handle::Answer;
use crate::log::Commit;
use crate::stats::JournalStats;
use millpond_core::command::{Command, Input, RequestId};
use millpond_core::identity::Seq;
use millpond_core::message::SharedContent;
use millpond_journal::Sealed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Calls that may wait in the inbox: beyond that many, callers are told to come back.
const ASKED_MAX: usize = 65_536;
/// While the log is busy, so many questions that need it anyway may gather before the engine is woken for them: a
/// wake-up costs about as much as the work on ten of them.
const GATHERED_MAX: usize = 64;

/// What the engine thread is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody asks.
    Ask { request: RequestId, command: Command, answer: oneshot::Sender<Answer> },
    /// Something happened.
    Input(Input),
    /// Somebody wants a message's bytes.
    Locate { seq: Seq, answer: oneshot::Sender<Stored> },
    /// The log has written something.
    Committed(Commit),
    /// What was to be copied is read.
    Copied(Vec<(Seq, Result<Option<SharedContent>, Unreadable>)>),
    /// A segment has an index now.
    Sealed(Sealed),
    /// The log has failed and stopped.
    LogFailed(String),
    /// Stop once everything emitted is durable.
    Stop,
}

#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
    journal: Mutex<JournalStats>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    asleep: bool,
    /// The sleeper will be woken by the log before long, so what needs the log may wait for that.
    patient: bool,
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing inside can be left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let shared = Shared {
            state: Mutex::new(State::default()),
            filled: Condvar::new(),
            journal: Mutex::new(JournalStats::default()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds an event. After the end it is dropped, and with it any sender inside.
    pub(crate) fn push(&self, event: Event) {
        let mut state = lock(&self.shared.state);
        if !state.closed {
            self.add(&mut state, event, true);
        }
    }

    /// Adds a question, unless too many wait.
    pub(crate) fn ask(&self, request: RequestId, command: Command, answer: oneshot::Sender<Answer>) -> bool {
        let mut state = lock(&self.shared.state);
        if state.events.len() >= ASKED_MAX {
            return false;
        }
        if !state.closed {
            let urgent = !matches!(command, Command::Enqueue { .. } | Command::Settle(_));
            self.add(&mut state, Event::Ask { request, command, answer }, urgent);
        }
        true
    }

    fn add(&self, state: &mut State, event: Event, urgent: bool) {
        state.events.push(event);
        let wake = urgent || !state.patient || state.events.len() >= GATHERED_MAX;
        if state.asleep && wake {
            state.asleep = false;
            self.shared.filled.notify_one();
        }
    }

    /// Takes everything into `events`, waiting for the first event for at most `timeout`. With `log_is_busy`, which
    /// means that the log will say something soon, what needs the log anyway does not end the wait by itself.
    pub(crate) fn take(&self, events: &mut Vec<Event>, timeout: Duration, log_is_busy: bool) {
        let mut state = lock(&self.shared.state);
        if state.events.is_empty() && !timeout.is_zero() {
            state.asleep = true;
            state.patient = log_is_busy;
            let waited = self.shared.filled.wait_timeout_while(state, timeout, |state| state.asleep);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.asleep = false;
        }
        std::mem::swap(&mut state.events, events);
    }

    /// Takes nothing more, and drops what is there.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        let dropped = std::mem::take(&mut state.events);
        drop(state);
        drop(dropped);
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, JournalStats> {
        lock(&self.shared.journal)
    }
}
