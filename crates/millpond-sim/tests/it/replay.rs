//! A replay whose power is cut at every single operation of the disk: it goes on by itself, and every dead letter
//! goes back exactly once.

use crate::session::{Session, queue};
use bytes::Bytes;
use millpond_core::command::{Command, Declared, NewMessage, Reply, SettleOutcome};
use millpond_core::identity::Seq;
use millpond_core::message::{Content, Phase};
use millpond_core::rate::Rate;
use millpond_core::replay::{ReplayState, ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::settings::QueueSettings;
use millpond_core::time::Mono;
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use millpond_sim::host::{Host, HostError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 32 << 10;
const LATENCY: Duration = Duration::from_micros(400);
const LETTERS: usize = 12;
/// The body that dies again after its return.
const STUBBORN: usize = 2;

fn open(disk: &SimulatedDisk, at: Mono) -> Result<Session, HostError> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let settings = QueueSettings { dead_burst: 0, ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    Ok(Session { host: Host::open(&storage, declared, SEGMENT_BYTES, 1, LATENCY, at)?, at })
}

fn message(number: usize) -> NewMessage {
    // Long enough that segments roll and are reclaimed while the replay runs.
    let body = Bytes::from(vec![u8::try_from(number).unwrap(); 5000]);
    NewMessage { content: Arc::new(Content { body, ..Content::default() }), ..NewMessage::default() }
}

/// What was acknowledged before the power went.
#[derive(Debug, Default)]
struct Known {
    letters: Vec<Seq>,
    replay: bool,
    died_again: bool,
}

fn run(disk: &SimulatedDisk, known: &mut Known) -> Result<(), HostError> {
    let mut session = open(disk, Mono(0))?;
    let messages = (0..LETTERS).map(message).collect();
    let Reply::Enqueued(Ok(accepted)) = session.ask(Command::Enqueue { queue: queue(), messages })? else {
        panic!("refused")
    };
    let seqs: Vec<Seq> = accepted.into_iter().map(|accepted| accepted.unwrap().seq).collect();
    for _ in 0..LETTERS {
        let receipt = session.lease(1)?[0].receipt;
        assert!(session.settle(receipt, SettleOutcome::Dead { failure: None })?);
    }
    known.letters.clone_from(&seqs);
    let rate = Some(Rate { events: 1, per: Duration::from_secs(1) });
    let wish = ReplayWish { rate, ..ReplayWish::plain(ReplayWhich::All) };
    let reply = session.ask(Command::Replay { queue: queue(), wish, dry_run: false })?;
    assert!(matches!(reply, Reply::ReplayStarted(Ok(plan)) if plan.selected == LETTERS as u64));
    known.replay = true;
    for step in 0..LETTERS {
        if step == STUBBORN {
            let receipt = session.lease(1)?[0].receipt;
            known.died_again = true;
            session.settle(receipt, SettleOutcome::Dead { failure: None })?;
        }
        // Others come and go meanwhile, and keep the log rolling.
        for _ in 0..4 {
            let enqueue = Command::Enqueue { queue: queue(), messages: vec![message(100)] };
            let Reply::Enqueued(Ok(accepted)) = session.ask(enqueue)? else { panic!("refused") };
            // A segment that cannot be made refuses new work before a write fails.
            if let Ok(accepted) = &accepted[0] {
                session.ask(Command::Cancel(accepted.seq))?;
            }
        }
        session.pass(Duration::from_secs(1))?;
        session.host.machine().pond().assert_consistent();
    }
    session.pass(Duration::from_mins(1))
}

fn task(session: &mut Session) -> Option<ReplayTask> {
    match session.ask(Command::Replays(queue())).unwrap() {
        Reply::Replays(Ok(mut list)) => list.tasks.pop(),
        other => panic!("{other:?}"),
    }
}

fn verify(disk: &SimulatedDisk, known: &Known, context: &str) {
    let mut session = open(disk, Mono(30_000_000)).unwrap_or_else(|error| panic!("{context}: {error}"));
    session.pass(Duration::from_mins(1)).unwrap();
    session.host.machine().pond().assert_consistent();
    if let Some(task) = task(&mut session) {
        assert_eq!((task.state, task.replayed), (ReplayState::Done, LETTERS as u64), "{context}");
    } else {
        assert!(!known.replay, "{context}: the replay was acknowledged");
        return;
    }
    let mut handed_out: BTreeMap<Seq, usize> = BTreeMap::new();
    loop {
        let leased = session.lease(10).unwrap();
        for one in &leased {
            *handed_out.entry(one.receipt.seq).or_default() += 1;
            assert!(session.settle(one.receipt, SettleOutcome::Complete { result: None }).unwrap());
        }
        if leased.is_empty() {
            break;
        }
    }
    for (place, seq) in known.letters.iter().enumerate() {
        let Reply::Status(Ok(status)) = session.ask(Command::Status { seq: *seq, wait: None }).unwrap()
        else {
            panic!("{context}: {seq:?} is lost")
        };
        let times = handed_out.get(seq).copied().unwrap_or(0);
        let expected = match status.message.phase {
            Phase::Succeeded => 1,
            // Leased when the power went, or dead again: then it is not taken again.
            Phase::Leased | Phase::Dead if known.died_again => 0,
            other => panic!("{context}: letter {place} is {other:?}"),
        };
        assert_eq!(times, expected, "{context}: letter {place}");
    }
}

#[test]
fn wherever_the_power_is_cut_every_dead_letter_goes_back_exactly_once() {
    let whole = SimulatedDisk::new();
    run(&whole, &mut Known::default()).unwrap();
    assert!(!whole.names().contains(&"00000001.log".to_owned()), "the run reclaims segments");
    let operations = whole.operations();
    let mut in_the_middle = 0;
    for operation in 0..operations {
        let disk = SimulatedDisk::new();
        disk.power_off_at(operation);
        let mut known = Known::default();
        let result = run(&disk, &mut known);
        assert!(disk.is_off(), "the power went at {operation}: {result:?}");
        if known.letters.is_empty() {
            continue;
        }
        in_the_middle += usize::from(known.replay);
        for survives in [true, false] {
            let context = format!("power cut at {operation}, what was not synced survives: {survives}");
            verify(&disk.crash_with(|_| survives), &known, &context);
        }
    }
    assert!(in_the_middle > 30, "{in_the_middle} of {operations} operations are in the middle of the replay");
}
