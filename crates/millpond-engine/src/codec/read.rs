//! From bytes to record.
//!
//! Owns the checks. Must never trust a length before the bytes are there.

use super::{DecodeError, tag};
use bytes::{Buf as _, Bytes, TryGetError};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{
    Attempt, AttemptOutcome, Callback, CallbackWish, Content, Criticality, DeadReason, Failure, HandOut,
    Holder, IdempotencyKey, Message, Phase, QueueNumber,
};
use millpond_core::name::{Label, Name};
use millpond_core::rate::Rate;
use millpond_core::record::{QueueRecord, Record};
use millpond_core::replay::{ReplayState, ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::time::Wall;
use std::sync::Arc;
use std::time::Duration;

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> Self {
        Self::Truncated
    }
}

type Decoded<T> = Result<T, DecodeError>;

pub(super) fn record(bytes: &[u8]) -> Decoded<Record> {
    let mut input = bytes;
    let input = &mut input;
    let record = match input.try_get_u8()? {
        tag::BOOT => Record::Boot { epoch: input.try_get_u32_le()?, next: input.try_get_u64_le()? },
        tag::QUEUE => Record::Queue(Box::new(queue(input)?)),
        tag::MESSAGE => return message_record(input),
        tag::LEASED => Record::Leased {
            receipt: Receipt {
                seq: seq(input)?,
                epoch: input.try_get_u32_le()?,
                delivery: input.try_get_u32_le()?,
            },
            started: wall(input)?,
            until: wall(input)?,
            holder: holder(input)?,
            consumer: label(input)?,
        },
        tag::EXTENDED => Record::Extended { seq: seq(input)?, until: wall(input)? },
        tag::RETURNED => Record::Returned {
            seq: seq(input)?,
            attempt: option(input, attempt)?,
            due: option(input, wall)?,
            at: wall(input)?,
        },
        tag::DIED => Record::Died {
            seq: seq(input)?,
            attempt: option(input, attempt)?,
            reason: reason(input)?,
            at: wall(input)?,
            kept_until: wall(input)?,
            teller: option(input, seq)?,
        },
        tag::REPLAYED => Record::Replayed {
            seq: seq(input)?,
            place: input.try_get_u64_le()?,
            at: wall(input)?,
            expires: wall(input)?,
        },
        tag::FORGOTTEN => Record::Forgotten { seq: seq(input)? },
        tag::CALLED => Record::Called {
            target: target(input)?.ok_or(DecodeError::Damaged("name of a target"))?,
            started: wall(input)?,
        },
        other => return Err(DecodeError::Unknown { what: "a record of kind", value: other.into() }),
    };
    if input.is_empty() { Ok(record) } else { Err(DecodeError::Trailing) }
}

fn message_record(input: &mut &[u8]) -> Decoded<Record> {
    let whole = *input;
    let content_at = input.try_get_u32_le()? as usize;
    let message = Box::new(message(input)?);
    let read = whole.len() - input.len();
    // The head ends where the content, if there is one, begins.
    if !input.is_empty() || (content_at != 0 && content_at != read) {
        return Err(DecodeError::Trailing);
    }
    Ok(Record::Message { message, content: None })
}

pub(super) fn content(bytes: &Bytes) -> Decoded<Option<Content>> {
    let mut head = &bytes[..];
    if head.try_get_u8()? != tag::MESSAGE {
        return Err(DecodeError::Damaged("content"));
    }
    let offset = head.try_get_u32_le()? as usize;
    if offset == 0 {
        return Ok(None);
    }
    let mut rest = bytes.get(1 + offset..).ok_or(DecodeError::Truncated)?;
    let (content_type, headers) = content_head(&mut rest)?;
    let body = bytes.slice(bytes.len() - rest.len()..);
    Ok(Some(Content { content_type, headers, body }))
}

type ContentHead = (String, Vec<(String, String)>);

fn content_head(input: &mut &[u8]) -> Decoded<ContentHead> {
    Ok((text(input)?, pairs(input)?))
}

fn pairs(input: &mut &[u8]) -> Decoded<Vec<(String, String)>> {
    let count = input.try_get_u32_le()?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push((text(input)?, text(input)?));
    }
    Ok(pairs)
}

