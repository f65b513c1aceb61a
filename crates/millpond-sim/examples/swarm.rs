//! The swarm for as long as one likes: seed after seed, until the time is over. `cargo xtask swarm` runs it.
//!
//! Owns the time box and the report. Must never know what a run does.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool for developers")]

#[path = "../tests/swarm/mod.rs"]
mod swarm;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: cargo xtask swarm [--minutes N] [--seed S [--trace]]
  --minutes N  run seed after seed for N minutes (10)
  --seed S     begin with seed S; without --minutes run this seed alone
  --trace      print every input, effect and disk operation of that seed";
/// How often the state of a long run is told.
const TELL_EVERY: Duration = Duration::from_secs(30);

struct Wishes {
    first: u64,
    /// `None`: one seed.
    time: Option<Duration>,
    traced: bool,
}

fn wishes() -> Option<Wishes> {
    let (mut seed, mut minutes, mut traced) = (None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => seed = Some(arguments.next()?.parse().ok()?),
            "--minutes" => minutes = Some(arguments.next()?.parse::<u64>().ok()?),
            "--trace" => traced = true,
            _ => return None,
        }
    }
    let time = match (seed, minutes) {
        (Some(_), None) => None,
        (_, minutes) => Some(Duration::from_mins(minutes.unwrap_or(10))),
    };
    Some(Wishes { first: seed.unwrap_or_else(seed_of_today), time, traced: traced && time.is_none() })
}

/// Another one at every start; it is printed, so a run can be repeated.
#[expect(clippy::disallowed_methods, reason = "where a long run begins is no part of any run")]
fn seed_of_today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() << 20)
}

#[expect(clippy::disallowed_methods, reason = "the time box is real; what runs in it is not")]
fn main() -> ExitCode {
    let Some(wishes) = wishes() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("from seed {}", wishes.first);
    let began = Instant::now();
    let mut told = began;
    let mut marks = swarm::Marks::default();
    let (mut runs, mut steps, mut failed) = (0_u64, 0, Vec::new());
    loop {
        let seed = wishes.first.wrapping_add(runs);
        if let Ok(report) = catch_unwind(|| swarm::run(seed, wishes.traced)) {
            marks.add(&report.marks);
            steps += report.steps;
            if wishes.time.is_none() {
                println!("{}{:?}", report.trace.unwrap_or_default(), report.summary);
            }
        } else {
            eprintln!("seed {seed} failed; again with: cargo xtask swarm --seed {seed}");
            failed.push(seed);
        }
        runs += 1;
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            println!("{}", progress(runs, steps, failed.len(), began.elapsed()));
        }
        if wishes.time.is_none_or(|time| began.elapsed() >= time) {
            break;
        }
    }
    if wishes.time.is_some() {
        println!("{marks}never reached: {:?}", marks.missing());
    }
    println!("{}", progress(runs, steps, failed.len(), began.elapsed()));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("add to crates/millpond-sim/tests/regressions.txt: {failed:?}");
    ExitCode::FAILURE
}

fn progress(runs: u64, steps: u64, failed: usize, time: Duration) -> String {
    let per_second = runs as f64 / time.as_secs_f64();
    format!("{runs} seeds, {per_second:.1} seeds/s, {steps} events seen, {failed} failed")
}
