//! Messages that wait untouched, in a few bytes each.
//!
//! Owns their compact form and that they come back from it as they were. A message rests while nothing has happened
//! to it but its acceptance: what differs between such messages are a time, a delay and a size, kept in columns, and
//! what they share is written once. Must never hold a message that anything else is known of.

use super::column::Column;
use super::slot::Slot;
use crate::command::OpNumber;
use crate::identity::Seq;
use crate::message::{Criticality, IdempotencyKey, Message, Phase, QueueNumber};
use crate::name::Label;
use crate::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Numbers per page: a page with a single message left takes about as much as one that does not rest.
const PAGE_NUMBERS: u64 = 1024;
const WORDS: usize = (PAGE_NUMBERS / 64) as usize;

/// What many messages share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    queue: QueueNumber,
    phase: Phase,
    criticality: Criticality,
    tenant: Option<Label>,
    group: Option<Label>,
    /// Time to live.
    ttl_micros: i64,
    /// Wall time less monotonic time at the acceptance.
    clock_micros: i64,
}

/// Every kind in use, by number, with how many messages are of it.
#[derive(Debug, Default)]
struct Kinds {
    entries: Vec<(Kind, u64)>,
    numbers: BTreeMap<Kind, usize>,
    free: Vec<usize>,
    latest: usize,
}

impl Kinds {
    fn count_in(&mut self, kind: Kind) -> usize {
        let same_again =
            self.entries.get(self.latest).is_some_and(|(latest, count)| *count > 0 && *latest == kind);
        if !same_again {
            self.latest = match self.numbers.get(&kind) {
                Some(&number) => number,
                None => self.add(kind),
            };
        }
        self.entries[self.latest].1 += 1;
        self.latest
    }

    fn add(&mut self, kind: Kind) -> usize {
        let number = self.free.pop().unwrap_or(self.entries.len());
        if number == self.entries.len() {
            self.entries.push((kind.clone(), 0));
        } else {
            self.entries[number] = (kind.clone(), 0);
        }
        self.numbers.insert(kind, number);
        number
    }

    fn count_out(&mut self, number: usize) {
        let (kind, count) = &mut self.entries[number];
        *count -= 1;
        if *count == 0 {
            self.numbers.remove(kind);
            self.free.push(number);
        }
    }
}

/// The messages with the numbers of one page, in their order.
#[derive(Debug, Default)]
struct Page {
    present: [u64; WORDS],
    accepted: Column,
    delay: Column,
    size: Column,
    kind: Column,
}

