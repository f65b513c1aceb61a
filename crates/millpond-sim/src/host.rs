//! The engine on virtual time: the same machine, the same log, a simulated disk.
//!
//! Owns the order of events between engine and disk. Must never decide anything that the engine decides.

use millpond_core::command::{Command, Declared, Input, Leased, Reply, RequestId, TargetNumber};
use millpond_core::time::{Mono, Now, Wall};
use millpond_engine::content::Stored;
use millpond_engine::engine::{OpenError, Randomness, restore};
use millpond_engine::log::{Commit, Entry, Log, Outside};
use millpond_engine::machine::{Machine, Output};
use millpond_journal::{CommitError, PrepareError, Preparer, Storage};
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
    preparer: Preparer,
    commit_latency: Duration,
    /// What came while the log was busy.
    waiting: Vec<Entry>,
    /// What the log has written, and when the engine hears of it.
    written: VecDeque<(Mono, Vec<Commit>)>,
    requests: u64,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Default)]
struct Commits(Vec<Commit>);

impl Outside for Commits {
    fn report(&mut self, commit: Commit) {
        self.0.push(commit);
    }

    fn wait_for_room(&mut self) -> bool {
        false
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
        let preparer = restored.preparer();
        let mut host = Self {
            machine: restored.machine,
            log: restored.log,
            preparer,
            commit_latency,
            waiting: Vec::new(),
            written: VecDeque::new(),
            requests: 0,
            outcomes: Vec::new(),
        };
        host.settle(at)?;
        Ok(host)
    }

    /// The engine's machine, to look at.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// When the host must be run again at the latest, if nothing else happens.
    pub fn next_event(&self) -> Option<Mono> {
        let commit = self.written.front().map(|(at, _)| *at);
        match (commit, self.machine.next_wakeup()) {
            (Some(commit), Some(wakeup)) => Some(commit.min(wakeup)),
            (commit, wakeup) => commit.or(wakeup),
        }
    }

    /// Lets the engine know that it is `at`: what is due happens.
    pub fn run(&mut self, at: Mono) -> Result<(), HostError> {
        while self.written.front().is_some_and(|(due, _)| *due <= at) {
            let Some((_, commits)) = self.written.pop_front() else { break };
            for commit in commits {
                self.machine.committed(commit, now_at(at));
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
        if self.waiting.is_empty() || !self.written.is_empty() {
            return Ok(());
        }
        let mut commits = Commits::default();
        self.log.write(std::mem::take(&mut self.waiting), &mut commits)?;
        if let Some(number) = self.log.wants_next() {
            // A full disk is tried again with the next group.
            self.log.prepared(match self.preparer.prepare(number) {
                Ok(prepared) => Some(prepared),
                Err(PrepareError::Full { .. }) => None,
                Err(error) => return Err(HostError::Prepare(error)),
            });
            self.log.report_idle(&mut commits);
        }
        // What nobody waits for becomes durable when the log is idle.
        if !self.log.is_settled() && commits.0.iter().all(|commit| commit.durable.is_none()) {
            self.log.idle(&mut commits)?;
        }
        self.written.push_back((at.plus(self.commit_latency), commits.0));
        Ok(())
    }
}
