//! Orders in which the newest may go first.

use crate::rig::{QUEUE, Rig, complete, message, ms, name, retry_in, s};
use millpond_core::command::{Command, LeaseRequest, NewMessage, Reply};
use millpond_core::identity::Seq;
use millpond_core::name::Label;
use millpond_core::settings::{Order, QueueSettings};
use std::time::Duration;

fn ordered(order: Order) -> Rig {
    Rig::new(QueueSettings { order, fresh_within: s(10), ..QueueSettings::default() })
}

fn leased(rig: &mut Rig, max: usize) -> Vec<Seq> {
    rig.lease(max).iter().map(|leased| leased.receipt.seq).collect()
}

#[test]
fn last_in_first_out() {
    let mut rig = ordered(Order::Lifo);
    let seqs = rig.fill(3);
    assert_eq!(leased(&mut rig, 2), [seqs[2], seqs[1]]);
    let newest = rig.fill(1)[0];
    assert_eq!(leased(&mut rig, 2), [newest, seqs[0]]);
}

#[test]
fn last_in_first_out_still_takes_turns_among_tenants() {
    let mut rig = ordered(Order::Lifo);
    let of = |tenant| NewMessage { tenant: Some(Label::new(tenant).unwrap()), ..message() };
    let seqs = ["a", "a", "b"].map(|tenant| rig.enqueue(of(tenant)).unwrap().seq);
    assert_eq!(leased(&mut rig, 3), [seqs[1], seqs[2], seqs[0]]);
}

#[test]
fn retries_are_first_in_first_out_in_every_order() {
    for order in [Order::Fifo, Order::Lifo, Order::Adaptive] {
        let mut rig = ordered(order);
        let seqs = rig.fill(3);
        for one in rig.lease(3) {
            rig.settle(one.receipt, retry_in(s(20))).unwrap();
        }
        rig.pass(s(20));
        rig.fill(2);
        assert_eq!(leased(&mut rig, 3), seqs, "{order:?}");
    }
}

#[test]
fn while_all_is_fresh_an_adaptive_order_is_first_in_first_out() {
    let mut rig = ordered(Order::Adaptive);
    let seqs = rig.fill(5);
    rig.pass(s(10) - ms(1));
    assert_eq!(leased(&mut rig, 2), seqs[..2]);
    rig.pass(ms(1));
    assert_eq!(leased(&mut rig, 2), [seqs[4], seqs[3]], "now the oldest is not fresh any more");
}

#[test]
fn an_adaptive_order_works_the_old_ones_off_at_a_share_of_a_fifth() {
    let mut rig = ordered(Order::Adaptive);
    let old = rig.fill(40);
    rig.pass(s(60));
    let fresh = rig.fill(160);
    let order = leased(&mut rig, 100);
    let oldest: Vec<Seq> = order.iter().copied().filter(|seq| old.contains(seq)).collect();
    assert_eq!(oldest, old[..20], "one in five, the oldest first");
    let newest: Vec<Seq> = order.iter().copied().filter(|seq| fresh.contains(seq)).collect();
    assert!(newest.iter().eq(fresh.iter().rev().take(80)), "the others from the newest on");
}

#[test]
fn an_adaptive_order_returns_to_the_oldest_first_once_the_old_ones_are_done() {
    let mut rig = ordered(Order::Adaptive);
    rig.fill(2);
    rig.pass(s(60));
    let fresh = rig.fill(20);
    let mut order = Vec::new();
    while rig.stats().ready > 0 {
        order.extend(leased(&mut rig, 1));
    }
    let after = order.iter().position(|seq| *seq == Seq(2)).unwrap();
    let rest: Vec<Seq> = order[after + 1..].to_vec();
    let sorted = {
        let mut sorted = rest.clone();
        sorted.sort_unstable();
        sorted
    };
    assert!(!rest.is_empty() && rest == sorted, "{order:?}");
    assert!(fresh.iter().all(|seq| order.contains(seq)));
}

#[test]
fn an_adaptive_order_promises_while_it_is_first_in_first_out_and_not_after() {
    let mut rig = Rig::new(QueueSettings {
        order: Order::Adaptive,
        fresh_within: s(10),
        concurrency: Some(1),
        expected_service_time: Some(ms(200)),
        max_wait: Some(s(4)),
        ..QueueSettings::default()
    });
    let last = (0..21).map(|_| rig.enqueue(message()).unwrap()).last().unwrap();
    assert_eq!((last.position, last.promise.unwrap().p50), (None, s(4)));
    assert!(rig.enqueue(message()).is_err());
    rig.pass(s(10));
    assert!(rig.status(last.seq).unwrap().promise.is_none());
    assert!(rig.enqueue(message()).unwrap().promise.is_none(), "it would start next");
}

#[test]
fn the_order_can_change_while_work_waits_and_nothing_is_lost() {
    let mut rig = Rig::new(QueueSettings::default());
    let define = |rig: &mut Rig, order| {
        let settings = Box::new(QueueSettings { order, ..QueueSettings::default() });
        let reply = rig.ask_now(Command::Define { queue: name("extra"), settings });
        assert!(matches!(reply, Reply::Defined(Ok(_))));
    };
    let take = |rig: &mut Rig| {
        let wish = LeaseRequest { queue: name("extra"), ..Rig::wish(1, Duration::ZERO) };
        let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
        rig.settle(leased[0].receipt, complete()).unwrap();
        leased[0].receipt.seq
    };
    define(&mut rig, Order::Fifo);
    let seqs: Vec<Seq> = (0..6).map(|_| rig.enqueue_to("extra", message()).unwrap().seq).collect();
    for (order, expected) in [
        (Order::Lifo, seqs[5]),
        (Order::Fifo, seqs[0]),
        (Order::Adaptive, seqs[1]),
        (Order::Lifo, seqs[4]),
        (Order::Fifo, seqs[2]),
        (Order::Fifo, seqs[3]),
    ] {
        define(&mut rig, order);
        assert_eq!(take(&mut rig), expected, "{order:?}");
    }
}

#[test]
fn the_order_is_the_same_after_a_restart() {
    let mut rig = ordered(Order::Lifo);
    let seqs = rig.fill(5);
    rig.restart();
    assert_eq!(leased(&mut rig, 5), seqs.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(rig.lease(1).len(), 0, "{QUEUE} is empty");
}
