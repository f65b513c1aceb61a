//! The judge of a history: what a durable, at-least-once, fenced queue may have shown to its users.
//!
//! Owns the rules, after Jepsen's `total-queue`: nothing acknowledged is lost, nothing is invented, and a message is
//! handed out again only for a reason. What was not answered is unknown, and both outcomes are right. Must never know
//! how a server works. Linear in the number of events, apart from sorting the hand-outs of each message.

use crate::history::{End, Enqueued, Event, Moment, Settled, Word};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a history shows that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// It was acknowledged, everything has drained, and it has neither succeeded nor died.
    Lost(String),
    /// A message was handed out that nobody had enqueued, or whose enqueue was refused.
    Invented(u64),
    /// One payload with an idempotency key became two messages.
    Doubled(u64),
    /// One id stands for two payloads.
    Mixed(String),
    /// Its completion was acknowledged, and it was handed out afterwards.
    CompletedTwice(String),
    /// Its completion was acknowledged, and its status says otherwise.
    Undone(String),
    /// It is said to have succeeded, and nobody had completed it.
    NeverDone(String),
    /// It was handed out while another worker held it.
    Overlap(String),
}

/// What a history amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were acknowledged.
    pub acknowledged: usize,
    /// Enqueues that were refused.
    pub refused: usize,
    /// Enqueues without an answer.
    pub unknown: usize,
    /// Of those, the ones that turned out to be stored.
    pub recovered: usize,
    /// Hand-outs.
    pub hand_outs: usize,
    /// Hand-outs of messages that had been handed out before.
    pub repeated: usize,
    /// Messages that succeeded.
    pub succeeded: usize,
    /// Messages that died.
    pub dead: usize,
}

#[derive(Debug, Clone, Copy)]
struct HandOut<'a> {
    receipt: &'a str,
    sent: Moment,
    ended: Moment,
    lease: Duration,
}

#[derive(Debug, Default)]
struct Life<'a> {
    payloads: BTreeSet<u64>,
    hand_outs: Vec<HandOut<'a>>,
    /// When each receipt was first used to give the message back.
    given_back: BTreeMap<&'a str, Moment>,
    /// When its completion was first acknowledged.
    completed: Option<Moment>,
    /// Whether a completion was said that was not refused.
    perhaps_completed: bool,
    end: Option<End>,
}

#[derive(Debug, Default)]
struct Offer<'a> {
    keyed: bool,
    accepted: BTreeSet<&'a str>,
    unknown: usize,
}

/// Checks a whole history, at whose end everything has drained. All violations, sorted; none is good.
pub fn check(events: &[Event]) -> (Summary, Vec<Violation>) {
    let mut summary = Summary::default();
    let mut offers: BTreeMap<u64, Offer<'_>> = BTreeMap::new();
    let mut lives: BTreeMap<&str, Life<'_>> = BTreeMap::new();
    let mut deaths: Vec<Moment> = Vec::new();
    for event in events {
        match event {
            Event::Enqueue { payload, keyed, answer } => {
                let offer = offers.entry(*payload).or_default();
                offer.keyed = *keyed;
                match answer {
                    Enqueued::Accepted(id) => {
                        offer.accepted.insert(id);
                        lives.entry(id).or_default().payloads.insert(*payload);
                    }
                    Enqueued::Refused => summary.refused += 1,
                    Enqueued::Unknown => {
                        offer.unknown += 1;
                        summary.unknown += 1;
                    }
                }
            }
            Event::HandOut { id, payload, receipt, sent, ended, lease } => {
                let life = lives.entry(id).or_default();
                life.payloads.insert(*payload);
                life.hand_outs.push(HandOut { receipt, sent: *sent, ended: *ended, lease: *lease });
            }
            Event::Settle { id, receipt, word, sent, ended, answer } => {
                settled(lives.entry(id).or_default(), receipt, *word, (*sent, *ended), *answer);
            }
            Event::Death { at } => deaths.push(*at),
            Event::End { id, end } => lives.entry(id).or_default().end = Some(*end),
        }
    }
    deaths.sort_unstable();
    let mut violations = judge_offers(&offers, &lives, &mut summary);
    for (id, life) in &lives {
        violations.extend(judge_life(id, life, &deaths, &mut summary));
    }
    violations.sort();
    violations.dedup();
    (summary, violations)
}

