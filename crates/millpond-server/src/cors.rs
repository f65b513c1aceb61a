//! Web pages of other sites that the operator lets in.
//!
//! Owns which calls they may make: routes, enqueueing, and what has a message's id in its path. Must never open what
//! operators and workers use.

use crate::routes::Routes;
use http::{HeaderValue, Method, Request, header};
use millpond_config::Cors as Configuration;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

/// The pages that may come, and what they are told.
#[derive(Debug)]
pub(crate) struct Cors {
    /// `None`: any.
    origins: Option<Vec<HeaderValue>>,
    layer: CorsLayer,
}

impl Cors {
    /// What `configuration` says; with any origin there are no credentials.
    pub(crate) fn new(configuration: &Configuration) -> Self {
        let layer = CorsLayer::new()
            .allow_headers(configuration.headers.clone())
            .expose_headers(configuration.expose.clone())
            .max_age(configuration.max_age);
        let layer = match &configuration.origins {
            None => layer.allow_origin(Any),
            Some(origins) => layer
                .allow_origin(AllowOrigin::list(origins.iter().cloned()))
                .allow_credentials(configuration.credentials),
        };
        Self { origins: configuration.origins.clone(), layer }
    }

    /// What answers a request of a page that is let in; `None` if it is none, or may not make this call.
    pub(crate) fn invites<B>(&self, request: &Request<B>, routes: &Routes) -> Option<CorsLayer> {
        let origin = request.headers().get(header::ORIGIN)?;
        if self.origins.as_ref().is_some_and(|origins| !origins.contains(origin)) {
            return None;
        }
        let methods = methods(request.uri().path(), routes);
        let wanted = match request.headers().get(header::ACCESS_CONTROL_REQUEST_METHOD) {
            Some(wanted) if request.method() == Method::OPTIONS => {
                Method::from_bytes(wanted.as_bytes()).ok()?
            }
            _ => request.method().clone(),
        };
        methods.contains(&wanted).then(|| self.layer.clone().allow_methods(methods))
    }
}

/// The methods that pages may use at a path.
fn methods(path: &str, routes: &Routes) -> Vec<Method> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments[..] {
        ["v1", "queues", _, "messages"] | ["v1", "messages", _, "cancel"] => vec![Method::POST],
        ["v1", "messages", _] | ["v1", "messages", _, "result"] => vec![Method::GET],
        _ => routes.methods(path),
    }
}
