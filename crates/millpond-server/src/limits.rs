//! The bounds of the front door: how much, how long, how many.
//!
//! Owns their defaults. Must never hold anything that changes.

use std::time::Duration;

/// The bounds of the front door. The defaults suit a server that faces its callers directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once. More wait in the listener's backlog.
    pub connections: usize,
    /// How long a connection may take to send the head of its next request, idle time included.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a request may take in all. Longer than the longest wait that a request can ask for.
    pub request_timeout: Duration,
    /// Headers per request.
    pub headers: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// HTTP/2: requests under way at once on one connection.
    pub streams: u32,
    /// Messages, settlements or extensions per request.
    pub batch: usize,
    /// Bytes of a batch's body. Each message in it obeys `max_body` as well.
    pub batch_bytes: u64,
    /// Bytes of all bodies that are arriving at one moment; never less than twice the largest body.
    pub arriving_bytes: u64,
    /// How long running push calls may go on after the server was told to stop; then they are given back.
    pub drain: Duration,
    /// How long open connections may go on after the last push call has ended.
    pub close: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_mins(2),
            headers: 100,
            head_bytes: 32 << 10,
            streams: 200,
            batch: 1_000,
            batch_bytes: 16 << 20,
            arriving_bytes: 256 << 20,
            drain: Duration::from_secs(30),
            close: Duration::from_secs(5),
        }
    }
}
