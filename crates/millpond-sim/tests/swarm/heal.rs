//! The end of the chaos: everything heals, honest workers come, and the whole backlog must drain.
//!
//! Owns the healing and what must hold afterwards. Must never help the engine: whoever is honest only does its work.

use super::faults::Fault;
use super::replies::{Asked, payload, stand};
use super::tellers::tellers;
use super::world::{Task, World};
use millpond_core::command::{Command, QueueView, Reply};
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::stats::TargetStats;
use millpond_testkit::trail::{Event, Micros, Offered, Stand};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Virtual time in which everything must be done once all is well: longer than the longest delay, lease and backoff
/// that actors ask for, whatever the wall clock did meanwhile.
const DRAIN_WITHIN: Duration = Duration::from_mins(40);
/// What the log is given to come to rest: a copy that could not be read is tried again after a minute.
const REST: Duration = Duration::from_secs(90);
/// Segments that the log, and what is made ahead of it, may take beyond twice what lives.
const SEGMENTS_BEYOND: u64 = 4;
/// How often somebody looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often he who gives dead letters up looks for more at once.
const ROUNDS: usize = 20;

impl World {
    pub(super) fn heal(&mut self) {
        self.healing = true;
        self.disk.heal();
        self.disk.set_capacity(None);
        self.disk.mend();
        // Whoever has seen an error of the disk starts anew.
        let erred = std::mem::take(&mut self.harm).error;
        self.conditions.borrow_mut().room_at = None;
        self.do_fault(Fault::Steady);
        if erred {
            self.do_fault(Fault::Kill);
        }
        if self.host.is_none() {
            self.after(Duration::from_millis(1), Task::Restart);
        }
        let until = self.now.plus(Duration::from_secs(2));
        self.run(until, |world| world.host.is_some());
        if self.host.is_none() {
            self.fail("it does not start once everything is well");
        }
        self.drain();
        self.rest();
        self.look_back();
        self.look_after_restart();
    }

    fn views(&mut self) -> (Vec<QueueView>, Vec<TargetStats>) {
        match self.ask_and_wait(Command::Overview) {
            Reply::Overview(mut queues, targets) => {
                // What tells of ends lies there for ever: nobody takes it.
                queues.retain(|view| view.name != tellers());
                self.mark_views(&queues);
                (queues, targets)
            }
            other => self.fail(format!("{other:?}")),
        }
    }

    fn drain(&mut self) {
        let give_up = self.now.plus(DRAIN_WITHIN);
        loop {
            let (queues, targets) = self.views();
            let busy = |view: &QueueView| {
                view.stats.ready + view.stats.delayed + view.stats.leased + view.stats.backoff > 0
            };
            let in_flight: u64 = targets.iter().map(|target| target.inflight).sum();
            if !queues.iter().any(busy) && in_flight == 0 && self.known.replaying.is_empty() {
                return;
            }
            if self.now > give_up {
                let stuck = queues.iter().filter(|view| busy(view));
                let stats: Vec<_> = stuck.map(|view| (&view.name, &view.stats, &view.settings)).collect();
                self.fail(format!(
                    "it does not drain: {stats:?} {targets:?}, replays {:?}",
                    self.known.replaying
                ));
            }
            for view in &queues {
                self.unblock(view);
            }
            let next = self.now.plus(LOOK_EVERY);
            self.run(next, |_| false);
        }
    }

    /// An operator resumes what is paused, and replays dead letters where they are full. Where that has not helped,
    /// because what has expired takes the place of what goes back, some are given up.
    fn unblock(&mut self, view: &QueueView) {
        let Some(queue) = self.queues.iter().position(|queue| queue.drawn.name == view.name) else {
            self.fail(format!("nobody has defined {}", view.name))
        };
        // Of two changes under way at once, nobody knows which one is in force.
        if view.stats.paused && !self.is_asked_to_change(queue) {
            self.queues[queue].changing = false;
            self.pause(queue, false);
        }
        let replaying = self.known.replaying.iter().any(|(of, ..)| *of == queue);
        if view.stats.dead >= view.settings.dead_letter.max_messages && !replaying {
            self.queues[queue].replayed = !self.queues[queue].replayed;
            if self.queues[queue].replayed {
                self.replay(queue, None);
            } else {
                self.give_up_some(queue);
            }
        }
    }

    fn give_up_some(&mut self, queue: usize) {
        let name = self.queues[queue].drawn.name.clone();
        for _ in 0..ROUNDS {
            let command =
                Command::List { queue: name.clone(), phase: Some(Phase::Dead), after: None, limit: 20 };
            let Reply::Messages(Ok((dead, _))) = self.ask_and_wait(command) else { return };
            for one in dead {
                let seq = one.message.seq;
                let asked = Asked::Bury { seq, sent: self.now.0 };
                self.ask(Command::DeleteDead { queue: name.clone(), seq }, asked);
            }
            // What has expired takes the place of what is gone.
            let next = self.now.plus(Duration::from_millis(20));
            self.run(next, |_| false);
        }
    }

