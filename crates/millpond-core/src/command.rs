//! What the pond is asked, what it answers, and what it wants done.
//!
//! Owns the shapes of inputs, replies and effects. Must never hold behaviour.

use crate::forecast::Promise;
use crate::identity::{Receipt, Seq};
use crate::message::{
    CallbackWish, Criticality, Failure, IdempotencyKey, Message, Phase, Progress, SharedContent,
};
use crate::name::{Label, Name};
use crate::notice::Notice;
use crate::record::Record;
use crate::replay::{ReplayList, ReplayPlan, ReplayTask, ReplayWish};
use crate::settings::{Order, QueueSettings, SettingsError, TargetSettings};
use crate::stats::{QueueStats, TargetStats};
use crate::time::{Spoken, Wall};
use std::sync::Arc;
use std::time::Duration;

/// Ties a reply to the command that asked for it. Given by the engine; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The position of a record in the order of the log, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpNumber(pub u64);

/// A push target's number: its place in [`Declared::targets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetNumber(pub usize);

/// What the log has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StorageState {
    /// Everything.
    #[default]
    Roomy,
    /// Everything, but only so many more hand-outs before it is said again, perhaps none: the outcome of each must find
    /// room, whatever becomes of the disk. What ends though nobody had it, because it expires or is purged, counts like
    /// a hand-out.
    Scarce {
        /// That many.
        hand_outs: u64,
    },
    /// Settlements, and so many more hand-outs before it is said again, but no new messages.
    NoEnqueue {
        /// More than none.
        hand_outs: u64,
    },
    /// Settlements only: nothing more is handed out, and what waits neither expires nor is purged.
    SettleOnly,
}

impl StorageState {
    /// Whether there is room for new messages and for all that is said of an end, its result too.
    pub fn takes_new_work(self) -> bool {
        matches!(self, Self::Roomy | Self::Scarce { .. })
    }

    /// For how many more hand-outs there is room before it is said again.
    pub fn hand_outs(self) -> u64 {
        match self {
            Self::Roomy => u64::MAX,
            Self::Scarce { hand_outs } | Self::NoEnqueue { hand_outs } => hand_outs,
            Self::SettleOnly => 0,
        }
    }

    /// One of them takes place.
    pub fn take_hand_out(&mut self) {
        if let Self::Scarce { hand_outs } | Self::NoEnqueue { hand_outs } = self {
            *hand_outs = hand_outs.saturating_sub(1);
        }
    }
}

/// One event that the pond is told of.
#[derive(Debug)]
pub enum Input {
    /// Time has passed. Also implied by every other input.
    Tick,
    /// Somebody asks for something and waits for [`Effect::Reply`].
    Command {
        /// The asker.
        request: RequestId,
        /// What it asks.
        command: Command,
    },
    /// The asker has left: forget what it waits for.
    Abandon(RequestId),
    /// A reply with hand-outs did not reach the asker: they are taken back and do not count as deliveries.
    Undelivered(Receipt),
    /// Every record up to and including this one is durable.
    Durable(OpNumber),
    /// A push call has ended.
    CallEnded {
        /// The hand-out that [`Effect::Dispatch`] began.
        receipt: Receipt,
        /// How.
        outcome: CallOutcome,
    },
    /// Nobody makes calls any more: nothing is pushed from now on. Workers are served as before.
    Unattended,
    /// The log's room has changed.
    Storage(StorageState),
    /// Write the newest full copy of these messages to the end of the log, with `content` read from the old
    /// place. Those that need no copy any more are skipped.
    Copy(Vec<(Seq, Option<SharedContent>)>),
    /// Write again the small facts that every log must hold: the boot and the queues.
    CopyBasics,
    /// From now on, accept no new work and hand nothing out; running work may finish.
    Drain,
}

