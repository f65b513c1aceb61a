//! `millpond journal repair`: make a damaged directory open again.
//!
//! Owns how the loss is told, before and after. Must never change anything without `--accept-loss`.

use super::stats::name;
use super::verify::{finding, findings_table};
use super::{Progress, open, unreadable};
use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{Column, counted, table};
use millpond_core::identity::Seq;
use millpond_engine::repair::{Repair, RepairError, Repaired, repair_directory, survey_of_damage};
use millpond_engine::survey::{LostMessage, Survey, UnknownNumbers};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Messages listed on the terminal; JSON has all that are known.
const MESSAGES_SHOWN: usize = 20;
/// Ranges of numbers shown there; JSON has all of them.
const RANGES_SHOWN: usize = 4;

pub(super) fn run(data: &Path, accept_loss: bool, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    // Before anything is locked or made: a mistyped name must not create a directory.
    let directory = open(data)?;
    if !accept_loss {
        let mut progress = Progress::new(&directory);
        let survey = survey_of_damage(&directory, &mut progress);
        progress.finish();
        return explain(data, &survey.map_err(|error| unreadable(data, &error))?, json, out);
    }
    let mut progress = Progress::new(&directory);
    let repaired = repair_directory(data, &mut progress);
    progress.finish();
    match repaired.map_err(|error| not_repaired(data, &error))? {
        Repair::Whole(_) => nothing_to_do(data, json, out),
        Repair::Finished { aside } => {
            if json {
                let (data, aside) = (data.display().to_string(), aside.display().to_string());
                return document(&json!({"data": data, "repaired": true, "aside": aside}), out);
            }
            writeln!(
                out,
                "{}: the repair that was interrupted is finished; the damaged files are in {}",
                data.display(),
                aside.display()
            )?;
            Ok(())
        }
        Repair::Done(repaired) => done(data, &repaired, json, out),
    }
}

fn nothing_to_do(data: &Path, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return document(&json!({"data": data.display().to_string(), "repaired": false, "whole": true}), out);
    }
    writeln!(out, "{}: whole; there is nothing to repair", data.display())?;
    Ok(())
}

/// What a repair would give up.
fn explain(data: &Path, survey: &Survey, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if survey.is_whole() {
        return nothing_to_do(data, json, out);
    }
    if json {
        let mut report = loss(survey);
        report["data"] = json!(data.display().to_string());
        report["repaired"] = json!(false);
        document(&report, out)?;
    } else {
        write!(out, "{}", page(survey))?;
    }
    Err(Failure::new(
        "nothing was changed",
        format!(
            "restore the directory from a backup if there is one; to give up what is listed above and keep the rest:\n\
             millpond journal repair --data {} --accept-loss",
            data.display()
        ),
    ))
}

fn done(data: &Path, repaired: &Repaired, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let recovered = repaired.recovered_queues.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>();
    if json {
        let mut report = loss(&repaired.before);
        report["data"] = json!(data.display().to_string());
        report["repaired"] = json!(true);
        report["aside"] = json!(repaired.aside.display().to_string());
        report["messages_kept"] = json!(repaired.after.messages());
        report["recovered_queues"] = json!(recovered);
        report["new_secret"] = json!(repaired.new_secret);
        return document(&report, out);
    }
    write!(out, "{}", page(&repaired.before))?;
    for name in recovered {
        writeln!(out, "A queue whose name and settings are lost is now called {name}.")?;
    }
    if repaired.new_secret {
        writeln!(
            out,
            "A new secret was drawn: ids, receipts and status links that were given out mean nothing any more."
        )?;
    }
    writeln!(
        out,
        "{}: repaired; {} kept. The damaged files are in {}: delete them once nobody misses anything.",
        data.display(),
        counted(repaired.after.messages(), "message"),
        repaired.aside.display()
    )?;
    Ok(())
}

fn not_repaired(data: &Path, error: &RepairError) -> Failure {
    match error {
        RepairError::Storage(millpond_journal::LocalStorageError::InUse { .. }) => Failure::new(
            error.to_string(),
            "stop the server first (it writes to this very journal), then repair and start it again",
        ),
        RepairError::Journal(error) => unreadable(data, error),
        _ => Failure::Failed { text: error.to_string(), help: None },
    }
}

