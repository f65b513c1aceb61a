//! Messages by age, apart from the order in which they go out.
//!
//! Owns which one has been due for longest. Must never be asked which one is next.

use super::place_set::PlaceSet;
use crate::identity::Seq;
use crate::time::Mono;
use std::collections::BTreeSet;

/// What the age of a message depends on.
#[derive(Debug, Clone, Copy)]
pub(in crate::pond) struct Age {
    /// Its place.
    pub(in crate::pond) place: u64,
    /// When it was first due.
    pub(in crate::pond) due_since: Mono,
    /// Whether it was due at once when it was accepted, and never replayed.
    pub(in crate::pond) prompt: bool,
}

/// Which of some messages is the oldest.
#[derive(Debug, Clone, Copy)]
pub(in crate::pond) enum Oldest {
    /// One of them, a prompt one.
    Prompt(Seq),
    /// One that has been due since then.
    Since(Mono),
}

/// A message whose place is its number and that was due at once is *prompt*: among those, the lowest place is also
/// the oldest. The others are *late*, and few: their ages are kept apart.
#[derive(Debug, Default)]
pub(in crate::pond) struct Ages {
    prompt: PlaceSet,
    late: PlaceSet,
    late_by_age: BTreeSet<(Mono, u64)>,
}

impl Ages {
    pub(super) fn insert(&mut self, age: Age) {
        let added = if age.prompt {
            self.prompt.insert(age.place)
        } else {
            self.late_by_age.insert((age.due_since, age.place));
            self.late.insert(age.place)
        };
        assert!(added, "place {} is taken twice", age.place);
    }

    pub(super) fn remove(&mut self, age: Age) {
        let known = if age.prompt {
            self.prompt.remove(age.place)
        } else {
            self.late_by_age.remove(&(age.due_since, age.place));
            self.late.remove(age.place)
        };
        assert!(known, "place {} is given up without being taken", age.place);
    }

    pub(super) fn len(&self) -> u64 {
        self.prompt.len() + self.late.len()
    }

    /// The oldest prompt one, and the oldest of the others: only the message itself knows how old the former is.
    pub(super) fn oldest(&self) -> impl Iterator<Item = Oldest> {
        let prompt = self.prompt.min().map(|place| Oldest::Prompt(Seq(place)));
        let late = self.late_by_age.first().map(|&(since, _)| Oldest::Since(since));
        prompt.into_iter().chain(late)
    }

    /// All places, from the lowest to the highest.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        merged(self.prompt.iter(), self.late.iter())
    }
}

/// Two ascending sequences as one.
pub(in crate::pond) fn merged<T: Ord>(
    one: impl Iterator<Item = T>,
    other: impl Iterator<Item = T>,
) -> impl Iterator<Item = T> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if first > second => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}
