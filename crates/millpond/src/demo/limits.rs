//! How many descriptors a run needs, and whether the process may open as many.
//!
//! Owns the one adjustment a demonstration makes to its own process. Must never lower a limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but the calls: runtime, journal, listeners, standard streams.
const OTHERS: u64 = 256;

/// The process may not open enough files.
#[derive(Debug, thiserror::Error)]
#[error(
    "the direct callers need {needed} open files (a connection has two ends, and both are in this process), the limit \
     is {limit}: raise it, e.g. `ulimit -n {needed}`, or choose --scenario leveling"
)]
pub(crate) struct LimitError {
    needed: u64,
    limit: u64,
}

/// Raises the soft limit of open files, if need be, so that `connections` can be open with both ends.
pub(crate) fn allow_connections(connections: usize) -> Result<(), LimitError> {
    let needed = connections as u64 * 2 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|_| LimitError { needed, limit: limit.maximum.or(limit.current).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::allow_connections;

    #[test]
    fn a_few_connections_are_always_allowed_and_absurdly_many_never() {
        assert!(allow_connections(1).is_ok());
        if rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.is_some() {
            let error = allow_connections(usize::MAX >> 3).unwrap_err();
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
    }
}
