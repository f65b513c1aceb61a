//! Making a damaged data directory open again, at the price of what cannot be read.
//!
//! Owns what is kept and what must be added so that nothing old can be mistaken for something new. Must never delete a
//! file of the damaged log, nor put a log in its place that it has not read back.

use crate::codec::{decode, encode};
use crate::secret::{self, Secret};
use crate::survey::{Survey, Unwatched, Watch, segment_bytes, survey};
use millpond_core::message::QueueNumber;
use millpond_core::name::Name;
use millpond_core::record::{QueueRecord, Record};
use millpond_core::settings::QueueSettings;
use millpond_journal::inspect::{InspectedRecord, Visitor, inspect};
use millpond_journal::{
    CommitError, LocalStorage, LocalStorageError, OpenError, Opened, Options, RECORD_HEADER_BYTES,
    SECTOR_BYTES, Storage, Writer, open, repair,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A group of the new log, in bytes.
const GROUP_BYTES: u64 = 1 << 20;

/// Why a directory cannot be repaired. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The directory cannot be used: a server has it, or there is none.
    #[error(transparent)]
    Storage(#[from] LocalStorageError),
    /// Nothing can be read, or the new log cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The new log cannot be written.
    #[error("cannot write the repaired journal: {0}; nothing was changed")]
    Commit(#[from] CommitError),
    /// The new log does not read back whole.
    #[error(
        "the repaired journal does not read back as it was written; nothing was changed: is the disk failing?"
    )]
    NotWhole,
    /// Small files, directories or the operating system's randomness failed.
    #[error("cannot repair the data directory: {0}")]
    Io(#[from] std::io::Error),
}

/// What a repair did.
#[derive(Debug)]
pub enum Repair {
    /// Nothing is damaged; nothing was changed.
    Whole(Box<Survey>),
    /// An earlier repair was interrupted after the new log was complete; it is finished now.
    Finished {
        /// Where the damaged files are.
        aside: PathBuf,
    },
    /// The damaged log was replaced.
    Done(Box<Repaired>),
}

/// A log that was replaced.
#[derive(Debug)]
pub struct Repaired {
    /// What the damaged log held.
    pub before: Survey,
    /// What the new one holds.
    pub after: Survey,
    /// Where the damaged files are.
    pub aside: PathBuf,
    /// Queues that had to be made anew because the log had lost them, under these names.
    pub recovered_queues: Vec<(QueueNumber, Name)>,
    /// A new secret had to be drawn: ids, receipts and status links given out before mean nothing now.
    pub new_secret: bool,
}

/// Repairs `directory`: whatever can be read goes into a new log, the damaged files go aside. Killed anywhere, it can
/// be run again. No server may use the directory meanwhile.
///
/// Records are kept in their order. So a message whose newest facts are lost goes back to the state that the last kept
/// fact says, and may be done again; one of which no full copy is left is gone.
pub fn repair_directory(directory: &Path, watch: &mut dyn Watch) -> Result<Repair, RepairError> {
    if !directory.is_dir() {
        return Err(LocalStorageError::NotADirectory { path: directory.to_owned() }.into());
    }
    let storage = LocalStorage::open(directory)?;
    if let Some(aside) = repair::finish(directory)? {
        return Ok(Repair::Finished { aside });
    }
    let before = survey_of_damage(&storage, watch)?;
    if before.is_whole() {
        return Ok(Repair::Whole(Box::new(before)));
    }
    let workshop = repair::workshop(directory)?;
    let built = LocalStorage::open(&workshop)
        .map_err(RepairError::from)
        .and_then(|new| rebuild(&storage, &before, &(Arc::new(new) as Arc<dyn Storage>)));
    if built.is_err() {
        // The error that counts is the one that stopped the work; the next attempt clears up as well.
        let _ = repair::clear_workshop(directory);
    }
    let Rebuilt { after, recovered_queues, new_secret } = built?;
    let aside = repair::replace(directory)?;
    Ok(Repair::Done(Box::new(Repaired { before, after, aside, recovered_queues, new_secret })))
}

/// What a repair has to go by: a survey also where not one frame can be checked, and so all is lost.
///
/// # Errors
/// See [`survey`].
pub fn survey_of_damage(storage: &dyn Storage, watch: &mut dyn Watch) -> Result<Survey, OpenError> {
    match survey(storage, watch) {
        Err(OpenError::FormatFile) => Ok(Survey::of_nothing()),
        surveyed => surveyed,
    }
}

/// A log that was written anew.
#[derive(Debug)]
pub struct Rebuilt {
    /// What it holds.
    pub after: Survey,
    /// Queues that had to be made anew, under these names.
    pub recovered_queues: Vec<(QueueNumber, Name)>,
    /// A new secret had to be drawn.
    pub new_secret: bool,
}

/// Writes whatever can be read of `old`, of which `before` is the survey, into `storage`, which is empty, and reads it
/// back.
///
/// # Errors
/// If it cannot be written, or does not read back whole.
pub fn rebuild(
    old: &dyn Storage,
    before: &Survey,
    storage: &Arc<dyn Storage>,
) -> Result<Rebuilt, RepairError> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(std::io::Error::from)?;
    let options = Options { segment_bytes: segment_bytes(&before.inspection), was_used: false };
    let Opened { writer, .. } = open(Arc::clone(storage), options, salt, &mut |_| ControlFlow::Continue(()))?;
    let mut copy = Copy { writer, copied: 0, failed: None };
    if before.inspection.records > 0 {
        inspect(old, &mut copy)?;
    }
    let (secret, new_secret) = match Secret::read(old)? {
        Secret::Whole(secret) if copy.copied > 0 => (secret, false),
        _ => {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).map_err(std::io::Error::from)?;
            (secret, true)
        }
    };
    let recovered = before.orphaned().map(|number| (number, free_name(before, number))).collect::<Vec<_>>();
    for (number, name) in &recovered {
        copy.add(&Record::Queue(Box::new(QueueRecord {
            number: *number,
            name: name.clone(),
            settings: QueueSettings::default(),
            paused: false,
            dead_burst: false,
            deleted: false,
            since: 0,
            replays: Vec::new(),
        })));
    }
    copy.add(&boot(before));
    copy.finish()?;
    secret::write(&**storage, &secret)?;
    let after = survey(&**storage, &mut Unwatched)?;
    if after.is_whole() {
        Ok(Rebuilt { after, recovered_queues: recovered, new_secret })
    } else {
        Err(RepairError::NotWhole)
    }
}

