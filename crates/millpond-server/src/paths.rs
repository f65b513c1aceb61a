//! The names and ids in a request's path and query.
//!
//! Owns their reading and the texts for those that cannot be. Must never look anything up.

use crate::errors::{Refusal, refuse};
use crate::shared::Shared;
use axum::extract::{FromRequestParts, Query, RawPathParams};
use http::Uri;
use http::request::Parts;
use millpond_api::problem::Slug;
use millpond_core::identity::{IdentityError, MessageId, Seq};
use millpond_core::name::Name;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The `{queue}` of the path.
pub(crate) struct QueueName(pub(crate) Name);

/// The `{target}` of the path.
pub(crate) struct TargetName(pub(crate) Name);

/// The `{id}` of the path: a message that this server issued.
pub(crate) struct MessageRef {
    /// Its number.
    pub(crate) seq: Seq,
    /// Its id as text.
    pub(crate) id: String,
}

/// The `{number}` of a replay in the path.
pub(crate) struct TaskNumber(pub(crate) u32);

/// The percent-decoded value of `wanted`.
async fn parameter(parts: &mut Parts, shared: &Arc<Shared>, wanted: &str) -> Result<String, Refusal> {
    let parameters = RawPathParams::from_request_parts(parts, shared)
        .await
        .map_err(|rejection| refuse(Slug::Malformed, format!("the path: {}", rejection.body_text())))?;
    let found = parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    Ok(found.expect("the route has this parameter"))
}

impl FromRequestParts<Arc<Shared>> for QueueName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        let text = parameter(parts, shared, "queue").await?;
        // What is no name is no queue either; only creating one makes the name itself the mistake.
        let slug = if parts.method == http::Method::PUT { Slug::Malformed } else { Slug::UnknownQueue };
        Name::new(&text).map(Self).map_err(|error| refuse(slug, format!("the queue in the path: {error}")))
    }
}

impl FromRequestParts<Arc<Shared>> for TargetName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        let text = parameter(parts, shared, "target").await?;
        let unknown = |error| refuse(Slug::UnknownTarget, format!("the target in the path: {error}"));
        Name::new(&text).map(Self).map_err(unknown)
    }
}

impl FromRequestParts<Arc<Shared>> for MessageRef {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        let id = parameter(parts, shared, "id").await?;
        let seq = open_id(shared, &id).map_err(|error| {
            refuse(
                Slug::UnknownMessage,
                format!("message {:?}: {error}; use the id as the enqueue's answer gave it", shown(&id)),
            )
        })?;
        Ok(Self { seq, id })
    }
}

impl FromRequestParts<Arc<Shared>> for TaskNumber {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        let text = parameter(parts, shared, "number").await?;
        text.parse().map(Self).map_err(|_| {
            refuse(Slug::UnknownReplay, format!("{:?} is not the number of a replay", shown(&text)))
        })
    }
}

/// The number of the message that `text` is the id of.
pub(crate) fn open_id(shared: &Shared, text: &str) -> Result<Seq, IdentityError> {
    let id: MessageId = text.parse()?;
    shared.handle.keys().open_id(id)
}

/// `text` cut to a length that does no harm in an answer.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

/// The query of `uri`; what is not known or not readable is refused by name.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|rejection| refuse(Slug::Malformed, format!("the query: {}", rejection.body_text())))?;
    Ok(query)
}
