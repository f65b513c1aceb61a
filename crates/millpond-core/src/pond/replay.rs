//! Dead letters: back to work, or gone for good.
//!
//! Owns replays: counted first, then done in bounded steps at their pace and within the queue's bounds, across
//! restarts. Only where full dead letters hold the queue do they go beyond its bounds. Must never replay what is not
//! dead, nor anything twice for one task, nor lose one on the way.

use super::timers::Timer;
use super::{Gated, Pond, Slots, View};
use crate::command::{QueueError, ReplayError, Reply, RequestId};
use crate::identity::Seq;
use crate::message::{Phase, QueueNumber};
use crate::name::Name;
use crate::rate::{Pacer, Rate};
use crate::record::Record;
use crate::replay::{
    ReplayList, ReplayPlan, ReplayState, ReplayTask, ReplayWhich, ReplayWish, Verdict, WaitsFor,
};
use crate::time::{Mono, Now};
use std::collections::VecDeque;
use std::time::Duration;

/// Dead letters that go back per step.
const REPLAY_STEP: usize = 128;
/// Dead letters looked at per step.
const SCAN_STEP: usize = 2048;
/// Dead letters looked at in one go within a step, so that a step that ends soon has looked at few.
const SCAN_CHUNK: usize = 64;
/// Replays that may be counted at once.
const SURVEYS_MAX: usize = 64;
/// How long a replay that finds no room in its queue, or on the disk, waits before it looks again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// What a pace may catch up on at once, so that high rates do not need a timer for every message.
const CATCH_UP_SECONDS: f64 = 0.05;
/// Longest error text in a filter, in bytes: that of the failures that it is looked for in.
const ERROR_TEXT_MAX: usize = crate::message::Failure::MESSAGE_BYTES_MAX;

/// The replays of one queue: at most one that runs, the last, and those remembered.
#[derive(Debug, Default)]
pub(super) struct Replays {
    pub(super) tasks: VecDeque<ReplayTask>,
    pacer: Option<Pacer>,
    /// When the running one goes on, while it waits.
    wake: Option<Mono>,
    /// What it waited for after its last step.
    waited_for: Option<WaitsFor>,
    /// More was counted than the queue's last record says.
    pub(super) uncounted: bool,
}

impl Replays {
    pub(super) fn running(&self) -> Option<&ReplayTask> {
        self.tasks.back().filter(|task| task.is_running())
    }

    fn running_mut(&mut self) -> Option<&mut ReplayTask> {
        self.tasks.back_mut().filter(|task| task.is_running())
    }

    /// Whether the running one waits, and for more than its pace.
    pub(super) fn waits_for_room(&self) -> bool {
        self.waits_for().is_some_and(|what| what != WaitsFor::Pace)
    }

    /// What the running one waits for.
    fn waits_for(&self) -> Option<WaitsFor> {
        self.waited_for.filter(|_| self.wake.is_some())
    }

    /// Counts one that went back.
    pub(super) fn count(&mut self) {
        if let Some(task) = self.running_mut() {
            task.replayed += 1;
            self.uncounted = true;
        }
    }
}

/// A replay that is being counted before it starts.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) request: RequestId,
    queue: QueueNumber,
    dry_run: bool,
    task: ReplayTask,
    /// The next dead letter to look at.
    from: Seq,
    samples: Vec<Seq>,
}

/// How a step of a replay ended.
enum Step {
    /// There is more to do.
    Again,
    /// There is, but not before this time.
    At(Mono),
    /// Nothing is left to do.
    Done,
}

fn pacer(rate: Option<Rate>) -> Option<Pacer> {
    rate.map(|rate| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, saturates")]
        let burst = (rate.per_second() * CATCH_UP_SECONDS) as u32;
        Pacer::new(rate, burst.max(1))
    })
}

impl Pond {
    // --- asking ----------------------------------------------------------------------------------------------

    pub(super) fn replay(
        &mut self,
        request: RequestId,
        queue: &Name,
        wish: ReplayWish,
        dry_run: bool,
        now: Now,
    ) {
        match self.survey(request, queue, wish, dry_run, now) {
            Ok(survey) => self.surveys.push_back(survey),
            Err(error) => self.reply(request, Reply::ReplayStarted(Err(error))),
        }
    }

