//! The groups of one queue: which messages must be done one after the other.
//!
//! Owns who is first in each group. Must never look at a phase: whoever is unfinished is a member, and blocks those
//! behind it whether it is ready, leased, delayed or in backoff.

use super::order::PlaceSet;
use crate::message::QueueNumber;
use crate::name::Label;
use std::collections::BTreeMap;

/// A member that leaves once its end is durable.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) queue: QueueNumber,
    pub(super) group: Label,
    pub(super) place: u64,
}

/// The unfinished messages of each group by their places, and those whose end is not durable yet. A group exists
/// while it has any.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BTreeMap<Label, PlaceSet>,
    len: u64,
    /// Unfinished messages with a group that are members of none: see `Order::keeps_groups`.
    released: u64,
}

impl Groups {
    /// A message with a group has begun its life, or was brought back to it. Returns the place of the one that was
    /// first so far, if this one comes before it.
    pub(super) fn join(&mut self, group: &Label, place: u64) -> Option<u64> {
        let members = match self.members.get_mut(group) {
            Some(members) => members,
            None => self.members.entry(group.clone()).or_default(),
        };
        let first_so_far = members.min();
        assert!(members.insert(place), "place {place} joined {group:?} twice");
        self.len += 1;
        first_so_far.filter(|first| *first > place)
    }

    /// A message with a group has begun its life, or was brought back to it, where groups are not kept.
    pub(super) fn release(&mut self) {
        self.released += 1;
    }

    /// The life of the message with this group and place is over.
    pub(super) fn note_over(&mut self, group: &Label, place: u64) {
        if self.before(group, place).is_none() {
            self.released -= 1;
        }
    }

    /// How many unfinished messages have a group and are members of none.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// A message's life is over for good. Returns the place of the one that is first now, if this one was.
    pub(super) fn part(&mut self, group: &Label, place: u64) -> Option<u64> {
        // It may have been released: see `Order::keeps_groups`.
        let members = self.members.get_mut(group)?;
        let was_first = members.min() == Some(place);
        if !members.remove(place) {
            return None;
        }
        self.len -= 1;
        if members.is_empty() {
            self.members.remove(group);
            return None;
        }
        members.min().filter(|_| was_first)
    }

    /// How many messages of its group come before a place; `None` if the message there is no member.
    pub(super) fn before(&self, group: &Label, place: u64) -> Option<u64> {
        let members = self.members.get(group)?;
        members.contains(place).then(|| members.before(place))
    }

    /// Whether another message of its group comes before a place.
    pub(super) fn is_blocked(&self, group: &Label, place: u64) -> bool {
        let Some(members) = self.members.get(group) else { return false };
        members.min() != Some(place) && members.contains(place)
    }

    /// How many unfinished messages a group has.
    pub(super) fn members(&self, group: &Label) -> u64 {
        self.members.get(group).map_or(0, PlaceSet::len)
    }

    /// How many unfinished messages are in groups.
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::Groups;
    use crate::name::Label;

    #[test]
    fn the_lowest_place_is_first_and_the_next_one_follows_it() {
        let (mut groups, group) = (Groups::default(), Label::new("a").unwrap());
        assert_eq!([3, 1, 7].map(|place| groups.join(&group, place)), [None, Some(3), None]);
        assert!(!groups.is_blocked(&group, 1) && groups.is_blocked(&group, 3));
        assert_eq!((groups.before(&group, 7), groups.before(&group, 5)), (Some(2), None));
        assert_eq!(groups.part(&group, 3), None, "the first one is still there");
        assert_eq!(groups.part(&group, 1), Some(7));
        assert_eq!((groups.part(&group, 7), groups.len()), (None, 0));
        assert_eq!(groups.part(&group, 7), None);
        assert!(!groups.is_blocked(&group, 9), "who is no member is not blocked");
    }
}
