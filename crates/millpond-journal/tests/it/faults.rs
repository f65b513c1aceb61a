//! The storage fails, runs full, or is asked too much.

use crate::support::{Driver, OPTIONS, SALT, SEGMENT_BYTES, body, check_index, delete_oldest, recover};
use millpond_journal::{
    CommitError, OpenError, Options, PrepareError, ReadError, Storage, Writer, open, simulated::SimulatedDisk,
};
use std::{
    io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Writes until something fails; the disk then loses power.
fn run_until_error(disk: &SimulatedDisk) -> Driver {
    let mut driver = Driver::start(disk).unwrap();
    for seed in 0.. {
        driver.enqueue(&body(seed, 700));
        if driver.commit(seed % 3 != 0).is_err() {
            break;
        }
    }
    driver
}

#[test]
fn after_a_failed_write_or_sync_every_call_fails_and_what_was_durable_is_kept() {
    for count in 1..40 {
        for fail_sync in [false, true] {
            let disk = SimulatedDisk::new();
            drop(recover(&disk).unwrap());
            // Opening again takes few operations, so most of these faults hit commits, rolls and preparations.
            if fail_sync {
                disk.fail_sync(count + 4);
            } else {
                disk.fail_write(count + 2);
            }
            let mut driver = run_until_error(&disk);
            let operations = disk.operations();
            driver.writer.push(None, false, |buffer| buffer.push(1));
            assert!(matches!(driver.writer.commit(true), Err(CommitError::Stopped)));
            assert!(matches!(driver.writer.sync(), Err(CommitError::Stopped)));
            assert!(matches!(driver.writer.mark_synced_if_needed(), Err(CommitError::Stopped)));
            assert_eq!(disk.operations(), operations, "nothing is tried again");
            for survives in [false, true] {
                let recovered = recover(&disk.crash_with(|_| survives)).unwrap();
                driver.history.check(&recovered.records);
                check_index(&recovered);
            }
        }
    }
}

#[test]
fn the_error_of_a_failed_sync_names_action_and_segment() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    disk.fail_sync(1);
    writer.push(None, false, |buffer| buffer.push(1));
    let error = writer.commit(true).unwrap_err();
    assert!(error.to_string().starts_with("syncing segment 00000001.log failed"), "{error}");
}

#[test]
fn what_reads_well_after_a_failed_sync_is_made_durable_before_it_is_used() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"one");
    disk.fail_sync(1);
    assert!(driver.commit(true).is_err());
    // The process restarts on the same machine: the record still reads from the cache.
    let restarted = recover(&disk).unwrap();
    assert_eq!(restarted.records.len(), 1);
    let after = recover(&disk.crash_with(|_| false)).unwrap();
    assert_eq!(after.records, restarted.records, "replayed once, it must stay");
}

#[test]
fn a_full_disk_refuses_a_group_whole_and_writes_nothing() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    disk.set_capacity(Some(u64::from(SEGMENT_BYTES) + 1024));
    let error = loop {
        let (before, end) = (driver.writer.remaining_bytes(), driver.writer.end());
        driver.enqueue(&body(1, 2100));
        let fits = driver.writer.pending_bytes() <= before;
        match driver.writer.commit(true) {
            Ok(committed) => {
                assert!(fits && committed.durable);
                driver.history.durable += 1;
            }
            Err(error) => {
                assert!(!fits, "what remaining_bytes promised was refused");
                assert_eq!(driver.writer.end(), end, "nothing was written");
                break error;
            }
        }
    };
    assert!(matches!(error, CommitError::Full), "{error}");
    assert_eq!(driver.history.durable, 2);

    // Reading, a smaller group in the rest, restart, and going on once there is room.
    driver.writer.discard();
    driver.writer.push(None, false, |buffer| buffer.extend_from_slice(b"a settlement"));
    assert!(driver.writer.commit(true).unwrap().durable);
    let again = recover(&disk.crash_with(|_| false)).unwrap();
    assert_eq!(again.records.len(), driver.history.durable + 1);
    driver.writer.push(None, false, |buffer| buffer.extend_from_slice(&body(2, 1000)));
    assert!(matches!(driver.writer.commit(true), Err(CommitError::Full)));
    disk.set_capacity(None);
    assert_eq!(driver.writer.pending_records(), 1, "a refused group waits");
    assert_eq!(driver.writer.commit(true).unwrap().placed.len(), 1);
}

