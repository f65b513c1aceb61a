//! `millpond top` on a real terminal: a pseudo terminal, as a user's is.
//!
//! Owns the terminal. Must never judge a picture: those are compared where they are drawn.

use crate::process::{Server, millpond, run};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

/// What gives the usual screen back.
const LEAVES: &str = "\x1b[?1049l";

/// A terminal with `millpond top` on it.
struct Terminal {
    child: Child,
    ours: File,
    theirs: OwnedFd,
    seen: String,
}

impl Terminal {
    fn start(url: &str) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = millpond()
            .args(["top", "--interval", "100ms", "--url", url])
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self { child, ours: ours.into(), theirs, seen: String::new() }
    }

    /// Reads on until `text` was drawn since the last time.
    fn await_text(&mut self, text: &str) {
        let mut chunk = [0; 4096];
        while !self.seen.contains(text) {
            let count = self.ours.read(&mut chunk).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
        self.seen.clear();
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        !modes.contains(rustix::termios::LocalModes::ICANON)
    }

    /// Waits for the end, after which the terminal is as it was.
    fn ends(mut self) {
        self.await_text(LEAVES);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.is_raw(), "the terminal is as it was");
    }
}

fn server(directory: &std::path::Path) -> Server {
    let server = Server::start(&directory.join("data"), &[]);
    server.run(&["queues", "create", "jobs"]).expect(0);
    server.run(&["send", "jobs", "--body", "hello"]).expect(0);
    server
}

#[test]
fn top_follows_keys_survives_the_server_and_gives_the_terminal_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let mut terminal = Terminal::start(&server.url);
    terminal.await_text("jobs");
    assert!(terminal.is_raw());
    terminal.press("p");
    terminal.await_text("[y/N]");
    terminal.press("y");
    terminal.await_text("paused");
    assert_eq!(server.run(&["queues", "stats", "jobs", "--json"]).expect(0).json()["paused"], 1);
    terminal.press("?");
    terminal.await_text("Keys and columns");
    terminal.press("x");
    drop(server);
    terminal.await_text("no answer");
    terminal.press("q");
    terminal.ends();
}

#[test]
fn a_signal_and_ctrl_c_give_the_terminal_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let mut terminal = Terminal::start(&server.url);
    terminal.await_text("jobs");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).unwrap();
    terminal.ends();
    let mut terminal = Terminal::start(&server.url);
    terminal.await_text("jobs");
    terminal.press("\x03");
    terminal.ends();
}

#[test]
fn without_a_terminal_there_is_one_picture_or_advice() {
    let advice = run(&["top"]).expect(2);
    assert!(advice.stderr.contains("millpond top --once"), "{advice:?}");
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let picture = server.run(&["top", "--once"]).expect(0).stdout;
    assert!(picture.lines().any(|line| line.starts_with("jobs")), "{picture}");
    assert!(!picture.contains('\x1b'), "{picture}");
    assert_eq!(server.stop(), Some(0));
    run(&["top", "--once", "--url", "http://127.0.0.1:9"]).expect(4);
    run(&["top", "--interval", "1ms"]).expect(2);
}
