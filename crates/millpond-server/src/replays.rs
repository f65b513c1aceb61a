//! Replays of dead letters: starting, watching, cancelling them.
//!
//! Owns what becomes of these requests between the wire and the engine. Must never replay more than was wished: what
//! is mistyped is refused.

use crate::dead::not_dead;
use crate::enqueue::json;
use crate::errors::{Answer, Refusal, refuse, refused};
use crate::json::{Object, read_json};
use crate::paths::{QueueName, TaskNumber, open_id, shown};
use crate::shared::Shared;
use crate::view::rfc3339;
use axum::extract::{Request, State};
use http::{HeaderValue, StatusCode, header};
use millpond_api::problem::Slug;
use millpond_api::replay::{Replay, ReplayFilter, ReplayRequest, Replays};
use millpond_config::quantity::{format_rate, parse_duration, parse_rate};
use millpond_core::command::ReplayError;
use millpond_core::message::DeadReason;
use millpond_core::name::{Label, Name};
use millpond_core::replay::{self, ReplayList, ReplayPlan, ReplayTask, ReplayWhich, ReplayWish, WaitsFor};
use millpond_core::time::Wall;
use millpond_engine::handle::CallError;
use std::sync::Arc;

/// `POST /v1/queues/{queue}/dead/replay`: a task of its own, or with `dry_run` only the counts.
pub(crate) async fn replay(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let Object(request): Object<ReplayRequest> =
        read_json(&shared.bodies, &parts.headers, body, shared.limits.batch_bytes, "a wish for a replay")
            .await?;
    shared.refuse_if_draining()?;
    let wish = wish(&shared, &request)?;
    let dry_run = request.dry_run.unwrap_or(false);
    let plan = shared.handle.replay(queue.clone(), wish, dry_run).await;
    let plan = plan.map_err(|error| not_started(&shared, &error, &queue))?;
    let mut replay = match plan.task {
        Some(number) => {
            tracing::info!(%queue, number, selected = plan.selected, "replay of dead letters started");
            one(&shared, &queue, number).await?
        }
        None => dry(&queue, &plan),
    };
    replay.samples = plan.samples.iter().map(|&seq| shared.handle.keys().id(seq).to_string()).collect();
    let mut response = json(&replay);
    *response.status_mut() = StatusCode::ACCEPTED;
    if let Some(url) = &replay.url {
        let location = HeaderValue::from_str(url).expect("names of queues need no escaping");
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `GET /v1/queues/{queue}/dead/replays`: the one that runs and the latest that ended.
pub(crate) async fn list(State(shared): State<Arc<Shared>>, QueueName(queue): QueueName) -> Answer {
    let list = replays_of(&shared, &queue).await?;
    let shown = list.tasks.iter().map(|task| shown_task(&queue, task, list.waits_for));
    Ok(json(&Replays { replays: shown.collect() }))
}

/// `GET /v1/queues/{queue}/dead/replays/{number}`.
pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    TaskNumber(number): TaskNumber,
) -> Answer {
    Ok(json(&one(&shared, &queue, number).await?))
}

/// `DELETE /v1/queues/{queue}/dead/replays/{number}`: ends it; what is back stays back.
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    TaskNumber(number): TaskNumber,
) -> Answer {
    let task = shared.handle.cancel_replay(queue.clone(), number).await;
    let task = task.map_err(|error| refused(&error, queue.as_str()))?;
    tracing::info!(%queue, number, status = task.state.as_str(), "replay of dead letters cancelled");
    Ok(json(&shown_task(&queue, &task, None)))
}

async fn replays_of(shared: &Shared, queue: &Name) -> Result<ReplayList, Refusal> {
    shared.handle.replays(queue.clone()).await.map_err(|error| refused(&error, queue.as_str()))
}

async fn one(shared: &Shared, queue: &Name, number: u32) -> Result<Replay, Refusal> {
    let list = replays_of(shared, queue).await?;
    let found = list.tasks.iter().find(|task| task.number == number);
    let unknown = CallError::Refused(ReplayError::UnknownTask(number));
    let found = found.ok_or_else(|| refused(&unknown, queue.as_str()))?;
    Ok(shown_task(queue, found, list.waits_for))
}

/// What the engine refused, with the message's id where it names one.
fn not_started(shared: &Shared, error: &CallError<ReplayError>, queue: &Name) -> Refusal {
    match error {
        CallError::Refused(ReplayError::NotDead(seq)) => {
            not_dead(queue, &shared.handle.keys().id(*seq).to_string())
        }
        other => refused(other, queue.as_str()),
    }
}

fn shown_task(queue: &Name, task: &ReplayTask, waits_for: Option<WaitsFor>) -> Replay {
    Replay {
        queue: queue.as_str().to_owned(),
        number: Some(task.number),
        url: Some(format!("/v1/queues/{queue}/dead/replays/{}", task.number)),
        status: task.state.as_str().to_owned(),
        waits_for: waits_for.filter(|_| task.is_running()).map(|what| what.as_str().to_owned()),
        selected: task.selected,
        replayed: task.replayed,
        remaining: task.remaining(),
        skipped: task.skipped(),
        too_old: task.too_old,
        rate: task.wish.rate.map(format_rate),
        created_at: Some(rfc3339(task.created)),
        finished_at: task.finished.map(rfc3339),
        samples: Vec::new(),
    }
}

