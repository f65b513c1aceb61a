//! What keys do, and what the pictures look like.

use super::draw::draw;
use super::state::{Action, Event, Key, Mode, State, update};
use super::wire::{Snapshot, Target, Troubles};
use super::{picture, text};
use millpond_api::types::{MessageStatus, Queue, QueueStats};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn queue(name: &str, stats: QueueStats) -> Queue {
    Queue {
        name: name.to_owned(),
        declared: true,
        paused: stats.paused == 1,
        held: (stats.paused == 1).then(|| "paused".to_owned()),
        settings: serde_json::json!({}),
        stats,
    }
}

/// A queue in a flood, one that is paused, one that is idle, and their targets.
fn snapshot() -> Snapshot {
    let flood = QueueStats {
        ready: 900_000,
        leased: 40,
        bytes: 921_600_000,
        oldest_age_seconds: 450.0,
        oldest_leased_age_seconds: 450.1,
        arrivals_per_second: 2_000.0,
        completions_per_second: 499.7,
        capacity_per_second: 500.0,
        utilization: 4.0,
        predicted_wait_seconds: Some(1_800.0),
        insurmountable: 1,
        workers: 40,
        workers_wanted: 40,
        workers_ceiling: 40,
        service_time_seconds: 0.08,
        promise_kept_ratio: Some(0.96),
        accepted_total: 1_260_000,
        completed_total: 359_960,
        ..QueueStats::default()
    };
    let paused = QueueStats {
        ready: 12,
        backoff: 3,
        delayed: 2,
        dead: 7,
        bytes: 20_480,
        oldest_age_seconds: 7_380.0,
        paused: 1,
        workers_wanted: 1,
        ..QueueStats::default()
    };
    let idle =
        QueueStats { drain_seconds: Some(0.0), predicted_wait_seconds: Some(0.0), ..QueueStats::default() };
    let target = |name: &str, state: &str| Target {
        name: name.to_owned(),
        concurrency: 40,
        limit: 40,
        inflight: 40,
        state: state.to_owned(),
        queues: vec!["enrollments".to_owned()],
        ..Target::default()
    };
    Snapshot {
        queues: vec![queue("reports", idle), queue("enrollments", flood), queue("mail", paused)],
        targets: vec![
            target("registrar", "closed"),
            Target {
                next_probe_seconds: Some(4.0),
                inflight: 0,
                rate_per_second: Some(5.0),
                ..target("smtp", "open")
            },
        ],
    }
}

/// After a minute in which the flood has risen.
fn flooded() -> State {
    let mut state = State::new("http://127.0.0.1:8080", s(1), true);
    for second in 0..=60 {
        let mut seen = snapshot();
        seen.queues[1].stats.ready = 15_000 * second;
        seen.queues[1].stats.oldest_age_seconds = 7.5 * second as f64;
        assert_eq!(update(&mut state, Event::Polled { at: s(second), result: Ok(seen) }), []);
    }
    state
}

fn press(state: &mut State, keys: &str) -> Vec<Action> {
    keys.chars().flat_map(|key| update(state, Event::Key(Key::Char(key)))).collect()
}

fn drawn(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    text(terminal.backend().buffer())
}

fn troubles() -> Troubles {
    let message = |id: &str, attempts: u32, error: &str| -> MessageStatus {
        serde_json::from_value(serde_json::json!({
            "id": format!("{id}-5c11-7d2e-9a40-3b1c8e0f7a55"), "queue": "mail", "status": "dead", "status_url": "",
            "position": null, "expected_start_seconds": null, "accepted_at": "2026-11-30T09:00:00.000Z",
            "attempts": attempts, "deliveries": attempts, "expires_at": "2026-12-04T09:00:00.000Z",
            "criticality": "critical", "history": [],
            "last_error": {
                "kind": "status", "message": error, "at": "2026-11-30T10:00:00.000Z", "http_status": 500,
            },
        }))
        .unwrap()
    };
    Troubles {
        failing: vec![message("0197f3a2", 1, "answered 503\nwith \x1b[31mmuch\x1b[0m text")],
        dead: vec![message("0197f3a3", 5, "connection refused")],
    }
}

