//! The state machine alone, without log and threads: what a message costs it in time and memory, and whether that
//! depends on how many wait, or on how many groups and tenants they belong to.
//!
//! Owns the ponds of different depth and shape. Must never touch a disk: time is virtual, durability immediate, and
//! CPU time is that of this thread.

use crate::Plan;
use crate::process::{Process, thread_cpu_seconds};
use crate::report::{Budget, Table};
use anyhow::{Context as _, Result, ensure};
use millpond_core::command::{
    Command, Declared, Effect, Input, LeaseRequest, Leased, NewMessage, Reply, RequestId, SettleOutcome,
    Settlement,
};
use millpond_core::identity::Seq;
use millpond_core::name::{Label, Name};
use millpond_core::pond::Pond as Machine;
use millpond_core::settings::QueueSettings;
use millpond_core::time::{Mono, Now, Wall};
use std::time::Duration;

const BODY_BYTES: usize = 200;
const BATCH: usize = 100;
/// Few enough to count as none, and as many as are taken at once.
const FEW: usize = BATCH;
/// Operations per measurement.
const OPERATIONS: usize = 100_000;

/// Messages waiting where groups and tenants are compared.
const SHAPED: usize = 200_000;
/// Time between two inputs.
const ASK: Duration = Duration::from_micros(100);
/// Messages delayed to one moment.
const DELAYED: usize = 1_000_000;

/// What messages have in common with others.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Plain,
    Groups(usize),
    Tenants(usize),
}

/// A pond on virtual time.
struct Pond {
    machine: Machine,
    now: Now,
    asked: u64,
    emitted: Option<millpond_core::command::OpNumber>,
    message: NewMessage,
    shape: Shape,
    labels: Vec<Label>,
    next: usize,
    /// The number of the latest message.
    latest: u64,
}

impl Pond {
    fn new(shape: Shape) -> Result<Self> {
        let settings = QueueSettings {
            max_bytes: 1 << 50,
            prefetch: 1000,
            result_retention: Duration::ZERO,
            retention: Duration::from_hours(96),
            ..QueueSettings::default()
        };
        let declared = Declared { targets: Vec::new(), queues: vec![(queue(), settings)] };
        let now = Now { wall: Wall(1_800_000_000_000_000), mono: Mono(0) };
        let (Shape::Groups(count) | Shape::Tenants(count)) = shape else {
            return Ok(Self::with(Machine::new(1), declared, now, shape, Vec::new()));
        };
        let labels: Vec<Label> =
            (0..count).map(|number| Label::new(&format!("label-{number}"))).collect::<Result<_, _>>()?;
        Ok(Self::with(Machine::new(1), declared, now, shape, labels))
    }

    fn with(mut machine: Machine, declared: Declared, now: Now, shape: Shape, labels: Vec<Label>) -> Self {
        machine.open(declared, now);
        let message = crate::engine::message(BODY_BYTES);
        let mut pond =
            Self { machine, now, asked: 0, emitted: None, message, shape, labels, next: 0, latest: 0 };
        pond.settle_down();
        pond
    }

    /// Makes everything durable, and returns the last reply.
    fn settle_down(&mut self) -> Option<Reply> {
        let mut last = None;
        loop {
            for effect in self.machine.effects() {
                match effect {
                    Effect::Append { op, .. } => self.emitted = Some(op),
                    Effect::Reply { reply, .. } => last = Some(reply),
                    _ => {}
                }
            }
            let Some(op) = self.emitted.take() else { return last };
            self.machine.handle(Input::Durable(op), self.now);
        }
    }

    fn ask(&mut self, command: Command) -> Option<Reply> {
        self.asked += 1;
        self.now = Now { wall: self.now.wall.plus(ASK), mono: self.now.mono.plus(ASK) };
        self.machine.handle(Input::Command { request: RequestId(self.asked), command }, self.now);
        self.settle_down()
    }

