//! What is told or written of a message, beside what the model knows of it.
//!
//! Owns the comparison of one copy. Must never look at how it came about.

use super::shape::label;
use millpond_core::message::{AttemptOutcome, Phase};
use millpond_testkit::model::{Ending, Message};

/// What is told or written of a message is what the model knows of it.
pub(super) fn judge_copy(expected: &Message, message: &millpond_core::message::Message) {
    assert_eq!(
        (message.phase, message.place, message.attempts, message.deliveries),
        (expected.phase, expected.place, expected.attempts, expected.deliveries),
        "{message:?}"
    );
    let waits = matches!(message.phase, Phase::Delayed | Phase::Backoff);
    let times = (message.accepted, message.first_due, message.expires, waits.then_some(message.due));
    assert_eq!(times, expected.times(), "times of {message:?}");
    assert_eq!(message.first_started, expected.first_started, "first start of {message:?}");
    assert_eq!(message.key.map(|key| (key.key, key.payload)), expected.key(), "key of {message:?}");
    let ended = message.history.iter().map(|attempt| (attempt.delivery, ending_of(attempt.outcome)));
    assert_eq!(ended.collect::<Vec<_>>(), expected.ended, "history of {message:?}");
    judge_labels(expected, message);
}

pub(super) fn judge_labels(expected: &Message, message: &millpond_core::message::Message) {
    assert_eq!(message.criticality, expected.labels.class, "class of {message:?}");
    assert_eq!(message.tenant, expected.labels.tenant.map(label), "tenant of {message:?}");
    assert_eq!(message.group, expected.labels.group.map(label), "group of {message:?}");
}

fn ending_of(outcome: AttemptOutcome) -> Ending {
    match outcome {
        AttemptOutcome::Succeeded => Ending::Done,
        AttemptOutcome::Failed | AttemptOutcome::TimedOut => Ending::Failed,
        AttemptOutcome::Dead => Ending::Rejected,
        AttemptOutcome::Released => Ending::Released,
        AttemptOutcome::Throttled => Ending::Throttled,
        AttemptOutcome::LeaseExpired => Ending::RanOut,
        AttemptOutcome::Interrupted => Ending::Interrupted,
    }
}
