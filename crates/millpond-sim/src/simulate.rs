//! `millpond simulate`: both halves of a scenario on virtual time.
//!
//! Owns putting them together. Must never print.

use crate::chart::Series;
use crate::direct::simulate_direct;
use crate::outcome::Comparison;
use crate::queued::{SimulationError, simulate_queued};
use crate::workload::Scenario;
use std::time::Duration;

/// How long the direct half goes on after its spike.
const AFTERMATH: Duration = Duration::from_secs(20);

/// What a simulation shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The figures of both halves.
    pub comparison: Comparison,
    /// The queued half over time.
    pub series: Series,
}

/// Runs `scenario` directly and through the queue. `progress` hears now and then how many seconds of virtual time
/// the queued half has reached. The same seed gives the same result.
pub fn simulate(
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<Simulation, SimulationError> {
    let direct = simulate_direct(scenario, AFTERMATH);
    let (queued, series) = simulate_queued(scenario, seed, progress)?;
    Ok(Simulation { comparison: Comparison { scenario: scenario.name, direct, queued }, series })
}