    fn new_message(&mut self) -> NewMessage {
        let mut message = self.message.clone();
        if !self.labels.is_empty() {
            let label = self.labels[self.next % self.labels.len()].clone();
            self.next += 1;
            match self.shape {
                Shape::Plain => {}
                Shape::Groups(_) => message.group = Some(label),
                Shape::Tenants(_) => message.tenant = Some(label),
            }
        }
        message
    }

    fn enqueue(&mut self, count: usize) -> Result<()> {
        let messages = (0..count).map(|_| self.new_message()).collect();
        let reply = self.ask(Command::Enqueue { queue: queue(), messages });
        let Some(Reply::Enqueued(Ok(answers))) = reply else { anyhow::bail!("no answer to an enqueue") };
        for answer in answers {
            self.latest = answer.context("an enqueue was refused")?.seq.0;
        }
        Ok(())
    }

    fn lease(&mut self, max: usize) -> Result<Vec<Leased>> {
        let wish = LeaseRequest { queue: queue(), max, lease: None, wait: Duration::ZERO, consumer: None };
        match self.ask(Command::Lease(wish)) {
            Some(Reply::Leased(Ok(leased))) => Ok(leased),
            _ => anyhow::bail!("no answer to a lease"),
        }
    }

    /// Takes up to `most` and completes them; how many.
    fn work_off(&mut self, most: usize) -> Result<usize> {
        let leased = self.lease(most)?;
        ensure!(!leased.is_empty(), "nothing was there to take");
        let count = leased.len();
        let outcome = |leased: Leased| Settlement {
            receipt: leased.receipt,
            outcome: SettleOutcome::Complete { result: None },
        };
        self.ask(Command::Settle(leased.into_iter().map(outcome).collect()));
        Ok(count)
    }

    fn lives(&mut self, batch: usize) -> Result<f64> {
        let began = thread_cpu_seconds();
        let mut done = 0;
        while done < OPERATIONS {
            self.enqueue(batch)?;
            done += self.work_off(batch)?;
        }
        Ok((thread_cpu_seconds() - began) * 1e9 / done as f64)
    }

    fn enqueues(&mut self, count: usize) -> Result<f64> {
        let began = thread_cpu_seconds();
        for _ in 0..count / BATCH {
            self.enqueue(BATCH)?;
        }
        Ok((thread_cpu_seconds() - began) * 1e9 / count as f64)
    }

    fn statuses(&mut self, first: u64, last: u64) -> Result<f64> {
        let began = thread_cpu_seconds();
        for _ in 0..OPERATIONS {
            let seq = Seq(fastrand::u64(first..=last));
            let reply = self.ask(Command::Status { seq, wait: None });
            ensure!(matches!(reply, Some(Reply::Status(Ok(_)))), "{seq:?} has no status");
        }
        Ok((thread_cpu_seconds() - began) * 1e9 / OPERATIONS as f64)
    }
}

fn queue() -> Name {
    crate::engine::queue()
}

/// Every case of this benchmark.
pub(crate) fn run(plan: &Plan, most: usize) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    if plan.wants("pond: depth") {
        tables.push(depth(plan, most)?);
    }
    if plan.wants("pond: shape") {
        tables.push(shapes(plan)?);
    }
    if plan.wants("pond: delays") {
        tables.push(delays(plan)?);
    }
    Ok(tables)
}

fn depth(plan: &Plan, most: usize) -> Result<Table> {
    let mut table = Table::new("pond: depth");
    for waiting in [FEW, most / 10, most] {
        let before = Process::this().memory_bytes()?;
        let mut pond = Pond::new(Shape::Plain)?;
        pond.enqueues(waiting)?;
        let row = format!("{waiting} waiting");
        let grown = Process::this().memory_bytes()?.saturating_sub(before);
        if waiting > FEW {
            table.note(&row, "bytes each", grown as f64 / waiting as f64);
        }
        for _ in 0..plan.rounds {
            let last = pond.latest;
            table.note(&row, "status ns", pond.statuses(last + 1 - FEW as u64, last)?);
            table.note(&row, "life ns", pond.lives(BATCH)?);
            table.note(&row, "enqueue ns", pond.enqueues(OPERATIONS)?);
            // As many as before.
            for _ in 0..OPERATIONS / BATCH {
                pond.work_off(BATCH)?;
            }
        }
    }
    for figure in ["status ns", "life ns", "enqueue ns"] {
        for waiting in [most / 10, most] {
            let few = table.median(&format!("{FEW} waiting"), figure).context("measured")?;
            let many = table.median(&format!("{waiting} waiting"), figure).context("measured")?;
            let name = format!("{}, {waiting} / {FEW} waiting", figure.trim_end_matches(" ns"));
            table.ratio(&name, many / few, Budget::AtMost(1.15));
        }
    }
    Ok(table)
}

