//! The clocks of production.
//!
//! Owns the one place where the engine reads them.

use millpond_core::time::{Mono, Now, Wall};
use std::time::{Duration, Instant, SystemTime};

/// How far the wall time may be off the system's before it is set to it. Small against what is shown, in
/// milliseconds, and large against what separates two readings of two clocks.
const DEVIATION_MAX_MICROS: i64 = 5_000;

/// Wall and monotonic clock; the latter starts at zero. Both run together between the moments at which the system's
/// wall clock has moved away: messages accepted in between then differ in nothing but the time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    /// Wall time less monotonic time.
    offset_micros: i64,
}

impl Clock {
    /// A clock whose monotonic side starts now.
    pub fn start() -> Self {
        Self { origin: Instant::now(), offset_micros: system_micros() }
    }

    /// The moment.
    pub fn now(&mut self) -> Now {
        let mono = micros(self.origin.elapsed());
        self.offset_micros = follow(self.offset_micros, system_micros(), mono);
        Now { wall: Wall(mono.saturating_add(self.offset_micros)), mono: Mono(mono) }
    }
}

/// The offset to go on with: the same, unless the system's clock has moved away from it.
fn follow(offset_micros: i64, system_micros: i64, mono_micros: i64) -> i64 {
    let actual = system_micros.saturating_sub(mono_micros);
    if actual.abs_diff(offset_micros) > DEVIATION_MAX_MICROS.unsigned_abs() { actual } else { offset_micros }
}

fn system_micros() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::follow;

    #[test]
    fn wall_time_keeps_its_distance_until_the_system_clock_moves_away() {
        assert_eq!(follow(1_000_000, 1_000_900, 1_000), 1_000_000);
        assert_eq!(follow(1_000_000, 995_000, 0), 1_000_000);
        assert_eq!(follow(1_000_000, 3_601_000_000, 0), 3_601_000_000, "a step forward is followed");
        assert_eq!(follow(1_000_000, -3_600_000_000, 0), -3_600_000_000, "and one back");
        assert_eq!(follow(1_000_000, 1_006_000, 0), 1_006_000);
    }
}
