//! What every request handler shares.
//!
//! Owns the handle on the engine and the facts about this server. Must never hold anything per request.

use crate::alerts::Board;
use crate::answers::Answers;
use crate::bodies::Bodies;
use crate::callbacks::Desk;
use crate::cors::Cors;
use crate::errors::{Refusal, draining};
use crate::guard::Guard;
use crate::limits::Limits;
use crate::routes::Routes;
use crate::scaler::arrivals::Arrivals;
use crate::targets::TargetUrls;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::handle::Handle;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

/// The state behind the router.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The engine.
    pub(crate) handle: Handle,
    /// The bounds of the front door.
    pub(crate) limits: Limits,
    /// Most bytes of a message's body.
    pub(crate) max_body_bytes: u64,
    /// The room for bodies that are arriving.
    pub(crate) bodies: Bodies,
    /// What links begin with; empty: they are paths.
    pub(crate) base_url: String,
    /// Where the targets are.
    pub(crate) target_urls: TargetUrls,
    /// Whether a status is shown only to who has its token.
    pub(crate) needs_token: bool,
    /// What comes in by paths that the operator has chosen.
    pub(crate) routes: Routes,
    /// The pages of other sites that may come.
    pub(crate) cors: Option<Cors>,
    /// The targets' own answers, for those who wait for them.
    pub(crate) answers: Answers,
    /// Who hears of work that arrives.
    pub(crate) arrivals: Arc<Arrivals>,
    /// What somebody must look at.
    pub(crate) alerts: Board,
    /// The check at the front door.
    pub(crate) guard: Guard,
    /// How much of a result each queue keeps.
    pub(crate) result_limits: ResultLimits,
    /// Where callbacks are taken and sent; `None`: nowhere.
    pub(crate) callbacks: Option<Arc<Desk>>,
    /// Whether the server is shutting down.
    pub(crate) draining: AtomicBool,
}

impl Shared {
    /// Where a message's status is, with the token that allows to read it.
    pub(crate) fn status_url(&self, id: &str, token: &str) -> String {
        let mut url = String::with_capacity(self.base_url.len() + 16 + id.len() + token.len());
        for part in [self.base_url.as_str(), "/v1/messages/", id, "?t=", token] {
            url.push_str(part);
        }
        url
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Refuses what would begin new work while the server is shutting down.
    pub(crate) fn refuse_if_draining(&self) -> Result<(), Refusal> {
        if self.is_draining() { Err(draining()) } else { Ok(()) }
    }
}

/// How many bytes of a result each queue keeps, at hand without a question to the engine.
#[derive(Debug, Default)]
pub(crate) struct ResultLimits {
    by_queue: RwLock<HashMap<Name, u64>>,
}

impl ResultLimits {
    /// Remembers a queue's limit.
    pub(crate) fn set(&self, queue: Name, bytes: u64) {
        self.by_queue.write().expect("no holder of this lock panics").insert(queue, bytes);
    }

    /// Forgets a queue.
    pub(crate) fn remove(&self, queue: &Name) {
        self.by_queue.write().expect("no holder of this lock panics").remove(queue);
    }

    /// A queue's limit in bytes.
    pub(crate) fn get(&self, queue: &Name) -> u64 {
        let known = self.by_queue.read().expect("no holder of this lock panics").get(queue).copied();
        known.unwrap_or_else(|| QueueSettings::default().result_max_bytes)
    }
}
