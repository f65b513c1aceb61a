//! Bytes that nobody of ours wrote: bodies that imitate frames, files of noise, mutilated logs. None of them may
//! make the journal panic, take up absurd memory, or invent a record.

use crate::support::{Driver, History, SEGMENT_BYTES, body, check_index, recover, segment_files};
use millpond_journal::{SECTOR_BYTES, simulated::SimulatedDisk};
use proptest::prelude::*;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Whether `records` are among those that were pushed, in their order and without a gap.
fn is_part_of(history: &History, records: &[crate::support::Record]) -> bool {
    records.is_empty() || history.records.windows(records.len()).any(|part| part == records)
}

#[test]
fn a_body_that_imitates_frames_forges_none() {
    // The worst case: the body holds genuine frames of this very log, at the right alignment.
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"first");
    driver.enqueue(b"second");
    driver.commit(true).unwrap();
    driver.writer.mark_synced_if_needed().unwrap();
    let genuine = disk.bytes("00000001.log");
    let start = driver.writer.end().offset as usize;
    // Frame header, record header and counter come before the body.
    let mut imitation = vec![0; SECTOR - (64 + 20 + 8)];
    imitation.extend_from_slice(&genuine[..start]);
    driver.enqueue(&imitation);
    driver.commit(false).unwrap();
    let whole = disk.crash_with(|_| true);
    let end = driver.writer.end().offset as usize;
    assert_eq!(&whole.bytes("00000001.log")[start + SECTOR..start + SECTOR + start], &genuine[..start]);

    let recovered = recover(&whole).unwrap();
    assert_eq!(recovered.records, driver.history.records, "intact, it is just a body");
    for sector in (start..end).step_by(SECTOR) {
        let torn = disk.crash_with(|_| true);
        torn.zero("00000001.log", sector..sector + SECTOR);
        let recovered = recover(&torn).unwrap();
        assert_eq!(recovered.records, driver.history.records[..2], "torn at {sector}");
    }
}

/// A log that lives a little, with a torn tail.
pub(crate) fn lived(seed: u64) -> (SimulatedDisk, History) {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        driver.enqueue(&body(chance.u64(..), chance.usize(0..1500)));
        driver.settle(chance.usize(0..2));
        driver.commit(chance.bool()).unwrap();
        if chance.bool() {
            driver.reclaim().unwrap();
        }
        if chance.bool() {
            driver.prepare_next().unwrap();
        }
    }
    (disk.crash_with(|_| chance.bool()), driver.history)
}

#[derive(Clone, Debug)]
pub(crate) enum Mutilation {
    Flip { at: usize, mask: u8 },
    Zero { at: usize, length: usize },
    Noise { at: usize, bytes: Vec<u8> },
    CopySector { from: usize, to: usize },
    Truncate { length: usize },
    SwapSegments,
    Lose,
}

pub(crate) fn mutilation() -> impl Strategy<Value = Mutilation> {
    let at = || 0..SEGMENT_BYTES as usize;
    let sector = || 0..SEGMENT_BYTES as usize / SECTOR;
    prop_oneof![
        4 => (at(), 1_u8..).prop_map(|(at, mask)| Mutilation::Flip { at, mask }),
        2 => (at(), 1_usize..2000).prop_map(|(at, length)| Mutilation::Zero { at, length }),
        2 => (at(), proptest::collection::vec(any::<u8>(), 1..600))
            .prop_map(|(at, bytes)| Mutilation::Noise { at, bytes }),
        4 => (sector(), sector())
            .prop_map(|(from, to)| Mutilation::CopySector { from: from * SECTOR, to: to * SECTOR }),
        1 => at().prop_map(|length| Mutilation::Truncate { length }),
        1 => Just(Mutilation::SwapSegments),
        1 => Just(Mutilation::Lose),
    ]
}

pub(crate) fn mutilate(disk: &SimulatedDisk, which: usize, mutilation: Mutilation) {
    mutilate_one(disk, &segment_files(disk), which, mutilation);
}

pub(crate) fn mutilate_one(disk: &SimulatedDisk, names: &[String], which: usize, mutilation: Mutilation) {
    let Some(name) = names.get(which % names.len().max(1)) else { return };
    let other = &names[(which + 1) % names.len()];
    let mut bytes = disk.bytes(name);
    let length = bytes.len();
    match mutilation {
        Mutilation::Flip { at, mask } if at < length => bytes[at] ^= mask,
        Mutilation::Zero { at, length: count } if at < length => bytes[at..(at + count).min(length)].fill(0),
        Mutilation::Noise { at, bytes: noise } if at + noise.len() <= length => {
            bytes[at..at + noise.len()].copy_from_slice(&noise);
        }
        Mutilation::CopySector { from, to } if from.max(to) + SECTOR <= length => {
            bytes.copy_within(from..from + SECTOR, to);
        }
        Mutilation::Truncate { length } => bytes.truncate(length),
        Mutilation::SwapSegments => {
            let theirs = disk.bytes(other);
            disk.put(other, std::mem::replace(&mut bytes, theirs));
        }
        Mutilation::Lose => return disk.take(name),
        _ => {}
    }
    disk.put(name, bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutilated_log_is_refused_or_yields_nothing_but_its_own_records(
        seed in 0_u64..64,
        mutilations in proptest::collection::vec((0_usize..8, mutilation()), 1..6),
    ) {
        let (disk, history) = lived(seed);
        for (which, mutilation) in mutilations {
            mutilate(&disk, which, mutilation);
        }
        if let Ok(recovered) = recover(&disk) {
            prop_assert!(is_part_of(&history, &recovered.records));
            check_index(&recovered);
            let again = recover(&disk).expect("what was accepted stays readable");
            prop_assert_eq!(again.records, recovered.records);
        }
    }

    #[test]
    fn noise_in_place_of_segments_never_panics_and_yields_nothing(
        files in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4000), 1..4),
        first in 1_u32..3,
        own_format in any::<bool>(),
    ) {
        let disk = SimulatedDisk::new();
        drop(recover(&disk).unwrap());
        disk.take("00000001.log");
        if !own_format {
            disk.put("format", files[0].clone());
        }
        for (number, bytes) in (first..).zip(files) {
            disk.put(&format!("{number:08}.log"), bytes);
        }
        if let Ok(recovered) = recover(&disk) {
            prop_assert!(recovered.records.is_empty());
        }
    }
}

#[test]
fn strange_names_are_left_alone() {
    let disk = SimulatedDisk::new();
    for name in ["1.log", "0000000x.log", "99999999999.log", "notes.txt"] {
        disk.put(name, vec![1]);
    }
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"x");
    driver.commit(true).unwrap();
    assert_eq!(recover(&disk).unwrap().records.len(), 1);
    assert_eq!(disk.bytes("notes.txt"), [1]);
}
