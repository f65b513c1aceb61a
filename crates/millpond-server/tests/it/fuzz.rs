//! Requests that no client meant: each is answered, none is an error of the server, and it goes on serving.
//!
//! An input is a method and a path in its first line, a body behind it.

use crate::harness::{Server, configuration, name, read_answer};
use millpond_core::settings::QueueSettings;
use millpond_testkit::fuzz::fuzz;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Longer than a request takes that does not wait for messages; those that do are given up.
const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn http() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = configuration(directory.path());
    configuration.queues.insert(name("jobs"), QueueSettings::default());
    let server = runtime.block_on(Server::start(configuration));
    let words = ["null", "[]", "{}", "-1", "1e999", "\"\"", "true", "\\u0000", "é", "..", "%2f", "?limit="];
    fuzz("http", 300, &words, &mut |input| {
        let answer = runtime.block_on(ask(&server, input));
        let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or("none");
        assert!(!status.starts_with('5') || ["503", "507"].contains(&status), "{answer}");
    });
    runtime.block_on(async {
        assert_eq!(server.get("/livez").await.status, 200);
        server.enqueue("jobs", "still here").await;
        server.stop().await;
    });
}

async fn ask(server: &Server, input: &[u8]) -> String {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (line, body) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let head = format!(
        " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [line, head.as_bytes(), body].concat();
    let exchange = async {
        let mut stream = server.connect().await;
        // The server may have answered and closed before it has taken everything.
        let _ = stream.write_all(&request).await;
        read_answer(&mut stream).await
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_default()
}
