//! One try to deliver a callback: to exactly the addresses that were looked at.
//!
//! Owns the resolving of the host, the connection, the request and the bound on the answer. Must never connect to an
//! address that was not vetted in the same try, follow a redirect, or use a proxy.

use super::address::{Address, Policy, Unfit};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use millpond_core::message::Failure;
use rustls::pki_types::ServerName;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const USER_AGENT: &str = concat!("millpond/", env!("CARGO_PKG_VERSION"));
/// Most bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most bytes that are read of an answer's body.
const BODY_BYTES_MAX: usize = 4 << 10;
/// Addresses of one host that are tried in one try.
const ADDRESSES_MAX: usize = 4;
/// Longest time until there is a connection to one of them.
const CONNECT_MAX: Duration = Duration::from_secs(5);

type Resolved<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a host.
pub(crate) trait Resolve: fmt::Debug + Send + Sync {
    /// All of them.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolved<'a>;
}

/// The operating system's way.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolved<'a> {
        Box::pin(async move {
            // The port is none of the resolver's business.
            Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// The beginning of the body.
    pub(super) body: Bytes,
}

/// What callbacks are made with.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) tls: Arc<rustls::ClientConfig>,
}

impl Client {
    /// Sends one POST. `policy`: what the host's addresses must comply with.
    pub(super) async fn post(
        &self,
        address: &Address,
        policy: Option<&Policy>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answered, Failure> {
        let ips = match address.literal {
            Some(ip) => vec![ip],
            None => self.resolver.resolve(&address.host).await.map_err(|error| {
                Failure::new("dns", &format!("{} cannot be found: {error}", address.host), None)
            })?,
        };
        vet(&ips, policy).map_err(|unfit| unfit_failure(address, &unfit))?;
        let stream = connect(&ips, address.port).await?;
        if !address.is_tls {
            return exchange(stream, address, headers, body).await;
        }
        let name = match address.literal {
            Some(ip) => ServerName::from(ip),
            None => ServerName::try_from(address.host.clone())
                .map_err(|_| Failure::new("tls", "the host is none that a certificate can be for", None))?,
        };
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            let words = crate::tls::fault(&error).map_or_else(|| error.to_string(), crate::tls::words);
            Failure::new("tls", &words, None)
        })?;
        exchange(stream, address, headers, body).await
    }
}

/// Every one of the addresses must comply: who mixes others in among them is up to no good.
fn vet(ips: &[IpAddr], policy: Option<&Policy>) -> Result<(), Unfit> {
    if ips.is_empty() {
        return Err(Unfit::NoAddress);
    }
    let Some(policy) = policy else { return Ok(()) };
    ips.iter().try_for_each(|ip| policy.check_ip(*ip))
}

pub(super) fn unfit_failure(address: &Address, unfit: &Unfit) -> Failure {
    Failure::new("address", &format!("{} is not called back: {unfit}", address.shown()), None)
}

async fn connect(ips: &[IpAddr], port: u16) -> Result<TcpStream, Failure> {
    let mut problem = String::new();
    for ip in ips.iter().take(ADDRESSES_MAX) {
        match tokio::time::timeout(CONNECT_MAX, TcpStream::connect(SocketAddr::new(*ip, port))).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => problem = error.to_string(),
            Err(_) => problem = String::from("no answer in time"),
        }
    }
    Err(Failure::new("connect", &problem, None))
}

async fn exchange<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    address: &Address,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Answered, Failure> {
    let broken = |error: hyper::Error| Failure::new("reset", &error.to_string(), None);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = request(address, headers, body)?;
    let answering = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let (parts, mut body) = response.into_parts();
        let mut read = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let room = BODY_BYTES_MAX - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() >= room {
                break;
            }
        }
        Ok(Answered { status: parts.status.as_u16(), headers: parts.headers, body: read.into() })
    };
    tokio::pin!(answering, connection);
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            answered = &mut answering => return answered,
            // Its errors come out of the answer; once it has ended, what is there of the body is still read.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

fn request(address: &Address, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
    let wrong = |_| Failure::new("internal", "the URL that is stored cannot be sent", None);
    let authority = address.url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let path = address.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request =
        Request::builder().method(Method::POST).uri(path).body(Full::new(body)).map_err(wrong)?;
    let host = HeaderValue::from_str(authority)
        .map_err(|_| Failure::new("internal", "the host that is stored cannot be sent", None))?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::HOST, host);
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    Ok(request)
}

#[cfg(test)]
mod tests;
