//! How long a restart takes with very many messages waiting, and what they cost at rest.
//!
//! Owns the filling, the two ways to end (a stop, a kill) and the measuring, each in a process of its own. Must never
//! measure in a process that has filled: its memory would count.

use crate::Plan;
use crate::engine::{Producer, open, queue};
use crate::process::Process;
use crate::report::{Budget, Table};
use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use millpond_engine::codec::decode;
use millpond_journal::{LocalStorage, Options};
use rustix::fs::{Advice, fadvise};
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const BODY_BYTES: usize = 200;
const FILL_BATCH: usize = 1000;
const FILLERS: usize = 4;

/// What a process of this benchmark does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Enqueues; says so when all is durable; stops when standard input ends.
    Fill,
    /// Opens the journal and ignores what it replays.
    Journal,
    /// The same, decoding it.
    Decode,
    /// Opens the engine.
    Engine,
}

/// Every case: stopped and killed, `waiting` messages.
pub(crate) fn run(plan: &Plan, waiting: usize, cold: bool) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for killed in [false, true] {
        let how = if killed { "killed" } else { "stopped" };
        let case = format!("restart: {waiting} waiting, {how}{}", if cold { ", cold" } else { "" });
        if !plan.wants(&case) {
            continue;
        }
        let mut table = Table::new(case);
        let directory = plan.data_directory()?;
        fill_and_end(directory.path(), waiting, killed)?;
        table.note("at rest", "disk B/msg", disk_bytes(directory.path())? as f64 / waiting as f64);
        for _ in 0..plan.rounds {
            // The engine first: it is the one that finds what the end has left.
            let mut seconds = Vec::new();
            for step in [Step::Engine, Step::Journal, Step::Decode] {
                if cold {
                    forget_pages(directory.path())?;
                }
                let (took, cpu, resident) = measure(directory.path(), step)?;
                let row = format!("{step:?}").to_lowercase();
                table.note(&row, "s", took);
                table.note(&row, "CPU s", cpu);
                table.note(&row, "RSS MB", resident / 1e6);
                table.note(&row, "RSS B/msg", resident / waiting as f64);
                seconds.push(took);
            }
            let budget = Budget::AtMost(5.0 * waiting as f64 / 1e7);
            table.ratio("engine ready, s", seconds[0], budget);
            table.ratio("of it the journal", seconds[1] / seconds[0], Budget::None);
            table.ratio("of it decoding", (seconds[2] - seconds[1]) / seconds[0], Budget::None);
        }
        tables.push(table);
    }
    Ok(tables)
}

fn child(directory: &Path, step: Step, waiting: usize) -> Result<(Child, String)> {
    let step = step.to_possible_value().context("every step has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("restart-step").arg(step.get_name()).arg(directory).arg(waiting.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("standard output is piped")?).read_line(&mut line)?;
    Ok((child, line))
}

fn fill_and_end(directory: &Path, waiting: usize, killed: bool) -> Result<()> {
    let (mut child, line) = child(directory, Step::Fill, waiting)?;
    if killed || line.is_empty() {
        child.kill()?;
    }
    drop(child.stdin.take());
    let status = child.wait()?;
    ensure!(!line.is_empty() && (killed || status.success()), "filling failed; see its errors above");
    Ok(())
}

/// Seconds, seconds of CPU, and bytes of resident memory.
fn measure(directory: &Path, step: Step) -> Result<(f64, f64, f64)> {
    let (mut child, line) = child(directory, step, 0)?;
    // Ended hard, so that every round finds the same directory.
    child.kill()?;
    child.wait()?;
    let mut numbers = line.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().context("a step said no figure; see its errors above");
    Ok((next()??, next()??, next()??))
}

fn disk_bytes(directory: &Path) -> Result<u64> {
    let files = std::fs::read_dir(directory.join("data"))?;
    files.map(|file| Ok(file?.metadata()?.len())).sum()
}

/// The operating system's cache of the directory's files is given up, so that they are read from the disk.
fn forget_pages(directory: &Path) -> Result<()> {
    for file in std::fs::read_dir(directory.join("data"))? {
        let file = std::fs::File::open(file?.path())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// One step, in a process of its own.
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
pub(crate) fn step(step: Step, directory: &Path, waiting: usize) -> Result<()> {
    let runtime = Runtime::new()?;
    let before = Instant::now();
    let kept = match step {
        Step::Fill => {
            let (engine, handle) = open(directory)?;
            runtime.block_on(fill(&handle, waiting))?;
            Some(engine)
        }
        Step::Engine => {
            let (engine, handle) = open(directory)?;
            runtime.block_on(handle.queue(queue()))?;
            Some(engine)
        }
        Step::Journal | Step::Decode => {
            open_journal(directory, step == Step::Decode)?;
            None
        }
    };
    let this = Process::this();
    println!("{} {} {}", before.elapsed().as_secs_f64(), this.cpu_seconds()?, this.resident_bytes()?);
    let mut end = Vec::new();
    std::io::stdin().read_to_end(&mut end)?;
    if let Some(engine) = kept {
        engine.stop();
    }
    Ok(())
}

async fn fill(handle: &millpond_engine::Handle, waiting: usize) -> Result<()> {
    let mut fillers = JoinSet::new();
    for _ in 0..FILLERS {
        let producer = Producer::new(handle.clone(), BODY_BYTES, FILL_BATCH);
        fillers.spawn(async move {
            for _ in 0..waiting.div_ceil(FILLERS * FILL_BATCH) {
                producer.enqueue().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(filled) = fillers.join_next().await {
        filled.context("a producer panicked")??;
    }
    // Nothing is pending, and what is complete has its index.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

fn open_journal(directory: &Path, decoding: bool) -> Result<()> {
    let storage = Arc::new(LocalStorage::open(&directory.join("data"))?);
    let mut undecoded = 0;
    let opened = millpond_journal::open(storage, Options::default(), [0; 32], &mut |replayed| {
        if decoding && decode(replayed.head).is_err() {
            undecoded += 1;
        }
        ControlFlow::Continue(())
    })?;
    ensure!(undecoded == 0, "{undecoded} records cannot be decoded");
    // Dropped only after the figures were said.
    std::mem::forget(opened);
    Ok(())
}
