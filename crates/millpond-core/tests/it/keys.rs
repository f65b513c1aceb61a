//! Idempotency keys: as long as the status, across restarts, and never more than their bound.

use crate::rig::{Rig, complete, dead, keyed, message, ms, name, s};
use millpond_core::command::{Command, EnqueueError, Input, Reply};
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::QueueSettings;
use std::time::Duration;

fn bounded(max_keys: u64) -> QueueSettings {
    QueueSettings { max_keys, ..QueueSettings::default() }
}

fn enqueue(rig: &mut Rig, key: u128) -> (Seq, bool) {
    let accepted = rig.enqueue(keyed(key, 1)).unwrap();
    (accepted.seq, accepted.duplicate)
}

fn finish(rig: &mut Rig) -> Seq {
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    receipt.seq
}

#[test]
fn a_key_lives_as_long_as_the_status_of_its_message_across_restarts_too() {
    let mut rig = Rig::new(QueueSettings::default());
    let (seq, _) = enqueue(&mut rig, 1);
    rig.restart();
    assert_eq!(enqueue(&mut rig, 1), (seq, true));
    finish(&mut rig);
    rig.restart();
    rig.pass(Duration::from_hours(1) - ms(1));
    assert_eq!(enqueue(&mut rig, 1), (seq, true));
    assert_eq!(rig.enqueue(keyed(1, 2)).unwrap_err(), EnqueueError::IdempotencyMismatch);
    rig.restart();
    rig.pass(ms(1));
    assert!(!enqueue(&mut rig, 1).1, "the status is gone, and its key with it");
}

#[test]
fn beyond_the_bound_the_keys_of_finished_messages_are_forgotten_oldest_first() {
    let mut rig = Rig::new(bounded(3));
    for key in 1..=3 {
        enqueue(&mut rig, key);
    }
    finish(&mut rig);
    finish(&mut rig);
    assert!(!enqueue(&mut rig, 4).1);
    assert_eq!(rig.stats().totals.keys_forgotten, 1);
    assert_eq!((enqueue(&mut rig, 2), enqueue(&mut rig, 3)), ((Seq(2), true), (Seq(3), true)));
    assert!(!enqueue(&mut rig, 1).1, "it is new again");
    assert_eq!(rig.stats().totals.keys_forgotten, 2);
    assert_eq!(rig.phase(Seq(1)), Phase::Succeeded, "the status stays");
    rig.enqueue(message()).unwrap();
}

#[test]
fn while_none_is_finished_a_new_key_is_refused_and_what_has_none_is_not() {
    let mut rig = Rig::new(bounded(2));
    enqueue(&mut rig, 1);
    enqueue(&mut rig, 2);
    let refused = rig.enqueue(keyed(3, 1)).unwrap_err();
    let EnqueueError::QueueFull { what, retry_after } = refused else { panic!("{refused:?}") };
    assert!(what.contains("idempotency keys") && retry_after >= s(1));
    assert_eq!(enqueue(&mut rig, 2), (Seq(2), true));
    rig.enqueue(message()).unwrap();
    finish(&mut rig);
    assert!(!enqueue(&mut rig, 3).1);
}

#[test]
fn the_bound_holds_across_a_restart_and_the_same_keys_are_known() {
    let mut rig = Rig::new(bounded(4));
    for key in 1..=12 {
        enqueue(&mut rig, key);
        finish(&mut rig);
        rig.pass(ms(1));
    }
    assert_eq!(rig.stats().totals.keys_forgotten, 8);
    rig.restart();
    for key in 9..=12 {
        assert!(enqueue(&mut rig, key).1, "{key} is among the latest four");
    }
    assert!(!enqueue(&mut rig, 8).1);
}

#[test]
fn a_lowered_bound_is_reached_step_by_step() {
    let mut rig = Rig::new(bounded(100));
    for key in 1..=20 {
        enqueue(&mut rig, key);
        finish(&mut rig);
    }
    rig.declared.queues[0].1.max_keys = 5;
    rig.restart();
    let known = (1..=20).filter(|&key| rig.enqueue(keyed(key, 1)).is_ok_and(|one| one.duplicate)).count();
    assert!(known <= 5, "{known}");
}

