//! What all queues together have handed out, and owe: numbers that are asked for at every step.
//!
//! Owns these counts. Must never be counted anew while the pond runs: there can be thousands of queues.

use crate::message::{Message, Phase};

/// Counts over all queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Messages that are handed out.
    pub(super) leased: u64,
    /// Those of them whose end is to be told.
    pub(super) leased_owing: u64,
    /// All that are not terminal and whose end is to be told.
    pub(super) owing: u64,
}

impl Load {
    fn of(message: &Message) -> Self {
        let leased = message.phase == Phase::Leased;
        let owing = message.callback.is_some() && !message.phase.is_terminal();
        Self { leased: u64::from(leased), leased_owing: u64::from(leased && owing), owing: u64::from(owing) }
    }

    /// Counts a message in where it stands.
    pub(super) fn enter(&mut self, message: &Message) {
        let Self { leased, leased_owing, owing } = Self::of(message);
        self.leased += leased;
        self.leased_owing += leased_owing;
        self.owing += owing;
    }

    /// Counts a message out of where it stands.
    pub(super) fn leave(&mut self, message: &Message) {
        let Self { leased, leased_owing, owing } = Self::of(message);
        self.leased -= leased;
        self.leased_owing -= leased_owing;
        self.owing -= owing;
    }
}
