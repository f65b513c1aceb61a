//! When alerts fire and clear, and what is said of them.
//!
//! Owns the tests of the rules over virtual time. Must never depend on how the server looks.

use crate::rig::{Rig, s, target};
use millpond_core::alert::{
    Alert, AlertSettings, CLEARED_FOR, CLEARED_MAX, CLEARS_BELOW, Change, HOLD_MAX, LogSeen, Rule, Seen,
    ServerAlertSettings, Subject, WINDOW, Watch,
};
use millpond_core::breaker::BreakerState;
use millpond_core::command::QueueView;
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_core::stats::{Held, QueueStats, TargetStats};
use millpond_core::time::{Mono, Now, Wall};
use proptest::prelude::*;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

/// A queue, targets, a log and a watch on them.
struct Scene {
    watch: Watch,
    queues: Vec<QueueView>,
    targets: Vec<TargetStats>,
    log: LogSeen,
    now: Now,
}

impl Scene {
    fn new(alerts: AlertSettings) -> Self {
        let mut settings = QueueSettings { alerts, ..QueueSettings::default() };
        settings.dead_letter.owner = Some("team-a".to_owned());
        let queue = QueueView {
            name: Name::new("q").unwrap(),
            settings,
            declared: true,
            stats: QueueStats::default(),
        };
        let now = Now { wall: Wall(1_000_000_000_000_000), mono: Mono(0) };
        Self {
            watch: Watch::new(ServerAlertSettings::default()),
            queues: vec![queue],
            targets: Vec::new(),
            log: LogSeen::default(),
            now,
        }
    }

    fn stats(&mut self) -> &mut QueueStats {
        &mut self.queues[0].stats
    }

    fn alerts(&mut self) -> &mut AlertSettings {
        &mut self.queues[0].settings.alerts
    }

    fn look(&mut self) -> Vec<Change> {
        let seen = Seen { queues: &self.queues, targets: &self.targets, log: self.log };
        self.watch.look(&seen, self.now)
    }

    /// Looks once a second for so long, and returns what changed and after how many seconds.
    fn run(&mut self, duration: Duration) -> Vec<(u64, Alert)> {
        let mut changes = Vec::new();
        for second in 1..=duration.as_secs() {
            self.pass(s(1));
            changes.extend(self.look().into_iter().map(|Change(alert)| (second, alert)));
        }
        changes
    }

    fn pass(&mut self, duration: Duration) {
        self.now = Now { wall: self.now.wall.plus(duration), mono: self.now.mono.plus(duration) };
    }
}

fn only(changes: &[(u64, Alert)]) -> &(u64, Alert) {
    let [change] = changes else { panic!("one change: {changes:?}") };
    change
}

#[test]
fn an_age_fires_once_it_has_been_over_for_long_enough_and_clears_well_below() {
    let mut scene = Scene::new(AlertSettings { oldest_age: Some(s(600)), ..AlertSettings::default() });
    scene.stats().oldest_age = s(599);
    assert_eq!(scene.run(10 * MINUTE), []);
    scene.stats().oldest_age = s(600);
    let began = scene.now.wall.plus(s(1));
    let fired = scene.run(10 * MINUTE);
    let (second, alert) = only(&fired);
    assert_eq!(*second, 61, "a minute after it was seen first");
    assert_eq!((alert.rule, alert.since, alert.fired), (Rule::OldestAge, began, began.plus(MINUTE)));
    assert_eq!((alert.value, alert.threshold, alert.cleared), (600.0, 600.0, None));
    assert_eq!(alert.owner.as_deref(), Some("team-a"));
    assert_eq!(alert.summary(), "the oldest unfinished message of queue q is 10m old; 10m is too old");
    scene.stats().oldest_age = s(480);
    assert_eq!(scene.run(10 * MINUTE), [], "between the two it stays as it is");
    assert_eq!(Some(scene.watch.firing()[0].value), Some(480.0), "and says how it is");
    scene.stats().oldest_age = s(479);
    let cleared = scene.run(10 * MINUTE);
    let (second, alert) = only(&cleared);
    assert_eq!((*second, alert.cleared), (61, Some(scene.now.wall.minus(s(539)))));
    assert!(scene.watch.firing().is_empty());
}

#[test]
fn what_comes_and_goes_within_the_hold_is_nothing() {
    let mut scene = Scene::new(AlertSettings { depth: Some(100), ..AlertSettings::default() });
    for _ in 0..50 {
        (scene.stats().ready, scene.stats().backoff) = (60, 40);
        assert_eq!(scene.run(s(59)), []);
        scene.stats().backoff = 39;
        assert_eq!(scene.run(s(1)), []);
    }
}