/// Writes ever smaller groups until none fits.
fn fill(writer: &mut Writer) {
    for length in [3000, 300, 0] {
        loop {
            writer.push(None, false, |buffer| buffer.resize(buffer.len() + length, 1));
            match writer.commit(true) {
                Ok(_) => {}
                Err(CommitError::Full) => break writer.discard(),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(writer.remaining_bytes(), 0);
}

#[test]
fn a_full_disk_frees_itself_by_deleting_the_oldest_segment() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    disk.set_capacity(Some(3 * u64::from(SEGMENT_BYTES)));
    for _ in 0..6 {
        fill(&mut writer);
        writer.mark_synced_if_needed().unwrap();
        delete_oldest(&mut writer);
        recover(&disk.crash_with(|_| false)).unwrap();
    }
}

#[test]
fn restarts_on_a_full_disk_do_not_take_what_a_deletion_needs() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    disk.set_capacity(Some(3 * u64::from(SEGMENT_BYTES)));
    fill(&mut writer);
    for restart in 0..5 {
        let recovered = recover(&disk).unwrap();
        assert!(recovered.records.len() > 5, "everything is readable");
        writer = recovered.writer;
        writer.push(None, false, |buffer| buffer.push(1));
        assert!(matches!(writer.commit(true), Err(CommitError::Full)), "restart {restart}");
        assert!(!writer.mark_synced_if_needed().unwrap(), "a mark can wait, a deletion cannot");
    }
    delete_oldest(&mut writer);
    let committed = writer.commit(false).unwrap();
    assert_eq!(committed.placed.len(), 1, "the waiting group goes into the freed space");
    assert_eq!(writer.synced().segment, committed.end.segment, "after its epoch was made durable there");
    writer.sync().unwrap();
    let epoch = writer.epoch();
    let again = recover(&disk.crash_with(|_| false)).unwrap();
    assert_eq!(again.report.epoch, epoch + 1);
    assert_eq!(again.records.last().unwrap().payload, [1]);
}

#[test]
fn a_full_disk_still_opens() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.prepare_next().unwrap();
    driver.enqueue(&body(1, 5000));
    driver.commit(true).unwrap();
    disk.set_capacity(Some(0));
    for _ in 0..8 {
        let recovered = recover(&disk).unwrap();
        driver.history.check(&recovered.records);
    }
    let remaining = recover(&disk).unwrap().writer.remaining_bytes();
    assert!(remaining >= u64::from(SEGMENT_BYTES) / 4, "the prepared segment is kept: {remaining}");
}

#[test]
fn a_full_disk_is_told_apart_when_preparing() {
    let disk = SimulatedDisk::new();
    let writer = recover(&disk).unwrap().writer;
    disk.set_capacity(Some(0));
    let number = writer.wants_next().unwrap();
    assert!(matches!(writer.preparer().prepare(number), Err(PrepareError::Full { number: 2 })));
}

#[test]
fn a_file_that_could_not_be_made_for_sure_is_not_tried_again_and_is_sure_after_a_restart() {
    for with_spare in [false, true] {
        let disk = SimulatedDisk::new();
        let mut driver = Driver::start(&disk).unwrap();
        if with_spare {
            while driver.writer.end().segment < 3 {
                driver.enqueue(&body(7, 2000));
                driver.commit(true).unwrap();
            }
            for key in driver.live().keys().copied().collect::<Vec<_>>() {
                driver.finish(key);
            }
            while driver.reclaim().unwrap() {}
            assert!(driver.writer.preparer().has_spare());
        }
        driver.commit(true).unwrap();
        let (preparer, next) = (driver.writer.preparer(), driver.writer.wants_next().unwrap());
        // That of the directory, after the file has got its name.
        disk.fail_sync(1);
        assert!(matches!(preparer.prepare(next), Err(PrepareError::Io { .. })));
        assert!(disk.names().contains(&format!("{next:08}.log")));
        let operations = disk.operations();
        assert!(matches!(preparer.prepare(next), Err(PrepareError::Stopped)));
        assert!(matches!(preparer.reserve(), Err(PrepareError::Stopped)));
        assert!(matches!(driver.writer.prepare_next(), Err(CommitError::Stopped)));
        assert!(matches!(driver.writer.commit(true), Err(CommitError::Stopped)));
        assert_eq!(disk.operations(), operations, "nothing is tried again");

        // The process starts again, goes on in that segment, and only then does the power go.
        let mut writer = recover(&disk).unwrap().writer;
        while writer.end().segment < next {
            writer.push(None, false, |buffer| buffer.extend_from_slice(&[1; 2000]));
            writer.commit(true).unwrap();
        }
        let records = recover(&disk.crash_with(|_| true)).unwrap().records.len();
        let after = recover(&disk.crash_with(|_| false));
        assert_eq!(after.map(|after| after.records.len()).ok(), Some(records), "spare {with_spare}");
    }
}

