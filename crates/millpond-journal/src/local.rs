//! [`Storage`] in a directory of a local file system.
//!
//! Owns the directory's lock, the permissions (0700, files 0600) and the order of syncs that makes creation and
//! deletion survive a power loss. Must never know frames or records.

use crate::storage::{Storage, StorageFile};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

const LOCK_NAME: &str = "lock";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Zeros go out in pieces, synced now and then, so that preparing a segment does not build up a burst of dirty
/// pages in front of the group that somebody waits for.
const FILL_CHUNK_BYTES: usize = 1024 * 1024;
const FILL_SYNC_CHUNKS: u64 = 8;
const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalStorageError {
    /// Another process (or another journal in this one) holds the directory.
    #[error(
        "data directory {} is in use by process {holder}: stop that process, or choose another directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id from the lock file, or `unknown`.
        holder: String,
    },
    /// This process may not create or write files there.
    #[error("data directory {} is not writable for this user: {source}; change its owner or permissions", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The path names something that is not a directory.
    #[error("{} is not a directory: name a directory, or a path that does not exist yet", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Anything else the operating system reports.
    #[error("cannot open data directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A directory that this process holds exclusively until the value is dropped.
#[derive(Debug)]
pub struct LocalStorage {
    directory: PathBuf,
    directory_file: File,
    /// Held, not read: closing it releases the lock.
    _lock: File,
}

impl LocalStorage {
    /// Opens (or creates, with mode 0700) `directory` and locks it. The lock goes with the process, so a killed
    /// process leaves nothing to clean up.
    pub fn open(directory: &Path) -> Result<Self, LocalStorageError> {
        let explain = |source: io::Error| explain(directory, source);
        if !directory.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(explain)?;
            sync_parent(directory).map_err(explain)?;
        }
        if !fs::metadata(directory).map_err(explain)?.is_dir() {
            return Err(LocalStorageError::NotADirectory { path: directory.to_owned() });
        }
        let lock = lock(directory)?;
        let directory_file = File::open(directory).map_err(explain)?;
        let storage = Self { directory: directory.to_owned(), directory_file, _lock: lock };
        storage.remove_temporary_files().map_err(explain)?;
        Ok(storage)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a power loss left of a creation that had not finished.
    fn remove_temporary_files(&self) -> io::Result<()> {
        for name in self.list()? {
            if name.ends_with(TEMPORARY_SUFFIX) {
                fs::remove_file(self.directory.join(name))?;
            }
        }
        Ok(())
    }

    /// Writes a temporary file with `write`, syncs it, and gives it its name; the directory is synced last.
    fn replace(&self, name: &str, write: &dyn Fn(&mut File) -> io::Result<()>) -> io::Result<File> {
        let temporary = self.directory.join(format!("{name}{TEMPORARY_SUFFIX}"));
        let result = (|| {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            write(&mut file)?;
            file.sync_all()?;
            fs::rename(&temporary, self.directory.join(name))?;
            self.directory_file.sync_all()?;
            Ok(file)
        })();
        if result.is_err() {
            // The first error is the one to report; a leftover is removed at the next start.
            let _ = fs::remove_file(&temporary);
        }
        result
    }
}

impl Storage for LocalStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn StorageFile>> {
        if self.directory.join(name).exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} already exists")));
        }
        let file = self.replace(name, &|file| fill_with_zeros(file, length))?;
        Ok(Arc::new(LocalFile { file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.directory.join(name))?;
        Ok(Arc::new(LocalFile { file }))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))?;
        self.directory_file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if self.directory.join(to).exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{to} already exists")));
        }
        fs::rename(self.directory.join(from), self.directory.join(to))?;
        self.directory_file.sync_all()
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace(name, &|file| file.write_all(bytes)).map(drop)
    }

    fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(SMALL_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn fence(&self, _epoch: u64) -> io::Result<()> {
        self.directory_file.sync_all()
    }
}

#[derive(Debug)]
struct LocalFile {
    file: File,
}

impl StorageFile for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let mut slices = [io::IoSliceMut::new(buffer)];
        let read = rustix::io::preadv2(&self.file, &mut slices, offset, rustix::io::ReadWriteFlags::NOWAIT);
        // A short read, or a file system without the flag: whoever asks reads again, and waits.
        Ok(read.is_ok_and(|read| read == buffer.len()))
    }

    #[cfg(target_os = "linux")]
    fn expect_overwrite(&self) {
        // Groups begin and end at sectors, pages are larger: a page that is not at hand would have to be read while
        // somebody waits. Advice that is not taken costs just that.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::WillNeed);
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

fn fill_with_zeros(file: &mut File, length: u64) -> io::Result<()> {
    // Real zeros instead of fallocate: overwriting allocated, written blocks needs no metadata at sync time.
    let zeros = vec![0_u8; FILL_CHUNK_BYTES];
    let mut left = length;
    let mut chunks = 0_u64;
    while left > 0 {
        let chunk = usize::try_from(left).map_or(FILL_CHUNK_BYTES, |left| left.min(FILL_CHUNK_BYTES));
        file.write_all(&zeros[..chunk])?;
        left -= chunk as u64;
        chunks += 1;
        if chunks.is_multiple_of(FILL_SYNC_CHUNKS) {
            file.sync_data()?;
        }
    }
    Ok(())
}

fn lock(directory: &Path) -> Result<File, LocalStorageError> {
    let explain = |source: io::Error| explain(directory, source);
    let path = directory.join(LOCK_NAME);
    // Not truncated before it is ours: the holder's process id is read from it.
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(explain)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let known = (&file).take(32).read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder = if known { holder.trim().to_owned() } else { "unknown".to_owned() };
            return Err(LocalStorageError::InUse { path: directory.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(explain(source)),
    }
    file.set_len(0).map_err(explain)?;
    writeln!(file, "{}", std::process::id()).map_err(explain)?;
    Ok(file)
}

fn explain(directory: &Path, source: io::Error) -> LocalStorageError {
    let path = directory.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            LocalStorageError::NotWritable { path, source }
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            LocalStorageError::NotADirectory { path }
        }
        _ => LocalStorageError::Io { path, source },
    }
}

/// The new directory's own entry has to survive, too.
fn sync_parent(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    File::open(parent)?.sync_all()
}
