//! The side work on the log's segments: made ahead, sealed, given back.
//!
//! Owns what that work is and, on its thread, the order in which it is done. Must never write into a segment: that is
//! the log's.

use crate::inbox::{Event, Inbox};
use crate::threads::ToLog;
use millpond_journal::{
    DisposeError, Opened, PrepareError, Prepared, Preparer, Retired, SealError, Sealed, Sealer, ToSeal,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

/// A log whose next segment has at least this number keeps a file in reserve: a small one need not take that room.
const RESERVE_FROM: u32 = 3;
/// How often a full disk is tried again.
pub(crate) const FULL_RETRY: Duration = Duration::from_millis(250);
/// How often the log looks whether a file that it has given up was seen to.
pub(crate) const DISPOSAL_RETRY: Duration = Duration::from_millis(1);

/// Something to do with a segment's file, for which the log does not wait.
#[derive(Debug)]
pub enum SegmentJob {
    /// Make this segment ahead.
    Prepare(u32),
    /// See to the file of a segment that the log gave up.
    Dispose(Retired),
    /// Write the index of a segment that the log has left behind.
    Seal(ToSeal),
}

/// What lies ahead of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The segment that was asked for last, if there was room for it.
    pub next: Option<Prepared>,
    /// A file is kept for the segment after that.
    pub spare: bool,
    /// There is room for all that the log wants ahead of it.
    pub roomy: bool,
    /// And for so many segments more, as far as is known.
    pub room_segments: u64,
}

/// What can be done with segments beside the log.
#[derive(Debug, Clone)]
pub struct Segments {
    preparer: Preparer,
    sealer: Sealer,
}

impl Segments {
    /// For the log that was opened.
    pub fn of(opened: &Opened) -> Self {
        Self { preparer: opened.writer.preparer(), sealer: opened.sealer.clone() }
    }

    /// Makes segment `number`, and keeps a file in reserve for the one after it once the log has become as long as
    /// that. A full disk is no error.
    ///
    /// # Errors
    /// One that is not [passing](PrepareError::is_passing) must stop the engine.
    pub fn prepare(&self, number: u32) -> Result<Ahead, PrepareError> {
        let next = match self.preparer.prepare(number) {
            Ok(next) => Some(next),
            Err(PrepareError::Full { .. }) => None,
            Err(error) => return Err(error),
        };
        let mut roomy = next.is_some();
        if roomy && number >= RESERVE_FROM {
            roomy = match self.preparer.reserve() {
                Ok(()) => true,
                Err(PrepareError::Full { .. }) => false,
                Err(error) => return Err(error),
            };
        }
        let (spare, room_segments) = (self.preparer.has_spare(), self.preparer.room_segments());
        Ok(Ahead { next, spare, roomy, room_segments })
    }

    /// See [`Preparer::dispose`]. An error must stop the engine.
    pub fn dispose(&self, retired: Retired) -> Result<(), DisposeError> {
        self.preparer.dispose(retired)
    }

    /// See [`Sealer::seal`]. What fails is logged: the next start reads the whole segment, that is all.
    pub fn seal(&self, what: ToSeal) -> Option<Sealed> {
        match self.sealer.seal(what) {
            Ok(sealed) => return sealed,
            Err(error @ SealError::Damaged { .. }) => {
                tracing::error!(%error, "a segment of the journal does not read as it was written");
            }
            Err(error) => tracing::warn!(%error, "a segment stays without its index"),
        }
        None
    }
}

/// The way to the side thread.
#[derive(Debug, Clone)]
pub(crate) struct ToSegments {
    jobs: Sender<SegmentJob>,
    undisposed: Arc<AtomicUsize>,
}

impl ToSegments {
    /// The way, and what comes out at its other end.
    pub(crate) fn new() -> (Self, Jobs) {
        let (sender, jobs) = channel();
        let undisposed = Arc::new(AtomicUsize::new(0));
        let other_end = Jobs { jobs, undisposed: Arc::clone(&undisposed) };
        (Self { jobs: sender, undisposed }, other_end)
    }

