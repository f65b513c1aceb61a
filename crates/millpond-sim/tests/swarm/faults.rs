//! Faults: the power goes, the process dies, the disk errs, runs full, rots or slows down, the clock steps.
//!
//! Owns when which fault strikes and what it may leave. Must never harm what a real machine would keep.

use super::draw::{millis, pick};
use super::world::{Task, World};
use millpond_core::command::Input;
use millpond_engine::engine::OpenError;
use millpond_journal::CommitError;
use millpond_journal::simulated::{Fate, Unsynced};
use millpond_sim::host::HostError;
use millpond_testkit::trail::Event;
use std::time::Duration;

/// An hour, the step of a wall clock that somebody sets right.
const HOUR_MICROS: i64 = 3_600_000_000;

/// Something that goes wrong, or comes right again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The power goes at the so many-th operation of the disk from now on.
    PowerCut {
        operations: u64,
    },
    Kill,
    Stop,
    WriteError,
    SyncError,
    ReadError,
    Full {
        spare_bytes: u64,
        time: Duration,
    },
    Roomy,
    Rot,
    Step {
        by: i64,
    },
    Slow {
        factor: u32,
        time: Duration,
    },
    Steady,
}

impl World {
    pub(super) fn draw_fault(&mut self) {
        let Some(every) = self.plan.fault_every.filter(|_| !self.healing) else { return };
        let pause = every.mul_f64(0.2 + self.chance.f64() * 1.6);
        self.after(pause, Task::Fault);
        let fault = match self.chance.u32(..20) {
            0..5 => Fault::PowerCut { operations: self.chance.u64(0..40) },
            5..7 => Fault::Kill,
            7 => Fault::Stop,
            8 => Fault::WriteError,
            9 => Fault::SyncError,
            10 | 11 => Fault::ReadError,
            12..15 => {
                let spare_bytes = pick(&mut self.chance, &[0, 0, 1, 2]) * u64::from(self.plan.segment_bytes);
                Fault::Full { spare_bytes, time: millis(&mut self.chance, 500, 8_000) }
            }
            15 if self.plan.rots => Fault::Rot,
            16 | 17 => Fault::Step { by: self.draw_step() },
            18 => {
                Fault::Slow { factor: self.chance.u32(10..200), time: millis(&mut self.chance, 500, 5_000) }
            }
            _ => Fault::PowerCut { operations: 0 },
        };
        self.do_fault(fault);
    }

    /// Never more than an hour from the truth, and a bit.
    fn draw_step(&mut self) -> i64 {
        let wrong = self.clock.wall_shift_micros;
        let by = pick(&mut self.chance, &[-HOUR_MICROS, HOUR_MICROS, 3_000_000, -2_000_000]);
        if (wrong + by).abs() > HOUR_MICROS + 60_000_000 { -by } else { by }
    }

    pub(super) fn do_fault(&mut self, fault: Fault) {
        match fault {
            Fault::PowerCut { operations } => {
                self.disk.power_off_at(self.disk.operations() + operations);
            }
            Fault::Kill => self.kill(),
            Fault::Stop => self.stop(),
            Fault::WriteError => {
                self.harm.error = true;
                let writes = self.chance.u64(1..6);
                self.disk.fail_write(writes);
            }
            Fault::SyncError => {
                self.harm.error = true;
                let syncs = self.chance.u64(1..6);
                self.disk.fail_sync(syncs);
            }
            Fault::ReadError => {
                self.reach("fault: read error");
                self.harm.read = true;
                let reads = self.chance.u64(1..4);
                self.disk.fail_read(reads);
            }
            Fault::Full { spare_bytes, time } => self.fill(spare_bytes, time),
            Fault::Roomy => {
                self.disk.set_capacity(None);
                self.conditions.borrow_mut().room_at = None;
            }
            Fault::Rot => self.rot(),
            Fault::Step { by } => {
                self.reach(if by > 0 { "fault: clock stepped forward" } else { "fault: clock stepped back" });
                self.clock.wall_shift_micros += by;
                if by > 0 {
                    self.known.set_forward = self.now;
                }
                self.trail.push(Event::Step { at: self.now.0, by });
                if let Some(host) = &mut self.host {
                    host.step_wall(by);
                }
            }
            Fault::Slow { factor, time } => {
                self.reach("fault: slow disk");
                let slow = self.plan.commit_latency.min(Duration::from_millis(2)) * factor;
                self.conditions.borrow_mut().commit_latency = slow;
                self.after(time, Task::Do(Fault::Steady));
            }
            Fault::Steady => self.conditions.borrow_mut().commit_latency = self.plan.commit_latency,
        }
    }

    fn kill(&mut self) {
        if self.host.is_some() {
            self.reach("fault: process killed");
            self.die();
        }
    }

    /// What the server does when it is told to end: nothing new, everything on the disk, then the end.
    fn stop(&mut self) {
        if self.host.is_none() {
            return;
        }
        self.tell(Input::Drain);
        let until = self.now.plus(Duration::from_secs(5));
        let boot = self.boot;
        self.run(until, |world| {
            world.boot != boot || world.host.as_ref().is_none_or(millpond_sim::host::Host::is_settled)
        });
        if self.boot == boot && self.host.is_some() {
            // Whoever waits for too long is killed.
            let settled = self.host.as_ref().is_some_and(millpond_sim::host::Host::is_settled);
            self.reach(if settled { "fault: clean stop" } else { "fault: process killed" });
            self.die();
        }
    }

