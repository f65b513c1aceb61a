//! Calls over HTTP/2: many on one connection.
//!
//! Owns the connections to one target and how many calls are on each: never more than the target allows, so that no
//! call waits unsent for another one to end; another connection is made instead. Must never send a request again that
//! the target may have begun with.
//!
//! hyper-util's pool keeps one connection and lets calls wait on it beyond what the target allows: they would spend
//! their time there, occupy nothing, and count as time-outs.

use super::client::HEAD_BYTES_MAX;
use super::connect::{Connected, Connector};
use super::fault::{ConnectError, Fault, Phase, Progress, fault, is_of_stream, is_refusal, kind, words};
use bytes::Bytes;
use http::header::HOST;
use http::uri::Authority;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// What the library takes for the number of calls that the target allows, until the target has said it.
const NOT_GREETED: usize = 0;
/// How often a request is sent again that the target has not begun with, before its message is given back.
const REPETITIONS_MAX: u32 = 2;

/// How the connections are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Care {
    /// While calls run and nothing is heard, the target is asked this often whether it is there.
    pub(super) ping_interval: Duration,
    /// How long it may take to say so.
    pub(super) ping_timeout: Duration,
    /// How long a connection is kept that nothing is sent on.
    pub(super) idle: Duration,
}

impl Default for Care {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(30),
        }
    }
}

/// Why a request could not be sent over HTTP/2.
#[derive(Debug, Clone)]
pub(super) enum Unsent {
    /// The target prefers HTTP/1.1. Nothing was sent.
    SpeaksHttp1,
    /// Anything else.
    Fault(Fault),
}

impl From<ConnectError> for Unsent {
    fn from(error: ConnectError) -> Self {
        Self::Fault(error.into())
    }
}

type Driven = http2::Connection<Connected, Full<Bytes>, TokioExecutor>;
/// The library's side of a connection; `None` once it has ended. What is left in it then is answered by its being
/// dropped, and would wait for ever otherwise.
type Slot = Mutex<Option<Driven>>;
type Connections = Mutex<Vec<Arc<Connection>>>;

/// One connection.
struct Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    slot: Arc<Slot>,
    /// Calls on it.
    running: AtomicUsize,
    /// Whether a call was begun since its task looked last.
    is_used: AtomicBool,
}

impl Connection {
    /// How many calls the target allows on it.
    fn allows(&self) -> usize {
        let driven = self.slot.lock().expect("no holder of this lock panics");
        driven.as_ref().map_or(0, Driven::current_max_send_streams)
    }
}

/// The place of one call on a connection.
pub(super) struct Place {
    connection: Arc<Connection>,
    connections: Weak<Connections>,
    has_ended: bool,
}

impl Place {
    fn on(connection: &Arc<Connection>, connections: &Arc<Connections>) -> Self {
        connection.running.fetch_add(1, Ordering::Relaxed);
        connection.is_used.store(true, Ordering::Relaxed);
        Self {
            connection: Arc::clone(connection),
            connections: Arc::downgrade(connections),
            has_ended: false,
        }
    }

    /// The call has ended, well or not.
    pub(super) fn ended(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.running.fetch_sub(1, Ordering::Relaxed);
        // A call that was given up, as after its time-out, tells nothing of the connection, which may be dead: others
        // are not sent after it. Those on it go on.
        if !self.has_ended {
            retire(&self.connections, &self.connection);
        }
    }
}

fn retire(connections: &Weak<Connections>, connection: &Arc<Connection>) {
    if let Some(connections) = connections.upgrade() {
        lock(&connections).retain(|kept| !Arc::ptr_eq(kept, connection));
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, Vec<Arc<Connection>>> {
    connections.lock().expect("no holder of this lock panics")
}

/// The connections to one target.
pub(super) struct Multiplexed {
    connector: Connector,
    is_secured: bool,
    may_fall_back: bool,
    care: Care,
    connections: Arc<Connections>,
    /// Held while a connection is made, with why the last one could not be.
    connecting: tokio::sync::Mutex<Option<Unsent>>,
    /// How many have been tried to make.
    tries: AtomicU64,
}

impl fmt::Debug for Multiplexed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Multiplexed").field("care", &self.care).finish_non_exhaustive()
    }
}

impl Multiplexed {
    /// A pool whose connections `connector` makes. Where they have TLS and the target prefers HTTP/1.1: if
    /// `may_fall_back`, that is the answer, else an error.
    pub(super) fn new(connector: Connector, is_secured: bool, may_fall_back: bool, care: Care) -> Self {
        Self {
            connector,
            is_secured,
            may_fall_back,
            care,
            connections: Arc::default(),
            connecting: tokio::sync::Mutex::default(),
            tries: AtomicU64::default(),
        }
    }

    /// Sends `request`. What the target has said that it never began with is sent again, a few times. The place is to
    /// be kept until the body has been read.
    pub(super) async fn send(
        &self,
        request: &Request<Full<Bytes>>,
        progress: &Progress,
    ) -> Result<(Response<Incoming>, Place), Unsent> {
        let mut repetitions = 0;
        loop {
            progress.reach(Phase::Waiting);
            let place = self.place(request.uri()).await?;
            progress.reach(Phase::Sent);
            let sending = place.connection.sender.clone().try_send_request(named(request));
            let mut error = match sending.await {
                Ok(response) => return Ok((response, place)),
                Err(error) => error,
            };
            let is_unsent = error.take_message().is_some();
            // Any other error is the connection's: it takes no more calls, though it may not know yet.
            if is_of_stream(error.error()) {
                place.ended();
            }
            if (is_unsent || is_refusal(error.error())) && repetitions < REPETITIONS_MAX {
                repetitions += 1;
                continue;
            }
            return Err(Unsent::Fault(match fault(error.error()) {
                Fault::Failed(failure) if is_unsent => Fault::NotBegun(failure),
                fault => fault,
            }));
        }
    }

