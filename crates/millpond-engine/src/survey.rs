//! What a data directory holds, read without serving it.
//!
//! Owns the operators' view: every record decoded and replayed into a pond that never opens, counts, and everything
//! that is wrong. Must never write, and may run beside a server. It needs the memory that a server with the same
//! messages needs; bodies stay on disk.

mod findings;
mod loss;

pub use findings::Finding;
pub(crate) use loss::segment_bytes;

use crate::codec::{DecodeError, decode};
use crate::secret::{SECRET_FILE, Secret};
use loss::{Loss, Numbers};
use millpond_core::identity::{Keys, Seq};
use millpond_core::message::{Message, Phase, QueueNumber};
use millpond_core::pond::Pond;
use millpond_core::record::{QueueRecord, Record};
use millpond_journal::inspect::{InspectedRecord, Inspection, Visitor, inspect};
use millpond_journal::{OpenError, Position, Storage};
use std::collections::BTreeMap;

/// What is listed one by one is bounded by this; counts go on.
pub const LISTED_MAX: usize = 10_000;

/// Whoever watches a survey.
pub trait Watch {
    /// So many bytes of segments have been read.
    fn progress(&mut self, _bytes: u64) {}

    /// A record that can be read whole and decoded, in the order of the log.
    fn record(&mut self, _record: &InspectedRecord<'_>) {}
}

/// Nobody watches.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// A record whose bytes are as they were written, but which this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Where it lies.
    pub position: Position,
    /// The message that it is about, if it is a full copy of one.
    pub message: Option<Seq>,
    /// What is wrong with it.
    pub error: DecodeError,
}

/// A message that was neither finished nor forgotten, and of which no full copy is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostMessage {
    /// The message.
    pub seq: Seq,
    /// Its queue, where something still says so.
    pub queue: Option<QueueNumber>,
}

/// Message numbers that were given out, or may have been, and of which no record is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownNumbers {
    /// The first one.
    pub first: Seq,
    /// The last one; `None`: nothing tells where they end.
    pub last: Option<Seq>,
}

impl UnknownNumbers {
    /// Whether `seq` is one of them.
    pub fn contains(&self, seq: Seq) -> bool {
        self.first <= seq && self.last.is_none_or(|last| seq <= last)
    }
}

/// What is known of the secret behind ids, receipts and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretState {
    /// It is there, or nothing can rest on it yet.
    Whole,
    /// There are records, but no secret.
    Missing,
    /// The file is not as it was written.
    Damaged,
}

/// One queue as the log knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SurveyedQueue {
    /// Its latest record; `None` if that is lost, and only messages speak of the queue.
    pub record: Option<QueueRecord>,
    /// Messages by phase, in the order of [`Phase::as_str`]'s words.
    pub messages: BTreeMap<&'static str, u64>,
    /// What its unfinished messages count against byte bounds.
    pub bytes: u64,
    /// Unfinished messages whose newest known fact is older than some damage: they may come back to an earlier state
    /// and be done again.
    pub uncertain: u64,
}

/// Everything that was found.
#[derive(Debug)]
pub struct Survey {
    /// The bytes.
    pub inspection: Inspection,
    /// Records by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Bytes of all records, headers included.
    pub record_bytes: u64,
    /// Bytes of the records that are needed: the newest full copy of every message that is kept.
    pub live_bytes: u64,
    /// The same for each segment that has any.
    pub live_bytes_by_segment: BTreeMap<u32, u64>,
    /// Queues by number; deleted ones only if something is kept of their messages.
    pub queues: BTreeMap<u32, SurveyedQueue>,
    /// The first [`LISTED_MAX`] records that cannot be decoded.
    pub undecodable: Vec<Undecodable>,
    /// How many there are.
    pub undecodable_total: u64,
    /// Every message of which something still speaks and no full copy is left. One of which only its death is known is
    /// among [`unknown`](Self::unknown): nothing says whether it was kept until the damage.
    pub lost: Vec<LostMessage>,
    /// Ranges of numbers of which each may have been a message that is lost, one that was done, or none: nothing tells.
    /// At most [`LISTED_MAX`]; where there would be more, the last one takes in all of them.
    pub unknown: Vec<UnknownNumbers>,
    /// At most so many messages are lost beside those in [`lost`](Self::lost), all of them with numbers in
    /// [`unknown`](Self::unknown); `None`: nothing is left that says how many there were.
    pub unidentified_max: Option<u64>,
    /// The secret.
    pub secret: SecretState,
    /// The file that marks the directory as used is there, and the log holds nothing.
    pub emptied: bool,
    /// Number of the latest boot.
    pub boot: u32,
    /// No number from here on was ever given out. Where nothing tells, it is far beyond any that was seen.
    pub unused_from: u64,
    pond: Pond,
    known: BTreeMap<Seq, Known>,
    keys: Option<Keys>,
}

