//! Starting and stopping a server.
//!
//! Owns the order in which its parts start and end. Must never return before the engine has written what it holds.

use crate::alerts::{self, Board};
use crate::answers::Answers;
use crate::bodies::Bodies;
use crate::callbacks::{self, Desk};
use crate::connections::{Closing, Connections};
use crate::cors::Cors;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::push::driver::{Driver, Target, targets};
use crate::router::router;
use crate::routes::Routes;
use crate::scaler::{self, Scaler};
use crate::shared::{ResultLimits, Shared};
use crate::targets::TargetUrls;
use crate::tls::TlsError;
use millpond_config::{CALLBACK_QUEUE, Configuration, ExposureError, check_exposure, is_reserved_header};
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

/// Where a server listens.
#[derive(Debug)]
pub struct Listeners {
    /// For HTTP.
    pub http: TcpListener,
    /// For autoscalers, over gRPC.
    pub scaler: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(http: TcpListener) -> Self {
        Self { http, scaler: None }
    }
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
    /// A target cannot be called over TLS.
    #[error("targets.{target}.tls: {source}")]
    Tls {
        /// The target.
        target: Name,
        /// Why not.
        source: TlsError,
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
    /// Callbacks cannot be made.
    #[error("callbacks: {0}")]
    Callbacks(#[source] TlsError),
    /// The engine has stopped while it was serving.
    #[error("the engine has stopped on its own: {0}")]
    Engine(String),
}

/// Opens the engine and serves it on `listeners` until `shutdown` is ready; then stops in order: no new work, running
/// push calls finish or are given back, connections end, and the engine stops last.
///
/// # Errors
/// See [`ServeError`]. A graceful end is `Ok`.
///
/// # Panics
/// If opening or stopping the engine panics, which is a fault of ours.
pub async fn serve(
    options: ServerOptions,
    listeners: impl Into<Listeners>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ServerOptions { configuration, insecure, limits, segment_bytes } = options;
    let listeners = listeners.into();
    let address = listeners.http.local_addr().map_err(ServeError::Listener)?;
    check_exposure(address, insecure)?;
    if let Some(scaler) = &listeners.scaler {
        check_exposure(scaler.local_addr().map_err(ServeError::Listener)?, insecure)?;
    }
    check_headers(&configuration)?;
    let targets =
        targets(&configuration.targets).map_err(|(target, source)| ServeError::Tls { target, source })?;
    let routes = Routes::new(&configuration.routes).map_err(ServeError::Route)?;
    let mut engine_options = EngineOptions::new(configuration.data.clone(), declared(&configuration));
    let base_url = configuration.external_url.clone().unwrap_or_default();
    engine_options.callbacks = configuration.callbacks.as_ref().map(|_| callbacks::wording(base_url.clone()));
    let desk = desk(&configuration).map_err(ServeError::Callbacks)?;
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
        base_url,
        target_urls: TargetUrls::new(&configuration.targets),
        needs_token: !is_loopback,
        routes,
        cors: configuration.cors.as_ref().map(Cors::new),
        answers: Answers::default(),
        callbacks: desk,
        arrivals: Arc::default(),
        alerts: Board::new(
            configuration.alerts.clone(),
            configuration.alert_webhook.as_ref().map(|webhook| webhook.url.clone()),
        ),
        guard: Guard::new(&configuration.allowed_hosts, is_loopback),
        limits,
        draining: AtomicBool::new(false),
    });
    let server = Server::start(shared, targets, listeners, calls);
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

/// Checks what can be known of the targets without calling them: that certificates and keys can be used.
///
/// # Errors
/// [`ServeError::Tls`]. That the operating system trusts nobody is an error only where a server is started.
pub fn check_targets(configuration: &Configuration) -> Result<(), ServeError> {
    match targets(&configuration.targets) {
        Ok(_) | Err((_, TlsError::NoAuthority { .. })) => Ok(()),
        Err((target, source)) => Err(ServeError::Tls { target, source }),
    }
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
    let queues = configuration.queues.iter().map(|(name, queue)| (name.clone(), queue.clone()));
    let is_sent = configuration.callbacks.is_some() || configuration.alert_webhook.is_some();
    let own = is_sent.then(|| {
        let settings = configuration.callbacks.clone().unwrap_or_default().queue_settings();
        (Name::new(CALLBACK_QUEUE).expect("it is a name"), settings)
    });
    Declared {
        targets: targets.map(|(name, target)| (name.clone(), target.settings.clone())).collect(),
        queues: queues.chain(own).collect(),
    }
}

/// The desk for callbacks and alerts, if anything is to be sent.
fn desk(configuration: &Configuration) -> Result<Option<Arc<Desk>>, TlsError> {
    let (callbacks, webhook) = (configuration.callbacks.as_ref(), configuration.alert_webhook.as_ref());
    if callbacks.is_none() && webhook.is_none() {
        return Ok(None);
    }
    Desk::new(callbacks, webhook, Arc::new(callbacks::System)).map(|desk| Some(Arc::new(desk)))
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
    /// Tells the sender of callbacks to end.
    quiet: watch::Sender<bool>,
    callbacks: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(shared: Arc<Shared>, targets: Arc<[Target]>, listeners: Listeners, calls: Calls) -> Self {
        let driver = Driver::new(Arc::clone(&shared), targets);
        let (close, closing) = watch::channel(Closing::Not);
        let scaler = Scaler::new(Arc::clone(&shared), closing.clone());
        let connections = Connections::new(Arc::clone(&shared), router(Arc::clone(&shared)), closing);
        let (quiet, is_quiet) = watch::channel(false);
        let callbacks = tokio::spawn(callbacks::run(Arc::clone(&shared), is_quiet));
        let mut tasks = vec![
            tokio::spawn(driver.clone().run(calls)),
            tokio::spawn(connections.clone().accept(listeners.http)),
            tokio::spawn(alerts::look(Arc::clone(&shared))),
        ];
        tasks.extend(listeners.scaler.map(|listener| tokio::spawn(scaler::accept(listener, scaler))));
        Self { shared, driver, connections, close, quiet, callbacks, tasks }
    }

    /// Ends everything in order; without an engine there is nothing to wait for.
    async fn stop(self, engine_runs: bool) {
        let limits = &self.shared.limits;
        self.shared.draining.store(true, Ordering::Relaxed);
        if engine_runs {
            self.shared.handle.drain();
            // Once this is answered, every call that was decided before is on its way to the driver.
            let _ = self.shared.handle.overview().await;
            self.quiet.send_replace(true);
            let callbacks = tokio::time::timeout(limits.drain, self.callbacks);
            // Those that do not end in time come again: their leases run out.
            let _ = tokio::join!(self.driver.finish(limits.drain), callbacks);
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
