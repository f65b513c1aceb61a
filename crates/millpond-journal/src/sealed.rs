//! The index of a complete segment: what replay needs of it, without the bodies.
//!
//! Owns the bytes of an index file (drawn in `docs/formats/journal.md`), building it and reading it block by block.
//! Must never be trusted for a segment it was not made from: it holds the headers of that segment's first and last
//! frame. It can always be made again, so whatever is wrong with it means no more than that it is not there.

use crate::{
    format::{
        FRAME_HEADER_BYTES, FRAME_VERSION, RECORD_HEADER_BYTES, Secrets, index_name, u16_at, u32_at, u64_at,
    },
    storage::{Storage, StorageFile},
};
use crc32c::crc32c_append;
use std::{io, sync::Arc};

/// A block is closed once it has so many bytes: it is the unit that is read, checked and held in memory.
const BLOCK_BYTES: usize = 256 * 1024;
const HEADER_BYTES: usize = 180;
const HEADER_CRC_OFFSET: usize = HEADER_BYTES - 4;
const BLOCK_HEADER_BYTES: usize = 12;
const FRAME_HEADER: usize = FRAME_HEADER_BYTES as usize;
const FLAG_KEYED: u8 = 1;
const FLAG_ANCHOR: u8 = 2;
/// Zeros that end a run of changed bytes: shorter ones cost less in the run than between two.
const ZEROS_MIN: usize = 3;

/// A frame's header as it lies in the segment.
pub(crate) type RawHeader = [u8; FRAME_HEADER];

/// The first bytes of a frame.
pub(crate) fn raw_header(frame: &[u8]) -> RawHeader {
    *frame.first_chunk().expect("a frame is at least a sector")
}

/// One record, as the index tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Option<u64>,
    pub(crate) anchor: bool,
    /// Offset of the record in the segment.
    pub(crate) offset: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) head: &'a [u8],
}

/// What an entry is told relative to: the one before in the same block.
#[derive(Default)]
struct Before {
    /// Length of the segment, in which every record lies.
    capacity: u32,
    end: u32,
    key: u64,
    head: Vec<u8>,
}

impl Before {
    fn advance(&mut self, entry: &Entry<'_>) {
        self.end = entry.offset.wrapping_add(RECORD_HEADER_BYTES).wrapping_add(entry.payload_bytes);
        self.key = entry.key.unwrap_or(self.key);
    }
}

/// Collects a segment's records, in order.
pub(crate) struct Builder {
    secrets: Secrets,
    segment: u32,
    first: RawHeader,
    file: Vec<u8>,
    block: Vec<u8>,
    block_records: u32,
    blocks: u32,
    records: u64,
    before: Before,
    difference: Vec<u8>,
}

impl Builder {
    /// An index of `segment`, whose first frame has the header `first`.
    pub(crate) fn new(secrets: Secrets, segment: u32, first: RawHeader) -> Self {
        Self {
            secrets,
            segment,
            first,
            file: vec![0; HEADER_BYTES],
            block: Vec::new(),
            block_records: 0,
            blocks: 0,
            records: 0,
            before: Before::default(),
            difference: Vec::new(),
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.file.len() + self.block.len()
    }

    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let Self { block, before, difference, .. } = self;
        let flags = u8::from(entry.key.is_some()) * FLAG_KEYED + u8::from(entry.anchor) * FLAG_ANCHOR;
        block.push(flags);
        write_number(block, u64::from(entry.offset - before.end));
        write_number(block, u64::from(entry.payload_bytes));
        if let Some(key) = entry.key {
            write_number(block, zigzag(key.wrapping_sub(before.key)));
        }
        write_number(block, entry.head.len() as u64);
        before.head.resize(entry.head.len(), 0);
        difference.clear();
        difference.extend(entry.head.iter().zip(&before.head).map(|(now, before)| now ^ before));
        write_difference(block, difference);
        before.head.copy_from_slice(entry.head);
        before.advance(entry);
        self.block_records += 1;
        self.records += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if self.block_records == 0 {
            return;
        }
        let length =
            u32::try_from(self.block.len()).expect("a block is little longer than the head of one record");
        let start = self.file.len();
        self.file.extend_from_slice(&length.to_le_bytes());
        self.file.extend_from_slice(&self.block_records.to_le_bytes());
        let crc =
            block_crc(&self.secrets, &self.first, self.blocks, &self.file[start..start + 8], &self.block);
        self.file.extend_from_slice(&crc.to_le_bytes());
        self.file.append(&mut self.block);
        self.block_records = 0;
        self.blocks += 1;
        self.before = Before::default();
    }

