//! Takes callbacks from their queue, tries them, and says how each try ended.
//!
//! Owns the task of every try. Must never keep a callback without its word to the engine, nor let one host hold up others.

use super::Desk;
use super::address::{Address, shown};
use super::client::{Answered, unfit_failure};
use super::event::{TRUSTED, URL, webhook_id};
use super::hosts::{Admission, Ended};
use super::verdict::{Verdict, delay, verdict};
use crate::push::retry_after;
use crate::shared::Shared;
use crate::signature::Signer;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use millpond_config::CALLBACK_QUEUE;
use millpond_core::command::{LeaseRequest, SettleOutcome, Settlement};
use millpond_core::message::{Content, Failure, Message};
use millpond_core::name::Name;
use millpond_engine::handle::{CallError, Delivery};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// How long one question for a callback waits.
const WAIT: Duration = Duration::from_secs(30);
/// How long to wait before asking again when the engine had no answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Delivers callbacks until `stop` says so; then those that are under way end, or are given back by their lease.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let Some(desk) = shared.callbacks.clone() else { return };
    let places = usize::try_from(desk.concurrency).unwrap_or(Semaphore::MAX_PERMITS);
    let free = Arc::new(Semaphore::new(places));
    desk.remember_gone(&shared).await;
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
        let leased = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            leased = shared.handle.lease(wish()) => leased,
        };
        match leased {
            Ok(mut deliveries) => {
                // None: nobody had anything to tell for a while, or the server is shutting down.
                let Some(delivery) = deliveries.pop() else {
                    if shared.is_draining() {
                        break;
                    }
                    continue;
                };
                let (shared, desk) = (Arc::clone(&shared), Arc::clone(&desk));
                tokio::spawn(async move {
                    handle(&shared, &desk, delivery).await;
                    drop(place);
                });
            }
            Err(CallError::Stopped) => return,
            Err(_) => {
                let _ = tokio::time::timeout(PAUSE, stop.wait_for(|stop| *stop)).await;
            }
        }
    }
    // Whoever is under way has no longer than one try takes.
    let all = u32::try_from(places).unwrap_or(u32::MAX);
    let _ = free.acquire_many(all).await;
}

fn wish() -> LeaseRequest {
    let queue = Name::new(CALLBACK_QUEUE).expect("it is a name");
    LeaseRequest { queue, max: 1, lease: None, wait: WAIT, consumer: None }
}

/// Tries one callback, or puts it off.
async fn handle(shared: &Shared, desk: &Desk, delivery: Delivery) {
    let receipt = delivery.leased.receipt;
    let outcome = outcome(shared, desk, &delivery).await;
    let settled = shared.handle.settle(vec![Settlement { receipt, outcome }]).await;
    if let Ok(results) = settled
        && let Some(Err(error)) = results.first()
    {
        tracing::warn!(%error, "a callback's end came too late; it may be sent again");
    }
}

async fn outcome(shared: &Shared, desk: &Desk, delivery: &Delivery) -> SettleOutcome {
    let (message, content) = (&delivery.leased.message, &*delivery.content);
    let url = content.headers.iter().find(|(name, _)| name == URL).map(|(_, url)| url.as_str());
    let is_trusted = content.headers.iter().any(|(name, _)| name == TRUSTED);
    let Some(Ok(address)) = url.map(Address::read) else {
        return dead(Failure::new("internal", "the URL that is stored cannot be read", None));
    };
    if !is_trusted && let Err(unfit) = desk.policy.check(&address) {
        return dead(unfit_failure(&address, &unfit));
    }
    // A replay is an operator's wish to try it all the same.
    let is_replayed = message.place != message.seq.0;
    if !is_replayed && desk.is_gone(&address) {
        let words = format!("{} has answered 410 before; replay to try it again", address.shown());
        return dead(Failure::new("disabled", &words, None));
    }
    if let Admission::Later(delay) = desk.admit(&address.host) {
        return SettleOutcome::Release { delay: Some(delay) };
    }
    let mut guard = Admitted { desk, host: &address.host, began: Instant::now(), how: Ended::Failed };
    let signer = if is_trusted { &desk.own_signer } else { &desk.signer };
    let headers = headers(shared, signer, message, content);
    let policy = (!is_trusted).then_some(&desk.policy);
    let post = desk.client.post(&address, policy, headers, content.body.clone());
    let answered = tokio::time::timeout(desk.timeout, post).await.unwrap_or_else(|_| {
        let words = format!("no answer within {} s", desk.timeout.as_secs());
        Err(Failure::new("timeout", &words, None))
    });
    let outcome = judge(desk, &address, message, answered, &mut guard);
    log(&address, message, &outcome);
    outcome
}

