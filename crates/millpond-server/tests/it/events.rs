//! The changes of a message as server-sent events, read from a real connection.
//!
//! Owns the tests of the stream. Must never depend on how long something takes.

use crate::harness::{Server, configuration, eventually, within};
use millpond_server::Limits;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A reader of one stream.
struct Reader {
    stream: TcpStream,
    read: String,
}

impl Reader {
    async fn open(server: &Server, url: &str, last: &str) -> Self {
        let mut stream = server.connect().await;
        let resume = if last.is_empty() { String::new() } else { format!("last-event-id: {last}\r\n") };
        let head = format!(
            "GET {url} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{resume}connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { stream, read: String::new() }
    }

    /// Everything up to and without `end`; `None` if the stream ends before.
    async fn up_to(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.read.find(end) {
                let found = self.read[..at].to_owned();
                self.read.drain(..at + end.len());
                return Some(found);
            }
            let mut bytes = [0; 4096];
            let count = within(self.stream.read(&mut bytes)).await.unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.read.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }

    async fn head(&mut self) -> String {
        self.up_to("\r\n\r\n").await.expect("an answer has a head")
    }

    /// Id and content of the next event.
    async fn next(&mut self) -> Option<(String, Value)> {
        let event = self.up_to("\n\n").await?;
        let field = |name: &str| {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name));
            lines.map(str::to_owned).next()
        };
        assert_eq!(field("event: ").as_deref(), Some("status"));
        Some((field("id: ").unwrap(), serde_json::from_str(&field("data: ").unwrap()).unwrap()))
    }

    async fn expect(&mut self, status: &str) -> (String, Value) {
        let (id, seen) = self.next().await.expect("the stream goes on");
        assert_eq!(seen["status"], status, "{seen}");
        (id, seen)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_an_event_until_the_life_of_the_message_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let url = accepted["status_url"].as_str().unwrap();
    let mut reader = Reader::open(&server, url, "").await;
    let head = reader.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for header in ["content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"] {
        assert!(head.contains(header), "{head}");
    }
    let (first, seen) = reader.expect("ready").await;
    assert_eq!((&seen["id"], &seen["position"]), (&accepted["id"], &json!(0)));
    let receipt = &server.lease("q", &json!({"max": 1, "consumer": "w1"})).await[0]["receipt"];
    let (_, seen) = reader.expect("leased").await;
    assert_eq!((&seen["deliveries"], seen.get("consumer")), (&json!(1), None), "a producer sees no workers");
    server.settle(json!({"outcome": "release"}), receipt).await;
    let (ready_again, _) = reader.expect("ready").await;
    assert_ne!(ready_again, first);
    let receipt = &server.lease("q", &json!({"max": 1})).await[0]["receipt"];
    reader.expect("leased").await;
    server.settle(json!({"outcome": "complete", "result": "done"}), receipt).await;
    let (last, seen) = reader.expect("succeeded").await;
    assert_eq!(seen["result"]["size"], 4);
    assert!(reader.next().await.is_none(), "the stream ends");

    let mut again = Reader::open(&server, url, &last).await;
    assert!(again.head().await.starts_with("HTTP/1.1 204"), "a browser stops to ask");
    let mut late = Reader::open(&server, url, "").await;
    late.head().await;
    assert_eq!(late.expect("succeeded").await.0, last);
    assert!(late.next().await.is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_comes_back_is_told_what_it_missed_and_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let url = accepted["status_url"].as_str().unwrap();
    let mut reader = Reader::open(&server, url, "").await;
    reader.head().await;
    let (known, _) = reader.expect("ready").await;
    drop(reader);

    let mut nothing_new = Reader::open(&server, url, &known).await;
    nothing_new.head().await;
    let receipt = &server.lease("q", &json!({"max": 1})).await[0]["receipt"];
    nothing_new.expect("leased").await;
    drop(nothing_new);

    server.settle(json!({"outcome": "complete"}), receipt).await;
    let mut behind = Reader::open(&server, url, &known).await;
    behind.head().await;
    behind.expect("succeeded").await;
    for strange in ["0", "leased.1", "💥"] {
        let mut reader = Reader::open(&server, url, strange).await;
        reader.head().await;
        reader.expect("succeeded").await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_refused_as_a_status_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let url = accepted["status_url"].as_str().unwrap();
    let wish = [("accept", "text/event-stream")];
    assert_eq!(server.send("GET", "/v1/messages/nothing", &wish, "").await.slug(), "unknown-message");
    let wrong = format!("{url}x");
    assert_eq!(server.send("GET", &wrong, &wish, "").await.slug(), "forbidden");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_server_stops_and_nothing_is_kept_of_a_reader_who_left() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(configuration(directory.path())).await;
    let accepted = server.enqueue("q", "work").await;
    let url = accepted["status_url"].as_str().unwrap();
    // As many as may watch one message: if those who left were kept, further ones would be told nothing.
    for _ in 0..2 {
        let mut readers = Vec::new();
        for _ in 0..100 {
            let mut reader = Reader::open(&server, url, "").await;
            reader.head().await;
            reader.expect("ready").await;
            readers.push(reader);
        }
    }
    let waits = async || {
        let answer = server.send("GET", url, &[("prefer", "wait=0")], "").await;
        answer.status == 200
    };
    eventually("the status is told", waits).await;
    let mut reader = Reader::open(&server, url, "").await;
    reader.head().await;
    reader.expect("ready").await;
    server.stop().await;
    assert!(reader.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_in_which_nothing_happens_outlives_the_time_for_silent_connections() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start_with(configuration(directory.path()), limits).await;
    let accepted = server.enqueue("q", "work").await;
    let mut reader = Reader::open(&server, accepted["status_url"].as_str().unwrap(), "").await;
    reader.head().await;
    reader.expect("ready").await;
    for _ in 0..3 {
        // A connection on which nothing is asked, begun later, is ended by then.
        let mut silent = server.connect().await;
        assert_eq!(within(silent.read(&mut [0; 1])).await.unwrap_or(0), 0);
    }
    let _leased = server.lease("q", &json!({"max": 1})).await;
    reader.expect("leased").await;
    server.stop().await;
}
