//! The engine in process: enqueues against the bare disk, and the whole life of a message.
//!
//! Owns the producers and consumers. Must never look inside the engine: what it tells of its log is enough.

use crate::Plan;
use crate::disk::{self, Ground};
use crate::load::{self, Measured, Worker};
use crate::process::Process;
use crate::report::{Budget, Table};
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use millpond_core::command::{Declared, LeaseRequest, NewMessage, SettleOutcome, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::Content;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Engine, EngineOptions, Handle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const CONSUMERS: usize = 4;
const LEASE_BATCH: usize = 32;

/// The queue that every benchmark uses.
pub(crate) fn queue() -> Name {
    Name::new("bench").expect("a valid name")
}

/// A message that cannot be compressed.
pub(crate) fn message(body_bytes: usize) -> NewMessage {
    let mut body = vec![0; body_bytes];
    fastrand::fill(&mut body);
    let content = Content { body: Bytes::from(body), ..Content::default() };
    NewMessage { content: Arc::new(content), ..NewMessage::default() }
}

/// An engine with one queue; it stops when dropped.
pub(crate) fn open(directory: &std::path::Path) -> Result<(Engine, Handle)> {
    let settings = QueueSettings { max_bytes: 1 << 40, prefetch: 1000, ..QueueSettings::default() };
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
    let (engine, handle, _calls) = Engine::open(EngineOptions::new(directory.join("data"), declared))?;
    Ok((engine, handle))
}

/// Enqueues a batch and waits until it is durable.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    pub(crate) handle: Handle,
    pub(crate) queue: Name,
    pub(crate) batch: Vec<NewMessage>,
}

impl Producer {
    pub(crate) fn new(handle: Handle, body_bytes: usize, batch: usize) -> Self {
        Self { handle, queue: queue(), batch: vec![message(body_bytes); batch] }
    }

    /// The numbers given.
    pub(crate) async fn enqueue(&self) -> Result<Vec<Seq>> {
        let answers = self.handle.enqueue(self.queue.clone(), self.batch.clone()).await?;
        Ok(answers.into_iter().map(|answer| answer.map(|accepted| accepted.seq)).collect::<Result<_, _>>()?)
    }
}

impl Worker for Producer {
    async fn once(&mut self) -> Result<u64> {
        Ok(self.enqueue().await?.len() as u64)
    }
}

/// Every case of this benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Table>> {
    let runtime = Runtime::new()?;
    let mut tables = Vec::new();
    for (producers, body_bytes, budget) in
        [(64, 1024, 0.7), (64, 200, 0.7), (1024, 1024, 0.5), (1024, 200, 0.5)]
    {
        let case = format!("engine: {producers} producers, {body_bytes} B");
        if !plan.wants(&case) {
            continue;
        }
        let mut table = Table::new(case);
        enqueue_rounds(plan, &runtime, (producers, body_bytes), budget, &mut table)?;
        for _ in 0..plan.rounds {
            life_round(plan, &runtime, producers, body_bytes, &mut table)?;
        }
        tables.push(table);
    }
    Ok(tables)
}

/// One engine for all rounds: between them it is idle while the bare disk is measured, so that short rounds can
/// alternate often and see the same disk.
fn enqueue_rounds(
    plan: &Plan,
    runtime: &Runtime,
    (producers, body_bytes): (usize, usize),
    budget: f64,
    table: &mut Table,
) -> Result<()> {
    let directory = plan.data_directory()?;
    let (engine, handle) = open(directory.path())?;
    for _ in 0..plan.rounds {
        let workers = vec![Producer::new(handle.clone(), body_bytes, 1); producers];
        let before = handle.journal();
        let measured = runtime.block_on(load::closed_loop(workers, plan.duration(), &[Process::this()]))?;
        let journal = handle.journal();
        let groups = (journal.groups - before.groups) as f64;
        let group_records = measured.total as f64 / groups;
        // Enqueues alone: everything in the log is live.
        let group_bytes = ((journal.live_bytes - before.live_bytes) as f64 / groups).ceil();
        note(table, "enqueue", &measured);
        table.note("enqueue", "records/group", group_records);
        table.note("enqueue", "KiB/group", group_bytes / 1024.0);
        for (ground, row, ratio, budget) in [
            (
                Ground::ZeroFilled,
                "raw, zero-filled",
                "enqueue / raw on a zero-filled file",
                Budget::AtLeast(budget),
            ),
            (Ground::Growing, "raw, growing", "enqueue / raw on a growing file", Budget::None),
        ] {
            let bytes = whole_sectors(group_bytes);
            let groups = disk::groups_per_second(directory.path(), ground, bytes, plan.duration() / 2)?;
            table.note(row, "k/s", groups * group_records / 1000.0);
            table.ratio(ratio, measured.per_second / (groups * group_records), budget);
        }
    }
    engine.stop();
    Ok(())
}

