//! The whole engine under a swarm of faults: one seed is one run, and every run is a different mix.
//!
//! Owns the run: chaos, healing, draining, the judgement. Must never know a rule of the queue: what went in and what
//! came out is written down, and a judge that shares nothing with the engine reads it.

mod draw;
mod faults;
mod heal;
mod marks;
mod operators;
mod producers;
mod replies;
mod target;
mod tellers;
mod watch;
mod workers;
mod world;

pub(crate) use marks::Marks;

use millpond_testkit::judge::{Summary, judge};
use world::World;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Report {
    /// Everything that was reached.
    pub(crate) marks: Marks,
    /// What the trail amounts to.
    pub(crate) summary: Summary,
    /// Events of the run.
    pub(crate) steps: u64,
    /// Every input, effect and disk operation in order, if it was asked for.
    pub(crate) trace: Option<String>,
}

/// Runs `seed` to its end.
///
/// # Panics
/// If anything that must hold does not. The message names what.
pub(crate) fn run(seed: u64, traced: bool) -> Report {
    let mut world = World::new(seed, traced);
    world.chaos();
    world.heal();
    let (marks, trail, trace) = world.finish();
    let steps = trail.len() as u64;
    let (summary, violations) = judge(&trail);
    if let Some(first) = violations.first() {
        // The detail names others that matter.
        let words = first.detail.split(|letter: char| !letter.is_ascii_digit());
        let subjects: Vec<u64> = words.filter_map(|word| word.parse().ok()).chain([first.subject]).collect();
        let about: Vec<String> = trail
            .iter()
            .filter(|event| subjects.iter().any(|subject| mentions(event, *subject)))
            .map(|event| format!("{event:?}"))
            .collect();
        panic!(
            "seed {seed}: {} violations: {:#?}\nabout the first:\n{}",
            violations.len(),
            violations.iter().take(5).collect::<Vec<_>>(),
            about.join("\n")
        );
    }
    Report { marks, summary, steps, trace }
}

/// Whether `event` is about a message, a payload or a key of this number, or about all; for whoever reads a report.
fn mentions(event: &millpond_testkit::trail::Event, subject: u64) -> bool {
    use millpond_testkit::trail::{Event, Offered};
    match event {
        Event::Offer(offer) => {
            offer.payload == subject
                || offer.key == Some(subject)
                || offer.answer == Offered::Accepted(subject)
        }
        Event::HandOut(one) => one.id == subject,
        Event::TakenBack { id, .. }
        | Event::Unheard { id, .. }
        | Event::Look { id, .. }
        | Event::End { id, .. } => *id == subject,
        Event::Word(word) => word.id == subject,
        Event::Extension(wish) => wish.id == subject,
        Event::Withdrawal(request) | Event::Burial(request) => request.id == subject,
        Event::Replay(replay) => replay.ids.as_ref().is_none_or(|ids| ids.contains(&subject)),
        Event::Rules { .. }
        | Event::QueueDeleted { .. }
        | Event::Target { .. }
        | Event::Pause { .. }
        | Event::Purge { .. }
        | Event::Boot { .. }
        | Event::FailedStart { .. }
        | Event::Death { .. }
        | Event::Step { .. } => true,
    }
}
