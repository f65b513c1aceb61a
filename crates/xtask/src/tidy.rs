//! `cargo xtask tidy`: sizes of files and functions, file headers, markers of unfinished work, machine paths, and that
//! the tests which `docs/faults.md` names are there.
//!
//! Owns what the compiler, clippy and rustfmt do not check. Must never count lines by guessing at braces: Rust
//! is parsed.

use crate::faults;
use anyhow::{Context as _, Result};
use proc_macro2::Span;
use std::collections::BTreeSet;
use std::path::Path;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use walkdir::{DirEntry, WalkDir};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// Directories that hold nothing written by us.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "millpond-data"];
/// Endings (or whole names) of the text files that are read.
const TEXT: &[&str] = &["rs", "toml", "md", "sh", "yml", "yaml", "json", "html", "css", "js", "run", "test"];
/// Words that promise work instead of doing it; split so that this file passes its own check.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Beginnings of paths that exist on one machine only; split for the same reason.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Reads every text file below `root` and returns the findings, one per line, as `file:line: what; what to do`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let ours = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        !(entry.file_type().is_dir() && SKIPPED.contains(&name.as_ref()))
    };
    let mut findings = Vec::new();
    let mut tests = BTreeSet::new();
    for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(ours) {
        let entry = entry.context("cannot walk through the repository")?;
        let path = entry.path();
        if !entry.file_type().is_file() || !is_text(path) {
            continue;
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        findings.extend(inspect(&name, &text));
        if path.extension().is_some_and(|ending| ending == "rs") {
            faults::collect(&text, &mut tests);
        }
    }
    findings.extend(faults::check(root, &tests)?);
    Ok(findings)
}

fn is_text(path: &Path) -> bool {
    let ending = path.extension().or_else(|| path.file_name());
    ending.is_some_and(|ending| TEXT.contains(&ending.to_string_lossy().as_ref()))
}

/// The findings in one file.
fn inspect(name: &str, text: &str) -> Vec<String> {
    let mut findings = markers_and_paths(name, text);
    if Path::new(name).extension().is_some_and(|ending| ending == "rs") {
        findings.extend(rust(name, text));
    }
    findings
}

fn markers_and_paths(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
            findings.push(format!("{name}:{number}: {marker}; do it, or write down why not"));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            findings.push(format!("{name}:{number}: {path} exists on one machine only; use a relative path"));
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|character: char| !(character.is_alphanumeric() || character == '_')).any(|part| part == word)
}

/// Whether `line` names a path that begins with `path`, as opposed to a URL or a longer path that contains it.
fn has_path(line: &str, path: &str) -> bool {
    let inside_another = |before: &str| {
        before.chars().next_back().is_some_and(|last| last.is_alphanumeric() || "._-}~*/".contains(last))
    };
    line.match_indices(path).any(|(at, _)| !inside_another(&line[..at]))
}

fn rust(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{name}:1: no `//!` header; say what the file owns and what it must never do"));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(format!(
            "{name}:{FILE_LINES_MAX}: {lines} lines, at most {FILE_LINES_MAX} are allowed; split the file by what it owns"
        ));
    }
    match syn::parse_file(text) {
        Ok(file) => {
            let mut functions = Functions { name, findings: &mut findings };
            functions.visit_file(&file);
        }
        Err(error) => {
            let line = error.span().start().line;
            findings.push(format!("{name}:{line}: not Rust that can be parsed ({error}); make it compile"));
        }
    }
    findings
}

/// Visits every function, method and trait default, nested ones too.
struct Functions<'a> {
    name: &'a str,
    findings: &'a mut Vec<String>,
}

impl Functions<'_> {
    /// Lines from the signature to the closing brace; documentation and attributes do not count.
    fn measure(&mut self, signature: &syn::Signature, end: Span) {
        let start = signature.span().start().line;
        let lines = end.end().line + 1 - start;
        if lines > FUNCTION_LINES_MAX {
            let Self { name, .. } = self;
            self.findings.push(format!(
                "{name}:{start}: fn {} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed; extract the steps it consists of",
                signature.ident
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE_LINES_MAX, FUNCTION_LINES_MAX, MACHINE_PATHS, MARKERS, inspect};

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_is_measured_from_signature_to_brace() {
        let header = "//! Owns nothing.\n\n/// Documentation\n/// does not count.\n#[inline]\n";
        let fits = header.to_owned() + &function_of(FUNCTION_LINES_MAX);
        assert_eq!(inspect("a.rs", &fits), Vec::<String>::new());
        let findings = inspect("a.rs", &(header.to_owned() + &function_of(FUNCTION_LINES_MAX + 1)));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("a.rs:6: fn long has 71 lines"), "{findings:?}");
    }

    #[test]
    fn methods_defaults_and_nested_functions_are_measured_and_braces_in_text_are_not() {
        let body = "        call(\"}\"); // }\n".repeat(FUNCTION_LINES_MAX);
        for (open, close) in [
            ("impl A {\n    fn f() {\n", "    }\n}\n"),
            ("trait A {\n    fn f() {\n", "    }\n}\n"),
            ("mod a {\n    fn f() {\n", "    }\n}\n"),
        ] {
            let text = format!("//! Owns nothing.\n{open}{body}{close}");
            assert_eq!(inspect("a.rs", &text).len(), 1, "{open}");
        }
    }

    #[test]
    fn long_files_and_missing_headers_are_reported() {
        let long = format!("//! Owns nothing.\n{}", "\n".repeat(FILE_LINES_MAX));
        assert!(inspect("a.rs", &long)[0].contains("801 lines"));
        assert!(inspect("a.rs", "fn f() {}\n")[0].starts_with("a.rs:1: no `//!` header"));
        assert_eq!(inspect("a.md", &"\n".repeat(2 * FILE_LINES_MAX)), Vec::<String>::new());
    }

    #[test]
    fn markers_are_found_as_whole_words() {
        for marker in MARKERS {
            assert_eq!(inspect("a.md", &format!("one\n<!-- {marker}: later -->\n")).len(), 1, "{marker}");
            assert_eq!(inspect("a.md", &format!("{marker}LIST\n")), Vec::<String>::new(), "{marker}");
        }
    }

    #[test]
    fn machine_paths_are_found_and_urls_are_not() {
        for path in MACHINE_PATHS {
            assert_eq!(inspect("a.toml", &format!("data = \"{path}x\"\n")).len(), 1, "{path}");
            let url = format!("url = \"http://127.0.0.1:9000{path}x\"\n");
            assert_eq!(inspect("a.toml", &url), Vec::<String>::new(), "{path}");
        }
    }
}