    fn survey(
        &self,
        request: RequestId,
        queue: &Name,
        mut wish: ReplayWish,
        dry_run: bool,
        now: Now,
    ) -> Result<Survey, ReplayError> {
        let number = self.queue_named(queue).ok_or(ReplayError::UnknownQueue)?;
        let queue = self.queue_ref(number);
        if let Some(task) = queue.replays.running().filter(|_| !dry_run) {
            return Err(ReplayError::Running(task.number));
        }
        if self.surveys.len() >= SURVEYS_MAX {
            return Err(ReplayError::TooManyWaiting);
        }
        check_wish(&wish, queue.settings.retention)?;
        if let ReplayWhich::These(seqs) = &mut wish.which {
            if let Some(&other) = seqs.iter().find(|seq| !queue.dead.contains(seq)) {
                return Err(ReplayError::NotDead(other));
            }
            // A number may be named twice.
            seqs.sort_unstable();
            seqs.dedup();
        }
        let replayable_for = queue.settings.dead_letter.replayable_for;
        let task = ReplayTask {
            // Given when it starts: another one may come and go while this one is counted.
            number: 0,
            not_before: (!wish.older).then(|| now.wall.minus(replayable_for)),
            wish,
            created: now.wall,
            finished: None,
            state: ReplayState::Running,
            from: queue.dead.first().copied().unwrap_or_default(),
            through: queue.dead.last().copied().unwrap_or_default(),
            before_place: self.next,
            selected: 0,
            too_old: 0,
            replayed: 0,
        };
        let from = task.from;
        Ok(Survey { request, queue: number, dry_run, task, from, samples: Vec::new() })
    }

    pub(super) fn replays(&mut self, request: RequestId, queue: &Name, now: Now) {
        let result = match self.queue_named(queue) {
            Some(number) => {
                let replays = &self.queue_ref(number).replays;
                let tasks = replays.tasks.iter().cloned().collect();
                Ok(ReplayList { tasks, waits_for: replays.waits_for() })
            }
            None => Err(QueueError::Unknown),
        };
        // What is told of a replay must have happened for good.
        self.reply_when_synced(request, Reply::Replays(result), now);
    }

    pub(super) fn cancel_replay(&mut self, request: RequestId, queue: &Name, number: u32, now: Now) {
        let result = self.cancel_one_replay(queue, number, now);
        self.reply_when_synced(request, Reply::ReplayCancelled(result), now);
    }

    fn cancel_one_replay(&mut self, queue: &Name, task: u32, now: Now) -> Result<ReplayTask, ReplayError> {
        let number = self.queue_named(queue).ok_or(ReplayError::UnknownQueue)?;
        let tasks = &self.queue_ref(number).replays.tasks;
        let place = tasks.iter().position(|known| known.number == task);
        let place = place.ok_or(ReplayError::UnknownTask(task))?;
        if tasks[place].is_running() {
            self.end_replay(number, ReplayState::Cancelled, now);
            self.write_queue(number, true);
        }
        Ok(self.queue_ref(number).replays.tasks[place].clone())
    }

    // --- steps -----------------------------------------------------------------------------------------------

    /// Whether a replay wants to go on at once.
    pub(super) fn is_replaying(&self) -> bool {
        !self.surveys.is_empty() || (!self.replaying.is_empty() && !self.draining)
    }

    /// Takes up the replays that the log tells of.
    pub(super) fn resume_replays(&mut self, now: Now) {
        for index in 0..self.queues.len() {
            let number = self.queues[index].number;
            if self.queues[index].replays.running().is_none() {
                continue;
            }
            if self.queues[index].deleted {
                self.end_replay(number, ReplayState::Cancelled, now);
            } else {
                self.go_on(number);
            }
        }
    }

    fn go_on(&mut self, number: QueueNumber) {
        let replays = &mut self.queues[number.0 as usize].replays;
        replays.pacer = pacer(replays.running().and_then(|task| task.wish.rate));
        self.replaying.push(number);
    }

