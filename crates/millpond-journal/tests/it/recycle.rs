//! A file that was a segment becomes another one: nothing of its earlier life may pass for the log.

use crate::support::{Driver, SEGMENT_BYTES, body, delete_oldest, has_kind, recover};
use millpond_journal::{Position, ReadError, Storage, simulated::SimulatedDisk};

/// Groups of one size, so that frames and records of two lives lie at the same offsets; `lives` segments are given up
/// on the way.
fn run(disk: &SimulatedDisk, lives: u32) -> Driver {
    let mut driver = Driver::start(disk).unwrap();
    let mut seed = 0;
    while driver.writer.oldest_segment() <= lives {
        seed += 1;
        let key = driver.enqueue(&body(seed, 600));
        driver.commit(true).unwrap();
        driver.prepare_next().unwrap();
        driver.finish(key);
        while driver.reclaim().unwrap() {}
    }
    driver
}

#[test]
fn segments_are_made_from_files_that_were_given_up() {
    let disk = SimulatedDisk::new();
    let driver = run(&disk, 12);
    // Each file becomes a spare and then a segment again; the first ones had to be made.
    assert!(disk.renamings() > 18, "{} renamings", disk.renamings());
    let names = disk.names();
    assert!(names.len() <= 5, "format, oldest, current, next, spare: {names:?}");
    let current = format!("{:08}.log", driver.writer.end().segment);
    let end = driver.writer.end().offset as usize;
    assert!(disk.bytes(&current)[end..].iter().any(|&byte| byte != 0), "what was there is not overwritten");
}

#[test]
fn no_frame_of_an_earlier_life_is_taken_up_wherever_the_new_one_is_torn() {
    let disk = SimulatedDisk::new();
    let mut driver = run(&disk, 12);
    while driver.writer.end().offset > SEGMENT_BYTES / 4 {
        driver.enqueue(&body(1, 600));
        driver.commit(true).unwrap();
    }
    let kept = driver.history.records.len();
    for seed in 0..4 {
        driver.enqueue(&body(seed, 600));
        driver.commit(false).unwrap();
    }
    for seed in 0..200 {
        let mut chance = fastrand::Rng::with_seed(seed);
        // What was not written again holds what it held before: a frame of an earlier life, often a whole one.
        let torn = disk.crash_with(|_| chance.bool());
        let recovered = recover(&torn).unwrap();
        driver.history.check(&recovered.records);
        let again = recover(&torn).unwrap();
        assert_eq!(again.report.cut, None, "an earlier life is nothing to cut");
        assert_eq!(again.records, recovered.records);
    }
    let whole = recover(&disk.crash_with(|_| true)).unwrap();
    assert_eq!(whole.records.last(), driver.history.records.last());
    assert!(driver.history.records.len() == kept + 4);
}

#[test]
fn a_record_of_an_earlier_life_is_not_read_at_its_old_place() {
    let disk = SimulatedDisk::new();
    let driver = run(&disk, 12);
    let current = driver.writer.end().segment;
    let end = driver.writer.end().offset;
    let name = format!("{current:08}.log");
    // Behind the end lie whole frames of an earlier life. Their records would have begun here.
    let mut stale = 0;
    for frame in (end..SEGMENT_BYTES - 1024).step_by(1024) {
        let position = Position { segment: current, offset: frame + 64, length: 608 };
        let start = position.offset as usize;
        let bytes = &disk.bytes(&name)[start..start + 20];
        if bytes[..4] == 608_u32.to_le_bytes() {
            stale += 1;
            assert!(matches!(driver.files.read(position), Err(ReadError::Damaged { .. })));
        }
    }
    assert!(stale > 0, "no frame of an earlier life was there");
}

#[test]
fn a_file_that_somebody_reads_is_not_written_again() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    driver.enqueue(b"kept in hand");
    driver.commit(true).unwrap();
    let handle = driver.files.handle(driver.index.get(1).unwrap()).unwrap();
    while driver.writer.end().segment < 2 {
        driver.enqueue(&body(7, 600));
        driver.commit(true).unwrap();
    }
    delete_oldest(&mut driver.writer);
    assert!(!disk.names().iter().any(|name| has_kind(name, "spare")), "{:?}", disk.names());
    for seed in 0..60 {
        driver.enqueue(&body(seed, 600));
        driver.commit(true).unwrap();
    }
    assert!(handle.read().unwrap().ends_with(b"kept in hand"));
}

#[test]
fn of_many_segments_given_up_one_file_is_kept() {
    let disk = SimulatedDisk::new();
    let mut driver = Driver::start(&disk).unwrap();
    while driver.writer.end().segment < 6 {
        driver.enqueue(&body(7, 600));
        driver.commit(true).unwrap();
    }
    for _ in 0..5 {
        delete_oldest(&mut driver.writer);
    }
    assert_eq!(disk.names(), ["00000001.spare", "00000006.log", "format"]);
    drop(recover(&disk).unwrap());
    assert_eq!(disk.names(), ["00000001.spare", "00000006.log", "format"], "a restart keeps it");
}

#[test]
fn a_spare_file_that_cannot_be_one_of_this_log_is_deleted_at_the_start() {
    let disk = SimulatedDisk::new();
    drop(run(&disk, 3));
    let log = recover(&disk).unwrap().writer.end().segment;
    // Of another length, of the future (the directory was restored from a backup), one too many.
    disk.put("00000001.spare", vec![1; 4096]);
    disk.put(&format!("{:08}.spare", log + 9), vec![1; SEGMENT_BYTES as usize]);
    disk.put("00000002.spare", vec![1; SEGMENT_BYTES as usize]);
    disk.put("00000003.spare", vec![1; SEGMENT_BYTES as usize]);
    let mut recovered = recover(&disk).unwrap();
    let spares: Vec<_> = disk.names().into_iter().filter(|name| has_kind(name, "spare")).collect();
    assert_eq!(spares, ["00000002.spare"]);
    for _ in 0..40 {
        recovered.writer.push(None, false, |buffer| buffer.extend_from_slice(&body(3, 600)));
        recovered.writer.commit(true).unwrap();
    }
    assert_eq!(recover(&disk.crash_with(|_| false)).unwrap().records.len(), recovered.records.len() + 40);
}

#[test]
fn a_file_is_never_given_a_name_that_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let local = millpond_journal::LocalStorage::open(root.path()).unwrap();
    let simulated = SimulatedDisk::new();
    for storage in [&local as &dyn Storage, &simulated] {
        storage.write_whole("a", b"one").unwrap();
        storage.write_whole("b", b"two").unwrap();
        let error = storage.rename("a", "b").err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        storage.rename("a", "c").unwrap();
        assert_eq!(storage.read_small("a").unwrap(), None);
        assert_eq!(storage.read_small("c").unwrap().unwrap(), b"one");
    }
}
