//! Who goes first: classes by their weights or strictly, tenants by turns, retries within their budget.

use crate::rig::{QUEUE, Rig, complete, message, ms, name, release, retry_in, s};
use millpond_core::command::{Command, Declared, NewMessage, Reply};
use millpond_core::identity::Seq;
use millpond_core::message::Criticality;
use millpond_core::name::Label;
use millpond_core::settings::{Priority, QueueSettings, RetrySettings};
use std::collections::BTreeMap;
use std::time::Duration;

fn of_class(criticality: Criticality) -> NewMessage {
    NewMessage { criticality, ..message() }
}

fn of_tenant(tenant: &str) -> NewMessage {
    NewMessage { tenant: Some(Label::new(tenant).unwrap()), ..message() }
}

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

fn with_budget(budget: f64) -> Rig {
    let retry = RetrySettings { budget, max_attempts: 1000, ..RetrySettings::default() };
    Rig::new(QueueSettings { retry, ..QueueSettings::default() })
}

/// The classes of the next so many hand-outs, counted.
fn classes(rig: &mut Rig, count: usize) -> [usize; 4] {
    let mut counts = [0; 4];
    for leased in rig.lease(count) {
        counts[leased.message.criticality.index()] += 1;
    }
    counts
}

fn tenants(rig: &mut Rig, count: usize) -> Vec<String> {
    let tenant = |tenant: Option<Label>| tenant.map_or(String::new(), |tenant| tenant.as_str().to_owned());
    rig.lease(count).into_iter().map(|leased| tenant(leased.message.tenant)).collect()
}

#[test]
fn classes_share_the_hand_outs_by_their_weights() {
    let mut rig = rig();
    for class in Criticality::ALL {
        for _ in 0..100 {
            rig.enqueue(of_class(class)).unwrap();
        }
    }
    assert_eq!(classes(&mut rig, 15), [8, 4, 2, 1]);
    assert_eq!(classes(&mut rig, 150), [80, 40, 20, 10], "in every round");
    assert_eq!(classes(&mut rig, 30)[0], 12, "the last of the first class");
    assert_eq!(classes(&mut rig, 35), [0, 20, 10, 5], "the others share what it leaves");
}

#[test]
fn the_most_critical_goes_first_where_the_shares_are_even() {
    let mut rig = rig();
    for class in Criticality::ALL.into_iter().rev() {
        rig.enqueue(of_class(class)).unwrap();
    }
    let order: Vec<Criticality> = rig.lease(4).into_iter().map(|leased| leased.message.criticality).collect();
    assert_eq!(order, Criticality::ALL);
}

#[test]
fn a_class_saves_up_no_credit_while_it_has_no_work() {
    let mut rig = rig();
    for _ in 0..200 {
        rig.enqueue(of_class(Criticality::Critical)).unwrap();
    }
    rig.lease(100);
    for _ in 0..50 {
        rig.enqueue(of_class(Criticality::Sheddable)).unwrap();
    }
    let counts = classes(&mut rig, 50);
    assert!((10..=11).contains(&counts[3]), "one in five, as if it had always been there: {counts:?}");
}

#[test]
fn a_class_saves_up_no_credit_while_its_retries_are_held_back() {
    let mut rig = with_budget(0.2);
    for _ in 0..300 {
        rig.enqueue(of_class(Criticality::CriticalPlus)).unwrap();
    }
    for leased in rig.lease(300) {
        rig.settle(leased.receipt, retry_in(Duration::ZERO)).unwrap();
    }
    for _ in 0..300 {
        rig.enqueue(of_class(Criticality::Sheddable)).unwrap();
    }
    let counts = classes(&mut rig, 200);
    assert!((30..=60).contains(&counts[0]), "retries keep to their budget: {counts:?}");
    for _ in 0..90 {
        rig.enqueue(of_class(Criticality::CriticalPlus)).unwrap();
    }
    let counts = classes(&mut rig, 90);
    assert!((9..=11).contains(&counts[3]), "one in nine, as if there had been none before: {counts:?}");
}

#[test]
fn retries_that_were_held_back_go_on_with_their_share_and_make_up_for_nothing() {
    let mut rig = with_budget(0.0);
    for _ in 0..60 {
        rig.enqueue(of_class(Criticality::Sheddable)).unwrap();
    }
    for leased in rig.lease(60) {
        rig.settle(leased.receipt, retry_in(Duration::ZERO)).unwrap();
    }
    for _ in 0..300 {
        rig.enqueue(of_class(Criticality::CriticalPlus)).unwrap();
    }
    let counts = classes(&mut rig, 200);
    assert_eq!(counts[3], 10, "until the budget is used up: {counts:?}");
    rig.pass(s(10));
    let counts = classes(&mut rig, 18);
    assert_eq!(counts, [16, 0, 0, 2], "the budget allows ten of them, their share does not");
}

