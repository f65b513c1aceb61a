//! Inspection finds damage exactly where recovery refuses, and goes on to what is still there.

use crate::damage::{Sample, name, sample};
use crate::hostile::{Mutilation, lived, mutilate, mutilate_one, mutilation};
use crate::seal::sealed;
use crate::support::{Driver, Record, SEGMENT_BYTES, body, has_kind, recover, recover_heads};
use millpond_journal::inspect::{Fault, FaultKind, InspectedRecord, Inspection, Visitor, inspect};
use millpond_journal::{OpenError, Place, SECTOR_BYTES, simulated::SimulatedDisk};
use proptest::prelude::*;
use std::sync::Arc;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Records that can be read, and the heads of those of which nothing else is left.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) Vec<Record>, Vec<Record>);

impl Visitor for Seen {
    fn record(&mut self, record: InspectedRecord<'_>) {
        let InspectedRecord { key, anchor, head, payload, .. } = record;
        let seen = if payload.is_some() { &mut self.0 } else { &mut self.1 };
        seen.push(Record { key, anchor, payload: payload.unwrap_or(head).to_vec() });
    }
}

pub(crate) fn look(disk: &SimulatedDisk) -> Result<(Inspection, Vec<Record>), OpenError> {
    look_at_all(disk).map(|(inspection, seen)| (inspection, seen.0))
}

fn look_at_all(disk: &SimulatedDisk) -> Result<(Inspection, Seen), OpenError> {
    let operations = disk.operations();
    let mut seen = Seen::default();
    let inspection = inspect(disk, &mut seen)?;
    assert_eq!(disk.operations(), operations, "an inspection changes nothing");
    assert_eq!((inspection.records, inspection.heads), (seen.0.len() as u64, seen.1.len() as u64));
    Ok((inspection, seen))
}

fn disk_has(disk: &SimulatedDisk, file: &str) -> bool {
    disk.names().iter().any(|name| name == file)
}

/// Whether `part` can be had from `whole` by leaving out records.
fn is_subsequence(part: &[Record], whole: &[Record]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|record| whole.any(|other| other == record))
}

/// Inspection and recovery must agree on a damaged `disk`; returns whether they refuse it.
pub(crate) fn agree(disk: &SimulatedDisk, history: &[Record], what: &str) -> bool {
    let inspected = look(disk);
    // Of a copy: recovery deletes and makes files.
    let recovered = recover_heads(Arc::new(disk.crash_with(|_| true)));
    match (inspected, recovered) {
        (Ok((inspection, seen)), Ok(recovered)) => {
            // Recovery does not look into a segment that has an index, nor does it believe an index against a damaged
            // last frame.
            let has_index = |fault: &Fault| {
                let segment = fault.place.segment;
                [segment, segment - 1].iter().any(|segment| disk_has(disk, &format!("{segment:08}.index")))
            };
            assert!(inspection.faults.iter().all(has_index), "{what}: accepted, {:?}", inspection.faults);
            if inspection.is_whole() {
                assert_eq!(seen.len(), recovered.records.len(), "{what}");
                for (seen, replayed) in seen.iter().zip(&recovered.records) {
                    assert_eq!((seen.key, seen.anchor), (replayed.key, replayed.anchor), "{what}");
                    assert!(seen.payload.starts_with(&replayed.payload), "{what}");
                }
            }
            false
        }
        (Ok((inspection, seen)), Err(error)) => {
            assert!(!inspection.is_whole(), "{what}: recovery refuses this: {error}");
            // A misdirected write may show a record at two places; none may appear that was never written.
            assert!(seen.iter().all(|record| history.contains(record)), "{what}: a record from nowhere");
            if let OpenError::Corrupt { place } = error {
                let first = inspection.faults[0].place;
                assert!(first.segment <= place.segment, "{what}: {first:?} named, {place:?} refused");
            }
            true
        }
        (Err(_), Err(_)) => true,
        (Err(error), Ok(_)) => panic!("{what}: recovery accepts this: {error}"),
    }
}

