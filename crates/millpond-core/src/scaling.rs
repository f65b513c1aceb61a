//! How many workers a queue is worth: the signal that an autoscaler follows.
//!
//! Owns the arithmetic from what is known of a queue to a number of workers. Must never ask for more than the ceiling,
//! nor for none while something waits or is at work.
//!
//! A worker is one message in work at a time: a process that works on ten at once counts as ten.

use std::time::Duration;

/// Without a promise, what waits is worked off within this.
pub const UNPROMISED: Duration = Duration::from_mins(1);
/// Memory of the meter that follows a spike.
pub const RECENT_SECONDS: f64 = 10.0;
/// Memory of the meter that is steady.
pub const LONG_SECONDS: f64 = 60.0;
/// Whoever promised a longer wait than this is in no hurry: a batch that comes at once is no rate of arrival.
const HURRY: Duration = Duration::from_mins(2);
/// Recent arrivals count once they lie so many standard deviations above the long ones: about one look in a thousand
/// would find that by chance.
const DEVIATIONS: f64 = 3.0;
/// When the promise is nearly over, or is broken, what waits is worked off within this share of it.
const LEAST_SHARE: f64 = 0.25;
/// Nothing waits and nobody works: less than this of a worker is none.
const IDLE_WORKERS: f64 = 0.01;

/// What a queue needs workers for, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// Messages that wait to be handed out.
    pub waiting: u64,
    /// Those of them that wait for another one of their group: nobody can begin them yet.
    pub blocked: u64,
    /// Messages that wait for their next attempt.
    pub backing_off: u64,
    /// Messages that somebody holds.
    pub in_work: u64,
    /// How long the oldest waiting one has waited.
    pub oldest_waiting: Duration,
    /// Arrivals over the last [`RECENT_SECONDS`].
    pub recent_per_second: f64,
    /// Arrivals over the last [`LONG_SECONDS`].
    pub long_per_second: f64,
    /// Completions of late.
    pub completions_per_second: f64,
    /// Work per message; `None`: not known yet.
    pub service_seconds: Option<f64>,
    /// The longest wait that was promised.
    pub promise: Option<Duration>,
    /// More than this is not begun per second, however many come for it.
    pub starts_per_second_max: Option<f64>,
    /// The most that may be in work at once.
    pub ceiling: Option<u64>,
    /// Nothing is handed out (paused, held, the target is down): more workers would only wait.
    pub stopped: bool,
}

impl Demand {
    /// Workers that keep the queue's own promise.
    pub fn workers(&self) -> u64 {
        self.workers_within(self.promise)
    }

    /// Workers that carry the arrivals (L = λ × W) and work off what waits while `promise` can still be kept.
    ///
    /// Never more than the ceiling. Never fewer than are at work, so that a scaler takes none away in the middle of it.
    /// At least one while something waits, even where nothing is handed out: a target that was scaled to zero is down
    /// until somebody starts it.
    pub fn workers_within(&self, promise: Option<Duration>) -> u64 {
        let waits = self.waiting + self.backing_off;
        let least = self.in_work.max(u64::from(waits > 0));
        let needed = self.service_seconds.filter(|_| !self.stopped).map_or(0.0, |service| {
            let needed = self.carried(service, promise) + self.caught_up(service, promise);
            needed.min(self.useful(service))
        });
        let is_idle = least == 0 && needed < IDLE_WORKERS;
        let wanted = if is_idle { 0 } else { whole(needed) }.max(least);
        self.ceiling.map_or(wanted, |ceiling| wanted.min(ceiling))
    }

    /// Workers that the arrivals keep at work. A meter that looks back for less than one piece of work takes knows of
    /// fewer arrivals than are at work at once; then what is there says more than the rate.
    fn carried(&self, service: f64, promise: Option<Duration>) -> f64 {
        let (per_second, memory) = self.rate(promise);
        let there = (self.waiting + self.in_work) as f64;
        (per_second * service).min(there.max(per_second * service.min(memory)))
    }

