//! The messages that something happens to, each in full, by their numbers.
//!
//! Owns how they are found: every step of a message's life looks it up several times, and the numbers of those at work
//! are mostly neighbours, so they lie in pages of a word of bits each. Must never change what is kept.

use super::slot::Slot;
use crate::identity::Seq;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Numbers per page.
const PAGE_NUMBERS: u64 = u64::BITS as u64;

/// Slots by number.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// None is empty.
    pages: BTreeMap<u64, Page>,
}

/// The messages with the numbers of one page, in their order.
#[derive(Debug, Default)]
struct Page {
    present: u64,
    #[expect(
        clippy::vec_box,
        reason = "slots are large, and a page moves those behind one that comes or goes"
    )]
    slots: Vec<Box<Slot>>,
}

impl Page {
    /// Where the message of this bit is, if it is there.
    fn find(&self, bit: u64) -> Option<usize> {
        let is_there = self.present & (1 << bit) != 0;
        is_there.then(|| self.rank(bit))
    }

    /// How many messages come before `bit`.
    fn rank(&self, bit: u64) -> usize {
        (self.present & ((1 << bit) - 1)).count_ones() as usize
    }

    fn numbers(&self, page: u64) -> impl Iterator<Item = Seq> + use<> {
        let mut rest = self.present;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros();
            rest &= rest.checked_sub(1)?;
            Some(Seq(page * PAGE_NUMBERS + u64::from(bit)))
        })
    }
}

fn page_of(seq: Seq) -> (u64, u64) {
    (seq.0 / PAGE_NUMBERS, seq.0 % PAGE_NUMBERS)
}

impl Awake {
    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.get(seq).is_some()
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Slot> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get(&number)?;
        Some(&page.slots[page.find(bit)?])
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Slot> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get_mut(&number)?;
        let rank = page.find(bit)?;
        Some(&mut page.slots[rank])
    }

    /// Adds a message that is not there.
    pub(super) fn insert(&mut self, seq: Seq, slot: Box<Slot>) {
        let (number, bit) = page_of(seq);
        let page = self.pages.entry(number).or_default();
        assert!(page.find(bit).is_none(), "message {seq:?} is kept twice");
        page.slots.insert(page.rank(bit), slot);
        page.present |= 1 << bit;
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Box<Slot>> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get_mut(&number)?;
        let slot = page.slots.remove(page.find(bit)?);
        page.present &= !(1 << bit);
        if page.present == 0 {
            self.pages.remove(&number);
        }
        Some(slot)
    }

    /// The numbers from `from` on, in order.
    pub(super) fn numbers_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        let first = match from {
            Bound::Included(seq) => seq.0,
            Bound::Excluded(seq) => seq.0 + 1,
            Bound::Unbounded => 0,
        };
        let pages = self.pages.range(first / PAGE_NUMBERS..);
        pages.flat_map(|(&number, page)| page.numbers(number)).skip_while(move |seq| seq.0 < first)
    }

    /// Every slot, in the order of the numbers.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.pages.values().flat_map(|page| page.slots.iter().map(|slot| &**slot))
    }

    /// Every message with its slot, in order.
    pub(super) fn into_slots(self) -> impl Iterator<Item = (Seq, Box<Slot>)> {
        self.pages.into_iter().flat_map(|(number, page)| page.numbers(number).zip(page.slots))
    }
}

#[cfg(test)]
mod tests {
    use super::Awake;
    use crate::identity::Seq;
    use crate::pond::resting::tests::slot;
    use crate::time::Mono;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    proptest! {
        #[test]
        fn what_is_awake_is_found_like_in_a_plain_map(steps in prop::collection::vec((0..300_u64, any::<bool>()), 1..300)) {
            let (mut awake, mut expected) = (Awake::default(), BTreeMap::new());
            for (step, (number, adds)) in (0..).zip(steps) {
                let seq = Seq(number);
                if adds && !expected.contains_key(&seq) {
                    awake.insert(seq, Box::new(slot(number, step, 0, 1, 0)));
                    expected.insert(seq, step);
                } else if let Some(slot) = awake.get_mut(seq).filter(|_| adds) {
                    slot.due_since = Mono(step);
                    expected.insert(seq, step);
                } else {
                    let removed = awake.remove(seq).map(|slot| slot.due_since.0);
                    prop_assert_eq!(removed, expected.remove(&seq));
                }
                prop_assert_eq!(awake.get(seq).map(|slot| slot.due_since.0), expected.get(&seq).copied());
                prop_assert_eq!(awake.contains(seq), expected.contains_key(&seq));
            }
            for from in [Bound::Unbounded, Bound::Included(Seq(64)), Bound::Excluded(Seq(127))] {
                let range = expected.range((from, Bound::Unbounded)).map(|(&seq, _)| seq);
                prop_assert!(awake.numbers_from(from).eq(range));
            }
            prop_assert!(awake.slots().map(|slot| slot.due_since.0).eq(expected.values().copied()));
            let all = awake.into_slots().map(|(seq, slot)| (seq, slot.due_since.0));
            prop_assert!(all.eq(expected));
        }
    }
}
