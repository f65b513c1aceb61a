//! Reading a log without changing it, and saying everything that is wrong with it.
//!
//! Owns what an inspection tells. Must never write, never need the directory's lock, and never call damage what a
//! running server is just writing or deleting. It finds damage wherever [`open`](crate::open) refuses, and also where
//! `open` relies on a segment's index and does not look.

mod known;
mod walk;

use crate::{
    files::Files,
    format::{Place, Position, Secrets, segment_name},
    reconstruct::secrets_from_frames,
    recovery::{OpenError, list_segments_with_gaps, read_format, refuse_unfinished_repair},
    storage::Storage,
};
use std::{fmt, io, sync::Arc};
use walk::Walk;

/// A record of which at least the head is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectedRecord<'a> {
    /// The key it was pushed with.
    pub key: Option<u64>,
    /// Whether it is a full copy of its key's data.
    pub anchor: bool,
    /// Where it lies.
    pub position: Position,
    /// What replay needs of it.
    pub head: &'a [u8],
    /// All that was pushed; `None` if the rest is lost and only the segment's index knows the head.
    pub payload: Option<&'a [u8]>,
}

/// Whoever wants to see what an inspection reads.
pub trait Visitor {
    /// A record of the log, in order; also those that were found in a damaged frame or are known by an index.
    fn record(&mut self, record: InspectedRecord<'_>);

    /// Something is damaged between the records shown so far and those to come. Where records are found inside of
    /// damage, it is said before each and after the last.
    fn damage(&mut self) {}

    /// So many bytes of segments have been dealt with, of [`segment_bytes`].
    fn progress(&mut self, _bytes: u64) {}
}

/// What kind of damage a [`Fault`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Bytes that were part of one or more frames and are no intact frame now: bits changed, a page was lost.
    Frame,
    /// The same, and the medium reports an error for at least a part of them.
    Unreadable,
    /// A record whose own checksum is wrong, in a frame whose checksum is right: it was written wrong.
    Record,
    /// An intact frame that is not the one that was written after the frame before it.
    Chain,
    /// Frames are missing where the log looks as if it simply ended: older bytes, or zeros, took their place.
    Gap,
    /// Files of segments are gone.
    MissingSegments {
        /// How many, beginning with the fault's segment.
        count: u32,
    },
    /// A segment's index is damaged, or is not this segment's. Nothing is lost: the next start makes it anew.
    Index,
    /// A segment's file does not have the length that it was made with.
    Length {
        /// Bytes that it has.
        found: u64,
        /// Bytes that its first frame names; `None` if that cannot be read.
        expected: Option<u32>,
    },
}

impl FaultKind {
    /// A short stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frame => "damaged-frame",
            Self::Unreadable => "unreadable",
            Self::Record => "damaged-record",
            Self::Chain => "broken-chain",
            Self::Gap => "missing-frames",
            Self::MissingSegments { .. } => "missing-segment",
            Self::Index => "damaged-index",
            Self::Length { .. } => "wrong-length",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame => write!(f, "a frame that was synced is damaged"),
            Self::Unreadable => write!(f, "the medium cannot be read here"),
            Self::Record => write!(f, "a record's checksum is wrong inside an intact frame"),
            Self::Chain => write!(f, "the frame here does not follow the one before it"),
            Self::Gap => write!(f, "frames that were synced are missing"),
            Self::MissingSegments { count: 1 } => write!(f, "the segment's file is gone"),
            Self::MissingSegments { count } => write!(f, "the files of {count} segments are gone"),
            Self::Index => {
                write!(f, "the segment's index is damaged; nothing is lost, the next start makes it anew")
            }
            Self::Length { found, expected: Some(expected) } => {
                write!(f, "the file has {found} bytes and was made with {expected}")
            }
            Self::Length { found, expected: None } => {
                write!(f, "the file has {found} bytes, which no segment is made with")
            }
        }
    }
}

/// One damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it begins.
    pub place: Place,
    /// What is wrong.
    pub kind: FaultKind,
    /// Bytes from there on that cannot be read as they were written; 0 where nothing tells how many.
    pub bytes: u64,
    /// Frames that are missing for it, as far as the frames around it tell.
    pub frames: u64,
    /// Records in those bytes that are still whole, or known whole by the segment's index.
    pub records_found: u64,
    /// Records in those bytes of which the index knows the head; the rest is lost.
    pub heads_found: u64,
}

