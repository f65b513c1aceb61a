//! The engine thread, the log thread and their two side threads.
//!
//! Owns who runs where: the engine thread owns the machine and never waits for the disk; the log thread owns the
//! log. What the side threads do is elsewhere: `segments`, and here the reading of what is copied. Must never hold a queue rule.

use crate::content::Stored;
use crate::handle::Answer;
use crate::inbox::{Event, Inbox};
use crate::log::{Commit, Entry, Log, Outside};
use crate::machine::{Machine, Output};
use crate::segments::{Ahead, DISPOSAL_RETRY, FULL_RETRY, SegmentJob, ToSegments};
use millpond_core::command::{Input, Leased, OpNumber, Reply, RequestId, TargetNumber};
use millpond_core::identity::Seq;
use millpond_core::time::Now;
use millpond_journal::PrepareError;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc as async_mpsc, oneshot};

/// How long after the last group the log says how far it is synced.
const IDLE_AFTER: Duration = Duration::from_millis(40);
/// The engine looks at the clock at least this often.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What the log thread is told.
pub(crate) enum ToLog {
    Entries(Vec<Entry>),
    Ahead(Result<Ahead, PrepareError>),
    Stop,
}

/// A group of hand-outs whose bytes shall be read.
pub(crate) type ReadJob = Vec<(Seq, Stored)>;

/// What the engine thread works with.
pub(crate) struct EngineThread {
    pub(crate) machine: Machine,
    pub(crate) inbox: Inbox,
    pub(crate) now: Box<dyn FnMut() -> Now + Send>,
    pub(crate) log: Sender<ToLog>,
    pub(crate) segments: ToSegments,
    pub(crate) reader: Sender<ReadJob>,
    pub(crate) calls: async_mpsc::UnboundedSender<(TargetNumber, Leased, Stored, Instant)>,
    /// Told why, if the engine stops by itself.
    pub(crate) failed: Option<oneshot::Sender<String>>,
}

/// However the engine thread ends: closes the inbox, so that nobody waits for an answer that cannot come, and
/// stops the log thread, which would otherwise wait for entries for ever.
struct EndOnDrop {
    inbox: Inbox,
    log: Sender<ToLog>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.inbox.close();
        // A log that has failed is gone already.
        let _ = self.log.send(ToLog::Stop);
    }
}

impl EngineThread {
    /// Runs until told to stop, or the log fails.
    pub(crate) fn run(mut self) {
        let _end = EndOnDrop { inbox: self.inbox.clone(), log: self.log.clone() };
        let mut asked: HashMap<RequestId, oneshot::Sender<Answer>> = HashMap::new();
        let mut events = Vec::new();
        let mut emitted = OpNumber(0);
        let mut durable = OpNumber(0);
        let mut stopping = false;
        // What had been decided when the end was asked for. Timers go on meanwhile, but nobody waits for what they bring:
        // it is done again after the next start.
        let mut last: Option<OpNumber> = None;
        loop {
            self.flush(&mut asked, &mut emitted);
            if stopping && durable >= *last.get_or_insert(emitted) {
                break;
            }
            let timeout = self.timeout();
            self.inbox.take(&mut events, timeout, self.machine.is_log_busy());
            let now = (self.now)();
            if events.is_empty() {
                self.machine.handle(Input::Tick, now);
            }
            for event in events.drain(..) {
                match event {
                    // Its asker learns that the engine has stopped. Otherwise callers could keep it from stopping.
                    Event::Ask { .. } if stopping => {}
                    Event::Ask { request, command, answer } => {
                        asked.insert(request, answer);
                        self.machine.handle(Input::Command { request, command }, now);
                    }
                    Event::Input(input) => {
                        if let Input::Abandon(request) = &input {
                            asked.remove(request);
                        }
                        self.machine.handle(input, now);
                    }
                    Event::Locate { seq, answer } => {
                        // An asker that has left needs no answer.
                        let _ = answer.send(self.machine.locate(seq));
                    }
                    Event::Committed(commit) => {
                        durable = durable.max(commit.durable.unwrap_or_default());
                        self.machine.committed(commit, now);
                        self.note_disk();
                    }
                    Event::Copied(contents) => self.machine.copied(contents, now),
                    Event::Sealed(sealed) => self.machine.sealed(sealed, now),
                    Event::LogFailed(reason) => {
                        if let Some(failed) = self.failed.take() {
                            let _ = failed.send(reason);
                        }
                        return;
                    }
                    Event::Stop => {
                        stopping = true;
                        // Nothing more is handed out, or a paced target could go on for ever.
                        self.machine.handle(Input::Drain, now);
                    }
                }
            }
        }
    }

