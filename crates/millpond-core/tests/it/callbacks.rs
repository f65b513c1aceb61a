//! Ends that are told: one message for each, with the end or not at all, through every crash.

use crate::rig::{
    QUEUE, Rig, complete, dead, failed, message, ms, name, release, retry, s, succeeded, target,
};
use bytes::Bytes;
use millpond_core::callback::{Callbacks, Ended, Telling};
use millpond_core::command::{Command, Declared, LeaseRequest, Leased, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::Seq;
use millpond_core::message::{CallbackWish, Content, Phase};
use millpond_core::name::Label;
use millpond_core::record::Record;
use millpond_core::replay::ReplayWhich;
use millpond_core::settings::{OnExpiry, Overflow, QueueSettings, RetrySettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The queue of the messages that tell of ends.
pub(crate) const TELLERS: &str = "_tellers";

/// A message whose end is to be told.
pub(crate) fn told() -> NewMessage {
    let context = vec![("trace".to_owned(), "1".to_owned())];
    let wish = CallbackWish { address: "there".to_owned(), context };
    NewMessage { callback: Some(Arc::new(wish)), ..message() }
}

/// Says everything that these tests look at.
fn words(ended: &Ended<'_>) -> Telling {
    let message = ended.message;
    let callback = message.callback.as_ref().unwrap();
    assert_eq!(callback.teller, Some(ended.teller), "it knows already who tells of it");
    let result = ended.result.map_or(0, |result| result.body.len());
    let body = format!("{} {} {} {result}", ended.queue, message.seq.0, message.phase.as_str());
    let content_type = callback.wish.address.clone();
    let content = Content { content_type, headers: callback.wish.context.clone(), body: Bytes::from(body) };
    Telling { content: Arc::new(content), tenant: Label::new(&callback.wish.address).ok() }
}

pub(crate) fn rig_with(settings: QueueSettings, tellers: QueueSettings) -> Rig {
    let queues = vec![(name(QUEUE), settings), (name(TELLERS), tellers)];
    let declared = Declared { targets: vec![(name("till"), target(2))], queues };
    let callbacks = Callbacks { queue: name(TELLERS), words: Arc::new(words) };
    Rig::telling(declared, Some(callbacks))
}

pub(crate) fn tellers() -> QueueSettings {
    QueueSettings { retention: s(300_000), ..QueueSettings::default() }
}

fn rig(settings: QueueSettings) -> Rig {
    rig_with(settings, tellers())
}

/// What every message that tells of an end says, by its number, as far as the log knows.
fn said(rig: &Rig) -> BTreeMap<Seq, String> {
    let contents = rig.log.iter().filter_map(|record| match record {
        Record::Message { message, content: Some(content) } if content.content_type == "there" => {
            Some((message.seq, String::from_utf8(content.body.to_vec()).unwrap()))
        }
        _ => None,
    });
    contents.collect()
}

fn sayings(rig: &Rig) -> Vec<String> {
    said(rig).into_values().collect()
}

/// Takes what tells of ends.
pub(crate) fn lease_tellers(rig: &mut Rig, max: usize) -> Vec<Leased> {
    let queue = name(TELLERS);
    let wish = LeaseRequest { queue, max, lease: None, wait: Duration::ZERO, consumer: None };
    match rig.ask_now(Command::Lease(wish)) {
        Reply::Leased(leased) => leased.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_end_is_told_once_with_what_is_known_of_it() {
    let retry = RetrySettings { max_attempts: 2, ..RetrySettings::default() };
    let mut rig = rig(QueueSettings { retry, retention: s(1000), ..QueueSettings::default() });
    let done = rig.enqueue(told()).unwrap().seq;
    let receipt = rig.lease_one();
    let content = Content { body: Bytes::from_static(b"abc"), ..Content::default() };
    rig.settle(receipt, SettleOutcome::Complete { result: Some(Arc::new(content)) }).unwrap();
    let rejected = rig.enqueue(told()).unwrap().seq;
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    let exhausted = rig.enqueue(told()).unwrap().seq;
    for _ in 0..2 {
        rig.pass(s(10));
        let receipt = rig.lease_one();
        rig.settle(receipt, crate::rig::retry()).unwrap();
    }
    let withdrawn = rig.enqueue(told()).unwrap().seq;
    rig.cancel(withdrawn).unwrap();
    let expired = rig.enqueue(NewMessage { ttl: Some(s(1)), ..told() }).unwrap().seq;
    rig.pass(s(2));
    let expected = [
        format!("orders {} succeeded 3", done.0),
        format!("orders {} dead 0", rejected.0),
        format!("orders {} dead 0", exhausted.0),
        format!("orders {} cancelled 0", withdrawn.0),
        format!("orders {} dead 0", expired.0),
    ];
    assert_eq!(sayings(&rig), expected);
    let tellers = lease_tellers(&mut rig, 10);
    assert_eq!(tellers.len(), 5, "they are messages like others");
    for (seq, leased) in [done, rejected, exhausted, withdrawn, expired].into_iter().zip(&tellers) {
        let status = rig.status(seq).unwrap();
        assert_eq!(status.message.callback.unwrap().teller, Some(leased.receipt.seq));
        assert_eq!(leased.message.tenant.as_ref().map(Label::as_str), Some("there"));
    }
    // What tells of an end is not told of itself, and what nobody wants to hear of is not told.
    rig.settle(tellers[0].receipt, complete()).unwrap();
    rig.enqueue(message()).unwrap();
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    assert_eq!(sayings(&rig).len(), 5);
}

#[test]
fn what_is_dropped_purged_or_expires_without_a_dead_letter_is_told() {
    let settings = QueueSettings {
        overflow: Overflow::DropOldest,
        max_messages: Some(2),
        on_expiry: OnExpiry::Drop,
        retention: s(1000),
        ..QueueSettings::default()
    };
    let mut rig = rig(settings);
    let seqs: Vec<Seq> = (0..3).map(|_| rig.enqueue(told()).unwrap().seq).collect();
    assert_eq!(sayings(&rig), [format!("orders {} dropped 0", seqs[0].0)]);
    let purge = rig.ask(Command::Purge(name(QUEUE)));
    rig.pass(Duration::ZERO);
    assert!(matches!(rig.answer(purge), Some(Reply::Purged(Ok(2)))));
    rig.enqueue(NewMessage { ttl: Some(s(1)), ..told() }).unwrap();
    rig.pass(s(2));
    let phases: Vec<String> =
        sayings(&rig).iter().map(|said| said.split(' ').nth(2).unwrap().to_owned()).collect();
    assert_eq!(phases, ["dropped", "cancelled", "cancelled", "expired"]);
}

#[test]
fn a_message_that_comes_back_from_the_dead_is_told_of_again() {
    let mut rig = rig(QueueSettings::default());
    let seq = rig.enqueue(told()).unwrap().seq;
    let receipt = rig.lease_one();
    rig.settle(receipt, dead()).unwrap();
    let first = rig.status(seq).unwrap().message.callback.unwrap().teller;
    assert_eq!(rig.replay(ReplayWhich::All), Ok(1));
    rig.restart();
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    let second = rig.status(seq).unwrap().message.callback.unwrap().teller;
    assert!(first.is_some() && second > first, "{first:?} {second:?}");
    assert_eq!(sayings(&rig), [format!("orders {} dead 0", seq.0), format!("orders {} succeeded 0", seq.0)]);
}

#[test]
fn who_sees_an_end_knows_that_it_will_be_told() {
    let mut rig = rig(QueueSettings::default());
    rig.enqueue(told()).unwrap();
    let receipt = rig.lease_one();
    rig.hold_durability = true;
    let settlement = millpond_core::command::Settlement { receipt, outcome: complete() };
    let request = rig.ask(Command::Settle(vec![settlement]));
    let records = rig.log.len();
    assert!(rig.glued[records - 2] && !rig.glued[records - 1], "the end, and what tells of it");
    assert!(lease_tellers(&mut rig, 1).is_empty(), "it is not durable yet");
    rig.make_durable_up_to(records - 1);
    assert!(rig.answer(request).is_none(), "only one of them is");
    rig.make_durable();
    assert!(rig.answer(request).is_some());
    assert_eq!(lease_tellers(&mut rig, 1).len(), 1);
}

#[test]
fn without_anyone_to_word_it_nothing_is_told_and_the_wish_survives() {
    let mut rig = Rig::new(QueueSettings::default());
    let seq = rig.enqueue(told()).unwrap().seq;
    let receipt = rig.lease_one();
    rig.settle(receipt, complete()).unwrap();
    rig.restart();
    let callback = rig.status(seq).unwrap().message.callback.unwrap();
    assert_eq!((callback.wish.address.as_str(), callback.teller), ("there", None));
    assert_eq!(sayings(&rig), Vec::<String>::new());
}

/// Offers a message, whatever the answer, and whenever it comes.
fn offer(rig: &mut Rig, message: NewMessage) {
    rig.ask(Command::Enqueue { queue: name(QUEUE), messages: vec![message] });
}

/// Does something at random.
fn act(rig: &mut Rig, chance: &mut fastrand::Rng, held: &mut Vec<Leased>) {
    match chance.u32(..12) {
        0..3 => offer(rig, if chance.bool() { told() } else { message() }),
        3 => offer(rig, NewMessage { ttl: Some(s(chance.u64(1..20))), ..told() }),
        4..6 => {
            let request = rig.ask(Command::Lease(Rig::wish(2, Duration::ZERO)));
            if let Some(Reply::Leased(Ok(leased))) = rig.answer(request) {
                held.extend(leased);
            }
        }
        6..9 if !held.is_empty() => {
            let leased = held.swap_remove(chance.usize(..held.len()));
            let outcome = [complete(), complete(), retry(), dead(), release()][chance.usize(..5)].clone();
            let settlement = millpond_core::command::Settlement { receipt: leased.receipt, outcome };
            rig.ask(Command::Settle(vec![settlement]));
        }
        9 => drop(rig.replay_some()),
        10 => {
            for leased in lease_tellers(rig, 1) {
                let outcome = if chance.bool() { complete() } else { retry() };
                let settlement = millpond_core::command::Settlement { receipt: leased.receipt, outcome };
                rig.ask(Command::Settle(vec![settlement]));
            }
        }
        _ => rig.pass(ms(chance.u64(..5000))),
    }
}

/// Ends of messages that are to be told, by message, as the log has them; and what tells of them.
fn ends_and_sayings(log: &[Record]) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let (mut phases, mut ends) = (BTreeMap::new(), BTreeMap::<u64, u64>::new());
    let mut sayings = BTreeMap::new();
    for record in log {
        match record {
            Record::Message { message, content }
                if content.as_ref().is_some_and(|c| c.content_type == "there") =>
            {
                let said = String::from_utf8(content.as_ref().unwrap().body.to_vec()).unwrap();
                sayings.insert(message.seq, said.split(' ').nth(1).unwrap().parse::<u64>().unwrap());
            }
            Record::Message { message, .. } if message.callback.is_some() => {
                let before = phases.insert(message.seq, message.phase);
                if message.phase.is_terminal() && before.is_none_or(|before: Phase| !before.is_terminal()) {
                    *ends.entry(message.seq.0).or_default() += 1;
                }
            }
            Record::Died { seq, .. } if phases.contains_key(seq) => {
                phases.insert(*seq, Phase::Dead);
                *ends.entry(seq.0).or_default() += 1;
            }
            Record::Replayed { seq, .. } if phases.contains_key(seq) => {
                phases.insert(*seq, Phase::Ready);
            }
            _ => {}
        }
    }
    let mut told = BTreeMap::new();
    for about in sayings.into_values() {
        *told.entry(about).or_default() += 1;
    }
    (ends, told)
}

#[test]
fn after_any_crash_every_end_that_is_kept_is_told_exactly_once() {
    let (mut crashes, mut kept) = (0, 0);
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let retry = RetrySettings { max_attempts: 2, ..RetrySettings::default() };
        let mut rig = rig(QueueSettings { retry, lease: s(3), ..QueueSettings::default() });
        let mut held = Vec::new();
        for _ in 0..120 {
            rig.hold_durability = chance.u32(..10) == 0;
            act(&mut rig, &mut chance, &mut held);
            if chance.u32(..15) == 0 {
                // Whatever the disk has of what nobody had been told of.
                let mut most = rig.durable + chance.usize(..=rig.log.len() - rig.durable);
                while most > rig.durable && rig.glued[most - 1] {
                    most -= 1;
                }
                rig.hold_durability = false;
                rig.restart_keeping(most - rig.durable);
                (crashes, kept) = (crashes + 1, kept + usize::from(most > 0));
            }
            if !rig.hold_durability {
                rig.make_durable();
            }
            let (ends, told) = ends_and_sayings(&rig.log);
            assert_eq!(ends, told, "seed {seed}");
        }
    }
    assert!(crashes > 100 && kept > 10, "{crashes} crashes");
}

#[test]
fn a_push_that_ends_a_message_is_told_too() {
    let settings = QueueSettings { target: Some(name("till")), ..QueueSettings::default() };
    let retry = RetrySettings { max_attempts: 1, ..RetrySettings::default() };
    let mut rig = rig(QueueSettings { retry, ..settings });
    for outcome in [succeeded(), failed(true)] {
        rig.enqueue(told()).unwrap();
        let call = rig.take_calls().remove(0);
        rig.end_call(call.receipt, outcome);
    }
    let phases: Vec<bool> = sayings(&rig).iter().map(|said| said.contains("succeeded")).collect();
    assert_eq!(phases, [true, false]);
}
