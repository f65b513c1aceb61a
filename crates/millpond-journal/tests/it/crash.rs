//! A run is cut by a power loss at every single I/O operation, and every recovery likewise.

use crate::support::{Driver, History, Stopped, body, check_index, has_kind, recover};
use millpond_journal::simulated::{SimulatedDisk, Unsynced};
use std::collections::BTreeSet;

const OPERATIONS: u64 = 50;
const SEEDS: u64 = 14;

/// Groups, syncs, unsynced commits, rolls, prepared segments, copies, deletions, indexes and marks, as `seed` mixes
/// them.
/// Stops at the first error and returns what was done until then.
fn run(disk: &SimulatedDisk, seed: u64) -> History {
    let Ok(mut driver) = Driver::start(disk) else {
        return History { boundaries: vec![0], ..History::default() };
    };
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..OPERATIONS {
        if step(&mut driver, &mut chance).is_err() {
            break;
        }
    }
    driver.history
}

fn step(driver: &mut Driver, chance: &mut fastrand::Rng) -> Result<(), Stopped> {
    match chance.u32(0..24) {
        0 => drop(driver.writer.mark_synced_if_needed().map_err(|_| Stopped)?),
        1..4 => driver.prepare_next()?,
        4..9 => while driver.reclaim()? {},
        20.. => driver.seal()?,
        choice => {
            for _ in 0..chance.u32(1..4) {
                match chance.u32(0..8) {
                    0..3 => drop(driver.enqueue(&body(chance.u64(..), chance.usize(0..2000)))),
                    3 => driver.push(None, false, b"a setting"),
                    _ => driver.settle(chance.usize(1..4)),
                }
            }
            driver.commit(choice.is_multiple_of(2))?;
        }
    }
    Ok(())
}

