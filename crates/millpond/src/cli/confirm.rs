//! The question before something that cannot be undone.
//!
//! Owns the prompt. Must never take silence for a yes.

use super::failure::Failure;
use std::io::{IsTerminal as _, Write as _};

/// Returns if the user has agreed: by `--yes`, or by answering the question on the terminal.
pub(crate) fn confirm(question: &str, agreed: bool) -> Result<(), Failure> {
    if agreed {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let text = format!("this needs a yes, and there is no terminal to ask on: {question}");
        return Err(Failure::usage(text, "add --yes if that is what you want"));
    }
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new("nothing was changed", "answer y, or add --yes"))
}