/// Copies every record that can be read and decoded, in order.
struct Copy {
    writer: Writer,
    copied: u64,
    failed: Option<CommitError>,
}

impl Visitor for Copy {
    fn record(&mut self, record: InspectedRecord<'_>) {
        let Some(payload) = record.payload else { return };
        if decode(record.head).is_ok() {
            self.push(record.key, record.anchor, payload, record.head.len());
            self.copied += 1;
        }
    }
}

impl Copy {
    fn push(&mut self, key: Option<u64>, anchor: bool, payload: &[u8], head: usize) {
        let bytes = payload.len() as u64 + u64::from(RECORD_HEADER_BYTES) + u64::from(SECTOR_BYTES);
        let is_full = self.writer.pending_bytes() + bytes > GROUP_BYTES.min(self.writer.group_bytes_max());
        if self.writer.pending_records() > 0 && is_full {
            self.commit(false);
        }
        self.writer.push_with_body(key, anchor, |out| {
            out.extend_from_slice(payload);
            head
        });
    }

    fn add(&mut self, record: &Record) {
        let mut payload = Vec::new();
        let head = encode(record, &mut payload);
        self.push(None, false, &payload, head);
    }

    fn commit(&mut self, sync: bool) {
        // A full disk, or one that fails, stays so for the rest: the first error is the one to tell.
        if self.failed.is_none() {
            self.failed = self.writer.commit(sync).err();
        }
        if self.failed.is_some() {
            self.writer.discard();
        }
    }

    fn finish(mut self) -> Result<(), CommitError> {
        self.commit(true);
        match self.failed {
            Some(error) => Err(error),
            None => self.writer.mark_synced_if_needed().map(drop),
        }
    }
}

/// A boot later than any that the lost part can have seen, and numbers beyond any that it can have given out: neither
/// an old receipt nor an old id may mean something new.
fn boot(before: &Survey) -> Record {
    let epoch = before.boot.max(u32::try_from(before.inspection.epoch).unwrap_or(u32::MAX));
    Record::Boot { epoch, next: before.unused_from }
}

/// A name for a queue that the log has lost.
fn free_name(before: &Survey, number: QueueNumber) -> Name {
    let taken = |name: &Name| {
        before.queues.values().any(|queue| queue.record.as_ref().is_some_and(|record| record.name == *name))
    };
    let names = (0..=u32::MAX).map(|attempt| match attempt {
        0 => format!("recovered-{}", number.0),
        _ => format!("recovered-{}-{attempt}", number.0),
    });
    let mut names = names.map(|name| Name::new(&name).expect("letters, digits and dashes"));
    names.find(|name| !taken(name)).expect("fewer queues than numbers")
}