    /// A replay's wait is over.
    pub(super) fn replay_due(&mut self, index: usize) {
        self.queues[index].replays.wake = None;
        self.replaying.push(self.queues[index].number);
    }

    /// There may be room for a replay that waits for it.
    pub(super) fn wake_replay(&mut self, number: QueueNumber) {
        let replays = &mut self.queues[number.0 as usize].replays;
        if replays.waits_for_room()
            && let Some(at) = replays.wake.take()
        {
            self.timers.clear(at, Timer::Replay(number.0 as usize));
            self.replaying.push(number);
        }
    }

    /// Goes on with the replays under way, and with those that are being counted.
    pub(super) fn replay_step(&mut self, now: Now) {
        if let Some(survey) = self.surveys.pop_front() {
            self.survey_step(survey, now);
        }
        if self.draining || self.replaying.is_empty() {
            return;
        }
        // Others get their turn in between.
        let number = self.replaying.remove(0);
        match self.replay_some(number, now) {
            Step::Again => self.replaying.push(number),
            Step::At(at) => {
                let replays = &mut self.queue_mut(number).replays;
                assert!(replays.wake.is_none(), "a replay that waits is not stepped");
                replays.wake = Some(at);
                self.timers.set(at, Timer::Replay(number.0 as usize));
            }
            Step::Done => {
                self.end_replay(number, ReplayState::Done, now);
                // Not waited for: a restart before it is durable finds nothing left to do, and ends it again.
                self.write_queue(number, false);
            }
        }
    }

    fn survey_step(&mut self, mut survey: Survey, now: Now) {
        let found = self.candidates(survey.queue, &survey.task, survey.from, SCAN_STEP);
        for &seq in &found {
            match survey.task.verdict(&self.slot(seq).message, now.wall) {
                Verdict::Take => {
                    survey.task.selected += 1;
                    if survey.samples.len() < ReplayPlan::SAMPLES_MAX {
                        survey.samples.push(seq);
                    }
                }
                Verdict::TooOld => survey.task.too_old += 1,
                Verdict::NotMeant => {}
            }
        }
        if let (SCAN_STEP, Some(last)) = (found.len(), found.last()) {
            survey.from = Seq(last.0 + 1);
            return self.surveys.push_back(survey);
        }
        let Survey { request, queue, dry_run, task, samples, .. } = survey;
        let (selected, too_old) = (task.selected, task.too_old);
        let started = if dry_run { Ok(None) } else { self.start_replay(queue, task, now).map(Some) };
        let plan = started.map(|task| ReplayPlan { task, selected, too_old, samples });
        self.reply_when_synced(request, Reply::ReplayStarted(plan), now);
    }

    fn start_replay(
        &mut self,
        number: QueueNumber,
        mut task: ReplayTask,
        now: Now,
    ) -> Result<u32, ReplayError> {
        let replays = &mut self.queue_mut(number).replays;
        if let Some(other) = replays.running() {
            return Err(ReplayError::Running(other.number));
        }
        task.number = replays.tasks.back().map_or(1, |last| last.number + 1);
        let (name, any) = (task.number, task.selected > 0);
        replays.tasks.push_back(task);
        if any {
            self.go_on(number);
        } else {
            self.end_replay(number, ReplayState::Done, now);
        }
        self.write_queue(number, true);
        Ok(name)
    }

    /// The next dead letters that a task may mean, from `from` on.
    fn candidates(&self, number: QueueNumber, task: &ReplayTask, from: Seq, limit: usize) -> Vec<Seq> {
        let dead = &self.queue_ref(number).dead;
        match &task.wish.which {
            ReplayWhich::These(seqs) => {
                let rest = &seqs[seqs.partition_point(|seq| *seq < from)..];
                rest.iter().filter(|seq| dead.contains(seq)).take(limit).copied().collect()
            }
            ReplayWhich::Filter(_) | ReplayWhich::All if from <= task.through => {
                dead.range(from..=task.through).take(limit).copied().collect()
            }
            ReplayWhich::Filter(_) | ReplayWhich::All => Vec::new(),
        }
    }

