//! The bytes of messages: where they are, and the recent ones in memory.
//!
//! Owns the way from a position in the log to a content. Reading from disk must never happen on the engine
//! thread.

use crate::codec::decode_content;
use bytes::Bytes;
use millpond_core::identity::Seq;
use millpond_core::message::SharedContent;
use millpond_journal::{Handle, Position, ReadError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Where a message's bytes are.
#[derive(Debug, Clone)]
pub enum Stored {
    /// In memory still.
    Memory(SharedContent),
    /// In the log; the reference keeps the segment readable.
    Disk(DiskContent),
    /// Nowhere: there are none.
    Nothing,
    /// In the log, but out of reach now, which was logged.
    Unreadable,
}

/// Bytes that are there could not be read, which was logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message's bytes cannot be read")]
pub struct Unreadable;

impl Stored {
    /// The bytes; blocks on the disk if they are there. `None` if there are none, or they cannot be read, which
    /// is logged.
    pub fn read(&self) -> Option<SharedContent> {
        self.try_read().ok().flatten()
    }

    /// The bytes, or that there are none; blocks on the disk if they are there. For whoever must not take what
    /// cannot be read for what is not there.
    pub fn try_read(&self) -> Result<Option<SharedContent>, Unreadable> {
        match self {
            Self::Memory(content) => Ok(Some(Arc::clone(content))),
            Self::Disk(disk) => disk.read(),
            Self::Nothing => Ok(None),
            Self::Unreadable => Err(Unreadable),
        }
    }
}

/// A content in the log; keeps its segment readable while it lives.
#[derive(Clone)]
pub struct DiskContent {
    handle: Handle,
}

impl std::fmt::Debug for DiskContent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("DiskContent").field(&self.position()).finish()
    }
}

impl DiskContent {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    pub(crate) fn position(&self) -> Position {
        self.handle.position()
    }

    fn read(&self) -> Result<Option<SharedContent>, Unreadable> {
        Self::decoded(self.handle.read())
    }

    /// The bytes, if reading them need not wait for the disk.
    pub(crate) fn read_cached(&self) -> Option<Stored> {
        Some(match Self::decoded(self.handle.read_cached()?) {
            Ok(content) => content.map_or(Stored::Nothing, Stored::Memory),
            Err(Unreadable) => Stored::Unreadable,
        })
    }

    fn decoded(read: Result<Bytes, ReadError>) -> Result<Option<SharedContent>, Unreadable> {
        let bytes = read.map_err(|error| {
            tracing::error!(%error, "a message's bytes cannot be read");
            Unreadable
        })?;
        match decode_content(&bytes) {
            Ok(content) => Ok(content.map(Arc::new)),
            Err(error) => {
                tracing::error!(%error, "a message's bytes cannot be decoded");
                Err(Unreadable)
            }
        }
    }
}

/// Contents kept in memory beyond what is not in the log yet, in bytes: what goes straight through is never
/// read back from disk.
const RECENT_BYTES_MAX: u64 = 1 << 20;

/// The contents of messages that were written lately.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    entries: BTreeMap<Seq, Entry>,
    /// The emissions, oldest first. One counts only as long as it is its message's latest.
    order: VecDeque<(Seq, u64)>,
    emissions: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    content: Option<SharedContent>,
    /// Its latest emission.
    emission: u64,
    /// Full copies on their way to the log: until they are there, memory is the only place.
    uncommitted: u32,
}

fn size(content: Option<&SharedContent>) -> u64 {
    content.map_or(0, |content| content.size_bytes() + 128)
}

impl Recent {
    /// A full copy of a message was emitted.
    pub(crate) fn emitted(&mut self, seq: Seq, content: Option<SharedContent>) {
        self.bytes += size(content.as_ref());
        let uncommitted = self.entries.get(&seq).map_or(0, |entry| entry.uncommitted) + 1;
        self.emissions += 1;
        let emission = self.emissions;
        if let Some(old) = self.entries.insert(seq, Entry { content, emission, uncommitted }) {
            self.bytes -= size(old.content.as_ref());
        }
        self.order.push_back((seq, emission));
    }