/// One segment as it was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectedSegment {
    /// Its number.
    pub number: u32,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of it in use: where its last frame ends. 0: prepared ahead.
    pub used_bytes: u64,
    /// Intact frames.
    pub frames: u64,
    /// Records that can be read.
    pub records: u64,
    /// Number of the run that wrote its last frame; 0 without one.
    pub epoch: u64,
    /// Bytes of its index; 0 if it has none.
    pub index_bytes: u64,
    /// Bytes behind its last frame in which frames may have been that are lost, although no fault says so: neither an
    /// index nor a following frame tells where the segment ended, and a segment may end anywhere. At the end of a log
    /// that has faults: bytes of the torn tail, or all that is left of the segment where more was written for sure.
    pub open_bytes: u64,
}

/// What an inspection found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The file `format` is missing or damaged: the log was read with what its frames give away.
    pub format_lost: bool,
    /// The files, oldest first.
    pub segments: Vec<InspectedSegment>,
    /// Intact frames.
    pub frames: u64,
    /// Records that can be read, those from damaged frames included.
    pub records: u64,
    /// Further records of which only the head is known.
    pub heads: u64,
    /// Where the log ends; `None` without any frame.
    pub end: Option<Place>,
    /// The newest epoch; 0 without any frame.
    pub epoch: u64,
    /// The log's oldest segment when its last frame was written; 0 without any frame.
    pub oldest: u32,
    /// What is damaged, in the order of the log. Empty: [`open`](crate::open) accepts this log.
    pub faults: Vec<Fault>,
    /// Faults beyond those listed.
    pub further_faults: u64,
}

impl Inspection {
    /// Whether nothing is damaged. A torn tail, which was never synced, is no damage.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && !self.format_lost
    }
}

/// Bytes of all segment files, for whoever shows progress.
pub fn segment_bytes(storage: &dyn Storage) -> Result<u64, OpenError> {
    let mut bytes = 0;
    for segment in list_segments_with_gaps(storage)? {
        bytes += match storage.open(&segment_name(segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            file => file
                .and_then(|file| file.length())
                .map_err(|source| OpenError::Io { what: segment_name(segment), source })?,
        };
    }
    Ok(bytes)
}

/// Reads the whole log in `storage` and shows `visitor` every record that can be read. Changes nothing, and may run
/// beside the writer: what is at the end when it gets there is the end, and what is deleted meanwhile is left out.
///
/// # Errors
/// [`OpenError::FormatFile`] if the file `format` is lost and no frame says how to check the others,
/// [`OpenError::Version`] for a directory of another version, [`OpenError::Io`] if the directory cannot be listed or a
/// file not be opened, [`OpenError::RepairUnfinished`] while the files are those of two logs. Damage is no error: it is in the result.
pub fn inspect(storage: &dyn Storage, visitor: &mut dyn Visitor) -> Result<Inspection, OpenError> {
    refuse_unfinished_repair(storage)?;
    let segments = list_segments_with_gaps(storage)?;
    let Some((secrets, format_lost)) = secrets(storage, &segments)? else {
        return Ok(Inspection::default());
    };
    let mut report = Walk::new(storage, secrets, format_lost, segments, visitor).all()?;
    report.format_lost = format_lost;
    Ok(report)
}

/// Reads single records of the log in `storage` without opening it; see [`inspect`] for the errors. A segment that is
/// deleted meanwhile is gone for it, too: [`ReadError`](crate::ReadError) says so.
pub fn files(storage: Arc<dyn Storage>) -> Result<Files, OpenError> {
    let segments = list_segments_with_gaps(&*storage)?;
    let (secrets, _) = secrets(&*storage, &segments)?.ok_or(OpenError::FormatFile)?;
    let files = Files::new(storage, secrets);
    for segment in segments {
        files.insert(segment, None);
    }
    Ok(files)
}

/// How to check the directory's frames, and whether only the frames themselves tell; `None` for an empty directory.
fn secrets(storage: &dyn Storage, segments: &[u32]) -> Result<Option<(Secrets, bool)>, OpenError> {
    match read_format(storage) {
        Ok(Some(salt)) => Ok(Some((Secrets::from_salt(&salt), false))),
        Ok(None) if segments.is_empty() => Ok(None),
        Ok(None) | Err(OpenError::FormatFile) => {
            let secrets = secrets_from_frames(storage, segments)?.ok_or(OpenError::FormatFile)?;
            Ok(Some((secrets, true)))
        }
        Err(error) => Err(error),
    }
}