fn settled<'a>(
    life: &mut Life<'a>,
    receipt: &'a str,
    word: Word,
    (sent, ended): (Moment, Moment),
    answer: Settled,
) {
    if answer == Settled::Refused {
        return;
    }
    match word {
        Word::Complete => {
            life.perhaps_completed = true;
            if answer == Settled::Accepted {
                life.completed = Some(life.completed.map_or(ended, |first| first.min(ended)));
            }
        }
        Word::Retry | Word::Release => {
            let first = life.given_back.entry(receipt).or_insert(sent);
            *first = sent.min(*first);
        }
        Word::Dead => {}
    }
}

fn judge_offers(
    offers: &BTreeMap<u64, Offer<'_>>,
    lives: &BTreeMap<&str, Life<'_>>,
    summary: &mut Summary,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut stored: BTreeMap<u64, usize> = BTreeMap::new();
    for payload in lives.values().flat_map(|life| &life.payloads) {
        *stored.entry(*payload).or_default() += 1;
    }
    for (payload, ids) in &stored {
        let Some(offer) = offers.get(payload) else {
            violations.push(Violation::Invented(*payload));
            continue;
        };
        if *ids > offer.accepted.len() + offer.unknown {
            violations.push(Violation::Invented(*payload));
        }
        if offer.keyed && *ids > 1 {
            violations.push(Violation::Doubled(*payload));
        }
        summary.recovered += usize::from(offer.accepted.is_empty());
    }
    for id in offers.values().flat_map(|offer| &offer.accepted) {
        summary.acknowledged += 1;
        if !matches!(lives[id].end, Some(End::Succeeded | End::Dead)) {
            violations.push(Violation::Lost((*id).to_owned()));
        }
    }
    violations
}

fn judge_life(id: &str, life: &Life<'_>, deaths: &[Moment], summary: &mut Summary) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut violated = |is: bool, violation: fn(String) -> Violation| {
        if is {
            violations.push(violation(id.to_owned()));
        }
    };
    summary.hand_outs += life.hand_outs.len();
    summary.repeated += life.hand_outs.len().saturating_sub(1);
    summary.succeeded += usize::from(life.end == Some(End::Succeeded));
    summary.dead += usize::from(life.end == Some(End::Dead));
    violated(life.payloads.len() > 1, Violation::Mixed);
    if let Some(completed) = life.completed {
        violated(life.hand_outs.iter().any(|one| one.sent > completed), Violation::CompletedTwice);
        violated(life.end.is_some_and(|end| end != End::Succeeded), Violation::Undone);
    }
    violated(life.end == Some(End::Succeeded) && !life.perhaps_completed, Violation::NeverDone);
    let mut hand_outs = life.hand_outs.clone();
    hand_outs.sort_by_key(|one| one.ended);
    // Answers can overtake each other: either order of two neighbours may be the one that happened.
    let overlaps = hand_outs.windows(2).any(|pair| {
        !may_follow(life, &pair[0], &pair[1], deaths) && !may_follow(life, &pair[1], &pair[0], deaths)
    });
    violated(overlaps, Violation::Overlap);
    violations
}

/// Whether the message may have been handed out as `second` after `first`: the lease was over, its holder had given
/// the message back, or the server had died in between.
fn may_follow(life: &Life<'_>, first: &HandOut<'_>, second: &HandOut<'_>, deaths: &[Moment]) -> bool {
    let given_back = life.given_back.get(first.receipt).is_some_and(|at| *at <= second.ended);
    let from = deaths.partition_point(|at| *at < first.sent);
    let died = deaths.get(from).is_some_and(|at| *at <= second.ended);
    second.ended >= first.sent + first.lease || given_back || died
}

#[cfg(test)]
mod tests {
    use super::{Violation, check};
    use crate::history::{End, Enqueued, Event, Settled, Word};
    use std::time::Duration;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn enqueued(payload: u64, answer: Enqueued) -> Event {
        Event::Enqueue { payload, keyed: true, answer }
    }

    fn accepted(payload: u64) -> Event {
        enqueued(payload, Enqueued::Accepted(format!("id-{payload}")))
    }

    fn handed(payload: u64, receipt: &str, time: u64) -> Event {
        Event::HandOut {
            id: format!("id-{payload}"),
            payload,
            receipt: receipt.to_owned(),
            sent: at(time),
            ended: at(time + 1),
            lease: at(1000),
        }
    }

