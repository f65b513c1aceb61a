//! Bytes that were written change or vanish: before the last position known to be synced that is corruption,
//! after it a torn tail.

use crate::support::{Driver, History, OPTIONS, Recovered, SEGMENT_BYTES, body, check_index, recover};
use millpond_journal::{FORMAT_VERSION, OpenError, Options, Place, SECTOR_BYTES, simulated::SimulatedDisk};

const SECTOR: usize = SECTOR_BYTES as usize;

pub(crate) fn name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// A log over three segments. Returns the disk, what was done, where every frame with records ends, and the
/// place up to which a frame says that everything is synced.
pub(crate) struct Sample {
    pub(crate) disk: SimulatedDisk,
    pub(crate) history: History,
    pub(crate) ends: Vec<Place>,
    proven: Place,
    pub(crate) end: Place,
}

pub(crate) fn sample(unsynced_groups: usize) -> Sample {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    let mut seed = 0;
    while driver.writer.end().segment < 3 {
        seed += 1;
        driver.enqueue(&body(seed, 700));
        driver.enqueue(&body(seed, 20));
        driver.commit(true).unwrap();
    }
    driver.enqueue(&body(1000, 300));
    driver.commit(true).unwrap();
    let mut proven = driver.writer.end();
    assert!(driver.writer.mark_synced_if_needed().unwrap());
    if unsynced_groups > 0 {
        // The mark was synced as well, and the next frame says so.
        proven = driver.writer.synced();
    }
    for _ in 0..unsynced_groups {
        seed += 1;
        driver.enqueue(&body(seed, 1200));
        driver.commit(false).unwrap();
    }
    let end = driver.writer.end();
    Sample { disk: disk.crash_with(|_| true), history: driver.history, ends: driver.ends, proven, end }
}

impl Sample {
    pub(crate) fn copy(&self) -> SimulatedDisk {
        self.disk.crash_with(|_| true)
    }

    /// First unused byte of a segment.
    fn used(&self, segment: u32) -> usize {
        let in_segment = self.ends.iter().filter(|end| end.segment == segment);
        let last = in_segment.map(|end| end.offset).max().unwrap_or(0);
        if segment == self.end.segment { self.end.offset as usize } else { last as usize }
    }

    /// Records that lie whole before `place`.
    fn records_before(&self, place: Place) -> usize {
        let groups = self.ends.iter().filter(|&&end| end <= place).count();
        self.history.boundaries[groups]
    }

    /// The log was cut at or before `damaged`, and everything in front of it is there.
    fn check_cut(&self, disk: &SimulatedDisk, recovered: &Recovered, damaged: Place) {
        assert_eq!(recovered.records.len(), self.records_before(damaged), "cut at {damaged:?}");
        assert_eq!(recovered.records, self.history.records[..recovered.records.len()]);
        check_index(recovered);
        let again = recover(&disk.crash_with(|_| false)).unwrap();
        assert_eq!(again.records, recovered.records);
    }
}

/// Damages `range` of a copy by `change`; the verdict must fit the place.
fn check_damage(
    sample: &Sample,
    segment: u32,
    offset: usize,
    change: impl FnOnce(&SimulatedDisk, &str),
) -> bool {
    let disk = sample.copy();
    let before = disk.bytes(&name(segment));
    change(&disk, &name(segment));
    let damaged = Place { segment, offset: u32::try_from(offset).unwrap() };
    let is_used = offset < sample.used(segment) && before != disk.bytes(&name(segment));
    match recover(&disk) {
        Ok(recovered) => {
            assert!(!is_used || damaged >= sample.proven, "accepted damage at {damaged:?}");
            let damaged = if is_used { damaged } else { sample.end };
            sample.check_cut(&disk, &recovered, damaged);
            false
        }
        Err(OpenError::Corrupt { place }) => {
            assert!(is_used && damaged < sample.proven, "refused damage at {damaged:?}");
            assert!(place <= damaged, "names {place:?} for damage at {damaged:?}");
            let frame_start = sample.ends.iter().rev().find(|&&end| end <= damaged).copied();
            let frame_start = frame_start.filter(|end| end.segment == segment);
            assert!(
                place >= frame_start.unwrap_or(Place { segment, offset: 0 }),
                "names {place:?}, too early"
            );
            true
        }
        Err(error) => panic!("damage at {damaged:?}: {error}"),
    }
}

