//! Prints how limits compare in front of a dispatcher with a standing backlog, as docs/guide/dispatch.md shows it.
//!
//! Owns the printing only.

use millpond_sim::dispatch::{Algorithm, Scenario, run};

fn main() {
    for scenario in Scenario::others() {
        println!("{}", scenario.name);
        for seed in 1..=5 {
            let r = run(&scenario, Algorithm::Adaptive, seed);
            for m in [r.early, r.before, r.halved, r.doubled] {
                print!("  | {:.3} {:5.2}x {:6.1} {:.4}", m.of_capacity, m.times_unloaded, m.limit, m.refused);
            }
            println!("  {:.4} {:.4} {:?} {:?} {:?}", r.refused_before, r.refused_halved, r.started_in, r.halved_in, r.doubled_in);
        }
    }
}
