//! The door for autoscalers: KEDA's external scaler over gRPC.
//!
//! Owns what is answered, and the streams that say when a queue has work. Must never compute a signal: that is the
//! core's, and the engine's word counts.

#[rustfmt::skip]
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
mod externalscaler;
pub(crate) mod arrivals;
mod listener;
mod wish;

pub(crate) use listener::accept;

use crate::connections::Closing;
use crate::shared::Shared;
use arrivals::{Arrivals, Watch};
use externalscaler::external_scaler_server::{ExternalScaler, ExternalScalerServer};
use externalscaler::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec, MetricValue,
    ScaledObjectRef,
};
use futures_util::Stream;
use futures_util::stream;
use millpond_core::command::QueueView;
use millpond_core::name::Name;
use millpond_engine::handle::CallError;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use wish::Wish;

/// Streams open at once. Each is a trigger of a workload.
const STREAMS_MAX: usize = 10_000;
/// Largest question, in bytes: a name, a namespace and some metadata.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// How often a stream looks whether anything has changed, apart from work that arrives: that it hears of.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Work that arrives below the activation does not make a stream look more often than this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The answers.
#[derive(Debug, Clone)]
pub(crate) struct Scaler {
    shared: Arc<Shared>,
    streams: Arc<Semaphore>,
    seen: Arc<Mutex<Seen>>,
    closing: watch::Receiver<Closing>,
}

/// All queues as they were lately: however many streams there are, the engine is asked once a second.
#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    queues: Arc<HashMap<Name, QueueView>>,
}

type Activity = Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;

/// What goes on from event to event of a stream.
struct Watching {
    scaler: Scaler,
    wish: Wish,
    arrivals: Watch,
    told: Option<bool>,
    looked: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Scaler {
    /// Answers about the queues of `shared`; streams end when `closing` says so.
    pub(crate) fn new(shared: Arc<Shared>, closing: watch::Receiver<Closing>) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        Self { shared, streams, seen: Arc::default(), closing }
    }

    /// As a service.
    fn service(self) -> ExternalScalerServer<Self> {
        ExternalScalerServer::new(self).max_decoding_message_size(QUESTION_BYTES_MAX)
    }

    /// The queue as it is.
    async fn look(&self, queue: &Name) -> Result<QueueView, Status> {
        self.shared.handle.queue(queue.clone()).await.map_err(|error| match error {
            CallError::Refused(_) => unknown(queue),
            CallError::Overloaded | CallError::Stopped => Status::unavailable(error.to_string()),
        })
    }

    async fn ask(&self, object: Option<&ScaledObjectRef>) -> Result<(Wish, QueueView), Status> {
        let wish = wish(object)?;
        let view = self.look(&wish.queue).await?;
        Ok((wish, view))
    }

    /// The queue as it was within the last second, and when that was.
    async fn seen_lately(&self, queue: &Name) -> Result<(Instant, QueueView), Status> {
        let mut seen = self.seen.lock().await;
        let at = match seen.at {
            Some(at) if at.elapsed() < LOOK_EVERY => at,
            _ => {
                // What is answered is no older than the question.
                let at = Instant::now();
                let queues = self.shared.handle.overview().await;
                let (queues, _) = queues.map_err(|error| Status::unavailable(error.to_string()))?;
                seen.queues = Arc::new(queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect());
                *seen.at.insert(at)
            }
        };
        let queues = Arc::clone(&seen.queues);
        drop(seen);
        Ok((at, queues.get(queue).cloned().ok_or_else(|| unknown(queue))?))
    }
}

fn wish(object: Option<&ScaledObjectRef>) -> Result<Wish, Status> {
    let object = object.ok_or_else(|| Status::invalid_argument("the question names no scaled object"))?;
    Wish::read(&object.scaler_metadata).map_err(|error| {
        Status::invalid_argument(format!("scaled object {}/{}: {error}", object.namespace, object.name))
    })
}

fn unknown(queue: &Name) -> Status {
    Status::not_found(format!("there is no queue {queue}; create it, or correct the trigger's metadata"))
}

/// As the older fields of the wire say it: whole, and not less than it is.
fn whole(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let whole = value.ceil() as i64;
    whole
}

impl Watching {
    /// The next event: at once the first time, then when it changes. After an error, and when the server stops,
    /// nothing follows.
    async fn next(mut self) -> Option<(Result<IsActiveResponse, Status>, Option<Self>)> {
        let mut closing = self.scaler.closing.clone();
        let change = tokio::select! {
            _ = closing.wait_for(|&closing| closing > Closing::Not) => return None,
            change = self.change() => change,
        };
        Some(match change {
            Ok(result) => (Ok(IsActiveResponse { result }), Some(self)),
            Err(status) => (Err(status), None),
        })
    }

    async fn change(&mut self) -> Result<bool, Status> {
        loop {
            let came = match self.told {
                None => true,
                Some(false) => tokio::time::timeout(LOOK_EVERY, self.arrivals.came()).await.is_ok(),
                Some(true) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    false
                }
            };
            let view = if came {
                self.looked = Instant::now();
                self.scaler.look(&self.wish.queue).await?
            } else {
                let (at, view) = self.scaler.seen_lately(&self.wish.queue).await?;
                if at < self.looked {
                    continue;
                }
                view
            };
            let active = self.wish.is_active(&view.stats);
            if self.told.replace(active) != Some(active) {
                return Ok(active);
            }
            if came {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = Activity;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let (wish, view) = self.ask(Some(request.get_ref())).await?;
        Ok(Response::new(IsActiveResponse { result: wish.is_active(&view.stats) }))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Activity>, Status> {
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{STREAMS_MAX} streams are open, and no more are taken"
            )));
        };
        let (wish, _) = self.ask(Some(request.get_ref())).await?;
        let arrivals = Arrivals::watch(&self.shared.arrivals, &wish.queue);
        let watching = Watching {
            scaler: self.clone(),
            wish,
            arrivals,
            told: None,
            looked: Instant::now(),
            _permit: permit,
        };
        let events = stream::unfold(Some(watching), async |watching| watching?.next().await);
        Ok(Response::new(Box::pin(events)))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        let (wish, view) = self.ask(Some(request.get_ref())).await?;
        let target = wish
            .target(&view.settings, &view.stats)
            .map_err(|error| Status::failed_precondition(format!("queue {}: {error}", wish.queue)))?;
        let metric_name = wish.metric_name().to_owned();
        let spec = MetricSpec { metric_name, target_size: whole(target), target_size_float: target };
        Ok(Response::new(GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let GetMetricsRequest { scaled_object_ref, metric_name } = request.into_inner();
        let (wish, view) = self.ask(scaled_object_ref.as_ref()).await?;
        let value = wish.value(&view.stats);
        // Under the name by which it was asked for: KEDA has put its own marks on it.
        let metric_name = if metric_name.is_empty() { wish.metric_name().to_owned() } else { metric_name };
        let value = MetricValue { metric_name, metric_value: whole(value), metric_value_float: value };
        Ok(Response::new(GetMetricsResponse { metric_values: vec![value] }))
    }
}
