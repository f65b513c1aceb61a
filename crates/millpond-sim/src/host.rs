//! The engine on virtual time: the same machine, the same log, a simulated disk.
//!
//! Owns the order of events between engine and disk. Must never decide anything that the engine decides.

use millpond_core::command::{Command, Declared, Input, Leased, Reply, RequestId, TargetNumber};
use millpond_core::time::{Mono, Now, Wall};
use millpond_engine::content::Stored;
use millpond_engine::engine::{OpenError, Randomness, restore};
use millpond_engine::log::{Commit, Entry, Log, Outside};
use millpond_engine::machine::{Machine, Output};
use millpond_engine::segments::{SegmentJob, Segments};
use millpond_journal::{CommitError, DisposeError, PrepareError, Sealed, Storage, ToSeal};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// When virtual time begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Wall = Wall(1_767_225_600_000_000);

/// The moment at which virtual time shows `mono`.
pub fn now_at(mono: Mono) -> Now {
    Now { wall: Wall(EPOCH.0 + mono.0), mono }
}

/// Why a simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The engine cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// No segment could be prepared.
    #[error(transparent)]
    Prepare(PrepareError),
    /// A segment could not be disposed of.
    #[error(transparent)]
    Dispose(#[from] DisposeError),
}

/// Something that came out of the engine.
#[derive(Debug)]
pub enum Outcome {
    /// An answer.
    Reply(RequestId, Reply),
    /// A call to make.
    Dispatch(TargetNumber, Box<Leased>, Stored),
}

/// An engine whose log takes `commit_latency` of virtual time per group.
#[derive(Debug)]
pub struct Host {
    machine: Machine,
    log: Log,
    segments: Segments,
    /// The segment that was asked for last.
    wanted: Option<u32>,
    /// What the log was told of it: whether it is there, whether another file is, and whether there is room for both.
    told: Option<(u32, bool, bool, bool)>,
    /// Segments to be sealed, one with each group.
    unsealed: VecDeque<ToSeal>,
    commit_latency: Duration,
    /// What came while the log was busy.
    waiting: Vec<Entry>,
    /// What the log has written, and when the engine hears of it.
    written: VecDeque<(Mono, Vec<Commit>, Option<Sealed>)>,
    requests: u64,
    outcomes: Vec<Outcome>,
}

/// What the log says and asks for while it writes. What became of segments it learns at once.
#[derive(Debug)]
struct Around<'host> {
    commits: Vec<Commit>,
    segments: &'host Segments,
    wanted: &'host mut Option<u32>,
    unsealed: &'host mut VecDeque<ToSeal>,
    disposed: Result<(), DisposeError>,
}

impl Outside for Around<'_> {
    fn report(&mut self, commit: Commit) {
        self.commits.push(commit);
    }

    fn wait_for_room(&mut self) -> bool {
        false
    }

    fn segment_job(&mut self, job: SegmentJob) {
        match job {
            SegmentJob::Prepare(number) => *self.wanted = Some(number),
            SegmentJob::Seal(what) => self.unsealed.push_back(what),
            SegmentJob::Dispose(retired) if self.disposed.is_ok() => {
                self.disposed = self.segments.dispose(retired);
            }
            SegmentJob::Dispose(_) => {}
        }
    }
}

impl Host {
    /// Opens an engine on `storage` at `at`; everything random comes from `seed`.
    pub fn open(
        storage: &Arc<dyn Storage>,
        declared: Declared,
        segment_bytes: u32,
        seed: u64,
        commit_latency: Duration,
        at: Mono,
    ) -> Result<Self, HostError> {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut randomness = Randomness { salt: [0; 32], secret: [0; 32], seed: chance.u64(..) };
        chance.fill(&mut randomness.salt);
        chance.fill(&mut randomness.secret);
        let restored = restore(storage, declared, segment_bytes, &randomness, now_at(at))?;
        let mut host = Self {
            machine: restored.machine,
            log: restored.log,
            segments: restored.segments,
            wanted: None,
            told: None,
            unsealed: VecDeque::new(),
            commit_latency,
            waiting: Vec::new(),
            written: VecDeque::new(),
            requests: 0,
            outcomes: Vec::new(),
        };
        for job in restored.segment_jobs {
            match job {
                SegmentJob::Prepare(number) => host.wanted = Some(number),
                SegmentJob::Seal(what) => host.unsealed.push_back(what),
                SegmentJob::Dispose(retired) => host.segments.dispose(retired)?,
            }
        }
        host.settle(at)?;
        Ok(host)
    }

