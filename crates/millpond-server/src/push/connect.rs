//! Connections to a target.
//!
//! Owns the way to a connection (name, TCP, TLS), its one bound on time, and which step failed. Must never send a
//! byte of a request.

use super::fault::{ConnectError, Phase, Progress, words};
use crate::tls::{self, TlsError};
use http::Uri;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioIo;
use millpond_config::Target;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

/// A connection, with or without TLS.
pub(super) type Connected = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The versions of HTTP that are offered over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// Either, HTTP/2 preferred.
    Both,
}

/// Connects to one target.
#[derive(Clone)]
pub(super) struct Connector {
    timeout: Duration,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Connector {
    /// What connects to `target`, in time.
    pub(super) fn new(target: &Target) -> Result<Self, TlsError> {
        let tls = match target.url.scheme_str() {
            Some("https") => {
                let host = target.url.host().unwrap_or_default().trim_matches(['[', ']']);
                let name = match &target.tls.server_name {
                    Some(name) => name.clone(),
                    None => {
                        ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?
                    }
                };
                Some((Arc::new(tls::client(&target.tls)?), name))
            }
            _ => None,
        };
        Ok(Self { timeout: target.connect_timeout(), tls })
    }

    /// The same with other versions of HTTP on offer.
    pub(super) fn offering(&self, offer: Offer) -> Self {
        let protocols: &[&[u8]] = match offer {
            Offer::Http1 => &[b"http/1.1"],
            Offer::Http2 => &[b"h2"],
            Offer::Both => &[b"h2", b"http/1.1"],
        };
        let tls = self.tls.as_ref().map(|(config, name)| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            (Arc::new(config), name.clone())
        });
        Self { timeout: self.timeout, tls }
    }

    /// How long it may take until there is a connection.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Connects.
    pub(super) async fn connect(self, uri: Uri) -> Result<Connected, ConnectError> {
        let progress = Progress::current();
        let timeout = self.timeout;
        let connected = tokio::time::timeout(timeout, self.step_by_step(uri, &progress)).await;
        connected.unwrap_or_else(|_| Err(progress.no_connection(timeout)))
    }

    async fn step_by_step(self, uri: Uri, progress: &Progress) -> Result<Connected, ConnectError> {
        progress.reach(Phase::Connecting);
        let resolver = Resolver { inner: GaiResolver::new(), progress: progress.clone() };
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        // Shared among the addresses of a name.
        http.set_connect_timeout(Some(self.timeout));
        let tcp = http.call(uri).await.map_err(|error| {
            let kind = if progress.phase() == Phase::Resolving { "resolve" } else { "connect" };
            ConnectError { kind, message: words(&error) }
        })?;
        let Some((config, name)) = self.tls else { return Ok(MaybeHttpsStream::Http(tcp)) };
        progress.reach(Phase::Securing);
        let secured = TlsConnector::from(config).connect(name, TokioIo::new(tcp)).await;
        secured.map(MaybeHttpsStream::from).map_err(|error| {
            let message = match tls::fault(&error) {
                Some(_) => words(&error),
                None => format!("the connection ended within the TLS handshake: {error}"),
            };
            ConnectError { kind: "tls", message }
        })
    }
}

impl Service<Uri> for Connector {
    type Response = Connected;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Connected, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// The system's resolver, which notes that it is at work.
#[derive(Clone)]
struct Resolver {
    inner: GaiResolver,
    progress: Progress,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<std::net::SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        self.progress.reach(Phase::Resolving);
        let (resolving, progress) = (self.inner.call(name), self.progress.clone());
        Box::pin(async move {
            let addresses: Vec<_> = resolving.await?.collect();
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
            }
            progress.reach(Phase::Connecting);
            Ok(addresses.into_iter())
        })
    }
}
