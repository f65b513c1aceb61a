//! Sealing complete segments, on whatever thread has time.
//!
//! Owns the making of an index from a segment's bytes, every checksum on the way checked. Must never touch the segment,
//! nor seal one that the log may still write to.

use crate::{
    files::{Files, Pinned},
    format::{Place, index_name, segment_name},
    index::ToSeal,
    recovery::OpenError,
    scan::{end_of, records_of},
    sealed::{Builder, Entry, raw_header},
    storage::{Storage, is_full},
    window::Window,
    writer::Tail,
};
use std::{fmt, io, sync::Arc};

/// An index is kept if it has at most this share of its segment's bytes: reading a larger one saves nothing.
const WORTHWHILE_PART: u64 = 2;

/// Why a segment has no index. The next start reads the whole segment instead, which is all the harm.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The segment does not read as it was written: the next start will refuse the log.
    #[error(
        "{place} is damaged: back up what can still be read, before the next restart refuses the journal"
    )]
    Damaged {
        /// The first frame that is not the log's.
        place: Place,
    },
    /// No room for the index.
    #[error("no room for the index of segment {}", segment_name(*.segment))]
    Full {
        /// The segment.
        segment: u32,
    },
    /// The storage failed.
    #[error("cannot write the index of segment {}: {source}", segment_name(*.segment))]
    Io {
        /// The segment.
        segment: u32,
        /// What the storage said.
        source: io::Error,
    },
}

/// A segment has an index now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The segment.
    pub segment: u32,
    /// Bytes of the index: tell [`Index::sealed`](crate::Index::sealed).
    pub index_bytes: u64,
}

/// Writes the indexes of complete segments. Cheap to clone; give one to a background thread.
#[derive(Clone)]
pub struct Sealer {
    storage: Arc<dyn Storage>,
    files: Files,
}

impl Sealer {
    pub(crate) fn new(storage: Arc<dyn Storage>, files: Files) -> Self {
        Self { storage, files }
    }

    /// Reads and checks a whole segment and writes its index, as [`Index::next_to_seal`](crate::Index::next_to_seal)
    /// asked for it. `None` if the log has given the segment up, or an index would be too large or not worthwhile.
    /// Doing it again is harmless.
    ///
    /// Only for a segment before the one in which [`Writer::synced`](crate::Writer::synced) lies: an index is also the
    /// proof that the log went on in the next segment.
    pub fn seal(&self, what: ToSeal) -> Result<Option<Sealed>, SealError> {
        let ToSeal { segment, index_bytes_max } = what;
        let io = |source| SealError::Io { segment, source };
        let (Some(pinned), Some(next)) =
            (self.files.pinned(segment).map_err(io)?, self.files.pinned(segment + 1).map_err(io)?)
        else {
            return Ok(None);
        };
        let explain = |error| match error {
            OpenError::Corrupt { place } => SealError::Damaged { place },
            OpenError::Io { source, .. } => SealError::Io { segment, source },
            other => SealError::Io { segment, source: io::Error::other(other) },
        };
        let built = self.build(segment, &pinned, &next, index_bytes_max).map_err(explain)?;
        let Some(bytes) = built.filter(|bytes| bytes.len() as u64 <= index_bytes_max) else {
            return Ok(None);
        };
        let index_bytes = bytes.len() as u64;
        self.storage.write_whole(&index_name(segment), &bytes).map_err(|source| {
            if is_full(&source) { SealError::Full { segment } } else { SealError::Io { segment, source } }
        })?;
        Ok(Some(Sealed { segment, index_bytes }))
    }

    fn build(
        &self,
        segment: u32,
        pinned: &Pinned,
        next: &Pinned,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, OpenError> {
        let secrets = self.files.secrets();
        let mut window = Window::over(segment, Arc::clone(&pinned.file))?;
        let bytes_max = bytes_max.min(u64::from(window.capacity) / WORTHWHILE_PART);
        let after = Place { segment: segment + 1, offset: 0 };
        let next_window = Window::over(segment + 1, Arc::clone(&next.file))?;
        let after = next_window.header(&secrets, after)?.ok_or(OpenError::Corrupt { place: after })?.0;
        let mut place = Place { segment, offset: 0 };
        let mut builder: Option<Builder> = None;
        let (mut frames, mut last) = (0, None);
        while let Some((header, frame)) = window.frame(&secrets, place)? {
            let tail = last.map(|(header, _)| Tail::of(&header));
            if tail.is_some_and(|tail| !tail.precedes(&header)) {
                break;
            }
            let raw = raw_header(frame);
            let builder = builder.get_or_insert_with(|| Builder::new(secrets, segment, raw));
            records_of(&header, frame, &mut |offset, record| {
                let payload_bytes = u32::try_from(record.payload.len()).expect("within a segment");
                let (key, anchor, head) = (record.key, record.anchor, record.head());
                builder.push(&Entry { key, anchor, offset, payload_bytes, head });
                Ok(())
            })?;
            if builder.bytes() as u64 > bytes_max {
                return Ok(None);
            }
            frames += 1;
            last = Some((header, raw));
            place.offset = end_of(&header);
        }
        let (Some(builder), Some((header, raw))) = (builder, last) else {
            return Err(OpenError::Corrupt { place });
        };
        // Where this segment ended, the log went on in the next: if not, something at its end is missing.
        if !Tail::of(&header).precedes(&after) {
            return Err(OpenError::Corrupt { place });
        }
        Ok(Some(builder.finish(frames, header.place.offset, &raw)))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("files", &self.files).finish_non_exhaustive()
    }
}
