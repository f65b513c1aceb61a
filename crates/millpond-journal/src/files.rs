//! Reading records back, from any thread.
//!
//! Owns the registry of the log's segments and a bounded number of open files. Must never write, and must never
//! hand out a record whose checksum is wrong.

use crate::{
    format::{Position, RECORD_HEADER_BYTES, Secrets, is_intact_record, segment_name},
    storage::{Storage, StorageFile},
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Segment files kept open for reading. With 64 MiB segments this covers 8 GiB; beyond, the least recently read
/// are closed and opened again on demand.
const OPEN_FILES_MAX: usize = 128;

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The segment was deleted: a newer anchor exists, or the record's key is finished.
    #[error("the record at {position:?} is gone: its segment was deleted")]
    Deleted {
        /// The position asked for.
        position: Position,
    },
    /// The bytes there are not the record that was written.
    #[error(
        "the record in segment {} at offset {} does not match its checksum: the medium has lost or changed it",
        segment_name(position.segment), position.offset
    )]
    Damaged {
        /// The position asked for.
        position: Position,
    },
    /// The storage failed.
    #[error("cannot read segment {} at offset {}: {source}", segment_name(position.segment), position.offset)]
    Io {
        /// The position asked for.
        position: Position,
        /// What the storage said.
        source: io::Error,
    },
}

/// The log's segments, for reading. Cloning is cheap; every clone sees the same segments.
#[derive(Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

struct Shared {
    storage: Arc<dyn Storage>,
    secrets: Secrets,
    registry: Mutex<Registry>,
}

/// Every segment of the log has an entry; those with a file are open.
struct Registry {
    segments: BTreeMap<u32, Entry>,
    open: usize,
    clock: u64,
}

struct Entry {
    file: Option<Arc<dyn StorageFile>>,
    /// Whoever reads the segment holds a clone.
    pin: Pin,
    last_used: u64,
}

/// Keeps a segment's file from being written again.
type Pin = Arc<()>;

/// A segment that the log gave up, and whose file is still there: see
/// [`Preparer::dispose`](crate::Preparer::dispose). Dropped instead, the file stays until the log is opened again.
#[must_use = "the file stays where it is until it is disposed of"]
pub struct Retired {
    number: u32,
    pin: Pin,
    keep_file: bool,
}

impl Retired {
    /// The segment.
    pub fn segment(&self) -> u32 {
        self.number
    }

    /// Whether the file may be used again. That nobody reads it stays so: nobody can begin to.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_file && Arc::strong_count(&self.pin) == 1
    }
}

impl fmt::Debug for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retired").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A segment's file, which is not written again while this is held.
#[derive(Clone)]
pub(crate) struct Pinned {
    pub(crate) file: Arc<dyn StorageFile>,
    _pin: Pin,
}

impl Files {
    pub(crate) fn new(storage: Arc<dyn Storage>, secrets: Secrets) -> Self {
        let registry = Mutex::new(Registry { segments: BTreeMap::new(), open: 0, clock: 0 });
        Self { shared: Arc::new(Shared { storage, secrets, registry }) }
    }

    /// Reads the payload of the record at `position` and checks its checksum.
    pub fn read(&self, position: Position) -> Result<Bytes, ReadError> {
        self.handle(position)?.read()
    }

    /// A handle that keeps the record readable while it is held, even after its segment was deleted.
    pub fn handle(&self, position: Position) -> Result<Handle, ReadError> {
        match self.pinned(position.segment) {
            Ok(Some(pinned)) => Ok(Handle { pinned, secrets: self.shared.secrets, position }),
            Ok(None) => Err(ReadError::Deleted { position }),
            Err(source) => Err(ReadError::Io { position, source }),
        }
    }

    /// Numbers of the segments that exist, oldest first.
    pub fn segments(&self) -> Vec<u32> {
        self.registry().segments.keys().copied().collect()
    }

    pub(crate) fn secrets(&self) -> Secrets {
        self.shared.secrets
    }

    /// Makes a segment known; `file` keeps it open from the start.
    pub(crate) fn insert(&self, number: u32, file: Option<Arc<dyn StorageFile>>) {
        let mut registry = self.registry();
        registry.segments.insert(number, Entry { file: None, pin: Pin::default(), last_used: 0 });
        if let Some(file) = file {
            registry.keep_open(number, file);
        }
    }

    /// Forgets a segment before its file goes, so that nobody opens it in between.
    pub(crate) fn retire(&self, number: u32, keep_file: bool) -> Retired {
        let mut registry = self.registry();
        let entry = registry.segments.remove(&number).expect("the log's segments are all registered");
        if entry.file.is_some() {
            registry.open -= 1;
        }
        Retired { number, pin: entry.pin, keep_file }
    }

