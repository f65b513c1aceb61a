//! Replays as tasks: counted, paced, bounded, resumable, cancellable; nothing lost, nothing twice.

use crate::rig::{QUEUE, Rig, complete, dead, message, ms, name, s};
use millpond_core::command::{
    Command, EnqueueError, Input, LeaseRequest, NewMessage, ReplayError, Reply, SettleOutcome, Settlement,
};
use millpond_core::identity::Seq;
use millpond_core::message::{DeadReason, Failure, Phase};
use millpond_core::name::Label;
use millpond_core::rate::Rate;
use millpond_core::record::Record;
use millpond_core::replay::{ReplayFilter, ReplayState, ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::settings::{QueueSettings, RetrySettings};
use std::time::Duration;

fn settings() -> QueueSettings {
    QueueSettings { dead_burst: 0, prefetch: 1000, ..QueueSettings::default() }
}

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

/// A queue with so many dead letters, and their numbers.
fn with_dead(settings: QueueSettings, count: usize) -> (Rig, Vec<Seq>) {
    let mut rig = Rig::new(settings);
    let seqs = rig.fill(count);
    die(&mut rig, count);
    (rig, seqs)
}

/// Lets the next `count` messages die.
fn die(rig: &mut Rig, count: usize) {
    for _ in 0..count {
        let receipt = rig.lease_one();
        rig.settle(receipt, dead()).unwrap();
    }
}

/// A queue with many dead letters, made quickly; the last one is the work of a tenant, `last`.
fn with_many_dead(count: usize) -> Rig {
    let mut rig = Rig::new(settings());
    let mut messages = vec![message(); count - 1];
    messages.push(NewMessage { tenant: Some(label("last")), ..message() });
    rig.ask_now(Command::Enqueue { queue: name(QUEUE), messages });
    while rig.stats().ready > 0 {
        let settlements = rig.lease(1000).into_iter();
        let settlements = settlements.map(|one| Settlement { receipt: one.receipt, outcome: dead() });
        rig.ask_now(Command::Settle(settlements.collect()));
    }
    rig
}

fn paced(events: u32) -> ReplayWish {
    let rate = Some(Rate { events, per: s(1) });
    ReplayWish { rate, ..ReplayWish::plain(ReplayWhich::All) }
}

fn filtered(filter: ReplayFilter) -> ReplayWish {
    ReplayWish::plain(ReplayWhich::Filter(filter))
}

fn latest(rig: &mut Rig) -> ReplayTask {
    rig.replays().pop().expect("a replay is remembered")
}

#[test]
fn a_replay_keeps_to_its_rate_and_says_how_far_it_is() {
    let (mut rig, _) = with_dead(settings(), 30);
    let plan = rig.start_replay(paced(10), false).unwrap();
    assert_eq!((plan.task, plan.selected), (Some(1), 30));
    assert_eq!(rig.stats().ready, 1);
    for second in 1..=2 {
        rig.pass(s(1));
        assert_eq!(rig.stats().ready, 1 + 10 * second);
        let task = latest(&mut rig);
        assert_eq!(
            (task.state, task.replayed, task.remaining()),
            (ReplayState::Running, 1 + 10 * second, 29 - 10 * second)
        );
    }
    rig.pass(s(1));
    let task = latest(&mut rig);
    assert_eq!((task.state, task.replayed, task.remaining(), task.skipped()), (ReplayState::Done, 30, 0, 0));
    assert!(task.finished.is_some());
}

#[test]
fn a_fast_rate_is_reached() {
    let (mut rig, _) = with_dead(settings(), 600);
    rig.start_replay(paced(1000), false).unwrap();
    rig.pass(ms(400));
    let ready = rig.stats().ready;
    assert!((390..=451).contains(&ready), "{ready}");
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let (mut rig, seqs) = with_dead(settings(), 12);
    let records = rig.log.len();
    let plan = rig.start_replay(ReplayWish::plain(ReplayWhich::All), true).unwrap();
    assert_eq!((plan.task, plan.selected, plan.too_old), (None, 12, 0));
    assert_eq!(plan.samples, seqs[..10]);
    assert_eq!((rig.log.len(), rig.stats().dead, rig.replays().len()), (records, 12, 0));
}

#[test]
fn a_filter_means_what_fits_all_of_it() {
    let retry_once = RetrySettings { max_attempts: 1, ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: retry_once, ..settings() });
    let mut kill = |tenant: &str, outcome: SettleOutcome| {
        rig.pass(s(10));
        rig.enqueue(NewMessage { tenant: Some(label(tenant)), ..message() }).unwrap();
        let receipt = rig.lease_one();
        rig.settle(receipt, outcome).unwrap();
        (receipt.seq, rig.now.wall)
    };
    let failure = || Some(Failure::new("worker", "the Printer is on fire", None));
    let (first, _) = kill("a", dead());
    let (second, at) = kill("b", SettleOutcome::Dead { failure: failure() });
    let (third, later) = kill("a", SettleOutcome::Retry { failure: failure(), delay: None });
    let mut meant = |filter| rig.start_replay(filtered(filter), true).unwrap().samples;
    let none = ReplayFilter::default();
    assert_eq!(meant(none.clone()), [first, second, third]);
    assert_eq!(meant(ReplayFilter { reason: Some(DeadReason::Rejected), ..none.clone() }), [first, second]);
    assert_eq!(meant(ReplayFilter { error: Some("printer".to_owned()), ..none.clone() }), [second, third]);
    assert_eq!(meant(ReplayFilter { tenant: Some(label("a")), ..none.clone() }), [first, third]);
    assert_eq!(meant(ReplayFilter { since: Some(at), ..none.clone() }), [second, third]);
    assert_eq!(meant(ReplayFilter { since: Some(at), until: Some(later), ..none.clone() }), [second]);
    let both = ReplayFilter { tenant: Some(label("a")), error: Some("fire".to_owned()), ..none };
    assert_eq!(meant(both.clone()), [third]);
    rig.start_replay(filtered(both), false).unwrap();
    assert_eq!((rig.phase(third), rig.stats().dead), (Phase::Ready, 2));
}