#[test]
fn without_a_file_descriptor_nothing_is_done_and_it_is_tried_again() {
    let disk = SimulatedDisk::new();
    let is_out = Arc::new(AtomicBool::new(false));
    let out = Arc::clone(&is_out);
    let refuse = move |_: &str| out.load(Ordering::Relaxed).then(|| io::Error::from_raw_os_error(24));
    let mut writer =
        crate::support::recover_from(Arc::new(Picky(disk.clone(), Box::new(refuse)))).unwrap().writer;
    let preparer = writer.preparer();
    // Made of zeros at first, then of the file of a segment that was given up.
    for next in 2..5 {
        is_out.store(true, Ordering::Relaxed);
        let names = disk.names();
        assert!(
            matches!(preparer.prepare(next), Err(PrepareError::Unopened { number, .. }) if number == next)
        );
        assert_eq!(disk.names(), names);
        is_out.store(false, Ordering::Relaxed);
        writer.install(preparer.prepare(next).unwrap());
        while writer.end().segment < next {
            writer.push(None, false, |buffer| buffer.extend_from_slice(&[1; 2000]));
            writer.commit(true).unwrap();
        }
        if next > 2 {
            delete_oldest(&mut writer);
            assert!(preparer.has_spare());
        }
    }
    // A file that is given up, and cannot be opened, is removed.
    preparer.prepare(5).unwrap();
    is_out.store(true, Ordering::Relaxed);
    delete_oldest(&mut writer);
    assert!(!preparer.has_spare());
}

#[test]
fn a_segment_is_prepared_once_whoever_comes_first() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    let preparer = writer.preparer();
    let early = preparer.prepare(2).unwrap();
    for _ in 0..2 {
        // Not installed in time: the writer takes the same segment itself.
        writer.push(None, false, |buffer| buffer.resize(buffer.len() + 5000, 1));
        writer.commit(true).unwrap();
    }
    assert_eq!(writer.end().segment, 2);
    writer.install(early);
    writer.install(preparer.prepare(2).unwrap());
    assert_eq!(writer.wants_next(), Some(3), "late ones are ignored");
    writer.install(preparer.prepare(3).unwrap());
    assert_eq!(writer.wants_next(), None);
    assert_eq!(recover(&disk.crash_with(|_| false)).unwrap().records.len(), 2);
}

#[test]
fn a_group_larger_than_a_segment_is_refused_and_dropped() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    writer.push(None, false, |buffer| buffer.resize(buffer.len() + SEGMENT_BYTES as usize, 1));
    assert!(matches!(writer.commit(true), Err(CommitError::TooLarge { .. })));
    let overhead = 64 + 20;
    let largest = usize::try_from(writer.group_bytes_max()).unwrap() - overhead;
    writer.push(None, false, |buffer| buffer.resize(buffer.len() + largest, 1));
    assert_eq!(
        writer.commit(true).unwrap().placed.len(),
        1,
        "the largest fits, and nothing is left of the other"
    );
}

#[test]
fn a_record_is_checked_when_read_and_kept_while_held() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    let mut positions = Vec::new();
    for key in 0..12 {
        driver.writer.push(Some(key), true, |buffer| buffer.extend_from_slice(&body(key, 1500)));
        positions.push(driver.writer.commit(true).unwrap().placed[0]);
    }
    let held = driver.files.handle(positions[0]).unwrap();
    delete_oldest(&mut driver.writer);
    assert!(!disk.names().contains(&"00000001.log".to_owned()));
    assert_eq!(held.read().unwrap(), body(0, 1500), "readable while held");
    assert!(matches!(driver.files.read(positions[0]), Err(ReadError::Deleted { .. })));

    let last = positions[11];
    assert_eq!(driver.files.read(last).unwrap(), body(11, 1500));
    disk.flip(&format!("{:08}.log", last.segment), last.offset as usize + 700, 8);
    assert!(matches!(driver.files.read(last), Err(ReadError::Damaged { .. })));
}

#[test]
fn files_beyond_the_open_limit_are_opened_again() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    let mut positions = Vec::new();
    for key in 0..300 {
        driver.writer.push(Some(key), true, |buffer| buffer.extend_from_slice(&body(key, 5000)));
        positions.push(driver.writer.commit(false).unwrap().placed[0]);
    }
    assert!(driver.writer.end().segment >= 300);
    for round in [positions.clone(), positions.into_iter().rev().collect()] {
        for position in round {
            let key = u64::from(position.segment) - 1;
            assert_eq!(driver.files.read(position).unwrap(), body(key, 5000));
        }
    }
}

