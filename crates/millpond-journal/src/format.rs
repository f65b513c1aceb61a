//! The bytes on disk: names, the format file, frames and records.
//!
//! Owns every offset and constant of the format (drawn in `docs/formats/journal.md`) but for those of a sealed index,
//! and the checks that tell a frame of ours from anything else. Must never do I/O. All integers are little-endian,
//! fixed width.

use crc32c::crc32c_append;
use std::fmt;

/// Version of the directory's format that this code reads and writes. Version 1, whose segments were never used
/// twice, was not released.
pub const FORMAT_VERSION: u32 = 2;
/// Frames begin and end at multiples of this many bytes: the unit that a disk writes whole, so that a later write
/// never touches a sector that was synced.
pub const SECTOR_BYTES: u32 = 512;
/// Bytes before each record's payload.
pub const RECORD_HEADER_BYTES: u32 = 20;

pub(crate) const FRAME_HEADER_BYTES: u32 = 64;
pub(crate) const FORMAT_FILE: &str = "format";
const FORMAT_FILE_MAGIC: &[u8; 16] = b"millpond journal";
const FORMAT_FILE_BYTES: usize = 56;
pub(crate) const FRAME_CRC_OFFSET: usize = 60;
pub(crate) const RECORD_CRC_OFFSET: usize = 16;
const FLAG_KEYED: u32 = 1 << 30;
const FLAG_ANCHOR: u32 = 1 << 31;
/// A record's flags share their word with the length of its head.
const HEAD_MASK: u32 = FLAG_KEYED - 1;

/// Where a record lies. `offset` is that of the record's header in its segment, `length` that of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Segment number, from 1.
    pub segment: u32,
    /// Byte offset of the record in the segment.
    pub offset: u32,
    /// Bytes of payload.
    pub length: u32,
}

impl Position {
    /// Where the record begins.
    pub fn place(self) -> Place {
        Place { segment: self.segment, offset: self.offset }
    }

    /// Bytes that the record takes, header included.
    pub fn record_bytes(self) -> u64 {
        u64::from(RECORD_HEADER_BYTES) + u64::from(self.length)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}+{}", self.segment, self.offset, self.length)
    }
}

/// A point in the log, ordered as the log is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Segment number, from 1.
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u32,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} offset {}", segment_name(self.segment), self.offset)
    }
}

/// File name of a segment.
pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:08}.log")
}

/// File name of a segment's index.
pub(crate) fn index_name(number: u32) -> String {
    format!("{number:08}.index")
}

/// File name of a file without a place in the log, kept to be used again; frames of segments up to `number` may be
/// in it.
pub(crate) fn spare_name(number: u32) -> String {
    format!("{number:08}.spare")
}

/// The number in a segment's file name; `None` for other files.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    number_in(name, ".log", segment_name)
}

/// The number in the name of a segment's index.
pub(crate) fn index_number(name: &str) -> Option<u32> {
    number_in(name, ".index", index_name)
}

/// The number in the name of a spare file.
pub(crate) fn spare_number(name: &str) -> Option<u32> {
    number_in(name, ".spare", spare_name)
}

fn number_in(name: &str, suffix: &str, exact: fn(u32) -> String) -> Option<u32> {
    let number = name.strip_suffix(suffix)?.parse::<u32>().ok()?;
    (number > 0 && exact(number) == name).then_some(number)
}

/// `bytes` rounded up to whole sectors.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(u64::from(SECTOR_BYTES))
}

/// What the directory's salt makes of magic and checksums: nobody who does not know it can write a frame.
#[derive(Clone, Copy)]
pub(crate) struct Secrets {
    magic: u64,
    frame_seed: u32,
    record_seed: u32,
    pub(crate) index_magic: u64,
    pub(crate) index_seed: u32,
}

impl Secrets {
    pub(crate) fn from_salt(salt: &[u8; 32]) -> Self {
        Self {
            // Odd, so that zeros are never a frame.
            magic: u64_at(salt, 0) | 1,
            frame_seed: u32_at(salt, 8),
            record_seed: u32_at(salt, 12),
            index_magic: u64_at(salt, 16) | 1,
            index_seed: u32_at(salt, 24),
        }
    }

    /// For whoever has them without the salt. No index is one of theirs.
    pub(crate) fn from_parts(magic: u64, frame_seed: u32, record_seed: u32) -> Self {
        Self { magic, frame_seed, record_seed, index_magic: 0, index_seed: 0 }
    }
}

/// Why the format file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormatFileError {
    Damaged,
    Version(u32),
}

