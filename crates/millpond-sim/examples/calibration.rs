//! Prints whether promises hold what they claim, as docs/guide/promises.md shows it.
//!
//! Owns the printing only.

use millpond_sim::promises::{HEADING, calibration_rows};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[expect(clippy::print_stdout, reason = "an example shows its result")]
    {
        print!("{HEADING}");
        for row in calibration_rows(&[1, 2, 3, 4, 5]) {
            print!("{}", row?);
        }
    }
    Ok(())
}
