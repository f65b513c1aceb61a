//! How a target is reached: TLS, HTTP/2, the time for connecting, secrets and signatures.
//!
//! Owns the texts of these keys. Must never show a secret, whatever is wrong around it.

use millpond_config::{Configuration, Target, parse_with};
use std::io;
use std::path::Path;
use std::time::Duration;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The files that there are.
fn file(path: &Path) -> io::Result<Vec<u8>> {
    let text = match path.to_str().unwrap() {
        "ca.pem" => CERTIFICATE.repeat(2),
        "client.pem" => format!("{CERTIFICATE}{KEY}"),
        "client.key" => KEY.to_owned(),
        "half.pem" => CERTIFICATE.replace("-----END", "-----BEGIN"),
        "empty" => "\n".to_owned(),
        "token" => "Bearer hunter2\r\n".to_owned(),
        "lines" => "hunter2\nhunter2\n".to_owned(),
        "signing" => format!("{SECRET}\n"),
        "next" => "A".repeat(32),
        "short" => "whsec_aHVudGVyMg==".to_owned(),
        "binary" => return Ok(vec![0xff; 10]),
        "huge" => return Ok(vec![b'x'; (1 << 20) + 1]),
        _ => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(text.into_bytes())
}

fn parse(target: &str) -> Result<Configuration, String> {
    let text = format!("[targets.t]\nconcurrency = 1\n{target}\n");
    let loaded = parse_with(&text, "millpond.toml", &file).map_err(|error| error.to_string())?;
    assert_eq!(loaded.warnings, []);
    let printed = format!("{:?}", loaded.configuration);
    assert!(!printed.contains("hunter2") && !printed.contains(SECRET), "{printed}");
    Ok(loaded.configuration)
}

fn target(target: &str) -> Target {
    parse(target).unwrap_or_else(|error| panic!("{error}")).targets["t"].clone()
}

#[test]
fn a_target_over_tls_needs_nothing_but_its_url() {
    let target = target("url = 'https://a.test/work'");
    assert_eq!((target.http2, target.signature.len()), (None, 0));
    assert!(target.tls.ca.is_empty() && target.tls.identity.is_none() && target.tls.server_name.is_none());
}

#[test]
fn authorities_an_identity_and_a_name_are_read_from_their_files() {
    let target = target(
        "url = 'https://a.test'\ntls = { ca = 'ca.pem', certificate = 'client.pem', key = 'client.key', server_name = 'b.test' }",
    );
    let identity = target.tls.identity.unwrap();
    assert_eq!((target.tls.ca.len(), identity.chain.len()), (2, 1));
    assert!(target.tls.server_name.is_some());
}

#[test]
fn what_is_wrong_with_tls_names_the_file_and_the_reason() {
    for (tls, wrong) in [
        ("ca = 'nowhere'", "targets.t.tls.ca: cannot read nowhere: "),
        ("ca = 'huge'", "huge is larger than 1MiB"),
        ("ca = 'client.key'", "client.key holds no certificate"),
        ("ca = 'half.pem'", "half.pem is not PEM"),
        ("ca = 'binary'", "binary holds no certificate"),
        ("certificate = 'client.pem'", "targets.t.tls.certificate: has no effect without key"),
        ("key = 'client.key'", "targets.t.tls.key: has no effect without certificate"),
        ("certificate = 'client.pem', key = 'ca.pem'", "ca.pem holds no private key that is not encrypted"),
        ("server_name = 'a b'", "\"a b\" is not a host name"),
        ("verify = false", "unknown key"),
    ] {
        let error = parse(&format!("url = 'https://a.test'\ntls = {{ {tls} }}")).unwrap_err();
        assert!(error.contains(wrong) && error.contains(": 1 error"), "{tls}: {error}");
    }
    let error = parse("url = 'http://a.test'\ntls = { ca = 'ca.pem' }").unwrap_err();
    assert!(error.contains("targets.t.tls: has no effect where url is http"), "{error}");
}

#[test]
fn connecting_is_bounded_by_the_call_it_is_a_part_of() {
    let of = |keys: &str| target(&format!("url = 'http://a.test'\n{keys}")).connect_timeout();
    assert_eq!(of(""), Duration::from_secs(5));
    assert_eq!(of("timeout = '1m'"), Duration::from_secs(5));
    assert_eq!(of("timeout = '200ms'"), Duration::from_millis(200));
    assert_eq!(of("timeout = '20s'\nconnect_timeout = '10s'"), Duration::from_secs(10));
    for wrong in ["0s", "6s"] {
        let error = parse(&format!("url = 'http://a.test'\nconnect_timeout = '{wrong}'")).unwrap_err();
        assert!(error.contains("must lie between 1ms and timeout (5s)"), "{error}");
    }
}

#[test]
fn a_header_is_text_or_a_file_or_a_variable() {
    let target = target(
        "url = 'http://a.test'\nheaders = { x-plain = 'hunter2', Authorization = { file = 'token' }, x-env = { env = 'CARGO_PKG_NAME' } }",
    );
    assert_eq!(target.headers["x-plain"], "hunter2");
    assert_eq!(target.headers["authorization"], "Bearer hunter2", "without the end of its line");
    assert_eq!(target.headers["x-env"], "millpond-config");
    assert!(target.headers.values().all(http::HeaderValue::is_sensitive));
}

#[test]
fn what_is_wrong_with_a_secret_is_said_without_it() {
    for (header, wrong) in [
        ("{ file = 'nowhere' }", "targets.t.headers.x.file: cannot read nowhere"),
        ("{ file = 'empty' }", "empty is empty"),
        ("{ file = 'binary' }", "binary is not text"),
        ("{ file = 'lines' }", "has a value that no header can have"),
        (
            "{ env = 'MILLPOND_NO_SUCH_VARIABLE' }",
            "the environment has no variable \"MILLPOND_NO_SUCH_VARIABLE\"",
        ),
        ("{ file = 'token', env = 'PATH' }", "has both file and env"),
        ("{}", "says neither file nor env"),
        ("{ fil = 'token' }", "did you mean `file`?"),
        ("['hunter2']", "has a value that no header can have"),
    ] {
        let error = parse(&format!("url = 'http://a.test'\nheaders = {{ x = {header} }}")).unwrap_err();
        assert!(error.contains(wrong), "{header}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn calls_are_signed_with_one_secret_or_with_several() {
    let of = |secret: &str| {
        target(&format!("url = 'http://a.test'\nsignature = {{ secret = {secret} }}")).signature
    };
    assert_eq!(of("{ file = 'signing' }").len(), 1);
    let keys = of("[{ file = 'next' }, { file = 'signing' }]");
    assert_eq!(keys.iter().map(|key| key.expose().len()).collect::<Vec<_>>(), [24, 24]);
    assert_ne!(keys[0], keys[1]);
    for (signature, wrong) in [
        ("{}", "targets.t.signature: has no secret"),
        ("{ secret = [] }", "targets.t.signature: has no secret"),
        ("{ secret = { file = 'short' } }", "the secret has 7 bytes instead of 24 to 64"),
        (
            "{ secret = [{ file = 'signing' }, { file = 'token' }] }",
            "targets.t.signature.secret[1]: the secret is not base64",
        ),
        ("{ secret = 'whsec_hunter2' }", "targets.t.signature.secret: is a string"),
    ] {
        let error = parse(&format!("url = 'http://a.test'\nsignature = {signature}")).unwrap_err();
        assert!(error.contains(wrong), "{signature}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let error = parse("url = 'http://a.test'\nsignature = { secret = hunter2 }").unwrap_err();
    assert!(!error.contains("hunter2"), "{error}");
}
