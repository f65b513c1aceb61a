//! The way out: which message goes to whom, under the caps and at the pace.
//!
//! Owns hand-outs. Must never exceed a cap, hand out what is not durable, or count a delivery twice.

use super::order::{Oldest, Pick, Rules};
use super::timers::Timer;
use super::waiters::Waiter;
use super::{Pond, WAITING_MAX, WaitingFor};
use crate::command::{Effect, LeaseRequest, Leased, QueueError, Reply, RequestId, TargetNumber};
use crate::identity::Receipt;
use crate::message::{HandOut, Holder, Phase, QueueNumber};
use crate::name::Label;
use crate::notice::Notice;
use crate::record::Record;
use crate::settings::{LEASE_TOTAL_MAX, Order, PUSH_LEASE_MARGIN, WAIT_MAX};
use crate::time::{Mono, Now};
use std::time::Duration;

/// Most messages in one hand-out to a worker.
const LEASE_BATCH_MAX: usize = 1000;
/// A hand-out to a worker ends with the message that reaches so many bytes: its answer lies in memory as a whole.
const LEASE_BATCH_BYTES: u64 = 16 << 20;

impl Pond {
    pub(super) fn lease(&mut self, request: RequestId, wish: &LeaseRequest, now: Now) {
        let Some(number) = self.queue_named(&wish.queue) else {
            return self.reply(request, Reply::Leased(Err(QueueError::Unknown)));
        };
        if self.draining || wish.max == 0 {
            return self.reply(request, Reply::Leased(Ok(Vec::new())));
        }
        let wait = wish.wait.min(WAIT_MAX);
        if !wait.is_zero() && self.waiting.len() >= WAITING_MAX {
            return self.reply(request, Reply::Leased(Err(QueueError::TooManyWaiting)));
        }
        self.start_waiting(request, WaitingFor::Messages(number), now.mono.plus(wait));
        let queue = self.queue_mut(number);
        let lease = wish.lease.unwrap_or(queue.settings.lease).min(LEASE_TOTAL_MAX);
        let consumer = wish.consumer.clone();
        queue.waiters.push(Waiter { request, max: wish.max.min(LEASE_BATCH_MAX), lease, consumer });
        self.serve(number, now);
        if wait.is_zero() && self.waiting.contains_key(&request) {
            self.waited_enough(request, now);
        }
    }

    /// Hands out what one queue can give, to waiting workers first, then to its target.
    pub(super) fn serve(&mut self, number: QueueNumber, now: Now) {
        let queue = self.queue_mut(number);
        if queue.held.is_none() && queue.ready.has_eligible() {
            queue.busy.begin(now.mono);
        }
        self.serve_workers(number, now);
        if let Some(target) = self.queue_ref(number).target {
            self.serve_target(target, now);
        }
    }

    /// Hands out what all queues can give.
    pub(super) fn serve_all(&mut self, now: Now) {
        for index in 0..self.queues.len() {
            self.serve(self.queues[index].number, now);
        }
    }

    /// Whether no queue may hand out anything now.
    fn hands_out_nothing(&self) -> bool {
        self.draining || self.disk_room() == 0
    }

    /// For how many more hand-outs, or ends of what nobody has, the disk has room.
    pub(super) fn disk_room(&self) -> u64 {
        self.storage.hand_outs()
    }

    /// One of them takes place.
    pub(super) fn take_disk_room(&mut self) {
        self.storage.take_hand_out();
    }

    fn may_hand_out(&self, number: QueueNumber) -> bool {
        !self.hands_out_nothing() && self.queue_ref(number).may_hand_out()
    }

    /// The next message of a queue, unless the queue may hand out nothing now.
    fn next_of(&self, number: QueueNumber, now: Now) -> Option<Pick> {
        if !self.may_hand_out(number) {
            return None;
        }
        let pick = self.queue_ref(number).ready.next(&self.rules(number, now.mono), now.mono)?;
        // Expired work never goes out: its timer is due and will take it away in the next step.
        self.slots.expiry(pick.seq).is_some_and(|at| at > now.mono).then_some(pick)
    }

    /// Since when one of the oldest messages of a queue has been due.
    pub(super) fn due_since(&self, oldest: Oldest) -> Mono {
        match oldest {
            Oldest::Prompt(seq) => self.slots.due_since(seq).expect("what is ready is kept"),
            Oldest::Since(since) => since,
        }
    }

