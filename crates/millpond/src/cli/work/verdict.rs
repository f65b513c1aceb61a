//! What a command's end means for its message.
//!
//! Owns the exit codes and what is kept of a command's output. Must never look at a process: it is told.

use millpond_api::client::Content;
use millpond_api::worker::Outcome;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// `EX_DATAERR`: the message itself is wrong.
const DEAD: i32 = 65;
/// `EX_UNAVAILABLE`: something that the work needs is not there.
const RELEASE: i32 = 69;
/// Most bytes of a result, whatever the queue keeps: more would not fit into one request in its longest form.
pub(super) const RESULT_BYTES_MAX: u64 = 2 << 20;
/// Bytes of standard error that are kept: the last ones.
pub(super) const STDERR_BYTES_MAX: usize = 800;

/// How a command ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It took too long and was stopped.
    TimedOut(Duration),
    /// It was stopped: its lease is over, or this worker stops.
    Stopped,
    /// It did not start, or nobody can tell how it ended.
    Unknown,
}

/// What is said of the message whose command ended like this.
pub(super) fn outcome(
    end: &End,
    stdout: Vec<u8>,
    stderr: &[u8],
    result_type: Option<&str>,
    release_delay: Duration,
) -> Outcome {
    let with_reason = |what: String| match last_lines(stderr) {
        lines if lines.is_empty() => what,
        lines => format!("{what}: {lines}"),
    };
    match end {
        End::Exited(status) => match (status.code(), status.signal()) {
            (Some(0), _) if stdout.is_empty() => Outcome::done(),
            (Some(0), _) => {
                let guessed = || crate::cli::send::guessed(&stdout).to_owned();
                let content_type = result_type.map_or_else(guessed, str::to_owned);
                Outcome::Complete { result: Some(Content { content_type, body: stdout.into() }) }
            }
            (Some(DEAD), _) => Outcome::dead(with_reason(format!("exit code {DEAD}"))),
            (Some(RELEASE), _) => Outcome::release().after(release_delay),
            (Some(code), _) => Outcome::retry(with_reason(format!("exit code {code}"))),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                Outcome::retry(with_reason(format!("ended by signal {signal}")))
            }
        },
        End::TimedOut(after) => {
            let after = crate::cli::render::duration(after.as_secs_f64());
            Outcome::retry(with_reason(format!("stopped after {after} (--timeout)")))
        }
        End::Stopped => Outcome::release(),
        // No fault of the message: another attempt may find room for a process.
        End::Unknown => Outcome::release().after(release_delay),
    }
}

/// The last bytes of `stderr` as text, from the beginning of a line if there is one.
fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim_end();
    let from = text.ceil_char_boundary(text.len().saturating_sub(STDERR_BYTES_MAX));
    let tail = &text[from..];
    let whole = if from == 0 { Some(tail) } else { tail.split_once('\n').map(|(_, rest)| rest) };
    whole.filter(|lines| !lines.is_empty()).unwrap_or(tail).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{End, last_lines, outcome};
    use millpond_api::worker::Outcome;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;
    use std::time::Duration;

    const DELAY: Duration = Duration::from_secs(5);

    fn exited(code: i32, stdout: &[u8], stderr: &[u8]) -> Outcome {
        outcome(&End::Exited(ExitStatus::from_raw(code << 8)), stdout.to_vec(), stderr, None, DELAY)
    }

    #[test]
    fn exit_codes_mean_what_the_help_says() {
        assert_eq!(exited(0, b"", b"noise"), Outcome::done());
        assert_eq!(exited(0, b"{\"a\": 1}", b""), Outcome::result("application/json", "{\"a\": 1}"));
        assert_eq!(exited(0, b"\xff", b""), Outcome::result("application/octet-stream", vec![0xff]));
        assert_eq!(exited(65, b"x", b"bad row\n"), Outcome::dead("exit code 65: bad row"));
        assert_eq!(exited(69, b"", b"db down"), Outcome::release().after(DELAY));
        assert_eq!(exited(75, b"", b""), Outcome::retry("exit code 75"));
        assert_eq!(exited(1, b"half", b"a\nb\n"), Outcome::retry("exit code 1: a\nb"));
        let killed = outcome(&End::Exited(ExitStatus::from_raw(9)), Vec::new(), b"", None, DELAY);
        assert_eq!(killed, Outcome::retry("ended by signal 9"));
    }

    #[test]
    fn what_a_command_could_not_help_is_told_apart() {
        let late =
            outcome(&End::TimedOut(Duration::from_mins(2)), b"x".to_vec(), b"still at it", None, DELAY);
        assert_eq!(late, Outcome::retry("stopped after 2m (--timeout): still at it"));
        assert_eq!(outcome(&End::Stopped, Vec::new(), b"", None, DELAY), Outcome::release());
        assert_eq!(outcome(&End::Unknown, Vec::new(), b"", None, DELAY), Outcome::release().after(DELAY));
    }

    #[test]
    fn of_a_long_standard_error_the_last_whole_lines_are_kept() {
        let long = format!("{}\nthe reason\n", "x".repeat(5_000));
        assert_eq!(last_lines(long.as_bytes()), "the reason");
        let one_line = "é".repeat(5_000);
        let kept = last_lines(one_line.as_bytes());
        assert!(kept.len() <= super::STDERR_BYTES_MAX && kept.chars().all(|character| character == 'é'));
        assert_eq!(last_lines(b"\xff bytes \n"), "\u{fffd} bytes");
        assert_eq!(last_lines(b" \n"), "");
    }
}
