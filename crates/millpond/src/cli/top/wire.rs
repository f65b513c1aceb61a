//! What is asked of the server, and in which shape it is kept.
//!
//! Owns the requests for a picture. Must never take a server for broken because it knows less.

use millpond_api::client::{Client, ClientError, DeadPage, Page};
use millpond_api::types::{MessageStatus, Queue};
use serde::Deserialize;

/// Dead letters and failing messages in a queue's detail.
const LETTERS: u32 = 20;

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) queues: Vec<Queue>,
    pub(super) targets: Vec<Target>,
}

/// What went wrong in one queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Troubles {
    /// Those that are tried again.
    pub(super) failing: Vec<MessageStatus>,
    pub(super) dead: Vec<MessageStatus>,
}

/// A target. What a server does not tell has its default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) concurrency: u64,
    pub(super) limit: u64,
    pub(super) inflight: u64,
    pub(super) state: String,
    pub(super) state_seconds: f64,
    pub(super) paused_seconds: f64,
    pub(super) next_probe_seconds: Option<f64>,
    pub(super) rate_per_second: Option<f64>,
    pub(super) failures_in_row: u64,
    pub(super) queues: Vec<String>,
}

#[derive(Deserialize)]
struct Targets {
    #[serde(default)]
    targets: Vec<Target>,
}

/// Looks at everything. A server that tells nothing of its targets has none to show.
pub(super) async fn snapshot(client: &Client) -> Result<Snapshot, ClientError> {
    let queues = client.queues().await?.queues;
    let targets = match client.fetch::<Targets>(&["targets"]).await {
        Ok(Targets { targets }) => targets,
        Err(error) if error.is_unreachable() => return Err(error),
        Err(_) => Vec::new(),
    };
    Ok(Snapshot { queues, targets })
}

/// Looks at what went wrong in a queue.
pub(super) async fn troubles(client: &Client, queue: &str) -> Result<Troubles, ClientError> {
    let failing = Page { state: Some("backoff".to_owned()), limit: Some(LETTERS), ..Page::default() };
    let dead = DeadPage { limit: Some(LETTERS), ..DeadPage::default() };
    Ok(Troubles {
        failing: client.messages(queue, &failing).await?.messages,
        dead: client.dead_letters(queue, &dead).await?.messages,
    })
}
