//! Callers who wait at the door: by class, in their order, bounded, let in as there is room, forgotten when they leave.

use crate::rig::{QUEUE, Rig, complete, dead, keyed, message, message_of, ms, name, s};
use millpond_core::command::{Command, EnqueueError, Input, NewMessage, Reply, RequestId, StorageState};
use millpond_core::identity::Seq;
use millpond_core::message::Criticality;
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::{OnExpiry, Overflow, QueueSettings};
use millpond_core::time::Now;
use std::time::Duration;

fn blocking(max_messages: u64) -> QueueSettings {
    let block_for = s(30);
    let max_messages = Some(max_messages);
    QueueSettings { overflow: Overflow::Block, block_for, max_messages, ..QueueSettings::default() }
}

fn knock(rig: &mut Rig, messages: Vec<NewMessage>) -> RequestId {
    rig.ask(Command::Enqueue { queue: name(QUEUE), messages })
}

/// The numbers of those that were accepted, and how many were not; `None`: the caller still waits.
fn told(rig: &mut Rig, request: RequestId) -> Option<(Vec<Seq>, usize)> {
    rig.answer(request).map(|reply| {
        let Reply::Enqueued(Ok(answers)) = reply else { panic!("{reply:?}") };
        let accepted: Vec<Seq> = answers.iter().flatten().map(|accepted| accepted.seq).collect();
        let refused = answers.iter().filter(|answer| matches!(answer, Err(EnqueueError::QueueFull { .. })));
        assert_eq!(accepted.len() + refused.clone().count(), answers.len(), "{answers:?}");
        (accepted, refused.count())
    })
}

fn finish_one(rig: &mut Rig) {
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
}

#[test]
fn whoever_finds_the_queue_full_waits_and_is_let_in_in_the_order_of_coming() {
    let mut rig = Rig::new(blocking(2));
    rig.fill(2);
    let (first, second) = (knock(&mut rig, vec![message()]), knock(&mut rig, vec![message()]));
    assert_eq!((told(&mut rig, first), told(&mut rig, second)), (None, None));
    assert_eq!(rig.stats().blocked, 2);
    assert_eq!(rig.log.len(), rig.durable, "nothing of it is stored");
    finish_one(&mut rig);
    assert_eq!((told(&mut rig, first), told(&mut rig, second)), (Some((vec![Seq(3)], 0)), None));
    rig.cancel(Seq(2)).unwrap();
    assert_eq!(told(&mut rig, second), Some((vec![Seq(4)], 0)), "any way to leave makes room");
    assert_eq!(rig.stats().ready, 2);
}

#[test]
fn a_later_one_never_overtakes_however_small() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 100, max_messages: None, ..blocking(1) });
    rig.enqueue(message_of(60)).unwrap();
    let large = knock(&mut rig, vec![message_of(90)]);
    let small = knock(&mut rig, vec![message_of(1)]);
    assert_eq!((told(&mut rig, large), told(&mut rig, small)), (None, None));
    finish_one(&mut rig);
    assert_eq!(
        (told(&mut rig, large), told(&mut rig, small)),
        (Some((vec![Seq(2)], 0)), Some((vec![Seq(3)], 0)))
    );
}

#[test]
fn whoever_leaves_is_forgotten_and_holds_up_nobody() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 100, max_messages: None, ..blocking(1) });
    rig.enqueue(message_of(60)).unwrap();
    let large = knock(&mut rig, vec![message_of(90)]);
    let small = knock(&mut rig, vec![message_of(1)]);
    rig.input(Input::Abandon(large));
    assert_eq!(told(&mut rig, small), Some((vec![Seq(2)], 0)));
    finish_one(&mut rig);
    finish_one(&mut rig);
    assert_eq!((told(&mut rig, large), rig.stats().totals.accepted()), (None, 2), "nothing of it was stored");
}

#[test]
fn a_wait_ends_with_a_refusal_that_says_when_to_come_back() {
    let mut rig = Rig::new(blocking(1));
    rig.fill(1);
    let request = knock(&mut rig, vec![message()]);
    rig.pass(s(30) - ms(1));
    assert_eq!(told(&mut rig, request), None);
    rig.pass(ms(1));
    let Some(Reply::Enqueued(Ok(answers))) = rig.answer(request) else { panic!("answered") };
    let Err(EnqueueError::QueueFull { retry_after, what }) = &answers[0] else { panic!("{answers:?}") };
    assert!(*retry_after >= s(1) && what.contains("messages"), "{answers:?}");
    assert_eq!(rig.stats().totals.refused_full, 1);
    assert!(rig.pond.next_wakeup().is_some());
}

