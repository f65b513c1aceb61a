//! `millpond work` with real commands: what they get, what their end means, and that none outlives it.
//!
//! Owns the commands it has started. Must never sleep to wait: a command that runs holds a named pipe open, so that its
//! beginning can be read from it, and its end is the pipe's.

use crate::process::{Done, Server, millpond};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    server: Server,
}

impl Place {
    /// A server with a queue `jobs`, whose retries come at once.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(&directory.path().join("data"), &[]);
        server.run(&["queues", "create", "jobs", "--prefetch", "100"]).expect(0);
        Self { directory, server }
    }

    fn send(&self, arguments: &[&str]) -> Value {
        self.server.run(&[&["send", "jobs", "--json"], arguments].concat()).expect(0).json()
    }

    fn work(&self, arguments: &[&str]) -> Done {
        self.server.run(&[&["work", "jobs"], arguments].concat())
    }

    fn status(&self, sent: &Value) -> Value {
        self.server.run(&["messages", "show", id(sent), "--json"]).expect(0).json()
    }

    fn result(&self, sent: &Value) -> String {
        self.server.run(&["messages", "result", id(sent)]).expect(0).stdout
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    /// Starts `work` beside the test.
    fn start(&self, arguments: &[&str]) -> Worker {
        let mut command = millpond();
        command.env("MILLPOND_URL", &self.server.url).args(["work", "jobs"]).args(arguments);
        Worker::start(command)
    }
}

fn id(sent: &Value) -> &str {
    sent["id"].as_str().unwrap()
}

/// `millpond work` that runs, killed at the end if it still does.
struct Worker(Child);

impl Worker {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Reads standard error until a line contains `text`.
    fn says(&mut self, text: &str) {
        read_until(self.0.stderr.as_mut().unwrap(), text);
    }

    /// Reads events until one of `kind`.
    fn event(&mut self, kind: &str) -> Value {
        let line = read_until(self.0.stdout.as_mut().unwrap(), &format!("\"event\":\"{kind}\""));
        serde_json::from_str(&line).unwrap()
    }

