//! Where every key's newest anchor lies, in few bytes.
//!
//! Owns the pages in which keys are kept. Exact: what was put in comes out, whatever its size. Must never count live
//! bytes or decide anything: that is the index's.
//!
//! Keys are handed out one after the other and go in about that order, so they are dense. A page holds 4096 consecutive
//! keys: as three arrays (a code for the segment, offset, length: 7 bytes a key) while many of them are there, as a
//! sorted list (16 bytes a key) while few are, and not at all when none is. What does not fit into the arrays (a segment
//! beyond the page's first few, a long record) has an entry of its own.

use crate::format::Position;
use std::collections::BTreeMap;

/// Keys in a page.
const PAGE_KEYS: usize = 4096;
/// A list with more entries than this becomes arrays: from there on these are smaller.
const LIST_MAX: usize = PAGE_KEYS * 7 / 16;
/// Arrays with fewer entries than this become a list. Well below the other bound, so that no page goes to and fro.
const ARRAYS_MIN: usize = LIST_MAX / 2;
/// Codes of segments that a page can tell apart in its arrays.
const SEGMENTS_MAX: usize = 250;
const CODE_NONE: u8 = 0;
/// The position is among those of the side map.
const CODE_ASIDE: u8 = 255;

/// From key to position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Anchors {
    pages: BTreeMap<u64, Page>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Page {
    /// Sorted by key within the page.
    List(Vec<(u16, Position)>),
    Arrays(Box<Arrays>),
}

#[derive(Clone, Debug)]
struct Arrays {
    codes: [u8; PAGE_KEYS],
    offsets: [u32; PAGE_KEYS],
    lengths: [u16; PAGE_KEYS],
    /// The segments that codes from 1 stand for, with the number of keys that have the code.
    segments: Vec<(u32, u16)>,
    aside: BTreeMap<u16, Position>,
    len: u16,
}

impl Anchors {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u64) -> Option<Position> {
        let (page, slot) = split(key);
        self.pages.get(&page)?.get(slot)
    }

    /// Sets a key's position and returns the one it had.
    pub(crate) fn insert(&mut self, key: u64, position: Position) -> Option<Position> {
        let (number, slot) = split(key);
        let page = self.pages.entry(number).or_insert_with(|| Page::List(Vec::new()));
        let before = page.insert(slot, position);
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<Position> {
        let (number, slot) = split(key);
        let page = self.pages.get_mut(&number)?;
        let before = page.remove(slot)?;
        if page.len() == 0 {
            self.pages.remove(&number);
        }
        self.len -= 1;
        Some(before)
    }

    /// Every key with its position, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Position)> {
        self.pages
            .iter()
            .flat_map(|(&number, page)| page.entries().map(move |(slot, at)| (join(number, slot), at)))
    }

    /// The keys from `from` on whose positions lie in `segment`, in order. Looks only into pages that have any.
    pub(crate) fn keys_in(&self, segment: u32, from: u64) -> impl Iterator<Item = (u64, Position)> {
        let pages = self.pages.range(split(from).0..).filter(move |(_, page)| page.may_have(segment));
        pages
            .flat_map(|(&number, page)| page.entries().map(move |(slot, at)| (join(number, slot), at)))
            .filter(move |&(key, position)| position.segment == segment && key >= from)
    }

    /// Bytes of memory that the pages take, for whoever measures.
    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        let page = |page: &Page| match page {
            Page::List(list) => list.capacity() * size_of::<(u16, Position)>(),
            Page::Arrays(arrays) => {
                size_of::<Arrays>()
                    + arrays.segments.capacity() * 8
                    + arrays.aside.len() * 2 * size_of::<Position>()
            }
        };
        self.pages.values().map(|each| page(each) + size_of::<(u64, Page)>()).sum()
    }
}

fn split(key: u64) -> (u64, u16) {
    let slot = u16::try_from(key % PAGE_KEYS as u64).expect("less than the keys of a page");
    (key / PAGE_KEYS as u64, slot)
}

fn join(page: u64, slot: u16) -> u64 {
    page * PAGE_KEYS as u64 + u64::from(slot)
}

