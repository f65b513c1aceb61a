//! A compact store of facts about messages, by their numbers.
//!
//! Owns the form: what many share is written once, what differs lies in columns, page by page. Must never know what
//! the values mean.

use super::column::Column;
use crate::identity::Seq;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Numbers per page: a page with a single message left takes about as much as one that is kept in full.
const PAGE_NUMBERS: u64 = 1024;
const WORDS: usize = (PAGE_NUMBERS / 64) as usize;

/// Every kind in use, by number, with how many messages are of it.
#[derive(Debug)]
struct Kinds<K> {
    entries: Vec<(K, u64)>,
    numbers: BTreeMap<K, usize>,
    free: Vec<usize>,
    latest: usize,
}

impl<K: Ord + Clone> Kinds<K> {
    fn count_in(&mut self, kind: &K) -> usize {
        let latest = self.entries.get(self.latest);
        let same_again = latest.is_some_and(|(latest, count)| *count > 0 && latest == kind);
        if !same_again {
            self.latest = match self.numbers.get(kind) {
                Some(&number) => number,
                None => self.add(kind),
            };
        }
        self.entries[self.latest].1 += 1;
        self.latest
    }

    fn add(&mut self, kind: &K) -> usize {
        let number = self.free.pop().unwrap_or(self.entries.len());
        if number == self.entries.len() {
            self.entries.push((kind.clone(), 0));
        } else {
            self.entries[number] = (kind.clone(), 0);
        }
        self.numbers.insert(kind.clone(), number);
        number
    }

    fn count_out(&mut self, number: usize) {
        let (kind, count) = &mut self.entries[number];
        *count -= 1;
        if *count == 0 {
            if self.numbers.get(kind) == Some(&number) {
                self.numbers.remove(kind);
            }
            self.free.push(number);
        }
    }
}

/// The messages with the numbers of one page, in their order.
#[derive(Debug)]
struct Page<const N: usize> {
    present: [u64; WORDS],
    kind: Column,
    values: [Column; N],
}

impl<const N: usize> Default for Page<N> {
    fn default() -> Self {
        let values = std::array::from_fn(|_| Column::default());
        Self { present: [0; WORDS], kind: Column::default(), values }
    }
}

impl<const N: usize> Page<N> {
    fn has(&self, bit: usize) -> bool {
        self.present[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// How many messages come before `bit`.
    fn rank(&self, bit: usize) -> usize {
        let whole: u32 = self.present[..bit / 64].iter().map(|word| word.count_ones()).sum();
        let partial = self.present[bit / 64] & ((1 << (bit % 64)) - 1);
        (whole + partial.count_ones()) as usize
    }

    fn is_empty(&self) -> bool {
        self.present.iter().all(|word| *word == 0)
    }

    fn kind_at(&self, rank: usize) -> usize {
        usize::try_from(self.kind.get(rank)).expect("written from one")
    }

    fn values_at(&self, rank: usize) -> [i64; N] {
        std::array::from_fn(|column| self.values[column].get(rank))
    }

    /// The set bits from `bit` on.
    fn bits_from(&self, bit: usize) -> impl Iterator<Item = usize> {
        let mut word = bit / 64;
        let mut rest = self.present.get(word).map_or(0, |bits| bits & (u64::MAX << (bit % 64)));
        std::iter::from_fn(move || {
            while rest == 0 {
                word += 1;
                rest = *self.present.get(word)?;
            }
            let found = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(word * 64 + found)
        })
    }
}

fn page_of(seq: Seq) -> (u64, usize) {
    (seq.0 / PAGE_NUMBERS, (seq.0 % PAGE_NUMBERS) as usize)
}

/// A kind and `N` values for each of many messages.
#[derive(Debug)]
pub(super) struct Shelf<K, const N: usize> {
    pages: BTreeMap<u64, Page<N>>,
    kinds: Kinds<K>,
    length: usize,
}

impl<K, const N: usize> Default for Shelf<K, N> {
    fn default() -> Self {
        let (numbers, entries, free) = (BTreeMap::new(), Vec::new(), Vec::new());
        let kinds = Kinds { entries, numbers, free, latest: 0 };
        Self { pages: BTreeMap::new(), kinds, length: 0 }
    }
}

impl<K: Ord + Clone, const N: usize> Shelf<K, N> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        let (number, bit) = page_of(seq);
        self.pages.get(&number).is_some_and(|page| page.has(bit))
    }

