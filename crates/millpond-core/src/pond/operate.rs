//! What operators change: queues, pauses, and the copies that let the log's oldest segment go.
//!
//! Owns definitions. Must never change a message's life.

use super::queue::{Queue, Told};
use super::target::Target;
use super::{Pond, QUEUES_MAX};
use crate::command::{DefineError, QueueError, Reply, RequestId, TargetError};
use crate::identity::Seq;
use crate::message::{QueueNumber, SharedContent};
use crate::name::Name;
use crate::record::{QueueRecord, Record};
use crate::settings::QueueSettings;
use crate::time::Now;

impl Pond {
    pub(super) fn define(&mut self, request: RequestId, name: Name, settings: QueueSettings, now: Now) {
        let result = self.define_one(name, settings, now);
        let op = self.last_synced;
        self.reply_when_durable(op, request, Reply::Defined(result), now);
    }

    fn define_one(&mut self, name: Name, settings: QueueSettings, now: Now) -> Result<bool, DefineError> {
        settings.validate()?;
        if let Some(target) = &settings.target
            && !self.targets.iter().any(|known| known.name == *target)
        {
            return Err(DefineError::UnknownTarget(target.clone()));
        }
        if let Some(number) = self.queue_named(&name) {
            let queue = self.queue_ref(number);
            if queue.declared {
                return Err(DefineError::Declared);
            }
            let (order, unfinished) = (settings.order, queue.groups.len());
            if unfinished > 0 && !order.keeps_groups() {
                return Err(DefineError::GroupsUnfinished { order, unfinished });
            }
            let released = queue.groups.released();
            if released > 0 && order.keeps_groups() {
                return Err(DefineError::GroupsReleased { order, released });
            }
            self.change(number, settings, now);
            self.serve(number, now);
            return Ok(false);
        }
        if self.names.len() >= QUEUES_MAX {
            return Err(DefineError::TooMany(QUEUES_MAX));
        }
        let number = self.create(name, settings);
        self.note_hold(number, now);
        self.write_queue(number, true);
        Ok(true)
    }

    /// Adds a queue without writing it down.
    pub(super) fn create(&mut self, name: Name, settings: QueueSettings) -> QueueNumber {
        // A number whose queue is gone without a trace is used again, or queues that come and go would pile up, in
        // memory and in what every deletion of a segment writes again.
        let gone = |queue: &Queue| queue.deleted && queue.kept == 0;
        let place = self.queues.iter().position(gone).unwrap_or(self.queues.len());
        let number = QueueNumber(u32::try_from(place).expect("queues are bounded"));
        self.names.insert(name.clone(), number);
        let mut queue = Queue::new(number, name, settings);
        queue.since = self.next;
        if place == self.queues.len() {
            self.queues.push(queue);
        } else {
            self.queues[place] = queue;
        }
        self.bind(number);
        number
    }

    /// Gives a queue other settings and writes them down.
    pub(super) fn change(&mut self, number: QueueNumber, settings: QueueSettings, now: Now) {
        let queue = self.queue_mut(number);
        let before = &queue.settings;
        if before.concurrency != settings.concurrency
            || before.target != settings.target
            || before.order != settings.order
            || before.priority != settings.priority
        {
            queue.calibration.begin_anew();
        }
        queue.waiters.set_prefetch(settings.prefetch);
        queue.settings = settings;
        self.bind(number);
        self.write_queue(number, true);
        self.note_dead_letters(number, now);
        self.note_keys(number);
        self.room_may_be_free(number);
    }

    /// Ties a queue to the target that its settings name, and to the caps.
    pub(super) fn bind(&mut self, number: QueueNumber) {
        let index = number.0 as usize;
        let queue = &mut self.queues[index];
        if let Some(target) = queue.target {
            self.targets[target].hear(index, std::mem::take(&mut queue.told), Told::default());
        }
        let wanted = queue.settings.target.as_ref().filter(|_| !queue.deleted);
        queue.target = wanted.and_then(|name| self.targets.iter().position(|target| target.name == *name));
        let targets = || queue.target.map(|target| self.targets[target].settings.concurrency);
        queue.cap = queue.settings.concurrency.or_else(targets);
        queue.tell(&mut self.targets);
    }

