//! The adaptive limit: how many calls a target can have in flight without queueing them.
//!
//! Owns the algorithm, as a function of the time and of how calls end. Must never exceed the hard cap, go below 1, read
//! a clock, or take what it learned under load for the latency of a target that has places to spare.
//!
//! It is Vegas (Brakmo and Peterson, 1995, as in Netflix's concurrency-limits) on the median of windows: the calls
//! that queue at the target are those in flight × the share of their time by which they take longer than unloaded. A few
//! mean that the target is never without work; more mean that work waits there instead of here. In front of a
//! dispatcher a backlog may stand for hours, in which no latency is unloaded; so *probes* lower the number of calls
//! for a moment and measure it. The backlog absorbs that, and nobody is refused. A *throughput guard* objects to
//! growth that brings nothing; a *refusal* (429, 503) or a time-out lowers the limit once a window. With a latency
//! objective the limit follows that instead, by additive increase and multiplicative decrease, once a window.
//!
//! Limits that trust latencies learned under load (Gradient2), or throughput × least latency (BDP, as in brpc), are not
//! offered: under a backlog that stands they drift upwards without end. `docs/guide/dispatch.md` has the comparison.

mod guard;
mod probe;
mod sample;

use crate::settings::AdaptiveSettings;
use crate::time::Mono;
use guard::Guard;
use probe::{Baseline, Probe, Progress};
use sample::Sample;
use std::time::Duration;

/// The limit that a target begins with, and begins with again after a restart: it is sustainable for every target, its
/// latency is unloaded, and doubling reaches a hundred in seven windows.
pub const LIMIT_START: u32 = 1;
/// A window lasts at least so long (Netflix's windowed limit: 1 s) …
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// … and has at least this many calls, …
const WINDOW_CALLS: u32 = 50;
/// … or, where calls are slow and places few, so many rounds of calls begun in it, and not fewer calls than that.
const WINDOW_ROUNDS: u32 = 4;
const WINDOW_CALLS_MIN: u32 = 8;
/// Fewer calls than this part of those in flight queueing at the target: it may be without work at times; more are
/// added. At least a half of a call, as one place may well be enough.
const QUEUE_LOW: f64 = 0.15;
const QUEUE_LOW_MIN: f64 = 0.5;
/// More than this part: work waits there for nothing. Within the two, latency is at most 1.5 times the unloaded one and
/// the limit stays as it is. (Netflix's Vegas has 3 and 6 calls at any limit below 100: too many for one place, and too
/// few to stay within noise for five hundred.)
const QUEUE_HIGH: f64 = 0.3;
const QUEUE_HIGH_MIN: f64 = 1.5;
/// Growth per window, as a part of the limit, at least 1; as much as a step down takes away.
const GROWTH: f64 = 0.1;
/// A step down (Netflix's AIMD: 0.9).
const DECREASE: f64 = 0.9;
/// Before anything but growth has happened, the limit doubles every window (TCP's slow start).
const SEEKING_GROWTH: f64 = 2.0;
/// … until this part of the calls in flight queue: the latest doubling brought nothing, and is taken back.
const SEEKING_QUEUE_MAX: f64 = 0.5;
/// Growth needs calls in flight to be at least this part of the limit (Netflix's Vegas): a limit that nobody uses says
/// nothing.
const USED_MIN: f64 = 0.5;
/// Refusals and time-outs up to this share of a window's calls are the target's own mishaps, not its limit.
const MISHAPS_MAX: f64 = 0.01;
/// A window in which half of at least so many calls were refused is over at once: a target that refuses in no time is
/// asked again in no time.
const REFUSED_MIN: u64 = 10;
/// For so long the limit stays below the one at which calls were refused or timed out.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// The longest healthy latency, as a part of the time-out: beyond it nothing grows, and a queue at the target is met
/// with a step down even within its band.
const HEALTHY_MAX: f64 = 0.5;
/// A limit that has fallen below this part of what it was at the latest probe, and by one more, asks for the next one:
/// either the target can do less, or every call takes longer, which only a probe tells.
const FALLEN: f64 = 0.75;

/// How a call ended, as far as the limit is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It did what it should: its latency counts.
    Done,
    /// The target refused it: too much.
    Refused,
    /// It took longer than the time-out.
    TimedOut,
    /// It says nothing of the target's load.
    Other,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it began.
    pub started: Mono,
    /// How.
    pub how: Ending,
    /// Calls that occupied the target just before, this one included.
    pub inflight: u32,
}

