//! What clocks allow: when a wait that was begun at one time may be over at another, across restarts and steps of
//! the wall clock.
//!
//! Owns the arithmetic of waits. Must never know what is waited for.

use crate::trail::{Micros, Span};

/// Starts, deaths and steps of a server's life.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) boots: Vec<Micros>,
    /// When, and until when nothing was lost.
    pub(super) deaths: Vec<(Micros, Micros)>,
    pub(super) steps: Vec<(Micros, Micros)>,
}

/// Earlier than any moment.
const NEVER: Micros = Micros::MIN / 4;

impl Clocks {
    pub(super) fn sort(&mut self) {
        self.boots.sort_unstable();
        self.deaths.sort_unstable();
        self.steps.sort_unstable();
    }

    /// What the wall clock shows at `at`, but for a constant.
    fn wall(&self, at: Micros) -> Micros {
        at + self.steps.iter().filter(|(step, _)| *step <= at).map(|(_, by)| by).sum::<Micros>()
    }

    /// The least and the most that the wall clock shows within `span`.
    fn walls(&self, span: Span) -> (Micros, Micros) {
        let steps = self.steps.iter().filter(|(at, _)| span.sent <= *at && *at <= span.ended);
        let around = steps.flat_map(|(at, _)| [self.wall(*at - 1), self.wall(*at)]);
        let (first, last) = (self.wall(span.sent), self.wall(span.ended));
        around
            .fold((first.min(last), first.max(last)), |(least, most), wall| (least.min(wall), most.max(wall)))
    }

    /// The earliest moment at which a wait of `length` that was begun within `begun` can be over. One process waits
    /// by a clock that never steps. Whoever starts anew has only the wall clock to go by.
    pub(super) fn earliest(&self, begun: Span, length: Micros) -> Micros {
        let (least, _) = self.walls(begun);
        let of_boot = |boot: Micros| boot + (least.saturating_add(length) - self.wall(boot)).max(0);
        let boots = self.boots.iter().filter(|boot| **boot >= begun.sent);
        boots.map(|boot| of_boot(*boot)).fold(begun.sent.saturating_add(length), Micros::min)
    }

    /// The latest moment at which a wait of `length` that was begun within `begun` must be over, if the server has
    /// not been started again since `at`.
    pub(super) fn latest(&self, begun: Span, length: Micros, at: Micros) -> Micros {
        let (_, most) = self.walls(begun);
        let in_force = self.boots.iter().rev().find(|boot| **boot <= at);
        match in_force.filter(|boot| **boot >= begun.sent) {
            None => begun.ended.saturating_add(length),
            // A clock that was set back must not make a wait longer than it was meant.
            Some(boot) => boot + (most.saturating_add(length) - self.wall(*boot)).clamp(0, length.max(0)),
        }
    }

    /// Whether what was said within `span`, and not waited for, may have been lost before `until`.
    pub(super) fn may_be_lost(&self, span: Span, until: Micros) -> bool {
        self.first_loss(span).is_some_and(|at| at <= until)
    }

    /// The first death that may have taken what was said within `span`, and not waited for.
    pub(super) fn first_loss(&self, span: Span) -> Option<Micros> {
        let died = self.deaths.iter().filter(|(at, _)| span.sent <= *at);
        died.filter(|(_, kept)| *kept < span.ended).map(|(at, _)| *at).next()
    }

    /// When the server that was up at `at` had started.
    pub(super) fn boot_of(&self, at: Micros) -> Micros {
        self.boots.iter().rev().find(|boot| **boot <= at).copied().unwrap_or(NEVER)
    }
}
