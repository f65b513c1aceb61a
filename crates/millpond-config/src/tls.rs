//! TLS towards a target: whom to trust, and what to show of ourselves.
//!
//! Owns the keys of `tls` and the reading of the files they name. Must never connect, and never offer a way around
//! verification: a certificate that no authority has signed is itself the `ca`.

use crate::diagnostic::Report;
use crate::files::named_file;
use crate::keys;
use crate::load::ReadFile;
use crate::section::Section;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;

/// What is special about TLS towards a target. The default: who has a certificate of an authority that the operating
/// system trusts, for the host of the URL, is the target, and is shown nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tls {
    /// Authorities that are trusted beside those of the operating system.
    pub ca: Vec<CertificateDer<'static>>,
    /// What is shown to a target that asks who calls.
    pub identity: Option<Identity>,
    /// The name that the target's certificate must be for. `None`: the host of the URL.
    pub server_name: Option<ServerName<'static>>,
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// The certificate, then those that lead to its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key; it prints as nothing.
    pub key: Arc<PrivateKeyDer<'static>>,
}

/// Reads the `tls` of a target.
pub(crate) fn tls(report: &mut Report<'_>, target: &Section<'_>, files: ReadFile<'_>) -> Tls {
    let Some(section) = target.section(report, "tls") else { return Tls::default() };
    section.check_keys(report, &keys::TLS);
    let ca = certificates(report, &section, "ca", files).unwrap_or_default();
    let server_name = section.text(report, "server_name", "a host name in quotes").and_then(|text| {
        let name = ServerName::try_from(text.to_owned()).ok();
        if name.is_none() {
            let help = "write the name in the target's certificate, such as \"backend.internal\"".to_owned();
            section.wrong(report, "server_name", format!("{text:?} is not a host name"), help);
        }
        name
    });
    Tls { ca, identity: identity(report, &section, files), server_name }
}

fn identity(report: &mut Report<'_>, section: &Section<'_>, files: ReadFile<'_>) -> Option<Identity> {
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.has(one) && !section.has(other) {
            let help = format!("add {other} = \"client.pem\", the file of the {other}");
            section.wrong(report, one, format!("has no effect without {other}"), help);
            return None;
        }
    }
    let chain = certificates(report, section, "certificate", files);
    let key = key(report, section, files);
    Some(Identity { chain: chain?, key: Arc::new(key?) })
}

fn certificates(
    report: &mut Report<'_>,
    section: &Section<'_>,
    key: &str,
    files: ReadFile<'_>,
) -> Option<Vec<CertificateDer<'static>>> {
    let (name, bytes) = named_file(report, section, key, "a file of certificates (PEM)", files)?;
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let problem = match read {
        Ok(certificates) if !certificates.is_empty() => return Some(certificates),
        Ok(_) => format!("{name} holds no certificate"),
        Err(error) => format!("{name} is not PEM: {error}"),
    };
    let help = "certificates begin with -----BEGIN CERTIFICATE-----; convert others, as with openssl x509";
    section.wrong(report, key, problem, help.to_owned());
    None
}

fn key(
    report: &mut Report<'_>,
    section: &Section<'_>,
    files: ReadFile<'_>,
) -> Option<PrivateKeyDer<'static>> {
    let (name, bytes) = named_file(report, section, "key", "a file with a private key (PEM)", files)?;
    let problem = match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => return Some(key),
        Err(pem::Error::NoItemsFound) => format!("{name} holds no private key that is not encrypted"),
        // What the reader says could repeat a part of the file.
        Err(_) => format!("{name} is not PEM"),
    };
    let help = "keys begin with -----BEGIN PRIVATE KEY-----; convert others, as with openssl pkey".to_owned();
    section.wrong(report, "key", problem, help);
    None
}
