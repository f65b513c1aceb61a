//! The clocks of production.
//!
//! Owns the one place where the engine reads them.

use millpond_core::time::{Mono, Now, Wall};
use std::time::{Duration, Instant, SystemTime};

/// Wall and monotonic clock; the latter starts at zero.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose monotonic side starts now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The moment.
    pub fn now(&self) -> Now {
        let wall = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => -micros(before.duration()),
        };
        Now { wall: Wall(wall), mono: Mono(micros(self.origin.elapsed())) }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
