//! The documentation as a reader tries it: every example does what it says.
//!
//! Owns which pages are run. Must never repeat what a page says: the page is the test.

use crate::console::{configuration, run_all};
use crate::process::Server;
use std::path::Path;

/// Runs the examples below `heading` (all of them if it is empty), and returns how many there were.
fn examples_of(page: &str, heading: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(heading).expect("the heading is there");
    let section =
        if heading.is_empty() { section } else { section.split("\n## ").next().unwrap_or_default() };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("millpond.toml");
    std::fs::write(&file, configuration(section)).unwrap();
    let server = Server::start(&directory.path().join("data"), &["--config", file.to_str().unwrap()]);
    let count = run_all(&server, section);
    assert_eq!(server.stop(), Some(0));
    count
}

#[test]
fn every_example_of_the_guide_to_queues_does_what_it_says() {
    assert!(examples_of("docs/guide/queues.md", "") > 20);
}

#[test]
fn every_example_of_the_guide_to_workers_does_what_it_says() {
    assert!(examples_of("docs/guide/workers.md", "") > 5);
}

#[test]
fn every_example_of_the_guide_to_routes_does_what_it_says() {
    assert!(examples_of("docs/guide/routes.md", "") > 5);
}

#[test]
fn every_example_of_the_guide_to_scaling_does_what_it_says() {
    assert!(examples_of("docs/guide/scaling.md", "") > 2);
}

#[test]
fn the_readme_s_examples_of_order_and_fairness_do_what_they_say() {
    assert!(examples_of("README.md", "## Order, fairness, freshness, overflow") > 3);
}
