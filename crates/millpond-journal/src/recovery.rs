//! Opening a log: recover, decide, repair the tail, go on.
//!
//! Owns every decision about damage: what is a torn tail (cut, go on) and what is corruption (refuse, leave
//! everything as it is). Must never change a file before that is decided, and may be killed anywhere: doing it
//! again comes to the same end.

use crate::{
    files::Files,
    format::{
        FORMAT_FILE, FORMAT_VERSION, FormatFileError, Place, Position, SECTOR_BYTES, Secrets,
        decode_format_file, encode_format_file, index_name, index_number, segment_name, segment_number,
        spare_name, spare_number,
    },
    index::Index,
    prepare::{Prepared, Preparer},
    repair::MARKER,
    scan::{Beyond, Entered, Replay, Replayed, Walk, look_beyond, walk},
    seal::Sealer,
    storage::{Storage, is_full},
    window::capacity,
    writer::{CommitError, Tail, Writer},
};
use std::{io, ops::ControlFlow, sync::Arc};

/// How often a directory is listed that somebody else changes.
const LISTINGS_MAX: usize = 8;
const REWRITE_BYTES: usize = 1024 * 1024;
/// Segments are whole pages, so that their files are too.
pub(crate) const SEGMENT_BYTES_UNIT: u32 = 4096;
pub(crate) const SEGMENT_BYTES_MIN: u32 = 8 * 1024;
const SEGMENT_BYTES_MAX: u32 = 1024 * 1024 * 1024;

/// How a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the segments that are created from now on: a multiple of 4 KiB from 8 KiB to 1 GiB. It bounds the
    /// size of a group, and is the unit in which disk space is taken and given back.
    pub segment_bytes: u32,
    /// Whether the caller knows that the directory was used before. A log without a single frame, which otherwise is
    /// one that was never begun, is then damaged.
    pub was_used: bool,
}

impl Options {
    /// Whether segments can have this size.
    pub fn is_possible(segment_bytes: u32) -> bool {
        is_segment_length(u64::from(segment_bytes)) && segment_bytes <= SEGMENT_BYTES_MAX
    }
}

impl Default for Options {
    /// Segments of 64 MiB, in a directory of which nothing is known.
    fn default() -> Self {
        Self { segment_bytes: 64 * 1024 * 1024, was_used: false }
    }
}

/// A recovered log, ready to be written.
#[derive(Debug)]
pub struct Opened {
    /// For the log thread.
    pub writer: Writer,
    /// For the thread that decides. It holds every anchor of the log, also of keys that a later change finished:
    /// [`Index::retain`] the live ones.
    pub index: Index,
    /// For readers.
    pub files: Files,
    /// Writes indexes of complete segments.
    pub sealer: Sealer,
    /// What was found.
    pub report: RecoveryReport,
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The log was empty.
    pub created: bool,
    /// The new epoch.
    pub epoch: u64,
    /// Segments of the log, oldest to newest.
    pub segments: u32,
    /// Frames read.
    pub frames: u64,
    /// Records replayed.
    pub records: u64,
    /// A tail that was not synced was torn, and cut.
    pub cut: Option<Cut>,
}

/// Where a torn tail was cut. Nothing that was acknowledged as durable lay behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The log's new end.
    pub place: Place,
    /// Bytes of frames, whole or torn, that lay behind it.
    pub bytes: u64,
}

/// Why a log cannot be opened. Nothing was changed, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another version of Millpond wrote this directory.
    #[error(
        "the data directory has format version {found}, this program reads version {expected}; use the version of millpond that wrote it"
    )]
    Version {
        /// The directory's version.
        found: u32,
        /// The version of this code.
        expected: u32,
    },
    /// The file that holds version and salt is missing or unreadable, so no frame can be checked.
    #[error(
        "the file `{FORMAT_FILE}` in the data directory is missing or damaged; restore it from a backup of this directory. \
         Without one, `millpond journal repair` says what can be kept"
    )]
    FormatFile,
    /// A repair was interrupted while old and new files changed places.
    #[error(
        "a repair of the data directory was interrupted; run `millpond journal repair --accept-loss` again"
    )]
    RepairUnfinished,
    /// A frame that was synced is damaged or missing. A torn tail looks different.
    #[error(
        "the journal is corrupt at {place}, before the last position known to be synced; nothing was changed. \
         Restore the directory from a backup. Without one, `millpond journal verify` says what is damaged, and \
         `millpond journal repair` what would be lost by giving it up"
    )]
    Corrupt {
        /// The first place that cannot be read.
        place: Place,
    },
    /// A segment between others, or the oldest, is not there.
    #[error(
        "segment {} is missing from the data directory; nothing was changed. Restore it from a backup. Without one, \
         `millpond journal repair` says what would be lost by giving up what it held", segment_name(*.segment)
    )]
    MissingSegment {
        /// Its number.
        segment: u32,
    },
    /// The caller stopped the replay: it does not understand a record.
    #[error("replay was refused at the record at {}", position.place())]
    Refused {
        /// The record.
        position: Position,
    },
    /// No room for the first segment. A log that exists opens on a full disk, too.
    #[error("the disk is full: no room for the journal's first segment; free space and start again")]
    Full,
    /// The options do not make sense.
    #[error(
        "segments of {segment_bytes} bytes are not possible: use a multiple of 4096 from 8192 to 1073741824"
    )]
    SegmentBytes {
        /// The size asked for.
        segment_bytes: u32,
    },
    /// The storage failed. A torn tail may have been cut already, which does no harm.
    #[error("the journal's storage failed ({what}): {source}")]
    Io {
        /// The file, or what was tried.
        what: String,
        /// What the storage said.
        source: io::Error,
    },
    /// The first frame of the new epoch could not be written.
    #[error("cannot start writing: {0}")]
    Begin(#[source] CommitError),
}

