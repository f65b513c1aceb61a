//! Any damage to any files of a directory: what a repair says is never less than what is lost.

use crate::pond::{SEGMENT_BYTES, body, message, open, queue};
use millpond_core::command::{LeaseRequest, SettleOutcome, Settlement};
use millpond_core::identity::Seq;
use millpond_engine::repair::{rebuild, survey_of_damage};
use millpond_engine::survey::{Survey, Watch, survey};
use millpond_journal::inspect::{FaultKind, InspectedRecord, Inspection};
use millpond_journal::simulated::SimulatedDisk;
use millpond_journal::{Place, Storage};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Every record that was read, and every full copy of each message.
#[derive(Default)]
struct Seen {
    places: Vec<Place>,
    copies: BTreeMap<Seq, BTreeSet<Vec<u8>>>,
    last: BTreeMap<Seq, Place>,
}

impl Watch for Seen {
    fn record(&mut self, record: &InspectedRecord<'_>) {
        self.places.push(record.position.place());
        let (Some(key), Some(payload)) = (record.key.filter(|_| record.anchor), record.payload) else {
            return;
        };
        self.copies.entry(Seq(key)).or_default().insert(payload.to_vec());
        self.last.insert(Seq(key), record.position.place());
    }
}

/// A directory before any damage, and all that was acknowledged in it.
struct Original {
    disk: SimulatedDisk,
    seen: Seen,
    messages: BTreeSet<Seq>,
}

fn is_segment(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|kind| kind == "log")
}

fn messages(survey: &Survey) -> BTreeSet<Seq> {
    let mut messages = BTreeSet::new();
    survey.each_message(&mut |message, position| {
        if position.is_some() {
            messages.insert(message.seq);
        }
    });
    messages
}

impl Original {
    fn of(directory: &Path) -> Self {
        let disk = SimulatedDisk::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            disk.put(path.file_name().unwrap().to_str().unwrap(), std::fs::read(&path).unwrap());
        }
        let mut seen = Seen::default();
        let survey = survey(&disk, &mut seen).unwrap();
        assert!(survey.is_whole(), "{:?}", survey.findings());
        Self { disk, seen, messages: messages(&survey) }
    }
}

/// Two logs: one that has all its segments, and one whose oldest were given up, so that copies are all that is left of
/// what lay in them.
fn originals() -> &'static [Original; 2] {
    static ORIGINALS: OnceLock<[Original; 2]> = OnceLock::new();
    ORIGINALS.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        runtime.block_on(async {
            life(first.path(), 0, |round, at| if at == 0 { 4 * (round % 2) } else { 1 }).await;
            life(second.path(), 900, |round, at| if at == 0 { round % 20 } else { 9 }).await;
        });
        let originals = [Original::of(first.path()), Original::of(second.path())];
        let oldest = |original: &Original| original.seen.places[0].segment;
        assert_eq!(oldest(&originals[0]), 1);
        assert!(oldest(&originals[1]) > 1);
        originals
    })
}

