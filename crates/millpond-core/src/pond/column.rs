//! A column of whole numbers in as few bytes as their spread needs.
//!
//! Owns the width only: values come back as they went in. Must never know what they mean.

use std::collections::VecDeque;

/// Numbers by place. They are kept as distances from a base, all with the width of the largest; numbers that are
/// all the same take no room at all.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    base: i64,
    length: usize,
    cells: Cells,
}

#[derive(Debug, Clone, Default)]
enum Cells {
    /// Every value is the base.
    #[default]
    Same,
    // Rings, for messages leave at the front as a rule.
    Byte(VecDeque<u8>),
    Short(VecDeque<u16>),
    Word(VecDeque<u32>),
    Long(VecDeque<i64>),
}

impl Column {
    /// How many values there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The value at `place`.
    pub(super) fn get(&self, place: usize) -> i64 {
        assert!(place < self.length, "a column of {} values has no place {place}", self.length);
        self.base.wrapping_add(match &self.cells {
            Cells::Same => 0,
            Cells::Byte(cells) => i64::from(cells[place]),
            Cells::Short(cells) => i64::from(cells[place]),
            Cells::Word(cells) => i64::from(cells[place]),
            Cells::Long(cells) => cells[place],
        })
    }

    /// Puts `value` before what is at `place`, or at the end.
    pub(super) fn insert(&mut self, place: usize, value: i64) {
        assert!(place <= self.length, "a column of {} values has no place {place}", self.length);
        if self.length == 0 {
            *self = Self { base: value, ..Self::default() };
        }
        if !self.takes(value) {
            self.widen_for(value);
        }
        let distance = value.wrapping_sub(self.base);
        match &mut self.cells {
            Cells::Same => {}
            Cells::Byte(cells) => cells.insert(place, distance.try_into().expect("it takes the value")),
            Cells::Short(cells) => cells.insert(place, distance.try_into().expect("it takes the value")),
            Cells::Word(cells) => cells.insert(place, distance.try_into().expect("it takes the value")),
            Cells::Long(cells) => cells.insert(place, distance),
        }
        self.length += 1;
    }

    /// Takes out the value at `place`.
    pub(super) fn remove(&mut self, place: usize) {
        assert!(place < self.length, "a column of {} values has no place {place}", self.length);
        self.length -= 1;
        match &mut self.cells {
            Cells::Same => {}
            Cells::Byte(cells) => take(cells, place),
            Cells::Short(cells) => take(cells, place),
            Cells::Word(cells) => take(cells, place),
            Cells::Long(cells) => take(cells, place),
        }
    }

    /// The values in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.length).map(|place| self.get(place))
    }

    /// Bytes on the heap.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.cells {
            Cells::Same => 0,
            Cells::Byte(cells) => cells.capacity(),
            Cells::Short(cells) => cells.capacity() * 2,
            Cells::Word(cells) => cells.capacity() * 4,
            Cells::Long(cells) => cells.capacity() * 8,
        }
    }

    fn takes(&self, value: i64) -> bool {
        let distance = i128::from(value) - i128::from(self.base);
        let most = match self.cells {
            Cells::Same => 0,
            Cells::Byte(_) => i128::from(u8::MAX),
            Cells::Short(_) => i128::from(u16::MAX),
            Cells::Word(_) => i128::from(u32::MAX),
            Cells::Long(_) => return true,
        };
        (0..=most).contains(&distance)
    }

    /// Writes all values again with a base and a width that take `value` too.
    fn widen_for(&mut self, value: i64) {
        let values: Vec<i64> = self.iter().collect();
        let least = values.iter().copied().chain([value]).min().unwrap_or(value);
        let most = values.iter().copied().chain([value]).max().unwrap_or(value);
        let spread = i128::from(most) - i128::from(least);
        self.base = least;
        let distances = values.iter().map(|value| value.wrapping_sub(least));
        self.cells = if spread <= i128::from(u8::MAX) {
            Cells::Byte(narrow(distances))
        } else if spread <= i128::from(u16::MAX) {
            Cells::Short(narrow(distances))
        } else if spread <= i128::from(u32::MAX) {
            Cells::Word(narrow(distances))
        } else {
            self.base = 0;
            Cells::Long(values.into())
        };
    }
}

fn narrow<T: TryFrom<i64>>(distances: impl Iterator<Item = i64>) -> VecDeque<T> {
    distances.map(|distance| T::try_from(distance).ok().expect("the spread fits")).collect()
}

/// Removes one cell, and gives room back once three quarters of it are unused.
fn take<T>(cells: &mut VecDeque<T>, place: usize) {
    cells.remove(place);
    if cells.len() * 4 < cells.capacity() && cells.capacity() > 16 {
        cells.shrink_to(cells.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::Column;
    use proptest::prelude::*;

    #[test]
    fn equal_values_take_no_room_and_close_ones_a_byte() {
        let mut column = Column::default();
        for _ in 0..1000 {
            column.insert(0, 1_800_000_000_000_000);
        }
        assert_eq!((column.len(), column.heap_bytes()), (1000, 0));
        column.insert(500, 1_800_000_000_000_007);
        assert!(column.heap_bytes() <= 2048, "{}", column.heap_bytes());
        assert_eq!(column.get(500), 1_800_000_000_000_007);
        assert_eq!(column.get(501), 1_800_000_000_000_000);
    }

    proptest! {
        #[test]
        fn a_column_behaves_like_a_list(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), prop_oneof![
                4 => 0..10_i64, 3 => -300..300_i64, 2 => 0..100_000_i64, 1 => any::<i64>(),
            ]), 0..200)
        ) {
            let mut column = Column::default();
            let mut list = Vec::new();
            for (insert, place, value) in steps {
                if insert || list.is_empty() {
                    let place = place.index(list.len() + 1);
                    list.insert(place, value);
                    column.insert(place, value);
                } else {
                    let place = place.index(list.len());
                    list.remove(place);
                    column.remove(place);
                }
                prop_assert_eq!(column.iter().collect::<Vec<_>>(), list.clone());
            }
        }
    }
}
