//! The judge of a trail: what a durable, at-least-once, fenced, ordered, bounded queue may have shown to the world.
//!
//! Owns the rules, after Jepsen's `total-queue`, with time, groups, keys, caps and rates. What was not answered is
//! unknown, and both outcomes are right. Must never know how a server works. Linear in the number of events, apart
//! from sorting.

mod bounds;
mod clocks;
mod dead;
mod groups;
mod keys;
mod life;
mod order;
mod promises;

use crate::trail::{
    Answer, Event, Extension, HandOut, HandOutId, MessageId, Micros, Offer, Offered, Replay, Request, Rules,
    Span, Stand, Word,
};
use clocks::Clocks;
use std::collections::{BTreeMap, BTreeSet};

/// A rule that a server must keep. The numbers are those of the invariants that every test of the engine rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 1: what was accepted is somewhere at the end, and only where its life can have led it.
    Conservation,
    /// 2: what is handed out or listed was enqueued, as often as it was accepted at most, and is what was sent.
    NoPhantom,
    /// 3: two never hold one message at once.
    NoOverlap,
    /// 3: a hand-out that is over decides nothing.
    StaleRefused,
    /// 4: never before it is due.
    NotEarly,
    /// 4: not later either.
    NotLate,
    /// 4: what has expired is not handed out.
    NotExpired,
    /// 5: no more attempts and hand-outs than allowed.
    Attempts,
    /// 6: of one group, first comes first.
    GroupOrder,
    /// 6: of one group, one at a time.
    GroupAlone,
    /// 7: one key is one message.
    Keys,
    /// 8: in no window more starts than the rate allows.
    Rate,
    /// 9: never more in work than the cap.
    Cap,
    /// 9: never more messages or bytes than the bound, and nothing refused for want of room that is there.
    Depth,
    /// 9: nothing goes out while there is no room for its dead letter, and what expires finds room or stays.
    DeadLetters,
    /// Of one tenant's work in one class, what came first goes first, or what came last, as the queue says.
    Order,
    /// Within a class tenants take turns.
    Turns,
    /// Every class has its share, or a higher one goes before.
    Shares,
    /// What is said of the start and of the way back can be kept.
    Promise,
    /// What was withdrawn with its whole queue is not handed out.
    Purged,
    /// 10: what was refused was not stored.
    RefusedNotStored,
    /// 10: what was accepted is not shed.
    NotShed,
    /// 11: what was done stays done.
    StaysDone,
    /// 11: nothing is done by itself.
    DoneBySomebody,
    /// 12: everything comes to its end.
    Drains,
}

/// A rule that was broken, and by what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The message, payload, queue or target that broke it; the detail says which.
    pub subject: u64,
    /// What happened.
    pub detail: String,
}

/// What a trail amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were acknowledged.
    pub acknowledged: usize,
    /// Enqueues that were refused.
    pub refused: usize,
    /// Enqueues without an answer.
    pub unknown: usize,
    /// Hand-outs.
    pub hand_outs: usize,
    /// Hand-outs of messages that had been handed out before.
    pub repeated: usize,
    /// Messages by where they stand at the end.
    pub ends: BTreeMap<Stand, usize>,
}

/// Everything that was seen of one message.
#[derive(Debug, Default)]
struct Life<'a> {
    queue: Option<u32>,
    payloads: BTreeSet<u64>,
    /// Offers that were answered with this message.
    offers: Vec<&'a Offer>,
    /// Offers without an answer whose payload it carries.
    perhaps: Vec<&'a Offer>,
    hand_outs: Vec<&'a HandOut>,
    /// Those that were not refused, by when they were sent.
    words: Vec<&'a Word>,
    extensions: Vec<&'a Extension>,
    withdrawals: Vec<&'a Request>,
    replays: Vec<Span>,
    burials: Vec<&'a Request>,
    taken_back: BTreeMap<HandOutId, Micros>,
    /// When it may have been handed out without anyone's hearing of it, and for how long.
    unheard: Vec<(Micros, Micros)>,
    /// When its whole queue was withdrawn, and whether that surely counts.
    purges: Vec<(Span, bool)>,
    looks: Vec<(Span, Stand)>,
    /// Its queue may give up old work for new work.
    may_be_dropped: bool,
    ends: Vec<(Micros, Stand)>,
}

