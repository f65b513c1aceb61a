//! The forecast: how fast work comes and goes, how long a new message will wait, when the backlog is gone.
//!
//! Owns the meters and the arithmetic. Must never promise what it cannot know: without a capacity there is no
//! promise.

use crate::time::Mono;
use std::time::Duration;

/// How far back the rate meters look, as the time constant of their exponential decay.
const METER_SECONDS: f64 = 10.0;
/// The same for the throughput of busy workers, which is steadier.
const BUSY_SECONDS: f64 = 30.0;
/// Weight of the newest service time, once there are more than its inverse.
const SERVICE_WEIGHT: f64 = 0.05;
/// Completions while busy before a throughput counts as known.
const BUSY_COMPLETIONS_MIN: f64 = 5.0;
/// One-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.2816;
/// What the estimate of the mean may be off by at the 90 % quantile, apart from chance.
const CAPACITY_ERROR: f64 = 0.1;

/// When a message will probably start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The wait that half of such messages do not exceed.
    pub p50: Duration,
    /// The wait that nine in ten do not exceed.
    pub p90: Duration,
}

impl Promise {
    /// This wait, but no shorter than the other.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        Self { p50: self.p50.max(other.p50), p90: self.p90.max(other.p90) }
    }

    /// This wait, but no shorter than until the message is due.
    #[must_use]
    pub fn not_before(self, due: Duration) -> Self {
        self.at_least(Self { p50: due, p90: due })
    }
}

/// A rate of events with exponential forgetting, free of the bias towards zero at the start.
#[derive(Debug, Clone)]
pub struct Meter {
    began: Option<Mono>,
    at: Mono,
    weight: f64,
}

impl Meter {
    /// A meter that has seen nothing.
    pub fn new() -> Self {
        Self { began: None, at: Mono(0), weight: 0.0 }
    }

    /// Counts `events` at `now`.
    pub fn count(&mut self, events: f64, now: Mono) {
        if self.began.is_none() {
            self.began = Some(now);
            self.at = now;
        }
        self.weight = self.decayed(now) + events;
        self.at = self.at.max(now);
    }

    fn decayed(&self, now: Mono) -> f64 {
        self.weight * (-now.since(self.at).as_secs_f64() / METER_SECONDS).exp()
    }

    /// Events per second at `now`. The first second counts as a whole one.
    pub fn per_second(&self, now: Mono) -> f64 {
        let Some(began) = self.began else { return 0.0 };
        let age = now.since(began).as_secs_f64().max(1.0);
        self.decayed(now) / (METER_SECONDS * (1.0 - (-age / METER_SECONDS).exp()))
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

/// Mean and spread of the work per message, with exponential forgetting (EWMA of value and square deviation).
#[derive(Debug, Clone, Default)]
pub struct ServiceTime {
    samples: u32,
    mean_seconds: f64,
    variance: f64,
}

impl ServiceTime {
    /// Counts one completed piece of work.
    pub fn observe(&mut self, took: Duration) {
        self.samples = self.samples.saturating_add(1);
        let weight = SERVICE_WEIGHT.max(1.0 / f64::from(self.samples));
        let deviation = took.as_secs_f64() - self.mean_seconds;
        self.mean_seconds += weight * deviation;
        self.variance = (1.0 - weight) * (self.variance + weight * deviation * deviation);
    }

    /// The mean in seconds, or `None` before the first sample.
    pub fn mean_seconds(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean_seconds)
    }

    /// The standard deviation in seconds.
    pub fn deviation_seconds(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }
}

/// Throughput observed while work was waiting: what the workers can do, as opposed to what they were given.
#[derive(Debug, Clone, Default)]
pub struct BusyThroughput {
    completions: f64,
    seconds: f64,
    busy_since: Option<Mono>,
}

impl BusyThroughput {
    /// Notes whether work waits at `now`, and with how many completions since the last note.
    pub fn note(&mut self, waiting: bool, completions: u32, now: Mono) {
        if let Some(since) = self.busy_since {
            let seconds = now.since(since).as_secs_f64();
            let decay = (-seconds / BUSY_SECONDS).exp();
            self.completions = self.completions * decay + f64::from(completions);
            // Hours without a note, since nobody took work, count no more than the memory is long.
            self.seconds = self.seconds * decay + seconds.min(BUSY_SECONDS);
        }
        self.busy_since = waiting.then_some(now);
    }

    /// Work waits from now on, if it did not before.
    pub fn begin(&mut self, now: Mono) {
        self.busy_since.get_or_insert(now);
    }

    /// Completions per busy second, or `None` while there were too few.
    pub fn per_second(&self) -> Option<f64> {
        (self.completions >= BUSY_COMPLETIONS_MIN && self.seconds > 0.0)
            .then(|| self.completions / self.seconds)
    }
}

/// What the forecast of one queue rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Messages per second that the workers or the target can do.
    pub capacity_per_second: f64,
    /// Spread of the work per message in seconds.
    pub deviation_seconds: f64,
    /// Time before anything is handed out at all (a target that asked for a pause).
    pub hold: Duration,
}

impl Outlook {
    /// The wait of a message with `ahead` messages due before it: L = λ × W (Little), the spread from the sum
    /// of `ahead` independent service times shared by the parallel workers.
    pub fn wait(&self, ahead: u64) -> Promise {
        let ahead = ahead as f64;
        let mean = ahead / self.capacity_per_second;
        // A sum of n services of spread σ has spread σ√n; n services took n ÷ capacity instead of n × mean.
        let spread = self.deviation_seconds * ahead.sqrt();
        let p90 = mean * (1.0 + CAPACITY_ERROR) + Z90 * spread.min(mean);
        Promise { p50: self.hold + seconds(mean), p90: self.hold + seconds(p90) }
    }

