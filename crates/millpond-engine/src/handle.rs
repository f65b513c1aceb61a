//! The asynchronous face of the engine: what a server, or a program that embeds it, calls.
//!
//! Owns the hand-over of a command to the engine thread and of its answer back. Must never hold a queue rule.

use crate::content::Stored;
use crate::inbox::{Event, Inbox};
use crate::stats::JournalStats;
use crate::threads::hand_outs;
use millpond_core::command::{
    Accepted, CallOutcome, CancelError, Command, DefineError, EnqueueError, Input, LeaseRequest, Leased,
    LookupError, NewMessage, QueueError, QueueView, ReplayError, Reply, RequestId, SettleError,
    SettleOutcome, Settlement, Status, TargetError, TargetNumber,
};
use millpond_core::identity::{Keys, Receipt, Seq};
use millpond_core::message::{Failure, Phase, Progress, SharedContent};
use millpond_core::name::Name;
use millpond_core::replay::{ReplayList, ReplayPlan, ReplayTask, ReplayWish};
use millpond_core::settings::QueueSettings;
use millpond_core::stats::TargetStats;
use millpond_core::time::Wall;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError<E> {
    /// The engine answered no, for a reason of the queue's rules.
    #[error(transparent)]
    Refused(#[from] E),
    /// More calls are under way than the engine takes; come back in a second.
    #[error("more calls are under way than the engine takes")]
    Overloaded,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// An answer of the engine thread, with the places of the bytes that belong to it.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub reply: Reply,
    /// For hand-outs, one per message.
    pub contents: Vec<Stored>,
}

/// A message handed out, with its bytes.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The hand-out.
    pub leased: Leased,
    /// The bytes.
    pub content: SharedContent,
}

/// A call that a push target shall get. [`Handle::call_ended`] must follow.
#[derive(Debug, Clone)]
pub struct Call {
    /// The target.
    pub target: TargetNumber,
    /// The message.
    pub delivery: Delivery,
    /// When it was decided.
    pub decided: Instant,
}

/// The calls to make, in the order in which the engine decided them.
#[derive(Debug)]
pub struct Calls {
    /// Decided and read, but not asked for yet.
    ready: VecDeque<Call>,
    receiver: mpsc::UnboundedReceiver<(TargetNumber, Leased, Stored, Instant)>,
    handle: Handle,
}

impl Calls {
    pub(crate) fn new(
        receiver: mpsc::UnboundedReceiver<(TargetNumber, Leased, Stored, Instant)>,
        handle: Handle,
    ) -> Self {
        Self { ready: VecDeque::new(), receiver, handle }
    }

    /// The next call; `None` once the engine has stopped. A message whose bytes cannot be read counts as a failed
    /// call. Calls that it was reading when its future is dropped are given back.
    pub async fn next(&mut self) -> Option<Call> {
        loop {
            if let Some(call) = self.ready.pop_front() {
                return Some(call);
            }
            let mut decided = Vec::new();
            if self.receiver.recv_many(&mut decided, READ_TOGETHER).await == 0 {
                return None;
            }
            let mut unread = TakeBackOnDrop { handle: &self.handle, leased: VecDeque::new() };
            let (mut targets, mut places) = (Vec::new(), Vec::new());
            for (target, leased, stored, decided) in decided {
                targets.push((target, decided));
                unread.leased.push_back(leased);
                places.push(stored);
            }
            let contents = self.handle.load_all(places).await;
            for (((target, decided), leased), content) in
                targets.into_iter().zip(unread.leased.drain(..)).zip(contents)
            {
                match content {
                    Some(content) => {
                        self.ready.push_back(Call {
                            target,
                            delivery: Delivery { leased, content },
                            decided,
                        });
                    }
                    None => self.handle.call_ended(leased.receipt, unreadable()),
                }
            }
        }
    }
}

impl Drop for Calls {
    /// What nobody will call is given back, untouched, and nothing more is pushed.
    fn drop(&mut self) {
        self.handle.shared.inbox.push(Event::Input(Input::Unattended));
        for call in self.ready.drain(..) {
            self.handle.undelivered(call.delivery.leased.receipt);
        }
        self.receiver.close();
        while let Ok((_, leased, ..)) = self.receiver.try_recv() {
            self.handle.undelivered(leased.receipt);
        }
    }
}