#[test]
fn what_died_too_long_ago_needs_an_explicit_word() {
    let (mut rig, _) = with_dead(settings(), 2);
    rig.pass(Duration::from_hours(7 * 24));
    let plan = rig.start_replay(ReplayWish::plain(ReplayWhich::All), true).unwrap();
    assert_eq!((plan.selected, plan.too_old), (2, 0), "a week is not too long");
    rig.pass(ms(1));
    rig.fill(1);
    die(&mut rig, 1);
    let plan = rig.start_replay(ReplayWish::plain(ReplayWhich::All), false).unwrap();
    assert_eq!((plan.selected, plan.too_old), (1, 2));
    let task = latest(&mut rig);
    assert_eq!((task.state, task.replayed, task.skipped()), (ReplayState::Done, 1, 2));
    let older = ReplayWish { older: true, ..ReplayWish::plain(ReplayWhich::All) };
    assert_eq!(rig.start_replay(older, false).unwrap().selected, 2);
    assert_eq!((rig.stats().ready, rig.stats().dead), (3, 0));
}

#[test]
fn a_time_to_live_given_with_the_replay_counts_from_the_return() {
    let (mut rig, seqs) = with_dead(settings(), 1);
    rig.pass(s(1000));
    let wish = ReplayWish { ttl: Some(s(60)), ..ReplayWish::plain(ReplayWhich::All) };
    rig.start_replay(wish, false).unwrap();
    rig.pass(s(60) - ms(1));
    assert_eq!(rig.phase(seqs[0]), Phase::Ready);
    rig.pass(ms(1));
    assert_eq!(rig.status(seqs[0]).unwrap().message.dead_reason, Some(DeadReason::Expired));
}

#[test]
fn a_replay_never_exceeds_the_bounds_and_goes_on_as_there_is_room() {
    let (mut rig, _) = with_dead(QueueSettings { max_messages: Some(5), ..settings() }, 5);
    let fresh = rig.fill(3);
    rig.replay(ReplayWhich::All).unwrap();
    assert_eq!((rig.stats().ready, rig.stats().dead), (5, 3));
    assert!(matches!(rig.enqueue(message()), Err(EnqueueError::QueueFull { .. })));
    rig.pass(s(10));
    assert_eq!(rig.stats().ready, 5, "nothing goes beyond the bound");
    for _ in 0..3 {
        let receipt = rig.lease_one();
        assert!(fresh.contains(&receipt.seq));
        rig.settle(receipt, complete()).unwrap();
        rig.pass(s(1));
        assert_eq!(rig.stats().ready, 5);
    }
    rig.pass(s(1));
    assert_eq!((latest(&mut rig).state, rig.stats().dead), (ReplayState::Done, 0));
}