    fn fill(&mut self, spare_bytes: u64, time: Duration) {
        self.reach("fault: disk full");
        self.disk.set_capacity(Some(self.disk.used_bytes() + spare_bytes));
        self.conditions.borrow_mut().room_at = Some(self.now.plus(time));
        self.after(time, Task::Do(Fault::Roomy));
    }

    /// A bit flips in what the log has written and synced.
    fn rot(&mut self) {
        let settled = self.host.as_ref().is_some_and(millpond_sim::host::Host::is_settled);
        let logs: Vec<String> =
            self.disk.names().into_iter().filter(|name| name.strip_suffix(".log").is_some()).collect();
        if !settled || logs.is_empty() || self.harm.rot {
            return;
        }
        self.reach("fault: rot");
        self.harm.rot = true;
        let name = &logs[self.chance.usize(..logs.len())];
        let length = self.disk.bytes(name).len();
        self.disk.rot(name, self.chance.usize(..length), 1 << self.chance.u32(..8));
        if self.chance.bool() {
            let soon = millis(&mut self.chance, 0, 3_000);
            self.after(soon, Task::Do(Fault::Kill));
        }
    }

    // --- what follows ------------------------------------------------------------------------------------------

    /// The log has failed, so the engine has said its last word and stopped.
    pub(super) fn engine_stopped(&mut self, error: &HostError) {
        if self.disk.is_off() {
            return self.power_is_gone();
        }
        if !self.harm.error {
            self.fail(format!("the engine stopped on a healthy disk: {error}"));
        }
        self.harm.error = false;
        let action = match error {
            HostError::Commit(CommitError::Io { action, .. }) => *action,
            HostError::Prepare(_) => "create segment",
            HostError::Dispose(_) => "remove segment",
            HostError::Commit(_) | HostError::Open(_) => {
                self.fail(format!("a failed write or sync was told as {error}"))
            }
        };
        let said = error.to_string();
        if !(said.contains(action) && said.contains("restart to recover")) {
            self.fail(format!("the engine's last word does not help: {said}"));
        }
        self.reach(if action == "writing" { "fault: write error" } else { "fault: sync error" });
        self.disk.heal();
        if self.chance.bool() {
            self.lose_power();
        }
        self.die();
    }

    pub(super) fn power_is_gone(&mut self) {
        self.reach("fault: power cut");
        self.lose_power();
        self.die();
    }

    /// Another disk: what this one has kept.
    fn lose_power(&mut self) {
        self.harm.error = false;
        let chance = &mut self.chance;
        let (mark, disk) = match chance.u32(..4) {
            0 => ("fault: power cut, nothing unsynced survives", self.disk.crash_to(|_| Fate::Lost)),
            1 => ("fault: power cut, everything survives", self.disk.crash_to(|_| Fate::Survives)),
            2 => {
                let random = self.disk.crash_to(|_| if chance.bool() { Fate::Survives } else { Fate::Lost });
                ("fault: power cut, anything survives", random)
            }
            _ => {
                let torn = self.disk.crash_to(|unsynced| match (unsynced, chance.u32(..3)) {
                    (_, 0) => Fate::Survives,
                    (Unsynced::Sector { .. }, 1) => Fate::Torn(chance.usize(..512)),
                    _ => Fate::Lost,
                });
                ("fault: power cut, torn sectors", torn)
            }
        };
        self.reach(mark);
        self.disk = disk;
        // Every now and then it goes again while what it left is read.
        if !self.healing && self.chance.u32(..4) == 0 {
            self.disk.power_off_at(self.chance.u64(0..8));
        }
    }

    pub(super) fn start_refused(&mut self, error: &HostError) {
        if self.disk.is_off() {
            self.reach("fault: power cut in recovery");
            self.lose_power();
            self.after(Duration::from_millis(10), Task::Restart);
            return;
        }
        if self.harm.error || self.harm.read {
            // The disk erred while it was read: the next start finds it well.
            self.harm.error = false;
            self.harm.read = false;
            self.disk.heal();
            self.after(Duration::from_millis(10), Task::Restart);
            return;
        }
        let refused = matches!(
            error,
            HostError::Open(OpenError::Journal(
                millpond_journal::OpenError::Corrupt { .. }
                    | millpond_journal::OpenError::MissingSegment { .. }
            ))
        );
        if self.harm.rot && refused {
            self.reach("fault: rot refuses the start");
            self.harm.rot = false;
            // Nothing was changed, so a medium that reads well again serves.
            if self.disk.mend() == 0 {
                self.fail(format!("the start was refused, and nothing had rotted: {error}"));
            }
            self.after(Duration::from_millis(10), Task::Restart);
            return;
        }
        let full = matches!(
            error,
            HostError::Open(
                OpenError::Journal(millpond_journal::OpenError::Full) | OpenError::Boot(CommitError::Full)
            )
        );
        if full && self.conditions.borrow().room_at.is_some() {
            self.after(Duration::from_millis(500), Task::Restart);
            return;
        }
        self.fail(format!("the engine does not start: {error}"));
    }
}
