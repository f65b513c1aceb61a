//! The log's side of the engine: entries in, commits out.
//!
//! Owns the grouping of entries into commits. Runs on the log thread, or in the simulator. Must never retry a
//! failed write or sync.

use crate::codec::encode;
use crate::segments::{Ahead, SegmentJob};
use crate::size::{growth_bytes, record_bytes};
use millpond_core::command::OpNumber;
use millpond_core::identity::Seq;
use millpond_core::record::Record;
use millpond_journal::{CommitError, Position, Writer};

/// One thing for the log to do. Order matters.
#[derive(Debug)]
pub enum Entry {
    /// Append a record.
    Append {
        /// Its number.
        op: OpNumber,
        /// The record.
        record: Record,
        /// Whether somebody waits for its durability.
        sync: bool,
        /// Whether it goes into one group with the next entry.
        with_next: bool,
    },
    /// Give up the oldest segment; everything appended before is synced first.
    Delete {
        /// The segment.
        segment: u32,
        /// Whether its file may become another segment.
        keep_file: bool,
    },
}

/// News of a message's full copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyNews {
    /// The newest lies here now.
    Placed(Position),
    /// The next will be so many bytes longer than the newest.
    Grew(u64),
}

/// What a commit has done.
#[derive(Debug, Clone)]
pub struct Commit {
    /// What became of messages' full copies, in order.
    pub copies: Vec<(Seq, CopyNews)>,
    /// The last record that is written.
    pub written: OpNumber,
    /// The last record that is durable, if that is all that is written.
    pub durable: Option<OpNumber>,
    /// The segment in which the log ends.
    pub end_segment: u32,
    /// The segment in which what is durable ends.
    pub synced_segment: u32,
    /// Everything is durable, and nothing has been written for a while.
    pub settled: bool,
    /// Bytes that can be written without another segment.
    pub remaining_bytes: u64,
    /// The disk has no room for what shall lie ahead of the log: the next segment and one in reserve.
    pub full: bool,
    /// A file is kept in reserve.
    pub spare: bool,
    /// Beside that, the disk has room for so many segments, as far as is known.
    pub room_segments: u64,
    /// Records in this group.
    pub records: usize,
}

/// What surrounds the log.
pub trait Outside {
    /// A group is written.
    fn report(&mut self, commit: Commit);

    /// The disk has no room for what is pending. Returns whether to try again, after a pause; `false` gives up
    /// and stops the log.
    fn wait_for_room(&mut self) -> bool;

    /// Something is to be done with a segment, in this order and in no hurry: the log does not wait for it.
    fn segment_job(&mut self, job: SegmentJob);
}

/// The writer with what it must remember between groups.
#[derive(Debug)]
pub struct Log {
    writer: Writer,
    written: OpNumber,
    /// There is no room for what shall lie ahead of the log, or that is not known yet and could matter soon.
    full: bool,
    /// A file is kept for the segment after the next.
    spare: bool,
    /// The disk had room for so many more.
    room_segments: u64,
    /// The log says itself how far it is synced.
    marked: bool,
    /// The segment that was asked for last.
    asked_for: u32,
}

impl Log {
    /// A log that goes on behind `writer`'s end.
    pub fn new(writer: Writer) -> Self {
        let is_short = writer.remaining_bytes() < writer.group_bytes_max() / 2;
        let full = is_short && writer.wants_next().is_some();
        let preparer = writer.preparer();
        let (spare, room_segments) = (preparer.has_spare(), preparer.room_segments());
        Self { writer, written: OpNumber(0), full, spare, room_segments, marked: false, asked_for: 0 }
    }

    /// Asks for the next segment to be made ahead, if that was not done yet. The log does it itself after every group.
    /// One that a former process has made is asked for, too: whether there is room for what lies behind it is not known.
    pub fn look_ahead(&mut self, outside: &mut dyn Outside) {
        let number = self.writer.end().segment + 1;
        if number > self.asked_for {
            self.asked_for = number;
            outside.segment_job(SegmentJob::Prepare(number));
        }
    }

