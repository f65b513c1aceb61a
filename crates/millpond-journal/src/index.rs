//! From key to newest anchor, and which segment can go.
//!
//! Owns the count of live bytes per segment and the rule that only the oldest segment is ever deleted, with no
//! live anchor in it. Pure data: must never do I/O or know what a record means.

use crate::{anchors::Anchors, format::Position};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

/// Most keys in one [`Reclaim::Copy`]: a group of this many copies delays a waiting group by few milliseconds.
const COPY_KEYS_MAX: usize = 256;
/// Most bytes of records in one [`Reclaim::Copy`], but for a single larger record.
const COPY_BYTES_MAX: u64 = 256 * 1024;
/// The same on a full disk, where every group's header and padding is taken from the room that is to be won.
const COPY_KEYS_MAX_FULL: usize = 4096;
const COPY_BYTES_MAX_FULL: u64 = 4 * 1024 * 1024;
/// Segments that the log may have beyond twice its live bytes before anything is copied, together with the file that is
/// kept to be used again. One more is prepared ahead, which makes the promised bound of `2 × live + 4 segments` on disk.
const SPARE_SEGMENTS: u64 = 3;

/// Why room shall be won back although the bound does not ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// There is no reason.
    None,
    /// The disk is full, and copying what is alive in the oldest segment is worthwhile.
    Oldest,
    /// The disk is full, and going all the way round wins something back.
    Round {
        /// So many bytes.
        gain_bytes: u64,
        /// It is not worthwhile for less.
        gain_bytes_min: u64,
    },
}

/// Copying all the way round the ring for something that is too much. Records have headers and groups padding, so a
/// round may end with no less than it began with: then there is no use in another one before there is more.
///
/// What others did meanwhile says nothing of that. So from what a round ends with is taken off what they wrote, and
/// what they let die. If what is left could still be within the bound, or is clearly less than the round began with,
/// another round follows at once: either others have paid for it, by writing, or it brings the end nearer by half a
/// segment. Otherwise it is what the next round would leave, too, and tolerated. So copying comes to rest when nobody
/// writes, and then within the bound unless a whole round by itself bettered nothing.
#[derive(Clone, Debug, Default)]
struct Round {
    under_way: Option<UnderWay>,
    /// What the last round could not better, and a little more.
    tolerated: u64,
}

#[derive(Clone, Debug)]
struct UnderWay {
    /// The newest segment when the round began.
    end: u32,
    /// What was too much then.
    began_with: u64,
    /// By how much others can have added to that since, at most.
    others: u64,
}

impl Round {
    /// Whether [`wants_copies`](Self::wants_copies) would begin.
    fn is_due(&self, excess: u64, bound: u64) -> bool {
        excess > bound.max(self.tolerated)
    }

    fn wants_copies(&mut self, excess: u64, bound: u64, slack: u64, ring: &RangeInclusive<u32>) -> bool {
        if excess <= bound {
            *self = Self::default();
        }
        while self.is_due(excess, bound) {
            let (end, began_with) = (*ring.end(), excess);
            let round = self.under_way.get_or_insert(UnderWay { end, began_with, others: 0 });
            if *ring.start() <= round.end {
                return true;
            }
            let left = excess.saturating_sub(round.others);
            if left > bound && left + slack / 2 > round.began_with {
                self.tolerated = left + slack;
            }
            self.under_way = None;
        }
        false
    }

    fn others_added(&mut self, bytes: u64) {
        if let Some(round) = &mut self.under_way {
            round.others += bytes;
        }
    }

    /// Others have superseded an anchor in `segment`; if the round has not come by yet, it may have been the round.
    fn superseded_in(&mut self, segment: u32, bytes: u64) {
        if let Some(round) = self.under_way.as_mut().filter(|round| segment > round.end) {
            round.others += bytes;
        }
    }
}

/// The next step to take for the disk bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing to do.
    Nothing,
    /// Push these keys' data as new anchors, commit, and report them with [`Index::placed`].
    Copy(Vec<u64>),
    /// Call [`Writer::retire`](crate::Writer::retire) with this segment, the log's oldest. The index has
    /// forgotten it already.
    Delete {
        /// The segment.
        segment: u32,
        /// Whether the bound has room for its file, which may then become another segment.
        keep_file: bool,
        /// Whether the preamble may lie in it: write that anew before, and call [`Index::wrote_preamble`].
        preamble: bool,
    },
}

