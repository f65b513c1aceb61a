//! The one writer of the log.
//!
//! Owns the pending group, the frame chain, the knowledge of what is synced, and the step from one segment to the
//! next. Must never retry a failed write or sync: after one, every call fails. Belongs to one thread.

use crate::{
    files::{Files, Retired},
    format::{
        FRAME_HEADER_BYTES, FrameHeader, FrameKind, Place, Position, RECORD_HEADER_BYTES, SECTOR_BYTES,
        Secrets, append_record, padded, place_record, segment_name,
    },
    prepare::{PrepareError, Prepared, Preparer},
    storage::StorageFile,
};
use std::{fmt, io, mem, sync::Arc};

const SECTOR: usize = SECTOR_BYTES as usize;
/// Groups leave so much free at the end of every segment: one sector for a mark or the first frame of an epoch, and
/// one that only [`Writer::retire`] may use, so that a full disk can still give its oldest segment back.
const MARK_RESERVE_BYTES: u32 = 2 * SECTOR_BYTES;
const DELETE_RESERVE_BYTES: u32 = SECTOR_BYTES;

/// Why a group is not in the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// No room for another segment, or no file descriptor for it. Nothing was written and the group is still pending:
    /// commit again once there is, or [`Writer::discard`] it.
    #[error("the disk is full: no room for another segment; free space, nothing was written")]
    Full,
    /// The group does not fit into a segment. Nothing was written; the group is discarded.
    #[error("a group of {bytes} bytes does not fit into a segment, which takes {limit}; use larger segments")]
    TooLarge {
        /// Bytes of the group's frame.
        bytes: u64,
        /// The most that a frame may have.
        limit: u64,
    },
    /// A write or a sync failed. What of this and of earlier unsynced groups survives is unknown until the log is
    /// opened again; this writer is out of service.
    #[error("{action} segment {} failed: {source}; restart to recover what was synced", segment_name(*.segment))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The segment.
        segment: u32,
        /// What the storage said.
        source: io::Error,
    },
    /// An earlier write or sync failed.
    #[error("the journal stopped after a failed write or sync; restart to recover what was synced")]
    Stopped,
}

/// What [`Writer::commit`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Positions of the group's records, in the order in which they were pushed.
    pub placed: Vec<Position>,
    /// Whether this group (and everything before it) is known to survive a power loss.
    pub durable: bool,
    /// Where the log ends now.
    pub end: Place,
}

/// The segment being written.
struct Current {
    number: u32,
    file: Arc<dyn StorageFile>,
    capacity: u32,
    end: u32,
}

/// Where a log goes on: the last valid frame, as recovery found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) sequence: u64,
    pub(crate) epoch: u64,
    pub(crate) chain: u32,
}

impl Tail {
    pub(crate) fn of(header: &FrameHeader) -> Self {
        Self { sequence: header.sequence, epoch: header.epoch, chain: header.crc }
    }

    /// Whether `header` is the chain's next frame.
    pub(crate) fn precedes(&self, header: &FrameHeader) -> bool {
        self.sequence.checked_add(1) == Some(header.sequence)
            && header.chain == self.chain
            && header.epoch >= self.epoch
    }
}

/// Appends groups of records to the log. Made by [`open`](crate::open).
pub struct Writer {
    secrets: Secrets,
    files: Files,
    preparer: Preparer,
    current: Current,
    next: Option<Prepared>,
    oldest: u32,
    tail: Tail,
    /// Everything that ends here is synced; always the end of a frame.
    synced: Place,
    /// Frames that are no marks were written since the last sync.
    unsynced_content: bool,
    /// They were synced, but no frame in the log says so yet.
    proof_due: bool,
    /// The last epoch whose first frame is synced: less than `tail.epoch` if the disk was full when it began.
    begun_epoch: u64,
    /// The pending group: room for a frame header, then records.
    group: Vec<u8>,
    /// Offset in `group` and payload length of each pending record.
    records: Vec<(u32, u32)>,
    stopped: bool,
}

impl Writer {
    /// Takes over where recovery ended. `segment` is where to write, `end` the offset there.
    pub(crate) fn resume(
        files: Files,
        preparer: Preparer,
        segment: Prepared,
        end: u32,
        tail: Tail,
        oldest: u32,
    ) -> Self {
        let Prepared { number, file, capacity } = segment;
        Self {
            secrets: files.secrets(),
            files,
            preparer,
            current: Current { number, file, capacity, end },
            next: None,
            oldest,
            tail,
            synced: Place { segment: number, offset: end },
            unsynced_content: false,
            proof_due: false,
            begun_epoch: tail.epoch,
            group: Vec::new(),
            records: Vec::new(),
            stopped: false,
        }
    }

