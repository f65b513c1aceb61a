//! Which dead letters a command means.
//!
//! Owns the options for it. Must never look at a dead letter: the server does.

use crate::cli::pages::options;
use clap::Args;
use jiff::Timestamp;
use millpond_api::replay::ReplayFilter;
use millpond_config::quantity::parse_duration;

/// Those that fit everything that is given.
#[derive(Debug, Clone, Args)]
pub(super) struct Filter {
    /// Only those with this reason
    #[arg(long, value_parser = ["attempts-exhausted", "deliveries-exhausted", "rejected", "expired"])]
    reason: Option<String>,
    /// Only those whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those that died since: a time, or how long ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment)]
    since: Option<Timestamp>,
    /// Only those that died before: a time, or how long ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment)]
    until: Option<Timestamp>,
    /// Only this tenant's
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Filter {
    pub(super) fn is_given(&self) -> bool {
        self.wire() != ReplayFilter::default()
    }

    /// The same options for another command: times as they were understood, so that both mean the same.
    pub(super) fn options(&self) -> String {
        let ReplayFilter { reason, error, since, until, tenant } = self.wire();
        let given =
            [("reason", reason), ("error", error), ("since", since), ("until", until), ("tenant", tenant)];
        options(&given.each_ref().map(|(name, value)| (*name, value.as_deref())))
    }

    pub(super) fn wire(&self) -> ReplayFilter {
        ReplayFilter {
            reason: self.reason.clone(),
            error: self.error.clone(),
            since: self.since.map(|time| time.to_string()),
            until: self.until.map(|time| time.to_string()),
            tenant: self.tenant.clone(),
        }
    }
}

/// A time as in `2026-11-30T10:00:00Z`, or how long ago it was, as in `2h`.
fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let wrong = "write a time like 2026-11-30T10:00:00Z, or how long ago like 2h";
    let ago = parse_duration(text).map_err(|_| wrong.to_owned())?;
    Timestamp::now().checked_sub(ago).map_err(|_| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::moment;
    use jiff::Timestamp;
    use std::time::Duration;

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        assert_eq!(moment("1970-01-01T00:00:01Z").unwrap(), Timestamp::from_second(1).unwrap());
        let then = moment("2h").unwrap();
        let ago = Timestamp::now().duration_since(then).unsigned_abs();
        assert!(ago >= Duration::from_hours(2) && ago < Duration::from_hours(3));
        for wrong in ["", "yesterday", "2026-11-30", "10"] {
            assert!(moment(wrong).unwrap_err().contains("2h"), "{wrong}");
        }
    }
}
