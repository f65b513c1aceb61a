//! Which addresses may be called back.
//!
//! Owns the reading of a callback's URL, the operator's word on hosts, ports and networks, and which addresses are
//! nobody's business. Pure: must never resolve a name. Must never let anything through that it does not understand.

use http::Uri;
use ipnet::IpNet;
use millpond_config::{AllowedHost, Callbacks};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// Longest URL of a callback, in bytes.
pub(crate) const URL_BYTES_MAX: usize = 1024;

/// Why an address is not called back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// It is no URL that can be called.
    #[error("it is not a URL such as https://example.com/path: {0}")]
    NoUrl(&'static str),
    /// It is not encrypted.
    #[error("its scheme is not https")]
    NotHttps,
    /// Its port is not allowed.
    #[error("port {0} is not allowed by this server")]
    Port(u16),
    /// Its host is not allowed.
    #[error("the host {0:?} is not allowed by this server")]
    Host(String),
    /// It leads into a network that callbacks do not go to.
    #[error("{0} is not a public address, or one that this server allows")]
    Network(IpAddr),
    /// Its host has no address.
    #[error("the host has no address")]
    NoAddress,
}

/// A URL that can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) url: Uri,
    /// In lower case, an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
    /// The host, if it is an address itself.
    pub(crate) literal: Option<IpAddr>,
}

impl Address {
    /// Reads a URL.
    pub(crate) fn read(text: &str) -> Result<Self, Unfit> {
        if text.len() > URL_BYTES_MAX {
            return Err(Unfit::NoUrl("it is longer than 1024 bytes"));
        }
        if text.contains('#') {
            return Err(Unfit::NoUrl("it has a fragment"));
        }
        let url: Uri = text.parse().map_err(|_| Unfit::NoUrl("it cannot be read"))?;
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(Unfit::NotHttps),
        };
        let authority = url.authority().ok_or(Unfit::NoUrl("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(Unfit::NoUrl("it has credentials"));
        }
        let named = &authority.as_str()[authority.host().len()..];
        let port = match named.strip_prefix(':') {
            None if named.is_empty() => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => {
                port.parse().ok().filter(|port| *port > 0).ok_or(Unfit::NoUrl("it has no valid port"))?
            }
            None => return Err(Unfit::NoUrl("it cannot be read")),
        };
        let (host, literal) = host(authority.host())?;
        Ok(Self { url, host, port, is_tls, literal })
    }

    /// The URL without its query, which may hold a secret.
    pub(crate) fn shown(&self) -> String {
        shown(&self.url.to_string())
    }
}

/// A URL without its query, which may hold a secret.
pub(crate) fn shown(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(url, _)| format!("{url}?…"))
}

/// A host in lower case, and the address that it is, if it is one. What looks like a number but is no address in its
/// usual form is refused: resolvers read it in ways of their own.
fn host(text: &str) -> Result<(String, Option<IpAddr>), Unfit> {
    const ODD: Unfit = Unfit::NoUrl("its host is neither a name nor an address in its usual form");
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(ODD)?;
        let address: Ipv6Addr = inner.parse().map_err(|_| ODD)?;
        return Ok((address.to_string(), Some(address.into())));
    }
    let text = text.to_ascii_lowercase();
    let name = text.strip_suffix('.').unwrap_or(&text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(ODD);
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if last.bytes().all(|byte| byte.is_ascii_digit()) || hexadecimal {
        // The standard library reads four plain decimal numbers, and nothing else.
        let address: Ipv4Addr = text.parse().map_err(|_| ODD)?;
        return Ok((text, Some(address.into())));
    }
    Ok((name.to_owned(), None))
}

/// What the operator allows.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    allow: Vec<AllowedHost>,
    allow_http: bool,
    allow_private: Vec<IpNet>,
    ports: Vec<u16>,
}

impl Policy {
    pub(crate) fn new(callbacks: &Callbacks) -> Self {
        let Callbacks { allow, allow_http, allow_private, ports, .. } = callbacks.clone();
        Self { allow, allow_http, allow_private, ports }
    }

    /// Checks what can be told from the URL alone.
    pub(crate) fn check(&self, address: &Address) -> Result<(), Unfit> {
        if !address.is_tls && !self.allow_http {
            return Err(Unfit::NotHttps);
        }
        if !self.ports.contains(&address.port) {
            return Err(Unfit::Port(address.port));
        }
        let host = match address.literal {
            Some(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => address.host.clone(),
        };
        if !self.allow.is_empty() && !self.allow.iter().any(|allowed| allowed.fits(&host)) {
            return Err(Unfit::Host(host));
        }
        address.literal.map_or(Ok(()), |ip| self.check_ip(ip))
    }

    /// Checks an address that a host has.
    pub(crate) fn check_ip(&self, ip: IpAddr) -> Result<(), Unfit> {
        let canonical = ip.to_canonical();
        let is_allowed = self.allow_private.iter().any(|network| network.contains(&canonical));
        if is_allowed || is_public(canonical) { Ok(()) } else { Err(Unfit::Network(ip)) }
    }
}

/// The networks that are not public: the special-purpose registries of IANA, multicast, and what is reserved. Addresses
/// of other protocols within IPv6 are seen to apart.
static NOT_PUBLIC: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    const NETWORKS: [&str; 33] = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        // Unspecified, loopback, and the obsolete form of IPv4 within IPv6.
        "::/96",
        "::ffff:0:0:0/96",
        // NAT64 of one's own.
        "64:ff9b:1::/48",
        "100::/64",
        "100:0:0:1::/64",
        // Teredo, benchmarking, ORCHID and the like.
        "2001::/23",
        "2001:db8::/32",
        // 6to4.
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ];
    NETWORKS.iter().map(|network| network.parse().expect("written as a network")).collect()
});

