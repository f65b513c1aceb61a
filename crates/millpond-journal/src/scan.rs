//! Reading the log from its oldest segment to its end.
//!
//! Owns the walk along the frame chain, the replay of records, and the look behind the end for frames that prove
//! a loss. Must never write, never hold more than a few frames in memory, and never trust a byte it has not
//! checked.

use crate::{
    format::{
        FRAME_HEADER_BYTES, FrameHeader, Place, Position, SECTOR_BYTES, Secrets, segment_name, split_record,
    },
    index::Index,
    recovery::{OpenError, SEGMENT_BYTES_MIN, SEGMENT_BYTES_UNIT},
    storage::{Storage, StorageFile},
    writer::Tail,
};
use std::{ops::ControlFlow, sync::Arc};

/// How much is read at once, unless a frame is larger.
const READ_BYTES: u64 = 1024 * 1024;

/// A record met in recovery, in log order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed<'a> {
    /// The key it was pushed with.
    pub key: Option<u64>,
    /// Whether it is a full copy of its key's data.
    pub anchor: bool,
    /// Where it lies.
    pub position: Position,
    /// What was pushed.
    pub payload: &'a [u8],
}

/// What the walk along the chain found.
#[derive(Clone, Copy, Debug)]
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

/// Follows the chain through `segments` (consecutive, not empty), replaying every record and indexing every
/// anchor. Ends at the first frame that does not belong to the chain.
pub(crate) fn walk(
    storage: &dyn Storage,
    secrets: &Secrets,
    segments: &[u32],
    index: &mut Index,
    replay: &mut dyn FnMut(Replayed<'_>) -> ControlFlow<()>,
) -> Result<Walk, OpenError> {
    let start = Place { segment: segments[0], offset: 0 };
    let mut walk =
        Walk { tail: None, end: start, proven: start, oldest: start.segment, frames: 0, records: 0 };
    for &segment in segments {
        let mut window = Window::open(storage, segment)?;
        let capacity = window.capacity;
        let mut place = Place { segment, offset: 0 };
        while let Some((header, frame)) = window.frame(secrets, place)? {
            if !follows(walk.tail.as_ref(), &header) {
                break;
            }
            if place.offset == 0 {
                check_length(segment, capacity, &header)?;
                index.reached(segment, capacity);
            }
            replay_frame(&header, frame, index, replay)?;
            walk.tail = Some(Tail { sequence: header.sequence, epoch: header.epoch, chain: header.crc });
            walk.frames += 1;
            walk.records += u64::from(header.record_count);
            walk.proven = header.synced;
            walk.oldest = header.oldest;
            place.offset = end_of(&header);
            walk.end = place;
        }
        if place.offset == 0 {
            break;
        }
    }
    Ok(walk)
}

/// Whether `header` is the frame after `tail`. The first frame of the oldest segment has nothing to follow.
fn follows(tail: Option<&Tail>, header: &FrameHeader) -> bool {
    match tail {
        None => header.place.segment > 1 || (header.sequence == 1 && header.chain == 0),
        Some(tail) => {
            tail.sequence.checked_add(1) == Some(header.sequence)
                && header.chain == tail.chain
                && header.epoch >= tail.epoch
        }
    }
}

fn end_of(header: &FrameHeader) -> u32 {
    let end = u64::from(header.place.offset) + header.frame_bytes();
    u32::try_from(end).expect("a frame that was read lies within its segment")
}

fn replay_frame(
    header: &FrameHeader,
    frame: &[u8],
    index: &mut Index,
    replay: &mut dyn FnMut(Replayed<'_>) -> ControlFlow<()>,
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
        let length = u32::try_from(record.payload.len()).expect("within a frame below 4 GiB");
        let position = Position { segment: header.place.segment, offset, length };
        if let (Some(key), true) = (record.key, record.anchor) {
            index.placed(key, position);
        }
        let replayed = Replayed { key: record.key, anchor: record.anchor, position, payload: record.payload };
        if replay(replayed).is_break() {
            return Err(OpenError::Refused { position });
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(damaged()) }
}

/// What lies behind the end of the chain.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    /// Sectors of the last segment that are not zero, as half-open byte ranges.
    pub(crate) dirty: Vec<(u32, u32)>,
    /// Later segments that hold nothing but zeros.
    pub(crate) blank: Vec<u32>,
}

/// Looks at everything behind `end`, in its segment and in all later ones.
///
/// # Errors
/// [`OpenError::Corrupt`] if an intact frame there says that the log was synced beyond `end`: then what is
/// missing at `end` is no torn tail.
pub(crate) fn look_beyond(
    storage: &dyn Storage,
    secrets: &Secrets,
    segments: &[u32],
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
        while let Some(sector) = window.sector(place)? {
            if sector.iter().any(|&byte| byte != 0) {
                extend(&mut dirty, place.offset);
            }
            let frame = window.frame(secrets, place)?;
            next_is_damaged |= place.offset == 0 && segment == end.segment + 1 && frame.is_none();
            lost |= frame.is_some_and(|(header, _)| header.synced > end);
            place.offset += SECTOR_BYTES;
        }
        if is_end {
            beyond.dirty = dirty;
        } else if dirty.is_empty() {
            beyond.blank.push(segment);
        }
    }
    if !lost {
        return Ok(beyond);
    }
    // Zeros up to the end of a segment are how every segment ends; then the damage is at the start of the next.
    let ended = beyond.dirty.is_empty() && next_is_damaged;
    Err(OpenError::Corrupt { place: if ended { Place { segment: end.segment + 1, offset: 0 } } else { end } })
}

