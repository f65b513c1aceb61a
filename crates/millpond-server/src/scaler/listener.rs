//! The connections of autoscalers: HTTP/2 without TLS, as gRPC speaks it.
//!
//! Owns the accept loop and the bounds of one connection. Must never look into a question.

use super::Scaler;
use super::externalscaler::external_scaler_server::ExternalScalerServer;
use crate::connections::Closing;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Pause after a failed accept: it fails again at once while the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often a silent peer is asked for a sign of life; one that gives none within this time again is cut off.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Accepts connections until the server stops.
pub(crate) async fn accept(listener: TcpListener, scaler: Scaler) {
    let limits = scaler.shared.limits.clone();
    let permits = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    let closing = scaler.closing.clone();
    let service = scaler.service();
    let mut closes = closing.clone();
    let accepts = async {
        loop {
            // Beyond the limit, connections wait in the listener's backlog.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (protocol, service, closing) = (protocol.clone(), service.clone(), closing.clone());
                    tokio::spawn(async move {
                        serve_one(stream, &protocol, service, closing).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of an autoscaler; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        _ = closes.wait_for(|&closing| closing > Closing::Not) => {}
        () = accepts => {}
    }
}

async fn serve_one(
    stream: TcpStream,
    protocol: &http2::Builder<TokioExecutor>,
    service: ExternalScalerServer<Scaler>,
    mut closing: watch::Receiver<Closing>,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection =
        pin!(protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    tokio::select! {
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection of an autoscaler ended early");
            }
            return;
        }
        _ = closing.wait_for(|&closing| closing > Closing::Not) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        _ = closing.wait_for(|&closing| closing > Closing::Gracefully) => {}
    }
}