fn callback(input: &mut &[u8]) -> Decoded<Callback> {
    let wish = CallbackWish { address: text(input)?, context: pairs(input)? };
    Ok(Callback { wish: Arc::new(wish), teller: option(input, seq)? })
}

fn queue(input: &mut &[u8]) -> Decoded<QueueRecord> {
    Ok(QueueRecord {
        number: QueueNumber(input.try_get_u32_le()?),
        name: Name::new(&text(input)?).map_err(|_| DecodeError::Damaged("queue name"))?,
        settings: serde_json::from_str(&text(input)?)
            .map_err(|_| DecodeError::Damaged("queue's settings"))?,
        paused: flag(input)?,
        dead_burst: flag(input)?,
        deleted: flag(input)?,
        since: input.try_get_u64_le()?,
        replays: {
            let count = input.try_get_u8()?;
            let mut replays = Vec::new();
            for _ in 0..count {
                replays.push(replay(input)?);
            }
            replays
        },
    })
}

fn replay(input: &mut &[u8]) -> Decoded<ReplayTask> {
    Ok(ReplayTask {
        number: input.try_get_u32_le()?,
        wish: ReplayWish {
            which: which(input)?,
            rate: option(input, |input| Ok(Rate { events: input.try_get_u32_le()?, per: duration(input)? }))?,
            ttl: option(input, duration)?,
            older: flag(input)?,
        },
        created: wall(input)?,
        finished: option(input, wall)?,
        state: match input.try_get_u8()? {
            1 => ReplayState::Running,
            2 => ReplayState::Done,
            3 => ReplayState::Cancelled,
            other => {
                return Err(DecodeError::Unknown { what: "a state of a replay of", value: other.into() });
            }
        },
        not_before: option(input, wall)?,
        from: seq(input)?,
        through: seq(input)?,
        before_place: input.try_get_u64_le()?,
        selected: input.try_get_u64_le()?,
        too_old: input.try_get_u64_le()?,
        replayed: input.try_get_u64_le()?,
    })
}

fn which(input: &mut &[u8]) -> Decoded<ReplayWhich> {
    Ok(match input.try_get_u8()? {
        1 => ReplayWhich::All,
        2 => ReplayWhich::Filter(
            serde_json::from_str(&text(input)?).map_err(|_| DecodeError::Damaged("filter of a replay"))?,
        ),
        3 => {
            let count = input.try_get_u32_le()?;
            let mut seqs = Vec::new();
            for _ in 0..count {
                seqs.push(seq(input)?);
            }
            ReplayWhich::These(seqs)
        }
        other => return Err(DecodeError::Unknown { what: "a selection of", value: other.into() }),
    })
}

fn duration(input: &mut &[u8]) -> Decoded<Duration> {
    Ok(Duration::from_micros(input.try_get_u64_le()?))
}

fn message(input: &mut &[u8]) -> Decoded<Message> {
    Ok(Message {
        seq: seq(input)?,
        queue: QueueNumber(input.try_get_u32_le()?),
        phase: phase(input)?,
        place: input.try_get_u64_le()?,
        size_bytes: input.try_get_u32_le()?,
        criticality: criticality(input)?,
        tenant: label(input)?,
        group: label(input)?,
        consumer: label(input)?,
        accepted: wall(input)?,
        first_due: wall(input)?,
        due: wall(input)?,
        expires: wall(input)?,
        attempts: input.try_get_u32_le()?,
        deliveries: input.try_get_u32_le()?,
        deliveries_before: input.try_get_u32_le()?,
        hand_out: option(input, hand_out)?,
        first_started: option(input, wall)?,
        finished: option(input, wall)?,
        dead_reason: option(input, reason)?,
        key: option(input, |input| {
            Ok(IdempotencyKey { key: input.try_get_u128_le()?, payload: input.try_get_u128_le()? })
        })?,
        callback: option(input, callback)?,
        result: option(input, |input| Ok((text(input)?, input.try_get_u64_le()?)))?,
        history: {
            let count = input.try_get_u32_le()?;
            let mut history = Vec::new();
            for _ in 0..count {
                history.push(attempt(input)?);
            }
            history
        },
    })
}

fn hand_out(input: &mut &[u8]) -> Decoded<HandOut> {
    Ok(HandOut {
        epoch: input.try_get_u32_le()?,
        started: wall(input)?,
        until: wall(input)?,
        holder: holder(input)?,
        settled: option(input, outcome)?,
    })
}

