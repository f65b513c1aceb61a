//! The rules on who goes next, on full dead letters and on purges, each kept and broken.

use super::{
    LEASE, TTL, accepted, at, broken, broken_under, end, handed, offer, out, plain, rules, said, with, word,
};
use crate::judge::Rule;
use crate::trail::{Answer, Event, HandOut, Micros, Offer, Order, Replay, Rules, Said, Span, Stand, Word};

/// Messages that all wait when the first of them is handed out at 100 ms; they go one a millisecond in the order of
/// `goes`, and each is done at once.
fn goes(offers: Vec<Offer>, goes: &[u64]) -> Vec<Event> {
    let ends: Vec<Event> = offers
        .iter()
        .filter_map(|offer| match offer.answer {
            crate::trail::Offered::Accepted(id) => Some(end(id, Stand::Succeeded)),
            _ => None,
        })
        .collect();
    let mut events: Vec<Event> = offers.into_iter().map(Event::Offer).collect();
    for (&id, time) in goes.iter().zip(100..) {
        let one = HandOut { span: exactly(time), ..out(id, id, time) };
        events.extend([Event::HandOut(one), said(id, id, Said::Complete, time)]);
    }
    with(events, ends)
}

/// At one moment, in milliseconds.
fn exactly(time: Micros) -> Span {
    Span { sent: time * 1_000, ended: time * 1_000 }
}

fn two() -> Vec<Offer> {
    vec![offer(1, 0), offer(2, 5)]
}

#[test]
fn order_what_came_first_goes_first_or_what_came_last() {
    assert_eq!(broken(goes(two(), &[1, 2])), []);
    assert_eq!(broken(goes(two(), &[2, 1])), [Rule::Order]);
    let last = Rules { order: Order::Last, keeps_groups: false, ..rules() };
    assert_eq!(broken_under(last.clone(), goes(two(), &[2, 1])), []);
    assert_eq!(broken_under(last, goes(two(), &[1, 2])), [Rule::Order]);
    let depends = Rules { order: Order::Depends, ..rules() };
    assert_eq!(broken_under(depends, goes(two(), &[2, 1])), []);
}

#[test]
fn order_of_one_batch_is_that_of_the_batch() {
    let batch = || (1..=2).zip(0..).map(|(id, place)| Offer { batch: (9, place), ..offer(id, 0) }).collect();
    assert_eq!(broken(goes(batch(), &[1, 2])), []);
    assert_eq!(broken(goes(batch(), &[2, 1])), [Rule::Order]);
    let last = Rules { order: Order::Last, keeps_groups: false, ..rules() };
    assert_eq!(broken_under(last, goes(batch(), &[1, 2])), [Rule::Order]);
}

#[test]
fn order_is_that_of_one_line_and_of_what_surely_waited() {
    let other = |change: fn(&mut Offer)| {
        let mut offers = two();
        change(&mut offers[0]);
        broken(goes(offers, &[2, 1]))
    };
    assert_eq!(other(|_| {}), [Rule::Order]);
    assert_eq!(other(|first| first.tenant = Some(7)), []);
    assert_eq!(other(|first| first.delay = 90_000), [], "it was not due for sure");
    assert_eq!(other(|first| first.group = Some(7)), [], "others of its group may be before it");
    assert_eq!(other(|first| first.span.ended = 6_000), [], "which came first is not known");
    let unheard = Event::Unheard { id: 1, hand_out: 7, lease: LEASE, at: 50_000 };
    assert_eq!(broken(with(goes(two(), &[2, 1]), [unheard])), [], "somebody may have had it");
    let unheard = Event::Unheard { id: 3, hand_out: 7, lease: LEASE, at: 50_000 };
    let third = with(plain(3, 20), goes(two(), &[2, 1]));
    assert_eq!(broken(with(third, [unheard])), [Rule::Order], "that was another one");
}

#[test]
fn order_holds_for_what_is_never_handed_out() {
    let mut events = goes(two(), &[2]);
    events[0] = Event::Offer(Offer { ttl: 1_000_000, ..offer(1, 0) });
    let dead = events.iter().position(|event| *event == end(1, Stand::Succeeded)).unwrap();
    events[dead] = end(1, Stand::Dead);
    assert_eq!(broken(events), [Rule::Order]);
}

/// Three messages of one tenant, and then one of another.
fn of_tenants() -> Vec<Offer> {
    let tenant = |id: u64| if id < 4 { 1 } else { 2 };
    (1..=4).zip(0..).map(|(id, time)| Offer { tenant: Some(tenant(id)), ..offer(id, time) }).collect()
}

#[test]
fn turns_a_tenant_waits_for_one_turn_of_each_other() {
    assert_eq!(broken(goes(of_tenants(), &[1, 4, 2, 3])), []);
    assert_eq!(broken(goes(of_tenants(), &[1, 2, 4, 3])), [Rule::Turns]);
    let boot = [Event::Death { at: 100_400, kept: 100_400 }, Event::Boot { at: 100_500 }];
    assert_eq!(broken(with(goes(of_tenants(), &[1, 2, 4, 3]), boot)), [], "turns begin anew");
    let boot = |at| [Event::Death { at: 90_000, kept: 90_000 }, Event::Boot { at }];
    let at_boot = |at| broken(with(goes(of_tenants(), &[1, 2, 4, 3]), boot(at)));
    assert_eq!(at_boot(100_000), [], "the first may have gone before the server went down");
    assert_eq!(at_boot(99_999), [Rule::Turns]);
    let mut late = of_tenants();
    late[3].span = at(100);
    assert_eq!(broken(goes(late, &[1, 2, 4, 3])), [], "it came only when the first one went");
}

