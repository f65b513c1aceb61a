//! `millpond journal`: on directories that a real engine has filled, whole, damaged and in use.

use crate::process::{run, serving};
use bytes::Bytes;
use millpond_core::command::{Declared, LeaseRequest, NewMessage, SettleOutcome, Settlement};
use millpond_core::message::{Content, Failure};
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Engine, EngineOptions, Handle};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// An engine with small segments, so that a few messages fill several.
fn engine(data: &Path) -> (Engine, Handle) {
    let queues = vec![(Name::new("jobs").unwrap(), QueueSettings::default())];
    let mut options = EngineOptions::new(data.to_owned(), Declared { targets: Vec::new(), queues });
    options.segment_bytes = 64 << 10;
    let (engine, handle, _) = Engine::open(options).unwrap();
    (engine, handle)
}

fn send(handle: &Handle, bodies: impl IntoIterator<Item = Vec<u8>>) {
    let message = |body: Vec<u8>| {
        let content =
            Content { content_type: "text/plain".into(), headers: Vec::new(), body: Bytes::from(body) };
        NewMessage { content: Arc::new(content), ..NewMessage::default() }
    };
    let messages = bodies.into_iter().map(message).collect();
    let accepted = block_on(handle.enqueue(Name::new("jobs").unwrap(), messages)).unwrap();
    assert!(accepted.iter().all(Result::is_ok));
}

/// A directory with `messages` messages of about a kilobyte.
fn filled(data: &Path, messages: u32) {
    let (engine, handle) = engine(data);
    for first in (0..messages).step_by(20) {
        send(
            &handle,
            (first..messages.min(first + 20))
                .map(|number| format!("{number:04} {}", "x".repeat(1000)).into_bytes()),
        );
    }
    engine.stop();
}

/// Opens the log until a complete segment of it has its index, from which a repair knows what is lost.
fn indexed(data: &Path, segment: &str) {
    let index = data.join(format!("{segment}.index"));
    let (engine, _) = engine(data);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !index.exists() {
        assert!(Instant::now() < deadline, "no index of segment {segment} in {:?}", listing(data));
        std::thread::yield_now();
    }
    engine.stop();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_whole_journal_is_verified_and_counted_beside_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    filled(data, 200);
    let (engine, handle) = engine(data);
    send(&handle, [b"one more".to_vec()]);
    let verified = run(&["journal", "verify", "--data", text(data), "--json"]).expect(0).json();
    assert_eq!((verified["whole"].as_bool(), verified["messages"].as_u64()), (Some(true), Some(201)));
    assert_eq!(verified["faults"].as_array().unwrap().len(), 0);
    let human = run(&["journal", "verify", "--data", text(data)]).expect(0);
    assert!(
        human.stdout.contains(": whole;") && human.stdout.contains("201 messages in 1 queue"),
        "{}",
        human.stdout
    );

    let stats = run(&["journal", "stats", "--data", text(data), "--json"]).expect(0).json();
    assert_eq!(stats["queues"][0]["name"], "jobs");
    assert_eq!(stats["queues"][0]["ready"], 201);
    assert_eq!(stats["records_by_kind"]["message"], 201);
    assert!(stats["live_bytes"].as_u64().unwrap() > 200_000);
    assert!(stats["segments"].as_array().unwrap().len() >= 4);
    assert!(stats["oldest_segment_age_seconds"].as_f64().is_some());
    let human = run(&["journal", "stats", "--data", text(data)]).expect(0);
    for expected in ["jobs", "QUEUE", "SEGMENT", "RECORDS OF KIND", "whole"] {
        assert!(human.stdout.contains(expected), "{expected} is missing\n{}", human.stdout);
    }
    engine.stop();
}