/// A cheap-to-clone handle on a running engine.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inbox: Inbox,
    requests: AtomicU64,
    keys: Keys,
    /// The largest content that the log takes in one piece.
    content_bytes_max: u64,
    /// Bounds the reads from disk under way at once.
    readers: Semaphore,
}

/// Messages whose bytes are read together for their calls.
const READ_TOGETHER: usize = 64;
/// Reads from disk under way at once.
const READERS: usize = 8;

/// A call under way. If its asker leaves before the answer has come, the engine hears of it; hand-outs that were
/// already in the answer are taken back.
struct Asking<'handle> {
    inbox: &'handle Inbox,
    request: RequestId,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.answer.close();
        match self.answer.try_recv() {
            Ok(answer) => {
                for leased in hand_outs(answer) {
                    self.inbox.push(Event::Input(Input::Undelivered(leased.receipt)));
                }
            }
            Err(_) => self.inbox.push(Event::Input(Input::Abandon(self.request))),
        }
    }
}

impl Handle {
    pub(crate) fn new(inbox: Inbox, keys: Keys, content_bytes_max: u64) -> Self {
        let requests = AtomicU64::new(1);
        let readers = Semaphore::new(READERS);
        let shared = Shared { inbox, requests, keys, content_bytes_max, readers };
        Self { shared: Arc::new(shared) }
    }

    /// The keys that seal ids, receipts and tokens.
    pub fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    async fn ask<E>(&self, command: Command) -> Result<Answer, CallError<E>> {
        let request = RequestId(self.shared.requests.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        if !self.shared.inbox.ask(request, command, sender) {
            return Err(CallError::Overloaded);
        }
        let mut asking = Asking { inbox: &self.shared.inbox, request, answer: receiver, answered: false };
        let answer = (&mut asking.answer).await;
        asking.answered = true;
        answer.map_err(|_| CallError::Stopped)
    }

    /// The bytes of many hand-outs: at once if none of them has to wait for the disk, else with one hop to a reader
    /// for all.
    async fn load_all(&self, stored: Vec<Stored>) -> Vec<Option<SharedContent>> {
        let cached = |stored: &Stored| match stored {
            Stored::Disk(disk) => disk.read_cached(),
            other => Some(other.clone()),
        };
        if let Some(all) = stored.iter().map(cached).collect::<Option<Vec<Stored>>>() {
            return all.iter().map(Stored::read).collect();
        }
        let count = stored.len();
        let Ok(_permit) = self.shared.readers.acquire().await else { return vec![None; count] };
        let read = move || stored.iter().map(Stored::read).collect();
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![None; count])
    }

