//! Starting and stopping a server.
//!
//! Owns the order in which its parts start and end. Must never return before the engine has written what it holds.

use crate::alerts::{self, Board};
use crate::answers::Answers;
use crate::bodies::Bodies;
use crate::connections::{Closing, Connections};
use crate::cors::Cors;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::push::driver::Driver;
use crate::router::router;
use crate::routes::Routes;
use crate::shared::{ResultLimits, Shared};
use millpond_config::{Configuration, ExposureError, check_exposure, is_reserved_header};
use millpond_core::command::Declared;
use millpond_core::name::Name;
use millpond_engine::engine::{Engine, EngineOptions, OpenError};
use millpond_engine::handle::{Calls, Handle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a server is made from.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The operator's decisions.
    pub configuration: Configuration,
    /// Whether to serve other machines without authentication.
    pub insecure: bool,
    /// The bounds of the front door.
    pub limits: Limits,
    /// Size of the journal's segments; `None`: the engine's default. Small ones suit small disks and tests.
    pub segment_bytes: Option<u32>,
}

/// Why a server did not start, or stopped on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines could reach it, and nobody has said that they may.
    #[error(transparent)]
    Exposure(#[from] ExposureError),
    /// A configured header would disturb the calls.
    #[error(
        "targets.{target}.headers: {header} cannot be set: it belongs to the connection, or says something about the message; remove it"
    )]
    Header {
        /// The target.
        target: Name,
        /// The header.
        header: String,
    },
    /// Two routes take the same requests.
    #[error("routes: {0}")]
    Route(#[source] matchit::InsertError),
    /// The engine could not start.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The listener cannot be used.
    #[error("the listener has no address: {0}")]
    Listener(#[source] std::io::Error),
    /// The engine has stopped while it was serving.
    #[error("the engine has stopped on its own: {0}")]
    Engine(String),
}

/// Opens the engine and serves it on `listener` until `shutdown` is ready; then stops in order: no new work, running
/// push calls finish or are given back, connections end, and the engine stops last.
///
/// # Errors
/// See [`ServeError`]. A graceful end is `Ok`.
///
/// # Panics
/// If opening or stopping the engine panics, which is a fault of ours.
pub async fn serve(
    options: ServerOptions,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ServerOptions { configuration, insecure, limits, segment_bytes } = options;
    let address = listener.local_addr().map_err(ServeError::Listener)?;
    check_exposure(address, insecure)?;
    check_headers(&configuration)?;
    let routes = Routes::new(&configuration.routes).map_err(ServeError::Route)?;
    let mut engine_options = EngineOptions::new(configuration.data.clone(), declared(&configuration));
    engine_options.segment_bytes = segment_bytes.unwrap_or(engine_options.segment_bytes);
    let (mut engine, handle, calls) = tokio::task::spawn_blocking(move || Engine::open(engine_options))
        .await
        .expect("opening the engine does not panic")?;
    let is_loopback = address.ip().to_canonical().is_loopback();
    let shared = Arc::new(Shared {
        result_limits: result_limits(&handle).await,
        handle,
        max_body_bytes: configuration.max_body_bytes,
        bodies: Bodies::new(&limits, configuration.max_body_bytes),
        base_url: configuration.external_url.clone().unwrap_or_default(),
        needs_token: !is_loopback,
        routes,
        cors: configuration.cors.as_ref().map(Cors::new),
        answers: Answers::default(),
        alerts: Board::new(configuration.alerts.clone(), Vec::new()),
        guard: Guard::new(&configuration.allowed_hosts, is_loopback),
        limits,
        draining: AtomicBool::new(false),
    });
    let server = Server::start(shared, &configuration, listener, calls);
    tracing::info!(%address, queues = configuration.queues.len(), targets = configuration.targets.len(), "serving");
    let failure = tokio::select! {
        () = shutdown => None,
        reason = engine.failure() => Some(reason),
    };
    tracing::info!("shutting down: no new work from now on");
    server.stop(failure.is_none()).await;
    tokio::task::spawn_blocking(move || engine.stop()).await.expect("stopping the engine does not panic");
    tracing::info!("stopped");
    failure.map_or(Ok(()), |reason| Err(ServeError::Engine(reason)))
}

fn check_headers(configuration: &Configuration) -> Result<(), ServeError> {
    for (target, settings) in &configuration.targets {
        if let Some(header) = settings.headers.keys().find(|name| is_reserved_header(name)) {
            return Err(ServeError::Header { target: target.clone(), header: header.as_str().to_owned() });
        }
    }
    Ok(())
}

fn declared(configuration: &Configuration) -> Declared {
    let targets = configuration.targets.iter();
    Declared {
        targets: targets.map(|(name, target)| (name.clone(), target.settings.clone())).collect(),
        queues: configuration.queues.iter().map(|(name, queue)| (name.clone(), queue.clone())).collect(),
    }
}

async fn result_limits(handle: &Handle) -> ResultLimits {
    let limits = ResultLimits::default();
    // An engine that has failed by now has no queues to push from either.
    for queue in handle.overview().await.map(|(queues, _)| queues).unwrap_or_default() {
        limits.set(queue.name, queue.settings.result_max_bytes);
    }
    limits
}

/// Everything that runs but the engine.
struct Server {
    shared: Arc<Shared>,
    driver: Driver,
    connections: Connections,
    close: watch::Sender<Closing>,
    tasks: [JoinHandle<()>; 3],
}

impl Server {
    fn start(
        shared: Arc<Shared>,
        configuration: &Configuration,
        listener: TcpListener,
        calls: Calls,
    ) -> Self {
        let driver = Driver::new(Arc::clone(&shared), &configuration.targets);
        let (close, closing) = watch::channel(Closing::Not);
        let connections = Connections::new(Arc::clone(&shared), router(Arc::clone(&shared)), closing);
        let tasks = [
            tokio::spawn(driver.clone().run(calls)),
            tokio::spawn(connections.clone().accept(listener)),
            tokio::spawn(alerts::look(Arc::clone(&shared))),
        ];
        Self { shared, driver, connections, close, tasks }
    }

    /// Ends everything in order; without an engine there is nothing to wait for.
    async fn stop(self, engine_runs: bool) {
        let limits = &self.shared.limits;
        self.shared.draining.store(true, Ordering::Relaxed);
        if engine_runs {
            self.shared.handle.drain();
            // Once this is answered, every call that was decided before is on its way to the driver.
            let _ = self.shared.handle.overview().await;
            self.driver.finish(limits.drain).await;
        }
        self.close.send_replace(Closing::Gracefully);
        if tokio::time::timeout(limits.close, self.connections.ended()).await.is_err() {
            tracing::warn!("connections did not end in time and are cut");
            self.close.send_replace(Closing::Now);
        }
        for task in &self.tasks {
            task.abort();
        }
    }
}
