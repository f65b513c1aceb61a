//! `millpond journal export`: every message as a line of JSON.
//!
//! Owns the form of a line. Must never hold more than one body.

use super::{open, read, unreadable};
use crate::cli::failure::Failure;
use bytes::Bytes;
use millpond_api::encoding::{Encoding, encode};
use millpond_api::types::{Attempt, AttemptError};
use millpond_core::identity::Seq;
use millpond_core::message::{Content, DeadReason, Message, Phase};
use millpond_core::name::{Label, Name};
use millpond_engine::codec::decode_content;
use millpond_engine::survey::Survey;
use millpond_journal::inspect::files;
use millpond_journal::{Files, Position, ReadOnlyDirectory};
use millpond_server::view::{attempt, error, rfc3339};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// How often a body is looked for: a running server moves messages out of its oldest segments.
const ROUNDS_MAX: usize = 5;

/// One line.
#[derive(Debug, Serialize)]
struct Exported<'a> {
    /// `null` while the directory's secret is lost.
    id: Option<String>,
    queue: Option<&'a str>,
    status: &'static str,
    accepted_at: String,
    attempts: u32,
    deliveries: u32,
    due_at: Option<String>,
    first_started_at: Option<String>,
    finished_at: Option<String>,
    expires_at: String,
    criticality: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<AttemptError>,
    history: Vec<Attempt>,
    #[serde(flatten)]
    body: Kept,
    /// What a succeeded message has instead of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Kept>,
    /// Why there is no body although there should be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_error: Option<String>,
}

/// Bytes with what describes them; all absent where nothing is kept.
#[derive(Debug, Default, Serialize)]
struct Kept {
    content_type: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_encoding: Option<Encoding>,
}

impl From<Content> for Kept {
    fn from(content: Content) -> Self {
        let (body, body_encoding) = encode(&content.body);
        Self {
            headers: content.headers_by_name(),
            method: content.method().map(str::to_owned),
            path: content.path().map(str::to_owned),
            content_type: Some(content.content_type),
            body: Some(body),
            body_encoding,
        }
    }
}

pub(super) fn run(
    data: &Path,
    queue: Option<&Name>,
    states: &[Phase],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let directory = open(data)?;
    let mut wanted: Option<BTreeSet<Seq>> = None;
    for round in 1..=ROUNDS_MAX {
        let survey = read(data, &directory)?;
        if round == 1 {
            check_queue(&survey, queue)?;
        }
        let again = wanted.take();
        let choice = |message: &Message| {
            again.as_ref().is_none_or(|again| again.contains(&message.seq))
                && (states.is_empty() || states.contains(&message.phase))
                && queue.is_none_or(|queue| name_of(&survey, message) == Some(queue.as_str()))
        };
        let missed = write_lines(data, &directory, &survey, &choice, round == ROUNDS_MAX, out)?;
        if missed.is_empty() {
            return Ok(());
        }
        wanted = Some(missed);
    }
    let missed = wanted.map_or(0, |wanted| wanted.len());
    Err(Failure::new(
        format!("{missed} of the messages have lost their bodies: their lines say body_error"),
        format!("see what is damaged: millpond journal verify --data {}", data.display()),
    ))
}

fn check_queue(survey: &Survey, queue: Option<&Name>) -> Result<(), Failure> {
    let Some(queue) = queue else { return Ok(()) };
    let names: Vec<&str> = survey
        .queues
        .values()
        .filter_map(|known| known.record.as_ref())
        .map(|record| record.name.as_str())
        .collect();
    if names.contains(&queue.as_str()) {
        return Ok(());
    }
    Err(Failure::new(format!("there is no queue {queue}"), format!("the queues are: {}", names.join(", "))))
}

fn name_of<'a>(survey: &'a Survey, message: &Message) -> Option<&'a str> {
    survey.queues.get(&message.queue.0)?.record.as_ref().map(|record| record.name.as_str())
}

/// Writes the chosen messages. Those whose bytes cannot be read are left out and returned; in the `last` round they
/// are written without.
fn write_lines(
    data: &Path,
    directory: &ReadOnlyDirectory,
    survey: &Survey,
    choice: &dyn Fn(&Message) -> bool,
    last: bool,
    out: &mut impl Write,
) -> Result<BTreeSet<Seq>, Failure> {
    let mut missed = BTreeSet::new();
    if survey.messages() == 0 {
        return Ok(missed);
    }
    let files = files(Arc::new(directory.clone())).map_err(|error| unreadable(data, &error))?;
    let mut written = Ok(());
    survey.each_message(&mut |message, position| {
        if written.is_err() || !choice(message) {
            return;
        }
        let content = match position.map(|position| content(&files, position)) {
            None => Ok(None),
            Some(read) => read,
        };
        if content.is_err() {
            missed.insert(message.seq);
        }
        if content.is_ok() || last {
            written = write_line(survey, message, content, out);
        }
    });
    written.map(|()| missed)
}

fn content(files: &Files, position: Position) -> Result<Option<Content>, String> {
    let bytes: Bytes = files.read(position).map_err(|error| error.to_string())?;
    decode_content(&bytes).map_err(|error| error.to_string())
}

fn write_line(
    survey: &Survey,
    message: &Message,
    content: Result<Option<Content>, String>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (content, body_error) = match content {
        Ok(content) => (content.map(Kept::from), None),
        Err(error) => (None, Some(error)),
    };
    let (body, result) = if message.phase == Phase::Succeeded {
        (Kept::default(), content)
    } else {
        (content.unwrap_or_default(), None)
    };
    let waits = matches!(message.phase, Phase::Delayed | Phase::Backoff);
    let line = Exported {
        id: survey.keys().map(|keys| keys.id(message.seq).to_string()),
        queue: name_of(survey, message),
        status: message.phase.as_str(),
        accepted_at: rfc3339(message.accepted),
        attempts: message.attempts,
        deliveries: message.deliveries,
        due_at: waits.then(|| rfc3339(message.due)),
        first_started_at: message.first_started.map(rfc3339),
        finished_at: message.finished.map(rfc3339),
        expires_at: rfc3339(message.expires),
        criticality: message.criticality.as_str(),
        tenant: message.tenant.as_ref().map(Label::as_str),
        group: message.group.as_ref().map(Label::as_str),
        dead_reason: message.dead_reason.map(DeadReason::as_str),
        last_error: message.last_failure().map(|(failure, at)| error(failure, at)),
        history: message.history.iter().map(attempt).collect(),
        body,
        result,
        body_error,
    };
    serde_json::to_writer(&mut *out, &line)?;
    Ok(writeln!(out)?)
}
