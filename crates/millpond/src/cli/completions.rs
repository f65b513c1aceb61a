//! `millpond completions`: what a shell needs to complete commands and options.
//!
//! Owns nothing but the choice of the shell. Must never write into a shell's own files.

use super::failure::Failure;
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

/// Print completions for a shell
///
/// Prints a script that teaches your shell to complete the commands and options of millpond. Load it once to try it,
/// or save it where your shell looks for completions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        source <(millpond completions bash)\n  \
        millpond completions bash > /etc/bash_completion.d/millpond\n  \
        millpond completions zsh > ~/.zfunc/_millpond\n  \
        millpond completions fish > ~/.config/fish/completions/millpond.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, command: &mut clap::Command, out: &mut impl Write) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "millpond", &mut script);
        Ok(out.write_all(&script)?)
    }
}
