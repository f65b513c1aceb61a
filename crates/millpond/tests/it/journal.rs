//! `millpond journal`: on directories that a real engine has filled, whole, damaged and in use.

use crate::process::run;
use bytes::Bytes;
use millpond_core::command::{Declared, NewMessage};
use millpond_core::message::Content;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Engine, EngineOptions, Handle};
use std::fs;
use std::path::Path;
use std::sync::Arc;

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
