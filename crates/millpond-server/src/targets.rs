//! Targets as resources: how they are, and closing a breaker by hand.
//!
//! Owns what becomes of these requests between the wire and the engine, and how a target is shown. Must never show a
//! credential.

use crate::enqueue::json;
use crate::errors::{Answer, Told, refused};
use crate::paths::TargetName;
use crate::shared::Shared;
use axum::extract::{Request, State};
use http::Uri;
use millpond_api::problem::{Problem, Slug};
use millpond_api::types::{Target, TargetState, Targets};
use millpond_config::Target as TargetConfiguration;
use millpond_core::breaker::BreakerState;
use millpond_core::command::TargetError;
use millpond_core::name::Name;
use millpond_core::stats::{CallEnding, TargetStats};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where each target is, as anybody may see it.
#[derive(Debug, Default)]
pub(crate) struct TargetUrls(BTreeMap<Name, String>);

impl TargetUrls {
    /// The URLs of these targets, without their queries: keys are in there.
    pub(crate) fn new(targets: &BTreeMap<Name, TargetConfiguration>) -> Self {
        Self(targets.iter().map(|(name, target)| (name.clone(), shown(&target.url))).collect())
    }

    fn get(&self, name: &Name) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

fn shown(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("http");
    // The configuration refuses a user and a password; whoever brings a URL in another way may not have.
    let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{}", url.path())
}

impl Told for TargetError {
    fn problem(&self, target: &str) -> Problem {
        let Self::Unknown = self;
        let detail = format!(
            "there is no target {target:?}; targets are declared in the configuration file, see GET /v1/targets for those there are"
        );
        Problem::new(Slug::UnknownTarget, detail)
    }
}

/// `GET /v1/targets`.
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Answer {
    let targets = shared.handle.targets().await.map_err(|error| refused(&error, ""))?;
    Ok(json(&Targets { targets: targets.iter().map(|stats| view(&shared, stats)).collect() }))
}

/// `GET /v1/targets/{target}`.
pub(crate) async fn get(State(shared): State<Arc<Shared>>, TargetName(target): TargetName) -> Answer {
    let stats = shared.handle.target(target.clone()).await;
    let stats = stats.map_err(|error| refused(&error, target.as_str()))?;
    Ok(json(&view(&shared, &stats)))
}

/// `POST /v1/targets/{target}/reset`: closes its breaker.
pub(crate) async fn reset(
    State(shared): State<Arc<Shared>>,
    TargetName(target): TargetName,
    request: Request,
) -> Answer {
    // Nothing is expected in the body; what is there must still not be endless.
    shared.bodies.read(request.into_body(), shared.max_body_bytes).await?;
    let stats = shared.handle.reset_target(target.clone()).await;
    let stats = stats.map_err(|error| refused(&error, target.as_str()))?;
    Ok(json(&view(&shared, &stats)))
}

fn view(shared: &Shared, stats: &TargetStats) -> Target {
    Target {
        name: stats.name.as_str().to_owned(),
        url: shared.target_urls.get(&stats.name),
        concurrency: stats.concurrency,
        limit: stats.limit,
        inflight: stats.inflight,
        state: match stats.state {
            BreakerState::Closed => TargetState::Closed,
            BreakerState::Open => TargetState::Open,
            BreakerState::HalfOpen => TargetState::HalfOpen,
        },
        state_seconds: stats.state_for.as_secs_f64(),
        paused_seconds: stats.throttled_for.as_secs_f64(),
        next_probe_seconds: stats.next_probe.map(|wait| wait.as_secs_f64()),
        ramp_limit: stats.ramp_limit,
        rate_per_second: stats.rate_per_second,
        adaptive: stats.adaptive,
        failures_in_row: stats.failures_in_row,
        successes_total: stats.ended(CallEnding::Succeeded),
        failures_total: stats.ended(CallEnding::Failed) + stats.ended(CallEnding::TimedOut),
        throttled_total: stats.ended(CallEnding::Throttled),
        rejected_total: stats.ended(CallEnding::Rejected),
        queues: stats.queues.iter().map(|queue| queue.as_str().to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_credential() {
        for (url, seen) in [
            ("http://127.0.0.1:9000/tasks?key=hunter2", "http://127.0.0.1:9000/tasks"),
            ("https://ada:hunter2@api.example/v1", "https://api.example/v1"),
            ("http://a", "http://a/"),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), seen);
        }
    }
}