#[test]
fn a_whole_log_has_no_fault_and_every_record_is_seen() {
    let Sample { disk, history, end, .. } = sample(2);
    let (inspection, seen) = look(&disk).unwrap();
    assert!(inspection.is_whole());
    assert_eq!(seen, history.records);
    assert_eq!(inspection.end, Some(end));
    assert_eq!((inspection.segments.len(), inspection.epoch), (3, 1));
    assert_eq!(inspection.segments.iter().map(|segment| segment.records).sum::<u64>(), inspection.records);
}

#[test]
fn every_damaged_sector_is_a_fault_exactly_where_recovery_refuses() {
    let sample = sample(3);
    let (mut refused, mut accepted) = (0, 0);
    for segment in 1..=3 {
        for offset in (0..SEGMENT_BYTES as usize).step_by(SECTOR) {
            for at in [None, Some(0), Some(9), Some(60), Some(70), Some(SECTOR - 1)] {
                let disk = sample.copy();
                match at {
                    None => disk.zero(&name(segment), offset..offset + SECTOR),
                    Some(at) => disk.flip(&name(segment), offset + at, 0x10),
                }
                let what = format!("segment {segment}, offset {offset}, {at:?}");
                if agree(&disk, &sample.history.records, &what) { refused += 1 } else { accepted += 1 }
            }
        }
    }
    assert!(refused > 100 && accepted > 20, "covered too little: {refused} refused, {accepted} accepted");
}

#[test]
fn one_damaged_frame_costs_no_record_of_another() {
    let sample = sample(0);
    for (group, end) in sample.ends.iter().enumerate().take(sample.ends.len() - 1) {
        let disk = sample.copy();
        // The last byte of padding: every record in the frame is still whole.
        disk.flip(&name(end.segment), end.offset as usize - 1, 1);
        let (inspection, seen) = look(&disk).unwrap();
        assert_eq!(inspection.faults.len(), 1, "{:?}", inspection.faults);
        let fault = inspection.faults[0];
        assert_eq!((fault.kind, fault.frames, fault.records_found), (FaultKind::Frame, 1, 2));
        assert_eq!(seen, sample.history.records, "group {group}");
        // A byte of the second record: the first is still there.
        let disk = sample.copy();
        disk.zero(&name(end.segment), end.offset as usize - SECTOR..end.offset as usize);
        let (inspection, seen) = look(&disk).unwrap();
        assert_eq!((inspection.faults.len(), inspection.faults[0].frames), (1, 1));
        let lost = sample.history.records.iter().filter(|record| !seen.contains(record)).count();
        assert!((1..=2).contains(&lost), "group {group} lost {lost}");
        assert!(is_subsequence(&seen, &sample.history.records));
    }
}

#[test]
fn missing_segments_are_named_and_the_rest_is_read() {
    let sample = sample(0);
    for (gone, named) in [(1, 1), (2, 2)] {
        let disk = sample.copy();
        disk.take(&name(gone));
        let (inspection, seen) = look(&disk).unwrap();
        let fault = inspection.faults[0];
        assert_eq!((fault.place.segment, fault.kind), (named, FaultKind::MissingSegments { count: 1 }));
        assert_eq!(inspection.faults.len(), 1, "{:?}", inspection.faults);
        let kept = sample.history.records.iter().zip(&sample.history.segments);
        let kept: Vec<_> =
            kept.filter(|(_, segment)| **segment != gone).map(|(record, _)| record.clone()).collect();
        assert_eq!(seen, kept);
    }
}

#[test]
fn a_gap_of_four_thousand_million_segments_is_one_fault() {
    let sample = sample(0);
    let disk = sample.copy();
    disk.put(&name(u32::MAX), vec![0; SEGMENT_BYTES as usize]);
    let (inspection, _) = look(&disk).unwrap();
    assert_eq!(inspection.faults.len(), 1);
    assert!(
        matches!(inspection.faults[0].kind, FaultKind::MissingSegments { count } if count == u32::MAX - 4)
    );
}