#[test]
fn strictly_a_class_waits_until_no_more_critical_work_is_there() {
    let mut rig = Rig::new(QueueSettings { priority: Priority::Strict, ..QueueSettings::default() });
    for class in Criticality::ALL {
        for _ in 0..10 {
            rig.enqueue(of_class(class)).unwrap();
        }
    }
    assert_eq!(classes(&mut rig, 25), [10, 10, 5, 0]);
    rig.enqueue(of_class(Criticality::CriticalPlus)).unwrap();
    assert_eq!(classes(&mut rig, 2), [1, 0, 1, 0]);
}

#[test]
fn the_priority_can_change_while_work_waits() {
    let mut rig = rig();
    let define = |priority| Command::Define {
        queue: name("extra"),
        settings: Box::new(QueueSettings { priority, prefetch: 100, ..QueueSettings::default() }),
    };
    rig.ask_now(define(Priority::Strict));
    for class in Criticality::ALL {
        for _ in 0..100 {
            rig.enqueue_to("extra", of_class(class)).unwrap();
        }
    }
    let counts = |rig: &mut Rig, max| {
        let wish =
            millpond_core::command::LeaseRequest { queue: name("extra"), ..Rig::wish(max, Duration::ZERO) };
        let Reply::Leased(Ok(leased)) = rig.ask_now(Command::Lease(wish)) else { panic!("leased") };
        let mut counts = [0; 4];
        for one in leased {
            counts[one.message.criticality.index()] += 1;
        }
        counts
    };
    assert_eq!(counts(&mut rig, 30), [30, 0, 0, 0]);
    rig.ask_now(define(Priority::Weighted));
    assert_eq!(counts(&mut rig, 15), [8, 4, 2, 1]);
    rig.ask_now(define(Priority::Strict));
    assert_eq!(counts(&mut rig, 100), [62, 38, 0, 0]);
}

#[test]
fn tenants_take_turns_and_those_without_a_name_are_one() {
    let mut rig = rig();
    for tenant in ["a", "a", "a", "b", "b"] {
        rig.enqueue(of_tenant(tenant)).unwrap();
    }
    rig.fill(2);
    assert_eq!(tenants(&mut rig, 7), ["a", "b", "", "a", "b", "", "a"]);
}

#[test]
fn a_flood_of_one_tenant_lengthens_only_its_own_wait() {
    let mut rig = rig();
    for _ in 0..200 {
        rig.enqueue(of_tenant("flood")).unwrap();
    }
    let quiet = rig.enqueue(of_tenant("quiet")).unwrap().seq;
    let order: Vec<Seq> = rig.lease(3).into_iter().map(|leased| leased.receipt.seq).collect();
    assert!(order.contains(&quiet), "{order:?}");
    // It can come back as often as it likes: it never waits for more than one of the others.
    for _ in 0..20 {
        let quiet = rig.enqueue(of_tenant("quiet")).unwrap().seq;
        let order: Vec<Seq> = rig.lease(2).into_iter().map(|leased| leased.receipt.seq).collect();
        assert!(order.contains(&quiet), "{order:?}");
    }
}

#[test]
fn no_tenant_gains_by_coming_and_going() {
    let mut rig = rig();
    for _ in 0..100 {
        rig.enqueue(of_tenant("steady")).unwrap();
    }
    let mut got = BTreeMap::new();
    for _ in 0..60 {
        rig.enqueue(of_tenant("sly")).unwrap();
        for tenant in tenants(&mut rig, 1) {
            *got.entry(tenant).or_insert(0) += 1;
        }
    }
    assert!(got["sly"] <= 31, "{got:?}");
}

#[test]
fn many_tenants_each_get_their_turn_in_the_order_of_their_coming() {
    let mut rig = rig();
    let all: Vec<String> = (0..100).map(|tenant| format!("tenant {:03}", (tenant * 7) % 100)).collect();
    for _ in 0..3 {
        for tenant in &all {
            rig.enqueue(of_tenant(tenant)).unwrap();
        }
    }
    for round in 0..3 {
        assert_eq!(tenants(&mut rig, 100), all, "round {round}");
    }
}

#[test]
fn classes_and_tenants_are_the_same_after_a_restart() {
    let mut rig = rig();
    for class in [Criticality::Critical, Criticality::Sheddable] {
        for tenant in ["a", "a", "b"] {
            rig.enqueue(NewMessage { criticality: class, ..of_tenant(tenant) }).unwrap();
        }
    }
    rig.restart();
    let order: Vec<_> =
        rig.lease(6).into_iter().map(|one| (one.message.criticality, one.message.tenant)).collect();
    let critical: Vec<_> = order.iter().filter(|one| one.0 == Criticality::Critical).collect();
    let tenant = |tenant| Some(Label::new(tenant).unwrap());
    assert_eq!(
        critical.iter().map(|one| one.1.clone()).collect::<Vec<_>>(),
        [tenant("a"), tenant("b"), tenant("a")]
    );
    assert!(order[..2].iter().any(|one| one.0 == Criticality::Critical));
}

