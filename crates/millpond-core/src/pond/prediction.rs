//! Where a message stands, and when it will probably start.
//!
//! Owns what may be said of it. Must never give a position that is not exact, nor a promise where the order leaves
//! none: what came last may start first.

use super::Pond;
use super::order::{Direction, Line};
use super::slot::Slot;
use crate::command::NewMessage;
use crate::forecast::{Outlook, Promise};
use crate::message::{Criticality, Phase, QueueNumber};
use crate::name::Label;
use crate::settings::Order;
use crate::time::Now;
use std::time::Duration;

/// What of its own line and of its own group comes before a message.
#[derive(Debug, Clone, Copy)]
struct Standing<'a> {
    criticality: Criticality,
    tenant: Option<&'a Label>,
    in_line: u64,
    in_group: u64,
}

impl Pond {
    fn standing_of_new<'a>(&self, number: QueueNumber, new: &'a NewMessage) -> Standing<'a> {
        let queue = self.queue_ref(number);
        let (criticality, tenant) = (new.criticality, new.tenant.as_ref());
        let in_line = queue.ready.line(criticality, tenant).map_or(0, Line::len);
        let in_group = new.group.as_ref().map_or(0, |group| queue.groups.members(group));
        Standing { criticality, tenant, in_line, in_group }
    }

    fn standing_of<'a>(&self, slot: &'a Slot) -> Standing<'a> {
        let message = &slot.message;
        let queue = self.queue_ref(message.queue);
        let (criticality, tenant) = (message.criticality, message.tenant.as_ref());
        let in_line = queue.ready.line(criticality, tenant).map_or(0, |line| line.before(message.place));
        let group = message.group.as_ref();
        let in_group = group.and_then(|group| queue.groups.before(group, message.place)).unwrap_or(0);
        Standing { criticality, tenant, in_line, in_group }
    }

    /// How many messages start before one that is ready, where that can be said: nothing but its place decides.
    fn position(&self, number: QueueNumber, standing: Standing<'_>) -> Option<u64> {
        let queue = self.queue_ref(number);
        let by_place = queue.settings.order == Order::Fifo
            && standing.in_group == 0
            && queue.ready.is_only_line(standing.criticality, standing.tenant);
        by_place.then_some(standing.in_line)
    }

    fn promise(
        &self,
        number: QueueNumber,
        standing: Standing<'_>,
        outlook: Outlook,
        now: Now,
    ) -> Option<Promise> {
        let rules = self.rules(number, now.mono);
        if rules.direction() != Direction::Oldest {
            return None;
        }
        let Standing { criticality, tenant, in_line, in_group } = standing;
        let wait = outlook.wait(self.queue_ref(number).ready.ahead(criticality, tenant, in_line, &rules));
        let service_seconds = self.service_seconds(number).filter(|_| in_group > 0);
        Some(service_seconds.map_or(wait, |seconds| {
            // A group is worked on by one at a time.
            let one_by_one = Outlook { capacity_per_second: 1.0 / seconds, ..outlook }.wait(in_group);
            wait.at_least(one_by_one)
        }))
    }

    /// Position and promise of a message that arrives now.
    pub(super) fn foresee_new(
        &self,
        number: QueueNumber,
        new: &NewMessage,
        outlook: Option<Outlook>,
        now: Now,
    ) -> (Option<u64>, Option<Promise>) {
        let standing = self.standing_of_new(number, new);
        let position = self.position(number, standing).filter(|_| new.delay.is_zero());
        let promise = outlook.and_then(|outlook| self.promise(number, standing, outlook, now));
        (position, promise.map(|promise| promise.not_before(new.delay)))
    }

    /// The wait that the bound in time judges; `None` while nothing can be predicted. What failed comes back before a
    /// new message, so it counts as ahead of it here.
    pub(super) fn predicted_wait_of_new(
        &self,
        number: QueueNumber,
        new: &NewMessage,
        outlook: Option<Outlook>,
        now: Now,
    ) -> Option<Duration> {
        let mut standing = self.standing_of_new(number, new);
        let line = self.queue_ref(number).ready.line(new.criticality, new.tenant.as_ref());
        standing.in_line += line.map_or(0, |line| u64::from(line.backoff));
        Some(self.promise(number, standing, outlook?, now)?.p50)
    }

    /// Position and promise of a message that is there.
    pub(super) fn foresee(
        &self,
        slot: &Slot,
        outlook: Option<Outlook>,
        now: Now,
    ) -> (Option<u64>, Option<Promise>) {
        let number = slot.message.queue;
        let standing = self.standing_of(slot);
        let promise = || outlook.and_then(|outlook| self.promise(number, standing, outlook, now));
        match slot.message.phase {
            Phase::Ready => (self.position(number, standing), promise()),
            Phase::Delayed | Phase::Backoff => {
                let until_due = slot.phase_timer.map_or(Duration::ZERO, |at| at.since(now.mono));
                (None, promise().map(|promise| promise.not_before(until_due)))
            }
            _ => (None, None),
        }
    }
}
