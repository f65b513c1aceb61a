//! A short life of an engine, its power cut at every single operation of the disk, with different luck about what
//! was not synced. Whatever was acknowledged must be there afterwards, nothing may be there that was never sent,
//! and everything must drain.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{Content, Failure, Phase};
use millpond_core::name::Name;
use millpond_core::replay::{ReplayWhich, ReplayWish};
use millpond_core::settings::{DeadLetterSettings, QueueSettings, RetrySettings};
use millpond_core::time::Mono;
use millpond_engine::content::Stored;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::{Host, HostError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 12 << 10;
const LATENCY: Duration = Duration::from_micros(400);
const STEPS: u64 = 54;

fn declared() -> Declared {
    let settings = QueueSettings {
        lease: Duration::from_secs(20),
        result_retention: Duration::from_hours(1),
        retry: RetrySettings { max_attempts: 2, ..RetrySettings::default() },
        dead_letter: DeadLetterSettings::default(),
        ..QueueSettings::default()
    };
    Declared { targets: Vec::new(), queues: vec![(queue(), settings)] }
}

fn open(disk: &SimulatedDisk, seed: u64, at: Mono) -> Result<Host, HostError> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Host::open(&storage, declared(), SEGMENT_BYTES, seed, LATENCY, at)
}

fn body(number: u64) -> Bytes {
    // Long enough that segments fill, roll and are reclaimed within the run.
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(1200, 7);
    bytes.into()
}

fn message(number: u64, delay: Duration) -> NewMessage {
    let content = Content { content_type: "x".to_owned(), headers: Vec::new(), body: body(number) };
    NewMessage { content: Arc::new(content), delay, ..NewMessage::default() }
}

/// What the outside world knows.
#[derive(Debug, Default)]
struct World {
    /// Numbers of bodies that were ever sent.
    sent: BTreeSet<u64>,
    /// Acknowledged messages and their bodies.
    accepted: BTreeMap<Seq, u64>,
    /// Acknowledged ends.
    ended: BTreeMap<Seq, Phase>,
    /// Ends that were asked for, answered or not.
    asked_to_end: BTreeSet<Seq>,
    held: Vec<Receipt>,
    /// Queues that were made while everything ran: their bounds, and whether they are paused, as acknowledged last.
    made: BTreeMap<Name, (u64, bool)>,
    /// Those whose latest change was not acknowledged: it may have come about.
    changing: Option<(Name, (u64, bool))>,
}

/// Makes a queue, changes it, pauses it, one after the other.
fn change_queues(session: &mut Session, world: &mut World, number: u64) -> Result<(), HostError> {
    let name = Name::new(&format!("made-{}", number / 18)).unwrap();
    let (bound, paused) = world.made.get(&name).copied().unwrap_or((0, false));
    let wanted = if bound < 2 { (bound + 1, paused) } else { (bound, !paused) };
    world.changing = Some((name.clone(), wanted));
    if wanted.0 > bound {
        let settings = Box::new(QueueSettings { max_messages: Some(wanted.0), ..QueueSettings::default() });
        let reply = session.ask(Command::Define { queue: name.clone(), settings })?;
        assert!(matches!(reply, Reply::Defined(Ok(_))), "{reply:?}");
    } else {
        let reply = session.ask(Command::Pause { queue: name.clone(), paused: wanted.1 })?;
        assert!(matches!(reply, Reply::Paused(Ok(()))), "{reply:?}");
    }
    world.changing = None;
    world.made.insert(name, wanted);
    Ok(())
}

fn verify_queues(session: &mut Session, world: &World, context: &str) {
    let Reply::Overview(views, _) = session.ask(Command::Overview).unwrap() else { panic!("{context}") };
    let found = views.iter().filter(|view| view.name != queue());
    let found: BTreeMap<Name, (u64, bool)> = found
        .map(|view| (view.name.clone(), (view.settings.max_messages.unwrap(), view.stats.paused)))
        .collect();
    let mut changed = world.made.clone();
    changed.extend(world.changing.clone());
    assert!(found == world.made || found == changed, "{context}: {found:?}, not {:?}", world.made);
}

/// One step of the run; which one depends on its number only.
fn step(session: &mut Session, world: &mut World, number: u64) -> Result<(), HostError> {
    match number % 9 {
        0 | 1 | 4 => {
            let messages: Vec<u64> = (0..3).map(|each| number * 10 + each).collect();
            world.sent.extend(&messages);
            let delay = if number % 9 == 4 { Duration::from_secs(30) } else { Duration::ZERO };
            let command = Command::Enqueue {
                queue: queue(),
                messages: messages.iter().map(|&number| message(number, delay)).collect(),
            };
            let Reply::Enqueued(Ok(results)) = session.ask(command)? else { panic!("refused") };
            for (result, number) in results.into_iter().zip(messages) {
                // A segment that cannot be made refuses new work before a write fails.
                if let Ok(accepted) = result {
                    world.accepted.insert(accepted.seq, number);
                }
            }
        }
        2 | 5 => {
            for leased in session.lease(4)? {
                world.held.push(leased.receipt);
            }
        }
        3 | 6 => {
            // One stays behind, so that old segments hold something alive.
            while world.held.len() > 1 {
                let receipt = world.held.remove(0);
                world.asked_to_end.insert(receipt.seq);
                if session.settle(receipt, SettleOutcome::Complete { result: None })? {
                    world.ended.insert(receipt.seq, Phase::Succeeded);
                }
            }
        }
        7 => {
            if let Some(receipt) = world.held.pop() {
                let failure = Some(Failure::new("worker", "no", None));
                if number.is_multiple_of(2) {
                    session.settle(receipt, SettleOutcome::Retry { failure, delay: None })?;
                } else {
                    world.asked_to_end.insert(receipt.seq);
                    if session.settle(receipt, SettleOutcome::Dead { failure })? {
                        world.ended.insert(receipt.seq, Phase::Dead);
                    }
                }
            }
        }
        _ => {
            session.pass(Duration::from_secs(12))?;
            if number > 25 {
                // What was dead may come back; from here on the end is open again.
                world.ended.retain(|_, phase| *phase != Phase::Dead);
                let wish = ReplayWish::plain(ReplayWhich::All);
                session.ask(Command::Replay { queue: queue(), wish, dry_run: false })?;
            }
        }
    }
    Ok(())
}

