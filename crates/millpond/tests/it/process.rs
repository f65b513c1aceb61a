//! Runs the binary: to its end, or as a server.
//!
//! Owns the processes it starts. Must never wait by sleeping: a server says when it serves, a process ends by itself.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The binary, untouched by the environment of whoever runs the tests.
pub(crate) fn millpond() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    for name in
        ["URL", "CONFIG", "LISTEN", "DATA", "LOG", "LOG_FORMAT"].map(|name| format!("MILLPOND_{name}"))
    {
        command.env_remove(name);
    }
    command.env_remove("COLUMNS").env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the exit code, and shows what was printed if it differs.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Done {
    Done::from(millpond().args(arguments).output().unwrap())
}

/// Runs the binary in `directory` to its end.
pub(crate) fn run_in(directory: &Path, arguments: &[&str]) -> Done {
    Done::from(millpond().current_dir(directory).args(arguments).output().unwrap())
}

/// The command that starts a server on `data`.
pub(crate) fn serving(data: &Path) -> Command {
    let mut command = millpond();
    command
        .current_dir(data.parent().unwrap())
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

/// A server of its own, killed at the end if it still runs.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts one with `arguments` more and returns once it serves.
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        let mut command = serving(data);
        command.args(arguments);
        Self::await_start(command)
    }

    /// Starts one by `command`, which comes from [`serving`], and returns once it serves.
    pub(crate) fn await_start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let started: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("not started ({error}): {line}"));
        let url = started["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }

    /// Freezes it, until [`Server::thaw`].
    pub(crate) fn freeze(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// Runs a command against this server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::from(millpond().env("MILLPOND_URL", &self.url).args(arguments).output().unwrap())
    }

    /// Runs a command against this server, with `input` on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Done {
        let mut child = millpond()
            .env("MILLPOND_URL", &self.url)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Done::from(child.wait_with_output().unwrap())
    }

    /// Asks it to stop and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
