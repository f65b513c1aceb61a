//! The judgement of one message's life: why it came, came again, and ended.
//!
//! Owns the rules about one message. Must never compare messages with each other.

use super::clocks::Clocks;
use super::{Case, Life, Rule};
use crate::trail::{Answer, Extension, HandOut, MessageId, Micros, Rules, Said, Span, Stand, Word};
use std::collections::BTreeSet;

/// What time a server has to do what is due.
pub(super) const GRACE: Micros = 5_000;

/// Why a message may, or may not, have been handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// There is a reason.
    Right,
    /// It was given back, but must wait longer.
    TooEarly,
    /// Somebody still has it.
    Held,
}

/// A span without length.
pub(super) fn moment(at: Micros) -> Span {
    Span { sent: at, ended: at }
}

impl Life<'_> {
    /// When the lease of `hand_out` can be over at the earliest, as far as was said before `until`.
    pub(super) fn lease_over(&self, hand_out: &HandOut, clocks: &Clocks, until: Micros) -> Micros {
        let mut over = clocks.earliest(hand_out.span, hand_out.lease);
        for wish in self.wishes(hand_out).filter(|wish| wish.span.sent <= until) {
            let extended = clocks.earliest(wish.span, wish.lease);
            let is_sure = wish.answer == Answer::Accepted && !clocks.may_be_lost(wish.span, until);
            over = if is_sure { extended } else { over.min(extended) };
        }
        over
    }

    /// When the lease of `hand_out` must be over at the latest, for a server that is up at `at`.
    fn lease_surely_over(&self, hand_out: &HandOut, clocks: &Clocks, at: Micros) -> Micros {
        let extended = self.wishes(hand_out).map(|wish| {
            // Its whole length counts from the hand-out, should the wall clock have been set back.
            let whole = Span { sent: hand_out.span.sent, ended: wish.span.ended };
            clocks.latest(whole, wish.span.ended - hand_out.span.sent + wish.lease, at)
        });
        extended.fold(clocks.latest(hand_out.span, hand_out.lease, at), Micros::max)
    }

    fn wishes(&self, hand_out: &HandOut) -> impl Iterator<Item = &Extension> {
        let of = hand_out.hand_out;
        self.extensions.iter().copied().filter(move |wish| wish.hand_out == of)
    }

    /// Words on `hand_out` that may count, up to the first that surely does.
    fn words_on(&self, hand_out: &HandOut, until: Micros) -> Vec<&Word> {
        let of = hand_out.hand_out;
        let mut words = Vec::new();
        for &word in self.words.iter().filter(|word| word.hand_out == of && word.span.sent <= until) {
            words.push(word);
            if word.answer == Answer::Accepted {
                break;
            }
        }
        words
    }

    /// Whether dead letters went back, perhaps, between two moments.
    pub(super) fn replayed_between(&self, from: Micros, until: Micros) -> bool {
        self.replays.iter().any(|span| span.sent <= until && span.ended >= from)
    }

    /// When `hand_out` may have stopped occupying its place, at the earliest; `until` bounds what is looked at.
    pub(super) fn place_free(&self, hand_out: &HandOut, clocks: &Clocks, until: Micros) -> Micros {
        let words = self.words_on(hand_out, until);
        let said = words.iter().map(|word| word.span.sent).min();
        let back = self.taken_back.get(&hand_out.hand_out).copied();
        let lost = clocks.first_loss(hand_out.span);
        let over = self.lease_over(hand_out, clocks, until);
        [said, back, lost, Some(over)].into_iter().flatten().min().unwrap_or(over)
    }

    /// When a call that is `hand_out` may have stopped occupying its target, at the earliest: a call that nobody waits
    /// for any more does so for `hold` longer.
    pub(super) fn target_free(&self, hand_out: &HandOut, hold: Micros, clocks: &Clocks) -> Micros {
        let until = Micros::MAX;
        let after = |at: Micros| clocks.earliest(moment(at), hold);
        let words = self.words_on(hand_out, until);
        let said =
            words.iter().map(|word| if word.given_up { after(word.span.sent) } else { word.span.sent });
        let back = self.taken_back.get(&hand_out.hand_out).copied();
        let lost = clocks.first_loss(hand_out.span);
        let over = after(self.lease_over(hand_out, clocks, until));
        said.chain(back).chain(lost).fold(over, Micros::min)
    }

    /// Whether `second` may follow `first`.
    pub(super) fn again(
        &self,
        first: &HandOut,
        second: Micros,
        backoff_min: Micros,
        clocks: &Clocks,
    ) -> Again {
        let back = self.taken_back.get(&first.hand_out).is_some_and(|at| *at <= second);
        if back || self.replayed_between(first.span.ended, second) {
            return Again::Right;
        }
        let words = self.words_on(first, second);
        let gives_back = |word: &Word| match word.said {
            Said::Retry => Some(word.delay.unwrap_or(backoff_min)),
            Said::Release => Some(word.delay.unwrap_or(0)),
            Said::Complete | Said::Dead => None,
        };
        let mut returns = words.iter().filter_map(|word| Some((word, gives_back(word)?)));
        if returns.any(|(word, delay)| clocks.earliest(word.span, delay) <= second) {
            return Again::Right;
        }
        if let Some(last) = words.last().filter(|word| word.answer == Answer::Accepted) {
            // That an end is for good is another rule.
            return if gives_back(last).is_some() { Again::TooEarly } else { Again::Right };
        }
        let over = self.lease_over(first, clocks, second) <= second;
        if over || clocks.may_be_lost(first.span, second) { Again::Right } else { Again::Held }
    }

    /// The earliest moment at which its life can have ended.
    pub(super) fn end_from(&self, clocks: &Clocks) -> Option<Micros> {
        let words = self.words.iter().map(|word| word.span.sent);
        let withdrawn = self.withdrawals.iter().map(|request| request.span.sent);
        let buried = self.burials.iter().map(|request| request.span.sent);
        let expired = self.all_offers().map(|offer| clocks.earliest(offer.span, offer.ttl));
        let replayed = self.replays.iter().map(|span| span.sent);
        let ran_out = self.hand_outs.iter().map(|one| self.lease_over(one, clocks, Micros::MAX));
        let unheard = self.unheard.iter().map(|&(at, lease)| clocks.earliest(moment(at), lease));
        let purged = self.purges.iter().map(|(span, _)| span.sent);
        let dropped = self.all_offers().map(|offer| offer.span.sent).filter(|_| self.may_be_dropped);
        words
            .chain(dropped)
            .chain(unheard)
            .chain(purged)
            .chain(withdrawn)
            .chain(buried)
            .chain(replayed)
            .chain(expired)
            .chain(ran_out)
            .min()
    }

    /// From when on its life was over, as far as that is known and nobody can have taken it back.
    pub(super) fn surely_gone(&self) -> Micros {
        if !self.replays.is_empty() {
            return Micros::MAX;
        }
        let is_end = |word: &&&Word| {
            word.answer == Answer::Accepted && matches!(word.said, Said::Complete | Said::Dead)
        };
        let words = self.words.iter().filter(is_end).map(|word| word.span.ended);
        let withdrawn = self.withdrawals.iter().filter(|request| request.answer == Answer::Accepted);
        let seen = self.looks.iter().filter(|(_, stand)| stand.is_end()).map(|(span, _)| span.ended);
        words.chain(withdrawn.map(|request| request.span.ended)).chain(seen).min().unwrap_or(Micros::MAX)
    }

    pub(super) fn all_offers(&self) -> impl Iterator<Item = &crate::trail::Offer> {
        self.offers.iter().chain(&self.perhaps).copied()
    }
}

