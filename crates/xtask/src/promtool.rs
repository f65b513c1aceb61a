//! `cargo xtask promtool`: what Prometheus itself says of the rules, the dashboard and the metrics.
//!
//! Owns where promtool comes from: an installed one, else the one in Debian's package, unpacked below `target`. Must
//! never install anything, nor start a service.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the tests that need promtool. Where there is none and none can be had, that is said, and nothing is checked.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let Some(promtool) = found(root)? else {
        println!("promtool cannot be had here: rules, dashboard and metrics are NOT checked by Prometheus");
        return Ok(Vec::new());
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root)
        .args([
            "test",
            "--locked",
            "--package",
            "millpond-server",
            "--test",
            "it",
            "promtool::",
            "--",
            "--ignored",
        ])
        .env("PROMTOOL", &promtool)
        .status()
        .context("cannot start `cargo test`")?;
    Ok(if status.success() {
        Vec::new()
    } else {
        vec!["promtool is not content; what it says is above".to_owned()]
    })
}

fn found(root: &Path) -> Result<Option<PathBuf>> {
    let named = std::env::var_os("PROMTOOL").map(PathBuf::from);
    let fetched = root.join("target/promtool/promtool");
    let known = named.into_iter().chain([PathBuf::from("promtool"), fetched.clone()]);
    if let Some(known) = known.into_iter().find(|program| runs(program)) {
        return Ok(Some(known));
    }
    Ok(if fetch(&fetched)? { Some(fetched) } else { None })
}

fn runs(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Takes promtool out of Debian's package; false where there is no such package.
fn fetch(program: &Path) -> Result<bool> {
    let directory = program.parent().context("the program lies in a directory")?;
    let unpacked = directory.join("unpacked");
    std::fs::create_dir_all(&unpacked).with_context(|| format!("cannot create {}", unpacked.display()))?;
    let apt = |arguments: &[&str]| {
        let done = Command::new("apt-get").current_dir(directory).args(arguments).output();
        done.is_ok_and(|done| done.status.success())
    };
    // The lists of packages may be missing, and only root can have them fetched.
    let download = || apt(&["download", "prometheus"]);
    let is_there = download() || (apt(&["update"]) && download());
    if !is_there {
        return Ok(false);
    }
    let files =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut packages = files.filter_map(Result::ok).map(|entry| entry.path());
    let Some(package) = packages.find(|path| path.extension().is_some_and(|extension| extension == "deb"))
    else {
        bail!("apt-get has left no package in {}", directory.display());
    };
    let status =
        Command::new("dpkg").arg("-x").args([&package, &unpacked]).status().context("dpkg cannot be run")?;
    if !status.success() {
        bail!("dpkg cannot unpack {}", package.display());
    }
    let from = unpacked.join("usr/bin/promtool");
    std::fs::rename(&from, program).with_context(|| format!("there is no {}", from.display()))?;
    std::fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    std::fs::remove_file(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    Ok(runs(program))
}