#[test]
fn a_class_is_kept_through_every_way_back() {
    let mut rig = rig();
    let seq = rig.enqueue(of_class(Criticality::Sheddable)).unwrap().seq;
    for outcome in [release(), retry_in(Duration::ZERO), retry_in(s(5))] {
        let receipt = rig.lease_one();
        assert_eq!(receipt.seq, seq);
        rig.settle(receipt, outcome).unwrap();
        rig.pass(s(5));
    }
    rig.fill(1);
    let order: Vec<Criticality> = rig.lease(2).into_iter().map(|leased| leased.message.criticality).collect();
    assert_eq!(order, [Criticality::Critical, Criticality::Sheddable]);
}

/// Fails so many messages once, so that they are retries, due at once.
fn fail(rig: &mut Rig, count: usize) {
    rig.fill(count);
    for leased in rig.lease(count) {
        rig.settle(leased.receipt, retry_in(Duration::ZERO)).unwrap();
    }
}

/// Of the next hand-outs, how many are retries. Each is done at once.
fn retries_of(rig: &mut Rig, count: usize) -> usize {
    let mut retries = 0;
    for _ in 0..count {
        let leased = rig.lease(1).remove(0);
        retries += usize::from(leased.message.attempts > 0);
        rig.settle(leased.receipt, complete()).unwrap();
    }
    retries
}

#[test]
fn while_fresh_work_waits_retries_keep_to_their_budget() {
    let mut rig = with_budget(0.2);
    fail(&mut rig, 60);
    rig.fill(200);
    let burst = retries_of(&mut rig, 20);
    assert!((10..=13).contains(&burst), "a burst of ten, then their share: {burst}");
    let share = retries_of(&mut rig, 100);
    assert!((18..=22).contains(&share), "one in five: {share}");
}

#[test]
fn retries_have_a_floor_of_one_a_second_however_small_their_budget() {
    let mut rig = with_budget(0.0);
    fail(&mut rig, 50);
    rig.fill(200);
    retries_of(&mut rig, 20);
    let mut retries = 0;
    for _ in 0..100 {
        rig.pass(ms(100));
        retries += retries_of(&mut rig, 1);
    }
    assert!((9..=11).contains(&retries), "{retries} in ten seconds");
}

#[test]
fn without_fresh_work_retries_go_out_as_fast_as_they_are_taken() {
    let mut rig = with_budget(0.0);
    fail(&mut rig, 100);
    assert_eq!(retries_of(&mut rig, 80), 80);
    rig.fill(1);
    assert_eq!(retries_of(&mut rig, 1), 0, "no token is left");
    assert_eq!(retries_of(&mut rig, 20), 20);
}

#[test]
fn a_budget_of_one_is_no_bound_and_retries_come_in_their_places() {
    let mut rig = with_budget(1.0);
    fail(&mut rig, 100);
    rig.fill(100);
    assert_eq!(retries_of(&mut rig, 100), 100);
    assert_eq!(retries_of(&mut rig, 100), 0);
}

#[test]
fn a_tenant_whose_work_fails_does_not_take_the_turns_of_the_others() {
    let mut rig = with_budget(1.0);
    for _ in 0..100 {
        rig.enqueue(of_tenant("failing")).unwrap();
    }
    for leased in rig.lease(100) {
        rig.settle(leased.receipt, retry_in(Duration::ZERO)).unwrap();
    }
    for _ in 0..100 {
        rig.enqueue(of_tenant("well")).unwrap();
    }
    let order = tenants(&mut rig, 100);
    assert_eq!(order.iter().filter(|tenant| *tenant == "well").count(), 50, "{order:?}");
}

#[test]
fn queues_of_one_target_take_turns_whatever_each_holds() {
    let settings = || QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let queues = vec![(name(QUEUE), settings()), (name("second"), settings()), (name("third"), settings())];
    let target = millpond_core::settings::TargetSettings { concurrency: 1, ..crate::rig::target(1) };
    let mut rig = Rig::with(Declared { targets: vec![(name("till"), target)], queues });
    for queue in [QUEUE, "third"] {
        for _ in 0..4 {
            rig.enqueue_to(queue, message()).unwrap();
        }
    }
    let mut order = Vec::new();
    while let Some(call) = rig.take_calls().pop() {
        order.push(call.queue.as_str().to_owned());
        rig.end_call(call.receipt, crate::rig::succeeded());
    }
    assert_eq!(order, [QUEUE, "third"].repeat(4));
}
