//! One rule in one place over time: quiet, pending, firing.
//!
//! Owns the holds before an alert fires and before it clears. Must never know what the value means.

use super::reading::Reading;
use super::{Alert, Rule, Subject};
use crate::time::{Mono, Now, Wall};
use std::time::Duration;

/// What a look has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Nothing,
    Fired,
    /// With the value that it cleared at, where there is one.
    Cleared {
        value: Option<f64>,
    },
}

/// One rule in one place.
#[derive(Debug, Default)]
pub(super) struct Track {
    followed: bool,
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Quiet,
    Pending {
        since: (Mono, Wall),
    },
    Firing(Box<Firing>),
}

#[derive(Debug)]
struct Firing {
    owner: Option<String>,
    since: Wall,
    fired: Wall,
    value: f64,
    threshold: f64,
    under_since: Option<Mono>,
}

impl Track {
    /// Takes what the rule says now; nothing if it is not followed (any more).
    pub(super) fn step(&mut self, reading: Option<&Reading>, owner: Option<&str>, now: Now) -> Step {
        self.followed = reading.is_some();
        let Some(reading) = reading else {
            let was_firing = self.is_firing();
            self.phase = Phase::Quiet;
            return if was_firing { Step::Cleared { value: None } } else { Step::Nothing };
        };
        if let Phase::Firing(firing) = &mut self.phase {
            let clears = firing.step(reading, owner, now.mono);
            if clears {
                self.phase = Phase::Quiet;
                return Step::Cleared { value: Some(reading.value) };
            }
            return Step::Nothing;
        }
        if !reading.over {
            self.phase = Phase::Quiet;
            return Step::Nothing;
        }
        let since = match self.phase {
            Phase::Pending { since } => since,
            _ => (now.mono, now.wall),
        };
        let hold = if reading.rule.waits() { reading.hold } else { Duration::ZERO };
        if now.mono.since(since.0) < hold {
            self.phase = Phase::Pending { since };
            return Step::Nothing;
        }
        self.phase = Phase::Firing(Box::new(Firing {
            owner: owner.map(str::to_owned),
            since: since.1,
            fired: now.wall,
            value: reading.value,
            threshold: reading.threshold,
            under_since: None,
        }));
        Step::Fired
    }

    /// Whether the rule is followed here.
    pub(super) fn is_followed(&self) -> bool {
        self.followed
    }

    /// Whether its alert fires.
    pub(super) fn is_firing(&self) -> bool {
        matches!(self.phase, Phase::Firing(_))
    }

    /// Its alert, while it fires.
    pub(super) fn alert(&self, rule: Rule, subject: &Subject) -> Option<Alert> {
        let Phase::Firing(firing) = &self.phase else { return None };
        Some(Alert {
            rule,
            subject: subject.clone(),
            owner: firing.owner.clone(),
            since: firing.since,
            fired: firing.fired,
            cleared: None,
            value: firing.value,
            threshold: firing.threshold,
        })
    }
}

impl Firing {
    /// Whether it clears.
    fn step(&mut self, reading: &Reading, owner: Option<&str>, now: Mono) -> bool {
        if !reading.under {
            self.under_since = None;
        }
        (self.value, self.threshold) = (reading.value, reading.threshold);
        if self.owner.as_deref() != owner {
            self.owner = owner.map(str::to_owned);
        }
        reading.under && now.since(*self.under_since.get_or_insert(now)) >= reading.hold
    }
}
