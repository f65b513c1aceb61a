//! Workloads: when calls arrive, and the two scenarios that every demonstration, simulation and test shares.
//!
//! Owns the schedule of arrivals (a pure function of its phases) and the scenarios as data. Must never wait,
//! read a clock or send anything: live callers and the simulator follow the schedule each on their own clock.

use millpond_core::name::{Name, NameError};
use millpond_core::settings::{BreakerSettings, QueueSettings, TargetSettings};
use serde::Serialize;
use std::time::Duration;

/// Which load a call belongs to. Reports count the spike's calls apart from the normal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// What always arrives.
    Normal,
    /// What the scenario is about.
    Spike,
}

/// A stretch of time in which calls arrive evenly spaced, the first one at its very start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Which load its calls count as.
    pub load: Load,
    /// Calls per second. Zero: none arrive.
    pub rate_per_second: f64,
    /// How long it lasts. `None`: without end; what follows is never reached.
    pub length: Option<Duration>,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Microseconds since the schedule began.
    pub at_micros: u64,
    /// Which load it belongs to.
    pub load: Load,
}

impl Arrival {
    /// Time since the schedule began.
    pub fn at(self) -> Duration {
        Duration::from_micros(self.at_micros)
    }
}

/// Phases, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The phases in order.
    pub phases: Vec<Phase>,
}

impl Schedule {
    /// Normal load for `lead_in`, then the spike, then normal load without end.
    pub fn spike(
        normal_per_second: f64,
        lead_in: Duration,
        spike_per_second: f64,
        spike_for: Duration,
    ) -> Self {
        let normal = |length| Phase { load: Load::Normal, rate_per_second: normal_per_second, length };
        let spike = Phase { load: Load::Spike, rate_per_second: spike_per_second, length: Some(spike_for) };
        Self { phases: vec![normal(Some(lead_in)), spike, normal(None)] }
    }

    /// Every call in order of time. Without end if the last phase is: cut it with `take_while`.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        let mut start_micros = 0;
        self.phases.iter().flat_map(move |phase| {
            let (start, end) = (start_micros, phase.length.map(|length| start_micros + micros(length)));
            start_micros = end.unwrap_or(u64::MAX);
            phase
                .offsets_micros()
                .map(move |offset| start + offset)
                .take_while(move |&at| end.is_none_or(|end| at < end))
                .map(|at_micros| Arrival { at_micros, load: phase.load })
        })
    }

    /// When the first phase of the spike begins and the last one ends. `None` if there is no spike or no end.
    pub fn spike_window(&self) -> Option<(Duration, Duration)> {
        let mut at = Duration::ZERO;
        let mut window = None;
        for phase in &self.phases {
            let end = phase.length.map(|length| at + length);
            if phase.load == Load::Spike {
                window = Some((window.map_or(at, |(start, _)| start), end?));
            }
            match end {
                Some(end) => at = end,
                None => break,
            }
        }
        window
    }
}

