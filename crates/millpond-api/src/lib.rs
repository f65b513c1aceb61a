//! What goes over the wire between Millpond and those who use it.
//!
//! Owns the JSON shapes of requests and answers, the problems, and the rule that bytes travel as text or as
//! base64; the typed client, and the worker that is built on it. Must never know the engine: whoever speaks to
//! Millpond from outside needs no other crate of it.

pub mod alert;
pub mod client;
pub mod encoding;
pub mod problem;
pub mod replay;
pub mod types;
pub mod worker;
