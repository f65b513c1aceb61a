//! How text on the command line becomes values that the commands share.
//!
//! Owns the parsers that `millpond-config` has no use for. Must never accept what a configuration file would
//! understand differently.

use super::failure::{Failure, tell};
use millpond_config::quantity::{QuantityError, parse_duration, parse_rate};
use millpond_config::{ConfigurationError, Loaded};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The configuration that is read when none is named.
const CONFIGURATION: &str = "millpond.toml";

/// A duration, or a bare number of seconds as in `Prefer: wait=10`.
pub(crate) fn wait(text: &str) -> Result<Duration, QuantityError> {
    text.parse().map_or_else(|_| parse_duration(text), |seconds| Ok(Duration::from_secs(seconds)))
}

/// A rate in events per second. Unlike a limit in a configuration, it may be zero or have a fraction: `4.5/s`.
pub(crate) fn rate(text: &str) -> Result<f64, QuantityError> {
    let exact = parse_rate(text).map(millpond_core::rate::Rate::per_second);
    exact.or_else(|error| {
        let (number, per) = text.split_once('/').ok_or_else(|| error.clone())?;
        let number: f64 = number.trim().parse().map_err(|_| error.clone())?;
        let unit = parse_rate(&format!("1/{}", per.trim())).map_err(|_| error.clone())?;
        if number.is_finite() && number >= 0.0 { Ok(number * unit.per_second()) } else { Err(error) }
    })
}

/// The configuration file that was named, else `millpond.toml` if it is here, else none.
pub(crate) fn configuration(named: Option<&Path>) -> Option<PathBuf> {
    let here = || Path::new(CONFIGURATION).exists().then(|| PathBuf::from(CONFIGURATION));
    named.map(Path::to_path_buf).or_else(here)
}

/// The configuration in `path`. Findings about its text are complete messages and are told as they are.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    millpond_config::load(path).map_err(|error| match error {
        ConfigurationError::Invalid(invalid) => {
            tell(&invalid.to_string());
            Failure::Told
        }
        other => Failure::Failed { text: other.to_string(), help: None },
    })
}

#[cfg(test)]
mod tests {
    use super::{rate, wait};
    use std::time::Duration;

    #[test]
    fn a_wait_may_be_bare_seconds() {
        for (text, seconds) in [("10", 10), ("30s", 30), ("2m", 120)] {
            assert_eq!(wait(text).unwrap(), Duration::from_secs(seconds));
        }
        assert!(wait("soon").is_err());
    }

    #[test]
    fn a_rate_may_have_a_fraction_or_be_zero() {
        for (text, per_second) in
            [("100/s", 100.0), ("4.5/s", 4.5), ("0/s", 0.0), ("30/m", 0.5), ("1.5/m", 0.025)]
        {
            assert!((rate(text).unwrap() - per_second).abs() < 1e-12, "{text}");
        }
        for text in ["", "5", "-1/s", "x/s", "inf/s", "nan/s", "1/fortnight"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
