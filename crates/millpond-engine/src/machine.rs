//! The engine without threads: the pond, the index of the log, and what keeps the log short.
//!
//! Owns the order between records, copies and deletions. Production runs it on the engine thread, the simulator
//! on virtual time. Must never wait for the disk.

use crate::content::{DiskContent, Recent, Stored, Unreadable};
use crate::handle::Answer;
use crate::log::{Commit, Entry};
use crate::size::record_bytes;
use millpond_core::command::{Effect, Input, Leased, OpNumber, Reply, RequestId, StorageState, TargetNumber};
use millpond_core::identity::Seq;
use millpond_core::message::SharedContent;
use millpond_core::pond::Pond;
use millpond_core::record::Record;
use millpond_core::time::{Mono, Now};
use millpond_journal::{Files, Index, Position, Pressure, Reclaim, Sealed, ToSeal};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Something the machine wants done, in this order.
#[derive(Debug)]
pub enum Output {
    /// Give this to the log.
    Log(Entry),
    /// Answer a command.
    Reply(RequestId, Answer),
    /// Call a target.
    Dispatch(TargetNumber, Box<Leased>, Stored),
    /// Read these from the disk, then call [`Machine::copied`].
    ReadToCopy(Vec<(Seq, Stored)>),
    /// Write this index when there is time, then call [`Machine::sealed`].
    Seal(ToSeal),
}

/// Pond, index and recent contents.
#[derive(Debug)]
pub struct Machine {
    pond: Pond,
    index: Index,
    files: Files,
    recent: Recent,
    /// Sizes of the entries that the log has not committed yet, with their numbers.
    underway: VecDeque<(OpNumber, u64)>,
    underway_bytes: u64,
    /// Copies are being read or written; the next ones come after them.
    copying: Option<Copying>,
    /// Something could not be read for its copy: not tried again before.
    copy_again_at: Mono,
    /// A copy waits for that.
    copy_postponed: bool,
    room: Room,
    /// What is appended now is part of keeping the log short.
    reclaiming: bool,
    /// Something was forgotten since the log was last looked at for room to win back.
    forgot: bool,
    storage: StorageState,
    /// The worst that the log says of the disk since there was room.
    told: StorageState,
    outputs: Vec<Output>,
}

#[derive(Debug)]
enum Copying {
    Reading(BTreeMap<Seq, Position>),
    /// Emitted up to this record.
    Writing(OpNumber),
}

/// What the log says of its room.
#[derive(Debug, Clone, Copy)]
struct Room {
    remaining_bytes: u64,
    full: bool,
    segment_bytes: u64,
}

impl Machine {
    /// A machine from a restored and opened pond and the log's own knowledge.
    pub fn new(pond: Pond, index: Index, files: Files, segment_bytes: u64) -> Self {
        Self {
            pond,
            index,
            files,
            recent: Recent::default(),
            underway: VecDeque::new(),
            underway_bytes: 0,
            copying: None,
            copy_again_at: Mono(i64::MIN),
            copy_postponed: false,
            room: Room { remaining_bytes: segment_bytes, full: false, segment_bytes },
            reclaiming: false,
            forgot: false,
            storage: StorageState::Roomy,
            told: StorageState::Roomy,
            outputs: Vec::new(),
        }
    }

    /// The state machine.
    pub fn pond(&self) -> &Pond {
        &self.pond
    }

    /// Keeps so many of the latest messages in full; see [`Pond::keep_in_full`].
    pub fn keep_in_full(&mut self, messages: usize) {
        self.pond.keep_in_full(messages);
    }

    /// When [`Input::Tick`] is due at the latest.
    pub fn next_wakeup(&self) -> Option<Mono> {
        let copy = self.copy_postponed.then_some(self.copy_again_at);
        self.pond.next_wakeup().into_iter().chain(copy).min()
    }

    /// Bytes of live records, and of all segments.
    pub fn log_bytes(&self) -> (u64, u64) {
        (self.index.live_bytes(), self.index.total_bytes())
    }