#[test]
fn a_shortened_segment_is_a_fault_with_both_lengths() {
    let sample = sample(0);
    for length in [0, 10, 512, 4096, 5000, 8191] {
        for segment in 1..=3 {
            let disk = sample.copy();
            disk.truncate(&name(segment), length);
            let what = format!("segment {segment} cut to {length}");
            assert!(agree(&disk, &sample.history.records, &what));
            let (inspection, _) = look(&disk).unwrap();
            let is_length = |kind| matches!(kind, FaultKind::Length { found, .. } if found == length as u64);
            assert!(
                inspection.faults.iter().any(|fault| is_length(fault.kind)),
                "{what}: {:?}",
                inspection.faults
            );
        }
    }
}

#[test]
fn frames_whose_place_was_taken_by_zeros_are_counted() {
    let sample = sample(0);
    let disk = sample.copy();
    let last = sample.ends.iter().rev().find(|end| end.segment == 1).unwrap();
    let before = sample.ends.iter().rev().filter(|end| end.segment == 1).nth(1).unwrap();
    disk.zero(&name(1), before.offset as usize..last.offset as usize);
    let (inspection, _) = look(&disk).unwrap();
    let fault = inspection.faults[0];
    assert_eq!((fault.kind, fault.frames, fault.place), (FaultKind::Gap, 1, *before));
}

#[test]
fn a_log_that_is_written_while_it_is_read_has_no_fault() {
    // The writer goes on after every record that is seen, slowly or so fast that it overtakes the reader.
    struct Busy<'a> {
        driver: &'a mut Driver,
        body_bytes: usize,
        seen: u64,
    }
    impl Visitor for Busy<'_> {
        fn record(&mut self, _: InspectedRecord<'_>) {
            self.seen += 1;
            self.driver.enqueue(&body(self.seen, self.body_bytes));
            self.driver.settle(0);
            self.driver.commit(self.seen.is_multiple_of(3)).unwrap();
            let is_slow = self.body_bytes < 1000;
            let steps = if is_slow { usize::from(self.seen.is_multiple_of(4)) } else { usize::MAX };
            for _ in 0..steps {
                if !self.driver.reclaim().unwrap() {
                    break;
                }
            }
        }
    }
    for (body_bytes, at_least) in [(0, 50), (100, 50), (300, 50), (2000, 9)] {
        let disk = SimulatedDisk::new();
        let mut driver = Driver::start(&disk).unwrap();
        for seed in 0..60 {
            driver.enqueue(&body(seed, 700));
            driver.settle(2);
            driver.commit(true).unwrap();
        }
        let start = driver.writer.end().segment;
        let mut busy = Busy { driver: &mut driver, body_bytes, seen: 0 };
        let inspection = inspect(&disk, &mut busy).unwrap();
        assert_eq!(inspection.faults, [], "with bodies of {body_bytes} bytes");
        assert!(busy.seen >= at_least, "with bodies of {body_bytes} bytes: {}, {inspection:?}", busy.seen);
        assert!(inspection.end.unwrap().segment >= start, "it came to the end");
    }
}

#[test]
fn a_lost_format_file_costs_nothing_while_frames_are_whole() {
    let sample = sample(0);
    let damage: [&dyn Fn(&SimulatedDisk); 4] =
        [&|_| {}, &|disk| disk.zero(&name(1), 0..SECTOR), &|disk| disk.flip(&name(2), 3, 1), &|disk| {
            disk.take(&name(3));
        }];
    for (case, damage) in damage.iter().enumerate() {
        let known = sample.copy();
        damage(&known);
        let (with_format, seen) = look(&known).unwrap();
        for lose in
            [&|disk: &SimulatedDisk| disk.take("format"), &|disk: &SimulatedDisk| disk.flip("format", 30, 1)]
                as [&dyn Fn(&SimulatedDisk); 2]
        {
            let disk = sample.copy();
            damage(&disk);
            lose(&disk);
            let (inspection, seen_without) = look(&disk).unwrap();
            assert!(inspection.format_lost && !inspection.is_whole());
            assert_eq!(seen_without, seen, "case {case}");
            assert_eq!(Inspection { format_lost: false, ..inspection }, with_format);
        }
    }
}

