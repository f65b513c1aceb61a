//! `cargo xtask deps`: the crates depend on each other only in the directions of the design.
//!
//! Owns the table of allowed directions. Must never resolve versions: licences, advisories and duplicates are
//! cargo-deny's part.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What one crate may depend on.
struct Rule {
    name: &'static str,
    /// Crates of this workspace that it may use, for development too.
    may_use: &'static [&'static str],
    /// Third-party crates that would break what the crate promises.
    must_not_use: &'static [&'static str],
    /// What the crate promises; printed with a violation.
    promise: &'static str,
}

/// Crates for development only: no shipped crate may depend on them, save as a dev-dependency on the testkit.
const DEVELOPMENT: &[&str] = &["millpond-testkit", "millpond-bench", "xtask", "enrollment"];
const TESTKIT: &str = "millpond-testkit";
/// The page with one line for each third-party dependency.
const LIST: &str = "docs/adr/dependencies.md";
/// The crates that may use `anyhow`: binaries. A library's errors are enums.
const MAY_USE_ANYHOW: &[&str] = &["millpond", "millpond-bench", "xtask", "enrollment"];

const RULES: &[Rule] = &[
    Rule {
        name: "millpond-core",
        may_use: &[],
        must_not_use: &[
            "tokio",
            "hyper",
            "http",
            "axum",
            "reqwest",
            "getrandom",
            "rand",
            "rustix",
            "jiff",
            "chrono",
            "tracing",
        ],
        promise: "pure rules: no I/O, no clock, no chance of its own, no HTTP",
    },
    Rule {
        name: "millpond-journal",
        may_use: &[],
        must_not_use: &["tokio", "hyper", "http", "axum", "reqwest", "getrandom", "rand", "jiff", "chrono"],
        promise: "frames and recovery only: it knows no queue rules, clocks or sockets",
    },
    Rule {
        name: "millpond-config",
        may_use: &["millpond-core"],
        must_not_use: &["tokio", "hyper", "axum", "reqwest"],
        promise: "reads settings and starts nothing",
    },
    Rule {
        name: "millpond-engine",
        may_use: &["millpond-core", "millpond-journal"],
        must_not_use: &["hyper", "http", "axum", "reqwest"],
        promise: "core and journal on threads: it does not speak HTTP",
    },
    Rule {
        name: "millpond-api",
        may_use: &[],
        must_not_use: &["axum"],
        promise: "wire types and client: usable without the engine",
    },
    Rule {
        name: "millpond-server",
        may_use: &["millpond-core", "millpond-engine", "millpond-config", "millpond-api"],
        must_not_use: &["reqwest"],
        promise: "HTTP around the engine: it holds no queue rules",
    },
    Rule {
        name: "millpond-sim",
        may_use: &["millpond-core", "millpond-journal", "millpond-engine", "millpond-config"],
        must_not_use: &["hyper", "http", "axum", "reqwest", "getrandom", "rand", "jiff", "chrono"],
        promise: "the product on virtual time: no clock, chance or sockets of its own",
    },
    Rule {
        name: "millpond",
        may_use: &[
            "millpond-core",
            "millpond-journal",
            "millpond-engine",
            "millpond-config",
            "millpond-api",
            "millpond-server",
            "millpond-sim",
        ],
        must_not_use: &[],
        promise: "the one binary: nothing for development ships in it",
    },
    Rule {
        name: TESTKIT,
        may_use: &["millpond-core", "millpond-journal", "millpond-engine", "millpond-config", "millpond-api"],
        must_not_use: &[],
        promise: "models and checkers for tests",
    },
    Rule {
        name: "millpond-bench",
        may_use: &[
            "millpond-core",
            "millpond-journal",
            "millpond-engine",
            "millpond-config",
            "millpond-api",
            "millpond-server",
            "millpond-sim",
            TESTKIT,
        ],
        must_not_use: &[],
        promise: "load generator and benchmarks",
    },
    Rule {
        name: "enrollment",
        may_use: &["millpond-sim", "millpond-config"],
        must_not_use: &[],
        promise: "an example: a user's service that knows nothing of the server, which it meets over HTTP only",
    },
    Rule { name: "xtask", may_use: &[], must_not_use: &["tokio"], promise: "chores that build in seconds" },
];

/// One line of a crate's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    for_tests_only: bool,
    within_workspace: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// Reads the workspace's manifests through `cargo metadata` and returns the forbidden edges, one per line.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .output()
        .context("cannot start `cargo metadata`")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cannot read what `cargo metadata` printed")?;
    let names: Vec<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = unknown(&names);
    let edges = edges(&metadata);
    findings.extend(edges.iter().filter_map(violation));
    let list = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    findings.extend(unlisted(&edges, &list));
    Ok(findings)
}

fn edges(metadata: &Metadata) -> Vec<Edge> {
    let of_package = |package: &Package| {
        let edge = |dependency: &Dependency| Edge {
            from: package.name.clone(),
            to: dependency.name.clone(),
            for_tests_only: dependency.kind.as_deref() == Some("dev"),
            within_workspace: dependency.path.is_some(),
        };
        package.dependencies.iter().map(edge).collect::<Vec<_>>()
    };
    metadata.packages.iter().flat_map(of_package).collect()
}

