//! Every kind of damage: what a survey says of it, and that a repaired directory opens with everything that was whole.

use crate::pond::{lived, open, queue, try_open};
use millpond_core::command::LookupError;
use millpond_core::identity::Seq;
use millpond_engine::repair::{Repair, Repaired, repair_directory};
use millpond_engine::survey::{Survey, Unwatched, survey};
use millpond_engine::{CallError, Handle};
use millpond_journal::{LocalStorageError, ReadOnlyDirectory};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Pond {
    directory: TempDir,
    waiting: BTreeMap<Seq, Vec<u8>>,
}

impl Pond {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let waiting = lived(directory.path()).await;
        Self { directory, waiting }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn survey(&self) -> Survey {
        survey(&ReadOnlyDirectory::open(self.path()).unwrap(), &mut Unwatched).unwrap()
    }

    /// Numbers of the segments with more than one frame, oldest first.
    fn segments(&self) -> Vec<u32> {
        let segments = self.survey().inspection.segments;
        segments.iter().filter(|segment| segment.frames > 1).map(|segment| segment.number).collect()
    }

    fn segment(&self, number: u32) -> PathBuf {
        self.path().join(format!("{number:08}.log"))
    }

    /// Repairs, reopens, and checks that every message is there that is not reported as lost.
    async fn repair(&self, what: &str) -> Repaired {
        assert!(!self.survey().is_whole(), "{what} goes unnoticed");
        let Repair::Done(repaired) = repair_directory(self.path(), &mut Unwatched).unwrap() else {
            panic!("{what} was not repaired")
        };
        assert!(self.survey().is_whole(), "{what}");
        let (engine, handle) = open(self.path(), &["jobs", "mail"]);
        let mut missing = Vec::new();
        for (seq, body) in &self.waiting {
            if is_there(&handle, *seq, body).await {
                continue;
            }
            missing.push(*seq);
        }
        engine.stop();
        for seq in missing {
            assert!(is_reported(&repaired.before, seq), "{what}: {seq:?} is gone without a word");
        }
        *repaired
    }
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

async fn is_there(handle: &Handle, seq: Seq, body: &[u8]) -> bool {
    match handle.status(seq, None).await {
        Ok(_) => handle.content(seq).await.unwrap().is_some_and(|content| content.body == body),
        Err(CallError::Refused(LookupError::NeverIssued | LookupError::Forgotten)) => false,
        Err(error) => panic!("{error}"),
    }
}

fn is_reported(survey: &Survey, seq: Seq) -> bool {
    survey.lost.iter().any(|lost| lost.seq == seq) || survey.unknown.iter().any(|range| range.contains(seq))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_directory_is_counted_and_left_alone() {
    let pond = Pond::new().await;
    let survey = pond.survey();
    assert_eq!(survey.findings(), []);
    assert_eq!((survey.lost.len(), survey.unknown.len()), (0, 0));
    let unfinished: u64 = survey
        .queues
        .values()
        .flat_map(|queue| &queue.messages)
        .filter(|(phase, _)| ["ready", "delayed", "leased", "backoff"].contains(phase))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(unfinished, pond.waiting.len() as u64);
    let mut named: Vec<_> =
        survey.queues.values().map(|queue| queue.record.as_ref().unwrap().name.clone()).collect();
    named.sort_unstable();
    assert_eq!(named, [queue("jobs"), queue("mail")]);
    assert!(survey.inspection.segments.len() > 3, "{:?}", survey.inspection.segments);
    assert!(survey.live_bytes > 0 && survey.live_bytes < survey.record_bytes);
    assert!(matches!(repair_directory(pond.path(), &mut Unwatched), Ok(Repair::Whole(_))));
    assert!(!pond.path().join("damaged-1").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_costs_one_message() {
    let pond = Pond::new().await;
    let segment = pond.segments()[1];
    change(&pond.segment(segment), |bytes| {
        let at = bytes.windows(8).position(|window| window == b"abcdefgh").unwrap();
        bytes[at] ^= 1;
    });
    let repaired = pond.repair("a flipped bit").await;
    assert!(repaired.before.lost.len() <= 1, "{:?}", repaired.before.lost);
    assert!(!repaired.new_secret && repaired.recovered_queues.is_empty());
    let aside = repaired.aside;
    assert_eq!(aside, pond.path().join("damaged-1"));
    assert!(aside.join(format!("{segment:08}.log")).exists() && aside.join("format").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_index_costs_nothing() {
    let pond = Pond::new().await;
    let index = pond.path().join(format!("{:08}.index", pond.segments()[1]));
    change(&index, |bytes| bytes[200] ^= 1);
    let repaired = pond.repair("a damaged index").await;
    assert_eq!((repaired.before.lost.len(), repaired.before.unknown.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zeroed_page_costs_what_lay_in_it() {
    let pond = Pond::new().await;
    change(&pond.segment(pond.segments()[1]), |bytes| bytes[8192..12288].fill(0));
    let repaired = pond.repair("a zeroed page").await;
    assert!(repaired.before.lost.len() < 20, "{}", repaired.before.lost.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_anywhere_loses_no_message_without_a_word() {
    let pond = Pond::new().await;
    let (mut lost, mut places) = (0, 0);
    for with_index in [true, false] {
        for segment in pond.segments() {
            for offset in (0..60_000).step_by(15_000) {
                let copy = tempfile::tempdir().unwrap();
                for entry in fs::read_dir(pond.path()).unwrap() {
                    let path = entry.unwrap().path();
                    if with_index || path.extension().is_none_or(|kind| kind != "index") {
                        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
                    }
                }
                change(&copy.path().join(format!("{segment:08}.log")), |bytes| {
                    bytes[offset..offset + 700].fill(0);
                });
                let Repair::Done(repaired) = repair_directory(copy.path(), &mut Unwatched).unwrap() else {
                    continue;
                };
                let mut kept = std::collections::BTreeSet::new();
                repaired.after.each_message(&mut |message, _| {
                    kept.insert(message.seq);
                });
                for seq in pond.waiting.keys().filter(|seq| !kept.contains(seq)) {
                    let what = format!("segment {segment}, offset {offset}, with index {with_index}");
                    assert!(is_reported(&repaired.before, *seq), "{what}: {seq:?} is gone without a word");
                    lost += 1;
                }
                places += 1;
            }
        }
    }
    assert!(places > 20 && lost > 0, "covered too little: {places} places, {lost} messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_segments_cost_what_they_held() {
    for place in [0, 1] {
        let pond = Pond::new().await;
        let segments = pond.segments();
        fs::remove_file(pond.segment(segments[place])).unwrap();
        let refused = try_open(pond.path(), &["jobs", "mail"]);
        assert!(refused.is_err(), "segment {} is missing and nobody minds", segments[place]);
        pond.repair("a missing segment").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_file_costs_its_end() {
    let pond = Pond::new().await;
    let segment = pond.segments()[1];
    change(&pond.segment(segment), |bytes| bytes.truncate(40_000));
    pond.repair("a shortened file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_format_file_costs_nothing_while_frames_are_whole() {
    let pond = Pond::new().await;
    change(&pond.path().join("format"), |bytes| bytes[30] ^= 1);
    assert!(try_open(pond.path(), &["jobs", "mail"]).is_err());
    let repaired = pond.repair("a damaged format file").await;
    assert_eq!((repaired.before.lost.len(), repaired.before.unknown.len()), (0, 0));
    assert_eq!(repaired.before.messages(), repaired.after.messages());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_secret_costs_the_ids_and_no_message() {
    for damaged in [false, true] {
        let pond = Pond::new().await;
        let path = pond.path().join("secret");
        if damaged {
            // Of the secret itself: without a checksum any 32 bytes would do.
            change(&path, |bytes| bytes[30] ^= 1);
        } else {
            fs::remove_file(&path).unwrap();
        }
        let Err(error) = try_open(pond.path(), &["jobs", "mail"]) else { panic!("with another secret") };
        let error = error.to_string();
        assert!(
            error.contains("`secret`") && error.contains("backup") && error.contains("repair"),
            "{error}"
        );
        let repaired = pond.repair("a lost secret").await;
        assert!(repaired.new_secret);
        let findings = repaired.before.findings();
        let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, ["secret"]);
        assert_eq!(findings[0].text.contains("damaged"), damaged, "{}", findings[0].text);
        assert_eq!(repaired.before.messages(), repaired.after.messages());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_queue_that_is_lost_are_kept_under_another_name() {
    let pond = Pond::new().await;
    // Queues are written at the beginning, and again whenever a segment is given up: everything but the last segment
    // with messages goes, until no record of a queue is left.
    let mut segments = pond.segments();
    let last = segments.pop().unwrap();
    for segment in segments {
        fs::remove_file(pond.segment(segment)).unwrap();
        let _ = fs::remove_file(pond.path().join(format!("{segment:08}.index")));
    }
    let repaired = pond.repair("lost queues").await;
    assert!(last > 1);
    let (engine, handle) = open(pond.path(), &["jobs", "mail"]);
    for (_, name) in &repaired.recovered_queues {
        assert!(name.as_str().starts_with("recovered-"));
        assert!(handle.queue(name.clone()).await.unwrap().stats.ready > 0);
    }
    assert!(!repaired.recovered_queues.is_empty(), "no queue was lost");
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_which_nothing_is_left_opens_empty_and_honours_no_old_id() {
    let pond = Pond::new().await;
    for segment in pond.survey().inspection.segments {
        change(&pond.segment(segment.number), |bytes| bytes.fill(7));
    }
    for entry in fs::read_dir(pond.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "index") || path.ends_with("format") {
            fs::remove_file(path).unwrap();
        }
    }
    let Repair::Done(repaired) = repair_directory(pond.path(), &mut Unwatched).unwrap() else { panic!() };
    assert!(repaired.new_secret && repaired.after.messages() == 0);
    let (engine, _) = open(pond.path(), &["jobs"]);
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_out_before_the_damage_is_never_given_out_again() {
    let pond = Pond::new().await;
    // The end of the log, with the newest numbers and the newest boot, is gone.
    let segments = pond.segments();
    let newest = pond.waiting.keys().next_back().unwrap();
    fs::remove_file(pond.segment(*segments.last().unwrap())).unwrap();
    for later in
        pond.survey().inspection.segments.iter().filter(|later| later.number > segments[segments.len() - 1])
    {
        let _ = fs::remove_file(pond.segment(later.number));
    }
    let Repair::Done(_) = repair_directory(pond.path(), &mut Unwatched).unwrap() else {
        panic!("not repaired")
    };
    let (engine, handle) = open(pond.path(), &["jobs", "mail"]);
    let accepted = handle.enqueue(queue("mail"), vec![crate::pond::message(b"new")]).await.unwrap();
    assert!(accepted[0].as_ref().unwrap().seq > *newest);
    engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use_is_not_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, _) = open(directory.path(), &["jobs"]);
    let refused = repair_directory(directory.path(), &mut Unwatched).unwrap_err();
    let millpond_engine::repair::RepairError::Storage(LocalStorageError::InUse { .. }) = refused else {
        panic!("{refused}")
    };
    engine.stop();
    let nowhere = directory.path().join("nowhere");
    assert!(repair_directory(&nowhere, &mut Unwatched).is_err());
    assert!(!nowhere.exists(), "a name that was mistyped creates nothing");
}
