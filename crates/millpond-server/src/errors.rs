//! The one mapping from what the engine refuses to what the caller is told.
//!
//! Owns the texts for callers. Must never answer 429 or 503 without a time to come back.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use millpond_api::problem::{Problem, Slug};
use millpond_core::command::{
    CancelError, DefineError, EnqueueError, LookupError, QueueError, ReplayError, SettleError,
};
use millpond_core::identity::IdentityError;
use millpond_engine::handle::CallError;
use std::convert::Infallible;
use std::time::Duration;

/// What a handler answers.
pub(crate) type Answer = Result<Response, Refusal>;

/// A problem on its way to the caller. The router completes it with the path and turns it into JSON.
#[derive(Debug, Clone)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

/// A problem of the kind `slug`.
pub(crate) fn refuse(slug: Slug, detail: impl Into<String>) -> Refusal {
    Refusal(Box::new(Problem::new(slug, detail)))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

/// Whole seconds, rounded up, at least 1: coming back after exactly this long is never too early.
pub(crate) fn retry_after_seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    (if wait.subsec_nanos() > 0 { whole.saturating_add(1) } else { whole }).max(1)
}

/// A moment from now, spread so that those who were refused together do not come back together.
fn soon() -> u64 {
    fastrand::u64(1..=4)
}

/// The server takes no new work because it is about to stop.
pub(crate) fn draining() -> Refusal {
    let detail = "the server is shutting down and takes no new work; come back after the restart";
    Refusal(Box::new(Problem::new(Slug::Draining, detail).retry_after(2 + soon())))
}

/// The server has as much to do as it takes.
pub(crate) fn overloaded(why: &str) -> Refusal {
    let problem = Problem::new(Slug::Overloaded, format!("{why}; this request was not begun"));
    Refusal(Box::new(problem.retry_after(soon())))
}

/// The engine did not answer in time.
pub(crate) fn no_answer_in_time(waited: Duration) -> Refusal {
    let detail = format!(
        "no answer within {}s; whether the request took effect is not known: repeat it with the same Idempotency-Key",
        waited.as_secs()
    );
    Refusal(Box::new(Problem::new(Slug::Unavailable, detail).retry_after(soon())))
}

/// The problem for a call that the engine did not carry out. `about` is the queue's name or the message's id.
pub(crate) fn refused<E: Told>(error: &CallError<E>, about: &str) -> Refusal {
    let problem = match error {
        CallError::Refused(error) => error.problem(about),
        CallError::Overloaded => *overloaded("more requests are under way than the server takes").0,
        CallError::Stopped => {
            let detail = "the engine has stopped; whether the request took effect is not known";
            Problem::new(Slug::Unavailable, detail).retry_after(soon())
        }
    };
    Refusal(Box::new(problem))
}

/// An error of the engine that callers are told of.
pub(crate) trait Told {
    /// The problem; `about` is the queue's name or the message's id.
    fn problem(&self, about: &str) -> Problem;
}

impl Told for Infallible {
    fn problem(&self, _: &str) -> Problem {
        match *self {}
    }
}

fn unknown_queue(queue: &str) -> Problem {
    let detail = format!(
        "there is no queue {queue:?}; create it with PUT /v1/queues/{{queue}}, or see GET /v1/queues for those there are"
    );
    Problem::new(Slug::UnknownQueue, detail)
}

