//! A full account of what was seen of a server from outside: every request with its answer, every hand-out, every
//! start, death and clock step.
//!
//! Owns the record only. Must never judge it: [`judge`](crate::judge) does, and it must not depend on who wrote it.

use std::collections::BTreeMap;

/// A moment or a duration in microseconds of true time, which no clock step disturbs.
pub type Micros = i64;

/// A message, as the server names it; opaque.
pub type MessageId = u64;

/// A hand-out, as the server's receipt names it; opaque, and never the same for two hand-outs.
pub type HandOutId = u64;

/// When a request left and when its answer came; a request without an answer ends when its asker gave up, or when
/// the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    /// When it left.
    pub sent: Micros,
    /// When the answer came.
    pub ended: Micros,
}

/// What a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It counts.
    Accepted,
    /// It does not count.
    Refused,
    /// No answer: it counts or not, and both are right.
    Unknown,
}

/// What an enqueue was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// Accepted under this id.
    Accepted(MessageId),
    /// Refused: nothing was stored.
    Refused,
    /// No answer: stored or not.
    Unknown,
}

/// What refused an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The bound on messages.
    Messages,
    /// The bound on bytes.
    Bytes,
    /// The bound in time: it would probably have started later than the queue promises.
    Wait,
    /// Any other bound: on keys, or on those who wait at the door.
    Other,
}

/// What an answer to an enqueue said besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Told {
    /// Nothing that is judged.
    #[default]
    Nothing,
    /// Of an accepted message, when it will start.
    Promise {
        /// It had been accepted before.
        duplicate: bool,
        /// How many start before it.
        position: Option<u64>,
        /// In half of all cases within the first time, in nine of ten within the second.
        start: Option<(Micros, Micros)>,
    },
    /// Of a refused one, when to come back.
    ComeBack {
        /// What refused it.
        bound: Bound,
        /// In how long.
        after: Micros,
    },
}

/// One enqueue of one message. Payloads are unique to what the producer takes for one message: whoever repeats it
/// sends the same payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The queue.
    pub queue: u32,
    /// What was enqueued.
    pub payload: u64,
    /// The idempotency key.
    pub key: Option<u64>,
    /// The group.
    pub group: Option<u64>,
    /// Its class, from the most critical, 0, to the least, 3.
    pub class: u8,
    /// Whose work it is.
    pub tenant: Option<u64>,
    /// What it counts against a bound on bytes.
    pub bytes: u64,
    /// Its batch, and its place in it.
    pub batch: (u64, usize),
    /// How long it must not be handed out.
    pub delay: Micros,
    /// How long it is worth doing.
    pub ttl: Micros,
    /// When.
    pub span: Span,
    /// The answer.
    pub answer: Offered,
    /// What it said besides.
    pub told: Told,
}

impl Offer {
    /// Whether it came before `other` in one batch.
    pub fn is_before_in_batch(&self, other: &Self) -> bool {
        self.batch.0 == other.batch.0 && self.batch.1 < other.batch.1
    }
}

/// One hand-out of one message, to a worker or in a call to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOut {
    /// The hand-out.
    pub hand_out: HandOutId,
    /// The message.
    pub id: MessageId,
    /// Its queue.
    pub queue: u32,
    /// What it carried; `None` if that could not be read.
    pub payload: Option<u64>,
    /// How long its lease lasts.
    pub lease: Micros,
    /// The target that was called; `None`: a worker had asked.
    pub target: Option<u32>,
    /// The worker that had asked, if it had said who it is.
    pub consumer: Option<u64>,
    /// When: the hand-out was between the two.
    pub span: Span,
}

/// How a holder says that a hand-out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Done.
    Complete,
    /// Failed: an attempt.
    Retry,
    /// Failed for good.
    Dead,
    /// Not tried: no attempt, and no backoff.
    Release,
}

