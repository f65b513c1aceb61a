//! The rules on what callers are told, on exact bounds, and on what only a death excuses, each kept and broken.

use super::{
    LEASE, accepted, at, broken, broken_under, called, end, handed, offer, out, plain, ruled, rules, said,
    with, word,
};
use crate::judge::{Rule, judge};
use crate::trail::{
    Answer, Bound, Event, HandOut, Micros, Offer, Offered, Overflow, Replay, Rules, Said, Span, Stand, Told,
    Word,
};

fn promise(position: Option<u64>, start: Option<(Micros, Micros)>) -> Told {
    Told::Promise { duplicate: false, position, start }
}

/// A plain life of which this was told.
fn told(id: u64, time: Micros, told: Told) -> Vec<Event> {
    let mut events = plain(id, time);
    events[0] = Event::Offer(Offer { told, ..offer(id, time) });
    events
}

fn pause(paused: bool, time: Micros, answer: Answer) -> Event {
    Event::Pause { queue: 0, paused, span: at(time), answer }
}

#[test]
fn promise_nothing_is_promised_by_a_paused_queue() {
    let told = |pauses: &[Event]| {
        let mut waits = told(1, 10, promise(None, Some((5, 9))));
        waits[1] = handed(1, 1, 100);
        waits[2] = said(1, 1, Said::Complete, 110);
        broken(with(waits, pauses.to_vec()))
    };
    assert_eq!(told(&[]), []);
    assert_eq!(told(&[pause(true, 5, Answer::Accepted)]), [Rule::Promise]);
    assert_eq!(told(&[pause(true, 5, Answer::Unknown)]), []);
    assert_eq!(told(&[pause(true, 20, Answer::Accepted)]), []);
    assert_eq!(told(&[pause(true, 5, Answer::Accepted), pause(false, 8, Answer::Unknown)]), []);
    assert_eq!(
        told(&[pause(false, 2, Answer::Accepted), pause(true, 5, Answer::Accepted)]),
        [Rule::Promise],
        "resumed before"
    );
    assert_eq!(
        broken(with(self::told(1, 10, promise(Some(0), None)), [pause(true, 90, Answer::Accepted)])),
        []
    );
}

/// Calls that all failed but for those at `good`, and then a promise.
fn after_calls(count: u64, good: &[u64], more: &[Event]) -> Vec<Rule> {
    after_calls_of(10, count, good, more)
}

/// The same at a target that is down after so many failures.
fn after_calls_of(down_after: u32, count: u64, good: &[u64], more: &[Event]) -> Vec<Rule> {
    let target =
        Event::Target { target: 0, concurrency: 100, interval: 0, hold: 0, lease: LEASE, down_after };
    let pushes = Rules { target: Some(0), max_attempts: 1, ..rules() };
    let mut events = vec![target];
    for id in 1..=count {
        let time = Micros::try_from(id).unwrap();
        let said_of = if good.contains(&id) { Said::Complete } else { Said::Retry };
        let stand = if good.contains(&id) { Stand::Succeeded } else { Stand::Dead };
        let call = HandOut { target: Some(0), span: at(time), ..out(id, id, time) };
        let word = Word { answer: Answer::Unknown, ..word(id, id, said_of, time + 20) };
        events.extend([accepted(id, time - 1), Event::HandOut(call), Event::Word(word), end(id, stand)]);
    }
    events.extend(told(99, 200, promise(None, Some((5, 9)))));
    broken_under(pushes, with(events, more.to_vec()))
}

#[test]
fn promise_nothing_is_promised_while_the_target_is_down() {
    assert_eq!(after_calls(9, &[], &[]), []);
    assert_eq!(after_calls(10, &[], &[]), [Rule::Promise]);
    assert_eq!(after_calls_of(0, 50, &[], &[]), [], "it has no breaker");
    assert_eq!(after_calls(12, &[5], &[]), [], "one had gone well");
    assert_eq!(after_calls(12, &[1], &[]), [Rule::Promise], "that was before");
    let boot = [Event::Death { at: 100_000, kept: 100_000 }, Event::Boot { at: 110_000 }];
    assert_eq!(after_calls(12, &[], &boot), [], "whoever starts anew knows nothing of it");
}

