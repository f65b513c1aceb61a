//! A disk without room: new work is refused with a reason, everything else goes on, and room brings work back.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, EnqueueError, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, Phase};
use millpond_core::settings::{QueueSettings, RetrySettings};
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::Host;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;

fn open(disk: &SimulatedDisk, at: Mono) -> Session {
    open_with(disk, SEGMENT_BYTES, at)
}

fn open_with(disk: &SimulatedDisk, segment_bytes: u32, at: Mono) -> Session {
    let settings = QueueSettings {
        result_retention: Duration::from_secs(1),
        retry: RetrySettings { max_attempts: 20, ..RetrySettings::default() },
        ..QueueSettings::default()
    };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let latency = Duration::from_micros(400);
    Session { host: Host::open(&storage, declared, segment_bytes, 1, latency, at).unwrap(), at }
}

fn enqueue(session: &mut Session) -> Result<Seq, EnqueueError> {
    enqueue_bytes(session, 2000)
}

fn enqueue_bytes(session: &mut Session, bytes: usize) -> Result<Seq, EnqueueError> {
    let body = Bytes::from(vec![7; bytes]);
    let content = Content { content_type: "x".to_owned(), headers: Vec::new(), body };
    let message = NewMessage { content: Arc::new(content), ..NewMessage::default() };
    let reply = session.ask(Command::Enqueue { queue: queue(), messages: vec![message] }).unwrap();
    let Reply::Enqueued(result) = reply else { panic!("{reply:?}") };
    result.unwrap().remove(0).map(|accepted| accepted.seq)
}

fn complete(session: &mut Session, receipt: Receipt) {
    assert!(session.settle(receipt, SettleOutcome::Complete { result: None }).unwrap());
}

fn fill(session: &mut Session) -> Vec<Seq> {
    fill_with(session, 2000)
}

fn fill_with(session: &mut Session, bytes: usize) -> Vec<Seq> {
    let mut accepted = Vec::new();
    loop {
        match enqueue_bytes(session, bytes) {
            Ok(seq) => accepted.push(seq),
            Err(error) => {
                assert_eq!(error, EnqueueError::StorageFull);
                return accepted;
            }
        }
        assert!(accepted.len() < 1000, "the disk never runs full");
    }
}

#[test]
fn a_full_disk_refuses_new_work_while_settlements_reads_and_restart_go_on_and_room_brings_work_back() {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(5 * u64::from(SEGMENT_BYTES)));
    let mut session = open(&disk, Mono(0));
    let accepted = fill(&mut session);
    assert!(accepted.len() > 40, "{} messages in five segments", accepted.len());

    let leased = session.lease(3).unwrap();
    assert_eq!(leased.len(), 3, "hand-outs go on");
    complete(&mut session, leased[0].receipt);
    assert_eq!(enqueue(&mut session), Err(EnqueueError::StorageFull));

    let mut session = open(&disk, session.at.plus(Duration::from_secs(1)));
    for &seq in &accepted[1..] {
        let Reply::Status(Ok(status)) = session.ask(Command::Status { seq, wait: None }).unwrap() else {
            panic!("{seq:?} was acknowledged")
        };
        assert!(!status.message.phase.is_terminal() || status.message.phase == Phase::Succeeded);
        assert_eq!(session.host.machine().locate(seq).read().unwrap().body.len(), 2000, "reads go on");
    }
    complete(&mut session, leased[1].receipt);
    complete(&mut session, leased[2].receipt);

    // Work that is done makes room.
    for _ in 0..200 {
        for one in session.lease(5).unwrap() {
            complete(&mut session, one.receipt);
        }
        session.pass(Duration::from_secs(2)).unwrap();
        session.host.machine().pond().assert_consistent();
    }
    let again = fill(&mut session);
    assert!(again.len() > 25, "{} messages fit after the work was done", again.len());
}

