//! The loop of a running worker: one task decides, others carry its requests and run its handlers.
//!
//! Owns when to ask, to extend, to settle and to stop. Must never wait inside a decision: whatever takes time is a task
//! that ends in a [`Note`].

use super::backoff::{Backoff, passes};
use super::book::{Book, Extended, Held};
use super::outbox::{Ended, Outbox};
use super::{BATCH_MAX, Event, Message, Outcome, RunError, Summary, Worker};
use crate::client::ClientError;
use crate::types::{Extension, LeaseRequest, LeasedMessage, ReceiptAnswer, Settlement};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The shortest time that an answer to an extension is waited for.
const EXTEND_PATIENCE: Duration = Duration::from_secs(1);
/// The shortest time that an answer to a settlement is waited for.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// What a task has come to.
enum Note {
    /// A handler has ended.
    Ended { receipt: Arc<str>, outcome: Outcome, panicked: bool },
    /// The server has answered a wish for messages; `None`: it was withdrawn.
    Leased { began: Instant, answer: Option<Result<Vec<LeasedMessage>, ClientError>> },
    /// The server has answered settlements.
    Settled { batch: Vec<Ended>, answer: Result<Vec<ReceiptAnswer>, ClientError> },
    /// The server has answered extensions.
    Extended { receipts: Vec<Arc<str>>, sent: Instant, answer: Result<Vec<ReceiptAnswer>, ClientError> },
}

/// Whether new messages are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// No more; those in work may take their time.
    Finishing,
    /// No more; those in work are released when the time comes.
    Draining(Instant),
    /// They have been released.
    Released,
}

struct Run<H> {
    worker: Worker,
    handler: Arc<H>,
    tasks: JoinSet<Note>,
    book: Book,
    outbox: Outbox,
    summary: Summary,
    phase: Phase,
    refused: Option<ClientError>,
    /// Tells handlers that the worker was told to stop.
    draining: CancellationToken,
    /// Withdraws the wish for messages that is under way.
    polling: Option<CancellationToken>,
    polls: Backoff,
    /// Empty answers that came at once.
    idle: Backoff,
    poll_at: Instant,
    /// With `until_empty`: nothing was there; ask again once something here has ended.
    asleep: bool,
    /// Settlements on their way.
    settling: usize,
    settles: Backoff,
    settle_at: Instant,
    extending: bool,
    extends: Backoff,
}

