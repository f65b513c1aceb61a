//! `millpond serve`: starts a server and stops it in order.
//!
//! Owns signals, the log and the start banner. Must never know what the server does between the two.

use super::arguments;
use super::failure::{Failure, tell};
use clap::{Args, ValueEnum};
use millpond_config::{Configuration, Loaded, Scaler, parse_listen};
use millpond_core::name::Name;
use millpond_engine::engine::OpenError;
use millpond_server::{Listeners, ServeError, ServerOptions};
use serde_json::json;
use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Start a server
///
/// Accepts messages durably, holds them, and hands them on at the pace their targets can stand. Without a
/// configuration it has no queues; create them while it runs (millpond queues create) or declare them in a file. On
/// SIGTERM or Ctrl-C it takes no new work, lets running calls finish and exits with 0; a second signal ends it at once.
/// Nothing that was accepted is lost either way.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        millpond serve\n  \
        millpond serve --config millpond.toml\n  \
        millpond serve --listen 127.0.0.1:0 --data /tmp/pond --json\n\n\
        For scripts: once the server serves, --json prints one line on standard output,\n\
        {\"url\": …, \"data\": …, \"queues\": […]}, with the address that was bound.\n\
        The log goes to standard error; MILLPOND_LOG=debug says more.\n\
        Check a configuration without starting: millpond check --config millpond.toml")]
pub(crate) struct Serve {
    /// Configuration file [default: millpond.toml here, if there is one]
    #[arg(long, env = "MILLPOND_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, env = "MILLPOND_LISTEN", hide_env_values = true, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Directory of what must not be lost [default: ./millpond-data]
    #[arg(long, env = "MILLPOND_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Serve other machines although nobody is asked who they are
    #[arg(long)]
    insecure: bool,
    /// Form of the log
    #[arg(
        long,
        env = "MILLPOND_LOG_FORMAT",
        hide_env_values = true,
        value_name = "FORM",
        default_value = "text"
    )]
    log_format: LogFormat,
    /// Once it serves, print one JSON document: url, data, queues
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, for a log collector
    Json,
}

impl Serve {
    pub(crate) async fn run(self, out: &mut impl Write) -> Result<(), Failure> {
        let path = arguments::configuration(self.config.as_deref());
        let Loaded { mut configuration, warnings } = load(path.as_deref())?;
        configuration.listen = self.listen.unwrap_or(configuration.listen);
        configuration.data = self.data.clone().unwrap_or(configuration.data);
        start_log(self.log_format)?;
        // Whether others can reach the server is judged below, by the address that counts in the end.
        for warning in warnings.iter().filter(|warning| warning.key != "listen") {
            tell(&format!("{warning}\n"));
        }
        millpond_config::check_exposure(configuration.listen, self.insecure)
            .map_err(|error| Failure::usage("the server would be open to everybody", error.to_string()))?;
        let listen = configuration.listen;
        if millpond_config::check_exposure(listen, false).is_err() {
            tracing::warn!(%listen, "open to whoever can reach this address: nobody is asked who they are (--insecure)");
        }
        let listeners = self.listeners(&configuration).await?;
        let scaler = listeners.scaler.as_ref().map(TcpListener::local_addr).transpose()?;
        let address = listeners.http.local_addr()?;
        let started = Started { address, scaler, configuration: configuration.clone(), path };
        let data = configuration.data.clone();
        let options = ServerOptions { configuration, insecure: self.insecure, ..ServerOptions::default() };
        // The server looks at this future for the first time when it serves: the banner promises nothing too early.
        let mut printed = Ok(());
        let shutdown = async {
            printed = started.print(self.json, out);
            if printed.is_ok() {
                asked_to_stop().await;
            }
        };
        let served = millpond_server::serve(options, listeners, shutdown).await;
        served.map_err(|error| not_served(&error, &data))?;
        Ok(printed?)
    }

    async fn listeners(&self, configuration: &Configuration) -> Result<Listeners, Failure> {
        let bind =
            async |listen| TcpListener::bind(listen).await.map_err(|error| cannot_listen(listen, &error));
        let http = bind(configuration.listen).await?;
        let Some(Scaler { listen }) = configuration.scaler else { return Ok(http.into()) };
        millpond_config::check_exposure(listen, self.insecure).map_err(|error| {
            Failure::usage("autoscalers would not be the only ones to ask", format!("[scaler] {error}"))
        })?;
        Ok(Listeners { http, scaler: Some(bind(listen).await?) })
    }
}

fn load(path: Option<&Path>) -> Result<Loaded, Failure> {
    let Some(path) = path else {
        return Ok(Loaded { configuration: Configuration::default(), warnings: Vec::new() });
    };
    arguments::load(path)
}

fn start_log(format: LogFormat) -> Result<(), Failure> {
    let wanted = std::env::var("MILLPOND_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::builder().parse(&wanted).map_err(|error| {
        Failure::usage(
            format!("MILLPOND_LOG is {wanted:?}: {error}"),
            "write a level: error, warn, info, debug or trace",
        )
    })?;
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn cannot_listen(listen: SocketAddr, error: &io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program listens there (another millpond?); stop it, or choose another port: --listen {}:0 takes a free one",
            listen.ip()
        ),
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege; choose a higher one".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; 127.0.0.1 and [::1] are always there".to_owned()
        }
        _ => "choose another address with --listen".to_owned(),
    };
    Failure::new(format!("cannot listen on {listen}: {error}"), help)
}

