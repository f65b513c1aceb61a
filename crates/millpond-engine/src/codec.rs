//! Records as bytes, and back.
//!
//! Owns the encoding inside the log's frames (`docs/formats/journal.md` draws it): little-endian, fixed width,
//! lengths before what varies. Must never panic or allocate without bound on bytes it did not write.

mod read;
mod write;

use bytes::Bytes;
use millpond_core::message::Content;
use millpond_core::record::Record;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end before the record does.
    #[error("the record ends too early")]
    Truncated,
    /// A tag that this version does not know.
    #[error("the record holds {what} {value}, which this version does not know")]
    Unknown {
        /// What kind of tag.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// A text is not UTF-8, a name is not a name, settings are not settings.
    #[error("the record holds a damaged {0}")]
    Damaged(&'static str),
    /// Bytes follow the end of the record.
    #[error("bytes follow the end of the record")]
    Trailing,
}

/// Appends `record` to `out`. Returns the length of its head: everything but the content of a message, which comes
/// last.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> usize {
    write::record(record, out)
}

/// Reads a record from its head. The content of a message is not in it: see [`decode_content`].
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    read::record(bytes)
}

/// Reads the content of an encoded [`Record::Message`] without copying its body. `None` if it has none.
pub fn decode_content(bytes: &Bytes) -> Result<Option<Content>, DecodeError> {
    read::content(bytes)
}

/// Tags of records. A tag is never used for anything else in a later version.
pub(crate) mod tag {
    pub(crate) const BOOT: u8 = 1;
    pub(crate) const QUEUE: u8 = 2;
    pub(crate) const MESSAGE: u8 = 3;
    pub(crate) const LEASED: u8 = 4;
    pub(crate) const EXTENDED: u8 = 5;
    pub(crate) const RETURNED: u8 = 6;
    pub(crate) const DIED: u8 = 7;
    pub(crate) const REPLAYED: u8 = 8;
    pub(crate) const FORGOTTEN: u8 = 9;
    pub(crate) const CALLED: u8 = 10;
}

#[cfg(test)]
mod tests {
    use super::{decode, decode_content, encode};
    use crate::size::record_bytes;
    use bytes::Bytes;
    use millpond_core::identity::{Receipt, Seq};
    use millpond_core::message::{
        Attempt, AttemptOutcome, Callback, CallbackWish, Content, Criticality, DeadReason, Failure, HandOut,
        Holder, IdempotencyKey, Message, Phase, QueueNumber,
    };
    use millpond_core::name::{Label, Name};
    use millpond_core::rate::Rate;
    use millpond_core::record::{QueueRecord, Record};
    use millpond_core::replay::{ReplayFilter, ReplayState, ReplayTask, ReplayWhich, ReplayWish};
    use millpond_core::settings::QueueSettings;
    use millpond_core::time::Wall;
    use std::sync::Arc;
    use std::time::Duration;

    fn attempt(outcome: AttemptOutcome, failure: Option<Failure>) -> Attempt {
        let holder = if failure.is_some() { Holder::Push(Name::new("t").unwrap()) } else { Holder::Worker };
        Attempt { delivery: 3, holder, started: Wall(11), micros: 12, outcome, failure }
    }

    fn full_message() -> Message {
        Message {
            seq: Seq(77),
            queue: QueueNumber(2),
            phase: Phase::Leased,
            place: 99,
            size_bytes: 1234,
            criticality: Criticality::SheddablePlus,
            tenant: Some(Label::new("größe").unwrap()),
            group: Some(Label::new("g").unwrap()),
            consumer: Some(Label::new(&"c".repeat(Label::LENGTH_MAX)).unwrap()),
            accepted: Wall(1),
            first_due: Wall(2),
            due: Wall(3),
            expires: Wall(4),
            attempts: 5,
            deliveries: 6,
            deliveries_before: 7,
            hand_out: Some(HandOut {
                epoch: 8,
                started: Wall(9),
                until: Wall(10),
                holder: Holder::Push(Name::new(&"n".repeat(Name::LENGTH_MAX)).unwrap()),
                settled: Some(AttemptOutcome::Throttled),
            }),
            first_started: Some(Wall(-5)),
            finished: Some(Wall(i64::MAX)),
            dead_reason: Some(DeadReason::Expired),
            key: Some(IdempotencyKey { key: u128::MAX, payload: 1 }),
            callback: Some(Callback {
                wish: Arc::new(CallbackWish {
                    address: "https://größe.example/?a=b".into(),
                    context: vec![("traceparent".into(), "00-1".into()), ("x".into(), String::new())],
                }),
                teller: Some(Seq(78)),
            }),
            result: Some(("text/plain".into(), 5)),
            history: AttemptOutcome::ALL
                .into_iter()
                .map(|outcome| attempt(outcome, Some(Failure::new("status", "grün\0", Some(503)))))
                .collect(),
        }
    }

    fn bare_message() -> Message {
        Message {
            criticality: Criticality::Critical,
            tenant: None,
            group: None,
            consumer: None,
            hand_out: None,
            first_started: None,
            finished: None,
            dead_reason: None,
            key: None,
            callback: None,
            result: None,
            history: Vec::new(),
            ..full_message()
        }
    }

