//! Every rule of the judge, with a trail that keeps it and one that was doctored to break it.

mod choice;
mod told;

use super::{Rule, judge};
use crate::trail::{
    Answer, Event, Extension, HandOut, Micros, Offer, Offered, Order, Overflow, Replay, Request, Rules, Said,
    Span, Stand, Told, Word,
};

const LEASE: Micros = 10_000_000;
const TTL: Micros = 3_600_000_000;

/// In milliseconds.
fn at(time: Micros) -> Span {
    Span { sent: time * 1_000, ended: time * 1_000 + 500 }
}

fn rules() -> Rules {
    Rules {
        max_attempts: 3,
        max_deliveries: 30,
        backoff_min: 100_000,
        concurrency: None,
        prefetch: 1_000,
        max_messages: None,
        max_bytes: u64::MAX,
        max_wait: None,
        overflow: Overflow::Refused,
        dead_max: 1_000,
        order: Order::First,
        strict: false,
        result_retention: 3_600_000_000,
        dead_retention: 7_200_000_000,
        target: None,
        max_keys: 1_000,
        drops_expired: false,
        keeps_groups: true,
    }
}

fn ruled(rules: Rules) -> Event {
    Event::Rules { queue: 0, rules, span: Span::default() }
}

fn offer(id: u64, time: Micros) -> Offer {
    Offer {
        queue: 0,
        payload: id + 100,
        key: None,
        group: None,
        class: 1,
        tenant: None,
        bytes: 10,
        batch: (id, 0),
        delay: 0,
        ttl: TTL,
        span: at(time),
        answer: Offered::Accepted(id),
        told: Told::Nothing,
    }
}

fn accepted(id: u64, time: Micros) -> Event {
    Event::Offer(offer(id, time))
}

fn out(hand_out: u64, id: u64, time: Micros) -> HandOut {
    let (payload, lease) = (Some(id + 100), LEASE);
    HandOut { hand_out, id, queue: 0, payload, lease, target: None, consumer: None, span: at(time) }
}

fn handed(hand_out: u64, id: u64, time: Micros) -> Event {
    Event::HandOut(out(hand_out, id, time))
}

fn word(hand_out: u64, id: u64, said: Said, time: Micros) -> Word {
    Word { id, hand_out, said, delay: None, given_up: false, span: at(time), answer: Answer::Accepted }
}

fn said(hand_out: u64, id: u64, what: Said, time: Micros) -> Event {
    Event::Word(word(hand_out, id, what, time))
}

fn end(id: u64, stand: Stand) -> Event {
    Event::End { id, queue: 0, stand, payload: None, at: 3_000_000_000 }
}

/// A message that is handed out once and done.
fn plain(id: u64, time: Micros) -> Vec<Event> {
    vec![
        accepted(id, time),
        handed(id, id, time + 10),
        said(id, id, Said::Complete, time + 20),
        end(id, Stand::Succeeded),
    ]
}

/// The rules that `events` break, each once, under `rules`.
fn broken_under(rules: Rules, events: Vec<Event>) -> Vec<Rule> {
    let events: Vec<Event> = [ruled(rules)].into_iter().chain(events).collect();
    let mut broken: Vec<Rule> = judge(&events).1.into_iter().map(|violation| violation.rule).collect();
    broken.dedup();
    broken
}

fn broken(events: Vec<Event>) -> Vec<Rule> {
    broken_under(rules(), events)
}

fn with(mut events: Vec<Event>, more: impl IntoIterator<Item = Event>) -> Vec<Event> {
    events.extend(more);
    events
}

#[test]
fn a_plain_life_is_good_and_summed_up() {
    let events = with(plain(1, 0), [Event::Offer(Offer { answer: Offered::Refused, ..offer(2, 5) })]);
    let (summary, violations) = judge(&with(vec![ruled(rules())], events));
    assert_eq!(violations, []);
    assert_eq!((summary.acknowledged, summary.refused, summary.hand_outs, summary.repeated), (1, 1, 1, 0));
    assert_eq!(summary.ends[&Stand::Succeeded], 1);
}

#[test]
fn conservation_what_was_accepted_is_at_exactly_one_place_in_the_end() {
    let mut gone = plain(1, 0);
    gone.pop();
    assert_eq!(broken(gone), [Rule::Conservation]);
    assert_eq!(broken(with(plain(1, 0), [end(1, Stand::Succeeded)])), [Rule::Conservation]);
    let mut forgotten = plain(1, 0);
    forgotten[3] = end(1, Stand::Forgotten);
    assert_eq!(broken(forgotten.clone()), [Rule::Conservation], "its status is kept for an hour");
    let short = Rules { result_retention: 1_000_000, ..rules() };
    assert_eq!(broken_under(short, forgotten), []);
}

