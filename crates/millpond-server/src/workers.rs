//! The workers' part: leasing, extending, settling.
//!
//! Owns what becomes of their requests between the wire and the engine. Must never hand a message out twice: a
//! worker that leaves before its answer drops the request, and the engine takes the hand-outs back. One that has left
//! when its answer arrives is [`crate::hand_over`]'s.

use crate::callbacks;
use crate::enqueue::{json, seconds, within_batch_limit};
use crate::errors::{Answer, Refusal, Told as _, bad_receipt, refuse, refused};
use crate::hand_over::HandedOver;
use crate::json::{Object, read_json};
use crate::labels;
use crate::paths::{QueueName, shown};
use crate::shared::Shared;
use crate::view;
use axum::extract::{Request, State};
use http::HeaderValue;
use millpond_api::encoding;
use millpond_api::problem::{Problem, Slug};
use millpond_api::types::{
    Extension, LeaseRequest, LeasedMessage, Leases, ReceiptAnswer, Settlement, WorkerError,
};
use millpond_core::command::{self, QueueError, SettleError, SettleOutcome};
use millpond_core::identity::Receipt;
use millpond_core::message::{Content, Failure};
use millpond_core::settings::{LEASE_TOTAL_MAX, WAIT_MAX};
use millpond_core::time::Wall;
use millpond_engine::handle::{CallError, Delivery};
use std::sync::Arc;
use std::time::Duration;

/// `POST /v1/queues/{queue}/leases`: waits for the first message as long as the worker wishes.
pub(crate) async fn lease(
    State(shared): State<Arc<Shared>>,
    QueueName(queue): QueueName,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    callbacks::refuse_reserved(&queue)?;
    let limits = &shared.limits;
    let Object(wish): Object<LeaseRequest> =
        read_json(&shared.bodies, &parts.headers, body, shared.max_body_bytes, "a wish for messages").await?;
    // A worker that asks while the server is shutting down is told when to come back; one that was waiting before
    // gets an empty answer.
    shared.refuse_if_draining()?;
    let request = command::LeaseRequest {
        max: lease_max(wish.max, limits.batch)?,
        lease: wish.lease_seconds.map(lease_duration).transpose()?,
        wait: lease_wait(wish.wait_seconds)?,
        queue: queue.clone(),
        consumer: labels::consumer(wish.consumer.as_deref())?,
    };
    let deliveries = match shared.handle.lease(request).await {
        Err(CallError::Refused(QueueError::Draining)) => Vec::new(),
        other => other.map_err(|error| refused(&error, queue.as_str()))?,
    };
    let leases = Leases { messages: deliveries.iter().map(|delivery| leased(&shared, delivery)).collect() };
    let mut response = json(&leases);
    if !deliveries.is_empty() {
        let receipts = deliveries.iter().map(|delivery| delivery.leased.receipt).collect();
        response.extensions_mut().insert(HandedOver::new(receipts));
    }
    Ok(response)
}

fn lease_max(wish: Option<u32>, limit: usize) -> Result<usize, Refusal> {
    let max = usize::try_from(wish.unwrap_or(1)).unwrap_or(usize::MAX);
    if (1..=limit).contains(&max) {
        return Ok(max);
    }
    Err(refuse(Slug::Malformed, format!("max is {max}; write a number from 1 to {limit}")))
}

/// Shorter, a lease would be over before its answer is written.
const LEASE_MIN: Duration = Duration::from_millis(1);

fn lease_duration(number: f64) -> Result<Duration, Refusal> {
    match seconds(number, "lease_seconds")? {
        lease if (LEASE_MIN..=LEASE_TOTAL_MAX).contains(&lease) => Ok(lease),
        _ => {
            let most = LEASE_TOTAL_MAX.as_secs();
            Err(refuse(Slug::Malformed, format!("lease_seconds is {number}; write 0.001 to {most}")))
        }
    }
}

fn lease_wait(wish: Option<f64>) -> Result<Duration, Refusal> {
    let number = wish.unwrap_or(0.0);
    match seconds(number, "wait_seconds")? {
        wait if wait <= WAIT_MAX => Ok(wait),
        _ => {
            let detail =
                format!("wait_seconds is {number}; write at most {} and ask again", WAIT_MAX.as_secs());
            Err(refuse(Slug::Malformed, detail))
        }
    }
}

