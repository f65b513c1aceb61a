//! What a data directory holds, read without serving it.
//!
//! Owns the operators' view: every record decoded and replayed into a pond that never opens, counts, and everything
//! that is wrong. Must never write, and may run beside a server. It needs the memory that a server with the same
//! messages needs; bodies stay on disk.

mod findings;

pub use findings::Finding;

use crate::codec::{DecodeError, decode};
use crate::secret::{SECRET_FILE, Secret};
use millpond_core::identity::{Keys, Seq};
use millpond_core::message::{Message, Phase, QueueNumber};
use millpond_core::pond::Pond;
use millpond_core::record::{QueueRecord, Record};
use millpond_journal::inspect::{Fault, FaultKind, InspectedRecord, Inspection, Visitor, inspect};
use millpond_journal::{OpenError, Position, Storage};
use std::collections::BTreeMap;

/// What is listed one by one is bounded by this; counts go on.
pub const LISTED_MAX: usize = 10_000;

/// A message's record is longer than this: so many bytes that are lost were at most so many messages.
pub(crate) const MESSAGE_BYTES_MIN: u64 = 64;

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
    /// The first [`LISTED_MAX`] messages that are lost for sure.
    pub lost: Vec<LostMessage>,
    /// How many there are.
    pub lost_total: u64,
    /// Ranges of numbers that were given out around damage, and of which no record speaks: each may have been a message
    /// that is lost, one that was done, or none.
    pub unknown: Vec<(Seq, Seq)>,
    /// The secret.
    pub secret: SecretState,
    /// The file that marks the directory as used is there, and the log holds nothing.
    pub emptied: bool,
    /// Number of the latest boot.
    pub boot: u32,
    /// The largest message number or place that any record names.
    pub largest_number: u64,
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