/// A holder's word on a hand-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The message.
    pub id: MessageId,
    /// The hand-out.
    pub hand_out: HandOutId,
    /// What it said.
    pub said: Said,
    /// For how long the message shall not be handed out; `None`: the queue's backoff, where there is one.
    pub delay: Option<Micros>,
    /// Whoever was called did not say so: nobody waits for it any more, and it may still be at work.
    pub given_up: bool,
    /// When.
    pub span: Span,
    /// The answer.
    pub answer: Answer,
}

/// A holder's wish for more time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// The message.
    pub id: MessageId,
    /// The hand-out.
    pub hand_out: HandOutId,
    /// How long the lease shall last from now on.
    pub lease: Micros,
    /// When.
    pub span: Span,
    /// The answer.
    pub answer: Answer,
}

/// What somebody asked for about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The message.
    pub id: MessageId,
    /// When.
    pub span: Span,
    /// The answer.
    pub answer: Answer,
}

/// Dead letters that go back to work, some time between its beginning and its end, if it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The queue.
    pub queue: u32,
    /// Which ones; `None`: all.
    pub ids: Option<Vec<MessageId>>,
    /// When.
    pub span: Span,
    /// The answer.
    pub answer: Answer,
}

/// Where a message stands, as the server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stand {
    /// Waits for its due time.
    Delayed,
    /// May be handed out.
    Ready,
    /// Somebody has it.
    Leased,
    /// Waits for its next attempt.
    Backoff,
    /// Done.
    Succeeded,
    /// A dead letter.
    Dead,
    /// Not done in time, and no dead letter.
    Expired,
    /// Withdrawn.
    Cancelled,
    /// Given up for newer work.
    Dropped,
    /// The server knows nothing of it any more.
    Forgotten,
}

impl Stand {
    /// Whether its life is over.
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Delayed | Self::Ready | Self::Leased | Self::Backoff)
    }
}

/// Which message of one line goes out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The one that came first.
    First,
    /// The one that came last.
    Last,
    /// It depends on how long they have waited.
    Depends,
}

/// What becomes of work that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused.
    Refused,
    /// It waits at the door for a while.
    Waits,
    /// The oldest work may be given up for it.
    DropsOldest,
}

/// What an operator has decided about a queue, as far as it can be seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Failed attempts that make a dead letter.
    pub max_attempts: u32,
    /// Hand-outs that make a dead letter.
    pub max_deliveries: u32,
    /// No retry comes sooner, unless its worker says otherwise.
    pub backoff_min: Micros,
    /// Messages in work at once.
    pub concurrency: Option<u32>,
    /// Messages in work at once for one consumer.
    pub prefetch: u32,
    /// Messages that are not at their end.
    pub max_messages: Option<u64>,
    /// Bytes of messages that are not at their end.
    pub max_bytes: u64,
    /// Nothing is accepted that would probably start later.
    pub max_wait: Option<Micros>,
    /// What becomes of what does not fit.
    pub overflow: Overflow,
    /// Dead letters kept.
    pub dead_max: u64,
    /// Which one of a line goes first.
    pub order: Order,
    /// Lower classes go only when higher ones have nothing; otherwise they have their share.
    pub strict: bool,
    /// How long status and key outlive the end.
    pub result_retention: Micros,
    /// How long a dead letter is kept.
    pub dead_retention: Micros,
    /// The target that messages are pushed to.
    pub target: Option<u32>,
    /// Idempotency keys remembered.
    pub max_keys: u64,
    /// What expires is no dead letter.
    pub drops_expired: bool,
    /// Messages of a group come in order, one at a time.
    pub keeps_groups: bool,
}