    /// Whether there is no room for what shall lie ahead of the log, or that is not known and could matter soon.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// The largest content that surely fits into a group, its message's record included.
    pub fn content_bytes_max(&self) -> u64 {
        self.writer.group_bytes_max() / 2
    }

    /// Whether nothing is left to sync or to say: the log may sleep.
    pub fn is_settled(&self) -> bool {
        self.writer.synced() == self.writer.end() && self.marked
    }

    /// Takes what was made ahead; `None` if it could not be made.
    pub fn ahead(&mut self, ahead: Option<Ahead>) {
        self.full = !ahead.as_ref().is_some_and(|ahead| ahead.roomy);
        self.spare = ahead.as_ref().is_some_and(|ahead| ahead.spare);
        self.room_segments = ahead.as_ref().map_or(0, |ahead| ahead.room_segments);
        if let Some(next) = ahead.and_then(|ahead| ahead.next) {
            self.writer.install(next);
        }
    }

    /// Writes entries as one group, or as few as they fit into: one write each, and one sync for the last if
    /// anyone waits for it.
    pub fn write(&mut self, entries: Vec<Entry>, outside: &mut dyn Outside) -> Result<(), CommitError> {
        self.marked = false;
        let mut group = Group::default();
        // What goes with the record before stays with it: their bytes were looked at together.
        let mut stays = false;
        let bytes = together_bytes(&entries);
        for (entry, bytes) in entries.into_iter().zip(bytes) {
            match entry {
                Entry::Append { op, record, sync, with_next } => {
                    if !std::mem::replace(&mut stays, with_next)
                        && self.writer.pending_records() > 0
                        && self.writer.pending_bytes() + bytes > self.group_bytes_max()
                    {
                        self.commit(&mut group, outside)?;
                    }
                    let anchor = record.anchors();
                    let key = anchor.map(|seq| seq.0);
                    if let Some(grown) = growth_bytes(&record) {
                        group.grown.push((group.anchors.len(), grown));
                    }
                    self.writer.push_with_body(key, anchor.is_some(), |out| encode(&record, out));
                    group.anchors.push(anchor);
                    group.last = op;
                    group.sync |= sync;
                }
                Entry::Delete { segment, keep_file } => {
                    self.commit(&mut group, outside)?;
                    let retired = self.until_room(outside, |writer| writer.retire(segment, keep_file))?;
                    outside.segment_job(SegmentJob::Dispose(retired));
                    self.report_idle(outside);
                }
            }
        }
        self.commit(&mut group, outside)
    }

    /// What the pending group shall not exceed. One that fits into the segment shall go on fitting: what a segment has
    /// left when a group does not is lost to the log.
    fn group_bytes_max(&self) -> u64 {
        let (half, room) = (self.writer.group_bytes_max() / 2, self.writer.room_bytes());
        if self.writer.pending_bytes() <= room { half.min(room) } else { half }
    }

    /// Does what may find the disk full as often as it takes: nothing is lost meanwhile.
    fn until_room<T>(
        &mut self,
        outside: &mut dyn Outside,
        mut attempt: impl FnMut(&mut Writer) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        loop {
            match attempt(&mut self.writer) {
                Err(CommitError::Full) => {
                    self.full = true;
                    outside.report(self.state(Vec::new(), None, 0));
                    if !outside.wait_for_room() {
                        return Err(CommitError::Full);
                    }
                }
                other => return other,
            }
        }
    }

    fn commit(&mut self, group: &mut Group, outside: &mut dyn Outside) -> Result<(), CommitError> {
        if group.anchors.is_empty() {
            return Ok(());
        }
        let group = std::mem::take(group);
        self.check_room(outside)?;
        let committed = self.until_room(outside, |writer| writer.commit(group.sync))?;
        self.written = group.last;
        let durable = committed.durable.then_some(self.written);
        outside.report(self.state(group.copies(&committed.placed), durable, group.anchors.len()));
        self.look_ahead(outside);
        Ok(())
    }