    /// What the order of a queue rests on now.
    pub(super) fn rules(&self, number: QueueNumber, now: Mono) -> Rules {
        let settings = &self.queue_ref(number).settings;
        let is_fresh = || {
            let oldest = self.queue_ref(number).ready.oldest_eligible();
            let age = oldest.map(|oldest| now.since(self.due_since(oldest))).max();
            age.is_none_or(|age| age < settings.fresh_within)
        };
        Rules::new(settings, settings.order == Order::Adaptive && is_fresh())
    }

    fn serve_workers(&mut self, number: QueueNumber, now: Now) {
        while self.queue_ref(number).waiters.any() && self.next_of(number, now).is_some() {
            let Some((waiter, most)) = self.queue_mut(number).waiters.pop() else { return };
            self.stop_waiting(waiter.request);
            let (mut leased, mut bytes) = (Vec::new(), 0);
            while leased.len() < most && bytes < LEASE_BATCH_BYTES {
                let Some(pick) = self.next_of(number, now) else { break };
                let consumer = waiter.consumer.clone();
                let next = self.hand_out(number, pick, Holder::Worker, consumer, waiter.lease, now);
                bytes += u64::from(next.message.size_bytes);
                leased.push(next);
            }
            self.reply(waiter.request, Reply::Leased(Ok(leased)));
        }
    }

    pub(super) fn serve_target(&mut self, index: usize, now: Now) {
        while !self.unattended && !self.hands_out_nothing() {
            if !self.targets[index].has_room(now.mono) {
                if let Some(at) = self.targets[index].room_grows_at(now.mono) {
                    self.wake_target_at(index, at);
                }
                return;
            }
            let Some((number, pick)) = self.next_for(index, now) else { return };
            let ready_at = self.targets[index].ready_at();
            if ready_at > now.mono {
                return self.wake_target_at(index, ready_at);
            }
            if self.targets[index].start(now) {
                let target = self.targets[index].name.clone();
                self.effects.push(Effect::Notice(Notice::BreakerHalfOpen { target }));
            }
            self.targets[index].turn = number.0 as usize + 1;
            let lease = self.targets[index].settings.timeout + PUSH_LEASE_MARGIN;
            self.slot_mut(pick.seq).occupies = Some(index);
            let holder = Holder::Push(self.targets[index].name.clone());
            let leased = Box::new(self.hand_out(number, pick, holder, None, lease, now));
            self.effects.push(Effect::Dispatch { target: TargetNumber(index), leased });
        }
    }

    fn wake_target_at(&mut self, index: usize, at: Mono) {
        let timer = Timer::Target(index);
        if let Some(set) = self.targets[index].timer.replace(at) {
            self.timers.clear(set, timer);
        }
        self.timers.set(at, timer);
    }

    /// The next message for a target, and the queue whose turn that takes: its queues take turns.
    fn next_for(&self, index: usize, now: Now) -> Option<(QueueNumber, Pick)> {
        let mut numbers = self.targets[index].open_in_turn().map(|queue| self.queues[queue].number);
        numbers.find_map(|number| Some((number, self.next_of(number, now)?)))
    }

    fn hand_out(
        &mut self,
        number: QueueNumber,
        pick: Pick,
        holder: Holder,
        consumer: Option<Label>,
        lease: Duration,
        now: Now,
    ) -> Leased {
        let epoch = self.epoch;
        let until = now.wall.plus(lease);
        let seq = pick.seq;
        let rules = self.rules(number, now.mono);
        self.queue_mut(number).ready.count_hand_out(pick, &rules, now.mono);
        self.shift(seq, Phase::Leased, Some(now.mono.plus(lease)), |slot| {
            slot.started = now.mono;
            slot.message.consumer.clone_from(&consumer);
            slot.message.deliveries += 1;
            let holder = holder.clone();
            slot.message.hand_out = Some(HandOut { epoch, started: now.wall, until, holder, settled: None });
        });
        let is_audited = self.queue_ref(number).calibration.is_open(seq);
        let outlook = if is_audited { self.outlook(number, now) } else { None };
        let slot = self.slots.get_mut(seq).expect("just shifted");
        let receipt = Receipt { seq, epoch, delivery: slot.message.delivery() };
        let queue = &mut self.queues[number.0 as usize];
        if slot.message.first_started.is_none() {
            slot.message.first_started = Some(now.wall);
            queue.totals.wait.observe(now.mono.since(slot.due_since));
            queue.calibration.started(seq, outlook.as_ref(), now.mono);
        }
        let leased = Leased { receipt, queue: queue.name.clone(), message: slot.message.clone(), until };
        self.take_disk_room();
        // Not synced: if a power loss takes it, the boot epoch keeps the two holders apart.
        self.emit(Record::Leased { receipt, started: now.wall, until, holder, consumer }, false);
        leased
    }
}