    fn replay_some(&mut self, number: QueueNumber, now: Now) -> Step {
        let (mut moved, mut scanned) = (0, 0);
        loop {
            let task = self.queue_ref(number).replays.running().expect("only what runs is stepped");
            let found = self.candidates(number, task, task.from, SCAN_CHUNK);
            for &seq in &found {
                let replays = &mut self.queues[number.0 as usize].replays;
                let task = replays.running_mut().expect("just seen");
                task.from = seq;
                if task.verdict(&looked_up(&self.slots, seq).message, now.wall) == Verdict::Take {
                    if moved == REPLAY_STEP {
                        return Step::Again;
                    }
                    if let Some(at) = self.replay_must_wait(number, seq, now) {
                        return Step::At(at);
                    }
                    self.replay_one(seq, now);
                    moved += 1;
                }
            }
            let Some(last) = found.last() else { return Step::Done };
            let task = self.queue_mut(number).replays.running_mut().expect("just seen");
            task.from = Seq(last.0 + 1);
            scanned += found.len();
            if scanned >= SCAN_STEP {
                return Step::Again;
            }
        }
    }

    /// Until when the next one of a replay must wait: for room, or for the pace; `None`: it may go, and is counted.
    fn replay_must_wait(&mut self, number: QueueNumber, seq: Seq, now: Now) -> Option<Mono> {
        let wants_room = if self.storage.takes_new_work() {
            self.has_no_room_for(number, seq).then_some(WaitsFor::Room)
        } else {
            Some(WaitsFor::Disk)
        };
        let replays = &mut self.queue_mut(number).replays;
        replays.waited_for = wants_room.or(Some(WaitsFor::Pace));
        if wants_room.is_some() {
            return Some(now.mono.plus(LOOK_AGAIN_AFTER));
        }
        let pacer = replays.pacer.as_mut()?;
        if pacer.admit(now.mono) { None } else { Some(pacer.ready_at()) }
    }

    /// Whether a dead letter must wait until its queue has room for it.
    fn has_no_room_for(&self, number: QueueNumber, seq: Seq) -> bool {
        let queue = self.queue_ref(number);
        if queue.dead_letters_are_full() {
            // Nothing is handed out, so nothing would ever make room: as many go back beyond the bounds as there are
            // too many here. That is no new work, and no more is kept than before.
            return false;
        }
        let message = &self.slot(seq).message;
        let (class, bytes) = (message.criticality, u64::from(message.size_bytes));
        // Those who wait at the door for no lesser work come first: what a replay took from them bit by bit, they would
        // wait for in vain.
        queue.blocked.is_before(class) || self.excess(number, class, 1, bytes).is_some()
    }

    fn replay_one(&mut self, seq: Seq, now: Now) {
        let place = self.take_number();
        let slot = self.slot(seq);
        let number = slot.message.queue;
        let queue = self.queue_ref(number);
        let ttl = queue.replays.running().and_then(|task| task.wish.ttl);
        // The original expiry stands while it lies ahead; past it, the message gets a new life, or it would
        // die again at once.
        let expires = match ttl {
            Some(ttl) => now.wall.plus(ttl),
            None if slot.message.expires > now.wall => slot.message.expires,
            None => now.wall.plus(queue.settings.retention),
        };
        let op = self.emit_about(seq, Record::Replayed { seq, place, at: now.wall, expires });
        self.queue_mut(number).replays.count();
        self.shift(seq, Phase::Ready, None, |slot| {
            slot.visible = false;
            slot.due_since = now.mono;
            super::restore::restore_replay(&mut slot.message, place, now.wall, expires);
        });
        let expiry = now.mono_at(expires);
        let slot = self.slot_mut(seq);
        slot.expiry_timer = Some(expiry);
        let (number, ttl_micros) = (slot.message.queue, slot.message.ttl_micros());
        self.expiries.set(seq, expiry, ttl_micros);
        self.promise_replayed(number, seq, now);
        self.when_durable(op, Gated::Show(seq), now);
        // There is room among the dead letters.
        self.note_dead_letters(number, now);
        self.serve(number, now);
    }