fn unknown(names: &[&str]) -> Vec<String> {
    let known = |name: &str| RULES.iter().any(|rule| rule.name == name);
    let report = |name: &&str| {
        format!(
            "{name}: a crate without a rule; add what it may depend on to crates/xtask/src/deps.rs and the design"
        )
    };
    names.iter().filter(|name| !known(name)).map(report).collect()
}

/// Third-party dependencies without a line of their own on the page `list`, each once.
fn unlisted(edges: &[Edge], list: &str) -> BTreeSet<String> {
    let missing = |edge: &&Edge| !edge.within_workspace && !list.contains(&format!("\n| `{}` |", edge.to));
    let report =
        |edge: &Edge| format!("{}: no line in {LIST}; say what it is for, why it, and its health", edge.to);
    edges.iter().filter(missing).map(report).collect()
}

/// Says what is wrong with `edge`, if anything is.
fn violation(edge: &Edge) -> Option<String> {
    let Edge { from, to, .. } = edge;
    let rule = RULES.iter().find(|rule| rule.name == from)?;
    let promise = rule.promise;
    if edge.within_workspace {
        let allowed = rule.may_use.contains(&to.as_str()) || (edge.for_tests_only && to == TESTKIT);
        let advice = if DEVELOPMENT.contains(&to.as_str()) {
            "that crate is for development only"
        } else {
            "move the shared part to a crate that both may use"
        };
        return (!allowed).then(|| format!("{from} -> {to}: forbidden edge ({from}: {promise}); {advice}"));
    }
    if to == "anyhow" && !MAY_USE_ANYHOW.contains(&from.as_str()) {
        return Some(format!("{from} -> anyhow: forbidden edge; a library's errors are enums (thiserror)"));
    }
    let banned = rule.must_not_use.contains(&to.as_str()) && !edge.for_tests_only;
    banned.then(|| format!("{from} -> {to}: forbidden edge ({from}: {promise}); drop the dependency"))
}

#[cfg(test)]
mod tests {
    use super::{Edge, RULES, unknown, unlisted, violation};

    fn edge(from: &str, to: &str, for_tests_only: bool) -> Edge {
        let within_workspace = to.starts_with("millpond") || ["xtask", "enrollment"].contains(&to);
        Edge { from: from.into(), to: to.into(), for_tests_only, within_workspace }
    }

    #[test]
    fn the_directions_of_the_design_are_allowed() {
        for (from, to) in [
            ("millpond-config", "millpond-core"),
            ("millpond-engine", "millpond-journal"),
            ("millpond-server", "millpond-engine"),
            ("millpond", "millpond-server"),
        ] {
            assert_eq!(violation(&edge(from, to, false)), None, "{from} -> {to}");
        }
    }

    #[test]
    fn a_forbidden_edge_is_named_with_its_crate_and_the_reason() {
        let text = violation(&edge("millpond-core", "millpond-journal", false)).unwrap();
        assert!(text.starts_with("millpond-core -> millpond-journal: forbidden edge"), "{text}");
        assert!(text.contains("no I/O"), "{text}");
        assert!(violation(&edge("millpond-api", "millpond-core", false)).is_some());
        assert!(violation(&edge("millpond-core", "tokio", false)).is_some());
        assert!(violation(&edge("millpond-engine", "anyhow", false)).is_some());
    }

    #[test]
    fn the_testkit_may_be_used_by_tests_and_by_nothing_that_ships() {
        assert_eq!(violation(&edge("millpond-core", "millpond-testkit", true)), None);
        assert!(violation(&edge("millpond-core", "millpond-testkit", false)).is_some());
        assert!(violation(&edge("millpond", "millpond-testkit", false)).is_some());
        assert!(violation(&edge("millpond-core", "millpond-engine", true)).is_some());
    }

    #[test]
    fn an_example_meets_the_server_over_http_only_and_nothing_uses_it() {
        assert_eq!(violation(&edge("enrollment", "millpond-sim", false)), None);
        assert!(violation(&edge("enrollment", "millpond-server", false)).is_some());
        assert!(violation(&edge("millpond", "enrollment", false)).is_some());
    }

    #[test]
    fn a_crate_without_a_rule_is_reported() {
        assert_eq!(unknown(&["millpond-core", "millpond"]), Vec::<String>::new());
        assert_eq!(unknown(&["millpond-extra"]).len(), 1);
    }

    #[test]
    fn a_third_party_dependency_without_a_line_is_reported_once() {
        let edges = [edge("a", "serde", false), edge("b", "new", false), edge("c", "new", true)];
        let missing = unlisted(&edges, "\n| `serde` | x |\n| `newer` | y |\n");
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing.first().unwrap().starts_with("new: no line"), "{missing:?}");
    }

    #[test]
    fn the_allowed_directions_have_no_cycle() {
        let mut left: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        while !left.is_empty() {
            let blocked = |name: &&str| {
                let rule = RULES.iter().find(|rule| rule.name == *name).unwrap();
                rule.may_use.iter().any(|used| left.contains(used))
            };
            let next: Vec<&str> = left.iter().copied().filter(blocked).collect();
            assert!(next.len() < left.len(), "a cycle among {left:?}");
            left = next;
        }
    }
}
