//! A server killed again and again under load, at its work and at its start.
//!
//! Owns the kills. Choices are seeded (`MILLPOND_TORTURE_SEED`, `MILLPOND_TORTURE_ROUNDS`), processes and their timing
//! are real. Must never judge anything itself: the history checker does.

use crate::load::{Load, run};
use crate::process::Server;
use millpond_testkit::history::Event;
use std::time::Duration;

const PRODUCERS: u64 = 64;
const WORKERS: u64 = 12;
/// A server is killed within this time of its start, when it may be at any step of its recovery.
const RECOVERY_MICROS: u64 = 60_000;

/// Kills the server `rounds` times, each time after some more answers, and up to three of its successors before they
/// serve; returns the last one, alive.
async fn kill_again_and_again(load: &mut Load, rounds: u64) -> Server {
    for _ in 0..rounds {
        for _ in 0..load.chance.u32(..4) {
            let mut young = load.command().spawn().unwrap();
            tokio::time::sleep(Duration::from_micros(load.chance.u64(..RECOVERY_MICROS))).await;
            young.kill().unwrap();
            young.wait().unwrap();
        }
        let server = Server::await_start(load.command());
        load.serve(&server);
        let goal = load.chance.u64(50..900);
        load.answers(goal).await;
        // Dropping it sends SIGKILL; its users find out by themselves.
        drop(server);
        load.history.note(Event::Death { at: load.history.now() });
    }
    Server::await_start(load.command())
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_server_that_is_killed_twenty_times_loses_nothing_invents_nothing_and_drains() {
    let seed = number("MILLPOND_TORTURE_SEED", 2026);
    let rounds = number("MILLPOND_TORTURE_ROUNDS", 20);
    println!("seed {seed}, {rounds} rounds");
    run(async {
        let mut load = Load::start(seed, PRODUCERS, WORKERS);
        let server = kill_again_and_again(&mut load, rounds).await;
        load.serve(&server);
        load.judge(server).await
    });
}
