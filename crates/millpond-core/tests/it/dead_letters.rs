//! Dead letters: kept, bounded, replayed, deleted.

use crate::rig::{QUEUE, Rig, complete, dead, keyed, message, ms, name, retry_in, s};
use millpond_core::command::{Command, LookupError, NewMessage, ReplayError, Reply};
use millpond_core::identity::Seq;
use millpond_core::message::{DeadReason, Phase};
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::{DeadLetterSettings, QueueSettings};
use std::time::Duration;

fn rig() -> Rig {
    Rig::new(QueueSettings::default())
}

fn small_dead_letter(max_messages: u64) -> QueueSettings {
    let dead_letter = DeadLetterSettings { max_messages, ..DeadLetterSettings::default() };
    QueueSettings { dead_letter, ..QueueSettings::default() }
}

/// Lets the next `count` messages die.
fn kill(rig: &mut Rig, count: usize) -> Vec<Seq> {
    (0..count)
        .map(|_| {
            let receipt = rig.lease_one();
            rig.settle(receipt, dead()).unwrap();
            receipt.seq
        })
        .collect()
}

#[test]
fn rejected_work_is_dead_at_once_with_the_reason() {
    let mut rig = rig();
    rig.fill(1);
    let seq = kill(&mut rig, 1)[0];
    let message = rig.status(seq).unwrap().message;
    assert_eq!(message.dead_reason, Some(DeadReason::Rejected));
    assert!(message.finished.is_some());
}

#[test]
fn a_replayed_message_starts_anew_behind_what_waits_and_keeps_its_number() {
    let mut rig = rig();
    rig.fill(1);
    let seq = kill(&mut rig, 1)[0];
    let accepted = rig.status(seq).unwrap().message.accepted;
    let waiting = rig.fill(2);
    assert_eq!(rig.replay(ReplayWhich::These(vec![seq])), Ok(1));
    let message = rig.status(seq).unwrap().message;
    assert_eq!((message.phase, message.attempts, message.deliveries), (Phase::Ready, 0, 0));
    assert_eq!((message.dead_reason, message.finished, message.accepted), (None, None, accepted));
    let order: Vec<Seq> = rig.lease(5).iter().map(|leased| leased.message.seq).collect();
    assert_eq!(order, [waiting[0], waiting[1], seq]);
}

#[test]
fn a_replayed_message_can_die_again_and_be_replayed_again() {
    let mut rig = rig();
    rig.fill(1);
    let mut receipts = Vec::new();
    for _ in 0..5 {
        let receipt = rig.lease_one();
        assert!(!receipts.contains(&receipt), "no receipt is given twice");
        receipts.push(receipt);
        rig.settle(receipt, dead()).unwrap();
        assert_eq!(rig.stats().dead, 1);
        assert_eq!(rig.replay(ReplayWhich::All), Ok(1));
    }
    rig.restart();
    assert_eq!((rig.stats().ready, rig.stats().dead), (1, 0));
}

#[test]
fn all_dead_letters_go_back_however_many_and_in_order() {
    let mut rig = rig();
    let seqs = rig.fill(1000);
    kill(&mut rig, 1000);
    assert_eq!(rig.replay(ReplayWhich::All), Ok(1000));
    assert_eq!((rig.stats().ready, rig.stats().dead), (1000, 0));
    let order: Vec<Seq> = rig.lease(1000).iter().map(|leased| leased.message.seq).collect();
    assert_eq!(order, seqs);
}

#[test]
fn a_replay_of_none_ends_at_once() {
    let mut rig = rig();
    let before = rig.log.len();
    assert_eq!(rig.replay(ReplayWhich::All), Ok(0));
    assert_eq!(rig.log.len(), before + 1, "with the one record that it is done");
}

#[test]
fn what_is_not_dead_cannot_be_replayed_or_deleted() {
    let mut rig = rig();
    let alive = rig.fill(2)[1];
    let seq = kill(&mut rig, 1)[0];
    let mixed = ReplayWhich::These(vec![seq, alive]);
    assert_eq!(rig.replay(mixed), Err(ReplayError::NotDead(alive)));
    assert_eq!(rig.phase(seq), Phase::Dead, "none was replayed");
    assert_eq!(rig.delete_dead(alive), Err(ReplayError::NotDead(alive)));
    assert_eq!(rig.replay(ReplayWhich::These(vec![seq, seq])), Ok(1), "named twice is named once");
}

#[test]
fn a_replayed_message_keeps_its_expiry_and_gets_a_new_one_once_it_is_past() {
    let mut rig = rig();
    rig.enqueue(NewMessage { ttl: Some(s(100)), ..message() }).unwrap();
    let seq = kill(&mut rig, 1)[0];
    let expires = rig.status(seq).unwrap().message.expires;
    rig.replay(ReplayWhich::All).unwrap();
    assert_eq!(rig.status(seq).unwrap().message.expires, expires);
    rig.pass(s(101));
    assert_eq!(rig.phase(seq), Phase::Dead);
    rig.replay(ReplayWhich::All).unwrap();
    rig.pass(s(1));
    assert_eq!(rig.phase(seq), Phase::Ready);
}

