//! Dead letters: back to work, or gone for good.
//!
//! Owns the replay in bounded steps. Must never replay what is not dead, nor lose one on the way.

use super::queue::ReplayTask;
use super::{Gated, Pond};
use crate::command::{OpNumber, ReplayError, ReplayWhich, Reply, RequestId};
use crate::identity::Seq;
use crate::message::{Phase, QueueNumber};
use crate::name::Name;
use crate::record::Record;
use crate::time::Now;

/// Dead letters that go back per step.
const REPLAY_STEP: usize = 128;

impl Pond {
    pub(super) fn replay(&mut self, request: RequestId, queue: &Name, which: ReplayWhich, now: Now) {
        let result = self.start_replay(request, queue, which, now);
        match result {
            Ok(None) => {}
            Ok(Some((replayed, op))) => {
                self.reply_when_durable(op, request, Reply::Replayed(Ok(replayed)), now);
            }
            Err(error) => self.reply(request, Reply::Replayed(Err(error))),
        }
    }

    /// Replays named ones at once, or starts the replay of all; then the answer comes at its end.
    fn start_replay(
        &mut self,
        request: RequestId,
        queue: &Name,
        which: ReplayWhich,
        now: Now,
    ) -> Result<Option<(u64, OpNumber)>, ReplayError> {
        let number = self.queue_named(queue).ok_or(ReplayError::UnknownQueue)?;
        match which {
            ReplayWhich::These(seqs) => {
                if let Some(&other) = seqs.iter().find(|seq| !self.queue_ref(number).dead.contains(seq)) {
                    return Err(ReplayError::NotDead(other));
                }
                let mut replayed = 0;
                for seq in seqs {
                    // A number may be named twice.
                    if self.queue_ref(number).dead.contains(&seq) {
                        self.replay_one(seq, now);
                        replayed += 1;
                    }
                }
                Ok(Some((replayed, self.last_synced)))
            }
            ReplayWhich::All => {
                let queue = self.queue_mut(number);
                if queue.replay.is_some() {
                    return Err(ReplayError::Running);
                }
                let Some((&from, &through)) = queue.dead.first().zip(queue.dead.last()) else {
                    return Ok(Some((0, OpNumber(0))));
                };
                queue.replay = Some(ReplayTask { request, from, through, replayed: 0 });
                self.replaying.push(number);
                Ok(None)
            }
        }
    }

    /// Goes on with the replays under way.
    pub(super) fn replay_step(&mut self, now: Now) {
        let Some(&number) = self.replaying.first() else { return };
        let Some(mut task) = self.queue_mut(number).replay.take() else { return };
        let dead = self.queue_ref(number).dead.range(task.from..=task.through);
        let batch: Vec<Seq> = dead.take(REPLAY_STEP).copied().collect();
        for &seq in &batch {
            self.replay_one(seq, now);
            task.replayed += 1;
        }
        if let (REPLAY_STEP, Some(last)) = (batch.len(), batch.last()) {
            task.from = Seq(last.0 + 1);
            if task.from <= task.through {
                self.queue_mut(number).replay = Some(task);
                // Others get their turn in between.
                self.replaying.rotate_left(1);
                return;
            }
        }
        self.replaying.remove(0);
        let op = self.last_synced;
        self.reply_when_durable(op, task.request, Reply::Replayed(Ok(task.replayed)), now);
    }

    fn replay_one(&mut self, seq: Seq, now: Now) {
        let place = self.take_number();
        let slot = self.slot(seq);
        let retention = self.queue_ref(slot.message.queue).settings.retention;
        // The original expiry stands while it lies ahead; past it, the message gets a new life, or it would
        // die again at once.
        let expires =
            if slot.message.expires > now.wall { slot.message.expires } else { now.wall.plus(retention) };
        let op = self.emit_about(seq, Record::Replayed { seq, place, at: now.wall, expires });
        self.shift(seq, Phase::Ready, None, |slot| {
            slot.visible = false;
            slot.due_since = now.mono;
            super::restore::restore_replay(&mut slot.message, place, now.wall, expires);
        });
        let expiry = now.mono_at(expires);
        let slot = self.slot_mut(seq);
        slot.expiry_timer = Some(expiry);
        let ttl_micros = slot.message.ttl_micros();
        self.expiries.set(seq, expiry, ttl_micros);
        self.when_durable(op, Gated::Show(seq), now);
        // There is room among the dead letters.
        let number = self.slot(seq).message.queue;
        self.serve(number, now);
    }

    pub(super) fn delete_dead(&mut self, request: RequestId, queue: &Name, seq: Seq, now: Now) {
        let number: Option<QueueNumber> = self.queue_named(queue);
        let result = match number {
            None => Err(ReplayError::UnknownQueue),
            Some(number) if !self.queue_ref(number).dead.contains(&seq) => Err(ReplayError::NotDead(seq)),
            Some(_) => {
                self.emit(Record::Forgotten { seq }, true);
                self.forget(seq, now);
                Ok(())
            }
        };
        let op = self.last_synced;
        self.reply_when_durable(op, request, Reply::DeadDeleted(result), now);
    }
}
