//! Callers who wait at the door for room, where a queue's overflow says so.
//!
//! Owns their lines, one for each class: the more critical first, within a class first come, first served, bounded in
//! number and bytes. Whoever waits, waits for its own share of the bounds and for nobody less critical. Must never accept
//! a part of what waits, nor anything of a caller who has left.

use super::bounds::{Excess, KEYS, share};
use super::{Pond, WAITING_MAX, WaitingFor};
use crate::command::{EnqueueError, NewMessage, Reply, RequestId};
use crate::message::{Criticality, QueueNumber};
use crate::settings::Overflow;
use crate::time::Now;
use std::collections::VecDeque;

/// Callers that may wait at the door of one queue; further ones are refused at once. As of every bound, sheddable ones may
/// use a part of it, or they would take the places of those for whom there will be room first.
const CALLERS_MAX: u64 = 1000;
/// Bytes of all messages that may wait at the door of one queue; what would exceed it is refused at once. Shared alike.
const BYTES_MAX: u64 = 64 << 20;

/// What a caller finds at a queue's door.
pub(super) enum Door {
    /// It need not wait.
    Open,
    /// It waits for room, in the line of this class.
    Full(Criticality),
    /// There will never be room for all that it brings; the bound, in words.
    TooNarrow(&'static str),
}

/// One caller with everything it wants to enqueue.
#[derive(Debug)]
struct Caller {
    request: RequestId,
    messages: Vec<NewMessage>,
}

/// Those who wait at the door of one queue.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    lines: [VecDeque<Caller>; Criticality::ALL.len()],
    bytes: u64,
}

impl Blocked {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }

    pub(super) fn callers(&self) -> u64 {
        self.lines.iter().map(|line| line.len() as u64).sum()
    }

    /// Whether anybody waits who is let in before a newcomer of this class.
    pub(super) fn is_before(&self, class: Criticality) -> bool {
        self.lines[..=class.index()].iter().any(|line| !line.is_empty())
    }

    fn has_room_for(&self, class: Criticality, bytes: u64) -> bool {
        self.callers() < share(CALLERS_MAX, class)
            && self.bytes.saturating_add(bytes) <= share(BYTES_MAX, class)
    }

    fn push(&mut self, class: Criticality, caller: Caller) {
        self.bytes += bytes_of(&caller.messages);
        self.lines[class.index()].push_back(caller);
    }

    fn remove(&mut self, class: Criticality, place: usize) -> Option<Caller> {
        let caller = self.lines[class.index()].remove(place)?;
        self.bytes -= bytes_of(&caller.messages);
        Some(caller)
    }

    fn take(&mut self, request: RequestId) -> Option<Caller> {
        let place = |line: &VecDeque<Caller>| line.iter().position(|caller| caller.request == request);
        Criticality::ALL.into_iter().find_map(|class| self.remove(class, place(&self.lines[class.index()])?))
    }

    fn take_first(&mut self) -> Option<Caller> {
        Criticality::ALL.into_iter().find_map(|class| self.remove(class, 0))
    }

    pub(super) fn assert_consistent(&self) {
        let bytes = self.lines.iter().flatten().map(|caller| bytes_of(&caller.messages)).sum::<u64>();
        assert_eq!(self.bytes, bytes);
        assert!(
            self.callers() <= CALLERS_MAX && self.bytes <= BYTES_MAX,
            "bounds of those who wait at the door"
        );
    }
}

fn bytes_of(messages: &[NewMessage]) -> u64 {
    messages.iter().map(|message| message.content.size_bytes()).sum()
}

/// How many of them have keys.
fn keyed(messages: &[&NewMessage]) -> u64 {
    messages.iter().filter(|new| new.key.is_some()).count() as u64
}

impl Pond {
    /// What a caller finds. It has to wait for room alone, or because others wait before it. What brings several
    /// messages waits in the line of the least critical, for whose share it has to wait.
    pub(super) fn door(&self, number: QueueNumber, messages: &[NewMessage], now: Now) -> Door {
        let queue = self.queue_ref(number);
        if !self.blocks(number) {
            return Door::Open;
        }
        let wanting = self.wanting_room(number, messages);
        let Some(first) = wanting.first() else { return Door::Open };
        if let Some(what) = self.never_fits(number, &wanting) {
            return Door::TooNarrow(what);
        }
        // What would start too late is refused at once: by the time there is room, it would start even later.
        let outlook = self.outlook(number, now);
        let predicted = queue.settings.max_wait.and_then(|max| {
            self.predicted_wait_of_new(number, first, outlook, now).filter(|predicted| *predicted > max)
        });
        let class = wanting.iter().map(|new| new.criticality).fold(first.criticality, Criticality::max);
        let is_full = queue.blocked.is_before(class) || !self.fits(number, &wanting);
        if predicted.is_none() && is_full { Door::Full(class) } else { Door::Open }
    }

    fn blocks(&self, number: QueueNumber) -> bool {
        let settings = &self.queue_ref(number).settings;
        settings.overflow == Overflow::Block && self.storage.takes_new_work() && !self.draining
    }