type Survival = Box<dyn FnMut(Unsynced<'_>) -> bool>;

/// What survives of the unsynced sectors: nothing, everything, or what a seed decides.
fn survivals(seed: u64) -> Vec<Survival> {
    let mut survivals: Vec<Survival> = vec![Box::new(|_| false), Box::new(|_| true)];
    for round in 0..3 {
        let mut chance = fastrand::Rng::with_seed(seed * 16 + round);
        survivals.push(Box::new(move |_| chance.bool()));
    }
    survivals
}

/// Recovers `disk`, checks it, and checks that recovering again, and going on, keeps everything.
fn check_recovery(disk: &SimulatedDisk, history: &History) {
    let first = recover(disk).expect("power loss alone never makes a log unreadable");
    history.check(&first.records);
    check_index(&first);
    let epoch = first.report.epoch;
    drop(first.writer);
    let mut second = recover(disk).expect("recovered once, it stays readable");
    assert_eq!(second.records, first.records, "recovering twice gives the same");
    assert_eq!(second.report.epoch, epoch + 1);
    assert_eq!(second.report.cut, None, "the first recovery left nothing to cut");

    second.writer.push(None, false, |buffer| buffer.extend_from_slice(b"after the crash"));
    second.writer.commit(true).unwrap();
    let third = recover(&disk.crash_with(|_| false)).expect("what was written after the crash is readable");
    let (last, before) = third.records.split_last().unwrap();
    assert_eq!(before, first.records);
    assert_eq!(last.payload, b"after the crash");
}

/// Cuts the recovery of `disk` itself at every operation.
fn check_crashes_in_recovery(disk: &SimulatedDisk, history: &History, seed: u64) {
    let expected = recover(&disk.crash_with(|_| true)).unwrap().records;
    history.check(&expected);
    for operation in 0.. {
        let copy = disk.crash_with(|_| true);
        copy.power_off_at(operation);
        let mut chance = fastrand::Rng::with_seed(seed + operation);
        let finished = recover(&copy).is_ok();
        let after = copy.crash_with(|_| chance.bool());
        let recovered = recover(&after).expect("a crash in recovery never makes a log unreadable");
        assert_eq!(recovered.records, expected, "operation {operation} of recovery");
        if finished {
            break;
        }
    }
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_every_operation() {
    let (mut rolls, mut deletions, mut copies) = (0, 0, 0);
    let (mut indexes, mut reused) = (0, 0);
    for seed in 0..SEEDS {
        let whole = SimulatedDisk::new();
        let history = run(&whole, seed);
        rolls += history.segments.last().copied().unwrap_or(0);
        deletions += history.deleted;
        let names = whole.names();
        indexes += names.iter().filter(|name| has_kind(name, "index")).count();
        reused += whole.renamings();
        let anchored = history.records.iter().filter(|record| record.anchor);
        copies += anchored.clone().count() - anchored.map(|record| record.key).collect::<BTreeSet<_>>().len();
        for operation in 0..whole.operations() {
            let disk = SimulatedDisk::new();
            disk.power_off_at(operation);
            let history = run(&disk, seed);
            for mut survives in survivals(seed * 1000 + operation) {
                check_recovery(&disk.crash_with(&mut survives), &history);
            }
            let mut chance = fastrand::Rng::with_seed(operation);
            let torn = disk.crash_with(|_| chance.bool());
            check_crashes_in_recovery(&torn, &history, operation);
        }
    }
    assert!(rolls > 40 && deletions > 20 && copies > 5, "covered too little: {rolls} {deletions} {copies}");
    assert!(indexes > 8 && reused > 10, "covered too little: {indexes} {reused}");
}

#[test]
fn what_a_killed_process_left_unsynced_is_durable_once_it_was_replayed() {
    for seed in 0..200 {
        let disk = SimulatedDisk::new();
        let history = run(&disk, seed);
        let restarted = recover(&disk).unwrap();
        assert_eq!(restarted.records.len(), history.records.len() - history.start_of(&restarted.records));
        let after = recover(&disk.crash_with(|_| false)).unwrap();
        assert_eq!(after.records, restarted.records, "seed {seed}");
    }
}

#[test]
fn a_power_loss_while_a_killed_process_restarts_is_no_corruption() {
    for seed in 0..100 {
        for operation in 0.. {
            let disk = SimulatedDisk::new();
            let history = run(&disk, seed);
            disk.power_off_at(disk.operations() + operation);
            let finished = recover(&disk).is_ok();
            for mut survives in survivals(seed * 100 + operation) {
                let recovered = recover(&disk.crash_with(&mut survives)).expect("a torn tail at worst");
                history.check(&recovered.records);
            }
            if finished {
                break;
            }
        }
    }
}

#[test]
fn a_second_crash_after_a_torn_tail_brings_no_old_frame_back() {
    for seed in 0..300 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let disk = SimulatedDisk::new();
        let mut driver = Driver::start(&disk).unwrap();
        driver.enqueue(b"kept");
        driver.commit(true).unwrap();
        for size in [400, 400, 900, 400] {
            driver.enqueue(&body(chance.u64(..), size));
            driver.commit(false).unwrap();
        }
        let torn = disk.crash_with(|_| chance.bool());
        let mut again = recover(&torn).unwrap();
        driver.history.check(&again.records);
        let mut expected: Vec<_> = again.records.into_iter().map(|record| record.payload).collect();
        // The same sizes, so that an old frame would lie exactly behind a new one.
        for size in [400, 400, 900, 400] {
            let payload = body(chance.u64(..), size + 8);
            again.writer.push(None, false, |buffer| buffer.extend_from_slice(&payload));
            again.writer.commit(false).unwrap();
            expected.push(payload);
        }
        let recovered_before = expected.len() - 4;
        let after = recover(&torn.crash_with(|_| chance.bool())).unwrap();
        let found: Vec<_> = after.records.into_iter().map(|record| record.payload).collect();
        assert!(expected.starts_with(&found), "seed {seed}: a prefix of what was written last");
        assert!(found.len() >= recovered_before, "seed {seed}: what a recovery returned is durable");
    }
}