impl Phase {
    /// Each offset is computed from the call's number, so that no rounding adds up.
    fn offsets_micros(self) -> impl Iterator<Item = u64> {
        let interval = (self.rate_per_second > 0.0).then(|| 1e6 / self.rate_per_second);
        let rate = self.rate_per_second;
        (0_u64..).map_while(move |number| interval.map(|_| round(number as f64 * 1e6 / rate)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; never negative")]
fn round(value: f64) -> u64 {
    value.round() as u64
}

/// A backend of fixed capacity, the load that comes upon it, and the queue that is put in front of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one sentence.
    pub summary: String,
    /// The normal rate, before and after the spike.
    pub normal_per_second: f64,
    /// Normal load before the spike, so that the backend is in its steady state.
    pub lead_in: Duration,
    /// The rate of the spike, normal load included.
    pub spike_per_second: f64,
    /// How long the spike lasts.
    pub spike_for: Duration,
    /// How long one call occupies the backend.
    pub service_time: Duration,
    /// How many calls the backend works on at once.
    pub slots: u32,
    /// How long a direct caller waits before it gives up.
    pub caller_timeout: Duration,
    /// The promise of the queue.
    pub max_wait: Duration,
}

/// The name of no scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// There is no scenario of this name.
    #[error("there is no scenario {0:?}: choose leveling or enrollment")]
    Unknown(String),
    /// The speed leaves nothing of the spike.
    #[error("speed {0} is out of range: choose 1 (the whole ten minutes) to 600 (one second)")]
    Speed(u32),
}

impl Scenario {
    /// How much shorter the spike of `enrollment` is in a live run, unless asked otherwise.
    pub const SPEED_DEFAULT: u32 = 60;

    /// The scenario `name`. `speed` divides the length of the spike of `enrollment`; `leveling`, which is
    /// over in seconds, ignores it.
    pub fn named(name: &str, speed: u32) -> Result<Self, ScenarioError> {
        match name {
            "leveling" => Ok(Self::leveling()),
            "enrollment" => Self::enrollment(speed),
            other => Err(ScenarioError::Unknown(other.to_owned())),
        }
    }

    /// The small example: one worker, 200 ms a message, a spike of 30 calls in two seconds.
    ///
    /// Called directly, call k (from 0) arrives at k × 66.7 ms and is done at (k + 1) × 200 ms, so it takes
    /// 200 ms + k × 133.3 ms: the tenth (1.4 s) is the last one within the callers' 1.5 s. The eleventh takes
    /// 1.53 s, and the backend goes on working for callers who have left.
    pub fn leveling() -> Self {
        Self {
            name: "leveling",
            summary: "One worker does 5 messages/s; 15/s come for two seconds.".to_owned(),
            normal_per_second: 3.0,
            lead_in: Duration::from_secs(1),
            spike_per_second: 15.0,
            spike_for: Duration::from_secs(2),
            service_time: Duration::from_millis(200),
            slots: 1,
            caller_timeout: Duration::from_millis(1_500),
            max_wait: Duration::from_secs(30),
        }
    }

    /// The large example: a database comfortable with 40 connections, 80 ms a message, 2,000/s for ten
    /// minutes divided by `speed`.
    ///
    /// Direct callers give up after two seconds: what people wait for a page and gateways for a backend.
    /// Their wait grows by 3 s per second of the spike, so that only its first 0.65 s (about 1,300 calls) are
    /// answered in time, however long the spike lasts.
    pub fn enrollment(speed: u32) -> Result<Self, ScenarioError> {
        if !(1..=600).contains(&speed) {
            return Err(ScenarioError::Speed(speed));
        }
        let spike_for = Duration::from_mins(10) / speed;
        Ok(Self {
            name: "enrollment",
            summary: format!(
                "A database does 500 messages/s over 40 connections; 2,000/s come for {}.",
                crate::text::seconds(spike_for.as_secs_f64())
            ),
            normal_per_second: 100.0,
            lead_in: Duration::from_secs(1),
            spike_per_second: 2_000.0,
            spike_for,
            service_time: Duration::from_millis(80),
            slots: 40,
            caller_timeout: Duration::from_secs(2),
            max_wait: Duration::from_mins(45),
        })
    }

    /// When calls arrive: normal load, the spike, normal load without end.
    pub fn schedule(&self) -> Schedule {
        Schedule::spike(self.normal_per_second, self.lead_in, self.spike_per_second, self.spike_for)
    }

    /// When the spike ends, counted from the beginning of the schedule.
    pub fn spike_end(&self) -> Duration {
        self.lead_in + self.spike_for
    }

    /// What the planner says about it.
    pub fn plan_input(&self) -> crate::plan::PlanInput {
        crate::plan::PlanInput {
            rate_per_second: self.normal_per_second,
            spike_per_second: self.spike_per_second,
            spike_for: self.spike_for,
            service_time: self.service_time,
            workers: self.slots,
            max_wait: Some(self.max_wait),
            worker_timeout: None,
        }
    }

    /// The backend as the queue sees it: its cap is what it can work on at once.
    pub fn target_settings(&self) -> TargetSettings {
        TargetSettings {
            concurrency: self.slots,
            rate: None,
            timeout: Duration::from_secs(5),
            hold_after_timeout: None,
            adaptive: None,
            breaker: Some(BreakerSettings::default()),
            ramp: None,
        }
    }

    /// The queue in front of the target `target`.
    pub fn queue_settings(&self, target: &str) -> Result<QueueSettings, NameError> {
        Ok(QueueSettings {
            target: Some(Name::new(target)?),
            max_wait: Some(self.max_wait),
            expected_service_time: Some(self.service_time),
            ..QueueSettings::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Load, Phase, Scenario, ScenarioError, Schedule};
    use proptest::prelude::{prop_assert, proptest};
    use std::time::Duration;

    fn until(schedule: &Schedule, seconds: u64) -> Vec<Arrival> {
        schedule.arrivals().take_while(|arrival| arrival.at_micros < seconds * 1_000_000).collect()
    }

    fn of(arrivals: &[Arrival], load: Load) -> Vec<u64> {
        arrivals.iter().filter(|arrival| arrival.load == load).map(|arrival| arrival.at_micros).collect()
    }

    #[test]
    fn the_spike_of_leveling_is_thirty_calls_in_two_seconds() {
        let arrivals = until(&Scenario::leveling().schedule(), 13);
        let (spike, normal) = (of(&arrivals, Load::Spike), of(&arrivals, Load::Normal));
        assert_eq!(spike.len(), 30);
        assert_eq!((spike[0], spike[1], spike[29]), (1_000_000, 1_066_667, 2_933_333));
        assert_eq!(normal.len(), 3 + 30);
        assert_eq!(normal[..4], [0, 333_333, 666_667, 3_000_000]);
    }

    #[test]
    fn the_spike_of_enrollment_shrinks_with_the_speed_and_keeps_its_rate() {
        for (speed, calls) in [(60, 20_000), (600, 2_000), (1, 1_200_000)] {
            let scenario = Scenario::enrollment(speed).unwrap();
            let end = u64::try_from(scenario.spike_end().as_micros()).unwrap();
            let spike = scenario
                .schedule()
                .arrivals()
                .take_while(|arrival| arrival.at_micros < end)
                .filter(|arrival| arrival.load == Load::Spike)
                .count();
            assert_eq!(spike, calls, "speed {speed}");
        }
        assert_eq!(Scenario::enrollment(0), Err(ScenarioError::Speed(0)));
        assert_eq!(Scenario::named("x", 1), Err(ScenarioError::Unknown("x".to_owned())));
    }

    #[test]
    fn a_phase_without_calls_is_silent_and_one_without_end_goes_on() {
        let schedule = Schedule::spike(0.0, Duration::from_secs(1), 2.0, Duration::from_secs(1));
        assert_eq!(
            schedule.arrivals().map(|arrival| arrival.at_micros).collect::<Vec<_>>(),
            [1_000_000, 1_500_000]
        );
        let schedule = Schedule::spike(1.0, Duration::ZERO, 0.0, Duration::ZERO);
        assert_eq!(schedule.arrivals().nth(1_000).unwrap().at_micros, 1_000_000_000);
    }

    #[test]
    fn the_window_of_the_spike_is_known() {
        let window = Scenario::leveling().schedule().spike_window();
        assert_eq!(window, Some((Duration::from_secs(1), Duration::from_secs(3))));
        let calm =
            Schedule { phases: vec![Phase { load: Load::Normal, rate_per_second: 1.0, length: None }] };
        assert_eq!(calm.spike_window(), None);
    }

    proptest! {
        #[test]
        fn calls_come_in_order_evenly_and_as_many_as_the_rate_says(rate in 0.01_f64..5_000.0, seconds in 1_u32..20) {
            let length = Duration::from_secs(u64::from(seconds));
            let schedule = Schedule { phases: vec![Phase { load: Load::Spike, rate_per_second: rate, length: Some(length) }] };
            let arrivals: Vec<_> = schedule.arrivals().collect();
            prop_assert!((arrivals.len() as f64 - rate * f64::from(seconds)).abs() <= 1.0);
            for pair in arrivals.windows(2) {
                let gap = (pair[1].at_micros - pair[0].at_micros) as f64;
                prop_assert!((gap - 1e6 / rate).abs() <= 1.0);
            }
        }
    }
}
