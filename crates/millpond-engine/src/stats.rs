//! How the log is doing, in numbers.
//!
//! Owns their shape.

use millpond_core::stats::Histogram;

/// How the log is doing.
#[derive(Debug, Clone, Default)]
pub struct JournalStats {
    /// Time per group: write and sync.
    pub commit: Histogram,
    /// Groups written.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of all segments on disk.
    pub disk_bytes: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// The disk has no room for new work; what is here goes on as far as it can.
    pub full: bool,
}
