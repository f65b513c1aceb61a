//! What happens at a bound: shares of the classes, and the oldest work given up for the newest, at any moment.

use crate::rig::{QUEUE, Rig, complete, dead, keyed, message, message_of, ms, name, retry_in, s};
use millpond_core::command::{Accepted, Command, EnqueueError, LeaseRequest, NewMessage, Reply, RequestId};
use millpond_core::identity::Seq;
use millpond_core::message::{Criticality, Phase};
use millpond_core::name::Label;
use millpond_core::settings::{DeadLetterSettings, Overflow, QueueSettings};
use std::time::Duration;

fn of(criticality: Criticality) -> NewMessage {
    NewMessage { criticality, ..message() }
}

fn dropping(max_messages: u64) -> Rig {
    let overflow = Overflow::DropOldest;
    Rig::new(QueueSettings { max_messages: Some(max_messages), overflow, ..QueueSettings::default() })
}

fn is_full(answer: &Result<Accepted, EnqueueError>) -> bool {
    matches!(answer, Err(EnqueueError::QueueFull { .. }))
}

fn phases(rig: &mut Rig, seqs: &[Seq]) -> Vec<Phase> {
    seqs.iter().map(|seq| rig.phase(*seq)).collect()
}

#[test]
fn each_class_has_its_share_of_the_bound_on_messages_rounded_up() {
    for (criticality, share) in Criticality::ALL.into_iter().zip([7, 7, 6, 4]) {
        let mut rig = Rig::new(QueueSettings { max_messages: Some(7), ..QueueSettings::default() });
        for _ in 0..share {
            rig.enqueue(of(criticality)).unwrap();
        }
        assert!(is_full(&rig.enqueue(of(criticality))), "{criticality:?}");
        assert_eq!(rig.stats().ready, share);
    }
}

#[test]
fn each_class_has_its_share_of_the_bound_on_bytes_rounded_up() {
    for (criticality, share) in Criticality::ALL.into_iter().zip([101, 101, 76, 51]) {
        let mut rig = Rig::new(QueueSettings { max_bytes: 101, ..QueueSettings::default() });
        let sized = |bytes| NewMessage { criticality, ..message_of(bytes) };
        let too_large = rig.enqueue(sized(share + 1)).unwrap_err();
        assert_eq!(too_large, EnqueueError::TooLarge { max_bytes: share as u64 }, "there will never be room");
        rig.enqueue(sized(share)).unwrap();
        assert!(is_full(&rig.enqueue(sized(1))));
    }
}

#[test]
fn a_share_counts_what_is_there_of_every_class() {
    let mut rig = Rig::new(QueueSettings { max_messages: Some(4), ..QueueSettings::default() });
    rig.fill(2);
    assert!(is_full(&rig.enqueue(of(Criticality::Sheddable))));
    rig.enqueue(of(Criticality::SheddablePlus)).unwrap();
    let error = rig.enqueue(of(Criticality::SheddablePlus)).unwrap_err();
    assert!(error.to_string().contains("class"), "{error}");
    rig.enqueue(of(Criticality::CriticalPlus)).unwrap();
    assert!(is_full(&rig.enqueue(of(Criticality::CriticalPlus))));
}

#[test]
fn the_oldest_is_dropped_for_the_newest_and_its_status_says_so() {
    let mut rig = dropping(3);
    let seqs = rig.fill(3);
    let newest = rig.enqueue(message()).unwrap();
    assert_eq!(newest.position, Some(2), "behind those that are left");
    assert_eq!(phases(&mut rig, &seqs), [Phase::Dropped, Phase::Ready, Phase::Ready]);
    let status = rig.status(seqs[0]).unwrap();
    assert!(status.message.finished.is_some() && status.promise.is_none() && status.result_in.is_zero());
    let numbers = rig.stats();
    assert_eq!((numbers.ready, numbers.totals.dropped, numbers.totals.refused()), (3, 1, 0));
    rig.restart();
    assert_eq!(phases(&mut rig, &seqs), [Phase::Dropped, Phase::Ready, Phase::Ready], "durably");
    rig.pass(Duration::from_hours(2));
    assert!(rig.status(seqs[0]).is_err(), "kept as long as any result");
}