#[test]
fn what_dies_again_is_not_taken_again() {
    let (mut rig, seqs) = with_dead(settings(), 3);
    rig.start_replay(paced(1), false).unwrap();
    die(&mut rig, 1);
    rig.restart();
    rig.pass(s(60));
    let task = latest(&mut rig);
    assert_eq!((task.state, task.replayed, rig.phase(seqs[0])), (ReplayState::Done, 3, Phase::Dead));
    assert_eq!((rig.stats().ready, rig.stats().dead), (2, 1));
}

#[test]
fn what_dies_during_a_replay_is_left_alone() {
    let mut rig = Rig::new(settings());
    let survivor = rig.fill(1)[0];
    let held = rig.lease_one();
    rig.fill(3);
    die(&mut rig, 3);
    rig.start_replay(paced(1), false).unwrap();
    rig.pass(ms(10));
    rig.settle(held, dead()).unwrap();
    rig.restart();
    rig.pass(s(60));
    assert_eq!((latest(&mut rig).replayed, rig.phase(survivor)), (3, Phase::Dead));
}

#[test]
fn a_dead_letter_that_is_gone_when_its_turn_comes_is_skipped() {
    let (mut rig, seqs) = with_dead(settings(), 3);
    rig.start_replay(paced(1), false).unwrap();
    rig.delete_dead(seqs[2]).unwrap();
    rig.pass(s(60));
    let task = latest(&mut rig);
    assert_eq!((task.state, task.replayed, task.skipped()), (ReplayState::Done, 2, 1));
}

#[test]
fn a_cancelled_replay_stops_for_good_and_another_one_may_follow() {
    let (mut rig, _) = with_dead(settings(), 10);
    rig.start_replay(paced(1), false).unwrap();
    rig.pass(s(2));
    assert_eq!(rig.replay(ReplayWhich::All), Err(ReplayError::Running(1)));
    let task = rig.cancel_replay(1).unwrap();
    assert_eq!((task.state, task.replayed, task.remaining()), (ReplayState::Cancelled, 3, 7));
    rig.restart();
    rig.pass(s(60));
    assert_eq!((rig.stats().ready, rig.stats().dead), (3, 7));
    assert_eq!(rig.cancel_replay(1).unwrap(), task, "cancelled twice is cancelled");
    assert_eq!(rig.cancel_replay(2), Err(ReplayError::UnknownTask(2)));
    assert_eq!(rig.replay(ReplayWhich::All), Ok(7));
    assert_eq!(latest(&mut rig).number, 2);
}

#[test]
fn the_last_ten_replays_are_remembered_across_a_restart() {
    let (mut rig, seqs) = with_dead(settings(), 13);
    for seq in &seqs {
        rig.replay(ReplayWhich::These(vec![*seq])).unwrap();
    }
    rig.restart();
    let numbers: Vec<u32> = rig.replays().iter().map(|task| task.number).collect();
    assert_eq!(numbers, (4..=13).collect::<Vec<_>>());
    assert!(rig.replays().iter().all(|task| task.state == ReplayState::Done && task.replayed == 1));
}

#[test]
fn wherever_the_log_ends_a_replay_goes_on_and_loses_and_repeats_nothing() {
    let (mut rig, _) = with_dead(settings(), 12);
    let before = rig.log.len();
    rig.start_replay(paced(5), false).unwrap();
    rig.pass(s(1));
    die(&mut rig, 1);
    rig.input(Input::CopyBasics);
    rig.pass(s(1));
    let (log, now) = (rig.log.clone(), rig.now);
    for kept in before + 1..=log.len() {
        rig.log = log[..kept].to_vec();
        rig.durable = kept;
        rig.now = now;
        rig.restart();
        let recorded = log[..kept].iter().filter(|record| matches!(record, Record::Replayed { .. })).count();
        let died_again = log[before..kept].iter().any(|record| matches!(record, Record::Died { .. }));
        let task = latest(&mut rig);
        // The first one after the restart may have gone back already.
        let replayed = usize::try_from(task.replayed).unwrap();
        assert!((recorded..=recorded + 1).contains(&replayed), "{replayed} of {recorded}, {kept} records");
        rig.pass(s(60));
        let task = latest(&mut rig);
        assert_eq!((task.state, task.replayed), (ReplayState::Done, 12), "{kept} records");
        let stats = rig.stats();
        assert_eq!(stats.dead, u64::from(died_again), "{kept} records");
        assert_eq!(stats.dead + stats.ready + stats.leased, 12, "{kept} records");
    }
}