/// What a target can take.
#[derive(Debug, Clone, Copy)]
struct Target {
    concurrency: u32,
    interval: Micros,
    hold: Micros,
    lease: Micros,
    down_after: u32,
}

/// A request to pause a queue, or to resume it.
#[derive(Debug, Clone, Copy)]
struct Pause {
    paused: bool,
    span: Span,
    is_sure: bool,
}

/// The trail, sorted by what it is about.
#[derive(Debug, Default)]
struct Case<'a> {
    clocks: Clocks,
    rules: BTreeMap<u32, Vec<(Span, &'a Rules)>>,
    deleted: BTreeMap<u32, Vec<Span>>,
    targets: BTreeMap<u32, Target>,
    failed_starts: Vec<Micros>,
    /// Requests to pause queues or to resume them that were not refused.
    pauses: BTreeMap<u32, Vec<Pause>>,
    /// Purges that were not refused, and whether they surely count.
    purges: BTreeMap<u32, Vec<(Span, bool)>>,
    offers: Vec<&'a Offer>,
    hand_outs: Vec<&'a HandOut>,
    lives: BTreeMap<MessageId, Life<'a>>,
    summary: Summary,
    violations: Vec<Violation>,
}

/// Judges a whole trail, at whose end everything has drained. All violations, sorted; none is good.
pub fn judge(events: &[Event]) -> (Summary, Vec<Violation>) {
    let mut case = Case::default();
    let mut replays: Vec<&Replay> = Vec::new();
    for event in events {
        case.gather(event, &mut replays);
    }
    case.clocks.sort();
    case.finish_lives(&replays);
    case.judge_lives();
    case.judge_offers();
    case.judge_keys();
    case.judge_groups();
    case.judge_caps();
    case.judge_rates();
    case.judge_depth();
    case.judge_refusals();
    case.judge_dead_letters();
    case.judge_order();
    case.judge_promises();
    case.violations.sort();
    case.violations.dedup();
    (case.summary, case.violations)
}

