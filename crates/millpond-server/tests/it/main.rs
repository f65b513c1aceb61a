//! The server over real sockets, with a real engine and real targets.
//!
//! Owns the end-to-end tests of this crate. Must never sleep to wait: tests wait for answers, or look again and again
//! until a condition holds.

#![expect(clippy::unwrap_used, reason = "tests")]

mod alerts;
mod answers;
mod backend;
mod blocking;
mod callbacks;
mod careless;
mod consumers;
mod cors;
mod departed;
mod events;
mod faults;
mod fuzz;
mod harness;
mod input;
mod labels;
mod life;

mod nasty;
mod order;
mod overflow;
mod problems;
mod promtool;
mod push;
mod replays;
mod routes;
mod scaler;
mod stop;
mod targets;