fn dry(queue: &Name, plan: &ReplayPlan) -> Replay {
    Replay {
        queue: queue.as_str().to_owned(),
        number: None,
        url: None,
        status: "dry-run".to_owned(),
        waits_for: None,
        selected: plan.selected,
        replayed: plan.selected,
        remaining: 0,
        skipped: plan.too_old,
        too_old: plan.too_old,
        rate: None,
        created_at: None,
        finished_at: None,
        samples: Vec::new(),
    }
}

fn wish(shared: &Shared, request: &ReplayRequest) -> Result<ReplayWish, Refusal> {
    let wrong =
        |field: &str, error: &dyn std::fmt::Display| refuse(Slug::Malformed, format!("{field}: {error}"));
    let rate = request.rate.as_deref().map(parse_rate).transpose();
    let ttl = request.ttl.as_deref().map(parse_duration).transpose();
    Ok(ReplayWish {
        which: which(shared, request)?,
        rate: rate.map_err(|error| wrong("rate", &error))?,
        ttl: ttl.map_err(|error| wrong("ttl", &error))?,
        older: request.older.unwrap_or(false),
    })
}

fn which(shared: &Shared, request: &ReplayRequest) -> Result<ReplayWhich, Refusal> {
    match (&request.ids, &request.filter, request.all.unwrap_or(false)) {
        (None, None, true) => Ok(ReplayWhich::All),
        (None, Some(given), false) if *given == ReplayFilter::default() => Err(refuse(
            Slug::Malformed,
            "filter: it says nothing; name what is meant (reason, error, since, until, tenant), or write {\"all\": true}",
        )),
        (None, Some(given), false) => filter(given.clone()).map(ReplayWhich::Filter),
        (Some(ids), None, false) => {
            let open = |id: &String| {
                open_id(shared, id)
                    .map_err(|error| refuse(Slug::Malformed, format!("ids: {:?}: {error}", shown(id))))
            };
            ids.iter().map(open).collect::<Result<_, _>>().map(ReplayWhich::These)
        }
        _ => Err(refuse(
            Slug::Malformed,
            "write exactly one of {\"ids\": [\"…\"]}, {\"filter\": {…}} and {\"all\": true}",
        )),
    }
}

/// The filter that is meant; what cannot be read is refused by name.
pub(crate) fn filter(given: ReplayFilter) -> Result<replay::ReplayFilter, Refusal> {
    let ReplayFilter { reason, error, since, until, tenant } = given;
    let reason = reason.map(|word| {
        let words = DeadReason::ALL.map(DeadReason::as_str).join(", ");
        let detail = format!("reason is {:?}; write one of {words}", shown(&word));
        DeadReason::parse(&word).ok_or_else(|| refuse(Slug::Malformed, detail))
    });
    let tenant = tenant
        .map(|text| Label::new(&text).map_err(|error| refuse(Slug::Malformed, format!("tenant: {error}"))));
    Ok(replay::ReplayFilter {
        reason: reason.transpose()?,
        error,
        since: since.map(|text| time("since", &text)).transpose()?,
        until: until.map(|text| time("until", &text)).transpose()?,
        tenant: tenant.transpose()?,
    })
}

fn time(field: &str, text: &str) -> Result<Wall, Refusal> {
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(|time| Wall(time.as_microsecond())).map_err(|_| {
        let detail = format!("{field} is {:?}; write a time like 2026-11-30T10:00:00Z", shown(text));
        refuse(Slug::Malformed, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::filter;
    use millpond_api::replay::ReplayFilter;
    use millpond_core::message::DeadReason;
    use millpond_core::time::Wall;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused_by_the_name_of_its_field() {
        let none = ReplayFilter::default;
        let text = |text: &str| Some(text.to_owned());
        let read = filter(ReplayFilter {
            reason: text("rejected"),
            since: text("1970-01-01T00:00:01Z"),
            until: text("1970-01-01T01:00:02+01:00"),
            ..none()
        });
        let read = read.unwrap();
        assert_eq!(read.reason, Some(DeadReason::Rejected));
        assert_eq!((read.since, read.until), (Some(Wall(1_000_000)), Some(Wall(2_000_000))));
        for (wrong, field) in [
            (ReplayFilter { reason: text("Rejected"), ..none() }, "reason"),
            (ReplayFilter { since: text("yesterday"), ..none() }, "since"),
            (ReplayFilter { until: text("2026-11-30"), ..none() }, "until"),
            (ReplayFilter { tenant: text(""), ..none() }, "tenant"),
        ] {
            let refusal = filter(wrong).unwrap_err();
            assert!(refusal.0.detail.starts_with(field), "{:?}", refusal.0);
        }
    }
}
