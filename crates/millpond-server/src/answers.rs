//! The targets' own answers, for the callers that wait for them.
//!
//! Owns who waits for which message, and the answers until they are taken. Must never keep an answer that nobody waits
//! for, nor anything of a caller that has left.

use crate::headers;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};
use millpond_core::identity::Seq;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most answers, and bytes in them, that are kept for callers who are just about to learn their message's number.
const EARLY_MAX: usize = 1_024;
const EARLY_BYTES_MAX: usize = 16 << 20;

/// What a target answered, in full.
#[derive(Debug, Clone)]
pub(crate) struct TargetAnswer {
    /// Which hand-out it ended.
    pub(crate) delivery: u32,
    /// Its status.
    pub(crate) status: StatusCode,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

/// Who waits, and what has come for them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next caller.
    next: u64,
    /// Callers whose message has no number yet, so that nothing can be kept under it.
    entering: BTreeSet<u64>,
    /// Answers that may be for one of them, each with `next` as it was then: one for each call that ended meanwhile.
    early: VecDeque<(u64, Seq, TargetAnswer)>,
    early_bytes: usize,
    slots: HashMap<Seq, Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    callers: usize,
    answer: Option<TargetAnswer>,
}

impl State {
    /// Forgets early answers that came before every caller that is still entering, and those beyond the bounds.
    fn forget_early(&mut self) {
        while let Some((next, _, answer)) = self.early.front() {
            let is_needed = self.entering.first().is_some_and(|first| first < next);
            if is_needed && self.early.len() <= EARLY_MAX && self.early_bytes <= EARLY_BYTES_MAX {
                return;
            }
            self.early_bytes -= answer.body.len();
            self.early.pop_front();
        }
        if self.slots.is_empty() && self.entering.is_empty() {
            // After a flood of callers, nothing stays.
            (self.early, self.slots) = (VecDeque::new(), HashMap::new());
        }
    }
}

impl Answers {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing inside can be left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is about to enqueue a message and will wait for its answer.
    pub(crate) fn enter(&self) -> Entering<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.entering.insert(number);
        Entering { answers: self, number }
    }

    /// Whether somebody may wait for this message's answer.
    pub(crate) fn wants(&self, seq: Seq) -> bool {
        let state = self.state();
        !state.entering.is_empty() || state.slots.contains_key(&seq)
    }

    /// Keeps an answer if somebody may wait for it.
    pub(crate) fn put(&self, seq: Seq, answer: TargetAnswer) {
        let mut state = self.state();
        if let Some(slot) = state.slots.get_mut(&seq) {
            slot.answer = Some(answer);
        } else if !state.entering.is_empty() {
            state.early_bytes += answer.body.len();
            let next = state.next;
            state.early.push_back((next, seq, answer));
            state.forget_early();
        }
    }

    /// How many callers wait.
    pub(crate) fn callers(&self) -> usize {
        let state = self.state();
        state.entering.len() + state.slots.values().map(|slot| slot.callers).sum::<usize>()
    }
}

/// A caller whose message has no number yet.
#[derive(Debug)]
pub(crate) struct Entering<'answers> {
    answers: &'answers Answers,
    number: u64,
}

impl<'answers> Entering<'answers> {
    /// Its message has this number.
    pub(crate) fn wait_for(self, seq: Seq) -> Waiting<'answers> {
        let answers = self.answers;
        let mut state = answers.state();
        // The latest counts: a call that was given up can have an answer too.
        let early = state.early.iter().rev().find(|(_, early, _)| *early == seq);
        let early = early.map(|(.., answer)| answer.clone());
        let slot = state.slots.entry(seq).or_default();
        slot.callers += 1;
        slot.answer = slot.answer.take().or(early);
        drop(state);
        Waiting { answers, seq }
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let mut state = self.answers.state();
        state.entering.remove(&self.number);
        state.forget_early();
    }
}

/// A caller that waits for the answer to one message.
#[derive(Debug)]
pub(crate) struct Waiting<'answers> {
    answers: &'answers Answers,
    seq: Seq,
}

