//! Groups: one at a time, in order, through everything that can happen to a message.

use crate::rig::{QUEUE, Rig, complete, dead, message, ms, name, release, retry, retry_in, s};
use millpond_core::command::{
    Command, Declared, DefineError, EnqueueError, Input, LeaseRequest, NewMessage, Reply, Settlement,
};
use millpond_core::identity::Seq;
use millpond_core::message::{Criticality, Phase};
use millpond_core::name::Label;
use millpond_core::replay::{ReplayWhich, ReplayWish};
use millpond_core::settings::{Order, QueueSettings, RetrySettings};
use std::time::Duration;

fn of(group: &str) -> NewMessage {
    NewMessage { group: Some(Label::new(group).unwrap()), ..message() }
}

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

/// Enqueues messages of these groups; their numbers.
fn fill(rig: &mut Rig, groups: &[&str]) -> Vec<Seq> {
    groups.iter().map(|group| rig.enqueue(of(group)).unwrap().seq).collect()
}

/// Leases all that can be leased.
fn leased(rig: &mut Rig) -> Vec<Seq> {
    rig.lease(100).iter().map(|leased| leased.receipt.seq).collect()
}

#[test]
fn only_the_first_of_each_group_goes_out_and_the_next_one_when_it_is_done() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a", "b", "a"]);
    let receipts: Vec<_> = rig.lease(100).iter().map(|leased| leased.receipt).collect();
    assert_eq!(receipts.iter().map(|receipt| receipt.seq).collect::<Vec<_>>(), [seqs[0], seqs[2]]);
    assert!(leased(&mut rig).is_empty());
    assert_eq!(rig.stats().ready, 2, "they are ready all the same");
    rig.settle(receipts[0], complete()).unwrap();
    assert_eq!(leased(&mut rig), [seqs[1]]);
}

#[test]
fn a_message_that_comes_while_its_group_is_at_work_waits() {
    let mut rig = rig();
    let first = fill(&mut rig, &["a"])[0];
    let receipt = rig.lease_one();
    let second = fill(&mut rig, &["a"])[0];
    assert!(leased(&mut rig).is_empty());
    rig.extend(receipt, s(40)).unwrap();
    assert!(leased(&mut rig).is_empty());
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(leased(&mut rig), [second]);
    assert_eq!(rig.phase(first), Phase::Succeeded);
}

#[test]
fn the_first_of_a_group_blocks_it_while_delayed_in_backoff_or_not_durable() {
    let mut rig = rig();
    let delayed = rig.enqueue(NewMessage { delay: s(10), ..of("a") }).unwrap().seq;
    let second = fill(&mut rig, &["a"])[0];
    assert!(leased(&mut rig).is_empty(), "delayed, it blocks");
    rig.pass(s(10));
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, delayed);
    rig.settle(receipt, retry_in(s(20))).unwrap();
    assert!(leased(&mut rig).is_empty(), "in backoff, it blocks");
    rig.pass(s(20));
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, delayed);
    rig.hold_durability = true;
    rig.ask(Command::Settle(vec![Settlement { receipt, outcome: release() }]));
    assert!(leased(&mut rig).is_empty(), "given back and not durable, it blocks");
    rig.hold_durability = false;
    rig.make_durable();
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, delayed);
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(leased(&mut rig), [second]);
}

#[test]
fn a_group_goes_on_whichever_way_its_first_one_ends() {
    let retry_once = RetrySettings { max_attempts: 1, ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry: retry_once, ..QueueSettings::default() });
    let first = rig.enqueue(NewMessage { ttl: Some(s(5)), ..of("a") }).unwrap().seq;
    let seqs = fill(&mut rig, &["a"; 6]);
    rig.pass(s(5));
    assert_eq!(rig.phase(first), Phase::Dead, "expired");
    for (seq, outcome) in seqs.iter().zip([complete(), dead(), retry()]) {
        let receipt = rig.lease_one();
        assert_eq!(receipt.seq, *seq);
        rig.settle(receipt, outcome).unwrap();
    }
    rig.cancel(seqs[3]).unwrap();
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, seqs[4]);
    rig.pass(s(60));
    assert_eq!(rig.phase(seqs[4]), Phase::Dead, "its lease ran out");
    assert_eq!(rig.lease_one().seq, seqs[5]);
}

