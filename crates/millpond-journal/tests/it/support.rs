//! A small engine over a journal that remembers everything it did, and the check of what a recovery brings back.
//! Must never look at the journal's bytes: it judges by records alone.

use millpond_journal::{
    Files, Index, OpenError, Opened, Options, Place, Position, Pressure, Reclaim, RecoveryReport, Replayed,
    SealError, Sealer, Storage, Writer, open, simulated::SimulatedDisk,
};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

pub(crate) const SALT: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
pub(crate) const SEGMENT_BYTES: u32 = 8 * 1024;
pub(crate) const OPTIONS: Options = Options { segment_bytes: SEGMENT_BYTES, was_used: false };

/// A record as it was pushed or replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Option<u64>,
    pub(crate) anchor: bool,
    pub(crate) payload: Vec<u8>,
}

/// Everything that was tried on a journal, in log order.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
    /// Segment of each record whose commit returned.
    pub(crate) segments: Vec<u32>,
    /// Lengths of `records` after each group: only these are states that a recovery may find.
    pub(crate) boundaries: Vec<usize>,
    /// So many records were acknowledged as durable.
    pub(crate) durable: usize,
    /// Deletion of all segments up to this one was begun; 0: of none.
    pub(crate) deleting: u32,
    /// … and of all up to this one was acknowledged.
    pub(crate) deleted: u32,
}

pub(crate) struct Recovered {
    pub(crate) records: Vec<Record>,
    pub(crate) positions: Vec<Position>,
    pub(crate) writer: Writer,
    pub(crate) index: Index,
    pub(crate) files: Files,
    pub(crate) sealer: Sealer,
    pub(crate) report: RecoveryReport,
}

/// Opens the log on `disk`, collecting what is replayed, and reads every record whole.
pub(crate) fn recover(disk: &SimulatedDisk) -> Result<Recovered, OpenError> {
    recover_from(Arc::new(disk.clone()))
}

pub(crate) fn recover_from(storage: Arc<dyn Storage>) -> Result<Recovered, OpenError> {
    let mut recovered = recover_heads(storage)?;
    for (record, position) in recovered.records.iter_mut().zip(&recovered.positions) {
        let payload = recovered.files.read(*position).expect("what was replayed is readable");
        assert!(payload.starts_with(&record.payload), "the head is how the payload begins");
        record.payload = payload.to_vec();
    }
    Ok(recovered)
}

/// The same without the bodies: each record's payload is its head.
pub(crate) fn recover_heads(storage: Arc<dyn Storage>) -> Result<Recovered, OpenError> {
    let mut records = Vec::new();
    let mut positions = Vec::new();
    let mut replay = |replayed: Replayed<'_>| {
        let Replayed { key, anchor, position, head } = replayed;
        records.push(Record { key, anchor, payload: head.to_vec() });
        positions.push(position);
        ControlFlow::Continue(())
    };
    let opened = open(storage, OPTIONS, SALT, &mut replay)?;
    let Opened { writer, index, files, sealer, report } = opened;
    Ok(Recovered { records, positions, writer, index, files, sealer, report })
}

impl History {
    /// Checks what a recovery replayed against what was done.
    pub(crate) fn check(&self, replayed: &[Record]) {
        let start = self.start_of(replayed);
        let end = start + replayed.len();
        assert!(end <= self.records.len(), "more records than were ever pushed");
        assert_eq!(
            replayed,
            &self.records[start..end],
            "records differ from what was pushed, or their order"
        );
        assert!(end >= self.durable, "{} durable records, only {end} came back", self.durable);
        assert!(self.boundaries.contains(&end), "half a group came back: {end} of {:?}", self.boundaries);
        for (at, segment) in self.segments.iter().enumerate() {
            if at < start {
                assert!(*segment <= self.deleting, "a record is gone whose segment {segment} was kept");
            } else {
                assert!(*segment > self.deleted, "a record is back whose segment {segment} was deleted");
            }
        }
    }

    /// Payloads are unique, so the first one tells where the log begins; an empty log begins behind everything
    /// that could be deleted.
    pub(crate) fn start_of(&self, replayed: &[Record]) -> usize {
        match replayed.first() {
            Some(first) => self
                .records
                .iter()
                .position(|record| record == first)
                .expect("a record that was never pushed"),
            None => self.segments.iter().filter(|&&segment| segment <= self.deleted).count(),
        }
    }
}

/// Checks that index and files agree with the records that were replayed.
pub(crate) fn check_index(recovered: &Recovered) {
    let mut anchors = BTreeMap::new();
    for (record, position) in recovered.records.iter().zip(&recovered.positions) {
        assert_eq!(recovered.files.read(*position).unwrap(), record.payload, "read at {position:?}");
        if let (Some(key), true) = (record.key, record.anchor) {
            anchors.insert(key, *position);
        }
    }
    assert_eq!(recovered.index.len(), anchors.len());
    for (key, position) in anchors {
        assert_eq!(recovered.index.get(key), Some(position), "key {key}");
    }
}

/// A journal in use: pushes, settles, reclaims, and writes down what it was told.
pub(crate) struct Driver {
    pub(crate) writer: Writer,
    pub(crate) index: Index,
    pub(crate) files: Files,
    pub(crate) sealer: Sealer,
    pub(crate) history: History,
    pub(crate) ends: Vec<Place>,
    live: BTreeMap<u64, Vec<u8>>,
    pending: Vec<Record>,
    next_key: u64,
    written: u64,
}