    /// The rate that counts, and how far back it looks. By chance alone (Poisson), a rate of λ measured with the
    /// memory τ varies by √(λ ÷ 2τ): within that the steady one counts, so that the signal does not flutter, and
    /// upwards beyond it the recent one, so that it follows a spike at once where that is urgent. Downwards it is never in
    /// a hurry.
    fn rate(&self, promise: Option<Duration>) -> (f64, f64) {
        let is_urgent = promise.unwrap_or(UNPROMISED) < HURRY;
        let chance = (self.long_per_second / (2.0 * RECENT_SECONDS)).sqrt();
        if is_urgent && self.recent_per_second > self.long_per_second + DEVIATIONS * chance {
            (self.recent_per_second, RECENT_SECONDS)
        } else {
            (self.long_per_second, LONG_SECONDS)
        }
    }

    /// Workers that work off what waits before the oldest of it is too late; no more than there are messages to begin.
    fn caught_up(&self, service: f64, promise: Option<Duration>) -> f64 {
        let within = promise.unwrap_or(UNPROMISED).as_secs_f64().max(service.max(1e-6));
        let waited = if promise.is_some() { self.oldest_waiting.as_secs_f64() } else { 0.0 };
        let left = (within - waited).max(within * LEAST_SHARE);
        (self.waiting as f64 / left * service).min(self.startable() as f64)
    }

    fn startable(&self) -> u64 {
        self.waiting.saturating_sub(self.blocked)
    }

    /// Workers beyond this would have nothing to do: the pace of the target allows no more, or the groups do not, of
    /// which each is worked on by one at a time.
    fn useful(&self, service: f64) -> f64 {
        let by_pace = self.starts_per_second_max.map_or(f64::INFINITY, |starts| starts * service);
        let at_once = (self.in_work + self.startable()) as f64;
        let by_groups =
            if self.blocked > 0 { at_once.max(self.completions_per_second * service) } else { f64::INFINITY };
        by_pace.min(by_groups)
    }
}

