//! A process beside `millpond work` that stops its commands if it is killed itself.
//!
//! Owns that process and what it is told. Must never stop a process group that has ended.
//!
//! Somebody who is killed with SIGKILL can stop nobody. Linux can send a process a signal when its parent dies, but only
//! the process itself can ask for it, between fork and exec, which needs `unsafe`; and what the process has started would
//! not get it. So a second `millpond work` holds the other end of a pipe: it is told which process groups run, and
//! when the pipe closes, for whatever reason, it stops those that are left.

use crate::cli::failure::{Failure, tell};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often the reaper looks whether groups have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Our end of the pipe.
#[derive(Debug)]
pub(super) struct Reaper {
    pipe: Mutex<Option<ChildStdin>>,
}

impl Reaper {
    /// Starts the process.
    pub(super) fn start(grace: Duration) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let reap = format!("{}us", grace.as_micros());
        let child = Command::new(program)
            // The queue and the command are not used.
            .args(["work", "_", "--reap", &reap, "--", "_"])
            // A Ctrl-C in the terminal is for `millpond work` alone.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { pipe: Mutex::new(child.stdin) })
    }

    /// Says that a group runs.
    pub(super) fn begun(&self, group: Pid) {
        self.say('+', group);
    }

    /// Says that a group has ended.
    pub(super) fn ended(&self, group: Pid) {
        self.say('-', group);
    }

    fn say(&self, sign: char, group: Pid) {
        let mut pipe = self.pipe.lock().expect("no holder of this lock panics");
        let Some(open) = pipe.as_mut() else { return };
        let line = format!("{sign}{}\n", group.as_raw_nonzero());
        if open.write_all(line.as_bytes()).is_err() {
            tell("note: the process that would stop commands if this one were killed has ended");
            *pipe = None;
        }
    }
}

/// Reads which groups run, until the end; then stops those that are left, by force after `grace`.
pub(super) fn reap(told: impl BufRead, grace: Duration) {
    let left = groups(told);
    for &group in &left {
        signal(group, Signal::TERM);
    }
    let end = Instant::now() + grace;
    while Instant::now() < end && left.iter().any(|&group| test_kill_process_group(group).is_ok()) {
        std::thread::sleep(LOOK);
    }
    for &group in &left {
        signal(group, Signal::KILL);
    }
}

/// The groups that are said to run in the end.
fn groups(told: impl BufRead) -> Vec<Pid> {
    let mut running = BTreeSet::new();
    for line in told.lines().map_while(Result::ok) {
        let Some((sign, number)) = line.split_at_checked(1) else { continue };
        let Ok(number) = number.parse::<i32>() else { continue };
        match sign {
            "+" => drop(running.insert(number)),
            _ => drop(running.remove(&number)),
        }
    }
    // Never 0 or 1: they stand for groups that are not ours.
    running.into_iter().filter(|&number| number > 1).filter_map(Pid::from_raw).collect()
}

/// Sends `signal` to a group; if it has ended, there is nothing to do.
pub(super) fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn groups_that_have_ended_are_left_alone() {
        let numbers = |told: &str| -> Vec<i32> {
            groups(told.as_bytes()).iter().map(|group| group.as_raw_nonzero().get()).collect()
        };
        assert_eq!(numbers("+10\n+11\n-10\n+12\n+13\n-13\n"), [11, 12]);
        assert_eq!(numbers("+10\n-10\n+10\n"), [10]);
        assert!(numbers("+0\n+1\n+-5\nx\n+\n\n-7\n").is_empty());
    }
}