impl Page {
    fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Arrays(arrays) => usize::from(arrays.len),
        }
    }

    fn get(&self, slot: u16) -> Option<Position> {
        match self {
            Self::List(list) => {
                let at = list.binary_search_by_key(&slot, |(slot, _)| *slot).ok()?;
                Some(list[at].1)
            }
            Self::Arrays(arrays) => arrays.get(slot),
        }
    }

    fn insert(&mut self, slot: u16, position: Position) -> Option<Position> {
        match self {
            Self::List(list) => {
                let at = match list.binary_search_by_key(&slot, |(slot, _)| *slot) {
                    Ok(at) => return Some(std::mem::replace(&mut list[at].1, position)),
                    Err(at) => at,
                };
                if list.len() < LIST_MAX {
                    list.insert(at, (slot, position));
                } else {
                    let mut arrays = Arrays::of(list);
                    arrays.insert(slot, position);
                    *self = Self::Arrays(arrays);
                }
                None
            }
            Self::Arrays(arrays) => arrays.insert(slot, position),
        }
    }

    fn remove(&mut self, slot: u16) -> Option<Position> {
        match self {
            Self::List(list) => {
                let at = list.binary_search_by_key(&slot, |(slot, _)| *slot).ok()?;
                let (_, position) = list.remove(at);
                if list.len() * 4 < list.capacity() {
                    list.shrink_to(list.len() * 2);
                }
                Some(position)
            }
            Self::Arrays(arrays) => {
                let position = arrays.remove(slot)?;
                if usize::from(arrays.len) < ARRAYS_MIN {
                    *self = Self::List(self.entries().collect());
                }
                Some(position)
            }
        }
    }

    /// The slots that are taken, in order, with their positions.
    fn entries(&self) -> impl Iterator<Item = (u16, Position)> {
        let (list, arrays) = match self {
            Self::List(list) => (Some(list), None),
            Self::Arrays(arrays) => (None, Some(arrays)),
        };
        let listed = list.into_iter().flatten().copied();
        let taken = arrays.into_iter().flat_map(|arrays| {
            let taken = (0_u16..).zip(&arrays.codes).filter(|(_, code)| **code != CODE_NONE);
            taken.filter_map(|(slot, _)| Some((slot, arrays.get(slot)?)))
        });
        listed.chain(taken)
    }

    fn may_have(&self, segment: u32) -> bool {
        match self {
            Self::List(_) => true,
            Self::Arrays(arrays) => {
                !arrays.aside.is_empty()
                    || arrays.segments.iter().any(|&(number, keys)| number == segment && keys > 0)
            }
        }
    }
}

impl Arrays {
    fn of(list: &[(u16, Position)]) -> Box<Self> {
        let mut arrays = Box::new(Self {
            codes: [CODE_NONE; PAGE_KEYS],
            offsets: [0; PAGE_KEYS],
            lengths: [0; PAGE_KEYS],
            segments: Vec::new(),
            aside: BTreeMap::new(),
            len: 0,
        });
        for &(slot, position) in list {
            arrays.insert(slot, position);
        }
        arrays
    }

    fn get(&self, slot: u16) -> Option<Position> {
        let at = usize::from(slot);
        match self.codes[at] {
            CODE_NONE => None,
            CODE_ASIDE => self.aside.get(&slot).copied(),
            code => {
                let (segment, _) = self.segments[usize::from(code) - 1];
                Some(Position { segment, offset: self.offsets[at], length: u32::from(self.lengths[at]) })
            }
        }
    }

    fn insert(&mut self, slot: u16, position: Position) -> Option<Position> {
        let before = self.remove(slot);
        let at = usize::from(slot);
        let fits = (u16::try_from(position.length), self.code_for(position.segment));
        if let (Ok(length), Some(code)) = fits {
            self.segments[usize::from(code) - 1].1 += 1;
            (self.codes[at], self.offsets[at], self.lengths[at]) = (code, position.offset, length);
        } else {
            self.codes[at] = CODE_ASIDE;
            self.aside.insert(slot, position);
        }
        self.len += 1;
        before
    }

    fn remove(&mut self, slot: u16) -> Option<Position> {
        let position = self.get(slot)?;
        match std::mem::replace(&mut self.codes[usize::from(slot)], CODE_NONE) {
            CODE_ASIDE => drop(self.aside.remove(&slot)),
            code => self.segments[usize::from(code) - 1].1 -= 1,
        }
        self.len -= 1;
        Some(position)
    }

