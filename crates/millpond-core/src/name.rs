//! Names of queues, targets and routes; labels of groups, tenants and consumers.
//!
//! Owns the one rule for each. A name must never hold what a URL path or a metric label would have to escape; a
//! label is the caller's word, and must never become either.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A name of `[A-Za-z0-9_][A-Za-z0-9._-]{0,79}`; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// The text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: 1 to 80 of A-Z a-z 0-9 _ . -, the first one a letter, digit or underscore")]
pub struct NameError(
    /// The text, cut to a printable length.
    pub String,
);

impl Name {
    /// Longest name in bytes.
    pub const LENGTH_MAX: usize = 80;

    /// Checks `text` against the rule.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if first && text.len() <= Self::LENGTH_MAX && text.bytes().all(inner) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(NameError(text.chars().take(100).collect()))
        }
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A caller's word for a group, a tenant or a consumer: 1 to 128 bytes of text without control characters; cheap
/// to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(Arc<str>);

/// The text is not a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {} bytes of text without control characters", Label::LENGTH_MAX)]
pub struct LabelError;

impl Label {
    /// Longest label in bytes.
    pub const LENGTH_MAX: usize = 128;

    /// Checks `text` against the rule.
    pub fn new(text: &str) -> Result<Self, LabelError> {
        let fits = (1..=Self::LENGTH_MAX).contains(&text.len());
        if fits && !text.chars().any(char::is_control) { Ok(Self(Arc::from(text))) } else { Err(LabelError) }
    }

    /// The text of the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = LabelError;

    fn try_from(text: String) -> Result<Self, LabelError> {
        Self::new(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0.as_ref().to_owned()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Label, Name};

    #[test]
    fn labels_are_short_texts_without_control_characters() {
        for good in ["a", "customer 7", "größe/ä", &"x".repeat(128)] {
            assert!(Label::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a\n", "\0", "\u{85}", &"x".repeat(129)] {
            assert!(Label::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_follow_the_documented_pattern() {
        for good in ["a", "_x", "9", "a.b-c_d", &"x".repeat(80)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "a/b", "a b", "ä", "a\n", "a\0", &"x".repeat(81)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }
}
