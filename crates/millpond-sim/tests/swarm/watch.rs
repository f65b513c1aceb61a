//! Watching the engine from inside its surroundings: marks of what happens, and the trace of a run.
//!
//! Owns both. Must never influence a run.

use super::marks::Marks;
use millpond_core::command::{CancelError, Command, DefineError, EnqueueError, Input, Reply, RequestId};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Attempt, Message, Phase};
use millpond_core::record::Record;
use millpond_core::time::{Mono, Wall};
use millpond_engine::log::Entry;
use millpond_engine::machine::Output;
use millpond_sim::host::{Seen, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Marks and trace of a run.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    pub(super) marks: Marks,
    pub(super) trace: Option<String>,
    /// Where each message stands, as far as records tell.
    pub(super) phases: BTreeMap<Seq, Phase>,
    /// Hand-outs of which nobody has heard yet, with the end of their lease.
    pub(super) unheard: BTreeMap<Receipt, (Wall, Wall)>,
    /// Who was told last to bring new messages, none of which can be a repetition, if nothing came of it yet.
    pub(super) asks: Option<RequestId>,
    /// Those who wait at the door.
    pub(super) at_door: BTreeSet<RequestId>,
}

/// The first word of how a thing is shown: the name of its variant.
fn variant(thing: &impl std::fmt::Debug) -> String {
    let shown = format!("{thing:?}");
    shown.chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

impl Watch for Watcher {
    fn saw(&mut self, at: Mono, seen: &Seen<'_>) {
        if let Some(trace) = &mut self.trace {
            writeln!(trace, "{} {seen:?}", at.0).expect("a string takes everything");
        }
        if matches!(seen, Seen::Input(_) | Seen::Committed(_))
            && let Some(waits) = self.asks.take()
        {
            self.marks.reach("door: somebody waits");
            self.at_door.insert(waits);
        }
        match seen {
            Seen::Input(Input::Command { request, command: Command::Enqueue { messages, .. } }) => {
                self.asks = messages.iter().all(|new| new.key.is_none()).then_some(*request);
            }
            Seen::Input(Input::Abandon(request)) if self.at_door.remove(request) => {
                self.marks.reach("door: somebody leaves");
            }
            Seen::Output(Output::Log(Entry::Append { record, .. })) => self.record(record),
            // A start writes what it hands out with its own record, before anybody looks.
            Seen::Output(Output::Dispatch(_, leased, _)) => {
                let started = leased.message.hand_out.as_ref().map_or(leased.until, |one| one.started);
                self.unheard.insert(leased.receipt, (started, leased.until));
            }
            Seen::Output(Output::Log(Entry::Delete { .. })) => self.marks.reach("seen: segment deleted"),
            Seen::Output(Output::Reply(request, answer)) => {
                self.asks.take_if(|asks| *asks == *request);
                self.door(*request, &answer.reply);
                self.reply(&answer.reply);
            }
            Seen::Input(Input::Copy(_)) | Seen::Output(Output::ReadToCopy(_)) => {
                self.marks.reach("seen: message copied to the end of the log");
            }
            _ => {}
        }
    }
}

impl Watcher {
    /// Forgets what records told: what a new process replays may be less.
    pub(super) fn restarted(&mut self) {
        self.phases.clear();
        self.at_door.clear();
        self.asks = None;
    }

    /// An answer to somebody who waited at the door.
    fn door(&mut self, request: RequestId, reply: &Reply) {
        if !self.at_door.remove(&request) {
            return;
        }
        let Reply::Enqueued(Ok(results)) = reply else { return };
        if results.iter().any(Result::is_ok) {
            self.marks.reach("door: somebody enters");
        } else if results.iter().any(|result| matches!(result, Err(EnqueueError::QueueFull { .. }))) {
            self.marks.reach("door: somebody is sent away after a while");
        }
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::Message { message, .. } => {
                // What is accepted does not wait.
                self.asks = None;
                self.copy(message);
            }
            Record::Leased { receipt, started, until, .. } => {
                self.unheard.insert(*receipt, (*started, *until));
                self.shift(receipt.seq, Phase::Leased);
            }
            Record::Returned { seq, attempt, due, .. } => {
                self.attempt(attempt.as_ref());
                self.shift(*seq, if due.is_some() { Phase::Backoff } else { Phase::Ready });
            }
            Record::Died { seq, attempt, reason, .. } => {
                self.attempt(attempt.as_ref());
                self.marks.reach(format!("dead: {}", reason.as_str()));
                self.shift(*seq, Phase::Dead);
            }
            Record::Replayed { seq, .. } => self.shift(*seq, Phase::Ready),
            Record::Forgotten { seq } => {
                if let Some(before) = self.phases.remove(seq) {
                    self.marks.reach(format!("edge: {} -> forgotten", before.as_str()));
                }
            }
            _ => {}
        }
    }

    /// A full copy: a new message, an end, or the same again.
    fn copy(&mut self, message: &Message) {
        if self.phases.get(&message.seq) == Some(&message.phase) {
            return;
        }
        self.attempt(message.history.last().filter(|_| message.phase.is_terminal()));
        let is_new = message.delivery() == 0 && !message.phase.is_terminal();
        if is_new && !self.phases.contains_key(&message.seq) {
            self.marks.reach(format!("edge: new -> {}", message.phase.as_str()));
        }
        self.shift(message.seq, message.phase);
    }

    fn attempt(&mut self, attempt: Option<&Attempt>) {
        if let Some(attempt) = attempt {
            self.marks.reach(format!("outcome: {}", attempt.outcome.as_str()));
        }
    }

    fn shift(&mut self, seq: Seq, phase: Phase) {
        let Some(before) = self.phases.insert(seq, phase) else { return };
        let mut before = before.as_str();
        // What waits becomes ready by the passing of time, of which nothing is written.
        if phase == Phase::Leased && matches!(before, "delayed" | "backoff") {
            self.marks.reach(format!("edge: {before} -> ready"));
            before = "ready";
        }
        self.marks.reach(format!("edge: {before} -> {}", phase.as_str()));
    }

    fn refused(&mut self, error: &impl std::fmt::Debug) {
        self.marks.reach(format!("refused: {}", variant(error)));
    }

    fn reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Enqueued(Err(error)) => self.refused(error),
            Reply::Enqueued(Ok(results)) => {
                for result in results {
                    match result {
                        Err(error) => self.refused(error),
                        Ok(accepted) => {
                            if accepted.duplicate {
                                self.marks.reach("seen: a duplicate");
                            }
                            if accepted.promise.is_some() {
                                self.marks.reach("seen: a promise");
                            }
                        }
                    }
                }
            }
            Reply::Leased(Err(error)) | Reply::Paused(Err(error)) | Reply::Queue(Err(error)) => {
                self.refused(error);
            }
            Reply::Extended(results) => results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .for_each(|error| self.refused(error)),
            Reply::Settled(results) => results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .for_each(|error| self.refused(error)),
            Reply::Cancelled(Err(CancelError::Lookup(error))) | Reply::Status(Err(error)) => {
                self.refused(error);
            }
            Reply::Cancelled(Err(error)) => self.refused(error),
            Reply::Messages(Err(error)) => self.refused(error),
            Reply::Defined(Err(DefineError::Settings(_))) => {
                self.marks.reach("refused: Settings");
            }
            Reply::Defined(Err(error)) | Reply::Deleted(Err(error)) => self.refused(error),
            Reply::ReplayStarted(Err(error))
            | Reply::ReplayCancelled(Err(error))
            | Reply::DeadDeleted(Err(error)) => self.refused(error),
            _ => {}
        }
    }
}
