//! What it takes to win room back on a full disk.
//!
//! Owns the arithmetic of going round the log's ring. Pure: numbers in, numbers out. Must never say what to do.
//!
//! Only the oldest segment can be given up, and what is alive in it must be written anew before. What settlements leave
//! behind lies at the end of the ring, so all that lies before it must be copied until that room is won back. Each
//! step takes a little more than it gives: groups have headers and end at whole sectors, a deletion is noted, and the end
//! of a segment stays empty where the next record does not fit. So before the room that is left falls below what the
//! whole way takes, somebody must set out.

use millpond_journal::Alive;

/// The note of a deletion.
const DELETION_BYTES: u64 = 512;
/// A group's header and what is left of its last sector, at most, and on average.
const GROUP_BYTES_MAX: u64 = 64 + 511;
const GROUP_BYTES_MEAN: u64 = 64 + 256;
/// Copies in one group take about this, if a segment is larger.
const GROUP_OF_COPIES_BYTES: u64 = 4 << 20;
/// What no group can take of a segment: its first frame, and the room for marks.
const UNUSABLE_BYTES: u64 = 1536;

/// One way round, from the oldest segment to the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// Room that must be there for every step to be possible.
    pub(crate) needs_bytes: u64,
    /// By how much more room there is afterwards.
    pub(crate) gain_bytes: u64,
}

impl Round {
    /// Of a log with these segments, oldest first, in the last one of which, and in the one ahead, `left_bytes` are left.
    /// `basics_bytes` will be written once on the way.
    pub(crate) fn of(
        segments: impl Iterator<Item = Alive>,
        segment_bytes: u64,
        left_bytes: u64,
        basics_bytes: u64,
    ) -> Self {
        let usable_bytes = segment_bytes.saturating_sub(UNUSABLE_BYTES);
        let (mut needs, mut taken, mut used) = (0, i128::from(basics_bytes), 0);
        for segment in segments {
            needs = needs.max(taken - used + i128::from(copying_bytes_max(segment, segment_bytes)));
            taken += i128::from(copying_bytes_mean(segment, segment_bytes));
            used += i128::from(usable_bytes);
        }
        // The segment ahead is no part of the ring yet.
        let unused = if left_bytes >= usable_bytes { left_bytes - usable_bytes } else { left_bytes };
        let gain = used - i128::from(unused) - taken;
        Self { needs_bytes: bytes(needs), gain_bytes: bytes(gain) }
    }
}

fn bytes(signed: i128) -> u64 {
    u64::try_from(signed.max(0)).unwrap_or(u64::MAX)
}

/// What it takes to give a segment up at most: its copies, and what surrounds them.
pub(crate) fn copying_bytes_max(segment: Alive, segment_bytes: u64) -> u64 {
    let Alive { copies_bytes, copies } = segment;
    if copies == 0 {
        let basics = if copies_bytes == 0 { 0 } else { copies_bytes + GROUP_BYTES_MAX };
        return basics + 2 * DELETION_BYTES;
    }
    // Others' groups come between, and the last group holds the basics.
    let groups = groups(copies_bytes, segment_bytes) + 2;
    copies_bytes + groups * GROUP_BYTES_MAX + copies_bytes / copies + 2 * DELETION_BYTES
}

/// The same on average.
fn copying_bytes_mean(segment: Alive, segment_bytes: u64) -> u64 {
    let Alive { copies_bytes, copies } = segment;
    if copies_bytes == 0 {
        return DELETION_BYTES;
    }
    let unused = copies_bytes / copies.max(1) / 2;
    copies_bytes + groups(copies_bytes, segment_bytes) * GROUP_BYTES_MEAN + unused + DELETION_BYTES
}

/// Groups into which copies go. One more where the segment that is written ends.
fn groups(copies_bytes: u64, segment_bytes: u64) -> u64 {
    2 + copies_bytes / GROUP_OF_COPIES_BYTES.min(segment_bytes / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: u64 = 32 << 10;
    const USABLE_BYTES: u64 = SEGMENT_BYTES - UNUSABLE_BYTES;

    fn alive(copies_bytes: u64) -> Alive {
        Alive { copies_bytes, copies: copies_bytes / 200 }
    }

    fn round(segments: &[u64], left_bytes: u64) -> Round {
        Round::of(segments.iter().map(|&bytes| alive(bytes)), SEGMENT_BYTES, left_bytes, 0)
    }

    #[test]
    fn segments_that_are_alive_to_the_last_byte_take_more_room_each_and_win_nothing() {
        let one = round(&[USABLE_BYTES], USABLE_BYTES);
        let three = round(&[USABLE_BYTES; 3], USABLE_BYTES);
        assert_eq!((one.gain_bytes, three.gain_bytes), (0, 0));
        assert!(one.needs_bytes > USABLE_BYTES && three.needs_bytes > one.needs_bytes, "{one:?} {three:?}");
    }

    #[test]
    fn room_is_needed_only_up_to_where_waste_pays_for_the_rest() {
        let waste_first = round(&[1000, USABLE_BYTES, USABLE_BYTES], USABLE_BYTES);
        let waste_last = round(&[USABLE_BYTES, USABLE_BYTES, 1000], USABLE_BYTES);
        assert_eq!(waste_first.gain_bytes, waste_last.gain_bytes);
        assert!(waste_first.gain_bytes > USABLE_BYTES / 2, "{waste_first:?}");
        assert!(waste_first.needs_bytes < USABLE_BYTES / 2, "{waste_first:?}");
        assert!(waste_last.needs_bytes > USABLE_BYTES, "{waste_last:?}");
    }

    #[test]
    fn what_is_left_of_the_last_segment_is_no_waste_and_the_segment_ahead_neither() {
        let half_written = [USABLE_BYTES / 4];
        let with_next = round(&half_written, USABLE_BYTES + USABLE_BYTES / 2);
        let without = round(&half_written, USABLE_BYTES / 2);
        assert_eq!(with_next, without);
        assert!(without.gain_bytes < USABLE_BYTES / 4, "{without:?}");
    }

    #[test]
    fn basics_that_are_written_once_are_taken_off_what_is_won() {
        let segments = || [alive(1000), alive(1000)].into_iter();
        let without = Round::of(segments(), SEGMENT_BYTES, 0, 0);
        let with = Round::of(segments(), SEGMENT_BYTES, 0, 700);
        assert_eq!(with.gain_bytes + 700, without.gain_bytes);
        assert_eq!(with.needs_bytes, without.needs_bytes + 700);
    }
}
