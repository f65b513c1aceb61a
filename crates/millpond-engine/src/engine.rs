//! Opening and stopping an engine.
//!
//! Owns the way from a directory to a running engine, and back. Must never serve before the boot is durable.

use crate::clock::Clock;
use crate::codec::{DecodeError, decode};
use crate::handle::{Calls, Handle};
use crate::inbox::{Event, Inbox};
use crate::log::{Commit, Log, Outside};
use crate::machine::{Machine, Output};
use crate::secret::{self, SECRET_FILE, Secret};
use crate::segments::{SegmentJob, SegmentThread, Segments, ToSegments};
use crate::size::growth_bytes;
use crate::threads::{EngineThread, LogThread, read_copies};
use millpond_core::callback::Callbacks;
use millpond_core::command::Declared;
use millpond_core::identity::{Keys, Seq};
use millpond_core::pond::Pond;
use millpond_core::time::Now;
use millpond_journal::{
    CommitError, LocalStorage, LocalStorageError, Options, Position, PrepareError, RecoveryReport, Storage,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc as async_mpsc, oneshot};

/// What an engine is made of.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where everything durable lies; made if it is not there.
    pub data_directory: PathBuf,
    /// Targets and queues of the configuration.
    pub declared: Declared,
    /// Size of the log's segments in bytes; see [`Options::segment_bytes`].
    pub segment_bytes: u32,
    /// Who words what is told of ends, and in which queue that lies. It is given the directory's keys.
    pub callbacks: Option<Wording>,
}

impl EngineOptions {
    /// Options with the default segment size.
    pub fn new(data_directory: PathBuf, declared: Declared) -> Self {
        Self { data_directory, declared, segment_bytes: Options::default().segment_bytes, callbacks: None }
    }
}

/// Makes the words for ends that are told; see [`EngineOptions::callbacks`]. What they say must fit into a quarter of a
/// segment, so that it fits beside the largest result.
#[derive(Clone)]
pub struct Wording(pub Arc<dyn Fn(Keys) -> Callbacks + Send + Sync>);

impl std::fmt::Debug for Wording {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Wording")
    }
}

/// Why an engine cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be used.
    #[error(transparent)]
    Storage(#[from] LocalStorageError),
    /// The log cannot be used.
    #[error(transparent)]
    Journal(#[from] millpond_journal::OpenError),
    /// The log is whole, but holds a record that this version cannot read.
    #[error("the journal holds a record at {position:?} that this version cannot read: {source}")]
    Record {
        /// Where.
        position: Position,
        /// Why.
        source: DecodeError,
    },
    /// A message's queue is not in the log.
    #[error(
        "the journal lacks the queue of message {0:?}; restore the data directory from a backup. Without one, \
         `millpond journal repair` says what can be kept"
    )]
    Orphan(Seq),
    /// The first record of this boot could not be written.
    #[error("cannot begin a new boot in the journal: {0}")]
    Boot(#[source] CommitError),
    /// A segment's file could not be made.
    #[error(transparent)]
    Segment(#[from] PrepareError),
    /// There are records, and no secret.
    #[error(
        "the file `{SECRET_FILE}` in the data directory is missing; restore it from a backup of this directory. Without \
         one, `millpond journal repair --accept-loss` draws a new secret: no message is lost, but ids, receipts and \
         status links that were given out mean nothing any more"
    )]
    SecretMissing,
    /// The secret's file is not as it was written.
    #[error(
        "the file `{SECRET_FILE}` in the data directory is damaged; restore it from a backup of this directory. Without \
         one, `millpond journal repair --accept-loss` draws a new secret: no message is lost, but ids, receipts and \
         status links that were given out mean nothing any more"
    )]
    SecretDamaged,
    /// The operating system gave no randomness, or no thread, or failed a small file.
    #[error("cannot start the engine: {0}")]
    Io(#[from] std::io::Error),
}

/// A running engine. Stops, without draining, when dropped.
#[derive(Debug)]
pub struct Engine {
    inbox: Inbox,
    /// Engine, log, and the log's side threads, in the order in which they end.
    threads: Vec<JoinHandle<()>>,
    failed: oneshot::Receiver<String>,
    stop: Arc<AtomicBool>,
    report: RecoveryReport,
}

/// Everything restored, nothing running yet.
#[derive(Debug)]
pub struct Restored {
    /// Pond and index.
    pub machine: Machine,
    /// The log.
    pub log: Log,
    /// The keys of this directory.
    pub keys: Keys,
    /// What recovery found.
    pub report: RecoveryReport,
    /// What can be done with segments beside the log.
    pub segments: Segments,
    /// What is to be done with them first.
    pub segment_jobs: Vec<SegmentJob>,
}

