//! `millpond journal stats`: what the journal holds.
//!
//! Owns how it is printed. Must never change anything.

use super::verify::bytes;
use super::{open, read};
use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{Column, Fields, NONE, counted, duration, line, size, table};
use millpond_engine::survey::{PHASES, Survey, SurveyedQueue};
use millpond_journal::ReadOnlyDirectory;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// Segments listed on the terminal; JSON has all.
const SEGMENTS_SHOWN: usize = 20;

pub(super) fn run(data: &Path, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let directory = open(data)?;
    let survey = read(data, &directory)?;
    let oldest_age_seconds = oldest_age_seconds(&survey, &directory);
    if json {
        return document(&report(data, &survey, oldest_age_seconds), out);
    }
    write!(out, "{}", summary(data, &survey, oldest_age_seconds).render())?;
    writeln!(out, "\n{}", segments(&survey).trim_end())?;
    if !survey.kinds.is_empty() {
        writeln!(out, "\n{}", kinds(&survey).trim_end())?;
    }
    if !survey.queues.is_empty() {
        writeln!(out, "\n{}", queues(&survey).trim_end())?;
    }
    Ok(())
}

/// How long ago the oldest segment was last written. `None` where the file system does not say.
fn oldest_age_seconds(survey: &Survey, directory: &ReadOnlyDirectory) -> Option<f64> {
    let oldest = survey.inspection.segments.first()?;
    let written = directory.modified(oldest.number).ok()?;
    Some(written.elapsed().unwrap_or_default().as_secs_f64())
}

fn report(data: &Path, survey: &Survey, oldest_age_seconds: Option<f64>) -> Value {
    let inspection = &survey.inspection;
    let segments = inspection.segments.iter().map(|segment| {
        json!({
            "number": segment.number,
            "bytes": segment.bytes,
            "used_bytes": segment.used_bytes,
            "live_bytes": survey.live_bytes_by_segment.get(&segment.number).copied().unwrap_or(0),
            "frames": segment.frames,
            "records": segment.records,
            "epoch": segment.epoch,
        })
    });
    json!({
        "data": data.display().to_string(),
        "whole": survey.is_whole(),
        "bytes": bytes(survey),
        "live_bytes": survey.live_bytes,
        "record_bytes": survey.record_bytes,
        "records": inspection.records,
        "frames": inspection.frames,
        "epoch": inspection.epoch,
        "messages": survey.messages(),
        "oldest_segment_age_seconds": oldest_age_seconds,
        "segments": segments.collect::<Vec<_>>(),
        "records_by_kind": survey.kinds,
        "queues": survey.queues.values().map(queue).collect::<Vec<_>>(),
    })
}

fn queue(queue: &SurveyedQueue) -> Value {
    let record = queue.record.as_ref();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(record.map(|record| record.name.as_str())));
    fields.insert("paused".to_owned(), json!(record.is_some_and(|record| record.paused)));
    fields.insert("deleted".to_owned(), json!(record.is_some_and(|record| record.deleted)));
    fields.insert("bytes".to_owned(), json!(queue.bytes));
    for phase in PHASES.map(millpond_core::message::Phase::as_str) {
        fields.insert(phase.to_owned(), json!(queue.messages.get(phase).copied().unwrap_or(0)));
    }
    Value::Object(fields)
}

fn summary(data: &Path, survey: &Survey, oldest_age_seconds: Option<f64>) -> Fields {
    let inspection = &survey.inspection;
    let mut fields = Fields::default();
    fields.add("data", data.display().to_string());
    fields
        .add("state", if survey.is_whole() { "whole" } else { "damaged: millpond journal verify says how" });
    fields.add("on disk", size(bytes(survey)));
    fields
        .add("live", format!("{} of {} records' bytes", size(survey.live_bytes), size(survey.record_bytes)));
    fields.add("messages", survey.messages().to_string());
    fields.add("starts", format!("{} so far", inspection.epoch));
    fields.add_if(
        "oldest segment",
        oldest_age_seconds.map(|age| format!("last written {} ago", duration(age))),
    );
    fields
}

fn segments(survey: &Survey) -> String {
    let columns = ["SEGMENT", "BYTES", "USED", "LIVE", "RECORDS", "EPOCH"].map(Column::Number);
    let segments = &survey.inspection.segments;
    let row = |segment: &millpond_journal::inspect::InspectedSegment| {
        let live = survey.live_bytes_by_segment.get(&segment.number).copied().unwrap_or(0);
        vec![
            segment.number.to_string(),
            size(segment.bytes),
            size(segment.used_bytes),
            size(live),
            segment.records.to_string(),
            if segment.epoch == 0 { NONE.to_owned() } else { segment.epoch.to_string() },
        ]
    };
    let mut text = table(&columns, segments.iter().take(SEGMENTS_SHOWN).map(row).collect());
    if segments.len() > SEGMENTS_SHOWN {
        let more = counted((segments.len() - SEGMENTS_SHOWN) as u64, "segment");
        let _ = writeln!(text, "and {more} more; --json lists them all");
    }
    text
}

fn kinds(survey: &Survey) -> String {
    let columns = [Column::Text("RECORDS OF KIND"), Column::Number("COUNT")];
    let rows = survey.kinds.iter().map(|(kind, count)| vec![(*kind).to_owned(), count.to_string()]);
    table(&columns, rows.collect())
}

fn queues(survey: &Survey) -> String {
    let columns = [
        Column::Whole("QUEUE"),
        Column::Number("READY"),
        Column::Number("DELAYED"),
        Column::Number("LEASED"),
        Column::Number("BACKOFF"),
        Column::Number("DEAD"),
        Column::Number("FINISHED"),
        Column::Number("BYTES"),
    ];
    let row = |(number, queue): (&u32, &SurveyedQueue)| {
        let count = |phase: &str| queue.messages.get(phase).copied().unwrap_or(0);
        let finished: u64 = ["succeeded", "expired", "cancelled", "dropped"].map(count).into_iter().sum();
        let mut row = vec![name(*number, queue)];
        row.extend(["ready", "delayed", "leased", "backoff", "dead"].map(|phase| count(phase).to_string()));
        row.extend([finished.to_string(), size(queue.bytes)]);
        row
    };
    table(&columns, survey.queues.iter().map(row).collect())
}

/// A queue's name; what is known of one whose record is lost.
pub(super) fn name(number: u32, queue: &SurveyedQueue) -> String {
    match &queue.record {
        Some(record) if record.deleted => format!("{} (deleted)", line(record.name.as_str())),
        Some(record) => line(record.name.as_str()),
        None => format!("number {number} (name lost)"),
    }
}