#[test]
fn promise_a_position_is_how_many_wait() {
    let third = |position| {
        let waits = |id: u64, time| {
            let mut life = plain(id, time);
            let later = 100 + Micros::try_from(id).unwrap();
            life[1] = handed(id, id, later);
            life[2] = said(id, id, Said::Complete, later);
            life
        };
        let mut last = waits(3, 10);
        last[0] = Event::Offer(Offer { told: promise(Some(position), None), ..offer(3, 10) });
        with(waits(1, 0), with(waits(2, 5), last))
    };
    assert_eq!(broken(third(2)), []);
    assert_eq!(broken(third(1)), [Rule::Promise]);
    assert_eq!(broken(third(3)), [Rule::Promise]);
    // While one is handed out nobody can tell whether it counts.
    let mut going = third(1);
    going[1] = Event::HandOut(HandOut { span: Span { sent: 10_100, ended: 10_200 }, ..out(1, 1, 10) });
    assert_eq!(broken(going), []);
    let gone = |position| with(plain(1, 0), told(2, 50, promise(Some(position), None)));
    assert_eq!(broken(gone(0)), []);
    assert_eq!(broken(gone(1)), [Rule::Promise], "what is done does not wait");
}

#[test]
fn promise_a_start_can_be_kept() {
    let limited = Rules { max_wait: Some(1_000_000), ..rules() };
    let starts = |half, most| broken_under(limited.clone(), told(1, 0, promise(None, Some((half, most)))));
    assert_eq!(starts(1_000_000, 3_000_000), []);
    assert_eq!(
        starts(1_000_001, 3_000_000),
        [Rule::Promise],
        "nothing is accepted that will wait for longer"
    );
    assert_eq!(starts(900, 800), [Rule::Promise]);
    let mut delayed = told(1, 0, promise(None, Some((5, 9))));
    delayed[0] =
        Event::Offer(Offer { delay: 5_000, told: promise(None, Some((4_999, 9_000))), ..offer(1, 0) });
    assert_eq!(broken(delayed), [Rule::Promise], "not before it is due");
}

/// Refusals of one batch, with the times to come back.
fn refusals(after: &[Micros]) -> Vec<Event> {
    let refused = |(place, &after): (usize, &Micros)| {
        let told = Told::ComeBack { bound: Bound::Wait, after };
        Event::Offer(Offer { batch: (9, place), answer: Offered::Refused, told, ..offer(place as u64, 0) })
    };
    after.iter().enumerate().map(refused).collect()
}

#[test]
fn promise_refused_callers_come_back_one_after_the_other() {
    assert_eq!(broken(refusals(&[2_000_000, 2_100_000, 2_400_000])), []);
    assert_eq!(broken(refusals(&[2_190_000, 2_000_000])), [], "a tenth is chance");
    assert_eq!(broken(refusals(&[2_400_000, 2_000_000])), [Rule::Promise]);
    assert_eq!(broken(refusals(&[999_999])), [Rule::Promise], "never within a second");
    assert_eq!(broken(refusals(&[3_000_000_000, 2_000_000_000])), [], "far away they are spread");
}

#[test]
fn depth_a_bound_on_bytes_is_exact() {
    let small = |max_bytes| Rules { max_bytes, ..rules() };
    let both = with(plain(1, 0), plain(2, 5));
    assert_eq!(broken_under(small(20), both.clone()), []);
    assert_eq!(broken_under(small(19), both.clone()), [Rule::Depth]);
    assert_eq!(broken_under(small(10), with(plain(1, 0), plain(2, 25))), [], "the first was done");
    let mut sheddable = both;
    let Event::Offer(second) = &mut sheddable[4] else { panic!() };
    second.class = 3;
    assert_eq!(broken_under(small(39), sheddable.clone()), [], "half of it, rounded up");
    assert_eq!(broken_under(small(38), sheddable), [Rule::Depth]);
}

#[test]
fn depth_nothing_is_refused_while_there_is_room() {
    let refused = |bound, time: Micros| {
        let told = Told::ComeBack { bound, after: 1_000_000 };
        Event::Offer(Offer { answer: Offered::Refused, told, ..offer(3, time) })
    };
    let two = Rules { max_messages: Some(2), max_bytes: 20, ..rules() };
    let both = with(plain(1, 0), plain(2, 5));
    for bound in [Bound::Messages, Bound::Bytes] {
        assert_eq!(broken_under(two.clone(), with(both.clone(), [refused(bound, 10)])), []);
        assert_eq!(broken_under(two.clone(), with(both.clone(), [refused(bound, 22)])), [Rule::Depth]);
        let unknown = Event::Offer(Offer { answer: Offered::Unknown, ..offer(4, 8) });
        let perhaps = with(both.clone(), [unknown, refused(bound, 22)]);
        assert_eq!(broken_under(two.clone(), perhaps), [], "one may be there that nobody heard of");
        let dropping = Rules { overflow: Overflow::DropsOldest, ..two.clone() };
        assert_eq!(broken_under(dropping, with(both.clone(), [refused(bound, 22)])), []);
    }
    assert_eq!(broken_under(two, with(both, [refused(Bound::Other, 22)])), []);
}

