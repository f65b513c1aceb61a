//! What happens in the model: the transitions of a message's life, by command, by time and by restart.
//!
//! Owns that every transition that is written down leaves a copy of the message behind. Must never choose: whom the
//! pond hands a message and how long it backs off are told, and judged.
#![expect(clippy::missing_panics_doc, reason = "it judges by panicking")]

use super::{ENDED_MAX, Ending, Gate, Hold, Message, Model, New, Sign, Taker, Turns};
use millpond_core::identity::Receipt;
use millpond_core::message::{DeadReason, Phase};
use millpond_core::settings::{LEASE_TOTAL_MAX, OnExpiry};
use millpond_core::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

impl Message {
    /// When it was accepted, was first due and expires, and when it is due next while it waits for that, or is forgotten
    /// after its end.
    pub fn times(&self) -> (Wall, Wall, Wall, Option<Wall>) {
        let due = self.phase_ends.map(|(_, due, _)| due).filter(|_| self.phase != Phase::Leased);
        (self.accepted, self.first_due, self.expires.1, due)
    }

    /// When its life ended.
    pub fn finished(&self) -> Option<Wall> {
        self.phase.is_terminal().then(|| self.phase_begun())
    }

    /// Until when it is leased.
    pub fn leased_until(&self) -> Option<Wall> {
        self.phase_ends.map(|(_, until, _)| until).filter(|_| self.phase == Phase::Leased)
    }

    /// Its key and its payload, while they are remembered.
    pub fn key(&self) -> Option<(u128, u128)> {
        self.key
    }
}

impl Model {
    /// A record about a message has been written: this is how it leaves the message.
    fn record(&mut self, seq: u64) {
        let mut state = self.messages.get(&seq).cloned();
        let states = self.history.entry(seq).or_default();
        if let (Some(state), Some(Some(before))) = (&mut state, states.last()) {
            // Only the record of an end, and a copy, say whether the key is still remembered.
            let ended = state.phase.is_terminal() && state.phase != Phase::Dead;
            state.key = if ended { state.key } else { before.key };
        }
        states.push(state);
    }

    /// Remembers the key of a new message; beyond the bound, those of finished ones are forgotten, oldest first.
    fn remember_key(&mut self, seq: u64) {
        let Message { queue, key, .. } = self.messages[&seq];
        let Some((key, _)) = key else { return };
        self.forget_keys(queue, 1);
        self.keys.insert((queue, key), seq);
    }

    /// Forgets keys of finished messages until there is room for `more`, or none is left.
    fn forget_keys(&mut self, queue: usize, more: u64) {
        let bound = self.queues[queue].settings.max_keys;
        while self.keys.keys().filter(|(at, _)| *at == queue).count() as u64 + more > bound {
            let of_queue = self.messages.iter().filter(|(_, one)| one.queue == queue && one.key.is_some());
            let finished = of_queue.filter(|(_, one)| one.phase.is_terminal());
            let Some(oldest) = finished.map(|(&seq, one)| (one.phase_begun(), seq)).min() else { return };
            self.forget_key(oldest.1);
            self.messages.get_mut(&oldest.1).expect("just seen").key = None;
            self.mark("a key is forgotten for a new one");
        }
    }

    /// Forgets the key of a message, unless it belongs to a later one by now.
    fn forget_key(&mut self, seq: u64) {
        let Message { queue, key, .. } = self.messages[&seq];
        if let Some((key, _)) = key
            && self.keys.get(&(queue, key)) == Some(&seq)
        {
            self.keys.remove(&(queue, key));
        }
    }

    /// The next record about a message decides something.
    fn decide(&mut self, seq: u64) {
        self.messages.get_mut(&seq).expect("known").decided_with = self.records(seq) + 1;
    }

