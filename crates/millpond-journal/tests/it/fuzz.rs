//! Directories and indexes that no journal wrote: nothing panics, and nothing is believed that is not whole.

use crate::damage::name;
use crate::inspect::look;
use crate::seal::sealed;
use crate::support::{SALT, SEGMENT_BYTES, recover_heads};
use crc32c::crc32c_append;
use millpond_journal::{SECTOR_BYTES, simulated::SimulatedDisk};
use millpond_testkit::fuzz::{corpus, fuzz};
use std::sync::Arc;

const SECTOR: usize = SECTOR_BYTES as usize;

/// The files of a directory: every 8 KiB of the input are a segment.
fn directory(input: &[u8]) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    drop(recover_heads(Arc::new(disk.clone())).unwrap());
    disk.take(&name(1));
    for (number, segment) in (1..).zip(input.chunks(SEGMENT_BYTES as usize)) {
        disk.put(&name(number), segment.to_vec());
    }
    disk
}

/// Makes the checksums of everything right that says it is a frame, so that what lies behind them is reached, too.
fn seal_frames(input: &mut [u8]) {
    let seed = u32::from_le_bytes(SALT[8..12].try_into().unwrap());
    for at in (0..input.len().saturating_sub(63)).step_by(SECTOR) {
        let payload = u32::from_le_bytes(input[at + 52..at + 56].try_into().unwrap()) as usize;
        let Some(frame) = payload.checked_add(64).map(|bytes| bytes.next_multiple_of(SECTOR)) else {
            continue;
        };
        if let Some(frame) = input.get_mut(at..at.saturating_add(frame)) {
            let crc = crc32c_append(crc32c_append(seed, &frame[..60]), &frame[64..]);
            frame[60..64].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

#[test]
fn journal() {
    let magic = String::from_utf8_lossy(&SALT[..8]);
    fuzz("journal", 400, &[&magic], &mut |input| {
        let mut sealed = input.to_vec();
        seal_frames(&mut sealed);
        for input in [input, &sealed] {
            let disk = directory(input);
            let whole = look(&disk).map(|(inspection, _)| inspection.is_whole());
            let recovered = match recover_heads(Arc::new(disk.clone())) {
                Ok(recovered) => recovered,
                Err(error) => {
                    assert!(!whole.unwrap_or(false), "what is refused is damaged: {error}");
                    continue;
                }
            };
            let again = recover_heads(Arc::new(disk)).unwrap();
            assert_eq!(again.records, recovered.records, "what was accepted stays as it is");
        }
    });
}

#[test]
fn index() {
    let (disk, driver) = sealed(3);
    fuzz("index", 1_000, &[], &mut |input| {
        let disk = disk.crash_with(|_| true);
        disk.put("00000001.index", input.to_vec());
        let (_, seen) = look(&disk).unwrap();
        assert_eq!(seen, driver.history.records, "an index changes nothing that the segment says");
        assert_eq!(recover_heads(Arc::new(disk)).unwrap().records.len(), seen.len());
    });
}

#[test]
#[ignore = "writes into the repository, when the format changes"]
fn write_the_corpus() {
    let (disk, _) = sealed(3);
    for target in ["journal", "index"] {
        std::fs::create_dir_all(corpus(target)).unwrap();
    }
    std::fs::write(corpus("index").join("whole"), disk.bytes("00000001.index")).unwrap();
    let segments = [1, 2, 3].map(|segment| disk.bytes(&name(segment)));
    std::fs::write(corpus("journal").join("three-segments"), segments.concat()).unwrap();
    std::fs::write(corpus("journal").join("one-segment"), &segments[0]).unwrap();
}