    fn replay() -> ReplayTask {
        let filter = ReplayFilter {
            reason: Some(DeadReason::Rejected),
            error: Some("größe".to_owned()),
            since: Some(Wall(-1)),
            until: None,
            tenant: Some(Label::new("größe").unwrap()),
        };
        ReplayTask {
            number: 3,
            wish: ReplayWish {
                which: ReplayWhich::Filter(filter),
                rate: Some(Rate { events: 5, per: Duration::from_mins(1) }),
                ttl: Some(Duration::from_micros(1)),
                older: true,
            },
            created: Wall(1),
            finished: Some(Wall(2)),
            state: ReplayState::Cancelled,
            not_before: Some(Wall(i64::MIN)),
            from: Seq(4),
            through: Seq(u64::MAX),
            before_place: 6,
            selected: 7,
            too_old: 8,
            replayed: 9,
        }
    }

    fn records() -> Vec<Record> {
        let mut records = vec![
            Record::Boot { epoch: 3, next: 1 << 40 },
            Record::Queue(Box::new(QueueRecord {
                number: QueueNumber(1),
                name: Name::new("jobs").unwrap(),
                settings: QueueSettings { target: Some(Name::new("t").unwrap()), ..QueueSettings::default() },
                paused: true,
                dead_burst: true,
                deleted: false,
                since: 1 << 33,
                replays: vec![
                    replay(),
                    ReplayTask {
                        wish: ReplayWish::plain(ReplayWhich::These(vec![Seq(1), Seq(1 << 40)])),
                        finished: None,
                        state: ReplayState::Running,
                        not_before: None,
                        ..replay()
                    },
                    ReplayTask {
                        wish: ReplayWish::plain(ReplayWhich::All),
                        state: ReplayState::Done,
                        ..replay()
                    },
                ],
            })),
            Record::Leased {
                receipt: Receipt { seq: Seq(1), epoch: 2, delivery: 3 },
                started: Wall(4),
                until: Wall(5),
                holder: Holder::Worker,
                consumer: Some(Label::new("w").unwrap()),
            },
            Record::Extended { seq: Seq(1), until: Wall(5) },
            Record::Returned { seq: Seq(1), attempt: None, due: None, at: Wall(8) },
            Record::Returned {
                seq: Seq(1),
                attempt: Some(attempt(AttemptOutcome::Failed, None)),
                due: Some(Wall(9)),
                at: Wall(8),
            },
            Record::Died {
                seq: Seq(1),
                attempt: Some(attempt(AttemptOutcome::Dead, Some(Failure::new("worker", "no", None)))),
                reason: DeadReason::Rejected,
                at: Wall(7),
                kept_until: Wall(70),
                teller: Some(Seq(9)),
            },
            Record::Replayed { seq: Seq(1), place: 8, at: Wall(9), expires: Wall(10) },
            Record::Forgotten { seq: Seq(1) },
            Record::Called { target: Name::new("t").unwrap(), started: Wall(-6) },
        ];
        for message in [full_message(), bare_message()] {
            records.push(Record::Message { message: Box::new(message), content: None });
        }
        records
    }

    #[test]
    fn what_a_record_takes_is_known_beforehand_and_is_never_more() {
        let content = Content {
            content_type: "application/json".into(),
            headers: (0..50).map(|header| (format!("h{header}"), String::new())).collect(),
            body: Bytes::from(vec![1; 3000]),
        };
        let content = Some(Arc::new(content));
        let with_content = [full_message(), bare_message()]
            .map(|message| Record::Message { message: Box::new(message), content: content.clone() });
        for record in records().into_iter().chain(with_content) {
            let mut bytes = Vec::new();
            encode(&record, &mut bytes);
            let (expected, takes) = (record_bytes(&record), bytes.len() as u64 + 20);
            assert!((takes..takes + 256).contains(&expected), "{expected} for {takes}: {record:?}");
        }
    }

    #[test]
    fn every_record_comes_back_as_it_was() {
        for record in records() {
            let mut bytes = Vec::new();
            assert_eq!(encode(&record, &mut bytes), bytes.len());
            assert_eq!(decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn no_record_is_read_from_a_part_of_its_bytes_nor_from_more() {
        for record in records() {
            let mut bytes = Vec::new();
            encode(&record, &mut bytes);
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_err(), "{record:?} cut at {end}");
            }
            bytes.push(0);
            assert!(decode(&bytes).is_err(), "{record:?} with a byte more");
        }
    }

    #[test]
    fn a_content_comes_back_without_its_message() {
        let content = Content {
            content_type: "application/json".into(),
            headers: vec![("traceparent".into(), "00-1".into()), ("x".into(), String::new())],
            body: Bytes::from_static(b"{\"a\": 1}"),
        };
        let record =
            Record::Message { message: Box::new(full_message()), content: Some(Arc::new(content.clone())) };
        let mut bytes = Vec::new();
        let head = encode(&record, &mut bytes);
        assert_eq!(decode_content(&Bytes::from(bytes.clone())), Ok(Some(content)));
        for length in (0..bytes.len()).filter(|&length| length != head) {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes are not the head");
        }
        let Ok(Record::Message { message, content: None }) = decode(&bytes[..head]) else {
            panic!("not a message")
        };
        assert_eq!(*message, full_message());
    }
}