    fn enter(&mut self, seq: u64, phase: Phase, ends_in: Option<Duration>, now: Now) {
        let message = self.messages.get_mut(&seq).expect("known");
        message.phase = phase;
        message.phase_ends = ends_in.map(|wait| (now.mono.plus(wait), now.wall.plus(wait), now.wall));
    }

    /// A message was accepted under the number `seq`.
    pub fn accept(&mut self, seq: u64, queue: usize, new: &New, now: Now) {
        assert!(!self.history.contains_key(&seq), "number {seq} is in use");
        let ttl = new.ttl.unwrap_or(self.queues[queue].settings.retention);
        let message = Message {
            queue,
            labels: new.labels,
            phase: Phase::Ready,
            place: seq,
            bytes: new.bytes,
            attempts: 0,
            deliveries: 0,
            delivery: 0,
            hold: None,
            first_started: None,
            result: None,
            dead_reason: None,
            ended: Vec::new(),
            due_since: now.mono.plus(new.delay),
            lost: None,
            given_up: Vec::new(),
            open_backoff: None,
            key: new.key,
            accepted: now.wall,
            first_due: now.wall.plus(new.delay),
            phase_ends: None,
            expires: (now.mono.plus(ttl), now.wall.plus(ttl)),
            expired: false,
            overdue: false,
            decided_with: 1,
        };
        self.history.insert(seq, Vec::new());
        self.durable.insert(seq, 0);
        self.messages.insert(seq, message);
        self.remember_key(seq);
        if !new.delay.is_zero() {
            self.enter(seq, Phase::Delayed, Some(new.delay), now);
        }
        self.record(seq);
    }

    /// A message was handed out.
    pub fn hand_out(&mut self, receipt: Receipt, until: Wall, taker: Taker, now: Now) {
        let seq = receipt.seq.0;
        let lease = until.since(now.wall);
        let message = self.messages.get_mut(&seq).expect("only what exists is handed out");
        assert_eq!(message.phase, Phase::Ready, "{seq} is handed out though nobody may have it");
        assert!(
            !message.expired && message.expires.0 > now.mono,
            "{seq} is handed out though it has expired"
        );
        let expected = Receipt { delivery: message.delivery + 1, epoch: self.epoch, ..receipt };
        assert_eq!(receipt, expected, "hand-outs are numbered without gaps");
        message.deliveries += 1;
        message.delivery += 1;
        message.lost = None;
        message.first_started.get_or_insert(now.wall);
        let started = (now.wall, now.mono);
        message.hold = Some(Hold { receipt, taker, settled: None, restored: false, started, until });
        self.enter(seq, Phase::Leased, Some(lease), now);
        self.record(seq);
    }

    /// Whether `receipt` still decides about its message, and what was said of it before.
    fn standing(&self, receipt: Receipt) -> Option<(Phase, Option<Ending>)> {
        let message = self.messages.get(&receipt.seq.0)?;
        if message.lost == Some(receipt) && !message.phase.is_terminal() {
            return Some((Phase::Leased, None));
        }
        let hold = message.hold.filter(|hold| hold.receipt == receipt)?;
        Some((message.phase, hold.settled))
    }

    /// Whether `receipt` can be used to settle its message with `ending`. `Some(false)`: it was before.
    pub fn may_settle(&self, receipt: Receipt, ending: Ending) -> Option<bool> {
        match self.standing(receipt)? {
            (_, Some(before)) => (before == ending).then_some(false),
            (Phase::Leased, None) => Some(true),
            // Late, but nobody else was handed the message.
            (phase, None) => (ending == Ending::Done && !phase.is_terminal()).then_some(true),
        }
    }

    /// The work of a message is about to be done, with this result, of which so much as its queue allows is kept.
    ///
    /// A full disk has no room for any: then there is none to be told of.
    pub fn bring_result(&mut self, receipt: Receipt, content_type: &str, bytes: u64, now: Now) {
        self.recall(receipt, now);
        let message = self.messages.get_mut(&receipt.seq.0).expect("known");
        let most = self.queues[message.queue].settings.result_max_bytes;
        message.result = Some((content_type.to_owned(), bytes.min(most)));
        if bytes > most {
            self.mark("a result is cut");
        }
    }