/// Where every key's newest anchor lies.
///
/// It follows the log: call [`placed`](Self::placed), [`forget`](Self::forget) and [`wrote`](Self::wrote)
/// in log order, and only for what [`Writer::commit`](crate::Writer::commit) has written. That is enough for
/// safety, since [`Writer::retire`](crate::Writer::retire) syncs everything written before it gives a segment up.
///
/// Besides anchors the log may hold a *preamble*: records without keys that the caller can write anew as a whole, and does
/// before the segment goes that holds the last such copy. It counts as live.
#[derive(Clone, Debug)]
pub struct Index {
    anchors: Anchors,
    /// The log's segments from `oldest` on.
    segments: VecDeque<Segment>,
    oldest: u32,
    segment_bytes: u32,
    live_bytes: u64,
    total_bytes: u64,
    preamble: Preamble,
    /// A file is kept to become the segment after the one that is prepared.
    spare: bool,
    /// Segments before this one have an index, or shall have none.
    unsealed_from: u32,
    /// Keys before this one have no anchor in the oldest segment.
    oldest_from: u64,
    /// By how much copies of keys are longer than their anchors, where that is so.
    grown: BTreeMap<u64, u64>,
    bound: Round,
    waste: Round,
}

/// What it takes to give a segment up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// Bytes of the copies that must be written before, record headers included.
    pub copies_bytes: u64,
    /// Number of copies.
    pub copies: u64,
}

/// Where the preamble lies: in `segment` or behind, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Preamble {
    segment: u32,
    bytes: u64,
}

/// A segment that shall have an index, and the most bytes that the index may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSeal {
    /// The segment.
    pub segment: u32,
    /// More than that would break the bound on disk.
    pub index_bytes_max: u64,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// Size of the file, and of its index.
    bytes: u64,
    index_bytes: u64,
    live_bytes: u64,
    live_anchors: u64,
    /// By how much the copies of live anchors are longer than these.
    growth_bytes: u64,
}

impl Index {
    /// An empty index of a log that begins with segment `oldest` and has segments of `segment_bytes`.
    pub(crate) fn new(oldest: u32, segment_bytes: u32) -> Self {
        let (anchors, segments) = (Anchors::default(), VecDeque::new());
        Self {
            anchors,
            segments,
            oldest,
            segment_bytes,
            live_bytes: 0,
            total_bytes: 0,
            preamble: Preamble::default(),
            spare: false,
            unsealed_from: oldest,
            oldest_from: 0,
            grown: BTreeMap::new(),
            bound: Round::default(),
            waste: Round::default(),
        }
    }

    /// The log was written up to `segment`. Call it with the end of every commit; segments without anchors become
    /// known only by it.
    pub fn wrote(&mut self, segment: u32) {
        self.reached(segment, self.segment_bytes);
    }

    /// Makes segments up to `number` known, the new ones with `bytes` each.
    pub(crate) fn reached(&mut self, number: u32, bytes: u32) {
        while self.newest().is_none_or(|newest| newest < number) {
            let bytes = u64::from(bytes);
            self.segments.push_back(Segment { bytes, ..Segment::default() });
            self.total_bytes += bytes;
            // The writer has entered the segment that was prepared, so the spare file becomes the next.
            self.spare = false;
        }
    }

    /// Whether [`Preparer::has_spare`](crate::Preparer::has_spare).
    pub fn has_spare(&mut self, spare: bool) {
        self.spare = spare;
    }

    /// The next segment to seal: complete, without an index, and before `synced_segment`, in which
    /// [`Writer::synced`](crate::Writer::synced) lies. Each is named once. Where the bound on disk leaves no room for an
    /// index, a segment goes without: it is never the reason to copy anything.
    pub fn next_to_seal(&mut self, synced_segment: u32) -> Option<ToSeal> {
        let mut next = self.unsealed_from.max(self.oldest);
        while next < synced_segment {
            let segment = next;
            next += 1;
            self.unsealed_from = next;
            // The log can grow by a segment before anything is copied.
            let room =
                self.allowed_bytes().saturating_sub(self.excess_bytes() + u64::from(self.segment_bytes));
            let at = (segment - self.oldest) as usize;
            let is_sealed = self.segments.get(at).is_none_or(|segment| segment.index_bytes > 0);
            if room > 0 && !is_sealed {
                return Some(ToSeal { segment, index_bytes_max: room });
            }
        }
        None
    }

