//! Takes the calls that the engine wants made, makes them, and says how each ended.
//!
//! Owns the task of every running call. Must never leave a call without its one word to the engine, whatever
//! happens in it.

use super::address::address;
use super::client::{Answered, EXCERPT_BYTES_MAX, Pool};
use super::fault::Fault;
use super::outcome::{Verdict, retry_after, verdict};
use crate::answers::{Answers, TargetAnswer};
use crate::enqueue::DEFAULT_CONTENT_TYPE;
use crate::headers::value;
use crate::labels;
use crate::shared::Shared;
use crate::signature::Signer;
use crate::tls::TlsError;
use crate::view;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;
use millpond_config::{PushOutcome, Target as TargetConfiguration};
use millpond_core::command::{CallOutcome, Leased};
use millpond_core::identity::Receipt;
use millpond_core::message::{Content, Failure};
use millpond_core::name::Name;
use millpond_core::settings::PUSH_LEASE_MARGIN;
use millpond_engine::handle::{Call, Calls, Handle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const USER_AGENT: &str = concat!("millpond/", env!("CARGO_PKG_VERSION"));
/// How long a target is left alone that refuses to begin with calls: it is at its limit, or about to go.
const PAUSE_NOT_BEGUN: Duration = Duration::from_secs(1);

/// A target, ready to be called.
#[derive(Debug)]
pub(crate) struct Target {
    name: Name,
    url: Uri,
    headers: HeaderMap,
    outcomes: BTreeMap<u16, PushOutcome>,
    signer: Signer,
    pool: Pool,
}

/// The targets of the configuration, ready to be called, in the order in which the engine numbers them; or which one
/// cannot be, and why.
pub(crate) fn targets(
    configured: &BTreeMap<Name, TargetConfiguration>,
) -> Result<Arc<[Target]>, (Name, TlsError)> {
    let target = |(name, target)| Target::new(name, target).map_err(|error| (name.clone(), error));
    configured.iter().map(target).collect()
}

impl Target {
    fn new(name: &Name, configuration: &TargetConfiguration) -> Result<Self, TlsError> {
        Ok(Self {
            name: name.clone(),
            url: configuration.url.clone(),
            headers: configuration.headers.clone(),
            outcomes: configuration.outcomes.clone(),
            signer: Signer::new(&configuration.signature),
            pool: Pool::new(configuration)?,
        })
    }
}

/// Makes the calls.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    targets: Arc<[Target]>,
    running: Arc<watch::Sender<usize>>,
    release: Arc<watch::Sender<bool>>,
}

/// Says how a call ended when it is dropped, so that nothing can keep it from being said, and only once.
struct Report {
    handle: Handle,
    running: Arc<watch::Sender<usize>>,
    receipt: Receipt,
    outcome: Option<CallOutcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            let failure =
                Failure::new(Failure::INTERNAL, "the call was given up by a fault of the server", None);
            CallOutcome::Failed { failure, timed_out: false }
        });
        self.handle.call_ended(self.receipt, outcome);
        self.running.send_modify(|running| *running -= 1);
    }
}

impl Driver {
    /// A driver for these targets.
    pub(crate) fn new(shared: Arc<Shared>, targets: Arc<[Target]>) -> Self {
        let (running, release) = (Arc::new(watch::Sender::new(0)), Arc::new(watch::Sender::new(false)));
        Self { shared, targets, running, release }
    }

    /// Makes every call that the engine wants, each in a task of its own, until the engine has stopped. How many
    /// run at once is the engine's to bound.
    pub(crate) async fn run(self, mut calls: Calls) {
        while let Some(call) = calls.next().await {
            self.begin(call, Instant::now());
        }
    }