    /// The file. `last` is the header of the segment's last frame, which lies at `last_offset`.
    pub(crate) fn finish(mut self, frames: u32, last_offset: u32, last: &RawHeader) -> Vec<u8> {
        self.close_block();
        let length = self.file.len() as u64;
        let header = &mut self.file[..HEADER_BYTES];
        header[0..8].copy_from_slice(&self.secrets.index_magic.to_le_bytes());
        header[8..10].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&self.segment.to_le_bytes());
        header[16..20].copy_from_slice(&frames.to_le_bytes());
        header[20..24].copy_from_slice(&self.blocks.to_le_bytes());
        header[24..32].copy_from_slice(&self.records.to_le_bytes());
        header[32..40].copy_from_slice(&length.to_le_bytes());
        header[40..44].copy_from_slice(&last_offset.to_le_bytes());
        header[48..112].copy_from_slice(&self.first);
        header[112..176].copy_from_slice(last);
        let crc = crc32c_append(self.secrets.index_seed, &header[..HEADER_CRC_OFFSET]);
        header[HEADER_CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        self.file
    }
}

/// An index file whose header is right.
pub(crate) struct SealedIndex {
    file: Arc<dyn StorageFile>,
    secrets: Secrets,
    pub(crate) first: RawHeader,
    pub(crate) last: RawHeader,
    pub(crate) last_offset: u32,
    pub(crate) frames: u32,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    blocks: u32,
    next_block: u32,
    offset: u64,
    block: Vec<u8>,
    before: Before,
}

/// The index, or what is left of it, is not one of this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl SealedIndex {
    /// The index of `segment`; `None` if there is none that can be used.
    pub(crate) fn open(
        storage: &dyn Storage,
        secrets: &Secrets,
        segment: u32,
        capacity: u32,
    ) -> Option<Self> {
        Self::over(storage.open(&index_name(segment)).ok()?, secrets, segment, capacity).ok().flatten()
    }

    fn over(
        file: Arc<dyn StorageFile>,
        secrets: &Secrets,
        segment: u32,
        capacity: u32,
    ) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        file.read_at(0, &mut header)?;
        let crc = crc32c_append(secrets.index_seed, &header[..HEADER_CRC_OFFSET]);
        let is_ours = u64_at(&header, 0) == secrets.index_magic
            && u16_at(&header, 8) == FRAME_VERSION
            && u32_at(&header, 12) == segment
            && crc == u32_at(&header, HEADER_CRC_OFFSET)
            && u64_at(&header, 32) == file.length()?;
        if !is_ours {
            return Ok(None);
        }
        let raw = |at: usize| header[at..at + FRAME_HEADER].try_into().expect("as long as a header");
        Ok(Some(Self {
            file,
            secrets: *secrets,
            first: raw(48),
            last: raw(112),
            last_offset: u32_at(&header, 40),
            frames: u32_at(&header, 16),
            records: u64_at(&header, 24),
            bytes: u64_at(&header, 32),
            blocks: u32_at(&header, 20),
            next_block: 0,
            offset: HEADER_BYTES as u64,
            block: Vec::new(),
            before: Before { capacity, ..Before::default() },
        }))
    }

    /// Hands the entries of the next block to `take`, until it returns false; `Ok(false)` if it did, or there is no
    /// further block. The block is checked as a whole before its first entry is told.
    pub(crate) fn next_block(&mut self, mut take: impl FnMut(Entry<'_>) -> bool) -> Result<bool, Damaged> {
        if self.next_block == self.blocks {
            return if self.offset == self.bytes { Ok(false) } else { Err(Damaged) };
        }
        let records = self.read_block()?;
        self.before = Before { capacity: self.before.capacity, ..Before::default() };
        let mut rest = &self.block[..];
        for _ in 0..records {
            let entry = read_entry(&mut rest, &mut self.before).ok_or(Damaged)?;
            if !take(entry) {
                return Ok(false);
            }
        }
        if rest.is_empty() { Ok(true) } else { Err(Damaged) }
    }

    fn read_block(&mut self) -> Result<u32, Damaged> {
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.read(&mut header)?;
        let length = u64::from(u32_at(&header, 0));
        if length > self.bytes - self.offset {
            return Err(Damaged);
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(usize::try_from(length).map_err(|_| Damaged)?, 0);
        self.read(&mut block)?;
        let crc = block_crc(&self.secrets, &self.first, self.next_block, &header[..8], &block);
        self.block = block;
        self.next_block += 1;
        if crc == u32_at(&header, 8) { Ok(u32_at(&header, 4)) } else { Err(Damaged) }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Damaged> {
        self.file.read_at(self.offset, buffer).map_err(|_| Damaged)?;
        self.offset += buffer.len() as u64;
        Ok(())
    }
}

/// A block is bound to its place in the index, and by the segment's first frame to this index.
fn block_crc(secrets: &Secrets, first: &RawHeader, number: u32, lengths: &[u8], block: &[u8]) -> u32 {
    let crc = crc32c_append(secrets.index_seed, first);
    let crc = crc32c_append(crc, &number.to_le_bytes());
    crc32c_append(crc32c_append(crc, lengths), block)
}

fn read_entry<'a>(input: &mut &[u8], before: &'a mut Before) -> Option<Entry<'a>> {
    let flags = take_bytes(input, 1)?[0];
    let offset = before.end.checked_add(u32::try_from(read_number(input)?).ok()?)?;
    let payload_bytes = u32::try_from(read_number(input)?).ok()?;
    let key = if flags & FLAG_KEYED == 0 {
        None
    } else {
        Some(before.key.wrapping_add(unzigzag(read_number(input)?)))
    };
    let anchor = flags & FLAG_ANCHOR != 0;
    let head_bytes = u32::try_from(read_number(input)?).ok()?;
    let end = offset.checked_add(RECORD_HEADER_BYTES)?.checked_add(payload_bytes)?;
    if end > before.capacity || head_bytes > payload_bytes || (anchor && key.is_none()) {
        return None;
    }
    before.head.resize(head_bytes as usize, 0);
    read_difference(input, &mut before.head)?;
    let entry = Entry { key, anchor, offset, payload_bytes, head: &[] };
    before.advance(&entry);
    Some(Entry { head: &before.head, ..entry })
}

