//! What a segment's index knows of its records.
//!
//! Owns reading it for an inspection: as the second copy of every head. Must never be believed about a segment it was not
//! made from.

use crate::{
    format::{FrameHeader, Place, Secrets, index_name},
    scan::end_of,
    sealed::{Damaged, Entry, RawHeader, SealedIndex},
    storage::Storage,
};
use crc32c::crc32c_append;
use std::{io, ops::Range};

/// No segment is longer.
const CAPACITY_MAX: u32 = 1024 * 1024 * 1024;

/// One record, as the index knows it.
pub(super) struct KnownRecord {
    pub(super) key: Option<u64>,
    pub(super) anchor: bool,
    pub(super) offset: u32,
    pub(super) payload_bytes: u32,
    pub(super) head: Vec<u8>,
}

/// A segment's index, if there is one.
pub(super) enum Known {
    /// There is none.
    Absent,
    /// There is a file, but none that was made for this segment.
    Damaged,
    /// It was made for this segment. Single blocks may be damaged.
    Index(Box<KnownSegment>),
}

/// A segment as its index knows it.
pub(super) struct KnownSegment {
    pub(super) first: RawHeader,
    pub(super) last: RawHeader,
    /// Header of the segment's last frame.
    pub(super) last_header: FrameHeader,
    pub(super) bytes: u64,
}

impl Known {
    pub(super) fn of(storage: &dyn Storage, secrets: &Secrets, segment: u32) -> Self {
        if !exists(storage, segment) {
            return Self::Absent;
        }
        let Some(index) = SealedIndex::open(storage, secrets, segment, CAPACITY_MAX) else {
            return Self::Damaged;
        };
        let SealedIndex { first, last, last_offset, bytes, .. } = index;
        let header = FrameHeader::parse(secrets, &last, Place { segment, offset: last_offset });
        match header {
            Some(last_header) if last_header.place.offset < CAPACITY_MAX => {
                Self::Index(Box::new(KnownSegment { first, last, last_header, bytes }))
            }
            _ => Self::Damaged,
        }
    }

    pub(super) fn segment(&self) -> Option<&KnownSegment> {
        match self {
            Self::Index(known) => Some(known),
            Self::Absent | Self::Damaged => None,
        }
    }
}

/// Whether there is an index file. An error other than its absence counts as a file that cannot be read.
pub(super) fn exists(storage: &dyn Storage, segment: u32) -> bool {
    !matches!(storage.open(&index_name(segment)), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

impl KnownSegment {
    /// Where the segment's last frame ends.
    pub(super) fn end(&self) -> u32 {
        end_of(&self.last_header)
    }

    /// The records that begin in `range`, in order, as far as the index can be read, and whether that is all of it:
    /// what follows a damaged block is not known.
    pub(super) fn between(
        &self,
        storage: &dyn Storage,
        secrets: &Secrets,
        range: &Range<u32>,
    ) -> (Vec<KnownRecord>, bool) {
        let mut records = Vec::new();
        let all = self.each(storage, secrets, &mut |entry| {
            if range.contains(&entry.offset) {
                let Entry { key, anchor, offset, payload_bytes, head } = *entry;
                records.push(KnownRecord { key, anchor, offset, payload_bytes, head: head.to_vec() });
            }
        });
        (records, all.is_ok())
    }

    /// What all records of the index come to; `None` if not all of it can be read.
    pub(super) fn digest(&self, storage: &dyn Storage, secrets: &Secrets) -> Option<Digest> {
        let mut digest = Digest::default();
        self.each(storage, secrets, &mut |entry| digest.add(entry)).ok()?;
        Some(digest)
    }

    fn each(
        &self,
        storage: &dyn Storage,
        secrets: &Secrets,
        visit: &mut dyn FnMut(&Entry<'_>),
    ) -> Result<(), Damaged> {
        let segment = self.last_header.place.segment;
        let mut index = SealedIndex::open(storage, secrets, segment, CAPACITY_MAX).ok_or(Damaged)?;
        while index.next_block(|entry| {
            visit(&entry);
            true
        })? {}
        Ok(())
    }
}

/// A sequence of records, to be compared with another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    records: u64,
    crc: u32,
}

impl Digest {
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        let mut crc = self.crc;
        let key = entry.key.unwrap_or(0).to_le_bytes();
        let flags = [u8::from(entry.key.is_some()), u8::from(entry.anchor)];
        let lengths = [entry.offset, entry.payload_bytes].map(u32::to_le_bytes).concat();
        for part in [&key[..], &flags, &lengths, entry.head] {
            crc = crc32c_append(crc, part);
        }
        *self = Self { records: self.records + 1, crc };
    }
}
