//! What is remembered of one message while it is alive or its status is kept.
//!
//! Owns the monotonic side of a message: waits and visibility. Must never be written to the log.

use crate::command::{OpNumber, RequestId};
use crate::message::Message;
use crate::time::Mono;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) message: Message,
    /// Whether its latest way into `ready` is durable, so that it may be handed out.
    pub(super) visible: bool,
    /// The latest synced record about it: answers about it wait for this one.
    pub(super) op: OpNumber,
    /// When it was first due; in the future while it is delayed.
    pub(super) due_since: Mono,
    /// When the latest hand-out began.
    pub(super) started: Mono,
    /// When its phase ends by itself.
    pub(super) phase_timer: Option<Mono>,
    /// When it is not worth doing any more, while it is not terminal.
    pub(super) expiry_timer: Option<Mono>,
    /// The target that its latest call occupies.
    pub(super) occupies: Option<usize>,
    /// Its lease comes from before the latest restart.
    pub(super) restored_lease: bool,
    /// Requests that wait for the end of its life, or for any change.
    pub(super) watchers: Vec<RequestId>,
}

impl Slot {
    pub(super) fn new(message: Message, due_since: Mono) -> Self {
        Self {
            message,
            visible: false,
            op: OpNumber(0),
            due_since,
            started: Mono(0),
            phase_timer: None,
            expiry_timer: None,
            occupies: None,
            restored_lease: false,
            watchers: Vec::new(),
        }
    }
}
