//! Secrets: texts from a file or the environment, and the keys that requests are signed with.
//!
//! Owns where a secret may come from and that it prints as nothing. Must never let one into a message, a finding or
//! anything that is derived for printing.

use crate::diagnostic::Report;
use crate::files::named_file;
use crate::keys;
use crate::load::ReadFile;
use crate::section::Section;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fmt;
use std::sync::Arc;

/// Fewest bytes of a [`SigningKey`].
const KEY_BYTES_MIN: usize = 24;
/// Most bytes of a [`SigningKey`].
const KEY_BYTES_MAX: usize = 64;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// The text as it is.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// A key that requests are signed with, as Standard Webhooks wants it: 24 to 64 bytes, written as `whsec_` and base64.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Arc<[u8]>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey(…)")
    }
}

/// Why a text is not a [`SigningKey`]. Says nothing of the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// What follows `whsec_` is not base64.
    #[error("is not base64")]
    NotBase64,
    /// It has another length than it may have.
    #[error("has {0} bytes instead of 24 to 64")]
    Length(usize),
}

impl SigningKey {
    /// Reads `whsec_` and base64; the prefix may be missing.
    ///
    /// # Errors
    /// See [`SigningKeyError`].
    pub fn parse(text: &str) -> Result<Self, SigningKeyError> {
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| SigningKeyError::NotBase64)?;
        if (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes.len()) {
            Ok(Self(bytes.into()))
        } else {
            Err(SigningKeyError::Length(bytes.len()))
        }
    }

    /// The bytes, for the one place that signs with them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// Reads `{ file = "…" }` or `{ env = "…" }`, once, as the configuration is read.
pub(crate) fn secret(report: &mut Report<'_>, section: &Section<'_>, files: ReadFile<'_>) -> Option<Secret> {
    section.check_keys(report, &keys::SECRET);
    match (section.has("file"), section.has("env")) {
        (true, false) => {
            let (name, bytes) = named_file(report, section, "file", "a file", files)?;
            let Ok(text) = String::from_utf8(bytes) else {
                let help = "is it the right file?".to_owned();
                section.wrong(report, "file", format!("{name} is not text"), help);
                return None;
            };
            let line = text.strip_suffix('\n').unwrap_or(&text);
            not_empty(report, section, "file", name, line.strip_suffix('\r').unwrap_or(line))
        }
        (false, true) => {
            let name = section.text(report, "env", "the name of an environment variable in quotes")?;
            let Ok(text) = std::env::var(name) else {
                let problem = format!("the environment has no variable {name:?} that is text");
                let help = "set it where the server is started".to_owned();
                section.wrong(report, "env", problem, help);
                return None;
            };
            not_empty(report, section, "env", name, &text)
        }
        (both, _) => {
            let problem = if both { "has both file and env" } else { "says neither file nor env" };
            let help = "write { file = \"path\" } or { env = \"VARIABLE\" }".to_owned();
            report.error(section.place(), section.path(), problem.to_owned(), help);
            None
        }
    }
}

fn not_empty(
    report: &mut Report<'_>,
    section: &Section<'_>,
    key: &str,
    name: &str,
    text: &str,
) -> Option<Secret> {
    if text.is_empty() {
        let help = "put the secret there, or leave this out".to_owned();
        section.wrong(report, key, format!("{name} is empty"), help);
        return None;
    }
    Some(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::{Secret, SigningKey, SigningKeyError};

    #[test]
    fn secrets_print_as_nothing() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let printed = format!("{:?} {key:?} {:#?}", Secret::new("hunter2"), Some(key.clone()));
        assert!(
            !printed.contains("hunter2") && !printed.contains("MfKQ") && !printed.contains("49"),
            "{printed}"
        );
    }

    #[test]
    fn a_signing_key_has_24_to_64_bytes_in_base64() {
        for (bytes, is_right) in [(23, false), (24, true), (64, true), (65, false)] {
            use base64::Engine as _;
            let encoded = base64::prelude::BASE64_STANDARD.encode(vec![7; bytes]);
            for text in [encoded.clone(), format!("whsec_{encoded}")] {
                let read = SigningKey::parse(&text).map(|key| key.expose().to_vec());
                let expected =
                    if is_right { Ok(vec![7; bytes]) } else { Err(SigningKeyError::Length(bytes)) };
                assert_eq!(read, expected);
            }
        }
        for text in
            ["whsec_äöü", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_ MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert_eq!(SigningKey::parse(text), Err(SigningKeyError::NotBase64), "{text}");
        }
    }
}
