//! Callbacks: who wants to be told of the end of a message is told.
//!
//! Owns the desk at which callbacks are taken, looked up and sent. They lie in a queue of their own; that every end has
//! one is the engine's. Must never call an address that the operator does not allow.

mod address;
mod client;
mod deliver;
mod event;
mod hosts;
mod verdict;

pub(crate) use client::{Resolve, System};
pub(crate) use deliver::run;
pub(crate) use event::Report;

use crate::errors::{Refusal, refuse};
use crate::shared::Shared;
use crate::signature::Signer;
use crate::tls::{self, TlsError};
use crate::view;
use address::{Address, Policy, shown};
use client::Client;
use hosts::{Admission, Ended, Hosts};
use millpond_api::problem::Slug;
use millpond_api::types::CallbackStatus;
use millpond_config::{AlertWebhook, CALLBACK_QUEUE, Callbacks as Configuration};
use millpond_core::callback::Callbacks;
use millpond_core::command::{EnqueueError, NewMessage, Status};
use millpond_core::identity::Seq;
use millpond_core::message::{CallbackWish, Phase};
use millpond_core::name::Name;
use millpond_engine::engine::Wording;
use millpond_engine::handle::CallError;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Endpoints that have answered 410 and are remembered.
const GONE_MAX: usize = 10_000;
/// Dead callbacks looked at in one question.
const PAGE: usize = 500;

/// Where callbacks are taken, looked up and sent.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Whether producers may ask for them.
    is_open: bool,
    policy: Policy,
    client: Client,
    signer: Signer,
    /// For what goes to addresses that the operator has written.
    own_signer: Signer,
    hosts: Mutex<Hosts>,
    /// Endpoints that have answered 410, without their queries.
    gone: Mutex<BTreeSet<String>>,
    concurrency: u32,
    timeout: Duration,
    delays: Vec<Duration>,
}

impl Desk {
    /// A desk; `callbacks`: what producers may ask for, if they may; `webhook`: where alerts go.
    pub(crate) fn new(
        callbacks: Option<&Configuration>,
        webhook: Option<&AlertWebhook>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, TlsError> {
        let (is_open, fresh) = (callbacks.is_some(), Configuration::default());
        let configuration = callbacks.unwrap_or(&fresh);
        let mut tls = tls::client(&configuration.tls)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            is_open,
            policy: Policy::new(configuration),
            client: Client { resolver, tls: Arc::new(tls) },
            signer: Signer::new(&configuration.signature),
            own_signer: Signer::new(webhook.map_or(&[], |webhook| &webhook.signature)),
            hosts: Mutex::new(Hosts::new(configuration.concurrency_per_host)),
            gone: Mutex::default(),
            concurrency: configuration.concurrency,
            timeout: configuration.timeout,
            delays: configuration.delays.clone(),
        })
    }

    fn admit(&self, host: &str) -> Admission {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.admit(host, Instant::now(), fastrand::f64())
    }

    fn ended(&self, host: &str, how: Ended, took: Duration) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.ended(host, how, took, Instant::now());
    }

    // --- endpoints that want nothing any more ---------------------------------------------------------------

    fn gone(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many endpoints get nothing any more.
    pub(crate) fn disabled(&self) -> usize {
        self.gone().len()
    }

    fn is_gone(&self, address: &Address) -> bool {
        self.gone().contains(&address.shown())
    }

    fn is_gone_from_now_on(&self, address: &Address) {
        let mut gone = self.gone();
        if gone.len() < GONE_MAX && gone.insert(address.shown()) {
            let url = address.shown();
            tracing::warn!(
                url,
                "the endpoint has answered 410: nothing is sent there until its dead callbacks are replayed"
            );
        }
    }

    fn is_back(&self, address: &Address) {
        if self.gone().remove(&address.shown()) {
            tracing::info!(url = address.shown(), "the endpoint takes callbacks again");
        }
    }

    /// After a start: endpoints are disabled as long as a dead callback says so.
    async fn remember_gone(&self, shared: &Shared) {
        let Ok(queue) = Name::new(CALLBACK_QUEUE) else { return };
        let mut after: Option<Seq> = None;
        loop {
            let page = shared.handle.list(queue.clone(), Some(Phase::Dead), after, PAGE).await;
            let Ok((dead, next)) = page else { return };
            for status in &dead {
                let last = status.message.last_failure();
                if last.is_some_and(|(failure, _)| failure.kind == "gone")
                    && let Ok(Some(content)) = shared.handle.content(status.message.seq).await
                    && let Some((_, url)) = content.headers.iter().find(|(name, _)| name == event::URL)
                    && let Ok(address) = Address::read(url)
                {
                    self.is_gone_from_now_on(&address);
                }
            }
            after = next;
            if after.is_none() {
                return;
            }
        }
    }
}

