//! What a person reads: the index and the pages that explain problems; and what a supervisor asks: health.
//!
//! Owns their texts. Must never show what a message contains.

use crate::errors::{Answer, draining, refuse, refused};
use crate::paths::shown;
use crate::shared::Shared;
use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use http::header;
use millpond_api::problem::Slug;
use std::fmt::Write as _;
use std::sync::Arc;

fn plain(text: impl Into<String>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.into()).into_response()
}

/// `GET /livez`: the process answers.
pub(crate) async fn livez() -> Response {
    plain("ok\n")
}

/// `GET /readyz`: new work is welcome, and the engine answers.
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> Answer {
    if shared.is_draining() {
        return Err(draining());
    }
    shared.handle.overview().await.map_err(|error| refused(&error, ""))?;
    Ok(plain("ok\n"))
}

/// `GET /`: what this is, and its queues.
pub(crate) async fn index(State(shared): State<Arc<Shared>>) -> Answer {
    let (queues, _) = shared.handle.overview().await.map_err(|error| refused(&error, ""))?;
    let mut text = format!(
        "Millpond {}: holds bursts durably and does the work at the pace the backend can stand.\n\n\
         POST /v1/queues/{{queue}}/messages   enqueue: any body, answered with 202 and a status_url\n\
         GET  /v1/messages/{{id}}?t=…         the status; Prefer: wait=60 waits for the end\n\
         POST /v1/queues/{{queue}}/leases     take messages; settle them with POST /v1/settlements\n\
         GET  /v1/queues                     queues with settings and numbers\n\
         GET  /v1/alerts                     what somebody must look at\n\
         GET  /metrics, /livez, /readyz      for the supervisor\n\n",
        env!("CARGO_PKG_VERSION")
    );
    if queues.is_empty() {
        text.push_str(
            "No queues yet: declare them in the configuration, or PUT /v1/queues/{queue} with {}.\n",
        );
    }
    for queue in &queues {
        let stats = &queue.stats;
        let paused = if stats.paused { ", paused" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: {} ready, {} leased, {} delayed, {} in backoff, {} dead, oldest {:.1}s{paused}",
            queue.name,
            stats.ready,
            stats.leased,
            stats.delayed,
            stats.backoff,
            stats.dead,
            stats.oldest_age.as_secs_f64(),
        );
    }
    Ok(plain(text))
}

/// `GET /problems/{slug}`: what a kind of problem means and what to do.
pub(crate) async fn problem(Path(word): Path<String>) -> Answer {
    let slug = Slug::parse(&word).ok_or_else(|| {
        refuse(Slug::NotFound, format!("there is no kind of problem called {:?}", shown(&word)))
    })?;
    Ok(Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <body style=\"font-family:sans-serif;max-width:40em;margin:3em auto;line-height:1.5\">\n\
         <h1>{title}</h1>\n<p><code>{word}</code>, status {status}</p>\n<p>{explanation}</p>\n\
         <h2>What to do</h2>\n<p>{remedy}</p>\n</body></html>\n",
        title = slug.title(),
        status = slug.status(),
        explanation = slug.explanation(),
        remedy = slug.remedy(),
    ))
    .into_response())
}
