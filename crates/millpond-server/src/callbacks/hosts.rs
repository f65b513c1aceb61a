//! How each host that is called back is doing: what is under way there, whether it answers, when it may be tried again.
//!
//! Owns the caps per host, the breakers, and who comes when. Pure: time and chance are arguments. Must never let one
//! host hold up another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Failures in a row that open a host's breaker.
const FAILURES_MAX: u32 = 5;
/// How long it stays open at first; each time twice as long.
const OPEN_MIN: Duration = Duration::from_secs(30);
/// How long it stays open at most.
const OPEN_MAX: Duration = Duration::from_mins(15);
/// Longest time that a callback is put off before its host is looked at again.
const LATER_MAX: Duration = Duration::from_mins(15);
/// How long a try is taken to last before one has been seen.
const USUAL: Duration = Duration::from_millis(500);
/// Hosts remembered beyond those that are called now.
const HOSTS_MAX: usize = 10_000;

/// One host.
#[derive(Debug, Clone, Copy)]
struct Host {
    running: u32,
    failures: u32,
    /// Not before then: its breaker is open, or it has asked for a pause.
    closed_until: Option<Instant>,
    /// Whoever is put off next comes after this.
    last_slot: Instant,
    /// How long a try lasts, smoothed.
    lasts: Duration,
}

/// How a try ended, as far as its host is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It answered, whatever it said.
    Answered,
    /// It wants to be left alone for so long.
    Pause(Duration),
    /// It did not answer, or is not well.
    Failed,
}

/// Whether a callback may be tried now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Now; [`Hosts::ended`] must follow.
    Now,
    /// Not before so long from now.
    Later(Duration),
}

/// All hosts.
#[derive(Debug)]
pub(super) struct Hosts {
    hosts: BTreeMap<String, Host>,
    per_host: u32,
}

impl Hosts {
    pub(super) fn new(per_host: u32) -> Self {
        Self { hosts: BTreeMap::new(), per_host }
    }

    /// Whether one more callback may go to `host`. `chance` from 0 to 1.
    pub(super) fn admit(&mut self, name: &str, now: Instant, chance: f64) -> Admission {
        self.prune(now);
        let fresh = Host { running: 0, failures: 0, closed_until: None, last_slot: now, lasts: USUAL };
        let host = self.hosts.entry(name.to_owned()).or_insert(fresh);
        let closed_for =
            host.closed_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        // After a pause, one goes ahead to see how it is.
        let most = if host.failures >= FAILURES_MAX { 1 } else { self.per_host };
        if closed_for.is_zero() && host.running < most {
            host.running += 1;
            return Admission::Now;
        }
        // One after the other, as far apart as the host has managed so far: else, all would come back at once.
        let apart = (host.lasts / self.per_host).max(Duration::from_millis(10));
        let earliest = now + closed_for.max(Duration::from_secs(1));
        host.last_slot = host.last_slot.max(earliest) + apart;
        let wait = host.last_slot.saturating_duration_since(now).min(LATER_MAX.max(closed_for));
        host.last_slot = host.last_slot.min(now + LATER_MAX.max(closed_for));
        Admission::Later(wait + wait.mul_f64(0.1 * chance))
    }

