//! Reading the log from its oldest segment to its end.
//!
//! Owns the walk along the frame chain, the replay of records, and the look behind the end for frames that prove
//! a loss. Must never write, never hold more than a few frames in memory, and never trust a byte it has not
//! checked.

use crate::{
    format::{FRAME_HEADER_BYTES, FrameHeader, Place, Position, Record, SECTOR_BYTES, Secrets, split_record},
    index::Index,
    recovery::OpenError,
    sealed::{Damaged, SealedIndex},
    storage::Storage,
    window::Window,
    writer::Tail,
};
use std::ops::ControlFlow;

/// A record met in recovery, in log order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed<'a> {
    /// The key it was pushed with.
    pub key: Option<u64>,
    /// Whether it is a full copy of its key's data.
    pub anchor: bool,
    /// Where it lies.
    pub position: Position,
    /// What was pushed, as far as replay needs it: all of it, or what
    /// [`Writer::push_with_body`](crate::Writer::push_with_body) was told is the head.
    pub head: &'a [u8],
}

/// What the walk along the chain found.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// The last frame's place in the chain; `None` if there is no valid frame at all.
    pub(crate) tail: Option<Tail>,
    /// Where the chain ends.
    pub(crate) end: Place,
    /// The furthest place that a frame of the chain says is synced.
    pub(crate) proven: Place,
    /// The oldest segment according to the last frame.
    pub(crate) oldest: u32,
    pub(crate) frames: u64,
    pub(crate) records: u64,
}

/// What replay is told, and where anchors are written down.
pub(crate) struct Replay<'a> {
    pub(crate) index: &'a mut Index,
    pub(crate) tell: &'a mut dyn FnMut(Replayed<'_>) -> ControlFlow<()>,
}

impl Replay<'_> {
    fn record(
        &mut self,
        position: Position,
        key: Option<u64>,
        anchor: bool,
        head: &[u8],
    ) -> Result<(), OpenError> {
        if let (Some(key), true) = (key, anchor) {
            self.index.placed(key, position);
        }
        match (self.tell)(Replayed { key, anchor, position, head }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(OpenError::Refused { position }),
        }
    }
}

/// Follows the chain through `segments` (consecutive, not empty), replaying every record and indexing every
/// anchor. Ends at the first frame that does not belong to the chain. A segment that is followed by another is told
/// by its index, if it has one that fits.
pub(crate) fn walk(
    storage: &dyn Storage,
    secrets: &Secrets,
    segments: &[u32],
    replay: &mut Replay<'_>,
) -> Result<Walk, OpenError> {
    let start = Place { segment: segments[0], offset: 0 };
    let mut walk =
        Walk { tail: None, end: start, proven: start, oldest: start.segment, frames: 0, records: 0 };
    let newest = segments[segments.len() - 1];
    // Whether the last segment had an index, and so was left for the next one for good.
    let mut left_for_good = false;
    for &segment in segments {
        let mut window = Window::open(storage, segment)?;
        let index = SealedIndex::open(storage, secrets, segment, window.capacity);
        let last_offset = index.as_ref().map(|index| index.last_offset);
        let from_index = match index {
            Some(index) => walk.follow_index(secrets, segment, &window, index, replay)?,
            None => Told::UpTo(0),
        };
        if let Told::UpTo(offset) = from_index {
            walk.follow_frames(secrets, segment, &mut window, offset, replay)?;
            if walk.end.segment != segment || walk.end.offset == 0 {
                if left_for_good {
                    return Err(OpenError::Corrupt { place: Place { segment, offset: 0 } });
                }
                break;
            }
            // An index is made of frames that are all synced.
            if last_offset.is_some_and(|last_offset| walk.end.offset <= last_offset) {
                return Err(OpenError::Corrupt { place: walk.end });
            }
        }
        left_for_good = last_offset.is_some();
    }
    if left_for_good {
        return Err(OpenError::MissingSegment { segment: newest + 1 });
    }
    Ok(walk)
}

