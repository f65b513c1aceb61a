//! What went wrong with order, priority and fairness in other systems, and must come out right here.
//!
//! Owns the reported kinds: a flood that starves others, and ways to get at a group behind its head's back.

use crate::rig::{QUEUE, Rig, complete, message, name, s};
use millpond_core::command::{Command, NewMessage, Reply, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::Criticality;
use millpond_core::name::Label;
use millpond_core::settings::{Priority, QueueSettings};

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn of_tenant(tenant: &str) -> NewMessage {
    NewMessage { tenant: Some(label(tenant)), ..message() }
}

fn of_class(criticality: Criticality) -> NewMessage {
    NewMessage { criticality, ..message() }
}

fn in_group(group: &str) -> NewMessage {
    NewMessage { group: Some(label(group)), ..message() }
}

fn settings() -> QueueSettings {
    QueueSettings { prefetch: 1000, ..QueueSettings::default() }
}

fn enqueue(rig: &mut Rig, count: usize, new: &NewMessage) -> Vec<Seq> {
    let messages = vec![new.clone(); count];
    match rig.ask_now(Command::Enqueue { queue: name(QUEUE), messages }) {
        Reply::Enqueued(answers) => answers.unwrap().into_iter().map(|answer| answer.unwrap().seq).collect(),
        other => panic!("{other:?}"),
    }
}

/// Which hand-out is that of `wanted`, from 1, where everything that waits is handed out.
fn turn_of(rig: &mut Rig, wanted: Seq) -> usize {
    let turn = rig.lease(2000).iter().position(|leased| leased.receipt.seq == wanted);
    turn.expect("it is handed out at the latest when nothing else is left") + 1
}

#[test]
fn one_message_waits_for_two_of_a_thousand_of_another_tenant() {
    let mut rig = Rig::new(settings());
    enqueue(&mut rig, 1000, &of_tenant("flood"));
    let only = rig.enqueue(of_tenant("trickle")).unwrap().seq;
    assert!(turn_of(&mut rig, only) <= 2);
}

#[test]
fn a_flood_that_goes_on_lengthens_only_its_own_wait() {
    let mut rig = Rig::new(settings());
    enqueue(&mut rig, 100, &of_tenant("flood"));
    for _ in 0..20 {
        let only = rig.enqueue(of_tenant("trickle")).unwrap().seq;
        enqueue(&mut rig, 5, &of_tenant("flood"));
        let next = rig.lease(2);
        assert!(next.iter().any(|leased| leased.receipt.seq == only), "{next:?}");
        for leased in next {
            rig.settle(leased.receipt, complete()).unwrap();
        }
    }
}

#[test]
fn a_thousand_lower_messages_delay_a_critical_one_by_their_share_at_most() {
    for priority in [Priority::Weighted, Priority::Strict] {
        let mut rig = Rig::new(QueueSettings { priority, ..settings() });
        enqueue(&mut rig, 1000, &of_class(Criticality::Sheddable));
        let only = rig.enqueue(of_class(Criticality::CriticalPlus)).unwrap().seq;
        let most = if priority == Priority::Strict { 1 } else { 2 };
        assert!(turn_of(&mut rig, only) <= most, "{priority:?}");
    }
}

#[test]
fn the_least_critical_one_gets_its_share_of_a_flood_or_waits_for_all_of_it() {
    for (priority, most) in [(Priority::Weighted, 16), (Priority::Strict, 1000)] {
        let mut rig = Rig::new(QueueSettings { priority, ..settings() });
        enqueue(&mut rig, 999, &of_class(Criticality::CriticalPlus));
        let only = rig.enqueue(of_class(Criticality::Sheddable)).unwrap().seq;
        let turn = turn_of(&mut rig, only);
        let least = if priority == Priority::Strict { most } else { 1 };
        assert!((least..=most).contains(&turn), "{priority:?}: {turn}");
    }
}

#[test]
fn sending_to_a_group_while_its_head_is_leased_hands_out_nothing() {
    let mut rig = Rig::new(settings());
    let first = rig.enqueue(in_group("a")).unwrap().seq;
    let head = rig.lease_one();
    assert_eq!(head.seq, first);
    let second = rig.enqueue(in_group("a")).unwrap().seq;
    assert!(rig.lease(10).is_empty());
    let other = rig.enqueue(in_group("b")).unwrap().seq;
    assert_eq!(rig.lease_one().seq, other, "another group has its own head");
    rig.settle(head, complete()).unwrap();
    assert_eq!(rig.lease_one().seq, second);
}

#[test]
fn extending_the_head_s_lease_keeps_its_group_waiting() {
    let mut rig = Rig::new(settings());
    let seqs = enqueue(&mut rig, 3, &in_group("a"));
    let head = rig.lease_one();
    for _ in 0..5 {
        rig.pass(s(20));
        rig.extend(head, s(30)).unwrap();
        assert!(rig.lease(10).is_empty());
    }
    rig.pass(s(31));
    assert_eq!(rig.lease_one().seq, seqs[0], "nobody else but the head, again");
    assert!(rig.lease(10).is_empty());
}

#[test]
fn the_next_of_a_group_is_not_handed_out_before_the_head_s_end_is_durable() {
    for cancel in [false, true] {
        let mut rig = Rig::new(settings());
        let seqs = enqueue(&mut rig, 2, &in_group("a"));
        let head = (!cancel).then(|| rig.lease_one());
        rig.hold_durability = true;
        match head {
            Some(receipt) => rig.ask(Command::Settle(vec![Settlement { receipt, outcome: complete() }])),
            None => rig.ask(Command::Cancel(seqs[0])),
        };
        assert!(rig.lease(10).is_empty(), "a crash could bring the head back");
        rig.hold_durability = false;
        rig.make_durable();
        assert_eq!(rig.lease_one().seq, seqs[1]);
    }
}
