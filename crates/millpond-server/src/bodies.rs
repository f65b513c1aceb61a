//! Bodies of requests: reading them within bounds.
//!
//! Owns the room that all of them share while they arrive, and until what is enqueued is in the log. Must never read a body that its announced length already
//! rules out.

use crate::errors::{Refusal, overloaded, refuse};
use crate::limits::Limits;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use millpond_api::problem::Slug;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most bytes and most time spent on reading what is left of a body that was refused, so that the answer
/// reaches a client that is still sending.
const DISCARD_BYTES_MAX: u64 = 8 << 20;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(2);
/// Room for bodies is counted in these.
const ROOM_UNIT_BYTES: u64 = 4 << 10;
/// Bodies up to this size are copied out of the connection's buffer, which they would otherwise keep alive for
/// as long as the message waits in memory.
const COPY_BYTES_MAX: usize = 16 << 10;

/// The room that a body takes; free again when this is dropped.
pub(crate) type Room<'bodies> = Option<SemaphorePermit<'bodies>>;

/// The room for bodies that are arriving, or wait for the log.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// One permit for each [`ROOM_UNIT_BYTES`].
    room: Semaphore,
    timeout: Duration,
}

impl Bodies {
    /// Room for `limits.arriving_bytes`, and in any case for two of the largest bodies.
    pub(crate) fn new(limits: &Limits, max_body_bytes: u64) -> Self {
        let largest = limits.batch_bytes.max(max_body_bytes);
        let bytes = limits.arriving_bytes.max(largest.saturating_mul(2));
        let units = usize::try_from(bytes / ROOM_UNIT_BYTES).unwrap_or(usize::MAX).saturating_add(2);
        Self { room: Semaphore::new(units.min(Semaphore::MAX_PERMITS)), timeout: limits.body_timeout }
    }

    /// Reads a body of at most `limit_bytes`, if it arrives in time and there is room for it.
    pub(crate) async fn read(&self, body: Body, limit_bytes: u64) -> Result<Bytes, Refusal> {
        self.read_keeping_room(body, limit_bytes).await.map(|(bytes, _)| bytes)
    }

    /// The same; the room stays taken for as long as the caller keeps it: what is enqueued lies in memory until it is
    /// in the log.
    pub(crate) async fn read_keeping_room(
        &self,
        body: Body,
        limit_bytes: u64,
    ) -> Result<(Bytes, Room<'_>), Refusal> {
        let announced = body.size_hint().lower();
        if announced > limit_bytes {
            discard(body);
            return Err(too_large(limit_bytes, Some(announced)));
        }
        // A body that is here already is read without a timer.
        tokio::time::timeout(self.timeout, collect(&self.room, body, limit_bytes)).await.unwrap_or_else(
            |_| {
                let waited = self.timeout.as_secs();
                let detail =
                    format!("the body did not arrive within {waited}s; send it faster, or less at once");
                Err(refuse(Slug::RequestTimeout, detail))
            },
        )
    }
}

/// Takes room for a body of `length` bytes beyond what `taken` covers. What counts is what has come, not what was
/// announced, so that whoever only announces takes nothing from others.
fn take_room<'a>(
    room: &'a Semaphore,
    taken: &mut Option<SemaphorePermit<'a>>,
    length: u64,
) -> Result<(), Refusal> {
    let units = usize::try_from(length.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(usize::MAX);
    let more = units.saturating_sub(taken.as_ref().map_or(0, SemaphorePermit::num_permits));
    let permit = room.try_acquire_many(u32::try_from(more).unwrap_or(u32::MAX)).map_err(|_| {
        overloaded("more bodies are arriving, or wait for the disk, than the server has room for")
    })?;
    match taken {
        Some(taken) => taken.merge(permit),
        None => *taken = Some(permit),
    }
    Ok(())
}

async fn collect(room: &Semaphore, mut body: Body, limit_bytes: u64) -> Result<(Bytes, Room<'_>), Refusal> {
    let mut taken = None;
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let detail = format!("the body broke off after {length} bytes: {error}; send it again whole");
            refuse(Slug::Malformed, detail)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        if length > limit_bytes {
            discard(body);
            return Err(too_large(limit_bytes, None));
        }
        if let Err(refusal) = take_room(room, &mut taken, length) {
            discard(body);
            return Err(refusal);
        }
        match first.take() {
            None if joined.is_empty() => first = Some(data),
            None => joined.extend_from_slice(&data),
            Some(before) => {
                let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
                joined.reserve(before.len() + data.len() + announced);
                joined.extend_from_slice(&before);
                joined.extend_from_slice(&data);
            }
        }
    }
    let bytes = match first {
        Some(only) if only.len() <= COPY_BYTES_MAX => Bytes::copy_from_slice(&only),
        Some(only) => only,
        None => joined.freeze(),
    };
    Ok((bytes, taken))
}

fn too_large(limit_bytes: u64, announced: Option<u64>) -> Refusal {
    let size = announced.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
    refuse(
        Slug::TooLarge,
        format!(
            "the body{size} is larger than the {limit_bytes} bytes that are taken here; store what is large elsewhere and send a reference, or raise max_body"
        ),
    )
}

/// Reads on, within bounds and aside, so that a client in the middle of sending gets to see the answer.
pub(crate) fn discard(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(DISCARD_TIME_MAX, async move {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::{Bodies, Body, take_room};
    use crate::limits::Limits;
    use tokio::sync::Semaphore;

    const LARGEST: u64 = 64 << 10;

    fn body() -> Body {
        Body::from(vec![0; 60 << 10])
    }

    #[tokio::test]
    async fn a_body_takes_room_from_others_until_it_is_let_go() {
        let limits = Limits { arriving_bytes: 0, batch_bytes: LARGEST, ..Limits::default() };
        let bodies = Bodies::new(&limits, LARGEST);
        let first = bodies.read_keeping_room(body(), LARGEST).await.unwrap();
        let second = bodies.read_keeping_room(body(), LARGEST).await.unwrap();
        assert!(bodies.read(body(), LARGEST).await.is_err(), "there is room for two of the largest");
        drop(first);
        bodies.read(body(), LARGEST).await.unwrap();
        bodies.read(body(), LARGEST).await.expect("who only reads lets it go at once");
        drop(second);
    }

    #[test]
    fn room_is_taken_as_a_body_grows_and_given_back_with_it() {
        let room = Semaphore::new(3);
        let mut taken = None;
        for (length, left) in [(1, 2), (4_096, 2), (4_097, 1), (12_288, 0)] {
            take_room(&room, &mut taken, length).unwrap();
            assert_eq!(room.available_permits(), left, "{length}");
        }
        let refusal = take_room(&room, &mut taken, 12_289).unwrap_err();
        assert!(refusal.0.status == 503 && refusal.0.retry_after_seconds.is_some(), "{refusal:?}");
        drop(taken);
        assert_eq!(room.available_permits(), 3);
    }
}