    /// A full copy of a message is in the log.
    pub(crate) fn committed(&mut self, seq: Seq) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.uncommitted -= 1;
            if entry.uncommitted == 0 && entry.content.is_none() {
                self.entries.remove(&seq);
            }
        }
        self.evict();
    }

    fn evict(&mut self) {
        while let Some(&(seq, emission)) = self.order.front() {
            let latest = self.entries.get(&seq).filter(|entry| entry.emission == emission);
            if latest.is_some_and(|entry| entry.uncommitted > 0 || self.bytes <= RECENT_BYTES_MAX) {
                break;
            }
            self.order.pop_front();
            if latest.is_some()
                && let Some(entry) = self.entries.remove(&seq)
            {
                self.bytes -= size(entry.content.as_ref());
            }
        }
        if self.order.len() > 4 * self.entries.len() + 4096 {
            let entries = &self.entries;
            self.order
                .retain(|(seq, emission)| entries.get(seq).is_some_and(|entry| entry.emission == *emission));
        }
    }

    /// Nothing is needed of a message any more.
    pub(crate) fn forget(&mut self, seq: Seq) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            self.bytes -= size(entry.content.as_ref());
            entry.content = None;
            if entry.uncommitted == 0 {
                self.entries.remove(&seq);
            }
        }
    }

    /// The message's content, or that it has none; `None` if the log must be asked.
    pub(crate) fn get(&self, seq: Seq) -> Option<Stored> {
        let entry = self.entries.get(&seq)?;
        Some(entry.content.clone().map_or(Stored::Nothing, Stored::Memory))
    }

    /// Whether a full copy is on its way to the log.
    pub(crate) fn is_underway(&self, seq: Seq) -> bool {
        self.entries.get(&seq).is_some_and(|entry| entry.uncommitted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{RECENT_BYTES_MAX, Recent};
    use bytes::Bytes;
    use millpond_core::identity::Seq;
    use millpond_core::message::Content;
    use std::sync::Arc;

    fn content(bytes: usize) -> Arc<Content> {
        Arc::new(Content { body: Bytes::from(vec![0; bytes]), ..Content::default() })
    }

    #[test]
    fn what_is_not_in_the_log_is_never_evicted() {
        let mut recent = Recent::default();
        for seq in 0..100 {
            recent.emitted(Seq(seq), Some(content(100 << 10)));
        }
        assert!((0..100).all(|seq| recent.get(Seq(seq)).is_some()));
        for seq in 0..100 {
            recent.committed(Seq(seq));
        }
        assert!(recent.bytes <= RECENT_BYTES_MAX);
        assert!(recent.get(Seq(0)).is_none() && recent.get(Seq(99)).is_some());
    }

    #[test]
    fn memory_stays_bounded_when_messages_go_straight_through() {
        let mut recent = Recent::default();
        recent.emitted(Seq(0), Some(content(10)));
        recent.committed(Seq(0));
        for seq in 1..100_000 {
            recent.emitted(Seq(seq), Some(content(10)));
            recent.committed(Seq(seq));
            recent.emitted(Seq(seq), None);
            recent.committed(Seq(seq));
        }
        assert_eq!(recent.entries.len(), 1);
        assert!(recent.order.len() < 10_000, "{}", recent.order.len());
    }

    #[test]
    fn memory_stays_bounded_when_the_same_messages_are_copied_again_and_again() {
        let mut recent = Recent::default();
        for _ in 0..1_000 {
            for seq in 0..100 {
                recent.emitted(Seq(seq), Some(content(10)));
                recent.committed(Seq(seq));
            }
        }
        assert_eq!(recent.entries.len(), 100);
        assert!(recent.order.len() < 10_000, "{}", recent.order.len());
        assert!((0..100).all(|seq| recent.get(Seq(seq)).is_some()));
    }
}