#[test]
fn a_replay_is_told_of_once_it_is_durable() {
    let (mut rig, _) = with_dead(settings(), 2);
    rig.hold_durability = true;
    let request = rig.ask_for_replay(ReplayWhich::All);
    assert!(rig.answer(request).is_none());
    assert_eq!(rig.lease(2).len(), 0, "what went back is not durable");
    rig.make_durable();
    assert!(matches!(rig.answer(request), Some(Reply::ReplayStarted(Ok(plan))) if plan.selected == 2));
    assert_eq!(rig.lease(2).len(), 2);
}

#[test]
fn a_server_that_shuts_down_leaves_the_rest_for_after_the_restart() {
    let (mut rig, _) = with_dead(settings(), 3);
    rig.start_replay(paced(1), false).unwrap();
    rig.input(Input::Drain);
    rig.pass(s(10));
    let left = rig.stats().dead;
    assert_eq!(left, 2);
    rig.restart();
    rig.pass(s(10));
    assert_eq!((rig.stats().ready, latest(&mut rig).state), (3, ReplayState::Done));
}

#[test]
fn a_replay_of_more_than_a_step_looks_at_holds_up_nothing() {
    let mut rig = with_many_dead(4200);
    rig.hold_durability = true;
    let request = rig.ask_for_replay(ReplayWhich::All);
    rig.make_durable();
    assert!(rig.answer(request).is_none(), "it is still being counted");
    rig.input(Input::Abandon(request));
    rig.hold_durability = false;
    rig.pass(Duration::ZERO);
    assert_eq!((rig.replays().len(), rig.stats().dead), (0, 4200), "whoever leaves early starts none");
    assert_eq!(rig.replay(ReplayWhich::All), Ok(4200));
    assert_eq!(rig.stats().ready, 4200);
}

#[test]
fn a_replay_that_means_few_of_many_looks_at_a_bounded_number_per_step() {
    let mut rig = with_many_dead(2200);
    rig.hold_durability = true;
    let last = filtered(ReplayFilter { tenant: Some(label("last")), ..ReplayFilter::default() });
    rig.ask(Command::Replay { queue: name(QUEUE), wish: last, dry_run: false });
    let replayed = |rig: &Rig| {
        matches!(rig.log.last(), Some(Record::Queue(_)))
            && rig.log.iter().any(|record| matches!(record, Record::Replayed { .. }))
    };
    // Counting all takes two steps, and so does finding the last one; the first one follows the count at once.
    rig.input(Input::Tick);
    assert!(!replayed(&rig) && rig.pond.next_wakeup() < Some(rig.now.mono), "it goes on at once");
    rig.input(Input::Tick);
    assert!(replayed(&rig), "found, and done");
}

#[test]
fn replays_of_two_queues_go_on_side_by_side_and_one_ends_without_the_other() {
    let mut rig = with_many_dead(300);
    rig.ask_now(Command::Define { queue: name("other"), settings: Box::new(settings()) });
    for _ in 0..300 {
        rig.enqueue_to("other", message()).unwrap();
    }
    let wish = LeaseRequest { queue: name("other"), ..Rig::wish(1000, s(0)) };
    let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
    for leased in leased {
        rig.settle(leased.receipt, dead()).unwrap();
    }
    rig.hold_durability = true;
    for queue in [QUEUE, "other"] {
        let wish = ReplayWish::plain(ReplayWhich::All);
        rig.ask(Command::Replay { queue: name(queue), wish, dry_run: false });
    }
    rig.ask(Command::CancelReplay { queue: name("other"), number: 1 });
    rig.hold_durability = false;
    rig.make_durable();
    rig.pass(Duration::ZERO);
    assert_eq!((latest(&mut rig).state, rig.stats().dead), (ReplayState::Done, 0));
    let Reply::Replays(Ok(others)) = rig.ask_now(Command::Replays(name("other"))) else { panic!("told") };
    assert_eq!(others.tasks[0].state, ReplayState::Cancelled);
}

