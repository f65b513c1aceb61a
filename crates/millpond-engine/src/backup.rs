//! A copy of a data directory, taken beside the server that uses it.
//!
//! Owns the tries, the proof that the copy is whole, and that nobody mistakes half a copy for one. Must never touch the
//! original.

use crate::secret::SECRET_FILE;
use crate::survey::{Survey, Watch, survey};
use millpond_journal::backup::{Backup, BackupError, Copied};
use millpond_journal::{OpenError, ReadOnlyDirectory};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// How often a server may give a segment up just before it is copied. Each try keeps what earlier ones have copied, so
/// more than a few mean that the disk is slower than the server.
const TRIES_MAX: u32 = 20;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryBackupError {
    /// The copy's place is taken.
    #[error("{} exists already: name a directory that does not, or remove it", path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// The copy would lie in the original, which is nobody's to write but the server's, and would go with it.
    #[error(
        "{} is inside the data directory {}: name a directory outside it, best on another disk", path.display(), data.display()
    )]
    Inside {
        /// The place.
        path: PathBuf,
        /// The original.
        data: PathBuf,
    },
    /// The original cannot be read.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The copy cannot be read.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The original is damaged, and so is the copy.
    #[error(
        "the copy is damaged, so the original is, too ({first}); `millpond journal verify` says where. The copy was removed"
    )]
    Damaged {
        /// The first finding.
        first: String,
    },
    /// The server gives up segments faster than they can be copied.
    #[error(
        "the server writes faster than this disk can copy; nothing was kept. Try when there is less to do"
    )]
    Overtaken,
    /// A directory cannot be made, moved or removed.
    #[error("cannot make the backup in {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Copies the data directory `source` to `destination`, which must not exist, nor lie in it. The copy is a data directory that a
/// server opens, and holds every message that was acknowledged before the call. It appears whole, or not at all: until
/// then it is called `destination` with `.partial` behind.
pub fn back_up(
    source: &Path,
    destination: &Path,
    watch: &mut dyn Watch,
) -> Result<Survey, DirectoryBackupError> {
    let io = |source| DirectoryBackupError::Io { path: destination.to_owned(), source };
    if destination.try_exists().map_err(io)? {
        return Err(DirectoryBackupError::Exists { path: destination.to_owned() });
    }
    let directory = ReadOnlyDirectory::open(source)
        .map_err(|error| DirectoryBackupError::Io { path: source.to_owned(), source: error })?;
    // Both as they are behind their links; a parent that is not there is told below.
    if let (Ok(data), Ok(parent)) = (source.canonicalize(), parent(destination).canonicalize())
        && parent.starts_with(data)
    {
        return Err(DirectoryBackupError::Inside { path: destination.to_owned(), data: source.to_owned() });
    }
    let mut partial = destination.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if partial.try_exists().map_err(io)? {
        return Err(DirectoryBackupError::Exists { path: partial });
    }
    DirBuilder::new().mode(0o700).create(&partial).map_err(io)?;
    let copied = copy(directory, &partial, watch);
    if copied.is_err() {
        // What counts is the first error; whoever finds the rest can see by its name what it is.
        let _ = fs::remove_dir_all(&partial);
    }
    let survey = copied?;
    fs::rename(&partial, destination).map_err(io)?;
    sync_parent(destination).map_err(io)?;
    Ok(survey)
}

fn copy(
    source: ReadOnlyDirectory,
    partial: &Path,
    watch: &mut dyn Watch,
) -> Result<Survey, DirectoryBackupError> {
    let mut backup = Backup::new(source, partial.to_owned());
    for _ in 0..TRIES_MAX {
        match backup.copy(&mut |bytes| watch.progress(bytes))? {
            Copied::Overtaken => continue,
            Copied::Whole { .. } => {}
        }
        // It is made once, before the first record.
        backup.copy_small(SECRET_FILE)?;
        let read = ReadOnlyDirectory::open(partial)
            .map_err(|source| DirectoryBackupError::Io { path: partial.to_owned(), source })?;
        let survey = survey(&read, watch)?;
        return match survey.findings().first() {
            None => Ok(survey),
            Some(finding) => Err(DirectoryBackupError::Damaged { first: finding.to_string() }),
        };
    }
    Err(DirectoryBackupError::Overtaken)
}

/// The copy's own entry has to survive, too.
fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}
