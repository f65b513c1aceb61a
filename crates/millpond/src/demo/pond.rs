//! The queue of the demonstration: a real server in this process, with a journal on disk, on a free port.
//!
//! Owns its start, its end and its directory. Must never reach into it: everything goes over HTTP.

use anyhow::{Context, anyhow};
use millpond_config::{Configuration, Target};
use millpond_core::name::Name;
use millpond_server::ServerOptions;
use millpond_sim::workload::Scenario;
use std::net::{Ipv4Addr, SocketAddr};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The target's name in the configuration.
const TARGET: &str = "backend";

/// The running server. Dropped, it is stopped and its directory removed.
pub(super) struct Pond {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<anyhow::Result<()>>,
    directory: TempDir,
}

impl Pond {
    /// Starts a server with one queue, named after the scenario, that pushes to `target`.
    pub(super) async fn start(scenario: &Scenario, target: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("millpond-demo-")
            .tempdir()
            .context("no temporary directory for the journal; set TMPDIR to a directory with room")?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the server cannot listen")?;
        let address = listener.local_addr().context("the server has no address")?;
        let mut configuration = configuration(scenario, target)?;
        configuration.listen = address;
        configuration.data = directory.path().join("data");
        let options = ServerOptions { configuration, ..ServerOptions::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            millpond_server::serve(options, listener, stopped).await.context("the server failed")
        });
        Ok(Self { address, stop, serving, directory })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its journal lies.
    #[cfg(test)]
    pub(super) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Stops it in order and removes its directory.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        // Unheard if the server has failed; then `serving` says why.
        let _ = self.stop.send(());
        self.serving.await.map_err(|error| anyhow!("the server broke off: {error}"))??;
        self.directory.close().context("the temporary journal cannot be removed")
    }
}

fn configuration(scenario: &Scenario, target: SocketAddr) -> anyhow::Result<Configuration> {
    let mut backend = Target::new(format!("http://{target}/").parse().context("the target's address")?);
    backend.settings = scenario.target_settings();
    let mut configuration = Configuration::default();
    configuration.targets.insert(Name::new(TARGET)?, backend);
    configuration.queues.insert(Name::new(scenario.name)?, scenario.queue_settings(TARGET)?);
    Ok(configuration)
}
