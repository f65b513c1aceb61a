//! The journal in a real directory.

use crate::support::{SALT, body, delete_oldest, recover_from};
use millpond_journal::{LocalStorage, LocalStorageError, Options, Storage, open};
use std::{fs, ops::ControlFlow, os::unix::fs::PermissionsExt, sync::Arc};

#[test]
fn a_log_in_a_directory_comes_back_after_reopening() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    let mut expected = Vec::new();
    for round in 0..4 {
        let storage = Arc::new(LocalStorage::open(&directory).unwrap());
        let mut recovered = recover_from(storage).unwrap();
        let found: Vec<_> = recovered.records.iter().map(|record| record.payload.clone()).collect();
        assert_eq!(found, expected, "round {round}");
        for number in 0..5 {
            let payload = body(round * 10 + number, 1800);
            recovered.writer.push(Some(number), true, |buffer| buffer.extend_from_slice(&payload));
            let position = recovered.writer.commit(true).unwrap().placed[0];
            assert_eq!(recovered.files.read(position).unwrap(), payload);
            expected.push(payload);
        }
        recovered.writer.mark_synced_if_needed().unwrap();
    }
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }
}

#[test]
fn the_oldest_segment_goes_from_the_directory_and_stays_readable_while_held() {
    let root = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::open(root.path()).unwrap());
    let mut recovered = recover_from(storage).unwrap();
    let mut positions = Vec::new();
    for seed in 0..8 {
        recovered.writer.push(Some(seed), true, |buffer| buffer.extend_from_slice(&body(seed, 2000)));
        positions.push(recovered.writer.commit(true).unwrap().placed[0]);
    }
    let held = recovered.files.handle(positions[0]).unwrap();
    delete_oldest(&mut recovered.writer);
    assert!(!root.path().join("00000001.log").exists());
    assert_eq!(held.read().unwrap(), body(0, 2000));
}

#[test]
fn a_directory_in_use_is_refused_with_the_holder() {
    let root = tempfile::tempdir().unwrap();
    let first = LocalStorage::open(root.path()).unwrap();
    let error = LocalStorage::open(root.path()).err().unwrap();
    assert!(matches!(error, LocalStorageError::InUse { .. }));
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())), "{error}");
    drop(first);
    LocalStorage::open(root.path()).unwrap();
}

#[test]
fn a_file_is_no_directory() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, b"").unwrap();
    let below = file.join("below");
    for path in [file, below] {
        assert!(
            matches!(LocalStorage::open(&path), Err(LocalStorageError::NotADirectory { .. })),
            "{path:?}"
        );
    }
}

#[test]
fn leftovers_of_an_interrupted_creation_are_removed() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("00000002.log.tmp"), b"half").unwrap();
    LocalStorage::open(root.path()).unwrap();
    assert!(!root.path().join("00000002.log.tmp").exists());
}

#[test]
fn a_created_file_is_zero_and_never_replaces_another() {
    let root = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(root.path()).unwrap();
    let length = 3 * 1024 * 1024 + 512;
    let file = storage.create("00000001.log", length).unwrap();
    let mut bytes = vec![1; usize::try_from(length).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(file.length().unwrap(), length);
    let error = storage.create("00000001.log", 512).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(storage.read_small("nothing").unwrap(), None);
}

#[test]
fn the_default_options_work() {
    let root = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::open(root.path()).unwrap());
    let opened = open(storage, Options::default(), SALT, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(opened.report.created);
    assert!(opened.writer.remaining_bytes() > 63 * 1024 * 1024);
}

#[test]
fn what_is_read_without_waiting_is_what_is_read_with_it() {
    let root = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::open(root.path()).unwrap());
    let mut opened = open(storage, Options::default(), SALT, &mut |_| ControlFlow::Continue(())).unwrap();
    opened.writer.push(Some(1), true, |buffer| buffer.extend_from_slice(b"hello"));
    let position = opened.writer.commit(true).unwrap().placed[0];
    let handle = opened.files.handle(position).unwrap();
    assert_eq!(handle.read().unwrap(), "hello");
    // Whether it is at hand is the operating system's affair; if it is, it must be the same.
    assert!(handle.read_cached().is_none_or(|read| read.unwrap() == "hello"));
}
