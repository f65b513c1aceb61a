//! The judgement of idempotency keys.
//!
//! Owns the rule that one key is one message while it is remembered. Must never know how keys are compared.

use super::{Case, Rule};
use crate::trail::{Offer, Offered, Span};
use std::collections::BTreeMap;

impl Case<'_> {
    pub(super) fn judge_keys(&mut self) {
        let mut by_key: BTreeMap<(u32, u64), Vec<&Offer>> = BTreeMap::new();
        let mut keys_of: BTreeMap<u32, u64> = BTreeMap::new();
        for &offer in &self.offers {
            let (Some(key), Offered::Accepted(_)) = (offer.key, offer.answer) else { continue };
            let of_key = by_key.entry((offer.queue, key)).or_default();
            if of_key.is_empty() {
                *keys_of.entry(offer.queue).or_default() += 1;
            }
            of_key.push(offer);
        }
        for ((queue, key), mut offers) in by_key {
            // A queue that remembers fewer keys than there were may forget any finished one.
            let few = self.narrowest(queue, |rules| rules.max_keys).unwrap_or(u64::MAX);
            if keys_of[&queue] > few {
                continue;
            }
            offers.sort_by_key(|offer| offer.span);
            for pair in offers.windows(2) {
                self.judge_pair(queue, key, pair[0], pair[1]);
            }
        }
    }

    fn judge_pair(&mut self, queue: u32, key: u64, first: &Offer, second: &Offer) {
        let (Offered::Accepted(one), Offered::Accepted(other)) = (first.answer, second.answer) else {
            return;
        };
        if one == other {
            if first.payload != second.payload {
                self.violated(Rule::Keys, key, format!("message {one} was accepted for two payloads"));
            }
            return;
        }
        // Of two that were under way at once, either may have been accepted first.
        let overlap = second.span.sent <= first.span.ended;
        let Some(detail) = self.became_two(queue, first, second) else { return };
        if !(overlap && self.became_two(queue, second, first).is_none()) {
            self.violated(Rule::Keys, key, detail);
        }
    }

    /// Why a key of which the message of `first` was remembered cannot have become that of `second`.
    fn became_two(&self, queue: u32, first: &Offer, second: &Offer) -> Option<String> {
        let (Offered::Accepted(one), Offered::Accepted(other)) = (first.answer, second.answer) else {
            return None;
        };
        let within = |span: &Span| span.sent <= second.span.ended && span.ended >= first.span.sent;
        if self.deleted.get(&queue).is_some_and(|spans| spans.iter().any(within)) {
            return None;
        }
        let life = &self.lives[&one];
        let buried = life.burials.iter().any(|request| request.span.sent <= second.span.ended);
        let kept = self
            .narrowest(queue, |rules| rules.result_retention.min(rules.dead_retention))
            .unwrap_or_default();
        let from = life.end_from(&self.clocks).map(|end| {
            let begun = Span { sent: end, ended: second.span.ended.max(end) };
            self.clocks.earliest(begun, kept)
        });
        let remembered = !buried && from.is_none_or(|from| from > second.span.ended);
        remembered.then(|| format!("became messages {one} and {other}, remembered until {from:?}"))
    }
}