impl Told for EnqueueError {
    fn problem(&self, queue: &str) -> Problem {
        let refused = |slug, retry_after: &Duration| {
            let seconds = retry_after_seconds(*retry_after);
            let detail = format!("queue {queue}: {self}; nothing was stored, try again in {seconds}s");
            Problem::new(slug, detail).retry_after(seconds)
        };
        match self {
            Self::UnknownQueue => unknown_queue(queue),
            Self::QueueFull { retry_after, .. } => refused(Slug::QueueFull, retry_after),
            Self::WaitTooLong { retry_after, .. } => refused(Slug::WaitTooLong, retry_after),
            Self::StorageFull => {
                let detail = format!("queue {queue}: {self}; nothing was stored");
                Problem::new(Slug::StorageFull, detail).retry_after(9 + soon())
            }
            Self::Draining => *draining().0,
            Self::DelayTooLong | Self::TtlOutOfRange { .. } | Self::DelayBeyondTtl => {
                Problem::new(Slug::InvalidMessage, format!("queue {queue}: {self}"))
            }
            Self::GroupsNotKept { .. } => {
                let detail = format!(
                    "queue {queue}: {self}; send it without a group, or to a queue whose order is fifo"
                );
                Problem::new(Slug::InvalidMessage, detail)
            }
            Self::TooLarge { .. } | Self::BatchTooLarge { .. } => {
                Problem::new(Slug::TooLarge, format!("queue {queue}: {self}"))
            }
            Self::IdempotencyMismatch => {
                let detail = format!(
                    "queue {queue}: {self}; use a new key for new work, and the same body, content type, delay, time to live, criticality, tenant, group, method and path for a repetition"
                );
                Problem::new(Slug::IdempotencyMismatch, detail)
            }
        }
    }
}

impl Told for QueueError {
    fn problem(&self, queue: &str) -> Problem {
        match self {
            Self::Unknown => unknown_queue(queue),
            Self::Draining => *draining().0,
            Self::PurgeRunning => {
                Problem::new(Slug::InUse, format!("queue {queue}: {self}; wait for its end"))
            }
            Self::TooManyWaiting => Problem::new(
                Slug::Overloaded,
                format!("queue {queue}: {self}; use fewer consumers that take more messages each"),
            )
            .retry_after(soon()),
        }
    }
}

impl Told for SettleError {
    fn problem(&self, _: &str) -> Problem {
        match self {
            Self::LeaseLost => Problem::new(Slug::LeaseLost, self.to_string()),
            Self::TooLong | Self::DelayTooLong => Problem::new(Slug::Malformed, self.to_string()),
        }
    }
}

impl Told for LookupError {
    fn problem(&self, id: &str) -> Problem {
        let slug = match self {
            Self::NeverIssued => Slug::UnknownMessage,
            Self::Forgotten => Slug::Forgotten,
        };
        Problem::new(slug, format!("message {id}: {self}"))
    }
}

impl Told for CancelError {
    fn problem(&self, id: &str) -> Problem {
        match self {
            Self::Lookup(error) => error.problem(id),
            Self::NotCancellable(_) => {
                let detail = format!("{self}; only a message that nobody has can be cancelled");
                Problem::new(Slug::NotCancellable, detail)
            }
        }
    }
}

impl Told for DefineError {
    fn problem(&self, queue: &str) -> Problem {
        match self {
            Self::Declared => Problem::new(
                Slug::DeclaredInConfiguration,
                format!("queue {queue}: {self}, then restart the server"),
            ),
            Self::Unknown => unknown_queue(queue),
            Self::InUse { .. } => {
                let detail =
                    format!("{self}; let them finish, cancel them, or replay or delete the dead letters");
                Problem::new(Slug::InUse, format!("queue {queue}: {detail}"))
            }
            Self::GroupsUnfinished { .. } | Self::GroupsReleased { .. } => {
                let detail = format!("queue {queue}: {self}; let them finish or cancel them, then change it");
                Problem::new(Slug::InUse, detail)
            }
            Self::Settings(_) | Self::UnknownTarget(_) => {
                Problem::new(Slug::Malformed, format!("queue {queue}: {self}"))
            }
            Self::TooMany(_) => {
                Problem::new(Slug::Overloaded, format!("{self}; delete queues that are not used"))
                    .retry_after(59 + soon())
            }
        }
    }
}

