//! Replays of dead letters as data: what is wished, what is going on, what would happen.
//!
//! Owns which dead letter a filter means and which of them a task takes. Must never change a message.

use crate::identity::Seq;
use crate::message::{DeadReason, Message, Phase};
use crate::name::Label;
use crate::rate::Rate;
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which dead letters are meant: all that fit everything that is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplayFilter {
    /// Why they died.
    pub reason: Option<DeadReason>,
    /// A part of the text of their last error, in either case.
    pub error: Option<String>,
    /// They died at this time or later.
    pub since: Option<Wall>,
    /// They died before this time.
    pub until: Option<Wall>,
    /// Whose work they are.
    pub tenant: Option<Label>,
}

impl ReplayFilter {
    /// Whether `message`, a dead letter, is one of those that are meant.
    pub fn fits(&self, message: &Message) -> bool {
        let died = message.finished.unwrap_or(message.accepted);
        let said = |wanted: &String| {
            let wanted = wanted.to_lowercase();
            message
                .last_failure()
                .is_some_and(|(failure, _)| failure.message.to_lowercase().contains(&wanted))
        };
        self.reason.is_none_or(|wanted| message.dead_reason == Some(wanted))
            && self.since.is_none_or(|since| died >= since)
            && self.until.is_none_or(|until| died < until)
            && self.tenant.as_ref().is_none_or(|wanted| message.tenant.as_ref() == Some(wanted))
            && self.error.as_ref().is_none_or(said)
    }
}

/// Which dead letters to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayWhich {
    /// These.
    These(Vec<Seq>),
    /// Those that the filter means, of all that are dead now.
    Filter(ReplayFilter),
    /// All that are dead now.
    All,
}

/// What an operator wants of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayWish {
    /// Which dead letters.
    pub which: ReplayWhich,
    /// How fast at most; `None`: as fast as it goes.
    pub rate: Option<Rate>,
    /// How long each is worth doing from its return on. `None`: its expiry stands while it lies ahead; one past it
    /// gets the queue's retention anew.
    pub ttl: Option<Duration>,
    /// Take also what died longer ago than the queue's `dead_letter.replayable_for`.
    pub older: bool,
}

impl ReplayWish {
    /// These or those at full speed, with their own expiry, nothing too old.
    pub fn plain(which: ReplayWhich) -> Self {
        Self { which, rate: None, ttl: None, older: false }
    }
}

/// Where a replay stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayState {
    /// Under way, or waiting for its pace or for room in the queue.
    Running,
    /// At its end.
    Done,
    /// Ended by an operator, or with its queue.
    Cancelled,
}

impl ReplayState {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What a running replay waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Its rate.
    Pace,
    /// Room under the queue's bounds, or its turn behind those who wait at a full queue's door.
    Room,
    /// Room on the disk.
    Disk,
}

impl WaitsFor {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::Room => "room",
            Self::Disk => "disk",
        }
    }
}

/// The replays of a queue that are remembered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayList {
    /// Oldest first; at most one runs, the last.
    pub tasks: Vec<ReplayTask>,
    /// What the running one waits for, if it does.
    pub waits_for: Option<WaitsFor>,
}

/// One replay, running or remembered. It is part of its queue's record, and so goes on after a restart.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayTask {
    /// Its number within the queue, from 1.
    pub number: u32,
    /// What was wished. The names of the messages are dropped at the end.
    pub wish: ReplayWish,
    /// When it was asked for.
    pub created: Wall,
    /// When it ended.
    pub finished: Option<Wall>,
    /// Where it stands.
    pub state: ReplayState,
    /// What died before this is too old; `None`: nothing is.
    pub not_before: Option<Wall>,
    /// The next dead letter to look at.
    pub from: Seq,
    /// The last one that was dead when the replay was asked for.
    pub through: Seq,
    /// The first place that had not been given then: what stands at it or beyond was replayed since, by this task or
    /// by another, and is not taken again if it dies again.
    pub before_place: u64,
    /// How many it set out to put back.
    pub selected: u64,
    /// How many were meant, but too old.
    pub too_old: u64,
    /// How many are back.
    pub replayed: u64,
}

impl ReplayTask {
    /// Most tasks remembered per queue after their end.
    pub const REMEMBERED: usize = 10;
    /// Most messages that one task may name.
    pub const NAMED_MAX: usize = 1000;

    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        self.state == ReplayState::Running
    }

    /// How many have not gone back yet, or did not before the end, as far as is known.
    pub fn remaining(&self) -> u64 {
        match self.state {
            ReplayState::Running | ReplayState::Cancelled => self.selected.saturating_sub(self.replayed),
            ReplayState::Done => 0,
        }
    }

    /// How many were meant and did not go back: too old, or gone in the meantime.
    pub fn skipped(&self) -> u64 {
        let gone = match self.state {
            ReplayState::Done => self.selected.saturating_sub(self.replayed),
            ReplayState::Running | ReplayState::Cancelled => 0,
        };
        self.too_old + gone
    }

    /// What this task means for a message of its queue.
    pub fn verdict(&self, message: &Message, now: Wall) -> Verdict {
        let died = message.finished.unwrap_or(message.accepted);
        // A death in the future shows a clock that was set back; it does not make a dead letter untouchable.
        let died_since = died > self.created && died <= now;
        let meant = message.phase == Phase::Dead
            && message.seq <= self.through
            && message.place < self.before_place
            && !died_since
            && match &self.wish.which {
                ReplayWhich::These(seqs) => seqs.binary_search(&message.seq).is_ok(),
                ReplayWhich::Filter(filter) => filter.fits(message),
                ReplayWhich::All => true,
            };
        match self.not_before {
            _ if !meant => Verdict::NotMeant,
            Some(not_before) if died < not_before => Verdict::TooOld,
            _ => Verdict::Take,
        }
    }
}

/// What a task means for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes back.
    Take,
    /// It is meant, but died too long ago.
    TooOld,
    /// It is none of the task's.
    NotMeant,
}

/// What a replay does, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPlan {
    /// The task; `None` for a dry run.
    pub task: Option<u32>,
    /// How many go back.
    pub selected: u64,
    /// How many are meant, but too old.
    pub too_old: u64,
    /// The first of those that go back, at most [`ReplayPlan::SAMPLES_MAX`].
    pub samples: Vec<Seq>,
}

impl ReplayPlan {
    /// Most samples in a plan.
    pub const SAMPLES_MAX: usize = 10;
}
