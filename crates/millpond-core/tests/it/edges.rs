//! Where two rules meet: a hold and a restart, a wait and the end of a retention.

use crate::rig::{QUEUE, Rig, complete, dead, failed, message, ms, name, s, succeeded, target};
use millpond_core::command::{Command, Input, Reply, RequestId, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::settings::QueueSettings;
use std::time::Duration;

#[test]
fn a_call_that_timed_out_still_occupies_its_target_across_a_restart() {
    let mut rig = Rig::pushing(target(1), QueueSettings::default());
    rig.fill(2);
    let call = rig.take_calls().remove(0);
    rig.end_call(call.receipt, failed(true));
    rig.pass(s(2));
    rig.restart();
    assert!(rig.take_calls().is_empty(), "the backend may still work on the first call");
    assert_eq!(rig.target_stats().inflight, 1);
    rig.pass(s(3) - ms(1));
    assert!(rig.take_calls().is_empty());
    rig.pass(ms(1));
    let calls = rig.take_calls();
    assert_eq!(calls.len(), 1);
    rig.end_call(calls[0].receipt, succeeded());
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn a_call_that_was_never_reported_still_occupies_its_target_across_a_restart() {
    let mut rig = Rig::pushing(target(1), QueueSettings::default());
    rig.fill(2);
    rig.take_calls();
    rig.pass(s(7) + ms(1));
    assert!(rig.take_calls().is_empty(), "its place is held");
    rig.restart();
    assert!(rig.take_calls().is_empty());
    rig.pass(s(5));
    assert_eq!(rig.take_calls().len(), 1);
}

fn wait_for_the_end(rig: &mut Rig, seq: Seq) -> RequestId {
    rig.ask(Command::Status { seq, wait: Some(s(30)) })
}

fn ended_as(rig: &mut Rig, waiting: RequestId) -> Option<Phase> {
    match rig.answer(waiting)? {
        Reply::Status(Ok(status)) => Some(status.message.phase),
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_waits_hears_of_an_end_that_is_not_remembered() {
    let settings = QueueSettings { result_retention: Duration::ZERO, ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    let seq = rig.fill(1)[0];
    let waiting = wait_for_the_end(&mut rig, seq);
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    rig.ask(Command::Settle(vec![Settlement { receipt, outcome: complete() }]));
    rig.pass(ms(1));
    assert_eq!(ended_as(&mut rig, waiting), None, "not before it is durable");
    rig.make_durable();
    assert_eq!(ended_as(&mut rig, waiting), Some(Phase::Succeeded));
}

#[test]
fn whoever_waits_hears_of_a_death_whose_letter_is_deleted_at_once() {
    let mut rig = Rig::new(QueueSettings::default());
    let seq = rig.fill(1)[0];
    let waiting = wait_for_the_end(&mut rig, seq);
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    rig.ask(Command::Settle(vec![Settlement { receipt, outcome: dead() }]));
    rig.ask(Command::DeleteDead { queue: name(QUEUE), seq });
    assert_eq!(ended_as(&mut rig, waiting), None, "not before it is durable");
    rig.make_durable();
    assert_eq!(ended_as(&mut rig, waiting), Some(Phase::Dead));
}

fn define(rig: &mut Rig, queue: &str, settings: QueueSettings) {
    let reply = rig.ask_now(Command::Define { queue: name(queue), settings: Box::new(settings) });
    assert!(matches!(reply, Reply::Defined(Ok(true))), "{reply:?}");
}

fn delete(rig: &mut Rig, queue: &str) {
    let reply = rig.ask_now(Command::Delete(name(queue)));
    assert!(matches!(reply, Reply::Deleted(Ok(()))), "{reply:?}");
}

#[test]
fn queues_that_come_and_go_leave_nothing_behind_to_write_again() {
    let mut rig = Rig::new(QueueSettings::default());
    for round in 0..100 {
        let queue = format!("job-{round}");
        define(&mut rig, &queue, QueueSettings::default());
        delete(&mut rig, &queue);
    }
    let before = rig.log.len();
    rig.input(Input::CopyBasics);
    assert!(rig.log.len() - before <= 3, "{} records for two queues", rig.log.len() - before);
}

#[test]
fn a_message_of_a_deleted_queue_does_not_come_back_in_another_one_after_a_restart() {
    let mut rig = Rig::new(QueueSettings::default());
    define(&mut rig, "first", QueueSettings { result_retention: s(10), ..QueueSettings::default() });
    let seq = rig.enqueue_to("first", message()).unwrap().seq;
    rig.cancel(seq).unwrap();
    delete(&mut rig, "first");
    define(&mut rig, "meanwhile", QueueSettings::default());
    assert_eq!(rig.status(seq).unwrap().queue, name("first"), "its status lives on for its time");
    rig.pass(s(10));
    define(&mut rig, "second", QueueSettings { result_retention: s(1000), ..QueueSettings::default() });
    let other = rig.enqueue_to("second", message()).unwrap().seq;
    rig.restart();
    assert!(rig.status(seq).is_err());
    assert_eq!(rig.status(other).unwrap().queue, name("second"));
    assert_eq!(rig.enqueue_to("meanwhile", message()).map(|_| ()), Ok(()));
}