    /// `segment` has an index of so many bytes now. One that is gone already is ignored.
    pub fn sealed(&mut self, segment: u32, index_bytes: u64) {
        let Some(at) = segment.checked_sub(self.oldest) else { return };
        if let Some(segment) = self.segments.get_mut(at as usize) {
            self.total_bytes = self.total_bytes - segment.index_bytes + index_bytes;
            segment.index_bytes = index_bytes;
        }
    }

    /// `key`'s newest anchor lies at `position`; an older one is dead from now on.
    ///
    /// # Panics
    /// If `position` is not after the key's last, or lies in a segment that was deleted.
    pub fn placed(&mut self, key: u64, position: Position) {
        assert!(position.segment >= self.oldest, "an anchor lies in a segment that exists");
        self.wrote(position.segment);
        if let Some(older) = self.anchors.insert(key, position) {
            assert!(older.place() < position.place(), "anchors are reported in log order");
            self.release(key, older);
            for round in [&mut self.bound, &mut self.waste] {
                round.superseded_in(older.segment, 2 * older.record_bytes());
            }
        }
        let bytes = position.record_bytes();
        self.live_bytes += bytes;
        let segment = self.segment_mut(position.segment);
        segment.live_bytes += bytes;
        segment.live_anchors += 1;
    }

    /// Where `key`'s newest anchor lies.
    pub fn get(&self, key: u64) -> Option<Position> {
        self.anchors.get(key)
    }

    /// `key` needs no anchor any more: whatever says so was committed. Returns whether it had one.
    pub fn forget(&mut self, key: u64) -> bool {
        let anchor = self.anchors.remove(key);
        if let Some(position) = anchor {
            self.release(key, position);
            self.others_added(2 * position.record_bytes());
        }
        anchor.is_some()
    }

    /// The log holds a record from which on a copy of `key` will be so many bytes longer than its anchor. Ignored if it
    /// has none.
    pub fn grew(&mut self, key: u64, bytes: u64) {
        let Some(position) = self.anchors.get(key) else { return };
        *self.grown.entry(key).or_default() += bytes;
        self.segment_mut(position.segment).growth_bytes += bytes;
    }

    /// The log was given a preamble of so many bytes, record headers included. Call it when it is given to the log, so
    /// before a deletion that relies on it.
    pub fn wrote_preamble(&mut self, bytes: u64) {
        self.preamble = Preamble { segment: self.newest().unwrap_or(self.oldest), bytes };
    }

    /// The log was given so many bytes that are neither copies that [`next_reclaim`](Self::next_reclaim) asked for nor a
    /// preamble. Without knowing that, it takes what others leave behind for what copying cannot better.
    pub fn others_wrote(&mut self, bytes: u64) {
        self.others_added(bytes);
    }

    fn others_added(&mut self, bytes: u64) {
        for round in [&mut self.bound, &mut self.waste] {
            round.others_added(bytes);
        }
    }

    /// Forgets every key for which `live` is false. For the end of recovery: replay indexes every anchor, of
    /// finished keys, too.
    pub fn retain(&mut self, mut live: impl FnMut(u64) -> bool) {
        let dead: Vec<u64> = self.anchors.iter().map(|(key, _)| key).filter(|&key| !live(key)).collect();
        for key in dead {
            self.forget(key);
        }
    }