impl Waiting<'_> {
    /// The answer that ended this hand-out, if there is one.
    pub(crate) fn take(self, delivery: u32) -> Option<TargetAnswer> {
        let mut state = self.answers.state();
        let slot = state.slots.get_mut(&self.seq)?;
        // Another caller may wait for the same message.
        let answer = if slot.callers == 1 { slot.answer.take() } else { slot.answer.clone() };
        drop(state);
        answer.filter(|answer| answer.delivery == delivery)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.answers.state();
        if let Some(slot) = state.slots.get_mut(&self.seq) {
            slot.callers -= 1;
            if slot.callers == 0 {
                state.slots.remove(&self.seq);
            }
        }
        state.forget_early();
    }
}

/// Whether a header of an answer stays between the target and this server: it belongs to the connection, or decides
/// what pages of other sites may read, which is not the target's to say here.
fn stays_behind(name: &HeaderName) -> bool {
    const CONNECTION: [&str; 10] = [
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    CONNECTION.contains(&name.as_str()) || name.as_str().starts_with("access-control-")
}

impl TargetAnswer {
    /// What its caller gets: status, body and end-to-end headers.
    pub(crate) fn into_response(self) -> Response {
        let named = headers::of_the_connection(&self.headers);
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        for (name, value) in &self.headers {
            if !stays_behind(name) && !named.contains(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
        if self.status == StatusCode::NO_CONTENT {
            response.headers_mut().remove(header::CONTENT_TYPE);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, EARLY_MAX, TargetAnswer};
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use millpond_core::identity::Seq;

    fn answer(delivery: u32) -> TargetAnswer {
        TargetAnswer {
            delivery,
            status: StatusCode::CREATED,
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"made"),
        }
    }

    #[test]
    fn an_answer_reaches_its_caller_whether_it_comes_before_or_after_the_number() {
        let answers = Answers::default();
        let (first, second) = (answers.enter(), answers.enter());
        answers.put(Seq(7), answer(1));
        let first = first.wait_for(Seq(7));
        let second = second.wait_for(Seq(8));
        answers.put(Seq(8), answer(3));
        assert_eq!(answers.callers(), 2);
        assert_eq!(first.take(1).unwrap().body, "made");
        assert!(second.take(2).is_none(), "it ended another hand-out");
        assert_eq!(answers.callers(), 0);
    }

    #[test]
    fn nothing_is_kept_for_nobody_and_nothing_stays_of_who_has_left() {
        let answers = Answers::default();
        answers.put(Seq(1), answer(1));
        assert!(!answers.wants(Seq(1)));
        let (entering, waiting) = (answers.enter(), answers.enter().wait_for(Seq(2)));
        answers.put(Seq(1), answer(1));
        answers.put(Seq(2), answer(1));
        assert!(answers.wants(Seq(9)), "it may be the number of who is entering");
        drop((entering, waiting));
        let state = answers.state();
        assert!(state.early.is_empty() && state.slots.is_empty() && state.entering.is_empty());
        assert_eq!(state.early_bytes, 0);
    }

    #[test]
    fn answers_from_before_a_caller_came_are_not_kept_for_it() {
        let answers = Answers::default();
        let first = answers.enter();
        answers.put(Seq(1), answer(1));
        let _second = answers.enter();
        assert_eq!(answers.state().early.len(), 1);
        drop(first);
        assert_eq!(answers.state().early.len(), 0);
    }

    #[test]
    fn early_answers_are_bounded() {
        let answers = Answers::default();
        let entering = answers.enter();
        for seq in 0..=EARLY_MAX as u64 {
            answers.put(Seq(seq), answer(1));
        }
        assert_eq!(answers.state().early.len(), EARLY_MAX);
        assert!(entering.wait_for(Seq(0)).take(1).is_none(), "the oldest gave way");
    }

    #[test]
    fn who_waits_for_the_same_message_gets_the_same_answer() {
        let answers = Answers::default();
        let (one, other) = (answers.enter().wait_for(Seq(1)), answers.enter().wait_for(Seq(1)));
        answers.put(Seq(1), answer(1));
        assert!(one.take(1).is_some() && other.take(1).is_some());
    }

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let mut headers = HeaderMap::new();
        for (name, text) in [
            ("connection", "x-hop, close"),
            ("x-hop", "1"),
            ("content-length", "4"),
            ("access-control-allow-origin", "*"),
            ("location", "/made/7"),
        ] {
            headers.insert(name, HeaderValue::from_static(text));
        }
        let response = TargetAnswer { headers, ..answer(1) }.into_response();
        assert_eq!(response.status(), 201);
        let names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["location"]);
    }
}