fn not_served(error: &ServeError, data: &Path) -> Failure {
    use millpond_journal::OpenError as JournalError;
    // Where the data are damaged, another directory is no way out: the errors say what is, the help how to look.
    let help = match error {
        ServeError::Open(OpenError::Storage(_)) => {
            Some("another data directory can be chosen with --data".to_owned())
        }
        ServeError::Open(
            OpenError::Journal(
                JournalError::FormatFile | JournalError::Corrupt { .. } | JournalError::MissingSegment { .. },
            )
            | OpenError::Record { .. }
            | OpenError::Orphan(_)
            | OpenError::SecretMissing
            | OpenError::SecretDamaged,
        ) => Some(format!("see what is damaged: millpond journal verify --data {}", data.display())),
        ServeError::Open(OpenError::Journal(JournalError::RepairUnfinished)) => {
            Some(format!("millpond journal repair --accept-loss --data {}", data.display()))
        }
        _ => None,
    };
    Failure::Failed { text: error.to_string(), help }
}

/// Returns at the first signal to stop; a second one ends the process at once.
async fn asked_to_stop() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        tracing::error!("signals cannot be received; the server stops only by force");
        return std::future::pending().await;
    };
    next(&mut terminate, &mut interrupt).await;
    tokio::spawn(async move {
        next(&mut terminate, &mut interrupt).await;
        tell("stopped at once; what was accepted is on disk");
        std::process::exit(1);
    });
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// What is told once the server serves.
struct Started {
    address: SocketAddr,
    scaler: Option<SocketAddr>,
    configuration: Configuration,
    path: Option<PathBuf>,
}

impl Started {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn print(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
        tell(&self.banner());
        if json {
            let queues: Vec<&str> = self.configuration.queues.keys().map(Name::as_str).collect();
            let data = self.configuration.data.display().to_string();
            let mut document = json!({"url": self.url(), "data": data, "queues": queues});
            if let Some(scaler) = self.scaler {
                document["scaler"] = json!(scaler.to_string());
            }
            writeln!(out, "{document}")?;
            out.flush()?;
        }
        Ok(())
    }

    fn banner(&self) -> String {
        let url = self.url();
        let configuration = self
            .path
            .as_ref()
            .map_or_else(|| "none; every key has its default".to_owned(), |path| path.display().to_string());
        let mut lines = vec![
            format!("millpond {} serves {url}", env!("CARGO_PKG_VERSION")),
            format!("  data           {}", self.configuration.data.display()),
            format!("  configuration  {configuration}"),
        ];
        lines.extend(self.scaler.map(|scaler| format!("  autoscalers    {scaler} (KEDA's external scaler)")));
        let names: Vec<&str> = self.configuration.queues.keys().map(Name::as_str).collect();
        let declared = if names.is_empty() { "none declared".to_owned() } else { names.join(", ") };
        lines.push(format!("  queues         {declared}"));
        lines.push("try it:".to_owned());
        if names.is_empty() {
            lines.push(format!("  millpond queues create jobs --url {url}"));
        }
        let queue = names.first().unwrap_or(&"jobs");
        lines.push(format!("  curl -i {url}/v1/queues/{queue}/messages -d hello"));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::{Started, cannot_listen};
    use millpond_config::Configuration;
    use std::io;

    fn started(text: &str) -> Started {
        let configuration = millpond_config::parse(text, "millpond.toml").unwrap().configuration;
        Started {
            address: ([127, 0, 0, 1], 4_711).into(),
            scaler: None,
            configuration,
            path: Some("millpond.toml".into()),
        }
    }

    #[test]
    fn the_first_line_of_the_banner_ends_in_the_address() {
        let banner = Started {
            address: ([127, 0, 0, 1], 4_711).into(),
            scaler: Some(([127, 0, 0, 1], 4_712).into()),
            configuration: Configuration::default(),
            path: None,
        }
        .banner();
        assert!(banner.lines().next().unwrap().ends_with(" serves http://127.0.0.1:4711"), "{banner}");
        assert!(banner.contains("millpond queues create jobs --url http://127.0.0.1:4711"), "{banner}");
        assert!(banner.contains("127.0.0.1:4712 (KEDA"), "{banner}");
    }

    #[test]
    fn a_declared_queue_is_the_one_to_try() {
        let banner = started("[queues.orders]\n[queues.reports]").banner();
        assert!(banner.contains("orders, reports"), "{banner}");
        assert!(
            banner.ends_with("curl -i http://127.0.0.1:4711/v1/queues/orders/messages -d hello"),
            "{banner}"
        );
        assert!(!banner.contains("create"), "{banner}");
    }

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        let text = cannot_listen(([127, 0, 0, 1], 80).into(), &error).to_string();
        assert!(text.contains("127.0.0.1:80") && text.contains("--listen 127.0.0.1:0"), "{text}");
    }
}