#[test]
fn no_phantom_what_is_handed_out_was_enqueued_and_is_what_was_sent() {
    assert_eq!(broken(vec![handed(1, 7, 5), end(7, Stand::Dead)]), [Rule::NoPhantom]);
    let unknown = Event::Offer(Offer { answer: Offered::Unknown, ..offer(7, 0) });
    let life = [handed(1, 7, 5), said(1, 7, Said::Dead, 6), end(7, Stand::Dead)];
    assert_eq!(broken(with(vec![unknown], life)), [], "both outcomes are right");
    let other = Event::HandOut(HandOut { payload: Some(999), ..out(1, 1, 10) });
    let mut swapped = plain(1, 0);
    swapped[1] = other;
    assert_eq!(broken(swapped), [Rule::NoPhantom]);
    let listed = broken(with(plain(1, 0), [end(9, Stand::Cancelled)]));
    assert!(listed.contains(&Rule::NoPhantom), "listed from nowhere: {listed:?}");
}

#[test]
fn no_overlap_a_second_hand_out_needs_a_reason() {
    let twice = |time: Micros, reason: Vec<Event>| {
        let life =
            [accepted(1, 0), handed(1, 1, 10), handed(2, 1, time), said(2, 1, Said::Complete, time + 1)];
        broken(with(with(life.to_vec(), reason), [end(1, Stand::Succeeded)]))
    };
    assert_eq!(twice(5_000, vec![]), [Rule::NoOverlap]);
    assert_eq!(twice(10_010, vec![]), [], "its lease is over");
    assert_eq!(twice(5_000, vec![said(1, 1, Said::Release, 4_000)]), []);
    assert_eq!(twice(5_000, vec![said(1, 1, Said::Release, 6_000)]), [Rule::NoOverlap, Rule::StaleRefused]);
    let refused = Word { answer: Answer::Refused, ..word(1, 1, Said::Release, 4_000) };
    assert_eq!(twice(5_000, vec![Event::Word(refused)]), [Rule::NoOverlap]);
    assert_eq!(twice(5_000, vec![Event::TakenBack { id: 1, hand_out: 1, at: 20_000 }]), []);
    let died = |kept| vec![Event::Death { at: 2_000_000, kept }, Event::Boot { at: 2_100_000 }];
    assert_eq!(twice(5_000, died(5_000)), [], "the hand-out may be lost");
    assert_eq!(twice(5_000, died(1_000_000)), [Rule::NoOverlap], "the hand-out was on the disk");
    let longer = Extension { id: 1, hand_out: 1, lease: LEASE, span: at(9_000), answer: Answer::Accepted };
    assert_eq!(twice(12_000, vec![Event::Extension(longer.clone())]), [Rule::NoOverlap]);
    let unsure = Extension { answer: Answer::Unknown, ..longer };
    assert_eq!(twice(12_000, vec![Event::Extension(unsure)]), []);
    let mut same = plain(1, 0);
    same.insert(2, handed(1, 1, 10_020));
    same[3] = said(1, 1, Said::Complete, 10_030);
    assert!(broken(same).contains(&Rule::NoOverlap), "one receipt for two hand-outs");
}

#[test]
fn a_lease_over_a_restart_ends_by_the_wall_clock() {
    let twice = |time: Micros, by: Micros| {
        broken(vec![
            accepted(1, 0),
            handed(1, 1, 10),
            Event::Death { at: 2_000_000, kept: 2_000_000 },
            Event::Step { at: 2_010_000, by },
            Event::Boot { at: 2_020_000 },
            handed(2, 1, time),
            said(2, 1, Said::Complete, time + 1),
            end(1, Stand::Succeeded),
        ])
    };
    assert_eq!(twice(5_000, 0), [Rule::NoOverlap]);
    assert_eq!(twice(5_000, 1_800_000_000), [], "the clock says that it is over");
    assert_eq!(twice(10_011, -3_600_000_000), [], "whoever waits longer does no harm here");
}

