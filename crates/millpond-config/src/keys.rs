//! Every key of the configuration, table by table, and what to say about one that is not there.
//!
//! Owns the lists that unknown keys are measured against. Must never decide what a value means.

/// A table of the configuration and the keys in it.
#[derive(Debug)]
pub(crate) struct Table {
    /// The table as it is written in the documentation; empty for the top level.
    pub(crate) title: &'static str,
    /// Keys that this version reads.
    pub(crate) supported: &'static [&'static str],
    /// Keys of the format that this version does not implement. They are refused, never ignored.
    pub(crate) unsupported: &'static [&'static str],
}

pub(crate) static TOP: Table = Table {
    title: "",
    supported: &[
        "listen",
        "data",
        "external_url",
        "allowed_hosts",
        "max_body",
        "targets",
        "queues",
        "routes",
        "cors",
        "callbacks",
        "scaler",
        "alerts",
    ],
    unsupported: &["auth"],
};
pub(crate) static TARGET: Table = Table {
    title: "targets.NAME",
    supported: &[
        "url",
        "concurrency",
        "rate",
        "timeout",
        "hold_after_timeout",
        "headers",
        "outcomes",
        "adaptive",
        "latency_objective",
        "http2",
        "connect_timeout",
        "tls",
        "signature",
        "breaker",
        "ramp",
    ],
    unsupported: &[],
};
pub(crate) static TLS: Table = Table {
    title: "targets.NAME.tls",
    supported: &["ca", "certificate", "key", "server_name"],
    unsupported: &[],
};
pub(crate) static SIGNATURE: Table =
    Table { title: "targets.NAME.signature", supported: &["secret"], unsupported: &[] };
/// Wherever a secret can be given. Not one of [`TABLES`]: it has no place of its own.
pub(crate) static SECRET: Table = Table { title: "a secret", supported: &["file", "env"], unsupported: &[] };
pub(crate) static BREAKER: Table = Table {
    title: "targets.NAME.breaker",
    supported: &["failures", "failure_rate", "window", "probe_after", "probe_max"],
    unsupported: &[],
};
pub(crate) static QUEUE: Table = Table {
    title: "queues.NAME",
    supported: &[
        "target",
        "concurrency",
        "max_wait",
        "max_messages",
        "max_bytes",
        "overflow",
        "block_for",
        "order",
        "fresh_within",
        "priority",
        "prefetch",
        "max_keys",
        "dead_burst",
        "lease",
        "retention",
        "on_expiry",
        "result_retention",
        "result_max",
        "expected_service_time",
        "retry",
        "dead_letter",
        "alerts",
    ],
    unsupported: &[],
};
pub(crate) static RETRY: Table = Table {
    title: "queues.NAME.retry",
    supported: &["max_attempts", "max_deliveries", "backoff", "budget"],
    unsupported: &[],
};
pub(crate) static BACKOFF: Table =
    Table { title: "queues.NAME.retry.backoff", supported: &["min", "max"], unsupported: &[] };
pub(crate) static DEAD_LETTER: Table = Table {
    title: "queues.NAME.dead_letter",
    supported: &["retention", "max_messages", "replayable_for", "owner"],
    unsupported: &[],
};

pub(crate) static ROUTE: Table = Table {
    title: "[routes]",
    supported: &[
        "path",
        "methods",
        "queue",
        "keep_headers",
        "forward",
        "tenant",
        "group",
        "idempotency_key",
        "criticality",
        "wait",
        "schema",
    ],
    unsupported: &[],
};

pub(crate) static CORS: Table = Table {
    title: "cors",
    supported: &["origins", "headers", "expose", "max_age", "credentials"],
    unsupported: &[],
};

pub(crate) static CALLBACKS: Table = Table {
    title: "callbacks",
    supported: &[
        "secret",
        "allow",
        "allow_http",
        "allow_private",
        "ports",
        "timeout",
        "concurrency",
        "concurrency_per_host",
        "max_messages",
        "max_bytes",
        "retention",
        "owner",
        "tls",
    ],
    unsupported: &[],
};