    /// Time until `waiting` messages are gone while `arrivals_per_second` go on coming; `None`: never.
    pub fn drain(&self, waiting: u64, arrivals_per_second: f64) -> Option<Duration> {
        if waiting == 0 {
            return Some(Duration::ZERO);
        }
        let surplus = self.capacity_per_second - arrivals_per_second;
        // Less than a thousandth of the capacity to spare is no surplus that a measurement can tell from none.
        (surplus > self.capacity_per_second * 1e-3).then(|| self.hold + seconds(waiting as f64 / surplus))
    }
}

/// `value` seconds as a duration; what is not a sensible time becomes the longest one kept, a year.
pub fn seconds(value: f64) -> Duration {
    const YEAR_SECONDS: f64 = 366.0 * 86400.0;
    if value.is_finite() {
        Duration::from_secs_f64(value.clamp(0.0, YEAR_SECONDS))
    } else {
        Duration::from_secs_f64(YEAR_SECONDS)
    }
}

/// Hands successive refused callers successive places in time, so that they do not come back as one herd.
#[derive(Debug, Clone, Default)]
pub struct ReturnTimes {
    next: Option<Mono>,
}

/// No caller is sent away for longer than this.
const RETURN_MAX: Duration = Duration::from_hours(1);

impl ReturnTimes {
    /// When the next refused caller shall come back: not before `earliest` from now, one place of
    /// 1 ÷ `per_second` behind the one before, plus up to a tenth by `chance` (0..1).
    pub fn next(&mut self, earliest: Duration, per_second: Option<f64>, now: Mono, chance: f64) -> Duration {
        let place = per_second.map_or(Duration::ZERO, |rate| seconds(1.0 / rate.max(1e-6)));
        let at = self.next.unwrap_or(now).max(now.plus(earliest));
        self.next = Some(at.plus(place).min(now.plus(RETURN_MAX)));
        let base = at.since(now);
        (base + base.mul_f64(0.1 * chance)).clamp(Duration::from_secs(1), RETURN_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{BusyThroughput, Meter, Outlook, ReturnTimes, ServiceTime};
    use crate::time::Mono;
    use std::time::Duration;

    fn at(seconds: f64) -> Mono {
        Mono::default().plus(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_meter_finds_a_steady_rate_within_seconds_of_its_start() {
        let mut meter = Meter::new();
        for call in 0..60_u32 {
            meter.count(1.0, at(f64::from(call) / 3.0));
            if call > 12 {
                let rate = meter.per_second(at(f64::from(call) / 3.0));
                assert!((rate - 3.0).abs() < 0.6, "{rate} after {call}");
            }
        }
    }

    #[test]
    fn a_message_behind_twenty_at_five_per_second_waits_four_seconds() {
        let outlook = Outlook { capacity_per_second: 5.0, deviation_seconds: 0.0, hold: Duration::ZERO };
        assert_eq!(outlook.wait(20).p50, Duration::from_secs(4));
        assert_eq!(outlook.drain(20, 3.0), Some(Duration::from_secs(10)));
        assert_eq!(outlook.drain(20, 5.0), None);
        assert_eq!(outlook.drain(0, 9.0), Some(Duration::ZERO));
    }

    #[test]
    fn capacity_is_learned_only_while_work_waits() {
        let mut busy = BusyThroughput::default();
        busy.note(true, 0, at(0.0));
        for second in 1..=10_u32 {
            busy.note(true, 5, at(f64::from(second)));
        }
        busy.note(false, 0, at(10.0));
        busy.note(false, 0, at(1000.0));
        let rate = busy.per_second().unwrap();
        assert!((rate - 5.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn hours_without_workers_do_not_outweigh_the_minute_since_they_came() {
        let mut busy = BusyThroughput::default();
        busy.begin(at(0.0));
        for second in 0..60_u32 {
            busy.note(true, 5, at(36_000.0 + f64::from(second)));
        }
        let rate = busy.per_second().unwrap();
        assert!((3.0..=5.0).contains(&rate), "{rate}");
    }

    #[test]
    fn service_time_follows_a_change() {
        let mut service = ServiceTime::default();
        for _ in 0..200 {
            service.observe(Duration::from_millis(80));
        }
        assert!((service.mean_seconds().unwrap() - 0.08).abs() < 1e-9);
        assert!(service.deviation_seconds() < 1e-9);
        for _ in 0..200 {
            service.observe(Duration::from_millis(160));
        }
        assert!((service.mean_seconds().unwrap() - 0.16).abs() < 1e-3);
    }

    #[test]
    fn refused_callers_come_back_one_after_the_other() {
        let mut times = ReturnTimes::default();
        let waits: Vec<Duration> =
            (0..50).map(|_| times.next(Duration::from_secs(2), Some(5.0), at(0.0), 0.0)).collect();
        assert_eq!(waits[0], Duration::from_secs(2));
        assert!(waits.windows(2).all(|pair| pair[1] == pair[0] + Duration::from_millis(200)));
        let later = times.next(Duration::from_secs(2), Some(5.0), at(100.0), 0.0);
        assert_eq!(later, Duration::from_secs(2), "places do not pile up beyond those who asked");
    }
}