#[test]
fn every_damaged_sector_is_refused_before_the_synced_position_and_cut_after_it() {
    let sample = sample(3);
    let (mut refused, mut cut) = (0, 0);
    for segment in 1..=3 {
        for offset in (0..SEGMENT_BYTES as usize).step_by(SECTOR) {
            let mut count = |was_refused| if was_refused { refused += 1 } else { cut += 1 };
            count(check_damage(&sample, segment, offset, |disk, file| {
                disk.zero(file, offset..offset + SECTOR);
            }));
            for at in [0, 9, 60, 70, SECTOR - 1] {
                count(check_damage(&sample, segment, offset, |disk, file| {
                    disk.flip(file, offset + at, 0x10);
                }));
            }
        }
    }
    assert!(refused > 100 && cut > 20, "covered too little: {refused} refused, {cut} accepted");
}

#[test]
fn a_lost_page_is_refused_before_the_synced_position_and_cut_after_it() {
    let sample = sample(3);
    for segment in 1..=3 {
        for offset in (0..SEGMENT_BYTES as usize).step_by(4096) {
            // The first used sector of the page decides: a cut there is only right if nothing before it is proven.
            check_damage(&sample, segment, offset, |disk, file| disk.zero(file, offset..offset + 4096));
        }
    }
}

#[test]
fn a_tail_cut_at_any_byte_keeps_every_whole_group_in_front() {
    // One segment and nothing proven: the whole log is tail.
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    for seed in 0..4 {
        driver.enqueue(&body(seed, 300));
        driver.settle(0);
        driver.commit(false).unwrap();
    }
    let end = driver.writer.end().offset as usize;
    let disk = disk.crash_with(|_| true);
    for length in 0..=end {
        let torn = disk.crash_with(|_| true);
        torn.zero(&name(1), length..SEGMENT_BYTES as usize);
        let recovered = recover(&torn).unwrap();
        driver.history.check(&recovered.records);
        let cut = Place { segment: 1, offset: u32::try_from(length).unwrap() };
        let whole = driver.ends.iter().filter(|&&end| end <= cut).count();
        // The padding behind a frame's last record is zero anyway, so a cut there may harm nothing.
        let found = driver.history.boundaries.iter().position(|&at| at == recovered.records.len()).unwrap();
        assert!(found == whole || found == whole + 1, "cut at {length}: {found} groups");
        let mut writer = recovered.writer;
        writer.push(None, false, |buffer| buffer.extend_from_slice(&body(9, 2000)));
        writer.commit(true).unwrap();
        let again = recover(&torn.crash_with(|_| false)).unwrap();
        assert_eq!(again.records.len(), recovered.records.len() + 1);
    }
}

#[test]
fn a_segment_that_is_shorter_than_it_was_made_is_refused_and_nothing_is_changed() {
    let options = Options { segment_bytes: 32 * 1024, was_used: false };
    let open = |disk: &SimulatedDisk| {
        let storage = std::sync::Arc::new(disk.clone());
        millpond_journal::open(storage, options, [7; 32], &mut |_| std::ops::ControlFlow::Continue(()))
    };
    let disk = SimulatedDisk::new();
    let mut writer = open(&disk).unwrap().writer;
    writer.push(None, false, |buffer| buffer.extend_from_slice(&body(1, 300)));
    writer.commit(true).unwrap();
    for length in [0, 10, 512, 4096, 5000, 8192, 28 * 1024, 32 * 1024 - 1] {
        let short = disk.crash_with(|_| true);
        short.truncate(&name(1), length);
        let refused = open(&short);
        assert!(matches!(refused, Err(OpenError::Corrupt { .. })), "cut to {length} bytes");
        assert_eq!(short.bytes(&name(1)).len(), length);
    }
    assert!(open(&disk.crash_with(|_| true)).is_ok());
}

