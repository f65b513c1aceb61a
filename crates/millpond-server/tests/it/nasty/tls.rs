//! TLS that works, and every kind that does not.
//!
//! Owns certificates made for a test, and servers that show them. Must never trust what the configuration does not.

use super::{Bench, Nasty, assert_done, assert_failed, request, serve, target};
use millpond_config::{Identity, Tls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// How many authorities there are.
static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);

/// An authority.
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two of the same name would be told apart by their keys only.
        let name = format!("authority {}", AUTHORITIES.fetch_add(1, Ordering::Relaxed));
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate for these names, changed as the test wants it.
    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Identity { chain: vec![certificate.der().clone()], key: Arc::new(key) }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }

    /// A server for these names that offers these versions of HTTP.
    pub(super) fn server(&self, names: &[&str], protocols: &[&[u8]]) -> TlsAcceptor {
        acceptor(&self.sign(names, |_| {}), None, protocols)
    }

    fn trusted(&self) -> Tls {
        Tls { ca: vec![self.certificate.clone()], ..Tls::default() }
    }
}

/// A server that shows `identity`, and asks for a certificate of those authorities.
fn acceptor(identity: &Identity, asks_for: Option<Arc<RootCertStore>>, protocols: &[&[u8]]) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match asks_for {
        None => builder.with_no_client_auth(),
        Some(roots) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap(),
        ),
    };
    let mut config = builder.with_single_cert(identity.chain.clone(), identity.key.clone_key()).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Listens with TLS; what does not get through the handshake is dropped.
pub(super) async fn listen<F: Future<Output = ()> + Send>(
    acceptor: TlsAcceptor,
    act: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
) -> Nasty {
    let act = Arc::new(act);
    Nasty::start(move |_, stream| {
        let (acceptor, act) = (acceptor.clone(), Arc::clone(&act));
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                act(stream).await;
            }
        }
    })
    .await
}

/// A bench whose target is `host`, with TLS.
pub(super) async fn secured(nasty: &Nasty, host: &str, tls: Tls) -> Bench {
    Bench::start(nasty.address, |configuration| {
        let target = target(configuration);
        target.url = format!("https://{host}:{}/work", nasty.address.port()).parse().unwrap();
        target.tls = tls;
    })
    .await
}