    /// Those that would be accepted if there were room: neither repetitions nor mistakes.
    fn wanting_room<'a>(&self, number: QueueNumber, messages: &'a [NewMessage]) -> Vec<&'a NewMessage> {
        let known = |new: &NewMessage| new.key.is_some_and(|key| self.keys.contains_key(&(number, key.key)));
        messages.iter().filter(|new| !known(new) && self.check_new(number, new).is_ok()).collect()
    }

    /// The bound that all of them exceed together though the queue were empty: no waiting helps them.
    fn never_fits(&self, number: QueueNumber, wanting: &[&NewMessage]) -> Option<&'static str> {
        let max_keys = self.queue_ref(number).settings.max_keys;
        let too_many_keys = (keyed(wanting) > max_keys).then_some(KEYS);
        too_many_keys.or_else(|| self.excess_of_all(number, (0, 0), wanting).map(|excess| excess.what))
    }

    fn fits(&self, number: QueueNumber, wanting: &[&NewMessage]) -> bool {
        let queue = self.queue_ref(number);
        let held = (queue.unfinished, queue.unfinished_bytes);
        self.has_room_for_keys(number, keyed(wanting), 0)
            && self.excess_of_all(number, held, wanting).is_none()
    }

    /// By how much they exceed a bound, each with those before it, beside so many messages and bytes.
    fn excess_of_all(
        &self,
        number: QueueNumber,
        held: (u64, u64),
        wanting: &[&NewMessage],
    ) -> Option<Excess> {
        let (mut messages, mut bytes) = (0, 0_u64);
        wanting.iter().find_map(|new| {
            messages += 1;
            bytes = bytes.saturating_add(new.content.size_bytes());
            self.excess_beside(number, held, new.criticality, messages, bytes)
        })
    }

    /// Answers a caller whose messages never fit together: repetitions and mistakes as ever, the rest refused.
    pub(super) fn turn_back(
        &mut self,
        request: RequestId,
        number: QueueNumber,
        messages: &[NewMessage],
        what: &'static str,
        now: Now,
    ) {
        self.answer_each(request, number, messages, now, |_, _, _, _| {
            Err(EnqueueError::BatchTooLarge { what })
        });
    }

    /// Lets a caller wait at the door, or refuses it if too many do.
    pub(super) fn block(
        &mut self,
        request: RequestId,
        number: QueueNumber,
        class: Criticality,
        messages: Vec<NewMessage>,
        now: Now,
    ) {
        let room = (self.waiting.len() as u64) < share(WAITING_MAX as u64, class);
        if !room || !self.queue_ref(number).blocked.has_room_for(class, bytes_of(&messages)) {
            return self.refuse_full(request, number, &messages, now);
        }
        let queue = self.queue_mut(number);
        let until = now.mono.plus(queue.settings.block_for);
        queue.blocked.push(class, Caller { request, messages });
        self.start_waiting(request, WaitingFor::Room(number), until);
    }

    /// Answers a caller for whom there is no room: repetitions and mistakes as ever, the rest refused.
    fn refuse_full(&mut self, request: RequestId, number: QueueNumber, messages: &[NewMessage], now: Now) {
        self.answer_each(request, number, messages, now, |pond, new, _, outlook| {
            let excess = pond.excess(number, new.criticality, 1, new.content.size_bytes());
            Err(pond.full(number, new.criticality, excess, outlook, now))
        });
    }

    /// A caller has waited as long as the queue lets anyone wait, or the server is shutting down.
    pub(super) fn blocked_enough(&mut self, request: RequestId, number: QueueNumber, now: Now) {
        let Some(caller) = self.queue_mut(number).blocked.take(request) else { return };
        self.refuse_full(request, number, &caller.messages, now);
        self.room_may_be_free(number);
    }

    /// A caller has left.
    pub(super) fn unblock_caller(&mut self, request: RequestId, number: QueueNumber) {
        self.queue_mut(number).blocked.take(request);
        self.room_may_be_free(number);
    }

    /// Something has left a queue, or its bounds have changed: at the end of the step, those who wait are looked at.
    pub(super) fn room_may_be_free(&mut self, number: QueueNumber) {
        let queue = self.queue_ref(number);
        if !queue.blocked.is_empty() || queue.replays.waits_for_room() {
            self.freed.insert(number);
        }
    }

    /// Lets those in whom there is room for now, in their order; then replays go on.
    pub(super) fn serve_freed(&mut self, now: Now) {
        while let Some(number) = self.freed.pop_first() {
            while let Some((caller, never)) = self.next_to_enter(number) {
                self.stop_waiting(caller.request);
                match never {
                    Some(what) => self.turn_back(caller.request, number, &caller.messages, what, now),
                    None => self.enqueue_now(caller.request, number, &caller.messages, now),
                }
            }
            self.wake_replay(number);
        }
    }

    /// The next of those who wait, if it waits no longer; with the bound that it can never keep, if the bounds were
    /// lowered meanwhile. Room goes to the first of the most critical; who needs none waits for nobody of another class.
    fn next_to_enter(&mut self, number: QueueNumber) -> Option<(Caller, Option<&'static str>)> {
        let mut is_before = false;
        for class in Criticality::ALL {
            let Some(first) = self.queue_ref(number).blocked.lines[class.index()].front() else { continue };
            // Where waiting makes no sense any more, each gets its answer.
            let (mut enters, mut never) = (!self.blocks(number), None);
            if !enters {
                let wanting = self.wanting_room(number, &first.messages);
                never = self.never_fits(number, &wanting);
                let fits = || !is_before && self.fits(number, &wanting);
                enters = never.is_some() || wanting.is_empty() || fits();
            }
            if enters {
                return self.queue_mut(number).blocked.remove(class, 0).map(|first| (first, never));
            }
            is_before = true;
        }
        None
    }

    /// Turns away those who wait at the door of a queue that is deleted.
    pub(super) fn turn_away(&mut self, number: QueueNumber) {
        while let Some(caller) = self.queue_mut(number).blocked.take_first() {
            self.stop_waiting(caller.request);
            self.reply(caller.request, Reply::Enqueued(Err(EnqueueError::UnknownQueue)));
        }
    }
}
