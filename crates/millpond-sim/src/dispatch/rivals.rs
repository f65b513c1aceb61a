//! Limits that others use, as their authors wrote them, to compare with.
//!
//! Owns these for the comparison only. Must never be offered as a setting: in front of a dispatcher they fail, each in
//! its way.

use fastrand::Rng;
use millpond_core::limit::{Ended, Ending, Limiter};
use millpond_core::time::Mono;
use std::time::Duration;

/// Most of every rival's limit.
const LIMIT_MAX: f64 = 1000.0;
/// Netflix's initial limit.
const LIMIT_START: f64 = 20.0;

/// Something that says how many calls may be in flight.
pub(super) trait Controller {
    fn places(&self) -> u32;
    fn ended(&mut self, call: Ended, now: Mono);
}

impl Controller for Limiter {
    fn places(&self) -> u32 {
        Self::places(self)
    }

    fn ended(&mut self, call: Ended, now: Mono) {
        Self::ended(self, call, now);
    }
}

/// Always the same.
#[derive(Debug)]
pub(super) struct Fixed(pub(super) u32);

impl Controller for Fixed {
    fn places(&self) -> u32 {
        self.0
    }

    fn ended(&mut self, _: Ended, _: Mono) {}
}

/// Netflix's `AIMDLimit`: a tenth less after every call that was refused or took longer than 5 s, else one more.
#[derive(Debug)]
pub(super) struct Aimd(f64);

impl Aimd {
    const TIMEOUT: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Self {
        Self(LIMIT_START)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 1000")]
fn whole(limit: f64) -> u32 {
    limit as u32
}

impl Controller for Aimd {
    fn places(&self) -> u32 {
        whole(self.0)
    }

    fn ended(&mut self, call: Ended, now: Mono) {
        if call.how != Ending::Done || now.since(call.started) > Self::TIMEOUT {
            self.0 = (self.0 * 0.9).floor();
        } else if f64::from(call.inflight) * 2.0 >= self.0 {
            self.0 += 1.0;
        }
        self.0 = self.0.clamp(1.0, LIMIT_MAX);
    }
}

/// What is decided by a round-trip time in microseconds, whether there was a refusal, and the calls in flight.
pub(super) trait BySample {
    fn limit(&self) -> f64;
    fn update(&mut self, rtt_micros: f64, was_refused: bool, inflight: u32);
}

/// Netflix's `VegasLimit`.
#[derive(Debug)]
pub(super) struct Vegas {
    limit: f64,
    unloaded: Option<f64>,
    until_probe: f64,
    chance: Rng,
}

impl Vegas {
    pub(super) fn new(seed: u64) -> Self {
        let mut vegas =
            Self { limit: LIMIT_START, unloaded: None, until_probe: 0.0, chance: Rng::with_seed(seed) };
        vegas.draw();
        vegas
    }

    fn draw(&mut self) {
        self.until_probe = 30.0 * self.limit * (0.5 + self.chance.f64() / 2.0);
    }
}

impl BySample for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, rtt_micros: f64, was_refused: bool, inflight: u32) {
        self.until_probe -= 1.0;
        if self.until_probe <= 0.0 {
            self.draw();
            self.unloaded = Some(rtt_micros);
            return;
        }
        let Some(unloaded) = self.unloaded.filter(|unloaded| *unloaded <= rtt_micros) else {
            self.unloaded = Some(rtt_micros);
            return;
        };
        let step = self.limit.log10().floor().max(1.0);
        let queue = (self.limit * (1.0 - unloaded / rtt_micros)).ceil();
        let change = if was_refused {
            -step
        } else if f64::from(inflight) * 2.0 < self.limit {
            0.0
        } else if queue <= step {
            6.0 * step
        } else if queue < 3.0 * step {
            step
        } else if queue > 6.0 * step {
            -step
        } else {
            0.0
        };
        self.limit = (self.limit + change).clamp(1.0, LIMIT_MAX);
    }
}

/// Netflix's `Gradient2Limit`, with a least limit of 1.
#[derive(Debug)]
pub(super) struct Gradient2 {
    limit: f64,
    long: f64,
    samples: u32,
}

impl Gradient2 {
    pub(super) fn new() -> Self {
        Self { limit: LIMIT_START, long: 0.0, samples: 0 }
    }
}

impl BySample for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, rtt_micros: f64, _: bool, inflight: u32) {
        self.samples = self.samples.saturating_add(1);
        let weight = if self.samples <= 10 { 1.0 / f64::from(self.samples) } else { 2.0 / 601.0 };
        self.long += (rtt_micros - self.long) * weight;
        if self.long / rtt_micros > 2.0 {
            self.long *= 0.95;
        }
        if f64::from(inflight) < self.limit / 2.0 {
            return;
        }
        let gradient = (1.5 * self.long / rtt_micros).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + 4.0;
        self.limit = (self.limit * 0.8 + wanted * 0.2).clamp(1.0, LIMIT_MAX);
    }
}

/// Every call is a sample.
#[derive(Debug)]
pub(super) struct PerCall<Rule>(pub(super) Rule);

impl<Rule: BySample> Controller for PerCall<Rule> {
    fn places(&self) -> u32 {
        whole(self.0.limit())
    }

    fn ended(&mut self, call: Ended, now: Mono) {
        let rtt = now.since(call.started).as_micros().max(1) as f64;
        self.0.update(rtt, call.how != Ending::Done, call.inflight);
    }
}

/// Netflix's `WindowedLimit`: the mean of a second with at least ten calls, refusals noted, is one sample.
#[derive(Debug)]
pub(super) struct PerWindow<Rule> {
    rule: Rule,
    until: Mono,
    sum_micros: f64,
    calls: u32,
    was_refused: bool,
    inflight: u32,
}

impl<Rule> PerWindow<Rule> {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, until: Mono(0), sum_micros: 0.0, calls: 0, was_refused: false, inflight: 0 }
    }
}

impl<Rule: BySample> Controller for PerWindow<Rule> {
    fn places(&self) -> u32 {
        whole(self.rule.limit())
    }

    fn ended(&mut self, call: Ended, now: Mono) {
        self.inflight = self.inflight.max(call.inflight);
        if call.how == Ending::Done {
            self.sum_micros += now.since(call.started).as_micros() as f64;
            self.calls += 1;
        } else {
            self.was_refused = true;
        }
        if now >= self.until && self.calls >= 10 {
            let mean = self.sum_micros / f64::from(self.calls);
            self.rule.update(mean, self.was_refused, self.inflight);
            self.until = now.plus(Duration::from_secs(1));
            (self.sum_micros, self.calls, self.was_refused, self.inflight) = (0.0, 0, false, 0);
        }
    }
}
