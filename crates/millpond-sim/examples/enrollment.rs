//! The large example, whole: ten minutes at 2,000 messages a second, on virtual time.
//!
//! Shows how a program runs a scenario and reads its figures.

use millpond_sim::{simulate::simulate, workload::Scenario};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let simulation = simulate(&Scenario::enrollment(1)?, 1, &mut |_| {})?;
    #[expect(clippy::print_stdout, reason = "an example shows its result")]
    {
        println!("{:#?}", simulation.comparison.queued);
    }
    Ok(())
}
