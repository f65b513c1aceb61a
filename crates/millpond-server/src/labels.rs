//! What a message says of itself beside its bytes: its class, its tenant, its group; and who a worker says it is.
//!
//! Owns the reading of these words, from headers and from JSON alike, and the texts for those that cannot be used.
//! Must never guess: a word that is nearly a class is refused, and a label that only one of the two forms could
//! carry is refused in both.

use crate::errors::{Refusal, refuse};
use crate::headers;
use http::{HeaderMap, HeaderValue};
use millpond_api::problem::Slug;
use millpond_core::message::Criticality;
use millpond_core::name::Label;

/// The headers that are read here.
pub(crate) const CRITICALITY: &str = "millpond-criticality";
pub(crate) const TENANT: &str = "millpond-tenant";
pub(crate) const GROUP: &str = "millpond-group";

/// Why a word is no class, or a text no label: to be put after the name of what holds it.
type Mistake = String;

/// The class that `word` names.
fn criticality(word: &str) -> Result<Criticality, Mistake> {
    Criticality::parse(word).ok_or_else(|| {
        let words = Criticality::ALL.map(Criticality::as_str).join(", ");
        let shown = crate::paths::shown(word);
        format!("is {shown:?}; write one of {words}, or leave it out for critical")
    })
}

fn label(text: &str) -> Result<Label, Mistake> {
    let most = Label::LENGTH_MAX;
    if text.is_empty() {
        return Err(format!("is empty; write 1 to {most} bytes of text, or leave it out"));
    }
    if text.trim() != text {
        return Err(
            "begins or ends with a blank; leave that out, since a header could not carry it".to_owned()
        );
    }
    Label::new(text).map_err(|_| match text.len() {
        length if length > most => {
            format!("has {length} bytes; write at most {most}, such as a digest of the longer text")
        }
        _ => "has a control character; leave it out".to_owned(),
    })
}

/// The class in the header; without one, the message is critical.
pub(crate) fn criticality_header(headers: &HeaderMap) -> Result<Criticality, Refusal> {
    match headers::text(headers, CRITICALITY)? {
        None => Ok(Criticality::default()),
        Some(word) => criticality(word).map_err(|mistake| in_header(CRITICALITY, &mistake)),
    }
}

/// A label in a header: UTF-8, as in JSON.
pub(crate) fn label_header(headers: &HeaderMap, name: &str) -> Result<Option<Label>, Refusal> {
    let Some(value) = headers::one(headers, name)? else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| in_header(name, "is not UTF-8; write it as UTF-8, or with ASCII characters only"))?;
    label(text.trim()).map(Some).map_err(|mistake| in_header(name, &mistake))
}

/// A label as the value of a header: UTF-8, as it is read.
pub(crate) fn header_value(label: &Label) -> HeaderValue {
    HeaderValue::from_bytes(label.as_str().as_bytes()).expect("a label has no control characters")
}

fn in_header(name: &str, mistake: &str) -> Refusal {
    refuse(Slug::InvalidMessage, format!("the header {name} {mistake}"))
}

/// The class in a field of a message in JSON; without one, the message is critical.
pub(crate) fn criticality_field(word: Option<&str>) -> Result<Criticality, Refusal> {
    let read = word.map(criticality).transpose().map(Option::unwrap_or_default);
    read.map_err(|mistake| refuse(Slug::InvalidMessage, format!("criticality {mistake}")))
}

/// A label in a field of a message in JSON.
pub(crate) fn label_field(text: Option<&str>, field: &str) -> Result<Option<Label>, Refusal> {
    let read = text.map(label).transpose();
    read.map_err(|mistake| refuse(Slug::InvalidMessage, format!("{field} {mistake}")))
}

/// Who a worker says it is.
pub(crate) fn consumer(text: Option<&str>) -> Result<Option<Label>, Refusal> {
    let read = text.map(label).transpose();
    read.map_err(|mistake| refuse(Slug::Malformed, format!("consumer {mistake}")))
}

