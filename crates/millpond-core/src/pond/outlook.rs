//! The forecast of one queue from what is known of it and of its target.
//!
//! Owns which measurement counts. Must never promise while a queue is held, as it is while its target is down.

use super::Pond;
use super::order::Direction;
use crate::command::QueueView;
use crate::forecast::{Outlook, Promise, seconds};
use crate::message::QueueNumber;
use crate::rate::Rate;
use crate::scaling::Demand;
use crate::stats::QueueStats;
use crate::time::{Mono, Now};
use std::time::Duration;

/// How long arrivals must exceed capacity before a queue without a promise counts as insurmountable.
const INSURMOUNTABLE_AFTER: Duration = Duration::from_mins(1);
/// With so many service times measured, the mean counts, however many places there are.
const SERVICE_TURNS_MAX: u64 = 20;

/// Spread of the times between two starts where a target is throttling: as if they came by chance.
const THROTTLED_VARIATION: f64 = 1.0;

impl Pond {
    /// What a promise can rest on; `None` while nothing can be promised.
    pub(super) fn outlook(&self, number: QueueNumber, now: Now) -> Option<Outlook> {
        let queue = self.queue_ref(number);
        if self.held(number).is_some() || self.draining {
            return None;
        }
        let service_seconds = self.service_seconds(number);
        let (variation, correction) = (queue.service.variation(), queue.calibration.correction());
        let at_cap = queue.settings.concurrency.is_some_and(|cap| queue.leased.len() >= cap as usize);
        let Some(target) = queue.target.map(|index| &self.targets[index]) else {
            let by_caps = queue
                .settings
                .concurrency
                .zip(service_seconds)
                .map(|(cap, service)| f64::from(cap) / service);
            let capacity_per_second = match (queue.busy.per_second(), by_caps) {
                (Some(measured), Some(caps)) => measured.min(caps),
                (measured, caps) => measured.or(caps)?,
            };
            let busy = at_cap || !queue.waiters.any();
            let hold = Duration::ZERO;
            return Some(Outlook { capacity_per_second, variation, busy, hold, correction });
        };
        if self.unattended {
            return None;
        }
        // Queues that share a target take turns, so those with work share it evenly.
        let sharing = (target.working - u64::from(queue.told.working) + 1) as f64;
        let slots = f64::from(target.limit_forecast()) / sharing;
        let slots = queue.settings.concurrency.map_or(slots, |cap| slots.min(f64::from(cap)));
        let by_slots = slots / service_seconds?;
        let by_rate = target.settings.rate.map_or(f64::INFINITY, |rate| rate.per_second() / sharing);
        let by_caps = by_slots.min(by_rate);
        // One that asks for one pause after the other does what it did over them: its places are mostly empty then. And it
        // does that by fits and starts, which no service time tells of.
        let over_pauses = queue.busy.at_most_per_second().filter(|_| target.is_throttling(now.mono));
        let (capacity_per_second, variation) = match over_pauses {
            Some(measured) if measured < by_caps => (measured, variation.max(THROTTLED_VARIATION)),
            _ => (by_caps, variation),
        };
        let hold = target.throttled_for(now.mono) + target.ramp_loss(now.mono);
        let busy = at_cap || !target.has_room(now.mono);
        Some(Outlook { capacity_per_second, variation, busy, hold, correction })
    }

    pub(super) fn service_seconds(&self, number: QueueNumber) -> Option<f64> {
        let queue = self.queue_ref(number);
        let expected = queue.settings.expected_service_time.map(|time| time.as_secs_f64());
        // Of work that begins together, the shortest ends first: before each place has had its turn, what was
        // measured is too short.
        let turns = match self.ceiling(number) {
            // Nobody knows how many places there are.
            0 => SERVICE_TURNS_MAX,
            places => places.min(SERVICE_TURNS_MAX),
        };
        let is_known = u64::from(queue.service.samples()) >= turns;
        let measured = queue.service.mean_seconds().filter(|_| is_known || expected.is_none());
        // A service too short to measure must not make the capacity infinite.
        measured.or(expected).map(|seconds| seconds.max(1e-6))
    }

    /// When the result of a message with this promise can be expected.
    pub(super) fn result_in(&self, number: QueueNumber, promise: Option<Promise>) -> Duration {
        let start = promise.map_or(Duration::ZERO, |promise| promise.p50);
        start + seconds(self.service_seconds(number).unwrap_or(0.0))
    }

    /// Everything an operator is told of a queue.
    pub(super) fn view(&self, number: QueueNumber, now: Now) -> QueueView {
        let queue = self.queue_ref(number);
        QueueView {
            name: queue.name.clone(),
            settings: queue.settings.clone(),
            declared: queue.declared,
            stats: self.stats(number, now),
        }
    }

