//! `cargo xtask swarm`: the long run of the simulated swarm of faults.
//!
//! Owns how it is built: with every check, and fast. Must never link the product: chores build in seconds.

use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::Command;

/// Builds and runs the example of `millpond-sim`, handing on the arguments. A failed run is one finding.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--profile",
            "swarm",
            "--package",
            "millpond-sim",
            "--example",
            "swarm",
            "--",
        ])
        .args(arguments)
        .current_dir(root)
        .status()
        .context("cannot start `cargo run`")?;
    let failed = format!(
        "the swarm ended with {status}: its last lines say which seeds failed, and how to repeat them"
    );
    Ok(if status.success() { Vec::new() } else { vec![failed] })
}