impl Page {
    fn has(&self, bit: usize) -> bool {
        self.present[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// How many messages come before `bit`.
    fn rank(&self, bit: usize) -> usize {
        let whole: u32 = self.present[..bit / 64].iter().map(|word| word.count_ones()).sum();
        let partial = self.present[bit / 64] & ((1 << (bit % 64)) - 1);
        (whole + partial.count_ones()) as usize
    }

    fn is_empty(&self) -> bool {
        self.present.iter().all(|word| *word == 0)
    }

    /// The set bits from `bit` on.
    fn bits_from(&self, bit: usize) -> impl Iterator<Item = usize> {
        let mut word = bit / 64;
        let mut rest = self.present.get(word).map_or(0, |bits| bits & (u64::MAX << (bit % 64)));
        std::iter::from_fn(move || {
            while rest == 0 {
                word += 1;
                rest = *self.present.get(word)?;
            }
            let found = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(word * 64 + found)
        })
    }
}

/// The resting messages.
#[derive(Debug, Default)]
pub(super) struct Resting {
    pages: BTreeMap<u64, Page>,
    kinds: Kinds,
    keys: BTreeMap<Seq, IdempotencyKey>,
    length: usize,
}

fn page_of(seq: Seq) -> (u64, usize) {
    let bit = (seq.0 % PAGE_NUMBERS) as usize;
    (seq.0 / PAGE_NUMBERS, bit)
}

/// Whether nothing is known of a message but how it was accepted.
fn is_untouched(message: &Message) -> bool {
    matches!(message.phase, Phase::Ready | Phase::Delayed)
        && message.place == message.seq.0
        && message.due == message.first_due
        && message.attempts == 0
        && message.deliveries == 0
        && message.deliveries_before == 0
        && message.hand_out.is_none()
        && message.consumer.is_none()
        && message.first_started.is_none()
        && message.finished.is_none()
        && message.dead_reason.is_none()
        && message.result.is_none()
        && message.history.is_empty()
}

impl Resting {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        let (number, bit) = page_of(seq);
        self.pages.get(&number).is_some_and(|page| page.has(bit))
    }

    /// Takes in a message if it can come back as it is; `false`, and nothing changes, if it cannot.
    pub(super) fn lay_down(&mut self, slot: &Slot) -> bool {
        let message = &slot.message;
        let clock_micros = message.first_due.0.wrapping_sub(slot.due_since.0);
        let ttl_micros = message.expires.0.wrapping_sub(message.accepted.0);
        let expiry = Mono(message.accepted.0.wrapping_sub(clock_micros).wrapping_add(ttl_micros));
        let rests = is_untouched(message)
            && slot.visible
            && slot.watchers.is_empty()
            && slot.occupies.is_none()
            && slot.expiry_timer == Some(expiry)
            && slot.phase_timer == (message.phase == Phase::Delayed).then_some(slot.due_since);
        if rests {
            self.add(message, clock_micros);
        }
        rests
    }

    /// Takes in a message as the log has it, of which the monotonic side is not known before
    /// [`Resting::start_clock`]. `false` if it cannot rest.
    pub(super) fn restore(&mut self, message: &Message) -> bool {
        let rests = is_untouched(message) && !self.contains(message.seq);
        if rests {
            self.add(message, 0);
        }
        rests
    }

    fn add(&mut self, message: &Message, clock_micros: i64) {
        let kind = self.kinds.count_in(Kind {
            queue: message.queue,
            phase: message.phase,
            criticality: message.criticality,
            tenant: message.tenant.clone(),
            group: message.group.clone(),
            ttl_micros: message.expires.0.wrapping_sub(message.accepted.0),
            clock_micros,
        });
        let (number, bit) = page_of(message.seq);
        let page = self.pages.entry(number).or_default();
        assert!(!page.has(bit), "message {:?} rests twice", message.seq);
        let rank = page.rank(bit);
        page.present[bit / 64] |= 1 << (bit % 64);
        page.accepted.insert(rank, message.accepted.0);
        page.delay.insert(rank, message.first_due.0.wrapping_sub(message.accepted.0));
        page.size.insert(rank, i64::from(message.size_bytes));
        page.kind.insert(rank, i64::try_from(kind).expect("kinds are fewer than messages"));
        if let Some(key) = message.key {
            self.keys.insert(message.seq, key);
        }
        self.length += 1;
    }

    /// The message as it was.
    pub(super) fn get(&self, seq: Seq) -> Option<Slot> {
        let (number, bit) = page_of(seq);
        let page = self.pages.get(&number).filter(|page| page.has(bit))?;
        Some(self.build(seq, page, page.rank(bit)))
    }

    fn build(&self, seq: Seq, page: &Page, rank: usize) -> Slot {
        let number = usize::try_from(page.kind.get(rank)).expect("written from one");
        let (kind, _) = &self.kinds.entries[number];
        let accepted = page.accepted.get(rank);
        let first_due = Wall(accepted.wrapping_add(page.delay.get(rank)));
        let key = if self.keys.is_empty() { None } else { self.keys.get(&seq).copied() };
        let message = Message {
            seq,
            queue: kind.queue,
            phase: kind.phase,
            place: seq.0,
            size_bytes: u32::try_from(page.size.get(rank)).expect("written from one"),
            criticality: kind.criticality,
            tenant: kind.tenant.clone(),
            group: kind.group.clone(),
            consumer: None,
            accepted: Wall(accepted),
            first_due,
            due: first_due,
            expires: Wall(accepted.wrapping_add(kind.ttl_micros)),
            attempts: 0,
            deliveries: 0,
            deliveries_before: 0,
            hand_out: None,
            first_started: None,
            finished: None,
            dead_reason: None,
            key,
            result: None,
            history: Vec::new(),
        };
        let due_since = Mono(first_due.0.wrapping_sub(kind.clock_micros));
        let expiry = accepted.wrapping_sub(kind.clock_micros).wrapping_add(kind.ttl_micros);
        Slot {
            visible: true,
            op: OpNumber(0),
            phase_timer: (kind.phase == Phase::Delayed).then_some(due_since),
            expiry_timer: Some(Mono(expiry)),
            ..Slot::new(message, due_since)
        }
    }

    /// Takes a message out.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Slot> {
        let slot = self.get(seq)?;
        let (number, bit) = page_of(seq);
        let page = self.pages.get_mut(&number).expect("it was there");
        let rank = page.rank(bit);
        self.kinds.count_out(usize::try_from(page.kind.get(rank)).expect("written from one"));
        page.present[bit / 64] &= !(1 << (bit % 64));
        for column in [&mut page.accepted, &mut page.delay, &mut page.size, &mut page.kind] {
            column.remove(rank);
        }
        if page.is_empty() {
            self.pages.remove(&number);
        }
        if slot.message.key.is_some() {
            self.keys.remove(&seq);
        }
        self.length -= 1;
        Some(slot)
    }