pub(crate) fn encode_format_file(salt: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FORMAT_FILE_BYTES);
    bytes.extend_from_slice(FORMAT_FILE_MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(salt);
    let crc = crc32c_append(0, &bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The salt. Every version keeps magic and version in front and the checksum of everything before it at the end,
/// so that "of another version" and "damaged" can be told apart.
pub(crate) fn decode_format_file(bytes: &[u8]) -> Result<[u8; 32], FormatFileError> {
    if bytes.len() < 24 || !bytes.starts_with(FORMAT_FILE_MAGIC) {
        return Err(FormatFileError::Damaged);
    }
    let (content, crc) = bytes.split_at(bytes.len() - 4);
    if crc32c_append(0, content) != u32_at(crc, 0) {
        return Err(FormatFileError::Damaged);
    }
    let version = u32_at(bytes, 16);
    if version != FORMAT_VERSION {
        return Err(FormatFileError::Version(version));
    }
    content.get(20..).and_then(|salt| salt.try_into().ok()).ok_or(FormatFileError::Damaged)
}

/// What a frame is for. Only `Records` carries any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A commit group.
    Records = 1,
    /// The first frame of every segment, and of no other place.
    Segment = 2,
    /// A writer began: a new epoch.
    Open = 3,
    /// Nothing but the newest synced position.
    Mark = 4,
}

impl FrameKind {
    fn from_number(number: u16) -> Option<Self> {
        [Self::Records, Self::Segment, Self::Open, Self::Mark].into_iter().find(|kind| *kind as u16 == number)
    }
}

/// A frame's header, without magic and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    /// Where this frame lies: a frame is valid nowhere else.
    pub(crate) place: Place,
    pub(crate) record_count: u32,
    /// Length of the segment's file; told by its first frame only, 0 otherwise.
    pub(crate) segment_bytes: u32,
    /// Consecutive over the whole log.
    pub(crate) sequence: u64,
    /// One more at every open.
    pub(crate) epoch: u64,
    /// Every frame that ends at or before this place is known to be synced.
    pub(crate) synced: Place,
    /// The log's oldest segment when this frame was written.
    pub(crate) oldest: u32,
    pub(crate) payload_bytes: u32,
    /// Checksum of the frame before.
    pub(crate) chain: u32,
    /// Checksum of this frame.
    pub(crate) crc: u32,
}

impl FrameHeader {
    /// Bytes of the whole frame, padding included.
    pub(crate) fn frame_bytes(&self) -> u64 {
        padded(u64::from(FRAME_HEADER_BYTES) + u64::from(self.payload_bytes))
    }