    /// What goes back to work is promised a start like what is new, and held to it.
    fn promise_replayed(&mut self, number: QueueNumber, seq: Seq, now: Now) {
        let Some(outlook) = self.outlook(number, now) else { return };
        let (_, promise) = self.foresee(&self.slot(seq), Some(outlook), now);
        if let Some(promise) = promise {
            self.queue_mut(number).calibration.promised(seq, promise, &outlook, now.mono);
        }
    }

    /// Ends the running replay of a queue, without writing it down.
    pub(super) fn end_replay(&mut self, number: QueueNumber, state: ReplayState, now: Now) {
        self.replaying.retain(|other| *other != number);
        let replays = &mut self.queues[number.0 as usize].replays;
        if let Some(at) = replays.wake.take() {
            self.timers.clear(at, Timer::Replay(number.0 as usize));
        }
        let Some(task) = replays.running_mut() else { return };
        task.state = state;
        task.finished = Some(now.wall);
        if let ReplayWhich::These(seqs) = &mut task.wish.which {
            *seqs = Vec::new();
        }
        if replays.tasks.len() > ReplayTask::REMEMBERED {
            replays.tasks.pop_front();
        }
    }

    /// Ends what is going on with the dead letters of a queue that is deleted.
    pub(super) fn end_replays_of(&mut self, number: QueueNumber, now: Now) {
        self.end_replay(number, ReplayState::Cancelled, now);
        let (ended, others): (VecDeque<_>, VecDeque<_>) =
            self.surveys.drain(..).partition(|survey| survey.queue == number);
        self.surveys = others;
        for survey in ended {
            self.reply(survey.request, Reply::ReplayStarted(Err(ReplayError::UnknownQueue)));
        }
    }

    /// A running replay is either stepped or waits for its timer.
    pub(super) fn assert_replays(&self) {
        for queue in &self.queues {
            let stepped = self.replaying.iter().filter(|number| **number == queue.number).count();
            let waits = queue
                .replays
                .wake
                .is_some_and(|at| self.timers.contains(at, Timer::Replay(queue.number.0 as usize)));
            let runs = queue.replays.running().is_some();
            assert_eq!(stepped + usize::from(waits), usize::from(runs), "queue {}: its replay", queue.name);
            assert!(queue.replays.tasks.len() <= ReplayTask::REMEMBERED + 1);
        }
    }

    pub(super) fn delete_dead(&mut self, request: RequestId, queue: &Name, seq: Seq, now: Now) {
        let number: Option<QueueNumber> = self.queue_named(queue);
        let result = match number {
            None => Err(ReplayError::UnknownQueue),
            Some(number) if !self.queue_ref(number).dead.contains(&seq) => Err(ReplayError::NotDead(seq)),
            Some(_) => {
                self.emit(Record::Forgotten { seq }, true);
                self.forget(seq, now);
                Ok(())
            }
        };
        let op = self.last_synced;
        self.reply_when_durable(op, request, Reply::DeadDeleted(result), now);
    }
}

fn looked_up(slots: &Slots, seq: Seq) -> View<'_> {
    slots.get(seq).expect("a dead letter is kept")
}

fn check_wish(wish: &ReplayWish, retention: Duration) -> Result<(), ReplayError> {
    let out_of_range = |field, reason: String| Err(ReplayError::OutOfRange { field, reason });
    if wish.rate.is_some_and(|rate| rate.events == 0 || rate.per.is_zero()) {
        return out_of_range("rate", "must be at least one event per time, as in 30/m".to_owned());
    }
    if wish.ttl.is_some_and(|ttl| ttl.is_zero() || ttl > retention) {
        let most = crate::time::Spoken(retention);
        return out_of_range(
            "ttl",
            format!("must be longer than 0s and at most the queue's retention of {most}"),
        );
    }
    match &wish.which {
        ReplayWhich::These(seqs) if seqs.len() > ReplayTask::NAMED_MAX => {
            Err(ReplayError::TooManyNamed(ReplayTask::NAMED_MAX))
        }
        ReplayWhich::Filter(filter)
            if filter.error.as_ref().is_some_and(|text| text.len() > ERROR_TEXT_MAX) =>
        {
            out_of_range("error", format!("must have at most {ERROR_TEXT_MAX} bytes"))
        }
        _ => Ok(()),
    }
}
