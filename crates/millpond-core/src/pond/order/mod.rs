//! The ready messages of one queue, and which of them goes out next.
//!
//! Owns the order: classes by weights or strictly, tenants by turns within a class, places within a tenant's line,
//! and the share of retries. Must never know why a message is ready, nor keep anything durable: turns and shares
//! start anew with every boot.
//!
//! Looking ([`ReadySet::next`]) changes nothing; a hand-out is counted by [`ReadySet::count_hand_out`] before the
//! message leaves the set.

mod ages;
mod budget;
mod class;
mod lengths;
mod place_set;

pub(super) use ages::{Age, Oldest, merged};
pub(super) use place_set::PlaceSet;

use crate::identity::Seq;
use crate::message::Criticality;
use crate::name::Label;
use crate::settings::{Order, Priority, QueueSettings};
use crate::time::Mono;
use budget::RetryBudget;
use class::Class;
pub(super) use class::Line;
use std::collections::BTreeMap;

/// Shares of the classes where all of them have work, from the most critical to the least.
const WEIGHTS: [u64; 4] = [8, 4, 2, 1];

/// From which end of a line messages go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Oldest,
    Newest,
    /// The newest, with a share for the oldest.
    MostlyNewest,
}

/// What the choice rests on besides what is ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    direction: Direction,
    strict: bool,
    retry_share: f64,
}

impl Rules {
    /// The rules of a queue with these settings, whose oldest eligible message is fresh enough, or is not.
    pub(super) fn new(settings: &QueueSettings, is_fresh: bool) -> Self {
        let direction = match settings.order {
            Order::Fifo => Direction::Oldest,
            Order::Lifo => Direction::Newest,
            Order::Adaptive if is_fresh => Direction::Oldest,
            Order::Adaptive => Direction::MostlyNewest,
        };
        Self { direction, strict: settings.priority == Priority::Strict, retry_share: settings.retry.budget }
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }
}

/// What the order of a ready message depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready<'a> {
    /// The message.
    pub(super) seq: Seq,
    /// Its place, and how old it is.
    pub(super) age: Age,
    pub(super) criticality: Criticality,
    pub(super) tenant: Option<&'a Label>,
    /// Whether it was tried before.
    pub(super) retry: bool,
    /// Whether another message of its group comes first.
    pub(super) blocked: bool,
}

/// The message that goes out next, and whose turn that takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick {
    pub(super) seq: Seq,
    class: usize,
    retry: bool,
}

/// The ready messages of one queue.
#[derive(Debug, Default)]
pub(super) struct ReadySet {
    /// From the most critical to the least.
    classes: [Class; 4],
    /// The pass of the latest hand-out: where a class begins that had no work.
    pass: u64,
    budget: RetryBudget,
    /// The numbers of messages that a replay moved to a later place.
    moved: BTreeMap<u64, Seq>,
}

impl ReadySet {
    fn note_place(&mut self, ready: Ready<'_>) {
        if ready.age.place != ready.seq.0 {
            self.moved.insert(ready.age.place, ready.seq);
        }
    }

    /// Adds a message that may be seen.
    pub(super) fn insert(&mut self, ready: Ready<'_>) {
        let place = ready.age.place;
        self.note_place(ready);
        let class = &mut self.classes[ready.criticality.index()];
        if ready.blocked {
            class.blocked.insert(ready.age);
        } else {
            // No credit was saved up while there was no work (Waldspurger, "Stride Scheduling", 1995). Whoever could go
            // out has not fallen behind.
            class.pass = class.pass.max(self.pass);
            class.ages.insert(ready.age);
        }
        class.change(ready.tenant, |line| {
            let added = places_of(line, ready).insert(place);
            assert!(added, "message {:?} became ready twice", ready.seq);
        });
    }

    /// Takes out a message that [`ReadySet::insert`] added as it is described here.
    pub(super) fn remove(&mut self, ready: Ready<'_>) {
        let place = ready.age.place;
        self.moved.remove(&place);
        let class = &mut self.classes[ready.criticality.index()];
        let ages = if ready.blocked { &mut class.blocked } else { &mut class.ages };
        ages.remove(ready.age);
        class.change(ready.tenant, |line| {
            let known = places_of(line, ready).remove(place);
            assert!(known, "message {:?} left the ready ones without being one", ready.seq);
        });
    }

    /// Adds a message that is ready, but not durable yet.
    pub(super) fn insert_arriving(&mut self, ready: Ready<'_>) {
        self.note_place(ready);
        let class = &mut self.classes[ready.criticality.index()];
        let added = class.arriving.insert(ready.age.place);
        assert!(added, "message {:?} arrived twice", ready.seq);
        class.change(ready.tenant, |line| line.arriving += 1);
    }

    /// Takes out a message that [`ReadySet::insert_arriving`] added.
    pub(super) fn remove_arriving(&mut self, ready: Ready<'_>) {
        self.moved.remove(&ready.age.place);
        let class = &mut self.classes[ready.criticality.index()];
        let known = class.arriving.remove(ready.age.place);
        assert!(known, "message {:?} stopped arriving without having begun", ready.seq);
        class.change(ready.tenant, |line| line.arriving -= 1);
    }

    /// Counts a message that waits for its next attempt (`change` 1), or does so no longer (-1).
    pub(super) fn count_backoff(&mut self, criticality: Criticality, tenant: Option<&Label>, change: i32) {
        self.classes[criticality.index()].change(tenant, |line| {
            line.backoff = line.backoff.strict_add_signed(change);
        });
    }

    /// How many messages are ready and may be seen, eligible or not.
    pub(super) fn len(&self) -> u64 {
        self.classes.iter().map(|class| class.ages.len() + class.blocked.len()).sum()
    }

