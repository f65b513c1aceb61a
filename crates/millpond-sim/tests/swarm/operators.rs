//! Operators: they define, change, pause, resume, delete; they withdraw, replay, bury; they look.
//!
//! Owns what is asked. Must never have two changes of one queue under way: what is in force must be known.

use super::draw::{self, millis, percent};
use super::replies::Asked;
use super::world::{Task, World};
use millpond_core::command::{Command, QueueView};
use millpond_core::identity::Seq;
use millpond_core::message::Phase;
use millpond_core::rate::Rate;
use millpond_core::replay::{ReplayTask, ReplayWhich, ReplayWish};
use millpond_core::settings::QueueSettings;
use millpond_core::stats::Held;
use millpond_testkit::trail::{Answer, Micros, Span};
use std::time::Duration;

impl World {
    pub(super) fn operate(&mut self) {
        if self.healing {
            return;
        }
        let pause = millis(&mut self.chance, 20, 1_500);
        self.after(pause, Task::Operate);
        if self.host.is_none() {
            return;
        }
        let queue = self.chance.usize(..self.queues.len());
        if !self.queues[queue].exists && !self.queues[queue].changing {
            // Sometimes somebody asks for what is not there before it is.
            if self.likely(70) {
                self.define(queue, self.settings(queue).clone());
            }
            return;
        }
        if !self.likely(self.plan.habits.operator) {
            return;
        }
        match self.chance.u32(..20) {
            0 => self.pause(queue, true),
            1 | 2 => self.pause(queue, false),
            3 | 4 => {
                let settings = draw::settings(&mut self.chance, &self.plan.targets);
                self.define(queue, settings);
            }
            5 => self.define_badly(queue),
            6..9 => self.cancel(),
            9 | 10 => self.replay_some(queue),
            11 => self.replay(queue, None),
            12 if self.chance.bool() => self.bury(queue),
            12 => self.cancel_replay(queue),
            13 => self.delete_queue(queue),
            14 | 18 | 19 => self.list(queue),
            15 if self.chance.bool() => self.purge(queue),
            15 => {
                self.ask(Command::Overview, Asked::Overview);
            }
            _ => self.look_at_random(),
        }
    }

    fn name(&self, queue: usize) -> millpond_core::name::Name {
        self.queues[queue].drawn.name.clone()
    }

    fn define(&mut self, queue: usize, settings: QueueSettings) {
        if self.queues[queue].changing {
            return;
        }
        self.queues[queue].changing = true;
        let asked = Asked::Define { queue, settings: Box::new(settings.clone()), sent: self.now.0 };
        let queue = self.name(queue);
        self.ask(Command::Define { queue, settings: Box::new(settings) }, asked);
    }

    fn define_badly(&mut self, queue: usize) {
        let mut settings = self.settings(queue).clone();
        if self.chance.bool() {
            settings.retry.max_attempts = 0;
        } else {
            settings.target = Some(draw::name("nowhere"));
        }
        let queue = self.name(queue);
        self.ask(Command::Define { queue, settings: Box::new(settings) }, Asked::Nobody);
    }

    pub(super) fn defined(&mut self, queue: usize, settings: QueueSettings, sent: Micros, granted: bool) {
        self.queues[queue].changing = false;
        if granted {
            self.queues[queue].exists = true;
            self.queues[queue].drawn.settings = settings;
            self.note_rules(queue, self.span_from(sent));
        }
    }

    /// The old rules or the new ones are in force, until somebody looks.
    pub(super) fn define_unknown(&mut self, queue: usize, settings: QueueSettings, sent: Micros) {
        let before = std::mem::replace(&mut self.queues[queue].drawn.settings, settings);
        self.note_rules(queue, Span { sent, ended: Micros::MAX });
        self.queues[queue].drawn.settings = before;
    }

