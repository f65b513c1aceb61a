//! Behaviour of the pond as its users see it, rule by rule, and against a reference model over random runs.
//!
//! Owns nothing but tests. Must never read a clock: time is what a test says it is.
#![expect(
    clippy::unwrap_used,
    clippy::unchecked_time_subtraction,
    reason = "a test that goes wrong may panic"
)]

mod alerts;
mod blocking;
mod bounds;
mod breaker;
mod callbacks;
mod callbacks_room;
mod dead_letters;
mod edges;
mod fairness;
mod faults;
mod forecast;
mod freshness;
mod fuzz;
mod groups;
mod held;
mod isolation;
mod keys;
mod leases;
mod life;
mod limit;
mod order;
mod order_faults;
mod overflow;
mod pace;
mod prefetch;
mod promises;
mod promises_adaptive;
mod purge;
mod push;
mod ramp;
mod random_runs;
mod refusals;
mod replay;
mod restart;
mod restart_targets;
mod rig;
mod scaling;
mod settings;
mod throttling;
mod words;
mod world;
