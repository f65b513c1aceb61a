//! The judge of a choice: whether the message that a queue hands out next was one whose turn it was.
//!
//! Owns order, classes, tenants and the budget of retries. Must never know what made a message eligible. Fresh work
//! and retries are judged apart wherever a rule speaks of turns: retries may be held back.

use millpond_core::message::Criticality;
use millpond_core::settings::{Order, Priority, QueueSettings};
use millpond_core::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// Retries that may go out at once while fresh work waits.
const RETRY_BURST: f64 = 10.0;
/// Retries a second that the budget always allows.
const RETRIES_PER_SECOND: f64 = 1.0;
/// In an adaptive order under pressure, one in so many hand-outs is the oldest.
const OLDEST_EVERY: u32 = 5;
/// Rounding in a budget.
const SLACK: f64 = 1e-3;

/// A message that may be handed out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its number.
    pub seq: u64,
    /// Its place.
    pub place: u64,
    /// Its class.
    pub class: Criticality,
    /// Its tenant.
    pub tenant: Option<u8>,
    /// Whether it has failed before.
    pub retry: bool,
    /// When it was first due.
    pub due_since: Mono,
}

/// Tenants that went before another one, each with fresh work or with a retry, and how often.
type Passed = BTreeMap<(Option<u8>, bool), u32>;

/// What is owed to whom in one queue.
#[derive(Debug)]
pub struct Turns {
    /// For a tenant that has work, by class: how often each other one went before it, with fresh work while it had
    /// some, and with a retry while it had one.
    passed: BTreeMap<(Criticality, Option<u8>), Passed>,
    /// For two classes that both have work, how much more the first got of its share than the second, each hand-out
    /// counted as the inverse of the class's weight.
    leads: BTreeMap<(Criticality, Criticality), f64>,
    /// For a tenant that has fresh work, by class: how often the newest went out since the oldest did.
    newest: BTreeMap<(Criticality, Option<u8>), u32>,
    /// Retries beyond what the budget has refilled, where only those count that went before fresh work.
    overdrawn: f64,
    /// What is left of the budget at least.
    left: f64,
    counted: Option<Mono>,
}

impl Default for Turns {
    fn default() -> Self {
        let (passed, leads, newest) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { passed, leads, newest, overdrawn: 0.0, left: RETRY_BURST, counted: None }
    }
}

/// Whether the budget cannot hold it back.
fn is_free(settings: &QueueSettings, one: &Candidate) -> bool {
    !one.retry || settings.retry.budget >= 1.0
}

fn weight(class: Criticality) -> f64 {
    f64::from(8 >> class.index())
}

