//! `millpond journal backup`: a copy that a server opens.
//!
//! Owns how it is told. Must never touch the original, nor leave half a copy under the name of a whole one.

use super::verify::bytes;
use super::{Progress, open};
use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{counted, size};
use millpond_engine::backup::back_up;
use serde_json::json;
use std::io::Write;
use std::path::Path;

pub(super) fn run(data: &Path, destination: &Path, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let mut progress = Progress::new(&open(data)?);
    let copied = back_up(data, destination, &mut progress);
    progress.finish();
    let survey = copied.map_err(|error| Failure::Failed { text: error.to_string(), help: None })?;
    if json {
        let report = json!({
            "data": data.display().to_string(),
            "backup": destination.display().to_string(),
            "bytes": bytes(&survey),
            "segments": survey.inspection.segments.len(),
            "messages": survey.messages(),
        });
        return document(&report, out);
    }
    writeln!(
        out,
        "{}: {} of {}, read back and whole. Serve it with: millpond serve --data {}",
        destination.display(),
        counted(survey.messages(), "message"),
        size(bytes(&survey)),
        destination.display()
    )?;
    Ok(())
}
