//! Purges: everything that waits in a queue ends as cancelled.
//!
//! Owns their bounded steps, which wait for room on a full disk. Must never touch what somebody has, what is over, or what came after the word was given.

use super::Pond;
use crate::command::{QueueError, Reply, RequestId};
use crate::identity::Seq;
use crate::message::{Phase, QueueNumber};
use crate::name::Name;
use crate::time::Now;
use std::ops::Bound;

/// Messages that are cancelled per step, and looked at.
const PURGE_STEP: usize = 256;
const SCAN_STEP: usize = 4096;
/// Records that may be on their way to the disk when another step begins: else, all of a large purge would be on its way
/// before anyone could say that there is no room for it.
const UNDERWAY_MAX: u64 = 256;

/// A purge under way. Not kept across a restart: its answer has not been given.
#[derive(Debug)]
pub(super) struct Purge {
    request: RequestId,
    queue: QueueNumber,
    /// Where to go on looking.
    from: Bound<Seq>,
    /// The first number that had not been given when the word was given.
    end: Seq,
    cancelled: u64,
}

impl Pond {
    pub(super) fn purge(&mut self, request: RequestId, queue: &Name) {
        let Some(number) = self.queue_named(queue) else {
            return self.reply(request, Reply::Purged(Err(QueueError::Unknown)));
        };
        if self.purges.iter().any(|purge| purge.queue == number) {
            return self.reply(request, Reply::Purged(Err(QueueError::PurgeRunning)));
        }
        let (from, end) = (Bound::Included(Seq(self.queue_ref(number).since)), Seq(self.next));
        self.purges.push_back(Purge { request, queue: number, from, end, cancelled: 0 });
    }

    /// Whether a purge can go on now.
    pub(super) fn is_purging(&self) -> bool {
        let underway = self.emitted.0 - self.durable.0;
        self.next_purge().is_some() && self.disk_room() > 0 && underway < UNDERWAY_MAX
    }

    /// The next purge that can go on: where ends are to be told, and there is no room for it, it waits.
    fn next_purge(&self) -> Option<usize> {
        self.purges.iter().position(|purge| !self.queue_ref(purge.queue).waits_for_tellers())
    }

    /// Goes on with the purges under way, one step of one of them.
    pub(super) fn purge_step(&mut self, now: Now) {
        if !self.is_purging() {
            return;
        }
        let next = self.next_purge().and_then(|next| self.purges.remove(next));
        let Some(mut purge) = next else { return };
        let numbers = self.slots.numbers_from(purge.from);
        let scanned: Vec<Seq> = numbers.take_while(|seq| *seq < purge.end).take(SCAN_STEP).collect();
        let mut cancelled = 0;
        for &seq in &scanned {
            if cancelled == PURGE_STEP || self.disk_room() == 0 {
                purge.from = Bound::Included(seq);
                return self.purges.push_back(purge);
            }
            let slot = self.slot(seq);
            let waits = matches!(slot.message.phase, Phase::Delayed | Phase::Ready | Phase::Backoff);
            if slot.message.queue == purge.queue && waits {
                drop(slot);
                self.queue_mut(purge.queue).totals.cancelled += 1;
                self.take_disk_room();
                self.end(seq, Phase::Cancelled, None, None, now);
                cancelled += 1;
                purge.cancelled += 1;
            }
        }
        match scanned.last() {
            Some(&last) if scanned.len() == SCAN_STEP => {
                purge.from = Bound::Excluded(last);
                self.purges.push_back(purge);
            }
            _ => self.reply_when_synced(purge.request, Reply::Purged(Ok(purge.cancelled)), now),
        }
    }
}
