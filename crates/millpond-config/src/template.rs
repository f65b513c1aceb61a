//! Templates: fixed text with parts of a request in it, such as `{id}` or `{header.x-request-id}`.
//!
//! Owns their syntax. Must never decode or check what is put in: that depends on where the result goes.

use http::HeaderName;

/// Longest template in bytes.
const TEMPLATE_BYTES_MAX: usize = 1024;

/// Fixed text with parts of a request in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Goes out as it is.
    Text(String),
    /// What the request has there.
    Value(Source),
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `{name}`: a parameter of the route's path.
    Parameter(String),
    /// `{header.x-request-id}`: a header.
    Header(HeaderName),
    /// `{query.user}`: a field of the query.
    Query(String),
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It is longer than anything it could be for.
    #[error("is longer than {TEMPLATE_BYTES_MAX} bytes")]
    TooLong,
    /// It has a control character.
    #[error("has a control character")]
    Control,
    /// A brace has no partner.
    #[error("has a brace without its partner; write {{{{ or }}}} for a brace itself")]
    Unbalanced,
    /// What stands in braces names nothing.
    #[error("{{{0}}} names no part of a request; write {{name}}, {{header.NAME}} or {{query.NAME}}")]
    Source(String),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(TemplateError::Control);
        }
        let (mut parts, mut fixed) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            fixed.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            if let Some(behind) = behind.strip_prefix(brace) {
                fixed.push_str(brace);
                rest = behind;
                continue;
            }
            let inside = behind.split_once('}').filter(|_| brace == "{");
            let (inside, behind) = inside.ok_or(TemplateError::Unbalanced)?;
            let source = Source::parse(inside).ok_or_else(|| TemplateError::Source(inside.to_owned()))?;
            if !fixed.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut fixed)));
            }
            parts.push(Part::Value(source));
            rest = behind;
        }
        fixed.push_str(rest);
        if !fixed.is_empty() {
            parts.push(Part::Text(fixed));
        }
        Ok(Self { parts })
    }

    /// Its parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where its values come from.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(source) => Some(source),
            Part::Text(_) => None,
        })
    }

    /// The text with every value put in; `None` if one of them is missing or empty.
    ///
    /// # Errors
    /// The first that `value` returns.
    pub fn render<E>(
        &self,
        mut value: impl FnMut(&Source) -> Result<Option<String>, E>,
    ) -> Result<Option<String>, E> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Value(source) => match value(source)?.filter(|value| !value.is_empty()) {
                    Some(value) => text.push_str(&value),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(text))
    }
}

impl Source {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('.') {
            Some(("header", name)) => HeaderName::from_bytes(name.as_bytes()).ok().map(Self::Header),
            Some(("query", name)) => {
                (!name.is_empty() && !name.contains('{')).then(|| Self::Query(name.to_owned()))
            }
            _ => {
                let is_name = |text: &str| {
                    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
                };
                (!text.is_empty() && is_name(text)).then(|| Self::Parameter(text.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, Template, TemplateError};
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn render(text: &str) -> Option<String> {
        let value = |source: &Source| {
            Ok::<_, Infallible>(match source {
                Source::Parameter(name) => (name != "none").then(|| format!("<{name}>")),
                Source::Header(name) => Some(format!("h:{name}")),
                Source::Query(name) => (name != "empty").then(|| format!("q:{name}")).or(Some(String::new())),
            })
        };
        let Ok(rendered) = Template::parse(text).unwrap().render(value);
        rendered
    }

    #[test]
    fn parts_of_a_request_are_put_in_where_they_are_named() {
        assert_eq!(render("/v2/users/{id}").as_deref(), Some("/v2/users/<id>"));
        assert_eq!(render("{header.X-Id}-{query.user}").as_deref(), Some("h:x-id-q:user"));
        assert_eq!(render("fixed").as_deref(), Some("fixed"));
        assert_eq!(render("{{{id}}}").as_deref(), Some("{<id>}"));
    }

    #[test]
    fn a_missing_or_empty_part_gives_none_and_not_half_a_text() {
        assert_eq!(render("a-{none}"), None);
        assert_eq!(render("a-{query.empty}"), None);
    }

    #[test]
    fn what_names_nothing_is_no_template() {
        for (text, error) in [
            ("", TemplateError::Empty),
            ("a{b", TemplateError::Unbalanced),
            ("a}b", TemplateError::Unbalanced),
            ("{}", TemplateError::Source(String::new())),
            ("{header.}", TemplateError::Source("header.".to_owned())),
            ("{header.a b}", TemplateError::Source("header.a b".to_owned())),
            ("{body.x}", TemplateError::Source("body.x".to_owned())),
            ("{*rest}", TemplateError::Source("*rest".to_owned())),
            ("a\nb", TemplateError::Control),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn text_with_its_braces_doubled_comes_back_as_it_was(text in "[ -~é]{1,40}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(render(&doubled), Some(text));
        }

        #[test]
        fn no_text_is_too_strange_to_be_judged(text in any::<String>()) {
            let _ = Template::parse(&text);
        }
    }
}