impl Turns {
    /// Judges the hand-out of `chosen` while `others` could have been. `was_calm`: nothing that has gone in the same
    /// step was too old for an adaptive order to be first in, first out. Returns what was remarkable.
    pub fn judge(
        &mut self,
        settings: &QueueSettings,
        chosen: Candidate,
        others: &[Candidate],
        was_calm: bool,
        now: Mono,
    ) -> Vec<&'static str> {
        let held = self.judge_budget(settings, chosen, others, now);
        let marks = [
            self.judge_order(settings, chosen, others, was_calm, now),
            judge_strictness(settings, chosen, others),
            self.judge_tenants(chosen, others),
            self.judge_shares(settings, chosen, others),
            held,
        ];
        self.spend(settings, chosen);
        marks.into_iter().flatten().collect()
    }

    /// A turn is owed only to those that have had work all the time since.
    pub fn look(&mut self, settings: &QueueSettings, waiting: &[Candidate]) {
        self.passed.retain(|&(class, tenant), passed| {
            passed.retain(|&(_, retry), _| {
                waiting.iter().any(|one| (one.class, one.tenant, one.retry) == (class, tenant, retry))
            });
            !passed.is_empty()
        });
        self.newest.retain(|&(class, tenant), _| {
            waiting.iter().any(|one| (one.class, one.tenant, one.retry) == (class, tenant, false))
        });
        let has_work = |class| waiting.iter().any(|one| one.class == class && is_free(settings, one));
        self.leads.retain(|&(first, second), _| has_work(first) && has_work(second));
    }

    fn judge_tenants(&mut self, chosen: Candidate, others: &[Candidate]) -> Option<&'static str> {
        let Candidate { class, tenant, retry, .. } = chosen;
        let before = self.passed.remove(&(class, tenant));
        let rivals = others.iter().filter(|one| (one.class, one.retry) == (class, retry));
        let rivals: BTreeSet<_> = rivals.map(|one| one.tenant).collect();
        for other in rivals.into_iter().filter(|other| *other != tenant) {
            let passed = self.passed.entry((class, other)).or_default();
            let count = passed.entry((tenant, retry)).or_default();
            *count += 1;
            assert!(*count <= 1, "{chosen:?}: its tenant goes twice while {other:?} waits");
        }
        before.map(|_| "a tenant takes its turn")
    }

    fn judge_shares(
        &mut self,
        settings: &QueueSettings,
        chosen: Candidate,
        others: &[Candidate],
    ) -> Option<&'static str> {
        if settings.priority != Priority::Weighted {
            return None;
        }
        let share = 1.0 / weight(chosen.class);
        let free = others.iter().filter(|one| is_free(settings, one) && one.class != chosen.class);
        let rivals: BTreeSet<_> = free.map(|one| one.class).collect();
        for &rival in &rivals {
            let lead = self.leads.entry((chosen.class, rival)).or_default();
            *lead += share;
            // What start-time fair queuing promises of two classes that both have work all the time.
            let most = share + 1.0 / weight(rival);
            assert!(
                *lead <= most + SLACK,
                "{chosen:?}: its class has {lead} more of its share than {rival:?}"
            );
        }
        for ((_, second), lead) in &mut self.leads {
            if *second == chosen.class {
                *lead = (*lead - share).max(0.0);
            }
        }
        rivals.first().is_some_and(|first| *first < chosen.class).then_some("a lower class takes its share")
    }

    fn judge_budget(
        &mut self,
        settings: &QueueSettings,
        chosen: Candidate,
        others: &[Candidate],
        now: Mono,
    ) -> Option<&'static str> {
        let since = self.counted.replace(now).unwrap_or(now);
        let refilled = now.since(since).as_secs_f64() * RETRIES_PER_SECOND;
        self.overdrawn = (self.overdrawn - refilled).max(0.0);
        self.left = (self.left + refilled).min(RETRY_BURST);
        let fresh_waits = others.iter().any(|one| !one.retry);
        if chosen.retry && fresh_waits && settings.retry.budget < 1.0 {
            self.overdrawn += 1.0;
            assert!(self.overdrawn <= RETRY_BURST + SLACK, "{chosen:?}: a retry beyond the budget");
        }
        let passed = others.iter().any(|one| one.retry && one.place < chosen.place);
        match chosen.retry {
            _ if !self.may_be_spent(settings) => None,
            true => (!fresh_waits).then_some("a retry goes out unpaid, as nothing else waits"),
            false => passed.then_some("a retry is held back by the budget"),
        }
    }

    /// Whether so many retries went out lately that another one may have to wait for fresh work.
    fn may_be_spent(&self, settings: &QueueSettings) -> bool {
        settings.retry.budget < 1.0 && self.left < 1.0 + SLACK
    }

    /// Counts a hand-out against the budget, or for it.
    fn spend(&mut self, settings: &QueueSettings, chosen: Candidate) {
        let budget = settings.retry.budget;
        if chosen.retry {
            self.left = (self.left - 1.0).max(0.0);
        } else if budget < 1.0 {
            let earned = budget / (1.0 - budget);
            self.overdrawn = (self.overdrawn - earned).max(0.0);
            self.left = (self.left + earned).min(RETRY_BURST);
        }
    }

    /// Among the work of one class and tenant: retries by place, fresh work in the queue's order.
    fn judge_order(
        &mut self,
        settings: &QueueSettings,
        chosen: Candidate,
        others: &[Candidate],
        was_calm: bool,
        now: Mono,
    ) -> Option<&'static str> {
        let mine = others.iter().filter(|one| (one.class, one.tenant) == (chosen.class, chosen.tenant));
        let (same, other): (Vec<&Candidate>, Vec<_>) = mine.partition(|one| one.retry == chosen.retry);
        let lower = same.iter().find(|one| one.place < chosen.place);
        let higher = same.iter().find(|one| one.place > chosen.place);
        let calm = match settings.order {
            Order::Fifo => true,
            Order::Lifo => false,
            Order::Adaptive => {
                let young = |one: &Candidate| now.since(one.due_since) < settings.fresh_within;
                was_calm && others.iter().chain([&chosen]).all(young)
            }
        };
        if calm || chosen.retry {
            assert!(lower.is_none(), "{chosen:?} is handed out before {lower:?}");
        }
        if calm {
            // Tenants take turns with fresh work and with retries apart: only a tenant on its own keeps both in order.
            let alone = others.iter().all(|one| one.class != chosen.class || one.tenant == chosen.tenant);
            let first = other.iter().find(|one| alone && one.place < chosen.place);
            let held = !chosen.retry && self.may_be_spent(settings);
            assert!(first.is_none() || held, "{chosen:?} is handed out before {first:?}");
        }
        if calm && !chosen.retry {
            // It was the oldest of its line.
            self.newest.remove(&(chosen.class, chosen.tenant));
        }
        if calm || chosen.retry {
            return None;
        }
        if settings.order == Order::Lifo {
            assert!(higher.is_none(), "{chosen:?} is handed out before {higher:?}");
            return lower.map(|_| "the newest goes first");
        }
        assert!(
            lower.is_none() || higher.is_none(),
            "{chosen:?} is neither the oldest nor the newest: {lower:?}, {higher:?}"
        );
        let newest = self.newest.entry((chosen.class, chosen.tenant)).or_default();
        *newest = if lower.is_some() { *newest + 1 } else { 0 };
        assert!(*newest < OLDEST_EVERY, "{newest} of the newest went before {lower:?}");
        match (lower, higher) {
            (Some(_), None) => Some("under pressure the newest goes first"),
            (None, Some(_)) => Some("an old message gets the side share of the newest"),
            _ => None,
        }
    }
}