#[test]
fn settlements_go_on_when_each_takes_more_room_than_its_message() {
    for segments in 5..9 {
        let disk = SimulatedDisk::new();
        disk.set_capacity(Some(segments * u64::from(SEGMENT_BYTES)));
        let mut session = open(&disk, Mono(0));
        let accepted = fill_with(&mut session, 10);
        // One by one, each with a group of its own.
        for settled in 0..accepted.len() {
            let mut leased = session.lease(1).unwrap();
            for _ in 0..20 {
                if !leased.is_empty() {
                    break;
                }
                // While room is being won back, nothing is handed out.
                session.pass(Duration::from_millis(100)).unwrap();
                leased = session.lease(1).unwrap();
            }
            assert_eq!(leased.len(), 1, "{settled} of {} in {segments} segments", accepted.len());
            complete(&mut session, leased[0].receipt);
        }
        session.pass(Duration::from_secs(10)).unwrap();
        assert!(fill_with(&mut session, 10).len() > accepted.len() / 2, "{segments} segments");
    }
}

/// What a full disk holds, and how it is worked off.
#[derive(Clone, Copy, Debug)]
struct Flood {
    segment_bytes: u32,
    segments: u64,
    bytes: usize,
    /// Messages in one request, and so in one group.
    batch: usize,
    /// Failures before each message's success.
    retries: u32,
    /// Hand-outs under way at once.
    at_once: usize,
    restart: bool,
}

/// Fills the disk, then does all the work that was accepted; returns what got stuck.
fn work_off(flood: Flood) -> Result<(), String> {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(flood.segments * u64::from(flood.segment_bytes)));
    let mut session = open_with(&disk, flood.segment_bytes, Mono(0));
    let accepted = flood_with(&mut session, flood);
    if flood.restart {
        session = open_with(&disk, flood.segment_bytes, session.at);
    }
    let mut failures: BTreeMap<Seq, u32> = BTreeMap::new();
    let (mut done, mut waited) = (0, 0);
    while done < accepted {
        let leased = session.lease(flood.at_once).map_err(|error| format!("lease: {error:?}"))?;
        if leased.is_empty() {
            waited += 1;
            if waited > 100 {
                let (live, total) = session.host.machine().log_bytes();
                return Err(format!("{done} of {accepted}, {live} live in {total}"));
            }
            session.pass(Duration::from_secs(1)).unwrap();
            continue;
        }
        waited = 0;
        for one in leased {
            let failed = failures.entry(one.receipt.seq).or_default();
            let outcome = if *failed < flood.retries {
                *failed += 1;
                SettleOutcome::Retry { delay: Some(Duration::ZERO), failure: None }
            } else {
                done += 1;
                SettleOutcome::Complete { result: None }
            };
            let settled = session.settle(one.receipt, outcome);
            let settled = settled.map_err(|error| format!("{done} of {accepted}: {error:?}"))?;
            assert!(settled);
        }
    }
    session.pass(Duration::from_mins(2)).map_err(|error| format!("{error:?}"))?;
    let again = flood_with(&mut session, flood);
    if again * 2 > accepted { Ok(()) } else { Err(format!("{again} after {accepted}: no room was won back")) }
}

/// Sends batches until the disk is full; returns how many messages were accepted.
fn flood_with(session: &mut Session, flood: Flood) -> usize {
    let (mut accepted, mut tried_again) = (0, false);
    loop {
        let body = Bytes::from(vec![7; flood.bytes]);
        let content = Arc::new(Content { content_type: "x".to_owned(), headers: Vec::new(), body });
        let message = NewMessage { content, ..NewMessage::default() };
        let messages = vec![message; flood.batch];
        let reply = session.ask(Command::Enqueue { queue: queue(), messages }).unwrap();
        let Reply::Enqueued(Ok(results)) = reply else { panic!("{reply:?}") };
        let taken = results.iter().filter(|result| result.is_ok()).count();
        accepted += taken;
        if taken < flood.batch {
            // The next segment may just be under way.
            tried_again = taken == 0 && tried_again;
            if !std::mem::replace(&mut tried_again, true) {
                session.pass(Duration::from_secs(1)).unwrap();
                continue;
            }
            assert!(
                results.iter().all(|one| !matches!(one, Err(error) if *error != EnqueueError::StorageFull))
            );
            return accepted;
        }
    }
}