/// How much of a segment's records an index has told.
enum Told {
    All,
    /// Those before this offset: the rest of the index cannot be used.
    UpTo(u32),
}

impl Walk {
    /// Goes on with what `index` says of `segment`, if it was made from this very segment and that follows.
    fn follow_index(
        &mut self,
        secrets: &Secrets,
        segment: u32,
        window: &Window,
        mut index: SealedIndex,
        replay: &mut Replay<'_>,
    ) -> Result<Told, OpenError> {
        let first = window.header(secrets, Place { segment, offset: 0 })?;
        let last = window.header(secrets, Place { segment, offset: index.last_offset })?;
        let (Some((first, first_raw)), Some((last, last_raw))) = (first, last) else {
            return Ok(Told::UpTo(0));
        };
        if first_raw != index.first || last_raw != index.last || !follows(self.tail.as_ref(), &first) {
            return Ok(Told::UpTo(0));
        }
        check_length(segment, window.capacity, &first)?;
        replay.index.reached(segment, window.capacity);
        replay.index.sealed(segment, index.bytes);
        let mut told_up_to = 0;
        let mut refused = None;
        loop {
            let more = index.next_block(|entry| {
                let position = Position { segment, offset: entry.offset, length: entry.payload_bytes };
                told_up_to = entry.offset + 1;
                refused = replay.record(position, entry.key, entry.anchor, entry.head).err();
                refused.is_none()
            });
            if let Some(error) = refused {
                return Err(error);
            }
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(Damaged) => {
                    replay.index.sealed(segment, 0);
                    return Ok(Told::UpTo(told_up_to));
                }
            }
        }
        self.tail = Some(Tail::of(&last));
        self.end = Place { segment, offset: end_of(&last) };
        self.proven = last.synced;
        self.oldest = last.oldest;
        self.frames += u64::from(index.frames);
        self.records += index.records;
        Ok(Told::All)
    }

    /// Goes on with the frames of `segment`. Records in front of `told_up_to` have been told already.
    fn follow_frames(
        &mut self,
        secrets: &Secrets,
        segment: u32,
        window: &mut Window,
        told_up_to: u32,
        replay: &mut Replay<'_>,
    ) -> Result<(), OpenError> {
        let capacity = window.capacity;
        let mut place = Place { segment, offset: 0 };
        while let Some((header, frame)) = window.frame(secrets, place)? {
            if !follows(self.tail.as_ref(), &header) {
                break;
            }
            if place.offset == 0 {
                check_length(segment, capacity, &header)?;
                replay.index.reached(segment, capacity);
            }
            records_of(&header, frame, &mut |offset, record| {
                if offset < told_up_to {
                    return Ok(());
                }
                let length = u32::try_from(record.payload.len()).expect("within a frame below 4 GiB");
                let position = Position { segment, offset, length };
                replay.record(position, record.key, record.anchor, record.head())
            })?;
            self.tail = Some(Tail::of(&header));
            self.frames += 1;
            self.records += u64::from(header.record_count);
            self.proven = header.synced;
            self.oldest = header.oldest;
            place.offset = end_of(&header);
            self.end = place;
        }
        Ok(())
    }
}

/// Whether `header` is the frame after `tail`. The first frame of the oldest segment has nothing to follow.
pub(crate) fn follows(tail: Option<&Tail>, header: &FrameHeader) -> bool {
    match tail {
        None => header.place.segment > 1 || (header.sequence == 1 && header.chain == 0),
        Some(tail) => tail.precedes(header),
    }
}

/// Where a frame that lies within its segment ends.
pub(crate) fn end_of(header: &FrameHeader) -> u32 {
    let end = u64::from(header.place.offset) + header.frame_bytes();
    u32::try_from(end).expect("a frame that was read lies within its segment")
}

