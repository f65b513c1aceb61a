//! The engine without threads: the pond, the index of the log, and what keeps the log short.
//!
//! Owns the order between records, copies and deletions. Production runs it on the engine thread, the simulator
//! on virtual time. Must never wait for the disk.

use crate::content::{DiskContent, Recent, Stored, Unreadable};
use crate::handle::Answer;
use crate::log::{Commit, CopyNews, Entry};
use crate::room::{self, Round};
use crate::size::record_bytes;
use millpond_core::command::{Effect, Input, Leased, OpNumber, Reply, RequestId, StorageState, TargetNumber};
use millpond_core::identity::Seq;
use millpond_core::message::SharedContent;
use millpond_core::name::Name;
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
    told: Told,
    outputs: Vec<Output>,
}

#[derive(Debug)]
enum Copying {
    Reading(BTreeMap<Seq, Position>),
    /// Emitted up to this record.
    Writing(OpNumber),
}

/// The worst that was said of the disk since there was room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Roomy,
    Full,
    FullToTheLast,
}

/// What the log says of its room.
#[derive(Debug, Clone, Copy)]
struct Room {
    remaining_bytes: u64,
    full: bool,
    /// Segments for which there is room beyond that, as far as is known.
    beyond_segments: u64,
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
            room: Room { remaining_bytes: segment_bytes, full: false, beyond_segments: 0, segment_bytes },
            reclaiming: false,
            forgot: false,
            told: Told::Roomy,
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

