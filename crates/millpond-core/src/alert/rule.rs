//! The rules by name.
//!
//! Owns which rules there are, how grave each is, and its unit. Must never look at a number.

/// How much an alert weighs. The graver is the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody must act now: work stands still, or will never be done.
    Critical,
    /// Somebody must look within working hours.
    Warning,
}

impl Severity {
    /// The word on the wire and in the labels of rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

/// What a rule's value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Messages.
    Messages,
    /// A share or a multiple.
    Ratio,
    /// 1 while it is so, else 0.
    State,
}

impl Unit {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Messages => "messages",
            Self::Ratio => "ratio",
            Self::State => "state",
        }
    }
}

/// What must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The oldest unfinished message is too old.
    OldestAge,
    /// Too many messages wait.
    Depth,
    /// There are dead letters.
    Dead,
    /// Too much of what arrives is refused.
    Refusals,
    /// More arrives than can be done, for longer than was promised.
    Insurmountable,
    /// The queue has paused itself: too many messages were given up in a row.
    DeadBurst,
    /// There is no room for more dead letters: nothing is handed out.
    DeadLettersFull,
    /// There is no room for more callbacks: nothing is handed out where somebody wants to be told of ends.
    CallbacksFull,
    /// A target does not answer.
    BreakerOpen,
    /// The disk has no room for new work.
    StorageFull,
    /// Writing to the disk takes too long.
    SlowCommits,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::OldestAge,
        Self::Depth,
        Self::Dead,
        Self::Refusals,
        Self::Insurmountable,
        Self::DeadBurst,
        Self::DeadLettersFull,
        Self::CallbacksFull,
        Self::BreakerOpen,
        Self::StorageFull,
        Self::SlowCommits,
    ];

    /// Its place in [`Rule::ALL`].
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// The name on the wire, as a label, and of its section in the guide.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OldestAge => "oldest-age",
            Self::Depth => "depth",
            Self::Dead => "dead",
            Self::Refusals => "refusals",
            Self::Insurmountable => "insurmountable",
            Self::DeadBurst => "dead-burst",
            Self::DeadLettersFull => "dead-letters-full",
            Self::CallbacksFull => "callbacks-full",
            Self::BreakerOpen => "breaker-open",
            Self::StorageFull => "storage-full",
            Self::SlowCommits => "slow-commits",
        }
    }

    /// How grave it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::OldestAge
            | Self::Insurmountable
            | Self::DeadBurst
            | Self::DeadLettersFull
            | Self::CallbacksFull
            | Self::BreakerOpen
            | Self::StorageFull => Severity::Critical,
            Self::Depth | Self::Dead | Self::Refusals | Self::SlowCommits => Severity::Warning,
        }
    }

    /// What its value counts.
    pub fn unit(self) -> Unit {
        match self {
            Self::OldestAge | Self::SlowCommits => Unit::Seconds,
            Self::Depth | Self::Dead => Unit::Messages,
            Self::Refusals | Self::Insurmountable => Unit::Ratio,
            Self::DeadBurst
            | Self::DeadLettersFull
            | Self::CallbacksFull
            | Self::BreakerOpen
            | Self::StorageFull => Unit::State,
        }
    }

    /// Whether its alert fires only after the condition has held for a while: a target that is restarted is down, too, and
    /// nobody need hear of it. The others are sure as soon as they are seen; all clear only after a while.
    pub fn waits(self) -> bool {
        matches!(self, Self::OldestAge | Self::Depth | Self::Refusals | Self::BreakerOpen | Self::SlowCommits)
    }
}