/// Says how a try ended, however it ends.
struct Admitted<'desk> {
    desk: &'desk Desk,
    host: &'desk str,
    began: Instant,
    how: Ended,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.desk.ended(self.host, self.how, self.began.elapsed());
    }
}

fn judge(
    desk: &Desk,
    address: &Address,
    message: &Message,
    answered: Result<Answered, Failure>,
    guard: &mut Admitted<'_>,
) -> SettleOutcome {
    let answered = match answered {
        Ok(answered) => answered,
        Err(failure) => {
            if failure.kind == "address" {
                // It says nothing of the host that others may reach.
                guard.how = Ended::Answered;
            }
            return again(desk, message, failure, Duration::ZERO);
        }
    };
    let pause = retry_after(&answered.headers, jiff::Timestamp::now());
    let (verdict, how) = verdict(answered.status, pause);
    guard.how = how;
    let failure = || {
        let excerpt = String::from_utf8_lossy(&answered.body);
        let words = match answered.status {
            300..=399 => "it answered with a redirect, which is not followed".to_owned(),
            status => format!("it answered {status}: {}", excerpt.trim()),
        };
        Failure::new("status", &words, Some(answered.status))
    };
    match verdict {
        Verdict::Delivered => {
            desk.is_back(address);
            SettleOutcome::Complete { result: None }
        }
        Verdict::Gone => {
            desk.is_gone_from_now_on(address);
            let words = format!("{} has answered 410: nothing is sent there any more", address.shown());
            dead(Failure::new("gone", &words, Some(answered.status)))
        }
        Verdict::Failed(least) => again(desk, message, failure(), least),
        Verdict::PutOff(pause) => {
            SettleOutcome::Release { delay: Some(pause + pause.mul_f64(0.1 * fastrand::f64())) }
        }
    }
}

fn again(desk: &Desk, message: &Message, failure: Failure, least: Duration) -> SettleOutcome {
    let delay = delay(&desk.delays, message.attempts + 1, least, fastrand::f64());
    SettleOutcome::Retry { failure: Some(failure), delay: Some(delay) }
}

fn dead(failure: Failure) -> SettleOutcome {
    SettleOutcome::Dead { failure: Some(failure) }
}

fn headers(shared: &Shared, signer: &Signer, message: &Message, content: &Content) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in content.real_headers() {
        if let (Ok(name), Ok(text)) = (HeaderName::try_from(name), HeaderValue::try_from(text)) {
            headers.append(name, text);
        }
    }
    if let Ok(content_type) = HeaderValue::try_from(&content.content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    let id = webhook_id(shared.handle.keys(), message.seq);
    headers.insert(HeaderName::from_static("webhook-id"), id.clone());
    signer.sign(&mut headers, id, jiff::Timestamp::now().as_second(), &content.body);
    headers
}

fn log(address: &Address, message: &Message, outcome: &SettleOutcome) {
    let (url, attempt) = (shown(&address.url.to_string()), message.attempts + 1);
    match outcome {
        SettleOutcome::Complete { .. } => tracing::debug!(url, attempt, "callback delivered"),
        SettleOutcome::Retry { failure: Some(failure), .. } => {
            tracing::info!(url, attempt, kind = failure.kind, error = failure.message, "callback failed");
        }
        SettleOutcome::Dead { failure: Some(failure) } => {
            tracing::warn!(url, attempt, kind = failure.kind, error = failure.message, "callback given up");
        }
        _ => tracing::debug!(url, attempt, "callback put off"),
    }
}
