//! A disk in memory that can lose power, run full, fail and rot, the same way every time.
//!
//! Owns the model of what a power loss may leave: every sector written since the file's last sync survives or
//! not, on its own, and so does every creation, renaming and deletion since the directory's last sync. Must never be
//! kinder than a real disk: what was not synced is never promised.

use crate::{
    format::SECTOR_BYTES,
    storage::{Storage, StorageFile},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const SECTOR: usize = SECTOR_BYTES as usize;

/// A disk. Clones are the same disk; [`crash_with`](Self::crash_with) makes another one.
#[derive(Clone, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

/// Something that was not synced when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced<'a> {
    /// One written sector of a file: survives, or has its last synced content.
    Sector {
        /// The file.
        file: &'a str,
        /// Number of the sector in it.
        sector: u64,
    },
    /// The creation, replacement, renaming or deletion of a file: survives, or did not happen.
    Entry {
        /// The file; of a renaming its new name.
        file: &'a str,
    },
}

/// What becomes of something that was not synced when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there.
    Survives,
    /// It is as if it had not happened.
    Lost,
    /// Of a sector, so many bytes are new and the rest is old; anything else is lost.
    Torn(usize),
}

/// An operation that changes the disk, numbered from 0 in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Write,
    Sync,
    Create,
    Rename,
    Delete,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, u64>,
    /// What the directory holds after a power loss, unless pending changes survive.
    durable_files: BTreeMap<String, u64>,
    /// Renamings since the directory's last sync: each of them happens wholly or not at all.
    renamed: Vec<(String, String)>,
    contents: BTreeMap<u64, Content>,
    next_content: u64,
    operations: u64,
    renamings: u64,
    writes: u64,
    syncs: u64,
    power_off_at: Option<u64>,
    fail_write: Option<u64>,
    fail_sync: Option<u64>,
    reads: u64,
    fail_read: Option<u64>,
    capacity_bytes: Option<u64>,
    is_off: bool,
    /// Checksum over everything that was asked of the disk.
    trace: u32,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Synced content of every sector written since.
    unsynced: BTreeMap<usize, Vec<u8>>,
    /// The same for sectors that a failed sync gave up: they read as written, no later sync writes them, and a
    /// power loss always takes them.
    given_up: BTreeMap<usize, Vec<u8>>,
    /// Open handles: a deleted file stays readable through them.
    handles: u32,
    /// Bits that have flipped by themselves, and were not written over since.
    rotten: BTreeMap<usize, u8>,
}

impl SimulatedDisk {
    /// An empty disk without bounds or faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of operations so far that changed the disk: writes, syncs, creations, renamings, deletions and
    /// directory syncs.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Number of files that were given another name so far.
    pub fn renamings(&self) -> u64 {
        self.state().renamings
    }

    /// The power goes in the middle of operation number `operation` (from 0): it may have happened as far as
    /// [`crash_with`](Self::crash_with) decides, but fails, and so does everything after it.
    pub fn power_off_at(&self, operation: u64) {
        self.state().power_off_at = Some(operation);
    }

    /// The `count`-th write from now on (1 = the next) fails with an input/output error, having written half.
    pub fn fail_write(&self, count: u64) {
        let mut state = self.state();
        state.fail_write = Some(state.writes + count - 1);
    }

    /// The `count`-th sync from now on (1 = the next) fails with an input/output error. As with a real kernel, what
    /// it should have written still reads well but never reaches the disk unless it is written again.
    pub fn fail_sync(&self, count: u64) {
        let mut state = self.state();
        state.fail_sync = Some(state.syncs + count - 1);
    }

    /// The `count`-th read from now on (1 = the next) fails with an input/output error; the one after it does not.
    pub fn fail_read(&self, count: u64) {
        let mut state = self.state();
        state.fail_read = Some(state.reads + count - 1);
    }

