//! Lists that are longer than what a server looks at for one page.
//!
//! Owns the proof that nothing is called the end before it is. Must never depend on how long a page takes.

use crate::process::Server;

/// One more than what the server looks at for one page.
const FINISHED: &str = "20001";

#[test]
fn what_lies_behind_many_that_do_not_fit_is_listed_and_not_denied() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    server.run(&["send", "jobs", "--body", "x", "--count", FINISHED]).expect(0);
    server.run(&["queues", "purge", "jobs", "--yes"]).expect(0);
    let none = server.run(&["messages", "list", "jobs", "--state", "ready"]).expect(0).stdout;
    assert!(none.starts_with("jobs holds no message in that state."), "{none}");
    let sent = server.run(&["send", "jobs", "--body", "alive", "--json"]).expect(0).json();
    let id = sent["id"].as_str().unwrap();

    let list = ["messages", "list", "jobs", "--state", "ready"];
    let shown = server.run(&list).expect(0).stdout;
    assert!(shown.contains(id), "{shown}");
    let document = server.run(&[&list[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(document["messages"][0]["id"], id);
    assert_eq!(document["messages"].as_array().unwrap().len(), 1);

    let first =
        server.run(&["messages", "list", "jobs", "--state", "cancelled", "--limit", "2"]).expect(0).stdout;
    let (_, more) = first.split_once("more: millpond ").expect("there are more");
    assert!(more.starts_with("messages list jobs --state cancelled --limit 2 --after "), "{more}");
    let second = server.run(&more.split_whitespace().collect::<Vec<_>>()).expect(0).stdout;
    assert_eq!(second.lines().filter(|line| line.contains("  cancelled ")).count(), 2, "{second}");
    assert!(second.contains("more: millpond messages list jobs --state cancelled --limit 2"), "{second}");
}
