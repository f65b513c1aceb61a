//! The one binary.
//!
//! Owns nothing but the way into the command line. Must never hold logic that a library lacks.

mod cli;
mod demo;

fn main() -> std::process::ExitCode {
    cli::run()
}