    /// No write, sync or read fails any more because of an earlier wish, and the power stays on.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.power_off_at, state.fail_write, state.fail_sync, state.fail_read) = (None, None, None, None);
    }

    /// Whether the power has gone.
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Bytes of all files together.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state();
        state.files.values().map(|id| state.contents[id].bytes.len() as u64).sum()
    }

    /// A checksum over every operation so far, with its place and its bytes: two disks of one trace were asked the
    /// same things in the same order.
    pub fn trace(&self) -> u32 {
        self.state().trace
    }

    /// Creations that would bring all files together beyond `bytes` fail with "no space"; `None`: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity_bytes = bytes;
    }

    /// The disk after a power loss now. `survives` is asked about everything that was not synced. This disk is
    /// not changed; a journal that still runs on it belongs to another world.
    #[must_use]
    pub fn crash_with(&self, mut survives: impl FnMut(Unsynced<'_>) -> bool) -> Self {
        self.crash_to(|unsynced| if survives(unsynced) { Fate::Survives } else { Fate::Lost })
    }

    /// [`crash_with`](Self::crash_with), where sectors may also be torn.
    #[must_use]
    pub fn crash_to(&self, mut fate: impl FnMut(Unsynced<'_>) -> Fate) -> Self {
        let state = self.state();
        let mut files = state.durable_files.clone();
        let mut decided = BTreeSet::new();
        for (from, to) in &state.renamed {
            decided.extend([from, to]);
            if fate(Unsynced::Entry { file: to }) == Fate::Survives
                && let Some(content) = files.remove(from)
            {
                files.insert(to.clone(), content);
            }
        }
        let names = state.files.keys().chain(state.durable_files.keys());
        for file in names.collect::<BTreeSet<_>>().difference(&decided) {
            let file = *file;
            let (now, before) = (state.files.get(file), state.durable_files.get(file));
            if now != before && fate(Unsynced::Entry { file }) == Fate::Survives {
                match now {
                    Some(content) => files.insert(file.clone(), *content),
                    None => files.remove(file),
                };
            }
        }
        let mut contents = BTreeMap::new();
        for (file, id) in &files {
            let content = &state.contents[id];
            let mut bytes = content.bytes.clone();
            for (&sector, synced) in &content.unsynced {
                let kept = match fate(Unsynced::Sector { file, sector: sector as u64 }) {
                    Fate::Survives => synced.len(),
                    Fate::Lost => 0,
                    Fate::Torn(kept) => kept.min(synced.len()),
                };
                let range = sector_range(sector, content.bytes.len());
                bytes[range][kept..].copy_from_slice(&synced[kept..]);
            }
            for (&sector, synced) in &content.given_up {
                bytes[sector_range(sector, content.bytes.len())].copy_from_slice(synced);
            }
            contents.insert(*id, Content { bytes, rotten: content.rotten.clone(), ..Content::default() });
        }
        let after = State {
            durable_files: files.clone(),
            files,
            contents,
            next_content: state.next_content,
            capacity_bytes: state.capacity_bytes,
            trace: state.trace,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// [`crash_with`](Self::crash_with) where chance decides: `chance` yields true or false.
    #[must_use]
    pub fn crash(&self, chance: &mut dyn FnMut() -> bool) -> Self {
        self.crash_with(|_| chance())
    }

    /// Names of the files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.state().files.keys().cloned().collect()
    }

    /// A file's bytes as they read now.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn bytes(&self, file: &str) -> Vec<u8> {
        self.edit(file, |bytes| bytes.clone())
    }

    /// Puts a file there, or replaces it, as if it had always been so.
    pub fn put(&self, file: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let id = state.add(Content { bytes, ..Content::default() });
        state.files.insert(file.to_owned(), id);
        state.durable_files.insert(file.to_owned(), id);
    }

    /// Takes a file away, as if it had never been there.
    pub fn take(&self, file: &str) {
        let mut state = self.state();
        state.files.remove(file);
        state.durable_files.remove(file);
    }

    /// Flips the bits of `mask` in the byte at `offset`: rot.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip(&self, file: &str, offset: usize, mask: u8) {
        self.edit(file, |bytes| bytes[offset] ^= mask);
    }

    /// [`flip`](Self::flip), for as long as the byte is not written over and until [`mend`](Self::mend) finds it.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn rot(&self, file: &str, offset: usize, mask: u8) {
        let mut state = self.state();
        let id = *state.files.get(file).expect("there is such a file on the simulated disk");
        let content = state.contents.get_mut(&id).expect("every file has content");
        content.bytes[offset] ^= mask;
        *content.rotten.entry(offset).or_default() ^= mask;
    }

    /// Flips back what has rotted and is still there. Returns how many bytes that were.
    pub fn mend(&self) -> usize {
        let mut mended = 0;
        for content in self.state().contents.values_mut() {
            for (offset, mask) in std::mem::take(&mut content.rotten) {
                content.bytes[offset] ^= mask;
                mended += 1;
            }
        }
        mended
    }

    /// Overwrites bytes at `offset` with zeros: a page that was lost.
    ///
    /// # Panics
    /// If there is no such file or range.
    pub fn zero(&self, file: &str, range: Range<usize>) {
        self.edit(file, |bytes| bytes[range].fill(0));
    }

    /// Cuts a file to `length` bytes.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn truncate(&self, file: &str, length: usize) {
        self.edit(file, |bytes| bytes.truncate(length));
    }

    fn edit<T>(&self, file: &str, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut state = self.state();
        let id = *state.files.get(file).expect("there is such a file on the simulated disk");
        let content = state.contents.get_mut(&id).expect("every file has content");
        change(&mut content.bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("names", &self.names()).finish_non_exhaustive()
    }
}