#[test]
fn a_dead_letter_is_told_at_once_with_its_owner_and_is_one_episode_however_many_follow() {
    let mut scene = Scene::new(AlertSettings::default());
    scene.stats().dead = 1;
    let fired = scene.run(s(1));
    assert_eq!(only(&fired).1.summary(), "queue q has 1 dead letter; team-a looks after them");
    for dead in [2, 0, 3, 0, 1] {
        scene.stats().dead = dead;
        assert_eq!(scene.run(s(59)), []);
    }
    scene.stats().dead = 0;
    let cleared = scene.run(10 * MINUTE);
    assert_eq!(only(&cleared).0, 61);
    assert_eq!(only(&cleared).1.summary(), "dead of queue q has cleared, after 5m 56s");
}

#[test]
fn refusals_count_by_their_share_and_not_while_they_are_few() {
    let mut scene = Scene::new(AlertSettings::default());
    // Nine refusals of nine, then of thousands.
    scene.stats().totals.refused_full = 9;
    assert_eq!(scene.run(5 * MINUTE), []);
    let mut scene = Scene::new(AlertSettings::default());
    let mut minute = |accepted: u64, refused: u64| {
        let mut changes = Vec::new();
        for _ in 0..60 {
            scene.stats().totals.accepted_by_criticality[1] += accepted;
            scene.stats().totals.refused_wait += refused;
            changes.extend(scene.run(s(1)));
        }
        changes
    };
    for _ in 0..5 {
        assert_eq!(minute(96, 4), [], "below a twentieth");
    }
    assert_eq!(minute(50, 50), [], "it must last");
    let fired = minute(50, 50);
    assert_eq!(only(&fired).1.rule, Rule::Refusals);
    assert!(only(&fired).1.value > 0.2, "{fired:?}");
    assert_eq!(minute(100, 0), []);
    let cleared: Vec<_> = (0..5).flat_map(|_| minute(100, 0)).collect();
    assert!(only(&cleared).1.cleared.is_some());
}

#[test]
fn a_rise_of_refusals_is_seen_after_days_without_one() {
    let mut scene = Scene::new(AlertSettings::default());
    for _ in 0..300 {
        scene.stats().totals.accepted_by_criticality[1] += 100_000;
        scene.pass(WINDOW);
        assert_eq!(scene.look(), []);
    }
    let mut changes = Vec::new();
    for _ in 0..(WINDOW + MINUTE).as_secs() + 5 {
        scene.stats().totals.refused_full += 10;
        changes.extend(scene.run(s(1)));
    }
    assert_eq!(only(&changes).1.rule, Rule::Refusals, "what was accepted long ago does not dilute it");
}

#[test]
fn a_queue_that_is_held_or_cannot_keep_up_is_told_at_once_but_one_that_an_operator_paused_is_not() {
    let mut scene = Scene::new(AlertSettings::default());
    (scene.stats().paused, scene.stats().held) = (true, Some(Held::Paused));
    assert_eq!(scene.run(10 * MINUTE), []);
    for (held, rule) in [
        (Held::DeadBurst, Rule::DeadBurst),
        (Held::DeadLettersFull, Rule::DeadLettersFull),
        (Held::CallbacksFull, Rule::CallbacksFull),
    ] {
        scene.stats().held = Some(held);
        assert_eq!(scene.look().into_iter().map(|Change(alert)| alert.rule).collect::<Vec<_>>(), [rule]);
        scene.stats().held = None;
        assert_eq!(only(&scene.run(10 * MINUTE)).1.rule, rule);
    }
    (scene.stats().insurmountable, scene.stats().utilization) = (true, 3.0);
    let [Change(alert)] = &scene.look()[..] else { panic!("it fires") };
    assert!(alert.summary().contains("(3 times it)"), "{}", alert.summary());
}

