//! Whether the number of waiting messages matters.
//!
//! Owns the engines of different depth. Must never let the depth change while it measures.

use crate::Plan;
use crate::engine::{Producer, lease_and_settle, open};
use crate::load::{self, Worker};
use crate::process::Process;
use crate::report::{Budget, Table};
use anyhow::{Result, ensure};
use millpond_core::identity::Seq;
use millpond_engine::{Engine, Handle};
use tokio::runtime::Runtime;

const BODY_BYTES: usize = 200;
/// Messages that a worker enqueues, or takes and settles, at once.
const BATCH: usize = 32;
const WORKERS: usize = 8;
/// Waiting in the case called empty: enough that no worker finds nothing.
const FEW: usize = WORKERS * BATCH;
const FILL_BATCH: usize = 1000;

/// An engine with so many messages waiting.
struct Pond {
    waiting: usize,
    engine: Engine,
    handle: Handle,
    /// Some of those that wait last in line.
    waiting_last: Vec<Seq>,
    _directory: tempfile::TempDir,
}

/// Every case of this benchmark.
pub(crate) fn run(plan: &Plan, most: usize) -> Result<Vec<Table>> {
    let runtime = Runtime::new()?;
    let ponds: Vec<Pond> = [FEW, most / 10, most]
        .into_iter()
        .map(|waiting| fill(plan, &runtime, waiting))
        .collect::<Result<_>>()?;
    let mut tables = Vec::new();
    // The status first: lives take the oldest, and in the end those whose status is asked for.
    for operation in [Operation::Status, Operation::Life] {
        let mut table = Table::new(format!("depth: {operation:?}, CPU"));
        for _ in 0..plan.rounds {
            let mut few = f64::NAN;
            for pond in &ponds {
                let workers = workers(operation, pond);
                let processes = [Process::this()];
                let measured = runtime.block_on(load::closed_loop(workers, plan.duration(), &processes))?;
                let row = format!("{} waiting", pond.waiting);
                table.note(&row, "k/s", measured.per_second / 1000.0);
                table.note(&row, "CPU us", measured.cpu_us[0]);
                if pond.waiting == FEW {
                    few = measured.cpu_us[0];
                } else {
                    table.ratio(&format!("{row} / {FEW}"), measured.cpu_us[0] / few, Budget::AtMost(1.15));
                }
            }
        }
        tables.push(table);
    }
    for pond in ponds {
        pond.engine.stop();
    }
    Ok(tables)
}

fn fill(plan: &Plan, runtime: &Runtime, waiting: usize) -> Result<Pond> {
    let directory = plan.data_directory()?;
    let (engine, handle) = open(directory.path())?;
    let mut waiting_last = Vec::new();
    let mut left = waiting;
    while left > 0 {
        let batch = left.min(FILL_BATCH);
        waiting_last = runtime.block_on(Producer::new(handle.clone(), BODY_BYTES, batch).enqueue())?;
        left -= batch;
    }
    Ok(Pond { waiting, engine, handle, waiting_last, _directory: directory })
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Enqueue, hand out, settle.
    Life,
    /// The status of one message.
    Status,
}

fn workers(operation: Operation, pond: &Pond) -> Vec<Work> {
    let producer = Producer::new(pond.handle.clone(), BODY_BYTES, BATCH);
    let work = match operation {
        Operation::Life => Work::Life(producer),
        Operation::Status => Work::Status(pond.handle.clone(), pond.waiting_last.clone()),
    };
    vec![work; WORKERS]
}

/// What a worker does.
#[derive(Clone)]
enum Work {
    Life(Producer),
    Status(Handle, Vec<Seq>),
}

impl Worker for Work {
    async fn once(&mut self) -> Result<u64> {
        match self {
            Self::Life(producer) => {
                producer.enqueue().await?;
                let settled = lease_and_settle(&producer.handle, BATCH).await?;
                ensure!(settled == BATCH as u64, "only {settled} messages were there to take");
                Ok(settled)
            }
            Self::Status(handle, seqs) => {
                let seq = seqs[fastrand::usize(..seqs.len())];
                handle.status(seq, None).await?;
                Ok(1)
            }
        }
    }
}
