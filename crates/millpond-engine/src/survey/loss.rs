//! How much may be lost beside what is lost by name.
//!
//! Owns the bounds: how many messages can have lain in damaged places, and with which numbers. Must never say less than
//! can have been lost: where nothing tells, it says so.

use super::{LISTED_MAX, UnknownNumbers};
use millpond_core::identity::Seq;
use millpond_journal::inspect::{Fault, FaultKind, Inspection};
use millpond_journal::{Options, SECTOR_BYTES};
use roaring::RoaringTreemap;

/// A message's record is longer than this: so many bytes that are lost were at most so many messages.
const MESSAGE_BYTES_MIN: u64 = 64;
/// Where nothing tells how many numbers were given out, those from so far behind the last one on count as unused: the
/// work of a day at 50,000 messages a second.
const FAR: u64 = 1 << 32;

/// What may be lost without a name.
pub(super) struct Loss {
    pub(super) unknown: Vec<UnknownNumbers>,
    pub(super) unidentified_max: Option<u64>,
    pub(super) unused_from: u64,
}

impl Loss {
    /// Nothing of the log is left.
    pub(super) fn of_everything() -> Self {
        let unknown = vec![UnknownNumbers { first: Seq(1), last: None }];
        Self { unknown, unidentified_max: None, unused_from: FAR }
    }
}

/// The numbers that a log speaks of, and what was known of them around damage.
///
/// Numbers are given out in order, so whatever is lost in a damaged place had numbers below those that can have been
/// given out by then: what was met before, and one more for every record that can have been in any damaged place so far.
/// And in a log that still has its first segment, a number that had been given out before all damage was met before it:
/// full copies move only when the oldest segment is given up.
#[derive(Debug)]
pub(super) struct Numbers {
    met: RoaringTreemap,
    /// Numbers below this one were given out.
    given_out: u64,
    /// A boot was met, which says what was given out before.
    exact: bool,
    /// What `given_out` was before any damage.
    before_damage: Option<u64>,
    /// What `given_out` and `exact` were at the last damage.
    at_damage: Option<(u64, bool)>,
    /// What the first boot since then says.
    boot_since: Option<u64>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            met: RoaringTreemap::new(),
            given_out: 1,
            exact: false,
            before_damage: None,
            at_damage: None,
            boot_since: None,
        }
    }
}

impl Numbers {
    /// A record speaks of this message or place.
    pub(super) fn meet(&mut self, number: u64) {
        self.met.insert(number);
        self.given_out = self.given_out.max(number.saturating_add(1));
    }

    /// A boot: numbers from `next` on were not given out yet.
    pub(super) fn boot(&mut self, next: u64) {
        self.given_out = self.given_out.max(next);
        self.exact = true;
        if self.at_damage.is_some() {
            self.boot_since.get_or_insert(next);
        }
    }

    /// Something is damaged behind what was met so far.
    pub(super) fn damaged(&mut self) {
        self.before_damage.get_or_insert(self.given_out);
        self.at_damage = Some((self.given_out, self.exact));
        self.boot_since = None;
    }

    /// What that comes to, once all was met: `undecodable` records cannot be read, and of the messages
    /// `may_be_forgotten` nothing but their death is known, so that they were forgotten since, or their copies are lost.
    pub(super) fn lost(
        mut self,
        inspection: &Inspection,
        undecodable: u64,
        may_be_forgotten: &[Seq],
    ) -> Loss {
        let records = unaccounted_bytes(inspection).div_ceil(MESSAGE_BYTES_MIN).saturating_add(undecodable);
        if records == 0 {
            return Loss { unknown: Vec::new(), unidentified_max: Some(0), unused_from: self.given_out };
        }
        if is_end_open(inspection) {
            self.damaged();
        }
        for seq in may_be_forgotten {
            self.met.remove(seq.0);
        }
        let begins = match inspection.oldest {
            0 => inspection.segments.first().is_some_and(|first| first.number == 1),
            oldest => oldest == 1,
        };
        let first = if begins { self.before_damage.unwrap_or(1) } else { 1 };
        let reached = match self.at_damage {
            Some((given_out, exact)) if exact || begins => Some(given_out.saturating_add(records)),
            _ => None,
        };
        let end = [reached, self.boot_since].into_iter().flatten().min();
        let first = may_be_forgotten.iter().map(|seq| seq.0).fold(first, u64::min);
        let end = end.map(|end| may_be_forgotten.iter().map(|seq| seq.0 + 1).fold(end, u64::max));
        let unknown = gaps(&self.met, first, end);
        let numbers = unknown.iter().try_fold(0_u64, |sum, range| {
            range.last.map(|last| sum.saturating_add(last.0 - range.first.0 + 1))
        });
        Loss {
            unidentified_max: Some(numbers.map_or(records, |numbers| numbers.min(records))),
            unused_from: self.given_out.max(end.unwrap_or_else(|| self.given_out.saturating_add(FAR))),
            unknown,
        }
    }
}

