//! What can still be read where frames are damaged.
//!
//! Owns the search for whole records in a damaged region, and reading past pages that the medium refuses. Must never
//! take bytes for a record whose checksum is not right: it is seeded with the directory's secret and bound to the
//! record's place, so neither a message's body nor an earlier use of the file can hold one.

use crate::{
    format::{Place, RECORD_HEADER_BYTES, Record, Secrets, is_intact_record, split_record},
    storage::StorageFile,
};
use std::{
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

/// What is read on its own where a larger read fails.
const PAGE_BYTES: usize = 4096;
/// Bytes whose checksum is computed at most for each byte of a region: a body made to look like the beginnings of many
/// records costs no more than this.
const WORK_PER_BYTE: u64 = 16;

/// The whole records in a damaged region, with their places.
pub(crate) struct Salvage<'a> {
    secrets: &'a Secrets,
    region: &'a [u8],
    /// Where the region begins.
    start: Place,
    at: usize,
    work_left: u64,
}

impl<'a> Salvage<'a> {
    pub(crate) fn new(secrets: &'a Secrets, region: &'a [u8], start: Place) -> Self {
        Self { secrets, region, start, at: 0, work_left: WORK_PER_BYTE * region.len() as u64 }
    }
}

impl<'a> Iterator for Salvage<'a> {
    type Item = (Place, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        // Records are not aligned: behind a damaged one, the next may begin at any byte.
        while self.at + RECORD_HEADER_BYTES as usize <= self.region.len() {
            let at = self.at;
            self.at += 1;
            let rest = &self.region[at..];
            let Some((record, after)) = split_record(rest) else { continue };
            let length = rest.len() - after.len();
            self.work_left = self.work_left.checked_sub(record.payload.len() as u64)?;
            let offset = u32::try_from(at).ok().and_then(|at| self.start.offset.checked_add(at))?;
            let place = Place { offset, ..self.start };
            if is_intact_record(self.secrets, &rest[..length], place) {
                self.at = at + length;
                return Some((place, record));
            }
        }
        None
    }
}

/// A file that reads zeros where the medium reports an error, and remembers where.
pub(crate) struct Tolerant {
    file: Arc<dyn StorageFile>,
    /// First bytes of the pages that could not be read.
    failed: Mutex<Vec<u64>>,
}

impl Tolerant {
    pub(crate) fn new(file: Arc<dyn StorageFile>) -> Self {
        Self { file, failed: Mutex::new(Vec::new()) }
    }

    /// Whether anything in `range` could not be read.
    pub(crate) fn failed_in(&self, range: Range<u64>) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().any(|&page| page < range.end && page + PAGE_BYTES as u64 > range.start)
    }
}

impl StorageFile for Tolerant {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.file.read_at(offset, buffer).is_ok() {
            return Ok(());
        }
        for (page, piece) in (offset..).step_by(PAGE_BYTES).zip(buffer.chunks_mut(PAGE_BYTES)) {
            if self.file.read_at(page, piece).is_err() {
                piece.fill(0);
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                if !failed.contains(&page) {
                    failed.push(page);
                }
            }
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[cfg(test)]
mod tests {
    use super::Salvage;
    use crate::format::{Place, Secrets, append_record, place_record};

    const START: Place = Place { segment: 5, offset: 512 };

    /// Records one after the other behind some other bytes, and where each begins.
    fn region(secrets: &Secrets, records: u64) -> (Vec<u8>, Vec<u32>) {
        let mut region = vec![0; 13];
        let mut offsets = Vec::new();
        for key in 0..records {
            let at = region.len();
            append_record(secrets, &mut region, Some(key), true, |out| {
                out.extend_from_slice(&[9; 37]);
                37
            });
            let offset = START.offset + u32::try_from(at).unwrap();
            place_record(&mut region[at..], Place { offset, ..START });
            offsets.push(offset);
        }
        (region, offsets)
    }

    #[test]
    fn records_around_a_damaged_one_are_found_at_any_offset() {
        let secrets = Secrets::from_salt(&[3; 32]);
        let (region, offsets) = region(&secrets, 3);
        let at = |index: usize| (offsets[index] - START.offset) as usize;
        for flipped in at(1)..at(2) {
            let mut damaged = region.clone();
            damaged[flipped] ^= 0x20;
            let found: Vec<_> = Salvage::new(&secrets, &damaged, START)
                .map(|(place, record)| (place.offset, record.key))
                .collect();
            assert_eq!(found, [(offsets[0], Some(0)), (offsets[2], Some(2))], "flipped {flipped}");
        }
    }

    #[test]
    fn records_of_another_directory_or_place_are_none_of_ours() {
        let secrets = Secrets::from_salt(&[3; 32]);
        let (region, _) = region(&secrets, 2);
        let elsewhere = Place { segment: 6, ..START };
        assert_eq!(Salvage::new(&secrets, &region, elsewhere).count(), 0);
        assert_eq!(Salvage::new(&Secrets::from_salt(&[4; 32]), &region, START).count(), 0);
        assert_eq!(Salvage::new(&secrets, &region, START).count(), 2);
    }

    #[test]
    fn a_body_of_false_beginnings_costs_a_bounded_amount() {
        // Every eighth byte begins what could be a record of nearly the whole region.
        let mut region = Vec::new();
        while region.len() < 1 << 20 {
            region.extend_from_slice(&[0, 0, 8, 0, 0, 0, 0, 0]);
        }
        let secrets = Secrets::from_salt(&[3; 32]);
        let mut salvage = Salvage::new(&secrets, &region, START);
        assert!(salvage.next().is_none());
        assert!(salvage.at < region.len() / 2, "gave up at {}", salvage.at);
    }
}
