//! A data directory for reading, beside whoever writes it.
//!
//! Owns nothing but open files. Must never write, create or lock anything: a running server must not notice.

use crate::{
    format::{segment_name, segment_number},
    recovery::{OpenError, read_format},
    repair::MARKER,
    storage::{Storage, StorageFile},
};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A directory of a local file system that can only be read.
#[derive(Clone, Debug)]
pub struct ReadOnlyDirectory {
    directory: PathBuf,
}

impl ReadOnlyDirectory {
    /// The directory at `directory`.
    ///
    /// # Errors
    /// If there is none, or it may not be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        drop(fs::read_dir(directory)?);
        Ok(Self { directory: directory.to_owned() })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a log is here, or was: a segment, be it damaged or the only one left, the mark of an interrupted repair,
    /// or a file `format` that is one of ours. Where there is none of them, it is another directory.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn holds_log(&self) -> io::Result<bool> {
        let is_of_log = |name: &String| name == MARKER || segment_number(name).is_some();
        Ok(self.list()?.iter().any(is_of_log) || is_format_file(self))
    }

    /// When a segment's file was last written, as far as the file system tells.
    pub fn modified(&self, segment: u32) -> io::Result<SystemTime> {
        fs::metadata(self.directory.join(segment_name(segment)))?.modified()
    }
}

fn is_format_file(directory: &ReadOnlyDirectory) -> bool {
    matches!(read_format(directory), Ok(Some(_)) | Err(OpenError::Version { .. }))
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this directory was opened for reading only"))
}

impl Storage for ReadOnlyDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, _name: &str, _length: u64) -> io::Result<Arc<dyn StorageFile>> {
        refused()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(ReadOnlyFile(File::open(self.directory.join(name))?)))
    }

    fn delete(&self, _name: &str) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        refused()
    }

    fn write_whole(&self, _name: &str, _bytes: &[u8]) -> io::Result<()> {
        refused()
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
        Ok(0)
    }

    fn fence(&self, _epoch: u64) -> io::Result<()> {
        refused()
    }
}

#[derive(Debug)]
struct ReadOnlyFile(File);

impl StorageFile for ReadOnlyFile {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