/// Opens the log in `storage`, creating it if there is none (`salt` must then come from the operating system's
/// randomness; it is ignored otherwise). Calls `replay` for every record in order; `Break` refuses the log.
///
/// Complete segments are read by their index, where they have one: then damage to a frame in the middle, and to any
/// body, is found when it is read. Everything else is checked whole. A tail that was never synced may be torn: it is
/// cut, and the report says so. Damage to anything else refuses the log and changes nothing. When this returns,
/// everything replayed is durable.
///
/// `replay` may see records of a log that is refused in the end: drop them on error.
pub fn open(
    storage: Arc<dyn Storage>,
    options: Options,
    salt: [u8; 32],
    replay: &mut dyn FnMut(Replayed<'_>) -> ControlFlow<()>,
) -> Result<Opened, OpenError> {
    let Options { segment_bytes, was_used } = options;
    if !Options::is_possible(segment_bytes) {
        return Err(OpenError::SegmentBytes { segment_bytes });
    }
    refuse_unfinished_repair(&*storage)?;
    let Listing { segments, spares, indexes } = list(&*storage)?;
    let secrets = Secrets::from_salt(&read_or_create_format(&*storage, segments.is_empty(), &salt)?);
    let first = segments.first().copied().unwrap_or(1);
    let mut index = Index::new(first, segment_bytes);
    let mut log = Log { storage, secrets, segment_bytes, segments };
    let is_new = log.segments.is_empty();
    let (walked, cut) =
        if is_new { (None, None) } else { log.check(&mut Replay { index: &mut index, tell: replay })? };
    if was_used && walked.is_none() {
        return Err(OpenError::Corrupt { place: Place { segment: first, offset: 0 } });
    }
    let (current, end, tail) = match &walked {
        Some((walk, tail)) => (log.open_segment(walk.end.segment)?, walk.end.offset, *tail),
        None => (log.start_afresh()?, 0, Tail::default()),
    };
    let files = log.files(&current);
    let next = log.next_segment(current.number)?;
    let newest = next.clone().unwrap_or_else(|| current.clone());
    let spare = log.keep_spare(&spares, newest.number)?;
    let preparer = Preparer::new(Arc::clone(&log.storage), segment_bytes, newest, spare);
    let number = current.number;
    let mut writer = Writer::resume(files.clone(), preparer, current, end, tail, first);
    if let Some(next) = next {
        writer.install(next);
    }
    let epoch = tail.epoch + 1;
    log.storage.fence(epoch).map_err(|source| io_error("fencing off other writers", source))?;
    writer.begin_epoch(epoch).map_err(OpenError::Begin)?;
    index.wrote(writer.end().segment);
    index.has_spare(spare.is_some());
    log.remove_stray_indexes(&indexes)?;
    let sealer = Sealer::new(Arc::clone(&log.storage), files.clone());
    let (frames, records) = walked.as_ref().map_or((0, 0), |(walk, _)| (walk.frames, walk.records));
    let segments = writer.end().segment.max(number) - first + 1;
    let report = RecoveryReport { created: walked.is_none(), epoch, segments, frames, records, cut };
    Ok(Opened { writer, index, files, sealer, report })
}

/// The directory in the middle of recovery.
struct Log {
    storage: Arc<dyn Storage>,
    secrets: Secrets,
    segment_bytes: u32,
    /// Consecutive numbers, oldest first.
    segments: Vec<u32>,
}

impl Log {
    /// Reads everything, decides, and cuts the tail. `None` if nothing was ever synced here.
    #[expect(clippy::type_complexity, reason = "two facts that only the caller above puts together")]
    fn check(&mut self, replay: &mut Replay<'_>) -> Result<(Option<(Walk, Tail)>, Option<Cut>), OpenError> {
        let walk = walk(&*self.storage, &self.secrets, &self.segments, replay)?;
        let indexes = list_indexes(&*self.storage)?;
        let entered = Entered::by_files(&self.segments, &indexes);
        let beyond = look_beyond(&*self.storage, &self.secrets, &self.segments, entered, walk.end)?;
        let first = self.segments[0];
        if walk.oldest < first {
            return Err(OpenError::MissingSegment { segment: walk.oldest });
        }
        let Some(tail) = walk.tail else {
            // An older segment was deleted, or a segment got its index: that is done only after more was synced.
            return if first == 1 && indexes.is_empty() {
                Ok((None, None))
            } else {
                Err(OpenError::Corrupt { place: walk.end })
            };
        };
        let cut = self.cut_tail(&walk, &beyond)?;
        Ok((Some((walk, tail)), cut))
    }

    /// Removes whatever frames lie behind the end, and makes the rest durable.
    fn cut_tail(&mut self, walk: &Walk, beyond: &Beyond) -> Result<Option<Cut>, OpenError> {
        let end = walk.end;
        // From the newest on: a crash in between must not leave a gap.
        while let Some(&segment) = self.segments.last().filter(|&&segment| segment > end.segment) {
            let is_next = segment == end.segment + 1 && beyond.unused.contains(&segment);
            if is_next && self.open_segment(segment)?.capacity == self.segment_bytes {
                break;
            }
            self.delete_newest()?;
        }
        let what = || segment_name(end.segment);
        let file = self.open_segment(end.segment)?.file;
        // After a failed sync the operating system may hold pages that read well and count as clean, but never
        // reached the disk. What no frame proves is therefore written once more before it is synced.
        let from = if walk.proven.segment == end.segment { walk.proven.offset } else { 0 };
        let mut buffer = vec![0; REWRITE_BYTES];
        for start in (from..end.offset).step_by(REWRITE_BYTES) {
            let piece = &mut buffer[..REWRITE_BYTES.min((end.offset - start) as usize)];
            file.read_at(u64::from(start), piece).map_err(|source| io_error(what(), source))?;
            file.write_at(u64::from(start), piece).map_err(|source| io_error(what(), source))?;
        }
        buffer.fill(0);
        for &(from, to) in &beyond.dirty {
            for start in (from..to).step_by(REWRITE_BYTES) {
                let zeros = &buffer[..REWRITE_BYTES.min((to - start) as usize)];
                file.write_at(u64::from(start), zeros).map_err(|source| io_error(what(), source))?;
            }
        }
        file.sync_data().map_err(|source| io_error(what(), source))?;
        let bytes = beyond.debris_bytes;
        Ok((bytes > 0).then_some(Cut { place: end, bytes }))
    }

    /// A new first segment, whatever unsynced remains of an earlier attempt lie there.
    fn start_afresh(&mut self) -> Result<Prepared, OpenError> {
        while !self.segments.is_empty() {
            self.delete_newest()?;
        }
        let name = segment_name(1);
        let created = self.storage.create(&name, u64::from(self.segment_bytes));
        let file = created
            .map_err(|source| if is_full(&source) { OpenError::Full } else { io_error(name, source) })?;
        self.segments.push(1);
        Ok(Prepared { number: 1, file, capacity: self.segment_bytes })
    }

    fn delete_newest(&mut self) -> Result<(), OpenError> {
        if let Some(segment) = self.segments.pop() {
            let name = segment_name(segment);
            self.storage.delete(&name).map_err(|source| io_error(name, source))?;
        }
        Ok(())
    }

    fn open_segment(&self, number: u32) -> Result<Prepared, OpenError> {
        let io = |source| io_error(segment_name(number), source);
        let file = self.storage.open(&segment_name(number)).map_err(io)?;
        let capacity = capacity(&*file).map_err(io)?;
        Ok(Prepared { number, file, capacity })
    }

    /// The segment behind `current` that an earlier writer prepared and never entered.
    fn next_segment(&self, current: u32) -> Result<Option<Prepared>, OpenError> {
        let spare = self.segments.last().copied().filter(|&segment| segment > current);
        spare.map(|segment| self.open_segment(segment)).transpose()
    }

    /// Chooses among the files without a place in the log the one to use again, and deletes the others: those of
    /// another length, and any that may hold frames of a segment that is yet to come.
    fn keep_spare(&self, spares: &[u32], newest: u32) -> Result<Option<u32>, OpenError> {
        let mut kept = None;
        for &number in spares {
            let name = spare_name(number);
            let io = |source| io_error(&name, source);
            let length = self.storage.open(&name).map_err(io)?.length().map_err(io)?;
            if kept.is_none() && number <= newest && length == u64::from(self.segment_bytes) {
                kept = Some(number);
            } else {
                self.storage.delete(&name).map_err(io)?;
            }
        }
        Ok(kept)
    }

    /// An index goes with its segment. One of the last segment or of a later one would prove that more was synced.
    fn remove_stray_indexes(&self, indexes: &[u32]) -> Result<(), OpenError> {
        for &number in indexes.iter().filter(|&&number| number < self.segments[0]) {
            let name = index_name(number);
            self.storage.delete(&name).map_err(|source| io_error(name, source))?;
        }
        Ok(())
    }

    fn files(&self, current: &Prepared) -> Files {
        let files = Files::new(Arc::clone(&self.storage), self.secrets);
        for &segment in self.segments.iter().filter(|&&segment| segment < current.number) {
            files.insert(segment, None);
        }
        files.insert(current.number, Some(Arc::clone(&current.file)));
        files
    }
}

/// Numbers of all segment files, ascending, whatever is missing between them.
pub(crate) fn list_segments_with_gaps(storage: &dyn Storage) -> Result<Vec<u32>, OpenError> {
    let list = || {
        let names = storage.list().map_err(|source| io_error("listing the directory", source))?;
        Ok(sorted_numbers(&names, segment_number))
    };
    let mut segments = list()?;
    // While a running server makes files, a listing may show a later one and not an earlier one. A gap that stays is one.
    for _ in 0..LISTINGS_MAX {
        if segments.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            break;
        }
        let again = list()?;
        if again == segments {
            break;
        }
        segments = again;
    }
    Ok(segments)
}