    /// Gives it a job. A side thread that has failed says so through the inbox.
    pub(crate) fn send(&self, job: SegmentJob) {
        let is_disposal = matches!(job, SegmentJob::Dispose(_));
        if is_disposal {
            self.undisposed.fetch_add(1, Ordering::SeqCst);
        }
        if self.jobs.send(job).is_err() && is_disposal {
            self.undisposed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether files are still to be seen to that the log has given up: there may be room in a moment.
    pub(crate) fn is_disposing(&self) -> bool {
        self.undisposed.load(Ordering::SeqCst) > 0
    }
}

/// What the side thread has to do.
#[derive(Debug)]
pub(crate) struct Jobs {
    jobs: Receiver<SegmentJob>,
    undisposed: Arc<AtomicUsize>,
}

/// What the side thread works with.
pub(crate) struct SegmentThread {
    pub(crate) segments: Segments,
    pub(crate) jobs: Jobs,
    pub(crate) log: Sender<ToLog>,
    pub(crate) inbox: Inbox,
    pub(crate) stop: Arc<AtomicBool>,
    /// Segments to seal when nothing else is to be done, oldest first.
    pub(crate) unsealed: VecDeque<ToSeal>,
}

impl SegmentThread {
    /// Runs until the log ends. Goes on trying while there is no room ahead of the log, or no file descriptor; any other
    /// failure stops the engine: what was made, and whether it stays, is known only after a restart.
    pub(crate) fn run(mut self) {
        let mut wanted = None;
        let mut waits_for_room = false;
        let mut told: Option<Option<Ahead>> = None;
        loop {
            match self.next(waits_for_room) {
                Next::Job(SegmentJob::Prepare(number)) => (wanted, told) = (Some(number), None),
                Next::Job(SegmentJob::Seal(what)) => {
                    self.unsealed.push_back(what);
                    continue;
                }
                Next::Job(SegmentJob::Dispose(retired)) => {
                    let disposed = self.segments.dispose(retired);
                    self.jobs.undisposed.fetch_sub(1, Ordering::SeqCst);
                    if let Err(error) = disposed {
                        return self.fail(&error);
                    }
                }
                Next::Seal(what) => {
                    self.seal(what);
                    continue;
                }
                Next::TryAgain => {}
                Next::End => return,
            }
            let Some(number) = wanted else { continue };
            let ahead = match self.segments.prepare(number) {
                Err(error) if !error.is_passing() => return self.fail(&error),
                other => other,
            };
            let state = ahead.as_ref().ok().cloned();
            waits_for_room = !state.as_ref().is_some_and(|ahead| ahead.roomy);
            // Only news are told: the engine refuses new work until they are good.
            if told.as_ref() != Some(&state) {
                told = Some(state);
                if self.log.send(ToLog::Ahead(ahead)).is_err() {
                    return;
                }
            }
        }
    }

    fn fail(&self, error: &dyn std::error::Error) {
        tracing::error!(%error, "the journal failed; the process must stop");
        self.inbox.push(Event::LogFailed(error.to_string()));
    }

    fn next(&mut self, waits_for_room: bool) -> Next {
        match self.jobs.jobs.try_recv() {
            Ok(job) => return Next::Job(job),
            Err(TryRecvError::Disconnected) => return Next::End,
            Err(TryRecvError::Empty) => {}
        }
        // A log that stops has no time for indexes: the next start makes them.
        let stopping = self.stop.load(Ordering::Relaxed);
        if let Some(what) = self.unsealed.pop_front().filter(|_| !stopping) {
            return Next::Seal(what);
        }
        if !waits_for_room {
            return self.jobs.jobs.recv().map_or(Next::End, Next::Job);
        }
        match self.jobs.jobs.recv_timeout(FULL_RETRY) {
            Ok(job) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::TryAgain,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    fn seal(&self, what: ToSeal) {
        if let Some(sealed) = self.segments.seal(what) {
            self.inbox.push(Event::Sealed(sealed));
        }
    }
}

enum Next {
    Job(SegmentJob),
    Seal(ToSeal),
    TryAgain,
    End,
}