    /// Number of keys with an anchor.
    pub fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Whether no key has an anchor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all live anchors and of the preamble, record headers included.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes + self.preamble.bytes
    }

    /// What it takes to give each segment up, oldest first; the preamble is counted where it may lie.
    pub fn alive(&self) -> impl Iterator<Item = Alive> {
        let preamble_at = self.preamble.segment.max(self.oldest);
        (self.oldest..).zip(&self.segments).map(move |(number, segment)| {
            let preamble = if number == preamble_at { self.preamble.bytes } else { 0 };
            let copies_bytes = segment.live_bytes + segment.growth_bytes + preamble;
            Alive { copies_bytes, copies: segment.live_anchors }
        })
    }

    /// Bytes of the preamble.
    pub fn preamble_bytes(&self) -> u64 {
        self.preamble.bytes
    }

    /// Bytes that must be written before the oldest segment can be given up, record headers included.
    pub fn oldest_live_bytes(&self) -> u64 {
        self.alive().next().map_or(0, |oldest| oldest.copies_bytes)
    }

    fn is_preamble_in_oldest(&self) -> bool {
        self.preamble.segment <= self.oldest
    }

    /// Bytes of all segments' files and indexes, without the one prepared ahead and the spare one.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The oldest segment that the index has not given up yet.
    pub fn oldest_segment(&self) -> u32 {
        self.oldest
    }

    /// `(segment, live bytes, bytes)` of every segment, oldest first, indexes not counted.
    pub fn segments(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        (self.oldest..)
            .zip(&self.segments)
            .map(|(number, segment)| (number, segment.live_bytes, segment.bytes))
    }

    /// What to do next to keep the log within `2 × live + 3 segments`, or to win back its oldest segment under
    /// `pressure`. One step at a time: before asking again, report the last step's copies with
    /// [`placed`](Self::placed) (or [`forget`](Self::forget) keys that finished meanwhile), or it names them again.
    pub fn next_reclaim(&mut self, pressure: Pressure) -> Reclaim {
        if self.segments.len() < 2 {
            return Reclaim::Nothing;
        }
        let segment_bytes = u64::from(self.segment_bytes);
        let has_anchors = self.segments[0].live_anchors > 0;
        // A large preamble must not be written over and over for nothing but itself.
        let is_free = !self.is_preamble_in_oldest() || self.preamble.bytes <= segment_bytes / 2;
        if (has_anchors || !is_free) && !self.wants_copies(pressure) {
            Reclaim::Nothing
        } else if has_anchors {
            Reclaim::Copy(self.copy_batch(pressure))
        } else {
            self.give_up_oldest()
        }
    }

    fn wants_copies(&mut self, pressure: Pressure) -> bool {
        let newest = self.newest().unwrap_or(self.oldest);
        let (ring, slack) = (self.oldest..=newest, u64::from(self.segment_bytes));
        let bound = self.bound.wants_copies(self.excess_bytes(), self.allowed_bytes(), slack, &ring);
        match pressure {
            Pressure::None => bound,
            Pressure::Oldest => true,
            Pressure::Round { gain_bytes, gain_bytes_min } => {
                self.waste.wants_copies(gain_bytes, gain_bytes_min, slack / 8, &ring)
            }
        }
    }

    /// Whether such a round is worthwhile: more is won than rounds before could not win.
    pub fn is_round_due(&self, gain_bytes: u64, gain_bytes_min: u64) -> bool {
        self.segments.len() >= 2 && self.waste.is_due(gain_bytes, gain_bytes_min)
    }

    fn give_up_oldest(&mut self) -> Reclaim {
        let preamble = self.is_preamble_in_oldest();
        let gone = self.segments.pop_front().expect("the caller saw that there are two");
        self.total_bytes -= gone.bytes + gone.index_bytes;
        self.oldest += 1;
        self.oldest_from = 0;
        // Not if that were soon to make copies necessary: an index has at most half a segment.
        let half_a_segment = u64::from(self.segment_bytes) / 2;
        let keep_file = !self.spare && self.excess_bytes() + 3 * half_a_segment <= self.allowed_bytes();
        self.spare |= keep_file;
        Reclaim::Delete { segment: self.oldest - 1, keep_file, preamble }
    }

    /// Bytes of the log, the spare file included, beyond twice its live bytes.
    fn excess_bytes(&self) -> u64 {
        let spare = if self.spare { u64::from(self.segment_bytes) } else { 0 };
        (self.total_bytes + spare).saturating_sub(2 * self.live_bytes())
    }

    fn allowed_bytes(&self) -> u64 {
        SPARE_SEGMENTS * u64::from(self.segment_bytes)
    }

    /// The first live keys of the oldest segment.
    fn copy_batch(&mut self, pressure: Pressure) -> Vec<u64> {
        let (keys_max, bytes_max) = match pressure {
            Pressure::None => (COPY_KEYS_MAX, COPY_BYTES_MAX),
            Pressure::Oldest | Pressure::Round { .. } => (COPY_KEYS_MAX_FULL, COPY_BYTES_MAX_FULL),
        };
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (key, position) in self.anchors.keys_in(self.oldest, self.oldest_from) {
            bytes += position.record_bytes();
            if batch.len() == keys_max || (bytes > bytes_max && !batch.is_empty()) {
                break;
            }
            batch.push(key);
        }
        // No anchor is ever placed in the oldest segment while there are others.
        self.oldest_from = *batch.first().expect("a segment with live anchors has their keys");
        batch
    }

    fn release(&mut self, key: u64, position: Position) {
        let bytes = position.record_bytes();
        if let Some(growth_bytes) = self.grown.remove(&key) {
            self.segment_mut(position.segment).growth_bytes -= growth_bytes;
        }
        self.live_bytes -= bytes;
        let segment = self.segment_mut(position.segment);
        segment.live_bytes -= bytes;
        segment.live_anchors -= 1;
    }

    fn newest(&self) -> Option<u32> {
        let count = u32::try_from(self.segments.len()).expect("segment numbers are 32 bits wide");
        (count > 0).then(|| self.oldest + count - 1)
    }

    fn segment_mut(&mut self, number: u32) -> &mut Segment {
        &mut self.segments[(number - self.oldest) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Round;

    #[test]
    fn a_round_that_betters_nothing_is_not_made_again_before_there_is_more() {
        let mut round = Round::default();
        assert!(!round.wants_copies(100, 100, 10, &(1..=5)));
        for oldest in 1..=5 {
            assert!(round.wants_copies(101, 100, 10, &(oldest..=oldest + 4)), "{oldest}");
        }
        assert!(!round.wants_copies(101, 100, 10, &(6..=10)), "all the way round");
        assert!(!round.wants_copies(111, 100, 10, &(6..=11)));
        assert!(round.wants_copies(112, 100, 10, &(6..=11)));
        assert!(!round.wants_copies(100, 100, 10, &(6..=11)));
        assert!(round.wants_copies(101, 100, 10, &(6..=11)), "better in between: from the start");
    }

    #[test]
    fn what_others_may_have_left_behind_is_no_reason_to_rest() {
        let mut round = Round::default();
        assert!(round.wants_copies(130, 100, 10, &(1..=5)));
        round.others_added(30);
        assert!(round.wants_copies(130, 100, 10, &(6..=10)), "all of it may be theirs: another round");
        assert!(
            !round.wants_copies(130, 100, 10, &(11..=15)),
            "which they left alone, and which bettered nothing"
        );

        // An anchor that was superseded where the round has been, not where it is going.
        for (segment, rests) in [(5, true), (6, false)] {
            let mut round = Round::default();
            assert!(round.wants_copies(130, 100, 10, &(1..=5)));
            round.superseded_in(segment, 30);
            assert_eq!(round.wants_copies(130, 100, 10, &(6..=10)), !rests, "{segment}");
        }

        // Less than they can have left is tolerated only without their part.
        let mut round = Round::default();
        assert!(round.wants_copies(130, 100, 10, &(1..=5)));
        round.others_added(4);
        assert!(!round.wants_copies(130, 100, 10, &(6..=10)));
        assert!(!round.wants_copies(136, 100, 10, &(6..=10)));
        assert!(round.wants_copies(137, 100, 10, &(6..=10)));
    }

    #[test]
    fn a_round_that_betters_something_is_followed_by_another_and_they_come_to_an_end() {
        let mut round = Round::default();
        let (mut excess, mut oldest, mut rounds) = (1000, 1, 0);
        while round.wants_copies(excess, 100, 10, &(oldest..=oldest + 4)) {
            oldest += 5;
            rounds += 1;
            excess -= if excess > 130 { excess / 10 } else { 1 };
        }
        assert!((101..=130).contains(&excess) && rounds < 30, "{excess} after {rounds}");
    }
}
