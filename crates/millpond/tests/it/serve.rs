//! Round trips through a real server, and the ways in which one does not start.

use crate::process::{Done, Server, millpond, run};
use millpond_api::client::Client;
use millpond_api::types::{LeaseRequest, LeasedMessage, Settlement, WorkerError};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use tempfile::TempDir;

fn data() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    (directory, data)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn id(done: &Done) -> String {
    done.json()["id"].as_str().unwrap().to_owned()
}

fn lease(server: &Server, queue: &str) -> LeasedMessage {
    let client = Client::new(&server.url).unwrap();
    let wish = LeaseRequest { wait_seconds: Some(10.0), ..LeaseRequest::default() };
    let mut leases = block_on(client.lease(queue, &wish)).unwrap();
    leases.messages.pop().unwrap()
}

fn settle(server: &Server, settlement: Settlement) {
    let client = Client::new(&server.url).unwrap();
    let answers = block_on(client.settle(&[settlement])).unwrap();
    assert_eq!(answers[0].status, 200, "{answers:?}");
}

#[test]
fn a_message_goes_in_is_done_and_its_result_comes_out() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    let empty = server.run(&["queues"]).expect(0);
    assert!(empty.stdout.contains("millpond queues create"), "{}", empty.stdout);
    server.run(&["queues", "create", "jobs", "--max-wait", "45m"]).expect(0);
    let sent = server.run(&["send", "jobs", "--body", "one", "--key", "k", "--json"]).expect(0);
    assert_eq!(sent.json()["position"], 0);
    let again = server.run(&["send", "jobs", "--body", "one", "--key", "k", "--json"]).expect(0);
    assert_eq!((id(&again), again.json()["duplicate"].as_bool()), (id(&sent), Some(true)));
    server.run(&["send", "jobs", "--body", "two", "--key", "k"]).expect(3);

    let message = lease(&server, "jobs");
    assert_eq!((message.id.as_str(), message.body.as_str()), (id(&sent).as_str(), "one"));
    server.run(&["messages", "cancel", &message.id]).expect(3);
    server.run(&["messages", "result", &message.id]).expect(3);
    let result = Some("done well\n".to_owned());
    settle(
        &server,
        Settlement {
            receipt: message.receipt,
            outcome: "complete".to_owned(),
            result,
            ..Settlement::default()
        },
    );
    assert_eq!(server.run(&["messages", "result", &message.id]).expect(0).stdout, "done well\n");
    let shown = server.run(&["messages", "show", &message.id, "--wait", "5"]).expect(0).stdout;
    assert!(shown.contains("succeeded"), "{shown}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn what_was_accepted_is_there_after_a_restart() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    let lines = (1..=250).map(|number| number.to_string()).collect::<Vec<_>>().join("\n\n");
    let sent = server.run_with_input(&["send", "jobs", "--lines", "--json"], &lines).expect(0).json();
    assert_eq!((sent["sent"].as_u64(), sent["accepted"].as_u64()), (Some(250), Some(250)));
    let more = server.run(&["send", "jobs", "--body", "again", "--count", "3"]).expect(0);
    assert_eq!(more.stdout, "3 messages accepted into jobs\n");
    server.run(&["queues", "pause", "jobs"]).expect(0);
    drop(server);

    let server = Server::start(&data, &[]);
    let stats = server.run(&["queues", "stats", "jobs", "--json"]).expect(0).json();
    assert_eq!((stats["ready"].as_u64(), stats["paused"].as_u64()), (Some(253), Some(1)));
    let page = server.run(&["messages", "list", "jobs", "--limit", "2", "--json"]).expect(0).json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 2);
    let next = page["next"].as_str().unwrap();
    let rest =
        server.run(&["messages", "list", "jobs", "--limit", "1000", "--after", next, "--json"]).expect(0);
    assert_eq!(rest.json()["messages"].as_array().unwrap().len(), 251);
}

