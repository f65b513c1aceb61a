//! The judgement of what callers are told: when their message starts, how many come before it, when to come back.
//!
//! Owns what can be seen to be wrong from outside. Must never judge how good a forecast is.

use super::bounds::Perhaps;
use super::{Case, Pause, Rule};
use crate::trail::{Answer, Micros, Offer, Offered, Order, Said, Span, Told};
use std::collections::BTreeMap;

/// A caller who is sent away for less is given the place behind the one before; beyond, places are spread.
const IN_PLACES: Micros = 60_000_000;
/// Nobody is told to come back sooner.
const COME_BACK_MIN: Micros = 1_000_000;

/// What is ready in one queue, for sure and perhaps.
#[derive(Debug, Default)]
struct Ready {
    /// When each began to be ready for sure, and when it may have stopped; sorted.
    begins: Vec<Micros>,
    stops: Vec<Micros>,
    perhaps: Perhaps,
}

impl Ready {
    /// How many were ready throughout `span` at least, and at some time in it at most.
    fn within(&self, span: Span) -> (u64, u64) {
        let begun = self.begins.partition_point(|at| *at < span.sent);
        let stopped = self.stops.partition_point(|at| *at <= span.ended);
        (begun.saturating_sub(stopped) as u64, self.perhaps.within(span).0)
    }
}

/// Refusals of one batch, all of one class and queue at one moment.
type Refused = BTreeMap<(u32, u8, Span, u64), Vec<(usize, Micros, u64)>>;

/// How the calls of one target went: when, and whether that was a failure for sure.
type Calls = Vec<(Micros, bool)>;