    /// What the server says is in force.
    pub(super) fn overview(&mut self, views: &[QueueView]) {
        self.mark_views(views);
        for queue in 0..self.queues.len() {
            let view = views.iter().find(|view| view.name == self.queues[queue].drawn.name);
            if self.is_asked_to_change(queue) {
                continue;
            }
            self.queues[queue].changing = false;
            self.queues[queue].exists = view.is_some();
            let Some(view) = view else {
                self.queues[queue].paused_since = None;
                continue;
            };
            if self.queues[queue].paused_since.is_some() && !view.stats.paused {
                self.fail(format!("{} was paused, and is not any more", view.name));
            }
            self.queues[queue].paused_since = view.stats.paused.then_some(self.now.0);
            self.queues[queue].drawn.settings = view.settings.clone();
            self.note_rules(queue, self.span_from(self.now.0));
        }
    }

    /// Whether a change of a queue is under way.
    pub(super) fn is_asked_to_change(&self, queue: usize) -> bool {
        self.asked.values().any(|asked| match asked {
            Asked::Define { queue: of, .. }
            | Asked::Delete { queue: of, .. }
            | Asked::Pause { queue: of, .. } => *of == queue,
            _ => false,
        })
    }

    /// What an operator can see of queues.
    pub(super) fn mark_views(&mut self, views: &[QueueView]) {
        for QueueView { stats, .. } in views {
            match stats.held {
                Some(Held::DeadBurst) => self.reach("held: a burst of dead letters"),
                Some(Held::DeadLettersFull) => self.reach("held: dead letters are full"),
                Some(Held::StorageFull) => self.reach("held: the disk is full"),
                Some(Held::BreakerOpen) => self.reach("held: a breaker is open"),
                _ => {}
            }
            if stats.totals.keys_forgotten > 0 {
                self.reach("seen: keys forgotten for want of room");
            }
        }
    }

    /// Whoever edits the configuration file does so while the server is down.
    pub(super) fn change_configuration(&mut self) {
        for queue in 0..self.queues.len() {
            if self.queues[queue].drawn.declared && percent(&mut self.chance, 15) {
                self.queues[queue].drawn.settings = draw::settings(&mut self.chance, &self.plan.targets);
                self.note_rules(queue, self.span_from(self.now.0));
            }
        }
    }

    pub(super) fn pause(&mut self, queue: usize, paused: bool) {
        if self.queues[queue].changing {
            return;
        }
        self.queues[queue].changing = true;
        let asked = Asked::Pause { queue, paused, sent: self.now.0 };
        let queue = self.name(queue);
        self.ask(Command::Pause { queue, paused }, asked);
    }

    fn purge(&mut self, queue: usize) {
        let asked = Asked::Purge { queue, sent: self.now.0 };
        let name = self.name(queue);
        self.ask(Command::Purge(name), asked);
    }

    fn delete_queue(&mut self, queue: usize) {
        if self.queues[queue].changing {
            return;
        }
        self.queues[queue].changing = true;
        let asked = Asked::Delete { queue, sent: self.now.0 };
        let name = self.name(queue);
        self.ask(Command::Delete(name), asked);
    }

    /// Some message that somebody was told of; more likely one of the last.
    fn some_message(&mut self) -> Option<Seq> {
        let recent: Vec<Seq> = self.known.ids.keys().rev().take(40).copied().collect();
        (!recent.is_empty()).then(|| recent[self.chance.usize(..recent.len())])
    }

    fn cancel(&mut self) {
        let Some(seq) = self.some_message() else { return };
        let asked = Asked::Cancel { seq, sent: self.now.0 };
        self.ask(Command::Cancel(seq), asked);
    }

    pub(super) fn look(&mut self, seq: Seq) {
        if self.host.is_some() {
            let asked = Asked::Look { seq, sent: self.now.0 };
            self.ask(Command::Status { seq, wait: None }, asked);
        }
    }

    fn look_at_random(&mut self) {
        if self.likely(5) {
            let asked = Asked::Nobody;
            self.ask(Command::Status { seq: Seq(1 << 40), wait: None }, asked);
        } else if self.likely(20) {
            // Somebody waits for the end.
            let Some(seq) = self.some_message() else { return };
            let wait = Some(Duration::from_secs(self.chance.u64(1..5)));
            self.ask(Command::Status { seq, wait }, Asked::Nobody);
        } else if let Some(seq) = self.some_message() {
            self.look(seq);
        }
    }

