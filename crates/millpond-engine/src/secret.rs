//! The small file that holds the secret behind ids, receipts and tokens.
//!
//! Owns its bytes (drawn in `docs/formats/journal.md`) and when it is made. Must never take a damaged secret for one: with
//! another one every id, receipt and token that was given out means nothing, or something else.

use crc32c::crc32c;
use millpond_journal::Storage;
use std::io;

/// Its name in the data directory.
pub(crate) const SECRET_FILE: &str = "secret";
const MAGIC: &[u8; 16] = b"millpond secret\n";
const VERSION: u32 = 2;
/// Magic, version, the secret, and the checksum of all before it.
const FILE_BYTES: usize = 56;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    Whole([u8; 32]),
    Damaged,
    Missing,
}

impl Secret {
    pub(crate) fn read(storage: &dyn Storage) -> io::Result<Self> {
        Ok(storage.read_small(SECRET_FILE)?.map_or(Self::Missing, |bytes| Self::decode(&bytes)))
    }

    fn decode(bytes: &[u8]) -> Self {
        let secret = bytes.get(20..52).and_then(|secret| secret.try_into().ok());
        secret.filter(|secret| bytes == encode(secret)).map_or(Self::Damaged, Self::Whole)
    }
}

/// Makes or replaces the file; durable when this returns.
pub(crate) fn write(storage: &dyn Storage, secret: &[u8; 32]) -> io::Result<()> {
    storage.write_whole(SECRET_FILE, &encode(secret))
}

fn encode(secret: &[u8; 32]) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
    bytes[20..52].copy_from_slice(secret);
    let checksum = crc32c(&bytes[..52]);
    bytes[52..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES, SECRET_FILE, Secret, write};
    use millpond_journal::Storage as _;
    use millpond_journal::simulated::SimulatedDisk;

    #[test]
    fn a_secret_comes_back_and_no_change_of_its_file_passes_for_one() {
        let disk = SimulatedDisk::new();
        assert_eq!(Secret::read(&disk).unwrap(), Secret::Missing);
        let secret = std::array::from_fn(|at| u8::try_from(at * 7).unwrap());
        write(&disk, &secret).unwrap();
        assert_eq!(Secret::read(&disk).unwrap(), Secret::Whole(secret));
        for bit in 0..FILE_BYTES * 8 {
            disk.flip(SECRET_FILE, bit / 8, 1 << (bit % 8));
            assert_eq!(Secret::read(&disk).unwrap(), Secret::Damaged, "bit {bit}");
            disk.flip(SECRET_FILE, bit / 8, 1 << (bit % 8));
        }
        let whole = disk.bytes(SECRET_FILE);
        for length in 0..FILE_BYTES {
            disk.write_whole(SECRET_FILE, &whole[..length]).unwrap();
            assert_eq!(Secret::read(&disk).unwrap(), Secret::Damaged, "{length} bytes");
        }
        disk.write_whole(SECRET_FILE, &[&whole[..], &[0]].concat()).unwrap();
        assert_eq!(Secret::read(&disk).unwrap(), Secret::Damaged, "a byte more");
    }
}