    /// Whether this hand-out holds its message.
    pub fn holds(&self, receipt: Receipt) -> bool {
        self.messages.get(&receipt.seq.0).is_some_and(|message| {
            message.phase == Phase::Leased && message.hold.is_some_and(|hold| hold.receipt == receipt)
        })
    }

    /// Whether a lease may be prolonged to `lease` from now: `Some(false)` if that is too long.
    pub fn may_extend(&self, receipt: Receipt, lease: Duration, now: Now) -> Option<bool> {
        let message = self.messages.get(&receipt.seq.0)?;
        let hold = message.hold.filter(|hold| hold.receipt == receipt && message.phase == Phase::Leased)?;
        Some(now.mono.plus(lease) <= hold.started.1.plus(LEASE_TOTAL_MAX))
    }

    /// A lease was prolonged.
    pub fn extend(&mut self, receipt: Receipt, lease: Duration, now: Now) {
        let seq = receipt.seq.0;
        let hold = self.messages.get_mut(&seq).and_then(|message| message.hold.as_mut()).expect("leased");
        hold.until = now.wall.plus(lease);
        hold.restored = false;
        // By the clock of now, if that has been set since.
        let begun = Wall(now.wall.0 - (now.mono.0 - hold.started.1.0).max(0));
        if begun.0.abs_diff(hold.started.0.0) > 1_000_000 {
            hold.started.0 = begun;
        }
        let begun = hold.started.0;
        self.enter(seq, Phase::Leased, Some(lease), now);
        let ends = &mut self.messages.get_mut(&seq).expect("leased").phase_ends;
        *ends = ends.map(|(mono, wall, _)| (mono, wall, begun));
        self.record(seq);
    }

    /// A hand-out ended: by its holder's word (`by_holder`), or by itself. `delay`: what its holder asks for, or how long the
    /// message of a failed probe stays away at least.
    pub fn settle(
        &mut self,
        receipt: Receipt,
        ending: Ending,
        delay: Option<Duration>,
        by_holder: bool,
        now: Now,
    ) {
        let seq = receipt.seq.0;
        self.recall(receipt, now);
        let message = self.messages.get_mut(&seq).expect("known");
        if ending.counts_as_attempt() {
            message.attempts += 1;
        }
        let hold = message.hold.as_mut().expect("it was handed out");
        hold.settled = by_holder.then_some(ending);
        message.ended.push((receipt.delivery, ending));
        message.ended.drain(..message.ended.len().saturating_sub(ENDED_MAX));
        let settings = &self.queues[message.queue].settings;
        let (attempts, deliveries) = (message.attempts, message.deliveries);
        match ending {
            Ending::Done => {
                let queue = &mut self.queues[message.queue];
                (queue.measured, queue.deaths) = (true, 0);
                self.finish(seq, Phase::Succeeded, now);
            }
            Ending::Rejected => self.give_up(seq, DeadReason::Rejected, now),
            _ if ending.counts_as_attempt() && attempts >= settings.retry.max_attempts => {
                self.give_up(seq, DeadReason::AttemptsExhausted, now);
            }
            _ if deliveries >= settings.retry.deliveries_max() => {
                self.give_up(seq, DeadReason::DeliveriesExhausted, now);
            }
            _ if message.expired => self.expire(seq, now),
            _ => self.give_back(seq, ending, delay, now),
        }
    }

    /// A message has failed for good; so many in a row pause the queue.
    fn give_up(&mut self, seq: u64, reason: DeadReason, now: Now) {
        self.messages.get_mut(&seq).expect("known").dead_reason = Some(reason);
        self.finish(seq, Phase::Dead, now);
        let queue = &mut self.queues[self.messages[&seq].queue];
        queue.deaths += 1;
        let burst = queue.settings.dead_burst;
        if burst > 0 && queue.deaths >= burst && !queue.paused {
            queue.paused = true;
            self.mark("a burst of dead letters pauses the queue");
        }
    }

