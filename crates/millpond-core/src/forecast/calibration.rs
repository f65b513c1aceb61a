//! Promises compared with what happened: how good they were, and what that teaches about the next ones.
//!
//! Owns a bounded sample of the promises that are open, and the correction. Must never correct what it has not seen
//! go wrong: without enough comparable waits, a forecast stands as it is.

use super::{Outlook, Promise, seconds};
use crate::identity::Seq;
use crate::stats::Histogram;
use crate::time::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most promises of one queue that are kept to be compared.
const OPEN_MAX: usize = 256;
/// Comparisons that the correction rests on, the latest ones.
const LEARNED_MAX: usize = 128;
/// Comparisons before anything is corrected.
const LEARNED_MIN: usize = 16;
/// The quantiles are computed again after so many new comparisons.
const LEARNED_STEP: u32 = 4;
/// At most so many promises are learned from per length of one wait, given or meant to start one after the other. Those that wait together share their luck:
/// many of them say little more than one.
const LEARNED_PER_WAIT: u32 = 4;
/// A correction is never more than this factor, in either direction.
const FACTOR_MAX: f64 = 4.0;
/// Waits shorter than this teach nothing: hand-out and commit are a part of them.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// Nor do waits behind fewer messages: the rest of the work that is just under way is a part of them.
const AHEAD_MIN: f64 = 10.0;
/// A measured capacity that moves by more than this factor between promise and start has put the forecast right by
/// itself; what it did before teaches nothing about what it says now.
const CAPACITY_MOVED: f64 = 1.25;
/// With work waiting, a queue that hands out nothing for ten messages' time and this long stands still.
const STANDSTILL: Duration = Duration::from_secs(10);
/// A start that is later than promised by no more than this is in time: nobody notices a tenth of a second.
const TOLERANCE: Duration = Duration::from_millis(100);

/// Factors by which waits have turned out longer than the forecast had said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    /// For the wait that half of the messages do not exceed.
    pub p50: f64,
    /// For the wait that nine in ten do not exceed.
    pub p90: f64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { p50: 1.0, p90: 1.0 }
    }
}

/// How the promises of a queue have turned out, counted over a sample of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromiseRecord {
    /// How far the start was from the promised p50, in either direction.
    pub error: Histogram,
    /// Starts not later than the promised p50.
    pub by_p50: u64,
    /// Starts later than that, but not later than the promised p90.
    pub by_p90: u64,
    /// Starts later than the promised p90.
    pub late: u64,
}

impl PromiseRecord {
    fn count(&mut self, promise: Promise, waited: Duration) {
        self.error.observe(waited.abs_diff(promise.p50));
        if waited <= promise.p50 + TOLERANCE {
            self.by_p50 += 1;
        } else if waited <= promise.p90 + TOLERANCE {
            self.by_p90 += 1;
        } else {
            self.late += 1;
        }
    }

    /// Promises that were compared.
    pub fn compared(&self) -> u64 {
        self.by_p50 + self.by_p90 + self.late
    }

    /// The share of starts not later than the promised p90; `None` before the first comparison.
    pub fn kept_ratio(&self) -> Option<f64> {
        let compared = self.compared();
        (compared > 0).then(|| (self.by_p50 + self.by_p90) as f64 / compared as f64)
    }
}

/// A promise that waits to be compared.
#[derive(Debug, Clone, Copy)]
struct Open {
    given: Mono,
    told: Promise,
    /// What the forecast had said without correction, beyond the hold, as p50 and p90. `None`: it teaches nothing.
    forecast: Option<(f64, f64)>,
    hold: Duration,
    capacity_per_second: f64,
}

/// The audit of one queue's promises.
///
/// Which promises are kept is decided by their numbers alone: level L keeps one in 2^L, each level a part of the
/// one below it, so that a sample that grows too large is thinned evenly over everything that waits (P. Gibbons,
/// "Distinct sampling", VLDB 2001). The correction is the median of actual ÷ forecast wait, and the nine-in-ten
/// quantile of actual ÷ forecast p90: coverage is attained by watching it, whatever the distribution (as in adaptive
/// conformal inference; I. Gibbs, E. Candès, 2021), here over a window of the latest comparisons.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    open: BTreeMap<Seq, Open>,
    level: u32,
    learned: VecDeque<(f64, f64)>,
    unused: u32,
    correction: Correction,
    /// When something was last handed out for the first time.
    last_start: Option<Mono>,
    /// Promises given before are compared, but teach nothing.
    teaches_from: Option<Mono>,
    /// When the latest promise was given that will be learned from, and the start that was forecast.
    last_lesson: Option<(Mono, Mono)>,
    record: PromiseRecord,
}

