//! The ready messages of one class of criticality: a line for each tenant, and whose turn it is.
//!
//! Owns turns, and the place that goes out of a line. Must never know of other classes, nor of groups. Fresh work and
//! retries take turns apart, for retries can be held back while fresh work goes on.

use super::Direction;
use super::ages::Ages;
use super::lengths::Lengths;
use super::place_set::PlaceSet;
use crate::name::Label;
use std::collections::BTreeMap;

/// While the newest go first in an adaptive order, one in so many hand-outs of a line is its oldest: the old ones are
/// worked off at a share of 0.2.
const OLDEST_EVERY: u8 = 5;

/// The messages of one tenant in one class, or those without a tenant.
#[derive(Debug, Default)]
pub(in crate::pond) struct Line {
    /// Eligible, and never tried in vain.
    pub(super) fresh: PlaceSet,
    /// Eligible, and tried before.
    pub(super) retries: PlaceSet,
    /// Ready, but behind others of their group.
    pub(super) blocked: PlaceSet,
    /// Ready, but not durable yet.
    pub(super) arriving: u32,
    /// Waiting for their next attempt: they come back to a place before what arrives now.
    pub(in crate::pond) backoff: u32,
    /// Fresh hand-outs since one was the oldest, mod [`OLDEST_EVERY`].
    since_oldest: u8,
    /// When its turn comes, while it has fresh work.
    fresh_turn: u64,
    /// When its turn comes, while it has retries.
    retry_turn: u64,
}

impl Line {
    /// What waits in it and is due.
    pub(in crate::pond) fn len(&self) -> u64 {
        self.fresh.len() + self.retries.len() + self.blocked.len() + u64::from(self.arriving)
    }

    /// How many of those that anybody can see come before `place`.
    pub(in crate::pond) fn before(&self, place: u64) -> u64 {
        self.fresh.before(place) + self.retries.before(place) + self.blocked.before(place)
    }

    fn is_eligible(&self) -> bool {
        !self.fresh.is_empty() || !self.retries.is_empty()
    }

    fn is_unused(&self) -> bool {
        !self.is_eligible() && self.blocked.is_empty() && self.arriving == 0 && self.backoff == 0
    }

    /// The place of the fresh work that goes out next.
    fn next_fresh(&self, direction: Direction) -> Option<u64> {
        match direction {
            Direction::Oldest => self.fresh.min(),
            Direction::MostlyNewest if self.since_oldest + 1 == OLDEST_EVERY => self.fresh.min(),
            Direction::Newest | Direction::MostlyNewest => self.fresh.max(),
        }
    }

    /// The place that goes out next where it is the line's turn for fresh work and for retries, and whether that is a
    /// retry: they are older, as a rule. Newest first is for work that is worth less the longer it waits; what was
    /// begun is finished before.
    fn next(&self, direction: Direction) -> Option<(u64, bool)> {
        let retry = self.retries.min()?;
        let fresh = self.fresh.min().filter(|fresh| direction == Direction::Oldest && *fresh < retry);
        Some(fresh.map_or((retry, true), |fresh| (fresh, false)))
    }
}

/// One class. A line exists while anything in it waits.
#[derive(Debug, Default)]
pub(in crate::pond) struct Class {
    untenanted: Line,
    tenants: BTreeMap<Label, Line>,
    /// Whose turn it is among those with fresh work, and among those with retries.
    fresh_turns: BTreeMap<u64, Option<Label>>,
    retry_turns: BTreeMap<u64, Option<Label>>,
    /// Lines with anything eligible.
    taking_turns: u64,
    next_turn: u64,
    pub(super) lengths: Lengths,
    /// Everything eligible.
    pub(super) ages: Ages,
    /// What stands behind others of its group.
    pub(super) blocked: Ages,
    /// What is not durable yet.
    pub(super) arriving: PlaceSet,
    /// How far it has come in the order of classes.
    pub(super) pass: u64,
}