impl Told for ReplayError {
    fn problem(&self, queue: &str) -> Problem {
        match self {
            Self::UnknownQueue => unknown_queue(queue),
            Self::NotDead(_) => {
                let detail = format!(
                    "queue {queue}: one of the messages is no dead letter of this queue; see GET /v1/queues/{queue}/dead for those there are"
                );
                Problem::new(Slug::UnknownMessage, detail)
            }
            Self::Running(number) => Problem::new(
                Slug::InUse,
                format!(
                    "queue {queue}: {self}; wait for its end, or cancel it with DELETE /v1/queues/{queue}/dead/replays/{number}"
                ),
            ),
            Self::UnknownTask(_) => Problem::new(Slug::UnknownReplay, format!("queue {queue}: {self}")),
            Self::TooManyNamed(_) | Self::OutOfRange { .. } => {
                Problem::new(Slug::Malformed, format!("queue {queue}: {self}"))
            }
            Self::TooManyWaiting => {
                Problem::new(Slug::Overloaded, format!("queue {queue}: {self}")).retry_after(soon())
            }
        }
    }
}

/// A receipt that is not ours.
pub(crate) fn bad_receipt(error: IdentityError) -> Problem {
    Problem::new(Slug::Malformed, format!("receipt: {error}; use it as the lease gave it"))
}

#[cfg(test)]
mod tests {
    use super::{Told, refused, retry_after_seconds};
    use millpond_api::problem::Problem;
    use millpond_core::command::{DefineError, EnqueueError, QueueError};
    use millpond_core::settings::Order;
    use millpond_engine::handle::CallError;
    use std::time::Duration;

    #[test]
    fn coming_back_is_rounded_up_and_never_at_once() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(Duration::from_millis(millis)), seconds);
        }
        assert!(retry_after_seconds(Duration::MAX) > 1);
    }

    #[test]
    fn an_order_that_does_not_keep_groups_is_the_callers_to_mend() {
        let order = Order::Lifo;
        let problem = EnqueueError::GroupsNotKept { order }.problem("q");
        assert_eq!((problem.status, problem.retry_after_seconds), (422, None));
        assert!(problem.detail.contains("fifo"), "it says what to do: {}", problem.detail);
        let problem = DefineError::GroupsUnfinished { order, unfinished: 3 }.problem("q");
        assert_eq!(problem.status, 409);
        assert!(problem.detail.contains('3'), "{}", problem.detail);
    }

    #[test]
    fn one_is_not_counted_as_many() {
        let told = |error: DefineError| error.problem("q").detail;
        let order = Order::Lifo;
        assert!(
            told(DefineError::InUse { unfinished: 1, dead: 2 })
                .contains("1 unfinished message and 2 dead letters;")
        );
        for error in [
            DefineError::GroupsUnfinished { order, unfinished: 1 },
            DefineError::GroupsReleased { order, released: 1 },
        ] {
            let text = told(error);
            assert!(text.contains("1 unfinished message ") && !text.contains("messages are"), "{text}");
        }
    }

    #[test]
    fn every_refusal_for_want_of_capacity_says_when_to_come_back() {
        let retry_after = Duration::ZERO;
        let max = Duration::from_secs(1);
        let mut problems: Vec<Problem> = [
            EnqueueError::UnknownQueue,
            EnqueueError::QueueFull { what: "max_messages", retry_after },
            EnqueueError::WaitTooLong { predicted: max, max, retry_after },
            EnqueueError::StorageFull,
            EnqueueError::Draining,
            EnqueueError::IdempotencyMismatch,
        ]
        .iter()
        .map(|error| error.problem("q"))
        .collect();
        problems.extend(
            [QueueError::Draining, QueueError::TooManyWaiting].iter().map(|error| error.problem("q")),
        );
        problems.push(DefineError::TooMany(3).problem("q"));
        problems.push(*refused::<QueueError>(&CallError::Overloaded, "q").0);
        problems.push(*refused::<QueueError>(&CallError::Stopped, "q").0);
        for problem in problems {
            let must = matches!(problem.status, 429 | 503 | 507);
            assert_eq!(problem.retry_after_seconds.is_some_and(|seconds| seconds >= 1), must, "{problem:?}");
        }
    }
}