/// The numbers from `first` on, up to before `end`, that are not in `met`.
fn gaps(met: &RoaringTreemap, first: u64, end: Option<u64>) -> Vec<UnknownNumbers> {
    let mut gaps = Vec::new();
    let mut next = first;
    for number in met.iter().skip_while(|&number| number < first) {
        if end.is_some_and(|end| number >= end) {
            break;
        }
        if number > next {
            add(&mut gaps, next, Some(number - 1));
        }
        next = number + 1;
    }
    if end.is_none_or(|end| next < end) {
        add(&mut gaps, next, end.map(|end| end - 1));
    }
    gaps
}

/// Adds a range; where there are too many, the last one takes it in.
fn add(gaps: &mut Vec<UnknownNumbers>, first: u64, last: Option<u64>) {
    let last = last.map(Seq);
    if gaps.len() < LISTED_MAX {
        gaps.push(UnknownNumbers { first: Seq(first), last });
    } else if let Some(range) = gaps.last_mut() {
        range.last = last;
    }
}

/// Segments as long as those of this log.
pub(crate) fn segment_bytes(inspection: &Inspection) -> u32 {
    let made = inspection.faults.iter().filter_map(|fault| match fault.kind {
        FaultKind::Length { expected, .. } => expected,
        _ => None,
    });
    let found = inspection.segments.iter().filter_map(|segment| u32::try_from(segment.bytes).ok());
    let possible = made.chain(found).filter(|&bytes| Options::is_possible(bytes));
    possible.max().unwrap_or_else(|| Options::default().segment_bytes)
}

/// At most so many bytes of records are lost of which no index tells.
fn unaccounted_bytes(inspection: &Inspection) -> u64 {
    let faults = inspection.faults.iter().filter(|fault| !is_known(inspection, fault));
    let open = inspection.segments.iter().map(|segment| segment.open_bytes);
    let bytes = faults.map(|fault| lost_bytes(inspection, fault)).chain(open).fold(0, u64::saturating_add);
    // Faults that were not listed are of the same kinds.
    bytes.saturating_add(inspection.further_faults.saturating_mul(u64::from(segment_bytes(inspection))))
}

/// At most so many bytes of the log are lost with `fault`.
fn lost_bytes(inspection: &Inspection, fault: &Fault) -> u64 {
    let segment = u64::from(segment_bytes(inspection));
    match fault.kind {
        FaultKind::Index => 0,
        FaultKind::MissingSegments { count } => segment.saturating_mul(u64::from(count)),
        // Nothing tells how many frames were in the place of those that follow, or of nothing.
        FaultKind::Gap | FaultKind::Chain => segment,
        FaultKind::Length { found, expected } => {
            let made = expected.map_or(segment, u64::from);
            let sectors = found - found % u64::from(SECTOR_BYTES);
            let short = made.saturating_sub(sectors);
            // What is left of a file that looks as if it was not begun may have been written as well.
            match inspection.end.filter(|end| *end <= fault.place) {
                Some(end) if short > 0 && end.segment == fault.place.segment => {
                    made.saturating_sub(u64::from(end.offset))
                }
                Some(_) if short > 0 => made,
                _ => short,
            }
        }
        _ => fault.bytes,
    }
}

/// Whether an index has told of every record that is lost with `fault`.
fn is_known(inspection: &Inspection, fault: &Fault) -> bool {
    let segment = fault.place.segment;
    let of_segment = |other: &&Fault| other.place.segment == segment;
    let index_is_whole =
        !inspection.faults.iter().filter(of_segment).any(|other| other.kind == FaultKind::Index);
    let has_index =
        || inspection.segments.iter().any(|found| found.number == segment && found.index_bytes > 0);
    match fault.kind {
        FaultKind::Frame | FaultKind::Unreadable | FaultKind::Length { .. } => index_is_whole && has_index(),
        FaultKind::MissingSegments { count: 1 } => {
            index_is_whole && fault.heads_found + fault.records_found > 0
        }
        _ => false,
    }
}