    /// Adds a message that is not there.
    pub(super) fn add(&mut self, seq: Seq, kind: &K, values: [i64; N]) {
        let (number, bit) = page_of(seq);
        let page = self.pages.entry(number).or_default();
        assert!(!page.has(bit), "message {seq:?} is kept twice");
        let rank = page.rank(bit);
        page.present[bit / 64] |= 1 << (bit % 64);
        let kind = self.kinds.count_in(kind);
        page.kind.insert(rank, i64::try_from(kind).expect("kinds are fewer than messages"));
        for (column, value) in page.values.iter_mut().zip(values) {
            column.insert(rank, value);
        }
        self.length += 1;
    }

    pub(super) fn get(&self, seq: Seq) -> Option<(&K, [i64; N])> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get(&number).filter(|page| page.has(bit))?;
        let rank = page.rank(bit);
        Some((&self.kinds.entries[page.kind_at(rank)].0, page.values_at(rank)))
    }

    /// Takes a message out.
    pub(super) fn take(&mut self, seq: Seq) -> Option<(&K, [i64; N])> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get_mut(&number).filter(|page| page.has(bit))?;
        let rank = page.rank(bit);
        let (kind, values) = (page.kind_at(rank), page.values_at(rank));
        page.present[bit / 64] &= !(1 << (bit % 64));
        page.kind.remove(rank);
        for column in &mut page.values {
            column.remove(rank);
        }
        if page.is_empty() {
            self.pages.remove(&number);
        }
        self.length -= 1;
        self.kinds.count_out(kind);
        Some((&self.kinds.entries[kind].0, values))
    }

    /// The numbers of the messages from `from` on, in order.
    pub(super) fn numbers_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        let first = match from {
            Bound::Included(seq) => seq.0,
            Bound::Excluded(seq) => seq.0 + 1,
            Bound::Unbounded => 0,
        };
        let (start, skip) = page_of(Seq(first));
        self.pages.range(start..).flat_map(move |(&number, page)| {
            let from = if number == start { skip } else { 0 };
            page.bits_from(from).map(move |bit| Seq(number * PAGE_NUMBERS + bit as u64))
        })
    }

    /// Every message.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &K, [i64; N])> {
        self.pages.iter().flat_map(move |(&number, page)| {
            page.bits_from(0).enumerate().map(move |(rank, bit)| {
                let kind = &self.kinds.entries[page.kind_at(rank)].0;
                (Seq(number * PAGE_NUMBERS + bit as u64), kind, page.values_at(rank))
            })
        })
    }

    /// The kinds of which there are messages.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &K> {
        self.kinds.numbers.keys()
    }

    /// Changes every kind of which there are messages.
    pub(super) fn change_kinds(&mut self, mut change: impl FnMut(&mut K)) {
        self.kinds.numbers.clear();
        for (number, (kind, count)) in self.kinds.entries.iter_mut().enumerate() {
            if *count > 0 {
                change(kind);
                // Two that have become the same are both kept: either number serves the next one.
                self.kinds.numbers.insert(kind.clone(), number);
            }
        }
    }

    /// Bytes on the heap, roughly.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let columns = |page: &Page<N>| page.values.iter().map(Column::heap_bytes).sum::<usize>();
        let page = |page: &Page<N>| size_of::<Page<N>>() + 16 + page.kind.heap_bytes() + columns(page);
        self.pages.values().map(page).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Shelf;
    use crate::identity::Seq;

    #[test]
    fn every_message_is_listed_under_its_number_whatever_page_it_is_on() {
        let mut shelf = Shelf::<u8, 1>::default();
        for (number, value) in [(5, 50), (1024, -7), (3000, 9)] {
            shelf.add(Seq(number), &7, [value]);
        }
        let listed: Vec<_> = shelf.iter().map(|(seq, kind, values)| (seq.0, *kind, values)).collect();
        assert_eq!(listed, [(5, 7, [50]), (1024, 7, [-7]), (3000, 7, [9])]);
        assert_eq!(
            shelf.numbers_from(std::ops::Bound::Excluded(Seq(5))).map(|seq| seq.0).collect::<Vec<_>>(),
            [1024, 3000]
        );
    }
}