    /// Makes a call in a task of its own. What comes too late for that at `now` is given back instead: the way here, its
    /// body's from the disk most of all, took so long that the call could last longer than its message's lease, beside
    /// the next one.
    fn begin(&self, call: Call, now: Instant) {
        let receipt = call.delivery.leased.receipt;
        if now.duration_since(call.decided) > PUSH_LEASE_MARGIN {
            return self.shared.handle.undelivered(receipt);
        }
        self.running.send_modify(|running| *running += 1);
        let report = Report {
            handle: self.shared.handle.clone(),
            running: Arc::clone(&self.running),
            receipt,
            outcome: None,
        };
        tokio::spawn(self.clone().make(call, report));
    }

    /// Waits until no call is running; after `grace`, those that still are get given back.
    pub(crate) async fn finish(&self, grace: Duration) {
        let mut running = self.running.subscribe();
        let idle = running.wait_for(|&running| running == 0);
        if tokio::time::timeout(grace, idle).await.is_err() {
            tracing::warn!(
                running = *self.running.borrow(),
                "push calls did not end in time and are given back"
            );
        }
        self.release.send_replace(true);
        let mut running = self.running.subscribe();
        // Giving back waits for nothing but the scheduler.
        let idle = running.wait_for(|&running| running == 0);
        let _ = tokio::time::timeout(Duration::from_secs(1), idle).await;
    }

    async fn make(self, call: Call, mut report: Report) {
        let mut release = self.release.subscribe();
        let target = &self.targets[call.target.0];
        let leased = &call.delivery.leased;
        let answers = &self.shared.answers;
        let result_limit = self.shared.result_limits.get(&leased.queue);
        let request = match self.request(target, leased, &call.delivery.content) {
            Ok(request) => request,
            Err(failure) => {
                report.outcome = Some(CallOutcome::Dead { failure });
                return;
            }
        };
        let exchange = target.pool.call(request, |response| {
            let succeeds = verdict(response.status().as_u16(), None, &target.outcomes) == Verdict::Succeeded;
            // A refusal is read whole for a caller who waits for it.
            if succeeds || answers.wants(leased.receipt.seq) { result_limit } else { EXCERPT_BYTES_MAX }
        });
        let outcome = tokio::select! {
            biased;
            ended = exchange => {
                if let Ok(answered) = &ended && answers.wants(leased.receipt.seq) {
                    // Before the engine hears of the end: whoever waits looks here once that is durable.
                    keep_answer(answers, target, leased, answered);
                }
                outcome(target, ended)
            }
            _ = release.wait_for(|&release| release) => CallOutcome::Interrupted,
        };
        log(target, &leased.queue, &outcome);
        report.outcome = Some(outcome);
    }