    fn ended(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads byte by byte, so that nothing is taken from whoever reads next.
fn read_until(from: &mut impl std::io::Read, text: &str) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap() == 1 {
        let [byte] = byte;
        if byte == b'\n' {
            let whole = String::from_utf8(std::mem::take(&mut line)).unwrap();
            if whole.contains(text) {
                return whole;
            }
        } else {
            line.push(byte);
        }
    }
    panic!("{text:?} never came");
}

/// A shell command that holds `pipe` open, says that it runs, and goes on for ever with whatever it has started.
fn endless(pipe: &Path) -> String {
    format!("exec 3>{}; echo runs >&3; sleep 1000 & wait", pipe.display())
}

/// Opens the pipe and waits until the command runs.
fn runs(pipe: &Path) -> BufReader<File> {
    let mut reader = BufReader::new(File::open(pipe).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    reader
}

/// Waits until everybody who held the pipe has ended.
fn is_over(mut reader: BufReader<File>) {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
}

fn get(server: &Server, path: &str) -> String {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_command_gets_the_body_and_what_is_known_of_the_message_and_what_it_prints_is_the_result() {
    let place = Place::new();
    let line = json!({"body": "grüße", "content_type": "text/x", "tenant": "acme", "group": "g 1",
        "criticality": "sheddable", "headers": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
    place.server.run_with_input(&["send", "jobs", "--json-lines"], &line.to_string()).expect(0);
    let plain = place.send(&["--body", "plain"]);
    let script = "cat; echo; env | grep -E '^(MILLPOND_|TRACE)' | sort";
    let mut command = millpond();
    command.env("MILLPOND_URL", &place.server.url).env("TRACEPARENT", "stale").env("MILLPOND_GROUP", "stale");
    let done =
        command.args(["work", "jobs", "--max", "2", "--json", "--", "sh", "-c", script]).output().unwrap();
    let summary: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&summary["completed"], &summary["started"]), (&json!(2), &json!(2)), "{done:?}");

    let all = place.server.run(&["messages", "list", "jobs", "--json"]).expect(0).json();
    let first = place.result(&all["messages"][0]);
    for expected in [
        "grüße\n",
        "MILLPOND_QUEUE=jobs\n",
        "MILLPOND_ATTEMPT=1\n",
        "MILLPOND_DELIVERIES=1\n",
        "MILLPOND_CONTENT_TYPE=text/x\n",
        "MILLPOND_CRITICALITY=sheddable\n",
        "MILLPOND_TENANT=acme\n",
        "MILLPOND_GROUP=g 1\n",
        "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
        "MILLPOND_EXPIRES_AT=20",
        "MILLPOND_ACCEPTED_AT=20",
    ] {
        assert!(first.contains(expected), "{expected} is not in\n{first}");
    }
    let second = place.result(&plain);
    assert!(second.contains(&format!("MILLPOND_MESSAGE_ID={}\n", id(&plain))), "{second}");
    assert!(!second.contains("TRACEPARENT") && !second.contains("GROUP"), "nothing is inherited:\n{second}");
}

#[test]
fn exit_codes_decide_what_becomes_of_a_message() {
    let place = Place::new();
    let sent = ["0", "65", "69", "75", "3"].map(|code| place.send(&["--body", code]));
    let script = "read code; echo about $code >&2; exit $code";
    let done =
        place.work(&["--max", "5", "--json", "--release-delay", "1h", "--", "sh", "-c", script]).expect(0);
    let summary = done.json();
    let counts =
        ["completed", "dead", "released", "retried", "lost"].map(|key| summary[key].as_u64().unwrap());
    assert_eq!(counts, [1, 1, 1, 2, 0], "{done:?}");
    assert!(done.stderr.contains("failed, to be tried again after"), "{}", done.stderr);
    let [complete, dead, released, retried, other] = sent.map(|sent| place.status(&sent));
    assert_eq!((&complete["status"], &complete["result"]), (&json!("succeeded"), &Value::Null));
    assert_eq!(
        (&dead["status"], &dead["last_error"]["message"]),
        (&json!("dead"), &json!("exit code 65: about 65"))
    );
    assert_eq!((&released["status"], &released["attempts"]), (&json!("backoff"), &json!(0)), "{released}");
    assert_eq!((&retried["status"], &retried["attempts"]), (&json!("backoff"), &json!(1)));
    assert_eq!(other["last_error"]["message"], "exit code 3: about 3");
}

#[test]
fn nothing_goes_through_a_shell() {
    let place = Place::new();
    let sent = place.send(&["--body", "$(id); `id`"]);
    place.work(&["--once", "--", "echo", "$(id)", ";", "a  b", "$HOME"]).expect(0);
    assert_eq!(place.result(&sent), "$(id) ; a  b $HOME\n");
}

#[test]
fn a_large_body_flows_both_ways_at_once_and_a_long_result_is_cut_with_a_mark() {
    let place = Place::new();
    let file = place.directory.path().join("body");
    std::fs::write(&file, "0123456789".repeat(90_000)).unwrap();
    let file = file.to_str().unwrap();
    let sent = place.send(&["--file", file]);
    // Far more than a pipe holds in both directions, and on standard error.
    place.work(&["--once", "--", "sh", "-c", "tee /dev/stderr"]).expect(0);
    assert_eq!(place.result(&sent).len(), 64 << 10);
    let answer = get(&place.server, &format!("/v1/messages/{}/result", id(&sent)));
    assert!(answer.contains("millpond-result-truncated: true"), "{}", &answer[..500]);

    let unread = place.send(&["--file", file]);
    place.work(&["--once", "--", "true"]).expect(0);
    assert_eq!(place.status(&unread)["status"], "succeeded", "a body that nobody reads is no fault");
}

#[test]
fn a_command_that_takes_too_long_is_stopped_with_everything_it_has_started() {
    let place = Place::new();
    let sent = place.send(&["--body", "x"]);
    let pipe = place.pipe("pipe");
    let script = format!("trap '' TERM; echo on my way >&2; {}", endless(&pipe));
    let limits = ["--once", "--timeout", "500ms", "--grace", "50ms"];
    let worker = place.start(&[&limits[..], &["--", "sh", "-c", &script]].concat());
    is_over(runs(&pipe));
    assert_eq!(worker.ended(), Some(0));
    let status = place.status(&sent);
    assert_eq!((&status["status"], &status["attempts"]), (&json!("backoff"), &json!(1)), "{status}");
    assert_eq!(status["last_error"]["message"], "stopped after 500ms (--timeout): on my way");
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let place = Place::new();
    let sent = place.send(&["--body", "x"]);
    let (pipe, go) = (place.pipe("pipe"), place.pipe("go"));
    let script = format!("({}) & echo done; read _ < {}", endless(&pipe), go.display());
    let worker = place.start(&["--once", "--", "sh", "-c", &script]);
    let left = runs(&pipe);
    std::fs::write(go, "\n").unwrap();
    is_over(left);
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(place.result(&sent), "done\n");
}

#[test]
fn the_first_signal_lets_commands_end_and_takes_nothing_new() {
    let place = Place::new();
    let (first, second) = (place.send(&["--body", "1"]), place.send(&["--body", "2"]));
    let (pipe, go) = (place.pipe("pipe"), place.pipe("go"));
    let script = format!("echo runs > {}; read _ < {}; echo fine", pipe.display(), go.display());
    let mut worker = place.start(&["--", "sh", "-c", &script]);
    is_over(runs(&pipe));
    worker.signal(Signal::INT);
    worker.says("stopping: waiting for 1 command");
    std::fs::write(&go, "\n").unwrap();
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(place.result(&first), "fine\n");
    let waiting = place.status(&second);
    assert_eq!((&waiting["status"], &waiting["deliveries"]), (&json!("ready"), &json!(0)));
}

#[test]
fn what_does_not_end_in_time_is_stopped_and_given_back() {
    let place = Place::new();
    let sent = place.send(&["--body", "1"]);
    let pipe = place.pipe("pipe");
    let worker = place.start(&["--drain", "20ms", "--", "sh", "-c", &endless(&pipe)]);
    let running = runs(&pipe);
    worker.signal(Signal::TERM);
    is_over(running);
    assert_eq!(worker.ended(), Some(0));
    let status = place.status(&sent);
    assert_eq!((&status["status"], &status["attempts"]), (&json!("ready"), &json!(0)), "{status}");
}

#[test]
fn a_second_signal_kills_at_once_and_the_message_is_given_back() {
    let place = Place::new();
    let sent = place.send(&["--body", "1"]);
    let pipe = place.pipe("pipe");
    let script = format!("trap '' TERM INT; {}", endless(&pipe));
    let mut worker = place.start(&["--drain", "1h", "--grace", "1h", "--", "sh", "-c", &script]);
    let running = runs(&pipe);
    worker.signal(Signal::INT);
    worker.says("a second Ctrl-C kills");
    worker.signal(Signal::INT);
    is_over(running);
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(place.status(&sent)["status"], "ready");
}

#[test]
fn commands_end_though_whoever_runs_them_is_killed() {
    let place = Place::new();
    place.send(&["--body", "1"]);
    let pipe = place.pipe("pipe");
    let script = format!("trap '' TERM; {}", endless(&pipe));
    let worker = place.start(&["--grace", "50ms", "--", "sh", "-c", &script]);
    let running = runs(&pipe);
    worker.signal(Signal::KILL);
    is_over(running);
}

#[test]
fn a_worker_that_is_killed_while_it_waits_burns_no_delivery() {
    let place = Place::new();
    for round in 0..10 {
        let mut worker = place.start(&["--events", "--", "true"]);
        place.send(&["--body", "first"]);
        worker.event("settled");
        // It asks for the next one by now, or is about to.
        worker.signal(Signal::KILL);
        worker.ended();
        let sent = place.send(&["--body", "second"]);
        let done = place.work(&["--once", "--", "sh", "-c", "echo $MILLPOND_DELIVERIES"]).expect(0);
        assert_eq!(place.result(&sent), "1\n", "round {round}: {done:?}");
    }
}

#[test]
fn a_command_whose_lease_is_lost_is_stopped_since_somebody_else_may_be_at_it() {
    let place = Place::new();
    place.send(&["--body", "1"]);
    let pipe = place.pipe("pipe");
    let mut worker = place.start(&["--lease", "1s", "--events", "--", "sh", "-c", &endless(&pipe)]);
    let running = runs(&pipe);
    // From now on no extension is answered.
    place.server.freeze();
    worker.event("lost");
    is_over(running);
    place.server.thaw();
    worker.signal(Signal::TERM);
    worker.event("ended");
    assert_eq!(worker.ended(), Some(0));
}

#[test]
fn until_empty_works_everything_off_and_stops() {
    let place = Place::new();
    place.server.run(&["send", "jobs", "--body", "x", "--count", "50"]).expect(0);
    place.send(&["--body", "later", "--delay", "1h"]);
    let done = place.work(&["--until-empty", "-j", "8", "--", "cat"]).expect(0);
    assert_eq!(done.stdout, "50 messages of jobs done\n", "{done:?}");
    assert_eq!(done.stderr.matches(" done in ").count(), 50, "{}", done.stderr);
    let quiet = place.work(&["--until-empty", "--quiet", "--", "cat"]).expect(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("0 messages of jobs done\n", ""));
}

#[test]
fn what_cannot_work_is_said_before_a_message_is_taken() {
    let place = Place::new();
    let done = place.work(&["--", "no-such-program"]).expect(2);
    assert!(done.stderr.contains("no command no-such-program"), "{}", done.stderr);
    place.work(&["--", "/etc/passwd"]).expect(2);
    place.work(&["cat"]).expect(2);
    place.work(&["--lease", "10ms", "--", "cat"]).expect(2);
    place.server.run(&["work", "nowhere", "--", "cat"]).expect(3);
    place.server.run(&["work", "jobs", "--url", "http://127.0.0.1:1", "--", "cat"]).expect(4);
    place.server.run(&["queues", "create", "narrow"]).expect(0);
    let narrow = place.server.run(&["work", "narrow", "-j", "50", "--until-empty", "--", "cat"]).expect(0);
    assert!(narrow.stderr.contains("lets one consumer hold 10 messages"), "{}", narrow.stderr);
}
