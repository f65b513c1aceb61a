//! Everything that is wrong with a data directory, as one list.
//!
//! Owns the words. Must never judge: the survey has.

use super::{LISTED_MAX, SecretState, Survey};
use millpond_journal::Place;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where in the log; `None` for what has no place there.
    pub place: Option<Place>,
    /// A short stable word.
    pub kind: &'static str,
    /// Bytes that cannot be read as they were written, as far as known.
    pub bytes: u64,
    /// Frames that are missing for it, as far as known.
    pub frames: u64,
    /// Records in there that are still whole.
    pub records_found: u64,
    /// Records in there of which all but the bytes of their messages is known.
    pub heads_found: u64,
    /// What is wrong, for people.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl Survey {
    /// What is wrong, in the order of the log, the directory's small files first. Empty for a whole directory.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.inspection.format_lost {
            let told = match self.inspection.frames {
                0 => "and no frame is left that tells what it held: nothing in the directory can be read",
                _ => "the frames tell what it held, a repair makes it anew",
            };
            findings
                .push(elsewhere("format-file", &format!("the file `format` is missing or damaged; {told}")));
        }
        match self.secret {
            SecretState::Whole => {}
            SecretState::Missing => findings.push(elsewhere(
                "secret",
                "the file `secret` is missing: ids and receipts that were given out mean nothing without it; restore it from a backup",
            )),
            SecretState::Damaged => findings.push(elsewhere(
                "secret",
                "the file `secret` is damaged: ids and receipts that were given out mean nothing without it; \
                 restore it from a backup",
            )),
        }
        if self.emptied {
            findings.push(elsewhere("emptied", "the directory was used, but its log holds nothing"));
        }
        let inspection = &self.inspection;
        if inspection.segments.is_empty() && inspection.faults.is_empty() && findings.is_empty() {
            let told = "there is no segment: either nothing was ever written here, or everything is lost";
            findings.push(elsewhere("no-segment", told));
        }
        findings.extend(inspection.faults.iter().map(|fault| Finding {
            place: Some(fault.place),
            kind: fault.kind.as_str(),
            bytes: fault.bytes,
            frames: fault.frames,
            records_found: fault.records_found,
            heads_found: fault.heads_found,
            text: fault.kind.to_string(),
        }));
        findings.extend(self.undecodable.iter().map(|record| Finding {
            place: Some(record.position.place()),
            bytes: record.position.record_bytes(),
            ..elsewhere("undecodable-record", &record.error.to_string())
        }));
        findings.sort_by_key(|finding| finding.place);
        for number in self.orphaned() {
            let text = format!("messages speak of queue number {}, which the log does not know", number.0);
            findings.push(elsewhere("unknown-queue", &text));
        }
        findings
    }

    /// Findings beyond those that [`findings`](Self::findings) lists.
    pub fn further_findings(&self) -> u64 {
        self.inspection.further_faults + self.undecodable_total.saturating_sub(LISTED_MAX as u64)
    }
}

fn elsewhere(kind: &'static str, text: &str) -> Finding {
    Finding {
        place: None,
        kind,
        bytes: 0,
        frames: 0,
        records_found: 0,
        heads_found: 0,
        text: text.to_owned(),
    }
}