    /// Notes a hand-out whose record was lost.
    fn recall(&mut self, receipt: Receipt, now: Now) {
        let message = self.messages.get_mut(&receipt.seq.0).expect("known");
        if message.lost.take_if(|lost| *lost == receipt).is_some() {
            message.deliveries += 1;
            message.delivery += 1;
            message.first_started.get_or_insert(now.wall);
            let started = (now.wall, now.mono);
            let (taker, until) = (Taker::Worker(None), now.wall);
            message.hold = Some(Hold { receipt, taker, settled: None, restored: true, started, until });
            let before = message.phase;
            self.enter(receipt.seq.0, Phase::Leased, Some(Duration::ZERO), now);
            self.record(receipt.seq.0);
            self.messages.get_mut(&receipt.seq.0).expect("known").phase = before;
        }
    }

    fn give_back(&mut self, seq: u64, ending: Ending, delay: Option<Duration>, now: Now) {
        self.decide(seq);
        let message = self.messages.get_mut(&seq).expect("known");
        let retry = &self.queues[message.queue].settings.retry;
        let wait = match (delay, ending) {
            (Some(least), Ending::ProbeFailed) => {
                let least = least.min(retry.backoff_max);
                let longest = retry.backoff_min * 2_u32.pow((message.attempts + 1).min(20));
                let longest = longest.min(retry.backoff_max).max(retry.backoff_min);
                message.open_backoff = Some((retry.backoff_min.max(least), longest.max(least)));
                retry.backoff_min.max(least)
            }
            (Some(delay), _) => delay,
            (None, Ending::Failed) => {
                let longest = retry.backoff_min * 2_u32.pow(message.attempts.min(20));
                let longest = longest.min(retry.backoff_max).max(retry.backoff_min);
                message.open_backoff = Some((retry.backoff_min, longest));
                retry.backoff_min
            }
            (None, _) => Duration::ZERO,
        };
        let phase = if wait.is_zero() { Phase::Ready } else { Phase::Backoff };
        self.enter(seq, phase, (!wait.is_zero()).then_some(wait), now);
        self.record(seq);
    }

    /// The pond has named the backoff that it chose.
    pub fn name_backoff(&mut self, seq: u64, due: Wall, now: Now) {
        let Some(message) = self.messages.get_mut(&seq) else { return };
        let Some((shortest, longest)) = message.open_backoff.take() else { return };
        let wait = due.since(now.wall);
        assert!(
            (shortest..=longest).contains(&wait),
            "backoff of {wait:?}, not within {shortest:?}..{longest:?}"
        );
        self.enter(seq, Phase::Backoff, Some(wait), now);
        let state = self.messages.get(&seq).cloned();
        *self.history.get_mut(&seq).and_then(|states| states.last_mut()).expect("it was written") = state;
    }

    /// A hand-out reached nobody.
    pub fn take_back(&mut self, receipt: Receipt, now: Now) {
        let seq = receipt.seq.0;
        self.leave(receipt, Sign::Nothing, now.mono);
        let message = self.messages.get_mut(&seq).expect("known");
        if message.expired {
            return self.expire(seq, now);
        }
        message.deliveries -= 1;
        message.hold = None;
        if message.deliveries == 0 {
            message.first_started = None;
        }
        self.give_back(seq, Ending::Released, None, now);
    }

    fn finish(&mut self, seq: u64, phase: Phase, now: Now) {
        let settings = &self.queues[self.messages[&seq].queue].settings;
        let dead = settings.dead_letter.retention;
        let kept = if phase == Phase::Dead { dead } else { settings.result_retention };
        self.decide(seq);
        let queue = self.messages[&seq].queue;
        self.enter(seq, phase, Some(kept), now);
        self.forget_keys(queue, 0);
        self.record(seq);
        self.messages.get_mut(&seq).expect("known").overdue = false;
        self.recall_overdue(queue);
    }

