//! The forecast of one queue from what is known of it and of its target.
//!
//! Owns which measurement counts. Must never promise while a queue is held or its target is down.

use super::Pond;
use super::order::Direction;
use crate::command::QueueView;
use crate::forecast::{Outlook, Promise, seconds};
use crate::message::QueueNumber;
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
        if target.is_down() || self.unattended {
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
        let (busy, hold) = (at_cap || !target.has_room(), target.throttled_for(now.mono));
        Some(Outlook { capacity_per_second, variation, busy, hold, correction })
    }

    pub(super) fn service_seconds(&self, number: QueueNumber) -> Option<f64> {
        let queue = self.queue_ref(number);
        let expected = queue.settings.expected_service_time.map(|time| time.as_secs_f64());
        // Of work that begins together, the shortest ends first: before each place has had its turn, what was
        // measured is too short.
        let turns = self.ceiling(number).min(SERVICE_TURNS_MAX);
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
            backlog_per_worker: if workers > 0 { ready as f64 / workers as f64 } else { 0.0 },
            workers_wanted: self.workers_wanted(number, ready, arrivals, ceiling),
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

    /// Workers that carry the arrivals and work off what waits within the promise (L = λ × W), and never more than
    /// the ceiling; at least as many as are at work, so that a scaler takes none away in the middle of it.
    fn workers_wanted(&self, number: QueueNumber, ready: u64, arrivals: f64, ceiling: u64) -> u64 {
        let queue = self.queue_ref(number);
        let least = (queue.leased.len() as u64).max(u64::from(ready > 0));
        let Some(service) = self.service_seconds(number) else { return least };
        let within = queue.settings.max_wait.unwrap_or(INSURMOUNTABLE_AFTER).as_secs_f64();
        let wanted = (arrivals + ready as f64 / within) * service;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, saturates"
        )]
        let wanted = (wanted - 1e-9).ceil().max(0.0) as u64;
        let wanted = wanted.max(least);
        if ceiling > 0 { wanted.min(ceiling) } else { wanted }
    }
}
