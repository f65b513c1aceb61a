//! Time as an argument: wall time for what is shown or stored, monotonic time for what is waited for.
//!
//! Owns the two time types and the pair that every input carries. Must never read a clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Wall-clock time: microseconds since 1970-01-01T00:00:00Z. Can step in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Wall(pub i64);

/// Monotonic time: microseconds since an arbitrary origin; never steps. Negative before the origin, which
/// happens for what a restart brought back from an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub i64);

/// The moment an input is handled, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Wall time, for stamps.
    pub wall: Wall,
    /// Monotonic time, for every wait.
    pub mono: Mono,
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Wall {
    /// This time plus `duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// This time less `duration`, saturating.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Mono {
    /// This time plus `duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Now {
    /// The monotonic time at which the wall clock showed, or will show, `wall`, if it does not step.
    pub fn mono_at(self, wall: Wall) -> Mono {
        Mono(self.mono.0.saturating_add(wall.0.saturating_sub(self.wall.0)))
    }

    /// The wall time that belongs to `mono`, if the clock does not step.
    pub fn wall_at(self, mono: Mono) -> Wall {
        Wall(self.wall.0.saturating_add(mono.0.saturating_sub(self.mono.0)))
    }
}

/// A duration as people say it, with two units at most: `2.3s`, `4m 10s`, `3h`, `4d 2h`.
#[derive(Debug, Clone, Copy)]
pub struct Spoken(pub Duration);

impl std::fmt::Display for Spoken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        let (large, small) = match seconds {
            0..100 => return write!(formatter, "{}s", (self.0.as_secs_f64() * 10.0).round() / 10.0),
            100..6_000 => ((seconds / 60, "m"), (seconds % 60, "s")),
            6_000..144_000 => ((seconds / 3_600, "h"), (seconds % 3_600 / 60, "m")),
            _ => ((seconds / 86_400, "d"), (seconds % 86_400 / 3_600, "h")),
        };
        write!(formatter, "{}{}", large.0, large.1)?;
        if small.0 > 0 { write!(formatter, " {}{}", small.0, small.1) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Spoken;
    use std::time::Duration;

    #[test]
    fn durations_are_said_with_two_units_at_most() {
        for (seconds, said) in [
            (0.04, "0s"),
            (2.34, "2.3s"),
            (4.0, "4s"),
            (100.0, "1m 40s"),
            (2_700.0, "45m"),
            (7_380.0, "2h 3m"),
            (345_600.0, "4d"),
            (352_800.0, "4d 2h"),
        ] {
            assert_eq!(Spoken(Duration::from_secs_f64(seconds)).to_string(), said);
        }
    }
}
