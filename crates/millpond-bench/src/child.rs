//! Servers in processes of their own.
//!
//! Owns their start, their address and their end. Must never leave one behind.

use crate::process::Process;
use crate::serve::Role;
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server; killed when dropped. It also ends by itself when this process does, for its standard input
/// ends then.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts this program again as a server, and waits until it listens.
    pub(crate) fn start(role: Role, data: &Path, target: Option<SocketAddr>) -> Result<Self> {
        let role = role.to_possible_value().context("every role has a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg(role.get_name()).arg("--data").arg(data);
        if let Some(target) = target {
            command.arg("--target").arg(target.to_string());
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("standard output is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().context("the server said no address; see its errors above")?;
        Ok(Self { child, address })
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data are of no further use. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
