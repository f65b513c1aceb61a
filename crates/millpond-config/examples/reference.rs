//! Prints the page `docs/reference/configuration.md`.
//!
//! Owns nothing. Must never write the file itself: the shell does.
#![expect(clippy::print_stdout, reason = "prints the page")]

fn main() {
    print!("{}", millpond_config::reference_markdown());
}
