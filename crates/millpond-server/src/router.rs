//! Which path leads where, and what happens around every request.
//!
//! Owns the table of routes, the last word on errors (problem+json with its instance), and the outermost bounds:
//! time, and panics. Must never let a fault in one request end the process.

use crate::errors::{Refusal, no_answer_in_time, refuse};
use crate::shared::Shared;
use crate::{alerts, dead, enqueue, metrics, pages, queues, replays, routes, status, targets, workers};
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::{HeaderValue, Method, Request, Uri, header};
use hyper::body::Incoming;
use millpond_api::problem::{self, Slug};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tower::{Layer as _, Service as _, ServiceExt as _};

/// The table of routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/queues/{queue}/messages", post(enqueue::enqueue).get(queues::messages))
        .route("/v1/queues/{queue}/messages/batch", post(enqueue::enqueue_batch))
        .route("/v1/queues/{queue}/leases", post(workers::lease))
        .route("/v1/leases/extend", post(workers::extend))
        .route("/v1/settlements", post(workers::settle))
        .route("/v1/messages/{id}", get(status::status))
        .route("/v1/messages/{id}/result", get(status::result))
        .route("/v1/messages/{id}/cancel", post(status::cancel))
        .route("/v1/queues", get(queues::list))
        .route("/v1/queues/{queue}", get(queues::get).put(queues::put).delete(queues::delete))
        .route("/v1/queues/{queue}/pause", post(queues::pause))
        .route("/v1/queues/{queue}/resume", post(queues::resume))
        .route("/v1/queues/{queue}/purge", post(queues::purge))
        .route("/v1/queues/{queue}/stats", get(queues::stats))
        .route("/v1/queues/{queue}/dead", get(dead::list))
        .route("/v1/queues/{queue}/dead/replay", post(replays::replay))
        .route("/v1/queues/{queue}/dead/replays", get(replays::list))
        .route("/v1/queues/{queue}/dead/replays/{number}", get(replays::get).delete(replays::cancel))
        .route("/v1/queues/{queue}/dead/{id}", get(dead::get).delete(dead::delete))
        .route("/v1/targets", get(targets::list))
        .route("/v1/targets/{target}", get(targets::get))
        .route("/v1/targets/{target}/reset", post(targets::reset))
        .route("/v1/alerts", get(alerts::list))
        .route("/metrics", get(metrics::metrics))
        .route("/livez", get(pages::livez))
        .route("/readyz", get(pages::readyz))
        .route("/problems/{slug}", get(pages::problem))
        .route("/", get(pages::index))
        .fallback(routes::enter)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(shared)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Refusal {
    let path = crate::paths::shown(uri.path());
    refuse(Slug::MethodNotAllowed, format!("{path:?} does not take {method}; see the Allow header"))
}

/// Answers one request, whatever happens.
pub(crate) async fn answer(shared: &Shared, router: &mut Router, request: Request<Incoming>) -> Response {
    let path: Box<str> = request.uri().path().into();
    let cors = shared.cors.as_ref().and_then(|cors| cors.invites(&request, &shared.routes));
    let mut response = match (shared.guard.check(&request, cors.is_some()), cors) {
        (Ok(()), None) => in_time(shared, router, request).await,
        (Ok(()), Some(cors)) => {
            let router = &*router;
            let inner = tower::service_fn(move |request| {
                let mut router = router.clone();
                async move { Ok::<_, Infallible>(in_time(shared, &mut router, request).await) }
            });
            // Few requests come this way, and the others need not make room for it.
            let Ok(response) = Box::pin(cors.layer(inner).oneshot(request)).await;
            response
        }
        (Err(refusal), _) => refusal.into_response(),
    };
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        complete(&mut response, refusal, &path);
    }
    response
}

/// Answers one request that may be made, within its time.
async fn in_time(shared: &Shared, router: &mut Router, request: Request<Incoming>) -> Response {
    let response = unless_panics(router.call(request));
    match tokio::time::timeout(shared.limits.request_timeout, response).await {
        Ok(response) => response,
        Err(_) => no_answer_in_time(shared.limits.request_timeout).into_response(),
    }
}

/// Turns what a handler refused into JSON.
fn complete(response: &mut Response, Refusal(mut problem): Refusal, path: &str) {
    problem.instance = Some(path.to_owned());
    let headers = response.headers_mut();
    // The router has measured the empty body that stood here so far.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.status == 401 {
        // RFC 9110 wants a challenge with every 401.
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let bytes = serde_json::to_vec(&problem).expect("a problem has string keys");
    *response.body_mut() = Body::from(bytes);
}

/// Waits for `response`; a panic in it becomes a 500 and a line in the log (written by the panic hook).
async fn unless_panics<E>(response: impl Future<Output = Result<Response, E>>) -> Response {
    let mut response = pin!(response);
    // A handler shares nothing with others that a panic could leave half done: the engine is on its own thread.
    std::future::poll_fn(|context| {
        let Ok(poll) = catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(context))) else {
            tracing::error!("a request handler panicked; the request was answered with 500");
            return Poll::Ready(internal());
        };
        poll.map(|result| result.unwrap_or_else(|_| internal()))
    })
    .await
}

fn internal() -> Response {
    let detail =
        "the server met a fault of its own; its log says more. Whether the request took effect is not known";
    refuse(Slug::Internal, detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::{complete, unless_panics};
    use crate::errors::{Refusal, refuse};
    use axum::response::{IntoResponse as _, Response};
    use millpond_api::problem::{Problem, Slug};

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_panic_becomes_a_500() {
        let response = block_on(unless_panics(async {
            assert!(std::env::args().count() == 0, "a fault in a handler");
            Ok::<Response, ()>(Response::default())
        }));
        assert_eq!(response.status(), 500);
        assert_eq!(response.extensions().get::<Refusal>().unwrap().0.slug(), Some(Slug::Internal));
    }

    #[test]
    fn a_refusal_becomes_json_with_its_path_and_retry_after() {
        let mut refusal = refuse(Slug::QueueFull, "full");
        refusal.0 = Box::new(Problem::clone(&refusal.0).retry_after(7));
        let mut response = refusal.clone().into_response();
        complete(&mut response, refusal, "/v1/queues/a/messages");
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "7");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = block_on(axum::body::to_bytes(response.into_body(), 10_000)).unwrap();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.instance.as_deref(), Some("/v1/queues/a/messages"));
    }
}
