//! The judgement of groups: in order, one at a time.
//!
//! Owns the rules between messages of one group. Must never judge a group in a queue whose order keeps none.

use super::life::Again;
use super::{Case, Life, Rule};
use crate::trail::{HandOut, Micros, Said};
use std::collections::{BTreeMap, BTreeSet};

/// When a message of a group can have been accepted.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Not before.
    sent: Micros,
    /// Not after; `None`: nobody was told that it was.
    ended: Option<Micros>,
    /// Its batch and its place in it, where it is known which offer was accepted.
    batch: Option<(u64, usize)>,
}

impl Case<'_> {
    pub(super) fn judge_groups(&mut self) {
        let mut groups: BTreeMap<(u32, u64), Vec<(&HandOut, &Life<'_>)>> = BTreeMap::new();
        for life in self.lives.values() {
            let Some(offer) = life.all_offers().next() else { continue };
            let Some(group) = offer.group else { continue };
            if self.narrowest(offer.queue, |rules| rules.keeps_groups) == Some(true) {
                let members = life.hand_outs.iter().map(|one| (*one, life));
                groups.entry((offer.queue, group)).or_default().extend(members);
            }
        }
        let mut violations = Vec::new();
        for ((_, group), mut hand_outs) in groups {
            hand_outs.sort_by_key(|(one, _)| (one.span.ended, one.hand_out));
            violations.extend(order(&hand_outs).map(|detail| (Rule::GroupOrder, group, detail)));
            for pair in hand_outs.windows(2) {
                if let Some(detail) = self.both_held(pair[0], pair[1]) {
                    violations.push((Rule::GroupAlone, group, detail));
                }
            }
        }
        for (rule, group, detail) in violations {
            self.violated(rule, group, detail);
        }
    }

    fn both_held(&self, first: (&HandOut, &Life<'_>), second: (&HandOut, &Life<'_>)) -> Option<String> {
        let ((one, life), (other, _)) = (first, second);
        if one.id == other.id {
            return None;
        }
        let at = other.span.ended;
        let ended = life.words.iter().any(|word| {
            let ends = matches!(word.said, Said::Complete | Said::Dead);
            ends && word.hand_out == one.hand_out && word.span.sent <= at
        });
        // Or it was the last failure that it may have.
        let failed: BTreeSet<u64> = life
            .words
            .iter()
            .filter(|word| word.said == Said::Retry && word.span.sent <= at)
            .map(|word| word.hand_out)
            .collect();
        let last = self
            .narrowest(one.queue, |rules| rules.max_attempts)
            .is_some_and(|most| failed.len() >= most as usize && failed.contains(&one.hand_out));
        // Or its last delivery, from which it came back.
        let delivered = life.hand_outs.iter().filter(|earlier| earlier.span.ended <= one.span.ended).count();
        let spent = self
            .narrowest(one.queue, |rules| rules.max_deliveries)
            .is_some_and(|most| delivered >= most as usize)
            && life.words.iter().any(|word| word.hand_out == one.hand_out && word.span.sent <= at);
        let held = !ended && !last && !spent && life.again(one, at, 0, &self.clocks) == Again::Held;
        held.then(|| format!("{} was handed out while {} was held", other.id, one.id))
    }
}

fn place(life: &Life<'_>) -> Option<Place> {
    let first = life.all_offers().min_by_key(|offer| offer.span.sent)?;
    let ended = life.offers.iter().map(|offer| offer.span.ended).min();
    let batch = life.perhaps.is_empty().then_some(first.batch);
    Some(Place { sent: first.span.sent, ended, batch })
}

/// Whether a message that surely came first was handed out after one that surely came later. Once the later one
/// was handed out, the earlier one must have been at its end.
fn order(hand_outs: &[(&HandOut, &Life<'_>)]) -> impl Iterator<Item = String> {
    let mut latest: Option<(Place, u64)> = None;
    let mut found = Vec::new();
    for (one, life) in hand_outs {
        let Some(here) = place(life) else { continue };
        if let Some((last, id)) = latest {
            let in_batch =
                here.batch.zip(last.batch).is_some_and(|(here, last)| here.0 == last.0 && here.1 < last.1);
            let before = here.ended.is_some_and(|ended| ended < last.sent) || in_batch;
            if before && id != one.id && !life.replayed_between(Micros::MIN, one.span.ended) {
                found.push(format!("{} was handed out after {id}, which had come later", one.id));
            }
        }
        if latest.is_none_or(|(last, _)| (last.sent, last.batch) < (here.sent, here.batch)) {
            latest = Some((here, one.id));
        }
    }
    found.into_iter()
}
