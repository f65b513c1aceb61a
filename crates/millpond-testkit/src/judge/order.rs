//! The judgement of who goes next: order within a tenant's line, turns of tenants, shares of classes.
//!
//! Owns the rules between messages that surely waited and one that was handed out. Must never count what only may have
//! waited: what was delayed, tried before, replayed, blocked by its group or never answered is left out. Linear, apart
//! from sorting and from the few lines that wait at once.

use super::life::moment;
use super::{Case, Life, Rule};
use crate::trail::{HandOut, MessageId, Micros, Offer, Order, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Whose line it is: class and tenant.
type LineOf = (u8, Option<u64>);

/// What classes get where all have work, from the most critical to the least.
const WEIGHTS: [f64; 4] = [8.0, 4.0, 2.0, 1.0];
/// Rounding.
const SLACK: f64 = 1e-6;

/// One step in the history of a queue. At one moment, what is gone goes first, then a server starts, then comes what
/// is handed out, in the order of the trail; what was accepted at that moment waits only afterwards. What is handed out
/// at the moment of a start was handed out by either server: so the start is a step before it, and one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Gone(MessageId),
    BootBefore,
    HandedOut(usize),
    BootAfter,
    Waits(MessageId),
}

/// The messages of one line that surely wait: by when they were surely there, by when they were sent, by their places in
/// batches.
#[derive(Debug, Default)]
struct Line {
    ended: BTreeSet<(Micros, MessageId)>,
    sent: BTreeSet<(Micros, MessageId)>,
    batches: BTreeSet<((u64, usize), MessageId)>,
}

/// What waits in one queue, and what is owed to whom.
#[derive(Debug, Default)]
struct Waiting {
    lines: BTreeMap<LineOf, Line>,
    /// How often another tenant of its class went with fresh work while this line waited.
    passed: BTreeMap<LineOf, BTreeMap<Option<u64>, u32>>,
    /// How much more of its share one class got while another one waited.
    leads: BTreeMap<(u8, u8), f64>,
}

/// When a message came that surely waits for its first hand-out.
#[derive(Debug, Clone, Copy)]
struct Place {
    sent: Micros,
    ended: Micros,
    batch: (u64, usize),
    line: LineOf,
    grouped: bool,
}

/// The place of a message that has one and whose first hand-out is fresh work.
fn place(life: &Life<'_>) -> Option<Place> {
    let first: &Offer = life.offers.iter().min_by_key(|offer| offer.span.sent)?;
    let ended = life.offers.iter().map(|offer| offer.span.ended).min()?;
    let is_known = life.perhaps.is_empty() && first.delay == 0;
    let (sent, batch, grouped) = (first.span.sent, first.batch, first.group.is_some());
    is_known.then_some(Place { sent, ended, batch, line: (first.class, first.tenant), grouped })
}

impl Line {
    fn insert(&mut self, id: MessageId, place: Place) {
        self.ended.insert((place.ended, id));
        self.sent.insert((place.sent, id));
        self.batches.insert((place.batch, id));
    }

    fn remove(&mut self, id: MessageId, place: Place) {
        self.ended.remove(&(place.ended, id));
        self.sent.remove(&(place.sent, id));
        self.batches.remove(&(place.batch, id));
    }

    /// One that surely came before `place`.
    fn before(&self, place: Place) -> Option<MessageId> {
        let ((batch, at), none) = (place.batch, MessageId::MIN);
        let first = self.ended.first().filter(|(ended, _)| *ended < place.sent).map(|(_, id)| *id);
        first
            .or_else(|| self.batches.range(((batch, 0), none)..((batch, at), none)).next().map(|(_, id)| *id))
    }

    /// One that surely came after it.
    fn after(&self, place: Place) -> Option<MessageId> {
        let ((batch, at), none) = (place.batch, MessageId::MIN);
        let last = self.sent.last().filter(|(sent, _)| *sent > place.ended).map(|(_, id)| *id);
        let behind = ((batch, at + 1), none)..((batch + 1, 0), none);
        last.or_else(|| self.batches.range(behind).next().map(|(_, id)| *id))
    }
}

