//! Closed loops: workers that each do one thing after the other.
//!
//! Owns warm-up, the measured window, latencies and CPU per message. Must never know what the workers do.

use crate::process::{Process, machine_cpu_seconds};
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Does one thing after the other.
pub(crate) trait Worker: Send + 'static {
    /// Does it once; for how many messages.
    fn once(&mut self) -> impl Future<Output = Result<u64>> + Send;
}

/// What a closed loop did in its window.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Messages per second.
    pub(crate) per_second: f64,
    /// Latency of the median turn.
    pub(crate) p50_ms: f64,
    /// Latency that one turn in a hundred exceeds.
    pub(crate) p99_ms: f64,
    /// CPU per message of each watched process, in the order given.
    pub(crate) cpu_us: Vec<f64>,
    /// Cores that everybody but the watched processes kept busy.
    pub(crate) others_cores: f64,
    /// Messages in all, warm-up and run-out included.
    pub(crate) total: u64,
}

#[derive(Debug, Default)]
struct Meter {
    messages: AtomicU64,
    measuring: AtomicBool,
    stopped: AtomicBool,
}

/// Runs `workers` for a tenth of `duration` to warm up, measures for `duration`, then lets every worker finish its
/// turn.
pub(crate) async fn closed_loop<W: Worker>(
    workers: Vec<W>,
    duration: Duration,
    processes: &[Process],
) -> Result<Measured> {
    let meter = Arc::new(Meter::default());
    let mut running = JoinSet::new();
    for worker in workers {
        running.spawn(turns(worker, Arc::clone(&meter)));
    }
    tokio::time::sleep(duration / 10).await;
    meter.measuring.store(true, Ordering::Relaxed);
    let (began, messages, before) =
        (Instant::now(), meter.messages.load(Ordering::Relaxed), cpu_seconds(processes)?);
    let machine = machine_cpu_seconds()?;
    tokio::time::sleep(duration).await;
    let (elapsed, after) = (began.elapsed(), cpu_seconds(processes)?);
    let machine = machine_cpu_seconds()? - machine;
    let messages = meter.messages.load(Ordering::Relaxed) - messages;
    meter.measuring.store(false, Ordering::Relaxed);
    meter.stopped.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    while let Some(own) = running.join_next().await {
        latencies.extend(own.context("a worker panicked")??);
    }
    latencies.sort_unstable();
    let used: Vec<f64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    Ok(Measured {
        per_second: messages as f64 / elapsed.as_secs_f64(),
        p50_ms: percentile(&latencies, 50),
        p99_ms: percentile(&latencies, 99),
        cpu_us: used.iter().map(|seconds| seconds * 1e6 / messages as f64).collect(),
        others_cores: (machine - used.iter().sum::<f64>()) / elapsed.as_secs_f64(),
        total: meter.messages.load(Ordering::Relaxed),
    })
}

/// Latencies in microseconds of the turns that ended within the window.
async fn turns<W: Worker>(mut worker: W, meter: Arc<Meter>) -> Result<Vec<u32>> {
    let mut latencies = Vec::new();
    while !meter.stopped.load(Ordering::Relaxed) {
        let began = Instant::now();
        let messages = worker.once().await?;
        meter.messages.fetch_add(messages, Ordering::Relaxed);
        if meter.measuring.load(Ordering::Relaxed) {
            latencies.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
    Ok(latencies)
}

fn cpu_seconds(processes: &[Process]) -> Result<Vec<f64>> {
    processes.iter().map(|process| process.cpu_seconds()).collect()
}

/// In milliseconds, of sorted microseconds.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(f64::NAN, |&micros| f64::from(micros) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_lie_within_the_values() {
        let values: Vec<u32> = (1..=100).map(|value| value * 1000).collect();
        assert!((percentile(&values, 50) - 51.0).abs() < 0.1);
        assert!((percentile(&values, 99) - 100.0).abs() < 0.1);
        assert!((percentile(&values[..1], 99) - 1.0).abs() < 0.1);
    }
}