#[test]
fn without_format_file_and_frames_nothing_is_made_up() {
    let disk = SimulatedDisk::new();
    disk.put(&name(1), vec![0; SEGMENT_BYTES as usize]);
    disk.put(&name(2), body(1, SEGMENT_BYTES as usize));
    assert!(matches!(look(&disk), Err(OpenError::FormatFile)));
    assert!(look(&SimulatedDisk::new()).unwrap().0.is_whole(), "an empty directory is none of damage");
}

#[test]
fn damage_anywhere_in_a_sealed_segment_is_found_and_costs_bodies_only() {
    let (disk, driver) = sealed(3);
    let (inspection, seen) = look(&disk).unwrap();
    assert_eq!((inspection.faults, &seen), (Vec::new(), &driver.history.records));
    assert!(inspection.segments[..2].iter().all(|segment| segment.index_bytes > 0));
    for segment in 1..=2 {
        let used =
            driver.ends.iter().filter(|end| end.segment == segment).map(|end| end.offset).max().unwrap();
        for offset in (0..used as usize).step_by(SECTOR) {
            let damaged = disk.crash_with(|_| true);
            damaged.zero(&name(segment), offset..offset + SECTOR);
            if damaged.bytes(&name(segment)) == disk.bytes(&name(segment)) {
                continue;
            }
            let what = format!("segment {segment}, offset {offset}");
            let (inspection, seen) = look_at_all(&damaged).unwrap();
            assert_eq!(inspection.faults.len(), 1, "{what}: {:?}", inspection.faults);
            let fault = inspection.faults[0];
            assert_eq!(
                (fault.kind, fault.frames, fault.place.segment),
                (FaultKind::Frame, 1, segment),
                "{what}"
            );
            // Every record is known: whole, or by its head, which is its first eight bytes.
            let mut known =
                seen.0.iter().chain(&seen.1).map(|record| &record.payload[..8]).collect::<Vec<_>>();
            known.sort_unstable();
            let mut written =
                driver.history.records.iter().map(|record| &record.payload[..8]).collect::<Vec<_>>();
            written.sort_unstable();
            assert_eq!(known, written, "{what}");
            agree(&damaged, &driver.history.records, &what);
        }
    }
}

#[test]
fn a_damaged_index_is_found_and_costs_nothing() {
    let (disk, driver) = sealed(3);
    let length = disk.bytes("00000001.index").len();
    for at in (0..length).step_by(7) {
        let damaged = disk.crash_with(|_| true);
        damaged.flip("00000001.index", at, 1);
        let (inspection, seen) = look(&damaged).unwrap();
        let faults: Vec<_> =
            inspection.faults.iter().map(|fault| (fault.place.segment, fault.kind)).collect();
        assert_eq!(faults, [(1, FaultKind::Index)], "flipped {at}");
        assert_eq!(seen, driver.history.records);
    }
    // An index of another segment, with a checksum that is right.
    let other = disk.crash_with(|_| true);
    other.put("00000001.index", disk.bytes("00000002.index"));
    assert_eq!(look(&other).unwrap().0.faults[0].kind, FaultKind::Index);
}

#[test]
fn of_a_missing_segment_its_index_knows_every_head() {
    let (disk, driver) = sealed(4);
    let damaged = disk.crash_with(|_| true);
    damaged.take(&name(2));
    let (inspection, seen) = look_at_all(&damaged).unwrap();
    assert_eq!(inspection.faults.len(), 1, "{:?}", inspection.faults);
    let fault = inspection.faults[0];
    assert_eq!(fault.kind, FaultKind::MissingSegments { count: 1 });
    let records = driver.history.records.len();
    assert_eq!(seen.0.len() + seen.1.len(), records);
    assert_eq!(
        fault.records_found + fault.heads_found,
        (records as u64) - inspection.records + fault.records_found
    );
    assert!(fault.heads_found > 3);
}