    fn list(&mut self, queue: usize) {
        let phase = percent(&mut self.chance, 50).then_some(Phase::Dead);
        let queue = self.name(queue);
        let asked = if phase.is_some() { Asked::ListDead } else { Asked::Nobody };
        self.ask(Command::List { queue, phase, after: None, limit: 20 }, asked);
    }

    /// Known messages of a queue; whether they are dead letters is for the engine to say.
    fn of_queue(&mut self, queue: usize) -> Vec<Seq> {
        let known = self.known.ids.iter().rev();
        known.filter(|(_, known)| known.queue == queue).map(|(seq, _)| *seq).take(60).collect()
    }

    fn dead_of(&mut self, queue: usize) -> Vec<Seq> {
        let of_queue = self.of_queue(queue);
        self.known_dead(&of_queue)
    }

    /// Those that records say are dead letters: operators look before they replay. Some do not.
    fn known_dead(&mut self, of_queue: &[Seq]) -> Vec<Seq> {
        let careless = self.likely(10);
        of_queue.iter().copied().filter(|seq| careless || self.known.dead.contains(seq)).collect()
    }

    fn replay_some(&mut self, queue: usize) {
        let mut ids = self.dead_of(queue);
        ids.truncate(self.chance.usize(1..=4));
        if !ids.is_empty() {
            self.replay(queue, Some(ids));
        }
    }

    pub(super) fn replay(&mut self, queue: usize, ids: Option<Vec<Seq>>) {
        let which = ids.clone().map_or(ReplayWhich::All, ReplayWhich::These);
        // Who heals means the old ones too.
        let mut wish = ReplayWish { older: self.healing, ..ReplayWish::plain(which) };
        if !self.healing && self.likely(30) {
            wish.rate = Some(Rate { events: self.chance.u32(1..20), per: Duration::from_secs(1) });
        }
        if self.likely(20) {
            wish.ttl = Some(millis(&mut self.chance, 1_000, 30_000));
        }
        let dry_run = !self.healing && self.likely(10);
        let name = self.name(queue);
        let asked = if dry_run { Asked::Nobody } else { Asked::Replay { queue, ids, sent: self.now.0 } };
        self.ask(Command::Replay { queue: name, wish, dry_run }, asked);
    }

    fn cancel_replay(&mut self, queue: usize) {
        let number = self.chance.u32(1..5);
        let queue = self.name(queue);
        self.ask(Command::CancelReplay { queue, number }, Asked::Nobody);
    }

    /// Somebody looks whether the replays that were begun are over.
    pub(super) fn look_at_replays(&mut self) {
        self.after(Duration::from_millis(400), Task::Replays);
        let mut queues: Vec<usize> = self.known.replaying.iter().map(|(queue, ..)| *queue).collect();
        queues.dedup();
        if self.host.is_none() {
            return;
        }
        for queue in queues {
            let asked = Asked::Replays { queue, sent: self.now.0 };
            let name = self.name(queue);
            self.ask(Command::Replays(name), asked);
        }
    }

    /// What was asked for before `sent` is over, if nothing runs.
    pub(super) fn saw_replays(&mut self, queue: usize, sent: Micros, tasks: &[ReplayTask]) {
        if tasks.iter().any(ReplayTask::is_running) {
            let before = |began: Micros| began < self.booted_at;
            if self.known.replaying.iter().any(|(of, _, began)| *of == queue && before(*began)) {
                self.reach("seen: a replay that goes on after a restart");
            }
            return;
        }
        let replaying = std::mem::take(&mut self.known.replaying);
        for (of, ids, began) in replaying {
            if of == queue && began < sent {
                self.note_replay(of, ids, began, Answer::Unknown);
            } else {
                self.known.replaying.push((of, ids, began));
            }
        }
    }

    fn bury(&mut self, queue: usize) {
        let Some(seq) = self.dead_of(queue).first().copied() else { return };
        let asked = Asked::Bury { seq, sent: self.now.0 };
        let queue = self.name(queue);
        self.ask(Command::DeleteDead { queue, seq }, asked);
    }
}