    fn timeout(&mut self) -> Duration {
        let Some(at) = self.machine.next_wakeup() else { return SLEEP_MAX };
        at.since((self.now)().mono).min(SLEEP_MAX)
    }

    fn note_disk(&self) {
        let (live, total) = self.machine.log_bytes();
        let mut journal = self.inbox.journal();
        journal.live_bytes = live;
        journal.disk_bytes = total;
        journal.full = self.machine.is_disk_full();
    }

    /// Hands out everything the machine wants done. Hand-outs that reach nobody are taken back at once.
    fn flush(&mut self, asked: &mut HashMap<RequestId, oneshot::Sender<Answer>>, emitted: &mut OpNumber) {
        let mut entries = Vec::new();
        loop {
            let outputs: Vec<Output> = self.machine.outputs().collect();
            if outputs.is_empty() {
                break;
            }
            let (mut taken_back, mut is_attended) = (Vec::new(), true);
            for output in outputs {
                match output {
                    Output::Log(entry) => {
                        if let Entry::Append { op, .. } = &entry {
                            *emitted = *op;
                        }
                        entries.push(entry);
                    }
                    Output::Reply(request, answer) => {
                        let Some(sender) = asked.remove(&request) else {
                            taken_back.extend(hand_outs(answer));
                            continue;
                        };
                        if let Err(answer) = sender.send(answer) {
                            taken_back.extend(hand_outs(answer));
                        }
                    }
                    Output::Dispatch(target, leased, stored) => {
                        if let Err(unsent) = self.calls.send((target, *leased, stored, Instant::now())) {
                            taken_back.push(unsent.0.1);
                            is_attended = false;
                        }
                    }
                    Output::ReadToCopy(job) => {
                        let _ = self.reader.send(job);
                    }
                    Output::Seal(what) => {
                        self.segments.send(SegmentJob::Seal(what));
                    }
                }
            }
            let now = (self.now)();
            if !is_attended {
                // Before anything is taken back, or it would be pushed again at once.
                self.machine.handle(Input::Unattended, now);
            }
            for leased in taken_back {
                self.machine.handle(Input::Undelivered(leased.receipt), now);
            }
        }
        if !entries.is_empty() {
            // A log that has failed says so through the inbox.
            let _ = self.log.send(ToLog::Entries(entries));
        }
    }
}

/// The hand-outs in an answer.
pub(crate) fn hand_outs(answer: Answer) -> Vec<Leased> {
    match answer.reply {
        Reply::Leased(Ok(leased)) => leased,
        _ => Vec::new(),
    }
}

/// What the log thread works with.
pub(crate) struct LogThread {
    pub(crate) log: Log,
    pub(crate) entries: Receiver<ToLog>,
    pub(crate) inbox: Inbox,
    pub(crate) segments: ToSegments,
    pub(crate) stop: Arc<AtomicBool>,
    /// It was said that pending work waits for room, and there has been none since.
    pub(crate) told_full: bool,
}

/// Reports commits to the engine.
struct Reporter<'thread> {
    inbox: &'thread Inbox,
    segments: &'thread ToSegments,
    stop: &'thread AtomicBool,
    started: Instant,
    told_full: &'thread mut bool,
}