/// Nothing of a lower class goes out while a higher one has work. Retries of a higher class may be held back.
fn judge_strictness(
    settings: &QueueSettings,
    chosen: Candidate,
    others: &[Candidate],
) -> Option<&'static str> {
    if settings.priority != Priority::Strict {
        return None;
    }
    let first = others.iter().find(|one| one.class < chosen.class && (!one.retry || chosen.retry));
    assert!(first.is_none(), "{chosen:?} is handed out before {first:?}");
    others.iter().any(|one| one.class > chosen.class).then_some("a lower class waits for a higher one")
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Turns};
    use millpond_core::message::Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};
    use millpond_core::settings::{Order, Priority, QueueSettings, RetrySettings};
    use millpond_core::time::Mono;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn fresh(place: u64) -> Candidate {
        Candidate { seq: place, place, class: Critical, tenant: None, retry: false, due_since: Mono(0) }
    }

    fn retry(place: u64) -> Candidate {
        Candidate { retry: true, ..fresh(place) }
    }

    fn of_tenant(place: u64, tenant: u8) -> Candidate {
        Candidate { tenant: Some(tenant), ..fresh(place) }
    }

    /// Whether the judge finds nothing wrong with these hand-outs, each with what else was there.
    fn is_right(settings: &QueueSettings, choices: &[(Candidate, Vec<Candidate>)], at: i64) -> bool {
        let mut turns = Turns::default();
        let judged = catch_unwind(AssertUnwindSafe(|| {
            for (chosen, others) in choices {
                turns.judge(settings, *chosen, others, true, Mono(at));
                turns.look(settings, others);
            }
        }));
        judged.is_ok()
    }

    #[test]
    fn the_order_within_a_line_is_judged() {
        for (order, right, wrong) in [(Order::Fifo, 1, 2), (Order::Lifo, 3, 2)] {
            let settings = QueueSettings { order, ..QueueSettings::default() };
            let choose = |place: u64| {
                let others = (1..=3).filter(|other| *other != place).map(fresh).collect();
                is_right(&settings, &[(fresh(place), others)], 0)
            };
            assert!(choose(right) && !choose(wrong), "{order:?}");
        }
        let settings = QueueSettings { order: Order::Adaptive, ..QueueSettings::default() };
        let choose = |place: u64, seconds: i64| {
            let others = (1..=3).filter(|other| *other != place).map(fresh).collect();
            is_right(&settings, &[(fresh(place), others)], seconds * 1_000_000)
        };
        assert!(choose(1, 0) && choose(1, 60) && choose(3, 60));
        assert!(!choose(3, 0) && !choose(2, 0) && !choose(2, 60));
    }

    #[test]
    fn a_tenant_that_is_passed_twice_is_noticed() {
        let settings = QueueSettings::default();
        let mine = |place| (of_tenant(place, 1), vec![of_tenant(9, 2)]);
        assert!(is_right(&settings, &[mine(1)], 0));
        assert!(!is_right(&settings, &[mine(1), mine(2)], 0));
        let between = (of_tenant(9, 2), vec![of_tenant(2, 1)]);
        assert!(is_right(&settings, &[mine(1), between, mine(2)], 0));
        let empty = (of_tenant(2, 1), Vec::new());
        assert!(is_right(&settings, &[mine(1), empty, mine(3)], 0), "it had no work in between");
    }

    #[test]
    fn a_class_without_its_share_is_noticed() {
        let of = |class, place| Candidate { class, ..fresh(place) };
        let settings = QueueSettings::default();
        let rounds = |picks: &[super::Criticality], times: u64| {
            let picks = (0..times).flat_map(|_| picks);
            let choice = |class: &super::Criticality| {
                let others = super::Criticality::ALL.map(|other| of(other, 2));
                (of(*class, 1), others.to_vec())
            };
            is_right(&settings, &picks.map(choice).collect::<Vec<_>>(), 0)
        };
        // Eight, four, two and one of fifteen, well mixed.
        let mut fair = [CriticalPlus; 15];
        for at in [1, 5, 9, 13] {
            fair[at] = Critical;
        }
        (fair[3], fair[11], fair[7]) = (SheddablePlus, SheddablePlus, Sheddable);
        assert!(rounds(&fair, 10));
        assert!(!rounds(&[CriticalPlus], 20));
        assert!(!rounds(&[Sheddable], 10));
        let strict = QueueSettings { priority: Priority::Strict, ..QueueSettings::default() };
        let lower_first = [(of(Sheddable, 1), vec![of(Critical, 2)])];
        assert!(is_right(&settings, &lower_first, 0) && !is_right(&strict, &lower_first, 0));
    }

    #[test]
    fn retries_beyond_the_budget_are_noticed_while_fresh_work_waits() {
        let with = |budget| QueueSettings {
            retry: RetrySettings { budget, ..RetrySettings::default() },
            ..QueueSettings::default()
        };
        let retries = |settings: &QueueSettings, count: u64, others: &[Candidate]| {
            let choices: Vec<_> = (0..count).map(|place| (retry(place), others.to_vec())).collect();
            is_right(settings, &choices, 0)
        };
        assert!(retries(&with(0.2), 10, &[fresh(99)]) && !retries(&with(0.2), 11, &[fresh(99)]));
        assert!(retries(&with(1.0), 50, &[fresh(99)]) && retries(&with(0.0), 50, &[]));
    }
}
