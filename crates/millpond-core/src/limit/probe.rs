//! Probes: what a call takes while the target has places to spare, measured anew now and then.
//!
//! Owns when a probe is over and what is learned from it. Must never let one sick measurement raise what counts as
//! unloaded: a target that hiccups would be given more.

use super::sample::Sample;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// A probe leaves this part of the limit. Half is free of queueing at the target wherever the limit is less than
/// twice what the target can do, and where it is more, half of the queue is seen, the limit falls, and the next probe
/// sees the rest. A pinned small number (Envoy: 3) would cost far more throughput.
const DIVISOR: u32 = 2;
/// Calls per place that end uncounted before a probe counts: of calls that begin together the short ones end first.
const ROUNDS_AHEAD: u32 = 1;
/// Calls that make up a probe: the median of 60 exponential times is known to 19 % (one standard deviation), …
const CALLS: u32 = 60;
/// … and no fewer per place than this.
const ROUNDS: u32 = 3;
/// Probes of quick calls last so long, as that costs next to nothing and more calls say more.
const LASTS_MIN: Duration = Duration::from_millis(500);
/// Time between two probes: the end of one to the start of the next. Envoy takes 60 s, for probes that cost more.
const EVERY: Duration = Duration::from_secs(30);
/// … and this many times what the probe took, so that probes take no more than a fortieth of the time. At half of the
/// limit they cost no more than 1.25 % of the throughput.
const EVERY_LENGTHS: u32 = 39;
/// A probe that is asked for before its time comes no sooner than so long after the one before, …
const EARLY: Duration = Duration::from_secs(3);
/// … and this many times its length: a fifth of the time, while something changes.
const EARLY_LENGTHS: u32 = 4;
/// A probe is given up after this many times what it should take: there is not enough work to fill it.
const PATIENCE: u32 = 10;
/// The unloaded latency is the mean of so many latest probes: half the noise of one.
const REMEMBERED: usize = 4;
/// A probe that differs from the mean by more than this factor tells of a change, if the next one agrees; else of noise.
const CHANGED: f64 = 1.5;

fn is_far(one: f64, other: f64) -> bool {
    one > other * CHANGED || other > one * CHANGED
}

/// A probe under way.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    /// Calls that may be in flight meanwhile.
    pub(super) places: u32,
    began: Mono,
    /// Since no more than that are in flight; calls that begin from then on count, …
    lowered: Option<Mono>,
    /// … once so many have ended, …
    ahead: u32,
    /// … from then on.
    counts_since: Option<Mono>,
    calls: Sample,
    gives_up_after: Duration,
}

/// What a probe says after a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Progress {
    GoesOn,
    GivenUp,
    Measured { median_micros: f64, lasted: Duration },
}

impl Probe {
    /// A probe below `limit`, which is at least 2, of calls that take about `unloaded_micros`.
    pub(super) fn new(limit: u32, unloaded_micros: f64, now: Mono) -> Self {
        let places = (limit / DIVISOR).max(1);
        let ahead = places.saturating_mul(ROUNDS_AHEAD);
        let rounds = f64::from(Self::calls_wanted(places).saturating_add(ahead)) / f64::from(places) + 1.0;
        let takes = Duration::from_secs_f64(rounds * unloaded_micros / 1e6).max(LASTS_MIN);
        let gives_up_after = takes * PATIENCE;
        Self {
            places,
            began: now,
            lowered: None,
            ahead,
            counts_since: None,
            calls: Sample::new(),
            gives_up_after,
        }
    }

    fn calls_wanted(places: u32) -> u32 {
        places.saturating_mul(ROUNDS).max(CALLS)
    }

    /// A call has ended. `took` is `None` where that says nothing of latency; `left` are those still in flight.
    pub(super) fn note(&mut self, started: Mono, took: Option<Duration>, left: u32, now: Mono) -> Progress {
        let Some(lowered) = self.lowered else {
            self.lowered = (left <= self.places).then_some(now);
            return self.patience(now);
        };
        if self.ahead > 0 {
            self.ahead -= 1;
            return self.patience(now);
        }
        let since = *self.counts_since.get_or_insert(now);
        if let Some(took) = took.filter(|_| started >= lowered) {
            self.calls.add(took);
            let enough = self.calls.seen() >= u64::from(Self::calls_wanted(self.places));
            if enough && now.since(since) >= LASTS_MIN {
                let median_micros = self.calls.quantile_micros(0.5);
                return Progress::Measured { median_micros, lasted: now.since(self.began) };
            }
        }
        self.patience(now)
    }

    fn patience(&self, now: Mono) -> Progress {
        if now.since(self.began) > self.gives_up_after { Progress::GivenUp } else { Progress::GoesOn }
    }
}

/// The unloaded latency, and when it is measured next.
#[derive(Debug, Clone, Default)]
pub(super) struct Baseline {
    /// Medians of the latest probes. Before the first, the least median of any window.
    medians: VecDeque<f64>,
    /// A latest one that was far off, and is believed when the next agrees.
    doubtful: Option<f64>,
    is_probed: bool,
    next: Option<Mono>,
    earliest: Option<Mono>,
    /// The limit at the latest probe.
    pub(super) limit: f64,
}

impl Baseline {
    /// In microseconds; `None` before anything was measured.
    pub(super) fn micros(&self) -> Option<f64> {
        let count = self.medians.len();
        (count > 0).then(|| self.medians.iter().sum::<f64>() / count as f64)
    }

    /// A window's median while no probe has been made: the least counts.
    pub(super) fn note_window(&mut self, median_micros: f64) {
        if !self.is_probed {
            let least = self.micros().map_or(median_micros, |known| known.min(median_micros));
            self.medians = VecDeque::from([least]);
        }
    }

    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// The next probe comes as soon as may be.
    pub(super) fn hurry(&mut self) {
        self.next = self.next.min(self.earliest);
    }

    /// Measured at `limit` by a probe that lasted so long.
    pub(super) fn note_probe(&mut self, median_micros: f64, lasted: Duration, limit: f64, now: Mono) {
        self.next = Some(now.plus(EVERY.max(lasted * EVERY_LENGTHS)));
        self.earliest = Some(now.plus(EARLY.max(lasted * EARLY_LENGTHS)));
        self.limit = limit;
        let known = self.micros().filter(|_| self.is_probed);
        self.is_probed = true;
        let doubtful = self.doubtful.take();
        match known {
            None => self.medians = VecDeque::from([median_micros]),
            // A queue at the target is going, and may not be gone yet.
            Some(known) if is_far(median_micros, known) => {
                if let Some(before) = doubtful.filter(|before| !is_far(median_micros, *before)) {
                    self.medians = VecDeque::from([before, median_micros]);
                } else {
                    self.doubtful = Some(median_micros);
                    self.next = Some(now);
                    return;
                }
            }
            Some(_) => {
                if self.medians.len() == REMEMBERED {
                    self.medians.pop_front();
                }
                self.medians.push_back(median_micros);
            }
        }
        if self.medians.len() < REMEMBERED {
            // Little is known yet: of the unloaded latency, or of the one that has just changed.
            self.hurry();
        }
    }

    /// The probe came to nothing.
    pub(super) fn give_up(&mut self, now: Mono) {
        self.next = Some(now.plus(EVERY));
    }
}