#[test]
fn a_newest_segment_that_an_index_announces_is_missed() {
    let (disk, driver) = sealed(3);
    let damaged = disk.crash_with(|_| true);
    damaged.take(&name(3));
    assert!(agree(&damaged, &driver.history.records, "segment 3"));
    let fault = look(&damaged).unwrap().0.faults[0];
    assert_eq!((fault.place.segment, fault.kind), (3, FaultKind::MissingSegments { count: 1 }));
    let damaged = disk.crash_with(|_| true);
    damaged.zero(&name(3), 0..SEGMENT_BYTES as usize);
    assert!(agree(&damaged, &driver.history.records, "the content of segment 3"));
}

#[test]
fn frames_are_lost_even_where_nothing_behind_them_was_synced() {
    // The last frame of a segment is gone; the next segment begins as it should, and has seen no sync of its own.
    let sample = sample(0);
    let last = sample.ends.iter().rev().find(|end| end.segment == 2).unwrap();
    let disk = sample.copy();
    disk.zero(&name(2), last.offset as usize - SECTOR..last.offset as usize);
    let start = Place { segment: 3, offset: 512 };
    disk.zero(&name(3), start.offset as usize..SEGMENT_BYTES as usize);
    assert!(agree(&disk, &sample.history.records, "the end of segment 2"));
    assert_eq!(look(&disk).unwrap().0.end, Some(start), "what follows is still there");
}

/// The log of [`lived`], with indexes for every second `seed`, after these changes to segments and to indexes.
fn mutilated(
    seed: u64,
    segments: Vec<(usize, Mutilation)>,
    indexes: Vec<(usize, Mutilation)>,
) -> (SimulatedDisk, Vec<Record>) {
    let (disk, history) = lived(seed);
    if seed.is_multiple_of(2) {
        let mut opened = recover(&disk).unwrap();
        let synced = opened.writer.synced().segment;
        while let Some(segment) = opened.index.next_to_seal(synced) {
            opened.sealer.seal(segment).unwrap();
        }
    }
    for (which, mutilation) in segments {
        mutilate(&disk, which, mutilation);
    }
    for (which, mutilation) in indexes {
        let names: Vec<_> = disk.names().into_iter().filter(|name| has_kind(name, "index")).collect();
        mutilate_one(&disk, &names, which, mutilation);
    }
    (disk, history.records)
}

#[test]
fn a_segment_that_an_index_announces_is_missed_behind_a_damaged_frame_too() {
    // The frame at the end of segment 2 has another one in its place, and segment 3 is gone.
    let (disk, driver) = sealed(3);
    let ends: Vec<_> = driver.ends.iter().filter(|end| end.segment == 2).map(|end| end.offset).collect();
    let [.., last, end] = ends[..] else { panic!("segment 2 has frames") };
    let mut bytes = disk.bytes(&name(2));
    bytes.copy_within(0..SECTOR, last as usize);
    disk.put(&name(2), bytes);
    disk.take(&name(3));
    assert!(agree(&disk, &driver.history.records, "both"));
    let faults = look(&disk).unwrap().0.faults;
    let named: Vec<_> = faults.iter().map(|fault| (fault.place, fault.bytes, fault.kind)).collect();
    let gone = FaultKind::MissingSegments { count: 1 };
    let place = |segment, offset| Place { segment, offset };
    assert_eq!(named, [(place(2, last), u64::from(end - last), FaultKind::Frame), (place(3, 0), 0, gone)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_the_files_inspection_and_recovery_agree(
        seed in any::<u64>(),
        segments in proptest::collection::vec((any::<usize>(), mutilation()), 1..4),
        indexes in proptest::collection::vec((any::<usize>(), mutilation()), 0..2),
    ) {
        let (disk, history) = mutilated(seed, segments, indexes);
        agree(&disk, &history, "mutilated");
    }
}
