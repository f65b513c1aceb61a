//! When somebody must look: which alerts fire, which clear, and what is said of them.
//!
//! Owns the rules, how long a condition must hold before an alert fires and before it clears, and what is remembered of
//! those that have cleared. Must never tell anybody: changes come out, the server passes them on. Nothing outlives a
//! restart: what still holds then fires again.

mod reading;
mod rule;
mod settings;
mod track;
mod window;
mod words;

pub use reading::REFUSALS_LEAST;
pub use rule::{Rule, Severity, Unit};
pub use settings::{AlertSettings, HOLD_MAX, ServerAlertSettings};
pub use window::WINDOW;

use crate::command::QueueView;
use crate::name::Name;
use crate::stats::TargetStats;
use crate::time::{Now, Wall};
use reading::Reading;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use track::{Step, Track};
use window::Window;

/// A firing alert clears only below this share of its threshold: a value at the edge is one episode, not many.
pub const CLEARS_BELOW: f64 = 0.8;
/// Alerts that have cleared are shown for so long.
pub const CLEARED_FOR: Duration = Duration::from_hours(1);
/// And so many of them at most.
pub const CLEARED_MAX: usize = 100;

/// What an alert is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// This server.
    Server,
    /// A queue.
    Queue(Name),
    /// A target.
    Target(Name),
}

/// One alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// What must not be.
    pub rule: Rule,
    /// Where it is.
    pub subject: Subject,
    /// Who looks after it.
    pub owner: Option<String>,
    /// Since when it is so.
    pub since: Wall,
    /// When the alert fired: once it had been so for long enough.
    pub fired: Wall,
    /// When it cleared.
    pub cleared: Option<Wall>,
    /// The value, in the rule's unit; the latest one while it fires, then the last.
    pub value: f64,
    /// What the value must not reach, in the same unit.
    pub threshold: f64,
}

/// An alert has fired, or, where it says when, cleared.
#[derive(Debug, Clone, PartialEq)]
pub struct Change(pub Alert);

/// What one look at the engine has found.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Every queue.
    pub queues: &'a [QueueView],
    /// Every target.
    pub targets: &'a [TargetStats],
    /// The log.
    pub log: LogSeen,
}

/// What has been seen of the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogSeen {
    /// Its disk has no room for new work.
    pub full: bool,
    /// Commits since the start.
    pub commits: u64,
    /// The time that they have taken together.
    pub commit_seconds: f64,
}

type Tracks = [Track; Rule::ALL.len()];

/// What is remembered of one subject.
#[derive(Debug, Default)]
struct Watched {
    tracks: Tracks,
    window: Window,
    /// The look that has found it last.
    look: u64,
}

/// Follows every rule of every subject. Its memory is bounded by the number of queues and targets.
#[derive(Debug, Default)]
pub struct Watch {
    settings: ServerAlertSettings,
    look: u64,
    watched: BTreeMap<Subject, Watched>,
    cleared: VecDeque<Alert>,
    changes: [[u64; 2]; Rule::ALL.len()],
}