    /// Whether the log has something to write that it has not reported yet.
    pub fn is_log_busy(&self) -> bool {
        !self.underway.is_empty()
    }

    /// What is wanted since the last call, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// Puts back outputs that were taken too early, before those that came since.
    pub fn want_again(&mut self, outputs: Vec<Output>) {
        self.outputs.splice(0..0, outputs);
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Now) {
        self.pond.handle(input, now);
        self.take_effects();
        self.judge_room(now);
        let copy_is_due = self.copy_postponed && now.mono >= self.copy_again_at;
        if std::mem::take(&mut self.forgot) || copy_is_due {
            // Nothing may be written for a long time, and a full disk waits for just this room.
            self.reclaim(now);
        }
    }

    /// Takes the effects of [`Pond::open`].
    pub fn opened(&mut self) {
        self.take_effects();
    }

    fn take_effects(&mut self) {
        let effects: Vec<Effect> = self.pond.effects().collect();
        for effect in effects {
            match effect {
                Effect::Append { op, record, sync } => self.append(op, record, sync),
                Effect::Reply { request, reply } => {
                    let contents = match &reply {
                        Reply::Leased(Ok(leased)) => {
                            leased.iter().map(|leased| self.locate(leased.receipt.seq)).collect()
                        }
                        _ => Vec::new(),
                    };
                    self.outputs.push(Output::Reply(request, Answer { reply, contents }));
                }
                Effect::Dispatch { target, leased } => {
                    let stored = self.locate(leased.receipt.seq);
                    self.outputs.push(Output::Dispatch(target, leased, stored));
                }
                Effect::Notice(notice) => {
                    let owner = notice.owner().unwrap_or("nobody");
                    tracing::warn!(queue = %notice.queue(), owner, "{notice}");
                }
                Effect::Forget(seq) => {
                    self.forgot = true;
                    self.recent.forget(seq);
                    self.index.forget(seq.0);
                }
            }
        }
    }

    fn append(&mut self, op: OpNumber, record: Record, sync: bool) {
        let bytes = record_bytes(&record);
        if let Record::Message { message, content } = &record {
            self.recent.emitted(message.seq, content.clone());
        }
        if !self.reclaiming {
            self.index.others_wrote(bytes + GROUP_BYTES);
        }
        self.underway.push_back((op, bytes));
        self.underway_bytes += bytes;
        self.outputs.push(Output::Log(Entry::Append { op, record, sync }));
    }

    /// Where the bytes of a message are.
    pub fn locate(&self, seq: Seq) -> Stored {
        if let Some(stored) = self.recent.get(seq) {
            return stored;
        }
        self.index.get(seq.0).map_or(Stored::Nothing, |position| self.on_disk(position))
    }

    fn on_disk(&self, position: Position) -> Stored {
        match self.files.handle(position) {
            Ok(handle) => Stored::Disk(DiskContent::new(handle)),
            Err(error) => {
                tracing::error!(%error, "a message's bytes cannot be found");
                Stored::Unreadable
            }
        }
    }

    /// The log has written something.
    ///
    /// # Panics
    /// If commits are not reported in the order of the log.
    pub fn committed(&mut self, commit: Commit, now: Now) {
        let sealable_before = sealable_before(&commit);
        for (seq, position) in commit.placed {
            self.recent.committed(seq);
            // What was forgotten in the meantime needs no place.
            if self.pond.needs(seq) {
                self.index.placed(seq.0, position);
            }
        }
        self.index.wrote(commit.end_segment);
        self.index.has_spare(commit.spare);
        while let Some(what) = self.index.next_to_seal(sealable_before) {
            self.outputs.push(Output::Seal(what));
        }
        while self.underway.front().is_some_and(|(op, _)| *op <= commit.written) {
            let (_, bytes) = self.underway.pop_front().expect("just seen");
            self.underway_bytes -= bytes;
        }
        self.room = Room { remaining_bytes: commit.remaining_bytes, full: commit.full, ..self.room };
        if matches!(self.copying, Some(Copying::Writing(op)) if op <= commit.written) {
            self.copying = None;
        }
        if let Some(op) = commit.durable {
            self.handle(Input::Durable(op), now);
        } else {
            self.judge_room(now);
        }
        self.reclaim(now);
    }

