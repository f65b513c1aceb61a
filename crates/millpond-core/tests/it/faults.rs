//! What people report of other queues and what has no place elsewhere: poison, herds, and many delays at once.

use crate::rig::{QUEUE, Rig, complete, message, name, retry, s};
use millpond_core::command::{Command, Declared, Effect, Input, NewMessage, OpNumber, Reply, RequestId};
use millpond_core::message::{AttemptOutcome, DeadReason, Phase};
use millpond_core::pond::Pond;
use millpond_core::record::Record;
use millpond_core::settings::{QueueSettings, RetrySettings};
use millpond_core::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn a_message_that_kills_its_worker_every_time_is_a_dead_letter_after_its_attempts() {
    let mut rig = Rig::new(QueueSettings::default());
    let poison = rig.fill(2)[0];
    for _ in 0..5 {
        let mut leased = rig.lease(2);
        rig.settle(leased.pop().unwrap().receipt, complete()).ok();
        rig.fill(1);
        rig.pass(s(30));
    }
    let message = rig.status(poison).unwrap().message;
    assert_eq!((message.phase, message.attempts), (Phase::Dead, 5));
    assert_eq!(message.dead_reason, Some(DeadReason::AttemptsExhausted));
    assert!(message.history.iter().all(|attempt| attempt.outcome == AttemptOutcome::LeaseExpired));
}

#[test]
fn a_message_that_kills_the_server_every_time_is_a_dead_letter_after_its_deliveries() {
    let retry = RetrySettings { max_attempts: 1, max_deliveries: Some(7), ..RetrySettings::default() };
    let mut rig = Rig::new(QueueSettings { retry, ..QueueSettings::default() });
    let poison = rig.fill(1)[0];
    for _ in 0..7 {
        assert_eq!(rig.lease_one().seq, poison);
        rig.restart();
        rig.pass(s(30));
    }
    let message = rig.status(poison).unwrap().message;
    assert_eq!((message.phase, message.attempts, message.deliveries), (Phase::Dead, 0, 7));
    assert_eq!(message.dead_reason, Some(DeadReason::DeliveriesExhausted));
}

#[test]
fn what_failed_together_does_not_come_back_together() {
    let mut rig = Rig::new(QueueSettings::default());
    let request = Command::Enqueue { queue: name(QUEUE), messages: vec![message(); 2000] };
    assert!(matches!(rig.ask_now(request), Reply::Enqueued(Ok(_))));
    let mut failures = 0;
    for _ in 0..2 {
        for leased in rig.lease(1000) {
            rig.settle(leased.receipt, retry()).unwrap();
            failures += 1;
        }
    }
    assert_eq!((failures, rig.stats().backoff), (2000, 2000));
    let mut back = Vec::new();
    for _ in 0..25 {
        let before = rig.stats().backoff;
        rig.pass(Duration::from_millis(50));
        back.push(before - rig.stats().backoff);
    }
    // The first retry is due between one and two seconds later: twenty steps of a hundred each, if evenly spread.
    let returned: u64 = back.iter().sum();
    assert!((400..700).contains(&returned), "{back:?}");
    assert!(back.iter().all(|each| *each < 160), "no herd: {back:?}");
}

/// A pond, its log, and what it says, without any check of its consistency: for many messages.
struct Plain {
    pond: Pond,
    log: Vec<Record>,
    before: usize,
    now: Now,
}

impl Plain {
    fn open(log: Vec<Record>, now: Now) -> Self {
        let mut pond = Pond::new(1);
        for record in &log {
            pond.restore(record.clone());
        }
        let queues = vec![(name(QUEUE), QueueSettings::default())];
        pond.open(Declared { targets: Vec::new(), queues }, now);
        let mut plain = Self { pond, before: log.len(), log, now };
        plain.settle();
        plain
    }

    /// Makes everything durable; the answers.
    fn settle(&mut self) -> BTreeMap<RequestId, Reply> {
        let mut replies = BTreeMap::new();
        loop {
            let effects: Vec<Effect> = self.pond.effects().collect();
            if effects.is_empty() {
                return replies;
            }
            for effect in effects {
                match effect {
                    Effect::Append { record, .. } => self.log.push(record),
                    Effect::Reply { request, reply } => {
                        replies.insert(request, reply);
                    }
                    _ => {}
                }
            }
            let durable = OpNumber((self.log.len() - self.before) as u64);
            self.pond.handle(Input::Durable(durable), self.now);
        }
    }

    fn ask(&mut self, command: Command) -> Reply {
        let request = RequestId(1);
        self.pond.handle(Input::Command { request, command }, self.now);
        self.settle().remove(&request).expect("answered at once")
    }

    fn counts(&mut self) -> (u64, u64) {
        let Reply::Queue(Ok(view)) = self.ask(Command::Queue(name(QUEUE))) else { panic!("a view") };
        (view.stats.delayed, view.stats.ready)
    }
}

#[test]
fn tens_of_thousands_of_delays_all_fire_at_their_time_after_a_restart_in_bounded_steps() {
    let now = |seconds: i64| Now { wall: Wall(seconds * 1_000_000), mono: Mono(seconds * 1_000_000) };
    let mut plain = Plain::open(Vec::new(), now(0));
    let delayed = NewMessage { delay: s(1000), ..message() };
    for _ in 0..30 {
        let messages = vec![delayed.clone(); 1000];
        let reply = plain.ask(Command::Enqueue { queue: name(QUEUE), messages });
        assert!(matches!(reply, Reply::Enqueued(Ok(answers)) if answers.iter().all(Result::is_ok)));
    }
    // The clock of the next process begins anew.
    let later = Now { mono: Mono(0), ..now(999) };
    let mut plain = Plain::open(plain.log, later);
    assert_eq!(plain.counts(), (30_000, 0));
    assert_eq!(plain.pond.next_wakeup(), Some(Mono(1_000_000)), "it wakes by itself");
    plain.now = Now { mono: Mono(1_000_000), ..now(1000) };
    let mut steps = 0;
    while plain.pond.next_wakeup().is_some_and(|at| at <= plain.now.mono) {
        let (delayed, _) = plain.counts();
        plain.pond.handle(Input::Tick, plain.now);
        plain.settle();
        assert!(delayed - plain.counts().0 <= 2_000, "one step takes no longer for it");
        steps += 1;
    }
    assert!(steps > 6, "{steps}");
    assert_eq!(plain.counts(), (0, 30_000));
}