#[test]
fn a_full_dead_letter_queue_stops_the_work_and_room_resumes_it_at_once() {
    let mut rig = Rig::new(small_dead_letter(2));
    rig.fill(4);
    let dead = kill(&mut rig, 2);
    assert!(rig.lease(1).is_empty(), "nothing more is handed out");
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.delete_dead(dead[0]).unwrap();
    let leased = rig.answer(waiting);
    assert!(matches!(leased, Some(Reply::Leased(Ok(leased))) if leased.len() == 1), "room was made");
}

#[test]
fn a_dead_letter_that_ages_out_makes_room_for_work() {
    let dead_letter =
        DeadLetterSettings { max_messages: 1, retention: s(3600), ..DeadLetterSettings::default() };
    let settings = QueueSettings { dead_letter, retention: s(3599), ..QueueSettings::default() };
    let mut rig = Rig::new(settings);
    rig.fill(1);
    kill(&mut rig, 1);
    rig.pass(s(3590));
    rig.fill(1);
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pass(s(10));
    let leased = rig.answer(waiting);
    assert!(matches!(leased, Some(Reply::Leased(Ok(leased))) if leased.len() == 1), "room was made");
}

#[test]
fn what_has_expired_takes_the_room_of_a_dead_letter_that_ages_out_before_work_goes_on() {
    let mut settings = QueueSettings { retention: s(3599), ..small_dead_letter(1) };
    settings.dead_letter.retention = s(3600);
    let mut rig = Rig::new(settings);
    rig.fill(1);
    kill(&mut rig, 1);
    rig.pass(s(3590));
    let waits = rig.fill(1)[0];
    let expired = rig.enqueue(NewMessage { ttl: Some(s(1)), ..message() }).unwrap().seq;
    rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.pass(s(10));
    assert_eq!((rig.phase(expired), rig.phase(waits)), (Phase::Dead, Phase::Ready), "it is full again");
    rig.delete_dead(expired).unwrap();
    assert_eq!(rig.phase(waits), Phase::Leased);
}

#[test]
fn a_dead_letter_is_kept_for_its_retention_and_its_key_with_it() {
    let mut rig = rig();
    let seq = rig.enqueue(keyed(1, 1)).unwrap().seq;
    kill(&mut rig, 1);
    rig.pass(Duration::from_hours(14 * 24) - ms(1));
    assert_eq!(rig.enqueue(keyed(1, 1)).unwrap().phase, Phase::Dead);
    rig.pass(ms(1));
    assert_eq!(rig.status(seq).unwrap_err(), LookupError::Forgotten);
    assert_eq!(rig.stats().dead, 0);
}

#[test]
fn a_deleted_dead_letter_stays_deleted_after_a_restart() {
    let mut rig = rig();
    rig.fill(2);
    let seqs = kill(&mut rig, 2);
    rig.delete_dead(seqs[0]).unwrap();
    rig.restart();
    assert_eq!(rig.status(seqs[0]).unwrap_err(), LookupError::Forgotten);
    assert_eq!(rig.stats().dead, 1);
}

#[test]
fn a_death_that_is_not_durable_is_not_listed() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    let settlement = millpond_core::command::Settlement { receipt, outcome: dead() };
    rig.ask(Command::Settle(vec![settlement]));
    let list = || Command::List { queue: name(QUEUE), phase: Some(Phase::Dead), after: None, limit: 10 };
    let Reply::Messages(Ok((page, _))) = rig.ask_now(list()) else { panic!("a page") };
    assert!(page.is_empty());
    rig.make_durable();
    let Reply::Messages(Ok((page, _))) = rig.ask_now(list()) else { panic!("a page") };
    assert_eq!(page.len(), 1);
}

#[test]
fn a_second_replay_of_all_is_refused_while_one_runs() {
    let mut rig = rig();
    rig.fill(300);
    kill(&mut rig, 300);
    rig.hold_durability = true;
    let first = rig.ask_for_replay(ReplayWhich::All);
    let second = rig.ask_for_replay(ReplayWhich::All);
    assert!(matches!(rig.answer(second), Some(Reply::ReplayStarted(Err(ReplayError::Running(1))))));
    rig.hold_durability = false;
    rig.pass(Duration::ZERO);
    rig.make_durable();
    assert!(matches!(rig.answer(first), Some(Reply::ReplayStarted(Ok(plan))) if plan.selected == 300));
}

#[test]
fn a_late_word_on_an_earlier_life_does_not_touch_the_replayed_message() {
    let mut rig = rig();
    rig.fill(1);
    let receipt = rig.lease_one();
    rig.settle(receipt, retry_in(s(1))).unwrap();
    rig.pass(s(1));
    let second = rig.lease_one();
    rig.settle(second, dead()).unwrap();
    rig.replay(ReplayWhich::All).unwrap();
    assert!(rig.settle(receipt, complete()).is_err());
    assert!(rig.settle(second, complete()).is_err());
    assert_eq!(rig.stats().ready, 1);
}

#[test]
fn a_replay_makes_room_for_work_before_it_is_durable_itself() {
    let mut rig = Rig::new(small_dead_letter(1));
    rig.fill(2);
    kill(&mut rig, 1);
    let waiting = rig.ask(Command::Lease(Rig::wish(1, s(60))));
    rig.hold_durability = true;
    rig.ask_for_replay(ReplayWhich::All);
    assert!(
        matches!(rig.answer(waiting), Some(Reply::Leased(Ok(leased))) if leased[0].message.seq == Seq(2))
    );
}
