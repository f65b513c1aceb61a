//! Words and shapes that users rely on: phases, outcomes, reasons, classes, ids, labels, failures.
//!
//! Owns nothing but tests. Must never take a word from the code: the words are the promise.

use crate::rig::name;
use bytes::Bytes;
use millpond_core::breaker::BreakerState;
use millpond_core::identity::{IdentityError, Keys, MessageId, Receipt, SEQ_MAX, Seq};
use millpond_core::message::{
    Attempt, AttemptOutcome, Content, Criticality, DeadReason, Failure, Holder, Phase,
};
use millpond_core::name::{Label, Name};
use millpond_core::notice::Notice;
use millpond_core::rate::Rate;
use millpond_core::replay::{ReplayState, WaitsFor};
use millpond_core::settings::Order;
use millpond_core::stats::{CallEnding, Held, Histogram, Totals};
use millpond_core::time::{Mono, Now, Wall};
use std::time::Duration;

#[test]
fn phases_have_their_words_and_are_known_by_them() {
    let phases = [
        (Phase::Delayed, "delayed", false),
        (Phase::Ready, "ready", false),
        (Phase::Leased, "leased", false),
        (Phase::Backoff, "backoff", false),
        (Phase::Succeeded, "succeeded", true),
        (Phase::Dead, "dead", true),
        (Phase::Expired, "expired", true),
        (Phase::Cancelled, "cancelled", true),
        (Phase::Dropped, "dropped", true),
    ];
    for (phase, word, terminal) in phases {
        assert_eq!((phase.as_str(), Phase::parse(word), phase.is_terminal()), (word, Some(phase), terminal));
    }
    assert_eq!(Phase::parse("done"), None);
}

#[test]
fn classes_and_reasons_have_their_words_and_are_known_by_them() {
    let classes = ["critical-plus", "critical", "sheddable-plus", "sheddable"];
    for (place, (class, word)) in Criticality::ALL.into_iter().zip(classes).enumerate() {
        assert_eq!((class.as_str(), Criticality::parse(word), class.index()), (word, Some(class), place));
    }
    assert_eq!(Criticality::parse(""), None);
    let reasons = ["attempts-exhausted", "deliveries-exhausted", "rejected", "expired"];
    for (reason, word) in DeadReason::ALL.into_iter().zip(reasons) {
        assert_eq!((reason.as_str(), DeadReason::parse(word)), (word, Some(reason)));
    }
    assert_eq!(DeadReason::parse("bored"), None);
}