#[test]
fn a_damaged_journal_is_explained_and_repaired_only_when_the_loss_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    filled(data, 200);
    indexed(data, "00000002");
    let segment = data.join("00000002.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[20_000..21_000].fill(0);
    fs::write(&segment, &bytes).unwrap();

    let verified = run(&["journal", "verify", "--data", text(data), "--json"]).expect(1);
    let fault = &verified.json()["faults"][0];
    assert_eq!((fault["segment"].as_u64(), fault["kind"].as_str()), (Some(2), Some("damaged-frame")));
    assert!(fault["offset"].as_u64().unwrap() <= 20_000);
    let human = run(&["journal", "verify", "--data", text(data)]).expect(1);
    assert!(human.stdout.contains("damaged-frame"), "{}", human.stdout);
    assert!(human.stderr.contains("millpond journal repair"), "{}", human.stderr);

    let before: Vec<_> = listing(data);
    let explained = run(&["journal", "repair", "--data", text(data)]).expect(1);
    assert!(
        explained.stdout.contains("LOST MESSAGE") && explained.stdout.contains("jobs"),
        "{}",
        explained.stdout
    );
    assert!(explained.stderr.contains("--accept-loss"), "{}", explained.stderr);
    assert_eq!(listing(data), before, "without --accept-loss nothing is changed");

    let repaired =
        run(&["journal", "repair", "--data", text(data), "--accept-loss", "--json"]).expect(0).json();
    let lost = repaired["lost"].as_array().unwrap();
    assert!((1..=3).contains(&lost.len()), "{repaired}");
    assert_eq!(lost[0]["queue"], "jobs");
    assert_eq!(repaired["messages_kept"].as_u64(), Some(200 - lost.len() as u64));
    assert!(Path::new(repaired["aside"].as_str().unwrap()).join("00000002.log").exists());
    run(&["journal", "verify", "--data", text(data)]).expect(0);
    let again = run(&["journal", "repair", "--data", text(data), "--accept-loss"]).expect(0);
    assert!(again.stdout.contains("nothing to repair"), "{}", again.stdout);
    let (engine, handle) = engine(data);
    let stats = block_on(handle.queue(Name::new("jobs").unwrap())).unwrap().stats;
    assert_eq!(stats.ready, 200 - lost.len() as u64);
    engine.stop();
}

fn listing(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_directory_without_a_journal_is_nothing_whole_and_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for file in [None, Some("secret"), Some("notes.log")] {
        if let Some(file) = file {
            fs::write(elsewhere.join(file), "not of a journal").unwrap();
        }
        let before = listing(&elsewhere);
        let copy = directory.path().join("copy");
        for command in [
            &["verify"][..],
            &["verify", "--json"],
            &["stats"],
            &["export"],
            &["repair"],
            &["repair", "--accept-loss"],
            &["backup", text(&copy)],
        ] {
            let refused = run(&[&["journal"], command, &["--data", text(&elsewhere)]].concat()).expect(1);
            assert_eq!(refused.stdout, "", "{command:?}");
            let says = ["there is no journal in", text(&elsewhere), "--data"];
            assert!(says.iter().all(|said| refused.stderr.contains(said)), "{command:?}: {}", refused.stderr);
        }
        assert_eq!(listing(&elsewhere), before, "nothing is made there, not even a lock");
        assert!(!copy.exists());
    }
}

#[test]
fn what_is_left_of_a_journal_is_never_whole() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole");
    filled(&whole, 200);
    indexed(&whole, "00000002");
    let of_two = ["00000002.index", "00000002.log"];
    for left in
        [&["format"][..], &["format", "secret"], &["00000002.index", "format"], &of_two, &["00000002.log"]]
    {
        let rest = tempfile::tempdir().unwrap();
        for name in left {
            fs::copy(whole.join(name), rest.path().join(name)).unwrap();
        }
        let refused = run(&["journal", "verify", "--data", text(rest.path())]);
        assert_eq!(refused.code, 1, "{left:?}: {refused:?}");
    }
}

#[test]
fn a_server_that_refuses_a_damaged_journal_names_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let damage = |name: &str, spoil: &dyn Fn(&Path)| {
        let data = directory.path().join(name);
        filled(&data, 200);
        spoil(&data);
        let mut server = serving(&data).stderr(Stdio::piped()).spawn().unwrap();
        let mut started = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut started).unwrap();
        // It has ended by itself unless it says that it serves.
        server.kill().unwrap();
        assert_eq!(started, "", "{name}: it serves");
        String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap()
    };
    let flip = |data: &Path| {
        let segment = data.join("00000002.log");
        let mut bytes = fs::read(&segment).unwrap();
        bytes[20_000] ^= 1;
        fs::write(&segment, &bytes).unwrap();
        // A start trusts the index of a complete segment, and reads its frames only where there is none.
        for (name, _) in listing(data).iter().filter(|(name, _)| name.contains(".index")) {
            fs::remove_file(data.join(name)).unwrap();
        }
    };
    let texts = [
        ("frame", damage("frame", &flip)),
        ("segment", damage("segment", &|data| fs::remove_file(data.join("00000002.log")).unwrap())),
        ("format", damage("format", &|data| fs::write(data.join("format"), "x").unwrap())),
        ("secret", damage("secret", &|data| fs::remove_file(data.join("secret")).unwrap())),
    ];
    for (name, text) in texts {
        let verify = format!("millpond journal verify --data {}", directory.path().join(name).display());
        for said in [verify.as_str(), "millpond journal repair", "backup"] {
            assert!(text.contains(said), "{name}: {said} is missing\n{text}");
        }
    }
}

