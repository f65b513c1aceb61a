//! When waiting messages expire.
//!
//! Owns the order of expiries. Messages of one time to live expire in the order in which they came, so a bitmap of
//! their numbers says it all; what came in another order is kept one by one. Must never decide what expiry does.

use crate::identity::Seq;
use crate::time::Mono;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};

/// Most different times to live that get a lane of their own.
const LANES_MAX: usize = 1024;

/// Messages of one time to live, in the order of their numbers and of their ends.
#[derive(Debug)]
struct Lane {
    members: RoaringTreemap,
    latest: (Seq, Mono),
    /// Its first member expires then or later, and that is this one or one that came after it.
    head: (Mono, Seq),
}

/// The pending expiries.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    /// By time to live in microseconds.
    lanes: BTreeMap<i64, Lane>,
    heads: BTreeSet<(Mono, Seq, i64)>,
    /// Those that are in no lane.
    single: BTreeSet<(Mono, Seq)>,
}

impl Expiries {
    /// A message with this time to live expires at `at`.
    pub(super) fn set(&mut self, seq: Seq, at: Mono, ttl_micros: i64) {
        if let Some(lane) = self.lanes.get_mut(&ttl_micros) {
            if seq > lane.latest.0 && at >= lane.latest.1 {
                lane.members.insert(seq.0);
                lane.latest = (seq, at);
            } else {
                self.single.insert((at, seq));
            }
        } else if self.lanes.len() < LANES_MAX {
            let members = RoaringTreemap::from_iter([seq.0]);
            self.lanes.insert(ttl_micros, Lane { members, latest: (seq, at), head: (at, seq) });
            self.heads.insert((at, seq, ttl_micros));
        } else {
            self.single.insert((at, seq));
        }
    }

    /// It does not.
    pub(super) fn clear(&mut self, seq: Seq, at: Mono, ttl_micros: i64) {
        if !self.single.is_empty() && self.single.remove(&(at, seq)) {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&ttl_micros) {
            lane.members.remove(seq.0);
            self.close_if_empty(ttl_micros);
        }
    }

    fn close_if_empty(&mut self, ttl_micros: i64) {
        if let Some(lane) = self.lanes.get(&ttl_micros)
            && lane.members.is_empty()
        {
            self.heads.remove(&(lane.head.0, lane.head.1, ttl_micros));
            self.lanes.remove(&ttl_micros);
        }
    }

    /// A time before which none is due.
    pub(super) fn next(&self) -> Option<Mono> {
        let lane = self.heads.first().map(|&(at, ..)| at);
        let single = self.single.first().map(|&(at, _)| at);
        match (lane, single) {
            (Some(lane), Some(single)) => Some(lane.min(single)),
            (lane, single) => lane.or(single),
        }
    }

    /// When the first one is due, if that is not after `now`. `expires` tells when a message does.
    pub(super) fn first_due(&mut self, now: Mono, expires: impl Fn(Seq) -> Option<Mono>) -> Option<Mono> {
        while let Some(&(bound, before, ttl_micros)) = self.heads.first()
            && bound <= now
        {
            let lane = self.lanes.get_mut(&ttl_micros).expect("a head has a lane");
            let first = Seq(lane.members.min().expect("an empty lane is closed"));
            if first == before {
                // The bound is its own time then.
                break;
            }
            let at = expires(first).expect("what is gone was cleared");
            self.heads.remove(&(bound, before, ttl_micros));
            lane.head = (at.max(bound), first);
            self.heads.insert((lane.head.0, first, ttl_micros));
        }
        self.next().filter(|&at| at <= now)
    }

    /// Takes the one that [`Expiries::first_due`] has found.
    pub(super) fn take_first(&mut self) -> Option<Seq> {
        let lane = self.heads.first().copied();
        let single = self.single.first().copied();
        match (lane, single) {
            (Some((at, first, ttl_micros)), single) if single.is_none_or(|other| (at, first) < other) => {
                let lane = self.lanes.get_mut(&ttl_micros).expect("a head has a lane");
                let first = lane.members.min().expect("an empty lane is closed");
                lane.members.remove(first);
                self.close_if_empty(ttl_micros);
                Some(Seq(first))
            }
            _ => self.single.pop_first().map(|(_, seq)| seq),
        }
    }

    /// Whether this message's expiry is pending.
    pub(super) fn contains(&self, seq: Seq, at: Mono, ttl_micros: i64) -> bool {
        self.single.contains(&(at, seq))
            || self
                .lanes
                .get(&ttl_micros)
                .is_some_and(|lane| lane.head.0 <= at && lane.members.contains(seq.0))
    }
}

#[cfg(test)]
mod tests {
    use super::Expiries;
    use crate::identity::Seq;
    use crate::time::Mono;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn expiries_come_in_the_order_of_their_times_and_none_is_missed(
            steps in prop::collection::vec((0..400_i64, prop_oneof![3 => Just(100_i64), 2 => Just(50), 1 => 0..2000_i64],
                any::<bool>(), any::<prop::sample::Index>(), 0..3_i64), 1..200)
        ) {
            let mut expiries = Expiries::default();
            let mut pending: BTreeMap<Seq, (Mono, i64)> = BTreeMap::new();
            let mut now = 0;
            for (number, (jitter, ttl, clear, which, pass)) in steps.into_iter().enumerate() {
                now += pass * 20;
                let seq = Seq(number as u64 + 1);
                let at = Mono(now + ttl + if jitter < 40 { jitter } else { 0 });
                expiries.set(seq, at, ttl);
                pending.insert(seq, (at, ttl));
                if clear {
                    let (&seq, &(at, ttl)) = pending.iter().nth(which.index(pending.len())).unwrap();
                    prop_assert!(expiries.contains(seq, at, ttl));
                    expiries.clear(seq, at, ttl);
                    prop_assert!(!expiries.contains(seq, at, ttl));
                    pending.remove(&seq);
                }
                let soonest = |pending: &BTreeMap<Seq, (Mono, i64)>| pending.values().map(|one| one.0).min();
                let first = |pending: &BTreeMap<Seq, (Mono, i64)>| {
                    pending.iter().map(|(&seq, one)| (one.0, seq)).min().map(|(_, seq)| seq)
                };
                prop_assert!(expiries.next() <= soonest(&pending) || pending.is_empty());
                while let Some(at) = expiries.first_due(Mono(now), |seq| pending.get(&seq).map(|one| one.0)) {
                    prop_assert_eq!(Some(at), soonest(&pending));
                    let seq = expiries.take_first().unwrap();
                    prop_assert_eq!(Some(seq), first(&pending), "those of one moment go in the order of their numbers");
                    prop_assert_eq!(pending.remove(&seq).map(|one| one.0), Some(at));
                }
                prop_assert!(soonest(&pending).is_none_or(|at| at > Mono(now)));
            }
        }
    }
}
