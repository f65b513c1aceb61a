//! Reading `[[routes]]`.
//!
//! Owns which key of a route sets what, and the checks of routes against each other and against the queues. Must never
//! judge a path or a template itself.

use crate::diagnostic::{Place, Report};
use crate::keys::{self, nearest};
use crate::load::ReadFile;
use crate::quantity::{format_duration, format_size};
use crate::route::{Keeping, KeptHeaders, ROUTE_METHODS, Route, RoutePath};
use crate::schema::{SCHEMA_BYTES_MAX, Schema};
use crate::section::Section;
use crate::template::{Part, Source, Template};
use http::Method;
use millpond_core::message::Criticality;
use millpond_core::name::Name;
use millpond_core::settings::{QueueSettings, WAIT_MAX};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Reads every route; those in error are left out.
pub(crate) fn routes(
    report: &mut Report<'_>,
    top: &Section<'_>,
    queues: &BTreeMap<Name, QueueSettings>,
    files: ReadFile<'_>,
) -> Vec<Route> {
    let mut taken = Taken::default();
    let mut routes = Vec::new();
    for section in top.listed_sections(report, "routes") {
        section.check_keys(report, &keys::ROUTE);
        let path = path(report, &section);
        let methods = methods(report, &section);
        if let Some(path) = &path {
            taken.add(report, &section, path, &methods);
        }
        let queue = queue(report, &section, queues);
        let schema = schema(report, &section, files);
        let (Some(path), Some(queue)) = (path, queue) else { continue };
        routes.push(rest(report, &section, Route { methods, schema, ..Route::new(path, queue) }));
    }
    routes
}

fn missing(report: &mut Report<'_>, section: &Section<'_>, key: &str, example: &str) {
    report.error(section.place(), section.path(), format!("has no {key}"), format!("add {key} = {example}"));
}

fn path(report: &mut Report<'_>, section: &Section<'_>) -> Option<RoutePath> {
    if !section.has("path") {
        missing(report, section, "path", "\"/enroll/{*rest}\"");
        return None;
    }
    match RoutePath::parse(section.text(report, "path", "a path in quotes such as \"/enroll/{*rest}\"")?) {
        Ok(path) => Some(path),
        Err(error) => {
            section.wrong(report, "path", error.problem, error.advice);
            None
        }
    }
}

fn methods(report: &mut Report<'_>, section: &Section<'_>) -> Vec<Method> {
    const HELP: &str = "write some of GET, POST, PUT, PATCH and DELETE, or \"*\" for all of them";
    let Some(texts) = section.texts(report, "methods") else { return vec![Method::POST] };
    let mut methods = Vec::new();
    for (span, text) in &texts {
        let upper = text.to_ascii_uppercase();
        match ROUTE_METHODS.iter().find(|method| method.as_str() == upper) {
            Some(method) if methods.contains(method) => {}
            Some(method) => methods.push(method.clone()),
            None if *text == "*" => methods = ROUTE_METHODS.to_vec(),
            None => {
                let problem = match upper.as_str() {
                    "HEAD" | "OPTIONS" => format!("{upper} is never queued"),
                    _ => format!("{text:?} is not a method that can be queued"),
                };
                report.error(
                    Place::Value(span.clone()),
                    &section.path_of("methods"),
                    problem,
                    HELP.to_owned(),
                );
            }
        }
    }
    if texts.is_empty() {
        section.wrong(report, "methods", "is empty, so the route takes nothing".to_owned(), HELP.to_owned());
    }
    if methods.contains(&Method::GET) && !texts.iter().any(|(_, text)| *text == "*") {
        let problem = "a GET that is queued is answered with 202, and its target's answer comes later";
        let help = "make sure that its callers wait (wait = \"2s\"), or that it starts work";
        report.warning(
            section.locate("methods"),
            &section.path_of("methods"),
            problem.to_owned(),
            help.to_owned(),
        );
    }
    methods
}

/// Which paths are taken, for each method.
#[derive(Default)]
struct Taken {
    by_method: BTreeMap<String, matchit::Router<()>>,
    /// Where each route stands.
    lines: BTreeMap<String, usize>,
}

impl Taken {
    fn add(&mut self, report: &mut Report<'_>, section: &Section<'_>, path: &RoutePath, methods: &[Method]) {
        let line = report.line_of(&section.locate("path"));
        let text = path.as_str();
        let mut conflicts: Vec<(String, &Method)> = Vec::new();
        for method in methods {
            match self.by_method.entry(method.to_string()).or_default().insert(text, ()) {
                Ok(()) => {}
                Err(matchit::InsertError::Conflict { with }) => conflicts.push((with, method)),
                Err(_) => conflicts.push((text.to_owned(), method)),
            }
        }
        if let Some((with, method)) = conflicts.first() {
            let other = self.lines.get(with).copied().unwrap_or(line);
            let problem =
                format!("line {line}: {text} takes the same {method} requests as {with} in line {other}");
            let help = "give each its own path or its own methods, or remove one".to_owned();
            section.wrong(report, "path", problem, help);
        }
        self.lines.entry(text.to_owned()).or_insert(line);
    }
}

fn queue(
    report: &mut Report<'_>,
    section: &Section<'_>,
    queues: &BTreeMap<Name, QueueSettings>,
) -> Option<Name> {
    if !section.has("queue") {
        missing(report, section, "queue", "\"…\", the queue that its requests go to");
        return None;
    }
    let name = section.name(report, "queue")?;
    if !queues.contains_key(&name) {
        let names: Vec<&str> = queues.keys().map(Name::as_str).collect();
        let help = match (nearest(name.as_str(), names.iter().copied()), &names[..]) {
            (Some(right), _) => format!("did you mean {right:?}?"),
            (None, []) => format!("declare it: [queues.{name}]"),
            (None, _) => format!("declare [queues.{name}], or use one of {}", names.join(", ")),
        };
        section.wrong(report, "queue", format!("there is no queue {:?}", name.as_str()), help);
    }
    Some(name)
}