/// What a caller asks.
#[derive(Debug)]
pub enum Command {
    /// Accept messages into a queue, each for itself. Answer: [`Reply::Enqueued`].
    Enqueue {
        /// The queue.
        queue: Name,
        /// The messages.
        messages: Vec<NewMessage>,
    },
    /// Hand out messages to a worker. Answer: [`Reply::Leased`], possibly empty.
    Lease(LeaseRequest),
    /// Prolong leases to so long from now. Answer: [`Reply::Extended`].
    Extend(Vec<(Receipt, Duration)>),
    /// Say how hand-outs ended. Answer: [`Reply::Settled`].
    Settle(Vec<Settlement>),
    /// Withdraw a message that nobody has. Answer: [`Reply::Cancelled`].
    Cancel(Seq),
    /// Tell about a message; with `wait`, not before it is terminal or the time is over. Answer: [`Reply::Status`].
    Status {
        /// The message.
        seq: Seq,
        /// How long to wait for the end of its life.
        wait: Option<Duration>,
    },
    /// Tell about a message as soon as it is further than `known`, or the time is over. Answer: [`Reply::Status`].
    Follow {
        /// The message.
        seq: Seq,
        /// What is known of it; `None`: nothing, so that it is told at once.
        known: Option<Progress>,
        /// How long to wait for a change.
        wait: Duration,
    },
    /// List a queue's messages in one phase, or in all, from a number on. Answer: [`Reply::Messages`].
    List {
        /// The queue.
        queue: Name,
        /// Only this phase.
        phase: Option<Phase>,
        /// Only numbers beyond this one.
        after: Option<Seq>,
        /// At most so many.
        limit: usize,
    },
    /// Tell about every queue and target. Answer: [`Reply::Overview`].
    Overview,
    /// Tell about one queue. Answer: [`Reply::Queue`].
    Queue(Name),
    /// Tell about every target. Answer: [`Reply::Targets`].
    Targets,
    /// Tell about one target. Answer: [`Reply::Target`].
    Target(Name),
    /// Close a target's breaker; nothing, if it is closed or has none. Answer: [`Reply::Target`].
    ResetTarget(Name),
    /// Create a queue or change its settings. Answer: [`Reply::Defined`].
    Define {
        /// The queue.
        queue: Name,
        /// Its settings from now on.
        settings: Box<QueueSettings>,
    },
    /// Delete a queue that holds nothing unfinished. Answer: [`Reply::Deleted`].
    Delete(Name),
    /// Stop or resume handing out. Answer: [`Reply::Paused`].
    Pause {
        /// The queue.
        queue: Name,
        /// Whether it shall be paused.
        paused: bool,
    },
    /// Put dead letters back to work, or say what that would do. Answer: [`Reply::ReplayStarted`], once the task
    /// is durable; the work itself goes on behind it.
    Replay {
        /// The queue.
        queue: Name,
        /// Which ones, and how.
        wish: ReplayWish,
        /// Only count.
        dry_run: bool,
    },
    /// Tell about the remembered replays of a queue. Answer: [`Reply::Replays`].
    Replays(Name),
    /// End a replay before its time; what is back stays back. Answer: [`Reply::ReplayCancelled`].
    CancelReplay {
        /// The queue.
        queue: Name,
        /// The task's number.
        number: u32,
    },
    /// End everything that waits in a queue as cancelled; what somebody has stays. Answer: [`Reply::Purged`], once all
    /// that is durable.
    Purge(Name),
    /// Forget a dead letter. Answer: [`Reply::DeadDeleted`].
    DeleteDead {
        /// The queue.
        queue: Name,
        /// The message.
        seq: Seq,
    },
}

/// A message on its way in.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// Its bytes.
    pub content: SharedContent,
    /// How long it must not be handed out. At most [`crate::settings::DELAY_MAX`].
    pub delay: Duration,
    /// How long it is worth doing; `None`: the queue's retention.
    pub ttl: Option<Duration>,
    /// What makes a repetition recognizable.
    pub key: Option<IdempotencyKey>,
    /// How much it matters.
    pub criticality: Criticality,
    /// Whose work it is.
    pub tenant: Option<Label>,
    /// What it must be done in order with.
    pub group: Option<Label>,
    /// Who is to be told of its end.
    pub callback: Option<Arc<CallbackWish>>,
}

