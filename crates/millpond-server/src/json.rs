//! JSON bodies: reading them, and saying what is wrong with one that cannot be used.
//!
//! Owns the check of the media type and the texts of mistakes. Must never take what only resembles the JSON that is
//! documented: a slip that is let through today is an interface tomorrow.

use crate::bodies::{Bodies, Room, discard};
use crate::errors::{Refusal, refuse};
use crate::headers::{one, refuse_content_coding};
use axum::body::Body;
use http::{HeaderMap, header};
use millpond_api::problem::Slug;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A JSON object. By itself, serde takes an array for a struct as well, its elements for the fields in their order.
pub(crate) struct Object<T>(pub(crate) T);

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads a JSON body. `expected` says in words what belongs there.
pub(crate) async fn read_json<T: DeserializeOwned>(
    bodies: &Bodies,
    headers: &HeaderMap,
    body: Body,
    limit_bytes: u64,
    expected: &str,
) -> Result<T, Refusal> {
    read_json_keeping_room(bodies, headers, body, limit_bytes, expected).await.map(|(value, _)| value)
}

/// The same; see [`Bodies::read_keeping_room`].
pub(crate) async fn read_json_keeping_room<'bodies, T: DeserializeOwned>(
    bodies: &'bodies Bodies,
    headers: &HeaderMap,
    body: Body,
    limit_bytes: u64,
    expected: &str,
) -> Result<(T, Room<'bodies>), Refusal> {
    let content_type = match one(headers, header::CONTENT_TYPE.as_str()) {
        Ok(content_type) => content_type,
        Err(refusal) => {
            discard(body);
            return Err(refusal);
        }
    };
    if let Some(given) = content_type.filter(|given| !may_be_json(given.as_bytes())) {
        discard(body);
        let given = String::from_utf8_lossy(given.as_bytes()).into_owned();
        let detail =
            format!("the body is sent as {given:?}; send {expected} with Content-Type: application/json");
        return Err(refuse(Slug::UnsupportedMediaType, detail));
    }
    if let Err(refusal) = refuse_content_coding(headers) {
        discard(body);
        return Err(refusal);
    }
    let (bytes, room) = bodies.read_keeping_room(body, limit_bytes).await?;
    Ok((parse_json(&bytes, expected)?, room))
}

/// Whether a body of this media type is tried as JSON. What `curl -d` says unless told otherwise is among them: it is
/// what everybody types first, and pages of other sites, which can send it too, are refused by their `Origin`.
pub(crate) fn may_be_json(media_type: &[u8]) -> bool {
    let essence = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json"
        || essence == b"application/x-www-form-urlencoded"
        || (essence.starts_with(b"application/") && essence.ends_with(b"+json"))
}

/// Parses JSON; a failure names the field, the line and the column.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8], expected: &str) -> Result<T, Refusal> {
    if bytes.trim_ascii().is_empty() {
        return Err(refuse(Slug::Malformed, format!("the body is empty; send {expected} as JSON")));
    }
    serde_json::from_slice(bytes).map_err(|_| {
        // Read once more for the path to the field: keeping track of it costs, and is needed only now.
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let error = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err();
        let detail = error.map_or_else(
            || "there is more after the end of the JSON value".to_owned(),
            |error| match known_path(&error.path().to_string()) {
                "" => error.inner().to_string(),
                path => format!("{path}: {}", error.inner()),
            },
        );
        refuse(Slug::Malformed, format!("the body is not {expected}: {detail}"))
    })
}

/// The part of a path that names a field or an element: where the text breaks off, its last step is not known.
fn known_path(path: &str) -> &str {
    path.trim_end_matches('?').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::{Object, known_path, may_be_json, parse_json};
    use millpond_api::types::{LeaseRequest, Settlement};

    #[test]
    fn json_is_recognized_by_its_essence() {
        for yes in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
            "application/x-www-form-urlencoded",
        ] {
            assert!(may_be_json(yes.as_bytes()), "{yes}");
        }
        for no in ["text/json", "application/jsonp", "multipart/form-data", "", "json"] {
            assert!(!may_be_json(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let text = "[{\"receipt\": \"a\", \"outcome\": \"complete\"},\n {\"receipt\": 7}]";
        let refusal = parse_json::<Vec<Object<Settlement>>>(text.as_bytes(), "settlements").err().unwrap();
        let detail = refusal.0.detail;
        assert!(detail.contains("[1].receipt") && detail.contains("line 2 column"), "{detail}");
    }

    #[test]
    fn malformed_numbers_and_leftovers_are_refused() {
        for bad in [
            "",
            "{",
            "NaN",
            r#"{"max": -1}"#,
            r#"{"max": 1e999}"#,
            r#"{"lease_seconds": NaN}"#,
            "{} {}",
            "[]x",
        ] {
            assert!(parse_json::<Object<LeaseRequest>>(bad.as_bytes(), "a wish").is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_body_is_called_empty() {
        for nothing in ["", " \r\n"] {
            let refusal = parse_json::<Object<LeaseRequest>>(nothing.as_bytes(), "a wish").err().unwrap();
            assert_eq!(refusal.0.detail, "the body is empty; send a wish as JSON");
        }
    }

    #[test]
    fn an_array_is_no_object_even_if_its_elements_would_fit() {
        for bad in ["[]", "[1]", "[1, 2, 3, null]", "null", "3"] {
            let refusal = parse_json::<Object<LeaseRequest>>(bad.as_bytes(), "a wish").err().unwrap();
            assert!(refusal.0.detail.contains("expected an object"), "{bad}: {}", refusal.0.detail);
        }
        let refusal = parse_json::<Vec<Object<Settlement>>>(br#"[["receipt", "complete"]]"#, "settlements")
            .err()
            .unwrap();
        assert!(refusal.0.detail.contains("[0]: "), "{}", refusal.0.detail);
        assert!(parse_json::<Object<LeaseRequest>>(b"{}", "a wish").is_ok());
    }

    #[test]
    fn a_path_that_is_not_known_is_not_shown() {
        for (path, shown) in [(".", ""), ("?", ""), ("[0].?", "[0]"), ("[0].body", "[0].body")] {
            assert_eq!(known_path(path), shown, "{path}");
        }
        let refusal = parse_json::<Object<LeaseRequest>>(b"{\"max\": 1", "a wish").err().unwrap();
        assert_eq!(
            refusal.0.detail,
            "the body is not a wish: EOF while parsing an object at line 1 column 9"
        );
    }
}
