//! A host with a clock, asked one question at a time.
//!
//! Owns the waiting for answers. Must never know what a test is about.

use millpond_core::command::{Command, LeaseRequest, Leased, Reply, SettleOutcome, Settlement};
use millpond_core::identity::Receipt;
use millpond_core::name::Name;
use millpond_core::time::Mono;
use millpond_sim::host::{Host, HostError, Outcome};
use std::time::Duration;

/// The queue of these tests.
pub(crate) fn queue() -> Name {
    Name::new("jobs").unwrap()
}

/// A host and its clock; answers come when their group is on the disk.
pub(crate) struct Session {
    pub(crate) host: Host,
    pub(crate) at: Mono,
}

impl Session {
    pub(crate) fn ask(&mut self, command: Command) -> Result<Reply, HostError> {
        let request = self.host.ask(command, self.at)?;
        loop {
            for outcome in self.host.outcomes() {
                if let Outcome::Reply(answered, reply) = outcome
                    && answered == request
                {
                    return Ok(reply);
                }
            }
            let next = self.host.next_event().expect("somebody waits for an answer");
            self.at = self.at.max(next);
            self.host.run(self.at)?;
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), HostError> {
        let until = self.at.plus(time);
        while let Some(next) = self.host.next_event().filter(|&next| next <= until) {
            self.at = self.at.max(next);
            self.host.run(self.at)?;
        }
        self.at = until;
        Ok(())
    }

    pub(crate) fn lease(&mut self, max: usize) -> Result<Vec<Leased>, HostError> {
        let wish = LeaseRequest { queue: queue(), max, lease: None, wait: Duration::ZERO, consumer: None };
        match self.ask(Command::Lease(wish))? {
            Reply::Leased(Ok(leased)) => Ok(leased),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn settle(&mut self, receipt: Receipt, outcome: SettleOutcome) -> Result<bool, HostError> {
        match self.ask(Command::Settle(vec![Settlement { receipt, outcome }]))? {
            Reply::Settled(results) => Ok(results[0].is_ok()),
            other => panic!("{other:?}"),
        }
    }
}
