//! The judgement of caps, rates and depths.
//!
//! Owns the counting of what surely was there at once. Must never count what only may have been there.

use super::{Case, Rule};
use crate::trail::{Micros, Offer, Rules, Span};
use std::collections::BTreeMap;

/// Places that were surely taken, from one moment on until another.
#[derive(Debug, Default)]
struct Taken {
    /// When each is free again, and how many at that moment.
    until: BTreeMap<Micros, usize>,
    count: usize,
}

impl Taken {
    /// How many are taken at `at`.
    fn at(&mut self, at: Micros) -> usize {
        while let Some(entry) = self.until.first_entry().filter(|entry| *entry.key() <= at) {
            self.count -= entry.remove();
        }
        self.count
    }

    fn take(&mut self, until: Micros) {
        self.count += 1;
        *self.until.entry(until).or_default() += 1;
    }
}

/// What work of a class may use of a bound, rounded up.
fn share(bound: u64, quarters: u64) -> u64 {
    if bound == u64::MAX { bound } else { (bound * quarters).div_ceil(4) }
}

impl Case<'_> {
    /// The widest value that may have been in force at some time within `span`.
    fn in_force<T: Ord + Copy>(&self, queue: u32, span: Span, of: impl Fn(&Rules) -> T) -> Option<T> {
        let rules = self.rules.get(&queue)?;
        let sure = rules.iter().rposition(|(changed, _)| changed.ended <= span.sent).unwrap_or(0);
        let until = rules.iter().filter(|(changed, _)| changed.sent <= span.ended).count();
        rules[sure.min(until.saturating_sub(1))..until.max(1)].iter().map(|(_, rules)| of(rules)).max()
    }

    pub(super) fn judge_caps(&mut self) {
        let mut hand_outs = self.hand_outs.clone();
        hand_outs.sort_by_key(|one| (one.span.ended, one.hand_out));
        let mut queues: BTreeMap<u32, Taken> = BTreeMap::new();
        let mut targets: BTreeMap<u32, Taken> = BTreeMap::new();
        let mut consumers: BTreeMap<(u32, u64), Taken> = BTreeMap::new();
        let mut violations = Vec::new();
        for one in hand_outs {
            let at = one.span.ended;
            let until = self.lives[&one.id].place_free(one, &self.clocks, Micros::MAX);
            let in_queue = queues.entry(one.queue).or_default();
            let taken = in_queue.at(at);
            let cap = self.in_force(one.queue, one.span, |rules| rules.concurrency.unwrap_or(u32::MAX));
            if cap.is_some_and(|cap| taken >= cap as usize) {
                let queue = one.queue;
                let detail = format!("queue {queue} has {taken} in work at {at}, and hands out another one");
                violations.push((u64::from(queue), detail));
            }
            in_queue.take(until);
            if let Some(consumer) = one.consumer {
                let of_consumer = consumers.entry((one.queue, consumer)).or_default();
                let taken = of_consumer.at(at);
                let most = self.in_force(one.queue, one.span, |rules| rules.prefetch);
                if most.is_some_and(|most| taken >= most as usize) {
                    let detail = format!("consumer {consumer} holds {taken} at {at}, and gets another one");
                    violations.push((u64::from(one.queue), detail));
                }
                of_consumer.take(until);
            }
            let Some(target) = one.target else { continue };
            let at_target = targets.entry(target).or_default();
            let taken = at_target.at(at);
            if self.targets.get(&target).is_some_and(|(cap, _)| taken >= *cap as usize) {
                let detail = format!("target {target} has {taken} calls at {at}, and gets another one");
                violations.push((u64::from(target), detail));
            }
            at_target.take(until);
        }
        for (subject, detail) in violations {
            self.violated(Rule::Cap, subject, detail);
        }
    }

    /// Between two calls there is at least an interval, over restarts as well: so in any window of length w, at most
    /// w ÷ interval + 1 start. Of a call that was perhaps not remembered, whoever starts anew knows nothing.
    pub(super) fn judge_rates(&mut self) {
        let mut calls: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for one in &self.hand_outs {
            let target = one
                .target
                .filter(|target| self.targets.get(target).is_some_and(|(_, interval)| *interval > 0));
            if let Some(target) = target {
                calls.entry(target).or_default().push(one.span);
            }
        }
        let mut violations = Vec::new();
        for (target, mut calls) in calls {
            let interval = self.targets[&target].1;
            calls.sort_unstable_by_key(|span| span.ended);
            for (index, call) in calls.iter().enumerate() {
                let at = call.ended;
                let boot = self.clocks.boot_of(at);
                let known = |span: &&Span| span.ended >= boot || !self.clocks.may_be_lost(**span, at);
                let Some(before) = calls[..index].iter().rev().find(known) else { continue };
                // A microsecond, because intervals need not be whole ones.
                let begun = Span { sent: before.ended, ended: before.ended };
                if at < self.clocks.earliest(begun, interval) - 1 {
                    let detail =
                        format!("target {target} is called at {} and too soon again, at {at}", before.ended);
                    violations.push((u64::from(target), detail));
                }
            }
        }
        for (subject, detail) in violations {
            self.violated(Rule::Rate, subject, detail);
        }
    }

    pub(super) fn judge_depth(&mut self) {
        let mut accepted: Vec<(&Offer, Micros, bool)> = Vec::new();
        for life in self.lives.values() {
            let Some(first) = life.offers.iter().min_by_key(|offer| offer.span.ended) else { continue };
            // What may have been stored earlier, without an answer, was perhaps not let in here.
            let let_in = life.perhaps.is_empty();
            let until = life.end_from(&self.clocks).unwrap_or(Micros::MAX);
            accepted.push((first, until, let_in));
        }
        accepted.sort_by_key(|(offer, ..)| offer.span.ended);
        let mut queues: BTreeMap<u32, Taken> = BTreeMap::new();
        let mut violations = Vec::new();
        for (offer, until, let_in) in accepted {
            let (span, queue) = (offer.span, offer.queue);
            let there = queues.entry(queue).or_default();
            let count = there.at(span.ended);
            let bound = self.in_force(queue, span, |rules| rules.max_messages.unwrap_or(u64::MAX));
            let bound = bound.map(|bound| share(bound, offer.share_quarters));
            let may_drop = self.widest(queue, |rules| rules.drops_oldest) == Some(true);
            if let_in && !may_drop && bound.is_some_and(|bound| count as u64 >= bound) {
                let detail = format!("queue {queue} accepts at {} with {count} there", span.ended);
                violations.push((u64::from(queue), detail));
            }
            there.take(until);
        }
        for (subject, detail) in violations {
            self.violated(Rule::Depth, subject, detail);
        }
    }
}
