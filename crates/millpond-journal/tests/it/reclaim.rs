//! The index's rules against a model that knows every record: no live anchor is ever deleted, and the disk bound
//! holds whatever is superseded.

use crate::support::{Driver, SEGMENT_BYTES, body, check_index, has_kind, recover, segment_files};
use millpond_journal::{Pressure, Reclaim, simulated::SimulatedDisk};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Enqueue { length: usize },
    Supersede { which: usize, length: usize },
    Finish { which: usize },
    Commit { sync: bool },
    Prepare,
    Seal,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..2500).prop_map(|length| Step::Enqueue { length }),
        3 => (0_usize..64, 0_usize..2500).prop_map(|(which, length)| Step::Supersede { which, length }),
        2 => (0_usize..64).prop_map(|which| Step::Finish { which }),
        2 => any::<bool>().prop_map(|sync| Step::Commit { sync }),
        1 => Just(Step::Prepare),
        1 => Just(Step::Seal),
    ]
}

/// Bytes of segments and indexes, and of the files ahead of the log: the next segment and the spare file.
fn disk_bytes(disk: &SimulatedDisk, current: u32) -> (u64, u64) {
    let (mut log, mut ahead) = (0, 0);
    for name in disk.names() {
        let bytes = disk.bytes(&name).len() as u64;
        let number = name.split('.').next().and_then(|number| number.parse::<u32>().ok());
        match (number, has_kind(&name, "spare")) {
            (Some(number), false) if number <= current => log += bytes,
            (Some(_), _) => ahead += bytes,
            (None, _) => {}
        }
    }
    (log, ahead)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_live_anchor_is_deleted_and_the_disk_bound_holds(steps in proptest::collection::vec(step(), 1..120)) {
        let disk = SimulatedDisk::new();
        let mut driver = Driver::start(&disk).unwrap();
        for step in steps {
            match step {
                Step::Enqueue { length } => drop(driver.enqueue(&body(1, length))),
                Step::Supersede { which, length } => driver.supersede(which, &body(2, length)),
                Step::Finish { which } => driver.settle(which),
                Step::Commit { sync } => driver.commit(sync).unwrap(),
                Step::Prepare => driver.prepare_next().unwrap(),
                Step::Seal => driver.seal().unwrap(),
            }
            if driver.writer.pending_bytes() > 3000 || driver.has_finished() {
                driver.commit(false).unwrap();
            }
            if driver.writer.pending_records() > 0 {
                continue;
            }
            let mut rounds = 0;
            while driver.reclaim().unwrap() {
                rounds += 1;
                prop_assert!(rounds < 1000, "reclaiming comes to an end");
            }
            let (live, total) = (driver.index.live_bytes(), driver.index.total_bytes());
            prop_assert_eq!(live, driver.live_bytes());
            prop_assert!(total <= 2 * live + 3 * u64::from(SEGMENT_BYTES), "{} for {} live", total, live);
            let (log, ahead) = disk_bytes(&disk, driver.writer.end().segment);
            prop_assert_eq!(log, total, "the index knows every segment and index");
            prop_assert!(
                log + ahead <= 2 * live + 4 * u64::from(SEGMENT_BYTES),
                "{} and {} ahead for {} live", log, ahead, live
            );
        }
        if driver.writer.pending_records() > 0 {
            driver.commit(true).unwrap();
        }
        for (key, payload) in driver.live() {
            let position = driver.index.get(*key).unwrap();
            prop_assert_eq!(&driver.files.read(position).unwrap()[..], &payload[..]);
        }
        let recovered = recover(&disk.crash_with(|_| true)).unwrap();
        driver.history.check(&recovered.records);
        check_index(&recovered);
        let mut index = recovered.index;
        index.retain(|key| driver.live().contains_key(&key));
        prop_assert_eq!(index.len(), driver.live().len());
        prop_assert_eq!(index.live_bytes(), driver.live_bytes());
    }
}

#[test]
fn any_number_of_supersessions_stays_within_the_bound() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    for _ in 0..40 {
        driver.enqueue(&body(1, 500));
        driver.commit(false).unwrap();
    }
    for round in 0..2000 {
        // One message is never touched; the others are rewritten over and over.
        driver.supersede(1 + round % 39, &body(3, 500));
        driver.commit(false).unwrap();
        while driver.reclaim().unwrap() {}
        let allowed = 2 * driver.index.live_bytes() + 4 * u64::from(SEGMENT_BYTES);
        let files = segment_files(&disk).len() as u64;
        assert!(files * u64::from(SEGMENT_BYTES) <= allowed);
    }
    assert!(driver.writer.oldest_segment() > 50);
}