#[test]
fn what_somebody_has_or_waits_for_its_time_is_never_dropped() {
    let mut rig = dropping(3);
    let leased = rig.fill(1)[0];
    let receipt = rig.lease_one();
    let backing_off = rig.fill(1)[0];
    let other = rig.lease_one();
    rig.settle(other, retry_in(s(60))).unwrap();
    let delayed = rig.enqueue(NewMessage { delay: s(60), ..message() }).unwrap().seq;
    assert!(is_full(&rig.enqueue(message())));
    assert_eq!(
        phases(&mut rig, &[leased, backing_off, delayed]),
        [Phase::Leased, Phase::Backoff, Phase::Delayed]
    );
    rig.settle(receipt, complete()).unwrap();
    rig.enqueue(message()).unwrap();
}

#[test]
fn the_least_critical_are_dropped_first_and_nothing_more_critical_than_the_newcomer() {
    let mut rig = dropping(4);
    let critical = rig.fill(1)[0];
    let low = rig.enqueue(of(Criticality::Sheddable)).unwrap().seq;
    let middle = rig.enqueue(of(Criticality::SheddablePlus)).unwrap().seq;
    let plus = rig.enqueue(of(Criticality::CriticalPlus)).unwrap().seq;
    for (newcomer, dropped) in
        [(Criticality::Critical, low), (Criticality::CriticalPlus, middle), (Criticality::Critical, critical)]
    {
        rig.enqueue(of(newcomer)).unwrap();
        assert_eq!(rig.phase(dropped), Phase::Dropped);
    }
    for _ in 0..3 {
        rig.enqueue(of(Criticality::CriticalPlus)).unwrap();
    }
    assert!(is_full(&rig.enqueue(of(Criticality::Critical))), "all is more critical");
    assert!(is_full(&rig.enqueue(of(Criticality::Sheddable))));
    assert_eq!(rig.phase(plus), Phase::Dropped, "by its equals");
}