    /// Starts an epoch: a frame that says so, synced. Every group of this writer comes after it, so no frame that
    /// an earlier writer left behind the end can ever follow one of ours. On a full disk it waits for the next
    /// segment: reading and deleting go on, and no group can be written before.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) -> Result<(), CommitError> {
        self.tail.epoch = epoch;
        if self.current.end == 0 {
            self.write_empty(FrameKind::Segment)?;
        }
        if self.room(DELETE_RESERVE_BYTES) >= u64::from(SECTOR_BYTES) {
            return self.write_open();
        }
        match self.roll() {
            Err(CommitError::Full) => Ok(()),
            other => other,
        }
    }

    fn write_open(&mut self) -> Result<(), CommitError> {
        self.write_empty(FrameKind::Open)?;
        self.sync()?;
        self.begun_epoch = self.tail.epoch;
        Ok(())
    }

    /// Adds a record to the pending group and returns its index there. `encode` appends the payload, all of which is
    /// replayed. Nothing is written before [`commit`](Self::commit).
    ///
    /// # Panics
    /// If an anchor has no key, or `encode` removes bytes or appends 1 GiB.
    pub fn push(&mut self, key: Option<u64>, anchor: bool, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.push_with_body(key, anchor, |out| {
            let before = out.len();
            encode(out);
            out.len().saturating_sub(before)
        })
    }

    /// The same for a record whose payload ends with a body that replay does not need: `encode` returns the length of
    /// the *head* in front of it. Only the head is handed to replay, and once the segment is sealed only the head is
    /// read for it.
    ///
    /// # Panics
    /// If an anchor has no key, or `encode` removes bytes, or the head is longer than the payload or 1 GiB.
    pub fn push_with_body(
        &mut self,
        key: Option<u64>,
        anchor: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> usize,
    ) -> usize {
        assert!(key.is_some() || !anchor, "an anchor needs a key");
        if self.group.is_empty() {
            self.group.resize(FRAME_HEADER_BYTES as usize, 0);
        }
        let start = u32::try_from(self.group.len()).expect("a group is far below 4 GiB");
        let length = append_record(&self.secrets, &mut self.group, key, anchor, encode);
        self.records.push((start, length));
        self.records.len() - 1
    }

    /// Number of records in the pending group.
    pub fn pending_records(&self) -> usize {
        self.records.len()
    }

    /// Bytes that the pending group would take in the log, and [`group_bytes_max`](Self::group_bytes_max) bounds.
    pub fn pending_bytes(&self) -> u64 {
        padded(self.group.len() as u64)
    }

    /// The largest group that fits into a segment: frame header, record headers and padding included.
    pub fn group_bytes_max(&self) -> u64 {
        u64::from(self.preparer.segment_bytes() - SECTOR_BYTES - MARK_RESERVE_BYTES)
    }

    /// Drops the pending group.
    pub fn discard(&mut self) {
        self.group.clear();
        self.records.clear();
    }

    /// Writes the pending group with one write and, if `sync`, makes it and everything before it durable with one
    /// sync. Without records it is a [`sync`](Self::sync), if asked for.
    pub fn commit(&mut self, sync: bool) -> Result<Committed, CommitError> {
        self.check()?;
        let mut placed = Vec::new();
        if !self.records.is_empty() {
            self.make_room()?;
            placed = self.write_group()?;
        }
        if sync {
            self.sync()?;
        }
        Ok(Committed { placed, durable: self.is_synced(), end: self.end() })
    }

    /// Makes everything written so far durable. Does nothing if it already is.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        self.check()?;
        if self.is_synced() {
            return Ok(());
        }
        let result = self.current.file.sync_data();
        self.stop_on_error("syncing", result)?;
        self.synced = self.end();
        self.proof_due |= mem::take(&mut self.unsynced_content);
        Ok(())
    }

    /// Leaves a synced frame behind that says how far the log is synced, unless one does: from then on damage to
    /// anything before it is told from a torn tail. Call it within 50 ms after the last sync when idle, and at
    /// shutdown. Returns whether it wrote.
    pub fn mark_synced_if_needed(&mut self) -> Result<bool, CommitError> {
        self.check()?;
        // A segment's last sector belongs to `retire`; the next segment's first frame will be the proof.
        if !self.proof_due || self.room(DELETE_RESERVE_BYTES) < u64::from(SECTOR_BYTES) {
            return Ok(false);
        }
        self.sync()?;
        self.write_empty(FrameKind::Mark)?;
        self.sync()?;
        self.proof_due = false;
        Ok(true)
    }

    /// The segment to prepare next, if none is installed. Stays the same until [`install`](Self::install), so
    /// remember what you asked for; preparing twice is harmless.
    pub fn wants_next(&self) -> Option<u32> {
        self.next.is_none().then_some(self.current.number + 1)
    }

    /// Creates segments on another thread.
    pub fn preparer(&self) -> Preparer {
        self.preparer.clone()
    }

    /// Takes a prepared segment for when the current one is full. One that the log has passed is ignored.
    pub fn install(&mut self, prepared: Prepared) {
        if prepared.number == self.current.number + 1 {
            self.next = Some(prepared);
        }
    }

    /// The largest group that fits into what is left of the segment being written.
    pub fn room_bytes(&self) -> u64 {
        self.room(MARK_RESERVE_BYTES)
    }

    /// Bytes that can be written without creating a segment, spread over at most two segments.
    pub fn remaining_bytes(&self) -> u64 {
        let next = self.next.as_ref().map_or(0, |next| {
            u64::from(next.capacity).saturating_sub(u64::from(SECTOR_BYTES + MARK_RESERVE_BYTES))
        });
        self.room(MARK_RESERVE_BYTES) + next
    }

    /// Gives up the oldest segment: from here on the log begins with the next one, and no reader finds this one any
    /// more. Whatever superseded its records must have been committed before; it is synced here, together with a note
    /// of the deletion. The file itself goes when [`Preparer::dispose`](crate::Preparer::dispose) is told, which may
    /// take its time on another thread. Readers' handles stay valid. The note may open another segment: tell the index
    /// with [`Index::wrote`](crate::Index::wrote). With `keep_file` the file may become another segment.
    ///
    /// # Errors
    /// [`CommitError::Full`] if there is no room even for the note: nothing happened, and it may be called again.
    ///
    /// # Panics
    /// If `segment` is not the oldest, or is the one being written.
    pub fn retire(&mut self, segment: u32, keep_file: bool) -> Result<Retired, CommitError> {
        assert_eq!(segment, self.oldest, "only the oldest segment is deleted");
        assert!(segment < self.current.number, "the segment being written is never deleted");
        self.check()?;
        if self.room(0) < u64::from(SECTOR_BYTES) {
            self.roll()?;
        }
        self.oldest = segment + 1;
        self.write_empty(FrameKind::Mark)?;
        self.sync()?;
        Ok(self.files.retire(segment, keep_file))
    }

    /// Number of this run of the log: one more at every open, synced before the first group is written.
    pub fn epoch(&self) -> u64 {
        self.tail.epoch
    }

    /// Where the log ends.
    pub fn end(&self) -> Place {
        Place { segment: self.current.number, offset: self.current.end }
    }

    /// Everything that ends at or before this place is durable.
    pub fn synced(&self) -> Place {
        self.synced
    }

    /// The log's oldest segment.
    pub fn oldest_segment(&self) -> u32 {
        self.oldest
    }

    fn is_synced(&self) -> bool {
        self.synced == self.end()
    }

    /// Bytes left in the current segment, but for `reserve`.
    fn room(&self, reserve: u32) -> u64 {
        u64::from(self.current.capacity.saturating_sub(reserve).saturating_sub(self.current.end))
    }

    /// Sees to it that the pending group fits into the current segment.
    fn make_room(&mut self) -> Result<(), CommitError> {
        let (bytes, limit) = (self.pending_bytes(), self.group_bytes_max());
        if bytes > limit {
            self.discard();
            return Err(CommitError::TooLarge { bytes, limit });
        }
        if self.room(MARK_RESERVE_BYTES) < bytes {
            self.roll()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<Vec<Position>, CommitError> {
        let mut group = mem::take(&mut self.group);
        let payload_bytes = group.len() - FRAME_HEADER_BYTES as usize;
        group.resize(group.len().next_multiple_of(SECTOR), 0);
        let Place { segment, offset } = self.end();
        let mut placed = Vec::with_capacity(self.records.len());
        for (start, length) in self.records.drain(..) {
            let position = Position { segment, offset: offset + start, length };
            place_record(&mut group[start as usize..], position.place());
            placed.push(position);
        }
        let result = self.write_frame(FrameKind::Records, placed.len(), &mut group, payload_bytes);
        group.clear();
        self.group = group;
        result.map(|()| placed)
    }

    fn write_empty(&mut self, kind: FrameKind) -> Result<(), CommitError> {
        self.write_frame(kind, 0, &mut [0; SECTOR], 0)
    }

    /// Seals `frame` as the log's next and writes it at the end. There is room: the caller saw to it.
    fn write_frame(
        &mut self,
        kind: FrameKind,
        records: usize,
        frame: &mut [u8],
        payload: usize,
    ) -> Result<(), CommitError> {
        assert!(frame.len() as u64 <= self.room(0), "frames never cross the end of a segment");
        let frame_bytes = u32::try_from(frame.len()).expect("a frame fits into a segment");
        let payload_bytes = u32::try_from(payload).expect("a payload is smaller than its frame");
        let header = FrameHeader {
            kind,
            place: self.end(),
            segment_bytes: if kind == FrameKind::Segment { self.current.capacity } else { 0 },
            record_count: u32::try_from(records).expect("every record takes bytes of a frame below 4 GiB"),
            sequence: self.tail.sequence + 1,
            epoch: self.tail.epoch,
            synced: self.synced,
            oldest: self.oldest,
            payload_bytes,
            chain: self.tail.chain,
            crc: 0,
        };
        self.tail.chain = header.seal(&self.secrets, frame);
        self.tail.sequence = header.sequence;
        let result = self.current.file.write_at(u64::from(self.current.end), frame);
        self.stop_on_error("writing", result)?;
        self.current.end += frame_bytes;
        self.unsynced_content |= kind != FrameKind::Mark;
        Ok(())
    }

    /// Goes on in the next segment. The current one is synced first, so that a sync never concerns two files and
    /// a frame in a segment proves all segments before it.
    fn roll(&mut self) -> Result<(), CommitError> {
        let wanted = self.current.number + 1;
        self.prepare_next()?;
        let next = self.next.take().expect("it was just prepared");
        assert_eq!(next.number, wanted, "segments follow one another");
        self.sync()?;
        self.files.insert(wanted, Some(Arc::clone(&next.file)));
        self.current = Current { number: wanted, file: next.file, capacity: next.capacity, end: 0 };
        self.write_empty(FrameKind::Segment)?;
        if self.begun_epoch == self.tail.epoch { Ok(()) } else { self.write_open() }
    }

    /// Makes the next segment here and now, unless it is installed; waits for a preparation that is under way.
    ///
    /// # Errors
    /// [`CommitError::Full`] if there is no room for it.
    pub fn prepare_next(&mut self) -> Result<(), CommitError> {
        self.check()?;
        let Some(wanted) = self.wants_next() else { return Ok(()) };
        let next = self.preparer.prepare(wanted).map_err(|error| self.prepare_failed(error))?;
        self.next = Some(next);
        Ok(())
    }

    fn prepare_failed(&mut self, error: PrepareError) -> CommitError {
        self.stopped = !error.is_passing();
        match error {
            PrepareError::Full { .. } | PrepareError::Unopened { .. } => CommitError::Full,
            PrepareError::Io { number, source } => {
                CommitError::Io { action: "creating", segment: number, source }
            }
            PrepareError::Stopped => CommitError::Stopped,
        }
    }

    fn check(&self) -> Result<(), CommitError> {
        if self.stopped { Err(CommitError::Stopped) } else { Ok(()) }
    }

    fn stop_on_error(&mut self, action: &'static str, result: io::Result<()>) -> Result<(), CommitError> {
        self.stopped = result.is_err();
        result.map_err(|source| CommitError::Io { action, segment: self.current.number, source })
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("end", &self.end())
            .field("synced", &self.synced)
            .field("oldest", &self.oldest)
            .field("tail", &self.tail)
            .field("pending_records", &self.records.len())
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

const _: () =
    assert!(RECORD_HEADER_BYTES + FRAME_HEADER_BYTES <= SECTOR_BYTES, "a sector holds an empty record");
