//! The marks: names of everything that a suite of runs must have reached.
//!
//! Owns the list. A mark that is required and never reached shows that the swarm has lost its bite. Must never be
//! reached from anywhere but where the thing happens.

use std::collections::BTreeMap;

/// How often each thing was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks(BTreeMap<String, u64>);

impl Marks {
    /// Counts one.
    pub(super) fn reach(&mut self, mark: impl Into<String>) {
        *self.0.entry(mark.into()).or_default() += 1;
    }

    /// Adds what another run has reached.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mark, count) in &other.0 {
            *self.0.entry(mark.clone()).or_default() += count;
        }
    }

    /// The required ones that were never reached.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        REQUIRED.iter().copied().filter(|mark| !self.0.contains_key(*mark)).collect()
    }
}

impl std::fmt::Display for Marks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(mark, count)| writeln!(formatter, "{count:>9}  {mark}"))
    }
}

/// What every suite must reach: each fault, each edge between phases, each end of a hand-out, each refusal that
/// an engine on one disk can give in bounded time.
pub(super) const REQUIRED: &[&str] = &[
    "fault: power cut",
    "fault: power cut, nothing unsynced survives",
    "fault: power cut, everything survives",
    "fault: power cut, anything survives",
    "fault: power cut, torn sectors",
    "fault: power cut in recovery",
    "fault: process killed",
    "fault: clean stop",
    "fault: write error",
    "fault: sync error",
    "fault: read error",
    "fault: disk full",
    "fault: rot",
    "fault: rot refuses the start",
    "fault: clock stepped forward",
    "fault: clock stepped back",
    "fault: slow disk",
    "seen: bytes that cannot be read",
    "seen: a promise",
    "seen: a duplicate",
    "seen: unknown outcome of an enqueue",
    "seen: unknown outcome of a settlement",
    "seen: a late completion that counts",
    "seen: hand-out that reached nobody",
    "seen: queue paused over a restart",
    "seen: hand-out that nobody heard of",
    "seen: a queue with work is purged",
    "seen: a target that is down",
    "seen: a consumer has all that it may have",
    "seen: a replay that goes on after a restart",
    "seen: keys forgotten for want of room",
    "seen: expired while nobody was there",
    "seen: an end that is told",
    "seen: what tells of an end after a crash",
    "seen: segment deleted",
    "seen: message copied to the end of the log",
    "edge: new -> ready",
    "edge: new -> delayed",
    "edge: delayed -> ready",
    "edge: delayed -> cancelled",
    "edge: delayed -> dead",
    "edge: delayed -> expired",
    "edge: ready -> leased",
    "edge: ready -> cancelled",
    "edge: ready -> dead",
    "edge: ready -> expired",
    "edge: ready -> succeeded",
    "edge: ready -> dropped",
    "edge: leased -> ready",
    "edge: leased -> backoff",
    "edge: leased -> succeeded",
    "edge: leased -> dead",
    "edge: leased -> expired",
    "edge: backoff -> ready",
    "edge: backoff -> cancelled",
    "edge: backoff -> dead",
    "edge: backoff -> expired",
    "edge: dead -> ready",
    "edge: dead -> forgotten",
    "door: somebody waits",
    "door: somebody enters",
    "door: somebody is sent away after a while",
    "door: somebody leaves",
    "held: a burst of dead letters",
    "held: dead letters are full",
    "held: a breaker is open",
    "outcome: succeeded",
    "outcome: failed",
    "outcome: dead",
    "outcome: released",
    "outcome: throttled",
    "outcome: timed-out",
    "outcome: lease-expired",
    "outcome: interrupted",
    "outcome: probe-failed",
    "dead: attempts-exhausted",
    "dead: deliveries-exhausted",
    "dead: rejected",
    "dead: expired",
    "refused: UnknownQueue",
    "refused: QueueFull",
    "refused: WaitTooLong",
    "refused: StorageFull",
    "refused: Draining",
    "refused: DelayTooLong",
    "refused: TtlOutOfRange",
    "refused: DelayBeyondTtl",
    "refused: IdempotencyMismatch",
    "refused: Unknown",
    "refused: LeaseLost",
    "refused: TooLong",
    "refused: NotCancellable",
    "refused: Forgotten",
    "refused: NeverIssued",
    "refused: Declared",
    "refused: InUse",
    "refused: Settings",
    "refused: UnknownTarget",
    "refused: NotDead",
    "refused: GroupsNotKept",
    "refused: GroupsUnfinished",
    "refused: Running",
    "refused: UnknownTask",
    "refused: OutOfRange",
];
