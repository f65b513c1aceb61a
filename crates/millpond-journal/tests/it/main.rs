//! Integration tests of the journal, through its public interface. They own no rule of their own: what must hold
//! is what the crate's documentation promises.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod crash;
mod damage;
mod disk;
mod faults;
mod fuzz;
mod hostile;
mod inspect;
mod local;
mod reclaim;
mod recycle;
mod seal;
mod support;
