//! What happens at a bound: shares of the classes, and the oldest work given up for the newest.

use crate::rig::{QUEUE, Rig, complete, message, message_of, ms, name, retry_in, s};
use millpond_core::command::{Accepted, Command, EnqueueError, NewMessage, Reply};
use millpond_core::identity::Seq;
use millpond_core::message::{Criticality, Phase};
use millpond_core::name::Label;
use millpond_core::settings::{Overflow, QueueSettings};
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

#[test]
fn what_is_not_durable_yet_is_not_dropped() {
    let mut rig = dropping(2);
    rig.hold_durability = true;
    let request = rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message(); 3] });
    rig.make_durable();
    let Some(Reply::Enqueued(Ok(answers))) = rig.answer(request) else { panic!("answered") };
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
    assert_eq!(rig.stats().totals.dropped, 0);
}

#[test]
fn of_a_group_the_first_one_is_dropped_and_the_next_one_goes_on() {
    let mut rig = dropping(2);
    let grouped = || NewMessage { group: Some(Label::new("a").unwrap()), ..message() };
    let seqs = [rig.enqueue(grouped()).unwrap().seq, rig.enqueue(grouped()).unwrap().seq];
    let third = rig.enqueue(grouped()).unwrap().seq;
    assert_eq!(rig.phase(seqs[0]), Phase::Dropped);
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, seqs[1]);
    assert!(is_full(&rig.enqueue(grouped())), "the rest of the group is not eligible");
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(rig.lease_one().seq, third);
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