    /// Closes a target's breaker by hand.
    pub(super) fn reset_target(&mut self, request: RequestId, name: &Name, now: Now) {
        let Some(index) = self.targets.iter().position(|target| target.name == *name) else {
            return self.reply(request, Reply::Target(Err(TargetError::Unknown)));
        };
        let was = self.targets[index].state();
        self.targets[index].reset(now.mono);
        self.note_breaker(index, was, true, now);
        self.serve_target(index, now);
        let stats = Box::new(self.target_stats(index, now));
        self.reply(request, Reply::Target(Ok(stats)));
    }

    fn queue_record(&self, number: QueueNumber) -> Record {
        let queue = self.queue_ref(number);
        Record::Queue(Box::new(QueueRecord {
            number,
            name: queue.name.clone(),
            settings: queue.settings.clone(),
            paused: queue.paused,
            dead_burst: queue.deaths.burst,
            deleted: queue.deleted,
            since: queue.since,
            replays: queue.replays.tasks.iter().cloned().collect(),
        }))
    }

    pub(super) fn write_queue(&mut self, number: QueueNumber, sync: bool) {
        let record = self.queue_record(number);
        self.queue_mut(number).replays.uncounted = false;
        self.emit(record, sync);
    }

    pub(super) fn delete(&mut self, request: RequestId, name: &Name, now: Now) {
        let result = self.delete_one(name, now);
        let op = self.last_synced;
        self.reply_when_durable(op, request, Reply::Deleted(result), now);
    }

    fn delete_one(&mut self, name: &Name, now: Now) -> Result<(), DefineError> {
        let number = self.queue_named(name).ok_or(DefineError::Unknown)?;
        let queue = self.queue_ref(number);
        if queue.declared {
            return Err(DefineError::Declared);
        }
        let (unfinished, dead) = (queue.unfinished, queue.dead.len() as u64);
        if unfinished > 0 || dead > 0 {
            return Err(DefineError::InUse { unfinished, dead });
        }
        for request in self.queue_mut(number).waiters.drain() {
            self.stop_waiting(request);
            self.reply(request, Reply::Leased(Err(QueueError::Unknown)));
        }
        self.turn_away(number);
        self.end_replays_of(number, now);
        // Its number stays taken as long as statuses of its messages live on.
        self.queue_mut(number).deleted = true;
        self.names.remove(name);
        self.bind(number);
        self.note_hold(number, now);
        self.write_queue(number, true);
        Ok(())
    }

    pub(super) fn pause(&mut self, request: RequestId, name: &Name, paused: bool, now: Now) {
        let Some(number) = self.queue_named(name) else {
            return self.reply(request, Reply::Paused(Err(QueueError::Unknown)));
        };
        let queue = self.queue_mut(number);
        let changes = queue.paused != paused || queue.deaths.burst;
        queue.deaths.decided();
        if changes {
            self.set_paused(number, paused, now);
            self.serve(number, now);
        }
        let op = self.last_synced;
        self.reply_when_durable(op, request, Reply::Paused(Ok(())), now);
    }

    pub(super) fn set_paused(&mut self, number: QueueNumber, paused: bool, now: Now) {
        let queue = &mut self.queues[number.0 as usize];
        queue.paused = paused;
        queue.calibration.call_off();
        queue.tell(&mut self.targets);
        self.note_hold(number, now);
        self.write_queue(number, true);
    }

    /// Writes the newest full copy of messages to the end of the log.
    pub(super) fn copy(&mut self, copies: Vec<(Seq, Option<SharedContent>)>) {
        for (seq, content) in copies {
            let Some(slot) = self.slots.get(seq) else { continue };
            let message = Box::new(slot.message.clone());
            self.emit(Record::Message { message, content }, false);
        }
    }

    /// Writes the small facts that must not go with the oldest segment.
    pub(super) fn copy_basics(&mut self) {
        self.emit(Record::Boot { epoch: self.epoch, next: self.next }, false);
        for index in 0..self.queues.len() {
            self.write_queue(self.queues[index].number, false);
        }
        let called = |target: &mut Target| {
            target.unnoted = false;
            Some(Record::Called { target: target.name.clone(), started: target.called? })
        };
        let called: Vec<Record> = self.targets.iter_mut().filter_map(called).collect();
        for record in called {
            self.emit(record, false);
        }
    }
}
