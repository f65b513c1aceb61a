//! From record to bytes.
//!
//! Owns the order of the fields. Must never fail: lengths are bounded before a record is made.

use super::tag;
use millpond_core::message::{
    Attempt, AttemptOutcome, Content, Criticality, DeadReason, HandOut, Holder, Message, Phase,
};
use millpond_core::name::{Label, Name};
use millpond_core::record::{QueueRecord, Record};
use millpond_core::replay::{ReplayState, ReplayTask, ReplayWhich};
use millpond_core::time::Wall;
use std::time::Duration;

/// Returns the length of the record without the content, which comes last.
pub(super) fn record(record: &Record, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    match record {
        Record::Boot { epoch, next } => {
            out.push(tag::BOOT);
            word(out, *epoch);
            long(out, *next);
        }
        Record::Queue(record) => queue(record, out),
        Record::Message { message: stored, content: bytes } => {
            out.push(tag::MESSAGE);
            let at = out.len();
            word(out, 0);
            message(stored, out);
            let head = out.len() - start;
            if let Some(bytes) = bytes {
                let offset = u32::try_from(out.len() - at).expect("a message without its body is small");
                out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
                content(bytes, out);
            }
            return head;
        }
        Record::Leased { receipt, started, until, holder, consumer } => {
            out.push(tag::LEASED);
            long(out, receipt.seq.0);
            word(out, receipt.epoch);
            word(out, receipt.delivery);
            wall(out, *started);
            wall(out, *until);
            self::holder(out, holder);
            label(out, consumer.as_ref());
        }
        Record::Extended { seq, until } => {
            out.push(tag::EXTENDED);
            long(out, seq.0);
            wall(out, *until);
        }
        Record::Returned { seq, attempt: ended, due, at } => {
            out.push(tag::RETURNED);
            long(out, seq.0);
            option(out, ended.as_ref(), |out, ended| attempt(ended, out));
            option(out, *due, wall);
            wall(out, *at);
        }
        Record::Died { seq, attempt: ended, reason, at, kept_until, teller } => {
            out.push(tag::DIED);
            long(out, seq.0);
            option(out, ended.as_ref(), |out, ended| attempt(ended, out));
            out.push(reason_tag(*reason));
            wall(out, *at);
            wall(out, *kept_until);
            option(out, *teller, |out, teller| long(out, teller.0));
        }
        Record::Replayed { seq, place, at, expires } => {
            out.push(tag::REPLAYED);
            long(out, seq.0);
            long(out, *place);
            wall(out, *at);
            wall(out, *expires);
        }
        Record::Forgotten { seq } => {
            out.push(tag::FORGOTTEN);
            long(out, seq.0);
        }
        Record::Called { target, started } => called(target, *started, out),
    }
    out.len() - start
}

fn called(target: &Name, started: Wall, out: &mut Vec<u8>) {
    out.push(tag::CALLED);
    short(out, target.as_str());
    wall(out, started);
}

fn queue(record: &QueueRecord, out: &mut Vec<u8>) {
    out.push(tag::QUEUE);
    word(out, record.number.0);
    text(out, record.name.as_str());
    // Settings change rarely and grow with versions: JSON keeps them readable by both.
    let settings =
        serde_json::to_string(&record.settings).expect("settings have no map keys that JSON lacks");
    text(out, &settings);
    out.push(u8::from(record.paused));
    out.push(u8::from(record.dead_burst));
    out.push(u8::from(record.deleted));
    long(out, record.since);
    out.push(u8::try_from(record.replays.len()).expect("few replays are remembered"));
    for task in &record.replays {
        replay(task, out);
    }
}

/// In few bytes: the queues are written again whenever the segment with their last copy goes.
fn replay(task: &ReplayTask, out: &mut Vec<u8>) {
    word(out, task.number);
    match &task.wish.which {
        ReplayWhich::All => out.push(1),
        ReplayWhich::Filter(filter) => {
            out.push(2);
            text(out, &serde_json::to_string(filter).expect("a filter has no map keys that JSON lacks"));
        }
        ReplayWhich::These(seqs) => {
            out.push(3);
            word(out, u32::try_from(seqs.len()).expect("few messages are named"));
            for seq in seqs {
                long(out, seq.0);
            }
        }
    }
    option(out, task.wish.rate, |out, rate| {
        word(out, rate.events);
        duration(out, rate.per);
    });
    option(out, task.wish.ttl, duration);
    out.push(u8::from(task.wish.older));
    wall(out, task.created);
    option(out, task.finished, wall);
    out.push(match task.state {
        ReplayState::Running => 1,
        ReplayState::Done => 2,
        ReplayState::Cancelled => 3,
    });
    option(out, task.not_before, wall);
    for number in [task.from.0, task.through.0, task.before_place, task.selected, task.too_old, task.replayed]
    {
        long(out, number);
    }
}

