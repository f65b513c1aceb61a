//! Callbacks: who words what is told of an end, and where it goes.
//!
//! Owns the shapes between the pond, which decides that an end is told, and whoever words it. Must never know what is
//! told, or how.

use crate::identity::Seq;
use crate::message::{Content, Message, SharedContent};
use crate::name::{Label, Name};
use std::fmt;
use std::sync::Arc;

/// An end that is to be told.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'pond> {
    /// The number of the message that will tell of it.
    pub teller: Seq,
    /// The queue of the message that has ended.
    pub queue: &'pond Name,
    /// That message, as it stands now.
    pub message: &'pond Message,
    /// Its result, if it has one.
    pub result: Option<&'pond Content>,
}

/// What is told.
#[derive(Debug, Clone)]
pub struct Telling {
    /// The bytes of the message that tells it.
    pub content: SharedContent,
    /// Whose turn it takes among those that tell of ends.
    pub tenant: Option<Label>,
}

/// Words what is told of an end. A pure function: what it says must follow from its argument alone.
pub type Words = Arc<dyn Fn(&Ended<'_>) -> Telling + Send + Sync>;

/// How ends are told: by messages of a queue of their own.
#[derive(Clone)]
pub struct Callbacks {
    /// The queue; it must be declared.
    pub queue: Name,
    /// The words.
    pub words: Words,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Callbacks").field("queue", &self.queue).finish_non_exhaustive()
    }
}
