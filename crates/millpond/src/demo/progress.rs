//! What is shown on standard error while a run goes on.
//!
//! Owns the bar and the warnings. Must never write to standard output, which belongs to the report, nor draw a bar
//! where nobody watches.

use indicatif::{ProgressBar, ProgressStyle};
use millpond_sim::text;
use std::time::Duration;

/// Steps of the bar.
const STEPS: u64 = 1_000;
/// A generator this late falsifies what it measures.
const LATE: Duration = Duration::from_millis(50);

/// A bar for one half of a run.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that says `title` first; invisible if standard error is not a terminal.
    pub(super) fn new(title: &'static str) -> Self {
        let style =
            ProgressStyle::with_template("{prefix:<18} {bar:24} {msg}").expect("the template is a constant");
        let bar = ProgressBar::new(STEPS).with_style(style).with_prefix(title);
        Self { bar }
    }

    /// Shows how far it is (0 to 1) and what is going on.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1000")]
    pub(super) fn show(&self, part: f64, message: String) {
        self.bar.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.bar.set_message(message);
    }

    /// Says something that the figures do not show.
    pub(super) fn warn(&self, text: &str) {
        self.bar.suspend(|| tell(text));
    }

    /// Says so if the callers started so late that the figures suffer.
    pub(super) fn note_lateness(&self, latest_start: Duration) {
        if latest_start > LATE {
            let late = text::seconds(latest_start.as_secs_f64());
            self.warn(&format!(
                "the machine is busy: calls started up to {late} late, which counts as latency"
            ));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[expect(clippy::print_stderr, reason = "diagnostics of a command line go there")]
fn tell(text: &str) {
    eprintln!("millpond demo: {text}");
}
