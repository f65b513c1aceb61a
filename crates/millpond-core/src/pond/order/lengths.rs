//! How long the lines of a class are, without looking at each of them.
//!
//! Owns counts and sums by length. Must never know whose line it is.

/// Lines by the number of bits of their length: how many there are, and how much is in them.
#[derive(Debug, Default)]
pub(in crate::pond) struct Lengths {
    buckets: Vec<(u64, u64)>,
    lines: u64,
    total: u64,
}

fn bucket_of(len: u64) -> usize {
    (u64::BITS - len.leading_zeros()) as usize
}

impl Lengths {
    /// A line's length has changed; a line of length 0 is none.
    pub(super) fn change(&mut self, from: u64, to: u64) {
        if from > 0 {
            let bucket = &mut self.buckets[bucket_of(from)];
            *bucket = (bucket.0 - 1, bucket.1 - from);
        }
        if to > 0 {
            let index = bucket_of(to);
            if index >= self.buckets.len() {
                self.buckets.resize(index + 1, (0, 0));
            }
            let bucket = &mut self.buckets[index];
            *bucket = (bucket.0 + 1, bucket.1 + to);
        }
        self.lines = self.lines + u64::from(to > 0) - u64::from(from > 0);
        self.total = self.total + to - from;
    }

    /// All that is in the lines.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether these are the same lengths, whatever room was made for longer ones.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let used = |lengths: &Self| {
            let used = lengths.buckets.iter().copied().enumerate().filter(|(_, bucket)| *bucket != (0, 0));
            used.collect::<Vec<_>>()
        };
        (self.lines, self.total) == (other.lines, other.total) && used(self) == used(other)
    }

    /// What goes out of all lines but one of length `own` while each gets at most `turns` turns; too much by less
    /// than half, and exact where all lines are shorter, or all longer.
    pub(super) fn others(&self, own: u64, turns: u64) -> u64 {
        let own_bucket = bucket_of(own);
        let buckets = self.buckets.iter().enumerate();
        buckets.fold(0, |sum, (index, &(count, total))| {
            let is_own = own > 0 && index == own_bucket;
            let (count, total) = if is_own { (count - 1, total - own) } else { (count, total) };
            sum + total.min(count.saturating_mul(turns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Lengths;

    #[test]
    fn what_others_get_is_bounded_by_their_lines_and_by_their_turns() {
        let mut lengths = Lengths::default();
        for len in [1000, 1, 3, 3] {
            lengths.change(0, len);
        }
        assert_eq!((lengths.lines(), lengths.total()), (4, 1007));
        assert_eq!(lengths.others(1000, 1), 3, "each of the others has one turn");
        assert_eq!(lengths.others(1000, 500), 7, "they run out");
        assert_eq!(lengths.others(1, 1), 3);
        assert_eq!(lengths.others(1, 10), 16);
        lengths.change(1000, 0);
        lengths.change(1, 2);
        assert_eq!((lengths.lines(), lengths.total()), (3, 8));
        assert_eq!(lengths.others(0, 100), 8);
    }

    #[test]
    fn a_line_is_not_among_the_others_though_they_are_about_as_long() {
        let mut lengths = Lengths::default();
        for len in [1000, 900, 800] {
            lengths.change(0, len);
        }
        assert_eq!(lengths.others(1000, 1), 2);
        assert_eq!(lengths.others(1000, 5000), 1700);
    }
}