    /// Writes this header over the first bytes of `frame` (payload and padding are in place) and returns the
    /// checksum that the next frame is chained to. `self.crc` is ignored.
    pub(crate) fn seal(&self, secrets: &Secrets, frame: &mut [u8]) -> u32 {
        assert_eq!(frame.len() as u64, self.frame_bytes(), "a frame is sealed whole");
        frame[0..8].copy_from_slice(&secrets.magic.to_le_bytes());
        frame[8..10].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        frame[10..12].copy_from_slice(&(self.kind as u16).to_le_bytes());
        frame[12..16].copy_from_slice(&self.place.segment.to_le_bytes());
        frame[16..20].copy_from_slice(&self.place.offset.to_le_bytes());
        let number = if self.kind == FrameKind::Segment { self.segment_bytes } else { self.record_count };
        frame[20..24].copy_from_slice(&number.to_le_bytes());
        frame[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        frame[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        frame[40..44].copy_from_slice(&self.synced.segment.to_le_bytes());
        frame[44..48].copy_from_slice(&self.synced.offset.to_le_bytes());
        frame[48..52].copy_from_slice(&self.oldest.to_le_bytes());
        frame[52..56].copy_from_slice(&self.payload_bytes.to_le_bytes());
        frame[56..60].copy_from_slice(&self.chain.to_le_bytes());
        let crc = frame_crc(secrets, frame);
        frame[FRAME_CRC_OFFSET..64].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads a header from the first 64 bytes of `bytes`: only whether it can be one of ours at `place`; the
    /// checksum is not looked at.
    pub(crate) fn parse(secrets: &Secrets, bytes: &[u8], place: Place) -> Option<Self> {
        if u64_at(bytes, 0) != secrets.magic || u16_at(bytes, 8) != FRAME_VERSION {
            return None;
        }
        let kind = FrameKind::from_number(u16_at(bytes, 10))?;
        let number = u32_at(bytes, 20);
        let (record_count, segment_bytes) =
            if kind == FrameKind::Segment { (0, number) } else { (number, 0) };
        let header = Self {
            kind,
            place: Place { segment: u32_at(bytes, 12), offset: u32_at(bytes, 16) },
            record_count,
            segment_bytes,
            sequence: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            synced: Place { segment: u32_at(bytes, 40), offset: u32_at(bytes, 44) },
            oldest: u32_at(bytes, 48),
            payload_bytes: u32_at(bytes, 52),
            chain: u32_at(bytes, 56),
            crc: u32_at(bytes, FRAME_CRC_OFFSET),
        };
        let plausible = header.place == place
            && header.synced <= place
            && header.oldest <= place.segment
            && (header.kind == FrameKind::Segment) == (place.offset == 0);
        plausible.then_some(header)
    }

    /// Whether the checksum of the whole `frame` is right.
    pub(crate) fn is_intact(&self, secrets: &Secrets, frame: &[u8]) -> bool {
        frame_crc(secrets, frame) == self.crc
    }
}

/// The frame's own copy of the version: a frame that a later version wrote is not one of ours.
pub(crate) const FRAME_VERSION: u16 = 2;

/// Over everything but the field itself, padding included.
pub(crate) fn frame_crc(secrets: &Secrets, frame: &[u8]) -> u32 {
    let crc = crc32c_append(secrets.frame_seed, &frame[..FRAME_CRC_OFFSET]);
    crc32c_append(crc, &frame[FRAME_CRC_OFFSET + 4..])
}

/// Appends a record whose payload `encode` writes, returning how many bytes of it are its head; returns the
/// payload's length. The record is whole once [`place_record`] was told where it lies.
pub(crate) fn append_record(
    secrets: &Secrets,
    buffer: &mut Vec<u8>,
    key: Option<u64>,
    anchor: bool,
    encode: impl FnOnce(&mut Vec<u8>) -> usize,
) -> u32 {
    let start = buffer.len();
    let body = start + RECORD_HEADER_BYTES as usize;
    buffer.resize(body, 0);
    let head = encode(buffer);
    let length = buffer.len().checked_sub(body).expect("`encode` only appends");
    assert!(head <= length, "the head is a part of the payload");
    let within = |bytes: usize| u32::try_from(bytes).ok().filter(|bytes| *bytes <= HEAD_MASK);
    let head = within(head).expect("a segment, and so a head, is not longer than 1 GiB");
    let length = u32::try_from(length).expect("a record is far below 4 GiB: the engine bounds bodies");
    let flags = u32::from(key.is_some()) * FLAG_KEYED + u32::from(anchor) * FLAG_ANCHOR;
    let record = &mut buffer[start..];
    record[0..4].copy_from_slice(&length.to_le_bytes());
    record[4..8].copy_from_slice(&(head | flags).to_le_bytes());
    record[8..16].copy_from_slice(&key.unwrap_or(0).to_le_bytes());
    let crc = content_crc(secrets, record);
    record[RECORD_CRC_OFFSET..20].copy_from_slice(&crc.to_le_bytes());
    length
}

/// Completes the checksum of the record that begins `record`, now that its place is known: it is valid nowhere else,
/// so what an earlier life of the file left there is never taken for another record.
pub(crate) fn place_record(record: &mut [u8], place: Place) {
    let field = &mut record[RECORD_CRC_OFFSET..20];
    let crc = placed_crc(u32_at(field, 0), place);
    field.copy_from_slice(&crc.to_le_bytes());
}

/// A record as it lies in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: Option<u64>,
    pub(crate) anchor: bool,
    pub(crate) head_bytes: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// The part of the payload that replay needs.
    pub(crate) fn head(&self) -> &'a [u8] {
        &self.payload[..self.head_bytes as usize]
    }
}

/// Splits the first record off `bytes`; `None` if there is no whole record. The checksum is not looked at.
pub(crate) fn split_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let header_bytes = RECORD_HEADER_BYTES as usize;
    let header = bytes.get(..header_bytes)?;
    let end = header_bytes.checked_add(u32_at(header, 0) as usize)?;
    let payload = bytes.get(header_bytes..end)?;
    let word = u32_at(header, 4);
    let key = (word & FLAG_KEYED != 0).then(|| u64_at(header, 8));
    let anchor = word & FLAG_ANCHOR != 0;
    let head_bytes = word & HEAD_MASK;
    if (anchor && key.is_none()) || head_bytes as usize > payload.len() {
        return None;
    }
    Some((Record { key, anchor, head_bytes, payload }, &bytes[end..]))
}