    /// Afterwards: nothing in flight, a log that is no longer than it may be.
    fn rest(&mut self) {
        let until = self.now.plus(REST);
        self.run(until, |_| false);
        let (queues, targets) = self.views();
        for view in &queues {
            if view.stats.leased > 0 || view.stats.bytes > 0 {
                self.fail(format!("{} has drained, and holds {:?}", view.name, view.stats));
            }
        }
        if let Some(target) = targets.iter().find(|target| target.inflight > 0) {
            self.fail(format!("{} is still called: {target:?}", target.name));
        }
        let segment = u64::from(self.plan.segment_bytes);
        let host = self.host.as_ref().expect("nothing goes wrong any more");
        let (live, _) = host.machine().log_bytes();
        let used = self.disk.used_bytes();
        // Version, salt and secret lie beside the log.
        if used > 2 * live + SEGMENTS_BEYOND * segment + 4_096 {
            self.fail(format!("{used} bytes on the disk for {live} live ones in segments of {segment}"));
        }
    }

    fn list_all(&mut self, queue: usize) -> Vec<(Seq, Phase)> {
        let name = self.queues[queue].drawn.name.clone();
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let command = Command::List { queue: name.clone(), phase: None, after, limit: 500 };
            match self.ask_and_wait(command) {
                Reply::Messages(Ok((statuses, go_on))) => {
                    found.extend(statuses.iter().map(|one| (one.message.seq, one.message.phase)));
                    if go_on.is_none() {
                        return found;
                    }
                    after = go_on;
                }
                Reply::Messages(Err(_)) => return found,
                other => self.fail(format!("{other:?}")),
            }
        }
    }

    /// Everything that is known or listed, with where it stands.
    fn everything(&mut self) -> BTreeMap<Seq, (usize, Stand)> {
        let mut all = BTreeMap::new();
        for queue in 0..self.queues.len() {
            for (seq, phase) in self.list_all(queue) {
                if all.insert(seq, (queue, stand(phase))).is_some() {
                    self.fail(format!("{seq:?} is listed twice"));
                }
            }
        }
        let known: Vec<_> = self.known.ids.iter().map(|(seq, known)| (*seq, known.queue)).collect();
        for (seq, queue) in known {
            if all.contains_key(&seq) {
                continue;
            }
            let Reply::Status(result) = self.ask_and_wait(Command::Status { seq, wait: None }) else {
                self.fail("a question for a status was answered otherwise")
            };
            let is = match result {
                // Its queue was deleted, so nothing lists it.
                Ok(status) => stand(status.message.phase),
                Err(millpond_core::command::LookupError::Forgotten) => Stand::Forgotten,
                Err(error) => self.fail(format!("{seq:?} was acknowledged: {error}")),
            };
            all.insert(seq, (queue, is));
        }
        all
    }

    /// Whether a message expired while nobody was there to see it, and was found to have. Where the clock stepped,
    /// nobody can tell.
    fn mark_expired_while_down(&mut self, all: &BTreeMap<Seq, (usize, Stand)>) {
        let mut downtimes: Vec<(Micros, Micros)> = Vec::new();
        let (mut died, mut handed) = (None, BTreeSet::new());
        for event in &self.trail {
            match event {
                Event::Death { at, .. } => died = Some(*at),
                Event::Boot { at } => downtimes.extend(died.take().map(|died| (died, *at))),
                Event::HandOut(one) => {
                    handed.insert(one.id);
                }
                Event::Step { .. } => return,
                _ => {}
            }
        }
        let is_found = self.trail.iter().any(|event| {
            let Event::Offer(offer) = event else { return false };
            let Offered::Accepted(id) = offer.answer else { return false };
            let expires = offer.span.ended.saturating_add(offer.ttl);
            let down = downtimes.iter().any(|(from, until)| (*from..*until).contains(&expires));
            let is = all.get(&Seq(id)).map(|(_, is)| *is);
            down && !handed.contains(&id) && matches!(is, Some(Stand::Dead | Stand::Expired))
        });
        if is_found {
            self.reach("seen: expired while nobody was there");
        }
    }

    fn look_back(&mut self) {
        if !self.known.replaying.is_empty() {
            self.fail(format!("replays do not end: {:?}", self.known.replaying));
        }
        self.check_tellers();
        let all = self.everything();
        self.mark_expired_while_down(&all);
        for (seq, (queue, is)) in all {
            let host = self.host.as_ref().expect("nothing goes wrong any more");
            let payload = (is == Stand::Dead).then(|| payload(&host.machine().locate(seq))).flatten();
            if is == Stand::Dead && payload.is_none() {
                self.fail(format!("the bytes of the dead letter {seq:?} are gone"));
            }
            let queue = u32::try_from(queue).expect("few");
            self.trail.push(Event::End { id: seq.0, queue, stand: is, payload, at: self.now.0 });
        }
    }

    /// A restart changes nothing but what time forgets.
    fn look_after_restart(&mut self) {
        let before = self.everything();
        self.do_fault(Fault::Kill);
        let until = self.now.plus(Duration::from_secs(2));
        self.run(until, |world| world.host.is_some());
        let after = self.everything();
        for (seq, (_, was)) in before {
            let is = after.get(&seq).map(|(_, is)| *is);
            // What is past its retention goes at its time. By other settings, or another clock, that may lie ahead
            // again.
            if is != Some(was) && was != Stand::Forgotten && !matches!(is, None | Some(Stand::Forgotten)) {
                self.fail(format!("{seq:?} was {was:?}, and is {is:?} after a restart"));
            }
        }
    }
}