#[test]
fn stale_refused_an_old_holder_decides_nothing() {
    let life = |old: Event| {
        let life = [accepted(1, 0), handed(1, 1, 10), handed(2, 1, 11_000)];
        let rest = [said(2, 1, Said::Complete, 13_000), end(1, Stand::Succeeded)];
        broken(with(with(life.to_vec(), [old]), rest))
    };
    assert_eq!(life(said(1, 1, Said::Complete, 12_000)), [Rule::StaleRefused]);
    assert_eq!(life(said(1, 1, Said::Complete, 10_500)), [Rule::StaysDone], "late, but before the other one");
    let wish =
        |answer| Event::Extension(Extension { id: 1, hand_out: 1, lease: LEASE, span: at(12_000), answer });
    assert_eq!(life(wish(Answer::Accepted)), [Rule::StaleRefused]);
    assert_eq!(life(wish(Answer::Refused)), []);
}

#[test]
fn not_early_what_is_delayed_waits() {
    let delayed = |time: Micros| {
        let mut events = plain(1, 0);
        events[0] = Event::Offer(Offer { delay: 5_000_000, ..offer(1, 0) });
        events[1] = handed(1, 1, time);
        events[2] = said(1, 1, Said::Complete, time + 1);
        broken(events)
    };
    assert_eq!(delayed(4_999), [Rule::NotEarly]);
    assert_eq!(delayed(5_000), []);
    let retried = |time: Micros, delay: Option<Micros>| {
        let back = Event::Word(Word { delay, ..word(1, 1, Said::Retry, 20) });
        let life = [accepted(1, 0), handed(1, 1, 10), back, handed(2, 1, time)];
        broken(with(life.to_vec(), [said(2, 1, Said::Complete, time + 1), end(1, Stand::Succeeded)]))
    };
    assert_eq!(retried(50, None), [Rule::NotEarly], "the backoff is 100 ms");
    assert_eq!(retried(120, None), []);
    assert_eq!(retried(120, Some(3_000_000)), [Rule::NotEarly]);
    assert_eq!(retried(15_000, Some(60_000_000)), [Rule::NotEarly], "the end of its lease is no excuse");
}

#[test]
fn not_late_what_is_over_is_seen_to_be_over() {
    let looked =
        |time: Micros, stand| broken(with(plain(1, 0), [Event::Look { id: 1, span: at(time), stand }]));
    assert_eq!(looked(10_000, Stand::Leased), []);
    assert_eq!(looked(10_100, Stand::Leased), [Rule::NotLate]);
    assert_eq!(looked(100, Stand::Delayed), [Rule::NotLate], "it was never delayed");
}

#[test]
fn not_expired_what_is_not_worth_doing_is_not_handed_out() {
    let mut events = plain(1, 0);
    events[0] = Event::Offer(Offer { ttl: 1_000_000, ..offer(1, 0) });
    assert_eq!(broken(events.clone()), []);
    events[1] = handed(1, 1, 2_000);
    events[2] = said(1, 1, Said::Complete, 2_001);
    assert_eq!(broken(events), [Rule::NotExpired]);
}

#[test]
fn attempts_are_bounded_and_a_replay_counts_anew() {
    let failing = |rounds: u64, replay: Option<Micros>| {
        let mut events = vec![accepted(1, 0)];
        for round in 0..rounds {
            let time = Micros::try_from(round).unwrap() * 1_000 + 10;
            events.extend([handed(round, 1, time), said(round, 1, Said::Retry, time + 10)]);
        }
        let replay = replay.map(|time| {
            Event::Replay(Replay { queue: 0, ids: None, span: at(time), answer: Answer::Accepted })
        });
        events.extend(replay);
        with(events, [end(1, Stand::Dead)])
    };
    assert_eq!(broken(failing(3, None)), []);
    assert_eq!(broken(failing(4, None)), [Rule::Attempts]);
    assert_eq!(broken(failing(4, Some(2_500))), []);
    let few = Rules { max_deliveries: 2, ..rules() };
    assert_eq!(broken_under(few, failing(3, None)), [Rule::Attempts]);
}

fn grouped(id: u64, time: Micros) -> Event {
    Event::Offer(Offer { group: Some(4), ..offer(id, time) })
}

#[test]
fn group_order_what_came_first_is_handed_out_first() {
    let lives = |first: (u64, u64)| {
        let (one, other) = first;
        let mut events = vec![grouped(1, 0), grouped(2, 5)];
        events.extend([handed(one, one, 10), said(one, one, Said::Complete, 20)]);
        events.extend([handed(other, other, 30), said(other, other, Said::Complete, 40)]);
        with(events, [end(1, Stand::Succeeded), end(2, Stand::Succeeded)])
    };
    assert_eq!(broken(lives((1, 2))), []);
    assert_eq!(broken(lives((2, 1))), [Rule::GroupOrder]);
    let free = Rules { keeps_groups: false, ..rules() };
    assert_eq!(broken_under(free, lives((2, 1))), []);
}

