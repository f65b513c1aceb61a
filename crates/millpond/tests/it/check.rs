//! `millpond check`: findings like a compiler's, and the exit code for a pipeline.

use crate::process::run_in;

const TYPO: &str = "[queues.jobs]\nmaxwait = \"45m\"\n";

#[test]
fn a_typo_is_shown_in_its_line_with_the_nearest_key() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("millpond.toml"), TYPO).unwrap();
    let done = run_in(directory.path(), &["check"]).expect(1);
    assert_eq!(done.stdout, "");
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn findings_are_one_document_for_a_program() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("other.toml"), TYPO).unwrap();
    let done = run_in(directory.path(), &["check", "--config", "other.toml", "--json"]).expect(1);
    assert_eq!(done.stderr, "");
    let document = done.json();
    assert_eq!(document["valid"], false);
    assert_eq!(document["findings"][0]["line"], 2);
    assert_eq!(document["findings"][0]["key"], "queues.jobs.maxwait");
}

#[test]
fn a_valid_file_exits_with_0_and_says_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("millpond.toml"), "[queues.jobs]\nmax_wait = \"45m\"\n").unwrap();
    let done = run_in(directory.path(), &["check"]).expect(0);
    assert_eq!(done.stdout, "millpond.toml: valid; 1 queue, 0 targets, 0 warnings\n");
    assert_eq!(run_in(directory.path(), &["check", "--json"]).expect(0).json()["valid"], true);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let done = run_in(directory.path(), &["check", "--config", "prod.toml"]).expect(1);
    assert!(done.stderr.contains("prod.toml"), "{}", done.stderr);
    let done = run_in(directory.path(), &["check"]).expect(2);
    assert!(done.stderr.contains("--config"), "{}", done.stderr);
}

#[test]
fn serve_does_not_start_with_a_wrong_configuration() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("millpond.toml"), TYPO).unwrap();
    let done = run_in(directory.path(), &["serve", "--listen", "127.0.0.1:0"]).expect(1);
    assert!(done.stderr.contains("did you mean `max_wait`?"), "{}", done.stderr);
    assert!(!directory.path().join("millpond-data").exists());
}

#[test]
fn a_certificate_and_a_key_that_cannot_be_used_are_found_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let pem = |name: &str, what: &str| {
        let text = format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n");
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    pem("client.pem", "CERTIFICATE");
    pem("client.key", "PRIVATE KEY");
    let text = "[targets.t]\nurl = 'https://a.test'\nconcurrency = 1\n\
                tls = { certificate = 'client.pem', key = 'client.key' }\n";
    std::fs::write(directory.path().join("millpond.toml"), text).unwrap();
    let done = run_in(directory.path(), &["check"]).expect(1);
    assert!(done.stderr.contains("targets.t.tls: certificate and key cannot be used"), "{}", done.stderr);
}
