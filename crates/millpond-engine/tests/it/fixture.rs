//! Directories of every format version that is still read: the code of today opens them and finds what is listed.
//!
//! Owns the listing. Each directory lies in `tests/fixtures/format-<version>`, with `expected.txt` beside its data;
//! `cargo xtask fixture` makes the current one, and must never be run for a version that was released.

use millpond_core::command::{Command, Declared, Input, Reply, RequestId};
use millpond_core::message::Phase;
use millpond_core::time::{Mono, Now, Wall};
use millpond_engine::codec::decode_content;
use millpond_engine::engine::{Randomness, restore};
use millpond_engine::machine::Output;
use millpond_engine::survey::{Survey, Unwatched, survey};
use millpond_journal::inspect::files;
use millpond_journal::simulated::SimulatedDisk;
use millpond_journal::{FORMAT_VERSION, ReadOnlyDirectory, Storage};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixtures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut fixtures: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    fixtures.sort();
    fixtures
}

/// Everything that a directory holds, in words.
fn describe(storage: &Arc<dyn Storage>) -> String {
    let survey = survey(&**storage, &mut Unwatched).unwrap();
    let mut text = String::new();
    for finding in survey.findings() {
        let _ = writeln!(text, "damaged: {finding}");
    }
    for (kind, count) in &survey.kinds {
        let _ = writeln!(text, "records {kind} {count}");
    }
    for (number, queue) in &survey.queues {
        let record = queue.record.as_ref().unwrap();
        let _ = writeln!(
            text,
            "queue {number} {} paused {} deleted {} order {:?} overflow {:?} result_retention {:?} replays {}",
            record.name,
            record.paused,
            record.deleted,
            record.settings.order,
            record.settings.overflow,
            record.settings.result_retention,
            record.replays.len(),
        );
    }
    describe_messages(storage, &survey, &mut text);
    text
}

fn describe_messages(storage: &Arc<dyn Storage>, survey: &Survey, text: &mut String) {
    let files = files(Arc::clone(storage)).unwrap();
    survey.each_message(&mut |message, position| {
        let record = survey.queues[&message.queue.0].record.as_ref().unwrap();
        let content = decode_content(&files.read(position.unwrap()).unwrap()).unwrap();
        let body = content.as_ref().map_or_else(
            || "none".to_owned(),
            |content| {
                format!("{} {:?} headers {}", content.content_type, content.body, content.headers.len())
            },
        );
        let keys = survey.keys().unwrap();
        let (phase, place) = (message.phase.as_str(), message.place);
        let _ = writeln!(
            text,
            "message {} {} {} {phase} place {place}",
            message.seq.0,
            keys.id(message.seq),
            record.name
        );
        let _ = writeln!(
            text,
            "  accepted {} due {} expires {} finished {:?} attempts {} deliveries {}+{} class {}",
            message.accepted.0,
            message.due.0,
            message.expires.0,
            message.finished.map(|at| at.0),
            message.attempts,
            message.deliveries_before,
            message.deliveries,
            message.criticality.as_str(),
        );
        let _ = writeln!(
            text,
            "  tenant {:?} group {:?} consumer {:?} key {:?} dead {:?} hand-out {:?} result {:?}",
            message.tenant.as_ref().map(millpond_core::name::Label::as_str),
            message.group.as_ref().map(millpond_core::name::Label::as_str),
            message.consumer.as_ref().map(millpond_core::name::Label::as_str),
            message.key.map(|key| (key.key, key.payload)),
            message.dead_reason.map(millpond_core::message::DeadReason::as_str),
            message.hand_out.as_ref().map(|hand_out| (
                hand_out.epoch,
                hand_out.holder.target(),
                hand_out.until.0
            )),
            message.result,
        );
        if let Some(callback) = &message.callback {
            let (wish, teller) = (&callback.wish, callback.teller.map(|teller| teller.0));
            let _ = writeln!(text, "  callback {:?} {:?} teller {teller:?}", wish.address, wish.context);
        }
        for attempt in &message.history {
            let failure = attempt
                .failure
                .as_ref()
                .map(|failure| (&failure.kind, &failure.message, failure.http_status));
            let (number, outcome, target) =
                (attempt.delivery, attempt.outcome.as_str(), attempt.holder.target());
            let _ = writeln!(text, "  attempt {number} {target:?} {outcome} {failure:?}");
        }
        let _ = writeln!(text, "  content {body}");
    });
}

fn on_disk(data: &Path) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        disk.put(path.file_name().unwrap().to_str().unwrap(), fs::read(&path).unwrap());
    }
    disk
}

#[test]
fn every_fixture_holds_what_is_listed_beside_it() {
    let fixtures = fixtures();
    assert!(fixtures.iter().any(|path| path.ends_with(format!("format-{FORMAT_VERSION}"))), "{fixtures:?}");
    for fixture in fixtures {
        let directory = ReadOnlyDirectory::open(&fixture.join("data")).unwrap();
        let found = describe(&(Arc::new(directory) as Arc<dyn Storage>));
        let list = fixture.join("expected.txt");
        if std::env::var_os("MILLPOND_WRITE_FIXTURE").is_some() {
            fs::write(&list, &found).unwrap();
        }
        let expected = fs::read_to_string(&list).unwrap();
        for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{}, line {}", list.display(), line + 1);
        }
        assert_eq!(found.len(), expected.len(), "{}", list.display());
    }
}

#[test]
fn every_fixture_opens_and_serves_what_waits_in_it() {
    for fixture in fixtures() {
        let disk = on_disk(&fixture.join("data"));
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let before = survey(&disk, &mut Unwatched).unwrap();
        let newest = before_all(&before);
        // A moment after the last thing that happened: nothing expires, no lease runs out.
        let now = Now { wall: Wall(newest.0 + 1_000), mono: Mono(0) };
        let randomness = Randomness { salt: [0; 32], secret: [0; 32], seed: 1 };
        let mut machine = restore(&storage, Declared::default(), 8 << 10, &randomness, now).unwrap().machine;
        machine.handle(Input::Command { request: RequestId(1), command: Command::Overview }, now);
        let overview = machine.outputs().find_map(|output| match output {
            Output::Reply(RequestId(1), answer) => Some(answer.reply),
            _ => None,
        });
        let Some(Reply::Overview(queues, _)) = overview else {
            panic!("{} answers nothing", fixture.display())
        };
        for queue in queues {
            let stats = &queue.stats;
            let kept =
                before.queues.values().find(|kept| kept.record.as_ref().unwrap().name == queue.name).unwrap();
            let count = |phase: Phase| kept.messages.get(phase.as_str()).copied().unwrap_or(0);
            let counts =
                [Phase::Ready, Phase::Delayed, Phase::Leased, Phase::Backoff, Phase::Dead].map(count);
            let served = [stats.ready, stats.delayed, stats.leased, stats.backoff, stats.dead];
            assert_eq!(served, counts, "{}: {}", fixture.display(), queue.name);
        }
    }
}

/// The newest acceptance.
fn before_all(survey: &Survey) -> Wall {
    let mut newest = Wall(i64::MIN);
    survey.each_message(&mut |message, _| newest = newest.max(message.accepted));
    newest
}