#[test]
fn a_bound_that_is_lowered_while_the_queue_runs_is_reached_in_bounded_steps_by_itself() {
    let mut rig = Rig::new(QueueSettings::default());
    let define = |max_keys| Command::Define { queue: name("runs"), settings: Box::new(bounded(max_keys)) };
    rig.ask_now(define(10_000));
    // At once: every input is followed by a look at everything.
    let enqueue_all = |rig: &mut Rig, most| {
        let messages = (1..=most).map(|key| keyed(key, 1)).collect();
        match rig.ask_now(Command::Enqueue { queue: name("runs"), messages }) {
            Reply::Enqueued(Ok(answers)) => answers,
            other => panic!("{other:?}"),
        }
    };
    assert!(enqueue_all(&mut rig, 3000).iter().all(Result::is_ok));
    rig.ask(Command::Purge(name("runs")));
    while rig.pond.next_wakeup().is_some_and(|at| at <= rig.now.mono) {
        rig.input(Input::Tick);
    }
    let waiting: Vec<Seq> =
        (3001..=3010).map(|key| rig.enqueue_to("runs", keyed(key, 1)).unwrap().seq).collect();
    let forgotten = |rig: &mut Rig| match rig.ask_now(Command::Queue(name("runs"))) {
        Reply::Queue(view) => view.unwrap().stats.totals.keys_forgotten,
        other => panic!("{other:?}"),
    };
    rig.ask_now(define(5));
    let mut steps = 0;
    while rig.pond.next_wakeup().is_some_and(|at| at <= rig.now.mono) {
        rig.input(Input::Tick);
        steps += 1;
    }
    assert!((1..9).contains(&steps), "{steps} steps");
    assert_eq!(forgotten(&mut rig), 3000, "all that can be forgotten");
    for seq in waiting {
        rig.cancel(seq).unwrap();
    }
    assert_eq!(forgotten(&mut rig), 3005, "the rest as it ends, down to the bound");
    let again = enqueue_all(&mut rig, 3010);
    let known = again.iter().filter(|answer| answer.as_ref().is_ok_and(|accepted| accepted.duplicate));
    assert!(known.count() <= 5);
}

#[test]
fn the_key_of_a_dead_letter_that_went_back_to_work_is_not_forgotten() {
    let mut rig = Rig::new(bounded(2));
    enqueue(&mut rig, 1);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.replay(ReplayWhich::All).unwrap();
    enqueue(&mut rig, 2);
    assert!(matches!(rig.enqueue(keyed(3, 1)), Err(EnqueueError::QueueFull { .. })));
    assert_eq!(enqueue(&mut rig, 1), (Seq(1), true));
    finish(&mut rig);
    finish(&mut rig);
    assert!(!enqueue(&mut rig, 3).1);
    assert_eq!(
        (enqueue(&mut rig, 2).1, rig.stats().totals.keys_forgotten),
        (true, 1),
        "the first to finish went first"
    );
}

#[test]
fn a_key_that_is_used_again_after_it_was_forgotten_belongs_to_the_later_message() {
    let mut rig = Rig::new(bounded(1));
    enqueue(&mut rig, 1);
    finish(&mut rig);
    enqueue(&mut rig, 2);
    finish(&mut rig);
    let (again, duplicate) = enqueue(&mut rig, 1);
    assert!(!duplicate);
    rig.restart();
    assert_eq!(enqueue(&mut rig, 1), (again, true));
    finish(&mut rig);
    rig.restart();
    assert_eq!(enqueue(&mut rig, 1), (again, true));
}

#[test]
fn a_key_that_is_used_again_is_not_given_back_to_a_dead_letter_by_a_restart() {
    let mut rig = Rig::new(bounded(2));
    enqueue(&mut rig, 1);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    for key in [2, 3] {
        enqueue(&mut rig, key);
        finish(&mut rig);
    }
    let (again, duplicate) = enqueue(&mut rig, 1);
    assert!(!duplicate);
    rig.restart();
    assert_eq!(enqueue(&mut rig, 1), (again, true));
}
