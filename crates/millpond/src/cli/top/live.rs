//! The terminal, the keys, the server and the signals.
//!
//! Owns all I/O of `millpond top`, and that the terminal is as it was afterwards, whatever happened. Must never decide
//! anything.

use super::draw::draw;
use super::state::{Action, Event, Key, State, update};
use super::wire::{self, Snapshot};
use crate::cli::failure::Failure;
use crate::cli::render::{counted, line};
use millpond_api::client::{Client, ClientError};
use millpond_api::replay::ReplayRequest;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The clock of the picture, where the server is looked at less often.
const TICK: Duration = Duration::from_secs(1);
/// How often the thread that reads keys looks whether it is over.
const KEYS_OVER: Duration = Duration::from_millis(100);
/// Events that may wait to be drawn.
const EVENTS: usize = 256;

/// Gives the terminal back, however this ends; a panic does it by the hook that ratatui has set.
struct Screen {
    terminal: DefaultTerminal,
    over: Arc<AtomicBool>,
}

impl Screen {
    fn open() -> Result<Self, Failure> {
        Ok(Self { terminal: ratatui::try_init()?, over: Arc::default() })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

/// Draws until somebody has had enough.
pub(super) async fn run(client: Client, mut state: State) -> Result<(), Failure> {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut stops =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let mut screen = Screen::open()?;
    let asker = Asker { client, began: Instant::now(), sender, is_looking: Arc::default() };
    asker.read_keys(Arc::clone(&screen.over));
    let mut looks = interval(state.interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        screen.terminal.draw(|frame| draw(&state, frame))?;
        let event = tokio::select! {
            () = any(&mut stops) => return Ok(()),
            _ = looks.tick() => {
                asker.look();
                continue;
            }
            _ = ticks.tick() => Some(Event::Tick { at: asker.began.elapsed() }),
            came = events.recv() => match came {
                Some(Came::Event(event)) => Some(event),
                // Drawn anew in its new size, with the next turn of the loop.
                Some(Came::Resized) => None,
                // The terminal is gone.
                Some(Came::Closed) | None => return Ok(()),
            },
        };
        for action in event.map(|event| update(&mut state, event)).unwrap_or_default() {
            if action == Action::Quit {
                return Ok(());
            }
            asker.act(action);
        }
    }
}

async fn any(signals: &mut [Signal; 3]) {
    let [one, two, three] = signals;
    tokio::select! {
        _ = one.recv() => {}
        _ = two.recv() => {}
        _ = three.recv() => {}
    }
}

/// What comes in.
enum Came {
    Event(Event),
    Resized,
    Closed,
}

fn key(event: &event::KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(_) if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            return None;
        }
        KeyCode::Char(character) => Key::Char(character),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

/// Asks the server, one task per question, so that keys are heard meanwhile.
#[derive(Clone)]
struct Asker {
    client: Client,
    began: Instant,
    sender: mpsc::Sender<Came>,
    /// A look is under way: a slow server is not asked again meanwhile.
    is_looking: Arc<AtomicBool>,
}

impl Asker {
    /// Reads keys in a thread: a terminal cannot be waited for otherwise without more dependencies.
    fn read_keys(&self, over: Arc<AtomicBool>) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let came = match event::poll(KEYS_OVER)
                    .and_then(|is_there| is_there.then(event::read).transpose())
                {
                    Ok(None) => continue,
                    Ok(Some(event::Event::Key(pressed))) => {
                        key(&pressed).map(|key| Came::Event(Event::Key(key)))
                    }
                    Ok(Some(event::Event::Resize(..))) => Some(Came::Resized),
                    Ok(Some(_)) => None,
                    Err(_) => Some(Came::Closed),
                };
                let is_closed = matches!(came, Some(Came::Closed));
                let is_heard = came.is_none_or(|came| sender.blocking_send(came).is_ok());
                if is_closed || !is_heard {
                    return;
                }
            }
        });
    }

    fn look(&self) {
        if self.is_looking.swap(true, Ordering::Relaxed) {
            return;
        }
        let asker = self.clone();
        tokio::spawn(async move {
            let result: Result<Snapshot, String> =
                wire::snapshot(&asker.client).await.map_err(|error| told(&error));
            asker.is_looking.store(false, Ordering::Relaxed);
            let at = asker.began.elapsed();
            asker.tell(Event::Polled { at, result }).await;
        });
    }

    async fn tell(&self, event: Event) {
        // Nobody hears it any more once the picture is closed.
        let _ = self.sender.send(Came::Event(event)).await;
    }

    fn act(&self, action: Action) {
        if action == Action::Poll {
            return self.look();
        }
        let asker = self.clone();
        tokio::spawn(async move {
            let event = asker.answer(action).await;
            if let Some(event) = event {
                asker.tell(event).await;
            }
        });
    }

    async fn answer(&self, action: Action) -> Option<Event> {
        let done = |result: Result<(), ClientError>, text: String| {
            Some(Event::Done(result.map(|()| text).map_err(|error| told(&error))))
        };
        match action {
            Action::Quit | Action::Poll => None,
            Action::Detail(queue) => {
                let result = wire::troubles(&self.client, &queue).await.map_err(|error| told(&error));
                Some(Event::Detailed { queue, result })
            }
            Action::Pause(queue) => {
                done(self.client.pause(&queue).await, format!("{} hands out nothing now", line(&queue)))
            }
            Action::Resume(queue) => {
                done(self.client.resume(&queue).await, format!("{} hands out again", line(&queue)))
            }
            Action::CountDead(queue) => {
                let count =
                    ReplayRequest { all: Some(true), dry_run: Some(true), ..ReplayRequest::default() };
                let result = self.client.replay(&queue, &count).await;
                let result = result.map(|replay| replay.selected).map_err(|error| told(&error));
                Some(Event::Counted { queue, result })
            }
            Action::Replay { queue, per_second } => {
                let rate = Some(format!("{per_second}/s"));
                let request = ReplayRequest { all: Some(true), rate, ..ReplayRequest::default() };
                let result = self.client.replay(&queue, &request).await;
                let text = |selected: u64| {
                    format!(
                        "{} of {} go back to work, {per_second} a second",
                        counted(selected, "dead letter"),
                        line(&queue)
                    )
                };
                let result = result.map(|replay| text(replay.selected)).map_err(|error| told(&error));
                Some(Event::Done(result))
            }
        }
    }
}

/// An error in one line.
fn told(error: &ClientError) -> String {
    match error {
        ClientError::Refused(problem) => problem.detail.clone(),
        ClientError::Unreachable { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}