    /// The code that stands for `segment`; one that nobody uses any more is given another meaning.
    fn code_for(&mut self, segment: u32) -> Option<u8> {
        let known = self.segments.iter().position(|&(number, _)| number == segment);
        let at = known.or_else(|| {
            let unused = self.segments.iter().position(|&(_, keys)| keys == 0);
            if let Some(at) = unused {
                self.segments[at].0 = segment;
            } else if self.segments.len() < SEGMENTS_MAX {
                self.segments.push((segment, 0));
                return Some(self.segments.len() - 1);
            }
            unused
        })?;
        u8::try_from(at + 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(segment: u32, offset: u32, length: u32) -> Position {
        Position { segment, offset, length }
    }

    fn step() -> impl Strategy<Value = (u64, Option<Position>)> {
        // Two pages, few segments or very many, lengths around what the arrays hold.
        let key = prop_oneof![4 => 0_u64..3000, 1 => 4000_u64..8300, 1 => any::<u64>()];
        let segment = prop_oneof![3 => 1_u32..5, 1 => 1_u32..2000];
        let length = prop_oneof![4 => 0_u32..2000, 1 => 65_530_u32..65_540, 1 => any::<u32>()];
        let placed = (segment, any::<u32>(), length).prop_map(|(a, b, c)| position(a, b, c));
        (key, proptest::option::weighted(0.7, placed))
    }

    /// Many keys at once, so that pages change their form.
    fn run() -> impl Strategy<Value = Vec<(u64, Option<Position>)>> {
        prop_oneof![
            20 => step().prop_map(|step| vec![step]),
            1 => (0_u64..3, 1_u32..5).prop_map(|(page, segment)| {
                (0..2500).map(|slot| (page * 4096 + slot, Some(position(segment, 9, 8)))).collect()
            }),
            1 => (0_u64..3).prop_map(|page| (0..2400).map(|slot| (page * 4096 + slot, None)).collect()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_map(runs in proptest::collection::vec(run(), 1..40)) {
            let mut anchors = Anchors::default();
            let mut model = BTreeMap::new();
            for (key, step) in runs.into_iter().flatten() {
                let (before, expected) = match step {
                    Some(position) => (anchors.insert(key, position), model.insert(key, position)),
                    None => (anchors.remove(key), model.remove(&key)),
                };
                prop_assert_eq!(before, expected);
                prop_assert_eq!(anchors.get(key), model.get(&key).copied());
            }
            prop_assert_eq!(anchors.len(), model.len());
            prop_assert!(anchors.iter().eq(model.iter().map(|(key, position)| (*key, *position))));
            for segment in [1, 2, 7] {
                let expected = model.iter().filter(|(key, position)| position.segment == segment && **key >= 100);
                let expected = expected.map(|(key, position)| (*key, *position));
                prop_assert!(anchors.keys_in(segment, 100).eq(expected));
            }
        }
    }

    fn filled(keys: u64, segment_of: impl Fn(u64) -> u32) -> Anchors {
        let mut anchors = Anchors::default();
        for key in 0..keys {
            anchors.insert(key, position(segment_of(key), 64, 330));
        }
        anchors
    }

    #[test]
    fn dense_keys_take_about_seven_bytes_each_and_stragglers_few() {
        let mut anchors = filled(1_000_000, |key| u32::try_from(key / 200_000).unwrap());
        let bytes_per_key = anchors.heap_bytes() * 100 / anchors.len();
        assert!(bytes_per_key <= 710, "{bytes_per_key} hundredths");
        for key in (0..1_000_000).filter(|key| key % 1000 != 0) {
            anchors.remove(key);
        }
        let bytes_per_key = anchors.heap_bytes() / anchors.len();
        assert!(bytes_per_key <= 64, "{bytes_per_key} for one key in a thousand");
        for key in (0..1_000_000).step_by(1000) {
            anchors.remove(key);
        }
        assert_eq!((anchors.heap_bytes(), anchors.len()), (0, 0));
    }

    #[test]
    fn keys_spread_over_very_many_segments_are_exact_all_the_same() {
        let anchors = filled(4096, |key| u32::try_from(key).unwrap());
        assert!((0..4096).all(|key| anchors.get(key).unwrap().segment == u32::try_from(key).unwrap()));
        assert_eq!(anchors.keys_in(4000, 0).count(), 1);
    }
}
