//! `cargo xtask fuzz [--minutes N] [target]`: the fuzz targets for longer, each time with other mutations.
//!
//! Owns the list of targets and how the time is shared. Must never judge: each target is a test of its crate.

use anyhow::{Context as _, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name, crate and test of every target.
const TARGETS: &[(&str, &str)] = &[
    ("journal", "millpond-journal"),
    ("index", "millpond-journal"),
    ("record", "millpond-engine"),
    ("identity", "millpond-core"),
    ("http", "millpond-server"),
    ("configuration", "millpond-config"),
    ("settings", "millpond-config"),
    ("quantity", "millpond-config"),
];
const MINUTES: u64 = 10;
/// More memory than any input deserves, in KiB: a length field that is believed ends here.
const MEMORY_KIB: u64 = 6 << 20;

pub(crate) fn run(repository: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let (minutes, wanted) = match arguments {
        ["--minutes", minutes, rest @ ..] => {
            (minutes.parse().with_context(|| format!("--minutes takes a whole number, not {minutes}"))?, rest)
        }
        rest => (MINUTES, rest),
    };
    let targets: Vec<_> =
        TARGETS.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name)).collect();
    if targets.is_empty() {
        bail!("the targets are {}", TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "));
    }
    let seconds = (minutes * 60 / targets.len() as u64).max(1);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut findings = Vec::new();
    for (name, package) in targets {
        if !fuzz(repository, name, package, seconds, seed)? {
            findings.push(format!("{name}: failed with seed {seed}; the input is in fuzz/corpus/{name}"));
        }
    }
    Ok(findings)
}

/// Runs one target; whether it held.
fn fuzz(repository: &Path, name: &str, package: &str, seconds: u64, seed: u64) -> Result<bool> {
    let test = format!("fuzz::{name}");
    let built = cargo(repository, &format!("test -p {package} --test it --no-run")).status()?;
    ensure!(built.success(), "the tests of {package} do not build");
    let mut command =
        cargo(repository, &format!("test -p {package} --test it -- --exact {test} --nocapture"));
    command.env("MILLPOND_FUZZ_SECONDS", seconds.to_string()).env("MILLPOND_FUZZ_SEED", seed.to_string());
    Ok(command.status()?.success())
}

/// Cargo under a bound on memory.
fn cargo(repository: &Path, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    let line = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" {arguments}");
    command.current_dir(repository).args(["-c", &line, env!("CARGO")]);
    command
}