    fn request(
        &self,
        target: &Target,
        leased: &Leased,
        content: &Content,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let message = &leased.message;
        let id = value(self.shared.handle.keys().id(message.seq).to_string());
        let mut request = Request::new(Full::new(content.body.clone()));
        (*request.method_mut(), *request.uri_mut()) = address(&target.url, content)?;
        let headers = request.headers_mut();
        headers.reserve(target.headers.len() + content.headers.len() + 12);
        for (name, text) in content.real_headers() {
            if let (Ok(name), Ok(text)) = (HeaderName::try_from(name), HeaderValue::try_from(text)) {
                headers.append(name, text);
            }
        }
        // What the operator says counts more than what callers say.
        for (name, text) in &target.headers {
            headers.insert(name, text.clone());
        }
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        // A request that had neither a body nor a type, such as a GET, is not given one.
        let is_bare = content.method().is_some() && content.body.is_empty();
        if let Ok(content_type) = HeaderValue::try_from(&content.content_type)
            && !(is_bare && content_type == DEFAULT_CONTENT_TYPE)
        {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        headers.insert("millpond-message-id", id.clone());
        headers.insert("millpond-queue", value(leased.queue.as_str().to_owned()));
        headers.insert("millpond-attempt", HeaderValue::from(message.attempts + 1));
        headers.insert("millpond-accepted-at", value(view::rfc3339(message.accepted)));
        headers.insert("millpond-expires-at", value(view::rfc3339(message.expires)));
        headers.insert(labels::CRITICALITY, HeaderValue::from_static(message.criticality.as_str()));
        for (name, label) in [(labels::TENANT, &message.tenant), (labels::GROUP, &message.group)] {
            if let Some(label) = label {
                headers.insert(name, labels::header_value(label));
            }
        }
        headers.insert("idempotency-key", id.clone());
        target.signer.sign(headers, id, jiff::Timestamp::now().as_second(), &content.body);
        Ok(request)
    }
}

/// Keeps an answer that ends the message's life, if it was read whole.
fn keep_answer(answers: &Answers, target: &Target, leased: &Leased, answered: &Answered) {
    let pause = retry_after(&answered.headers, jiff::Timestamp::now());
    let verdict = verdict(answered.status, pause, &target.outcomes);
    let Ok(status) = StatusCode::from_u16(answered.status) else { return };
    if matches!(verdict, Verdict::Succeeded | Verdict::Dead) && !answered.is_cut {
        let (headers, body) = (answered.headers.clone(), answered.body.clone());
        let delivery = leased.message.delivery();
        answers.put(leased.receipt.seq, TargetAnswer { delivery, status, headers, body });
    }
}

/// What the end of an exchange means.
fn outcome(target: &Target, ended: Result<Answered, Fault>) -> CallOutcome {
    let answered = match ended {
        Ok(answered) => answered,
        Err(Fault::Failed(failure)) => return CallOutcome::Failed { failure, timed_out: false },
        Err(Fault::TimedOut(failure)) => return CallOutcome::Failed { failure, timed_out: true },
        // No attempt, like any other call that the target does not want now.
        Err(Fault::NotBegun(failure)) => return CallOutcome::Throttled { pause: PAUSE_NOT_BEGUN, failure },
    };
    let pause = retry_after(&answered.headers, jiff::Timestamp::now());
    match verdict(answered.status, pause, &target.outcomes) {
        Verdict::Succeeded => CallOutcome::Succeeded { result: result(answered) },
        Verdict::Throttled(pause) => CallOutcome::Throttled { pause, failure: failure(&answered) },
        Verdict::Failed => CallOutcome::Failed { failure: failure(&answered), timed_out: false },
        Verdict::Dead => CallOutcome::Dead { failure: failure(&answered) },
    }
}

fn result(answered: Answered) -> Option<Arc<Content>> {
    if answered.body.is_empty() {
        return None;
    }
    let content_type = answered.headers.get(header::CONTENT_TYPE).and_then(|text| text.to_str().ok());
    let headers =
        if answered.is_cut { vec![(Content::TRUNCATED.to_owned(), "true".to_owned())] } else { Vec::new() };
    Some(Arc::new(Content {
        content_type: content_type.unwrap_or("application/octet-stream").to_owned(),
        headers,
        body: answered.body,
    }))
}

fn failure(answered: &Answered) -> Failure {
    let said: String = String::from_utf8_lossy(&answered.body)
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    let said = said.trim();
    let message = match (said, answered.headers.get(header::LOCATION)) {
        ("", Some(_)) if (300..400).contains(&answered.status) => {
            format!("status {}: a redirect, which is not followed", answered.status)
        }
        ("", _) => format!("status {} without a body", answered.status),
        (said, _) => said.to_owned(),
    };
    Failure::new("status", &message, Some(answered.status))
}

/// One line per failed call, without bodies and without what the target said.
fn log(target: &Target, queue: &Name, outcome: &CallOutcome) {
    let (word, failure) = match outcome {
        CallOutcome::Succeeded { .. } => return,
        CallOutcome::Throttled { failure, .. } => ("throttled", Some(failure)),
        CallOutcome::Failed { failure, .. } => ("failed", Some(failure)),
        CallOutcome::Dead { failure } => ("dead", Some(failure)),
        CallOutcome::Interrupted => ("interrupted", None),
    };
    tracing::debug!(
        push_target = %target.name,
        %queue,
        outcome = word,
        kind = failure.map(|failure| failure.kind.as_str()),
        status = failure.and_then(|failure| failure.http_status),
        "push call ended"
    );
}

#[cfg(test)]
mod tests;