/// Whether frames may have been behind the log's end.
fn is_end_open(inspection: &Inspection) -> bool {
    let Some(end) = inspection.end else { return false };
    inspection.segments.iter().any(|segment| segment.number >= end.segment && segment.open_bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(unknown: &[UnknownNumbers]) -> Vec<(u64, Option<u64>)> {
        unknown.iter().map(|range| (range.first.0, range.last.map(|last| last.0))).collect()
    }

    /// A log whose last frame says that it begins with segment `oldest`, and of which `bytes` are lost.
    fn inspection(oldest: u32, bytes: u64) -> Inspection {
        let place = millpond_journal::Place { segment: 7, offset: 512 };
        let kind = FaultKind::Frame;
        let fault = Fault { place, kind, bytes, frames: 1, records_found: 0, heads_found: 0 };
        Inspection { oldest, frames: 9, faults: vec![fault], ..Inspection::default() }
    }

    #[test]
    fn numbers_begin_at_one() {
        let mut numbers = Numbers::default();
        numbers.damaged();
        let loss = numbers.lost(&inspection(1, 128), 0, &[]);
        assert_eq!(ranges(&loss.unknown), [(1, Some(2))]);
        assert_eq!((loss.unidentified_max, loss.unused_from), (Some(2), 3));
    }

    #[test]
    fn a_change_of_a_lost_message_does_not_end_the_search_for_others() {
        let mut numbers = Numbers::default();
        for number in 1..=9 {
            numbers.meet(number);
        }
        numbers.damaged();
        // Ten to twenty are lost; one of them is changed before the next one is accepted.
        numbers.meet(15);
        numbers.meet(21);
        let loss = numbers.lost(&inspection(1, 11 * 64), 0, &[]);
        assert_eq!(ranges(&loss.unknown), [(10, Some(14)), (16, Some(20))]);
    }

    #[test]
    fn copies_from_segments_that_were_given_up_may_be_lost_with_any_smaller_number() {
        let lost = |oldest| {
            let mut numbers = Numbers::default();
            numbers.boot(1);
            for number in [3, 4, 9, 10] {
                numbers.meet(number);
            }
            numbers.damaged();
            numbers.meet(13);
            numbers.lost(&inspection(oldest, 64), 0, &[])
        };
        assert_eq!(ranges(&lost(1).unknown), [(11, Some(11))]);
        let reclaimed = lost(2);
        assert_eq!(ranges(&reclaimed.unknown), [(1, Some(2)), (5, Some(8)), (11, Some(11))]);
        assert_eq!(reclaimed.unidentified_max, Some(1));
    }

    #[test]
    fn without_a_boot_nothing_tells_where_the_numbers_of_a_log_without_its_beginning_end() {
        let mut numbers = Numbers::default();
        numbers.meet(5);
        numbers.damaged();
        let loss = numbers.lost(&inspection(2, 64), 0, &[]);
        assert_eq!(ranges(&loss.unknown), [(1, Some(4)), (6, None)]);
        assert_eq!((loss.unidentified_max, loss.unused_from), (Some(1), 6 + FAR));
        let mut numbers = Numbers::default();
        numbers.damaged();
        numbers.boot(8);
        numbers.meet(20);
        assert_eq!(ranges(&numbers.lost(&inspection(2, 6400), 0, &[]).unknown), [(1, Some(7))]);
    }

    #[test]
    fn one_of_which_only_its_death_is_known_may_be_lost() {
        let mut numbers = Numbers::default();
        for number in 1..=9 {
            numbers.meet(number);
        }
        numbers.damaged();
        numbers.boot(10);
        assert_eq!(ranges(&numbers.lost(&inspection(3, 64), 0, &[Seq(4)]).unknown), [(4, Some(4))]);
    }

    #[test]
    fn too_many_ranges_become_one_that_takes_in_all_of_them() {
        let met: RoaringTreemap = (1..=3 * LISTED_MAX as u64).map(|number| 2 * number).collect();
        let gaps = gaps(&met, 1, Some(10 * LISTED_MAX as u64));
        assert_eq!(gaps.len(), LISTED_MAX);
        assert_eq!(gaps[LISTED_MAX - 1].last, Some(Seq(10 * LISTED_MAX as u64 - 1)));
    }
}
