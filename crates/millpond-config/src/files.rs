//! Files that the configuration names.
//!
//! Owns the bound on their size and the words for those that cannot be read. Must never say what is in one: most of
//! them are secrets.

use crate::diagnostic::Report;
use crate::load::ReadFile;
use crate::quantity::format_size;
use crate::schema::SCHEMA_BYTES_MAX;
use crate::section::Section;
use std::path::Path;

/// The content of the file that `key` names, and its name; what keeps it from being read is reported. `what` says
/// what it should be, as in "a file of certificates".
pub(crate) fn named_file<'a>(
    report: &mut Report<'_>,
    section: &Section<'a>,
    key: &str,
    what: &str,
    files: ReadFile<'_>,
) -> Option<(&'a str, Vec<u8>)> {
    let name = section.text(report, key, &format!("the path of {what} in quotes"))?;
    match files(Path::new(name)) {
        Ok(bytes) if bytes.len() as u64 <= SCHEMA_BYTES_MAX => Some((name, bytes)),
        Ok(_) => {
            let problem = format!("{name} is larger than {}", format_size(SCHEMA_BYTES_MAX));
            section.wrong(report, key, problem, "is it the right file?".to_owned());
            None
        }
        Err(error) => {
            let help = "write its path as seen from the directory of this file".to_owned();
            section.wrong(report, key, format!("cannot read {name}: {error}"), help);
            None
        }
    }
}