/// A worker's wish for messages.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// The queue.
    pub queue: Name,
    /// At most so many.
    pub max: usize,
    /// For how long; `None`: the queue's lease.
    pub lease: Option<Duration>,
    /// How long to wait for the first one.
    pub wait: Duration,
    /// Who asks: what it holds in all is bounded by the queue's `prefetch`.
    pub consumer: Option<Label>,
}

/// A worker's word on a hand-out.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The hand-out.
    pub receipt: Receipt,
    /// How it ended.
    pub outcome: SettleOutcome,
}

/// How a worker says that a hand-out ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SettleOutcome {
    /// Done, perhaps with a result.
    Complete {
        /// The result.
        result: Option<SharedContent>,
    },
    /// Failed: try again after the backoff, or after `delay` if given.
    Retry {
        /// What went wrong.
        failure: Option<Failure>,
        /// Wait exactly this long instead of the backoff.
        delay: Option<Duration>,
    },
    /// Can never succeed.
    Dead {
        /// What went wrong.
        failure: Option<Failure>,
    },
    /// Not tried: hand it to somebody else, perhaps later. Counts no attempt.
    Release {
        /// Not before so long from now.
        delay: Option<Duration>,
    },
}

/// How a push call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    /// Done; the answer is the result.
    Succeeded {
        /// The answer's body.
        result: Option<SharedContent>,
    },
    /// The target asks for a pause; no attempt is counted.
    Throttled {
        /// How long the target shall be left alone.
        pause: Duration,
        /// What it said.
        failure: Failure,
    },
    /// Failed: try again after the backoff.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// The call exceeded the time-out, so the target may still be at work on it.
        timed_out: bool,
    },
    /// Can never succeed.
    Dead {
        /// What the target said.
        failure: Failure,
    },
    /// Given up in the middle, because the server stops: the target may go on with it.
    Interrupted,
}

/// Something the pond wants done. Order matters: records are appended in the order of their effects.
#[derive(Debug)]
pub enum Effect {
    /// Append a record to the log; [`Input::Durable`] must follow once it is durable.
    Append {
        /// Its place in the order of the log.
        op: OpNumber,
        /// The record.
        record: Record,
        /// Whether somebody waits for its durability.
        sync: bool,
        /// Whether it belongs with the next one: both are on the disk, or neither.
        with_next: bool,
    },
    /// Answer a command.
    Reply {
        /// The asker.
        request: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// Call a target with a message; [`Input::CallEnded`] must follow.
    Dispatch {
        /// The target.
        target: TargetNumber,
        /// The hand-out.
        leased: Box<Leased>,
    },
    /// Nothing of this message is needed any more, neither record nor bytes.
    Forget(Seq),
    /// Let the operator know.
    Notice(Notice),
}

/// A message that was handed out.
#[derive(Debug, Clone)]
pub struct Leased {
    /// Proof of the hand-out.
    pub receipt: Receipt,
    /// The queue's name.
    pub queue: Name,
    /// The message as it stands.
    pub message: Message,
    /// When the lease ends.
    pub until: Wall,
}

/// A message that was accepted, or had been before.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Its number.
    pub seq: Seq,
    /// Where it stands.
    pub phase: Phase,
    /// How many start before it if nothing changes.
    pub position: Option<u64>,
    /// When it will probably start.
    pub promise: Option<Promise>,
    /// When a result can be expected.
    pub result_in: Duration,
    /// When it was first accepted.
    pub accepted: Wall,
    /// Whether this is a repetition of an earlier enqueue.
    pub duplicate: bool,
}

/// A message's status.
#[derive(Debug, Clone)]
pub struct Status {
    /// The queue's name.
    pub queue: Name,
    /// The message.
    pub message: Message,
    /// How many start before it if nothing changes.
    pub position: Option<u64>,
    /// When it will probably start.
    pub promise: Option<Promise>,
    /// When a result can be expected; zero once terminal.
    pub result_in: Duration,
}

/// A queue, as told to an operator.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Its name.
    pub name: Name,
    /// Its settings.
    pub settings: QueueSettings,
    /// Whether the configuration file declares it.
    pub declared: bool,
    /// Its numbers.
    pub stats: QueueStats,
}