#[test]
fn a_dead_letter_is_found_understood_and_put_back_to_work() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    server.run(&["send", "jobs", "--body", r#"{"invoice": 7}"#]).expect(0);
    let message = lease(&server, "jobs");
    let error = WorkerError::Text("no such invoice".to_owned());
    settle(
        &server,
        Settlement {
            receipt: message.receipt,
            outcome: "dead".to_owned(),
            error: Some(error),
            ..Settlement::default()
        },
    );
    let list = server.run(&["dead", "list", "jobs", "--error", "invoice"]).expect(0).stdout;
    assert!(list.contains(&message.id) && list.contains("rejected after 1 attempt"), "{list}");
    assert!(
        !server.run(&["dead", "list", "jobs", "--reason", "expired"]).expect(0).stdout.contains(&message.id)
    );
    let shown = server.run(&["dead", "show", "jobs", &message.id]).expect(0).stdout;
    assert!(shown.contains(r#"{"invoice": 7}"#) && shown.contains("no such invoice"), "{shown}");
    server.run(&["queues", "delete", "jobs", "--yes"]).expect(3);

    let dry = server.run(&["dead", "replay", "jobs", "--all", "--dry-run", "--json"]).expect(0).json();
    assert_eq!((dry["replayed"].as_u64(), dry["status"].as_str()), (Some(1), Some("dry-run")));
    let none =
        server.run(&["dead", "replay", "jobs", "--error", "invoice", "--until", "1h", "--watch"]).expect(0);
    assert!(none.stdout.contains("0 dead letters of jobs went back"), "{}", none.stdout);
    let done = server
        .run(&["dead", "replay", "jobs", "--error", "INVOICE", "--since", "1h", "--rate", "5/s", "--watch"]);
    assert!(done.expect(0).stdout.contains("1 dead letter of jobs went back"));
    assert_eq!(lease(&server, "jobs").id, message.id);
    let list = server.run(&["dead", "replays", "jobs"]).expect(0).stdout;
    assert!(list.contains("done") && list.contains("5/s"), "{list}");
    let cancelled = server.run(&["dead", "replays", "jobs", "2", "--cancel", "--json"]).expect(0).json();
    assert_eq!(cancelled["status"], "done", "what has ended stays as it is");
    server.run(&["dead", "replays", "jobs", "7"]).expect(3);
}

#[test]
fn an_existing_queue_is_changed_only_on_request_and_can_be_copied() {
    let (directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs", "--max-attempts", "3", "--lease", "90s"]).expect(0);
    server.run(&["queues", "create", "jobs"]).expect(1);
    let shown = server.run(&["queues", "show", "jobs", "--json"]).expect(0);
    let file = directory.path().join("jobs.json");
    std::fs::write(&file, &shown.stdout).unwrap();
    let copy = ["queues", "create", "copy", "--settings", file.to_str().unwrap(), "--lease", "2m", "--json"];
    let copied = server.run(&copy).expect(0).json();
    assert_eq!(copied["settings"]["retry"]["max_attempts"], 3);
    assert_eq!(copied["settings"]["lease_seconds"], 120);
    let replaced = server.run(&["queues", "create", "jobs", "--replace", "--json"]).expect(0).json();
    assert_eq!(replaced["settings"]["lease_seconds"], 30);
    server.run(&["queues", "delete", "copy", "--yes"]).expect(0);
    server.run(&["queues", "show", "copy"]).expect(3);
}

/// Answers one call with `body`.
fn target(body: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    let called = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut chunk = [0; 4_096];
        while !request.ends_with(b"ping") {
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the call ends too early");
            request.extend_from_slice(&chunk[..read]);
        }
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, called)
}

#[test]
fn a_message_for_a_target_is_pushed_and_waited_for() {
    let (directory, data) = data();
    let (url, called) = target("pong");
    let file = directory.path().join("pond.toml");
    std::fs::write(&file, format!("[targets.worker]\nurl = '{url}'\n[queues.jobs]\ntarget = 'worker'\n"))
        .unwrap();
    let server = Server::start(&data, &["--config", file.to_str().unwrap()]);
    let done = server.run(&["send", "jobs", "--body", "ping", "--wait", "30s"]).expect(0);
    assert_eq!(done.stdout, "pong");
    assert!(called.join().unwrap().contains("millpond-queue: jobs"));
    let declared = server.run(&["queues", "create", "jobs", "--replace"]).expect(3);
    assert!(declared.stderr.contains("declared-in-configuration"), "{}", declared.stderr);
}

#[test]
fn a_message_that_is_not_done_in_time_stays_accepted() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    let done = server.run(&["send", "jobs", "--body", "x", "--wait", "0", "--json"]).expect(1);
    assert_eq!(done.json()["status"], "ready");
    assert!(done.stderr.contains("stays accepted"), "{}", done.stderr);
}

#[test]
fn a_queue_that_is_full_refuses_and_the_rest_is_not_sent() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs", "--max-messages", "5"]).expect(0);
    let done = server.run(&["send", "jobs", "--body", "x", "--count", "1000", "--json"]).expect(3);
    let tally = done.json();
    assert_eq!((tally["accepted"].as_u64(), tally["sent"].as_u64()), (Some(5), Some(100)), "{tally}");
    assert!(done.stderr.contains("queue-full") && done.stderr.contains("again in"), "{}", done.stderr);
}

#[test]
fn a_port_in_use_says_what_to_do() {
    let (_directory, data) = data();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let done = run(&["serve", "--listen", &address, "--data", data.to_str().unwrap()]).expect(1);
    assert!(done.stderr.contains(&address) && done.stderr.contains("--listen"), "{}", done.stderr);
    assert!(!data.exists(), "nothing is left behind");
}

#[test]
fn serving_other_machines_without_authentication_is_said_at_every_start() {
    let (_directory, data) = data();
    let started = |listen: &str| {
        let arguments = ["serve", "--insecure", "--listen", listen, "--data", data.to_str().unwrap()];
        let mut child = millpond().args(arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        while !said.contains("serving") && log.read_line(&mut said).unwrap() > 0 {}
        child.kill().unwrap();
        child.wait().unwrap();
        said
    };
    let exposed = started("0.0.0.0:0");
    assert!(exposed.contains("WARN") && exposed.contains("--insecure"), "{exposed}");
    let local = started("127.0.0.1:0");
    assert!(local.contains("serving") && !local.contains("WARN"), "{local}");
}

#[test]
fn a_data_directory_in_use_or_unusable_says_what_to_do() {
    let (directory, data) = data();
    let server = Server::start(&data, &[]);
    let second = |data: &str| run(&["serve", "--listen", "127.0.0.1:0", "--data", data]).expect(1).stderr;
    let in_use = second(data.to_str().unwrap());
    assert!(in_use.contains("is in use by process") && in_use.contains("--data"), "{in_use}");
    drop(server);
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let no_directory = second(file.to_str().unwrap());
    assert!(no_directory.contains("is not a directory"), "{no_directory}");
}

#[test]
fn a_data_directory_that_is_damaged_is_left_alone() {
    let (_directory, data) = data();
    drop(Server::start(&data, &[]));
    let format = data.join("format");
    std::fs::write(&format, "damaged").unwrap();
    let done = run(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]).expect(1);
    assert!(done.stderr.contains("`format`") && done.stderr.contains("backup"), "{}", done.stderr);
    assert!(!done.stderr.contains("--data"), "an empty directory is no way out: {}", done.stderr);
    assert_eq!(std::fs::read(&format).unwrap(), b"damaged");
}
