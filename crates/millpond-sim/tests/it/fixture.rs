//! The directory that is kept as a fixture of the format: every kind of record, messages in every phase.
//!
//! Owns how it is made: on virtual time, with fixed chance, so that it can be made again. `cargo xtask fixture` writes
//! it to where the engine's tests read it.

use bytes::Bytes;
use millpond_core::callback::{Callbacks, Telling, Words};
use millpond_core::command::{
    Command, Declared, LeaseRequest, Leased, NewMessage, Reply, SettleOutcome, Settlement,
};
use millpond_core::identity::{Receipt, Seq};
use millpond_core::message::{CallbackWish, Content, Criticality, Failure, IdempotencyKey};
use millpond_core::name::{Label, Name};
use millpond_core::replay::{ReplayWhich, ReplayWish};
use millpond_core::settings::{OnExpiry, Order, Overflow, QueueSettings};
use millpond_core::time::Mono;
use millpond_engine::engine::Wording;
use millpond_engine::survey::{Unwatched, survey};
use millpond_journal::simulated::SimulatedDisk;
use millpond_journal::{FORMAT_VERSION, Options, Storage, ToSeal, open};
use millpond_sim::host::{Host, HostOptions, Outcome, Steady, VirtualClock};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u32 = 16 * 1024;
const SEED: u64 = 7;

/// An engine, the virtual time, and the answers.
struct Scene {
    disk: SimulatedDisk,
    host: Host,
    now: Mono,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn queues() -> Declared {
    let jobs = QueueSettings::default();
    let fresh = QueueSettings {
        order: Order::Lifo,
        overflow: Overflow::DropOldest,
        max_messages: Some(3),
        ..QueueSettings::default()
    };
    let brief = QueueSettings {
        on_expiry: OnExpiry::Drop,
        result_retention: Duration::from_hours(1),
        ..QueueSettings::default()
    };
    let soon_forgotten =
        QueueSettings { result_retention: Duration::from_secs(1), ..QueueSettings::default() };
    let queues = [
        ("jobs", jobs.clone()),
        ("fresh", fresh),
        ("brief", brief),
        ("soon-forgotten", soon_forgotten),
        ("tellers", jobs.clone()),
    ];
    let queues = queues.map(|(text, settings)| (name(text), settings));
    Declared { targets: Vec::new(), queues: queues.into() }
}

/// Ends are told in the words of a test.
fn wording() -> Wording {
    Wording(Arc::new(|_| {
        let words: Words = Arc::new(|ended| {
            let content = message(ended.message.phase.as_str()).content;
            Telling { content, tenant: Label::new("there").ok() }
        });
        Callbacks { queue: name("tellers"), words }
    }))
}

impl Scene {
    fn open(disk: &SimulatedDisk, now: Mono) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let latency = Duration::from_millis(1);
        let options = HostOptions {
            declared: queues(),
            segment_bytes: SEGMENT_BYTES,
            seed: SEED,
            clock: VirtualClock::default(),
            surroundings: Box::new(Steady(latency)),
            watch: None,
        };
        let host = Host::open_telling(&storage, options, Some(&wording()), now).unwrap();
        Self { disk: disk.clone(), host, now }
    }

