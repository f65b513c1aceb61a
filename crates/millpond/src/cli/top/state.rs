//! What `millpond top` knows, and what an event makes of it.
//!
//! Owns every decision: what a key does, what is selected, what is asked before it is done. Must never do I/O or read
//! a clock: events carry the time, and actions say what is to be done.

use super::wire::{Snapshot, Troubles};
use crate::cli::render::{counted, line};
use millpond_api::types::Queue;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Looks that are remembered of each queue.
const HISTORY: usize = 240;
/// Where a queue's capacity is not known, dead letters go back at this rate.
const REPLAY_PER_SECOND: u64 = 10;
/// A word on what was done disappears after this.
const NOTICE_FOR: Duration = Duration::from_secs(8);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// Something has happened.
#[derive(Debug)]
pub(super) enum Event {
    Key(Key),
    /// Time has passed.
    Tick {
        at: Duration,
    },
    /// The server was looked at.
    Polled {
        at: Duration,
        result: Result<Snapshot, String>,
    },
    /// One queue was looked at more closely.
    Detailed {
        queue: String,
        result: Result<Troubles, String>,
    },
    /// So many dead letters would be replayed.
    Counted {
        queue: String,
        result: Result<u64, String>,
    },
    /// Something was done, or not.
    Done(Result<String, String>),
}

/// Something is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Look now, and not at the next interval.
    Poll,
    Detail(String),
    Pause(String),
    Resume(String),
    CountDead(String),
    Replay {
        queue: String,
        per_second: u64,
    },
}

/// By what queues are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Ready,
    Oldest,
    Arrivals,
    Dead,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Ready,
            Self::Ready => Self::Oldest,
            Self::Oldest => Self::Arrivals,
            Self::Arrivals => Self::Dead,
            Self::Dead => Self::Name,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Ready => "ready",
            Self::Oldest => "oldest",
            Self::Arrivals => "arrivals",
            Self::Dead => "dead",
        }
    }
}

/// What the keys mean at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    List,
    Filter,
    Help,
    /// A queue is looked at more closely.
    Detail(String),
    /// A yes is waited for.
    Confirm(Action),
}

/// A queue's latest looks.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) depth: VecDeque<u64>,
    /// In milliseconds.
    pub(super) age: VecDeque<u64>,
}

/// Since when the server has not answered, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) since: Duration,
    pub(super) error: String,
}

/// Everything that is known.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) server: String,
    pub(super) interval: Duration,
    pub(super) colour: bool,
    pub(super) now: Duration,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) lost: Option<Lost>,
    pub(super) history: BTreeMap<String, History>,
    pub(super) selected: Option<String>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) troubles: Option<(String, Troubles)>,
    /// What was said last, whether it is bad, and until when it is shown.
    pub(super) notice: Option<(String, bool, Duration)>,
    /// One picture, which nobody can press a key for.
    pub(super) is_still: bool,
}

impl State {
    pub(super) fn new(server: &str, interval: Duration, colour: bool) -> Self {
        Self {
            server: server.to_owned(),
            interval,
            colour,
            now: Duration::ZERO,
            snapshot: None,
            lost: None,
            history: BTreeMap::new(),
            selected: None,
            sort: Sort::Name,
            filter: String::new(),
            mode: Mode::List,
            troubles: None,
            notice: None,
            is_still: false,
        }
    }

    /// There will be one picture only.
    pub(super) fn make_still(&mut self) {
        (self.is_still, self.colour, self.selected) = (true, false, None);
    }

    /// The queues that are shown, in their order.
    pub(super) fn shown(&self) -> Vec<&Queue> {
        let needle = self.filter.to_lowercase();
        let all = self.snapshot.iter().flat_map(|snapshot| &snapshot.queues);
        let mut shown: Vec<&Queue> =
            all.filter(|queue| queue.name.to_lowercase().contains(&needle)).collect();
        let by = |value: fn(&Queue) -> f64| {
            move |one: &&Queue, other: &&Queue| {
                value(other).total_cmp(&value(one)).then_with(|| one.name.cmp(&other.name))
            }
        };
        match self.sort {
            Sort::Name => shown.sort_by(|one, other| one.name.cmp(&other.name)),
            Sort::Ready => shown.sort_by(by(|queue| queue.stats.ready as f64)),
            Sort::Oldest => shown.sort_by(by(|queue| queue.stats.oldest_age_seconds)),
            Sort::Arrivals => shown.sort_by(by(|queue| queue.stats.arrivals_per_second)),
            Sort::Dead => shown.sort_by(by(|queue| queue.stats.dead as f64)),
        }
        shown
    }

