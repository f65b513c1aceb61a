//! Millpond on virtual time: simulation, planning, reports.
//!
//! Owns workloads, the planner, the direct path, charts and what a run is compared with. Must never fork the
//! engine's logic: the queued half of a simulation runs the engine itself.

pub mod chart;
pub mod direct;
pub mod dispatch;
pub mod host;
pub mod outcome;
pub mod plan;
pub mod promises;
pub mod queued;
pub mod scaling;
pub mod simulate;
pub mod text;
pub mod workload;
