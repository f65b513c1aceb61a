//! The forecast: how fast work comes and goes, how long a new message will wait, when the backlog is gone.
//!
//! Owns the meters and the arithmetic. Must never promise what it cannot know: without a capacity there is no
//! promise.

mod calibration;

pub use calibration::{Calibration, Correction, PromiseRecord};

use crate::time::Mono;
use std::time::Duration;

/// How far back the rate meters look, as the time constant of their exponential decay.
const METER_SECONDS: f64 = 10.0;
/// The same for the throughput of busy workers, which is steadier.
const BUSY_SECONDS: f64 = 30.0;
/// The same for service times: at a high rate, the mean of so long says more than the mean of a few.
const SERVICE_SECONDS: f64 = 30.0;
/// Least weight of the newest service time, so that work of minutes does not take hours to be noticed.
const SERVICE_WEIGHT_MIN: f64 = 0.05;
/// Completions while busy before a throughput counts as known.
const BUSY_COMPLETIONS_MIN: f64 = 5.0;
/// One-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.2816;
/// What the estimate of the mean may be off by at the 90 % quantile, apart from chance.
const CAPACITY_ERROR: f64 = 0.1;

/// What is still to come, in the median, of work under way that is as variable as its mean is long, in parts of that
/// mean, if it is the first of a sum: the median of the sum of n + 1 exponential times is n + 2/3 to within a fiftieth (J. Choi, "On the
/// medians of gamma distributions", 1994). Work of one length is counted as just ending, so that 20 messages ahead at 5/s
/// are 4 s.
const MEDIAN_REST: f64 = 2.0 / 3.0;

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
    memory_seconds: f64,
    began: Option<Mono>,
    at: Mono,
    weight: f64,
}

impl Meter {
    /// A meter that has seen nothing.
    pub fn new() -> Self {
        Self::over(METER_SECONDS)
    }

    /// The same with another time constant of its forgetting.
    pub fn over(memory_seconds: f64) -> Self {
        Self { memory_seconds, began: None, at: Mono(0), weight: 0.0 }
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
        self.weight * (-now.since(self.at).as_secs_f64() / self.memory_seconds).exp()
    }

    /// Events per second over the whole memory, as if nothing had come before the first one: a single event is no rate.
    pub fn sustained_per_second(&self, now: Mono) -> f64 {
        self.decayed(now) / self.memory_seconds
    }

    /// Events per second at `now`. The first second counts as a whole one.
    pub fn per_second(&self, now: Mono) -> f64 {
        let Some(began) = self.began else { return 0.0 };
        let age = now.since(began).as_secs_f64().max(1.0);
        self.decayed(now) / (self.memory_seconds * (1.0 - (-age / self.memory_seconds).exp()))
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

/// Mean and spread of the work per message, with exponential forgetting by time and by number, whichever forgets
/// less slowly (D. West, "Updating mean and variance estimates", CACM 22(9), 1979, with decaying weights).
#[derive(Debug, Clone, Default)]
pub struct ServiceTime {
    samples: u32,
    at: Option<Mono>,
    weight: f64,
    mean_seconds: f64,
    squares: f64,
}

impl ServiceTime {
    /// Counts one piece of work that was completed at `now`.
    pub fn observe(&mut self, took: Duration, now: Mono) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.since(at));
        let kept = (-passed.as_secs_f64() / SERVICE_SECONDS).exp().max(1.0 - SERVICE_WEIGHT_MIN);
        self.at = Some(now);
        self.samples = self.samples.saturating_add(1);
        self.weight = self.weight * kept + 1.0;
        let deviation = took.as_secs_f64() - self.mean_seconds;
        self.mean_seconds += deviation / self.weight;
        self.squares = self.squares * kept + deviation * (took.as_secs_f64() - self.mean_seconds);
    }

    /// How many were counted.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// The mean in seconds, or `None` before the first sample.
    pub fn mean_seconds(&self) -> Option<f64> {
        self.at.map(|_| self.mean_seconds)
    }

    /// The standard deviation in parts of the mean; 0 before the second sample.
    pub fn variation(&self) -> f64 {
        if self.mean_seconds > 0.0 {
            (self.squares / self.weight).max(0.0).sqrt() / self.mean_seconds
        } else {
            0.0
        }
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

    /// The same, and while there were too few of them, what it is at most, as if the next one were done just now; `None`
    /// before any time has passed.
    pub fn at_most_per_second(&self) -> Option<f64> {
        let at_most = (self.seconds > 0.0).then(|| (self.completions + 1.0) / self.seconds);
        self.per_second().or(at_most)
    }
}

/// What the forecast of one queue rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Messages per second that the workers or the target can do.
    pub capacity_per_second: f64,
    /// Spread of the work per message, as its standard deviation in parts of its mean.
    pub variation: f64,
    /// Every place is taken: whoever comes next waits for one to come free, even if nobody is before it.
    pub busy: bool,
    /// Time before anything is handed out at all (a target that asked for a pause).
    pub hold: Duration,
    /// What earlier promises have taught.
    pub correction: Correction,
}

