//! A log comes to rest, within its bound, whatever was written and however small its segments are.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, NewMessage, Reply, SettleOutcome};
use millpond_core::message::Content;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::Host;
use std::sync::Arc;
use std::time::Duration;

/// `format` and `secret`.
const SMALL_FILES_BYTES: u64 = 4096;

fn open(disk: &SimulatedDisk, segment_bytes: u32, queues: usize, at: Mono) -> Session {
    let settings = QueueSettings { result_retention: Duration::from_secs(1), ..QueueSettings::default() };
    let others = (1..queues).map(|other| Name::new(&format!("other-{other}")).unwrap());
    let names = std::iter::once(queue()).chain(others);
    let queues = names.map(|name| (name, settings.clone())).collect();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let declared = Declared { targets: Vec::new(), queues };
    let host = Host::open(&storage, declared, segment_bytes, 1, Duration::from_micros(400), at).unwrap();
    Session { host, at }
}

fn enqueue(session: &mut Session, bytes: usize, delay: Duration) {
    let body = Bytes::from(vec![7; bytes]);
    let content = Content { content_type: "x".to_owned(), headers: Vec::new(), body };
    let message = NewMessage { content: Arc::new(content), delay, ..NewMessage::default() };
    let reply = session.ask(Command::Enqueue { queue: queue(), messages: vec![message] }).unwrap();
    assert!(matches!(&reply, Reply::Enqueued(Ok(accepted)) if accepted[0].is_ok()), "{reply:?}");
}

fn come_and_go(session: &mut Session, bytes: usize) {
    enqueue(session, bytes, Duration::ZERO);
    let leased = session.lease(1).unwrap();
    assert!(session.settle(leased[0].receipt, SettleOutcome::Complete { result: None }).unwrap());
}

/// Whether the files are within the bound, and how they are.
fn within_bound(session: &Session, disk: &SimulatedDisk, segment_bytes: u32) -> (bool, String) {
    let (live, _) = session.host.machine().log_bytes();
    let used = disk.used_bytes() - SMALL_FILES_BYTES.min(disk.used_bytes());
    let allowed = 2 * live + 4 * u64::from(segment_bytes);
    (used <= allowed, format!("{used} bytes for {live} live ones, {allowed} allowed"))
}

#[test]
fn the_log_comes_to_rest_within_its_bound_in_segments_of_any_size_and_with_any_number_of_queues() {
    for segment_bytes in [8 << 10, 16 << 10, 64 << 10] {
        for queues in [1, 3, 40] {
            for (stay, bytes) in [(0, 20), (12, 20), (40, 900), (40, 2300)] {
                let what = format!("{segment_bytes} a segment, {queues} queues, {stay} stay with {bytes}");
                let disk = SimulatedDisk::new();
                let mut session = open(&disk, segment_bytes, queues, Mono(0));
                for turn in 0..200 {
                    if turn % 5 == 0 && turn / 5 < stay {
                        enqueue(&mut session, bytes, Duration::from_hours(48));
                    }
                    come_and_go(&mut session, 1 + turn * 11);
                }
                for restarted in [false, true] {
                    if restarted {
                        session = open(&disk, segment_bytes, queues, session.at);
                    }
                    session.pass(Duration::from_secs(90)).unwrap();
                    let operations = disk.operations();
                    session.pass(Duration::from_hours(1)).unwrap();
                    assert_eq!(disk.operations(), operations, "{what}, restarted {restarted}: no rest");
                    let (within, how) = within_bound(&session, &disk, segment_bytes);
                    assert!(within, "{what}, restarted {restarted}: {how}");
                }
            }
        }
    }
}

#[test]
fn little_work_makes_little_copying() {
    for segment_bytes in [8 << 10, 64 << 10] {
        for (queues, stay) in [(1, 0), (40, 0), (3, 60), (40, 60)] {
            let disk = SimulatedDisk::new();
            let mut session = open(&disk, segment_bytes, queues, Mono(0));
            for _ in 0..stay {
                enqueue(&mut session, 900, Duration::from_hours(48));
            }
            session.pass(Duration::from_secs(90)).unwrap();
            let before = disk.operations();
            for _ in 0..200 {
                come_and_go(&mut session, 20);
                session.pass(Duration::from_secs(10)).unwrap();
            }
            let each = (disk.operations() - before) / 200;
            assert!(each <= 30, "{segment_bytes} a segment, {queues} queues, {stay} stay: {each} for each");
        }
    }
}