/// Writes `difference` as runs: so many zeros, so many bytes, these bytes; until its length is reached.
fn write_difference(out: &mut Vec<u8>, difference: &[u8]) {
    let mut rest = difference;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        rest = &rest[zeros..];
        let changed = changed_run(rest);
        write_number(out, zeros as u64);
        write_number(out, changed as u64);
        out.extend_from_slice(&rest[..changed]);
        rest = &rest[changed..];
    }
}

/// Length of the run in front of the next few zeros.
fn changed_run(bytes: &[u8]) -> usize {
    let zeros = bytes.windows(ZEROS_MIN).position(|window| window.iter().all(|&byte| byte == 0));
    zeros.unwrap_or(bytes.len())
}

/// Applies what [`write_difference`] wrote to `head`.
fn read_difference(input: &mut &[u8], head: &mut [u8]) -> Option<()> {
    let mut rest = head;
    while !rest.is_empty() {
        let zeros = usize::try_from(read_number(input)?).ok()?;
        let changed = usize::try_from(read_number(input)?).ok()?;
        if zeros == 0 && changed == 0 {
            return None;
        }
        rest = rest.get_mut(zeros..)?;
        let (run, after) = rest.split_at_mut_checked(changed)?;
        for (byte, change) in run.iter_mut().zip(take_bytes(input, changed)?) {
            *byte ^= change;
        }
        rest = after;
    }
    Some(())
}

/// Seven bits a byte, least significant first; the highest bit says that more follow.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn read_number(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_bytes(input, 1)?[0];
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Small numbers stay small, whatever their sign.
fn zigzag(difference: u64) -> u64 {
    let sign = if difference >> 63 == 1 { u64::MAX } else { 0 };
    (difference << 1) ^ sign
}

fn unzigzag(number: u64) -> u64 {
    let sign = if number & 1 == 1 { u64::MAX } else { 0 };
    (number >> 1) ^ sign
}