    /// A place on a connection with room, or on a new one.
    async fn place(&self, uri: &Uri) -> Result<Place, Unsent> {
        if let Some(place) = self.free() {
            return Ok(place);
        }
        let tries = self.tries.load(Ordering::Acquire);
        let mut failure = self.connecting.lock().await;
        if let Some(place) = self.free() {
            return Ok(place);
        }
        // Whoever was connecting meanwhile tried for all who waited for it.
        if let Some(failure) = &*failure
            && self.tries.load(Ordering::Acquire) > tries
        {
            return Err(failure.clone());
        }
        let connected = self.connect(uri).await;
        *failure = connected.as_ref().err().cloned();
        self.tries.fetch_add(1, Ordering::Release);
        connected
    }

    fn free(&self) -> Option<Place> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.sender.is_closed());
        let free = connections.iter().find(|connection| {
            // Under the lock nobody else takes the same place.
            connection.running.load(Ordering::Relaxed) < connection.allows()
        })?;
        Some(Place::on(free, &self.connections))
    }

    async fn connect(&self, uri: &Uri) -> Result<Place, Unsent> {
        let (progress, timeout) = (Progress::current(), self.connector.timeout());
        match tokio::time::timeout(timeout, self.step_by_step(uri, &progress)).await {
            Ok(connected) => connected,
            Err(_) => Err(progress.no_connection(timeout).into()),
        }
    }

    async fn step_by_step(&self, uri: &Uri, progress: &Progress) -> Result<Place, Unsent> {
        let io = self.connector.clone().connect(uri.clone()).await?;
        if self.is_secured && !io.connected().is_negotiated_h2() {
            return Err(if self.may_fall_back {
                Unsent::SpeaksHttp1
            } else {
                let message =
                    "the target does not speak HTTP/2; leave http2 out, or set it to false".to_owned();
                ConnectError { kind: "tls", message }.into()
            });
        }
        progress.reach(Phase::Greeting);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_max_send_streams(NOT_GREETED)
            .max_header_list_size(HEAD_BYTES_MAX)
            .keep_alive_interval(self.care.ping_interval)
            .keep_alive_timeout(self.care.ping_timeout);
        let (sender, mut driven) = builder.handshake(io).await.map_err(|error| unspoken(Some(&error)))?;
        greeted(&mut driven).await.map_err(|error| unspoken(error.as_ref()))?;
        let slot = Arc::new(Mutex::new(Some(driven)));
        let connection = Arc::new(Connection {
            sender,
            slot: Arc::clone(&slot),
            running: AtomicUsize::new(0),
            is_used: AtomicBool::new(true),
        });
        let (weak, connections) = (Arc::downgrade(&connection), Arc::downgrade(&self.connections));
        tokio::spawn(drive(slot, weak, connections, self.care.idle));
        let place = Place::on(&connection, &self.connections);
        lock(&self.connections).push(connection);
        Ok(place)
    }
}

/// Why HTTP/2 is not spoken on a connection; `None`: it was closed.
fn unspoken(error: Option<&hyper::Error>) -> ConnectError {
    if let Some(error) = error {
        return ConnectError { kind: kind(error), message: words(error) };
    }
    let message = "the target closed the connection before it spoke HTTP/2".to_owned();
    ConnectError { kind: "reset", message }
}

/// Waits until the target has said how many calls it allows at once; or for the end of the connection, and why.
async fn greeted(driven: &mut Driven) -> Result<(), Option<hyper::Error>> {
    // The library says so when asked, and does not call.
    let mut looks = tokio::time::interval(Duration::from_millis(1));
    loop {
        tokio::select! {
            ended = &mut *driven => return Err(ended.err()),
            _ = looks.tick() => {}
        }
        if driven.current_max_send_streams() != NOT_GREETED {
            return Ok(());
        }
    }
}

/// Lets a connection work until it ends, which it does once nobody can send on it any more; retires it when idle.
async fn drive(
    slot: Arc<Slot>,
    connection: Weak<Connection>,
    connections: Weak<Connections>,
    idle: Duration,
) {
    let mut looks = tokio::time::interval_at(Instant::now() + idle, idle);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ended = poll_fn(|context| {
            let mut slot = slot.lock().expect("no holder of this lock panics");
            let Some(driven) = &mut *slot else { return Poll::Ready(Ok(())) };
            let polled = Pin::new(driven).poll(context);
            if polled.is_ready() {
                *slot = None;
            }
            polled
        });
        tokio::select! {
            ended = ended => {
                if let Err(error) = ended {
                    tracing::debug!(error = words(&error), "a connection to a target ended");
                }
                break;
            }
            _ = looks.tick() => {
                if let Some(connection) = connection.upgrade()
                    && !connection.is_used.swap(false, Ordering::Relaxed)
                    && connection.running.load(Ordering::Relaxed) == 0
                {
                    retire(&connections, &connection);
                }
            }
        }
    }
    if let Some(connection) = connection.upgrade() {
        retire(&connections, &connection);
    }
}

/// The request as HTTP/2 wants it: a `Host` of its own stands in the address.
fn named(request: &Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let mut request = request.clone();
    let host = request.headers_mut().remove(HOST);
    if let Some(authority) = host.and_then(|host| Authority::try_from(host.as_bytes()).ok()) {
        let mut parts = request.uri().clone().into_parts();
        parts.authority = Some(authority);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

#[cfg(test)]
mod tests;
