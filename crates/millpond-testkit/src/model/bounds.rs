//! What the model says of a new message: repeated, refused, made to wait, accepted, or accepted in place of another.
//!
//! Owns the bounds. Must never change anything.

use super::{Model, New, Queue};
use millpond_core::message::{Criticality, Phase};
use millpond_core::settings::Overflow;

/// What the bounds say of a new message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted.
    Accept,
    /// It is accepted once these were dropped, in this order.
    AcceptFor(Vec<u64>),
    /// It is a repetition of this message.
    Duplicate(u64),
    /// Its key was used for another payload.
    Mismatch,
    /// A bound on messages, bytes or keys is reached.
    Full,
    /// It waits for room.
    Block,
    /// It is larger than the queue ever has room for.
    TooLarge,
    /// It would start too late.
    TooLate,
    /// Both accepting and [`Verdict::TooLate`] are right: the capacity is measured.
    AcceptOrTooLate,
}

/// What a class may use of a bound: all, three quarters, or half of it, rounded up.
fn share(bound: u64, class: Criticality) -> u64 {
    match class {
        Criticality::CriticalPlus | Criticality::Critical => bound,
        Criticality::SheddablePlus => bound - bound / 4,
        Criticality::Sheddable => bound - bound / 2,
    }
}

impl Model {
    /// What the bounds say of a message that arrives now, in a log with room.
    pub fn judge(&self, queue: usize, new: &New) -> Verdict {
        if let Some(verdict) = self.judge_key(queue, new) {
            return verdict;
        }
        if new.bytes > share(self.queues[queue].settings.max_bytes, new.labels.class) {
            return Verdict::TooLarge;
        }
        let (messages, bytes) = self.unfinished(queue);
        let room_for_key = self.has_room_for_key(queue, new, &[]);
        let fits = self.fits(queue, new, messages, bytes);
        // Whoever is less critical waits behind it.
        let waits = self.queues[queue].blocked.iter().any(|one| one.new.labels.class <= new.labels.class);
        match self.queues[queue].settings.overflow {
            Overflow::Block if waits || !fits || !room_for_key => Verdict::Block,
            Overflow::DropOldest if !fits => self.judge_drops(queue, new, messages, bytes),
            _ if !fits || !room_for_key => Verdict::Full,
            _ => self.judge_wait(queue),
        }
    }

    /// Which of the enqueues that wait for room waits no longer, as its place, and why. Each class has its own line: its
    /// first one gets its answer if it needs no room, and room if nobody more critical waits for any.
    pub fn judge_blocked(&self, queue: usize) -> Option<(usize, Verdict)> {
        let (messages, bytes) = self.unfinished(queue);
        let blocked = &self.queues[queue].blocked;
        let first_of = |class| blocked.iter().position(|one| one.new.labels.class == class);
        let firsts: Vec<usize> = Criticality::ALL.into_iter().filter_map(first_of).collect();
        let known =
            firsts.iter().find_map(|&place| Some((place, self.judge_key(queue, &blocked[place].new)?)));
        let fits =
            |new: &New| self.fits(queue, new, messages, bytes) && self.has_room_for_key(queue, new, &[]);
        let next = firsts.first().filter(|&&place| fits(&blocked[place].new));
        known.or_else(|| next.map(|&place| (place, Verdict::Accept)))
    }

    /// What is known of a new message's key, if anything.
    pub fn judge_key(&self, queue: usize, new: &New) -> Option<Verdict> {
        let (key, payload) = new.key?;
        let &seq = self.keys.get(&(queue, key))?;
        let same = self.messages[&seq].key == new.key.map(|_| (key, payload));
        Some(if same { Verdict::Duplicate(seq) } else { Verdict::Mismatch })
    }

    /// Whether one more key can be remembered, those of finished messages forgotten where needed, and of those that are
    /// dropped for it.
    fn has_room_for_key(&self, queue: usize, new: &New, dropped: &[u64]) -> bool {
        let is_over = |seq: &u64| dropped.contains(seq) || self.messages[seq].phase.is_terminal();
        let held = self.keys.iter().filter(|((at, _), seq)| *at == queue && !is_over(seq));
        new.key.is_none() || (held.count() as u64) < self.queues[queue].settings.max_keys
    }

    /// Whether a message fits beside so many others.
    fn fits(&self, queue: usize, new: &New, messages: u64, bytes: u64) -> bool {
        let settings = &self.queues[queue].settings;
        let class = new.labels.class;
        settings.max_messages.is_none_or(|max| messages < share(max, class))
            && bytes + new.bytes <= share(settings.max_bytes, class)
    }

    /// The oldest ready ones of the least critical that are not more critical than the new one make room for it, be they
    /// durable or not; nobody does if that would not be enough.
    fn judge_drops(&self, queue: usize, new: &New, mut messages: u64, mut bytes: u64) -> Verdict {
        let ready = self.of(queue, Phase::Ready).filter(|(_, one)| one.labels.class >= new.labels.class);
        let mut ready: Vec<_> = ready.collect();
        ready.sort_by_key(|(_, one)| (std::cmp::Reverse(one.labels.class), one.place));
        let mut victims = Vec::new();
        for (seq, one) in ready {
            victims.push(seq);
            (messages, bytes) = (messages - 1, bytes - one.bytes);
            if self.fits(queue, new, messages, bytes) {
                let room_for_key = self.has_room_for_key(queue, new, &victims);
                return if room_for_key { Verdict::AcceptFor(victims) } else { Verdict::Full };
            }
        }
        Verdict::Full
    }

    /// Whether nothing is unfinished in a queue but what somebody has and nothing waits for.
    fn is_empty(&self, queue: usize) -> bool {
        let mut unfinished =
            self.messages.values().filter(|one| one.queue == queue && !one.phase.is_terminal());
        unfinished.all(|one| one.phase == Phase::Leased && one.labels.group.is_none())
    }

    fn judge_wait(&self, queue: usize) -> Verdict {
        let Queue { settings, paused, measured, .. } = &self.queues[queue];
        let capacity = settings.concurrency.zip(settings.expected_service_time);
        match (settings.max_wait, capacity) {
            // Nothing can be predicted while nothing is handed out.
            (Some(_), Some(_)) if *paused || self.is_full_of_dead(queue) => Verdict::Accept,
            // Whatever was measured: with nothing before it, a message for workers starts as soon as one asks.
            (Some(_), _) if self.queues[queue].target.is_none() && self.is_empty(queue) => Verdict::Accept,
            // Where turns and shares decide, the pond may estimate.
            (Some(_), _) if *measured || !self.is_uniform(queue) => Verdict::AcceptOrTooLate,
            (Some(max), Some((workers, each))) => {
                let ahead = self.of(queue, Phase::Ready).count() + self.of(queue, Phase::Backoff).count();
                let wait = ahead as f64 * each.as_secs_f64() / f64::from(workers);
                if wait > max.as_secs_f64() + 1e-9 { Verdict::TooLate } else { Verdict::Accept }
            }
            _ => Verdict::Accept,
        }
    }
}