impl Rules {
    /// Whether the oldest work may be given up for new work.
    pub fn drops_oldest(&self) -> bool {
        self.overflow == Overflow::DropsOldest
    }
}

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A queue's rules, in force at the earliest when `span` begins and at the latest when it ends.
    Rules {
        /// The queue.
        queue: u32,
        /// Its rules.
        rules: Rules,
        /// When.
        span: Span,
    },
    /// A queue was deleted, perhaps: another one of its name remembers nothing.
    QueueDeleted {
        /// The queue.
        queue: u32,
        /// When.
        span: Span,
    },
    /// What a target can take. Told once, before its first call.
    Target {
        /// The target.
        target: u32,
        /// Calls at once.
        concurrency: u32,
        /// Time between the starts of two calls.
        interval: Micros,
        /// How long a call occupies it that nobody waits for any more.
        hold: Micros,
        /// How long the lease of a call lasts.
        lease: Micros,
        /// After so many failures in a row its breaker is surely open, and nothing is promised. 0: it has none.
        down_after: u32,
    },
    /// A queue was paused or resumed, or not.
    Pause {
        /// The queue.
        queue: u32,
        /// Whether it shall be paused.
        paused: bool,
        /// When.
        span: Span,
        /// The answer.
        answer: Answer,
    },
    /// Everything that waited in a queue was withdrawn, or not.
    Purge {
        /// The queue.
        queue: u32,
        /// When.
        span: Span,
        /// The answer.
        answer: Answer,
    },
    /// An enqueue.
    Offer(Offer),
    /// A hand-out.
    HandOut(HandOut),
    /// A hand-out that reached nobody, and was taken back.
    TakenBack {
        /// The message.
        id: MessageId,
        /// The hand-out.
        hand_out: HandOutId,
        /// When.
        at: Micros,
    },
    /// A hand-out in the moment of death: nobody heard of it, and it may be lost or not.
    Unheard {
        /// The message.
        id: MessageId,
        /// The hand-out.
        hand_out: HandOutId,
        /// How long its lease lasts.
        lease: Micros,
        /// When.
        at: Micros,
    },
    /// A word on a hand-out.
    Word(Word),
    /// More time for a hand-out.
    Extension(Extension),
    /// A message was withdrawn, or not.
    Withdrawal(Request),
    /// Dead letters were replayed, or not.
    Replay(Replay),
    /// A dead letter was deleted, or not.
    Burial(Request),
    /// Somebody looked at a message.
    Look {
        /// The message.
        id: MessageId,
        /// When.
        span: Span,
        /// Where it stood when the request was handled.
        stand: Stand,
    },
    /// A server started.
    Boot {
        /// When.
        at: Micros,
    },
    /// A start that failed: whatever targets it was going to call, nobody heard of it, and it may be lost or not.
    FailedStart {
        /// When.
        at: Micros,
    },
    /// The server died. Of what it had said until `kept`, everything was on the disk; of the rest, what it said
    /// only once it was on the disk.
    Death {
        /// When.
        at: Micros,
        /// Until when nothing can have been lost.
        kept: Micros,
    },
    /// The wall clock stepped.
    Step {
        /// When.
        at: Micros,
        /// By how much.
        by: Micros,
    },
    /// Where a message stands at the end, when everything has drained. One for each message that anyone was told
    /// of, and for each that the server lists.
    End {
        /// The message.
        id: MessageId,
        /// Its queue.
        queue: u32,
        /// Where it stands.
        stand: Stand,
        /// What it carries, if it still carries anything.
        payload: Option<u64>,
        /// When.
        at: Micros,
    },
}

/// Gives opaque numbers to whatever names things in a trail, in the order in which they come.
#[derive(Debug)]
pub struct Numbers<Name> {
    known: BTreeMap<Name, u64>,
}

impl<Name: Ord> Default for Numbers<Name> {
    fn default() -> Self {
        Self { known: BTreeMap::new() }
    }
}

impl<Name: Ord> Numbers<Name> {
    /// The number of `name`; the same one every time.
    pub fn of(&mut self, name: Name) -> u64 {
        let next = self.known.len() as u64;
        *self.known.entry(name).or_insert(next)
    }

    /// Whether `name` has a number.
    pub fn knows(&self, name: &Name) -> bool {
        self.known.contains_key(name)
    }
}
