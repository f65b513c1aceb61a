//! Segments' files before and after their time in the log, on whatever thread has time.
//!
//! Owns the rule that a segment is created once, by whoever comes first, and the one spare file that waits to be used
//! again. Must never write into a file that has a place in the log, nor give a file that somebody still reads another
//! place in it.

use crate::{
    files::Retired,
    format::{index_name, segment_name, spare_name},
    storage::{Storage, StorageFile, is_full, is_unopened},
};
use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Why no segment could be prepared. What the log holds is unharmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// No room for another segment.
    #[error("no room for segment {}: free disk space, or lower the queues' bounds", segment_name(*.number))]
    Full {
        /// The segment.
        number: u32,
    },
    /// No file could be opened for it. Nothing was done, so it may be tried again.
    #[error("cannot create segment {}: {source}; raise the limit of open files", segment_name(*.number))]
    Unopened {
        /// The segment.
        number: u32,
        /// What the storage said.
        source: io::Error,
    },
    /// The storage failed. Whether the file is there after a power loss is unknown until the log is opened again: stop the
    /// process.
    #[error("cannot create segment {}: {source}; restart to recover what was synced", segment_name(*.number))]
    Io {
        /// The segment.
        number: u32,
        /// What the storage said.
        source: io::Error,
    },
    /// The storage failed earlier, at a segment's file.
    #[error("no segment is created after a failed one; restart to recover what was synced")]
    Stopped,
}

impl PrepareError {
    /// Whether the reason may pass, and it may be tried again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unopened { .. })
    }
}

/// The file of a segment that the log has given up could not be removed: the directory's state is unknown until the
/// log is opened again.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove segment {}: {source}; restart to recover what was synced", segment_name(*.number))]
pub struct DisposeError {
    /// The segment.
    pub number: u32,
    /// What the storage said.
    pub source: io::Error,
}

/// Makes segments ahead of the writer and takes care of those it has given up. Cheap to clone; give one to a
/// background thread.
#[derive(Clone)]
pub struct Preparer {
    storage: Arc<dyn Storage>,
    segment_bytes: u32,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The newest segment that exists.
    newest: Prepared,
    /// A file of the right length without a place in the log: the newest segment of which it may hold frames.
    spare: Option<u32>,
    /// The storage has failed: what is there is unknown, and nothing is tried any more.
    stopped: bool,
}

impl State {
    /// What a failure at the file of segment `number` means for all that comes.
    fn failed(&mut self, number: u32, source: io::Error) -> PrepareError {
        if is_full(&source) {
            return PrepareError::Full { number };
        }
        if is_unopened(&source) {
            return PrepareError::Unopened { number, source };
        }
        self.stopped = true;
        PrepareError::Io { number, source }
    }
}

/// A synced file that the log has not entered: all zeros, or a file that was an older segment. What it then holds is
/// no frame of this segment, and so none of the log.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) capacity: u32,
}