/// An answer.
#[derive(Debug)]
pub enum Reply {
    /// One answer per message, in order.
    Enqueued(Result<Vec<Result<Accepted, EnqueueError>>, EnqueueError>),
    /// The hand-outs, possibly none.
    Leased(Result<Vec<Leased>, QueueError>),
    /// The new ends, in order.
    Extended(Vec<Result<Wall, SettleError>>),
    /// One answer per settlement, in order.
    Settled(Vec<Result<(), SettleError>>),
    /// The message as it stands after the withdrawal.
    Cancelled(Result<Box<Status>, CancelError>),
    /// The status.
    Status(Result<Box<Status>, LookupError>),
    /// The messages found, and where to go on if there may be more.
    Messages(Result<(Vec<Status>, Option<Seq>), QueueError>),
    /// Every queue by name, every target in order.
    Overview(Vec<QueueView>, Vec<TargetStats>),
    /// The queue.
    Queue(Result<Box<QueueView>, QueueError>),
    /// Every target, in order.
    Targets(Vec<TargetStats>),
    /// The target.
    Target(Result<Box<TargetStats>, TargetError>),
    /// Whether the queue is new.
    Defined(Result<bool, DefineError>),
    /// Done.
    Deleted(Result<(), DefineError>),
    /// Done.
    Paused(Result<(), QueueError>),
    /// What the replay does, or would do.
    ReplayStarted(Result<ReplayPlan, ReplayError>),
    /// The remembered replays.
    Replays(Result<ReplayList, QueueError>),
    /// How many messages were cancelled.
    Purged(Result<u64, QueueError>),
    /// The task as it stands after the cancellation.
    ReplayCancelled(Result<ReplayTask, ReplayError>),
    /// Done.
    DeadDeleted(Result<(), ReplayError>),
}

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnqueueError {
    /// No such queue.
    #[error("there is no queue of this name")]
    UnknownQueue,
    /// A bound on messages or bytes is reached.
    #[error("the queue is full: {what} reached")]
    QueueFull {
        /// The bound, in words.
        what: &'static str,
        /// When there will probably be room.
        retry_after: Duration,
    },
    /// It would probably start later than the queue promises.
    #[error("it would wait about {}, longer than the {} that this queue promises", Spoken(*.predicted), Spoken(*.max))]
    WaitTooLong {
        /// The predicted wait.
        predicted: Duration,
        /// The promise.
        max: Duration,
        /// When the predicted wait will probably be short enough.
        retry_after: Duration,
    },
    /// The disk has no room for new messages.
    #[error("the disk has no room for new messages")]
    StorageFull,
    /// The server is shutting down.
    #[error("the server is shutting down and accepts no new work")]
    Draining,
    /// The message is larger than the log takes in one piece, or than its queue ever has room for.
    #[error(
        "a message of this class may have at most {max_bytes} bytes here, its headers and media type included"
    )]
    TooLarge {
        /// The most that it takes.
        max_bytes: u64,
    },
    /// The queue takes a batch as a whole, and could not take this one if it were empty.
    #[error("the queue takes a batch as a whole, and with this one alone {what} exceeded; send it in parts")]
    BatchTooLarge {
        /// The bound, in words.
        what: &'static str,
    },
    /// The delay is longer than allowed.
    #[error("the delay is longer than 30 days")]
    DelayTooLong,
    /// The time to live is zero, or longer than the queue keeps messages.
    #[error("the time to live must be longer than 0s and at most the queue's retention of {}", Spoken(*.max))]
    TtlOutOfRange {
        /// The queue's retention.
        max: Duration,
    },
    /// The message would expire before its delay is over.
    #[error("the message would expire before its delay is over")]
    DelayBeyondTtl,
    /// The message has a group, and the queue's order would not keep it.
    #[error("its order is {order}, which does not keep the messages of a group in order")]
    GroupsNotKept {
        /// The queue's order.
        order: Order,
    },
    /// The key was used for another payload.
    #[error("the idempotency key was used before, for another payload")]
    IdempotencyMismatch,
}

