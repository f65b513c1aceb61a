//! Complete segments are read by their index at a restart. An index that is missing, old, torn or damaged changes
//! nothing but the time it takes.

use crate::inspect::agree;
use crate::support::{Driver, SEGMENT_BYTES, body, has_kind, recover, recover_heads};
use millpond_journal::{OpenError, Place, ReadError, SealError, ToSeal, simulated::SimulatedDisk};
use std::sync::Arc;

/// A log over `segments` segments, all but the last sealed, everything synced.
pub(crate) fn sealed(segments: u32) -> (SimulatedDisk, Driver) {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    let mut seed = 0;
    while driver.writer.end().segment < segments {
        seed += 1;
        driver.enqueue(&body(seed, 700));
        driver.enqueue(&body(seed + 1000, 100));
        driver.commit(true).unwrap();
    }
    driver.seal().unwrap();
    driver.enqueue(b"the last");
    driver.commit(true).unwrap();
    driver.writer.mark_synced_if_needed().unwrap();
    (disk.crash_with(|_| true), driver)
}

/// Without a bound.
fn whole(segment: u32) -> ToSeal {
    ToSeal { segment, index_bytes_max: u64::MAX }
}

fn heads(disk: &SimulatedDisk) -> Result<crate::support::Recovered, OpenError> {
    recover_heads(Arc::new(disk.clone()))
}

#[test]
fn a_sealed_segment_is_replayed_without_reading_its_middle() {
    let (disk, driver) = sealed(4);
    // Everything but the first and the last frame of the sealed segments is lost.
    for segment in 1..4 {
        let name = format!("{segment:08}.log");
        let last = driver.ends.iter().rev().filter(|end| end.segment == segment).nth(1).unwrap().offset;
        disk.zero(&name, 512..last as usize);
    }
    let mut recovered = heads(&disk).unwrap();
    assert_eq!(recovered.index.next_to_seal(4), None);
    assert_eq!(recovered.records.len(), driver.history.records.len());
    for (record, pushed) in recovered.records.iter().zip(&driver.history.records) {
        assert_eq!((record.key, record.anchor), (pushed.key, pushed.anchor));
        assert_eq!(record.payload[..], pushed.payload[..8], "the head");
    }
    assert_eq!(recovered.index.live_bytes(), driver.index.live_bytes());
    assert_eq!(recovered.index.total_bytes(), driver.index.total_bytes());
    assert_eq!(recovered.writer.end().segment, 4);
    // The loss is found by whoever reads.
    assert!(matches!(recovered.files.read(recovered.positions[0]), Err(ReadError::Damaged { .. })));
}

#[test]
fn an_index_that_is_missing_or_damaged_anywhere_changes_nothing_and_is_made_anew() {
    let (disk, driver) = sealed(3);
    let expected = recover(&disk.crash_with(|_| true)).unwrap();
    assert_eq!(expected.records, driver.history.records);
    for name in ["00000001.index", "00000002.index"] {
        let good = disk.bytes(name);
        for at in 0..=good.len() {
            let copy = disk.crash_with(|_| true);
            if at == good.len() {
                copy.take(name);
            } else {
                copy.flip(name, at, 0x20);
            }
            let mut recovered = recover(&copy).unwrap();
            assert_eq!(recovered.records, expected.records, "{name} byte {at}");
            assert_eq!(recovered.positions, expected.positions, "{name} byte {at}");
            let what = recovered.index.next_to_seal(3).unwrap();
            assert_eq!((what.segment, recovered.index.next_to_seal(3)), (name[..8].parse().unwrap(), None));
            recovered.sealer.seal(what).unwrap().unwrap();
            assert_eq!(copy.bytes(name), good);
        }
    }
}

#[test]
fn every_crash_while_an_index_is_written_leaves_a_log_that_recovers_to_the_same() {
    let (disk, driver) = sealed(3);
    for stale in [false, true] {
        for operation in 0..4 {
            for survives in [false, true] {
                let copy = disk.crash_with(|_| true);
                if stale {
                    copy.flip("00000001.index", 200, 1);
                } else {
                    copy.take("00000001.index");
                }
                let opened = recover(&copy).unwrap();
                copy.power_off_at(copy.operations() + operation);
                let finished = opened.sealer.seal(whole(1)).is_ok();
                let after = copy.crash_with(|_| survives);
                assert_eq!(recover(&after).unwrap().records, driver.history.records);
                assert_eq!(finished, operation >= 2, "creation and the directory's sync");
            }
        }
    }
}