/// Whether `bytes` are exactly one record that was written at `place`.
pub(crate) fn is_intact_record(secrets: &Secrets, bytes: &[u8], place: Place) -> bool {
    matches!(split_record(bytes), Some((_, [])))
        && placed_crc(content_crc(secrets, bytes), place) == u32_at(bytes, RECORD_CRC_OFFSET)
}

/// Over everything but the field itself.
pub(crate) fn content_crc(secrets: &Secrets, record: &[u8]) -> u32 {
    let crc = crc32c_append(secrets.record_seed, &record[..RECORD_CRC_OFFSET]);
    crc32c_append(crc, &record[RECORD_HEADER_BYTES as usize..])
}

pub(crate) fn placed_crc(crc: u32, place: Place) -> u32 {
    let crc = crc32c_append(crc, &place.segment.to_le_bytes());
    crc32c_append(crc, &place.offset.to_le_bytes())
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; 32] = [0xA5; 32];

    fn header(payload_bytes: u32) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Records,
            place: Place { segment: 3, offset: 512 },
            record_count: 1,
            segment_bytes: 0,
            sequence: 9,
            epoch: 2,
            synced: Place { segment: 2, offset: 1024 },
            oldest: 1,
            payload_bytes,
            chain: 77,
            crc: 0,
        }
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_noticed() {
        let secrets = Secrets::from_salt(&SALT);
        let mut frame = vec![0; 512];
        let mut sealed = header(25);
        sealed.crc = sealed.seal(&secrets, &mut frame);
        let valid = |frame: &[u8]| {
            FrameHeader::parse(&secrets, frame, sealed.place)
                .is_some_and(|parsed| parsed.frame_bytes() == 512 && parsed.is_intact(&secrets, frame))
        };
        assert!(valid(&frame));
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&frame), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_frame_is_valid_only_where_it_was_written() {
        let secrets = Secrets::from_salt(&SALT);
        let mut frame = vec![0; 512];
        header(0).seal(&secrets, &mut frame);
        for place in [Place { segment: 3, offset: 1024 }, Place { segment: 4, offset: 512 }] {
            assert_eq!(FrameHeader::parse(&secrets, &frame, place), None);
        }
    }

    #[test]
    fn zeros_are_no_frame_whatever_the_salt() {
        let secrets = Secrets::from_salt(&[0; 32]);
        assert_eq!(FrameHeader::parse(&secrets, &[0; 512], Place { segment: 0, offset: 0 }), None);
        assert_ne!(secrets.magic, 0);
    }

    #[test]
    fn a_format_file_tells_damage_from_another_version() {
        let good = encode_format_file(&SALT);
        assert_eq!(good.len(), FORMAT_FILE_BYTES);
        assert_eq!(decode_format_file(&good), Ok(SALT));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(decode_format_file(&bad), Err(FormatFileError::Damaged), "byte {at}");
            assert_eq!(decode_format_file(&good[..at]), Err(FormatFileError::Damaged), "cut at {at}");
        }
        let mut other = good[..good.len() - 4].to_vec();
        other[16] = 9;
        other.extend_from_slice(b"fields of a later version");
        let crc = crc32c_append(0, &other);
        other.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_format_file(&other), Err(FormatFileError::Version(9)));
    }

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let secrets = Secrets::from_salt(&SALT);
        let mut record = Vec::new();
        append_record(&secrets, &mut record, Some(7), true, |out| {
            out.extend_from_slice(b"head and body");
            4
        });
        let place = Place { segment: 9, offset: 1024 };
        place_record(&mut record, place);
        assert!(is_intact_record(&secrets, &record, place));
        for other in [Place { segment: 1, offset: 1024 }, Place { segment: 9, offset: 1044 }] {
            assert!(!is_intact_record(&secrets, &record, other));
        }
        let (split, rest) = split_record(&record).unwrap();
        assert_eq!((split.key, split.anchor, split.head(), rest), (Some(7), true, &b"head"[..], &[][..]));
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact_record(&secrets, &record, place), "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(segment_number(&segment_name(7)), Some(7));
        assert_eq!(index_number(&index_name(7)), Some(7));
        assert_eq!(spare_number(&spare_name(7)), Some(7));
        assert_eq!((index_number(&segment_name(7)), spare_number(&index_name(7))), (None, None));
        for name in ["7.log", "00000000.log", "+0000007.log", "00000007.log.tmp", "format", "000000007.log"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
        assert_eq!(segment_number(&segment_name(u32::MAX)), Some(u32::MAX));
    }
}