/// What a survey remembers of a message beside the pond.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Its newest full copy.
    anchor: Option<Position>,
    /// Damaged places before its newest record.
    faults_before: usize,
    /// Its queue, if its newest full copy has lost its bytes.
    bodiless: Option<QueueNumber>,
    /// Its newest fact is that it died: from then on it may be forgotten without a word, once its retention is over.
    died: bool,
}

/// Reads everything in `storage`.
///
/// # Errors
/// If no frame can be checked, or the directory cannot be read; see [`inspect`]. Damage is in the result.
pub fn survey(storage: &dyn Storage, watch: &mut dyn Watch) -> Result<Survey, OpenError> {
    let mut reader = Reader::new(watch);
    let inspection = inspect(storage, &mut reader)?;
    let io = |source| OpenError::Io { what: SECRET_FILE.to_owned(), source };
    let secret = Secret::read(storage).map_err(io)?;
    Ok(reader.finish(inspection, secret))
}

struct Reader<'a> {
    watch: &'a mut dyn Watch,
    pond: Pond,
    known: BTreeMap<Seq, Known>,
    kinds: BTreeMap<&'static str, u64>,
    queues: BTreeMap<u32, SurveyedQueue>,
    record_bytes: u64,
    undecodable: Vec<Undecodable>,
    undecodable_total: u64,
    faults: usize,
    numbers: Numbers,
    boot: u32,
}

impl Visitor for Reader<'_> {
    fn record(&mut self, record: InspectedRecord<'_>) {
        self.record_bytes += record.position.record_bytes();
        match decode(record.head) {
            Ok(Record::Message { message, .. }) if record.payload.is_none() => self.take_bodiless(&message),
            Ok(decoded) => {
                self.watch.record(&record);
                self.take(decoded, record.position);
            }
            Err(error) => {
                self.undecodable_total += 1;
                self.damaged();
                let message = record.key.filter(|_| record.anchor).map(Seq);
                if let Some(seq) = message {
                    self.touch(seq, None);
                }
                if self.undecodable.len() < LISTED_MAX {
                    self.undecodable.push(Undecodable { position: record.position, message, error });
                }
            }
        }
    }

    fn damage(&mut self) {
        self.damaged();
    }

    fn progress(&mut self, bytes: u64) {
        self.watch.progress(bytes);
    }
}

impl<'a> Reader<'a> {
    fn new(watch: &'a mut dyn Watch) -> Self {
        Self {
            watch,
            pond: Pond::new(0),
            known: BTreeMap::new(),
            kinds: BTreeMap::new(),
            queues: BTreeMap::new(),
            record_bytes: 0,
            undecodable: Vec::new(),
            undecodable_total: 0,
            faults: 0,
            numbers: Numbers::default(),
            boot: 0,
        }
    }

    fn damaged(&mut self) {
        self.faults += 1;
        self.numbers.damaged();
    }

    fn take(&mut self, record: Record, position: Position) {
        *self.kinds.entry(kind(&record)).or_default() += 1;
        match &record {
            Record::Boot { epoch, next } => {
                self.boot = self.boot.max(*epoch);
                self.numbers.boot(*next);
            }
            Record::Queue(queue) => {
                self.queues.entry(queue.number.0).or_default().record = Some((**queue).clone());
            }
            Record::Forgotten { seq } => {
                self.meet(*seq);
                self.known.remove(seq);
            }
            Record::Message { message, .. } => {
                self.touch(message.seq, Some(position));
                self.meet(Seq(message.place));
            }
            Record::Replayed { seq, place, .. } => {
                self.touch(*seq, None);
                self.meet(Seq(*place));
            }
            Record::Leased { receipt, .. } => self.touch(receipt.seq, None),
            Record::Extended { seq, .. } | Record::Returned { seq, .. } => self.touch(*seq, None),
            Record::Died { seq, .. } => {
                self.touch(*seq, None);
                self.known.entry(*seq).and_modify(|known| known.died = true);
            }
            Record::Called { .. } => {}
        }
        self.pond.restore(record);
    }

    fn touch(&mut self, seq: Seq, anchor: Option<Position>) {
        self.meet(seq);
        let faults_before = self.faults;
        let unknown = Known { anchor: None, faults_before, bodiless: None, died: false };
        let known = self.known.entry(seq).or_insert(unknown);
        (known.faults_before, known.died) = (faults_before, false);
        if anchor.is_some() {
            (known.anchor, known.bodiless) = (anchor, None);
        }
    }

    /// A full copy without its bytes is no copy: the message stays as an older one says, if there is one.
    fn take_bodiless(&mut self, message: &Message) {
        *self.kinds.entry("message").or_default() += 1;
        self.meet(message.seq);
        self.meet(Seq(message.place));
        let known = Known { anchor: None, faults_before: 0, bodiless: None, died: false };
        self.known.entry(message.seq).or_insert(known).bodiless = Some(message.queue);
    }

    fn meet(&mut self, seq: Seq) {
        self.numbers.meet(seq.0);
    }