impl State {
    /// Does one operation unless a fault hits it. At a power loss it is done as well (nothing of it is synced yet),
    /// but reported as failed.
    fn operate<T>(
        &mut self,
        operation: Operation,
        act: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_off {
            return Err(io::Error::other("the simulated disk has no power"));
        }
        let number = self.operations;
        self.operations += 1;
        if self.power_off_at == Some(number) {
            self.is_off = true;
            if operation != Operation::Sync {
                act(self)?;
            }
            return Err(io::Error::other("the simulated disk lost power"));
        }
        act(self)
    }

    /// Adds to the trace.
    fn note(&mut self, what: &str, id: u64, offset: u64, bytes: &[u8]) {
        for part in [what.as_bytes(), &id.to_le_bytes(), &offset.to_le_bytes(), bytes] {
            self.trace = crc32c::crc32c_append(self.trace, part);
        }
    }

    fn read(&mut self, id: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let fails = self.fail_read == Some(self.reads);
        self.reads += 1;
        self.note("read", id, offset, &(buffer.len() as u64).to_le_bytes());
        if self.is_off {
            return Err(io::Error::other("the simulated disk has no power"));
        }
        if fails {
            return Err(io::Error::other("injected read error"));
        }
        let bytes = &self.contents[&id].bytes;
        buffer.copy_from_slice(&bytes[range_in(offset, buffer.len(), bytes.len())?]);
        Ok(())
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note("write", id, offset, bytes);
        let fails = self.fail_write == Some(self.writes);
        self.writes += 1;
        self.operate(Operation::Write, |state| {
            let content = state.contents.get_mut(&id).expect("an open file has content");
            if !fails {
                return content.write(offset, bytes);
            }
            content.write(offset, &bytes[..bytes.len() / 2])?;
            Err(io::Error::other("injected write error"))
        })
    }

    fn sync_content(&mut self, id: u64) -> io::Result<()> {
        self.note("sync", id, 0, &[]);
        let fails = self.next_sync_fails();
        self.operate(Operation::Sync, |state| {
            let content = state.contents.get_mut(&id).expect("an open file has content");
            let written = std::mem::take(&mut content.unsynced);
            if fails {
                content.given_up.extend(written);
                return Err(io::Error::other("injected sync error"));
            }
            Ok(())
        })
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let fails = self.next_sync_fails();
        self.operate(Operation::Sync, |state| {
            if fails {
                return Err(io::Error::other("injected sync error"));
            }
            state.durable_files = state.files.clone();
            state.renamed.clear();
            Ok(())
        })?;
        self.remove_unreachable();
        Ok(())
    }

