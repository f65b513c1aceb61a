//! A set of places in the order of a queue, small or huge.
//!
//! Owns the change of form. Must never know what lies at a place. A queue has one huge set or a hundred thousand
//! tiny ones, so a set has no form of its own size: nothing, one place, a sorted list, or blocks of compressed
//! bitmaps (Roaring: next to nothing where they are dense, two bytes a place where they are not).

use roaring::RoaringBitmap;
use std::collections::{VecDeque, vec_deque::Iter};

/// Places up to which a set is a sorted list.
const SEVERAL_MAX: usize = 64;
/// Places down to which a set stays a bitmap: far below [`SEVERAL_MAX`], so that it does not change to and fro.
const MANY_MIN: u64 = 16;
/// The low bits of a place that say where in its block it is: few blocks to count over, and few bitmaps in each.
const BLOCK_BITS: u32 = 18;
/// Changes after which a block is compressed again. Messages wait in long runs of places without a gap, whose first
/// place and whose length are known without counting bits; a bitmap becomes a list of runs only when it is told to.
const CHANGES_MAX: u32 = 4096;

/// A set of places. Sixteen bytes where it holds none or one.
#[derive(Debug, Default)]
pub(in crate::pond) enum PlaceSet {
    #[default]
    Empty,
    One(u64),
    /// Sorted.
    #[expect(clippy::box_collection, reason = "most sets hold one place or none: they shall be small")]
    Several(Box<Vec<u64>>),
    Many(Box<Many>),
}

/// Places by block: how many come before one is a sum over blocks and over the few bitmaps of one.
#[derive(Debug, Default)]
pub(in crate::pond) struct Many {
    /// By their numbers, side by side in memory: to add them up is all that a rank costs more in a deep queue. They come at
    /// the end and go at the front. None is empty.
    blocks: VecDeque<(u64, Block)>,
    len: u64,
}

#[derive(Debug, Default)]
struct Block {
    places: RoaringBitmap,
    /// Counted here: the bitmaps would have to be added up.
    len: u64,
    /// Since it was compressed.
    changes: u32,
}

impl Block {
    fn changed(&mut self) {
        self.changes += 1;
        if self.changes == CHANGES_MAX {
            self.changes = 0;
            self.places.optimize();
        }
    }
}

fn block_of(place: u64) -> (u64, u32) {
    let within = place & ((1 << BLOCK_BITS) - 1);
    (place >> BLOCK_BITS, u32::try_from(within).expect("a block has few places"))
}

fn place_in(block: u64, within: u32) -> u64 {
    (block << BLOCK_BITS) | u64::from(within)
}

impl Many {
    /// Where the block of this number is, or would be.
    fn find(&self, number: u64) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&number, |(number, _)| *number)
    }

    fn insert(&mut self, place: u64) -> bool {
        let (number, within) = block_of(place);
        let index = self.find(number).unwrap_or_else(|index| {
            self.blocks.insert(index, (number, Block::default()));
            index
        });
        let block = &mut self.blocks[index].1;
        let added = block.places.insert(within);
        if added {
            block.len += 1;
            self.len += 1;
            block.changed();
        }
        added
    }

    fn remove(&mut self, place: u64) -> bool {
        let (number, within) = block_of(place);
        let Ok(index) = self.find(number) else { return false };
        let block = &mut self.blocks[index].1;
        let known = block.places.remove(within);
        if known {
            block.len -= 1;
            self.len -= 1;
            block.changed();
            if block.len == 0 {
                self.blocks.remove(index);
            }
        }
        known
    }

    fn contains(&self, place: u64) -> bool {
        let (number, within) = block_of(place);
        self.find(number).is_ok_and(|index| self.blocks[index].1.places.contains(within))
    }

    fn min(&self) -> Option<u64> {
        let (number, block) = self.blocks.front()?;
        block.places.min().map(|within| place_in(*number, within))
    }

    fn max(&self) -> Option<u64> {
        let (number, block) = self.blocks.back()?;
        block.places.max().map(|within| place_in(*number, within))
    }

    fn before(&self, place: u64) -> u64 {
        let (number, within) = block_of(place);
        let (index, last) = match self.find(number) {
            Ok(index) => (index, within.checked_sub(1)),
            Err(index) => (index, None),
        };
        let whole = self.len_before(index);
        last.map_or(whole, |last| whole + self.blocks[index].1.places.rank(last))
    }

    /// How many places are in the blocks before one, added up from the nearer end.
    fn len_before(&self, index: usize) -> u64 {
        let sum = |blocks: Iter<'_, (u64, Block)>| -> u64 { blocks.map(|(_, block)| block.len).sum() };
        if index > self.blocks.len() / 2 {
            self.len - sum(self.blocks.range(index..))
        } else {
            sum(self.blocks.range(..index))
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        self.blocks
            .iter()
            .flat_map(|(number, block)| block.places.iter().map(move |within| place_in(*number, within)))
    }
}

