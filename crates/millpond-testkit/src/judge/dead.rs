//! The judgement of dead letters: how many there may be.
//!
//! Owns the bound on them. What is in work when the bound is reached may die beyond it; nothing new is handed out then,
//! and what expires without having been handed out stays where it is. Must never count a death that may not have been.

use super::bounds::Taken;
use super::life::moment;
use super::{Case, Life, Rule};
use crate::trail::{Answer, Micros, Said, Span, Stand};
use std::collections::BTreeMap;

impl Case<'_> {
    pub(super) fn judge_dead_letters(&mut self) {
        let violations = [self.judge_full(), self.judge_expired()].concat();
        for (queue, detail) in violations {
            self.violated(Rule::DeadLetters, u64::from(queue), format!("queue {queue} {detail}"));
        }
    }

    /// Nothing goes out of a queue that surely is full of dead letters.
    fn judge_full(&self) -> Vec<(u32, String)> {
        let mut deaths: BTreeMap<u32, Vec<(Micros, Micros)>> = BTreeMap::new();
        for life in self.lives.values() {
            if let (Some(queue), Some(dead)) = (life.queue, self.surely_dead(life)) {
                deaths.entry(queue).or_default().push(dead);
            }
        }
        let mut hand_outs: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for one in &self.hand_outs {
            hand_outs.entry(one.queue).or_default().push(one.span);
        }
        let mut found = Vec::new();
        for (queue, mut deaths) in deaths {
            deaths.sort_unstable();
            let mut deaths = deaths.into_iter().peekable();
            let mut dead = Taken::default();
            let mut spans = hand_outs.remove(&queue).unwrap_or_default();
            spans.sort_unstable();
            for span in spans {
                // Only what was dead when the request left, and still is when the answer comes.
                while let Some((_, until)) = deaths.next_if(|(from, _)| *from < span.sent) {
                    dead.take(until);
                }
                let count = dead.at(span.ended);
                let most = self.in_force(queue, span, |rules| rules.dead_max);
                if most.is_some_and(|most| count as u64 >= most) {
                    found.push((queue, format!("hands out at {} with {count} dead letters", span.ended)));
                }
            }
        }
        found
    }

    /// From when on until when a message is a dead letter for sure.
    pub(super) fn surely_dead(&self, life: &Life<'_>) -> Option<(Micros, Micros)> {
        let words = life.words.iter().filter(|word| word.said == Said::Dead);
        // A word may be repeated: only the first one says when.
        let first = words.clone().map(|word| word.span.sent).min();
        let sure = words.filter(|word| word.answer == Answer::Accepted).map(|word| word.span.ended).min();
        let seen = life.looks.iter().filter(|(_, stand)| *stand == Stand::Dead).map(|(span, _)| *span).min();
        let (sent, ended) = match (first.zip(sure), seen) {
            (Some(said), _) => said,
            (None, Some(span)) => (span.sent, span.ended),
            (None, None) => return None,
        };
        // A look does not tell since when, nor what the wall clock showed then.
        let since = match sure {
            Some(_) => moment(sent),
            None => Span { sent: life.end_from(&self.clocks).unwrap_or(sent).min(sent), ended: sent },
        };
        let deleted = life.queue.and_then(|queue| self.deleted.get(&queue)).into_iter().flatten();
        let undone = life.burials.iter().map(|request| request.span);
        let undone = undone.chain(life.replays.iter().copied()).chain(deleted.copied());
        let undone = undone.filter(|span| span.ended >= sent).map(|span| span.sent);
        let kept = life.queue.and_then(|queue| self.narrowest(queue, |rules| rules.dead_retention));
        let forgotten = kept.map(|kept| self.clocks.earliest(since, kept));
        let until = undone.chain(forgotten).min().unwrap_or(Micros::MAX);
        (ended < until).then_some((ended, until))
    }

    /// What was never in work can only have died while there was room.
    fn judge_expired(&self) -> Vec<(u32, String)> {
        let mut expired: BTreeMap<u32, u64> = BTreeMap::new();
        for life in self.lives.values() {
            let is_dead = life.ends.iter().any(|(_, stand)| *stand == Stand::Dead);
            let Some(queue) = life.queue.filter(|queue| is_dead && !self.deleted.contains_key(queue)) else {
                continue;
            };
            if life.hand_outs.is_empty() && life.unheard.is_empty() {
                *expired.entry(queue).or_default() += 1;
            }
        }
        let most = |queue: u32| self.widest(queue, |rules| rules.dead_max).unwrap_or(u64::MAX);
        let beyond = expired.into_iter().filter(|(queue, count)| *count > most(*queue));
        beyond.map(|(queue, count)| (queue, format!("has {count} dead letters that nobody had"))).collect()
    }
}
