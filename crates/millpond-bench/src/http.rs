//! Durable 202 over HTTP against what a handler without any log, or with a naive one, does.
//!
//! Owns the cases and their ratios. Must never let contestants differ in anything but the server.

use crate::Plan;
use crate::child::Server;
use crate::connection::{self, Connection};
use crate::load::{self, Measured};
use crate::process::Process;
use crate::report::{Budget, Table};
use crate::serve::Role;
use anyhow::Result;
use std::fmt::Write as _;
use tokio::runtime::Runtime;

const BODY_BYTES: usize = 1024;
/// Messages per request in the batched case.
const BATCH: usize = 100;

/// Every case of this benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Table>> {
    // One thread: the load generator wakes nobody, and the server has the rest of the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tables = Vec::new();
    for connections in [64, 256] {
        let case = format!("http: {connections} connections, {BODY_BYTES} B");
        if !plan.wants(&case) {
            continue;
        }
        let mut table = Table::new(case);
        for _ in 0..plan.rounds {
            let [millpond, bare, appender] = [Role::Millpond, Role::Bare, Role::Appender]
                .map(|role| single(plan, &runtime, role, connections, &mut table));
            let (millpond, bare, appender) = (millpond?, bare?, appender?);
            table.ratio(
                "millpond / bare with naive log, k/s",
                millpond.per_second / appender.per_second,
                Budget::AtLeast(1.0),
            );
            table.ratio("millpond / bare, k/s", millpond.per_second / bare.per_second, Budget::Aim(0.75));
            table.ratio(
                "millpond / bare with naive log, server CPU per message",
                millpond.cpu_us[0] / appender.cpu_us[0],
                Budget::None,
            );
        }
        tables.push(table);
    }
    let case = format!("http: batches of {BATCH} x {BODY_BYTES} B, 16 connections");
    if plan.wants(&case) {
        let mut table = Table::new(case);
        for _ in 0..plan.rounds {
            let measured = batches(plan, &runtime, 16)?;
            note(&mut table, "millpond", &measured);
            table.ratio("millpond, k/s", measured.per_second / 1000.0, Budget::AtLeast(100.0));
        }
        tables.push(table);
    }
    Ok(tables)
}

fn single(
    plan: &Plan,
    runtime: &Runtime,
    role: Role,
    connections: usize,
    table: &mut Table,
) -> Result<Measured> {
    let directory = plan.data_directory()?;
    let server = Server::start(role, &directory.path().join("data"), None)?;
    let measured = runtime.block_on(async {
        let connections = connection::producers(server.address, connections, BODY_BYTES).await?;
        load::closed_loop(connections, plan.duration(), &[server.process(), Process::this()]).await
    })?;
    let row = match role {
        Role::Millpond => "millpond",
        Role::Bare => "bare",
        Role::Appender => "bare with naive log",
    };
    note(table, row, &measured);
    Ok(measured)
}

fn batches(plan: &Plan, runtime: &Runtime, connections: usize) -> Result<Measured> {
    let directory = plan.data_directory()?;
    let server = Server::start(Role::Millpond, &directory.path().join("data"), None)?;
    let path = format!("{}/batch", crate::serve::PATH);
    let body = batch();
    runtime.block_on(async {
        let mut opened = Vec::new();
        for _ in 0..connections {
            let expected = (200, BATCH as u64);
            let connection =
                Connection::post(server.address, &path, "application/json", body.as_bytes(), expected)
                    .await?;
            opened.push(connection);
        }
        load::closed_loop(opened, plan.duration(), &[server.process(), Process::this()]).await
    })
}

/// A batch of messages of random letters.
fn batch() -> String {
    let mut batch = String::from("[");
    for place in 0..BATCH {
        let body: String = std::iter::repeat_with(fastrand::alphanumeric).take(BODY_BYTES).collect();
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(batch, r#"{comma}{{"body":"{body}"}}"#);
    }
    batch.push(']');
    batch
}

fn note(table: &mut Table, row: &str, measured: &Measured) {
    table.note(row, "k/s", measured.per_second / 1000.0);
    table.note(row, "p50 ms", measured.p50_ms);
    table.note(row, "p99 ms", measured.p99_ms);
    table.note(row, "server CPU us/msg", measured.cpu_us[0]);
    table.note(row, "client CPU us/msg", measured.cpu_us[1]);
    table.note(row, "others' cores", measured.others_cores);
}
