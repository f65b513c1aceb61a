//! TLS towards others: whom to trust, and what a failed handshake means.
//!
//! Owns the client's side of TLS and the words for what goes wrong in it. Must never accept a certificate that
//! cannot be verified.

use millpond_config::Tls;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;
use std::error::Error;
use std::io;
use std::sync::Arc;

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Nobody is trusted: neither the operating system nor the configuration names an authority.
    #[error(
        "nobody is trusted: the operating system has no certificates ({reason}); install ca-certificates, or name the authority in ca"
    )]
    NoAuthority {
        /// What was looked for in vain.
        reason: String,
    },
    /// A certificate of `ca` is none of an authority.
    #[error("ca: certificate {number} cannot be used: {source}")]
    Authority {
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("certificate and key cannot be used: {0}")]
    Identity(#[source] rustls::Error),
    /// The host of a URL is none that a certificate can be for.
    #[error("{0:?} is no host that a certificate can be for; set server_name")]
    Name(String),
    /// The library cannot be set up.
    #[error(transparent)]
    Setup(#[from] rustls::Error),
}

/// What a client needs to speak TLS: it trusts the authorities of the operating system and those of `tls`, and shows
/// the identity of `tls` to who asks. Which protocols it offers is the caller's to add.
pub(crate) fn client(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(rustls_native_certs::load_native_certs(), tls)?);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(TlsError::Identity),
    }
}

fn roots(native: CertificateResult, tls: &Tls) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Some systems trust certificates that are too odd to be read; nobody can be the target by them.
    roots.add_parsable_certificates(native.certs);
    for (index, certificate) in tls.ca.iter().enumerate() {
        let added = roots.add(certificate.clone());
        added.map_err(|source| TlsError::Authority { number: index + 1, source })?;
    }
    if roots.is_empty() {
        let reason = native.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoAuthority { reason });
    }
    Ok(roots)
}

/// The fault of TLS that `error` or one of its causes is.
pub(crate) fn fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<rustls::Error>() {
            return Some(fault);
        }
        // What an I/O error was made from is not among its causes.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(fault) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Some(fault);
        }
        cause = error.source();
    }
    None
}

/// What a fault of TLS means, and what to do.
pub(crate) fn words(fault: &rustls::Error) -> String {
    let meaning = match fault {
        rustls::Error::InvalidCertificate(reason) => match reason {
            CertificateError::UnknownIssuer => {
                "no trusted authority has signed the target's certificate; if it is right, name its authority in tls.ca"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the target's certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the target's certificate is not valid yet"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the target's certificate is for another name"
            }
            _ => "the target's certificate cannot be verified",
        },
        rustls::Error::InvalidMessage(_) => "the target does not speak TLS; is its url http?",
        rustls::Error::NoApplicationProtocol => "the target speaks none of the offered HTTP versions",
        rustls::Error::AlertReceived(_) => {
            "the target has refused the connection; does it ask for a certificate of ours?"
        }
        _ => return fault.to_string(),
    };
    format!("{meaning}: {fault}")
}

#[cfg(test)]
mod tests {
    use super::{TlsError, client, fault, roots, words};
    use millpond_config::{Identity, Tls};
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{CertificateError, InvalidMessage};
    use rustls_native_certs::CertificateResult;
    use std::io;
    use std::sync::Arc;

    fn made() -> (CertificateDer<'static>, Arc<PrivateKeyDer<'static>>) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        (cert.der().clone(), Arc::new(key.into()))
    }

    #[test]
    fn an_authority_or_a_key_that_cannot_be_used_is_named_at_the_start() {
        let (certificate, key) = made();
        let right = Tls { ca: vec![certificate.clone()], ..Tls::default() };
        assert!(client(&right).is_ok());

        let broken =
            Tls { ca: vec![certificate.clone(), CertificateDer::from(vec![1, 2, 3])], ..Tls::default() };
        let error = client(&broken).unwrap_err();
        assert!(matches!(error, TlsError::Authority { number: 2, .. }), "{error}");

        let identity = |key| Some(Identity { chain: vec![certificate.clone()], key });
        assert!(client(&Tls { identity: identity(key), ..right.clone() }).is_ok());
        let (_, another) = made();
        let error = client(&Tls { identity: identity(another), ..right.clone() }).unwrap_err();
        assert!(matches!(error, TlsError::Identity(_)), "{error}");
        let nonsense = Arc::new(PrivateKeyDer::from(PrivatePkcs8KeyDer::from(vec![0; 40])));
        let error = client(&Tls { identity: identity(nonsense), ..right }).unwrap_err();
        assert!(matches!(error, TlsError::Identity(_)), "{error}");
    }

    #[test]
    fn the_operating_systems_authorities_are_trusted_beside_those_of_the_configuration() {
        let native = |certs| {
            let mut native = CertificateResult::default();
            native.certs = certs;
            native
        };
        let odd = CertificateDer::from(vec![1, 2, 3]);
        let (systems, own) = (made().0, made().0);
        let both = Tls { ca: vec![own], ..Tls::default() };
        assert_eq!(roots(native(vec![odd.clone(), systems.clone()]), &both).unwrap().len(), 2);
        assert_eq!(roots(native(vec![systems]), &Tls::default()).unwrap().len(), 1);
        assert_eq!(roots(native(Vec::new()), &both).unwrap().len(), 1);
        for nobody in [Vec::new(), vec![odd]] {
            let error = roots(native(nobody), &Tls::default()).unwrap_err();
            assert!(matches!(error, TlsError::NoAuthority { .. }), "{error}");
        }
    }

    #[test]
    fn a_fault_of_tls_is_found_within_errors_of_io() {
        let error = io::Error::other(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(words(fault(&error).unwrap()).starts_with("the target does not speak TLS"));
        let error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(words(fault(&error).unwrap()).contains("tls.ca"));
        assert!(
            fault(&io::Error::other("else")).is_none()
                && fault(&io::Error::from(io::ErrorKind::NotFound)).is_none()
        );
    }
}
