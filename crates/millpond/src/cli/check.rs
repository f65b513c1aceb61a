//! `millpond check`: is this configuration right?
//!
//! Owns how findings are printed. Must never judge a setting itself.

use super::arguments;
use super::failure::{Failure, tell};
use super::render::counted;
use clap::Args;
use millpond_config::{ConfigurationError, Diagnostic, Loaded, Severity};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Check a configuration file without starting anything
///
/// Reads the file and reports everything that is wrong with it at once: unknown keys (with the nearest one that
/// exists), values out of range, settings that do not go together. Each finding shows the line and says what to do.
/// Warnings are settings that work but probably do not do what was meant; they do not fail the check.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond check                      the millpond.toml in this directory\n  \
        millpond check --config prod.toml   exit code 1 if it is wrong\n  \
        millpond check --json | jq .valid")]
pub(crate) struct Check {
    /// Configuration file [default: millpond.toml here]
    #[arg(long, env = "MILLPOND_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document: valid, findings
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let path = arguments::configuration(self.config.as_deref()).ok_or_else(|| {
            Failure::usage(
                "there is no millpond.toml in this directory",
                "name the file with --config, or start without one: every key has a default",
            )
        })?;
        let (result, findings) = match millpond_config::load(&path) {
            Ok(loaded) => {
                let targets = millpond_server::check_targets(&loaded.configuration);
                (targets.map(|()| loaded).map_err(|error| format!("error: {error}")), Vec::new())
            }
            Err(ConfigurationError::Invalid(invalid)) => (Err(invalid.to_string()), invalid.diagnostics),
            Err(error) => (Err(format!("error: {error}")), Vec::new()),
        };
        if self.json {
            let findings = result.as_ref().map_or(&findings, |loaded| &loaded.warnings);
            let document = json!({
                "file": path.display().to_string(),
                "valid": result.is_ok(),
                "findings": findings.iter().map(finding).collect::<Vec<_>>(),
            });
            writeln!(out, "{document:#}")?;
        } else if let Ok(loaded) = &result {
            print_valid(out, &path.display().to_string(), loaded)?;
        }
        result
            .map(drop)
            .map_err(|text| if self.json && !findings.is_empty() { Failure::Told } else { told(&text) })
    }
}

fn print_valid(out: &mut impl Write, file: &str, loaded: &Loaded) -> Result<(), Failure> {
    for warning in &loaded.warnings {
        writeln!(out, "{warning}\n")?;
    }
    let configuration = &loaded.configuration;
    writeln!(
        out,
        "{file}: valid; {}, {}, {}",
        counted(configuration.queues.len() as u64, "queue"),
        counted(configuration.targets.len() as u64, "target"),
        counted(loaded.warnings.len() as u64, "warning")
    )?;
    Ok(())
}

/// The findings are complete messages: they get no further prefix.
fn told(text: &str) -> Failure {
    tell(text);
    Failure::Told
}

fn finding(diagnostic: &Diagnostic) -> Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    json!({
        "severity": severity, "line": diagnostic.line, "column": diagnostic.column, "key": diagnostic.key,
        "value": diagnostic.value, "problem": diagnostic.problem, "help": diagnostic.help,
    })
}
