//! Requests of clients that know nothing of Millpond: which route takes one, and what it says as a message.
//!
//! Owns the matching, what is appended to a target's URL, the headers that are kept, and what templates make of a
//! request. Must never let a path out of the target's own, nor take one of Millpond's.

use crate::bodies::discard;
use crate::enqueue::{self, Wish};
use crate::errors::{Answer, Refusal, refuse};
use crate::headers;
use crate::labels;
use crate::paths::shown;
use crate::schemas;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderValue, Method, Uri, header};
use matchit::{InsertError, Params};
use millpond_api::problem::Slug;
use millpond_config::{Part, Route, Source, Template, is_own_path, is_traversal};
use millpond_core::message::Content;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Every route, by method and path.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_method: HashMap<Method, matchit::Router<Arc<Route>>>,
}

/// What was found for a request.
#[derive(Debug)]
pub(crate) enum Found<'routes, 'path> {
    /// A route takes it.
    Route(&'routes Arc<Route>, Params<'routes, 'path>),
    /// Routes take the path, but with these methods.
    OtherMethods(Vec<Method>),
    /// Nothing is there.
    Nothing,
}

impl Routes {
    /// A table of these routes.
    pub(crate) fn new(routes: &[Route]) -> Result<Self, InsertError> {
        let mut by_method: HashMap<Method, matchit::Router<Arc<Route>>> = HashMap::new();
        for route in routes {
            let shared = Arc::new(route.clone());
            for method in &route.methods {
                by_method
                    .entry(method.clone())
                    .or_default()
                    .insert(route.path.as_str(), Arc::clone(&shared))?;
            }
        }
        Ok(Self { by_method })
    }