#[test]
fn what_nothing_tells_of_is_counted_and_never_called_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    filled(data, 200);
    indexed(data, "00000002");
    let newest = listing(data).into_iter().filter(|(name, _)| name.contains(".log")).map(|(name, _)| name);
    let newest: Vec<_> = newest.collect();
    for name in &newest[2..] {
        fs::write(data.join(name), []).unwrap();
    }
    let explained = run(&["journal", "repair", "--data", text(data)]).expect(1);
    assert!(explained.stdout.contains("further messages may be lost"), "{}", explained.stdout);
    let report = run(&["journal", "repair", "--data", text(data), "--json"]).expect(1).json();
    assert!(report["unidentified_max"].as_u64().unwrap() > 0, "{report}");
    assert!(report["unknown_numbers"][0]["first"].as_u64().unwrap() > 0, "{report}");

    for name in &newest {
        fs::remove_file(data.join(name)).unwrap();
    }
    for (name, _) in listing(data).iter().filter(|(name, _)| name.contains(".index")) {
        fs::remove_file(data.join(name)).unwrap();
    }
    let explained = run(&["journal", "repair", "--data", text(data)]).expect(1);
    assert!(explained.stdout.contains("nothing tells how many"), "{}", explained.stdout);
    let report =
        run(&["journal", "repair", "--data", text(data), "--accept-loss", "--json"]).expect(0).json();
    assert!(report["unidentified_max"].is_null() && report["messages_kept"] == 0, "{report}");
    run(&["journal", "verify", "--data", text(data)]).expect(0);
}

#[test]
fn a_backup_does_not_go_into_what_it_copies() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    filled(&data, 1);
    fs::create_dir(data.join("below")).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    for copy in [
        data.join("copy"),
        data.join("below/copy"),
        link.join("copy"),
        directory.path().join("link/../data/copy"),
    ] {
        let refused = run(&["journal", "backup", text(&copy), "--data", text(&data)]).expect(1);
        assert!(refused.stderr.contains("inside the data directory"), "{}", refused.stderr);
        assert!(!copy.exists());
    }
    run(&["journal", "backup", text(&directory.path().join("data-2")), "--data", text(&data)]).expect(0);
}

#[test]
fn a_journal_in_use_is_not_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let (engine, _handle) = engine(data);
    let refused = run(&["journal", "repair", "--data", text(data), "--accept-loss"]).expect(1);
    assert!(
        refused.stderr.contains("in use by process") && refused.stderr.contains("stop the server"),
        "{refused:?}"
    );
    engine.stop();
}

#[test]
fn the_directory_comes_from_the_flag_the_configuration_or_the_default() {
    let directory = tempfile::tempdir().unwrap();
    filled(&directory.path().join("pond"), 1);
    let configuration = directory.path().join("some.toml");
    fs::write(&configuration, format!("data = {:?}\n", text(&directory.path().join("pond")))).unwrap();
    let by_configuration =
        run(&["journal", "verify", "--config", text(&configuration), "--json"]).expect(0).json();
    assert_eq!(by_configuration["messages"], 1);
    let nowhere = crate::process::run_in(directory.path(), &["journal", "verify"]).expect(1);
    assert!(
        nowhere.stderr.contains("millpond-data") && nowhere.stderr.contains("--data"),
        "{}",
        nowhere.stderr
    );
    assert!(!directory.path().join("millpond-data").exists());
    run(&["journal", "verify", "--accept-loss"]).expect(2);
}

