//! Targets across restarts: which calls still occupy them, and when they may get the next one.

use crate::rig::{QUEUE, Rig, complete, failed, message, ms, name, s, target};
use millpond_core::command::{Command, Declared, Input, Reply};
use millpond_core::identity::Seq;
use millpond_core::rate::Rate;
use millpond_core::settings::{QueueSettings, TargetSettings};
use std::time::Duration;

const HOUR: i64 = 3600;

/// Two targets, and two queues: [`QUEUE`], that is pushed to the first, and another one, to the second.
fn two_targets(concurrency: u32) -> Rig {
    let pushed =
        |to| QueueSettings { target: Some(name(to)), concurrency: Some(9), ..QueueSettings::default() };
    let queues = vec![(name(QUEUE), pushed("till")), (name("others"), pushed("desk"))];
    let targets = vec![(name("till"), target(concurrency)), (name("desk"), target(concurrency))];
    Rig::with(Declared { targets, queues })
}

fn inflight(rig: &mut Rig) -> Vec<u64> {
    match rig.ask_now(Command::Overview) {
        Reply::Overview(_, targets) => targets.iter().map(|target| target.inflight).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_under_way_count_at_the_target_that_was_called_though_their_queue_has_another_one_since() {
    let mut rig = two_targets(2);
    rig.fill(2);
    rig.enqueue_to("others", message()).unwrap();
    assert_eq!((rig.take_calls().len(), inflight(&mut rig)), (3, vec![2, 1]));
    rig.fill(2);
    // The queues change their targets.
    rig.declared.queues[0].1.target = Some(name("desk"));
    rig.declared.queues[1].1.target = Some(name("till"));
    rig.restart();
    assert_eq!(inflight(&mut rig), [2, 2]);
    let calls: Vec<_> = rig.take_calls().into_iter().map(|call| (call.receipt.seq, call.queue)).collect();
    assert_eq!(calls, [(Seq(4), name(QUEUE))], "the second target has room for one");
    rig.enqueue_to("others", message()).unwrap();
    assert!(rig.take_calls().is_empty(), "the first one has none");
    rig.input(Input::Copy((1..=6).map(|seq| (Seq(seq), None)).collect()));
    rig.restart();
    assert_eq!((inflight(&mut rig), rig.take_calls().len()), (vec![2, 2], 0), "a copy says the same");
    rig.pass(s(7));
    assert_eq!(rig.take_calls().len(), 0, "the leases have run out");
    rig.pass(s(5));
    assert_eq!(rig.take_calls().len(), 4, "and the hold is over");
}

#[test]
fn calls_that_may_still_be_worked_on_count_at_the_target_that_was_called() {
    let once = |outcome: Option<bool>| {
        let mut rig = two_targets(1);
        let seq = rig.fill(1)[0];
        let receipt = rig.take_calls().remove(0).receipt;
        match outcome {
            Some(timed_out) => rig.end_call(receipt, failed(timed_out)),
            // It is never reported.
            None => rig.pass(s(7)),
        }
        rig.declared.queues[0].1.target = None;
        rig.restart();
        assert_eq!(inflight(&mut rig)[0], u64::from(outcome != Some(false)), "{outcome:?}");
        // A worker gets it next, and the target is called with it no more.
        rig.pass(s(2));
        assert_eq!(rig.lease_one().seq, seq);
        rig.restart();
        assert_eq!(inflight(&mut rig)[0], u64::from(outcome != Some(false)), "{outcome:?}, leased since");
        rig.pass(s(5));
        assert_eq!(inflight(&mut rig), [0, 0]);
    };
    once(Some(true));
    once(Some(false));
    once(None);
}

#[test]
fn calls_under_way_all_count_though_the_cap_was_lowered_across_the_restart() {
    let mut rig = Rig::pushing(target(4), QueueSettings::default());
    rig.fill(8);
    let calls = rig.take_calls();
    rig.declared.targets[0].1.concurrency = 2;
    rig.restart();
    assert_eq!(rig.target_stats().inflight, 4);
    for (ended, left) in [3, 2].into_iter().enumerate() {
        rig.settle(calls[ended].receipt, complete()).unwrap();
        assert_eq!((rig.target_stats().inflight, rig.take_calls().len()), (left, 0));
    }
    rig.settle(calls[2].receipt, complete()).unwrap();
    assert_eq!((rig.target_stats().inflight, rig.take_calls().len()), (2, 1));
}

/// One call an hour.
fn slow() -> Rig {
    let rate = Some(Rate { events: 1, per: Duration::from_hours(1) });
    let mut rig = Rig::pushing(TargetSettings { rate, ..target(10) }, QueueSettings::default());
    rig.fill(9);
    assert_eq!(rig.take_calls().len(), 1);
    rig
}

#[test]
fn a_target_is_called_no_sooner_after_any_number_of_restarts() {
    let mut rig = slow();
    for _ in 0..9 {
        rig.pass(s(360) - ms(1));
        rig.restart();
        assert_eq!(rig.take_calls().len(), 0);
    }
    rig.pass(s(360));
    assert_eq!(rig.take_calls().len(), 0);
    rig.pass(ms(9));
    assert_eq!(rig.take_calls().len(), 1, "an hour after the first one");
}

#[test]
fn the_pace_is_remembered_when_nothing_is_kept_of_the_calls() {
    let mut rig = slow();
    rig.pass(s(3599));
    for _ in 0..2 {
        rig.input(Input::CopyBasics);
        rig.log.drain(..rig.log.len() - 3);
        rig.durable = rig.log.len();
        rig.restart();
        assert_eq!(rig.stats().ready, 0, "boot, queue and pace are all that is left");
    }
    rig.fill(1);
    assert_eq!(rig.take_calls().len(), 0);
    rig.pass(s(1));
    assert_eq!(rig.take_calls().len(), 1);
}

#[test]
fn no_part_of_the_log_goes_while_only_a_hand_out_tells_of_the_latest_call_of_a_paced_target() {
    let mut rig = slow();
    for _ in 0..2 {
        assert!(rig.pond.are_basics_stale());
        rig.input(Input::CopyBasics);
        assert!(!rig.pond.are_basics_stale());
        rig.restart();
    }
    let mut unpaced = Rig::pushing(target(10), QueueSettings::default());
    unpaced.fill(1);
    assert_eq!((unpaced.take_calls().len(), unpaced.pond.are_basics_stale()), (1, false));
}

#[test]
fn a_clock_that_steps_across_a_restart_stalls_no_target() {
    for step in [-100 * HOUR, -HOUR, 0, HOUR] {
        let mut rig = slow();
        rig.step_wall(step);
        rig.restart();
        assert_eq!(rig.take_calls().len(), usize::from(step > 0), "{step}");
        rig.pass(s(3600));
        assert_eq!(rig.take_calls().len(), 1, "{step}");
        rig.pass(s(60));
        rig.restart();
        rig.pass(s(3540));
        assert_eq!(rig.take_calls().len(), 1, "{step}: the latest call counts, whatever those before it say");
    }
}