/// Calls `each` with every record of an intact frame and its offset in the segment.
pub(crate) fn records_of(
    header: &FrameHeader,
    frame: &[u8],
    each: &mut dyn FnMut(u32, Record<'_>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    // A frame with a right checksum and wrong records was written wrong: the same as damage to whoever reads it.
    let damaged = || OpenError::Corrupt { place: header.place };
    let payload_start = FRAME_HEADER_BYTES as usize;
    let payload = &frame[payload_start..payload_start + header.payload_bytes as usize];
    let mut rest = payload;
    for _ in 0..header.record_count {
        let start = payload_start + (payload.len() - rest.len());
        let (record, after) = split_record(rest).ok_or_else(damaged)?;
        rest = after;
        let offset = header.place.offset + u32::try_from(start).expect("within a frame below 4 GiB");
        each(offset, record)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(damaged()) }
}

/// What lies behind the end of the chain.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    /// Bytes of frames, whole or torn, that belong to the segments they lie in.
    pub(crate) debris_bytes: u64,
    /// If the last segment holds such frames: its sectors behind the end that are not zero, as half-open byte ranges.
    pub(crate) dirty: Vec<(u32, u32)>,
    /// Later segments that were never entered: no frame in them belongs there.
    pub(crate) unused: Vec<u32>,
}

/// How far the log must have been synced for its files to be as they are, whatever they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entered {
    /// The newest segment that was surely entered. All before it were synced whole: that comes first.
    segment: u32,
    /// Its first frame was surely synced.
    for_good: bool,
}

impl Entered {
    /// What the names of `segments` and `indexes`, in order, tell.
    pub(crate) fn by_files(segments: &[u32], indexes: &[u32]) -> Self {
        // A segment is made when the one before it is entered; an index once the next segment was entered for good.
        let by_segment = segments.last().map_or(0, |newest| newest - 1);
        let by_index = indexes.last().map_or(0, |&newest| newest.saturating_add(1));
        Self { segment: by_segment.max(by_index), for_good: by_index > 0 && by_index >= by_segment }
    }

    /// There is a frame of `segment`, whole or torn.
    pub(crate) fn holds_frames(&mut self, segment: u32) {
        if segment > self.segment {
            *self = Self { segment, for_good: false };
        }
    }

    /// Whether something is lost behind `end`, where the chain ends; `has_debris`: frames that do not belong to the
    /// chain follow in the same segment.
    pub(crate) fn proves_loss(self, end: Place, has_debris: bool) -> bool {
        self.segment > end.segment && (has_debris || self.for_good || self.segment - end.segment > 1)
    }
}

/// Looks at everything behind `end`, in its segment and in all later ones. What the file of a segment holds of an
/// earlier life under another number counts for nothing. `entered` is what the files' names tell.
///
/// # Errors
/// [`OpenError::Corrupt`] or [`OpenError::MissingSegment`] if an intact frame there says that the log was synced beyond
/// `end`, or the files cannot be there otherwise: then what is missing at `end` is no torn tail.
pub(crate) fn look_beyond(
    storage: &dyn Storage,
    secrets: &Secrets,
    segments: &[u32],
    mut entered: Entered,
    end: Place,
) -> Result<Beyond, OpenError> {
    let mut beyond = Beyond::default();
    let mut lost = false;
    let mut next_is_damaged = false;
    for &segment in segments.iter().filter(|&&segment| segment >= end.segment) {
        let mut window = Window::open(storage, segment)?;
        let is_end = segment == end.segment;
        let mut place = Place { segment, offset: if is_end { end.offset } else { 0 } };
        let mut dirty = Vec::new();
        let mut debris_bytes = 0;
        while let Some(sector) = window.sector(place)? {
            if sector.iter().any(|&byte| byte != 0) {
                extend(&mut dirty, place.offset);
            }
            // A header is written whole or not at all, so one that fits is a frame of this segment, maybe torn.
            let header = FrameHeader::parse(secrets, sector, place);
            debris_bytes += header.map_or(0, |header| header.frame_bytes());
            let frame = if header.is_some() { window.frame(secrets, place)? } else { None };
            next_is_damaged |= place.offset == 0 && segment == end.segment + 1 && frame.is_none();
            lost |= frame.is_some_and(|(header, _)| header.synced > end);
            place.offset += SECTOR_BYTES;
        }
        beyond.debris_bytes += debris_bytes;
        match (is_end, debris_bytes) {
            (true, 1..) => beyond.dirty = dirty,
            (false, 0) => beyond.unused.push(segment),
            (false, _) => entered.holds_frames(segment),
            _ => {}
        }
    }
    let has_debris = !beyond.dirty.is_empty();
    if !lost && !entered.proves_loss(end, has_debris) {
        return Ok(beyond);
    }
    let next = end.segment + 1;
    if !has_debris && !segments.contains(&next) {
        return Err(OpenError::MissingSegment { segment: next });
    }
    // That nothing follows is how every segment ends; then the damage is at the start of the next.
    let ended = !has_debris && next_is_damaged;
    Err(OpenError::Corrupt { place: if ended { Place { segment: next, offset: 0 } } else { end } })
}