impl Case<'_> {
    pub(super) fn judge_lives(&mut self) {
        let lives = std::mem::take(&mut self.lives);
        for (id, life) in &lives {
            self.judge_hand_outs(*id, life);
            self.judge_attempts(*id, life);
            self.judge_words(*id, life);
            self.judge_purges(*id, life);
            self.judge_looks(*id, life);
            self.judge_end(*id, life);
        }
        self.lives = lives;
    }

    fn judge_hand_outs(&mut self, id: MessageId, life: &Life<'_>) {
        if life.payloads.len() > 1 {
            self.violated(Rule::NoPhantom, id, format!("message carries {:?}", life.payloads));
        }
        let queue = life.queue.unwrap_or_default();
        let backoff_min = self.narrowest(queue, |rules| rules.backoff_min).unwrap_or_default();
        if let Some(first) = life.hand_outs.first() {
            let due = life.all_offers().map(|offer| self.clocks.earliest(offer.span, offer.delay)).min();
            if due.is_some_and(|due| first.span.ended < due) {
                let detail = format!("first handed out at {}, due at {due:?}", first.span.ended);
                self.violated(Rule::NotEarly, id, detail);
            }
        }
        for pair in life.hand_outs.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.hand_out == second.hand_out {
                self.violated(Rule::NoOverlap, id, format!("hand-out {} was made twice", first.hand_out));
            }
            let again = life.again(first, second.span.ended, backoff_min, &self.clocks);
            let rule = match again {
                Again::Right => continue,
                Again::TooEarly => Rule::NotEarly,
                Again::Held => Rule::NoOverlap,
            };
            let (first, second) = (first.span, second.span);
            self.violated(rule, id, format!("handed out at {first:?} and again at {second:?}"));
        }
        for one in &life.hand_outs {
            // A replay gives a new time to live.
            let offers = life.all_offers().filter(|_| !life.replayed_between(Micros::MIN, one.span.ended));
            let at = one.span.ended;
            let expiry = offers.map(|offer| self.clocks.latest(offer.span, offer.ttl, at)).max();
            if expiry.is_some_and(|expiry| expiry + GRACE < one.span.sent) {
                self.violated(Rule::NotExpired, id, format!("handed out at {at}, expired at {expiry:?}"));
            }
        }
    }

    fn judge_attempts(&mut self, id: MessageId, life: &Life<'_>) {
        let queue = life.queue.unwrap_or_default();
        let Some(attempts_max) = self.widest(queue, |rules| rules.max_attempts) else { return };
        let deliveries_max = self.widest(queue, |rules| rules.max_deliveries).unwrap_or(u32::MAX);
        let mut deliveries = 0;
        let mut since = Micros::MIN;
        for one in &life.hand_outs {
            let now = one.span.ended;
            let replayed = life.replays.iter().filter(|span| span.sent <= now).map(|span| span.ended).max();
            if replayed.is_some_and(|at| at > since) {
                since = replayed.unwrap_or(since);
                deliveries = 0;
            }
            let failed = life.words.iter().filter(|word| {
                let counts = word.answer == Answer::Accepted && word.said == Said::Retry;
                counts && word.span.sent > since && word.span.ended <= now
            });
            // A word may be repeated, also after a replay has taken it off.
            let said_before = |hand_out| {
                let first = life.words.iter().filter(|word| word.hand_out == hand_out);
                first.map(|word| word.span.sent).min().is_some_and(|sent| sent <= since)
            };
            let failed: BTreeSet<u64> =
                failed.map(|word| word.hand_out).filter(|hand_out| !said_before(*hand_out)).collect();
            if failed.len() >= attempts_max as usize || deliveries >= deliveries_max {
                let detail = format!("handed out after {} failures and {deliveries} hand-outs", failed.len());
                self.violated(Rule::Attempts, id, detail);
            }
            let counts = !life.taken_back.contains_key(&one.hand_out)
                && self.clocks.first_loss(one.span).is_none()
                && one.span.sent > since;
            deliveries += u32::from(counts);
        }
    }

    /// What surely waited when its queue was withdrawn is not handed out any more.
    fn judge_purges(&mut self, id: MessageId, life: &Life<'_>) {
        let Some(accepted) = life.offers.iter().map(|offer| offer.span.ended).min() else { return };
        for (span, _) in life.purges.iter().filter(|(span, is_sure)| *is_sure && accepted < span.sent) {
            let perhaps_held = life.hand_outs.iter().any(|one| one.span.sent <= span.ended)
                || life.unheard.iter().any(|(at, _)| *at <= span.ended);
            let later = life.hand_outs.iter().map(|one| one.span.sent).find(|sent| *sent > span.ended);
            if let Some(at) = later.filter(|at| !perhaps_held && !life.replayed_between(span.sent, *at)) {
                self.violated(Rule::Purged, id, format!("purged at {span:?}, handed out at {at}"));
            }
        }
    }

    fn judge_words(&mut self, id: MessageId, life: &Life<'_>) {
        let accepted = |answer| answer == Answer::Accepted;
        let words = life.words.iter().filter(|word| accepted(word.answer));
        let words = words.map(|word| (word.hand_out, word.span));
        let wishes = life.extensions.iter().filter(|wish| accepted(wish.answer));
        let wishes = wishes.map(|wish| (wish.hand_out, wish.span));
        for (hand_out, said) in words.chain(wishes) {
            let Some(of) = life.hand_outs.iter().find(|one| one.hand_out == hand_out) else { continue };
            let later = life.hand_outs.iter().find(|other| {
                other.span.ended > of.span.ended
                    && other.span.ended < said.sent
                    && !self.clocks.may_be_lost(other.span, said.ended)
                    && !life.taken_back.contains_key(&other.hand_out)
            });
            if let Some(later) = later {
                let later = later.span.ended;
                let detail =
                    format!("hand-out {hand_out} decided at {said:?}, another one was made at {later}");
                self.violated(Rule::StaleRefused, id, detail);
            }
        }
        let done = life.words.iter().filter(|word| accepted(word.answer) && word.said == Said::Complete);
        let seen = life.looks.iter().filter(|(_, stand)| *stand == Stand::Succeeded);
        let done = done.map(|word| word.span.ended).chain(seen.map(|(span, _)| span.ended)).min();
        let given_up = life.words.iter().find(|word| accepted(word.answer) && word.said == Said::Dead);
        for one in &life.hand_outs {
            let at = one.span.ended;
            if done.is_some_and(|done| at > done) {
                self.violated(Rule::StaysDone, id, format!("done at {done:?}, handed out at {at}"));
            }
            let dead = given_up
                .is_some_and(|word| at > word.span.ended && !life.replayed_between(word.span.sent, at));
            if dead {
                self.violated(Rule::StaysDone, id, format!("given up for good, handed out at {at}"));
            }
        }
        if let (Some(done), Some((_, end))) = (done, life.ends.first())
            && !matches!(end, Stand::Succeeded | Stand::Forgotten)
        {
            self.violated(Rule::StaysDone, id, format!("done at {done}, and is {end:?} in the end"));
        }
    }

    fn judge_looks(&mut self, id: MessageId, life: &Life<'_>) {
        for (span, stand) in &life.looks {
            let at = span.sent;
            let until = match stand {
                Stand::Leased => {
                    let heard = life.hand_outs.iter().filter(|one| one.span.sent <= at);
                    let heard = heard.map(|one| life.lease_surely_over(one, &self.clocks, at));
                    let unheard = life.unheard.iter().filter(|(from, _)| *from <= at);
                    heard
                        .chain(unheard.map(|&(from, lease)| self.clocks.latest(moment(from), lease, at)))
                        .max()
                }
                Stand::Delayed => {
                    let due = |offer: &crate::trail::Offer| self.clocks.latest(offer.span, offer.delay, at);
                    life.all_offers().map(due).max()
                }
                _ => continue,
            };
            if until.is_none_or(|until| until + GRACE < at) {
                self.violated(Rule::NotLate, id, format!("{stand:?} at {at}, at the latest until {until:?}"));
            }
        }
    }

    fn judge_end(&mut self, id: MessageId, life: &Life<'_>) {
        if life.ends.len() > 1 {
            self.violated(Rule::Conservation, id, format!("it is at several places: {:?}", life.ends));
        }
        let Some(&(at, stand)) = life.ends.first() else {
            if !life.offers.is_empty() {
                self.violated(Rule::Conservation, id, "accepted, and nowhere in the end");
            }
            return;
        };
        let queue = life.queue.unwrap_or_default();
        let completed = life.words.iter().any(|word| word.said == Said::Complete);
        match stand {
            Stand::Succeeded if !completed => {
                self.violated(Rule::DoneBySomebody, id, "succeeded, and nobody completed it");
            }
            Stand::Cancelled if life.withdrawals.is_empty() && life.purges.is_empty() => {
                self.violated(Rule::NotShed, id, "withdrawn, and nobody asked for it");
            }
            Stand::Dropped if self.widest(queue, Rules::drops_oldest) != Some(true) => {
                self.violated(Rule::NotShed, id, "dropped, where nothing may be dropped");
            }
            Stand::Expired => self.judge_expiry(id, life, at),
            Stand::Dead if life.end_from(&self.clocks).is_none_or(|from| from > at + GRACE) => {
                self.violated(Rule::NotShed, id, "dead without a reason");
            }
            Stand::Forgotten => self.judge_forgotten(id, life, at),
            Stand::Delayed | Stand::Ready | Stand::Leased | Stand::Backoff => {
                self.violated(Rule::Drains, id, format!("{stand:?} in the end"));
            }
            Stand::Succeeded | Stand::Cancelled | Stand::Dropped | Stand::Dead => {}
        }
    }

    fn judge_expiry(&mut self, id: MessageId, life: &Life<'_>, at: Micros) {
        let queue = life.queue.unwrap_or_default();
        // Of what was never answered, the time to live is not known either.
        let from = life.all_offers().map(|offer| self.clocks.earliest(offer.span, offer.ttl)).min();
        let from = if life.payloads.is_empty() { Some(Micros::MIN) } else { from };
        // A replay may give it another one.
        let from = life.replays.iter().map(|span| span.sent).chain(from).min();
        let drops = self.widest(queue, |rules| rules.drops_expired) == Some(true);
        if !drops || from.is_none_or(|from| from > at + GRACE) {
            self.violated(Rule::NotShed, id, format!("expired before {from:?}, or where nothing is dropped"));
        }
    }

    fn judge_forgotten(&mut self, id: MessageId, life: &Life<'_>, at: Micros) {
        let queue = life.queue.unwrap_or_default();
        let buried = life.burials.iter().any(|request| request.span.sent <= at);
        let kept = self
            .narrowest(queue, |rules| rules.result_retention.min(rules.dead_retention))
            .unwrap_or_default();
        let from = life
            .end_from(&self.clocks)
            .map(|end| self.clocks.earliest(Span { sent: end, ended: at.max(end) }, kept));
        if !buried && from.is_none_or(|from| from > at + GRACE) {
            self.violated(Rule::Conservation, id, format!("forgotten before {from:?}"));
        }
    }
}