/// In microseconds.
fn duration(out: &mut Vec<u8>, value: Duration) {
    long(out, u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
}

fn message(message: &Message, out: &mut Vec<u8>) {
    long(out, message.seq.0);
    word(out, message.queue.0);
    out.push(phase_tag(message.phase));
    long(out, message.place);
    word(out, message.size_bytes);
    out.push(criticality_tag(message.criticality));
    label(out, message.tenant.as_ref());
    label(out, message.group.as_ref());
    label(out, message.consumer.as_ref());
    wall(out, message.accepted);
    wall(out, message.first_due);
    wall(out, message.due);
    wall(out, message.expires);
    word(out, message.attempts);
    word(out, message.deliveries);
    word(out, message.deliveries_before);
    option(out, message.hand_out.as_ref(), hand_out);
    option(out, message.first_started, wall);
    option(out, message.finished, wall);
    option(out, message.dead_reason, |out, reason| out.push(reason_tag(reason)));
    option(out, message.key, |out, key| {
        out.extend_from_slice(&key.key.to_le_bytes());
        out.extend_from_slice(&key.payload.to_le_bytes());
    });
    option(out, message.callback.as_ref(), |out, callback| {
        text(out, &callback.wish.address);
        pairs(out, &callback.wish.context);
        option(out, callback.teller, |out, teller| long(out, teller.0));
    });
    option(out, message.result.as_ref(), |out, (content_type, size)| {
        text(out, content_type);
        long(out, *size);
    });
    word(out, u32::try_from(message.history.len()).expect("histories are bounded"));
    for ended in &message.history {
        attempt(ended, out);
    }
}

fn hand_out(out: &mut Vec<u8>, hand_out: &HandOut) {
    word(out, hand_out.epoch);
    wall(out, hand_out.started);
    wall(out, hand_out.until);
    holder(out, &hand_out.holder);
    option(out, hand_out.settled, |out, outcome| out.push(outcome_tag(outcome)));
}

fn attempt(attempt: &Attempt, out: &mut Vec<u8>) {
    word(out, attempt.delivery);
    holder(out, &attempt.holder);
    wall(out, attempt.started);
    long(out, attempt.micros);
    out.push(outcome_tag(attempt.outcome));
    option(out, attempt.failure.as_ref(), |out, failure| {
        text(out, &failure.kind);
        text(out, &failure.message);
        option(out, failure.http_status, |out, status| out.extend_from_slice(&status.to_le_bytes()));
    });
}

fn content(content: &Content, out: &mut Vec<u8>) {
    text(out, &content.content_type);
    pairs(out, &content.headers);
    out.extend_from_slice(&content.body);
}

fn pairs(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    word(out, u32::try_from(pairs.len()).expect("headers are bounded"));
    for (name, value) in pairs {
        text(out, name);
        text(out, value);
    }
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn long(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn wall(out: &mut Vec<u8>, value: Wall) {
    out.extend_from_slice(&value.0.to_le_bytes());
}

fn text(out: &mut Vec<u8>, value: &str) {
    word(out, u32::try_from(value.len()).expect("texts are bounded"));
    out.extend_from_slice(value.as_bytes());
}

/// A label, or a length of zero for none: a label is never empty.
fn label(out: &mut Vec<u8>, value: Option<&Label>) {
    short(out, value.map_or("", Label::as_str));
}

/// The target that is called, or a length of zero for a worker: a name is never empty.
fn holder(out: &mut Vec<u8>, holder: &Holder) {
    short(out, holder.target().map_or("", Name::as_str));
}

fn short(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("labels and names are bounded"));
    out.extend_from_slice(text.as_bytes());
}

fn option<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(out, value);
    }
}

fn phase_tag(phase: Phase) -> u8 {
    match phase {
        Phase::Delayed => 1,
        Phase::Ready => 2,
        Phase::Leased => 3,
        Phase::Backoff => 4,
        Phase::Succeeded => 5,
        Phase::Dead => 6,
        Phase::Expired => 7,
        Phase::Cancelled => 8,
        Phase::Dropped => 9,
    }
}

fn criticality_tag(criticality: Criticality) -> u8 {
    match criticality {
        Criticality::CriticalPlus => 1,
        Criticality::Critical => 2,
        Criticality::SheddablePlus => 3,
        Criticality::Sheddable => 4,
    }
}

fn outcome_tag(outcome: AttemptOutcome) -> u8 {
    match outcome {
        AttemptOutcome::Succeeded => 1,
        AttemptOutcome::Failed => 2,
        AttemptOutcome::Dead => 3,
        AttemptOutcome::Released => 4,
        AttemptOutcome::Throttled => 5,
        AttemptOutcome::TimedOut => 6,
        AttemptOutcome::LeaseExpired => 7,
        AttemptOutcome::Interrupted => 8,
        AttemptOutcome::ProbeFailed => 9,
    }
}

fn reason_tag(reason: DeadReason) -> u8 {
    match reason {
        DeadReason::AttemptsExhausted => 1,
        DeadReason::DeliveriesExhausted => 2,
        DeadReason::Rejected => 3,
        DeadReason::Expired => 4,
    }
}