    /// The file of a segment; `None` if the log has no such segment any more.
    pub(crate) fn pinned(&self, number: u32) -> io::Result<Option<Pinned>> {
        // The lock is held while a file is opened: otherwise a deletion could come in between.
        let mut registry = self.registry();
        registry.clock += 1;
        let clock = registry.clock;
        let Some(entry) = registry.segments.get_mut(&number) else { return Ok(None) };
        entry.last_used = clock;
        let pin = Arc::clone(&entry.pin);
        if let Some(file) = &entry.file {
            return Ok(Some(Pinned { file: Arc::clone(file), _pin: pin }));
        }
        let file = self.shared.storage.open(&segment_name(number))?;
        registry.keep_open(number, Arc::clone(&file));
        Ok(Some(Pinned { file, _pin: pin }))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Nothing inside can be left half done by a panic.
        self.shared.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("segments", &self.segments()).finish()
    }
}

impl Registry {
    fn keep_open(&mut self, number: u32, file: Arc<dyn StorageFile>) {
        if self.open >= OPEN_FILES_MAX {
            let open = self.segments.values_mut().filter(|entry| entry.file.is_some());
            if let Some(least_recent) = open.min_by_key(|entry| entry.last_used) {
                least_recent.file = None;
                self.open -= 1;
            }
        }
        self.clock += 1;
        let clock = self.clock;
        if let Some(entry) = self.segments.get_mut(&number) {
            entry.file = Some(file);
            entry.last_used = clock;
            self.open += 1;
        }
    }
}

/// One record that stays readable while this is held.
#[derive(Clone)]
pub struct Handle {
    pinned: Pinned,
    secrets: Secrets,
    position: Position,
}

impl Handle {
    /// Where the record lies (or lay).
    pub fn position(&self) -> Position {
        self.position
    }

    /// Reads the payload and checks its checksum.
    pub fn read(&self) -> Result<Bytes, ReadError> {
        let position = self.position;
        let mut record = self.room();
        self.pinned
            .file
            .read_at(u64::from(position.offset), &mut record)
            .map_err(|source| ReadError::Io { position, source })?;
        self.checked(record)
    }

    /// The same, if it need not wait for the disk.
    pub fn read_cached(&self) -> Option<Result<Bytes, ReadError>> {
        let mut record = self.room();
        match self.pinned.file.read_cached_at(u64::from(self.position.offset), &mut record) {
            Ok(true) => Some(self.checked(record)),
            Ok(false) | Err(_) => None,
        }
    }

    fn room(&self) -> Vec<u8> {
        vec![0; RECORD_HEADER_BYTES as usize + self.position.length as usize]
    }

    fn checked(&self, record: Vec<u8>) -> Result<Bytes, ReadError> {
        let position = self.position;
        let header_bytes = RECORD_HEADER_BYTES as usize;
        if !is_intact_record(&self.secrets, &record, position.place()) {
            return Err(ReadError::Damaged { position });
        }
        Ok(Bytes::from(record).slice(header_bytes..))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("position", &self.position).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedDisk;

    #[test]
    fn a_segment_counts_as_read_while_anyone_can_read_it() {
        let disk = SimulatedDisk::new();
        let files = Files::new(Arc::new(disk.clone()), Secrets::from_salt(&[1; 32]));
        disk.put(&segment_name(1), vec![0; 512]);
        files.insert(1, None);
        let handle = files.handle(Position { segment: 1, offset: 0, length: 0 }).unwrap();
        let clone = handle.clone();
        let retired = files.retire(1, true);
        drop(handle);
        assert!(!retired.is_reusable());
        drop(clone);
        assert!(retired.is_reusable());
    }

    #[test]
    fn open_files_stay_bounded_and_the_least_recently_read_goes_first() {
        let disk = SimulatedDisk::new();
        let files = Files::new(Arc::new(disk.clone()), Secrets::from_salt(&[1; 32]));
        let beyond = u32::try_from(OPEN_FILES_MAX).unwrap() + 20;
        for number in 1..=beyond {
            disk.put(&segment_name(number), vec![0; 512]);
            files.insert(number, None);
            files.handle(Position { segment: number, offset: 0, length: 0 }).unwrap();
            files.handle(Position { segment: 1, offset: 0, length: 0 }).unwrap();
        }
        let is_open = |number: u32| files.registry().segments[&number].file.is_some();
        assert_eq!((1..=beyond).filter(|&number| is_open(number)).count(), OPEN_FILES_MAX);
        assert_eq!(files.registry().open, OPEN_FILES_MAX);
        assert!(is_open(1) && !is_open(2) && is_open(beyond));
        drop((files.retire(1, true), files.retire(2, true)));
        assert_eq!(files.registry().open, OPEN_FILES_MAX - 1);
    }
}
