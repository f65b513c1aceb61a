//! Prints how limits compare in front of a dispatcher with a standing backlog, as docs/guide/dispatch.md shows it.
//!
//! Owns the printing only.

use millpond_sim::dispatch::tables;

#[expect(clippy::print_stdout, reason = "an example shows its result")]
fn main() {
    print!("{}", tables(5));
}