    /// What takes a request for `path`, just as it was sent.
    pub(crate) fn find<'routes, 'path>(
        &'routes self,
        method: &Method,
        path: &'path str,
    ) -> Found<'routes, 'path> {
        if is_own_path(path) {
            return Found::Nothing;
        }
        if let Some(found) = self.by_method.get(method).and_then(|router| router.at(path).ok()) {
            return Found::Route(found.value, found.params);
        }
        let others = self.methods(path);
        if others.is_empty() { Found::Nothing } else { Found::OtherMethods(others) }
    }
}

impl Routes {
    /// The methods that routes take at `path`.
    pub(crate) fn methods(&self, path: &str) -> Vec<Method> {
        if is_own_path(path) {
            return Vec::new();
        }
        let taking = self.by_method.iter().filter(|(_, router)| router.at(path).is_ok());
        let mut methods: Vec<Method> = taking.map(|(method, _)| method.clone()).collect();
        methods.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        methods
    }
}

/// Everything that is at none of Millpond's own paths.
pub(crate) async fn enter(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (route, wish) = match shared.routes.find(&parts.method, parts.uri.path()) {
        Found::Route(route, parameters) => {
            match shared.refuse_if_draining().and_then(|()| wish(route, &parameters, &parts)) {
                Ok(wish) => (Arc::clone(route), wish),
                Err(refusal) => {
                    discard(body);
                    return Err(refusal);
                }
            }
        }
        Found::OtherMethods(methods) => {
            discard(body);
            return Ok(other_methods(&methods, &parts));
        }
        Found::Nothing => {
            discard(body);
            return Err(not_found(&parts.uri));
        }
    };
    enqueue::accept(&shared, route.queue.clone(), wish, parts, body, Some(&route)).await
}

fn not_found(uri: &Uri) -> Refusal {
    let detail = format!("nothing is at {:?}; GET / lists where to start", shown(uri.path()));
    refuse(Slug::NotFound, detail)
}

fn other_methods(methods: &[Method], parts: &Parts) -> Response {
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    let allow = names.join(", ");
    let path = shown(parts.uri.path());
    let detail = format!("the route at {path:?} takes {allow}, not {}", parts.method);
    let mut response = refuse(Slug::MethodNotAllowed, detail).into_response();
    response.headers_mut().insert(header::ALLOW, headers::value(allow));
    response
}

/// What a request says as a message.
fn wish(route: &Route, parameters: &Params<'_, '_>, parts: &Parts) -> Result<Wish, Refusal> {
    let path = forwarded(route, parameters, &parts.uri)?;
    if route.schema.is_some() {
        schemas::refuse_other_types(&parts.headers)?;
    }
    let keeps_coding = route.schema.is_none() && route.keep_headers.keeps(&header::CONTENT_ENCODING);
    let mut wish = Wish::from_headers(&parts.headers, keeps_coding)?;
    let trace_context = std::mem::take(&mut wish.headers);
    wish.headers.push((Content::METHOD.to_owned(), parts.method.to_string()));
    if !path.is_empty() {
        wish.headers.push((Content::PATH.to_owned(), path));
    }
    keep_headers(route, &parts.headers, &mut wish.headers)?;
    wish.headers.extend(trace_context);
    let read = |template: &Option<Template>| match template {
        Some(template) => template.render(|source| value(source, parameters, parts)),
        None => Ok(None),
    };
    if wish.tenant.is_none() {
        wish.tenant = labels::label_field(read(&route.tenant)?.as_deref(), "tenant of the route")?;
    }
    if wish.group.is_none() {
        wish.group = labels::label_field(read(&route.group)?.as_deref(), "group of the route")?;
    }
    if wish.key.is_none() {
        wish.key = read(&route.idempotency_key)?;
        if wish.key.as_ref().is_some_and(|key| key.len() > headers::KEY_BYTES_MAX) {
            let most = headers::KEY_BYTES_MAX;
            let detail = format!("the idempotency key that the route makes has more than {most} bytes");
            return Err(refuse(Slug::Malformed, detail));
        }
    }
    if !parts.headers.contains_key(labels::CRITICALITY)
        && let Some(word) = read(&route.criticality)?
    {
        wish.criticality = labels::criticality_field(Some(&word))?;
    }
    Ok(wish)
}

/// What is appended to the target's URL. Nothing is decoded on the way.
fn forwarded(route: &Route, parameters: &Params<'_, '_>, uri: &Uri) -> Result<String, Refusal> {
    let mut forwarded = match &route.forward {
        Some(template) => filled(template, parameters),
        None => uri.path().strip_prefix(route.path.fixed()).unwrap_or_default().to_owned(),
    };
    if is_traversal(forwarded.split('?').next().unwrap_or_default()) || forwarded.contains('#') {
        let path = shown(uri.path());
        let detail = format!(
            "the path {path:?} has a segment that is empty, . or .., plain or encoded; write the path that is meant"
        );
        return Err(refuse(Slug::Malformed, detail));
    }
    if !forwarded.contains('?')
        && let Some(query) = uri.query()
    {
        let _ = write!(forwarded, "?{query}");
    }
    // A question mark without anything behind it is how a template says that the query stays behind.
    if forwarded.ends_with('?') && uri.query() != Some("") {
        forwarded.pop();
    }
    Ok(forwarded)
}

/// The template with the parameters as they were sent; behind its question mark none can begin another field.
fn filled(template: &Template, parameters: &Params<'_, '_>) -> String {
    let mut text = String::new();
    for part in template.parts() {
        match part {
            Part::Text(fixed) => text.push_str(fixed),
            Part::Value(Source::Parameter(name)) => {
                let value = parameters.get(name).unwrap_or_default();
                if text.contains('?') {
                    text.push_str(&value.replace('&', "%26").replace('+', "%2B").replace(';', "%3B"));
                } else {
                    text.push_str(value);
                }
            }
            Part::Value(Source::Header(_) | Source::Query(_)) => {}
        }
    }
    text
}

/// The value of a part of a template, decoded.
fn value(source: &Source, parameters: &Params<'_, '_>, parts: &Parts) -> Result<Option<String>, Refusal> {
    match source {
        Source::Parameter(name) => {
            let Some(raw) = parameters.get(name) else { return Ok(None) };
            let decoded = percent_encoding::percent_decode_str(raw).decode_utf8().map_err(|_| {
                refuse(Slug::Malformed, format!("the part {{{name}}} of the path is not UTF-8"))
            })?;
            Ok(Some(decoded.trim().to_owned()))
        }
        Source::Header(name) => {
            let Some(value) = headers::one(&parts.headers, name.as_str())? else { return Ok(None) };
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| refuse(Slug::Malformed, format!("the header {name} is not UTF-8")))?;
            Ok(Some(text.trim().to_owned()))
        }
        Source::Query(name) => {
            let mut fields = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
            Ok(fields.find(|(field, _)| field == name).map(|(_, value)| value.trim().to_owned()))
        }
    }
}

/// Adds the headers that the route keeps, in their order; never those that a `Connection` header names.
fn keep_headers(
    route: &Route,
    headers: &http::HeaderMap,
    kept: &mut Vec<(String, String)>,
) -> Result<(), Refusal> {
    let connection = headers::of_the_connection(headers);
    for (name, value) in headers {
        if !route.keep_headers.keeps(name) || connection.contains(name) {
            continue;
        }
        let text = std::str::from_utf8(HeaderValue::as_bytes(value)).map_err(|_| {
            let detail = format!("the header {name} is to be kept and is not UTF-8; write it as UTF-8");
            refuse(Slug::Malformed, detail)
        })?;
        kept.push((name.as_str().to_owned(), text.to_owned()));
    }
    Ok(())
}