fn leased(shared: &Shared, delivery: &Delivery) -> LeasedMessage {
    let (keys, leased, content) = (shared.handle.keys(), &delivery.leased, &delivery.content);
    let message = &leased.message;
    let (body, body_encoding) = encoding::encode(&content.body);
    LeasedMessage {
        id: keys.id(message.seq).to_string(),
        receipt: keys.seal(leased.receipt),
        body,
        body_encoding,
        content_type: content.content_type.clone(),
        headers: content.headers_by_name(),
        method: content.method().map(str::to_owned),
        path: content.path().map(str::to_owned),
        attempt: message.attempts + 1,
        deliveries: message.deliveries,
        criticality: message.criticality.as_str().to_owned(),
        tenant: view::label(message.tenant.as_ref()),
        group: view::label(message.group.as_ref()),
        accepted_at: view::rfc3339(message.accepted),
        expires_at: Some(view::rfc3339(message.expires)),
        lease_expires_at: view::rfc3339(leased.until),
    }
}

fn answered(receipt: String, result: Result<Option<Wall>, Problem>) -> ReceiptAnswer {
    match result {
        Ok(until) => {
            ReceiptAnswer { receipt, status: 200, lease_expires_at: until.map(view::rfc3339), error: None }
        }
        Err(problem) => {
            ReceiptAnswer { receipt, status: problem.status, lease_expires_at: None, error: Some(problem) }
        }
    }
}

/// Answers every receipt: with its own mistake, or with what the engine said of it, in order.
fn answers<T>(
    receipts: Vec<(String, Option<Problem>)>,
    results: Vec<Result<T, SettleError>>,
    until: impl Fn(T) -> Option<Wall>,
) -> Vec<ReceiptAnswer> {
    let mut results = results.into_iter();
    let each = |(receipt, mistake): (String, Option<Problem>)| {
        let result = match mistake {
            Some(problem) => Err(problem),
            None => match results.next().expect("one answer per receipt") {
                Ok(value) => Ok(until(value)),
                Err(error) => Err(error.problem("")),
            },
        };
        answered(receipt, result)
    };
    receipts.into_iter().map(each).collect()
}

/// `POST /v1/leases/extend`: each for itself.
pub(crate) async fn extend(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let wishes: Vec<Extension> = read_list(&shared, request, "an array of extensions").await?;
    let mut receipts = Vec::with_capacity(wishes.len());
    let mut leases = Vec::with_capacity(wishes.len());
    for wish in wishes {
        let opened = open(&shared, &wish.receipt)
            .and_then(|receipt| Ok((receipt, lease_duration(wish.lease_seconds)?)));
        receipts.push((wish.receipt, sort(opened, &mut leases)));
    }
    let results = shared.handle.extend(leases).await.map_err(|error| refused(&error, ""))?;
    Ok(json(&answers(receipts, results, Some)))
}

/// `POST /v1/settlements`: each for itself; answers once all are durable.
pub(crate) async fn settle(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let wishes: Vec<Settlement> = read_list(&shared, request, "an array of settlements").await?;
    let mut receipts = Vec::with_capacity(wishes.len());
    let mut settlements = Vec::with_capacity(wishes.len());
    for mut wish in wishes {
        let text = std::mem::take(&mut wish.receipt);
        let settlement = open(&shared, &text)
            .and_then(|receipt| Ok(command::Settlement { receipt, outcome: outcome(wish)? }));
        receipts.push((text, sort(settlement, &mut settlements)));
    }
    let results = shared.handle.settle(settlements).await.map_err(|error| refused(&error, ""))?;
    Ok(json(&answers(receipts, results, |()| None)))
}

async fn read_list<T: serde::de::DeserializeOwned>(
    shared: &Shared,
    request: Request,
    expected: &str,
) -> Result<Vec<T>, Refusal> {
    let (parts, body) = request.into_parts();
    let limits = &shared.limits;
    let limit_bytes = limits.batch_bytes.max(shared.max_body_bytes);
    let list: Vec<Object<T>> = read_json(&shared.bodies, &parts.headers, body, limit_bytes, expected).await?;
    within_batch_limit(list.len(), limits.batch)?;
    Ok(list.into_iter().map(|Object(item)| item).collect())
}

/// Puts what is sound with the others, and returns what is wrong with what is not.
fn sort<T>(item: Result<T, Refusal>, sound: &mut Vec<T>) -> Option<Problem> {
    match item {
        Ok(item) => {
            sound.push(item);
            None
        }
        Err(Refusal(problem)) => Some(*problem),
    }
}

fn open(shared: &Shared, text: &str) -> Result<Receipt, Refusal> {
    shared.handle.keys().open_receipt(text).map_err(|error| Refusal(Box::new(bad_receipt(error))))
}