/// So many messages of the highest class, and two of the lowest; the lowest go when `low` says.
fn of_classes(high: u64, low: &[usize]) -> Vec<Event> {
    let class = |id: u64| if id <= high { 0 } else { 3 };
    let offers = (1..=high + 2).map(|id| Offer { class: class(id), batch: (9, 0), ..offer(id, 0) });
    let mut order: Vec<u64> = (1..=high).collect();
    for (&place, id) in low.iter().zip(high + 1..) {
        order.insert(place, id);
    }
    goes(offers.collect(), &order)
}

#[test]
fn shares_a_lower_class_is_served_over_a_long_busy_stretch() {
    assert_eq!(broken(of_classes(20, &[0, 9])), []);
    assert_eq!(broken(of_classes(20, &[8, 17])), []);
    assert_eq!(broken(of_classes(20, &[10, 21])), [Rule::Shares], "nine in a row is the most");
    assert_eq!(broken(of_classes(20, &[20, 21])), [Rule::Shares]);
    assert_eq!(broken(of_classes(20, &[0, 1])), [Rule::Shares], "nor does it get more");
}

#[test]
fn shares_where_classes_are_strict_a_higher_one_goes_first() {
    let strict = Rules { strict: true, ..rules() };
    assert_eq!(broken_under(strict.clone(), of_classes(20, &[20, 21])), []);
    assert_eq!(broken_under(strict, of_classes(20, &[19, 21])), [Rule::Shares]);
}

#[test]
fn dead_letters_that_are_full_let_nothing_out() {
    let full = Rules { dead_max: 1, ..rules() };
    let died = || vec![accepted(1, 0), handed(1, 1, 10), said(1, 1, Said::Dead, 20), end(1, Stand::Dead)];
    let replayed =
        |time| Event::Replay(Replay { queue: 0, ids: None, span: at(time), answer: Answer::Accepted });
    assert_eq!(broken_under(full.clone(), with(died(), plain(2, 50))), [Rule::DeadLetters]);
    assert_eq!(broken(with(died(), plain(2, 50))), []);
    let early = with(plain(2, 0), died());
    assert_eq!(broken_under(full.clone(), early), [], "it had gone before");
    let back = with(with(died(), [replayed(40)]), plain(2, 50));
    assert_eq!(broken_under(full.clone(), back), [], "the dead one was replayed");
    let later = with(with(died(), [replayed(90)]), plain(2, 50));
    assert_eq!(broken_under(full.clone(), later), [Rule::DeadLetters]);
    let buried = Event::Burial(crate::trail::Request { id: 1, span: at(40), answer: Answer::Unknown });
    assert_eq!(broken_under(full, with(with(died(), [buried]), plain(2, 50))), []);
}

#[test]
fn dead_letters_that_died_while_the_clock_was_set_back_may_be_forgotten_at_a_start() {
    let full = Rules { dead_max: 1, dead_retention: 1_000_000, ..rules() };
    let unheard = |time| {
        let word = Word { answer: Answer::Unknown, ..word(1, 1, Said::Dead, time) };
        Event::Word(word)
    };
    let seen = |set_back: Option<Micros>| {
        let died = vec![accepted(1, 0), handed(1, 1, 10), unheard(12), unheard(20)];
        let step = |at: Micros, by| Event::Step { at: at * 1_000, by };
        let back = set_back.into_iter().flat_map(|by| [step(15, -by), step(35, by)]);
        let look = Event::Look { id: 1, span: at(30), stand: Stand::Dead };
        let boot = [Event::Death { at: 40_000, kept: 40_000 }, Event::Boot { at: 41_000 }];
        let events = with(with(with(died, back), [look]), boot);
        with(with(events, plain(2, 50)), [end(1, Stand::Forgotten)])
    };
    assert_eq!(broken_under(full.clone(), seen(Some(3_600_000_000))), []);
    assert_eq!(broken_under(full.clone(), seen(Some(100_000))), [Rule::DeadLetters], "not for long enough");
    assert_eq!(broken_under(full, seen(None)), [Rule::DeadLetters]);
}

#[test]
fn dead_letters_grow_by_expiry_only_while_there_is_room() {
    let expire = |id| [Event::Offer(Offer { ttl: 1_000_000, ..offer(id, 0) }), end(id, Stand::Dead)];
    let (one, two) = (expire(1).to_vec(), [expire(1), expire(2)].concat());
    let full = Rules { dead_max: 1, ..rules() };
    assert_eq!(broken_under(full.clone(), one), []);
    assert_eq!(broken_under(full, two.clone()), [Rule::DeadLetters]);
    assert_eq!(broken(two), []);
}

#[test]
fn purged_what_waited_is_not_handed_out() {
    let purge = |time, answer| Event::Purge { queue: 0, span: at(time), answer };
    let mut waits = plain(1, 0);
    waits[1] = handed(1, 1, 100);
    waits[2] = said(1, 1, Said::Complete, 110);
    assert_eq!(broken(with(waits.clone(), [purge(50, Answer::Accepted)])), [Rule::Purged]);
    assert_eq!(broken(with(waits.clone(), [purge(50, Answer::Unknown)])), []);
    assert_eq!(broken(with(waits, [purge(105, Answer::Accepted)])), [], "somebody had it");
    let gone = vec![Event::Offer(Offer { ttl: TTL, ..offer(1, 0) }), end(1, Stand::Cancelled)];
    assert_eq!(broken(gone.clone()), [Rule::NotShed]);
    assert_eq!(broken(with(gone, [purge(50, Answer::Accepted)])), []);
}
