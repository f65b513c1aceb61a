//! The walk of an inspection.
//!
//! Owns the way past damage: from frame to frame while they follow one another, and where they do not, to the next one
//! that belongs to the log, with everything in between searched for records. Must never hold more than one segment's
//! damaged region in memory.

use super::known::{Digest, Known, KnownRecord, KnownSegment, exists};
use super::{Fault, FaultKind, InspectedRecord, InspectedSegment, Inspection, Visitor};
use crate::{
    format::{
        FRAME_HEADER_BYTES, FrameHeader, Place, Position, RECORD_HEADER_BYTES, Record, SECTOR_BYTES, Secrets,
        is_intact_record, segment_name, split_record,
    },
    recovery::{OpenError, is_segment_length, list_indexes, list_segments_with_gaps},
    salvage::{Salvage, Tolerant},
    scan::{Entered, end_of, follows},
    sealed::{Entry, RawHeader, raw_header},
    storage::Storage,
    window::Window,
    writer::Tail,
};
use std::{io, ops::Range, sync::Arc};

/// Faults that are kept one by one; further ones are only counted.
const FAULTS_MAX: usize = 10_000;
/// How often the directory is listed when a running server deletes segments faster than they are read.
const LISTINGS_MAX: usize = 8;

pub(super) struct Walk<'a> {
    storage: &'a dyn Storage,
    secrets: Secrets,
    /// Indexes cannot be checked: the secrets come from frames.
    without_indexes: bool,
    visitor: &'a mut dyn Visitor,
    segments: Vec<u32>,
    /// The log's oldest segment, if it is older than any that is there.
    oldest_missing: Option<u32>,
    tail: Option<Tail>,
    /// Where the last frame of the chain ends.
    end: Option<Place>,
    /// The oldest segment according to that frame.
    oldest: u32,
    /// The furthest place that a frame behind the first break says is synced: before it, what is missing is lost.
    proof: Option<Place>,
    /// Something that was synced is missing behind the last frame.
    broken: bool,
    /// Number of faults when the last frame was taken: those since then explain what is missing behind it.
    since_frame: usize,
    /// What follows is a torn tail, or the writer's next steps.
    ended: bool,
    bytes_done: u64,
    report: Inspection,
}

/// A segment's file.
struct Found {
    window: Window,
    length: u64,
    /// What the window reads from.
    file: Arc<Tolerant>,
    known: Known,
    /// The length that its first frame names.
    expected: Option<u32>,
    /// What its frames hold so far, and the headers of the first and the last of them.
    digest: Digest,
    ends: Option<(RawHeader, RawHeader)>,
}

