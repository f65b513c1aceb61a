//! Groups: what goes into one and what does not.
//!
//! Owns the records of these tests. Must never depend on what they mean.

use super::{Commit, Entry, Outside};
use crate::engine::{Randomness, restore};
use crate::segments::SegmentJob;
use millpond_core::command::{Declared, OpNumber};
use millpond_core::identity::Seq;
use millpond_core::message::{Attempt, AttemptOutcome, Failure, Holder};
use millpond_core::record::Record;
use millpond_core::time::{Mono, Now, Wall};
use millpond_journal::Storage;
use millpond_journal::simulated::SimulatedDisk;
use std::sync::Arc;

#[derive(Default)]
struct Groups(Vec<usize>);

impl Outside for Groups {
    fn report(&mut self, commit: Commit) {
        self.0.push(commit.records);
    }

    fn wait_for_room(&mut self) -> bool {
        false
    }

    fn segment_job(&mut self, _: SegmentJob) {}
}

/// A record of about a KiB.
fn entry(op: u64, with_next: bool) -> Entry {
    let failure = Some(Failure::new("status", &"x".repeat(900 + usize::try_from(op % 100).unwrap()), None));
    let (holder, outcome) = (Holder::Worker, AttemptOutcome::Failed);
    let attempt = Some(Attempt { delivery: 1, holder, started: Wall(0), micros: 1, outcome, failure });
    let record = Record::Returned { seq: Seq(op), attempt, due: None, at: Wall(0) };
    Entry::Append { op: OpNumber(op), record, sync: true, with_next }
}

#[test]
fn records_that_belong_together_are_in_one_group_wherever_it_ends() {
    for before in 0..4 {
        let storage: Arc<dyn Storage> = Arc::new(SimulatedDisk::default());
        let randomness = Randomness { salt: [1; 32], secret: [2; 32], seed: 3 };
        let now = Now { wall: Wall(0), mono: Mono(0) };
        let mut log = restore(&storage, Declared::default(), 16 << 10, &randomness, now).unwrap().log;
        // Three by three, behind some that stand alone.
        let alone = (0..before).map(|op| entry(op + 2, false));
        let together = (0..90).map(|place| entry(before + 2 + place, place % 3 != 2));
        let mut groups = Groups::default();
        log.write(alone.chain(together).collect(), &mut groups).unwrap();
        let mut at = 0;
        for group in groups.0.iter().filter(|group| **group > 0) {
            at += group;
            let is_between = at as u64 <= before || (at as u64 - before).is_multiple_of(3);
            assert!(is_between, "behind {before}: {:?}", groups.0);
        }
        assert!(at as u64 == before + 90 && groups.0.len() > 5, "{:?}", groups.0);
    }
}