#[test]
fn an_idle_log_is_marked_once() {
    let disk = SimulatedDisk::new();
    let mut writer = recover(&disk).unwrap().writer;
    assert!(writer.mark_synced_if_needed().unwrap(), "the epoch's first frame");
    assert!(!writer.mark_synced_if_needed().unwrap());
    writer.push(None, false, |buffer| buffer.push(1));
    writer.commit(false).unwrap();
    assert!(!writer.mark_synced_if_needed().unwrap(), "nothing was synced since");
    writer.push(None, false, |buffer| buffer.push(1));
    writer.commit(true).unwrap();
    assert!(writer.mark_synced_if_needed().unwrap());
    assert!(!writer.mark_synced_if_needed().unwrap());
    assert_eq!(writer.synced(), writer.end());
}

#[test]
#[should_panic(expected = "only the oldest segment is deleted")]
fn deleting_another_segment_than_the_oldest_is_our_bug() {
    let disk = SimulatedDisk::new();
    let mut driver = run_to_segment(&disk, 3);
    drop(driver.writer.retire(2, true));
}

#[test]
#[should_panic(expected = "the segment being written is never deleted")]
fn deleting_the_current_segment_is_our_bug() {
    let disk = SimulatedDisk::new();
    let mut driver = run_to_segment(&disk, 1);
    delete_oldest(&mut driver.writer);
}

fn run_to_segment(disk: &SimulatedDisk, segment: u32) -> Driver {
    let mut driver = Driver::start(disk).unwrap();
    while driver.writer.end().segment < segment {
        driver.enqueue(&body(1, 3000));
        driver.commit(true).unwrap();
    }
    driver
}

#[test]
fn a_caller_that_refuses_a_record_is_told_where_it_is() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"unknown kind");
    driver.commit(true).unwrap();
    let result = open(Arc::new(disk), OPTIONS, SALT, &mut |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(OpenError::Refused { position }) if position.segment == 1));
}

#[test]
fn impossible_segment_sizes_are_refused() {
    for segment_bytes in [0, 4096, 8191, 10_000, 2 * 1024 * 1024 * 1024] {
        let disk = Arc::new(SimulatedDisk::new());
        let result =
            open(disk, Options { segment_bytes, was_used: false }, SALT, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(result, Err(OpenError::SegmentBytes { .. })), "{segment_bytes}");
    }
}

#[test]
fn the_segment_size_may_change_between_runs() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.prepare_next().unwrap();
    driver.enqueue(b"small segments");
    driver.commit(true).unwrap();
    let options = Options { segment_bytes: 32 * 1024, was_used: false };
    let mut replayed = 0;
    let mut count = |_: millpond_journal::Replayed<'_>| {
        replayed += 1;
        ControlFlow::Continue(())
    };
    let mut opened = open(Arc::new(disk.clone()), options, SALT, &mut count).unwrap();
    opened.writer.push(None, false, |buffer| buffer.resize(buffer.len() + 20_000, 1));
    opened.writer.commit(true).unwrap();
    assert_eq!(replayed, 1);
    assert_eq!(recover(&disk.crash_with(|_| false)).unwrap().records.len(), 2);
}

/// A disk whose files cannot be read.
/// A disk whose files cannot always be opened or made.
struct Picky(SimulatedDisk, Box<Refuse>);
type Refuse = dyn Fn(&str) -> Option<io::Error> + Send + Sync;

impl Storage for Picky {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn millpond_journal::StorageFile>> {
        self.1(name).map_or_else(|| self.0.create(name, length), Err)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn millpond_journal::StorageFile>> {
        self.1(name).map_or_else(|| self.0.open(name), Err)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.0.delete(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.write_whole(name, bytes)
    }
    fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read_small(name)
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
    fn fence(&self, epoch: u64) -> io::Result<()> {
        self.0.fence(epoch)
    }
}

#[test]
fn an_unreadable_segment_is_an_error_that_names_it() {
    let disk = SimulatedDisk::new();
    drop(run_to_segment(&disk, 2));
    let refuse = |name: &str| (name == "00000001.log").then(|| io::Error::other("bad sector"));
    let error = crate::support::recover_from(Arc::new(Picky(disk, Box::new(refuse)))).err().unwrap();
    assert_eq!(error.to_string(), "the journal's storage failed (00000001.log): bad sector");
}
