//! What the disk can do: one write and one sync after the other.
//!
//! Owns the reference for group commits. Must never overlap two writes.

use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the writes go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A file that was filled with zeros and synced before; written round and round. A sync has no size to record.
    ZeroFilled,
    /// A file that grows with every write.
    Growing,
}

/// Size of the zero-filled file: that of a journal segment.
const FILE_BYTES: u64 = 64 << 20;

/// Groups per second of `group_bytes` each: written with one write, made durable with one `fdatasync`.
pub(crate) fn groups_per_second(
    directory: &Path,
    ground: Ground,
    group_bytes: usize,
    duration: Duration,
) -> Result<f64> {
    let mut group = vec![0; group_bytes];
    fastrand::fill(&mut group);
    let file = File::create_new(directory.join("raw"))?;
    if ground == Ground::ZeroFilled {
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
    }
    let (began, mut groups, mut at) = (Instant::now(), 0_u64, 0_u64);
    while began.elapsed() < duration {
        if ground == Ground::ZeroFilled && at + group.len() as u64 > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&group, at)?;
        file.sync_data()?;
        at += group.len() as u64;
        groups += 1;
    }
    let per_second = groups as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(directory.join("raw"))?;
    Ok(per_second)
}
