//! A directory with messages in every state, made by a real engine, and what must be found in it.

use bytes::Bytes;
use millpond_core::command::{Declared, LeaseRequest, NewMessage, SettleOutcome, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::Content;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Engine, EngineOptions, Handle};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SEGMENT_BYTES: u32 = 64 << 10;

pub(crate) fn queue(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn open(directory: &Path, queues: &[&str]) -> (Engine, Handle) {
    try_open(directory, queues).unwrap()
}

pub(crate) fn try_open(
    directory: &Path,
    queues: &[&str],
) -> Result<(Engine, Handle), millpond_engine::OpenError> {
    let queues = queues.iter().map(|name| (queue(name), QueueSettings::default())).collect();
    let mut options = EngineOptions::new(directory.to_owned(), Declared { targets: Vec::new(), queues });
    options.segment_bytes = SEGMENT_BYTES;
    let (engine, handle, _calls) = Engine::open(options)?;
    Ok((engine, handle))
}

pub(crate) fn message(body: &[u8]) -> NewMessage {
    let content = Content {
        content_type: "text/plain".into(),
        headers: Vec::new(),
        body: Bytes::copy_from_slice(body),
    };
    NewMessage { content: Arc::new(content), ..NewMessage::default() }
}

/// A body that is unlike any other.
pub(crate) fn body(number: u64) -> Vec<u8> {
    format!("message {number} {}", "abcdefgh".repeat(usize::try_from(number % 40).unwrap())).into_bytes()
}

/// Fills `directory` with a life: `jobs` has messages in every state over several segments, `mail` only waiting ones.
/// Returns the unfinished messages with their bodies.
pub(crate) async fn lived(directory: &Path) -> BTreeMap<Seq, Vec<u8>> {
    let (engine, handle) = open(directory, &["jobs", "mail"]);
    let mut waiting = BTreeMap::new();
    let mut number = 0;
    for round in 0..40_u64 {
        for name in ["jobs", "mail"] {
            let bodies: Vec<Vec<u8>> = (0..8).map(|at| body(number + at)).collect();
            number += 8;
            let sent = bodies.iter().map(|body| message(body)).collect();
            let accepted = handle.enqueue(queue(name), sent).await.unwrap();
            for (accepted, body) in accepted.into_iter().zip(bodies) {
                waiting.insert(accepted.unwrap().seq, body);
            }
        }
        let wish = LeaseRequest {
            queue: queue("jobs"),
            max: 5,
            lease: None,
            wait: Duration::from_secs(20),
            consumer: None,
        };
        for (at, delivery) in handle.lease(wish).await.unwrap().into_iter().enumerate() {
            let receipt = delivery.leased.receipt;
            let outcome = match (round + at as u64) % 5 {
                0 => SettleOutcome::Complete { result: Some(Arc::clone(&delivery.content)) },
                1 => SettleOutcome::Complete { result: None },
                2 => SettleOutcome::Dead { failure: None },
                3 => SettleOutcome::Release { delay: Some(Duration::from_hours(1)) },
                _ => continue,
            };
            if !matches!(outcome, SettleOutcome::Release { .. }) {
                waiting.remove(&receipt.seq);
            }
            handle.settle(vec![Settlement { receipt, outcome }]).await.unwrap()[0].as_ref().unwrap();
        }
    }
    // The log comes to rest, and every segment but the last two (the current one, and the next) has an index.
    let sealed = async {
        while !is_sealed(directory) {
            handle.queue(queue("jobs")).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sealed).await.expect("the log comes to rest");
    engine.stop();
    waiting
}

fn is_sealed(directory: &Path) -> bool {
    let numbers = |kind: &str| {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let numbers = names.filter_map(|name| name.to_str()?.strip_suffix(kind)?.parse::<u32>().ok());
        numbers.max().unwrap_or(0)
    };
    numbers(".index") + 2 == numbers(".log")
}