#[test]
fn group_order_a_message_in_backoff_blocks_what_follows() {
    let events = vec![
        grouped(1, 0),
        grouped(2, 5),
        handed(1, 1, 10),
        said(1, 1, Said::Retry, 20),
        handed(2, 2, 30),
        said(2, 2, Said::Complete, 40),
        handed(3, 1, 500),
        said(3, 1, Said::Complete, 510),
        end(1, Stand::Succeeded),
        end(2, Stand::Succeeded),
    ];
    assert_eq!(broken(events), [Rule::GroupOrder]);
}

#[test]
fn group_alone_one_message_of_a_group_at_a_time() {
    let lives = |second: Micros| {
        let mut events = vec![grouped(1, 0), grouped(2, 5)];
        events.extend([handed(1, 1, 10), said(1, 1, Said::Complete, 500)]);
        events.extend([handed(2, 2, second), said(2, 2, Said::Complete, 900)]);
        broken(with(events, [end(1, Stand::Succeeded), end(2, Stand::Succeeded)]))
    };
    assert_eq!(lives(510), []);
    assert_eq!(lives(100), [Rule::GroupAlone]);
}

#[test]
fn keys_one_key_is_one_message_while_it_is_remembered() {
    let keyed = |id: u64, payload: u64, time: Micros| {
        Event::Offer(Offer { key: Some(5), payload, answer: Offered::Accepted(id), ..offer(1, time) })
    };
    let mut repeated = plain(1, 0);
    repeated[0] = keyed(1, 101, 0);
    assert_eq!(broken(with(repeated.clone(), [keyed(1, 101, 900)])), []);
    let mut doubled = with(repeated.clone(), [keyed(2, 101, 900)]);
    doubled.extend([said(8, 2, Said::Complete, 950), end(2, Stand::Succeeded)]);
    assert_eq!(broken(doubled.clone()), [Rule::Keys]);
    let over_restart = [Event::Death { at: 500_000, kept: 500_000 }, Event::Boot { at: 600_000 }];
    assert_eq!(broken(with(doubled.clone(), over_restart)), [Rule::Keys]);
    let short = Rules { result_retention: 100_000, ..rules() };
    assert_eq!(broken_under(short, doubled.clone()), [], "it was forgotten by then");
    let few = Rules { max_keys: 0, ..rules() };
    assert_eq!(broken_under(few, doubled), [], "there was no room to remember it");
    let mixed = broken(with(repeated, [keyed(1, 102, 900)]));
    assert!(mixed.contains(&Rule::Keys), "{mixed:?}");
}

fn called(hand_out: u64, time: Micros) -> Vec<Event> {
    let call = HandOut { target: Some(0), ..out(hand_out, hand_out, time) };
    vec![
        accepted(hand_out, 0),
        Event::HandOut(call),
        said(hand_out, hand_out, Said::Complete, time + 400),
        end(hand_out, Stand::Succeeded),
    ]
}

#[test]
fn rate_no_window_has_more_starts_than_allowed() {
    let target = Event::Target {
        target: 0,
        concurrency: 10,
        interval: 100_000,
        hold: 0,
        lease: LEASE,
        down_after: 10,
    };
    let calls = |times: &[Micros]| {
        let calls = times.iter().zip(1..).flat_map(|(&time, hand_out)| called(hand_out, time));
        broken(with(vec![target.clone()], calls))
    };
    assert_eq!(calls(&[1_000, 1_100, 1_200, 5_000, 5_100]), []);
    assert_eq!(calls(&[1_000, 1_100, 1_199]), [Rule::Rate]);
    assert_eq!(calls(&[1_000, 1_010]), [Rule::Rate]);
}

#[test]
fn rate_a_restart_lets_no_call_go_too_soon() {
    let target = Event::Target {
        target: 0,
        concurrency: 10,
        interval: 100_000,
        hold: 0,
        lease: LEASE,
        down_after: 10,
    };
    let calls = |between: [Event; 3]| {
        broken(with(vec![target.clone()], [called(1, 1_000), between.to_vec(), called(2, 1_060)].concat()))
    };
    let died = |kept| Event::Death { at: 1_020_000, kept };
    let (boot, step) = (Event::Boot { at: 1_050_000 }, |by| Event::Step { at: 1_030_000, by });
    assert_eq!(calls([died(1_010_000), step(0), boot.clone()]), [Rule::Rate]);
    assert_eq!(calls([died(900_000), step(0), boot.clone()]), [], "nobody remembers the first call");
    assert_eq!(calls([died(1_010_000), step(60_000), boot.clone()]), [], "by the clock it was long ago");
    assert_eq!(calls([died(1_010_000), step(-60_000), boot]), [Rule::Rate]);
}

