//! The binary as its users see it: arguments, output, exit codes, and round trips through a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alerts;
mod check;
mod clock;
mod console;
mod frozen;
mod guide;
mod help;
mod journal;
mod lists;
mod load;
mod plan;
mod process;
mod serve;
mod top;
mod torture;
mod usage;
mod work;
mod worker;