    /// Lets time pass, and everything happen that is due by then.
    fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while let Some(next) = self.host.next_event().filter(|next| *next <= end) {
            // What is due and waits for the log comes up again until the log has answered.
            self.now = next.max(self.now.plus(Duration::from_micros(100)));
            self.host.run(self.now).unwrap();
        }
        self.now = end;
        self.host.run(end).unwrap();
    }

    fn ask(&mut self, command: Command) -> Reply {
        let asked = self.host.ask(command, self.now).unwrap();
        self.pass(Duration::from_millis(20));
        let answer = self.host.outcomes().into_iter().find_map(|outcome| match outcome {
            Outcome::Reply(request, reply) if request == asked => Some(reply),
            _ => None,
        });
        answer.expect("answered within 20 ms of virtual time")
    }

    fn send(&mut self, queue: &str, messages: Vec<NewMessage>) -> Vec<Seq> {
        let Reply::Enqueued(Ok(accepted)) = self.ask(Command::Enqueue { queue: name(queue), messages })
        else {
            panic!("not accepted")
        };
        accepted.into_iter().map(|accepted| accepted.unwrap().seq).collect()
    }

    fn lease(&mut self, queue: &str, max: usize) -> Vec<Leased> {
        let wish = LeaseRequest {
            queue: name(queue),
            max,
            lease: Some(Duration::from_mins(10)),
            wait: Duration::ZERO,
            consumer: Label::new("worker-1").ok(),
        };
        let Reply::Leased(Ok(leased)) = self.ask(Command::Lease(wish)) else { panic!("not leased") };
        leased
    }

    fn settle(&mut self, receipt: Receipt, outcome: SettleOutcome) {
        let Reply::Settled(results) = self.ask(Command::Settle(vec![Settlement { receipt, outcome }])) else {
            panic!("not settled")
        };
        results[0].as_ref().unwrap();
    }
}

fn message(body: &str) -> NewMessage {
    let content = Content {
        content_type: "text/plain".to_owned(),
        headers: vec![(
            "traceparent".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        )],
        body: Bytes::copy_from_slice(body.as_bytes()),
    };
    NewMessage { content: Arc::new(content), ..NewMessage::default() }
}

/// The whole life. What is left of it is in the directory.
fn made() -> SimulatedDisk {
    let mut scene = Scene::open(&SimulatedDisk::new(), Mono(0));
    pass_through(&mut scene);
    // Two more boots, the first one after a kill in the middle.
    let disk = scene.disk.crash_with(|_| true);
    scene = Scene::open(&disk, scene.now);
    let leased = come_in(&mut scene);
    go_out(&mut scene, &leased);
    scene.pass(Duration::from_secs(5));
    let disk = scene.disk.crash_with(|_| true);
    scene = Scene::open(&disk, scene.now);
    scene.send("jobs", vec![message("the last one")]);
    scene.pass(Duration::from_secs(1));
    let disk = scene.disk.crash_with(|_| true);
    seal(&disk);
    disk.crash_with(|_| true)
}

/// A log this short has no room for indexes within its bound on disk: one complete segment gets its own all the same.
fn seal(disk: &SimulatedDisk) {
    let options = Options { segment_bytes: SEGMENT_BYTES, was_used: true };
    let opened = open(Arc::new(disk.clone()), options, [0; 32], &mut |_| ControlFlow::Continue(())).unwrap();
    let segment = opened.files.segments()[0];
    opened.sealer.seal(ToSeal { segment, index_bytes_max: u64::from(SEGMENT_BYTES) }).unwrap().unwrap();
}

/// Enough to seal segments, to give one up and to use its file again.
fn pass_through(scene: &mut Scene) {
    for number in 0..90 {
        scene.send("soon-forgotten", vec![message(&format!("{number} {}", "passing through ".repeat(40)))]);
        let passing = scene.lease("soon-forgotten", 1)[0].receipt;
        scene.settle(passing, SettleOutcome::Complete { result: None });
        scene.pass(Duration::from_secs(2));
    }
    scene.pass(Duration::from_secs(5));
}

