//! What the frames themselves give away when the file `format` is lost.
//!
//! Owns the way back from checksums to their seeds. Must never be trusted by [`open`](crate::open): it is for operators
//! who look at damage or repair it. It takes nothing from the secret's strength: whoever has the frames has the bodies.
//!
//! A CRC is linear: for given bytes, its value is a constant plus a sum (over GF(2)) of one column for every bit of the
//! seed. So the seed follows from the bytes and their checksum by elimination, and is right where several frames agree.

use crate::{
    format::{
        FRAME_CRC_OFFSET, FRAME_HEADER_BYTES, FrameHeader, FrameKind, Place, RECORD_CRC_OFFSET, SECTOR_BYTES,
        Secrets, content_crc, frame_crc, placed_crc, segment_name, split_record, u32_at, u64_at,
    },
    recovery::OpenError,
    storage::Storage,
    window::Window,
};
use std::collections::BTreeMap;

/// Frames looked at in each segment: some near its beginning will do.
const FRAMES_PER_SEGMENT: usize = 16;
/// Segments looked at.
const SEGMENTS_MAX: usize = 64;
/// Larger frames are passed over: each costs its checksum 33 times.
const FRAME_BYTES_MAX: u64 = 256 * 1024;

/// The secrets with which the frames of `segments` were written, if enough of them are whole to tell.
pub(crate) fn secrets_from_frames(
    storage: &dyn Storage,
    segments: &[u32],
) -> Result<Option<Secrets>, OpenError> {
    let mut windows = Vec::new();
    for &segment in segments.iter().take(SEGMENTS_MAX) {
        let io = |source| OpenError::Io { what: segment_name(segment), source };
        let file = storage.open(&segment_name(segment)).map_err(io)?;
        windows.push((segment, Window::of_any_length(segment, file)?));
    }
    let Some(magic) = magic(&mut windows)? else { return Ok(None) };
    let mut frame_seeds = Votes::default();
    let mut record_seeds = Votes::default();
    for (segment, window) in &mut windows {
        let mut place = Place { segment: *segment, offset: 0 };
        for _ in 0..FRAMES_PER_SEGMENT {
            let Some(header) = next_header(window, magic, &mut place)? else { break };
            let bytes = header.frame_bytes();
            let fits = u64::from(place.offset) + bytes <= u64::from(window.capacity);
            if fits && bytes <= FRAME_BYTES_MAX {
                let frame = window.bytes(u64::from(place.offset), bytes)?;
                let crc = u32_at(frame, FRAME_CRC_OFFSET);
                let seed = solve(crc, |seed| frame_crc(&Secrets::from_parts(magic, seed, 0), frame));
                frame_seeds.add(seed);
                if header.kind == FrameKind::Records {
                    record_seeds.add(first_record_seed(frame, place));
                }
            }
            place.offset += SECTOR_BYTES;
        }
    }
    let record_seed = record_seeds.winner().unwrap_or(0);
    Ok(frame_seeds.winner().map(|frame_seed| Secrets::from_parts(magic, frame_seed, record_seed)))
}

/// What most segments begin with.
fn magic(windows: &mut [(u32, Window)]) -> Result<Option<u64>, OpenError> {
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for (segment, window) in windows {
        let first = window.sector(Place { segment: *segment, offset: 0 })?.map(|sector| u64_at(sector, 0));
        if let Some(magic) = first.filter(|magic| magic % 2 == 1) {
            *votes.entry(magic).or_default() += 1;
        }
    }
    Ok(votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(magic, _)| magic))
}

/// The first header at or behind `place`, which is moved there.
fn next_header(window: &mut Window, magic: u64, place: &mut Place) -> Result<Option<FrameHeader>, OpenError> {
    let secrets = Secrets::from_parts(magic, 0, 0);
    while let Some(sector) = window.sector(*place)? {
        if let Some(header) = FrameHeader::parse(&secrets, sector, *place) {
            return Ok(Some(header));
        }
        place.offset += SECTOR_BYTES;
    }
    Ok(None)
}

fn first_record_seed(frame: &[u8], place: Place) -> Option<u32> {
    let payload = &frame[FRAME_HEADER_BYTES as usize..];
    let (_, after) = split_record(payload)?;
    let record = &payload[..payload.len() - after.len()];
    let place = Place { offset: place.offset + FRAME_HEADER_BYTES, ..place };
    solve(u32_at(record, RECORD_CRC_OFFSET), |seed| {
        placed_crc(content_crc(&Secrets::from_parts(1, 0, seed), record), place)
    })
}

/// How often each seed came out. Whole frames agree; a damaged one gives a number of its own.
#[derive(Default)]
struct Votes(BTreeMap<u32, usize>);

impl Votes {
    fn add(&mut self, seed: Option<u32>) {
        if let Some(seed) = seed {
            *self.0.entry(seed).or_default() += 1;
        }
    }

    fn winner(&self) -> Option<u32> {
        self.0.iter().max_by_key(|(_, votes)| **votes).map(|(seed, _)| *seed)
    }
}

/// The seed for which `checksum` gives `wanted`.
fn solve(wanted: u32, checksum: impl Fn(u32) -> u32) -> Option<u32> {
    let constant = checksum(0);
    // Each row: the column of a seed's bit, and which bits it is made of.
    let mut rows: Vec<(u32, u32)> =
        (0..32).map(|bit| (checksum(1 << bit) ^ constant, 1_u32 << bit)).collect();
    let mut rest = wanted ^ constant;
    let mut seed = 0;
    for bit in (0..32).map(|bit| 1_u32 << bit) {
        let pivot = rows.iter().position(|(column, _)| column & bit != 0)?;
        let (column, bits) = rows.swap_remove(pivot);
        for row in rows.iter_mut().filter(|row| row.0 & bit != 0) {
            *row = (row.0 ^ column, row.1 ^ bits);
        }
        if rest & bit != 0 {
            rest ^= column;
            seed ^= bits;
        }
    }
    (rest == 0).then_some(seed)
}

#[cfg(test)]
mod tests {
    use super::solve;
    use crc32c::crc32c_append;

    #[test]
    fn a_seed_follows_from_bytes_and_checksum() {
        for (seed, bytes) in [(0, &b"x"[..]), (1, b"frame"), (u32::MAX, &[0; 512]), (0xDEAD_BEEF, &[7; 1000])]
        {
            assert_eq!(solve(crc32c_append(seed, bytes), |seed| crc32c_append(seed, bytes)), Some(seed));
        }
    }
}
