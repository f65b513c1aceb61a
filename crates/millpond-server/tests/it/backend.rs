//! A target that answers as a test tells it, down to the bytes.
//!
//! Owns the listening and the record of what came. Must never answer better than told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

/// What to do with one request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Send these bytes and keep the connection.
    Reply(String),
    /// Send these bytes and close the connection.
    ReplyAndClose(String),
    /// Send these bytes and then nothing more, until the caller closes.
    ReplyAndHang(String),
    /// Send these bytes again and again until the caller closes.
    Flood(String),
    /// Reset the connection.
    Reset,
    /// Wait for [`Backend::release`], then answer 200 with `ok`.
    WaitForRelease,
    /// Wait for one of the workers, work so long, then answer 200 with `ok`.
    Work(Arc<Semaphore>, Duration),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    /// The method.
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// What was asked for, with `~` for the path of the target's own URL.
    pub(crate) fn target(&self) -> String {
        let target = self.head.split(' ').nth(1).unwrap_or_default();
        target.strip_prefix("/work").map_or_else(|| target.to_owned(), |rest| format!("~{rest}"))
    }

    /// The value of a header; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let wanted = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&wanted)).unwrap_or_default()
    }
}

/// A running target.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    busy: Arc<AtomicUsize>,
    busiest: Arc<AtomicUsize>,
    release: Arc<Notify>,
    closed: Arc<AtomicUsize>,
}

/// A 200 with this body.
pub(crate) fn ok(body: &str) -> Act {
    Act::Reply(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// An answer without a body.
pub(crate) fn status(line: &str, headers: &str) -> Act {
    Act::Reply(format!("HTTP/1.1 {line}\r\n{headers}content-length: 0\r\n\r\n"))
}

impl Backend {
    /// Listens; `act` decides by the number of the request, from 0.
    pub(crate) async fn start(act: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            busy: Arc::default(),
            busiest: Arc::default(),
            release: Arc::default(),
            closed: Arc::default(),
        };
        let (accepting, act) = (backend.clone(), Arc::new(act));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, act) = (accepting.clone(), Arc::clone(&act));
                tokio::spawn(async move {
                    serving.serve(stream, &*act).await;
                    serving.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        backend
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests that are being answered.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// The most requests that were being answered at once.
    pub(crate) fn busiest(&self) -> usize {
        self.busiest.load(Ordering::SeqCst)
    }

    /// Connections that have ended.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets those answer that wait for it.
    pub(crate) fn release(&self) {
        self.release.notify_waiters();
    }

    async fn serve(&self, mut stream: TcpStream, act: &(dyn Fn(usize, &Seen) -> Act + Send + Sync)) {
        let mut buffered = Vec::new();
        while let Some(seen) = read_request(&mut stream, &mut buffered).await {
            let number = {
                let mut list = self.seen.lock().unwrap();
                list.push(seen.clone());
                list.len() - 1
            };
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.busiest.fetch_max(busy, Ordering::SeqCst);
            let goes_on = self.act(&mut stream, act(number, &seen)).await;
            self.busy.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    async fn act(&self, stream: &mut TcpStream, act: Act) -> bool {
        match act {
            Act::Reply(bytes) => stream.write_all(bytes.as_bytes()).await.is_ok(),
            Act::ReplyAndClose(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                false
            }
            Act::ReplyAndHang(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                let _ = stream.read(&mut [0; 64]).await;
                false
            }
            Act::Flood(bytes) => {
                while stream.write_all(bytes.as_bytes()).await.is_ok() {}
                false
            }
            Act::Reset => {
                stream.set_zero_linger().unwrap();
                false
            }
            Act::WaitForRelease => {
                tokio::select! {
                    () = self.release.notified() => {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_ok()
                    }
                    _ = stream.readable() => false,
                }
            }
            Act::Work(workers, takes) => {
                let worker = workers.acquire().await.unwrap();
                tokio::time::sleep(takes).await;
                drop(worker);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_ok()
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffered: &mut Vec<u8>) -> Option<Seen> {
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(buffered).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_owned();
            let length = Seen { head: head.clone(), body: String::new() }
                .header("content-length")
                .parse()
                .unwrap_or(0);
            if body.len() >= length {
                let body = body[..length].to_owned();
                buffered.drain(..head.len() + 4 + length);
                return Some(Seen { head, body });
            }
        }
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => buffered.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
}