#[test]
fn cap_a_call_that_was_given_up_occupies_its_target_for_longer() {
    let target =
        Event::Target { target: 0, concurrency: 1, interval: 0, hold: 300_000, lease: LEASE, down_after: 10 };
    let calls = |given_up, second, between: &[Event]| {
        let mut first = called(1, 1_000);
        first[2] = Event::Word(Word { given_up, ..word(1, 1, Said::Retry, 1_400) });
        first[3] = end(1, Stand::Dead);
        let rules = Rules { max_attempts: 1, ..rules() };
        let calls = with(with(vec![target.clone()], first), called(2, second));
        broken_under(rules, with(calls, between.to_vec()))
    };
    assert_eq!(calls(false, 1_401, &[]), []);
    assert_eq!(calls(true, 1_401, &[]), [Rule::Cap]);
    assert_eq!(calls(true, 1_700, &[]), []);
    let restart = |by| {
        [
            Event::Death { at: 1_500_000, kept: 1_500_000 },
            Event::Step { at: 1_510_000, by },
            Event::Boot { at: 1_520_000 },
        ]
    };
    assert_eq!(calls(true, 1_600, &restart(0)), [Rule::Cap], "a restart does not free it");
    assert_eq!(calls(true, 1_600, &restart(1_000_000)), [], "by the clock it was long ago");
}

#[test]
fn cap_a_lease_that_ran_out_is_a_call_that_was_given_up() {
    let target =
        Event::Target { target: 0, concurrency: 1, interval: 0, hold: 300_000, lease: LEASE, down_after: 10 };
    let second = |time| {
        let mut first = called(1, 1_000);
        first.remove(2);
        first[2] = end(1, Stand::Dead);
        let rules = Rules { max_attempts: 1, ..rules() };
        broken_under(rules, with(with(vec![target.clone()], first), called(2, time)))
    };
    assert_eq!(second(11_100), [Rule::Cap]);
    assert_eq!(second(11_300), []);
}

#[test]
fn a_word_that_is_repeated_after_a_replay_is_no_new_attempt() {
    let replay = Event::Replay(Replay { queue: 0, ids: None, span: at(100), answer: Answer::Accepted });
    let few = Rules { max_attempts: 2, ..rules() };
    let life = |again: Micros, attempts: u64| {
        let mut events = vec![accepted(1, 0), handed(1, 1, 10), said(1, 1, Said::Retry, 20)];
        events.extend([handed(2, 1, 200), said(2, 1, Said::Dead, 210), said(1, 1, Said::Retry, again)]);
        for attempt in 3..3 + attempts {
            let time = 1_000 * Micros::try_from(attempt).unwrap();
            events.extend([handed(attempt, 1, time), said(attempt, 1, Said::Retry, time + 10)]);
        }
        broken_under(few.clone(), with(events, [replay.clone(), end(1, Stand::Dead)]))
    };
    // Replayed at 100 ms: the failure at 20 ms counts no more, not even when it is said again.
    let mut said_again = vec![accepted(1, 0), handed(1, 1, 10), said(1, 1, Said::Retry, 20), replay.clone()];
    said_again.extend([handed(2, 1, 200), said(2, 1, Said::Retry, 210), said(1, 1, Said::Retry, 150)]);
    said_again.extend([handed(3, 1, 500), said(3, 1, Said::Retry, 510), end(1, Stand::Dead)]);
    assert_eq!(broken_under(few.clone(), said_again.clone()), []);
    let fourth = with(said_again, [handed(4, 1, 900), said(4, 1, Said::Retry, 910)]);
    assert_eq!(broken_under(few.clone(), fourth), [Rule::Attempts], "two of after the replay count");
    assert!(life(220, 3).contains(&Rule::Attempts));
}

