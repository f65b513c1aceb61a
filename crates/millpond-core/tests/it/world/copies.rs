//! What is told or written of a message, beside what the model knows of it.
//!
//! Owns the comparison of one copy. Must never look at how it came about.

use super::shape::{self, label};
use millpond_core::identity::Receipt;
use millpond_core::message::{AttemptOutcome, HandOut, Phase};
use millpond_testkit::model::{Ending, Message, Taker};

/// What is told or written of a message is what the model knows of it.
pub(super) fn judge_copy(expected: &Message, message: &millpond_core::message::Message) {
    assert_eq!(
        (message.phase, message.place, message.attempts, message.deliveries),
        (expected.phase, expected.place, expected.attempts, expected.deliveries),
        "{message:?}"
    );
    let due = (!matches!(message.phase, Phase::Ready | Phase::Leased)).then_some(message.due);
    let times = (message.accepted, message.first_due, message.expires, due);
    assert_eq!(times, expected.times(), "times of {message:?}");
    assert_eq!(message.finished, expected.finished(), "end of {message:?}");
    assert_eq!(message.dead_reason, expected.dead_reason, "why dead: {message:?}");
    assert_eq!(message.result, expected.result, "result of {message:?}");
    judge_hold(expected, message);
    assert_eq!(message.first_started, expected.first_started, "first start of {message:?}");
    assert_eq!(message.key.map(|key| (key.key, key.payload)), expected.key(), "key of {message:?}");
    let ended = message.history.iter().map(|attempt| (attempt.delivery, ending_of(attempt.outcome)));
    assert_eq!(ended.collect::<Vec<_>>(), expected.ended, "history of {message:?}");
    judge_labels(expected, message);
}

/// The latest hand-out, by which receipts are judged.
fn judge_hold(expected: &Message, message: &millpond_core::message::Message) {
    let taker = |hand_out: &HandOut| match hand_out.holder.target() {
        Some(target) => Taker::Target(shape::target_number(target)),
        None => Taker::Worker(message.consumer.as_ref().map(shape::number)),
    };
    let told = message.hand_out.as_ref();
    let told = told.map(|one| (one.epoch, message.delivery(), taker(one), one.settled.map(ending_of)));
    let known = expected.hold.map(|hold| {
        let Receipt { epoch, delivery, .. } = hold.receipt;
        (epoch, delivery, hold.taker, hold.settled)
    });
    assert_eq!(told, known, "latest hand-out of {message:?}");
    let until = message.hand_out.as_ref().map(|one| one.until).filter(|_| message.phase == Phase::Leased);
    assert_eq!(until, expected.leased_until(), "lease of {message:?}");
}

fn judge_labels(expected: &Message, message: &millpond_core::message::Message) {
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
        AttemptOutcome::ProbeFailed => Ending::ProbeFailed,
    }
}
