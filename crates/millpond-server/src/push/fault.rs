//! Why a call has no answer.
//!
//! Owns the stable words (`kind`) and the sentences for what went wrong on the way, and how far a call had come. Must
//! never call a request unsent that may have left.

use crate::tls;
use millpond_core::message::Failure;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// It failed; nothing of it goes on at the target, as far as anybody can know.
    Failed(Failure),
    /// It was sent, and no answer came in time: the target may still be at it.
    TimedOut(Failure),
    /// The target has said that it never began with it.
    NotBegun(Failure),
}

/// Why there is no connection. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct ConnectError {
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Self {
        Self::Failed(Failure::new(error.kind, &error.message, None))
    }
}

/// What a call is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// A connection that somebody else is making, or uses.
    Waiting,
    /// The addresses of a name.
    Resolving,
    /// TCP.
    Connecting,
    /// The TLS handshake.
    Securing,
    /// The first words of HTTP/2.
    Greeting,
    /// The answer: the request is on its way.
    Sent,
}

/// How far one call has come; whoever works for it notes it here.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

tokio::task_local! {
    static CURRENT: Progress;
}

impl Progress {
    /// Runs `future` so that what it calls finds this progress.
    pub(super) async fn follow<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The progress of the call that this task makes.
    pub(super) fn current() -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_default()
    }

    /// Notes where the call is.
    pub(super) fn reach(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    /// Where the call is.
    pub(super) fn phase(&self) -> Phase {
        const PHASES: [Phase; 5] =
            [Phase::Waiting, Phase::Resolving, Phase::Connecting, Phase::Securing, Phase::Greeting];
        PHASES.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Sent)
    }

    /// What it means that the call has come no further `within` this time without a connection.
    pub(super) fn no_connection(&self, within: Duration) -> ConnectError {
        let (kind, what) = match self.phase() {
            Phase::Waiting => ("connect", "no connection was free"),
            Phase::Resolving => ("resolve", "the name was not resolved"),
            Phase::Connecting | Phase::Sent => ("connect", "there was no connection"),
            Phase::Securing => ("tls", "the TLS handshake was not done"),
            Phase::Greeting => ("connect", "the target did not begin to speak HTTP/2"),
        };
        ConnectError { kind, message: format!("{what} within {}ms", within.as_millis()) }
    }

    /// What it means that the call has come no further within its whole time.
    pub(super) fn timed_out(&self, within: Duration) -> Fault {
        if self.phase() != Phase::Sent {
            return self.no_connection(within).into();
        }
        let message = format!("no complete answer within {}ms", within.as_millis());
        Fault::TimedOut(Failure::new("timeout", &message, None))
    }
}

/// What an error means for a request that may have been sent.
pub(super) fn fault(error: &(dyn Error + 'static)) -> Fault {
    if let Some(error) = find::<ConnectError>(error) {
        return error.clone().into();
    }
    let failure = Failure::new(kind(error), &words(error), None);
    if is_refusal(error) { Fault::NotBegun(failure) } else { Fault::Failed(failure) }
}

/// Whether an error of HTTP/2 says that the target has not begun with the request, and never will: it refused the
/// stream, or is about to close the connection and has named an earlier one as the last that it answers.
pub(super) fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        let reason = error.reason();
        error.is_remote()
            && (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
                // With another reason, streams before the last one end with this error as well.
                || error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
    })
}

/// Whether an error of HTTP/2 is of one call only, so that the others on its connection go on.
pub(super) fn is_of_stream(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(h2::Error::is_reset)
}

/// The stable word for an error on the way.
pub(super) fn kind(error: &(dyn Error + 'static)) -> &'static str {
    if tls::fault(error).is_some() {
        return "tls";
    }
    if let Some(error) = find::<h2::Error>(error) {
        return if error.is_remote() || error.is_io() { "reset" } else { "protocol" };
    }
    let is_reset = find::<hyper::Error>(error).is_some_and(|error| {
        // The only time-out within hyper is that of a ping: nobody is there any more.
        error.is_incomplete_message() || error.is_canceled() || error.is_closed() || error.is_timeout()
    });
    if is_reset {
        return "reset";
    }
    match find::<io::Error>(error).map(io::Error::kind) {
        // What came is no HTTP, such as a chunk without a length.
        None | Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => "protocol",
        Some(_) => "reset",
    }
}

/// The error with its causes in one line; for TLS what it means.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    if let Some(fault) = tls::fault(error) {
        return tls::words(fault);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// The first error of type `E` among `error` and its causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Fault, Phase, Progress, fault};
    use std::io;
    use std::time::Duration;

    #[test]
    fn only_a_call_that_was_sent_can_still_occupy_the_target() {
        let progress = Progress::default();
        let late = Duration::from_millis(50);
        for (phase, kind) in [
            (Phase::Waiting, "connect"),
            (Phase::Resolving, "resolve"),
            (Phase::Connecting, "connect"),
            (Phase::Securing, "tls"),
            (Phase::Greeting, "connect"),
        ] {
            progress.reach(phase);
            let Fault::Failed(failure) = progress.timed_out(late) else { panic!("{phase:?}") };
            assert_eq!(failure.kind, kind);
            assert!(failure.message.ends_with("within 50ms"), "{failure:?}");
        }
        progress.reach(Phase::Sent);
        assert!(matches!(progress.timed_out(late), Fault::TimedOut(failure) if failure.kind == "timeout"));
    }

    #[test]
    fn a_request_counts_as_not_begun_only_if_the_target_says_so() {
        // Errors that a remote has caused cannot be made by hand: the tests of HTTP/2 have those.
        let local = h2::Error::from(h2::Reason::REFUSED_STREAM);
        assert!(matches!(fault(&local), Fault::Failed(failure) if failure.kind == "protocol"));
        let error = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(matches!(fault(&error), Fault::Failed(failure) if failure.kind == "reset"));
    }
}