impl Class {
    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh_turns.is_empty()
    }

    pub(super) fn has_retries(&self) -> bool {
        !self.retry_turns.is_empty()
    }

    /// A tenant's line, if anything of it waits.
    pub(in crate::pond) fn line(&self, tenant: Option<&Label>) -> Option<&Line> {
        match tenant {
            None => Some(&self.untenanted),
            Some(tenant) => self.tenants.get(tenant),
        }
    }

    /// Every line that there is, by tenant.
    pub(in crate::pond) fn lines(&self) -> impl Iterator<Item = (Option<&Label>, &Line)> {
        let tenants = self.tenants.iter().map(|(tenant, line)| (Some(tenant), line));
        std::iter::once((None, &self.untenanted)).chain(tenants)
    }

    /// The place that goes out next, and whether that is a retry.
    pub(super) fn next(&self, direction: Direction, retries_allowed: bool) -> Option<(u64, bool)> {
        let fresh = self.fresh_turns.first_key_value();
        let retry = self.retry_turns.first_key_value().filter(|_| retries_allowed);
        match (fresh, retry) {
            (Some((_, tenant)), Some((_, same))) if tenant == same => {
                self.line(tenant.as_ref())?.next(direction)
            }
            (Some((turn, tenant)), later) if later.is_none_or(|(later, _)| turn < later) => {
                Some((self.line(tenant.as_ref())?.next_fresh(direction)?, false))
            }
            (_, retry) => Some((self.line(retry?.1.as_ref())?.retries.min()?, true)),
        }
    }

    /// Changes a tenant's line, and everything that follows from it.
    pub(super) fn change(&mut self, tenant: Option<&Label>, change: impl FnOnce(&mut Line)) {
        let line = match tenant {
            None => &mut self.untenanted,
            Some(tenant) if self.tenants.contains_key(tenant) => {
                self.tenants.get_mut(tenant).expect("just seen")
            }
            Some(tenant) => self.tenants.entry(tenant.clone()).or_default(),
        };
        let before = (line.len(), !line.fresh.is_empty(), !line.retries.is_empty());
        change(line);
        self.lengths.change(before.0, line.len());
        let (fresh, retries) = (!line.fresh.is_empty(), !line.retries.is_empty());
        let (was_eligible, is_eligible) = (before.1 || before.2, fresh || retries);
        self.taking_turns = self.taking_turns + u64::from(is_eligible) - u64::from(was_eligible);
        for (turns, turn, before, now) in [
            (&mut self.fresh_turns, &mut line.fresh_turn, before.1, fresh),
            (&mut self.retry_turns, &mut line.retry_turn, before.2, retries),
        ] {
            if !before && now {
                *turn = self.next_turn;
                self.next_turn += 1;
                turns.insert(*turn, tenant.cloned());
            } else if before && !now {
                turns.remove(turn);
            }
        }
        if let Some(tenant) = tenant
            && line.is_unused()
        {
            self.tenants.remove(tenant);
        }
    }

    /// Counts a hand-out of the line whose turn it is: its next turn comes after everybody else's.
    pub(super) fn take_turn(&mut self, retry: bool) {
        let turns = if retry { &mut self.retry_turns } else { &mut self.fresh_turns };
        let first = turns.first_entry().expect("what is handed out has its turn");
        let line = match first.get() {
            None => Some(&mut self.untenanted),
            Some(tenant) => self.tenants.get_mut(tenant),
        };
        let line = line.expect("what has a turn stands in a line");
        if !retry {
            line.since_oldest = (line.since_oldest + 1) % OLDEST_EVERY;
        }
        // Whoever is alone has every turn.
        if self.taking_turns > 1 {
            let turn = if retry { &mut line.retry_turn } else { &mut line.fresh_turn };
            *turn = self.next_turn;
            self.next_turn += 1;
            let tenant = first.remove();
            turns.insert(*turn, tenant);
        }
    }

    /// Checks that turns and lengths are those of the lines.
    pub(super) fn assert_consistent(&self) {
        let mut lengths = Lengths::default();
        let (mut eligible, mut blocked, mut arriving) = (0, 0, 0);
        for (tenant, line) in self.lines() {
            lengths.change(0, line.len());
            eligible += line.fresh.len() + line.retries.len();
            blocked += line.blocked.len();
            arriving += u64::from(line.arriving);
            let fresh = self.fresh_turns.get(&line.fresh_turn).is_some_and(|known| known.as_ref() == tenant);
            let retries =
                self.retry_turns.get(&line.retry_turn).is_some_and(|known| known.as_ref() == tenant);
            assert_eq!(fresh, !line.fresh.is_empty(), "{tenant:?}: its turn for fresh work");
            assert_eq!(retries, !line.retries.is_empty(), "{tenant:?}: its turn for retries");
            assert!(tenant.is_none() || !line.is_unused(), "{tenant:?}: a line for nothing");
        }
        let turns = |pick: fn(&Line) -> bool| self.lines().filter(|(_, line)| pick(line)).count();
        assert_eq!(self.fresh_turns.len(), turns(|line| !line.fresh.is_empty()), "turns for fresh work");
        assert_eq!(self.retry_turns.len(), turns(|line| !line.retries.is_empty()), "turns for retries");
        assert_eq!(self.taking_turns, turns(Line::is_eligible) as u64, "lines that take turns");
        assert!(self.lengths.agrees_with(&lengths), "{:?}, counted {lengths:?}", self.lengths);
        assert_eq!(self.ages.len(), eligible, "ages of everything eligible");
        assert_eq!(self.blocked.len(), blocked, "ages of the blocked");
        assert_eq!(self.arriving.len(), arriving, "places of what is not durable yet");
    }
}

#[cfg(test)]
mod tests {
    use super::Class;
    use crate::name::Label;

    #[test]
    fn a_line_exists_while_anything_in_it_waits() {
        let (mut class, tenant) = (Class::default(), Label::new("a").unwrap());
        class.change(Some(&tenant), |line| line.backoff += 1);
        class.change(Some(&tenant), |line| {
            line.backoff -= 1;
            line.fresh.insert(7);
        });
        assert!(class.line(Some(&tenant)).is_some());
        class.change(Some(&tenant), |line| {
            line.fresh.remove(7);
        });
        assert!(class.line(Some(&tenant)).is_none());
    }
}