#[test]
fn an_index_of_another_segment_or_of_another_life_of_the_number_is_ignored() {
    let (disk, driver) = sealed(4);
    let swapped = disk.crash_with(|_| true);
    swapped.put("00000001.index", disk.bytes("00000002.index"));
    let mut recovered = recover(&swapped).unwrap();
    assert_eq!(recovered.records, driver.history.records);
    assert_eq!(recovered.index.next_to_seal(4).unwrap().segment, 1);

    // Another log of the same directory's salt, with other records in a segment of the same number.
    let other = SimulatedDisk::new();
    let mut theirs = Driver::start(&other).unwrap();
    while theirs.writer.end().segment < 3 {
        theirs.enqueue(&body(77, 650));
        theirs.commit(true).unwrap();
    }
    theirs.seal().unwrap();
    for number in [1, 2] {
        let name = format!("{number:08}.index");
        let copy = disk.crash_with(|_| true);
        copy.put(&name, other.bytes(&name));
        assert_eq!(recover(&copy).unwrap().records, driver.history.records, "{name}");
    }
}

#[test]
fn an_index_goes_with_its_segment_and_never_outlives_it() {
    let (disk, mut driver) = sealed(4);
    let mut recovered = recover(&disk).unwrap();
    crate::support::delete_oldest(&mut recovered.writer);
    assert!(!disk.names().contains(&"00000001.index".to_owned()));
    assert!(recovered.sealer.seal(whole(1)).unwrap().is_none(), "nothing is sealed that is given up");
    disk.put("00000001.index", vec![1; 300]);
    drop(recover(&disk).unwrap());
    let indexes: Vec<_> = disk.names().into_iter().filter(|name| has_kind(name, "index")).collect();
    assert_eq!(indexes, ["00000002.index", "00000003.index"]);
    driver.seal().unwrap();
}

#[test]
fn the_loss_of_what_follows_an_index_is_corruption() {
    let (disk, _) = sealed(3);
    let zeroed = disk.crash_with(|_| true);
    zeroed.zero("00000003.log", 0..SEGMENT_BYTES as usize);
    let error = heads(&zeroed).err().unwrap();
    let start = Place { segment: 3, offset: 0 };
    assert!(matches!(error, OpenError::Corrupt { place } if place == start), "{error}");
    let gone = disk.crash_with(|_| true);
    gone.take("00000003.log");
    let error = heads(&gone).err().unwrap();
    assert!(matches!(error, OpenError::MissingSegment { segment: 3 }), "{error}");
}