    fn has_no_room_for_expired(&self, seq: u64) -> bool {
        let queue = self.messages[&seq].queue;
        self.queues[queue].settings.on_expiry == OnExpiry::DeadLetter && self.is_full_of_dead(queue)
    }

    fn expire(&mut self, seq: u64, now: Now) {
        if self.is_blocked(seq) {
            self.mark("a message expires behind its group's head");
        } else if self.has_followers(seq) {
            self.mark("a group's head expires");
        }
        let drop = self.queues[self.messages[&seq].queue].settings.on_expiry == OnExpiry::Drop;
        self.messages.get_mut(&seq).expect("known").dead_reason = (!drop).then_some(DeadReason::Expired);
        self.finish(seq, if drop { Phase::Expired } else { Phase::Dead }, now);
    }

    /// A message was given up for a newer one.
    pub fn drop_oldest(&mut self, seq: u64, now: Now) {
        self.finish(seq, Phase::Dropped, now);
        self.mark("a message is dropped for a newer one");
    }

    /// Whether a message can be withdrawn.
    pub fn may_cancel(&self, seq: u64) -> Option<bool> {
        let phase = self.messages.get(&seq)?.phase;
        Some(matches!(phase, Phase::Delayed | Phase::Ready | Phase::Backoff | Phase::Cancelled))
    }

    /// A message was withdrawn.
    pub fn cancel(&mut self, seq: u64, now: Now) {
        if self.messages[&seq].phase != Phase::Cancelled {
            self.finish(seq, Phase::Cancelled, now);
        }
    }

    /// A dead letter went back to work at `place`, to expire at `expires`.
    pub fn replay(&mut self, seq: u64, place: u64, expires: Wall, ttl: Option<Duration>, now: Now) {
        assert!(
            self.messages.iter().all(|(&other, one)| other < place && one.place < place),
            "behind all others"
        );
        if self.has_followers(seq) {
            self.mark("a dead letter goes back into a busy group");
        }
        let message = self.messages.get_mut(&seq).expect("only what exists is replayed");
        assert_eq!(message.phase, Phase::Dead, "{seq} is replayed though it is not dead");
        let retention = self.queues[message.queue].settings.retention;
        let kept = message.expires.1 > now.wall;
        let otherwise = if kept { message.expires.1 } else { now.wall.plus(retention) };
        assert_eq!(expires, ttl.map_or(otherwise, |ttl| now.wall.plus(ttl)), "expiry of a replay");
        (message.attempts, message.deliveries, message.expired) = (0, 0, false);
        (message.first_started, message.dead_reason) = (None, None);
        (message.place, message.due_since, message.first_due) = (place, now.mono, now.wall);
        message.expires = (now.mono_at(expires), expires);
        self.decide(seq);
        self.enter(seq, Phase::Ready, None, now);
        self.record(seq);
        self.recall_overdue(self.messages[&seq].queue);
    }

    /// A dead letter was deleted.
    pub fn delete(&mut self, seq: u64) {
        self.forget_key(seq);
        let gone = self.messages.remove(&seq).expect("known");
        assert_eq!(gone.phase, Phase::Dead, "{seq} is deleted though it is not dead");
        self.record(seq);
        self.recall_overdue(gone.queue);
    }

    /// A message's state was written once more.
    pub fn copy(&mut self, seq: u64) {
        if let Some(message) = self.messages.get(&seq).cloned() {
            self.history.entry(seq).or_default().push(Some(message));
        }
    }

