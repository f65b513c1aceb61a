//! Typed reading of one TOML table: every getter either returns a value or reports why there is none.
//!
//! Owns types, units and unknown keys. Must never know which keys depend on each other.

use crate::diagnostic::{Place, Report};
use crate::keys::{self, Table};
use crate::quantity::{QuantityError, parse_duration, parse_rate, parse_size};
use millpond_core::name::Name;
use millpond_core::rate::Rate;
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One table of the text and its dotted path.
#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    path: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl<'a> Section<'a> {
    /// The whole text.
    pub(crate) fn top(table: &'a DeTable<'a>) -> Self {
        Self { path: String::new(), span: 0..0, table }
    }

    /// The dotted path of `key` in this table.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { quoted(key) } else { format!("{}.{}", self.path, quoted(key)) }
    }

    /// The dotted path of this table.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where this table's name stands.
    pub(crate) fn place(&self) -> Place {
        Place::Name(self.span.clone())
    }

    /// Whether the key is there, whatever its value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Where the value of a key stands; `key` may be dotted (`retry.max_attempts`). Of a table, or a key that is
    /// missing: where the innermost table stands that is there.
    pub(crate) fn locate(&self, key: &str) -> Place {
        let mut table = self.table;
        let mut span = self.span.clone();
        for part in key.split('.') {
            let Some((name, value)) = table.get_key_value(part) else { break };
            match value.get_ref() {
                DeValue::Table(inner) => (table, span) = (inner, name.span()),
                _ => return Place::Value(value.span()),
            }
        }
        Place::Name(span)
    }

    /// Marks every value below a key `headers` or `signature` as secret, wherever it stands: it may be a credential.
    pub(crate) fn conceal_headers(&self, report: &mut Report<'_>) {
        conceal(report, self.table, false);
    }

    /// Reports every key that `known` does not have, and every one that this version does not implement.
    pub(crate) fn check_keys(&self, report: &mut Report<'_>, known: &Table) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if known.unsupported.contains(&name) {
                self.not_supported(
                    report,
                    Place::Name(key.span()),
                    name,
                    "remove it; nothing else stands in for it yet",
                );
            } else if !known.supported.contains(&name) {
                let help = keys::advice(name, known);
                report.error(Place::Name(key.span()), &self.path_of(name), "unknown key".to_owned(), help);
            }
        }
    }

    /// Reports that the key, or its value, belongs to a later version.
    pub(crate) fn not_supported(&self, report: &mut Report<'_>, place: Place, key: &str, help: &str) {
        let problem = "not supported by this version".to_owned();
        report.error(place, &self.path_of(key), problem, help.to_owned());
    }

    /// Reports a wrong value of `key`.
    pub(crate) fn wrong(&self, report: &mut Report<'_>, key: &str, problem: String, help: String) {
        report.error(self.locate(key), &self.path_of(key), problem, help);
    }

    fn wrong_type(&self, report: &mut Report<'_>, key: &str, value: &Value<'_>, expected: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.wrong(report, key, format!("is {found}"), format!("write {expected}"));
    }

    /// A string. `expected` completes "write …" for values of another type.
    pub(crate) fn text(&self, report: &mut Report<'_>, key: &str, expected: &str) -> Option<&'a str> {
        let value = self.table.get(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(report, key, value, expected);
        }
        text
    }

    /// A string that `read` turns into something else.
    fn parsed<T>(
        &self,
        report: &mut Report<'_>,
        key: &str,
        expected: &str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Option<T> {
        let bare =
            self.table.get(key).and_then(|value| value.get_ref().as_integer()).map(ToString::to_string);
        let text = if bare.is_some() { bare.as_deref()? } else { self.text(report, key, expected)? };
        match read(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(report, key, error.problem(), error.advice());
                None
            }
        }
    }

    /// A duration such as `"30s"`.
    pub(crate) fn duration(&self, report: &mut Report<'_>, key: &str) -> Option<Duration> {
        self.parsed(report, key, "a duration such as \"30s\" or \"4d\"", parse_duration)
    }

    /// A size such as `"64KiB"` or a plain number of bytes.
    pub(crate) fn size(&self, report: &mut Report<'_>, key: &str) -> Option<u64> {
        self.parsed(report, key, "a size such as \"64KiB\", or a whole number of bytes", parse_size)
    }

    /// A rate such as `"500/s"`.
    pub(crate) fn rate(&self, report: &mut Report<'_>, key: &str) -> Option<Rate> {
        self.parsed(report, key, "a rate such as \"500/s\" or \"30/m\"", parse_rate)
    }

    /// A whole number that fits into `T`; `most` is the largest that does.
    pub(crate) fn number<T: TryFrom<i128> + Into<u64> + Copy>(
        &self,
        report: &mut Report<'_>,
        key: &str,
        most: T,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let Some(integer) = value.get_ref().as_integer() else {
            let expected = "a whole number, without quotes";
            self.wrong_type(report, key, value, expected);
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let fitting = number.and_then(|number| T::try_from(number).ok());
        if fitting.is_none() {
            let help = format!("write a whole number that is not negative, at most {}", most.into());
            self.wrong(report, key, format!("{integer} is out of range"), help);
        }
        fitting
    }

    /// A number that may have a fraction; its range is the caller's to check.
    pub(crate) fn fraction(&self, report: &mut Report<'_>, key: &str) -> Option<f64> {
        let value = self.table.get(key)?;
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) => {
                i32::from_str_radix(number.as_str(), number.radix()).ok().map(f64::from)
            }
            _ => None,
        };
        if number.is_none() {
            self.wrong_type(report, key, value, "a number such as 0.2, without quotes");
        }
        number
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, report: &mut Report<'_>, key: &str) -> Option<bool> {
        let value = self.table.get(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(report, key, value, "true or false, without quotes");
        }
        flag
    }

    /// Whether the key is there with `true` or `false` as its value.
    pub(crate) fn is_flag(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().as_bool().is_some())
    }

    /// One word of `choices`.
    pub(crate) fn choice<T: Copy>(
        &self,
        report: &mut Report<'_>,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let words = words.join(" or ");
        let text = self.text(report, key, &words)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*choice);
        }
        let nearest = keys::nearest(text, choices.iter().map(|(word, _)| *word));
        let meant = nearest.map(|right| format!("did you mean \"{right}\"?"));
        let help = meant.unwrap_or_else(|| format!("write {words}"));
        self.wrong(report, key, format!("{text:?} is not one of the choices"), help);
        None
    }

    /// The name of a queue or a target.
    pub(crate) fn name(&self, report: &mut Report<'_>, key: &str) -> Option<Name> {
        let text = self.text(report, key, "a name in quotes")?;
        let name = Name::new(text);
        if name.is_err() {
            self.wrong(report, key, not_a_name(text), NAME_HELP.to_owned());
        }
        name.ok()
    }

    /// An array of strings, each with its place.
    pub(crate) fn texts(&self, report: &mut Report<'_>, key: &str) -> Option<Vec<(Range<usize>, &'a str)>> {
        let expected = "an array of strings such as [\"localhost\"]";
        let value = self.table.get(key)?;
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(report, key, value, expected);
            return None;
        };
        let item = |item: &'a Value<'a>| item.get_ref().as_str().map(|text| (item.span(), text));
        let items: Option<Vec<_>> = array.iter().map(item).collect();
        if items.is_none() {
            let problem = "holds something that is not a string".to_owned();
            self.wrong(report, key, problem, format!("write {expected}"));
        }
        items
    }

    /// A table below this one.
    pub(crate) fn section(&self, report: &mut Report<'_>, key: &str) -> Option<Section<'a>> {
        let (name, value) = self.table.get_key_value(key)?;
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Section { path: self.path_of(key), span: name.span(), table });
        }
        let expected = format!("a table: [{}] or {key} = {{ … }}", self.path_of(key));
        self.wrong_type(report, key, value, &expected);
        None
    }

    /// The tables of an array of tables, each with its place: `key[0]`, `key[1]`, …
    pub(crate) fn listed_sections(&self, report: &mut Report<'_>, key: &str) -> Vec<Section<'a>> {
        let Some((_, value)) = self.table.get_key_value(key) else { return Vec::new() };
        let expected = format!("one [[{}]] for each of them", self.path_of(key));
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(report, key, value, &expected);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (number, item) in array.iter().enumerate() {
            let path = format!("{}[{number}]", self.path_of(key));
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section { path, span: item.span(), table }),
                _ => report.error(
                    Place::Value(item.span()),
                    &path,
                    "is not a table".to_owned(),
                    format!("write {expected}"),
                ),
            }
        }
        sections
    }

    /// The tables below this one, by name. Names that break the rule for names are reported and left out.
    pub(crate) fn named_sections(&self, report: &mut Report<'_>) -> Vec<(Name, Section<'a>)> {
        let mut sections = Vec::new();
        for key in self.table.keys() {
            let text = key.get_ref().as_ref();
            match Name::new(text) {
                Ok(name) => sections.extend(self.section(report, text).map(|section| (name, section))),
                Err(_) => {
                    report.error(
                        Place::Name(key.span()),
                        &self.path_of(text),
                        not_a_name(text),
                        NAME_HELP.to_owned(),
                    );
                }
            }
        }
        sections
    }

    /// Every key with its place, and the value with its own.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Range<usize>, &'a Value<'a>)> + use<'a> {
        self.table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
    }
}

const NAME_HELP: &str = "use 1 to 80 of A-Z a-z 0-9 _ . -, the first one a letter, a digit or an underscore";

fn not_a_name(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 100;
    format!("{:?} is not a name", text.chars().take(SHOWN_CHARACTERS_MAX).collect::<String>())
}

fn conceal(report: &mut Report<'_>, table: &DeTable<'_>, within_headers: bool) {
    for (key, value) in table {
        let within_headers =
            within_headers || matches!(key.get_ref().as_ref(), "headers" | "signature" | "secret");
        match value.get_ref() {
            DeValue::Table(inner) => conceal(report, inner, within_headers),
            _ if within_headers => report.conceal(value.span()),
            _ => {}
        }
    }
}

/// A key as it has to be written in a dotted path.
fn quoted(key: &str) -> String {
    let bare = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { format!("{key:?}") }
}