#[test]
fn a_worker_that_waits_gets_the_next_one_of_a_group_at_once() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a"]);
    let receipt = rig.lease_one();
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    assert!(rig.answer(waiting).is_none());
    rig.settle(receipt, complete()).unwrap();
    assert!(
        matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased[0].receipt.seq == seqs[1])
    );
}

#[test]
fn one_withdrawn_in_the_middle_leaves_the_order_of_the_others() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a", "a"]);
    rig.cancel(seqs[1]).unwrap();
    let receipt = rig.lease_one();
    assert!(leased(&mut rig).is_empty());
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(leased(&mut rig), [seqs[2]]);
}

#[test]
fn a_replayed_message_comes_behind_what_its_group_has_now() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a", "a"]);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.replay(ReplayWhich::All).unwrap();
    for expected in [seqs[1], seqs[2], seqs[0]] {
        let receipt = rig.lease_one();
        assert_eq!(receipt.seq, expected);
        assert!(leased(&mut rig).is_empty());
        rig.settle(receipt, complete()).unwrap();
    }
}

#[test]
fn a_replayed_message_of_a_group_that_is_done_with_goes_out_again() {
    let mut rig = rig();
    let seq = fill(&mut rig, &["a"])[0];
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    rig.replay(ReplayWhich::These(vec![seq])).unwrap();
    let behind = fill(&mut rig, &["a"])[0];
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, seq);
    rig.restart();
    assert!(leased(&mut rig).is_empty(), "after the restart it is still leased");
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(leased(&mut rig), [behind]);
}

#[test]
fn groups_keep_their_order_across_a_restart() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a", "a", "b"]);
    let first = rig.lease_one();
    rig.settle(first, dead()).unwrap();
    rig.replay(ReplayWhich::All).unwrap();
    let second = rig.lease_one();
    rig.settle(second, retry_in(s(30))).unwrap();
    rig.restart();
    let other = rig.lease_one();
    assert_eq!(other.seq, seqs[3], "the first of a is in backoff");
    rig.settle(other, complete()).unwrap();
    rig.pass(s(30));
    for expected in [seqs[1], seqs[2], seqs[0]] {
        let receipt = rig.lease_one();
        assert_eq!(receipt.seq, expected);
        rig.settle(receipt, complete()).unwrap();
    }
}

#[test]
fn a_group_has_the_class_of_its_first_one() {
    let mut rig = rig();
    let slow = rig.enqueue(NewMessage { criticality: Criticality::Sheddable, ..of("a") }).unwrap().seq;
    let urgent = rig.enqueue(NewMessage { criticality: Criticality::CriticalPlus, ..of("a") }).unwrap().seq;
    let plain = rig.enqueue(message()).unwrap().seq;
    assert_eq!(rig.lease_one().seq, plain);
    let receipt = rig.lease_one();
    assert_eq!(receipt.seq, slow);
    let plain = rig.enqueue(message()).unwrap().seq;
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(leased(&mut rig), [urgent, plain]);
}

#[test]
fn an_order_that_does_not_keep_groups_refuses_them_and_says_why() {
    for order in [Order::Lifo, Order::Adaptive] {
        let mut rig = Rig::new(QueueSettings { order, ..QueueSettings::default() });
        let error = rig.enqueue(of("a")).unwrap_err();
        assert_eq!(error, EnqueueError::GroupsNotKept { order });
        assert!(error.to_string().contains(order.as_str()), "{error}");
        assert_eq!(rig.stats().totals.refused(), 0);
    }
}

#[test]
fn the_order_of_a_queue_with_unfinished_groups_cannot_become_one_that_does_not_keep_them() {
    let mut rig = rig();
    let define = |order| Command::Define {
        queue: name("extra"),
        settings: Box::new(QueueSettings { order, ..QueueSettings::default() }),
    };
    rig.ask_now(define(Order::Fifo));
    let seq = rig.enqueue_to("extra", of("a")).unwrap().seq;
    let Reply::Defined(Err(error)) = rig.ask_now(define(Order::Lifo)) else { panic!("refused") };
    assert_eq!(error, DefineError::GroupsUnfinished { order: Order::Lifo, unfinished: 1 });
    rig.cancel(seq).unwrap();
    assert!(matches!(rig.ask_now(define(Order::Lifo)), Reply::Defined(Ok(false))));
}