    /// The place of the selected queue among those that are shown.
    pub(super) fn selected_place(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.shown().iter().position(|queue| queue.name == *selected)
    }

    /// The selected queue.
    pub(super) fn selected_queue(&self) -> Option<&Queue> {
        let place = self.selected_place()?;
        self.shown().get(place).copied()
    }

    /// A queue by its name.
    pub(super) fn queue(&self, name: &str) -> Option<&Queue> {
        self.snapshot.iter().flat_map(|snapshot| &snapshot.queues).find(|queue| queue.name == name)
    }

    fn select(&mut self, place: usize) {
        let shown = self.shown();
        let last = shown.len().saturating_sub(1);
        let name = shown.get(place.min(last)).map(|queue| queue.name.clone());
        self.selected = name;
    }

    /// Something is always selected while anything is shown.
    fn reselect(&mut self) {
        if self.selected_place().is_none() {
            self.select(0);
        }
    }

    fn say(&mut self, text: impl Into<String>, is_bad: bool) {
        self.notice = Some((text.into(), is_bad, self.now + NOTICE_FOR));
    }

    fn remember(&mut self) {
        let Some(snapshot) = &self.snapshot else { return };
        let names: Vec<&str> = snapshot.queues.iter().map(|queue| queue.name.as_str()).collect();
        self.history.retain(|name, _| names.contains(&name.as_str()));
        for queue in &snapshot.queues {
            let history = self.history.entry(queue.name.clone()).or_default();
            let millis = Duration::try_from_secs_f64(queue.stats.oldest_age_seconds).unwrap_or_default();
            push(&mut history.depth, queue.stats.ready);
            push(&mut history.age, u64::try_from(millis.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

fn push(values: &mut VecDeque<u64>, value: u64) {
    if values.len() == HISTORY {
        values.pop_front();
    }
    values.push_back(value);
}

/// Makes of the state what follows from an event; returns what is to be done.
pub(super) fn update(state: &mut State, event: Event) -> Vec<Action> {
    match event {
        Event::Key(Key::Interrupt) => return vec![Action::Quit],
        Event::Key(key) => return pressed(state, key),
        Event::Tick { at } => tick(state, at),
        Event::Polled { at, result } => {
            tick(state, at);
            match result {
                Ok(snapshot) => {
                    (state.snapshot, state.lost) = (Some(snapshot), None);
                    state.remember();
                    state.reselect();
                }
                Err(error) => {
                    let since = state.lost.take().map_or(at, |lost| lost.since);
                    state.lost = Some(Lost { since, error });
                }
            }
            if let Mode::Detail(queue) = &state.mode {
                return vec![Action::Detail(queue.clone())];
            }
        }
        Event::Detailed { queue, result: Ok(troubles) } => state.troubles = Some((queue, troubles)),
        Event::Detailed { result: Err(error), .. } | Event::Counted { result: Err(error), .. } => {
            state.say(error, true);
        }
        Event::Counted { queue, result: Ok(0) } => {
            state.say(format!("{} has no dead letters to replay", line(&queue)), false);
        }
        Event::Counted { queue, result: Ok(count) } => ask_to_replay(state, queue, count),
        Event::Done(Ok(text)) => {
            state.say(text, false);
            return vec![Action::Poll];
        }
        Event::Done(Err(error)) => state.say(error, true),
    }
    Vec::new()
}

fn tick(state: &mut State, at: Duration) {
    state.now = at;
    if state.notice.as_ref().is_some_and(|(_, _, until)| *until <= at) {
        state.notice = None;
    }
}

/// A tenth of what the queue can do, so that the replayed do not crowd out the new.
fn replay_pace(queue: Option<&Queue>) -> u64 {
    let capacity = queue.map_or(0.0, |queue| queue.stats.capacity_per_second);
    if capacity <= 0.0 {
        return REPLAY_PER_SECOND;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, saturates")]
    let tenth = (capacity / 10.0).round() as u64;
    tenth.max(1)
}

fn ask_to_replay(state: &mut State, queue: String, count: u64) {
    let per_second = replay_pace(state.queue(&queue));
    let question = format!(
        "put {} of {} back to work, {per_second} a second?",
        counted(count, "dead letter"),
        line(&queue)
    );
    ask(state, Action::Replay { queue, per_second }, question);
}

/// Asks before something is done.
fn ask(state: &mut State, action: Action, question: String) {
    state.mode = Mode::Confirm(action);
    state.notice = Some((question, false, Duration::MAX));
}

fn pressed(state: &mut State, key: Key) -> Vec<Action> {
    match state.mode.clone() {
        Mode::Confirm(action) => {
            (state.mode, state.notice) = (Mode::List, None);
            if key == Key::Char('y') {
                return vec![action];
            }
            state.say("nothing was changed", false);
            Vec::new()
        }
        Mode::Filter => {
            filtering(state, key);
            Vec::new()
        }
        Mode::Help => {
            state.mode = Mode::List;
            Vec::new()
        }
        Mode::Detail(_) if matches!(key, Key::Escape | Key::Enter | Key::Backspace | Key::Char('q')) => {
            (state.mode, state.troubles) = (Mode::List, None);
            Vec::new()
        }
        Mode::Detail(_) | Mode::List => command(state, key),
    }
}

fn filtering(state: &mut State, key: Key) {
    match key {
        Key::Enter => state.mode = Mode::List,
        Key::Escape => {
            state.mode = Mode::List;
            state.filter.clear();
        }
        Key::Backspace => {
            state.filter.pop();
        }
        Key::Char(character) => state.filter.push(character),
        _ => {}
    }
    state.reselect();
}

fn command(state: &mut State, key: Key) -> Vec<Action> {
    let place = state.selected_place().unwrap_or(0);
    let name = state.selected.clone();
    match (key, name) {
        (Key::Char('q') | Key::Escape, _) if state.filter.is_empty() => return vec![Action::Quit],
        (Key::Char('q'), _) => return vec![Action::Quit],
        (Key::Escape, _) => state.filter.clear(),
        (Key::Char('?' | 'h'), _) => state.mode = Mode::Help,
        (Key::Char('/'), _) => state.mode = Mode::Filter,
        (Key::Char('s'), _) => {
            state.sort = state.sort.next();
            state.say(format!("sorted by {}", state.sort.word()), false);
        }
        (Key::Up | Key::Char('k'), _) => state.select(place.saturating_sub(1)),
        (Key::Down | Key::Char('j'), _) => state.select(place + 1),
        (Key::PageUp, _) => state.select(place.saturating_sub(10)),
        (Key::PageDown, _) => state.select(place + 10),
        (Key::Home | Key::Char('g'), _) => state.select(0),
        (Key::End | Key::Char('G'), _) => state.select(usize::MAX),
        (Key::Enter, Some(queue)) => {
            (state.mode, state.troubles) = (Mode::Detail(queue.clone()), None);
            return vec![Action::Detail(queue)];
        }
        (Key::Char('p'), Some(queue)) => {
            let question = format!("pause {}? It goes on accepting, and hands out nothing.", line(&queue));
            ask(state, Action::Pause(queue), question);
        }
        (Key::Char('r'), Some(queue)) => {
            let question = format!("resume {}?", line(&queue));
            ask(state, Action::Resume(queue), question);
        }
        (Key::Char('R'), Some(queue)) => return vec![Action::CountDead(queue)],
        _ => {}
    }
    if let (Mode::Detail(shown), Some(selected)) = (&state.mode, state.selected.clone())
        && *shown != selected
    {
        (state.mode, state.troubles) = (Mode::Detail(selected.clone()), None);
        return vec![Action::Detail(selected)];
    }
    Vec::new()
}
