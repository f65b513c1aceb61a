//! The circuit breaker of a target: whether it is up, as far as its calls tell.
//!
//! Owns the three states, as a function of the time and of how calls end. Must never choose a message, read a clock, or
//! outlive a restart: a breaker begins closed, and learns.
//!
//! In front of a queue a breaker differs from one in a client: nothing is refused while it is open. What waits goes on
//! waiting, and burns no attempt. So it may open late, on strong evidence, and probe for long. *Probes* are real messages,
//! first one, then two at once, with pauses between failed ones that double up to a bound and are jittered, so that many
//! servers in front of one target do not knock together. It closes once two more probes were answered than failed: a target
//! that fails every other call is not let alone for ever, and one that is down gets a single call a round.

use crate::settings::BreakerSettings;
use crate::time::Mono;
use std::time::Duration;

/// So many more answered probes than failed ones close it.
const CLOSES_AT: u32 = 2;
/// A failed probe's message comes back after so many pauses: meanwhile others are tried, for it may be the message that
/// the target cannot stand.
const RETURN_PAUSES: u32 = 4;

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls go out.
    Closed,
    /// None goes out before the next probe.
    Open,
    /// Probes go out.
    HalfOpen,
}

impl BreakerState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The word used on the wire and as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// What the end of a call says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It answered, if only that it wants no such message: it is up.
    Answered,
    /// It did not answer, or answered that it is broken.
    Failed,
    /// Nothing: it asked for a pause, or the call was given up.
    Nothing,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it began.
    pub started: Mono,
    /// What that says.
    pub sign: Sign,
    /// Calls that occupied the target just before, this one included.
    pub inflight: u32,
}

/// What has become of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It has opened, or opened again; the next probe goes out after so long.
    Opened(Duration),
    /// It has closed.
    Closed,
}

/// What comes of the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What has become of the breaker.
    pub change: Change,
    /// The call was a probe that failed: its message burns no attempt, and comes back after so long at least.
    pub failed_probe: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Mono,
    },
    HalfOpen {
        /// Probes under way.
        probing: u32,
        /// How many more were answered than failed.
        score: u32,
    },
}

/// The calls of one stretch of time.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Mono,
    ended: u32,
    failed: u32,
}

impl Window {
    const EMPTY: Self = Self { since: Mono(i64::MIN), ended: 0, failed: 0 };
}

