//! How many bytes a record takes in the log, known before it is encoded.
//!
//! Owns a bound that is never too small, and not much too large. Must never look at a body: this is asked for every record
//! of every group.

use crate::codec::encode;
use millpond_core::identity::Seq;
use millpond_core::message::{Attempt, Content, Holder, Message};
use millpond_core::name::Label;
use millpond_core::record::Record;
use millpond_journal::RECORD_HEADER_BYTES;

/// All fields of fixed width of any record but a queue's, lengths of texts included.
const FIXED_BYTES: u64 = 264;
/// The same of one attempt.
const ATTEMPT_BYTES: u64 = 40;
/// When and why a message died.
const DEATH_BYTES: u64 = 9;
/// Two lengths.
const HEADER_BYTES: u64 = 8;

/// The most bytes that `record` takes in the log, its header there included.
pub(crate) fn record_bytes(record: &Record) -> u64 {
    let varying = match record {
        Record::Queue(_) => {
            // Rare, and mostly settings.
            let mut encoded = Vec::new();
            encode(record, &mut encoded);
            return u64::from(RECORD_HEADER_BYTES) + encoded.len() as u64;
        }
        Record::Message { message, content } => {
            message_bytes(message) + content.as_deref().map_or(0, content_bytes)
        }
        Record::Returned { attempt, .. } | Record::Died { attempt, .. } => {
            attempt.as_ref().map_or(0, attempt_bytes)
        }
        Record::Leased { consumer, holder, .. } => label_bytes(consumer.as_ref()) + holder_bytes(holder),
        Record::Called { target, .. } => target.as_str().len() as u64,
        Record::Boot { .. }
        | Record::Extended { .. }
        | Record::Replayed { .. }
        | Record::Forgotten { .. } => 0,
    };
    u64::from(RECORD_HEADER_BYTES) + FIXED_BYTES + varying
}

/// By how many bytes, at most, a message's full copy is longer from this record on; `None` if this is a copy itself, or
/// the difference is of a fixed size, and passes.
pub(crate) fn growth_bytes(record: &Record) -> Option<(Seq, u64)> {
    match record {
        Record::Returned { seq, attempt, .. } => Some((*seq, attempt.as_ref().map(attempt_bytes)?)),
        Record::Died { seq, attempt, .. } => {
            Some((*seq, DEATH_BYTES + attempt.as_ref().map_or(0, attempt_bytes)))
        }
        _ => None,
    }
}

fn message_bytes(message: &Message) -> u64 {
    let labels = [&message.tenant, &message.group, &message.consumer];
    let labels: u64 = labels.into_iter().map(|label| label_bytes(label.as_ref())).sum();
    let result = message.result.as_ref().map_or(0, |(content_type, _)| content_type.len() as u64);
    let hand_out = message.hand_out.as_ref().map_or(0, |hand_out| holder_bytes(&hand_out.holder));
    let callback = message
        .callback
        .as_ref()
        .map_or(0, |callback| callback.wish.size_bytes() + callback.wish.context.len() as u64 * HEADER_BYTES);
    labels + result + callback + hand_out + message.history.iter().map(attempt_bytes).sum::<u64>()
}

fn content_bytes(content: &Content) -> u64 {
    content.size_bytes() + content.headers.len() as u64 * HEADER_BYTES
}

fn attempt_bytes(attempt: &Attempt) -> u64 {
    let texts = attempt.failure.as_ref().map_or(0, |failure| failure.kind.len() + failure.message.len());
    ATTEMPT_BYTES + texts as u64 + holder_bytes(&attempt.holder)
}

fn holder_bytes(holder: &Holder) -> u64 {
    holder.target().map_or(0, |target| target.as_str().len() as u64)
}

fn label_bytes(label: Option<&Label>) -> u64 {
    label.map_or(0, |label| label.as_str().len() as u64)
}