    /// Accepts messages, each for itself; returns once every accepted one is durable.
    pub async fn enqueue(
        &self,
        queue: Name,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Result<Accepted, EnqueueError>>, CallError<EnqueueError>> {
        let max_bytes = self.shared.content_bytes_max;
        if messages.iter().any(|message| message.content.size_bytes() > max_bytes) {
            return Err(CallError::Refused(EnqueueError::TooLarge { max_bytes }));
        }
        match self.ask(Command::Enqueue { queue, messages }).await?.reply {
            Reply::Enqueued(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Hands out messages to a worker, waiting for the first one as long as the request says. If the future is
    /// dropped, nothing is handed out, or taken back without counting as a delivery.
    ///
    /// # Panics
    /// If the engine's answer is malformed, which is a bug.
    pub async fn lease(&self, request: LeaseRequest) -> Result<Vec<Delivery>, CallError<QueueError>> {
        let answer = self.ask(Command::Lease(request)).await?;
        let Reply::Leased(result) = answer.reply else { unexpected(&answer.reply) };
        let mut pending = TakeBackOnDrop { handle: self, leased: result?.into_iter().collect() };
        let mut deliveries = Vec::with_capacity(pending.leased.len());
        for content in self.load_all(answer.contents).await {
            let leased = pending.leased.pop_front().expect("one content per hand-out");
            match content {
                Some(content) => deliveries.push(Delivery { leased, content }),
                // It counts as a failed attempt: were it only taken back, it would stay in front of its queue and
                // come again at once, for ever.
                None => self.call_ended(leased.receipt, unreadable()),
            }
        }
        Ok(deliveries)
    }

    /// Takes back a hand-out that did not reach its worker; it does not count as a delivery.
    pub fn undelivered(&self, receipt: Receipt) {
        self.shared.inbox.push(Event::Input(Input::Undelivered(receipt)));
    }

    /// Prolongs leases to so long from now; one answer each, in order.
    pub async fn extend(
        &self,
        leases: Vec<(Receipt, Duration)>,
    ) -> Result<Vec<Result<Wall, SettleError>>, CallError<Infallible>> {
        match self.ask(Command::Extend(leases)).await?.reply {
            Reply::Extended(results) => Ok(results),
            other => unexpected(&other),
        }
    }

    /// Settles hand-outs; returns once every settlement is durable. One answer each, in order.
    pub async fn settle(
        &self,
        mut settlements: Vec<Settlement>,
    ) -> Result<Vec<Result<(), SettleError>>, CallError<Infallible>> {
        for settlement in &mut settlements {
            if let SettleOutcome::Complete { result: Some(result) } = &mut settlement.outcome {
                self.cut(result);
            }
        }
        match self.ask(Command::Settle(settlements)).await?.reply {
            Reply::Settled(results) => Ok(results),
            other => unexpected(&other),
        }
    }

    /// Withdraws a message that nobody has.
    pub async fn cancel(&self, seq: Seq) -> Result<Status, CallError<CancelError>> {
        match self.ask(Command::Cancel(seq)).await?.reply {
            Reply::Cancelled(result) => Ok(*result?),
            other => unexpected(&other),
        }
    }

    /// A message's status; with `wait`, once it is terminal or the time is over.
    pub async fn status(&self, seq: Seq, wait: Option<Duration>) -> Result<Status, CallError<LookupError>> {
        match self.ask(Command::Status { seq, wait }).await?.reply {
            Reply::Status(result) => Ok(*result?),
            other => unexpected(&other),
        }
    }

    /// A message's status as soon as it is further than `known`, at once if `known` is `None`, or after `wait`.
    pub async fn follow(
        &self,
        seq: Seq,
        known: Option<Progress>,
        wait: Duration,
    ) -> Result<Status, CallError<LookupError>> {
        match self.ask(Command::Follow { seq, known, wait }).await?.reply {
            Reply::Status(result) => Ok(*result?),
            other => unexpected(&other),
        }
    }

    /// The bytes kept of a message: its own, or its result's once it has succeeded; `None` if there are none.
    pub async fn content(&self, seq: Seq) -> Result<Option<SharedContent>, CallError<Infallible>> {
        let (sender, receiver) = oneshot::channel();
        self.shared.inbox.push(Event::Locate { seq, answer: sender });
        let stored = receiver.await.map_err(|_| CallError::Stopped)?;
        Ok(self.load_all(vec![stored]).await.pop().flatten())
    }

    /// Lists messages of a queue; see [`Command::List`].
    pub async fn list(
        &self,
        queue: Name,
        phase: Option<Phase>,
        after: Option<Seq>,
        limit: usize,
    ) -> Result<(Vec<Status>, Option<Seq>), CallError<QueueError>> {
        match self.ask(Command::List { queue, phase, after, limit }).await?.reply {
            Reply::Messages(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Every queue by name, every target.
    pub async fn overview(&self) -> Result<(Vec<QueueView>, Vec<TargetStats>), CallError<Infallible>> {
        match self.ask(Command::Overview).await?.reply {
            Reply::Overview(queues, targets) => Ok((queues, targets)),
            other => unexpected(&other),
        }
    }

    /// One queue.
    pub async fn queue(&self, queue: Name) -> Result<QueueView, CallError<QueueError>> {
        match self.ask(Command::Queue(queue)).await?.reply {
            Reply::Queue(result) => Ok(*result?),
            other => unexpected(&other),
        }
    }

    /// Every target.
    pub async fn targets(&self) -> Result<Vec<TargetStats>, CallError<Infallible>> {
        match self.ask(Command::Targets).await?.reply {
            Reply::Targets(targets) => Ok(targets),
            other => unexpected(&other),
        }
    }

    /// One target.
    pub async fn target(&self, target: Name) -> Result<TargetStats, CallError<TargetError>> {
        self.about_target(Command::Target(target)).await
    }

    /// Closes a target's breaker; nothing, if it is closed or has none.
    pub async fn reset_target(&self, target: Name) -> Result<TargetStats, CallError<TargetError>> {
        self.about_target(Command::ResetTarget(target)).await
    }

    async fn about_target(&self, command: Command) -> Result<TargetStats, CallError<TargetError>> {
        match self.ask(command).await?.reply {
            Reply::Target(result) => Ok(*result?),
            other => unexpected(&other),
        }
    }

    /// Creates a queue (`true`) or changes its settings (`false`).
    pub async fn define(&self, queue: Name, settings: QueueSettings) -> Result<bool, CallError<DefineError>> {
        match self.ask(Command::Define { queue, settings: Box::new(settings) }).await?.reply {
            Reply::Defined(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Deletes a queue that holds nothing unfinished.
    pub async fn delete(&self, queue: Name) -> Result<(), CallError<DefineError>> {
        match self.ask(Command::Delete(queue)).await?.reply {
            Reply::Deleted(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Pauses or resumes a queue; survives a restart.
    pub async fn pause(&self, queue: Name, paused: bool) -> Result<(), CallError<QueueError>> {
        match self.ask(Command::Pause { queue, paused }).await?.reply {
            Reply::Paused(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Ends everything that waits in a queue as cancelled; how many messages that was.
    pub async fn purge(&self, queue: Name) -> Result<u64, CallError<QueueError>> {
        match self.ask(Command::Purge(queue)).await?.reply {
            Reply::Purged(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Starts putting dead letters back to work, or only counts them.
    pub async fn replay(
        &self,
        queue: Name,
        wish: ReplayWish,
        dry_run: bool,
    ) -> Result<ReplayPlan, CallError<ReplayError>> {
        match self.ask(Command::Replay { queue, wish, dry_run }).await?.reply {
            Reply::ReplayStarted(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// The remembered replays of a queue.
    pub async fn replays(&self, queue: Name) -> Result<ReplayList, CallError<QueueError>> {
        match self.ask(Command::Replays(queue)).await?.reply {
            Reply::Replays(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Ends a replay before its time; the task as it then stands.
    pub async fn cancel_replay(
        &self,
        queue: Name,
        number: u32,
    ) -> Result<ReplayTask, CallError<ReplayError>> {
        match self.ask(Command::CancelReplay { queue, number }).await?.reply {
            Reply::ReplayCancelled(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Forgets a dead letter.
    pub async fn delete_dead(&self, queue: Name, seq: Seq) -> Result<(), CallError<ReplayError>> {
        match self.ask(Command::DeleteDead { queue, seq }).await?.reply {
            Reply::DeadDeleted(result) => Ok(result?),
            other => unexpected(&other),
        }
    }

    /// Cuts a result to what the log takes in one piece, whatever its queue allows: a larger one would stop the log.
    fn cut(&self, result: &mut SharedContent) {
        let excess = result.size_bytes().saturating_sub(self.shared.content_bytes_max);
        if excess > 0 {
            let result = Arc::make_mut(result);
            let kept = result.body.len().saturating_sub(usize::try_from(excess).unwrap_or(usize::MAX));
            result.body.truncate(kept);
        }
    }

    /// Says how a call of [`Calls`] ended.
    pub fn call_ended(&self, receipt: Receipt, mut outcome: CallOutcome) {
        if let CallOutcome::Succeeded { result: Some(result) } = &mut outcome {
            self.cut(result);
        }
        self.shared.inbox.push(Event::Input(Input::CallEnded { receipt, outcome }));
    }

    /// From now on new work is refused and nothing is handed out; running work may finish.
    pub fn drain(&self) {
        self.shared.inbox.push(Event::Input(Input::Drain));
    }

    /// How the log is doing.
    pub fn journal(&self) -> JournalStats {
        self.shared.inbox.journal().clone()
    }
}

/// Gives back, on drop, the hand-outs whose bytes were still being read when the asker left.
struct TakeBackOnDrop<'handle> {
    handle: &'handle Handle,
    leased: VecDeque<Leased>,
}

impl Drop for TakeBackOnDrop<'_> {
    fn drop(&mut self) {
        for leased in self.leased.drain(..) {
            self.handle.undelivered(leased.receipt);
        }
    }
}

/// How a hand-out ends whose bytes cannot be read: after some attempts it is a dead letter that says why.
fn unreadable() -> CallOutcome {
    let failure =
        Failure::new(Failure::UNREADABLE, "the message's bytes cannot be read from the journal", None);
    CallOutcome::Failed { failure, timed_out: false }
}

fn unexpected(reply: &Reply) -> ! {
    unreachable!("the engine answered another question: {reply:?}")
}