fn take_bytes<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(count)?;
    *input = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedDisk;
    use proptest::prelude::*;

    type Owned = (Option<u64>, bool, u32, u32, Vec<u8>);

    fn secrets() -> Secrets {
        Secrets::from_salt(&[0x3C; 32])
    }

    fn built(entries: &[Owned]) -> Vec<u8> {
        let mut builder = Builder::new(secrets(), 7, [1; FRAME_HEADER]);
        for (key, anchor, offset, payload_bytes, head) in entries {
            let (key, anchor, offset, payload_bytes) = (*key, *anchor, *offset, *payload_bytes);
            builder.push(&Entry { key, anchor, offset, payload_bytes, head });
        }
        builder.finish(3, 4096, &[2; FRAME_HEADER])
    }

    /// Everything that can be read of `bytes`, and whether that is all.
    fn read(bytes: Vec<u8>) -> (Vec<Owned>, bool) {
        let disk = SimulatedDisk::new();
        disk.put(&index_name(7), bytes);
        let mut entries = Vec::new();
        let Some(mut index) = SealedIndex::open(&disk, &secrets(), 7, 4 << 20) else {
            return (entries, false);
        };
        loop {
            let more = index.next_block(|entry| {
                let Entry { key, anchor, offset, payload_bytes, head } = entry;
                entries.push((key, anchor, offset, payload_bytes, head.to_vec()));
                true
            });
            match more {
                Ok(true) => {}
                Ok(false) => return (entries, true),
                Err(Damaged) => return (entries, false),
            }
        }
    }

    fn entries() -> impl Strategy<Value = Vec<Owned>> {
        let head = proptest::collection::vec(prop_oneof![Just(0_u8), 0_u8..4, any::<u8>()], 0..200);
        let one = (any::<Option<u64>>(), any::<bool>(), 0_u32..700, 0_u32..500, head);
        proptest::collection::vec(one, 0..60).prop_map(|raw| {
            let mut at = 64;
            raw.into_iter()
                .map(|(key, anchor, gap, body, head)| {
                    let payload_bytes = u32::try_from(head.len()).unwrap() + body;
                    let offset = at + gap;
                    at = offset + 20 + payload_bytes;
                    (key, anchor && key.is_some(), offset, payload_bytes, head)
                })
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_put_into_an_index_comes_out_of_it(entries in entries()) {
            prop_assert_eq!(read(built(&entries)), (entries, true));
        }

        #[test]
        fn a_damaged_index_never_tells_a_wrong_record(entries in entries(), at in any::<usize>(), mask in 1_u8..) {
            let mut bytes = built(&entries);
            let at = at % bytes.len();
            bytes[at] ^= mask;
            let (found, whole) = read(bytes);
            prop_assert!(!whole, "byte {} is not covered", at);
            prop_assert!(entries.starts_with(&found));
        }

        #[test]
        fn noise_with_a_right_checksum_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut input = &noise[..];
            let mut before = Before { capacity: 1 << 16, ..Before::default() };
            while let Some(entry) = read_entry(&mut input, &mut before) {
                prop_assert!(entry.head.len() <= entry.payload_bytes as usize && entry.offset < 1 << 16);
            }
        }
    }

    #[test]
    fn large_indexes_have_blocks_and_a_cut_at_any_block_is_noticed() {
        let mut chance = fastrand::Rng::with_seed(5);
        let mut at = 64;
        let entries: Vec<Owned> = (0..6000)
            .map(|key| {
                let head: Vec<u8> = std::iter::repeat_with(|| chance.u8(..)).take(150).collect();
                at += 500;
                (Some(key), true, at, 400, head)
            })
            .collect();
        let bytes = built(&entries);
        assert!(bytes.len() > 3 * BLOCK_BYTES);
        assert_eq!(read(bytes.clone()), (entries.clone(), true));
        let mut bad = bytes.clone();
        let late = bad.len() - 100;
        bad[late] ^= 1;
        let (found, whole) = read(bad);
        assert!(!whole && found.len() > 3000 && entries.starts_with(&found), "whole blocks are told");
        assert_eq!(read(bytes[..bytes.len() - 1].to_vec()), (Vec::new(), false), "its length is known");
    }

    #[test]
    fn consecutive_messages_of_a_queue_take_few_bytes() {
        let mut head = vec![7; 100];
        let mut builder = Builder::new(secrets(), 7, [1; FRAME_HEADER]);
        for key in 0..1000_u64 {
            // Number, place and times differ, the rest does not.
            head[5..13].copy_from_slice(&key.to_le_bytes());
            head[30..38].copy_from_slice(&(key + 1_700_000_000_000).to_le_bytes());
            let offset = u32::try_from(key * 330).unwrap();
            builder.push(&Entry { key: Some(key), anchor: true, offset, payload_bytes: 310, head: &head });
        }
        assert!(builder.bytes() < 20 * 1000, "{} bytes for 1000 records", builder.bytes());
    }
}