#[test]
fn the_usual_terminal_shows_what_matters_most() {
    insta::assert_snapshot!(drawn(&flooded(), 80, 24));
}

#[test]
fn a_wide_terminal_shows_everything() {
    insta::assert_snapshot!(drawn(&flooded(), 180, 30));
}

#[test]
fn a_lost_server_is_told_and_the_last_picture_stays() {
    let mut state = flooded();
    for at in [61, 75] {
        update(&mut state, Event::Polled { at: s(at), result: Err("connection refused".to_owned()) });
    }
    update(&mut state, Event::Tick { at: s(80) });
    insta::assert_snapshot!(drawn(&state, 80, 24));
    update(&mut state, Event::Polled { at: s(90), result: Ok(snapshot()) });
    assert_eq!(state.lost, None);
}

#[test]
fn a_queue_from_near_shows_its_numbers_and_what_goes_wrong() {
    let mut state = flooded();
    press(&mut state, "j");
    let asked = update(&mut state, Event::Key(Key::Enter));
    assert_eq!(asked, [Action::Detail("mail".to_owned())]);
    update(&mut state, Event::Detailed { queue: "mail".to_owned(), result: Ok(troubles()) });
    let picture = drawn(&state, 80, 24);
    assert!(!picture.contains('\x1b'), "what comes from outside cannot control the terminal");
    insta::assert_snapshot!(picture);
    assert_eq!(
        update(&mut state, Event::Polled { at: s(61), result: Ok(snapshot()) }),
        [Action::Detail("mail".to_owned())],
        "it is kept fresh"
    );
    assert_eq!(press(&mut state, "j"), [Action::Detail("reports".to_owned())]);
    update(&mut state, Event::Key(Key::Escape));
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn help_and_small_terminals() {
    let mut state = flooded();
    press(&mut state, "?");
    insta::assert_snapshot!(drawn(&state, 80, 24));
    press(&mut state, "x");
    assert_eq!(state.mode, Mode::List);
    assert!(drawn(&state, 30, 5).contains("at least 40 columns"));
    for width in (1..140).step_by(6) {
        for height in [1, 3, 8, 12, 17, 18, 25] {
            drawn(&state, width, height);
        }
    }
}

#[test]
fn one_picture_has_every_queue_and_target_and_no_keys() {
    let mut many = snapshot();
    many.queues.extend((0..60).map(|number| queue(&format!("q{number}"), QueueStats::default())));
    let picture = picture(State::new("http://127.0.0.1:8080", s(1), true), many).unwrap();
    for name in ["enrollments", "mail", "reports", "q0", "q59", "registrar", "smtp"] {
        assert!(picture.lines().any(|line| line.starts_with(name)), "{name}\n{picture}");
    }
    assert!(picture.contains("too much") && !picture.contains("quit"), "{picture}");
    assert!(picture.lines().all(|line| line == line.trim_end()) && picture.ends_with('\n'));
}

#[test]
fn without_colour_nothing_is_lost_and_no_cell_has_one() {
    let colourless = State { colour: false, ..flooded() };
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
    terminal.draw(|frame| draw(&colourless, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
    assert_eq!(text(buffer), drawn(&flooded(), 100, 24));
}

#[test]
fn keys_select_sort_and_filter() {
    let mut state = flooded();
    let names = |state: &State| state.shown().iter().map(|queue| queue.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&state), ["enrollments", "mail", "reports"]);
    assert_eq!(state.selected.as_deref(), Some("enrollments"), "something is selected from the start");
    press(&mut state, "jjj");
    assert_eq!(state.selected.as_deref(), Some("reports"), "the last one stays");
    update(&mut state, Event::Key(Key::Home));
    assert_eq!(state.selected.as_deref(), Some("enrollments"));
    for (sort, first) in
        [("ready", "enrollments"), ("oldest", "mail"), ("arrivals", "enrollments"), ("dead", "mail")]
    {
        press(&mut state, "s");
        assert_eq!((state.sort.word(), names(&state)[0].as_str()), (sort, first));
        assert_eq!(state.selected.as_deref(), Some("enrollments"), "what is selected stays so");
    }
    press(&mut state, "/MAI");
    assert_eq!((names(&state), state.selected.as_deref()), (vec!["mail".to_owned()], Some("mail")));
    update(&mut state, Event::Key(Key::Enter));
    assert_eq!(press(&mut state, "s"), [], "keys mean commands again");
    update(&mut state, Event::Key(Key::Escape));
    assert_eq!(names(&state).len(), 3, "Esc shows all");
    press(&mut state, "/zzz");
    assert_eq!(state.selected, None);
    assert!(drawn(&state, 80, 24).contains("Esc shows all"));
    update(&mut state, Event::Key(Key::Escape));
    let mut fewer = snapshot();
    fewer.queues.retain(|queue| queue.name != "enrollments");
    update(&mut state, Event::Polled { at: s(70), result: Ok(fewer) });
    assert!(state.selected.is_some() && !state.history.contains_key("enrollments"), "gone and forgotten");
}

#[test]
fn nothing_is_changed_without_a_yes() {
    for (key, action) in
        [('p', Action::Pause("enrollments".to_owned())), ('r', Action::Resume("enrollments".to_owned()))]
    {
        for other in [Key::Char('n'), Key::Char('Y'), Key::Escape, Key::Enter, Key::Char('q')] {
            let mut state = flooded();
            assert_eq!(press(&mut state, &key.to_string()), []);
            assert!(drawn(&state, 80, 24).contains("[y/N]"));
            assert_eq!(update(&mut state, Event::Key(other)), [], "{other:?} is no yes");
            assert_eq!(state.mode, Mode::List);
        }
        let mut state = flooded();
        press(&mut state, &key.to_string());
        let mut moved = snapshot();
        moved.queues.remove(1);
        update(&mut state, Event::Polled { at: s(61), result: Ok(moved) });
        assert_eq!(
            press(&mut state, "y"),
            [action],
            "the one that was asked about, whatever is selected now"
        );
    }
}

#[test]
fn a_replay_asks_with_the_number_and_goes_at_a_tenth_of_the_capacity() {
    let mut state = flooded();
    let asked = press(&mut state, "R");
    assert_eq!(asked, [Action::CountDead("enrollments".to_owned())]);
    update(&mut state, Event::Counted { queue: "enrollments".to_owned(), result: Ok(1_234) });
    assert!(
        drawn(&state, 100, 24)
            .contains("put 1,234 dead letters of enrollments back to work, 50 a second? [y/N]")
    );
    assert_eq!(press(&mut state, "y"), [Action::Replay { queue: "enrollments".to_owned(), per_second: 50 }]);
    update(&mut state, Event::Counted { queue: "mail".to_owned(), result: Ok(7) });
    assert_eq!(press(&mut state, "y"), [Action::Replay { queue: "mail".to_owned(), per_second: 10 }]);
    update(&mut state, Event::Counted { queue: "reports".to_owned(), result: Ok(0) });
    assert_eq!(state.mode, Mode::List, "there is nothing to ask");
    assert_eq!(update(&mut state, Event::Done(Ok("done".to_owned()))), [Action::Poll]);
    update(&mut state, Event::Done(Err("there is no queue mail".to_owned())));
    assert!(drawn(&state, 80, 24).contains("there is no queue mail"));
    update(&mut state, Event::Tick { at: s(100) });
    assert!(!drawn(&state, 80, 24).contains("there is no queue mail"), "it was shown long enough");
}

#[test]
fn q_and_ctrl_c_leave() {
    for mut state in [flooded(), State::new("http://127.0.0.1:8080", s(1), false)] {
        assert_eq!(press(&mut state, "q"), [Action::Quit]);
        state.mode = Mode::Filter;
        assert_eq!(press(&mut state, "q"), [], "a letter of a name");
        assert_eq!(update(&mut state, Event::Key(Key::Interrupt)), [Action::Quit]);
    }
}
