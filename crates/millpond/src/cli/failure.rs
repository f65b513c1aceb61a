//! How a command ends badly: what is said about it, and with which exit code.
//!
//! Owns the exit codes and the form of an error on the terminal: what, then what to do. Must never write to
//! standard output.

use super::render::wrapped;
use millpond_api::client::ClientError;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Something went wrong.
const FAILED: u8 = 1;
/// The command line itself is wrong; the argument parser uses the same.
const USAGE: u8 = 2;
/// The server said no.
const REFUSED: u8 = 3;
/// There is no server, or none that answers.
const UNREACHABLE: u8 = 4;

/// Says something on standard error. If nobody reads there, that is no reason to stop.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong here; `help` says what to do.
    Failed {
        /// What went wrong, with its causes.
        text: String,
        /// What to do.
        help: Option<String>,
    },
    /// Everything has been said already; only the exit code is left.
    Told,
    /// The arguments make no sense together.
    Usage {
        /// What is wrong with them.
        text: String,
        /// What would be right.
        help: String,
    },
    /// The server refused, or there is none.
    Server(ClientError),
    /// Whoever read our output has gone; nobody is left to be told.
    ReaderGone,
}

impl Failure {
    /// A failure with what to do about it.
    pub(crate) fn new(text: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Failed { text: text.into(), help: Some(help.into()) }
    }

    /// Wrong usage, with what would be right.
    pub(crate) fn usage(text: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage { text: text.into(), help: help.into() }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Server(error) if error.is_unreachable() => UNREACHABLE,
            Self::Server(ClientError::Refused(_)) => REFUSED,
            Self::Usage { .. } | Self::Server(ClientError::Address { .. } | ClientError::Header { .. }) => {
                USAGE
            }
            Self::Failed { .. } | Self::Told | Self::Server(_) => FAILED,
            Self::ReaderGone => 0,
        }
    }

    /// Tells the user and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = self.to_string();
        if !text.is_empty() {
            // Between words where people read; whole lines where a program does.
            let text = if io::stderr().is_terminal() { wrapped(&text) } else { text };
            tell(text.trim_end());
        }
        ExitCode::from(self.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { text, help: None } => write!(formatter, "error: {text}"),
            Self::Failed { text, help: Some(help) } | Self::Usage { text, help } => {
                write!(formatter, "error: {text}\n help: {help}")
            }
            Self::Server(error) => server(formatter, error),
            Self::Told | Self::ReaderGone => Ok(()),
        }
    }
}

fn server(formatter: &mut fmt::Formatter<'_>, error: &ClientError) -> fmt::Result {
    match error {
        ClientError::Refused(problem) => {
            let word = problem.kind.rsplit('/').next().unwrap_or_default();
            write!(formatter, "refused: {} ({word}, {})", problem.detail, problem.status)?;
            if let Some(seconds) = problem.retry_after_seconds {
                write!(formatter, "\n  try: again in {seconds}s")?;
            }
            problem.slug().map_or(Ok(()), |slug| write!(formatter, "\n help: {}", slug.remedy()))
        }
        ClientError::Unreachable { .. } => write!(
            formatter,
            "error: {error}\n help: start a server with `millpond serve`, or name another one with --url or MILLPOND_URL"
        ),
        ClientError::TimedOut { .. } | ClientError::Interrupted { .. } => write!(
            formatter,
            "error: {error}\n help: look whether the server is well (its log; /readyz), then repeat the command"
        ),
        ClientError::Protocol { .. } => write!(
            formatter,
            "error: {error}\n help: check --url and MILLPOND_URL, and that both sides have the same major version"
        ),
        _ => write!(formatter, "error: {error}"),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Failed { text: error.to_string(), help: None },
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(io::ErrorKind::BrokenPipe) => Self::ReaderGone,
            _ => Self::Failed { text: error.to_string(), help: None },
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
            let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
            io.or(json) == Some(io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(broken_pipe) {
            return Self::ReaderGone;
        }
        Self::Failed { text: format!("{error:#}"), help: None }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use millpond_api::client::ClientError;
    use millpond_api::problem::{Problem, Slug};
    use std::time::Duration;

    #[test]
    fn each_way_to_fail_has_its_exit_code() {
        let address = || "http://127.0.0.1:8080".to_owned();
        let reason = || "because".to_owned();
        for (failure, code) in [
            (Failure::new("a", "b"), 1),
            (Failure::Told, 1),
            (Failure::usage("a", "b"), 2),
            (Failure::Server(ClientError::Refused(Box::new(Problem::new(Slug::QueueFull, "full")))), 3),
            (Failure::Server(ClientError::Unreachable { address: address(), reason: reason() }), 4),
            (Failure::Server(ClientError::TimedOut { address: address(), after: Duration::ZERO }), 4),
            (Failure::Server(ClientError::Interrupted { address: address(), reason: reason() }), 4),
            (Failure::Server(ClientError::Protocol { address: address(), reason: reason() }), 1),
            (Failure::Server(ClientError::Address { address: address(), reason: reason() }), 2),
            (Failure::ReaderGone, 0),
        ] {
            assert_eq!(failure.code(), code, "{failure:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_why_when_and_what_to_do() {
        let problem = Problem::new(Slug::QueueFull, "queue jobs is full").retry_after(7);
        let text = Failure::Server(ClientError::Refused(Box::new(problem))).to_string();
        for expected in ["queue jobs is full", "queue-full, 503", "again in 7s", Slug::QueueFull.remedy()] {
            assert!(text.contains(expected), "{expected} is missing\n{text}");
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(gone()), Failure::ReaderGone));
        assert!(matches!(Failure::from(anyhow::Error::new(gone()).context("writing")), Failure::ReaderGone));
        assert!(matches!(Failure::from(serde_json::Error::io(gone())), Failure::ReaderGone));
    }
}
