//! The threads one by one: the end of the engine thread, and what is said of a full disk.
//!
//! Owns the test's part of the log: it says when what is durable. Must never wait for something by sleeping.

use super::{EngineThread, Reporter, ToLog};
use crate::engine::{Randomness, Restored, restore};
use crate::inbox::{Event, Inbox};
use crate::log::{Commit, Entry, Outside};
use crate::machine::{Machine, Output};
use crate::segments::ToSegments;
use millpond_core::command::{Command, Declared, Input, NewMessage, OpNumber, RequestId};
use millpond_core::identity::Seq;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_core::time::{Mono, Now, Wall};
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc as async_mpsc, oneshot};

const SEGMENT_BYTES: u32 = 64 << 10;
/// Nothing here takes a second; what is not over by then hangs.
const DEADLINE: Duration = Duration::from_secs(20);

fn queue() -> Name {
    Name::new("jobs").unwrap()
}

fn restored(now: Now) -> Restored {
    let storage: Arc<dyn Storage> = Arc::new(SimulatedDisk::default());
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), QueueSettings::default())] };
    let randomness = Randomness { salt: [1; 32], secret: [2; 32], seed: 3 };
    restore(&storage, declared, SEGMENT_BYTES, &randomness, now).unwrap()
}

/// A log that has written everything up to `op`.
fn commit(op: OpNumber) -> Commit {
    Commit {
        copies: Vec::new(),
        written: op,
        durable: Some(op),
        end_segment: 1,
        synced_segment: 1,
        settled: false,
        remaining_bytes: SEGMENT_BYTES.into(),
        room_segments: 1 << 20,
        full: false,
        spare: true,
        records: 0,
    }
}

/// The last record among what the log is told next.
fn last_told(told: &Receiver<ToLog>) -> OpNumber {
    match told.recv_timeout(DEADLINE).expect("something is told") {
        ToLog::Entries(entries) => match entries.last() {
            Some(Entry::Append { op, .. }) => *op,
            other => panic!("{other:?} instead of a record"),
        },
        _ => panic!("no entries"),
    }
}

fn at(micros: i64) -> Now {
    Now { wall: Wall(1_000_000_000 + micros), mono: Mono(micros) }
}

#[test]
fn a_stop_waits_for_what_was_decided_by_then_and_for_nothing_that_timers_still_bring() {
    let machine = restored(at(0)).machine;
    let inbox = Inbox::new();
    let (log, told) = channel();
    let (segments, _jobs) = ToSegments::new();
    let (reader, _read_jobs) = channel();
    let (calls, _calls) = async_mpsc::unbounded_channel();
    let micros = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&micros);
    let now = Box::new(move || at(clock.load(Ordering::SeqCst)));
    let engine =
        EngineThread { machine, inbox: inbox.clone(), now, log, segments, reader, calls, failed: None };
    let engine = std::thread::spawn(move || engine.run());
    // More than expire in one step.
    let ttl = Duration::from_secs(10);
    let messages = vec![NewMessage { ttl: Some(ttl), ..NewMessage::default() }; 2000];
    let (answer, _answered) = oneshot::channel();
    inbox.ask(RequestId(1), Command::Enqueue { queue: queue(), messages }, answer);
    let decided = last_told(&told);
    inbox.push(Event::Stop);
    // When a later question is answered, a round that has seen the stop is over.
    for _ in 0..2 {
        let (located, is_taken) = oneshot::channel();
        inbox.push(Event::Locate { seq: Seq(1), answer: located });
        is_taken.blocking_recv().unwrap();
    }
    micros.store(11_000_000, Ordering::SeqCst);
    inbox.push(Event::Input(Input::Tick));
    assert!(last_told(&told) > decided, "timers go on");
    inbox.push(Event::Committed(commit(decided)));
    // What they bring never becomes durable here, and nobody waits for it.
    while !matches!(told.recv_timeout(DEADLINE).expect("it ends"), ToLog::Stop) {}
    engine.join().unwrap();
}