/// The fate of a message whose target, `localhost`, shows this certificate.
async fn shown(identity: &Identity, tls: Tls) -> serde_json::Value {
    let nasty = listen(acceptor(identity, None, &[]), async |stream| serve(stream, OK).await).await;
    let bench = secured(&nasty, "localhost", tls).await;
    let outcome = bench.push("x").await;
    bench.end(&nasty).await;
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_with_a_certificate_of_a_named_authority_is_called() {
    let authority = Authority::new();
    for host in ["localhost", "127.0.0.1"] {
        let nasty = listen(authority.server(&[host], &[]), async |stream| serve(stream, OK).await).await;
        let bench = secured(&nasty, host, authority.trusted()).await;
        for _ in 0..3 {
            assert_done(&bench.push("x").await);
        }
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_nobody_has_signed_is_its_own_authority() {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let identity = Identity { chain: vec![certificate.der().clone()], key: Arc::new(key) };
    let trusted = Tls { ca: identity.chain.clone(), ..Tls::default() };
    assert_done(&shown(&identity, trusted).await);
    assert_failed(&shown(&identity, Authority::new().trusted()).await, "tls", "tls.ca");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_authority_is_not_trusted() {
    let outcome = shown(&Authority::new().sign(&["localhost"], |_| {}), Authority::new().trusted()).await;
    assert_failed(&outcome, "tls", "no trusted authority has signed the target's certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_good_only_in_its_time() {
    let authority = Authority::new();
    let of = |from, until| {
        authority.sign(&["localhost"], |parameters| {
            parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        })
    };
    let outcome = shown(&of(2000, 2001), authority.trusted()).await;
    assert_failed(&outcome, "tls", "the target's certificate has expired");
    let outcome = shown(&of(4000, 4001), authority.trusted()).await;
    assert_failed(&outcome, "tls", "the target's certificate is not valid yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_good_only_for_its_names_and_the_expected_name_can_be_set() {
    let authority = Authority::new();
    let identity = authority.sign(&["backend.internal"], |_| {});
    let outcome = shown(&identity, authority.trusted()).await;
    assert_failed(&outcome, "tls", "the target's certificate is for another name");
    assert!(outcome["last_error"]["message"].as_str().unwrap().contains("backend.internal"), "{outcome}");
    let named = ServerName::try_from("backend.internal").unwrap();
    assert_done(&shown(&identity, Tls { server_name: Some(named), ..authority.trusted() }).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_speaks_no_tls_is_told_as_such() {
    let nasty = Nasty::start(async |_, mut stream| {
        let _ = stream.readable().await;
        let _ = stream.write_all(b"HTTP/1.1 400 The plain HTTP request\r\ncontent-length: 0\r\n\r\n").await;
        super::closed(stream).await;
    })
    .await;
    let bench = secured(&nasty, "localhost", Authority::new().trusted()).await;
    assert_failed(&bench.push("x").await, "tls", "the target does not speak TLS; is its url http?");
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_within_the_handshake_is_a_fault_of_tls() {
    for is_reset in [false, true] {
        let nasty = Nasty::start(move |_, stream| async move {
            let _ = stream.peek(&mut [0]).await;
            if is_reset {
                stream.set_zero_linger().unwrap();
            } else {
                let _ = stream.try_read(&mut [0; 8 << 10]);
            }
        })
        .await;
        let bench = secured(&nasty, "localhost", Authority::new().trusted()).await;
        assert_failed(&bench.push("x").await, "tls", "the connection ended within the TLS handshake");
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_asks_who_calls_is_shown_the_configured_certificate() {
    let (authority, callers) = (Authority::new(), Authority::new());
    let server = authority.sign(&["localhost"], |_| {});
    let acceptor = || acceptor(&server, Some(callers.roots()), &[]);

    let nasty = listen(acceptor(), async |stream| serve(stream, OK).await).await;
    let known = Tls { identity: Some(callers.sign(&["millpond"], |_| {})), ..authority.trusted() };
    let bench = secured(&nasty, "localhost", known).await;
    assert_done(&bench.push("x").await);
    bench.end(&nasty).await;

    let unknown = Tls { identity: Some(Authority::new().sign(&["millpond"], |_| {})), ..authority.trusted() };
    for tls in [authority.trusted(), unknown] {
        let nasty = listen(acceptor(), async |stream| serve(stream, OK).await).await;
        let bench = secured(&nasty, "localhost", tls).await;
        let outcome = bench.push("x").await;
        // The target's alert and the end of its connection race; both say that it was the target.
        let kind = outcome["last_error"]["kind"].as_str().unwrap();
        assert!(["tls", "reset"].contains(&kind), "{outcome}");
        assert_eq!((&outcome["status"], &outcome["attempts"]), (&"dead".into(), &1.into()), "{outcome}");
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_prefers_http_1_1_gets_it() {
    let authority = Authority::new();
    for protocols in [&[][..], &[b"http/1.1".as_slice()][..]] {
        let nasty = listen(authority.server(&["localhost"], protocols), async |mut stream| {
            while let Some(request) = request(&mut stream).await {
                assert!(request.starts_with("POST /work HTTP/1.1\r\n"));
                stream.write_all(OK).await.unwrap();
            }
        })
        .await;
        let bench = secured(&nasty, "localhost", authority.trusted()).await;
        for _ in 0..4 {
            assert_done(&bench.push("x").await);
        }
        assert_eq!(nasty.accepted(), 2, "one to ask, and one that is kept");
        bench.end(&nasty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_off_without_a_farewell_of_tls_is_no_answer() {
    let authority = Authority::new();
    let nasty = listen(authority.server(&["localhost"], &[]), async |mut stream| {
        if request(&mut stream).await.is_none() {
            return;
        }
        // Whoever cuts the line can end a body that has no length.
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of i").await.unwrap();
        stream.flush().await.unwrap();
    })
    .await;
    let bench = secured(&nasty, "localhost", authority.trusted()).await;
    assert_failed(&bench.push("x").await, "reset", "the answer broke off");
    bench.end(&nasty).await;
}
