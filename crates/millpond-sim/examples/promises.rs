//! Prints how promises compare with what happens, as docs/guide/promises.md shows it.
//!
//! Owns the printing only.

use millpond_sim::promises::table;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[expect(clippy::print_stdout, reason = "an example shows its result")]
    {
        print!("{}", table(1)?);
    }
    Ok(())
}