impl Outside for Reporter<'_> {
    fn report(&mut self, commit: Commit) {
        if commit.records > 0 {
            let mut journal = self.inbox.journal();
            journal.commit.observe(self.started.elapsed());
            journal.groups += 1;
            journal.records += commit.records as u64;
        }
        self.started = Instant::now();
        self.inbox.push(Event::Committed(commit));
    }

    fn wait_for_room(&mut self) -> bool {
        let is_disposing = self.segments.is_disposing();
        if !is_disposing && !std::mem::replace(self.told_full, true) {
            tracing::error!("the disk is full: what is pending waits for room. Free or add space");
        }
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        if is_disposing {
            std::thread::sleep(DISPOSAL_RETRY);
            return true;
        }
        std::thread::sleep(FULL_RETRY);
        true
    }

    fn segment_job(&mut self, job: SegmentJob) {
        self.segments.send(job);
    }
}

/// Tells the engine of a panic of the log thread: without it, everybody would wait for durability for ever.
struct TellPanic(Inbox);

impl Drop for TellPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.push(Event::LogFailed("the log thread has panicked".to_owned()));
        }
    }
}

impl LogThread {
    /// Runs until told to stop, or a write or sync fails.
    pub(crate) fn run(mut self) {
        let _tell = TellPanic(self.inbox.clone());
        loop {
            let result = match self.next() {
                Next::Entries(entries) => self.write(entries),
                Next::Idle => self.idle(),
                Next::Continue => Ok(()),
                Next::Stop => {
                    let _ = self.idle();
                    return;
                }
            };
            if let Err(error) = result {
                // Nothing is retried: what the disk holds now is known only after a restart.
                tracing::error!(%error, "the journal failed; the process must stop");
                self.inbox.push(Event::LogFailed(error.to_string()));
                return;
            }
        }
    }

    fn next(&mut self) -> Next {
        let first = match self.entries.recv_timeout(IDLE_AFTER) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) if self.log.is_settled() => match self.entries.recv() {
                Ok(first) => first,
                Err(_) => return Next::Stop,
            },
            Err(RecvTimeoutError::Timeout) => return Next::Idle,
            Err(RecvTimeoutError::Disconnected) => return Next::Stop,
        };
        match first {
            ToLog::Entries(mut entries) => {
                // Whatever came while the last group was being written goes into this one.
                while let Ok(more) = self.entries.try_recv() {
                    match more {
                        ToLog::Entries(more) => entries.extend(more),
                        ToLog::Ahead(ahead) => self.ahead(ahead),
                        ToLog::Stop => {
                            if let Err(error) = self.write(entries) {
                                tracing::error!(%error, "the journal failed while stopping");
                            }
                            return Next::Stop;
                        }
                    }
                }
                Next::Entries(entries)
            }
            ToLog::Ahead(ahead) => {
                self.ahead(ahead);
                Next::Continue
            }
            ToLog::Stop => Next::Stop,
        }
    }

    fn ahead(&mut self, ahead: Result<Ahead, PrepareError>) {
        if let Err(error) = &ahead {
            tracing::error!(%error, "the next segment cannot be prepared");
        }
        self.log.ahead(ahead.ok());
        self.told_full &= self.log.is_full();
        let (log, mut reporter) = self.parts();
        log.report_idle(&mut reporter);
    }

    fn write(&mut self, entries: Vec<Entry>) -> Result<(), millpond_journal::CommitError> {
        let (log, mut reporter) = self.parts();
        log.write(entries, &mut reporter)
    }

    fn idle(&mut self) -> Result<(), millpond_journal::CommitError> {
        let (log, mut reporter) = self.parts();
        log.idle(&mut reporter)
    }

    /// The log, and who reports what it does from now on.
    fn parts(&mut self) -> (&mut Log, Reporter<'_>) {
        let Self { log, inbox, segments, stop, told_full, .. } = self;
        (log, Reporter { inbox, segments, stop, started: Instant::now(), told_full })
    }
}

enum Next {
    Entries(Vec<Entry>),
    Idle,
    Continue,
    Stop,
}

/// Reads what is to be copied.
pub(crate) fn read_copies(jobs: &Receiver<ReadJob>, inbox: &Inbox) {
    while let Ok(job) = jobs.recv() {
        let contents = job.into_iter().map(|(seq, stored)| (seq, stored.try_read())).collect();
        inbox.push(Event::Copied(contents));
    }
}

#[cfg(test)]
mod tests;