    /// Before the last quarter of the last segment is begun, it must be known whether another one can be made: what
    /// is left is for settlements, and a group that no longer fits could never be taken back.
    fn check_room(&mut self, outside: &mut dyn Outside) -> Result<(), CommitError> {
        let is_ahead = self.writer.wants_next().is_none();
        if is_ahead || self.full || self.writer.remaining_bytes() > self.writer.group_bytes_max() / 4 {
            return Ok(());
        }
        // Waits for a preparation that is under way.
        self.full = match self.writer.prepare_next() {
            Ok(()) => false,
            Err(CommitError::Full) => true,
            Err(error) => return Err(error),
        };
        if self.full {
            outside.report(self.state(Vec::new(), None, 0));
        }
        Ok(())
    }

    fn state(&self, copies: Vec<(Seq, CopyNews)>, durable: Option<OpNumber>, records: usize) -> Commit {
        Commit {
            copies,
            written: self.written,
            durable,
            end_segment: self.writer.end().segment,
            synced_segment: self.writer.synced().segment,
            settled: self.is_settled(),
            remaining_bytes: self.writer.remaining_bytes(),
            full: self.full,
            spare: self.spare,
            room_segments: self.room_segments,
            records,
        }
    }

    /// Nobody has written for a while: makes durable what nobody waited for, and leaves the proof behind.
    pub fn idle(&mut self, outside: &mut dyn Outside) -> Result<(), CommitError> {
        self.writer.sync()?;
        self.writer.mark_synced_if_needed()?;
        self.marked = true;
        self.report_idle(outside);
        Ok(())
    }

    /// Reports how things stand, without a group.
    pub fn report_idle(&mut self, outside: &mut dyn Outside) {
        let all_synced = self.writer.synced() == self.writer.end();
        let durable = all_synced.then_some(self.written);
        outside.report(self.state(Vec::new(), durable, 0));
    }
}

/// How many bytes each entry takes, with those that go with it behind it.
fn together_bytes(entries: &[Entry]) -> Vec<u64> {
    let mut bytes: Vec<u64> = Vec::with_capacity(entries.len());
    for entry in entries.iter().rev() {
        let behind = bytes.last().copied().unwrap_or(0);
        bytes.push(match entry {
            Entry::Append { record, with_next, .. } => {
                record_bytes(record) + if *with_next { behind } else { 0 }
            }
            Entry::Delete { .. } => 0,
        });
    }
    bytes.reverse();
    bytes
}

#[derive(Debug, Default)]
struct Group {
    anchors: Vec<Option<Seq>>,
    /// By how much records make messages longer, behind so many of the group's.
    grown: Vec<(usize, (Seq, u64))>,
    last: OpNumber,
    sync: bool,
}

impl Group {
    /// The news of full copies, whose records went to these places.
    fn copies(&self, placed: &[Position]) -> Vec<(Seq, CopyNews)> {
        let anchors = self.anchors.iter().zip(placed).enumerate();
        let placed = anchors.filter_map(|(at, (anchor, position))| Some((at, (*anchor)?, *position)));
        if self.grown.is_empty() {
            return placed.map(|(_, seq, position)| (seq, CopyNews::Placed(position))).collect();
        }
        let placed = placed.map(|(at, seq, position)| (at, seq, CopyNews::Placed(position)));
        let grown = self.grown.iter().map(|&(at, (seq, bytes))| (at, seq, CopyNews::Grew(bytes)));
        let mut news: Vec<(usize, Seq, CopyNews)> = placed.chain(grown).collect();
        news.sort_by_key(|&(at, ..)| at);
        news.into_iter().map(|(_, seq, news)| (seq, news)).collect()
    }
}

#[cfg(test)]
mod tests;