fn attempt(input: &mut &[u8]) -> Decoded<Attempt> {
    Ok(Attempt {
        delivery: input.try_get_u32_le()?,
        holder: holder(input)?,
        started: wall(input)?,
        micros: input.try_get_u64_le()?,
        outcome: outcome(input)?,
        failure: option(input, |input| {
            Ok(Failure {
                kind: text(input)?,
                message: text(input)?,
                http_status: option(input, |input| Ok(input.try_get_u16_le()?))?,
            })
        })?,
    })
}

fn seq(input: &mut &[u8]) -> Decoded<Seq> {
    Ok(Seq(input.try_get_u64_le()?))
}

fn wall(input: &mut &[u8]) -> Decoded<Wall> {
    Ok(Wall(input.try_get_i64_le()?))
}

fn text(input: &mut &[u8]) -> Decoded<String> {
    let length = input.try_get_u32_le()? as usize;
    let bytes = input.get(..length).ok_or(DecodeError::Truncated)?;
    input.advance(length);
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Damaged("text"))
}

fn label(input: &mut &[u8]) -> Decoded<Option<Label>> {
    short(input, "label", |text| Label::new(text).ok())
}

fn holder(input: &mut &[u8]) -> Decoded<Holder> {
    Ok(target(input)?.map_or(Holder::Worker, Holder::Push))
}

fn target(input: &mut &[u8]) -> Decoded<Option<Name>> {
    short(input, "name of a target", |text| Name::new(text).ok())
}

/// A short text, made into what it stands for; `None` if it is empty.
fn short<T>(
    input: &mut &[u8],
    what: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Decoded<Option<T>> {
    let length = usize::from(input.try_get_u8()?);
    if length == 0 {
        return Ok(None);
    }
    let bytes = input.get(..length).ok_or(DecodeError::Truncated)?;
    input.advance(length);
    let made = std::str::from_utf8(bytes).ok().and_then(read);
    made.map(Some).ok_or(DecodeError::Damaged(what))
}

fn criticality(input: &mut &[u8]) -> Decoded<Criticality> {
    let value = input.try_get_u8()?;
    // The tags count along Criticality::ALL, from 1.
    let place = usize::from(value).checked_sub(1);
    place
        .and_then(|place| Criticality::ALL.get(place).copied())
        .ok_or_else(|| DecodeError::Unknown { what: "a criticality of", value: value.into() })
}

fn flag(input: &mut &[u8]) -> Decoded<bool> {
    match input.try_get_u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::Unknown { what: "a flag of", value: other.into() }),
    }
}

fn option<T>(input: &mut &[u8], read: impl FnOnce(&mut &[u8]) -> Decoded<T>) -> Decoded<Option<T>> {
    if flag(input)? { read(input).map(Some) } else { Ok(None) }
}

fn phase(input: &mut &[u8]) -> Decoded<Phase> {
    Ok(match input.try_get_u8()? {
        1 => Phase::Delayed,
        2 => Phase::Ready,
        3 => Phase::Leased,
        4 => Phase::Backoff,
        5 => Phase::Succeeded,
        6 => Phase::Dead,
        7 => Phase::Expired,
        8 => Phase::Cancelled,
        9 => Phase::Dropped,
        other => return Err(DecodeError::Unknown { what: "a phase of", value: other.into() }),
    })
}

fn outcome(input: &mut &[u8]) -> Decoded<AttemptOutcome> {
    let value = input.try_get_u8()?;
    // The tags count along AttemptOutcome::ALL, from 1.
    let place = usize::from(value).checked_sub(1);
    place
        .and_then(|place| AttemptOutcome::ALL.get(place).copied())
        .ok_or_else(|| DecodeError::Unknown { what: "an outcome of", value: value.into() })
}

fn reason(input: &mut &[u8]) -> Decoded<DeadReason> {
    Ok(match input.try_get_u8()? {
        1 => DeadReason::AttemptsExhausted,
        2 => DeadReason::DeliveriesExhausted,
        3 => DeadReason::Rejected,
        4 => DeadReason::Expired,
        other => return Err(DecodeError::Unknown { what: "a reason of", value: other.into() }),
    })
}
