//! The way in: text or file to configuration, with everything that is wrong in one answer.
//!
//! Owns reading the file and syntax errors. Must never start anything or return a half-valid configuration.

use crate::configuration::Configuration;
use crate::diagnostic::{Diagnostic, Place, Report, Severity};
use crate::read;
use crate::schema::SCHEMA_BYTES_MAX;
use crate::section::Section;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// Largest configuration file: 1 MiB.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most findings that an error prints; the rest is counted.
const PRINTED_MAX: usize = 50;

/// A configuration that can be used, and what the operator should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub configuration: Configuration,
    /// What probably does not do what was meant; each prints as several lines.
    pub warnings: Vec<Diagnostic>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}; check the path and who may read it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error("the configuration {} is larger than 1MiB; is it the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("the configuration {} is not UTF-8 (byte {valid_up_to}); save it as UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Bytes before the first one that is wrong.
        valid_up_to: usize,
    },
    /// The text is not a valid configuration.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Everything that is wrong with a text. `Display` prints each finding with its place, and a count at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Errors, at least one, and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self.diagnostics.iter().take(PRINTED_MAX) {
            writeln!(formatter, "{diagnostic}\n")?;
        }
        if let Some(more) = self.diagnostics.len().checked_sub(PRINTED_MAX).filter(|more| *more > 0) {
            writeln!(formatter, "… and {more} more\n")?;
        }
        let is_error = |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error;
        let errors = self.diagnostics.iter().filter(is_error).count();
        let warnings = self.diagnostics.len() - errors;
        let counted =
            |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let file = self.diagnostics.first().map_or("the configuration", |first| &first.file);
        write!(formatter, "{file}: {}", counted(errors, "error"))?;
        if warnings > 0 { write!(formatter, ", {}", counted(warnings, "warning")) } else { Ok(()) }
    }
}

/// Reads and checks a configuration file.
///
/// # Errors
/// One variant per reason; [`ConfigurationError::Invalid`] carries every error of the text at once.
pub fn load(path: &Path) -> Result<Loaded, ConfigurationError> {
    let unreadable = |source| ConfigurationError::Unreadable { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigurationError::TooLarge { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes).map_err(|error| ConfigurationError::NotUtf8 {
        path: path.to_owned(),
        valid_up_to: error.utf8_error().valid_up_to(),
    })?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let read = |file: &Path| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(directory.join(file))?;
        file.take(SCHEMA_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    Ok(parse_with(&text, &path.display().to_string(), &read)?)
}

/// How a file that the configuration names is read; relative to the directory of the configuration.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// Checks the text of a configuration. `file` is only shown in findings.
///
/// # Errors
/// Every error of the text, and its warnings, at once; a file that it names cannot be read here.
pub fn parse(text: &str, file: &str) -> Result<Loaded, Invalid> {
    parse_with(text, file, &|_| Err(io::Error::new(io::ErrorKind::Unsupported, "only the text is at hand")))
}

/// The same where the files that the text names (schemas) can be read: by `read`.
///
/// # Errors
/// Every error of the text and of those files, and its warnings, at once.
pub fn parse_with(
    text: &str,
    file: &str,
    read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Loaded, Invalid> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut report = Report::new(file, text);
    for error in &errors {
        syntax(&mut report, error);
    }
    // After these the parser knows what was meant; after others, what follows would be noise.
    let harmless = |error: &toml::de::Error| is_unquoted(error) || is_duplicate(error);
    let mut configuration = Configuration::default();
    if errors.iter().all(harmless) {
        configuration = read::configuration(&mut report, &Section::top(table.get_ref()), read);
    }
    let diagnostics = report.finish();
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(Invalid { diagnostics });
    }
    Ok(Loaded { configuration, warnings: diagnostics })
}

fn is_unquoted(error: &toml::de::Error) -> bool {
    error.message().starts_with("string values must be quoted")
}

fn is_duplicate(error: &toml::de::Error) -> bool {
    error.message() == "duplicate key"
}

fn syntax(report: &mut Report<'_>, error: &toml::de::Error) {
    let span = error.span().unwrap_or(0..0);
    let (problem, help) = if is_unquoted(error) {
        let problem = "a value that is neither a number nor true or false needs quotes".to_owned();
        (problem, "put it in quotes, as in lease = \"30s\"".to_owned())
    } else if is_duplicate(error) {
        ("this key is set twice".to_owned(), "keep one of them".to_owned())
    } else {
        (
            error.message().to_owned(),
            "this is not TOML; see https://toml.io, or put strings and durations in quotes".to_owned(),
        )
    };
    conceal_around(report, span.start);
    report.error(Place::Name(span), "", problem, help);
}

fn is_secret(line: &str) -> bool {
    ["headers", "signature", "secret"].iter().any(|word| line.contains(word))
}

/// Where the syntax is broken nobody knows what is a header's value, so the rest of such a line is concealed.
fn conceal_around(report: &mut Report<'_>, at: usize) {
    let text = report.text();
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let in_headers =
        text[..start].lines().rev().find(|line| line.trim_start().starts_with('[')).is_some_and(is_secret);
    let line = &text[start..end];
    if in_headers || is_secret(line) {
        report.conceal(start + line.find('=').map_or(0, |equals| equals + 1)..end);
    }
}