impl Preparer {
    /// `newest` is the newest segment that exists, `spare` the number of a spare file of the right length.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        segment_bytes: u32,
        newest: Prepared,
        spare: Option<u32>,
    ) -> Self {
        Self { storage, segment_bytes, state: Arc::new(Mutex::new(State { newest, spare, stopped: false })) }
    }

    /// Makes segment `number`, as [`Writer::wants_next`](crate::Writer::wants_next) asked for it, and syncs it: at
    /// once if a file is at hand that was a segment before, otherwise in the time it takes to write a whole segment of
    /// zeros. Asking again, or from two threads at once, is harmless: the segment is made once, and a number that the
    /// log has passed yields a value that [`Writer::install`](crate::Writer::install) ignores.
    ///
    /// # Panics
    /// If `number` is not the one that the writer asked for.
    pub fn prepare(&self, number: u32) -> Result<Prepared, PrepareError> {
        // Held while the file is made, so that the writer waits for a preparation that is under way.
        let mut state = self.state();
        if state.newest.number >= number {
            return Ok(state.newest.clone());
        }
        if state.stopped {
            return Err(PrepareError::Stopped);
        }
        assert_eq!(state.newest.number + 1, number, "segments are prepared one by one, in order");
        let made = match state.spare {
            Some(spare) => self.reuse(spare, number),
            None => self.storage.create(&segment_name(number), u64::from(self.segment_bytes)),
        };
        let file = made.map_err(|source| state.failed(number, source))?;
        state.spare = None;
        state.newest = Prepared { number, file, capacity: self.segment_bytes };
        Ok(state.newest.clone())
    }

    /// Keeps a file in reserve for the segment after the next, made of zeros if none is at hand. So whoever is told
    /// that there is no room for it has at least a whole segment left, and may use it for what makes room.
    pub fn reserve(&self) -> Result<(), PrepareError> {
        let mut state = self.state();
        if state.stopped {
            return Err(PrepareError::Stopped);
        }
        if state.spare.is_some() {
            return Ok(());
        }
        let number = state.newest.number;
        let made = self.storage.create(&spare_name(number), u64::from(self.segment_bytes));
        made.map_err(|source| state.failed(number, source))?;
        state.spare = Some(number);
        Ok(())
    }

    /// Whether a file is kept in reserve.
    pub fn has_spare(&self) -> bool {
        self.state().spare.is_some()
    }

    /// How many more segments there is room for, apart from those that are made: as far as is known, and but for one,
    /// since indexes lie beside them.
    pub fn room_segments(&self) -> u64 {
        // Where that cannot be known, nobody should count on it.
        let free_bytes = self.storage.free_bytes().unwrap_or(0);
        (free_bytes / u64::from(self.segment_bytes)).saturating_sub(1)
    }

    /// A file that was a segment becomes another one. Its bytes stay as they are until they are overwritten.
    fn reuse(&self, spare: u32, number: u32) -> io::Result<Arc<dyn StorageFile>> {
        assert!(
            spare < number,
            "a frame is told from those of its file's earlier life by the segment's number"
        );
        // Opened before it has a place in the log: without a descriptor nothing is done.
        let file = self.storage.open(&spare_name(spare))?;
        self.storage.rename(&spare_name(spare), &segment_name(number))?;
        file.expect_overwrite();
        Ok(file)
    }

    /// Sees to the file of a segment that [`Writer::retire`](crate::Writer::retire) gave up: keeps it for the next
    /// segment if it may, has the right length, nobody reads it and none is kept already; deletes it otherwise. In the
    /// order of the segments.
    ///
    /// # Errors
    /// Stop the process: as with the writer, nothing is tried again.
    #[expect(clippy::needless_pass_by_value, reason = "a segment is disposed of once")]
    pub fn dispose(&self, retired: Retired) -> Result<(), DisposeError> {
        let number = retired.segment();
        let mut state = self.state();
        if state.stopped {
            let source = io::Error::other("a file of the journal could not be made before");
            return Err(DisposeError { number, source });
        }
        let result = self.delete_index(number).and_then(|()| {
            if state.spare.is_some() || !self.is_reusable(&retired) {
                return self.storage.delete(&segment_name(number));
            }
            self.storage.rename(&segment_name(number), &spare_name(number))?;
            state.spare = Some(number);
            Ok(())
        });
        state.stopped = result.is_err();
        result.map_err(|source| DisposeError { number, source })
    }

    /// A file that cannot be opened is of no use, and removing it needs no descriptor.
    fn is_reusable(&self, retired: &Retired) -> bool {
        let length = || self.storage.open(&segment_name(retired.segment()))?.length();
        retired.is_reusable() && length().is_ok_and(|length| length == u64::from(self.segment_bytes))
    }

    fn delete_index(&self, number: u32) -> io::Result<()> {
        match self.storage.delete(&index_name(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing inside can be left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparer").field("segment_bytes", &self.segment_bytes).finish_non_exhaustive()
    }
}

/// By number: a log has one segment of each.
impl PartialEq for Prepared {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Prepared {}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("number", &self.number).finish_non_exhaustive()
    }
}