fn run(disk: &SimulatedDisk, world: &mut World) -> Result<(), HostError> {
    let mut session = Session { host: open(disk, 1, Mono(0))?, at: Mono(0) };
    for number in 0..STEPS {
        step(&mut session, world, number)?;
        if number % 4 == 1 {
            change_queues(&mut session, world, number)?;
        }
        session.host.machine().pond().assert_consistent();
    }
    session.pass(Duration::from_mins(1))
}

/// Opens what the crash left and holds it against what the world knows; then everything must drain.
fn verify(disk: &SimulatedDisk, world: &World, context: &str) {
    let at = Mono(120_000_000);
    let host = open(disk, 2, at).unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut session = Session { host, at };
    session.host.machine().pond().assert_consistent();
    verify_queues(&mut session, world, context);
    for (&seq, &number) in &world.accepted {
        let Reply::Status(status) = session.ask(Command::Status { seq, wait: None }).unwrap() else {
            panic!("{context}")
        };
        let status = status.unwrap_or_else(|error| panic!("{context}: {seq:?} was acknowledged: {error}"));
        let phase = status.message.phase;
        if let Some(ended) = world.ended.get(&seq) {
            assert_eq!(phase, *ended, "{context}: {seq:?} was acknowledged as {ended:?}");
        } else if phase == Phase::Succeeded {
            assert!(world.asked_to_end.contains(&seq), "{context}: nobody completed {seq:?}");
        }
        if phase != Phase::Succeeded {
            assert_body(&session, seq, number, context);
        }
    }
    drain(&mut session, world, context);
}

fn assert_body(session: &Session, seq: Seq, number: u64, context: &str) {
    let stored = session.host.machine().locate(seq).read();
    assert_eq!(stored.unwrap().body, body(number), "{context}: the body of {seq:?}");
}

fn drain(session: &mut Session, world: &World, context: &str) {
    for _ in 0..200 {
        let leased = session.lease(10).unwrap();
        for one in &leased {
            let seq = one.receipt.seq;
            let ended = world.ended.get(&seq);
            assert!(ended.is_none(), "{context}: {seq:?} was acknowledged as {ended:?} and came again");
            let stored: Stored = session.host.machine().locate(seq);
            let bytes = stored.read().unwrap().body.clone();
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(world.sent.contains(&number), "{context}: {number} was never sent");
            assert!(session.settle(one.receipt, SettleOutcome::Complete { result: None }).unwrap());
        }
        session.host.machine().pond().assert_consistent();
        session.pass(Duration::from_secs(20)).unwrap();
        let Reply::Queue(Ok(view)) = session.ask(Command::Queue(queue())).unwrap() else { panic!() };
        let stats = view.stats;
        if leased.is_empty() && stats.ready + stats.leased + stats.backoff + stats.delayed == 0 {
            return;
        }
    }
    panic!("{context}: it does not drain");
}

/// A small generator of luck, the same every time.
fn luck(seed: u64) -> impl FnMut() -> bool {
    let mut chance = fastrand::Rng::with_seed(seed);
    move || chance.bool()
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_is_cut() {
    let whole = SimulatedDisk::new();
    let mut world = World::default();
    run(&whole, &mut world).unwrap();
    let operations = whole.operations();
    assert!(operations > 60, "{operations}");
    assert!(world.accepted.len() > 40 && world.ended.len() > 8, "{world:?}");
    assert!(world.made.len() == 3 && world.made.values().any(|(_, paused)| *paused), "{world:?}");
    assert!(!whole.names().contains(&"00000001.log".to_owned()), "the run reclaims segments");
    for operation in 0..operations {
        let disk = SimulatedDisk::new();
        disk.power_off_at(operation);
        let mut world = World::default();
        let result = run(&disk, &mut world);
        assert!(disk.is_off(), "the power went at {operation}: {result:?}");
        verify(&disk.crash_with(|_| true), &world, &format!("power cut at {operation}, all survives"));
        verify(&disk.crash_with(|_| false), &world, &format!("power cut at {operation}, nothing survives"));
        let mut survives = luck(operation);
        verify(&disk.crash_with(|_| survives()), &world, &format!("power cut at {operation}, by luck"));
    }
}

#[test]
fn a_failed_write_or_sync_stops_the_engine_and_loses_nothing_acknowledged() {
    for count in 1..60 {
        for sync in [false, true] {
            let disk = SimulatedDisk::new();
            if sync {
                disk.fail_sync(count);
            } else {
                disk.fail_write(count);
            }
            let mut world = World::default();
            if run(&disk, &mut world).is_ok() {
                continue;
            }
            verify(&disk.crash_with(|_| false), &world, &format!("sync {sync} number {count} failed"));
        }
    }
}