/// Whether a segment can have been made with this length.
pub(crate) fn is_segment_length(bytes: u64) -> bool {
    bytes.is_multiple_of(u64::from(SEGMENT_BYTES_UNIT)) && bytes >= u64::from(SEGMENT_BYTES_MIN)
}

/// Numbers of all indexes, ascending.
pub(crate) fn list_indexes(storage: &dyn Storage) -> Result<Vec<u32>, OpenError> {
    let names = storage.list().map_err(|source| io_error("listing the directory", source))?;
    Ok(sorted_numbers(&names, index_number))
}

fn sorted_numbers(names: &[String], number: fn(&str) -> Option<u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    numbers
}

/// The directory's files, in order.
struct Listing {
    segments: Vec<u32>,
    spares: Vec<u32>,
    indexes: Vec<u32>,
}

fn list(storage: &dyn Storage) -> Result<Listing, OpenError> {
    let names = storage.list().map_err(|source| io_error("listing the directory", source))?;
    let (segments, spares) = (sorted_numbers(&names, segment_number), sorted_numbers(&names, spare_number));
    let indexes = sorted_numbers(&names, index_number);
    for pair in segments.windows(2) {
        if pair[0] + 1 != pair[1] {
            return Err(OpenError::MissingSegment { segment: pair[0] + 1 });
        }
    }
    Ok(Listing { segments, spares, indexes })
}