#[test]
fn a_log_without_a_frame_is_new_unless_the_directory_was_used() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(&body(1, 300));
    driver.commit(true).unwrap();
    let disk = disk.crash_with(|_| true);
    disk.zero(&name(1), 0..SEGMENT_BYTES as usize);
    let open = |was_used| {
        let storage = std::sync::Arc::new(disk.crash_with(|_| true));
        let options = Options { was_used, ..OPTIONS };
        millpond_journal::open(storage, options, [0; 32], &mut |_| std::ops::ControlFlow::Continue(()))
    };
    assert!(matches!(open(true), Err(OpenError::Corrupt { place: Place { segment: 1, offset: 0 } })));
    assert!(open(false).is_ok(), "an interrupted first start leaves this behind");
}

#[test]
fn a_missing_segment_is_refused_and_named() {
    let sample = sample(0);
    let disk = sample.copy();
    disk.take(&name(2));
    assert!(matches!(recover(&disk), Err(OpenError::MissingSegment { segment: 2 })));
    let disk = sample.copy();
    disk.take(&name(1));
    assert!(matches!(recover(&disk), Err(OpenError::MissingSegment { segment: 1 })), "the oldest, too");
}

#[test]
fn a_refusal_changes_nothing_and_says_what_to_do() {
    let sample = sample(0);
    sample.disk.flip(&name(2), 600, 1);
    let before: Vec<_> = sample.disk.names().iter().map(|file| sample.disk.bytes(file)).collect();
    let operations = sample.disk.operations();
    let error = recover(&sample.disk).err().unwrap().to_string();
    assert!(
        error.contains("segment 00000002.log offset 512") && error.contains("millpond journal repair"),
        "{error}"
    );
    let after: Vec<_> = sample.disk.names().iter().map(|file| sample.disk.bytes(file)).collect();
    assert_eq!((before, operations), (after, sample.disk.operations()));
}

#[test]
fn another_format_version_is_refused_with_both_versions() {
    let sample = sample(0);
    let mut bytes = sample.disk.bytes("format");
    bytes[16] = 9;
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&crc);
    sample.disk.put("format", bytes);
    let error = recover(&sample.disk).err().unwrap();
    assert!(matches!(error, OpenError::Version { found: 9, expected: FORMAT_VERSION }), "{error}");
}

#[test]
fn a_damaged_or_missing_format_file_is_refused() {
    let sample = sample(0);
    let length = sample.disk.bytes("format").len();
    for at in 0..length {
        let disk = sample.copy();
        disk.flip("format", at, 1);
        assert!(matches!(recover(&disk), Err(OpenError::FormatFile)), "byte {at}");
    }
    let disk = sample.copy();
    disk.take("format");
    assert!(matches!(recover(&disk), Err(OpenError::FormatFile)));
}

#[test]
fn stale_frames_behind_the_end_are_never_taken_up() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    for _ in 0..3 {
        driver.enqueue(&body(1, 400));
        driver.commit(false).unwrap();
    }
    let old = disk.bytes(&name(1));
    let first = driver.ends[0].offset as usize;
    for pushes in 0..2 {
        let torn = disk.crash_with(|_| true);
        torn.flip(&name(1), first - 1, 1);
        let mut again = recover(&torn).unwrap();
        assert_eq!(again.records, []);
        for _ in 0..pushes {
            again.writer.push(None, false, |buffer| buffer.resize(buffer.len() + 408, 7));
            again.writer.commit(true).unwrap();
        }
        // The new frames are as long as the lost ones, so an old group lay right behind them: put it back, as if
        // the recovery had not wiped it.
        let end = again.writer.end().offset as usize;
        assert!(driver.ends[..2].iter().any(|old_end| old_end.offset as usize == end));
        let mut bytes = torn.bytes(&name(1));
        bytes[end..].copy_from_slice(&old[end..]);
        torn.put(&name(1), bytes);
        let after = recover(&torn).unwrap();
        assert_eq!(after.records.len(), pushes);
        assert_eq!(after.report.cut.map(|cut| cut.place.offset as usize), Some(end));
    }
}