/// The whole number of workers that is enough; what lies above a whole one by an error of rounding counts as it.
fn whole(workers: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, saturates")]
    let whole = (workers - 1e-9).ceil().max(0.0) as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::Demand;
    use std::time::Duration;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// 100/s that take 80 ms each: eight are at work at once.
    fn steady() -> Demand {
        Demand {
            recent_per_second: 100.0,
            long_per_second: 100.0,
            completions_per_second: 100.0,
            service_seconds: Some(0.08),
            promise: Some(s(2_700)),
            ceiling: Some(40),
            in_work: 8,
            ..Demand::default()
        }
    }

    #[test]
    fn workers_carry_the_arrivals_and_work_off_what_waits_while_the_promise_holds() {
        let spike = Demand { recent_per_second: 2_000.0, long_per_second: 2_000.0, ..steady() };
        let backlog = Demand { waiting: 900_000, oldest_waiting: s(450), in_work: 40, ..steady() };
        let unbounded = |demand| Demand { ceiling: None, ..demand };
        for (what, demand, workers) in [
            ("L = λ × W", steady(), 8),
            ("the spike is too much for the ceiling", spike, 40),
            ("… and would need this", unbounded(spike), 160),
            ("900,000 within 2,250 s and 100/s: 500/s", backlog, 40),
            ("… the ceiling apart", unbounded(backlog), 40),
            ("fresh backlog has the whole promise", Demand { oldest_waiting: s(0), ..backlog }, 40),
            (
                "late, it has a quarter of it: 1,434/s",
                unbounded(Demand { oldest_waiting: s(9_999), ..backlog }),
                115,
            ),
            ("half of it: 300/s", Demand { waiting: 450_000, ..backlog }, 40),
            ("… once nobody is at work any more", Demand { waiting: 450_000, in_work: 0, ..backlog }, 24),
        ] {
            assert_eq!(demand.workers(), workers, "{what}: {demand:?}");
        }
    }

    #[test]
    fn never_none_while_something_waits_or_is_at_work_and_none_when_idle() {
        let unknown = Demand { service_seconds: None, ..Demand::default() };
        let known = Demand { service_seconds: Some(0.08), ..Demand::default() };
        for base in [unknown, known, Demand { stopped: true, ..known }] {
            for (what, demand, workers) in [
                ("idle", base, 0),
                ("one waits", Demand { waiting: 1, ..base }, 1),
                ("one waits behind its group", Demand { waiting: 1, blocked: 1, ..base }, 1),
                ("one is tried again later", Demand { backing_off: 1, ..base }, 1),
                ("one is at work", Demand { in_work: 1, ..base }, 1),
                ("seven are at work", Demand { in_work: 7, ..base }, 7),
                ("seven at work, five allowed", Demand { in_work: 7, ceiling: Some(5), ..base }, 5),
            ] {
                assert_eq!(demand.workers(), workers, "{what}: {demand:?}");
            }
        }
        let seldom = Demand { long_per_second: 0.01, recent_per_second: 0.01, ..known };
        assert_eq!(seldom.workers(), 0, "one message in 100 s needs nobody in between");
        assert_eq!(Demand { waiting: 1, ..seldom }.workers(), 1);
        let often = Demand { long_per_second: 1.0, recent_per_second: 1.0, ..known };
        assert_eq!(often.workers(), 1, "between two messages of a steady stream its worker stays");
    }

    #[test]
    fn where_more_workers_do_not_help_no_more_are_wanted() {
        let flood = Demand { waiting: 100_000, in_work: 3, ceiling: None, ..steady() };
        assert!(flood.workers() > 10);
        let grouped =
            Demand { blocked: 99_998, service_seconds: Some(1.0), completions_per_second: 4.0, ..flood };
        for (what, demand, workers) in [
            ("stopped: those at work may finish", Demand { stopped: true, ..flood }, 3),
            ("stopped with nobody at work", Demand { stopped: true, in_work: 0, ..flood }, 1),
            ("a target called 50 times a second", Demand { starts_per_second_max: Some(50.0), ..flood }, 4),
            ("three groups at work, two to begin", grouped, 5),
            (
                "groups that keep seven at work on average",
                Demand { completions_per_second: 7.0, ..grouped },
                7,
            ),
        ] {
            assert_eq!(demand.workers(), workers, "{what}: {demand:?}");
        }
    }

    #[test]
    fn no_more_workers_than_messages_however_long_one_takes() {
        for service in [30.0, 600.0, 86_400.0] {
            for count in [1, 3, 20] {
                let burst = Demand {
                    waiting: count,
                    recent_per_second: count as f64 / super::RECENT_SECONDS,
                    long_per_second: count as f64 / super::LONG_SECONDS,
                    service_seconds: Some(service),
                    ..Demand::default()
                };
                let wanted = burst.workers();
                assert!((1..=2 * count).contains(&wanted), "{wanted} for {count} of {service} s");
                let begun = Demand { waiting: 0, in_work: count, ..burst };
                assert_eq!(begun.workers(), count, "{count} of {service} s are at work");
            }
        }
    }

    #[test]
    fn chance_moves_the_signal_by_no_worker_and_a_spike_does_at_once() {
        let urgent = Demand { promise: Some(s(60)), ..steady() };
        // ±3 standard deviations of what ten seconds see of 100/s.
        for recent in [93.4, 100.0, 106.6] {
            assert_eq!(Demand { recent_per_second: recent, ..urgent }.workers(), 8);
        }
        assert_eq!(Demand { recent_per_second: 250.0, ..urgent }.workers(), 20);
        let over = Demand { recent_per_second: 1.0, ..urgent };
        assert_eq!(over.workers(), 8, "downwards it follows the long memory");
        let batch = Demand { recent_per_second: 250.0, ..steady() };
        assert_eq!(batch.workers(), 8, "with 45 minutes of time, a batch that came at once is no rate");
    }

    #[test]
    fn another_wait_than_the_promised_one_can_be_asked_for() {
        let demand = Demand { waiting: 9_000, in_work: 0, ceiling: None, ..steady() };
        assert_eq!(demand.workers(), 9, "within 45 minutes");
        assert_eq!(demand.workers_within(Some(s(90))), 16, "100/s and 100/s more");
        assert_eq!(demand.workers_within(None), 20, "within a minute, where nothing is promised");
        assert_eq!(demand.workers_within(Some(Duration::ZERO)), 9_008, "all at once");
    }
}