#[derive(Debug, Clone)]
struct Window {
    since: Mono,
    latencies: Sample,
    /// Calls in flight, summed over those that ended.
    inflight_sum: u64,
    ended: u64,
    refused: u64,
    /// Nothing was in flight at some time.
    was_idle: bool,
}

impl Window {
    fn new(since: Mono) -> Self {
        let latencies = Sample::new();
        Self { since, latencies, inflight_sum: 0, ended: 0, refused: 0, was_idle: false }
    }

    fn inflight(&self) -> f64 {
        self.inflight_sum as f64 / self.ended.max(1) as f64
    }

    fn is_refused(&self) -> bool {
        self.refused as f64 > MISHAPS_MAX * self.ended as f64
    }

    fn is_over(&self, places: u32, now: Mono) -> bool {
        if self.ended >= REFUSED_MIN && self.refused * 2 >= self.ended {
            return true;
        }
        let wanted = places.saturating_mul(WINDOW_ROUNDS).clamp(WINDOW_CALLS_MIN, WINDOW_CALLS);
        now.since(self.since) >= WINDOW_MIN
            && (self.is_refused() || self.latencies.seen() >= u64::from(wanted))
    }
}

/// What a window says of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    More,
    Stay,
    Less,
}

/// The limit of one target.
#[derive(Debug, Clone)]
pub struct Limiter {
    cap: u32,
    timeout: Duration,
    objective: Option<Duration>,
    limit: f64,
    is_seeking: bool,
    window: Option<Window>,
    probe: Option<Probe>,
    baseline: Baseline,
    guard: Guard,
    /// The guard has objected: nothing grows until a probe has told what is unloaded.
    is_doubtful: bool,
    /// At this limit calls were refused, at that time.
    refused: Option<(f64, Mono)>,
    /// Calls that began before were begun under a higher limit: that they are refused says nothing of this one.
    lowered_at: Mono,
}

impl Limiter {
    /// The limit of a target with this hard cap, at least 1, and this time-out.
    pub fn new(cap: u32, timeout: Duration, settings: AdaptiveSettings) -> Self {
        Self {
            cap,
            timeout,
            objective: settings.latency_objective,
            limit: f64::from(LIMIT_START.min(cap)),
            is_seeking: true,
            window: None,
            probe: None,
            baseline: Baseline::default(),
            guard: Guard::default(),
            is_doubtful: false,
            refused: None,
            lowered_at: Mono(i64::MIN),
        }
    }

    /// The limit that was found, from 1 to the hard cap.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to a cap of 32 bits")]
    pub fn limit(&self) -> u32 {
        (self.limit as u32).clamp(1, self.cap)
    }

    /// How many calls may be in flight now: the limit, or what a probe leaves of it.
    pub fn places(&self) -> u32 {
        self.probe.as_ref().map_or_else(|| self.limit(), |probe| probe.places)
    }

    /// Whether the limit is still on its first way up, so that it says what was tried and not what can be done.
    pub fn is_seeking(&self) -> bool {
        self.is_seeking
    }

    /// A call has ended at `now`. Costs O(1), amortised over a window.
    pub fn ended(&mut self, call: Ended, now: Mono) {
        let left = call.inflight.saturating_sub(1);
        let took = (call.how == Ending::Done).then(|| now.since(call.started));
        let is_refusal = matches!(call.how, Ending::Refused | Ending::TimedOut);
        if let Some(probe) = &mut self.probe
            && !is_refusal
        {
            let progress = probe.note(call.started, took, left, now);
            return self.probe_went(progress, now);
        }
        if call.how == Ending::Other || (is_refusal && call.started < self.lowered_at) {
            return;
        }
        if is_refusal && self.probe.take().is_some() {
            self.baseline.give_up(now);
            self.window = Some(Window::new(now));
        }
        let window = self.window.get_or_insert_with(|| Window::new(call.started));
        window.ended += 1;
        window.inflight_sum += u64::from(call.inflight);
        window.was_idle |= left == 0;
        window.refused += u64::from(is_refusal);
        if let Some(took) = took {
            window.latencies.add(took);
        }
        let places = self.places();
        if let Some(window) = self.window.take_if(|window| window.is_over(places, now)) {
            self.judge(window, now);
            self.window = Some(Window::new(now));
        }
    }

