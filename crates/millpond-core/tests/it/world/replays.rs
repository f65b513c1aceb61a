//! Replays of dead letters: asked for, cancelled, and judged as they go.
//!
//! Owns what a replay may do, and that it forgets nobody. Which task is running is read off the log.

use super::shape::{label, names};
use super::{Answer, Due, World};
use millpond_core::command::Command;
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::rate::Rate;
use millpond_core::record::Record;
use millpond_core::replay::{ReplayFilter, ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::time::{Mono, Wall};
use millpond_testkit::model::Message;
use std::time::Duration;

/// Which dead letters of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    All,
    /// One of them.
    One(usize),
    /// Those of a tenant.
    Tenant(u8),
}

/// A replay that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) which: Which,
    pub(crate) per_second: Option<u32>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) dry_run: bool,
}

/// When a queue's running replay, by its number, put something back.
#[derive(Debug, Default)]
pub(super) struct Paced {
    task: u32,
    at: Vec<Mono>,
}

fn is_meant(task: &ReplayTask, seq: u64, message: &Message) -> bool {
    let wanted = match &task.wish.which {
        ReplayWhich::These(seqs) => seqs.contains(&Seq(seq)),
        ReplayWhich::Filter(filter) => filter.tenant == message.labels.tenant.map(label),
        ReplayWhich::All => true,
    };
    wanted && seq <= task.through.0 && message.place < task.before_place
}

impl World {
    fn tasks(&self, queue: usize) -> &[ReplayTask] {
        let name = &names()[queue];
        let latest = self.log.iter().rev().find_map(|record| match record {
            Record::Queue(record) if record.name == *name => Some(&record.replays[..]),
            _ => None,
        });
        latest.unwrap_or(&[])
    }

    pub(super) fn running(&self, queue: usize) -> Option<&ReplayTask> {
        self.tasks(queue).last().filter(|task| task.is_running())
    }

    pub(crate) fn replay(&mut self, queue: usize, wanted: Wanted) {
        let dead: Vec<u64> = self.model.of(queue, Phase::Dead).map(|(seq, _)| seq).collect();
        let which = match wanted.which {
            Which::All => ReplayWhich::All,
            Which::One(pick) => match dead.get(pick % dead.len().max(1)) {
                Some(&seq) => ReplayWhich::These(vec![Seq(seq)]),
                None => return,
            },
            Which::Tenant(tenant) => {
                ReplayWhich::Filter(ReplayFilter { tenant: Some(label(tenant)), ..ReplayFilter::default() })
            }
        };
        self.begin_step();
        let meant = self.model.of(queue, Phase::Dead).filter(|(seq, message)| match &which {
            ReplayWhich::These(seqs) => seqs.contains(&Seq(*seq)),
            ReplayWhich::Filter(filter) => filter.tenant == message.labels.tenant.map(label),
            ReplayWhich::All => true,
        });
        let count = meant.count() as u64;
        let expected = (wanted.dry_run || self.running(queue).is_none()).then_some(count);
        let rate = wanted.per_second.map(|events| Rate { events, per: Duration::from_secs(1) });
        let wish = ReplayWish { which, rate, ttl: wanted.ttl, older: false };
        let starts = expected.is_some() && !wanted.dry_run;
        let gate = if starts { self.log.len() + 1 } else { 0 };
        let name = names()[queue].clone();
        let request = self.ask(Command::Replay { queue: name, wish, dry_run: wanted.dry_run });
        self.due.insert(request, Due { answer: Answer::Replayed(expected), gates: Vec::new(), gate });
        self.end_step();
    }

    pub(crate) fn cancel_replay(&mut self, queue: usize) {
        let Some(number) = self.running(queue).map(|task| task.number) else { return };
        self.begin_step();
        let request = self.ask(Command::CancelReplay { queue: names()[queue].clone(), number });
        let gate = self.log.len() + 1;
        self.due.insert(request, Due { answer: Answer::ReplayCancelled, gates: Vec::new(), gate });
        self.end_step();
        self.model.mark("a replay is cancelled");
    }

    /// A dead letter goes back: a running replay means it, and its queue has room for it.
    pub(super) fn judge_replayed(&mut self, seq: u64, place: u64, expires: Wall) {
        let message = &self.model.messages[&seq];
        let (queue, bytes) = (message.queue, message.bytes);
        let task = self.running(queue).expect("only a running replay puts something back");
        assert!(is_meant(task, seq, message), "{seq} is replayed, and not meant by {task:?}");
        let (number, rate, ttl) = (task.number, task.wish.rate, task.wish.ttl);
        assert!(self.model.storage.takes_new_work());
        let settings = &self.model.queues[queue].settings;
        let (messages, held) = self.model.unfinished(queue);
        let fits =
            settings.max_messages.is_none_or(|max| messages < max) && held + bytes <= settings.max_bytes;
        let is_full = self.model.is_full_of_dead(queue);
        assert!(fits || is_full, "{seq} is replayed beyond a bound, and the dead letters are not full");
        if !fits {
            self.model.mark("a replay goes beyond the bounds of a queue that is full of dead letters too");
        }
        let paced = &mut self.paced[queue];
        if paced.task != number {
            *paced = Paced { task: number, at: Vec::new() };
        }
        paced.at.push(self.now.mono);
        if let Some(rate) = rate {
            for (index, start) in paced.at.iter().enumerate() {
                let window = self.now.mono.since(*start).as_secs_f64() + 2e-6;
                let count = (paced.at.len() - index) as f64;
                assert!(count <= rate.per_second() * window + 1.0, "{count} replayed in {window} s");
            }
        }
        self.model.replay(seq, place, expires, ttl, self.now);
    }

    /// While full dead letters hold a queue, a replay without a pace waits for nothing but the disk.
    pub(super) fn judge_stuck(&self, queue: usize) {
        let Some(task) = self.running(queue).filter(|task| task.wish.rate.is_none()) else { return };
        let free = self.model.storage.takes_new_work() && !self.clock_stepped;
        let meant = self
            .model
            .of(queue, Phase::Dead)
            .find(|(seq, message)| is_meant(task, *seq, message) && message.phase_begun() < task.created);
        assert!(!free || !self.model.is_full_of_dead(queue) || meant.is_none(), "{task:?} leaves {meant:?}");
    }

    /// A queue's record was written. Where it says that a replay is done, nobody was left behind whom it meant.
    pub(super) fn judge_tasks(&mut self, queue: usize, before: Option<ReplayTask>, tasks: &[ReplayTask]) {
        let Some(before) = before.filter(ReplayTask::is_running) else { return };
        let now = tasks.iter().find(|task| task.number == before.number);
        if now.is_none_or(|task| task.finished.is_none() || task.remaining() > 0) {
            return;
        }
        let left = self.model.of(queue, Phase::Dead).find(|(seq, message)| {
            is_meant(&before, *seq, message) && message.phase_begun() < before.created
        });
        assert!(left.is_none() || self.clock_stepped, "{before:?} is done, and has left {left:?} behind");
        self.model.mark("a replay is done");
    }

    pub(super) fn latest_task(&self, queue: usize) -> Option<ReplayTask> {
        self.tasks(queue).last().cloned()
    }
}
