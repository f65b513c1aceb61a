//! `cargo xtask fixture`: makes the fixture of the current format version anew.
//!
//! Owns the order: first the directory, then the list of what is in it. Must never be used for a version that was
//! released: such a fixture is the proof that old directories can still be read.

use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// Writes the directory and its list; nothing to report if both succeed.
pub(crate) fn make(repository: &Path) -> Result<Vec<String>> {
    run(
        repository,
        &["-p", "millpond-sim", "--test", "it", "--", "--ignored", "--exact", "fixture::write_the_fixture"],
    )?;
    run(
        repository,
        &[
            "-p",
            "millpond-engine",
            "--test",
            "it",
            "--",
            "--exact",
            "fixture::every_fixture_holds_what_is_listed_beside_it",
        ],
    )?;
    Ok(Vec::new())
}

fn run(repository: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(repository).arg("test").args(arguments).env("MILLPOND_WRITE_FIXTURE", "1");
    ensure!(command.status()?.success(), "cargo test {} failed", arguments.join(" "));
    Ok(())
}