/// Why a queue could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// No such queue.
    #[error("there is no queue of this name")]
    Unknown,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// More requests wait than the server allows.
    #[error("too many consumers wait for messages already")]
    TooManyWaiting,
    /// Another purge of this queue is running.
    #[error("a purge of this queue is running already")]
    PurgeRunning,
}

/// Why nothing is told of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No such target.
    #[error("there is no target of this name in the configuration")]
    Unknown,
}

/// Why a receipt did not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// The hand-out is over: it was settled with another word, or it ran out and its message has gone on since, to
    /// somebody else or to its end. Only a success is still taken while it waits for somebody else.
    #[error(
        "the lease is over: it was settled already, or the message went on without it: it is back in line, with somebody \
         else, or at its end"
    )]
    LeaseLost,
    /// The extension is longer than a lease may last in all.
    #[error("a lease lasts at most 12 hours in all")]
    TooLong,
    /// The delay is longer than allowed.
    #[error("the delay is longer than 30 days")]
    DelayTooLong,
}

/// Why a message could not be withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// No status is kept of it.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Somebody has it, or its life is over.
    #[error("the message is {}", .0.as_str())]
    NotCancellable(Phase),
}

/// Why nothing is known of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// It was never issued.
    #[error("no such message was ever accepted")]
    NeverIssued,
    /// It was issued, and its status is past its retention, or it was a dead letter that somebody deleted.
    #[error("it was accepted, and is not kept any more: it is past its retention, or was deleted")]
    Forgotten,
}

/// A number with its word: one message, two messages.
fn counted(number: u64, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// Why a queue could not be defined or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// The configuration file declares it.
    #[error("the configuration file declares this queue; change it there")]
    Declared,
    /// No such queue.
    #[error("there is no queue of this name")]
    Unknown,
    /// It holds unfinished messages or dead letters.
    #[error(
        "the queue still holds {} and {}", counted(*unfinished, "unfinished message"), counted(*dead, "dead letter")
    )]
    InUse {
        /// Messages that are not terminal.
        unfinished: u64,
        /// Dead letters.
        dead: u64,
    },
    /// A setting is out of range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its order would no longer keep the messages of a group in order.
    #[error(
        "order: the queue holds {} in groups, and {order} does not keep the messages of a group in order",
        counted(*unfinished, "unfinished message")
    )]
    GroupsUnfinished {
        /// The order that was wanted.
        order: Order,
        /// Messages in groups that are not terminal.
        unfinished: u64,
    },
    /// Its order would keep groups, while messages of groups go out in any order.
    #[error(
        "order: the queue holds {} with a group that came back where groups are not kept, and {order} would promise their order",
        counted(*released, "unfinished message")
    )]
    GroupsReleased {
        /// The order that was wanted.
        order: Order,
        /// Messages with a group that are not terminal.
        released: u64,
    },
    /// Its target is not configured.
    #[error("there is no target {0} in the configuration")]
    UnknownTarget(Name),
    /// There are as many queues as a server may have.
    #[error("there are {0} queues already, as many as a server may have")]
    TooMany(usize),
}

/// Why dead letters could not be replayed or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No such queue.
    #[error("there is no queue of this name")]
    UnknownQueue,
    /// No such dead letter in this queue.
    #[error("message {0:?} is not a dead letter of this queue")]
    NotDead(Seq),
    /// Another replay of this queue is running.
    #[error("replay {0} of this queue is running already")]
    Running(u32),
    /// No such replay is remembered.
    #[error("replay {0} of this queue is not known; the latest ten that ended are remembered")]
    UnknownTask(u32),
    /// More messages are named than one replay takes.
    #[error("a replay names at most {0} messages; use a filter, or several replays")]
    TooManyNamed(usize),
    /// Something in the wish is out of range.
    #[error("{field}: {reason}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// More replays are being prepared than the server allows.
    #[error("too many replays are being prepared already")]
    TooManyWaiting,
}

/// The queues and targets of the configuration file, told once after the log was replayed.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Targets in a fixed order; [`TargetNumber`] counts along it.
    pub targets: Vec<(Name, TargetSettings)>,
    /// Queues that the file declares.
    pub queues: Vec<(Name, QueueSettings)>,
}
