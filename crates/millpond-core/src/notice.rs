//! What the pond wants somebody to hear of though nobody has asked.
//!
//! Owns the notices and their words. Must never be told more often than once per episode.

use crate::name::Name;
use std::fmt;

/// Something that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// So many messages were given up in a row, without one success: the queue is paused.
    DeadBurst {
        /// The queue.
        queue: Name,
        /// How many.
        deaths: u32,
        /// Who looks after its dead letters.
        owner: Option<String>,
    },
    /// There is no room for more dead letters: nothing is handed out until there is.
    DeadLettersFull {
        /// The queue.
        queue: Name,
        /// How many there are.
        kept: u64,
        /// Who looks after them.
        owner: Option<String>,
    },
    /// Calls to a target have stopped, as it does not answer. Said when it opens, not again after each failed probe.
    BreakerOpen {
        /// The target.
        target: Name,
        /// Failures in a row.
        failures: u32,
    },
    /// The target of an open breaker is tried. Said once for each time that it opened.
    BreakerHalfOpen {
        /// The target.
        target: Name,
    },
    /// Calls to a target go on.
    BreakerClosed {
        /// The target.
        target: Name,
        /// An operator has closed it.
        by_hand: bool,
    },
    /// There is no room for more messages that tell of ends: where somebody wants to be told, nothing ends until there
    /// is.
    CallbacksFull {
        /// The queue of those messages.
        queue: Name,
        /// How many there are.
        waiting: u64,
        /// Who looks after them.
        owner: Option<String>,
    },
}

impl Notice {
    /// The queue that it is about, if it is about one.
    pub fn queue(&self) -> Option<&Name> {
        match self {
            Self::DeadBurst { queue, .. }
            | Self::DeadLettersFull { queue, .. }
            | Self::CallbacksFull { queue, .. } => Some(queue),
            Self::BreakerOpen { .. } | Self::BreakerHalfOpen { .. } | Self::BreakerClosed { .. } => None,
        }
    }

    /// The target that it is about, if it is about one.
    pub fn target(&self) -> Option<&Name> {
        match self {
            Self::DeadBurst { .. } | Self::DeadLettersFull { .. } | Self::CallbacksFull { .. } => None,
            Self::BreakerOpen { target, .. }
            | Self::BreakerHalfOpen { target }
            | Self::BreakerClosed { target, .. } => Some(target),
        }
    }

    /// Whether it is good news, or none.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::BreakerHalfOpen { .. } | Self::BreakerClosed { .. })
    }

    /// Who looks after it.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::DeadBurst { owner, .. }
            | Self::DeadLettersFull { owner, .. }
            | Self::CallbacksFull { owner, .. } => owner.as_deref(),
            Self::BreakerOpen { .. } | Self::BreakerHalfOpen { .. } | Self::BreakerClosed { .. } => None,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeadBurst { queue, deaths, .. } => write!(
                formatter,
                "queue {queue} is paused: {deaths} messages were given up in a row without one success; mend the cause, \
                 then resume it"
            ),
            Self::DeadLettersFull { queue, kept, .. } => write!(
                formatter,
                "queue {queue} hands out nothing: its {kept} dead letters are as many as are kept; mend the cause, then replay \
                 some, which works though the queue is full, or delete them"
            ),
            Self::BreakerOpen { target, failures } => write!(
                formatter,
                "target {target} does not answer, {failures} failures in a row: its breaker is open; what waits for it goes on \
                 waiting and burns no attempt, single messages try it from time to time"
            ),
            Self::BreakerHalfOpen { target } => {
                write!(formatter, "target {target} is tried with single messages: its breaker is half-open")
            }
            Self::BreakerClosed { target, by_hand: false } => {
                write!(formatter, "target {target} answers again: its breaker is closed")
            }
            Self::BreakerClosed { target, by_hand: true } => {
                write!(formatter, "the breaker of target {target} was closed by an operator")
            }
            Self::CallbacksFull { queue, waiting, .. } => write!(
                formatter,
                "queue {queue} is full with {waiting} callbacks: queues with messages whose end is to be told hand out nothing, \
                 and take in no more of them, until some have been delivered or given up"
            ),
        }
    }
}
