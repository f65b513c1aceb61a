//! The seam between the journal and whatever keeps its bytes.
//!
//! Owns the two traits that a local directory, a simulated disk or a table in a database implement. Must never
//! know frames, records or queues. Small on purpose: every method is one thing that can fail or be cut by a
//! power loss, so a test can stop at each.

use std::{io, sync::Arc};

/// A flat directory of files of fixed length, held by one journal at a time.
///
/// A segment's file is created whole (zero-filled), or is an older one under a new name, and never grows: no later
/// write needs new space and no sync needs to write a length.
pub trait Storage: Send + Sync {
    /// Names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates `name`, zero-filled to `length` bytes. When it returns, the zeros and the directory are synced.
    /// A power loss in the middle leaves the whole file or none.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is such a file; [`io::ErrorKind::StorageFull`] (or
    /// `QuotaExceeded`) when there is no room, and then nothing is left behind; nor is it when no file could be opened,
    /// for want of descriptors. After any other error the file may be there, or may go with the next power loss.
    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Removes `name` and syncs the directory. Files that are still open stay readable through their handles.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Gives the file `from` the name `to`, and syncs the directory. A power loss in the middle leaves it under one of
    /// the two names. Open handles stay valid.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is a file `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Replaces the file `name` by `bytes`, synced: after a power loss it holds the old or the new bytes.
    ///
    /// # Errors
    /// As with [`create`](Self::create) when there is no room.
    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The content of a small file, `None` if there is none. Reads at most 64 KiB.
    fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Bytes that can still be created, as far as is known now: others may take them at any time.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Shuts out every writer with a smaller epoch, unless an exclusive lock already does (a local directory). And syncs
    /// the directory: what a process before this one has made or renamed, and failed to sync, is used from here on.
    ///
    /// # Errors
    /// When a writer with a greater epoch was here, or the sync fails: this one must stop.
    fn fence(&self, epoch: u64) -> io::Result<()>;
}

/// One open file of a [`Storage`].
pub trait StorageFile: Send + Sync {
    /// Writes all of `bytes` at `offset`. Nothing of it is durable before [`sync_data`](Self::sync_data), and
    /// after a power loss any subset of its sectors may have survived. Never called past the end.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes every earlier write to this file durable. After an error the state is unknown: never call it again.
    fn sync_data(&self) -> io::Result<()>;

    /// Fills `buffer` from `offset`; an error if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Like [`read_at`](Self::read_at), but only if it need not wait for the disk; `false` if it would, or if that
    /// is not known.
    fn read_cached_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// The whole file will soon be overwritten piece by piece: what the operating system needs of it for that may be
    /// fetched now, in the background.
    fn expect_overwrite(&self) {}

    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
}

/// True for errors that mean: no file could be opened, for want of descriptors, so nothing was done.
pub(crate) fn is_unopened(error: &io::Error) -> bool {
    const OUT_OF_DESCRIPTORS: [rustix::io::Errno; 2] = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    OUT_OF_DESCRIPTORS.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// True for errors that mean: no room, nothing was harmed.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
