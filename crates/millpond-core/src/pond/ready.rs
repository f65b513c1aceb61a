//! The messages of one queue that may be handed out, in the order of their places.
//!
//! Owns order, rank and the age of the oldest. Must never know why a message is ready. Kept as compressed
//! bitmaps (Roaring) of dense places: about two bytes a message, rank in microseconds at any depth.

use crate::identity::Seq;
use crate::time::Mono;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};

/// Ready messages by place. A message whose place is its number and that was due at once is *prompt*: among
/// those, the lowest place is also the oldest. The others are *late*, and few: their ages are kept apart.
#[derive(Debug, Default)]
pub(super) struct ReadySet {
    prompt: RoaringTreemap,
    late: RoaringTreemap,
    late_by_age: BTreeSet<(Mono, u64)>,
    /// The numbers of messages that a replay moved to a later place.
    moved: BTreeMap<u64, Seq>,
}

/// What the order of a ready message depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// The message.
    pub(super) seq: Seq,
    /// Its place.
    pub(super) place: u64,
    /// When it was first due.
    pub(super) due_since: Mono,
    /// Whether it was due at once when it was accepted, and never replayed.
    pub(super) prompt: bool,
}

impl ReadySet {
    pub(super) fn insert(&mut self, ready: Ready) {
        let fresh = if ready.prompt {
            self.prompt.insert(ready.place)
        } else {
            self.late_by_age.insert((ready.due_since, ready.place));
            self.late.insert(ready.place)
        };
        assert!(fresh, "message {:?} became ready twice", ready.seq);
        if ready.place != ready.seq.0 {
            self.moved.insert(ready.place, ready.seq);
        }
    }

    pub(super) fn remove(&mut self, ready: Ready) {
        let known = if ready.prompt {
            self.prompt.remove(ready.place)
        } else {
            self.late_by_age.remove(&(ready.due_since, ready.place));
            self.late.remove(ready.place)
        };
        assert!(known, "message {:?} left the ready ones without being one", ready.seq);
        self.moved.remove(&ready.place);
    }

    pub(super) fn len(&self) -> u64 {
        self.prompt.len() + self.late.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.late.is_empty()
    }

    /// The message to hand out next.
    pub(super) fn first(&self) -> Option<Seq> {
        let place = match (self.prompt.min(), self.late.min()) {
            (Some(prompt), Some(late)) => prompt.min(late),
            (prompt, late) => prompt.or(late)?,
        };
        Some(self.moved.get(&place).copied().unwrap_or(Seq(place)))
    }

    /// How many come before `place`.
    pub(super) fn rank(&self, place: u64) -> u64 {
        match place.checked_sub(1) {
            Some(before) => self.prompt.rank(before) + self.late.rank(before),
            None => 0,
        }
    }

    /// The lowest place among the prompt ones, which is the oldest of them.
    pub(super) fn oldest_prompt(&self) -> Option<Seq> {
        self.prompt.min().map(Seq)
    }

    /// When the oldest of the late ones was first due.
    pub(super) fn oldest_late(&self) -> Option<Mono> {
        self.late_by_age.first().map(|&(due_since, _)| due_since)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ready, ReadySet};
    use crate::identity::Seq;
    use crate::time::Mono;

    fn ready(seq: u64, place: u64, prompt: bool) -> Ready {
        Ready { seq: Seq(seq), place, due_since: Mono(i64::try_from(place).unwrap()), prompt }
    }

    #[test]
    fn a_replayed_message_comes_behind_what_was_there() {
        let mut set = ReadySet::default();
        set.insert(ready(5, 5, true));
        set.insert(ready(1, 9, false));
        assert_eq!(set.first(), Some(Seq(5)));
        assert_eq!(set.rank(9), 1);
        set.remove(ready(5, 5, true));
        assert_eq!(set.first(), Some(Seq(1)));
        assert_eq!(set.oldest_late(), Some(Mono(9)));
        set.remove(ready(1, 9, false));
        assert!(set.is_empty() && set.first().is_none() && set.oldest_late().is_none());
    }
}