impl<'a> Case<'a> {
    fn life(&mut self, id: MessageId) -> &mut Life<'a> {
        self.lives.entry(id).or_default()
    }

    fn gather(&mut self, event: &'a Event, replays: &mut Vec<&'a Replay>) {
        match event {
            Event::Rules { queue, rules, span } => {
                self.rules.entry(*queue).or_default().push((*span, rules));
            }
            Event::QueueDeleted { queue, span } => self.deleted.entry(*queue).or_default().push(*span),
            Event::Target { target, concurrency, interval, hold, lease, down_after } => {
                let (concurrency, interval, hold, lease) = (*concurrency, *interval, *hold, *lease);
                let down_after = *down_after;
                self.targets.insert(*target, Target { concurrency, interval, hold, lease, down_after });
            }
            Event::FailedStart { at } => self.failed_starts.push(*at),
            Event::Pause { answer: Answer::Refused, .. } | Event::Purge { answer: Answer::Refused, .. } => {}
            Event::Pause { queue, paused, span, answer } => {
                let pause = Pause { paused: *paused, span: *span, is_sure: *answer == Answer::Accepted };
                self.pauses.entry(*queue).or_default().push(pause);
            }
            Event::Purge { queue, span, answer } => {
                self.purges.entry(*queue).or_default().push((*span, *answer == Answer::Accepted));
            }
            Event::Offer(offer) => self.gather_offer(offer),
            Event::HandOut(hand_out) => self.gather_hand_out(hand_out),
            Event::TakenBack { id, hand_out, at } => {
                self.life(*id).taken_back.insert(*hand_out, *at);
            }
            Event::Unheard { id, lease, at, .. } => self.life(*id).unheard.push((*at, *lease)),
            Event::Word(word) if word.answer == Answer::Refused => {}
            Event::Word(word) => self.life(word.id).words.push(word),
            Event::Extension(wish) if wish.answer == Answer::Refused => {}
            Event::Extension(wish) => self.life(wish.id).extensions.push(wish),
            Event::Withdrawal(request) if request.answer == Answer::Refused => {}
            Event::Withdrawal(request) => self.life(request.id).withdrawals.push(request),
            Event::Replay(replay) if replay.answer == Answer::Refused => {}
            Event::Replay(replay) => replays.push(replay),
            Event::Burial(request) if request.answer == Answer::Refused => {}
            Event::Burial(request) => self.life(request.id).burials.push(request),
            Event::Look { id, span, stand } => self.life(*id).looks.push((*span, *stand)),
            Event::Boot { at } => self.clocks.boots.push(*at),
            Event::Death { at, kept } => self.clocks.deaths.push((*at, *kept)),
            Event::Step { at, by } => self.clocks.steps.push((*at, *by)),
            Event::End { id, queue, stand, payload, at } => {
                let life = self.life(*id);
                life.queue = Some(*queue);
                life.payloads.extend(*payload);
                life.ends.push((*at, *stand));
                *self.summary.ends.entry(*stand).or_default() += 1;
            }
        }
    }

    fn gather_offer(&mut self, offer: &'a Offer) {
        self.offers.push(offer);
        match offer.answer {
            Offered::Accepted(id) => {
                let life = self.life(id);
                life.queue = Some(offer.queue);
                life.payloads.insert(offer.payload);
                life.offers.push(offer);
            }
            Offered::Refused => self.summary.refused += 1,
            Offered::Unknown => self.summary.unknown += 1,
        }
    }

    fn gather_hand_out(&mut self, hand_out: &'a HandOut) {
        self.hand_outs.push(hand_out);
        self.summary.hand_outs += 1;
        let life = self.life(hand_out.id);
        life.queue = Some(hand_out.queue);
        life.payloads.extend(hand_out.payload);
        life.hand_outs.push(hand_out);
        self.summary.repeated += usize::from(self.lives[&hand_out.id].hand_outs.len() > 1);
    }

    /// Adds what concerns many messages at once, and puts everything in the order of time.
    fn finish_lives(&mut self, replays: &[&Replay]) {
        let mut unknown: BTreeMap<u64, Vec<&Offer>> = BTreeMap::new();
        for &offer in self.offers.iter().filter(|offer| offer.answer == Offered::Unknown) {
            unknown.entry(offer.payload).or_default().push(offer);
        }
        let mut of_all: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for replay in replays {
            match &replay.ids {
                Some(ids) => {
                    for id in ids {
                        self.life(*id).replays.push(replay.span);
                    }
                }
                None => of_all.entry(replay.queue).or_default().push(replay.span),
            }
        }
        let pushes = self.pushes_unheard();
        let drops = |queue: &u32| self.widest(*queue, Rules::drops_oldest) == Some(true);
        let dropping: BTreeSet<u32> = self.rules.keys().copied().filter(drops).collect();
        for life in self.lives.values_mut() {
            life.may_be_dropped = life.queue.is_some_and(|queue| dropping.contains(&queue));
            let of_payload = life.payloads.iter().filter_map(|payload| unknown.get(payload));
            life.perhaps.extend(of_payload.flatten());
            if let Some(spans) = life.queue.and_then(|queue| of_all.get(&queue)) {
                life.replays.extend(spans);
            }
            let accepted = life.all_offers().map(|offer| offer.span.sent).min();
            let purges = life.queue.and_then(|queue| self.purges.get(&queue)).into_iter().flatten();
            let pushes = life.queue.and_then(|queue| pushes.get(&queue)).into_iter().flatten();
            life.unheard.extend(pushes.filter(|(at, _)| Some(*at) >= accepted));
            life.purges.extend(purges.filter(|(span, _)| Some(span.ended) >= accepted));
            life.replays.sort_unstable();
            life.hand_outs.sort_by_key(|one| one.span.ended);
            life.words.sort_by_key(|word| word.span.sent);
            life.extensions.sort_by_key(|wish| wish.span.sent);
        }
        self.summary.acknowledged = self.lives.values().filter(|life| !life.offers.is_empty()).count();
    }

    /// What starts that failed may have pushed, by queue: when, and for how long.
    fn pushes_unheard(&self) -> BTreeMap<u32, Vec<(Micros, Micros)>> {
        let mut pushes: BTreeMap<u32, Vec<(Micros, Micros)>> = BTreeMap::new();
        for (&queue, &at) in
            self.rules.keys().flat_map(|queue| self.failed_starts.iter().map(move |at| (queue, at)))
        {
            let rules = self.all_in_force(queue, Span { sent: at, ended: at });
            let targets = rules.iter().filter_map(|(_, rules)| self.targets.get(&rules.target?));
            pushes.entry(queue).or_default().extend(targets.map(|target| (at, target.lease)).max());
        }
        pushes
    }

    fn violated(&mut self, rule: Rule, subject: u64, detail: impl Into<String>) {
        self.violations.push(Violation { rule, subject, detail: detail.into() });
    }

    /// The widest of all values that a queue's rules ever had.
    fn widest<T: Ord + Copy>(&self, queue: u32, of: impl Fn(&Rules) -> T) -> Option<T> {
        self.rules.get(&queue)?.iter().map(|(_, rules)| of(rules)).max()
    }

    /// The narrowest of all values that a queue's rules ever had.
    fn narrowest<T: Ord + Copy>(&self, queue: u32, of: impl Fn(&Rules) -> T) -> Option<T> {
        self.rules.get(&queue)?.iter().map(|(_, rules)| of(rules)).min()
    }

    /// What is listed at its end, carries nothing any more and was never answered or handed out can only be an offer
    /// without an answer.
    fn judge_nameless(&mut self) {
        let mut nameless: BTreeMap<u32, usize> = BTreeMap::new();
        for life in self.lives.values().filter(|life| life.payloads.is_empty() && !life.ends.is_empty()) {
            *nameless.entry(life.queue.unwrap_or_default()).or_default() += 1;
        }
        for (queue, count) in nameless {
            let unknown =
                self.offers.iter().filter(|offer| offer.queue == queue && offer.answer == Offered::Unknown);
            if count > unknown.count() {
                let detail = format!("queue {queue} lists {count} messages that nobody offered");
                self.violated(Rule::NoPhantom, u64::from(queue), detail);
            }
        }
    }

    /// Payloads are stored as often as they were accepted, or not answered.
    fn judge_offers(&mut self) {
        #[derive(Default)]
        struct Count {
            ids: usize,
            accepted: BTreeSet<MessageId>,
            unknown: usize,
            offered: bool,
        }
        let mut counts: BTreeMap<u64, Count> = BTreeMap::new();
        for life in self.lives.values() {
            for payload in &life.payloads {
                counts.entry(*payload).or_default().ids += 1;
            }
        }
        self.judge_nameless();
        for offer in &self.offers {
            let count = counts.entry(offer.payload).or_default();
            count.offered = true;
            match offer.answer {
                Offered::Accepted(id) => {
                    count.accepted.insert(id);
                }
                Offered::Unknown => count.unknown += 1,
                Offered::Refused => {}
            }
        }
        for (payload, count) in counts {
            if count.ids <= count.accepted.len() + count.unknown {
                continue;
            }
            let only_refused = count.offered && count.accepted.is_empty() && count.unknown == 0;
            let rule = if only_refused { Rule::RefusedNotStored } else { Rule::NoPhantom };
            let (ids, accepted, unknown) = (count.ids, count.accepted.len(), count.unknown);
            let detail =
                format!("payload is stored {ids} times: accepted {accepted}, not answered {unknown}");
            self.violated(rule, payload, detail);
        }
    }
}

#[cfg(test)]
mod tests;
