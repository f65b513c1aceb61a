//! A disk without room: new work is refused with a reason, everything else goes on, and room brings work back.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, EnqueueError, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, Phase};
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::Host;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;

fn open(disk: &SimulatedDisk, at: Mono) -> Session {
    let settings = QueueSettings { result_retention: Duration::from_secs(1), ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let latency = Duration::from_micros(400);
    Session { host: Host::open(&storage, declared, SEGMENT_BYTES, 1, latency, at).unwrap(), at }
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