impl Outlook {
    /// Messages per second that will start, as far as earlier promises have taught.
    pub fn starts_per_second(&self) -> f64 {
        self.capacity_per_second / self.correction.p50
    }

    /// The wait of a message with `ahead` messages due before it: L = λ × W (Little), the spread from the sum
    /// of `ahead` independent service times, and of the one under way, shared by the parallel workers, corrected by how
    /// earlier promises turned out.
    pub fn wait(&self, ahead: u64) -> Promise {
        let waits = self.busy || ahead > 0;
        let ahead = ahead as f64;
        let mean = ahead / self.capacity_per_second;
        // Work that is just under way may keep the place busy for one more message's time.
        let under_way = 1.0 / self.capacity_per_second;
        // A sum of n services has the variation of one ÷ √n.
        let spread = self.variation * (ahead + 1.0).sqrt() * under_way;
        let p90 = mean * (1.0 + CAPACITY_ERROR) + Z90 * spread + under_way;
        // Work that varies is met in its long pieces (the inspection paradox), so that a good part of it is still to come.
        let rest = if waits { MEDIAN_REST * self.variation.powi(2).min(1.0) * under_way } else { 0.0 };
        let p50 = (mean + rest) * self.correction.p50;
        let p90 = (p90 * self.correction.p90).max(p50);
        Promise { p50: self.hold + seconds(p50), p90: self.hold + seconds(p90) }
    }