impl Case<'_> {
    pub(super) fn judge_promises(&mut self) {
        let ready = self.ready();
        let calls = self.calls();
        let mut violations = Vec::new();
        for offer in &self.offers {
            let Told::Promise { duplicate, position, start } = offer.told else { continue };
            if let Some(start) = start {
                let why = self.may_not_promise(offer, &calls);
                violations.extend(why.map(|why| (offer.payload, format!("promised {start:?}, and {why}"))));
                violations.extend(self.judge_start(offer, start, duplicate).map(|why| (offer.payload, why)));
            }
            if let (Some(position), false, Some(ready)) = (position, duplicate, ready.get(&offer.queue)) {
                let (least, most) = ready.within(offer.span);
                // It does not come before itself.
                let most = most.saturating_sub(1);
                if !(least..=most).contains(&position) {
                    let detail = format!("{position} were said to start before it, {least} to {most} waited");
                    violations.push((offer.payload, detail));
                }
            }
        }
        violations.extend(self.judge_places());
        for (payload, detail) in violations {
            self.violated(Rule::Promise, payload, detail);
        }
    }

    /// What makes it sure that nothing could be promised.
    fn may_not_promise(&self, offer: &Offer, calls: &BTreeMap<u32, Calls>) -> Option<&'static str> {
        let (queue, span) = (offer.queue, offer.span);
        if self.surely_paused(queue, span) {
            return Some("the queue was paused");
        }
        let target = self.agreed(queue, span, |rules| rules.target)?;
        let down = target
            .is_some_and(|target| calls.get(&target).is_some_and(|calls| self.is_down(target, calls, span)));
        down.then_some("its target was down")
    }

    /// Whether a queue was paused all the time.
    fn surely_paused(&self, queue: u32, span: Span) -> bool {
        let Some(pauses) = self.pauses.get(&queue) else { return false };
        let deleted = self.deleted.get(&queue).map_or(&[][..], Vec::as_slice);
        let before = |pause: &&Pause| pause.paused && pause.is_sure && pause.span.ended <= span.sent;
        let begun = pauses.iter().filter(before).map(|pause| pause.span);
        let Some(begun) = begun.max_by_key(|span| span.ended) else { return false };
        let resumed = pauses.iter().filter(|pause| !pause.paused).map(|pause| pause.span);
        let mut undone = resumed.chain(deleted.iter().copied());
        !undone.any(|undone| undone.sent <= span.ended && undone.ended >= begun.sent)
    }

    /// Whether the latest calls of a target before `span`, by the server that answered, surely failed, so many in a
    /// row that its breaker is open, and none within it may have gone well.
    fn is_down(&self, target: u32, calls: &Calls, span: Span) -> bool {
        let down_after = self.targets.get(&target).map_or(0, |target| target.down_after as usize);
        let boot = self.clocks.boot_of(span.sent);
        let from = calls.partition_point(|(at, _)| *at <= boot);
        let until = calls.partition_point(|(at, _)| *at < span.sent);
        let within = calls.partition_point(|(at, _)| *at <= span.ended);
        let row = calls[from.min(until)..until].iter().rev().take_while(|(_, failed)| *failed).count();
        down_after > 0 && row >= down_after && calls[until..within].iter().all(|(_, failed)| *failed)
    }

    /// What was said of each target's calls. What was said in time, and first, surely counts.
    fn calls(&self) -> BTreeMap<u32, Calls> {
        let mut calls: BTreeMap<u32, Calls> = BTreeMap::new();
        for one in &self.hand_outs {
            let Some(target) = one.target else { continue };
            let life = &self.lives[&one.id];
            let over = life.lease_over(one, &self.clocks, Micros::MAX);
            let words = life.words.iter().filter(|word| word.hand_out == one.hand_out);
            for (index, word) in words.enumerate() {
                let at = word.span.ended;
                match word.said {
                    Said::Release => {}
                    Said::Retry if index > 0 || at >= over || word.answer == Answer::Refused => {}
                    Said::Retry => calls.entry(target).or_default().push((at, true)),
                    Said::Complete | Said::Dead => calls.entry(target).or_default().push((at, false)),
                }
            }
        }
        for calls in calls.values_mut() {
            calls.sort_unstable();
        }
        calls
    }

    /// Half of all cases come before nine of ten; nothing starts before its delay is over, and what would probably wait
    /// longer than the queue promises is not accepted.
    fn judge_start(&self, offer: &Offer, (half, most): (Micros, Micros), duplicate: bool) -> Option<String> {
        if half > most {
            return Some(format!("promised in half of all cases {half}, in nine of ten {most}"));
        }
        if duplicate {
            return None;
        }
        if half < offer.delay {
            return Some(format!("promised {half} with a delay of {}", offer.delay));
        }
        // Where the order depends on how old the oldest is, dropping it may change the order that was predicted by.
        let longest = self.in_force(offer.queue, offer.span, |rules| match (rules.order, rules.max_wait) {
            (Order::First, Some(longest)) => longest.max(offer.delay),
            _ => Micros::MAX,
        });
        longest
            .filter(|longest| half > *longest)
            .map(|longest| format!("accepted with a start in {half}, where at most {longest} is promised"))
    }

    /// Whoever is refused at one moment after another one is sent no earlier place, but for a tenth of chance.
    fn judge_places(&self) -> Vec<(u64, String)> {
        let mut refused = Refused::new();
        let mut found = Vec::new();
        for offer in &self.offers {
            let Told::ComeBack { after, .. } = offer.told else { continue };
            if after < COME_BACK_MIN {
                found.push((offer.payload, format!("is to come back in {after}")));
            }
            let (batch, index) = offer.batch;
            let places = refused.entry((offer.queue, offer.class, offer.span, batch)).or_default();
            places.push((index, after, offer.payload));
        }
        for mut places in refused.into_values() {
            places.sort_unstable();
            for pair in places.windows(2) {
                let ((_, first, _), (_, second, payload)) = (pair[0], pair[1]);
                if first < IN_PLACES && second + second / 10 + 1 < first {
                    found.push((payload, format!("is to come back in {second}, the one before in {first}")));
                }
            }
        }
        found
    }

    /// What was ready, by queue.
    fn ready(&self) -> BTreeMap<u32, Ready> {
        let mut all: BTreeMap<u32, Ready> = BTreeMap::new();
        for life in self.lives.values() {
            let Some(queue) = life.queue else { continue };
            let ready = all.entry(queue).or_default();
            let mut from = life.all_offers().map(|offer| offer.span.sent).min().unwrap_or(Micros::MIN);
            let gone = life.surely_gone();
            for one in &life.hand_outs {
                // A hand-out that may be lost leaves it where it was.
                let left =
                    if self.clocks.first_loss(one.span).is_some() { Micros::MAX } else { one.span.ended };
                ready.perhaps.add(from, left.max(from), 0);
                from = life.place_free(one, &self.clocks, Micros::MAX).max(from);
            }
            ready.perhaps.add(from, gone.max(from), 0);
            let accepted = life.offers.iter().map(|offer| offer.span.ended).min();
            let Some(begin) = accepted.filter(|_| life.all_offers().all(|offer| offer.delay == 0)) else {
                continue;
            };
            let handed = life.hand_outs.first().map(|one| one.span.sent);
            let unheard = life.unheard.iter().map(|(at, _)| *at);
            let stop = unheard.chain(handed).chain(life.end_from(&self.clocks)).min().unwrap_or(Micros::MAX);
            ready.begins.push(begin);
            ready.stops.push(stop.max(begin));
        }
        for offer in self.offers.iter().filter(|offer| offer.answer == Offered::Unknown) {
            let ready = all.entry(offer.queue).or_default();
            ready.perhaps.add(offer.span.sent, Micros::MAX, 0);
        }
        for ready in all.values_mut() {
            ready.begins.sort_unstable();
            ready.stops.sort_unstable();
            ready.perhaps.sort();
        }
        all
    }
}
