//! Names that lead elsewhere from one try to the next, and TLS by the name though the address is pinned.
//!
//! Owns the resolver that lies. Must never resolve a real name.

use super::{Address, Client, Policy, Resolve, Resolved};
use bytes::Bytes;
use http::HeaderMap;
use millpond_config::{Callbacks, Tls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Says something else every time.
#[derive(Debug)]
struct Lies(Mutex<VecDeque<Vec<&'static str>>>);

impl Resolve for Lies {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolved<'a> {
        let next = self.0.lock().unwrap().pop_front().expect("not asked for more often than expected");
        Box::pin(async move { Ok(next.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).collect()) })
    }
}

fn client(answers: &[&[&'static str]], tls: &Tls) -> Client {
    let lies = answers.iter().map(|answer| answer.to_vec()).collect();
    let tls = Arc::new(crate::tls::client(tls).unwrap());
    Client { resolver: Arc::new(Lies(Mutex::new(lies))), tls }
}

fn with_ca(cert: &rcgen::Certificate) -> Tls {
    Tls { ca: vec![cert.der().clone()], ..Tls::default() }
}

fn certificate(name: &str) -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn policy(networks: &[&str]) -> Policy {
    let allow_private = networks.iter().map(|network| network.parse().unwrap()).collect();
    Policy::new(&Callbacks { allow_private, ..Callbacks::default() })
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut read = vec![0; 4096];
    let count = stream.read(&mut read).await.unwrap();
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    String::from_utf8_lossy(&read[..count]).into_owned()
}

/// Answers one connection; what came.
async fn receiver() -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await }))
}

#[tokio::test]
async fn every_try_looks_at_where_the_name_leads_now() {
    let anyone = with_ca(&certificate("a.test").cert);
    let (port, came) = receiver().await;
    let client = client(
        &[
            &["127.0.0.2"],
            &["8.8.8.8", "127.0.0.1"],
            &["169.254.169.254"],
            &["::ffff:127.0.0.1"],
            &[],
            &["127.0.0.1"],
        ],
        &anyone,
    );
    let address = Address::read(&format!("http://rebind.test:{port}/")).unwrap();
    let closed = policy(&[]);
    for _ in 0..5 {
        let failure = client.post(&address, Some(&closed), HeaderMap::new(), Bytes::new()).await.unwrap_err();
        assert_eq!(failure.kind, "address", "{failure:?}");
    }
    assert!(!came.is_finished(), "nobody was called");
    let open = policy(&["127.0.0.1/32"]);
    let answered =
        client.post(&address, Some(&open), HeaderMap::new(), Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(answered.status, 204);
    let came = came.await.unwrap();
    assert!(
        came.starts_with("POST / HTTP/1.1\r\n") && came.contains(&format!("host: rebind.test:{port}")),
        "{came}"
    );
}

#[tokio::test]
async fn an_operators_own_url_may_lead_anywhere() {
    let (port, came) = receiver().await;
    let address = Address::read(&format!("http://127.0.0.1:{port}/a?b=c")).unwrap();
    let client = client(&[], &with_ca(&certificate("a.test").cert));
    assert_eq!(client.post(&address, None, HeaderMap::new(), Bytes::new()).await.unwrap().status, 204);
    assert!(came.await.unwrap().starts_with("POST /a?b=c HTTP/1.1"));
}

#[tokio::test]
async fn the_certificate_must_be_for_the_name_though_the_address_is_fixed() {
    let CertifiedKey { cert, signing_key } = certificate("shop.test");
    let tls = with_ca(&cert);
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(stream).await;
            }
        }
    });
    let client = client(&[&["127.0.0.1"], &["127.0.0.1"]], &tls);
    let open = policy(&["127.0.0.0/8"]);
    for (host, expected) in [("shop.test", Ok(204)), ("other.test", Err("tls".to_owned()))] {
        let address = Address::read(&format!("https://{host}:{port}/")).unwrap();
        let answered = client.post(&address, Some(&open), HeaderMap::new(), Bytes::new()).await;
        let answered = answered.map(|answered| answered.status).map_err(|failure| failure.kind);
        assert_eq!(answered, expected);
    }
}
