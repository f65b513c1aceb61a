//! Whole-engine behaviour on virtual time and a simulated disk.
#![expect(clippy::unwrap_used, reason = "tests")]

mod crash;
mod dispatch;
mod fixture;
mod full_disk;
mod full_disk_bursts;
mod indexes;
mod promises;
mod replay;
mod rest;
mod scaling;
mod session;
mod swarm;
mod unreadable;
