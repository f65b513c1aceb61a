//! The durable facts: what the log holds, and what a restart replays.
//!
//! Owns their meaning. Must never know their bytes: the engine encodes them.

use crate::identity::{Receipt, Seq};
use crate::message::{Attempt, DeadReason, Holder, Message, QueueNumber, SharedContent};
use crate::name::{Label, Name};
use crate::replay::ReplayTask;
use crate::settings::QueueSettings;
use crate::time::Wall;

/// One fact. Facts about one message follow each other in the order in which they became true.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A boot of the engine, synced before it serves. `next` is the first number not yet used.
    Boot {
        /// The boot's number.
        epoch: u32,
        /// First message number that has not been used.
        next: u64,
    },
    /// A queue as it stands now.
    Queue(Box<QueueRecord>),
    /// A message as it stands now. This is the newest full copy: it supersedes every earlier fact about it.
    Message {
        /// Everything but the bytes.
        message: Box<Message>,
        /// Its bytes, or those of its result once it has succeeded. `None` where they are needed no more.
        content: Option<SharedContent>,
    },
    /// A message was handed out. Never synced for its own sake.
    Leased {
        /// The hand-out.
        receipt: Receipt,
        /// When it began.
        started: Wall,
        /// When the lease ends.
        until: Wall,
        /// Who got it.
        holder: Holder,
        /// The consumer that got it, if it said who it is.
        consumer: Option<Label>,
    },
    /// A lease was extended.
    Extended {
        /// The message.
        seq: Seq,
        /// When the lease ends now.
        until: Wall,
    },
    /// A message came back: to `ready` at once, or to `backoff` until `due`.
    Returned {
        /// The message.
        seq: Seq,
        /// How the hand-out ended; `None` if it never reached anyone, and so does not count as a delivery.
        attempt: Option<Attempt>,
        /// When it is due again; `None`: now.
        due: Option<Wall>,
        /// When it came back.
        at: Wall,
    },
    /// A message became a dead letter. Its bytes stay where they are.
    Died {
        /// The message.
        seq: Seq,
        /// How the last hand-out ended, if there was one.
        attempt: Option<Attempt>,
        /// Why.
        reason: DeadReason,
        /// When.
        at: Wall,
        /// Until when it is kept.
        kept_until: Wall,
        /// The message that tells of it, written with it.
        teller: Option<Seq>,
    },
    /// A dead letter went back to its queue.
    Replayed {
        /// The message.
        seq: Seq,
        /// Its new place.
        place: u64,
        /// When.
        at: Wall,
        /// When it expires now.
        expires: Wall,
    },
    /// Nothing is kept of the message any more.
    Forgotten {
        /// The message.
        seq: Seq,
    },
    /// When the latest call of a target that has a rate began: the pace goes on from there. Written with the other
    /// facts that every log must hold; the hand-outs since say the rest.
    Called {
        /// The target.
        target: Name,
        /// When.
        started: Wall,
    },
}

/// A queue as the log remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRecord {
    /// Its number.
    pub number: QueueNumber,
    /// Its name.
    pub name: Name,
    /// Its settings.
    pub settings: QueueSettings,
    /// Whether it hands nothing out for now.
    pub paused: bool,
    /// Whether that is because too many messages were given up in a row.
    pub dead_burst: bool,
    /// Whether it was deleted; its messages' statuses live on for their time.
    pub deleted: bool,
    /// First message number that can be this queue's: the number of a queue that was deleted, and of whose
    /// messages nothing is kept, is given to another one.
    pub since: u64,
    /// The replays of its dead letters that are remembered, oldest first.
    pub replays: Vec<ReplayTask>,
}

impl Record {
    /// The message whose newest full copy this is.
    pub fn anchors(&self) -> Option<Seq> {
        match self {
            Self::Message { message, .. } => Some(message.seq),
            _ => None,
        }
    }
}