    /// A segment has an index now.
    pub fn sealed(&mut self, sealed: Sealed, now: Now) {
        self.index.sealed(sealed.segment, sealed.index_bytes);
        self.reclaim(now);
    }

    /// Tells the pond when the log's room changes class. Nothing is refused while another segment can be made.
    fn judge_room(&mut self, now: Now) {
        let state = if !self.room.full {
            StorageState::Roomy
        } else if self.room_left() >= self.room.segment_bytes / 16 {
            // The rest of the segment is kept for hand-outs and settlements, which make room in the end.
            StorageState::NoEnqueue
        } else {
            StorageState::SettleOnly
        };
        if state != self.storage {
            self.tell_room(state);
            self.storage = state;
            self.pond.handle(Input::Storage(state), now);
            self.take_effects();
        }
    }

    /// Says once that the disk is full, once if it is full to the last, and once that there is room again, however often
    /// it goes to and fro in between.
    fn tell_room(&mut self, state: StorageState) {
        let told = std::mem::replace(&mut self.told, state);
        match (told, state) {
            (_, StorageState::Roomy) => tracing::info!("the disk has room again: new work is taken in"),
            (StorageState::Roomy, StorageState::NoEnqueue) => tracing::error!(
                "the disk is full: new work is refused (507); what is here goes on, settlements and restarts too. \
                 Free or add space"
            ),
            (StorageState::Roomy | StorageState::NoEnqueue, StorageState::SettleOnly) => tracing::error!(
                "the disk is full to the last: nothing is handed out, only settlements are taken. Free or add space"
            ),
            (StorageState::SettleOnly | StorageState::NoEnqueue, _) => self.told = told,
        }
    }

    /// Bytes that can be written without another segment, and that nothing underway will take.
    fn room_left(&self) -> u64 {
        self.room.remaining_bytes.saturating_sub(self.underway_bytes)
    }

    /// Takes the next steps that keep the log within its bound, or win back room on a full disk.
    fn reclaim(&mut self, now: Now) {
        self.copy_postponed = false;
        while self.copying.is_none() {
            if self.room.full && self.copies_bytes() > self.room_left() {
                return;
            }
            let pressure = self.pressure();
            match self.index.next_reclaim(pressure) {
                Reclaim::Nothing => return,
                Reclaim::Delete { segment, keep_file, preamble } => {
                    if preamble || self.pond.are_basics_stale() {
                        self.copy_basics(now);
                    }
                    self.outputs.push(Output::Log(Entry::Delete { segment, keep_file }));
                }
                Reclaim::Copy(_) if self.room.full && pressure == Pressure::None => return,
                Reclaim::Copy(_) if now.mono < self.copy_again_at => {
                    self.copy_postponed = true;
                    return;
                }
                Reclaim::Copy(keys) => self.start_copying(&keys),
            }
        }
    }

    /// Writes anew what is in the log without a key: it went with every earlier copy, or will.
    fn copy_basics(&mut self, now: Now) {
        let before = self.underway_bytes;
        self.reclaiming = true;
        self.pond.handle(Input::CopyBasics, now);
        self.take_effects();
        self.reclaiming = false;
        self.index.wrote_preamble(self.underway_bytes - before);
    }