/// What a worker says of its work; fields that do not go with the outcome are refused rather than ignored.
fn outcome(wish: Settlement) -> Result<SettleOutcome, Refusal> {
    let misplaced = |field: &str, place: &str| {
        Err(refuse(
            Slug::Malformed,
            format!("{field} goes with {place}, not with {:?}; leave it out", wish.outcome),
        ))
    };
    let has_result = wish.result.is_some() || wish.result_encoding.is_some() || wish.content_type.is_some();
    let (completes, fails) = (wish.outcome == "complete", matches!(wish.outcome.as_str(), "retry" | "dead"));
    if !matches!(wish.outcome.as_str(), "complete" | "retry" | "dead" | "release") {
        let detail = format!("outcome is {:?}; write complete, retry, dead or release", shown(&wish.outcome));
        return Err(refuse(Slug::Malformed, detail));
    }
    if has_result && !completes {
        return misplaced("result", "complete");
    }
    if wish.error.is_some() && !fails {
        return misplaced("error", "retry and dead");
    }
    if wish.delay_seconds.is_some() && !matches!(wish.outcome.as_str(), "retry" | "release") {
        return misplaced("delay_seconds", "retry and release");
    }
    let delay = wish.delay_seconds.map(|number| seconds(number, "delay_seconds")).transpose()?;
    let failure = wish.error.as_ref().map(failure);
    Ok(match wish.outcome.as_str() {
        "retry" => SettleOutcome::Retry { failure, delay },
        "dead" => SettleOutcome::Dead { failure },
        "release" => SettleOutcome::Release { delay },
        _ => SettleOutcome::Complete { result: result(wish)? },
    })
}

fn failure(error: &WorkerError) -> Failure {
    match error {
        WorkerError::Text(message) => Failure::new("worker", message, None),
        WorkerError::Detailed { kind, message } => {
            let kind: String = kind.as_deref().unwrap_or("worker").chars().take(40).collect();
            Failure::new(&kind, message, None)
        }
    }
}

fn result(wish: Settlement) -> Result<Option<Arc<Content>>, Refusal> {
    let Some(text) = wish.result else {
        return if wish.content_type.is_some() || wish.result_encoding.is_some() {
            Err(refuse(
                Slug::Malformed,
                "content_type and result_encoding describe a result, and there is none",
            ))
        } else {
            Ok(None)
        };
    };
    let is_text = wish.result_encoding.is_none();
    let usual = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
    let content_type = wish.content_type.unwrap_or_else(|| usual.to_owned());
    if HeaderValue::from_str(&content_type).is_err() {
        return Err(refuse(Slug::Malformed, "content_type has characters that no header may have"));
    }
    let body = encoding::decode(text, wish.result_encoding)
        .map_err(|error| refuse(Slug::Malformed, format!("result: {error}")))?;
    Ok(Some(Arc::new(Content { content_type, headers: Vec::new(), body })))
}

#[cfg(test)]
mod tests {
    use super::{lease_duration, lease_max, lease_wait, outcome};
    use millpond_api::types::{Settlement, WorkerError};
    use millpond_core::command::SettleOutcome;

    fn settlement(outcome: &str) -> Settlement {
        Settlement { outcome: outcome.to_owned(), ..Settlement::default() }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(lease_max(None, 10).unwrap(), 1);
        for bad in [0, 11, u32::MAX] {
            assert!(lease_max(Some(bad), 10).is_err(), "{bad}");
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 43_201.0, 1e300] {
            assert!(lease_duration(bad).is_err(), "{bad}");
        }
        for bad in [-0.1, 60.1, f64::NAN, 1e300] {
            assert!(lease_wait(Some(bad)).is_err(), "{bad}");
        }
        assert!(lease_wait(None).unwrap().is_zero());
    }

    #[test]
    fn each_outcome_takes_its_own_fields_and_refuses_the_others() {
        let complete = Settlement { result: Some("x".to_owned()), ..settlement("complete") };
        let Ok(SettleOutcome::Complete { result: Some(content) }) = outcome(complete) else {
            panic!("a result")
        };
        assert_eq!(
            (&content.body[..], content.content_type.as_str()),
            (&b"x"[..], "text/plain; charset=utf-8")
        );
        let error = Some(WorkerError::Text("no".to_owned()));
        assert!(matches!(
            outcome(Settlement { error: error.clone(), delay_seconds: Some(2.0), ..settlement("retry") }),
            Ok(SettleOutcome::Retry { failure: Some(_), delay: Some(_) })
        ));
        for wrong in [
            settlement("done"),
            settlement(""),
            Settlement { error, ..settlement("complete") },
            Settlement { result: Some("x".to_owned()), ..settlement("dead") },
            Settlement { delay_seconds: Some(1.0), ..settlement("dead") },
            Settlement { delay_seconds: Some(-1.0), ..settlement("retry") },
            Settlement { content_type: Some("text/plain".to_owned()), ..settlement("complete") },
        ] {
            assert!(outcome(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