    fn probe_went(&mut self, progress: Progress, now: Mono) {
        match progress {
            Progress::GoesOn => return,
            Progress::GivenUp => self.baseline.give_up(now),
            Progress::Measured { median_micros, lasted } => {
                self.baseline.note_probe(median_micros, lasted, self.limit, now);
                self.is_doubtful = false;
            }
        }
        self.probe = None;
        self.window = Some(Window::new(now));
    }

    fn judge(&mut self, mut window: Window, now: Mono) {
        let advice = if window.is_refused() {
            self.refused = Some((self.limit, now));
            Advice::Less
        } else if let Some(objective) = self.objective {
            let is_met = window.latencies.quantile_micros(0.9) <= objective.as_micros() as f64;
            if is_met { Advice::More } else { Advice::Less }
        } else {
            self.judge_queue(&mut window, now)
        };
        let is_used = window.inflight() >= USED_MIN * self.limit;
        match advice {
            Advice::Less => self.lower(now),
            Advice::More if is_used && !self.is_doubtful => self.raise(now),
            Advice::More => {}
            Advice::Stay => self.found(),
        }
        if self.objective.is_none() && is_used && !self.is_seeking {
            self.probe_if_due(now);
        }
    }

    /// What latency and throughput say of calls that queue at the target.
    fn judge_queue(&mut self, window: &mut Window, now: Mono) -> Advice {
        let inflight = window.inflight();
        let median = window.latencies.quantile_micros(0.5);
        self.baseline.note_window(median);
        if self.limit() == 1 && self.baseline.is_due(now) {
            // One at a time is unloaded already.
            self.baseline.note_probe(median, now.since(window.since), self.limit, now);
            self.is_doubtful = false;
        }
        let unloaded = self.baseline.micros().unwrap_or(median);
        // By Little's law, calls in flight ÷ mean latency is the throughput, and throughput × time queued the queue.
        let queue = inflight * (median - unloaded).max(0.0) / window.latencies.mean_micros().max(1.0);
        let low = (QUEUE_LOW * inflight).max(QUEUE_LOW_MIN);
        let high = (QUEUE_HIGH * inflight).max(QUEUE_HIGH_MIN);
        if !window.was_idle && inflight >= USED_MIN * self.limit {
            let seconds = now.since(window.since).as_secs_f64().max(1e-6);
            self.guard.note(inflight, window.ended as f64 / seconds);
            if self.guard.objects() {
                self.guard.forget();
                self.is_doubtful = true;
                self.baseline.hurry();
                return Advice::Less;
            }
        }
        let healthy_max = HEALTHY_MAX * self.timeout.as_micros() as f64;
        let is_healthy = window.latencies.quantile_micros(0.9) <= healthy_max;
        if self.is_seeking && is_healthy && queue < SEEKING_QUEUE_MAX * inflight {
            // Little is known of the unloaded latency before the first probe.
            return if queue < high { Advice::More } else { Advice::Stay };
        }
        if queue > high || (queue >= low && !is_healthy) {
            Advice::Less
        } else if queue < low && is_healthy {
            Advice::More
        } else {
            Advice::Stay
        }
    }

    fn lower(&mut self, now: Mono) {
        // The latest doubling was one too many.
        let factor = if self.is_seeking { 1.0 / SEEKING_GROWTH } else { DECREASE };
        self.limit = (self.limit * factor).max(1.0);
        self.lowered_at = now;
        self.found();
        if self.limit < FALLEN * self.baseline.limit - 1.0 {
            self.baseline.hurry();
        }
    }

    fn raise(&mut self, now: Mono) {
        let grown = if self.is_seeking {
            self.limit * SEEKING_GROWTH
        } else {
            self.limit + (GROWTH * self.limit).max(1.0)
        };
        if self.refused.is_some_and(|(_, at)| now.since(at) >= REFUSED_FOR) {
            self.refused = None;
        }
        let most = self.refused.map_or(f64::INFINITY, |(limit, _)| (limit.floor() - 1.0).max(1.0));
        self.limit = grown.min(most.max(self.limit)).min(f64::from(self.cap));
        if self.limit >= f64::from(self.cap) {
            self.found();
        }
    }

    /// The way up is over.
    fn found(&mut self) {
        if self.is_seeking {
            self.is_seeking = false;
            self.guard.forget();
        }
    }

    fn probe_if_due(&mut self, now: Mono) {
        if !self.baseline.is_due(now) {
            return;
        }
        let Some(unloaded) = self.baseline.micros() else { return };
        if self.limit() >= 2 {
            self.probe = Some(Probe::new(self.limit(), unloaded, now));
        }
    }
}