impl Waiting {
    fn insert(&mut self, id: MessageId, place: Place) {
        self.lines.entry(place.line).or_default().insert(id, place);
    }

    /// A line that is empty is owed nothing any more, nor is a class without a line.
    fn remove(&mut self, id: MessageId, place: Place) {
        let Some(line) = self.lines.get_mut(&place.line) else { return };
        line.remove(id, place);
        if line.ended.is_empty() {
            self.lines.remove(&place.line);
            self.passed.remove(&place.line);
            let class = place.line.0;
            if !self.has(class) {
                self.leads.retain(|(_, waits), _| *waits != class);
            }
        }
    }

    fn has(&self, class: u8) -> bool {
        self.lines.range((class, None)..).next().is_some_and(|((other, _), _)| *other == class)
    }

    fn forget_debts(&mut self) {
        self.passed.clear();
        self.leads.clear();
    }

    /// Counts a turn of `line`; the line that has waited for too many, if there is one.
    fn take_turn(&mut self, line: LineOf, fresh: bool) -> Option<LineOf> {
        self.passed.remove(&line);
        if !fresh {
            return None;
        }
        let (class, tenant) = line;
        let rivals = self.lines.keys().filter(|(of, other)| *of == class && *other != tenant);
        let rivals: Vec<LineOf> = rivals.copied().collect();
        let mut too_often = None;
        for rival in rivals {
            let count = self.passed.entry(rival).or_default().entry(tenant).or_default();
            *count += 1;
            if *count > 1 {
                too_often = Some(rival);
            }
        }
        too_often
    }

    /// Counts a hand-out of a class against its share; the class that has waited for too many, if there is one. Two
    /// classes that both wait are never further apart than a hand-out of each (Goyal, Vin, Cheng, "Start-time Fair
    /// Queuing", 1996).
    fn take_share(&mut self, class: u8) -> Option<u8> {
        let step = |class: u8| 1.0 / WEIGHTS[usize::from(class)];
        let mut too_long = None;
        for rival in (0..4).filter(|rival| *rival != class) {
            if !self.has(rival) {
                continue;
            }
            let lead = self.leads.entry((class, rival)).or_default();
            *lead += step(class);
            if *lead > step(class) + step(rival) + SLACK {
                too_long = Some(rival);
            }
        }
        for (_, lead) in self.leads.iter_mut().filter(|((_, waits), _)| *waits == class) {
            *lead = (*lead - step(class)).max(0.0);
        }
        too_long
    }
}

