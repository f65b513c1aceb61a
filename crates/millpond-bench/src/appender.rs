//! A naive group-commit log: what one would write in an afternoon to make a handler durable.
//!
//! Owns the reference for durable HTTP. Must never be clever: no preallocation, no checksums, no recovery.

use anyhow::Result;
use bytes::Bytes;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Most bodies in one group.
const GROUP_MAX: usize = 1024;

/// A body on its way to the file, and who waits for it.
type Waiting = (Bytes, oneshot::Sender<()>);

/// Appends bodies to a growing file; each caller waits for the sync.
#[derive(Debug, Clone)]
pub(crate) struct Appender {
    waiting: Sender<Waiting>,
}

impl Appender {
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let file = File::create_new(path)?;
        let (waiting, receiver) = channel();
        std::thread::Builder::new().name("appender".to_owned()).spawn(move || {
            // Callers see their sender go.
            let _ = append(file, &receiver);
        })?;
        Ok(Self { waiting })
    }

    /// Whether the body is durable.
    pub(crate) async fn append(&self, body: Bytes) -> bool {
        let (done, durable) = oneshot::channel();
        self.waiting.send((body, done)).is_ok() && durable.await.is_ok()
    }
}

fn append(mut file: File, receiver: &Receiver<Waiting>) -> Result<()> {
    let (mut group, mut askers) = (Vec::new(), Vec::new());
    while let Ok(first) = receiver.recv() {
        for (body, asker) in std::iter::once(first).chain(receiver.try_iter().take(GROUP_MAX - 1)) {
            group.extend_from_slice(&u32::try_from(body.len())?.to_le_bytes());
            group.extend_from_slice(&body);
            askers.push(asker);
        }
        file.write_all(&group)?;
        file.sync_data()?;
        group.clear();
        for asker in askers.drain(..) {
            // Who has left needs no answer.
            let _ = asker.send(());
        }
    }
    Ok(())
}