fn rest(report: &mut Report<'_>, section: &Section<'_>, route: Route) -> Route {
    let path = route.path.clone();
    let mut label = |key| template(report, section, key, &path, true);
    let (tenant, group, idempotency_key, criticality) =
        (label("tenant"), label("group"), label("idempotency_key"), label("criticality"));
    if let Some([Part::Text(word)]) = criticality.as_ref().map(Template::parts)
        && Criticality::parse(word).is_none()
    {
        let words = Criticality::ALL.map(Criticality::as_str).join(", ");
        let help = format!("write one of {words}, or a template such as \"{{header.x-class}}\"");
        section.wrong(report, "criticality", format!("{word:?} is not one of the classes"), help);
    }
    let wait = section.duration(report, "wait");
    if wait.is_some_and(|wait| wait > WAIT_MAX || wait < Duration::from_millis(1)) {
        let problem = format!("must lie between 1ms and {}", format_duration(WAIT_MAX));
        section.wrong(report, "wait", problem, "leave it out for answers at once".to_owned());
    }
    Route {
        keep_headers: kept_headers(report, section),
        forward: forward(report, section, &path),
        tenant,
        group,
        idempotency_key,
        criticality,
        wait,
        ..route
    }
}

fn schema(report: &mut Report<'_>, section: &Section<'_>, files: ReadFile<'_>) -> Option<Schema> {
    let text = section.text(report, "schema", "the path of a JSON Schema in quotes")?;
    let path = Path::new(text);
    let bytes = match files(path) {
        Ok(bytes) if bytes.len() as u64 <= SCHEMA_BYTES_MAX => bytes,
        Ok(_) => {
            let problem = format!("{text} is larger than {}", format_size(SCHEMA_BYTES_MAX));
            section.wrong(report, "schema", problem, "is it the right file?".to_owned());
            return None;
        }
        Err(error) => {
            let help = "write its path as seen from the directory of this file".to_owned();
            section.wrong(report, "schema", format!("cannot read {text}: {error}"), help);
            return None;
        }
    };
    match Schema::compile(path, &bytes) {
        Ok(schema) => Some(schema),
        Err(error) => {
            let help = "correct the schema; see https://json-schema.org".to_owned();
            section.wrong(report, "schema", error.to_string(), help);
            None
        }
    }
}

fn kept_headers(report: &mut Report<'_>, section: &Section<'_>) -> KeptHeaders {
    let mut kept = KeptHeaders::default();
    for (span, text) in section.texts(report, "keep_headers").unwrap_or_default() {
        let (place, path) = (Place::Value(span), section.path_of("keep_headers"));
        match kept.add(text) {
            Ok(Keeping::Credential) => report.warning(
                place,
                &path,
                format!("{text} is a credential and is stored on the disk with every message"),
                "keep it only if the target cannot do without; else set one in the target's headers"
                    .to_owned(),
            ),
            Ok(_) => {}
            Err(reason) => {
                report.error(place, &path, format!("{text:?} {reason}"), "leave it out".to_owned());
            }
        }
    }
    kept
}

fn forward(report: &mut Report<'_>, section: &Section<'_>, path: &RoutePath) -> Option<Template> {
    let forward = template(report, section, "forward", path, false)?;
    let text = section.text(report, "forward", "a path in quotes")?;
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"#\"<>\\^`|".contains(&byte);
    let fixed = text.split('?').next().unwrap_or_default();
    let problem = if !text.starts_with(['/', '?']) {
        "begins neither with a slash nor with a question mark"
    } else if !text.bytes().all(is_allowed) || text.contains("{{") || text.contains("}}") {
        "has characters that no path has"
    } else if crate::route::is_traversal(fixed) {
        "has a segment that is empty, . or .."
    } else {
        return Some(forward);
    };
    let help = "write it like \"/v2/users/{id}\"".to_owned();
    section.wrong(report, "forward", problem.to_owned(), help);
    None
}

fn template(
    report: &mut Report<'_>,
    section: &Section<'_>,
    key: &str,
    path: &RoutePath,
    of_any_part: bool,
) -> Option<Template> {
    let text = section.text(report, key, "a template in quotes such as \"{id}\"")?;
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => {
            let help = "write fixed text, or {name}, {header.NAME}, {query.NAME}".to_owned();
            section.wrong(report, key, error.to_string(), help);
            return None;
        }
    };
    for source in template.sources() {
        match source {
            Source::Parameter(name) if !path.parameters().contains(name) => {
                let names = path.parameters();
                let help = match (nearest(name, names.iter().map(String::as_str)), names) {
                    (Some(right), _) => format!("did you mean {{{right}}}?"),
                    (None, []) => format!("put {{{name}}} into the path"),
                    (None, _) => format!("the path has {{{}}}", names.join("}, {")),
                };
                section.wrong(report, key, format!("the path has no parameter {{{name}}}"), help);
            }
            Source::Header(_) | Source::Query(_) if !of_any_part => {
                let problem = "takes parameters of the path only".to_owned();
                section.wrong(report, key, problem, "the query follows by itself".to_owned());
            }
            _ => {}
        }
    }
    Some(template)
}