    /// A try has ended that was admitted, after so long.
    pub(super) fn ended(&mut self, name: &str, how: Ended, took: Duration, now: Instant) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.running = host.running.saturating_sub(1);
        host.lasts = (host.lasts * 7 + took) / 8;
        match how {
            Ended::Answered => (host.failures, host.closed_until) = (0, None),
            Ended::Pause(pause) => {
                let until = now + pause.min(Duration::from_hours(24));
                host.closed_until = host.closed_until.max(Some(until));
            }
            Ended::Failed => {
                host.failures = host.failures.saturating_add(1);
                if let Some(times) = host.failures.checked_sub(FAILURES_MAX) {
                    let open = OPEN_MIN.saturating_mul(1 << times.min(10)).min(OPEN_MAX);
                    host.closed_until = host.closed_until.max(Some(now + open));
                }
            }
        }
    }

    /// Forgets those of which there is nothing to remember, if there are many.
    fn prune(&mut self, now: Instant) {
        if self.hosts.len() < HOSTS_MAX {
            return;
        }
        self.hosts.retain(|_, host| host.running > 0 || host.closed_until.is_some_and(|until| until > now));
        while self.hosts.len() >= HOSTS_MAX {
            let idle = self.hosts.iter().find(|(_, host)| host.running == 0);
            let Some(name) = idle.map(|(name, _)| name.clone()) else { return };
            self.hosts.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Ended, FAILURES_MAX, HOSTS_MAX, Hosts, LATER_MAX, OPEN_MAX};
    use std::time::{Duration, Instant};

    const BRIEF: Duration = Duration::from_millis(100);

    fn later(admission: Admission) -> Duration {
        match admission {
            Admission::Later(wait) => wait,
            Admission::Now => panic!("admitted"),
        }
    }

    #[test]
    fn a_host_gets_as_many_at_once_as_it_may_and_the_others_come_one_after_the_other() {
        let (mut hosts, now) = (Hosts::new(2), Instant::now());
        for _ in 0..2 {
            assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
        }
        let waits: Vec<Duration> = (0..100).map(|_| later(hosts.admit("a", now, 0.0))).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        assert!(waits[0] >= Duration::from_secs(1) && waits[99] < Duration::from_mins(1), "{waits:?}");
        assert_eq!(hosts.admit("b", now, 0.0), Admission::Now, "another host is not held up");
        hosts.ended("a", Ended::Answered, BRIEF, now);
        assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
    }

    #[test]
    fn a_dead_host_is_left_alone_and_tried_by_one_at_a_time() {
        let (mut hosts, mut now) = (Hosts::new(8), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
            hosts.ended("a", Ended::Failed, BRIEF, now);
        }
        let mut waited = Vec::new();
        for _ in 0..10 {
            let wait = later(hosts.admit("a", now, 0.0));
            waited.push(wait);
            now += wait;
            assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
            assert!(matches!(hosts.admit("a", now, 0.0), Admission::Later(_)), "one at a time");
            hosts.ended("a", Ended::Failed, BRIEF, now);
        }
        assert!(waited[0] >= Duration::from_secs(30) && waited[1] >= Duration::from_mins(1), "{waited:?}");
        assert!(waited.iter().all(|wait| *wait <= OPEN_MAX + LATER_MAX), "{waited:?}");
        now += OPEN_MAX + LATER_MAX;
        assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
        hosts.ended("a", Ended::Answered, BRIEF, now);
        for _ in 0..8 {
            assert_eq!(hosts.admit("a", now, 0.0), Admission::Now, "it is well again");
        }
    }

    #[test]
    fn a_pause_that_a_host_asks_for_holds_for_all_that_goes_there() {
        let (mut hosts, now) = (Hosts::new(8), Instant::now());
        assert_eq!(hosts.admit("a", now, 0.0), Admission::Now);
        hosts.ended("a", Ended::Pause(Duration::from_mins(2)), BRIEF, now);
        let wait = later(hosts.admit("a", now, 1.0));
        assert!((Duration::from_mins(2)..Duration::from_mins(3)).contains(&wait), "{wait:?}");
        assert_eq!(hosts.admit("a", now + wait, 0.0), Admission::Now);
    }

    #[test]
    fn hosts_without_end_take_no_room_without_end() {
        let (mut hosts, now) = (Hosts::new(1), Instant::now());
        for number in 0..HOSTS_MAX + 100 {
            let name = format!("{number}.example.com");
            assert_eq!(hosts.admit(&name, now, 0.0), Admission::Now);
            hosts.ended(&name, Ended::Failed, BRIEF, now);
        }
        assert!(hosts.hosts.len() <= HOSTS_MAX);
    }
}