    fn stats(&self, number: QueueNumber, now: Now) -> QueueStats {
        let queue = self.queue_ref(number);
        let ready = queue.ready.len();
        let outlook = self.outlook(number, now);
        let capacity = outlook.map_or(0.0, |outlook| outlook.capacity_per_second);
        let arrivals = queue.arrivals.per_second(now.mono);
        let ages = self.ages(number, now.mono);
        let workers = self.workers(number);
        let ceiling = self.ceiling(number);
        let promise = queue.settings.max_wait.unwrap_or(INSURMOUNTABLE_AFTER);
        let demand = self.demand(number, now.mono);
        QueueStats {
            ready: ready + queue.arriving,
            delayed: queue.delayed,
            leased: queue.leased.len() as u64,
            backoff: queue.backoff.len() as u64,
            dead: queue.dead.len() as u64,
            bytes: queue.unfinished_bytes,
            oldest_age: ages.iter().copied().max().unwrap_or_default(),
            oldest_ready_age: ages[0],
            oldest_leased_age: ages[1],
            oldest_backoff_age: ages[2],
            arrivals_per_second: arrivals,
            completions_per_second: queue.completions.per_second(now.mono),
            capacity_per_second: capacity,
            utilization: if capacity > 0.0 { arrivals / capacity } else { 0.0 },
            predicted_wait: outlook
                .filter(|_| self.rules(number, now.mono).direction() == Direction::Oldest)
                .map(|outlook| outlook.wait(ready).p50),
            drain: match outlook {
                Some(outlook) => outlook.drain(ready, arrivals),
                None => (ready == 0).then_some(Duration::ZERO),
            },
            insurmountable: capacity < arrivals
                && queue.exceeded_since.is_some_and(|since| now.mono.since(since) > promise),
            paused: queue.paused,
            held: self.held(number),
            blocked: queue.blocked.callers(),
            workers,
            backlog_per_worker: demand.waiting as f64 / workers.max(1) as f64,
            workers_wanted: demand.workers(),
            demand,
            workers_ceiling: ceiling,
            service_time: seconds(self.service_seconds(number).unwrap_or(0.0)),
            totals: queue.totals.clone(),
            promises: queue.calibration.record().clone(),
            promise_correction: queue.calibration.correction(),
        }
    }

    /// Ages of the oldest ready, leased and backing-off message.
    fn ages(&self, number: QueueNumber, now: Mono) -> [Duration; 3] {
        let queue = self.queue_ref(number);
        let ready = queue.ready.oldest().map(|oldest| self.due_since(oldest)).min();
        let leased = queue.leased.first().map(|&(since, _)| since);
        let backoff = queue.backoff.first().map(|&(since, _)| since);
        [ready, leased, backoff].map(|since| since.map_or(Duration::ZERO, |since| now.since(since)))
    }

    fn workers(&self, number: QueueNumber) -> u64 {
        let queue = self.queue_ref(number);
        let Some(target) = queue.target else { return (queue.leased.len() + queue.waiters.len()) as u64 };
        self.ceiling(number).min(u64::from(self.targets[target].limit()))
    }

    fn ceiling(&self, number: QueueNumber) -> u64 {
        let queue = self.queue_ref(number);
        let own = queue.settings.concurrency.map(u64::from);
        let target = queue.target.map(|index| u64::from(self.targets[index].settings.concurrency));
        match (own, target) {
            (Some(own), Some(target)) => own.min(target),
            (own, target) => own.or(target).unwrap_or(0),
        }
    }

    /// What the queue needs workers for.
    fn demand(&self, number: QueueNumber, now: Mono) -> Demand {
        let queue = self.queue_ref(number);
        let target = queue.target.map(|index| &self.targets[index]);
        let by_rate = target.and_then(|target| target.settings.rate).map(Rate::per_second);
        let over_pauses =
            target.filter(|target| target.is_throttling(now)).and_then(|_| queue.busy.at_most_per_second());
        Demand {
            waiting: queue.ready.len() + queue.arriving,
            blocked: queue.ready.blocked(),
            backing_off: queue.backoff.len() as u64,
            in_work: queue.leased.len() as u64,
            oldest_waiting: self.ages(number, now)[0],
            recent_per_second: queue.arrivals.sustained_per_second(now),
            long_per_second: queue.arrivals_long.sustained_per_second(now),
            completions_per_second: queue.completions.per_second(now),
            service_seconds: self.service_seconds(number),
            promise: queue.settings.max_wait,
            starts_per_second_max: by_rate.into_iter().chain(over_pauses).reduce(f64::min),
            ceiling: Some(self.ceiling(number)).filter(|ceiling| *ceiling > 0),
            stopped: self.draining || self.held(number).is_some(),
        }
    }
}
