//! What happens without a queue: callers call the backend directly and give up when they have waited too long.
//!
//! Owns a small discrete-event simulation of that path. Must never know a queue of ours: it is the other half
//! of the comparison.

use crate::outcome::DirectOutcome;
use crate::workload::{Load, Scenario};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Runs `scenario` until `aftermath` after its spike, on a backend of its slots and its service time.
///
/// What the backend cannot work on at once waits in its accept queue, first in, first out and without a bound.
/// A caller leaves after its time-out, but the backend does not know and does the work all the same, which is why
/// calls after the spike fail too.
pub fn simulate_direct(scenario: &Scenario, aftermath: Duration) -> DirectOutcome {
    let spike_end = scenario.spike_end();
    let (schedule, end) = (scenario.schedule(), spike_end + aftermath);
    let mut free_at: BinaryHeap<Reverse<Duration>> =
        (0..scenario.slots).map(|_| Reverse(Duration::ZERO)).collect();
    let mut waiting: VecDeque<Duration> = VecDeque::new();
    let mut outcome = DirectOutcome::default();
    for arrival in schedule.arrivals().take_while(|arrival| arrival.at() < end) {
        let at = arrival.at();
        // A backend without a slot never begins.
        let start = free_at.pop().map_or(Duration::MAX, |Reverse(free)| free.max(at));
        let finish = start.saturating_add(scenario.service_time);
        free_at.push(Reverse(finish));
        while waiting.front().is_some_and(|&start| start <= at) {
            waiting.pop_front();
        }
        if start > at {
            waiting.push_back(start);
        }
        outcome.peak_waiting = outcome.peak_waiting.max(waiting.len() as u64);
        let in_time = finish.saturating_sub(at) <= scenario.caller_timeout;
        outcome.count(arrival.load, in_time);
        if !in_time && arrival.load == Load::Normal && at >= spike_end {
            outcome.recovered_seconds = at.saturating_sub(spike_end).as_secs_f64();
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::simulate_direct;
    use crate::workload::Scenario;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
    use std::time::Duration;

    #[test]
    fn ten_of_the_thirty_calls_of_leveling_are_answered_in_time() {
        let outcome = simulate_direct(&Scenario::leveling(), Duration::from_secs(20));
        assert_eq!((outcome.offered, outcome.answered_in_time, outcome.timed_out), (30, 10, 20));
        assert!((19..=20).contains(&outcome.peak_waiting), "{}", outcome.peak_waiting);
    }

    #[test]
    fn normal_calls_fail_long_after_the_spike_because_the_backend_works_for_callers_who_left() {
        let outcome = simulate_direct(&Scenario::leveling(), Duration::from_secs(20));
        assert_eq!(outcome.normal_offered, 3 + 60);
        assert_eq!(outcome.normal_timed_out, 21);
        assert!((6.0..7.0).contains(&outcome.recovered_seconds), "{}", outcome.recovered_seconds);
    }

    #[test]
    fn enrollment_answers_the_first_two_thirds_of_a_second_however_long_the_spike_lasts() {
        for speed in [60, 10] {
            let outcome = simulate_direct(&Scenario::enrollment(speed).unwrap(), Duration::ZERO);
            assert!((1_280..=1_320).contains(&outcome.answered_in_time), "{}", outcome.answered_in_time);
            assert_eq!(outcome.answered_in_time + outcome.timed_out, outcome.offered);
        }
    }

    #[test]
    fn load_within_the_capacity_is_answered_and_waits_for_nobody() {
        let mut calm = Scenario::leveling();
        calm.spike_per_second = 5.0;
        let outcome = simulate_direct(&calm, Duration::from_secs(5));
        assert_eq!((outcome.timed_out, outcome.normal_timed_out, outcome.peak_waiting), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn every_call_is_counted_once_and_more_slots_answer_no_fewer(
            slots in 1_u32..20, spike in 1_u32..300, service_ms in 1_u64..500, timeout_ms in 1_u64..2_000
        ) {
            let scenario = Scenario {
                slots,
                spike_per_second: f64::from(spike),
                service_time: Duration::from_millis(service_ms),
                caller_timeout: Duration::from_millis(timeout_ms),
                ..Scenario::leveling()
            };
            let fewer = simulate_direct(&scenario, Duration::ZERO);
            prop_assert_eq!(fewer.offered, fewer.answered_in_time + fewer.timed_out);
            prop_assert_eq!(fewer.offered, u64::from(spike) * 2);
            let more = simulate_direct(&Scenario { slots: slots + 1, ..scenario }, Duration::ZERO);
            prop_assert!(more.answered_in_time >= fewer.answered_in_time);
        }
    }
}