    fn finish(mut self, inspection: Inspection, secret: Secret) -> Survey {
        let (state, keys) = match secret {
            Secret::Whole(secret) => (SecretState::Whole, Some(Keys::new(&secret))),
            Secret::Damaged => (SecretState::Damaged, None),
            Secret::Missing if inspection.records == 0 => (SecretState::Whole, None),
            Secret::Missing => (SecretState::Missing, None),
        };
        let emptied = secret != Secret::Missing && inspection.frames == 0;
        let unanchored = self.known.iter().filter(|(_, known)| known.anchor.is_none());
        let (mut lost, mut may_be_forgotten) = (Vec::new(), Vec::new());
        for (&seq, known) in unanchored {
            match known.bodiless {
                None if known.died => may_be_forgotten.push(seq),
                queue => lost.push(LostMessage { seq, queue }),
            }
        }
        // Also if not even the file `format` is left to check a frame with.
        let is_nothing_left = emptied || (inspection.frames == 0 && inspection.format_lost);
        let unnamed = if is_nothing_left {
            Loss::of_everything()
        } else {
            self.numbers.lost(&inspection, self.undecodable_total, &may_be_forgotten)
        };
        let mut survey = Survey {
            inspection,
            kinds: self.kinds,
            record_bytes: self.record_bytes,
            live_bytes: 0,
            live_bytes_by_segment: BTreeMap::new(),
            queues: std::mem::take(&mut self.queues),
            undecodable: self.undecodable,
            undecodable_total: self.undecodable_total,
            lost,
            unknown: unnamed.unknown,
            unidentified_max: unnamed.unidentified_max,
            secret: state,
            emptied,
            boot: self.boot,
            unused_from: unnamed.unused_from,
            pond: self.pond,
            known: self.known,
            keys,
        };
        survey.count(self.faults);
        survey
    }
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Boot { .. } => "boot",
        Record::Queue(_) => "queue",
        Record::Message { .. } => "message",
        Record::Leased { .. } => "leased",
        Record::Extended { .. } => "extended",
        Record::Returned { .. } => "returned",
        Record::Died { .. } => "died",
        Record::Replayed { .. } => "replayed",
        Record::Forgotten { .. } => "forgotten",
        Record::Called { .. } => "called",
    }
}

impl Survey {
    fn count(&mut self, faults: usize) {
        let (known, queues) = (&self.known, &mut self.queues);
        let (live_bytes, by_segment) = (&mut self.live_bytes, &mut self.live_bytes_by_segment);
        self.pond.each_restored(&mut |message| {
            let queue = queues.entry(message.queue.0).or_default();
            *queue.messages.entry(message.phase.as_str()).or_default() += 1;
            let Some(known) = known.get(&message.seq) else { return };
            if !message.phase.is_terminal() {
                queue.bytes += u64::from(message.size_bytes);
                queue.uncertain += u64::from(known.faults_before < faults);
            }
            if let Some(anchor) = known.anchor {
                *live_bytes += anchor.record_bytes();
                *by_segment.entry(anchor.segment).or_default() += anchor.record_bytes();
            }
        });
        let is_kept = |queue: &SurveyedQueue| {
            queue.record.as_ref().is_some_and(|record| !record.deleted) || !queue.messages.is_empty()
        };
        self.queues.retain(|_, queue| is_kept(queue));
    }

    /// Of a directory in which not one frame can be checked.
    pub(crate) fn of_nothing() -> Self {
        let inspection = Inspection { format_lost: true, ..Inspection::default() };
        Reader::new(&mut Unwatched).finish(inspection, Secret::Missing)
    }

    /// Whether a server opens this directory and every message of it can be read. Never of a directory
    /// without a segment: a server starts anew in it, and what it held before is told by nothing.
    pub fn is_whole(&self) -> bool {
        self.inspection.is_whole()
            && self.undecodable_total == 0
            && self.secret == SecretState::Whole
            && !self.emptied
            && !self.inspection.segments.is_empty()
            && self.orphaned().next().is_none()
    }

    /// Numbers of queues of which messages speak and the log does not.
    pub fn orphaned(&self) -> impl Iterator<Item = QueueNumber> {
        self.queues.iter().filter(|(_, queue)| queue.record.is_none()).map(|(number, _)| QueueNumber(*number))
    }

    /// Shows every message that is kept, with where its newest full copy lies, in the order of their numbers.
    pub fn each_message(&self, visit: &mut dyn FnMut(&Message, Option<Position>)) {
        self.pond.each_restored(&mut |message| {
            visit(message, self.known.get(&message.seq).and_then(|known| known.anchor));
        });
    }

    /// The keys of this directory, while its secret is whole.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// Messages that are kept, finished ones included.
    pub fn messages(&self) -> u64 {
        self.queues.values().flat_map(|queue| queue.messages.values()).sum()
    }
}

/// The words of all phases, in the order of a life.
pub const PHASES: [Phase; 9] = [
    Phase::Delayed,
    Phase::Ready,
    Phase::Leased,
    Phase::Backoff,
    Phase::Succeeded,
    Phase::Dead,
    Phase::Expired,
    Phase::Cancelled,
    Phase::Dropped,
];
