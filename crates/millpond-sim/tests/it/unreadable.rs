//! A medium that cannot be read for a while: what it holds is not given up.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::Seq;
use millpond_core::message::Content;
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::Host;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;

fn enqueue(session: &mut Session, body: &'static [u8], delay: Duration) -> Seq {
    let content =
        Content { content_type: "x".to_owned(), headers: Vec::new(), body: Bytes::from_static(body) };
    let message = NewMessage { content: Arc::new(content), delay, ..NewMessage::default() };
    let reply = session.ask(Command::Enqueue { queue: queue(), messages: vec![message] }).unwrap();
    let Reply::Enqueued(result) = reply else { panic!("{reply:?}") };
    result.unwrap().remove(0).unwrap().seq
}

/// Messages that come and go, until the log has written several segments.
fn come_and_go(session: &mut Session) {
    for _ in 0..400 {
        enqueue(session, &[7; 2000], Duration::ZERO);
        let leased = session.lease(1).unwrap();
        assert!(session.settle(leased[0].receipt, SettleOutcome::Complete { result: None }).unwrap());
    }
    session.pass(Duration::from_mins(2)).unwrap();
}

#[test]
fn a_message_that_cannot_be_read_when_its_segment_is_due_for_deletion_keeps_its_bytes() {
    let disk = SimulatedDisk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let settings = QueueSettings { result_retention: Duration::from_secs(1), ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let latency = Duration::from_micros(400);
    let host = Host::open(&storage, declared, SEGMENT_BYTES, 1, latency, Mono(0)).unwrap();
    let mut session = Session { host, at: Mono(0) };
    let straggler = enqueue(&mut session, b"a needle in the haystack", Duration::from_hours(48));

    let needle = b"a needle in the haystack";
    let first = disk.bytes("00000001.log");
    let offset = first.windows(needle.len()).position(|window| window == needle).unwrap();
    disk.flip("00000001.log", offset, 1);
    come_and_go(&mut session);
    let names = disk.names();
    assert!(names.contains(&"00000001.log".to_owned()), "its segment stays: {names:?}");

    disk.flip("00000001.log", offset, 1);
    come_and_go(&mut session);
    let names = disk.names();
    assert!(!names.contains(&"00000001.log".to_owned()), "it was copied once it could be read: {names:?}");
    assert_eq!(&session.host.machine().locate(straggler).read().unwrap().body[..], needle);
}

#[test]
fn a_copy_that_could_not_be_read_is_made_later_though_nothing_else_happens() {
    let disk = SimulatedDisk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let settings = QueueSettings { result_retention: Duration::from_secs(1), ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let latency = Duration::from_micros(400);
    let host = Host::open(&storage, declared, SEGMENT_BYTES, 1, latency, Mono(0)).unwrap();
    let mut session = Session { host, at: Mono(0) };
    enqueue(&mut session, b"a straggler", Duration::from_hours(48));
    // The first thing that is read is the straggler, for its copy.
    disk.fail_read(1);
    while disk.names().len() < 7 {
        enqueue(&mut session, &[7; 2000], Duration::ZERO);
        let leased = session.lease(1).unwrap();
        assert!(session.settle(leased[0].receipt, SettleOutcome::Complete { result: None }).unwrap());
    }
    session.pass(Duration::from_secs(10)).unwrap();
    assert!(disk.names().contains(&"00000001.log".to_owned()), "it could not be copied");
    session.pass(Duration::from_mins(1)).unwrap();
    let names = disk.names();
    assert!(!names.contains(&"00000001.log".to_owned()), "nobody came to copy it: {names:?}");
}