#[test]
fn a_batch_waits_as_a_whole_and_is_taken_as_a_whole() {
    let mut rig = Rig::new(blocking(3));
    rig.fill(2);
    let batch = knock(&mut rig, vec![message(); 3]);
    assert_eq!(told(&mut rig, batch), None, "one would fit, three do not");
    finish_one(&mut rig);
    assert_eq!((told(&mut rig, batch), rig.stats().ready), (None, 1));
    finish_one(&mut rig);
    assert_eq!(told(&mut rig, batch), Some((vec![Seq(3), Seq(4), Seq(5)], 0)));
}

/// The bound that a whole batch was refused for at once.
fn refused_for(rig: &mut Rig, request: RequestId) -> &'static str {
    let Some(Reply::Enqueued(Ok(answers))) = rig.answer(request) else { panic!("answered at once") };
    let bounds = answers.iter().map(|answer| match answer {
        Err(EnqueueError::BatchTooLarge { what }) => *what,
        other => panic!("{other:?}"),
    });
    let bounds: Vec<&str> = bounds.collect();
    assert!(bounds.windows(2).all(|pair| pair[0] == pair[1]), "{bounds:?}");
    bounds[0]
}

#[test]
fn a_batch_that_never_fits_is_refused_as_a_whole_at_once_with_the_bound() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 100, max_keys: 2, ..blocking(3) });
    for (batch, bound) in [
        (vec![message(); 4], "messages"),
        (vec![message_of(60), message_of(41)], "bytes"),
        (vec![keyed(1, 1), keyed(2, 1), keyed(3, 1)], "keys"),
        (vec![NewMessage { criticality: Criticality::Sheddable, ..message() }; 3], "work of this class"),
    ] {
        let request = knock(&mut rig, batch);
        let what = refused_for(&mut rig, request);
        assert!(what.contains(bound), "{what}");
    }
    let stats = rig.stats();
    assert_eq!(
        (stats.ready, stats.totals.refused_full),
        (0, 0),
        "nothing of it is stored, nor was it refused for want of room"
    );
    let batch = knock(&mut rig, vec![keyed(1, 1), keyed(2, 1), message()]);
    assert_eq!(told(&mut rig, batch), Some((vec![Seq(1), Seq(2), Seq(3)], 0)), "as much as fits is taken");
}

#[test]
fn whoever_waits_is_answered_when_the_bounds_are_lowered_so_that_it_never_fits() {
    let mut rig = Rig::new(QueueSettings::default());
    let define = |rig: &mut Rig, settings| {
        rig.ask_now(Command::Define { queue: name("door"), settings: Box::new(settings) });
    };
    define(&mut rig, blocking(3));
    rig.enqueue_to("door", message()).unwrap();
    let knock = |rig: &mut Rig, messages| rig.ask(Command::Enqueue { queue: name("door"), messages });
    let (three, one) = (knock(&mut rig, vec![message(); 3]), knock(&mut rig, vec![message()]));
    define(&mut rig, blocking(2));
    assert!(refused_for(&mut rig, three).contains("messages"));
    assert_eq!(told(&mut rig, one), Some((vec![Seq(2)], 0)), "it held up those behind it");
}

#[test]
fn repetitions_and_mistakes_do_not_wait() {
    let mut rig = Rig::new(blocking(1));
    let seq = rig.enqueue(keyed(1, 1)).unwrap().seq;
    let waiting = knock(&mut rig, vec![message()]);
    assert_eq!(rig.enqueue(keyed(1, 1)).unwrap().seq, seq);
    assert_eq!(rig.enqueue(keyed(1, 2)).unwrap_err(), EnqueueError::IdempotencyMismatch);
    let long = NewMessage { delay: Duration::from_hours(31 * 24), ..message() };
    assert_eq!(rig.enqueue(long).unwrap_err(), EnqueueError::DelayTooLong);
    assert_eq!(told(&mut rig, waiting), None);
}