    /// The engine's machine, to look at.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// When the host must be run again at the latest, if nothing else happens.
    pub fn next_event(&self) -> Option<Mono> {
        let commit = self.written.front().map(|(at, ..)| *at);
        match (commit, self.machine.next_wakeup()) {
            (Some(commit), Some(wakeup)) => Some(commit.min(wakeup)),
            (commit, wakeup) => commit.or(wakeup),
        }
    }

    /// Lets the engine know that it is `at`: what is due happens.
    pub fn run(&mut self, at: Mono) -> Result<(), HostError> {
        while self.written.front().is_some_and(|(due, ..)| *due <= at) {
            let Some((_, commits, sealed)) = self.written.pop_front() else { break };
            for commit in commits {
                self.machine.committed(commit, now_at(at));
            }
            if let Some(sealed) = sealed {
                self.machine.sealed(sealed, now_at(at));
            }
            self.settle(at)?;
        }
        if self.machine.next_wakeup().is_some_and(|due| due <= at) {
            self.machine.handle(Input::Tick, now_at(at));
            self.settle(at)?;
        }
        Ok(())
    }

    /// Asks something; the answer comes out as [`Outcome::Reply`].
    pub fn ask(&mut self, command: Command, at: Mono) -> Result<RequestId, HostError> {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.tell(Input::Command { request, command }, at)?;
        Ok(request)
    }

    /// Tells the engine something.
    pub fn tell(&mut self, input: Input, at: Mono) -> Result<(), HostError> {
        self.machine.handle(input, now_at(at));
        self.settle(at)
    }

    /// What came out since the last call, in order.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Carries out what the machine wants.
    fn settle(&mut self, at: Mono) -> Result<(), HostError> {
        loop {
            let outputs: Vec<Output> = self.machine.outputs().collect();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                match output {
                    Output::Log(entry) => self.waiting.push(entry),
                    Output::Reply(request, answer) => {
                        self.outcomes.push(Outcome::Reply(request, answer.reply));
                    }
                    Output::Dispatch(target, leased, stored) => {
                        self.outcomes.push(Outcome::Dispatch(target, leased, stored));
                    }
                    Output::Seal(what) => self.unsealed.push_back(what),
                    Output::ReadToCopy(job) => {
                        let contents =
                            job.into_iter().map(|(seq, stored)| (seq, stored.try_read())).collect();
                        self.machine.copied(contents, now_at(at));
                    }
                }
            }
        }
        self.write(at)
    }

    /// Gives the log what waits, if it is free.
    fn write(&mut self, at: Mono) -> Result<(), HostError> {
        if !self.written.is_empty() {
            return Ok(());
        }
        let mut around = Around {
            commits: Vec::new(),
            segments: &self.segments,
            wanted: &mut self.wanted,
            unsealed: &mut self.unsealed,
            disposed: Ok(()),
        };
        if !self.waiting.is_empty() {
            self.log.write(std::mem::take(&mut self.waiting), &mut around)?;
        }
        if let Some(number) = *around.wanted {
            // A full disk is tried again whenever something happens.
            let ahead = self.segments.prepare(number).map_err(HostError::Prepare)?;
            let news = (number, ahead.next.is_some(), ahead.spare, ahead.roomy);
            if self.told != Some(news) {
                self.told = Some(news);
                self.log.ahead(Some(ahead));
                self.log.report_idle(&mut around);
            }
        }
        if around.commits.is_empty() {
            return Ok(());
        }
        // What nobody waits for becomes durable when the log is idle.
        if !self.log.is_settled() && around.commits.iter().all(|commit| commit.durable.is_none()) {
            self.log.idle(&mut around)?;
        }
        let Around { commits, disposed, .. } = around;
        disposed?;
        let sealed = self.unsealed.pop_front().and_then(|what| self.segments.seal(what));
        self.written.push_back((at.plus(self.commit_latency), commits, sealed));
        Ok(())
    }
}