#[cfg(test)]
mod tests {
    use super::{
        CRITICALITY, GROUP, consumer, criticality_field, criticality_header, header_value, label_field,
        label_header,
    };
    use http::{HeaderMap, HeaderName, HeaderValue};
    use millpond_core::message::Criticality;
    use millpond_core::name::Label;

    fn headers(name: &'static str, values: &[&[u8]]) -> HeaderMap {
        let value = |bytes: &&[u8]| (HeaderName::from_static(name), HeaderValue::from_bytes(bytes).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn a_class_is_one_of_four_words_and_nothing_else() {
        for class in Criticality::ALL {
            let word = class.as_str();
            assert_eq!(criticality_header(&headers(CRITICALITY, &[word.as_bytes()])).unwrap(), class);
            assert_eq!(criticality_field(Some(word)).unwrap(), class);
        }
        assert_eq!(criticality_header(&HeaderMap::new()).unwrap(), Criticality::Critical);
        assert_eq!(criticality_field(None).unwrap(), Criticality::Critical);
        for bad in ["", "Critical", "critical_plus", "urgent", "critical, sheddable", "1"] {
            let problem = criticality_header(&headers(CRITICALITY, &[bad.as_bytes()])).unwrap_err().0;
            assert_eq!(problem.status, 422, "{bad}");
            for said in [CRITICALITY, "critical-plus, critical, sheddable-plus, sheddable", "leave it out"] {
                assert!(problem.detail.contains(said), "{bad}: {}", problem.detail);
            }
            assert!(criticality_field(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_is_the_same_in_a_header_and_in_json() {
        for good in ["g", "customer 7", "größe/ä", &"x".repeat(Label::LENGTH_MAX), "a,b"] {
            let label = Label::new(good).unwrap();
            let header = label_header(&headers(GROUP, &[good.as_bytes()]), GROUP).unwrap();
            assert_eq!(header.as_ref(), Some(&label), "{good}");
            assert_eq!(header_value(&label).as_bytes(), good.as_bytes());
            assert_eq!(label_field(Some(good), "group").unwrap(), Some(label.clone()), "{good}");
            assert_eq!(consumer(Some(good)).unwrap(), Some(label), "{good}");
        }
        assert_eq!(label_header(&HeaderMap::new(), GROUP).unwrap(), None);
        let blanks = label_header(&headers(GROUP, &[b" g\t"]), GROUP).unwrap();
        assert_eq!(blanks, Label::new("g").ok(), "blanks around the value of a header are none of it");
    }

    #[test]
    fn what_is_no_label_is_refused_with_what_is_wrong() {
        let long = "x".repeat(Label::LENGTH_MAX + 1);
        for (bad, said) in [
            (&b""[..], "is empty"),
            (b"  ", "is empty"),
            (b"a\tb", "a control character"),
            (b"gr\xf6\xdfe", "not UTF-8"),
            (long.as_bytes(), "has 129 bytes; write at most 128"),
        ] {
            let problem = label_header(&headers(GROUP, &[bad]), GROUP).unwrap_err().0;
            assert_eq!(problem.status, 422);
            let detail = &problem.detail;
            assert!(detail.contains("the header millpond-group") && detail.contains(said), "{detail}");
        }
        for (bad, said) in
            [("", "is empty"), (" a", "a blank"), ("a\n", "a blank"), ("a\u{0}b", "a control character")]
        {
            let problem = label_field(Some(bad), "tenant").unwrap_err().0;
            assert!(problem.status == 422 && problem.detail.contains(said), "{bad:?}: {}", problem.detail);
            assert!(problem.detail.starts_with("tenant "), "{}", problem.detail);
            let problem = consumer(Some(bad)).unwrap_err().0;
            assert!(problem.status == 400 && problem.detail.starts_with("consumer "), "{}", problem.detail);
        }
        let twice = label_header(&headers(GROUP, &[b"a", b"a"]), GROUP).unwrap_err().0;
        assert!(twice.detail.contains("more than once"), "even if both say the same: {}", twice.detail);
    }
}
