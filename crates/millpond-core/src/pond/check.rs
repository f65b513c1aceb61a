//! The pond's own consistency: what must hold after every step.
//!
//! Owns the invariants that can be checked from inside. Must never change anything.

use super::load::Load;
use super::slot::Slot;
use super::timers::Timer;
use super::{Gated, Pond};
use crate::message::{Phase, QueueNumber};
use crate::name::Label;
use std::collections::BTreeMap;

/// Counts of one queue, recomputed from its messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    ready: u64,
    arriving: u64,
    delayed: u64,
    leased: u64,
    backoff: u64,
    dead: u64,
    unfinished: u64,
    bytes: u64,
    owing: u64,
    kept: u64,
}

impl Pond {
    /// Checks everything that can be checked from inside: counts agree with messages, a leased message has a
    /// timer and so has every other phase that ends by itself, caps hold. Linear in the number of messages:
    /// for tests and simulations.
    ///
    /// # Panics
    /// On the first thing that does not hold.
    pub fn assert_consistent(&self) {
        let mut counted: Vec<Counts> = self.queues.iter().map(|_| Counts::default()).collect();
        let mut occupied = vec![0_u32; self.targets.len()];
        let mut load = Load::default();
        for (seq, slot) in self.slots.iter() {
            let message = &slot.message;
            assert_eq!(message.seq, seq, "a message lies under its own number");
            let counts = &mut counted[message.queue.0 as usize];
            match message.phase {
                Phase::Ready if slot.visible => counts.ready += 1,
                Phase::Ready => counts.arriving += 1,
                Phase::Delayed => counts.delayed += 1,
                Phase::Leased => counts.leased += 1,
                Phase::Backoff => counts.backoff += 1,
                Phase::Dead => counts.dead += 1,
                Phase::Succeeded | Phase::Expired | Phase::Cancelled | Phase::Dropped => {}
            }
            counts.kept += 1;
            load.enter(message);
            self.assert_in_order(&slot);
            if !message.phase.is_terminal() {
                counts.unfinished += 1;
                counts.bytes += u64::from(message.size_bytes);
                counts.owing += u64::from(message.callback.is_some());
            }
            assert_eq!(
                slot.phase_timer.is_some(),
                message.phase != Phase::Ready,
                "{seq:?} is {:?}: leased, and every phase that ends by itself, has a timer",
                message.phase
            );
            let overdue = self.queue_ref(message.queue).overdue.contains(seq.0);
            let expires = slot
                .expiry_timer
                .is_none_or(|at| overdue != self.expiries.contains(seq, at, slot.message.ttl_micros()));
            assert!(expires, "{seq:?}: its expiry is pending, or it is overdue");
            let timed = slot.phase_timer.is_none_or(|at| self.timers.contains(at, Timer::Phase(seq)));
            assert!(timed, "{seq:?}: its timer is set");
            if let Some(target) = slot.occupies {
                assert_eq!(message.phase, Phase::Leased, "{seq:?} occupies a target without being leased");
                occupied[target] += 1;
            }
        }
        assert_eq!(self.load, load, "the counts over all queues agree with messages");
        self.assert_queues(&counted);
        self.assert_prefetch();
        self.assert_keys();
        for queue in &self.queues {
            queue.blocked.assert_consistent();
        }
        self.assert_replays();
        for (target, &calls) in self.targets.iter().zip(&occupied) {
            assert!(
                calls <= target.occupied,
                "target {}: {calls} calls, {} counted",
                target.name,
                target.occupied
            );
        }
    }

    /// Checks that consumers hold what is counted for them.
    fn assert_prefetch(&self) {
        let mut held: Vec<BTreeMap<Label, usize>> = vec![BTreeMap::new(); self.queues.len()];
        for slot in self.slots.awake().filter(|slot| slot.message.phase == Phase::Leased) {
            if let Some(consumer) = &slot.message.consumer {
                *held[slot.message.queue.0 as usize].entry(consumer.clone()).or_default() += 1;
            }
        }
        for (queue, held) in self.queues.iter().zip(&held) {
            queue.waiters.assert_consistent(held);
        }
    }

    fn assert_queues(&self, counted: &[Counts]) {
        for (index, counts) in counted.iter().enumerate() {
            let queue = &self.queues[index];
            queue.ready.assert_consistent();
            let held = Counts {
                ready: queue.ready.len(),
                arriving: queue.arriving,
                delayed: queue.delayed,
                leased: queue.leased.len() as u64,
                backoff: queue.backoff.len() as u64,
                dead: queue.dead.len() as u64,
                unfinished: queue.unfinished,
                bytes: queue.unfinished_bytes,
                owing: queue.owing.messages,
                kept: queue.kept,
            };
            assert_eq!(&held, counts, "queue {}: counts agree with messages", queue.name);
            assert_eq!(QueueNumber(u32::try_from(index).expect("numbers are u32")), queue.number);
            assert_eq!(queue.held, self.held(queue.number), "queue {}: why it hands out nothing", queue.name);
        }
        self.assert_groups();
        self.assert_targets();
    }

    /// Checks that a message stands in the order, and in its group, as it must.
    fn assert_in_order(&self, slot: &Slot) {
        let message = &slot.message;
        let queue = self.queue_ref(message.queue);
        let ready = queue.ready_of(slot);
        let visible = message.phase == Phase::Ready && slot.visible;
        assert_eq!(
            queue.ready.holds(ready),
            visible,
            "{:?}: it stands in the order if it is ready",
            message.seq
        );
        // Messages that were released from their group at the latest restart may be leased side by side.
        let is_older = message.hand_out.as_ref().is_some_and(|hand_out| hand_out.epoch != self.epoch);
        let alone = message.phase != Phase::Leased || !ready.blocked || is_older;
        assert!(alone, "{:?}: leased, and not the first of its group", message.seq);
    }

    /// Checks that every group holds unfinished messages and those whose end is not durable yet, and them only.
    fn assert_groups(&self) {
        let mut members = vec![0; self.queues.len()];
        for (_, slot) in self.slots.iter().filter(|(_, slot)| !slot.message.phase.is_terminal()) {
            let Some(group) = &slot.message.group else { continue };
            let queue = self.queue_ref(slot.message.queue);
            let member = queue.groups.before(group, slot.message.place).is_some();
            members[slot.message.queue.0 as usize] += u64::from(member);
        }
        for (_, gated) in &self.gated {
            if let Gated::Parted(parting) = gated {
                members[parting.queue.0 as usize] += 1;
            }
        }
        for (queue, members) in self.queues.iter().zip(members) {
            assert_eq!(queue.groups.len(), members, "queue {}: members of groups", queue.name);
        }
    }

    /// Checks that every target knows which of its queues have work.
    fn assert_targets(&self) {
        for (index, target) in self.targets.iter().enumerate() {
            let own = || self.queues.iter().filter(|queue| queue.target == Some(index));
            let open = own().filter(|queue| queue.may_hand_out()).map(|queue| queue.number.0 as usize);
            assert!(target.open.iter().copied().eq(open), "target {}: queues that may hand out", target.name);
            let working = own().filter(|queue| !queue.paused && queue.ready.has_eligible()).count();
            assert_eq!(target.working, working as u64, "target {}: queues with work", target.name);
        }
    }
}