/// The loss as JSON.
fn loss(survey: &Survey) -> Value {
    let lost = survey.lost.iter().map(
        |lost| json!({"id": id(survey, lost.seq), "number": lost.seq.0, "queue": queue_of(survey, lost)}),
    );
    let unknown = survey
        .unknown
        .iter()
        .map(|range| json!({"first": range.first.0, "last": range.last.map(|last| last.0)}));
    let uncertain = survey
        .queues
        .iter()
        .filter(|(_, queue)| queue.uncertain > 0)
        .map(|(number, queue)| json!({"queue": name(*number, queue), "messages": queue.uncertain}));
    json!({
        "faults": survey.findings().iter().map(finding).collect::<Vec<_>>(),
        "further_faults": survey.further_findings(),
        "lost": lost.collect::<Vec<_>>(),
        "lost_total": survey.lost.len(),
        "unknown_numbers": unknown.collect::<Vec<_>>(),
        "unidentified_max": survey.unidentified_max,
        "uncertain": uncertain.collect::<Vec<_>>(),
    })
}

fn id(survey: &Survey, seq: Seq) -> Option<String> {
    survey.keys().map(|keys| keys.id(seq).to_string())
}

fn queue_of(survey: &Survey, lost: &LostMessage) -> Option<String> {
    let number = lost.queue?.0;
    Some(survey.queues.get(&number).map_or_else(|| format!("number {number}"), |queue| name(number, queue)))
}

/// The loss for people.
fn page(survey: &Survey) -> String {
    let mut sections = vec![findings_table(&survey.findings(), survey.further_findings())];
    sections.push(named(survey));
    sections.push(unnamed(survey));
    let columns = [Column::Text("QUEUE"), Column::Number("MAY BE DONE AGAIN")];
    let uncertain = survey.queues.iter().filter(|(_, queue)| queue.uncertain > 0);
    let rows: Vec<_> =
        uncertain.map(|(number, queue)| vec![name(*number, queue), queue.uncertain.to_string()]).collect();
    if !rows.is_empty() {
        sections.push(format!(
            "{}These are unfinished messages that nothing is known of since the damage: what happened to them then is \
             lost, so they may come back to an earlier state and be done again.\n",
            table(&columns, rows)
        ));
    }
    sections.retain(|section| !section.trim().is_empty());
    sections.join("\n") + "\n"
}

/// The messages that are lost by name.
fn named(survey: &Survey) -> String {
    if survey.lost.is_empty() {
        return String::new();
    }
    let columns = [Column::Whole("LOST MESSAGE"), Column::Text("QUEUE")];
    let row = |lost: &LostMessage| {
        let id = id(survey, lost.seq).unwrap_or_else(|| format!("number {}", lost.seq.0));
        vec![id, queue_of(survey, lost).unwrap_or_else(|| "unknown".to_owned())]
    };
    let shown = table(&columns, survey.lost.iter().take(MESSAGES_SHOWN).map(row).collect());
    match survey.lost.len().saturating_sub(MESSAGES_SHOWN) {
        0 => shown,
        further => format!("{shown}and {}; --json lists all\n", counted(further as u64, "further message")),
    }
}

/// What may be lost beside them.
fn unnamed(survey: &Survey) -> String {
    let Some(max) = survey.unidentified_max else {
        return "Further messages are lost, and nothing tells how many or which: not one frame of the log can be read.\n"
            .to_owned();
    };
    if max == 0 {
        return String::new();
    }
    format!(
        "Up to {} may be lost, waiting ones and dead letters: so many fit into the damaged places. Nothing tells which, \
         nor whether there were so many. No record is left of these numbers, with which ids begin (in hexadecimal): {}.\n",
        counted(max, "further message"),
        numbers(&survey.unknown)
    )
}

fn numbers(unknown: &[UnknownNumbers]) -> String {
    let range = |range: &UnknownNumbers| match range.last {
        Some(last) if last == range.first => range.first.0.to_string(),
        Some(last) => format!("{} to {}", range.first.0, last.0),
        None => format!("{} and all above, for nothing tells where they ended", range.first.0),
    };
    let mut parts: Vec<_> = unknown.iter().take(RANGES_SHOWN).map(range).collect();
    let further = unknown.len().saturating_sub(RANGES_SHOWN);
    if further > 0 {
        parts.push(format!("and {} (--json lists them)", counted(further as u64, "further range")));
    }
    parts.join(", ")
}
