//! `cargo xtask tidy`, its part on `docs/faults.md`: every test that the document names is there.
//!
//! Owns what counts as a name of a test. Must never judge whether a test shows what is claimed: readers do.

use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};

/// Where the document lies.
pub(crate) const DOCUMENT: &str = "docs/faults.md";
/// A name in code quotes with so many underscores is meant to be a test: no setting and no word on the wire has as many.
const UNDERSCORES_MIN: usize = 3;

/// The tests of a file of Rust, added to those known.
pub(crate) fn collect(text: &str, known: &mut BTreeSet<String>) {
    if let Ok(file) = syn::parse_file(text) {
        Tests { known }.visit_file(&file);
    }
}

struct Tests<'a> {
    known: &'a mut BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Tests<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
        };
        if function.attrs.iter().any(is_test) {
            self.known.insert(function.sig.ident.to_string());
        }
        visit::visit_item_fn(self, function);
    }
}

/// What the document below `root` says that is not so.
pub(crate) fn check(root: &Path, tests: &BTreeSet<String>) -> Result<Vec<String>> {
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(inspect(&text, tests))
}

fn inspect(text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let named: Vec<&str> = line.split('`').skip(1).step_by(2).filter(|name| is_test(name)).collect();
        for name in named.iter().filter(|name| !tests.contains(**name)) {
            findings
                .push(format!("{DOCUMENT}:{number}: there is no test {name}; name the one that shows it"));
        }
        let is_row = line.starts_with("| ") && !line.starts_with("| ---");
        let is_heading = line.ends_with("| tests |");
        if is_row && !is_heading && named.is_empty() {
            findings.push(format!("{DOCUMENT}:{number}: no test is named; write one"));
        }
    }
    findings
}

fn is_test(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.bytes().filter(|byte| *byte == b'_').count() >= UNDERSCORES_MIN
}

#[cfg(test)]
mod tests {
    use super::{collect, inspect};
    use std::collections::BTreeSet;

    #[test]
    fn tests_of_every_kind_are_known_and_other_functions_are_not() {
        let text = "#[test] fn one_that_is_plain() {}\n#[tokio::test(flavor = \"multi_thread\")] async fn one_that_waits() {}\n\
                    mod tests { #[test] fn one_that_is_inside() {} fn one_that_is_none() {} }";
        let mut known = BTreeSet::new();
        collect(text, &mut known);
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        assert_eq!(names, ["one_that_is_inside", "one_that_is_plain", "one_that_waits"]);
    }

    #[test]
    fn a_test_that_is_not_there_and_a_row_without_one_are_found() {
        let known = BTreeSet::from(["one_that_is_there".to_owned()]);
        let text = "| kind | tests |\n| --- | --- |\n| `max_wait` | `one_that_is_there` |\n";
        assert_eq!(inspect(text, &known), Vec::<String>::new());
        let wrong = format!("{text}| another | `one_that_is_gone` |\n| a third | `max_wait` |\n");
        let findings = inspect(&wrong, &known);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains(":4: there is no test one_that_is_gone"), "{findings:?}");
        assert!(findings[1].contains(":5: no test is named"), "{findings:?}");
    }
}
