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