    /// On a full disk what is alive in the oldest segment is copied if that wins clearly more room than it takes; or if
    /// it will soon not fit any more, as long as there is something to win further on. For settlements may take more
    /// room than they free, and what they leave behind lies at the end of the ring: it is won back only by going all
    /// the way round.
    ///
    /// When the disk becomes full, the segment ahead of the log is there, so that close to two are left. Copying a segment
    /// that is alive to the last byte takes a little more than one. Between the two, half a segment, the round must begin;
    /// it holds out as long as it loses no more to headers, padding and notes of deletion before it comes to the waste:
    /// one or two kilobytes for each segment. That is no proof for small segments. Two cases are known in which the log
    /// gets stuck in segments of 32 KiB: groups of many small messages, each of which takes ten times its bytes until it
    /// is done; and retries, since a message is copied with its attempts, which the bytes alive do not count yet.
    fn pressure(&self) -> Pressure {
        if !self.room.full {
            return Pressure::None;
        }
        let (left, segment_bytes) = (self.room_left(), self.room.segment_bytes);
        if self.index.oldest_live_bytes() <= left.min(segment_bytes) / 2 {
            return Pressure::Oldest;
        }
        if left >= self.copies_bytes() + segment_bytes / 2 {
            return Pressure::None;
        }
        let unused = left.min(segment_bytes);
        Pressure::Waste(self.index.total_bytes().saturating_sub(self.index.live_bytes() + unused))
    }

    /// What it takes to give the oldest segment up. Groups of copies have headers and end at whole sectors, the deletion
    /// has its records, and others write meanwhile.
    fn copies_bytes(&self) -> u64 {
        match self.index.oldest_live_bytes() {
            0 => 0,
            live => live + live / 32 + COPIES_AROUND_BYTES + self.room.segment_bytes / 32,
        }
    }

    fn start_copying(&mut self, keys: &[u64]) {
        let positions: BTreeMap<Seq, Position> =
            keys.iter().filter_map(|&key| Some((Seq(key), self.index.get(key)?))).collect();
        let job = positions.iter().map(|(&seq, &position)| (seq, self.on_disk(position))).collect();
        self.copying = Some(Copying::Reading(positions));
        self.outputs.push(Output::ReadToCopy(job));
    }

    /// What [`Output::ReadToCopy`] asked for has been read. A message that got a newer copy in the meantime is
    /// left out: its old bytes may not be its bytes any more. One that could not be read is left out too, and with
    /// it its segment stays: a copy without its bytes would be the end of them.
    pub fn copied(&mut self, contents: Vec<(Seq, Result<Option<SharedContent>, Unreadable>)>, now: Now) {
        let Some(Copying::Reading(positions)) = self.copying.take() else { return };
        if contents.iter().any(|(_, content)| content.is_err()) {
            self.copy_again_at = now.mono.plus(COPY_AGAIN_AFTER);
        }
        let current = contents
            .into_iter()
            .filter_map(|(seq, content)| Some((seq, content.ok()?)))
            .filter(|(seq, _)| {
                self.index.get(seq.0).as_ref() == positions.get(seq) && !self.recent.is_underway(*seq)
            })
            .collect();
        self.reclaiming = true;
        self.pond.handle(Input::Copy(current), now);
        self.take_effects();
        self.reclaiming = false;
        self.judge_room(now);
        let last = self.underway.back().map(|&(op, _)| op);
        self.copying = last.map(Copying::Writing);
        if self.copying.is_none() {
            self.reclaim(now);
        }
    }
}

/// Segments before this one may get their indexes.
fn sealable_before(commit: &Commit) -> u32 {
    if commit.full {
        // There is better use for what room is left.
        0
    } else if commit.settled {
        commit.synced_segment
    } else {
        // What goes straight through is gone when another segment is full: an index would have been made for nothing.
        commit.synced_segment.saturating_sub(1)
    }
}

/// How long a segment is left alone in which something could not be read.
const COPY_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// What copying a segment and giving it up writes besides the copies, roughly.
const COPIES_AROUND_BYTES: u64 = 2048;
/// What a group takes in the log besides its records, at most: its header, and what is left of its last sector.
const GROUP_BYTES: u64 = 64 + 511;