    /// Time until `waiting` messages are gone while `arrivals_per_second` go on coming; `None`: never.
    pub fn drain(&self, waiting: u64, arrivals_per_second: f64) -> Option<Duration> {
        if waiting == 0 {
            return Some(Duration::ZERO);
        }
        let surplus = self.starts_per_second() - arrivals_per_second;
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
/// Where no capacity is known, refused callers come back at this pace. An assumption: a tenth of a second is long for the
/// work of a queue that is full, and a crowd of a hundred is still back within ten seconds.
const ASSUMED_PER_SECOND: f64 = 10.0;
/// And within so long of the first of them: if more are refused, they are spread evenly over it. Nobody shall be sent away
/// for long on the ground of an assumption.
const ASSUMED_WITHIN: Duration = Duration::from_mins(1);

impl ReturnTimes {
    /// When the next refused caller shall come back: not before `earliest` from now, one place of
    /// 1 ÷ `per_second` behind the one before, plus up to a tenth by `chance` (0..1). Without a capacity, the pace is
    /// assumed, and begins anew once a minute is full. Those who would have to stay away for longer than an hour come
    /// back at any time in its second half, and not all at its end.
    pub fn next(&mut self, earliest: Duration, per_second: Option<f64>, now: Mono, chance: f64) -> Duration {
        let place = seconds(1.0 / per_second.unwrap_or(ASSUMED_PER_SECOND).max(1e-6));
        let first = now.plus(earliest);
        let begins_anew = |at: &Mono| per_second.is_none() && *at >= first.plus(ASSUMED_WITHIN);
        let at = self.next.map_or(first, |next| next.max(first));
        let at = if begins_anew(&at) { first } else { at };
        self.next = Some(at.plus(place).min(now.plus(RETURN_MAX)));
        let base = at.since(now);
        let jittered = base + base.mul_f64(0.1 * chance);
        let told = if jittered < RETURN_MAX { jittered } else { RETURN_MAX.mul_f64(1.0 - 0.5 * chance) };
        told.max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{BusyThroughput, Correction, Meter, Outlook, ReturnTimes, ServiceTime};
    use crate::time::Mono;
    use std::collections::BTreeMap;
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
    fn one_event_is_no_rate_and_a_steady_one_is_found_from_below() {
        let mut meter = Meter::over(60.0);
        meter.count(1.0, at(0.0));
        assert!((meter.sustained_per_second(at(0.0)) - 1.0 / 60.0).abs() < 1e-9);
        for call in 1..=1_800_u32 {
            meter.count(1.0, at(f64::from(call) / 3.0));
            assert!(meter.sustained_per_second(at(f64::from(call) / 3.0)) < 3.05, "{call}");
        }
        assert!((meter.sustained_per_second(at(600.0)) - 3.0).abs() < 0.05);
    }

    #[test]
    fn a_message_behind_twenty_at_five_per_second_waits_four_seconds() {
        let outlook = Outlook {
            capacity_per_second: 5.0,
            variation: 0.0,
            busy: false,
            hold: Duration::ZERO,
            correction: Correction::default(),
        };
        assert_eq!(outlook.wait(20).p50, Duration::from_secs(4));
        assert_eq!(outlook.drain(20, 3.0), Some(Duration::from_secs(10)));
        assert_eq!(outlook.drain(20, 5.0), None);
        assert_eq!(outlook.drain(0, 9.0), Some(Duration::ZERO));
        let large = Outlook { capacity_per_second: 1000.0, ..outlook };
        assert_eq!(large.drain(20, 999.0), None, "a thousandth may be none");
        assert_eq!(large.drain(20, 998.0), Some(Duration::from_secs(10)));
        let slower = Outlook { correction: Correction { p50: 1.25, p90: 1.0 }, ..outlook };
        assert_eq!(slower.wait(20).p50, Duration::from_secs(5));
        assert_eq!(slower.wait(20).p90, Duration::from_secs(5), "never before the p50");
        assert_eq!(slower.drain(20, 3.0), Some(Duration::from_secs(20)));
    }

    #[test]
    fn the_p90_grows_with_the_spread_of_the_work_and_less_than_the_wait_with_its_length() {
        let wait = |variation, ahead| {
            let (hold, correction) = (Duration::ZERO, Correction::default());
            Outlook { capacity_per_second: 5.0, variation, busy: true, hold, correction }.wait(ahead)
        };
        assert_eq!(wait(0.0, 20).p90, Duration::from_millis(4_600));
        let beyond = |ahead| wait(1.0, ahead).p90.abs_diff(wait(0.0, ahead).p90);
        assert!(beyond(99).abs_diff(Duration::from_secs_f64(1.2816 * 10.0 / 5.0)) < Duration::from_micros(2));
        assert!(beyond(399).abs_diff(beyond(99) * 2) < Duration::from_micros(4));
    }

    /// Simulated: how long it takes until as many exponential times as `ahead`, and one more, are over.
    fn waits_seconds(ahead: u64, chance: &mut fastrand::Rng) -> f64 {
        (0..=ahead).map(|_| -(1.0 - chance.f64()).ln() / 5.0).sum()
    }

    #[test]
    fn half_start_by_the_p50_and_nine_in_ten_by_the_p90_behind_few_as_behind_many() {
        let (hold, correction) = (Duration::ZERO, Correction::default());
        let outlook = Outlook { capacity_per_second: 5.0, variation: 1.0, busy: true, hold, correction };
        let mut chance = fastrand::Rng::with_seed(1);
        for (ahead, most) in [(0, 0.92), (1, 0.92), (3, 0.93), (10, 0.95), (30, 0.98)] {
            let promise = outlook.wait(ahead);
            let waits: Vec<f64> = (0..20_000).map(|_| waits_seconds(ahead, &mut chance)).collect();
            let share = |by: Duration| {
                waits.iter().filter(|wait| **wait <= by.as_secs_f64()).count() as f64 / waits.len() as f64
            };
            let (by_p50, by_p90) = (share(promise.p50), share(promise.p90));
            assert!((0.48..0.52).contains(&by_p50), "{ahead} ahead: {by_p50} by {:?}", promise.p50);
            // The tenth for what the capacity may be off by counts the more, the longer the wait.
            assert!((0.89..most).contains(&by_p90), "{ahead} ahead: {by_p90} by {:?}", promise.p90);
        }
    }

    #[test]
    fn whoever_finds_a_place_free_waits_for_nothing() {
        let (hold, correction) = (Duration::ZERO, Correction::default());
        let free = Outlook { capacity_per_second: 5.0, variation: 1.0, busy: false, hold, correction };
        assert_eq!(free.wait(0).p50, Duration::ZERO);
        assert_eq!(Outlook { busy: true, ..free }.wait(0).p50, Duration::from_secs_f64(2.0 / 15.0));
        assert_eq!(Outlook { busy: true, variation: 0.0, ..free }.wait(0).p50, Duration::ZERO);
        assert_eq!(
            free.wait(3),
            Outlook { busy: true, ..free }.wait(3),
            "with work waiting, no place is free"
        );
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
    fn a_throughput_is_known_after_five_completions_that_took_time() {
        let mut busy = BusyThroughput::default();
        busy.begin(at(0.0));
        busy.note(true, 5, at(0.0));
        assert_eq!(busy.per_second(), None, "all at once says nothing");
        let mut busy = BusyThroughput::default();
        busy.begin(at(0.0));
        busy.note(true, 4, at(0.001));
        assert_eq!(busy.per_second(), None);
        busy.note(true, 2, at(0.001));
        assert!(busy.per_second().is_some());
    }

    #[test]
    fn before_enough_is_done_a_throughput_is_at_most_what_one_more_would_make_it() {
        let mut busy = BusyThroughput::default();
        assert_eq!(busy.at_most_per_second(), None, "no time has passed");
        busy.begin(at(0.0));
        busy.note(true, 0, at(0.0));
        assert_eq!(busy.at_most_per_second(), None);
        busy.note(true, 0, at(0.001));
        let at_most = busy.at_most_per_second().unwrap();
        assert!((at_most - 1000.0).abs() < 1e-6, "{at_most}");
        busy.note(true, 3, at(0.002));
        let at_most = busy.at_most_per_second().unwrap();
        assert!((at_most / 2000.0 - 1.0).abs() < 1e-3, "four in two milliseconds: {at_most}");
        busy.note(true, 10, at(0.004));
        assert_eq!(busy.at_most_per_second(), busy.per_second(), "what is known counts");
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
    fn service_time_follows_a_change_within_two_minutes_or_a_hundred_samples() {
        for (interval, samples) in [(0.1, 1_200_u32), (60.0, 100)] {
            let mut service = ServiceTime::default();
            let mut now = 0.0;
            let mut observe = |service: &mut ServiceTime, millis| {
                for _ in 0..samples {
                    now += interval;
                    service.observe(Duration::from_millis(millis), at(now));
                }
            };
            observe(&mut service, 80);
            assert!((service.mean_seconds().unwrap() - 0.08).abs() < 1e-9);
            assert!(service.variation() < 1e-6);
            observe(&mut service, 160);
            assert!((service.mean_seconds().unwrap() - 0.16).abs() < 2e-3, "{service:?}");
        }
    }

    #[test]
    fn at_a_high_rate_the_mean_and_the_spread_look_back_half_a_minute() {
        let mut service = ServiceTime::default();
        let mut now = 0.0;
        let mut observe = |service: &mut ServiceTime, count: u32, millis: [u64; 2]| {
            for sample in 0..count {
                now += 0.1;
                service.observe(Duration::from_millis(millis[sample as usize % 2]), at(now));
            }
        };
        observe(&mut service, 3_000, [80, 80]);
        observe(&mut service, 300, [160, 160]);
        let mean = service.mean_seconds().unwrap();
        assert!((mean - (0.16 - 0.08 / std::f64::consts::E)).abs() < 1e-3, "{mean}");
        observe(&mut service, 3_000, [50, 150]);
        assert!((service.mean_seconds().unwrap() - 0.1).abs() < 1e-3);
        assert!((service.variation() - 0.5).abs() < 1e-2, "{}", service.variation());
    }

    #[test]
    fn many_samples_at_one_moment_count_alike() {
        let mut service = ServiceTime::default();
        for millis in (0..1000).map(|sample| if sample % 2 == 0 { 50 } else { 150 }) {
            service.observe(Duration::from_millis(millis), at(1.0));
        }
        assert!((service.mean_seconds().unwrap() - 0.1).abs() < 1e-6);
        assert!((service.variation() - 0.5).abs() < 1e-3, "{}", service.variation());
    }

    /// How many of so many callers, refused at once, come back in each whole second.
    fn returns(callers: usize, per_second: Option<f64>) -> BTreeMap<u64, usize> {
        let (mut times, mut chance) = (ReturnTimes::default(), fastrand::Rng::with_seed(7));
        let mut returns = BTreeMap::new();
        for _ in 0..callers {
            let told = times.next(Duration::from_secs(5), per_second, at(0.0), chance.f64());
            *returns.entry(told.as_secs()).or_default() += 1;
        }
        returns
    }

    #[test]
    fn without_a_capacity_a_crowd_comes_back_at_an_assumed_pace_and_within_a_minute() {
        let few = returns(300, None);
        assert!(few.values().all(|callers| *callers <= 20), "{few:?}");
        assert!(few.keys().all(|second| (5..39).contains(second)), "{few:?}");
        let many = returns(6_000, None);
        assert!(many.values().all(|callers| *callers <= 200), "{many:?}");
        assert!(many.keys().all(|second| (5..72).contains(second)), "{many:?}");
    }

    #[test]
    fn whoever_could_not_come_back_within_an_hour_comes_at_any_time_in_the_second_half_of_it() {
        let returns = returns(3_600, Some(0.001));
        assert!(returns.values().all(|callers| *callers <= 12), "{returns:?}");
        assert!(returns.keys().skip(2).all(|second| (1_800..=3_600).contains(second)), "{returns:?}");
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
