//! Which server a command speaks to.
//!
//! Owns the option `--url`. Must never carry a secret.

use clap::Args;
use millpond_api::client::{Client, ClientError};

/// Where the options are shown that every action takes.
pub(crate) const HEADING: &str = "Connection and output";

/// The server's address.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Address of the server
    #[arg(
        long,
        global = true,
        env = "MILLPOND_URL", hide_env_values = true, help_heading = HEADING,
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    url: String,
}

impl Connection {
    /// A client; connects when it is first used.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        Client::new(&self.url)
    }
}
