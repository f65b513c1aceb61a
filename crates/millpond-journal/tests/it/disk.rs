//! The simulated disk itself: what tears, what rots, what fails once, and what its trace tells.
//!
//! Owns the tests of the model. Must never need a journal.

use millpond_journal::Storage as _;
use millpond_journal::simulated::{Fate, SimulatedDisk, Unsynced};

#[test]
fn a_torn_sector_is_new_up_to_a_byte_and_old_beyond() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a", 1024).unwrap();
    file.write_at(0, &[1; 1024]).unwrap();
    file.sync_data().unwrap();
    file.write_at(0, &[2; 1024]).unwrap();
    let torn = disk.crash_to(|unsynced| match unsynced {
        Unsynced::Sector { sector: 0, .. } => Fate::Torn(100),
        _ => Fate::Lost,
    });
    let bytes = torn.bytes("a");
    assert!(bytes[..100].iter().all(|byte| *byte == 2) && bytes[100..].iter().all(|byte| *byte == 1));
}

#[test]
fn what_rots_is_mended_unless_it_was_written_over() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a", 1024).unwrap();
    disk.rot("a", 3, 1);
    disk.rot("a", 700, 4);
    file.write_at(512, &[9; 512]).unwrap();
    assert_eq!((disk.bytes("a")[3], disk.bytes("a")[700]), (1, 9));
    let crashed = disk.crash_with(|_| true);
    assert_eq!((crashed.mend(), crashed.bytes("a")[3], crashed.bytes("a")[700]), (1, 0, 9));
    assert_eq!((disk.mend(), disk.mend()), (1, 0));
}

#[test]
fn a_read_that_fails_fails_once() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a", 512).unwrap();
    disk.fail_read(2);
    let mut buffer = [0; 8];
    assert!(file.read_at(0, &mut buffer).is_ok());
    assert!(file.read_at(0, &mut buffer).is_err());
    assert!(file.read_at(0, &mut buffer).is_ok());
}

#[test]
fn traces_are_alike_for_the_same_operations_and_differ_for_others() {
    let run = |byte: u8| {
        let disk = SimulatedDisk::new();
        let file = disk.create("a", 512).unwrap();
        file.write_at(0, &[byte]).unwrap();
        file.sync_data().unwrap();
        disk.trace()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
