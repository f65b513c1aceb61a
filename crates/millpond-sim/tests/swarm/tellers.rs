//! Ends that are told: in a fourth of the runs, a third of the messages want it.
//!
//! Owns what must hold of the messages that tell of ends. Must never draw from the chance of a run: runs of before it
//! came stay what they were.

use super::world::World;
use millpond_core::callback::{Callbacks, Telling, Words};
use millpond_core::identity::Seq;
use millpond_core::message::{CallbackWish, Content};
use millpond_core::name::{Label, Name};
use millpond_core::settings::{DeadLetterSettings, QueueSettings};
use millpond_engine::engine::Wording;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The queue of what tells of ends.
pub(super) fn tellers() -> Name {
    Name::new("tellers").expect("it is a name")
}

/// Nothing happens to it: nobody takes it, and it does not expire.
fn settings() -> QueueSettings {
    let day = Duration::from_hours(24);
    let dead_letter = DeadLetterSettings { retention: day * 365, ..DeadLetterSettings::default() };
    QueueSettings { retention: day * 300, dead_letter, ..QueueSettings::default() }
}

/// What tells of an end says of which one.
fn about(seq: Seq, finished: i64) -> String {
    format!("{} {finished}", seq.0)
}

impl World {
    fn tells(&self) -> bool {
        self.seed % 4 == 3
    }

    /// Its declaration.
    pub(super) fn tellers_queue(&self) -> Option<(Name, QueueSettings)> {
        self.tells().then(|| (tellers(), settings()))
    }

    pub(super) fn wording(&self) -> Option<Wording> {
        let wording = |_| {
            let words: Words = Arc::new(|ended| {
                let message = ended.message;
                let finished = message.finished.expect("its life is over").0;
                let tenant = Label::new(&about(message.seq, finished)).ok();
                Telling { content: Arc::new(Content::default()), tenant }
            });
            Callbacks { queue: tellers(), words }
        };
        self.tells().then(|| Wording(Arc::new(wording)))
    }

    /// Who wants to be told of the end of a payload.
    pub(super) fn callback(&self, payload: u64) -> Option<Arc<CallbackWish>> {
        let wish = CallbackWish { address: format!("to {}", payload % 7), context: Vec::new() };
        (self.tells() && payload.is_multiple_of(3)).then(|| Arc::new(wish))
    }

    /// Every end that is kept is told by exactly one message, which is kept too, and nothing is told of what has not
    /// ended.
    pub(super) fn check_tellers(&mut self) {
        let Some(host) = self.host.as_ref().filter(|_| self.tells()) else { return };
        let (mut said, mut told) = (BTreeMap::new(), Vec::new());
        let mut twice = None;
        host.machine().pond().each_restored(&mut |message| {
            if let Some(callback) = &message.callback {
                let finished = message.finished.filter(|_| message.phase.is_terminal());
                return told.push((message.seq, finished, callback.teller, message.place == message.seq.0));
            }
            // Others have tenants of other names.
            let about = message.tenant.as_ref().map_or("", Label::as_str).to_owned();
            if about.contains(' ') && said.insert(about.clone(), message.seq).is_some() {
                twice = Some(about);
            }
        });
        if let Some(about) = twice {
            self.fail(format!("the end {about} is told twice"));
        }
        for (seq, finished, teller, is_first_life) in told {
            match finished {
                Some(finished) => {
                    let is = said.get(&about(seq, finished.0)).copied();
                    if is.is_none() || is != teller {
                        self.fail(format!("the end of {seq:?} is told by {is:?}, and not by {teller:?}"));
                    }
                }
                None if is_first_life => {
                    let start = format!("{} ", seq.0);
                    if let Some((about, _)) =
                        said.range(start.clone()..).next().filter(|(about, _)| about.starts_with(&start))
                    {
                        self.fail(format!("{about} is told, and has not happened"));
                    }
                }
                None => {}
            }
        }
        if !said.is_empty() {
            self.reach("seen: an end that is told");
            if self.boot > 1 {
                self.reach("seen: what tells of an end after a crash");
            }
        }
    }
}
