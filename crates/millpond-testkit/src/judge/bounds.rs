//! The judgement of caps, rates and depths.
//!
//! Owns the counting of what surely was there at once. Must never count what only may have been there.

use super::{Case, Rule};
use crate::trail::{Bound, Micros, Offer, Offered, Overflow, Rules, Span, Told};
use std::collections::BTreeMap;

/// Places that were surely taken, from one moment on until another.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// When each is free again, and how many at that moment.
    until: BTreeMap<Micros, usize>,
    count: usize,
}

impl Taken {
    /// How many are taken at `at`.
    pub(super) fn at(&mut self, at: Micros) -> usize {
        while let Some(entry) = self.until.first_entry().filter(|entry| *entry.key() <= at) {
            self.count -= entry.remove();
        }
        self.count
    }

    pub(super) fn take(&mut self, until: Micros) {
        self.take_many(until, 1);
    }

    fn take_many(&mut self, until: Micros, places: usize) {
        self.count += places;
        *self.until.entry(until).or_default() += places;
    }
}

/// What surely is in one queue, as offers come in the order of their answers.
#[derive(Debug, Default)]
struct There<'a> {
    messages: Taken,
    bytes: Taken,
    /// All that came, and until when each surely is there.
    came: Vec<(&'a Offer, Micros)>,
}

impl<'a> There<'a> {
    fn add(&mut self, offer: &'a Offer, until: Micros) {
        self.messages.take(until);
        self.bytes.take_many(until, usize::try_from(offer.bytes).unwrap_or(usize::MAX));
        self.came.push((offer, until));
    }

    /// Messages and bytes that are there when `offer` is answered, without those of a class above `class` that may have
    /// been let in after it.
    fn without_rivals_above(&mut self, class: u8, offer: &Offer) -> (u64, u64) {
        let at = offer.span.ended;
        let (mut messages, mut bytes) = (self.messages.at(at) as u64, self.bytes.at(at) as u64);
        let under_way = self.came.iter().rev().take_while(|(other, _)| other.span.ended >= offer.span.sent);
        let there = under_way.filter(|(_, until)| *until > at).map(|(other, _)| other);
        // Of one batch, what comes first is let in first.
        for other in there.filter(|other| other.class < class && other.batch.0 != offer.batch.0) {
            messages -= 1;
            bytes -= other.bytes;
        }
        (messages, bytes)
    }
}

/// What perhaps was there, from one moment on until another.
#[derive(Debug, Default)]
pub(super) struct Perhaps {
    /// When it came or went, with the bytes; sorted, with the sums up to each.
    came: Vec<(Micros, u64)>,
    gone: Vec<(Micros, u64)>,
}

impl Perhaps {
    pub(super) fn add(&mut self, from: Micros, until: Micros, bytes: u64) {
        self.came.push((from, bytes));
        self.gone.push((until, bytes));
    }

    pub(super) fn sort(&mut self) {
        for moments in [&mut self.came, &mut self.gone] {
            moments.sort_unstable();
            let mut sum = 0_u64;
            for (_, bytes) in moments {
                sum = sum.saturating_add(*bytes);
                *bytes = sum;
            }
        }
    }

    /// Messages and bytes that were perhaps there at some time within `span`.
    pub(super) fn within(&self, span: Span) -> (u64, u64) {
        let sum = |moments: &[(Micros, u64)], count: usize| {
            let bytes = count.checked_sub(1).map_or(0, |last| moments[last].1);
            (count as u64, bytes)
        };
        let came = sum(&self.came, self.came.partition_point(|(at, _)| *at <= span.ended));
        let gone = sum(&self.gone, self.gone.partition_point(|(at, _)| *at < span.sent));
        (came.0 - gone.0, came.1.saturating_sub(gone.1))
    }
}

/// What work of a class may use of a bound, rounded up.
fn share(bound: u64, class: u8) -> u64 {
    let quarters = [4, 4, 3, 2][usize::from(class)];
    if bound == u64::MAX { bound } else { (bound * quarters).div_ceil(4) }
}

