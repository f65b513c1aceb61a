//! Bodies that must fit a schema.
//!
//! Owns the check and what is told of a body that fails it. Must never keep the asynchronous threads from others for
//! longer than a small body takes, nor repeat a body to its sender.

use crate::errors::{Refusal, refuse};
use crate::headers;
use crate::json::may_be_json;
use crate::paths::shown;
use crate::unrepeated::Unrepeated;
use bytes::Bytes;
use http::{HeaderMap, header};
use millpond_api::problem::{FieldError, Slug};
use millpond_config::{Misfit, Schema};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::Semaphore;

/// Bodies up to this size are checked at once: that takes a fraction of a millisecond.
const AT_ONCE_BYTES_MAX: usize = 8 << 10;
/// Larger bodies that are checked at the same time. The others wait; their requests have a bound.
static ASIDE: Semaphore = Semaphore::const_new(2);
/// What a fragment cannot hold as it is (RFC 3986, and `%` itself).
const FRAGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Refuses a body that does not call itself JSON.
pub(crate) fn refuse_other_types(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers::text(headers, header::CONTENT_TYPE.as_str())?.unwrap_or_default();
    // What `curl -d` says unless told otherwise is let through elsewhere; here it would be handed on to the target.
    if may_be_json(given.as_bytes()) && !given.contains("x-www-form-urlencoded") {
        return Ok(());
    }
    let what =
        if given.is_empty() { "without a Content-Type".to_owned() } else { format!("as {:?}", shown(given)) };
    let detail = format!("the body is sent {what}; send JSON with Content-Type: application/json");
    Err(refuse(Slug::UnsupportedMediaType, detail))
}

/// Checks a body, a large one aside.
pub(crate) async fn check(schema: &Schema, body: &Bytes) -> Result<(), Refusal> {
    if body.len() <= AT_ONCE_BYTES_MAX {
        return check_now(schema, body);
    }
    let permit = ASIDE.acquire().await;
    let (schema, body) = (schema.clone(), body.clone());
    let checked = tokio::task::spawn_blocking(move || {
        // Held by the work, which goes on if the caller leaves.
        let _permit = permit;
        check_now(&schema, &body)
    });
    checked
        .await
        .unwrap_or_else(|_| Err(refuse(Slug::Internal, "the check of the body met a fault of the server")))
}

fn check_now(schema: &Schema, body: &[u8]) -> Result<(), Refusal> {
    if body.trim_ascii().is_empty() {
        return Err(refuse(Slug::InvalidMessage, "the body is empty; send JSON"));
    }
    // A key that is there twice would be checked with one of its values and used with the other.
    let Unrepeated(value) = serde_json::from_slice(body).map_err(|error| {
        refuse(Slug::InvalidMessage, format!("the body is not JSON as it is taken here: {error}"))
    })?;
    let misfits = schema.misfits(&value);
    if misfits.is_empty() {
        return Ok(());
    }
    let mut refusal =
        refuse(Slug::InvalidMessage, "the body does not fit the schema of this path; see errors");
    let error = |Misfit { pointer, detail }| FieldError {
        pointer: format!("#{}", utf8_percent_encode(&pointer, FRAGMENT)),
        detail,
    };
    refusal.0.errors = misfits.into_iter().map(error).collect();
    Err(refusal)
}
