//! Promises in front of a target whose limit finds itself: they hold, for what is pushed and for what workers take beside it.

use crate::rig::{Rig, complete, message, ms, s, succeeded, target};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::settings::{AdaptiveSettings, QueueSettings, TargetSettings};
use millpond_core::time::Mono;
use std::time::Duration;

/// What the target can work on at once, and how long each takes; more calls wait there.
const SERVERS: usize = 8;
const WORK: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(10);

/// A target that works off calls in the order of their coming.
struct Backend {
    rig: Rig,
    free_at: [Mono; SERVERS],
    under_way: Vec<(Mono, Receipt)>,
    began: Vec<(Seq, Mono)>,
    /// A worker that takes one message after the other, and does each in so long.
    worker: Option<Duration>,
    working: Option<(Mono, Receipt)>,
}

impl Backend {
    fn new(worker: Option<Duration>) -> Self {
        let till = TargetSettings { adaptive: Some(AdaptiveSettings::default()), ..target(100) };
        let settings = QueueSettings {
            result_retention: ms(500),
            expected_service_time: Some(WORK),
            ..QueueSettings::default()
        };
        let rig = Rig::pushing(till, settings);
        let (under_way, began) = (Vec::new(), Vec::new());
        Self { rig, free_at: [Mono(0); SERVERS], under_way, began, worker, working: None }
    }

    fn step(&mut self) {
        self.rig.pass(STEP);
        let now = self.rig.now.mono;
        for (_, receipt) in self.under_way.extract_if(.., |(ends, _)| *ends <= now).collect::<Vec<_>>() {
            self.rig.end_call(receipt, succeeded());
        }
        if let Some((_, receipt)) = self.working.take_if(|(ends, _)| *ends <= now) {
            self.rig.settle(receipt, complete()).unwrap();
        }
        if let (Some(takes), None) = (self.worker, self.working)
            && let Some(leased) = self.rig.lease(1).pop()
        {
            self.began.push((leased.receipt.seq, now));
            self.working = Some((now.plus(takes), leased.receipt));
        }
        for call in self.rig.take_calls() {
            self.began.push((call.receipt.seq, now));
            let server = self.free_at.iter_mut().min().unwrap();
            *server = (*server).max(now).plus(WORK);
            self.under_way.push((*server, call.receipt));
        }
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.step();
        }
    }

    /// What the next message is promised, and how long it waits.
    fn promised_and_waited(&mut self) -> (f64, f64) {
        let accepted = self.rig.enqueue(message()).unwrap();
        let at = self.rig.now.mono;
        let promised = accepted.promise.unwrap().p50.as_secs_f64();
        loop {
            if let Some((_, began)) = self.began.iter().find(|(seq, _)| *seq == accepted.seq) {
                return (promised, began.since(at).as_secs_f64());
            }
            self.step();
        }
    }
}

#[test]
fn behind_a_limit_that_was_found_a_start_is_promised_that_holds() {
    for worker in [None, Some(WORK)] {
        let mut backend = Backend::new(worker);
        backend.rig.fill(1300);
        backend.run(s(7));
        let stats = backend.rig.target_stats();
        assert!((6..=16).contains(&stats.limit), "{worker:?}: {stats:?}");
        for _ in 0..2 {
            let left = backend.rig.stats().ready;
            let (promised, waited) = backend.promised_and_waited();
            assert!(waited > 0.5, "{worker:?}: {left} ready, {waited} waited");
            let off = promised / waited;
            assert!((0.7..1.45).contains(&off), "{worker:?}: {promised} s promised, {waited} s waited");
            backend.rig.fill(150);
        }
    }
}
