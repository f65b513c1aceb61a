//! The engine's answers in the words of the wire.
//!
//! Owns the conversion of statuses, numbers and times. Must never decide anything about a queue.

use crate::shared::Shared;
use millpond_api::types::{
    Attempt, AttemptError, ExpectedStart, MessageStatus, Queue, QueueStats, ResultLink, State,
};
use millpond_core::command::{QueueView, Status};
use millpond_core::forecast::Promise;
use millpond_core::message::{self, Failure, Phase};
use millpond_core::name::Label;
use millpond_core::stats;
use millpond_core::time::Wall;
use std::time::Duration;

/// RFC 3339 in UTC with milliseconds.
pub fn rfc3339(time: Wall) -> String {
    let time = jiff::Timestamp::from_microsecond(time.0).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

/// The word on the wire for a phase.
pub(crate) fn state(phase: Phase) -> State {
    match phase {
        Phase::Delayed => State::Delayed,
        Phase::Ready => State::Ready,
        Phase::Leased => State::Leased,
        Phase::Backoff => State::Backoff,
        Phase::Succeeded => State::Succeeded,
        Phase::Dead => State::Dead,
        Phase::Expired => State::Expired,
        Phase::Cancelled => State::Cancelled,
        Phase::Dropped => State::Dropped,
    }
}

/// How long after `now` a message that is due at `due` is held back: delayed, or in backoff.
pub(crate) fn held_back(phase: Phase, due: Wall, now: Wall) -> Duration {
    let micros =
        if matches!(phase, Phase::Delayed | Phase::Backoff) { due.0.saturating_sub(now.0) } else { 0 };
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The time of the wall clock.
pub(crate) fn now() -> Wall {
    Wall(jiff::Timestamp::now().as_microsecond())
}

/// The promise in seconds.
pub(crate) fn expected_start(promise: Option<Promise>) -> Option<ExpectedStart> {
    promise.map(|promise| ExpectedStart { p50: promise.p50.as_secs_f64(), p90: promise.p90.as_secs_f64() })
}

/// What went wrong, and when.
pub fn error(failure: &Failure, at: Wall) -> AttemptError {
    AttemptError {
        kind: failure.kind.clone(),
        message: failure.message.clone(),
        at: rfc3339(at),
        http_status: failure.http_status,
    }
}

/// A hand-out that has ended.
pub fn attempt(attempt: &message::Attempt) -> Attempt {
    let took = Duration::from_micros(attempt.micros);
    Attempt {
        n: attempt.delivery,
        started_at: rfc3339(attempt.started),
        seconds: took.as_secs_f64(),
        outcome: attempt.outcome.as_str().to_owned(),
        error: attempt.failure.as_ref().map(|failure| error(failure, attempt.started.plus(took))),
    }
}

/// A label as text.
pub(crate) fn label(label: Option<&Label>) -> Option<String> {
    label.map(|label| label.as_str().to_owned())
}

/// A message's status, as an operator may see it.
pub(crate) fn status(shared: &Shared, status: &Status) -> MessageStatus {
    let message = &status.message;
    let waits = matches!(message.phase, Phase::Delayed | Phase::Backoff);
    let (id, token) =
        (shared.handle.keys().id(message.seq).to_string(), shared.handle.keys().token(message.seq));
    let link = |(content_type, size): &(String, u64)| ResultLink {
        content_type: content_type.clone(),
        size: *size,
        url: format!("{}/v1/messages/{id}/result?t={token}", shared.base_url),
    };
    MessageStatus {
        queue: status.queue.as_str().to_owned(),
        status: state(message.phase),
        status_url: shared.status_url(&id, &token),
        position: status.position,
        expected_start_seconds: expected_start(status.promise),
        accepted_at: rfc3339(message.accepted),
        attempts: message.attempts,
        deliveries: message.deliveries,
        due_at: waits.then(|| rfc3339(message.due)),
        first_started_at: message.first_started.map(rfc3339),
        finished_at: message.finished.map(rfc3339),
        expires_at: rfc3339(message.expires),
        criticality: message.criticality.as_str().to_owned(),
        tenant: label(message.tenant.as_ref()),
        group: label(message.group.as_ref()),
        consumer: label(message.consumer.as_ref()).filter(|_| message.phase == Phase::Leased),
        dead_reason: message.dead_reason.map(|reason| reason.as_str().to_owned()),
        last_error: message.last_failure().map(|(failure, at)| error(failure, at)),
        history: message.history.iter().map(attempt).collect(),
        result: message.result.as_ref().map(link),
        callback: None,
        id,
    }
}

/// A queue.
pub(crate) fn queue(view: &QueueView) -> Queue {
    Queue {
        name: view.name.as_str().to_owned(),
        declared: view.declared,
        paused: view.stats.paused,
        held: view.stats.held.map(|held| held.as_str().to_owned()),
        settings: millpond_config::settings_json::queue_settings_to_json(&view.settings),
        stats: queue_stats(&view.stats),
    }
}

/// A queue's numbers, flat.
pub(crate) fn queue_stats(stats: &stats::QueueStats) -> QueueStats {
    let totals = &stats.totals;
    QueueStats {
        ready: stats.ready,
        delayed: stats.delayed,
        leased: stats.leased,
        backoff: stats.backoff,
        dead: stats.dead,
        bytes: stats.bytes,
        oldest_age_seconds: stats.oldest_age.as_secs_f64(),
        oldest_ready_age_seconds: stats.oldest_ready_age.as_secs_f64(),
        oldest_leased_age_seconds: stats.oldest_leased_age.as_secs_f64(),
        oldest_backoff_age_seconds: stats.oldest_backoff_age.as_secs_f64(),
        arrivals_per_second: stats.arrivals_per_second,
        completions_per_second: stats.completions_per_second,
        capacity_per_second: stats.capacity_per_second,
        utilization: stats.utilization,
        predicted_wait_seconds: stats.predicted_wait.map(|wait| wait.as_secs_f64()),
        drain_seconds: stats.drain.map(|drain| drain.as_secs_f64()),
        insurmountable: u8::from(stats.insurmountable),
        paused: u8::from(stats.paused),
        blocked: stats.blocked,
        workers: stats.workers,
        backlog_per_worker: stats.backlog_per_worker,
        workers_wanted: stats.workers_wanted,
        workers_ceiling: stats.workers_ceiling,
        service_time_seconds: stats.service_time.as_secs_f64(),
        promise_kept_ratio: stats.promises.kept_ratio(),
        accepted_total: totals.accepted(),
        completed_total: totals.completed,
        refused_total: totals.refused(),
        dead_total: totals.dead,
        expired_total: totals.expired,
        dropped_total: stats.totals.dropped,
        cancelled_total: totals.cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::{held_back, rfc3339, state};
    use millpond_core::message::Phase;
    use millpond_core::time::Wall;
    use std::time::Duration;

    #[test]
    fn only_what_is_held_back_waits_for_its_time() {
        let (now, due) = (Wall(1_000_000), Wall(3_500_000));
        for phase in [Phase::Delayed, Phase::Backoff] {
            assert_eq!(held_back(phase, due, now), Duration::from_millis(2_500));
            assert_eq!(held_back(phase, now, due), Duration::ZERO, "the time has come");
        }
        for phase in [Phase::Ready, Phase::Leased, Phase::Succeeded] {
            assert_eq!(held_back(phase, due, now), Duration::ZERO);
        }
    }

    #[test]
    fn times_have_milliseconds_and_end_in_z() {
        assert_eq!(rfc3339(Wall(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Wall(1_796_032_800_123_456)), "2026-11-30T10:00:00.123Z");
        assert!(rfc3339(Wall(i64::MAX)).starts_with("9999-"));
    }

    #[test]
    fn a_state_is_the_word_of_its_phase() {
        for phase in
            ["delayed", "ready", "leased", "backoff", "succeeded", "dead", "expired", "cancelled", "dropped"]
        {
            let word = serde_json::to_value(state(Phase::parse(phase).unwrap())).unwrap();
            assert_eq!(word, phase);
        }
    }
}