    /// How many of them wait for another one of their group.
    pub(super) fn blocked(&self) -> u64 {
        self.classes.iter().map(|class| class.blocked.len()).sum()
    }

    /// Whether anything may be handed out.
    pub(super) fn has_eligible(&self) -> bool {
        self.classes.iter().any(|class| class.has_fresh() || class.has_retries())
    }

    /// Whether retries may go out at `now`, though fresh work may wait.
    fn allows_retries(&self, rules: &Rules, now: Mono) -> bool {
        !self.classes.iter().any(Class::has_fresh) || self.budget.allows(rules.retry_share, now)
    }

    /// The message to hand out next at `now`.
    pub(super) fn next(&self, rules: &Rules, now: Mono) -> Option<Pick> {
        let retries_allowed = self.allows_retries(rules, now);
        let eligible =
            |(_, class): &(usize, &Class)| class.has_fresh() || (retries_allowed && class.has_retries());
        let mut classes = self.classes.iter().enumerate().filter(eligible);
        // Of several with the same pass, the first one is the most critical.
        let first = if rules.strict { classes.next() } else { classes.min_by_key(|(_, class)| class.pass) };
        let (index, class) = first?;
        let (place, retry) = class.next(rules.direction, retries_allowed)?;
        Some(Pick { seq: self.seq_at(place), class: index, retry })
    }

    /// Counts the hand-out of what [`ReadySet::next`] has found, before its message leaves the set.
    pub(super) fn count_hand_out(&mut self, pick: Pick, rules: &Rules, now: Mono) {
        let retries_allowed = self.allows_retries(rules, now);
        self.budget.count(pick.retry, rules.retry_share, now);
        let class = &mut self.classes[pick.class];
        if !rules.strict {
            self.pass = self.pass.max(class.pass);
            class.pass += WEIGHTS[0] / WEIGHTS[pick.class];
        }
        class.take_turn(pick.retry);
        if !rules.strict && !retries_allowed {
            // Who has nothing but retries could not go out, and saves up no credit either.
            for class in self.classes.iter_mut().filter(|class| !class.has_fresh()) {
                class.pass = class.pass.max(self.pass);
            }
        }
    }

    /// The message at a place, if there is one.
    pub(super) fn seq_at(&self, place: u64) -> Seq {
        self.moved.get(&place).copied().unwrap_or(Seq(place))
    }

    /// The oldest ready ones: one of these is the oldest of all.
    pub(super) fn oldest(&self) -> impl Iterator<Item = Oldest> {
        self.oldest_eligible().chain(self.classes.iter().flat_map(|class| class.blocked.oldest()))
    }

    /// The same among those that are eligible.
    pub(super) fn oldest_eligible(&self) -> impl Iterator<Item = Oldest> {
        self.classes.iter().flat_map(|class| class.ages.oldest())
    }

    /// The ready messages of one class, eligible or not, durable or not, from the lowest place to the highest.
    pub(super) fn all_in(&self, criticality: Criticality) -> impl Iterator<Item = u64> {
        let class = &self.classes[criticality.index()];
        merged(class.ages.places(), merged(class.blocked.places(), class.arriving.iter()))
    }

    /// A tenant's line in a class, if anything of it waits.
    pub(super) fn line(&self, criticality: Criticality, tenant: Option<&Label>) -> Option<&Line> {
        self.classes[criticality.index()].line(tenant)
    }

    /// Whether a tenant's line in a class is the only one of the queue.
    pub(super) fn is_only_line(&self, criticality: Criticality, tenant: Option<&Label>) -> bool {
        let own = self.line(criticality, tenant).is_some_and(|line| line.len() > 0);
        self.classes.iter().map(|class| class.lengths.lines()).sum::<u64>() == u64::from(own)
    }

    /// How many messages probably start before one that has `before` in its own line before it: what those go out
    /// with in their turns, of other tenants and of other classes.
    pub(super) fn ahead(
        &self,
        criticality: Criticality,
        tenant: Option<&Label>,
        before: u64,
        rules: &Rules,
    ) -> u64 {
        let own = criticality.index();
        let own_len = self.line(criticality, tenant).map_or(0, Line::len);
        let in_class = before + self.classes[own].lengths.others(own_len, before.saturating_add(1));
        let others = self.classes.iter().enumerate().filter(|&(index, _)| index != own);
        others.fold(in_class, |ahead, (index, class)| {
            let waiting = class.lengths.total();
            let share = match (rules.strict, index < own) {
                (true, true) => waiting,
                (true, false) => 0,
                (false, _) => in_class.saturating_mul(WEIGHTS[index]) / WEIGHTS[own],
            };
            ahead + waiting.min(share)
        })
    }

    /// Checks everything that can be checked from inside.
    pub(super) fn assert_consistent(&self) {
        for class in &self.classes {
            class.assert_consistent();
        }
    }

    /// Whether it holds a message as it is described here. For checks.
    pub(super) fn holds(&self, ready: Ready<'_>) -> bool {
        let line = self.line(ready.criticality, ready.tenant);
        let places = line.map(|line| match (ready.blocked, ready.retry) {
            (true, _) => &line.blocked,
            (false, true) => &line.retries,
            (false, false) => &line.fresh,
        });
        places.is_some_and(|places| places.contains(ready.age.place))
            && self.seq_at(ready.age.place) == ready.seq
    }
}

fn places_of<'a>(line: &'a mut Line, ready: Ready<'_>) -> &'a mut PlaceSet {
    match (ready.blocked, ready.retry) {
        (true, _) => &mut line.blocked,
        (false, true) => &mut line.retries,
        (false, false) => &mut line.fresh,
    }
}