#[test]
fn groups_are_not_promised_again_while_messages_of_groups_go_out_in_any_order() {
    let mut rig = rig();
    let define = |order| Command::Define {
        queue: name("extra"),
        settings: Box::new(QueueSettings { order, ..QueueSettings::default() }),
    };
    rig.ask_now(define(Order::Fifo));
    for _ in 0..2 {
        rig.enqueue_to("extra", of("a")).unwrap();
        let wish = LeaseRequest { queue: name("extra"), ..Rig::wish(1, Duration::ZERO) };
        let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
        rig.settle(leased[0].receipt, dead()).unwrap();
    }
    rig.ask_now(define(Order::Lifo));
    let wish = ReplayWish::plain(ReplayWhich::All);
    rig.ask_now(Command::Replay { queue: name("extra"), wish, dry_run: false });
    rig.pass(Duration::ZERO);
    for released in [2, 1] {
        let Reply::Defined(Err(error)) = rig.ask_now(define(Order::Fifo)) else { panic!("refused") };
        assert_eq!(error, DefineError::GroupsReleased { order: Order::Fifo, released });
        assert!(matches!(rig.ask_now(define(Order::Lifo)), Reply::Defined(Ok(false))));
        let wish = LeaseRequest { queue: name("extra"), ..Rig::wish(1, Duration::ZERO) };
        let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
        rig.settle(leased[0].receipt, complete()).unwrap();
    }
    assert!(matches!(rig.ask_now(define(Order::Fifo)), Reply::Defined(Ok(false))));
}

#[test]
fn messages_whose_queue_was_declared_anew_without_groups_are_released_from_them() {
    let mut rig = rig();
    let seqs = fill(&mut rig, &["a", "a", "a"]);
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    let lifo = QueueSettings { order: Order::Lifo, ..QueueSettings::default() };
    rig.declared = Declared { queues: vec![(name(QUEUE), lifo)], ..Declared::default() };
    rig.restart();
    rig.replay(ReplayWhich::All).unwrap();
    let held = rig.lease(9);
    assert_eq!(held.iter().map(|one| one.receipt.seq).collect::<Vec<_>>(), [seqs[0], seqs[2], seqs[1]]);
    // Declared as before, with all of the group at work side by side: nothing breaks.
    let fifo = QueueSettings::default();
    rig.declared = Declared { queues: vec![(name(QUEUE), fifo)], ..Declared::default() };
    rig.restart();
    for one in &held {
        rig.extend(one.receipt, s(30)).unwrap();
    }
    let behind = fill(&mut rig, &["a"])[0];
    assert!(leased(&mut rig).is_empty());
    rig.pass(s(60));
    for expected in [seqs[1], seqs[2], seqs[0], behind] {
        let receipt = rig.lease_one();
        assert_eq!(receipt.seq, expected);
        rig.settle(receipt, complete()).unwrap();
    }
}

#[test]
fn many_groups_go_on_side_by_side() {
    let mut rig = rig();
    let groups: Vec<String> = (0..50).map(|group| format!("group {group}")).collect();
    for _ in 0..4 {
        fill(&mut rig, &groups.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let mut rounds = 0;
    while rig.stats().ready > 0 {
        let held = rig.lease(1000);
        assert_eq!(held.len(), 50);
        for leased in held {
            rig.settle(leased.receipt, complete()).unwrap();
        }
        rounds += 1;
    }
    assert_eq!(rounds, 4);
}

#[test]
fn a_group_that_waits_for_its_first_one_does_not_count_as_work_that_waits_for_workers() {
    let mut rig = rig();
    fill(&mut rig, &["a"; 30]);
    for _ in 0..20 {
        let receipt = rig.lease_one();
        rig.pass(ms(200));
        rig.settle(receipt, complete()).unwrap();
    }
    let capacity = rig.stats().capacity_per_second;
    assert!((capacity - 5.0).abs() < 0.1, "{capacity}");
    rig.input(Input::Tick);
    assert_eq!(rig.stats().oldest_ready_age, ms(4000), "all of a group age, its first one or not");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.stats().oldest_ready_age, ms(5000));
}

#[test]
fn one_that_is_delayed_behind_its_leased_head_waits_for_both_after_a_restart() {
    let mut rig = rig();
    let head = fill(&mut rig, &["a"])[0];
    let receipt = rig.lease_one();
    let behind = rig.enqueue(NewMessage { delay: s(10), ..of("a") }).unwrap().seq;
    rig.restart();
    rig.pass(s(10));
    assert!(rig.lease(1).is_empty());
    rig.settle(receipt, complete()).unwrap();
    assert_eq!((rig.phase(head), rig.lease_one().seq), (Phase::Succeeded, behind));
}