    fn said(payload: u64, receipt: &str, word: Word, time: u64, answer: Settled) -> Event {
        let (id, receipt) = (format!("id-{payload}"), receipt.to_owned());
        Event::Settle { id, receipt, word, sent: at(time), ended: at(time + 1), answer }
    }

    fn ended(payload: u64, end: End) -> Event {
        Event::End { id: format!("id-{payload}"), end }
    }

    fn violations(events: &[Event]) -> Vec<Violation> {
        check(events).1
    }

    fn good() -> Vec<Event> {
        vec![
            accepted(1),
            handed(1, "a", 10),
            said(1, "a", Word::Complete, 20, Settled::Accepted),
            ended(1, End::Succeeded),
        ]
    }

    #[test]
    fn a_plain_life_is_good() {
        let (summary, violations) = check(&good());
        assert!(violations.is_empty(), "{violations:?}");
        assert_eq!((summary.acknowledged, summary.succeeded, summary.repeated), (1, 1, 0));
    }

    #[test]
    fn an_acknowledged_message_without_an_end_is_lost() {
        let lost = [Violation::Lost("id-1".to_owned())];
        assert_eq!(violations(&[accepted(1)]), lost);
        assert_eq!(violations(&[accepted(1), ended(1, End::Other)]), lost);
    }

    #[test]
    fn what_nobody_stored_is_invented() {
        assert_eq!(violations(&[handed(7, "a", 1)]), [Violation::Invented(7)]);
        let refused = enqueued(7, Enqueued::Refused);
        assert_eq!(violations(&[refused, handed(7, "a", 1)]), [Violation::Invented(7)]);
        let unknown = enqueued(7, Enqueued::Unknown);
        assert!(violations(&[unknown, handed(7, "a", 1)]).is_empty(), "both outcomes are right");
    }

    #[test]
    fn one_key_is_one_message() {
        let twice = [
            enqueued(1, Enqueued::Accepted("id-1".to_owned())),
            enqueued(1, Enqueued::Accepted("id-2".to_owned())),
            ended(1, End::Dead),
            ended(2, End::Dead),
        ];
        assert_eq!(violations(&twice), [Violation::Doubled(1)]);
    }

    #[test]
    fn a_completed_message_stays_completed() {
        let mut events = good();
        events.push(handed(1, "b", 5000));
        assert_eq!(violations(&events), [Violation::CompletedTwice("id-1".to_owned())]);
        let mut events = good();
        events.push(ended(1, End::Dead));
        assert_eq!(violations(&events), [Violation::Undone("id-1".to_owned())]);
    }

    #[test]
    fn nothing_succeeds_by_itself() {
        let events = [accepted(1), handed(1, "a", 1), ended(1, End::Succeeded)];
        assert_eq!(violations(&events), [Violation::NeverDone("id-1".to_owned())]);
        let refused = said(1, "a", Word::Complete, 5, Settled::Refused);
        let events = [accepted(1), handed(1, "a", 1), refused, ended(1, End::Succeeded)];
        assert_eq!(violations(&events), [Violation::NeverDone("id-1".to_owned())]);
    }

    #[test]
    fn a_second_hand_out_needs_a_reason() {
        let overlap = [Violation::Overlap("id-1".to_owned())];
        let twice = |reason: Option<Event>, time| {
            let mut events = vec![accepted(1), handed(1, "a", 10), handed(1, "b", time), ended(1, End::Dead)];
            events.extend(reason);
            violations(&events)
        };
        assert_eq!(twice(None, 500), overlap);
        assert!(twice(None, 1009).is_empty(), "the lease may have been over");
        assert!(twice(Some(Event::Death { at: at(300) }), 500).is_empty());
        assert_eq!(twice(Some(Event::Death { at: at(5) }), 500), overlap, "that was before");
        let released = said(1, "a", Word::Release, 400, Settled::Unknown);
        assert!(twice(Some(released), 500).is_empty());
        let refused = said(1, "a", Word::Release, 400, Settled::Refused);
        assert_eq!(twice(Some(refused), 500), overlap);
        let later = said(1, "a", Word::Release, 700, Settled::Accepted);
        assert_eq!(twice(Some(later), 500), overlap);
    }
}