/// The breaker of one target.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: BreakerSettings,
    state: State,
    /// Since when it has been in this state.
    since: Option<Mono>,
    failures_in_row: u32,
    window: Window,
    /// How often it has opened since it was closed.
    rounds: u32,
    /// When it opened last. What began before says nothing of the target as it is now.
    opened: Option<Mono>,
    /// When the latest round's first probe went out.
    probed: Option<Mono>,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            state: State::Closed,
            since: None,
            failures_in_row: 0,
            window: Window::EMPTY,
            rounds: 0,
            opened: None,
            probed: None,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Since when; `None`: since the start.
    pub fn since(&self) -> Option<Mono> {
        self.since
    }

    /// Failures since the latest answer.
    pub fn failures_in_row(&self) -> u32 {
        self.failures_in_row
    }

    /// Whether it has opened once since it was closed, and not again after failed probes.
    pub fn is_first_round(&self) -> bool {
        self.rounds == 1
    }

    /// When the next probe may go out, while it is open.
    pub fn next_probe(&self) -> Option<Mono> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    /// The earliest time for the next call, as far as the breaker goes.
    pub fn ready_at(&self) -> Mono {
        self.next_probe().unwrap_or(Mono(i64::MIN))
    }

    /// Whether there is room for another call, or another probe.
    pub fn has_room(&self) -> bool {
        match self.state {
            State::Closed | State::Open { .. } => true,
            State::HalfOpen { probing, score } => probing <= score,
        }
    }

    /// A call starts at `now`, which is not before [`Breaker::ready_at`]. Returns whether that makes it half-open.
    pub fn start(&mut self, now: Mono) -> bool {
        match &mut self.state {
            State::Closed => false,
            State::HalfOpen { probing, .. } => {
                *probing += 1;
                false
            }
            State::Open { .. } => {
                self.state = State::HalfOpen { probing: 1, score: 0 };
                self.since = Some(now);
                self.probed = Some(now);
                true
            }
        }
    }

    /// A call has ended at `now`. `chance` gives a number from 0 to 1 where one is needed.
    pub fn ended(&mut self, call: Ended, chance: impl FnOnce() -> f64, now: Mono) -> Told {
        let is_probe = self.is_probe(call.started);
        let outcome = if self.opened.is_some_and(|opened| call.started <= opened) {
            Change::None
        } else {
            match call.sign {
                Sign::Answered => self.failures_in_row = 0,
                Sign::Failed => self.failures_in_row = self.failures_in_row.saturating_add(1),
                Sign::Nothing => {}
            }
            match self.state {
                State::Closed => self.judge_call(call, chance, now),
                State::HalfOpen { probing, score } => {
                    self.judge_probe(call.sign, probing.saturating_sub(1), score, chance, now)
                }
                State::Open { .. } => Change::None,
            }
        };
        let failed_probe = (is_probe && call.sign == Sign::Failed).then(|| self.pause() * RETURN_PAUSES);
        Told { change: outcome, failed_probe }
    }

    /// Closes it by hand. Calls that have begun by now count no more. Returns whether it was not closed.
    pub fn reset(&mut self, now: Mono) -> bool {
        let was_closed = self.state == State::Closed;
        self.close(now);
        self.opened = Some(now);
        !was_closed
    }

    /// Whether a call is one of the latest round's probes.
    fn is_probe(&self, started: Mono) -> bool {
        self.state != State::Closed && self.probed.is_some_and(|probed| started >= probed)
    }

    /// The pause between two probes as it is now, before jitter.
    fn pause(&self) -> Duration {
        let doubled = 1_u32.checked_shl(self.rounds.saturating_sub(1)).unwrap_or(u32::MAX);
        self.settings.probe_after.saturating_mul(doubled).min(self.settings.probe_max)
    }

    fn judge_call(&mut self, call: Ended, chance: impl FnOnce() -> f64, now: Mono) -> Change {
        if call.sign == Sign::Nothing {
            return Change::None;
        }
        let window = &mut self.window;
        if window.ended == 0 || now.since(window.since) >= self.settings.window {
            *window = Window { since: now, ..Window::EMPTY };
        }
        window.ended = window.ended.saturating_add(1);
        window.failed = window.failed.saturating_add(u32::from(call.sign == Sign::Failed));
        // All that are in flight may have met one bad moment, and where many are, a target that fails every other call has ten
        // failures in a row by chance every few seconds.
        let row = self.settings.failures.max(call.inflight);
        let enough = window.ended >= row.saturating_mul(2);
        let share = f64::from(window.failed) / f64::from(window.ended);
        let is_mostly_failing = enough && share >= self.settings.failure_rate;
        if call.sign == Sign::Failed && (self.failures_in_row >= row || is_mostly_failing) {
            return self.open(chance, now);
        }
        Change::None
    }

    fn judge_probe(
        &mut self,
        sign: Sign,
        probing: u32,
        score: u32,
        chance: impl FnOnce() -> f64,
        now: Mono,
    ) -> Change {
        let score = match sign {
            Sign::Failed if score == 0 => return self.open(chance, now),
            Sign::Failed => score - 1,
            Sign::Answered => score + 1,
            Sign::Nothing => score,
        };
        if score >= CLOSES_AT {
            self.close(now);
            return Change::Closed;
        }
        self.state = State::HalfOpen { probing, score };
        Change::None
    }

    fn open(&mut self, chance: impl FnOnce() -> f64, now: Mono) -> Change {
        self.rounds = self.rounds.saturating_add(1);
        // From half of the pause to the whole.
        let pause = self.pause().mul_f64(f64::midpoint(1.0, chance()));
        self.state = State::Open { until: now.plus(pause) };
        (self.since, self.opened) = (Some(now), Some(now));
        Change::Opened(pause)
    }

    fn close(&mut self, now: Mono) {
        (self.state, self.since) = (State::Closed, Some(now));
        (self.window, self.rounds, self.failures_in_row) = (Window::EMPTY, 0, 0);
        self.probed = None;
    }
}

#[cfg(test)]
mod tests;
