//! `cargo xtask <chore>`: the checks of this repository that no published tool makes.
//!
//! Owns the choice of the chore and the exit code. The checks must never change a file: they report, people decide.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool for developers")]

mod deps;
mod faults;
mod fixture;
mod fuzz;
mod mutants;
mod promtool;
#[cfg(test)]
mod proto;
mod swarm;
mod tidy;

use anyhow::{Context as _, Result, bail};
use mutants::Part;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <deps|tidy|promtool|mutants|swarm|fixture|fuzz>
  deps             the crates depend on each other only in the directions of the design
  tidy             sizes of files and functions, file headers, markers, machine paths, named tests
  promtool         what Prometheus says of alert rules, dashboard and metrics; fetches promtool if it is absent
  mutants [BASE]   the core's tests notice whatever is changed in what has changed since BASE (origin/main)
  mutants --all    the same for the whole core: hours; --file GLOB for files of it, as in pond/order/*.rs
  swarm            the engine under a swarm of faults, seed after seed [--minutes N] [--seed S]
  fixture          makes the data directory anew that is kept for the current format version
  fuzz             new mutations of the corpora [--minutes N] [TARGET]; what fails is added to the corpus";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(findings) if findings.is_empty() => {
            println!("{}: ok", arguments.join(" "));
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("{}: {} to put right", arguments.join(" "), findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<Vec<String>> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["deps"] => deps::check(&repository()?),
        ["swarm", ref rest @ ..] => swarm::run(&repository()?, rest),
        ["promtool"] => promtool::check(&repository()?),
        ["tidy"] => tidy::check(&repository()?),
        ["mutants"] => mutants::check(&repository()?, &Part::Since("origin/main")),
        ["mutants", "--all"] => mutants::check(&repository()?, &Part::ALL),
        ["mutants", "--file", glob] => mutants::check(&repository()?, &Part::Files(glob)),
        ["mutants", base] => mutants::check(&repository()?, &Part::Since(base)),
        ["fixture"] => fixture::make(&repository()?),
        ["fuzz", ref more @ ..] => fuzz::run(&repository()?, more),
        _ => bail!(USAGE),
    }
}

/// The root of the repository: two levels above this crate, wherever the command was called.
fn repository() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    root.canonicalize()
        .with_context(|| format!("{} does not exist any more: build xtask again", root.display()))
}
