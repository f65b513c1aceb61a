//! `cargo xtask mutants`: whether the core's tests notice when the core's changed code does something else.
//!
//! Owns how `cargo-mutants` is called. Must never install it: it says how.

use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// What is mutated: the state machine and what it rests on.
const MUTATED: &str = "crates/millpond-core/src";
/// Seconds after which a mutant that makes the tests hang counts as noticed: some ten times what they take.
const TIMEOUT_SECONDS: &str = "300";

/// Runs of a random test per mutant: what needs more of them to be noticed is noticed by chance.
const RANDOM_RUNS: &str = "300";

/// What of the core is mutated.
pub(crate) enum Part<'name> {
    /// What has changed since this revision.
    Since(&'name str),
    /// Files by this glob.
    Files(&'name str),
}

impl Part<'static> {
    /// Everything.
    pub(crate) const ALL: Self = Self::Files("**/*.rs");
}

/// Mutates a part of the core and returns the mutants that no test noticed. What no test can notice is listed in
/// `.cargo/mutants.toml`.
pub(crate) fn check(root: &Path, part: &Part<'_>) -> Result<Vec<String>> {
    let installed = Command::new("cargo").args(["mutants", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        bail!("cargo-mutants is not installed: cargo install --locked cargo-mutants");
    }
    let scratch = root.join("target/mutants");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let mut mutants = Command::new("cargo");
    mutants.current_dir(root).args(["mutants", "--package", "millpond-core", "--no-shuffle"]);
    mutants.args(["--timeout", TIMEOUT_SECONDS, "--output"]).arg(&scratch);
    mutants.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    if std::env::var_os("PROPTEST_CASES").is_none() {
        mutants.env("PROPTEST_CASES", RANDOM_RUNS);
    }
    match part {
        Part::Since(base) => {
            let diff = diff(root, base)?;
            if diff.is_empty() {
                return Ok(Vec::new());
            }
            let file = scratch.join("changes.diff");
            std::fs::write(&file, diff).with_context(|| format!("cannot write {}", file.display()))?;
            mutants.arg("--in-diff").arg(file);
        }
        Part::Files(glob) => {
            mutants.args(["--file", &format!("{MUTATED}/{glob}")]);
        }
    }
    let status = mutants.status().context("cargo mutants cannot be run")?;
    match status.code() {
        // All noticed; some not; some by their time-out only.
        Some(0 | 2 | 3) => survivors(&scratch),
        _ => bail!("cargo mutants could not do its work ({status}); what it says is above"),
    }
}

/// The changes to the core since `base`, committed or not.
fn diff(root: &Path, base: &str) -> Result<Vec<u8>> {
    let diff = Command::new("git")
        .current_dir(root)
        .args(["diff", "--no-ext-diff", "--merge-base", base, "--", MUTATED])
        .output()
        .context("git cannot be run")?;
    if !diff.status.success() {
        bail!("git knows no {base:?}: {}", String::from_utf8_lossy(&diff.stderr).trim());
    }
    Ok(diff.stdout)
}

fn survivors(scratch: &Path) -> Result<Vec<String>> {
    let missed = scratch.join("mutants.out/missed.txt");
    // Nothing to mutate leaves no list.
    if !missed.exists() {
        return Ok(Vec::new());
    }
    let text =
        std::fs::read_to_string(&missed).with_context(|| format!("cannot read {}", missed.display()))?;
    Ok(text.lines().map(|line| format!("no test notices: {line}")).collect())
}