#[test]
fn a_target_that_does_not_answer_for_a_minute_is_told_once_and_one_that_is_restarted_is_not() {
    let mut scene = Scene::new(AlertSettings::default());
    scene.targets.push(Rig::pushing(target(1), QueueSettings::default()).target_stats());
    assert_eq!(scene.run(10 * MINUTE), []);
    scene.targets[0].state = BreakerState::Open;
    assert_eq!(scene.run(s(30)), []);
    scene.targets[0].state = BreakerState::Closed;
    assert_eq!(scene.run(10 * MINUTE), []);
    let mut changes = Vec::new();
    for second in 0..300 {
        // Probes in vain are no end of it.
        scene.targets[0].state = if second % 7 == 6 { BreakerState::HalfOpen } else { BreakerState::Open };
        changes.extend(scene.run(s(1)));
    }
    let (_, alert) = only(&changes);
    assert_eq!((alert.rule, alert.fired.since(alert.since)), (Rule::BreakerOpen, MINUTE));
    let summary = format!("target {} does not answer", scene.targets[0].name);
    assert!(alert.summary().starts_with(&summary), "{}", alert.summary());
    scene.targets[0].state = BreakerState::Closed;
    let cleared = only(&scene.run(10 * MINUTE)).clone().1;
    assert_eq!((cleared.rule, cleared.cleared.is_some()), (Rule::BreakerOpen, true));
    scene.watch = Watch::new(ServerAlertSettings { breaker_open: false, ..ServerAlertSettings::default() });
    scene.targets[0].state = BreakerState::Open;
    assert_eq!(scene.run(10 * MINUTE), []);
}

#[test]
fn a_full_disk_and_slow_commits_are_the_server_s() {
    let mut scene = Scene::new(AlertSettings::default());
    scene.log.full = true;
    let [Change(alert)] = &scene.look()[..] else { panic!("it fires") };
    assert_eq!((alert.rule, &alert.subject), (Rule::StorageFull, &Subject::Server));
    scene.log.full = false;
    assert_eq!(scene.run(10 * MINUTE).len(), 1);
    let mut changes = Vec::new();
    for _ in 0..120 {
        (scene.log.commits, scene.log.commit_seconds) =
            (scene.log.commits + 2, scene.log.commit_seconds + 1.2);
        changes.extend(scene.run(s(1)));
    }
    let (second, alert) = only(&changes);
    assert_eq!((alert.rule, *second), (Rule::SlowCommits, 1));
    assert!(alert.summary().contains("takes 600ms on average; 500ms"), "{}", alert.summary());
    // No commits at all are not slow.
    assert_eq!(scene.run(10 * MINUTE).len(), 1);
}

#[test]
fn what_is_switched_off_or_gone_needs_nobody() {
    let mut scene = Scene::new(AlertSettings::default());
    (scene.stats().dead, scene.stats().insurmountable, scene.stats().held) = (5, true, Some(Held::DeadBurst));
    assert_eq!(scene.run(s(1)).len(), 3);
    assert_eq!(scene.watch.followed().filter(|(_, _, firing)| *firing).count(), 3);
    scene.alerts().dead = 0;
    scene.alerts().held = false;
    let cleared = scene.run(s(1));
    assert!(cleared.len() == 2 && cleared.iter().all(|(_, alert)| alert.cleared.is_some()), "{cleared:?}");
    let rules: Vec<Rule> = scene.watch.followed().map(|(_, rule, _)| rule).collect();
    assert_eq!(rules, [Rule::StorageFull, Rule::SlowCommits, Rule::Refusals, Rule::Insurmountable]);
    scene.queues.clear();
    assert_eq!(only(&scene.run(s(1))).1.rule, Rule::Insurmountable);
    assert!(scene.watch.followed().all(|(subject, ..)| *subject == Subject::Server));
    let all: u64 = scene.watch.changes().map(|(_, [fired, cleared])| fired + cleared).sum();
    assert_eq!(all, 6);
}

#[test]
fn alerts_that_have_cleared_are_shown_for_an_hour_and_never_too_many() {
    let mut scene = Scene::new(AlertSettings { hold: Duration::ZERO, ..AlertSettings::default() });
    for _ in 0..2 * CLEARED_MAX {
        scene.stats().dead = 1;
        scene.run(s(1));
        scene.stats().dead = 0;
        scene.run(s(1));
    }
    assert_eq!(scene.watch.cleared().count(), CLEARED_MAX);
    let times: Vec<_> = scene.watch.cleared().map(|alert| alert.cleared).collect();
    assert!(times.is_sorted_by(|one, other| one > other), "the latest first");
    scene.pass(CLEARED_FOR.saturating_sub(s(60)));
    scene.look();
    assert!(scene.watch.cleared().count() > 10);
    scene.pass(s(240));
    scene.look();
    assert_eq!(scene.watch.cleared().count(), 0);
}