/// Damages the last frame of segment 2, which is before the place that the files prove to be synced.
type Damage = (&'static str, fn(&SimulatedDisk, std::ops::Range<usize>));
const DAMAGE_TO_THE_LAST_FRAME: [Damage; 4] = [
    ("nothing", |_, _| {}),
    ("a bit of its content", |disk, frame| disk.flip("00000002.log", frame.end - 1, 1)),
    ("all of it", |disk, frame| disk.zero("00000002.log", frame)),
    ("its first sector, taken by another frame", |disk, frame| {
        let mut bytes = disk.bytes("00000002.log");
        bytes.copy_within(0..512, frame.start);
        disk.put("00000002.log", bytes);
    }),
];
/// What becomes of segment 3, the newest with anything in it.
const LOSS_OF_THE_NEWEST: [Damage; 2] = [
    ("gone", |disk, _| disk.take("00000003.log")),
    ("zeros", |disk, _| disk.zero("00000003.log", 0..SEGMENT_BYTES as usize)),
];
const INDEX: [Damage; 3] = [
    ("whole", |_, _| {}),
    ("damaged", |disk, _| disk.flip("00000002.index", 20, 1)),
    ("gone", |disk, _| disk.take("00000002.index")),
];

#[test]
fn nothing_that_other_files_prove_to_be_synced_is_taken_for_a_torn_tail() {
    for prepared in [false, true] {
        let (disk, mut driver) = sealed(3);
        if prepared {
            driver.prepare_next().unwrap();
            disk.put("00000004.log", vec![0; SEGMENT_BYTES as usize]);
        }
        let ends: Vec<_> = driver.ends.iter().filter(|end| end.segment == 2).map(|end| end.offset).collect();
        let [.., start, end] = ends[..] else { panic!("segment 2 has frames") };
        let frame = start as usize..end as usize;
        for (damage, apply) in DAMAGE_TO_THE_LAST_FRAME {
            for (newest, lose) in LOSS_OF_THE_NEWEST {
                for (index, change) in INDEX {
                    let what = format!("{damage}, 3 {newest}, index {index}, prepared {prepared}");
                    let copy = disk.crash_with(|_| true);
                    for step in [apply, lose, change] {
                        step(&copy, frame.clone());
                    }
                    let refused = agree(&copy, &driver.history.records, &what);
                    // An index was made after segment 3 was begun; segment 4 after segment 2 was synced whole, of
                    // which a torn frame would have to be the end.
                    let torn_in_whole = damage.starts_with("a bit");
                    let proven = index != "gone" || (prepared && (newest == "gone" || torn_in_whole));
                    assert_eq!(refused, proven, "{what}");
                    let error = heads(&copy).err().filter(|_| index == "whole" && newest == "zeros");
                    if let Some(error) = error {
                        // Of a segment with an index, the last frame's header is looked at, not its content.
                        let is_header =
                            matches!(damage, "all of it" | "its first sector, taken by another frame");
                        let (segment, offset) = if is_header { (2, start) } else { (3, 0) };
                        let damaged = Place { segment, offset };
                        let named = matches!(error, OpenError::Corrupt { place } if place == damaged);
                        assert!(named, "{what}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_sealed_segment_whose_ends_are_damaged_is_refused() {
    let (disk, driver) = sealed(3);
    let last = driver.ends.iter().rev().filter(|end| end.segment == 1).nth(1).unwrap().offset;
    for offset in [0, last] {
        for at in [0, 30, 60] {
            let copy = disk.crash_with(|_| true);
            copy.flip("00000001.log", offset as usize + at, 1);
            let error = heads(&copy).err().unwrap();
            let damaged = Place { segment: 1, offset };
            assert!(matches!(error, OpenError::Corrupt { place } if place == damaged), "{error}");
        }
    }
}

#[test]
fn a_damaged_segment_is_not_sealed() {
    let (disk, _) = sealed(3);
    let opened = recover(&disk).unwrap();
    disk.flip("00000002.log", 700, 4);
    let error = opened.sealer.seal(whole(2)).err().unwrap();
    let damaged = Place { segment: 2, offset: 512 };
    assert!(matches!(error, SealError::Damaged { place } if place == damaged), "{error}");
    disk.flip("00000002.log", 700, 4);
    disk.set_capacity(Some(0));
    assert!(matches!(opened.sealer.seal(whole(2)), Err(SealError::Full { segment: 2 })));
}

#[test]
fn records_that_are_all_head_get_no_index_that_would_be_as_large_as_they_are() {
    let disk = SimulatedDisk::new();
    let mut recovered = recover(&disk).unwrap();
    for seed in 0..20 {
        recovered.writer.push(None, false, |buffer| buffer.extend_from_slice(&body(seed, 900)));
        recovered.writer.commit(true).unwrap();
    }
    assert!(recovered.sealer.seal(whole(1)).unwrap().is_none());
    assert!(!disk.names().contains(&"00000001.index".to_owned()));
}

#[test]
fn an_index_is_written_only_as_far_as_the_bound_on_disk_has_room() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    while driver.writer.end().segment < 4 {
        let key = driver.enqueue(&body(5, 700));
        driver.commit(true).unwrap();
        driver.finish(key);
    }
    // Nothing is live, four segments are there: three are allowed.
    assert_eq!(driver.index.next_to_seal(4), None);
    let (disk, _) = sealed(3);
    let opened = recover(&disk).unwrap();
    let index_bytes = disk.bytes("00000001.index").len() as u64;
    for (index_bytes_max, fits) in [(index_bytes, true), (index_bytes - 1, false)] {
        let what = ToSeal { segment: 1, index_bytes_max };
        assert_eq!(opened.sealer.seal(what).unwrap().is_some(), fits);
    }
}