fn read_or_create_format(
    storage: &dyn Storage,
    is_empty: bool,
    salt: &[u8; 32],
) -> Result<[u8; 32], OpenError> {
    match read_format(storage)? {
        Some(salt) => Ok(salt),
        None if is_empty => {
            let written = storage.write_whole(FORMAT_FILE, &encode_format_file(salt));
            written.map_err(|source| io_error(FORMAT_FILE, source))?;
            Ok(*salt)
        }
        None => Err(OpenError::FormatFile),
    }
}

/// Whether the files are those of one log.
pub(crate) fn refuse_unfinished_repair(storage: &dyn Storage) -> Result<(), OpenError> {
    let marker = storage.read_small(MARKER).map_err(|source| io_error(MARKER, source))?;
    if marker.is_some() { Err(OpenError::RepairUnfinished) } else { Ok(()) }
}

/// The salt of the directory; `None` if there is no format file.
pub(crate) fn read_format(storage: &dyn Storage) -> Result<Option<[u8; 32]>, OpenError> {
    let bytes = storage.read_small(FORMAT_FILE).map_err(|source| io_error(FORMAT_FILE, source))?;
    let salt = bytes.map(|bytes| decode_format_file(&bytes)).transpose();
    salt.map_err(|error| match error {
        FormatFileError::Damaged => OpenError::FormatFile,
        FormatFileError::Version(found) => OpenError::Version { found, expected: FORMAT_VERSION },
    })
}

fn io_error(what: impl Into<String>, source: io::Error) -> OpenError {
    OpenError::Io { what: what.into(), source }
}

const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(SECTOR_BYTES));