/// What follows a frame.
enum Next {
    /// This frame, perhaps after damage.
    Frame(FrameHeader),
    /// The first frame of the next segment.
    Rolled,
    /// Nothing in this segment, although something should, here or behind it.
    Lost,
    /// Nothing that was ever known to be synced.
    Tail,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        storage: &'a dyn Storage,
        secrets: Secrets,
        without_indexes: bool,
        segments: Vec<u32>,
        visitor: &'a mut dyn Visitor,
    ) -> Self {
        Self {
            storage,
            secrets,
            without_indexes,
            visitor,
            segments,
            oldest_missing: None,
            tail: None,
            end: None,
            oldest: 0,
            proof: None,
            broken: false,
            since_frame: 0,
            ended: false,
            bytes_done: 0,
            report: Inspection::default(),
        }
    }

    pub(super) fn all(mut self) -> Result<Inspection, OpenError> {
        let listed = self.segments.clone();
        self.oldest_missing = self.oldest_missing()?;
        for _ in 0..LISTINGS_MAX {
            let mut is_overtaken = false;
            for number in self.segments.clone() {
                is_overtaken = !self.visit(number)?;
            }
            if !is_overtaken {
                break;
            }
            let last = self.segments.last().copied();
            let newer = list_segments_with_gaps(self.storage)?;
            self.segments = newer.into_iter().filter(|&number| Some(number) > last).collect();
        }
        self.judge_end();
        self.judge_beginning();
        self.report.end = self.end;
        self.report.oldest = self.oldest;
        self.forgive_deleted(&listed)?;
        Ok(self.report)
    }

    /// Deals with one segment; `false` if it was deleted since the directory was listed, or lost: the frames to come
    /// tell which.
    fn visit(&mut self, number: u32) -> Result<bool, OpenError> {
        let Some(mut found) = self.open(number)? else { return Ok(false) };
        let first = self.oldest_missing.unwrap_or(number);
        let expected = self.report.segments.last().map_or(first, |last| last.number + 1);
        if expected < number {
            self.missing(expected..number)?;
        }
        self.report.segments.push(InspectedSegment {
            number,
            bytes: found.length,
            index_bytes: found.known.segment().map_or(0, |known| known.bytes),
            ..InspectedSegment::default()
        });
        let faults_before = self.report.faults.len();
        self.segment(number, &mut found)?;
        if self.report.faults.len() == faults_before {
            self.judge_index(number, &found);
        }
        self.bytes_done += found.length;
        self.visitor.progress(self.bytes_done);
        Ok(true)
    }

    /// A segment's file; `None` if it is gone.
    fn open(&self, number: u32) -> Result<Option<Found>, OpenError> {
        let io = |source| OpenError::Io { what: segment_name(number), source };
        let file = match self.storage.open(&segment_name(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(io)?,
        };
        let length = file.length().map_err(io)?;
        let file = Arc::new(Tolerant::new(file));
        let window = Window::of_any_length(number, file.clone())?;
        let known = self.known(number);
        Ok(Some(Found { window, length, file, known, expected: None, digest: Digest::default(), ends: None }))
    }

    fn known(&self, number: u32) -> Known {
        if self.without_indexes { Known::Absent } else { Known::of(self.storage, &self.secrets, number) }
    }

    fn segment(&mut self, number: u32, found: &mut Found) -> Result<(), OpenError> {
        let mut place = Place { segment: number, offset: 0 };
        while !self.ended {
            match self.next_frame(found, place)? {
                Next::Frame(header) => {
                    if header.place != place {
                        self.lost(found, place, header.place.offset)?;
                    }
                    if header.place.offset == 0 {
                        found.expected = Some(header.segment_bytes);
                    }
                    self.take(found, &header)?;
                    place.offset = end_of(&header);
                }
                Next::Rolled => break,
                Next::Lost => {
                    self.lost_to_the_end(found, place)?;
                    break;
                }
                Next::Tail => {
                    self.ended = true;
                    // Of a whole log, nobody misses its torn tail; where others are lost, it may be one of them.
                    if !self.report.faults.is_empty() {
                        let torn = self.end_of_debris(found, place)? - place.offset;
                        self.leave_open(u64::from(torn));
                    }
                }
            }
        }
        self.judge_length(number, found);
        Ok(())
    }

    /// So many bytes behind the last frame of the current segment may have been frames.
    fn leave_open(&mut self, bytes: u64) {
        if let Some(segment) = self.report.segments.last_mut() {
            segment.open_bytes = bytes;
        }
    }

    fn judge_length(&mut self, segment: u32, found: &Found) {
        let (length, expected) = (found.length, found.expected);
        if is_segment_length(length) && expected.is_none_or(|expected| u64::from(expected) == length) {
            return;
        }
        let end = length.min(u64::from(expected.unwrap_or(u32::MAX)));
        let offset = u32::try_from(end).expect("the smaller of two, one of 32 bits");
        let bytes = expected.map_or(0, |expected| u64::from(expected).saturating_sub(length));
        self.fault(Place { segment, offset }, FaultKind::Length { found: length, expected }, bytes);
    }

    /// Whether the index of a segment without a fault says what the segment does.
    fn judge_index(&mut self, segment: u32, found: &Found) {
        let agrees = match &found.known {
            Known::Absent => true,
            Known::Damaged => false,
            Known::Index(known) => {
                found.ends == Some((known.first, known.last))
                    && known.digest(self.storage, &self.secrets) == Some(found.digest)
            }
        };
        // A running server deletes an index before its segment.
        if !agrees && exists(self.storage, segment) {
            self.fault(Place { segment, offset: 0 }, FaultKind::Index, 0);
        }
    }

    /// The next frame of the log in this segment, at `place` or, where that is damaged, behind it.
    fn next_frame(&mut self, found: &mut Found, place: Place) -> Result<Next, OpenError> {
        let window = &mut found.window;
        let header = window.frame(&self.secrets, place)?.map(|(header, _)| header);
        if let Some(header) = header.filter(|header| follows(self.tail.as_ref(), header)) {
            return Ok(Next::Frame(header));
        }
        if self.is_entered_properly(place.segment)? {
            return Ok(Next::Rolled);
        }
        // A segment gets its index only once the next one was entered for good. No crash shortens a file.
        let is_complete = !matches!(found.known, Known::Absent) || is_shortened(found.length, found.expected);
        if !self.broken && !is_complete && self.is_torn_tail(place)? {
            return Ok(Next::Tail);
        }
        self.broken = true;
        // A running server writes one frame after the other: by the time one behind is seen, this one is whole.
        window.look_again();
        let mut place = place;
        while window.sector(place)?.is_some() {
            let header = window.frame(&self.secrets, place)?.map(|(header, _)| header);
            if let Some(header) = header.filter(|header| self.may_follow(header)) {
                return Ok(Next::Frame(header));
            }
            place.offset += SECTOR_BYTES;
        }
        // Or it has come into the next segment meanwhile.
        if self.is_entered_properly(place.segment)? {
            self.broken = false;
            return Ok(Next::Rolled);
        }
        Ok(Next::Lost)
    }

    /// Whether the frame can belong to this log behind the last one, with others missing in between.
    fn may_follow(&self, header: &FrameHeader) -> bool {
        self.tail.is_none_or(|tail| header.sequence > tail.sequence && header.epoch >= tail.epoch)
    }

    /// Whether the next segment begins with the frame behind the last one.
    fn is_entered_properly(&self, segment: u32) -> Result<bool, OpenError> {
        let Some(next) = segment.checked_add(1) else { return Ok(false) };
        let Some(mut found) = self.open(next)? else { return Ok(false) };
        let header = found.window.frame(&self.secrets, Place { segment: next, offset: 0 })?;
        Ok(self.tail.is_some() && header.is_some_and(|(header, _)| follows(self.tail.as_ref(), &header)))
    }

    /// Whether nothing behind `place` proves that anything was synced there.
    fn is_torn_tail(&mut self, place: Place) -> Result<bool, OpenError> {
        if self.proof.is_none() {
            self.proof = Some(self.furthest_synced_behind(place)?);
        }
        Ok(self.proof.is_none_or(|proof| proof <= place))
    }

    fn furthest_synced_behind(&self, place: Place) -> Result<Place, OpenError> {
        let mut furthest = Place { segment: 0, offset: 0 };
        // Listed anew: what was listed before may have been deleted, its place in the order taken by newer ones.
        let segments = list_segments_with_gaps(self.storage)?;
        let mut entered = Entered::by_files(&segments, &list_indexes(self.storage)?);
        let mut has_debris = false;
        for number in segments.into_iter().filter(|&number| number >= place.segment) {
            let Some(Found { mut window, .. }) = self.open(number)? else { continue };
            let is_here = number == place.segment;
            let mut at = Place { segment: number, offset: if is_here { place.offset } else { 0 } };
            while let Some(sector) = window.sector(at)? {
                if FrameHeader::parse(&self.secrets, sector, at).is_some() {
                    if is_here { has_debris = true } else { entered.holds_frames(number) }
                }
                if let Some((header, _)) = window.frame(&self.secrets, at)? {
                    furthest = furthest.max(header.synced);
                }
                at.offset += SECTOR_BYTES;
            }
        }
        if entered.proves_loss(place, has_debris) {
            furthest = furthest.max(Place { segment: place.segment + 1, offset: 0 });
        }
        Ok(furthest)
    }

    /// Shows the records of an intact frame.
    fn take(&mut self, found: &mut Found, header: &FrameHeader) -> Result<(), OpenError> {
        self.account_for_missing(header);
        let frame = found.window.bytes(u64::from(header.place.offset), header.frame_bytes())?;
        let raw = raw_header(frame);
        let start = FRAME_HEADER_BYTES as usize;
        let payload = &frame[start..start + header.payload_bytes as usize];
        let (mut rest, mut records) = (payload, 0);
        let place_of = |rest: &[u8]| {
            let offset = header.place.offset + FRAME_HEADER_BYTES + u32_of(payload.len() - rest.len());
            Place { segment: header.place.segment, offset }
        };
        let mut left = header.record_count;
        while left > 0
            && let Some((record, after)) = split_record(rest)
        {
            left -= 1;
            let (place, bytes) = (place_of(rest), &rest[..rest.len() - after.len()]);
            rest = after;
            found.digest.add(&entry(place.offset, &record));
            if is_intact_record(&self.secrets, bytes, place) {
                self.visitor.record(inspected(place, record));
                records += 1;
            } else {
                self.fault(place, FaultKind::Record, bytes.len() as u64);
            }
        }
        if left > 0 || !rest.is_empty() {
            self.fault(place_of(rest), FaultKind::Record, rest.len() as u64);
        }
        found.ends = Some((found.ends.map_or(raw, |(first, _)| first), raw));
        self.went_on_to(header);
        self.report.frames += 1;
        self.report.records += records;
        if let Some(segment) = self.report.segments.last_mut() {
            segment.frames += 1;
            segment.records += records;
            segment.used_bytes = u64::from(end_of(header));
            segment.epoch = header.epoch;
        }
        Ok(())
    }

    fn went_on_to(&mut self, header: &FrameHeader) {
        self.tail = Some(Tail::of(header));
        self.end = Some(Place { segment: header.place.segment, offset: end_of(header) });
        self.oldest = header.oldest;
        self.broken = false;
        self.since_frame = self.report.faults.len();
        self.report.epoch = self.report.epoch.max(header.epoch);
    }

    /// Says how many frames are missing before `header`, with the fault that explains it or as one of its own.
    fn account_for_missing(&mut self, header: &FrameHeader) {
        let is_first = self.tail.is_none() && self.report.faults.is_empty();
        if follows(self.tail.as_ref(), header) && (self.tail.is_some() || is_first) {
            return;
        }
        let missing =
            header.sequence.saturating_sub(self.last_sequence().map_or(header.sequence, |last| last + 1));
        if self.explanation().is_none() {
            let (place, kind) = match missing {
                0 => (header.place, FaultKind::Chain),
                _ => (self.end.unwrap_or(header.place), FaultKind::Gap),
            };
            self.fault(place, kind, 0);
        }
        if let Some(fault) = self.explanation() {
            fault.frames = missing;
        }
    }

    /// The last fault since the last frame that was taken, if it explains why frames are missing.
    fn explanation(&mut self) -> Option<&mut Fault> {
        let since_frame = self.report.faults[self.since_frame..].iter_mut().rev();
        since_frame.into_iter().find(|fault| fault.kind != FaultKind::Index)
    }

    /// The bytes from `place` to `end` were frames once. What is whole there and what the index knows is shown.
    fn lost(&mut self, found: &mut Found, place: Place, end: u32) -> Result<(), OpenError> {
        self.visitor.damage();
        let range = place.offset..end;
        let known = found.known.segment().map(|known| known.between(self.storage, &self.secrets, &range));
        let (known, is_all) = known.unwrap_or_else(|| (Vec::new(), true));
        let mut known = known.into_iter().peekable();
        let (mut whole, mut heads) = (0, 0);
        let mut recall = |visitor: &mut dyn Visitor, record: KnownRecord| {
            if show_known(visitor, place.segment, &record) { whole += 1 } else { heads += 1 }
        };
        let readable = end.min(found.window.capacity);
        let bytes = u64::from(readable.saturating_sub(place.offset));
        let region = if bytes == 0 { &[] } else { found.window.bytes(u64::from(place.offset), bytes)? };
        let mut salvaged = 0;
        for (place, record) in Salvage::new(&self.secrets, region, place) {
            while let Some(before) = known.next_if(|known| known.offset < place.offset) {
                recall(self.visitor, before);
            }
            known.next_if(|known| known.offset == place.offset);
            // Others may have been between this one and the last.
            self.visitor.damage();
            self.visitor.record(inspected(place, record));
            salvaged += 1;
        }
        for record in known {
            recall(self.visitor, record);
        }
        let failed = found.file.failed_in(u64::from(range.start)..u64::from(range.end));
        let kind = if failed { FaultKind::Unreadable } else { FaultKind::Frame };
        self.found_in_damage(whole + salvaged, heads);
        if !is_all {
            self.index_knows_not_all(place.segment);
        }
        self.fault(place, kind, u64::from(end - place.offset));
        if let Some(fault) = self.report.faults.last_mut() {
            (fault.records_found, fault.heads_found) = (whole + salvaged, heads);
        }
        if let Some(segment) = self.report.segments.last_mut() {
            segment.used_bytes = u64::from(end);
        }
        Ok(())
    }

    /// A block of the segment's index is damaged: not every head is known.
    fn index_knows_not_all(&mut self, segment: u32) {
        let mut told = self.report.faults.iter().rev().take_while(|fault| fault.place.segment == segment);
        if !told.any(|fault| fault.kind == FaultKind::Index) {
            self.fault(Place { segment, offset: 0 }, FaultKind::Index, 0);
        }
    }

    fn found_in_damage(&mut self, records: u64, heads: u64) {
        self.report.records += records;
        self.report.heads += heads;
        if let Some(segment) = self.report.segments.last_mut() {
            segment.records += records;
        }
    }

    /// No frame follows in this segment, although some should, here or in the next one.
    fn lost_to_the_end(&mut self, found: &mut Found, place: Place) -> Result<(), OpenError> {
        let known_end = found.known.segment().map_or(0, KnownSegment::end);
        let end = self.end_of_debris(found, place)?.max(known_end);
        let is_shortened = is_shortened(found.length, found.expected);
        let capacity = found.window.capacity;
        let mut open_from = end.max(place.offset);
        if end > place.offset {
            self.lost(found, place, end)?;
        } else if place.offset == 0 && !is_shortened && !self.may_be_prepared(place.segment) {
            // A segment may end anywhere. Only one that does not begin is damaged for sure.
            self.fault(place, FaultKind::Frame, u64::from(capacity));
            open_from = capacity;
        }
        if found.known.segment().is_none() {
            self.visitor.damage();
            self.leave_open(u64::from(capacity.saturating_sub(open_from)));
        }
        if let Some(known) = found.known.segment().filter(|known| known.end() > place.offset) {
            self.skip_to(&known.last_header);
            self.broken = !self.is_entered_properly(place.segment)?;
        }
        Ok(())
    }

    /// Whether a segment without any frame can be the one that was made ahead: then what is missing, and explained
    /// already, lay before it.
    fn may_be_prepared(&mut self, segment: u32) -> bool {
        let is_newest = self.segments.last() == Some(&segment);
        is_newest && !exists(self.storage, segment - 1) && self.explanation().is_some()
    }

    /// Sequence of the frame before; `None` if the log began before its oldest segment and nothing tells.
    fn last_sequence(&self) -> Option<u64> {
        let begins = self.report.segments.first().is_some_and(|first| first.number == 1);
        self.tail.map(|tail| tail.sequence).or_else(|| begins.then_some(0))
    }

    /// Goes on behind a frame that is lost, but of which an index holds the header.
    fn skip_to(&mut self, header: &FrameHeader) {
        let missing = self.last_sequence().map_or(0, |last| header.sequence.saturating_sub(last));
        if let Some(fault) = self.explanation() {
            fault.frames = missing;
        }
        self.went_on_to(header);
    }

    /// Where the last thing behind `place` ends that was written to this segment: a torn frame, a whole record, or
    /// what cannot be read. Anything else may be left from an earlier use of the file.
    fn end_of_debris(&self, found: &mut Found, place: Place) -> Result<u32, OpenError> {
        let capacity = found.window.capacity;
        let (mut at, mut end) = (place, place.offset);
        while let Some(sector) = found.window.sector(at)? {
            let header = FrameHeader::parse(&self.secrets, sector, at);
            let sector = u64::from(at.offset)..u64::from(at.offset + SECTOR_BYTES);
            if let Some(header) = header {
                let frame_end = u64::from(at.offset) + header.frame_bytes();
                end = end.max(u32::try_from(frame_end).map_or(capacity, |frame_end| frame_end.min(capacity)));
            } else if found.file.failed_in(sector) {
                end = end.max(at.offset + SECTOR_BYTES);
            }
            at.offset += SECTOR_BYTES;
        }
        if place.offset < capacity {
            let rest = found.window.bytes(u64::from(place.offset), u64::from(capacity - place.offset))?;
            let ends = Salvage::new(&self.secrets, rest, place)
                .map(|(place, record)| place.offset + RECORD_HEADER_BYTES + u32_of(record.payload.len()));
            end = ends.max().map_or(end, |last| end.max(last.next_multiple_of(SECTOR_BYTES).min(capacity)));
        }
        Ok(end)
    }

    /// The files of these segments are gone. What their indexes know is shown.
    fn missing(&mut self, numbers: Range<u32>) -> Result<(), OpenError> {
        let mut next = numbers.start;
        let indexes = if self.without_indexes { Vec::new() } else { list_indexes(self.storage)? };
        for number in indexes.into_iter().filter(|number| numbers.contains(number)) {
            let known = self.known(number);
            let Some(known) = known.segment() else { continue };
            self.gone(next..number);
            self.visitor.damage();
            let (mut whole, mut heads) = (0, 0);
            let (records, is_all) = known.between(self.storage, &self.secrets, &(0..u32::MAX));
            for record in records {
                if show_known(self.visitor, number, &record) { whole += 1 } else { heads += 1 }
            }
            self.report.records += whole;
            self.report.heads += heads;
            if !is_all {
                self.index_knows_not_all(number);
            }
            self.gone(number..number + 1);
            if let Some(fault) = self.report.faults.last_mut() {
                (fault.records_found, fault.heads_found) = (whole, heads);
            }
            self.skip_to(&known.last_header);
            next = number + 1;
        }
        self.gone(next..numbers.end);
        Ok(())
    }

    fn gone(&mut self, numbers: Range<u32>) {
        if !numbers.is_empty() {
            let count = numbers.end - numbers.start;
            self.fault(Place { segment: numbers.start, offset: 0 }, FaultKind::MissingSegments { count }, 0);
        }
    }

    /// Something is missing behind the last frame, and nothing that was found says what.
    fn judge_end(&mut self) {
        let Some((first, last)) = self.report.segments.first().zip(self.report.segments.last()) else {
            return;
        };
        let (first, last) = (first.number, last.number);
        if !self.broken || self.explanation().is_some() {
            return;
        }
        match self.end {
            // Its index says that there was another one.
            Some(end) if end.segment == last && exists(self.storage, last) => self.gone(last + 1..last + 2),
            Some(end) => self.fault(end, FaultKind::Gap, 0),
            None => self.fault(Place { segment: first, offset: 0 }, FaultKind::Gap, 0),
        }
    }

    /// The log's oldest segment, where the newest frames say that it is older than any that is there. Known beforehand,
    /// what the indexes of such segments hold can be shown in its order.
    fn oldest_missing(&self) -> Result<Option<u32>, OpenError> {
        for &number in self.segments.iter().rev() {
            let Some(Found { mut window, .. }) = self.open(number)? else { continue };
            let (mut at, mut newest) = (Place { segment: number, offset: 0 }, None);
            while window.sector(at)?.is_some() {
                let header = window.frame(&self.secrets, at)?.map(|(header, _)| header);
                at.offset = header.as_ref().map_or(at.offset + SECTOR_BYTES, end_of);
                newest = newest.max(header.map(|header| (header.sequence, header.oldest)));
            }
            if let Some((_, oldest)) = newest {
                return Ok(self.segments.first().is_some_and(|&first| oldest < first).then_some(oldest));
            }
        }
        Ok(None)
    }

    /// What must be there before the first frame that was found.
    fn judge_beginning(&mut self) {
        let Some(first) = self.report.segments.first().map(|segment| segment.number) else { return };
        if self.end.is_none() {
            // An older segment is deleted only after this one was synced.
            if first > 1 && self.report.faults.is_empty() {
                self.fault(Place { segment: first, offset: 0 }, FaultKind::Gap, 0);
            }
        } else if self.oldest < self.oldest_missing.unwrap_or(first) {
            self.gone(self.oldest..self.oldest_missing.unwrap_or(first));
            self.report.faults.rotate_right(1);
        }
        if self.end.is_some() && self.oldest < first {
            self.leave_end_open();
        }
    }

    /// Either the oldest segments are lost, or the end of the log is, where frames said that they are given up.
    fn leave_end_open(&mut self) {
        let Some(end) = self.end else { return };
        for segment in self.report.segments.iter_mut().filter(|segment| segment.number >= end.segment) {
            let used = if segment.number == end.segment { u64::from(end.offset) } else { 0 };
            segment.open_bytes = segment.open_bytes.max(segment.bytes.saturating_sub(used));
        }
    }

    /// A segment that the writer deleted since the inspection began is no damage.
    fn forgive_deleted(&mut self, listed: &[u32]) -> Result<(), OpenError> {
        if !self.report.faults.is_empty() {
            let there = list_segments_with_gaps(self.storage)?;
            let was_there = |number| listed.contains(&number) || Some(&number) > listed.last();
            self.report.faults.retain(|fault| {
                let number = fault.place.segment;
                // A segment that an index announces is missed, even if it was never seen.
                let announced = number.checked_sub(1).is_some_and(|before| there.last() == Some(&before));
                there.contains(&number) || !was_there(number) || announced
            });
        }
        Ok(())
    }

    fn fault(&mut self, place: Place, kind: FaultKind, bytes: u64) {
        let fault = Fault { place, kind, bytes, frames: 0, records_found: 0, heads_found: 0 };
        self.visitor.damage();
        if self.report.faults.len() < FAULTS_MAX {
            self.report.faults.push(fault);
        } else {
            self.report.further_faults += 1;
        }
    }
}

