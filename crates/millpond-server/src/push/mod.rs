//! Pushing messages to targets.
//!
//! Owns the calls and their outcomes. Must never decide how many run at once or when: the engine says so, and waits
//! for exactly one word on each call.

mod address;
pub(crate) mod client;
mod connect;
pub(crate) mod driver;
mod fault;
mod multiplexed;
pub(crate) mod outcome;

pub(crate) use outcome::retry_after;