impl Case<'_> {
    /// All rules that may have been in force at some time within `span`.
    pub(super) fn all_in_force(&self, queue: u32, span: Span) -> &[(Span, &Rules)] {
        let Some(rules) = self.rules.get(&queue) else { return &[] };
        let sure = rules.iter().rposition(|(changed, _)| changed.ended < span.sent).unwrap_or(0);
        let until = rules.iter().filter(|(changed, _)| changed.sent <= span.ended).count();
        &rules[sure.min(until.saturating_sub(1))..until.max(1)]
    }

    /// The widest value that may have been in force at some time within `span`.
    pub(super) fn in_force<T: Ord + Copy>(
        &self,
        queue: u32,
        span: Span,
        of: impl Fn(&Rules) -> T,
    ) -> Option<T> {
        self.all_in_force(queue, span).iter().map(|(_, rules)| of(rules)).max()
    }

    /// What all rules have in common that may have been in force at some time within `span`.
    pub(super) fn agreed<T: PartialEq>(&self, queue: u32, span: Span, of: impl Fn(&Rules) -> T) -> Option<T> {
        let mut values = self.all_in_force(queue, span).iter().map(|(_, rules)| of(rules));
        let first = values.next()?;
        values.all(|other| other == first).then_some(first)
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
            let Some(number) = one.target else { continue };
            let Some(target) = self.targets.get(&number) else { continue };
            let at_target = targets.entry(number).or_default();
            let taken = at_target.at(at);
            if taken >= target.concurrency as usize {
                let detail = format!("target {number} has {taken} calls at {at}, and gets another one");
                violations.push((u64::from(number), detail));
            }
            at_target.take(self.lives[&one.id].target_free(one, target.hold, &self.clocks));
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
                .filter(|target| self.targets.get(target).is_some_and(|target| target.interval > 0));
            if let Some(target) = target {
                calls.entry(target).or_default().push(one.span);
            }
        }
        let mut violations = Vec::new();
        for (target, mut calls) in calls {
            let interval = self.targets[&target].interval;
            calls.sort_unstable_by_key(|span| span.ended);
            for (index, call) in calls.iter().enumerate() {
                let at = call.ended;
                let boot = self.clocks.boot_of(at);
                let known = |span: &&Span| span.ended > boot || !self.clocks.may_be_lost(**span, at);
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

    /// What surely is there leaves no room beyond a bound; of a bound on bytes nothing is left for one byte too much.
    pub(super) fn judge_depth(&mut self) {
        let mut accepted: Vec<(&Offer, Micros, bool)> = Vec::new();
        for life in self.lives.values() {
            let Some(first) = life.offers.iter().min_by_key(|offer| offer.span.ended) else { continue };
            // What may have been stored earlier, without an answer, was perhaps not let in here.
            let let_in = life.perhaps.is_empty();
            let until = life.end_from(&self.clocks).unwrap_or(Micros::MAX);
            accepted.push((first, until, let_in));
        }
        accepted.sort_by_key(|(offer, ..)| (offer.span.ended, offer.batch));
        let mut queues: BTreeMap<u32, There<'_>> = BTreeMap::new();
        let mut violations = Vec::new();
        for (offer, until, let_in) in accepted {
            let there = queues.entry(offer.queue).or_default();
            if let_in && self.widest(offer.queue, Rules::drops_oldest) != Some(true) {
                violations.extend(self.beyond_bounds(offer, there).map(|detail| (offer.queue, detail)));
            }
            there.add(offer, until);
        }
        for (queue, detail) in violations {
            self.violated(Rule::Depth, u64::from(queue), format!("queue {queue} {detail}"));
        }
    }

    /// The bound that cannot have been kept with everything that is `there`. Of what was under way at once, any may have
    /// been let in last, by the share of its own class: so, for each class, what was more critical and may have come
    /// later is left out, and the last one of the rest had that class's share at most.
    fn beyond_bounds(&self, offer: &Offer, there: &mut There<'_>) -> Option<String> {
        let (queue, at) = (offer.queue, offer.span.ended);
        let most_messages =
            self.in_force(queue, offer.span, |rules| rules.max_messages.unwrap_or(u64::MAX))?;
        let most_bytes = self.in_force(queue, offer.span, |rules| rules.max_bytes)?;
        (0..=offer.class).find_map(|class| {
            let (messages, bytes) = there.without_rivals_above(class, offer);
            let bytes = bytes + offer.bytes;
            if messages >= share(most_messages, class) {
                return Some(format!("accepts at {at} with {messages} there"));
            }
            (bytes > share(most_bytes, class)).then(|| format!("accepts at {at} and holds {bytes} bytes"))
        })
    }

    /// Nothing is refused for want of room by a queue in which there surely was room.
    pub(super) fn judge_refusals(&mut self) {
        let mut there: BTreeMap<u32, Perhaps> = BTreeMap::new();
        for life in self.lives.values() {
            let Some(queue) = life.queue else { continue };
            let from = life.all_offers().map(|offer| offer.span.sent).min().unwrap_or(Micros::MIN);
            let bytes = life.all_offers().map(|offer| offer.bytes).max().unwrap_or(u64::MAX / 4);
            there.entry(queue).or_default().add(from, life.surely_gone(), bytes);
        }
        for offer in self.offers.iter().filter(|offer| offer.answer == Offered::Unknown) {
            there.entry(offer.queue).or_default().add(offer.span.sent, Micros::MAX, offer.bytes);
        }
        there.values_mut().for_each(Perhaps::sort);
        let mut violations = Vec::new();
        for offer in &self.offers {
            let Told::ComeBack { bound, .. } = offer.told else { continue };
            let (queue, span) = (offer.queue, offer.span);
            let rules = self.all_in_force(queue, span);
            if rules.is_empty() || rules.iter().any(|(_, rules)| rules.overflow != Overflow::Refused) {
                continue;
            }
            let (count, bytes) = there.get(&queue).map_or((0, 0), |there| there.within(span));
            let all = rules.iter().map(|(_, rules)| rules);
            let fits = match bound {
                Bound::Messages => {
                    let least = all.map(|rules| rules.max_messages.unwrap_or(u64::MAX)).min();
                    least.is_some_and(|least| count < share(least, offer.class))
                }
                Bound::Bytes => {
                    let least = all.map(|rules| rules.max_bytes).min();
                    least.is_some_and(|least| bytes.saturating_add(offer.bytes) <= share(least, offer.class))
                }
                Bound::Wait | Bound::Other => false,
            };
            if fits {
                let detail =
                    format!("refused at {span:?} with at most {count} messages, {bytes} bytes there");
                violations.push((offer.payload, detail));
            }
        }
        for (payload, detail) in violations {
            self.violated(Rule::Depth, payload, detail);
        }
    }
}
