//! Indexes of complete segments: written late enough to be worth it, and all of them once the log comes to rest.

use crate::session::{Session, queue};
use millpond_core::command::{Command, Declared, NewMessage, Reply};
use millpond_core::message::Content;
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::Host;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;

fn open(disk: &SimulatedDisk, at: Mono) -> Session {
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), QueueSettings::default())] };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let latency = Duration::from_micros(400);
    Session { host: Host::open(&storage, declared, SEGMENT_BYTES, 1, latency, at).unwrap(), at }
}

fn enqueue(session: &mut Session) {
    let content = Content { body: vec![7; 2000].into(), ..Content::default() };
    let message = NewMessage { content: Arc::new(content), ..NewMessage::default() };
    let reply = session.ask(Command::Enqueue { queue: queue(), messages: vec![message] }).unwrap();
    assert!(matches!(reply, Reply::Enqueued(Ok(results)) if results[0].is_ok()));
}

#[test]
fn the_last_complete_segment_gets_its_index_when_the_log_comes_to_rest() {
    let disk = SimulatedDisk::new();
    let mut session = open(&disk, Mono(0));
    let has = |name: &str| disk.names().contains(&name.to_owned());
    // The log is in its fourth segment once the fifth is made ahead.
    while !has("00000005.log") {
        enqueue(&mut session);
    }
    for _ in 0..3 {
        enqueue(&mut session);
    }
    assert!(has("00000001.index") && has("00000002.index") && !has("00000003.index"), "{:?}", disk.names());
    // Hand-outs are not waited for, so the log comes to rest after them.
    for _ in 0..3 {
        session.lease(1).unwrap();
        session.pass(Duration::from_secs(1)).unwrap();
    }
    assert!(has("00000003.index"), "{:?}", disk.names());
}