/// At most so many bytes of the log are lost with `fault`.
pub(crate) fn lost_bytes(inspection: &Inspection, fault: &Fault) -> u64 {
    let segment = inspection.segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
    match fault.kind {
        FaultKind::MissingSegments { count } => u64::from(count).saturating_mul(segment),
        FaultKind::Gap => segment,
        FaultKind::Index | FaultKind::Chain => 0,
        _ => fault.bytes,
    }
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
    /// Numbers below this one were given out, as far as the log has told, and whether damage was met since.
    given_out: u64,
    damaged_since: bool,
    /// Before any damage: from here on up to `given_out`, every number was met.
    dense_from: u64,
    unknown: Vec<(Seq, Seq)>,
    boot: u32,
    largest_number: u64,
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
                if self.undecodable.len() < LISTED_MAX {
                    let message = record.key.filter(|_| record.anchor).map(Seq);
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
            given_out: 0,
            damaged_since: false,
            dense_from: 0,
            unknown: Vec::new(),
            boot: 0,
            largest_number: 0,
        }
    }

    fn damaged(&mut self) {
        self.faults += 1;
        self.damaged_since = true;
    }

    fn take(&mut self, record: Record, position: Position) {
        *self.kinds.entry(kind(&record)).or_default() += 1;
        match &record {
            Record::Boot { epoch, next } => {
                self.boot = self.boot.max(*epoch);
                self.largest_number = self.largest_number.max(next.saturating_sub(1));
                self.all_given_out_before(*next);
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
        self.largest_number = self.largest_number.max(seq.0);
        self.all_given_out_before(seq.0);
        self.given_out = self.given_out.max(seq.0 + 1);
    }

    /// Numbers are given out in order, so a jump right behind damage shows which ones the damage may have taken.
    fn all_given_out_before(&mut self, next: u64) {
        if next < self.given_out {
            return;
        }
        if next > self.given_out {
            if self.damaged_since && self.unknown.len() < LISTED_MAX {
                self.unknown.push((Seq(self.given_out), Seq(next - 1)));
            }
            if self.faults == 0 {
                self.dense_from = next;
            }
        }
        self.damaged_since = false;
        self.given_out = next;
    }

    /// The log's oldest segments are gone: whatever was given out before the first run of numbers without a gap, and is
    /// met nowhere, may have been in them.
    fn miss_oldest(&mut self) {
        let mut first = 0;
        let mut unknown = Vec::new();
        for &Seq(met) in self.known.range(..Seq(self.dense_from)).map(|(seq, _)| seq) {
            if first < met {
                unknown.push((Seq(first), Seq(met - 1)));
            }
            first = met + 1;
        }
        if first < self.dense_from {
            unknown.push((Seq(first), Seq(self.dense_from - 1)));
        }
        unknown.append(&mut self.unknown);
        unknown.truncate(LISTED_MAX);
        self.unknown = unknown;
    }

    /// Nothing was given out behind the last damage that would show how much was given out in it: as much as fits.
    fn miss_newest(&mut self, inspection: &Inspection) {
        let bytes = inspection.faults.last().map_or(0, |fault| lost_bytes(inspection, fault));
        let numbers = bytes / MESSAGE_BYTES_MIN;
        if numbers > 0 && self.unknown.len() < LISTED_MAX {
            self.unknown.push((Seq(self.given_out), Seq(self.given_out + numbers - 1)));
        }
    }

    fn finish(mut self, inspection: Inspection, secret: Secret) -> Survey {
        let (state, keys) = match secret {
            Secret::Whole(secret) => (SecretState::Whole, Some(Keys::new(&secret))),
            Secret::Damaged => (SecretState::Damaged, None),
            Secret::Missing if inspection.records == 0 => (SecretState::Whole, None),
            Secret::Missing => (SecretState::Missing, None),
        };
        let first = inspection.segments.first().map_or(0, |first| first.number);
        if inspection.faults.first().is_some_and(|fault| fault.place.segment < first) {
            self.miss_oldest();
        }
        if self.damaged_since {
            self.miss_newest(&inspection);
        }
        let emptied = secret != Secret::Missing && inspection.frames == 0;
        let unanchored = self.known.iter().filter(|(_, known)| known.anchor.is_none() && !known.died);
        let lost = unanchored.map(|(&seq, known)| LostMessage { seq, queue: known.bodiless });
        let (lost_total, lost) = (lost.clone().count() as u64, lost.take(LISTED_MAX).collect());
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
            lost_total,
            unknown: self.unknown,
            secret: state,
            emptied,
            boot: self.boot,
            largest_number: self.largest_number,
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
        let mut survey = Reader::new(&mut Unwatched).finish(inspection, Secret::Missing);
        survey.secret = SecretState::Missing;
        survey
    }

    /// Whether a server opens this directory and every message of it can be read.
    pub fn is_whole(&self) -> bool {
        self.inspection.is_whole()
            && self.undecodable_total == 0
            && self.secret == SecretState::Whole
            && !self.emptied
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

    /// At most so many records lay in damaged places and cannot be told by anything: also messages that were copied to
    /// there from a segment that was given up since.
    pub fn unidentified_max(&self) -> u64 {
        let inspection = &self.inspection;
        // An index knows what its segment held.
        let is_known = |fault: &Fault| {
            let segment = fault.place.segment;
            let index_is_whole = inspection
                .segments
                .iter()
                .any(|inspected| inspected.number == segment && inspected.index_bytes > 0)
                && !inspection
                    .faults
                    .iter()
                    .any(|other| other.kind == FaultKind::Index && other.place.segment == segment);
            let is_recalled = matches!(fault.kind, FaultKind::MissingSegments { .. })
                && fault.heads_found + fault.records_found > 0;
            index_is_whole || is_recalled
        };
        let unknown = inspection.faults.iter().filter(|fault| !is_known(fault));
        unknown.map(|fault| lost_bytes(inspection, fault) / MESSAGE_BYTES_MIN).sum()
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
