//! The durable log: groups of opaque records in checksummed frames, recovery after power loss, and cleaning.
//!
//! Owns the on-disk format (drawn in `docs/formats/journal.md`), the one writer, the index from key to newest
//! anchor, reading records back, and what recovery decides. Must never know a queue rule, read a clock or draw
//! randomness: a record is bytes with an optional key, the salt of a new directory is an argument.
//!
//! # The pieces
//! - [`Storage`]: where the bytes lie. [`LocalStorage`] for a directory, [`simulated::SimulatedDisk`] for tests
//!   and the simulator. Everything above it is the same code.
//! - [`open`]: recovers the log, replays every record in order, and hands out the other three.
//! - [`Writer`]: owned by one log thread; groups records, writes each group once, syncs it once.
//! - [`Index`]: owned by the thread that decides; pure data; says what to copy and which segment to delete.
//! - [`Files`]: shared by readers; reads a record by its [`Position`] and checks it.
//! - [`inspect`]: for operators: says what is damaged and reads what is left, beside a running writer.
//!
//! # Records, keys, anchors
//! A record may carry a key. A record that is an *anchor* is the newest full copy of its key's data, and the
//! [`Index`] points at it. Every other record is a change: it is replayed in order and needs no index entry.
//! The log is a ring: only its oldest segment is ever deleted, after its live anchors were copied to the end.
//! So **whatever must survive has to be anchored**: a change lives only as long as its segment, which is at least
//! as long as its key's anchor, because the anchor is older. Replay may meet changes of a key before any anchor of
//! it: its older anchor went with a deleted segment, and either a newer one follows or the key is finished. Such
//! changes are to be ignored.
//!
//! # Example
//! ```
//! use std::{ops::ControlFlow, sync::Arc};
//! use millpond_journal::{Options, open, simulated::SimulatedDisk};
//!
//! let disk = SimulatedDisk::new();
//! let options = Options { segment_bytes: 64 * 1024, was_used: false };
//! let opened = open(Arc::new(disk.clone()), options, [7; 32], &mut |_| ControlFlow::Continue(()))?;
//! let (mut writer, mut index) = (opened.writer, opened.index);
//! writer.push(Some(1), true, |body| body.extend_from_slice(b"hello"));
//! let committed = writer.commit(true)?;
//! assert!(committed.durable);
//! index.placed(1, committed.placed[0]);
//! assert_eq!(opened.files.read(committed.placed[0])?, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anchors;
pub mod backup;
mod files;
mod format;
mod index;
pub mod inspect;
mod local;
mod prepare;
mod read_only;
mod reconstruct;
mod recovery;
pub mod repair;
mod salvage;
mod scan;
mod seal;
mod sealed;
pub mod simulated;
mod storage;
mod window;
mod writer;

pub use files::{Files, Handle, ReadError, Retired};
pub use format::{FORMAT_VERSION, Place, Position, RECORD_HEADER_BYTES, SECTOR_BYTES};
pub use index::{Alive, Index, Pressure, Reclaim, ToSeal};
pub use local::{LocalStorage, LocalStorageError};
pub use prepare::{DisposeError, PrepareError, Prepared, Preparer};
pub use read_only::ReadOnlyDirectory;
pub use recovery::{Cut, OpenError, Opened, Options, RecoveryReport, open};
pub use scan::Replayed;
pub use seal::{SealError, Sealed, Sealer};
pub use storage::{Storage, StorageFile};
pub use writer::{CommitError, Committed, Writer};