impl FromIterator<u64> for Many {
    fn from_iter<I: IntoIterator<Item = u64>>(places: I) -> Self {
        let mut many = Self::default();
        for place in places {
            many.insert(place);
        }
        many
    }
}

impl PlaceSet {
    /// Adds a place; `false` if it was there.
    pub(in crate::pond) fn insert(&mut self, place: u64) -> bool {
        match self {
            Self::Empty => {
                *self = Self::One(place);
                true
            }
            Self::One(other) if *other == place => false,
            Self::One(other) => {
                let both = vec![place.min(*other), place.max(*other)];
                *self = Self::Several(Box::new(both));
                true
            }
            Self::Several(places) => {
                let Err(index) = places.binary_search(&place) else { return false };
                places.insert(index, place);
                if places.len() > SEVERAL_MAX {
                    *self = Self::Many(Box::new(places.iter().copied().collect()));
                }
                true
            }
            Self::Many(many) => many.insert(place),
        }
    }

    /// Takes a place out; `false` if it was not there.
    pub(in crate::pond) fn remove(&mut self, place: u64) -> bool {
        match self {
            Self::Empty => false,
            Self::One(other) => {
                let known = *other == place;
                if known {
                    *self = Self::Empty;
                }
                known
            }
            Self::Several(places) => {
                let Ok(index) = places.binary_search(&place) else { return false };
                places.remove(index);
                if let [last] = places[..] {
                    *self = Self::One(last);
                }
                true
            }
            Self::Many(many) => {
                let known = many.remove(place);
                if many.len < MANY_MIN {
                    *self = Self::Several(Box::new(many.iter().collect()));
                }
                known
            }
        }
    }

    pub(in crate::pond) fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Several(places) => places.len() as u64,
            Self::Many(many) => many.len,
        }
    }

    pub(in crate::pond) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(in crate::pond) fn contains(&self, place: u64) -> bool {
        match self {
            Self::Empty => false,
            Self::One(other) => *other == place,
            Self::Several(places) => places.binary_search(&place).is_ok(),
            Self::Many(many) => many.contains(place),
        }
    }

    pub(in crate::pond) fn min(&self) -> Option<u64> {
        match self {
            Self::Empty => None,
            Self::One(place) => Some(*place),
            Self::Several(places) => places.first().copied(),
            Self::Many(many) => many.min(),
        }
    }

    pub(in crate::pond) fn max(&self) -> Option<u64> {
        match self {
            Self::Empty => None,
            Self::One(place) => Some(*place),
            Self::Several(places) => places.last().copied(),
            Self::Many(many) => many.max(),
        }
    }

    /// How many places are lower than this one.
    pub(in crate::pond) fn before(&self, place: u64) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(other) => u64::from(*other < place),
            Self::Several(places) => places.partition_point(|other| *other < place) as u64,
            Self::Many(many) => many.before(place),
        }
    }

    /// Its places, from the lowest to the highest.
    pub(in crate::pond) fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Empty => Box::new(std::iter::empty()),
            Self::One(place) => Box::new(std::iter::once(*place)),
            Self::Several(places) => Box::new(places.iter().copied()),
            Self::Many(many) => Box::new(many.iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceSet;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn agree(set: &PlaceSet, expected: &BTreeSet<u64>, probe: u64) {
        assert_eq!(set.len(), expected.len() as u64);
        assert_eq!(set.is_empty(), expected.is_empty());
        assert_eq!((set.min(), set.max()), (expected.first().copied(), expected.last().copied()));
        assert_eq!(set.contains(probe), expected.contains(&probe));
        assert_eq!(set.before(probe), expected.range(..probe).count() as u64);
    }

    #[test]
    fn a_set_that_is_empty_or_small_takes_sixteen_bytes() {
        assert_eq!(size_of::<PlaceSet>(), 16);
    }

    proptest! {
        #[test]
        fn every_form_answers_like_a_plain_set(steps in prop::collection::vec((0..400_u64, any::<bool>()), 1..800)) {
            let (mut set, mut expected) = (PlaceSet::default(), BTreeSet::new());
            for (step, (place, mostly)) in steps.into_iter().enumerate() {
                // It grows, then shrinks, so that it takes every form on both ways.
                if mostly || step < 300 {
                    let place = place * 7919;
                    assert_eq!(set.insert(place), expected.insert(place));
                }
                if step > 250 {
                    let first = expected.range(place..).next().copied().unwrap_or(place);
                    assert_eq!(set.remove(first), expected.remove(&first));
                }
                agree(&set, &expected, place * 7919);
                agree(&set, &expected, place);
            }
            prop_assert!(set.iter().eq(expected.iter().copied()));
        }
    }
}