pub(crate) static SCALER: Table = Table { title: "scaler", supported: &["listen"], unsupported: &[] };

pub(crate) static QUEUE_ALERTS: Table = Table {
    title: "queues.NAME.alerts",
    supported: &["oldest_age", "depth", "dead", "refusals", "insurmountable", "held", "for"],
    unsupported: &[],
};

pub(crate) static ALERTS: Table = Table {
    title: "alerts",
    supported: &["for", "slow_commits", "storage_full", "breaker_open", "webhook", "secret"],
    unsupported: &[],
};

pub(crate) static TABLES: &[&Table] = &[
    &TOP,
    &TARGET,
    &TLS,
    &SIGNATURE,
    &BREAKER,
    &QUEUE,
    &RETRY,
    &BACKOFF,
    &DEAD_LETTER,
    &ROUTE,
    &CORS,
    &CALLBACKS,
    &SCALER,
    &QUEUE_ALERTS,
    &ALERTS,
];

/// What to do about a `key` that `table` does not have.
pub(crate) fn advice(key: &str, table: &Table) -> String {
    let known = || table.supported.iter().chain(table.unsupported).copied();
    if let Some(right) = nearest(key, known()) {
        return format!("did you mean `{right}`?");
    }
    let elsewhere: Vec<&str> = TABLES
        .iter()
        .filter(|other| other.supported.contains(&key) || other.unsupported.contains(&key))
        .map(|other| other.title)
        .collect();
    match elsewhere[..] {
        [] => format!("remove it; the keys here are {}", table.supported.join(", ")),
        ["", ..] => format!("`{key}` belongs at the top of the file, before the first [table]"),
        _ => format!("`{key}` belongs in [{}]", elsewhere.join("] or [")),
    }
}

/// The candidate nearest to `word`, if one is near enough to have been meant. Distance: Damerau-Levenshtein, at
/// most a third of the longer word; case and `-` for `_` cost nothing.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LENGTH_MAX: usize = 100;
    if word.len() > LENGTH_MAX {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let measured = candidates.filter_map(|candidate| {
        let distance = strsim::damerau_levenshtein(&plain(word), &plain(candidate));
        let allowed = (word.chars().count().max(candidate.chars().count()) / 3).max(1);
        (distance <= allowed).then_some((distance, candidate))
    });
    measured.min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::{QUEUE, TABLES, TOP, advice, nearest};

    #[test]
    fn a_misspelt_key_brings_the_nearest_one() {
        for (typed, meant) in [
            ("concurency", "concurrency"),
            ("max-wait", "max_wait"),
            ("Lease", "lease"),
            ("overfow", "overflow"),
        ] {
            assert_eq!(advice(typed, &QUEUE), format!("did you mean `{meant}`?"));
        }
    }

    #[test]
    fn a_key_of_another_table_is_sent_there() {
        assert_eq!(advice("max_attempts", &QUEUE), "`max_attempts` belongs in [queues.NAME.retry]");
        assert_eq!(
            advice("listen", &QUEUE),
            "`listen` belongs at the top of the file, before the first [table]"
        );
        assert_eq!(advice("rate", &TOP), "`rate` belongs in [targets.NAME]");
    }

    #[test]
    fn nothing_is_guessed_for_a_key_that_is_near_to_none() {
        assert!(advice("zzz", &TOP).starts_with("remove it; the keys here are listen, data"));
        assert_eq!(nearest(&"x".repeat(10_000), ["x"].into_iter()), None);
    }

    #[test]
    fn no_key_is_both_supported_and_not() {
        for table in TABLES {
            assert!(table.supported.iter().all(|key| !table.unsupported.contains(key)), "{}", table.title);
        }
    }
}