#[test]
fn outcomes_have_their_words_and_only_what_was_tried_counts() {
    let outcomes = [
        ("succeeded", true),
        ("failed", true),
        ("dead", true),
        ("released", false),
        ("throttled", false),
        ("timed-out", true),
        ("lease-expired", true),
        ("interrupted", false),
        ("probe-failed", false),
    ];
    let mut totals = Totals::default();
    for (place, (outcome, (word, tried))) in AttemptOutcome::ALL.into_iter().zip(outcomes).enumerate() {
        assert_eq!((outcome.as_str(), outcome.is_attempt()), (word, tried));
        for _ in 0..=place {
            totals.ended(outcome);
        }
    }
    assert_eq!(totals.deliveries, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn orders_replays_and_what_holds_a_queue_have_their_words() {
    let orders = [Order::Fifo, Order::Lifo, Order::Adaptive].map(|order| order.to_string());
    assert_eq!(orders, ["fifo", "lifo", "adaptive"]);
    let states = [ReplayState::Running, ReplayState::Done, ReplayState::Cancelled].map(ReplayState::as_str);
    assert_eq!(states, ["running", "done", "cancelled"]);
    let waits = [WaitsFor::Pace, WaitsFor::Room, WaitsFor::Disk].map(WaitsFor::as_str);
    assert_eq!(waits, ["pace", "room", "disk"]);
    assert_eq!(
        Held::ALL.map(Held::as_str),
        ["paused", "dead-burst", "dead-letters-full", "callbacks-full", "storage-full", "breaker-open"]
    );
    assert_eq!(BreakerState::ALL.map(BreakerState::as_str), ["closed", "open", "half-open"]);
    let calls = ["succeeded", "failed", "timed-out", "throttled", "rejected"];
    assert_eq!(CallEnding::ALL.map(CallEnding::as_str), calls);
    assert!(CallEnding::ALL.iter().enumerate().all(|(place, ending)| ending.index() == place));
}

#[test]
fn notices_say_which_queue_whose_and_how_many() {
    let owner = Some("team-orders".to_owned());
    let notices = [
        Notice::DeadBurst { queue: name("a"), deaths: 20, owner: owner.clone() },
        Notice::DeadLettersFull { queue: name("a"), kept: 20, owner: owner.clone() },
        Notice::CallbacksFull { queue: name("a"), waiting: 20, owner },
    ];
    for notice in notices {
        assert_eq!((notice.queue(), notice.owner()), (Some(&name("a")), Some("team-orders")));
        assert_eq!((notice.target(), notice.is_harmless()), (None, false));
        let said = notice.to_string();
        assert!(said.contains("queue a ") && said.contains(" 20 "), "{said}");
    }
    let target = name("till");
    let notices = [
        (Notice::BreakerOpen { target: target.clone(), failures: 12 }, false, "12 failures in a row"),
        (Notice::BreakerHalfOpen { target: target.clone() }, true, "half-open"),
        (Notice::BreakerClosed { target: target.clone(), by_hand: false }, true, "answers again"),
        (Notice::BreakerClosed { target: target.clone(), by_hand: true }, true, "by an operator"),
    ];
    for (notice, is_harmless, words) in notices {
        assert_eq!((notice.queue(), notice.target(), notice.owner()), (None, Some(&target), None));
        assert_eq!(notice.is_harmless(), is_harmless);
        let said = notice.to_string();
        assert!(said.contains("target till") && said.contains(words), "{said}");
    }
}

#[test]
fn totals_add_up() {
    let mut totals = Totals { refused_full: 1, refused_wait: 2, refused_other: 4, ..Totals::default() };
    assert_eq!(totals.refused(), 7);
    totals.accepted_by_criticality = [1, 2, 4, 8];
    assert_eq!((totals.accepted(), totals.accepted_of(Criticality::SheddablePlus)), (15, 4));
}

#[test]
fn a_histogram_counts_up_to_and_with_each_bound_and_what_is_beyond_all() {
    let mut histogram = Histogram::default();
    for milliseconds in [5, 6, 10, 86_400_000, 86_400_001] {
        histogram.observe(Duration::from_millis(milliseconds));
    }
    assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[2]), (1, 2, 0));
    assert_eq!(histogram.counts[19..], [1, 1], "a day, and beyond it");
    assert!((histogram.sum_seconds - 172_800.022).abs() < 1e-6, "{}", histogram.sum_seconds);
}

#[test]
fn a_failure_is_cut_between_characters_within_its_bound() {
    let whole = "x".repeat(1024);
    assert_eq!(Failure::new("worker", &whole, None).message, whole);
    assert_eq!(Failure::new("worker", &format!("{whole}y"), None).message, whole);
    let odd = format!("{}ä", "x".repeat(1023));
    let cut = Failure::new("status", &odd, Some(500));
    assert_eq!((cut.message.len(), cut.kind.as_str(), cut.http_status), (1023, "status", Some(500)));
}

#[test]
fn a_content_counts_its_body_headers_and_media_type() {
    let content = Content {
        content_type: "text".to_owned(),
        headers: vec![("ab".to_owned(), "cde".to_owned()), ("f".to_owned(), "gh".to_owned())],
        body: Bytes::from_static(b"0123456"),
    };
    assert_eq!(content.size_bytes(), 7 + 4 + 5 + 3);
}

