//! Preparing the next segment before it is needed, on whatever thread has time.
//!
//! Owns the rule that a segment is created once, by whoever comes first. Must never write into it: a prepared
//! segment is all zeros until the writer enters it.

use crate::{
    format::segment_name,
    storage::{Storage, StorageFile, is_full},
};
use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

/// Why no segment could be prepared. The log itself is unharmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// No room for another segment.
    #[error("no room for segment {}: free disk space, or lower the queues' bounds", segment_name(*.number))]
    Full {
        /// The segment.
        number: u32,
    },
    /// The storage failed.
    #[error("cannot create segment {}: {source}", segment_name(*.number))]
    Io {
        /// The segment.
        number: u32,
        /// What the storage said.
        source: io::Error,
    },
}

/// Creates segments ahead of the writer. Cheap to clone; give one to a background thread.
#[derive(Clone)]
pub struct Preparer {
    storage: Arc<dyn Storage>,
    segment_bytes: u32,
    newest: Arc<Mutex<Prepared>>,
}

/// A zero-filled, synced segment that nothing was written to.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) capacity: u32,
}

impl Preparer {
    /// `newest` is the newest segment that exists.
    pub(crate) fn new(storage: Arc<dyn Storage>, segment_bytes: u32, newest: Prepared) -> Self {
        Self { storage, segment_bytes, newest: Arc::new(Mutex::new(newest)) }
    }

    /// Creates segment `number`, as [`Writer::wants_next`](crate::Writer::wants_next) asked for it, and syncs it:
    /// this takes as long as writing a whole segment of zeros. Asking again, or from two threads at once, is
    /// harmless: the segment is created once, and a number that the log has passed yields a value that
    /// [`Writer::install`](crate::Writer::install) ignores.
    ///
    /// # Panics
    /// If `number` is not the one that the writer asked for.
    pub fn prepare(&self, number: u32) -> Result<Prepared, PrepareError> {
        // Held while the file is created, so that the writer waits for a preparation that is under way.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.number >= number {
            return Ok(newest.clone());
        }
        assert_eq!(newest.number + 1, number, "segments are prepared one by one, in order");
        let created = self.storage.create(&segment_name(number), u64::from(self.segment_bytes));
        let file = created.map_err(|source| {
            if is_full(&source) { PrepareError::Full { number } } else { PrepareError::Io { number, source } }
        })?;
        *newest = Prepared { number, file, capacity: self.segment_bytes };
        Ok(newest.clone())
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(crate) fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparer").field("segment_bytes", &self.segment_bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("number", &self.number).finish_non_exhaustive()
    }
}