#[test]
fn what_became_a_repetition_while_it_waited_is_answered_as_one() {
    let mut rig = Rig::new(blocking(1));
    rig.fill(1);
    let (first, second) = (knock(&mut rig, vec![keyed(1, 1)]), knock(&mut rig, vec![keyed(1, 1)]));
    finish_one(&mut rig);
    assert_eq!(
        (told(&mut rig, first), told(&mut rig, second)),
        (Some((vec![Seq(2)], 0)), Some((vec![Seq(2)], 0)))
    );
}

#[test]
fn at_a_full_queue_too_whoever_would_start_too_late_is_told_so_and_others_wait() {
    for (max_messages, too_late) in [(4, false), (5, true)] {
        let settings = QueueSettings {
            max_wait: Some(s(4)),
            concurrency: Some(1),
            expected_service_time: Some(s(1)),
            ..blocking(max_messages)
        };
        let mut rig = Rig::new(settings);
        rig.fill(usize::try_from(max_messages).unwrap());
        let caller = knock(&mut rig, vec![message()]);
        match rig.answer(caller) {
            None => assert!(!too_late, "four seconds for four that are allowed"),
            Some(Reply::Enqueued(Ok(answers))) => {
                assert!(
                    too_late && matches!(answers[0], Err(EnqueueError::WaitTooLong { .. })),
                    "{answers:?}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn whoever_waits_at_the_door_of_a_queue_that_is_deleted_is_told() {
    let mut rig = Rig::new(QueueSettings::default());
    let settings = Box::new(QueueSettings { on_expiry: OnExpiry::Drop, ..blocking(1) });
    rig.ask_now(Command::Define { queue: name("narrow"), settings });
    rig.enqueue_to("narrow", NewMessage { ttl: Some(s(5)), ..message() }).unwrap();
    let waiting = rig.ask(Command::Enqueue { queue: name("narrow"), messages: vec![message()] });
    // The last message goes, and the queue with it, before anyone can be let in.
    rig.now = Now { wall: rig.now.wall.plus(s(5)), mono: rig.now.mono.plus(s(5)) };
    assert!(matches!(rig.ask_now(Command::Delete(name("narrow"))), Reply::Deleted(Ok(()))));
    let answer = rig.answer(waiting);
    assert!(matches!(answer, Some(Reply::Enqueued(Err(EnqueueError::UnknownQueue)))), "{answer:?}");
}

#[test]
fn work_that_would_start_too_late_is_refused_at_once() {
    let settings = QueueSettings {
        max_wait: Some(s(4)),
        concurrency: Some(1),
        expected_service_time: Some(s(1)),
        ..blocking(6)
    };
    let mut rig = Rig::new(settings);
    rig.fill(5);
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::WaitTooLong { .. })));
    rig.pause(true);
    rig.fill(1);
    let waiting = knock(&mut rig, vec![message()]);
    assert_eq!(told(&mut rig, waiting), None, "while nothing can be predicted, it waits");
}

fn of(criticality: Criticality) -> NewMessage {
    NewMessage { criticality, ..message() }
}

#[test]
fn each_class_waits_for_its_share() {
    let mut rig = Rig::new(blocking(4));
    rig.fill(2);
    let sheddable = knock(&mut rig, vec![of(Criticality::Sheddable)]);
    assert_eq!(told(&mut rig, sheddable), None);
    finish_one(&mut rig);
    assert_eq!(told(&mut rig, sheddable), Some((vec![Seq(3)], 0)));
}

#[test]
fn the_line_is_bounded_in_callers_and_bytes() {
    let mut rig = Rig::new(blocking(1));
    rig.fill(1);
    let waiting: Vec<RequestId> = (0..1000).map(|_| knock(&mut rig, vec![message_of(0)])).collect();
    let one_more = knock(&mut rig, vec![message_of(0)]);
    assert_eq!(told(&mut rig, one_more), Some((Vec::new(), 1)));
    rig.input(Input::Abandon(waiting[500]));
    let one_more = knock(&mut rig, vec![message_of(0)]);
    assert_eq!(told(&mut rig, one_more), None);
    let mut rig = Rig::new(blocking(1));
    rig.fill(1);
    let large = knock(&mut rig, vec![message_of(40 << 20)]);
    let larger = knock(&mut rig, vec![message_of(30 << 20)]);
    assert_eq!((told(&mut rig, large), told(&mut rig, larger)), (None, Some((Vec::new(), 1))));
}

#[test]
fn nobody_waits_for_less_critical_ones_who_have_used_up_their_share() {
    for waits in Criticality::ALL {
        for comes in Criticality::ALL {
            let mut rig = Rig::new(blocking(20));
            // As full as the class that waits may make it.
            let share = [20, 20, 15, 10][waits.index()];
            rig.fill(share);
            let waiting: Vec<RequestId> = (0..50).map(|_| knock(&mut rig, vec![of(waits)])).collect();
            let newcomer = knock(&mut rig, vec![of(comes)]);
            let is_let_in = [20, 20, 15, 10][comes.index()] > share;
            assert_eq!(told(&mut rig, newcomer).is_some(), is_let_in, "{comes:?} where {waits:?} waits");
            assert!(waiting.into_iter().all(|request| told(&mut rig, request).is_none()));
        }
    }
}

#[test]
fn room_goes_to_the_most_critical_and_within_a_class_to_whoever_came_first() {
    let mut rig = Rig::new(blocking(1));
    rig.fill(1);
    let coming = [3, 1, 2, 0, 1, 3, 0].map(|class: usize| (class, Criticality::ALL[class]));
    let mut waiting: Vec<(usize, RequestId)> =
        coming.iter().map(|(class, criticality)| (*class, knock(&mut rig, vec![of(*criticality)]))).collect();
    waiting.sort_by_key(|(class, _)| *class);
    let waiting: Vec<RequestId> = waiting.into_iter().map(|(_, request)| request).collect();
    for next in 0..waiting.len() {
        finish_one(&mut rig);
        assert!(told(&mut rig, waiting[next]).is_some(), "the {next}th is let in");
        assert!(waiting[next + 1..].iter().all(|&request| told(&mut rig, request).is_none()), "and only it");
    }
}

#[test]
fn a_less_critical_one_never_overtakes_however_small() {
    let mut rig = Rig::new(QueueSettings { max_bytes: 100, max_messages: None, ..blocking(1) });
    rig.enqueue(message_of(20)).unwrap();
    let large = knock(&mut rig, vec![message_of(90)]);
    let small = knock(&mut rig, vec![NewMessage { criticality: Criticality::Sheddable, ..message_of(1) }]);
    assert_eq!((told(&mut rig, large), told(&mut rig, small)), (None, None));
    rig.input(Input::Abandon(large));
    assert!(told(&mut rig, small).is_some());
}

#[test]
fn a_batch_of_several_classes_waits_among_the_least_critical_of_them() {
    let mut rig = Rig::new(blocking(4));
    rig.fill(2);
    let mixed = knock(&mut rig, vec![of(Criticality::CriticalPlus), of(Criticality::Sheddable)]);
    let critical = knock(&mut rig, vec![message()]);
    assert_eq!((told(&mut rig, mixed), told(&mut rig, critical)), (None, Some((vec![Seq(3)], 0))));
    for _ in 0..3 {
        finish_one(&mut rig);
    }
    assert_eq!(told(&mut rig, mixed), Some((vec![Seq(4), Seq(5)], 0)));
}

#[test]
fn what_became_a_repetition_while_it_waited_waits_for_nobody_more_critical() {
    let sheddable = NewMessage { criticality: Criticality::Sheddable, ..keyed(1, 1) };
    let mut rig = Rig::new(blocking(4));
    rig.fill(2);
    let waiting = knock(&mut rig, vec![sheddable]);
    assert_eq!(told(&mut rig, waiting), None);
    let seq = rig.enqueue(keyed(1, 1)).unwrap().seq;
    assert_eq!(told(&mut rig, waiting), Some((vec![seq], 0)), "as soon as it is known");
}

#[test]
fn the_places_of_those_who_wait_are_shared_as_the_bounds_are() {
    for (class, share) in Criticality::ALL.into_iter().zip([1000, 1000, 750, 500]) {
        let mut rig = Rig::new(blocking(1));
        rig.fill(1);
        let of = |class, bytes| vec![NewMessage { criticality: class, ..message_of(bytes) }];
        for _ in 0..share {
            let request = knock(&mut rig, of(class, 0));
            assert_eq!(told(&mut rig, request), None, "{class:?}");
        }
        let one_more = knock(&mut rig, of(class, 0));
        assert_eq!(told(&mut rig, one_more), Some((Vec::new(), 1)), "{class:?}");
        let critical = knock(&mut rig, of(Criticality::Critical, 0));
        assert_eq!(told(&mut rig, critical).is_none(), share < 1000, "beside waiting {class:?}");
        let mut rig = Rig::new(blocking(1));
        rig.fill(1);
        let large = knock(&mut rig, of(class, (share << 20) * 64 / 1000));
        let one_more = knock(&mut rig, of(class, 1 << 20));
        assert_eq!((told(&mut rig, large), told(&mut rig, one_more)), (None, Some((Vec::new(), 1))));
        let critical = knock(&mut rig, of(Criticality::Critical, 16 << 20));
        assert_eq!(told(&mut rig, critical).is_none(), share < 1000, "beside the bytes of {class:?}");
    }
}

#[test]
fn changes_let_in_or_answer_those_who_wait() {
    let mut rig = Rig::new(QueueSettings::default());
    let define = |settings| Command::Define { queue: name("door"), settings: Box::new(settings) };
    let knock = |rig: &mut Rig| rig.ask(Command::Enqueue { queue: name("door"), messages: vec![message()] });
    rig.ask_now(define(blocking(1)));
    rig.enqueue_to("door", message()).unwrap();
    let (first, second, third) = (knock(&mut rig), knock(&mut rig), knock(&mut rig));
    rig.ask_now(define(blocking(2)));
    assert_eq!((told(&mut rig, first), told(&mut rig, second)), (Some((vec![Seq(2)], 0)), None));
    rig.ask_now(define(QueueSettings { overflow: Overflow::Reject, ..blocking(2) }));
    assert_eq!(
        (told(&mut rig, second), told(&mut rig, third)),
        (Some((Vec::new(), 1)), Some((Vec::new(), 1)))
    );
    rig.ask_now(define(blocking(2)));
    let fourth = knock(&mut rig);
    rig.input(Input::Storage(StorageState::NoEnqueue { hand_outs: 9 }));
    assert!(
        matches!(rig.answer(fourth), Some(Reply::Enqueued(Ok(answers))) if matches!(answers[0], Err(EnqueueError::StorageFull)))
    );
    rig.input(Input::Storage(StorageState::Roomy));
    let fifth = knock(&mut rig);
    rig.input(Input::Drain);
    assert!(
        matches!(rig.answer(fifth), Some(Reply::Enqueued(Ok(answers))) if matches!(answers[0], Err(EnqueueError::Draining)))
    );
}

#[test]
fn the_bound_holds_wherever_the_log_ends() {
    let mut rig = Rig::new(blocking(2));
    rig.fill(2);
    let receipt = rig.lease_one();
    let before = rig.log.len();
    let waiting = knock(&mut rig, vec![message()]);
    rig.settle(receipt, complete()).unwrap();
    assert!(told(&mut rig, waiting).is_some());
    let log = rig.log.clone();
    for kept in before..=log.len() {
        rig.log = log[..kept].to_vec();
        rig.durable = kept;
        rig.restart();
        let stats = rig.stats();
        assert!(stats.ready + stats.leased <= 2, "{kept} records: {stats:?}");
    }
}

#[test]
fn a_replay_waits_behind_those_at_the_door_and_goes_on_at_once_as_there_is_room() {
    let mut rig = Rig::new(blocking(2));
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.fill(2);
    let caller = knock(&mut rig, vec![message()]);
    rig.replay(ReplayWhich::All).unwrap();
    finish_one(&mut rig);
    assert_eq!((told(&mut rig, caller), rig.stats().dead), (Some((vec![Seq(4)], 0)), 1));
    finish_one(&mut rig);
    rig.pass(Duration::ZERO);
    assert_eq!((rig.stats().dead, rig.stats().ready), (0, 2));
}

#[test]
fn a_replay_waits_for_no_less_critical_ones_at_the_door() {
    let mut rig = Rig::new(blocking(4));
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.fill(2);
    let sheddable = knock(&mut rig, vec![of(Criticality::Sheddable)]);
    rig.replay(ReplayWhich::All).unwrap();
    rig.pass(Duration::ZERO);
    assert_eq!((told(&mut rig, sheddable), rig.stats().dead, rig.stats().ready), (None, 0, 3));
}