/// What the engine needs to word ends.
pub(crate) fn wording(base_url: String) -> Wording {
    Wording(Arc::new(move |keys| {
        let base_url = base_url.clone();
        Callbacks {
            queue: Name::new(CALLBACK_QUEUE).expect("it is a name"),
            words: Arc::new(move |ended| event::words(&base_url, &keys, ended)),
        }
    }))
}

/// A producer's wish to be told of a message's end, looked at as far as that goes without asking for its host.
pub(crate) fn wish(
    shared: &Shared,
    url: &str,
    headers: &[(String, String)],
) -> Result<Arc<CallbackWish>, Refusal> {
    let no = |detail: String| Err(refuse(Slug::InvalidMessage, detail));
    let Some(desk) = shared.callbacks.as_ref().filter(|desk| desk.is_open) else {
        return no("callbacks are switched off on this server; leave millpond-callback out, or ask its operator for [callbacks]"
            .to_owned());
    };
    let checked = Address::read(url).and_then(|address| desk.policy.check(&address));
    if let Err(unfit) = checked {
        return no(format!("the callback {:?}: {unfit}", crate::paths::shown(&shown(url))));
    }
    let context = headers.iter().filter(|(name, value)| match name.as_str() {
        "traceparent" => true,
        "tracestate" => value.len() <= event::TRACESTATE_BYTES_MAX,
        _ => false,
    });
    Ok(Arc::new(CallbackWish { address: url.to_owned(), context: context.cloned().collect() }))
}

/// Refuses what nobody but the server itself may do with the queue of callbacks.
pub(crate) fn refuse_reserved(queue: &Name) -> Result<(), Refusal> {
    if queue.as_str() != CALLBACK_QUEUE {
        return Ok(());
    }
    let detail = format!(
        "the queue {CALLBACK_QUEUE} is the server's own: it can be looked at, paused, and its dead letters replayed"
    );
    Err(refuse(Slug::Forbidden, detail))
}

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// No desk is there.
    #[error("nothing can be sent: neither [callbacks] nor anything else that sends is configured")]
    Off,
    /// The engine does not take it.
    #[error(transparent)]
    Refused(#[from] CallError<EnqueueError>),
}

/// Tells `report` to `url`, which the operator has written: durable once this returns, signed and tried like a callback.
pub(crate) async fn post(shared: &Shared, report: &Report, url: &str) -> Result<Seq, PostError> {
    if shared.callbacks.is_none() {
        return Err(PostError::Off);
    }
    let id = format!("{:032x}", fastrand::u128(..));
    let telling = report.telling(&shared.base_url, &id, url);
    let message = NewMessage { content: telling.content, tenant: telling.tenant, ..NewMessage::default() };
    let queue = Name::new(CALLBACK_QUEUE).expect("it is a name");
    let mut accepted = shared.handle.enqueue(queue, vec![message]).await?;
    let accepted = accepted.pop().expect("one answer per message").map_err(CallError::Refused)?;
    Ok(accepted.seq)
}

/// What has become of a message's callback; `None` if it wants none.
pub(crate) async fn status(shared: &Shared, status: &Status) -> Option<CallbackStatus> {
    let callback = status.message.callback.as_ref()?;
    let url = shown(&callback.wish.address);
    let pending = |url| CallbackStatus { url, status: "pending".to_owned(), attempts: 0, last_error: None };
    let Some(teller) = callback.teller.filter(|_| status.message.phase.is_terminal()) else {
        return Some(pending(url));
    };
    let Ok(told) = shared.handle.status(teller, None).await else {
        return Some(CallbackStatus { status: "forgotten".to_owned(), ..pending(url) });
    };
    let message = &told.message;
    let last = message.last_failure();
    let is_disabled = last.is_some_and(|(failure, _)| matches!(&*failure.kind, "gone" | "disabled"));
    let word = match message.phase {
        Phase::Succeeded => "delivered",
        Phase::Dead if is_disabled => "disabled",
        phase if phase.is_terminal() => "dead",
        _ => "pending",
    };
    let last_error = last.map(|(failure, at)| view::error(failure, at));
    Some(CallbackStatus { url, status: word.to_owned(), attempts: message.attempts, last_error })
}
