//! Prefetch: how much one consumer holds at once, and that nobody is held up by one who holds enough.

use crate::rig::{Rig, complete, message, message_of, ms, name, retry_in, s};
use millpond_core::command::{Command, Input, LeaseRequest, Leased, Reply, RequestId};
use millpond_core::name::Label;
use millpond_core::settings::QueueSettings;
use std::time::Duration;

fn rig(prefetch: u32) -> Rig {
    Rig::new(QueueSettings { prefetch, ..QueueSettings::default() })
}

fn wish(consumer: &str, max: usize, wait: Duration) -> LeaseRequest {
    LeaseRequest { consumer: Some(Label::new(consumer).unwrap()), ..Rig::wish(max, wait) }
}

fn lease(rig: &mut Rig, consumer: &str, max: usize) -> Vec<Leased> {
    match rig.ask_now(Command::Lease(wish(consumer, max, Duration::ZERO))) {
        Reply::Leased(leased) => leased.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn wait(rig: &mut Rig, consumer: &str, max: usize) -> RequestId {
    rig.ask(Command::Lease(wish(consumer, max, s(60))))
}

fn served(rig: &mut Rig, request: RequestId) -> Option<usize> {
    rig.answer(request).map(|reply| match reply {
        Reply::Leased(Ok(leased)) => leased.len(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_consumer_holds_at_most_its_prefetch_over_all_its_requests() {
    let mut rig = rig(3);
    rig.fill(10);
    let first = lease(&mut rig, "a", 2);
    assert_eq!(first.len(), 2);
    assert_eq!(lease(&mut rig, "a", 5).len(), 1);
    assert!(lease(&mut rig, "a", 1).is_empty());
    assert_eq!(lease(&mut rig, "b", 5).len(), 3, "another one has its own");
    rig.settle(first[0].receipt, complete()).unwrap();
    assert_eq!(lease(&mut rig, "a", 5).len(), 1);
}

#[test]
fn whoever_does_not_say_who_it_is_gets_so_many_at_once_and_more_with_the_next_request() {
    let mut rig = rig(3);
    rig.fill(10);
    assert_eq!(rig.lease(100).len(), 3);
    assert_eq!(rig.lease(100).len(), 3);
}

#[test]
fn a_waiter_at_its_cap_holds_up_nobody_and_is_served_as_its_leases_end() {
    let mut rig = rig(2);
    rig.fill(2);
    let held = lease(&mut rig, "a", 2);
    let first = wait(&mut rig, "a", 5);
    let second = wait(&mut rig, "b", 5);
    rig.fill(1);
    assert_eq!(
        (served(&mut rig, first), served(&mut rig, second)),
        (None, Some(1)),
        "the later one is free to take it"
    );
    rig.fill(3);
    assert_eq!(served(&mut rig, first), None);
    rig.settle(held[0].receipt, complete()).unwrap();
    assert_eq!(served(&mut rig, first), Some(1), "one place, one message");
}

#[test]
fn every_way_in_which_a_lease_ends_makes_room() {
    let mut rig = rig(1);
    rig.fill(1);
    lease(&mut rig, "a", 1);
    rig.fill(1);
    let waiting = wait(&mut rig, "a", 1);
    rig.pass(s(30));
    assert_eq!(served(&mut rig, waiting), Some(1), "the lease ran out");
    let waiting = wait(&mut rig, "a", 1);
    rig.pass(s(30));
    assert_eq!(served(&mut rig, waiting), Some(1));
    rig.pass(s(30));
    let held = lease(&mut rig, "a", 1)[0].receipt;
    let waiting = wait(&mut rig, "a", 1);
    rig.settle(held, retry_in(s(1000))).unwrap();
    assert_eq!(served(&mut rig, waiting), Some(1), "it was given back");
}

#[test]
fn an_answer_that_did_not_arrive_makes_room() {
    let mut rig = rig(1);
    rig.fill(1);
    let receipt = lease(&mut rig, "a", 1)[0].receipt;
    assert!(lease(&mut rig, "a", 1).is_empty());
    rig.input(Input::Undelivered(receipt));
    assert_eq!(lease(&mut rig, "a", 1).len(), 1);
}

#[test]
fn an_extended_lease_is_still_one() {
    let mut rig = rig(2);
    rig.fill(5);
    let receipt = lease(&mut rig, "a", 1)[0].receipt;
    rig.extend(receipt, s(100)).unwrap();
    assert_eq!(lease(&mut rig, "a", 5).len(), 1);
}

#[test]
fn what_a_consumer_holds_is_known_after_a_restart() {
    let mut rig = rig(3);
    rig.fill(10);
    let held = lease(&mut rig, "a", 3);
    rig.input(Input::CopyBasics);
    rig.input(Input::Copy(vec![(held[0].receipt.seq, None)]));
    rig.restart();
    assert!(lease(&mut rig, "a", 5).is_empty());
    rig.settle(held[0].receipt, complete()).unwrap();
    assert_eq!(lease(&mut rig, "a", 5).len(), 1);
    rig.restart();
    rig.pass(s(30));
    assert_eq!(lease(&mut rig, "a", 5).len(), 3);
}

#[test]
fn a_changed_prefetch_counts_at_once() {
    let mut rig = rig(1);
    let define = |prefetch| Command::Define {
        queue: name("other"),
        settings: Box::new(QueueSettings { prefetch, ..QueueSettings::default() }),
    };
    rig.ask_now(define(1));
    for _ in 0..6 {
        rig.enqueue_to("other", message()).unwrap();
    }
    let wish = |wait| LeaseRequest { queue: name("other"), ..wish("a", 10, wait) };
    let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish(Duration::ZERO))) else {
        panic!("leased")
    };
    assert_eq!(leased.len(), 1);
    let waiting = rig.ask(Command::Lease(wish(s(60))));
    assert_eq!(served(&mut rig, waiting), None);
    rig.ask_now(define(4));
    assert_eq!(served(&mut rig, waiting), Some(3));
    rig.ask_now(define(1));
    let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish(Duration::ZERO))) else {
        panic!("leased")
    };
    assert!(leased.is_empty());
}

#[test]
fn waiters_of_one_consumer_are_served_in_their_order_and_those_who_leave_are_forgotten() {
    let mut rig = rig(1);
    rig.fill(1);
    let held = lease(&mut rig, "a", 1)[0].receipt;
    let requests: Vec<RequestId> = (0..4).map(|_| wait(&mut rig, "a", 1)).collect();
    rig.input(Input::Abandon(requests[0]));
    rig.fill(4);
    rig.settle(held, complete()).unwrap();
    assert_eq!((served(&mut rig, requests[1]), served(&mut rig, requests[2])), (Some(1), None));
    rig.pass(s(30) - ms(1));
    assert_eq!(served(&mut rig, requests[2]), None);
    rig.pass(ms(1));
    assert_eq!((served(&mut rig, requests[2]), served(&mut rig, requests[3])), (Some(1), None));
    rig.input(Input::Drain);
    assert_eq!(served(&mut rig, requests[3]), Some(0));
}

#[test]
fn whoever_holds_a_lease_or_waits_for_one_counts_as_a_worker() {
    let mut rig = rig(1);
    rig.fill(1);
    assert_eq!(lease(&mut rig, "a", 1).len(), 1);
    assert_eq!(rig.stats().workers, 1);
    for consumer in ["a", "a", "b"] {
        wait(&mut rig, consumer, 1);
    }
    assert_eq!(rig.stats().workers, 4, "at its cap or not");
}

#[test]
fn one_hand_out_ends_with_the_message_that_reaches_sixteen_mebibytes() {
    let mut rig = rig(1000);
    for _ in 0..20 {
        rig.enqueue(message_of(1 << 20)).unwrap();
    }
    assert_eq!([lease(&mut rig, "a", 100).len(), lease(&mut rig, "a", 100).len()], [16, 4]);
    rig.enqueue(message_of(17 << 20)).unwrap();
    assert_eq!(lease(&mut rig, "a", 100).len(), 1, "a single larger one goes out all the same");
}
