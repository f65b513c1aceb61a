//! Millpond over HTTP: the front door, the status of messages, the workers' API, push, metrics.
//!
//! Owns everything between a socket and the engine. Must never hold a rule of the queue: those are the engine's.

mod alerts;
mod answers;
mod bodies;
mod callbacks;
mod connections;
mod cors;
mod dead;
mod enqueue;
mod errors;
mod events;
pub mod export;
mod guard;
mod hand_over;
mod headers;
mod json;
mod labels;
mod limits;
mod metrics;
mod pages;
mod paths;
mod push;
mod queues;
mod replays;
mod router;
mod routes;
mod scaler;
mod schemas;
mod serve;
mod shared;
mod signature;
mod status;
mod targets;
mod tls;
mod unrepeated;
pub mod view;
mod waiting;
mod workers;

pub use limits::Limits;
pub use serve::{Listeners, ServeError, ServerOptions, check_targets, serve};
pub use tls::TlsError;
