//! One command for one message: started, fed, watched and stopped.
//!
//! Owns the process and everything it starts. Must never wait for a pipe while another one is full, nor let the process
//! group outlive this.

use super::reaper::{Reaper, signal};
use super::verdict::{End, RESULT_BYTES_MAX, STDERR_BYTES_MAX, outcome};
use crate::cli::failure::tell;
use millpond_api::worker::{Message, Outcome};
use rustix::process::{Pid, Signal};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long what a command wrote is still read once it has ended: somebody who left its process group may hold the
/// pipe open for ever.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// What the environment may say of a message that has it, so that nothing is inherited from elsewhere.
const OPTIONAL: [&str; 5] =
    ["MILLPOND_EXPIRES_AT", "MILLPOND_TENANT", "MILLPOND_GROUP", "TRACEPARENT", "TRACESTATE"];

/// Whether running commands shall be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    /// They may go on.
    Not,
    /// With SIGTERM, and after the grace SIGKILL.
    InOrder,
    /// With SIGKILL.
    Now,
}

/// What is the same for all commands.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) queue: String,
    pub(super) command: Vec<OsString>,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) release_delay: Duration,
    pub(super) result_bytes_max: u64,
    pub(super) result_type: Option<String>,
    pub(super) reaper: Reaper,
    pub(super) stop: watch::Receiver<Stop>,
}

/// A process group that is killed with whoever holds this.
struct Group<'runner> {
    id: Pid,
    reaper: &'runner Reaper,
}

impl Drop for Group<'_> {
    /// What is left in the group when its command has ended, or is given up, ends too. A group's number is taken for
    /// another one only once nobody is left in it.
    fn drop(&mut self) {
        signal(self.id, Signal::KILL);
        self.reaper.ended(self.id);
    }
}

impl Runner {
    /// Runs the command for `message`.
    pub(super) async fn handle(self: Arc<Self>, message: Message) -> Outcome {
        let (end, stdout, stderr) = match self.spawn(&message) {
            Ok(child) => self.watch(child, &message).await,
            Err(error) => {
                tell(&format!("{} cannot start the command: {error}", message.id));
                (End::Unknown, Vec::new(), Vec::new())
            }
        };
        outcome(&end, stdout, &stderr, self.result_type.as_deref(), self.release_delay)
    }

    fn spawn(&self, message: &Message) -> std::io::Result<Child> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        for name in OPTIONAL {
            command.env_remove(name);
        }
        command.envs(environment(&self.queue, message));
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    /// Sees the command to its end; what it wrote comes back with it.
    async fn watch(&self, mut child: Child, message: &Message) -> (End, Vec<u8>, Vec<u8>) {
        let id =
            child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it was not waited for yet");
        self.reaper.begun(id);
        let group = Group { id, reaper: &self.reaper };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let result_bytes_max =
            usize::try_from(self.result_bytes_max.min(RESULT_BYTES_MAX)).unwrap_or(usize::MAX);
        let (mut out, mut errors) = (Vec::new(), VecDeque::new());
        let end = {
            // One byte more than is kept: so the server sees that something was cut, and marks it.
            let mut pipes = std::pin::pin!(async {
                tokio::join!(
                    feed(stdin, &message.body),
                    read_first(stdout, &mut out, result_bytes_max + 1),
                    read_last(stderr, &mut errors, STDERR_BYTES_MAX),
                );
            });
            let mut closed = false;
            let mut ended = std::pin::pin!(self.end(&mut child, id, message));
            let end = loop {
                tokio::select! {
                    end = &mut ended => break end,
                    () = &mut pipes, if !closed => closed = true,
                }
            };
            // Whoever is left in the group ends now, and with them the pipes.
            drop(group);
            if !closed {
                let _ = timeout(LEFTOVERS, pipes).await;
            }
            end
        };
        (end, out, errors.into())
    }

    /// Waits for the command's end, which may have to be brought about.
    async fn end(&self, child: &mut Child, id: Pid, message: &Message) -> End {
        let mut stop = self.stop.clone();
        let too_long = async {
            match self.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let (end, at_once) = tokio::select! {
            biased;
            status = child.wait() => return status.map_or(End::Unknown, End::Exited),
            stop = asked(&mut stop, Stop::InOrder) => (End::Stopped, stop == Stop::Now),
            () = message.lost() => (End::Stopped, false),
            () = too_long => (End::TimedOut(self.timeout.unwrap_or_default()), false),
        };
        if !at_once {
            signal(id, Signal::TERM);
            tokio::select! {
                _ = child.wait() => return end,
                _ = asked(&mut stop, Stop::Now) => {}
                () = tokio::time::sleep(self.grace) => {}
            }
        }
        signal(id, Signal::KILL);
        let _ = child.wait().await;
        end
    }
}

/// Waits until commands shall be stopped at least like this.
async fn asked(stop: &mut watch::Receiver<Stop>, least: Stop) -> Stop {
    let asked = stop.wait_for(|&stop| stop >= least).await.ok().map(|stop| *stop);
    match asked {
        Some(asked) => asked,
        // Nobody will say so any more.
        None => std::future::pending().await,
    }
}

/// What a command is told of its message.
fn environment(queue: &str, message: &Message) -> Vec<(&'static str, String)> {
    let header = |name: &str| message.headers.get(name).cloned();
    let always = [
        ("MILLPOND_MESSAGE_ID", message.id.clone()),
        ("MILLPOND_QUEUE", queue.to_owned()),
        ("MILLPOND_ATTEMPT", message.attempt.to_string()),
        ("MILLPOND_DELIVERIES", message.deliveries.to_string()),
        ("MILLPOND_CONTENT_TYPE", message.content_type.clone()),
        ("MILLPOND_CRITICALITY", message.criticality.clone()),
        ("MILLPOND_ACCEPTED_AT", message.accepted_at.clone()),
    ];
    let values = [
        message.expires_at.clone(),
        message.tenant.clone(),
        message.group.clone(),
        header("traceparent"),
        header("tracestate"),
    ];
    let optional = OPTIONAL.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
    always.into_iter().chain(optional).collect()
}

/// Writes the body. A command that does not read it to its end is within its rights.
async fn feed(stdin: Option<ChildStdin>, body: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(body).await;
    }
}

/// Reads to the end, and keeps the first `most` bytes.
async fn read_first(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, most: usize) {
    each_chunk(from, |chunk| kept.extend_from_slice(&chunk[..chunk.len().min(most - kept.len())])).await;
}

/// Reads to the end, and keeps some more than the last `most` bytes.
async fn read_last(from: Option<impl AsyncRead + Unpin>, kept: &mut VecDeque<u8>, most: usize) {
    each_chunk(from, |chunk| {
        kept.extend(chunk);
        // A line's beginning before what is kept tells that the line is whole.
        let excess = kept.len().saturating_sub(2 * most);
        kept.drain(..excess);
    })
    .await;
}

async fn each_chunk(from: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        take(&chunk[..count]);
    }
}