/// Groups take whole sectors of 4 KiB in the log, so they do in the reference.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a group has at most some MiB")]
fn whole_sectors(bytes: f64) -> usize {
    (bytes as usize).next_multiple_of(4096)
}

fn note(table: &mut Table, row: &str, measured: &Measured) {
    table.note(row, "k/s", measured.per_second / 1000.0);
    table.note(row, "p50 ms", measured.p50_ms);
    table.note(row, "p99 ms", measured.p99_ms);
    table.note(row, "CPU us/msg", measured.cpu_us[0]);
    table.note(row, "others' cores", measured.others_cores);
}

/// What producers and consumers of a whole life share.
#[derive(Debug, Default)]
struct Progress {
    enqueued: AtomicU64,
    settled: AtomicU64,
}

fn life_round(
    plan: &Plan,
    runtime: &Runtime,
    producers: usize,
    body_bytes: usize,
    table: &mut Table,
) -> Result<()> {
    let directory = plan.data_directory()?;
    let (engine, handle) = open(directory.path())?;
    let (elapsed, messages, cpu_seconds) =
        runtime.block_on(life(&handle, producers, body_bytes, plan.duration()))?;
    engine.stop();
    table.note("whole life", "k/s", messages as f64 / elapsed.as_secs_f64() / 1000.0);
    table.note("whole life", "CPU us/msg", cpu_seconds * 1e6 / messages as f64);
    Ok(())
}

/// Enqueues for `duration` while consumers lease and settle, until everything is settled. How long it took, for how
/// many messages, and the CPU it cost in seconds.
async fn life(
    handle: &Handle,
    producers: usize,
    body_bytes: usize,
    duration: Duration,
) -> Result<(Duration, u64, f64)> {
    let progress = Arc::new(Progress::default());
    let (began, cpu_seconds) = (Instant::now(), Process::this().cpu_seconds()?);
    let deadline = began + duration;
    let (mut producing, mut consuming) = (JoinSet::new(), JoinSet::new());
    for _ in 0..producers {
        let (producer, progress) = (Producer::new(handle.clone(), body_bytes, 1), Arc::clone(&progress));
        producing.spawn(async move {
            while Instant::now() < deadline {
                progress.enqueued.fetch_add(1, Ordering::Relaxed);
                producer.enqueue().await?;
            }
            anyhow::Ok(())
        });
    }
    for _ in 0..CONSUMERS {
        consuming.spawn(consume(handle.clone(), Arc::clone(&progress), deadline));
    }
    while let Some(result) = producing.join_next().await {
        result.context("a producer panicked")??;
    }
    let mut ended = began;
    while let Some(result) = consuming.join_next().await {
        ended = ended.max(result.context("a consumer panicked")??);
    }
    let messages = progress.settled.load(Ordering::Relaxed);
    Ok((ended - began, messages, Process::this().cpu_seconds()? - cpu_seconds))
}

/// Leases and settles until everything enqueued is settled; when the last settlement was.
async fn consume(handle: Handle, progress: Arc<Progress>, deadline: Instant) -> Result<Instant> {
    let mut ended = Instant::now();
    loop {
        let count = lease_and_settle(&handle, LEASE_BATCH).await?;
        if count > 0 {
            ended = Instant::now();
        }
        let settled = progress.settled.fetch_add(count, Ordering::Relaxed) + count;
        if Instant::now() > deadline && settled >= progress.enqueued.load(Ordering::Relaxed) {
            return Ok(ended);
        }
    }
}

/// Takes up to `max` messages and completes them; how many.
pub(crate) async fn lease_and_settle(handle: &Handle, max: usize) -> Result<u64> {
    let request =
        LeaseRequest { queue: queue(), max, lease: None, wait: Duration::from_millis(20), consumer: None };
    let deliveries = handle.lease(request).await?;
    if deliveries.is_empty() {
        return Ok(0);
    }
    let settlements = deliveries.iter().map(|delivery| Settlement {
        receipt: delivery.leased.receipt,
        outcome: SettleOutcome::Complete { result: None },
    });
    for answer in handle.settle(settlements.collect()).await? {
        if let Err(error) = answer {
            bail!("a settlement was refused: {error}");
        }
    }
    Ok(deliveries.len() as u64)
}