    /// The numbers of the messages beyond `after`, in order.
    pub(super) fn numbers_from(&self, from: Bound<Seq>) -> impl Iterator<Item = Seq> {
        let first = match from {
            Bound::Included(seq) => seq.0,
            Bound::Excluded(seq) => seq.0 + 1,
            Bound::Unbounded => 0,
        };
        let (start, skip) = page_of(Seq(first));
        self.pages.range(start..).flat_map(move |(&number, page)| {
            let from = if number == start { skip } else { 0 };
            page.bits_from(from).map(move |bit| Seq(number * PAGE_NUMBERS + bit as u64))
        })
    }

    /// The queues that have resting messages.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueNumber> {
        self.kinds.numbers.keys().map(|kind| kind.queue)
    }

    /// Ties restored messages to the monotonic clock. Those that a clock set back has moved into the future are
    /// taken out and returned: what they wait for cannot be told from their times alone.
    pub(super) fn start_clock(&mut self, now: Now) -> Vec<Slot> {
        let odd = |page: &Page, rank: usize, kinds: &Kinds| {
            let number = usize::try_from(page.kind.get(rank)).expect("written from one");
            let accepted = page.accepted.get(rank);
            let due = accepted.wrapping_add(page.delay.get(rank));
            accepted > now.wall.0 || (kinds.entries[number].0.phase == Phase::Ready && due > now.wall.0)
        };
        let mut from_the_future = Vec::new();
        for (&number, page) in &self.pages {
            for (rank, bit) in page.bits_from(0).enumerate() {
                if odd(page, rank, &self.kinds) {
                    from_the_future.push(Seq(number * PAGE_NUMBERS + bit as u64));
                }
            }
        }
        let taken = from_the_future.into_iter().filter_map(|seq| self.take(seq)).collect();
        let clock_micros = now.wall.0.wrapping_sub(now.mono.0);
        self.kinds.numbers.clear();
        for (number, (kind, count)) in self.kinds.entries.iter_mut().enumerate() {
            if *count > 0 {
                kind.clock_micros = clock_micros;
                self.kinds.numbers.insert(kind.clone(), number);
            }
        }
        taken
    }

    /// Bytes on the heap, roughly.
    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        let page = |page: &Page| {
            let columns = [&page.accepted, &page.delay, &page.size, &page.kind];
            size_of::<Page>() + 16 + columns.map(Column::heap_bytes).iter().sum::<usize>()
        };
        self.pages.values().map(page).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Resting;
    use crate::identity::Seq;
    use crate::message::{Criticality, IdempotencyKey, Message, Phase, QueueNumber};
    use crate::name::Label;
    use crate::pond::slot::Slot;
    use crate::time::{Mono, Now, Wall};
    use proptest::prelude::*;
    use std::ops::Bound;

    fn slot(seq: u64, at: i64, delay: i64, size: u32, kind: u32) -> Slot {
        let label = |text: String| Label::new(&text).ok();
        let first_due = Wall(1_000_000_000 + at + delay);
        let message = Message {
            seq: Seq(seq),
            queue: QueueNumber(kind % 3),
            phase: if delay > 0 { Phase::Delayed } else { Phase::Ready },
            place: seq,
            size_bytes: size,
            criticality: Criticality::ALL[kind as usize % 4],
            tenant: (kind > 5).then(|| label(format!("t{kind}"))).flatten(),
            group: (kind > 9).then(|| label(format!("g{kind}"))).flatten(),
            consumer: None,
            accepted: Wall(1_000_000_000 + at),
            first_due,
            due: first_due,
            expires: Wall(1_000_000_000 + at + 5_000_000 + i64::from(kind)),
            attempts: 0,
            deliveries: 0,
            deliveries_before: 0,
            hand_out: None,
            first_started: None,
            finished: None,
            dead_reason: None,
            key: kind.is_multiple_of(4).then_some(IdempotencyKey { key: seq.into(), payload: 3 }),
            result: None,
            history: Vec::new(),
        };
        let due_since = Mono(at + delay);
        let mut slot = Slot::new(message, due_since);
        slot.visible = true;
        slot.expiry_timer = Some(Mono(at + 5_000_000 + i64::from(kind)));
        slot.phase_timer = (delay > 0).then_some(due_since);
        slot
    }

    fn same(one: &Slot, other: &Slot) {
        assert_eq!(one.message, other.message);
        assert_eq!(one.due_since, other.due_since);
        assert_eq!(one.expiry_timer, other.expiry_timer);
        assert_eq!(one.phase_timer, other.phase_timer);
        assert!(one.visible && other.visible);
    }

    #[test]
    fn a_waiting_message_takes_few_bytes_whatever_its_size() {
        let mut resting = Resting::default();
        let mut chance = fastrand::Rng::with_seed(1);
        for seq in 1..=100_000_u32 {
            let at = i64::from(seq) * 20 + chance.i64(0..20);
            assert!(resting.lay_down(&slot(seq.into(), at, 0, 200 + chance.u32(0..800), 1)));
        }
        let each = resting.heap_bytes() as f64 / 100_000.0;
        assert!(each < 7.0, "{each} bytes each");
        for seq in (1..=100_000).filter(|seq| seq % 50 != 0) {
            assert!(resting.take(Seq(seq)).is_some());
        }
        let each = resting.heap_bytes() as f64 / 2_000.0;
        assert!(each < 60.0, "{each} bytes each when one in fifty is left");
        for seq in (50..=100_000).step_by(50) {
            assert!(resting.take(Seq(seq)).is_some());
        }
        assert_eq!((resting.len(), resting.heap_bytes()), (0, 0));
        assert!(resting.kinds.numbers.is_empty());
    }

    #[test]
    fn what_something_has_happened_to_does_not_rest() {
        let touched: [fn(&mut Slot); 9] = [
            |slot| slot.message.attempts = 1,
            |slot| slot.message.deliveries = 1,
            |slot| slot.message.deliveries_before = 1,
            |slot| slot.message.place += 1,
            |slot| slot.message.phase = Phase::Leased,
            |slot| slot.message.due.0 += 1,
            |slot| slot.visible = false,
            |slot| slot.watchers.push(crate::command::RequestId(1)),
            |slot| slot.expiry_timer = None,
        ];
        for touch in touched {
            let mut slot = slot(7, 0, 0, 1, 1);
            touch(&mut slot);
            let mut resting = Resting::default();
            assert!(!resting.lay_down(&slot), "{slot:?}");
            assert_eq!(resting.len(), 0);
        }
    }

    #[test]
    fn restored_messages_stand_on_the_new_clock() {
        let mut resting = Resting::default();
        for seq in 1..=3 {
            assert!(resting.restore(&slot(seq, i64::try_from(seq).unwrap() * 1000, 0, 9, 1).message));
        }
        let now = Now { wall: Wall(1_000_002_500), mono: Mono(500) };
        let future = resting.start_clock(now);
        assert_eq!(future.iter().map(|slot| slot.message.seq).collect::<Vec<_>>(), [Seq(3)]);
        assert_eq!(resting.get(Seq(1)).unwrap().due_since, Mono(-1000));
        assert_eq!(resting.get(Seq(2)).unwrap().due_since, Mono(0));
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(
            steps in prop::collection::vec((1..5000_u64, any::<bool>(), 0..9_000_000_i64,
                prop_oneof![2 => Just(0_i64), 1 => 1..100_i64], any::<u32>(), 0..14_u32), 1..300)
        ) {
            let mut resting = Resting::default();
            let mut known = std::collections::BTreeMap::new();
            for (seq, lay_down, at, delay, size, kind) in steps {
                if lay_down && !known.contains_key(&seq) {
                    known.insert(seq, slot(seq, at, delay, size, kind));
                    prop_assert!(resting.lay_down(&known[&seq]));
                } else if let Some(slot) = known.remove(&seq) {
                    same(&resting.take(Seq(seq)).unwrap(), &slot);
                    prop_assert!(resting.take(Seq(seq)).is_none());
                }
                prop_assert_eq!(resting.len(), known.len());
            }
            let after = Seq(1500);
            let numbers: Vec<u64> = resting.numbers_from(Bound::Excluded(after)).map(|seq| seq.0).collect();
            let wanted: Vec<u64> = known.range(1501..).map(|(&seq, _)| seq).collect();
            prop_assert_eq!(numbers, wanted);
            for (&seq, slot) in &known {
                same(&resting.get(Seq(seq)).unwrap(), slot);
            }
        }
    }
}
