//! Prints how limits compare in front of a dispatcher with a standing backlog, as docs/guide/dispatch.md shows it.
//!
//! Owns the printing only.

use millpond_sim::dispatch::{Algorithm, Scenario, run};

fn main() {
    for scenario in [Scenario::usual(), Scenario::refusing()] {
        for algorithm in Algorithm::ALL {
            let r = run(&scenario, algorithm, 1);
            println!("{} {}\n  {:?}\n  {:?}\n  {:?}\n  {:?}\n  {} {} {:?} {:?} {:?}", scenario.name, algorithm.name(), r.early, r.before, r.halved, r.doubled, r.refused_before, r.refused_halved, r.started_in, r.halved_in, r.doubled_in);
        }
    }
    for scenario in Scenario::others() {
        for seed in 1..=3 {
            let r = run(&scenario, Algorithm::Adaptive, seed);
            println!("{} \n  {:?}\n  {:?}\n  {:?}\n  {:?}\n  {} {} {:?} {:?} {:?}", scenario.name, r.early, r.before, r.halved, r.doubled, r.refused_before, r.refused_halved, r.started_in, r.halved_in, r.doubled_in);
        }
    }
}
