//! Callbacks: what may be set, and what is wrong with the rest.
//!
//! Owns the texts of `[callbacks]`. Must never show a secret.

use ipnet::IpNet;
use millpond_config::{AllowedHost, CALLBACK_QUEUE, Callbacks, parse_with};
use std::io;
use std::path::Path;
use std::time::Duration;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn file(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str().unwrap() {
        "key" => Ok(SECRET.as_bytes().to_vec()),
        "next" => Ok("A".repeat(32).into_bytes()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn parse(lines: &str) -> Result<Option<Callbacks>, String> {
    let loaded = parse_with(lines, "millpond.toml", &file).map_err(|error| error.to_string())?;
    assert_eq!(loaded.warnings, []);
    assert!(!format!("{:?}", loaded.configuration).contains(SECRET));
    Ok(loaded.configuration.callbacks)
}

fn callbacks(lines: &str) -> Callbacks {
    parse(&format!("[callbacks]\nsecret = {{ file = 'key' }}\n{lines}")).unwrap().unwrap()
}

#[test]
fn without_the_table_nobody_is_told_and_with_a_secret_everything_has_a_default() {
    assert_eq!(parse("").unwrap(), None);
    let read = callbacks("");
    assert_eq!(read.signature.len(), 1);
    assert_eq!(Callbacks { signature: Vec::new(), ..read }, Callbacks::default());
    let both = parse("[callbacks]\nsecret = [{ file = 'key' }, { file = 'next' }]").unwrap().unwrap();
    assert_eq!(both.signature.len(), 2);
}

#[test]
fn every_key_is_read() {
    let read = callbacks(
        "allow = ['*.example.com', 'shop.example']\nallow_http = true\nallow_private = ['10.0.0.0/8', 'fd00::/8']
        ports = [443, 8443]\ntimeout = '30s'\nconcurrency = 5\nconcurrency_per_host = 2\nmax_messages = 7
        max_bytes = '1MiB'\nretention = '5d'\nowner = 'team'",
    );
    assert_eq!(read.allow, ["*.example.com", "shop.example"].map(|host| AllowedHost::parse(host).unwrap()));
    assert_eq!(
        read.allow_private,
        ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse::<IpNet>().unwrap())
    );
    assert_eq!((read.allow_http, &read.ports[..]), (true, &[443, 8443][..]));
    let settings = read.queue_settings();
    assert_eq!(
        (settings.max_messages, settings.max_bytes, settings.concurrency),
        (Some(7), 1 << 20, Some(5))
    );
    assert_eq!((settings.retention, read.concurrency_per_host), (Duration::from_hours(120), 2));
    assert_eq!(settings.dead_letter.owner.as_deref(), Some("team"));
    assert_eq!(callbacks("allow_http = true").ports, [80, 443]);
}

#[test]
fn what_is_wrong_is_named_and_no_secret_is_shown() {
    let wrong = |lines: &str, key: &str| {
        let said = parse(&format!("[callbacks]\n{lines}")).unwrap_err();
        assert!(said.contains(&format!("callbacks{key}")), "{lines}: {said}");
        assert!(!said.contains("MfKQ9r8G"), "{said}");
    };
    wrong("", "");
    wrong(&format!("secret = '{SECRET}'"), ".secret");
    wrong("secret = { file = 'none' }", ".secret.file");
    for (line, key) in [
        ("allow = ['https://a']", ".allow"),
        ("allow_private = ['10.0.0.1/99']", ".allow_private"),
        ("ports = []", ".ports"),
        ("ports = [0]", ".ports"),
        ("ports = [70000]", ".ports"),
        ("ports = 443", ".ports"),
        ("timeout = '2m'", ".timeout"),
        ("timeout = '1ms'", ".timeout"),
        ("concurrency = 0", ".concurrency"),
        ("concurrency_per_host = 0", ".concurrency_per_host"),
        ("concurrency = 2", ".concurrency_per_host"),
        ("max_messages = 0", ".max_messages"),
        ("retention = '1d'", ".retention"),
        ("owner = ''", ".owner"),
        ("secrets = 1", ".secrets"),
        ("tls = { server_name = 'a' }", ".tls"),
    ] {
        wrong(&format!("secret = {{ file = 'key' }}\n{line}"), key);
    }
}

#[test]
fn no_queue_has_the_name_of_the_servers_own() {
    let said = parse(&format!("[queues.{CALLBACK_QUEUE}]")).unwrap_err();
    assert!(said.contains("queues._callbacks") && said.contains("[callbacks]"), "{said}");
}