/// Restores an engine from `storage` and opens a new boot at `now`, with `randomness` for a new directory's
/// secrets and the pond's chance. What the simulator starts from too.
pub fn restore(
    storage: &Arc<dyn Storage>,
    declared: Declared,
    segment_bytes: u32,
    randomness: &Randomness,
    now: Now,
) -> Result<Restored, OpenError> {
    restore_telling(storage, declared, None, segment_bytes, randomness, now)
}

/// The same, and ends are told.
pub fn restore_telling(
    storage: &Arc<dyn Storage>,
    declared: Declared,
    callbacks: Option<&Wording>,
    segment_bytes: u32,
    randomness: &Randomness,
    now: Now,
) -> Result<Restored, OpenError> {
    let mut pond = Pond::new(randomness.seed);
    let mut undecoded = None;
    let mut grown: BTreeMap<Seq, u64> = BTreeMap::new();
    // The secret comes after the log's first frame, so where it is, a log without one has lost everything.
    let was_used = Secret::read(&**storage)? != Secret::Missing;
    let opened = millpond_journal::open(
        Arc::clone(storage),
        Options { segment_bytes, was_used },
        randomness.salt,
        &mut |replayed| match decode(replayed.head) {
            Ok(record) => {
                match growth_bytes(&record) {
                    Some((seq, bytes)) => *grown.entry(seq).or_default() += bytes,
                    None if grown.is_empty() => {}
                    None => drop(record.anchors().map(|seq| grown.remove(&seq))),
                }
                pond.restore(record);
                ControlFlow::Continue(())
            }
            Err(source) => {
                undecoded = Some(OpenError::Record { position: replayed.position, source });
                ControlFlow::Break(())
            }
        },
    );
    let opened = match (opened, undecoded) {
        (_, Some(error)) => return Err(error),
        (opened, None) => opened?,
    };
    // Only now is it sure that this directory is ours, and of our version.
    let keys = Keys::new(&read_or_make_secret(&**storage, randomness, opened.report.records > 0)?);
    if let Some(seq) = pond.orphan() {
        return Err(OpenError::Orphan(seq));
    }
    if let Some(Wording(wording)) = callbacks {
        pond.tell_ends(wording(keys.clone()));
    }
    pond.open(declared, now);
    let segments = Segments::of(&opened);
    let mut index = opened.index;
    index.retain(|key| pond.needs(Seq(key)));
    for (seq, bytes) in grown {
        index.grew(seq.0, bytes);
    }
    let mut machine = Machine::new(pond, index, opened.files, u64::from(segment_bytes));
    let mut log = Log::new(opened.writer);
    let segment_jobs = write_boot(&mut machine, &mut log, &segments, now)?;
    Ok(Restored { machine, log, keys, report: opened.report, segments, segment_jobs })
}

/// Makes the boot durable before anyone is served: two boots of one number could hand out one receipt twice. Returns
/// what the log wants done with segments.
fn write_boot(
    machine: &mut Machine,
    log: &mut Log,
    segments: &Segments,
    now: Now,
) -> Result<Vec<SegmentJob>, OpenError> {
    machine.opened();
    let outputs: Vec<Output> = machine.outputs().collect();
    let (entries, later): (Vec<Output>, Vec<Output>) =
        outputs.into_iter().partition(|output| matches!(output, Output::Log(_)));
    let entries = entries
        .into_iter()
        .filter_map(|output| match output {
            Output::Log(entry) => Some(entry),
            _ => None,
        })
        .collect();
    let mut commits = Commits::default();
    log.write(entries, &mut commits).map_err(OpenError::Boot)?;
    log.look_ahead(&mut commits);
    for job in &commits.jobs {
        // Whether there is room ahead must be known before new work is taken, unless enough is left anyway.
        if let (SegmentJob::Prepare(number), true) = (job, log.is_full()) {
            match segments.prepare(*number) {
                Err(error) if !error.is_passing() => return Err(error.into()),
                ahead => log.ahead(ahead.ok()),
            }
        }
    }
    log.report_idle(&mut commits);
    for commit in commits.commits {
        machine.committed(commit, now);
    }
    machine.want_again(later);
    Ok(commits.jobs)
}

#[derive(Default)]
struct Commits {
    commits: Vec<Commit>,
    jobs: Vec<SegmentJob>,
}

impl Outside for Commits {
    fn report(&mut self, commit: Commit) {
        self.commits.push(commit);
    }

    fn wait_for_room(&mut self) -> bool {
        false
    }

