//! One segment's file, read piece by piece.
//!
//! Owns the buffer. Must never hold more than a frame or a fixed piece, whichever is larger, nor judge whether a frame
//! belongs to the log.

use crate::{
    format::{FrameHeader, Place, SECTOR_BYTES, Secrets, segment_name},
    recovery::{OpenError, is_segment_length},
    sealed::{RawHeader, raw_header},
    storage::{Storage, StorageFile},
};
use std::sync::Arc;

/// How much is read at once, unless a frame is larger.
const READ_BYTES: u64 = 1024 * 1024;

/// A segment file, read piece by piece.
pub(crate) struct Window {
    segment: u32,
    file: Arc<dyn StorageFile>,
    pub(crate) capacity: u32,
    buffer: Vec<u8>,
    start: u64,
}

impl Window {
    pub(crate) fn open(storage: &dyn Storage, segment: u32) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { what: segment_name(segment), source };
        Self::over(segment, storage.open(&segment_name(segment)).map_err(io)?)
    }

    pub(crate) fn over(segment: u32, file: Arc<dyn StorageFile>) -> Result<Self, OpenError> {
        let length = file.length().map_err(|source| OpenError::Io { what: segment_name(segment), source })?;
        let window = Self::of_any_length(segment, file)?;
        // Segments are created whole: a file of any other length has lost something since.
        if is_segment_length(length) {
            Ok(window)
        } else {
            Err(OpenError::Corrupt { place: Place { segment, offset: window.capacity } })
        }
    }

    /// A window over whatever `file` holds, whole or not.
    pub(crate) fn of_any_length(segment: u32, file: Arc<dyn StorageFile>) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { what: segment_name(segment), source };
        let capacity = capacity(&*file).map_err(io)?;
        Ok(Self { segment, file, capacity, buffer: Vec::new(), start: 0 })
    }

    /// Reads everything anew from here on: somebody may have written meanwhile.
    pub(crate) fn look_again(&mut self) {
        self.buffer.clear();
    }

    /// The bytes of one sector; `None` at the end of the segment.
    pub(crate) fn sector(&mut self, place: Place) -> Result<Option<&[u8]>, OpenError> {
        if u64::from(place.offset) + u64::from(SECTOR_BYTES) > u64::from(self.capacity) {
            return Ok(None);
        }
        self.bytes(u64::from(place.offset), u64::from(SECTOR_BYTES)).map(Some)
    }

    /// The header at `place` if it can be one of this segment; its checksum is not looked at. Reads its sector alone.
    pub(crate) fn header(
        &self,
        secrets: &Secrets,
        place: Place,
    ) -> Result<Option<(FrameHeader, RawHeader)>, OpenError> {
        let mut sector = [0; SECTOR_BYTES as usize];
        if place.offset.checked_add(SECTOR_BYTES).is_none_or(|end| end > self.capacity) {
            return Ok(None);
        }
        self.read(u64::from(place.offset), &mut sector)?;
        Ok(FrameHeader::parse(secrets, &sector, place).map(|header| (header, raw_header(&sector))))
    }

    /// The frame at `place` if it is intact; whether it belongs to the chain is the caller's question.
    pub(crate) fn frame(
        &mut self,
        secrets: &Secrets,
        place: Place,
    ) -> Result<Option<(FrameHeader, &[u8])>, OpenError> {
        let Some(sector) = self.sector(place)? else { return Ok(None) };
        let Some(header) = FrameHeader::parse(secrets, sector, place) else { return Ok(None) };
        if u64::from(place.offset) + header.frame_bytes() > u64::from(self.capacity) {
            return Ok(None);
        }
        let frame = self.bytes(u64::from(place.offset), header.frame_bytes())?;
        Ok(header.is_intact(secrets, frame).then_some((header, frame)))
    }

    /// `length` bytes at `offset`, both within the segment.
    pub(crate) fn bytes(&mut self, offset: u64, length: u64) -> Result<&[u8], OpenError> {
        let held = self.start..self.start + self.buffer.len() as u64;
        if offset < held.start || offset + length > held.end {
            let read = length.max(READ_BYTES).min(u64::from(self.capacity) - offset);
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(to_usize(read), 0);
            self.read(offset, &mut buffer)?;
            (self.buffer, self.start) = (buffer, offset);
        }
        let from = to_usize(offset - self.start);
        Ok(&self.buffer[from..from + to_usize(length)])
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), OpenError> {
        self.file.read_at(offset, buffer).map_err(|source| OpenError::Io {
            what: format!("{} at offset {offset}", segment_name(self.segment)),
            source,
        })
    }
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