#[test]
fn group_alone_a_last_failure_ends_a_message_and_its_group_goes_on() {
    let lives = |failures: u64| {
        let grouped = |id, time| Event::Offer(Offer { group: Some(4), ..offer(id, time) });
        let mut events = vec![grouped(1, 0), grouped(2, 5)];
        for failure in 1..=failures {
            let time = 200 * Micros::try_from(failure).unwrap();
            events.extend([handed(failure, 1, time), said(failure, 1, Said::Retry, time + 10)]);
        }
        // At once behind the last failure, within the backoff that an earlier one would bring.
        let time = 200 * Micros::try_from(failures).unwrap() + 20;
        events.extend([handed(9, 2, time), said(9, 2, Said::Complete, time + 5)]);
        broken(with(events, [end(1, Stand::Dead), end(2, Stand::Succeeded)]))
    };
    assert_eq!(lives(3), [], "three attempts are all that it has");
    assert_eq!(lives(2), [], "given back, it is not held; the order is another rule");
    let held = |said_of: Option<Event>| {
        let grouped = |id, time| Event::Offer(Offer { group: Some(4), ..offer(id, time) });
        let mut events = vec![grouped(1, 0), grouped(2, 5), handed(1, 1, 10)];
        events.extend(said_of);
        events.extend([handed(9, 2, 40), said(9, 2, Said::Complete, 45)]);
        let once = Rules { max_attempts: 1, ..rules() };
        broken_under(once, with(events, [end(1, Stand::Dead), end(2, Stand::Succeeded)]))
    };
    assert_eq!(held(None), [Rule::GroupAlone]);
    assert_eq!(held(Some(said(1, 1, Said::Retry, 20))), []);
}

#[test]
fn group_alone_a_last_delivery_that_comes_back_ends_a_message_and_its_group_goes_on() {
    let lives = |deliveries_max: u32, answer| {
        let grouped = |id, time| Event::Offer(Offer { group: Some(4), ..offer(id, time) });
        let released = Word { delay: Some(5_000_000), answer, ..word(1, 1, Said::Release, 20) };
        let mut events = vec![grouped(1, 0), grouped(2, 5), handed(1, 1, 10), Event::Word(released)];
        events.extend([handed(9, 2, 40), said(9, 2, Said::Complete, 45)]);
        let rules = Rules { max_deliveries: deliveries_max, ..rules() };
        broken_under(rules, with(events, [end(1, Stand::Dead), end(2, Stand::Succeeded)]))
    };
    assert!(!lives(1, Answer::Accepted).contains(&Rule::GroupAlone));
    assert!(!lives(1, Answer::Unknown).contains(&Rule::GroupAlone), "perhaps it was heard");
    assert!(
        lives(2, Answer::Unknown).contains(&Rule::GroupAlone),
        "its time has not come, and it has one more"
    );
}

#[test]
fn not_late_a_hand_out_that_nobody_heard_of_ends_with_its_lease() {
    // Handed out and lost to the world before the answer to its enqueue came.
    let unheard = |seen: Micros, id| {
        let mut events = vec![Event::Offer(Offer { span: Span { sent: 0, ended: 90_000 }, ..offer(1, 0) })];
        events.push(Event::Unheard { id, hand_out: 7, lease: LEASE, at: 20_000 });
        events.push(Event::Look { id: 1, span: at(seen), stand: Stand::Leased });
        events.extend([handed(8, 1, 20_000), said(8, 1, Said::Complete, 20_010), end(1, Stand::Succeeded)]);
        judge(&with(vec![ruled(rules())], events)).1.iter().map(|one| one.rule).collect::<Vec<_>>()
    };
    assert_eq!(unheard(100, 1), []);
    assert_eq!(unheard(10_100, 1), [Rule::NotLate], "its lease is over by then");
    assert!(unheard(100, 2).contains(&Rule::NotLate), "that was another one");
}

#[test]
fn keys_of_two_under_way_at_once_either_may_be_the_first() {
    let keyed = |id: u64, span| Event::Offer(Offer { key: Some(5), span, ..offer(id, 0) });
    let short = Rules { result_retention: 1_000, ..rules() };
    // The first was sent early, and accepted only once the second was done and forgotten.
    let lives = |ended: Micros| {
        let mut waits = plain(1, 50);
        waits[0] = keyed(1, Span { sent: 0, ended });
        let mut second = plain(2, 5);
        let span = Span { sent: 5_000, ended: 5_500 };
        second[0] = Event::Offer(Offer { key: Some(5), tenant: Some(1), span, ..offer(2, 0) });
        broken_under(short.clone(), with(waits, second))
    };
    assert_eq!(lives(45_000), []);
    assert_eq!(
        lives(4_000),
        [Rule::Keys],
        "then it was the first for sure, and is not done before the second comes"
    );
}