impl Calibration {
    /// What the next promises are multiplied by.
    pub fn correction(&self) -> Correction {
        self.correction
    }

    /// How the promises so far have turned out.
    pub fn record(&self) -> &PromiseRecord {
        &self.record
    }

    /// Takes note of a promise that was given at `now` on the grounds of `outlook`.
    pub fn promised(&mut self, seq: Seq, told: Promise, outlook: &Outlook, now: Mono) {
        if !is_sampled(seq, self.level) {
            return;
        }
        let p50 = told.p50.saturating_sub(outlook.hold);
        let p90 = told.p90.saturating_sub(outlook.hold);
        let wait = p50.as_secs_f64() / outlook.correction.p50;
        // Decided now and not at the start, or those that start out of turn would be passed over.
        let (spacing, starts) = (seconds(wait) / LEARNED_PER_WAIT, now.plus(seconds(wait)));
        let is_apart =
            |(given, started): (Mono, Mono)| now >= given.plus(spacing) || starts >= started.plus(spacing);
        let is_lesson = wait >= WAIT_MIN.as_secs_f64()
            && wait * outlook.capacity_per_second >= AHEAD_MIN
            && self.last_lesson.is_none_or(is_apart);
        if is_lesson {
            self.last_lesson = Some((now, starts));
        }
        let forecast = is_lesson.then(|| (wait, p90.as_secs_f64() / outlook.correction.p90));
        let (hold, capacity_per_second) = (outlook.hold, outlook.capacity_per_second);
        self.open.insert(seq, Open { given: now, told, forecast, hold, capacity_per_second });
        while self.open.len() > OPEN_MAX {
            self.level += 1;
            let level = self.level;
            self.open.retain(|&seq, _| is_sampled(seq, level));
        }
    }

    /// Whether a promise for `seq` waits to be compared.
    pub fn is_open(&self, seq: Seq) -> bool {
        self.open.contains_key(&seq)
    }

    /// Compares the promise for `seq` with its start at `now`. `outlook` is what a promise given now would rest on.
    pub fn started(&mut self, seq: Seq, outlook: Option<&Outlook>, now: Mono) {
        self.note_hand_out(now);
        let Some(open) = self.open.remove(&seq) else { return };
        self.thicken();
        let waited = now.since(open.given);
        self.record.count(open.told, waited);
        if let Some(outlook) = outlook {
            self.learn(&open, waited, outlook);
        }
    }

    /// Something was handed out at `now`, whether its promise had been kept or not: the queue moves.
    fn note_hand_out(&mut self, now: Mono) {
        if let Some(oldest) = self.open.values().next() {
            let still_since = self.last_start.map_or(oldest.given, |last| last.max(oldest.given));
            let ten = seconds(10.0 / oldest.capacity_per_second);
            if now.since(still_since) > STANDSTILL + ten {
                self.interrupt(now);
            }
        }
        self.last_start = Some(now);
    }

    fn learn(&mut self, open: &Open, waited: Duration, outlook: &Outlook) {
        let Some((p50, p90)) = open.forecast else { return };
        let moved = outlook.capacity_per_second / open.capacity_per_second;
        let teaches = self.teaches_from.is_none_or(|from| open.given >= from);
        if !teaches || !(1.0 / CAPACITY_MOVED..=CAPACITY_MOVED).contains(&moved) {
            return;
        }
        let waited = waited.saturating_sub(open.hold).as_secs_f64();
        if self.learned.len() == LEARNED_MAX {
            self.learned.pop_front();
        }
        self.learned.push_back((waited / p50, waited / p90));
        self.unused += 1;
        if self.learned.len() >= LEARNED_MIN && self.unused >= LEARNED_STEP {
            self.unused = 0;
            let p50 = quantile(self.learned.iter().map(|(p50, _)| *p50), 0.5);
            let p90 = quantile(self.learned.iter().map(|(_, p90)| *p90), 0.9);
            self.correction = Correction { p50: bounded(p50), p90: bounded(p90) };
        }
    }

    /// The promise for `seq` will never be compared: its message was withdrawn, dropped, or has expired.
    pub fn withdraw(&mut self, seq: Seq) {
        if self.open.remove(&seq).is_some() {
            self.thicken();
        }
    }