#[test]
fn every_message_is_exported_with_its_body_and_its_state() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let (engine, handle) = engine(data);
    send(&handle, [b"text".to_vec(), vec![0xFF, 0, 1], b"done".to_vec(), b"dead".to_vec()]);
    let jobs = || Name::new("jobs").unwrap();
    let wish = LeaseRequest { queue: jobs(), max: 4, lease: None, wait: Duration::ZERO, consumer: None };
    for delivery in block_on(handle.lease(wish)).unwrap() {
        let outcome = match &delivery.content.body[..] {
            b"done" => SettleOutcome::Complete { result: Some(Arc::clone(&delivery.content)) },
            b"dead" => SettleOutcome::Dead { failure: Some(Failure::new("worker", "no", None)) },
            _ => SettleOutcome::Release { delay: None },
        };
        let settlement = Settlement { receipt: delivery.leased.receipt, outcome };
        block_on(handle.settle(vec![settlement])).unwrap()[0].as_ref().unwrap();
    }
    // Beside the engine, and after it.
    for again in [false, true] {
        let export = |more: &[&str]| -> Vec<Value> {
            let arguments = [&["journal", "export", "--data", text(data)], more].concat();
            let done = run(&arguments).expect(0);
            done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let lines = export(&[]);
        assert_eq!(lines.len(), 4, "{again}");
        assert_eq!((&lines[0]["body"], &lines[0]["status"]), (&"text".into(), &"ready".into()));
        assert_eq!((&lines[1]["body"], &lines[1]["body_encoding"]), (&"/wAB".into(), &"base64".into()));
        assert_eq!((&lines[2]["body"], &lines[2]["result"]["body"]), (&Value::Null, &"done".into()));
        assert_eq!((&lines[3]["status"], &lines[3]["dead_reason"]), (&"dead".into(), &"rejected".into()));
        assert_eq!(lines[3]["history"][0]["error"]["message"], "no");
        assert_eq!(lines[0]["id"].as_str().unwrap().len(), 36);
        assert_eq!(lines[0]["queue"], "jobs");
        assert_eq!(export(&["--state", "dead", "--state", "succeeded"]), lines[2..]);
        assert_eq!(export(&["--queue", "jobs", "--state", "ready"]), lines[..2]);
        if !again {
            continue;
        }
        let unknown = run(&["journal", "export", "--data", text(data), "--queue", "nope"]).expect(1);
        assert!(unknown.stderr.contains("jobs"), "{}", unknown.stderr);
        run(&["journal", "export", "--data", text(data), "--state", "lost"]).expect(2);
    }
    engine.stop();
}

#[test]
fn a_message_whose_body_is_damaged_is_exported_without_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    filled(data, 200);
    indexed(data, "00000002");
    let segment = data.join("00000002.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[20_000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let done = run(&["journal", "export", "--data", text(data)]);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let with_body = lines.iter().filter(|line| line["body"].is_string()).count();
    assert!(with_body >= 197, "{with_body} of {}", lines.len());
    assert!(lines.iter().all(|line| line["body"].is_string() || line["body_error"].is_string()));
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn backups_beside_a_busy_owner_open_with_all_that_was_accepted_before() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (engine, handle) = engine(&data);
    let accepted = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when this test fails: the scope waits for the thread.
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            // Messages come and most go, so that segments are given up and used again while they are copied.
            let jobs = || Name::new("jobs").unwrap();
            while !stop.load(Ordering::Relaxed) {
                let kept = accepted.load(Ordering::Relaxed);
                send(
                    &handle,
                    (0..20).map(|at| format!("{:06} {}", kept * 20 + at, "y".repeat(1000)).into_bytes()),
                );
                let wish = LeaseRequest {
                    queue: jobs(),
                    max: 19,
                    lease: None,
                    wait: Duration::ZERO,
                    consumer: None,
                };
                let settled = block_on(handle.lease(wish))
                    .unwrap()
                    .into_iter()
                    .map(|delivery| Settlement {
                        receipt: delivery.leased.receipt,
                        outcome: SettleOutcome::Complete { result: None },
                    })
                    .collect();
                block_on(handle.settle(settled)).unwrap();
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..8 {
            while accepted.load(Ordering::Relaxed) < round * 15 {
                std::thread::yield_now();
            }
            let before = accepted.load(Ordering::Relaxed);
            let copy = directory.path().join(format!("backup-{round}"));
            let report =
                run(&["journal", "backup", text(&copy), "--data", text(&data), "--json"]).expect(0).json();
            assert_eq!(report["backup"], text(&copy));
            let (engine, handle) = self::engine(&copy);
            // Of every round one message stays, and nothing else is ready once it is over.
            let stats = block_on(handle.queue(Name::new("jobs").unwrap())).unwrap().stats;
            assert!(stats.ready + stats.leased >= before, "{before} rounds, {stats:?}");
            engine.stop();
        }
    });
    engine.stop();
}

#[test]
fn a_backup_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    filled(&data, 200);
    let copy = directory.path().join("copy");
    run(&["journal", "backup", text(&copy), "--data", text(&data)]).expect(0);
    let export = |data: &Path| run(&["journal", "export", "--data", text(data)]).expect(0).stdout;
    assert_eq!(export(&copy), export(&data));
    let again = run(&["journal", "backup", text(&copy), "--data", text(&data)]).expect(1);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);

    let segment = data.join("00000002.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[20_000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let other = directory.path().join("other");
    let refused = run(&["journal", "backup", text(&other), "--data", text(&data)]).expect(1);
    assert!(refused.stderr.contains("verify"), "{}", refused.stderr);
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
