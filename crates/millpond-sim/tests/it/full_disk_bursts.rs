//! A full disk, and many ends at once.
//!
//! Owns that they do not take the room that is needed to win room back. Must never look at single records.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, LeaseRequest, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::Content;
use millpond_core::settings::{OnExpiry, QueueSettings};
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::{Host, HostError};
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;
/// Nothing expires by itself before.
const TTL: Duration = Duration::from_hours(1);
const KEPT: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
struct Case {
    bytes: usize,
    batch: usize,
    segments: u64,
    on_expiry: OnExpiry,
    burst: Burst,
    /// Whether it is worked on before, until nothing is handed out any more.
    worked: bool,
}

#[derive(Clone, Copy, Debug)]
enum Burst {
    Purge,
    Expiry,
    /// Everything that is handed out runs out at once, as often as it takes.
    Leases,
}

fn open(disk: &SimulatedDisk, on_expiry: OnExpiry, at: Mono) -> Session {
    let settings = QueueSettings {
        result_retention: KEPT,
        retention: TTL,
        on_expiry,
        prefetch: 100_000,
        ..QueueSettings::default()
    };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let latency = Duration::from_micros(400);
    Session { host: Host::open(&storage, declared, SEGMENT_BYTES, 1, latency, at).unwrap(), at }
}

fn fill(session: &mut Session, case: Case) -> Result<Vec<Seq>, HostError> {
    let mut accepted = Vec::new();
    let mut refused = 0;
    while refused < 3 {
        let content = Content { body: Bytes::from(vec![7; case.bytes]), ..Content::default() };
        let message = NewMessage { content: Arc::new(content), ..NewMessage::default() };
        let messages = vec![message; case.batch];
        let reply = session.ask(Command::Enqueue { queue: queue(), messages })?;
        let Reply::Enqueued(Ok(results)) = reply else { panic!("{reply:?}") };
        let before = accepted.len();
        accepted.extend(results.into_iter().filter_map(|one| one.ok().map(|one| one.seq)));
        if accepted.len() == before {
            refused += 1;
            session.pass(Duration::from_secs(1))?;
        }
    }
    Ok(accepted)
}

fn lease(session: &mut Session, max: usize, lease: Duration) -> Result<Vec<Receipt>, HostError> {
    let wish = LeaseRequest { queue: queue(), max, lease: Some(lease), wait: Duration::ZERO, consumer: None };
    match session.ask(Command::Lease(wish))? {
        Reply::Leased(Ok(leased)) => Ok(leased.into_iter().map(|one| one.receipt).collect()),
        other => panic!("{other:?}"),
    }
}

fn burst(session: &mut Session, case: Case) -> Result<(), HostError> {
    match case.burst {
        Burst::Purge => {
            session.ask(Command::Purge(queue()))?;
        }
        Burst::Expiry => session.pass(TTL)?,
        Burst::Leases => {
            for _ in 0..20 {
                lease(session, usize::MAX, Duration::from_secs(1))?;
                session.pass(Duration::from_secs(2))?;
            }
        }
    }
    session.pass(KEPT * 10)?;
    session.host.machine().pond().assert_consistent();
    Ok(())
}

fn run(case: Case) -> Result<(), String> {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(case.segments * u64::from(SEGMENT_BYTES)));
    let mut session = open(&disk, case.on_expiry, Mono(0));
    let accepted = fill(&mut session, case).map_err(|error| format!("fill: {error}"))?;
    if case.worked {
        let mut idle = 0;
        while idle < 3 {
            let held = lease(&mut session, 1, Duration::from_secs(10)).map_err(|error| error.to_string())?;
            idle = if held.is_empty() { idle + 1 } else { 0 };
            for receipt in held {
                let settled = session.settle(receipt, SettleOutcome::Complete { result: None });
                assert!(settled.map_err(|error| format!("settle: {error}"))?);
            }
        }
    }
    burst(&mut session, case).map_err(|error| format!("{} accepted: {error}", accepted.len()))?;
    Ok(())
}

/// Every shape of `burst`; small messages also on a larger disk, where more come to their ends at once than fit into
/// what is known to be there.
fn run_all(burst: Burst) {
    let shapes = [(0, 1), (0, 20), (20, 30), (200, 30), (2000, 10)];
    let small = shapes.iter().flat_map(|&shape| [(shape, 5), (shape, 8)]);
    let mut failed = Vec::new();
    for ((bytes, batch), segments) in small.chain([((0, 100), 20), ((20, 30), 20)]) {
        for worked in [false, true] {
            for on_expiry in [OnExpiry::Drop, OnExpiry::DeadLetter] {
                let case = Case { bytes, batch, segments, on_expiry, burst, worked };
                if let Err(error) = run(case) {
                    failed.push(format!("{case:?}: {error}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}\n{} cases", failed.join("\n"), failed.len());
}

#[test]
fn what_is_purged_all_at_once_leaves_the_room_to_win_room_back() {
    run_all(Burst::Purge);
}

#[test]
fn what_expires_all_at_once_leaves_the_room_to_win_room_back() {
    run_all(Burst::Expiry);
}

#[test]
fn leases_that_run_out_all_at_once_leave_the_room_to_win_room_back() {
    run_all(Burst::Leases);
}