#[test]
fn a_replay_that_is_counted_while_its_queue_is_deleted_is_refused_and_others_are_not() {
    let mut rig = with_many_dead(2100);
    rig.ask_now(Command::Define { queue: name("extra"), settings: Box::new(settings()) });
    rig.hold_durability = true;
    let mut ask = |queue: &str| {
        let wish = ReplayWish::plain(ReplayWhich::All);
        rig.ask(Command::Replay { queue: name(queue), wish, dry_run: true })
    };
    // One step of one of them with every input: when the queue goes, two are still being counted.
    let (_, large, small) = (ask(QUEUE), ask(QUEUE), ask("extra"));
    let deleted = rig.ask(Command::Delete(name("extra")));
    rig.hold_durability = false;
    rig.make_durable();
    rig.pass(Duration::ZERO);
    assert!(matches!(rig.answer(deleted), Some(Reply::Deleted(Ok(())))));
    let refused = rig.answer(small);
    assert!(matches!(refused, Some(Reply::ReplayStarted(Err(ReplayError::UnknownQueue)))), "{refused:?}");
    assert!(matches!(rig.answer(large), Some(Reply::ReplayStarted(Ok(plan))) if plan.selected == 2100));
}

#[test]
fn a_wish_that_makes_no_sense_is_refused_with_the_reason() {
    let (mut rig, seqs) = with_dead(settings(), 1);
    let all = || ReplayWish::plain(ReplayWhich::All);
    for (wish, field) in [
        (ReplayWish { ttl: Some(Duration::ZERO), ..all() }, "ttl"),
        (ReplayWish { ttl: Some(Duration::from_hours(24 * 5)), ..all() }, "ttl"),
        (ReplayWish { rate: Some(Rate { events: 0, per: s(1) }), ..all() }, "rate"),
        (ReplayWish { rate: Some(Rate { events: 1, per: s(0) }), ..all() }, "rate"),
        (filtered(ReplayFilter { error: Some("x".repeat(2000)), ..ReplayFilter::default() }), "error"),
    ] {
        let refused = rig.start_replay(wish, false);
        assert!(
            matches!(&refused, Err(ReplayError::OutOfRange { field: at, .. }) if *at == field),
            "{refused:?}"
        );
    }
    let longest =
        ReplayFilter { error: Some("x".repeat(Failure::MESSAGE_BYTES_MAX)), ..ReplayFilter::default() };
    assert!(rig.start_replay(filtered(longest), true).is_ok());
    let longest = Some(QueueSettings::default().retention);
    assert!(rig.start_replay(ReplayWish { ttl: longest, ..all() }, true).is_ok());
    let most = ReplayWhich::These(vec![seqs[0]; ReplayTask::NAMED_MAX]);
    assert!(rig.start_replay(ReplayWish::plain(most), true).is_ok());
    let many = ReplayWhich::These(vec![seqs[0]; ReplayTask::NAMED_MAX + 1]);
    assert_eq!(rig.replay(many), Err(ReplayError::TooManyNamed(ReplayTask::NAMED_MAX)));
    let elsewhere = Command::Replay { queue: name("elsewhere"), wish: all(), dry_run: true };
    assert!(matches!(rig.ask_now(elsewhere), Reply::ReplayStarted(Err(ReplayError::UnknownQueue))));
}

#[test]
fn a_queue_that_is_deleted_takes_its_replays_along() {
    let mut rig = Rig::new(settings());
    let define = Command::Define { queue: name("brief"), settings: Box::new(settings()) };
    assert!(matches!(rig.ask_now(define), Reply::Defined(Ok(true))));
    rig.enqueue_to("brief", message()).unwrap();
    let mut wish = Rig::wish(1, Duration::ZERO);
    wish.queue = name("brief");
    let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
    rig.settle(leased[0].receipt, dead()).unwrap();
    let replay = Command::Replay { queue: name("brief"), wish: paced(1), dry_run: false };
    assert!(matches!(rig.ask_now(replay), Reply::ReplayStarted(Ok(_))));
    let seq = leased[0].receipt.seq;
    rig.cancel(seq).unwrap();
    assert!(matches!(rig.ask_now(Command::Delete(name("brief"))), Reply::Deleted(Ok(()))));
    rig.restart();
    rig.pass(s(10));
}