#[test]
fn whoever_asks_how_the_log_is_doing_hears_that_the_disk_is_full_and_that_it_is_so_no_more() {
    let (inbox, machine) = (Inbox::new(), restored(at(0)).machine);
    let ((log, _told), (segments, _jobs), (reader, _read_jobs)) = (channel(), ToSegments::new(), channel());
    let (calls, _calls) = async_mpsc::unbounded_channel();
    let now = Box::new(|| at(0));
    let engine =
        EngineThread { machine, inbox: inbox.clone(), now, log, segments, reader, calls, failed: None };
    let engine = std::thread::spawn(move || engine.run());
    for full in [true, false, true] {
        inbox.push(Event::Committed(Commit { durable: None, full, ..commit(OpNumber(0)) }));
        for _ in 0..2 {
            let (located, is_taken) = oneshot::channel();
            inbox.push(Event::Locate { seq: Seq(1), answer: located });
            is_taken.blocking_recv().unwrap();
        }
        assert_eq!(inbox.journal().full, full);
    }
    inbox.push(Event::Stop);
    engine.join().unwrap();
}

/// What is logged while `run` does its work.
fn said(run: impl FnOnce()) -> Vec<String> {
    let (lines, writer) = std::io::pipe().unwrap();
    let log = tracing_subscriber::fmt().with_writer(Arc::new(writer)).with_ansi(false).without_time();
    tracing::subscriber::with_default(log.finish(), run);
    std::io::read_to_string(lines).unwrap().lines().map(str::to_owned).collect()
}

fn room(machine: &mut Machine, full: bool, remaining_bytes: u64) {
    machine.committed(Commit { durable: None, full, remaining_bytes, ..commit(OpNumber(0)) }, at(0));
}

#[test]
fn a_disk_that_fills_is_said_once_with_what_to_do_and_once_that_it_has_room_again() {
    let mut machine = restored(at(0)).machine;
    let (much, little) = (u64::from(SEGMENT_BYTES) / 2, u64::from(SEGMENT_BYTES) / 32);
    for _ in 0..2 {
        let lines = said(|| {
            room(&mut machine, false, much);
            for _ in 0..3 {
                room(&mut machine, true, much);
                room(&mut machine, true, little);
            }
            room(&mut machine, true, much);
            room(&mut machine, false, much);
            room(&mut machine, false, little);
        });
        assert_eq!(lines.len(), 3, "{lines:#?}");
        let [full, full_to_the_last, roomy] = &lines[..] else { unreachable!("counted") };
        for (line, says) in [(full, "new work is refused (507)"), (full_to_the_last, "only settlements")] {
            assert!(line.contains("ERROR") && line.contains("the disk is full"), "{line}");
            assert!(line.contains(says) && line.contains("Free or add space"), "{line}");
        }
        assert!(roomy.contains("INFO") && roomy.contains("room again: new work is taken in"), "{roomy}");
    }
    assert!(machine.outputs().all(|output| !matches!(output, Output::Reply(..))), "nobody has asked");
}

#[test]
fn what_waits_for_room_is_said_once_however_many_groups_wait_until_there_is_some() {
    let (inbox, (segments, _jobs)) = (Inbox::new(), ToSegments::new());
    // A log that stops tries nothing again, and does not sleep for it.
    let stop = AtomicBool::new(true);
    let mut told_full = false;
    let lines = said(|| {
        for _ in 0..3 {
            let (inbox, segments, told_full) = (&inbox, &segments, &mut told_full);
            let mut group = Reporter { inbox, segments, stop: &stop, started: Instant::now(), told_full };
            assert!(!group.wait_for_room());
        }
    });
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.contains("ERROR") && line.contains("waits for room"), "{line}");
    assert!(line.contains("Free or add space"), "{line}");
}