    /// Lets everything happen that is due by `now`, in the order in which it falls due.
    pub fn advance(&mut self, now: Now) {
        loop {
            let phases = self
                .messages
                .iter()
                .filter_map(|(&seq, message)| message.phase_ends.map(|(at, ..)| (at, 0, seq)));
            let expiries = self.messages.iter().filter_map(|(&seq, message)| {
                let open = !message.expired && !message.overdue && !message.phase.is_terminal();
                open.then_some((message.expires.0, 1, seq))
            });
            let Some((_, kind, seq)) = phases.chain(expiries).filter(|&(at, ..)| at <= now.mono).min() else {
                break;
            };
            let message = self.messages.get_mut(&seq).expect("known");
            match (kind, message.phase) {
                (1, Phase::Leased) => message.expired = true,
                (1, _) if self.has_no_room_for_expired(seq) => {
                    self.messages.get_mut(&seq).expect("known").overdue = true;
                    self.mark("a message stays that has expired, for dead letters are full");
                }
                (1, _) if self.disk_room() == 0 => {
                    self.messages.get_mut(&seq).expect("known").overdue = true;
                    self.mark("a message stays that has expired, for the disk is full");
                }
                (1, _) => {
                    self.take_disk_room();
                    self.expire(seq, now);
                }
                (_, Phase::Leased) => self.run_out(seq, now),
                (_, Phase::Delayed | Phase::Backoff) => self.enter(seq, Phase::Ready, None, now),
                _ => {
                    self.forget_key(seq);
                    let queue = self.messages.remove(&seq).expect("known").queue;
                    self.recall_overdue(queue);
                }
            }
        }
        for target in &mut self.targets {
            target.held_until.retain(|until| *until > now.mono);
        }
    }

    fn run_out(&mut self, seq: u64, now: Now) {
        let message = &self.messages[&seq];
        let hold = message.hold.expect("leased");
        self.leave(hold.receipt, Sign::Nothing, now.mono);
        if let Taker::Target(target) = hold.taker {
            self.give_up_call(seq, target, now);
        }
        let ending = if hold.restored { Ending::Interrupted } else { Ending::RanOut };
        self.settle(hold.receipt, ending, None, false, now);
    }

    /// The engine died and started again. `kept`: how many records about each message survived.
    pub fn restart(&mut self, kept: &BTreeMap<u64, usize>, now: Now) {
        let ended = self.epoch;
        self.epoch += 1;
        self.messages.clear();
        for (&seq, states) in &mut self.history {
            let kept = kept.get(&seq).copied().unwrap_or(0);
            let gone = states.split_off(kept);
            self.durable.insert(seq, kept);
            let Some(Some(state)) = states.last() else { continue };
            let mut lost = gone.iter().flatten().filter_map(|state| state.hold).map(|hold| hold.receipt);
            let lost = lost.rfind(|lost| lost.epoch == ended && lost.delivery == state.delivery + 1);
            self.messages.insert(seq, state.restored(lost, now));
        }
        self.history.retain(|_, states| !states.is_empty());
        // The latest message with a key counts, and no other has it any more.
        let keyed = self.messages.iter().filter_map(|(&seq, one)| Some(((one.queue, one.key?.0), seq)));
        self.keys = keyed.collect();
        for (seq, one) in &mut self.messages {
            let queue = one.queue;
            one.key = one.key.filter(|(key, _)| self.keys.get(&(queue, *key)) == Some(seq));
        }
        (0..self.queues.len()).for_each(|queue| self.forget_keys(queue, 0));
        for queue in &mut self.queues {
            (queue.measured, queue.deaths) = (false, 0);
            queue.blocked.clear();
            queue.turns = Turns::default();
        }
        for target in &mut self.targets {
            target.held_until.clear();
            // A clock that was set back must not make the next call wait longer than the rate wants.
            target.called = target.called.map(|called| called.min(now.wall));
            target.starts = target.called.map(|called| now.mono_at(called)).into_iter().collect();
            target.paused_until = Mono(i64::MIN);
            target.gate = Gate::default();
        }
        self.restore_holds(now);
    }
}