#[test]
fn the_gravest_come_first_and_a_restart_fires_again() {
    let mut scene = Scene::new(AlertSettings::default());
    scene.stats().dead = 1;
    scene.run(s(1));
    scene.stats().held = Some(Held::DeadLettersFull);
    scene.run(s(1));
    let rules = |watch: &Watch| watch.firing().iter().map(|alert| alert.rule).collect::<Vec<_>>();
    assert_eq!(rules(&scene.watch), [Rule::DeadLettersFull, Rule::Dead]);
    scene.watch = Watch::new(ServerAlertSettings::default());
    assert_eq!(scene.look().len(), 2);
}

#[test]
fn every_rule_has_its_own_place_and_name_and_says_what_to_do() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    for (place, rule) in Rule::ALL.into_iter().enumerate() {
        assert_eq!(rule as usize, place);
        assert!(rule.advice().ends_with('.'), "{rule:?}");
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let fresh = AlertSettings::default;
    for (settings, field) in [
        (AlertSettings { oldest_age: Some(Duration::ZERO), ..fresh() }, "alerts.oldest_age"),
        (AlertSettings { depth: Some(0), ..fresh() }, "alerts.depth"),
        (AlertSettings { refusals: 1.01, ..fresh() }, "alerts.refusals"),
        (AlertSettings { refusals: f64::NAN, ..fresh() }, "alerts.refusals"),
        (AlertSettings { hold: HOLD_MAX + s(1), ..fresh() }, "alerts.for"),
    ] {
        let queue = QueueSettings { alerts: settings, ..QueueSettings::default() };
        assert_eq!(queue.validate().unwrap_err().field, field);
    }
    let server = ServerAlertSettings { hold: HOLD_MAX + s(1), ..ServerAlertSettings::default() };
    assert_eq!(server.validate().unwrap_err().field, "for");
    let server = ServerAlertSettings { slow_commits: s(61), ..ServerAlertSettings::default() };
    assert_eq!(server.validate().unwrap_err().field, "slow_commits");
    assert_eq!(ServerAlertSettings::default().validate(), Ok(()));
}

proptest! {
    /// Whatever a value does around its threshold: it fires once at most.
    #[test]
    fn a_value_that_oscillates_around_its_threshold_never_flaps(
        hold in 0_u64..100,
        values in prop::collection::vec(0.801_f64..5.0, 1..600),
    ) {
        let alerts = AlertSettings { oldest_age: Some(s(100)), hold: s(hold), ..AlertSettings::default() };
        let mut scene = Scene::new(alerts);
        let mut changes = Vec::new();
        for value in values {
            scene.stats().oldest_age = Duration::from_secs_f64(value * 100.0);
            changes.extend(scene.run(s(1)));
        }
        prop_assert!(changes.len() <= 1, "{changes:?}");
    }

    /// Over any values, alerts fire and clear by turns, never sooner than the hold after each other, and only for what
    /// was so all the time.
    #[test]
    fn alerts_fire_and_clear_by_turns_and_only_for_what_lasts(
        hold in 0_u64..20,
        levels in prop::collection::vec((0_u64..3, 1_u64..40), 1..60),
    ) {
        let alerts = AlertSettings { depth: Some(100), hold: s(hold), ..AlertSettings::default() };
        let mut scene = Scene::new(alerts);
        let mut values = Vec::new();
        let mut changes: Vec<(usize, bool)> = Vec::new();
        for (level, seconds) in levels {
            scene.stats().ready = [50, 90, 120][usize::try_from(level).unwrap()];
            for _ in 0..seconds {
                values.push(scene.stats().ready);
                let changed = scene.run(s(1));
                changes.extend(changed.iter().map(|(_, alert)| (values.len(), alert.cleared.is_some())));
            }
        }
        for (place, (at, cleared)) in changes.iter().enumerate() {
            prop_assert_eq!(*cleared, place % 2 == 1);
            let lasted = &values[at - 1 - usize::try_from(hold).unwrap()..*at];
            let below = 100.0 * CLEARS_BELOW;
            let is_right = |&value: &u64| if *cleared { (value as f64) < below } else { value >= 100 };
            prop_assert!(lasted.iter().all(is_right));
        }
        let fires = changes.len() % 2 == 1;
        prop_assert_eq!(scene.watch.firing().len(), usize::from(fires));
        let tail = values.iter().rev().take_while(|&&value| value >= 100).count() as u64;
        prop_assert!(fires || tail <= hold, "it would have had to fire");
    }
}
