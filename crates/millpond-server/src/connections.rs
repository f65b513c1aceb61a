//! Connections: accepting them, speaking HTTP on them, ending them.
//!
//! Owns the accept loop and the bounds of one connection: how many there are, how long one may be silent, how large
//! a head may be. Must never look into a request.

use crate::hand_over::{HandedOver, Socket};
use crate::limits::Limits;
use crate::router::answer;
use crate::shared::Shared;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::Version;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Pause after a failed accept: it fails again at once while the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Answers up to this size leave with their head.
const SENT_AT_ONCE_BYTES: u64 = 64 << 10;
/// HTTP/2: how often a silent peer is asked for a sign of life.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Whether connections shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// They go on.
    Not,
    /// Each ends once its requests are answered; no new ones are accepted.
    Gracefully,
    /// They are cut.
    Now,
}

/// The connections of a server.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    shared: Arc<Shared>,
    router: Router,
    protocol: auto::Builder<TokioExecutor>,
    permits: Arc<Semaphore>,
    closing: watch::Receiver<Closing>,
}

/// What one connection is doing.
#[derive(Debug)]
struct Activity {
    began: Instant,
    /// Requests under way.
    running: AtomicU32,
    /// When the latest request ended, in milliseconds since `began`.
    idle_since_millis: AtomicU64,
    /// What the latest answer handed out. Over HTTP/1 the next request shows that it was read.
    handed_over: Mutex<Option<HandedOver>>,
}

impl Activity {
    fn set_handed_over(&self, handed_over: Option<HandedOver>) {
        *self.handed_over.lock().expect("no holder of this lock panics") = handed_over;
    }

    fn take_handed_over(&self) -> Option<HandedOver> {
        self.handed_over.lock().expect("no holder of this lock panics").take()
    }

    /// How long the connection has been silent; `None` while a request is under way.
    fn idle(&self) -> Option<Duration> {
        if self.running.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.idle_since_millis.load(Ordering::Relaxed));
        Some(self.began.elapsed().saturating_sub(since))
    }
}

/// Counts a request as under way while it lives.
struct Running(Arc<Activity>);

impl Running {
    fn start(activity: &Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let millis = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.idle_since_millis.store(millis, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that is still being sent: until its end the connection is not silent, however long nothing is said.
struct Sending {
    body: Body,
    _running: Running,
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts the request as under way until its answer is sent. A small answer is with its head.
fn until_written(response: Response, running: Running) -> Response {
    if hyper::body::Body::size_hint(response.body()).exact().is_some_and(|size| size <= SENT_AT_ONCE_BYTES) {
        return response;
    }
    response.map(|body| Body::new(Sending { body, _running: running }))
}

/// Waits until connections shall end at least as `awaited` says.
async fn ends(closing: &mut watch::Receiver<Closing>, awaited: Closing) -> Closing {
    closing.wait_for(|&closing| closing >= awaited).await.map_or(Closing::Now, |closing| *closing)
}

fn protocol(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Silent connections and slow heads are ended by `serve_one`, for both versions alike and without a timer per
    // request. hyper's least buffer is 8 KiB.
    builder
        .http1()
        .header_read_timeout(None)
        .max_headers(limits.headers)
        .max_buf_size(limits.head_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    builder
}

impl Connections {
    /// Connections that are answered by `router`, and end when `closing` says so.
    pub(crate) fn new(shared: Arc<Shared>, router: Router, closing: watch::Receiver<Closing>) -> Self {
        let protocol = protocol(&shared.limits);
        let permits = Arc::new(Semaphore::new(shared.limits.connections.min(Semaphore::MAX_PERMITS)));
        Self { shared, router, protocol, permits, closing }
    }

    /// Accepts connections until told to close.
    pub(crate) async fn accept(self, listener: TcpListener) {
        let mut closing = self.closing.clone();
        let ends = async { closing.wait_for(|&closing| closing > Closing::Not).await.is_ok() };
        let accepts = async {
            loop {
                // Beyond the limit, connections wait in the listener's backlog.
                let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let connections = self.clone();
                        tokio::spawn(async move {
                            connections.serve_one(stream).await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection; trying again");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            _ = ends => {}
            () = accepts => {}
        }
    }

    /// Waits until every connection has ended.
    pub(crate) async fn ended(&self) {
        let all = u32::try_from(self.shared.limits.connections).unwrap_or(u32::MAX);
        // The permits are never closed; all of them are back once nobody is connected.
        let _ = self.permits.acquire_many(all).await;
    }

    async fn serve_one(self, stream: TcpStream) {
        // Answers are small and complete: waiting to fill a packet would only delay them.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let Self { shared, router, protocol, mut closing, .. } = self;
        let activity = Arc::new(Activity {
            began: Instant::now(),
            running: AtomicU32::new(0),
            idle_since_millis: AtomicU64::new(0),
            handed_over: Mutex::new(None),
        });
        let head_timeout = shared.limits.head_timeout;
        let socket = Socket::new(stream);
        let service = {
            let (shared, activity, socket) = (Arc::clone(&shared), Arc::clone(&activity), socket.clone());
            service_fn(move |request: hyper::Request<Incoming>| {
                let (shared, mut router, running) =
                    (Arc::clone(&shared), router.clone(), Running::start(&activity));
                let socket = socket.clone();
                let notes = (request.version() < Version::HTTP_2).then(|| Arc::clone(&activity));
                async move {
                    if let Some(activity) = &notes {
                        activity.set_handed_over(None);
                    }
                    let mut response = answer(&shared, &mut router, request).await;
                    let handed_over = response.extensions_mut().remove::<HandedOver>();
                    if let (Some(activity), Some(handed_over)) = (notes, handed_over) {
                        activity.set_handed_over(Some(handed_over));
                        socket.begins_answer();
                    }
                    Ok::<_, Infallible>(until_written(response, running))
                }
            })
        };
        let connection = protocol.serve_connection(TokioIo::new(socket.clone()), service);
        let mut connection = pin!(connection);
        let mut awaited = Closing::Gracefully;
        let mut silence = pin!(tokio::time::sleep(head_timeout));
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    break;
                }
                told = ends(&mut closing, awaited) => {
                    if told == Closing::Now {
                        return;
                    }
                    awaited = Closing::Now;
                    connection.as_mut().graceful_shutdown();
                }
                () = silence.as_mut() => {
                    let idle = activity.idle().unwrap_or_default();
                    let Some(left) = head_timeout.checked_sub(idle).filter(|left| !left.is_zero()) else { return };
                    silence.as_mut().reset(Instant::now() + left);
                }
            }
        }
        if let Some(handed_over) = activity.take_handed_over() {
            // A server that stops does not wait for what may still come; what has come counts.
            let stops = async {
                ends(&mut closing, Closing::Gracefully).await;
            };
            handed_over.take_back_if_nobody_was_there(&socket, &shared.handle, stops).await;
        }
    }
}