impl Case<'_> {
    pub(super) fn judge_order(&mut self) {
        let mut queues: BTreeMap<u32, Vec<(Micros, Step)>> = BTreeMap::new();
        for (&id, life) in &self.lives {
            let Some(queue) = life.queue else { continue };
            let steps = queues.entry(queue).or_default();
            if let Some(place) = place(life).filter(|place| !place.grouped) {
                steps.push((place.ended, Step::Waits(id)));
                steps.push((self.waits_until(life), Step::Gone(id)));
            }
        }
        for (at, one) in self.hand_outs.iter().enumerate() {
            queues.entry(one.queue).or_default().push((one.span.ended, Step::HandedOut(at)));
        }
        let boots = self.clocks.boots.iter();
        let boots = boots.flat_map(|&boot| [(boot, Step::BootBefore), (boot, Step::BootAfter)]);
        let boots: Vec<(Micros, Step)> = boots.collect();
        let mut violations = Vec::new();
        for mut steps in queues.into_values() {
            steps.extend(&boots);
            steps.sort_unstable();
            violations.extend(self.judge_steps(&steps));
        }
        for (rule, id, detail) in violations {
            self.violated(rule, id, detail);
        }
    }

    /// When a message that waits for its first hand-out may have stopped to do so otherwise, or may have been handed out
    /// at a moment that is not known.
    fn waits_until(&self, life: &Life<'_>) -> Micros {
        let end = life.end_from(&self.clocks);
        let unheard = life.unheard.iter().map(|(at, _)| *at);
        let handed = life.hand_outs.first().filter(|one| one.span.sent < one.span.ended);
        let handed = handed.map(|one| one.span.sent);
        unheard.chain(end).chain(handed).min().unwrap_or(Micros::MAX)
    }

    fn judge_steps(&self, steps: &[(Micros, Step)]) -> Vec<(Rule, MessageId, String)> {
        let mut waiting = Waiting::default();
        let mut gone: BTreeSet<MessageId> = BTreeSet::new();
        let mut found = Vec::new();
        for &(_, step) in steps {
            match step {
                // Turns and shares begin anew.
                Step::BootBefore | Step::BootAfter => waiting.forget_debts(),
                Step::Waits(id) if gone.contains(&id) => {}
                Step::Waits(id) => {
                    waiting.insert(id, place(&self.lives[&id]).expect("it has one"));
                }
                Step::Gone(id) => {
                    gone.insert(id);
                    if let Some(place) = place(&self.lives[&id]) {
                        waiting.remove(id, place);
                    }
                }
                Step::HandedOut(at) => {
                    let one = self.hand_outs[at];
                    gone.insert(one.id);
                    found.extend(self.judge_choice(one, &mut waiting));
                }
            }
        }
        found
    }

    /// Judges one hand-out by what surely waited then.
    fn judge_choice(&self, one: &HandOut, waiting: &mut Waiting) -> Vec<(Rule, MessageId, String)> {
        let life = &self.lives[&one.id];
        let first = life.hand_outs.first().is_some_and(|first| first.hand_out == one.hand_out);
        let fresh = place(life).filter(|_| first && life.unheard.iter().all(|(at, _)| *at > one.span.ended));
        if let Some(place) = fresh {
            waiting.remove(one.id, place);
        }
        let Some(offer) = life.all_offers().next() else {
            waiting.forget_debts();
            return Vec::new();
        };
        let (class, at) = (offer.class, one.span.ended);
        let mut found = Vec::new();
        if let Some(other) = fresh.and_then(|place| self.misplaced(one, place, waiting)) {
            found.push((Rule::Order, one.id, format!("{} was handed out at {at} before {other}", one.id)));
        }
        let passed = waiting.take_turn((class, offer.tenant), fresh.is_some());
        // Of hand-outs at moments that are not known, it is not known either whose turn came first.
        if let Some((_, tenant)) = passed.filter(|_| one.span.sent == at) {
            let detail = format!("{:?} goes twice by {at} while {tenant:?} waits", offer.tenant);
            found.push((Rule::Turns, one.id, detail));
        }
        match self.agreed(one.queue, one.span, |rules| rules.strict) {
            Some(true) => {
                waiting.leads.clear();
                if let Some(higher) = (0..class).find(|higher| waiting.has(*higher)) {
                    let detail = format!("class {class} goes at {at} while class {higher} waits");
                    found.push((Rule::Shares, one.id, detail));
                }
            }
            Some(false) => {
                if let Some(rival) = waiting.take_share(class).filter(|_| one.span.sent == at) {
                    let detail = format!("class {class} goes beyond its share at {at} while {rival} waits");
                    found.push((Rule::Shares, one.id, detail));
                }
            }
            None => waiting.leads.clear(),
        }
        found
    }

    /// A message of its line that surely had to go before it.
    fn misplaced(&self, one: &HandOut, place: Place, waiting: &Waiting) -> Option<MessageId> {
        let line = waiting.lines.get(&place.line)?;
        // One that was replayed has another place.
        if life_was_replayed(&self.lives[&one.id], one.span) {
            return None;
        }
        match self.agreed(one.queue, one.span, |rules| rules.order)? {
            Order::First => line.before(place),
            Order::Last => line.after(place),
            Order::Depends => None,
        }
    }
}

fn life_was_replayed(life: &Life<'_>, until: Span) -> bool {
    life.replayed_between(moment(Micros::MIN).sent, until.ended)
}
