//! The servers of the HTTP benchmarks: Millpond, and what it is compared with.
//!
//! Owns what a child process serves. Must never measure.

use crate::appender::Appender;
use crate::engine::queue;
use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use clap::ValueEnum;
use millpond_config::{Configuration, Target};
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_server::{ServerOptions, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// The one path that is posted to.
pub(crate) const PATH: &str = "/v1/queues/bench/messages";
/// Calls under way at the target.
pub(crate) const PUSH_CONCURRENCY: u32 = 64;

/// What to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Millpond.
    Millpond,
    /// A handler that reads the body and answers 202.
    Bare,
    /// The same with a naive log in front of the answer.
    Appender,
}

/// Serves until standard input ends. Prints the address first.
pub(crate) fn run(role: Role, data: Option<PathBuf>, target: Option<SocketAddr>) -> Result<()> {
    let data = data.context("--data is missing")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (ended, parent) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Whatever comes, comes at the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        announce(listener.local_addr()?);
        let parent = async {
            let _ = parent.await;
        };
        match role {
            Role::Millpond => Ok(serve(options(data, target)?, listener, parent).await?),
            Role::Bare => bare(listener, parent).await,
            Role::Appender => appender(listener, Appender::start(&data)?, parent).await,
        }
    })
}

#[expect(clippy::print_stdout, reason = "the parent waits for this line")]
fn announce(address: SocketAddr) {
    println!("{address}");
}

async fn bare(listener: TcpListener, end: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let router = Router::new().route(PATH, post(async |_body: Bytes| StatusCode::ACCEPTED));
    Ok(axum::serve(listener, router).with_graceful_shutdown(end).await?)
}

async fn appender(
    listener: TcpListener,
    appender: Appender,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let handler = async |State(appender): State<Appender>, body: Bytes| {
        if appender.append(body).await { StatusCode::ACCEPTED } else { StatusCode::INTERNAL_SERVER_ERROR }
    };
    let router = Router::new().route(PATH, post(handler)).with_state(appender);
    Ok(axum::serve(listener, router).with_graceful_shutdown(end).await?)
}

fn options(data: PathBuf, target: Option<SocketAddr>) -> Result<ServerOptions> {
    let mut configuration = Configuration { data, ..Configuration::default() };
    let mut settings = QueueSettings { max_bytes: 1 << 40, prefetch: 1000, ..QueueSettings::default() };
    if let Some(address) = target {
        let name = Name::new("target").context("a valid name")?;
        let mut target = Target::new(format!("http://{address}{PATH}").parse()?);
        target.settings.concurrency = PUSH_CONCURRENCY;
        settings.target = Some(name.clone());
        configuration.targets.insert(name, target);
    }
    configuration.queues.insert(queue(), settings);
    Ok(ServerOptions { configuration, ..ServerOptions::default() })
}