fn extend(ranges: &mut Vec<(u32, u32)>, offset: u32) {
    match ranges.last_mut() {
        Some((_, end)) if *end == offset => *end += SECTOR_BYTES,
        _ => ranges.push((offset, offset + SECTOR_BYTES)),
    }
}

/// A segment file, read piece by piece.
struct Window {
    segment: u32,
    file: Arc<dyn StorageFile>,
    capacity: u32,
    buffer: Vec<u8>,
    start: u64,
}

impl Window {
    fn open(storage: &dyn Storage, segment: u32) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { what: segment_name(segment), source };
        let file = storage.open(&segment_name(segment)).map_err(io)?;
        let length = file.length().map_err(io)?;
        let capacity = capacity(&*file).map_err(io)?;
        // Segments are created whole: a file of any other length has lost something since.
        if !length.is_multiple_of(u64::from(SEGMENT_BYTES_UNIT)) || length < u64::from(SEGMENT_BYTES_MIN) {
            return Err(OpenError::Corrupt { place: Place { segment, offset: capacity } });
        }
        Ok(Self { segment, file, capacity, buffer: Vec::new(), start: 0 })
    }

    /// The bytes of one sector; `None` at the end of the segment.
    fn sector(&mut self, place: Place) -> Result<Option<&[u8]>, OpenError> {
        if u64::from(place.offset) + u64::from(SECTOR_BYTES) > u64::from(self.capacity) {
            return Ok(None);
        }
        self.bytes(u64::from(place.offset), u64::from(SECTOR_BYTES)).map(Some)
    }

    /// The frame at `place` if it is intact; whether it belongs to the chain is the caller's question.
    fn frame(&mut self, secrets: &Secrets, place: Place) -> Result<Option<(FrameHeader, &[u8])>, OpenError> {
        let Some(sector) = self.sector(place)? else { return Ok(None) };
        let Some(header) = FrameHeader::parse(secrets, sector, place) else { return Ok(None) };
        if u64::from(place.offset) + header.frame_bytes() > u64::from(self.capacity) {
            return Ok(None);
        }
        let frame = self.bytes(u64::from(place.offset), header.frame_bytes())?;
        Ok(header.is_intact(secrets, frame).then_some((header, frame)))
    }

    /// `length` bytes at `offset`, both within the segment.
    fn bytes(&mut self, offset: u64, length: u64) -> Result<&[u8], OpenError> {
        let held = self.start..self.start + self.buffer.len() as u64;
        if offset < held.start || offset + length > held.end {
            let read = length.max(READ_BYTES).min(u64::from(self.capacity) - offset);
            self.buffer.resize(to_usize(read), 0);
            self.start = offset;
            self.file.read_at(offset, &mut self.buffer).map_err(|source| OpenError::Io {
                what: format!("{} at offset {offset}", segment_name(self.segment)),
                source,
            })?;
        }
        let from = to_usize(offset - self.start);
        Ok(&self.buffer[from..from + to_usize(length)])
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

/// Whole sectors of a file, as far as a segment can address them.
pub(crate) fn capacity(file: &dyn StorageFile) -> std::io::Result<u32> {
    let length = file.length()?;
    let sectors = length / u64::from(SECTOR_BYTES) * u64::from(SECTOR_BYTES);
    Ok(u32::try_from(sectors).unwrap_or(u32::MAX / SECTOR_BYTES * SECTOR_BYTES))
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a length within a segment fits into memory's address range")
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