#[test]
fn nothing_is_dropped_in_vain() {
    let settings =
        QueueSettings { max_bytes: 100, overflow: Overflow::DropOldest, ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    let held = rig.enqueue(message_of(50)).unwrap().seq;
    rig.lease_one();
    let seqs = [20, 10, 20].map(|bytes| rig.enqueue(message_of(bytes)).unwrap().seq);
    assert!(is_full(&rig.enqueue(message_of(51))), "even without all three it would not fit");
    assert_eq!(phases(&mut rig, &seqs), [Phase::Ready; 3]);
    rig.enqueue(message_of(30)).unwrap();
    assert_eq!(
        phases(&mut rig, &seqs),
        [Phase::Dropped, Phase::Dropped, Phase::Ready],
        "as many as it takes"
    );
    assert_eq!((rig.stats().bytes, rig.phase(held)), (100, Phase::Leased));
}

#[test]
fn a_large_message_does_not_sweep_away_more_than_a_few_small_ones() {
    let settings =
        QueueSettings { max_bytes: 100, overflow: Overflow::DropOldest, ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    for _ in 0..100 {
        rig.enqueue(message_of(1)).unwrap();
    }
    assert!(is_full(&rig.enqueue(message_of(65))));
    assert_eq!(rig.stats().ready, 100);
    rig.enqueue(message_of(64)).unwrap();
    assert_eq!((rig.stats().ready, rig.stats().totals.dropped), (37, 64));
}

#[test]
fn what_was_delayed_is_dropped_in_its_place() {
    for delayed in 0..3 {
        let mut rig = dropping(3);
        let seqs: Vec<Seq> = (0..3)
            .map(|index| {
                let delay = if index == delayed { s(1) } else { Duration::ZERO };
                rig.enqueue(NewMessage { delay, ..message() }).unwrap().seq
            })
            .collect();
        rig.pass(s(1));
        for dropped in seqs {
            rig.fill(1);
            assert_eq!(rig.phase(dropped), Phase::Dropped, "the oldest, with {delayed} delayed");
        }
    }
}

/// Asks for messages whose durability is held back, then makes everything durable.
fn all_at_once(rig: &mut Rig, requests: usize, each: usize) -> Vec<Result<Accepted, EnqueueError>> {
    rig.hold_durability = true;
    let messages = || vec![message(); each];
    let ask = |rig: &mut Rig| rig.ask(Command::Enqueue { queue: name(QUEUE), messages: messages() });
    let asked: Vec<RequestId> = (0..requests).map(|_| ask(rig)).collect();
    assert!(asked.iter().all(|request| rig.answer(*request).is_none()), "nobody hears of it before");
    rig.make_durable();
    rig.hold_durability = false;
    let mut answers = Vec::new();
    for request in asked {
        let Some(Reply::Enqueued(Ok(answer))) = rig.answer(request) else { panic!("answered") };
        answers.extend(answer);
    }
    answers
}

#[test]
fn the_newest_stay_though_none_is_durable_yet_and_though_they_come_in_one_batch() {
    for (requests, each) in [(24, 1), (1, 24), (3, 8)] {
        let mut rig = dropping(10);
        let answers = all_at_once(&mut rig, requests, each);
        let seqs: Vec<Seq> = answers.into_iter().map(|answer| answer.expect("accepted").seq).collect();
        assert_eq!(phases(&mut rig, &seqs[..14]), [Phase::Dropped; 14], "{requests} at once with {each}");
        assert_eq!(phases(&mut rig, &seqs[14..]), [Phase::Ready; 10]);
        let stats = rig.stats();
        assert_eq!((stats.ready, stats.totals.dropped, stats.totals.refused()), (10, 14, 0));
        assert_eq!(rig.lease_one().seq, seqs[14], "the oldest that is left");
    }
}

#[test]
fn wherever_the_log_ends_the_bound_is_kept_and_only_the_oldest_are_missing() {
    let mut rig = dropping(4);
    rig.fill(2);
    let before = rig.log.len();
    all_at_once(&mut rig, 3, 3);
    let log = rig.log.clone();
    for kept in before..=log.len() {
        rig.log = log[..kept].to_vec();
        rig.durable = kept;
        rig.restart();
        let known: Vec<Phase> =
            (1..=11).map_while(|seq| Some(rig.status(Seq(seq)).ok()?.message.phase)).collect();
        let dropped = known.iter().take_while(|phase| **phase == Phase::Dropped).count();
        assert!(known[dropped..].iter().all(|phase| *phase == Phase::Ready), "{kept} records: {known:?}");
        let ready = known.len() - dropped;
        assert!((1..=4).contains(&ready), "{kept} records: {known:?}");
    }
}

#[test]
fn what_is_dropped_on_its_way_to_the_disk_is_never_handed_out() {
    let mut rig = dropping(1);
    let waiting = rig.ask(Command::Lease(Rig::wish(3, s(30))));
    rig.hold_durability = true;
    let asked = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message(); 3] });
    rig.make_durable();
    let Some(Reply::Enqueued(Ok(answers))) = rig.answer(asked) else { panic!("answered") };
    let last = answers.last().unwrap().as_ref().unwrap().seq;
    let Some(Reply::Leased(Ok(leased))) = rig.answer(waiting) else { panic!("handed out") };
    assert_eq!(leased.iter().map(|one| one.receipt.seq).collect::<Vec<_>>(), [last]);
}

