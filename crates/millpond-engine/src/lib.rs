//! Core and journal on threads: what a program embeds.
//!
//! Owns the threads, the encoding of records and the asynchronous handle. Must never speak HTTP.

pub mod backup;
pub mod clock;
pub mod codec;
pub mod content;
pub mod engine;
pub mod handle;
mod inbox;
pub mod log;
pub mod machine;
pub mod repair;
mod room;
mod secret;
pub mod segments;
mod size;
pub mod stats;
pub mod survey;
mod threads;

pub use engine::{Engine, EngineOptions, OpenError};
pub use handle::{CallError, Calls, Delivery, Handle};
