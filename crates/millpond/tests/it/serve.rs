//! Round trips through a real server, and the ways in which one does not start.

use crate::process::{Done, Server, millpond, run};
use millpond_api::client::Client;
use millpond_api::types::{LeaseRequest, LeasedMessage, Settlement, WorkerError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
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
    server.run(&["send", "jobs", "--body", "x"]).expect(0);
    let purged = server.run(&["queues", "purge", "jobs", "--yes"]).expect(0).stdout;
    assert_eq!(purged, "1 message of jobs cancelled\n");
}

#[test]
fn a_replay_that_is_killed_in_its_middle_goes_on_and_loses_and_doubles_nothing() {
    const LETTERS: u64 = 300;
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs", "--prefetch", "1000", "--dead-burst", "0"]).expect(0);
    server.run(&["send", "jobs", "--body", "x", "--count", &LETTERS.to_string()]).expect(0);
    let client = Client::new(&server.url).unwrap();
    let wish = LeaseRequest { max: Some(1_000), ..LeaseRequest::default() };
    let leased = block_on(client.lease("jobs", &wish)).unwrap().messages;
    let dead = |message: LeasedMessage| Settlement {
        receipt: message.receipt,
        outcome: "dead".to_owned(),
        ..Settlement::default()
    };
    let deaths: Vec<_> = leased.into_iter().map(dead).collect();
    block_on(client.settle(&deaths)).unwrap();
    server.run(&["dead", "replay", "jobs", "--all", "--rate", "200/s"]).expect(0);
    let stats = |server: &Server| block_on(Client::new(&server.url).unwrap().stats("jobs")).unwrap();
    let begin = Instant::now();
    let in_time = || assert!(begin.elapsed() < Duration::from_mins(1), "it does not go on");
    while stats(&server).ready == 0 {
        in_time();
    }
    let middle = stats(&server);
    // The kill.
    drop(server);
    assert!(middle.dead > 0, "it was over before it could be killed: {middle:?}");
    let server = Server::start(&data, &[]);
    loop {
        let now = stats(&server);
        // One on its way back is counted nowhere until that is durable.
        assert!(now.ready + now.dead <= LETTERS, "{now:?}");
        if now.ready == LETTERS {
            break;
        }
        in_time();
    }
    let done = server.run(&["dead", "replays", "jobs", "1", "--json"]).expect(0).json();
    assert_eq!((&done["status"], &done["replayed"]), (&json!("done"), &json!(LETTERS)), "{done}");
    let client = Client::new(&server.url).unwrap();
    let leased = block_on(client.lease("jobs", &wish)).unwrap().messages;
    let ids: BTreeSet<_> = leased.iter().map(|message| message.id.clone()).collect();
    assert_eq!((leased.len(), ids.len()), (300, 300), "each once");
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
fn class_tenant_and_group_go_in_and_are_shown() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    let settings = [
        "--order",
        "fifo",
        "--priority",
        "strict",
        "--prefetch",
        "3",
        "--overflow",
        "block",
        "--block-for",
        "5s",
    ];
    let created =
        server.run(&[&["queues", "create", "jobs", "--json"][..], &settings].concat()).expect(0).json();
    assert_eq!(
        ["priority", "overflow", "block_for_seconds", "prefetch"]
            .map(|name| created["settings"][name].clone()),
        [json!("strict"), json!("block"), json!(5), json!(3)]
    );
    let sent =
        ["send", "jobs", "--body", "x", "--criticality", "sheddable", "--tenant", "größe", "--group", "g 1"];
    server.run(&sent).expect(0);
    let list = server.run(&["messages", "list", "jobs"]).expect(0).stdout;
    assert!(list.contains("ABOUT") && list.contains("sheddable") && list.contains("größe"), "{list}");
    let message = lease(&server, "jobs");
    assert_eq!(
        (message.criticality.as_str(), message.tenant.as_deref(), message.group.as_deref()),
        ("sheddable", Some("größe"), Some("g 1"))
    );
    let shown = server.run(&["messages", "show", &message.id]).expect(0).stdout;
    for line in ["criticality  sheddable", "tenant       größe", "group        g 1"] {
        assert!(shown.contains(line), "{line} is missing\n{shown}");
    }
    let refused = server.run(&["send", "jobs", "--body", "x", "--group", &"g".repeat(129)]).expect(3);
    assert!(refused.stderr.contains("millpond-group has 129 bytes"), "{}", refused.stderr);
}

#[test]
fn lines_in_json_say_more_than_a_body_and_the_rest_comes_from_the_options() {
    let (_directory, data) = data();
    let server = Server::start(&data, &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    let lines = concat!(
        r#"{"body": "a", "group": "own"}"#,
        "\n\n",
        r#"{"body": "b", "criticality": "critical-plus", "idempotency_key": "k"}"#,
        "\n",
        r#"{"body": "c", "grup": "typo"}"#,
        "\n",
        r#"{"body": "d"}"#,
    );
    let send = [
        "send",
        "jobs",
        "--json-lines",
        "--json",
        "--group",
        "all",
        "--criticality",
        "sheddable",
        "--key",
        "n",
    ];
    let done = server.run_with_input(&send, lines).expect(1);
    assert!(done.stderr.contains("line 4 is no message") && done.stderr.contains("grup"), "{}", done.stderr);
    assert_eq!(done.json()["accepted"], 2, "what came before the mistake was sent");
    let page = server.run(&["messages", "list", "jobs", "--json"]).expect(0).json();
    let facts = ["group", "criticality"].map(|name| {
        let of = |message: &Value| message[name].as_str().unwrap().to_owned();
        page["messages"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    });
    assert_eq!(facts, [["own", "all"], ["sheddable", "critical-plus"]]);
    let mended = lines.replace("grup", "group");
    let done = server.run_with_input(&send, &mended).expect(0).json();
    assert_eq!(
        (&done["accepted"], &done["duplicates"]),
        (&json!(4), &json!(2)),
        "the keys are those of the lines"
    );
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
    assert!(
        !done.stderr.contains("another data directory"),
        "an empty directory is no way out: {}",
        done.stderr
    );
    assert_eq!(std::fs::read(&format).unwrap(), b"damaged");
}
