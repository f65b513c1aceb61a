//! A server for one test, and a client that speaks to it.
//!
//! Owns their start and end. Must never hide an answer: what came back is returned whole.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use millpond_config::{Configuration, Target};
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_server::{Limits, Listeners, ServeError, ServerOptions, serve};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest time anything may take before a test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A running server; ends when told to, or with the test's runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Where autoscalers ask, if the configuration says so.
    pub(crate) scaler: Option<SocketAddr>,
    pub(crate) client: Client<HttpConnector, Full<Bytes>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The header as text; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The last part of a problem's type, after checking that everything that goes with a problem is there.
    pub(crate) fn slug(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        for field in ["title", "detail", "instance"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {problem}");
        }
        if matches!(self.status, 429 | 503) {
            assert!(self.header("retry-after").parse::<u64>().unwrap() >= 1, "{self:?}");
        }
        problem["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}

/// A configuration with its data below `directory` and one pull queue, `q`.
pub(crate) fn configuration(directory: &Path) -> Configuration {
    let mut configuration = Configuration { data: directory.join("data"), ..Configuration::default() };
    configuration.queues.insert(name("q"), QueueSettings::default());
    configuration
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Adds a target, and a queue `push` for it whose retries come at once.
pub(crate) fn with_target(configuration: &mut Configuration, address: SocketAddr, concurrency: u32) {
    let mut target = Target::new(format!("http://{address}/work").parse().unwrap());
    target.settings.concurrency = concurrency;
    target.settings.timeout = Duration::from_secs(5);
    target.settings.hold_after_timeout = Some(Duration::ZERO);
    configuration.targets.insert(name("target"), target);
    let mut queue = QueueSettings { target: Some(name("target")), ..QueueSettings::default() };
    queue.retry.backoff_min = Duration::from_millis(1);
    queue.retry.backoff_max = Duration::from_millis(10);
    configuration.queues.insert(name("push"), queue);
}

impl Server {
    pub(crate) async fn start(configuration: Configuration) -> Self {
        Self::start_with(configuration, Limits::default()).await
    }

    pub(crate) async fn start_with(configuration: Configuration, limits: Limits) -> Self {
        Self::start_at("127.0.0.1:0", ServerOptions { configuration, limits, ..ServerOptions::default() })
            .await
    }

    /// Starts a server that listens on `address`, with small segments, if not told otherwise; the client speaks to it over loopback.
    pub(crate) async fn start_at(address: &str, options: ServerOptions) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let (stop, stopped) = oneshot::channel::<()>();
        let options = ServerOptions { segment_bytes: options.segment_bytes.or(Some(1 << 20)), ..options };
        let scaler = match options.configuration.scaler {
            Some(scaler) => Some(TcpListener::bind(scaler.listen).await.unwrap()),
            None => None,
        };
        let scaler_address = scaler.as_ref().map(|listener| listener.local_addr().unwrap());
        let task = tokio::spawn(serve(options, Listeners { http: listener, scaler }, async {
            // A test that forgets to stop the server stops it by dropping the sender.
            let _ = stopped.await;
        }));
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let server = Self { address, scaler: scaler_address, client, stop: Some(stop), task };
        eventually("the server is ready", async || server.get("/readyz").await.status == 200).await;
        server
    }

    /// Tells the server to stop, without waiting for it.
    pub(crate) fn begin_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for the server's end.
    pub(crate) async fn ended(self) -> Result<(), ServeError> {
        within(self.task).await.unwrap()
    }

    pub(crate) async fn stop(mut self) {
        self.begin_to_stop();
        self.ended().await.unwrap();
    }

    /// Sends a request and reads the answer whole.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = within(self.client.request(request)).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = within(body.collect()).await.unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Enqueues a body and returns the 202's JSON.
    pub(crate) async fn enqueue(&self, queue: &str, body: &str) -> Value {
        let answer = self
            .send(
                "POST",
                &format!("/v1/queues/{queue}/messages"),
                &[("content-type", "text/plain")],
                body.to_owned(),
            )
            .await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()
    }

    /// Leases and returns the messages.
    pub(crate) async fn lease(&self, queue: &str, wish: &Value) -> Vec<Value> {
        let answer = self.post(&format!("/v1/queues/{queue}/leases"), wish).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["messages"].as_array().unwrap().clone()
    }

    /// Settles one receipt and returns its answer.
    pub(crate) async fn settle(&self, mut settlement: Value, receipt: &Value) -> Value {
        settlement["receipt"] = receipt.clone();
        let answer = self.post("/v1/settlements", &Value::Array(vec![settlement])).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()[0].clone()
    }

    pub(crate) async fn stats(&self, queue: &str) -> Value {
        self.get(&format!("/v1/queues/{queue}/stats")).await.json()
    }

    /// Waits until the message's life is over, by the server's own long poll.
    pub(crate) async fn outcome(&self, accepted: &Value) -> Value {
        let url = accepted["status_url"].as_str().unwrap();
        let answer = self.send("GET", url, &[("prefer", "wait=20")], "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// A bare connection.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes as they are and reads until the server closes or has sent a whole answer.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The server may have answered and closed before it has taken everything.
        let _ = stream.write_all(bytes).await;
        read_answer(&mut stream).await
    }
}

/// Reads one answer with a Content-Length, or whatever comes before the end.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = within(stream.read(&mut chunk)).await.unwrap_or(0);
        read.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
            length.is_some_and(|length| body.len() >= length.trim().parse::<usize>().unwrap())
        });
        if count == 0 || whole {
            return text;
        }
    }
}

/// `future`, which must end within the deadline.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("it must not take this long")
}

/// Looks again and again until `condition` holds.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let look = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, look).await.is_ok(), "in vain: {what}");
}