/// An operation failed: the process would stop here.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Driver {
    /// Opens a new log.
    pub(crate) fn start(disk: &SimulatedDisk) -> Result<Self, Stopped> {
        let opened = recover(disk).map_err(|_| Stopped)?;
        assert_eq!(opened.records, [], "the log is new");
        let history = History { boundaries: vec![0], ..History::default() };
        Ok(Self {
            writer: opened.writer,
            index: opened.index,
            files: opened.files,
            sealer: opened.sealer,
            history,
            ends: Vec::new(),
            live: BTreeMap::new(),
            pending: Vec::new(),
            next_key: 1,
            written: 0,
        })
    }

    pub(crate) fn push(&mut self, key: Option<u64>, anchor: bool, body: &[u8]) {
        self.written += 1;
        let mut payload = self.written.to_le_bytes().to_vec();
        payload.extend_from_slice(body);
        // The counter is what replay needs; of what is no anchor, everything is.
        self.writer.push_with_body(key, anchor, |buffer| {
            buffer.extend_from_slice(&payload);
            if anchor { 8 } else { payload.len() }
        });
        self.pending.push(Record { key, anchor, payload });
    }

    /// A new message.
    pub(crate) fn enqueue(&mut self, body: &[u8]) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.push(Some(key), true, body);
        key
    }

    /// The message after `older` older ones is done.
    pub(crate) fn settle(&mut self, older: usize) {
        if let Some(&key) = self.live.keys().nth(older) {
            self.live.remove(&key);
            self.push(Some(key), false, b"done");
        }
    }

    /// Message `key` is done; nobody writes that down.
    pub(crate) fn finish(&mut self, key: u64) {
        self.live.remove(&key);
        self.index.forget(key);
    }

    /// The message after `older` older ones changes wholly.
    pub(crate) fn supersede(&mut self, older: usize, body: &[u8]) {
        if let Some(&key) = self.live.keys().nth(older) {
            self.push(Some(key), true, body);
        }
    }

    pub(crate) fn live(&self) -> &BTreeMap<u64, Vec<u8>> {
        &self.live
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.values().map(|payload| 20 + payload.len() as u64).sum()
    }

    /// Whether a settlement is pending: its message is no longer live here, but still in the index.
    pub(crate) fn has_finished(&self) -> bool {
        self.pending.iter().any(|record| !record.anchor)
    }

    pub(crate) fn commit(&mut self, sync: bool) -> Result<(), Stopped> {
        let group = std::mem::take(&mut self.pending);
        self.history.records.extend(group.iter().cloned());
        self.history.boundaries.push(self.history.records.len());
        let committed = self.writer.commit(sync).map_err(|_| Stopped)?;
        assert_eq!(committed.placed.len(), group.len());
        assert!(committed.durable || !sync);
        if committed.durable {
            self.history.durable = self.history.records.len();
        }
        for (record, position) in group.into_iter().zip(&committed.placed) {
            self.history.segments.push(position.segment);
            match (record.key, record.anchor) {
                (Some(key), true) => {
                    self.index.placed(key, *position);
                    self.live.insert(key, record.payload);
                }
                (Some(key), false) => {
                    self.index.forget(key);
                    self.live.remove(&key);
                }
                (None, _) => {}
            }
        }
        self.index.wrote(committed.end.segment);
        self.ends.push(committed.end);
        Ok(())
    }

    /// Takes one step of reclaiming; returns whether there was one.
    pub(crate) fn reclaim(&mut self) -> Result<bool, Stopped> {
        match self.index.next_reclaim(Pressure::None) {
            Reclaim::Nothing => return Ok(false),
            Reclaim::Copy(keys) => {
                for key in keys {
                    let body = self.live[&key][8..].to_vec();
                    self.push(Some(key), true, &body);
                }
                self.commit(false)?;
            }
            Reclaim::Delete { segment, keep_file, .. } => {
                assert!(self.live.keys().all(|&key| self.index.get(key).unwrap().segment != segment));
                self.history.deleting = segment;
                let retired = self.writer.retire(segment, keep_file).map_err(|_| Stopped)?;
                // Its note may have been the first frame of another segment.
                self.index.wrote(self.writer.end().segment);
                self.history.durable = self.history.records.len();
                self.writer.preparer().dispose(retired).map_err(|_| Stopped)?;
                self.history.deleted = segment;
            }
        }
        Ok(true)
    }

    pub(crate) fn prepare_next(&mut self) -> Result<(), Stopped> {
        if let Some(number) = self.writer.wants_next() {
            let prepared = self.writer.preparer().prepare(number).map_err(|_| Stopped)?;
            self.writer.install(prepared);
        }
        Ok(())
    }

    /// Seals every complete segment that is not yet.
    pub(crate) fn seal(&mut self) -> Result<(), Stopped> {
        let synced_segment = self.writer.synced().segment;
        while let Some(what) = self.index.next_to_seal(synced_segment) {
            match self.sealer.seal(what) {
                Ok(Some(sealed)) => self.index.sealed(sealed.segment, sealed.index_bytes),
                Ok(None) | Err(SealError::Full { .. }) => {}
                Err(_) => return Err(Stopped),
            }
        }
        Ok(())
    }
}

/// Gives up the oldest segment, file and all.
pub(crate) fn delete_oldest(writer: &mut Writer) {
    let retired = writer.retire(writer.oldest_segment(), true).unwrap();
    writer.preparer().dispose(retired).unwrap();
}

/// `length` bytes that differ by `seed`.
pub(crate) fn body(seed: u64, length: usize) -> Vec<u8> {
    let mut chance = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| chance.u8(..)).take(length).collect()
}

/// Whether a file is of this kind: `log`, `index` or `spare`.
pub(crate) fn has_kind(name: &str, kind: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == kind)
}

/// Names of the segments on `disk`, oldest first.
pub(crate) fn segment_files(disk: &SimulatedDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| has_kind(name, "log")).collect()
}
