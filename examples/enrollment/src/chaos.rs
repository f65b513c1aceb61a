//! Who is killed when.
//!
//! Owns the plan. Must never kill anything itself.

use serde::Serialize;
use std::time::Duration;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// The service that writes the registrations.
    Service,
    /// PostgreSQL.
    Database,
    /// Millpond.
    Millpond,
}

/// One kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kill {
    /// When, since the beginning of the run.
    pub(crate) at: Duration,
    /// Whom.
    pub(crate) victim: Victim,
}

/// All three in turn, `rounds` times: the first at `first`, one every `every`.
pub(crate) fn plan(first: Duration, every: Duration, rounds: u32) -> Vec<Kill> {
    let victims = [Victim::Service, Victim::Database, Victim::Millpond];
    let in_turn = victims.into_iter().cycle().take(victims.len() * rounds as usize);
    (0..).zip(in_turn).map(|(number, victim)| Kill { at: first + every * number, victim }).collect()
}

#[cfg(test)]
mod tests {
    use super::{Victim, plan};
    use std::time::Duration;

    #[test]
    fn everybody_has_their_turn_in_every_round() {
        let kills = plan(Duration::from_secs(3), Duration::from_secs(5), 2);
        let seen: Vec<(u64, Victim)> = kills.iter().map(|kill| (kill.at.as_secs(), kill.victim)).collect();
        let round = [Victim::Service, Victim::Database, Victim::Millpond];
        let expected: Vec<(u64, Victim)> =
            [3, 8, 13, 18, 23, 28].into_iter().zip([round, round].concat()).collect();
        assert_eq!(seen, expected);
        assert!(plan(Duration::ZERO, Duration::ZERO, 0).is_empty());
    }
}