    /// Whether the disk has no room for new work.
    pub fn is_disk_full(&self) -> bool {
        self.room.full
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
                Effect::Append { op, record, sync, with_next } => self.append(op, record, sync, with_next),
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
                    match (notice.queue(), notice.target()) {
                        (Some(queue), _) => tracing::warn!(%queue, owner, "{notice}"),
                        // `target` is tracing's own word.
                        (None, Some(name)) if notice.is_harmless() => {
                            tracing::info!(push_target = %name, "{notice}");
                        }
                        (None, name) => tracing::warn!(push_target = name.map(Name::as_str), "{notice}"),
                    }
                }
                Effect::Forget(seq) => {
                    self.forgot = true;
                    self.recent.forget(seq);
                    self.index.forget(seq.0);
                }
            }
        }
    }

    fn append(&mut self, op: OpNumber, record: Record, sync: bool, with_next: bool) {
        let bytes = record_bytes(&record);
        if let Record::Message { message, content } = &record {
            self.recent.emitted(message.seq, content.clone());
        }
        if !self.reclaiming {
            self.index.others_wrote(bytes + GROUP_BYTES);
        }
        self.underway.push_back((op, bytes));
        self.underway_bytes += bytes;
        self.outputs.push(Output::Log(Entry::Append { op, record, sync, with_next }));
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
        for (seq, news) in commit.copies {
            match news {
                CopyNews::Grew(bytes) => self.index.grew(seq.0, bytes),
                CopyNews::Placed(position) => {
                    self.recent.committed(seq);
                    // What was forgotten in the meantime needs no place.
                    if self.pond.needs(seq) {
                        self.index.placed(seq.0, position);
                    }
                }
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
        self.room = Room {
            remaining_bytes: commit.remaining_bytes,
            full: commit.full,
            beyond_segments: commit.room_segments.saturating_add(u64::from(commit.spare)),
            ..self.room
        };
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

    /// Tells the pond what the log has room for. Nothing is refused while another segment can be made.
    fn judge_room(&mut self, now: Now) {
        let state = if !self.room.full && self.is_plenty_left() {
            StorageState::Roomy
        } else {
            // Half of them, so that it need not be said again after each.
            match (self.room.full, self.hand_outs().div_ceil(2)) {
                (false, hand_outs) => StorageState::Scarce { hand_outs },
                (true, 0) => StorageState::SettleOnly,
                (true, hand_outs) => StorageState::NoEnqueue { hand_outs },
            }
        };
        if is_news(state, self.pond.storage()) {
            self.tell_room(state);
            self.pond.handle(Input::Storage(state), now);
            self.take_effects();
        }
    }

    /// Says once that the disk is full, once if it is full to the last, and once that there is room again, however often
    /// it goes to and fro in between.
    fn tell_room(&mut self, state: StorageState) {
        let news = match state {
            StorageState::Roomy | StorageState::Scarce { .. } => Told::Roomy,
            StorageState::SettleOnly if !self.is_winning_room() => Told::FullToTheLast,
            StorageState::NoEnqueue { .. } | StorageState::SettleOnly => Told::Full,
        };
        match news {
            Told::Roomy => tracing::info!("the disk has room again: new work is taken in"),
            _ if news <= self.told => return,
            Told::Full => tracing::error!(
                "the disk is full: new work is refused (507); what is here goes on, settlements and restarts too. \
                 Free or add space"
            ),
            Told::FullToTheLast => tracing::error!(
                "the disk is full to the last: nothing is handed out, only settlements are taken, until something is \
                 forgotten. Free or add space"
            ),
        }
        self.told = news;
    }

    /// Bytes that can be written without another segment, and that nothing underway will take.
    fn room_left(&self) -> u64 {
        self.room.remaining_bytes.saturating_sub(self.underway_bytes)
    }

    /// Bytes that can be written in all, as far as is known.
    fn room_ahead(&self) -> u64 {
        if self.room.full {
            return self.room_left();
        }
        let beyond_bytes = self.room.beyond_segments.saturating_mul(self.room.segment_bytes);
        self.room.remaining_bytes.saturating_add(beyond_bytes).saturating_sub(self.underway_bytes)
    }

    /// Whether there is so much room that nobody need count.
    fn is_plenty_left(&self) -> bool {
        self.room_ahead() >= self.kept_bytes() + 4 * self.room.segment_bytes + PLENTY_BYTES
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

    /// Why room shall be won back on a full disk.
    fn pressure(&self) -> Pressure {
        if !self.room.full && self.is_plenty_left() {
            return Pressure::None;
        }
        let left_bytes = self.room_ahead();
        if self.room.full && self.index.oldest_live_bytes() <= left_bytes.min(self.room.segment_bytes) / 2 {
            return Pressure::Oldest;
        }
        let round = self.round();
        if left_bytes >= round.needs_bytes + self.kept_bytes() + self.outcome_bytes() {
            return Pressure::None;
        }
        Pressure::Round { gain_bytes: round.gain_bytes, gain_bytes_min: self.gain_bytes_min() }
    }

    fn round(&self) -> Round {
        let stale = if self.pond.are_basics_stale() { self.index.preamble_bytes() } else { 0 };
        Round::of(self.index.alive(), self.room.segment_bytes, self.room_left(), stale)
    }

    /// What it takes to give the oldest segment up.
    fn copies_bytes(&self) -> u64 {
        self.index.alive().next().map_or(0, |oldest| room::copying_bytes_max(oldest, self.room.segment_bytes))
    }

    /// Going all the way round for less than this is not worthwhile.
    fn gain_bytes_min(&self) -> u64 {
        self.room.segment_bytes / 16
    }

    /// Room that is left for the outcomes of what is handed out, and for a little more.
    fn kept_bytes(&self) -> u64 {
        let (owing, _) = self.pond.owing();
        self.room.segment_bytes / 8 + self.pond.leased() * OUTCOME_BYTES + owing * CALLBACK_BYTES
    }

    /// What one more hand-out may take.
    fn outcome_bytes(&self) -> u64 {
        let (_, owing) = self.pond.owing();
        OUTCOME_BYTES + if owing > 0 { CALLBACK_BYTES } else { 0 }
    }

    /// Whether room can be won back by going all the way round.
    fn is_round_due(&self) -> bool {
        self.index.is_round_due(self.round().gain_bytes, self.gain_bytes_min())
    }

    /// Whether that goes on, or can begin at any time.
    fn is_winning_room(&self) -> bool {
        self.is_round_due() && self.room_left() >= self.copies_bytes()
    }

    /// How many more messages can be handed out on a full disk: their outcomes must fit, and what it takes to win room
    /// back: while that is worthwhile, all the way round, and otherwise in the oldest segment. For what is done may be
    /// forgotten at any time, and then nobody can go round without this room. If it is not there any more, only large
    /// messages go out, each of which frees more than it takes.
    fn hand_outs(&self) -> u64 {
        let left_bytes = self.room_ahead();
        let Some(oldest) = self.index.alive().next() else { return 0 };
        let copies_bytes = self.copies_bytes();
        let are_large = oldest.copies_bytes > 2 * OUTCOME_BYTES * oldest.copies;
        let needs_bytes = if left_bytes < copies_bytes && are_large {
            0
        } else if self.is_round_due() {
            self.round().needs_bytes
        } else {
            copies_bytes
        };
        left_bytes.saturating_sub(self.kept_bytes() + needs_bytes) / self.outcome_bytes()
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

/// Whether `state` must be said: it is of another kind, or what is left of the hand-outs that were said last is more than
/// there is room for now, or clearly less than there could be.
fn is_news(state: StorageState, known: StorageState) -> bool {
    let (most, left) = (state.hand_outs().saturating_mul(2), known.hand_outs());
    std::mem::discriminant(&state) != std::mem::discriminant(&known)
        || left > most
        || left.saturating_mul(4) < most
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

/// Beyond four segments, so much room is plenty: for the outcomes of all that one step can hand out.
const PLENTY_BYTES: u64 = 64 << 20;
/// How long a segment is left alone in which something could not be read.
const COPY_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// The most that a hand-out takes in the log until its outcome is written: two groups of their own.
const OUTCOME_BYTES: u64 = 1024;
/// The most that the message takes that tells of an end, while the disk is full.
pub(crate) const CALLBACK_BYTES: u64 = 4096;
/// What a group takes in the log besides its records, at most: its header, and what is left of its last sector.
const GROUP_BYTES: u64 = 64 + 511;