/// Fills `directory` with messages; `ending` says how each is settled: all but the first four leave nothing behind.
async fn life(directory: &Path, padding: usize, ending: fn(usize, usize) -> usize) {
    let mut number = 0;
    for _ in 0..3 {
        let (engine, handle) = open(directory, &["jobs", "mail"]);
        for round in 0..60 {
            let padded = |at: u64| [body(number + at), vec![b'.'; padding]].concat();
            let sent = (0..20).map(|at| message(&padded(at))).collect();
            number += 20;
            handle.enqueue(queue("jobs"), sent).await.unwrap();
            let wish = LeaseRequest {
                queue: queue("jobs"),
                max: 20,
                lease: None,
                wait: Duration::from_secs(20),
                consumer: None,
            };
            let mut settlements = Vec::new();
            for (at, delivery) in handle.lease(wish).await.unwrap().into_iter().enumerate() {
                let receipt = delivery.leased.receipt;
                let outcome = match ending(round, at) {
                    0 => SettleOutcome::Dead { failure: None },
                    1 => SettleOutcome::Release { delay: Some(Duration::from_hours(1)) },
                    2 => SettleOutcome::Complete { result: Some(Arc::clone(&delivery.content)) },
                    3 => continue,
                    _ => SettleOutcome::Complete { result: None },
                };
                settlements.push(Settlement { receipt, outcome });
            }
            assert!(handle.settle(settlements).await.unwrap().iter().all(Result::is_ok));
        }
        // Copies are read and written beside the work.
        let within_bound = async {
            while handle.journal().disk_bytes > 2 * handle.journal().live_bytes + 4 * u64::from(SEGMENT_BYTES)
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), within_bound).await.expect("the log stays short");
        engine.stop();
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip { at: usize },
    Zero { at: usize, length: usize },
    Truncate { length: usize },
    Extend { by: usize },
    Lose,
    LoseIndexToo,
    Swap { with: usize },
    CopyOf { other: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || 0_usize..65_536;
    prop_oneof![
        3 => at().prop_map(|at| Damage::Flip { at }),
        3 => (at(), 1_usize..5000).prop_map(|(at, length)| Damage::Zero { at, length }),
        1 => at().prop_map(|at| Damage::Zero { at, length: usize::MAX }),
        1 => Just(Damage::Zero { at: 0, length: usize::MAX }),
        2 => prop_oneof![Just(0), 1..64_usize, 64..600_usize, at()].prop_map(|length| Damage::Truncate { length }),
        1 => prop_oneof![Just(1), Just(512), at()].prop_map(|by| Damage::Extend { by }),
        2 => Just(Damage::Lose),
        2 => Just(Damage::LoseIndexToo),
        1 => any::<usize>().prop_map(|with| Damage::Swap { with }),
        1 => any::<usize>().prop_map(|other| Damage::CopyOf { other }),
    ]
}

/// Does it to one of the files, newer ones as likely as all others together: there the least is known.
fn inflict(disk: &SimulatedDisk, which: (bool, usize), damage: &Damage) {
    let names: Vec<String> = disk.names().into_iter().filter(|name| name != "lock").collect();
    let logs: Vec<&String> = names.iter().filter(|name| is_segment(name)).collect();
    let Some(newer) = logs.len().checked_sub(3) else { return };
    let name = if which.0 { logs[newer + which.1 % 3] } else { &names[which.1 % names.len()] };
    let mut bytes = disk.bytes(name);
    let length = bytes.len().max(1);
    match damage {
        Damage::Flip { at } if !bytes.is_empty() => bytes[at % length] ^= 1 << (at % 8),
        Damage::Zero { at, length: count } => {
            let from = (at % length).min(bytes.len());
            let to = from.saturating_add(*count).min(bytes.len());
            bytes[from..to].fill(0);
        }
        Damage::Truncate { length } => bytes.truncate(*length),
        Damage::Extend { by } => bytes.resize(bytes.len() + by, 7),
        Damage::Lose | Damage::LoseIndexToo => {
            if matches!(damage, Damage::LoseIndexToo) {
                disk.take(&name.replace(".log", ".index"));
            }
            return disk.take(name);
        }
        Damage::Swap { with } => {
            let other = &names[with % names.len()];
            let theirs = disk.bytes(other);
            disk.put(other, std::mem::replace(&mut bytes, theirs));
        }
        Damage::CopyOf { other } => bytes = disk.bytes(&names[other % names.len()]),
        Damage::Flip { .. } => {}
    }
    disk.put(name, bytes);
}

/// Whether such a fault tells that frames are missing.
fn costs_frames(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Index => false,
        FaultKind::Length { found, expected } => found < u64::from(expected.unwrap_or(SEGMENT_BYTES)),
        _ => true,
    }
}

/// Where the last thing ends that looks like a frame that was begun and not finished, at the log's end or behind it.
fn begun(found: &Inspection) -> Option<Place> {
    let end = found.end?;
    let open =
        found.segments.iter().filter(|segment| segment.number >= end.segment && segment.open_bytes > 0);
    let behind = open.map(|segment| {
        let from = if segment.number == end.segment { u64::from(end.offset) } else { 0 };
        let offset = u32::try_from(from + segment.open_bytes).unwrap();
        Place { segment: segment.number, offset }
    });
    behind.max()
}