fn extend(ranges: &mut Vec<(u32, u32)>, offset: u32) {
    match ranges.last_mut() {
        Some((_, end)) if *end == offset => *end += SECTOR_BYTES,
        _ => ranges.push((offset, offset + SECTOR_BYTES)),
    }
}

/// Whether a segment's file is as long as its first frame says.
fn check_length(segment: u32, capacity: u32, first: &FrameHeader) -> Result<(), OpenError> {
    if first.segment_bytes == capacity {
        return Ok(());
    }
    let offset = capacity.min(first.segment_bytes);
    Err(OpenError::Corrupt { place: Place { segment, offset } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FrameKind;

    #[test]
    fn only_the_next_frame_of_the_same_chain_follows() {
        let tail = Tail { sequence: 8, epoch: 3, chain: 77 };
        let next = FrameHeader {
            kind: FrameKind::Records,
            place: Place { segment: 2, offset: 1024 },
            record_count: 0,
            segment_bytes: 0,
            sequence: 9,
            epoch: 3,
            synced: Place { segment: 2, offset: 0 },
            oldest: 1,
            payload_bytes: 0,
            chain: 77,
            crc: 1,
        };
        assert!(follows(Some(&tail), &next));
        assert!(follows(Some(&tail), &FrameHeader { epoch: 4, ..next }));
        assert!(!follows(Some(&tail), &FrameHeader { epoch: 2, ..next }), "a frame of an earlier writer");
        assert!(!follows(Some(&tail), &FrameHeader { chain: 78, ..next }), "after another frame");
        assert!(!follows(Some(&tail), &FrameHeader { sequence: 8, ..next }), "the same again");
        assert!(!follows(Some(&tail), &FrameHeader { sequence: 10, ..next }), "one was left out");
        let last = Tail { sequence: u64::MAX, ..tail };
        assert!(!follows(Some(&last), &FrameHeader { sequence: 0, ..next }));
    }

    #[test]
    fn a_log_begins_with_its_first_frame_or_with_a_segment_whose_elders_were_deleted() {
        let first = FrameHeader {
            kind: FrameKind::Segment,
            place: Place { segment: 1, offset: 0 },
            record_count: 0,
            segment_bytes: 0,
            sequence: 1,
            epoch: 1,
            synced: Place { segment: 1, offset: 0 },
            oldest: 1,
            payload_bytes: 0,
            chain: 0,
            crc: 1,
        };
        assert!(follows(None, &first));
        assert!(!follows(None, &FrameHeader { sequence: 2, ..first }));
        let place = Place { segment: 4, offset: 0 };
        assert!(follows(None, &FrameHeader { place, sequence: 90, chain: 5, ..first }));
    }
}
