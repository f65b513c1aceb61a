//! Replays of dead letters on the wire.
//!
//! Owns their JSON shapes. Must never know what a queue does with them.

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A wish to put dead letters back to work: exactly one of `ids`, `filter` and `all`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Those of all that are dead now that fit everything given here.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    pub filter: Option<ReplayFilter>,
    /// All that are dead now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// How fast at most, such as `5/s`; as fast as it goes if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// How long each is worth doing from its return on, such as `4h`. If missing, its expiry stands while it lies
    /// ahead; one past it gets the queue's retention anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Take also what died longer ago than the queue's `dead_letter.replayable_for`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<bool>,
    /// Only say what would happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// An object only: by itself, serde takes an array for a struct as well, its elements for the fields in their order.
fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ReplayFilter>, D::Error> {
    Ok(Option::<FilterObject>::deserialize(deserializer)?.map(|FilterObject(filter)| filter))
}

struct FilterObject(ReplayFilter);

impl<'de> Deserialize<'de> for FilterObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FilterVisitor)
    }
}

struct FilterVisitor;

impl<'de> Visitor<'de> for FilterVisitor {
    type Value = FilterObject;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FilterObject, A::Error> {
        ReplayFilter::deserialize(MapAccessDeserializer::new(map)).map(FilterObject)
    }
}

/// Which dead letters are meant: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayFilter {
    /// Why they died: `attempts-exhausted`, `deliveries-exhausted`, `rejected` or `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A part of the text of their last error, in either case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// They died at this time or later (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// They died before this time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whose work they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A replay as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The queue.
    pub queue: String,
    /// Its number within the queue; `null` for a dry run.
    pub number: Option<u32>,
    /// Where to ask again; `null` for a dry run.
    pub url: Option<String>,
    /// `running`, `done`, `cancelled`, or `dry-run` if nothing was changed.
    pub status: String,
    /// What a running one waits for: `pace`, its rate; `room`, room in the queue, or its turn behind those who wait at
    /// its door; `disk`, room on the disk. Missing while it waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Dead letters that it set out to put back.
    pub selected: u64,
    /// Those that went back to work so far; in a dry run, those that would.
    pub replayed: u64,
    /// Those that have not gone back yet, or did not before it was cancelled.
    pub remaining: u64,
    /// Those that were meant and did not go back: too old, or gone in the meantime.
    pub skipped: u64,
    /// Those of the skipped ones that died longer ago than `dead_letter.replayable_for`; `older` takes them too.
    pub too_old: u64,
    /// How fast it goes at most; `null`: as fast as it goes.
    pub rate: Option<String>,
    /// When it was asked for; `null` for a dry run.
    pub created_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
    /// In the answer to the wish: the ids of the first of those that go back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// The replays of a queue that are remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replays {
    /// Oldest first; at most one runs, the last.
    pub replays: Vec<Replay>,
}

#[cfg(test)]
mod tests {
    use super::ReplayRequest;

    #[test]
    fn a_mistyped_filter_is_refused_and_not_taken_for_all() {
        let read = |text: &str| serde_json::from_str::<ReplayRequest>(text);
        assert!(read(r#"{"filter": {"reasn": "expired"}}"#).unwrap_err().to_string().contains("reasn"));
        assert!(read(r#"{"all": true, "dryrun": true}"#).is_err());
        assert!(read(r#"{"filter": ["expired"]}"#).is_err());
        assert!(read(r#"{"filter": null, "all": true}"#).unwrap().filter.is_none());
        let twice =
            read(r#"{"filter": {"reason": "expired", "reason": "rejected"}}"#).unwrap_err().to_string();
        assert!(twice.contains("duplicate field `reason`"), "{twice}");
        assert!(read(r#"{"filter": {"reason": "expired"}, "rate": "5/s"}"#).unwrap().filter.is_some());
    }
}