    fn next_sync_fails(&mut self) -> bool {
        self.syncs += 1;
        self.fail_sync == Some(self.syncs - 1)
    }

    fn remove_unreachable(&mut self) {
        let named =
            |id: &u64| self.files.values().chain(self.durable_files.values()).any(|named| named == id);
        self.contents.retain(|id, content| content.handles > 0 || named(id));
    }

    fn add(&mut self, content: Content) -> u64 {
        let id = self.next_content;
        self.next_content += 1;
        self.contents.insert(id, content);
        id
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(|id| self.contents[id].bytes.len() as u64).sum()
    }

    /// A whole file appears under its name; its content is synced before, the directory after.
    fn put_whole(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<u64> {
        self.note(
            name,
            self.next_content,
            bytes.len() as u64,
            if bytes.len() <= SECTOR { &bytes } else { &[] },
        );
        let wanted = self.used_bytes() + bytes.len() as u64;
        if self.capacity_bytes.is_some_and(|capacity| wanted > capacity) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the simulated disk is full"));
        }
        let id = self.operate(Operation::Create, |state| {
            let id = state.add(Content { bytes, ..Content::default() });
            state.files.insert(name.to_owned(), id);
            Ok(id)
        })?;
        self.sync_directory()?;
        Ok(id)
    }

    fn handle(&mut self, disk: &SimulatedDisk, id: u64) -> Arc<dyn StorageFile> {
        self.contents.get_mut(&id).expect("every file has content").handles += 1;
        Arc::new(SimulatedFile { disk: disk.clone(), id })
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        let id = self.files.get(name).copied();
        id.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")))
    }
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range_in(offset, bytes.len(), self.bytes.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.rotten.retain(|offset, _| !range.contains(offset));
        for sector in range.start / SECTOR..=(range.end - 1) / SECTOR {
            let synced = &self.bytes[sector_range(sector, self.bytes.len())];
            let given_up = self.given_up.remove(&sector);
            self.unsynced.entry(sector).or_insert_with(|| given_up.unwrap_or_else(|| synced.to_vec()));
        }
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
}

fn sector_range(sector: usize, length: usize) -> Range<usize> {
    sector * SECTOR..((sector + 1) * SECTOR).min(length)
}

fn range_in(offset: u64, length: usize, total: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    let beyond_end = || io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of a simulated file");
    range.filter(|range| range.end <= total).ok_or_else(beyond_end)
}

impl Storage for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state();
        if state.files.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} already exists")));
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let id = state.put_whole(name, vec![0; length])?;
        Ok(state.handle(self, id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state();
        let id = state.find(name)?;
        Ok(state.handle(self, id))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(name)?;
        state.note("delete", id, 0, &[]);
        state.operate(Operation::Delete, |state| {
            state.files.remove(name);
            Ok(())
        })?;
        state.sync_directory()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(from)?;
        if state.files.contains_key(to) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{to} already exists")));
        }
        state.note(to, id, 0, b"rename");
        state.operate(Operation::Rename, |state| {
            state.renamings += 1;
            state.files.remove(from);
            state.files.insert(to.to_owned(), id);
            state.renamed.push((from.to_owned(), to.to_owned()));
            Ok(())
        })?;
        state.sync_directory()
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.state().put_whole(name, bytes.to_vec()).map(drop)
    }

    fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let state = self.state();
        Ok(state.files.get(name).map(|id| state.contents[id].bytes.clone()))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        Ok(state.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes())))
    }

    fn fence(&self, _epoch: u64) -> io::Result<()> {
        self.state().sync_directory()
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    id: u64,
}

impl StorageFile for SimulatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.state().write(self.id, offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync_content(self.id)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.state().read(self.id, offset, buffer)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().contents[&self.id].bytes.len() as u64)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if let Some(content) = state.contents.get_mut(&self.id) {
            content.handles -= 1;
        }
        state.remove_unreachable();
    }
}
