//! JSON Schema: what the bodies of a route must look like.
//!
//! Owns compiling and applying one. Must never fetch anything: a schema is one file, and refers to itself only.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest schema: 1 MiB.
pub const SCHEMA_BYTES_MAX: u64 = 1 << 20;
/// Most errors that are told of one body, and most characters of each: a hint, not a copy of the body.
const ERRORS_MAX: usize = 10;
const DETAIL_CHARACTERS_MAX: usize = 200;

/// A schema, ready to be applied. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {
    path: PathBuf,
    document: Arc<Value>,
    validator: Arc<Validator>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.document) == (&other.path, &other.document)
    }
}

/// Why a text is no schema, with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Where a body does not fit, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// A JSON Pointer: empty for the whole, `/age` for a field.
    pub pointer: String,
    /// What is wrong there, without the value.
    pub detail: String,
}

impl Schema {
    /// Compiles a schema; `path` is only shown.
    ///
    /// # Errors
    /// What is no JSON, no schema, refers to something outside of the file, or has a pattern that cannot be matched in
    /// linear time.
    pub fn compile(path: &Path, bytes: &[u8]) -> Result<Self, SchemaError> {
        let document: Value = serde_json::from_slice(bytes).map_err(|error| {
            SchemaError(format!("{}:{}:{}: {error}", path.display(), error.line(), error.column()))
        })?;
        let wrong = |place: &str, what: &str| {
            let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
            SchemaError(format!("{}{place}: {what}", path.display()))
        };
        if let Some((place, target)) = outward(&document, "") {
            let what = format!("refers to {target:?}; nothing is fetched: put it into this file below $defs");
            return Err(wrong(&place, &what));
        }
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(true)
            .build(&document)
            .map_err(|error| wrong(error.instance_path().as_str(), &cut(&error.to_string())))?;
        Ok(Self { path: path.to_owned(), document: Arc::new(document), validator: Arc::new(validator) })
    }

    /// The file it was read from, as the configuration names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where `value` does not fit, the first few places.
    pub fn misfits(&self, value: &Value) -> Vec<Misfit> {
        let misfit = |error: jsonschema::ValidationError<'_>| Misfit {
            pointer: cut(error.instance_path().as_str()),
            detail: cut(&error.masked().to_string()),
        };
        self.validator.iter_errors(value).take(ERRORS_MAX).map(misfit).collect()
    }
}

fn cut(text: &str) -> String {
    text.chars().take(DETAIL_CHARACTERS_MAX).collect()
}

/// The first reference that does not begin with `#`, and where it stands. Within what cannot be a schema (`enum`,
/// `const`, examples and defaults) nothing is a reference; a property may be called `$ref`.
fn outward(value: &Value, place: &str) -> Option<(String, String)> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let place = format!("{place}/{key}");
            match (key.as_str(), value) {
                ("enum" | "const" | "examples" | "default", _) => None,
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    (!target.starts_with('#')).then(|| (place, cut(target)))
                }
                _ => outward(value, &place),
            }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(number, value)| outward(value, &format!("{place}/{number}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Schema;
    use serde_json::{Value, json};
    use std::path::Path;

    fn compile(schema: &Value) -> Result<Schema, String> {
        Schema::compile(Path::new("s.json"), schema.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place_without_the_value() {
        let schema = json!({
            "type": "object", "required": ["name"], "additionalProperties": false,
            "properties": {"age": {"type": "integer", "minimum": 0}, "name": {"pattern": "^[a-z]+$"},
                           "day": {"type": "string", "format": "date"}},
        });
        let schema = compile(&schema).unwrap();
        assert_eq!(schema.misfits(&json!({"name": "ada", "age": 7, "day": "2026-11-30"})), []);
        let secret = "S3CRET";
        let misfits = schema.misfits(&json!({"age": "S3CRET", "name": "S3CRET", "day": "S3CRET"}));
        let pointers: Vec<_> = misfits.iter().map(|misfit| misfit.pointer.as_str()).collect();
        assert_eq!(pointers, ["/age", "/day", "/name"], "{misfits:?}");
        assert!(misfits.iter().all(|misfit| !misfit.detail.contains(secret)), "{misfits:?}");
        let missing = schema.misfits(&json!({}));
        assert!(missing[0].pointer.is_empty() && missing[0].detail.contains("name"), "{missing:?}");
    }

    #[test]
    fn errors_and_their_length_are_bounded() {
        let schema = compile(&json!({"items": {"type": "integer"}, "additionalProperties": false})).unwrap();
        assert_eq!(schema.misfits(&json!(vec!["x"; 100])).len(), 10);
        let misfits = schema.misfits(&json!({"k".repeat(10_000): 1}));
        assert!(misfits[0].detail.len() <= 200 && misfits[0].pointer.len() <= 200);
    }

    #[test]
    fn nothing_outside_of_the_file_is_ever_fetched() {
        for target in
            ["http://127.0.0.1:9/s.json", "https://example.com/s", "file:///etc/passwd", "other.json", "/x"]
        {
            let error = compile(&json!({"properties": {"a": {"$ref": target}}})).unwrap_err();
            assert!(error.contains(target) && error.contains("s.json at /properties/a/$ref"), "{error}");
        }
        assert!(compile(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}})).is_ok());
        assert!(
            compile(&json!({"properties": {"$ref": {"type": "string"}}, "enum": [{"$ref": "x"}]})).is_ok()
        );
        assert!(compile(&json!({"$schema": "https://example.com/own-dialect"})).is_err());
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        let error = Schema::compile(Path::new("s.json"), b"{\n  \"type\": }").unwrap_err().to_string();
        assert!(error.starts_with("s.json:2:11: "), "{error}");
        let error = compile(&json!({"properties": {"a": {"type": "intger"}}})).unwrap_err();
        assert!(error.contains("/properties/a/type"), "{error}");
        assert!(compile(&json!({"$ref": "#/$defs/none"})).is_err());
    }

    #[test]
    fn patterns_are_matched_in_linear_time_or_refused() {
        let schema = compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert_eq!(schema.misfits(&json!("a".repeat(100_000) + "!")).len(), 1);
        assert!(
            compile(&json!({"pattern": "(a)\\1"})).is_err()
                && compile(&json!({"pattern": "a(?=b)"})).is_err()
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let tree = compile(&json!({"properties": {"next": {"$ref": "#"}}, "required": ["v"]})).unwrap();
        assert_eq!(tree.misfits(&json!({"v": 1, "next": {"v": 2, "next": {}}}))[0].pointer, "/next/next");
        if let Ok(circle) = compile(&json!({"$ref": "#"})) {
            let _ = circle.misfits(&json!({"a": 1}));
        }
    }
}
