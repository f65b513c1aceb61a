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
}

impl Notice {
    /// The queue that it is about.
    pub fn queue(&self) -> &Name {
        match self {
            Self::DeadBurst { queue, .. } | Self::DeadLettersFull { queue, .. } => queue,
        }
    }

    /// Who looks after it.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::DeadBurst { owner, .. } | Self::DeadLettersFull { owner, .. } => owner.as_deref(),
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
        }
    }
}