/// What must hold for `damaged`, once a copy of `original`.
fn judge(original: &Original, damaged: &SimulatedDisk) -> Result<bool, TestCaseError> {
    let mut seen = Seen::default();
    let before = match survey_of_damage(damaged, &mut seen) {
        Ok(before) => before,
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    };
    if before.is_whole() {
        // All that is taken for a torn tail is the end of the log.
        prop_assert!(original.seen.places.starts_with(&seen.places));
        return Ok(false);
    }
    let new: Arc<dyn Storage> = Arc::new(SimulatedDisk::new());
    let rebuilt = rebuild(damaged, &before, &new).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut kept = Seen::default();
    let after = survey(&*new, &mut kept).unwrap();
    prop_assert_eq!(after.messages(), rebuilt.after.messages());
    let served = messages(&after);
    for seq in &served {
        prop_assert!(kept.copies[seq].is_subset(&original.seen.copies[seq]), "{:?} has another content", seq);
    }
    let named: BTreeSet<Seq> = before.lost.iter().map(|lost| lost.seq).collect();
    prop_assert!(named.is_disjoint(&served), "named as lost, and there");
    // What lies behind all that looks wrong at the end cannot be told from what was never written.
    let found = &before.inspection;
    let is_cut = |seq: &Seq| {
        let last = original.seen.last[seq];
        let faults = found.faults.iter().filter(|fault| costs_frames(fault.kind));
        found.end.is_some_and(|end| last >= end && faults.clone().all(|fault| fault.place < end))
            && begun(found).is_none_or(|behind| last >= behind)
    };
    let missing = original.messages.iter().filter(|seq| !served.contains(seq) && !named.contains(seq));
    let mut unnamed = 0;
    for seq in missing.filter(|seq| !is_cut(seq)) {
        unnamed += 1;
        let is_told = before.unknown.iter().any(|range| range.contains(*seq));
        prop_assert!(is_told, "{:?} is gone without a word: {:?}", seq, before.findings());
        prop_assert!(*seq < Seq(before.unused_from) && Seq(after.unused_from) >= Seq(before.unused_from));
    }
    prop_assert!(before.unidentified_max.is_none_or(|max| unnamed <= max), "{} are gone", unnamed);
    prop_assert!(before.unknown.iter().all(|range| range.first > Seq(0)));
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_lost_is_named_or_counted(
        which in 0_usize..2,
        damages in proptest::collection::vec(((any::<bool>(), any::<usize>()), damage()), 1..=3),
    ) {
        let original = &originals()[which];
        let disk = original.disk.crash_with(|_| true);
        for (file, damage) in &damages {
            inflict(&disk, *file, damage);
        }
        judge(original, &disk)?;
    }
}

#[test]
fn each_segment_emptied_zeroed_cut_or_lost_with_its_index_or_without_is_accounted_for() {
    let mut damaged = 0;
    for original in originals() {
        let names: Vec<_> = original.disk.names().into_iter().filter(|name| is_segment(name)).collect();
        for name in names[..1].iter().chain(&names[names.len() - 3..]) {
            for with_index in [true, false] {
                for way in 0..4 {
                    let disk = original.disk.crash_with(|_| true);
                    if !with_index {
                        disk.take(&name.replace(".log", ".index"));
                    }
                    match way {
                        0 => disk.truncate(name, 0),
                        1 => disk.truncate(name, 40),
                        2 => disk.zero(name, 0..disk.bytes(name).len()),
                        _ => disk.take(name),
                    }
                    let judged = judge(original, &disk);
                    let judged =
                        judged.unwrap_or_else(|error| panic!("{name}, way {way}, {with_index}: {error}"));
                    damaged += u32::from(judged);
                }
            }
        }
    }
    assert!(damaged > 30, "covered too little: {damaged}");
}