/// A worker waits at a queue with one message of 40 bytes that has expired into full dead letters and one that has not,
/// and `newcomer` at the door, until the queue may drop its oldest. What became of those two, and what the worker got.
fn let_in_past_an_expired_one(newcomer: NewMessage) -> (Vec<Phase>, Vec<Seq>) {
    let mut rig = Rig::new(QueueSettings::default());
    let other = || name("other");
    let define = |rig: &mut Rig, settings: &QueueSettings| {
        rig.ask(Command::Define { queue: other(), settings: Box::new(settings.clone()) })
    };
    let lease = |wait| Command::Lease(LeaseRequest { queue: other(), ..Rig::wish(1, wait) });
    let got = |reply| {
        let Some(Reply::Leased(Ok(leased))) = reply else { panic!("nobody got anything: {reply:?}") };
        leased.into_iter().map(|leased| leased.receipt).collect::<Vec<_>>()
    };
    let dead_letter = DeadLetterSettings { max_messages: 1, ..DeadLetterSettings::default() };
    let blocks =
        QueueSettings { max_bytes: 100, overflow: Overflow::Block, dead_letter, ..Default::default() };
    define(&mut rig, &blocks);
    rig.enqueue_to("other", message_of(10)).unwrap();
    let first = rig.ask_now(lease(Duration::ZERO));
    rig.settle(got(Some(first))[0], dead()).unwrap();
    let mortal = NewMessage { ttl: Some(s(1)), ..message_of(40) };
    let both = [mortal, message_of(40)].map(|message| rig.enqueue_to("other", message).unwrap().seq);
    let worker = rig.ask(lease(s(20)));
    rig.ask(Command::Enqueue { queue: other(), messages: vec![newcomer] });
    rig.pass(s(2));
    assert_eq!(phases(&mut rig, &both), [Phase::Ready; 2], "there is no room for a dead letter");
    let dead_letter = DeadLetterSettings::default();
    define(&mut rig, &QueueSettings { overflow: Overflow::DropOldest, dead_letter, ..blocks });
    let reply = rig.answer(worker);
    (phases(&mut rig, &both), got(reply).into_iter().map(|receipt| receipt.seq).collect())
}

#[test]
fn what_is_dropped_with_others_is_not_handed_out_on_the_way() {
    let (phases, got) = let_in_past_an_expired_one(message_of(80));
    assert_eq!((phases, got), (vec![Phase::Dropped; 2], vec![Seq(4)]));
}

#[test]
fn what_stood_behind_a_dropped_one_goes_out_at_once() {
    let (phases, got) = let_in_past_an_expired_one(NewMessage { delay: s(9), ..message_of(50) });
    assert_eq!((phases, got), (vec![Phase::Dropped, Phase::Leased], vec![Seq(3)]));
}

#[test]
fn a_group_loses_its_oldest_that_nobody_has_and_goes_on_with_the_next() {
    let mut rig = dropping(3);
    let grouped = || NewMessage { group: Some(Label::new("a").unwrap()), ..message() };
    let seqs: Vec<Seq> = (0..3).map(|_| rig.enqueue(grouped()).unwrap().seq).collect();
    let fourth = rig.enqueue(grouped()).unwrap().seq;
    assert_eq!(rig.phase(seqs[0]), Phase::Dropped);
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, seqs[1]);
    let fifth = rig.enqueue(grouped()).unwrap().seq;
    assert_eq!(phases(&mut rig, &seqs), [Phase::Dropped, Phase::Leased, Phase::Dropped]);
    assert_eq!(rig.lease(1).len(), 0, "its first one is in work");
    rig.settle(receipt, complete()).unwrap();
    let next = rig.lease_one();
    assert_eq!(next.seq, fourth);
    rig.settle(next, complete()).unwrap();
    assert_eq!(rig.lease_one().seq, fifth);
}

#[test]
fn the_key_of_what_is_dropped_makes_room_for_the_key_of_the_newest() {
    let overflow = Overflow::DropOldest;
    let settings = QueueSettings { max_messages: Some(2), max_keys: 2, overflow, ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    for key in 1..=5 {
        rig.enqueue(keyed(key, 1)).unwrap();
    }
    assert!(!rig.enqueue(keyed(1, 1)).unwrap().duplicate, "the key of the first one is forgotten");
}

#[test]
fn the_bound_in_time_refuses_though_the_queue_drops_its_oldest_and_drops_nothing() {
    let mut rig = Rig::new(QueueSettings {
        max_messages: Some(21),
        max_wait: Some(s(4)),
        overflow: Overflow::DropOldest,
        concurrency: Some(1),
        expected_service_time: Some(ms(200)),
        ..QueueSettings::default()
    });
    rig.fill(21);
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
    assert_eq!((rig.stats().ready, rig.stats().totals.dropped), (21, 0));
}