fn shapes(plan: &Plan) -> Result<Table> {
    let mut table = Table::new("pond: shape");
    let shapes = [
        ("plain", Shape::Plain),
        ("1 group", Shape::Groups(1)),
        ("1000 groups", Shape::Groups(1000)),
        ("100000 groups", Shape::Groups(100_000)),
        ("1 tenant", Shape::Tenants(1)),
        ("1000 tenants", Shape::Tenants(1000)),
        ("100000 tenants", Shape::Tenants(100_000)),
    ];
    for (row, shape) in shapes {
        let before = Process::this().memory_bytes()?;
        let mut pond = Pond::new(shape)?;
        pond.enqueues(SHAPED)?;
        let grown = Process::this().memory_bytes()?.saturating_sub(before);
        table.note(row, "bytes each", grown as f64 / SHAPED as f64);
        for _ in 0..plan.rounds {
            // One at a time: more than one of a group never goes out.
            table.note(row, "life ns", pond.lives(1)?);
        }
    }
    for (row, _) in &shapes[1..] {
        let bare = table.median("plain", "life ns").context("measured")?;
        let other = table.median(row, "life ns").context("measured")?;
        table.ratio(&format!("life, {row} / plain"), other / bare, Budget::None);
    }
    Ok(table)
}

/// A million messages delayed to the same moment: what each costs, and the longest that one input takes on the way.
fn delays(plan: &Plan) -> Result<Table> {
    let mut table = Table::new("pond: delays");
    let row = "1000000 at once";
    for _ in 0..plan.rounds {
        let before = Process::this().memory_bytes()?;
        let mut pond = Pond::new(Shape::Plain)?;
        let due = pond.now.mono.plus(Duration::from_hours(24 * 3));
        let began = thread_cpu_seconds();
        for _ in 0..DELAYED / BATCH {
            let delay = due.since(pond.now.mono.plus(ASK));
            let message = NewMessage { delay, ttl: None, ..pond.message.clone() };
            let messages = vec![message; BATCH];
            let reply = pond.ask(Command::Enqueue { queue: queue(), messages });
            let Some(Reply::Enqueued(Ok(answers))) = reply else { anyhow::bail!("no answer to an enqueue") };
            ensure!(answers.iter().all(Result::is_ok), "a delayed message was refused");
        }
        table.note(row, "enqueue ns", (thread_cpu_seconds() - began) * 1e9 / DELAYED as f64);
        let grown = Process::this().memory_bytes()?.saturating_sub(before);
        table.note(row, "bytes each", grown as f64 / DELAYED as f64);
        let passed = due.since(pond.now.mono);
        pond.now = Now { wall: pond.now.wall.plus(passed), mono: due };
        let (began, mut longest, mut steps) = (thread_cpu_seconds(), 0.0_f64, 0_u32);
        while pond.machine.next_wakeup().is_some_and(|at| at <= due) {
            let step = thread_cpu_seconds();
            pond.machine.handle(Input::Tick, pond.now);
            pond.settle_down();
            longest = longest.max(thread_cpu_seconds() - step);
            steps += 1;
        }
        table.note(row, "promote ns", (thread_cpu_seconds() - began) * 1e9 / DELAYED as f64);
        table.note(row, "longest step us", longest * 1e6);
        table.note(row, "steps", f64::from(steps));
        ensure!(!pond.lease(1)?.is_empty(), "what was delayed is ready");
    }
    Ok(table)
}
