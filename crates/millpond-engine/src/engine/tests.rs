//! Threads that fail, a disk that fails or fills, and stopping in the middle of it all.
//!
//! Owns a storage that misbehaves on demand. Must never wait for something by sleeping: a test that hangs is
//! ended by a deadline that a healthy engine never comes near.

use super::{Engine, OpenError, Randomness, restore};
use crate::clock::Clock;
use crate::handle::{CallError, Calls, Handle};
use crate::inbox::Event;
use bytes::Bytes;
use millpond_core::command::{
    CallOutcome, Declared, EnqueueError, Input, LeaseRequest, NewMessage, OpNumber, SettleOutcome, Settlement,
};
use millpond_core::identity::Receipt;
use millpond_core::message::Content;
use millpond_core::name::Name;
use millpond_core::rate::Rate;
use millpond_core::settings::{QueueSettings, TargetSettings};
use millpond_journal::simulated::SimulatedDisk;
use millpond_journal::{Storage, StorageFile};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const SEGMENT_BYTES: u32 = 64 << 10;
/// Nothing here takes a second; what is not over by then hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// What shall go wrong.
#[derive(Default)]
struct Faults {
    panic_on_write: AtomicBool,
    failing_creations: AtomicU32,
    /// What is created is there, but whether it stays is unknown.
    unsynced_creations: AtomicBool,
}

/// A simulated disk with [`Faults`].
#[derive(Clone, Default)]
struct Faulty {
    disk: SimulatedDisk,
    faults: Arc<Faults>,
}

struct FaultyFile {
    file: Arc<dyn StorageFile>,
    faults: Arc<Faults>,
}

impl Faulty {
    fn wrap(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(FaultyFile { file, faults: Arc::clone(&self.faults) })
    }
}

impl Storage for Faulty {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn StorageFile>> {
        let failing = &self.faults.failing_creations;
        if failing.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            // Too many open files.
            return Err(io::Error::from_raw_os_error(24));
        }
        let created = self.disk.create(name, length).map(|file| self.wrap(file))?;
        if self.faults.unsynced_creations.load(Ordering::SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        Ok(created)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.wrap(file))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.disk.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_whole(name, bytes)
    }

    fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read_small(name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn fence(&self, epoch: u64) -> io::Result<()> {
        self.disk.fence(epoch)
    }
}

impl StorageFile for FaultyFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(!self.faults.panic_on_write.load(Ordering::SeqCst), "a fault of the storage's code");
        self.file.write_at(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

fn queue() -> Name {
    Name::new("jobs").unwrap()
}

/// The engine is not stopped by a failing test: that could hang instead of failing.
fn open(storage: &Faulty) -> (ManuallyDrop<Engine>, Handle) {
    let declared = Declared { targets: Vec::new(), queues: vec![(queue(), QueueSettings::default())] };
    let (engine, handle, _calls) = open_with(storage, declared);
    (engine, handle)
}

fn open_with(storage: &Faulty, declared: Declared) -> (ManuallyDrop<Engine>, Handle, Calls) {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let randomness = Randomness { salt: [1; 32], secret: [2; 32], seed: 3 };
    let mut clock = Clock::start();
    let restored = restore(&storage, declared, SEGMENT_BYTES, &randomness, clock.now()).unwrap();
    let (engine, handle, calls) = Engine::start(restored, clock).unwrap();
    (ManuallyDrop::new(engine), handle, calls)
}

/// One queue that is pushed to one target.
fn pushing(concurrency: u32, rate: Option<Rate>) -> Declared {
    let settings = TargetSettings {
        concurrency,
        rate,
        timeout: DEADLINE * 10,
        hold_after_timeout: None,
        adaptive: None,
        breaker: None,
        ramp: None,
    };
    let target = Name::new("till").unwrap();
    let pushed = QueueSettings { target: Some(target.clone()), ..QueueSettings::default() };
    Declared { targets: vec![(target, settings)], queues: vec![(queue(), pushed)] }
}

fn content(bytes: usize) -> Arc<Content> {
    Arc::new(Content { body: Bytes::from(vec![7; bytes]), ..Content::default() })
}

fn message(bytes: usize) -> NewMessage {
    NewMessage { content: content(bytes), ..NewMessage::default() }
}

async fn enqueue(handle: &Handle, bytes: usize) -> Result<(), EnqueueError> {
    handle.enqueue(queue(), vec![message(bytes)]).await.unwrap().remove(0).map(drop)
}

async fn lease(handle: &Handle, max: usize) -> Vec<Receipt> {
    let wish = LeaseRequest { queue: queue(), max, lease: None, wait: Duration::ZERO, consumer: None };
    handle.lease(wish).await.unwrap().into_iter().map(|delivery| delivery.leased.receipt).collect()
}

fn complete(receipt: Receipt, result: Option<Arc<Content>>) -> Settlement {
    Settlement { receipt, outcome: SettleOutcome::Complete { result } }
}

async fn within_deadline<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it does not hang")
}