/// Whether a file has lost something of its end: no segment has this length, or its first frame names a larger one.
fn is_shortened(length: u64, expected: Option<u32>) -> bool {
    expected.map_or_else(|| !is_segment_length(length), |expected| length < u64::from(expected))
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).expect("within a segment, which is smaller than 4 GiB")
}

fn entry<'a>(offset: u32, record: &Record<'a>) -> Entry<'a> {
    let payload_bytes = u32_of(record.payload.len());
    Entry { key: record.key, anchor: record.anchor, offset, payload_bytes, head: record.head() }
}

fn inspected(place: Place, record: Record<'_>) -> InspectedRecord<'_> {
    let length = u32_of(record.payload.len());
    InspectedRecord {
        key: record.key,
        anchor: record.anchor,
        position: Position { segment: place.segment, offset: place.offset, length },
        head: record.head(),
        payload: Some(record.payload),
    }
}

/// Shows a record that only an index knows; whether the head is all of it.
fn show_known(visitor: &mut dyn Visitor, segment: u32, record: &KnownRecord) -> bool {
    let is_whole = record.head.len() == record.payload_bytes as usize;
    visitor.record(InspectedRecord {
        key: record.key,
        anchor: record.anchor,
        position: Position { segment, offset: record.offset, length: record.payload_bytes },
        head: &record.head,
        payload: is_whole.then_some(&record.head),
    });
    is_whole
}