#[test]
fn cap_no_more_in_work_than_allowed() {
    let target =
        Event::Target { target: 0, concurrency: 2, interval: 0, hold: 0, lease: LEASE, down_after: 10 };
    let calls = |times: &[Micros]| {
        let calls = times.iter().zip(1..).flat_map(|(&time, hand_out)| called(hand_out, time));
        with(vec![target.clone()], calls)
    };
    assert_eq!(broken(calls(&[1_000, 1_100, 1_400])), []);
    assert_eq!(broken(calls(&[1_000, 1_100, 1_200])), [Rule::Cap]);
    let one = Rules { concurrency: Some(1), ..rules() };
    assert_eq!(broken_under(one.clone(), calls(&[1_000, 1_400])), []);
    assert_eq!(broken_under(one.clone(), calls(&[1_000, 1_300])), [Rule::Cap]);
    let raised = Event::Rules { queue: 0, rules: rules(), span: at(1_200) };
    assert_eq!(broken_under(one, with(calls(&[1_000, 1_300]), [raised])), []);
}

#[test]
fn cap_one_consumer_holds_no_more_than_its_prefetch() {
    let held = |consumer: u64, first: u64| {
        let lives = (first..first + 2).flat_map(|id| {
            let mut life = plain(id, 0);
            life[1] = Event::HandOut(HandOut { consumer: Some(consumer + id % 2), ..out(id, id, 10) });
            life
        });
        lives.collect::<Vec<Event>>()
    };
    let one = Rules { prefetch: 1, ..rules() };
    assert_eq!(broken_under(one.clone(), held(7, 1)), [], "two consumers");
    let mut same = held(7, 1);
    same[5] = Event::HandOut(HandOut { consumer: Some(8), ..out(2, 2, 11) });
    assert_eq!(broken_under(one, same.clone()), [Rule::Cap]);
    assert_eq!(broken(same), []);
}

#[test]
fn depth_no_more_is_accepted_than_fits() {
    let two = Rules { max_messages: Some(2), ..rules() };
    let all = |third: Micros| with(plain(1, 0), with(plain(2, 1), plain(3, third)));
    assert_eq!(broken_under(two.clone(), all(25)), []);
    assert_eq!(broken_under(two.clone(), all(5)), [Rule::Depth]);
    let mut sheddable = all(25);
    let Event::Offer(second) = &mut sheddable[4] else { panic!() };
    second.class = 3;
    assert_eq!(broken_under(two.clone(), sheddable), [Rule::Depth], "half of two is one");
    let dropping = Rules { overflow: Overflow::DropsOldest, ..two };
    assert_eq!(broken_under(dropping, all(5)), []);
}

#[test]
fn depth_of_what_was_under_way_at_once_any_may_have_come_last() {
    let four = Rules { max_messages: Some(4), ..rules() };
    let stored = |offers: Vec<Offer>| {
        let ends = (1..=offers.len() as u64).map(|id| end(id, Stand::Cancelled)).collect::<Vec<Event>>();
        let withdrawn = (1..=offers.len() as u64)
            .map(|id| Event::Withdrawal(Request { id, span: at(900), answer: Answer::Accepted }));
        let withdrawn = withdrawn.collect::<Vec<Event>>();
        let offers = offers.into_iter().map(Event::Offer).collect();
        broken_under(four.clone(), with(with(offers, withdrawn), ends))
    };
    let at_once = |id: u64, class: u8| Offer { class, span: Span { sent: 0, ended: 5_000 }, ..offer(id, 0) };
    let three = || vec![at_once(1, 1), at_once(2, 1), at_once(3, 3)];
    assert_eq!(stored(three()), [], "half of four is two, and the last class may have come first");
    let mut one_before = three();
    one_before[2].span.sent = 4_000;
    one_before[0].span.ended = 3_000;
    assert_eq!(stored(one_before.clone()), []);
    one_before[1].span.ended = 3_000;
    assert_eq!(stored(one_before), [Rule::Depth]);
    let batch = three().into_iter().zip(0..).map(|(offer, place)| Offer { batch: (9, place), ..offer });
    assert_eq!(stored(batch.collect()), [Rule::Depth], "in one batch it surely came last");
    assert_eq!(stored(vec![at_once(1, 3), at_once(2, 3), at_once(3, 3)]), [Rule::Depth]);
    let five = (1..=5).map(|id| at_once(id, if id == 5 { 3 } else { 1 }));
    assert_eq!(stored(five.collect()), [Rule::Depth], "no order would let in all of them");
}

