//! A small HTTP/1.1 client with keep-alive, for thousands of calls a second from the same process.
//!
//! Owns its connections and the bound on how many are open. Must never retry or queue: the callers of the
//! demonstration do neither, and a hidden wait in the client would falsify what is measured.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Most bytes of an answer.
const BODY_MAX: usize = 256 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The bound on open connections was reached.
    #[error("{0} connections are open already: the run needs more than was computed for it")]
    Connections(usize),
    /// No connection could be made.
    #[error("no connection to {0}: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// The connection broke, or the answer was not HTTP.
    #[error("no answer: {0}")]
    Exchange(#[from] hyper::Error),
    /// The answer's body broke off or was too long.
    #[error("broken answer: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// A status and a body.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: StatusCode,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// Connections to one server; clones share them.
#[derive(Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    connections_max: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    opened: AtomicU64,
}

/// One connection. Dropped in the middle of a call, it closes: that is how a caller gives up.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    /// A client of the server at `address` that opens at most `connections_max` connections.
    pub(crate) fn new(address: SocketAddr, connections_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max));
        let shared =
            Shared { address, connections_max, permits, idle: Mutex::default(), opened: AtomicU64::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// Connections opened so far.
    #[cfg(test)]
    pub(crate) fn opened(&self) -> u64 {
        self.shared.opened.load(Ordering::Relaxed)
    }

    /// Posts JSON. Dropping the future closes the connection.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        self.call(Method::POST, path, body).await
    }

    /// Reads.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.shared.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("a path and two fixed headers make a request");
        let mut connection = match self.shared.reuse().await {
            Some(connection) => connection,
            None => self.shared.connect().await?,
        };
        let response = connection.sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await.map_err(ClientError::Body)?;
        self.shared.keep(connection);
        Ok(Answer { status, body: body.to_bytes() })
    }
}

impl Shared {
    /// The connection that was used last, so that the others can grow old and close.
    async fn reuse(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle().pop()?;
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| ClientError::Connections(self.connections_max))?;
        let failed = |error| ClientError::Connect(self.address, error);
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        // Thousands of callers give up within seconds; closed in the ordinary way, their connections would hold
        // every port of the machine for a minute.
        stream.set_zero_linger().map_err(failed)?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // What goes wrong shows in the call that it goes wrong for.
            let _ = driver.await;
        });
        Ok(Connection { sender, driver: driver.abort_handle(), _permit: permit })
    }

    fn keep(&self, connection: Connection) {
        if !connection.sender.is_closed() {
            self.idle().push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
