//! Servers that are processes of their own: started, killed without a word, and started again.
//!
//! Owns the processes and their logs. Must never leave one behind.

use anyhow::{Context as _, bail, ensure};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// How long a start may take.
const START_WITHIN: Duration = Duration::from_mins(1);

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// What it is called in messages.
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Where it writes what it has to say.
    pub(crate) log: PathBuf,
    /// Answers 2xx once it serves.
    pub(crate) ready: String,
}

/// A running server, killed when dropped.
pub(crate) struct Process {
    recipe: Recipe,
    child: Child,
    client: reqwest::Client,
}

/// An address of the loopback interface that is free at the moment. It stays the server's over restarts.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

impl Process {
    /// Starts it, and returns once it serves.
    pub(crate) async fn start(recipe: Recipe) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build()?;
        let child = spawn(&recipe)?;
        let mut process = Self { recipe, child, client };
        process.serves().await?;
        Ok(process)
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Starts it again after a kill.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.recipe)?;
        self.serves().await
    }

    /// An error, with the end of its log, if it has ended by itself.
    pub(crate) fn runs(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(&self.recipe.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("{} ended by itself ({status}):\n{end}", self.recipe.name)
    }

    async fn serves(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            self.runs()?;
            let answer = self.client.get(&self.recipe.ready).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} does not serve", self.recipe.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(recipe: &Recipe) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(&recipe.log)?;
    Command::new(&recipe.program)
        .args(&recipe.arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        // An interrupt of this program's terminal is for this program to pass on.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", recipe.program.display()))
}