/// Every way in; some are handed out.
fn come_in(scene: &mut Scene) -> Vec<Receipt> {
    scene.send("jobs", (0..8).map(|number| message(&format!("job {number}"))).collect());
    let binary = NewMessage {
        content: Arc::new(Content {
            content_type: "application/octet-stream".to_owned(),
            headers: Vec::new(),
            body: Bytes::from_static(&[0, 0xFF, 0x80]),
        }),
        criticality: Criticality::Sheddable,
        tenant: Label::new("acme").ok(),
        group: Label::new("order-7").ok(),
        key: Some(IdempotencyKey { key: 1 << 100, payload: 2 }),
        ttl: Some(Duration::from_hours(9)),
        ..message("")
    };
    let wish = CallbackWish {
        address: "https://shop.example/told?key=größer".to_owned(),
        context: vec![("tracestate".to_owned(), "a=1".to_owned())],
    };
    let told = |text: &str| NewMessage { callback: Some(Arc::new(wish.clone())), ..message(text) };
    let withdrawn = scene.send("jobs", vec![told("not any more, either"), told("not yet")])[0];
    scene.ask(Command::Cancel(withdrawn));
    let delayed = NewMessage { delay: Duration::from_hours(1), ..message("later") };
    let cancelled = scene.send("jobs", vec![binary, delayed, message("not any more")])[2];
    scene.ask(Command::Cancel(cancelled));
    for number in 0..5 {
        scene.send("fresh", vec![message(&format!("price {number}"))]);
    }
    scene.send("brief", vec![NewMessage { ttl: Some(Duration::from_secs(1)), ..message("too late") }]);
    scene.send("soon-forgotten", vec![message("in and out")]);
    scene.lease("jobs", 8).iter().map(|leased| leased.receipt).collect()
}

/// Every way out.
fn go_out(scene: &mut Scene, leased: &[Receipt]) {
    let failure = || Some(Failure::new("status", "the registrar is away: größer", Some(503)));
    scene.ask(Command::Extend(vec![(leased[0], Duration::from_hours(1))]));
    let result = message("the result").content;
    scene.settle(leased[1], SettleOutcome::Complete { result: Some(result) });
    scene.settle(leased[2], SettleOutcome::Complete { result: None });
    scene
        .settle(leased[3], SettleOutcome::Retry { failure: failure(), delay: Some(Duration::from_hours(2)) });
    scene.settle(leased[4], SettleOutcome::Release { delay: None });
    scene.settle(leased[5], SettleOutcome::Dead { failure: failure() });
    scene.settle(leased[6], SettleOutcome::Dead { failure: None });
    scene.settle(leased[7], SettleOutcome::Dead { failure: None });
    scene.ask(Command::DeleteDead { queue: name("jobs"), seq: leased[7].seq });
    let replayed = ReplayWish::plain(ReplayWhich::These(vec![leased[5].seq]));
    scene.ask(Command::Replay { queue: name("jobs"), wish: replayed, dry_run: false });
    let gone = scene.lease("soon-forgotten", 1)[0].receipt;
    scene.settle(gone, SettleOutcome::Complete { result: None });
    scene.ask(Command::Pause { queue: name("fresh"), paused: true });
}

fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).collect()
}

#[test]
fn the_fixture_is_made_the_same_way_every_time_and_has_every_kind_and_phase() {
    let disk = made();
    assert!(files(&disk) == files(&made()), "two runs differ");
    let survey = survey(&disk, &mut Unwatched).unwrap();
    assert_eq!(survey.findings(), []);
    let kinds: Vec<_> = survey.kinds.keys().copied().collect();
    assert_eq!(
        kinds,
        ["boot", "died", "extended", "forgotten", "leased", "message", "queue", "replayed", "returned"]
    );
    let phases: std::collections::BTreeSet<_> =
        survey.queues.values().flat_map(|queue| queue.messages.keys().copied()).collect();
    let all = millpond_engine::survey::PHASES.map(millpond_core::message::Phase::as_str);
    assert_eq!(phases, all.into());
    let suffixes = |suffix: &str| disk.names().iter().filter(|name| name.ends_with(suffix)).count();
    assert!(suffixes(".index") > 0, "no segment is sealed: {:?}", disk.names());
    assert!(survey.inspection.segments[0].number > 1, "no segment was given up");
    let bytes: usize = files(&disk).iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 100_000, "{bytes} bytes are too many to keep for ever");
}

#[test]
#[ignore = "writes into the repository: run it as `cargo xtask fixture`"]
fn write_the_fixture() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../millpond-engine/tests/fixtures");
    let directory = engine.join(format!("format-{FORMAT_VERSION}"));
    let data = directory.join("data");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&data).unwrap();
    for (name, bytes) in files(&made()) {
        std::fs::write(data.join(name), bytes).unwrap();
    }
}