#[test]
fn refused_not_stored_what_was_refused_is_nowhere() {
    let refused = Event::Offer(Offer { answer: Offered::Refused, ..offer(1, 0) });
    let mut events = plain(1, 0);
    events[0] = refused;
    assert_eq!(broken(events), [Rule::RefusedNotStored]);
}

#[test]
fn not_shed_what_was_accepted_goes_only_as_somebody_decided() {
    let ends = |rules: Rules, stand: Stand, more: Vec<Event>| {
        broken_under(rules, with(with(vec![accepted(1, 0)], more), [end(1, stand)]))
    };
    assert_eq!(ends(rules(), Stand::Dropped, vec![]), [Rule::NotShed]);
    assert_eq!(ends(Rules { overflow: Overflow::DropsOldest, ..rules() }, Stand::Dropped, vec![]), []);
    assert_eq!(ends(rules(), Stand::Cancelled, vec![]), [Rule::NotShed]);
    let withdrawn = |answer| Event::Withdrawal(Request { id: 1, span: at(5), answer });
    assert_eq!(ends(rules(), Stand::Cancelled, vec![withdrawn(Answer::Unknown)]), []);
    assert_eq!(ends(rules(), Stand::Cancelled, vec![withdrawn(Answer::Refused)]), [Rule::NotShed]);
    assert_eq!(ends(Rules { drops_expired: true, ..rules() }, Stand::Expired, vec![]), [Rule::NotShed]);
    assert_eq!(ends(rules(), Stand::Dead, vec![]), [Rule::NotShed], "nothing had happened to it");
    let mortal = Event::Offer(Offer { ttl: 1_000_000, ..offer(1, 0) });
    let expired = vec![mortal, end(1, Stand::Expired)];
    assert_eq!(broken_under(Rules { drops_expired: true, ..rules() }, expired.clone()), []);
    assert_eq!(broken(expired), [Rule::NotShed], "here it would have become a dead letter");
}

#[test]
fn stays_done_an_acknowledged_end_is_for_good() {
    let again = with(plain(1, 0), [handed(9, 1, 20_000)]);
    assert_eq!(broken(again.clone()), [Rule::StaysDone]);
    let over_restart = [Event::Death { at: 500_000, kept: 0 }, Event::Boot { at: 600_000 }];
    assert_eq!(broken(with(again, over_restart)), [Rule::StaysDone]);
    let mut undone = plain(1, 0);
    undone[3] = end(1, Stand::Dead);
    assert_eq!(broken(undone), [Rule::StaysDone]);
    let mut unheard = plain(1, 0);
    unheard[2] = Event::Word(Word { answer: Answer::Unknown, ..word(1, 1, Said::Complete, 20) });
    let again = with(unheard, [handed(9, 1, 20_000)]);
    assert_eq!(broken(again.clone()), [], "nobody had acknowledged it");
    let seen = Event::Look { id: 1, span: at(30), stand: Stand::Succeeded };
    assert_eq!(broken(with(again, [seen])), [Rule::StaysDone], "but somebody saw it done");
    let rejected = [accepted(1, 0), handed(1, 1, 10), said(1, 1, Said::Dead, 20), handed(2, 1, 20_000)];
    assert!(broken(with(rejected.to_vec(), [end(1, Stand::Dead)])).contains(&Rule::StaysDone));
}

#[test]
fn done_by_somebody_nothing_succeeds_by_itself() {
    let events = vec![accepted(1, 0), handed(1, 1, 10), end(1, Stand::Succeeded)];
    assert_eq!(broken(events.clone()), [Rule::DoneBySomebody]);
    let refused = Word { answer: Answer::Refused, ..word(1, 1, Said::Complete, 20) };
    assert_eq!(broken(with(events, [Event::Word(refused)])), [Rule::DoneBySomebody]);
}

#[test]
fn drains_everything_is_at_its_end() {
    for stand in [Stand::Ready, Stand::Delayed, Stand::Leased, Stand::Backoff] {
        assert_eq!(broken(vec![accepted(1, 0), end(1, stand)]), [Rule::Drains], "{stand:?}");
    }
}