    /// With few left, more of the next ones can be kept.
    fn thicken(&mut self) {
        if self.level > 0 && self.open.len() < OPEN_MAX / 4 {
            self.level -= 1;
        }
    }

    /// Work was held up at `now` by something that no forecast knows of. Promises given before are still compared,
    /// but teach nothing.
    pub fn interrupt(&mut self, now: Mono) {
        self.teaches_from = Some(now);
    }

    /// The promises that are open cannot be kept, on an operator's word: they are not compared.
    pub fn call_off(&mut self) {
        self.open.clear();
        self.level = 0;
    }

    /// What was learned holds no more, since the capacity was set anew. The record stays.
    pub fn begin_anew(&mut self) {
        let record = std::mem::take(&mut self.record);
        *self = Self { record, ..Self::default() };
    }
}

/// Whether `seq` belongs to the sample at `level`: multiplied by 2^64 ÷ φ, numbers in any regular order fall evenly
/// (D. Knuth, "The Art of Computer Programming" 3, 6.4).
fn is_sampled(seq: Seq, level: u32) -> bool {
    seq.0.wrapping_mul(0x9E37_79B9_7F4A_7C15).leading_zeros() >= level
}

fn bounded(factor: f64) -> f64 {
    factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
}

/// The smallest value that a `share` of all does not exceed; there is at least one.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the length")]
    let rank = (sorted.len() as f64 * share).ceil().max(1.0) as usize;
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::{Calibration, Correction, OPEN_MAX, PromiseRecord, quantile};
    use crate::forecast::Outlook;
    use crate::identity::Seq;
    use crate::time::Mono;
    use std::time::Duration;

    fn outlook(calibration: &Calibration, capacity_per_second: f64) -> Outlook {
        let correction = calibration.correction();
        Outlook { capacity_per_second, variation: 0.0, busy: true, hold: Duration::ZERO, correction }
    }

    fn at(seconds: f64) -> Mono {
        Mono::default().plus(Duration::from_secs_f64(seconds))
    }

    /// One message every second in a queue that is forecast to do ten a second and has fifty ahead of each, which
    /// start as long after their acceptance as `waited` says for each.
    fn steady(calibration: &mut Calibration, from: u32, count: u32, waited: impl Fn(u32) -> f64) {
        let mut events: Vec<(f64, bool, u32)> = (from..from + count)
            .flat_map(|message| {
                let given = f64::from(message);
                [(given, false, message), (given + waited(message), true, message)]
            })
            .collect();
        events.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (time, is_start, message) in events {
            let (seq, outlook) = (Seq(u64::from(message)), outlook(calibration, 10.0));
            if is_start {
                calibration.started(seq, Some(&outlook), at(time));
            } else {
                calibration.promised(seq, outlook.wait(50), &outlook, at(time));
            }
        }
    }

    #[test]
    fn waits_that_come_out_as_forecast_correct_nothing() {
        let mut calibration = Calibration::default();
        steady(&mut calibration, 0, 400, |_| 5.0);
        assert_eq!(calibration.correction().p50.to_bits(), 1.0_f64.to_bits());
        let record = calibration.record();
        assert_eq!((record.by_p50, record.by_p90, record.late), (400, 0, 0));
        assert!(record.error.sum_seconds < 1e-6);
    }

    #[test]
    fn waits_half_as_long_again_as_forecast_make_the_next_promises_half_as_long_again() {
        let mut calibration = Calibration::default();
        steady(&mut calibration, 0, 15, |_| 7.5);
        assert_eq!(calibration.correction(), Correction::default(), "a few waits are chance");
        steady(&mut calibration, 100, 200, |_| 7.5);
        assert!((calibration.correction().p50 - 1.5).abs() < 1e-6, "{:?}", calibration.correction());
        assert_eq!(outlook(&calibration, 10.0).wait(50).p50, Duration::from_millis(7_500));
        let late = calibration.record().late;
        steady(&mut calibration, 400, 100, |_| 7.5);
        assert_eq!(calibration.record().late, late, "whoever was promised after that was in time");
        let p50 = calibration.correction().p50;
        assert!((p50 - 1.5).abs() < 1e-6, "what was corrected is not corrected twice: {p50}");
    }

    #[test]
    fn nine_in_ten_start_by_the_p90_however_the_waits_scatter() {
        let mut calibration = Calibration::default();
        // Every fifth wait is three times as long as forecast.
        let waited =
            |message: u32| if message.wrapping_mul(2_654_435_761).is_multiple_of(5) { 15.0 } else { 5.0 };
        steady(&mut calibration, 0, 600, waited);
        assert_eq!(calibration.correction().p50.to_bits(), 1.0_f64.to_bits(), "most are as forecast");
        let p90 = |calibration: &Calibration| outlook(calibration, 10.0).wait(50).p90.as_secs_f64();
        assert!((p90(&calibration) - 15.0).abs() < 0.01, "{}", p90(&calibration));
        steady(&mut calibration, 1_000, 600, waited);
        assert!((p90(&calibration) - 15.0).abs() < 0.01, "what was corrected is not corrected twice");
    }

    #[test]
    fn the_share_of_kept_promises_counts_both_who_was_early_and_who_was_within_the_p90() {
        let mut record = PromiseRecord::default();
        assert_eq!(record.kept_ratio(), None);
        (record.by_p50, record.by_p90, record.late) = (5, 2, 1);
        assert_eq!(record.kept_ratio(), Some(0.875));
    }

    #[test]
    fn a_quantile_is_the_smallest_value_that_its_share_does_not_exceed() {
        for (share, expected) in [(0.1, 1.0), (0.5, 2.0), (0.51, 3.0), (0.9, 4.0), (1.0, 4.0)] {
            let value = quantile([4.0, 2.0, 1.0, 3.0].into_iter(), share);
            assert!((value - expected).abs() < 1e-9, "{value} of {share}");
        }
    }

    #[test]
    fn no_correction_is_more_than_fourfold() {
        for (waited, factor) in [(500.0, 4.0), (0.01, 0.25)] {
            let mut calibration = Calibration::default();
            for message in 0..200_u32 {
                let seq = Seq(u64::from(message));
                let outlook = outlook(&calibration, 10.0);
                let given = f64::from(message) * 8.0;
                calibration.promised(seq, outlook.wait(50), &outlook, at(given));
                // Something else is handed out all the time, so that nothing stands still.
                for step in 0..50 {
                    calibration.started(Seq(u64::MAX), None, at(given + waited * f64::from(step) / 50.0));
                }
                calibration.started(seq, Some(&outlook), at(given + waited));
            }
            assert!((calibration.correction().p50 - factor).abs() < 1e-9, "{:?}", calibration.correction());
        }
    }

    #[test]
    fn short_waits_teach_nothing() {
        let mut calibration = Calibration::default();
        for message in 0..200_u32 {
            let (seq, time) = (Seq(u64::from(message)), f64::from(message));
            let outlook = outlook(&calibration, 10.0);
            calibration.promised(seq, outlook.wait(9), &outlook, at(time));
            calibration.started(seq, Some(&outlook), at(time + 3.0));
        }
        assert_eq!(calibration.correction(), Correction::default());
        assert_eq!(calibration.record().late, 200, "the record tells of them all the same");
    }

    #[test]
    fn the_sample_is_bounded_and_covers_the_whole_backlog() {
        let mut calibration = Calibration::default();
        let outlook = outlook(&calibration, 1_000.0);
        let count = 1_000_000_u64;
        for seq in 0..count {
            calibration.promised(Seq(seq), outlook.wait(seq), &outlook, at(0.0));
        }
        assert!((OPEN_MAX / 3..=OPEN_MAX).contains(&calibration.open.len()), "{}", calibration.open.len());
        let tenth = count / 10;
        for part in 0..10 {
            let kept = calibration.open.range(Seq(part * tenth)..Seq((part + 1) * tenth)).count();
            assert!(kept >= OPEN_MAX / 60, "{kept} of the {part}th tenth");
        }
        for seq in 0..count {
            calibration.withdraw(Seq(seq));
        }
        assert_eq!((calibration.level, calibration.record().compared()), (0, 0));
    }

    #[test]
    fn the_sample_is_thinned_when_it_would_grow_too_large_and_thickened_once_it_is_small() {
        let mut calibration = Calibration::default();
        let outlook = outlook(&calibration, 1_000.0);
        for seq in 0..OPEN_MAX as u64 {
            calibration.promised(Seq(seq), outlook.wait(seq), &outlook, at(0.0));
        }
        assert_eq!((calibration.open.len(), calibration.level), (OPEN_MAX, 0), "there is room for all");
        assert!(calibration.is_open(Seq(7)) && !calibration.is_open(Seq(7_000)));
        let mut next = OPEN_MAX as u64;
        while calibration.level == 0 {
            calibration.promised(Seq(next), outlook.wait(next), &outlook, at(0.0));
            next += 1;
        }
        assert_eq!(next, OPEN_MAX as u64 + 1);
        assert!((OPEN_MAX / 3..OPEN_MAX * 2 / 3).contains(&calibration.open.len()));
        let open: Vec<Seq> = calibration.open.keys().copied().collect();
        for seq in open {
            let is_small = calibration.open.len() - 1 < OPEN_MAX / 4;
            calibration.started(seq, None, at(1.0));
            assert_eq!(calibration.level, u32::from(!is_small), "{} are open", calibration.open.len());
        }
    }

    #[test]
    fn slow_work_does_not_stand_still_and_a_capacity_that_moves_a_little_still_teaches() {
        let mut calibration = Calibration::default();
        for message in 0..40_u32 {
            let (seq, given) = (Seq(u64::from(message)), f64::from(message) * 1_000.0);
            let before = outlook(&calibration, 1.0 / 30.0);
            calibration.promised(seq, before.wait(12), &before, at(given));
            // Something starts every 60 s, twice as long apart as forecast.
            for step in 1..12 {
                calibration.started(Seq(1_000_000), None, at(given + 60.0 * f64::from(step)));
            }
            let now = outlook(&calibration, 0.9 / 30.0);
            calibration.started(seq, Some(&now), at(given + 720.0));
        }
        assert!((calibration.correction().p50 - 2.0).abs() < 1e-6, "{:?}", calibration.correction());
    }

    #[test]
    fn a_queue_stands_still_once_ten_seconds_and_the_time_of_ten_messages_are_exceeded() {
        for (seconds, still) in [(11.0, false), (11.1, true)] {
            let mut calibration = Calibration::default();
            let outlook = outlook(&calibration, 10.0);
            calibration.promised(Seq(1), outlook.wait(50), &outlook, at(0.0));
            calibration.started(Seq(9), None, at(seconds));
            assert_eq!(calibration.teaches_from.is_some(), still, "after {seconds} s");
        }
    }

    #[test]
    fn a_standstill_or_a_capacity_that_moved_by_itself_is_recorded_but_not_learned_from() {
        let mut calibration = Calibration::default();
        let before = outlook(&calibration, 10.0);
        for message in 0..200 {
            calibration.promised(Seq(message), before.wait(50), &before, at(0.1 * message as f64));
        }
        let mut halved = calibration.clone();
        for message in 0..200 {
            let time = 1_000.0 + message as f64;
            calibration.started(Seq(message), Some(&before), at(time));
            let now = outlook(&halved, 5.0);
            halved.started(Seq(message), Some(&now), at(5.0 + 0.2 * message as f64));
        }
        for seen in [&calibration, &halved] {
            assert_eq!(seen.correction(), Correction::default());
            assert_eq!(seen.record().compared(), 200);
        }
    }

    #[test]
    fn what_was_called_off_is_not_compared_and_what_is_set_anew_forgets_what_it_learned() {
        let mut calibration = Calibration::default();
        steady(&mut calibration, 0, 200, |_| 7.5);
        let record = calibration.record().clone();
        let outlook = outlook(&calibration, 10.0);
        calibration.promised(Seq(1_000), outlook.wait(50), &outlook, at(300.0));
        calibration.call_off();
        calibration.started(Seq(1_000), Some(&outlook), at(301.0));
        assert_eq!(calibration.record(), &record);
        assert_ne!(calibration.correction(), Correction::default());
        calibration.begin_anew();
        assert_eq!(calibration.correction(), Correction::default());
        assert_eq!(calibration.record(), &record);
    }

    #[test]
    fn a_hold_that_was_announced_is_not_part_of_what_is_learned() {
        let mut calibration = Calibration::default();
        for message in 0..200_u32 {
            let (seq, time) = (Seq(u64::from(message)), f64::from(message) * 20.0);
            let hold = Duration::from_secs(8);
            let outlook = Outlook { hold, ..outlook(&calibration, 10.0) };
            calibration.promised(seq, outlook.wait(50), &outlook, at(time));
            calibration.started(seq, Some(&outlook), at(time + 13.0));
        }
        assert!((calibration.correction().p50 - 1.0).abs() < 1e-9, "{:?}", calibration.correction());
    }
}
