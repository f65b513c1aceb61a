//! Copying a log while it is written.
//!
//! Owns what makes the copy a log: every segment that it needs, whole, and the newest one up to a frame that was there
//! when the copy was begun. Must never lock or write the original, nor take a file for a segment that has become another
//! one meanwhile.

use crate::{
    format::{
        FORMAT_FILE, FrameHeader, Place, SECTOR_BYTES, Secrets, index_name, index_number, segment_name,
        segment_number,
    },
    read_only::ReadOnlyDirectory,
    recovery::{OpenError, list_segments_with_gaps, read_format, refuse_unfinished_repair},
    scan::{end_of, follows},
    storage::Storage,
    window::Window,
    writer::Tail,
};
use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const PIECE_BYTES: usize = 1024 * 1024;
/// Originals that are open at once.
const OPEN_FILES_MAX: usize = 256;

/// Why a log cannot be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The original cannot be read.
    #[error(transparent)]
    Source(#[from] OpenError),
    /// There is no log yet.
    #[error("there is no journal to copy: nothing was ever written to this directory")]
    Empty,
    /// A file cannot be read or written.
    #[error("cannot copy {what}: {source}")]
    Io {
        /// The file.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What one try came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The copy is a log that ends here.
    Whole {
        /// Its end.
        end: Place,
    },
    /// A segment was given up by the writer before it was copied. Try again: what is still needed is kept.
    Overtaken,
}

/// A copy being made in a directory of its own.
#[derive(Debug)]
pub struct Backup {
    source: ReadOnlyDirectory,
    destination: PathBuf,
    /// Complete segments that are copied already: they never change.
    done: BTreeSet<u32>,
}

impl Backup {
    /// A copy of `source` into the empty directory `destination`.
    pub fn new(source: ReadOnlyDirectory, destination: PathBuf) -> Self {
        Self { source, destination, done: BTreeSet::new() }
    }

    /// Copies the log as it is now: everything that was acknowledged as durable before the call is in it. `progress` is
    /// told the bytes of segments dealt with so far.
    pub fn copy(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Copied, BackupError> {
        refuse_unfinished_repair(&self.source)?;
        let segments = list_segments_with_gaps(&self.source)?;
        let Some(salt) = read_format(&self.source)? else { return Err(BackupError::Empty) };
        let secrets = Secrets::from_salt(&salt);
        let Some(end) = newest_end(&self.source, &secrets, &segments)? else {
            let is_as_it_was = list_segments_with_gaps(&self.source)? == segments;
            return if is_as_it_was { Err(BackupError::Empty) } else { Ok(Copied::Overtaken) };
        };
        self.copy_file(FORMAT_FILE)?;
        self.remove_unneeded(segments[0])?;
        let mut bytes = 0;
        let wanted: Vec<u32> = (segments[0]..=end.segment).collect();
        for together in wanted.chunks(OPEN_FILES_MAX) {
            // Opened before anything is copied: a file that is deleted afterwards stays as it is.
            let Some(files) = self.open_all(together)? else { return Ok(Copied::Overtaken) };
            for (&segment, file) in together.iter().zip(files) {
                let used = (segment == end.segment).then_some(u64::from(end.offset));
                if let Some(file) = file
                    && !self.copy_segment(&secrets, segment, &file, used)?
                {
                    return Ok(Copied::Overtaken);
                }
                if segment < end.segment && self.done.insert(segment) {
                    // A server deletes an index before its segment, and makes one some time after it is complete.
                    self.copy_if_there(&index_name(segment))?;
                }
                let copy = fs::metadata(self.destination.join(segment_name(segment)));
                bytes += copy.map_err(|source| io_error(&segment_name(segment), source))?.len();
                progress(bytes);
            }
        }
        sync(&self.destination)?;
        Ok(Copied::Whole { end })
    }

    /// Copies the small file `name`, if there is one.
    pub fn copy_small(&self, name: &str) -> Result<(), BackupError> {
        self.copy_if_there(name)
    }

    /// Removes what earlier tries have copied of segments that the log has given up since, or that were not complete.
    fn remove_unneeded(&mut self, oldest: u32) -> Result<(), BackupError> {
        self.done = self.done.split_off(&oldest);
        let io = |source| io_error(&self.destination.display().to_string(), source);
        for entry in fs::read_dir(&self.destination).map_err(io)? {
            let name = entry.map_err(io)?.file_name().into_string().unwrap_or_default();
            let number = segment_number(&name).or_else(|| index_number(&name));
            if number.is_some_and(|number| !self.done.contains(&number)) {
                fs::remove_file(self.destination.join(&name)).map_err(|source| io_error(&name, source))?;
            }
        }
        Ok(())
    }

    /// Opens the originals of segments that are not copied yet; `None` if one is gone.
    fn open_all(&self, segments: &[u32]) -> Result<Option<Vec<Option<File>>>, BackupError> {
        let mut files = Vec::new();
        for &segment in segments {
            let name = segment_name(segment);
            files.push(match File::open(self.source.directory().join(&name)) {
                _ if self.done.contains(&segment) => None,
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(io_error(&name, error)),
            });
        }
        Ok(Some(files))
    }

    /// Copies a segment: all of it, or its first `used` bytes with zeros behind. `false` if its file may have become
    /// another segment meanwhile.
    fn copy_segment(
        &self,
        secrets: &Secrets,
        segment: u32,
        original: &File,
        used: Option<u64>,
    ) -> Result<bool, BackupError> {
        let name = segment_name(segment);
        let io = |source| io_error(&name, source);
        let length = original.metadata().map_err(io)?.len();
        let mut copy = self.create(&name).map_err(io)?;
        copy_bytes(original, &mut copy, used.unwrap_or(length)).map_err(io)?;
        fill_up(&mut copy, length).map_err(io)?;
        copy.sync_all().map_err(io)?;
        // A file gets another name before it is overwritten, and then from its first frame on. So while either is as it
        // was, so is everything that was copied.
        if self.source.directory().join(&name).try_exists().map_err(io)? {
            return Ok(true);
        }
        let mut first = [0; SECTOR_BYTES as usize];
        original.read_exact_at(&mut first, 0).map_err(io)?;
        Ok(FrameHeader::parse(secrets, &first, Place { segment, offset: 0 }).is_some())
    }

    fn copy_if_there(&self, name: &str) -> Result<(), BackupError> {
        match self.copy_file(name) {
            Err(BackupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn copy_file(&self, name: &str) -> Result<(), BackupError> {
        let io = |source| io_error(name, source);
        let mut original = File::open(self.source.directory().join(name)).map_err(io)?;
        let mut copy = self.create(name).map_err(io)?;
        io::copy(&mut original, &mut copy).map_err(io)?;
        copy.sync_all().map_err(io)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.destination.join(name))
    }
}

/// Where the log ends: behind the last frame of the newest segment that was entered.
fn newest_end(
    source: &dyn Storage,
    secrets: &Secrets,
    segments: &[u32],
) -> Result<Option<Place>, BackupError> {
    for &segment in segments.iter().rev() {
        let mut place = Place { segment, offset: 0 };
        let mut window = match Window::open(source, segment) {
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let mut tail: Option<Tail> = None;
        while let Some((header, _)) = window.frame(secrets, place)? {
            if tail.is_some() && !follows(tail.as_ref(), &header) {
                break;
            }
            tail = Some(Tail::of(&header));
            place.offset = end_of(&header);
        }
        if tail.is_some() {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

fn copy_bytes(original: &File, copy: &mut File, bytes: u64) -> io::Result<()> {
    let copied = io::copy(&mut original.take(bytes), copy)?;
    if copied == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Real zeros: whoever goes on writing there relies on the room.
fn fill_up(copy: &mut File, length: u64) -> io::Result<()> {
    let zeros = vec![0; PIECE_BYTES];
    let mut at = copy.seek(SeekFrom::End(0))?;
    while at < length {
        let piece = usize::try_from(length - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        copy.write_all(&zeros[..piece])?;
        at += piece as u64;
    }
    Ok(())
}

fn sync(directory: &Path) -> Result<(), BackupError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| io_error(&directory.display().to_string(), source))
}

fn io_error(what: &str, source: io::Error) -> BackupError {
    BackupError::Io { what: what.to_owned(), source }
}