impl Watch {
    /// Nothing fires yet.
    pub fn new(settings: ServerAlertSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes one look. To be called about once a second; after a longer pause, what was so before and after counts as
    /// having been so all the time.
    pub fn look(&mut self, seen: &Seen<'_>, now: Now) -> Vec<Change> {
        self.look += 1;
        let mut changes = Vec::new();
        let settings = self.settings.clone();
        self.take(&Subject::Server, None, now, &mut changes, |watched| {
            let passed = watched.window.passed([seen.log.commits as f64, seen.log.commit_seconds], now.mono);
            reading::of_server(&settings, &seen.log, passed)
        });
        for queue in seen.queues {
            let owner = queue.settings.dead_letter.owner.as_deref();
            self.take(&Subject::Queue(queue.name.clone()), owner, now, &mut changes, |watched| {
                let totals = &queue.stats.totals;
                let counted = [totals.accepted() as f64, totals.refused() as f64];
                let passed = watched.window.passed(counted, now.mono);
                reading::of_queue(queue, passed)
            });
        }
        for target in seen.targets {
            self.take(&Subject::Target(target.name.clone()), None, now, &mut changes, |_| {
                reading::of_target(&settings, target)
            });
        }
        self.forget_gone(now, &mut changes);
        for Change(alert) in &changes {
            self.changes[alert.rule.index()][usize::from(alert.cleared.is_some())] += 1;
        }
        self.keep_cleared(&changes, now);
        changes
    }

    /// Every alert that fires, the gravest first, then the oldest.
    pub fn firing(&self) -> Vec<Alert> {
        let tracks = self.watched.iter().flat_map(|(subject, watched)| {
            let numbered = Rule::ALL.into_iter().zip(&watched.tracks);
            numbered.filter_map(|(rule, track)| track.alert(rule, subject))
        });
        let mut firing: Vec<Alert> = tracks.collect();
        firing.sort_by(|one, other| {
            (one.rule.severity(), one.since, &one.subject, one.rule).cmp(&(
                other.rule.severity(),
                other.since,
                &other.subject,
                other.rule,
            ))
        });
        firing
    }

    /// Those that have cleared lately, the latest first.
    pub fn cleared(&self) -> impl Iterator<Item = &Alert> {
        self.cleared.iter().rev()
    }

    /// Every rule that is followed, where, and whether its alert fires.
    pub fn followed(&self) -> impl Iterator<Item = (&Subject, Rule, bool)> {
        self.watched.iter().flat_map(|(subject, watched)| {
            let numbered = Rule::ALL.into_iter().zip(&watched.tracks);
            let followed = numbered.filter(|(_, track)| track.is_followed());
            followed.map(move |(rule, track)| (subject, rule, track.is_firing()))
        })
    }

    /// How often each rule's alerts have fired, and cleared, since the start.
    pub fn changes(&self) -> impl Iterator<Item = (Rule, [u64; 2])> {
        Rule::ALL.into_iter().zip(self.changes)
    }

    /// Takes what a look has found of one subject.
    fn take<'a>(
        &mut self,
        subject: &Subject,
        owner: Option<&str>,
        now: Now,
        changes: &mut Vec<Change>,
        read: impl FnOnce(&mut Watched) -> Vec<Reading> + 'a,
    ) {
        let watched = self.watched.entry(subject.clone()).or_default();
        watched.look = self.look;
        let readings = read(watched);
        for (rule, track) in Rule::ALL.into_iter().zip(&mut watched.tracks) {
            let reading = readings.iter().find(|reading| reading.rule == rule);
            let was = track.alert(rule, subject);
            match track.step(reading, owner, now) {
                Step::Nothing => {}
                Step::Fired => changes.extend(track.alert(rule, subject).map(Change)),
                Step::Cleared { value } => {
                    let value = value.or_else(|| was.as_ref().map(|alert| alert.value)).unwrap_or_default();
                    changes
                        .extend(was.map(|alert| Change(Alert { cleared: Some(now.wall), value, ..alert })));
                }
            }
        }
    }

    /// Whatever is not there any more needs nobody.
    fn forget_gone(&mut self, now: Now, changes: &mut Vec<Change>) {
        let look = self.look;
        self.watched.retain(|subject, watched| {
            let is_there = watched.look == look;
            if !is_there {
                let numbered = Rule::ALL.into_iter().zip(&watched.tracks);
                let firing = numbered.filter_map(|(rule, track)| track.alert(rule, subject));
                changes.extend(firing.map(|alert| Change(Alert { cleared: Some(now.wall), ..alert })));
            }
            is_there
        });
    }

    fn keep_cleared(&mut self, changes: &[Change], now: Now) {
        let cleared = changes.iter().map(|Change(alert)| alert).filter(|alert| alert.cleared.is_some());
        self.cleared.extend(cleared.cloned());
        let is_old = |alert: &Alert| alert.cleared.is_some_and(|at| now.wall.since(at) > CLEARED_FOR);
        while self.cleared.len() > CLEARED_MAX || self.cleared.front().is_some_and(is_old) {
            self.cleared.pop_front();
        }
    }
}
