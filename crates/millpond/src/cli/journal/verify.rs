//! `millpond journal verify`: is everything there as it was written?
//!
//! Owns how findings are printed. Must never judge or change anything itself.

use super::{open, read};
use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{Column, counted, size, table};
use millpond_engine::survey::{Finding, Survey};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

pub(super) fn run(data: &Path, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let survey = read(data, &open(data)?)?;
    if json {
        document(&report(data, &survey), out)?;
    } else {
        page(data, &survey, out)?;
    }
    if survey.is_whole() {
        return Ok(());
    }
    Err(Failure::new(
        format!("the journal in {} is damaged", data.display()),
        format!(
            "restore the directory from a backup; without one, see what a repair would give up:\n\
             millpond journal repair --data {}",
            data.display()
        ),
    ))
}

fn report(data: &Path, survey: &Survey) -> Value {
    let inspection = &survey.inspection;
    json!({
        "data": data.display().to_string(),
        "whole": survey.is_whole(),
        "segments": inspection.segments.len(),
        "bytes": bytes(survey),
        "frames": inspection.frames,
        "records": inspection.records,
        "messages": survey.messages(),
        "queues": survey.queues.len(),
        "faults": survey.findings().iter().map(finding).collect::<Vec<_>>(),
        "further_faults": survey.further_findings(),
    })
}

/// A finding as JSON.
pub(super) fn finding(finding: &Finding) -> Value {
    json!({
        "segment": finding.place.map(|place| place.segment),
        "offset": finding.place.map(|place| place.offset),
        "kind": finding.kind,
        "bytes": finding.bytes,
        "frames": finding.frames,
        "records_found": finding.records_found,
        "heads_found": finding.heads_found,
        "text": finding.text,
    })
}

fn page(data: &Path, survey: &Survey, out: &mut impl Write) -> Result<(), Failure> {
    let findings = survey.findings();
    if !findings.is_empty() {
        writeln!(out, "{}", findings_table(&findings, survey.further_findings()).trim_end())?;
        writeln!(out)?;
    }
    let inspection = &survey.inspection;
    let verdict = match findings.len() as u64 + survey.further_findings() {
        0 => "whole".to_owned(),
        faults => counted(faults, "fault"),
    };
    writeln!(
        out,
        "{}: {verdict}; {} in {}, {}, {} in {}",
        data.display(),
        size(bytes(survey)),
        counted(inspection.segments.len() as u64, "segment"),
        counted(inspection.records, "record"),
        counted(survey.messages(), "message"),
        counted(survey.queues.len() as u64, "queue"),
    )?;
    Ok(())
}

/// What is wrong, place by place.
pub(super) fn findings_table(findings: &[Finding], further: u64) -> String {
    let columns = [
        Column::Number("SEGMENT"),
        Column::Number("OFFSET"),
        Column::Whole("KIND"),
        Column::Number("BYTES"),
        Column::Text("WHAT"),
    ];
    let or_none = |number: Option<u32>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
    let rows = findings.iter().map(|finding| {
        vec![
            or_none(finding.place.map(|place| place.segment)),
            or_none(finding.place.map(|place| place.offset)),
            finding.kind.to_owned(),
            finding.bytes.to_string(),
            what(finding),
        ]
    });
    let mut text = table(&columns, rows.collect());
    if further > 0 {
        let _ = writeln!(text, "and {} more", counted(further, "fault"));
    }
    text
}

fn what(finding: &Finding) -> String {
    let mut text = finding.text.clone();
    if finding.frames > 0 {
        let _ = write!(text, "; {} missing", counted(finding.frames, "frame"));
    }
    if finding.records_found > 0 {
        let _ = write!(text, "; {} in it still whole", counted(finding.records_found, "record"));
    }
    if finding.heads_found > 0 {
        let _ = write!(text, "; {} known but for the body", counted(finding.heads_found, "message"));
    }
    text
}

/// Bytes of all segment files.
pub(super) fn bytes(survey: &Survey) -> u64 {
    survey.inspection.segments.iter().map(|segment| segment.bytes).sum()
}