    fn segment_job(&mut self, job: SegmentJob) {
        self.jobs.push(job);
    }
}

/// Chance from outside.
#[derive(Debug, Clone)]
pub struct Randomness {
    /// For a new log.
    pub salt: [u8; 32],
    /// For a new directory's ids, receipts and tokens.
    pub secret: [u8; 32],
    /// For jitter.
    pub seed: u64,
}

impl Randomness {
    /// From the operating system.
    pub fn from_system() -> std::io::Result<Self> {
        let mut randomness = Self { salt: [0; 32], secret: [0; 32], seed: 0 };
        getrandom::fill(&mut randomness.salt)?;
        getrandom::fill(&mut randomness.secret)?;
        randomness.seed = getrandom::u64()?;
        Ok(randomness)
    }
}

/// The directory's secret, made if nothing can rest on one yet: the first record comes after it.
fn read_or_make_secret(
    storage: &dyn Storage,
    randomness: &Randomness,
    is_used: bool,
) -> Result<[u8; 32], OpenError> {
    match Secret::read(storage)? {
        Secret::Whole(secret) => Ok(secret),
        Secret::Damaged => Err(OpenError::SecretDamaged),
        Secret::Missing if is_used => Err(OpenError::SecretMissing),
        Secret::Missing => {
            secret::write(storage, &randomness.secret)?;
            Ok(randomness.secret)
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

impl Engine {
    /// Opens the directory, restores what it holds and starts the threads.
    pub fn open(options: EngineOptions) -> Result<(Self, Handle, Calls), OpenError> {
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::open(&options.data_directory)?);
        let mut clock = Clock::start();
        let randomness = Randomness::from_system()?;
        let EngineOptions { declared, segment_bytes, callbacks, .. } = options;
        let restored =
            restore_telling(&storage, declared, callbacks.as_ref(), segment_bytes, &randomness, clock.now())?;
        Ok(Self::start(restored, clock)?)
    }

    fn start(restored: Restored, mut clock: Clock) -> std::io::Result<(Self, Handle, Calls)> {
        let Restored { machine, log, keys, report, segments, segment_jobs } = restored;
        let inbox = Inbox::new();
        let content_bytes_max = log.content_bytes_max();
        let stop = Arc::new(AtomicBool::new(false));
        let (to_log, log_entries) = mpsc::channel();
        let (to_segments, jobs) = ToSegments::new();
        let (to_reader, read_jobs) = mpsc::channel();
        let (to_calls, calls) = async_mpsc::unbounded_channel();
        let (to_failed, failed) = oneshot::channel();
        let segment_thread = SegmentThread {
            segments,
            jobs,
            log: to_log.clone(),
            inbox: inbox.clone(),
            stop: Arc::clone(&stop),
            unsealed: VecDeque::new(),
        };
        for job in segment_jobs {
            to_segments.send(job);
        }
        let segments = spawn("millpond-segments", move || segment_thread.run())?;
        let reader_inbox = inbox.clone();
        let reader = spawn("millpond-reader", move || read_copies(&read_jobs, &reader_inbox))?;
        let log_thread = LogThread {
            log,
            entries: log_entries,
            inbox: inbox.clone(),
            segments: to_segments.clone(),
            stop: Arc::clone(&stop),
            told_full: false,
        };
        let log = spawn("millpond-log", move || log_thread.run())?;
        let engine_thread = EngineThread {
            machine,
            inbox: inbox.clone(),
            now: Box::new(move || clock.now()),
            log: to_log,
            segments: to_segments,
            reader: to_reader,
            calls: to_calls,
            failed: Some(to_failed),
        };
        let engine = spawn("millpond-engine", move || engine_thread.run())?;
        let handle = Handle::new(inbox.clone(), keys, content_bytes_max);
        let calls = Calls::new(calls, handle.clone());
        let engine = Self { inbox, threads: vec![engine, log, segments, reader], failed, stop, report };
        Ok((engine, handle, calls))
    }

    /// What recovery found at the start.
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// Resolves when the engine has stopped by itself, with the reason: the process must end.
    pub async fn failure(&mut self) -> String {
        (&mut self.failed).await.unwrap_or_else(|_| {
            "the engine thread has panicked; the log holds what was acknowledged".to_owned()
        })
    }

    /// Stops: everything emitted becomes durable, as far as the disk has room, then the threads end. Blocks until
    /// they have. Questions from now on are answered with [`CallError::Stopped`](crate::CallError::Stopped).
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        self.inbox.push(Event::Stop);
        // From here on nothing waits for room: on a full disk, what is pending is given up unacknowledged.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in there has been reported by the runtime.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

#[cfg(test)]
mod tests;
