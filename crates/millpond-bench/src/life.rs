//! The whole life of a message over HTTP, in CPU, against two bare exchanges.
//!
//! Owns the definition of the two exchanges: what it costs a server to take a request, and a client to make one.
//! Must never count the CPU of callers or targets as the server's.

use crate::Plan;
use crate::child::Server;
use crate::connection::{self, Connection};
use crate::load::{self, Worker};
use crate::process::Process;
use crate::report::{Budget, Table};
use crate::serve::{PATH, PUSH_CONCURRENCY, Role};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BODY_BYTES: usize = 1024;
const CONNECTIONS: usize = 64;
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Every case of this benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Table>> {
    let generator = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The runtime that a server has.
    let client = Runtime::new()?;
    let mut table = Table::new(format!("life: {CONNECTIONS} connections, {BODY_BYTES} B, push"));
    for _ in 0..plan.rounds {
        let life = generator.block_on(life(plan, &mut table))?;
        let bare = generator.block_on(bare_server(plan, &mut table))?;
        let posts = client.block_on(bare_client(plan, &mut table))?;
        table.ratio("CPU of a life / two bare exchanges", life / (bare + posts), Budget::AtMost(2.5));
    }
    Ok(vec![table])
}

/// CPU per message of Millpond, from the first enqueue until everything is settled.
async fn life(plan: &Plan, table: &mut Table) -> Result<f64> {
    let directory = plan.data_directory()?;
    let target = Server::start(Role::Bare, &directory.path().join("unused"), None)?;
    let server = Server::start(Role::Millpond, &directory.path().join("data"), Some(target.address))?;
    let connections = connection::producers(server.address, CONNECTIONS, BODY_BYTES).await?;
    let (began, before) = (Instant::now(), server.process().cpu_seconds()?);
    let measured = load::closed_loop(connections, plan.duration(), &[]).await?;
    let mut stats = Connection::get(server.address, "/v1/queues/bench/stats").await?;
    let mut left = u64::MAX;
    while left > 0 {
        tokio::time::sleep(POLL_EVERY).await;
        let body = stats.exchange().await?;
        let stats: serde_json::Value = serde_json::from_slice(body)?;
        let completed = stats["completed_total"].as_u64().context("completed_total is missing")?;
        ensure!(stats["backoff"] == 0 && stats["dead"] == 0, "a push failed: {stats}");
        left = measured.total - completed;
    }
    let cpu = (server.process().cpu_seconds()? - before) * 1e6 / measured.total as f64;
    table.note("millpond, whole life", "k/s", measured.total as f64 / began.elapsed().as_secs_f64() / 1000.0);
    table.note("millpond, whole life", "CPU us/msg", cpu);
    Ok(cpu)
}

/// CPU per request of a handler that reads the body and answers 202.
async fn bare_server(plan: &Plan, table: &mut Table) -> Result<f64> {
    let directory = plan.data_directory()?;
    let server = Server::start(Role::Bare, &directory.path().join("unused"), None)?;
    let connections = connection::producers(server.address, CONNECTIONS, BODY_BYTES).await?;
    let measured = load::closed_loop(connections, plan.duration() / 2, &[server.process()]).await?;
    table.note("bare server", "k/s", measured.per_second / 1000.0);
    table.note("bare server", "CPU us/msg", measured.cpu_us[0]);
    Ok(measured.cpu_us[0])
}

/// CPU per request of a client that posts and reads the answer.
async fn bare_client(plan: &Plan, table: &mut Table) -> Result<f64> {
    let directory = plan.data_directory()?;
    let server = Server::start(Role::Bare, &directory.path().join("unused"), None)?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let uri = Uri::try_from(format!("http://{}{PATH}", server.address))?;
    let mut body = vec![0; BODY_BYTES];
    fastrand::fill(&mut body);
    let poster = Poster { client, uri, body: Bytes::from(body) };
    let posters = vec![poster; usize::try_from(PUSH_CONCURRENCY)?];
    let measured = load::closed_loop(posters, plan.duration() / 2, &[Process::this()]).await?;
    table.note("bare client", "k/s", measured.per_second / 1000.0);
    table.note("bare client", "CPU us/msg", measured.cpu_us[0]);
    Ok(measured.cpu_us[0])
}

/// Posts over a pool of connections.
#[derive(Debug, Clone)]
struct Poster {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    body: Bytes,
}

impl Worker for Poster {
    async fn once(&mut self) -> Result<u64> {
        let request = Request::post(self.uri.clone())
            .header("content-type", "application/octet-stream")
            .body(Full::new(self.body.clone()))?;
        let response = self.client.request(request).await?;
        ensure!(response.status() == 202, "the target answered {}", response.status());
        response.into_body().collect().await?;
        Ok(1)
    }
}