#[test]
fn a_copy_that_was_not_made_is_asked_for_again() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"stays");
    for _ in 0..30 {
        let key = driver.enqueue(&body(1, 2000));
        driver.commit(true).unwrap();
        driver.index.forget(key);
    }
    let first = driver.index.next_reclaim(Pressure::None);
    assert_eq!(first, Reclaim::Copy(vec![1]));
    assert_eq!(driver.index.next_reclaim(Pressure::None), first);
    driver.index.forget(1);
    let delete = driver.index.next_reclaim(Pressure::None);
    assert!(matches!(delete, Reclaim::Delete { segment: 1, keep_file: false, .. }), "{delete:?}");
    assert_eq!(driver.index.oldest_segment(), 2);
}

#[test]
fn a_key_anchored_twice_in_a_segment_is_copied_once() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"first copy");
    driver.enqueue(b"stays, too");
    driver.commit(true).unwrap();
    driver.supersede(0, b"second copy");
    driver.commit(true).unwrap();
    for _ in 0..30 {
        let key = driver.enqueue(&body(1, 2000));
        driver.commit(true).unwrap();
        driver.index.forget(key);
    }
    assert_eq!(driver.index.next_reclaim(Pressure::None), Reclaim::Copy(vec![1, 2]));
}

#[test]
fn segments_report_their_live_share() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    for _ in 0..6 {
        driver.enqueue(&body(1, 2000));
        driver.commit(true).unwrap();
    }
    let segments: Vec<_> = driver.index.segments().collect();
    let bytes = u64::from(SEGMENT_BYTES);
    assert_eq!(segments, [(1, 2 * 2028, bytes), (2, 2 * 2028, bytes), (3, 2 * 2028, bytes)]);
    assert_eq!((driver.index.live_bytes(), driver.index.total_bytes()), (6 * 2028, 3 * bytes));
}

/// A log of `segments` segments in which nothing is alive, and an index that knows a preamble in the first.
fn with_preamble(segments: u32, bytes: u64) -> Driver {
    let mut driver = Driver::start(&SimulatedDisk::new()).unwrap();
    driver.index.wrote_preamble(bytes);
    while driver.writer.end().segment < segments {
        let key = driver.enqueue(&body(1, 2000));
        driver.commit(true).unwrap();
        driver.finish(key);
    }
    driver
}

#[test]
fn a_preamble_is_asked_for_only_where_its_last_copy_goes() {
    let mut driver = with_preamble(3, 1000);
    assert_eq!(driver.index.live_bytes(), 1000);
    let delete = |index: &mut millpond_journal::Index| match index.next_reclaim(Pressure::None) {
        Reclaim::Delete { segment, preamble, .. } => Some((segment, preamble)),
        _ => None,
    };
    assert_eq!(driver.index.oldest_live_bytes(), 1000);
    assert_eq!(delete(&mut driver.index), Some((1, true)));
    driver.index.wrote_preamble(1000);
    assert_eq!(driver.index.oldest_live_bytes(), 0);
    assert_eq!(delete(&mut driver.index), Some((2, false)), "it lies in the third now");
    assert_eq!(delete(&mut driver.index), None, "the last segment stays");
    assert_eq!(driver.index.oldest_live_bytes(), 1000);
}

#[test]
fn a_preamble_larger_than_what_its_segment_wins_is_left_alone_until_the_bound_asks_for_it() {
    let large = u64::from(SEGMENT_BYTES);
    let mut driver = with_preamble(5, large);
    assert_eq!(driver.index.next_reclaim(Pressure::None), Reclaim::Nothing, "twice its bytes are allowed");
    let mut driver = with_preamble(6, large);
    let delete = driver.index.next_reclaim(Pressure::None);
    assert!(matches!(delete, Reclaim::Delete { segment: 1, preamble: true, .. }), "{delete:?}");
    let mut driver = with_preamble(5, large);
    let delete = driver.index.next_reclaim(Pressure::Oldest);
    assert!(matches!(delete, Reclaim::Delete { segment: 1, preamble: true, .. }), "{delete:?}");
}

#[test]
fn a_key_grows_until_its_next_anchor_and_so_does_its_segment() {
    let mut driver = Driver::start(&SimulatedDisk::new()).unwrap();
    for _ in 0..3 {
        driver.enqueue(&body(1, 500));
    }
    driver.commit(true).unwrap();
    let alive = |driver: &Driver| {
        driver.index.alive().fold((0, 0), |sum, one| (sum.0 + one.copies_bytes, sum.1 + one.copies))
    };
    let (bytes, copies) = alive(&driver);
    assert_eq!((bytes, copies), (driver.index.live_bytes(), 3));
    for (key, by) in [(1, 10), (1, 5), (2, 100), (3, 1000), (99, 7)] {
        driver.index.grew(key, by);
    }
    assert_eq!(alive(&driver), (bytes + 1115, 3), "what has no anchor does not grow");
    assert_eq!(driver.index.oldest_live_bytes(), bytes + 1115);
    driver.supersede(0, &body(1, 500));
    driver.commit(true).unwrap();
    assert_eq!(alive(&driver), (bytes + 1100, 3), "the new copy has it all");
    driver.index.forget(2);
    driver.index.retain(|key| key != 3);
    assert_eq!(alive(&driver), (driver.index.live_bytes(), 1));
}
