//! `[[routes]]`: what is read, what is refused, and how that is said.

use http::{HeaderName, Method};
use millpond_config::{Loaded, Route, parse};
use std::time::Duration;

fn text(lines: &str) -> String {
    format!("[queues.q]\n[[routes]]\npath = \"/in/{{id}}/{{*rest}}\"\nqueue = \"q\"\n{lines}\n")
}

fn load(lines: &str) -> Loaded {
    parse(&text(lines), "millpond.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn route(lines: &str) -> Route {
    load(lines).configuration.routes[0].clone()
}

fn said(text: &str) -> String {
    parse(text, "millpond.toml").unwrap_err().to_string()
}

#[test]
fn a_route_needs_a_path_and_a_queue_and_has_a_default_for_all_else() {
    let route = route("");
    assert_eq!((route.methods, route.wait), (vec![Method::POST], None));
    assert_eq!((route.forward, route.tenant, route.idempotency_key), (None, None, None));
    assert!(!route.keep_headers.keeps(&HeaderName::from_static("x-a")));
    for key in ["path", "queue"] {
        let text: String =
            text("").lines().filter(|line| !line.starts_with(key)).collect::<Vec<_>>().join("\n");
        assert!(said(&text).contains(&format!("routes[0]: has no {key}")), "{}", said(&text));
    }
}

#[test]
fn every_key_is_read() {
    let route = route(
        "methods = [\"put\", \"PATCH\"]\nkeep_headers = [\"X-*\"]\nforward = \"/v2/{id}\"\ntenant = \"{query.t}\"\n\
         group = \"{id}\"\nidempotency_key = \"{header.x-id}\"\ncriticality = \"sheddable\"\nwait = \"1500ms\"",
    );
    assert_eq!(route.methods, [Method::PUT, Method::PATCH]);
    assert!(route.keep_headers.keeps(&HeaderName::from_static("x-a")));
    assert_eq!(route.wait, Some(Duration::from_millis(1500)));
    for template in [route.forward, route.tenant, route.group, route.idempotency_key, route.criticality] {
        assert!(template.is_some());
    }
}

#[test]
fn a_star_means_every_method_that_can_be_queued_and_get_is_warned_of() {
    assert_eq!(load("methods = [\"*\"]").configuration.routes[0].methods.len(), 5);
    assert_eq!(load("methods = [\"*\"]").warnings.len(), 0);
    assert!(load("methods = [\"GET\"]").warnings[0].problem.contains("GET"));
    assert!(load("keep_headers = [\"Authorization\"]").warnings[0].problem.contains("stored on the disk"));
}

#[test]
fn what_cannot_work_is_an_error_that_says_why() {
    for (line, why) in [
        ("methods = []", "takes nothing"),
        ("methods = [\"HEAD\"]", "HEAD is never queued"),
        ("methods = [\"FETCH\"]", "not a method"),
        ("keep_headers = [\"host\"]", "names this server"),
        ("keep_headers = [\"connection\"]", "belongs to the connection"),
        ("keep_headers = [\"a b\"]", "not the name of a header"),
        ("forward = \"v2\"", "begins neither"),
        ("forward = \"/../x\"", "a segment that is empty"),
        ("forward = \"/{header.x}\"", "parameters of the path only"),
        ("forward = \"/{ide}\"", "did you mean {id}?"),
        ("tenant = \"{nobody}\"", "the path has no parameter {nobody}"),
        ("tenant = \"{\"", "brace without its partner"),
        ("criticality = \"urgent\"", "not one of the classes"),
        ("wait = \"2m\"", "must lie between 1ms and 1m"),
        ("waits = \"2s\"", "did you mean `wait`?"),
    ] {
        assert!(said(&text(line)).contains(why), "{line}: {}", said(&text(line)));
    }
}

#[test]
fn a_queue_that_is_not_there_brings_the_nearest_one() {
    let text = "[queues.enrollments]\n[[routes]]\npath = \"/in\"\nqueue = \"enrolments\"\n";
    assert!(said(text).contains("did you mean \"enrollments\"?"));
}

#[test]
fn two_routes_for_the_same_requests_are_named_with_both_lines() {
    let text = "\
[queues.q]
[[routes]]
path = \"/a/{x}\"
queue = \"q\"
[[routes]]
path = \"/a/{y}\"
queue = \"q\"
methods = [\"PUT\"]
[[routes]]
path = \"/a/{z}\"
queue = \"q\"
methods = [\"PUT\", \"POST\"]
";
    assert_eq!(
        said(text),
        "\
error: routes[2].path: line 10: /a/{z} takes the same PUT requests as /a/{y} in line 6
  --> millpond.toml:10:8
   |
10 | path = \"/a/{z}\"
   |        ^^^^^^^^
   = help: give each its own path or its own methods, or remove one

millpond.toml: 1 error"
    );
}

#[test]
fn pages_are_let_in_by_name_and_never_all_of_them_with_credentials() {
    let cors =
        |lines: &str| parse(&format!("[cors]\n{lines}"), "millpond.toml").map(|it| it.configuration.cors);
    assert_eq!(cors(""), Ok(None));
    let named =
        cors("origins = [\"https://a.example\"]\ncredentials = true\nexpose = [\"x-a\"]").unwrap().unwrap();
    assert_eq!((named.origins.unwrap().len(), named.credentials, named.expose.len()), (1, true, 1));
    assert_eq!(cors("origins = [\"*\"]").unwrap().unwrap().origins, None);
    for (lines, why) in [
        ("origins = [\"*\"]\ncredentials = true", "every page on the web"),
        ("origins = [\"https://a.example/\"]", "not an origin"),
        ("headers = [\"*\"]", "not the name of a header"),
        ("max_age = \"2d\"", "longer than 24h"),
        ("origin = []", "did you mean `origins`?"),
    ] {
        let said = cors(lines).unwrap_err().to_string();
        assert!(said.contains(why), "{lines}: {said}");
    }
}