/// Whether an address is one that anybody can reach.
fn is_public(ip: IpAddr) -> bool {
    if let IpAddr::V6(v6) = ip {
        // NAT64: who is reached lies behind, in the last four bytes.
        if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
            let [.., a, b, c, d] = v6.octets();
            return is_public(Ipv4Addr::new(a, b, c, d).into());
        }
    }
    !NOT_PUBLIC.iter().any(|network| network.contains(&ip))
}

#[cfg(test)]
mod tests {
    use super::{Address, Policy, Unfit, is_public, shown};
    use millpond_config::{AllowedHost, Callbacks};
    use std::net::IpAddr;

    fn policy(change: impl FnOnce(&mut Callbacks)) -> Policy {
        let mut callbacks = Callbacks::default();
        change(&mut callbacks);
        Policy::new(&callbacks)
    }

    fn check(policy: &Policy, url: &str) -> Result<(), Unfit> {
        policy.check(&Address::read(url)?)
    }

    #[test]
    fn addresses_that_nobody_outside_can_reach_are_not_public() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:0:127.0.0.1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "8.8.8.8",
            "1.1.1.1",
            "100.63.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn an_address_in_an_odd_form_is_refused_or_seen_through() {
        let policy = policy(|_| {});
        for url in [
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://127.1/",
            "https://127.0.0.1./",
            "https://127.0.0.01/",
            "https://1.2.3.4.5/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::1]/",
            "https://[0:0:0:0:0:0:0:1]/",
            "https://[fe80::1%25eth0]/",
            "https://[::ffff:7f00:1]/",
            "https://127.0.0.1/",
            "https://169.254.169.254/latest/",
            "https://[fd00:ec2::254]/",
            "https://0/",
            "https://08.8.8.8/",
            "https://ⓛocalhost/",
            "https://a..b/",
            "https://.a/",
            "https:///a",
            "https://a%2eb/",
        ] {
            assert!(check(&policy, url).is_err(), "{url}");
        }
        assert_eq!(check(&policy, "https://8.8.8.8/"), Ok(()));
        assert_eq!(check(&policy, "https://[2606:4700::1111]/"), Ok(()));
        assert_eq!(Address::read("https://Example.COM./a").unwrap().host, "example.com");
    }

    #[test]
    fn what_is_mapped_into_ipv6_is_taken_for_what_it_is() {
        let closed = policy(|_| {});
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(closed.check_ip(mapped), Err(Unfit::Network(mapped)));
        let open = policy(|callbacks| callbacks.allow_private = vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(open.check_ip(mapped), Ok(()));
        assert_eq!(open.check_ip("10.9.9.9".parse().unwrap()), Ok(()));
        assert!(open.check_ip("192.168.0.1".parse().unwrap()).is_err());
        assert!(closed.check_ip("::ffff:8.8.8.8".parse().unwrap()).is_ok());
    }

    #[test]
    fn only_https_on_allowed_ports_of_allowed_hosts_without_credentials() {
        let usual = policy(|_| {});
        assert_eq!(check(&usual, "http://example.com/"), Err(Unfit::NotHttps));
        assert_eq!(check(&usual, "ftp://example.com/"), Err(Unfit::NotHttps));
        assert_eq!(check(&usual, "https://example.com:8443/"), Err(Unfit::Port(8443)));
        assert_eq!(check(&usual, "https://example.com:443/a?b=c"), Ok(()));
        for url in [
            "https://u:p@example.com/",
            "https://u@example.com/",
            "https://example.com/#a",
            "example.com",
            "https://example.com:0/",
            "https://example.com:99999/",
            "https://example.com:/",
            "",
            "/a",
            "https://a b/",
        ] {
            assert!(check(&usual, url).is_err(), "{url}");
        }
        assert!(check(&usual, &format!("https://example.com/{}", "x".repeat(1024))).is_err());
        let some = policy(|callbacks| {
            callbacks.allow = vec![AllowedHost::parse("*.example.com").unwrap()];
            callbacks.allow_http = true;
            callbacks.ports = vec![80, 443];
        });
        assert_eq!(check(&some, "http://a.example.com/"), Ok(()));
        assert_eq!(check(&some, "https://example.org/"), Err(Unfit::Host("example.org".to_owned())));
        assert!(check(&some, "https://8.8.8.8/").is_err(), "an address is none of these hosts");
    }

    #[test]
    fn queries_are_not_shown() {
        assert_eq!(shown("https://a/b?token=c"), "https://a/b?…");
        assert_eq!(shown("https://a/b"), "https://a/b");
    }
}
