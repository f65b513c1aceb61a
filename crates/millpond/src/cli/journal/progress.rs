//! A bar while a large log is read.
//!
//! Owns nothing but the bar. Must never draw where nobody watches, nor write to standard output.

use indicatif::{ProgressBar, ProgressStyle};
use millpond_engine::survey::Watch;
use millpond_journal::Storage;
use millpond_journal::inspect::segment_bytes;

/// Bytes of segments that have been read, of all.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for reading what `storage` holds.
    pub(super) fn new(storage: &dyn Storage) -> Self {
        let style =
            ProgressStyle::with_template("read {binary_bytes} of {binary_total_bytes} {bar:24} {eta} left")
                .expect("the template is a constant");
        // A length that cannot be had is no reason not to read.
        let bytes = segment_bytes(storage).unwrap_or_default();
        Self { bar: ProgressBar::new(bytes).with_style(style) }
    }

    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn progress(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
    }
}
