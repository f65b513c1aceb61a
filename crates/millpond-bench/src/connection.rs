//! A minimal HTTP/1.1 client connection: light enough to leave the machine to the server.
//!
//! Owns keep-alive and the framing by `Content-Length`. Must never be used for anything but benchmarks.

use crate::load::Worker;
use crate::serve::PATH;
use anyhow::{Context as _, Result, ensure};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Most bytes of an answer's head and body.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// One connection that sends the same request over and over.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    status: u16,
    messages: u64,
    answer: Vec<u8>,
}

impl Connection {
    /// Will post `body`, expect `status` and count `messages` for it.
    pub(crate) async fn post(
        address: SocketAddr,
        path: &str,
        content_type: &str,
        body: &[u8],
        (status, messages): (u16, u64),
    ) -> Result<Self> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self::open(address, [head.as_bytes(), body].concat(), status, messages).await
    }

    /// Will get `path`.
    pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Self> {
        Self::open(address, format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").into_bytes(), 200, 1)
            .await
    }

    async fn open(address: SocketAddr, request: Vec<u8>, status: u16, messages: u64) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request, status, messages, answer: Vec::with_capacity(4096) })
    }

    /// Sends the request and returns the body of the answer.
    pub(crate) async fn exchange(&mut self) -> Result<&[u8]> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        let head = loop {
            self.read().await?;
            if let Some(head) = Head::parse(&self.answer)? {
                break head;
            }
        };
        while self.answer.len() < head.bytes + head.content_bytes {
            self.read().await?;
        }
        let body = &self.answer[head.bytes..];
        ensure!(
            head.status == self.status,
            "the server answered {} instead of {}: {}",
            head.status,
            self.status,
            String::from_utf8_lossy(body)
        );
        Ok(body)
    }

    async fn read(&mut self) -> Result<()> {
        ensure!(self.answer.len() < ANSWER_BYTES_MAX, "the answer is longer than {ANSWER_BYTES_MAX} bytes");
        let read = self.stream.read_buf(&mut self.answer).await?;
        ensure!(read > 0, "the server has closed the connection");
        Ok(())
    }
}

impl Worker for Connection {
    async fn once(&mut self) -> Result<u64> {
        self.exchange().await?;
        Ok(self.messages)
    }
}

/// `connections` connections that each enqueue one message of `body_bytes` per request.
pub(crate) async fn producers(
    address: SocketAddr,
    connections: usize,
    body_bytes: usize,
) -> Result<Vec<Connection>> {
    let mut body = vec![0; body_bytes];
    fastrand::fill(&mut body);
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push(Connection::post(address, PATH, "application/octet-stream", &body, (202, 1)).await?);
    }
    Ok(opened)
}

/// What matters of an answer's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// The head itself, with the empty line.
    bytes: usize,
    /// What follows.
    content_bytes: usize,
}

impl Head {
    /// `None` while it is incomplete.
    fn parse(answer: &[u8]) -> Result<Option<Self>> {
        let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&answer[..end])?;
        let status = head.get(9..12).context("the answer has no status")?.parse()?;
        let length = head.lines().filter_map(|line| line.split_once(':'));
        let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let content_bytes = length.map(|(_, value)| value.trim().parse()).next().transpose()?;
        let content_bytes = content_bytes.context("the answer has no content-length")?;
        Ok(Some(Self { status, bytes: end + 4, content_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn a_head_is_parsed_once_it_is_whole() {
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\ndate: x\r\n\r\nhello";
        for end in 0..answer.len() - 5 {
            assert_eq!(Head::parse(&answer[..end]).unwrap(), None);
        }
        assert_eq!(
            Head::parse(answer).unwrap(),
            Some(Head { status: 202, bytes: answer.len() - 5, content_bytes: 5 })
        );
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
