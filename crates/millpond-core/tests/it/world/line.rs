//! Enqueues that wait for room, in one line for each class.
//!
//! Owns when each of them must have its answer, and which. Must never let one overtake another of its class, nor one that
//! is more critical.

use super::{Answer, Due, Fate, Position, World};
use millpond_core::command::RequestId;
use millpond_core::message::QueueNumber;
use millpond_testkit::model::{Blocked, New, Verdict};

impl World {
    /// A new enqueue waits.
    pub(super) fn join_line(&mut self, queue: usize, request: RequestId, new: &New) {
        let until = self.now.mono.plus(self.model.queues[queue].settings.block_for);
        self.model.queues[queue].blocked.push_back(Blocked { request: request.0, new: *new, until });
        self.model.mark("an enqueue waits for room");
        self.due.insert(request, Due { answer: Answer::Blocked { queue }, gates: Vec::new(), gate: 0 });
    }

    /// One leaves the line with an answer, which may have to wait for durability.
    fn leave_line(&mut self, queue: usize, place: usize, otherwise: Fate) {
        let blocked = self.model.queues[queue].blocked.remove(place).expect("it waits");
        let (fate, gates) = match self.model.judge_key(queue, &blocked.new) {
            Some(Verdict::Duplicate(seq)) => {
                let message = &self.model.messages[&seq];
                (Fate::Duplicate { seq, phase: message.phase }, vec![(seq, message.decided_with)])
            }
            Some(_) => (Fate::Mismatch, Vec::new()),
            None => (otherwise, Vec::new()),
        };
        let due = self.due.get_mut(&RequestId(blocked.request)).expect("it waits");
        (due.answer, due.gates) = (Answer::Enqueued(vec![fate]), gates);
    }

    /// Those who have waited as long as anyone may are refused.
    pub(super) fn time_out(&mut self) {
        for queue in 0..3 {
            let now = self.now.mono;
            let late = |one: &Blocked| one.until <= now;
            while let Some(place) = self.model.queues[queue].blocked.iter().position(late) {
                self.leave_line(queue, place, Fate::Full);
                self.model.mark("an enqueue waits for room in vain");
            }
        }
    }

    /// Where the log takes no new messages, nobody waits for room.
    pub(super) fn dissolve_lines(&mut self) {
        for queue in 0..3 {
            while !self.model.storage.takes_new_work() && !self.model.queues[queue].blocked.is_empty() {
                self.leave_line(queue, 0, Fate::StorageFull);
            }
        }
    }

    /// The first ones need no room if what they bring has been stored in the meantime.
    pub(super) fn settle_line(&mut self, queue: usize) {
        while let Some((place, Verdict::Duplicate(_) | Verdict::Mismatch)) = self.model.judge_blocked(queue) {
            self.leave_line(queue, place, Fate::Full);
        }
    }

    /// A message was stored that is not the answer to a new enqueue: the one whose turn it is has been accepted.
    pub(super) fn unblocked(&mut self, seq: u64, number: QueueNumber) {
        let queue = number.0 as usize;
        self.settle_line(queue);
        let Some((place, Verdict::Accept)) = self.model.judge_blocked(queue) else {
            panic!("{seq} is accepted, and nobody waits for whom there is room")
        };
        let blocked = self.model.queues[queue].blocked.remove(place).expect("just judged");
        if place > 0 {
            self.model.mark("an enqueue that waits overtakes a less critical one");
        }
        self.model.accept(seq, queue, &blocked.new, self.now);
        self.model.mark("an enqueue that waited for room is accepted");
        let position = Position::AtMost(self.model.unfinished(queue).0);
        let due = self.due.get_mut(&RequestId(blocked.request)).expect("it waits");
        (due.answer, due.gates) = (Answer::Enqueued(vec![Fate::Accepted { seq, position }]), vec![(seq, 1)]);
    }
}