/// Small messages in large groups leave hardly a byte in a segment that is not alive, and each settlement takes ten times
/// the room that it frees; a message that failed is copied with its attempts, so that a segment's copies take more than a
/// segment; what is handed out at once is settled when there is less room than before.
#[test]
fn whatever_fills_the_disk_is_worked_off_and_makes_room() {
    for (bytes, batch, retries, segments_max) in [
        (0, 1, 3, 8),
        (0, 100, 0, 5),
        (20, 30, 0, 6),
        // Does not fit with all attempts: it is worked off as what is done is forgotten.
        (20, 30, 1, 5),
        (200, 10, 3, 6),
        (900, 1, 2, 8),
        (900, 10, 2, 8),
        (7000, 1, 1, 8),
    ] {
        for segments in 5..=segments_max {
            for (at_once, restart) in [(1, true), (10, false)] {
                let segment_bytes = 32 << 10;
                let flood = Flood { segment_bytes, segments, bytes, batch, retries, at_once, restart };
                assert_eq!(work_off(flood), Ok(()), "{flood:?}");
            }
        }
    }
}

#[test]
fn on_a_full_disk_a_result_is_dropped_and_the_outcome_kept() {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(5 * u64::from(SEGMENT_BYTES)));
    let mut session = open(&disk, Mono(0));
    let result = || {
        let content =
            Content { content_type: "x".to_owned(), headers: Vec::new(), body: vec![1; 9000].into() };
        SettleOutcome::Complete { result: Some(Arc::new(content)) }
    };
    let seq = enqueue(&mut session).unwrap();
    let leased = session.lease(1).unwrap();
    assert!(session.settle(leased[0].receipt, result()).unwrap());
    assert_eq!(session.host.machine().locate(seq).read().unwrap().body.len(), 9000, "there is room");
    let accepted = fill(&mut session);
    for seq in &accepted[..3] {
        let leased = session.lease(1).unwrap();
        assert!(session.settle(leased[0].receipt, result()).unwrap());
        let Reply::Status(Ok(status)) = session.ask(Command::Status { seq: *seq, wait: None }).unwrap()
        else {
            panic!("{seq:?} was acknowledged")
        };
        assert_eq!((status.message.phase, status.message.result), (Phase::Succeeded, None));
    }
}

#[test]
fn after_a_restart_it_is_known_whether_there_is_room_before_new_work_is_taken() {
    for full in [false, true] {
        let disk = SimulatedDisk::new();
        let mut session = open(&disk, Mono(0));
        // More than half of the segment is used, and the next one was not made before the end.
        for _ in 0..20 {
            enqueue(&mut session).unwrap();
        }
        disk.take("00000002.log");
        let disk = disk.crash_with(|_| true);
        disk.set_capacity(full.then_some(2 * u64::from(SEGMENT_BYTES)));
        let mut session = open(&disk, session.at);
        let answer = enqueue(&mut session);
        assert_eq!(answer.err(), full.then_some(EnqueueError::StorageFull));
        let leased = session.lease(2).unwrap();
        complete(&mut session, leased[0].receipt);
    }
}

#[test]
fn a_restart_does_not_take_new_work_for_the_room_that_is_kept_to_win_room_back() {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(6 * u64::from(SEGMENT_BYTES)));
    let mut session = open(&disk, Mono(0));
    fill(&mut session);
    // The segment ahead of the log is there, and so nothing needs to be made; the file behind it is what is missing.
    for _ in 0..3 {
        session = open(&disk, session.at.plus(Duration::from_secs(1)));
        session.pass(Duration::from_secs(1)).unwrap();
        assert_eq!(enqueue(&mut session), Err(EnqueueError::StorageFull));
    }
}