#[test]
fn an_attempt_ended_as_long_after_its_start_as_it_took() {
    let (holder, outcome) = (Holder::Worker, AttemptOutcome::Failed);
    let attempt = Attempt { delivery: 1, holder, started: Wall(100), micros: 30, outcome, failure: None };
    assert_eq!(attempt.ended(), Wall(130));
}

#[test]
fn names_and_labels_are_the_text_that_they_were_made_of_wherever_they_come_from() {
    let name = Name::new("orders").unwrap();
    assert_eq!((name.as_str(), name.to_string().as_str()), ("orders", "orders"));
    assert_eq!(Name::try_from("orders".to_owned()), Ok(name.clone()));
    assert!(Name::try_from("no name".to_owned()).is_err());
    assert_eq!(String::from(name.clone()), "orders");
    assert_eq!(std::borrow::Borrow::<str>::borrow(&name), "orders");
    let label = Label::new("Käse & Brot").unwrap();
    assert_eq!((label.as_str(), label.to_string().as_str()), ("Käse & Brot", "Käse & Brot"));
    assert_eq!(Label::try_from("Käse & Brot".to_owned()), Ok(label.clone()));
    assert!(Label::try_from("\n".to_owned()).is_err());
    assert_eq!(String::from(label), "Käse & Brot");
}

#[test]
fn ids_receipts_and_tokens_open_with_their_own_keys_only() {
    let (keys, others) = (Keys::new(&[1; 32]), Keys::new(&[2; 32]));
    assert_eq!(format!("{keys:?}"), "Keys(secret)");
    for seq in [0, 1, 0x0102_0304_0506, SEQ_MAX].map(Seq) {
        let id = keys.id(seq);
        assert_eq!((keys.open_id(id), others.open_id(id)), (Ok(seq), Err(IdentityError::NotIssued)));
        assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
        assert_eq!(id.to_string().replace('-', "").parse::<MessageId>(), Err(IdentityError::Malformed));
        let receipt = Receipt { seq, epoch: 0x0708_090a, delivery: 0x0b0c_0d0e };
        let sealed = keys.seal(receipt);
        assert_eq!(keys.open_receipt(&sealed), Ok(receipt));
        assert_eq!(others.open_receipt(&sealed), Err(IdentityError::NotIssued));
        assert_eq!(keys.open_receipt(&sealed[1..]), Err(IdentityError::Malformed));
        assert_eq!(keys.open_receipt(&format!("!{}", &sealed[1..])), Err(IdentityError::Malformed));
        assert!(keys.token_fits(seq, &keys.token(seq)) && !keys.token_fits(seq, &others.token(seq)));
    }
    assert_eq!(SEQ_MAX, 0xffff_ffff_ffff, "48 bits");
    assert_ne!(keys.digest(&[b"ab", b"c"]), keys.digest(&[b"a", b"bc"]));
    assert_ne!(keys.digest(&[b"ab"]), others.digest(&[b"ab"]));
}

#[test]
fn times_are_added_and_compared_without_running_over() {
    let (five, max) = (Duration::from_micros(5), Duration::MAX);
    assert_eq!(
        (Wall(10).plus(five), Wall(10).minus(five), Wall(10).since(Wall(7))),
        (Wall(15), Wall(5), five * 3 / 5)
    );
    assert_eq!((Wall(1).plus(max), Wall(7).since(Wall(10))), (Wall(i64::MAX), Duration::ZERO));
    assert_eq!(
        (Mono(10).plus(five), Mono(10).since(Mono(7)), Mono(7).since(Mono(10))),
        (Mono(15), five * 3 / 5, Duration::ZERO)
    );
    let now = Now { wall: Wall(1_000), mono: Mono(50) };
    assert_eq!((now.mono_at(Wall(1_007)), now.wall_at(Mono(40))), (Mono(57), Wall(990)));
}

#[test]
fn a_rate_is_so_many_events_in_so_long() {
    let rate = Rate { events: 30, per: Duration::from_mins(1) };
    assert!((rate.per_second() - 0.5).abs() < 1e-12);
}
