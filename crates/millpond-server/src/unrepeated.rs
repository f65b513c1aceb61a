//! A JSON value in which no object says one thing twice.
//!
//! Owns the refusal. Must never choose among several values of one key: which one was meant is not known.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Any JSON value. By itself, [`Value`] takes the last of several values of one key.
pub(crate) struct Unrepeated(pub(crate) Value);

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Unrepeated;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Unrepeated, E> {
        Ok(Unrepeated(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Unrepeated, E> {
        Ok(Unrepeated(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Unrepeated, E> {
        Ok(Unrepeated(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Unrepeated, E> {
        Ok(Unrepeated(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Unrepeated, E> {
        Ok(Unrepeated(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Unrepeated, E> {
        Ok(Unrepeated(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unrepeated, A::Error> {
        let mut values = Vec::new();
        while let Some(Unrepeated(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Unrepeated(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Unrepeated, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field {name:?}")));
            }
            let Unrepeated(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(Unrepeated(Value::Object(object)))
    }
}

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::Unrepeated;
    use serde_json::Value;

    #[test]
    fn a_value_is_read_as_it_is() {
        let text = r#"{"a": [1, -2, 0.5, true, null, "x", {"b": {}}], "c": {"a": 1}}"#;
        let Unrepeated(read) = serde_json::from_str(text).unwrap();
        assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_wherever_it_is() {
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"b": {"a": 1, "a": 2}}"#, r#"[{"a": null, "\u0061": 2}]"#] {
            let error = serde_json::from_str::<Unrepeated>(text).err().unwrap().to_string();
            assert!(error.contains("duplicate field \"a\""), "{error}");
        }
    }
}
