//! The queue state machine of Millpond: pure rules, data in and data out.
//!
//! Owns the domain types, a message's life, bounds, pacing, retry and forecast. Must never do I/O, read a
//! clock, draw randomness from the operating system, or know HTTP or threads: time and chance are arguments.

pub mod alert;
pub mod breaker;
pub mod callback;
pub mod command;
pub mod forecast;
pub mod identity;
pub mod limit;
pub mod message;
pub mod name;
pub mod notice;
pub mod pond;
pub mod ramp;
pub mod rate;
pub mod record;
pub mod replay;
pub mod scaling;
pub mod settings;
pub mod stats;
pub mod time;