/// Runs `worker` until it is over.
pub(super) async fn run<H, F, O>(
    worker: Worker,
    handler: H,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, RunError>
where
    H: Fn(Message) -> F + Send + Sync + 'static,
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome>,
{
    let mut run = Run::new(worker, handler);
    let mut shutdown = pin!(shutdown);
    let mut told = false;
    loop {
        run.step(Instant::now());
        if run.is_over() {
            break;
        }
        let wake = run.next();
        tokio::select! {
            biased;
            () = &mut shutdown, if !told => {
                told = true;
                run.drain(Instant::now());
            }
            Some(joined) = run.tasks.join_next() => {
                let mut next = Some(joined);
                while let Some(joined) = next {
                    match joined {
                        Ok(note) => run.take(note, Instant::now()),
                        // A handler that was dropped: its message has been released.
                        Err(error) if error.is_cancelled() => {}
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    }
                    next = run.tasks.try_join_next();
                }
            }
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            else => break,
        }
    }
    run.refused.map_or(Ok(run.summary), |error| Err(RunError::Refused(error)))
}

impl<H, F, O> Run<H>
where
    H: Fn(Message) -> F + Send + Sync + 'static,
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome>,
{
    fn new(worker: Worker, handler: H) -> Self {
        let now = Instant::now();
        let lease = worker.settings.lease;
        Self {
            worker,
            handler: Arc::new(handler),
            tasks: JoinSet::new(),
            book: Book::new(lease),
            outbox: Outbox::default(),
            summary: Summary::default(),
            phase: Phase::Running,
            refused: None,
            draining: CancellationToken::new(),
            polling: None,
            polls: Backoff::default(),
            idle: Backoff::default(),
            poll_at: now,
            asleep: false,
            settling: 0,
            settles: Backoff::default(),
            settle_at: now,
            extending: false,
            extends: Backoff::default(),
        }
    }

    fn tell(&self, event: Event<'_>) {
        (self.worker.observer)(event);
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        self.phase != Phase::Running && self.is_idle() && self.polling.is_none()
    }

    /// Whether nothing is in work and everything is settled.
    fn is_idle(&self) -> bool {
        self.book.len() == 0 && self.outbox.len() == 0 && self.settling == 0
    }

    /// Does everything that can be done at `now`.
    fn step(&mut self, now: Instant) {
        if let Phase::Draining(deadline) = self.phase
            && deadline <= now
        {
            self.release_all();
        }
        self.extend(now);
        self.settle(now);
        if self.phase == Phase::Running {
            self.poll(now);
        } else if self.is_idle()
            && let Some(polling) = &self.polling
        {
            // The server hands nothing to who has left.
            polling.cancel();
        }
    }

    /// When to look again, if nothing happens before.
    fn next(&self) -> Option<Instant> {
        let deadline = match self.phase {
            Phase::Draining(deadline) => Some(deadline),
            _ => None,
        };
        let settle = (self.settling == 0 && self.outbox.len() > 0).then_some(self.settle_at);
        let give_up = self.outbox.next().filter(|_| self.settles.is_failing() && self.settling == 0);
        let poll =
            (self.phase == Phase::Running && self.polling.is_none() && !self.asleep && self.free() > 0)
                .then_some(self.poll_at);
        [deadline, settle, give_up, poll, self.book.next()].into_iter().flatten().min()
    }

    /// How many messages may come.
    fn free(&self) -> usize {
        let concurrency = self.worker.settings.concurrency;
        let working = self.book.len();
        // What has ended and is not settled yet is bounded too.
        let open = working + self.outbox.len() + self.settling;
        let free = concurrency.saturating_sub(working).min((2 * concurrency).saturating_sub(open));
        let limit = self.worker.settings.limit.map(|limit| limit.saturating_sub(self.summary.started));
        let left = limit.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        free.min(left).min(BATCH_MAX)
    }

    fn poll(&mut self, now: Instant) {
        if self.worker.settings.limit.is_some_and(|limit| self.summary.started >= limit) {
            self.phase = Phase::Finishing;
            return;
        }
        let free = self.free();
        if self.polling.is_some() || self.asleep || free == 0 || self.poll_at > now {
            return;
        }
        let settings = &self.worker.settings;
        let wait = if settings.until_empty { Duration::ZERO } else { settings.wait };
        let wish = LeaseRequest {
            max: Some(u32::try_from(free).unwrap_or(u32::MAX)),
            lease_seconds: Some(settings.lease.as_secs_f64()),
            wait_seconds: Some(wait.as_secs_f64()),
            consumer: Some(settings.consumer.clone()),
        };
        let (client, queue) = (self.worker.client.clone(), settings.queue.clone());
        let withdrawn = CancellationToken::new();
        self.polling = Some(withdrawn.clone());
        self.tasks.spawn(async move {
            let answer = tokio::select! {
                // An answer that is there already counts.
                biased;
                answer = client.lease(&queue, &wish) => Some(answer.map(|leases| leases.messages)),
                () = withdrawn.cancelled() => None,
            };
            Note::Leased { began: now, answer }
        });
    }

    fn settle(&mut self, now: Instant) {
        if self.settling > 0 || self.outbox.len() == 0 {
            return;
        }
        if self.settles.is_failing() {
            for ended in self.outbox.given_up(now) {
                self.lose(&ended);
            }
        }
        if self.settle_at > now {
            return;
        }
        let batch = self.outbox.batch();
        if batch.is_empty() {
            return;
        }
        self.settling = batch.len();
        let client = self.worker.client.clone();
        let patience = (self.worker.settings.lease / 3).max(SETTLE_PATIENCE);
        self.tasks.spawn(async move {
            let settlements: Vec<Settlement> =
                batch.iter().map(|ended| ended.outcome.settlement(&ended.receipt)).collect();
            let answer = timeout(patience, client.settle(&settlements)).await;
            let answer = answer.unwrap_or_else(|_| Err(timed_out(client.address(), patience)));
            Note::Settled { batch, answer }
        });
    }

    fn extend(&mut self, now: Instant) {
        let (receipts, over) = self.book.due(now, !self.extending, BATCH_MAX);
        for id in over {
            self.tell(Event::Lost { id: &id, outcome: None });
        }
        if receipts.is_empty() {
            return;
        }
        self.extending = true;
        let client = self.worker.client.clone();
        let lease = self.worker.settings.lease;
        let patience = (lease / 4).max(EXTEND_PATIENCE);
        self.tasks.spawn(async move {
            let lease_seconds = lease.as_secs_f64();
            let wishes: Vec<Extension> = receipts
                .iter()
                .map(|receipt| Extension { receipt: receipt.to_string(), lease_seconds })
                .collect();
            let sent = Instant::now();
            let answer = timeout(patience, client.extend(&wishes)).await;
            let answer = answer.unwrap_or_else(|_| Err(timed_out(client.address(), patience)));
            Note::Extended { receipts, sent, answer }
        });
    }

    /// Takes no new messages; those in work have until the drain is over.
    fn drain(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Running | Phase::Finishing) {
            self.phase = Phase::Draining(now + self.worker.settings.drain);
            self.tell(Event::Draining { working: self.book.len() });
            self.draining.cancel();
        }
    }

    /// Gives back what is still in work.
    fn release_all(&mut self) {
        self.phase = Phase::Released;
        for (receipt, held) in self.book.end_all() {
            if let Some(task) = &held.task {
                task.abort();
            }
            self.note_end(receipt, held, Outcome::release());
        }
    }

    fn note_end(&mut self, receipt: Arc<str>, held: Held, outcome: Outcome) {
        self.tell(Event::Ended { id: &held.id, outcome: &outcome });
        let lease = self.worker.settings.lease;
        self.outbox.push(Ended::new(receipt, held.id, outcome, held.started.elapsed(), held.until, lease));
    }

    fn lose(&mut self, ended: &Ended) {
        self.summary.lost += 1;
        self.tell(Event::Lost { id: &ended.id, outcome: Some(&ended.outcome) });
    }

    fn take(&mut self, note: Note, now: Instant) {
        match note {
            Note::Ended { receipt, outcome, panicked } => {
                // If it is not there, it was released while its handler came to an end.
                if let Some(held) = self.book.end(&receipt) {
                    self.summary.panicked += u64::from(panicked);
                    self.note_end(receipt, held, outcome);
                }
            }
            Note::Leased { began, answer } => {
                self.polling = None;
                match answer {
                    None => {}
                    Some(Ok(messages)) => self.leased(messages, began, now),
                    Some(Err(error)) => self.not_leased(error, now),
                }
            }
            Note::Settled { batch, answer } => {
                self.settling = 0;
                self.asleep = false;
                match answer {
                    Ok(answers) if answers.len() == batch.len() => {
                        self.recovered(|run| &mut run.settles);
                        for (ended, answer) in batch.into_iter().zip(&answers) {
                            self.settled(ended, answer);
                        }
                    }
                    Ok(answers) => {
                        let error = miscounted(self.worker.client.address(), batch.len(), answers.len());
                        self.not_settled(batch, &error, now);
                    }
                    Err(error) => self.not_settled(batch, &error, now),
                }
            }
            Note::Extended { receipts, sent, answer } => self.extended(&receipts, sent, answer, now),
        }
    }

    fn recovered(&mut self, backoff: impl Fn(&mut Self) -> &mut Backoff) {
        if backoff(self).succeeded() {
            self.tell(Event::Recovered);
        }
    }

    fn leased(&mut self, messages: Vec<LeasedMessage>, began: Instant, now: Instant) {
        self.recovered(|run| &mut run.polls);
        let settings = &self.worker.settings;
        if !messages.is_empty() {
            self.idle.succeeded();
            for leased in messages {
                self.begin(leased, now);
            }
        } else if settings.until_empty && self.phase == Phase::Running {
            if self.is_idle() {
                self.phase = Phase::Finishing;
            } else {
                self.asleep = true;
            }
        } else if now - began < settings.wait / 2 || settings.wait.is_zero() {
            // A server that is stopping sends everybody home at once.
            self.poll_at = now + self.idle.failed(None, fastrand::f64());
        } else {
            self.idle.succeeded();
        }
    }

    fn not_leased(&mut self, error: ClientError, now: Instant) {
        if self.phase != Phase::Running {
            return;
        }
        if passes(&error) {
            let pause = self.polls.failed(error.retry_after(), fastrand::f64());
            self.poll_at = now + pause;
            self.tell(Event::Failed { request: "lease", error: &error, pause });
        } else {
            self.refused = Some(error);
            self.drain(now);
        }
    }

    /// Gives a message to the handler, or back if none are taken any more.
    fn begin(&mut self, leased: LeasedMessage, now: Instant) {
        let receipt: Arc<str> = Arc::from(leased.receipt.as_str());
        let id = leased.id.clone();
        let lost = CancellationToken::new();
        let message = Message::new(leased, lost.clone(), self.draining.clone());
        let lease = self.worker.settings.lease;
        let at_once = match &message {
            Ok(_) if self.phase == Phase::Running => None,
            Ok(_) => Some(Outcome::release()),
            Err(error) => Some(Outcome::retry(format!("the worker cannot read the body: {error}"))),
        };
        let (message, outcome) = (message.ok(), at_once);
        let (Some(message), None) = (message, &outcome) else {
            let outcome = outcome.unwrap_or_else(Outcome::release);
            self.outbox.push(Ended::new(receipt, id, outcome, Duration::ZERO, now + lease, lease));
            return;
        };
        self.summary.started += 1;
        self.tell(Event::Started { message: &message });
        self.book.begin(Arc::clone(&receipt), id, lost, now);
        let (handler, of) = (Arc::clone(&self.handler), Arc::clone(&receipt));
        let task = self.tasks.spawn(async move {
            let ended = caught(async move { handler(message).await.into() }).await;
            let panicked = ended.is_err();
            let outcome =
                ended.unwrap_or_else(|panic| Outcome::retry(format!("the handler panicked: {panic}")));
            Note::Ended { receipt: of, outcome, panicked }
        });
        self.book.set_task(&receipt, task);
    }

    fn settled(&mut self, ended: Ended, answer: &ReceiptAnswer) {
        match answer.status {
            200 => {
                let count = match ended.outcome {
                    Outcome::Complete { .. } => &mut self.summary.completed,
                    Outcome::Retry { .. } => &mut self.summary.retried,
                    Outcome::Dead { .. } => &mut self.summary.dead,
                    Outcome::Release { .. } => &mut self.summary.released,
                };
                *count += 1;
                self.tell(Event::Settled { id: &ended.id, outcome: &ended.outcome, took: ended.took });
            }
            409 => self.lose(&ended),
            _ => {
                let reason = answer.error.as_ref().map_or("no reason given", |problem| &problem.detail);
                self.refuse(ended, reason);
            }
        }
    }

    fn not_settled(&mut self, batch: Vec<Ended>, error: &ClientError, now: Instant) {
        if passes(error) {
            let pause = self.settles.failed(error.retry_after(), fastrand::f64());
            // Later would be too late for what is to be said.
            let pause = pause.min(self.worker.settings.lease / 4);
            self.settle_at = now + pause;
            self.outbox.put_back(batch);
            self.tell(Event::Failed { request: "settle", error, pause });
        } else if batch.len() > 1 {
            self.outbox.put_back(batch.into_iter().map(|ended| Ended { alone: true, ..ended }).collect());
        } else {
            let reason = error.to_string();
            for ended in batch {
                self.refuse(ended, &reason);
            }
        }
    }

    fn refuse(&mut self, ended: Ended, reason: &str) {
        self.tell(Event::Refused { id: &ended.id, reason });
        let last = ended.clone();
        match ended.substituted(reason) {
            Some(substitute) => self.outbox.push(substitute),
            None => self.lose(&last),
        }
    }

    fn extended(
        &mut self,
        receipts: &[Arc<str>],
        sent: Instant,
        answer: Result<Vec<ReceiptAnswer>, ClientError>,
        now: Instant,
    ) {
        self.extending = false;
        let answer = match answer {
            Ok(answers) if answers.len() == receipts.len() => Ok(answers),
            Ok(answers) => Err(miscounted(self.worker.client.address(), receipts.len(), answers.len())),
            Err(error) => Err(error),
        };
        match answer {
            Ok(answers) => {
                self.recovered(|run| &mut run.extends);
                for (receipt, answer) in receipts.iter().zip(&answers) {
                    let answer = match answer.status {
                        200 => Extended::Yes,
                        409 => Extended::Lost,
                        _ => Extended::NoLonger,
                    };
                    if let Some(id) = self.book.extended(receipt, answer, sent) {
                        self.tell(Event::Lost { id: &id, outcome: None });
                    }
                }
            }
            Err(error) => {
                let pause = self.extends.failed(error.retry_after(), fastrand::f64());
                let pause = pause.min(self.worker.settings.lease / 8);
                for receipt in receipts {
                    self.book.extended(receipt, Extended::Unanswered { again: now + pause }, sent);
                }
                self.tell(Event::Failed { request: "extend", error: &error, pause });
            }
        }
        self.book.look(true);
    }
}

fn timed_out(address: &str, after: Duration) -> ClientError {
    ClientError::TimedOut { address: address.to_owned(), after }
}

fn miscounted(address: &str, asked: usize, answered: usize) -> ClientError {
    let reason = format!("{answered} answers to {asked} receipts");
    ClientError::Protocol { address: address.to_owned(), reason }
}

/// `future`, or the words of its panic.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    // A handler that panicked is not polled again; what it shares with others, its author answers for.
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(words(&*panic))),
    })
    .await
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}