async fn stops(engine: ManuallyDrop<Engine>) {
    let (stopped, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        ManuallyDrop::into_inner(engine).stop();
        let _ = stopped.send(());
    });
    within_deadline(end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_engine_thread_is_told_and_ends_the_others() {
    let (mut engine, handle) = open(&Faulty::default());
    engine.inbox.push(Event::Input(Input::Durable(OpNumber(u64::MAX))));
    assert!(within_deadline(engine.failure()).await.contains("panicked"));
    assert_eq!(handle.queue(queue()).await.map(drop), Err(CallError::Stopped));
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_log_thread_is_told_and_leaves_nobody_waiting() {
    let storage = Faulty::default();
    let (mut engine, handle) = open(&storage);
    enqueue(&handle, 10).await.unwrap();
    storage.faults.panic_on_write.store(true, Ordering::SeqCst);
    let answer = within_deadline(handle.enqueue(queue(), vec![message(10)])).await;
    assert_eq!(answer.map(drop), Err(CallError::Stopped));
    assert!(within_deadline(engine.failure()).await.contains("panicked"));
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_last_group_finds_no_room_stops_without_it() {
    let storage = Faulty::default();
    let (engine, handle) = open(&storage);
    for _ in 0..8 {
        enqueue(&handle, 10).await.unwrap();
    }
    let leased = lease(&handle, 8).await;
    // The log will learn of it too late: only when it is in the last segment that there is.
    storage.disk.set_capacity(Some(1));
    let results: Vec<_> =
        leased.into_iter().map(|receipt| complete(receipt, Some(content(25_000)))).collect();
    let settler = handle.clone();
    let settling = tokio::spawn(async move { settler.settle(results).await });
    // The engine has taken them; the log has no room for them.
    within_deadline(async { while handle.queue(queue()).await.unwrap().stats.leased > 0 {} }).await;
    stops(engine).await;
    let answer = within_deadline(settling).await.unwrap();
    assert_eq!(answer, Err(CallError::Stopped), "what is not durable is not acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_stops_though_its_callers_do_not() {
    let (engine, handle) = open(&Faulty::default());
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { while handle.enqueue(queue(), vec![message(10)]).await.is_ok() {} })
        })
        .collect();
    within_deadline(async { while handle.queue(queue()).await.unwrap().stats.totals.accepted() < 100 {} })
        .await;
    stops(engine).await;
    for caller in callers {
        within_deadline(caller).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_stops_in_the_middle_of_a_paced_backlog() {
    let rate = Some(Rate { events: 500, per: Duration::from_secs(1) });
    let (engine, handle, _calls) = open_with(&Faulty::default(), pushing(1_000_000, rate));
    for _ in 0..60 {
        handle.enqueue(queue(), vec![message(10); 1000]).await.unwrap();
    }
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_nobody_will_make_are_given_back_untouched_and_no_more_are_pushed() {
    let (engine, handle, mut calls) = open_with(&Faulty::default(), pushing(100, None));
    for _ in 0..200 {
        enqueue(&handle, 10).await.unwrap();
    }
    let taken = within_deadline(calls.next()).await.unwrap().delivery.leased;
    drop(calls);
    let stats = within_deadline(async {
        loop {
            let stats = handle.queue(queue()).await.unwrap().stats;
            if stats.leased == 1 && stats.ready == 199 {
                break stats;
            }
        }
    })
    .await;
    assert_eq!(stats.predicted_wait, None, "nobody knows when it goes on");
    handle.call_ended(taken.receipt, CallOutcome::Succeeded { result: None });
    enqueue(&handle, 10).await.unwrap();
    assert_eq!(handle.queue(queue()).await.unwrap().stats.leased, 0);
    let wish = LeaseRequest { queue: queue(), max: 200, lease: None, wait: Duration::ZERO, consumer: None };
    let leased = handle.lease(wish).await.unwrap();
    assert!(leased.len() > 1, "workers are served all the same");
    for delivery in leased {
        let message = delivery.leased.message;
        assert_eq!((message.attempts, message.deliveries, message.history.len()), (0, 1, 0));
    }
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_were_being_read_when_nobody_waited_any_more_are_given_back() {
    let (engine, handle, mut calls) = open_with(&Faulty::default(), pushing(100, None));
    for _ in 0..100 {
        enqueue(&handle, 10).await.unwrap();
    }
    // Polled once and dropped, again and again: whatever a future had taken is back, or is still to come.
    for _ in 0..300 {
        if let Ok(Some(call)) = tokio::time::timeout(Duration::ZERO, calls.next()).await {
            handle.undelivered(call.delivery.leased.receipt);
        }
    }
    drop(calls);
    within_deadline(async {
        loop {
            let stats = handle.queue(queue()).await.unwrap().stats;
            if (stats.ready, stats.leased) == (100, 0) {
                break;
            }
        }
    })
    .await;
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_could_not_be_prepared_once_does_not_end_the_acceptance_of_work() {
    let storage = Faulty::default();
    let (engine, handle) = open(&storage);
    // The third segment is prepared once the second is entered.
    for _ in 0..10 {
        enqueue(&handle, 2000).await.unwrap();
    }
    storage.faults.failing_creations.store(1, Ordering::SeqCst);
    within_deadline(async {
        while storage.faults.failing_creations.load(Ordering::SeqCst) > 0 {
            // Refused at most until the next try.
            let _ = enqueue(&handle, 2000).await;
        }
        for _ in 0..100 {
            while enqueue(&handle, 2000).await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_of_which_nobody_knows_whether_it_stays_is_the_end_with_a_word_of_what_to_do() {
    let storage = Faulty::default();
    let (mut engine, handle) = open(&storage);
    enqueue(&handle, 2000).await.unwrap();
    storage.faults.unsynced_creations.store(true, Ordering::SeqCst);
    let mut accepted = 0;
    within_deadline(async {
        while handle.enqueue(queue(), vec![message(2000)]).await.is_ok() {
            accepted += 1;
        }
    })
    .await;
    let word = within_deadline(engine.failure()).await;
    assert!(word.contains("create segment 0000000") || word.contains("creating segment 0000000"), "{word}");
    assert!(word.contains("input/output error") && word.contains("restart to recover"), "{word}");
    stops(engine).await;
    storage.faults.unsynced_creations.store(false, Ordering::SeqCst);
    let (engine, handle) = open(&storage);
    let view = handle.queue(queue()).await.unwrap();
    assert!(view.stats.ready > accepted, "{} of {accepted} and one", view.stats.ready);
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_larger_than_the_log_takes_is_cut_and_stops_nothing() {
    let (engine, handle) = open(&Faulty::default());
    enqueue(&handle, 10).await.unwrap();
    let receipt = lease(&handle, 1).await.remove(0);
    let answer = handle.settle(vec![complete(receipt, Some(content(200_000)))]).await;
    assert_eq!(answer, Ok(vec![Ok(())]));
    let kept = handle.content(receipt.seq).await.unwrap().unwrap().body.len();
    assert!(kept > 1000, "{kept}");
    enqueue(&handle, 10).await.unwrap();
    stops(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_secret_is_gone_is_not_opened_with_another_one() {
    let storage = Faulty::default();
    let (engine, handle) = open(&storage);
    enqueue(&handle, 10).await.unwrap();
    stops(engine).await;
    storage.disk.take("secret");
    let declared = Declared::default();
    let disk: Arc<dyn Storage> = Arc::new(storage.clone());
    let randomness = Randomness { salt: [1; 32], secret: [9; 32], seed: 3 };
    let opened = restore(&disk, declared, SEGMENT_BYTES, &randomness, Clock::start().now());
    assert!(matches!(opened, Err(OpenError::SecretMissing)), "ids that were given out would mean nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_directory_whose_log_holds_nothing_is_not_taken_for_a_new_one() {
    let storage = Faulty::default();
    let (engine, handle) = open(&storage);
    enqueue(&handle, 10).await.unwrap();
    stops(engine).await;
    let disk: Arc<dyn Storage> = Arc::new(storage.clone());
    for name in storage.disk.names().iter().filter(|name| name.starts_with("0000")) {
        let length = storage.disk.bytes(name).len();
        storage.disk.zero(name, 0..length);
    }
    let randomness = Randomness { salt: [1; 32], secret: [9; 32], seed: 3 };
    let opened = restore(&disk, Declared::default(), SEGMENT_BYTES, &randomness, Clock::start().now());
    assert!(
        matches!(opened, Err(OpenError::Journal(_))),
        "what was acknowledged is gone, and somebody must know"
    );
}
